//! What becomes of each recorded sleep in the replay.
//!
//! The order of the questions matters: bytes first, then timers, then who made the wake-up. A sleep that
//! nothing explains is never dropped while it ended in the recording: it ends at its recorded time.

use super::WaitKind;
use super::channels::Bytes;
use super::observe::{Observed, Step, Wait, is_by_send};
use schedlab_model::event::{Context, Operation, PrevState};
use schedlab_model::recording::{ChannelKind, Recording};
use schedlab_model::workload::{Arrival, ChannelSpec, ChannelType};
use schedlab_model::{ChannelId, CpuId, Nanos, TaskId};
use std::collections::BTreeMap;

/// A time-out that ended a wait is told from a late other wake-up by this: timers fire at most so late.
const TIMER_LATE_MAX: Nanos = Nanos::from_millis(5);

/// How a sleep is replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Handling {
    /// Nothing: the transfer it belongs to waits by itself, or a later sleep stands for it.
    Absorbed,
    /// For so long from now.
    Sleep(Nanos),
    /// For an interrupt so long from now, on that CPU.
    Device(Nanos, CpuId),
    /// Until then.
    Until(Nanos),
    /// Until bytes are there.
    Bytes(ChannelId),
    /// For a token from the task that woke it (a channel of the replay).
    Token(ChannelId),
    /// For a token from outside.
    Arrival(ChannelId),
    /// It never ended: so does the program.
    Never,
}

/// What a token channel stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Token {
    /// A futex as far as this task waits on it.
    Futex(ChannelId, TaskId),
    /// What is given to a channel as far as this task polls it.
    Polled(ChannelId, TaskId),
    /// Wake-ups of the second by the first.
    Pair(TaskId, TaskId),
    /// The end of a task.
    Ended(TaskId),
    /// Wake-ups from outside.
    Outside(TaskId),
}

/// Decisions for all waits.
#[derive(Clone, Debug, Default)]
pub(super) struct Handled {
    /// By wait.
    pub(super) waits: Vec<(WaitKind, Handling)>,
    /// Token channels; their ids follow those of the byte channels.
    pub(super) channels: Vec<ChannelSpec>,
    /// Tokens from outside, with the CPU that took the interrupt.
    pub(super) arrivals: Vec<(CpuId, Arrival)>,
    /// Tasks whose end somebody waits for: where it is told, and how often.
    pub(super) ended: BTreeMap<TaskId, (ChannelId, u32)>,
}

/// Decides for every sleep.
pub(super) fn classify(
    recording: &Recording,
    observed: &Observed,
    bytes: &Bytes,
    included: &[bool],
    strict: bool,
) -> Handled {
    let mut classifier = Classifier {
        strict,
        recording,
        observed,
        bytes,
        included,
        following: following_reads(observed),
        tokens: BTreeMap::new(),
        out: Handled::default(),
    };
    for (id, wait) in observed.waits.iter().enumerate() {
        let decided = classifier.decide(id as u32, wait);
        classifier.out.waits.push(decided);
    }
    classifier.told_ends();
    classifier.out
}

/// For each wait, the channel of the first read between it and the task's next wait.
fn following_reads(observed: &Observed) -> BTreeMap<u32, ChannelId> {
    let mut found = BTreeMap::new();
    for trace in &observed.tasks {
        let mut open = None;
        for step in &trace.steps {
            match step {
                Step::Wait(wait) => open = Some(*wait),
                Step::Transfer(id) => {
                    let transfer = &observed.transfers[*id as usize];
                    if !transfer.give
                        && transfer.bytes > 0
                        && let Some(wait) = open.take()
                    {
                        found.insert(wait, transfer.channel);
                    }
                }
                _ => {}
            }
        }
    }
    found
}

struct Classifier<'a> {
    /// In doubt as in the recorded order.
    strict: bool,
    recording: &'a Recording,
    observed: &'a Observed,
    bytes: &'a Bytes,
    included: &'a [bool],
    following: BTreeMap<u32, ChannelId>,
    tokens: BTreeMap<Token, ChannelId>,
    out: Handled,
}

impl Classifier<'_> {
    fn decide(&mut self, id: u32, wait: &Wait) -> (WaitKind, Handling) {
        let operation = wait.operation.map(|open| open.operation);
        if let Some(transfer) = wait.transfer {
            let transfer = &self.observed.transfers[transfer as usize];
            if transfer.bytes > 0 && !self.bytes.parts[wait.transfer.unwrap_or(0) as usize].is_empty() {
                let pipe = self.recording.channels[transfer.channel.index()].kind == ChannelKind::Pipe;
                return (if pipe { WaitKind::Pipe } else { WaitKind::Socket }, Handling::Absorbed);
            }
        }
        if wait.superseded {
            return (WaitKind::Child, Handling::Absorbed);
        }
        if let Some(child) = wait.child
            && self.included[child.index()]
        {
            return (WaitKind::Child, Handling::Token(self.end_of(child)));
        }
        let Some(wake) = wait.wake else {
            let ended = wait.end < self.recording.duration;
            return (WaitKind::Unknown, if ended { Handling::Until(wait.end) } else { Handling::Never });
        };
        let by_send = wake.operation.is_some_and(|(operation, _)| is_by_send(wake.context, operation));
        let caused = wake.context == Context::Task || by_send;
        let known = !wake.waker.is_idle() && self.included[wake.waker.index()];
        if caused && known && !self.is_for_kernel(wait, wake.waker) {
            return self.woken_by_task(id, wait, operation);
        }
        self.woken_from_outside(wait, operation)
    }

    /// Whether the target waited for a grace period, a flush or the like, which one of the kernel's threads ended. Those
    /// replay at recorded times: bound to them, no scheduler could end the work earlier.
    fn is_for_kernel(&self, wait: &Wait, waker: TaskId) -> bool {
        let target = |task: TaskId| self.recording.task(task).target;
        wait.state == PrevState::Uninterruptible && target(wait.task) && !target(waker)
    }

    fn woken_by_task(&mut self, id: u32, wait: &Wait, operation: Option<Operation>) -> (WaitKind, Handling) {
        let wake = wait.wake.expect("a wait woken by a task has its wake-up");
        if matches!(operation, Some(Operation::Poll | Operation::EpollWait))
            && let Some(handling) = self.polled(id, wait, wake.waker)
        {
            return (WaitKind::Poll, handling);
        }
        if let Some(channel) = self.read_without_bytes(wait).filter(|_| !self.strict) {
            let socket = operation == Some(Operation::SocketReceive);
            return (if socket { WaitKind::Socket } else { WaitKind::Pipe }, Handling::Bytes(channel));
        }
        if let (Some(Operation::FutexWait), Some(open)) = (operation, wait.operation) {
            let token = self.token(Token::Futex(open.channel, wait.task));
            return (WaitKind::Futex, Handling::Token(token));
        }
        (WaitKind::Task, Handling::Token(self.token(Token::Pair(wake.waker, wait.task))))
    }

    /// A poll that a task ended: it waits for bytes where it reads them next or where nobody does, else for a token from
    /// whoever gives to the channel. `None` if which channel ended it is not known.
    fn polled(&mut self, id: u32, wait: &Wait, waker: TaskId) -> Option<Handling> {
        let told = wait.polled();
        let read = self.following.get(&id).copied();
        let gave = |channel: &ChannelId| self.gives(waker, *channel);
        let channel = told.filter(|told| read == Some(*told)).or(read.filter(gave));
        if let Some((reader, channel)) = channel.and_then(|c| self.bytes.sole_reader.get(&c))
            && *reader == wait.task
        {
            return Some(Handling::Bytes(*channel));
        }
        let told = told?;
        if let Some(channel) = self.bytes.unread.get(&told) {
            return Some(Handling::Bytes(*channel));
        }
        Some(Handling::Token(self.token(Token::Polled(told, wait.task))))
    }

    /// A read that a write to its channel ended, but whose bytes are told with the next: where it waits for them. Of writes
    /// told as runs the one that woke it may not be told yet: it is enough that its waker gives to the channel. One after
    /// which nothing is read from it waited for the end of what is written: no bytes will come.
    fn read_without_bytes(&self, wait: &Wait) -> Option<ChannelId> {
        let open = wait.operation?;
        let reads = matches!(open.operation, Operation::PipeRead | Operation::SocketReceive);
        let waker = wait.wake?.waker;
        let (reader, channel) = self.bytes.sole_reader.get(&open.channel)?;
        let ended = self.bytes.read_until.get(&open.channel).is_none_or(|last| wait.end > *last);
        (reads && !ended && self.gives(waker, open.channel) && *reader == wait.task).then_some(*channel)
    }

    fn gives(&self, task: TaskId, channel: ChannelId) -> bool {
        self.bytes.givers.get(&channel).is_some_and(|givers| givers.contains(&task))
    }

    /// By an interrupt, the kernel itself, or a task that is not replayed.
    fn woken_from_outside(&mut self, wait: &Wait, operation: Option<Operation>) -> (WaitKind, Handling) {
        let wake = wait.wake.expect("a wait woken from outside has its wake-up");
        let slept = wait.end.saturating_sub(wait.start);
        let amount = wait.operation.map_or(Nanos::MAX, |open| Nanos(open.amount));
        let timer = wake.context != Context::Task && wake.timer_due.is_some();
        match operation {
            Some(Operation::SleepAbsolute) => {
                let due =
                    if amount <= wait.end && wait.end - amount < TIMER_LATE_MAX { amount } else { wait.end };
                return (WaitKind::Timer, Handling::Until(due));
            }
            Some(Operation::SleepRelative) => {
                return (WaitKind::Timer, Handling::Sleep(asked(amount, slept)));
            }
            Some(Operation::Poll | Operation::EpollWait) if wait.result == Some(0) => {
                return (WaitKind::Timer, Handling::Sleep(asked(amount, slept)));
            }
            Some(Operation::FutexWait) if timer || wait.result == Some(-ETIMEDOUT) => {
                return (WaitKind::Timer, Handling::Sleep(self.without_latency(slept)));
            }
            _ => {}
        }
        let background = !self.recording.task(wait.task).target;
        if background {
            let kind = if timer { WaitKind::Timer } else { WaitKind::Device };
            return (kind, Handling::Until(Nanos(wait.end.0.saturating_sub(self.latency()))));
        }
        if timer {
            return (WaitKind::Timer, Handling::Sleep(self.without_latency(slept)));
        }
        if wait.state == PrevState::Uninterruptible {
            return (WaitKind::Io, Handling::Device(slept, wake.cpu));
        }
        let channel = self.token(Token::Outside(wait.task));
        self.out.arrivals.push((wake.cpu, Arrival { time: wait.end, channel, amount: 1 }));
        (WaitKind::Device, Handling::Arrival(channel))
    }

    /// What the simulator adds to a sleep: the timer's own lateness.
    fn latency(&self) -> u64 {
        self.recording.machine.costs.timer_latency.value.0
    }

    fn without_latency(&self, slept: Nanos) -> Nanos {
        Nanos(slept.0.saturating_sub(self.latency()))
    }

    fn token(&mut self, token: Token) -> ChannelId {
        let next = ChannelId((self.bytes.channels.len() + self.out.channels.len()) as u32);
        let recording = self.recording;
        let channels = &mut self.out.channels;
        *self.tokens.entry(token).or_insert_with(|| {
            let task = |task: TaskId| format!("{} ({})", recording.task(task).name, recording.task(task).pid);
            let name = match token {
                Token::Futex(channel, of) => {
                    format!("futex {:#x} of {}", recording.channels[channel.index()].identity, task(of))
                }
                Token::Polled(channel, of) => {
                    format!("poll of {:#x} by {}", recording.channels[channel.index()].identity, task(of))
                }
                Token::Pair(waker, of) => format!("wake-up of {} by {}", task(of), task(waker)),
                Token::Ended(of) => format!("end of {}", task(of)),
                Token::Outside(of) => format!("wake-up of {} from outside", task(of)),
            };
            let kind = ChannelType::Tokens;
            channels.push(ChannelSpec {
                name,
                kind,
                capacity: u64::MAX,
                initial: 0,
                room_to_resume: 0,
                is_socket: false,
            });
            next
        })
    }

    /// Where the end of a task is told, once more.
    fn end_of(&mut self, child: TaskId) -> ChannelId {
        let channel = self.token(Token::Ended(child));
        self.out.ended.entry(child).or_insert((channel, 0)).1 += 1;
        channel
    }

    /// Children whose end was taken without waiting tell it, too.
    fn told_ends(&mut self) {
        let steps = self.observed.tasks.iter().flat_map(|trace| &trace.steps);
        let taken = steps.filter_map(|step| if let Step::Child(child) = step { Some(*child) } else { None });
        for child in taken.collect::<Vec<TaskId>>() {
            if self.included[child.index()] {
                self.end_of(child);
            }
        }
    }
}

const ETIMEDOUT: i64 = 110;

/// The time that was asked for, if the sleep ended soon after it; else as long as it was.
fn asked(amount: Nanos, slept: Nanos) -> Nanos {
    if amount <= slept.saturating_add(Nanos::from_micros(1)) && slept.saturating_sub(amount) < TIMER_LATE_MAX
    {
        amount
    } else {
        slept
    }
}
