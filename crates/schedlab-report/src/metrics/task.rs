//! What the collector keeps of one task: its state, since when, and its sums.
//!
//! Transitions are decided in [`super`]; here is only the bookkeeping.

use schedlab_model::cpu_set::CpuSet;
use schedlab_model::ids::CpuId;
use schedlab_model::metric::Histogram;
use schedlab_model::recording::TaskInfo;
use schedlab_model::time::Nanos;

/// Why a task waits for a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// Woken.
    Wake,
    /// Taken off its CPU while runnable.
    Preempt,
    /// New.
    New,
}

/// Where a task is between two events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Not born yet, or never heard of.
    Absent,
    /// Runnable or running since before the first event; which of both is not known yet.
    Start,
    Sleeping,
    Queued(Cause),
    Running,
    Dead,
}

/// On which CPUs a waiting task could run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// Every CPU.
    Everywhere,
    /// One CPU only: no other could help it.
    Pinned,
    /// Some CPUs.
    Some(CpuSet),
}

#[derive(Clone, Debug)]
pub(super) struct Task {
    /// Whether attributes are known, by the table or by a fork.
    pub known: bool,
    pub name: String,
    pub target: bool,
    pub weight: u32,
    pub realtime: bool,
    pub reach: Reach,
    pub state: State,
    pub since: Nanos,
    pub queue_cpu: CpuId,
    pub last_cpu: Option<CpuId>,
    /// First instant at which it existed in the run.
    pub began: Option<Nanos>,
    pub ended: Option<Nanos>,
    /// A wake-up that arrived while it ran.
    pub wake_pending: Option<Nanos>,
    pub request_since: Option<Nanos>,
    pub cpu_time: Nanos,
    pub run_delay: Nanos,
    pub sleep: Nanos,
    pub wait_max: Nanos,
    pub involuntary_switches: u64,
    pub voluntary_switches: u64,
    pub migrations: u64,
    pub migrations_cross_cache: u64,
    pub jobs: u64,
    pub deadlines_met: u64,
    pub deadlines_missed: u64,
    pub wakeup_latency: Histogram,
}

impl Task {
    pub fn new(info: &TaskInfo, all: &CpuSet) -> Task {
        let reachable = info.attributes.affinity.and(all);
        let mut task = Task::unknown();
        task.known = true;
        task.name = info.name.clone();
        task.target = info.target;
        task.weight = info.attributes.weight();
        task.realtime = info.attributes.policy.is_realtime();
        task.reach = match reachable.len() {
            _ if reachable == *all => Reach::Everywhere,
            0 | 1 => Reach::Pinned,
            _ => Reach::Some(reachable),
        };
        if info.existed {
            task.began = Some(Nanos::ZERO);
            task.last_cpu = Some(info.start_cpu);
            task.state = if info.start_runnable { State::Start } else { State::Sleeping };
        }
        task
    }

    /// A task of which only the number is known.
    pub fn unknown() -> Task {
        Task {
            known: false,
            name: String::new(),
            target: false,
            weight: 1024,
            realtime: false,
            reach: Reach::Everywhere,
            state: State::Absent,
            since: Nanos::ZERO,
            queue_cpu: CpuId(0),
            last_cpu: None,
            began: None,
            ended: None,
            wake_pending: None,
            request_since: None,
            cpu_time: Nanos::ZERO,
            run_delay: Nanos::ZERO,
            sleep: Nanos::ZERO,
            wait_max: Nanos::ZERO,
            involuntary_switches: 0,
            voluntary_switches: 0,
            migrations: 0,
            migrations_cross_cache: 0,
            jobs: 0,
            deadlines_met: 0,
            deadlines_missed: 0,
            wakeup_latency: Histogram::default(),
        }
    }

    /// A child with this task's attributes and nothing done yet.
    pub fn child(&self) -> Task {
        let mut child = Task::unknown();
        child.known = self.known;
        child.name = self.name.clone();
        child.target = self.target;
        child.weight = self.weight;
        child.realtime = self.realtime;
        child.reach = self.reach;
        child
    }

    pub fn begin(&mut self, state: State, time: Nanos) {
        self.state = state;
        self.since = time;
    }

    pub fn existence_begins(&mut self, time: Nanos) {
        self.began.get_or_insert(time);
    }

    pub fn end_sleep(&mut self, time: Nanos) {
        if self.state == State::Sleeping {
            self.sleep += time.saturating_sub(self.since);
        }
        self.existence_begins(time);
    }

    pub fn end_wait(&mut self, waited: Nanos) {
        self.run_delay += waited;
        self.wait_max = self.wait_max.max(waited);
    }

    pub fn job(&mut self, time: Nanos, deadline: Nanos) {
        self.jobs += 1;
        if deadline != Nanos::MAX {
            let met = time <= deadline;
            self.deadlines_met += u64::from(met);
            self.deadlines_missed += u64::from(!met);
        }
    }

    /// Whether anything happened to it in the run.
    pub fn was_active(&self) -> bool {
        self.cpu_time > Nanos::ZERO || self.run_delay > Nanos::ZERO
    }
}
