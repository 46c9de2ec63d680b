//! What traces tell in part, late or twice, as recordings.

use super::*;
use schedlab_model::timeline::{StretchKind, Timelines};

fn named(pid: i32, name: &str) -> Named {
    Named { pid, name: name.to_owned(), prio: None }
}

fn with_prio(pid: i32, prio: i64) -> Named {
    Named { pid, name: format!("task-{pid}"), prio: Some(prio) }
}

fn heard(time: u64, cpu: u32, current: i32, what: What) -> Heard {
    Heard { time, cpu, current, flags: Flags::default(), what }
}

fn switch(time: u64, prev: Named, state: PrevState, next: Named) -> Heard {
    heard(time, 0, prev.pid, What::Switch { prev, state, next })
}

fn idle() -> Named {
    named(0, "swapper/0")
}

fn made(events: Vec<Heard>) -> Recording {
    let trace = Trace { events, ..Trace::default() };
    recording(trace, Format::TraceCmd, &ImportOptions::default()).expect("a recording")
}

fn rows(recording: &Recording, pid: i32) -> Vec<&TaskInfo> {
    recording.tasks.iter().filter(|task| task.pid == pid).collect()
}

fn kinds(recording: &Recording, is: fn(&EventKind) -> bool) -> usize {
    recording.events.iter().filter(|event| is(&event.kind)).count()
}

fn targets(trace: Trace, format: Format, target: Option<&str>) -> Vec<i32> {
    let options = ImportOptions { target: target.map(str::to_owned), ..ImportOptions::default() };
    let recording = recording(trace, format, &options).expect("a recording");
    recording.tasks.iter().filter(|task| task.target).map(|task| task.pid).collect()
}

const ASLEEP: PrevState = PrevState::Interruptible;

#[test]
fn a_clock_that_jumps_by_months_is_refused() {
    let year = 365 * 86_400_000_000_000;
    let events = vec![
        switch(5, idle(), PrevState::Runnable, named(7, "a")),
        switch(5 + year, named(7, "a"), ASLEEP, idle()),
    ];
    let trace = Trace { events, ..Trace::default() };
    let error = recording(trace, Format::Perf, &ImportOptions::default()).expect_err("a year").to_string();
    assert!(error.contains("spans 365 days") && error.contains("at most 104 days"), "{error}");
    assert!(error.contains("CLOCK_MONOTONIC"), "{error}");
}

#[test]
fn the_first_priority_told_is_the_one_a_task_began_with() {
    let waking = What::Waking { wakee: named(8, "b"), cpu: None };
    let recording = made(vec![
        // First heard of without one, as the waker of another.
        heard(1, 0, 7, waking),
        switch(2, with_prio(7, 110), ASLEEP, with_prio(8, 59)),
        switch(3, with_prio(8, 59), ASLEEP, with_prio(7, 130)),
    ]);
    let (seven, eight) = (&rows(&recording, 7)[0].attributes, &rows(&recording, 8)[0].attributes);
    assert_eq!(seven.nice, Nice::new(-10).expect("a nice value"));
    assert_eq!((eight.policy, eight.rt_priority), (Policy::Fifo, 40));
    let changes: Vec<_> = recording
        .events
        .iter()
        .filter_map(|event| match event.kind {
            EventKind::AttributesChanged { task, nice, .. } => Some((task, nice.get())),
            _ => None,
        })
        .collect();
    assert_eq!(changes.len(), 1, "only the later change is one");
    assert_eq!((recording.task(changes[0].0).pid, changes[0].1), (7, 10));
}

#[test]
fn a_pid_that_is_used_again_is_another_task() {
    let recording = made(vec![
        switch(1, idle(), PrevState::Runnable, named(7, "old")),
        heard(2, 0, 7, What::Exit { pid: 7 }),
        switch(3, named(7, "old"), PrevState::Dead, idle()),
        heard(4, 0, 0, What::WakeupNew { task: named(7, "new"), cpu: Some(0) }),
        switch(5, idle(), PrevState::Runnable, named(7, "new")),
        switch(9, named(7, "new"), ASLEEP, idle()),
    ]);
    let names: Vec<&str> = rows(&recording, 7).iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names, ["old", "new"]);
    let ran = |row: usize| {
        let stretches = &Timelines::of(&recording).tasks[row];
        let ran = stretches.iter().filter(|stretch| matches!(stretch.kind, StretchKind::Running { .. }));
        ran.map(|stretch| stretch.length().0).sum::<u64>()
    };
    assert_eq!((ran(1), ran(2)), (2, 4));
}

#[test]
fn a_fork_told_by_two_tracepoints_is_one() {
    let fork = |time, thread| heard(time, 0, 7, What::Fork { parent: 7, child: named(8, "child"), thread });
    let mut events = vec![switch(1, idle(), PrevState::Runnable, named(7, "parent")), fork(10, true)];
    // Much happens elsewhere before the second one tells of it.
    events.extend((0..30).map(|at| heard(11 + at, 1, 0, What::Irq { number: 1, enters: at % 2 == 0 })));
    events.push(fork(50, false));
    events.push(heard(51, 0, 7, What::WakeupNew { task: named(8, "child"), cpu: Some(1) }));
    events.push(switch(60, named(7, "parent"), ASLEEP, idle()));
    let recording = made(events);
    assert_eq!(kinds(&recording, |kind| matches!(kind, EventKind::Fork { .. })), 1);
    assert_eq!(rows(&recording, 8).len(), 1);
    assert_eq!(rows(&recording, 8)[0].tgid, 7, "a thread of its parent's process");
}

#[test]
fn kernel_threads_are_known_by_names_told_late() {
    let recording = made(vec![
        heard(1, 0, 15, What::Waking { wakee: named(7, "a"), cpu: None }),
        switch(2, named(15, "ksoftirqd/0"), ASLEEP, named(7, "a")),
        switch(3, named(7, "a"), ASLEEP, idle()),
    ]);
    let thread = rows(&recording, 15)[0];
    assert!(thread.attributes.kernel_thread && !thread.target);
    assert_eq!(thread.attributes.affinity.len(), 1, "bound to its CPU");
    assert!(rows(&recording, 7)[0].target);
}

#[test]
fn the_target_is_what_the_recorder_started_and_not_the_first_program() {
    // Another program starts first; perf's child was forked before the trace began and is renamed as it starts its own.
    let events = vec![
        switch(1, idle(), PrevState::Runnable, named(50, "sh")),
        heard(2, 0, 50, What::Rename { task: named(50, "ls") }),
        heard(2, 0, 50, What::Exec { pid: 50 }),
        switch(3, named(50, "ls"), ASLEEP, named(60, "perf")),
        switch(4, named(60, "perf"), ASLEEP, named(61, "perf-exec")),
        heard(5, 0, 61, What::Rename { task: named(61, "work") }),
        heard(5, 0, 61, What::Exec { pid: 61 }),
        heard(6, 0, 61, What::Fork { parent: 61, child: named(62, "work"), thread: false }),
        switch(9, named(61, "work"), ASLEEP, idle()),
    ];
    let trace = || Trace { events: events.clone(), ..Trace::default() };
    assert_eq!(targets(trace(), Format::Perf, None), [61, 62]);
    assert_eq!(targets(trace(), Format::Perf, Some("50")), [50]);
}

#[test]
fn the_target_is_followed_from_who_was_there_as_the_recorders_child() {
    let mut trace = Trace {
        events: vec![
            switch(1, idle(), PrevState::Runnable, named(60, "perf")),
            switch(2, named(60, "perf"), ASLEEP, named(50, "sh")),
            heard(3, 0, 50, What::Exec { pid: 50 }),
            heard(4, 0, 61, What::Exec { pid: 61 }),
            switch(9, named(61, "work"), ASLEEP, idle()),
        ],
        ..Trace::default()
    };
    trace.parents.insert(61, 60);
    assert_eq!(targets(trace, Format::Perf, None), [61]);
}

#[test]
fn a_target_may_be_named_by_the_process_of_its_threads() {
    let mut trace = Trace {
        events: vec![
            switch(1, idle(), PrevState::Runnable, named(71, "worker")),
            switch(2, named(71, "worker"), ASLEEP, named(72, "worker")),
            switch(3, named(72, "worker"), ASLEEP, named(80, "other")),
        ],
        ..Trace::default()
    };
    trace.processes.extend([(71, 70), (72, 70)]);
    assert_eq!(targets(trace, Format::Perf, Some("70")), [71, 72]);
}

#[test]
fn without_sched_waking_the_wake_up_is_told_by_sched_wakeup() {
    let wakeup = What::Wakeup { wakee: named(8, "b"), cpu: Some(1) };
    let recording = made(vec![
        switch(1, idle(), PrevState::Runnable, named(7, "a")),
        heard(2, 0, 7, wakeup),
        switch(3, named(7, "a"), ASLEEP, named(8, "b")),
    ]);
    let waking = recording.events.iter().find_map(|event| match event.kind {
        EventKind::Waking { waker, wakee, wakee_cpu, .. } => Some((waker, wakee, wakee_cpu)),
        _ => None,
    });
    let (waker, wakee, cpu) = waking.expect("it is told");
    assert_eq!((recording.task(waker).pid, recording.task(wakee).pid, cpu), (7, 8, CpuId(1)));
}

#[test]
fn lost_switches_give_nobody_cpu_time() {
    let trace = Trace {
        events: vec![
            switch(1_000, idle(), PrevState::Runnable, named(7, "a")),
            heard(2_000, 0, 7, What::Waking { wakee: named(8, "b"), cpu: None }),
            switch(90_000, named(9, "c"), ASLEEP, idle()),
        ],
        lost: HashMap::from([(0, u64::MAX), (1, u64::MAX)]),
        cpus: Some(2),
        ..Trace::default()
    };
    let recording = recording(trace, Format::TraceCmd, &ImportOptions::default()).expect("a recording");
    let task = recording.tasks.iter().position(|task| task.pid == 7).expect("it is there");
    let stretches = &Timelines::of(&recording).tasks[task];
    let ran = stretches.iter().filter(|stretch| matches!(stretch.kind, StretchKind::Running { .. }));
    assert_eq!(ran.map(|stretch| stretch.length().0).sum::<u64>(), 1_000);
    assert_eq!(recording.provenance.dropped, u64::MAX, "sums of what is lost do not overflow");
}
