//! Triage of small recordings whose answer is known.

use super::*;
use schedlab_model::event::{Event, EventKind};
use schedlab_model::machine::MachineDescription;
use schedlab_model::recording::{ChannelInfo, ChannelKind, Provenance, TaskInfo};
use schedlab_model::topology::Topology;
use schedlab_model::{ChannelId, CpuId};

const IDLE: TaskId = TaskId::IDLE;
const A: TaskId = TaskId(1);
const B: TaskId = TaskId(2);
const OTHER: TaskId = TaskId(3);

fn task(name: &str, target: bool, start_runnable: bool) -> TaskInfo {
    TaskInfo {
        pid: 1,
        tgid: 1,
        name: name.to_owned(),
        parent: IDLE,
        attributes: Default::default(),
        target,
        existed: true,
        start_cpu: CpuId(0),
        start_runnable,
    }
}

fn recording(duration_us: u64, events: &[(u64, u32, EventKind)]) -> Recording {
    let event = |&(us, cpu, kind): &(u64, u32, EventKind)| Event {
        time: Nanos::from_micros(us),
        cpu: CpuId(cpu),
        kind,
    };
    Recording {
        provenance: Provenance::default(),
        machine: MachineDescription::generic("two", Topology::flat(2).expect("two CPUs")),
        tasks: vec![
            task("idle", false, true),
            task("a", true, true),
            task("b", true, false),
            task("other", false, true),
        ],
        channels: vec![ChannelInfo { kind: ChannelKind::Pipe, identity: 1, peer: None, capacity: 65_536 }],
        cpu_sets: Vec::new(),
        events: events.iter().map(event).collect(),
        duration: Nanos::from_micros(duration_us),
    }
}

fn switch(prev: TaskId, prev_state: PrevState, next: TaskId) -> EventKind {
    EventKind::Switch { prev, prev_state, next }
}

fn waking(waker: TaskId, context: Context, wakee: TaskId) -> EventKind {
    EventKind::Waking { waker, context, wakee, wakee_cpu: CpuId(0) }
}

/// `a` runs 40 µs, wakes `b` which waits 15 µs behind `other`, runs 20 µs and ends last.
fn relay() -> Recording {
    let (operation, channel) = (Operation::PipeRead, ChannelId(0));
    recording(
        100,
        &[
            (0, 0, switch(IDLE, PrevState::Runnable, A)),
            (0, 1, switch(IDLE, PrevState::Runnable, B)),
            (1, 1, EventKind::OperationEnter { task: B, operation, channel, amount: 8 }),
            (2, 1, switch(B, PrevState::Interruptible, OTHER)),
            (40, 0, waking(A, Context::Task, B)),
            (45, 0, switch(A, PrevState::Dead, IDLE)),
            (55, 1, switch(OTHER, PrevState::Runnable, B)),
            (56, 1, EventKind::OperationExit { task: B, operation, channel, result: 8 }),
            (75, 1, switch(B, PrevState::Dead, OTHER)),
        ],
    )
}

#[test]
fn the_parts_of_every_life_add_up() {
    let mut recording = relay();
    recording.tasks[2].start_runnable = true;
    let triage = Triage::of(&recording);
    for task in &triage.tasks {
        assert_eq!(task.spent.total(), task.lifetime, "{}", task.name);
    }
    let lifetimes: Nanos = triage.tasks.iter().map(|task| task.lifetime).sum();
    assert_eq!(triage.target.total(), lifetimes);
    assert_eq!(triage.tasks[1].spent.asleep[&SleepCause::Pipe], Nanos::from_micros(38));
    assert_eq!(triage.tasks[1].spent.run_delay_wakeup, Nanos::from_micros(15));
}

#[test]
fn the_chain_goes_back_over_the_waker_and_adds_up_to_the_makespan() {
    let triage = Triage::of(&relay());
    assert!(triage.ended);
    assert_eq!(triage.makespan, Nanos::from_micros(75));
    assert_eq!(triage.chain.total(), triage.makespan);
    assert_eq!(triage.chain.running, Nanos::from_micros(60));
    assert_eq!(triage.chain.run_delay(), Nanos::from_micros(15));
    assert_eq!(triage.sentence(), "Run delay is 15.0 µs of your 75.0 µs: at most 20 % to gain.");
    let ideal = triage.clone().with_ideal(Nanos::from_micros(69), Nanos::from_micros(75));
    assert_eq!(ideal.sentence(), "Run delay is 15.0 µs of your 75.0 µs: at most 8 % to gain.");
    // A replay slower than its recording: what candidates may gain on it is more than the recording has to give.
    let slow = triage.with_ideal(Nanos::from_micros(75), Nanos::from_micros(100));
    assert_eq!(slow.sentence(), "Run delay is 15.0 µs of your 75.0 µs: at most 25 % to gain.");
}

#[test]
fn a_service_is_judged_by_its_requests() {
    let mut events = Vec::new();
    for request in 0..10 {
        let at = request * 100;
        events.push((at + 50, 0, waking(IDLE, Context::SoftIrq, B)));
        events.push((at + 60, 0, switch(OTHER, PrevState::Runnable, B)));
        events.push((at + 80, 0, switch(B, PrevState::Interruptible, OTHER)));
    }
    let mut recording = recording(1_000, &events);
    recording.tasks[1].target = false;
    let triage = Triage::of(&recording);
    assert!(!triage.ended);
    assert_eq!(triage.requests.length.count(), 10);
    assert_eq!(triage.requests.spent.run_delay(), Nanos::from_micros(100));
    assert_eq!(triage.sentence(), "Run delay is 10.0 µs of your 30.0 µs of a request: at most 33 % to gain.");
}

#[test]
fn a_target_that_was_never_seen_is_nothing() {
    let mut recording = recording(1_000, &[]);
    recording.tasks.truncate(1);
    let triage = Triage::of(&recording);
    assert_eq!((triage.makespan, triage.target.total()), (Nanos::ZERO, Nanos::ZERO));
    assert_eq!(triage.bound.gain_percent_max(), 0.0);
}
