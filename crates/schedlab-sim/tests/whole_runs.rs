//! Whole runs of built-in workloads: they end, they add up, they repeat, and the ideal scheduler bounds them and replays.

mod ext_runs;

use schedlab_model::event::{EventKind, NullSink};
use schedlab_model::machine::{KernelVersion, MachineDescription};
use schedlab_model::recording::codec;
use schedlab_model::topology::Topology;
use schedlab_model::workload::builder::Builder;
use schedlab_model::workload::{Amount, ChannelType, Op, Workload, builtin};
use schedlab_model::{Event, Nanos, TaskAttributes};
use schedlab_sim::ext::{ExtOptions, ExtScheduler};
use schedlab_sim::replay::{ReplayOptions, calibrated, workload_from};
use schedlab_sim::{Scheduler, Simulation, SimulationConfig, SimulationResult};
use std::sync::Arc;

fn config(work: &str, cpus: u32, seed: u64) -> SimulationConfig {
    SimulationConfig { seed, ..flat(builtin::make(work).expect("known").expect("can be made"), cpus) }
}

fn flat(workload: Workload, cpus: u32) -> SimulationConfig {
    let machine = MachineDescription::generic("test", Topology::flat(cpus).expect("CPUs"));
    SimulationConfig::new(machine, Arc::new(workload))
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

/// A writer and a reader of a thousand messages. Whether the reader ever waits, and pays for it, is the scheduler's doing:
/// where both share a CPU it may find all messages there.
fn reader_that_pays_for_waits() -> Workload {
    let mut b = Builder::new("a reader that pays for waits", "");
    let channel = b.channel("pipe", ChannelType::Bytes, 1_000_000, 0);
    let run = |us| Op::Run(Amount::Fixed(Nanos::from_micros(us)));
    let writes = (0..1_000).flat_map(|_| [run(3), Op::Send { channel, bytes: 100 }]);
    b.task("writer", "writer", TaskAttributes::default(), writes.collect());
    let reads = (0..1_000).flat_map(|_| [Op::ReceiveAll { channel, bytes: 100 }, run(1)]);
    b.task("reader", "reader", TaskAttributes::default(), reads.collect());
    let mut workload = b.finish(None).expect("a workload");
    (workload.calls_in_runs, workload.sleep_cost) = (true, Nanos(1_500));
    workload
}

fn replay(bytes: &[u8]) -> SimulationConfig {
    let mut recording = codec::decode(bytes).expect("a recording");
    recording.machine = calibrated(&recording);
    let workload = workload_from(&recording, &ReplayOptions::default()).expect("replays").workload;
    SimulationConfig::new(recording.machine, Arc::new(workload))
}

#[test]
fn no_scheduler_is_faster_than_the_ideal() {
    let latest = KernelVersion::V7_2;
    let mut works: Vec<(&str, SimulationConfig)> =
        WORKLOADS.iter().map(|work| (*work, config(work, 2, 1))).collect();
    works.push(("a reader that pays for waits", flat(reader_that_pays_for_waits(), 1)));
    works.push(("hackbench, replayed", replay(include_bytes!("../../../recordings/hackbench-g1-l50.slrec"))));
    works.push(("a mix, replayed", replay(include_bytes!("../../../recordings/mixed.slrec"))));
    for (name, work) in &works {
        let run = |kernel, scheduler, seed| {
            let config = SimulationConfig { kernel: Some(kernel), scheduler, seed, ..work.clone() };
            Simulation::new(config).expect("valid").run(&mut NullSink).expect("runs")
        };
        let bound = run(latest, Scheduler::Ideal, 1);
        assert!(bound.accounts.iter().all(|account| account.run_delay == Nanos::ZERO), "{name}");
        let real = |who: &str, result: &SimulationResult| {
            let (least, took) = (bound.makespan, result.makespan);
            assert!(least <= took, "{name} under {who}: {took}, the bound is {least}");
        };
        for seed in [1, 2] {
            for kernel in ["6.1", "6.18", "7.2"] {
                real(kernel, &run(kernel.parse().expect("a version"), Scheduler::Kernel, seed));
            }
            for object in ["fifo", "vtime", "fixed_priority"] {
                let image = ext_runs::image(object, latest);
                let topology = &work.machine.topology;
                let scheduler = ExtScheduler::new(image, latest, topology, ExtOptions::default());
                real(object, &run(latest, Scheduler::Ext(scheduler.expect("the object loads")), seed));
            }
        }
    }
}
