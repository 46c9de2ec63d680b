//! The C subset of [`BtfBuilder::declare`]: a recursive-descent reader of declarations.
//!
//! Not here: preprocessing, function bodies, initialisers, attributes.

use super::builder::Tag;
use super::{BtfBuilder, BtfBuilderError, Kind, Member};

pub(super) fn declare(builder: &mut BtfBuilder, text: &str) -> Result<(), BtfBuilderError> {
    let mut reader = Reader { builder, tokens: tokens(text), at: 0 };
    while reader.peek().is_some() {
        reader.item()?;
    }
    Ok(())
}

pub(super) fn type_name(builder: &mut BtfBuilder, text: &str) -> Result<u32, BtfBuilderError> {
    let mut reader = Reader { builder, tokens: tokens(text), at: 0 };
    let base = reader.base()?;
    let (_, type_id) = reader.declarator(base)?;
    match reader.peek() {
        None => Ok(type_id),
        Some(_) => Err(reader.error("expected the end of the type")),
    }
}

/// Words, numbers, and single punctuation marks; `<<` and `...` are one token. Comments are dropped.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let len = if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |at| at + 2)
        } else if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if first.is_alphanumeric() || first == '_' {
            rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())
        } else if rest.starts_with("...") {
            3
        } else if rest.starts_with("<<") {
            2
        } else {
            first.len_utf8()
        };
        let comment = rest.starts_with("/*") || rest.starts_with("//");
        if !comment && !first.is_whitespace() {
            tokens.push(rest[..len].to_string());
        }
        rest = &rest[len..];
    }
    tokens
}

/// One step from a base type to the declared type.
enum Derivation {
    Pointer { constant: bool },
    Array(u32),
    Function(Vec<(String, u32)>),
}

struct Reader<'b> {
    builder: &'b mut BtfBuilder,
    tokens: Vec<String>,
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<&str> {
        self.tokens.get(self.at).map(String::as_str)
    }

    fn accept(&mut self, token: &str) -> bool {
        let found = self.peek() == Some(token);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, token: &str) -> Result<(), BtfBuilderError> {
        match self.accept(token) {
            true => Ok(()),
            false => Err(self.error(&format!("expected `{token}`"))),
        }
    }

    fn error(&self, problem: &str) -> BtfBuilderError {
        let from = self.at.saturating_sub(4).min(self.tokens.len());
        let to = (self.at + 3).min(self.tokens.len());
        BtfBuilderError { near: self.tokens[from..to].join(" "), problem: problem.to_string() }
    }

    fn identifier(&mut self) -> Option<String> {
        let word = self.peek()?;
        let is_name = word.starts_with(|c: char| c.is_alphabetic() || c == '_');
        let word = is_name.then(|| word.to_string())?;
        self.at += 1;
        Some(word)
    }

    fn item(&mut self) -> Result<(), BtfBuilderError> {
        let is_typedef = self.accept("typedef");
        self.accept("extern");
        let base = self.base()?;
        if self.accept(";") {
            return Ok(());
        }
        let (name, type_id) = self.declarator(base)?;
        self.expect(";")?;
        if name.is_empty() {
            return Err(self.error("expected a name"));
        }
        if is_typedef {
            self.builder.define_typedef(name, type_id);
        } else if matches!(self.builder.btf.kind(type_id), Kind::FuncProto { .. }) {
            self.builder.push(&name, Kind::Func { proto: type_id, linkage: 1 });
        } else {
            self.builder.push(&name, Kind::Var { type_id, linkage: 1 });
        }
        Ok(())
    }

    /// Qualifiers and the type before the declarator.
    fn base(&mut self) -> Result<u32, BtfBuilderError> {
        let (mut constant, mut volatile) = (false, false);
        let mut words: Vec<String> = Vec::new();
        let mut base = None;
        loop {
            if self.accept("const") {
                constant = true;
            } else if self.accept("volatile") {
                volatile = true;
            } else if base.is_some() {
                break;
            } else if self.accept("struct") {
                base = Some(self.composite(Tag::Struct)?);
            } else if self.accept("union") {
                base = Some(self.composite(Tag::Union)?);
            } else if self.accept("enum") {
                base = Some(self.enumeration()?);
            } else {
                match self.peek() {
                    Some(word) if is_integer_word(word) => words.push(word.to_string()),
                    Some("void") if words.is_empty() => base = Some(0),
                    Some(word) if words.is_empty() => base = self.builder.names.get(word).copied(),
                    _ => break,
                }
                if base.is_none() && words.is_empty() {
                    return Err(self.error("unknown type name"));
                }
                self.at += 1;
            }
        }
        let mut id = match base {
            Some(id) => id,
            None => self.integer(&words)?,
        };
        if volatile {
            id = self.builder.volatile(id);
        }
        if constant {
            id = self.builder.constant(id);
        }
        Ok(id)
    }

    fn integer(&self, words: &[String]) -> Result<u32, BtfBuilderError> {
        let count = |word: &str| words.iter().filter(|w| *w == word).count();
        let unsigned = count("unsigned") > 0;
        let name = match (count("char"), count("short"), count("long"), unsigned) {
            (1, ..) if count("signed") > 0 => "signed char",
            (1, _, _, false) => "char",
            (1, _, _, true) => "unsigned char",
            (_, 1, _, false) => "short int",
            (_, 1, _, true) => "short unsigned int",
            (_, _, 1, false) => "long int",
            (_, _, 1, true) => "long unsigned int",
            (_, _, 2, false) => "long long int",
            (_, _, 2, true) => "long long unsigned int",
            (0, 0, 0, true) => "unsigned int",
            (0, 0, 0, false) if !words.is_empty() => "int",
            _ => return Err(self.error("unknown type name")),
        };
        Ok(self.builder.names[name])
    }

    /// After `struct` or `union`: a reference, or a definition in braces.
    fn composite(&mut self, tag: Tag) -> Result<u32, BtfBuilderError> {
        let name = self.identifier().unwrap_or_default();
        let size = if self.accept("@") { Some(self.number()?) } else { None };
        if !self.accept("{") {
            return match name.is_empty() {
                true => Err(self.error("expected a name or `{`")),
                false => Ok(self.builder.tagged(tag, &name)),
            };
        }
        let (members, natural_size) = self.members(tag)?;
        let size = size.unwrap_or(natural_size);
        let kind = match tag {
            Tag::Union => Kind::Union { size, members },
            _ => Kind::Struct { size, members },
        };
        Ok(self.builder.define(tag, &name, kind))
    }

    /// Members up to the closing brace, and the size that a C compiler would choose.
    fn members(&mut self, tag: Tag) -> Result<(Vec<Member>, u32), BtfBuilderError> {
        let mut members = Vec::new();
        let (mut next_bit, mut end_bit, mut align) = (0u32, 0u32, 1u32);
        while !self.accept("}") {
            let base = self.base()?;
            let (name, type_id) = match self.peek() {
                Some(";") => (String::new(), base),
                _ => self.declarator(base)?,
            };
            let bits = if self.accept(":") { self.number()? } else { 0 };
            let offset = if self.accept("@") { Some(self.number()?) } else { None };
            self.expect(";")?;
            let size = self.builder.btf.size_of(type_id);
            let size = size.ok_or_else(|| self.error("a member needs a complete type"))?;
            let member_align = self.builder.btf.align_of(type_id).unwrap_or(1);
            let start = match offset {
                // Bitfields declared at the same offset follow each other.
                Some(bytes) if bits != 0 && next_bit / 8 / size == bytes / size => next_bit.max(8 * bytes),
                Some(bytes) => 8 * bytes,
                None if bits == 0 => next_bit.next_multiple_of(8 * member_align),
                None if next_bit / (8 * size) != (next_bit + bits - 1) / (8 * size) => {
                    next_bit.next_multiple_of(8 * size)
                }
                None => next_bit,
            };
            let end = start + if bits == 0 { 8 * size } else { bits };
            next_bit = if tag == Tag::Union { 0 } else { end };
            end_bit = end_bit.max(end);
            align = align.max(member_align);
            members.push(self.builder.member(&name, type_id, start, bits));
        }
        Ok((members, end_bit.div_ceil(8).next_multiple_of(align)))
    }

    fn enumeration(&mut self) -> Result<u32, BtfBuilderError> {
        let name = self.identifier().unwrap_or_default();
        if !self.accept("{") {
            return Ok(self.builder.tagged(Tag::Enum, &name));
        }
        let mut values = Vec::new();
        let mut next = 0i64;
        let start = self.at;
        while !self.accept("}") {
            let name = self.identifier().ok_or_else(|| self.error("expected an enumerator"))?;
            let value = if self.accept("=") { self.expression()? } else { next };
            next = value.wrapping_add(1);
            self.builder.enumerators.insert(name.clone(), value);
            values.push((name, value));
            if !self.accept(",") && self.peek() != Some("}") {
                return Err(self.error("expected `,` or `}`"));
            }
        }
        let unsigned = self.tokens[start..self.at].iter().any(|t| is_unsigned_literal(t));
        Ok(self.builder.define_enum(&name, &values, unsigned))
    }

    fn declarator(&mut self, base: u32) -> Result<(String, u32), BtfBuilderError> {
        let mut name = String::new();
        let derivations = self.derivations(&mut name)?;
        let mut id = base;
        for derivation in derivations {
            id = match derivation {
                Derivation::Pointer { constant } => {
                    let pointer = self.builder.pointer(id);
                    if constant { self.builder.constant(pointer) } else { pointer }
                }
                Derivation::Array(length) => self.builder.array(id, length),
                Derivation::Function(params) => self.builder.prototype(id, &params),
            };
        }
        Ok((name, id))
    }

    /// Derivations in the order in which they apply to the base type.
    fn derivations(&mut self, name: &mut String) -> Result<Vec<Derivation>, BtfBuilderError> {
        let mut steps = Vec::new();
        while self.accept("*") {
            steps.push(Derivation::Pointer { constant: self.accept("const") });
        }
        let mut inner = Vec::new();
        if self.accept("(") {
            inner = self.derivations(name)?;
            self.expect(")")?;
        } else if let Some(word) = self.identifier() {
            *name = word;
        }
        let mut suffixes = Vec::new();
        loop {
            if self.accept("[") {
                let length = if self.peek() == Some("]") { 0 } else { self.number()? };
                self.expect("]")?;
                suffixes.push(Derivation::Array(length));
            } else if self.accept("(") {
                suffixes.push(Derivation::Function(self.params()?));
            } else {
                break;
            }
        }
        steps.extend(suffixes.into_iter().rev());
        steps.extend(inner);
        Ok(steps)
    }

    fn params(&mut self) -> Result<Vec<(String, u32)>, BtfBuilderError> {
        let mut params = Vec::new();
        if self.accept(")") {
            return Ok(params);
        }
        loop {
            if self.accept("...") {
                params.push((String::new(), 0));
            } else {
                let base = self.base()?;
                params.push(self.declarator(base)?);
            }
            if self.accept(")") {
                break;
            }
            self.expect(",")?;
        }
        if let [(name, 0)] = params.as_slice()
            && name.is_empty()
            && self.tokens[self.at - 2] == "void"
        {
            params.clear();
        }
        Ok(params)
    }

    fn number(&mut self) -> Result<u32, BtfBuilderError> {
        let value = self.expression()?;
        u32::try_from(value).map_err(|_| self.error("expected a number from 0 to 4294967295"))
    }

    /// `|` binds weakest, then `<<`, then `+` and `-`, then unary `-` and `~`.
    fn expression(&mut self) -> Result<i64, BtfBuilderError> {
        let mut value = self.shift()?;
        while self.accept("|") {
            value |= self.shift()?;
        }
        Ok(value)
    }

    fn shift(&mut self) -> Result<i64, BtfBuilderError> {
        let mut value = self.sum()?;
        while self.accept("<<") {
            let by = self.sum()?;
            value = value.wrapping_shl(by as u32);
        }
        Ok(value)
    }

    fn sum(&mut self) -> Result<i64, BtfBuilderError> {
        let mut value = self.term()?;
        loop {
            if self.accept("+") {
                value = value.wrapping_add(self.term()?);
            } else if self.accept("-") {
                value = value.wrapping_sub(self.term()?);
            } else {
                return Ok(value);
            }
        }
    }

    fn term(&mut self) -> Result<i64, BtfBuilderError> {
        if self.accept("-") {
            return Ok(self.term()?.wrapping_neg());
        }
        if self.accept("~") {
            return Ok(!self.term()?);
        }
        if self.accept("(") {
            let value = self.expression()?;
            self.expect(")")?;
            return Ok(value);
        }
        let word = self.peek().unwrap_or("").to_string();
        let value = self.builder.enumerators.get(&word).copied().or_else(|| literal(&word));
        let value = value.ok_or_else(|| self.error("expected a number or an enumerator"))?;
        self.at += 1;
        Ok(value)
    }
}

fn is_integer_word(word: &str) -> bool {
    matches!(word, "char" | "short" | "int" | "long" | "signed" | "unsigned")
}

/// Written with a `U`, or beyond the signed range.
fn is_unsigned_literal(word: &str) -> bool {
    literal(word).is_some_and(|v| v < 0 || word.contains(['u', 'U']))
}

fn literal(word: &str) -> Option<i64> {
    let digits = word.trim_end_matches(['u', 'U', 'l', 'L']);
    match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok().map(|v| v as i64),
        None => digits.parse::<u64>().ok().map(|v| v as i64),
    }
}
