//! Tests that need a kernel of their own: they boot Linux 7.2 in QEMU. Ignored but by `cargo xtask test vm`.
//!
//! The machine's own behaviour first, then objects in a real kernel, then the conformance scenarios of
//! tests/conformance/: what the kernel calls must be what tests/golden/callbacks/ says, which the simulated kernel is
//! compared with too. `UPDATE_GOLDEN=1` writes what the kernel did instead.

use schedlab_host::live::callbacks::Call;
use schedlab_host::live::sequence::{Span, sequence};
use schedlab_host::live::trial::Trial;
use schedlab_host::vm::{Acceleration, Error, Kernel, KernelName, Machine, Run, Topology};
use schedlab_model::CpuId;
use schedlab_model::workload::Workload;
use schedlab_model::workload::change::Change;
use schedlab_model::workload::file::parse;
use schedlab_objects::Object;
use schedlab_objects::conformance::{CASES, CPUS, Case};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

fn machine() -> Machine {
    let kernel = Kernel::get(KernelName::V7_2).expect("a kernel with sched_ext");
    let mut machine = Machine::new(kernel, Path::new(env!("CARGO_BIN_EXE_schedlab-guest")));
    machine.safe_for_loading();
    machine
}

/// Runs `schedlab-guest VERB /object ...` in `machine` with the scheduler's object.
fn guest(machine: &mut Machine, object: &[u8], words: &[&str]) -> Run {
    machine.contents(object, "object.bpf.o");
    let (verb, rest) = words.split_first().expect("a verb");
    let mut command = vec!["schedlab-guest", verb, "/object.bpf.o"];
    command.extend(rest);
    machine.run(&command).expect("the machine runs")
}

fn vtime() -> &'static [u8] {
    schedlab_objects::scheduler("vtime").expect("the vtime scheduler")
}

/// The last line of the guest's output.
fn verdict(run: &Run) -> Value {
    let text = run.text();
    let line = text.lines().last().unwrap_or_default();
    let stderr = String::from_utf8_lossy(&run.stderr);
    serde_json::from_str(line).unwrap_or_else(|_| panic!("no verdict: {text}\n{stderr}\n{}", run.kernel_log))
}

#[test]
#[ignore = "boots a kernel: cargo xtask test vm"]
fn output_files_and_exit_code_come_out() {
    let mut machine = machine();
    machine.collect("/tmp/result").collect("/tmp/absent");
    let run = machine.run(&["sh", "-c", "echo out; echo err >&2; echo kept > /tmp/result; exit 7"]);
    let run = run.expect("it boots");
    assert_eq!((run.code, run.text().as_str()), (7, "out\n"), "{}", String::from_utf8_lossy(&run.stderr));
    assert_eq!(run.stderr, b"err\n");
    assert_eq!(run.files.get("/tmp/result").map(Vec::as_slice), Some(&b"kept\n"[..]));
    assert!(!run.files.contains_key("/tmp/absent"));
    assert!(run.kernel_log.contains("Linux version"), "the kernel's log comes out");
}

#[test]
#[ignore = "boots a kernel: cargo xtask test vm"]
fn the_guest_sees_the_topology() {
    let mut machine = machine();
    machine.topology(Topology { sockets: 2, cores: 2, threads: 1 });
    let run =
        machine.run(&["sh", "-c", "nproc; cat /sys/devices/system/cpu/cpu3/topology/physical_package_id"]);
    assert_eq!(run.expect("it boots").text(), "4\n1\n");
}

#[test]
#[ignore = "boots a kernel: cargo xtask test vm"]
fn a_command_that_never_ends_is_stopped() {
    let mut machine = machine();
    machine.acceleration(Acceleration::EmulationInTurns).time_limit(Duration::from_secs(20));
    let error = machine.run(&["sleep", "1000"]).expect_err("the limit holds");
    assert!(matches!(error, Error::TimeLimit { seconds: 20, .. }), "{error}");
}

#[test]
#[ignore = "boots a kernel: cargo xtask test vm"]
fn a_scheduler_is_enabled_and_gives_all_tasks_back() {
    let run = guest(&mut machine(), vtime(), &["load", "--set", "slice_ns=5000000", "--", "true"]);
    let verdict = verdict(&run);
    assert_eq!(run.code, 0, "{verdict} {}", String::from_utf8_lossy(&run.stderr));
    assert_eq!(verdict["state_while_attached"], "enabled");
    assert_eq!(verdict["state_after_detach"], "disabled");
    assert_eq!(verdict["exit"]["kind"], 64, "SCX_EXIT_UNREG: {verdict}");
}

#[test]
#[ignore = "boots a kernel: cargo xtask test vm"]
fn the_kernel_ends_bad_schedulers_and_the_reason_comes_out() {
    // A stall is found by the watchdog's worker, or by the tick if the worker itself is not run in time.
    for (name, kind, messages) in
        [("stall", 1026, &["failed to run", "failed to check in"][..]), ("double_insert", 1024, &["already"])]
    {
        let object = schedlab_objects::test_object(name).expect("a test object");
        let run = guest(&mut machine(), object, &["load", "--", "sleep", "4"]);
        let verdict = verdict(&run);
        assert_eq!(run.code, 1, "{name}: {verdict}");
        assert_eq!(verdict["exit"]["kind"], kind, "{name}: {verdict}");
        let said = verdict["exit"]["message"].as_str().unwrap_or_default();
        assert!(messages.iter().any(|message| said.contains(message)), "{name}: {verdict}");
        assert_eq!(verdict["state_after_detach"], "disabled", "{name}: {verdict}");
    }
}

/// `try` with a short stress.
fn trial(object: &[u8]) -> Trial {
    let run = guest(&mut machine(), object, &["try", "--stress-ms", "2000"]);
    assert_eq!(run.code, 0, "{}", String::from_utf8_lossy(&run.stderr));
    serde_json::from_value(verdict(&run)).expect("a trial")
}

#[test]
#[ignore = "boots a kernel: cargo xtask test vm"]
fn a_trial_finds_nothing_against_a_good_scheduler() {
    let trial = trial(vtime());
    assert_eq!(trial.faults(), Vec::<String>::new());
    assert_eq!((trial.scheduler.as_str(), trial.state_after.as_str()), ("vtime", "disabled"));
    assert!(trial.callbacks.iter().any(|callback| callback == "enqueue"));
    for program in &trial.programs {
        assert!(program.walked > 0 && program.instructions > 0 && program.time_us.is_some(), "{program:?}");
    }
    assert!(trial.programs.len() >= 7 && trial.stress.len() == trial.after.len());
}

#[test]
#[ignore = "boots a kernel: cargo xtask test vm"]
fn a_trial_says_what_speaks_against_a_bad_one() {
    let test = |name| schedlab_objects::test_object(name).expect("a test object");
    let refused = trial(test("garbage")).refused.expect("the verifier refuses it");
    assert_eq!((&*refused.program, &*refused.reason), ("garbage_enqueue", "R1 invalid mem access 'scalar'"));
    assert!(refused.source.is_some_and(|place| place.starts_with("garbage.bpf.c:")));
    assert!(refused.remedy.is_some() && refused.steps.len() > 5);
    let stalls = trial(test("stall"));
    assert!(!stalls.survived && stalls.state_after == "disabled");
    assert_eq!(stalls.exit.as_ref().map(|exit| exit.kind), Some(1026));
    assert!(stalls.faults()[0].contains("runnable task stall"), "{:?}", stalls.faults());
}

/// All in one boot: what the verifier says is what schedlab-sim's tests expect of the simulated kernel.
#[test]
#[ignore = "boots a kernel: cargo xtask test vm"]
fn stacks_that_overflow_are_refused_as_in_the_simulated_kernel() {
    let mut machine = machine();
    let scratch = tempfile::tempdir().expect("temporary directory");
    let mut script = String::new();
    for (name, refused) in schedlab_objects::STACKS {
        let file = format!("{name}.bpf.o");
        let bytes = schedlab_objects::test_object(name).expect("a test object");
        std::fs::write(scratch.path().join(&file), bytes).expect("temporary file");
        machine.file(&scratch.path().join(&file), &file);
        let command =
            if refused.is_some() { format!("try /{file}") } else { format!("load /{file} -- true") };
        script.push_str(&format!("echo '{{\"case\":\"{name}\"}}'\nschedlab-guest {command}\n"));
    }
    let run = machine.run(&["sh", "-c", &script]).expect("the machine runs");
    let (text, stderr) = (run.text(), String::from_utf8_lossy(&run.stderr).into_owned());
    let parts = parts(&text);
    assert_eq!(parts.len(), schedlab_objects::STACKS.len(), "{text}\n{stderr}");
    for ((name, refused), (_, part)) in schedlab_objects::STACKS.iter().zip(parts) {
        let verdict: Value = serde_json::from_str(part.lines().last().unwrap_or_default())
            .unwrap_or_else(|_| panic!("{name}: no verdict: {part}\n{stderr}"));
        match refused {
            Some(reason) => assert_eq!(verdict["refused"]["reason"], *reason, "{name}: {verdict}"),
            None => assert_eq!(verdict["state_while_attached"], "enabled", "{name}: {verdict}"),
        }
    }
}

#[test]
#[ignore = "boots a kernel: cargo xtask test vm"]
fn wrong_knobs_and_wrong_objects_are_named() {
    let run = guest(&mut machine(), vtime(), &["load", "--set", "no_such_knob=1"]);
    let stderr = String::from_utf8_lossy(&run.stderr);
    assert!(run.code == 1 && stderr.contains("no_such_knob") && stderr.contains("slice_ns"), "{stderr}");
    let run = guest(&mut machine(), b"not an object", &["load"]);
    let stderr = String::from_utf8_lossy(&run.stderr);
    assert!(run.code == 1 && stderr.contains("no BPF object"), "{stderr}");
}

/// Schedulers whose decisions do not depend on times that they measure.
fn untimed() -> Vec<schedlab_objects::Object> {
    let names = ["fifo", "fixed_priority", "vtime"];
    schedlab_objects::SCHEDULERS.iter().filter(|object| names.contains(&object.name)).copied().collect()
}

#[test]
#[ignore = "boots a kernel: cargo xtask test vm"]
fn pipe_pair_is_called_as_recorded() {
    callbacks("pipe_pair", 1, &untimed());
}

#[test]
#[ignore = "boots a kernel: cargo xtask test vm"]
fn two_cpus_is_called_as_recorded() {
    callbacks("two_cpus", 2, &untimed());
}

#[test]
#[ignore = "boots a kernel: cargo xtask test vm"]
fn changes_are_called_as_recorded() {
    let maximal = schedlab_objects::TESTS.iter().find(|object| object.name == "maximal");
    callbacks("changes", 1, std::slice::from_ref(maximal.expect("a test object")));
}

/// The fair class of 7.2 ends slices between ticks: turns of hogs in groups, in virtual time, are those that the
/// simulated kernel is held to. Boots differ by up to 8 %;
/// at ticks alone there would be a third of them.
#[test]
#[ignore = "boots a kernel: cargo xtask test vm"]
fn turns_of_hogs_in_groups_are_as_recorded() {
    let fair = root().join("tests/conformance/fair");
    let mut machine = machine();
    machine.topology(Topology::flat(1)).acceleration(Acceleration::InstructionCount);
    machine.file(&fair.join("turns.sh"), "turns.sh").time_limit(Duration::from_secs(400));
    let run = machine.run(&["sh", "/turns.sh"]).expect("the machine runs");
    let read = |text: &str| -> BTreeMap<String, u64> {
        let lines = text.lines().filter_map(|line| line.split_once(' '));
        lines.filter_map(|(hog, turns)| Some((hog.to_owned(), turns.parse().ok()?))).collect()
    };
    let golden = std::fs::read_to_string(fair.join("turns.txt")).expect("recorded turns");
    let (found, wanted) = (read(&run.text()), read(&golden));
    assert_eq!(found.len(), wanted.len(), "{}\n{}", run.text(), String::from_utf8_lossy(&run.stderr));
    for (hog, turns) in &wanted {
        let now = found[hog];
        assert!(now.abs_diff(*turns) * 100 <= turns * 20, "{hog}: {now} turns, recorded {turns}");
    }
}

/// How many boots may show the recorded sequence: kernel threads of their own time disturb more plays of one boot than of
/// another, and then few are left to agree.
const BOOTS: usize = 4;

/// Plays the scenario under each of these schedulers on that many CPUs with a virtual clock, so that what the host does
/// besides cannot matter, and compares what most of the undisturbed plays agree on with the recorded sequence.
fn callbacks(scenario: &str, cpus: u32, schedulers: &[Object]) {
    let mut left: Vec<Object> = schedulers.to_vec();
    for boot in 1..=BOOTS {
        let faults = callbacks_of_boot(scenario, cpus, &left);
        if faults.is_empty() {
            return;
        }
        let said: Vec<&str> = faults.iter().map(|(_, fault)| fault.as_str()).collect();
        assert!(boot < BOOTS, "in {BOOTS} boots: {}", said.join("\n"));
        eprintln!("boot {boot}, tried again: {}", said.join("\n"));
        left.retain(|object| faults.iter().any(|(name, _)| name == object.name));
    }
}

/// The schedulers for which one boot did not show what is recorded, and what it showed.
fn callbacks_of_boot(scenario: &str, cpus: u32, schedulers: &[Object]) -> Vec<(String, String)> {
    let path = root().join(format!("tests/conformance/{scenario}.toml"));
    let workload = parse(&std::fs::read_to_string(&path).expect("the scenario")).expect("the scenario reads");
    let mut machine = machine();
    machine.topology(Topology::flat(cpus)).acceleration(Acceleration::InstructionCount);
    machine.file(&path, "scenario.toml").time_limit(Duration::from_secs(400));
    let scratch = tempfile::tempdir().expect("temporary directory");
    let mut script = String::new();
    for scheduler in schedulers {
        let name = format!("{}.bpf.o", scheduler.name);
        std::fs::write(scratch.path().join(&name), scheduler.bytes).expect("temporary file");
        machine.file(&scratch.path().join(&name), &name);
        script.push_str(&format!(
            "echo '{{\"case\":\"{}\"}}'\nschedlab-guest callbacks /{name} --repeat {PLAYS} -- \
             schedlab-guest play /scenario.toml || exit 1\n",
            scheduler.name
        ));
    }
    let run = machine.run(&["sh", "-c", &script]).expect("the machine runs");
    assert_eq!(run.code, 0, "{}", String::from_utf8_lossy(&run.stderr));
    let text = run.text();
    let parts = parts(&text);
    assert_eq!(parts.len(), schedulers.len());
    let check = |(scheduler, part): &(String, String)| {
        check_callbacks(scenario, scheduler, part, &workload).err().map(|fault| (scheduler.clone(), fault))
    };
    parts.iter().filter_map(check).collect()
}

/// Plays of a scenario under one scheduler.
const PLAYS: usize = 20;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The output of several runs in one boot, by the name that was printed before each.
fn parts(text: &str) -> Vec<(String, String)> {
    let mut parts: Vec<(String, String)> = Vec::new();
    for line in text.lines() {
        let name = line.strip_prefix("{\"case\":\"").and_then(|rest| rest.strip_suffix("\"}"));
        match (name, parts.last_mut()) {
            (Some(name), _) => parts.push((name.to_owned(), String::new())),
            (None, Some((_, part))) => {
                part.push_str(line);
                part.push('\n');
            }
            (None, None) => {}
        }
    }
    parts
}

fn check_callbacks(scenario: &str, scheduler: &str, text: &str, workload: &Workload) -> Result<(), String> {
    let names: Vec<&str> = workload.tasks.iter().map(|task| task.name.as_str()).collect();
    let duration_ns = workload.duration.expect("a scenario has a duration").0;
    let (calls, spans) = read(text, duration_ns);
    assert_eq!(spans.len(), PLAYS);
    // When a tick comes is a matter of phase.
    let calls: Vec<Call> = calls.into_iter().filter(|call| call.callback != "tick").collect();
    let results: Vec<_> = spans.iter().map(|span| sequence(&calls, &names, *span)).collect();
    let mut votes: BTreeMap<&[String], usize> = BTreeMap::new();
    for lines in results.iter().flatten() {
        *votes.entry(lines).or_default() += 1;
    }
    let most = votes.iter().max_by_key(|(_, count)| **count);
    let (lines, _) = most
        .filter(|(_, count)| **count >= 2)
        .ok_or_else(|| format!("{scheduler}: no two plays of {PLAYS} agree: {results:?}"))?;
    golden_fault(&root().join(format!("tests/golden/callbacks/{scenario}-{scheduler}-7.2.txt")), lines)
}

/// The calls of a log, and the span of each play.
fn read(text: &str, duration_ns: u64) -> (Vec<Call>, Vec<Span>) {
    let (mut calls, mut spans) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let value: Value = serde_json::from_str(line).expect("the guest prints JSON lines");
        if let Some(played) = value.get("played") {
            let tgid = i32::try_from(played["tgid"].as_i64().expect("a number")).expect("a pid");
            spans.push(Span {
                tgid,
                origin_ns: played["origin_ns"].as_u64().expect("a number"),
                duration_ns,
            });
        } else if value.get("callback").is_some() {
            calls.push(serde_json::from_value(value).expect("a call"));
        }
    }
    (calls, spans)
}

/// The conformance cases, all in one boot: what the schedulers check and how they end is what the simulated kernel is
/// tested for too. A busy host can take so much time from an emulated machine that a scenario's urgent tasks hardly
/// come to run, so cases that fail are tried once more, without the others: what Linux really does otherwise, it does
/// again.
#[test]
#[ignore = "boots a kernel: cargo xtask test vm"]
fn every_case_ends_as_recorded() {
    let all: Vec<&Case> = CASES.iter().collect();
    let (faulty, stderr) = otherwise(&all);
    if faulty.is_empty() {
        return;
    }
    eprintln!("{} of {} once more: {faulty:#?}\n{stderr}", faulty.len(), all.len());
    let again: Vec<&Case> = faulty.iter().map(|(case, _)| *case).collect();
    let (faulty, stderr) = otherwise(&again);
    let named: Vec<(&str, &Vec<String>)> = faulty.iter().map(|(case, faults)| (case.name, faults)).collect();
    assert!(named.is_empty(), "{} of {}: {named:#?}\n{stderr}", named.len(), all.len());
}

/// Boots with these cases. Those that ended otherwise than they must, each with what is wrong; and what was said beside.
fn otherwise<'a>(cases: &[&'a Case]) -> (Vec<(&'a Case, Vec<String>)>, String) {
    let mut machine = machine();
    machine.topology(Topology::flat(CPUS)).time_limit(Duration::from_secs(400));
    let kernel = Kernel::get(KernelName::V7_2).expect("a kernel with sched_ext");
    let guest = Path::new(env!("CARGO_BIN_EXE_schedlab-guest"));
    if Acceleration::best(&kernel, guest) != Acceleration::Kvm {
        machine.acceleration(Acceleration::EmulationInTurns);
    }
    let scratch = tempfile::tempdir().expect("temporary directory");
    for object in schedlab_objects::CONFORMANCE {
        let name = format!("{}.bpf.o", object.name);
        std::fs::write(scratch.path().join(&name), object.bytes).expect("temporary file");
        machine.file(&scratch.path().join(&name), &name);
    }
    let directory = root().join("tests/conformance");
    let mut script = String::new();
    let mut scenarios: Vec<&str> = cases.iter().map(|case| case.scenario).collect();
    scenarios.sort_unstable();
    scenarios.dedup();
    for scenario in scenarios {
        machine.file(&directory.join(format!("{scenario}.toml")), &format!("{scenario}.toml"));
    }
    cases.iter().for_each(|case| script.push_str(&case_script(case, &directory)));
    let run = machine.run(&["sh", "-c", &script]).expect("the machine runs");
    let text = run.text();
    let parts = parts(&text);
    let faulty = cases.iter().map(|case| {
        let part = parts.iter().find(|(name, _)| name == case.name);
        (*case, faults(case, part.map_or("", |(_, text)| text)))
    });
    let faulty = faulty.filter(|(_, faults)| !faults.is_empty()).collect();
    (faulty, String::from_utf8_lossy(&run.stderr).into_owned())
}

/// What the guest runs for a case: CPUs go on and offline by sysfs, the scheduler is loaded, the scenario is played.
fn case_script(case: &Case, directory: &Path) -> String {
    let text = std::fs::read_to_string(directory.join(format!("{}.toml", case.scenario)));
    let workload = parse(&text.expect("the scenario")).expect("the scenario reads");
    let put = |cpu: CpuId, online: bool| {
        format!("echo {} > /sys/devices/system/cpu/cpu{cpu}/online", u8::from(online))
    };
    let before: Vec<String> = workload.offline.iter().map(|cpu| put(*cpu, false)).collect();
    let during = workload.changes.iter().filter_map(|change| match change.change {
        Change::Cpu { cpu, online } => {
            Some(format!("(sleep {:.3}; {}) &", change.time.0 as f64 / 1e9, put(cpu, online)))
        }
        _ => None,
    });
    let during: Vec<String> = during.collect();
    let after = if during.is_empty() { String::new() } else { put(CpuId(1), true) };
    // A late scheduler comes to tasks that run; loading it takes its time where the processor is emulated.
    let play = format!("schedlab-guest play /{}.toml", case.scenario);
    let (first, played) = if case.late {
        (format!("{play} &\nsleep 1\n"), "sleep 1".to_owned())
    } else {
        (String::new(), play)
    };
    let after = if case.late { format!("wait\n{after}") } else { after };
    let knobs = case.knobs.iter().map(|(name, value)| format!("--set {name}={value}"));
    let runs = case.runs.map(|program| format!("--run {program}"));
    let knobs: Vec<String> = knobs.chain(runs).collect();
    format!(
        "echo '{{\"case\":\"{}\"}}'\n{}\n{first}schedlab-guest load /{}.bpf.o {} --report checks --report failures \
         --report first_failure -- sh -c '{} {played}; wait'\n{after}\n",
        case.name,
        before.join("\n"),
        case.object,
        knobs.join(" "),
        during.join(" "),
    )
}

/// What is wrong with how a case went; empty if nothing.
fn faults(case: &Case, text: &str) -> Vec<String> {
    let mut said = text.lines().rev().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let Some(verdict) = said.find(|value| value.get("exit").is_some()) else {
        return vec![format!("no verdict: {text}")];
    };
    let (report, exit) = (&verdict["report"], &verdict["exit"]);
    let mut faults = Vec::new();
    if report["failures"] != 0 {
        faults.push(format!(
            "{} of {} checks failed, the first in line {}",
            report["failures"], report["checks"], report["first_failure"]
        ));
    }
    if report["checks"].as_i64().is_none_or(|checks| checks == 0) {
        faults.push("nothing was checked".to_owned());
    }
    let said = exit["message"].as_str().unwrap_or_default();
    if exit["kind"] != case.kind || exit["code"] != case.code || !said.contains(case.message) {
        faults.push(format!("ended so: {exit}"));
    }
    faults
}

/// What differs from the recorded lines.
fn golden_fault(path: &PathBuf, lines: &[String]) -> Result<(), String> {
    let text = lines.join("\n") + "\n";
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("the directory");
        std::fs::write(path, &text).expect("the golden file");
    }
    let golden = std::fs::read_to_string(path).unwrap_or_default();
    if text == golden {
        return Ok(());
    }
    Err(format!(
        "{}: UPDATE_GOLDEN=1 records what the kernel does:\n{text}recorded:\n{golden}",
        path.display()
    ))
}
