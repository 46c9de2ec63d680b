//! Preferred CPUs (`SD_ASYM_PACKING`), and tasks that are pushed while they run (active balance).
//!
//! x86 packs tasks onto preferred cores (ITMT) where cores differ and have threads, so that Linux cannot take them for
//! CPUs of different capacity. The machine's capacities are the priorities then. Who asks: [`super::imbalance`] and
//! [`super::balance`]; CPUs of different capacity are in [`super::misfit`].

use super::balance::{IdleType, Pass};
use super::imbalance::Amount;
use crate::kernel::{Class, Kernel, TaskState};
use schedlab_model::topology::Distance;
use schedlab_model::{CpuId, TaskId};

/// `is_core_idle`: the CPU's core has nothing to do but what is on this CPU.
pub(super) fn is_core_idle(k: &Kernel, cpu: CpuId) -> bool {
    k.domains.core(cpu).iter().all(|sibling| sibling == cpu || k.is_idle_cpu(sibling))
}

/// `sched_use_asym_prio`: whether a CPU's priority counts, which that of a thread beside a busy one does not. Threads of one
/// core are equal.
fn counts(k: &Kernel, level: Distance, cpu: CpuId) -> bool {
    k.domains.has_priorities() && level != Distance::Smt && is_core_idle(k, cpu)
}

/// `sched_asym`: work of `other` is better on `cpu`.
pub(super) fn prefers(k: &Kernel, level: Distance, cpu: CpuId, other: CpuId) -> bool {
    counts(k, level, cpu) && k.domains.priority(cpu) > k.domains.priority(other)
}

/// `asym_prefer_cpu`: the group's CPU of highest priority, the first of equals.
pub(super) fn preferred(k: &Kernel, group: usize) -> CpuId {
    let cpus = k.domains.span(group).iter();
    let best = cpus
        .filter(|cpu| k.is_online(*cpu))
        .max_by_key(|cpu| (k.domains.priority(*cpu), std::cmp::Reverse(*cpu)));
    best.expect("a group with tasks has CPUs")
}

/// Whether an idle CPU is preferred to this one, on which something runs: reason enough for its tick to have it balance.
pub(super) fn wants_preferred(k: &Kernel, cpu: CpuId) -> bool {
    k.domains.has_priorities() && k.idle_mask.iter().any(|idle| prefers(k, Distance::Cache, idle, cpu))
}

/// `need_active_balance`: nothing that waits could be moved, so the running task is; to a preferred CPU at once, to even out
/// numbers after some failures.
pub(super) fn needs_push(k: &mut Kernel, pass: &Pass, from: CpuId, amount: Amount) -> bool {
    let idle = pass.idle != IdleType::Busy;
    let here = counts(k, pass.level, pass.cpu);
    let better = k.domains.priority(pass.cpu) > k.domains.priority(from);
    if idle && here && (better || !counts(k, pass.level, from)) {
        return true;
    }
    matches!(amount, Amount::Tasks(_)) && pass.failed(k) > pass.cache_nice_tries() + 2
}

/// Whether a running task is on its way to the CPU: on Linux it is there at once.
pub(super) fn is_promised(k: &Kernel, to: CpuId) -> bool {
    k.fair.has_pushed && k.fair.pushes.iter().flatten().any(|(_, other)| *other == to)
}

/// Has the CPU's running task pushed to another (`active_load_balance_cpu_stop`), if it is a fair one that may run there,
/// nobody is pushed from there yet, and nobody to there.
pub(super) fn push(k: &mut Kernel, from: CpuId, to: CpuId) -> bool {
    let curr = k.cpu(from).curr;
    let suits = k.task(curr).class == Class::Fair && k.may_run_on(curr, to);
    if !suits || k.fair.pushes[from.index()].is_some() || is_promised(k, to) {
        return false;
    }
    request(k, from, curr, to);
    true
}

/// Marks the CPU's running task to be pushed, and interrupts it.
pub(super) fn request(k: &mut Kernel, from: CpuId, task: TaskId, to: CpuId) {
    k.fair.pushes[from.index()] = Some((task, to));
    k.fair.has_pushed = true;
    k.resched_curr(from);
}

/// Where the CPU's current task is pushed to, if it still is the one and the other CPU still idles.
pub(crate) fn take_push(k: &mut Kernel, cpu: CpuId, curr: TaskId) -> Option<CpuId> {
    let (task, to) = k.fair.pushes.get_mut(cpu.index())?.take()?;
    let runs = task == curr && k.task(task).state == TaskState::Runnable && k.task(task).class == Class::Fair;
    (runs && k.is_idle_cpu(to) && k.may_run_on(task, to)).then_some(to)
}
