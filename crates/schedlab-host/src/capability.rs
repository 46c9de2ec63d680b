//! What this machine permits: privileges, type information, sched_ext, knobs of the fair scheduler.
//!
//! Every answer is tried, not guessed from a version: lockdown hides files even from root. What a candidate
//! needs beside what is here gives [`Usability`], in words with the remedy.

use crate::machine;
use schedlab_model::lever::{Requirement, Usability};
use schedlab_model::machine::KernelVersion;
use std::fs::{self, OpenOptions};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

const CAP_SYS_ADMIN: u32 = 21;
const CAP_SYS_NICE: u32 = 23;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Effective user is root.
    pub root: bool,
    /// May load and attach tracing programs.
    pub bpf: bool,
    /// The kernel describes its types.
    pub btf: bool,
    /// The kernel has sched_ext.
    pub sched_ext: bool,
    /// The knobs in `/sys/kernel/debug/sched` can be written.
    pub debugfs_sched: bool,
    /// May raise priority: negative nice, real-time policies.
    pub raise_priority: bool,
    /// The kernel's lockdown mode, if it tells or shows one.
    pub lockdown: Option<String>,
    /// Release, as `uname -r` prints it.
    pub kernel_release: String,
    /// Its version; `None` if the release cannot be read.
    pub kernel: Option<KernelVersion>,
}

/// Looks at the running machine. Changes nothing.
pub fn probe() -> Capabilities {
    // In a user namespace capabilities count for what belongs to it, which the scheduler and BPF do not.
    let effective = if in_first_user_namespace() { effective_capabilities() } else { 0 };
    let has = |capability: u32| effective >> capability & 1 == 1;
    let kernel_release = machine::kernel_release();
    Capabilities {
        root: is_root(),
        bpf: has(CAP_SYS_ADMIN) || (has(CAP_BPF) && has(CAP_PERFMON)),
        btf: Path::new("/sys/kernel/btf/vmlinux").exists(),
        sched_ext: Path::new("/sys/kernel/sched_ext").exists(),
        debugfs_sched: knobs_writable(),
        raise_priority: has(CAP_SYS_NICE),
        lockdown: lockdown(),
        kernel: kernel_release.parse().ok(),
        kernel_release,
    }
}

/// Attaches a program that does nothing to the tracepoint of switches, and takes it away again.
pub fn try_tracepoint() -> std::io::Result<()> {
    use libbpf_rs::libbpf_sys;
    let error = |code: i32| std::io::Error::from_raw_os_error(-code);
    // r0 = 0; exit.
    let instructions = [0xb7_u64, 0x95].map(u64::to_ne_bytes);
    // SAFETY: libbpf reads C strings and as many instructions as there are; what it returns is a descriptor of ours or
    // an error below zero.
    unsafe {
        let program = libbpf_sys::bpf_prog_load(
            libbpf_sys::BPF_PROG_TYPE_RAW_TRACEPOINT,
            c"schedlab_probe".as_ptr(),
            c"GPL".as_ptr(),
            instructions.as_ptr().cast(),
            instructions.len() as u64,
            std::ptr::null_mut(),
        );
        if program < 0 {
            return Err(error(program));
        }
        let program = OwnedFd::from_raw_fd(program);
        let link = libbpf_sys::bpf_raw_tracepoint_open(c"sched_switch".as_ptr(), program.as_raw_fd());
        if link < 0 {
            return Err(error(link));
        }
        drop(OwnedFd::from_raw_fd(link));
    }
    Ok(())
}

/// Makes a thread of its own real-time, which ends with it.
pub fn try_real_time() -> std::io::Result<()> {
    let thread = std::thread::Builder::new().spawn(|| become_real_time(libc::SCHED_FIFO, 1));
    thread?.join().unwrap_or_else(|_| Err(std::io::ErrorKind::Other.into()))
}

/// Gives the calling thread a real-time policy, with its flags, and a priority from 1 to 99; refused, it stays as it was.
pub(crate) fn become_real_time(policy: libc::c_int, priority: libc::c_int) -> std::io::Result<()> {
    let parameter = libc::sched_param { sched_priority: priority };
    // SAFETY: the kernel reads one struct that lives through the call, and changes only this thread.
    match unsafe { libc::sched_setscheduler(0, policy, &raw const parameter) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

pub(crate) fn is_root() -> bool {
    // SAFETY: only reads the process's identity.
    unsafe { libc::geteuid() == 0 }
}

/// Whose user numbers are the kernel's own.
fn in_first_user_namespace() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_whitespace().eq(["0", "0", "4294967295"]) || map.is_empty()
}

fn effective_capabilities() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|text| u64::from_str_radix(text.trim(), 16).ok()).unwrap_or(0)
}

/// Opening for writing is refused under lockdown although the mode bits allow it.
fn knobs_writable() -> bool {
    let directory = Path::new("/sys/kernel/debug/sched");
    ["base_slice_ns", "min_granularity_ns", "latency_ns"]
        .iter()
        .any(|knob| OpenOptions::new().write(true).open(directory.join(knob)).is_ok())
}

/// As securityfs tells it, else as it shows: permission bits would give EACCES, and never to root.
fn lockdown() -> Option<String> {
    if let Ok(text) = fs::read_to_string("/sys/kernel/security/lockdown") {
        return text.split(['[', ']']).nth(1).map(str::to_owned);
    }
    let refused = fs::File::open("/sys/kernel/debug/sched/features").err()?;
    (refused.raw_os_error() == Some(libc::EPERM)).then(|| "integrity or stricter".to_owned())
}

impl Capabilities {
    /// Whether a candidate with these requirements could be applied here.
    pub fn usability(&self, requirements: &[Requirement]) -> Usability {
        let missing: Vec<String> = requirements.iter().filter_map(|needed| self.missing(needed)).collect();
        if missing.is_empty() { Usability::UsableHere } else { Usability::Needs(missing.join("; ")) }
    }

    /// What lacks for one requirement, in words with the remedy.
    pub(crate) fn missing(&self, requirement: &Requirement) -> Option<String> {
        let (there, words) = match requirement {
            Requirement::SchedExt if !self.sched_ext => {
                (false, "a kernel with sched_ext (6.12 or newer with CONFIG_SCHED_CLASS_EXT=y)".to_owned())
            }
            Requirement::SchedExt => (self.bpf, "root, to load a sched_ext scheduler: use sudo".to_owned()),
            Requirement::Kernel(version) => {
                let release = &self.kernel_release;
                (
                    self.kernel.is_some_and(|kernel| kernel >= *version),
                    format!("Linux {version} or newer; this is {release}"),
                )
            }
            Requirement::Debugfs if self.root => {
                let words =
                    "a writable /sys/kernel/debug/sched (mount debugfs; lockdown hides it even from root)";
                (self.debugfs_sched, words.to_owned())
            }
            Requirement::Debugfs => {
                (self.debugfs_sched, "root, to write /sys/kernel/debug/sched: use sudo".to_owned())
            }
            Requirement::RaisePriority => {
                (self.raise_priority, "the right to raise priority: use sudo, or CAP_SYS_NICE".to_owned())
            }
            // Nothing tells which weights a kernel was built with, and no stock kernel has others than Linux's.
            Requirement::WeightTable => (
                false,
                "a kernel built with these weights: the scheduler cfs takes them on any kernel with sched_ext"
                    .to_owned(),
            ),
        };
        (!there).then_some(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bare() -> Capabilities {
        Capabilities {
            root: false,
            bpf: false,
            btf: true,
            sched_ext: false,
            debugfs_sched: false,
            raise_priority: false,
            lockdown: None,
            kernel_release: "6.12.1".to_owned(),
            kernel: Some(KernelVersion::V6_12),
        }
    }

    #[test]
    fn what_is_missing_is_named_with_the_remedy() {
        let here = bare();
        assert_eq!(here.usability(&[]), Usability::UsableHere);
        assert_eq!(here.usability(&[Requirement::Kernel(KernelVersion::V6_12)]), Usability::UsableHere);
        let needs = here.usability(&[Requirement::SchedExt, Requirement::RaisePriority]);
        let Usability::Needs(words) = needs else { panic!("it lacks both") };
        assert!(words.contains("CONFIG_SCHED_CLASS_EXT") && words.contains("CAP_SYS_NICE"), "{words}");
        let weights = here.usability(&[Requirement::WeightTable]);
        assert!(matches!(weights, Usability::Needs(words) if words.contains("the scheduler cfs")));
        let newer = here.usability(&[Requirement::Kernel(KernelVersion::V7_2)]);
        assert_eq!(newer, Usability::Needs("Linux 7.2 or newer; this is 6.12.1".to_owned()));
    }

    #[test]
    fn a_probe_agrees_with_itself() {
        let here = probe();
        assert_eq!(here.kernel_release, machine::kernel_release());
        if here.root && here.bpf {
            assert_eq!(
                here.usability(&[Requirement::Kernel(KernelVersion { major: 4, minor: 0 })]),
                Usability::UsableHere
            );
        }
    }
}
