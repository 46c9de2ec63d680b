//! One run's events to one run's numbers: [`MetricsCollector`] is a sink that any recorder, simulator or
//! reader of recordings can feed.
//!
//! It keeps no events, so a run of millions costs a few hundred bytes a task. Definitions are those of
//! `schedlab_model::metric`; how runs are compared is in [`crate::compare`].
//!
//! What is cut off by the ends of a run is never extrapolated: a wait that began before the first event
//! or is open at the end counts in sums of time and in the longest wait, but in no histogram.

mod cpus;
mod finish;
mod task;
#[cfg(test)]
mod tests;

use cpus::Cpus;
use schedlab_model::event::{Context, Event, EventKind, EventSink, PrevState};
use schedlab_model::ids::{CpuId, TaskId};
use schedlab_model::metric::{Histogram, RunMetrics};
use schedlab_model::recording::{Recording, TaskInfo};
use schedlab_model::time::Nanos;
use schedlab_model::topology::{Distance, Topology};
use task::{Cause, State, Task};

/// A wake-up that arrives this shortly before its task leaves the CPU to sleep raced with the sleep: the
/// kernel queues such a task as soon as the switch is over.
const WAKE_RACE_MAX: Nanos = Nanos::from_micros(20);

/// Computes [`RunMetrics`] from a stream of events.
#[derive(Clone, Debug)]
pub struct MetricsCollector {
    topology: Topology,
    tasks: Vec<Task>,
    cpus: Cpus,
    switches: u64,
    run_delay: Histogram,
    slice_length: Histogram,
    request: Histogram,
}

impl MetricsCollector {
    /// For a run of these tasks (row 0 is the idle task) on these CPUs. Tasks beyond the table may appear
    /// by forking: they take name, target flag, weight and affinity from their parent.
    pub fn new(tasks: &[TaskInfo], topology: &Topology) -> MetricsCollector {
        let all = topology.all();
        let mut cpus = Cpus::new(topology.cpu_count());
        for info in tasks.iter().skip(1).filter(|info| info.existed && info.start_runnable) {
            cpus.assume_busy(info.start_cpu);
        }
        MetricsCollector {
            topology: topology.clone(),
            tasks: tasks.iter().map(|info| Task::new(info, &all)).collect(),
            cpus,
            switches: 0,
            run_delay: Histogram::default(),
            slice_length: Histogram::default(),
            request: Histogram::default(),
        }
    }

    /// The numbers of a whole recording.
    pub fn of_recording(recording: &Recording) -> RunMetrics {
        let mut collector = MetricsCollector::new(&recording.tasks, &recording.machine.topology);
        recording.events.iter().for_each(|event| collector.event(event));
        collector.finish(recording.duration)
    }

    /// The numbers of a run that ended at `end`.
    #[must_use]
    pub fn finish(mut self, end: Nanos) -> RunMetrics {
        self.cpus.advance(end);
        self.close_open_states(end);
        finish::run_metrics(&self, end)
    }

    fn task(&mut self, task: TaskId) -> &mut Task {
        if task.index() >= self.tasks.len() {
            self.tasks.resize_with(task.index() + 1, Task::unknown);
        }
        &mut self.tasks[task.index()]
    }

    fn fork(&mut self, parent: TaskId, child: TaskId) {
        let inherited = self.task(parent).child();
        let child = self.task(child);
        if !child.known {
            *child = inherited;
        }
    }

    fn waking(&mut self, time: Nanos, kind: &EventKind) {
        let EventKind::Waking { waker, context, wakee, wakee_cpu } = *kind else { return };
        if wakee.is_idle() {
            return;
        }
        let outside = context != Context::Task || waker.is_idle() || !self.task(waker).target;
        let task = self.task(wakee);
        match task.state {
            State::Sleeping | State::Absent => {
                task.end_sleep(time);
                if outside && task.target {
                    task.request_since = Some(time);
                }
                self.enqueue(wakee, wakee_cpu, time, Cause::Wake);
            }
            State::Running => task.wake_pending = Some(time),
            State::Start | State::Queued(_) | State::Dead => {}
        }
    }

    fn enqueue(&mut self, id: TaskId, cpu: CpuId, time: Nanos, cause: Cause) {
        let task = &mut self.tasks[id.index()];
        task.begin(State::Queued(cause), time);
        task.queue_cpu = cpu;
        self.cpus.enqueue(id, cpu, task.reach);
    }

    fn wakeup_new(&mut self, id: TaskId, cpu: CpuId, time: Nanos) {
        let task = self.task(id);
        if matches!(task.state, State::Absent | State::Sleeping) {
            task.existence_begins(time);
            self.enqueue(id, cpu, time, Cause::New);
        }
    }

    fn migrate(&mut self, id: TaskId, to: CpuId) {
        let task = self.task(id);
        if matches!(task.state, State::Queued(_)) {
            let (from, reach) = (task.queue_cpu, task.reach);
            task.queue_cpu = to;
            self.cpus.dequeue(id, from, reach);
            self.cpus.enqueue(id, to, reach);
        }
    }

    fn switch(&mut self, time: Nanos, cpu: CpuId, prev: TaskId, prev_state: PrevState, next: TaskId) {
        self.switches += 1;
        let seen_before = self.cpus.note_switch(cpu);
        if !prev.is_idle() {
            self.switch_out(time, cpu, prev, prev_state, seen_before);
        }
        self.cpus.set_idle(cpu, next.is_idle());
        if !next.is_idle() {
            self.switch_in(time, cpu, next);
        }
    }

    fn switch_out(
        &mut self,
        time: Nanos,
        cpu: CpuId,
        id: TaskId,
        state: PrevState,
        seen_before: Option<Nanos>,
    ) {
        let task = self.task(id);
        if let State::Queued(_) = task.state {
            // Its switch in was lost: what it did since is unknown.
            let (from, reach) = (task.queue_cpu, task.reach);
            self.cpus.dequeue(id, from, reach);
        }
        let task = &mut self.tasks[id.index()];
        if task.state == State::Running {
            let length = time.saturating_sub(task.since);
            task.cpu_time += length;
            if task.target {
                self.slice_length.record(length);
            }
        } else {
            // It ran since the CPU's last switch, or since the start if this is the CPU's first.
            task.cpu_time += time.saturating_sub(seen_before.unwrap_or(Nanos::ZERO));
            task.existence_begins(seen_before.unwrap_or(Nanos::ZERO));
        }
        task.last_cpu = Some(cpu);
        match state {
            PrevState::Runnable => {
                task.involuntary_switches += 1;
                self.enqueue(id, cpu, time, Cause::Preempt);
            }
            PrevState::Dead => {
                task.voluntary_switches += 1;
                task.ended.get_or_insert(time);
                task.begin(State::Dead, time);
                self.end_request(time, id);
            }
            PrevState::Interruptible | PrevState::Uninterruptible | PrevState::Stopped => {
                task.voluntary_switches += 1;
                task.begin(State::Sleeping, time);
                self.end_request(time, id);
            }
        }
    }

    fn end_request(&mut self, time: Nanos, id: TaskId) {
        if let Some(since) = self.tasks[id.index()].request_since.take() {
            self.request.record(time.saturating_sub(since));
        }
    }

    fn switch_in(&mut self, time: Nanos, cpu: CpuId, id: TaskId) {
        let task = self.task(id);
        let waited = time.saturating_sub(task.since);
        match task.state {
            State::Queued(cause) => {
                let (from, reach) = (task.queue_cpu, task.reach);
                task.end_wait(waited);
                if cause == Cause::Wake {
                    task.wakeup_latency.record(waited);
                }
                if task.target {
                    self.run_delay.record(waited);
                }
                self.cpus.dequeue(id, from, reach);
            }
            State::Start => task.end_wait(waited),
            State::Sleeping => self.switch_in_from_sleep(time, id),
            State::Absent => task.existence_begins(time),
            State::Running | State::Dead => {}
        }
        let task = &mut self.tasks[id.index()];
        task.begin(State::Running, time);
        task.wake_pending = None;
        if let Some(last) = task.last_cpu.replace(cpu).filter(|&last| last != cpu) {
            let known = last.index().max(cpu.index()) < self.topology.cpu_count();
            task.migrations += 1;
            task.migrations_cross_cache +=
                u64::from(known && self.topology.distance(last, cpu) > Distance::Cache);
        }
    }

    /// A task runs that was not seen to be woken. If a wake-up raced with its going to sleep, it waited
    /// since then; otherwise the event was lost and nothing is known of the wait.
    fn switch_in_from_sleep(&mut self, time: Nanos, id: TaskId) {
        let task = &mut self.tasks[id.index()];
        let slept_since = task.since;
        let raced = task.wake_pending.is_some_and(|woken| slept_since.saturating_sub(woken) <= WAKE_RACE_MAX);
        if !raced {
            task.end_sleep(time);
            return;
        }
        let waited = time.saturating_sub(slept_since);
        task.end_wait(waited);
        task.wakeup_latency.record(waited);
        if task.target {
            self.run_delay.record(waited);
        }
    }

    fn attributes(&mut self, id: TaskId, event: &EventKind) {
        if let EventKind::AttributesChanged { policy, nice, .. } = *event {
            let task = self.task(id);
            task.weight = if policy == schedlab_model::policy::Policy::Idle {
                schedlab_model::policy::WEIGHT_IDLE
            } else {
                nice.weight()
            };
            task.realtime = policy.is_realtime();
        }
    }

    fn close_open_states(&mut self, end: Nanos) {
        for cpu in 0..self.topology.cpu_count() {
            if self.cpus.last_switch(CpuId(cpu as u32)).is_some() {
                continue;
            }
            // No switch at all: whoever was there at the start ran from end to end.
            let here =
                |task: &&mut Task| task.state == State::Start && task.last_cpu == Some(CpuId(cpu as u32));
            if let Some(task) = self.tasks.iter_mut().find(here) {
                task.begin(State::Running, Nanos::ZERO);
            }
        }
        for task in &mut self.tasks {
            let open = end.saturating_sub(task.since);
            match task.state {
                State::Running => task.cpu_time += open,
                State::Queued(_) | State::Start => task.end_wait(open),
                State::Sleeping => task.sleep += open,
                State::Absent | State::Dead => {}
            }
        }
    }
}

impl EventSink for MetricsCollector {
    fn wants_detail(&self) -> bool {
        false
    }

    fn task(&mut self, task: TaskId, info: &TaskInfo) {
        let all = self.topology.all();
        if info.existed && info.start_runnable && !task.is_idle() {
            self.cpus.assume_busy(info.start_cpu);
        }
        *MetricsCollector::task(self, task) = Task::new(info, &all);
    }

    fn event(&mut self, event: &Event) {
        let Event { time, cpu, ref kind } = *event;
        self.cpus.advance(time);
        match *kind {
            EventKind::Switch { prev, prev_state, next } => self.switch(time, cpu, prev, prev_state, next),
            EventKind::Waking { .. } => self.waking(time, kind),
            EventKind::WakeupNew { task, target_cpu } => self.wakeup_new(task, target_cpu, time),
            EventKind::Migrate { task, to, .. } => self.migrate(task, to),
            EventKind::Fork { parent, child } => self.fork(parent, child),
            EventKind::Exit { task } => {
                self.task(task).ended.get_or_insert(time);
            }
            EventKind::AttributesChanged { task, .. } => self.attributes(task, kind),
            EventKind::Job { task, deadline, .. } => self.task(task).job(time, deadline),
            _ => {}
        }
    }
}
