//! When a ring recording is worth keeping: what to wait for, and the watch over the target's tasks that sees it.
//!
//! The watch is told every record in time order, so that it judges what happened and not when somebody looked. Not here:
//! the ring itself ([`super::ring`]).

use super::raw::{RawRecord, kind};
use schedlab_model::Nanos;
use schedlab_model::recording::TaskInfo;
use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

/// What to wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// A task of the target waits longer than this for a CPU though it could run.
    RunDelay {
        /// Longer than this.
        above: Nanos,
        /// Only tasks of this name.
        name: Option<String>,
    },
    /// SIGUSR1 sent to the recorder.
    Signal,
    /// The command ends with another exit code than 0.
    ExitNonzero,
    /// The recording ends: the command has ended, or the time is over.
    End,
}

/// A trigger that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is no trigger: give run-delay>TIME (e.g. 'run-delay>20ms', in quotes), run-delay>TIME:NAME, signal, \
     exit-nonzero or end"
)]
pub struct TriggerError(String);

impl FromStr for Trigger {
    type Err = TriggerError;

    fn from_str(text: &str) -> Result<Trigger, TriggerError> {
        let wrong = || TriggerError(text.to_owned());
        match text.trim() {
            "signal" => return Ok(Trigger::Signal),
            "exit-nonzero" => return Ok(Trigger::ExitNonzero),
            "end" => return Ok(Trigger::End),
            _ => {}
        }
        let (what, rest) = text.split_once('>').ok_or_else(wrong)?;
        let (time, name) = match rest.split_once(':') {
            Some((time, name)) if !name.trim().is_empty() => (time, Some(name.trim().to_owned())),
            Some(_) => return Err(wrong()),
            None => (rest, None),
        };
        let above = time.trim().parse().map_err(|_| wrong())?;
        if what.trim() == "run-delay" { Ok(Trigger::RunDelay { above, name }) } else { Err(wrong()) }
    }
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trigger::RunDelay { above, name: None } => write!(f, "run-delay>{}", exact(*above)),
            Trigger::RunDelay { above, name: Some(name) } => write!(f, "run-delay>{}:{name}", exact(*above)),
            Trigger::Signal => f.write_str("signal"),
            Trigger::ExitNonzero => f.write_str("exit-nonzero"),
            Trigger::End => f.write_str("end"),
        }
    }
}

/// In the largest unit that it is whole in.
fn exact(time: Nanos) -> String {
    let units = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)];
    let whole = units.into_iter().find(|(_, scale)| time.0 > 0 && time.0.is_multiple_of(*scale));
    whole.map_or_else(|| format!("{}ns", time.0), |(unit, scale)| format!("{}{unit}", time.0 / scale))
}

/// What fired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fired {
    /// The trigger, as it was given; what ended the recording if none fired.
    pub what: String,
    /// When, since the recording of the file began.
    pub at: Nanos,
    /// When, since the recorder began to watch.
    pub after_start: Nanos,
    /// Whose delay it was: name and thread id.
    pub task: Option<(String, i32)>,
    /// How long it had waited, at least.
    pub delay: Option<Nanos>,
}

impl fmt::Display for Fired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} after {}", self.what, self.after_start)?;
        if let (Some((name, pid)), Some(delay)) = (&self.task, self.delay) {
            write!(f, ": '{name}' (thread {pid}) had waited {delay} for a CPU")?;
        }
        write!(f, "; {} into the file", self.at)
    }
}

/// A late task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Late {
    pub(super) trigger: usize,
    pub(super) time: u64,
    pub(super) pid: u32,
    pub(super) name: String,
    pub(super) delay: Nanos,
}

/// A task of the target.
#[derive(Clone, Debug, Default)]
struct Watched {
    name: String,
    running: bool,
    /// Since when it could run and does not.
    waits: Option<u64>,
    /// Woken while it still ran.
    woken: Option<u64>,
}

/// Follows who of the target waits.
#[derive(Debug)]
pub(super) struct Watch {
    delays: Vec<(usize, Nanos, Option<String>)>,
    tasks: HashMap<u32, Watched>,
}

impl Watch {
    pub(super) fn new(triggers: &[Trigger], existing: &[TaskInfo]) -> Watch {
        let delays = triggers.iter().enumerate().filter_map(|(index, trigger)| match trigger {
            Trigger::RunDelay { above, name } => Some((index, *above, name.clone())),
            _ => None,
        });
        let named = |task: &TaskInfo| Watched { name: task.name.clone(), ..Watched::default() };
        let targets = existing.iter().filter(|task| task.target);
        Watch {
            delays: delays.collect(),
            tasks: targets.map(|task| (task.pid as u32, named(task))).collect(),
        }
    }

    /// The next record; who was late, if it tells so.
    pub(super) fn record(&mut self, raw: &RawRecord) -> Option<Late> {
        if self.delays.is_empty() {
            return None;
        }
        match raw.kind {
            kind::SWITCH => return self.switch(raw),
            kind::WAKING | kind::WAKEUP_NEW => {
                if let Some(task) = self.tasks.get_mut(&(raw.a as u32)) {
                    let since = if task.running { &mut task.woken } else { &mut task.waits };
                    since.get_or_insert(raw.time);
                }
            }
            kind::FORK if raw.flags & 1 != 0 => {
                let name = self.tasks.get(&raw.pid).map(|parent| parent.name.clone()).unwrap_or_default();
                self.tasks.insert(raw.a as u32, Watched { name, ..Watched::default() });
            }
            kind::EXEC | kind::RENAME => {
                if let Some(task) = self.tasks.get_mut(&raw.pid) {
                    task.name = raw.text();
                }
            }
            _ => {}
        }
        None
    }

    fn switch(&mut self, raw: &RawRecord) -> Option<Late> {
        const DEAD: u8 = 4;
        if raw.op == DEAD {
            self.tasks.remove(&raw.pid);
        } else if let Some(task) = self.tasks.get_mut(&raw.pid) {
            let woken = task.woken.take();
            task.waits = if raw.op == 0 { Some(raw.time) } else { woken };
            task.running = false;
        }
        let pid = raw.a as u32;
        let task = self.tasks.get_mut(&pid)?;
        (task.running, task.woken) = (true, None);
        let since = task.waits.take()?;
        self.judge(pid, since, raw.time)
    }

    /// Who still waits and is late already: one that never gets a CPU tells nothing itself.
    pub(super) fn waiting(&self, now: u64) -> Option<Late> {
        let waits = |(pid, task): (&u32, &Watched)| self.judge(*pid, task.waits?, now);
        self.tasks.iter().filter_map(waits).max_by_key(|late| late.delay)
    }

    /// Records were lost: whoever seems to wait may have run meanwhile.
    pub(super) fn forget(&mut self) {
        for task in self.tasks.values_mut() {
            (task.waits, task.woken) = (None, None);
        }
    }

    fn judge(&self, pid: u32, since: u64, time: u64) -> Option<Late> {
        let delay = Nanos(time.saturating_sub(since));
        let name = &self.tasks.get(&pid)?.name;
        let late = |(_, above, only): &&(usize, Nanos, Option<String>)| {
            delay > *above && only.as_ref().is_none_or(|only| only == name)
        };
        let (trigger, ..) = self.delays.iter().find(late)?;
        Some(Late { trigger: *trigger, time, pid, name: name.clone(), delay })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::TaskId;
    use schedlab_model::{CpuId, TaskAttributes};

    fn task(pid: i32, target: bool) -> TaskInfo {
        TaskInfo {
            pid,
            tgid: pid,
            name: format!("task-{pid}"),
            parent: TaskId::IDLE,
            attributes: TaskAttributes::default(),
            target,
            existed: true,
            start_cpu: CpuId(0),
            start_runnable: false,
        }
    }

    fn waking(time: u64, wakee: u64) -> RawRecord {
        RawRecord { time, kind: kind::WAKING, a: wakee, ..RawRecord::default() }
    }

    fn switch(time: u64, prev: u32, state: u8, next: u64) -> RawRecord {
        RawRecord { time, kind: kind::SWITCH, pid: prev, op: state, a: next, ..RawRecord::default() }
    }

    fn watch(expression: &str) -> Watch {
        let trigger: Trigger = expression.parse().expect("a trigger");
        Watch::new(&[Trigger::Signal, trigger], &[task(7, true), task(8, true), task(9, false)])
    }

    #[test]
    fn triggers_are_read_and_told_the_same() {
        for text in ["run-delay>20ms", "run-delay>1500us:audio", "signal", "exit-nonzero", "end"] {
            assert_eq!(text.parse::<Trigger>().expect(text).to_string(), text);
        }
        for text in ["", "run-delay", "run-delay>", "run-delay>20", "run-delay>1ms:", "cpu>5ms", "ends"] {
            let error = text.parse::<Trigger>().expect_err(text).to_string();
            assert!(error.contains("run-delay>TIME") && error.contains("signal"), "{error}");
        }
    }

    #[test]
    fn a_target_that_waits_too_long_is_late() {
        let mut watch = watch("run-delay>1us");
        assert_eq!(watch.record(&waking(100, 7)), None);
        assert_eq!(watch.record(&switch(1_100, 0, 0, 7)), None, "not above");
        // Preempted, and on a CPU again after 2 us.
        assert_eq!(watch.record(&switch(2_000, 7, 0, 9)), None);
        let late = watch.record(&switch(4_000, 9, 0, 7)).expect("late");
        assert_eq!((late.trigger, late.pid, late.delay, late.time), (1, 7, Nanos(2_000), 4_000));
        // Asleep is not waiting; others than the target do not count.
        assert_eq!(watch.record(&switch(5_000, 7, 1, 0)), None);
        assert_eq!(watch.waiting(90_000), None);
        assert_eq!(watch.record(&switch(95_000, 0, 0, 9)), None);
    }

    #[test]
    fn a_task_that_never_gets_a_cpu_is_late_too_unless_records_were_lost() {
        let mut watch = watch("run-delay>1us");
        watch.record(&waking(100, 7));
        watch.record(&waking(600, 8));
        assert_eq!(watch.waiting(1_000), None);
        assert_eq!(watch.waiting(5_000).expect("late").pid, 7, "the one that waits longest");
        watch.forget();
        assert_eq!(watch.waiting(5_000), None);
    }

    #[test]
    fn a_task_woken_on_its_way_to_sleep_waits_from_then_on() {
        let mut watch = watch("run-delay>1us");
        watch.record(&switch(100, 0, 0, 7));
        watch.record(&waking(200, 7));
        watch.record(&switch(300, 7, 1, 0));
        let late = watch.record(&switch(2_000, 0, 0, 7)).expect("late");
        assert_eq!(late.delay, Nanos(1_800));
    }

    #[test]
    fn a_name_narrows_it_and_children_belong_to_the_target() {
        let mut watch = watch("run-delay>1us:audio");
        let fork = RawRecord { kind: kind::FORK, pid: 7, a: 70, flags: 1, ..RawRecord::default() };
        watch.record(&fork);
        let name = RawRecord {
            kind: kind::RENAME,
            pid: 70,
            a: u64::from_ne_bytes(*b"audio\0\0\0"),
            ..RawRecord::default()
        };
        watch.record(&name);
        watch.record(&waking(100, 7));
        watch.record(&waking(100, 70));
        assert_eq!(watch.record(&switch(9_000, 0, 0, 7)), None, "another name");
        let late = watch.record(&switch(9_000, 0, 0, 70)).expect("late");
        assert_eq!((late.pid, late.name.as_str()), (70, "audio"));
    }
}
