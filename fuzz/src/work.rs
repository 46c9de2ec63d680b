//! Targets for descriptions of work: schedlab's TOML and rt-app's JSON.

use schedlab_model::Nanos;
use schedlab_model::event::NullSink;
use schedlab_model::machine::MachineDescription;
use schedlab_model::topology::Topology;
use schedlab_model::workload::{Amount, Op, Workload, file, rtapp};
use schedlab_sim::{Simulation, SimulationConfig};
use std::sync::Arc;

/// Simulated time of a run: enough for every step to happen, too little for short loops to cost seconds.
const SIMULATED: Nanos = Nanos::from_millis(2);
/// Workloads that are larger are parsed, but not simulated.
const TASKS_MAX: usize = 200;

/// Runs the work for a moment; it may be refused or get stuck, but must not panic.
pub(crate) fn simulate(workload: Workload, machine: &MachineDescription) {
    if workload.tasks.len() > TASKS_MAX {
        return;
    }
    let mut config = SimulationConfig::new(machine.clone(), Arc::new(workload));
    config.duration_limit = Some(SIMULATED);
    // An error is an answer.
    drop(Simulation::new(config).and_then(|mut simulation| simulation.run(&mut NullSink)));
}

/// What must hold of every parsed workload. With `planted`, times are kept in 22 bits and counts
/// in 4 on the way through JSON.
fn check(workload: Workload, planted: bool) {
    let mut text = serde_json::to_string(&workload).expect("a workload is data");
    if planted {
        let mut cut = workload.clone();
        let ops = cut.programs.iter_mut().flat_map(|program| &mut program.ops);
        ops.for_each(|op| match op {
            Op::Run(Amount::Fixed(time)) | Op::Sleep(Amount::Fixed(time)) => time.0 &= 0x3f_ffff,
            Op::LoopStart { count } => *count &= 15,
            _ => {}
        });
        text = serde_json::to_string(&cut).expect("a workload is data");
    }
    let again: Workload = serde_json::from_str(&text).expect("a workload's JSON is a workload");
    assert!(again == workload, "a workload does not survive JSON");
    let topology = Topology::uniform(1, 1, 2, 1).expect("a topology");
    simulate(workload, &MachineDescription::generic("two", topology));
}

/// The target `workload`.
///
/// # Panics
/// If parsing or simulating does, or the workload does not survive JSON.
pub fn fuzz_file(input: &[u8], planted: bool) {
    if let Ok(workload) = file::parse(&String::from_utf8_lossy(input)) {
        check(workload, planted);
    }
}

/// The target `rtapp`.
///
/// # Panics
/// As for [`fuzz_file`].
pub fn fuzz_rtapp(input: &[u8], planted: bool) {
    if let Ok(workload) = rtapp::parse("fuzz", &String::from_utf8_lossy(input)) {
        check(workload, planted);
    }
}

/// The files of workloads/ and tests/conformance/, and one with more kinds of steps.
#[must_use]
pub fn file_seeds() -> Vec<Vec<u8>> {
    let files: &[&str] = &[
        include_str!("../../workloads/locks.toml"),
        include_str!("../../workloads/streaming.toml"),
        include_str!("../../workloads/fork-storm.toml"),
        include_str!("../../tests/conformance/pipe_pair.toml"),
        include_str!("../../tests/conformance/changes.toml"),
        include_str!("../../tests/conformance/attributes.toml"),
    ];
    files.iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// An rt-app file with most of what there is.
#[must_use]
pub fn rtapp_seeds() -> Vec<Vec<u8>> {
    let files = [
        r#"{ "tasks": { "worker": { "instance": 3, "loop": -1, "priority": 5, "cpus": [0, 1],
            "run": 2000, "sleep": 500, "timer": { "ref": "unique", "period": 16667, "mode": "absolute" } },
          "loud": { "policy": "SCHED_FIFO", "loop": 2, "phases": {
            "one": { "loop": 4, "run": 10 }, "two": { "sleep": 20 } } } },
          "global": { "duration": 2, "calibration": "CPU0", "default_policy": "SCHED_OTHER" } }"#,
        r#"{ "tasks": {
            "a": { "loop": 3, "lock": "m", "wait": { "ref": "q", "mutex": "m" }, "unlock": "m", "run": 100 },
            "b": { "delay": 10, "lock": "m", "signal": "q", "unlock": "m", "suspend": "b", "run": 5 },
            "c": { "barrier": "x", "runtime": 1000, "resume": "b", "yield": "", "sleep": 40 } },
          "global": { "duration": 1 } }"#,
    ];
    files.iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// Words of workload files.
pub const FILE_WORDS: &[&str] = &[
    "[[task]]\n",
    "name = ",
    "steps = [",
    "{ run = \"1ms\" }",
    "{ sleep = \"9s\" }",
    "loop = { ",
    "count = ",
    "policy = \"fifo\"",
    "affinity = ",
    "[channels]\n",
    "type = \"pipe\"",
    "duration = ",
    "{ fork = ",
    "timer",
    "lock = ",
    "unlock = ",
    "exponential",
    "uniform",
    "quantiles",
    "job_start",
    "[[change]]\n",
    "cgroup",
    "4294967296",
    "18446744073709551615",
    "-1",
    "\"99999999999s\"",
    "start = ",
    "template = true",
    "send = ",
    "receive = ",
];

/// Words of rt-app files.
pub const RTAPP_WORDS: &[&str] = &[
    "0",
    "00",
    "000",
    "\"run\": ",
    "\"sleep\": ",
    "\"timer\": {",
    "\"period\": ",
    "\"ref\": ",
    "\"loop\": ",
    "\"phases\": {",
    "\"lock\": ",
    "\"unlock\": ",
    "\"wait\": ",
    "\"signal\": ",
    "\"broad\": ",
    "\"barrier\": ",
    "\"suspend\": ",
    "\"resume\": ",
    "\"runtime\": ",
    "\"instance\": ",
    "\"delay\": ",
    "\"cpus\": [",
    "\"priority\": ",
    "\"policy\": ",
    "9223372036854775807",
    "4294967296000",
    "5000000",
    "-1",
    "\"fork\": ",
    "\"global\": {",
    "\"duration\": ",
    "\"mem\": ",
    "\"nice\": ",
];
