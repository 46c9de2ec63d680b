//! The fair class's functions of `struct sched_class`, on the shared kernel: they walk the levels of groups.
//!
//! Called by [`crate::core`] only. What happens on one level is in [`super::entity`]; without groups there is one.
//! Differences between CFS and EEVDF are asked for where they are, in [`super::cfs`] and [`super::queue`].

use super::ids::{EntityId, RqId};
use super::params::{Features, Generation};
use super::queue::CfsRq;
use super::{Fair, bandwidth, cfs, entity, group, misfit, select};
use crate::core::flags;
use crate::kernel::{Class, Kernel, Resched, Slot};
use schedlab_model::{CpuId, Policy, TaskId};

/// `hrtick_start`: shorter slices make no sense.
const HRTICK_MIN_NS: u64 = 10_000;
/// `hrtick_needs_rearm`: a timer this near is not moved.
const HRTICK_NEAR_NS: u64 = 5_000;

/// `update_curr_fair`: charges whoever runs, on every level.
pub(crate) fn update_curr(k: &mut Kernel, cpu: CpuId) {
    let mut rq = RqId::root(cpu);
    loop {
        entity::update_curr(k, cpu, rq);
        let curr = k.fair.rqs[rq.index()].curr;
        let Some(own) = curr.and_then(|curr| k.fair.groups.layout.own_queue(curr)) else { return };
        rq = own;
    }
}

/// Averages of a CPU's root queue up to now.
pub(crate) fn update_averages(k: &mut Kernel, cpu: CpuId) {
    entity::update_load_avg(k, RqId::root(cpu), None);
}

/// The task becomes runnable on `cpu`, or, if it is a delayed sleeper, runnable again.
pub(crate) fn enqueue_task(k: &mut Kernel, cpu: CpuId, task: TaskId, flags: u32) {
    let id = k.fair.groups.layout.entity_of(task);
    let rq = k.fair.groups.layout.queue_of(k.fair.entities[id.index()].group, cpu);
    k.fair.entities[id.index()].rq = rq;
    if k.fair.entities[id.index()].throttled && bandwidth::enqueue_throttled(k, cpu, task) {
        return;
    }
    entity::update_load_avg(k, rq, Some(id));
    entity::attach(k, cpu, rq, id);
    let idle = k.task(task).has_idle_policy();
    if flags & flags::ENQUEUE_DELAYED != 0 {
        entity::requeue_delayed(k, cpu, rq, id);
        k.fair.rqs[cpu.index()].nr_delayed -= 1;
        count_runnable(k, cpu, rq, idle, true);
    } else {
        k.fair.touch(task);
        enqueue_levels(k, cpu, id, flags, idle);
        if k.fair.params.has(Features::HRTICK) {
            update_hrtick(k, cpu);
        }
    }
    publish(k, cpu, task);
}

/// The task joins its queue; groups that were empty join theirs, groups above those only count one more.
fn enqueue_levels(k: &mut Kernel, cpu: CpuId, task: EntityId, mut flags: u32, mut idle: bool) {
    let (mut id, mut joins) = (task, true);
    loop {
        let rq = k.fair.entities[id.index()].rq;
        if joins {
            entity::enqueue_entity(k, cpu, rq, id, flags);
            flags = flags::ENQUEUE_WAKEUP;
        } else {
            group::update_level(k, cpu, id);
        }
        let queue = &mut k.fair.rqs[rq.index()];
        queue.add_runnable(idle);
        idle |= queue.idle;
        let Some(owner) = k.fair.groups.layout.owner(rq) else { break };
        if k.fair.is_dequeued(rq) {
            return;
        }
        k.fair.give_shortest_slice(rq, owner);
        let above = &k.fair.entities[owner.index()];
        if joins && above.on_rq {
            joins = false;
            if above.sched_delayed {
                let rq = above.rq;
                entity::requeue_delayed(k, cpu, rq, owner);
            }
        }
        id = owner;
    }
    k.add_nr_running(cpu, 1);
}

/// One task more or less is runnable below a queue: `h_nr_runnable` of every level, `nr_running` of the CPU.
fn count_runnable(k: &mut Kernel, cpu: CpuId, mut rq: RqId, mut idle: bool, more: bool) {
    loop {
        let queue = &mut k.fair.rqs[rq.index()];
        if more {
            queue.add_runnable(idle)
        } else {
            queue.remove_runnable(idle)
        }
        idle |= queue.idle;
        let Some(owner) = k.fair.groups.layout.owner(rq) else { break };
        if k.fair.is_dequeued(rq) {
            return;
        }
        rq = k.fair.entities[owner.index()].rq;
    }
    k.add_nr_running(cpu, if more { 1 } else { -1 });
}

/// The task leaves the queue. `false` if it stays as a delayed sleeper to burn off its negative lag.
pub(crate) fn dequeue_task(k: &mut Kernel, cpu: CpuId, task: TaskId, flags: u32) -> bool {
    let id = k.fair.groups.layout.entity_of(task);
    if k.fair.entities[id.index()].throttled {
        bandwidth::dequeue_throttled(k, task, flags);
        return true;
    }
    let rq = k.fair.entities[id.index()].rq;
    entity::update_load_avg(k, rq, Some(id));
    if flags & (flags::DEQUEUE_SLEEP | flags::DEQUEUE_DELAYED) == flags::DEQUEUE_SLEEP {
        misfit::update_util_est(k, task);
    }
    let idle = k.task(task).has_idle_policy();
    dequeue_entities(k, cpu, id, flags, idle)
}

/// `dequeue_entities`: a task, or a group that was delayed, leaves; groups that it leaves empty leave theirs.
fn dequeue_entities(k: &mut Kernel, cpu: CpuId, first: EntityId, mut flags: u32, mut idle: bool) -> bool {
    let sleep = flags & flags::DEQUEUE_SLEEP != 0;
    let is_task = k.fair.groups.layout.task_of(first).is_some();
    let delayed = k.fair.entities[first.index()].sched_delayed;
    let counted = is_task && !delayed;
    if is_task && delayed {
        k.fair.rqs[cpu.index()].nr_delayed -= 1;
    }
    let (mut id, mut leaves) = (first, true);
    loop {
        let rq = k.fair.entities[id.index()].rq;
        let stays = leaves && !entity::dequeue_entity(k, cpu, rq, id, flags);
        if stays && id == first {
            k.fair.rqs[cpu.index()].nr_delayed += 1;
            count_runnable(k, cpu, rq, idle, false);
            return false;
        }
        if stays || !leaves {
            leaves = false;
            group::update_level(k, cpu, id);
        }
        let queue = &mut k.fair.rqs[rq.index()];
        if counted {
            queue.remove_runnable(idle);
        }
        idle |= queue.idle;
        let others = queue.load_weight > 0;
        let Some(owner) = k.fair.groups.layout.owner(rq) else { break };
        if k.fair.is_dequeued(rq) {
            return true;
        }
        if leaves && others {
            leaves = false;
            if sleep {
                set_next_buddy(k, owner);
            }
        }
        if !leaves {
            k.fair.give_shortest_slice(rq, owner);
        }
        flags |= flags::DEQUEUE_SLEEP;
        flags &= !(flags::DEQUEUE_DELAYED | flags::DEQUEUE_SPECIAL);
        id = owner;
    }
    if counted {
        k.add_nr_running(cpu, -1);
    }
    true
}

/// `task_dead`: the task has left its CPU for good.
pub(crate) fn task_dead(k: &mut Kernel, task: TaskId) {
    let id = k.fair.groups.layout.entity_of(task);
    entity::remove_dead(k, id);
}

/// `find_matching_se`: the ancestors of two entities that are on one queue.
fn find_matching(fair: &Fair, mut a: EntityId, mut b: EntityId) -> (EntityId, EntityId) {
    let depth = |mut id: EntityId| {
        let mut depth = 0;
        while let Some(owner) = fair.parent(id) {
            depth += 1;
            id = owner;
        }
        depth
    };
    let up = |id: EntityId| fair.parent(id).expect("two entities of a CPU meet at its root queue");
    if !fair.groups.is_flat() {
        let (mut deep_a, mut deep_b) = (depth(a), depth(b));
        while fair.entities[a.index()].rq != fair.entities[b.index()].rq {
            let (rise_a, rise_b) = (deep_a >= deep_b, deep_b >= deep_a);
            if rise_a {
                (a, deep_a) = (up(a), deep_a - 1);
            }
            if rise_b {
                (b, deep_b) = (up(b), deep_b - 1);
            }
        }
    }
    (a, b)
}

/// `se_is_idle`: a task by its policy, a group by `cpu.idle`.
pub(super) fn is_idle_entity(k: &Kernel, id: EntityId) -> bool {
    match (k.fair.groups.layout.own_queue(id), k.fair.groups.layout.task_of(id)) {
        (Some(own), _) => k.fair.rqs[own.index()].idle,
        (None, Some(task)) => k.task(task).has_idle_policy(),
        (None, None) => false,
    }
}

/// `set_next_buddy`: the entity and its groups are to be picked next, as far as they are not idle ones.
pub(super) fn set_next_buddy(k: &mut Kernel, entity: EntityId) {
    set_buddy(k, entity, |rq, id| rq.next = Some(id));
}

/// `set_last_buddy`: the entity and its groups were preempted.
pub(super) fn set_last_buddy(k: &mut Kernel, entity: EntityId) {
    set_buddy(k, entity, |rq, id| rq.last = Some(id));
}

fn set_buddy(k: &mut Kernel, entity: EntityId, set: fn(&mut CfsRq, EntityId)) {
    let mut level = Some(entity);
    while let Some(id) = level {
        if !k.fair.entities[id.index()].on_rq || is_idle_entity(k, id) {
            return;
        }
        let rq = k.fair.entities[id.index()].rq;
        set(&mut k.fair.rqs[rq.index()], id);
        level = k.fair.groups.layout.owner(rq);
    }
}

/// `set_skip_buddy`: the entity and its groups yielded.
pub(super) fn set_skip_buddy(k: &mut Kernel, entity: EntityId) {
    let mut level = Some(entity);
    while let Some(id) = level {
        let rq = k.fair.entities[id.index()].rq;
        k.fair.rqs[rq.index()].skip = Some(id);
        level = k.fair.groups.layout.owner(rq);
    }
}

/// `clear_buddies`: the entity and its groups are nobody's buddy.
pub(super) fn clear_buddies(fair: &mut Fair, rq: RqId, id: EntityId) {
    let buddies = |fair: &mut Fair, rq: RqId, id: EntityId| {
        let queue = &mut fair.rqs[rq.index()];
        let mut any = false;
        for buddy in [&mut queue.last, &mut queue.next, &mut queue.skip] {
            if *buddy == Some(id) {
                *buddy = None;
                any = true;
            }
        }
        any
    };
    let (mut rq, mut id) = (rq, id);
    while buddies(fair, rq, id) {
        let Some(owner) = fair.groups.layout.owner(rq) else { return };
        (rq, id) = (fair.entities[owner.index()].rq, owner);
    }
}

/// `check_preempt_wakeup_fair`: whether the woken task preempts the current one, both fair.
pub(crate) fn wakeup_preempt(k: &mut Kernel, cpu: CpuId, task: TaskId, wake_flags: u32) {
    let curr = k.cpu(cpu).curr;
    if curr == task || bandwidth::is_throttled(&k.fair, task) {
        return;
    }
    if k.fair.params.generation == Generation::Cfs {
        return cfs::wakeup_preempt(k, cpu, task, wake_flags);
    }
    let fork = wake_flags & flags::WF_FORK != 0;
    if k.fair.params.has(Features::NEXT_BUDDY) && !fork && !k.fair.entity(task).sched_delayed {
        let id = k.fair.groups.layout.entity_of(task);
        set_next_buddy(k, id);
    }
    if k.cpu(cpu).resched == Resched::Now || !k.fair.params.has(Features::WAKEUP_PREEMPTION) {
        return;
    }
    let (curr, woken) = matching_entities(k, curr, task);
    let (curr_idle, idle) = (is_idle_entity(k, curr), is_idle_entity(k, woken));
    if curr_idle && !idle {
        k.fair.entities[curr.index()].cancel_protect_slice();
        return k.resched_curr_lazy(cpu);
    }
    if curr_idle != idle || !matches!(k.task(task).policy, Policy::Normal | Policy::Ext) {
        return;
    }
    let rq_id = k.fair.entities[curr.index()].rq;
    entity::update_curr(k, cpu, rq_id);
    let shorter = k.fair.entities[woken.index()].slice < k.fair.entities[curr.index()].slice;
    let short = shorter && k.fair.params.has(Features::PREEMPT_SHORT);
    if k.fair.params.picks_at_wakeup && fork && !short {
        return;
    }
    if would_pick(k, cpu, rq_id, !short) == Some(woken) {
        if short {
            k.fair.entities[curr.index()].cancel_protect_slice();
        }
        return k.resched_curr_lazy(cpu);
    }
    let Fair { params, rqs, entities, .. } = &mut k.fair;
    if (short || params.picks_at_wakeup) && params.has(Features::RUN_TO_PARITY) {
        rqs[rq_id.index()].update_protect_slice(entities, curr, params);
    }
}

/// Who would be picked from a queue now. Where a wake-up picks as a switch does, delayed sleepers whose turn came leave the
/// queue; before, one of them that was due kept the woken task from preempting.
fn would_pick(k: &mut Kernel, cpu: CpuId, rq: RqId, protect: bool) -> Option<EntityId> {
    loop {
        let Fair { params, rqs, entities, .. } = &k.fair;
        let queue = &rqs[rq.index()];
        if queue.nr_queued == 0 {
            return None;
        }
        let picked = queue.pick_eevdf(entities, protect, params)?;
        if !params.picks_at_wakeup || !entities[picked.index()].sched_delayed {
            return Some(picked);
        }
        dequeue_delayed(k, cpu, rq, picked);
    }
}

/// Takes a delayed sleeper whose turn came off its queue (`pick_next_entity`).
fn dequeue_delayed(k: &mut Kernel, cpu: CpuId, rq: RqId, picked: EntityId) {
    let delayed = k.fair.groups.layout.task_of(picked);
    let idle = delayed.is_some_and(|task| k.task(task).has_idle_policy());
    if delayed.is_some() {
        entity::update_load_avg(k, rq, Some(picked));
    }
    dequeue_entities(k, cpu, picked, flags::DEQUEUE_SLEEP | flags::DEQUEUE_DELAYED, idle);
    if let Some(task) = delayed {
        k.task_mut(task).on_rq = false;
    }
}

/// The current and the woken task, or the groups of them that compete.
pub(super) fn matching_entities(k: &Kernel, curr: TaskId, woken: TaskId) -> (EntityId, EntityId) {
    let layout = k.fair.groups.layout;
    find_matching(&k.fair, layout.entity_of(curr), layout.entity_of(woken))
}

/// Whether the current entity stands for idle work and the woken one does not, and whether they differ.
pub(super) fn compare_idle(k: &Kernel, curr: EntityId, woken: EntityId) -> (bool, bool) {
    let (curr, woken) = (is_idle_entity(k, curr), is_idle_entity(k, woken));
    (curr && !woken, curr != woken)
}

/// `pick_task_fair`: the next task, level by level, dequeuing delayed sleepers whose turn came.
pub(crate) fn pick_task(k: &mut Kernel, cpu: CpuId) -> Option<TaskId> {
    let mut rq = RqId::root(cpu);
    while k.fair.rqs[rq.index()].nr_queued > 0 {
        entity::update_curr(k, cpu, rq);
        if k.fair.rqs[rq.index()].limited && bandwidth::check_runtime(k, cpu, rq) {
            rq = RqId::root(cpu);
            continue;
        }
        let Fair { params, rqs, entities, .. } = &k.fair;
        let queue = &rqs[rq.index()];
        let picked = match params.generation {
            Generation::Cfs => queue.pick_cfs(entities, params),
            Generation::Eevdf => queue.pick_eevdf(entities, true, params),
        };
        let picked = picked?;
        if entities[picked.index()].sched_delayed {
            dequeue_delayed(k, cpu, rq, picked);
            rq = RqId::root(cpu);
            continue;
        }
        match k.fair.groups.layout.own_queue(picked) {
            Some(own) => rq = own,
            None => return k.fair.groups.layout.task_of(picked),
        }
    }
    None
}

/// `set_next_task_fair`: the task becomes current, with its groups as far as they are not.
pub(crate) fn set_next_task(k: &mut Kernel, task: TaskId) {
    k.fair.touch(task);
    let mut id = k.fair.groups.layout.entity_of(task);
    loop {
        let rq = k.fair.entities[id.index()].rq;
        // Queues that stay current are asked for quota too, as Linux asks at every level of a pick.
        if k.fair.rqs[rq.index()].curr.is_none() {
            entity::set_next_entity(k, rq, id);
        }
        if k.fair.rqs[rq.index()].limited {
            bandwidth::ensure_runtime(k, rq, task);
        }
        let Some(owner) = k.fair.groups.layout.owner(rq) else { break };
        id = owner;
    }
}

/// `hrtick_start_fair` and `hrtick_schedule_exit`: beside others the slice of the task that was picked ends by a timer and
/// not only at a tick. A task alone inherits the timer, an idle CPU stops it.
pub(crate) fn start_hrtick(k: &mut Kernel, cpu: CpuId, next: TaskId) {
    if next.is_idle() {
        k.cancel(Slot::Hrtick(cpu));
    } else if k.task(next).class == Class::Fair
        && let Some(left) = request_left(k, cpu, next).filter(|left| *left >= 0)
    {
        arm_hrtick(k, cpu, next, left);
    }
}

/// Virtual time to the task's deadline; `None` if no other task of the CPU is queued, on whatever level, nor delayed.
fn request_left(k: &Kernel, cpu: CpuId, task: TaskId) -> Option<i64> {
    let root = &k.fair.rqs[cpu.index()];
    let entity = k.fair.entity(task);
    (root.nr_runnable + root.nr_delayed > 1).then(|| entity.deadline - entity.vruntime)
}

/// `hrtick_start`: nothing changes if the timer would fire at nearly the same time.
fn arm_hrtick(k: &mut Kernel, cpu: CpuId, task: TaskId, left: i64) {
    // Rounded so that the request is served when the timer fires.
    let weight = u64::from(k.fair.entity(task).load.weight);
    let delay = (left as u64 * weight / 1_024 + weight / 1_024 + 1).max(HRTICK_MIN_NS);
    let at = k.now.max(k.cpu(cpu).kernel_until) + delay;
    let before = k.time_of(Slot::Hrtick(cpu));
    if before.is_none_or(|before| before.abs_diff(at) > HRTICK_NEAR_NS) {
        k.arm(Slot::Hrtick(cpu), at);
    }
}

/// `hrtick_update`: a task that ran alone has company now.
fn update_hrtick(k: &mut Kernel, cpu: CpuId) {
    let curr = k.cpu(cpu).curr;
    let running = k.task(curr).class == Class::Fair && k.fair.entity(curr).on_rq;
    if !running || k.is_armed(Slot::Hrtick(cpu)) {
        return;
    }
    match request_left(k, cpu, curr) {
        Some(left) if left < 0 => k.resched_curr(cpu),
        Some(left) => arm_hrtick(k, cpu, curr, left),
        None => {}
    }
}

/// `put_prev_task_fair`: the task stops being current, with its groups as far as the next task is not in them.
pub(crate) fn put_prev_task(k: &mut Kernel, cpu: CpuId, task: TaskId, next: TaskId) {
    let next = (k.task(next).class == Class::Fair).then(|| k.fair.groups.layout.entity_of(next));
    let mut id = k.fair.groups.layout.entity_of(task);
    loop {
        let rq = k.fair.entities[id.index()].rq;
        entity::put_prev_entity(k, cpu, rq, id);
        let Some(owner) = k.fair.groups.layout.owner(rq) else { break };
        if next.is_some_and(|next| k.fair.is_below(next, rq)) {
            break;
        }
        id = owner;
    }
    if k.fair.entity(task).on_rq {
        publish(k, cpu, task);
    }
}

/// The tick found a fair task running: `entity_tick` on every level.
pub(crate) fn task_tick(k: &mut Kernel, cpu: CpuId, task: TaskId) {
    let first = k.fair.groups.layout.entity_of(task);
    let mut level = Some(first);
    while let Some(id) = level {
        let rq = k.fair.entities[id.index()].rq;
        entity::update_load_avg(k, rq, Some(id));
        entity::update_curr(k, cpu, rq);
        if id == first {
            publish(k, cpu, task);
        } else {
            group::update_cfs_group(k, cpu, id);
        }
        if k.fair.params.generation == Generation::Cfs {
            cfs::check_preempt_tick(k, cpu, id);
        }
        level = k.fair.groups.layout.owner(rq);
    }
    if k.fair.entities[first.index()].throttle_work {
        k.resched_curr(cpu);
    }
}

/// `yield_task_fair`: an eligible task forfeits the rest of its slice.
pub(crate) fn yield_task(k: &mut Kernel, cpu: CpuId) {
    let id = k.fair.groups.layout.entity_of(k.cpu(cpu).curr);
    let rq_id = k.fair.entities[id.index()].rq;
    let contended = k.fair.rqs[rq_id.index()].nr_queued > 1 || k.fair.rqs[cpu.index()].nr_runnable > 1;
    if k.fair.params.generation == Generation::Cfs {
        if contended {
            cfs::yield_task(k, cpu, rq_id, id);
        }
        return;
    }
    entity::update_curr(k, cpu, rq_id);
    let Fair { rqs, entities, .. } = &mut k.fair;
    let rq = &mut rqs[rq_id.index()];
    if !contended || rq.curr != Some(id) {
        return;
    }
    rq.next = None;
    if rq.entity_eligible(entities, id) {
        let entity = &mut entities[id.index()];
        entity.vruntime = entity.deadline;
        entity.deadline += entity.load.virtual_time(entity.slice) as i64;
        rq.update_zero_vruntime(entities);
    }
}

/// Takes a task's new weight and slice; the task is off the queue (`sched_change` dequeues around it).
pub(crate) fn reweight(k: &mut Kernel, task: TaskId) {
    let state = k.task(task);
    let (weight, custom) = (state.weight, state.custom_slice);
    let id = k.fair.groups.layout.entity_of(task);
    let Fair { params, entities, .. } = &mut k.fair;
    let entity = &mut entities[id.index()];
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

/// Publishes the rank of a queued task in ns of virtual time: its deadline against the virtual time of its queue (CFS:
/// its vruntime against the queue's smallest).
fn publish(k: &mut Kernel, cpu: CpuId, task: TaskId) {
    if !k.trace.detail || k.task(task).class != Class::Fair {
        return;
    }
    let entity = k.fair.entity(task);
    let rq = &k.fair.rqs[entity.rq.index()];
    let key = match k.fair.params.generation {
        Generation::Eevdf => entity.deadline - rq.avg_vruntime(&k.fair.entities),
        Generation::Cfs => entity.vruntime - rq.min_vruntime,
    };
    k.publish_rank(cpu, task, key);
}
