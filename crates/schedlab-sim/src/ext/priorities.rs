//! Changes of dynamic priority as events: a scheduler that logs them (`log_changes`) has told when and why.
//!
//! The log is read when events are handed over, and each entry put where its time belongs. Nothing is logged unless the
//! knob asks for it: what the logging costs is part of the run. Also the virtual time that a scheduler keeps of a task.

use super::class::{Attached, Ext, PID_FIRST};
use super::host::BOOT_NS;
use crate::simulation::Simulation;
use schedlab_model::event::{Event, EventKind, PriorityChange, priority_changes};
use schedlab_model::{Nanos, TaskId};

impl Ext {
    /// The task's virtual time, if the scheduler keeps one.
    pub(crate) fn dsq_vtime(&mut self, task: TaskId) -> Option<i64> {
        let ext = self.of(task)?;
        let vtime = ext.host.dsq_vtime(ext.instance.memory(), task.0);
        (vtime != 0).then_some(vtime as i64)
    }
}

impl Attached {
    /// The entries of the log since the last time.
    fn take_changes(&mut self) -> Vec<PriorityChange> {
        let Some(count) = self.global("changes_count").map(|count| count as u64) else { return Vec::new() };
        if count == self.priorities_told {
            return Vec::new();
        }
        let told = std::mem::replace(&mut self.priorities_told, count);
        self.global_bytes("changes").map_or_else(Vec::new, |log| priority_changes(log, told, count).0)
    }
}

impl Simulation {
    /// Puts the changes of priority since the last time among the events, for sinks that want detail.
    pub(crate) fn take_priorities(&mut self) {
        if !self.core.k.trace.detail {
            return;
        }
        let changes = self.core.ext.attached().map_or_else(Vec::new, Attached::take_changes);
        let k = &mut self.core.k;
        let event = |change: PriorityChange| {
            let task = TaskId(u32::try_from(change.pid).ok()?.checked_sub(PID_FIRST)?);
            let PriorityChange { before, after, cause, .. } = change;
            // A callback's clock may be ahead of the events by what it has cost so far.
            let time = Nanos(change.time_ns.saturating_sub(BOOT_NS));
            Some((time, task, EventKind::Priority { task, before, after, cause }))
        };
        let events: Vec<Event> = changes
            .into_iter()
            .filter_map(event)
            .map(|(time, task, kind)| Event { time: time.min(Nanos(k.now)), cpu: k.task(task).cpu, kind })
            .collect();
        k.trace.insert_detail(events.into_iter());
    }
}
