//! Processes and tasks as the kernel tells of them: /proc/PID/stat, a descriptor of a process, limits, `sched_attr`.
//!
//! Facts only; who looks for what is each caller's: the recorder's snapshot, the player, live schedulers.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

/// Signals by which somebody asks this process to end: SIGINT, SIGTERM, and SIGHUP unless whoever started it wants it to
/// outlive the terminal (nohup).
pub fn ending_signals() -> impl Iterator<Item = i32> {
    // SAFETY: the kernel fills what is valid as zeros, too; nothing is set.
    let hangup = unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGHUP, std::ptr::null(), &raw mut now) == 0
            && now.sa_sigaction != libc::SIG_IGN
    };
    [libc::SIGINT, libc::SIGTERM].into_iter().chain(hangup.then_some(libc::SIGHUP))
}

/// What /proc/PID/stat says: the name, and the fields behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    /// It may hold anything, also brackets and spaces.
    pub name: String,
    /// From the third on.
    fields: Vec<String>,
}

impl Stat {
    /// Of a process; `None` if there is none of that number.
    pub fn of(pid: i32) -> Option<Stat> {
        Stat::read(Path::new(&format!("/proc/{pid}")))
    }

    /// Of a process or thread by its directory in /proc.
    pub fn read(directory: &Path) -> Option<Stat> {
        Stat::parse(&fs::read_to_string(directory.join("stat")).ok()?)
    }

    fn parse(text: &str) -> Option<Stat> {
        let (head, rest) = text.rsplit_once(')')?;
        let (_, name) = head.split_once('(')?;
        let fields: Vec<String> = rest.split_whitespace().map(str::to_owned).collect();
        (fields.len() > 38).then(|| Stat { name: name.to_owned(), fields })
    }

    /// A field by its number in proc_pid_stat(5), from 4 on.
    pub fn number(&self, field: usize) -> Option<i64> {
        self.fields.get(field.checked_sub(3)?)?.parse().ok()
    }

    /// `R`, `S`, ...
    pub fn state(&self) -> &str {
        &self.fields[0]
    }

    /// Whether it has ended, and only nobody has asked yet how.
    pub fn is_dead(&self) -> bool {
        matches!(self.state(), "Z" | "X")
    }
}

/// More descriptors than this process has.
const DESCRIPTORS: i32 = 4096;

/// Closes descriptors of this process that nothing in it uses any more, these two included. Async-signal-safe.
pub(crate) fn close_range(from: i32, to: i32) {
    if from > to {
        return;
    }
    // SAFETY: plain system calls that take numbers.
    unsafe {
        if libc::syscall(libc::SYS_close_range, from, to, 0) != 0 {
            // Before Linux 5.9.
            for descriptor in from..=to.min(DESCRIPTORS) {
                libc::close(descriptor);
            }
        }
    }
}

/// A limit of this process, soft and hard.
pub(crate) fn limits(resource: libc::__rlimit_resource_t) -> libc::rlimit {
    let mut limits = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel fills them, and refuses nobody his own.
    unsafe { libc::getrlimit(resource, &raw mut limits) };
    limits
}

/// A process that keeps its identity: its number may be another's later, this is not.
#[derive(Debug)]
pub(crate) struct ProcessDescriptor(OwnedFd);

impl ProcessDescriptor {
    /// Of a process or a zombie; `None` if there is none, or before Linux 5.3.
    pub fn open(pid: libc::pid_t) -> Option<ProcessDescriptor> {
        // SAFETY: the call takes numbers only; the descriptor is fresh and owned by nobody else.
        unsafe {
            let descriptor = libc::syscall(libc::SYS_pidfd_open, pid, 0);
            (descriptor >= 0).then(|| ProcessDescriptor(OwnedFd::from_raw_fd(descriptor as libc::c_int)))
        }
    }

    /// The descriptor, which becomes readable when the process ends.
    pub fn as_raw_fd(&self) -> libc::c_int {
        self.0.as_raw_fd()
    }

    /// The descriptor itself.
    pub fn into_inner(self) -> OwnedFd {
        self.0
    }

    /// Sends a signal; one that is gone gives `ESRCH`.
    pub fn signal(&self, signal: libc::c_int) -> io::Result<()> {
        let none = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: a plain system call on a descriptor that is open; no information comes along.
        let sent = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, self.0.as_raw_fd(), signal, none, 0) };
        if sent == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Waits until the process has ended; false if it has not by then.
    pub fn wait_end(&self, limit: Duration) -> bool {
        let mut wanted = libc::pollfd { fd: self.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let limit = libc::c_int::try_from(limit.as_millis()).unwrap_or(libc::c_int::MAX);
        // SAFETY: one descriptor is waited for, and it is valid.
        unsafe { libc::poll(&raw mut wanted, 1, limit) > 0 }
    }
}

/// `struct sched_attr` of include/uapi/linux/sched/types.h, second version.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SchedAttr {
    pub size: u32,
    pub policy: u32,
    pub flags: u64,
    pub nice: i32,
    pub priority: u32,
    pub runtime: u64,
    pub deadline: u64,
    pub period: u64,
    pub util_min: u32,
    pub util_max: u32,
}

impl SchedAttr {
    /// The first version ends before the bounds of utilisation, which stay as they are then.
    const SIZE_FIRST: u32 = 48;

    /// Of a task; 0 is the caller.
    pub fn of(tid: libc::pid_t) -> io::Result<SchedAttr> {
        let mut attributes = SchedAttr::default();
        let size = size_of::<SchedAttr>() as libc::c_uint;
        // SAFETY: the kernel writes at most `size` bytes to a struct of that size.
        let result = unsafe { libc::syscall(libc::SYS_sched_getattr, tid, &raw mut attributes, size, 0) };
        if result == 0 { Ok(attributes) } else { Err(io::Error::last_os_error()) }
    }

    /// The same as they were set: a slice that every task has is none of its own. Kernels since 6.12 tell the slice in
    /// force.
    pub fn as_set(tid: libc::pid_t) -> io::Result<SchedAttr> {
        /// The slice of a task that has no custom one: that of the first kernel thread.
        static BASE: OnceLock<Option<u64>> = OnceLock::new();
        let base =
            *BASE.get_or_init(|| SchedAttr::of(2).ok().filter(SchedAttr::is_fair).map(|of| of.runtime));
        let mut attributes = SchedAttr::of(tid)?;
        if attributes.is_fair() && Some(attributes.runtime) == base {
            attributes.runtime = 0;
        }
        Ok(attributes)
    }

    /// Whether its policy is one whose run time is a slice.
    pub fn is_fair(&self) -> bool {
        matches!(i32::try_from(self.policy), Ok(libc::SCHED_OTHER | libc::SCHED_BATCH))
    }

    /// Gives them to a task; 0 is the caller. Async-signal-safe.
    pub fn give(mut self, tid: libc::pid_t) -> io::Result<()> {
        self.size = SchedAttr::SIZE_FIRST;
        // SAFETY: the kernel reads `size` bytes of a struct that lives through the call.
        let result = unsafe { libc::syscall(libc::SYS_sched_setattr, tid, &raw const self, 0) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

/// How late timers of the calling thread may expire, so that one interrupt serves several, in ns. A real-time thread has
/// 0, and since Linux 6.13 the threads and processes that it makes inherit that, whatever their policy.
pub(crate) fn timer_slack() -> u64 {
    // SAFETY: a plain question about this thread.
    let slack = unsafe { libc::prctl(libc::PR_GET_TIMERSLACK) };
    u64::try_from(slack).unwrap_or(0)
}

/// Gives the calling thread a timer slack, which it keeps until it becomes real-time. Async-signal-safe.
pub(crate) fn set_timer_slack(ns: u64) {
    // SAFETY: changes only this thread; the kernel takes every number.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, ns) };
}

/// Gives the calling thread a nice value; threads and processes that it makes later inherit it.
///
/// # Errors
/// The kernel's own: less than it has needs root.
pub fn set_nice(nice: i8) -> io::Result<()> {
    // SAFETY: a plain system call on this thread.
    let result = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice.into()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The entries of a directory that are numbers, in order.
pub(crate) fn numbers(directory: &Path) -> Vec<i32> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut numbers: Vec<i32> =
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    numbers.sort_unstable();
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_parentheses_are_read() {
        let numbers = vec!["0"; 49].join(" ");
        let stat = Stat::parse(&format!("7 (a (b) c) R {numbers}")).expect("whole");
        assert_eq!((stat.name.as_str(), stat.state(), stat.number(4)), ("a (b) c", "R", Some(0)));
        assert!(Stat::parse("7 (a) R 1").is_none());
    }

    #[test]
    fn a_process_that_ended_is_told_by_its_descriptor_and_its_state() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep exists");
        let pid = child.id() as i32;
        let descriptor = ProcessDescriptor::open(pid).expect("it runs");
        assert!(!descriptor.wait_end(Duration::ZERO) && Stat::of(pid).is_some_and(|stat| !stat.is_dead()));
        descriptor.signal(libc::SIGKILL).expect("it is ours");
        assert!(descriptor.wait_end(Duration::from_secs(60)));
        assert!(Stat::of(pid).is_some_and(|stat| stat.is_dead()), "nobody has waited for it yet");
        child.wait().expect("it was ours");
        assert!(descriptor.signal(libc::SIGKILL).is_err() && Stat::of(pid).is_none());
    }

    #[test]
    fn a_slack_that_was_given_is_there() {
        let told = std::thread::spawn(|| {
            set_timer_slack(123_000);
            timer_slack()
        });
        assert_eq!(told.join().expect("it does not panic"), 123_000);
    }

    #[test]
    fn attributes_are_those_of_the_caller() {
        let own = SchedAttr::of(0).expect("is allowed");
        own.give(0).expect("nothing changes");
        assert_eq!(SchedAttr::of(0).expect("is allowed"), own);
    }
}
