//! Helpers by number and the generic kfuncs by name.
//!
//! Here is the table; the functions are grouped in the modules below. What belongs to a scheduler (scx_bpf_*)
//! is the host's.

mod arena;
mod basic;
mod collection;
mod cpumask;
mod dynptr;
mod iter;
mod map;
mod names;
mod show;
mod storage;
mod string;
mod timer;

use crate::exec::context::HostFn;
use crate::exec::target::{Action, CallTarget, ContextField};
use crate::exec::{CallContext, FaultKind, Host, KfuncTable};

/// Context of a helper.
type Cx<'a, H> = CallContext<'a, H>;

fn call<H, Signature>(function: impl HostFn<H, Signature>) -> Action {
    Action::Function(function.entry())
}

/// The helper with a number of `enum bpf_func_id`.
pub(crate) fn find<H: Host>(id: u32) -> Option<CallTarget> {
    let (name, action) = map::find::<H>(id)
        .or_else(|| basic::find::<H>(id))
        .or_else(|| string::find::<H>(id))
        .or_else(|| show::find::<H>(id))
        .or_else(|| storage::find::<H>(id))
        .or_else(|| timer::find::<H>(id))
        .or_else(|| dynptr::find::<H>(id))?;
    Some(CallTarget { name: format!("helper {name}"), action })
}

/// Adds the kfuncs that are not the host's.
pub(crate) fn generic_kfuncs<H: Host>(table: &mut KfuncTable<H>) {
    for name in [
        "bpf_rcu_read_lock",
        "bpf_rcu_read_unlock",
        "bpf_preempt_disable",
        "bpf_preempt_enable",
        "bpf_local_irq_save",
        "bpf_local_irq_restore",
        "bpf_res_spin_lock",
        "bpf_res_spin_unlock",
        "bpf_res_spin_lock_irqsave",
        "bpf_res_spin_unlock_irqrestore",
    ] {
        table.add_constant(name, 0);
    }
    table.add_context("bpf_get_smp_processor_id", ContextField::Cpu);
    arena::add(table);
    collection::add(table);
    dynptr::add(table);
    string::add(table);
    timer::add(table);
    iter::add(table);
    cpumask::add(table);
}

pub(crate) use names::name as helper_name;

/// An argument that cannot be: ends the program.
fn bad(callee: &'static str, what: impl Into<String>) -> FaultKind {
    FaultKind::Call { callee, what: what.into() }
}

/// A kernel error number as r0.
fn errno(error: i64) -> u64 {
    -error as u64
}
