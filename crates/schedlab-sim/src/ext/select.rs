//! Where a task that wakes shall run: `ops.select_cpu()`, or the built-in choice without one.
//!
//! Not here: the choice of an idle CPU ([`super::idle`]), what becomes of the answer ([`crate::core::wakeup`]).

use super::call::{Op, call_known};
use super::consts::SCX_DSQ_LOCAL;
use super::host::{Cx, Direct};
use super::objects::refill_slice;
use super::{exit, idle};

/// `select_task_rq_scx`.
#[inline(always)]
pub(super) fn select_cpu(cx: &mut Cx<'_>, task: u32, prev_cpu: u32, wake_flags: u64) -> u32 {
    let host = cx.host();
    host.task_mut(task).selected = true;
    if !host.has_op(Op::SelectCpu) || host.bypass {
        return select_without_program(cx, task, prev_cpu, wake_flags);
    }
    host.direct = Direct::For(task);
    let address = host.task(task).address;
    let arguments = [address, prev_cpu.into(), wake_flags];
    let cpu = call_known(cx, Op::SelectCpu, None, [task, 0], &arguments) as i32;
    let host = cx.host();
    host.direct = Direct::None;
    host.task_mut(task).selected_cpu = cpu;
    if (0..host.nr_cpus as i32).contains(&cpu) {
        return cpu as u32;
    }
    select_nonsense(cx, cpu);
    prev_cpu
}

#[cold]
fn select_nonsense(cx: &mut Cx<'_>, cpu: i32) {
    exit::error(cx, format!("invalid CPU {cpu} from ops.select_cpu()"));
}

/// The built-in choice.
#[inline(never)]
fn select_without_program(cx: &mut Cx<'_>, task: u32, prev_cpu: u32, wake_flags: u64) -> u32 {
    let found = idle::select_cpu_dfl(cx, task, prev_cpu, wake_flags, None, 0);
    if found.is_some() {
        refill_slice(cx, task);
        cx.host().task_mut(task).ddsp_dsq_id = SCX_DSQ_LOCAL;
    }
    let cpu = found.unwrap_or(prev_cpu);
    cx.host().task_mut(task).selected_cpu = cpu as i32;
    cpu
}
