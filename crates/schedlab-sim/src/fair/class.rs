//! The fair class's functions of `struct sched_class`, on the shared kernel.
//!
//! Called by [`crate::core`] only. EEVDF, with its arithmetic in [`super::queue`]; calls of kernels with CFS go on to
//! [`super::cfs`].

use super::params::{Features, Generation};
use super::pelt::Activity;
use super::queue::CfsRq;
use super::{Fair, cfs, select};
use crate::core::flags;
use crate::kernel::{Class, Kernel, Resched};
use schedlab_model::{CpuId, Policy, TaskId};

/// `update_curr`: charges the current task for the time since the last call; asks for a reschedule when its
/// request is served or its protection has ended.
pub(crate) fn update_curr(k: &mut Kernel, cpu: CpuId) {
    if k.fair.params.generation == Generation::Cfs {
        return cfs::update_curr(k, cpu);
    }
    let now = k.now;
    let Fair { params, rqs, entities, .. } = &mut k.fair;
    let rq = &mut rqs[cpu.index()];
    let Some(task) = rq.curr else { return };
    let entity = &mut entities[task.index()];
    let delta = entity.charge(now);
    if delta == 0 {
        return;
    }
    let served = CfsRq::update_deadline(entity, params);
    let unprotected = !params.protects_whole_slice && !entity.protect_slice();
    let vruntime = entity.vruntime;
    rq.keep_zero_vruntime_near(entities, vruntime);
    let contended = rq.nr_queued > 1;
    if contended && (served || unprotected) {
        if rq.next == Some(task) {
            rq.next = None;
        }
        k.resched_curr_lazy(cpu);
    }
    k.task_mut(task).sum_exec += delta;
}

/// `update_load_avg`: averages of the queue, and of one task on it, up to now.
pub(crate) fn update_averages(k: &mut Kernel, cpu: CpuId, task: Option<TaskId>) {
    let now = k.now;
    let Fair { rqs, entities, .. } = &mut k.fair;
    let rq = &mut rqs[cpu.index()];
    let (load, runnable) = (rq.load_weight, u64::from(rq.nr_runnable));
    rq.average.update(now, Activity { load, runnable, running: rq.curr.is_some(), weight: 1 });
    if let Some(task) = task {
        let entity = &mut entities[task.index()];
        let queued = u64::from(entity.on_rq);
        let runnable = u64::from(entity.on_rq && !entity.sched_delayed);
        let (running, weight) = (rq.curr == Some(task), u64::from(entity.load.weight));
        entity.average.update(now, Activity { load: queued, runnable, running, weight });
    }
}

/// `attach_entity_load_avg` where a task comes to another queue than before.
fn attach(k: &mut Kernel, cpu: CpuId, task: TaskId) {
    let before = k.fair.entity(task).attached;
    if before == Some(cpu) {
        return;
    }
    if let Some(before) = before {
        update_averages(k, before, None);
    }
    let capacity = u64::from(k.cpu(cpu).capacity);
    let Fair { rqs, entities, .. } = &mut k.fair;
    let entity = &mut entities[task.index()];
    entity.attached = Some(cpu);
    match before {
        Some(before) => rqs[before.index()].average.detach(&entity.average),
        None => {
            let weight = u64::from(entity.load.weight);
            entity.average.guess_util(&rqs[cpu.index()].average, weight, capacity);
        }
    }
    rqs[cpu.index()].average.attach(&entity.average);
}

/// The task becomes runnable on `cpu`, or, if it is a delayed sleeper, runnable again.
pub(crate) fn enqueue_task(k: &mut Kernel, cpu: CpuId, task: TaskId, flags: u32) {
    update_averages(k, cpu, Some(task));
    attach(k, cpu, task);
    if k.fair.params.generation == Generation::Cfs {
        return cfs::enqueue_task(k, cpu, task, flags);
    }
    if flags & flags::ENQUEUE_DELAYED != 0 {
        return requeue_delayed(k, cpu, task);
    }
    update_curr(k, cpu);
    let idle = k.task(task).has_idle_policy();
    let Fair { params, rqs, entities, .. } = &mut k.fair;
    let rq = &mut rqs[cpu.index()];
    rq.place_entity(entities, task, flags & flags::ENQUEUE_INITIAL != 0, params);
    rq.account_enqueue(entities, task);
    rq.add_runnable(idle);
    k.add_nr_running(cpu, 1);
    publish(k, cpu, task);
}

/// `requeue_delayed_entity`: a delayed sleeper is woken; if it has caught up meanwhile it keeps no credit.
///
/// Up to 6.18 the current task is *not* charged first: the sleeper is placed beside where that was when it was
/// charged last, so by the time of the preemption check it is behind, and often preempts.
fn requeue_delayed(k: &mut Kernel, cpu: CpuId, task: TaskId) {
    if k.fair.params.later_lag_rules {
        update_curr(k, cpu);
    }
    let (tick, idle) = (k.tick_ns, k.task(task).has_idle_policy());
    let Fair { params, rqs, entities, .. } = &mut k.fair;
    let rq = &mut rqs[cpu.index()];
    let before = entities[task.index()].vlag;
    let found = rq.entity_lag(entities, task, tick, params);
    let lag = if params.later_lag_rules { delayed_lag(found, before, params) } else { found.min(0) };
    let zero = params.has(Features::DELAY_ZERO);
    if params.later_lag_rules || zero {
        entities[task.index()].vlag = lag;
    }
    if (params.later_lag_rules && rq.avg_vruntime(entities) - lag != entities[task.index()].vruntime)
        || (zero && found > 0)
    {
        rq.account_dequeue(entities, task);
        rq.place_entity(entities, task, false, params);
        rq.account_enqueue(entities, task);
    }
    entities[task.index()].sched_delayed = false;
    rq.add_runnable(idle);
    k.add_nr_running(cpu, 1);
    publish(k, cpu, task);
}

/// `update_entity_lag` of a delayed sleeper in 7.2: its lag does not fall while it waits, nor become a credit.
fn delayed_lag(lag: i64, before: i64, params: &super::FairParams) -> i64 {
    let lag = lag.max(before);
    if params.has(Features::DELAY_ZERO) { lag.min(0) } else { lag }
}

/// The task leaves the queue. `false` if it stays as a delayed sleeper to burn off its negative lag.
pub(crate) fn dequeue_task(k: &mut Kernel, cpu: CpuId, task: TaskId, flags: u32) -> bool {
    update_averages(k, cpu, Some(task));
    if k.fair.params.generation == Generation::Cfs {
        cfs::dequeue_task(k, cpu, task, flags);
        return true;
    }
    update_curr(k, cpu);
    let (tick, idle) = (k.tick_ns, k.task(task).has_idle_policy());
    let Fair { params, rqs, entities, .. } = &mut k.fair;
    let rq = &mut rqs[cpu.index()];
    if rq.next == Some(task) {
        rq.next = None;
    }
    let sleep = flags & flags::DEQUEUE_SLEEP != 0;
    let was_delayed = entities[task.index()].sched_delayed;
    let may_delay = sleep && flags & flags::DEQUEUE_SPECIAL == 0 && !was_delayed;
    let mut lag = rq.entity_lag(entities, task, tick, params);
    if was_delayed && params.later_lag_rules {
        lag = delayed_lag(lag, entities[task.index()].vlag, params);
    }
    entities[task.index()].vlag = lag;
    if may_delay && params.has(Features::DELAY_DEQUEUE) && !rq.entity_eligible(entities, task) {
        entities[task.index()].sched_delayed = true;
        rq.remove_runnable(idle);
        k.add_nr_running(cpu, -1);
        return false;
    }
    rq.account_dequeue(entities, task);
    rq.update_zero_vruntime(entities);
    if params.has(Features::PLACE_REL_DEADLINE) && !sleep {
        let entity = &mut entities[task.index()];
        entity.deadline -= entity.vruntime;
        entity.rel_deadline = true;
    }
    if was_delayed {
        let entity = &mut entities[task.index()];
        entity.sched_delayed = false;
        if params.has(Features::DELAY_ZERO) && entity.vlag > 0 {
            entity.vlag = 0;
        }
        return true;
    }
    rq.remove_runnable(idle);
    k.add_nr_running(cpu, -1);
    true
}

/// `check_preempt_wakeup_fair`: whether the woken task preempts the current one, both fair.
pub(crate) fn wakeup_preempt(k: &mut Kernel, cpu: CpuId, task: TaskId, wake_flags: u32) {
    if k.fair.params.generation == Generation::Cfs {
        return cfs::wakeup_preempt(k, cpu, task, wake_flags);
    }
    let curr = k.cpu(cpu).curr;
    if curr == task {
        return;
    }
    let fork = wake_flags & flags::WF_FORK != 0;
    if k.fair.params.has(Features::NEXT_BUDDY) && !fork && !k.fair.entity(task).sched_delayed {
        k.fair.rqs[cpu.index()].next = Some(task);
    }
    if k.cpu(cpu).resched == Resched::Now || !k.fair.params.has(Features::WAKEUP_PREEMPTION) {
        return;
    }
    let (curr_idle, idle) = (k.task(curr).has_idle_policy(), k.task(task).has_idle_policy());
    if curr_idle && !idle {
        k.fair.entities[curr.index()].cancel_protect_slice();
        return k.resched_curr_lazy(cpu);
    }
    if curr_idle != idle || !matches!(k.task(task).policy, Policy::Normal | Policy::Ext) {
        return;
    }
    update_curr(k, cpu);
    let Fair { params, rqs, entities, .. } = &mut k.fair;
    let rq = &mut rqs[cpu.index()];
    let shorter = entities[task.index()].slice < entities[curr.index()].slice;
    let short = shorter && params.has(Features::PREEMPT_SHORT);
    if params.later_lag_rules && fork && !short {
        return;
    }
    if rq.pick_eevdf(entities, !short, params) == Some(task) {
        if short {
            entities[curr.index()].cancel_protect_slice();
        }
        k.resched_curr_lazy(cpu);
    } else if (short || params.later_lag_rules) && params.has(Features::RUN_TO_PARITY) {
        rq.update_protect_slice(entities, curr, params);
    }
}

/// `pick_task_fair`: the next task, dequeuing delayed sleepers whose turn came. Changes nothing else.
pub(crate) fn pick_task(k: &mut Kernel, cpu: CpuId) -> Option<TaskId> {
    loop {
        if k.fair.rqs[cpu.index()].nr_queued == 0 {
            return None;
        }
        if k.fair.params.generation == Generation::Cfs {
            return cfs::pick_task(k, cpu);
        }
        update_curr(k, cpu);
        let Fair { params, rqs, entities, .. } = &mut k.fair;
        let picked = rqs[cpu.index()].pick_eevdf(entities, true, params)?;
        if !entities[picked.index()].sched_delayed {
            return Some(picked);
        }
        dequeue_task(k, cpu, picked, flags::DEQUEUE_SLEEP | flags::DEQUEUE_DELAYED);
        k.task_mut(picked).on_rq = false;
    }
}

/// The task becomes current: out of the tree, its slice protected.
pub(crate) fn set_next_task(k: &mut Kernel, cpu: CpuId, task: TaskId) {
    update_averages(k, cpu, Some(task));
    if k.fair.params.generation == Generation::Cfs {
        return cfs::set_next_task(k, cpu, task);
    }
    let now = k.now;
    let Fair { params, rqs, entities, .. } = &mut k.fair;
    let rq = &mut rqs[cpu.index()];
    if entities[task.index()].on_rq {
        rq.remove(entities, task);
        rq.set_protect_slice(entities, task, params);
    }
    entities[task.index()].exec_start = now;
    rq.curr = Some(task);
    if rq.next == Some(task) {
        rq.next = None;
    }
}

/// The task stops being current: back into the tree if it is still queued.
pub(crate) fn put_prev_task(k: &mut Kernel, cpu: CpuId, task: TaskId) {
    update_curr(k, cpu);
    update_averages(k, cpu, Some(task));
    let Fair { rqs, entities, .. } = &mut k.fair;
    let rq = &mut rqs[cpu.index()];
    if entities[task.index()].on_rq {
        rq.insert(entities, task);
    }
    rq.curr = None;
    if k.fair.entity(task).on_rq {
        publish(k, cpu, task);
    }
}

/// The tick found a fair task running.
pub(crate) fn task_tick(k: &mut Kernel, cpu: CpuId, task: TaskId) {
    update_averages(k, cpu, Some(task));
    if k.fair.params.generation == Generation::Cfs {
        return cfs::task_tick(k, cpu, task);
    }
    update_curr(k, cpu);
    publish(k, cpu, task);
}

/// `yield_task_fair`: an eligible task forfeits the rest of its slice.
pub(crate) fn yield_task(k: &mut Kernel, cpu: CpuId) {
    if k.fair.params.generation == Generation::Cfs {
        return cfs::yield_task(k, cpu);
    }
    update_curr(k, cpu);
    let Fair { rqs, entities, .. } = &mut k.fair;
    let rq = &mut rqs[cpu.index()];
    let Some(task) = rq.curr.filter(|_| rq.nr_queued > 1) else { return };
    rq.next = None;
    if rq.entity_eligible(entities, task) {
        let entity = &mut entities[task.index()];
        entity.vruntime = entity.deadline;
        entity.deadline += entity.load.virtual_time(entity.slice) as i64;
        rq.update_zero_vruntime(entities);
    }
}

/// Takes a task's new weight and slice; the task is off the queue (`sched_change` dequeues around it).
pub(crate) fn reweight(k: &mut Kernel, task: TaskId) {
    let state = k.task(task);
    let (weight, custom) = (state.weight, state.custom_slice);
    let Fair { params, entities, .. } = &mut k.fair;
    let entity = &mut entities[task.index()];
    debug_assert!(!entity.on_rq);
    if entity.load.weight != weight {
        // Lag and relative deadline are in virtual time: rescale so that real time owed stays the same.
        let rescale = |value: i64| value * i64::from(entity.load.weight) / i64::from(weight);
        let (vlag, deadline) = (rescale(entity.vlag), rescale(entity.deadline));
        entity.vlag = vlag;
        if entity.rel_deadline {
            entity.deadline = deadline;
        }
        entity.load = super::weight::Load::new(weight);
    }
    entity.custom_slice = custom > 0;
    entity.slice = if custom > 0 { custom } else { params.base_slice };
}

/// `select_task_rq_fair`.
pub(crate) fn select_task_rq(k: &mut Kernel, task: TaskId, wake_flags: u32) -> CpuId {
    select::select_task_rq(k, task, wake_flags)
}

/// Publishes the rank of a queued task in ns of virtual time: its deadline against the queue's virtual time (CFS: its
/// vruntime against the queue's smallest).
pub(super) fn publish(k: &mut Kernel, cpu: CpuId, task: TaskId) {
    if !k.trace.detail || k.task(task).class != Class::Fair {
        return;
    }
    let (rq, entity) = (&k.fair.rqs[cpu.index()], k.fair.entity(task));
    let key = match k.fair.params.generation {
        Generation::Eevdf => entity.deadline - rq.avg_vruntime(&k.fair.entities),
        Generation::Cfs => entity.vruntime - rq.min_vruntime,
    };
    k.publish_rank(cpu, task, key);
}
