//! Replays of polls that another task ended: two tasks poll a pipe on one CPU, a third writes to it on another.

use super::*;

const POLLERS: [TaskId; 2] = [TaskId(1), TaskId(2)];
const WRITER: TaskId = TaskId(3);
const PIPE: ChannelId = ChannelId(0);

/// A recording in the making; every event is 100 ns after the last.
struct Script {
    recording: Recording,
}

impl Script {
    fn push(&mut self, cpu: u32, kind: EventKind) {
        self.recording.duration += Nanos(100);
        self.recording.events.push(Event { time: self.recording.duration, cpu: CpuId(cpu), kind });
    }

    fn enter(&mut self, cpu: u32, task: TaskId, operation: Operation) {
        self.push(cpu, EventKind::OperationEnter { task, operation, channel: PIPE, amount: u64::MAX });
    }

    fn exit(&mut self, cpu: u32, task: TaskId, operation: Operation) {
        self.push(cpu, EventKind::OperationExit { task, operation, channel: PIPE, result: 1 });
    }

    fn runs(&mut self, cpu: u32, task: TaskId) {
        self.push(cpu, EventKind::Switch { prev: TaskId::IDLE, prev_state: PrevState::Runnable, next: task });
    }

    fn leaves(&mut self, cpu: u32, task: TaskId, prev_state: PrevState) {
        self.push(cpu, EventKind::Switch { prev: task, prev_state, next: TaskId::IDLE });
    }
}

/// The pollers wait in `operation`, a byte wakes both, the latest first, and that so many times; at the end the writer
/// itself takes a byte, if so.
fn replay_of(operation: Operation, writes: u32, reads: bool) -> Replay {
    let mut script = Script { recording: Reference::new(vec![vec![]; 3], 1).recording };
    script.runs(1, WRITER);
    for write in 0..writes {
        for poller in POLLERS {
            script.runs(0, poller);
            if write > 0 {
                script.exit(0, poller, operation);
            }
            script.enter(0, poller, operation);
            script.leaves(0, poller, PrevState::Interruptible);
        }
        script.enter(1, WRITER, Operation::PipeWrite);
        for wakee in POLLERS.into_iter().rev() {
            let (waker, context, wakee_cpu) = (WRITER, Context::Task, CpuId(0));
            script.push(1, EventKind::Waking { waker, context, wakee, wakee_cpu });
        }
        script.exit(1, WRITER, Operation::PipeWrite);
    }
    for poller in POLLERS {
        script.runs(0, poller);
        script.exit(0, poller, operation);
        script.leaves(0, poller, PrevState::Dead);
    }
    if reads {
        script.exit(1, WRITER, Operation::PipeRead);
    }
    script.leaves(1, WRITER, PrevState::Dead);
    let replay = workload_from(&script.recording, &raw()).expect("replays");
    for order in 0..100 {
        check::execute(&replay.workload, &mut check::Shuffled(order)).expect("ends");
    }
    replay
}

/// What a task does beside running.
fn ops(replay: &Replay, task: TaskId) -> Vec<Op> {
    let program = &replay.workload.programs[task.index() - 1];
    program.ops.iter().filter(|op| !matches!(op, Op::Run(_) | Op::Exit)).cloned().collect()
}

/// A byte that nobody reads lets everybody go who polls for it, as hackbench's workers do, and is still there for who
/// comes later.
#[test]
fn polls_wait_for_a_byte_that_nobody_reads() {
    for operation in [Operation::Poll, Operation::EpollWait] {
        let replay = replay_of(operation, 1, false);
        assert_eq!(replay.waits, BTreeMap::from([(WaitKind::Poll, 2)]));
        assert_eq!(replay.workload.unattributed_waits, (0, 2));
        let channel = ChannelId(0);
        for poller in POLLERS {
            assert_eq!(ops(&replay, poller), [Op::WaitAny { channels: Box::new([channel]), timeout: None }]);
        }
        assert_eq!(ops(&replay, WRITER), [Op::Send { channel, bytes: 1 }], "one byte, though it woke two");
        let [pipe] = &replay.workload.channels[..] else { panic!("{:?}", replay.workload.channels) };
        assert_eq!(pipe.capacity, u64::from(CAPACITY));
    }
}

/// Who is told of each write (`EPOLLET`) waits for the next though nobody has read the last.
#[test]
fn polls_that_wait_beside_an_unread_byte_wait_for_the_next_write() {
    let replay = replay_of(Operation::EpollWait, 3, false);
    assert_eq!(replay.waits, BTreeMap::from([(WaitKind::Poll, 6)]));
    let take = |channel| Op::Take { channel: ChannelId(channel), timeout: None };
    let post = |channel| Op::Post { channel: ChannelId(channel), tokens: 1 };
    assert_eq!(ops(&replay, POLLERS[0]), [take(0), take(0), take(0)]);
    assert_eq!(ops(&replay, POLLERS[1]), [take(1), take(1), take(1)]);
    assert_eq!(ops(&replay, WRITER), vec![[post(1), post(0)]; 3].concat());
}

/// What somebody else reads may be gone when a poller looks again: it waits for its writer all the same.
#[test]
fn a_poll_of_what_another_reads_waits_for_the_writer() {
    let replay = replay_of(Operation::Poll, 1, true);
    assert_eq!(replay.waits, BTreeMap::from([(WaitKind::Poll, 2)]));
    for poller in POLLERS {
        let [Op::Take { channel, timeout: None }] = ops(&replay, poller)[..] else {
            panic!("{:?}", ops(&replay, poller));
        };
        assert!(ops(&replay, WRITER).contains(&Op::Post { channel, tokens: 1 }));
    }
}
