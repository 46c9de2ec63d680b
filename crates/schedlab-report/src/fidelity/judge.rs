//! What measured numbers say: each load's metrics within their tolerance or not, each pair's ratio predicted or not.
//!
//! Every tolerance is a constant here and was stated before anything was measured. What a live load shows against
//! itself widens it: a difference that repeating the load makes is none of the model's.

use super::by_kind;
use super::measured::{LoadRuns, Measured, Numbers, PairRuns, Prediction, Source};
use super::model_error;
use super::plan::{Kind, Load, Pair, Plan};
use crate::compare::stats::{self, LogInterval};
use std::collections::BTreeMap;

/// CPU shares may differ by so many percentage points.
pub const SHARE_POINTS: f64 = 1.0;
/// Mean run delays may differ by this factor.
pub const MEAN_FACTOR: f64 = 1.25;
/// 99th percentiles of run delay may differ by this factor.
pub const P99_FACTOR: f64 = 2.0;
/// Makespans may differ by this factor.
pub const MAKESPAN_FACTOR: f64 = 1.05;
/// Differences of run delay below this are none, ns. In ratios of run delays no value is smaller, nor smaller than what an
/// uncontended wake-up takes on the machine ([`super::measured::Session::uncontended_ns`]): what that takes changes by a
/// factor from minute to minute, and no scheduler has a part in it.
pub const DELAY_FLOOR_NS: f64 = 5_000.0;
/// Two-sided error of every interval of pairs.
pub const ALPHA: f64 = 0.10;
/// Beside others that use more of the machine a live run does not count, percent.
pub const OTHERS_PERCENT_MAX: f64 = 2.0;
/// Loads that must be within, of those judged, in twelfths.
pub const LOADS_WITHIN_OF_12: usize = 9;
/// Signs that must be right, of those that exceed A/A, in twentieths.
pub const SIGNS_RIGHT_OF_20: usize = 18;
/// The median error of ratios may be this; a pair's may be what the live A shows against itself, if that is more.
pub const RATIO_ERROR_MEDIAN_MAX: f64 = 0.10;
/// Live runs of A that are less apart than this are called steady; the page counts such pairs by themselves, as a wide
/// A/A range excuses much.
pub const STEADY_MAX: f64 = 0.25;
/// Stated intervals must cover so large a part of what was measured.
pub const COVERED_MIN: f64 = 0.8;
/// Costs that the page names.
pub const COSTS_SHOWN: &[&str] = &["context_switch", "wakeup", "ipi", "ipi_idle", "idle_exit", "tick"];

/// One metric of one load.
#[derive(Clone, Debug, PartialEq)]
pub struct Scored {
    /// Its name.
    pub metric: &'static str,
    /// Lowest and highest of the live runs.
    pub live: (f64, f64),
    /// Lowest and highest of the simulated runs.
    pub simulated: (f64, f64),
    /// Mean simulated over mean live; of shares the largest difference of mean shares, in points.
    pub difference: f64,
    /// The tolerance in force, stated or live.
    pub tolerance: f64,
    /// Whether it is within.
    pub within: bool,
}

/// One load by one source.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadScore<'a> {
    /// Which.
    pub load: &'a Load,
    /// Simulated from what.
    pub source: Source,
    /// Live runs that count.
    pub live_runs: usize,
    /// Shares, mean run delay, 99th percentile, makespan.
    pub scored: Vec<Scored>,
}

impl LoadScore<'_> {
    /// Whether every metric is within its tolerance.
    pub fn within(&self) -> bool {
        self.scored.iter().all(|scored| scored.within)
    }

    /// Whether it counts for the goal.
    pub fn counts(&self) -> bool {
        self.load.kind == Kind::Judged
    }

    /// How far the worst metric is beyond its tolerance; below 1 it is within.
    pub fn excess(&self) -> f64 {
        let excess = |scored: &Scored| match scored.metric {
            SHARE => scored.difference / scored.tolerance,
            _ => scored.difference.ln().abs() / scored.tolerance.ln(),
        };
        let outside = self.scored.iter().filter(|scored| !scored.within);
        outside.map(excess).fold(0.0, f64::max)
    }
}

/// The metric of shares.
pub const SHARE: &str = "CPU share, points";

/// Every load by every source it was simulated from.
pub fn loads<'a>(plan: &'a Plan, measured: &Measured) -> Vec<LoadScore<'a>> {
    let runs: BTreeMap<&str, &LoadRuns> =
        measured.loads.iter().map(|runs| (runs.name.as_str(), runs)).collect();
    let found = plan.loads.iter().filter_map(|load| Some((load, *runs.get(load.name.as_str())?)));
    found.flat_map(|(load, runs)| load_scores(load, runs)).collect()
}

fn load_scores<'a>(load: &'a Load, runs: &LoadRuns) -> Vec<LoadScore<'a>> {
    let live: Vec<&Numbers> = undisturbed(&runs.live).collect();
    let simulated = runs.simulated.iter().filter(|simulated| !simulated.runs.is_empty() && !live.is_empty());
    simulated
        .map(|simulated| LoadScore {
            load,
            source: simulated.source,
            live_runs: live.len(),
            scored: score(&live, &simulated.runs.iter().collect::<Vec<_>>()),
        })
        .collect()
}

/// Live runs beside which nothing else used the machine, and of which no event was lost.
pub fn undisturbed(live: &[Numbers]) -> impl Iterator<Item = &Numbers> {
    live.iter().filter(|run| run.others_percent <= OTHERS_PERCENT_MAX && run.dropped == 0)
}

fn score(live: &[&Numbers], simulated: &[&Numbers]) -> Vec<Scored> {
    let factors = [
        ("run delay mean", "run_delay_mean", MEAN_FACTOR, DELAY_FLOOR_NS),
        ("run delay p99", "run_delay_p99", P99_FACTOR, DELAY_FLOOR_NS),
        ("makespan", "makespan", MAKESPAN_FACTOR, 0.0),
    ];
    let mut all = vec![shares(live, simulated)];
    all.extend(factors.into_iter().filter_map(|(metric, key, factor, floor)| {
        let (was, is) = (values(live, key), values(simulated, key));
        if was.is_empty() || is.is_empty() {
            return None;
        }
        let (live, simulated) = (range(&was), range(&is));
        let (was, is) = (stats::mean(&was), stats::mean(&is));
        let difference = if was > 0.0 { is / was } else { f64::from(is > 0.0).mul_add(f64::MAX, 1.0) };
        let apart = if live.0 > 0.0 { live.1 / live.0 } else { 1.0 };
        let tolerance = factor.max(apart);
        let within = (was - is).abs() <= floor || (1.0 / tolerance..=tolerance).contains(&difference);
        Some(Scored { metric, live, simulated, difference, tolerance, within })
    }));
    all
}

/// Shares by kind of task: the largest difference of means, against the largest between two live runs.
fn shares(live: &[&Numbers], simulated: &[&Numbers]) -> Scored {
    let pairs = live.iter().enumerate().flat_map(|(at, a)| live[at + 1..].iter().map(move |b| (*a, *b)));
    let apart: Vec<f64> = pairs.map(|(a, b)| largest(&by_kind(&a.shares), &by_kind(&b.shares))).collect();
    let difference = largest(&mean_shares(live), &mean_shares(simulated));
    let tolerance = apart.iter().copied().fold(SHARE_POINTS, f64::max);
    let from_live: Vec<f64> =
        simulated.iter().map(|run| largest(&by_kind(&run.shares), &mean_shares(live))).collect();
    Scored {
        metric: SHARE,
        live: range(&apart),
        simulated: range(&from_live),
        difference,
        tolerance,
        within: difference <= tolerance,
    }
}

type Shares = BTreeMap<String, Vec<f64>>;

fn mean_shares(runs: &[&Numbers]) -> Shares {
    let mut sums = Shares::new();
    for (kind, shares) in runs.iter().flat_map(|run| by_kind(&run.shares)) {
        let sum = sums.entry(kind).or_default();
        sum.resize(sum.len().max(shares.len()), 0.0);
        sum.iter_mut().zip(&shares).for_each(|(sum, share)| *sum += share / runs.len() as f64);
    }
    sums
}

fn largest(a: &Shares, b: &Shares) -> f64 {
    let none = Vec::new();
    let names = a.keys().chain(b.keys());
    let of = |name: &String| {
        let (a, b) = (a.get(name).unwrap_or(&none), b.get(name).unwrap_or(&none));
        let at = |shares: &[f64], index: usize| shares.get(index).copied().unwrap_or(0.0);
        (0..a.len().max(b.len())).map(|index| (at(a, index) - at(b, index)).abs()).fold(0.0, f64::max)
    };
    names.map(of).fold(0.0, f64::max)
}

fn values(runs: &[&Numbers], key: &str) -> Vec<f64> {
    runs.iter().filter_map(|run| run.get(key)).collect()
}

fn range(values: &[f64]) -> (f64, f64) {
    let range =
        values.iter().fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(*value), high.max(*value)));
    if values.is_empty() { (0.0, 0.0) } else { range }
}

/// One pair by one source.
#[derive(Clone, Debug, PartialEq)]
pub struct PairScore<'a> {
    /// Which.
    pub pair: &'a Pair,
    /// Simulated from what.
    pub source: Source,
    /// Pairs of live runs that count.
    pub live_pairs: usize,
    /// Means of the live runs.
    pub live: (f64, f64),
    /// The measured ratio, logarithmic.
    pub measured: LogInterval,
    /// What A does against itself, logarithmic half-width.
    pub noise: f64,
    /// The predicted ratio with the interval stated for such a measurement, logarithmic.
    pub predicted: LogInterval,
    /// The part of that interval that chance has, the model's error left out: logarithmic half-width.
    pub chance: f64,
}

impl PairScore<'_> {
    /// Whether the measured effect is more than A against itself.
    pub fn exceeds_noise(&self) -> bool {
        self.measured.estimate.abs() > self.noise
    }

    /// Whether the prediction lies on the same side of equality.
    pub fn sign_right(&self) -> bool {
        self.measured.estimate.signum() == self.predicted.estimate.signum()
    }

    /// Relative error of the predicted ratio.
    pub fn error(&self) -> f64 {
        (self.predicted.estimate - self.measured.estimate).abs().exp_m1()
    }

    /// The error that is allowed: the stated one, or what A does against itself. Relative.
    pub fn tolerance(&self) -> f64 {
        self.noise.exp_m1().max(RATIO_ERROR_MEDIAN_MAX)
    }

    /// Whether the error is within its tolerance.
    pub fn error_within(&self) -> bool {
        self.error() <= self.tolerance()
    }

    /// Whether live runs of A are so close to each other that the pair says something of the model.
    pub fn is_steady(&self) -> bool {
        self.noise.exp_m1() <= STEADY_MAX
    }

    /// Whether the stated interval holds what was measured.
    pub fn covered(&self) -> bool {
        (self.predicted.low..=self.predicted.high).contains(&self.measured.estimate)
    }

    /// What is left of the error where the stated scatter and A/A explain a part; logarithmic.
    pub fn error_beyond_chance(&self) -> f64 {
        let error = self.predicted.estimate - self.measured.estimate;
        (error * error - self.chance * self.chance).max(0.0).sqrt()
    }

    /// Whether the measured interval holds the prediction.
    pub fn within_measured(&self) -> bool {
        (self.measured.low..=self.measured.high).contains(&self.predicted.estimate)
    }
}

/// Every pair by every source it was predicted from.
pub fn pairs<'a>(plan: &'a Plan, measured: &Measured) -> Vec<PairScore<'a>> {
    let runs: BTreeMap<&str, &PairRuns> =
        measured.pairs.iter().map(|runs| (runs.name.as_str(), runs)).collect();
    let found = plan.pairs.iter().filter_map(|pair| Some((pair, *runs.get(pair.name.as_str())?)));
    found
        .flat_map(|(pair, runs)| {
            let floor = if pair.kernel.is_empty() { measured.session.uncontended_ns } else { 0.0 };
            let floor = floor.max(DELAY_FLOOR_NS);
            runs.predictions.iter().filter_map(move |of| pair_score(pair, runs, of, floor))
        })
        .collect()
}

fn pair_score<'a>(pair: &'a Pair, runs: &PairRuns, of: &Prediction, floor: f64) -> Option<PairScore<'a>> {
    let log = |run: &Numbers| log(run, &pair.metric, floor);
    // Both of a pair count, or none.
    let quiet = |run: &Numbers| {
        run.dropped == 0 && (!pair.kernel.is_empty() || run.others_percent <= OTHERS_PERCENT_MAX)
    };
    let live: Vec<(f64, f64)> = (runs.live_a.iter().zip(&runs.live_b))
        .filter(|(a, b)| quiet(a) && quiet(b))
        .filter_map(|(a, b)| Some((log(a)?, log(b)?)))
        .collect();
    let logs_a: Vec<f64> = live.iter().map(|(a, _)| *a).collect();
    let measured = stats::interval(&[live.iter().map(|(a, b)| b - a).collect()], ALPHA, 1)?;
    let noise = stats::noise_band(&[logs_a], ALPHA)?;
    let simulated: Vec<f64> = (of.a.iter().zip(&of.b)).filter_map(|(a, b)| Some(log(b)? - log(a)?)).collect();
    let stated = stats::interval(std::slice::from_ref(&simulated), ALPHA, 1)?;
    // A measurement of so many pairs scatters as simulated pairs do, or as A against itself does live, besides the error of
    // the model.
    let chance = (stats::variance(&simulated) / live.len() as f64).sqrt()
        * stats::t_quantile(ALPHA / 2.0, simulated.len() as f64 - 1.0);
    let by_chance = stated.widened(chance.max(noise));
    let (model, _) = model_error::of_class(&pair.class, of.source);
    let predicted = by_chance.widened(model.half_width_at(stated.estimate, ALPHA));
    let mean = |runs: &[Numbers]| {
        stats::mean(&runs.iter().filter_map(|run| run.get(&pair.metric)).collect::<Vec<_>>())
    };
    Some(PairScore {
        pair,
        source: of.source,
        live_pairs: live.len(),
        live: (mean(&runs.live_a), mean(&runs.live_b)),
        measured,
        noise,
        predicted,
        chance: by_chance.half_width(),
    })
}

/// The compared quantity's logarithm. Only times of waiting have a floor.
fn log(run: &Numbers, metric: &str, floor: f64) -> Option<f64> {
    let floor = if metric.starts_with("run_delay") || metric.starts_with("wakeup") { floor } else { 1.0 };
    Some(run.get(metric)?.max(floor).ln())
}

/// What pairs say together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Differential {
    /// Pairs.
    pub pairs: usize,
    /// Whose measured effect exceeds A/A.
    pub exceeding: usize,
    /// Of those, whose sign is right.
    pub signs_right: usize,
    /// Median error of the ratio.
    pub error_median: f64,
    /// Pairs whose error is within its tolerance.
    pub errors_within: usize,
    /// Pairs whose stated interval covers what was measured.
    pub covered: usize,
}

impl Differential {
    /// Of these pairs.
    pub fn of<'a, 'b: 'a>(pairs: impl IntoIterator<Item = &'a PairScore<'b>>) -> Differential {
        let all: Vec<&PairScore<'_>> = pairs.into_iter().collect();
        let exceeding: Vec<&&PairScore<'_>> = all.iter().filter(|pair| pair.exceeds_noise()).collect();
        let errors: Vec<f64> = all.iter().map(|pair| pair.error()).collect();
        Differential {
            pairs: all.len(),
            exceeding: exceeding.len(),
            signs_right: exceeding.iter().filter(|pair| pair.sign_right()).count(),
            error_median: stats::median(&errors).unwrap_or(0.0),
            errors_within: all.iter().filter(|pair| pair.error_within()).count(),
            covered: all.iter().filter(|pair| pair.covered()).count(),
        }
    }

    /// Whether signs, error and coverage reach their goals. In the median the error is within its tolerance if that of every
    /// second pair is.
    pub fn reached(&self) -> [bool; 3] {
        [
            self.signs_right * 20 >= self.exceeding * SIGNS_RIGHT_OF_20 && self.exceeding > 0,
            2 * self.errors_within >= self.pairs,
            self.covered as f64 >= COVERED_MIN * self.pairs as f64,
        ]
    }
}
