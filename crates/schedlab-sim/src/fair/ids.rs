//! Rows of the entity table and of the queue table, and the arithmetic between them.
//!
//! Queues: one a CPU for the root group, then one a CPU for each further group. Entities: for each group but the root
//! one a CPU, then one a task. So a group's entity, its queue and the queue's CPU follow from each other by addition,
//! and without groups a task's entity and a CPU's queue have the numbers of the task and of the CPU.

use schedlab_model::{CpuId, TaskId};

/// An entity: a task's, or a group's on one CPU (`struct sched_entity`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EntityId(pub(crate) u32);

/// A queue: a group's on one CPU (`struct cfs_rq`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RqId(pub(crate) u32);

impl EntityId {
    /// As an index.
    #[inline]
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

impl RqId {
    /// The root group's queue on a CPU.
    #[inline]
    pub(crate) fn root(cpu: CpuId) -> RqId {
        RqId(cpu.0)
    }

    /// As an index.
    #[inline]
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// How the tables are laid out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// CPUs that groups have queues on; without groups larger than any row.
    cpus: u32,
    /// Row of the first task's entity.
    first_task: u32,
}

impl Layout {
    /// The layout for so many groups besides the root.
    pub(crate) fn new(groups: usize, cpus: usize) -> Layout {
        match groups as u32 {
            0 => Layout { cpus: u32::MAX, first_task: 0 },
            groups => Layout { cpus: cpus as u32, first_task: groups * cpus as u32 },
        }
    }

    /// Whether there is none but the root group.
    #[inline]
    pub(crate) fn is_flat(&self) -> bool {
        self.first_task == 0
    }

    /// Number of groups' entities.
    pub(crate) fn group_entities(&self) -> usize {
        self.first_task as usize
    }

    /// A task's entity.
    #[inline]
    pub(crate) fn entity_of(&self, task: TaskId) -> EntityId {
        EntityId(self.first_task + task.0)
    }

    /// The task of an entity; `None` for a group's.
    #[inline]
    pub(crate) fn task_of(&self, entity: EntityId) -> Option<TaskId> {
        entity.0.checked_sub(self.first_task).map(TaskId)
    }

    /// A group's queue on a CPU (`tg_cfs_rq`).
    #[inline]
    pub(crate) fn queue_of(&self, group: u32, cpu: CpuId) -> RqId {
        if group == 0 { RqId(cpu.0) } else { RqId(group * self.cpus + cpu.0) }
    }

    /// The queue that a group's entity stands for (`group_cfs_rq`); `None` for a task's.
    #[inline]
    pub(crate) fn own_queue(&self, entity: EntityId) -> Option<RqId> {
        (entity.0 < self.first_task).then(|| RqId(entity.0 + self.cpus))
    }

    /// The entity that stands for a queue in the queue above; `None` for a root queue.
    #[inline]
    pub(crate) fn owner(&self, rq: RqId) -> Option<EntityId> {
        rq.0.checked_sub(self.cpus).map(EntityId)
    }

    /// The group of a queue.
    pub(crate) fn group_of(&self, rq: RqId) -> usize {
        (rq.0 / self.cpus) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two groups on four CPUs: queues 0-3 root, 4-7, 8-11; entities 0-3, 4-7, then tasks from 8.
    #[test]
    fn rows_follow_from_each_other() {
        let layout = Layout::new(2, 4);
        assert_eq!(layout.entity_of(TaskId(1)), EntityId(9));
        assert_eq!(layout.queue_of(2, CpuId(1)), RqId(9));
        let owner = layout.owner(RqId(9));
        assert_eq!(owner, Some(EntityId(5)));
        assert_eq!(layout.own_queue(EntityId(5)), Some(RqId(9)));
        assert_eq!((layout.task_of(EntityId(5)), layout.task_of(EntityId(9))), (None, Some(TaskId(1))));
        assert_eq!((layout.owner(RqId(3)), layout.group_of(RqId(3)), layout.group_of(RqId(9))), (None, 0, 2));
    }

    #[test]
    fn without_groups_rows_are_those_of_cpus_and_tasks() {
        let layout = Layout::new(0, 4);
        assert_eq!((layout.entity_of(TaskId(7)), layout.queue_of(0, CpuId(3))), (EntityId(7), RqId(3)));
        assert_eq!((layout.owner(RqId(900)), layout.own_queue(EntityId(0))), (None, None));
    }
}
