//! Takes the samples of a benchmark from the events of its run, simulated or recorded, or from what its tasks tell.

use schedlab_model::event::{Context, Event, EventKind, EventSink};
use schedlab_model::recording::TaskInfo;
use schedlab_model::{Nanos, TaskId};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

/// What `wakeup` measures, as its events come. A run ends when `interrupted` is raised.
pub struct Wakes<'a> {
    waker: Option<TaskId>,
    woken: Option<TaskId>,
    /// When the broadcast began that has no answer yet, and when the answer came that has no broadcast yet: the waker
    /// may tell of its own only after the woken thread has run on another CPU.
    broadcast: Option<Nanos>,
    answer: Option<Nanos>,
    interrupted: &'a AtomicBool,
    /// From before the broadcast until the woken thread is back from its wait, with the mutex, in ns.
    pub latencies_ns: Vec<u64>,
    /// From the waker's timer until it is back from its sleep, in ns.
    pub waker_error_ns: Vec<u64>,
}

impl Wakes<'_> {
    /// Nothing has happened yet.
    pub fn new(interrupted: &AtomicBool) -> Wakes<'_> {
        let (waker, woken, broadcast, answer) = (None, None, None, None);
        let (latencies_ns, waker_error_ns) = (Vec::new(), Vec::new());
        Wakes { waker, woken, broadcast, answer, interrupted, latencies_ns, waker_error_ns }
    }

    /// Says what a task is called.
    pub fn name(&mut self, id: TaskId, name: &str) {
        match name {
            "waker" => self.waker = Some(id),
            "woken" => self.woken = Some(id),
            _ => {}
        }
    }

    /// A job is over: the woken thread's with its answer, the waker's when its timer has let it go, which has a deadline,
    /// and with its broadcast.
    pub fn job(&mut self, task: TaskId, time: Nanos, released: Nanos, deadline: Nanos) {
        if Some(task) == self.woken {
            self.answer = Some(time);
        } else if Some(task) != self.waker {
            return;
        } else if deadline < Nanos::MAX {
            self.waker_error_ns.push(time.saturating_sub(released).0);
        } else {
            self.broadcast = Some(released);
        }
        self.pair();
    }

    /// A sample is whole when both its ends are known.
    fn pair(&mut self) {
        if let (Some(began), Some(ended)) = (self.broadcast, self.answer) {
            (self.broadcast, self.answer) = (None, None);
            self.latencies_ns.push(ended.saturating_sub(began).0);
        }
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
        self.name(id, &info.name);
    }

    fn event(&mut self, event: &Event) {
        if let EventKind::Job { task, released, deadline } = event.kind {
            self.job(task, event.time, released, deadline);
        }
    }
}

/// When hackbench lets its workers go, from where it counts its time: forks come before. These are the last wake-ups of
/// workers that the parent makes. A run ends when `interrupted` is raised.
pub struct Start<'a> {
    parent: Option<TaskId>,
    workers: BTreeSet<TaskId>,
    interrupted: &'a AtomicBool,
    /// That time; `None` while nobody has gone.
    pub at: Option<Nanos>,
}

impl Start<'_> {
    /// Nothing has happened yet.
    pub fn new(interrupted: &AtomicBool) -> Start<'_> {
        Start { parent: None, workers: BTreeSet::new(), interrupted, at: None }
    }

    /// What of so long a run, in ns, lies behind it.
    pub fn time_since(&self, run: u64) -> u64 {
        run - self.at.map_or(0, |at| at.0.min(run))
    }
}

impl EventSink for Start<'_> {
    fn wants_detail(&self) -> bool {
        false
    }

    fn has_enough(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    fn task(&mut self, id: TaskId, info: &TaskInfo) {
        if info.name == "hackbench" {
            self.parent = Some(id);
        } else if info.name.starts_with("sender") || info.name.starts_with("receiver") {
            self.workers.insert(id);
        }
    }

    fn event(&mut self, event: &Event) {
        if let EventKind::Waking { waker, context: Context::Task, wakee, .. } = event.kind
            && Some(waker) == self.parent
            && self.workers.contains(&wakee)
        {
            self.at = Some(event.time);
        }
    }
}
