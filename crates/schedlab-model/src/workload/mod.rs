//! What tasks do: behaviours as programs of operations over channels.
//!
//! The in-memory form that the simulator and the live player run. Workload files, rt-app files,
//! generators and recordings are all turned into it. A program is flat: loops are marked by their ends.

mod benchmarks;
pub mod builder;
pub mod builtin;
pub mod change;
pub mod draw;
pub mod file;
pub mod interbench;
mod limits;
mod programs;
pub mod rtapp;

use crate::cpu_set::CpuSet;
use crate::ids::{ChannelId, CpuId};
use crate::memory::MemoryNeeds;
use crate::policy::{Nice, TaskAttributes};
use crate::time::Nanos;
use serde::{Deserialize, Serialize};
use std::fmt;

/// An amount of time, fixed or drawn anew each time from the task's own seeded stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Amount {
    /// Always the same.
    Fixed(Nanos),
    /// Uniform between the two, both included.
    Uniform(Nanos, Nanos),
    /// Exponential with this mean, cut at 20 means.
    Exponential(Nanos),
    /// Drawn by quantile: equally spaced quantiles of the distribution (at least 2, from the smallest to the
    /// largest value), linear in between.
    Quantiles(Box<[Nanos]>),
}

impl From<Nanos> for Amount {
    fn from(time: Nanos) -> Amount {
        Amount::Fixed(time)
    }
}

/// A periodic timer: what it is counts when it expired last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TimerRef {
    /// One of the task's own, by number.
    Own(u32),
    /// One that several tasks share, by number: each call moves it on by a period.
    Shared(u32),
}

/// What a periodic timer does for a task that is late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Late {
    /// The task goes on at once, one period after the other, until it has caught up.
    #[default]
    CatchUp,
    /// It goes on at once, and the periods are counted anew from now (rt-app's relative mode).
    Resync,
    /// It waits for the next multiple of the period that is to come. Whoever is woken for one and runs after it is over
    /// waits for the next, too: frames that are dropped.
    Skip,
}

impl Late {
    /// When the task is to go on that asks at `now` for an expiry at `due`.
    #[must_use]
    pub fn release(self, due: u64, now: u64, period: u64) -> u64 {
        match self {
            Late::Resync => due.max(now),
            Late::Skip if now > due => due + ((now - due) / period + 1) * period,
            Late::CatchUp | Late::Skip => due,
        }
    }

    /// Whether who was released then and comes to run at `now` is to wait for another expiry.
    #[must_use]
    pub fn is_over(self, release: u64, now: u64, period: u64) -> bool {
        self == Late::Skip && now > release.saturating_add(period)
    }
}

/// Index of a program in [`Workload::programs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProgramId(pub u32);

/// Index of a row in [`Workload::tasks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TaskSpecId(pub u32);

/// One step of a behaviour. Steps without a time take none, besides the modelled costs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Op {
    /// Use the CPU for this long (at capacity 1024).
    Run(Amount),
    /// Use the CPU in pieces until this much time has passed, whoever had the CPU in it (rt-app's `runtime`).
    Spin {
        /// Time from the start of the step.
        time: Nanos,
        /// Length of a piece (at capacity 1024): the clock is looked at after each.
        piece: Nanos,
    },
    /// Sleep for this long from now.
    Sleep(Amount),
    /// Sleep until an instant of the run.
    SleepUntil(Nanos),
    /// Wait for a device, whose interrupt comes so long from now on that CPU (on the first where it is not online).
    WaitDevice {
        /// Time until the wake-up.
        time: Nanos,
        /// Which CPU takes the interrupt.
        cpu: CpuId,
    },
    /// Absolute periodic timer: sleep until `period` after its last expiry. A late task does not sleep. Ends the
    /// current job and releases the next.
    Timer {
        /// Which timer.
        timer: TimerRef,
        /// The first expiry is `period` after the task's start time ([`TaskSpec::start`]) instead of its first call.
        from_start: bool,
        /// The period.
        period: Nanos,
        /// Deadline of a job after its release; usually the period.
        deadline: Nanos,
        /// What a call does that comes after the expiry.
        late: Late,
    },
    /// Put bytes into a pipe or socket; waits while they do not fit.
    Send {
        /// Where to.
        channel: ChannelId,
        /// How many.
        bytes: u32,
    },
    /// Take up to this many bytes; waits while there are none.
    Receive {
        /// From where.
        channel: ChannelId,
        /// At most how many.
        bytes: u32,
    },
    /// Take exactly this many bytes, as they come: a reader that reads until it has its message. Takes what is
    /// there at each wake-up (so a full channel drains) and waits for the rest; goes on at a closed channel.
    ReceiveAll {
        /// From where.
        channel: ChannelId,
        /// How many in all.
        bytes: u32,
    },
    /// Use the CPU for `work` and take a message, `count` times over; waits while there is none. Goes on at a
    /// closed channel.
    ReceiveEach {
        /// From where.
        channel: ChannelId,
        /// Bytes of a message.
        message: u32,
        /// How many messages.
        count: u32,
        /// CPU time for each (at capacity 1024).
        work: Nanos,
    },
    /// Wait until one of the channels has something to receive, at most for `timeout`.
    WaitAny {
        /// Which.
        channels: Box<[ChannelId]>,
        /// At most this long; `None` is for ever.
        timeout: Option<Nanos>,
    },
    /// Close one's sending end: receivers of an empty channel without senders no longer wait.
    Close {
        /// Which.
        channel: ChannelId,
    },
    /// Put tokens into a counted channel (semaphore, futex wake, completion).
    Post {
        /// Where to.
        channel: ChannelId,
        /// How many.
        tokens: u32,
    },
    /// Take a token; waits while there is none, at most for `timeout`.
    Take {
        /// From where.
        channel: ChannelId,
        /// At most this long; `None` is for ever.
        timeout: Option<Nanos>,
    },
    /// Wake the waiters there are, at most this many; a wake-up without a waiter is lost (futex, condition).
    WakeWaiters {
        /// Where they wait.
        channel: ChannelId,
        /// At most how many.
        count: u32,
    },
    /// Lock a mutex.
    Lock {
        /// The mutex.
        channel: ChannelId,
    },
    /// Unlock a mutex one holds.
    Unlock {
        /// The mutex.
        channel: ChannelId,
    },
    /// Unlock `lock`, wait on the condition, lock again.
    ConditionWait {
        /// The condition.
        condition: ChannelId,
        /// The mutex that guards it.
        lock: ChannelId,
    },
    /// Wait until as many tasks as the barrier's capacity are here.
    Barrier {
        /// The barrier.
        channel: ChannelId,
    },
    /// Create a task from a template row ([`TaskSpec::template`]); attributes come from the row.
    Fork {
        /// The row.
        spec: TaskSpecId,
    },
    /// Wait until all children are gone. The end of each process wakes the task, as `wait()` returns for each.
    WaitChildren,
    /// Give up the CPU but stay runnable.
    Yield,
    /// Change one's own attributes.
    SetAttributes(Box<TaskAttributes>),
    /// Touch this many bytes of memory that others share: costs warmth after a migration.
    Touch {
        /// Bytes.
        bytes: u32,
    },
    /// A job begins (released now); `deadline` from now.
    JobStart {
        /// Deadline after the start; `None` if there is none.
        deadline: Option<Nanos>,
    },
    /// The job ends.
    JobEnd,
    /// Repeat what follows, up to the matching [`Op::LoopEnd`], this often; 0 is for ever.
    LoopStart {
        /// Number of rounds.
        count: u32,
    },
    /// End of the innermost open loop.
    LoopEnd,
    /// End of the task. Every program ends so, also without writing it.
    Exit,
}

/// A behaviour.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Program {
    /// Its steps.
    pub ops: Vec<Op>,
}

/// What a channel is and how much fits in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelSpec {
    /// Name, for messages ("waits for lock `queue`").
    pub name: String,
    /// What it is.
    pub kind: ChannelType,
    /// Bytes that fit in (pipe, socket), parties (barrier), else unused.
    pub capacity: u64,
    /// Bytes or tokens in it at the start.
    pub initial: u64,
    /// Bytes of room there must be before senders that wait for room are woken; 0 is as many as they send. The
    /// kernel wakes late to save switches: a pipe's writer when a page (4096 bytes) is free, a socket's when a
    /// good part of its buffer is.
    pub room_to_resume: u64,
    /// Whether the bytes go through a Unix socket, or a pipe. Room wakes all senders that wait at a socket, the latest
    /// first (they wait non-exclusively: `sock_wait_for_wmem`), and the first only at a pipe; calls have each its own cost.
    pub is_socket: bool,
}

/// What a channel is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChannelType {
    /// Bytes, in order: pipe or one direction of a socket.
    Bytes,
    /// Counted tokens.
    Tokens,
    /// A mutex.
    Mutex,
    /// A condition variable or futex queue: remembers nothing.
    Condition,
    /// A barrier.
    Barrier,
}

/// Something outside the tasks that hands things over at given times: a device, the network, a user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Name, for messages and pictures.
    pub name: String,
    /// Which CPU takes its interrupt.
    pub cpu: CpuId,
    /// Arrivals in rising order.
    pub arrivals: Vec<Arrival>,
}

/// One arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrival {
    /// When.
    pub time: Nanos,
    /// Into which channel.
    pub channel: ChannelId,
    /// Bytes or tokens.
    pub amount: u32,
}

/// What a task did before the start: what averages of its use begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Past {
    /// It is new.
    #[default]
    New,
    /// It slept for long, and waits on: its program begins with what wakes it.
    Slept,
    /// It slept for long, and a timer wakes it at its start.
    Woken,
    /// It ran for long.
    Ran,
}

/// One task, or a template that [`Op::Fork`] makes tasks from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskSpec {
    /// Name (`comm`).
    pub name: String,
    /// Tasks of one process share this number.
    pub process: u32,
    /// Attributes at the start.
    pub attributes: TaskAttributes,
    /// What it does.
    pub program: ProgramId,
    /// When it starts; ignored for templates.
    pub start: Nanos,
    /// The CPU it starts on; `None` lets the scheduler choose (fork placement).
    pub start_cpu: Option<CpuId>,
    /// What it did before the start.
    #[serde(default)]
    pub past: Past,
    /// Only made by [`Op::Fork`].
    pub template: bool,
    /// Belongs to what is measured; all others are background.
    pub target: bool,
    /// Seed offset, so that equal programs draw different numbers.
    pub stream: u64,
}

/// A whole workload.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Workload {
    /// Name.
    pub name: String,
    /// What it stands for.
    pub description: String,
    /// Tasks and templates.
    pub tasks: Vec<TaskSpec>,
    /// Behaviours, shared between tasks.
    pub programs: Vec<Program>,
    /// Channels.
    pub channels: Vec<ChannelSpec>,
    /// Outside sources.
    pub devices: Vec<Device>,
    /// Cgroups with settings; those that only tasks name are not here.
    pub cgroups: Vec<change::CgroupSpec>,
    /// CPUs that are offline at the start.
    pub offline: Vec<CpuId>,
    /// Changes of the machine and of cgroups, in order of their times.
    pub changes: Vec<change::TimedChange>,
    /// When the run is cut; `None` runs until every target task has ended.
    pub duration: Option<Nanos>,
    /// When ticks come, as the remainder of the tick's length: a recording's absolute timers keep their distance
    /// to the ticks. `None` if nothing tells.
    #[serde(default)]
    pub tick_phase: Option<Nanos>,
    /// Of 1024 searches of CPUs that went idle, how many found a task before the run (`newidle_ratio` of a
    /// `struct sched_domain`, kernel/sched/fair.c): kernels with `NI_RANDOM` search as often. `None`: as after boot.
    #[serde(default)]
    pub newidle_ratio: Option<u32>,
    /// When every task waits and no timer or device is left: let one task that waits in [`Op::Send`] for room go
    /// on over the channel's capacity instead of calling it a deadlock. Set for replays, where an order other
    /// than the recorded one may fill a channel that the program would have drained.
    pub overflow_when_stalled: bool,
    /// What calls take by themselves is part of the runs, as in a recording, and is not charged again.
    #[serde(default)]
    pub calls_in_runs: bool,
    /// What going to sleep takes before the switch where calls are in the runs, in ns: the runs are without it, and
    /// whoever waits pays it. Which of two tasks waits for the other is the scheduler's doing.
    #[serde(default)]
    pub sleep_cost: Nanos,
    /// What its processes and messages take of the machine's memory.
    #[serde(default)]
    pub memory: MemoryNeeds,
    /// Waits of a recording that could not be attributed to a channel, of all waits: (unattributed, all).
    pub unattributed_waits: (u64, u64),
}

impl Workload {
    /// The nice values that tasks have or take.
    pub fn nice_values(&self) -> impl Iterator<Item = Nice> {
        let own = self.tasks.iter().map(|task| task.attributes.nice);
        let ops = self.programs.iter().flat_map(|program| &program.ops);
        own.chain(ops.filter_map(|op| match op {
            Op::SetAttributes(attributes) => Some(attributes.nice),
            _ => None,
        }))
    }

    /// The first affinity mask without any of these CPUs, of a task at its start or of one of its steps: Linux refuses
    /// it (`sched_setaffinity(2)`, `EINVAL`). A mask that lies on them in part is cut.
    pub fn misplaced(&self, cpus: &CpuSet) -> Option<Misplaced<'_>> {
        self.tasks.iter().find_map(|spec| {
            let stray = |attributes: &TaskAttributes| attributes.affinity.and(cpus).is_empty();
            let at = |step, attributes: &TaskAttributes| Misplaced {
                task: &spec.name,
                step,
                affinity: attributes.affinity,
            };
            if stray(&spec.attributes) {
                return Some(at(None, &spec.attributes));
            }
            let mut ops = self.programs[spec.program.0 as usize].ops.iter().enumerate();
            ops.find_map(|(step, op)| match op {
                Op::SetAttributes(attributes) if stray(attributes) => Some(at(Some(step), attributes)),
                _ => None,
            })
        })
    }
}

/// An affinity mask that lies outside of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misplaced<'a> {
    /// Name of the task.
    pub task: &'a str,
    /// Index of the step that sets it; `None` is the task's own from its start on.
    pub step: Option<usize>,
    /// The mask.
    pub affinity: CpuSet,
}

/// Where it is: task and step, counted from 1.
impl fmt::Display for Misplaced<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.step {
            None => write!(f, "task '{}', its attributes", self.task),
            Some(step) => write!(f, "task '{}', step {} (set)", self.task, step + 1),
        }
    }
}

#[cfg(test)]
mod tests;
