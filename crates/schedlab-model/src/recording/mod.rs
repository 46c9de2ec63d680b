//! A recording: who was there, what happened, how well it was heard.
//!
//! Made by the live recorder or by the simulator; the type and the file are the same. The file:
//! [`codec`]; how events lie in it: `event_codec`.

mod anonymise;
pub mod codec;
mod event_codec;
mod runs;
mod tables;
mod wire;

pub use runs::{PatternEntry, RUN_MAX, Run};

use crate::cpu_set::CpuSet;
use crate::event::{Event, EventKind, Operation};
use crate::ids::{ChannelId, CpuId, TaskId};
use crate::machine::MachineDescription;
use crate::policy::TaskAttributes;
use crate::time::Nanos;
use crate::workload::change::CgroupSpec;
use serde::{Deserialize, Serialize};

/// One task of a recording. Position in the table is its [`TaskId`]; row 0 is the idle task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskInfo {
    /// Kernel thread id.
    pub pid: i32,
    /// Kernel process id (thread group).
    pub tgid: i32,
    /// Name (`comm`), the last one seen.
    pub name: String,
    /// Who forked it, idle if unknown or not a task of the recording.
    pub parent: TaskId,
    /// Attributes when first seen.
    pub attributes: TaskAttributes,
    /// Whether it belongs to the target; all others are background.
    pub target: bool,
    /// Whether it existed when the recording began.
    pub existed: bool,
    /// The CPU it was on when the recording began or when it was forked.
    pub start_cpu: CpuId,
    /// Whether it was runnable or running when the recording began.
    pub start_runnable: bool,
}

impl TaskInfo {
    /// Row 0: every CPU's idle task.
    pub fn idle() -> TaskInfo {
        TaskInfo {
            pid: 0,
            tgid: 0,
            name: "swapper".to_owned(),
            parent: TaskId::IDLE,
            attributes: TaskAttributes { kernel_thread: true, ..TaskAttributes::default() },
            target: false,
            existed: true,
            start_cpu: CpuId(0),
            start_runnable: false,
        }
    }
}

/// What a channel is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ChannelKind {
    /// A pipe or FIFO.
    Pipe,
    /// One direction of a socket: what the owner receives.
    Socket,
    /// A futex word.
    Futex,
    /// An epoll instance.
    Epoll,
    /// Anything else.
    Other,
}

/// One channel of a recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelInfo {
    /// What it is.
    pub kind: ChannelKind,
    /// Kernel identity: inode of the pipe or socket, futex address.
    pub identity: u64,
    /// For a socket the channel of its peer, if it is local and known.
    pub peer: Option<ChannelId>,
    /// How much fits in, in bytes; 0 if unknown.
    pub capacity: u64,
}

/// How a recording was made and how well.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Provenance {
    /// `live` or `simulated`.
    pub origin: String,
    /// Command line of the target, empty for attached targets.
    pub command: Vec<String>,
    /// What was recorded, if it was no command: a process, a unit, a control group.
    #[serde(default)]
    pub target: String,
    /// Exit code of the command, if it ended by itself.
    pub exit_code: Option<i32>,
    /// Kernel release string.
    pub kernel_release: String,
    /// Scheduler that ran: `fair`, or a sched_ext scheduler's name.
    pub scheduler: String,
    /// Events lost because a buffer was full.
    pub dropped: u64,
    /// The same for each CPU, in CPU order; empty if unknown.
    #[serde(default)]
    pub dropped_per_cpu: Vec<u64>,
    /// From when on operations that neither waited nor woke were counted instead of timed one by one, to
    /// keep the recorder's overhead small: their exits carry sums (see [`crate::event`]).
    #[serde(default)]
    pub counted_from: Option<Nanos>,
    /// Bytes that the target received from sockets beyond those that the recorded sends to them gave, if operations were
    /// counted: others sent them, or before the recording began, or the recorder did not see to where.
    #[serde(default)]
    pub unseen_bytes: u64,
    /// Groups of the fair class that tasks were in: each task's `cgroup` is then the group that schedules it, a session's
    /// (`/autogroup-N`) where the cpu controller has none. `None`: unknown, `cgroup` is only a name.
    #[serde(default)]
    pub groups: Option<Vec<CgroupSpec>>,
    /// CPU time the recorder itself used.
    pub recorder_cpu: Nanos,
    /// Whether the file ended early (killed recorder, full disk): what is there is whole.
    pub partial: bool,
    /// Wall-clock time of the start, seconds since the epoch; 0 if unknown.
    pub started_unix_s: u64,
    /// Why these seconds were kept, if the recorder kept only the last ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger: Option<TriggerInfo>,
    /// Whether the use of caches was counted; `None` if nobody asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caches: Option<CacheCounting>,
}

/// Whether a recording tells its target's use of caches ([`EventKind::CacheUse`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheCounting {
    /// It does.
    Counted {
        /// Bytes of a line, which a miss brings in.
        line_bytes: u32,
    },
    /// It was asked for, and cannot be.
    Impossible {
        /// Why.
        reason: String,
    },
}

/// What made a recorder keep the last seconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TriggerInfo {
    /// The trigger as it was given (`run-delay>20ms`), or what ended the recording.
    pub what: String,
    /// When.
    pub at: Nanos,
    /// The task that was late.
    #[serde(default)]
    pub task: Option<TaskId>,
    /// How long it had waited for a CPU.
    #[serde(default)]
    pub delay: Option<Nanos>,
}

impl Provenance {
    /// What was recorded, in words: the command line, or the target that existed.
    pub fn what(&self) -> String {
        if self.command.is_empty() { self.target.clone() } else { self.command.join(" ") }
    }
}

/// The longest recording that is read: 104 days.
pub const DURATION_MAX: Nanos = Nanos(1 << 53);

/// A whole recording in memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recording {
    /// How it was made.
    pub provenance: Provenance,
    /// On what machine.
    pub machine: MachineDescription,
    /// Who was there.
    pub tasks: Vec<TaskInfo>,
    /// What they communicated through.
    pub channels: Vec<ChannelInfo>,
    /// Sets of CPUs that [`crate::event::EventKind::AffinityChanged`] names by their position.
    #[serde(default)]
    pub cpu_sets: Vec<CpuSet>,
    /// What happened, in time order.
    pub events: Vec<Event>,
    /// When the recording ended, since its start.
    pub duration: Nanos,
}

impl Recording {
    /// The task table's row.
    pub fn task(&self, task: TaskId) -> &TaskInfo {
        &self.tasks[task.index()]
    }

    /// Checks that events and rows name only tasks and channels that the tables have.
    pub(crate) fn check_references(&self) -> Result<(), &'static str> {
        let task = |id: TaskId| id.index() < self.tasks.len();
        let channel = |id: ChannelId| id.index() < self.channels.len();
        let kind = |kind: &EventKind| match *kind {
            EventKind::Switch { prev: a, next: b, .. }
            | EventKind::Waking { waker: a, wakee: b, .. }
            | EventKind::PriorityLent { task: a, lender: b, .. }
            | EventKind::Fork { parent: a, child: b } => task(a) && task(b),
            EventKind::OperationEnter { task: a, channel: b, .. }
            | EventKind::OperationExit { task: a, channel: b, .. } => task(a) && channel(b),
            EventKind::AffinityChanged { task: a, set } => task(a) && (set as usize) < self.cpu_sets.len(),
            EventKind::WakeupNew { task: a, .. }
            | EventKind::Migrate { task: a, .. }
            | EventKind::Exec { task: a }
            | EventKind::Exit { task: a }
            | EventKind::AttributesChanged { task: a, .. }
            | EventKind::SliceChanged { task: a, .. }
            | EventKind::TimerExpire { task: a, .. }
            | EventKind::Job { task: a, .. }
            | EventKind::Priority { task: a, .. }
            | EventKind::Vruntime { task: a, .. }
            | EventKind::CacheUse { task: a, .. }
            | EventKind::Rank { task: a, .. } => task(a),
            EventKind::IrqEnter { .. }
            | EventKind::IrqExit { .. }
            | EventKind::SoftirqEnter { .. }
            | EventKind::SoftirqExit { .. } => true,
        };
        if !self.events.iter().all(|event| kind(&event.kind)) {
            return Err("an event names a task, channel or CPU set without a row");
        }
        let rows = self.tasks.iter().all(|row| task(row.parent))
            && self.channels.iter().all(|row| row.peer.is_none_or(channel));
        if !self.provenance.groups.iter().flatten().all(|group| group.settings.check().is_ok()) {
            return Err("a group has settings that no kernel takes");
        }
        if rows { Ok(()) } else { Err("a row names another that does not exist") }
    }

    /// Checks that nothing happens after the end, and that sums of times over all tasks fit.
    pub(crate) fn check_times(&self) -> Result<(), &'static str> {
        match self.events.last() {
            _ if self.duration > DURATION_MAX => Err("it lasts longer than a hundred days"),
            Some(last) if last.time > self.duration => Err("an event lies after the recording's end"),
            _ => Ok(()),
        }
    }

    /// Whether an operation hands something over (so that others may stop waiting).
    pub const fn is_giving(operation: Operation) -> bool {
        matches!(operation, Operation::PipeWrite | Operation::SocketSend | Operation::FutexWake)
    }
}
