//! Traces that other recorders made, as recordings: perf.data, trace-cmd's trace.dat, Perfetto.
//!
//! What can be known from the kernel's `sched` tracepoints is carried over: who ran where and when, who woke whom,
//! forks, migrations, priorities, interrupts. What tasks waited for is not in such traces, so a replay wakes a
//! task when its waker gets as far as it was when it woke it. A file is read as its recorder's documentation
//! describes it and the event formats stored in it say; nothing here depends on the machine that reads.
//! To go on: [`heard`] holds what a trace tells, [`build`] makes a recording of it.

mod build;
mod bytes;
mod formats;
mod heard;
mod perf;
mod perfetto;
mod ring_buffer;
mod trace_cmd;

use schedlab_model::recording::Recording;

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `perf record`, `perf sched record`.
    Perf,
    /// `trace-cmd record`.
    TraceCmd,
    /// Perfetto's `traced`, `tracebox`, or an export of ours.
    Perfetto,
}

impl Format {
    /// Its name in texts.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Perf => "perf.data",
            Format::TraceCmd => "trace-cmd",
            Format::Perfetto => "Perfetto",
        }
    }
}

/// What to take from a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportOptions {
    /// Whose tasks are the target: a process or thread id, or the name of tasks; descendants that are forked meanwhile
    /// belong to it too. `None`: what the recorder started, else every task that is no kernel thread.
    pub target: Option<String>,
}

/// Why a trace cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// It ends too early.
    #[error("the {format} file is cut short: {what} lies beyond its end; copy it again, or record anew")]
    Truncated {
        /// Which format.
        format: &'static str,
        /// What is missing.
        what: &'static str,
    },
    /// It says what cannot be.
    #[error("the {format} file is broken: {what}")]
    Broken {
        /// Which format.
        format: &'static str,
        /// What is wrong.
        what: String,
    },
    /// A kind of file that is known but not read.
    #[error("{0}")]
    Unsupported(String),
    /// It was recorded without scheduling events.
    #[error("the {format} file holds no {event} event{has}; record it with: {remedy}")]
    NoEvents {
        /// Which format.
        format: &'static str,
        /// The tracepoint that is missing.
        event: &'static str,
        /// What it holds instead.
        has: String,
        /// A command that records what is needed.
        remedy: &'static str,
    },
    /// No task is called so.
    #[error("no task of the trace is called or numbered '{0}'; it has: {1}")]
    NoTarget(String, String),
    /// More CPUs than are supported.
    #[error("the trace names CPU {0}; at most {max} CPUs are supported", max = schedlab_model::cpu_set::CPUS_MAX)]
    Cpu(u64),
    /// Said by the reader of perf.data.
    #[error("the perf.data file is broken: {0}")]
    Perf(#[from] linux_perf_data::Error),
}

/// What the first bytes say a file is; `None` if nothing that is read here.
pub fn detect(bytes: &[u8]) -> Option<Format> {
    match bytes {
        [b'P', b'E', b'R', b'F', b'I', b'L', b'E', b'2', ..]
        | [b'2', b'E', b'L', b'I', b'F', b'R', b'E', b'P', ..] => Some(Format::Perf),
        [0x17, 0x08, 0x44, b't', b'r', b'a', b'c', b'i', b'n', b'g', ..] => Some(Format::TraceCmd),
        _ if perfetto::looks_like(bytes) => Some(Format::Perfetto),
        _ => None,
    }
}

/// Reads a trace of that format.
pub fn import(format: Format, bytes: &[u8], options: &ImportOptions) -> Result<Recording, ImportError> {
    let trace = match format {
        Format::Perf => perf::read(bytes)?,
        Format::TraceCmd => trace_cmd::read(bytes)?,
        Format::Perfetto => perfetto::read(bytes)?,
    };
    build::recording(trace, format, options)
}
