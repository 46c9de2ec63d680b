//! What a trace tells, whatever file it came in: the kernel's `sched` and `irq` tracepoints with their fields.
//!
//! Not here: who the tasks are and what states follow ([`crate::build`]).

use crate::formats::EventFormat;
use schedlab_model::event::PrevState;
use schedlab_model::machine::KernelVersion;
use std::collections::HashMap;

/// A task as a tracepoint names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Named {
    pub pid: i32,
    /// Empty if the trace does not say.
    pub name: String,
    /// The kernel's `prio`: below 100 real-time, 120 is nice 0.
    pub prio: Option<i64>,
}

/// A tracepoint's fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// `sched_switch`.
    Switch { prev: Named, state: PrevState, next: Named },
    /// `sched_waking`, on the waker's CPU; the wakee's CPU is the one it ran on.
    Waking { wakee: Named, cpu: Option<u32> },
    /// `sched_wakeup`, when the wakee is on a queue.
    Wakeup { wakee: Named, cpu: Option<u32> },
    /// `sched_wakeup_new`.
    WakeupNew { task: Named, cpu: Option<u32> },
    /// `sched_migrate_task`.
    Migrate { task: Named, from: u32, to: u32 },
    /// `sched_process_fork` or `task_newtask`; the latter tells whether it is a thread of its parent's process.
    Fork { parent: i32, child: Named, thread: bool },
    /// `sched_process_exec`.
    Exec { pid: i32 },
    /// `sched_process_exit`.
    Exit { pid: i32 },
    /// A task has this name from now on.
    Rename { task: Named },
    /// `irq_handler_entry` and `irq_handler_exit`.
    Irq { number: u32, enters: bool },
    /// `softirq_entry` and `softirq_exit`.
    Softirq { vector: u8, enters: bool },
}

/// Bits of `common_flags`.
const FLAG_HARDIRQ: i64 = 0x08;
const FLAG_SOFTIRQ: i64 = 0x10;

/// `CLONE_THREAD` of `clone_flags`.
pub(crate) const CLONE_THREAD: u64 = 0x10000;

/// In what context the CPU was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags {
    pub hardirq: bool,
    pub softirq: bool,
}

impl Flags {
    pub fn of(bits: i64) -> Flags {
        Flags { hardirq: bits & FLAG_HARDIRQ != 0, softirq: bits & FLAG_SOFTIRQ != 0 }
    }
}

/// One tracepoint at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Heard {
    /// ns of the trace's own clock.
    pub time: u64,
    pub cpu: u32,
    /// Who ran there (`common_pid`).
    pub current: i32,
    pub flags: Flags,
    pub what: What,
}

/// A whole trace.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    /// In any order; times that are equal keep the file's.
    pub events: Vec<Heard>,
    /// Thread to process, where the file tells.
    pub processes: HashMap<i32, i32>,
    /// Thread to the process that forked it, where the file tells of tasks that were there.
    pub parents: HashMap<i32, i32>,
    /// Thread to name, for tasks that no tracepoint names.
    pub names: HashMap<i32, String>,
    /// Number of CPUs, if the file tells.
    pub cpus: Option<u32>,
    /// Kernel release string; empty if unknown.
    pub release: String,
    /// Command line of the recorder.
    pub command: Vec<String>,
    /// Events lost, by CPU.
    pub lost: HashMap<u32, u64>,
    /// What tracepoints the file holds, for the message when it lacks what is needed.
    pub has: String,
}

impl Trace {
    /// The recorded kernel's version, if its release tells.
    pub fn kernel(&self) -> Option<KernelVersion> {
        self.release.parse().ok()
    }
}

/// What a record says; `None` if it is no tracepoint that is used, or lacks a field that is needed.
pub(crate) fn decode(format: &EventFormat, record: &[u8]) -> Option<What> {
    let number = |name: &str| format.number(record, name);
    let pid = |name: &str| i32::try_from(number(name)?).ok();
    let cpu = |name: &str| u32::try_from(number(name)?).ok();
    let task = |prefix: &str| {
        let field = |name: &str| format!("{prefix}{name}");
        Some(Named {
            pid: pid(&field("pid"))?,
            name: format.text(record, &field("comm")).unwrap_or_default(),
            prio: number(&field("prio")),
        })
    };
    Some(match format.name.as_str() {
        "sched_switch" => What::Switch {
            prev: task("prev_")?,
            state: state(number("prev_state")? as u64, &format.states),
            next: task("next_")?,
        },
        "sched_waking" => What::Waking { wakee: task("")?, cpu: cpu("target_cpu") },
        "sched_wakeup" => What::Wakeup { wakee: task("")?, cpu: cpu("target_cpu") },
        "sched_wakeup_new" => What::WakeupNew { task: task("")?, cpu: cpu("target_cpu") },
        "sched_migrate_task" => {
            What::Migrate { task: task("")?, from: cpu("orig_cpu")?, to: cpu("dest_cpu")? }
        }
        "sched_process_fork" => {
            What::Fork { parent: pid("parent_pid")?, child: task("child_")?, thread: false }
        }
        "task_newtask" => What::Fork {
            parent: pid("common_pid")?,
            child: task("")?,
            thread: number("clone_flags").unwrap_or(0) as u64 & CLONE_THREAD != 0,
        },
        "sched_process_exec" => What::Exec { pid: pid("pid")? },
        "sched_process_exit" => What::Exit { pid: pid("pid")? },
        "task_rename" => What::Rename {
            task: Named { pid: pid("pid")?, name: format.text(record, "newcomm")?, prio: None },
        },
        name @ ("irq_handler_entry" | "irq_handler_exit") => {
            What::Irq { number: cpu("irq")?, enters: name.ends_with("entry") }
        }
        name @ ("softirq_entry" | "softirq_exit") => {
            What::Softirq { vector: u8::try_from(number("vec")?).ok()?, enters: name.ends_with("entry") }
        }
        _ => return None,
    })
}

/// `prev_state` by the letters the recorded kernel prints for its bits; kernels before 4.14 number them differently.
/// A bit without a letter (`TASK_REPORT_MAX`, printed as `+`) marks preemption.
pub(crate) fn state(bits: u64, letters: &[(u64, u8)]) -> PrevState {
    let letter = letters.iter().find(|(mask, _)| bits & mask != 0).map(|(_, letter)| *letter);
    if letters.is_empty() {
        return state_of_letter(
            b"RSDTtXZPI".get(bits.trailing_zeros() as usize + 1).copied().filter(|_| bits != 0),
        );
    }
    state_of_letter(letter)
}

/// The letter `ps` shows; none is runnable.
fn state_of_letter(letter: Option<u8>) -> PrevState {
    match letter {
        Some(b'S') => PrevState::Interruptible,
        Some(b'D' | b'I' | b'K') => PrevState::Uninterruptible,
        Some(b'T' | b't' | b'P') => PrevState::Stopped,
        Some(b'X' | b'x' | b'Z') => PrevState::Dead,
        _ => PrevState::Runnable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_go_by_the_letters_of_the_recorded_kernel() {
        let new = [
            (1, b'S'),
            (2, b'D'),
            (4, b'T'),
            (8, b't'),
            (0x10, b'X'),
            (0x20, b'Z'),
            (0x40, b'P'),
            (0x80, b'I'),
        ];
        assert_eq!(state(0, &new), PrevState::Runnable);
        assert_eq!(state(0x100, &new), PrevState::Runnable, "preempted");
        assert_eq!(state(1, &new), PrevState::Interruptible);
        assert_eq!(state(0x80, &new), PrevState::Uninterruptible);
        assert_eq!(state(0x20, &new), PrevState::Dead);
        let old =
            [(1, b'S'), (2, b'D'), (4, b'T'), (8, b't'), (16, b'Z'), (32, b'X'), (64, b'x'), (128, b'K')];
        assert_eq!(state(64, &old), PrevState::Dead);
        assert_eq!(state(0x82, &old), PrevState::Uninterruptible);
        for (bits, letter) in new {
            assert_eq!(state(bits, &[]), state_of_letter(Some(letter)), "without letters, those of today");
        }
        assert_eq!(state(0x100, &[]), PrevState::Runnable);
    }
}
