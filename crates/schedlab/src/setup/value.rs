//! Typed values: from TOML to the bytes of a variable, map key, map value or program context.
//!
//! A number, text or table goes where the object's types say. Not here: numbers (`expression`).

use super::expression::{Scope, evaluate};
use schedlab_bpf::btf::{Btf, INT_BOOL, INT_SIGNED, Kind, MemberPath};
use schedlab_bpf::object::knobs::nearest;
use toml::Value;

/// Writes a value of a type into its bytes; what the value does not mention stays.
///
/// # Errors
/// A value that does not fit its type, with the place inside it.
pub fn encode(value: &Value, type_id: u32, bytes: &mut [u8], scope: &Scope<'_>) -> Result<(), String> {
    let types = scope.object;
    match (types.resolved_kind(type_id), value) {
        (Kind::Array { element, length, .. }, value) => array(value, *element, *length, bytes, scope),
        (Kind::Struct { .. } | Kind::Union { .. }, Value::Table(table)) => {
            for (name, value) in table {
                let within = |problem: String| format!("{name}: {problem}");
                member(name, value, type_id, bytes, scope).map_err(within)?;
            }
            Ok(())
        }
        (Kind::Struct { .. } | Kind::Union { .. }, Value::Integer(0)) => {
            bytes.fill(0);
            Ok(())
        }
        (Kind::Struct { .. } | Kind::Union { .. }, _) => {
            Err(format!("a {} needs a table: {{ member = value, ... }}", types.c_type(type_id)))
        }
        _ => number(value, type_id, bytes, scope),
    }
}

/// Bytes of a type without BTF: a number in little-endian order, or a list of them byte by byte.
///
/// # Errors
/// A value that does not fit.
pub fn encode_untyped(value: &Value, bytes: &mut [u8], scope: &Scope<'_>) -> Result<(), String> {
    if let Value::Array(items) = value {
        if items.len() != bytes.len() {
            return Err(format!("{} bytes are needed, not {}", bytes.len(), items.len()));
        }
        return items.iter().zip(bytes).try_for_each(|(item, byte)| {
            let value = plain(item, scope)?;
            *byte = u8::try_from(value).map_err(|_| format!("{value} is no byte"))?;
            Ok(())
        });
    }
    let value = plain(value, scope)?;
    if bytes.len() > 8 {
        return Err(format!("{} bytes without a known type; give them as a list", bytes.len()));
    }
    let bits = 8 * bytes.len() as u32;
    if bits < 64 && (value >= 1 << bits || value < -(1 << (bits - 1))) {
        return Err(format!("{value} does not fit {} bytes", bytes.len()));
    }
    let len = bytes.len();
    bytes.copy_from_slice(&(value as u64).to_le_bytes()[..len]);
    Ok(())
}

/// A number without a unit of its own.
///
/// # Errors
/// What is no number.
pub fn plain(value: &Value, scope: &Scope<'_>) -> Result<i128, String> {
    match value {
        Value::Integer(value) => Ok((*value).into()),
        Value::Boolean(value) => Ok((*value).into()),
        Value::String(text) => evaluate(text, scope).map(|number| number.value),
        Value::Array(items) => {
            // Flags: any of the list.
            items.iter().try_fold(0, |all, item| plain(item, scope).map(|value| all | value))
        }
        other => Err(format!("a {} is no number", other.type_str())),
    }
}

/// A member of a struct by its name.
///
/// # Errors
/// A name that it does not have, with one that is near.
pub fn member_of(types: &Btf, type_id: u32, name: &str) -> Result<MemberPath, String> {
    types.member(type_id, name).ok_or_else(|| {
        let known = types.members(type_id).iter().map(|member| types.string(member.name_offset));
        let near = nearest(name, known);
        format!("{} has no member `{name}`{near}", types.c_type(type_id))
    })
}

fn array(
    value: &Value,
    element: u32,
    length: u32,
    bytes: &mut [u8],
    scope: &Scope<'_>,
) -> Result<(), String> {
    let types = scope.object;
    let size = types.size_of(element).ok_or("elements without a size")? as usize;
    if let (Value::String(text), 1) = (value, size) {
        if text.len() >= bytes.len() {
            return Err(format!("the text has {} bytes, the array {} with its end", text.len(), bytes.len()));
        }
        bytes.fill(0);
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        return Ok(());
    }
    match value {
        Value::Array(items) if items.len() > length as usize => {
            Err(format!("{} elements for an array of {length}", items.len()))
        }
        Value::Array(items) => items.iter().enumerate().try_for_each(|(index, item)| {
            let place = &mut bytes[index * size..(index + 1) * size];
            encode(item, element, place, scope).map_err(|problem| format!("[{index}]: {problem}"))
        }),
        // One value stands for all elements.
        value => {
            bytes.chunks_exact_mut(size.max(1)).try_for_each(|place| encode(value, element, place, scope))
        }
    }
}

fn member(
    name: &str,
    value: &Value,
    type_id: u32,
    bytes: &mut [u8],
    scope: &Scope<'_>,
) -> Result<(), String> {
    let types = scope.object;
    let found = member_of(types, type_id, name)?;
    if found.bit_size != 0 {
        let value = plain(value, scope)?;
        return bitfield(value, found.bit_offset, found.bit_size, bytes);
    }
    let start = found.byte_offset() as usize;
    let size = types.size_of(found.type_id).ok_or("has no size")? as usize;
    let place = bytes.get_mut(start..start + size).ok_or("lies outside of its struct")?;
    encode(value, found.type_id, place, scope)
}

fn bitfield(value: i128, offset: u32, width: u32, bytes: &mut [u8]) -> Result<(), String> {
    if value < 0 || value >= 1 << width {
        return Err(format!("{value} does not fit {width} bits"));
    }
    for bit in 0..width {
        let at = offset + bit;
        let byte = bytes.get_mut((at / 8) as usize).ok_or("lies outside of its struct")?;
        let mask = 1 << (at % 8);
        *byte = if value >> bit & 1 != 0 { *byte | mask } else { *byte & !mask };
    }
    Ok(())
}

fn number(value: &Value, type_id: u32, bytes: &mut [u8], scope: &Scope<'_>) -> Result<(), String> {
    let value = plain(value, scope)?;
    let (min, max) = range(scope.object, type_id, bytes.len())?;
    if value < min || value > max {
        return Err(format!("{value} is out of bounds: {min} to {max} ({})", scope.object.c_type(type_id)));
    }
    let len = bytes.len();
    bytes.copy_from_slice(&(value as u64).to_le_bytes()[..len]);
    Ok(())
}

/// Bounds of a number of a type.
fn range(types: &Btf, type_id: u32, size: usize) -> Result<(i128, i128), String> {
    if size == 0 || size > 8 {
        return Err(format!("a {} is no number", types.c_type(type_id)));
    }
    let bits = 8 * size as u32;
    let signed = match types.resolved_kind(type_id) {
        Kind::Int { encoding, .. } if encoding & INT_BOOL != 0 => return Ok((0, 1)),
        Kind::Int { encoding, .. } => encoding & INT_SIGNED != 0,
        // Masks of enumerators are no enumerators: any value of the width will do.
        Kind::Enum { .. } => return Ok((-(1 << (bits - 1)), (1 << bits) - 1)),
        Kind::Ptr(_) => false,
        _ => return Err(format!("a {} is no number", types.c_type(type_id))),
    };
    Ok(if signed { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) })
}
