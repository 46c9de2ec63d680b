//! A log of callbacks in a form that a real kernel's log can be compared with.

use super::call::Op;
use super::host::Cx;

/// One callback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallRecord {
    /// When, in ns of simulated time.
    pub time: u64,
    /// On which CPU the code ran.
    pub cpu: u32,
    /// Member of `struct sched_ext_ops`.
    pub callback: &'static str,
    /// Arguments: tasks by name, numbers in decimal.
    pub arguments: Vec<String>,
}

/// The log, in order.
#[derive(Clone, Debug, Default)]
pub struct CallTrace {
    /// What was called.
    pub records: Vec<CallRecord>,
}

/// Kinds of a callback's arguments, in order.
fn shape(op: Op) -> &'static str {
    match op {
        Op::SelectCpu => "tnx",
        Op::Enqueue | Op::Dequeue | Op::Runnable | Op::Quiescent => "tx",
        Op::Dispatch => "nt",
        Op::Stopping | Op::SetWeight => "tn",
        Op::Yield => "tt",
        Op::UpdateIdle => "nn",
        Op::CpuAcquire | Op::CpuRelease | Op::CpuOnline | Op::CpuOffline => "n",
        Op::Tick | Op::Running | Op::Enable | Op::Disable | Op::InitTask | Op::ExitTask | Op::SetCpumask => {
            "t"
        }
        Op::Init | Op::Exit => "",
    }
}

/// Notes a callback that is about to run.
#[cold]
pub(crate) fn record(cx: &mut Cx<'_>, op: Op, arguments: &[u64]) {
    let cpu = cx.cpu();
    let (host, memory) = cx.parts();
    let arguments = shape(op)
        .chars()
        .zip(arguments)
        .map(|(kind, value)| match kind {
            't' if *value == 0 => "-".to_owned(),
            't' => {
                host.task_at(memory, *value).map_or_else(|| "?".to_owned(), |task| host.comm(memory, task))
            }
            'x' => format!("{value:#x}"),
            _ => (*value as i32).to_string(),
        })
        .collect();
    let record = CallRecord { time: host.now, cpu, callback: op.name(), arguments };
    if let Some(trace) = &mut host.trace {
        trace.records.push(record);
    }
}
