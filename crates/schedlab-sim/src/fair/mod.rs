//! The fair class: EEVDF as in Linux 6.6 to 7.2, CFS as in 5.7 to 6.5.
//!
//! [`queue`] is EEVDF's arithmetic on one run queue, [`class`] the functions of `struct sched_class`, [`cfs`] CFS,
//! [`select`] wake-up placement, [`balance`] load balancing, [`params`] knobs and features, [`weight`] the
//! division by weights. Not here: group scheduling, bandwidth control, core scheduling.

pub(crate) mod balance;
pub(crate) mod cfs;
pub(crate) mod class;
pub(crate) mod params;
pub(crate) mod pelt;
pub(crate) mod queue;
pub(crate) mod select;
#[cfg(test)]
mod tests;
pub(crate) mod weight;

pub(crate) use params::FairParams;
pub(crate) use queue::FairEntity;

use crate::kernel::Task;
use queue::CfsRq;
use schedlab_model::TaskId;

/// All of the class's state.
pub(crate) struct Fair {
    /// Knobs.
    pub(crate) params: FairParams,
    /// One queue a CPU.
    pub(crate) rqs: Vec<CfsRq>,
    /// Load balancing.
    pub(crate) balance: balance::Balance,
    /// One entity a task, for tasks of every class.
    pub(crate) entities: Vec<FairEntity>,
}

impl Fair {
    /// Empty queues; row 0 of the entities is the idle task's, never used.
    pub(crate) fn new(params: FairParams, cpus: usize) -> Fair {
        let idle = FairEntity::new(1, 0, &params);
        Fair {
            rqs: (0..cpus).map(|_| CfsRq::new(params.generation)).collect(),
            balance: balance::Balance::new(cpus),
            entities: vec![idle],
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
        &self.entities[task.index()]
    }
}
