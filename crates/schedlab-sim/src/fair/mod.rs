//! The fair class: EEVDF as in Linux 6.6 to 7.2, CFS as in 5.7 to 6.5.
//!
//! [`class`] has the functions of `struct sched_class`, which walk the levels of groups, [`entity`] what happens on one
//! level, [`queue`] EEVDF's arithmetic on one queue, [`cfs`] that of CFS, [`group`] weights of groups, [`bandwidth`]
//! their quotas, [`select`] wake-up placement, [`shared`] its hints, [`balance`] and [`imbalance`] load balancing, [`misfit`] strong and weak
//! CPUs, [`params`] knobs and features, [`weight`] the division by weights, [`ids`] the rows of the tables. Not here: core
//! scheduling.

pub(crate) mod balance;
pub(crate) mod bandwidth;
pub(crate) mod cfs;
pub(crate) mod class;
mod entity;
pub(crate) mod group;
pub(crate) mod ids;
mod imbalance;
pub(crate) mod misfit;
pub(crate) mod packing;
pub(crate) mod params;
pub(crate) mod pelt;
pub(crate) mod queue;
pub(crate) mod select;
pub(crate) mod shared;
#[cfg(test)]
mod tests;
pub(crate) mod weight;

pub(crate) use params::FairParams;
pub(crate) use queue::FairEntity;

use crate::kernel::Task;
use group::Groups;
use ids::{EntityId, RqId};
use params::Generation;
use queue::CfsRq;
use schedlab_model::workload::Past;
use schedlab_model::workload::change::CgroupSpec;
use schedlab_model::{CpuId, TaskId};

/// All of the class's state.
pub(crate) struct Fair {
    /// Knobs.
    pub(crate) params: FairParams,
    /// Queues: one a CPU, then one a CPU for each group.
    pub(crate) rqs: Vec<CfsRq>,
    /// Hints of caches for wake-ups, by number of span.
    pub(crate) shared: Vec<shared::Shared>,
    /// Load balancing.
    pub(crate) balance: balance::Balance,
    /// Entities: one a CPU for each group, then one a task, of every class.
    pub(crate) entities: Vec<FairEntity>,
    /// Groups.
    pub(crate) groups: Groups,
    /// By CPU: its running task is to go to another ([`misfit`], [`packing`]).
    pub(crate) pushes: Vec<Option<(TaskId, CpuId)>>,
    /// Whether there ever was one.
    pub(crate) has_pushed: bool,
    /// Counts moves to the head of a CPU's list of tasks.
    list_head: u64,
}

impl Fair {
    /// Empty queues for these groups, parents before children; the first task's row is the idle task's, never used.
    pub(crate) fn new(params: FairParams, cpus: usize, groups: &[CgroupSpec]) -> Fair {
        let groups = Groups::new(groups, cpus);
        let mut entities = group::entities(&groups, &params);
        entities.push(FairEntity::new(1, 0, &params));
        Fair {
            rqs: (0..cpus * groups.list.len()).map(|_| CfsRq::new(params.generation)).collect(),
            shared: Vec::new(),
            balance: balance::Balance::new(cpus),
            entities,
            groups,
            pushes: vec![None; cpus],
            has_pushed: false,
            list_head: 0,
            params,
        }
    }

    /// The entity of a new task.
    pub(crate) fn add_entity(&mut self, task: &Task) {
        self.entities.push(FairEntity::new(task.weight, task.custom_slice, &self.params));
    }

    /// A task's entity.
    #[inline]
    pub(crate) fn entity(&self, task: TaskId) -> &FairEntity {
        &self.entities[self.groups.layout.entity_of(task).index()]
    }

    /// What the task did before the run.
    pub(crate) fn set_past(&mut self, task: TaskId, past: Past) {
        let id = self.groups.layout.entity_of(task);
        let entity = &mut self.entities[id.index()];
        entity.past = past;
        if past == Past::Ran {
            entity.average.saturate();
        }
    }

    /// Moves a task to the head of its CPU's list (`cfs_tasks`), of which balancing takes the tail.
    #[inline]
    pub(crate) fn touch(&mut self, task: TaskId) {
        self.list_head += 1;
        let id = self.groups.layout.entity_of(task);
        self.entities[id.index()].list_position = self.list_head;
    }

    /// Puts a task that is on no queue into a group.
    pub(crate) fn set_group(&mut self, task: TaskId, group: u32) {
        let id = self.groups.layout.entity_of(task);
        self.entities[id.index()].group = group;
    }

    /// The group's entity that an entity's queue belongs to; `None` on a root queue.
    pub(crate) fn parent(&self, entity: EntityId) -> Option<EntityId> {
        self.groups.layout.owner(self.entities[entity.index()].rq)
    }

    /// Whether an entity is on a queue or below it.
    fn is_below(&self, entity: EntityId, rq: RqId) -> bool {
        let mut level = Some(entity);
        while let Some(id) = level {
            if self.entities[id.index()].rq == rq {
                return true;
            }
            level = self.parent(id);
        }
        false
    }

    /// Whether a task must leave a queue without quota on its way back to user space.
    #[inline]
    pub(crate) fn has_throttle_work(&self, task: TaskId) -> bool {
        self.groups.bandwidth_used && self.entity(task).throttle_work
    }

    /// Whether a group's queue is throttled as a whole, as before 6.18: its entity is off the queue above.
    fn is_dequeued(&self, rq: RqId) -> bool {
        self.groups.bandwidth_used && !self.params.throttles_tasks && self.groups.queue(rq).quota.throttled
    }

    /// A group has the shortest slice of those in it, so that it is served in time for them.
    fn give_shortest_slice(&mut self, rq: RqId, owner: EntityId) {
        if self.params.generation == Generation::Eevdf && self.rqs[rq.index()].nr_queued > 0 {
            let slice = self.rqs[rq.index()].min_slice(&self.entities, &self.params);
            let entity = &mut self.entities[owner.index()];
            if !entity.on_rq {
                entity.custom_slice = true;
            }
            entity.slice = slice;
        }
    }

    /// Whether a wake-up wants a task to run next.
    pub(crate) fn is_buddy(&self, task: TaskId) -> bool {
        let rq = &self.rqs[self.entity(task).rq.index()];
        [rq.next, rq.last].contains(&Some(self.groups.layout.entity_of(task)))
    }

    /// Whether a queued task is owed service on its queue (`entity_eligible`).
    pub(crate) fn is_eligible(&self, task: TaskId) -> bool {
        let rq = &self.rqs[self.entity(task).rq.index()];
        rq.entity_eligible(&self.entities, self.groups.layout.entity_of(task))
    }

    /// Tasks queued on a CPU that do not run, of every group (`rq->cfs_tasks`).
    pub(crate) fn queued_tasks(&self, cpu: CpuId, mut each: impl FnMut(TaskId)) {
        let (mut rq, mut below) = (RqId::root(cpu), Vec::new());
        loop {
            let queue = &self.rqs[rq.index()];
            queue.queued().for_each(|id| match self.groups.layout.task_of(id) {
                Some(task) => each(task),
                None => below.extend(self.groups.layout.own_queue(id)),
            });
            below.extend(queue.curr.and_then(|curr| self.groups.layout.own_queue(curr)));
            let Some(next) = below.pop() else { return };
            rq = next;
        }
    }
}
