//! Computes what a relocation asks: offsets, sizes, signs, shifts, existence, values.

use super::spec::Spec;
use super::{Answer, Question, Subject};
use crate::btf::{Btf, INT_SIGNED, Kind};

type Problem = String;

/// One side of a field relocation.
#[derive(Clone, Copy, Default)]
struct Field {
    value: u64,
    /// Bytes of a load or store of it; 0 where the width must not change.
    size: u32,
    /// Type that decides whether the width may change.
    type_id: u32,
    validate: bool,
}

/// Answers by the object's own access and by the one matched in the kernel (`None`: it has none).
pub(super) fn answer(local: &Spec<'_>, target: Option<&Spec<'_>>) -> Result<Answer, Problem> {
    match local.question.subject() {
        Subject::Field => field_answer(local, target),
        Subject::Type => {
            let original = type_value(local)?;
            let value = target.map_or(Ok(0), type_value)?;
            let validate = local.question != Question::TypeIdTarget;
            Ok(Answer { original, value, validate, ..Answer::default() })
        }
        Subject::Enumerator => Ok(enumerator_answer(local, target)),
    }
}

fn type_value(spec: &Spec<'_>) -> Result<u64, Problem> {
    match spec.question {
        Question::TypeIdTarget => Ok(u64::from(spec.root)),
        Question::TypeSize => {
            let size = spec.btf.size_of(spec.root).ok_or("the type has no size")?;
            Ok(u64::from(size))
        }
        _ => Ok(1),
    }
}

fn enumerator_answer(local: &Spec<'_>, target: Option<&Spec<'_>>) -> Answer {
    let value_of = |spec: &Spec<'_>| {
        let accessor = &spec.accessors[0];
        let values = spec.btf.enumerators(accessor.type_id);
        values.get(accessor.index as usize).map_or(0, |v| match spec.btf.kind(accessor.type_id) {
            // libbpf reads a 32-bit value as `__s32`; the patch below keeps its low 32 bits.
            Kind::Enum { wide: false, .. } => i64::from(v.value as i32) as u64,
            _ => v.value as u64,
        })
    };
    let validate = true;
    match local.question {
        Question::EnumeratorExists => {
            Answer { original: 1, value: u64::from(target.is_some()), validate, ..Answer::default() }
        }
        _ => Answer {
            original: value_of(local),
            value: target.map_or(0, value_of),
            poison: target.is_none(),
            validate,
            ..Answer::default()
        },
    }
}

fn field_answer(local: &Spec<'_>, target: Option<&Spec<'_>>) -> Result<Answer, Problem> {
    if local.question == Question::FieldExists {
        let value = u64::from(target.is_some());
        return Ok(Answer { original: 1, value, validate: true, ..Answer::default() });
    }
    let original = field(local)?;
    let base = Answer { original: original.value, validate: original.validate, ..Answer::default() };
    let Some(target) = target else { return Ok(Answer { poison: true, ..base }) };
    let new = field(target)?;
    let width_conflict =
        original.size != new.size && !width_may_change(local.btf, original.type_id, target.btf, new.type_id);
    Ok(Answer { value: new.value, original_size: original.size, size: new.size, width_conflict, ..base })
}

/// Pointers, and numbers both unsigned, keep their value when a narrower load zero-extends.
fn width_may_change(local: &Btf, a: u32, kernel: &Btf, b: u32) -> bool {
    match (local.kind(a), kernel.kind(b)) {
        (Kind::Ptr(_), Kind::Ptr(_)) => true,
        (Kind::Int { encoding: x, .. }, Kind::Int { encoding: y, .. }) => {
            *x != INT_SIGNED && *y != INT_SIGNED
        }
        _ => false,
    }
}

fn field(spec: &Spec<'_>) -> Result<Field, Problem> {
    let last = spec.accessors.last().ok_or("an access without a step")?;
    if last.name.is_none() {
        return element(spec, last.type_id);
    }
    let member = &spec.btf.members(last.type_id)[last.index as usize];
    let type_id = spec.btf.resolve(member.type_id).ok_or("an endless type")?;
    let place = match member.bit_size {
        0 => whole(spec, type_id)?,
        bits => bitfield(spec, type_id, bits)?,
    };
    let is_bitfield = member.bit_size > 0;
    let value = match spec.question {
        Question::FieldOffset => {
            let size = if is_bitfield { 0 } else { innermost_size(spec.btf, type_id)? };
            let value = u64::from(place.byte_offset);
            return Ok(Field { value, size, type_id, validate: !is_bitfield });
        }
        Question::FieldSize => u64::from(place.byte_size),
        Question::FieldSigned => u64::from(is_signed(spec.btf.kind(type_id))),
        Question::FieldLeftShift => {
            let used = (spec.bit_offset % 8).wrapping_add(place.bits);
            let used = used.wrapping_add(8 * (spec.bit_offset / 8 - place.byte_offset));
            u64::from(64u32.wrapping_sub(used))
        }
        Question::FieldRightShift => u64::from(64u32.wrapping_sub(place.bits)),
        _ => return Err("not a question about a field".to_string()),
    };
    // Where a bitfield is read from is the compiler's choice, its sign and width are not.
    let validate = !is_bitfield || matches!(spec.question, Question::FieldSigned | Question::FieldRightShift);
    Ok(Field { value, validate, ..Field::default() })
}

/// An element of an array, or the struct itself.
fn element(spec: &Spec<'_>, type_id: u32) -> Result<Field, Problem> {
    match spec.question {
        Question::FieldOffset => {
            let size = innermost_size(spec.btf, type_id)?;
            Ok(Field { value: u64::from(spec.bit_offset / 8), size, type_id, validate: true })
        }
        Question::FieldSize => {
            let size = spec.btf.size_of(type_id).ok_or("the type has no size")?;
            Ok(Field { value: u64::from(size), validate: true, ..Field::default() })
        }
        _ => Err("cannot be asked of an array element".to_string()),
    }
}

struct Place {
    byte_offset: u32,
    byte_size: u32,
    bits: u32,
}

fn whole(spec: &Spec<'_>, type_id: u32) -> Result<Place, Problem> {
    let byte_size = spec.btf.size_of(type_id).ok_or("the field has no size")?;
    Ok(Place { byte_offset: spec.bit_offset / 8, byte_size, bits: byte_size.wrapping_mul(8) })
}

/// The smallest aligned load, from the declared type's size up to 8 bytes, that holds the bitfield.
fn bitfield(spec: &Spec<'_>, type_id: u32, bits: u32) -> Result<Place, Problem> {
    let offset = u64::from(spec.bit_offset);
    let mut size = u64::from(spec.btf.size_of(type_id).unwrap_or(0));
    if size == 0 {
        return Err("a bitfield of a type without a size".to_string());
    }
    let mut start = offset / 8 / size * size;
    while offset + u64::from(bits) - start * 8 > size * 8 {
        if size >= 8 {
            return Err("a bitfield that no 8-byte load can read".to_string());
        }
        size *= 2;
        start = offset / 8 / size * size;
    }
    Ok(Place { byte_offset: start as u32, byte_size: size as u32, bits })
}

/// Size of the elements of an array of arrays, of the type itself otherwise.
fn innermost_size(btf: &Btf, mut id: u32) -> Result<u32, Problem> {
    for _ in 0..32 {
        match btf.resolved_kind(id) {
            Kind::Array { element, .. } => id = *element,
            _ => return btf.size_of(id).ok_or_else(|| "the field has no size".to_string()),
        }
    }
    Err("an endless array".to_string())
}

fn is_signed(kind: &Kind) -> bool {
    match kind {
        Kind::Enum { signed, .. } => *signed,
        Kind::Int { encoding, .. } => encoding & INT_SIGNED != 0,
        _ => false,
    }
}
