//! Load balancing of the fair class: newidle, periodic on busy CPUs, and for idle CPUs without tick.
//!
//! Simplified against `sched_balance_rq`: the busiest CPU of a domain is looked for directly instead of the
//! busiest group and its busiest queue, and load is the sum of weights at the moment instead of PELT.
//! Kept: intervals by domain size and busyness, the cache-hot test, failed attempts that soften it, counts
//! against an idle CPU and loads between busy ones.

use super::class;
use super::group::task_h_load;
use super::misfit;
use super::params::{Features, Generation};
use super::select::IMBALANCE_PCT;
use crate::core::flags;
use crate::kernel::{CostKind, CpuEvent, Kernel, Slot};
use schedlab_model::topology::Distance;
use schedlab_model::{CpuId, TaskId};

/// How much rarer a busy CPU balances (`busy_factor`).
const BUSY_FACTOR: u64 = 16;
const MILLISECOND: u64 = 1_000_000;
/// Levels of domains: threads, cache, node, machine.
const DOMAINS_MAX: usize = 4;

/// One CPU's view of one domain.
#[derive(Clone, Copy, Debug)]
struct DomainState {
    last_balance: u64,
    nr_balance_failed: u32,
    max_newidle_cost: u64,
    newidle_call: u32,
    newidle_success: u32,
    newidle_ratio: u32,
}

impl Default for DomainState {
    fn default() -> DomainState {
        DomainState {
            last_balance: 0,
            nr_balance_failed: 0,
            max_newidle_cost: 0,
            newidle_call: 512,
            newidle_success: 256,
            newidle_ratio: 512,
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
}

impl Balance {
    pub(crate) fn new(cpus: usize) -> Balance {
        Balance {
            domains: vec![[DomainState::default(); DOMAINS_MAX]; cpus],
            candidates: Vec::new(),
            nohz_next: 0,
        }
    }
}

/// Why a CPU balances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IdleType {
    NewlyIdle,
    Idle,
    Busy,
}

/// A pass over one domain of one CPU.
struct Pass {
    cpu: CpuId,
    level: Distance,
    span: usize,
    idle: IdleType,
}

impl Pass {
    fn state<'a>(&self, k: &'a mut Kernel) -> &'a mut DomainState {
        let level = self.level as usize - Distance::Smt as usize;
        &mut k.fair.balance.domains[self.cpu.index()][level]
    }

    fn failed(&self, k: &mut Kernel) -> u32 {
        self.state(k).nr_balance_failed
    }

    /// `cache_nice_tries`: 0 within a core, 1 within a cache, 2 beyond.
    fn cache_nice_tries(&self) -> u32 {
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
    Some(Pass { cpu, level: domain.level, span: domain.span, idle })
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
        let Some(pass) = pass_over(k, cpu, index, IdleType::NewlyIdle) else { break };
        if avg_idle < spent + pass.state(k).max_newidle_cost {
            break;
        }
        let random = k.fair.params.has(Features::NI_RANDOM);
        let weight = 1 + pass.state(k).newidle_ratio;
        if random && k.rng.below(1_024) as u32 > weight {
            count_newidle(pass.state(k), 0);
            continue;
        }
        let cost = k.cost(CostKind::BalancePerCpu) * k.domains.span(pass.span).len() as u64;
        spent += cost;
        let state = pass.state(k);
        state.max_newidle_cost = state.max_newidle_cost.max(cost);
        pulled = balance(k, &pass) > 0;
        if random {
            let success = (1_024 + weight / 2) / weight;
            count_newidle(pass.state(k), if pulled { success } else { 0 });
        }
        if pulled {
            break;
        }
    }
    k.charge(cpu, spent);
    pulled
}

/// `update_newidle_stats`: the share of searches that found something, over some 1024 searches.
fn count_newidle(state: &mut DomainState, success: u32) {
    state.newidle_call += 1;
    state.newidle_success += success;
    if state.newidle_call >= 1_024 {
        state.newidle_ratio = state.newidle_success;
        state.newidle_call /= 2;
        state.newidle_success /= 2;
    }
}

/// The tick's part: balances this CPU where an interval is over, and wakes an idle CPU to look after those
/// without tick.
pub(crate) fn tick(k: &mut Kernel, cpu: CpuId) {
    for index in 0..DOMAINS_MAX {
        let Some(pass) = pass_over(k, cpu, index, IdleType::Busy) else { break };
        periodic(k, &pass);
    }
    let now = k.now;
    let wanted = k.cpu(cpu).nr_running >= 2 || misfit::wants_stronger(k, cpu);
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

/// `nohz_idle_balance`: an idle CPU was kicked and balances for every idle CPU.
pub(crate) fn nohz_idle_balance(k: &mut Kernel, kicked: CpuId) {
    if !k.is_idle_cpu(kicked) {
        return;
    }
    let cost = k.cost(CostKind::Interrupt);
    k.charge(kicked, cost);
    let idle: Vec<CpuId> = k.idle_mask.iter().collect();
    for cpu in idle {
        if misfit::pull(k, cpu) {
            continue;
        }
        for index in 0..DOMAINS_MAX {
            let Some(pass) = pass_over(k, cpu, index, IdleType::Idle) else { break };
            if k.overloaded > 0 && k.is_idle_cpu(cpu) && periodic(k, &pass) > 0 {
                k.resched_curr(cpu);
            }
        }
    }
}

/// Balances if the domain's interval is over: as many ms as it has CPUs, 16 times that on a busy CPU.
fn periodic(k: &mut Kernel, pass: &Pass) -> u32 {
    let size = k.domains.span(pass.span).len() as u64;
    let factor = if pass.idle == IdleType::Busy { BUSY_FACTOR } else { 1 };
    let (now, tick) = (k.now, k.tick_ns);
    // A busy CPU's interval is a tick shorter, so that levels (and the turns of its tasks) do not fall in step.
    let ticks = size * MILLISECOND * factor / tick;
    let interval = ticks.saturating_sub(u64::from(pass.idle == IdleType::Busy)).max(1) * tick;
    let state = pass.state(k);
    // Ticks scatter by their latency: half a tick early is in time.
    if now + tick / 2 < state.last_balance + interval {
        return 0;
    }
    state.last_balance = now;
    let cost = k.cost(CostKind::BalancePerCpu) * size;
    k.charge(pass.cpu, cost);
    balance(k, pass)
}

/// `sched_balance_rq`: pulls tasks from the busiest CPU of the domain. How many.
fn balance(k: &mut Kernel, pass: &Pass) -> u32 {
    let Some(busiest) = find_busiest(k, pass) else {
        pass.state(k).nr_balance_failed = 0;
        return 0;
    };
    let moved = match pass.idle {
        IdleType::NewlyIdle => move_tasks(k, pass, busiest, Imbalance::Tasks(1)),
        IdleType::Idle => {
            let queued = k.fair.rqs[busiest.index()].nr_runnable;
            move_tasks(k, pass, busiest, Imbalance::Tasks((queued / 2).max(1)))
        }
        IdleType::Busy => {
            let imbalance = imbalance_of_busy(k, pass, busiest);
            move_tasks(k, pass, busiest, imbalance)
        }
    };
    let newly = pass.idle == IdleType::NewlyIdle;
    let state = pass.state(k);
    if moved > 0 {
        state.nr_balance_failed = 0;
    } else if !newly {
        state.nr_balance_failed += 1;
    }
    moved
}

/// How a CPU stands (`enum group_type`, for groups of one CPU).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    HasSpare,
    FullyBusy,
    Overloaded,
}

/// `group_classify`: by tasks, use and how many tasks are runnable on average.
fn standing(k: &Kernel, cpu: CpuId) -> Standing {
    let rq = &k.fair.rqs[cpu.index()];
    let capacity = u64::from(k.cpu(cpu).capacity);
    let (util, runnable) = (rq.average.util * IMBALANCE_PCT, rq.average.runnable * 100);
    let (spare, crowded) = (capacity * 100 > util, capacity * IMBALANCE_PCT < runnable);
    match rq.nr_runnable {
        0 => Standing::HasSpare,
        1 if spare && !crowded => Standing::HasSpare,
        1 => Standing::FullyBusy,
        _ if capacity * 100 < util || crowded => Standing::Overloaded,
        _ if spare && !crowded => Standing::HasSpare,
        _ => Standing::FullyBusy,
    }
}

/// Average load of a CPU, in proportion to its capacity.
fn load_of(k: &Kernel, cpu: CpuId) -> u64 {
    k.fair.rqs[cpu.index()].average.load * 1_024 / u64::from(k.cpu(cpu).capacity)
}

/// `sched_balance_find_src_group`, CPU by CPU: most tasks for an idle CPU; for a busy one most load, if that is an
/// imbalance.
fn find_busiest(k: &mut Kernel, pass: &Pass) -> Option<CpuId> {
    let busy = pass.idle == IdleType::Busy;
    let (mut total, mut count) = (0, 0);
    if busy {
        for index in 0..k.cpu_count() as u32 {
            if k.domains.span(pass.span).contains(CpuId(index)) {
                class::update_averages(k, CpuId(index));
                total += load_of(k, CpuId(index));
                count += 1;
            }
        }
    }
    let (here, mine) = (standing(k, pass.cpu), load_of(k, pass.cpu));
    let mut best: Option<((u64, u64), CpuId)> = None;
    for cpu in k.domains.span(pass.span).iter().filter(|cpu| *cpu != pass.cpu) {
        let rq = &k.fair.rqs[cpu.index()];
        // A real-time task that runs there makes all fair ones wait.
        let waiting = rq.nr_runnable - u32::from(rq.curr.is_some() && rq.nr_runnable > 0);
        if waiting == 0 {
            continue;
        }
        let rank = if busy {
            let load = load_of(k, cpu);
            let less = here == Standing::HasSpare || (mine < load && mine * count < total);
            let much = here != Standing::Overloaded || load * 100 > mine * IMBALANCE_PCT;
            if standing(k, cpu) != Standing::Overloaded || !less || !much {
                continue;
            }
            (load, u64::from(rq.nr_runnable))
        } else {
            (u64::from(rq.nr_runnable), rq.load_weight)
        };
        if best.is_none_or(|(found, _)| rank > found) {
            best = Some((rank, cpu));
        }
    }
    best.map(|(_, cpu)| cpu)
}

/// `calculate_imbalance` for a busy CPU: half of the tasks more where it has use to spare, else load towards the
/// average of both.
fn imbalance_of_busy(k: &Kernel, pass: &Pass, busiest: CpuId) -> Imbalance {
    let tasks = |cpu: CpuId| k.fair.rqs[cpu.index()].nr_runnable;
    if standing(k, pass.cpu) == Standing::HasSpare {
        return Imbalance::Tasks(tasks(busiest).saturating_sub(tasks(pass.cpu)) / 2);
    }
    Imbalance::Load(load_of(k, busiest).saturating_sub(load_of(k, pass.cpu)) / 2)
}

/// How much is to be moved.
#[derive(Clone, Copy)]
enum Imbalance {
    Tasks(u32),
    Load(u64),
}

/// `detach_tasks` and `attach_tasks`: those that ran longest ago first.
fn move_tasks(k: &mut Kernel, pass: &Pass, from: CpuId, mut imbalance: Imbalance) -> u32 {
    let failed = pass.failed(k);
    let limit = k.fair.params.nr_migrate as usize;
    let mut candidates = std::mem::take(&mut k.fair.balance.candidates);
    candidates.clear();
    k.fair.queued_tasks(from, |task| {
        if can_migrate(k, pass, task, failed) {
            candidates.push((k.task(task).exec_start, task));
        }
    });
    candidates.sort_unstable();
    let mut moved = 0;
    for &(_, task) in candidates.iter().take(limit) {
        let weight = task_h_load(&k.fair, task).max(1);
        match &mut imbalance {
            Imbalance::Tasks(0) | Imbalance::Load(0) => break,
            Imbalance::Tasks(left) => *left -= 1,
            Imbalance::Load(left) if weight >> failed.min(31) > *left => continue,
            Imbalance::Load(left) => *left = left.saturating_sub(weight),
        }
        migrate(k, task, from, pass.cpu);
        moved += 1;
    }
    k.fair.balance.candidates = candidates;
    moved
}

/// `can_migrate_task`.
fn can_migrate(k: &Kernel, pass: &Pass, task: TaskId, failed: u32) -> bool {
    let entity = k.fair.entity(task);
    if entity.sched_delayed || !k.may_run_on(task, pass.cpu) {
        return false;
    }
    let queued_here = k.fair.rqs[pass.cpu.index()].nr_queued > 0;
    let eevdf = k.fair.params.generation == Generation::Eevdf;
    if eevdf && failed == 0 && queued_here && !k.fair.is_eligible(task) {
        return false;
    }
    failed > pass.cache_nice_tries() || !is_hot(k, pass, task)
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
    if k.task(curr).class == crate::kernel::Class::Fair && k.is_running(curr) {
        class::wakeup_preempt(k, to, task, 0);
    }
}
