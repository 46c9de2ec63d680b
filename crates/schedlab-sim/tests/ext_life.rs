//! The life of a task as its callbacks tell it: init_task, enable, (runnable, (running, stopping)*,
//! quiescent)*, disable, exit_task; and each stay in the scheduler's custody ends with one dequeue.

mod ext_runs;

use ext_runs::Run;
use schedlab_model::TaskId;
use schedlab_model::event::{Context, Event, EventKind, NullSink};
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

/// Every second of ten forks is refused: five children, no word of the others, and the run says so.
#[test]
fn a_fork_that_the_scheduler_refuses_fails() {
    let run = Run::new("fork_fails", include_str!("../../../tests/conformance/forks.toml"), 2);
    let mut events: Vec<Event> = Vec::new();
    let result = run.run(&mut events);
    let failed = result.failed_forks.expect("forks failed");
    assert_eq!(failed.to_string(), "ops.init_task() failed 5 forks, the first of task 't_child' (-11)");
    assert_eq!(result.scheduler_exit, None);
    let count = |wanted: fn(&EventKind) -> bool| events.iter().filter(|event| wanted(&event.kind)).count();
    assert_eq!(count(|kind| matches!(kind, EventKind::Fork { .. })), 5);
    assert_eq!(count(|kind| matches!(kind, EventKind::Exit { .. })), 5);
    let ran = result.accounts[2..].iter().filter(|account| account.cpu_time.0 >= 2_000_000).count();
    assert_eq!((result.accounts.len(), ran), (12, 5), "idle, the parent, and ten rows of which five ran");
}

/// Nobody of whom the scheduler refuses every task comes into being: the run is over at once.
#[test]
fn work_that_is_refused_whole_does_nothing() {
    let result = Run::new("init_task_fails", WORKLOAD, 2).run(&mut NullSink);
    assert_eq!(result.failed_forks.map(|failed| failed.count), Some(6));
    assert_eq!((result.makespan.0, result.cut), (0, false));
}

/// The only writer of a channel is refused when it should start: its reader learns so from outside the work, not from the
/// task that happens to run.
#[test]
fn a_refused_start_wakes_in_nobody_s_name() {
    let text = r#"
        name = "refused"
        duration = "100ms"
        [channels]
        pipe = { type = "bytes" }
        [[task]]
        name = "t_hog"
        steps = [{ run = "1s" }]
        [[task]]
        name = "reader"
        steps = [{ receive = { channel = "pipe", bytes = 1 } }]
        [[task]]
        name = "taken"
        start = "40ms"
        steps = [{ run = "1us" }]
        [[task]]
        name = "refused"
        start = "60ms"
        steps = [{ send = { channel = "pipe", bytes = 1 } }]
    "#;
    let mut events: Vec<Event> = Vec::new();
    let result = Run::new("fork_fails", text, 1).run(&mut events);
    assert_eq!(result.failed_forks.map(|failed| failed.first), Some("'refused' (-11)".to_owned()));
    let woken = events.iter().find_map(|event| match event.kind {
        EventKind::Waking { context, wakee: TaskId(2), .. } => Some((event.time.0 / 1_000_000, context)),
        _ => None,
    });
    assert_eq!(woken, Some((60, Context::HardIrq)));
}
