//! Numbers as people write them for variables of an object: literals with units, names of enumerators, sizes
//! of types, facts of the machine, and arithmetic on them.
//!
//! `5ms`, `0xff`, `-1`, `true`, `SCX_OPS_ENQ_LAST | 8`, `nr_cpus / 2`, `cpu ^ 1`, `sizeof(struct task_ctx)`.

use schedlab_bpf::btf::{Btf, Kind};
use std::collections::BTreeMap;

/// What names mean.
#[derive(Clone)]
pub struct Scope<'a> {
    /// Facts of the machine, loop variables, values that programs gave out.
    pub variables: BTreeMap<String, i128>,
    /// The object's types.
    pub object: &'a Btf,
    /// The kernel's types.
    pub kernel: &'a Btf,
}

/// A number; a duration knows that it is one and is in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    /// The value.
    pub value: i128,
    /// Whether it was written with a unit of time.
    pub is_time: bool,
}

impl Number {
    fn plain(value: i128) -> Number {
        Number { value, is_time: false }
    }

    /// The number for a variable that counts in this unit: `ns`, `us`, `ms`, `s` or something else.
    ///
    /// # Errors
    /// A duration that is no whole number of the unit.
    pub fn in_unit(self, unit: &str) -> Result<i128, String> {
        let divisor = match unit {
            "us" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            _ => 1,
        };
        match self.is_time {
            true if self.value % divisor != 0 => {
                Err(format!("{} ns is no whole number of {unit}", self.value))
            }
            true => Ok(self.value / divisor),
            false => Ok(self.value),
        }
    }
}

/// Evaluates a text.
///
/// # Errors
/// What cannot be read, and what is right or near.
pub fn evaluate(text: &str, scope: &Scope<'_>) -> Result<Number, String> {
    let mut reader = Reader { tokens: tokens(text)?, at: 0, scope };
    let number = reader.level(0)?;
    match reader.peek() {
        None => Ok(number),
        Some(token) => Err(format!("'{token}' was not expected in '{text}'")),
    }
}

fn tokens(text: &str) -> Result<Vec<String>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let word = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
        let len = if word(first) {
            rest.find(|c: char| !word(c)).unwrap_or(rest.len())
        } else if ["<<", ">>", "==", "!=", "<=", ">="].iter().any(|pair| rest.starts_with(pair)) {
            2
        } else if "+-*/%()<>&|^~?:".contains(first) {
            1
        } else {
            return Err(format!("'{first}' has no meaning in '{text}'"));
        };
        tokens.push(rest[..len].to_owned());
        rest = rest[len..].trim_start();
    }
    if tokens.is_empty() {
        return Err("a value is missing".to_owned());
    }
    Ok(tokens)
}

/// Operators from the weakest on, as in C.
const LEVELS: &[&[&str]] = &[
    &["|"],
    &["^"],
    &["&"],
    &["==", "!="],
    &["<", "<=", ">", ">="],
    &["<<", ">>"],
    &["+", "-"],
    &["*", "/", "%"],
];

struct Reader<'a> {
    tokens: Vec<String>,
    at: usize,
    scope: &'a Scope<'a>,
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

    fn level(&mut self, level: usize) -> Result<Number, String> {
        let Some(operators) = LEVELS.get(level) else { return self.unary() };
        let mut left = self.level(level + 1)?;
        while let Some(operator) = operators.iter().find(|operator| self.peek() == Some(**operator)) {
            self.at += 1;
            let right = self.level(level + 1)?;
            let value = apply(operator, left.value, right.value)?;
            left = Number { value, is_time: left.is_time || right.is_time };
        }
        if level == 0 && self.accept("?") {
            let yes = self.level(0)?;
            if !self.accept(":") {
                return Err("'?' needs ':'".to_owned());
            }
            let no = self.level(0)?;
            return Ok(if left.value != 0 { yes } else { no });
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Number, String> {
        if self.accept("-") {
            let number = self.unary()?;
            return Ok(Number { value: -number.value, ..number });
        }
        if self.accept("~") {
            return Ok(Number::plain(i128::from(!(self.unary()?.value as u64))));
        }
        if self.accept("(") {
            let number = self.level(0)?;
            return if self.accept(")") { Ok(number) } else { Err("'(' without ')'".to_owned()) };
        }
        let Some(token) = self.peek().map(str::to_owned) else { return Err("a value is missing".to_owned()) };
        self.at += 1;
        if token.starts_with(|c: char| c.is_ascii_digit()) {
            return literal(&token);
        }
        if token == "sizeof" {
            return self.size();
        }
        self.name(&token)
    }

    fn size(&mut self) -> Result<Number, String> {
        let open = self.accept("(");
        let tag = ["struct", "union", "enum"].iter().any(|tag| self.accept(tag));
        let name = self.peek().unwrap_or_default().to_owned();
        self.at += 1;
        if !open || !self.accept(")") {
            return Err("write sizeof(struct NAME) or sizeof(NAME)".to_owned());
        }
        let types = self.scope.object;
        let known = [types.find_struct(&name), types.find_union(&name), types.find_typedef(&name)];
        let found = known.into_iter().flatten().next().or_else(|| types.find_int(&name));
        let size = found.and_then(|id| types.size_of(id));
        let what = if tag { "struct or union" } else { "type" };
        size.map(|size| Number::plain(size.into())).ok_or(format!("the object has no {what} '{name}'"))
    }

    fn name(&self, token: &str) -> Result<Number, String> {
        let name = token.trim_start_matches('$');
        match name {
            "true" | "yes" | "on" => return Ok(Number::plain(1)),
            "false" | "no" | "off" => return Ok(Number::plain(0)),
            _ => {}
        }
        if let Some(value) = self.scope.variables.get(name) {
            return Ok(Number::plain(*value));
        }
        if let Some(value) = enumerator(self.scope.object, name).or(enumerator(self.scope.kernel, name)) {
            return Ok(Number::plain(value));
        }
        let known = self.scope.variables.keys().map(String::as_str);
        let near = schedlab_bpf::object::knobs::nearest(name, known.chain(enumerators(self.scope.object)));
        Err(format!("'{name}' is no number, enumerator or fact of the machine{near}"))
    }
}

fn apply(operator: &str, a: i128, b: i128) -> Result<i128, String> {
    let word = |value: i128| value as u64;
    Ok(match operator {
        "|" => i128::from(word(a) | word(b)),
        "^" => i128::from(word(a) ^ word(b)),
        "&" => i128::from(word(a) & word(b)),
        "==" => i128::from(a == b),
        "!=" => i128::from(a != b),
        "<" => i128::from(a < b),
        "<=" => i128::from(a <= b),
        ">" => i128::from(a > b),
        ">=" => i128::from(a >= b),
        "<<" => i128::from(word(a).checked_shl(b as u32).unwrap_or(0)),
        ">>" => i128::from(word(a).checked_shr(b as u32).unwrap_or(0)),
        "+" => a.saturating_add(b),
        "-" => a.saturating_sub(b),
        "*" => a.saturating_mul(b),
        "/" | "%" if b == 0 => return Err("division by zero".to_owned()),
        "/" => a / b,
        _ => a % b,
    })
}

/// Digits, decimal or `0x`, with an optional unit.
fn literal(token: &str) -> Result<Number, String> {
    let text = token.replace('_', "");
    let unreadable = || format!("'{token}' is no number; write 5000000, 0x4c4b40, 5ms, 64K");
    if let Some(digits) = text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        return i128::from_str_radix(digits, 16).map(Number::plain).map_err(|_| unreadable());
    }
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let value: i128 = text[..end].parse().map_err(|_| unreadable())?;
    let (factor, is_time) = match &text[end..] {
        "" => (1, false),
        "ns" => (1, true),
        "us" => (1_000, true),
        "ms" => (1_000_000, true),
        "s" => (1_000_000_000, true),
        "K" | "Ki" => (1 << 10, false),
        "M" | "Mi" => (1 << 20, false),
        "G" | "Gi" => (1 << 30, false),
        // Suffixes of C say nothing more.
        "u" | "U" | "l" | "L" | "ul" | "UL" | "ull" | "ULL" | "LLU" => (1, false),
        _ => return Err(unreadable()),
    };
    Ok(Number { value: value.saturating_mul(factor), is_time })
}

/// The value of an enumerator, 64-bit ones without a sign unless the enumeration has one.
fn enumerator(types: &Btf, name: &str) -> Option<i128> {
    types.types().find_map(|(_, found)| {
        let Kind::Enum { values, signed, size, .. } = &found.kind else { return None };
        let value = values.iter().find(|value| types.string(value.name_offset) == name)?.value;
        let bits = 8 * (*size).min(8);
        Some(match signed {
            true => i128::from(value),
            false => i128::from(value as u64) & ((1_i128 << bits) - 1),
        })
    })
}

fn enumerators(types: &Btf) -> impl Iterator<Item = &str> {
    let values = types.types().filter_map(|(_, found)| match &found.kind {
        Kind::Enum { values, .. } => Some(values),
        _ => None,
    });
    values.flatten().map(|value| types.string(value.name_offset))
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_bpf::btf::BtfBuilder;

    fn value(text: &str) -> Result<Number, String> {
        let mut builder = BtfBuilder::new();
        builder
            .declare("enum mode { MODE_FAST = 3, MODE_BIG = 0x80000000U }; struct pair { int a; int b; };")
            .unwrap();
        let (object, kernel) = (builder.finish(), BtfBuilder::new().finish());
        let variables = BTreeMap::from([("nr_cpus".to_owned(), 8)]);
        evaluate(text, &Scope { variables, object: &object, kernel: &kernel })
    }

    #[test]
    fn numbers_are_read_as_people_write_them() {
        for (text, wanted) in [
            ("5000000", 5_000_000),
            ("0x10", 16),
            ("-3", -3),
            ("true", 1),
            ("off", 0),
            ("64K", 65_536),
            ("1_000", 1000),
            ("18446744073709551615", u64::MAX.into()),
            ("MODE_FAST | 8", 11),
            ("MODE_BIG", 0x8000_0000),
            ("nr_cpus / 2 - 1", 3),
            ("$nr_cpus * (1 + 1)", 16),
            ("nr_cpus > 4 ? 7 : 9", 7),
            ("~0", u64::MAX.into()),
            ("sizeof(struct pair)", 8),
            ("1 << 4 | 1", 17),
        ] {
            assert_eq!(value(text), Ok(Number::plain(wanted)), "{text}");
        }
    }

    #[test]
    fn durations_fit_the_unit_of_the_variable() {
        let duration = value("5ms").unwrap();
        assert_eq!(duration.in_unit("ns"), Ok(5_000_000));
        assert_eq!(duration.in_unit("us"), Ok(5_000));
        assert_eq!(duration.in_unit("ms"), Ok(5));
        assert_eq!(value("5").unwrap().in_unit("us"), Ok(5), "a bare number is in the unit already");
        assert!(duration.in_unit("s").unwrap_err().contains("no whole number of s"));
    }

    #[test]
    fn what_cannot_be_read_is_told() {
        for (text, wanted) in [
            ("MODE_FAS", "did you mean MODE_FAST"),
            ("nr_cpu", "did you mean nr_cpus"),
            ("5 minutes", "was not expected"),
            ("5min", "5ms, 64K"),
            ("1 / 0", "division by zero"),
            ("(1", "without ')'"),
            ("", "missing"),
            ("sizeof(struct nothing)", "no struct or union 'nothing'"),
            ("1 @ 2", "'@' has no meaning"),
        ] {
            let error = value(text).unwrap_err();
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }
}
