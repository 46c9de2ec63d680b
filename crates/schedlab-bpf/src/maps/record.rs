//! Special fields inside map values: locks, timers, owned pointers, lists and trees.
//!
//! An update leaves them out of the copy, and a value that is replaced or removed gives up what they hold, as
//! `bpf_obj_free_fields()` and `copy_map_value()` of include/linux/bpf.h say. Differs from Linux: a value that
//! is replaced in a hash keeps its address.

use crate::btf::{Btf, Kind};
use crate::memory::Memory;

/// Nested structs deeper than this are not looked into, as in the kernel.
const DEPTH_MAX: u32 = 4;

/// What a special field is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldKind {
    /// `bpf_spin_lock`, `bpf_res_spin_lock`, `bpf_refcount`, nodes of lists and trees: never copied.
    Kept,
    /// `bpf_timer` and `bpf_wq`.
    Timer,
    /// A pointer the value owns.
    Pointer,
    /// `bpf_list_head` and `bpf_rb_root`.
    Collection,
}

/// One special field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    pub offset: u64,
    pub bytes: u64,
    pub kind: FieldKind,
}

/// The special fields of a value, ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record(pub Vec<Field>);

/// What a value held that is no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freed {
    /// A timer at an address.
    Timer(u64),
    /// A pointer that is not NULL.
    Pointer(u64),
    /// A list or tree whose head is at an address.
    Collection(u64),
}

impl Record {
    /// The fields of a type of the object; none for type 0.
    pub(crate) fn of(btf: &Btf, value_type: u32) -> Record {
        let mut fields = Vec::new();
        if value_type != 0 {
            collect(btf, value_type, 0, 0, &mut fields);
        }
        fields.sort_by_key(|field: &Field| field.offset);
        Record(fields)
    }

    /// Copies all but special fields to `at`, and gives up what they held there.
    pub(crate) fn replace(&self, memory: &mut Memory, at: u64, value: &[u8], freed: &mut Vec<Freed>) {
        let mut from = 0;
        let copy = |memory: &mut Memory, from: u64, to: u64| {
            let range = from as usize..(to as usize).min(value.len());
            if let (Some(part), true) = (value.get(range), to > from) {
                let place = memory.bytes_mut(at + from, part.len() as u64);
                place.expect("values lie inside the region").copy_from_slice(part);
            }
        };
        for field in &self.0 {
            copy(memory, from, field.offset);
            from = field.offset + field.bytes;
        }
        copy(memory, from, value.len() as u64);
        self.free(memory, at, freed);
    }

    /// Gives up what the value at `at` holds.
    pub(crate) fn free(&self, memory: &mut Memory, at: u64, freed: &mut Vec<Freed>) {
        for field in &self.0 {
            let place = at + field.offset;
            match field.kind {
                FieldKind::Kept => {}
                FieldKind::Timer => freed.push(Freed::Timer(place)),
                FieldKind::Collection => freed.push(Freed::Collection(place)),
                FieldKind::Pointer => {
                    let pointer = memory.read_u64(place);
                    if pointer != 0 {
                        freed.push(Freed::Pointer(pointer));
                        memory.write_u64(place, 0);
                    }
                }
            }
        }
    }
}

fn collect(btf: &Btf, id: u32, base: u64, depth: u32, fields: &mut Vec<Field>) {
    let Some(id) = btf.resolve(id) else { return };
    if let Some((kind, bytes)) = special(btf.name(id)) {
        fields.push(Field { offset: base, bytes, kind });
        return;
    }
    match btf.kind(id) {
        Kind::Ptr(to) if is_owned(btf, *to) => {
            fields.push(Field { offset: base, bytes: 8, kind: FieldKind::Pointer });
        }
        Kind::Struct { members, .. } if depth < DEPTH_MAX => {
            for member in members.iter().filter(|member| member.bit_size == 0) {
                collect(btf, member.type_id, base + u64::from(member.bit_offset / 8), depth + 1, fields);
            }
        }
        Kind::Array { element, length, .. } if depth < DEPTH_MAX => {
            let Some(size) = btf.size_of(*element) else { return };
            let found = fields.len();
            for index in 0..*length {
                collect(btf, *element, base + u64::from(index) * u64::from(size), depth + 1, fields);
                if fields.len() == found {
                    break;
                }
            }
        }
        _ => {}
    }
}

fn special(name: &str) -> Option<(FieldKind, u64)> {
    Some(match name {
        "bpf_spin_lock" | "bpf_res_spin_lock" | "bpf_refcount" => (FieldKind::Kept, 4),
        "bpf_list_node" => (FieldKind::Kept, 24),
        "bpf_rb_node" => (FieldKind::Kept, 32),
        "bpf_timer" | "bpf_wq" => (FieldKind::Timer, 16),
        "bpf_list_head" | "bpf_rb_root" => (FieldKind::Collection, 16),
        _ => return None,
    })
}

/// Whether a pointer's target carries `__kptr`, `__kptr_untrusted` or `__percpu_kptr`.
fn is_owned(btf: &Btf, mut to: u32) -> bool {
    loop {
        match btf.kind(to) {
            Kind::TypeTag { .. } if matches!(btf.name(to), "kptr" | "percpu_kptr") => return true,
            Kind::TypeTag { target, .. } => to = *target,
            Kind::Const(next) | Kind::Volatile(next) => to = *next,
            _ => return false,
        }
    }
}
