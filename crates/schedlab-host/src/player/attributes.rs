//! Policy, nice value, slice and affinity of the calling thread. They are its own: they end with it.

use crate::capability;
use crate::live::tasks::policy_name;
use crate::process::SchedAttr;
use schedlab_model::{CpuId, CpuSet, Nice, Policy, TaskAttributes};
use std::io;

/// What the kernel does not let a task have.
#[derive(Debug, thiserror::Error)]
#[error("the kernel refuses {what}: {source}. {remedy}")]
pub struct Refused {
    what: String,
    source: io::Error,
    remedy: &'static str,
}

/// Where nothing is missing that could be given.
const FILTERED: &str = "The right is there, but a filter of system calls forbids it, as a container's may";

impl Refused {
    fn affinity(to: &CpuSet, source: io::Error) -> Refused {
        let remedy = match source.raw_os_error() {
            Some(libc::EPERM) => FILTERED,
            _ => {
                "None of them is there, or the control group of this process has none of them (cpuset.cpus.effective)"
            }
        };
        Refused { what: format!("CPUs {to}"), source, remedy }
    }

    /// `may_raise`: the right to raise priority is there.
    fn scheduling(to: &TaskAttributes, source: io::Error, may_raise: bool) -> Refused {
        let (policy, nice) = (policy_name(to.policy.number().cast_signed()), to.nice.get());
        let what = match to.policy.is_realtime() {
            true => format!("{policy} {}", to.rt_priority),
            false => format!("{policy} with nice {nice}"),
        };
        let remedy = match (source.raw_os_error(), to.policy) {
            (Some(libc::EPERM), Policy::Fifo | Policy::Rr) if may_raise => {
                "The right is there, but the control group has no real-time (cpu.rt_runtime_us, or only the root group has \
                 any), or a filter of system calls forbids it, as a container's may"
            }
            (Some(libc::EPERM), _) if may_raise => FILTERED,
            (Some(libc::EPERM), Policy::Fifo | Policy::Rr) => {
                "Real-time needs root with CAP_SYS_NICE, which containers may lack: use sudo, or raise `ulimit -r`"
            }
            (Some(libc::EPERM), _) => {
                "A lower nice value than before, and leaving SCHED_IDLE, need root with CAP_SYS_NICE, which containers may \
                 lack: use sudo, or raise `ulimit -e`"
            }
            (Some(libc::EINVAL), Policy::Ext) => "It needs a kernel with sched_ext",
            (Some(libc::EACCES), Policy::Ext) => "The scheduler that runs does not let this task have it",
            _ => "This kernel does not have that, or a security module forbids it",
        };
        Refused { what, source, remedy }
    }
}

/// Changes the calling thread from attributes to others. What stays is not asked for; no restriction is `all`.
pub fn change(from: &TaskAttributes, to: &TaskAttributes, all: &CpuSet) -> Result<(), Refused> {
    if from.affinity != to.affinity {
        let cpus = if to.affinity == CpuSet::ALL { all } else { &to.affinity };
        set_affinity(cpus).map_err(|error| Refused::affinity(cpus, error))?;
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
    attributes.give(0).map_err(|error| Refused::scheduling(to, error, capability::probe().raise_priority))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_attribute_and_what_helps() {
        let said = |to: &TaskAttributes, code, may_raise| {
            Refused::scheduling(to, io::Error::from_raw_os_error(code), may_raise).to_string()
        };
        let fifo = TaskAttributes { policy: Policy::Fifo, rt_priority: 50, ..TaskAttributes::default() };
        let text = said(&fifo, libc::EPERM, false);
        assert!(text.contains("SCHED_FIFO 50") && text.contains("ulimit -r"), "{text}");
        let text = said(&fifo, libc::EPERM, true);
        assert!(text.contains("cpu.rt_runtime_us") && !text.contains("sudo"), "{text}");
        let strong =
            TaskAttributes { nice: Nice::new(-5).expect("a nice value"), ..TaskAttributes::default() };
        let text = said(&strong, libc::EPERM, false);
        assert!(text.contains("nice -5") && text.contains("ulimit -e"), "{text}");
        assert!(!said(&strong, libc::EPERM, true).contains("sudo"));
        let ext = TaskAttributes { policy: Policy::Ext, ..TaskAttributes::default() };
        assert!(said(&ext, libc::EINVAL, true).contains("needs a kernel with sched_ext"));
        assert!(said(&ext, libc::EACCES, true).contains("The scheduler that runs"));
        assert!(said(&strong, libc::EACCES, true).contains("security module"));
        // No machine has that CPU.
        let far = TaskAttributes { affinity: CpuSet::single(CpuId(1023)), ..TaskAttributes::default() };
        let refused = change(&TaskAttributes::default(), &far, &CpuSet::ALL).expect_err("no such CPU");
        assert!(refused.to_string().contains("CPUs 1023"), "{refused}");
    }
}
