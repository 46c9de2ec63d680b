//! Choosing idle CPUs, and the masks that say which are.

use super::super::call::{Op, require};
use super::super::consts::{SCX_PICK_IDLE_IN_NODE, errno};
use super::super::exit;
use super::super::host::{Cx, Host};
use super::super::idle::{Within, any_among, pick_among, select_cpu_dfl, test_and_clear};
use super::super::mask::Mask;
use super::{cpu_valid, task};
use schedlab_bpf::exec::{FaultKind, KfuncTable};

pub(super) fn add(table: &mut KfuncTable<Host>) {
    table.add("scx_bpf_select_cpu_dfl", select_dfl);
    table.add("scx_bpf_select_cpu_and", select_and);
    table.add("__scx_bpf_select_cpu_and", select_and_args);
    table.add("scx_bpf_test_and_clear_cpu_idle", claim);
    table.add("scx_bpf_pick_idle_cpu", |cx: &mut Cx<'_>, mask: u64, flags: u64| pick(cx, mask, flags, false));
    table.add("scx_bpf_pick_any_cpu", |cx: &mut Cx<'_>, mask: u64, flags: u64| pick(cx, mask, flags, true));
    table.add("scx_bpf_pick_idle_cpu_node", |cx: &mut Cx<'_>, mask: u64, node: u64, flags: u64| {
        pick_node(cx, mask, node, flags, false)
    });
    table.add("scx_bpf_pick_any_cpu_node", |cx: &mut Cx<'_>, mask: u64, node: u64, flags: u64| {
        pick_node(cx, mask, node, flags, true)
    });
    table.add("scx_bpf_get_idle_cpumask", |cx: &mut Cx<'_>| idle_mask(cx, false));
    table.add("scx_bpf_get_idle_smtmask", |cx: &mut Cx<'_>| idle_mask(cx, true));
    table.add("scx_bpf_get_idle_cpumask_node", |cx: &mut Cx<'_>, node: u64| node_mask(cx, node, false));
    table.add("scx_bpf_get_idle_smtmask_node", |cx: &mut Cx<'_>, node: u64| node_mask(cx, node, true));
    table.add("scx_bpf_cpu_node", cpu_node);
}

fn builtin_enabled(cx: &mut Cx<'_>) -> bool {
    let enabled = cx.host().idle.enabled;
    if !enabled {
        exit::error(cx, "built-in idle tracking is disabled".to_owned());
    }
    enabled
}

/// `select_cpu_from_kfunc`: a CPU or a negative error.
#[inline(always)]
fn select(
    cx: &mut Cx<'_>,
    address: u64,
    prev_cpu: u64,
    wake_flags: u64,
    allowed: Option<Mask>,
    flags: u64,
    kfunc: &'static str,
) -> Result<i32, FaultKind> {
    let groups = cx.host().rules.select_groups;
    if !require(cx, groups, kfunc)? {
        return Ok(-errno::EINVAL);
    }
    let task = task(cx, address, kfunc)?;
    let Some(prev_cpu) = cpu_valid(cx, prev_cpu) else { return Ok(-errno::EINVAL) };
    if !builtin_enabled(cx) {
        return Ok(-errno::EBUSY);
    }
    let (host, memory) = cx.parts();
    let in_select = host.call.op == Some(Op::SelectCpu);
    let [first, second] = host.call.subjects;
    if in_select && first != task && second != task {
        exit::error(cx, "called on a task not being operated on".to_owned());
        return Ok(-errno::EINVAL);
    }
    if let Some(held) = host.call.locked().filter(|held| *held != host.task(task).cpu) {
        let text = format!("select_cpu kfunc called cross-task on {}", host.label(memory, task));
        host.error(held as i32, text);
        return Ok(-errno::EINVAL);
    }
    if host.task(task).nr_cpus_allowed == 1 {
        let only = host.allowed(task).first(memory, host.nr_cpus).unwrap_or(prev_cpu);
        let inside = allowed.is_none_or(|mask| mask.contains(memory, only));
        let same = flags & SCX_PICK_IDLE_IN_NODE == 0
            || !host.idle.per_node
            || host.node_of(only) == host.node_of(prev_cpu);
        let claimed = inside && same && test_and_clear(host, memory, only);
        return Ok(if claimed { only as i32 } else { -errno::EBUSY });
    }
    let found = select_cpu_dfl(cx, task, prev_cpu, wake_flags, allowed, flags);
    Ok(found.map_or(-errno::EBUSY, |cpu| cpu as i32))
}

fn select_dfl(
    cx: &mut Cx<'_>,
    task: u64,
    prev: u64,
    wake_flags: u64,
    is_idle: u64,
) -> Result<i32, FaultKind> {
    let cpu = select(cx, task, prev, wake_flags, None, 0, "scx_bpf_select_cpu_dfl")?;
    if !cx.memory().store(is_idle, 0, 1, u64::from(cpu >= 0)) {
        return Err(FaultKind::Store { address: is_idle });
    }
    Ok(if cpu >= 0 { cpu } else { prev as i32 })
}

fn select_and(
    cx: &mut Cx<'_>,
    task: u64,
    prev: u64,
    wake_flags: u64,
    allowed: u64,
    flags: u64,
) -> Result<i32, FaultKind> {
    select(cx, task, prev, wake_flags, Some(Mask(allowed)), flags, "scx_bpf_select_cpu_and")
}

/// `struct scx_bpf_select_cpu_and_args`: prev_cpu, wake_flags, flags.
fn select_and_args(cx: &mut Cx<'_>, task: u64, allowed: u64, args: u64) -> Result<i32, FaultKind> {
    let memory = cx.memory();
    let [prev, wake_flags, flags] = [0, 8, 16].map(|offset| memory.read_u64(args.wrapping_add(offset)));
    select_and(cx, task, prev & 0xffff_ffff, wake_flags, allowed, flags)
}

fn claim(cx: &mut Cx<'_>, cpu: u64) -> bool {
    if !builtin_enabled(cx) {
        return false;
    }
    let Some(cpu) = cpu_valid(cx, cpu) else { return false };
    let (host, memory) = cx.parts();
    test_and_clear(host, memory, cpu)
}

fn per_node_off(cx: &mut Cx<'_>, text: &str) -> bool {
    let on = cx.host().idle.per_node;
    if on {
        exit::error(cx, text.to_owned());
    }
    !on
}

fn pick(cx: &mut Cx<'_>, mask: u64, flags: u64, any: bool) -> i32 {
    if !per_node_off(cx, "per-node idle tracking is enabled") || (!any && !builtin_enabled(cx)) {
        return -errno::EBUSY;
    }
    let idle = if cx.host().idle.enabled { pick_among(cx, Mask(mask), 0, flags) } else { None };
    let found = idle.or_else(|| if any { any_among(cx, Mask(mask), Within::All) } else { None });
    found.map_or(-errno::EBUSY, |cpu| cpu as i32)
}

/// `validate_node`: the node's index among the masks, or a negative error.
fn node_index(cx: &mut Cx<'_>, node: u64) -> Result<usize, i32> {
    if !cx.host().idle.per_node {
        exit::error(cx, "per-node idle tracking is disabled".to_owned());
        return Err(-errno::EOPNOTSUPP);
    }
    let node = node as i32;
    if node == -1 {
        return Err(-errno::ENOENT);
    }
    if node < 0 || node >= cx.host().topology.nodes().len() as i32 {
        exit::error(cx, format!("invalid node {node}"));
        return Err(-errno::EINVAL);
    }
    Ok(node as usize + 1)
}

fn pick_node(cx: &mut Cx<'_>, mask: u64, node: u64, flags: u64, any: bool) -> i32 {
    let node = match node_index(cx, node) {
        Ok(node) => node,
        Err(error) => return error,
    };
    let found = pick_among(cx, Mask(mask), node, flags).or_else(|| {
        if !any {
            return None;
        }
        let in_node = flags & SCX_PICK_IDLE_IN_NODE != 0;
        let within = if in_node { Within::Node(node as u32 - 1) } else { Within::All };
        any_among(cx, Mask(mask), within)
    });
    found.map_or(-errno::EBUSY, |cpu| cpu as i32)
}

fn idle_mask(cx: &mut Cx<'_>, smt: bool) -> u64 {
    let none = cx.host().idle.none.0;
    if !per_node_off(cx, "SCX_OPS_BUILTIN_IDLE_PER_NODE enabled") || !builtin_enabled(cx) {
        return none;
    }
    mask_of(cx, 0, smt)
}

fn node_mask(cx: &mut Cx<'_>, node: u64, smt: bool) -> u64 {
    let none = cx.host().idle.none.0;
    node_index(cx, node).map_or(none, |node| mask_of(cx, node, smt))
}

fn mask_of(cx: &mut Cx<'_>, index: usize, smt: bool) -> u64 {
    let idle = &cx.host().idle;
    if smt && idle.smt_active { idle.masks[index].smt.0 } else { idle.masks[index].cpu.0 }
}

fn cpu_node(cx: &mut Cx<'_>, cpu: u64) -> i32 {
    cpu_valid(cx, cpu).map_or(-1, |cpu| cx.host().node_of(cpu) as i32)
}
