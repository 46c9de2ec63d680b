//! What the tests of the priority schedulers of 2.6 share: runs without costs at 1000 Hz, so that times are those
//! of the rules, and what is read off them.

pub mod shared;

use crate::ext_runs::Run;
use schedlab_model::event::{Event, EventKind};
use schedlab_model::machine::{Cost, Costs};
use schedlab_sim::{Simulation, SimulationConfig, SimulationResult};

/// Nothing costs time.
pub fn free() -> Costs {
    let mut costs = Costs::default();
    let none = Cost::assumed(0, 0);
    for cost in [
        &mut costs.context_switch,
        &mut costs.wakeup,
        &mut costs.ipi,
        &mut costs.ipi_idle,
        &mut costs.ipi_send,
        &mut costs.idle_exit,
        &mut costs.tick,
        &mut costs.interrupt,
        &mut costs.timer_latency,
        &mut costs.bpf_kilo_instructions,
        &mut costs.ext_callback,
        &mut costs.pipe_call,
        &mut costs.futex_call,
        &mut costs.wait_call,
        &mut costs.fork_call,
        &mut costs.fork_child,
        &mut costs.exit_call,
    ] {
        *cost = none;
    }
    costs
}

/// A finished run.
pub struct Ran {
    #[allow(dead_code, reason = "not every test binary asks")]
    pub result: SimulationResult,
    pub events: Vec<Event>,
    pub simulation: Simulation,
}

/// Runs a workload under a scheduler on so many CPUs.
pub fn run(scheduler: &str, workload: &str, cpus: u32, knobs: &[(&str, i64)]) -> Ran {
    run_with(&Run { knobs, costs: free(), ..Run::new(scheduler, workload, cpus) }, 1000)
}

/// The same under a kernel with so many ticks in a second.
pub fn run_with(run: &Run<'_>, hz: u32) -> Ran {
    run_config(run, run.config(), hz)
}

/// And with this seed.
#[allow(dead_code, reason = "not every test binary asks")]
pub fn run_seeded(run: &Run<'_>, hz: u32, seed: u64) -> Ran {
    run_config(run, SimulationConfig { seed, ..run.config() }, hz)
}

fn run_config(run: &Run<'_>, mut config: SimulationConfig, hz: u32) -> Ran {
    config.machine.hz = hz;
    let mut simulation = Simulation::new(config).expect("valid");
    let mut events = Vec::new();
    let result = simulation.run(&mut events).expect("runs");
    assert_eq!(result.scheduler_exit, None, "{}", run.scheduler);
    Ran { result, events, simulation }
}

/// One change of a dynamic priority, as the object logs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    pub time_ns: u64,
    /// Number of the task in the run.
    pub task: u32,
    pub before: u8,
    pub after: u8,
    pub cause: u8,
}

/// Names of `enum cause`.
#[allow(dead_code, reason = "not every test binary asks")]
pub const CAUSES: [&str; 8] = ["enabled", "slept", "waited", "ran", "forked", "born", "yielded", "nice"];

impl Ran {
    /// The log of `log_changes`, in order.
    #[allow(dead_code, reason = "not every test binary asks")]
    pub fn changes(&mut self) -> Vec<Change> {
        let count = self.simulation.global("changes_count").expect("the object logs changes") as usize;
        let bytes = self.simulation.global_bytes("changes").expect("a log");
        assert!(count * 16 <= bytes.len(), "{count} changes do not fit");
        let change = |row: &[u8]| Change {
            time_ns: u64::from_le_bytes(row[..8].try_into().expect("8 bytes")) - BOOT_NS,
            task: u32::from_le_bytes(row[8..12].try_into().expect("4 bytes")) - PID_FIRST,
            before: row[12],
            after: row[13],
            cause: row[14],
        };
        bytes.chunks(16).take(count).map(change).collect()
    }

    /// Who got the CPU, in order, from then on.
    #[allow(dead_code, reason = "not every test binary asks")]
    pub fn order(&self, from_ns: u64) -> Vec<u32> {
        let next = |event: &Event| match event.kind {
            EventKind::Switch { next, .. } if event.time.0 >= from_ns && !next.is_idle() => Some(next.0),
            _ => None,
        };
        self.events.iter().filter_map(next).collect()
    }

    /// How a task waited from then on.
    #[allow(dead_code, reason = "not every test binary asks")]
    pub fn waits(&self, task: u32, from_ns: u64) -> shared::Waits {
        shared::waits(&self.events, task, from_ns)
    }

    /// How long each stay of a task on a CPU lasted, in ns, that began after `from_ns`.
    #[allow(dead_code, reason = "not every test binary asks")]
    pub fn stays(&self, task: u32, from_ns: u64) -> Vec<u64> {
        let mut stays = Vec::new();
        let mut since = None;
        for event in &self.events {
            let EventKind::Switch { prev, next, .. } = event.kind else { continue };
            if prev.0 == task
                && let Some(start) = since.take()
                && start >= from_ns
            {
                stays.push(event.time.0 - start);
            }
            if next.0 == task {
                since = Some(event.time.0);
            }
        }
        stays
    }
}

/// Clock of the simulated kernel when a run begins.
const BOOT_NS: u64 = 1_000_000_000_000;
/// Number of the first task's pid.
const PID_FIRST: u32 = 1000;
