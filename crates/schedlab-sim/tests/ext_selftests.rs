//! The conformance cases in the simulated kernel: each scheduler of bpf/tests/conformance checks what it sees and
//! ends as Linux ends it. schedlab-host/tests/vm.rs runs the same cases on Linux 7.2.

// A test may read files; the simulator may not.
#![allow(clippy::disallowed_methods)]

mod ext_runs;

use ext_runs::Run;
use schedlab_model::event::NullSink;
use schedlab_model::topology::Topology;
use schedlab_objects::conformance::{CASES, CPUS, Case, UNREG};
use std::path::Path;

/// What is wrong with how a case went; empty if nothing.
fn faults(case: &Case, interpreted: bool) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/conformance");
    let workload = std::fs::read_to_string(path.join(format!("{}.toml", case.scenario)));
    let workload = workload.expect("the scenario");
    // Two nodes where nodes are the subject.
    let topology = if case.object == "numa" { Topology::uniform(2, 1, 1, 1) } else { Topology::flat(CPUS) };
    let run = Run {
        topology: topology.expect("CPUs"),
        knobs: case.knobs,
        interpreted,
        late: case.late,
        runs: case.runs,
        ..Run::new(case.object, &workload, CPUS)
    };
    let mut simulation = run.simulation();
    simulation.run(&mut NullSink).expect("runs");
    let exit = simulation.unregister().expect("an object is attached");
    let mut faults = Vec::new();
    let global = |simulation: &mut schedlab_sim::Simulation, name| simulation.global(name).unwrap_or(-1);
    let (checks, failures) = (global(&mut simulation, "checks"), global(&mut simulation, "failures"));
    if failures != 0 {
        let line = global(&mut simulation, "first_failure");
        faults.push(format!("{failures} of {checks} checks failed, the first in line {line}"));
    }
    if checks <= 0 {
        faults.push("nothing was checked".to_owned());
    }
    if (exit.kind as i32, exit.code) != (case.kind, case.code) || !exit.message.contains(case.message) {
        faults.push(format!("ended with {} code {:#x}: {}", exit.kind, exit.code, exit.message));
    }
    if (exit.kind >= 1024) == exit.dump.is_empty() {
        faults.push(format!("errors and only errors leave a dump: {:?}", exit.dump));
    }
    faults
}

fn all(interpreted: bool) {
    let faulty = CASES.iter().map(|case| (case.name, faults(case, interpreted)));
    let faulty: Vec<_> = faulty.filter(|(_, faults)| !faults.is_empty()).collect();
    assert!(faulty.is_empty(), "{} of {}: {faulty:#?}", faulty.len(), CASES.len());
}

#[test]
fn every_case_ends_as_on_linux() {
    all(false);
}

#[test]
fn every_case_ends_so_when_interpreted() {
    all(true);
}

#[test]
fn a_case_that_expects_the_wrong_end_is_found() {
    let minimal = schedlab_objects::conformance::case("minimal").expect("a case");
    assert_eq!(minimal.kind, UNREG);
    assert!(!faults(&Case { kind: 1024, ..*minimal }, false).is_empty());
}
