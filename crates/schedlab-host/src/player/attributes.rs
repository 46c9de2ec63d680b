//! Policy, nice value, slice and affinity of the calling thread. They are its own: they end with it.

use crate::capability;
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

impl Refused {
    fn affinity(to: &CpuSet, source: io::Error) -> Refused {
        let remedy = "None of them is there, or a cpuset keeps this process from them: see `taskset -p $$`";
        Refused { what: format!("CPUs {to}"), source, remedy }
    }

    /// `may_raise`: the right to raise priority is there.
    fn scheduling(to: &TaskAttributes, source: io::Error, may_raise: bool) -> Refused {
        let is_right = source.raw_os_error() == Some(libc::EPERM);
        let (policy, nice) = (to.policy, to.nice.get());
        let what = match policy {
            Policy::Fifo => format!("SCHED_FIFO {}", to.rt_priority),
            Policy::Rr => format!("SCHED_RR {}", to.rt_priority),
            Policy::Ext => "SCHED_EXT".to_owned(),
            Policy::Normal | Policy::Batch | Policy::Idle | Policy::Deadline => format!("nice {nice}"),
        };
        let remedy = match (policy.is_realtime(), is_right, may_raise) {
            _ if policy == Policy::Ext && !is_right => "It needs a kernel with sched_ext",
            (true, true, false) => {
                "Real-time needs root with CAP_SYS_NICE, which containers may lack: use sudo, or raise `ulimit -r`"
            }
            (true, true, true) => {
                "The right is there: the control group has no real-time (cpu.rt_runtime_us), or a filter of system \
                 calls forbids it, as a container's may"
            }
            (false, true, false) => {
                "A lower nice value than before needs root with CAP_SYS_NICE, which containers may lack: use sudo, or \
                 raise `ulimit -e`"
            }
            (false, true, true) => {
                "The right is there: a filter of system calls forbids it, as a container's may"
            }
            (_, false, _) => "The kernel does not know them",
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
    let may_raise = || capability::probe().raise_priority;
    attributes.give(0).map_err(|error| Refused::scheduling(to, error, may_raise()))
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
        let ext = TaskAttributes { policy: Policy::Ext, ..TaskAttributes::default() };
        assert!(said(&ext, libc::EINVAL, true).contains("sched_ext"));
        // No machine has that CPU.
        let far = TaskAttributes { affinity: CpuSet::single(CpuId(1023)), ..TaskAttributes::default() };
        let refused = change(&TaskAttributes::default(), &far, &CpuSet::ALL).expect_err("no such CPU");
        assert!(refused.to_string().contains("CPUs 1023"), "{refused}");
    }
}
