//! Pointers that know their length (`struct bpf_dynptr`), over memory and ring buffer records, and messages
//! from user space.
//!
//! The sixteen bytes on a program's stack hold the kernel's own layout: address, size with the read-only bit,
//! offset. Sizes are 24 bits as in the kernel.

use super::map::map_at;
use super::{Action, Cx, Host, bad, call, errno};
use crate::exec::{FaultKind, Faulted, KfuncTable};
use crate::maps::{E2BIG, EINVAL};

const ERANGE: i64 = 34;
const EPERM: i64 = 1;
const EFAULT: i64 = 14;
/// Bit of the size word: the target must not be written.
const READ_ONLY: u64 = 1 << 31;
/// Bits of the size word that are the size.
const SIZE_MASK: u64 = (1 << 24) - 1;
/// Messages one `bpf_user_ringbuf_drain()` takes at most (`BPF_MAX_USER_RINGBUF_SAMPLES`).
const SAMPLES_MAX: u64 = 128 * 1024;

pub(super) fn find<H: Host>(id: u32) -> Option<(&'static str, Action)> {
    Some(match id {
        197 => ("bpf_dynptr_from_mem", call::<H, _>(from_mem::<H>)),
        198 => ("bpf_ringbuf_reserve_dynptr", call::<H, _>(reserve::<H>)),
        199 => (
            "bpf_ringbuf_submit_dynptr",
            call::<H, _>(|cx: &mut Cx<'_, H>, p: u64, _: u64| end(cx, p, false)),
        ),
        200 => (
            "bpf_ringbuf_discard_dynptr",
            call::<H, _>(|cx: &mut Cx<'_, H>, p: u64, _: u64| end(cx, p, true)),
        ),
        201 => ("bpf_dynptr_read", call::<H, _>(read::<H>)),
        202 => ("bpf_dynptr_write", call::<H, _>(write::<H>)),
        203 => ("bpf_dynptr_data", call::<H, _>(data::<H>)),
        209 => ("bpf_user_ringbuf_drain", call::<H, _>(drain::<H>)),
        _ => return None,
    })
}

pub(super) fn add<H: Host>(table: &mut KfuncTable<H>) {
    table.add("bpf_dynptr_adjust", adjust::<H>);
    table.add("bpf_dynptr_is_null", |cx: &mut Cx<'_, H>, p: u64| Dynptr::load(cx, p).address == 0);
    table.add("bpf_dynptr_is_rdonly", |cx: &mut Cx<'_, H>, p: u64| Dynptr::load(cx, p).read_only);
    table.add("bpf_dynptr_size", |cx: &mut Cx<'_, H>, p: u64| {
        let pointer = Dynptr::load(cx, p);
        if pointer.address == 0 { errno(EINVAL) } else { pointer.size }
    });
    table.add("bpf_dynptr_clone", clone::<H>);
    table.add("bpf_dynptr_copy", copy_between::<H>);
    table.add("bpf_dynptr_memset", fill::<H>);
    table.add("bpf_probe_read_kernel_dynptr", probe_read::<H>);
    table.add("bpf_dynptr_slice", |cx: &mut Cx<'_, H>, p: u64, offset: u64, _buffer: u64, bytes: u64| {
        Dynptr::load(cx, p).slice(offset, bytes).unwrap_or(0)
    });
    table.add(
        "bpf_dynptr_slice_rdwr",
        |cx: &mut Cx<'_, H>, p: u64, offset: u64, _buffer: u64, bytes: u64| {
            let pointer = Dynptr::load(cx, p);
            if pointer.read_only { 0 } else { pointer.slice(offset, bytes).unwrap_or(0) }
        },
    );
}

/// A `struct bpf_dynptr`.
#[derive(Clone, Copy, Default)]
struct Dynptr {
    address: u64,
    size: u64,
    read_only: bool,
    offset: u64,
}

impl Dynptr {
    fn load<H: Host>(cx: &mut Cx<'_, H>, at: u64) -> Dynptr {
        let memory = cx.memory();
        let (address, word) = (memory.read_u64(at), memory.read_u64(at.wrapping_add(8)));
        let size = word & SIZE_MASK;
        Dynptr { address, size, read_only: word & READ_ONLY != 0, offset: word >> 32 }
    }

    fn store<H: Host>(self, cx: &mut Cx<'_, H>, at: u64) -> Result<(), FaultKind> {
        let word = self.size | if self.read_only { READ_ONLY } else { 0 } | self.offset << 32;
        let memory = cx.memory();
        let stored = memory.store(at, 0, 8, self.address) && memory.store(at, 8, 8, word);
        if stored { Ok(()) } else { Err(FaultKind::Store { address: at }) }
    }

    /// Address of a part, if it lies inside.
    fn slice(self, offset: u64, bytes: u64) -> Option<u64> {
        let (offset, bytes) = (u64::from(offset as u32), u64::from(bytes as u32));
        let inside = self.address != 0 && offset + bytes <= self.size;
        inside.then(|| self.address + self.offset + offset)
    }
}

fn from_mem<H: Host>(
    cx: &mut Cx<'_, H>,
    from: u64,
    size: u64,
    flags: u64,
    at: u64,
) -> Result<i64, FaultKind> {
    let size = u64::from(size as u32);
    let error = match (size > SIZE_MASK, flags) {
        (true, _) => E2BIG,
        (_, 0) => 0,
        _ => EINVAL,
    };
    let pointer = Dynptr { address: from, size, ..Dynptr::default() };
    let pointer = if error == 0 { pointer } else { Dynptr::default() };
    pointer.store(cx, at)?;
    Ok(-error)
}

fn reserve<H: Host>(cx: &mut Cx<'_, H>, map: u64, size: u64, flags: u64, at: u64) -> Result<i64, FaultKind> {
    let map = map_at(cx, map, "bpf_ringbuf_reserve_dynptr")?;
    let size = u64::from(size as u32);
    let state = cx.state();
    let Some(ring) = state.maps.ring(map) else {
        return Err(bad("bpf_ringbuf_reserve_dynptr", "the map is no ring buffer"));
    };
    let fits = flags == 0 && size <= SIZE_MASK;
    let address = if fits { ring.reserve(&mut state.memory, size) } else { 0 };
    let pointer = Dynptr { address, size: if address == 0 { 0 } else { size }, ..Dynptr::default() };
    pointer.store(cx, at)?;
    Ok(match (fits, address) {
        (false, _) => -EINVAL,
        (true, 0) => -EINVAL,
        _ => 0,
    })
}

/// Submits or discards the record; a dynptr without one is allowed.
fn end<H: Host>(cx: &mut Cx<'_, H>, at: u64, discard: bool) -> Result<(), FaultKind> {
    let pointer = Dynptr::load(cx, at);
    if pointer.address == 0 {
        return Ok(());
    }
    if !cx.state().maps.finish_record(pointer.address, discard) {
        return Err(bad("bpf_ringbuf_submit_dynptr", "the record was not reserved"));
    }
    Dynptr::default().store(cx, at)
}

fn read<H: Host>(
    cx: &mut Cx<'_, H>,
    to: u64,
    bytes: u64,
    at: u64,
    offset: u64,
    flags: u64,
) -> Result<i64, FaultKind> {
    let pointer = Dynptr::load(cx, at);
    if pointer.address == 0 || flags != 0 {
        return Ok(-EINVAL);
    }
    let Some(from) = pointer.slice(offset, bytes) else { return Ok(-E2BIG) };
    copy(cx, to, from, u64::from(bytes as u32))
}

fn write<H: Host>(
    cx: &mut Cx<'_, H>,
    at: u64,
    offset: u64,
    from: u64,
    bytes: u64,
    flags: u64,
) -> Result<i64, FaultKind> {
    let pointer = Dynptr::load(cx, at);
    if pointer.address == 0 || pointer.read_only || flags != 0 {
        return Ok(-EINVAL);
    }
    let Some(to) = pointer.slice(offset, bytes) else { return Ok(-E2BIG) };
    copy(cx, to, from, u64::from(bytes as u32))
}

fn copy<H: Host>(cx: &mut Cx<'_, H>, to: u64, from: u64, bytes: u64) -> Result<i64, FaultKind> {
    let memory = cx.memory();
    let Some(content) = memory.bytes(from, bytes).map(<[u8]>::to_vec) else {
        return Err(bad("bpf_dynptr_read", format!("cannot read {bytes} bytes at {from:#x}")));
    };
    let Some(place) = memory.bytes_mut(to, bytes) else { return Err(FaultKind::Store { address: to }) };
    place.copy_from_slice(&content);
    Ok(0)
}

fn data<H: Host>(cx: &mut Cx<'_, H>, at: u64, offset: u64, bytes: u64) -> u64 {
    let pointer = Dynptr::load(cx, at);
    if pointer.read_only { 0 } else { pointer.slice(offset, bytes).unwrap_or(0) }
}

fn adjust<H: Host>(cx: &mut Cx<'_, H>, at: u64, start: u64, end: u64) -> Result<i64, FaultKind> {
    let pointer = Dynptr::load(cx, at);
    let (start, end) = (u64::from(start as u32), u64::from(end as u32));
    if pointer.address == 0 || start > end {
        return Ok(-EINVAL);
    }
    if end > pointer.size {
        return Ok(-ERANGE);
    }
    Dynptr { offset: pointer.offset + start, size: end - start, ..pointer }.store(cx, at)?;
    Ok(0)
}

fn clone<H: Host>(cx: &mut Cx<'_, H>, at: u64, to: u64) -> Result<i64, FaultKind> {
    let pointer = Dynptr::load(cx, at);
    pointer.store(cx, to)?;
    Ok(if pointer.address == 0 { -EINVAL } else { 0 })
}

/// `bpf_dynptr_copy()`: from one to another, which may overlap.
fn copy_between<H: Host>(
    cx: &mut Cx<'_, H>,
    to: u64,
    to_offset: u64,
    from: u64,
    from_offset: u64,
    bytes: u64,
) -> Result<i64, FaultKind> {
    let (to, from) = (Dynptr::load(cx, to), Dynptr::load(cx, from));
    if to.address == 0 || from.address == 0 || to.read_only {
        return Ok(-EINVAL);
    }
    let places = to.slice(to_offset, bytes).zip(from.slice(from_offset, bytes));
    let Some((to, from)) = places else { return Ok(-E2BIG) };
    copy(cx, to, from, u64::from(bytes as u32))
}

/// `bpf_dynptr_memset()`.
fn fill<H: Host>(cx: &mut Cx<'_, H>, at: u64, offset: u64, bytes: u64, byte: u64) -> Result<i64, FaultKind> {
    let pointer = Dynptr::load(cx, at);
    if pointer.address == 0 || pointer.read_only {
        return Ok(-EINVAL);
    }
    let Some(to) = pointer.slice(offset, bytes) else { return Ok(-E2BIG) };
    let Some(place) = cx.memory().bytes_mut(to, u64::from(bytes as u32)) else {
        return Err(FaultKind::Store { address: to });
    };
    place.fill(byte as u8);
    Ok(0)
}

/// `bpf_probe_read_kernel_dynptr()`: memory of the kernel into a dynptr; what cannot be read is zero.
fn probe_read<H: Host>(
    cx: &mut Cx<'_, H>,
    at: u64,
    offset: u64,
    bytes: u64,
    from: u64,
) -> Result<i64, FaultKind> {
    let pointer = Dynptr::load(cx, at);
    if pointer.address == 0 || pointer.read_only {
        return Ok(-EINVAL);
    }
    let Some(to) = pointer.slice(offset, bytes) else { return Ok(-E2BIG) };
    let bytes = u64::from(bytes as u32);
    if from == 0 || cx.memory().bytes(from, bytes).is_none() {
        fill(cx, at, offset, bytes, 0)?;
        return Ok(-EFAULT);
    }
    copy(cx, to, from, bytes)
}

/// Gives each waiting message to a function (dynptr, argument); 1 stops. Returns the number taken.
fn drain<H: Host>(
    cx: &mut Cx<'_, H>,
    map: u64,
    function: u64,
    argument: u64,
    flags: u64,
) -> Result<u64, Faulted> {
    let map = match map_at(cx, map, "bpf_user_ringbuf_drain") {
        Ok(map) => map,
        Err(kind) => return Err(cx.fault(kind)),
    };
    // The two flags are about waking the producer.
    if flags & !3 != 0 {
        return Ok(errno(EINVAL));
    }
    let mut taken = 0;
    while taken < SAMPLES_MAX {
        let Some(messages) = cx.state().maps.user_ring(map) else { return Ok(errno(EPERM)) };
        let Some(message) = messages.pop_front() else { break };
        let size = message.len() as u64;
        let Some(block) = cx.memory().alloc(16 + size, 8) else {
            return Err(cx.fault(FaultKind::OutOfMemory(16 + size)));
        };
        if let Some(place) = cx.memory().bytes_mut(block + 16, size) {
            place.copy_from_slice(&message);
        }
        let pointer = Dynptr { address: block + 16, size, read_only: true, offset: 0 };
        if let Err(kind) = pointer.store(cx, block) {
            return Err(cx.fault(kind));
        }
        let answer = cx.callback(function, [block, argument, 0, 0, 0]);
        cx.memory().free(block, 16 + size, 8);
        taken += 1;
        if answer? != 0 {
            break;
        }
    }
    Ok(taken)
}
