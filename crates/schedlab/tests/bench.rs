//! The benchmarks as a user would run them: simulated, on this machine where it permits, and what is refused.

mod support;

use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::{BINARY, can_record, is_root, run, run_in, scratch};

const FOUR: [&str; 4] = ["ingosched", "ingo_ll", "nicksched", "staircase"];

fn rows(value: &Value) -> &Vec<Value> {
    value["rows"].as_array().expect("rows")
}

fn count(row: &Value, list: &str) -> usize {
    row[list].as_array().expect(list).len()
}

/// Every broadcast is answered, under each of the four and the kernel's own, whether the thread is real-time or not.
#[test]
fn wakeup_has_all_its_samples_and_does_not_depend_on_threads() {
    let schedulers = format!("fair,{}", FOUR.join(","));
    let arguments = ["bench", "wakeup", "--quick", "--machine", "paper-plugsched", "--no-watchdog", "-q"];
    let all = |jobs: &str| {
        let own = ["--scheduler", &schedulers, "--set", "settle=100ms", "--jobs", jobs, "--json", "-"];
        run(&[&arguments[..], &own].concat()).done().json()
    };
    let (one, two) = (all("1"), all("2"));
    assert_eq!(one["rows"], two["rows"]);
    assert_eq!(rows(&one).len(), 10);
    for row in rows(&one) {
        assert_eq!((count(row, "samples_ns"), &row["cut"]), (100, &Value::Bool(false)), "{row}");
        assert!(row["ended"].is_null() && count(row, "waker_error_ns") >= 100, "{row}");
    }
}

/// A scheduler without any preference lets the ordinary thread wait for the load, and the real-time one not.
#[test]
fn a_real_time_thread_does_not_wait_for_the_load() {
    let arguments = ["bench", "wakeup", "--quick", "--cpus", "1", "-s", "fifo", "-q", "--json", "-"];
    let value = run(&arguments).done().json();
    let mean = |part: &str| {
        let row = rows(&value).iter().find(|row| row["part"] == part).expect(part);
        let samples: Vec<u64> = serde_json::from_value(row["samples_ns"].clone()).expect("samples");
        samples.iter().sum::<u64>() / samples.len() as u64
    };
    assert!(mean("rt") < 50_000 && mean("normal") > 20 * mean("rt"), "{} {}", mean("rt"), mean("normal"));
}

#[test]
fn hackbench_takes_longer_with_more_groups() {
    let seconds = |groups: &str| {
        let own = ["--cpus", "2", "--set", groups, "--set", "loops=10", "-q", "--json", "-"];
        let value = run(&[&["bench", "hackbench"][..], &own].concat()).done().json();
        rows(&value)[0]["duration_ns"].as_u64().expect("ns")
    };
    let (one, four) = (seconds("groups=1"), seconds("groups=4"));
    assert!(four > 3 * one && four < 6 * one, "{one} {four}");
}

/// The program tells its time from when it lets its workers go: forks come before.
#[test]
fn the_time_of_hackbench_begins_when_its_workers_go() {
    let seconds = |fork: &str| {
        let own =
            ["--cpus", "2", "--set", "groups=1", "--set", "loops=10", "--set", fork, "-q", "--json", "-"];
        let value = run(&[&["bench", "hackbench"][..], &own].concat()).done().json();
        rows(&value)[0]["duration_ns"].as_u64().expect("ns")
    };
    let (short, long) = (seconds("fork=60us"), seconds("fork=20ms"));
    assert!(long < 2 * short && short < 2 * long, "{short} {long}");
}

#[test]
fn interbench_meets_every_deadline_without_load_and_few_beside_four_hogs() {
    let own = ["--set", "task=video", "--cpus", "1", "-s", "fair,fifo", "--quick", "-q", "--json", "-"];
    let value = run(&[&["bench", "interbench"][..], &own].concat()).done().json();
    let frames = |scheduler: &str, part: &str| {
        let row = rows(&value).iter().find(|row| row["part"] == part && row["scheduler"] == scheduler);
        let frames = &row.expect(part)["frames"];
        let number = |name: &str| frames[name].as_u64().expect("a number");
        (number("deadlines_met"), number("deadlines_missed"))
    };
    // 3 s of frames of 16.666 ms.
    for scheduler in ["fair", "fifo"] {
        let (met, missed) = frames(scheduler, "video/none");
        assert!((178..=180).contains(&met) && missed == 0, "{scheduler}: {met} {missed}");
    }
    // 40 % of a CPU are more than the fifth that five tasks share, so most frames come late.
    let (met, missed) = frames("fair", "video/burn");
    assert!(missed > 10 * met && missed > 50, "{met} {missed}");
    let table = run(&[&["bench", "interbench"][..], &own[..8]].concat()).done().out;
    for text in ["% desired CPU", "true SD", "memload", "Hack is left out"] {
        assert!(table.contains(text), "{table}");
    }
}

#[test]
fn interbench_measures_audio_and_video_in_real_time() {
    let own = ["--quick", "--cpus", "1", "--set", "rt=1", "--set", "load=none", "-q"];
    let value = run(&[&["bench", "interbench"][..], &own, &["--json", "-"]].concat()).done().json();
    let parts: Vec<_> = rows(&value).iter().map(|row| row["part"].as_str().expect("a name")).collect();
    assert_eq!(parts, ["audio/none", "video/none"]);
    let x = [&["bench", "interbench", "--set", "task=x"][..], &own].concat();
    run(&x).refused(2, &["rt=1", "task=audio or task=video"]);
}

#[test]
fn bad_settings_are_named() {
    let refused = run(&["bench", "wakeup", "--set", "period=never"]).refused(2, &["period=never"]);
    assert!(refused.out.is_empty());
    run(&["bench", "wakeup", "--set", "colour=red"]).refused(2, &["colour"]);
    run(&["bench", "hackbench", "--set", "threads=0"]).refused(2, &["hackbench itself has groups, loops"]);
    run(&["bench", "interbench", "--set", "load=hack"]).refused(2, &["hack", "none, video, x, burn"]);
    for (bench, set, remedy) in [
        ("wakeup", "samples=0", "1 to 1000000"),
        ("wakeup", "period=0s", "from 1us to 60min"),
        ("wakeup", "idle_pages=300", "at most 256"),
        ("hackbench", "loops=0", "1 to 1000000"),
        ("hackbench", "fds=0", "1 to 100"),
        ("hackbench", "buffer=10", "write 100 to"),
        ("interbench", "length=0s", "from 1s to 1440min"),
        ("interbench", "threads=0", "1 to 10000"),
        ("interbench", "disk=0ms", "from 1us to 60s"),
    ] {
        run(&["bench", bench, "--set", set]).refused(2, &[set, remedy]);
    }
    // The program is told the same as its model, and nothing that it would not hear.
    run(&["bench", "hackbench", "--live", "--set", "groups=0"]).refused(2, &["groups=0", "1 to 100"]);
    run(&["bench", "hackbench", "--live", "--set", "send=1ms"]).refused(2, &["groups, loops", "--model"]);
    run(&["bench", "wakeup", "--duration", "0s"]).refused(2, &["--duration", "more than 0"]);
    run(&["bench", "wakeup", "--live", "--cpus", "2"]).refused(2, &["--live", "--cpus"]);
}

/// Ctrl-C and a terminal that goes away keep what there is: the run that is under way as far as it came.
#[test]
fn an_interrupted_benchmark_keeps_its_samples() {
    let directory = scratch("bench-interrupted");
    for name in ["-INT", "-HUP"] {
        let long = ["wakeup", "--cpus", "1", "--jobs", "1", "--set", "samples=1000000"];
        let mut child = started(&directory, &[&["bench"][..], &long, &["--json", "samples.json"]].concat());
        std::thread::sleep(Duration::from_secs(3));
        signal(child.id(), name);
        let began = Instant::now();
        let status = child.wait().expect("ends");
        assert_eq!(status.code(), Some(130), "{name}");
        assert!(began.elapsed() < Duration::from_secs(20));
        let text = std::fs::read(directory.join("samples.json")).expect("kept");
        let value: Value = serde_json::from_slice(&text).expect("whole");
        let row = &rows(&value)[0];
        assert!(row["cut"] == true && count(row, "samples_ns") > 10, "{} samples", count(row, "samples_ns"));
        assert_eq!(names(&directory), ["samples.json"]);
        std::fs::remove_file(directory.join("samples.json")).expect("it is there");
    }
}

fn started(directory: &Path, arguments: &[&str]) -> Child {
    // Whoever runs the tests may have had SIGHUP ignored (nohup), which the program would keep to.
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP", BINARY]).args(arguments).arg("-q").current_dir(directory);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts")
}

fn signal(pid: u32, name: &str) {
    // The shell's own: there may be no program `kill`.
    let status = Command::new("sh").args(["-c", &format!("kill {name} {pid}")]).status();
    assert!(status.expect("sh runs").success());
}

fn names(directory: &Path) -> Vec<String> {
    let files = std::fs::read_dir(directory).expect("it is there").flatten();
    let mut names: Vec<_> = files.map(|file| file.file_name().into_string().expect("a name")).collect();
    names.sort();
    names
}

/// Kills it without a word when so many lines are there, the first of which is no run.
fn killed_at(directory: &Path, file: &str, lines: usize, arguments: &[&str]) -> Vec<Value> {
    let mut child = started(directory, arguments);
    let began = Instant::now();
    let so_far = || std::fs::read_to_string(directory.join(file)).unwrap_or_default();
    while so_far().lines().count() < lines {
        assert!(began.elapsed() < Duration::from_secs(60) && child.try_wait().expect("asked").is_none());
        std::thread::sleep(Duration::from_millis(20));
    }
    signal(child.id(), "-KILL");
    child.wait().expect("ends");
    so_far().lines().map(|line| serde_json::from_str(line).expect("each line is whole")).collect()
}

#[test]
fn a_killed_benchmark_has_left_its_runs() {
    let directory = scratch("bench-killed");
    let arguments = ["bench", "interbench", "--cpus", "1", "--jobs", "1", "--json", "i.json"];
    let lines = killed_at(&directory, "i.json.part", 3, &arguments);
    assert_eq!(lines[0]["about"]["bench"], "interbench");
    assert!(lines[1..].iter().all(|line| count(&line["run"], "samples_ns") > 100), "{lines:?}");
    assert_eq!(names(&directory), ["i.json.part"]);
    let shown = run_in(&directory, &["bench", "interbench", "--from", "i.json.part"]).done();
    assert!(shown.out.contains("interbench: audio, an ordinary task, under fair"), "{}", shown.out);
    run_in(&directory, &["bench", "hackbench", "--from", "i.json.part"])
        .refused(2, &["schedlab bench interbench --from i.json.part"]);
    // Who comes next says what was there, and leaves it.
    let own = ["--cpus", "1", "--quick", "--set", "task=audio", "--set", "load=none", "--json", "i.json"];
    let next = run_in(&directory, &[&["bench", "interbench"][..], &own].concat()).done();
    assert!(next.err.contains("bench interbench --from i.json.part.1"), "{}", next.err);
    assert_eq!(names(&directory), ["i.json", "i.json.part.1"]);
    let json = ["bench", "interbench", "--from", "i.json.part.1", "--json", "-"];
    let value = run_in(&directory, &json).done().json();
    assert_eq!(rows(&value).len(), lines.len() - 1);
    let again = run_in(&directory, &["bench", "interbench", "--from", "i.json"]).done();
    assert_eq!(again.out, next.out, "a document is shown as by who wrote it");
    let none = support::file(&directory, "none.part", format!("{}\n", lines[0]));
    run_in(&directory, &["bench", "interbench", "--from", &none])
        .refused(2, &["has no run", "none was over"]);
}

#[test]
fn a_killed_reproduction_and_programs_have_left_their_runs() {
    let directory = scratch("reproduce-killed");
    let arguments = ["reproduce", "plugsched-2006", "--quick", "--json", "all.json"];
    let lines = killed_at(&directory, "all.json.part", 3, &arguments);
    assert!(lines[1]["of"] == "hackbench" && lines[1]["run"]["duration_ns"].is_u64(), "{lines:?}");
    let arguments = ["reproduce", "cfs-weights-2021", "--jobs", "1", "--json", "cfs.json"];
    let lines = killed_at(&directory, "cfs.json.part", 3, &arguments);
    assert!(lines[1]["seed"] == 1 && lines[1]["run"]["tasks"].is_array(), "{lines:?}");
    assert_eq!(names(&directory), ["all.json.part", "cfs.json.part"]);
    let arguments = ["bench", "programs", "--live", "--quick", "--program", "fibo,fft", "--json", "p.json"];
    let lines = killed_at(&directory, "p.json.part", 4, &arguments);
    assert_eq!(count(&lines[1]["program"], "seconds"), 1);
    let shown = run_in(&directory, &["bench", "programs", "--from", "p.json.part"]).done();
    assert!(shown.out.contains("fibo"), "{}", shown.out);
}

/// Its threads tell while it runs, and without --json it is kept where it was started.
#[test]
fn a_killed_live_benchmark_has_left_the_samples_of_its_run() {
    if !can_record() {
        return;
    }
    let directory = scratch("bench-killed-live");
    let live = ["bench", "wakeup", "--live", "--set", "groups=1"];
    let lines = killed_at(&directory, "w.json.part", 3, &[&live[..], &["--json", "w.json"]].concat());
    assert!(lines[1..].iter().all(|line| count(&line["samples"], "samples_ns") > 0), "{lines:?}");
    let all: usize = lines[1..].iter().map(|line| count(&line["samples"], "samples_ns")).sum();
    let value = run_in(&directory, &["bench", "wakeup", "--from", "w.json.part", "--json", "-"]).json();
    assert!(rows(&value)[0]["cut"] == true && count(&rows(&value)[0], "samples_ns") == all, "{value}");
    let child = started(&directory, &live);
    let file = format!("schedlab-bench-wakeup-{}.part", child.id());
    std::thread::sleep(Duration::from_secs(3));
    signal(child.id(), "-HUP");
    let ended = support::Ended::of(child.wait_with_output().expect("ends"));
    ended.refused(130, &[&format!("`schedlab bench wakeup --from {file}` shows it")]);
    assert_eq!(names(&directory), [file, "w.json.part".to_owned()]);
}

#[test]
fn reproduce_prints_our_numbers_beside_the_papers() {
    let directory = scratch("bench-reproduce");
    let ended =
        run_in(&directory, &["reproduce", "plugsched-2006", "--quick", "-q", "--json", "all.json"]).done();
    for text in ["38.620", "78.689", "212868.76", "video beside X", "What the slides say"] {
        assert!(ended.out.contains(text), "{text}: {}", ended.out);
    }
    let text = std::fs::read(directory.join("all.json")).expect("written");
    let value: Value = serde_json::from_slice(&text).expect("JSON");
    let wakeup = value["wakeup"].as_array().expect("rows");
    assert!(wakeup.len() == 8 && wakeup.iter().all(|row| count(row, "samples_ns") == 100));
    assert_eq!(value["hackbench"].as_array().map(Vec::len), Some(4));
    assert_eq!((value["seed"].as_u64(), value["again"].as_array().map(Vec::len)), (Some(1), Some(0)));
    let mean = |rows: &Value| {
        let samples = rows[0]["samples_ns"].as_array().expect("samples").iter();
        samples.map(|ns| ns.as_u64().expect("ns")).sum::<u64>() / 100
    };
    let cold = mean(&value["wakeup"]) - mean(&value["wakeup_unfitted"]);
    assert!((50_000..130_000).contains(&cold), "86 us are fitted: {cold}");
    // A parameter of two loads is none of the third's, and no knob.
    let own = ["--quick", "-q", "--set", "samples=7", "--set", "send=1ms", "--json", "-"];
    let changed = run(&[&["reproduce", "plugsched-2006"][..], &own].concat()).done().json();
    let samples = changed["wakeup"].as_array().expect("rows").iter().map(|row| count(row, "samples_ns"));
    assert_eq!(samples.collect::<Vec<_>>(), [7; 8]);
    let time = |value: &Value| value["hackbench"][0]["duration_ns"].as_u64().expect("ns");
    assert!(time(&changed) > 2 * time(&value), "{} {}", time(&changed), time(&value));
    run(&["reproduce", "plugsched-2006", "-q", "--set", "sends=1ms"])
        .refused(2, &["no candidate has a knob"]);
}

/// As root without CAP_SYS_NICE, which a container may be.
#[test]
fn without_real_time_it_is_the_machine_that_cannot() {
    if !can_record() || !Path::new("/usr/bin/setpriv").exists() {
        return;
    }
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-sys_nice", BINARY, "bench", "wakeup", "--live", "--quick", "-q"]);
    let ended = support::Ended::of(command.output().expect("runs"));
    ended.refused(3, &["SCHED_FIFO", "Real-time needs root"]);
}

#[test]
fn wakeup_is_measured_on_this_machine() {
    if !can_record() {
        return;
    }
    let own = ["--live", "--quick", "--set", "groups=1", "-q", "--json", "-"];
    let value = run(&[&["bench", "wakeup"][..], &own].concat()).done().json();
    assert_eq!(rows(&value).len(), 2);
    for row in rows(&value) {
        assert_eq!((count(row, "samples_ns"), count(row, "waker_error_ns")), (100, 100), "{row}");
        assert_eq!(row["obtained"], "measured_here", "{row}");
    }
}

#[test]
fn interbench_is_measured_on_this_machine() {
    if !can_record() {
        return;
    }
    let own = ["--live", "--quick", "--set", "task=audio", "--set", "load=none", "-q", "--json", "-"];
    let value = run(&[&["bench", "interbench"][..], &own].concat()).done().json();
    let frames = &rows(&value)[0]["frames"];
    let all = ["deadlines_met", "deadlines_missed"].map(|name| frames[name].as_u64().expect("a number"));
    // 3 s of frames of 50 ms; a busy host may cost some.
    assert!(all[0] >= 40 && all[0] + all[1] <= 60, "{frames}");
}

#[test]
fn hackbench_live_is_the_program_or_says_how_to_get_it() {
    let ended = run(&["bench", "hackbench", "--live", "--quick", "-q", "--json", "-"]);
    let is_there = std::env::var("PATH")
        .unwrap_or_default()
        .split(':')
        .any(|directory| Path::new(directory).join("hackbench").exists());
    if is_there {
        let value = ended.done().json();
        assert!(rows(&value)[0]["duration_ns"].as_u64().expect("ns") > 100_000, "{value}");
    } else {
        ended.refused(3, &["apt install rt-tests", "--model"]);
    }
    if is_root() && can_record() {
        let own = ["--live", "--model", "--quick", "-q", "--json", "-"];
        let value = run(&[&["bench", "hackbench"][..], &own].concat()).done().json();
        assert!(rows(&value)[0]["duration_ns"].as_u64().expect("ns") > 1_000_000, "{value}");
    }
}

/// However a live benchmark ends, the program that it runs ends with it, and what that has started.
#[test]
fn nothing_runs_on_when_a_live_benchmark_is_killed() {
    for (end, code) in [("-KILL", None), ("-TERM", Some(130)), ("-INT", Some(130))] {
        let directory = scratch("bench-left-over");
        let script = "#!/bin/sh\nsleep 1000 &\necho $$ $! > pids.new\nmv pids.new pids\nsleep 1000\n";
        let program = support::file(&directory, "hackbench", script);
        std::fs::set_permissions(program, PermissionsExt::from_mode(0o755)).expect("own file");
        let path = format!("{}:{}", directory.display(), std::env::var("PATH").expect("there is one"));
        let mut command = Command::new(BINARY);
        command.args(["bench", "hackbench", "--live", "-q", "--json", "h.json"]).env("PATH", path);
        command.current_dir(&directory).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().expect("starts");
        let soon = |what: &str, is_so: &mut dyn FnMut() -> bool| {
            let began = Instant::now();
            while !is_so() {
                assert!(began.elapsed() < Duration::from_secs(20), "{end}: {what}");
                std::thread::sleep(Duration::from_millis(20));
            }
        };
        soon("the program starts", &mut || directory.join("pids").exists());
        signal(child.id(), end);
        soon("the benchmark ends", &mut || child.try_wait().expect("asked").is_some());
        assert_eq!(child.wait().expect("ended").code(), code, "{end}");
        let pids = std::fs::read_to_string(directory.join("pids")).expect("two of them");
        for pid in pids.split_whitespace() {
            // Dead, or a zombie where nobody collects orphans.
            let state = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            soon("its program ends", &mut || state().is_empty() || state().contains(") Z"));
        }
    }
}

/// A file that may not be executed is passed over, as by a shell, and named where there is no other.
#[test]
fn a_program_that_may_not_be_executed_is_passed_over_or_named() {
    let directory = scratch("bench-path");
    for (place, mode) in [("first", 0o644), ("second", 0o755)] {
        let place = directory.join(place);
        std::fs::create_dir(&place).expect("scratch");
        let program = support::file(&place, "hackbench", "#!/bin/sh\necho Time: 0.25\n");
        std::fs::set_permissions(program, PermissionsExt::from_mode(mode)).expect("own file");
        support::file(&place, "sysbench", "");
    }
    let with_path = |path: &str, arguments: &[&str]| {
        let mut command = Command::new(BINARY);
        command.args(arguments).env("PATH", path).current_dir(&directory);
        support::Ended::of(command.output().expect("the program starts"))
    };
    let (first, second) = (directory.join("first"), directory.join("second"));
    let hackbench = ["bench", "hackbench", "--live", "-q", "--json", "-"];
    let both = format!("{}:{}", first.display(), second.display());
    assert_eq!(rows(&with_path(&both, &hackbench).done().json())[0]["duration_ns"], 250_000_000);
    let only = first.display().to_string();
    let chmod = format!("`chmod +x {only}/hackbench`");
    with_path(&only, &hackbench).refused(3, &[&chmod, "PATH", "--model"]);
    with_path("/nowhere", &hackbench).refused(3, &["no directory of PATH has it", "apt install rt-tests"]);
    let chmod = format!("`chmod +x {only}/sysbench`");
    with_path(&only, &["program", "sysbench-cpu"]).refused(3, &[&chmod]);
    let programs = ["bench", "programs", "--live", "--program", "fibo,sysbench-cpu"];
    with_path(&only, &programs).refused(3, &[&chmod, "leave it out"]);
}

/// Where there is no swap, memload has no room on any machine: the row says so and nothing is run.
#[test]
fn a_load_without_room_is_left_out_and_said() {
    let swap = std::fs::read_to_string("/proc/swaps").unwrap_or_default().lines().count() > 1;
    if swap || !can_record() {
        return;
    }
    let own = ["--set", "task=audio", "--set", "load=memload", "--set", "length=1s", "-q"];
    let arguments = [&["bench", "interbench", "--live"][..], &own].concat();
    let table = run(&arguments).done().out;
    for text in ["left out", "memload is left out: there is no swap", "110 %"] {
        assert!(table.contains(text), "{text}: {table}");
    }
    let value = run(&[&arguments[..], &["--json", "-"]].concat()).done().json();
    let row = &rows(&value)[0];
    assert!(row["left_out"] == true && count(row, "samples_ns") == 0, "{row}");
}

/// Each real load says when it has begun, works until it is killed, and leaves no file.
#[test]
fn real_loads_work_until_they_are_killed() {
    let directory = scratch("bench-loads");
    for name in ["write", "read", "memload"] {
        let mut command = Command::new(BINARY);
        command.args(["load", name, "4194304"]).arg(&directory).stdout(std::process::Stdio::piped());
        let mut child = command.spawn().expect("starts");
        let mut said = String::new();
        let out = child.stdout.take().expect("it is piped");
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut said).expect("it speaks");
        std::thread::sleep(Duration::from_millis(300));
        let works = child.try_wait().expect("asked").is_none();
        child.kill().expect("it is there");
        child.wait().expect("it ends");
        assert!(said == "ready\n" && works, "{name}: {said}");
    }
    assert_eq!(std::fs::read_dir(&directory).expect("it is there").count(), 0);
    run(&["load", "colour", "1", "."]).refused(2, &["colour"]);
}
