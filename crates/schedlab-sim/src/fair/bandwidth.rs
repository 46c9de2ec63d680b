//! `cpu.max`: a group's quota of CPU time a period, handed out to its queues in slices.
//!
//! Since 6.18 a queue without quota lets its tasks go on until they return to user space and then keeps them in limbo;
//! before, the group's entity left the queue above at once, with all that is below it. The period and the slack timer
//! are here; names as in kernel/sched/fair.c. Differs: throttled averages go on fading.

use super::ids::{EntityId, RqId};
use super::{Fair, class, entity, group};
use crate::core::flags;
use crate::kernel::{Kernel, Slot};
use schedlab_model::workload::change::CpuMax;
use schedlab_model::{CpuId, TaskId};

/// `min_cfs_rq_runtime`: what an empty queue keeps.
const KEPT_NS: i64 = 1_000_000;
/// `min_bandwidth_expiration`: this shortly before a period's end nothing is handed out any more.
const EXPIRATION_NS: u64 = 2_000_000;
/// `cfs_bandwidth_slack_period`: how long returned time is collected before it is handed out.
const SLACK_NS: u64 = 5_000_000;

/// A group's quota (`struct cfs_bandwidth`).
#[derive(Clone, Debug, Default)]
pub(crate) struct Bandwidth {
    max: CpuMax,
    runtime: u64,
    idle: bool,
    /// When the period ends, while its timer is active.
    period_end: Option<u64>,
    /// Where in time periods end.
    phase: u64,
    /// When returned time is handed out.
    slack: Option<u64>,
    /// Whose timer it is.
    cpu: CpuId,
    /// Queues without quota, in the order in which they ran out of it.
    throttled: Vec<RqId>,
    /// `nr_throttled`: periods in which a queue was.
    pub(crate) nr_throttled: u64,
}

/// A queue's part of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct QueueQuota {
    /// `runtime_remaining`, ns.
    remaining: i64,
    /// It has none and got none.
    pub(crate) throttled: bool,
    /// `throttle_count`: itself and groups above that are.
    count: u32,
    /// Tasks that left it, last first.
    limbo: Vec<TaskId>,
}

fn quota(fair: &mut Fair, rq: RqId) -> &mut QueueQuota {
    &mut fair.groups.queue_mut(rq).quota
}

fn bandwidth_of(fair: &mut Fair, rq: RqId) -> &mut Bandwidth {
    let group = fair.groups.layout.group_of(rq);
    &mut fair.groups.list[group].bandwidth
}

/// `tg_set_cfs_bandwidth`.
pub(super) fn set(k: &mut Kernel, group: usize, max: CpuMax) {
    let phase = if k.fair.params.random_period_phase && max.quota.is_some() {
        k.rng.below(max.period.0.max(1))
    } else {
        0
    };
    k.fair.groups.bandwidth_used |= max.quota.is_some();
    let bandwidth = &mut k.fair.groups.list[group].bandwidth;
    bandwidth.max = max;
    bandwidth.phase = phase;
    refill(bandwidth);
    if max.quota.is_some() {
        start_period(k, group);
    }
    for cpu in (0..k.fair.groups.cpus as u32).map(CpuId) {
        let rq = k.fair.groups.layout.queue_of(group as u32, cpu);
        k.fair.rqs[rq.index()].limited = max.quota.is_some();
        let own = quota(&mut k.fair, rq);
        own.remaining = 1;
        if own.throttled {
            unthrottle(k, cpu, rq);
        }
    }
}

/// `__refill_cfs_bandwidth_runtime`.
fn refill(bandwidth: &mut Bandwidth) {
    if let Some(quota) = bandwidth.max.quota {
        bandwidth.runtime = (bandwidth.runtime + quota.0).min(quota.0 + bandwidth.max.burst.0);
    }
}

/// `start_cfs_bandwidth`: the period timer runs while there is somebody to count for.
fn start_period(k: &mut Kernel, group: usize) {
    let (now, cpu) = (k.now, k.this_cpu);
    let bandwidth = &mut k.fair.groups.list[group].bandwidth;
    if bandwidth.period_end.is_none() {
        bandwidth.period_end = Some(next_period(bandwidth, now));
        bandwidth.cpu = cpu;
        arm(k);
    }
}

/// `hrtimer_forward_now`: the first end of a period after now.
fn next_period(bandwidth: &Bandwidth, now: u64) -> u64 {
    let period = bandwidth.max.period.0.max(1);
    let since = (now + period - bandwidth.phase % period) % period;
    now + period - since
}

/// Arms the earliest timer of all groups.
fn arm(k: &mut Kernel) {
    let timers =
        k.fair.groups.list.iter().flat_map(|group| [group.bandwidth.period_end, group.bandwidth.slack]);
    if let Some(at) = timers.flatten().min() {
        let at = at.max(k.now);
        k.arm(Slot::FairTimer, at);
    }
}

/// `__assign_cfs_rq_runtime`: the queue takes time of its group until it has `target`. Whether it may run.
fn assign(k: &mut Kernel, rq: RqId, target: i64) -> bool {
    let group = k.fair.groups.layout.group_of(rq);
    let remaining = quota(&mut k.fair, rq).remaining;
    let wanted = (target - remaining).max(0) as u64;
    let mut amount = wanted;
    if k.fair.groups.list[group].bandwidth.max.quota.is_some() {
        start_period(k, group);
        let bandwidth = &mut k.fair.groups.list[group].bandwidth;
        amount = wanted.min(bandwidth.runtime);
        if bandwidth.runtime > 0 {
            bandwidth.runtime -= amount;
            bandwidth.idle = false;
        }
    }
    let own = quota(&mut k.fair, rq);
    own.remaining += amount as i64;
    own.remaining > 0
}

/// `account_cfs_rq_runtime`: the queue used so much. Whether it is throttled now (6.18); before, the CPU reschedules
/// and [`check_runtime`] throttles.
pub(super) fn account(k: &mut Kernel, cpu: CpuId, rq: RqId, delta: u64) -> bool {
    let own = quota(&mut k.fair, rq);
    own.remaining -= delta as i64;
    if own.remaining > 0 || own.throttled {
        return own.throttled && own.remaining <= 0;
    }
    let slice = k.fair.params.bandwidth_slice() as i64;
    if k.fair.params.throttles_tasks {
        return throttle_tasks(k, cpu, rq, slice);
    }
    if !assign(k, rq, slice) && k.fair.rqs[rq.index()].curr.is_some() {
        k.resched_curr(cpu);
    }
    false
}

/// A queue becomes current: if it has nothing left and gets nothing, its task goes when it returns to user space.
pub(super) fn ensure_runtime(k: &mut Kernel, rq: RqId, task: TaskId) {
    let cpu = k.fair.groups.cpu_of(rq);
    if account(k, cpu, rq, 0) {
        set_up_work(k, task);
    }
}

/// `check_enqueue_throttle`: a group that wakes up without quota is throttled at once.
pub(super) fn check_enqueue_throttle(k: &mut Kernel, cpu: CpuId, rq: RqId) {
    if k.fair.rqs[rq.index()].curr.is_some() || quota(&mut k.fair, rq).throttled {
        return;
    }
    account(k, cpu, rq, 0);
    check_runtime(k, cpu, rq);
}

/// `check_cfs_rq_runtime`, before 6.18: throttles a queue that has used its time. Whether it is throttled.
pub(super) fn check_runtime(k: &mut Kernel, cpu: CpuId, rq: RqId) -> bool {
    if k.fair.params.throttles_tasks || own_remaining(&k.fair, rq) > 0 {
        return false;
    }
    quota(&mut k.fair, rq).throttled || throttle_entity(k, cpu, rq)
}

fn own_remaining(fair: &Fair, rq: RqId) -> i64 {
    fair.groups.queue(rq).quota.remaining
}

/// The queue and those below it count one throttled level more.
fn note_throttled(k: &mut Kernel, cpu: CpuId, rq: RqId) {
    bandwidth_of(&mut k.fair, rq).throttled.push(rq);
    let group = k.fair.groups.layout.group_of(rq);
    for below in k.fair.groups.subtree(group) {
        let rq = k.fair.groups.layout.queue_of(below as u32, cpu);
        quota(&mut k.fair, rq).count += 1;
    }
    quota(&mut k.fair, rq).throttled = true;
}

/// `throttle_cfs_rq` since 6.18: whoever runs below the queue goes when it returns to user space.
fn throttle_tasks(k: &mut Kernel, cpu: CpuId, rq: RqId, slice: i64) -> bool {
    let curr = k.fair.rqs[rq.index()].curr.filter(|curr| k.fair.entities[curr.index()].on_rq);
    if assign(k, rq, if curr.is_some() { slice } else { 1 }) {
        return false;
    }
    note_throttled(k, cpu, rq);
    if let Some(task) = curr.and_then(|curr| running_below(&k.fair, curr)) {
        set_up_work(k, task);
    }
    true
}

/// The task that a current entity stands for.
fn running_below(fair: &Fair, mut curr: EntityId) -> Option<TaskId> {
    while let Some(own) = fair.groups.layout.own_queue(curr) {
        curr = fair.rqs[own.index()].curr?;
    }
    fair.groups.layout.task_of(curr)
}

/// `task_throttle_setup_work`; kernel threads never return to user space.
fn set_up_work(k: &mut Kernel, task: TaskId) {
    if k.task(task).kernel_thread {
        return;
    }
    let id = k.fair.groups.layout.entity_of(task);
    k.fair.entities[id.index()].throttle_work = true;
    let cpu = k.task(task).cpu;
    // Another CPU's task notices when it enters the kernel next, at its tick at the latest.
    if k.cpu(cpu).curr == task && cpu == k.this_cpu {
        k.resched_curr(cpu);
    }
}

/// `throttle_cfs_rq_work`: the current task is about to return to user space; without quota it leaves its queue.
pub(crate) fn throttle_work(k: &mut Kernel, cpu: CpuId, task: TaskId) {
    let id = k.fair.groups.layout.entity_of(task);
    if !k.fair.entities[id.index()].on_rq {
        // It is being moved to another CPU, and returns to user space there.
        return;
    }
    k.fair.entities[id.index()].throttle_work = false;
    let rq = k.fair.entities[id.index()].rq;
    if k.fair.groups.layout.owner(rq).is_none() || quota(&mut k.fair, rq).count == 0 {
        return;
    }
    class::dequeue_task(k, cpu, task, flags::DEQUEUE_SLEEP | flags::DEQUEUE_THROTTLE);
    quota(&mut k.fair, rq).limbo.push(task);
    k.fair.entities[id.index()].throttled = true;
}

/// Whether a task that was just queued cannot run for want of quota.
pub(crate) fn is_throttled(fair: &Fair, task: TaskId) -> bool {
    if !fair.groups.bandwidth_used {
        return false;
    }
    let entity = fair.entity(task);
    let below = fair.groups.layout.owner(entity.rq).is_some();
    entity.throttled
        || (!fair.params.throttles_tasks && below && fair.groups.queue(entity.rq).quota.count > 0)
}

/// `dequeue_throttled_task`: it leaves the limbo.
pub(super) fn dequeue_throttled(k: &mut Kernel, task: TaskId, flags: u32) {
    let id = k.fair.groups.layout.entity_of(task);
    let rq = k.fair.entities[id.index()].rq;
    quota(&mut k.fair, rq).limbo.retain(|other| *other != task);
    if flags & flags::DEQUEUE_SLEEP != 0 {
        k.fair.entities[id.index()].throttled = false;
    }
}

/// `enqueue_throttled_task`: straight into the limbo of the queue it comes to, if that is throttled. Whether it was.
pub(super) fn enqueue_throttled(k: &mut Kernel, cpu: CpuId, task: TaskId) -> bool {
    let id = k.fair.groups.layout.entity_of(task);
    let rq = k.fair.entities[id.index()].rq;
    let below = k.fair.groups.layout.owner(rq).is_some();
    if below && k.cpu(cpu).curr != task && quota(&mut k.fair, rq).count > 0 {
        quota(&mut k.fair, rq).limbo.push(task);
        return true;
    }
    k.fair.entities[id.index()].throttled = false;
    false
}

/// `throttle_cfs_rq` before 6.18: the group's entity leaves, and the groups that this leaves empty.
fn throttle_entity(k: &mut Kernel, cpu: CpuId, rq: RqId) -> bool {
    if assign(k, rq, 1) {
        return false;
    }
    note_throttled(k, cpu, rq);
    let (runnable, mut idle) = (k.fair.rqs[rq.index()].nr_runnable, k.fair.rqs[rq.index()].nr_idle);
    let (mut below, mut leaves) = (rq, true);
    while let Some(owner) = k.fair.groups.layout.owner(below) {
        let entity = &k.fair.entities[owner.index()];
        let above = entity.rq;
        if !entity.on_rq {
            return true;
        }
        if leaves {
            let delayed = if entity.sched_delayed { flags::DEQUEUE_DELAYED } else { 0 };
            let how = flags::DEQUEUE_SLEEP | flags::DEQUEUE_SPECIAL | delayed;
            entity::dequeue_entity(k, cpu, above, owner, how);
        } else {
            group::update_level(k, cpu, owner);
        }
        if k.fair.rqs[below.index()].idle {
            idle = runnable;
        }
        let queue = &mut k.fair.rqs[above.index()];
        queue.nr_runnable -= runnable;
        queue.nr_idle -= idle;
        leaves &= queue.load_weight == 0;
        if k.fair.groups.layout.owner(above).is_some() && quota(&mut k.fair, above).throttled {
            return true;
        }
        below = above;
    }
    k.add_nr_running(cpu, -(runnable as i32));
    true
}

/// `unthrottle_cfs_rq`.
fn unthrottle(k: &mut Kernel, cpu: CpuId, rq: RqId) {
    let tasks = k.fair.params.throttles_tasks;
    if tasks {
        entity::update_curr(k, cpu, rq);
        if k.fair.rqs[rq.index()].limited && own_remaining(&k.fair, rq) <= 0 {
            return;
        }
    }
    quota(&mut k.fair, rq).throttled = false;
    bandwidth_of(&mut k.fair, rq).throttled.retain(|other| *other != rq);
    let group = k.fair.groups.layout.group_of(rq);
    for below in k.fair.groups.subtree(group).into_iter().rev() {
        let below = k.fair.groups.layout.queue_of(below as u32, cpu);
        if tasks {
            entity::update_curr(k, cpu, below);
        }
        quota(&mut k.fair, below).count -= 1;
        if tasks {
            leave_limbo(k, cpu, below);
        }
    }
    if !tasks && k.fair.rqs[rq.index()].load_weight > 0 {
        unthrottle_entity(k, cpu, rq);
    }
    if k.cpu(cpu).curr.is_idle() && k.fair.rqs[cpu.index()].nr_queued > 0 {
        k.resched_curr(cpu);
    }
}

/// `tg_unthrottle_up`: tasks come back from limbo, unless the queue is throttled again meanwhile.
fn leave_limbo(k: &mut Kernel, cpu: CpuId, rq: RqId) {
    if quota(&mut k.fair, rq).count > 0 {
        return;
    }
    let mut tasks = std::mem::take(&mut quota(&mut k.fair, rq).limbo);
    while let Some(task) = tasks.pop() {
        if quota(&mut k.fair, rq).count > 0 {
            tasks.push(task);
            break;
        }
        let id = k.fair.groups.layout.entity_of(task);
        k.fair.entities[id.index()].throttled = false;
        class::enqueue_task(k, cpu, task, flags::ENQUEUE_WAKEUP);
    }
    tasks.append(&mut quota(&mut k.fair, rq).limbo);
    quota(&mut k.fair, rq).limbo = tasks;
}

/// `unthrottle_cfs_rq` before 6.18: the group's entity comes back.
fn unthrottle_entity(k: &mut Kernel, cpu: CpuId, rq: RqId) {
    let (runnable, mut idle) = (k.fair.rqs[rq.index()].nr_runnable, k.fair.rqs[rq.index()].nr_idle);
    let (mut below, mut joins) = (rq, true);
    while let Some(owner) = k.fair.groups.layout.owner(below) {
        let above = k.fair.entities[owner.index()].rq;
        if joins && k.fair.entities[owner.index()].sched_delayed {
            let how = flags::DEQUEUE_SLEEP | flags::DEQUEUE_DELAYED;
            entity::dequeue_entity(k, cpu, above, owner, how);
        }
        joins &= !k.fair.entities[owner.index()].on_rq;
        if joins {
            entity::enqueue_entity(k, cpu, above, owner, flags::ENQUEUE_WAKEUP);
        } else {
            group::update_level(k, cpu, owner);
        }
        if k.fair.rqs[below.index()].idle {
            idle = runnable;
        }
        let queue = &mut k.fair.rqs[above.index()];
        queue.nr_runnable += runnable;
        queue.nr_idle += idle;
        if k.fair.groups.layout.owner(above).is_some() && quota(&mut k.fair, above).throttled {
            return;
        }
        below = above;
    }
    k.add_nr_running(cpu, runnable as i32);
}

/// `return_cfs_rq_runtime`: an empty queue gives back all but a little, for others that are throttled.
pub(super) fn return_runtime(k: &mut Kernel, rq: RqId) {
    let (now, slice) = (k.now, k.fair.params.bandwidth_slice());
    let own = quota(&mut k.fair, rq);
    let slack = own.remaining - KEPT_NS;
    if slack <= 0 {
        return;
    }
    own.remaining -= slack;
    let bandwidth = bandwidth_of(&mut k.fair, rq);
    if bandwidth.max.quota.is_none() {
        return;
    }
    bandwidth.runtime += slack as u64;
    let soon = bandwidth.period_end.is_some_and(|end| end < now + SLACK_NS + EXPIRATION_NS);
    if bandwidth.runtime > slice && !bandwidth.throttled.is_empty() && !soon && bandwidth.slack.is_none() {
        bandwidth.slack = Some(now + SLACK_NS);
        arm(k);
    }
}

/// The CPU that takes the timer interrupt that is due.
pub(crate) fn timer_cpu(k: &Kernel) -> Option<CpuId> {
    let due = |at: Option<u64>| at.is_some_and(|at| at <= k.now);
    let mut groups = k.fair.groups.list.iter().map(|group| &group.bandwidth);
    groups.find(|bandwidth| due(bandwidth.period_end) || due(bandwidth.slack)).map(|bandwidth| bandwidth.cpu)
}

/// `sched_cfs_period_timer` and `sched_cfs_slack_timer`, for every group whose time has come.
pub(crate) fn timer_expired(k: &mut Kernel) {
    for group in 1..k.fair.groups.list.len() {
        let now = k.now;
        let bandwidth = &mut k.fair.groups.list[group].bandwidth;
        if bandwidth.slack.is_some_and(|at| at <= now) {
            bandwidth.slack = None;
            let soon = bandwidth.period_end.is_some_and(|end| end < now + EXPIRATION_NS);
            if !soon && bandwidth.runtime > k.fair.params.bandwidth_slice() {
                distribute(k, group);
            }
        }
        let bandwidth = &mut k.fair.groups.list[group].bandwidth;
        if bandwidth.period_end.is_some_and(|at| at <= now) {
            bandwidth.period_end = Some(next_period(bandwidth, now));
            if period_over(k, group) {
                k.fair.groups.list[group].bandwidth.period_end = None;
            }
        }
    }
    arm(k);
}

/// `do_sched_cfs_period_timer`: refills and unthrottles. Whether the timer may stop.
fn period_over(k: &mut Kernel, group: usize) -> bool {
    let bandwidth = &mut k.fair.groups.list[group].bandwidth;
    if bandwidth.max.quota.is_none() {
        return true;
    }
    refill(bandwidth);
    let throttled = !bandwidth.throttled.is_empty();
    if !throttled {
        return std::mem::replace(&mut bandwidth.idle, true);
    }
    bandwidth.nr_throttled += 1;
    distribute(k, group);
    k.fair.groups.list[group].bandwidth.idle = false;
    false
}

/// `distribute_cfs_runtime`: every throttled queue gets what it lacks and a nanosecond, in turn, while there is some.
fn distribute(k: &mut Kernel, group: usize) {
    for rq in k.fair.groups.list[group].bandwidth.throttled.clone() {
        let cpu = k.fair.groups.cpu_of(rq);
        entity::update_curr(k, cpu, rq);
        let wanted = (1 - own_remaining(&k.fair, rq)).max(0) as u64;
        let bandwidth = &mut k.fair.groups.list[group].bandwidth;
        let amount = wanted.min(bandwidth.runtime);
        bandwidth.runtime -= amount;
        let left = bandwidth.runtime;
        let own = quota(&mut k.fair, rq);
        own.remaining += amount as i64;
        if own.remaining <= 0 {
            return;
        }
        unthrottle(k, cpu, rq);
        if left == 0 {
            return;
        }
    }
}
