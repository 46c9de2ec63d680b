//! What tasks do: programs of steps over channels.
//!
//! [`compile`] checks a workload and flattens its programs, [`amount`] draws times, [`channel`] holds the
//! state of pipes, tokens, locks and barriers, [`actor`] that of one task's program, [`interpret`] runs the
//! steps of the task on a CPU, [`wait`] blocks and wakes,
//! [`operation`] tells detailed sinks of calls. Nothing here decides who runs.

pub(crate) mod actor;
pub(crate) mod amount;
pub(crate) mod channel;
pub(crate) mod compile;
pub(crate) mod deadlock;
pub(crate) mod forks;
pub(crate) mod interpret;
pub(crate) mod life;
pub(crate) mod operation;
pub(crate) mod shortage;
pub(crate) mod slack;
pub(crate) mod wait;

use crate::memory::Memory;
use actor::Actor;
use channel::Channel;
use compile::Code;
use schedlab_model::workload::Workload;
use slack::SlackTimers;
use std::sync::Arc;

/// The workload while it runs.
pub(crate) struct Work {
    /// As given.
    pub(crate) workload: Arc<Workload>,
    /// Its programs, flattened.
    pub(crate) code: Arc<Code>,
    /// State of its channels.
    pub(crate) channels: Vec<Channel>,
    /// State of each task's program, by task.
    pub(crate) actors: Vec<Actor>,
    /// Last expiry of each timer that tasks share, by number; `None` before the first call.
    pub(crate) shared_timers: Vec<Option<u64>>,
    /// Next arrival of each device.
    pub(crate) arrivals: Vec<usize>,
    /// Target tasks that have not ended.
    pub(crate) targets_left: u32,
    /// Task timers and starts that are pending.
    pub(crate) timers_armed: u32,
    /// Of the task timers those with slack.
    pub(crate) slack_timers: SlackTimers,
    /// Memory of the machine, if it can run short.
    pub(crate) memory: Option<Memory>,
    /// Seed of the tasks' streams.
    pub(crate) seed: u64,
}
