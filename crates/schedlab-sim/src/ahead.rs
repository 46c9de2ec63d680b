//! Bringing memory near before it is needed.
//!
//! What the events of a thousand CPUs touch is far more than near caches hold, but the events of the next microsecond
//! are known: while one is handled, the processor fetches what the next ones touch. A hint only: nothing depends on it,
//! and where the processor's hint is not known, nothing happens. On small machines it would cost more than it brings.

use crate::kernel::{CpuEvent, Slot};
use crate::simulation::Simulation;
use schedlab_model::{CpuId, TaskId};

/// From so many tasks on they do not fit near caches.
pub(crate) const TASKS_MIN: usize = 2_048;
/// Bytes of a cache line.
const LINE: usize = 64;

/// A row of a table that events touch.
pub(crate) trait Row {
    /// So many bytes at its begin are touched by nearly every event that touches it at all.
    const HOT_BYTES: usize;
}

/// Asks for the lines of these bytes.
#[inline]
fn fetch(bytes: *const u8, len: usize) {
    for offset in (0..len).step_by(LINE) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the hint reads nothing and faults at no address.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(bytes.wrapping_add(offset).cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (bytes, offset);
    }
}

/// Asks for a row of a table.
#[inline]
pub(crate) fn fetch_row<T: Row>(table: &[T], row: usize) {
    if let Some(row) = table.get(row) {
        fetch(std::ptr::from_ref(row).cast(), T::HOT_BYTES);
    }
}

/// Asks for these bytes.
#[inline]
pub(crate) fn fetch_bytes(bytes: &[u8]) {
    fetch(bytes.as_ptr(), bytes.len());
}

impl Simulation {
    /// What the next events touch. Of the first, what is found through its task; of the second, its task; of another whose
    /// order is not known yet, its CPU or task: each step needs what the one before has fetched.
    #[inline(never)]
    pub(crate) fn fetch_ahead(&mut self) {
        let [first, second] = [0, 1].map(|others| self.core.k.soon(others));
        match first {
            Some(Slot::Task(task)) => {
                let cpu = self.core.k.task(task).cpu;
                self.fetch_cpu(cpu);
                self.core.k.fetch_resume(cpu);
                self.fetch_through(cpu, task);
            }
            Some(Slot::Cpu(cpu, CpuEvent::Resume)) => {
                let task = self.core.k.cpu(cpu).curr;
                self.core.k.fetch_timer(task);
                self.fetch_through(cpu, task);
            }
            _ => {}
        }
        if let Some(Slot::Cpu(cpu, CpuEvent::Resume)) = second {
            self.fetch_task(self.core.k.cpu(cpu).curr);
        }
        match self.core.k.fetch_next() {
            Some(Slot::Cpu(cpu, _)) => self.fetch_cpu(cpu),
            Some(Slot::Task(task)) => self.fetch_task(task),
            _ => {}
        }
    }

    /// What is found through a CPU and a task whose rows are near.
    #[inline]
    fn fetch_through(&mut self, cpu: CpuId, task: TaskId) {
        self.work.slack_timers.fetch(cpu);
        let step = self.work.actors[task.index()].pc as usize;
        fetch_row(&self.work.code.steps, step);
        self.core.ext.fetch_structs(cpu, task);
    }

    /// The rows of a CPU.
    #[inline]
    fn fetch_cpu(&mut self, cpu: CpuId) {
        fetch_row(&self.core.k.cpus, cpu.index());
        if !self.core.ext.has_switched_all() {
            fetch_row(&self.core.k.fair.rqs, cpu.index());
        }
        self.core.ext.fetch_cpu(cpu);
    }

    /// The rows of a task.
    #[inline]
    fn fetch_task(&mut self, task: TaskId) {
        let k = &self.core.k;
        fetch_row(&k.tasks, task.index());
        if !self.core.ext.has_switched_all() {
            fetch_row(&k.fair.entities, k.fair.groups.layout.entity_of(task).index());
        }
        fetch_row(&self.work.actors, task.index());
        self.core.ext.fetch_task(task);
    }

    /// What the next switch touches of the task that is first in the queue of which one was just taken.
    #[inline(never)]
    pub(crate) fn fetch_head(&mut self) {
        if let Some(task) = self.core.ext.head() {
            fetch_row(&self.core.k.tasks, task.index());
            fetch_row(&self.work.actors, task.index());
            self.core.ext.fetch_whole_task(task);
        }
    }
}
