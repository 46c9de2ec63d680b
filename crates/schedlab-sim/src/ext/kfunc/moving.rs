//! What `ops.dispatch()` does with queues: moving to the local queue, slots of the buffer, reenqueueing.

use super::super::call::{Group, require};
use super::super::consts::*;
use super::super::dispatch::{consume_inline, flush_batch};
use super::super::enqueue::find_for_dispatch;
use super::super::host::{Cx, Effect, Host};
use super::super::{exit, reenq};
use super::insert::vet_flags;
use super::{cpu_valid, task};
use schedlab_bpf::exec::{FaultKind, KfuncTable};

const DISPATCH: u32 = Group::Dispatch as u32;

pub(super) fn add(table: &mut KfuncTable<Host>) {
    table.add("scx_bpf_dsq_move_to_local", |cx: &mut Cx<'_>, dsq: u64| move_to_local(cx, dsq, 0));
    table.add("scx_bpf_consume", |cx: &mut Cx<'_>, dsq: u64| move_to_local(cx, dsq, 0));
    table.add("scx_bpf_dsq_move_to_local___v2", move_to_local);
    table.add("scx_bpf_dispatch_nr_slots", nr_slots);
    table.add("scx_bpf_dispatch_cancel", cancel);
    table.add("scx_bpf_reenqueue_local", reenqueue_local);
    table.add("scx_bpf_reenqueue_local___v2", |cx: &mut Cx<'_>| dsq_reenq(cx, SCX_DSQ_LOCAL, 0));
    table.add("scx_bpf_dsq_reenq", dsq_reenq);
    table.add("scx_bpf_dsq_nr_queued", nr_queued);
    table.add("scx_bpf_dsq_peek", peek);
    table.add("scx_bpf_kick_cpu", kick_cpu);
    table.add("scx_bpf_task_running", task_running);
}

#[inline(always)]
fn move_to_local(cx: &mut Cx<'_>, dsq_id: u64, mut enq_flags: u64) -> Result<bool, FaultKind> {
    if !require(cx, DISPATCH, "scx_bpf_dsq_move_to_local")? || !vet_flags(cx, SCX_DSQ_LOCAL, &mut enq_flags) {
        return Ok(false);
    }
    let cpu = cx.host().call.locked().unwrap_or(0);
    if !cx.host().rq(cpu).batch.is_empty() {
        flush_batch(cx, cpu);
    }
    let Some(dsq) = cx.host().dsqs.find_user(dsq_id) else { return Ok(no_such_dsq(cx, dsq_id)) };
    let moved =
        cx.host().dsqs.get(dsq).first != super::super::dsq::NIL && consume_inline(cx, cpu, dsq, enq_flags);
    cx.host().rq_mut(cpu).nr_dispatched += u32::from(moved);
    Ok(moved)
}

#[cold]
fn no_such_dsq(cx: &mut Cx<'_>, dsq_id: u64) -> bool {
    exit::error(cx, format!("invalid DSQ ID 0x{dsq_id:016x}"));
    false
}

fn nr_slots(cx: &mut Cx<'_>) -> Result<u32, FaultKind> {
    if !require(cx, DISPATCH, "scx_bpf_dispatch_nr_slots")? {
        return Ok(0);
    }
    let cpu = cx.cpu();
    let host = cx.host();
    Ok(host.ops.dispatch_max_batch.saturating_sub(host.rq(cpu).batch.len() as u32))
}

fn cancel(cx: &mut Cx<'_>) -> Result<(), FaultKind> {
    if !require(cx, DISPATCH, "scx_bpf_dispatch_cancel")? {
        return Ok(());
    }
    let cpu = cx.cpu();
    if cx.host().rq_mut(cpu).batch.pop().is_none() {
        exit::error(cx, "dispatch buffer underflow".to_owned());
    }
    Ok(())
}

fn reenqueue_local(cx: &mut Cx<'_>) -> Result<u32, FaultKind> {
    if !require(cx, Group::CpuRelease as u32, "scx_bpf_reenqueue_local")? {
        return Ok(0);
    }
    let cpu = cx.cpu();
    Ok(reenq::reenqueue_local(cx, cpu, SCX_REENQ_ANY))
}

fn dsq_reenq(cx: &mut Cx<'_>, dsq_id: u64, flags: u64) {
    if flags & !SCX_REENQ_USER_MASK != 0 {
        return exit::error(cx, format!("invalid SCX_REENQ flags 0x{flags:x}"));
    }
    let here = cx.cpu();
    let cpu = cx.host().call.locked().unwrap_or(here);
    let dsq = find_for_dispatch(cx, cpu, dsq_id, here);
    let host = cx.host();
    match host.cpu_of_local(dsq) {
        Some(target) => reenq::schedule_local(host, target, SCX_REENQ_ANY),
        None if host.is_builtin(dsq) => {
            exit::error(cx, format!("DSQ 0x{dsq_id:x} not allowed for reenq"));
        }
        None => reenq::schedule_user(host, cpu, dsq, SCX_REENQ_ANY),
    }
}

fn nr_queued(cx: &mut Cx<'_>, dsq_id: u64) -> i32 {
    let here = cx.cpu();
    let host = cx.host();
    let dsq = if dsq_id == SCX_DSQ_LOCAL {
        Some(host.local_dsq(host.call.locked().unwrap_or(here)))
    } else if dsq_id & SCX_DSQ_LOCAL_ON == SCX_DSQ_LOCAL_ON {
        cpu_valid(cx, dsq_id & SCX_DSQ_LOCAL_CPU_MASK).map(|cpu| cx.host().local_dsq(cpu))
    } else {
        host.dsqs.find_user(dsq_id)
    };
    dsq.map_or(-errno::ENOENT, |dsq| cx.host().dsqs.get(dsq).nr as i32)
}

fn peek(cx: &mut Cx<'_>, dsq_id: u64) -> u64 {
    if dsq_id & SCX_DSQ_FLAG_BUILTIN != 0 {
        exit::error(cx, format!("peek disallowed on builtin DSQ 0x{dsq_id:x}"));
        return 0;
    }
    let host = cx.host();
    let Some(dsq) = host.dsqs.find_user(dsq_id) else {
        exit::error(cx, format!("peek on non-existent DSQ 0x{dsq_id:x}"));
        return 0;
    };
    match host.dsqs.get(dsq).first {
        super::super::dsq::NIL => 0,
        first => host.task(first).address,
    }
}

fn kick_cpu(cx: &mut Cx<'_>, cpu: u64, flags: u64) {
    let Some(cpu) = cpu_valid(cx, cpu) else { return };
    if cx.host().bypass {
        return;
    }
    if flags & SCX_KICK_IDLE != 0 && flags & (SCX_KICK_PREEMPT | SCX_KICK_WAIT) != 0 {
        exit::error(cx, "PREEMPT/WAIT cannot be used with SCX_KICK_IDLE".to_owned());
    }
    cx.host().effects.push(Effect::Kick { cpu, flags });
}

fn task_running(cx: &mut Cx<'_>, address: u64) -> Result<bool, FaultKind> {
    let task = task(cx, address, "scx_bpf_task_running")?;
    let host = cx.host();
    Ok(host.rq(host.task(task).cpu).curr == task)
}
