//! The same object, the same scenario: what the simulated kernel calls is what Linux 7.2 called, in order and
//! with the same arguments. The recorded sequences are in tests/golden/callbacks, the scenarios in
//! tests/conformance.

// A test may read files; the simulator may not.
#![allow(clippy::disallowed_methods)]

use schedlab_model::event::NullSink;
use schedlab_model::machine::{KernelVersion, MachineDescription};
use schedlab_model::topology::Topology;
use schedlab_model::workload::file::parse;
use schedlab_sim::ext::{ExtOptions, ExtScheduler};
use schedlab_sim::{Scheduler, Simulation, SimulationConfig};
use std::fs::read_to_string;
use std::path::Path;
use std::sync::Arc;

/// Calls before this are the making of the tasks, which differs between a program and a simulation.
const START_NS: u64 = 20_000_000;

fn called(scenario: &str, cpus: u32, scheduler: &str, interpreted: bool) -> Vec<String> {
    let path = root().join(format!("tests/conformance/{scenario}.toml"));
    let workload = parse(&read_to_string(path).expect("the scenario")).expect("the scenario reads");
    let duration = workload.duration.expect("a scenario has a duration");
    let topology = Topology::flat(cpus).expect("valid");
    let bytes = schedlab_objects::scheduler(scheduler).or_else(|| schedlab_objects::test_object(scheduler));
    let bytes = bytes.expect("the scheduler");
    let options = ExtOptions { interpreted, ..ExtOptions::default() };
    let object =
        ExtScheduler::load(scheduler, bytes, KernelVersion::V7_2, &topology, options).expect("loads");
    let mut machine = MachineDescription::generic("conformance", topology);
    machine.kernel = KernelVersion::V7_2;
    let mut config = SimulationConfig::new(machine, Arc::new(workload));
    config.scheduler = Scheduler::Ext(object);
    let mut simulation = Simulation::new(config).expect("valid");
    simulation.log_callbacks();
    let result = simulation.run(&mut NullSink).expect("runs");
    assert_eq!(result.scheduler_exit, None);
    let calls = simulation.take_callbacks().records;
    let within = calls.iter().filter(|call| (START_NS..duration.0).contains(&call.time_ns));
    // When a tick comes is a matter of phase.
    let told = within.filter(|call| !call.task.is_empty() && call.callback != "tick");
    told.map(ToString::to_string).collect()
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn check(scenario: &str, cpus: u32, scheduler: &str) {
    let golden = root().join(format!("tests/golden/callbacks/{scenario}-{scheduler}-7.2.txt"));
    let golden = read_to_string(golden).expect("the recorded sequence");
    let expected: Vec<&str> = golden.lines().collect();
    assert_eq!(called(scenario, cpus, scheduler, false), expected, "{scenario} under {scheduler}");
    assert_eq!(
        called(scenario, cpus, scheduler, true),
        expected,
        "{scenario} under {scheduler}, interpreted"
    );
}

#[test]
fn our_schedulers_are_called_as_on_linux() {
    // Those of 2006 decide by times that they measure, which an emulated machine has others of.
    for scheduler in ["fifo", "fixed_priority", "vtime"] {
        check("pipe_pair", 1, scheduler);
        check("two_cpus", 2, scheduler);
    }
}

#[test]
fn changes_of_attributes_are_told_as_on_linux() {
    check("changes", 1, "maximal");
}
