//! Wake-up and fork placement of the fair class (`select_task_rq_fair`).

use crate::kernel::Kernel;
use schedlab_model::{CpuId, TaskId};

/// Chooses a CPU for a task that wakes or is new.
pub(crate) fn select_task_rq(k: &mut Kernel, task: TaskId, _wake_flags: u32) -> CpuId {
    let prev = k.task(task).cpu;
    if k.may_run_on(task, prev) && k.is_idle_cpu(prev) {
        return prev;
    }
    let allowed = &k.allowed[task.index()];
    let found = allowed.first_common_wrapping(&k.idle_mask, k.domains.llc(prev), prev);
    found.unwrap_or_else(|| if allowed.contains(prev) { prev } else { allowed.iter().next().unwrap_or(prev) })
}
