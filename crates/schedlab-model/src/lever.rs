//! Levers: what a comparison can pull, and what each needs on a machine.

use crate::machine::KernelVersion;
use crate::policy::{Nice, Policy};
use crate::time::Nanos;
use crate::weights::WeightTable;
use serde::{Deserialize, Serialize};

/// Which scheduling class or object runs normal tasks.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SchedulerChoice {
    /// The kernel's own fair class.
    Kernel,
    /// A sched_ext scheduler, by name in the library or path of an object file.
    Object(String),
    /// No waiting except what work conservation forces: a bound, not a scheduler one can have.
    Ideal,
}

/// One setting of a candidate.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Setting {
    /// A knob of the scheduler or of the kernel, by its own name.
    Knob {
        /// Name.
        name: String,
        /// Value in the knob's unit.
        value: i64,
    },
    /// Policy of the target's tasks that are SCHED_NORMAL.
    Policy(Policy),
    /// Nice value of the target's tasks.
    Nice(Nice),
    /// Custom slice of the target's tasks (EEVDF).
    Slice(Nanos),
    /// Real-time priority of the target's tasks under [`Setting::Policy`] FIFO or RR.
    RtPriority(u8),
    /// The weights of nice values, for a scheduler that shares CPU time by them.
    Weights(WeightTable),
}

/// What a candidate needs that a machine may not have.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Requirement {
    /// A kernel with sched_ext.
    SchedExt,
    /// At least this kernel.
    Kernel(KernelVersion),
    /// Writable `/sys/kernel/debug/sched`.
    Debugfs,
    /// The right to raise priority (root or CAP_SYS_NICE).
    RaisePriority,
    /// A kernel that was built with other weights of nice values.
    WeightTable,
}

/// Whether a candidate could be applied on the machine at hand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Usability {
    /// Yes.
    UsableHere,
    /// No; what is missing, in words with the remedy.
    Needs(String),
    /// Not looked at.
    Unknown,
}

/// One row of a comparison.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// Short, unique, stable: `fair`, `fair:slice=0.1ms`, `vtime`.
    pub name: String,
    /// Who schedules.
    pub scheduler: SchedulerChoice,
    /// With what settings.
    pub settings: Vec<Setting>,
    /// What it needs.
    pub requirements: Vec<Requirement>,
    /// Whether it could be applied here.
    pub usability: Usability,
}

impl Candidate {
    /// The kernel's own class with its defaults: what every other is compared with.
    pub fn baseline() -> Candidate {
        Candidate {
            name: "fair".to_owned(),
            scheduler: SchedulerChoice::Kernel,
            settings: Vec::new(),
            requirements: Vec::new(),
            usability: Usability::UsableHere,
        }
    }
}
