//! Asking the kernel: CPUs, current tasks, performance, counters, tasks by pid, cgroups.

use super::super::consts::{SCX_CPUPERF_ONE, SCX_OPS_TID_TO_TASK};
use super::super::exit;
use super::super::host::{Cx, EVENT_COUNTS, Host};
use super::super::task::Life;
use super::{cpu_valid, task};
use schedlab_bpf::exec::{FaultKind, KfuncTable};
use schedlab_model::CpuId;

pub(super) fn add(table: &mut KfuncTable<Host>) {
    table.add("scx_bpf_get_possible_cpumask", |cx: &mut Cx<'_>| cx.host().possible_mask);
    table.add("scx_bpf_get_online_cpumask", |cx: &mut Cx<'_>| cx.host().online_mask.0);
    table.add("scx_bpf_cpu_rq", |cx: &mut Cx<'_>, cpu: u64| cpu_rq(cx, cpu));
    table.add("scx_bpf_locked_rq", locked_rq);
    table.add("scx_bpf_cpu_curr", cpu_curr);
    table.add("scx_bpf_cpuperf_cap", cpuperf_cap);
    table.add("scx_bpf_cpuperf_cur", |cx: &mut Cx<'_>, cpu: u64| {
        let _ = cpu_valid(cx, cpu);
        SCX_CPUPERF_ONE
    });
    table.add("scx_bpf_cpuperf_set", cpuperf_set);
    table.add("scx_bpf_events", events);
    table.add("scx_bpf_task_cgroup", task_cgroup);
    table.add("scx_bpf_tid_to_task", tid_to_task);
    table.add("bpf_task_from_pid", from_pid);
    table.add("bpf_task_from_vpid", from_pid);
    table.add("bpf_task_under_cgroup", |cx: &mut Cx<'_>, address: u64, ancestor: u64| {
        let task = task(cx, address, "bpf_task_under_cgroup")?;
        let host = cx.host();
        let group = host.task(task).cgroup as usize;
        let above = host.cgroup_at(ancestor);
        Ok::<bool, FaultKind>(above.is_some_and(|above| host.cgroups[group].is_under(&host.cgroups[above])))
    });
    table.add_constant("bpf_task_get_cgroup1", 0);
    table.add("bpf_task_acquire", |_: &mut Cx<'_>, task: u64| task);
    table.add_constant("bpf_task_release", 0);
    table.add("bpf_cgroup_acquire", |_: &mut Cx<'_>, cgroup: u64| cgroup);
    table.add_constant("bpf_cgroup_release", 0);
    table.add("bpf_cgroup_ancestor", cgroup_ancestor);
    table.add("bpf_cgroup_from_id", |cx: &mut Cx<'_>, id: u64| {
        let cgroup = id.checked_sub(1).and_then(|index| cx.host().cgroups.get(index as usize));
        cgroup.map_or(0, |cgroup| cgroup.address)
    });
}

fn cpu_rq(cx: &mut Cx<'_>, cpu: u64) -> u64 {
    cpu_valid(cx, cpu).map_or(0, |cpu| cx.host().rq(cpu).address)
}

fn locked_rq(cx: &mut Cx<'_>) -> u64 {
    match cx.host().call.locked() {
        Some(cpu) => cx.host().rq(cpu).address,
        None => {
            exit::error(cx, "accessing rq without holding rq lock".to_owned());
            0
        }
    }
}

fn cpu_curr(cx: &mut Cx<'_>, cpu: u64) -> u64 {
    cpu_valid(cx, cpu).map_or(0, |cpu| {
        let host = cx.host();
        host.task(host.rq(cpu).curr).address
    })
}

fn cpuperf_cap(cx: &mut Cx<'_>, cpu: u64) -> u64 {
    cpu_valid(cx, cpu).map_or(SCX_CPUPERF_ONE, |cpu| cx.host().topology.cpu(CpuId(cpu)).capacity.into())
}

fn cpuperf_set(cx: &mut Cx<'_>, cpu: u64, target: u64) {
    let target = target as u32;
    if u64::from(target) > SCX_CPUPERF_ONE {
        return exit::error(cx, format!("Invalid cpuperf target {target} for CPU {}", cpu as i32));
    }
    let Some(cpu) = cpu_valid(cx, cpu) else { return };
    if cx.host().call.locked().is_some_and(|held| held != cpu) {
        return exit::error(cx, format!("Invalid target CPU {cpu}"));
    }
    cx.host().rq_mut(cpu).cpuperf_target = target;
}

fn events(cx: &mut Cx<'_>, to: u64, bytes: u64) -> Result<(), FaultKind> {
    let counts = cx.host().events;
    for (index, count) in counts.iter().enumerate().take((bytes / 8).min(EVENT_COUNTS as u64) as usize) {
        if !cx.memory().store(to.wrapping_add(8 * index as u64), 0, 8, *count as u64) {
            return Err(FaultKind::Store { address: to });
        }
    }
    Ok(())
}

/// An ancestor of a cgroup at a level, itself included.
fn cgroup_ancestor(cx: &mut Cx<'_>, cgroup: u64, level: u64) -> u64 {
    let (host, memory) = cx.parts();
    let Some(index) = host.cgroup_at(cgroup) else { return 0 };
    let address = host.cgroups[index].address;
    let at = &host.layout.cgroup;
    let deepest = memory.read_u32(address + at.level);
    if level as u32 > deepest {
        0
    } else {
        memory.read_u64(address + at.ancestors + 8 * (level & 0xffff_ffff))
    }
}

/// The cgroup of a task.
fn task_cgroup(cx: &mut Cx<'_>, address: u64) -> Result<u64, FaultKind> {
    let task = task(cx, address, "scx_bpf_task_cgroup")?;
    if !cx.host().call.subjects.contains(&task) {
        exit::error(cx, "called on a task not being operated on".to_owned());
    }
    let host = cx.host();
    Ok(host.cgroups[host.task(task).cgroup as usize].address)
}

/// A task by `p->scx.tid`, which is its number here.
fn tid_to_task(cx: &mut Cx<'_>, tid: u64) -> u64 {
    if cx.host().ops.flags & SCX_OPS_TID_TO_TASK == 0 {
        exit::error(cx, "scx_bpf_tid_to_task() called without SCX_OPS_TID_TO_TASK".to_owned());
        return 0;
    }
    let task = cx.host().tasks.get(tid as usize).filter(|task| tid != 0 && task.life != Life::None);
    task.map_or(0, |task| task.address)
}

fn from_pid(cx: &mut Cx<'_>, pid: u64) -> u64 {
    let (host, memory) = cx.parts();
    let at = host.layout.task.pid;
    let live = host.tasks.iter().skip(1).filter(|task| task.address != 0 && task.life != Life::None);
    live.map(|task| task.address).find(|task| memory.read_u32(task + at) == pid as u32).unwrap_or(0)
}
