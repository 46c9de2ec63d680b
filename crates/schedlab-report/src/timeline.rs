//! What happened when: stays on CPUs, wake-ups, queue lengths, rank keys and virtual runtimes of one run, in the order of
//! time. Pictures and traces are made from it; numbers are not ([`crate::metrics`] makes those).

use schedlab_model::event::{Context, Event, EventKind, PrevState, PriorityCause, VruntimeClock};
use schedlab_model::ids::{CpuId, TaskId};
use schedlab_model::recording::TaskInfo;
use schedlab_model::time::Nanos;
use std::collections::BTreeMap;

/// One stay of a task on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stay {
    /// Who.
    pub task: TaskId,
    /// Where.
    pub cpu: CpuId,
    /// From.
    pub start: Nanos,
    /// To; the end of the run if it was still there.
    pub end: Nanos,
    /// In what state it left; `None` if it was still there.
    pub left: Option<PrevState>,
    /// The wake-up that it follows: an index into [`Timeline::wakes`].
    pub wake: Option<usize>,
}

/// One wake-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wake {
    /// When.
    pub time: Nanos,
    /// On what CPU it was made.
    pub cpu: CpuId,
    /// By whom; `None` if an interrupt made it.
    pub waker: Option<TaskId>,
    /// Who is woken.
    pub wakee: TaskId,
    /// When it ran, if it did.
    pub ran: Option<Nanos>,
}

/// A number that holds from an instant on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point<Id> {
    /// From when.
    pub time: Nanos,
    /// Of what.
    pub of: Id,
    /// The number.
    pub value: i64,
}

/// A change of a dynamic priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PriorityStep {
    /// When.
    pub time: Nanos,
    /// Whose.
    pub task: TaskId,
    /// What it was. Lower runs sooner.
    pub before: u8,
    /// What it is.
    pub after: u8,
    /// Why.
    pub cause: PriorityCause,
}

/// A queue that orders tasks by virtual runtime. Each has a clock of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Queue {
    /// Of this CPU.
    pub cpu: CpuId,
    /// Of the fair class, or of a sched_ext scheduler.
    pub clock: VruntimeClock,
    /// Of this control group, by the first task that was in it.
    pub group: TaskId,
}

/// The virtual runtime of a task as it came to a CPU or had left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VruntimePoint {
    /// When.
    pub time: Nanos,
    /// Whose.
    pub task: TaskId,
    /// On whose queue.
    pub queue: Queue,
    /// Whether it runs from here on.
    pub runs: bool,
    /// In ns of a task of weight 1024, as the queue counts.
    pub value: i64,
}

/// A run as pictures need it.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// Names by task; row 0 is idle.
    pub names: Vec<String>,
    /// Number of CPUs.
    pub cpus: usize,
    /// Length of the run.
    pub length: Nanos,
    /// Stays, by start.
    pub stays: Vec<Stay>,
    /// Wake-ups, by time.
    pub wakes: Vec<Wake>,
    /// Tasks waiting on a CPU's queue.
    pub queues: Vec<Point<CpuId>>,
    /// Rank keys as the scheduler published them: lower runs sooner.
    pub ranks: Vec<Point<TaskId>>,
    /// Changes of dynamic priority, if the scheduler logged them.
    pub priorities: Vec<PriorityStep>,
    /// Virtual runtimes, if the run told them; none of a sched_ext scheduler with dynamic priorities.
    pub vruntimes: Vec<VruntimePoint>,
}

#[derive(Clone, Copy, Default)]
struct TaskState {
    /// On whose queue it waits.
    queued: Option<CpuId>,
    wake: Option<usize>,
    on_cpu: bool,
}

struct Builder {
    timeline: Timeline,
    tasks: Vec<TaskState>,
    /// Index of the open stay of each CPU.
    open: Vec<Option<usize>>,
    waiting: Vec<i64>,
    seen: Vec<bool>,
    /// Each task's group, by the first task that was in it.
    groups: Vec<TaskId>,
}

impl Timeline {
    /// Of a run's events.
    pub fn new(events: &[Event], tasks: &[TaskInfo], cpus: usize, length: Nanos) -> Timeline {
        let mut builder = Builder {
            timeline: Timeline {
                names: tasks.iter().map(|task| task.name.clone()).collect(),
                cpus,
                length,
                ..Timeline::default()
            },
            tasks: vec![TaskState::default(); tasks.len()],
            open: vec![None; cpus],
            waiting: vec![0; cpus],
            seen: vec![false; cpus],
            groups: groups(tasks),
        };
        events.iter().for_each(|event| builder.event(event));
        let Builder { mut timeline, .. } = builder;
        if !timeline.priorities.is_empty() {
            // Who has dynamic priorities orders its queues by them: what the kernel calls virtual time there is no time.
            timeline.vruntimes.retain(|point| point.queue.clock != VruntimeClock::Ext);
        }
        timeline
    }

    /// Name of a task.
    pub fn name(&self, task: TaskId) -> &str {
        self.names.get(task.index()).map_or("?", String::as_str)
    }
}

/// The group of each task, by the first task in it.
fn groups(tasks: &[TaskInfo]) -> Vec<TaskId> {
    let mut first: BTreeMap<&str, TaskId> = BTreeMap::new();
    let mut groups = Vec::with_capacity(tasks.len());
    for (row, task) in (0_u32..).zip(tasks) {
        groups.push(*first.entry(&task.attributes.cgroup).or_insert(TaskId(row)));
    }
    groups
}

impl Builder {
    fn event(&mut self, event: &Event) {
        let Event { time, cpu, kind } = *event;
        if cpu.index() >= self.timeline.cpus {
            return;
        }
        match kind {
            EventKind::Switch { prev, prev_state, next } => self.switch(time, cpu, prev, prev_state, next),
            EventKind::Waking { waker, context, wakee, wakee_cpu } => {
                let waker = (context == Context::Task && !waker.is_idle()).then_some(waker);
                self.wake(Wake { time, cpu, waker, wakee, ran: None }, wakee_cpu);
            }
            EventKind::WakeupNew { task, target_cpu } => self.enqueue(time, task, target_cpu),
            EventKind::Migrate { task, to, .. } if self.task(task).queued.is_some() => {
                self.dequeue(time, task);
                self.enqueue(time, task, to);
            }
            EventKind::Rank { task, key } => {
                self.task(task);
                self.timeline.ranks.push(Point { time, of: task, value: key });
            }
            EventKind::Vruntime { task, clock, vruntime } => {
                let runs = self.task(task).on_cpu;
                let group = self.groups.get(task.index()).copied().unwrap_or(TaskId::IDLE);
                let queue = Queue { cpu, clock, group };
                self.timeline.vruntimes.push(VruntimePoint { time, task, queue, runs, value: vruntime });
            }
            EventKind::Priority { task, before, after, cause } => {
                self.task(task);
                self.timeline.priorities.push(PriorityStep { time, task, before, after, cause });
            }
            EventKind::Fork { parent, child } if child.index() >= self.timeline.names.len() => {
                let name = self.timeline.name(parent).to_owned();
                self.task(child);
                self.timeline.names[child.index()] = name;
            }
            _ => {}
        }
    }

    fn task(&mut self, task: TaskId) -> &mut TaskState {
        if task.index() >= self.tasks.len() {
            self.tasks.resize(task.index() + 1, TaskState::default());
        }
        while self.timeline.names.len() < self.tasks.len() {
            let number = self.timeline.names.len();
            self.timeline.names.push(format!("task {number}"));
        }
        &mut self.tasks[task.index()]
    }

    fn wake(&mut self, wake: Wake, wakee_cpu: CpuId) {
        let index = self.timeline.wakes.len();
        let task = self.task(wake.wakee);
        if task.on_cpu || task.queued.is_some() {
            return;
        }
        task.wake = Some(index);
        self.timeline.wakes.push(wake);
        self.enqueue(wake.time, wake.wakee, wakee_cpu);
    }

    fn enqueue(&mut self, time: Nanos, task: TaskId, cpu: CpuId) {
        if task.is_idle() || cpu.index() >= self.timeline.cpus {
            return;
        }
        let state = self.task(task);
        if state.queued.is_none() {
            state.queued = Some(cpu);
            self.count(time, cpu, 1);
        }
    }

    fn dequeue(&mut self, time: Nanos, task: TaskId) {
        if let Some(cpu) = self.task(task).queued.take() {
            self.count(time, cpu, -1);
        }
    }

    fn count(&mut self, time: Nanos, cpu: CpuId, by: i64) {
        self.waiting[cpu.index()] += by;
        let value = self.waiting[cpu.index()];
        self.timeline.queues.push(Point { time, of: cpu, value });
    }

    fn switch(&mut self, time: Nanos, cpu: CpuId, prev: TaskId, state: PrevState, next: TaskId) {
        if let Some(open) = self.open[cpu.index()].take() {
            let stay = &mut self.timeline.stays[open];
            stay.end = time;
            stay.left = Some(state);
        } else if !prev.is_idle() && !self.seen[cpu.index()] {
            // The first switch of a CPU: its task was there from the start.
            let left = Some(state);
            self.timeline.stays.push(Stay {
                task: prev,
                cpu,
                start: Nanos::ZERO,
                end: time,
                left,
                wake: None,
            });
        }
        self.seen[cpu.index()] = true;
        if !prev.is_idle() {
            self.task(prev).on_cpu = false;
            if state == PrevState::Runnable {
                self.enqueue(time, prev, cpu);
            }
        }
        if !next.is_idle() {
            self.dequeue(time, next);
            let task = self.task(next);
            task.on_cpu = true;
            let wake = task.wake.take();
            if let Some(wake) = wake {
                self.timeline.wakes[wake].ran = Some(time);
            }
            self.open[cpu.index()] = Some(self.timeline.stays.len());
            let end = self.timeline.length.max(time);
            self.timeline.stays.push(Stay { task: next, cpu, start: time, end, left: None, wake });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_by_priority_are_no_virtual_runtimes() {
        let at = |us, kind| Event { time: Nanos::from_micros(us), cpu: CpuId(0), kind };
        let (task, vruntime) = (TaskId(1), 66_000);
        let told = [VruntimeClock::Fair, VruntimeClock::Ext]
            .map(|clock| at(5, EventKind::Vruntime { task, clock, vruntime }));
        let cause = PriorityCause::Slept;
        let change = at(9, EventKind::Priority { task, before: 120, after: 119, cause });
        let clocks = |events: &[Event]| -> Vec<VruntimeClock> {
            let timeline = Timeline::new(events, &[], 1, Nanos::from_micros(40));
            timeline.vruntimes.iter().map(|point| point.queue.clock).collect()
        };
        assert_eq!(clocks(&told), [VruntimeClock::Fair, VruntimeClock::Ext]);
        assert_eq!(clocks(&[told[0], told[1], change]), [VruntimeClock::Fair]);
    }

    #[test]
    fn stays_wakes_and_queues_follow_the_events() {
        let at = |us, kind| Event { time: Nanos::from_micros(us), cpu: CpuId(0), kind };
        let switch = |us, prev: u32, prev_state, next: u32| {
            at(us, EventKind::Switch { prev: TaskId(prev), prev_state, next: TaskId(next) })
        };
        let wake = |us, waker: u32, wakee: u32| {
            let (waker, wakee, wakee_cpu) = (TaskId(waker), TaskId(wakee), CpuId(0));
            at(us, EventKind::Waking { waker, context: Context::Task, wakee, wakee_cpu })
        };
        let events = [
            switch(5, 1, PrevState::Interruptible, 0),
            wake(10, 0, 1),
            switch(12, 0, PrevState::Runnable, 1),
            wake(20, 1, 2),
            wake(21, 1, 2),
            switch(30, 1, PrevState::Runnable, 2),
        ];
        let timeline = Timeline::new(&events, &[], 1, Nanos::from_micros(40));
        let stays: Vec<(u32, u64, u64, Option<usize>)> = timeline
            .stays
            .iter()
            .map(|stay| (stay.task.0, stay.start.0 / 1_000, stay.end.0 / 1_000, stay.wake))
            .collect();
        assert_eq!(stays, [(1, 0, 5, None), (1, 12, 30, Some(0)), (2, 30, 40, Some(1))]);
        let queue: Vec<(u64, i64)> =
            timeline.queues.iter().map(|point| (point.time.0 / 1_000, point.value)).collect();
        assert_eq!(queue, [(10, 1), (12, 0), (20, 1), (30, 2), (30, 1)]);
        assert_eq!(timeline.wakes.len(), 2, "a second wake-up of a waiting task is none");
        assert_eq!(timeline.wakes[1].ran, Some(Nanos::from_micros(30)));
        assert_eq!((timeline.wakes[0].waker, timeline.wakes[1].waker), (None, Some(TaskId(1))));
    }
}
