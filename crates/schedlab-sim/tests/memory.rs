//! Memory that runs short: what changes with it, and what does not.

use schedlab_model::event::{Event, EventKind, PrevState};
use schedlab_model::machine::MachineDescription;
use schedlab_model::memory::{MachineMemory, Swapped};
use schedlab_model::topology::Topology;
use schedlab_model::workload::{Workload, builtin, file};
use schedlab_model::{Nanos, TaskId};
use schedlab_sim::error::SimError;
use schedlab_sim::{Scheduler, Simulation, SimulationConfig, SimulationResult};
use std::sync::Arc;

/// 160 workers of 62 KiB, 7 of their pages such that can leave, and messages of two pieces: a sixth of it with all sockets full.
fn workload() -> Workload {
    builtin::make("hackbench:groups=4,loops=60").expect("known").expect("a workload")
}

fn machine(kib: Option<u64>) -> MachineDescription {
    machine_of(kib, 1)
}

fn machine_of(kib: Option<u64>, cpus: u32) -> MachineDescription {
    let memory = kib.map(|kib| MachineMemory {
        kib,
        find_page: Nanos(2_500),
        disk_seek: Nanos::from_millis(8),
        disk_page: Nanos::from_micros(130),
    });
    MachineDescription { memory, ..MachineDescription::generic("test", Topology::flat(cpus).expect("CPUs")) }
}

fn run(kib: Option<u64>) -> Result<(SimulationResult, Vec<Event>), SimError> {
    run_on(machine(kib), workload())
}

fn run_on(
    machine: MachineDescription,
    workload: Workload,
) -> Result<(SimulationResult, Vec<Event>), SimError> {
    let config = SimulationConfig::new(machine, Arc::new(workload));
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

/// A process that does `steps` beside 20 that sleep and one that fills a socket of 8 MB that nobody reads: more than there is
/// room for in 8 MiB.
fn beside_a_hog(steps: &str) -> Workload {
    file::parse(&hog(steps)).expect("reads")
}

fn hog(steps: &str) -> String {
    format!(
        r#"
name = "hog"
memory = {{ kept_kib = 8, pages = 40, idle_pages = 0, message = [512, 192] }}
[channels]
full = {{ type = "socket", capacity = 8000000 }}
[[task]]
name = "watched"
template = true
steps = {steps}
[[task]]
name = "sleeper"
template = true
target = false
steps = [{{ sleep = "100s" }}]
[[task]]
name = "hog"
nice = 10
template = true
target = false
steps = [
    {{ loop = {{ count = 10000, steps = [{{ send = {{ channel = "full", bytes = 100 }} }}, {{ run = "5us" }}] }} }},
    {{ sleep = "100s" }},
]
[[task]]
name = "parent"
steps = [{{ fork = "watched" }}, {{ loop = {{ count = 20, steps = [{{ fork = "sleeper" }}] }} }}, {{ fork = "hog" }}]
"#
    )
}

/// The turns of the watched process: when it was given a CPU, and when and how it left it.
fn turns(result: &SimulationResult, events: &[Event]) -> Vec<(u64, u64, PrevState)> {
    let name = |task: TaskId| result.tasks[task.index()].name.as_str();
    let (mut begins, mut turns) = (0, Vec::new());
    for event in events {
        if let EventKind::Switch { prev, next, prev_state, .. } = event.kind {
            if name(prev).starts_with("watched") {
                turns.push((begins, event.time.0, prev_state));
            }
            if name(next).starts_with("watched") {
                begins = event.time.0;
            }
        }
    }
    turns
}

/// Linux reads a page when the program touches it (`do_swap_page`), so before anything of what comes next is done.
#[test]
fn who_is_woken_looks_for_its_pages_before_it_runs() {
    let work = Nanos::from_millis(50).0;
    let workload = beside_a_hog(r#"[{ run = "1ms" }, { sleep = "30s" }, { run = "50ms" }]"#);
    let (result, events) = run_on(machine(Some(8_192)), workload).expect("runs");
    let turns = turns(&result, &events);
    let slept = turns.iter().position(|turn| turn.1 - turn.0 < work && turn.2 == PrevState::Interruptible);
    let after = &turns[slept.expect("it sleeps") + 1..];
    let (begins, ends, state) = after[0];
    assert!(ends - begins < work / 10, "{after:?}");
    assert_eq!(state, PrevState::Uninterruptible, "{after:?}");
    let ran: u64 = after[1..].iter().map(|turn| turn.1 - turn.0).sum();
    assert!(ran >= work, "{after:?}");
}

/// The processor sets the accessed bit of a page whenever a program uses it, not only after a switch.
#[test]
fn pages_of_who_runs_stay() {
    let workload = beside_a_hog(r#"[{ run = "20s" }]"#);
    let (result, events) = run_on(machine_of(Some(8_192), 2), workload).expect("runs");
    let turns = turns(&result, &events);
    assert!(result.swapped.expect("it can run short").pages_out > 0);
    assert!(!turns.iter().any(|turn| turn.2 == PrevState::Uninterruptible), "{turns:?}");
}

/// `sock_alloc_send_pskb` looks for room in the socket before it asks for memory, and not again: who has had to make room
/// sends, and does not wait for others before, which the simulator asserts.
#[test]
fn who_makes_room_for_a_message_sends_it_even_if_its_socket_is_full_by_now() {
    let senders = r#"[
    { sleep = "50ms" },
    { loop = { count = 3000, steps = [{ send = { channel = "small", bytes = 100 } }, { run = "5us" }] } },
]"#;
    let mut text = hog(senders);
    text = text
        .replace("count = 10000", "count = 6500")
        .replace("[channels]", "[channels]\nsmall = { type = \"socket\", capacity = 2000 }");
    text = text.replace(
        "{ fork = \"watched\" }",
        "{ loop = { count = 8, steps = [{ fork = \"watched\" }] } }, { fork = \"reader\" }",
    );
    text += r#"
[[task]]
name = "reader"
template = true
steps = [{ loop = { count = 24000, steps = [{ receive = { channel = "small", bytes = 100 } }] } }]
"#;
    let workload = file::parse(&text).expect("reads");
    let (result, _) = run_on(machine(Some(8_192)), workload).expect("runs");
    assert!(result.swapped.expect("it can run short").stalls > 0);
}
