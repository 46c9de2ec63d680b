//! The live recorder: what the kernel schedules, and the operations of a target, into a recording file.
//!
//! ```text
//! target -> kernel half attached -> snapshot of all tasks -> rings polled -> time order -> events -> file
//! ```
//! Start at [`record`]. Nothing is decided here about what the events mean; the file's format is in
//! [`schedlab_model::recording::codec`].

mod counters;
mod governor;
mod groups;
mod kernel;
mod raw;
mod ring;
mod sends;
mod session;
mod snapshot;
mod syscalls;
mod target;
mod translate;
mod trigger;

pub use counters::CacheSource;
pub use ring::RingOptions;
pub use session::{record, record_in_memory};
pub use target::{Target, kill_group, run_as_invoking_user};
pub use trigger::{Fired, Trigger, TriggerError};

use schedlab_model::Nanos;
use schedlab_model::machine::MachineDescription;
use std::path::PathBuf;
use std::time::Duration;

/// How much is told of operations that neither wait nor wake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    /// Each one, until that costs the target too much; then sums.
    #[default]
    Adaptive,
    /// Each one, whatever it costs.
    Full,
    /// Sums only: sends one by one, receives from the kernel's I/O accounting.
    Counted,
    /// Only those that wait or wake.
    Scheduling,
}

/// What to record and how.
#[derive(Clone, Debug)]
pub struct RecordOptions {
    /// Whom.
    pub target: Target,
    /// For how long; a command is recorded until it ends, or is ended after this time.
    pub duration: Option<Duration>,
    /// How much.
    pub detail: Detail,
    /// How often the rings are looked at.
    pub poll: Duration,
    /// This machine as described before, with what things cost on it; `None` describes it as it is found.
    pub machine: Option<MachineDescription>,
    /// Keep only the last seconds, and write them when something fires; `None` writes all as it goes.
    pub ring: Option<RingOptions>,
    /// Bytes of each CPU's buffer; `None` sizes it by the rate of switches before the start.
    pub buffer: Option<u64>,
    /// Whether the virtual runtime of the target's tasks is told at each switch: one record more for each of two tasks.
    pub vruntime: bool,
    /// Whether the use of caches by the target's tasks is told: one record more for each switch, if there are counters.
    pub caches: Option<CacheSource>,
}

impl RecordOptions {
    /// Records a target with the usual settings.
    pub fn new(target: Target) -> RecordOptions {
        RecordOptions {
            target,
            duration: None,
            detail: Detail::default(),
            poll: Duration::from_millis(20),
            machine: None,
            ring: None,
            buffer: None,
            vruntime: false,
            caches: None,
        }
    }
}

/// How a recording stands, told while it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Time since the start.
    pub elapsed: Nanos,
    /// Events so far.
    pub events: u64,
    /// Bytes of the file so far.
    pub bytes: u64,
    /// Events lost so far.
    pub dropped: u64,
}

/// Who listens while it records, and may end it.
pub trait Progress {
    /// Called after each look at the rings.
    fn update(&mut self, status: &Status);

    /// Whether to end now and keep what was recorded (Ctrl-C).
    fn stop(&self) -> bool {
        false
    }

    /// Whether the signal that a ring recording may wait for has come.
    fn signalled(&self) -> bool {
        false
    }
}

/// Listens to nothing and never stops.
impl Progress for () {
    fn update(&mut self, _status: &Status) {}
}

/// What came out, besides the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordSummary {
    /// Exit code of the command; a signal is 128 and its number. `None` if there was none or it was ended by us.
    pub exit_code: Option<i32>,
    /// Events written.
    pub events: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Events lost, for each CPU.
    pub dropped_per_cpu: Vec<u64>,
    /// Bytes received that no recorded send gave (see [`schedlab_model::recording::Provenance::unseen_bytes`]).
    pub unseen_bytes: u64,
    /// CPU time of the recorder while it recorded.
    pub recorder_cpu: Nanos,
    /// When it began (`CLOCK_MONOTONIC`, ns).
    pub started_ns: u64,
    /// How long it recorded.
    pub duration: Nanos,
    /// From when on operations were counted.
    pub counted_from: Option<Nanos>,
    /// Switches that the kernel hid and that were put in where they showed.
    pub gaps: u64,
    /// What made a ring recording be written.
    pub fired: Option<Fired>,
    /// A ring recording that nothing fired for: nothing was written.
    pub nothing_fired: bool,
    /// Bytes of each CPU's buffer.
    pub buffer_bytes: u64,
    /// How full the fullest reserve of a buffer was, in percent: all of it but where records may wait to be read.
    pub buffer_fill_max: u32,
    /// When the control group was found to be gone.
    pub vanished: Option<Nanos>,
}

/// Why there is no recording, or why it ended.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Not allowed to use BPF.
    #[error("recording needs root, or CAP_BPF and CAP_PERFMON ({what} was refused): run it with sudo")]
    Privilege {
        /// What was refused.
        what: String,
    },
    /// The kernel does not describe its types.
    #[error(
        "this kernel has no type information in /sys/kernel/btf/vmlinux: recording needs a kernel built with \
         CONFIG_DEBUG_INFO_BTF=y, as every larger distribution's is"
    )]
    NoBtf,
    /// The kernel lacks what a recording is made of.
    #[error(
        "this kernel has no tracepoint '{point}': recording needs one built with CONFIG_TRACEPOINTS and BTF"
    )]
    NoTracepoint {
        /// The tracepoint.
        point: &'static str,
    },
    /// The kernel refused something else.
    #[error("{what} failed: {reason}; the kernel's log (dmesg) may say more")]
    Kernel {
        /// What.
        what: &'static str,
        /// The kernel's words.
        reason: String,
    },
    /// A system call failed.
    #[error("{what} failed: {source}")]
    System {
        /// What.
        what: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// The recording could not be written.
    #[error("writing the recording failed: {0}")]
    Write(#[source] std::io::Error),
    /// No command.
    #[error("no command to record: name one after '--', e.g. schedlab record -o FILE -- sleep 1")]
    EmptyCommand,
    /// The command cannot be executed.
    #[error("'{program}' cannot be executed: {source}; check its name and PATH")]
    Command {
        /// What was asked for.
        program: String,
        /// Why not.
        source: std::io::Error,
    },
    /// No such process.
    #[error("there is no process {0}: it may have ended; 'ps -e' lists those that run")]
    NoProcess(i32),
    /// No such control group.
    #[error("there is no control group {}: give its path below /sys/fs/cgroup", .0.display())]
    NoCgroup(PathBuf),
    /// Nobody in the control group.
    #[error("no process is in {}: start the service first", .0.display())]
    EmptyCgroup(PathBuf),
    /// No systemd here.
    #[error("this machine does not run systemd, so there is no unit '{0}': use --pid or --cgroup")]
    NoSystemd(String),
    /// The unit is not there or does not run.
    #[error("the unit {0} does not run: start it with 'systemctl start', or check its name")]
    UnitNotRunning(String),
    /// systemd does not answer.
    #[error("'systemctl show {unit}' failed: {reason}; --cgroup takes the unit's control group too")]
    Systemctl {
        /// The unit.
        unit: String,
        /// What systemctl said.
        reason: String,
    },
    /// Recording something that exists, without an end.
    #[error("recording a process that exists needs an end: give --duration, or stop it with Ctrl-C")]
    NoDuration,
    /// What was just recorded cannot be read back: our own mistake.
    #[error("the recording just made cannot be read: {0}")]
    Codec(#[from] schedlab_model::recording::codec::CodecError),
}
