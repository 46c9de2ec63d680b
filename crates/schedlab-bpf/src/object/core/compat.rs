//! When a type of the object and a type of the kernel count as the same. Three questions, three answers:
//! for accessing a field, for a whole type (and for kernel functions), and for an exact match.

use super::same_kind;
use crate::btf::{Btf, INT_SIGNED, Kind, essential_name};

/// Nesting that is followed, as in libbpf.
const LEVEL_MAX: u32 = 32;
/// Types looked at before giving up: crafted types can refer to each other exponentially often.
const STEPS_MAX: u32 = 1 << 16;

const TOO_DEEP: &str = "types are nested too deeply";

type Problem = String;

/// Fields may differ in size and sign; structs, pointers and numbers are never confused.
pub(super) fn fields_are_compatible(local: &Btf, mut local_id: u32, kernel: &Btf, mut id: u32) -> bool {
    for _ in 0..LEVEL_MAX {
        let (Some(l), Some(k)) = (local.resolve(local_id), kernel.resolve(id)) else { return false };
        let (local_kind, kind) = (local.kind(l), kernel.kind(k));
        if is_composite(local_kind) && is_composite(kind) {
            return true;
        }
        if !same_kind(local_kind, kind) {
            return false;
        }
        match (local_kind, kind) {
            (Kind::Ptr(_), _) | (Kind::Float { .. }, _) => return true,
            (Kind::Fwd { .. } | Kind::Enum { .. }, _) => {
                let (a, b) = (essential_name(local.name(l)), essential_name(kernel.name(k)));
                return a.is_empty() || b.is_empty() || a == b;
            }
            (Kind::Int { bit_offset: a, .. }, Kind::Int { bit_offset: b, .. }) => return *a == 0 && *b == 0,
            (Kind::Array { element: a, .. }, Kind::Array { element: b, .. }) => {
                (local_id, id) = (*a, *b);
            }
            _ => return false,
        }
    }
    false
}

/// Beyond the root, names do not matter: kinds do, and prototypes parameter by parameter.
pub(crate) fn types_are_compatible(local: &Btf, a: u32, kernel: &Btf, b: u32) -> Result<bool, Problem> {
    Walk { local, kernel, steps: STEPS_MAX }.compatible(a, b, LEVEL_MAX)
}

/// Members, enumerators and parameters of the object's type exist in the kernel's with the same type.
pub(super) fn types_match(local: &Btf, a: u32, kernel: &Btf, b: u32) -> Result<bool, Problem> {
    Walk { local, kernel, steps: STEPS_MAX }.matches(a, b, false, LEVEL_MAX)
}

struct Walk<'b> {
    local: &'b Btf,
    kernel: &'b Btf,
    steps: u32,
}

impl Walk<'_> {
    fn step(&mut self) -> Result<(), Problem> {
        self.steps = self.steps.checked_sub(1).ok_or(TOO_DEEP)?;
        Ok(())
    }

    fn compatible(&mut self, mut a: u32, mut b: u32, level: u32) -> Result<bool, Problem> {
        let (local, kernel) = (self.local, self.kernel);
        if !same_kind(local.kind(a), kernel.kind(b)) {
            return Ok(false);
        }
        for _ in 0..LEVEL_MAX {
            self.step()?;
            a = local.resolve(a).ok_or(TOO_DEEP)?;
            b = kernel.resolve(b).ok_or(TOO_DEEP)?;
            if !same_kind(local.kind(a), kernel.kind(b)) {
                return Ok(false);
            }
            match (local.kind(a), kernel.kind(b)) {
                (Kind::Int { bit_offset: x, .. }, Kind::Int { bit_offset: y, .. }) => {
                    return Ok(*x == 0 && *y == 0);
                }
                (Kind::Ptr(x), Kind::Ptr(y)) => (a, b) = (*x, *y),
                (Kind::Array { element: x, .. }, Kind::Array { element: y, .. }) => (a, b) = (*x, *y),
                (Kind::FuncProto { returns: x, params: xs }, Kind::FuncProto { returns: y, params: ys }) => {
                    if xs.len() != ys.len() {
                        return Ok(false);
                    }
                    for (p, q) in xs.iter().zip(ys) {
                        let level = level.checked_sub(1).ok_or(TOO_DEEP)?;
                        let p = local.resolve(p.type_id).ok_or(TOO_DEEP)?;
                        let q = kernel.resolve(q.type_id).ok_or(TOO_DEEP)?;
                        if !self.compatible(p, q, level)? {
                            return Ok(false);
                        }
                    }
                    a = local.resolve(*x).ok_or(TOO_DEEP)?;
                    b = kernel.resolve(*y).ok_or(TOO_DEEP)?;
                }
                (
                    Kind::Void
                    | Kind::Struct { .. }
                    | Kind::Union { .. }
                    | Kind::Enum { .. }
                    | Kind::Fwd { .. },
                    _,
                ) => return Ok(true),
                _ => return Ok(false),
            }
        }
        Err(TOO_DEEP.to_string())
    }

    fn same_name(&self, a: u32, b: u32) -> bool {
        self.names_agree(self.local.name(a), self.kernel.name(b))
    }

    fn names_agree(&self, a: &str, b: &str) -> bool {
        essential_name(a) == essential_name(b)
    }

    fn matches(
        &mut self,
        mut a: u32,
        mut b: u32,
        mut behind_pointer: bool,
        level: u32,
    ) -> Result<bool, Problem> {
        let (local, kernel) = (self.local, self.kernel);
        if level == 0 {
            return Err(TOO_DEEP.to_string());
        }
        for _ in 0..LEVEL_MAX {
            self.step()?;
            a = local.resolve(a).ok_or(TOO_DEEP)?;
            b = kernel.resolve(b).ok_or(TOO_DEEP)?;
            if !self.same_name(a, b) {
                return Ok(false);
            }
            match (local.kind(a), kernel.kind(b)) {
                (Kind::Void, other) => return Ok(*other == Kind::Void),
                (Kind::Fwd { is_union: x }, Kind::Fwd { is_union: y }) => return Ok(x == y),
                (Kind::Fwd { is_union }, Kind::Struct { .. }) => return Ok(behind_pointer && !is_union),
                (Kind::Fwd { is_union }, Kind::Union { .. }) => return Ok(behind_pointer && *is_union),
                (Kind::Enum { .. }, Kind::Enum { .. }) => return Ok(self.enums_match(a, b)),
                (Kind::Struct { .. }, Kind::Struct { .. }) | (Kind::Union { .. }, Kind::Union { .. }) => {
                    return match behind_pointer {
                        true => Ok(true),
                        false => self.members_match(a, b, level),
                    };
                }
                (Kind::Struct { .. }, Kind::Fwd { is_union }) => return Ok(behind_pointer && !is_union),
                (Kind::Union { .. }, Kind::Fwd { is_union }) => return Ok(behind_pointer && *is_union),
                (Kind::Int { size: x, encoding: m, .. }, Kind::Int { size: y, encoding: n, .. }) => {
                    return Ok(x == y && m & INT_SIGNED == n & INT_SIGNED);
                }
                (Kind::Ptr(x), Kind::Ptr(y)) => {
                    behind_pointer = true;
                    (a, b) = (*x, *y);
                }
                (Kind::Array { element: x, length: m, .. }, Kind::Array { element: y, length: n, .. })
                    if m == n =>
                {
                    (a, b) = (*x, *y);
                }
                (Kind::FuncProto { returns: x, params: xs }, Kind::FuncProto { returns: y, params: ys })
                    if xs.len() == ys.len() =>
                {
                    for (p, q) in xs.iter().zip(ys) {
                        if !self.matches(p.type_id, q.type_id, behind_pointer, level - 1)? {
                            return Ok(false);
                        }
                    }
                    (a, b) = (*x, *y);
                }
                _ => return Ok(false),
            }
        }
        Err(TOO_DEEP.to_string())
    }

    fn enums_match(&self, a: u32, b: u32) -> bool {
        let (xs, ys) = (self.local.enumerators(a), self.kernel.enumerators(b));
        self.local.size_of(a) == self.kernel.size_of(b)
            && xs.len() <= ys.len()
            && xs.iter().all(|x| {
                let name = self.local.string(x.name_offset);
                ys.iter().any(|y| self.names_agree(name, self.kernel.string(y.name_offset)))
            })
    }

    fn members_match(&mut self, a: u32, b: u32, level: u32) -> Result<bool, Problem> {
        let (local, kernel) = (self.local, self.kernel);
        let (xs, ys) = (local.members(a), kernel.members(b));
        if xs.len() > ys.len() {
            return Ok(false);
        }
        for x in xs {
            let mut matched = false;
            for y in ys {
                self.step()?;
                let same = self.names_agree(local.string(x.name_offset), kernel.string(y.name_offset));
                if same && self.matches(x.type_id, y.type_id, false, level - 1)? {
                    matched = true;
                    break;
                }
            }
            if !matched {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn is_composite(kind: &Kind) -> bool {
    matches!(kind, Kind::Struct { .. } | Kind::Union { .. })
}
