//! The kfuncs of sched_ext and of tasks: name to function, with the kernel's checks and errors.
//!
//! [`table`] is the list. Arguments come as 64-bit registers; what a C prototype declares shorter is cut here.
//! Not here: kfuncs on CPU masks, number iterators and locks (schedlab-bpf), prototypes ([`super::kernel`]).

mod idle;
mod info;
mod insert;
mod iter;
mod moving;
mod text;
mod walk;

use super::exit;
use super::host::{Cx, Host};
use super::kernel::Layout;
use schedlab_bpf::exec::{ContextField, FaultKind, KfuncTable};

/// Every kfunc the simulated kernel answers.
pub(crate) fn table(layout: &Layout, nr_cpus: u32, nr_nodes: u32) -> KfuncTable<Host> {
    let mut table = KfuncTable::new();
    table.add_context("scx_bpf_now", ContextField::Now);
    table.add_constant("scx_bpf_nr_cpu_ids", nr_cpus.into());
    table.add_constant("scx_bpf_nr_node_ids", nr_nodes.into());
    table.add_constant("scx_bpf_put_cpumask", 0);
    table.add_constant("scx_bpf_put_idle_cpumask", 0);
    let cpu = i16::try_from(layout.task.cpu).expect("a field near the start of the task");
    table.add_load("scx_bpf_task_cpu", cpu, 4, true);
    insert::add(&mut table);
    moving::add(&mut table);
    iter::add(&mut table);
    idle::add(&mut table);
    info::add(&mut table);
    text::add(&mut table);
    walk::add(&mut table);
    table
}

/// The live task a program passed.
///
/// The verifier only lets valid task pointers pass; one that is not is the program's fault.
#[inline]
fn task(cx: &mut Cx<'_>, address: u64, kfunc: &'static str) -> Result<u32, FaultKind> {
    let (host, memory) = cx.parts();
    host.task_at(memory, address)
        .ok_or_else(|| FaultKind::Call { callee: kfunc, what: format!("{address:#x} is no task") })
}

/// `scx_cpu_valid`: an error of the scheduler if not.
#[inline]
fn cpu_valid(cx: &mut Cx<'_>, cpu: u64) -> Option<u32> {
    let cpu = cpu as u32;
    if cpu < cx.host().nr_cpus {
        return Some(cpu);
    }
    exit::error(cx, format!("invalid CPU {}", cpu as i32));
    None
}
