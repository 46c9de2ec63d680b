//! BTF: the type information of one object or of one kernel, read, looked up and written.
//!
//! A [`Btf`] is the parsed form of a `.BTF` section: types numbered from 1 (0 is `void`), each with its
//! [`Kind`]. [`BtfBuilder`] makes one from declarations, [`Btf::to_bytes`] writes the section back.
//! Not here: split BTF of kernel modules, and what relocations do with types (`object::core`).
//!
//! Source: Documentation/bpf/btf.rst and include/uapi/linux/btf.h of Linux.

mod builder;
mod declare;
mod lookup;
mod parse;
mod print;
pub mod show;
mod write;

pub use builder::{BtfBuilder, BtfBuilderError};
pub use lookup::{MemberPath, essential_name};

use thiserror::Error;

/// Flag of an integer's encoding: signed.
pub const INT_SIGNED: u8 = 1;
/// Flag of an integer's encoding: a character.
pub const INT_CHAR: u8 = 2;
/// Flag of an integer's encoding: a truth value.
pub const INT_BOOL: u8 = 4;

/// A `.BTF` section that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BtfError {
    /// The magic number is missing, or the bytes are of another byte order.
    #[error("no BTF of this byte order: bad magic number {0:#06x} (a little-endian object is needed)")]
    Magic(u16),
    /// A version other than 1.
    #[error("BTF version {0} is not known (1 is); the file is newer than this program")]
    Version(u8),
    /// Bytes end before what they announce.
    #[error("BTF is cut short: {0}")]
    Truncated(&'static str),
    /// A kind that this reader does not know.
    #[error("BTF type [{id}] has kind {kind}, newer than this program knows")]
    Kind {
        /// Number of the type.
        id: u32,
        /// Number of its kind.
        kind: u8,
    },
    /// A reference to a type or string that does not exist.
    #[error("BTF type [{id}] refers to {what} {target}, which does not exist")]
    Dangling {
        /// Number of the type.
        id: u32,
        /// "type" or "string".
        what: &'static str,
        /// What it refers to.
        target: u32,
    },
}

/// One member of a struct or union.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Offset of the name in the string table; 0 for an anonymous member.
    pub name_offset: u32,
    /// Type of the member.
    pub type_id: u32,
    /// Bits from the start of the struct.
    pub bit_offset: u32,
    /// Width of a bitfield in bits, 0 if the member is none.
    pub bit_size: u32,
}

/// One enumerator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enumerator {
    /// Offset of the name in the string table.
    pub name_offset: u32,
    /// Value; an unsigned 64-bit value keeps its bits.
    pub value: i64,
}

/// One parameter of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// Offset of the name in the string table, 0 if unnamed.
    pub name_offset: u32,
    /// Type; 0 for the dots of a variadic function.
    pub type_id: u32,
}

/// One variable (or function) of a data section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SectionVar {
    /// The `Var` or `Func` type.
    pub type_id: u32,
    /// Bytes from the start of the section. Zero in an object that was not linked: read the ELF symbol.
    pub offset: u32,
    /// Bytes.
    pub size: u32,
}

/// What a type is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// No type; number 0.
    Void,
    /// An integer.
    Int {
        /// Bytes.
        size: u32,
        /// `INT_*` flags.
        encoding: u8,
        /// Bit offset inside the storage (obsolete, 0).
        bit_offset: u8,
        /// Bits.
        bits: u8,
    },
    /// A pointer to a type.
    Ptr(u32),
    /// An array.
    Array {
        /// Element type.
        element: u32,
        /// Index type.
        index: u32,
        /// Number of elements.
        length: u32,
    },
    /// A struct: size in bytes and members.
    Struct {
        /// Bytes.
        size: u32,
        /// Members in order.
        members: Vec<Member>,
    },
    /// A union: size in bytes and members.
    Union {
        /// Bytes.
        size: u32,
        /// Members in order.
        members: Vec<Member>,
    },
    /// An enumeration; `wide` is the 64-bit form (ENUM64).
    Enum {
        /// Bytes.
        size: u32,
        /// Values are signed.
        signed: bool,
        /// Stored as ENUM64.
        wide: bool,
        /// Enumerators in order.
        values: Vec<Enumerator>,
    },
    /// A forward declaration of a struct, or of a union.
    Fwd {
        /// Of a union.
        is_union: bool,
    },
    /// A typedef of a type.
    Typedef(u32),
    /// `volatile`.
    Volatile(u32),
    /// `const`.
    Const(u32),
    /// `restrict`.
    Restrict(u32),
    /// A function with its prototype.
    Func {
        /// The `FuncProto`.
        proto: u32,
        /// 0 static, 1 global, 2 extern.
        linkage: u32,
    },
    /// A prototype.
    FuncProto {
        /// Return type.
        returns: u32,
        /// Parameters in order.
        params: Vec<Param>,
    },
    /// A variable.
    Var {
        /// Its type.
        type_id: u32,
        /// 0 static, 1 global, 2 extern.
        linkage: u32,
    },
    /// A data section.
    Datasec {
        /// Bytes; 0 in an object that was not linked.
        size: u32,
        /// Its variables.
        vars: Vec<SectionVar>,
    },
    /// A floating-point number.
    Float {
        /// Bytes.
        size: u32,
    },
    /// `btf_decl_tag` on a declaration; the name is the tag.
    DeclTag {
        /// The declaration.
        target: u32,
        /// Member or parameter index, -1 for the declaration itself.
        component: i32,
        /// Stands for a whole attribute.
        attribute: bool,
    },
    /// `btf_type_tag` on a pointee; the name is the tag.
    TypeTag {
        /// The tagged type.
        target: u32,
        /// Stands for a whole attribute.
        attribute: bool,
    },
}

/// A named type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Type {
    /// Offset of the name in the string table, 0 if anonymous.
    pub name_offset: u32,
    /// What it is.
    pub kind: Kind,
}

/// The types of one object or of one kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Btf {
    /// Type 0 is `void`.
    types: Vec<Type>,
    /// Zero-terminated strings; offset 0 is the empty one.
    strings: Vec<u8>,
    /// Numbers of named types, ascending by (name, number).
    by_name: Vec<u32>,
}

impl Default for Btf {
    fn default() -> Self {
        Btf { types: vec![Type { name_offset: 0, kind: Kind::Void }], strings: vec![0], by_name: Vec::new() }
    }
}

impl Btf {
    /// Number of types, `void` included; valid numbers are below it.
    pub fn type_count(&self) -> u32 {
        self.types.len() as u32
    }

    /// The type with a number, or `None` beyond the last.
    pub fn get(&self, id: u32) -> Option<&Type> {
        self.types.get(id as usize)
    }

    /// What a type is; [`Kind::Void`] for numbers beyond the last.
    pub fn kind(&self, id: u32) -> &Kind {
        self.get(id).map_or(&Kind::Void, |t| &t.kind)
    }

    /// Name of a type, empty if anonymous.
    pub fn name(&self, id: u32) -> &str {
        self.get(id).map_or("", |t| self.string(t.name_offset))
    }

    /// String at an offset of the string table, empty if there is none or it is no UTF-8.
    pub fn string(&self, offset: u32) -> &str {
        let tail = self.strings.get(offset as usize..).unwrap_or(&[]);
        let end = tail.iter().position(|&b| b == 0).unwrap_or(0);
        std::str::from_utf8(&tail[..end]).unwrap_or("")
    }

    /// Every type with its number, `void` left out.
    pub fn types(&self) -> impl Iterator<Item = (u32, &Type)> {
        self.types.iter().enumerate().skip(1).map(|(id, t)| (id as u32, t))
    }

    fn from_parts(types: Vec<Type>, strings: Vec<u8>) -> Btf {
        let mut btf = Btf { types, strings, by_name: Vec::new() };
        let mut named: Vec<u32> =
            (1..btf.type_count()).filter(|&id| btf.types[id as usize].name_offset != 0).collect();
        named.sort_by(|&a, &b| btf.name(a).cmp(btf.name(b)).then(a.cmp(&b)));
        btf.by_name = named;
        btf
    }
}

#[cfg(test)]
mod tests;
