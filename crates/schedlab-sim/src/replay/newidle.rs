//! How often CPUs of the recording that went idle beside waiting tasks took one (`newidle_ratio` of kernel/sched/fair.c).
//!
//! Kernels with `NI_RANDOM` search as often as earlier searches were successful, and remember that from boot on: a
//! kernel that has found nothing for long searches twice in 1024 times. No event tells it, but its effect does.
//! Not here: what a search does, in [`crate::fair::balance`].

use schedlab_model::event::{EventKind, PrevState};
use schedlab_model::recording::Recording;
use schedlab_model::{CpuId, Nanos, TaskId};
use std::collections::{BTreeMap, BTreeSet};

/// A move this soon after a wake-up by the same CPU is the wake-up's placement.
const PLACED_WITHIN: Nanos = Nanos::from_micros(40);
/// A search ends this soon in a switch.
const TAKEN_WITHIN: Nanos = Nanos::from_micros(30);

#[derive(Clone, Debug, Default)]
struct Cpu {
    busy: bool,
    waiting: BTreeSet<TaskId>,
    /// The latest task that this CPU moved to itself, otherwise than by a wake-up.
    took: Option<(TaskId, Nanos)>,
}

#[derive(Default)]
struct Reader {
    cpus: Vec<Cpu>,
    on: BTreeMap<TaskId, CpuId>,
    woken: BTreeMap<TaskId, (CpuId, Nanos)>,
    chances: u64,
    taken: u64,
}

/// Of 1024 times that a CPU went idle beside a busy one with waiting tasks, how often it took one; `None` if that
/// did not happen.
///
/// It searched at least so often: searches may find nothing, or only tasks too warm to move. What the kernel remembered
/// of the time before matters for short recordings, which do not change it; long replays find their own balance.
pub(super) fn ratio(recording: &Recording) -> Option<u32> {
    let mut reader = Reader::default();
    reader.cpus.resize(recording.machine.topology.cpu_count(), Cpu::default());
    for event in &recording.events {
        match event.kind {
            EventKind::Waking { wakee, wakee_cpu, .. } => {
                reader.woken.insert(wakee, (event.cpu, event.time));
                reader.wait(wakee, wakee_cpu);
            }
            EventKind::WakeupNew { task, target_cpu } => reader.wait(task, target_cpu),
            EventKind::Migrate { task, to, .. } => reader.migrate(event.time, event.cpu, task, to),
            EventKind::Switch { prev, prev_state, next } => {
                reader.switch(event.time, event.cpu, prev, prev_state, next);
            }
            _ => {}
        }
    }
    let ratio = (reader.taken * 1_024).checked_div(reader.chances)?;
    u32::try_from(ratio).ok()
}

impl Reader {
    fn wait(&mut self, task: TaskId, cpu: CpuId) {
        self.leave(task);
        if let Some(state) = self.cpus.get_mut(cpu.index()) {
            state.waiting.insert(task);
            self.on.insert(task, cpu);
        }
    }

    fn leave(&mut self, task: TaskId) -> bool {
        let before = self.on.remove(&task);
        before.is_some_and(|cpu| self.cpus[cpu.index()].waiting.remove(&task))
    }

    fn migrate(&mut self, time: Nanos, cpu: CpuId, task: TaskId, to: CpuId) {
        if !self.leave(task) {
            return;
        }
        self.wait(task, to);
        let placed =
            self.woken.get(&task).is_some_and(|(waker, at)| *waker == cpu && time - *at < PLACED_WITHIN);
        if to == cpu
            && !placed
            && let Some(state) = self.cpus.get_mut(cpu.index())
        {
            state.took = Some((task, time));
        }
    }

    fn switch(&mut self, time: Nanos, cpu: CpuId, prev: TaskId, state: PrevState, next: TaskId) {
        self.leave(next);
        if cpu.index() >= self.cpus.len() {
            return;
        }
        let slept = !prev.is_idle() && state != PrevState::Runnable;
        let took = self.cpus[cpu.index()].took.take();
        let took = took.is_some_and(|(task, at)| task == next && time - at < TAKEN_WITHIN);
        let others = self.cpus.iter().enumerate().filter(|(other, _)| *other != cpu.index());
        let busy: Vec<&Cpu> = others.map(|(_, other)| other).filter(|other| other.busy).collect();
        let chance = took || (next.is_idle() && busy.iter().any(|other| !other.waiting.is_empty()));
        if slept && chance && !busy.is_empty() {
            self.chances += 1;
            self.taken += u64::from(took);
        }
        self.cpus[cpu.index()].busy = !next.is_idle();
        if !prev.is_idle() && state == PrevState::Runnable {
            self.wait(prev, cpu);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Simulation, SimulationConfig};
    use schedlab_model::event::{Context, Event};
    use schedlab_model::lever::Setting;
    use schedlab_model::machine::{KernelVersion, MachineDescription};
    use schedlab_model::topology::Topology;
    use schedlab_model::workload::file;
    use std::sync::Arc;

    fn recording(events: Vec<(u64, u32, EventKind)>) -> Recording {
        let event = |(time, cpu, kind)| Event { time: Nanos(time), cpu: CpuId(cpu), kind };
        Recording {
            provenance: Default::default(),
            machine: MachineDescription::generic("two", Topology::flat(2).expect("two CPUs")),
            tasks: Vec::new(),
            channels: Vec::new(),
            cpu_sets: Vec::new(),
            events: events.into_iter().map(event).collect(),
            duration: Nanos(1_000_000_000),
        }
    }

    fn switch(prev: u32, prev_state: PrevState, next: u32) -> EventKind {
        EventKind::Switch { prev: TaskId(prev), prev_state, next: TaskId(next) }
    }

    /// Task 1 runs on CPU 0 with task 2 waiting behind it; task 3 goes to sleep on CPU 1 four times, and once CPU 1
    /// takes task 2.
    #[test]
    fn one_of_four_that_went_idle_beside_a_waiting_task_took_it() {
        let wake = |wakee, cpu| EventKind::Waking {
            waker: TaskId(1),
            context: Context::Task,
            wakee: TaskId(wakee),
            wakee_cpu: CpuId(cpu),
        };
        let mut events = vec![(0, 0, switch(0, PrevState::Runnable, 1)), (100, 0, wake(2, 0))];
        for round in 1..=4_u64 {
            let at = round * 1_000_000;
            events.push((at, 0, wake(3, 1)));
            events.push((at + 1_000, 1, switch(0, PrevState::Runnable, 3)));
            if round == 4 {
                let (task, from, to) = (TaskId(2), CpuId(0), CpuId(1));
                events.push((at + 99_000, 1, EventKind::Migrate { task, from, to }));
                events.push((at + 100_000, 1, switch(3, PrevState::Interruptible, 2)));
            } else {
                events.push((at + 100_000, 1, switch(3, PrevState::Interruptible, 0)));
            }
        }
        assert_eq!(ratio(&recording(events)), Some(256));
        assert_eq!(ratio(&recording(vec![(0, 0, switch(0, PrevState::Runnable, 1))])), None);
    }

    /// CPU 0 is always busy; CPU 1 goes idle about ten thousand times.
    #[test]
    fn a_kernel_that_remembers_more_success_takes_more() {
        let text = r#"
            name = "newidle"
            duration = "20s"
            [[task]]
            name = "hog"
            cpus = "0"
            steps = [{ loop = { steps = [{ run = "10ms" }] } }]
            [[task]]
            name = "pinned"
            cpus = "1"
            steps = [{ loop = { steps = [{ run = { exponential = "500us" } }, { sleep = { exponential = "1ms" } }] } }]
            [[task]]
            name = "mover"
            count = 2
            steps = [{ loop = { steps = [{ run = { exponential = "2ms" } }, { sleep = { exponential = "3ms" } }] } }]
        "#;
        let read = |known: u32| {
            let machine = MachineDescription::generic("two", Topology::flat(2).expect("two CPUs"));
            let mut workload = file::parse(text).expect("a workload");
            workload.newidle_ratio = Some(known);
            let mut events: Vec<Event> = Vec::new();
            // 7.2 also looks at how rare searches are, and where CPUs are not searched for, more tasks wait.
            let config = SimulationConfig {
                kernel: Some(KernelVersion::V6_18),
                settings: vec![Setting::Knob { name: "SIS_UTIL".to_owned(), value: 0 }],
                ..SimulationConfig::new(machine.clone(), Arc::new(workload))
            };
            let result = Simulation::new(config).expect("valid").run(&mut events).expect("runs");
            ratio(&crate::record::recording(&result, events, &machine, "fair"))
        };
        let known = [50, 200, 600, 1_024];
        let all = known.map(|known| read(known).expect("it went idle beside a waiting task"));
        assert!(all.is_sorted() && all[1] > 0 && all[2] > 2 * all[1], "{all:?}");
        assert!(all.iter().zip(known).all(|(read, known)| *read <= known), "{all:?}");
    }
}
