//! Who is woken at a channel and when, and what replays make of recordings whose sums are told late.

use schedlab_model::event::{Context, Event, EventKind, Operation, PrevState};
use schedlab_model::machine::{Cost, Costs, MachineDescription, Preemption};
use schedlab_model::recording::{ChannelKind, Provenance, Recording, codec};
use schedlab_model::timeline::{Stretch, StretchKind, Timelines};
use schedlab_model::topology::Topology;
use schedlab_model::workload::builder::Builder;
use schedlab_model::workload::file::parse;
use schedlab_model::workload::{Amount, ChannelType, Op, Workload, builtin};
use schedlab_model::{Nanos, TaskAttributes, TaskId};
use schedlab_sim::replay::{ReplayOptions, WaitKind, workload_from};
use schedlab_sim::{Simulation, SimulationConfig};
use std::collections::BTreeMap;
use std::sync::Arc;

fn record(workload: Workload, cpus: u32) -> Recording {
    record_on(MachineDescription::generic("test", Topology::flat(cpus).expect("CPUs")), workload)
}

fn record_on(machine: MachineDescription, workload: Workload) -> Recording {
    let config = SimulationConfig { seed: 1, ..SimulationConfig::new(machine.clone(), Arc::new(workload)) };
    let mut events: Vec<Event> = Vec::new();
    let result = Simulation::new(config).expect("valid").run(&mut events).expect("runs");
    Recording {
        provenance: Provenance::default(),
        machine,
        tasks: result.tasks,
        channels: result.channels,
        cpu_sets: Vec::new(),
        events,
        duration: result.report.simulated,
    }
}

/// Three senders fill a channel of ten messages, a reader takes them one by one, 10 us each. Room for four is what
/// wakes senders.
fn senders_and_a_slow_reader(wakes_all: bool) -> Vec<(u64, TaskId)> {
    let mut b = Builder::new("room", "");
    let channel = b.channel("socket", ChannelType::Bytes, 1_000, 0);
    for name in ["one", "two", "three"] {
        let sends = (0..10).map(|_| Op::Send { channel, bytes: 100 });
        b.task(name, name, TaskAttributes::default(), sends.collect());
    }
    let work = Nanos::from_micros(10);
    let read = Op::ReceiveEach { channel, message: 100, count: 30, work };
    let late = Op::Sleep(Amount::Fixed(Nanos::from_millis(50)));
    b.task("reader", "reader", TaskAttributes::default(), vec![late, read]);
    let mut workload = b.finish(None).expect("a workload");
    workload.channels[0].room_to_resume = 400;
    workload.channels[0].is_socket = wakes_all;
    let mut recording = record(workload, 1).events;
    recording.retain(|event| event.time > Nanos::from_millis(50));
    let start = recording[0].time.0;
    let waking = |event: &Event| match event.kind {
        EventKind::Waking { wakee, waker: TaskId(4), .. } => Some((event.time.0 - start, wakee)),
        _ => None,
    };
    recording.iter().filter_map(waking).collect()
}

#[test]
fn room_in_a_socket_wakes_all_senders_at_once_the_latest_first() {
    let wakes = senders_and_a_slow_reader(true);
    let (first, rest) = wakes.split_first().expect("senders are woken");
    assert!(first.0 >= 40_000, "four messages take 40 us of the reader: {wakes:?}");
    let together: Vec<TaskId> =
        wakes.iter().take_while(|wake| wake.0 - first.0 < 9_000).map(|wake| wake.1).collect();
    assert_eq!(together, [TaskId(3), TaskId(2)], "the first filled it and is done: {rest:?}");
}

#[test]
fn room_in_a_pipe_wakes_the_first_sender_with_each_read() {
    let wakes = senders_and_a_slow_reader(false);
    assert_eq!((wakes[0].1, wakes[1].1), (TaskId(2), TaskId(3)), "{wakes:?}");
    assert!(wakes[0].0 >= 40_000 && wakes[1].0 - wakes[0].0 >= 9_000, "one with each read: {wakes:?}");
}

/// One task sends itself ten messages. When it ends, in us.
fn ten_messages(kind: &str, costs: Costs) -> u64 {
    let text = format!(
        "name = \"own\"\n[channels]\nc = {{ type = \"{kind}\" }}\n[[task]]\nname = \"own\"\nsteps = [{{ loop = {{ count = 10, \
         steps = [{{ send = {{ channel = \"c\", bytes = 1 }} }}, {{ receive = {{ channel = \"c\", bytes = 1 }} }}] }} }}]\n"
    );
    let mut machine = MachineDescription::generic("one", Topology::flat(1).expect("one CPU"));
    machine.costs = costs;
    let recording = record_on(machine, parse(&text).expect("a workload"));
    let end = |event: &Event| matches!(event.kind, EventKind::Exit { .. }).then_some(event.time.0 / 1_000);
    recording.events.iter().find_map(end).expect("it ends")
}

#[test]
fn calls_at_a_socket_cost_what_the_machine_file_says_or_as_those_at_a_pipe() {
    let exactly = |us: u64| Cost::assumed(1_000 * us, 0);
    let both = Costs { pipe_call: exactly(2), socket_call: Some(exactly(3)), ..Costs::none() };
    assert_eq!((ten_messages("bytes", both.clone()), ten_messages("socket", both)), (40, 60));
    let one = Costs { pipe_call: exactly(2), ..Costs::none() };
    assert_eq!(ten_messages("socket", one), 40);
}

/// The one that came last sends more than there is room for; it must not hold up whoever came before.
#[test]
fn a_large_message_at_a_socket_keeps_no_small_one_waiting() {
    let text = r#"
name = "ends"
[channels]
s = { type = "socket", capacity = 1000, initial = 1000 }
t = { type = "bytes" }
[[task]]
name = "small"
start = "1ms"
steps = [{ send = { channel = "s", bytes = 100 } }, { send = { channel = "t", bytes = 1 } }]
[[task]]
name = "large"
start = "2ms"
steps = [{ send = { channel = "s", bytes = 1000 } }]
[[task]]
name = "reader"
start = "5ms"
steps = [{ loop = { count = 8, steps = [{ receive = { channel = "s", bytes = 100 } }] } }, { receive = { channel = "t", bytes = 1 } },
    { loop = { count = 13, steps = [{ receive = { channel = "s", bytes = 100 } }] } }]
"#;
    let recording = record(parse(text).expect("a workload"), 2);
    let ends = recording.events.iter().filter(|event| matches!(event.kind, EventKind::Exit { .. })).count();
    assert_eq!(ends, 3, "nobody waits for ever");
    let kinds: Vec<ChannelKind> = recording.channels.iter().map(|channel| channel.kind).collect();
    assert_eq!(kinds, [ChannelKind::Socket, ChannelKind::Pipe]);
}

/// Makes every third read that waited tell nothing, and the task's next read tell both, as recorders do that learn of
/// a send after the read that took it.
fn tell_late(recording: &mut Recording) -> u64 {
    let mut owed: BTreeMap<TaskId, i64> = BTreeMap::new();
    let mut slept: BTreeMap<TaskId, bool> = BTreeMap::new();
    let (mut waited, mut late) = (0_u64, 0);
    let mut last: BTreeMap<TaskId, usize> = BTreeMap::new();
    for (at, event) in recording.events.iter().enumerate() {
        if let EventKind::OperationExit { task, operation: Operation::PipeRead, .. } = event.kind {
            last.insert(task, at);
        }
    }
    for (at, event) in recording.events.iter_mut().enumerate() {
        match &mut event.kind {
            EventKind::Switch { prev, prev_state: PrevState::Interruptible, .. } => {
                slept.insert(*prev, true);
            }
            EventKind::OperationExit { task, operation: Operation::PipeRead, result, .. } => {
                let has_slept = slept.insert(*task, false) == Some(true);
                waited += u64::from(has_slept);
                if has_slept && waited % 3 == 0 && last[task] != at {
                    *owed.entry(*task).or_default() += std::mem::take(result);
                    late += 1;
                } else {
                    *result += owed.remove(task).unwrap_or(0);
                }
            }
            EventKind::OperationExit { task, .. } => _ = slept.insert(*task, false),
            _ => {}
        }
    }
    late
}

/// Leaves out when writes of the groups' tasks began that did not wait, as recorders do that tell writes as runs: whoever
/// was woken by one was woken, by what is told, after the write before it, which went to another channel.
fn tell_writes_as_runs(recording: &mut Recording) {
    let mut begun: BTreeMap<TaskId, (usize, bool)> = BTreeMap::new();
    let mut dropped = vec![false; recording.events.len()];
    for (at, event) in recording.events.iter().enumerate() {
        match event.kind {
            EventKind::OperationEnter { task, operation: Operation::PipeWrite, .. } if task.0 > 1 => {
                begun.insert(task, (at, false));
            }
            EventKind::Switch { prev, .. } => _ = begun.get_mut(&prev).map(|(_, waited)| *waited = true),
            EventKind::OperationExit { task, operation: Operation::PipeWrite, .. } => {
                if let Some((at, false)) = begun.remove(&task) {
                    dropped[at] = true;
                }
            }
            _ => {}
        }
    }
    let mut dropped = dropped.into_iter();
    recording.events.retain(|_| !dropped.next().unwrap_or(false));
}

/// When each of the groups of 40 tasks was done.
fn ends(recording: &Recording) -> Vec<Nanos> {
    let mut ends: BTreeMap<u32, Nanos> = BTreeMap::new();
    for event in &recording.events {
        if let EventKind::Exit { task } = event.kind
            && task.0 > 1
        {
            ends.insert((task.0 - 2) / 40, event.time);
        }
    }
    ends.into_values().collect()
}

fn switches(recording: &Recording) -> usize {
    recording.events.iter().filter(|event| matches!(event.kind, EventKind::Switch { .. })).count()
}

/// A reader whose bytes were told late must wait for a message, not for the task that sent it when it was recorded:
/// else its socket fills up while that task is far behind, its whole group stops, and the others run ahead.
#[test]
fn groups_of_a_replay_advance_alike_though_reads_were_told_late() {
    let mut workload = builtin::make("hackbench:groups=2,loops=40").expect("known").expect("can be made");
    for channel in &mut workload.channels {
        channel.room_to_resume = channel.capacity * 3 / 4;
    }
    // As in the replay: what a wait takes by itself would otherwise be part of bursts here, and hackbench go another way.
    workload.calls_in_runs = true;
    let mut recording = record(workload, 2);
    assert!(tell_late(&mut recording) > 20, "the recording must have such reads");
    advance_alike(&recording);
    tell_writes_as_runs(&mut recording);
    advance_alike(&recording);
}

fn advance_alike(recording: &Recording) {
    let mut replay = workload_from(recording, &ReplayOptions::default()).expect("replays");
    // The recording itself is of a kernel just booted, not of one that has searched for long.
    replay.workload.newidle_ratio = None;
    assert!(replay.waits.get(&WaitKind::Task).is_none_or(|tasks| *tasks < 10), "{:?}", replay.waits);
    let again = record(replay.workload, 2);
    let (recorded, replayed) = (ends(recording), ends(&again));
    for (recorded, replayed) in recorded.iter().zip(&replayed) {
        let ratio = replayed.0 as f64 / recorded.0 as f64;
        assert!((0.85..1.15).contains(&ratio), "a group ends at {ratio} of its recorded time");
    }
    let ratio = switches(&again) as f64 / switches(recording) as f64;
    assert!(ratio < 2.0, "{ratio} times the recorded switches: queues became shallow");
}

/// The parent of hackbench reads that its workers are ready only when it has forked all: those for whom the socket has no
/// room sleep once more than the others, whom it wakes but once, to go.
/// Forks take as long as workers need to come so far.
#[test]
fn workers_of_hackbench_wait_for_room_to_say_that_they_are_ready() {
    let wakes = |ready: u32| {
        let text = format!("hackbench:groups=1,loops=1,fork=60us,ready={ready}");
        let recording = record(builtin::make(&text).expect("known").expect("can be made"), 1);
        let parent = recording.tasks.iter().position(|task| task.name == "hackbench").expect("a parent");
        let by_parent = recording.events.iter().filter(|event| match event.kind {
            EventKind::Waking { waker, context, .. } => waker.index() == parent && context == Context::Task,
            _ => false,
        });
        by_parent.count()
    };
    assert_eq!(wakes(278), 40, "all have room");
    assert_eq!(wakes(30), 50, "ten have none until three quarters are free");
}

/// The workers of hackbench poll for a byte that nobody reads, the real ones and the model's.
#[test]
fn replays_of_hackbench_know_what_lets_its_workers_go() {
    let real = include_bytes!("../../../recordings/hackbench-g1-l50.slrec");
    let real = codec::decode(real).expect("decodes");
    let model = builtin::make("hackbench:groups=1,loops=5,fork=60us").expect("known").expect("can be made");
    for recording in [real, record(model, 2)] {
        let waits = workload_from(&recording, &ReplayOptions::default()).expect("replays").waits;
        assert_eq!(waits.get(&WaitKind::Poll), Some(&40), "{waits:?}");
        assert_eq!(waits.get(&WaitKind::Task), None, "{waits:?}");
        assert!(waits.get(&WaitKind::Child).is_some_and(|children| *children > 1), "{waits:?}");
    }
}

/// A workload of timers alone has no channel that its sleeps could name.
#[test]
fn a_recording_of_timers_alone_can_be_read_again() {
    let mut b = Builder::new("timers", "");
    let sleep = Op::Sleep(Amount::Fixed(Nanos::from_millis(1)));
    b.task(
        "sleeper",
        "sleeper",
        TaskAttributes::default(),
        vec![sleep, Op::Run(Amount::Fixed(Nanos::from_micros(10)))],
    );
    let recording = record(b.finish(None).expect("a workload"), 1);
    let bytes = codec::encode(&recording).expect("encodes");
    assert_eq!(codec::decode(&bytes).expect("decodes").events, recording.events);
}

/// A child's last step tells its parent, which has slept for long and would preempt it: only where the kernel can be
/// preempted does it run before the child is dead.
#[test]
fn who_tells_others_with_its_last_step_dies_first() {
    let dies_first = |preemption| {
        let mut b = Builder::new("end", "");
        let ended = b.channel("ended", ChannelType::Tokens, 0, 0);
        let take = Op::Take { channel: ended, timeout: None };
        let run = |ms| Op::Run(Amount::Fixed(Nanos::from_millis(ms)));
        b.task("parent", "parent", TaskAttributes::default(), vec![take, run(1)]);
        b.task(
            "child",
            "child",
            TaskAttributes::default(),
            vec![run(30), Op::Post { channel: ended, tokens: 1 }],
        );
        let machine = MachineDescription {
            preemption,
            ..MachineDescription::generic("one", Topology::flat(1).expect("one CPU"))
        };
        let workload = Arc::new(b.finish(None).expect("a workload"));
        let mut events: Vec<Event> = Vec::new();
        let config = SimulationConfig { seed: 1, ..SimulationConfig::new(machine, workload) };
        Simulation::new(config).expect("valid").run(&mut events).expect("runs");
        let after = events.iter().skip_while(|event| {
            !matches!(event.kind, EventKind::Waking { wakee: TaskId(1), waker: TaskId(2), .. })
        });
        let first = after.filter_map(|event| match event.kind {
            EventKind::Exit { task: TaskId(2) } => Some(true),
            EventKind::Switch { next: TaskId(1), .. } => Some(false),
            _ => None,
        });
        first.into_iter().next()
    };
    assert_eq!([Preemption::None, Preemption::Full].map(dies_first), [Some(true), Some(false)]);
}

/// A writer first sends one message in a millisecond, then all others at once; its reader waits for the former only.
/// Going to sleep takes so many ns before the switch.
fn reader_that_waits_at_first(sleep: u64) -> Workload {
    let mut b = Builder::new("two ways to read", "");
    let channel = b.channel("pipe", ChannelType::Bytes, 65_536, 0);
    let run = |us| Op::Run(Amount::Fixed(Nanos::from_micros(us)));
    let send = Op::Send { channel, bytes: 100 };
    let slowly = (0..50).flat_map(|_| [Op::Sleep(Amount::Fixed(Nanos::from_millis(1))), send.clone()]);
    let at_once = (0..50).map(|_| send.clone());
    b.task("writer", "writer", TaskAttributes::default(), slowly.chain(at_once).collect());
    let reads = (0..100).flat_map(|_| [run(20), Op::ReceiveAll { channel, bytes: 100 }, run(5)]);
    b.task("reader", "reader", TaskAttributes::default(), reads.collect());
    let mut workload = b.finish(None).expect("a workload");
    (workload.calls_in_runs, workload.sleep_cost) = (true, Nanos(sleep));
    workload
}

/// Which of the reads wait is the scheduler's doing: what only those cost must not be part of the reader's work.
#[test]
fn a_replay_takes_out_of_bursts_what_only_going_to_sleep_costs() {
    let work = |workload: &Workload| {
        let runs = workload.programs[1].ops.iter().filter_map(|op| match op {
            Op::Run(Amount::Fixed(time)) => Some(time.0),
            _ => None,
        });
        runs.sum::<u64>() as f64
    };
    let total = |recording: &Recording| {
        let stretches = &Timelines::of(recording).tasks[2];
        let runs = stretches.iter().filter(|stretch| matches!(stretch.kind, StretchKind::Running { .. }));
        runs.map(Stretch::length).sum::<Nanos>().0 as f64
    };
    for sleep in [0, 1_500] {
        let original = reader_that_waits_at_first(sleep);
        let recording = record(original.clone(), 2);
        let replay = workload_from(&recording, &ReplayOptions::default()).expect("replays").workload;
        let found = replay.sleep_cost.0;
        assert!(found.abs_diff(sleep) < 100, "{found} ns found of {sleep}");
        let ratio = work(&replay) / work(&original);
        assert!((0.99..1.01).contains(&ratio), "{ratio} of the reader's work, a sleep at {sleep} ns");
        let ratio = total(&record(replay, 2)) / total(&recording);
        assert!((0.99..1.01).contains(&ratio), "{ratio} of the reader's CPU time, a sleep at {sleep} ns");
    }
    let kept = ReplayOptions { subtract_costs: false, ..ReplayOptions::default() };
    let recording = record(reader_that_waits_at_first(1_500), 2);
    assert_eq!(workload_from(&recording, &kept).expect("replays").workload.sleep_cost, Nanos::ZERO);
}
