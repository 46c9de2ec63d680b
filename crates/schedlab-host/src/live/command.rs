//! A command that runs while a scheduler is held: started with a mark, if asked for as a task of `SCHED_EXT`.
//!
//! It runs as the user who asked, not as root. Its policy is a change of the machine, so it is in the journal before the
//! command starts. Not here: the scheduler ([`super::hold`]).

use super::Error;
use super::churn::SCHED_EXT;
use super::journal::{Change, Journal};
use super::tasks::TAG;
use crate::process::ProcessDescriptor;
use crate::record::run_as_invoking_user;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command};

/// A command at work.
pub struct Work {
    child: Child,
    /// Becomes readable when it ends.
    alive: Option<ProcessDescriptor>,
}

impl Work {
    /// Starts it; with `policy_ext` it and its children are tasks that ask for `SCHED_EXT`.
    pub fn start(argv: &[String], policy_ext: bool, journal: &mut Journal) -> Result<Work, Error> {
        let system = |source| Error::System { context: format!("starting '{}'", argv.join(" ")), source };
        let (program, arguments) =
            argv.split_first().ok_or_else(|| system(io::ErrorKind::InvalidInput.into()))?;
        let tag = format!("{}-{}", std::process::id(), super::journal::now_unix_ns());
        let mut command = Command::new(program);
        command.args(arguments).env(TAG, &tag);
        if policy_ext {
            let parameter = libc::sched_param { sched_priority: 0 };
            // SAFETY: between fork and exec one system call is made, on memory of the closure's own.
            unsafe {
                command.pre_exec(move || {
                    match libc::sched_setscheduler(0, SCHED_EXT, &raw const parameter) {
                        0 => Ok(()),
                        _ => Err(io::Error::last_os_error()),
                    }
                });
            }
        }
        run_as_invoking_user(&mut command);
        let mut child = None;
        let start = || {
            child = Some(command.spawn()?);
            Ok(())
        };
        if policy_ext {
            let change = Change::Policy { tag, policy: SCHED_EXT, before: libc::SCHED_OTHER };
            journal.change(change, start).map_err(|error| match error {
                super::journal::Error::Change { source, .. } => system(source),
                error => Error::Journal(error),
            })?;
        } else {
            let mut start = start;
            start().map_err(system)?;
        }
        let child = child.expect("a start without an error has a child");
        let alive = ProcessDescriptor::open(child.id() as i32);
        Ok(Work { child, alive })
    }

    /// A descriptor that becomes readable when it ends; none before Linux 5.3.
    pub fn descriptor(&self) -> Option<RawFd> {
        self.alive.as_ref().map(ProcessDescriptor::as_raw_fd)
    }

    /// Its exit code once it has ended; a signal is told as a shell does, 128 and its number.
    pub fn ended(&mut self) -> Option<i32> {
        let status = self.child.try_wait().ok().flatten()?;
        Some(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)))
    }

    /// Asks it to end, as the signal that came to us would have.
    pub fn terminate(&mut self) {
        if self.ended().is_none() {
            // SAFETY: the child is ours and not yet waited for, so the number is still its own.
            unsafe { libc::kill(self.child.id() as libc::pid_t, libc::SIGTERM) };
        }
    }

    /// Waits for it to end.
    pub fn wait(&mut self) -> i32 {
        let status = self.child.wait();
        status.map_or(1, |status| status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)))
    }
}

/// Lets a command run in a session of its own, which no terminal's end reaches.
pub fn in_session_of_its_own(command: &mut Command) {
    // SAFETY: between fork and exec one system call is made.
    unsafe {
        command.pre_exec(|| {
            libc::setsid();
            Ok(())
        });
    }
}
