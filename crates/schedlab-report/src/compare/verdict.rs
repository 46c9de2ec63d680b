//! What a comparison says, as data: JSON, text and the page are all made from these types.
//!
//! How they come about is in [`super`]. Ratios are candidate over baseline of the objective's quantity.

use crate::fidelity::model_error::ModelError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A ratio with its interval. The interval holds for all rows of the comparison together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ratio {
    /// Best estimate, 1 is equal.
    pub estimate: f64,
    /// Lower and upper end of the interval; `None` if there are too few runs for one.
    pub interval: Option<(f64, f64)>,
}

/// What more it takes to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum More {
    /// About this many more recordings or blocks.
    Recordings(u32),
    /// About this many more seeds or repetitions of each run.
    Runs(u32),
}

/// What is said of one candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "is")]
pub enum Verdict {
    /// It is the baseline.
    Baseline,
    /// Better than the baseline.
    Better,
    /// Worse than the baseline.
    Worse,
    /// No difference that matters: it is smaller than `below`.
    NoDifference {
        /// Largest relative difference that the interval leaves open, e.g. 0.03.
        below: f64,
    },
    /// The runs do not decide it.
    CannotTell {
        /// What would.
        more: Option<More>,
        /// Why, if more runs alone do not help.
        reason: Option<String>,
    },
    /// It did not do the work, or not by itself.
    Failed {
        /// What happened.
        reason: String,
    },
}

/// Whether a guard is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GuardStatus {
    /// The estimate keeps it.
    Kept,
    /// The estimate breaks it, its interval does not wholly.
    Unclear,
    /// The whole interval breaks it.
    Broken,
    /// The work has no such metric.
    NoData,
}

/// One guard on one candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GuardResult {
    /// As the user wrote it.
    pub guard: String,
    /// Whether it is kept.
    pub status: GuardStatus,
    /// Change against the baseline, e.g. -0.03.
    pub change: Option<f64>,
}

/// On how many machines with perturbed costs the verdict holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Robustness {
    /// It holds on this many.
    pub holds: u32,
    /// Of this many.
    pub of: u32,
    /// On so many more the baseline itself failed, so that they say nothing.
    #[serde(default)]
    pub baseline_failed: u32,
}

impl std::fmt::Display for Robustness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "on {} of {} machines", self.holds, self.of)?;
        match self.baseline_failed {
            0 => Ok(()),
            failed => write!(f, ", on {failed} more the baseline failed"),
        }
    }
}

/// What is known of the simulator's ability to predict pairs like this one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PairClass {
    /// The class, as docs/fidelity.md names it: `slice`, `policy`, `scheduler`.
    pub class: String,
    /// Whether enough effects of this class were compared with live kernels; else its error is that of all classes
    /// together.
    pub checked: bool,
    /// How far off such predictions are; intervals are wider by it.
    pub error: ModelError,
}

/// One candidate's row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Row {
    /// Name of the candidate.
    pub candidate: String,
    /// Median of the objective over its runs, in the metric's unit.
    pub value: Option<f64>,
    /// Coefficient of variation of the objective over its runs.
    pub variation: Option<f64>,
    /// Ratio to the baseline.
    pub ratio: Option<Ratio>,
    /// Pairs of runs the ratio rests on.
    pub pairs: u32,
    /// What is said of it.
    pub verdict: Verdict,
    /// Its guards.
    pub guards: Vec<GuardResult>,
    /// Whether the verdict survives other costs, if that was tried.
    pub robustness: Option<Robustness>,
    /// What class of pair the verdict rests on.
    pub rests_on: Option<PairClass>,
}

impl Row {
    /// Whether every guard is kept or does not apply.
    pub fn guards_kept(&self) -> bool {
        self.guards.iter().all(|guard| matches!(guard.status, GuardStatus::Kept | GuardStatus::NoData))
    }

    /// The relative gain over the baseline: 0.2 for 20 % less of what should be little.
    pub fn gain(&self, lower_is_better: bool) -> Option<f64> {
        let change = self.ratio?.estimate - 1.0;
        Some(if lower_is_better { -change } else { change })
    }

    /// Whether it could be recommended.
    pub fn is_winner(&self) -> bool {
        self.verdict == Verdict::Better && self.guards_kept()
    }
}

/// What the whole comparison says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "is")]
pub enum Overall {
    /// A candidate serves the work best.
    Use {
        /// Its name.
        candidate: String,
        /// The best of those that this machine can apply now, if another.
        usable_here: Option<String>,
    },
    /// Nothing is better than what there is.
    KeepDefault,
    /// Even an ideal scheduler would gain next to nothing.
    NotScheduling {
        /// At most this share can be gained, e.g. 0.04.
        gain_max: f64,
        /// The best candidate all the same, if there is a better one.
        candidate: Option<String>,
    },
    /// The runs do not decide it.
    CannotTell {
        /// What would.
        more: Option<More>,
        /// The most promising candidate.
        candidate: Option<String>,
    },
}

/// A whole comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// Key of the objective.
    pub objective: String,
    /// Unit of the objective's values.
    pub unit: String,
    /// What the ratios are ratios of: the objective, or what is missing to 1.
    pub quantity: String,
    /// Whether a ratio below 1 is better.
    pub lower_is_better: bool,
    /// Name of the baseline.
    pub baseline: String,
    /// Probability that no interval misses its truth, e.g. 0.95.
    pub confidence: f64,
    /// Smaller relative effects are no effects, e.g. 0.01.
    pub min_effect: f64,
    /// The baseline lies within this ratio of itself, e.g. 1.02; `None` if it ran once.
    pub noise_floor: Option<f64>,
    /// Best first; the baseline is among them.
    pub rows: Vec<Row>,
    /// What it says.
    pub overall: Overall,
}

impl Comparison {
    /// The row of a candidate.
    pub fn row(&self, candidate: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.candidate == candidate)
    }

    /// The relative gain of a row over the baseline ([`Row::gain`]).
    pub fn gain(&self, row: &Row) -> Option<f64> {
        row.gain(self.lower_is_better)
    }
}
