//! What happens to the machine and its cgroups, as schedulers from BPF see it: hotplug, suspend, weights, moves;
//! and the debug dump.

mod ext_runs;

use ext_runs::{Run, cpu_times};
use schedlab_model::event::{EventKind, NullSink};
use schedlab_model::machine::KernelVersion;
use schedlab_model::topology::Topology;
use schedlab_model::{CpuId, Event};
use schedlab_sim::Simulation;
use schedlab_sim::ext::{ExtOptions, ExtScheduler};

const CROWD: &str = r#"
name = "crowd"
duration = "400ms"
[[task]]
name = "t_short"
count = 4
steps = [{ loop = { count = 0, steps = [{ run = "1ms" }, { sleep = "3ms" }] } }]
[[task]]
name = "t_long"
count = 2
steps = [{ loop = { count = 0, steps = [{ run = "45ms" }, { sleep = "12ms" }] } }]
"#;

const CGROUPS: &str = r#"
name = "groups"
duration = "400ms"
[[cgroup]]
path = "/web"
weight = 200
[[task]]
name = "t_stays"
cgroup = "/web/front"
steps = [{ loop = { count = 0, steps = [{ run = "1ms" }, { sleep = "3ms" }] } }]
[[task]]
name = "t_moves"
steps = [{ run = "5ms" }, { set = { cgroup = "/batch" } }, { run = "5ms" }, { set = { cgroup = "/web" } }, { run = "50ms" }]
[[event]]
time = "100ms"
cgroup = { path = "/web", weight = 50 }
[[event]]
time = "150ms"
cgroup = { path = "/web", weight = 50, quota = "20ms" }
[[event]]
time = "200ms"
cgroup = { path = "/batch", idle = true }
"#;

fn global(simulation: &mut Simulation, name: &str) -> i64 {
    simulation.global(name).unwrap_or_else(|| panic!("the object has a variable {name}"))
}

fn run_to_the_end(run: &Run<'_>) -> Simulation {
    let mut simulation = run.simulation();
    simulation.run(&mut NullSink).expect("runs");
    let exit = simulation.unregister().expect("an object");
    assert_eq!((exit.kind, exit.message.as_str()), (64, ""));
    assert_eq!(global(&mut simulation, "failures"), 0, "line {}", global(&mut simulation, "first_failure"));
    assert!(global(&mut simulation, "checks") > 0);
    simulation
}

#[test]
fn cgroups_are_told_and_tasks_move_between_them() {
    let mut simulation = run_to_the_end(&Run::new("cgroups", CGROUPS, 2));
    let mut value = |name| global(&mut simulation, name);
    assert_eq!((value("groups"), value("left")), (4, 4), "the root, /batch, /web and /web/front");
    assert_eq!((value("prepared"), value("moved")), (2, 2), "t_moves, twice");
    assert_eq!((value("weights"), value("bandwidths"), value("idles")), (1, 1, 1));
    assert_eq!(value("weight_sum"), 100 + 100 + 200 + 100 + 50);
}

#[test]
fn a_refused_move_leaves_the_task_where_it_is() {
    let mut simulation = run_to_the_end(&Run { knobs: &[("refuse", 1)], ..Run::new("cgroups", CGROUPS, 2) });
    assert_eq!((global(&mut simulation, "prepared"), global(&mut simulation, "moved")), (0, 0));
}

#[test]
fn callbacks_that_a_kernel_lacks_are_refused() {
    let topology = Topology::flat(2).expect("CPUs");
    let kernel = "6.16".parse().expect("a version");
    let object =
        ExtScheduler::load("cgroups", ext_runs::object("cgroups"), kernel, &topology, ExtOptions::default());
    let error = object.expect_err("6.16 knows nothing of bandwidth").to_string();
    assert!(error.contains("no callback `cgroup_set_bandwidth`"), "{error}");
}

/// Which CPUs ran something of the workload, before and after an instant.
fn busy(events: &[Event], since_ns: u64, until_ns: u64) -> Vec<u32> {
    let ran =
        events.iter().filter(|event| (since_ns..until_ns).contains(&event.time.0)).filter_map(|event| {
            matches!(event.kind, EventKind::Switch { next, .. } if !next.is_idle()).then_some(event.cpu)
        });
    let mut cpus: Vec<u32> = ran.map(|CpuId(cpu)| cpu).collect();
    cpus.sort_unstable();
    cpus.dedup();
    cpus
}

fn with_events(events: &str) -> String {
    format!("{CROWD}{events}")
}

#[test]
fn an_offline_cpu_runs_nothing_under_any_scheduler() {
    let text = with_events(
        "[[event]]\ntime = \"100ms\"\ncpu = 1\nonline = false\n[[event]]\ntime = \"250ms\"\ncpu = 1\nonline = true\n",
    );
    // vtime has no hotplug callbacks: it ends, and the fair class goes on under the same rules.
    for scheduler in ["vtime", "attributes"] {
        let mut events: Vec<Event> = Vec::new();
        let result = Run::new(scheduler, &text, 4).run(&mut events);
        let exit = result.scheduler_exit.clone().expect("ended by hotplug");
        assert_eq!((exit.kind, exit.code), (66, 1 << 48 | 1 << 32), "{}", exit.message);
        assert_eq!(exit.message, "cpu 1 going offline, exiting scheduler");
        assert_eq!(busy(&events, 0, 100_000_000), [0, 1, 2, 3]);
        assert_eq!(busy(&events, 101_000_000, 250_000_000), [0, 2, 3]);
        assert_eq!(busy(&events, 260_000_000, 400_000_000), [0, 1, 2, 3]);
        let all: u64 = cpu_times(&result).iter().sum();
        assert!(all > 900_000_000, "no task is lost: {all} ns in all");
    }
}

#[test]
fn a_task_whose_only_cpu_leaves_runs_elsewhere_and_comes_back() {
    let text = "name = \"pinned\"\nduration = \"300ms\"\n[[task]]\nname = \"t_pinned\"\ncpus = \"1\"\nsteps = [{ loop = { count = 0, steps = [{ run = \"1ms\" }, { sleep = \"1ms\" }] } }]\n[[event]]\ntime = \"100ms\"\ncpu = 1\nonline = false\n[[event]]\ntime = \"200ms\"\ncpu = 1\nonline = true\n";
    let mut events: Vec<Event> = Vec::new();
    Run::new("hotplug_stays", text, 2).run(&mut events);
    assert_eq!(busy(&events, 0, 99_000_000), [1]);
    assert_eq!(busy(&events, 101_000_000, 199_000_000), [0]);
    assert_eq!(busy(&events, 203_000_000, 300_000_000), [1]);
}

#[test]
fn a_local_queue_of_an_offline_cpu() {
    let text = with_events("[[event]]\ntime = \"100ms\"\ncpu = 1\nonline = false\n");
    let mut simulation = Run { knobs: &[("target", 1)], ..Run::new("hotplug_stays", &text, 2) }.simulation();
    let result = simulation.run(&mut NullSink).expect("runs");
    assert_eq!(result.scheduler_exit, None, "no error: the task goes to the global queue");
    assert!(global(&mut simulation, "fell_back") > 0);
}

#[test]
fn a_suspended_machine_bypasses_the_scheduler() {
    let text = with_events("[[event]]\ntime = \"100ms\"\nsuspend = \"100ms\"\n");
    let mut simulation = Run::new("hotplug_stays", &text, 2).simulation();
    simulation.log_callbacks();
    let result = simulation.run(&mut NullSink).expect("runs");
    assert_eq!(result.scheduler_exit, None);
    let calls = simulation.take_callbacks().records;
    let enqueues = |since: u64, until: u64| {
        calls
            .iter()
            .filter(|call| call.callback == "enqueue" && (since..until).contains(&call.time_ns))
            .count()
    };
    assert!(enqueues(0, 100_000_000) > 10 && enqueues(200_000_000, 400_000_000) > 10);
    assert_eq!(enqueues(100_000_001, 199_999_999), 0, "nobody is given to the scheduler");
    let busy: u64 = cpu_times(&result).iter().sum();
    assert!(busy > 500_000_000, "work goes on: {busy} ns");
    let mut value = |name| global(&mut simulation, name);
    assert_eq!(value("bypasses"), 1);
    assert_eq!(value("bypass_ns"), 100_000_000);
    assert!(value("bypass_dispatches") > 5);
}

#[test]
fn overlapping_suspends_are_one_bypass() {
    let suspends = [("100ms", "100ms"), ("150ms", "150ms")];
    let events = suspends.map(|(time, long)| format!("[[event]]\ntime = \"{time}\"\nsuspend = \"{long}\"\n"));
    let mut simulation = Run::new("hotplug_stays", &with_events(&events.concat()), 2).simulation();
    let result = simulation.run(&mut NullSink).expect("runs");
    assert_eq!(result.scheduler_exit, None);
    let mut value = |name| global(&mut simulation, name);
    assert_eq!((value("bypasses"), value("bypass_ns")), (1, 200_000_000));
}

/// Many tasks on one of two CPUs, which may run on both from the moment the machine is suspended.
const SKEWED: &str = r#"
name = "skewed"
duration = "3s"
[[task]]
name = "t"
count = 80
cpus = "0"
steps = [{ run = "1ms" }, { set = { cpus = "0-1" } }, { loop = { count = 0, steps = [{ run = "20ms" }] } }]
[[event]]
time = "500ms"
suspend = "2500ms"
"#;

#[test]
fn bypass_is_balanced_since_6_19() {
    let idle = |kernel| {
        // Whoever waits stays where it is until bypass is balanced: the object enqueues to the CPU of before.
        let run = Run { kernel, ..Run::new("stays_put", SKEWED, 2) };
        let result = run.run(&mut NullSink);
        assert_eq!(result.scheduler_exit, None);
        3_000 * 2 - cpu_times(&result).iter().sum::<u64>() / 1_000_000
    };
    let (balanced, global) = (idle(KernelVersion::V7_2), idle(KernelVersion::V6_18));
    assert!((900..1_100).contains(&balanced), "the second CPU idles for half a second more: {balanced} ms");
    assert!((450..600).contains(&global), "the global queue serves both at once: {global} ms");
}

#[test]
fn a_stale_hotplug_seq_ends_the_scheduler() {
    let text = with_events("").replace("duration = \"400ms\"", "duration = \"400ms\"\noffline = \"1\"");
    let result = Run::new("hotplug_seq", &text, 2).run(&mut NullSink);
    let exit = result.scheduler_exit.expect("one event was seen, seven were expected");
    assert_eq!((exit.kind, exit.code), (66, 1 << 48 | 1 << 32));
    assert_eq!(exit.message, "expected hotplug seq 7 did not match actual 1");
}

#[test]
fn event_counters_are_in_the_dump() {
    let result = Run::new("dump", CROWD, 2).run(&mut NullSink);
    let dump = result.scheduler_exit.expect("an error").dump;
    let lines: Vec<&str> = dump.lines().collect();
    assert_eq!(lines[0], "dump: root");
    assert!(
        lines[1].ends_with("triggered exit kind 1025 on CPU 0:") || lines[1].ends_with("on CPU 1:"),
        "{dump}"
    );
    assert_eq!(lines[2], "  scx_bpf_error (enough of 20)");
    assert!(lines[4].starts_with("enqueued "), "what ops.dump() says, after a blank line: {dump}");
    assert!(lines.contains(&"CPU states") && lines.contains(&"Event counters"), "{dump}");
    assert!(dump.contains("\n  cpu 1\n") && dump.contains("\n    task 10"), "{dump}");
    for name in ["SELECT_CPU_FALLBACK", "DISPATCH_KEEP_LAST", "REENQ_IMMED", "REENQ_LOCAL_REPEAT"] {
        assert!(dump.contains(&format!("SCX_EV_{name}: ")), "{dump}");
    }
    let kernel = "6.14".parse().expect("a version");
    let before = Run { kernel, ..Run::new("dump", CROWD, 2) }.run(&mut NullSink);
    let before = before.scheduler_exit.expect("an error").dump;
    assert!(!before.contains("Event counters") && !before.contains(": root"), "{before}");
}

#[test]
fn a_dump_is_cut_to_its_length() {
    let result = Run::new("dump_short", CROWD, 2).run(&mut NullSink);
    let dump = result.scheduler_exit.expect("an error").dump;
    assert!(dump.len() < 200 && dump.ends_with("~~~~ TRUNCATED ~~~~\n"), "{}: {dump}", dump.len());
}

#[test]
fn dispatch_is_called_32_times_at_most_in_one_pass() {
    let mut simulation = Run::new("dispatch_loops", CROWD, 2).simulation();
    simulation.log_callbacks();
    simulation.run(&mut NullSink).expect("runs");
    let calls = simulation.take_callbacks().records;
    let (mut longest, mut at) = (0, (0, 0, 0));
    for call in calls.iter().filter(|call| call.callback == "dispatch") {
        at = if (at.0, at.1) == (call.time_ns, call.cpu) {
            (at.0, at.1, at.2 + 1)
        } else {
            (call.time_ns, call.cpu, 1)
        };
        longest = longest.max(at.2);
    }
    assert_eq!(longest, 32);
}
