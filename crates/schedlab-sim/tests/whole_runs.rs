//! Whole runs of built-in workloads: they end, they add up, they repeat.

use schedlab_model::event::{EventKind, NullSink};
use schedlab_model::machine::MachineDescription;
use schedlab_model::topology::Topology;
use schedlab_model::workload::builtin;
use schedlab_model::{Event, Nanos};
use schedlab_sim::{Simulation, SimulationConfig, SimulationResult};
use std::sync::Arc;

fn config(work: &str, cpus: u32, seed: u64) -> SimulationConfig {
    let workload = builtin::make(work).expect("known").expect("can be made");
    let machine = MachineDescription::generic("test", Topology::flat(cpus).expect("CPUs"));
    SimulationConfig { seed, ..SimulationConfig::new(machine, Arc::new(workload)) }
}

fn run(work: &str, cpus: u32, seed: u64) -> (SimulationResult, Vec<Event>) {
    let mut events = Vec::new();
    let mut simulation = Simulation::new(config(work, cpus, seed)).expect("valid");
    let result = simulation.run(&mut events).expect("runs");
    (result, events)
}

const WORKLOADS: &[&str] = &[
    "hackbench:groups=1,loops=5",
    "ping-pong:rounds=500",
    "periodic:duration=500ms",
    "hogs:duration=500ms",
    "mix:duration=500ms",
];

#[test]
fn built_in_workloads_run_and_repeat_exactly() {
    for work in WORKLOADS {
        for cpus in [1, 2, 8] {
            let (first, events) = run(work, cpus, 1);
            let (second, again) = run(work, cpus, 1);
            assert_eq!(first.report.event_hash, second.report.event_hash, "{work}");
            assert_eq!(events, again, "{work}");
            let unheard =
                Simulation::new(config(work, cpus, 1)).expect("valid").run(&mut NullSink).expect("runs");
            assert_eq!(
                unheard.report.event_hash, first.report.event_hash,
                "{work}: the sink changes the run"
            );
            let (other, _) = run(work, cpus, 2);
            assert_ne!(first.report.event_hash, other.report.event_hash, "{work}: the seed changes nothing");
            assert!(events.windows(2).all(|pair| pair[0].time <= pair[1].time), "{work}");
        }
    }
}

#[test]
fn time_adds_up_on_every_cpu() {
    for work in WORKLOADS {
        let (result, events) = run(work, 2, 1);
        let cpu_time: Nanos = result.accounts.iter().map(|account| account.cpu_time).sum();
        let mut busy = 0;
        for cpu in 0..2 {
            let switches = events.iter().filter(|event| event.cpu.0 == cpu);
            let mut since = None;
            for event in switches {
                if let EventKind::Switch { prev, next, .. } = event.kind {
                    if let Some(since) = since.take().filter(|_| !prev.is_idle()) {
                        busy += event.time.0 - since;
                    }
                    since = (!next.is_idle()).then_some(event.time.0);
                }
            }
            busy += since.map_or(0, |since| result.report.simulated.0 - since);
        }
        assert_eq!(cpu_time.0, busy, "{work}");
    }
}
