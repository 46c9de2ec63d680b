//! One entity on one queue: charge, averages, enqueue, dequeue, becoming current and stopping to be it.
//!
//! The same for tasks and groups and for both generations; what walks the levels is [`super::class`]. Arithmetic is in
//! [`super::queue`] (EEVDF) and [`super::cfs`].

use super::ids::{EntityId, RqId};
use super::params::{Features, Generation};
use super::pelt::Activity;
use super::queue::CfsRq;
use super::{Fair, FairParams, bandwidth, class, group};
use crate::core::flags;
use crate::kernel::Kernel;
use schedlab_model::CpuId;
use schedlab_model::workload::Past;

/// `update_curr`: charges the queue's current entity for the time since the last call; asks for a reschedule when its
/// request is served or its protection has ended.
#[inline(always)]
pub(super) fn update_curr(k: &mut Kernel, cpu: CpuId, rq_id: RqId) {
    // Most calls follow another one at the same instant.
    if let Some(id) = k.fair.rqs[rq_id.index()].curr
        && k.fair.entities[id.index()].exec_start != k.now
    {
        charge_curr(k, cpu, rq_id, id);
    }
}

#[inline(never)]
fn charge_curr(k: &mut Kernel, cpu: CpuId, rq_id: RqId, id: EntityId) {
    let now = k.now;
    let Fair { params, rqs, entities, groups, .. } = &mut k.fair;
    let rq = &mut rqs[rq_id.index()];
    let entity = &mut entities[id.index()];
    let delta = entity.charge(now);
    let task = groups.layout.task_of(id);
    let limited = rq.limited;
    if params.generation == Generation::Cfs {
        rq.update_min_vruntime(entities);
    } else {
        let served = CfsRq::update_deadline(entity, params);
        let unprotected = !params.protects_whole_slice && !entity.protect_slice();
        let vruntime = entity.vruntime;
        rq.keep_zero_vruntime_near(entities, vruntime);
        let contended = rq.nr_queued > 1;
        if contended && (served || unprotected) {
            class::clear_buddies(&mut k.fair, rq_id, id);
            k.resched_curr_lazy(cpu);
        }
    }
    if let Some(task) = task {
        k.task_mut(task).sum_exec += delta;
    }
    if limited {
        bandwidth::account(k, cpu, rq_id, delta);
    }
}

/// `update_load_avg`: averages of the queue, and of one entity on it, up to now.
#[inline(always)]
pub(super) fn update_load_avg(k: &mut Kernel, rq_id: RqId, id: Option<EntityId>) {
    let (now, fair) = (k.now, &mut k.fair);
    let rq = &mut fair.rqs[rq_id.index()];
    if rq.average.is_behind(now) {
        update_queue(rq, now);
    }
    if let Some(id) = id
        && fair.entities[id.index()].average.is_behind(now)
    {
        update_entity(fair, rq_id, id, now);
    }
    if fair.groups.layout.owner(rq_id).is_some() {
        group::tell_group(k, rq_id, now);
    }
}

#[inline(never)]
fn update_queue(rq: &mut CfsRq, now: u64) {
    let (load, runnable) = (rq.load_weight, u64::from(rq.nr_runnable));
    rq.average.update(now, Activity { load, runnable, running: rq.curr.is_some(), weight: 1 });
}

#[inline(never)]
fn update_entity(fair: &mut Fair, rq_id: RqId, id: EntityId, now: u64) {
    let Fair { rqs, entities, groups, .. } = fair;
    let running = rqs[rq_id.index()].curr == Some(id);
    let entity = &mut entities[id.index()];
    let queued = u64::from(entity.on_rq);
    // `se_update_runnable`: a group counts the tasks below it.
    let runnable = match groups.layout.own_queue(id) {
        None => u64::from(entity.on_rq && !entity.sched_delayed),
        Some(own) => queued * u64::from(rqs[own.index()].nr_runnable),
    };
    let weight = u64::from(entity.load.weight);
    entity.average.update(now, Activity { load: queued, runnable, running, weight });
}

/// `attach_entity_load_avg` where a task comes to another queue than before.
pub(super) fn attach(k: &mut Kernel, cpu: CpuId, rq_id: RqId, id: EntityId) {
    let before = k.fair.entities[id.index()].attached;
    if before == Some(rq_id) {
        return;
    }
    if let Some(before) = before {
        update_load_avg(k, before, None);
        bring_up(k, before);
    }
    bring_up(k, rq_id);
    let capacity = u64::from(k.cpu(cpu).scale);
    let Fair { rqs, entities, .. } = &mut k.fair;
    let entity = &mut entities[id.index()];
    entity.attached = Some(rq_id);
    let average = match before {
        Some(before) => {
            rqs[before.index()].average.detach(&entity.average);
            Some((before, entity.average))
        }
        None if entity.past != Past::New => None,
        None => {
            let weight = u64::from(entity.load.weight);
            entity.average.guess_util(&rqs[rq_id.index()].average, weight, capacity);
            None
        }
    };
    rqs[rq_id.index()].average.attach(&entity.average);
    let sum = entity.average.load_sum() as i64;
    if let Some((before, average)) = average {
        group::propagate(&mut k.fair, before, -(average.load_sum() as i64));
    }
    group::propagate(&mut k.fair, rq_id, sum);
}

/// `remove_entity_load_avg` of a task that ended: what it used no longer counts as use of its CPU. Linux does so at the
/// queue's next update.
pub(crate) fn remove_dead(k: &mut Kernel, id: EntityId) {
    let Some(before) = k.fair.entities[id.index()].attached.take() else { return };
    update_load_avg(k, before, None);
    bring_up(k, before);
    let Fair { rqs, entities, .. } = &mut k.fair;
    let average = entities[id.index()].average;
    rqs[before.index()].average.detach(&average);
    group::propagate(&mut k.fair, before, -(average.load_sum() as i64));
}

/// Averages of the levels above a queue, before something below them changes.
fn bring_up(k: &mut Kernel, mut rq_id: RqId) {
    while let Some(owner) = k.fair.groups.layout.owner(rq_id) {
        rq_id = k.fair.entities[owner.index()].rq;
        update_load_avg(k, rq_id, Some(owner));
    }
}

/// `enqueue_entity`.
pub(super) fn enqueue_entity(k: &mut Kernel, cpu: CpuId, rq_id: RqId, id: EntityId, flags: u32) {
    update_curr(k, cpu, rq_id);
    if k.fair.groups.layout.own_queue(id).is_some() {
        group::update_level(k, cpu, id);
    }
    if k.fair.params.generation == Generation::Cfs {
        super::cfs::place(k, rq_id, id, flags);
    } else {
        let Fair { params, rqs, entities, .. } = &mut k.fair;
        rqs[rq_id.index()].place_entity(entities, id, flags & flags::ENQUEUE_INITIAL != 0, params);
    }
    let Fair { rqs, entities, .. } = &mut k.fair;
    let rq = &mut rqs[rq_id.index()];
    rq.account_enqueue(entities, id);
    if rq.limited && rq.nr_queued == 1 {
        bandwidth::check_enqueue_throttle(k, cpu, rq_id);
    }
}

/// `requeue_delayed_entity`: a delayed sleeper is woken; if it has caught up meanwhile it keeps no credit.
///
/// Up to 6.18 the current task is *not* charged first: the sleeper is placed beside where that was when it was
/// charged last, so by the time of the preemption check it is behind, and often preempts.
pub(super) fn requeue_delayed(k: &mut Kernel, cpu: CpuId, rq_id: RqId, id: EntityId) {
    if k.fair.params.later_lag_rules {
        update_curr(k, cpu, rq_id);
    }
    let tick = k.tick_ns;
    let Fair { params, rqs, entities, .. } = &mut k.fair;
    let rq = &mut rqs[rq_id.index()];
    let before = entities[id.index()].vlag;
    let found = rq.entity_lag(entities, id, tick, params);
    let lag = if params.later_lag_rules { delayed_lag(found, before, params) } else { found.min(0) };
    let zero = params.has(Features::DELAY_ZERO);
    if params.later_lag_rules || zero {
        entities[id.index()].vlag = lag;
    }
    if (params.later_lag_rules && rq.avg_vruntime(entities) - lag != entities[id.index()].vruntime)
        || (zero && found > 0)
    {
        rq.account_dequeue(entities, id);
        rq.place_entity(entities, id, false, params);
        rq.account_enqueue(entities, id);
    }
    entities[id.index()].sched_delayed = false;
}

/// `update_entity_lag` of a delayed sleeper in 7.2: its lag does not fall while it waits, nor become a credit.
fn delayed_lag(lag: i64, before: i64, params: &FairParams) -> i64 {
    let lag = lag.max(before);
    if params.has(Features::DELAY_ZERO) { lag.min(0) } else { lag }
}

/// `dequeue_entity`. `false` if it stays on the queue to burn off its negative lag.
pub(super) fn dequeue_entity(k: &mut Kernel, cpu: CpuId, rq_id: RqId, id: EntityId, flags: u32) -> bool {
    update_curr(k, cpu, rq_id);
    let is_group = k.fair.groups.layout.own_queue(id).is_some();
    if is_group {
        // While its weight still counts: a queue without any has not run.
        update_load_avg(k, rq_id, Some(id));
    }
    if k.fair.params.generation == Generation::Cfs {
        super::cfs::leave(k, rq_id, id, flags);
    } else if !leave_eevdf(k, rq_id, id, flags) {
        return false;
    }
    let rq = &k.fair.rqs[rq_id.index()];
    if rq.limited && rq.nr_queued == 0 {
        bandwidth::return_runtime(k, rq_id);
    }
    if is_group {
        group::update_cfs_group(k, cpu, id);
    }
    true
}

fn leave_eevdf(k: &mut Kernel, rq_id: RqId, id: EntityId, flags: u32) -> bool {
    let tick = k.tick_ns;
    class::clear_buddies(&mut k.fair, rq_id, id);
    let Fair { params, rqs, entities, .. } = &mut k.fair;
    let rq = &mut rqs[rq_id.index()];
    let sleep = flags & flags::DEQUEUE_SLEEP != 0;
    let was_delayed = entities[id.index()].sched_delayed;
    let really = flags & (flags::DEQUEUE_SPECIAL | flags::DEQUEUE_THROTTLE) != 0;
    let may_delay = sleep && !really && !was_delayed;
    let mut lag = rq.entity_lag(entities, id, tick, params);
    if was_delayed && params.later_lag_rules {
        lag = delayed_lag(lag, entities[id.index()].vlag, params);
    }
    entities[id.index()].vlag = lag;
    if may_delay && params.has(Features::DELAY_DEQUEUE) && !rq.entity_eligible(entities, id) {
        entities[id.index()].sched_delayed = true;
        return false;
    }
    rq.account_dequeue(entities, id);
    rq.update_zero_vruntime(entities);
    let entity = &mut entities[id.index()];
    if params.has(Features::PLACE_REL_DEADLINE) && !sleep {
        entity.deadline -= entity.vruntime;
        entity.rel_deadline = true;
    }
    if was_delayed {
        entity.sched_delayed = false;
        if params.has(Features::DELAY_ZERO) && entity.vlag > 0 {
            entity.vlag = 0;
        }
    }
    true
}

/// `set_next_entity`: current on its queue: out of the tree, its slice protected.
pub(super) fn set_next_entity(k: &mut Kernel, rq_id: RqId, id: EntityId) {
    update_load_avg(k, rq_id, Some(id));
    let now = k.now;
    let Fair { params, rqs, entities, .. } = &mut k.fair;
    let rq = &mut rqs[rq_id.index()];
    let eevdf = params.generation == Generation::Eevdf;
    if entities[id.index()].on_rq {
        rq.remove(entities, id);
        if eevdf {
            rq.set_protect_slice(entities, id, params);
        }
    }
    let entity = &mut entities[id.index()];
    entity.exec_start = now;
    entity.prev_sum_exec = entity.sum_exec;
    rq.curr = Some(id);
    class::clear_buddies(&mut k.fair, rq_id, id);
}

/// `put_prev_entity`: no longer current: back into the tree if it is still queued.
pub(super) fn put_prev_entity(k: &mut Kernel, cpu: CpuId, rq_id: RqId, id: EntityId) {
    update_curr(k, cpu, rq_id);
    if k.fair.rqs[rq_id.index()].limited {
        bandwidth::check_runtime(k, cpu, rq_id);
    }
    update_load_avg(k, rq_id, Some(id));
    let Fair { rqs, entities, .. } = &mut k.fair;
    let rq = &mut rqs[rq_id.index()];
    if entities[id.index()].on_rq {
        rq.insert(entities, id);
    }
    rq.curr = None;
}
