//! From whom a CPU pulls, and how much: `sched_balance_find_src_group`, `calculate_imbalance`, `sched_balance_find_src_rq`.
//!
//! Groups of CPUs are summed up and compared; within the one that is busiest a CPU is chosen. Averages of other CPUs are
//! those of their own last update, as in Linux. Who calls: [`super::balance`]; which CPUs are preferred: [`super::packing`].

use super::balance::{IdleType, Pass};
use super::group::task_h_load;
use super::packing;
use super::params::Generation;
use crate::kernel::Kernel;
use schedlab_model::topology::Distance;
use schedlab_model::{CpuId, TaskId};

/// `NUMA_IMBALANCE_MIN`: so many tasks more on another node are no imbalance while few run here.
const NUMA_IMBALANCE_MIN: u64 = 2;

/// How a group stands (`enum group_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    HasSpare,
    FullyBusy,
    SmtBalance,
    AsymPacking,
    /// Its own balancing failed because tasks are pinned (`group_imbalanced`).
    Imbalanced,
    Overloaded,
}

/// What is known of a group (`struct sg_lb_stats`).
#[derive(Clone, Copy, Debug)]
pub(super) struct Stats {
    pub(super) group: usize,
    standing: Standing,
    /// Average load in proportion to capacity.
    load: u64,
    /// Sums over its CPUs.
    group_load: u64,
    util: u64,
    runnable: u64,
    capacity: u64,
    nr_running: u64,
    /// Of the fair class (`sum_h_nr_running`).
    nr_fair: u64,
    idle_cpus: u64,
    weight: u64,
    cores: u64,
    /// Whether a fair task waits on one of its CPUs.
    waits: bool,
}

impl Stats {
    fn empty(group: usize) -> Stats {
        Stats {
            group,
            standing: Standing::HasSpare,
            load: 0,
            group_load: 0,
            util: 0,
            runnable: 0,
            capacity: 0,
            nr_running: 0,
            nr_fair: 0,
            idle_cpus: 0,
            weight: 0,
            cores: 0,
            waits: false,
        }
    }

    /// Adds what tasks do on a CPU.
    fn add_use(&mut self, k: &Kernel, cpu: CpuId) {
        let rq = &k.fair.rqs[cpu.index()];
        self.group_load += rq.average.load;
        self.util += rq.average.util;
        self.runnable += rq.average.runnable;
        self.nr_running += u64::from(k.cpu(cpu).nr_running);
        self.nr_fair += u64::from(rq.nr_runnable);
        self.idle_cpus += u64::from(k.is_idle_cpu(cpu));
        // A real-time task that runs there makes all fair ones wait.
        self.waits |= rq.nr_runnable > u32::from(rq.curr.is_some());
    }

    fn of(k: &Kernel, pass: &Pass, group: usize) -> Stats {
        let mut stats = Stats::empty(group);
        // Linux builds its groups anew when a CPU goes; here they keep it and pass it over.
        let here = |cpu: CpuId| k.is_online(cpu) && k.domains.span(group).contains(cpu);
        for cpu in k.domains.span(group).iter().filter(|cpu| k.is_online(*cpu)) {
            stats.capacity += u64::from(k.cpu(cpu).scale);
            stats.weight += 1;
            stats.cores += u64::from(k.domains.core(cpu).iter().find(|sibling| here(*sibling)) == Some(cpu));
            if !pass.looks_at(cpu) {
                continue;
            }
            stats.add_use(k, cpu);
        }
        stats.load = stats.group_load * 1_024 / stats.capacity.max(1);
        stats.standing = stats.classify(pass.imbalance_pct());
        if stats.standing != Standing::Overloaded && k.fair.balance.is_imbalanced(group) {
            stats.standing = Standing::Imbalanced;
        }
        stats
    }

    /// Another group than the CPU's own, from which an idle CPU also takes what only runs: threads of a core that share it,
    /// and work on CPUs that are less preferred.
    fn of_other(k: &Kernel, pass: &Pass, group: usize) -> Stats {
        let mut stats = Stats::of(k, pass, group);
        if pass.idle == IdleType::Busy || stats.standing >= Standing::Imbalanced || stats.nr_fair == 0 {
            return stats;
        }
        let lone = !stats.is_smt() || stats.weight - stats.idle_cpus == 1;
        if lone && packing::prefers(k, pass.level, pass.cpu, packing::preferred(k, group)) {
            stats.standing = Standing::AsymPacking;
        } else if stats.is_smt() && stats.nr_fair > 1 && k.fair.params.generation == Generation::Eevdf {
            stats.standing = Standing::SmtBalance;
        }
        stats
    }

    /// Whether its CPUs are threads of one core (`SD_SHARE_CPUCAPACITY`).
    fn is_smt(&self) -> bool {
        self.weight > 1 && self.cores <= 1
    }

    /// `update_sg_wakeup_stats`: the same for a new task, that is on no CPU yet.
    pub(super) fn for_fork(k: &Kernel, group: usize) -> Stats {
        let mut stats = Stats::empty(group);
        for cpu in k.domains.span(group).iter().filter(|cpu| k.is_online(*cpu)) {
            stats.capacity += u64::from(k.cpu(cpu).scale);
            stats.weight += 1;
            stats.add_use(k, cpu);
        }
        stats.load = stats.group_load * 1_024 / stats.capacity.max(1);
        stats.standing = stats.classify(super::select::IMBALANCE_PCT);
        stats
    }

    /// Whether a new task goes from its parent's group, this one, to `other`, the idlest of all others
    /// (`sched_balance_find_dst_group`).
    pub(super) fn sends_to(&self, other: &Stats) -> bool {
        if self.standing != other.standing {
            return self.standing > other.standing;
        }
        if self.standing == Standing::HasSpare {
            return other.idle_cpus > self.idle_cpus;
        }
        let allowed = 1_024 * (super::select::IMBALANCE_PCT - 100) / 100;
        other.load < self.load + allowed && 100 * self.load > super::select::IMBALANCE_PCT * other.load
    }

    /// Whether it suits a new task better than `found` (`update_pick_idlest`).
    pub(super) fn is_idler(&self, found: &Stats) -> bool {
        if self.standing != found.standing {
            return self.standing < found.standing;
        }
        if self.standing == Standing::HasSpare {
            return (self.idle_cpus, found.util) > (found.idle_cpus, self.util);
        }
        self.load < found.load
    }

    /// `group_classify`: by tasks, use and how many tasks are runnable on average.
    fn classify(&self, imbalance_pct: u64) -> Standing {
        let (util, runnable) = (self.util * imbalance_pct, self.runnable * 100);
        let (used_up, crowded) = (self.capacity * 100 < util, self.capacity * imbalance_pct < runnable);
        if self.nr_running > self.weight && (used_up || crowded) {
            return Standing::Overloaded;
        }
        let has_capacity = self.nr_running < self.weight || (!crowded && self.capacity * 100 > util);
        if has_capacity { Standing::HasSpare } else { Standing::FullyBusy }
    }

    /// `update_sd_pick_busiest`, of two with something to pull.
    fn is_busier(&self, k: &Kernel, busiest: &Stats) -> bool {
        if self.standing != busiest.standing {
            return self.standing > busiest.standing;
        }
        match self.standing {
            // One is as good as another.
            Standing::Imbalanced => false,
            Standing::AsymPacking => {
                let (theirs, own) = (packing::preferred(k, busiest.group), packing::preferred(k, self.group));
                k.domains.priority(theirs) > k.domains.priority(own)
            }
            Standing::FullyBusy | Standing::SmtBalance if self.weight > 1 => {
                let spare = self.idle_cpus + busiest.idle_cpus > 0;
                if self.standing == Standing::SmtBalance && spare {
                    return self.has_less_spare(busiest);
                }
                !busiest.is_smt()
            }
            Standing::HasSpare if self.is_smt() != busiest.is_smt() => !self.is_smt() || self.nr_fair > 1,
            Standing::HasSpare => self.has_less_spare(busiest),
            _ => self.load > busiest.load,
        }
    }

    fn has_less_spare(&self, busiest: &Stats) -> bool {
        (busiest.idle_cpus, self.nr_running) > (self.idle_cpus, busiest.nr_running)
            && self.idle_cpus <= busiest.idle_cpus
    }

    /// `sibling_imbalance` (since 6.6; before, the difference whoever asks): in tasks, by cores.
    fn sibling_imbalance(&self, k: &Kernel, pass: &Pass, local: &Stats) -> u64 {
        let eevdf = k.fair.params.generation == Generation::Eevdf;
        if eevdf && pass.idle == IdleType::Busy {
            return 0;
        }
        if !eevdf || self.cores == local.cores {
            return self.nr_running.saturating_sub(local.nr_running);
        }
        let difference = (local.cores * self.nr_running).saturating_sub(self.cores * local.nr_running);
        let cores = local.cores + self.cores;
        let tasks = (2 * difference + cores) / cores;
        if tasks <= 1 && local.nr_running == 0 && self.nr_running > 1 { 2 } else { tasks }
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
    let groups = pass.groups(k);
    let local = Stats::of(k, pass, groups[0]);
    let mut busiest: Option<Stats> = None;
    let (mut load, mut capacity) = (local.group_load, local.capacity);
    // Groups are linked in a ring that begins with the CPU's own; of equals the first one counts.
    for &group in &groups[1..] {
        let stats = Stats::of_other(k, pass, group);
        load += stats.group_load;
        capacity += stats.capacity;
        let has_work = stats.waits
            || (stats.nr_fair > 0 && (stats.weight > 1 || stats.standing == Standing::AsymPacking));
        if has_work && busiest.is_none_or(|found| stats.is_busier(k, &found)) {
            busiest = Some(stats);
        }
    }
    let busiest = busiest?;
    let amount = imbalance(k, pass, &local, &busiest, load * 1_024 / capacity);
    if amount.is_nothing() {
        return None;
    }
    busiest_cpu(k, pass, busiest.group, amount).map(|cpu| (cpu, amount))
}

const NOTHING: Amount = Amount::Tasks(0);

/// The tests of `sched_balance_find_src_group`, and `calculate_imbalance`.
fn imbalance(k: &Kernel, pass: &Pass, local: &Stats, busiest: &Stats, average: u64) -> Amount {
    if busiest.standing == Standing::AsymPacking {
        return Amount::Tasks(busiest.nr_fair);
    }
    if busiest.standing == Standing::Imbalanced {
        // Sums say nothing where tasks cannot move freely: any task, and the domain below evens out the rest.
        return Amount::Tasks(1);
    }
    if local.standing > busiest.standing || !is_worth(k, pass, local, busiest) {
        return NOTHING;
    }
    if busiest.standing == Standing::SmtBalance {
        return Amount::Tasks(1);
    }
    if local.standing == Standing::HasSpare {
        return spread(k, pass, local, busiest);
    }
    let overloaded = busiest.standing == Standing::Overloaded || busiest.weight == 1;
    let little = busiest.load * 100 <= local.load * pass.imbalance_pct();
    if !overloaded
        || local.load >= busiest.load
        || local.load >= average
        || (local.standing == Standing::Overloaded && little)
    {
        return NOTHING;
    }
    let (above, below) = (busiest.load.saturating_sub(average), average - local.load);
    Amount::Load((above * busiest.capacity).min(below * local.capacity) / 1_024)
}

/// Whether a group that is not overloaded has more than the local one: tasks for its cores, or one idle CPU less.
fn is_worth(k: &Kernel, pass: &Pass, local: &Stats, busiest: &Stats) -> bool {
    if busiest.standing == Standing::Overloaded {
        return true;
    }
    let spreads = prefers_siblings(k, busiest) && local.standing == Standing::HasSpare;
    if spreads && busiest.sibling_imbalance(k, pass, local) > 1 {
        return true;
    }
    if pass.idle == IdleType::Busy {
        return false;
    }
    if busiest.weight == 1 {
        return busiest.waits;
    }
    if busiest.standing == Standing::SmtBalance && local.is_smt() != busiest.is_smt() {
        return true;
    }
    local.idle_cpus > busiest.idle_cpus + 1 && busiest.nr_fair > 1
}

/// `prefer_sibling`: running tasks are spread over groups, except over CPUs of different strength.
fn prefers_siblings(k: &Kernel, group: &Stats) -> bool {
    group.weight > 1 && !k.domains.is_asymmetric()
}

/// The local group has capacity to spare: beyond the cache as much use as fits, else half of the difference in tasks.
fn spread(k: &Kernel, pass: &Pass, local: &Stats, busiest: &Stats) -> Amount {
    let idle = pass.idle != IdleType::Busy;
    if busiest.standing == Standing::Overloaded && pass.level > Distance::Cache {
        let room = local.capacity.saturating_sub(local.util);
        return if room == 0 && idle { Amount::Tasks(1) } else { Amount::Util(room) };
    }
    let mut tasks = if busiest.weight == 1 || prefers_siblings(k, busiest) {
        busiest.sibling_imbalance(k, pass, local)
    } else {
        local.idle_cpus.saturating_sub(busiest.idle_cpus)
    };
    if pass.level == Distance::Remote
        && local.nr_running < allowed_on_node(k, pass)
        && tasks <= NUMA_IMBALANCE_MIN
    {
        tasks = 0;
    }
    // Where a real-time task runs, one task that waits is one too many.
    let least = u64::from(idle && busiest.weight == 1);
    Amount::Tasks((tasks / 2).max(least))
}

/// `imb_numa_nr`: up to so many tasks may run on a node before they are spread: one for each of its caches; where a node
/// is one cache, for each node.
fn allowed_on_node(k: &Kernel, pass: &Pass) -> u64 {
    let groups = pass.groups(k);
    let caches = k.domains.span(groups[0]).len() / k.domains.llc(pass.cpu).len();
    (if caches > 1 { caches } else { groups.len() }) as u64
}

/// `sched_balance_find_src_rq`: the CPU of the group to pull from.
fn busiest_cpu(k: &Kernel, pass: &Pass, group: usize, amount: Amount) -> Option<CpuId> {
    let span = k.domains.span(group);
    if span.len() == 1 {
        return span.iter().next();
    }
    let mut found: Option<(u64, u64, CpuId)> = None;
    for cpu in span.iter().filter(|cpu| pass.looks_at(*cpu)) {
        let (rq, capacity) = (&k.fair.rqs[cpu.index()], u64::from(k.cpu(cpu).scale));
        let lone = rq.nr_runnable == 1;
        let weaker =
            k.domains.is_asymmetric() && capacity * 1_078 >= u64::from(k.cpu(pass.cpu).scale) * 1_024;
        if rq.nr_runnable == 0 || (lone && (weaker || packing::prefers(k, pass.level, cpu, pass.cpu))) {
            continue;
        }
        let (size, per) = match amount {
            Amount::Load(most) if lone && rq.average.load > most => continue,
            Amount::Load(_) => (rq.average.load, capacity),
            Amount::Util(_) if lone => continue,
            Amount::Util(_) => (rq.average.util, 1),
            Amount::Tasks(_) => (u64::from(rq.nr_runnable), 1),
        };
        if size > 0 && found.is_none_or(|(most, of, _)| size * of > most * per) {
            found = Some((size, per, cpu));
        }
    }
    found.map(|(_, _, cpu)| cpu)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(nr_running: u64, weight: u64, util: u64, runnable: u64) -> Stats {
        Stats {
            group: 0,
            standing: Standing::HasSpare,
            load: 0,
            group_load: 0,
            util,
            runnable,
            capacity: 1_024 * weight,
            nr_running,
            nr_fair: nr_running,
            idle_cpus: weight.saturating_sub(nr_running),
            weight,
            cores: 1,
            waits: false,
        }
    }

    /// Two hogs on a CPU: 2048 runnable. One hog: busy. A quarter of a CPU: spare, even in two tasks. Two hogs on the two
    /// threads of a core: busy, and three are too many.
    #[test]
    fn a_group_stands_as_its_averages_say() {
        let classify = |(nr, weight, util, runnable)| stats(nr, weight, util, runnable).classify(117);
        assert_eq!(classify((2, 1, 1_024, 2_048)), Standing::Overloaded);
        assert_eq!(classify((1, 1, 1_024, 1_024)), Standing::FullyBusy);
        assert_eq!(classify((2, 1, 256, 300)), Standing::HasSpare);
        assert_eq!(classify((0, 1, 1_000, 1_000)), Standing::HasSpare);
        assert_eq!(classify((2, 2, 2_048, 2_048)), Standing::FullyBusy);
        assert_eq!(classify((3, 2, 2_048, 3_072)), Standing::Overloaded);
        assert_eq!(classify((1, 2, 1_024, 1_024)), Standing::HasSpare);
    }

    #[test]
    fn what_failed_attempts_soften_is_the_size_not_the_number() {
        assert!(Amount::Load(0).is_nothing() && !Amount::Util(1).is_nothing());
    }

    /// One idle CPU less is busier; of as many, more tasks.
    #[test]
    fn of_groups_with_spare_the_one_with_fewer_idle_cpus_is_busier() {
        let group = |nr_running, idle_cpus| Stats { idle_cpus, ..stats(nr_running, 4, 100, 100) };
        assert!(group(3, 1).has_less_spare(&group(2, 2)) && !group(2, 2).has_less_spare(&group(3, 1)));
        assert!(group(5, 1).has_less_spare(&group(3, 1)) && !group(3, 1).has_less_spare(&group(3, 1)));
        assert!(!group(9, 2).has_less_spare(&group(3, 1)));
    }
}
