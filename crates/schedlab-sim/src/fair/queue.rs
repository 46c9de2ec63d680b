//! EEVDF's arithmetic on one run queue: weighted average, lag, eligibility, placement, pick.
//!
//! Pure: entities and a queue, no CPUs, no clock. The class functions that call it are in
//! [`crate::fair::class`]. Names are those of kernel/sched/fair.c. The tree of Linux is a vector sorted by
//! deadline (for CFS by vruntime) here: with few tasks a queue that is faster, and the order (ties first come, first served) is
//! the same.

use super::ids::{EntityId, RqId};
use super::params::{FairParams, Features, Generation};
use super::pelt::Average;
use super::weight::Load;
use crate::ahead::Row;
use schedlab_model::workload::Past;

/// A task as the fair class sees it (`struct sched_entity`), in whole cache lines.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct FairEntity {
    /// Weight.
    pub(crate) load: Load,
    /// Virtual run time in ns.
    pub(crate) vruntime: i64,
    /// Virtual deadline, relative to `vruntime` while `rel_deadline`.
    pub(crate) deadline: i64,
    /// Lag at the last dequeue, in virtual time.
    pub(crate) vlag: i64,
    /// Protected from preemption until this virtual time.
    pub(crate) vprot: i64,
    /// Slice in ns.
    pub(crate) slice: u64,
    /// The slice is the task's own.
    pub(crate) custom_slice: bool,
    /// On the queue (current and delayed included).
    pub(crate) on_rq: bool,
    /// Asleep, but still on the queue to burn off negative lag.
    pub(crate) sched_delayed: bool,
    /// `deadline` is relative.
    pub(crate) rel_deadline: bool,
    /// When it ran last, `exec_start`.
    pub(crate) exec_start: u64,
    /// Place in the queue's list of tasks; who was enqueued or picked last has the highest.
    pub(crate) list_position: u64,
    /// CFS: the queue whose `min_vruntime` the vruntime counts from; `None` counts from 0.
    pub(crate) home: Option<RqId>,
    /// CPU time in the class.
    pub(crate) sum_exec: u64,
    /// CFS: CPU time when it was picked last (`prev_sum_exec_runtime`).
    pub(crate) prev_sum_exec: u64,
    /// Its averages.
    pub(crate) average: Average,
    /// The queue whose averages contain it.
    pub(crate) attached: Option<RqId>,
    /// What a task did before the run: a guess of its use is made of new ones only.
    pub(crate) past: Past,
    /// The queue it is on, or was last (`cfs_rq`).
    pub(crate) rq: RqId,
    /// A task's use when it went to sleep, smoothed (`util_est`); kept where CPUs differ in strength.
    pub(crate) util_est: u32,
    /// A task's group, 0 for the root (`sched_task_group`).
    pub(crate) group: u32,
    /// A task that must leave its throttled queue when it returns to its own work (`sched_throttle_work`).
    pub(crate) throttle_work: bool,
    /// A task that has left it, until there is quota again (`p->throttled`).
    pub(crate) throttled: bool,
}

impl Row for FairEntity {
    const HOT_BYTES: usize = size_of::<FairEntity>();
}

/// What the search for the next task needs, in the tree's order.
#[derive(Clone, Copy, Debug)]
struct Node {
    /// What the tree is ordered by.
    order: i64,
    vruntime: i64,
    id: EntityId,
}

/// Nodes that are gone through and moved one by one: a search, and a call that moves those behind, take longer.
const FEW: usize = 16;

/// Puts a node behind all that are not later.
#[inline]
fn insert_among_few(nodes: &mut Vec<Node>, node: Node) {
    let mut at = nodes.len();
    nodes.push(node);
    while at > 0 && nodes[at - 1].order > node.order {
        nodes[at] = nodes[at - 1];
        at -= 1;
    }
    nodes[at] = node;
}

#[inline]
fn remove_among_few(nodes: &mut Vec<Node>, at: usize) {
    for behind in at + 1..nodes.len() {
        nodes.swap(behind - 1, behind);
    }
    nodes.pop();
}

/// One CPU's queue (`struct cfs_rq`), in whole cache lines.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct CfsRq {
    /// Queued entities but the current one, by deadline (CFS: by vruntime).
    nodes: Vec<Node>,
    generation: Generation,
    /// The current entity, if it is a fair task.
    pub(crate) curr: Option<EntityId>,
    /// Σ weight · (vruntime − `zero_vruntime`) over `nodes`.
    sum_w_vruntime: i64,
    /// Σ weight over `nodes`.
    sum_weight: i64,
    /// Reference point, follows the average (`min_vruntime` before 6.19; only rounding knows the difference).
    zero_vruntime: i64,
    /// Entities on the queue, current and delayed included (`nr_queued`).
    pub(crate) nr_queued: u32,
    /// Of them runnable (`h_nr_runnable`).
    pub(crate) nr_runnable: u32,
    /// On the root queue: delayed sleepers on every level (`h_nr_queued` − `h_nr_runnable`).
    pub(crate) nr_delayed: u32,
    /// Runnable with policy IDLE (`h_nr_idle`).
    pub(crate) nr_idle: u32,
    /// Entities with a custom slice.
    nr_custom: u32,
    /// Σ weight of all entities on the queue (`load.weight`).
    pub(crate) load_weight: u64,
    /// `cfs_rq->next`: whom a wake-up wants to run next.
    pub(crate) next: Option<EntityId>,
    /// CFS: whom a wake-up has preempted.
    pub(crate) last: Option<EntityId>,
    /// CFS: who yielded.
    pub(crate) skip: Option<EntityId>,
    /// CFS: the smallest vruntime there was on the queue, never falling.
    pub(crate) min_vruntime: i64,
    /// Averages of all that is attached.
    pub(crate) average: Average,
    /// The queue of a group with `cpu.idle`.
    pub(crate) idle: bool,
    /// The queue of a group with a quota (`runtime_enabled`).
    pub(crate) limited: bool,
}

impl Row for CfsRq {
    const HOT_BYTES: usize = size_of::<CfsRq>();
}

impl CfsRq {
    /// An empty queue.
    pub(crate) fn new(generation: Generation) -> CfsRq {
        CfsRq { generation, ..CfsRq::default() }
    }

    /// What the entity is ordered by in the tree.
    #[inline]
    fn order(&self, entity: &FairEntity) -> i64 {
        match self.generation {
            Generation::Eevdf => entity.deadline,
            Generation::Cfs => entity.vruntime,
        }
    }

    /// The leftmost in the tree.
    pub(crate) fn first(&self) -> Option<EntityId> {
        self.nodes.first().map(|node| node.id)
    }

    /// `entity_key`.
    #[inline]
    fn key(&self, vruntime: i64) -> i64 {
        vruntime - self.zero_vruntime
    }

    /// Σ weight · key and Σ weight over everything on the queue.
    #[inline]
    fn sums(&self, entities: &[FairEntity]) -> (i64, i64) {
        match self.curr.map(|curr| &entities[curr.index()]) {
            Some(curr) if curr.on_rq => {
                let weight = i64::from(curr.load.weight);
                (self.sum_w_vruntime + self.key(curr.vruntime) * weight, self.sum_weight + weight)
            }
            _ => (self.sum_w_vruntime, self.sum_weight),
        }
    }

    /// `avg_vruntime`: the virtual time V of the queue, rounded down.
    pub(crate) fn avg_vruntime(&self, entities: &[FairEntity]) -> i64 {
        let (sum, weight) = self.sums(entities);
        if weight == 0 { self.zero_vruntime } else { self.zero_vruntime + sum.div_euclid(weight) }
    }

    /// `vruntime_eligible`: whether Σ weight · key of the queue, `sum`, is at least key · Σ weight. Of the few that a pick looks
    /// at, a product each takes less time than one division.
    #[inline]
    fn is_eligible(&self, (sum, weight): (i64, i64), vruntime: i64) -> bool {
        i128::from(self.key(vruntime)) * i128::from(weight) <= i128::from(sum) || weight == 0
    }

    /// `entity_eligible`.
    pub(crate) fn entity_eligible(&self, entities: &[FairEntity], id: EntityId) -> bool {
        self.is_eligible(self.sums(entities), entities[id.index()].vruntime)
    }

    /// `entity_lag`: how much virtual time the entity is owed, clamped to the larger of two slices and a tick.
    /// Since 7.2 to the longest slice on the queue and a tick.
    pub(crate) fn entity_lag(
        &self,
        entities: &[FairEntity],
        id: EntityId,
        tick_ns: u64,
        params: &FairParams,
    ) -> i64 {
        let entity = &entities[id.index()];
        let limit = if params.later_lag_rules {
            self.max_slice(entities, params) + tick_ns
        } else {
            (2 * entity.slice).max(tick_ns)
        };
        let limit = entity.load.virtual_time(limit) as i64;
        (self.avg_vruntime(entities) - entity.vruntime).clamp(-limit, limit)
    }

    /// `cfs_rq_min_slice`: shortest slice on the queue.
    pub(super) fn min_slice(&self, entities: &[FairEntity], params: &FairParams) -> u64 {
        if self.nr_custom == 0 {
            return params.base_slice;
        }
        let curr = self.curr.filter(|curr| entities[curr.index()].on_rq);
        let all = self.nodes.iter().map(|node| node.id).chain(curr);
        all.map(|id| entities[id.index()].slice).min().unwrap_or(params.base_slice)
    }

    /// `cfs_rq_max_slice`: longest slice on the queue.
    fn max_slice(&self, entities: &[FairEntity], params: &FairParams) -> u64 {
        if self.nr_custom == 0 {
            return params.base_slice;
        }
        let curr = self.curr.filter(|curr| entities[curr.index()].on_rq);
        let all = self.nodes.iter().map(|node| node.id).chain(curr);
        all.map(|id| entities[id.index()].slice).max().unwrap_or(params.base_slice)
    }

    /// Moves the reference point to the average, so that keys stay small (`update_zero_vruntime`).
    pub(crate) fn update_zero_vruntime(&mut self, entities: &[FairEntity]) {
        let delta = self.avg_vruntime(entities) - self.zero_vruntime;
        self.sum_w_vruntime -= self.sum_weight * delta;
        self.zero_vruntime += delta;
    }

    /// The same when the current entity has run far from it; cheap enough for every account.
    #[inline]
    pub(crate) fn keep_zero_vruntime_near(&mut self, entities: &[FairEntity], vruntime: i64) {
        const FAR_NS: i64 = 1 << 32;
        if self.key(vruntime) > FAR_NS {
            self.update_zero_vruntime(entities);
        }
    }

    /// `update_deadline`: a new request when the old one is served. Whether it was.
    pub(crate) fn update_deadline(entity: &mut FairEntity, params: &FairParams) -> bool {
        if entity.vruntime < entity.deadline {
            return false;
        }
        if !entity.custom_slice {
            entity.slice = params.base_slice;
        }
        entity.deadline = entity.vruntime + entity.load.virtual_time(entity.slice) as i64;
        true
    }

    /// `place_entity`: vruntime from the lag kept, inflated so that it is what was left after the entity's own
    /// pull on the average; deadline one slice later, half a slice for new tasks.
    pub(crate) fn place_entity(
        &mut self,
        entities: &mut [FairEntity],
        id: EntityId,
        initial: bool,
        params: &FairParams,
    ) {
        let average = self.avg_vruntime(entities);
        let (_, weight) = self.sums(entities);
        let entity = &mut entities[id.index()];
        if !entity.custom_slice {
            entity.slice = params.base_slice;
        }
        let mut vslice = entity.load.virtual_time(entity.slice) as i64;
        let mut lag = 0;
        if params.has(Features::PLACE_LAG) && self.nr_queued > 0 && entity.vlag != 0 {
            lag = entity.vlag * (weight + i64::from(entity.load.weight)) / weight.max(1);
        }
        entity.vruntime = average - lag;
        if entity.rel_deadline {
            entity.deadline += entity.vruntime;
            entity.rel_deadline = false;
            return;
        }
        if initial && params.has(Features::PLACE_DEADLINE_INITIAL) {
            vslice /= 2;
        }
        entity.deadline = entity.vruntime + vslice;
    }

    /// `account_entity_enqueue` and, unless it is current, `__enqueue_entity`.
    pub(crate) fn account_enqueue(&mut self, entities: &mut [FairEntity], id: EntityId) {
        let entity = &mut entities[id.index()];
        entity.on_rq = true;
        self.nr_queued += 1;
        self.load_weight += u64::from(entity.load.weight);
        self.nr_custom += u32::from(entity.custom_slice);
        if self.curr != Some(id) {
            self.insert(entities, id);
        }
    }

    /// `account_entity_dequeue` and, unless it is current, `__dequeue_entity`.
    pub(crate) fn account_dequeue(&mut self, entities: &mut [FairEntity], id: EntityId) {
        if self.curr != Some(id) {
            self.remove(entities, id);
        }
        let entity = &mut entities[id.index()];
        entity.on_rq = false;
        self.nr_queued -= 1;
        self.load_weight -= u64::from(entity.load.weight);
        self.nr_custom -= u32::from(entity.custom_slice);
    }

    /// One more is runnable; `idle` if its policy is IDLE.
    #[inline]
    pub(crate) fn add_runnable(&mut self, idle: bool) {
        self.nr_runnable += 1;
        self.nr_idle += u32::from(idle);
    }

    /// One less is runnable.
    #[inline]
    pub(crate) fn remove_runnable(&mut self, idle: bool) {
        self.nr_runnable -= 1;
        self.nr_idle -= u32::from(idle);
    }

    /// `__enqueue_entity`: into the tree.
    pub(crate) fn insert(&mut self, entities: &[FairEntity], id: EntityId) {
        let entity = &entities[id.index()];
        let weight = i64::from(entity.load.weight);
        self.sum_w_vruntime += self.key(entity.vruntime) * weight;
        self.sum_weight += weight;
        let node = Node { order: self.order(entity), vruntime: entity.vruntime, id };
        if self.nodes.len() < FEW {
            return insert_among_few(&mut self.nodes, node);
        }
        let at = self.nodes.partition_point(|other| other.order <= node.order);
        self.nodes.insert(at, node);
    }

    /// `__dequeue_entity`: out of the tree.
    pub(crate) fn remove(&mut self, entities: &[FairEntity], id: EntityId) {
        let entity = &entities[id.index()];
        let weight = i64::from(entity.load.weight);
        self.sum_w_vruntime -= self.key(entity.vruntime) * weight;
        self.sum_weight -= weight;
        let order = self.order(entity);
        let few = self.nodes.len() <= FEW;
        let first = if few { 0 } else { self.nodes.partition_point(|node| node.order < order) };
        let offset = self.nodes[first..].iter().position(|node| node.id == id);
        let at = first + offset.expect("a queued entity is in the tree at its place");
        if few {
            return remove_among_few(&mut self.nodes, at);
        }
        self.nodes.remove(at);
    }

    /// `set_protect_slice`: up to what virtual time the entity just picked runs unchallenged.
    pub(crate) fn set_protect_slice(&self, entities: &mut [FairEntity], id: EntityId, params: &FairParams) {
        let parity = params.has(Features::RUN_TO_PARITY);
        let shortest = if parity { self.min_slice(entities, params) } else { params.normalized_base_slice };
        let entity = &mut entities[id.index()];
        let slice = shortest.min(entity.slice);
        entity.vprot = entity.deadline;
        if slice != entity.slice {
            let end = entity.vruntime + entity.load.virtual_time(slice) as i64;
            entity.vprot = entity.vprot.min(end);
        }
    }

    /// `update_protect_slice`: the protection shrinks to the shortest slice now on the queue.
    pub(crate) fn update_protect_slice(
        &self,
        entities: &mut [FairEntity],
        id: EntityId,
        params: &FairParams,
    ) {
        let slice = self.min_slice(entities, params);
        let entity = &mut entities[id.index()];
        let end = entity.vruntime + entity.load.virtual_time(slice) as i64;
        entity.vprot = entity.vprot.min(end);
    }

    /// `pick_eevdf`: the earliest deadline among the eligible. With `protect` the current entity goes on while
    /// its slice is protected.
    pub(crate) fn pick_eevdf(
        &self,
        entities: &[FairEntity],
        protect: bool,
        params: &FairParams,
    ) -> Option<EntityId> {
        let curr = self.curr.filter(|curr| entities[curr.index()].on_rq);
        if self.nr_queued == 1 {
            return curr.or_else(|| self.nodes.first().map(|node| node.id));
        }
        let sums = self.sums(entities);
        let eligible = |vruntime: i64| self.is_eligible(sums, vruntime);
        if let Some(next) =
            self.next.filter(|_| params.has(Features::PICK_BUDDY) && (protect || !params.later_lag_rules))
        {
            let entity = &entities[next.index()];
            if !entity.sched_delayed && eligible(entity.vruntime) {
                return Some(next);
            }
        }
        let curr = curr.map(|curr| (curr, &entities[curr.index()])).filter(|(_, c)| eligible(c.vruntime));
        if let Some((id, entity)) = curr
            && protect
            && entity.protect_slice()
        {
            return Some(id);
        }
        let best = self.nodes.iter().find(|node| eligible(node.vruntime));
        match (curr, best) {
            (Some((id, entity)), Some(best)) if entity.deadline < best.order => Some(id),
            (_, Some(best)) => Some(best.id),
            (Some((id, _)), None) => Some(id),
            // Rounding cannot leave everybody ineligible: the smallest vruntime is at most the average.
            (None, None) => self.nodes.first().map(|node| node.id),
        }
    }

    /// Tasks in the tree (the current one is not), by deadline.
    pub(crate) fn queued(&self) -> impl DoubleEndedIterator<Item = EntityId> + '_ {
        self.nodes.iter().map(|node| node.id)
    }
}

impl FairEntity {
    /// A new entity.
    pub(crate) fn new(weight: u32, custom_slice: u64, params: &FairParams) -> FairEntity {
        let slice = if custom_slice > 0 { custom_slice } else { params.base_slice };
        FairEntity {
            load: Load::new(weight),
            vruntime: 0,
            deadline: 0,
            vlag: 0,
            vprot: 0,
            slice,
            custom_slice: custom_slice > 0,
            on_rq: false,
            sched_delayed: false,
            rel_deadline: false,
            exec_start: 0,
            list_position: 0,
            home: None,
            sum_exec: 0,
            prev_sum_exec: 0,
            average: Average::of_new_task(u64::from(weight)),
            attached: None,
            past: Past::New,
            rq: RqId(0),
            util_est: 0,
            group: 0,
            throttle_work: false,
            throttled: false,
        }
    }

    /// Advances the vruntime by the time since the last account. How much that was, in ns.
    #[inline]
    pub(crate) fn charge(&mut self, now: u64) -> u64 {
        let delta = now - std::mem::replace(&mut self.exec_start, now);
        self.vruntime += self.load.virtual_time(delta) as i64;
        self.sum_exec += delta;
        delta
    }

    /// `protect_slice`.
    #[inline]
    pub(crate) fn protect_slice(&self) -> bool {
        self.vprot > self.vruntime
    }

    /// `cancel_protect_slice`.
    pub(crate) fn cancel_protect_slice(&mut self) {
        if self.protect_slice() {
            self.vprot = self.vruntime;
        }
    }
}
