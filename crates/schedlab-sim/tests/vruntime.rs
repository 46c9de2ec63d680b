//! Virtual runtimes as a run tells them: they grow alike whatever tasks weigh, under the fair class of every generation and
//! under schedulers that keep a virtual time; who keeps none tells none.

// A test may read files; the simulator may not.
#![allow(clippy::disallowed_methods)]

mod ext_runs;

use ext_runs::Run;
use schedlab_model::TaskId;
use schedlab_model::event::{Event, EventKind};
use schedlab_model::machine::KernelVersion;
use schedlab_sim::{Scheduler, Simulation};

const MS: i64 = 1_000_000;

/// Two hogs, of nice 0 and of nice 5.
const HOGS: &str = "name = \"two\"\nduration = \"4s\"\n[[task]]\nname = \"heavy\"\nsteps = [{ run = \"1000s\" }]\n\
                    [[task]]\nname = \"light\"\nnice = 5\nsteps = [{ run = \"1000s\" }]\n";

/// One task alone, and one that sleeps beside it for a while.
const SLEEPER: &str = "name = \"sleeper\"\nduration = \"1s\"\n[[task]]\nname = \"hog\"\nsteps = [{ run = \"1000s\" }]\n\
                       [[task]]\nname = \"sleeper\"\nsteps = [{ run = \"2ms\" }, { sleep = \"500ms\" }, { run = \"1000s\" }]\n";

fn events(scheduler: &str, kernel: KernelVersion, workload: &str) -> Vec<Event> {
    let object = if scheduler == "fair" { "vtime" } else { scheduler };
    let mut config = Run::new(object, workload, 1).config();
    if scheduler == "fair" {
        config.scheduler = Scheduler::Kernel;
    }
    config.kernel = Some(kernel);
    let mut events: Vec<Event> = Vec::new();
    Simulation::new(config).expect("valid").run(&mut events).expect("runs");
    events
}

/// Times in ns and virtual runtimes of a task.
fn told(events: &[Event], of: u32) -> Vec<(u64, i64)> {
    let value = |event: &Event| match event.kind {
        EventKind::Vruntime { task, vruntime, .. } if task == TaskId(of) => Some((event.time.0, vruntime)),
        _ => None,
    };
    events.iter().filter_map(value).collect()
}

/// CPU time of a task between two instants, by the switches.
fn ran(events: &[Event], of: u32, from: u64, to: u64) -> u64 {
    let (mut sum, mut since) = (0, None);
    for event in events {
        let EventKind::Switch { prev, next, .. } = event.kind else { continue };
        let time = event.time.0.clamp(from, to);
        if prev == TaskId(of) {
            sum += since.take().map_or(0, |since| time - since);
        }
        if next == TaskId(of) {
            since = Some(time);
        }
    }
    sum + since.map_or(0, |since| to - since)
}

const KINDS: [(&str, KernelVersion); 6] = [
    ("fair", KernelVersion::V5_7),
    ("fair", KernelVersion::V6_1),
    ("fair", KernelVersion { major: 6, minor: 12 }),
    ("fair", KernelVersion::V7_2),
    ("vtime", KernelVersion::V7_2),
    ("cfs", KernelVersion::V7_2),
];

#[test]
fn the_virtual_runtimes_of_two_hogs_grow_alike_though_their_cpu_times_do_not() {
    for (scheduler, kernel) in KINDS {
        let events = events(scheduler, kernel, HOGS);
        let [heavy, light] = [1, 2].map(|task| told(&events, task));
        assert!(
            heavy.len() > 50 && light.len() > 50,
            "{scheduler} {kernel}: {} {}",
            heavy.len(),
            light.len()
        );
        for values in [&heavy, &light] {
            assert!(values.is_sorted_by_key(|value| value.1), "{scheduler} {kernel}: a hog's only grows");
        }
        let growth = |values: &[(u64, i64)]| values.last().expect("some").1 - values[0].1;
        let (a, b) = (growth(&heavy), growth(&light));
        // A slice of the light one is three times as long in virtual time.
        assert!((a - b).abs() < 70 * MS, "{scheduler} {kernel}: {a} and {b} ns");
        assert!(a > 2_000 * MS, "{scheduler} {kernel}: {a} ns");
        let [of_heavy, of_light] = [1, 2].map(|task| ran(&events, task, 0, 4_000 * MS as u64) as f64);
        assert!((of_heavy / of_light - 1024.0 / 335.0).abs() < 0.2, "{scheduler} {kernel}");
    }
}

#[test]
fn a_stay_costs_its_length_divided_by_the_weight() {
    for (scheduler, kernel) in KINDS {
        let events = events(scheduler, kernel, HOGS);
        let mut factors = Vec::new();
        for (task, weight) in [(1, 1024.0), (2, 335.0)] {
            let values = told(&events, task);
            let [(from, first), (to, last)] = [values[0], values[values.len() - 1]];
            let (virtual_time, real) = ((last - first) as f64, ran(&events, task, from, to) as f64);
            let factor = virtual_time / real * weight / 1024.0;
            factors.push(factor);
        }
        // Under vtime a stay costs no more than its slice of 20 ms, which ends at the tick after 24.
        let wanted = if scheduler == "vtime" { 20.0 / 24.0 } else { 1.0 };
        let all_are = factors.iter().all(|factor| (factor - wanted).abs() < 0.01);
        assert!(all_are, "{scheduler} {kernel}: {factors:?}");
    }
}

#[test]
fn who_sleeps_is_put_near_the_others_again() {
    for (scheduler, kernel) in KINDS {
        let events = events(scheduler, kernel, SLEEPER);
        let (hog, sleeper) = (told(&events, 1), told(&events, 2));
        // It first comes again after its sleep.
        let woken = sleeper.iter().find(|value| value.0 > 400_000_000).expect("it comes again");
        let beside = hog.iter().rfind(|value| value.0 <= woken.0).expect("the hog ran before");
        // Under vtime a slice behind the others, of whom one has just used up a slice.
        let near = if scheduler == "vtime" { 41 * MS } else { 30 * MS };
        assert!((beside.1 - woken.1).abs() < near, "{scheduler} {kernel}: {beside:?} {woken:?}");
        assert!(beside.1 - hog[0].1 > 300 * MS, "{scheduler} {kernel}: the hog went on");
    }
}

#[test]
fn schedulers_without_a_virtual_time_tell_none() {
    let events = events("fifo", KernelVersion::V7_2, HOGS);
    assert!(told(&events, 1).is_empty() && !events.is_empty());
}
