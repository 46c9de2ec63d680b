//! How a scheduler ends: kinds and words of the kernel, and the `struct scx_exit_info` that `ops.exit()` gets.

use super::consts::{
    SCX_EFLAG_INITIALIZED, SCX_EXIT_ERROR, SCX_EXIT_ERROR_BPF, SCX_EXIT_ERROR_STALL, SCX_EXIT_SYSRQ,
    SCX_EXIT_UNREG, SCX_EXIT_UNREG_BPF, SCX_EXIT_UNREG_KERN,
};
use super::host::{Cx, Host};
use schedlab_model::Nanos;
use schedlab_model::outcome::SchedulerExit;
use schedlab_model::workload::change::SchedulerEnd;
use std::sync::Arc;

/// Longest message the kernel keeps, its end included.
const SCX_EXIT_MSG_LEN: usize = 1024;

/// Why the scheduler ends; the first reason stays.
#[derive(Clone, Debug)]
pub(crate) struct ExitInfo {
    pub kind: u32,
    pub code: i64,
    pub cpu: i32,
    pub message: String,
    pub time: u64,
    /// The debug dump, of errors only.
    pub dump: String,
    /// Handed to the core.
    pub taken: bool,
}

impl ExitInfo {
    /// As a result reports it.
    pub(crate) fn outcome(&self) -> SchedulerExit {
        SchedulerExit {
            kind: self.kind,
            reason: reason(self.kind).to_owned(),
            message: self.message.clone(),
            code: self.code,
            dump: self.dump.clone(),
            time: Nanos(self.time),
        }
    }
}

/// `scx_exit_reason`.
pub(crate) fn reason(kind: u32) -> &'static str {
    match kind {
        SCX_EXIT_UNREG => "unregistered from user space",
        SCX_EXIT_UNREG_BPF => "unregistered from BPF",
        SCX_EXIT_UNREG_KERN => "unregistered from the main kernel",
        SCX_EXIT_SYSRQ => "disabled by sysrq-S",
        SCX_EXIT_ERROR => "runtime error",
        SCX_EXIT_ERROR_BPF => "scx_bpf_error",
        SCX_EXIT_ERROR_STALL => "runnable task stall",
        _ => "<UNKNOWN>",
    }
}

/// Seconds after which the soft lockup detector calls upon sched_ext: three quarters of its threshold.
const SOFT_LOCKUP_S: u32 = 15;

/// Kind, CPU and words of an end that comes from outside the scheduler: from its loader, if `by` is `None`. `None` if
/// the version does not act upon it (`scx_softlockup`, `scx_hardlockup`, `scx_rcu_cpu_stall`, `scx_tick`).
pub(crate) fn from_outside(by: Option<SchedulerEnd>, host: &Host, cpu: u32) -> Option<(u32, i32, String)> {
    let version = host.version;
    let (since, text) = match by {
        None => return Some((SCX_EXIT_UNREG, -1, String::new())),
        Some(SchedulerEnd::Sysrq) => return Some((SCX_EXIT_SYSRQ, -1, String::new())),
        Some(SchedulerEnd::SoftLockup) if version >= (6, 19) => {
            ((6, 19), format!("soft lockup - CPU {cpu} stuck for {SOFT_LOCKUP_S}s"))
        }
        Some(SchedulerEnd::SoftLockup) => {
            ((6, 13), format!("soft lockup - CPU#{cpu} stuck for {SOFT_LOCKUP_S}s"))
        }
        Some(SchedulerEnd::HardLockup) => ((6, 19), format!("hard lockup - CPU {cpu}")),
        Some(SchedulerEnd::WatchdogStall) => {
            // The first tick after the timeout sees it, whose time is in ticks too.
            let ticks = host.ops.timeout_ns.div_ceil(host.tick_ns) + 1;
            let late_ms = ticks * host.tick_ns / 1_000_000;
            let text = format!("watchdog failed to check in for {}.{:03}s", late_ms / 1000, late_ms % 1000);
            return Some((SCX_EXIT_ERROR_STALL, cpu as i32, text));
        }
        Some(SchedulerEnd::RcuStall) => ((6, 18), "RCU CPU stall detected!".to_owned()),
    };
    (version >= since).then_some((SCX_EXIT_ERROR, cpu as i32, text))
}

impl Host {
    /// `scx_exit`: claims the exit unless one is claimed.
    #[cold]
    pub(crate) fn claim_exit(&mut self, kind: u32, code: i64, cpu: i32, mut message: String) {
        if self.exit.is_none() {
            if message.len() >= SCX_EXIT_MSG_LEN {
                let end = (0..SCX_EXIT_MSG_LEN).rev().find(|&end| message.is_char_boundary(end)).unwrap_or(0);
                message.truncate(end);
            }
            let time = self.now;
            self.exit = Some(ExitInfo { kind, code, cpu, message, time, dump: String::new(), taken: false });
        }
    }

    /// `scx_error`.
    #[cold]
    pub(crate) fn error(&mut self, cpu: i32, message: String) {
        self.claim_exit(SCX_EXIT_ERROR, 0, cpu, message);
    }

    /// Whether an exit was claimed (`sch->aborting`).
    #[inline]
    pub(crate) fn aborting(&self) -> bool {
        self.exit.is_some()
    }
}

/// `scx_error` from a kfunc or callback.
#[cold]
pub(crate) fn error(cx: &mut Cx<'_>, message: String) {
    let cpu = cx.cpu() as i32;
    cx.host().error(cpu, message);
}

/// A program that the kernel's verifier would not have let run so far.
#[cold]
pub(crate) fn program_fault(cx: &mut Cx<'_>, fault: &str) {
    error(cx, format!("{fault} (the kernel's verifier refuses such a program)"));
}

/// Fills a `struct scx_exit_info` for `ops.exit()` and returns its address, or 0 if the region is full.
pub(crate) fn build_info(cx: &mut Cx<'_>, initialized: bool) -> u64 {
    let layout = Arc::clone(&cx.host().layout);
    let Some(info) = cx.host().exit.clone() else { return 0 };
    let memory = cx.memory();
    let text = |memory: &mut schedlab_bpf::memory::Memory, text: &str| -> Option<u64> {
        let at = memory.alloc(text.len() as u64 + 1, 8)?;
        memory.bytes_mut(at, text.len() as u64)?.copy_from_slice(text.as_bytes());
        Some(at)
    };
    let Some(at) = memory.alloc(layout.exit_size, 8) else { return 0 };
    let why = text(memory, reason(info.kind)).unwrap_or(0);
    let message = text(memory, &info.message).unwrap_or(0);
    let dump = text(memory, &info.dump).unwrap_or(0);
    let exit = &layout.exit;
    memory.write_u32(at + exit.kind, info.kind);
    memory.write_u32(at + exit.exit_cpu, info.cpu as u32);
    memory.write_u64(at + exit.exit_code, info.code as u64);
    memory.write_u64(at + exit.flags, if initialized { SCX_EFLAG_INITIALIZED } else { 0 });
    memory.write_u64(at + exit.reason, why);
    memory.write_u64(at + exit.msg, message);
    memory.write_u64(at + exit.dump, dump);
    at
}
