//! Schedulers come and go while tasks run: what they are told, in which order, and that no task is lost.

mod ext_runs;

use ext_runs::object;
use schedlab_model::event::NullSink;
use schedlab_model::machine::{KernelVersion, MachineDescription};
use schedlab_model::topology::Topology;
use schedlab_model::workload::file::parse;
use schedlab_sim::ext::{CallRecord, ExtOptions, ExtScheduler};
use schedlab_sim::{Attachable, Scheduler, Simulation, SimulationConfig, SimulationResult};
use std::sync::Arc;

const WORK: &str = r#"
name = "mixed"
duration = "1s"
[[task]]
name = "hog"
count = 3
steps = [{ loop = { count = 0, steps = [{ run = "50ms" }] } }]
[[task]]
name = "waker"
count = 2
steps = [{ loop = { count = 0, steps = [{ run = "1ms" }, { sleep = "3ms" }] } }]
[[task]]
name = "urgent"
policy = "fifo"
rt_priority = 5
steps = [{ loop = { count = 0, steps = [{ run = "1ms" }, { sleep = "9ms" }] } }]
"#;

struct Switching<'a> {
    work: String,
    first: Option<&'a str>,
    others: &'a [&'a str],
    kernel: KernelVersion,
    restart: bool,
}

impl<'a> Switching<'a> {
    fn new(events: &str, first: Option<&'a str>, others: &'a [&'a str]) -> Switching<'a> {
        let work = format!("{WORK}{events}");
        Switching { work, first, others, kernel: KernelVersion::V7_2, restart: false }
    }

    fn simulation(&self) -> Simulation {
        let topology = Topology::flat(2).expect("CPUs");
        let load = |name: &str| {
            let options = ExtOptions::default();
            ExtScheduler::load(name, object(name), self.kernel, &topology, options).expect("loads")
        };
        let mut machine = MachineDescription::generic("test", topology.clone());
        machine.kernel = self.kernel;
        let mut config = SimulationConfig::new(machine, Arc::new(parse(&self.work).expect("a workload")));
        config.scheduler = self.first.map_or(Scheduler::Kernel, |name| Scheduler::Ext(load(name)));
        let attachable =
            |name: &&str| Attachable { name: (*name).to_owned(), scheduler: load(name), knobs: Vec::new() };
        config.attachable = self.others.iter().map(attachable).collect();
        config.restart = self.restart;
        Simulation::new(config).expect("valid")
    }

    fn run(&self) -> (SimulationResult, Vec<CallRecord>) {
        let mut simulation = self.simulation();
        simulation.log_callbacks();
        let result = simulation.run(&mut NullSink).expect("runs");
        (result, simulation.take_callbacks().records)
    }
}

fn at(time: &str, scheduler: &str) -> String {
    format!("[[event]]\ntime = \"{time}\"\nscheduler = \"{scheduler}\"\n")
}

/// Both CPUs are always busy, and everybody had about what the others had.
fn nobody_is_lost(result: &SimulationResult) {
    nobody_is_lost_on(result, 1_960);
}

fn nobody_is_lost_on(result: &SimulationResult, cpu_ms: u64) {
    let times: Vec<u64> = result.accounts[1..].iter().map(|account| account.cpu_time.0 / 1_000_000).collect();
    assert!(times.iter().sum::<u64>() >= cpu_ms, "{times:?}");
    assert!(times[..3].iter().all(|time| *time > 200), "a hog starved: {times:?}");
    assert!(times[3..5].iter().all(|time| *time > 15), "a waker starved: {times:?}");
    assert!(times[5] > 90, "the real-time task starved: {times:?}");
}

#[test]
fn a_scheduler_comes_into_a_kernel_that_runs() {
    let run = Switching::new(&at("300ms", "maximal"), None, &["maximal"]);
    let (result, calls) = run.run();
    assert_eq!((result.scheduler_exit.as_ref(), result.detached.len()), (None, 0));
    nobody_is_lost(&result);
    assert!(result.report.bpf_instructions > 0, "the scheduler's programs ran");
    let before = calls.iter().find(|call| call.time_ns < 300_000_000);
    assert_eq!(before, None, "nothing is called before it comes");
    for name in ["init", "init_task", "enable", "enqueue", "dispatch", "running", "stopping"] {
        assert!(calls.iter().any(|call| call.callback == name), "ops.{name}() was not called");
    }
}

#[test]
fn tasks_that_exist_are_initialised_then_enabled() {
    let run = Switching::new(&at("300ms", "maximal"), Some("fifo"), &["maximal"]);
    let (result, calls) = run.run();
    assert_eq!(result.detached.len(), 1);
    assert_eq!(
        (result.detached[0].kind, result.detached[0].reason.as_str()),
        (64, "unregistered from user space")
    );
    nobody_is_lost(&result);
    let here: Vec<&CallRecord> = calls.iter().filter(|call| call.time_ns == 300_000_000).collect();
    let order = |name: &str| {
        here.iter().filter(|call| call.callback == name).map(|call| call.task.as_str()).collect::<Vec<_>>()
    };
    let all = ["hog0", "hog1", "hog2", "waker0", "waker1", "urgent"];
    assert_eq!(order("init_task"), all, "in the order of their forks");
    assert_eq!(order("enable"), all[..5], "the real-time task stays what it is");
    let place = |name: &str| here.iter().position(|call| call.callback == name).expect(name);
    let last = |name: &str| here.iter().rposition(|call| call.callback == name).expect(name);
    assert!(place("init") < place("init_task") && last("init_task") < place("enable"));
    let first_enqueue = here.iter().position(|call| call.callback == "enqueue").expect("hogs wait");
    assert!(last("enable") < first_enqueue, "in bypass nothing is enqueued");
    for name in all {
        let running = here.iter().filter(|call| call.task == name && call.callback == "running").count();
        let stopping = here.iter().filter(|call| call.task == name && call.callback == "stopping").count();
        assert!(running <= stopping + 1, "{name}");
    }
}

#[test]
fn a_scheduler_leaves_and_the_fair_class_goes_on() {
    for (first, events) in
        [("vtime", at("300ms", "none")), ("fifo", at("300ms", "none") + &at("600ms", "vtime"))]
    {
        let (result, _) = Switching::new(&events, Some(first), &["vtime"]).run();
        assert_eq!((result.scheduler_exit.as_ref(), result.detached.len()), (None, 1));
        nobody_is_lost(&result);
    }
}

#[test]
fn switching_often_loses_nobody_in_any_version() {
    let names = ["vtime", "fifo", "none", "maximal"];
    let mut events = String::new();
    for step in 1..60_usize {
        events += &at(&format!("{}us", step * 15_037), names[step % names.len()]);
    }
    for kernel in [KernelVersion::V6_12, KernelVersion::V6_18, KernelVersion::V7_2] {
        let mut run = Switching::new(&events, Some("vtime"), &["vtime", "fifo", "maximal"]);
        run.kernel = kernel;
        let (result, _) = run.run();
        assert_eq!(result.scheduler_exit, None);
        nobody_is_lost(&result);
        assert_eq!(run.run().0.report.event_hash, result.report.event_hash, "the same again");
    }
}

#[test]
fn something_outside_ends_the_scheduler() {
    let cases = [
        ("sysrq", KernelVersion::V7_2, Some((67, ""))),
        ("soft-lockup", KernelVersion::V7_2, Some((1024, "soft lockup - CPU 1 stuck for 15s"))),
        ("soft-lockup", KernelVersion::V6_18, Some((1024, "soft lockup - CPU#1 stuck for 15s"))),
        ("soft-lockup", KernelVersion::V6_12, None),
        ("hard-lockup", KernelVersion::V7_2, Some((1024, "hard lockup - CPU 1"))),
        ("hard-lockup", KernelVersion::V6_18, None),
        ("rcu-stall", KernelVersion::V6_18, Some((1024, "RCU CPU stall detected!"))),
        // The timeout of 30 s, 7500 ticks of 4 ms, and the tick that sees it.
        ("watchdog-stall", KernelVersion::V6_12, Some((1026, "watchdog failed to check in for 30.004s"))),
    ];
    for (by, kernel, expected) in cases {
        let event = format!("[[event]]\ntime = \"300ms\"\nend_scheduler = \"{by}\"\ncpu = 1\n");
        let mut run = Switching::new(&event, Some("vtime"), &[]);
        run.kernel = kernel;
        let (result, _) = run.run();
        let found = result.scheduler_exit.as_ref().map(|exit| (exit.kind, exit.message.as_str()));
        assert_eq!(found, expected, "{by} on {kernel}");
        nobody_is_lost(&result);
    }
}

#[test]
fn a_scheduler_that_asks_for_it_is_attached_anew() {
    let event = "[[event]]\ntime = \"300ms\"\ncpu = 1\nonline = false\n";
    let mut run = Switching::new(event, Some("hotplug_nocb"), &[]);
    let (result, _) = run.run();
    assert_eq!(result.scheduler_exit.map(|exit| (exit.kind, exit.code)), Some((66, 1 << 48 | 1 << 32)));
    run.restart = true;
    let (result, calls) = run.run();
    assert_eq!((result.scheduler_exit.as_ref(), result.detached.len()), (None, 1));
    let ends = calls.iter().filter(|call| call.callback == "exit").count();
    assert_eq!(ends, 1, "the second one stays");
    nobody_is_lost_on(&result, 980 + 300);
}

#[test]
fn an_error_is_not_lost_behind_an_end_without() {
    let end =
        |time: &str, by: &str| format!("[[event]]\ntime = \"{time}\"\nend_scheduler = \"{by}\"\ncpu = 1\n");
    for (first, second, kept, other) in
        [("sysrq", "soft-lockup", 1024, 67), ("soft-lockup", "sysrq", 1024, 67), ("sysrq", "sysrq", 67, 67)]
    {
        let events = end("200ms", first) + &at("300ms", "fifo") + &end("400ms", second);
        let (result, _) = Switching::new(&events, Some("vtime"), &["fifo"]).run();
        let ended = result.scheduler_exit.as_ref().map(|exit| exit.kind);
        let others: Vec<u32> = result.detached.iter().map(|exit| exit.kind).collect();
        assert_eq!((ended, others), (Some(kept), vec![other]), "{first}, then {second}");
        nobody_is_lost(&result);
    }
}

#[test]
fn a_scheduler_that_ends_by_itself_as_it_is_replaced_was_not_detached() {
    let offline = "[[event]]\ntime = \"300ms\"\ncpu = 1\nonline = false\n";
    let events = format!("{offline}{}", at("300ms", "fifo"));
    let (result, _) = Switching::new(&events, Some("vtime"), &["fifo"]).run();
    let exit = result.scheduler_exit.as_ref().map(|exit| (exit.kind, exit.code));
    assert_eq!((exit, result.detached.len()), (Some((66, 1 << 48 | 1 << 32)), 0));
}

/// Tasks of `SCHED_EXT` and one that asks for it, and for another nice value, while the scheduler is there.
const POLICIES: &str = r#"
name = "policies"
duration = "100ms"
[[task]]
name = "ext"
policy = "ext"
steps = [{ loop = { count = 0, steps = [{ run = "1ms" }, { sleep = "1ms" }] } }]
[[task]]
name = "asks"
steps = [
    { sleep = "20ms" }, { run = "1ms" }, { set = { policy = "ext", nice = 5 } }, { run = "1ms" },
    { set = { nice = 3 } }, { loop = { count = 0, steps = [{ run = "1ms" }, { sleep = "1ms" }] } },
]
[[task]]
name = "late"
policy = "ext"
start = "50ms"
steps = [{ loop = { count = 0, steps = [{ run = "1ms" }, { sleep = "1ms" }] } }]
[[event]]
time = "10ms"
scheduler = "disallow"
"#;

#[test]
fn a_scheduler_may_refuse_tasks_that_were_there_before_it() {
    let mut run = Switching::new("", None, &["disallow"]);
    run.work = POLICIES.to_owned();
    let mut simulation = run.simulation();
    let result = simulation.run(&mut NullSink).expect("runs");
    assert_eq!(result.scheduler_exit, None);
    let counts = ["initialised", "forked", "enabled", "exited"].map(|name| simulation.global(name));
    assert_eq!(counts, [Some(2), Some(1), Some(1), Some(0)], "only the task that came later is enabled");
}

/// Suspended from 200 to 600 ms, another scheduler from 400 ms on, suspended again from 800 to 900 ms. Before 7.1 the
/// class counts who wants bypass, so that the second scheduler begins bypassed. Since then each scheduler does: the second
/// one is not suspended; the end of a suspend whose beginning it did not see leaves its count below zero, and the next
/// suspend does not bypass it (`scx_pm_handler`, `dec_bypass_depth`).
#[test]
fn a_suspend_outlives_its_scheduler() {
    let suspend = |time: &str, long: &str| format!("[[event]]\ntime = \"{time}\"\nsuspend = \"{long}\"\n");
    let events = suspend("200ms", "400ms") + &at("400ms", "maximal") + &suspend("800ms", "100ms");
    let seen = |kernel| {
        let run = Switching { kernel, ..Switching::new(&events, Some("fifo"), &["maximal"]) };
        let (result, calls) = run.run();
        assert_eq!(result.scheduler_exit, None);
        nobody_is_lost(&result);
        // Milliseconds within which tasks are given to the scheduler.
        [(50, 190), (210, 390), (410, 590), (610, 790), (810, 890), (910, 990)].map(|(since, until)| {
            calls.iter().any(|call| {
                call.callback == "enqueue" && (since..until).contains(&(call.time_ns / 1_000_000))
            })
        })
    };
    for kernel in [KernelVersion::V6_12, KernelVersion { major: 7, minor: 0 }] {
        assert_eq!(seen(kernel), [true, false, false, true, false, true], "{kernel}");
    }
    assert_eq!(seen(KernelVersion::V7_2), [true, false, true, true, true, true]);
}
