//! A command that runs while a scheduler is held: started with a mark, if asked for as a task of `SCHED_EXT`, and ended.
//!
//! It runs as the user who asked, not as root. Its policy is a change of the machine, so it is in the journal before the
//! command starts. Not here: the scheduler ([`super::hold`]).

use super::Error;
use super::churn::SCHED_EXT;
use super::journal::{Change, Journal};
use super::tasks::TAG;
use crate::process::{ProcessDescriptor, SchedAttr, set_timer_slack, timer_slack};
use crate::record::run_as_invoking_user;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// What a thread is before it becomes a holder: real-time tasks lose their attributes and their timer slack, and so does
/// what they start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usual {
    attributes: SchedAttr,
    timer_slack_ns: u64,
}

impl Usual {
    /// Of the calling thread; `None` if the kernel does not tell.
    pub(super) fn of_caller() -> Option<Usual> {
        Some(Usual { attributes: SchedAttr::as_set(0).ok()?, timer_slack_ns: timer_slack() })
    }

    /// Gives it to the calling thread, of which it is. Async-signal-safe.
    pub(super) fn give(&self) -> io::Result<()> {
        self.attributes.give(0)?;
        set_timer_slack(self.timer_slack_ns);
        Ok(())
    }

    /// What a command begins with.
    fn for_command(self, policy_ext: bool) -> Usual {
        let usual = self.attributes;
        let attributes = match policy_ext {
            false => SchedAttr { flags: 0, ..usual },
            true => SchedAttr { policy: SCHED_EXT as u32, nice: usual.nice, ..SchedAttr::default() },
        };
        Usual { attributes, ..self }
    }
}

/// A command at work.
pub struct Work {
    child: Child,
    /// Becomes readable when it ends.
    alive: Option<ProcessDescriptor>,
}

impl Work {
    /// Starts it as `usual`, like whoever called us. With `policy_ext` it and its children are tasks that ask for
    /// `SCHED_EXT`.
    pub(super) fn start(
        argv: &[String],
        policy_ext: bool,
        usual: Option<Usual>,
        journal: &mut Journal,
    ) -> Result<Work, Error> {
        let system = |source| Error::System { context: format!("starting '{}'", argv.join(" ")), source };
        let (program, arguments) =
            argv.split_first().ok_or_else(|| system(io::ErrorKind::InvalidInput.into()))?;
        let tag = format!("{}-{}", std::process::id(), super::journal::now_unix_ns());
        let mut command = Command::new(program);
        command.args(arguments).env(TAG, &tag);
        let usual = usual.map(|usual| usual.for_command(policy_ext));
        // SAFETY: between fork and exec two system calls are made, on memory of the closure's own.
        unsafe { command.pre_exec(move || usual.map_or(Ok(()), |usual| usual.give())) };
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

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
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
        terminate(&mut self.child);
    }

    /// See [`end`].
    pub fn end(&mut self, patience: Duration) -> bool {
        end(&mut self.child, patience)
    }
}

/// Ends a process: asks it to, and kills it if it has not ended by then. Whether it had to be killed.
pub fn end(child: &mut Child, patience: Duration) -> bool {
    terminate(child);
    let until = Instant::now() + patience;
    while child.try_wait().is_ok_and(|status| status.is_none()) {
        if Instant::now() >= until {
            // One that has ended just now cannot be killed, which is as good.
            let _ = child.kill();
            let _ = child.wait();
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

fn terminate(child: &mut Child) {
    if child.try_wait().is_ok_and(|status| status.is_none()) {
        // SAFETY: the child is ours and not yet waited for, so the number is still its own.
        unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGTERM) };
    }
}

/// Where a command is found, as the shell would find it, so that one that is not there is told before anything is changed.
pub fn find(program: &str) -> Result<PathBuf, Error> {
    places(program).into_iter().find(|path| is_program(path)).ok_or_else(|| {
        match found_unexecutable(program) {
            Some(path) => Error::NoProgramFile(path.display().to_string()),
            None => Error::NoCommand(program.to_owned()),
        }
    })
}

/// What has the name of a program on PATH, or is the file that was named, and may not be executed; the first.
pub fn found_unexecutable(program: &str) -> Option<PathBuf> {
    let is_there = |path: &PathBuf| !program.is_empty() && path.is_file() && !is_program(path);
    places(program).into_iter().find(is_there)
}

/// Where a program of that name may lie: its file if that was named, else in each directory of PATH.
pub(crate) fn places(program: &str) -> Vec<PathBuf> {
    if program.contains('/') {
        return vec![PathBuf::from(program)];
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|directory| directory.join(program)).collect()
}

pub(crate) fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::journal::Owner;
    use std::fs;

    fn journal(directory: &std::path::Path) -> Journal {
        Journal::take(directory, &Owner::this("test")).expect("nobody has it").0
    }

    fn shell(script: String) -> Vec<String> {
        vec!["sh".to_owned(), "-c".to_owned(), script]
    }

    #[test]
    fn a_command_that_ignores_to_be_asked_is_killed() {
        let directory = tempfile::tempdir().expect("a directory");
        let deaf = directory.path().join("deaf");
        let script = format!("trap '' TERM; : > {}; while :; do sleep 0.1; done", deaf.display());
        let mut journal = journal(directory.path());
        let mut work = Work::start(&shell(script), false, None, &mut journal).expect("starts");
        while !deaf.exists() {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(work.end(Duration::from_millis(50)), "it had to be killed");
        assert_eq!(work.ended(), Some(128 + libc::SIGKILL));
        let mut work = Work::start(&shell("sleep 60".to_owned()), false, None, &mut journal).expect("starts");
        assert!(!work.end(Duration::from_secs(60)), "it ends when asked");
        assert_eq!(work.ended(), Some(128 + libc::SIGTERM));
    }

    #[test]
    fn a_command_begins_with_the_attributes_of_its_caller() {
        let directory = tempfile::tempdir().expect("a directory");
        let said = directory.path().join("said");
        let mut journal = journal(directory.path());
        let attributes = SchedAttr { nice: 7, policy: libc::SCHED_BATCH as u32, ..SchedAttr::default() };
        let usual = Usual { attributes, timer_slack_ns: 123_000 };
        let what = "cut -d' ' -f19,41 /proc/$$/stat; cat /proc/$$/timerslack_ns";
        let script = format!("{{ {what}; }} > {}", said.display());
        let mut work = Work::start(&shell(script), false, Some(usual), &mut journal).expect("starts");
        while work.ended().is_none() {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(fs::read_to_string(said).expect("it wrote"), "7 3\n123000\n");
        let flagged = Usual { attributes: SchedAttr { flags: 1, ..attributes }, ..usual };
        let ext = flagged.for_command(true).attributes;
        assert_eq!((ext.policy, ext.nice, ext.flags), (7, 7, 0));
    }

    #[test]
    fn a_command_is_found_or_told_as_missing() {
        assert!(find("sh").is_ok_and(|path| path.ends_with("sh")) && find("/bin/sh").is_ok());
        for missing in ["no-such-command-anywhere", "/proc/version", "/", ""] {
            let error = find(missing).expect_err("it cannot be run");
            assert_eq!(error.code(), 2, "{error}");
            assert_eq!(error.to_string().contains("chmod +x"), missing == "/proc/version", "{error}");
        }
    }
}
