//! Fetches what the event after next will need while the event at hand is handled, on large machines.
//!
//! The tasks of a thousand CPUs are more than the near caches hold, and each event is about another one. Reading
//! a word of each of its cache lines ahead of time lets the processor wait for all of them at once, beside
//! useful work. It changes nothing: what is read is thrown away.

use crate::kernel::Slot;
use crate::simulation::Simulation;
use schedlab_model::{CpuId, TaskId};
use std::hint::black_box;

/// CPUs from which on it pays: the state of fewer stays in the near caches anyway.
pub(crate) const CPUS_MIN: usize = 64;

impl Simulation {
    /// Reads what an event will read.
    #[inline(never)]
    pub(crate) fn warm(&self, slot: Slot) {
        match slot {
            Slot::Task(task) => self.warm_task(task, self.core.k.task(task).cpu),
            Slot::Cpu(cpu, _) => self.warm_task(self.core.k.cpu(cpu).curr, cpu),
            _ => {}
        }
    }

    #[inline]
    fn warm_task(&self, task: TaskId, cpu: CpuId) {
        let (state, actor, here) =
            (self.core.k.task(task), &self.work.actors[task.index()], self.core.k.cpu(cpu));
        let words = [
            state.work_left,
            state.migrations,
            state.state as u64,
            actor.timer_due,
            u64::from(actor.pc),
            here.kernel_until,
            here.resched as u64,
            self.core.k.resume_time(cpu),
            self.core.ext.warm(task, cpu),
        ];
        black_box(words);
    }
}
