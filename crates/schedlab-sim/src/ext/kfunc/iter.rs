//! Iterating a queue, and moving tasks out of it on the way.
//!
//! A `struct bpf_iter_scx_dsq` on the program's stack holds: position of the queue plus one, number of the
//! iterator, sequence at its start with its flags, slice and virtual time for the next move.

use super::super::call::{Group, require};
use super::super::consts::{SCX_ENQ_DSQ_PRIQ, errno};
use super::super::dispatch::move_between;
use super::super::dsq::DsqIndex;
use super::super::enqueue::find_for_dispatch;
use super::super::host::{Cx, Host};
use super::insert::vet_flags;
use super::task;
use schedlab_bpf::exec::{FaultKind, KfuncTable};

const SCX_DSQ_ITER_REV: u64 = 1 << 16;
const HAS_SLICE: u32 = 1 << 30;
const HAS_VTIME: u32 = 1 << 31;

pub(super) fn add(table: &mut KfuncTable<Host>) {
    table.add("bpf_iter_scx_dsq_new", new);
    table.add("bpf_iter_scx_dsq_next", next);
    table.add("bpf_iter_scx_dsq_destroy", destroy);
    for name in ["scx_bpf_dsq_move_set_slice", "scx_bpf_dispatch_from_dsq_set_slice"] {
        table.add(name, |cx: &mut Cx<'_>, it: u64, slice: u64| set(cx, it, 24, slice, HAS_SLICE));
    }
    for name in ["scx_bpf_dsq_move_set_vtime", "scx_bpf_dispatch_from_dsq_set_vtime"] {
        table.add(name, |cx: &mut Cx<'_>, it: u64, vtime: u64| set(cx, it, 32, vtime, HAS_VTIME));
    }
    for name in ["scx_bpf_dsq_move", "scx_bpf_dispatch_from_dsq"] {
        table.add(name, |cx: &mut Cx<'_>, it: u64, task: u64, dsq: u64, flags: u64| {
            move_task(cx, it, task, dsq, flags)
        });
    }
    for name in ["scx_bpf_dsq_move_vtime", "scx_bpf_dispatch_vtime_from_dsq"] {
        table.add(name, |cx: &mut Cx<'_>, it: u64, task: u64, dsq: u64, flags: u64| {
            move_task(cx, it, task, dsq, flags | SCX_ENQ_DSQ_PRIQ)
        });
    }
}

/// What the iterator on the stack says.
struct Iterator {
    dsq: DsqIndex,
    cursor: u64,
    until: u32,
    flags: u32,
}

fn read(cx: &mut Cx<'_>, it: u64) -> Option<Iterator> {
    let memory = cx.memory();
    let dsq = memory.read_u64(it).checked_sub(1)? as u32;
    let (cursor, state) = (memory.read_u64(it + 8), memory.read_u64(it + 16));
    Some(Iterator { dsq: DsqIndex(dsq), cursor, until: state as u32, flags: (state >> 32) as u32 })
}

fn store(cx: &mut Cx<'_>, address: u64, value: u64) -> Result<(), FaultKind> {
    if cx.memory().store(address, 0, 8, value) { Ok(()) } else { Err(FaultKind::Store { address }) }
}

fn new(cx: &mut Cx<'_>, it: u64, dsq_id: u64, flags: u64) -> Result<i32, FaultKind> {
    store(cx, it, 0)?;
    if flags & !SCX_DSQ_ITER_REV != 0 {
        return Ok(-errno::EINVAL);
    }
    let host = cx.host();
    let Some(dsq) = host.dsqs.find_user(dsq_id) else { return Ok(-errno::ENOENT) };
    host.iterators += 1;
    let cursor = host.iterators;
    let queue = host.dsqs.get_mut(dsq);
    queue.iterate(cursor, flags != 0);
    let until = queue.seq;
    store(cx, it, u64::from(dsq.0) + 1)?;
    store(cx, it + 8, cursor)?;
    store(cx, it + 16, flags << 32 | u64::from(until))?;
    Ok(0)
}

fn next(cx: &mut Cx<'_>, it: u64) -> u64 {
    let Some(state) = read(cx, it) else { return 0 };
    let here = cx.cpu();
    cx.host().lock_queue(state.dsq, here);
    let Host { dsqs, tasks, .. } = cx.host();
    let reverse = state.flags & SCX_DSQ_ITER_REV as u32 != 0;
    let found = dsqs.get_mut(state.dsq).advance(tasks, state.cursor, state.until, reverse);
    found.map_or(0, |task| cx.host().task(task).address)
}

fn destroy(cx: &mut Cx<'_>, it: u64) -> Result<(), FaultKind> {
    if let Some(state) = read(cx, it) {
        cx.host().dsqs.get_mut(state.dsq).finish(state.cursor);
        store(cx, it, 0)?;
    }
    Ok(())
}

fn set(cx: &mut Cx<'_>, it: u64, offset: u64, value: u64, flag: u32) -> Result<(), FaultKind> {
    let state = cx.memory().read_u64(it + 16);
    store(cx, it + offset, value)?;
    store(cx, it + 16, state | u64::from(flag) << 32)
}

/// `scx_dsq_move`.
fn move_task(cx: &mut Cx<'_>, it: u64, address: u64, dsq_id: u64, mut flags: u64) -> Result<bool, FaultKind> {
    if !require(cx, Group::Dispatch as u32 | Group::Unlocked as u32, "scx_bpf_dsq_move")? {
        return Ok(false);
    }
    let Some(state) = read(cx, it) else { return Ok(false) };
    let task = task(cx, address, "scx_bpf_dsq_move")?;
    if !vet_flags(cx, dsq_id, &mut flags) || cx.host().aborting() {
        return Ok(false);
    }
    let entity = cx.host().task(task);
    let moved = entity.dsq == Some(state.dsq)
        && entity.linked
        && (state.until.wrapping_sub(entity.dsq_seq) as i32) >= 0;
    if moved {
        let (here, task_cpu) = (cx.cpu(), cx.host().task(task).cpu);
        let held = cx.host().call.locked().unwrap_or(here);
        let to = find_for_dispatch(cx, held, dsq_id, task_cpu);
        let (host, memory) = cx.parts();
        if state.flags & HAS_VTIME != 0 {
            host.set_dsq_vtime(memory, task, memory.read_u64(it + 32));
        }
        if state.flags & HAS_SLICE != 0 {
            host.set_slice(memory, task, memory.read_u64(it + 24));
        }
        move_between(cx, task, state.dsq, to, flags);
    }
    let kept = cx.memory().read_u64(it + 16) & !(u64::from(HAS_SLICE | HAS_VTIME) << 32);
    store(cx, it + 16, kept)?;
    Ok(moved)
}
