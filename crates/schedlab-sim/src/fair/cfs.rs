//! CFS as in Linux 5.7 to 6.5: what differs from EEVDF, and the arithmetic on a run queue.
//!
//! The queue's tree is ordered by `vruntime` here. A vruntime counts from the `min_vruntime` of the queue that the
//! task was on last ([`FairEntity::home`]); Linux subtracts it when a task leaves for another queue and adds the new
//! one's, which is the same. Called by [`super::class`] and [`super::entity`], which have what both generations share.

use super::ids::{EntityId, RqId};
use super::params::{FairParams, Features};
use super::queue::{CfsRq, FairEntity};
use super::weight::calc_delta;
use super::{Fair, class, entity};
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
    pub(super) fn update_min_vruntime(&mut self, entities: &[FairEntity]) {
        let curr = self.curr.map(|curr| &entities[curr.index()]).filter(|curr| curr.on_rq);
        let curr = curr.map(|curr| curr.vruntime);
        let first = self.first().map(|id| entities[id.index()].vruntime);
        if let Some(lowest) = curr.into_iter().chain(first).min() {
            self.min_vruntime = self.min_vruntime.max(lowest);
        }
    }

    /// An entity's share by weight of what its queue gets.
    fn share(&self, asker: Asker, time: u64) -> u64 {
        let total = self.load_weight + if asker.on_rq { 0 } else { u64::from(asker.weight) };
        calc_delta(time, asker.weight, total)
    }

    /// No slice is shorter than a granularity (`BASE_SLICE`, since 5.13).
    fn at_least_granularity(&self, slice: u64, idle: bool, params: &FairParams) -> u64 {
        if !params.has(Features::BASE_SLICE) {
            return slice;
        }
        let all_idle = self.nr_idle == self.nr_runnable;
        let least = if idle && !all_idle { params.idle_min_granularity } else { params.min_granularity };
        slice.max(least)
    }

    /// `place_entity`: new tasks a slice (`debit`) behind the queue's time, sleepers at most half a latency before it.
    fn place_cfs(&self, entity: &mut FairEntity, debit: Option<u64>, idle: bool, params: &FairParams) {
        let mut vruntime = self.min_vruntime;
        match debit {
            Some(slice) if params.has(Features::START_DEBIT) => {
                vruntime += entity.load.virtual_time(slice) as i64;
            }
            Some(_) => {}
            None => {
                let short = idle && params.idle_sleepers_get_less;
                let credit = if short { params.min_granularity } else { params.latency };
                vruntime -= (credit >> u32::from(params.has(Features::GENTLE_FAIR_SLEEPERS))) as i64;
            }
        }
        entity.vruntime = entity.vruntime.max(vruntime);
    }

    /// `pick_next_entity`: the smallest vruntime, but for one that yielded and for a buddy that is not far behind.
    pub(super) fn pick_cfs(&self, entities: &[FairEntity], params: &FairParams) -> Option<EntityId> {
        let vruntime = |id: EntityId| entities[id.index()].vruntime;
        let curr = self.curr.filter(|curr| entities[curr.index()].on_rq);
        let mut left = self.first();
        if let Some(curr) = curr
            && left.is_none_or(|left| vruntime(curr) < vruntime(left))
        {
            left = Some(curr);
        }
        let left = left?;
        let near = |id: &EntityId| wakeup_preempt_entity(entities, *id, left, params) < 1;
        let mut picked = left;
        if self.skip == Some(left) {
            let mut second =
                if curr == Some(left) { self.first() } else { self.queued().find(|id| *id != left) };
            if let Some(curr) = curr.filter(|curr| *curr != left)
                && second.is_none_or(|second| vruntime(curr) < vruntime(second))
            {
                second = Some(curr);
            }
            picked = second.filter(near).unwrap_or(left);
        }
        self.next.filter(near).or_else(|| self.last.filter(near)).or(Some(picked))
    }
}

/// `wakeup_preempt_entity`: 1 if `other` is so far behind `curr` that it preempts, 0 if it is behind at all, else -1.
/// The granularity is in the other's virtual time, so that strong tasks preempt sooner.
fn wakeup_preempt_entity(
    entities: &[FairEntity],
    curr: EntityId,
    other: EntityId,
    params: &FairParams,
) -> i32 {
    let (curr, other) = (&entities[curr.index()], &entities[other.index()]);
    let behind = curr.vruntime - other.vruntime;
    let granularity = other.load.virtual_time(params.wakeup_granularity) as i64;
    if behind <= 0 { -1 } else { i32::from(behind > granularity) }
}

/// The period that `queued` entities share: longer when they are many (`__sched_period`).
fn period(queued: u64, params: &FairParams) -> u64 {
    if queued > params.nr_latency() { queued * params.min_granularity } else { params.latency }
}

/// `sched_slice`: the entity's share of a period, and its group's share of that, up to the root. Since 5.13 the period
/// counts every task of the CPU (`ALT_PERIOD`, which came with `BASE_SLICE`).
fn sched_slice(fair: &Fair, cpu: CpuId, rq_id: RqId, asker: Asker) -> u64 {
    let params = &fair.params;
    let here = &fair.rqs[rq_id.index()];
    let all = params.has(Features::BASE_SLICE);
    let queued = if all { fair.rqs[cpu.index()].nr_runnable } else { here.nr_queued };
    let mut slice = here.share(asker, period(u64::from(queued + u32::from(!asker.on_rq)), params));
    let mut level = fair.groups.layout.owner(rq_id);
    while let Some(owner) = level {
        let entity = &fair.entities[owner.index()];
        let asker = Asker { weight: entity.load.weight, on_rq: entity.on_rq, idle: false };
        slice = fair.rqs[entity.rq.index()].share(asker, slice);
        level = fair.groups.layout.owner(entity.rq);
    }
    here.at_least_granularity(slice, asker.idle, params)
}

/// Where an entity that joins a queue is put: `task_fork_fair` on the CPU that forked it for a new task, and the parts
/// of `enqueue_entity` and `place_entity` that concern the vruntime.
pub(super) fn place(k: &mut Kernel, rq_id: RqId, id: EntityId, flags: u32) {
    let idle = class::is_idle_entity(k, id);
    if flags & flags::ENQUEUE_INITIAL != 0 {
        fork(k, id, idle);
    }
    let Fair { params, rqs, entities, .. } = &mut k.fair;
    let entity = &mut entities[id.index()];
    let from = entity.home.map_or(0, |home| rqs[home.index()].min_vruntime);
    if entity.home != Some(rq_id) {
        entity.vruntime += rqs[rq_id.index()].min_vruntime - from;
        entity.home = Some(rq_id);
    }
    if flags & flags::ENQUEUE_WAKEUP != 0 {
        rqs[rq_id.index()].place_cfs(entity, None, idle, params);
    }
}

/// `task_fork_fair`.
fn fork(k: &mut Kernel, id: EntityId, idle: bool) {
    let here = k.this_cpu;
    let parents = k.fair.groups.layout.queue_of(k.fair.entities[id.index()].group, here);
    entity::update_curr(k, here, parents);
    let parent = k.fair.rqs[parents.index()].curr.map(|curr| k.fair.entities[curr.index()].vruntime);
    let entity = &k.fair.entities[id.index()];
    let asker = Asker { weight: entity.load.weight, on_rq: entity.on_rq, idle };
    let debit = sched_slice(&k.fair, here, parents, asker);
    let Fair { params, rqs, entities, .. } = &mut k.fair;
    let entity = &mut entities[id.index()];
    entity.vruntime = parent.unwrap_or(entity.vruntime);
    rqs[parents.index()].place_cfs(entity, Some(debit), idle, params);
    entity.home = Some(parents);
}

/// `dequeue_entity`'s part: who does not go to sleep takes its vruntime along.
pub(super) fn leave(k: &mut Kernel, rq_id: RqId, id: EntityId, flags: u32) {
    class::clear_buddies(&mut k.fair, rq_id, id);
    let Fair { rqs, entities, .. } = &mut k.fair;
    let rq = &mut rqs[rq_id.index()];
    rq.account_dequeue(entities, id);
    if flags & flags::DEQUEUE_SLEEP == 0 {
        let entity = &mut entities[id.index()];
        entity.vruntime -= rq.min_vruntime;
        entity.home = None;
    }
    if flags & flags::DEQUEUE_SAVE == 0 {
        rq.update_min_vruntime(entities);
    }
}

/// `check_preempt_wakeup`.
pub(super) fn wakeup_preempt(k: &mut Kernel, cpu: CpuId, task: TaskId, wake_flags: u32) {
    let curr = k.cpu(cpu).curr;
    let (curr_idle, idle) = (k.task(curr).has_idle_policy(), k.task(task).has_idle_policy());
    let normal = matches!(k.task(task).policy, Policy::Normal | Policy::Ext);
    let fork = wake_flags & flags::WF_FORK != 0;
    let own = k.fair.groups.layout.entity_of(curr);
    let (params, rq) = (&k.fair.params, &k.fair.rqs[k.fair.entities[own.index()].rq.index()]);
    let crowded = u64::from(rq.nr_queued) >= params.nr_latency();
    let next_marked = params.has(Features::NEXT_BUDDY) && crowded && !fork;
    let preempts = params.has(Features::WAKEUP_PREEMPTION);
    if next_marked {
        let id = k.fair.groups.layout.entity_of(task);
        class::set_next_buddy(k, id);
    }
    if k.cpu(cpu).resched == Resched::Now {
        return;
    }
    if curr_idle && !idle {
        return preempt(k, cpu, own, crowded);
    }
    if !normal || !preempts {
        return;
    }
    let (curr, woken) = class::matching_entities(k, curr, task);
    let (over_idle, differ) = class::compare_idle(k, curr, woken);
    if over_idle {
        return preempt(k, cpu, curr, crowded);
    }
    if differ {
        return;
    }
    let rq_id = k.fair.entities[curr.index()].rq;
    entity::update_curr(k, cpu, rq_id);
    if wakeup_preempt_entity(&k.fair.entities, curr, woken, &k.fair.params) == 1 {
        if !next_marked {
            class::set_next_buddy(k, woken);
        }
        preempt(k, cpu, curr, crowded);
    }
}

/// Reschedules; on a crowded queue the preempted task is remembered, so that it goes on after a short interruption.
fn preempt(k: &mut Kernel, cpu: CpuId, curr: EntityId, crowded: bool) {
    k.resched_curr(cpu);
    let is_task = k.fair.groups.layout.task_of(curr).is_some();
    if k.fair.params.has(Features::LAST_BUDDY) && crowded && is_task && k.fair.entities[curr.index()].on_rq {
        class::set_last_buddy(k, curr);
    }
}

/// `check_preempt_tick` for one level: the slice is over, or somebody is a slice behind.
pub(super) fn check_preempt_tick(k: &mut Kernel, cpu: CpuId, id: EntityId) {
    let curr = &k.fair.entities[id.index()];
    let rq_id = curr.rq;
    if k.fair.rqs[rq_id.index()].nr_queued < 2 {
        return;
    }
    let asker = Asker { weight: curr.load.weight, on_rq: true, idle: class::is_idle_entity(k, id) };
    let slice = sched_slice(&k.fair, cpu, rq_id, asker);
    let params = &k.fair.params;
    let ideal = if params.limits_slice { slice.min(params.latency) } else { slice };
    let ran = curr.sum_exec - curr.prev_sum_exec;
    if ran > ideal {
        // A buddy must not have it again at once.
        class::clear_buddies(&mut k.fair, rq_id, id);
        return k.resched_curr(cpu);
    }
    if ran < params.min_granularity {
        return;
    }
    let Some(first) = k.fair.rqs[rq_id.index()].first() else { return };
    if curr.vruntime - k.fair.entities[first.index()].vruntime > ideal as i64 {
        k.resched_curr(cpu);
    }
}

/// `yield_task_fair`: the task is passed over at the next pick.
pub(super) fn yield_task(k: &mut Kernel, cpu: CpuId, rq_id: RqId, id: EntityId) {
    let curr = k.cpu(cpu).curr;
    if k.task(curr).policy != Policy::Batch {
        entity::update_curr(k, cpu, rq_id);
    }
    class::clear_buddies(&mut k.fair, rq_id, id);
    class::set_skip_buddy(k, id);
}

#[cfg(test)]
mod tests;
