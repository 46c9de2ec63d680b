//! Finding types by name, members through anonymous structs, sizes and alignments.

use super::{Btf, Enumerator, Kind, Member, Param};

/// Longest chain of modifiers, typedefs and arrays that is followed, as in libbpf.
const CHAIN_MAX: u32 = 32;
/// Deepest nesting of anonymous structs that is searched; a struct that contains itself ends here.
const NESTING_MAX: u32 = 64;
/// Members looked at in one search: damaged types can contain each other exponentially often.
const STEPS_MAX: u32 = 1 << 16;
/// Bytes of a pointer in BPF.
const POINTER_SIZE: u32 = 8;

/// Where a member lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberPath {
    /// Bits from the start of the outermost struct.
    pub bit_offset: u32,
    /// Width of a bitfield in bits, 0 if it is none.
    pub bit_size: u32,
    /// Type of the member.
    pub type_id: u32,
}

impl MemberPath {
    /// Bytes from the start of the outermost struct.
    pub fn byte_offset(&self) -> u32 {
        self.bit_offset / 8
    }
}

/// Part of a name before its last `___flavor`: relocations ignore what follows.
pub fn essential_name(name: &str) -> &str {
    let bytes = name.as_bytes();
    let separator = (0..bytes.len().saturating_sub(4)).rev().find(|&i| {
        let at = &bytes[i..i + 5];
        at[0] != b'_' && &at[1..4] == b"___" && at[4] != b'_'
    });
    separator.map_or(name, |i| &name[..=i])
}

impl Btf {
    /// Numbers of all types with a name, ascending.
    pub fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = u32> + 'a {
        let start = self.by_name.partition_point(|&id| self.name(id) < name);
        self.by_name[start..].iter().copied().take_while(move |&id| self.name(id) == name)
    }

    /// Numbers of all types whose name without flavor is `essential`, ascending.
    pub fn flavors_of(&self, essential: &str) -> Vec<u32> {
        let start = self.by_name.partition_point(|&id| self.name(id) < essential);
        let mut ids: Vec<u32> = self.by_name[start..]
            .iter()
            .copied()
            .take_while(|&id| self.name(id).starts_with(essential))
            .filter(|&id| essential_name(self.name(id)) == essential)
            .collect();
        ids.sort_unstable();
        ids
    }

    fn find(&self, name: &str, wanted: impl Fn(&Kind) -> bool) -> Option<u32> {
        self.named(name).find(|&id| wanted(self.kind(id)))
    }

    /// The first struct with a name.
    pub fn find_struct(&self, name: &str) -> Option<u32> {
        self.find(name, |k| matches!(k, Kind::Struct { .. }))
    }

    /// The first union with a name.
    pub fn find_union(&self, name: &str) -> Option<u32> {
        self.find(name, |k| matches!(k, Kind::Union { .. }))
    }

    /// The first enum with a name, of 32 or of 64 bits.
    pub fn find_enum(&self, name: &str) -> Option<u32> {
        self.find(name, |k| matches!(k, Kind::Enum { .. }))
    }

    /// The first typedef with a name.
    pub fn find_typedef(&self, name: &str) -> Option<u32> {
        self.find(name, |k| matches!(k, Kind::Typedef(_)))
    }

    /// The first integer with a name, e.g. `unsigned int`.
    pub fn find_int(&self, name: &str) -> Option<u32> {
        self.find(name, |k| matches!(k, Kind::Int { .. }))
    }

    /// The first function with a name.
    pub fn find_func(&self, name: &str) -> Option<u32> {
        self.find(name, |k| matches!(k, Kind::Func { .. }))
    }

    /// The first variable with a name.
    pub fn find_var(&self, name: &str) -> Option<u32> {
        self.find(name, |k| matches!(k, Kind::Var { .. }))
    }

    /// The first data section with a name.
    pub fn find_datasec(&self, name: &str) -> Option<u32> {
        self.find(name, |k| matches!(k, Kind::Datasec { .. }))
    }

    /// Follows typedefs, `const`, `volatile`, `restrict` and type tags.
    ///
    /// `None` if the chain is longer than any compiler makes it.
    pub fn resolve(&self, mut id: u32) -> Option<u32> {
        for _ in 0..=CHAIN_MAX {
            match self.kind(id) {
                Kind::Typedef(to) | Kind::Const(to) | Kind::Volatile(to) | Kind::Restrict(to) => id = *to,
                Kind::TypeTag { target, .. } => id = *target,
                _ => return Some(id),
            }
        }
        None
    }

    /// Kind after [`Btf::resolve`]; `Void` for an endless chain.
    pub fn resolved_kind(&self, id: u32) -> &Kind {
        self.resolve(id).map_or(&Kind::Void, |id| self.kind(id))
    }

    /// Bytes of a type; `None` for what has no size (functions, forward declarations, `void`).
    pub fn size_of(&self, mut id: u32) -> Option<u32> {
        let mut elements: u32 = 1;
        for _ in 0..CHAIN_MAX {
            let size = match self.kind(id) {
                Kind::Int { size, .. }
                | Kind::Struct { size, .. }
                | Kind::Union { size, .. }
                | Kind::Enum { size, .. }
                | Kind::Datasec { size, .. }
                | Kind::Float { size } => *size,
                Kind::Ptr(_) => POINTER_SIZE,
                Kind::Array { element, length, .. } => {
                    elements = elements.checked_mul(*length)?;
                    id = *element;
                    continue;
                }
                Kind::Typedef(to) | Kind::Const(to) | Kind::Volatile(to) | Kind::Restrict(to) => {
                    id = *to;
                    continue;
                }
                Kind::TypeTag { target, .. } => {
                    id = *target;
                    continue;
                }
                Kind::Var { type_id, .. } => {
                    id = *type_id;
                    continue;
                }
                Kind::Void
                | Kind::Fwd { .. }
                | Kind::Func { .. }
                | Kind::FuncProto { .. }
                | Kind::DeclTag { .. } => return None,
            };
            return size.checked_mul(elements);
        }
        None
    }

    /// Alignment in bytes as a C compiler for BPF chooses it; `None` for what has no size.
    pub fn align_of(&self, id: u32) -> Option<u32> {
        self.align_nested(id, 0, &mut STEPS_MAX.clone())
    }

    fn align_nested(&self, id: u32, depth: u32, steps: &mut u32) -> Option<u32> {
        *steps = steps.checked_sub(1)?;
        if depth > CHAIN_MAX {
            return None;
        }
        match self.resolved_kind(id) {
            Kind::Int { size, .. } | Kind::Enum { size, .. } | Kind::Float { size } => {
                Some((*size).clamp(1, POINTER_SIZE))
            }
            Kind::Ptr(_) => Some(POINTER_SIZE),
            Kind::Array { element, .. } => self.align_nested(*element, depth + 1, steps),
            Kind::Struct { members, size } | Kind::Union { members, size } => {
                let mut align = 1;
                for m in members {
                    let member_align = self.align_nested(m.type_id, depth + 1, steps)?;
                    let misplaced = m.bit_size == 0 && m.bit_offset % (8 * member_align) != 0;
                    if misplaced || size % member_align != 0 {
                        return Some(1);
                    }
                    align = align.max(member_align);
                }
                Some(align)
            }
            _ => None,
        }
    }

    /// Members of a struct or union, after typedefs; empty for other types.
    pub fn members(&self, id: u32) -> &[Member] {
        match self.resolved_kind(id) {
            Kind::Struct { members, .. } | Kind::Union { members, .. } => members,
            _ => &[],
        }
    }

    /// Enumerators of an enum, after typedefs; empty for other types.
    pub fn enumerators(&self, id: u32) -> &[Enumerator] {
        match self.resolved_kind(id) {
            Kind::Enum { values, .. } => values,
            _ => &[],
        }
    }

    /// Parameters of a function or prototype; empty for other types.
    pub fn params(&self, id: u32) -> &[Param] {
        match self.kind(id) {
            Kind::FuncProto { params, .. } => params,
            Kind::Func { proto, .. } => match self.kind(*proto) {
                Kind::FuncProto { params, .. } => params,
                _ => &[],
            },
            _ => &[],
        }
    }

    /// Value of an enumerator of any enum, by name.
    pub fn enumerator_value(&self, name: &str) -> Option<i64> {
        self.types().find_map(|(id, _)| {
            let values = match self.kind(id) {
                Kind::Enum { values, .. } => values,
                _ => return None,
            };
            values.iter().find(|v| self.string(v.name_offset) == name).map(|v| v.value)
        })
    }

    /// The member with a name, searched through anonymous structs and unions.
    pub fn member(&self, id: u32, name: &str) -> Option<MemberPath> {
        self.member_nested(id, name, 0, &mut STEPS_MAX.clone())
    }

    fn member_nested(&self, id: u32, name: &str, depth: u32, steps: &mut u32) -> Option<MemberPath> {
        if depth > NESTING_MAX || name.is_empty() {
            return None;
        }
        self.members(id).iter().find_map(|m| {
            *steps = steps.saturating_sub(1);
            if *steps == 0 {
                return None;
            }
            if m.name_offset == 0 {
                let inner = self.member_nested(m.type_id, name, depth + 1, steps)?;
                let bit_offset = inner.bit_offset.checked_add(m.bit_offset)?;
                return Some(MemberPath { bit_offset, ..inner });
            }
            (self.string(m.name_offset) == name).then_some(MemberPath {
                bit_offset: m.bit_offset,
                bit_size: m.bit_size,
                type_id: m.type_id,
            })
        })
    }

    /// Texts of the `btf_decl_tag`s on a declaration itself (not on its members), in file order.
    pub fn decl_tags(&self, id: u32) -> Vec<&str> {
        self.types()
            .filter(|(_, t)| matches!(t.kind, Kind::DeclTag { target, component: -1, .. } if target == id))
            .map(|(_, t)| self.string(t.name_offset))
            .collect()
    }
}
