//! Into the queues and out of them: `enqueue_task`, direct dispatch, insertion, `dequeue_task`.
//!
//! What a scheduler does with a task it was given is in [`super::dispatch`].

use super::call::{Op, call_known, call_task_rare};
use super::consts::*;
use super::dsq::DsqIndex;
use super::host::{CurrClass, Cx, Direct, EventCount, Host};
use super::objects::{refill_slice, set_flags};
use super::task::{Entity, OpsState};
use super::{exit, reenq};
use schedlab_bpf::memory::Memory;

/// `enqueue_task_scx`: the task becomes runnable on `cpu`, or arrives there from another queue. One copy for
/// wake-ups, which are all of the cases that count, and [`enqueue_again`] for the others.
#[inline(always)]
pub(crate) fn enqueue_task(cx: &mut Cx<'_>, cpu: u32, task: u32, core_flags: u64, extra_flags: u64) {
    let enq_flags = core_flags | extra_flags;
    let (host, memory) = cx.parts();
    let entity = host.task_mut(task);
    let queued = entity.has(SCX_TASK_QUEUED);
    let mut sticky = std::mem::replace(&mut entity.sticky_cpu, -1);
    let elsewhere = entity.selected_cpu != cpu as i32;
    let migrating = sticky >= 0;
    if enq_flags & ENQUEUE_RESTORE != 0 && host.rq(cpu).curr == task {
        sticky = cpu as i32;
    }
    if !queued {
        note_runnable(host, memory, task, SCX_TASK_QUEUED, SCX_TASK_RESET_RUNNABLE_AT);
        host.rq_mut(cpu).nr_running += 1;
        if !migrating {
            call_task_rare(cx, Op::Runnable, cpu, task, enq_flags);
        }
        enqueue_inline(cx, cpu, task, enq_flags, sticky);
    }
    if elsewhere {
        let host = cx.host();
        if enq_flags & host.rules.cpu_selected_flag != 0 {
            host.count(EventCount::SelectCpuFallback);
        }
    }
}

/// [`enqueue_task`] of a task that moves.
#[inline(never)]
pub(crate) fn enqueue_again(cx: &mut Cx<'_>, cpu: u32, task: u32, core_flags: u64, extra_flags: u64) {
    enqueue_task(cx, cpu, task, core_flags, extra_flags);
}

/// `set_task_runnable`: the task waits from now on.
#[inline]
pub(crate) fn set_runnable(cx: &mut Cx<'_>, task: u32) {
    let (host, memory) = cx.parts();
    note_runnable(host, memory, task, 0, SCX_TASK_RESET_RUNNABLE_AT);
}

/// The same with further flags set; what is cleared has [`SCX_TASK_RESET_RUNNABLE_AT`].
#[inline]
pub(super) fn note_runnable(host: &mut Host, memory: &mut Memory, task: u32, set: u32, clear: u32) {
    host.runnable_seq += 1;
    let (seq, tick_at) = (host.runnable_seq, host.tick_at());
    let entity = &mut host.tasks[task as usize];
    (entity.runnable, entity.runnable_seq) = (true, seq);
    if entity.has(SCX_TASK_RESET_RUNNABLE_AT) {
        entity.runnable_at = tick_at;
    }
    entity.set_flags(memory, &host.at, set, clear);
}

/// `clr_task_runnable`.
#[inline]
pub(crate) fn clear_runnable(cx: &mut Cx<'_>, task: u32, reset: bool) {
    cx.host().task_mut(task).runnable = false;
    if reset {
        set_flags(cx, task, SCX_TASK_RESET_RUNNABLE_AT, 0);
    }
}

/// `do_enqueue_task`: to the scheduler, or past it where the kernel says so.
#[inline(never)]
pub(crate) fn do_enqueue(cx: &mut Cx<'_>, cpu: u32, task: u32, enq_flags: u64, sticky: i32) {
    enqueue_inline(cx, cpu, task, enq_flags, sticky);
}

#[inline(always)]
fn enqueue_inline(cx: &mut Cx<'_>, cpu: u32, task: u32, enq_flags: u64, sticky: i32) {
    let (host, memory) = cx.parts();
    let local = host.local_dsq(cpu);
    if sticky == cpu as i32 {
        return insert(cx, cpu, local, task, enq_flags);
    }
    let entity = &mut host.tasks[task as usize];
    if entity.has(SCX_TASK_IMMED) {
        entity.set_flags(memory, &host.at, 0, SCX_TASK_IMMED);
    }
    if host.bypass {
        host.count(EventCount::BypassDispatch);
        let bypass = host.bypass_dsq(cpu);
        return insert_refilled(cx, cpu, bypass, task, enq_flags);
    }
    if entity.ddsp_dsq_id == SCX_DSQ_INVALID && !ask_scheduler(cx, cpu, task, enq_flags) {
        return;
    }
    direct_dispatch(cx, cpu, task, enq_flags);
}

/// `ops.enqueue()`, or what the kernel does in its place; whether it dispatched the task directly.
#[inline(always)]
fn ask_scheduler(cx: &mut Cx<'_>, cpu: u32, task: u32, enq_flags: u64) -> bool {
    let host = cx.host();
    let local = host.local_dsq(cpu);
    let entity = &mut host.tasks[task as usize];
    if entity.exiting && host.ops.flags & SCX_OPS_ENQ_EXITING == 0 {
        host.count(EventCount::EnqSkipExiting);
        insert_refilled(cx, cpu, local, task, enq_flags);
        return false;
    }
    if !host.has_op(Op::Enqueue) {
        let global = host.global_dsq(cpu);
        insert_refilled(cx, cpu, global, task, enq_flags);
        return false;
    }
    let entity = host.task_mut(task);
    let address = entity.address;
    entity.qseq += 1;
    entity.ops_state = OpsState::Queueing;
    // Direct dispatch belongs to the code that runs, not to the run queue.
    host.direct = Direct::For(task);
    call_known(cx, Op::Enqueue, Some(cpu), [task, 0], &[address, enq_flags]);
    let host = cx.host();
    host.direct = Direct::None;
    let entity = host.task_mut(task);
    if entity.ddsp_dsq_id != SCX_DSQ_INVALID {
        return true;
    }
    entity.ops_state = OpsState::Queued;
    if host.rules.custody {
        set_flags(cx, task, SCX_TASK_IN_CUSTODY, 0);
    }
    false
}

/// Into a queue of the kernel's own with a fresh slice.
#[inline(never)]
fn insert_refilled(cx: &mut Cx<'_>, cpu: u32, dsq: DsqIndex, task: u32, enq_flags: u64) {
    refill_slice(cx, task);
    cx.host().task_mut(task).clear_direct();
    insert(cx, cpu, dsq, task, enq_flags);
}

/// `direct_dispatch`: where `ops.select_cpu()` or `ops.enqueue()` put the task.
#[inline(always)]
fn direct_dispatch(cx: &mut Cx<'_>, cpu: u32, task: u32, enq_flags: u64) {
    let id = cx.host().task(task).ddsp_dsq_id;
    let dsq = find_for_dispatch(cx, cpu, id, cpu);
    let host = cx.host();
    let remote = host.cpu_of_local(dsq).is_some_and(|target| target != cpu);
    let entity = host.task_mut(task);
    entity.ops_state = OpsState::None;
    if remote {
        entity.ddsp_enq_flags |= enq_flags;
        return defer(host, cpu, task);
    }
    let flags = entity.ddsp_enq_flags | enq_flags;
    entity.clear_direct();
    insert_inline(cx, cpu, dsq, task, flags | SCX_ENQ_CLEAR_OPSS);
}

/// Two run queues cannot be locked at once: finished by `run_deferred`.
#[inline(never)]
fn defer(host: &mut Host, cpu: u32, task: u32) {
    host.task_mut(task).deferred = true;
    host.rq_mut(cpu).deferred.push(task);
    host.deferred_work = true;
}

/// `find_dsq_for_dispatch`: the queue an id means on `cpu`; the global one after an error.
#[inline]
pub(crate) fn find_for_dispatch(cx: &mut Cx<'_>, cpu: u32, id: u64, task_cpu: u32) -> DsqIndex {
    let host = cx.host();
    if id == SCX_DSQ_LOCAL {
        return host.local_dsq(cpu);
    }
    if id & SCX_DSQ_FLAG_BUILTIN == 0
        && let Some(dsq) = host.dsqs.find_user(id)
    {
        return dsq;
    }
    find_other(cx, id, task_cpu)
}

/// Another CPU's local queue, the global one, or an error.
#[inline(never)]
fn find_other(cx: &mut Cx<'_>, id: u64, task_cpu: u32) -> DsqIndex {
    let host = cx.host();
    let global = host.global_dsq(task_cpu);
    if id & SCX_DSQ_LOCAL_ON == SCX_DSQ_LOCAL_ON {
        let target = (id & SCX_DSQ_LOCAL_CPU_MASK) as u32;
        if target < host.nr_cpus {
            return host.local_dsq(target);
        }
        let text = format!("invalid CPU {} in SCX_DSQ_LOCAL_ON dispatch verdict", target as i32);
        exit::error(cx, text);
    } else if id != SCX_DSQ_GLOBAL {
        exit::error(cx, format!("non-existent DSQ 0x{id:x}"));
    }
    global
}

/// Into a local queue, at the tail or the head; `cpu` is its own.
#[inline(always)]
pub(crate) fn insert_local(cx: &mut Cx<'_>, cpu: u32, task: u32, enq_flags: u64) {
    let host = cx.host();
    let local = host.local_dsq(cpu);
    let Host { dsqs, tasks, rules, .. } = &mut *host;
    dsqs.get_mut(local).push(tasks, task, enq_flags & (rules.head_flag | SCX_ENQ_PREEMPT) != 0);
    let entity = &mut tasks[task as usize];
    entity.dsq = Some(local);
    if enq_flags & SCX_ENQ_CLEAR_OPSS != 0 {
        entity.ops_state = OpsState::None;
    }
    if enq_flags & SCX_ENQ_IMMED != 0 || entity.has(SCX_TASK_IMMED) {
        count_one_immed(cx, local, task, enq_flags);
    }
    after_local_insert(cx, cpu, task, enq_flags);
}

/// `dispatch_enqueue`: into a queue; `cpu` is the run queue held.
#[inline(never)]
pub(crate) fn insert(cx: &mut Cx<'_>, cpu: u32, dsq: DsqIndex, task: u32, enq_flags: u64) {
    insert_inline(cx, cpu, dsq, task, enq_flags);
}

#[inline(always)]
fn insert_inline(cx: &mut Cx<'_>, cpu: u32, dsq: DsqIndex, task: u32, mut enq_flags: u64) {
    let (host, memory) = cx.parts();
    let builtin = host.is_builtin(dsq);
    let ordered = enq_flags & SCX_ENQ_DSQ_PRIQ != 0;
    let Host { dsqs, tasks, at, rules, .. } = &mut *host;
    let queue = dsqs.get_mut(dsq);
    // A queue that is empty or of this order takes it; the kernel's own take no order.
    if ordered && builtin || queue.nr_priq != if ordered { queue.nr } else { 0 } {
        refuse_order(cx, dsq, &mut enq_flags);
        return insert_anyway(cx, cpu, dsq, task, enq_flags);
    }
    if ordered {
        let vtime = memory.read_u64(tasks[task as usize].address + at.dsq_vtime);
        queue.push_vtime(tasks, task, vtime);
    } else {
        queue.push(tasks, task, enq_flags & (rules.head_flag | SCX_ENQ_PREEMPT) != 0);
    }
    inserted(cx, cpu, dsq, task, enq_flags);
}

/// The same after an error, which the scheduler does not survive.
#[cold]
fn insert_anyway(cx: &mut Cx<'_>, cpu: u32, dsq: DsqIndex, task: u32, enq_flags: u64) {
    let (host, memory) = cx.parts();
    let vtime = host.dsq_vtime(memory, task);
    let head = enq_flags & (host.rules.head_flag | SCX_ENQ_PREEMPT) != 0;
    let Host { dsqs, tasks, .. } = host;
    let queue = dsqs.get_mut(dsq);
    if enq_flags & SCX_ENQ_DSQ_PRIQ != 0 {
        queue.push_vtime(tasks, task, vtime);
    } else {
        queue.push(tasks, task, head);
    }
    inserted(cx, cpu, dsq, task, enq_flags);
}

/// What follows an insertion: global and bypass queues end the scheduler's custody, user queues begin it.
#[inline(always)]
fn inserted(cx: &mut Cx<'_>, cpu: u32, dsq: DsqIndex, task: u32, enq_flags: u64) {
    let here = cx.cpu();
    let (host, memory) = cx.parts();
    let (local, builtin) = (host.cpu_of_local(dsq), host.is_builtin(dsq));
    if local.is_none() {
        host.lock_queue(dsq, here);
    }
    let entity = &mut host.tasks[task as usize];
    entity.dsq = Some(dsq);
    if enq_flags & SCX_ENQ_CLEAR_OPSS != 0 {
        entity.ops_state = OpsState::None;
    }
    if let Some(target) = local {
        count_immed(cx, dsq, task, enq_flags);
        after_local_insert(cx, target, task, enq_flags);
    } else if host.rules.custody {
        if builtin {
            leave_custody(cx, cpu, task, 0);
        } else {
            entity.set_flags(memory, &host.at, SCX_TASK_IN_CUSTODY, 0);
        }
    }
}

/// The kernel's own queues are FIFO, and no queue mixes both orders.
#[cold]
fn refuse_order(cx: &mut Cx<'_>, dsq: DsqIndex, enq_flags: &mut u64) {
    let host = cx.host();
    let id = host.dsqs.get(dsq).id;
    let text = if *enq_flags & SCX_ENQ_DSQ_PRIQ == 0 {
        format!("DSQ ID 0x{id:016x} already had PRIQ-enqueued tasks")
    } else if host.is_builtin(dsq) {
        *enq_flags &= !SCX_ENQ_DSQ_PRIQ;
        "cannot use vtime ordering for built-in DSQs".to_owned()
    } else {
        format!("DSQ ID 0x{id:016x} already had FIFO-enqueued tasks")
    };
    exit::error(cx, text);
}

/// `dsq_inc_nr`: a task that must run at once is taken back if the CPU is not open.
#[inline]
pub(crate) fn count_immed(cx: &mut Cx<'_>, dsq: DsqIndex, task: u32, enq_flags: u64) {
    if enq_flags & SCX_ENQ_IMMED != 0 || cx.host().task(task).has(SCX_TASK_IMMED) {
        count_one_immed(cx, dsq, task, enq_flags);
    }
}

#[inline(never)]
fn count_one_immed(cx: &mut Cx<'_>, dsq: DsqIndex, task: u32, enq_flags: u64) {
    let Some(cpu) = cx.host().cpu_of_local(dsq) else { return };
    if enq_flags & SCX_ENQ_IMMED != 0 {
        set_flags(cx, task, SCX_TASK_IMMED, 0);
    }
    let host = cx.host();
    host.rq_mut(cpu).nr_immed += 1;
    if host.dsqs.get(dsq).nr > 1 || !reenq::is_open(host, cpu, enq_flags) {
        reenq::schedule_local(host, cpu, 0);
    }
}

/// `local_dsq_post_enq`: the scheduler is rid of the task; the CPU is told if it idles or is to be preempted.
#[inline(always)]
pub(crate) fn after_local_insert(cx: &mut Cx<'_>, cpu: u32, task: u32, enq_flags: u64) {
    leave_custody(cx, cpu, task, 0);
    let host = cx.host();
    let rq = host.rq(cpu);
    let (curr, class, in_balance) = (rq.curr, rq.curr_class, rq.in_balance);
    if in_balance {
        return;
    }
    if class == CurrClass::Idle {
        host.resched(cpu);
    }
    if enq_flags & SCX_ENQ_PREEMPT != 0 && curr != task && class == CurrClass::Ext {
        let (host, memory) = cx.parts();
        host.set_slice(memory, curr, 0);
        host.resched(cpu);
    }
}

/// `task_leave_custody` and the `ops.dequeue()` that is due then (7.1 and later).
#[inline]
pub(crate) fn leave_custody(cx: &mut Cx<'_>, cpu: u32, task: u32, deq_flags: u64) {
    let (host, memory) = cx.parts();
    let entity = &mut host.tasks[task as usize];
    if entity.has(SCX_TASK_IN_CUSTODY) && entity.sticky_cpu < 0 {
        entity.set_flags(memory, &host.at, 0, SCX_TASK_IN_CUSTODY);
        call_task_rare(cx, Op::Dequeue, cpu, task, deq_flags);
    }
}

/// `dequeue_task_scx`: the task sleeps, ends, changes or moves. One copy for a task that goes to sleep, and
/// [`dequeue_again`] for the other cases.
#[inline(always)]
pub(crate) fn dequeue_task(cx: &mut Cx<'_>, cpu: u32, task: u32, core_flags: u64) {
    let mut deq_flags = core_flags;
    let host = cx.host();
    if deq_flags & SCX_DEQ_SLEEP == 0 && host.rules.custody {
        deq_flags |= SCX_DEQ_SCHED_CHANGE;
    }
    let Host { tasks, rqs, rules, .. } = &mut *host;
    let entity = &mut tasks[task as usize];
    if !entity.has(SCX_TASK_QUEUED) {
        return;
    }
    let (address, migrating) = (entity.address, entity.sticky_cpu >= 0);
    let told = take_back(entity, rules.custody);
    let running = rqs[cpu as usize].curr == task;
    if told {
        tell_dequeue(cx, cpu, task, deq_flags);
    }
    if running && cx.host().has_op(Op::Stopping) {
        call_known(cx, Op::Stopping, Some(cpu), [task, 0], &[address, 0]);
    }
    if !migrating {
        call_task_rare(cx, Op::Quiescent, cpu, task, deq_flags);
    }
    let set = if deq_flags & SCX_DEQ_SLEEP != 0 { SCX_TASK_DEQD_FOR_SLEEP } else { 0 };
    let (host, memory) = cx.parts();
    host.rq_mut(cpu).nr_running -= 1;
    let entity = &mut host.tasks[task as usize];
    entity.set_flags(memory, &host.at, set, (SCX_TASK_DEQD_FOR_SLEEP & !set) | SCX_TASK_QUEUED);
    entity.clear_direct();
    if entity.dsq.is_some() || entity.deferred {
        remove_apart(cx, task);
    }
}

/// [`dequeue_task`] of a task that moves or changes.
#[inline(never)]
pub(crate) fn dequeue_again(cx: &mut Cx<'_>, cpu: u32, task: u32, core_flags: u64) {
    dequeue_task(cx, cpu, task, core_flags);
}

/// `ops_dequeue` and `dispatch_dequeue` of a task that is to run, where they have more to do than to take it from the
/// local queue.
#[inline(never)]
pub(crate) fn take_out(cx: &mut Cx<'_>, cpu: u32, task: u32, told: bool) {
    if told {
        tell_dequeue(cx, cpu, task, 1 << 32);
    }
    remove(cx, task);
}

/// `ops_dequeue`: the class has the task again; whether `ops.dequeue()` may be due.
#[inline(always)]
pub(super) fn take_back(entity: &mut Entity, custody: bool) -> bool {
    entity.runnable = false;
    let was_queued = std::mem::replace(&mut entity.ops_state, OpsState::None) == OpsState::Queued;
    if custody { entity.has(SCX_TASK_IN_CUSTODY) } else { was_queued }
}

#[inline(never)]
fn tell_dequeue(cx: &mut Cx<'_>, cpu: u32, task: u32, deq_flags: u64) {
    if cx.host().rules.custody {
        leave_custody(cx, cpu, task, deq_flags);
    } else {
        call_task_rare(cx, Op::Dequeue, cpu, task, deq_flags);
    }
}

/// `dispatch_dequeue`: out of whatever queue or list the task is in.
#[inline(always)]
pub(crate) fn remove(cx: &mut Cx<'_>, task: u32) {
    let here = cx.cpu();
    let host = cx.host();
    let entity = host.task(task);
    if let Some(dsq) = entity.dsq {
        host.lock_queue(dsq, here);
        unlink(host, task, dsq);
    } else if entity.deferred {
        forget_deferred(host, task);
    }
}

#[inline(never)]
fn remove_apart(cx: &mut Cx<'_>, task: u32) {
    remove(cx, task);
}

#[cold]
fn forget_deferred(host: &mut Host, task: u32) {
    host.task_mut(task).deferred = false;
    let cpu = host.task(task).cpu;
    host.rq_mut(cpu).deferred.retain(|other| *other != task);
}

/// `task_unlink_from_dsq` with its count of tasks that must run at once.
#[inline(always)]
pub(crate) fn unlink(host: &mut Host, task: u32, dsq: DsqIndex) {
    let Host { dsqs, tasks, .. } = &mut *host;
    if dsqs.get_mut(dsq).unlink(tasks, task) & SCX_TASK_IMMED != 0
        && let Some(cpu) = host.cpu_of_local(dsq)
    {
        host.rq_mut(cpu).nr_immed -= 1;
    }
}
