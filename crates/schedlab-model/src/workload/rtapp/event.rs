//! rt-app's events as operations, and the resources that events name.
//!
//! A resource is known by its name and its type together: `"lock": "a"` and `"resume": "a"` do not meet.

use super::json::Place;
use crate::ids::ChannelId;
use crate::time::Nanos;
use crate::workload::builder::Builder;
use crate::workload::file::WorkloadError;
use crate::workload::{Amount, ChannelType, Late, Op, TimerRef};
use std::collections::{BTreeMap, BTreeSet};

/// Length of the pieces in which `runtime` looks at the clock.
const RUNTIME_PIECE: Nanos = Nanos::from_micros(32);

/// Kinds of events. A key is an event if it begins with one of these, whatever follows (`run1`, `lock_b`).
const KINDS: &[&str] = &[
    // Longer ones first where one begins with another.
    "runtime", "run", "sleep", "lock", "unlock", "wait", "signal", "broad", "sync", "timer", "suspend",
    "resume", "memrun", "mem", "iorun", "yield", "barrier", "fork", "sem_post", "sem_wait",
];

/// Events of rt-app that are refused: what memory and devices cost is not modelled.
const REFUSED: &[&str] = &["memrun", "mem", "iorun"];

/// Which event a key is, if it is one.
pub(super) fn kind(key: &str) -> Option<&'static str> {
    KINDS.iter().copied().find(|kind| key.starts_with(kind))
}

/// All events that are read, for messages.
pub(super) fn kinds() -> String {
    let read = KINDS.iter().copied().filter(|kind| !REFUSED.contains(kind));
    read.collect::<Vec<_>>().join(", ")
}

/// What events of all tasks name.
#[derive(Default)]
pub(super) struct Resources {
    channels: BTreeMap<(String, ChannelType), ChannelId>,
    /// Mode of each timer: `absolute` once is absolute for all who use it.
    absolute: BTreeSet<TimerKey>,
    /// How many take part in each barrier.
    parties: BTreeMap<String, u64>,
}

/// A timer: whose (for "unique" ones), and its name.
type TimerKey = (Option<String>, String);

/// The key of the timer that an event of `task` names.
fn timer_key(task: &str, name: &str) -> TimerKey {
    (name.starts_with("unique").then(|| task.to_owned()), name.to_owned())
}

impl Resources {
    /// Before any task is read: who meets at which barrier, and which timers are absolute.
    pub(super) fn scan(
        &mut self,
        task: &str,
        event: &Place<'_>,
        instances: u64,
    ) -> Result<(), WorkloadError> {
        match kind(event.key()) {
            Some("barrier") => *self.parties.entry(event.text()?.to_owned()).or_default() += instances,
            Some("timer") => {
                let name = event.entry("ref")?.map_or(Ok("unknown"), |name| name.text())?;
                let mode = event.entry("mode")?.map_or(Ok("relative"), |mode| mode.text())?;
                if mode == "absolute" {
                    self.absolute.insert(timer_key(task, name));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn channel(&mut self, builder: &mut Builder, name: &str, kind: ChannelType, capacity: u64) -> ChannelId {
        let key = (name.to_owned(), kind);
        *self.channels.entry(key).or_insert_with(|| builder.channel(name, kind, capacity, 0))
    }

    fn mutex(&mut self, builder: &mut Builder, name: &str) -> ChannelId {
        self.channel(builder, name, ChannelType::Mutex, 0)
    }

    fn condition(&mut self, builder: &mut Builder, name: &str) -> ChannelId {
        self.channel(builder, name, ChannelType::Condition, 0)
    }

    fn semaphore(&mut self, builder: &mut Builder, name: &str) -> ChannelId {
        self.channel(builder, name, ChannelType::Tokens, 0)
    }
}

/// Reads the events of one task.
pub(super) struct Events<'a> {
    /// Where steps and channels go.
    pub(super) builder: &'a mut Builder,
    /// What events of all tasks name.
    pub(super) resources: &'a mut Resources,
    /// Name of the task.
    pub(super) task: &'a str,
}

impl Events<'_> {
    /// Appends what one event does.
    pub(super) fn read(&mut self, event: &Place<'_>, ops: &mut Vec<Op>) -> Result<(), WorkloadError> {
        match kind(event.key()).expect("the key was found to be an event") {
            "run" => ops.push(Op::Run(Amount::Fixed(event.micros()?))),
            "runtime" => ops.push(Op::Spin { time: event.micros()?, piece: RUNTIME_PIECE }),
            "sleep" => ops.push(Op::Sleep(Amount::Fixed(event.micros()?))),
            "timer" => ops.push(self.timer(event)?),
            "yield" => ops.push(Op::Yield),
            "fork" => {
                let name = event.text()?;
                let found = self.builder.find_template(&super::task::template_name(name));
                let spec = found.map_err(|_| event.error(format!("there is no task '{name}' to fork")))?;
                ops.push(Op::Fork { spec });
            }
            "barrier" => {
                let name = event.text()?;
                let parties = self.resources.parties.get(name).copied().unwrap_or(1);
                let channel = self.resources.channel(self.builder, name, ChannelType::Barrier, parties);
                ops.push(Op::Barrier { channel });
            }
            "sem_post" => {
                let channel = self.resources.semaphore(self.builder, event.text()?);
                ops.push(Op::Post { channel, tokens: 1 });
            }
            "sem_wait" => {
                let channel = self.resources.semaphore(self.builder, event.text()?);
                ops.push(Op::Take { channel, timeout: None });
            }
            kind if REFUSED.contains(&kind) => {
                let what = format!("{kind} is not supported: what memory and devices cost is not modelled");
                return Err(event.error(format!("{what}; write a run of the time it takes")));
            }
            kind => self.wait_or_wake(kind, event, ops)?,
        }
        Ok(())
    }

    /// Mutexes, condition variables, and suspend and resume, which are made of both.
    fn wait_or_wake(
        &mut self,
        kind: &str,
        event: &Place<'_>,
        ops: &mut Vec<Op>,
    ) -> Result<(), WorkloadError> {
        match kind {
            "lock" => ops.push(Op::Lock { channel: self.resources.mutex(self.builder, event.text()?) }),
            "unlock" => ops.push(Op::Unlock { channel: self.resources.mutex(self.builder, event.text()?) }),
            "signal" | "broad" => {
                let channel = self.resources.condition(self.builder, event.text()?);
                let count = if kind == "signal" { 1 } else { u32::MAX };
                ops.push(Op::WakeWaiters { channel, count });
            }
            "wait" | "sync" => {
                let (condition, lock) = self.condition_and_mutex(event)?;
                if kind == "sync" {
                    ops.push(Op::WakeWaiters { channel: condition, count: 1 });
                }
                ops.push(Op::ConditionWait { condition, lock });
            }
            // A suspended task waits under its own name, or under the one given: rt-app 1.0 takes the name,
            // versions since June 2025 ignore it.
            _ => {
                let given = event.text()?;
                let name = if kind == "suspend" && given.is_empty() { self.task } else { given };
                let lock = self.resources.mutex(self.builder, name);
                let condition = self.resources.condition(self.builder, name);
                ops.push(Op::Lock { channel: lock });
                ops.push(match kind {
                    "suspend" => Op::ConditionWait { condition, lock },
                    _ => Op::WakeWaiters { channel: condition, count: u32::MAX },
                });
                ops.push(Op::Unlock { channel: lock });
            }
        }
        Ok(())
    }

    fn condition_and_mutex(&mut self, event: &Place<'_>) -> Result<(ChannelId, ChannelId), WorkloadError> {
        let mut names = ["unknown"; 2];
        for entry in event.entries()? {
            match entry.key() {
                "ref" => names[0] = entry.text()?,
                "mutex" => names[1] = entry.text()?,
                _ => return Err(entry.error("unknown here; there are ref and mutex")),
            }
        }
        let condition = self.resources.condition(self.builder, names[0]);
        Ok((condition, self.resources.mutex(self.builder, names[1])))
    }

    /// Timers whose name begins with `unique` belong to one thread, others are shared by all that name them.
    /// Both count from the start of the run (after the delay of the task that uses it first).
    fn timer(&mut self, event: &Place<'_>) -> Result<Op, WorkloadError> {
        let (mut name, mut period) = ("unknown", None);
        for entry in event.entries()? {
            match entry.key() {
                "ref" => name = entry.text()?,
                "period" => period = Some(entry.micros()?),
                "mode" if matches!(entry.text()?, "absolute" | "relative") => {}
                "mode" => return Err(entry.error("must be \"absolute\" or \"relative\"")),
                _ => return Err(entry.error("unknown in a timer; there are ref, period and mode")),
            }
        }
        let period = period.filter(|period| *period > Nanos::ZERO);
        let period = period.ok_or_else(|| event.error("needs a period above 0"))?;
        let key = timer_key(self.task, name);
        let late = if self.resources.absolute.contains(&key) { Late::CatchUp } else { Late::Resync };
        let timer = match key.0 {
            Some(_) => TimerRef::Own(self.builder.own_timer(name)),
            None => TimerRef::Shared(self.builder.shared_timer(name)),
        };
        Ok(Op::Timer { timer, from_start: true, period, deadline: period, late })
    }
}
