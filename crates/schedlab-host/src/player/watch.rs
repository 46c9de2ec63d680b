//! Who watches over a play: the leader looks whether tasks died, and a guard whether the leader did.
//!
//! A task that is killed says nothing, so nobody else would know that it will never end. Not here: the group that is
//! killed at the end ([`super::company`]).

use super::shared::state;
use super::stage::Stage;
use crate::process::ProcessDescriptor;
use std::sync::atomic::Ordering;

/// So many tasks are looked at in one look of the leader, so that it takes no time from the play.
const TASKS_PER_LOOK: usize = 64;

/// Looks for tasks that died.
pub struct Deaths {
    devices: libc::pid_t,
    next: usize,
}

impl Deaths {
    /// Of a play with this process of devices, if it is above 0.
    pub fn new(devices: libc::pid_t) -> Deaths {
        Deaths { devices, next: 0 }
    }

    /// Who died before its end, of the next few.
    pub fn look(&mut self, stage: &Stage) -> Option<String> {
        if let Some(signal) = (self.devices > 0).then(|| killed_by(self.devices)).flatten() {
            return Some(format!("the process of the devices died: it was killed by signal {signal}"));
        }
        let made = (stage.head().slots.load(Ordering::SeqCst) as usize).min(stage.slots.len());
        let mut looked = 0;
        for _ in 0..made {
            if looked == TASKS_PER_LOOK {
                break;
            }
            let slot = &stage.slots[self.next % made];
            self.next = (self.next + 1) % made;
            let tid = slot.tid.load(Ordering::Relaxed);
            let ended = || slot.state.load(Ordering::Acquire) == state::ENDED;
            if tid <= 0 || ended() {
                continue;
            }
            looked += 1;
            // It says that it ended before it goes, so it is asked again once it is gone.
            if is_gone(tid) && !ended() {
                let row = (slot.row.load(Ordering::Acquire) as usize).checked_sub(1);
                let name = row.map_or("of a fork", |row| stage.workload.tasks[row].name.as_str());
                let step = slot.step.load(Ordering::Relaxed) + 1;
                let how =
                    killed_by(tid).map_or(String::new(), |signal| format!(": killed by signal {signal}"));
                return Some(format!("task '{name}' died before its end, in step {step}{how}"));
            }
        }
        None
    }
}

/// Whether a thread is there no more, or only as a zombie.
fn is_gone(tid: libc::pid_t) -> bool {
    // SAFETY: signal 0 is none; only whether the thread is there is asked.
    if unsafe { libc::syscall(libc::SYS_tkill, tid, 0) } != 0 {
        return std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH);
    }
    let stat = std::fs::read_to_string(format!("/proc/{tid}/stat")).unwrap_or_default();
    // The name before it may hold anything.
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    matches!(state, Some('Z' | 'X'))
}

/// The signal that ended a child of the caller, which is not collected.
fn killed_by(pid: libc::pid_t) -> Option<i32> {
    // SAFETY: the kernel fills what is valid as zeros, too.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        let told = libc::waitid(libc::P_PID, pid as libc::id_t, &raw mut info, options) == 0;
        let killed = matches!(info.si_code, libc::CLD_KILLED | libc::CLD_DUMPED);
        (told && info.si_pid() == pid && killed).then(|| info.si_status())
    }
}

/// Forks the leader's guard, which kills all tasks if the leader is killed; its number, or -1. What tasks fork is not told
/// of the leader's end by the kernel.
pub fn start_guard(stage: &Stage, leader: libc::pid_t) -> libc::pid_t {
    // SAFETY: the leader has one thread, so the child may do everything; it does not return from here.
    unsafe {
        let guard = libc::fork();
        if guard != 0 {
            return guard;
        }
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
            libc::signal(signal, libc::SIG_IGN);
        }
        libc::prctl(libc::PR_SET_NAME, c"play-guard".as_ptr());
        stage.channels.close_own_ends();
        if let Some(leader_itself) = ProcessDescriptor::open(leader) {
            let forever = std::time::Duration::MAX;
            while libc::getppid() == leader && !leader_itself.wait_end(forever) {}
            let group = stage.head().group.load(Ordering::SeqCst);
            if group > 0 {
                libc::kill(-group, libc::SIGKILL);
            }
        }
        libc::_exit(0)
    }
}
