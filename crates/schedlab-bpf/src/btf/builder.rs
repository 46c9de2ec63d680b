//! Makes BTF from declarations: how a simulated kernel states the types that objects relocate against.
//!
//! The usual way is C text, with two additions: `@ N` after a member is its byte offset, `@ N` after a
//! struct's name is its size in bytes. What is left out is laid out as a C compiler would.
//!
//! ```
//! use schedlab_bpf::btf::BtfBuilder;
//!
//! let mut kernel = BtfBuilder::new();
//! kernel
//!     .declare(
//!         "typedef int pid_t;
//!          enum scx_exit_kind { SCX_EXIT_NONE, SCX_EXIT_ERROR = 1024 };
//!          struct sched_ext_entity { u64 slice; u64 dsq_vtime; };
//!          struct task_struct @ 4096 {
//!              pid_t pid @ 1256;
//!              unsigned int in_execve : 1 @ 1260;
//!              struct sched_ext_entity scx @ 1400;
//!          };
//!          struct sched_ext_ops { s32 (*init)(void); char name[128]; };
//!          bool scx_bpf_dsq_insert(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags);",
//!     )
//!     .expect("the declarations are well formed");
//! let btf = kernel.finish();
//! let task = btf.find_struct("task_struct").expect("declared above");
//! assert_eq!(btf.member(task, "scx").expect("declared above").byte_offset(), 1400);
//! ```
//!
//! Not here: the grammar (`declare`).

use std::collections::BTreeMap;

use thiserror::Error;

use super::{Btf, Enumerator, INT_BOOL, INT_CHAR, INT_SIGNED, Kind, Member, Param, SectionVar, Type};

/// A declaration that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("declaration, near `{near}`: {problem}")]
pub struct BtfBuilderError {
    /// The text where reading stopped.
    pub near: String,
    /// What was expected.
    pub problem: String,
}

/// C has one name space for struct, union and enum tags; the three are kept apart here for clear messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tag {
    Struct,
    Union,
    Enum,
}

/// Collects types; see the module's documentation.
#[derive(Clone, Debug)]
pub struct BtfBuilder {
    pub(super) btf: Btf,
    string_offsets: BTreeMap<String, u32>,
    pub(super) tags: BTreeMap<(Tag, String), u32>,
    /// Typedefs and integers by name.
    pub(super) names: BTreeMap<String, u32>,
    pub(super) enumerators: BTreeMap<String, i64>,
    /// Pointers, arrays and qualified types, so that each is made once.
    derived: BTreeMap<String, u32>,
}

/// Integers of a 64-bit kernel as its compiler names them: name, bytes, encoding.
const INTEGERS: [(&str, u32, u8); 13] = [
    ("char", 1, INT_SIGNED | INT_CHAR),
    ("signed char", 1, INT_SIGNED | INT_CHAR),
    ("unsigned char", 1, 0),
    ("short int", 2, INT_SIGNED),
    ("short unsigned int", 2, 0),
    ("int", 4, INT_SIGNED),
    ("unsigned int", 4, 0),
    ("long int", 8, INT_SIGNED),
    ("long unsigned int", 8, 0),
    ("long long int", 8, INT_SIGNED),
    ("long long unsigned int", 8, 0),
    ("_Bool", 1, INT_BOOL),
    ("__int128 unsigned", 16, 0),
];

/// Typedefs that every kernel has.
const TYPEDEFS: &str = "typedef signed char __s8; typedef unsigned char __u8; typedef short __s16;
    typedef unsigned short __u16; typedef int __s32; typedef unsigned int __u32;
    typedef long long __s64; typedef unsigned long long __u64;
    typedef __s8 s8; typedef __u8 u8; typedef __s16 s16; typedef __u16 u16;
    typedef __s32 s32; typedef __u32 u32; typedef __s64 s64; typedef __u64 u64;
    typedef _Bool bool; typedef unsigned long size_t;";

impl Default for BtfBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl BtfBuilder {
    /// A builder that knows C's integers and the kernel's `u8` to `s64`, `__u8` to `__s64`, `bool`, `size_t`.
    pub fn new() -> BtfBuilder {
        let mut builder = BtfBuilder {
            btf: Btf::default(),
            string_offsets: BTreeMap::from([(String::new(), 0)]),
            tags: BTreeMap::new(),
            names: BTreeMap::new(),
            enumerators: BTreeMap::new(),
            derived: BTreeMap::new(),
        };
        for (name, size, encoding) in INTEGERS {
            let kind = Kind::Int { size, encoding, bit_offset: 0, bits: (8 * size) as u8 };
            let id = builder.push(name, kind);
            builder.names.insert(name.to_string(), id);
        }
        builder.declare(TYPEDEFS).expect("the built-in typedefs are well formed");
        builder
    }

    /// Adds declarations in C: structs, unions, enums, typedefs, functions and variables.
    ///
    /// A struct that is only named becomes a forward declaration until it is defined.
    pub fn declare(&mut self, text: &str) -> Result<&mut Self, BtfBuilderError> {
        super::declare::declare(self, text)?;
        Ok(self)
    }

    /// Number of the type that C text names, e.g. `const struct cpumask *`, `u64[4]`.
    pub fn type_id(&mut self, text: &str) -> Result<u32, BtfBuilderError> {
        super::declare::type_name(self, text)
    }

    /// Adds an enum from values; it is 64 bits wide if one of them needs it.
    pub fn enumeration<'a>(
        &mut self,
        name: &str,
        values: impl IntoIterator<Item = (&'a str, i64)>,
        unsigned: bool,
    ) -> u32 {
        let values: Vec<(String, i64)> = values.into_iter().map(|(n, v)| (n.to_string(), v)).collect();
        self.define_enum(name, &values, unsigned)
    }

    /// Attaches a `btf_decl_tag` to a declaration.
    pub fn decl_tag(&mut self, target: u32, text: &str) -> u32 {
        self.push(text, Kind::DeclTag { target, component: -1, attribute: false })
    }

    /// Adds a data section of variables given as (variable, byte offset); sizes follow from their types.
    pub fn datasec(&mut self, name: &str, size: u32, vars: &[(u32, u32)]) -> u32 {
        let vars = vars
            .iter()
            .map(|&(type_id, offset)| SectionVar {
                type_id,
                offset,
                size: self.btf.size_of(type_id).unwrap_or(0),
            })
            .collect();
        self.push(name, Kind::Datasec { size, vars })
    }

    /// What has been declared so far, for offsets and sizes while building. Lookup by name works only
    /// after [`BtfBuilder::finish`].
    pub fn so_far(&self) -> &Btf {
        &self.btf
    }

    /// The finished types.
    pub fn finish(self) -> Btf {
        Btf::from_parts(self.btf.types, self.btf.strings)
    }

    pub(super) fn push(&mut self, name: &str, kind: Kind) -> u32 {
        let name_offset = self.string(name);
        self.btf.types.push(Type { name_offset, kind });
        self.btf.type_count() - 1
    }

    pub(super) fn string(&mut self, text: &str) -> u32 {
        if let Some(&offset) = self.string_offsets.get(text) {
            return offset;
        }
        let offset = self.btf.strings.len() as u32;
        self.btf.strings.extend(text.as_bytes());
        self.btf.strings.push(0);
        self.string_offsets.insert(text.to_string(), offset);
        offset
    }

    fn derive(&mut self, key: String, kind: Kind) -> u32 {
        if let Some(&id) = self.derived.get(&key) {
            return id;
        }
        let id = self.push("", kind);
        self.derived.insert(key, id);
        id
    }

    pub(super) fn pointer(&mut self, to: u32) -> u32 {
        self.derive(format!("*{to}"), Kind::Ptr(to))
    }

    pub(super) fn constant(&mut self, to: u32) -> u32 {
        self.derive(format!("const {to}"), Kind::Const(to))
    }

    pub(super) fn volatile(&mut self, to: u32) -> u32 {
        self.derive(format!("volatile {to}"), Kind::Volatile(to))
    }

    pub(super) fn array(&mut self, element: u32, length: u32) -> u32 {
        let index = self.names["unsigned int"];
        self.derive(format!("[{length}]{element}"), Kind::Array { element, index, length })
    }

    pub(super) fn prototype(&mut self, returns: u32, params: &[(String, u32)]) -> u32 {
        let params = params
            .iter()
            .map(|(name, type_id)| Param { name_offset: self.string(name), type_id: *type_id })
            .collect();
        self.push("", Kind::FuncProto { returns, params })
    }

    /// The type of a tag, made as a forward declaration if it is not known yet.
    pub(super) fn tagged(&mut self, tag: Tag, name: &str) -> u32 {
        if let Some(&id) = self.tags.get(&(tag, name.to_string())) {
            return id;
        }
        let id = self.push(name, Kind::Fwd { is_union: tag == Tag::Union });
        self.tags.insert((tag, name.to_string()), id);
        id
    }

    pub(super) fn define(&mut self, tag: Tag, name: &str, kind: Kind) -> u32 {
        if name.is_empty() {
            return self.push("", kind);
        }
        let id = self.tagged(tag, name);
        self.btf.types[id as usize].kind = kind;
        id
    }

    /// A typedef declared again is the same type, with what it means now: a kernel has one of a name.
    pub(super) fn define_typedef(&mut self, name: String, of: u32) {
        match self.names.get(&name).copied() {
            Some(id) if id == of => {}
            Some(id) => self.btf.types[id as usize].kind = Kind::Typedef(of),
            None => {
                let id = self.push(&name, Kind::Typedef(of));
                self.names.insert(name, id);
            }
        }
    }

    pub(super) fn define_enum(&mut self, name: &str, values: &[(String, i64)], unsigned: bool) -> u32 {
        let signed = !unsigned && values.iter().any(|(_, v)| *v < 0);
        let fits = |v: i64| match signed {
            true => i32::try_from(v).is_ok(),
            false => u32::try_from(v).is_ok(),
        };
        let wide = !values.iter().all(|(_, v)| fits(*v));
        let list = values
            .iter()
            .map(|(n, v)| {
                self.enumerators.insert(n.clone(), *v);
                Enumerator { name_offset: self.string(n), value: *v }
            })
            .collect();
        let size = if wide { 8 } else { 4 };
        self.define(Tag::Enum, name, Kind::Enum { size, signed, wide, values: list })
    }

    pub(super) fn member(&mut self, name: &str, type_id: u32, bit_offset: u32, bit_size: u32) -> Member {
        Member { name_offset: self.string(name), type_id, bit_offset, bit_size }
    }
}
