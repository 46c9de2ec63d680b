//! Whom `record` can record, and every way in which a recording can end: by itself, after a time, by a signal,
//! by a recorder that is killed. Needs root; says so loudly where it is not there, and fails where CI is set.

mod support;

use schedlab_model::Nanos;
use schedlab_model::recording::{Recording, codec};
use schedlab_model::timeline::{StretchKind, Timelines};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::{BINARY, can_record, run_in, scratch};

/// A process of the test's own, ended with it.
struct Running(Child);

impl Running {
    fn shell(script: &str) -> Running {
        let child = Command::new("sh").args(["-c", script]).stdout(Stdio::null()).spawn();
        Running(child.expect("sh exists"))
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// The recorder in the background, in a process group of its own: a signal reaches it alone.
fn recorder(directory: &Path, words: &[&str]) -> Running {
    use std::os::unix::process::CommandExt;
    let child = Command::new(BINARY)
        .args(words)
        .current_dir(directory)
        .process_group(0)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    Running(child.expect("the program starts"))
}

/// By the shell's own `kill`: the program of that name is in a package that a small system lacks.
fn signal(pid: &str, name: &str) {
    let sent = Command::new("sh").args(["-c", "kill \"$0\" \"$1\"", name, pid]).status().expect("sh exists");
    assert!(sent.success(), "process {pid} is there");
}

#[track_caller]
fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits for the recorder to have written something, so that it certainly records.
fn wait_for_bytes(file: &Path) {
    wait_until("the recording grows", || std::fs::metadata(file).is_ok_and(|data| data.len() > 2_000));
}

fn shown(directory: &Path, file: &str) -> String {
    run_in(directory, &["show", file]).done().out
}

#[test]
fn a_process_is_recorded_for_the_time_asked() {
    if !can_record() {
        return;
    }
    let directory = scratch("target-pid");
    let busy = Running::shell("while :; do sleep 0.005; done");
    let words = ["record", "-o", "p.slrec", "--pid", &busy.pid(), "--duration", "300ms"];
    let said = run_in(&directory, &words).done().out;
    assert!(said.contains("p.slrec in 3") || said.contains("p.slrec in 2"), "about 300 ms: {said}");
    assert!(shown(&directory, "p.slrec").contains("sleep"), "its children belong to the target");
    run_in(&directory, &["simulate", "p.slrec"]).done();
}

/// Services that never wait, and that never run while they are watched.
#[test]
fn a_service_that_never_sleeps_or_never_runs_is_said_to_be_one() {
    if !can_record() {
        return;
    }
    let directory = scratch("target-extremes");
    let spinning = Running::shell("while :; do :; done");
    let words = ["record", "-o", "spin.slrec", "--pid", &spinning.pid(), "--duration", "200ms"];
    run_in(&directory, &words).done();
    drop(spinning);
    let compared =
        run_in(&directory, &["compare", "spin.slrec", "-s", "fair,vtime", "--runs", "2"]).done().out;
    assert!(compared.contains("Triage") && compared.contains("Verdict"), "{compared}");
    assert!(compared.contains("no task of it is ever woken"), "why this objective: {compared}");
    let silent = Running::shell("exec sleep 1000");
    let words = ["record", "-o", "none.slrec", "--pid", &silent.pid(), "--duration", "200ms"];
    run_in(&directory, &words).done();
    assert!(shown(&directory, "none.slrec").contains("none.slrec"));
    let says = ["none.slrec", "no task of the target ran", "record for longer"];
    run_in(&directory, &["compare", "none.slrec", "-s", "fair,vtime", "--runs", "2"]).refused(2, &says);
}

/// Where a control group can be made: the unified hierarchy or a version 1 controller.
fn group(name: &str) -> Option<PathBuf> {
    let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/pids", "/sys/fs/cgroup/cpu"];
    let roots = roots.iter().map(Path::new).filter(|root| root.join("cgroup.procs").exists());
    roots.map(|root| root.join(name)).find(|path| path.is_dir() || std::fs::create_dir(path).is_ok())
}

#[test]
fn a_control_group_is_recorded_with_the_groups_below_it() {
    if !can_record() {
        return;
    }
    let directory = scratch("target-cgroup");
    let name = format!("schedlab-test-{}", std::process::id());
    let Some(outer) = group(&name) else {
        eprintln!("SKIPPED: no control group can be made here");
        return;
    };
    let inner = outer.join("inner");
    std::fs::create_dir(&inner).expect("a group below");
    run_in(&directory, &["record", "--cgroup", &name, "--duration", "1s"]).refused(2, &["no process is in"]);
    let member = Running::shell("while :; do sleep 0.005; done");
    std::fs::write(inner.join("cgroup.procs"), member.pid()).expect("it may be moved");
    let words = ["record", "-o", "g.slrec", "--cgroup", &name, "--duration", "200ms"];
    let ended = run_in(&directory, &words);
    drop(member);
    wait_until("the group empties", || {
        std::fs::read_to_string(inner.join("cgroup.procs")).is_ok_and(|list| list.is_empty())
    });
    std::fs::remove_dir(&inner).expect("an empty group");
    std::fs::remove_dir(&outer).expect("an empty group");
    ended.done();
    assert!(shown(&directory, "g.slrec").contains("sleep"));
    let absent = ["record", "--cgroup", "schedlab/no/such", "--duration", "1s"];
    run_in(&directory, &absent).refused(2, &["no control group", "/sys/fs/cgroup"]);
}

#[test]
fn a_control_group_may_vanish_while_it_is_recorded() {
    if !can_record() {
        return;
    }
    let directory = scratch("target-vanishes");
    let name = format!("schedlab-vanishes-{}", std::process::id());
    let Some(group) = group(&name) else {
        eprintln!("SKIPPED: no control group can be made here");
        return;
    };
    let member = Running::shell("while :; do sleep 0.005; done");
    std::fs::write(group.join("cgroup.procs"), member.pid()).expect("it may be moved");
    let words = ["record", "-o", "v.slrec", "--cgroup", &name, "--duration", "3s"];
    let mut recorder = recorder(&directory, &words);
    wait_for_bytes(&directory.join("v.slrec.part"));
    drop(member);
    wait_until("the group goes", || std::fs::remove_dir(&group).is_ok());
    let said = ended(&mut recorder, 0);
    assert!(said.contains("control group was gone after"), "{said}");
    let text = shown(&directory, "v.slrec");
    assert!(text.contains("sleep") && !text.contains("ended early"), "it is whole: {text}");
}

/// What a recorder in the background said, when it has ended so.
#[track_caller]
fn ended(recorder: &mut Running, code: i32) -> String {
    use std::io::Read;
    let (mut out, mut errors) = (String::new(), String::new());
    recorder.0.stdout.take().expect("a pipe").read_to_string(&mut out).expect("text");
    recorder.0.stderr.take().expect("a pipe").read_to_string(&mut errors).expect("text");
    assert_eq!(recorder.0.wait().expect("it ends").code(), Some(code), "{out}{errors}");
    out
}

/// A signal would end the recorder before it waits for it.
fn wait_for_handler(pid: &str) {
    const USR1: u64 = 1 << (10 - 1);
    wait_until("the recorder waits for signals", || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & USR1 != 0)
    });
}

/// Its programs are loaded and attached after that.
fn wait_for_programs(pid: &str) {
    wait_until("the recorder's programs are attached", || {
        let files = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        files
            .filter_map(|file| file.path().read_link().ok())
            .any(|file| file.ends_with("anon_inode:bpf_link"))
    });
}

/// The stretches in which a task of the target waited for a CPU, with its name.
fn waits(recording: &Recording) -> Vec<(String, Nanos)> {
    let timelines = Timelines::of(recording);
    let of_target = recording.tasks.iter().zip(&timelines.tasks).filter(|(task, _)| task.target);
    let waits = of_target.flat_map(|(task, stretches)| {
        let waits = stretches.iter().filter(|stretch| matches!(stretch.kind, StretchKind::Waiting { .. }));
        waits.map(|stretch| (task.name.clone(), stretch.length()))
    });
    waits.collect()
}

#[test]
fn a_ring_keeps_the_seconds_before_a_late_task() {
    if !can_record() {
        return;
    }
    let directory = scratch("ring");
    // It sleeps and wakes all the time, on the first CPU.
    let steady = Running::shell("exec taskset -c 0 sh -c 'while :; do sleep 0.005; done'");
    let words = ["record", "-o", "late.slrec", "--ring", "500ms", "--after", "100ms", "--pid", &steady.pid()];
    let rest = ["--trigger", "signal", "--trigger", "run-delay>150ms", "--json", "-"];
    let mut recorder = recorder(&directory, &[&words[..], &rest[..]].concat());
    wait_for_handler(&recorder.pid());
    std::thread::sleep(Duration::from_secs(1));
    // A real-time hog keeps that CPU for longer than the target may wait; again, as on a busy machine it may come late.
    let hog = "for i in 1 2 3 4 5 6 7 8 9; do timeout 0.4 taskset -c 0 chrt -f 50 sh -c 'while :; do :; done'; sleep 1; done";
    let _hog = Running::shell(hog);
    let told: serde_json::Value = serde_json::from_str(&ended(&mut recorder, 0)).expect("JSON");
    let trigger = &told["trigger"];
    let number = |value: &serde_json::Value| value.as_u64().unwrap_or_else(|| panic!("a number: {told}"));
    assert_eq!(trigger["what"], "run-delay>150ms", "{told}");
    assert!(number(&trigger["delay_ns"]) > 150_000_000, "{told}");
    // The window before it, and what was asked for after it.
    assert!(number(&trigger["at_ns"]) <= 500_000_000, "{told}");
    assert!(number(&told["duration_ns"]) >= number(&trigger["at_ns"]) + 100_000_000, "{told}");
    let bytes = std::fs::read(directory.join("late.slrec")).expect("written");
    let recording = codec::decode(&bytes).expect("a recording");
    assert!(!recording.provenance.partial);
    let late = trigger["task"].as_str().expect("a name");
    // It is seen to have waited, at least from the window's begin on.
    let waited = waits(&recording).into_iter().filter(|(name, _)| name == late).map(|(_, wait)| wait).max();
    assert!(waited.is_some_and(|waited| waited > Nanos(140_000_000)), "{late} waited {waited:?}: {told}");
    let text = shown(&directory, "late.slrec");
    assert!(text.contains("Trigger") && text.contains("had waited"), "{text}");
    run_in(&directory, &["simulate", "late.slrec"]).done();
}

#[test]
fn a_ring_is_written_for_a_signal_or_an_end_and_else_not() {
    if !can_record() {
        return;
    }
    let directory = scratch("ring-ends");
    let steady = Running::shell("while :; do sleep 0.005; done");
    let words = ["record", "-o", "s.slrec", "--ring", "300ms", "--after", "50ms", "--pid", &steady.pid()];
    for (name, code, says) in [("-USR1", 0, "SIGUSR1 after"), ("-INT", 130, "Ctrl-C after")] {
        let mut recorder = recorder(&directory, &words);
        wait_for_handler(&recorder.pid());
        wait_for_programs(&recorder.pid());
        // The window must hold something.
        std::thread::sleep(Duration::from_secs(1));
        signal(&recorder.pid(), name);
        let said = ended(&mut recorder, code);
        assert!(said.contains(says), "{name}: {said}");
        assert!(shown(&directory, "s.slrec").contains("sleep"), "{name}: it holds the target");
        std::fs::remove_file(directory.join("s.slrec")).expect("written");
    }
    let words = ["record", "-o", "n.slrec", "--ring", "1s", "--trigger", "run-delay>100s", "--", "true"];
    let said = run_in(&directory, &words).done().out;
    assert!(said.contains("Nothing    fired") && said.contains("--trigger end"), "{said}");
    assert_eq!(std::fs::read_dir(&directory).expect("scratch").count(), 0, "nothing is written");
    let words =
        ["record", "-o", "x.slrec", "--ring", "1s", "--trigger", "exit-nonzero", "--", "sh", "-c", "exit 7"];
    let failed = run_in(&directory, &words);
    assert_eq!(failed.code, 7, "{failed:?}");
    assert!(failed.out.contains("exit code 7 after"), "{failed:?}");
    shown(&directory, "x.slrec");
}

#[test]
fn a_ring_that_cannot_be_is_refused() {
    let directory = scratch("ring-refused");
    let refused = |words: &[&str], says: &[&str]| {
        run_in(&directory, &[&["record", "--dry-run"], words].concat()).refused(2, says);
    };
    refused(&["--ring", "1s", "--trigger", "cpu>5", "--", "true"], &["no trigger", "run-delay>TIME"]);
    refused(&["--ring", "5h", "--", "true"], &["5h"]);
    refused(&["--ring", "1ms", "--", "true"], &["--ring keeps", "10.0 ms"]);
    refused(&["--trigger", "signal", "--", "true"], &["--ring"]);
    refused(&["--ring", "1s", "--trigger", "exit-nonzero", "--pid", "1"], &["needs a command"]);
    let said = run_in(&directory, &["record", "--dry-run", "--ring", "2s"]).done().out;
    assert!(said.contains("signal or end: all of user space"), "{said}");
}

#[test]
fn a_unit_needs_systemd_and_must_run() {
    if !can_record() {
        return;
    }
    let directory = scratch("target-unit");
    let words = ["record", "-o", "u.slrec", "--unit", "schedlab-no-such-unit", "--duration", "1s"];
    let ended = run_in(&directory, &words);
    if Path::new("/run/systemd/system").exists() {
        ended.refused(2, &["schedlab-no-such-unit.service", "systemctl start"]);
    } else {
        ended.refused(3, &["does not run systemd", "--pid or --cgroup"]);
    }
    assert_eq!(std::fs::read_dir(&directory).expect("scratch").count(), 0, "nothing is left");
}

#[test]
fn a_command_runs_as_the_user_behind_sudo() {
    if !can_record() {
        return;
    }
    let directory = scratch("as-user");
    let output = Command::new(BINARY)
        .args(["record", "-o", "s.slrec", "--", "sh", "-c", "id -u; id -g; sleep 0.02"])
        .env("SUDO_UID", "65534")
        .env("SUDO_GID", "65534")
        .current_dir(&directory)
        .output();
    let said = support::Ended::of(output.expect("the program starts")).done().out;
    assert!(said.starts_with("65534\n65534\n"), "{said}");
    use std::os::unix::fs::MetadataExt;
    let owner = std::fs::metadata(directory.join("s.slrec")).expect("recorded").uid();
    assert_eq!(owner, 65_534, "the recording belongs to the user, too");
}

#[test]
fn a_signal_ends_a_recording_that_is_kept() {
    if !can_record() {
        return;
    }
    let directory = scratch("signals");
    let busy = Running::shell("while :; do sleep 0.005; done");
    for (name, words) in [
        ("-INT", vec!["record", "-o", "s.slrec", "--pid", &busy.pid(), "--duration", "60s"]),
        ("-TERM", vec!["record", "-o", "s.slrec", "--", "sh", "-c", "while :; do sleep 0.005; done"]),
    ] {
        let mut recorder = recorder(&directory, &words);
        wait_for_bytes(&directory.join("s.slrec.part"));
        signal(&recorder.pid(), name);
        let status = recorder.0.wait().expect("it ends");
        assert_eq!(status.code(), Some(130), "{name}");
        assert!(!directory.join("s.slrec.part").exists(), "{name}");
        assert!(!shown(&directory, "s.slrec").contains("ended early"), "it is whole");
    }
}

/// BPF programs that a process holds, by their kernel ids.
fn programs_of(pid: &str) -> Vec<u32> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten();
    let texts = entries.filter_map(|entry| std::fs::read_to_string(entry.path()).ok());
    let ids = texts
        .filter_map(|text| text.lines().find_map(|line| line.strip_prefix("prog_id:")?.trim().parse().ok()));
    let mut ids: Vec<u32> = ids.collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

#[test]
fn a_killed_recorder_leaves_nothing_attached_and_what_it_wrote() {
    if !can_record() {
        return;
    }
    let directory = scratch("killed");
    let mark = directory.join("went-on");
    let script =
        format!("i=0; while [ $i -lt 300 ]; do sleep 0.01; i=$((i+1)); done; touch {}", mark.display());
    let mut recorder = recorder(&directory, &["record", "-o", "k.slrec", "--", "sh", "-c", &script]);
    wait_for_bytes(&directory.join("k.slrec.part"));
    let programs = programs_of(&recorder.pid());
    assert!(programs.len() > 5, "it holds its programs: {programs:?}");
    signal(&recorder.pid(), "-KILL");
    recorder.0.wait().expect("it ends");
    let loaded = |id: &u32| libbpf_rs::query::ProgInfoIter::default().any(|program| program.id == *id);
    wait_until("its programs go with it", || !programs.iter().any(loaded));
    let text = shown(&directory, "k.slrec.part");
    assert!(text.contains("ended early") && text.contains("sleep"), "{text}");
    wait_until("the command goes on by itself", || mark.exists());
    run_in(&directory, &["record", "-o", "k.slrec", "--", "true"]).done();
    let left: Vec<_> =
        std::fs::read_dir(&directory).expect("scratch").flatten().map(|e| e.file_name()).collect();
    assert_eq!(left.len(), 2, "only the recording and the command's own file: {left:?}");
}
