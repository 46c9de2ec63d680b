//! CFS as in Linux 5.7 to 6.5: the functions of `struct sched_class` and their arithmetic on a run queue.
//!
//! The queue's tree is ordered by `vruntime` here. A vruntime counts from the `min_vruntime` of the queue that the
//! task was on last ([`FairEntity::home`]); Linux subtracts it when a task leaves for another queue and adds the new
//! one's, which is the same. EEVDF is in [`super::class`], which sends every call of an older kernel here. Not here:
//! group scheduling and bandwidth control.

use super::params::{FairParams, Features};
use super::queue::{CfsRq, FairEntity};
use super::weight::calc_delta;
use super::{Fair, class};
use crate::core::flags;
use crate::kernel::{Kernel, Resched};
use schedlab_model::{CpuId, Policy, TaskId};

/// Who asks for a slice: what `sched_slice` needs to know of the entity.
#[derive(Clone, Copy)]
struct Asker {
    weight: u32,
    on_rq: bool,
    idle: bool,
}

impl CfsRq {
    /// `update_min_vruntime`: follows the smallest vruntime on the queue, never back.
    fn update_min_vruntime(&mut self, entities: &[FairEntity]) {
        let curr = self.curr.map(|curr| &entities[curr.index()]).filter(|curr| curr.on_rq);
        let curr = curr.map(|curr| curr.vruntime);
        let first = self.first().map(|task| entities[task.index()].vruntime);
        if let Some(lowest) = curr.into_iter().chain(first).min() {
            self.min_vruntime = self.min_vruntime.max(lowest);
        }
    }

    /// `sched_slice`: the entity's share by weight of a period that grows with the number of tasks.
    fn sched_slice(&self, asker: Asker, params: &FairParams) -> u64 {
        let queued = u64::from(self.nr_queued + u32::from(!asker.on_rq));
        let long = queued > params.nr_latency();
        let period = if long { queued * params.min_granularity } else { params.latency };
        let total = self.load_weight + if asker.on_rq { 0 } else { u64::from(asker.weight) };
        let slice = calc_delta(period, asker.weight, total);
        if !params.has(Features::BASE_SLICE) {
            return slice;
        }
        let all_idle = self.nr_idle == self.nr_runnable;
        let idle = asker.idle && !all_idle;
        slice.max(if idle { params.idle_min_granularity } else { params.min_granularity })
    }

    /// `place_entity`: new tasks a slice behind the queue's time, sleepers at most half a latency before it.
    fn place_cfs(&self, entity: &mut FairEntity, initial: bool, idle: bool, params: &FairParams) {
        let mut vruntime = self.min_vruntime;
        if initial && params.has(Features::START_DEBIT) {
            let asker = Asker { weight: entity.load.weight, on_rq: entity.on_rq, idle };
            vruntime += entity.load.virtual_time(self.sched_slice(asker, params)) as i64;
        }
        if !initial {
            let short = idle && params.idle_sleepers_get_less;
            let credit = if short { params.min_granularity } else { params.latency };
            vruntime -= (credit >> u32::from(params.has(Features::GENTLE_FAIR_SLEEPERS))) as i64;
        }
        entity.vruntime = entity.vruntime.max(vruntime);
    }

    /// `pick_next_entity`: the smallest vruntime, but for one that yielded and for a buddy that is not far behind.
    pub(super) fn pick_cfs(&self, entities: &[FairEntity], params: &FairParams) -> Option<TaskId> {
        let vruntime = |task: TaskId| entities[task.index()].vruntime;
        let curr = self.curr.filter(|curr| entities[curr.index()].on_rq);
        let mut left = self.first();
        if let Some(curr) = curr
            && left.is_none_or(|left| vruntime(curr) < vruntime(left))
        {
            left = Some(curr);
        }
        let left = left?;
        let near = |task: &TaskId| wakeup_preempt_entity(entities, *task, left, params) < 1;
        let mut picked = left;
        if self.skip == Some(left) {
            let mut second =
                if curr == Some(left) { self.first() } else { self.queued().find(|task| *task != left) };
            if let Some(curr) = curr.filter(|curr| *curr != left)
                && second.is_none_or(|second| vruntime(curr) < vruntime(second))
            {
                second = Some(curr);
            }
            picked = second.filter(near).unwrap_or(left);
        }
        self.next.filter(near).or_else(|| self.last.filter(near)).or(Some(picked))
    }

    /// `clear_buddies`.
    fn clear_buddies(&mut self, task: TaskId) {
        for buddy in [&mut self.last, &mut self.next, &mut self.skip] {
            if *buddy == Some(task) {
                *buddy = None;
            }
        }
    }
}

/// `wakeup_preempt_entity`: 1 if `other` is so far behind `curr` that it preempts, 0 if it is behind at all, else -1.
/// The granularity is in the other's virtual time, so that strong tasks preempt sooner.
fn wakeup_preempt_entity(entities: &[FairEntity], curr: TaskId, other: TaskId, params: &FairParams) -> i32 {
    let (curr, other) = (&entities[curr.index()], &entities[other.index()]);
    let behind = curr.vruntime - other.vruntime;
    let granularity = other.load.virtual_time(params.wakeup_granularity) as i64;
    if behind <= 0 { -1 } else { i32::from(behind > granularity) }
}

/// `update_curr`.
pub(super) fn update_curr(k: &mut Kernel, cpu: CpuId) {
    let now = k.now;
    let Fair { rqs, entities, .. } = &mut k.fair;
    let rq = &mut rqs[cpu.index()];
    let Some(task) = rq.curr else { return };
    let entity = &mut entities[task.index()];
    let delta = entity.charge(now);
    if delta == 0 {
        return;
    }
    rq.update_min_vruntime(entities);
    k.task_mut(task).sum_exec += delta;
}

/// `enqueue_task_fair` and, for a new task, `task_fork_fair` on the CPU that forked it.
pub(super) fn enqueue_task(k: &mut Kernel, cpu: CpuId, task: TaskId, flags: u32) {
    update_curr(k, cpu);
    let here = k.this_cpu;
    let initial = flags & flags::ENQUEUE_INITIAL != 0;
    if initial {
        update_curr(k, here);
    }
    let idle = k.task(task).has_idle_policy();
    let Fair { params, rqs, entities, .. } = &mut k.fair;
    if initial {
        let parents = &rqs[here.index()];
        let parent = parents.curr.map(|curr| entities[curr.index()].vruntime);
        let entity = &mut entities[task.index()];
        entity.vruntime = parent.unwrap_or(entity.vruntime);
        parents.place_cfs(entity, true, idle, params);
        entity.home = Some(here);
    }
    let entity = &mut entities[task.index()];
    let from = entity.home.map_or(0, |home| rqs[home.index()].min_vruntime);
    if entity.home != Some(cpu) {
        entity.vruntime += rqs[cpu.index()].min_vruntime - from;
        entity.home = Some(cpu);
    }
    let rq = &mut rqs[cpu.index()];
    if flags & flags::ENQUEUE_WAKEUP != 0 {
        rq.place_cfs(entity, false, idle, params);
    }
    rq.account_enqueue(entities, task);
    rq.add_runnable(idle);
    k.add_nr_running(cpu, 1);
    class::publish(k, cpu, task);
}

/// `dequeue_task_fair`.
pub(super) fn dequeue_task(k: &mut Kernel, cpu: CpuId, task: TaskId, flags: u32) {
    update_curr(k, cpu);
    let idle = k.task(task).has_idle_policy();
    let Fair { rqs, entities, .. } = &mut k.fair;
    let rq = &mut rqs[cpu.index()];
    rq.clear_buddies(task);
    rq.account_dequeue(entities, task);
    if flags & flags::DEQUEUE_SLEEP == 0 {
        let entity = &mut entities[task.index()];
        entity.vruntime -= rq.min_vruntime;
        entity.home = None;
    }
    if flags & flags::DEQUEUE_SAVE == 0 {
        rq.update_min_vruntime(entities);
    }
    rq.remove_runnable(idle);
    k.add_nr_running(cpu, -1);
}

/// `check_preempt_wakeup`.
pub(super) fn wakeup_preempt(k: &mut Kernel, cpu: CpuId, task: TaskId, wake_flags: u32) {
    let curr = k.cpu(cpu).curr;
    if curr == task {
        return;
    }
    let (curr_idle, idle) = (k.task(curr).has_idle_policy(), k.task(task).has_idle_policy());
    let normal = matches!(k.task(task).policy, Policy::Normal | Policy::Ext);
    let fork = wake_flags & flags::WF_FORK != 0;
    let Fair { params, rqs, .. } = &mut k.fair;
    let rq = &mut rqs[cpu.index()];
    let crowded = u64::from(rq.nr_queued) >= params.nr_latency();
    let next_marked = params.has(Features::NEXT_BUDDY) && crowded && !fork && !idle;
    if next_marked {
        rq.next = Some(task);
    }
    let preempts = params.has(Features::WAKEUP_PREEMPTION);
    if k.cpu(cpu).resched == Resched::Now {
        return;
    }
    if curr_idle && !idle {
        return preempt(k, cpu, curr, crowded);
    }
    if !normal || !preempts {
        return;
    }
    update_curr(k, cpu);
    let Fair { params, rqs, entities, .. } = &mut k.fair;
    if wakeup_preempt_entity(entities, curr, task, params) == 1 {
        if !next_marked && !idle {
            rqs[cpu.index()].next = Some(task);
        }
        preempt(k, cpu, curr, crowded);
    }
}

/// Reschedules; on a crowded queue the preempted task is remembered, so that it goes on after a short interruption.
fn preempt(k: &mut Kernel, cpu: CpuId, curr: TaskId, crowded: bool) {
    k.resched_curr(cpu);
    let idle = k.task(curr).has_idle_policy();
    let Fair { params, rqs, entities, .. } = &mut k.fair;
    if params.has(Features::LAST_BUDDY) && crowded && !idle && entities[curr.index()].on_rq {
        rqs[cpu.index()].last = Some(curr);
    }
}

/// `pick_next_entity` on what is queued now.
pub(super) fn pick_task(k: &mut Kernel, cpu: CpuId) -> Option<TaskId> {
    update_curr(k, cpu);
    let Fair { params, rqs, entities, .. } = &mut k.fair;
    rqs[cpu.index()].pick_cfs(entities, params)
}

/// `set_next_entity`.
pub(super) fn set_next_task(k: &mut Kernel, cpu: CpuId, task: TaskId) {
    let (now, sum_exec) = (k.now, k.task(task).sum_exec);
    let Fair { rqs, entities, .. } = &mut k.fair;
    let rq = &mut rqs[cpu.index()];
    rq.clear_buddies(task);
    if entities[task.index()].on_rq {
        rq.remove(entities, task);
    }
    let entity = &mut entities[task.index()];
    entity.exec_start = now;
    entity.prev_sum_exec = sum_exec;
    rq.curr = Some(task);
}

/// `entity_tick` and `check_preempt_tick`: the slice is over, or somebody is a slice behind.
pub(super) fn task_tick(k: &mut Kernel, cpu: CpuId, task: TaskId) {
    update_curr(k, cpu);
    class::publish(k, cpu, task);
    let (idle, sum_exec) = (k.task(task).has_idle_policy(), k.task(task).sum_exec);
    let Fair { params, rqs, entities, .. } = &mut k.fair;
    let rq = &mut rqs[cpu.index()];
    if rq.nr_queued < 2 {
        return;
    }
    let curr = &entities[task.index()];
    let asker = Asker { weight: curr.load.weight, on_rq: true, idle };
    let slice = rq.sched_slice(asker, params);
    let ideal = if params.has(Features::BASE_SLICE) { slice.min(params.latency) } else { slice };
    let ran = sum_exec - curr.prev_sum_exec;
    if ran > ideal {
        // A buddy must not have it again at once.
        rq.clear_buddies(task);
        return k.resched_curr(cpu);
    }
    if ran < params.min_granularity {
        return;
    }
    let Some(first) = rq.first() else { return };
    if curr.vruntime - entities[first.index()].vruntime > ideal as i64 {
        k.resched_curr(cpu);
    }
}

/// `yield_task_fair`: the task is passed over at the next pick.
pub(super) fn yield_task(k: &mut Kernel, cpu: CpuId) {
    let Some(task) = k.fair.rqs[cpu.index()].curr else { return };
    if k.fair.rqs[cpu.index()].nr_queued < 2 {
        return;
    }
    if k.task(task).policy != Policy::Batch {
        update_curr(k, cpu);
    }
    let rq = &mut k.fair.rqs[cpu.index()];
    rq.clear_buddies(task);
    rq.skip = Some(task);
}

#[cfg(test)]
mod tests;
