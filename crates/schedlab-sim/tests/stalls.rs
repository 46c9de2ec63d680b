//! A replay in which every task waits goes on over a full channel; under sched_ext the watchdog's own timer
//! must neither hide that nor let time pass.

use schedlab_model::event::NullSink;
use schedlab_model::machine::{KernelVersion, MachineDescription};
use schedlab_model::topology::Topology;
use schedlab_model::workload::file;
use schedlab_sim::ext::ExtOptions;
use schedlab_sim::{ExtScheduler, Scheduler, SimError, Simulation, SimulationConfig, SimulationResult};
use std::sync::Arc;

/// Each writes more than fits before it reads what the other wrote.
const CROSSED: &str = r#"
name = "crossed"
[channels]
there = { type = "bytes", capacity = 100 }
back = { type = "bytes", capacity = 100 }
[[task]]
name = "a"
steps = [
    { run = "1ms" },
    { loop = { count = 3, steps = [{ send = { channel = "there", bytes = 100 } }] } },
    { loop = { count = 3, steps = [{ receive = { channel = "back", bytes = 100 } }] } },
]
[[task]]
name = "b"
steps = [
    { run = "1ms" },
    { loop = { count = 3, steps = [{ send = { channel = "back", bytes = 100 } }] } },
    { loop = { count = 3, steps = [{ receive = { channel = "there", bytes = 100 } }] } },
]
"#;

/// Both wait for what the other would do after its own wait.
const CIRCLE: &str = r#"
name = "circle"
[channels]
ready = { type = "tokens" }
pipe = { type = "bytes" }
[[task]]
name = "a"
steps = [{ run = "1ms" }, { take = { channel = "ready" } }, { send = { channel = "pipe", bytes = 10 } }]
[[task]]
name = "b"
steps = [{ run = "1ms" }, { receive = { channel = "pipe", bytes = 10 } }, { post = { channel = "ready" } }]
"#;

fn run(scheduler: Scheduler, overflow: bool) -> Result<SimulationResult, SimError> {
    run_text(CROSSED, scheduler, overflow)
}

fn run_text(text: &str, scheduler: Scheduler, overflow: bool) -> Result<SimulationResult, SimError> {
    let mut workload = file::parse(text).expect("reads");
    workload.overflow_when_stalled = overflow;
    let machine = MachineDescription::generic("two", Topology::flat(2).expect("two CPUs"));
    let config = SimulationConfig { scheduler, ..SimulationConfig::new(machine, Arc::new(workload)) };
    Simulation::new(config)?.run(&mut NullSink)
}

fn vtime() -> Scheduler {
    let bytes = schedlab_objects::scheduler("vtime").expect("ours");
    let topology = Topology::flat(2).expect("two CPUs");
    let options = ExtOptions::default();
    let loaded = ExtScheduler::load("vtime", bytes, KernelVersion::V6_18, &topology, options);
    Scheduler::Ext(loaded.expect("loads"))
}

#[test]
fn a_stalled_replay_goes_on_at_once_under_both_classes() {
    for scheduler in [Scheduler::Kernel, vtime()] {
        let result = run(scheduler.clone(), true).expect("ends");
        assert!(result.makespan.0 < 10_000_000, "{scheduler:?}: {}", result.makespan);
        assert_eq!(result.scheduler_exit, None);
    }
}

#[test]
fn a_replay_whose_tasks_wait_in_a_circle_goes_on_too() {
    for scheduler in [Scheduler::Kernel, vtime()] {
        let result = run_text(CIRCLE, scheduler.clone(), true).expect("ends");
        assert!(result.makespan.0 < 10_000_000, "{scheduler:?}: {}", result.makespan);
        let own = run_text(CIRCLE, scheduler, false);
        assert!(matches!(own, Err(SimError::Deadlock { .. })), "{own:?}");
    }
}

#[test]
fn a_workload_of_ones_own_that_stalls_is_a_deadlock_under_both_classes() {
    for scheduler in [Scheduler::Kernel, vtime()] {
        let error = run(scheduler, false).expect_err("both wait for room");
        assert!(matches!(&error, SimError::Deadlock { .. }), "{error}");
        assert!(error.to_string().contains("room in 'there'"), "{error}");
    }
}
