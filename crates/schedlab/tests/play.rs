//! `play`: workloads as real threads of this machine. What is counted must be what the simulated kernel counts; what is
//! timed is checked by CPU time and by order, not by the wall.

mod support;

use schedlab_model::event::{EventKind, Operation};
use schedlab_model::recording::{Recording, codec};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use support::{BINARY, can_record, file, run_in, scratch};

/// Forks, messages through a pipe and a socketless bell, jobs of a timer: everything in it is counted, not timed.
const COUNTED: &str = r#"
name = "counted"
[channels]
work = { type = "bytes", capacity = 4096 }
done = { type = "tokens" }
table = { type = "mutex" }
[[task]]
name = "maker"
steps = [
    { loop = { count = 5, steps = [{ fork = "helper" }] } },
    { loop = { count = 200, steps = [{ run = { exponential = "20us" } }, { send = { channel = "work", bytes = 64 } }] } },
    { close = "work" },
    { wait_children = true },
    { take = { channel = "done" } },
]
[[task]]
name = "taker"
steps = [
    { loop = { count = 200, steps = [{ receive = { channel = "work", bytes = 64 } }, { run = "10us" }] } },
    { post = { channel = "done" } },
]
[[task]]
name = "clock"
steps = [{ loop = { count = 20, steps = [{ timer = { period = "5ms" } }, { run = "200us" }] } }, { job_end = true }]
[[task]]
name = "helper"
template = true
steps = [{ lock = "table" }, { run = "300us" }, { unlock = "table" }]
"#;

/// What a run of the workload must count, wherever it runs.
fn counts(recording: &Recording) -> Value {
    let target = |task: schedlab_model::TaskId| recording.task(task).target;
    let count =
        |is: &dyn Fn(&EventKind) -> bool| recording.events.iter().filter(|event| is(&event.kind)).count();
    serde_json::json!({
        "forks": count(&|kind| matches!(kind, EventKind::Fork { parent, .. } if target(*parent))),
        "exits": count(&|kind| matches!(kind, EventKind::Exit { task } if target(*task))),
        "jobs": count(&|kind| matches!(kind, EventKind::Job { task, .. } if target(*task))),
        "helpers": recording.tasks.iter().filter(|task| task.target && task.name == "helper").count(),
        "bytes": sum(recording, Operation::PipeRead),
    })
}

/// Bytes that target tasks moved.
fn sum(recording: &Recording, wanted: Operation) -> i64 {
    let bytes = |kind: &EventKind| match *kind {
        EventKind::OperationExit { task, operation, result, .. }
            if operation == wanted && recording.task(task).target =>
        {
            result.max(0)
        }
        _ => 0,
    };
    recording.events.iter().map(|event| bytes(&event.kind)).sum()
}

/// Wake-ups of a task by its timers.
fn timer_wakeups(recording: &Recording, name: &str) -> usize {
    let of = |kind: &EventKind| matches!(*kind, EventKind::Waking { wakee, .. } if recording.task(wakee).name == name);
    recording.events.iter().filter(|event| of(&event.kind)).count()
}

fn decoded(path: &Path) -> Recording {
    codec::decode(&std::fs::read(path).expect("a recording")).expect("reads")
}

#[test]
fn live_and_simulated_runs_count_the_same() {
    if !can_record() {
        return;
    }
    let directory = scratch("play-counts");
    file(&directory, "w.toml", COUNTED);
    run_in(&directory, &["play", "w.toml", "--record", "live.slrec", "--json", "live.json"]).done();
    let simulate = ["simulate", "w.toml", "--machine", "this", "--record", "sim.slrec", "--json", "sim.json"];
    run_in(&directory, &simulate).done();
    let (live, simulated) = (decoded(&directory.join("live.slrec")), decoded(&directory.join("sim.slrec")));
    assert_eq!(counts(&live), counts(&simulated));
    // The first call only starts the timer, and a task that is late does not sleep.
    let woken = [&live, &simulated].map(|recording| timer_wakeups(recording, "clock"));
    assert!(woken.iter().all(|count| (15..=21).contains(count)), "{woken:?}");
    let documents = ["live.json", "sim.json"].map(|name| {
        let text = std::fs::read_to_string(directory.join(name)).expect("a result");
        serde_json::from_str::<Value>(&text).expect("JSON")
    });
    let keys = documents.each_ref().map(|document| {
        document["runs"][0]["values"].as_object().expect("values").keys().cloned().collect::<Vec<_>>()
    });
    // Whether a fairness can be told depends on who was runnable together.
    let both = keys.map(|keys| keys.into_iter().filter(|key| key != "fairness").collect::<Vec<_>>());
    assert_eq!(both[0], both[1], "the same metrics");
    assert_eq!(documents[0]["obtained"], "measured_here");
}

/// Two hogs of nice 0 and 5 on CPU 0, for 800 ms.
fn heavy_and_light() -> String {
    let hog = |name: &str, nice: i32| {
        format!(
            "[[task]]\nname = \"{name}\"\nnice = {nice}\ncpus = \"0\"\nsteps = [{{ loop = {{ steps = [{{ run = \"2ms\" }}] }} }}]\n"
        )
    };
    format!("name = \"hogs\"\nduration = \"800ms\"\n{}{}", hog("heavy", 0), hog("light", 5))
}

#[test]
fn shares_follow_weights_and_periods_are_kept() {
    if !can_record() {
        return;
    }
    let directory = scratch("play-shares");
    file(&directory, "hogs.toml", heavy_and_light());
    let result = run_in(&directory, &["play", "hogs.toml", "--json", "-"]).done().json();
    let tasks = result["runs"][0]["tasks"].as_array().expect("tasks");
    let cpu = |name: &str| {
        let task = tasks.iter().find(|task| task["name"] == name).expect(name);
        task["cpu_time_ns"].as_u64().expect("a time") as f64
    };
    // Weights 1024 and 335: 3.06 times, whoever else uses the CPU.
    let ratio = cpu("heavy") / cpu("light");
    assert!((2.6..3.6).contains(&ratio), "{ratio}: {tasks:?}");
}

/// Two hogs of one CPU whose weights differ grow alike in virtual time; the page and the trace draw it.
#[test]
fn virtual_runtimes_of_a_play_are_recorded_if_asked_for() {
    let directory = scratch("play-vruntime");
    let keep = ["--vruntime", "--record", "v.slrec", "--html", "v.html", "--perfetto", "v.pftrace"];
    let words = ["play", "hogs:count=2,nice=5", "--bare"];
    run_in(&directory, &[&words[..], &keep[..3]].concat()).refused(2, &["--bare", "--record"]);
    run_in(&directory, &["play", "hogs", "--vruntime"]).refused(2, &["--record", "--perfetto", "--html"]);
    if !can_record() {
        return;
    }
    file(&directory, "hogs.toml", heavy_and_light());
    run_in(&directory, &[&["play", "hogs.toml"][..], &keep].concat()).done();
    let recording = decoded(&directory.join("v.slrec"));
    let growth = |name: &str| {
        let value = |event: &schedlab_model::Event| match event.kind {
            EventKind::Vruntime { task, vruntime, .. } if recording.task(task).name == name => Some(vruntime),
            _ => None,
        };
        let values: Vec<i64> = recording.events.iter().filter_map(value).collect();
        assert!(values.len() > 20, "{name} is told at each switch: {}", values.len());
        (values[values.len() - 1] - values[0]) as f64
    };
    let ratio = growth("heavy") / growth("light");
    assert!((0.8..1.25).contains(&ratio), "virtual runtimes grow alike: {ratio}");
    let page = std::fs::read_to_string(directory.join("v.html")).expect("a page");
    for says in ["virtual runtime of each task", "heavy: ", "light: ", "of virtual runtime"] {
        assert!(page.contains(says), "the page does not say {says:?}");
    }
    let trace = std::fs::read(directory.join("v.pftrace")).expect("a trace");
    let track = b"virtual runtime of light";
    assert!(trace.windows(track.len()).any(|bytes| bytes == track), "the trace has the track");
}

#[test]
fn bare_plays_need_no_recorder_and_use_the_attributes() {
    let directory = scratch("play-bare");
    file(
        &directory,
        "w.toml",
        "name = \"w\"\n[[task]]\nname = \"a\"\ncount = 2\nsteps = [{ loop = { count = 10, steps = [{ run = \"1ms\" }] } }]",
    );
    let words = [
        "play",
        "w.toml",
        "--bare",
        "--runs",
        "5",
        "--set",
        "policy=batch",
        "--set",
        "nice=3",
        "--json",
        "-",
    ];
    let result = run_in(&directory, &words).done().json();
    let runs = result["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 5);
    // What a host takes from its guest counts as the task's: of the least disturbed run it is little.
    for task in 0..2 {
        let times = runs.iter().map(|run| run["tasks"][task]["cpu_time_ns"].as_u64().expect("a time"));
        let least = times.min().expect("five");
        assert!((10_000_000..11_500_000).contains(&least), "task {task}: {least} ns");
    }
    assert_eq!(runs[0]["tasks"].as_array().map(Vec::len), Some(2));
    assert_eq!(result["candidates"][0]["settings"], serde_json::json!(["policy=batch", "nice=3"]));
}

#[test]
fn what_cannot_be_played_is_refused_with_its_place() {
    let directory = scratch("play-refused");
    file(
        &directory,
        "w.toml",
        "name = \"w\"\noffline = \"1\"\n[[task]]\nname = \"a\"\nsteps = [{ run = \"1ms\" }]",
    );
    run_in(&directory, &["play", "w.toml"]).refused(2, &["`offline`", "live kernel"]);
    run_in(&directory, &["play", "w.slrec"]).refused(2, &["w.slrec"]);
    let recording = support::recording("mixed.slrec");
    run_in(&directory, &["play", &recording]).refused(2, &["is a recording", "simulate"]);
    run_in(&directory, &["play", "hogs", "--set", "base_slice_ns=1000000"])
        .refused(2, &["no attribute of a task"]);
}

#[test]
fn a_signal_ends_all_of_it() {
    let directory = scratch("play-signal");
    // Names that no other process has.
    let name = format!("hog{}", std::process::id());
    let text = format!(
        "name = \"w\"\nduration = \"1min\"\n[[task]]\nname = \"{name}\"\ncount = 2\n\
        steps = [{{ fork = \"{name}c\" }}, {{ loop = {{ steps = [{{ run = \"5ms\" }}] }} }}]\n\
        [[task]]\nname = \"{name}c\"\ntemplate = true\nsteps = [{{ loop = {{ steps = [{{ run = \"5ms\" }}] }} }}]"
    );
    file(&directory, "w.toml", text);
    for signal in ["INT", "KILL"] {
        let mut play = Command::new(BINARY)
            .args(["play", "w.toml", "--bare"])
            .current_dir(&directory)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("starts");
        wait_for("four tasks", || alive(&name) == 4);
        // The shell's own, since not every machine has the program.
        let sent = Command::new("sh").args(["-c", &format!("kill -{signal} {}", play.id())]).status();
        assert!(sent.expect("sh exists").success());
        let status = play.wait().expect("ends");
        assert!(signal == "KILL" || status.code() == Some(130), "{status}");
        wait_for("nobody", || alive(&name) == 0);
    }
}

/// Processes whose name begins so, and which are no zombies.
fn alive(name: &str) -> usize {
    let entries = std::fs::read_dir("/proc").expect("procfs").flatten();
    let is_one = |entry: &std::fs::DirEntry| {
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        stat.split_once('(').is_some_and(|(_, rest)| rest.starts_with(name) && !rest.contains(") Z "))
    };
    entries.filter(is_one).count()
}

#[track_caller]
fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let came = (0..400).any(|_| {
        std::thread::sleep(Duration::from_millis(25));
        is_so()
    });
    assert!(came, "{what} within 10 s");
}
