//! Traces that other recorders made, as recordings: perf.data, trace-cmd's trace.dat, Perfetto.
//!
//! What can be known from the kernel's `sched` tracepoints is carried over: who ran where and when, who woke whom,
//! forks, migrations, priorities, interrupts. What tasks waited for is not in such traces, so a replay wakes a
//! task when its waker gets as far as it was when it woke it. A file is read as its recorder's documentation
//! describes it and the event formats stored in it say; nothing here depends on the machine that reads.
//! To go on: [`heard`] holds what a trace tells, [`build`] makes a recording of it.

mod budget;
mod build;
mod bytes;
mod formats;
mod gaps;
mod heard;
mod names;
mod perf;
mod perf_pipe;
mod perf_sections;
mod perfetto;
mod perfetto_messages;
mod ring_buffer;
mod target;
mod trace_cmd;

use budget::Budget;
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

/// What the packed parts of a trace may unpack to, if not said otherwise: events of some 40 million switches.
pub const UNPACKED_BYTES_MAX: u64 = 2 << 30;

/// What to take from a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportOptions {
    /// Whose tasks are the target: a process or thread id, or the name of tasks; descendants that are forked meanwhile
    /// belong to it too. `None`: what the recorder started, else every task that is no kernel thread.
    pub target: Option<String>,
    /// The most that all packed parts of a trace may unpack to together, bytes.
    pub unpacked_max: u64,
}

impl Default for ImportOptions {
    fn default() -> ImportOptions {
        ImportOptions { target: None, unpacked_max: UNPACKED_BYTES_MAX }
    }
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
    /// Its clock jumps.
    #[error(
        "the {format} trace spans {days} days: its clock jumps or it is broken; at most {max} days are read, record with a \
         clock that is not set meanwhile: -k CLOCK_MONOTONIC (perf), -C mono (trace-cmd)",
        max = schedlab_model::recording::DURATION_MAX.0 / 86_400_000_000_000
    )]
    Span {
        /// Which format.
        format: &'static str,
        /// How long it claims to be.
        days: u64,
    },
    /// It unpacks to more than is wanted.
    #[error(
        "the {format} file's packed parts unpack to more than {max} bytes: record for a shorter time, fewer events, or \
         without compression"
    )]
    TooLarge {
        /// Which format.
        format: &'static str,
        /// The limit.
        max: u64,
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
    let budget = Budget::new(format.name(), options.unpacked_max);
    let trace = match format {
        Format::Perf => perf::read(bytes, budget)?,
        Format::TraceCmd => trace_cmd::read(bytes, budget)?,
        Format::Perfetto => perfetto::read(bytes, budget)?,
    };
    build::recording(trace, format, options)
}
