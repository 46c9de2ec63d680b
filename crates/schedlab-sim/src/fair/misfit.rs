//! CPUs of different strength: which are strong enough for a task, and moving a running task that is too big.
//!
//! Use beyond 80 % of a CPU's capacity does not fit. Wake-ups prefer an idle CPU that fits; a big task that runs on a
//! weak CPU is pushed to a stronger one that idles (`migrate_misfit` with active balance). Not here: energy-aware
//! placement, uclamp. Preferred CPUs and the push itself: [`super::packing`].

use super::group::task_h_load;
use super::packing;
use super::select::is_free;
use crate::kernel::{Class, Kernel, TaskState};
use schedlab_model::{CpuId, TaskId};

/// `fits_capacity`: a fifth is to be left.
fn fits_capacity(util: u64, capacity: u64) -> bool {
    util * 1_280 < capacity * 1_024
}

/// `capacity_greater`: by more than 5 %.
fn capacity_greater(a: u64, b: u64) -> bool {
    a * 1_024 > b * 1_078
}

/// `util_est_update`, when a task goes to sleep: its use then; what it falls by later is a quarter of the difference.
pub(super) fn update_util_est(k: &mut Kernel, task: TaskId) {
    if !k.domains.is_asymmetric() {
        return;
    }
    let id = k.fair.groups.layout.entity_of(task);
    let entity = &mut k.fair.entities[id.index()];
    let (util, before) = (entity.average.util as u32, entity.util_est);
    entity.util_est = if util >= before { util } else { before - (before - util) / 4 };
}

/// `task_util_est`.
fn task_util_est(k: &Kernel, task: TaskId) -> u64 {
    let entity = k.fair.entity(task);
    entity.average.util.max(u64::from(entity.util_est))
}

/// `task_fits_cpu`.
pub(super) fn task_fits_cpu(k: &Kernel, task: TaskId, cpu: CpuId) -> bool {
    fits_capacity(task_util_est(k, task), u64::from(k.cpu(cpu).scale))
}

/// `select_idle_capacity`: the first idle CPU from the target on that fits, on an idle core if there is one; else the
/// strongest that idles.
pub(super) fn select_idle_capacity(k: &Kernel, task: TaskId, target: CpuId) -> Option<CpuId> {
    let count = k.cpu_count() as u32;
    let around = (0..count).map(|step| CpuId((target.0 + step) % count));
    let mut best: Option<((bool, bool, u32), CpuId)> = None;
    for cpu in around.filter(|cpu| k.may_run_on(task, *cpu) && is_free(k, *cpu)) {
        let core = k.domains.core(cpu).iter().all(|sibling| sibling == cpu || k.idle_mask.contains(sibling));
        let fits = task_fits_cpu(k, task, cpu);
        let rank = (core, fits, if fits { 0 } else { k.cpu(cpu).scale });
        if best.is_none_or(|(found, _)| rank > found) {
            best = Some((rank, cpu));
        }
    }
    best.map(|(_, cpu)| cpu)
}

/// `update_misfit_status`: the task that is too big for the CPU it runs on.
fn misfit_of(k: &Kernel, cpu: CpuId) -> Option<TaskId> {
    let curr = k.cpu(cpu).curr;
    let task = k.task(curr);
    let candidate = task.class == Class::Fair && task.state == TaskState::Runnable && task.nr_allowed > 1;
    (candidate && !task_fits_cpu(k, curr, cpu)).then_some(curr)
}

/// Whether the CPU's task wants a stronger CPU: reason enough for its tick to have idle CPUs balance.
pub(crate) fn wants_stronger(k: &Kernel, cpu: CpuId) -> bool {
    k.domains.is_asymmetric() && misfit_of(k, cpu).is_some()
}

/// An idle CPU looks for the biggest task that runs on a weaker one and would be better here; that is pushed
/// (`active_load_balance_cpu_stop`). Whether there was one.
pub(crate) fn pull(k: &mut Kernel, cpu: CpuId) -> bool {
    if !k.domains.is_asymmetric() || k.ideal {
        return false;
    }
    let capacity = u64::from(k.cpu(cpu).scale);
    if packing::is_promised(k, cpu) {
        return false;
    }
    let weaker = (0..k.cpu_count() as u32).map(CpuId).filter(|from| {
        capacity_greater(capacity, u64::from(k.cpu(*from).scale)) && k.fair.pushes[from.index()].is_none()
    });
    let misfits = weaker.filter_map(|from| misfit_of(k, from).map(|task| (from, task)));
    let here = misfits.filter(|(_, task)| k.may_run_on(*task, cpu));
    let Some((from, task)) =
        here.max_by_key(|(from, task)| (task_h_load(&k.fair, *task), std::cmp::Reverse(*from)))
    else {
        return false;
    };
    packing::request(k, from, task, cpu);
    true
}
