//! Tasks of a command under a scheduler: found by a mark in their environment, given a policy and given back.
//!
//! A command is started with [`TAG`] set, which its children inherit; whoever clears its environment is still found
//! as a child of one that has it. Only facts of /proc and policies; what is undone when is [`super::journal`]'s.

use crate::process::{Stat, numbers};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

/// Environment variable of a command that was started under a scheduler; its value is unique to that start.
pub const TAG: &str = "SCHEDLAB_RUN";

/// How often tasks are looked for: one that forks meanwhile has a child that the first look may miss.
const LOOKS_MAX: u32 = 20;

/// A policy's name, as the kernel spells it.
pub fn policy_name(policy: i32) -> &'static str {
    match policy & !libc::SCHED_RESET_ON_FORK {
        libc::SCHED_OTHER => "SCHED_NORMAL",
        libc::SCHED_FIFO => "SCHED_FIFO",
        libc::SCHED_RR => "SCHED_RR",
        libc::SCHED_BATCH => "SCHED_BATCH",
        libc::SCHED_IDLE => "SCHED_IDLE",
        libc::SCHED_DEADLINE => "SCHED_DEADLINE",
        super::churn::SCHED_EXT => "SCHED_EXT",
        _ => "another policy",
    }
}

/// When a process began, in clock ticks after boot; `None` if none of that number runs, as a zombie does not.
pub fn started(pid: i32) -> Option<u64> {
    let stat = Stat::of(pid).filter(|stat| !stat.is_dead())?;
    u64::try_from(stat.number(22)?).ok()
}

/// Gives every task of the command that has `policy` the policy `before`; how many there were.
pub fn give_back(tag: &str, policy: i32, before: i32) -> io::Result<u32> {
    let mut count = 0;
    for _ in 0..LOOKS_MAX {
        let mut found = 0;
        for task in processes_of(tag).into_iter().flat_map(tasks_of) {
            if has_policy(task, policy) && set_policy(task, before)? {
                found += 1;
            }
        }
        count += found;
        if found == 0 {
            break;
        }
    }
    Ok(count)
}

/// The processes that carry the mark, and their descendants.
fn processes_of(tag: &str) -> BTreeSet<i32> {
    let mark = format!("{TAG}={tag}");
    let mut parents = Vec::new();
    let mut found = BTreeSet::new();
    for pid in numbers(Path::new("/proc")) {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        if environment.split(|byte| *byte == 0).any(|word| word == mark.as_bytes()) {
            found.insert(pid);
        }
        let parent = Stat::of(pid).and_then(|stat| i32::try_from(stat.number(4)?).ok());
        parents.extend(parent.map(|parent| (pid, parent)));
    }
    loop {
        let before = found.len();
        for (pid, parent) in &parents {
            if found.contains(parent) {
                found.insert(*pid);
            }
        }
        if found.len() == before {
            // The program itself carries the mark if it was started under another one.
            found.remove(&(std::process::id() as i32));
            return found;
        }
    }
}

fn tasks_of(pid: i32) -> Vec<i32> {
    numbers(Path::new(&format!("/proc/{pid}/task")))
}

fn has_policy(task: i32, policy: i32) -> bool {
    // SAFETY: a plain system call; a task that is gone gives an error.
    let now = unsafe { libc::sched_getscheduler(task) };
    now >= 0 && now & !libc::SCHED_RESET_ON_FORK == policy
}

/// False if the task is gone.
fn set_policy(task: i32, policy: i32) -> io::Result<bool> {
    let parameter = libc::sched_param { sched_priority: 0 };
    // SAFETY: the kernel reads one struct that lives through the call.
    if unsafe { libc::sched_setscheduler(task, policy, &raw const parameter) } == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::ESRCH) { Ok(false) } else { Err(error) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::ProcessDescriptor;
    use std::process::{Child, Command, Stdio};

    /// A process that carries the mark, with a child that does not.
    fn family(tag: &str) -> Child {
        let script = "env -i sleep 60 & echo started; wait";
        let mut command = Command::new("sh");
        command.args(["-c", script]).env(TAG, tag).stdout(Stdio::piped());
        let mut child = command.spawn().expect("sh exists");
        let mut line = String::new();
        let out = child.stdout.as_mut().expect("piped");
        io::BufRead::read_line(&mut io::BufReader::new(out), &mut line).expect("it says so");
        child
    }

    #[test]
    fn tasks_of_a_command_are_found_and_given_back() {
        let tag = format!("test-{}", std::process::id());
        let mut child = family(&tag);
        let pid = child.id() as i32;
        let family = processes_of(&tag);
        assert!(family.contains(&pid) && family.len() == 2, "{family:?}");
        for task in &family {
            assert!(set_policy(*task, libc::SCHED_BATCH).expect("is allowed"));
        }
        let given = give_back(&tag, libc::SCHED_BATCH, libc::SCHED_OTHER).expect("is allowed");
        assert_eq!(given, 2);
        assert!(family.iter().all(|task| has_policy(*task, libc::SCHED_OTHER)));
        assert_eq!(give_back("no such mark", libc::SCHED_BATCH, libc::SCHED_OTHER).expect("nobody"), 0);
        let watched = ProcessDescriptor::open(pid).expect("it runs");
        for task in family {
            // SAFETY: these processes are the test's own.
            unsafe { libc::kill(task, libc::SIGKILL) };
        }
        assert!(watched.wait_end(std::time::Duration::from_secs(60)));
        assert_eq!(started(pid), None, "it is dead, though nobody has waited for it");
        child.wait().expect("it was ours");
        assert!(started(pid).is_none() && started(1).is_some());
    }
}
