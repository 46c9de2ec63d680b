//! Into the queues and out of them: `enqueue_task`, direct dispatch, insertion, `dequeue_task`.
//!
//! What a scheduler does with a task it was given is in [`super::dispatch`].

use super::call::{Op, call_task};
use super::consts::*;
use super::dsq::DsqIndex;
use super::host::{CurrClass, Cx, Direct, EventCount};
use super::objects::{refill_slice, set_flags};
use super::task::OpsState;
use super::{exit, reenq};

/// `enqueue_task_scx`: the task becomes runnable on `cpu`, or arrives there from another queue.
pub(crate) fn enqueue_task(cx: &mut Cx<'_>, cpu: u32, task: u32, core_flags: u64, extra_flags: u64) {
    let enq_flags = core_flags | extra_flags;
    let host = cx.host();
    let entity = host.task_mut(task);
    let mut sticky = std::mem::replace(&mut entity.sticky_cpu, -1);
    let migrating = sticky >= 0;
    if enq_flags & ENQUEUE_RESTORE != 0 && host.rq(cpu).curr == task {
        sticky = cpu as i32;
    }
    if !host.task(task).has(SCX_TASK_QUEUED) {
        set_runnable(cx, task);
        set_flags(cx, task, SCX_TASK_QUEUED, 0);
        cx.host().rq_mut(cpu).nr_running += 1;
        if !migrating {
            call_task(cx, Op::Runnable, cpu, task, &[enq_flags]);
        }
        do_enqueue(cx, cpu, task, enq_flags, sticky);
    }
    let host = cx.host();
    if enq_flags & host.cpu_selected_flag() != 0 && host.task(task).selected_cpu != cpu as i32 {
        host.count(EventCount::SelectCpuFallback);
    }
}

/// `set_task_runnable`: the task waits from now on.
pub(crate) fn set_runnable(cx: &mut Cx<'_>, task: u32) {
    let host = cx.host();
    host.runnable_seq += 1;
    let (now, seq, tick_ns) = (host.now, host.runnable_seq, host.tick_ns);
    let entity = host.task_mut(task);
    (entity.runnable, entity.runnable_seq) = (true, seq);
    if entity.has(SCX_TASK_RESET_RUNNABLE_AT) {
        entity.runnable_at = now / tick_ns * tick_ns;
        set_flags(cx, task, 0, SCX_TASK_RESET_RUNNABLE_AT);
    }
}

/// `clr_task_runnable`.
pub(crate) fn clear_runnable(cx: &mut Cx<'_>, task: u32, reset: bool) {
    cx.host().task_mut(task).runnable = false;
    if reset {
        set_flags(cx, task, SCX_TASK_RESET_RUNNABLE_AT, 0);
    }
}

/// `do_enqueue_task`: to the scheduler, or past it where the kernel says so.
pub(crate) fn do_enqueue(cx: &mut Cx<'_>, cpu: u32, task: u32, enq_flags: u64, sticky: i32) {
    let local = cx.host().local_dsq(cpu);
    if sticky == cpu as i32 {
        return insert(cx, cpu, local, task, enq_flags);
    }
    set_flags(cx, task, 0, SCX_TASK_IMMED);
    let host = cx.host();
    if host.bypass {
        host.count(EventCount::BypassDispatch);
        let bypass = host.bypass_dsq(cpu);
        return insert_refilled(cx, cpu, bypass, task, enq_flags);
    }
    if host.task(task).ddsp_dsq_id != SCX_DSQ_INVALID {
        return direct_dispatch(cx, cpu, task, enq_flags);
    }
    if host.task(task).exiting && host.ops.flags & SCX_OPS_ENQ_EXITING == 0 {
        host.count(EventCount::EnqSkipExiting);
        return insert_refilled(cx, cpu, local, task, enq_flags);
    }
    if !host.has_op(Op::Enqueue) {
        let global = host.global_dsq(cpu);
        return insert_refilled(cx, cpu, global, task, enq_flags);
    }
    let entity = host.task_mut(task);
    entity.qseq += 1;
    entity.ops_state = OpsState::Queueing;
    // Direct dispatch belongs to the CPU whose code runs, not to the run queue.
    let here = cx.cpu();
    cx.host().rq_mut(here).direct = Direct::For(task);
    call_task(cx, Op::Enqueue, cpu, task, &[enq_flags]);
    let host = cx.host();
    host.rq_mut(here).direct = Direct::None;
    if host.task(task).ddsp_dsq_id != SCX_DSQ_INVALID {
        return direct_dispatch(cx, cpu, task, enq_flags);
    }
    host.task_mut(task).ops_state = OpsState::Queued;
    if host.has_custody() {
        set_flags(cx, task, SCX_TASK_IN_CUSTODY, 0);
    }
}

/// Into a queue of the kernel's own with a fresh slice.
fn insert_refilled(cx: &mut Cx<'_>, cpu: u32, dsq: DsqIndex, task: u32, enq_flags: u64) {
    refill_slice(cx, task);
    clear_direct(cx, task);
    insert(cx, cpu, dsq, task, enq_flags);
}

/// Forgets a direct dispatch.
fn clear_direct(cx: &mut Cx<'_>, task: u32) {
    let entity = cx.host().task_mut(task);
    entity.ddsp_dsq_id = SCX_DSQ_INVALID;
    entity.ddsp_enq_flags = 0;
}

/// `direct_dispatch`: where `ops.select_cpu()` or `ops.enqueue()` put the task.
fn direct_dispatch(cx: &mut Cx<'_>, cpu: u32, task: u32, enq_flags: u64) {
    let id = cx.host().task(task).ddsp_dsq_id;
    let dsq = find_for_dispatch(cx, cpu, id, cpu);
    let host = cx.host();
    let remote = host.cpu_of_local(dsq).is_some_and(|target| target != cpu);
    let entity = host.task_mut(task);
    entity.ddsp_enq_flags |= enq_flags;
    entity.ops_state = OpsState::None;
    if remote {
        // Two run queues cannot be locked here: finished by `run_deferred`.
        entity.deferred = true;
        host.rq_mut(cpu).deferred.push(task);
        host.deferred_work = true;
        return;
    }
    let flags = entity.ddsp_enq_flags;
    clear_direct(cx, task);
    insert(cx, cpu, dsq, task, flags | SCX_ENQ_CLEAR_OPSS);
}

/// `find_dsq_for_dispatch`: the queue an id means on `cpu`; the global one after an error.
pub(crate) fn find_for_dispatch(cx: &mut Cx<'_>, cpu: u32, id: u64, task_cpu: u32) -> DsqIndex {
    let host = cx.host();
    if id == SCX_DSQ_LOCAL {
        return host.local_dsq(cpu);
    }
    if id & SCX_DSQ_LOCAL_ON == SCX_DSQ_LOCAL_ON {
        let target = (id & SCX_DSQ_LOCAL_CPU_MASK) as u32;
        if target < host.nr_cpus {
            return host.local_dsq(target);
        }
        let text = format!("invalid CPU {} in SCX_DSQ_LOCAL_ON dispatch verdict", target as i32);
        exit::error(cx, text);
        return cx.host().global_dsq(task_cpu);
    }
    if id == SCX_DSQ_GLOBAL {
        return host.global_dsq(task_cpu);
    }
    if let Some(dsq) = host.dsqs.find_user(id) {
        return dsq;
    }
    let global = host.global_dsq(task_cpu);
    exit::error(cx, format!("non-existent DSQ 0x{id:x}"));
    global
}

/// `dispatch_enqueue`: into a queue; `cpu` is the run queue held.
pub(crate) fn insert(cx: &mut Cx<'_>, cpu: u32, dsq: DsqIndex, task: u32, mut enq_flags: u64) {
    check_order(cx, dsq, &mut enq_flags);
    let (host, memory) = cx.parts();
    let vtime = host.dsq_vtime(memory, task);
    let queue = host.dsqs.get_mut(dsq);
    if enq_flags & SCX_ENQ_DSQ_PRIQ != 0 {
        queue.push_vtime(&mut host.tasks, task, vtime);
    } else {
        queue.push(&mut host.tasks, task, enq_flags & (host_head_flag(host.version) | SCX_ENQ_PREEMPT) != 0);
    }
    host.task_mut(task).dsq = Some(dsq);
    count_immed(cx, dsq, task, enq_flags);
    match cx.host().cpu_of_local(dsq) {
        Some(target) => after_local_insert(cx, target, task, enq_flags),
        None => after_shared_insert(cx, cpu, dsq, task),
    }
    if enq_flags & SCX_ENQ_CLEAR_OPSS != 0 {
        cx.host().task_mut(task).ops_state = OpsState::None;
    }
}

/// The value of `SCX_ENQ_HEAD` in a version.
#[inline]
pub(crate) fn host_head_flag(version: (u16, u16)) -> u64 {
    if version >= (7, 0) { SCX_ENQ_HEAD } else { 0x10 }
}

/// The kernel's own queues are FIFO, and no queue mixes both orders.
fn check_order(cx: &mut Cx<'_>, dsq: DsqIndex, enq_flags: &mut u64) {
    let host = cx.host();
    let queue = host.dsqs.get(dsq);
    let (id, nr, nr_priq) = (queue.id, queue.nr, queue.nr_priq);
    if *enq_flags & SCX_ENQ_DSQ_PRIQ != 0 {
        if host.is_builtin(dsq) {
            *enq_flags &= !SCX_ENQ_DSQ_PRIQ;
            exit::error(cx, "cannot use vtime ordering for built-in DSQs".to_owned());
        } else if nr > 0 && nr_priq == 0 {
            exit::error(cx, format!("DSQ ID 0x{id:016x} already had FIFO-enqueued tasks"));
        }
    } else if nr_priq > 0 {
        exit::error(cx, format!("DSQ ID 0x{id:016x} already had PRIQ-enqueued tasks"));
    }
}

/// `dsq_inc_nr`: a task that must run at once is taken back if the CPU is not open.
pub(crate) fn count_immed(cx: &mut Cx<'_>, dsq: DsqIndex, task: u32, enq_flags: u64) {
    let Some(cpu) = cx.host().cpu_of_local(dsq) else { return };
    if enq_flags & SCX_ENQ_IMMED != 0 {
        set_flags(cx, task, SCX_TASK_IMMED, 0);
    }
    let host = cx.host();
    if host.task(task).has(SCX_TASK_IMMED) {
        host.rq_mut(cpu).nr_immed += 1;
        if host.dsqs.get(dsq).nr > 1 || !reenq::is_open(host, cpu, enq_flags) {
            reenq::schedule_local(host, cpu, 0);
        }
    }
}

/// `local_dsq_post_enq`: the scheduler is rid of the task; the CPU is told if it idles or is to be preempted.
pub(crate) fn after_local_insert(cx: &mut Cx<'_>, cpu: u32, task: u32, enq_flags: u64) {
    leave_custody(cx, cpu, task, 0);
    let host = cx.host();
    let rq = host.rq(cpu);
    let (curr, class, in_balance) = (rq.curr, rq.curr_class, rq.in_balance);
    if class == CurrClass::Idle && !in_balance {
        host.resched(cpu);
    }
    if in_balance {
        return;
    }
    if enq_flags & SCX_ENQ_PREEMPT != 0 && curr != task && class == CurrClass::Ext {
        let (host, memory) = cx.parts();
        host.set_slice(memory, curr, 0);
        host.resched(cpu);
    }
}

/// Global and bypass queues end the scheduler's custody, user queues begin it.
fn after_shared_insert(cx: &mut Cx<'_>, cpu: u32, dsq: DsqIndex, task: u32) {
    let host = cx.host();
    if !host.has_custody() {
        return;
    }
    if host.is_builtin(dsq) {
        leave_custody(cx, cpu, task, 0);
    } else {
        set_flags(cx, task, SCX_TASK_IN_CUSTODY, 0);
    }
}

/// `task_leave_custody` and the `ops.dequeue()` that is due then (7.1 and later).
pub(crate) fn leave_custody(cx: &mut Cx<'_>, cpu: u32, task: u32, deq_flags: u64) {
    let entity = cx.host().task(task);
    if entity.has(SCX_TASK_IN_CUSTODY) && entity.sticky_cpu < 0 {
        set_flags(cx, task, 0, SCX_TASK_IN_CUSTODY);
        call_task(cx, Op::Dequeue, cpu, task, &[deq_flags]);
    }
}

/// `dequeue_task_scx`: the task sleeps, ends, changes or moves.
pub(crate) fn dequeue_task(cx: &mut Cx<'_>, cpu: u32, task: u32, core_flags: u64) {
    let mut deq_flags = core_flags;
    let host = cx.host();
    if deq_flags & SCX_DEQ_SLEEP == 0 && host.has_custody() {
        deq_flags |= SCX_DEQ_SCHED_CHANGE;
    }
    if !host.task(task).has(SCX_TASK_QUEUED) {
        return;
    }
    let migrating = host.task(task).sticky_cpu >= 0;
    ops_dequeue(cx, cpu, task, deq_flags);
    if cx.host().rq(cpu).curr == task {
        call_task(cx, Op::Stopping, cpu, task, &[0]);
    }
    if !migrating {
        call_task(cx, Op::Quiescent, cpu, task, &[deq_flags]);
    }
    if deq_flags & SCX_DEQ_SLEEP != 0 {
        set_flags(cx, task, SCX_TASK_DEQD_FOR_SLEEP, SCX_TASK_QUEUED);
    } else {
        set_flags(cx, task, 0, SCX_TASK_DEQD_FOR_SLEEP | SCX_TASK_QUEUED);
    }
    cx.host().rq_mut(cpu).nr_running -= 1;
    remove(cx, task);
    clear_direct(cx, task);
}

/// `ops_dequeue`: takes the task back from the scheduler.
pub(crate) fn ops_dequeue(cx: &mut Cx<'_>, cpu: u32, task: u32, deq_flags: u64) {
    cx.host().task_mut(task).runnable = false;
    let host = cx.host();
    let was_queued = host.task(task).ops_state == OpsState::Queued;
    host.task_mut(task).ops_state = OpsState::None;
    if host.has_custody() {
        leave_custody(cx, cpu, task, deq_flags);
    } else if was_queued {
        call_task(cx, Op::Dequeue, cpu, task, &[deq_flags]);
    }
}

/// `dispatch_dequeue`: out of whatever queue or list the task is in.
pub(crate) fn remove(cx: &mut Cx<'_>, task: u32) {
    let host = cx.host();
    match host.task(task).dsq {
        Some(dsq) => unlink(host, task, dsq),
        None if host.task(task).deferred => {
            host.task_mut(task).deferred = false;
            let cpu = host.task(task).cpu;
            host.rq_mut(cpu).deferred.retain(|other| *other != task);
        }
        None => {}
    }
}

/// `task_unlink_from_dsq` with its count of tasks that must run at once.
pub(crate) fn unlink(host: &mut super::host::Host, task: u32, dsq: DsqIndex) {
    host.unlink(task, dsq);
    host.task_mut(task).dsq = None;
    if host.task(task).has(SCX_TASK_IMMED)
        && let Some(cpu) = host.cpu_of_local(dsq)
    {
        host.rq_mut(cpu).nr_immed -= 1;
    }
}

impl super::host::Host {
    /// Whether `ops.dequeue()` follows the custody rules of 7.1.
    #[inline]
    pub(crate) fn has_custody(&self) -> bool {
        self.at_least(7, 1)
    }

    /// The value of `SCX_ENQ_CPU_SELECTED` in this version.
    #[inline]
    pub(crate) fn cpu_selected_flag(&self) -> u64 {
        if self.at_least(7, 0) { SCX_ENQ_CPU_SELECTED } else { 0x400 }
    }
}
