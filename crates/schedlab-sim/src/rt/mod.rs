//! The real-time class: FIFO and RR.
//!
//! One list a CPU, strongest priority first and first come, first served within one; the running task keeps
//! its place at the head, as in Linux. Not here: deadline scheduling, priority inheritance.

use crate::core::flags;
use crate::kernel::{Class, Kernel};
use schedlab_model::{CpuId, Policy, TaskId};

/// `RR_TIMESLICE`: 100 ms.
const RR_TIMESLICE_NS: u64 = 100_000_000;

/// The fair server: of every second in which real-time tasks never stop, fair ones get 50 ms
/// (`fair_server` parameters); since 7.0 ext ones too (`ext_server`). Linux has a deadline server with its own replenishment; this is its outcome.
const SERVER_PERIOD_NS: u64 = 1_000_000_000;
const SERVER_RUNTIME_NS: u64 = 50_000_000;

/// The class's part of a task.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RtEntity {
    /// CPU time at which an RR task's slice ends (`sum_exec`).
    pub(crate) slice_end: u64,
    /// Accounted up to here.
    pub(crate) exec_start: u64,
}

/// One CPU's list.
#[derive(Default)]
pub(crate) struct RtRq {
    queue: Vec<(u8, TaskId)>,
    curr: Option<TaskId>,
    /// Since when real-time tasks run while fair ones wait.
    starving_since: Option<u64>,
    /// The fair server has the CPU until then.
    server_until: u64,
}

/// All of the class's state.
pub(crate) struct Rt {
    pub(crate) rqs: Vec<RtRq>,
    /// Real-time tasks on all lists.
    queued: u32,
}

impl Rt {
    /// Empty lists.
    pub(crate) fn new(cpus: usize) -> Rt {
        Rt { rqs: (0..cpus).map(|_| RtRq::default()).collect(), queued: 0 }
    }
}

impl RtRq {
    fn insert(&mut self, priority: u8, task: TaskId, head: bool) {
        let at = self
            .queue
            .partition_point(|(other, _)| if head { *other > priority } else { *other >= priority });
        self.queue.insert(at, (priority, task));
    }

    fn remove(&mut self, task: TaskId) {
        self.queue.retain(|(_, other)| *other != task);
    }

    /// Priority of the strongest task, 0 if none.
    pub(crate) fn highest(&self) -> u8 {
        self.queue.first().map_or(0, |(priority, _)| *priority)
    }
}

/// Charges the current task.
pub(crate) fn update_curr(k: &mut Kernel, cpu: CpuId) {
    let Some(task) = k.rt.rqs[cpu.index()].curr else { return };
    let now = k.now;
    let state = k.task_mut(task);
    state.sum_exec += now - state.rt.exec_start;
    state.rt.exec_start = now;
}

/// The task becomes runnable on `cpu`.
pub(crate) fn enqueue_task(k: &mut Kernel, cpu: CpuId, task: TaskId, flags: u32) {
    let priority = k.task(task).rt_priority;
    k.rt.rqs[cpu.index()].insert(priority, task, flags & flags::ENQUEUE_HEAD != 0);
    k.rt.queued += 1;
    k.add_nr_running(cpu, 1);
}

/// The task leaves the list.
pub(crate) fn dequeue_task(k: &mut Kernel, cpu: CpuId, task: TaskId) {
    update_curr(k, cpu);
    k.rt.rqs[cpu.index()].remove(task);
    k.rt.queued -= 1;
    k.add_nr_running(cpu, -1);
}

/// A stronger task preempts.
pub(crate) fn wakeup_preempt(k: &mut Kernel, cpu: CpuId, task: TaskId) {
    let curr = k.cpu(cpu).curr;
    if k.task(task).rt_priority > k.task(curr).rt_priority {
        k.resched_curr(cpu);
    }
}

/// The tick's look at starving tasks: fair ones, and those of the ext class where it has a server.
pub(crate) fn server_tick(k: &mut Kernel, cpu: CpuId, ext_waits: bool) {
    let now = k.now;
    let waiting = k.fair.rqs[cpu.index()].nr_runnable > 0 || ext_waits;
    let rt_runs = k.task(k.cpu(cpu).curr).class == Class::Rt;
    let rq = &mut k.rt.rqs[cpu.index()];
    if rq.server_until > 0 && now >= rq.server_until {
        rq.server_until = 0;
        if !rq.queue.is_empty() {
            k.resched_curr(cpu);
        }
    } else if !(rt_runs && waiting) {
        rq.starving_since = None;
    } else if now - *rq.starving_since.get_or_insert(now) >= SERVER_PERIOD_NS - SERVER_RUNTIME_NS {
        rq.starving_since = None;
        rq.server_until = now + SERVER_RUNTIME_NS;
        k.resched_curr(cpu);
    }
}

impl Rt {
    /// Whether no real-time task is on any queue.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.queued == 0
    }
}

/// A CPU whose own real-time tasks are done takes the strongest waiting one (`pull_rt_task`).
pub(crate) fn pull(k: &mut Kernel, cpu: CpuId) {
    if k.overloaded == 0 || k.rt.queued == 0 || !k.rt.rqs[cpu.index()].queue.is_empty() {
        return;
    }
    let mut best: Option<(u8, CpuId, TaskId)> = None;
    for other in (0..k.cpu_count()).map(|other| CpuId(other as u32)).filter(|other| *other != cpu) {
        let curr = k.cpu(other).curr;
        let waiting =
            k.rt.rqs[other.index()].queue.iter().find(|(_, task)| *task != curr && k.may_run_on(*task, cpu));
        if let Some(&(priority, task)) = waiting
            && best.is_none_or(|(found, ..)| priority > found)
        {
            best = Some((priority, other, task));
        }
    }
    if let Some((_, from, task)) = best {
        dequeue_task(k, from, task);
        k.set_task_cpu(task, cpu);
        enqueue_task(k, cpu, task, 0);
    }
}

/// The head of the list, unless a server has the CPU and something to run.
pub(crate) fn pick_task(k: &Kernel, cpu: CpuId, ext_waits: impl FnOnce() -> bool) -> Option<TaskId> {
    let served = k.rt.rqs[cpu.index()].server_until > k.now;
    if served && (k.fair.rqs[cpu.index()].nr_runnable > 0 || ext_waits()) {
        return None;
    }
    k.rt.rqs[cpu.index()].queue.first().map(|(_, task)| *task)
}

/// The task becomes current.
pub(crate) fn set_next_task(k: &mut Kernel, cpu: CpuId, task: TaskId) {
    k.rt.rqs[cpu.index()].curr = Some(task);
    let now = k.now;
    let state = k.task_mut(task);
    state.rt.exec_start = now;
    if state.rt.slice_end <= state.sum_exec {
        state.rt.slice_end = state.sum_exec + RR_TIMESLICE_NS;
    }
}

/// The task stops being current.
pub(crate) fn put_prev_task(k: &mut Kernel, cpu: CpuId) {
    update_curr(k, cpu);
    k.rt.rqs[cpu.index()].curr = None;
}

/// The tick found a real-time task running: an RR task whose slice is over goes to the tail.
pub(crate) fn task_tick(k: &mut Kernel, cpu: CpuId, task: TaskId) {
    update_curr(k, cpu);
    let state = k.task_mut(task);
    if state.policy != Policy::Rr || state.sum_exec < state.rt.slice_end {
        return;
    }
    state.rt.slice_end = state.sum_exec + RR_TIMESLICE_NS;
    requeue_tail(k, cpu, task);
}

/// The current task yields: to the tail of its priority.
pub(crate) fn yield_task(k: &mut Kernel, cpu: CpuId) {
    if let Some(task) = k.rt.rqs[cpu.index()].curr {
        requeue_tail(k, cpu, task);
    }
}

fn requeue_tail(k: &mut Kernel, cpu: CpuId, task: TaskId) {
    let priority = k.task(task).rt_priority;
    let rq = &mut k.rt.rqs[cpu.index()];
    let others = rq.queue.iter().filter(|(other, _)| *other == priority).count();
    if others > 1 {
        rq.remove(task);
        rq.insert(priority, task, false);
        k.resched_curr(cpu);
    }
}

/// `select_task_rq_rt`: stay unless the CPU runs something at least as strong; then the CPU with the weakest
/// current task, nearest first.
pub(crate) fn select_task_rq(k: &Kernel, task: TaskId) -> CpuId {
    let (prev, priority) = (k.task(task).cpu, k.task(task).rt_priority);
    let strength = |cpu: CpuId| k.rt.rqs[cpu.index()].highest();
    if k.may_run_on(task, prev) && strength(prev) < priority {
        return prev;
    }
    let rank = |cpu: CpuId| {
        let idle = k.task(k.cpu(cpu).curr).class != Class::Idle;
        (strength(cpu), idle, k.domains.distance(prev, cpu), cpu)
    };
    k.allowed[task.index()].iter().min_by_key(|cpu| rank(*cpu)).unwrap_or(prev)
}
