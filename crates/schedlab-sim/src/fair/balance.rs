//! Load balancing of the fair class: newidle, periodic on busy CPUs, and for idle CPUs without tick.
//!
//! When a CPU balances and which tasks it moves (`sched_balance_domains`, `sched_balance_rq`, `detach_tasks`). From whom
//! and how much is in [`super::imbalance`]. A running task is pushed where nothing that waits can be moved ([`super::packing`]).

use super::class;
use super::imbalance::{Amount, find_source};
use super::misfit;
use super::packing;
use super::params::{Features, Generation};
use super::select::IMBALANCE_PCT;
use crate::core::flags;
use crate::kernel::{Class, CostKind, CpuEvent, CpuMask, Kernel, Slot};
use schedlab_model::topology::Distance;
use schedlab_model::{CpuId, TaskId};

/// How much rarer a busy CPU balances (`busy_factor`).
const BUSY_FACTOR: u64 = 16;
const MILLISECOND: u64 = 1_000_000;
/// `MAX_PINNED_INTERVAL`: how rare balancing becomes where every task is pinned elsewhere.
const PINNED_INTERVAL_MAX_MS: u64 = 512;
/// Levels of domains: threads, cache, node, machine.
const DOMAINS_MAX: usize = 4;

/// One CPU's view of one domain.
#[derive(Clone, Copy, Debug)]
struct DomainState {
    last_balance: u64,
    /// `balance_interval` in ms; 0 before it was needed.
    interval_ms: u64,
    nr_balance_failed: u32,
    max_newidle_cost: u64,
    newidle_call: u32,
    newidle_success: u32,
    newidle_ratio: u32,
    /// When the ratio was worked out last.
    newidle_stamp: u64,
}

impl Default for DomainState {
    fn default() -> DomainState {
        DomainState {
            last_balance: 0,
            interval_ms: 0,
            nr_balance_failed: 0,
            max_newidle_cost: 0,
            newidle_call: 512,
            newidle_success: 256,
            newidle_ratio: 512,
            newidle_stamp: 0,
        }
    }
}

/// State of balancing.
pub(crate) struct Balance {
    /// By CPU, then by level.
    domains: Vec<[DomainState; DOMAINS_MAX]>,
    /// Room for the tasks a pass may move, kept between passes.
    candidates: Vec<(u64, TaskId)>,
    /// When the CPUs without tick are looked after next.
    nohz_next: u64,
    /// Spans within which tasks that are pinned kept balance from being reached (`sgc->imbalance` of the group that each
    /// is in the domain above).
    imbalanced: Vec<usize>,
}

impl Balance {
    pub(crate) fn new(cpus: usize) -> Balance {
        Balance {
            domains: vec![[DomainState::default(); DOMAINS_MAX]; cpus],
            candidates: Vec::new(),
            nohz_next: 0,
            imbalanced: Vec::new(),
        }
    }

    /// `sg_imbalanced`: whether the group's own domain failed because tasks are pinned.
    pub(super) fn is_imbalanced(&self, group: usize) -> bool {
        self.imbalanced.contains(&group)
    }

    fn set_imbalanced(&mut self, span: usize, imbalanced: bool) {
        match self.imbalanced.iter().position(|known| *known == span) {
            None if imbalanced => self.imbalanced.push(span),
            Some(at) if !imbalanced => drop(self.imbalanced.swap_remove(at)),
            _ => {}
        }
    }

    /// So many of 1024 searches of CPUs that went idle found a task until now.
    pub(crate) fn set_newidle_ratio(&mut self, ratio: u32) {
        for domain in self.domains.iter_mut().flatten() {
            domain.newidle_ratio = ratio;
            domain.newidle_success = domain.newidle_call * ratio / 1_024;
        }
    }
}

/// Why a CPU balances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdleType {
    NewlyIdle,
    Idle,
    Busy,
}

/// A pass over one domain of one CPU (`struct lb_env`).
pub(super) struct Pass {
    /// The CPU whose domain it is.
    pub(super) owner: CpuId,
    /// The CPU that gets the tasks (`dst_cpu`): the owner, or one of its group where tasks may not run on the owner.
    pub(super) cpu: CpuId,
    pub(super) level: Distance,
    pub(super) span: usize,
    /// The CPU's own group: the span of the level below.
    group: usize,
    /// Which of the CPU's domains it is.
    index: usize,
    pub(super) idle: IdleType,
    /// The CPUs still to be looked at, if not all (`env->cpus`).
    cpus: Option<CpuMask>,
}

impl Pass {
    /// Whether the CPU is still to be looked at.
    pub(super) fn looks_at(&self, cpu: CpuId) -> bool {
        self.cpus.as_ref().is_none_or(|cpus| cpus.contains(cpu))
    }

    /// Looks at the CPU no more. Whether there still is another outside of the own group.
    fn pass_over(&mut self, k: &Kernel, cpu: CpuId) -> bool {
        let cpus = self.cpus.get_or_insert_with(|| k.domains.span(self.span).clone());
        cpus.assign(cpu, false);
        cpus.iter().any(|cpu| k.is_online(cpu) && !k.domains.span(self.group).contains(cpu))
    }

    /// Whether there is a domain above.
    fn has_parent(&self, k: &Kernel) -> bool {
        k.domains.of(self.owner).len() > self.index + 1
    }

    fn state<'a>(&self, k: &'a mut Kernel) -> &'a mut DomainState {
        let level = self.level as usize - Distance::Smt as usize;
        &mut k.fair.balance.domains[self.owner.index()][level]
    }

    /// The domain's groups: spans, the CPU's own first.
    pub(super) fn groups<'a>(&self, k: &'a Kernel) -> &'a [usize] {
        &k.domains.of(self.owner)[self.index].groups
    }

    pub(super) fn failed(&self, k: &mut Kernel) -> u32 {
        self.state(k).nr_balance_failed
    }

    /// `imbalance_pct`: by so much more is one busier.
    pub(super) fn imbalance_pct(&self) -> u64 {
        if self.level == Distance::Smt { 110 } else { IMBALANCE_PCT }
    }

    /// `cache_nice_tries`: 0 within a core, 1 within a cache, 2 beyond.
    pub(super) fn cache_nice_tries(&self) -> u32 {
        match self.level {
            Distance::Same | Distance::Smt => 0,
            Distance::Cache => 1,
            Distance::Node | Distance::Remote => 2,
        }
    }
}

/// The pass over the CPU's domain of this number, smallest first.
fn pass_over(k: &Kernel, cpu: CpuId, index: usize, idle: IdleType) -> Option<Pass> {
    let domain = k.domains.of(cpu).get(index)?;
    let (level, span, group) = (domain.level, domain.span, domain.groups[0]);
    Some(Pass { owner: cpu, cpu, level, span, group, index, idle, cpus: None })
}

/// `sched_balance_newidle`: a CPU that is about to go idle looks for a waiting task. Whether it got one.
pub(crate) fn newidle(k: &mut Kernel, cpu: CpuId) -> bool {
    if misfit::pull(k, cpu) || k.overloaded == 0 || k.ideal || k.domains.of(cpu).is_empty() {
        return false;
    }
    let avg_idle = k.cpu(cpu).avg_idle;
    let mut spent = 0;
    let mut pulled = false;
    for index in 0..DOMAINS_MAX {
        let Some(mut pass) = pass_over(k, cpu, index, IdleType::NewlyIdle) else { break };
        if avg_idle < spent + pass.state(k).max_newidle_cost {
            break;
        }
        let random = k.fair.params.has(Features::NI_RANDOM);
        let (now, params) = (k.now, &k.fair.params);
        let (bounded, rate) = (params.bounds_newidle_ratio, params.has(Features::NI_RATE));
        let weight = newidle_weight(pass.state(k).newidle_ratio, bounded);
        if random
            && let Some(weight) = weight
            && k.rng.below(1_024) as u32 > weight
        {
            count_newidle(pass.state(k), 0, bounded, rate.then_some(now));
            continue;
        }
        let cost = k.cost(CostKind::BalancePerCpu) * u64::from(k.domains.weight(pass.span));
        spent += cost;
        let state = pass.state(k);
        state.max_newidle_cost = state.max_newidle_cost.max(cost);
        pulled = balance(k, &mut pass) > 0;
        if random {
            let success = weight.map_or(1, |weight| (1_024 + weight / 2) / weight);
            count_newidle(pass.state(k), if pulled { success } else { 0 }, bounded, rate.then_some(now));
        }
        if pulled {
            break;
        }
    }
    k.charge(cpu, spent);
    pulled
}

/// Of 1024 times, how often a CPU that goes idle searches (once more than this); `None` for always. Before 7.2 the ratio
/// may pass 1024, and then a success counts less until it is back.
fn newidle_weight(ratio: u32, bounded: bool) -> Option<u32> {
    (!bounded || ratio < 1_024).then_some(1 + ratio)
}

/// `update_newidle_stats`: the share of searches that found something, over some 1024 searches. With the time (`NI_RATE`)
/// it is more by 1024 for every 4.3 s that these took: who goes idle rarely may search.
fn count_newidle(state: &mut DomainState, success: u32, bounded: bool, now: Option<u64>) {
    state.newidle_call += 1;
    state.newidle_success += success;
    if state.newidle_call >= 1_024 {
        let most = if bounded { 1_024 } else { u32::MAX };
        let took = now.map_or(0, |now| now - std::mem::replace(&mut state.newidle_stamp, now));
        let by_rate = u32::try_from(took >> 22).unwrap_or(u32::MAX);
        state.newidle_ratio = state.newidle_success.saturating_add(by_rate).min(most);
        state.newidle_call /= 2;
        state.newidle_success /= 2;
    }
}

/// The tick's part (`sched_balance_trigger`): balancing follows in a softirq where an interval is over, and an idle CPU
/// is woken to look after those without tick.
pub(crate) fn tick(k: &mut Kernel, cpu: CpuId) {
    let due = |k: &mut Kernel, index| pass_over(k, cpu, index, IdleType::Busy).map(|pass| is_due(k, &pass));
    if (0..DOMAINS_MAX).map_while(|index| due(k, index)).any(|due| due) {
        let at = k.now.max(k.cpu(cpu).kernel_until);
        k.arm(Slot::Cpu(cpu, CpuEvent::Balance), at);
    }
    let now = k.now;
    let wanted = k.cpu(cpu).nr_running >= 2
        || misfit::wants_stronger(k, cpu)
        || packing::wants_preferred(k, cpu)
        || is_spreading(k, cpu);
    if wanted && now >= k.fair.balance.nohz_next {
        let allowed = k.domains.of(cpu).last().map(|domain| domain.span);
        let idle = allowed
            .and_then(|span| k.idle_mask.first_common_wrapping(&k.idle_mask, k.domains.span(span), CpuId(0)));
        if let Some(idle) = idle {
            k.fair.balance.nohz_next = now + k.tick_ns;
            let latency = k.cost(CostKind::Ipi);
            k.arm(Slot::Cpu(idle, CpuEvent::Balance), now + latency);
        }
    }
}

/// The last rule of `nohz_balancer_kick`: several CPUs of the cache are busy, so that groups of CPUs may be uneven.
fn is_spreading(k: &Kernel, cpu: CpuId) -> bool {
    k.domains.is_wide()
        && k.domains.llc(cpu).iter().filter(|cpu| !k.idle_mask.contains(*cpu)).nth(1).is_some()
}

/// `sched_balance_softirq`: after a tick a busy CPU balances for itself; an idle one was kicked and balances for every
/// idle CPU (`nohz_idle_balance`).
pub(crate) fn softirq(k: &mut Kernel, cpu: CpuId) {
    if k.is_idle_cpu(cpu) {
        return nohz_idle_balance(k, cpu);
    }
    for index in 0..DOMAINS_MAX {
        let Some(mut pass) = pass_over(k, cpu, index, IdleType::Busy) else { break };
        periodic(k, &mut pass);
    }
}

fn nohz_idle_balance(k: &mut Kernel, kicked: CpuId) {
    let cost = k.cost(CostKind::Interrupt);
    k.charge(kicked, cost);
    let idle: Vec<CpuId> = k.idle_mask.iter().collect();
    for cpu in idle {
        if misfit::pull(k, cpu) {
            continue;
        }
        for index in 0..DOMAINS_MAX {
            let Some(mut pass) = pass_over(k, cpu, index, IdleType::Idle) else { break };
            let wide = k.domains.is_wide();
            if (k.overloaded > 0 || wide) && k.is_idle_cpu(cpu) && periodic(k, &mut pass) > 0 {
                k.resched_curr(cpu);
            }
        }
    }
}

/// Whether the domain's interval is over (`get_sd_balance_interval`): 16 times as long on a busy CPU.
fn is_due(k: &mut Kernel, pass: &Pass) -> bool {
    let size = u64::from(k.domains.weight(pass.span));
    let (now, tick, longest) = (k.now, k.tick_ns, longest_interval(k));
    let factor = if pass.idle == IdleType::Busy { BUSY_FACTOR } else { 1 };
    let state = pass.state(k);
    state.interval_ms = state.interval_ms.max(size);
    // In ticks. A busy CPU's is one shorter, so that levels (and the turns of its tasks) do not fall in step.
    let ticks = (state.interval_ms * MILLISECOND * factor).div_ceil(tick);
    let interval = ticks.saturating_sub(u64::from(pass.idle == IdleType::Busy)).clamp(1, longest) * tick;
    // Ticks scatter by their latency: half a tick early is in time.
    now + tick / 2 >= state.last_balance + interval
}

/// Balances if the interval is over. How many tasks came.
fn periodic(k: &mut Kernel, pass: &mut Pass) -> u32 {
    if !is_due(k, pass) {
        return 0;
    }
    pass.state(k).last_balance = k.now;
    if !should_balance(k, pass) {
        return 0;
    }
    let cost = k.cost(CostKind::BalancePerCpu) * u64::from(k.domains.weight(pass.span));
    k.charge(pass.cpu, cost);
    balance(k, pass)
}

/// `max_load_balance_interval` in ticks: 100 ms for every CPU.
fn longest_interval(k: &Kernel) -> u64 {
    (k.online_count() as u64 * 100 * MILLISECOND / k.tick_ns).max(1)
}

/// `should_we_balance`: the first idle CPU of a group balances for it, without one its first CPU.
fn should_balance(k: &Kernel, pass: &Pass) -> bool {
    let online = || k.domains.span(pass.group).iter().filter(|cpu| k.is_online(*cpu) && pass.looks_at(*cpu));
    // Since 6.6 between cores: one on an idle core before a thread beside a busy one.
    let by_core = k.fair.params.generation == Generation::Eevdf && k.domains.has_smt();
    if by_core && pass.level != Distance::Smt {
        let whole = |cpu: &CpuId| k.is_idle_cpu(*cpu) && packing::is_core_idle(k, *cpu);
        if let Some(first) = online().find(whole) {
            return first == pass.cpu;
        }
    }
    let group_first = || k.domains.span(pass.group).iter().find(|cpu| k.is_online(*cpu));
    let first = online().find(|cpu| k.is_idle_cpu(*cpu)).or_else(group_first);
    first == Some(pass.cpu)
}

/// `sched_balance_rq`: pulls tasks from the busiest CPU of the domain; from the next busiest if all of that one's are pinned.
/// How many.
fn balance(k: &mut Kernel, pass: &mut Pass) -> u32 {
    class::update_averages(k, pass.cpu);
    let newly = pass.idle == IdleType::NewlyIdle;
    if !newly && pass.span == k.domains.llc_number(pass.cpu) {
        super::shared::update_idle_scan(k, pass.cpu, pass.imbalance_pct());
    }
    let mut pinned = Pinned::default();
    loop {
        let again = pass.cpus.is_some();
        let source = if again && !newly && !should_balance(k, pass) { None } else { find_source(k, pass) };
        let Some((busiest, mut amount)) = source else {
            // Others had a chance to move.
            if !pinned.all {
                k.fair.balance.set_imbalanced(pass.span, false);
            }
            back_off(k, pass, &pinned);
            pass.state(k).nr_balance_failed = 0;
            return 0;
        };
        pinned.all = true;
        let mut moved = 0;
        if k.cpu(busiest).nr_running > 1 {
            moved = move_to_group(k, pass, busiest, &mut amount, &mut pinned);
            if pinned.some && !amount.is_nothing() && pass.has_parent(k) {
                k.fair.balance.set_imbalanced(pass.span, true);
            }
            if pinned.all {
                if pass.pass_over(k, busiest) {
                    continue;
                }
                back_off(k, pass, &pinned);
                pass.state(k).nr_balance_failed = 0;
                return 0;
            }
        }
        return end_balance(k, pass, (busiest, amount), moved, &pinned);
    }
}

/// The end of a pass that found whom to pull from.
fn end_balance(
    k: &mut Kernel,
    pass: &Pass,
    (busiest, amount): (CpuId, Amount),
    moved: u32,
    pinned: &Pinned,
) -> u32 {
    let size = u64::from(k.domains.weight(pass.span));
    let state = pass.state(k);
    if moved > 0 {
        (state.nr_balance_failed, state.interval_ms) = (0, size);
        return moved;
    }
    if pass.idle != IdleType::NewlyIdle {
        state.nr_balance_failed += 1;
    }
    if packing::needs_push(k, pass, busiest, amount) {
        let curr = k.cpu(busiest).curr;
        if !k.may_run_on(curr, pass.owner) {
            back_off(k, pass, pinned);
            return 0;
        }
        if packing::push(k, busiest, pass.owner) {
            pass.state(k).nr_balance_failed = 0;
        }
    }
    pass.state(k).interval_ms = size;
    0
}

/// Nothing could be done, so there is less haste; still less where all is pinned.
fn back_off(k: &mut Kernel, pass: &Pass, pinned: &Pinned) {
    let longest = 2 * u64::from(k.domains.weight(pass.span));
    let longest = if pinned.all { longest.max(PINNED_INTERVAL_MAX_MS) } else { longest };
    let state = pass.state(k);
    if pass.idle != IdleType::NewlyIdle && state.interval_ms < longest {
        state.interval_ms *= 2;
    }
}

/// What affinity did to a pass (`LBF_*`).
#[derive(Clone, Copy, Debug, Default)]
struct Pinned {
    /// No task was found that could run on the CPU (`LBF_ALL_PINNED`).
    all: bool,
    /// A task may not run on it (`LBF_SOME_PINNED`).
    some: bool,
    /// Another CPU of the group on which such a task may run (`LBF_DST_PINNED`, `new_dst_cpu`).
    elsewhere: Option<CpuId>,
}

/// Moves tasks to the CPU; those that may not run there to others of its group while there is more to move.
fn move_to_group(
    k: &mut Kernel,
    pass: &mut Pass,
    from: CpuId,
    amount: &mut Amount,
    pinned: &mut Pinned,
) -> u32 {
    let mut moved = 0;
    loop {
        moved += move_tasks(k, pass, from, amount, pinned);
        let Some(other) = pinned.elsewhere.filter(|_| !amount.is_nothing()) else { return moved };
        pass.pass_over(k, pass.cpu);
        pass.cpu = other;
        pinned.elsewhere = None;
    }
}

/// `detach_tasks` and `attach_tasks`, from the end of the source's list of tasks.
fn move_tasks(k: &mut Kernel, pass: &Pass, from: CpuId, amount: &mut Amount, pinned: &mut Pinned) -> u32 {
    if k.cpu(from).nr_running <= 1 {
        pinned.all = false;
        return 0;
    }
    let mut candidates = std::mem::take(&mut k.fair.balance.candidates);
    candidates.clear();
    let running = k.cpu(from).curr;
    k.fair.queued_tasks(from, |task| candidates.push((k.fair.entity(task).list_position, task)));
    if k.task(running).class == Class::Fair {
        candidates.push((k.fair.entity(running).list_position, running));
    }
    candidates.sort_unstable();
    let failed = pass.failed(k);
    let limit = k.fair.params.nr_migrate.min(u64::from(k.cpu(from).nr_running)) as usize;
    let mut moved = 0;
    for &(_, task) in candidates.iter().take(limit) {
        if amount.is_nothing() || (pass.idle != IdleType::Busy && k.cpu(from).nr_running <= 1) {
            break;
        }
        if !can_migrate(k, pass, (task, task == running), (amount, failed), pinned)
            || !amount.takes(k, task, failed)
        {
            // To the head of the list: looked at last the next time.
            k.fair.touch(task);
            continue;
        }
        migrate(k, task, from, pass.cpu);
        moved += 1;
        if pass.idle == IdleType::NewlyIdle {
            break;
        }
    }
    k.fair.balance.candidates = candidates;
    moved
}

/// `can_migrate_task`.
fn can_migrate(
    k: &Kernel,
    pass: &Pass,
    (task, runs): (TaskId, bool),
    (amount, failed): (&Amount, u32),
    pinned: &mut Pinned,
) -> bool {
    let entity = k.fair.entity(task);
    if entity.sched_delayed {
        // Linux moves it here; elsewhere it is passed over before anybody asks where it may run.
        let moves = !k.fair.params.spares_delayed || matches!(amount, Amount::Load(_));
        pinned.all &= !(moves && k.may_run_on(task, pass.cpu));
        return false;
    }
    let here = k.fair.groups.layout.queue_of(entity.group, pass.cpu);
    let queued_here = k.fair.rqs[here.index()].nr_queued > 0;
    if k.fair.params.spares_delayed && failed == 0 && queued_here && !k.fair.is_eligible(task) {
        return false;
    }
    if !k.may_run_on(task, pass.cpu) {
        pinned.some = true;
        if pass.idle != IdleType::NewlyIdle && pinned.elsewhere.is_none() {
            let group = k.domains.span(pass.group).iter().filter(|cpu| k.is_online(*cpu));
            pinned.elsewhere = group.filter(|cpu| pass.looks_at(*cpu)).find(|cpu| k.may_run_on(task, *cpu));
        }
        return false;
    }
    pinned.all = false;
    !runs && (failed > pass.cache_nice_tries() || !is_hot(k, pass, task))
}

/// `task_hot`: ran so recently that its cache is warm; threads of a core share it.
fn is_hot(k: &Kernel, pass: &Pass, task: TaskId) -> bool {
    let state = k.task(task);
    let warm =
        state.last_ran.is_some() && k.now - k.fair.entity(task).exec_start < k.fair.params.migration_cost;
    // A buddy is about to run where it is.
    let busy_here = k.cpu(pass.cpu).nr_running > 0 && k.fair.params.has(Features::CACHE_HOT_BUDDY);
    let buddy = busy_here && k.fair.is_buddy(task);
    pass.level != Distance::Smt && !state.has_idle_policy() && (warm || buddy)
}

/// Moves a queued task.
fn migrate(k: &mut Kernel, task: TaskId, from: CpuId, to: CpuId) {
    class::dequeue_task(k, from, task, flags::DEQUEUE_SAVE);
    k.set_task_cpu(task, to);
    class::enqueue_task(k, to, task, flags::ENQUEUE_MIGRATED);
    let curr = k.cpu(to).curr;
    if k.task(curr).class == Class::Fair && k.is_running(curr) {
        class::wakeup_preempt(k, to, task, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From 512 searches, 256 with success, to 1024, all in vain: 256 of 1024. With `NI_RATE` a second more or less adds
    /// 10⁹ / 2²² = 238, and ten seconds make it always.
    #[test]
    fn searches_that_are_rare_are_made() {
        let ratio = |now: Option<u64>, bounded: bool| {
            let mut state = DomainState::default();
            (0..512).for_each(|_| count_newidle(&mut state, 0, bounded, now));
            (state.newidle_ratio, state.newidle_call, state.newidle_stamp)
        };
        assert_eq!(ratio(None, true), (256, 512, 0));
        assert_eq!(ratio(Some(1_000_000_000), true), (256 + 238, 512, 1_000_000_000));
        assert_eq!(ratio(Some(10_000_000_000), true), (1_024, 512, 10_000_000_000));
    }
}
