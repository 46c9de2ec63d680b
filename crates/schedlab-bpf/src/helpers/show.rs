//! `bpf_snprintf_btf()`: a value as text by its type in the kernel's BTF. How it looks is in `btf::show`.

use super::{Action, Cx, Host, bad, call, errno};
use crate::btf::show::{BTF_F_COMPACT, BTF_F_NONAME, BTF_F_PTR_RAW, BTF_F_ZERO, show};
use crate::exec::FaultKind;
use crate::maps::{EINVAL, ENOENT};

const FLAGS: u64 = BTF_F_COMPACT | BTF_F_NONAME | BTF_F_PTR_RAW | BTF_F_ZERO;
/// Bytes of `struct btf_ptr`: the value's address, its type, flags that nobody reads.
const BTF_PTR_BYTES: u64 = 16;

pub(super) fn find<H: Host>(id: u32) -> Option<(&'static str, Action)> {
    match id {
        149 => Some(("bpf_snprintf_btf", call::<H, _>(snprintf_btf::<H>))),
        _ => None,
    }
}

/// Bytes of the whole text without its zero, even if it was cut (kernel/bpf/btf.c, `btf_type_snprintf_show`).
fn snprintf_btf<H: Host>(
    cx: &mut Cx<'_, H>,
    to: u64,
    bytes: u64,
    pointer: u64,
    pointer_bytes: u64,
    flags: u64,
) -> Result<u64, FaultKind> {
    let kernel = cx.state().code.image.kernel.clone();
    let memory = cx.memory();
    let type_id = memory.load(pointer, 8, 4) as i32;
    let (Some(kernel), 1.., BTF_PTR_BYTES, 0) =
        (kernel, type_id, pointer_bytes as u32 as u64, flags & !FLAGS)
    else {
        return Ok(errno(EINVAL));
    };
    if kernel.get(type_id as u32).is_none() {
        return Ok(errno(ENOENT));
    }
    let address = memory.load(pointer, 0, 8);
    let read = |address, bytes| memory.bytes(address, bytes).filter(|_| memory.can_store(address));
    let (text, error) = show(&kernel, type_id as u32, address, flags, &read);
    let room = u64::from(bytes as u32);
    if room > 0 && !text.is_empty() {
        let Some(place) = memory.bytes_mut(to, room) else {
            return Err(bad("bpf_snprintf_btf", format!("cannot write {room} bytes to {to:#x}")));
        };
        let kept = text.len().min(place.len() - 1);
        place[..kept].copy_from_slice(&text[..kept]);
        place[kept] = 0;
    }
    Ok(error.map_or(text.len() as u64, errno))
}
