//! Programs of others that end with us, however we end, and with them all that they have started.
//!
//! The kernel tells a process of its parent's end ([`crate::load::end_with_parent`]), but not what that process has forked, and a
//! program of another's need not pass it on. So each leads a process group, and a guard, forked for it, kills the group when we are
//! gone. Tasks of workloads have a guard of their own ([`crate::player`]).

use crate::process::{ProcessDescriptor, close_range};
use crate::record::kill_group;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// How often the end is looked for: seldom, as the program is being measured.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Kills a process group when this process is gone. Whoever drops it has seen to the group.
#[derive(Debug)]
pub struct Guard(libc::pid_t);

impl Guard {
    /// For the group that this process leads; `None` before Linux 5.3, or if no more processes can be had.
    pub fn of(leader: u32) -> Option<Guard> {
        let us = ProcessDescriptor::open(std::process::id() as libc::pid_t)?;
        // SAFETY: other threads may hold locks, so the child makes plain system calls only; it does not return from here.
        unsafe {
            let guard = libc::fork();
            if guard == 0 {
                // No terminal's end and no Ctrl-C is for it.
                libc::setsid();
                for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
                    libc::signal(signal, libc::SIG_IGN);
                }
                libc::prctl(libc::PR_SET_NAME, c"group-guard".as_ptr());
                // Whoever reads or writes the other end of a pipe of ours waits for its last holder.
                libc::dup2(us.as_raw_fd(), 0);
                close_range(1, i32::MAX);
                let mut end = libc::pollfd { fd: 0, events: libc::POLLIN, revents: 0 };
                while libc::poll(&raw mut end, 1, -1) < 1 {}
                kill_group(leader);
                libc::_exit(0)
            }
            (guard > 0).then_some(Guard(guard))
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // SAFETY: plain system calls about a child that nobody else waits for.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}

/// Runs a program to its end, to ours, or until `interrupted` is raised, and takes what it writes.
///
/// # Errors
/// It cannot be started, or what it writes not be read.
pub fn output(command: &mut Command, interrupted: &AtomicBool) -> io::Result<Output> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let child = command.spawn()?;
    let group = child.id();
    let _guard = Guard::of(group);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let watch = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                if interrupted.load(Ordering::Relaxed) {
                    kill_group(group);
                    return;
                }
                thread::park_timeout(LOOK_EVERY);
            }
        });
        let output = child.wait_with_output();
        over.store(true, Ordering::Relaxed);
        watch.thread().unpark();
        output
    })
}
