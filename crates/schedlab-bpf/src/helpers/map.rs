//! Helpers on maps: look-up, update, delete, queues, ring buffers, visiting all elements.

use super::{Action, Cx, Host, bad, call, errno};
use crate::exec::{FaultKind, Faulted};
use crate::maps::{EFAULT, EINVAL, ENOMEM, Visit};

/// `BPF_RB_*`-like answers for a ring that is full.
const ENOSPC: i64 = 28;

pub(super) fn find<H: Host>(id: u32) -> Option<(&'static str, Action)> {
    Some(match id {
        1 => {
            let Action::Function(entry) = call::<H, _>(lookup::<H>) else { unreachable!("a function") };
            ("bpf_map_lookup_elem", Action::MapLookup(entry))
        }
        2 => ("bpf_map_update_elem", call::<H, _>(update::<H>)),
        3 => ("bpf_map_delete_elem", call::<H, _>(delete::<H>)),
        87 => ("bpf_map_push_elem", call::<H, _>(push::<H>)),
        88 => ("bpf_map_pop_elem", call::<H, _>(pop::<H>)),
        89 => ("bpf_map_peek_elem", call::<H, _>(peek::<H>)),
        130 => ("bpf_ringbuf_output", call::<H, _>(ringbuf_output::<H>)),
        131 => ("bpf_ringbuf_reserve", call::<H, _>(ringbuf_reserve::<H>)),
        132 => ("bpf_ringbuf_submit", call::<H, _>(ringbuf_submit::<H>)),
        133 => ("bpf_ringbuf_discard", call::<H, _>(ringbuf_discard::<H>)),
        134 => ("bpf_ringbuf_query", call::<H, _>(ringbuf_query::<H>)),
        164 => ("bpf_for_each_map_elem", call::<H, _>(for_each::<H>)),
        195 => ("bpf_map_lookup_percpu_elem", call::<H, _>(lookup_percpu::<H>)),
        _ => return None,
    })
}

/// The map whose object is at an address.
pub(super) fn map_at<H: Host>(
    cx: &mut Cx<'_, H>,
    address: u64,
    callee: &'static str,
) -> Result<usize, FaultKind> {
    let found = cx.state().code.layout.map_at(address);
    found.ok_or_else(|| bad(callee, format!("{address:#x} is no map")))
}

fn lookup<H: Host>(cx: &mut Cx<'_, H>, map: u64, key: u64) -> Result<u64, FaultKind> {
    let cpu = cx.cpu();
    let map = map_at(cx, map, "bpf_map_lookup_elem")?;
    let state = cx.state();
    Ok(state.maps.lookup(&state.memory, map, key, cpu))
}

fn lookup_percpu<H: Host>(cx: &mut Cx<'_, H>, map: u64, key: u64, cpu: u64) -> Result<u64, FaultKind> {
    let map = map_at(cx, map, "bpf_map_lookup_percpu_elem")?;
    let state = cx.state();
    if cpu as u32 >= state.code.options.nr_cpus {
        return Ok(0);
    }
    Ok(state.maps.lookup(&state.memory, map, key, cpu as u32))
}

fn update<H: Host>(cx: &mut Cx<'_, H>, map: u64, key: u64, value: u64, flags: u64) -> Result<i64, FaultKind> {
    let cpu = cx.cpu();
    let map = map_at(cx, map, "bpf_map_update_elem")?;
    let state = cx.state();
    let error = state.maps.update(&mut state.memory, map, key, value, flags, cpu);
    settle(cx);
    Ok(error)
}

/// Cleans up after values that were replaced or removed.
pub(super) fn settle<H: Host>(cx: &mut Cx<'_, H>) {
    if !cx.state().maps.freed.is_empty() {
        for timer in cx.state().settle_freed() {
            H::timer_cancel(cx, timer);
        }
    }
}

fn delete<H: Host>(cx: &mut Cx<'_, H>, map: u64, key: u64) -> Result<i64, FaultKind> {
    let map = map_at(cx, map, "bpf_map_delete_elem")?;
    let state = cx.state();
    let size = state.maps.maps[map].info.key_size;
    let Some(key) = state.memory.bytes(key, size.into()).map(<[u8]>::to_vec) else { return Ok(-EFAULT) };
    let error = state.maps.delete(&mut state.memory, map, &key);
    settle(cx);
    Ok(error)
}

fn push<H: Host>(cx: &mut Cx<'_, H>, map: u64, value: u64, flags: u64) -> Result<i64, FaultKind> {
    let map = map_at(cx, map, "bpf_map_push_elem")?;
    let state = cx.state();
    Ok(state.maps.push(&mut state.memory, map, value, flags))
}

fn pop<H: Host>(cx: &mut Cx<'_, H>, map: u64, value: u64) -> Result<i64, FaultKind> {
    let map = map_at(cx, map, "bpf_map_pop_elem")?;
    let state = cx.state();
    Ok(state.maps.pop(&mut state.memory, map, value, false))
}

fn peek<H: Host>(cx: &mut Cx<'_, H>, map: u64, value: u64) -> Result<i64, FaultKind> {
    let map = map_at(cx, map, "bpf_map_peek_elem")?;
    let state = cx.state();
    Ok(state.maps.pop(&mut state.memory, map, value, true))
}

fn ringbuf_reserve<H: Host>(cx: &mut Cx<'_, H>, map: u64, bytes: u64, flags: u64) -> Result<u64, FaultKind> {
    let map = map_at(cx, map, "bpf_ringbuf_reserve")?;
    let state = cx.state();
    match state.maps.ring(map) {
        Some(ring) if flags == 0 => Ok(ring.reserve(&mut state.memory, bytes)),
        Some(_) => Ok(0),
        None => Err(bad("bpf_ringbuf_reserve", "the map is no ring buffer")),
    }
}

fn ringbuf_submit<H: Host>(cx: &mut Cx<'_, H>, record: u64, _flags: u64) -> Result<(), FaultKind> {
    let known = cx.state().maps.finish_record(record, false);
    if known { Ok(()) } else { Err(bad("bpf_ringbuf_submit", "the record was not reserved")) }
}

fn ringbuf_discard<H: Host>(cx: &mut Cx<'_, H>, record: u64, _flags: u64) -> Result<(), FaultKind> {
    let known = cx.state().maps.finish_record(record, true);
    if known { Ok(()) } else { Err(bad("bpf_ringbuf_discard", "the record was not reserved")) }
}

fn ringbuf_output<H: Host>(
    cx: &mut Cx<'_, H>,
    map: u64,
    data: u64,
    bytes: u64,
    _flags: u64,
) -> Result<i64, FaultKind> {
    let map = map_at(cx, map, "bpf_ringbuf_output")?;
    let state = cx.state();
    let Some(content) = state.memory.bytes(data, bytes).map(<[u8]>::to_vec) else { return Ok(-EFAULT) };
    let Some(ring) = state.maps.ring(map) else {
        return Err(bad("bpf_ringbuf_output", "the map is no ring buffer"));
    };
    let record = ring.reserve(&mut state.memory, bytes);
    if record == 0 {
        return Ok(if bytes > ring.query(1) { -ENOMEM } else { -ENOSPC });
    }
    if let Some(place) = state.memory.bytes_mut(record, bytes) {
        place.copy_from_slice(&content);
    }
    ring.finish(record, false);
    Ok(0)
}

fn ringbuf_query<H: Host>(cx: &mut Cx<'_, H>, map: u64, what: u64) -> Result<u64, FaultKind> {
    let map = map_at(cx, map, "bpf_ringbuf_query")?;
    let ring = cx.state().maps.ring(map);
    ring.map(|ring| ring.query(what)).ok_or_else(|| bad("bpf_ringbuf_query", "the map is no ring buffer"))
}

/// Calls a function for every element: (map, key, value, argument); 1 stops. Elements the function removes
/// are not visited, those it adds are not either.
fn for_each<H: Host>(
    cx: &mut Cx<'_, H>,
    map: u64,
    function: u64,
    argument: u64,
    flags: u64,
) -> Result<u64, Faulted> {
    if flags != 0 {
        return Ok(errno(EINVAL));
    }
    let index = match map_at(cx, map, "bpf_for_each_map_elem") {
        Ok(index) => index,
        Err(kind) => return Err(cx.fault(kind)),
    };
    let cpu = cx.cpu();
    let elements = cx.state().maps.visit(index, cpu);
    let mut visited = 0;
    for (visit, value) in elements {
        let Some(key) = key_address(cx, index, visit) else { continue };
        visited += 1;
        if cx.callback(function, [map, key, value, argument, 0])? != 0 {
            break;
        }
    }
    Ok(visited)
}

/// Where a function finds the key of an element; `None` if the element is gone.
pub(super) fn key_address<H: Host>(cx: &mut Cx<'_, H>, map: usize, visit: Visit) -> Option<u64> {
    match visit {
        Visit::Index(index) => {
            let at = cx.scratch();
            cx.memory().write_u32(at, index);
            Some(at)
        }
        Visit::Key(at) => {
            let state = cx.state();
            state.maps.is_element(&state.memory, map, at).then_some(at)
        }
    }
}
