//! Our schedulers where the answer is known: a wrong ranking fails.

mod ext_runs;

use ext_runs::{Run, cpu_times};
use schedlab_model::event::{EventKind, NullSink};
use schedlab_model::machine::KernelVersion;
use schedlab_model::topology::Topology;
use schedlab_model::{CpuId, Event};

const SCHEDULERS: [&str; 7] =
    ["fifo", "vtime", "fixed_priority", "ingosched", "ingo_ll", "nicksched", "staircase"];

/// A task with a job of 1 ms every 20 ms beside hogs, one CPU.
const PERIODIC_BESIDE_HOGS: &str = r#"
name = "periodic beside hogs"
duration = "5s"
[[task]]
name = "periodic"
steps = [{ loop = { count = 0, steps = [{ run = "1ms" }, { sleep = "19ms" }] } }]
[[task]]
name = "hog"
count = 3
steps = [{ run = "60s" }]
"#;

const WEIGHTS: &str = r#"
name = "weights"
duration = "10s"
[[task]]
name = "strong"
nice = -5
steps = [{ run = "60s" }]
[[task]]
name = "weak"
steps = [{ run = "60s" }]
"#;

fn mean_delay_of_first(scheduler: &str, knobs: &[(&str, i64)]) -> u64 {
    let result = Run { knobs, ..Run::new(scheduler, PERIODIC_BESIDE_HOGS, 1) }.run(&mut NullSink);
    assert_eq!(result.scheduler_exit, None, "{scheduler}");
    let periodic = &result.accounts[1];
    periodic.run_delay.0 / periodic.voluntary_switches.max(1)
}

#[test]
fn a_periodic_task_waits_longer_under_fifo_than_under_vtime() {
    let fifo = mean_delay_of_first("fifo", &[("slice_ns", 50_000_000)]);
    let vtime = mean_delay_of_first("vtime", &[("slice_ns", 5_000_000)]);
    assert!(fifo > 100_000_000, "three hogs with slices of 50 ms: {fifo} ns");
    assert!(vtime < 8_000_000, "at most the rest of one slice of 5 ms and a tick: {vtime} ns");
}

#[test]
fn a_heavier_weight_gets_its_share_under_vtime() {
    let result = Run::new("vtime", WEIGHTS, 1).run(&mut NullSink);
    let times = cpu_times(&result);
    let share = times[0] as f64 / (times[0] + times[1]) as f64;
    // nice -5 weighs 3121, nice 0 weighs 1024; a slice is a fifth of a percent of the run.
    assert!((share - 3121.0 / 4145.0).abs() < 0.01, "{share}");
}

/// Two hogs, of which one has a real-time task put it off the CPU for a moment after each ms.
const INTERRUPTED: &str = r#"
name = "interrupted"
duration = "10s"
[channels]
bell = { type = "tokens" }
[[task]]
name = "interrupted"
steps = [{ loop = { steps = [{ run = "1ms" }, { post = { channel = "bell" } }] } }]
[[task]]
name = "other"
steps = [{ run = "60s" }]
[[task]]
name = "real-time"
policy = "fifo"
rt_priority = 1
steps = [{ loop = { steps = [{ take = { channel = "bell" } }, { run = "1us" }] } }]
"#;

#[test]
fn who_is_put_off_the_cpu_within_a_slice_is_charged_once_under_vtime() {
    let result = Run::new("vtime", INTERRUPTED, 1).run(&mut NullSink);
    let times = cpu_times(&result);
    assert!(result.accounts[3].voluntary_switches > 4_000, "{:?}", result.accounts[3]);
    // Its slice ends when it is used up, at 20 ms; the other's at the next tick, 24 ms, which costs it no more.
    let share = times[0] as f64 / times[1] as f64;
    assert!((share - 20.0 / 24.0).abs() < 0.02, "{times:?}");
}

#[test]
fn equal_weights_get_equal_shares_under_every_scheduler() {
    let workload = WEIGHTS.replace("nice = -5", "nice = 0");
    for scheduler in SCHEDULERS {
        let result = Run::new(scheduler, &workload, 1).run(&mut NullSink);
        let times = cpu_times(&result);
        // nicksched's slices are 400 ms where nobody sleeps.
        let slice = if scheduler == "nicksched" { 400_000_000 } else { 100_000_000 };
        assert!(times[0].abs_diff(times[1]) <= slice, "{scheduler}: {times:?}");
    }
}

#[test]
fn fixed_priority_starves_the_weak() {
    let result = Run::new("fixed_priority", WEIGHTS, 1).run(&mut NullSink);
    let times = cpu_times(&result);
    assert!(times[1] < 1_000_000, "the weak task ran {} ns", times[1]);
    // Linux lets no scheduler do that for longer than its watchdog, 30 s by default.
    let longer = WEIGHTS.replace("10s", "60s").replace("\"60s\" }]", "\"100s\" }]");
    let result = Run::new("fixed_priority", &longer, 1).run(&mut NullSink);
    let exit = result.scheduler_exit.clone().expect("the watchdog");
    assert_eq!((exit.kind, exit.reason.as_str()), (1026, "runnable task stall"));
    assert!(exit.message.starts_with("weak[") && exit.message.contains("failed to run for "), "{exit:?}");
    assert!(cpu_times(&result)[1] > 3_000_000_000, "fair gives it its share afterwards");
}

#[test]
fn a_stronger_task_that_wakes_takes_the_cpu_under_fixed_priority() {
    let workload = PERIODIC_BESIDE_HOGS.replace("name = \"periodic\"\n", "name = \"periodic\"\nnice = -5\n");
    let delay = |knobs| {
        let result = Run { knobs, ..Run::new("fixed_priority", &workload, 1) }.run(&mut NullSink);
        result.accounts[1].run_delay.0 / result.accounts[1].voluntary_switches
    };
    let (with, without) = (delay(&[]), delay(&[("wakeup_preemption", 0)]));
    assert!(with < 20_000 && without > 1_000_000, "{with} and {without} ns");
}

/// More tasks than CPUs of one cache, all of them allowed everywhere.
const CROWD: &str = r#"
name = "crowd"
duration = "2s"
[[task]]
name = "worker"
count = 12
steps = [{ loop = { count = 0, steps = [{ run = "3ms" }, { sleep = "1ms" }] } }]
"#;

#[test]
fn no_cpu_idles_while_a_task_waits() {
    for topology in [Topology::flat(4), Topology::uniform(1, 2, 2, 1), Topology::uniform(2, 2, 1, 2)] {
        let topology = topology.expect("CPUs");
        for scheduler in SCHEDULERS {
            let run = Run { topology: topology.clone(), ..Run::new(scheduler, CROWD, 4) };
            let mut events: Vec<Event> = Vec::new();
            let result = run.run(&mut events);
            assert_eq!(result.scheduler_exit, None, "{scheduler}");
            let busy: u64 = cpu_times(&result).iter().sum();
            let cpus = topology.cpu_count() as u64;
            let possible = (12 * 3_000_000 * 2_000_000_000 / 4_000_000_u64).min(cpus * 2_000_000_000);
            assert!(busy * 100 > possible * 95, "{scheduler} on {cpus} CPUs: {busy} of {possible}");
        }
    }
}

#[test]
fn affinity_is_kept() {
    let workload = CROWD.replace("count = 12\n", "count = 12\ncpus = \"1-2\"\n");
    for scheduler in SCHEDULERS {
        let mut events: Vec<Event> = Vec::new();
        let result = Run::new(scheduler, &workload, 4).run(&mut events);
        assert_eq!(result.scheduler_exit, None, "{scheduler}");
        let elsewhere = |event: &&Event| {
            matches!(event.kind, EventKind::Switch { next, .. } if !next.is_idle())
                && ![CpuId(1), CpuId(2)].contains(&event.cpu)
        };
        assert_eq!(events.iter().find(elsewhere), None, "{scheduler}");
    }
}

#[test]
fn runs_repeat_and_the_interpreter_agrees() {
    for kernel in [KernelVersion::V6_12, KernelVersion::V6_18, KernelVersion::V7_2] {
        for scheduler in SCHEDULERS {
            let hash = |interpreted| {
                let run = Run { interpreted, kernel, ..Run::new(scheduler, CROWD, 4) };
                let result = run.run(&mut NullSink);
                assert_eq!(result.scheduler_exit, None, "{scheduler} on {kernel}");
                (result.report.event_hash, result.report.bpf_instructions)
            };
            assert_eq!(hash(false), hash(false), "{scheduler} on {kernel}");
            assert_eq!(hash(false), hash(true), "{scheduler} on {kernel}: native and interpreted");
        }
    }
}

#[test]
fn ranks_are_published() {
    for (scheduler, first) in [("fixed_priority", Some(120)), ("vtime", None), ("fifo", None)] {
        let mut events: Vec<Event> = Vec::new();
        Run::new(scheduler, CROWD, 2).run(&mut events);
        let keys = events.iter().filter_map(|event| match event.kind {
            EventKind::Rank { key, .. } => Some(key),
            _ => None,
        });
        let keys: Vec<i64> = keys.collect();
        assert!(keys.len() >= 2, "{scheduler}: {} ranks", keys.len());
        assert!(first.is_none_or(|first| keys.contains(&first)), "{scheduler}: {:?}", &keys[..2]);
    }
}

/// A real-time task that takes the CPU again and again from tasks of the scheduler.
const RT_BESIDE: &str = r#"
name = "real-time beside ext"
duration = "1s"
[[task]]
name = "rt"
policy = "fifo"
rt_priority = 10
steps = [{ loop = { count = 0, steps = [{ run = "2ms" }, { sleep = "8ms" }] } }]
[[task]]
name = "worker"
count = 2
steps = [{ run = "60s" }]
"#;

#[test]
fn real_time_preempts_and_the_preempted_task_goes_on_first() {
    for scheduler in SCHEDULERS {
        let mut events: Vec<Event> = Vec::new();
        let result = Run::new(scheduler, RT_BESIDE, 1).run(&mut events);
        assert_eq!(result.scheduler_exit, None, "{scheduler}");
        let (delay, runs) = (result.accounts[1].run_delay.0, result.accounts[1].voluntary_switches);
        assert!(runs >= 95 && delay / runs < 10_000, "{scheduler}: {runs} runs, {delay} ns in all");
        let switches = events.iter().filter_map(|event| match event.kind {
            EventKind::Switch { prev, next, .. } => Some((prev.0, next.0)),
            _ => None,
        });
        let switches: Vec<(u32, u32)> = switches.collect();
        let back = switches.windows(2).filter(|pair| pair[0].1 == 1 && pair[0].0 != 0);
        let same = back.clone().filter(|pair| pair[0].0 == pair[1].1).count();
        // Where the slice was used up since the last tick, another comes: that is one time in eight.
        assert!(same * 100 >= back.count() * 80, "{scheduler}: {same} times");
    }
}
