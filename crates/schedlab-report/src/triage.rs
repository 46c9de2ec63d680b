//! Triage: where the target's time went, from the recording alone, and what scheduling could gain at most.
//!
//! Every moment of a task's life is running, waiting for a CPU, or asleep for a cause; the parts add up to the
//! lifetime exactly. The makespan is split along the chain of causes that ended it, walked backwards: what
//! the last task did, who woke it, what that one did, and so on. Only waiting on that chain can be gained.
//! Not here: the replay under an ideal scheduler, whose makespan [`Triage::with_ideal`] takes.

use schedlab_model::event::{Context, Operation, PrevState};
use schedlab_model::metric::Histogram;
use schedlab_model::recording::Recording;
use schedlab_model::timeline::{Stretch, StretchKind, Timelines, WaitCause, Wake};
use schedlab_model::{Nanos, TaskId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Why a task slept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SleepCause {
    /// For a pipe.
    Pipe,
    /// For a socket.
    Socket,
    /// For a futex.
    Futex,
    /// For time to pass.
    Timer,
    /// For a disk or other I/O.
    Io,
    /// In `poll`, `select` or `epoll`.
    Poll,
    /// For a child.
    Child,
    /// Not known.
    Unknown,
}

impl SleepCause {
    /// In text.
    pub const fn name(self) -> &'static str {
        match self {
            SleepCause::Pipe => "pipe",
            SleepCause::Socket => "socket",
            SleepCause::Futex => "futex",
            SleepCause::Timer => "timer",
            SleepCause::Io => "I/O",
            SleepCause::Poll => "poll",
            SleepCause::Child => "child",
            SleepCause::Unknown => "unknown cause",
        }
    }

    fn of(state: PrevState, operation: Option<Operation>, wake: Option<Wake>) -> SleepCause {
        match operation {
            Some(Operation::PipeRead | Operation::PipeWrite) => SleepCause::Pipe,
            Some(Operation::SocketReceive | Operation::SocketSend) => SleepCause::Socket,
            Some(Operation::FutexWait | Operation::FutexWake) => SleepCause::Futex,
            Some(Operation::SleepRelative | Operation::SleepAbsolute) => SleepCause::Timer,
            Some(Operation::Poll | Operation::EpollWait) => SleepCause::Poll,
            Some(Operation::WaitChild) => SleepCause::Child,
            Some(Operation::OtherIo) => SleepCause::Io,
            _ if wake.is_some_and(|wake| wake.timer_due.is_some()) => SleepCause::Timer,
            _ if state == PrevState::Uninterruptible => SleepCause::Io,
            _ => SleepCause::Unknown,
        }
    }
}

/// How a span of time was spent.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TimeSpent {
    /// On a CPU, interrupts taken out.
    pub running: Nanos,
    /// On a CPU, but interrupts ran on top.
    pub interrupted: Nanos,
    /// Runnable without a CPU, after a wake-up or at the beginning.
    pub run_delay_wakeup: Nanos,
    /// Runnable without a CPU, after being preempted.
    pub run_delay_preempted: Nanos,
    /// Asleep, by cause.
    pub asleep: BTreeMap<SleepCause, Nanos>,
}

impl TimeSpent {
    /// Runnable without a CPU.
    pub fn run_delay(&self) -> Nanos {
        self.run_delay_wakeup + self.run_delay_preempted
    }

    /// Everything together.
    pub fn total(&self) -> Nanos {
        self.running + self.interrupted + self.run_delay() + self.asleep.values().copied().sum()
    }

    /// Adds the part of a stretch that ends at `until`.
    fn add(&mut self, stretch: &Stretch, until: Nanos) {
        let length = until.saturating_sub(stretch.start);
        match stretch.kind {
            StretchKind::Running { interrupt, .. } => {
                let interrupt = interrupt.min(length);
                self.interrupted += interrupt;
                self.running += length - interrupt;
            }
            StretchKind::Waiting { cause: WaitCause::Preempted } => self.run_delay_preempted += length,
            StretchKind::Waiting { .. } => self.run_delay_wakeup += length,
            StretchKind::Asleep { state, operation, wake } => {
                let cause = SleepCause::of(state, operation.map(|open| open.operation), wake);
                *self.asleep.entry(cause).or_default() += length;
            }
        }
    }

    fn merge(&mut self, other: &TimeSpent) {
        self.running += other.running;
        self.interrupted += other.interrupted;
        self.run_delay_wakeup += other.run_delay_wakeup;
        self.run_delay_preempted += other.run_delay_preempted;
        for (cause, time) in &other.asleep {
            *self.asleep.entry(*cause).or_default() += *time;
        }
    }
}

/// One task's part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskTriage {
    /// The task.
    pub task: TaskId,
    /// Its name.
    pub name: String,
    /// From its first moment in the recording to its last.
    pub lifetime: Nanos,
    /// How it was spent; adds up to the lifetime.
    pub spent: TimeSpent,
}

/// Spans from a wake-up from outside the target to the next sleep: a proxy for requests.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Requests {
    /// Their lengths.
    pub length: Histogram,
    /// How their time was spent, all together.
    pub spent: TimeSpent,
}

/// What scheduling could gain at most.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bound {
    /// What it took: the makespan, or the mean request of a service that did not end.
    pub took: Nanos,
    /// Run delay in it.
    pub run_delay: Nanos,
    /// What no scheduler can go below on this machine.
    pub least: Nanos,
    /// Whether it is about requests.
    pub of_requests: bool,
}

impl Bound {
    /// The most that can be gained, in percent of what it took.
    pub fn gain_percent_max(&self) -> f64 {
        if self.took == Nanos::ZERO {
            return 0.0;
        }
        100.0 * self.took.saturating_sub(self.least).0 as f64 / self.took.0 as f64
    }
}

impl fmt::Display for Bound {
    /// One sentence: `Run delay is 3.00 ms of your 80.0 ms: at most 4 % to gain.`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.of_requests { " of a request" } else { "" };
        let gain = self.gain_percent_max();
        let digits = usize::from(gain < 1.0);
        write!(
            f,
            "Run delay is {} of your {}{what}: at most {gain:.digits$} % to gain.",
            self.run_delay, self.took
        )
    }
}

/// Where the time of the target went.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Triage {
    /// All tasks of the target together.
    pub target: TimeSpent,
    /// Each of them.
    pub tasks: Vec<TaskTriage>,
    /// From the first moment of the target to its end.
    pub makespan: Nanos,
    /// Whether the target ended by itself within the recording.
    pub ended: bool,
    /// The makespan along the chain of causes that ended it. Adds up to the makespan.
    pub chain: TimeSpent,
    /// Requests.
    pub requests: Requests,
    /// CPUs the target could use together.
    pub cpus: u32,
    /// The bound.
    pub bound: Bound,
}

impl Triage {
    /// Looks at a recording.
    pub fn of(recording: &Recording) -> Triage {
        let timelines = Timelines::of(recording);
        let mut target = TimeSpent::default();
        let mut tasks = Vec::new();
        let mut requests = Requests::default();
        for (index, info) in recording.tasks.iter().enumerate().skip(1).filter(|(_, info)| info.target) {
            let stretches = &timelines.tasks[index];
            let (Some(first), Some(last)) = (stretches.first(), stretches.last()) else { continue };
            let mut spent = TimeSpent::default();
            stretches.iter().for_each(|stretch| spent.add(stretch, stretch.end));
            target.merge(&spent);
            collect_requests(recording, stretches, &mut requests);
            let lifetime = last.end - first.start;
            tasks.push(TaskTriage { task: TaskId(index as u32), name: info.name.clone(), lifetime, spent });
        }
        let chain = Chain::walk(recording, &timelines);
        let cpus = usable_cpus(recording);
        let mut triage = Triage {
            target,
            tasks,
            makespan: chain.end.saturating_sub(chain.begin),
            ended: chain.ended,
            chain: chain.spent,
            requests,
            cpus,
            bound: Bound {
                took: Nanos::ZERO,
                run_delay: Nanos::ZERO,
                least: Nanos::ZERO,
                of_requests: false,
            },
        };
        triage.bound = triage.bound_alone();
        triage
    }

    /// Bounds the gain by two replays: how much less an ideal scheduler takes than the recorded kernel's model does.
    /// A replay is compared with a replay only: its costs are modelled, and the recording's are in its run time.
    #[must_use]
    pub fn with_ideal(mut self, ideal_makespan: Nanos, replayed_makespan: Nanos) -> Triage {
        if !self.bound.of_requests && replayed_makespan > Nanos::ZERO {
            let ideal = ideal_makespan.min(replayed_makespan);
            let least = u128::from(self.bound.took.0) * u128::from(ideal.0) / u128::from(replayed_makespan.0);
            self.bound.least = Nanos(least as u64);
        }
        self
    }

    /// From the recording alone: the chain without its run delay, and the work spread over all CPUs.
    fn bound_alone(&self) -> Bound {
        let count = self.requests.length.count();
        if !self.ended && count > 0 {
            let took = Nanos(self.requests.spent.total().0 / count);
            let run_delay = Nanos(self.requests.spent.run_delay().0 / count);
            return Bound { took, run_delay, least: took.saturating_sub(run_delay), of_requests: true };
        }
        let run_delay = self.chain.run_delay();
        let work = Nanos(self.target.running.0 / u64::from(self.cpus.max(1)));
        let least = self.makespan.saturating_sub(run_delay).max(work).min(self.makespan);
        Bound { took: self.makespan, run_delay, least, of_requests: false }
    }

    /// One sentence for the top of every answer.
    pub fn sentence(&self) -> String {
        self.bound.to_string()
    }
}

fn usable_cpus(recording: &Recording) -> u32 {
    let all = recording.machine.topology.all();
    let targets = recording.tasks.iter().skip(1).filter(|task| task.target);
    let usable = all.iter().filter(|&cpu| targets.clone().any(|task| task.attributes.affinity.contains(cpu)));
    usable.count() as u32
}

/// Whether a wake-up came from outside the target.
fn from_outside(recording: &Recording, wake: &Wake) -> bool {
    wake.context != Context::Task || !recording.task(wake.waker).target
}

fn collect_requests(recording: &Recording, stretches: &[Stretch], requests: &mut Requests) {
    let mut open: Option<(Nanos, TimeSpent)> = None;
    for stretch in stretches {
        if let StretchKind::Asleep { wake, .. } = stretch.kind {
            if let Some((since, spent)) = open.take() {
                requests.length.record(stretch.start - since);
                requests.spent.merge(&spent);
            }
            if wake.is_some_and(|wake| from_outside(recording, &wake)) {
                open = Some((stretch.end, TimeSpent::default()));
            }
        } else if let Some((_, spent)) = &mut open {
            spent.add(stretch, stretch.end);
        }
    }
}

/// The chain of causes that ended the target, backwards.
struct Chain {
    spent: TimeSpent,
    begin: Nanos,
    end: Nanos,
    ended: bool,
}

impl Chain {
    fn walk(recording: &Recording, timelines: &Timelines) -> Chain {
        let is_target = |task: usize| task > 0 && recording.tasks[task].target;
        let targets = || (0..recording.tasks.len()).filter(|&task| is_target(task));
        let last_end = |task: usize| timelines.tasks[task].last().map(|stretch| (stretch.end, task));
        let begin = targets().filter_map(|task| timelines.tasks[task].first().map(|s| s.start)).min();
        let (Some(begin), Some((end, last))) = (begin, targets().filter_map(last_end).max()) else {
            let zero = Nanos::ZERO;
            return Chain { spent: TimeSpent::default(), begin: zero, end: zero, ended: false };
        };
        let mut chain = Chain { spent: TimeSpent::default(), begin, end, ended: end < recording.duration };
        let (mut task, mut at) = (last, end);
        let mut hops: usize = timelines.tasks.iter().map(Vec::len).sum::<usize>() * 2 + recording.tasks.len();
        while at > begin && hops > 0 {
            hops -= 1;
            (task, at) = chain.step(recording, timelines, task, at);
        }
        if at > begin {
            *chain.spent.asleep.entry(SleepCause::Unknown).or_default() += at - begin;
        }
        chain
    }

    /// Books what the task did before `at`, or goes over to who caused it.
    fn step(
        &mut self,
        recording: &Recording,
        timelines: &Timelines,
        task: usize,
        at: Nanos,
    ) -> (usize, Nanos) {
        let stretches = &timelines.tasks[task];
        let before = stretches.partition_point(|stretch| stretch.start < at);
        let Some(stretch) = before.checked_sub(1).map(|index| &stretches[index]) else {
            // Before its birth: its parent. Without one, time passed unseen.
            let parent = recording.tasks[task].parent;
            if !parent.is_idle() && !recording.tasks[task].existed {
                return (parent.index(), at);
            }
            *self.spent.asleep.entry(SleepCause::Unknown).or_default() += at - self.begin;
            return (task, self.begin);
        };
        let until = at.min(stretch.end);
        if until < at {
            *self.spent.asleep.entry(SleepCause::Unknown).or_default() += at - until;
        }
        if let StretchKind::Asleep { wake: Some(wake), .. } = stretch.kind
            && wake.context == Context::Task
            && !wake.waker.is_idle()
            && wake.waker.index() != task
            && until == stretch.end
        {
            return (wake.waker.index(), until);
        }
        let clipped = Stretch { start: stretch.start.max(self.begin), ..*stretch };
        self.spent.add(&clipped, until);
        (task, clipped.start)
    }
}

#[cfg(test)]
mod tests;
