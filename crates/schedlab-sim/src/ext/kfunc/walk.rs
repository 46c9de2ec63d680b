//! Iterators over tasks and cgroups (`bpf_for_each(task, ...)`, `css`, `css_task`).
//!
//! Tasks come in the order in which they were created, cgroups in that of their names, parents first.

use super::super::consts::errno;
use super::super::host::{Cx, Host};
use super::super::task::Life;
use schedlab_bpf::exec::{FaultKind, KfuncTable};

/// `BPF_TASK_ITER_ALL_PROCS`, `BPF_TASK_ITER_ALL_THREADS`, `BPF_TASK_ITER_PROC_THREADS`.
const ALL_PROCS: u64 = 0;
const ALL_THREADS: u64 = 1;
const PROC_THREADS: u64 = 2;
/// First and last of `enum bpf_cgroup_iter_order` that `bpf_iter_css_new()` takes: from
/// `BPF_CGROUP_ITER_DESCENDANTS_PRE` to `BPF_CGROUP_ITER_ANCESTORS_UP`.
const CSS_ORDERS: std::ops::RangeInclusive<u64> = 2..=4;
const CSS_DESCENDANTS_POST: u64 = 3;
const CSS_ANCESTORS: u64 = 4;
/// Position of an iterator that gives nothing.
const END: u64 = u64::MAX;

pub(super) fn add(table: &mut KfuncTable<Host>) {
    table.add("bpf_iter_task_new", task_new);
    table.add("bpf_iter_task_next", task_next);
    table.add("bpf_iter_task_destroy", |_: &mut Cx<'_>, _it: u64| ());
    table.add("bpf_iter_css_new", css_new);
    table.add("bpf_iter_css_next", css_next);
    table.add("bpf_iter_css_destroy", |_: &mut Cx<'_>, _it: u64| ());
    table.add("bpf_iter_css_task_new", |cx: &mut Cx<'_>, it: u64, css: u64, _flags: u64| {
        css_task_new(cx, it, css)
    });
    table.add("bpf_iter_css_task_next", css_task_next);
    table.add("bpf_iter_css_task_destroy", |_: &mut Cx<'_>, _it: u64| ());
}

fn store(cx: &mut Cx<'_>, at: u64, value: u64) -> Result<(), FaultKind> {
    if cx.memory().store(at, 0, 8, value) { Ok(()) } else { Err(FaultKind::Store { address: at }) }
}

/// The iterator holds: number of the last task given, flags, thread group or 0.
fn task_new(cx: &mut Cx<'_>, it: u64, task: u64, flags: u64) -> Result<i64, FaultKind> {
    let flags = u64::from(flags as u32);
    let valid = match flags {
        ALL_PROCS | ALL_THREADS => true,
        PROC_THREADS => task != 0,
        _ => false,
    };
    let tgid_at = task.wrapping_add(cx.host().layout.task.tgid);
    let group = if flags == PROC_THREADS { cx.memory().read_u32(tgid_at) } else { 0 };
    store(cx, it, if valid { 0 } else { END })?;
    store(cx, it.wrapping_add(8), flags)?;
    store(cx, it.wrapping_add(16), group.into())?;
    Ok(if valid { 0 } else { -i64::from(errno::EINVAL) })
}

fn task_next(cx: &mut Cx<'_>, it: u64) -> Result<u64, FaultKind> {
    let flags = cx.memory().read_u64(it.wrapping_add(8));
    let group = cx.memory().read_u64(it.wrapping_add(16)) as u32;
    match flags {
        ALL_THREADS => next(cx, it, |_, _| true),
        PROC_THREADS => next(cx, it, |_, tgid| tgid == group),
        _ => next(cx, it, |pid, tgid| pid == tgid),
    }
}

/// Address of the next live task whose pid and thread group are wanted, 0 at the end.
fn next(cx: &mut Cx<'_>, it: u64, wanted: impl Fn(u32, u32) -> bool) -> Result<u64, FaultKind> {
    let last = cx.memory().read_u64(it);
    let (host, memory) = cx.parts();
    let (pid, tgid) = (host.layout.task.pid, host.layout.task.tgid);
    let from = usize::try_from(last).unwrap_or(usize::MAX).saturating_add(1);
    let live = host.tasks.iter().enumerate().skip(from);
    let mut live = live.filter(|(_, task)| task.address != 0 && task.life != Life::None);
    let found =
        live.find(|(_, t)| wanted(memory.read_u32(t.address + pid), memory.read_u32(t.address + tgid)));
    let (position, address) = found.map_or((END, 0), |(index, task)| (index as u64, task.address));
    store(cx, it, position)?;
    Ok(address)
}

/// The iterator holds: the group it starts from plus one, how many of its groups were given, the order.
fn css_new(cx: &mut Cx<'_>, it: u64, start: u64, flags: u64) -> Result<i64, FaultKind> {
    let order = u64::from(flags as u32);
    let start = cx.host().cgroup_at(start).filter(|_| CSS_ORDERS.contains(&order));
    store(cx, it, start.map_or(0, |start| start as u64 + 1))?;
    store(cx, it.wrapping_add(8), 0)?;
    store(cx, it.wrapping_add(16), order)?;
    Ok(if start.is_some() { 0 } else { -i64::from(errno::EINVAL) })
}

fn css_next(cx: &mut Cx<'_>, it: u64) -> Result<u64, FaultKind> {
    let memory = cx.memory();
    let [start, given, order] = [0, 8, 16].map(|offset| memory.read_u64(it.wrapping_add(offset)));
    let groups = &cx.host().cgroups;
    let Some(start) = start.checked_sub(1).and_then(|start| groups.get(start as usize)) else { return Ok(0) };
    let mut below = groups.iter().filter(|group| group.is_under(start));
    let given = usize::try_from(given).unwrap_or(usize::MAX);
    let next = match order {
        CSS_ANCESTORS => groups.iter().rev().filter(|group| start.is_under(group)).nth(given),
        CSS_DESCENDANTS_POST => below.rev().nth(given),
        _ => below.nth(given),
    };
    // A cgroup begins with its css.
    let address = next.map_or(0, |group| group.address);
    store(cx, it.wrapping_add(8), given as u64 + 1)?;
    Ok(address)
}

/// The iterator holds: number of the last task given, and of the group plus one.
fn css_task_new(cx: &mut Cx<'_>, it: u64, css: u64) -> Result<i64, FaultKind> {
    let group = cx.host().cgroup_at(css);
    store(cx, it, group.map_or(0, |group| (group as u64 + 1) << 32))?;
    Ok(if group.is_some() { 0 } else { -i64::from(errno::EINVAL) })
}

fn css_task_next(cx: &mut Cx<'_>, it: u64) -> Result<u64, FaultKind> {
    let word = cx.memory().read_u64(it);
    let (last, group) = (word as u32 as usize, word >> 32);
    let tasks = cx.host().tasks.iter().enumerate().skip(last + 1);
    let mut tasks = tasks.filter(|(_, task)| task.address != 0 && task.life != Life::None);
    let Some((index, address)) = tasks
        .find(|(_, task)| u64::from(task.cgroup) + 1 == group)
        .map(|(index, task)| (index as u64, task.address))
    else {
        store(cx, it, 0)?;
        return Ok(0);
    };
    store(cx, it, group << 32 | index)?;
    Ok(address)
}
