//! The tasks that exist, with their attributes, from procfs and `sched_getattr`.
//!
//! A task may end while it is read; it is then left out. Not here: who among them is a target.

use crate::process::{SchedAttr, Stat, numbers};
use schedlab_model::recording::TaskInfo;
use schedlab_model::{CpuId, CpuSet, Nanos, Nice, Policy, TaskAttributes, TaskId};
use std::fs;
use std::path::Path;

/// Kernel threads have this flag (`PF_KTHREAD`).
const PF_KTHREAD: u64 = 0x0020_0000;

/// Every task of the machine.
pub(super) fn tasks() -> Vec<TaskInfo> {
    let mut all = Vec::new();
    for process in numbers(Path::new("/proc")) {
        for thread in numbers(Path::new(&format!("/proc/{process}/task"))) {
            all.extend(task(process, thread));
        }
    }
    all
}

/// One task, if it is still there.
pub(super) fn task(tgid: i32, pid: i32) -> Option<TaskInfo> {
    let directory = format!("/proc/{tgid}/task/{pid}");
    let stat = Stat::read(Path::new(&directory))?;
    let number = |field: usize| stat.number(field);
    let attributes = TaskAttributes {
        policy: number(41).and_then(|n| Policy::from_number(n as u32)).unwrap_or_default(),
        nice: number(19).and_then(|n| Nice::new(n).ok()).unwrap_or_default(),
        rt_priority: number(40).unwrap_or(0) as u8,
        slice: custom_slice(pid),
        affinity: affinity(&directory).unwrap_or_default(),
        cgroup: super::groups::of_task(tgid, &directory),
        kernel_thread: number(9).is_some_and(|flags| flags as u64 & PF_KTHREAD != 0),
    };
    Some(TaskInfo {
        pid,
        tgid,
        name: stat.name.clone(),
        parent: TaskId::IDLE,
        attributes,
        target: false,
        existed: true,
        start_cpu: CpuId(number(39).unwrap_or(0) as u32),
        start_runnable: stat.state() == "R",
    })
}

/// Process of a thread.
pub(super) fn process_of(pid: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok())
}

/// CPUs a task may run on; every CPU of the machine is told as no restriction.
pub(super) fn affinity(directory: &str) -> Option<CpuSet> {
    let status = fs::read_to_string(format!("{directory}/status")).ok()?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    Some(unrestricted_or(list.trim().parse().ok()?))
}

/// [`CpuSet::ALL`] if the set has every CPU that there may be.
pub(super) fn unrestricted_or(set: CpuSet) -> CpuSet {
    let possible = fs::read_to_string("/sys/devices/system/cpu/possible").ok();
    let possible: Option<CpuSet> = possible.and_then(|list| list.trim().parse().ok());
    match possible {
        Some(possible) if set.and(&possible) == possible => CpuSet::ALL,
        _ => set,
    }
}

/// Custom slice of a fair task.
fn custom_slice(pid: i32) -> Option<Nanos> {
    let attributes = SchedAttr::as_set(pid).ok()?;
    (attributes.is_fair() && attributes.runtime > 0).then_some(Nanos(attributes.runtime))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_thread_is_found() {
        let own = std::process::id() as i32;
        let task = task(own, own).expect("we exist");
        assert_eq!((task.tgid, task.attributes.kernel_thread), (own, false));
        assert_eq!(process_of(own), Some(own));
    }
}
