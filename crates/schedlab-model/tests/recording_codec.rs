//! The recording file: round trips of arbitrary recordings, and what happens to cut and changed files.

use proptest::prelude::*;
use schedlab_model::event::{Context, IrqSource, Operation, PrevState, VruntimeClock};
use schedlab_model::machine::MachineDescription;
use schedlab_model::recording::codec::{CodecError, RecordingWriter, VERSION, decode, decode_prefix, encode};
use schedlab_model::recording::{
    ChannelInfo, ChannelKind, PatternEntry, Provenance, Recording, Run, TaskInfo,
};
use schedlab_model::topology::Topology;
use schedlab_model::workload::change::{CgroupSettings, CgroupSpec};
use schedlab_model::{
    ChannelId, CpuId, CpuSet, Event, EventKind, Nanos, Nice, Policy, TaskAttributes, TaskId,
};

const TASKS: u32 = 300;
const CHANNELS: u32 = 200;

fn task() -> impl Strategy<Value = TaskId> {
    (0..TASKS).prop_map(TaskId)
}

fn cpu() -> impl Strategy<Value = CpuId> {
    (0..1024_u32).prop_map(CpuId)
}

fn operation() -> impl Strategy<Value = (TaskId, Operation, ChannelId)> {
    let operations = prop::sample::select(vec![
        Operation::PipeRead,
        Operation::SocketSend,
        Operation::FutexWait,
        Operation::Poll,
        Operation::SleepAbsolute,
        Operation::OtherIo,
    ]);
    (task(), operations, (0..CHANNELS).prop_map(ChannelId))
}

fn source() -> impl Strategy<Value = IrqSource> {
    prop_oneof![Just(IrqSource::Timer), Just(IrqSource::Ipi), any::<u32>().prop_map(IrqSource::Device)]
}

fn nice() -> impl Strategy<Value = Nice> {
    (-20..20_i64).prop_map(|nice| Nice::new(nice).expect("in range"))
}

fn scheduling() -> impl Strategy<Value = EventKind> {
    let states = prop::sample::select(vec![PrevState::Runnable, PrevState::Interruptible, PrevState::Dead]);
    let contexts = prop::sample::select(vec![Context::Task, Context::HardIrq, Context::SoftIrq]);
    let policies = prop::sample::select(vec![Policy::Normal, Policy::Idle, Policy::Rr, Policy::Deadline]);
    prop_oneof![
        (task(), states, task()).prop_map(|(prev, prev_state, next)| EventKind::Switch {
            prev,
            prev_state,
            next
        }),
        (task(), contexts, task(), cpu()).prop_map(|(waker, context, wakee, wakee_cpu)| EventKind::Waking {
            waker,
            context,
            wakee,
            wakee_cpu
        }),
        (task(), cpu()).prop_map(|(task, target_cpu)| EventKind::WakeupNew { task, target_cpu }),
        (task(), cpu(), cpu()).prop_map(|(task, from, to)| EventKind::Migrate { task, from, to }),
        (task(), task()).prop_map(|(parent, child)| EventKind::Fork { parent, child }),
        task().prop_map(|task| EventKind::Exec { task }),
        task().prop_map(|task| EventKind::Exit { task }),
        (task(), policies, nice(), any::<u8>()).prop_map(|(task, policy, nice, rt_priority)| {
            EventKind::AttributesChanged { task, policy, nice, rt_priority }
        }),
    ]
}

fn kind() -> impl Strategy<Value = EventKind> {
    let nanos = || any::<u64>().prop_map(Nanos);
    prop_oneof![
        4 => scheduling(),
        1 => source().prop_map(|source| EventKind::IrqEnter { source }),
        1 => source().prop_map(|source| EventKind::IrqExit { source }),
        1 => any::<u8>().prop_map(|vector| EventKind::SoftirqEnter { vector }),
        1 => any::<u8>().prop_map(|vector| EventKind::SoftirqExit { vector }),
        1 => (task(), nanos()).prop_map(|(task, due)| EventKind::TimerExpire { task, due }),
        1 => (task(), nanos(), nanos())
            .prop_map(|(task, released, deadline)| EventKind::Job { task, released, deadline }),
        1 => (task(), any::<i64>()).prop_map(|(task, key)| EventKind::Rank { task, key }),
        1 => (task(), any::<bool>(), any::<i64>()).prop_map(|(task, ext, vruntime)| {
            let clock = if ext { VruntimeClock::Ext } else { VruntimeClock::Fair };
            EventKind::Vruntime { task, clock, vruntime }
        }),
        1 => (task(), any::<u64>(), any::<u64>())
            .prop_map(|(task, references, misses)| EventKind::CacheUse { task, references, misses }),
        2 => (operation(), any::<u64>()).prop_map(|((task, operation, channel), amount)| {
            EventKind::OperationEnter { task, operation, channel, amount }
        }),
        2 => (operation(), any::<i64>()).prop_map(|((task, operation, channel), result)| {
            EventKind::OperationExit { task, operation, channel, result }
        }),
        1 => (task(), 0..2_u32).prop_map(|(task, set)| EventKind::AffinityChanged { task, set }),
        1 => (task(), nanos()).prop_map(|(task, slice)| EventKind::SliceChanged { task, slice }),
    ]
}

fn task_info() -> impl Strategy<Value = TaskInfo> {
    let affinity =
        prop_oneof![Just(CpuSet::ALL), prop::collection::vec(cpu(), 1..4).prop_map(CpuSet::from_iter)];
    let attributes = (nice(), any::<u8>(), prop::option::of(1..u64::MAX), affinity, ".{0,8}", any::<bool>());
    let flags = any::<[bool; 3]>();
    (any::<i32>(), any::<i32>(), ".{0,15}", task(), attributes, flags, cpu()).prop_map(
        |(
            pid,
            tgid,
            name,
            parent,
            (nice, rt_priority, slice, affinity, cgroup, kernel_thread),
            flags,
            start_cpu,
        )| {
            let [target, existed, start_runnable] = flags;
            let (policy, slice) = (Policy::Batch, slice.map(Nanos));
            let attributes =
                TaskAttributes { policy, nice, rt_priority, slice, affinity, cgroup, kernel_thread };
            TaskInfo { pid, tgid, name, parent, attributes, target, existed, start_cpu, start_runnable }
        },
    )
}

fn channel_info() -> impl Strategy<Value = ChannelInfo> {
    let kinds = prop::sample::select(vec![ChannelKind::Pipe, ChannelKind::Socket, ChannelKind::Other]);
    let peer = prop::option::of((0..CHANNELS).prop_map(ChannelId));
    (kinds, any::<u64>(), peer, any::<u64>()).prop_map(|(kind, identity, peer, capacity)| ChannelInfo {
        kind,
        identity,
        peer,
        capacity,
    })
}

fn recording() -> impl Strategy<Value = Recording> {
    let tasks = prop::collection::vec(task_info(), TASKS as usize);
    let channels = prop::collection::vec(channel_info(), CHANNELS as usize);
    let events = prop::collection::vec((0..100_000_u64, cpu(), kind()), 0..2_000);
    (tasks, channels, events, any::<bool>()).prop_map(|(tasks, channels, steps, live)| {
        let mut time = Nanos::ZERO;
        let mut events = Vec::new();
        for (step, cpu, kind) in steps {
            time += Nanos(step);
            events.push(Event { time, cpu, kind });
        }
        let provenance = Provenance {
            origin: if live { "live" } else { "simulated" }.to_owned(),
            command: vec!["sleep".to_owned(), "1".to_owned()],
            target: "unit work.service".to_owned(),
            dropped_per_cpu: vec![0, 3],
            groups: live
                .then(|| vec![CgroupSpec { path: "/a".to_owned(), settings: CgroupSettings::default() }]),
            ..Provenance::default()
        };
        let machine = MachineDescription::generic("test", Topology::flat(2).expect("two CPUs"));
        let cpu_sets = vec![CpuSet::first(2), CpuSet::ALL];
        Recording { provenance, machine, tasks, channels, cpu_sets, events, duration: time }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_recording_survives_its_file(recording in recording()) {
        let bytes = encode(&recording).expect("vectors take everything");
        prop_assert_eq!(decode(&bytes).expect("just written"), recording);
    }

    #[test]
    fn a_cut_file_is_a_whole_prefix(recording in recording(), cut in 0.0..1.0_f64) {
        let bytes = encode(&recording).expect("vectors take everything");
        let cut = (bytes.len() as f64 * cut) as usize;
        match decode(&bytes[..cut]) {
            Ok(part) => {
                prop_assert!(part.provenance.partial);
                prop_assert_eq!(&part.events[..], &recording.events[..part.events.len()]);
            }
            Err(error) => {
                let empty = matches!(error, CodecError::Empty | CodecError::NotARecording);
                prop_assert!(empty, "{}", error);
            }
        }
    }

    #[test]
    fn a_changed_byte_is_found(recording in recording(), at in 0.0..1.0_f64, bit in 0..8_u32) {
        let mut bytes = encode(&recording).expect("vectors take everything");
        let at = (bytes.len() as f64 * at) as usize;
        bytes[at] ^= 1 << bit;
        prop_assert!(decode(&bytes).is_err());
        if let Ok((part, damage)) = decode_prefix(&bytes) {
            prop_assert!(damage.is_some() && part.provenance.partial);
            prop_assert_eq!(&part.events[..], &recording.events[..part.events.len()]);
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(decode(&bytes).is_err());
        let mut file = b"\x89SLREC\r\n\x01\0\0\0".to_vec();
        file.append(&mut bytes);
        prop_assert!(decode_prefix(&file).is_err());
    }
}

#[test]
fn another_version_is_refused_with_the_remedy() {
    let mut bytes = b"\x89SLREC\r\n".to_vec();
    bytes.extend_from_slice(&(VERSION + 1).to_le_bytes());
    let error = decode(&bytes).expect_err("a later version");
    assert_eq!(error, CodecError::Version { found: VERSION + 1 });
    assert!(error.to_string().contains("record it again"), "{error}");
}

#[test]
fn other_files_are_named_as_such() {
    assert_eq!(decode(b"\x7fELF\x02\x01\x01\0"), Err(CodecError::NotARecording));
    assert_eq!(decode(b""), Err(CodecError::NotARecording));
    assert_eq!(decode(b"\x89SLREC\r\n\x01\0\0\0"), Err(CodecError::Empty));
}

fn row(pid: i32) -> TaskInfo {
    TaskInfo {
        pid,
        tgid: pid,
        name: "sender".to_owned(),
        parent: TaskId::IDLE,
        attributes: TaskAttributes::default(),
        target: true,
        existed: true,
        start_cpu: CpuId(0),
        start_runnable: true,
    }
}

/// Two sends of 100 bytes to one channel, then 40 to another, over and over: a run tells them as one.
#[test]
fn a_run_comes_back_as_its_sends_among_the_other_events() {
    let provenance = Provenance { counted_from: Some(Nanos::ZERO), ..Provenance::default() };
    let machine = MachineDescription::generic("test", Topology::flat(2).expect("two CPUs"));
    let mut writer = RecordingWriter::new(Vec::new(), &provenance, &machine).expect("memory");
    (0..3_u32).for_each(|id| writer.task(TaskId(id), &row(id as i32)));
    let socket = ChannelInfo { kind: ChannelKind::Socket, identity: 7, peer: None, capacity: 0 };
    (0..2).for_each(|id| writer.channel(ChannelId(id), &socket));
    let (task, reader) = (TaskId(1), TaskId(2));
    for (index, channel, bytes, next) in [(0, 0, 100, 1), (1, 0, 100, 2), (2, 1, 40, 0)] {
        writer.pattern(task, index, &PatternEntry { channel: ChannelId(channel), bytes, next });
    }
    let event = |time, kind| Event { time: Nanos(time), cpu: CpuId(1), kind };
    let read = |time, channel, result| {
        let (operation, channel) = (Operation::SocketReceive, ChannelId(channel));
        event(time, EventKind::OperationExit { task: reader, operation, channel, result })
    };
    // The reader's sum is told before the run in which its bytes were sent.
    [read(250, 0, 300), read(900, 0, 100), read(950, 1, 40)]
        .iter()
        .for_each(|e| writer.event(e).expect("memory"));
    let (since, until) = (Nanos(100), Nanos(600));
    writer.run(&Run { task, cpu: CpuId(0), since, until, first: 1, count: 5 }).expect("memory");
    assert_eq!(writer.event_count(), 8);
    let bytes = writer.finish(&provenance, Nanos(1_000)).expect("memory");
    let recording = decode(&bytes).expect("just written");
    let told: Vec<(u64, u32, i64)> = recording
        .events
        .iter()
        .map(|event| match event.kind {
            EventKind::OperationExit { channel, result, .. } => (event.time.0, channel.0, result),
            other => panic!("{other:?}"),
        })
        .collect();
    let sends = [(200, 0, 100), (300, 1, 40), (400, 0, 100), (500, 0, 100), (600, 1, 40)];
    let reads = [(250, 0, 100), (900, 0, 200), (950, 1, 40)];
    let mut expected = [&sends[..], &reads[..]].concat();
    expected.sort_unstable();
    assert_eq!(told, expected, "nobody takes what was not given; what is left over is taken later");
    let cut = decode(&bytes[..bytes.len() - 1]).expect("a whole prefix");
    assert!(cut.provenance.partial && cut.events == recording.events);
}
