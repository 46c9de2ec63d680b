//! The tasks that exist, with their attributes, from procfs and `sched_getattr`.
//!
//! A task may end while it is read; it is then left out. Not here: who among them is a target.

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

fn numbers(directory: &Path) -> Vec<i32> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut numbers: Vec<i32> =
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    numbers.sort_unstable();
    numbers
}

/// One task, if it is still there.
pub(super) fn task(tgid: i32, pid: i32) -> Option<TaskInfo> {
    let directory = format!("/proc/{tgid}/task/{pid}");
    let stat = fs::read_to_string(format!("{directory}/stat")).ok()?;
    let (name, fields) = parse_stat(&stat)?;
    let number = |field: usize| fields.get(field - 3).and_then(|text| text.parse::<i64>().ok());
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
        name,
        parent: TaskId::IDLE,
        attributes,
        target: false,
        existed: true,
        start_cpu: CpuId(number(39).unwrap_or(0) as u32),
        start_runnable: fields[0] == "R",
    })
}

/// Process of a thread.
pub(super) fn process_of(pid: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok())
}

/// Name, and the fields from the third (state) on. The name may hold spaces and parentheses.
fn parse_stat(stat: &str) -> Option<(String, Vec<&str>)> {
    let (head, rest) = stat.rsplit_once(')')?;
    let (_, name) = head.split_once('(')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    (fields.len() > 38).then(|| (name.to_owned(), fields))
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

/// `struct sched_attr` as far as it is needed.
#[repr(C)]
#[derive(Default)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
    util_min: u32,
    util_max: u32,
}

/// Custom slice of a fair task. Kernels since 6.12 report the slice in force, so the base slice, which most
/// tasks have, is told as none.
fn custom_slice(pid: i32) -> Option<Nanos> {
    let own = base_slice();
    slice(pid).filter(|slice| Some(*slice) != own)
}

fn slice(pid: i32) -> Option<Nanos> {
    let mut attributes = SchedAttr::default();
    let size = size_of::<SchedAttr>() as libc::c_uint;
    // SAFETY: the kernel writes at most `size` bytes to a struct of that size.
    let result = unsafe { libc::syscall(libc::SYS_sched_getattr, pid, &raw mut attributes, size, 0) };
    let fair = matches!(attributes.policy, 0 | 3);
    (result == 0 && fair && attributes.runtime > 0).then_some(Nanos(attributes.runtime))
}

/// The slice of a task that has no custom one: that of the first kernel thread.
fn base_slice() -> Option<Nanos> {
    static BASE: std::sync::OnceLock<Option<Nanos>> = std::sync::OnceLock::new();
    *BASE.get_or_init(|| slice(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_parentheses_are_read() {
        let numbers = vec!["0"; 49].join(" ");
        let stat = format!("7 (a (b) c) R {numbers}");
        let (name, fields) = parse_stat(&stat).expect("whole");
        assert_eq!((name.as_str(), fields[0]), ("a (b) c", "R"));
        assert!(parse_stat("7 (a) R 1").is_none());
    }

    #[test]
    fn this_thread_is_found() {
        let own = std::process::id() as i32;
        let task = task(own, own).expect("we exist");
        assert_eq!((task.tgid, task.attributes.kernel_thread), (own, false));
        assert_eq!(process_of(own), Some(own));
    }
}
