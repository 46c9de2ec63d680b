//! The `cfs` object on 7.2 against the simulated CFS of 6.1: the same loads give nearly the same switches and waits.

// A test may read files; the simulator may not.
#![allow(clippy::disallowed_methods)]

mod ext_runs;

use ext_runs::Run;
use schedlab_model::TaskId;
use schedlab_model::event::{Event, EventKind, NullSink};
use schedlab_model::machine::{Costs, KernelVersion};
use schedlab_sim::{Scheduler, Simulation, SimulationConfig};
use std::collections::BTreeMap;

/// Loads of docs/fidelity.md that are files.
const LOADS: [&str; 12] = [
    "fork-storm",
    "hogs-nice",
    "hogs-nice-pinned",
    "locks",
    "mixed",
    "periodic-hogs",
    "periodic-hogs-pinned",
    "periodics",
    "ping-pong",
    "ping-pong-across",
    "ping-pong-same",
    "schbench",
];

/// What is drawn at random differs from seed to seed; means are compared.
const SEEDS: u64 = 5;

/// A wait that differs by less is another cost of deciding, not another decision: `cfs` is called as BPF.
const FLOOR_NS: f64 = 5_000.0;

fn config(kind: &str, workload: &str, cpus: u32) -> SimulationConfig {
    let mut config = Run::new("cfs", workload, cpus).config();
    if kind == "fair" {
        config.scheduler = Scheduler::Kernel;
        config.kernel = Some(KernelVersion::V6_1);
    }
    config
}

/// Mean over the seeds of the switches, and of the time between becoming runnable and running, ns.
fn means(kind: &str, workload: &str) -> (f64, f64) {
    let (mut switches, mut delay) = (0.0, 0.0);
    for seed in 1..=SEEDS {
        let mut config = config(kind, workload, 2);
        config.seed = seed;
        let result = Simulation::new(config).expect("valid").run(&mut NullSink).expect("runs");
        let tasks = &result.accounts[1..];
        let waits: u64 = tasks.iter().map(|task| task.voluntary_switches + task.involuntary_switches).sum();
        let waited: u64 = tasks.iter().map(|task| task.run_delay.0).sum();
        switches += result.report.context_switches as f64 / SEEDS as f64;
        delay += waited as f64 / waits as f64 / SEEDS as f64;
    }
    (switches, delay)
}

#[test]
fn twelve_loads_are_scheduled_nearly_alike() {
    let mut told = Vec::new();
    for load in LOADS {
        let path = format!("{}/../../tests/fidelity/loads/{load}.toml", env!("CARGO_MANIFEST_DIR"));
        let workload = std::fs::read_to_string(path).expect("a load of the fidelity page");
        let ((switches, delay), (own_switches, own_delay)) =
            (means("fair", &workload), means("cfs", &workload));
        let (more, longer) = (own_switches / switches, own_delay / delay);
        let near = (own_delay - delay).abs() < FLOOR_NS || (0.8..=1.25).contains(&longer);
        let line = format!(
            "{load}: {switches:.0} switches, cfs {more:.2} times; waits {:.1} us, cfs {longer:.2} times",
            delay / 1e3
        );
        eprintln!("{line}");
        if !near || !(0.9..=1.1).contains(&more) {
            told.push(line);
        }
    }
    assert!(told.is_empty(), "beyond 10 % of the switches or 1.25 times the waits:\n{}", told.join("\n"));
}

/// How far apart the CPU times of two tasks ever are, and the longest turn one of them had, ns.
fn apart(events: &[Event], a: TaskId, b: TaskId) -> (u64, u64) {
    let mut served = BTreeMap::from([(a, 0_u64), (b, 0)]);
    let mut since: Option<(TaskId, u64)> = None;
    let (mut most, mut longest) = (0, 0);
    for event in events {
        let EventKind::Switch { next, .. } = event.kind else { continue };
        if let Some((task, began)) = since.take() {
            let turn = event.time.0 - began;
            longest = longest.max(turn);
            *served.get_mut(&task).expect("one of the two") += turn;
        }
        most = most.max(served[&a].abs_diff(served[&b]));
        since = served.contains_key(&next).then_some((next, event.time.0));
    }
    (most, longest)
}

#[test]
fn two_equal_hogs_are_never_more_than_a_slice_apart() {
    let hog = |name: &str| format!("[[task]]\nname = \"{name}\"\nsteps = [{{ run = \"1000s\" }}]\n");
    // Where nothing costs anything, turns end at ticks sharp: what is left is what the two decide.
    let workload = format!("name = \"equal\"\nduration = \"60s\"\n{}{}", hog("a"), hog("b"));
    for kind in ["fair", "cfs"] {
        let mut events: Vec<Event> = Vec::new();
        let mut config = config(kind, &workload, 1);
        config.machine.costs = Costs::none();
        Simulation::new(config).expect("valid").run(&mut events).expect("runs");
        let (most, longest) = apart(&events, TaskId(1), TaskId(2));
        // 3 ms, ended by the tick that finds it used up: at 250 Hz every 4 ms.
        assert!(longest <= 8_000_000, "{kind}: a turn of {longest} ns");
        assert!(most <= longest, "{kind}: {most} ns apart, slices of {longest} ns");
    }
}
