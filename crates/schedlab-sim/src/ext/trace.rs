//! A log of callbacks in a form that a real kernel's log can be compared with.

use super::call::Op;
use super::host::Cx;
use std::fmt;

/// One callback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallRecord {
    /// When, in ns of simulated time.
    pub time_ns: u64,
    /// On which CPU the code ran.
    pub cpu: u32,
    /// Member of `struct sched_ext_ops`.
    pub callback: &'static str,
    /// Name of the task it is about, empty for none.
    pub task: String,
    /// Arguments that are numbers, in order.
    pub args: Vec<i64>,
    /// What it returned, if it returns something.
    pub ret: Option<i64>,
    /// BPF instructions it executed.
    pub instructions: u64,
}

impl fmt::Display for CallRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.callback, self.task)?;
        self.args.iter().try_for_each(|argument| write!(f, " {argument}"))?;
        self.ret.map_or(Ok(()), |value| write!(f, " -> {value}"))
    }
}

/// The log, in order.
#[derive(Clone, Debug, Default)]
pub struct CallTrace {
    /// What was called.
    pub records: Vec<CallRecord>,
}

/// A callback's arguments, in order: task, signed or unsigned number, something else; `=` if it returns.
fn shape(op: Op) -> &'static str {
    match op {
        Op::SelectCpu => "tsu=",
        Op::Enqueue | Op::Dequeue | Op::Runnable | Op::Quiescent | Op::Stopping | Op::SetWeight => "tu",
        Op::Dispatch => "st",
        Op::Yield => "to=",
        Op::UpdateIdle => "su",
        Op::CpuAcquire | Op::CpuRelease | Op::CpuOnline | Op::CpuOffline => "so",
        Op::InitTask => "to=",
        Op::Tick | Op::Running | Op::Enable | Op::Disable | Op::ExitTask | Op::SetCpumask => "to",
        Op::Init => "=",
        Op::CoreSchedBefore => "to=",
        Op::Exit | Op::Dump => "o",
        Op::DumpCpu => "osu",
        Op::DumpTask => "ot",
        Op::CgroupInit => "oo=",
        Op::CgroupExit => "o",
        Op::CgroupPrepMove => "too=",
        Op::CgroupMove | Op::CgroupCancelMove => "too",
        Op::CgroupSetWeight | Op::CgroupSetIdle => "ou",
        Op::CgroupSetBandwidth => "ouuu",
    }
}

/// Notes a callback that is about to run; its place in the log.
#[cold]
pub(crate) fn record(cx: &mut Cx<'_>, op: Op, arguments: &[u64]) -> usize {
    let cpu = cx.cpu();
    // Taken off again by what is executed when it returns.
    let executed = cx.executed();
    let (host, memory) = cx.parts();
    let mut record = CallRecord {
        time_ns: host.now,
        cpu,
        callback: op.name(),
        task: String::new(),
        args: Vec::new(),
        ret: None,
        instructions: executed,
    };
    for (kind, value) in shape(op).chars().zip(arguments) {
        match kind {
            't' => {
                let task = host.task_at(memory, *value);
                record.task = task.map_or_else(String::new, |task| host.comm(memory, task));
            }
            's' => record.args.push((*value as i32).into()),
            'u' => record.args.push(*value as i64),
            _ => {}
        }
    }
    host.trace.as_mut().map_or(0, |trace| {
        trace.records.push(record);
        trace.records.len() - 1
    })
}

/// Notes what it returned.
#[cold]
pub(crate) fn returned(cx: &mut Cx<'_>, op: Op, at: usize, value: u64) {
    let executed = cx.executed();
    if let Some(record) = cx.host().trace.as_mut().and_then(|trace| trace.records.get_mut(at)) {
        record.instructions = executed - record.instructions;
        record.ret = shape(op).ends_with('=').then_some((value as i32).into());
    }
}
