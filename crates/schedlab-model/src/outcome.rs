//! What a control loop asks of a machine, and what it gets.
//!
//! [`Machine`] is the seam between loops (compare, tune) and whatever runs the work: the simulator, the
//! host, a virtual machine. Loops know nothing else.

use crate::lever::Candidate;
use crate::metric::RunMetrics;
use crate::time::Nanos;
use serde::{Deserialize, Serialize};

/// How a result was obtained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Obtained {
    /// In the simulated kernel.
    Predicted,
    /// In a virtual machine with a real kernel.
    TriedInVm,
    /// On this machine.
    MeasuredHere,
}

/// One run to be made.
#[derive(Clone, Debug)]
pub struct RunRequest<'a> {
    /// Under what.
    pub candidate: &'a Candidate,
    /// Which recording, block or workload: an index below [`Machine::work_count`].
    pub work: usize,
    /// Seed of everything random.
    pub seed: u64,
    /// Perturb every modelled cost by up to ±50 % from this seed; `None` leaves them.
    pub cost_seed: Option<u64>,
}

/// A scheduler that ended before its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedulerExit {
    /// `enum scx_exit_kind`: 64 to 68, 1024 to 1026.
    pub kind: u32,
    /// The kind in the kernel's words, e.g. `runnable task stall`.
    pub reason: String,
    /// The message, e.g. which task failed to run for how long.
    pub message: String,
    /// The exit code: what `scx_bpf_exit()` was given, or `SCX_ECODE_*` of a hotplug event.
    #[serde(default)]
    pub code: i64,
    /// The debug dump that the kernel writes for errors; empty otherwise.
    #[serde(default)]
    pub dump: String,
    /// When.
    pub time: Nanos,
}

/// What a simulation says of itself.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct SimulatorReport {
    /// Switches, to and from idle included.
    pub context_switches: u64,
    /// Events handled.
    pub events: u64,
    /// Time of the event loop alone, in seconds of this machine; filled in by whoever holds a clock.
    pub wall_s: f64,
    /// Running hash over every event; equal inputs and seed give equal hashes. Hexadecimal.
    pub event_hash: String,
    /// Largest memory of the process, if known.
    pub peak_memory_bytes: u64,
    /// Simulated time.
    pub simulated: Nanos,
    /// BPF instructions executed.
    pub bpf_instructions: u64,
}

/// Forks that failed because a scheduler's `ops.init_task()` refused the task. The run did less work than was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedForks {
    /// How many.
    pub count: u64,
    /// The first task that did not come into being, and the error.
    pub first: String,
}

impl std::fmt::Display for FailedForks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let forks = if self.count == 1 { "fork" } else { "forks" };
        write!(f, "ops.init_task() failed {} {forks}, the first of task {}", self.count, self.first)
    }
}

/// What one run yields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunOutcome {
    /// How.
    pub obtained: Obtained,
    /// Numbers.
    pub metrics: RunMetrics,
    /// Why the scheduler ended early, if it did; the fair class took over.
    pub scheduler_exit: Option<SchedulerExit>,
    /// Forks that the scheduler refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_forks: Option<FailedForks>,
    /// Of the simulator, if it was one.
    pub simulator: Option<SimulatorReport>,
    /// Whether the run was cut before the work was done.
    pub cut: bool,
}

/// A run that could not be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MachineError {
    /// The candidate cannot run here; the text says why and what to do.
    #[error("{candidate}: {reason}")]
    Unusable {
        /// Name of the candidate.
        candidate: String,
        /// Why, with the remedy.
        reason: String,
    },
    /// The work itself failed (deadlock, command failed).
    #[error("{0}")]
    Work(String),
    /// The user asked to stop.
    #[error("interrupted")]
    Interrupted,
}

/// Runs work under candidates.
pub trait Machine {
    /// How its results are obtained.
    fn obtained(&self) -> Obtained;

    /// Number of recordings, blocks or workloads it can run.
    fn work_count(&self) -> usize;

    /// Makes many independent runs, in any order or in parallel; results keep the order of the requests.
    fn run_all(&mut self, requests: &[RunRequest<'_>]) -> Vec<Result<RunOutcome, MachineError>>;
}
