//! Work that a callback may not do at once: dispatches to other CPUs' local queues, and reenqueues.

use super::consts::*;
use super::dispatch::dispatch_to_local;
use super::dsq::DsqIndex;
use super::enqueue::{do_enqueue, find_for_dispatch, unlink};
use super::exit;
use super::host::{CurrClass, Cx, EventCount, Host};
use super::objects::set_flags;

/// `rq_is_open`: whether a task put on the CPU now would run now.
pub(crate) fn is_open(host: &Host, cpu: u32, enq_flags: u64) -> bool {
    let rq = host.rq(cpu);
    match rq.curr_class {
        CurrClass::Above(_) => false,
        CurrClass::Idle => true,
        CurrClass::Ext => rq.in_balance || enq_flags & SCX_ENQ_PREEMPT != 0,
    }
}

/// `schedule_reenq_local`: the local queue will be looked through.
pub(crate) fn schedule_local(host: &mut Host, cpu: u32, flags: u64) {
    let rq = host.rq_mut(cpu);
    rq.reenq_local = Some(rq.reenq_local.unwrap_or(0) | flags);
    host.deferred_work = true;
}

/// The same for a user queue, on behalf of `cpu`.
pub(crate) fn schedule_user(host: &mut Host, cpu: u32, dsq: DsqIndex, flags: u64) {
    let pending = &mut host.rq_mut(cpu).reenq_user;
    match pending.iter_mut().find(|(other, _)| *other == dsq) {
        Some((_, have)) => *have |= flags,
        None => pending.push((dsq, flags)),
    }
    host.deferred_work = true;
}

/// The end of what ran in the scheduler's context: does what a callback could not do at once.
#[inline(always)]
pub(crate) fn finish(cx: &mut Cx<'_>) {
    if cx.host().deferred_work {
        run_deferred(cx);
    }
}

/// `run_deferred` on every CPU that has work left. Within a switch it waits for the switch's end, as there it is a
/// balance callback or an interrupt that waits (`schedule_deferred_locked`): the next task is current by then.
#[inline(never)]
pub(crate) fn run_deferred(cx: &mut Cx<'_>) {
    if cx.host().switching {
        return;
    }
    while std::mem::take(&mut cx.host().deferred_work) {
        for cpu in 0..cx.host().nr_cpus {
            direct_dispatches(cx, cpu);
            while let Some(flags) = cx.host().rq_mut(cpu).reenq_local.take() {
                if !count_repeat(cx, cpu) {
                    break;
                }
                reenqueue_local(cx, cpu, flags);
            }
            while let Some((dsq, flags)) = cx.host().rq_mut(cpu).reenq_user.pop() {
                reenqueue_user(cx, dsq, flags);
            }
        }
    }
    for cpu in 0..cx.host().nr_cpus {
        cx.host().rq_mut(cpu).reenq_count = 0;
    }
}

/// A scheduler that puts tasks back where they cannot run at once would go on forever.
fn count_repeat(cx: &mut Cx<'_>, cpu: u32) -> bool {
    let host = cx.host();
    let rq = host.rq_mut(cpu);
    rq.reenq_count += 1;
    let repeats = rq.reenq_count - 1;
    if repeats > 0 {
        host.count(EventCount::ReenqLocalRepeat);
    }
    if repeats > SCX_REENQ_LOCAL_MAX_REPEAT {
        exit::error(cx, format!("SCX_ENQ_REENQ on SCX_DSQ_LOCAL repeated {repeats} times"));
        return false;
    }
    true
}

/// `process_ddsp_deferred_locals`.
fn direct_dispatches(cx: &mut Cx<'_>, cpu: u32) {
    let mut at = 0;
    while let Some(task) = cx.host().rq(cpu).deferred.get(at).copied() {
        at += 1;
        let entity = cx.host().task_mut(task);
        entity.deferred = false;
        let id = std::mem::replace(&mut entity.ddsp_dsq_id, SCX_DSQ_INVALID);
        let flags = std::mem::take(&mut entity.ddsp_enq_flags);
        let task_cpu = entity.cpu;
        let dsq = find_for_dispatch(cx, cpu, id, task_cpu);
        if let Some(target) = cx.host().cpu_of_local(dsq) {
            dispatch_to_local(cx, target, task, flags);
        }
    }
    if at > 0 {
        cx.host().rq_mut(cpu).deferred.clear();
    }
}

/// `reenq_local`: tasks that may not linger in the local queue, or all, go to `ops.enqueue()` again.
pub(crate) fn reenqueue_local(cx: &mut Cx<'_>, cpu: u32, flags: u64) -> u32 {
    let host = cx.host();
    let open = is_open(host, cpu, 0);
    let local = host.local_dsq(cpu);
    let mut taken = Vec::new();
    let mut at = host.dsqs.get(local).first;
    let mut first = true;
    while at != super::dsq::NIL {
        let next = host.task(at).next;
        let immed = host.task(at).has(SCX_TASK_IMMED) && !(first && open);
        if immed {
            host.count(EventCount::ReenqImmed);
        }
        if immed || flags & SCX_REENQ_ANY != 0 {
            unlink(host, at, local);
            taken.push((at, if immed { SCX_TASK_REENQ_IMMED } else { SCX_TASK_REENQ_KFUNC }));
        }
        first = false;
        at = next;
    }
    for (task, reason) in &taken {
        reenqueue(cx, cpu, *task, *reason);
    }
    taken.len() as u32
}

/// `reenq_user`.
fn reenqueue_user(cx: &mut Cx<'_>, dsq: DsqIndex, flags: u64) {
    let host = cx.host();
    if host.bypass || flags & SCX_REENQ_ANY == 0 {
        return;
    }
    host.iterators += 1;
    let (cursor, until) = (host.iterators, host.dsqs.get(dsq).seq);
    host.dsqs.get_mut(dsq).iterate(cursor, false);
    loop {
        let Host { dsqs, tasks, .. } = cx.host();
        let Some(task) = dsqs.get_mut(dsq).advance(tasks, cursor, until, false) else { break };
        let cpu = cx.host().task(task).cpu;
        unlink(cx.host(), task, dsq);
        reenqueue(cx, cpu, task, SCX_TASK_REENQ_KFUNC);
    }
    cx.host().dsqs.get_mut(dsq).finish(cursor);
}

fn reenqueue(cx: &mut Cx<'_>, cpu: u32, task: u32, reason: u32) {
    set_flags(cx, task, reason, 0);
    do_enqueue(cx, cpu, task, SCX_ENQ_REENQ, -1);
    set_flags(cx, task, 0, SCX_TASK_REENQ_REASON_MASK);
}
