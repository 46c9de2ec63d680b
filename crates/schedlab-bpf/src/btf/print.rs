//! Types as C spells them, for messages and listings.

use std::cell::Cell;

use super::{Btf, Kind};

/// Deepest nesting that is spelled out: no C code comes near it, damaged types go round in circles.
const DEPTH_MAX: u32 = 32;
/// Types spelled out in one declaration.
const STEPS_MAX: u32 = 4096;

impl Btf {
    /// A type as C spells it in a cast, e.g. `struct task_struct *`, `const u64[4]`, `void (*)(int)`.
    pub fn c_type(&self, id: u32) -> String {
        self.c_declaration(id, "")
    }

    /// A declaration of `name` with a type, e.g. `struct task_struct *p`, `char comm[16]`.
    pub fn c_declaration(&self, id: u32, name: &str) -> String {
        self.declarator(id, name.to_string(), 0, &Cell::new(STEPS_MAX))
    }

    fn declarator(&self, id: u32, inner: String, depth: u32, steps: &Cell<u32>) -> String {
        steps.set(steps.get().saturating_sub(1));
        if depth > DEPTH_MAX || steps.get() == 0 {
            return "...".to_string();
        }
        let join = |base: String| match inner.is_empty() || inner.starts_with('[') {
            true => format!("{base}{inner}"),
            false => format!("{base} {inner}"),
        };
        match self.kind(id) {
            Kind::Void => join("void".to_string()),
            Kind::Ptr(to) => {
                let parenthesised = matches!(self.untagged(*to), Kind::Array { .. } | Kind::FuncProto { .. });
                let star = if parenthesised { format!("(*{inner})") } else { format!("*{inner}") };
                self.declarator(*to, star, depth + 1, steps)
            }
            Kind::Array { element, length, .. } => {
                self.declarator(*element, format!("{inner}[{length}]"), depth + 1, steps)
            }
            Kind::FuncProto { returns, params } => {
                let params: Vec<String> = params
                    .iter()
                    .map(|p| match p.type_id {
                        0 => "...".to_string(),
                        ty => self.declarator(ty, self.string(p.name_offset).to_string(), depth + 1, steps),
                    })
                    .collect();
                let list = if params.is_empty() { "void".to_string() } else { params.join(", ") };
                self.declarator(*returns, format!("{inner}({list})"), depth + 1, steps)
            }
            Kind::Const(to) => self.qualified("const", *to, inner, depth, steps),
            Kind::Volatile(to) => self.qualified("volatile", *to, inner, depth, steps),
            Kind::Restrict(to) => self.qualified("restrict", *to, inner, depth, steps),
            Kind::TypeTag { target, .. } => self.declarator(*target, inner, depth + 1, steps),
            Kind::Func { proto, .. } => self.declarator(*proto, self.name(id).to_string(), depth + 1, steps),
            Kind::Var { type_id, .. } => {
                self.declarator(*type_id, self.name(id).to_string(), depth + 1, steps)
            }
            _ => join(self.tagged_name(id)),
        }
    }

    /// `const T *` puts the word first, `T *const` puts it after the star.
    fn qualified(&self, word: &str, to: u32, inner: String, depth: u32, steps: &Cell<u32>) -> String {
        match self.untagged(to) {
            Kind::Ptr(_) => {
                let inner = if inner.is_empty() { word.to_string() } else { format!("{word} {inner}") };
                self.declarator(to, inner, depth + 1, steps)
            }
            _ => format!("{word} {}", self.declarator(to, inner, depth + 1, steps)),
        }
    }

    fn untagged(&self, mut id: u32) -> &Kind {
        for _ in 0..DEPTH_MAX {
            match self.kind(id) {
                Kind::TypeTag { target, .. } => id = *target,
                kind => return kind,
            }
        }
        &Kind::Void
    }

    fn tagged_name(&self, id: u32) -> String {
        let name = match self.name(id) {
            "" => "{...}",
            name => name,
        };
        match self.kind(id) {
            Kind::Struct { .. } | Kind::Fwd { is_union: false } => format!("struct {name}"),
            Kind::Union { .. } | Kind::Fwd { is_union: true } => format!("union {name}"),
            Kind::Enum { .. } => format!("enum {name}"),
            _ => name.to_string(),
        }
    }

    /// Word for the kind of a type in messages, e.g. `struct`, `typedef`.
    pub fn kind_name(&self, id: u32) -> &'static str {
        match self.kind(id) {
            Kind::Void => "void",
            Kind::Int { .. } => "int",
            Kind::Ptr(_) => "ptr",
            Kind::Array { .. } => "array",
            Kind::Struct { .. } => "struct",
            Kind::Union { .. } => "union",
            Kind::Enum { wide: false, .. } => "enum",
            Kind::Enum { wide: true, .. } => "enum64",
            Kind::Fwd { .. } => "fwd",
            Kind::Typedef(_) => "typedef",
            Kind::Volatile(_) => "volatile",
            Kind::Const(_) => "const",
            Kind::Restrict(_) => "restrict",
            Kind::Func { .. } => "func",
            Kind::FuncProto { .. } => "func_proto",
            Kind::Var { .. } => "var",
            Kind::Datasec { .. } => "datasec",
            Kind::Float { .. } => "float",
            Kind::DeclTag { .. } => "decl_tag",
            Kind::TypeTag { .. } => "type_tag",
        }
    }
}
