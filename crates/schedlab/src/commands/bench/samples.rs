//! Takes the samples of a benchmark from the events of its run, simulated or recorded.

use schedlab_model::event::{Context, Event, EventKind, EventSink};
use schedlab_model::recording::TaskInfo;
use schedlab_model::{Nanos, TaskId};
use std::sync::atomic::{AtomicBool, Ordering};

/// What `wakeup` measures, as its events come. A run ends when `interrupted` is raised.
pub struct Wakes<'a> {
    waker: Option<TaskId>,
    woken: Option<TaskId>,
    since: Option<Nanos>,
    due: Option<Nanos>,
    interrupted: &'a AtomicBool,
    /// From wake-up to run, in ns.
    pub latencies_ns: Vec<u64>,
    /// From the waker's timer until it runs, in ns.
    pub waker_error_ns: Vec<u64>,
}

impl Wakes<'_> {
    /// Nothing has happened yet.
    pub fn new(interrupted: &AtomicBool) -> Wakes<'_> {
        let (waker, woken, since, due) = (None, None, None, None);
        let (latencies_ns, waker_error_ns) = (Vec::new(), Vec::new());
        Wakes { waker, woken, since, due, interrupted, latencies_ns, waker_error_ns }
    }
}

impl EventSink for Wakes<'_> {
    fn wants_detail(&self) -> bool {
        false
    }

    fn has_enough(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    fn task(&mut self, id: TaskId, info: &TaskInfo) {
        match info.name.as_str() {
            "waker" => self.waker = Some(id),
            "woken" => self.woken = Some(id),
            _ => {}
        }
    }

    fn event(&mut self, event: &Event) {
        match event.kind {
            // Its own program wakes the thread in no other way; what else wakes it is no sample.
            EventKind::Waking { waker, context: Context::Task, wakee, .. }
                if Some(wakee) == self.woken && Some(waker) == self.waker =>
            {
                self.since = Some(event.time);
            }
            EventKind::TimerExpire { task, due } if Some(task) == self.waker => self.due = Some(due),
            EventKind::Switch { next, .. } if Some(next) == self.woken => {
                self.latencies_ns.extend(self.since.take().map(|since| (event.time - since).0));
            }
            EventKind::Switch { next, .. } if Some(next) == self.waker => {
                self.waker_error_ns.extend(self.due.take().map(|due| (event.time - due).0));
            }
            _ => {}
        }
    }
}
