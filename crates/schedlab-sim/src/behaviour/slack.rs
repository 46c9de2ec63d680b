//! Timers with slack, which expire early where another timer's interrupt comes between when they are due and the end of their
//! slack: for each CPU those that are pending, the next first. When they expire alone is an event of their task.
//!
//! Linux keeps timers in the order in which they expire alone and looks at the first only (`__hrtimer_run_queues`). All
//! slacks here are the same, so that this is the order in which they are due.

use crate::ahead::{Row, fetch_row};
use schedlab_model::{CpuId, TaskId};
use std::collections::VecDeque;

/// So many timers of a CPU lie in one cache line with its row: where each CPU has a few tasks, all of them.
const NEAR: usize = 3;

/// The pending timers of every CPU. The CPUs that an ideal scheduler has beside them have none: its timers have no slack.
#[derive(Debug, Default)]
pub(crate) struct SlackTimers {
    near: Vec<NearTimers>,
    /// Those of each CPU that come after `NEAR` others.
    far: Vec<VecDeque<Timer>>,
}

/// A timer of a task, and when it is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Timer {
    due: u64,
    task: TaskId,
}

/// The first timers of a CPU, in order.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct NearTimers {
    timers: [Timer; NEAR],
    len: usize,
    /// Whether others come after these.
    more: bool,
}

impl Row for NearTimers {
    const HOT_BYTES: usize = size_of::<NearTimers>();
}

impl SlackTimers {
    /// For so many CPUs.
    pub(crate) fn new(cpus: usize) -> SlackTimers {
        let none = NearTimers { timers: [Timer { due: 0, task: TaskId::IDLE }; NEAR], len: 0, more: false };
        SlackTimers { near: vec![none; cpus], far: vec![VecDeque::new(); cpus] }
    }

    /// Brings the timers of a CPU near.
    pub(crate) fn fetch(&self, cpu: CpuId) {
        fetch_row(&self.near, cpu.index());
    }

    /// A timer of this CPU is armed.
    #[inline]
    pub(crate) fn arm(&mut self, cpu: CpuId, task: TaskId, due: u64) {
        let near = &mut self.near[cpu.index()];
        let timer = Timer { due, task };
        if near.len == NEAR {
            return self.arm_behind(cpu, timer);
        }
        near.insert(timer);
    }

    /// The same for a CPU that has as many timers as lie in its row, or more.
    #[inline(never)]
    fn arm_behind(&mut self, cpu: CpuId, timer: Timer) {
        let (near, far) = (&mut self.near[cpu.index()], &mut self.far[cpu.index()]);
        near.more = true;
        let last = near.timers[NEAR - 1];
        if timer.due < last.due {
            near.len -= 1;
            near.insert(timer);
            return far.push_front(last);
        }
        let at = far.partition_point(|other| other.due <= timer.due);
        far.insert(at, timer);
    }

    /// A timer is no more: it has expired alone, or was cancelled. Nothing changes if it is not one of these.
    #[inline]
    pub(crate) fn forget(&mut self, cpu: CpuId, task: TaskId, due: u64) {
        let Some(near) = self.near.get(cpu.index()) else { return };
        let timer = Timer { due, task };
        match near.pending().iter().position(|other| *other == timer) {
            Some(at) => self.remove(cpu, at),
            None if near.more => self.forget_far(cpu, timer),
            None => {}
        }
    }

    #[inline(never)]
    fn forget_far(&mut self, cpu: CpuId, timer: Timer) {
        let far = &mut self.far[cpu.index()];
        if let Some(at) = far.iter().position(|other| *other == timer) {
            far.remove(at);
        }
        self.near[cpu.index()].more = !far.is_empty();
    }

    /// The next timer of a CPU that may expire in an interrupt at `now`, with when it was due; it is no longer here.
    #[inline]
    pub(crate) fn take_due(&mut self, cpu: CpuId, now: u64) -> Option<(TaskId, u64)> {
        let first = *self.near.get(cpu.index())?.pending().first().filter(|first| first.due <= now)?;
        self.remove(cpu, 0);
        Some((first.task, first.due))
    }

    /// Takes one of the first timers of a CPU out.
    #[inline]
    fn remove(&mut self, cpu: CpuId, at: usize) {
        let near = &mut self.near[cpu.index()];
        near.remove(at);
        if near.more {
            self.move_up(cpu);
        }
    }

    /// The first of the timers behind becomes the last of the first ones.
    #[inline(never)]
    fn move_up(&mut self, cpu: CpuId) {
        let (near, far) = (&mut self.near[cpu.index()], &mut self.far[cpu.index()]);
        if let Some(next) = far.pop_front() {
            near.insert(next);
        }
        near.more = !far.is_empty();
    }
}

impl NearTimers {
    #[inline]
    fn pending(&self) -> &[Timer] {
        &self.timers[..self.len.min(NEAR)]
    }

    /// Puts a timer behind all that are due earlier or at the same time; there is room.
    #[inline]
    fn insert(&mut self, timer: Timer) {
        let mut at = self.len.min(NEAR - 1);
        while at > 0 && self.timers[at - 1].due > timer.due {
            self.timers[at] = self.timers[at - 1];
            at -= 1;
        }
        self.timers[at] = timer;
        self.len += 1;
    }

    #[inline]
    fn remove(&mut self, at: usize) {
        for place in at + 1..NEAR {
            self.timers[place - 1] = self.timers[place];
        }
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::rng::Rng;

    const CPU: CpuId = CpuId(0);

    fn armed(timers: &[(u32, u64)]) -> SlackTimers {
        let mut all = SlackTimers::new(1);
        timers.iter().for_each(|&(task, due)| all.arm(CPU, TaskId(task), due));
        all
    }

    fn taken(mut timers: SlackTimers, now: u64) -> Vec<(u32, u64)> {
        std::iter::from_fn(|| timers.take_due(CPU, now)).map(|(task, due)| (task.0, due)).collect()
    }

    /// Random use against one sorted list, which is often longer than a row.
    #[test]
    fn agrees_with_a_sorted_list_under_random_use() {
        let (mut rng, mut timers, mut list) = (Rng::new(7, 0), SlackTimers::new(1), Vec::<(u64, u32)>::new());
        let mut longest = 0;
        for task in 0..20_000 {
            longest = longest.max(list.len());
            match rng.below(8) {
                0..=3 if list.len() < 9 => {
                    let due = u64::from(task) + rng.below(12);
                    timers.arm(CPU, TaskId(task), due);
                    let at = list.partition_point(|other| other.0 <= due);
                    list.insert(at, (due, task));
                }
                4 if !list.is_empty() => {
                    let (due, task) = list.remove(rng.below(list.len() as u64) as usize);
                    timers.forget(CPU, TaskId(task), due);
                }
                5 => timers.forget(CPU, TaskId(task), u64::from(task)),
                _ => {
                    let now = u64::from(task) + rng.below(6);
                    let due = list.first().copied().filter(|first| first.0 <= now);
                    assert_eq!(timers.take_due(CPU, now), due.map(|(due, task)| (TaskId(task), due)));
                    list.drain(..usize::from(due.is_some()));
                }
            }
        }
        assert_eq!(longest, 9, "many timers are pending at times");
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
