//! Wake-up and fork placement of the fair class (`select_task_rq_fair`).
//!
//! Wake-ups: waker's or previous CPU (`wake_affine`), then an idle CPU near it (`select_idle_sibling`).
//! Forks: down the domains to the idlest.

use super::group::task_h_load;
use super::imbalance::Stats;
use super::misfit;
use super::params::Features;
use super::shared;
use crate::core::flags;
use crate::kernel::Kernel;
use schedlab_model::topology::Distance;
use schedlab_model::{CpuId, TaskId};

/// `imbalance_pct` of domains above a core: 17 % more is not yet an imbalance.
pub(crate) const IMBALANCE_PCT: u64 = 117;

/// Up to how many tenths of `vcpu_pack_percent` a busy CPU is preferred over an idle one. Fitted: wakees left idle CPUs
/// at up to 38 % of use and stayed from 41 % on.
const PACK_IDLE_TENTHS: u64 = 6;

/// Chooses a CPU for a task that wakes or is new.
pub(crate) fn select_task_rq(k: &mut Kernel, task: TaskId, wake_flags: u32) -> CpuId {
    let (prev, here) = (k.task(task).cpu, k.this_cpu);
    if wake_flags & flags::WF_FORK != 0 {
        return if k.task(task).parent.is_idle() {
            find_idlest(k, task, prev)
        } else {
            find_for_child(k, task, prev)
        };
    }
    let sync = wake_flags & flags::WF_SYNC != 0;
    let affine = here != prev && !wake_wide(k, task, here) && k.may_run_on(task, here);
    let target = if affine { wake_affine(k, task, here, prev, sync) } else { prev };
    select_idle_sibling(k, task, prev, target)
}

/// `wake_wide`: waker and wakee both switch partners often; do not pull them together.
fn wake_wide(k: &Kernel, task: TaskId, here: CpuId) -> bool {
    let factor = u64::from(k.domains.weight(k.domains.llc_number(here)));
    let (waker, wakee) = (k.task(k.cpu(here).curr).wakee_flips, k.task(task).wakee_flips);
    let (master, slave) = (u64::from(waker.max(wakee)), u64::from(waker.min(wakee)));
    slave >= factor && master >= slave * factor
}

/// `wake_affine`: the waker's CPU or the previous one.
fn wake_affine(k: &mut Kernel, task: TaskId, here: CpuId, prev: CpuId, sync: bool) -> CpuId {
    if k.fair.params.has(Features::WA_IDLE) {
        if k.is_idle_cpu(here) && k.domains.share_cache(here, prev) {
            return if k.is_idle_cpu(prev) && !interrupt_draws(k) { prev } else { here };
        }
        if sync && k.cpu(here).nr_running == 1 {
            return here;
        }
        if k.is_idle_cpu(prev) {
            return prev;
        }
    }
    super::class::update_averages(k, here);
    super::class::update_averages(k, prev);
    let lighter = k.fair.params.has(Features::WA_WEIGHT) && is_lighter(k, task, here, prev, sync);
    if lighter { here } else { prev }
}

/// `wake_affine_weight`: the waker's CPU would be less loaded with the task than the previous one is now.
fn is_lighter(k: &Kernel, task: TaskId, here: CpuId, prev: CpuId, sync: bool) -> bool {
    let load = |cpu: CpuId| k.fair.rqs[cpu.index()].average.load;
    let weight = task_h_load(&k.fair, task);
    let mut this_load = load(here);
    if sync {
        let current = task_h_load(&k.fair, k.cpu(here).curr);
        if current > this_load {
            return true;
        }
        this_load -= current;
    }
    let this_load = (this_load + weight) * 100 * u64::from(k.cpu(prev).scale);
    let bias = 100 + (IMBALANCE_PCT - 100) / 2;
    let prev_load = load(prev).saturating_sub(weight) * bias * u64::from(k.cpu(here).scale);
    this_load < prev_load + u64::from(sync)
}

/// `available_idle_cpu` or `sched_idle_cpu`: nothing runs there but SCHED_IDLE tasks.
pub(super) fn is_free(k: &Kernel, cpu: CpuId) -> bool {
    let running = k.cpu(cpu).nr_running;
    k.is_idle_cpu(cpu) || (running > 0 && running == k.fair.rqs[cpu.index()].nr_idle)
}

/// `select_idle_sibling`: the target, the previous or a recently used CPU if idle, else an idle one that
/// shares the target's cache, whole cores first.
fn select_idle_sibling(k: &mut Kernel, task: TaskId, prev: CpuId, target: CpuId) -> CpuId {
    let asymmetric = k.domains.is_asymmetric();
    let fits = |k: &Kernel, cpu: CpuId| !asymmetric || misfit::task_fits_cpu(k, task, cpu);
    let usable = |k: &Kernel, cpu: CpuId| k.may_run_on(task, cpu) && is_free(k, cpu) && fits(k, cpu);
    if usable(k, target) {
        return target;
    }
    if prev != target && k.domains.share_cache(prev, target) && usable(k, prev) {
        return if gathers(k, task, target) { target } else { prev };
    }
    let recent = k.task(task).recent_used_cpu;
    k.task_mut(task).recent_used_cpu = prev;
    let shared = recent != prev && recent != target && k.domains.share_cache(recent, target);
    if shared && usable(k, recent) {
        return recent;
    }
    if let Some(cpu) = busy_with_room(k, task, prev, target) {
        return cpu;
    }
    if asymmetric {
        return misfit::select_idle_capacity(k, task, target).unwrap_or(target);
    }
    let mut has_idle_core = false;
    if k.domains.has_smt() {
        has_idle_core = shared::of(k, target).has_idle_cores;
        if !has_idle_core && k.domains.share_cache(prev, target) {
            let threads = k.domains.core_number(prev);
            if let Some(cpu) = first_idle(k, task, threads, CpuId(0)) {
                return cpu;
            }
        }
    }
    select_idle_cpu(k, task, target, has_idle_core).unwrap_or(target)
}

/// Not in mainline, see `vcpu_pack_percent`: a busy CPU that has room for the task, the previous one or else the target; where
/// no CPU is idle, one of the cache with room and fewer tasks. In a storm of forks 63 of 70 wakees that met two tasks on their
/// CPU and one on the other went there, of 110 that met one on theirs none.
fn busy_with_room(k: &mut Kernel, task: TaskId, prev: CpuId, target: CpuId) -> Option<CpuId> {
    if k.fair.params.vcpu_pack_percent == 0 {
        return None;
    }
    let near = prev != target && k.may_run_on(task, prev) && k.domains.share_cache(prev, target);
    let kept = near.then_some(prev).into_iter().chain([target]).find(|cpu| packs(k, task, *cpu));
    if first_idle(k, task, k.domains.llc_number(target), target).is_some() {
        return kept;
    }
    let mut best = kept;
    for cpu in (0..k.cpu_count() as u32).map(CpuId) {
        let other = Some(cpu) != kept && k.domains.share_cache(cpu, target) && k.may_run_on(task, cpu);
        let fewer = best.is_none_or(|best| k.cpu(cpu).nr_running < k.cpu(best).nr_running);
        if other && fewer && packs(k, task, cpu) {
            best = Some(cpu);
        }
    }
    best
}

/// Not in mainline, see `vcpu_pack_percent`: a busy CPU that has room for the task keeps it.
fn packs(k: &mut Kernel, task: TaskId, cpu: CpuId) -> bool {
    let percent = k.fair.params.vcpu_pack_percent;
    percent > 0 && use_with(k, task, cpu) * 100 < percent * u64::from(k.cpu(cpu).scale)
}

/// Not in mainline: a wakee leaves its idle CPU for the waker's while that has much room.
fn gathers(k: &mut Kernel, task: TaskId, target: CpuId) -> bool {
    let percent = k.fair.params.vcpu_pack_percent * PACK_IDLE_TENTHS;
    percent > 0 && use_with(k, task, target) * 1_000 < percent * u64::from(k.cpu(target).scale)
}

/// Not in mainline: an interrupt on an idle CPU draws its wakee there from an idle CPU. 11,247 of 11,380 completions of
/// reads did, whatever either CPU's use.
fn interrupt_draws(k: &Kernel) -> bool {
    k.fair.params.vcpu_pack_percent > 0
}

/// What a CPU's fair tasks use of it by PELT, together with the task.
fn use_with(k: &mut Kernel, task: TaskId, cpu: CpuId) -> u64 {
    super::class::update_averages(k, cpu);
    let entity = k.fair.entity(task);
    let there = entity.attached.map(|rq| k.fair.groups.cpu_of(rq)) == Some(cpu);
    let own = if there { 0 } else { entity.average.util };
    k.fair.rqs[cpu.index()].average.util + own
}

/// The CPU after this one, wrapping.
fn next_cpu(k: &Kernel, cpu: CpuId) -> CpuId {
    CpuId((cpu.0 + 1) % k.cpu_count() as u32)
}

/// First idle CPU of a span that the task may use, from `start` around.
fn first_idle(k: &Kernel, task: TaskId, span: usize, start: CpuId) -> Option<CpuId> {
    k.domains.first_common(span, &k.allowed[task.index()], &k.idle_mask, start)
}

/// `select_idle_cpu`: an idle CPU of the target's cache, of a whole core if there seems to be one. Under `SIS_UTIL` a cache
/// of much use is searched in part, or not at all.
fn select_idle_cpu(k: &mut Kernel, task: TaskId, target: CpuId, has_idle_core: bool) -> Option<CpuId> {
    let hints = *shared::of(k, target);
    let bounded = k.fair.params.has(Features::SIS_UTIL) && hints.is_bounded();
    if bounded && hints.nr_idle_scan == 0 {
        return None;
    }
    let (span, start) = (k.domains.llc_number(target), next_cpu(k, target));
    let found = first_idle(k, task, span, start);
    if has_idle_core {
        let core = found.and_then(|first| select_idle_core(k, task, span, start, first));
        if core.is_none() {
            shared::of(k, target).has_idle_cores = false;
        }
        return core.or(found);
    }
    let looked_at = |cpu| k.allowed[task.index()].count_common_between(k.domains.span(span), start, cpu);
    found.filter(|cpu| !bounded || looked_at(*cpu) < hints.nr_idle_scan as usize)
}

/// `select_idle_core`: the first core from `start` around, all of whose threads are idle. `first` is the first idle CPU.
fn select_idle_core(k: &Kernel, task: TaskId, span: usize, start: CpuId, first: CpuId) -> Option<CpuId> {
    let mut cpu = first;
    loop {
        if k.domains.core(cpu).iter().all(|sibling| k.idle_mask.contains(sibling)) {
            return Some(cpu);
        }
        let next = first_idle(k, task, span, next_cpu(k, cpu))?;
        // Around once, when the next one is no farther from the start than this one.
        let distance = |cpu: CpuId| (cpu.0 + k.cpu_count() as u32 - start.0) % k.cpu_count() as u32;
        if distance(next) <= distance(cpu) {
            return None;
        }
        cpu = next;
    }
}

/// How attractive a group of CPUs is for a new task: more idle CPUs first, then fewer tasks a CPU.
fn group_rank(k: &Kernel, task: TaskId, span: usize) -> Option<(u64, u64)> {
    let (mut idle, mut running, mut count) = (0, 0, 0);
    for cpu in k.domains.span(span).iter().filter(|cpu| k.may_run_on(task, *cpu)) {
        count += 1;
        idle += u64::from(is_free(k, cpu));
        running += u64::from(k.cpu(cpu).nr_running);
    }
    (count > 0).then(|| (u64::MAX - idle, running * 1_024 / count))
}

/// `sched_balance_find_dst_cpu` for what a task forks: from the widest domain down; the child leaves its parent's group for
/// one that is idler by use, load or idle CPUs, and there goes to an idle or the least loaded CPU.
fn find_for_child(k: &mut Kernel, task: TaskId, parent: CpuId) -> CpuId {
    if k.may_run_on(task, parent) && packs(k, task, parent) {
        return parent;
    }
    let mut cpu = parent;
    let mut level = None::<Distance>;
    loop {
        let below = |domain: &&crate::kernel::Domain| level.is_none_or(|level| domain.level < level);
        let Some(domain) = k.domains.of(cpu).iter().rev().find(below) else { break };
        level = Some(domain.level);
        let (mut local, mut idlest) = (None, None::<Stats>);
        for &group in &domain.groups {
            let span = k.domains.span(group);
            if !span.iter().any(|other| k.is_online(other) && k.may_run_on(task, other)) {
                continue;
            }
            let stats = Stats::for_fork(k, group);
            if span.contains(cpu) {
                local = Some(stats);
            } else if idlest.is_none_or(|found| stats.is_idler(&found)) {
                idlest = Some(stats);
            }
        }
        let leaves = idlest.filter(|idlest| local.is_none_or(|local| local.sends_to(idlest)));
        if let Some(group) = leaves {
            cpu = idlest_of_group(k, task, group.group).unwrap_or(cpu);
        }
    }
    cpu
}

/// `sched_balance_find_dst_group_cpu`: an idle CPU, or the one with the least load.
fn idlest_of_group(k: &Kernel, task: TaskId, group: usize) -> Option<CpuId> {
    let usable = |cpu: &CpuId| k.is_online(*cpu) && k.may_run_on(task, *cpu);
    let load = |cpu: &CpuId| (!is_free(k, *cpu), k.fair.rqs[cpu.index()].average.load);
    k.domains.span(group).iter().filter(usable).min_by_key(load)
}

/// For a task that nobody forks, at the start of a run: from the widest domain down into the group with the fewest tasks;
/// the local one wins ties.
fn find_idlest(k: &Kernel, task: TaskId, start: CpuId) -> CpuId {
    let mut cpu = start;
    let mut level = None::<Distance>;
    loop {
        let below = |domain: &&crate::kernel::Domain| level.is_none_or(|level| domain.level < level);
        let Some(domain) = k.domains.of(cpu).iter().rev().find(below) else { break };
        level = Some(domain.level);
        let mut best: Option<((u64, u64), usize)> = None;
        for &group in &domain.groups {
            let Some(rank) = group_rank(k, task, group) else { continue };
            if best.is_none_or(|(found, _)| rank < found) {
                best = Some((rank, group));
            }
        }
        let Some((_, group)) = best else { break };
        if !k.domains.span(group).contains(cpu) || !k.may_run_on(task, cpu) {
            let usable = |cpu: &CpuId| k.may_run_on(task, *cpu);
            let Some(first) = k.domains.span(group).iter().find(usable) else { break };
            cpu = first;
        }
    }
    cpu
}
