//! From a recording to a closed-loop workload: what the tasks did, not when the recorded scheduler let them.
//!
//! Each task becomes a program of CPU bursts and operations on channels. A wait happens in the simulation
//! only if the simulated channel is empty, whatever happened in the recording.
//!
//! # Why a replay always ends
//! Every wait takes from a channel that nobody else takes from, and what it takes was given earlier in the
//! recording. So the recorded order is one complete run, no step of one task can disable a step of another,
//! and then every order is complete. Channels with several readers are shared only where their writers never
//! wait, however indirectly, for the readers; else each reader gets its own share as recorded
//! ([`channels`]). Room in full channels is the exception and is lifted when nothing else can go on
//! (`Workload::overflow_when_stalled`). [`check`] executes a workload without time, in any order, to show it.
//!
//! What things cost on the recorded machine is in [`calibrate`].
//! Not here: reading files, judging how like the recording the replay is.

mod background;
mod calibrate;
mod channels;
pub mod check;
mod classify;
mod newidle;
mod observe;
mod program;
mod readers;
mod room;
mod sleeps;
mod window;
mod writers;

use schedlab_model::recording::Recording;
use schedlab_model::workload::Workload;
use schedlab_model::{Nanos, TaskId};
use std::collections::BTreeMap;

pub use calibrate::{calibrated, costs_shown, latencies_shown, measured_cost};
pub use readers::waits_shown;
pub use window::{blocks, cut};

/// How a recording is turned into a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayOptions {
    /// Accept a recording that lost events; what is missing makes waits disappear or unattributed.
    pub allow_drops: bool,
    /// Take the modelled costs of switches, wake-ups and interrupts out of the recorded bursts, because the
    /// simulator adds them again.
    pub subtract_costs: bool,
    /// Replay the tasks that do not belong to the target, too.
    pub background: bool,
    /// Name of the workload; `None` names it after the recorded command.
    pub name: Option<String>,
}

impl Default for ReplayOptions {
    fn default() -> ReplayOptions {
        ReplayOptions { allow_drops: false, subtract_costs: true, background: true, name: None }
    }
}

/// A recording that cannot be replayed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// Events were lost.
    #[error(
        "the recording lost {0} events: record again with fewer other tasks, or accept the loss (--allow-drops)"
    )]
    Dropped(u64),
    /// No task of the target ever ran.
    #[error("no task of the target ran in the recording: record for longer, or while the target has work")]
    NothingRan,
    /// An event names a task or channel that the tables do not have.
    #[error("event {index} names {what}, which the recording's tables do not have: the file is damaged")]
    UnknownName {
        /// Position of the event.
        index: usize,
        /// What it names.
        what: String,
    },
    /// The replay would not end. It is our mistake.
    #[error("the replay would not end, which is a fault of schedlab: {0}")]
    Stuck(String),
}

/// What a wait of the recording was for, and so how it is replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WaitKind {
    /// Bytes or room in a pipe.
    Pipe,
    /// Bytes or room in a socket.
    Socket,
    /// A futex: tokens from whoever woke it.
    Futex,
    /// A timer: a sleep, or a time-out that passed.
    Timer,
    /// A child's end.
    Child,
    /// `poll` or `epoll`, ended by a known channel.
    Poll,
    /// A disk or the like: as long as recorded.
    Io,
    /// Unattributed: woken by another task at that point of its progress.
    Task,
    /// Unattributed: woken from an interrupt, at the recorded time.
    Device,
    /// Unattributed: the wake-up was not seen; ends at the recorded time.
    Unknown,
}

impl WaitKind {
    /// Whether the wait is replayed by what it waited for and not by who or what ended it.
    pub const fn is_attributed(self) -> bool {
        !matches!(self, WaitKind::Task | WaitKind::Device | WaitKind::Unknown)
    }

    /// In messages.
    pub const fn name(self) -> &'static str {
        match self {
            WaitKind::Pipe => "pipe",
            WaitKind::Socket => "socket",
            WaitKind::Futex => "futex",
            WaitKind::Timer => "timer",
            WaitKind::Child => "child",
            WaitKind::Poll => "poll",
            WaitKind::Io => "I/O",
            WaitKind::Task => "woken by a task",
            WaitKind::Device => "woken by a device",
            WaitKind::Unknown => "unknown",
        }
    }
}

/// A replayable workload and what is known about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    /// The workload.
    pub workload: Workload,
    /// Which task of the recording each row of [`Workload::tasks`] stands for.
    pub task_of: Vec<TaskId>,
    /// Waits of target tasks by kind.
    pub waits: BTreeMap<WaitKind, u64>,
    /// What the reader of a result must know: parts that keep their recorded times, lost events and so on.
    pub notes: Vec<String>,
}

/// Turns a recording into a workload that runs closed-loop: between recorded tasks cause and effect are kept,
/// and only timers and the outside world keep their times.
///
/// # Errors
/// If events were lost (unless allowed), nothing of the target ran, or the recording contradicts itself.
pub fn workload_from(recording: &Recording, options: &ReplayOptions) -> Result<Replay, ReplayError> {
    if recording.provenance.dropped > 0 && !options.allow_drops {
        return Err(ReplayError::Dropped(recording.provenance.dropped));
    }
    check_names(recording)?;
    let mut observed = observe::observe(recording, options, Nanos::ZERO);
    let sleep_cost = if options.subtract_costs {
        sleeps::cost(&observed).max(calibrate::sleep_beyond_switch(recording))
    } else {
        Nanos::ZERO
    };
    if sleep_cost > Nanos::ZERO {
        observed = observe::observe(recording, options, sleep_cost);
    }
    let included = included(recording, options, &observed);
    if !recording.tasks.iter().zip(&included).any(|(task, included)| task.target && *included) {
        return Err(ReplayError::NothingRan);
    }
    let attempt = |strict, in_order| {
        let bytes = channels::connect(recording, &observed, &included, strict);
        let handled = classify::classify(recording, &observed, &bytes, &included, in_order);
        let replay = program::build(recording, options, &observed, &bytes, &handled, &included, sleep_cost);
        check::execute(&replay.workload, &mut check::Lowest).map(|_| replay)
    };
    let stuck = match attempt(false, false) {
        Ok(replay) => return Ok(replay),
        Err(stuck) => stuck,
    };
    let attempts = attempt(false, true).or_else(|_| attempt(true, false)).or_else(|_| attempt(true, true));
    let mut replay = attempts.map_err(|stuck| ReplayError::Stuck(stuck.to_string()))?;
    replay.notes.push(format!(
        "what is not certain of who waited for whom follows the recorded order, since otherwise {stuck} for ever"
    ));
    Ok(replay)
}

/// Which tasks are replayed: those that ran, of the target or wanted as background.
fn included(recording: &Recording, options: &ReplayOptions, observed: &observe::Observed) -> Vec<bool> {
    let tasks = recording.tasks.iter().zip(&observed.tasks).enumerate();
    tasks
        .map(|(id, (info, trace))| id > 0 && trace.cpu_time > 0 && (info.target || options.background))
        .collect()
}

/// Every task and channel that an event names must be in the tables.
fn check_names(recording: &Recording) -> Result<(), ReplayError> {
    use schedlab_model::event::EventKind as K;
    let tasks = recording.tasks.len();
    for (index, event) in recording.events.iter().enumerate() {
        let (named, channel) = match event.kind {
            K::Switch { prev, next, .. } => ([prev, next], None),
            K::Waking { waker, wakee, .. } => ([waker, wakee], None),
            K::Fork { parent, child } => ([parent, child], None),
            K::OperationEnter { task, channel, .. } | K::OperationExit { task, channel, .. } => {
                ([task, task], Some(channel))
            }
            K::WakeupNew { task, .. }
            | K::Exit { task }
            | K::AttributesChanged { task, .. }
            | K::SliceChanged { task, .. }
            | K::TimerExpire { task, .. } => ([task, task], None),
            K::AffinityChanged { task, set } => {
                if set as usize >= recording.cpu_sets.len() {
                    return Err(ReplayError::UnknownName { index, what: format!("CPU set {set}") });
                }
                ([task, task], None)
            }
            _ => continue,
        };
        if let Some(task) = named.iter().find(|task| task.index() >= tasks) {
            return Err(ReplayError::UnknownName { index, what: format!("task {task}") });
        }
        if let Some(channel) = channel
            && observe::has_channel(&event.kind)
            && channel.index() >= recording.channels.len()
        {
            return Err(ReplayError::UnknownName { index, what: format!("channel {channel}") });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
