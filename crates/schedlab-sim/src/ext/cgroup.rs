//! Cgroups as the class sees them: a tree with weights, where tasks are, and the callbacks about it.
//!
//! What they mean for CPU time is the scheduler's business, as in Linux: the class only tells. The root is always
//! there; every other group that a workload names, and its ancestors, exist from the start to the end.

use super::call::{Op, call, call_long, call_task, sanitize_error};
use super::host::{Cx, Host};
use super::kernel::Layout;
use schedlab_bpf::memory::Memory;
use schedlab_model::workload::Workload;
use schedlab_model::workload::change::{CgroupSettings, CgroupSpec, CpuMax};

/// A cgroup.
#[derive(Clone, Debug)]
pub(crate) struct Cgroup {
    /// Path from the root, `/` for the root itself.
    pub path: String,
    /// Its `struct cgroup` in the region.
    pub address: u64,
    /// Its `struct task_group`.
    pub task_group: u64,
    /// Its `struct css_set`.
    pub css_set: u64,
    pub settings: CgroupSettings,
}

impl Cgroup {
    /// Whether it is the other group or below it.
    pub(crate) fn is_under(&self, other: &Cgroup) -> bool {
        let below = self.path.strip_prefix(other.path.as_str());
        below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || other.path == "/")
    }
}

/// Quota of a group without one (`RUNTIME_INF`).
const RUNTIME_INF: u64 = u64::MAX;

/// Every group the workload names, parents before children.
pub(crate) fn specs(workload: &Workload) -> Vec<CgroupSpec> {
    let attributes = workload.programs.iter().flat_map(|program| &program.ops).filter_map(|op| match op {
        schedlab_model::workload::Op::SetAttributes(attributes) => Some(&attributes.cgroup),
        _ => None,
    });
    let tasks = workload.tasks.iter().map(|task| &task.attributes.cgroup);
    let settings = workload.cgroups.iter().map(|cgroup| &cgroup.path);
    let mut paths: Vec<String> = Vec::new();
    for path in tasks.chain(attributes).chain(settings) {
        let parts = path.split('/').filter(|part| !part.is_empty());
        let mut prefix = String::new();
        for part in parts {
            prefix = format!("{prefix}/{part}");
            if !paths.contains(&prefix) {
                paths.push(prefix.clone());
            }
        }
    }
    paths.sort_unstable();
    let spec = |path: String| {
        let known = workload.cgroups.iter().find(|cgroup| normal(&cgroup.path) == path);
        CgroupSpec { settings: known.map_or_else(CgroupSettings::default, |known| known.settings), path }
    };
    paths.into_iter().map(spec).collect()
}

/// Whether a group is a session's (`autogroup_path`): no cgroup, so BPF schedulers do not see it.
pub(crate) fn is_autogroup(spec: &CgroupSpec) -> bool {
    spec.path.starts_with("/autogroup-")
}

/// A path as [`specs`] has it: a task's group may be written without the slash in front.
pub(crate) fn normal(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    format!("/{}", parts.join("/"))
}

/// Makes a group's objects; `None` if the region is full. `parents` are its ancestors, the root first.
pub(crate) fn create(
    memory: &mut Memory,
    layout: &Layout,
    spec: CgroupSpec,
    id: u64,
    parents: &[u64],
) -> Option<Cgroup> {
    let at = &layout.cgroup;
    let level = parents.len() as u64;
    let address = memory.alloc(layout.cgroup_size + 8 * level, 8)?;
    let node = memory.alloc(layout.kernfs_size, 8)?;
    let task_group = memory.alloc(layout.task_group_size, 8)?;
    let css_set = memory.alloc(layout.css_set_size, 8)?;
    memory.write_u64(address + at.css_cgroup, address);
    // No group is threaded.
    memory.write_u64(address + at.dom_cgrp, address);
    // A group begins with its own state of `cgroup`, so the parent's address is that of its state.
    memory.write_u64(address + at.css_parent, parents.last().copied().unwrap_or(0));
    memory.write_u32(address + at.level, level as u32);
    memory.write_u64(address + at.kn, node);
    memory.write_u64(node + layout.kernfs_id, id);
    for (index, ancestor) in parents.iter().chain([&address]).enumerate() {
        memory.write_u64(address + at.ancestors + 8 * index as u64, *ancestor);
    }
    memory.write_u64(task_group + layout.task_group_cgroup, address);
    memory.write_u64(css_set + layout.css_set_cgroup, address);
    Some(Cgroup { path: spec.path, address, task_group, css_set, settings: spec.settings })
}

/// Makes every group below the root.
pub(crate) fn build(cx: &mut Cx<'_>, specs: Vec<CgroupSpec>) {
    for spec in specs {
        let (host, memory) = cx.parts();
        let ancestors = spec.path.match_indices('/').skip(1).map(|(at, _)| &spec.path[..at]);
        let root = host.cgroups[0].address;
        let above = ancestors.map(|path| host.cgroups[host.find_cgroup(path)].address);
        let parents: Vec<u64> = std::iter::once(root).chain(above).collect();
        let id = host.cgroups.len() as u64 + 1;
        let layout = std::sync::Arc::clone(&host.layout);
        match create(memory, &layout, spec, id, &parents) {
            Some(cgroup) => host.cgroups.push(cgroup),
            None => {
                return super::exit::error(cx, "no memory for cgroups: raise the region's size".to_owned());
            }
        }
    }
}

/// `scx_cgroup_init`: parents first.
pub(crate) fn init_all(cx: &mut Cx<'_>) {
    if !cx.host().has_op(Op::CgroupInit) {
        return;
    }
    for index in 0..cx.host().cgroups.len() {
        let (host, memory) = cx.parts();
        let cgroup = &host.cgroups[index];
        let (address, settings) = (cgroup.address, cgroup.settings);
        let Some(args) = memory.alloc(32, 8) else { return };
        let [period, quota, burst] = bandwidth(settings.max);
        memory.write_u32(args, settings.weight);
        if host.version >= (6, 17) {
            [period, quota, burst].iter().enumerate().for_each(|(index, value)| {
                memory.write_u64(args + 8 + 8 * index as u64, *value);
            });
        }
        let value = call(cx, Op::CgroupInit, None, [0, 0], &[address, args]) as i32;
        cx.memory().free(args, 32, 8);
        if value != 0 {
            return super::exit::error(cx, format!("ops.cgroup_init() failed ({value})"));
        }
    }
}

/// `scx_cgroup_exit`: children first.
pub(crate) fn exit_all(cx: &mut Cx<'_>) {
    if !cx.host().has_op(Op::CgroupExit) {
        return;
    }
    for index in (0..cx.host().cgroups.len()).rev() {
        let address = cx.host().cgroups[index].address;
        call(cx, Op::CgroupExit, None, [0, 0], &[address]);
    }
}

/// Period, quota and burst in µs, as the kernel tells them.
fn bandwidth(max: CpuMax) -> [u64; 3] {
    let us = |time: schedlab_model::Nanos| time.0 / 1000;
    [us(max.period), max.quota.map_or(RUNTIME_INF, us), us(max.burst)]
}

/// `scx_group_set_weight`, `scx_group_set_idle`, `scx_group_set_bandwidth`.
pub(crate) fn change(cx: &mut Cx<'_>, spec: &CgroupSpec) {
    let host = cx.host();
    let Some(index) = host.cgroups.iter().position(|cgroup| cgroup.path == normal(&spec.path)) else {
        return;
    };
    let before = std::mem::replace(&mut host.cgroups[index].settings, spec.settings);
    let address = host.cgroups[index].address;
    let after = spec.settings;
    if after.weight != before.weight && cx.host().has_op(Op::CgroupSetWeight) {
        call(cx, Op::CgroupSetWeight, None, [0, 0], &[address, after.weight.into()]);
    }
    if after.idle != before.idle && cx.host().has_op(Op::CgroupSetIdle) {
        call(cx, Op::CgroupSetIdle, None, [0, 0], &[address, after.idle.into()]);
    }
    if after.max != before.max && cx.host().has_op(Op::CgroupSetBandwidth) {
        let [period, quota, burst] = bandwidth(after.max);
        call_long(cx, Op::CgroupSetBandwidth, &[address, period, quota, burst]);
    }
}

/// `scx_cgroup_can_attach` for one task: whether the scheduler lets it move.
pub(crate) fn prepare_move(cx: &mut Cx<'_>, task: u32, to: usize) -> bool {
    let host = cx.host();
    let [address, from, to] = move_arguments(host, task, to);
    if !host.has_op(Op::CgroupPrepMove) {
        return true;
    }
    let value = call(cx, Op::CgroupPrepMove, None, [0, 0], &[address, from, to]) as i32;
    if value != 0 {
        sanitize_error(cx.host(), Op::CgroupPrepMove, value);
        // The task that was refused was not prepared: nothing of it is cancelled.
        return false;
    }
    true
}

/// `scx_cgroup_move_task`, in the middle of the change.
pub(crate) fn move_task(cx: &mut Cx<'_>, task: u32, to: usize) {
    let host = cx.host();
    let [_, from, to_address] = move_arguments(host, task, to);
    let cpu = host.task(task).cpu;
    place(cx, task, to);
    call_task(cx, Op::CgroupMove, cpu, task, &[from, to_address]);
}

fn move_arguments(host: &Host, task: u32, to: usize) -> [u64; 3] {
    let entity = host.task(task);
    [entity.address, host.cgroups[entity.cgroup as usize].address, host.cgroups[to].address]
}

/// Puts a task into a group where programs see it.
pub(crate) fn place(cx: &mut Cx<'_>, task: u32, to: usize) {
    let (host, memory) = cx.parts();
    host.task_mut(task).cgroup = to as u32;
    let (address, at) = (host.task(task).address, &host.layout.task);
    memory.write_u64(address + at.sched_task_group, host.cgroups[to].task_group);
    memory.write_u64(address + at.cgroups, host.cgroups[to].css_set);
}

impl Host {
    /// The group of a path; the root for an unknown one.
    pub(crate) fn find_cgroup(&self, path: &str) -> usize {
        let path = normal(path);
        self.cgroups.iter().position(|cgroup| cgroup.path == path).unwrap_or(0)
    }

    /// The group at an address a program passed.
    pub(crate) fn cgroup_at(&self, address: u64) -> Option<usize> {
        self.cgroups.iter().position(|cgroup| cgroup.address == address)
    }
}
