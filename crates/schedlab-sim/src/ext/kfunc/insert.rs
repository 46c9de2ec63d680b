//! Inserting tasks into queues, creating and destroying queues, slices and virtual times.

use super::super::call::{Group, require};
use super::super::consts::*;
use super::super::dispatch::commit_insert;
use super::super::exit;
use super::super::host::{Cx, Host};
use super::task;
use schedlab_bpf::exec::{FaultKind, KfuncTable};

const GROUPS: u32 = Group::Enqueue as u32;

pub(super) fn add(table: &mut KfuncTable<Host>) {
    table.add("scx_bpf_dsq_insert", dsq_insert);
    table.add("scx_bpf_dsq_insert___v2", dsq_insert);
    table.add("scx_bpf_dispatch", dsq_insert);
    table.add("scx_bpf_dsq_insert_vtime", dsq_insert_vtime);
    table.add("scx_bpf_dispatch_vtime", dsq_insert_vtime);
    table.add("__scx_bpf_dsq_insert_vtime", dsq_insert_vtime_args);
    table.add("scx_bpf_create_dsq", create_dsq);
    table.add("scx_bpf_destroy_dsq", destroy_dsq);
    table.add("scx_bpf_task_set_slice", set_slice);
    table.add("scx_bpf_task_set_dsq_vtime", set_dsq_vtime);
}

/// An error of the scheduler; the kfunc does nothing.
#[cold]
fn refuse(cx: &mut Cx<'_>, text: std::fmt::Arguments<'_>) -> bool {
    exit::error(cx, text.to_string());
    false
}

/// `scx_vet_enq_flags`.
#[inline]
pub(super) fn vet_flags(cx: &mut Cx<'_>, dsq_id: u64, enq_flags: &mut u64) -> bool {
    let local = dsq_id == SCX_DSQ_LOCAL || dsq_id & SCX_DSQ_LOCAL_ON == SCX_DSQ_LOCAL_ON;
    if *enq_flags & SCX_ENQ_IMMED != 0 {
        if !local {
            return refuse(cx, format_args!("SCX_ENQ_IMMED on a non-local DSQ 0x{dsq_id:x}"));
        }
    } else if local && cx.host().ops.flags & SCX_OPS_ALWAYS_ENQ_IMMED != 0 {
        *enq_flags |= SCX_ENQ_IMMED;
    }
    true
}

/// What both orders share; `vtime` if ordered by it.
#[inline(always)]
fn put(
    cx: &mut Cx<'_>,
    address: u64,
    dsq_id: u64,
    slice: u64,
    vtime: Option<u64>,
    mut enq_flags: u64,
) -> Result<bool, FaultKind> {
    if !require(cx, GROUPS, "scx_bpf_dsq_insert")? {
        return Ok(false);
    }
    let task = task(cx, address, "scx_bpf_dsq_insert")?;
    if enq_flags & SCX_ENQ_INTERNAL_MASK != 0 {
        return Ok(refuse(cx, format_args!("invalid enq_flags 0x{enq_flags:x}")));
    }
    if !vet_flags(cx, dsq_id, &mut enq_flags) {
        return Ok(false);
    }
    let (host, memory) = cx.parts();
    let kept = if slice != 0 { slice } else { host.slice(memory, task).max(1) };
    host.set_slice(memory, task, kept);
    if let Some(vtime) = vtime {
        host.set_dsq_vtime(memory, task, vtime);
        enq_flags |= SCX_ENQ_DSQ_PRIQ;
    }
    commit_insert(cx, task, dsq_id, enq_flags);
    Ok(true)
}

fn dsq_insert(
    cx: &mut Cx<'_>,
    task: u64,
    dsq_id: u64,
    slice: u64,
    enq_flags: u64,
) -> Result<bool, FaultKind> {
    put(cx, task, dsq_id, slice, None, enq_flags)
}

fn dsq_insert_vtime(
    cx: &mut Cx<'_>,
    task: u64,
    dsq_id: u64,
    slice: u64,
    vtime: u64,
    enq_flags: u64,
) -> Result<bool, FaultKind> {
    put(cx, task, dsq_id, slice, Some(vtime), enq_flags)
}

/// `struct scx_bpf_dsq_insert_vtime_args`: dsq_id, slice, vtime, enq_flags.
fn dsq_insert_vtime_args(cx: &mut Cx<'_>, task: u64, args: u64) -> Result<bool, FaultKind> {
    let memory = cx.memory();
    let [dsq_id, slice, vtime, enq_flags] =
        [0, 8, 16, 24].map(|offset| memory.read_u64(args.wrapping_add(offset)));
    put(cx, task, dsq_id, slice, Some(vtime), enq_flags)
}

fn create_dsq(cx: &mut Cx<'_>, dsq_id: u64, node: u64) -> Result<i32, FaultKind> {
    if !require(cx, Group::Unlocked as u32, "scx_bpf_create_dsq")? {
        return Ok(-errno::EINVAL);
    }
    let node = node as i32;
    let host = cx.host();
    if node < -1 || node >= host.topology.nodes().len() as i32 || dsq_id & SCX_DSQ_FLAG_BUILTIN != 0 {
        return Ok(-errno::EINVAL);
    }
    Ok(if host.dsqs.create(dsq_id).is_some() { 0 } else { -errno::EEXIST })
}

fn destroy_dsq(cx: &mut Cx<'_>, dsq_id: u64) {
    let host = cx.host();
    let Some(dsq) = host.dsqs.find_user(dsq_id) else { return };
    let nr = host.dsqs.get(dsq).nr;
    if nr > 0 {
        exit::error(cx, format!("attempting to destroy in-use dsq 0x{dsq_id:016x} (nr={nr})"));
    } else {
        host.dsqs.destroy(dsq);
    }
}

fn set_slice(cx: &mut Cx<'_>, address: u64, slice: u64) -> Result<bool, FaultKind> {
    let task = task(cx, address, "scx_bpf_task_set_slice")?;
    let (host, memory) = cx.parts();
    host.set_slice(memory, task, slice);
    Ok(true)
}

fn set_dsq_vtime(cx: &mut Cx<'_>, address: u64, vtime: u64) -> Result<bool, FaultKind> {
    let task = task(cx, address, "scx_bpf_task_set_dsq_vtime")?;
    let (host, memory) = cx.parts();
    host.set_dsq_vtime(memory, task, vtime);
    Ok(true)
}
