//! Every command that needs no privilege, run as a user would run it. Bad input: `bad_input.rs`; what needs
//! root: `recording.rs`.

mod support;

use schedlab_report::compare::Overall;
use schedlab_report::json;
use serde_json::Value;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use support::{file, recording, run, run_in, scratch};

/// The rt-app file of the simulator's benchmark, shorter: a few tasks that run and sleep.
const RT_APP: &str = r#"{
    "tasks": {
        "worker": { "instance": 6, "loop": -1, "run": 200, "sleep": 300 },
        "player": { "loop": -1, "run": 900, "timer": { "ref": "unique", "period": 5000 } }
    },
    "global": { "duration": 1 }
}"#;

/// What `simulate --json -` says of itself.
fn simulator(arguments: &[&str]) -> Value {
    let mut all = vec!["simulate"];
    all.extend(arguments);
    all.extend(["--quiet", "--json", "-"]);
    let result = run(&all).done().json();
    result["simulator"].clone()
}

#[test]
fn lists_name_what_the_other_commands_take() {
    for (what, names) in [
        ("schedulers", &["fair", "fifo", "fixed_priority", "vtime", "slice_ns"][..]),
        ("workloads", &["hackbench", "ping-pong", "periodic", "hogs", "mix", "streaming"]),
        ("machines", &["vm-2cpu", "two-socket", "this"]),
        ("metrics", &["makespan", "wakeup_latency_p99", "fairness"]),
    ] {
        let text = run(&["list", what]).done().out;
        assert!(names.iter().all(|name| text.contains(name)), "{what}: {text}");
        let list = run(&["list", what, "--json", "-"]).done().json();
        assert_eq!(list.as_array().expect("a list").len(), text.lines().filter(is_entry).count());
    }
}

/// Details are indented below their entry.
fn is_entry(line: &&str) -> bool {
    !line.starts_with(' ')
}

#[test]
fn show_tells_what_is_in_each_kind_of_thing() {
    let scheduler = run(&["show", "vtime"]).done().out;
    assert!(scheduler.contains("Knob       slice_ns") && scheduler.contains("enqueue:"), "{scheduler}");
    let json = run(&["show", "vtime", "--json", "-"]).done().json();
    assert_eq!(json["knobs"][0]["name"].as_str().map(str::is_empty), Some(false), "{json}");
    let workload = run(&["show", "workloads/locks.toml"]).done().out;
    assert!(workload.contains("Task       worker0") && workload.contains("background"), "{workload}");
    let built_in = run(&["show", "ping-pong"]).done().out;
    assert!(built_in.contains("2 tasks and templates, 2 channels"), "{built_in}");
    let shown = run(&["show", &recording("mixed.slrec")]).done().out;
    assert!(shown.contains("0 lost") && shown.contains("Triage"), "{shown}");
    assert!(!shown.contains("ended early"), "{shown}");
}

/// Whatever is missing here, it says so and that is its answer.
#[test]
fn the_doctor_says_what_can_be_done() {
    let text = run(&["doctor"]).done().out;
    assert!(text.contains("record, compare -- COMMAND") && text.contains("tunes this machine"), "{text}");
    let found = run(&["doctor", "--json", "-"]).done().json();
    let jobs = found["jobs"].as_array().expect("a list");
    assert!(jobs.iter().all(|job| job["why"].as_str().is_some_and(|why| !why.is_empty())), "{found}");
    assert_eq!(jobs[0]["possible"], true);
}

#[test]
fn a_machine_file_is_read_back_as_it_was_written() {
    let directory = scratch("machine");
    run_in(&directory, &["machine", "two-socket", "-o", "copy.toml"]).done();
    let printed = run(&["machine", "two-socket"]).done().out;
    assert_eq!(run(&["machine", "two-socket", "-o", "-"]).done().out, printed, "nothing beside the file");
    assert_eq!(printed, std::fs::read_to_string(directory.join("copy.toml")).expect("written"));
    let words = ["simulate", "hogs:duration=20ms", "--machine", "copy.toml", "--dry-run"];
    let plan = run_in(&directory, &words).done().out;
    assert!(plan.contains("two-socket"), "{plan}");
    let here = run(&["machine", "--json", "-"]).done().json();
    assert!(here["kernel"].is_string() && here["hz"].as_u64() > Some(0), "{here}");
}

/// Four hogs on a machine that was copied while CPU 1 was offline: three CPUs' work is done.
#[test]
fn a_copied_machine_has_the_cpus_that_are_online() {
    let directory = scratch("machine-copied");
    let cpus = directory.join("tree/sys/devices/system/cpu");
    std::fs::create_dir_all(&cpus).expect("made");
    let empty = run_in(&directory, &["machine", "--root", "tree"]);
    empty.refused(2, &["tree/sys/devices/system/cpu/online", "Copy it too"]);
    file(&cpus, "online", "zebra\n");
    run_in(&directory, &["machine", "--root", "tree"])
        .refused(2, &["cpu/online", "'zebra' is not a CPU list"]);
    file(&cpus, "online", "0,2-3\n");
    let said = run_in(&directory, &["machine", "--root", "tree", "-o", "m.toml"]).done().out;
    assert!(said.contains("3 CPUs and 1 offline"), "{said}");
    for scheduler in ["fair", "vtime"] {
        let words = [
            "simulate",
            "hogs:count=4,pinned=0,duration=100ms",
            "--machine",
            "m.toml",
            "--scheduler",
            scheduler,
        ];
        let result = run_in(&directory, &[&words[..], &["--json", "-"]].concat()).done().json();
        assert_eq!(result["environment"]["cpus"], 3);
        let used = result["runs"][0]["values"]["cpu_time"].as_f64().expect("a number");
        assert!((290e6..=300e6).contains(&used), "{scheduler}: {used}");
    }
    let event = "name = \"w\"\n[[task]]\nname = \"a\"\nsteps = [{ run = \"9ms\" }]\n[[event]]\ntime = \"1ms\"\n\
                 cpu = 1\nonline = true\n";
    file(&directory, "comes.toml", event);
    let comes = run_in(&directory, &["simulate", "comes.toml", "--machine", "m.toml"]);
    comes.refused(2, &["cpu 1 online", "the machine's topology has it offline"]);
    let one = run(&["simulate", "hogs", "--cpus", "1", "--dry-run"]).done().out;
    assert!(one.contains("(1 CPU, kernel"), "{one}");
}

#[test]
fn completions_and_manual_pages_name_every_command() {
    let commands = ["compare", "simulate", "record", "show", "machine", "list", "demo"];
    for shell in ["bash", "zsh", "fish"] {
        let script = run(&["completions", shell]).done().out;
        assert!(commands.iter().all(|command| script.contains(command)), "{shell}");
    }
    let page = run(&["man"]).done().out;
    assert!(page.contains(".TH") && commands.iter().all(|command| page.contains(command)), "{page}");
    let directory = scratch("man");
    run_in(&directory, &["man", "--out", "."]).done();
    for command in commands.iter().chain(&["vm", "vm-boot", "vm-try"]) {
        let page = std::fs::read_to_string(directory.join(format!("schedlab-{command}.1"))).expect(command);
        assert!(page.contains(".TH"), "{page}");
    }
}

#[test]
fn simulate_reports_itself_and_repeats_exactly() {
    let directory = scratch("simulate");
    let rt_app = file(&directory, "graph.json", RT_APP);
    for work in [rt_app.as_str(), "periodic:hogs=2,duration=200ms", "hackbench:loops=5", "locks"] {
        for scheduler in ["fair", "vtime"] {
            let words = [work, "--scheduler", scheduler, "--cpus", "4", "--duration", "500ms"];
            let first = simulator(&words);
            assert!(first["context_switches"].as_u64() > Some(10), "{work}: {first}");
            assert!(first["wall_s"].as_f64() > Some(0.0), "{work}: {first}");
            assert!(first["peak_memory_bytes"].as_u64() > Some(1 << 20), "{work}: {first}");
            let hash = first["event_hash"].as_str().expect("a hash");
            assert!(hash.len() == 32 && hash.chars().all(|c| c.is_ascii_hexdigit()), "{hash}");
            assert_eq!(simulator(&words)["event_hash"], hash, "{work} under {scheduler}, again");
        }
    }
}

#[test]
fn results_depend_on_the_seed_but_not_on_worker_threads() {
    let words = |seed: &'static str, jobs: &'static str| {
        ["mix:duration=200ms", "-s", "vtime", "--cpus", "2", "--runs", "3", "--seed", seed, "--jobs", jobs]
    };
    let one = simulator(&words("1", "1"));
    assert_eq!(one["event_hash"], simulator(&words("1", "2"))["event_hash"]);
    assert_ne!(one["event_hash"], simulator(&words("2", "2"))["event_hash"], "the seed must matter");

    let metrics = |jobs: &str| {
        let words = ["compare", "mix:duration=200ms", "-s", "fair,fifo", "--cpus", "2", "--runs", "3"];
        let result = run(&[&words[..], &["--jobs", jobs, "--json", "-"]].concat()).done().json();
        (result["simulator"]["event_hash"].clone(), result["comparison"].clone())
    };
    assert_eq!(metrics("1"), metrics("2"));
}

#[test]
fn a_recording_is_compared_with_page_json_and_trace() {
    let directory = scratch("compare");
    let recording = recording("mixed.slrec");
    let words = ["compare", &recording, "-s", "fair,vtime,fifo", "--runs", "2", "--html", "report.html"];
    let outputs = ["--json", "result.json", "--perfetto", "trace.pftrace"];
    let said = run_in(&directory, &[&words[..], &outputs].concat()).done().out;
    let triage = said.find("Triage").expect("triage");
    assert!(triage < said.find("Verdict").expect("a verdict"), "triage comes first: {said}");
    let read = |name: &str| std::fs::read(directory.join(name)).expect(name);
    let text = String::from_utf8(read("result.json")).expect("text");
    let result = json::from_json(&text).expect("the report's own reader takes it");
    assert_eq!(result.candidates.len(), 3);
    assert!(result.triage.is_some() && !result.fidelity.is_empty());
    let comparison = result.comparison.expect("a comparison");
    assert_eq!((comparison.baseline.as_str(), comparison.rows.len()), ("fair", 3));
    if let Overall::Use { candidate, .. } = &comparison.overall {
        assert!(["vtime", "fifo"].contains(&candidate.as_str()), "{candidate}");
    }
    let page = String::from_utf8(read("report.html")).expect("text");
    assert!(page.contains("<html") && page.contains("vtime") && page.trim_end().ends_with("</html>"));
    assert!(!page.contains("src=\"http"), "the page must be self-contained");
    let trace = read("trace.pftrace");
    // Packets are field 1 of the trace, length-delimited.
    assert!(trace.len() > 10_000 && trace[0] == 0x0a, "{} bytes", trace.len());
}

#[test]
fn both_recordings_of_the_repository_replay() {
    for name in ["mixed.slrec", "hackbench-g1-l50.slrec"] {
        let result = simulator(&[&recording(name), "--scheduler", "vtime"]);
        assert!(result["context_switches"].as_u64() > Some(100), "{name}: {result}");
    }
}

#[test]
fn a_simulated_run_is_a_recording_like_any_other() {
    let directory = scratch("rerecord");
    let words = ["simulate", "ping-pong:rounds=200", "--cpus", "2", "--record", "run.slrec"];
    run_in(&directory, &words).done();
    let shown = run_in(&directory, &["show", "run.slrec"]).done().out;
    assert!(shown.contains("0 lost") && shown.contains("scheduler fair"), "{shown}");
    run_in(&directory, &["simulate", "run.slrec", "--scheduler", "fifo"]).done();
}

#[test]
fn schedulers_come_and_go_while_it_runs() {
    let words = ["simulate", "hogs:duration=400ms", "--cpus", "1"];
    let switched = |more: &[&str]| run(&[&words[..], more].concat());
    let said = switched(&["--switch-at", "100ms:vtime:slice_ns=1ms", "--switch-at", "300ms:none"]).done().out;
    assert!(said.contains("vtime:slice_ns=1ms at 100 ms, none at 300 ms"), "{said}");
    let instructions = |more: &[&str]| {
        simulator(&[&words[1..], more].concat())["bpf_instructions"].as_u64().expect("a count")
    };
    let (part, whole) = (
        instructions(&["--switch-at", "100ms:vtime", "--switch-at", "300ms:none"]),
        instructions(&["--scheduler", "vtime"]),
    );
    assert!(part > 0 && part < whole, "{part} of {whole}");
    switched(&["--switch-at", "vtime"]).refused(2, &["TIME:SCHEDULER"]);
    switched(&["--switch-at", "100ms:fair"]).refused(2, &["'fair'", "or none"]);
    switched(&["--switch-at", "100ms:vtimes"]).refused(2, &["vtimes"]);
    switched(&["--switch-at", "100ms:vtime", "--kernel", "6.1"]).refused(2, &["6.1"]);
}

#[test]
fn a_knob_changes_while_it_runs() {
    let words = ["hogs:duration=400ms", "--cpus", "1", "--scheduler", "fifo"];
    let switches = |more: &[&str]| {
        let said = simulator(&[&words[..], more].concat());
        said["context_switches"].as_u64().expect("a count")
    };
    let (long, short) = (switches(&[]), switches(&["--set-at", "200ms:slice_ns=500000"]));
    assert!(
        short > 2 * long,
        "{long} switches with the slice as it is, {short} with one of 0.5 ms from the middle on"
    );
    let refused = |change: &str, words: &[&str]| {
        run(&["simulate", "hogs:duration=400ms", "--scheduler", "fifo", "--set-at", change]).refused(2, words)
    };
    refused("slice_ns=500000", &["TIME:NAME=VALUE"]);
    refused("200ms:slice_ns=soon", &["slice_ns", "whole number"]);
    refused("200ms:slice_ns=1", &["slice_ns", "100000"]);
}

#[test]
fn a_dry_run_does_nothing() {
    let directory = scratch("dry");
    let words = ["compare", "--dry-run", "--", "no-such-command", "-x"];
    let plan = run_in(&directory, &words).done().out;
    assert!(plan.contains("would record 'no-such-command -x'") && plan.contains("vtime"), "{plan}");
    let words = ["record", "--dry-run", "--pid", "1", "--duration", "1s"];
    assert!(run_in(&directory, &words).done().out.contains("would record process 1"));
    assert_eq!(std::fs::read_dir(&directory).expect("scratch").count(), 0);
}

#[test]
fn the_examples_of_the_workload_page_run() {
    let directory = scratch("page");
    let page = std::fs::read_to_string(support::repository().join("docs/workloads.md")).expect("the page");
    for kind in ["toml", "json"] {
        let (_, rest) = page.split_once(&format!("```{kind}\n")).expect(kind);
        let (example, _) = rest.split_once("```").expect("an end");
        let path = file(&directory, &format!("example.{kind}"), example);
        assert!(simulator(&[&path, "--cpus", "2"])["context_switches"].as_u64() > Some(100), "{kind}");
    }
}

#[test]
fn the_examples_of_the_readme_are_commands() {
    let directory = scratch("readme");
    for name in ["recordings", "workloads"] {
        let target = support::repository().canonicalize().expect("the repository").join(name);
        std::os::unix::fs::symlink(target, directory.join(name)).expect("a link");
    }
    let readme = std::fs::read_to_string(support::repository().join("README.md")).expect("README.md");
    let mut examples = 0;
    for command in readme.split('`').filter(|text| text.contains("schedlab ")) {
        let Some((_, words)) = command.split_once("schedlab ") else { continue };
        let mut words: Vec<&str> = words.split_whitespace().collect();
        if !["compare", "simulate", "record", "show"].contains(&words[0]) {
            continue;
        }
        examples += 1;
        // What needs root is only planned, and what takes long is shortened.
        match (command.starts_with("sudo "), words[0]) {
            (true, _) => words.insert(1, "--dry-run"),
            (false, "compare") => words.extend(["--runs", "1"]),
            _ => {}
        }
        run_in(&directory, &words).done();
    }
    assert!(examples >= 6, "README.md has six examples of these commands, {examples} were found");
    assert!(directory.join("report.html").exists() && directory.join("streaming.pftrace").exists());
}

/// The user's own number is the objective and stands in every run of the result; a command that prints none is told.
#[test]
fn a_metric_of_the_users_own_ranks_candidates() {
    let directory = scratch("metric-command");
    let compare = |metric: &str| {
        let words = ["compare", "ping-pong", "--scheduler", "fair,fifo", "--runs", "3", "--perturbed", "2"];
        let more = ["--duration", "200ms", "--quiet", "--json", "result.json", "--metric-command", metric];
        run_in(&directory, &[&words[..], &more[..]].concat())
    };
    let twice = r#"twice=sed 's/.*"run_delay_mean":\([0-9.]*\).*/\1/' | awk '{ print 2 * $1 }'"#;
    let text = compare(twice).done().out;
    assert!(text.contains("Objective  twice (less is better)"), "{text}");
    let result = json::from_json(&std::fs::read_to_string(directory.join("result.json")).expect("written"));
    let runs = result.expect("a result").runs;
    assert_eq!(runs.len(), 2 * (3 + 2) + 3, "two candidates with and without other costs, and the control");
    for run in runs {
        let [own, mean] = ["twice", "run_delay_mean"].map(|name| run.values[name]);
        assert!(mean > 0.0 && (own - 2.0 * mean).abs() < 1e-4 * own, "{own} {mean}");
    }
    // Tasks are told on machines with other costs too.
    compare("tasks=grep -o '\"run_delay_ns\"' | wc -l").done();
    compare("none=echo no number").refused(2, &["printed 'no number' for fair, not one number of 0 or more"]);
    compare("none=echo -3").refused(2, &["printed '-3'"]);
    compare("loud=yes").refused(2, &["metric command 'yes'"]);
    compare("none=echo why >&2; exit 4").refused(2, &["exit status: 4", "why"]);
    compare("makespan=echo 1").refused(2, &["is there already"]);
}

#[test]
fn virtual_runtime_and_cpu_time_are_drawn() {
    let directory = scratch("vruntime");
    let run = |words: &[&str]| run_in(&directory, words).done();
    let hogs = "hogs:count=2,nice=5,duration=1s";
    run(&["simulate", hogs, "--cpus", "1", "--record", "r.slrec", "--html", "simulated.html"]);
    run(&["show", "r.slrec", "--html", "shown.html", "--perfetto", "shown.pftrace"]);
    let read = |name: &str| std::fs::read(directory.join(name)).expect(name);
    for page in ["simulated.html", "shown.html"] {
        let text = String::from_utf8(read(page)).expect("text");
        for says in ["virtual runtime of each task", "CPU time of each task", "hog0: ", "of virtual runtime"]
        {
            assert!(text.contains(says), "{page} does not say {says:?}");
        }
    }
    let trace = read("shown.pftrace");
    for track in ["virtual runtime of hog1", "CPU time of hog0"] {
        assert!(trace.windows(track.len()).any(|bytes| bytes == track.as_bytes()), "no track {track:?}");
    }
    // Levels of priority are no time, nor are arrays that change places.
    for (scheduler, hogs) in [("staircase", hogs), ("ingo_ll", "hogs:count=2,nice=5,duration=10s")] {
        run(&["simulate", hogs, "--cpus", "1", "-s", scheduler, "--html", "levels.html"]);
        let text = String::from_utf8(read("levels.html")).expect("text");
        assert!(text.contains("CPU time of each task") && !text.contains("irtual runtime"), "{scheduler}");
    }
}

/// A page of a scheduler has its slices at every nice value, and a curve behind a better task only where that is another.
#[test]
fn slices_of_schedulers_are_drawn() {
    let directory = scratch("slices");
    for (scheduler, marks, behind) in [("nicksched", 80, true), ("ingosched", 40, false), ("fair", 40, false)]
    {
        run_in(&directory, &["show", scheduler, "--html", "s.html"]).done();
        let page = std::fs::read_to_string(directory.join("s.html")).expect("a page");
        assert_eq!(page.matches("<circle").count(), marks, "{scheduler}");
        assert_eq!(page.contains("turn behind a task of nice -20"), behind, "{scheduler}");
        assert_eq!(page.contains("instructions of scheduler code"), scheduler != "fair", "{scheduler}");
    }
}

/// Whoever writes to `/dev/null` as root must find it there afterwards.
#[test]
fn results_go_into_pipes_and_through_links_and_replace_neither() {
    let directory = scratch("special");
    let (pipe, link, real) =
        (directory.join("pipe"), directory.join("link.json"), directory.join("real.json"));
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("runs").success());
    std::os::unix::fs::symlink("real.json", &link).expect("linked");
    std::fs::write(&real, "old").expect("written");
    let reader = Command::new("cat").arg(&pipe).stdout(Stdio::piped()).spawn().expect("starts");
    let simulate = |file: &str| run_in(&directory, &["simulate", "ping-pong:rounds=3", "-q", "--json", file]);
    simulate("pipe").done();
    let read = reader.wait_with_output().expect("ends").stdout;
    assert!(read.starts_with(b"{") && read.ends_with(b"}\n"), "{}", String::from_utf8_lossy(&read));
    simulate("link.json").done();
    let kind = |path: &Path| std::fs::symlink_metadata(path).expect("there").file_type();
    assert!(kind(&pipe).is_fifo() && kind(&link).is_symlink());
    assert!(std::fs::read(&real).expect("there").starts_with(b"{"));
    run_in(&directory, &["record", "-o", "pipe", "--", "true"]).refused(2, &["pipe is no file", "-o"]);
}
