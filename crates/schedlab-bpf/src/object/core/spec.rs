//! An access like `task->scx.slice` as a path through types: read from the object, matched in the kernel.
//!
//! Two levels are kept, as in libbpf: `raw` has every step, also through anonymous members; `accessors` has
//! only what the programmer wrote, which is what a kernel of another version is matched by.

use super::super::ext::CoreRelo;
use super::compat::fields_are_compatible;
use super::{Question, Subject};
use crate::btf::{Btf, Kind, essential_name};

/// Longest path.
const PATH_MAX: usize = 64;
/// Members looked at for one relocation; a kernel's largest struct has a few hundred.
const STEPS_MAX: u32 = 1 << 20;

/// One step that the programmer wrote: a member, an enumerator, or an index.
#[derive(Clone, Copy, Debug)]
pub(super) struct Accessor<'b> {
    /// The struct of a member, the element type of an index.
    pub type_id: u32,
    pub index: u32,
    /// `None` for an index.
    pub name: Option<&'b str>,
}

/// A whole access.
#[derive(Clone, Debug)]
pub(super) struct Spec<'b> {
    pub btf: &'b Btf,
    pub question: Question,
    pub root: u32,
    pub accessors: Vec<Accessor<'b>>,
    pub raw: Vec<u32>,
    pub bit_offset: u32,
}

type Problem = String;

impl<'b> Spec<'b> {
    fn new(btf: &'b Btf, question: Question, root: u32) -> Spec<'b> {
        Spec { btf, question, root, accessors: Vec::new(), raw: Vec::new(), bit_offset: 0 }
    }

    /// Reads a relocation record: the access string is a list of indices, e.g. `0:25:4`.
    pub(super) fn of_relocation(btf: &'b Btf, relo: &CoreRelo) -> Result<Spec<'b>, Problem> {
        let question =
            Question::from_number(relo.kind).ok_or_else(|| format!("unknown kind {}", relo.kind))?;
        if btf.get(relo.type_id).is_none() {
            return Err(format!("type [{}] does not exist", relo.type_id));
        }
        let text = btf.string(relo.access);
        let mut spec = Spec::new(btf, question, relo.type_id);
        if question.subject() == Subject::Type {
            return match text {
                "0" => Ok(spec),
                _ => Err(format!("access string `{text}` of a type is not `0`")),
            };
        }
        let bad = || format!("access string `{text}` does not fit the type");
        for index in text.split(':') {
            spec.raw.push(index.parse().map_err(|_| bad())?);
        }
        if spec.raw.len() > PATH_MAX {
            return Err(bad());
        }
        let id = btf.resolve(relo.type_id).ok_or_else(bad)?;
        let first = spec.raw[0];
        if question.subject() == Subject::Enumerator {
            let value = btf.enumerators(id).get(first as usize).ok_or_else(bad)?;
            let name = Some(btf.string(value.name_offset));
            spec.accessors.push(Accessor { type_id: id, index: first, name });
            return if spec.raw.len() == 1 { Ok(spec) } else { Err(bad()) };
        }
        spec.accessors.push(Accessor { type_id: id, index: first, name: None });
        spec.bit_offset = element_bits(btf, id, first).ok_or_else(bad)?;
        spec.follow(id).ok_or_else(bad)?;
        Ok(spec)
    }

    /// Walks the indices after the first one.
    fn follow(&mut self, mut id: u32) -> Option<()> {
        for step in 1..self.raw.len() {
            let index = self.raw[step];
            id = self.btf.resolve(id)?;
            match self.btf.kind(id) {
                Kind::Struct { members, .. } | Kind::Union { members, .. } => {
                    let member = members.get(index as usize)?;
                    self.bit_offset = self.bit_offset.checked_add(member.bit_offset)?;
                    if member.name_offset != 0 {
                        let name = self.btf.string(member.name_offset);
                        self.accessors.push(Accessor { type_id: id, index, name: Some(name) });
                    }
                    id = member.type_id;
                }
                Kind::Array { element, length, .. } => {
                    if index >= *length && !self.last_is_flexible(*length) {
                        return None;
                    }
                    id = self.btf.resolve(*element)?;
                    self.accessors.push(Accessor { type_id: id, index, name: None });
                    let bits = element_bits(self.btf, id, index)?;
                    self.bit_offset = self.bit_offset.checked_add(bits)?;
                }
                _ => return None,
            }
        }
        Some(())
    }

    /// The last accessor names an array of no length at the end of its struct.
    fn last_is_flexible(&self, length: u32) -> bool {
        let Some(last) = self.accessors.last() else { return false };
        last.name.is_some() && length == 0 && last.index as usize + 1 == self.btf.members(last.type_id).len()
    }

    /// The same access in the kernel's type `id`; `None` if the kernel does not have it.
    pub(super) fn match_in(&self, kernel: &'b Btf, id: u32) -> Result<Option<Spec<'b>>, Problem> {
        let mut target = Spec::new(kernel, self.question, id);
        let matched = match self.question.subject() {
            Subject::Type => self.match_type(kernel, id)?,
            Subject::Enumerator => self.match_enumerator(&mut target),
            Subject::Field => self.match_field(&mut target)?,
        };
        Ok(matched.then_some(target))
    }

    fn match_type(&self, kernel: &Btf, id: u32) -> Result<bool, Problem> {
        if self.question == Question::TypeMatches {
            return super::compat::types_match(self.btf, self.root, kernel, id);
        }
        super::compat::types_are_compatible(self.btf, self.root, kernel, id)
    }

    fn match_enumerator(&self, target: &mut Spec<'b>) -> bool {
        let wanted = essential_name(self.accessors[0].name.unwrap_or(""));
        let Some(id) = target.btf.resolve(target.root) else { return false };
        let values = target.btf.enumerators(id);
        let names = values.iter().map(|v| target.btf.string(v.name_offset));
        for (index, name) in names.enumerate() {
            if essential_name(name) == wanted {
                let index = index as u32;
                target.accessors.push(Accessor { type_id: id, index, name: Some(name) });
                target.raw.push(index);
                return true;
            }
        }
        false
    }

    fn match_field(&self, target: &mut Spec<'b>) -> Result<bool, Problem> {
        let endless = || "a type of the kernel refers to itself".to_string();
        let mut id = target.root;
        let mut steps = STEPS_MAX;
        for (i, accessor) in self.accessors.iter().enumerate() {
            id = target.btf.resolve(id).ok_or_else(endless)?;
            if accessor.name.is_some() {
                match target.match_member(self.btf, accessor, id, &mut steps)? {
                    Some(next) => id = next,
                    None => return Ok(false),
                }
                continue;
            }
            if i > 0 {
                let Kind::Array { element, length, .. } = target.btf.kind(id) else { return Ok(false) };
                if accessor.index >= *length && !target.last_is_flexible(*length) {
                    return Ok(false);
                }
                id = target.btf.resolve(*element).ok_or_else(endless)?;
            }
            target.accessors.push(Accessor { type_id: id, index: accessor.index, name: None });
            target.push_raw(accessor.index)?;
            let bits = element_bits(target.btf, id, accessor.index);
            let offset = bits.and_then(|b| target.bit_offset.checked_add(b));
            target.bit_offset = offset.ok_or("an array of elements without a size")?;
        }
        Ok(true)
    }

    fn push_raw(&mut self, index: u32) -> Result<(), Problem> {
        if self.raw.len() >= PATH_MAX {
            return Err("types are nested too deeply".to_string());
        }
        self.raw.push(index);
        Ok(())
    }

    /// Looks for a named member, also inside anonymous ones; gives the type of the member.
    fn match_member(
        &mut self,
        local: &Btf,
        wanted: &Accessor<'_>,
        id: u32,
        steps: &mut u32,
    ) -> Result<Option<u32>, Problem> {
        let Some(id) = self.btf.resolve(id) else { return Ok(None) };
        let btf = self.btf;
        for (index, member) in btf.members(id).iter().enumerate() {
            *steps = steps.checked_sub(1).ok_or("types are nested too deeply")?;
            let (raw_len, bit_offset) = (self.raw.len(), self.bit_offset);
            self.push_raw(index as u32)?;
            let offset = self.bit_offset.checked_add(member.bit_offset);
            self.bit_offset = offset.ok_or("a member lies too far from the start of its struct")?;
            let name = btf.string(member.name_offset);
            if name.is_empty() {
                if let Some(found) = self.match_member(local, wanted, member.type_id, steps)? {
                    return Ok(Some(found));
                }
            } else if Some(name) == wanted.name {
                let local_member = &local.members(wanted.type_id)[wanted.index as usize];
                if !fields_are_compatible(local, local_member.type_id, btf, member.type_id) {
                    return Ok(None);
                }
                self.accessors.push(Accessor { type_id: id, index: index as u32, name: Some(name) });
                return Ok(Some(member.type_id));
            }
            self.raw.truncate(raw_len);
            self.bit_offset = bit_offset;
        }
        Ok(None)
    }

    /// The access as C has it, e.g. `struct task_struct.scx.slice`.
    pub(super) fn describe(&self) -> String {
        let mut text = self.btf.c_type(self.root);
        if self.question.subject() == Subject::Enumerator {
            return format!("{text}::{}", self.accessors[0].name.unwrap_or(""));
        }
        for (i, accessor) in self.accessors.iter().enumerate() {
            match accessor.name {
                Some(name) => {
                    text.push('.');
                    text.push_str(name);
                }
                None if i > 0 || accessor.index > 0 => text.push_str(&format!("[{}]", accessor.index)),
                None => {}
            }
        }
        text
    }

    /// Why an instruction with this access must not be reached.
    pub(super) fn reason_for_poison(&self) -> String {
        format!("uses {}, which this kernel lacks or has with another size", self.describe())
    }
}

fn element_bits(btf: &Btf, id: u32, index: u32) -> Option<u32> {
    btf.size_of(id)?.checked_mul(index)?.checked_mul(8)
}
