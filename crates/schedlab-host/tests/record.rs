//! The live recorder on this machine's kernel. Needs root (or CAP_BPF and CAP_PERFMON) and BTF; says so
//! loudly where it has neither, and fails instead where CI is set.

use schedlab_host::record::{
    CacheSource, Detail, RecordError, RecordOptions, RecordSummary, Target, record_in_memory,
};
use schedlab_model::event::{EventKind, Operation, PrevState};
use schedlab_model::recording::{CacheCounting, Recording};
use schedlab_model::{Nanos, TaskId};
use std::time::Duration;

fn command(words: &[&str]) -> RecordOptions {
    RecordOptions::new(Target::Command(words.iter().map(|&word| word.to_owned()).collect()))
}

/// The recording, or `None` where this machine does not permit one.
fn recorded(options: &RecordOptions) -> Option<Recording> {
    recorded_with_summary(options).map(|(recording, _)| recording)
}

fn recorded_with_summary(options: &RecordOptions) -> Option<(Recording, RecordSummary)> {
    match record_in_memory(options, &mut ()) {
        Ok(recorded) => Some(recorded),
        Err(error @ (RecordError::Privilege { .. } | RecordError::NoBtf)) => {
            assert!(std::env::var_os("CI").is_none(), "CI must be able to record: {error}");
            eprintln!("SKIPPED: {error}");
            None
        }
        Err(error) => panic!("recording failed: {error}"),
    }
}

fn target_named(recording: &Recording, name: &str) -> TaskId {
    let position = recording.tasks.iter().position(|task| task.target && task.name == name);
    TaskId(position.unwrap_or_else(|| panic!("no target task is called {name}")) as u32)
}

fn operations(recording: &Recording, task: TaskId, wanted: Operation) -> (usize, usize, i64) {
    let (mut enters, mut exits, mut results) = (0, 0, 0);
    for event in &recording.events {
        match event.kind {
            EventKind::OperationEnter { task: t, operation, .. } if t == task && operation == wanted => {
                enters += 1
            }
            EventKind::OperationExit { task: t, operation, result, .. }
                if t == task && operation == wanted =>
            {
                exits += 1;
                results += result;
            }
            _ => {}
        }
    }
    (enters, exits, results)
}

/// Some kernels run no BPF program while a task that they guard is current (the agent of a virtual machine): the
/// timer that expires then is not told, so such a recording is made again.
#[test]
fn a_sleep_is_seen_from_fork_to_exit() {
    for _ in 0..5 {
        let Some((recording, summary)) = recorded_with_summary(&command(&["sleep", "0.2"])) else { return };
        if the_sleep_has_its_timer(&recording) {
            return;
        }
        assert!(summary.gaps > 0, "nothing hid its timer from the recorder: {:#?}", recording.events);
        eprintln!("its timer expired while the kernel ran no BPF programs ({} gaps): again", summary.gaps);
    }
    panic!("its timer was never seen");
}

/// Whether the timer is there; everything else must be.
fn the_sleep_has_its_timer(recording: &Recording) -> bool {
    assert_eq!(recording.provenance.exit_code, Some(0));
    assert!(!recording.provenance.partial && recording.provenance.dropped == 0);
    let sleep = target_named(recording, "sleep");
    let has = |wanted: &dyn Fn(&EventKind) -> bool| recording.events.iter().any(|event| wanted(&event.kind));
    assert!(has(&|kind| matches!(kind, EventKind::Exec { task } if *task == sleep)));
    assert!(has(&|kind| matches!(kind, EventKind::Exit { task } if *task == sleep)));
    let asked = recording.events.iter().find_map(|event| match event.kind {
        EventKind::OperationEnter { task, operation: Operation::SleepRelative, amount, .. }
            if task == sleep =>
        {
            Some((event.time, amount))
        }
        _ => None,
    });
    let (entered, amount) = asked.expect("it sleeps");
    assert_eq!(amount, 200_000_000);
    let expired = recording.events.iter().find_map(|event| match event.kind {
        EventKind::TimerExpire { task, due } if task == sleep => Some((event.time, due)),
        _ => None,
    });
    let Some((expired, due)) = expired else { return false };
    // A timer may fire with another interrupt up to its slack (50 µs unless set otherwise) before it is due.
    assert!(due <= expired + Nanos(50_000), "{entered:?} {due:?} {expired:?}");
    assert!(expired >= entered + Nanos(199_000_000), "{entered:?} {due:?} {expired:?}");
    true
}

#[test]
fn pipes_carry_what_was_written() {
    let script = "for i in 1 2 3 4 5 6 7 8; do echo 1234567; sleep 0.01; done | cat >/dev/null";
    let Some(recording) = recorded(&command(&["sh", "-c", script])) else { return };
    let cat = target_named(&recording, "cat");
    let (enters, exits, bytes) = operations(&recording, cat, Operation::PipeRead);
    assert_eq!(bytes, 64, "eight lines of eight bytes");
    // On a busy machine several lines may come before the reader runs again.
    assert!(enters >= 1 && exits >= enters, "{enters} waits, {exits} returns");
    let written: i64 = (0..recording.tasks.len())
        .map(|task| operations(&recording, TaskId(task as u32), Operation::PipeWrite).2)
        .sum();
    assert_eq!(written, 64);
    assert!(recording.provenance.counted_from.is_none());
}

/// Points of a task at which it left a CPU or came: time and virtual runtime in ns.
fn vruntimes(recording: &Recording, of: TaskId) -> Vec<(u64, i64)> {
    let value = |event: &schedlab_model::Event| match event.kind {
        EventKind::Vruntime { task, vruntime, .. } if task == of => Some((event.time.0, vruntime)),
        _ => None,
    };
    recording.events.iter().filter_map(value).collect()
}

/// Two hogs share CPU 0 by their weights, so that their virtual runtimes grow alike, as the kernel itself counts them.
#[test]
fn virtual_runtimes_of_hogs_of_nice_0_and_5_grow_alike() {
    const SCRIPT: &str = "count() { i=0; while [ $i -lt 1500000 ]; do i=$((i+1)); done; }; count & renice -n 5 $$ \
                          >/dev/null; count; wait";
    let here = std::process::Command::new("renice").arg("--version").output();
    if here.is_err() || std::process::Command::new("taskset").arg("--version").output().is_err() {
        eprintln!("SKIPPED: taskset and renice are missing (util-linux)");
        return;
    }
    let mut options = command(&["taskset", "-c", "0", "sh", "-c", SCRIPT]);
    options.vruntime = true;
    let Some(recording) = recorded(&options) else { return };
    let ran = |task: usize| {
        let own = vruntimes(&recording, TaskId(task as u32));
        (own.len(), task)
    };
    let mut tasks: Vec<(usize, usize)> =
        (1..recording.tasks.len()).filter(|task| recording.tasks[*task].target).map(ran).collect();
    tasks.sort_unstable();
    let [.., one, other] = tasks[..] else { panic!("two hogs: {tasks:?}") };
    let [one, other] = [one, other].map(|(_, task)| vruntimes(&recording, TaskId(task as u32)));
    // While both were there, but for the time before the second had its nice value.
    let from = one[0].0.max(other[0].0) + 100_000_000;
    let to = one[one.len() - 1].0.min(other[other.len() - 1].0);
    let growth = |values: &[(u64, i64)]| {
        let inside: Vec<i64> =
            values.iter().filter(|at| (from..=to).contains(&at.0)).map(|at| at.1).collect();
        inside.last().zip(inside.first()).map_or(0, |(last, first)| last - first)
    };
    let (a, b) = (growth(&one), growth(&other));
    assert!(a > 200_000_000, "both ran for long enough: {a} and {b} ns from {from} to {to}");
    // Slices of some ms, of which one of nice 5 weighs three times as much; and nobody is ahead by more than that.
    assert!((a - b).abs() < 100_000_000, "{a} and {b} ns");
}

#[test]
fn virtual_runtimes_are_told_only_if_asked_for() {
    let Some(recording) = recorded(&command(&["sleep", "0.05"])) else { return };
    assert!(!recording.events.iter().any(|event| matches!(event.kind, EventKind::Vruntime { .. })));
}

/// Page faults stand for the counters that a machine may not have. A program that is loaded has some dozens; what others on
/// its CPU had before it came is not among them.
#[test]
fn the_use_of_caches_is_told_as_a_task_leaves_its_cpu() {
    let mut options = command(&["sleep", "0.05"]);
    options.caches = Some(CacheSource::PageFaults);
    let Some(recording) = recorded(&options) else { return };
    assert!(matches!(recording.provenance.caches, Some(CacheCounting::Counted { .. })));
    let mut sums = (0, 0);
    for event in &recording.events {
        let EventKind::CacheUse { task, references, misses } = event.kind else { continue };
        assert!(recording.task(task).target && misses <= references, "{event:?}");
        sums = (sums.0 + references, sums.1 + misses);
    }
    assert!((20..5_000).contains(&sums.0) && sums.1 > 0, "{sums:?}");
}

/// Whether this machine has them or not, a recording is made, and says which.
#[test]
fn the_processors_counters_of_caches_are_used_or_said_to_be_missing() {
    let mut options = command(&["sleep", "0.05"]);
    options.caches = Some(CacheSource::Processor);
    let Some(recording) = recorded(&options) else { return };
    let told = recording.events.iter().any(|event| matches!(event.kind, EventKind::CacheUse { .. }));
    match recording.provenance.caches {
        Some(CacheCounting::Counted { line_bytes }) => assert!(told && line_bytes >= 16),
        Some(CacheCounting::Impossible { reason }) => {
            assert!(!told && reason.contains("perf_event_open"), "{reason}");
        }
        None => panic!("it was asked for"),
    }
}

/// Told one by one or counted: the bytes are the same.
#[test]
fn counting_keeps_the_bytes() {
    let words = ["hackbench", "-g", "1", "-l", "20"];
    if std::process::Command::new("hackbench").arg("-h").output().is_err() {
        eprintln!("SKIPPED: hackbench is not installed (Debian: rt-tests)");
        return;
    }
    for detail in [Detail::Full, Detail::Counted] {
        let mut options = command(&words);
        options.detail = detail;
        let Some(recording) = recorded(&options) else { return };
        assert_eq!(recording.provenance.dropped, 0);
        let total = |wanted| -> i64 {
            (0..recording.tasks.len()).map(|task| operations(&recording, TaskId(task as u32), wanted).2).sum()
        };
        // Messages, a byte from each of 40 tasks when it is ready, and the starting signal, which nobody reads.
        let bytes = 20 * 20 * 20 * 100 + 40;
        assert_eq!(total(Operation::SocketSend), bytes + 1, "{detail:?}");
        let received = total(Operation::SocketReceive);
        // Counted reads before a task's first wait may be a file's; a sum told before its send may end short.
        let scatter = if detail == Detail::Full { 0 } else { bytes / 100 };
        assert!((received - bytes).abs() <= scatter, "{detail:?}: {received} of {bytes}");
    }
}

/// Long enough for sends to be told by their patterns; tasks that begin to send only then have none.
#[test]
fn patterns_keep_the_bytes() {
    let words = ["hackbench", "-g", "4", "-l", "400"];
    if std::process::Command::new("hackbench").arg("-h").output().is_err() {
        eprintln!("SKIPPED: hackbench is not installed (Debian: rt-tests)");
        return;
    }
    let Some(recording) = recorded(&command(&words)) else { return };
    assert_eq!(recording.provenance.dropped, 0);
    assert!(recording.provenance.counted_from.is_some(), "it must be too dear to tell each");
    let total = |wanted| -> i64 {
        (0..recording.tasks.len()).map(|task| operations(&recording, TaskId(task as u32), wanted).2).sum()
    };
    let bytes = 4 * 20 * 20 * 400 * 100 + 160;
    let (sent, received) = (total(Operation::SocketSend), total(Operation::SocketReceive));
    // A send at which the way of telling changes may be missing, and is told to be.
    let scatter = bytes / 1_000;
    assert!((sent - bytes - 1).abs() <= scatter, "{sent} of {bytes} sent");
    assert!((received - bytes).abs() <= scatter, "{received} of {bytes} received");
    let unseen = recording.provenance.unseen_bytes as i64;
    assert!(unseen <= scatter, "{unseen} of {bytes} bytes were received without a send");
}

#[test]
fn every_task_runs_on_one_cpu_at_a_time() {
    let Some(recording) = recorded(&command(&["sh", "-c", "for i in 1 2 3 4; do sleep 0.01 & done; wait"]))
    else {
        return;
    };
    let mut current = [None; 1024];
    for event in &recording.events {
        if let EventKind::Switch { prev, next, prev_state } = event.kind {
            let slot = &mut current[event.cpu.index()];
            assert!(
                slot.is_none_or(|running| running == prev),
                "at {:?}: {slot:?} ran, {prev:?} leaves",
                event.time
            );
            *slot = Some(next);
            assert!(!(prev.is_idle() && prev_state != PrevState::Runnable), "idle never sleeps");
        }
    }
    let forked: Vec<_> = recording.tasks.iter().filter(|task| task.target && !task.existed).collect();
    assert!(forked.len() >= 4, "the shell's children are targets: {}", forked.len());
}

#[test]
fn a_process_that_never_sleeps_is_recorded_for_the_time_asked() {
    let mut spinning =
        std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("sh");
    let mut options = RecordOptions::new(Target::Pid(spinning.id() as i32));
    options.duration = Some(Duration::from_millis(200));
    let recording = recorded(&options);
    spinning.kill().expect("it runs");
    spinning.wait().expect("it ends");
    let Some(recording) = recording else { return };
    assert!(recording.tasks.iter().any(|task| task.target && task.existed));
    assert!(recording.duration >= Nanos::from_millis(150), "{:?}", recording.duration);
}

#[test]
fn a_failing_command_keeps_its_code_and_its_recording() {
    let Some(recording) = recorded(&command(&["sh", "-c", "exit 9"])) else { return };
    assert_eq!(recording.provenance.exit_code, Some(9));
    assert!(!recording.events.is_empty());
}

#[test]
fn a_command_that_does_not_exist_is_an_error() {
    match record_in_memory(&command(&["schedlab-no-such-command"]), &mut ()) {
        Err(RecordError::Command { program, .. }) => assert_eq!(program, "schedlab-no-such-command"),
        Err(error @ (RecordError::Privilege { .. } | RecordError::NoBtf)) => eprintln!("SKIPPED: {error}"),
        other => panic!("must fail: {other:?}"),
    }
}

/// The shell pins itself and renices itself, then computes for long: both are told at their time, not when it is
/// next switched away.
#[test]
fn attributes_change_when_they_are_changed() {
    let script = "taskset -p 1 $$ >/dev/null; renice 7 $$ >/dev/null; i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done";
    let Some(recording) = recorded(&command(&["sh", "-c", script])) else { return };
    let shell = target_named(&recording, "sh");
    let told = |wanted: &dyn Fn(&EventKind) -> bool| {
        recording.events.iter().find(|event| wanted(&event.kind)).map(|event| event.time)
    };
    let exit_of = |name: &str| {
        let task = target_named(&recording, name);
        told(&|kind| matches!(kind, EventKind::Exit { task: t } if *t == task)).expect("it ends")
    };
    let pinned = told(&|kind| matches!(kind, EventKind::AffinityChanged { task, .. } if *task == shell));
    let niced = told(
        &|kind| matches!(kind, EventKind::AttributesChanged { task, nice, .. } if *task == shell && nice.get() == 7),
    );
    let (pinned, niced) = (pinned.expect("the affinity changed"), niced.expect("the nice value changed"));
    assert!(pinned < exit_of("taskset"), "told {pinned} after its maker ended");
    assert!(niced < exit_of("renice"), "told {niced} after its maker ended");
}
