//! Timers with slack, which expire early where another timer's interrupt comes between when they are due and the end of their
//! slack: for each CPU those that are pending, the next first. When they expire alone is an event of their task.
//!
//! Linux keeps timers in the order in which they expire alone and looks at the first only (`__hrtimer_run_queues`). All
//! slacks here are the same, so that this is the order in which they are due.

use schedlab_model::{CpuId, TaskId};
use std::collections::VecDeque;

/// The pending timers of every CPU. The CPUs that an ideal scheduler has beside them have none: its timers have no slack.
#[derive(Debug, Default)]
pub(crate) struct SlackTimers {
    by_cpu: Vec<VecDeque<Timer>>,
}

/// A timer of a task, and when it is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Timer {
    due: u64,
    task: TaskId,
}

impl SlackTimers {
    /// For so many CPUs.
    pub(crate) fn new(cpus: usize) -> SlackTimers {
        SlackTimers { by_cpu: vec![VecDeque::new(); cpus] }
    }

    /// A timer of this CPU is armed.
    #[inline]
    pub(crate) fn arm(&mut self, cpu: CpuId, task: TaskId, due: u64) {
        let timers = &mut self.by_cpu[cpu.index()];
        if timers.back().is_none_or(|last| last.due <= due) {
            return timers.push_back(Timer { due, task });
        }
        let at = timers.partition_point(|other| other.due <= due);
        timers.insert(at, Timer { due, task });
    }

    /// A timer is no more: it has expired alone, or was cancelled. Nothing changes if it is not one of these.
    #[inline]
    pub(crate) fn forget(&mut self, cpu: CpuId, task: TaskId, due: u64) {
        let Some(timers) = self.by_cpu.get_mut(cpu.index()) else { return };
        if timers.front() == Some(&Timer { due, task }) {
            timers.pop_front();
            return;
        }
        let from = timers.partition_point(|other| other.due < due);
        let equal = timers.range(from..).take_while(|other| other.due == due);
        if let Some(at) = equal.into_iter().position(|other| other.task == task) {
            timers.remove(from + at);
        }
    }

    /// The next timer of a CPU that may expire in an interrupt at `now`, with when it was due; it is no longer here.
    #[inline]
    pub(crate) fn take_due(&mut self, cpu: CpuId, now: u64) -> Option<(TaskId, u64)> {
        let timers = self.by_cpu.get_mut(cpu.index())?;
        timers.front().filter(|first| first.due <= now)?;
        timers.pop_front().map(|Timer { due, task }| (task, due))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CPU: CpuId = CpuId(0);

    fn armed(timers: &[(u32, u64)]) -> SlackTimers {
        let mut all = SlackTimers::new(1);
        timers.iter().for_each(|&(task, due)| all.arm(CPU, TaskId(task), due));
        all
    }

    fn taken(mut timers: SlackTimers, now: u64) -> Vec<(u32, u64)> {
        std::iter::from_fn(|| timers.take_due(CPU, now)).map(|(task, due)| (task.0, due)).collect()
    }

    #[test]
    fn timers_are_taken_as_they_are_due_and_not_before() {
        let timers = [(1, 30), (2, 10), (3, 20), (4, 20), (5, 40)];
        assert_eq!(taken(armed(&timers), 30), [(2, 10), (3, 20), (4, 20), (1, 30)]);
        assert_eq!(taken(armed(&timers), 9), []);
    }

    #[test]
    fn only_the_timer_that_is_meant_is_forgotten() {
        let mut timers = armed(&[(1, 10), (2, 20), (3, 20), (4, 20), (5, 30)]);
        timers.forget(CPU, TaskId(3), 20);
        timers.forget(CPU, TaskId(1), 10);
        timers.forget(CPU, TaskId(5), 29);
        timers.forget(CPU, TaskId(9), 20);
        assert_eq!(taken(timers, 100), [(2, 20), (4, 20), (5, 30)]);
    }
}
