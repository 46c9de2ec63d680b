//! Timelines of small hand-made recordings.

use super::*;
use crate::machine::MachineDescription;
use crate::recording::{Provenance, TaskInfo};
use crate::topology::Topology;

const IDLE: TaskId = TaskId::IDLE;
const A: TaskId = TaskId(1);
const B: TaskId = TaskId(2);
const CPU: CpuId = CpuId(0);

fn task(name: &str, existed: bool, start_runnable: bool) -> TaskInfo {
    TaskInfo {
        pid: 1,
        tgid: 1,
        name: name.to_owned(),
        parent: IDLE,
        attributes: Default::default(),
        target: true,
        existed,
        start_cpu: CPU,
        start_runnable,
    }
}

fn timelines(a: TaskInfo, b: TaskInfo, events: &[(u64, EventKind)]) -> Timelines {
    let recording = Recording {
        provenance: Provenance::default(),
        machine: MachineDescription::generic("one", Topology::flat(1).expect("one CPU")),
        tasks: vec![task("idle", true, true), a, b],
        channels: Vec::new(),
        cpu_sets: Vec::new(),
        events: events
            .iter()
            .map(|&(us, kind)| Event { time: Nanos::from_micros(us), cpu: CPU, kind })
            .collect(),
        duration: Nanos::from_micros(100),
    };
    Timelines::of(&recording)
}

fn shape(stretches: &[Stretch]) -> Vec<(u64, u64, &'static str)> {
    let name = |kind| match kind {
        StretchKind::Running { .. } => "run",
        StretchKind::Waiting { .. } => "wait",
        StretchKind::Asleep { .. } => "sleep",
    };
    stretches.iter().map(|s| (s.start.0 / 1000, s.end.0 / 1000, name(s.kind))).collect()
}

fn switch(prev: TaskId, prev_state: PrevState, next: TaskId) -> EventKind {
    EventKind::Switch { prev, prev_state, next }
}

fn waking(waker: TaskId, context: Context, wakee: TaskId) -> EventKind {
    EventKind::Waking { waker, context, wakee, wakee_cpu: CPU }
}

#[test]
fn a_life_has_no_gaps() {
    let operation = Operation::PipeRead;
    let read = EventKind::OperationEnter { task: B, operation, channel: ChannelId(0), amount: 8 };
    let t = timelines(
        task("a", true, true),
        task("b", true, false),
        &[
            (10, waking(A, Context::Task, B)),
            (12, switch(A, PrevState::Runnable, B)),
            (14, read),
            (15, switch(B, PrevState::Interruptible, A)),
            (30, waking(A, Context::Task, B)),
            (40, switch(A, PrevState::Dead, B)),
        ],
    );
    assert_eq!(shape(&t.tasks[1]), [(0, 12, "run"), (12, 15, "wait"), (15, 40, "run")]);
    let b = &t.tasks[2];
    assert_eq!(
        shape(b),
        [
            (0, 10, "sleep"),
            (10, 12, "wait"),
            (12, 15, "run"),
            (15, 30, "sleep"),
            (30, 40, "wait"),
            (40, 100, "run")
        ]
    );
    let StretchKind::Asleep { operation: Some(open), wake: Some(wake), .. } = b[3].kind else {
        panic!("{:?}", b[3])
    };
    assert_eq!((open.operation, open.amount, wake.waker), (operation, 8, A));
}

#[test]
fn interrupts_are_booked_on_the_stretch_they_hit() {
    let t = timelines(
        task("a", true, true),
        task("b", true, false),
        &[
            (1, EventKind::SoftirqEnter { vector: 1 }),
            (3, EventKind::SoftirqExit { vector: 1 }),
            (20, switch(A, PrevState::Runnable, B)),
            (21, EventKind::SoftirqEnter { vector: 1 }),
            (22, EventKind::SoftirqEnter { vector: 2 }),
            (23, EventKind::SoftirqExit { vector: 2 }),
            (25, EventKind::SoftirqExit { vector: 1 }),
            (30, switch(B, PrevState::Interruptible, IDLE)),
        ],
    );
    let interrupt = |stretch: &Stretch| match stretch.kind {
        StretchKind::Running { interrupt, .. } => interrupt.0 / 1000,
        _ => panic!("not running"),
    };
    assert_eq!(interrupt(&t.tasks[1][0]), 2);
    assert_eq!(interrupt(&t.tasks[2][1]), 4);
}

#[test]
fn a_wakeup_on_the_way_to_sleep_ends_that_sleep() {
    let t = timelines(
        task("a", true, true),
        task("b", true, true),
        &[
            (10, switch(IDLE, PrevState::Runnable, B)),
            (20, waking(A, Context::Task, B)),
            (21, switch(B, PrevState::Interruptible, IDLE)),
            (25, switch(IDLE, PrevState::Runnable, B)),
        ],
    );
    assert_eq!(
        shape(&t.tasks[2]),
        [(0, 10, "wait"), (10, 21, "run"), (21, 21, "sleep"), (21, 25, "wait"), (25, 100, "run")]
    );
    assert!(matches!(t.tasks[2][2].kind, StretchKind::Asleep { wake: Some(Wake { waker: A, .. }), .. }));
}

/// A recorder that tells reads together tells the end of the last one when the task goes to sleep in the next: after the
/// wake-up that met it on its way there.
#[test]
fn what_is_told_late_does_not_hide_a_wakeup_on_the_way_to_sleep() {
    let (operation, channel) = (Operation::SocketReceive, ChannelId(0));
    let t = timelines(
        task("a", true, true),
        task("b", true, true),
        &[
            (10, switch(IDLE, PrevState::Runnable, B)),
            (20, waking(A, Context::Task, B)),
            (21, EventKind::OperationExit { task: B, operation, channel, result: 300 }),
            (21, EventKind::OperationEnter { task: B, operation, channel, amount: 100 }),
            (21, switch(B, PrevState::Interruptible, IDLE)),
            (25, switch(IDLE, PrevState::Runnable, B)),
            // An earlier sleep's wake-up does not end this one.
            (40, switch(B, PrevState::Interruptible, IDLE)),
            (50, switch(IDLE, PrevState::Runnable, B)),
        ],
    );
    assert_eq!(
        shape(&t.tasks[2])[1..],
        [
            (10, 21, "run"),
            (21, 21, "sleep"),
            (21, 25, "wait"),
            (25, 40, "run"),
            (40, 50, "sleep"),
            (50, 100, "run")
        ]
    );
    assert!(matches!(t.tasks[2][2].kind, StretchKind::Asleep { wake: Some(Wake { waker: A, .. }), .. }));
}

#[test]
fn an_expired_timer_is_the_cause_of_its_wakeup() {
    let t = timelines(
        task("a", true, false),
        task("b", true, false),
        &[
            (9, EventKind::IrqEnter { source: crate::event::IrqSource::Timer }),
            (10, EventKind::TimerExpire { task: A, due: Nanos(9_500) }),
            (11, waking(IDLE, Context::HardIrq, A)),
            (11, waking(IDLE, Context::HardIrq, B)),
            (12, EventKind::IrqExit { source: crate::event::IrqSource::Timer }),
        ],
    );
    let due = |task: usize| match t.tasks[task][0].kind {
        StretchKind::Asleep { wake: Some(wake), .. } => wake.timer_due,
        _ => panic!("not asleep"),
    };
    assert_eq!((due(1), due(2)), (Some(Nanos(9_500)), None));
}
