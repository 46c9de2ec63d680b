//! The life of a task as its callbacks tell it: init_task, enable, (runnable, (running, stopping)*,
//! quiescent)*, disable, exit_task; and each stay in the scheduler's custody ends with one dequeue.

mod ext_runs;

use ext_runs::Run;
use schedlab_model::event::NullSink;
use std::collections::BTreeMap;

const WORKLOAD: &str = r#"
name = "lives"
duration = "1s"
[[task]]
name = "short"
count = 3
steps = [{ loop = { count = 20, steps = [{ run = "2ms" }, { sleep = "3ms" }] } }]
[[task]]
name = "long"
count = 3
steps = [{ loop = { count = 0, steps = [{ run = "13ms" }, { sleep = "1ms" }] } }]
"#;

/// Where a task is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Unknown,
    Initialised,
    Asleep,
    Waiting,
    Running,
    Disabled,
    Gone,
}

fn after(life: Life, callback: &str) -> Option<Life> {
    Some(match (life, callback) {
        (Life::Unknown, "init_task") => Life::Initialised,
        (Life::Initialised, "enable") => Life::Asleep,
        (Life::Asleep, "runnable") => Life::Waiting,
        (Life::Waiting, "running") => Life::Running,
        (Life::Running, "stopping") => Life::Waiting,
        (Life::Waiting, "quiescent") => Life::Asleep,
        (Life::Asleep, "disable") => Life::Disabled,
        (Life::Disabled, "exit_task") => Life::Gone,
        (Life::Asleep, "select_cpu" | "set_weight") => life,
        (Life::Waiting, "enqueue" | "dequeue") => life,
        (Life::Running, "tick" | "dispatch") | (Life::Waiting | Life::Asleep, "dispatch") => life,
        _ => return None,
    })
}

#[test]
fn callbacks_keep_the_order_of_a_task_s_life() {
    let mut simulation = Run::new("maximal", WORKLOAD, 2).simulation();
    simulation.log_callbacks();
    let result = simulation.run(&mut NullSink).expect("runs");
    assert_eq!(result.scheduler_exit, None);
    let mut lives: BTreeMap<String, (Life, bool)> = BTreeMap::new();
    let calls = simulation.take_callbacks().records;
    for call in calls.iter().filter(|call| !call.task.is_empty()) {
        let (life, custody) = lives.entry(call.task.clone()).or_insert((Life::Unknown, false));
        let next = after(*life, call.callback);
        *life = next.unwrap_or_else(|| panic!("{call} of a task that is {life:?}"));
        match call.callback {
            "enqueue" => assert!(!std::mem::replace(custody, true), "{call}: enqueued twice"),
            "dequeue" => assert!(std::mem::replace(custody, false), "{call}: not in custody"),
            "running" => assert!(!*custody, "{call}: runs in the scheduler's custody"),
            _ => {}
        }
    }
    assert_eq!(lives.len(), 6);
    let gone = lives.iter().filter(|(_, (life, _))| *life == Life::Gone);
    assert!(
        gone.clone().count() == 3 && gone.clone().all(|(name, _)| name.starts_with("short")),
        "{lives:?}"
    );
    let idle = calls.iter().filter(|call| call.callback == "update_idle").map(|call| &call.args[..]);
    assert!(idle.clone().any(|args| args == [0, 1]) && idle.clone().any(|args| args == [0, 0]));
}
