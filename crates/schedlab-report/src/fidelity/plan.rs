//! What a measurement of fidelity measures: the loads and the pairs of tests/fidelity/plan.toml.
//!
//! Only the words; the file is read by who measures and by who makes the page.

use serde::{Deserialize, Serialize};

/// The whole plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Loads whose every number is predicted.
    #[serde(rename = "load")]
    pub loads: Vec<Load>,
    /// Pairs whose ratio is predicted.
    #[serde(rename = "pair")]
    pub pairs: Vec<Pair>,
}

/// What decides a load's times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Tasks wait for a CPU most of the time, or timers wake them, or they are pinned: the goal's loads.
    #[default]
    Judged,
    /// Wake-ups' own costs decide: shown, and not part of the goal.
    Shown,
}

/// Something that runs: a workload file of tests/fidelity/loads, or a command.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// Its name; of a workload file, the file's without `.toml`.
    pub name: String,
    /// In words.
    pub what: String,
    /// What is recorded, if it is no workload file; `{dir}` is the directory of the measurement.
    #[serde(default)]
    pub command: Vec<String>,
    /// Whether it counts for the goal.
    #[serde(default)]
    pub kind: Kind,
    /// What is known of its misses.
    #[serde(default)]
    pub known: String,
}

/// One load with and without a change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pair {
    /// Its name.
    pub name: String,
    /// What kind of change: `policy`, `nice`, `slice`, `pinning`, `workers`, `knob`, `scheduler`.
    pub class: String,
    /// The metric whose ratio is compared.
    pub metric: String,
    /// Workload file as it is; `command` if it is none.
    #[serde(default)]
    pub work: String,
    /// Another workload file, if that is the change.
    #[serde(default)]
    pub other: String,
    /// Settings that are the change: `policy=batch`, or a knob of the kernel in a virtual machine.
    #[serde(default)]
    pub set: Vec<String>,
    /// A command instead of a workload file.
    #[serde(default)]
    pub command: Vec<String>,
    /// The command with the change. Its recording is replayed with `set`.
    #[serde(default)]
    pub changed: Vec<String>,
    /// In a virtual machine with this kernel; empty for this machine.
    #[serde(default)]
    pub kernel: String,
    /// A scheduler from BPF that is the change.
    #[serde(default)]
    pub scheduler: String,
    /// What is known of its misses.
    #[serde(default)]
    pub known: String,
}

impl Pair {
    /// What runs, in a word.
    pub fn of(&self) -> String {
        if self.work.is_empty() { self.command.join(" ") } else { self.work.clone() }
    }

    /// The change, in words.
    pub fn change(&self) -> String {
        let parts = [self.scheduler.clone(), self.set.join(" "), self.other.clone()];
        let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        parts.join(" ")
    }
}
