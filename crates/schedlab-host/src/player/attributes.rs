//! Policy, nice value, slice and affinity of the calling thread. They are its own: they end with it.

use crate::process::SchedAttr;
use schedlab_model::{CpuId, CpuSet, Nice, Policy, TaskAttributes};
use std::io;

/// Changes the calling thread from attributes to others. What stays is not asked for; no restriction is `all`.
pub fn change(from: &TaskAttributes, to: &TaskAttributes, all: &CpuSet) -> io::Result<()> {
    if from.affinity != to.affinity {
        set_affinity(if to.affinity == CpuSet::ALL { all } else { &to.affinity })?;
    }
    let scheduling = |of: &TaskAttributes| (of.policy, of.nice, of.rt_priority, of.slice);
    if scheduling(from) == scheduling(to) {
        return Ok(());
    }
    let attributes = SchedAttr {
        policy: to.policy.number(),
        nice: to.nice.get(),
        priority: u32::from(to.rt_priority),
        runtime: to.slice.map_or(0, |slice| slice.0),
        ..SchedAttr::default()
    };
    attributes.give(0)
}

/// Those of the calling thread, with its affinity as no restriction.
pub fn own() -> TaskAttributes {
    // SAFETY: plain calls about this thread.
    let (policy, nice) = unsafe { (libc::sched_getscheduler(0), libc::getpriority(libc::PRIO_PROCESS, 0)) };
    TaskAttributes {
        policy: u32::try_from(policy).ok().and_then(Policy::from_number).unwrap_or_default(),
        nice: Nice::new(i64::from(nice)).unwrap_or_default(),
        affinity: CpuSet::ALL,
        ..TaskAttributes::default()
    }
}

/// Ties the calling thread to these CPUs.
pub fn set_affinity(cpus: &CpuSet) -> io::Result<()> {
    let words = cpus.words();
    // SAFETY: the kernel reads that many bytes of the words.
    let result = unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, size_of_val(words), words.as_ptr()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Ties the calling thread to one CPU.
pub fn pin(cpu: usize) -> io::Result<()> {
    set_affinity(&CpuSet::single(CpuId(cpu as u32)))
}

/// Where the calling thread may run.
pub fn affinity() -> CpuSet {
    let mut words = [0_u64; schedlab_model::cpu_set::CPUS_MAX / 64];
    // SAFETY: the kernel fills at most so many bytes of the words.
    unsafe { libc::syscall(libc::SYS_sched_getaffinity, 0, size_of_val(&words), words.as_mut_ptr()) };
    let is_set = |cpu: &usize| words[cpu / 64] >> (cpu % 64) & 1 == 1;
    (0..words.len() * 64).filter(is_set).map(|cpu| CpuId(cpu as u32)).collect()
}
