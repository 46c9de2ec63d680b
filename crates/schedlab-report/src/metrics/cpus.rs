//! Who waits where and which CPUs idle, integrated over time.
//!
//! Work conservation: time counts as "idle while queued" when a task waits on a *busy* CPU and an idle CPU
//! is among those it may use. A task that waits on an idle CPU is about to run there (idle exit) and does
//! not count; a task pinned to one CPU could not be helped and does not count either.

use super::task::Reach;
use schedlab_model::cpu_set::CpuSet;
use schedlab_model::ids::{CpuId, TaskId};
use schedlab_model::time::Nanos;

#[derive(Clone, Debug)]
pub(super) struct Cpus {
    idle: CpuSet,
    idle_count: usize,
    last_switch: Vec<Option<Nanos>>,
    /// Waiting tasks without restriction, by the CPU they wait on.
    waiting_anywhere: Vec<u32>,
    /// Those of them that wait on a busy CPU.
    waiting_anywhere_on_busy: u32,
    waiting_restricted: Vec<(TaskId, CpuId, CpuSet)>,
    waiting: u64,
    now: Nanos,
    /// Waiting tasks × ns.
    queue_integral: u128,
    idle_while_queued: Nanos,
}

impl Cpus {
    /// All idle: whoever runs at the start is told by [`Cpus::assume_busy`].
    pub fn new(count: usize) -> Cpus {
        Cpus {
            idle: CpuSet::first(count),
            idle_count: count,
            last_switch: vec![None; count],
            waiting_anywhere: vec![0; count],
            waiting_anywhere_on_busy: 0,
            waiting_restricted: Vec::new(),
            waiting: 0,
            now: Nanos::ZERO,
            queue_integral: 0,
            idle_while_queued: Nanos::ZERO,
        }
    }

    pub fn assume_busy(&mut self, cpu: CpuId) {
        self.set_idle(cpu, false);
    }

    /// Integrates up to now.
    #[inline]
    pub fn advance(&mut self, time: Nanos) {
        let elapsed = time.saturating_sub(self.now);
        if elapsed == Nanos::ZERO {
            return;
        }
        self.now = time;
        if self.waiting == 0 {
            return;
        }
        self.queue_integral += u128::from(self.waiting) * u128::from(elapsed.0);
        if self.idle_count > 0 && self.somebody_could_be_helped() {
            self.idle_while_queued += elapsed;
        }
    }

    fn somebody_could_be_helped(&self) -> bool {
        self.waiting_anywhere_on_busy > 0
            || self
                .waiting_restricted
                .iter()
                .any(|(_, cpu, allowed)| !self.idle.contains(*cpu) && !allowed.and(&self.idle).is_empty())
    }

    /// Notes a switch; returns the time of the one before on this CPU.
    pub fn note_switch(&mut self, cpu: CpuId) -> Option<Nanos> {
        self.grow(cpu);
        self.last_switch[cpu.index()].replace(self.now)
    }

    pub fn last_switch(&self, cpu: CpuId) -> Option<Nanos> {
        self.last_switch.get(cpu.index()).copied().flatten()
    }

    pub fn set_idle(&mut self, cpu: CpuId, idle: bool) {
        self.grow(cpu);
        if self.idle.contains(cpu) == idle {
            return;
        }
        let here = self.waiting_anywhere[cpu.index()];
        if idle {
            self.idle.insert(cpu);
            self.idle_count += 1;
            self.waiting_anywhere_on_busy -= here;
        } else {
            self.idle.remove(cpu);
            self.idle_count -= 1;
            self.waiting_anywhere_on_busy += here;
        }
    }

    pub fn enqueue(&mut self, task: TaskId, cpu: CpuId, reach: Reach) {
        self.grow(cpu);
        self.waiting += 1;
        match reach {
            Reach::Everywhere => {
                self.waiting_anywhere[cpu.index()] += 1;
                self.waiting_anywhere_on_busy += u32::from(!self.idle.contains(cpu));
            }
            Reach::Some(allowed) => self.waiting_restricted.push((task, cpu, allowed)),
            Reach::Pinned => {}
        }
    }

    pub fn dequeue(&mut self, task: TaskId, cpu: CpuId, reach: Reach) {
        self.waiting -= 1;
        match reach {
            Reach::Everywhere => {
                self.waiting_anywhere[cpu.index()] -= 1;
                self.waiting_anywhere_on_busy -= u32::from(!self.idle.contains(cpu));
            }
            Reach::Some(_) => self.waiting_restricted.retain(|(waiting, ..)| *waiting != task),
            Reach::Pinned => {}
        }
    }

    /// Time in which a waiting task could have run on an idle CPU.
    pub fn idle_while_queued(&self) -> Nanos {
        self.idle_while_queued
    }

    /// Mean number of waiting tasks over `span`.
    pub fn queue_length_mean(&self, span: Nanos) -> f64 {
        if span == Nanos::ZERO { 0.0 } else { self.queue_integral as f64 / span.0 as f64 }
    }

    /// CPUs beyond the topology appear only in damaged recordings; they count as busy.
    fn grow(&mut self, cpu: CpuId) {
        if cpu.index() >= self.last_switch.len() {
            self.last_switch.resize(cpu.index() + 1, None);
            self.waiting_anywhere.resize(cpu.index() + 1, 0);
        }
    }
}
