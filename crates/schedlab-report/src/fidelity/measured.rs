//! What a measurement of fidelity keeps: the numbers of every live and every simulated run, as JSON.
//!
//! The page is made of these files and can be made again without measuring. What the numbers mean is in
//! [`super::judge`]; who measures is the example `fidelity` of schedlab.

use super::{makespan, shares, switches, wakeups};
use crate::metrics::MetricsCollector;
use crate::result::Environment;
use schedlab_model::recording::Recording;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Where and when it was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// The machine as it describes itself, calibrated.
    pub environment: Environment,
    /// Release of its kernel.
    pub release: String,
    /// When the measurement began, seconds since the epoch.
    pub began_unix_s: u64,
    /// Version of the program.
    pub program_version: String,
    /// Fewer repetitions than a judgement needs.
    pub quick: bool,
    /// What [`super::judge::COSTS_SHOWN`] cost by the calibration, ns.
    pub costs_ns: BTreeMap<String, f64>,
    /// From an interrupt's wake-up to running on a busy CPU, nothing in the way: 19 of 20 of the calibration's took at
    /// most this, ns.
    #[serde(default)]
    pub uncontended_ns: f64,
}

/// One run's numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Numbers {
    /// By key of the metric; besides those of every run `target_switches` and `wakeups`. The makespan is from the
    /// first moment a target task runs to the last.
    pub values: BTreeMap<String, f64>,
    /// Shares of the target's CPU time in the first half of the makespan, percent, by name of task, largest first.
    pub shares: BTreeMap<String, Vec<f64>>,
    /// CPU time of others than the workload and the recorder, in percent of the machine's.
    pub others_percent: f64,
    /// Events lost.
    pub dropped: u64,
}

impl Numbers {
    /// Of a recording, live or simulated. Tasks of these names belong to the workload, target or not.
    pub fn of(recording: &Recording, own: &BTreeSet<String>) -> Numbers {
        let metrics = MetricsCollector::of_recording(recording);
        let named = metrics.values.iter().map(|(metric, value)| (metric.key().to_owned(), *value));
        let mut values: BTreeMap<String, f64> = named.collect();
        values.insert("makespan".to_owned(), makespan(recording).0 as f64);
        values.insert("target_switches".to_owned(), switches(&metrics));
        values.insert("wakeups".to_owned(), wakeups(recording));
        let outside = metrics.tasks.iter().filter(|task| !task.target && !own.contains(&task.name));
        let used: u64 = outside.map(|task| task.cpu_time.0).sum();
        let used = used.saturating_sub(recording.provenance.recorder_cpu.0);
        let machine = recording.duration.0 * recording.machine.topology.online_count() as u64;
        Numbers {
            values,
            shares: shares(recording),
            others_percent: 100.0 * used as f64 / machine.max(1) as f64,
            dropped: recording.provenance.dropped,
        }
    }

    /// One metric.
    pub fn get(&self, key: &str) -> Option<f64> {
        self.values.get(key).copied()
    }
}

/// What a prediction was made from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The workload file that was played.
    #[default]
    File,
    /// Recordings of the live runs.
    Recording,
}

impl Source {
    /// In tables.
    pub const fn words(self) -> &'static str {
        match self {
            Source::File => "file",
            Source::Recording => "recording",
        }
    }
}

/// Simulated runs of one source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Simulated {
    /// Made from what.
    pub source: Source,
    /// Their numbers.
    pub runs: Vec<Numbers>,
}

/// A load, live and simulated.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadRuns {
    /// Its name.
    pub name: String,
    /// The same load again and again.
    pub live: Vec<Numbers>,
    /// The machine file with what things cost then; empty for the session's first.
    #[serde(default)]
    pub machine: String,
    /// By source.
    pub simulated: Vec<Simulated>,
    /// Why it is not whole.
    pub problem: Option<String>,
}

/// Simulated runs of both sides, paired by their place.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// Made from what.
    pub source: Source,
    /// As it is.
    pub a: Vec<Numbers>,
    /// With the change.
    pub b: Vec<Numbers>,
}

/// A pair, live and simulated.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PairRuns {
    /// Its name.
    pub name: String,
    /// Live, as it is; paired with `live_b` by place.
    pub live_a: Vec<Numbers>,
    /// Live, with the change.
    pub live_b: Vec<Numbers>,
    /// The machine file with what things cost then; empty for the session's first.
    #[serde(default)]
    pub machine: String,
    /// By source.
    pub predictions: Vec<Prediction>,
    /// Why it is not whole.
    pub problem: Option<String>,
}

/// All of a measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Where and when.
    pub session: Session,
    /// In the plan's order.
    pub loads: Vec<LoadRuns>,
    /// In the plan's order.
    pub pairs: Vec<PairRuns>,
}
