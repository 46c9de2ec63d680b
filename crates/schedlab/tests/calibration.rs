//! `machine --calibrate` on this machine: what it writes, what is made of it, and that it leaves everybody else as they were.
//! Needs root; says so loudly where it is not there, and fails where CI is set.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use support::{BINARY, can_record, run_in, scratch};

/// Two calibrations beside each other are both disturbed.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A process of the test's own, ended with it.
struct Running(Child);

impl Running {
    fn new(words: &[&str]) -> Running {
        let child = Command::new(words[0]).args(&words[1..]).stdout(Stdio::null()).spawn();
        Running(child.unwrap_or_else(|error| panic!("{words:?}: {error}")))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Who is there beside a calibration: tasks of every kind, whose attributes are nobody's business.
struct Bystanders(Vec<Running>);

impl Bystanders {
    fn new() -> Bystanders {
        let kinds: [&[&str]; 5] = [
            &["sleep", "1000"],
            &["taskset", "-c", "0", "sleep", "1000"],
            &["nice", "-n", "5", "sleep", "1000"],
            &["chrt", "-b", "0", "sleep", "1000"],
            &["chrt", "-f", "3", "sleep", "1000"],
        ];
        let bystanders = Bystanders(kinds.iter().map(|words| Running::new(words)).collect());
        // Each has its attributes when it has become what it is to be.
        wait_until("all sleep", || {
            bystanders.0.iter().all(|one| comms(one.0.id()).iter().all(|name| name == "sleep"))
        });
        bystanders
    }

    /// Nice value, real-time priority, policy and CPUs of them, of this process and its parent, and of the first one; and
    /// what the kernel's scheduler is set to.
    fn as_they_are(&self) -> BTreeMap<String, String> {
        let own = [1, std::process::id(), std::os::unix::process::parent_id()];
        let processes = self.0.iter().map(|one| one.0.id()).chain(own);
        let mut all: BTreeMap<String, String> =
            processes.map(|pid| (format!("process {pid}"), attributes(&format!("/proc/{pid}")))).collect();
        let settings = fs::read_dir("/proc/sys/kernel").expect("procfs").flatten();
        let settings = settings.filter(|entry| entry.file_name().to_string_lossy().starts_with("sched_"));
        for path in settings.map(|entry| entry.path()).chain(["/sys/devices/system/cpu/online".into()]) {
            all.insert(path.display().to_string(), fs::read_to_string(&path).unwrap_or_default());
        }
        all
    }
}

/// Of a process or thread, by its directory in /proc.
fn attributes(directory: &str) -> String {
    let read = |name: &str| fs::read_to_string(format!("{directory}/{name}")).unwrap_or_default();
    let (stat, status) = (read("stat"), read("status"));
    let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
    let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap_or("gone");
    // Fields 19, 40 and 41 of proc_pid_stat(5); the first one behind the name is the third.
    let field = |number: usize| fields.get(number - 3).copied().unwrap_or("gone");
    format!("nice {} priority {} policy {} CPUs {}", field(19), field(40), field(41), cpus.trim())
}

/// The names of a process's threads.
fn comms(pid: u32) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let names = threads.filter_map(|thread| fs::read_to_string(thread.path().join("comm")).ok());
    names.map(|name| name.trim().to_owned()).collect()
}

#[track_caller]
fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// BPF programs that a process holds, by their kernel numbers.
fn programs_of(pid: u32) -> Vec<u32> {
    let entries = fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten();
    let texts = entries.filter_map(|entry| fs::read_to_string(entry.path()).ok());
    let number =
        |text: String| text.lines().find_map(|line| line.strip_prefix("prog_id:"))?.trim().parse().ok();
    texts.filter_map(number).collect()
}

/// Measured once, kept by recordings, and used for them; another machine's costs are refused.
#[test]
fn measured_costs_are_kept_in_a_machine_file_and_in_recordings() {
    if !can_record() {
        return;
    }
    let _alone = alone();
    let directory = scratch("calibrate");
    let bystanders = Bystanders::new();
    let before = bystanders.as_they_are();
    let said = run_in(&directory, &["machine", "--calibrate", "-o", "mine.toml"]).done().out;
    assert_eq!(bystanders.as_they_are(), before, "nobody else is changed");
    assert!(said.contains("wakeup") && said.contains("context_switch"), "{said}");
    assert!(said.contains("whole latencies") && said.contains("rounds count"), "{said}");
    assert!(said.contains("not measured: ") && said.contains("balance_per_cpu"), "{said}");
    let machine = fs::read_to_string(directory.join("mine.toml")).expect("the machine file");
    let measured = machine.matches("origin = \"measured\"").count();
    assert!(measured >= 4 && machine.contains("quantiles = ["), "{machine}");
    let words = ["record", "-o", "a.slrec", "--machine", "mine.toml", "--", "sleep", "0.02"];
    run_in(&directory, &words).done();
    let shown = run_in(&directory, &["machine", "a.slrec"]).done().out;
    let of_file = machine.lines().skip_while(|line| !line.starts_with("[costs.wakeup]")).nth(1);
    let kept = shown.lines().skip_while(|line| !line.starts_with("[costs.wakeup]")).nth(1);
    assert!(kept.is_some() && kept == of_file, "{shown}");
    run_in(&directory, &["simulate", "a.slrec", "--machine", "mine.toml"]).done();
    let words = ["record", "-o", "b.slrec", "--machine", "two-socket", "--", "true"];
    run_in(&directory, &words).refused(2, &["describes another machine", "--calibrate"]);
}

/// While sleepers are tied to their CPUs beneath the recorder.
#[test]
fn a_calibration_that_is_interrupted_writes_nothing_and_leaves_nothing_changed() {
    if !can_record() {
        return;
    }
    let _alone = alone();
    let directory = scratch("calibrate-interrupted");
    let bystanders = Bystanders::new();
    let before = bystanders.as_they_are();
    let mut calibration = start(&directory);
    let pid = calibration.0.id();
    let tied = || {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let mut sleepers = threads.filter(|thread| {
            fs::read_to_string(thread.path().join("comm")).is_ok_and(|name| name.trim() == "sleeper")
        });
        sleepers.any(|thread| attributes(&thread.path().display().to_string()).ends_with("CPUs 0"))
    };
    wait_until("a sleeper is tied to the first CPU", tied);
    let programs = programs_of(pid);
    assert!(!programs.is_empty(), "the recorder is at work");
    // By the shell's own `kill`: the program of that name is in a package that a small system lacks.
    let sent = Command::new("sh").args(["-c", "kill -INT \"$0\"", &pid.to_string()]).status();
    assert!(sent.expect("sh exists").success(), "the process is there");
    assert_eq!(calibration.0.wait().expect("it ends").code(), Some(130));
    assert_eq!(bystanders.as_they_are(), before, "nobody else is changed");
    assert_eq!(fs::read_dir(&directory).expect("scratch").count(), 0, "nothing is written");
    let loaded = |id: &u32| libbpf_rs::query::ProgInfoIter::default().any(|program| program.id == *id);
    wait_until("its programs go with it", || !programs.iter().any(loaded));
}

/// In a process group of its own, so that a signal reaches it alone.
fn start(directory: &Path) -> Running {
    let mut command = Command::new(BINARY);
    command.args(["machine", "--calibrate", "-o", "mine.toml"]).current_dir(directory).process_group(0);
    Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the program starts"))
}
