//! Memory that runs short: what changes with it, and what does not.

use schedlab_model::Nanos;
use schedlab_model::event::{Event, EventKind, PrevState};
use schedlab_model::machine::MachineDescription;
use schedlab_model::memory::{MachineMemory, Swapped};
use schedlab_model::topology::Topology;
use schedlab_model::workload::{Workload, builtin};
use schedlab_sim::error::SimError;
use schedlab_sim::{Scheduler, Simulation, SimulationConfig, SimulationResult};
use std::sync::Arc;

/// 160 workers of 62 KiB, 7 of their pages such that can leave, and messages of two pieces: a sixth of it with all sockets full.
fn workload() -> Workload {
    builtin::make("hackbench:groups=4,loops=60").expect("known").expect("a workload")
}

fn machine(kib: Option<u64>) -> MachineDescription {
    let memory = kib.map(|kib| MachineMemory {
        kib,
        find_page: Nanos(2_500),
        disk_seek: Nanos::from_millis(8),
        disk_page: Nanos::from_micros(130),
    });
    MachineDescription { memory, ..MachineDescription::generic("test", Topology::flat(1).expect("a CPU")) }
}

fn run(kib: Option<u64>) -> Result<(SimulationResult, Vec<Event>), SimError> {
    let config = SimulationConfig::new(machine(kib), Arc::new(workload()));
    let mut events = Vec::new();
    let result = Simulation::new(config).expect("valid").run(&mut events)?;
    Ok((result, events))
}

fn waits_for_disk(events: &[Event]) -> usize {
    let waits = |event: &&Event| {
        matches!(event.kind, EventKind::Switch { prev_state: PrevState::Uninterruptible, .. })
    };
    events.iter().filter(waits).count()
}

#[test]
fn enough_memory_changes_nothing() {
    let (without, _) = run(None).expect("runs");
    let (enough, events) = run(Some(65_536)).expect("runs");
    assert_eq!(enough.report.event_hash, without.report.event_hash);
    assert_eq!((without.swapped, enough.swapped), (None, Some(Swapped::default())));
    assert_eq!(waits_for_disk(&events), 0);
}

#[test]
fn who_needs_memory_makes_room_and_waits_for_the_disk() {
    let (enough, _) = run(Some(65_536)).expect("runs");
    let (short, events) = run(Some(10_500)).expect("runs");
    let swapped = short.swapped.expect("it can run short");
    assert!(swapped.stalls > 0 && swapped.pages_out > 0, "{swapped:?}");
    // Looking for a page in 80 address spaces takes 0.2 ms.
    let searched = Nanos(swapped.searches * 200_000);
    assert!(
        short.makespan > enough.makespan + Nanos(searched.0 / 4),
        "{swapped:?} {} {}",
        short.makespan,
        enough.makespan
    );
    assert!(waits_for_disk(&events) > 0, "uninterruptible, as Linux says");
    let (again, _) = run(Some(10_500)).expect("runs");
    assert_eq!(again.report.event_hash, short.report.event_hash, "the same each time");
}

#[test]
fn too_little_memory_ends_the_run_with_a_remedy() {
    let error = run(Some(4_096)).expect_err("160 processes need more").to_string();
    assert!(error.contains("out of memory") && error.contains("[memory] kib"), "{error}");
}

/// The bounds suppose that no task waits for another one's memory.
#[test]
fn the_ideal_scheduler_knows_no_shortage() {
    let config = |kib| SimulationConfig {
        scheduler: Scheduler::Ideal,
        ..SimulationConfig::new(machine(kib), Arc::new(workload()))
    };
    let bound = |kib| {
        let result = Simulation::new(config(kib)).expect("valid").run(&mut Vec::new()).expect("runs");
        result.bound.expect("a bound")
    };
    assert_eq!(bound(Some(10_500)).critical_path, bound(None).critical_path);
}
