//! Runs of candidates to verdicts: paired by work and seed with the baseline, with intervals that hold for
//! all candidates together, a noise floor, a least effect, and guards.
//!
//! A difference is told only if its interval excludes equality *and* it exceeds what the baseline does
//! against itself *and* the least effect. A small interval around equality says "no difference"; all else
//! is "cannot tell", with what it would take. The arithmetic is in [`stats`], the answers in [`verdict`].

pub mod stats;
#[cfg(test)]
mod tests;
mod verdict;

pub use verdict::{
    Comparison, GuardResult, GuardStatus, More, Overall, PairClass, Ratio, Robustness, Row, Verdict,
};

use crate::objective::{Guard, Objective};
use schedlab_model::lever::{Candidate, Usability};
use schedlab_model::metric::{Direction, RunMetrics};
use schedlab_model::outcome::{RunOutcome, RunRequest};
use stats::LogInterval;
use std::collections::{BTreeMap, BTreeSet};

/// A verdict that survives on fewer of the machines with perturbed costs is not relied on.
const ROBUST_SHARE_MIN: f64 = 0.8;
/// Fewer pairs decide nothing: three runs of something that jumps between two values often look equal, and
/// then seem to have no spread at all.
const PAIRS_MIN: u32 = 4;
/// Part of the allowed error that intervals use: the rest is eaten by the bootstrap's own scatter and by
/// values that come in steps (measured by the A/A test).
const ALPHA_USED: f64 = 0.8;
/// "This many more" beyond which saying a number promises too much.
const MORE_MAX: u32 = 200;

/// One run.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// Index of the candidate.
    pub candidate: usize,
    /// Index of the recording, block or workload.
    pub work: usize,
    /// Seed. Runs of the same work and seed are paired.
    pub seed: u64,
    /// Seed of perturbed costs: such runs count for robustness only.
    pub cost_seed: Option<u64>,
    /// Its numbers.
    pub metrics: &'a RunMetrics,
    /// Why it says nothing of the candidate, if so: its scheduler ended early, or refused tasks.
    pub failure: Option<&'a str>,
    /// Whether it was cut before its work was done.
    pub cut: bool,
}

impl<'a> Sample<'a> {
    /// From what a machine was asked and what it answered.
    pub fn of(candidate: usize, request: &RunRequest<'_>, outcome: &'a RunOutcome) -> Sample<'a> {
        Sample {
            candidate,
            work: request.work,
            seed: request.seed,
            cost_seed: request.cost_seed,
            metrics: &outcome.metrics,
            failure: match &outcome.scheduler_exit {
                Some(exit) => Some(exit.reason.as_str()),
                None => outcome.failed_forks.as_ref().map(|_| "its ops.init_task() failed forks"),
            },
            cut: outcome.cut,
        }
    }
}

/// The most that any scheduler could gain, from triage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GainBound {
    /// Share of the time of a request or of the makespan, e.g. 0.04.
    pub gain_max: f64,
}

/// What decides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Probability that no interval of the comparison misses its truth.
    pub confidence: f64,
    /// Smaller relative effects are no effects.
    pub min_effect: f64,
    /// An interval within this relative distance of equality says "no difference".
    pub relevant_effect: f64,
    /// A noise floor known from elsewhere (live A/A runs), relative.
    pub noise_floor_min: f64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { confidence: 0.95, min_effect: 0.01, relevant_effect: 0.05, noise_floor_min: 0.0 }
    }
}

/// All that a comparison is made from.
#[derive(Clone, Debug)]
pub struct ComparisonInput<'a> {
    /// The candidates, baseline included.
    pub candidates: &'a [Candidate],
    /// Index of the baseline.
    pub baseline: usize,
    /// The runs. Runs of the baseline without partner refine the noise floor.
    pub samples: &'a [Sample<'a>],
    /// What is wanted.
    pub objective: &'a Objective,
    /// What it must not cost.
    pub guards: &'a [Guard],
    /// What decides.
    pub settings: Settings,
    /// The most there is to gain, if triage told.
    pub bound: Option<GainBound>,
    /// By candidate name: what class of pair a verdict on it rests on.
    pub pair_classes: &'a BTreeMap<String, PairClass>,
    /// By candidate name: why it could not run at all.
    pub failures: &'a BTreeMap<String, String>,
    /// Machines with perturbed costs on which runs were tried: where the baseline gave none there is no sample to tell.
    pub perturbed_machines: u32,
}

/// A comparison that cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompareError {
    /// No such baseline.
    #[error("the baseline is number {0}, but there are only {1} candidates")]
    Baseline(usize, usize),
    /// The baseline did not run.
    #[error("the baseline '{baseline}' has no run to compare with{}", because(reason))]
    BaselineDidNotRun {
        /// Its name.
        baseline: String,
        /// Why, if known.
        reason: Option<String>,
    },
    /// The work does not have the metric.
    #[error("no run of '{baseline}' has '{objective}': the work has none; {available}")]
    NoObjective {
        /// The baseline.
        baseline: String,
        /// The objective.
        objective: String,
        /// What could be asked instead.
        available: String,
    },
}

fn because(reason: &Option<String>) -> String {
    reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default()
}

/// Compares.
pub fn compare(input: &ComparisonInput<'_>) -> Result<Comparison, CompareError> {
    let baseline = input
        .candidates
        .get(input.baseline)
        .ok_or(CompareError::Baseline(input.baseline, input.candidates.len()))?;
    check_objective(input, baseline)?;
    let table = Table::new(input);
    let noise = table.noise_band();
    let mut rows: Vec<Row> = (0..input.candidates.len()).map(|index| table.row(index, noise)).collect();
    let lower_is_better = input.objective.direction() == Direction::Lower;
    rows.sort_by(|a, b| rank(a, lower_is_better).total_cmp(&rank(b, lower_is_better)));
    let overall = overall(input, &rows, lower_is_better);
    Ok(Comparison {
        objective: input.objective.key().to_owned(),
        unit: input.objective.unit().to_owned(),
        quantity: input.objective.quantity().to_owned(),
        lower_is_better,
        baseline: baseline.name.clone(),
        confidence: input.settings.confidence,
        min_effect: input.settings.min_effect,
        noise_floor: noise.map(|band| band.max(input.settings.noise_floor_min.ln_1p()).exp()),
        rows,
        overall,
    })
}

fn check_objective(input: &ComparisonInput<'_>, baseline: &Candidate) -> Result<(), CompareError> {
    let mut runs = input.samples.iter().filter(|sample| sample.candidate == input.baseline).peekable();
    let Some(first) = runs.peek() else {
        let reason = input.failures.get(&baseline.name).cloned();
        return Err(CompareError::BaselineDidNotRun { baseline: baseline.name.clone(), reason });
    };
    let keys: Vec<&str> = first.metrics.values.keys().map(|metric| metric.key()).collect();
    if runs.any(|sample| input.objective.value(sample.metrics).is_some()) {
        return Ok(());
    }
    Err(CompareError::NoObjective {
        baseline: baseline.name.clone(),
        objective: input.objective.key().to_owned(),
        available: format!("choose one of: {}", keys.join(", ")),
    })
}

/// Sort key: small is good. What failed or has no ratio comes last.
fn rank(row: &Row, lower_is_better: bool) -> f64 {
    let distance = match (&row.verdict, row.ratio) {
        (Verdict::Failed { .. }, _) | (_, None) => return f64::MAX,
        (_, Some(ratio)) => ratio.estimate.ln(),
    };
    if lower_is_better { distance } else { -distance }
}

/// Runs sorted for pairing.
struct Table<'a> {
    input: &'a ComparisonInput<'a>,
    /// Two-sided error of one interval, so that all together keep the confidence (Bonferroni).
    alpha: f64,
}

type Key = (usize, u64);

impl<'a> Table<'a> {
    fn new(input: &'a ComparisonInput<'a>) -> Table<'a> {
        let others = input.candidates.len().saturating_sub(1).max(1);
        Table { input, alpha: ALPHA_USED * (1.0 - input.settings.confidence) / others as f64 }
    }

    fn samples(&self, candidate: usize) -> impl Iterator<Item = &Sample<'a>> {
        self.input.samples.iter().filter(move |sample| sample.candidate == candidate)
    }

    /// Log quantities by work and seed.
    fn logs(&self, candidate: usize, objective: &Objective, cost_seed: Option<u64>) -> BTreeMap<Key, f64> {
        let runs = self.samples(candidate).filter(|sample| sample.cost_seed == cost_seed);
        let log = |sample: &Sample<'_>| {
            let value = objective.value(sample.metrics)?;
            Some(((sample.work, sample.seed), objective.log_quantity(value)))
        };
        runs.filter_map(log).collect()
    }

    fn values(&self, candidate: usize, objective: &Objective) -> Vec<f64> {
        let runs = self.samples(candidate).filter(|sample| sample.cost_seed.is_none());
        runs.filter_map(|sample| objective.value(sample.metrics)).collect()
    }

    /// Differences of log quantities, by work.
    fn differences(&self, candidate: usize, objective: &Objective, cost: Option<u64>) -> Vec<Vec<f64>> {
        let base = self.logs(self.input.baseline, objective, cost);
        let mut works: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
        for (key, log) in self.logs(candidate, objective, cost) {
            if let Some(base) = base.get(&key) {
                works.entry(key.0).or_default().push(log - base);
            }
        }
        works.into_values().collect()
    }

    fn noise_band(&self) -> Option<f64> {
        let mut works: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
        for ((work, _), log) in self.logs(self.input.baseline, self.input.objective, None) {
            works.entry(work).or_default().push(log);
        }
        let works: Vec<Vec<f64>> = works.into_values().collect();
        stats::noise_band(&works, 1.0 - self.input.settings.confidence)
    }

    /// What runs and works say of a candidate, and the half-width of the model's error around it, which no number of runs
    /// makes smaller.
    fn interval(&self, candidate: usize, objective: &Objective, alpha: f64) -> Option<(LogInterval, f64)> {
        let differences = self.differences(candidate, objective, None);
        let interval = stats::interval(&differences, alpha, candidate as u64)?;
        // The model errs alike in all seeds and, of one class, in all candidates: more of them do not make it larger.
        let alpha = 1.0 - self.input.settings.confidence;
        let error = |class: &PairClass| class.error.half_width_at(interval.estimate, alpha);
        Some((interval, self.pair_class(candidate).map_or(0.0, error)))
    }

    fn pair_class(&self, candidate: usize) -> Option<&'a PairClass> {
        self.input.pair_classes.get(&self.input.candidates[candidate].name)
    }

    fn row(&self, candidate: usize, noise: Option<f64>) -> Row {
        let objective = self.input.objective;
        let values = self.values(candidate, objective);
        let differences = self.differences(candidate, objective, None);
        let pairs = differences.iter().map(Vec::len).sum::<usize>() as u32;
        let is_baseline = candidate == self.input.baseline;
        let interval = self.interval(candidate, objective, self.alpha);
        let mean = stats::mean(&values);
        let mut row = Row {
            candidate: self.input.candidates[candidate].name.clone(),
            value: stats::median(&values),
            variation: (values.len() >= 2 && mean != 0.0)
                .then(|| stats::variance(&values).sqrt() / mean.abs()),
            ratio: interval
                .map(|(by_chance, error)| by_chance.widened(error))
                .map(|i| Ratio { estimate: i.estimate.exp(), interval: Some((i.low.exp(), i.high.exp())) }),
            pairs,
            verdict: Verdict::Baseline,
            guards: Vec::new(),
            robustness: None,
            rests_on: None,
        };
        if is_baseline {
            row.ratio = Some(Ratio { estimate: 1.0, interval: None });
            return row;
        }
        if row.ratio.is_none() && pairs == 1 {
            let only = differences.iter().flatten().sum::<f64>().exp();
            row.ratio = Some(Ratio { estimate: only, interval: None });
        }
        row.rests_on = self.pair_class(candidate).cloned();
        row.guards = self.input.guards.iter().map(|guard| self.guard(candidate, guard)).collect();
        row.verdict = match self.failure(candidate) {
            Some(reason) => Verdict::Failed { reason },
            None => self.verdict(interval, noise, pairs),
        };
        self.apply_robustness(candidate, &mut row);
        row
    }

    fn failure(&self, candidate: usize) -> Option<String> {
        if let Some(reason) = self.input.failures.get(&self.input.candidates[candidate].name) {
            return Some(reason.clone());
        }
        let mut unperturbed = self.samples(candidate).filter(|sample| sample.cost_seed.is_none());
        if let Some(reason) = unperturbed.find_map(|sample| sample.failure) {
            return Some(reason.to_owned());
        }
        let cut = |index: usize| self.samples(index).filter(|run| run.cut && run.cost_seed.is_none()).count();
        let (cut_here, cut_baseline) = (cut(candidate), cut(self.input.baseline));
        if cut_here > 0 && cut_baseline == 0 {
            return Some(format!("did not finish the work in {cut_here} runs, the baseline did in all"));
        }
        let idle = |index: usize| {
            let mut runs = self.samples(index).peekable();
            runs.peek().is_some() && runs.all(|run| run.metrics.never_ran())
        };
        (idle(candidate) && !idle(self.input.baseline)).then(|| "no task of the work ever ran".to_owned())
    }

    fn verdict(&self, interval: Option<(LogInterval, f64)>, noise: Option<f64>, pairs: u32) -> Verdict {
        let settings = &self.input.settings;
        let resolution = self.input.objective.resolution();
        let Some((by_chance, error)) = interval.filter(|_| pairs >= PAIRS_MIN) else {
            let reason = match pairs {
                0 => "no run of it has the objective",
                _ => "too few runs",
            };
            let more = Some(More::Runs(PAIRS_MIN + 1 - pairs));
            return Verdict::CannotTell { more, reason: Some(reason.to_owned()) };
        };
        let interval = by_chance.widened(error);
        let floor = noise.unwrap_or(0.0).max(settings.noise_floor_min.ln_1p());
        let margin = settings.min_effect.max(resolution).ln_1p().max(floor);
        let relevant = settings.relevant_effect.max(2.0 * resolution).ln_1p();
        if interval.excludes_zero() && interval.estimate.abs() > margin {
            if !interval.works_agree {
                let reason = "the recordings disagree".to_owned();
                return Verdict::CannotTell { more: Some(More::Recordings(3)), reason: Some(reason) };
            }
            let lower = self.input.objective.direction() == Direction::Lower;
            return if (interval.estimate < 0.0) == lower { Verdict::Better } else { Verdict::Worse };
        }
        if interval.largest() <= relevant {
            return Verdict::NoDifference { below: interval.largest().exp_m1().max(settings.min_effect) };
        }
        let wanted = interval.estimate.abs().max(relevant - interval.estimate.abs());
        if error >= wanted {
            let error = error.exp_m1() * 100.0;
            let reason = format!(
                "the simulator's own error for such a change is {error:.1} %: more runs do not help, trying it live does"
            );
            return Verdict::CannotTell { more: None, reason: Some(reason) };
        }
        // Runs make smaller what chance does; the model's error stays.
        let left = (wanted * wanted - error * error).sqrt();
        Verdict::CannotTell { more: more(&by_chance, left, pairs), reason: None }
    }

    fn guard(&self, candidate: usize, guard: &Guard) -> GuardResult {
        let metric = Objective::Metric(guard.metric);
        let (base, value) = (
            stats::median(&self.values(self.input.baseline, &metric)),
            stats::median(&self.values(candidate, &metric)),
        );
        let (Some(base), Some(value)) = (base, value) else {
            return GuardResult { guard: guard.to_string(), status: GuardStatus::NoData, change: None };
        };
        let change = if base == 0.0 { f64::from(value != 0.0) } else { value / base - 1.0 };
        let status = match self.interval(candidate, &metric, 1.0 - self.input.settings.confidence) {
            _ if guard.holds(change, value) => GuardStatus::Kept,
            // Metrics compared by what is missing to 1 have no interval of their change.
            Some((by_chance, error)) if !metric.compares_misses() => {
                let interval = by_chance.widened(error);
                let end = if guard.at_least { interval.high } else { interval.low };
                let scale = (end - interval.estimate).exp();
                let best = guard.holds((1.0 + change) * scale - 1.0, value * scale);
                if best { GuardStatus::Unclear } else { GuardStatus::Broken }
            }
            _ => GuardStatus::Broken,
        };
        GuardResult { guard: guard.to_string(), status, change: Some(change) }
    }

    /// Counts on how many machines with perturbed costs the verdict's sign stays, and takes back a verdict
    /// that too few of them share.
    fn apply_robustness(&self, candidate: usize, row: &mut Row) {
        // Where the baseline ran: a candidate that failed there does not hold there.
        let of_baseline = self.samples(self.input.baseline);
        let ran = of_baseline.filter(|run| run.failure.is_none());
        let costs: BTreeSet<u64> = ran.filter_map(|run| run.cost_seed).collect();
        let tried: BTreeSet<u64> = self.input.samples.iter().filter_map(|run| run.cost_seed).collect();
        let tried = (tried.len() as u32).max(self.input.perturbed_machines);
        let Some(ratio) = row.ratio.filter(|_| matches!(row.verdict, Verdict::Better | Verdict::Worse))
        else {
            return;
        };
        let least = self.input.settings.min_effect.ln_1p();
        let holds_on = |&cost: &u64| {
            let failed =
                self.samples(candidate).any(|run| run.cost_seed == Some(cost) && run.failure.is_some());
            let works = self.differences(candidate, self.input.objective, Some(cost));
            let pairs: Vec<f64> = works.into_iter().flatten().collect();
            let mean = if pairs.is_empty() || failed { 0.0 } else { stats::mean(&pairs) };
            (mean < 0.0) == (ratio.estimate < 1.0) && mean.abs() >= least
        };
        let of = costs.len() as u32;
        let holds = costs.iter().filter(|cost| holds_on(cost)).count() as u32;
        let baseline_failed = tried - of;
        if of + baseline_failed == 0 {
            return;
        }
        row.robustness = Some(Robustness { holds, of, baseline_failed });
        if f64::from(holds) < f64::from(of) * ROBUST_SHARE_MIN {
            let reason = format!(
                "it depends on costs that are assumed: it holds on {holds} of {of} machines; set those \
                 you know in a machine file ('schedlab machine -o FILE')"
            );
            row.verdict = Verdict::CannotTell { more: None, reason: Some(reason) };
        }
    }
}

/// How much more makes an interval's half-width as small as wanted: it then excludes equality if the estimate is right, or
/// lies within what does not matter, whichever comes first.
fn more(interval: &LogInterval, wanted: f64, pairs: u32) -> Option<More> {
    let factor = (interval.half_width() / wanted).powi(2).max(1.0 + 1.0 / f64::from(pairs.max(1)));
    let missing = |have: f64| (have * (factor - 1.0)).ceil().max(1.0);
    // Recordings help where works differ; runs of the same work where they scatter.
    let count = missing(f64::from(pairs));
    if count > f64::from(MORE_MAX) {
        return None;
    }
    Some(if interval.between_share > 0.75 {
        More::Recordings((count / 5.0).ceil() as u32)
    } else {
        More::Runs(count as u32)
    })
}

fn overall(input: &ComparisonInput<'_>, rows: &[Row], lower_is_better: bool) -> Overall {
    let best = rows.iter().find(|row| row.is_winner());
    let name = |row: &Row| row.candidate.clone();
    // The bound is of one pair of replays, rows are of many runs: an answer must not say less than its own table.
    let gained = best.and_then(|best| best.gain(lower_is_better)).unwrap_or_default();
    if let Some(GainBound { gain_max }) = input.bound
        && gain_max < input.settings.relevant_effect
        && gained <= gain_max
    {
        return Overall::NotScheduling { gain_max, candidate: best.map(name) };
    }
    let usable = |row: &&Row| {
        let candidate = input.candidates.iter().find(|candidate| candidate.name == row.candidate);
        candidate.is_some_and(|candidate| candidate.usability == Usability::UsableHere)
    };
    if let Some(best) = best {
        let here = rows.iter().filter(|row| row.is_winner()).find(usable);
        let usable_here = here.filter(|row| row.candidate != best.candidate).map(name);
        return Overall::Use { candidate: best.candidate.clone(), usable_here };
    }
    // Rows are sorted: an undecided one before the baseline could still be better.
    let before_baseline = rows.iter().take_while(|row| row.verdict != Verdict::Baseline);
    let mut undecided =
        before_baseline.filter(|row| matches!(row.verdict, Verdict::CannotTell { .. }) && row.guards_kept());
    match undecided.next() {
        Some(row) => {
            let more = if let Verdict::CannotTell { more, .. } = row.verdict { more } else { None };
            Overall::CannotTell { more, candidate: Some(name(row)) }
        }
        None => Overall::KeepDefault,
    }
}
