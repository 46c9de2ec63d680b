//! Choosing the next task of the class on a CPU: the dispatch loop, and moving tasks to local queues.

use super::call::{Op, call, call_known};
use super::consts::*;
use super::dsq::{DsqIndex, NIL};
use super::enqueue::{dequeue_again, enqueue_again, find_for_dispatch, insert, insert_local, unlink};
use super::host::{CurrClass, Cx, Direct, Effect, EventCount, Host, Insert};
use super::objects::{refill_slice, slice};
use super::task::OpsState;
use super::{exit, reenq};
use schedlab_bpf::memory::Memory;

/// What a scheduling pass found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing.
    None,
    /// A task in the local queue.
    Local,
    /// The previous task goes on.
    Prev,
}

/// `do_pick_task_scx`: the task to run next; `prev` is the current task if it is of the class and runnable.
#[inline(never)]
pub(crate) fn pick_task(cx: &mut Cx<'_>, cpu: u32, prev: Option<u32>) -> Option<u32> {
    let rq = cx.host().rq_mut(cpu);
    rq.in_balance = true;
    rq.kick_sync += 1;
    let released = std::mem::take(&mut rq.released);
    if released {
        acquire(cx, cpu);
    }
    let verdict = balance(cx, cpu, prev);
    end_pick(cx, cpu, prev, verdict)
}

/// The rest of [`pick_task`] of a CPU without a runnable task, after `ops.dispatch()` was called for the first time.
#[inline(never)]
pub(crate) fn pick_after_dispatch(cx: &mut Cx<'_>, cpu: u32) -> Option<u32> {
    let verdict = dispatch_rounds(cx, cpu, None, true);
    end_pick(cx, cpu, None, verdict)
}

/// What the verdict means.
#[inline]
fn end_pick(cx: &mut Cx<'_>, cpu: u32, prev: Option<u32>, verdict: Verdict) -> Option<u32> {
    let (host, memory) = cx.parts();
    let rq = host.rq_mut(cpu);
    rq.in_balance = false;
    let immed = rq.nr_immed > 0;
    let local = host.dsqs.get(host.local_dsq(cpu));
    let (first, nr) = (local.first, local.nr);
    if immed && verdict != Verdict::None && nr > 1 {
        reenq::schedule_local(host, cpu, 0);
    }
    let next = match (verdict, prev) {
        (Verdict::Prev, Some(prev)) => prev,
        _ if first == NIL => return None,
        _ => first,
    };
    if host.slice(memory, next) == 0 {
        refill_slice(cx, next);
    }
    Some(next)
}

/// `balance_one`.
#[inline(always)]
fn balance(cx: &mut Cx<'_>, cpu: u32, prev: Option<u32>) -> Verdict {
    if let Some(prev) = prev
        && slice(cx, prev) != 0
        && !cx.host().bypass
    {
        return Verdict::Prev;
    }
    let host = cx.host();
    if host.dsqs.get(host.local_dsq(cpu)).nr > 0 {
        return Verdict::Local;
    }
    let verdict = dispatch_loop(cx, cpu, prev);
    let host = cx.host();
    let keeps = host.ops.flags & SCX_OPS_ENQ_LAST == 0 || host.bypass;
    if verdict == Verdict::None && keeps && prev.is_some_and(|prev| host.task(prev).has(SCX_TASK_QUEUED)) {
        host.count(EventCount::DispatchKeepLast);
        return Verdict::Prev;
    }
    verdict
}

#[cold]
fn acquire(cx: &mut Cx<'_>, cpu: u32) {
    if cx.host().has_op(Op::CpuAcquire) {
        call(cx, Op::CpuAcquire, Some(cpu), [0, 0], &[u64::from(cpu), 0]);
    }
}

/// `scx_dispatch_sched`: global queue, then `ops.dispatch()` until something is there or nothing comes.
#[inline(always)]
fn dispatch_loop(cx: &mut Cx<'_>, cpu: u32, prev: Option<u32>) -> Verdict {
    if consume_global(cx, cpu) {
        return Verdict::Local;
    }
    let host = cx.host();
    if host.bypass {
        let bypass = host.bypass_dsq(cpu);
        return if consume(cx, cpu, bypass, 0) { Verdict::Local } else { Verdict::None };
    }
    if !host.has_op(Op::Dispatch) || !host.is_online(cpu) {
        return Verdict::None;
    }
    dispatch_rounds(cx, cpu, prev, false)
}

/// Calls of `ops.dispatch()`; the first one may have been made.
#[inline(always)]
fn dispatch_rounds(cx: &mut Cx<'_>, cpu: u32, prev: Option<u32>, mut called: bool) -> Verdict {
    let host = cx.host();
    // The program sees who ran last even if it went to sleep; only a runnable one can go on.
    let rq = host.rq(cpu);
    let prev_address = if rq.curr_class == CurrClass::Ext { host.task(rq.curr).address } else { 0 };
    let local = host.local_dsq(cpu);
    for _ in 0..SCX_DSP_MAX_LOOPS {
        if !std::mem::take(&mut called) {
            cx.host().rq_mut(cpu).nr_dispatched = 0;
            call_known(cx, Op::Dispatch, Some(cpu), [0, 0], &[u64::from(cpu), prev_address]);
        }
        if !cx.host().rq(cpu).batch.is_empty() {
            flush_batch(cx, cpu);
        }
        if let Some(prev) = prev
            && cx.host().task(prev).has(SCX_TASK_QUEUED)
            && slice(cx, prev) != 0
        {
            return Verdict::Prev;
        }
        if cx.host().dsqs.get(local).nr > 0 || consume_global(cx, cpu) {
            return Verdict::Local;
        }
        if cx.host().rq(cpu).nr_dispatched == 0 {
            return Verdict::None;
        }
    }
    // The loop is left to let the watchdog run, and entered again by a kick.
    cx.host().effects.push(Effect::Kick { cpu, flags: 0 });
    Verdict::None
}

/// `flush_dispatch_buf`: finishes the insertions `ops.dispatch()` made so far.
pub(crate) fn flush_batch(cx: &mut Cx<'_>, cpu: u32) {
    let mut at = 0;
    while let Some(made) = cx.host().rq(cpu).batch.get(at).copied() {
        finish_insert(cx, cpu, made);
        at += 1;
    }
    let rq = cx.host().rq_mut(cpu);
    rq.batch.clear();
    rq.nr_dispatched += at as u32;
}

/// `finish_dispatch`: unless the task was taken away or enqueued anew meanwhile.
fn finish_insert(cx: &mut Cx<'_>, cpu: u32, made: Insert) {
    let entity = cx.host().task(made.task);
    if entity.ops_state != OpsState::Queued || entity.qseq != made.qseq {
        return;
    }
    let task_cpu = entity.cpu;
    let dsq = find_for_dispatch(cx, cpu, made.dsq_id, task_cpu);
    match cx.host().cpu_of_local(dsq) {
        Some(target) => dispatch_to_local(cx, target, made.task, made.enq_flags),
        None => insert(cx, cpu, dsq, made.task, made.enq_flags | SCX_ENQ_CLEAR_OPSS),
    }
}

/// `dispatch_to_local_dsq`: to a CPU's local queue, moving the task there if it may run there.
pub(crate) fn dispatch_to_local(cx: &mut Cx<'_>, target: u32, task: u32, enq_flags: u64) {
    let host = cx.host();
    host.task_mut(task).ops_state = OpsState::None;
    let from = host.task(task).cpu;
    let local = host.local_dsq(target);
    if from == target {
        return insert(cx, target, local, task, enq_flags);
    }
    if !may_move(cx, task, target, true) {
        let global = cx.host().global_dsq(from);
        return insert(cx, from, global, task, enq_flags | SCX_ENQ_GDSQ_FALLBACK);
    }
    move_remote(cx, task, target, enq_flags);
}

/// `move_remote_task_to_local_dsq`: the task leaves its run queue and arrives on `target`.
#[inline(always)]
fn move_remote(cx: &mut Cx<'_>, task: u32, target: u32, enq_flags: u64) {
    let (host, memory) = cx.parts();
    let from = host.task(task).cpu;
    if can_hop(host, from, task, enq_flags) {
        hop(host, memory, from, target, task);
        return insert_local(cx, target, task, enq_flags);
    }
    move_by_callbacks(cx, from, task, target, enq_flags);
}

#[inline(never)]
fn move_by_callbacks(cx: &mut Cx<'_>, from: u32, task: u32, target: u32, enq_flags: u64) {
    let host = cx.host();
    host.task_mut(task).sticky_cpu = target as i32;
    dequeue_again(cx, from, task, 0);
    let (host, memory) = cx.parts();
    host.set_cpu(memory, task, target);
    host.effects.push(Effect::Migrated { task, from, to: target });
    enqueue_again(cx, target, task, 0, enq_flags);
}

/// Whether dequeue and enqueue of a move have no more to do than what [`hop`] does: a queued task that waits,
/// and no callback is due.
#[inline]
fn can_hop(host: &Host, from: u32, task: u32, enq_flags: u64) -> bool {
    let entity = host.task(task);
    entity.has(SCX_TASK_QUEUED)
        && entity.dsq.is_none()
        && !entity.deferred
        && entity.ops_state == OpsState::None
        && host.rq(from).curr != task
        && enq_flags & (host.rules.cpu_selected_flag | ENQUEUE_RESTORE | SCX_ENQ_DSQ_PRIQ) == 0
}

/// The sum of `deactivate_task`, `set_task_cpu` and `activate_task` but for the insertion.
#[inline(always)]
fn hop(host: &mut Host, memory: &mut Memory, from: u32, target: u32, task: u32) {
    host.rq_mut(from).nr_running -= 1;
    host.rq_mut(target).nr_running += 1;
    let clear = SCX_TASK_RESET_RUNNABLE_AT | SCX_TASK_DEQD_FOR_SLEEP;
    super::enqueue::note_runnable(host, memory, task, 0, clear);
    let entity = &mut host.tasks[task as usize];
    entity.sticky_cpu = -1;
    entity.clear_direct();
    entity.cpu = target;
    memory.write_u32(entity.address + host.at.cpu, target);
    host.effects.push(Effect::Migrated { task, from, to: target });
}

/// `task_can_run_on_remote_rq`; an error if the scheduler insisted.
#[inline]
pub(crate) fn may_move(cx: &mut Cx<'_>, task: u32, cpu: u32, enforce: bool) -> bool {
    let (host, memory) = cx.parts();
    if host.allowed(task).contains(memory, cpu) && host.is_online(cpu) {
        return true;
    }
    refuse_move(cx, task, cpu, enforce)
}

#[cold]
fn refuse_move(cx: &mut Cx<'_>, task: u32, cpu: u32, enforce: bool) -> bool {
    let (host, memory) = cx.parts();
    if host.allowed(task).contains(memory, cpu) {
        if enforce {
            host.count(EventCount::DispatchLocalDsqOffline);
        }
        return false;
    }
    if enforce {
        let text = if host.at_least(6, 14) {
            format!("SCX_DSQ_LOCAL[_ON] target CPU {cpu} not allowed for {}", host.label(memory, task))
        } else {
            format!(
                "SCX_DSQ_LOCAL[_ON] verdict target cpu {cpu} not allowed for {}",
                host.label(memory, task)
            )
        };
        exit::error(cx, text);
    }
    false
}

/// `consume_global_dsq`.
#[inline]
fn consume_global(cx: &mut Cx<'_>, cpu: u32) -> bool {
    let host = cx.host();
    let global = host.global_dsq(cpu);
    host.dsqs.get(global).first != NIL && consume(cx, cpu, global, 0)
}

/// `consume_dispatch_q`: moves the first task that may run on `cpu` to its local queue.
#[inline(never)]
pub(crate) fn consume(cx: &mut Cx<'_>, cpu: u32, dsq: DsqIndex, enq_flags: u64) -> bool {
    consume_inline(cx, cpu, dsq, enq_flags)
}

/// The same within the kfunc that nearly every switch calls.
#[inline(always)]
pub(crate) fn consume_inline(cx: &mut Cx<'_>, cpu: u32, dsq: DsqIndex, enq_flags: u64) -> bool {
    let (host, memory) = cx.parts();
    let queue = host.dsqs.get(dsq);
    let mut at = queue.first;
    let bypass_queue = queue.id == SCX_DSQ_BYPASS;
    if at == NIL {
        return false;
    }
    host.lock_queue(dsq, cpu);
    while at != NIL {
        if host.aborting() && !bypass_queue {
            return false;
        }
        let entity = host.task(at);
        let (own, next) = (entity.cpu == cpu, entity.next);
        if own || host.allowed(at).contains(memory, cpu) && host.is_online(cpu) {
            unlink(host, at, dsq);
            if own {
                move_to_own_local(cx, cpu, at, enq_flags);
            } else {
                host.head = host.dsqs.get(dsq).first;
                move_remote(cx, at, cpu, enq_flags);
            }
            return true;
        }
        at = next;
    }
    false
}

/// `move_local_task_to_local_dsq`: the task is on this CPU's run queue already.
#[inline(always)]
fn move_to_own_local(cx: &mut Cx<'_>, cpu: u32, task: u32, enq_flags: u64) {
    insert_local(cx, cpu, task, enq_flags & !SCX_ENQ_CLEAR_OPSS);
}

/// `move_task_between_dsqs`: from a shared queue to any other.
pub(crate) fn move_between(cx: &mut Cx<'_>, task: u32, from: DsqIndex, to: DsqIndex, mut enq_flags: u64) {
    let host = cx.host();
    let cpu = host.task(task).cpu;
    let mut to = to;
    let mut target = host.cpu_of_local(to);
    if let Some(other) = target.filter(|other| *other != cpu)
        && !may_move(cx, task, other, true)
    {
        to = cx.host().global_dsq(cpu);
        target = None;
        enq_flags |= SCX_ENQ_GDSQ_FALLBACK;
    }
    let here = cx.cpu();
    cx.host().lock_queue(from, here);
    unlink(cx.host(), task, from);
    match target {
        Some(target) if target == cpu => move_to_own_local(cx, cpu, task, enq_flags),
        Some(target) => move_remote(cx, task, target, enq_flags),
        None => insert(cx, cpu, to, task, enq_flags),
    }
}

/// `scx_dsq_insert_commit`: notes an insertion to be finished later.
#[inline(always)]
pub(crate) fn commit_insert(cx: &mut Cx<'_>, task: u32, dsq_id: u64, enq_flags: u64) {
    let cpu = cx.cpu();
    let host = cx.host();
    match host.direct {
        Direct::None => {}
        expected => return mark_direct(cx, expected, task, dsq_id, enq_flags),
    }
    if host.rq(cpu).batch.len() >= host.ops.dispatch_max_batch as usize {
        return buffer_overflow(cx);
    }
    let qseq = host.task(task).qseq;
    host.rq_mut(cpu).batch.push(Insert { task, qseq, dsq_id, enq_flags });
}

#[cold]
fn buffer_overflow(cx: &mut Cx<'_>) {
    exit::error(cx, "dispatch buffer overflow".to_owned());
}

/// `mark_direct_dispatch`: one insertion, of the task at hand.
#[inline]
fn mark_direct(cx: &mut Cx<'_>, expected: Direct, task: u32, dsq_id: u64, enq_flags: u64) {
    let host = cx.host();
    host.direct = Direct::Done;
    if expected == Direct::For(task) {
        let entity = host.task_mut(task);
        entity.ddsp_dsq_id = dsq_id;
        entity.ddsp_enq_flags = enq_flags;
        return;
    }
    refuse_direct(cx, expected, task);
}

#[cold]
fn refuse_direct(cx: &mut Cx<'_>, expected: Direct, task: u32) {
    let (host, memory) = cx.parts();
    let text = match expected {
        Direct::For(expected) => format!(
            "scheduling for {} but trying to direct-dispatch {}",
            host.label(memory, expected),
            host.label(memory, task)
        ),
        _ => format!("{} already direct-dispatched", host.label(memory, task)),
    };
    exit::error(cx, text);
}

/// `set_next_task_scx`: the task runs from now on.
#[inline(always)]
pub(crate) fn set_next_task(cx: &mut Cx<'_>, cpu: u32, task: u32) {
    let Host { dsqs, tasks, rules, .. } = cx.host();
    let entity = &mut tasks[task as usize];
    if entity.has(SCX_TASK_QUEUED) {
        let (address, local) = (entity.address, DsqIndex(cpu));
        let told = super::enqueue::take_back(entity, rules.custody);
        if !told && entity.dsq == Some(local) && !entity.has(SCX_TASK_IMMED) {
            dsqs.get_mut(local).unlink(tasks, task);
        } else {
            super::enqueue::take_out(cx, cpu, task, told);
        }
        if cx.host().has_op(Op::Running) {
            call_known(cx, Op::Running, Some(cpu), [task, 0], &[address]);
        }
    }
    // The switch follows: to `ops.running()` the CPU's current task is still the one before.
    let (host, memory) = cx.parts();
    let (curr_at, now) = (host.layout.rq.curr, host.now);
    let (entity, rq) = (&mut host.tasks[task as usize], &mut host.rqs[cpu as usize]);
    memory.write_u8(entity.address + host.at.on_cpu, 1);
    memory.write_u64(rq.address + curr_at, entity.address);
    (rq.curr, rq.curr_class, rq.exec_start) = (task, CurrClass::Ext, now);
    entity.runnable = false;
    entity.set_flags(memory, &host.at, SCX_TASK_RESET_RUNNABLE_AT, 0);
}

/// Who comes after the task that is put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Next {
    pub task: u32,
    pub class: CurrClass,
}

/// `put_prev_task_scx`: the task stops running; still runnable, it goes back to a queue.
#[inline]
pub(crate) fn put_prev_task(cx: &mut Cx<'_>, cpu: u32, task: u32, next: Next) {
    cx.host().rq_mut(cpu).kick_sync += 1;
    if cx.host().task(task).has(SCX_TASK_QUEUED) {
        super::call::call_task(cx, Op::Stopping, cpu, task, &[1]);
        super::enqueue::set_runnable(cx, task);
        put_back(cx, cpu, task, next);
    }
    let (host, memory) = cx.parts();
    memory.write_u8(host.task(task).address + host.at.on_cpu, 0);
    if let CurrClass::Above(why) = next.class {
        switch_class(cx, cpu, next.task, why);
    }
}

#[inline(never)]
fn put_back(cx: &mut Cx<'_>, cpu: u32, task: u32, next: Next) {
    let local = cx.host().local_dsq(cpu);
    if slice(cx, task) != 0 && !cx.host().bypass {
        // Preempted by a stronger class: it goes first when the CPU comes back.
        if cx.host().task(task).has(SCX_TASK_IMMED) {
            super::objects::set_flags(cx, task, SCX_TASK_REENQ_PREEMPTED, 0);
            super::enqueue::do_enqueue(cx, cpu, task, SCX_ENQ_REENQ, -1);
            super::objects::set_flags(cx, task, 0, SCX_TASK_REENQ_REASON_MASK);
        } else {
            let head = cx.host().rules.head_flag;
            insert(cx, cpu, local, task, head);
        }
        return;
    }
    let last = next.class == CurrClass::Idle;
    super::enqueue::do_enqueue(cx, cpu, task, if last { SCX_ENQ_LAST } else { 0 }, -1);
    if last && cx.host().task(task).dsq == Some(local) {
        cx.host().resched(cpu);
    }
}

/// `switch_class`: a stronger class takes the CPU.
#[cold]
fn switch_class(cx: &mut Cx<'_>, cpu: u32, next: u32, reason: u32) {
    let host = cx.host();
    if !(host.has_op(Op::CpuRelease) || host.has_op(Op::CpuAcquire)) || host.rq(cpu).released {
        return;
    }
    host.rq_mut(cpu).released = true;
    if !host.has_op(Op::CpuRelease) {
        return;
    }
    let task = host.address_of(next);
    let Some(args) = cx.memory().alloc(16, 8) else { return };
    cx.memory().write_u32(args, reason);
    cx.memory().write_u64(args + 8, task);
    call(cx, Op::CpuRelease, Some(cpu), [0, 0], &[u64::from(cpu), args]);
    cx.memory().free(args, 16, 8);
}
