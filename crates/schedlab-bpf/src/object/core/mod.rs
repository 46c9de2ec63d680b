//! CO-RE: rewrites instructions that depend on the layout of kernel types ("compile once, run
//! everywhere"), by libbpf's rules.
//!
//! `spec` follows an access through the object's types and through the kernel's; `compat` says when two
//! types count as the same; `value` computes what a relocation asks; `patch` writes it.
//! Not here: kernel functions and variables (`externs`).

mod compat;
mod patch;
mod spec;
mod value;

use std::collections::BTreeMap;

use super::error::LoadError;
use super::ext::{BtfExt, CoreRelo};
use super::functions::{Functions, INSN_SIZE};
use crate::btf::{Btf, Kind, essential_name};
use crate::image::Poison;

pub(super) use compat::types_are_compatible;
use spec::Spec;

/// Kinds of relocation, numbered as in `enum bpf_core_relo_kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    FieldOffset,
    FieldSize,
    FieldExists,
    FieldSigned,
    FieldLeftShift,
    FieldRightShift,
    TypeIdLocal,
    TypeIdTarget,
    TypeExists,
    TypeSize,
    EnumeratorExists,
    EnumeratorValue,
    TypeMatches,
}

/// What a question is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    Field,
    Type,
    Enumerator,
}

impl Question {
    fn from_number(number: u32) -> Option<Question> {
        use Question::*;
        const ALL: [Question; 13] = [
            FieldOffset,
            FieldSize,
            FieldExists,
            FieldSigned,
            FieldLeftShift,
            FieldRightShift,
            TypeIdLocal,
            TypeIdTarget,
            TypeExists,
            TypeSize,
            EnumeratorExists,
            EnumeratorValue,
            TypeMatches,
        ];
        ALL.get(number as usize).copied()
    }

    fn subject(self) -> Subject {
        use Question::*;
        match self {
            FieldOffset | FieldSize | FieldExists | FieldSigned | FieldLeftShift | FieldRightShift => {
                Subject::Field
            }
            TypeIdLocal | TypeIdTarget | TypeExists | TypeSize | TypeMatches => Subject::Type,
            EnumeratorExists | EnumeratorValue => Subject::Enumerator,
        }
    }
}

/// Answer to one relocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Answer {
    /// What the compiler wrote, by the object's own types.
    original: u64,
    /// What belongs there, by the kernel's types.
    value: u64,
    /// There is none: the instruction must not be reached.
    poison: bool,
    /// The instruction must hold `original`, or the object is damaged.
    validate: bool,
    original_size: u32,
    size: u32,
    /// Loads and stores of this field cannot change their width.
    width_conflict: bool,
}

/// Applies all CO-RE relocations to functions that will be loaded.
pub(super) fn relocate(
    functions: &mut Functions,
    ext: &BtfExt,
    sections: &BTreeMap<String, usize>,
    local: &Btf,
    kernel: &Btf,
) -> Result<(), LoadError> {
    let mut candidates = Candidates { local, kernel, of_type: BTreeMap::new() };
    for section in &ext.core {
        let Some(&section_index) = sections.get(&section.section) else { continue };
        for relo in &section.records {
            if u64::from(relo.insn_offset) % INSN_SIZE != 0 {
                return Err(LoadError::damaged("a CO-RE relocation points between instructions"));
            }
            let insn = u64::from(relo.insn_offset) / INSN_SIZE;
            let Some(index) = functions.at(section_index, insn) else { continue };
            let function = &mut functions.list[index];
            if !function.autoload {
                continue;
            }
            let at = (insn - u64::from(function.first)) as usize;
            let fail = |access: &str, problem: String| LoadError::Core {
                program: function.name.clone(),
                insn: at as u32,
                access: access.to_string(),
                problem,
            };
            let spec = Spec::of_relocation(local, relo).map_err(|p| fail(&local.c_type(relo.type_id), p))?;
            let access = spec.describe();
            let answer = candidates.answer(relo, &spec).map_err(|p| fail(&access, p))?;
            let poisoned = patch::apply(&mut function.insns[at..], &answer).map_err(|p| fail(&access, p))?;
            if poisoned {
                function.poisons.push(Poison { insn: at as u32, reason: spec.reason_for_poison() });
            }
        }
    }
    Ok(())
}

/// Kernel types that may answer for a type of the object, found once for each.
struct Candidates<'b> {
    local: &'b Btf,
    kernel: &'b Btf,
    of_type: BTreeMap<u32, Vec<u32>>,
}

impl<'b> Candidates<'b> {
    fn answer(&mut self, relo: &CoreRelo, spec: &Spec<'b>) -> Result<Answer, String> {
        if spec.question == Question::TypeIdLocal {
            let id = u64::from(relo.type_id);
            return Ok(Answer { original: id, value: id, ..Answer::default() });
        }
        if self.local.name(relo.type_id).is_empty() {
            return Err("an anonymous type cannot be looked up in the kernel".to_string());
        }
        let list = match self.of_type.get(&relo.type_id) {
            Some(list) => list.clone(),
            None => self.find(relo.type_id),
        };
        let mut kept = Vec::new();
        let mut found: Option<(Answer, u32)> = None;
        for &id in &list {
            let Some(target) = spec.match_in(self.kernel, id)? else { continue };
            let answer = value::answer(spec, Some(&target))?;
            match &found {
                None => found = Some((answer, target.bit_offset)),
                Some((_, offset)) if *offset != target.bit_offset => {
                    return Err(format!("ambiguous: at bit {offset} and at bit {}", target.bit_offset));
                }
                Some((first, _)) if first.poison != answer.poison || first.value != answer.value => {
                    return Err("ambiguous: the kernel's types of this name disagree".to_string());
                }
                Some(_) => {}
            }
            kept.push(id);
        }
        let list = if kept.is_empty() { list } else { kept };
        self.of_type.insert(relo.type_id, list);
        match found {
            Some((answer, _)) => Ok(answer),
            None => value::answer(spec, None),
        }
    }

    /// Types of the same kind and of the same name without flavor.
    fn find(&self, local_id: u32) -> Vec<u32> {
        let essential = essential_name(self.local.name(local_id));
        let mut ids = self.kernel.flavors_of(essential);
        ids.retain(|&id| same_kind(self.local.kind(local_id), self.kernel.kind(id)));
        ids
    }
}

/// Kinds are equal, where enums of 32 and 64 bits are one kind.
fn same_kind(a: &Kind, b: &Kind) -> bool {
    std::mem::discriminant(a) == std::mem::discriminant(b)
}
