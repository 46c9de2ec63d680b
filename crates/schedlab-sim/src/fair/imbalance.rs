//! From whom a CPU pulls, and how much: `sched_balance_find_src_group`, `calculate_imbalance`.
//!
//! Simplified: CPUs are compared one by one, which is what Linux does within a cache without SMT; wider groups are not
//! summed up. Averages of other CPUs are those of their own last update, as there. Who calls: [`super::balance`].

use super::balance::{IdleType, Pass};
use super::group::task_h_load;
use super::params::Generation;
use super::select::IMBALANCE_PCT;
use crate::kernel::Kernel;
use schedlab_model::topology::Distance;
use schedlab_model::{CpuId, TaskId};

/// How a CPU stands (`enum group_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    HasSpare,
    FullyBusy,
    Overloaded,
}

/// What is known of a CPU (`struct sg_lb_stats` of a group of one).
#[derive(Clone, Copy, Debug)]
struct Stats {
    cpu: CpuId,
    standing: Standing,
    /// Average load in proportion to capacity.
    load: u64,
    util: u64,
    capacity: u64,
    nr_running: u64,
}

impl Stats {
    fn of(k: &Kernel, cpu: CpuId) -> Stats {
        let average = &k.fair.rqs[cpu.index()].average;
        let capacity = u64::from(k.cpu(cpu).capacity);
        let nr_running = u64::from(k.cpu(cpu).nr_running);
        Stats {
            cpu,
            standing: classify(nr_running, capacity, average.util, average.runnable),
            load: average.load * 1_024 / capacity,
            util: average.util,
            capacity,
            nr_running,
        }
    }

    /// What `update_sd_pick_busiest` compares.
    fn rank(&self) -> (Standing, u64) {
        let by = if self.standing == Standing::HasSpare { self.nr_running } else { self.load };
        (self.standing, by)
    }
}

/// `group_classify`: by tasks, use and how many tasks are runnable on average.
fn classify(nr_running: u64, capacity: u64, util: u64, runnable: u64) -> Standing {
    let (util, runnable) = (util * IMBALANCE_PCT, runnable * 100);
    let crowded = capacity * IMBALANCE_PCT < runnable;
    match nr_running {
        0 => Standing::HasSpare,
        1 if capacity * 100 > util && !crowded => Standing::HasSpare,
        1 => Standing::FullyBusy,
        _ if capacity * 100 < util || crowded => Standing::Overloaded,
        _ if capacity * 100 > util => Standing::HasSpare,
        _ => Standing::FullyBusy,
    }
}

/// How much is to be moved (`enum migration_type` and `imbalance`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Amount {
    /// `migrate_task`.
    Tasks(u64),
    /// `migrate_load`.
    Load(u64),
    /// `migrate_util`.
    Util(u64),
}

impl Amount {
    pub(super) fn is_nothing(&self) -> bool {
        matches!(self, Amount::Tasks(0) | Amount::Load(0) | Amount::Util(0))
    }

    /// Whether the task is not too much, which failed attempts soften; then it is taken off the amount.
    pub(super) fn takes(&mut self, k: &Kernel, task: TaskId, failed: u32) -> bool {
        let (left, size) = match self {
            Amount::Tasks(left) => {
                *left -= 1;
                return true;
            }
            Amount::Load(left) => (left, task_h_load(&k.fair, task).max(1)),
            Amount::Util(left) => (left, k.fair.entity(task).average.util),
        };
        let fits = size.checked_shr(failed).unwrap_or(0) <= *left;
        if fits {
            *left = left.saturating_sub(size);
        }
        fits
    }
}

/// The CPU to pull from and how much; `None` if all is balanced.
pub(super) fn find_source(k: &Kernel, pass: &Pass) -> Option<(CpuId, Amount)> {
    let local = Stats::of(k, pass.cpu);
    let mut busiest: Option<Stats> = None;
    let (mut load, mut capacity) = (0, 0);
    // Groups are linked in a ring that begins with the CPU's own; of equals the first one counts.
    let span = k.domains.span(pass.span);
    let after = span.iter().filter(|cpu| *cpu > pass.cpu);
    for cpu in after.chain(span.iter().take_while(|cpu| *cpu < pass.cpu)) {
        let rq = &k.fair.rqs[cpu.index()];
        load += rq.average.load;
        capacity += u64::from(k.cpu(cpu).capacity);
        // A real-time task that runs there makes all fair ones wait.
        if rq.nr_runnable > u32::from(rq.curr.is_some()) {
            let stats = Stats::of(k, cpu);
            if busiest.is_none_or(|found| stats.rank() > found.rank()) {
                busiest = Some(stats);
            }
        }
    }
    let busiest = busiest?;
    load += k.fair.rqs[pass.cpu.index()].average.load;
    let average = load * 1_024 / (capacity + local.capacity);
    if pass.idle == IdleType::Busy && busiest.standing != Standing::Overloaded {
        return None;
    }
    let amount = imbalance(k, pass, local, busiest, average);
    (!amount.is_nothing()).then_some((busiest.cpu, amount))
}

/// The tests of `sched_balance_find_src_group` between two overloaded groups, and `calculate_imbalance`.
fn imbalance(k: &Kernel, pass: &Pass, local: Stats, busiest: Stats, average: u64) -> Amount {
    const NOTHING: Amount = Amount::Tasks(0);
    if local.standing > busiest.standing {
        return NOTHING;
    }
    if local.standing == Standing::HasSpare {
        return spread(k, pass, local, busiest);
    }
    let little = busiest.load * 100 <= local.load * IMBALANCE_PCT;
    if local.load >= busiest.load
        || local.load >= average
        || (local.standing == Standing::Overloaded && little)
    {
        return NOTHING;
    }
    let (above, below) = (busiest.load.saturating_sub(average), average - local.load);
    Amount::Load((above * busiest.capacity).min(below * local.capacity) / 1_024)
}

/// The local CPU has capacity to spare: beyond the cache as much use as fits, else half of the difference in tasks.
fn spread(k: &Kernel, pass: &Pass, local: Stats, busiest: Stats) -> Amount {
    let idle = pass.idle != IdleType::Busy;
    if busiest.standing == Standing::Overloaded && pass.level > Distance::Cache {
        let room = local.capacity.saturating_sub(local.util);
        return if room == 0 && idle { Amount::Tasks(1) } else { Amount::Util(room) };
    }
    // `sibling_imbalance` (since 6.6) evens numbers out only on CPUs that are idle.
    if !idle && k.fair.params.generation == Generation::Eevdf {
        return Amount::Tasks(0);
    }
    let tasks = busiest.nr_running.saturating_sub(local.nr_running) / 2;
    // Where a real-time task runs, one task that waits is one too many.
    Amount::Tasks(if idle { tasks.max(1) } else { tasks })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two hogs on a CPU: 2048 runnable. One hog: busy. A quarter of a CPU: spare, even in two tasks.
    #[test]
    fn a_cpu_stands_as_its_averages_say() {
        assert_eq!(classify(2, 1_024, 1_024, 2_048), Standing::Overloaded);
        assert_eq!(classify(1, 1_024, 1_024, 1_024), Standing::FullyBusy);
        assert_eq!(classify(2, 1_024, 256, 300), Standing::HasSpare);
        assert_eq!(classify(0, 1_024, 1_000, 1_000), Standing::HasSpare);
    }

    #[test]
    fn what_failed_attempts_soften_is_the_size_not_the_number() {
        assert!(Amount::Load(0).is_nothing() && !Amount::Util(1).is_nothing());
    }
}
