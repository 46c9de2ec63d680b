//! `bpf_arena_*`: pages of an arena map.

use super::map::map_at;
use super::{Cx, Host, bad};
use crate::exec::{FaultKind, KfuncTable};
use crate::maps::Arena;
use crate::memory::Memory;

pub(super) fn add<H: Host>(table: &mut KfuncTable<H>) {
    table.add("bpf_arena_alloc_pages", alloc::<H>);
    table.add("bpf_arena_free_pages", free::<H>);
    table.add("bpf_arena_reserve_pages", reserve::<H>);
}

fn with<H: Host, R>(
    cx: &mut Cx<'_, H>,
    map: u64,
    callee: &'static str,
    act: impl FnOnce(&mut Arena, &mut Memory) -> R,
) -> Result<R, FaultKind> {
    let map = map_at(cx, map, callee)?;
    let state = cx.state();
    match state.maps.arena(map) {
        Some(arena) => Ok(act(arena, &mut state.memory)),
        None => Err(bad(callee, "the map is no arena")),
    }
}

fn alloc<H: Host>(
    cx: &mut Cx<'_, H>,
    map: u64,
    at: u64,
    count: u64,
    _node: u64,
    flags: u64,
) -> Result<u64, FaultKind> {
    let count = u64::from(count as u32);
    with(
        cx,
        map,
        "bpf_arena_alloc_pages",
        |arena, memory| {
            if flags == 0 { arena.alloc(memory, at, count) } else { 0 }
        },
    )
}

fn free<H: Host>(cx: &mut Cx<'_, H>, map: u64, at: u64, count: u64) -> Result<(), FaultKind> {
    with(cx, map, "bpf_arena_free_pages", |arena, _| arena.release(at, u64::from(count as u32)))
}

fn reserve<H: Host>(cx: &mut Cx<'_, H>, map: u64, at: u64, count: u64) -> Result<i64, FaultKind> {
    with(cx, map, "bpf_arena_reserve_pages", |arena, _| arena.reserve(at, u64::from(count as u32)))
}
