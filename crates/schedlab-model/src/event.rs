//! What a scheduling kernel does, as a stream of events in time order.
//!
//! The live recorder and the simulator produce the same events; metrics, pictures and replay read them.
//! How they lie on disk: [`crate::recording`].
//!
//! Operations: an [`EventKind::OperationExit`] without its enter is an operation that was never switched out
//! to wait; its effect lies at the exit. The [`EventKind::OperationEnter`] is needed of those that wait, before
//! the switch. Several equal operations of one task without a wait between them may be told as one exit with
//! the sum of their results, at the time of the last.

use crate::ids::{ChannelId, CpuId, TaskId};
use crate::policy::{Nice, Policy};
use crate::recording::TaskInfo;
use crate::time::Nanos;
use serde::{Deserialize, Serialize};

/// One event. Events of a stream rise in time; equal times keep the order in which they happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When, since the start of the recording.
    pub time: Nanos,
    /// On which CPU it happened.
    pub cpu: CpuId,
    /// What.
    pub kind: EventKind,
}

/// In what state a task left its CPU (`prev_state` of `sched_switch`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PrevState {
    /// Still runnable: preempted, slice over or yielded.
    Runnable,
    /// Sleeps until woken or signalled.
    Interruptible,
    /// Sleeps until woken (disk and the like).
    Uninterruptible,
    /// Stopped, traced or parked.
    Stopped,
    /// Gone.
    Dead,
}

/// In what context a wake-up was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Context {
    /// By the current task itself.
    Task,
    /// In a hard interrupt (timer, device).
    HardIrq,
    /// In a softirq (network receive, timers).
    SoftIrq,
}

/// Why a scheduler changed a task's dynamic priority; in the order of `enum cause` of bpf/include/entity.bpf.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum PriorityCause {
    /// It came under the scheduler.
    Enabled,
    /// It woke after sleep.
    Slept,
    /// It ran first after it had waited for a CPU.
    Waited,
    /// It ran: a slice or an interval was over.
    Ran,
    /// It forked.
    Forked,
    /// It was forked.
    Born,
    /// It yielded.
    Yielded,
    /// Its nice value changed.
    Nice,
}

impl PriorityCause {
    /// Every cause, by the number that schedulers log.
    pub const ALL: [PriorityCause; 8] = [
        PriorityCause::Enabled,
        PriorityCause::Slept,
        PriorityCause::Waited,
        PriorityCause::Ran,
        PriorityCause::Forked,
        PriorityCause::Born,
        PriorityCause::Yielded,
        PriorityCause::Nice,
    ];

    /// In a word.
    pub fn name(self) -> &'static str {
        ["enabled", "slept", "waited", "ran", "forked", "born", "yielded", "nice"][self as usize]
    }
}

/// One entry of a scheduler's log of priorities (`struct change` of bpf/include/entity.bpf.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PriorityChange {
    /// On the scheduler's clock.
    pub time_ns: u64,
    /// The kernel's number of the task.
    pub pid: i32,
    /// The priority it had.
    pub before: u8,
    /// The priority it has now.
    pub after: u8,
    /// Why.
    pub cause: PriorityCause,
}

/// Bytes of an entry.
pub const PRIORITY_CHANGE_BYTES: usize = 16;

/// The entries of the log since `read` of `count` were read, oldest first, and how many were lost since: `log` holds the
/// last ones in turn.
pub fn priority_changes(log: &[u8], read: u64, count: u64) -> (Vec<PriorityChange>, u64) {
    let slots = (log.len() / PRIORITY_CHANGE_BYTES) as u64;
    let first = read.max(count.saturating_sub(slots));
    let entry = |number: u64| {
        let at = (number % slots) as usize * PRIORITY_CHANGE_BYTES;
        let bytes = log.get(at..at + PRIORITY_CHANGE_BYTES)?;
        Some(PriorityChange {
            time_ns: u64::from_le_bytes(bytes[..8].try_into().ok()?),
            pid: i32::from_le_bytes(bytes[8..12].try_into().ok()?),
            before: bytes[12],
            after: bytes[13],
            cause: *PriorityCause::ALL.get(usize::from(bytes[14]))?,
        })
    };
    ((first..count).filter_map(entry).collect(), first.saturating_sub(read))
}

/// Where an interrupt comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum IrqSource {
    /// The local timer: tick and high-resolution timers.
    Timer,
    /// Another CPU.
    Ipi,
    /// A device, by its interrupt number.
    Device(u32),
}

/// System calls and kernel operations that can wait, or let somebody else stop waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Operation {
    /// Read from a pipe; amount in bytes.
    PipeRead,
    /// Write to a pipe; amount in bytes.
    PipeWrite,
    /// Receive from a socket; amount in bytes.
    SocketReceive,
    /// Send to a socket; amount in bytes. The channel is the receiving end's.
    SocketSend,
    /// Wait on a futex.
    FutexWait,
    /// Wake waiters of a futex; amount is the number asked for.
    FutexWake,
    /// `poll`, `select`, `ppoll`; amount is the timeout in ns, `u64::MAX` if none. The channel is the first.
    Poll,
    /// `epoll_wait`; amount as for poll. The channel is the epoll instance.
    EpollWait,
    /// Sleep for a time; amount in ns.
    SleepRelative,
    /// Sleep until an instant; amount in ns since the start of the recording.
    SleepAbsolute,
    /// Wait for a child.
    WaitChild,
    /// `sched_yield`.
    Yield,
    /// Read from or write to anything else (files, terminals, eventfd without a pair).
    OtherIo,
}

impl Operation {
    /// All of them, by their number.
    pub const ALL: [Operation; 13] = [
        Operation::PipeRead,
        Operation::PipeWrite,
        Operation::SocketReceive,
        Operation::SocketSend,
        Operation::FutexWait,
        Operation::FutexWake,
        Operation::Poll,
        Operation::EpollWait,
        Operation::SleepRelative,
        Operation::SleepAbsolute,
        Operation::WaitChild,
        Operation::Yield,
        Operation::OtherIo,
    ];
}

/// By what clock a virtual runtime counts: values of two clocks do not compare, even on one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum VruntimeClock {
    /// That of the fair class: `se.vruntime`.
    Fair,
    /// That of a sched_ext scheduler: `scx.dsq_vtime`.
    Ext,
}

/// The result of an operation that returned, of which nothing more is known.
pub const RESULT_UNKNOWN: i64 = i64::MAX;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum EventKind {
    /// The CPU changes its task.
    Switch {
        /// Leaves the CPU.
        prev: TaskId,
        /// In what state.
        prev_state: PrevState,
        /// Runs from now on.
        next: TaskId,
    },
    /// A wake-up begins, on the waker's CPU (`sched_waking`): the wakee is runnable from here.
    Waking {
        /// The current task of the CPU; it is the cause only in [`Context::Task`].
        waker: TaskId,
        /// In what context.
        context: Context,
        /// The task woken.
        wakee: TaskId,
        /// The CPU the wakee last ran on (placement is decided later).
        wakee_cpu: CpuId,
    },
    /// A new task is put on a queue for the first time (`sched_wakeup_new`).
    WakeupNew {
        /// The task.
        task: TaskId,
        /// Its first CPU.
        target_cpu: CpuId,
    },
    /// A task moves to another CPU's queue.
    Migrate {
        /// The task.
        task: TaskId,
        /// From here.
        from: CpuId,
        /// To there.
        to: CpuId,
    },
    /// A task is created.
    Fork {
        /// Who forked.
        parent: TaskId,
        /// The new task.
        child: TaskId,
    },
    /// A task replaces its program.
    Exec {
        /// The task.
        task: TaskId,
    },
    /// A task ends.
    Exit {
        /// The task.
        task: TaskId,
    },
    /// Policy, nice or real-time priority changed.
    AttributesChanged {
        /// The task.
        task: TaskId,
        /// New policy.
        policy: Policy,
        /// New nice value.
        nice: Nice,
        /// New real-time priority.
        rt_priority: u8,
    },
    /// The CPUs a task may run on changed (`sched_setaffinity`, cpusets).
    AffinityChanged {
        /// The task.
        task: TaskId,
        /// Row of [`crate::recording::Recording::cpu_sets`].
        set: u32,
    },
    /// A task's custom slice changed (`sched_attr::sched_runtime` of a fair task).
    SliceChanged {
        /// The task.
        task: TaskId,
        /// New slice; zero is the kernel's base slice.
        slice: Nanos,
    },
    /// A waiter of higher priority lends it to the holder of a lock (`sched_pi_setprio`), or gets it back.
    PriorityLent {
        /// The holder.
        task: TaskId,
        /// The waiter; idle when the task's own priority is in force again.
        lender: TaskId,
        /// The kernel's `prio` in force from now on: 0 to 99 is real-time, from 100 on fair; lower is stronger.
        prio: u8,
    },
    /// An interrupt handler begins.
    IrqEnter {
        /// Whose.
        source: IrqSource,
    },
    /// It ends.
    IrqExit {
        /// Whose.
        source: IrqSource,
    },
    /// A softirq handler begins.
    SoftirqEnter {
        /// Its vector, as in `enum { HI_SOFTIRQ, TIMER_SOFTIRQ, NET_TX_SOFTIRQ, ... }`.
        vector: u8,
    },
    /// It ends.
    SoftirqExit {
        /// Its vector.
        vector: u8,
    },
    /// A task's timer expires.
    TimerExpire {
        /// The task that waits for it, idle if unknown.
        task: TaskId,
        /// When it should have.
        due: Nanos,
    },
    /// A task enters an operation that will wait or wake. Live recordings put it where that shows, at the
    /// first wake-up it makes or just before the switch away; an operation that does neither has only its
    /// exit.
    OperationEnter {
        /// The task.
        task: TaskId,
        /// The operation.
        operation: Operation,
        /// On what; see [`Operation`].
        channel: ChannelId,
        /// How much; see [`Operation`].
        amount: u64,
    },
    /// The operation returns. Where return values are not recorded (see
    /// [`crate::recording::Provenance::counted_from`]) the result of a wait is [`RESULT_UNKNOWN`].
    OperationExit {
        /// The task.
        task: TaskId,
        /// The operation.
        operation: Operation,
        /// On what.
        channel: ChannelId,
        /// Return value: bytes, number woken, or a negative error number.
        result: i64,
    },
    /// A periodic or request task finished one job.
    Job {
        /// The task.
        task: TaskId,
        /// When the job was released.
        released: Nanos,
        /// When it had to be done; [`Nanos::MAX`] if it has no deadline.
        deadline: Nanos,
    },
    /// The scheduler gave the task another dynamic priority. Lower runs sooner.
    Priority {
        /// The task.
        task: TaskId,
        /// The priority it had.
        before: u8,
        /// The priority it has now.
        after: u8,
        /// Why.
        cause: PriorityCause,
    },
    /// The task's virtual runtime as it comes to a CPU, leaves it or is ticked: `se.vruntime` in the fair class; under
    /// a sched_ext scheduler `scx.dsq_vtime`, if that keeps any.
    Vruntime {
        /// The task.
        task: TaskId,
        /// Which of the two it is.
        clock: VruntimeClock,
        /// In ns of a task of weight 1024, as its queue counts: values of different queues do not compare.
        vruntime: i64,
    },
    /// What the task did to the cache since it came to its CPU, just before the switch at which it leaves: by the
    /// processor's counters, if they were read ([`crate::recording::CacheCounting`]).
    CacheUse {
        /// The task.
        task: TaskId,
        /// Accesses that reached the cache that is counted, usually the last level.
        references: u64,
        /// Of which found nothing there.
        misses: u64,
    },
    /// The key the scheduler ranks the task by, at a change. Lower runs sooner.
    Rank {
        /// The task.
        task: TaskId,
        /// In the scheduler's own unit.
        key: i64,
    },
}

/// Takes events as they happen.
pub trait EventSink {
    /// Whether this sink wants events at all; the simulator skips the work of handing them over otherwise.
    fn wants_events(&self) -> bool {
        true
    }

    /// Whether this sink wants [`EventKind::Rank`], [`EventKind::Vruntime`], irq and operation events; the simulator skips the work
    /// of making them otherwise.
    fn wants_detail(&self) -> bool {
        true
    }

    /// Whether this sink has had enough: a run ends soon after, as if it had been cut there. Never of a sink that wants
    /// no events.
    fn has_enough(&self) -> bool {
        false
    }

    /// A row of the task table becomes known, before the first event that names the task. Recordings have
    /// their table at hand; a simulator learns it as tasks are made.
    fn task(&mut self, _task: TaskId, _info: &TaskInfo) {}

    /// Takes one event.
    fn event(&mut self, event: &Event);

    /// Takes some events in their order. A simulator hands them over so: nobody may rely on when it does.
    fn events(&mut self, events: &[Event]) {
        events.iter().for_each(|event| self.event(event));
    }
}

/// Throws events away.
#[derive(Clone, Copy, Debug, Default)]
pub struct NullSink;

impl EventSink for NullSink {
    fn wants_events(&self) -> bool {
        false
    }

    fn wants_detail(&self) -> bool {
        false
    }

    #[inline]
    fn event(&mut self, _event: &Event) {}
}

impl EventSink for Vec<Event> {
    fn event(&mut self, event: &Event) {
        self.push(*event);
    }

    fn events(&mut self, events: &[Event]) {
        self.extend_from_slice(events);
    }
}

impl<A: EventSink, B: EventSink> EventSink for (A, B) {
    fn wants_events(&self) -> bool {
        self.0.wants_events() || self.1.wants_events()
    }

    fn wants_detail(&self) -> bool {
        self.0.wants_detail() || self.1.wants_detail()
    }

    fn has_enough(&self) -> bool {
        self.0.has_enough() || self.1.has_enough()
    }

    fn task(&mut self, task: TaskId, info: &TaskInfo) {
        self.0.task(task, info);
        self.1.task(task, info);
    }

    fn event(&mut self, event: &Event) {
        self.0.event(event);
        self.1.event(event);
    }

    fn events(&mut self, events: &[Event]) {
        self.0.events(events);
        self.1.events(events);
    }
}

impl<S: EventSink + ?Sized> EventSink for &mut S {
    fn wants_events(&self) -> bool {
        (**self).wants_events()
    }

    fn wants_detail(&self) -> bool {
        (**self).wants_detail()
    }

    fn has_enough(&self) -> bool {
        (**self).has_enough()
    }

    fn task(&mut self, task: TaskId, info: &TaskInfo) {
        (**self).task(task, info);
    }

    fn event(&mut self, event: &Event) {
        (**self).event(event);
    }

    fn events(&mut self, events: &[Event]) {
        (**self).events(events);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_of_priorities_is_read_in_turn_and_tells_what_it_lost() {
        const HEADER: &str = include_str!("../../../bpf/include/entity.bpf.h");
        let listed =
            HEADER.split("enum cause {").nth(1).and_then(|rest| rest.split('}').next()).expect("causes");
        let names: Vec<String> = listed
            .split(',')
            .filter_map(|line| line.trim().strip_prefix("CAUSE_"))
            .map(str::to_lowercase)
            .collect();
        let own: Vec<&str> = PriorityCause::ALL.iter().map(|cause| cause.name()).collect();
        assert_eq!(
            (names[0].as_str(), &names[1..]),
            ("none", &own.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()[1..])
        );
        let entry = |number: u8| {
            let mut bytes = [0; PRIORITY_CHANGE_BYTES];
            (bytes[0], bytes[8], bytes[12], bytes[13], bytes[14]) = (number, 7, 120, 115, 1);
            bytes
        };
        // Four slots; entry 4 took the place of entry 0.
        let log: Vec<u8> = [4, 1, 2, 3].into_iter().flat_map(entry).collect();
        let (changes, lost) = priority_changes(&log, 0, 5);
        assert_eq!(changes.iter().map(|change| change.time_ns).collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert_eq!((lost, changes[0].cause, changes[0].pid), (1, PriorityCause::Slept, 7));
        assert_eq!(priority_changes(&log, 4, 5).0.len(), 1);
        assert_eq!(priority_changes(&[], 0, 0), (Vec::new(), 0));
    }
}
