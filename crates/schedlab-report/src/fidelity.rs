//! Fidelity: how like its recording a replay under the recorded scheduler's model is, metric by metric.
//!
//! Both are recordings and go through the same metrics. A difference below what a live workload shows from
//! run to run is none, so every tolerance has a floor. Whether the simulator predicts *differences* between
//! schedulers is another question that needs pairs of live runs: [`plan`], [`measured`], [`judge`], [`model_error`], [`page`].

pub mod judge;
pub mod measured;
pub mod model_error;
pub mod page;
#[cfg(test)]
mod page_tests;
pub mod plan;

use crate::metrics::MetricsCollector;
use schedlab_model::event::EventKind;
use schedlab_model::metric::{Metric, RunMetrics};
use schedlab_model::recording::Recording;
use schedlab_model::timeline::{StretchKind, Timelines};
use schedlab_model::{Nanos, TaskId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Mean run delay may differ by this factor. Repeated live runs of periodic tasks beside hogs differ by 3 %;
/// the rest is what costs taken from tables cost.
pub const RUN_DELAY_MEAN_FACTOR_MAX: f64 = 1.25;
/// 99th percentile of run delay. Tails depend on single events.
pub const RUN_DELAY_P99_FACTOR_MAX: f64 = 2.0;
/// Differences of run delay below this are none, in ns: an uncontended wake-up takes 3 to 4 µs.
pub const RUN_DELAY_FLOOR_NS: f64 = 5_000.0;
/// A task's share of the target's CPU time may differ by this many percentage points. Repeated live runs of
/// pinned hogs differ by 0.05, of unpinned ones by 2.
pub const SHARE_POINTS_MAX: f64 = 1.0;
/// Makespan may differ by this factor.
pub const MAKESPAN_FACTOR_MAX: f64 = 1.15;
/// Switches may differ by this factor where no range of repeated live runs is given: `hackbench -g 4 -l 500`
/// had 22,700 to 46,000 switches from run to run.
pub const SWITCHES_FACTOR_MAX: f64 = 2.0;
/// Wake-ups follow from the same decisions as switches.
pub const WAKEUPS_FACTOR_MAX: f64 = 2.0;
/// Counts below this are too few to compare by a factor.
pub const COUNT_FLOOR: f64 = 50.0;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FidelityMetric {
    /// Mean run delay, ns.
    RunDelayMean,
    /// 99th percentile of run delay, ns.
    RunDelayP99,
    /// Makespan, ns.
    Makespan,
    /// Largest difference between a task's shares of the target's CPU time, percentage points; the recorded
    /// value is 0 by definition.
    ShareDifference,
    /// Switches of target tasks.
    Switches,
    /// Wake-ups of target tasks.
    Wakeups,
    /// Moves of target tasks between CPUs; shown, not judged.
    Migrations,
}

impl FidelityMetric {
    /// In text.
    pub const fn name(self) -> &'static str {
        match self {
            FidelityMetric::RunDelayMean => "run delay mean",
            FidelityMetric::RunDelayP99 => "run delay p99",
            FidelityMetric::Makespan => "makespan",
            FidelityMetric::ShareDifference => "CPU share difference",
            FidelityMetric::Switches => "switches",
            FidelityMetric::Wakeups => "wake-ups",
            FidelityMetric::Migrations => "migrations",
        }
    }
}

/// One metric's score.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FidelityRow {
    /// Which.
    pub metric: FidelityMetric,
    /// In the recording.
    pub recorded: f64,
    /// In the replay.
    pub simulated: f64,
    /// Simulated over recorded; 1 if both are 0.
    pub ratio: f64,
    /// Whether the difference is within the tolerance; `None` if the metric is not judged.
    pub within: Option<bool>,
}

/// All scores of one replay.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct Fidelity {
    /// One row a metric; a metric that either side lacks is absent.
    pub rows: Vec<FidelityRow>,
}

/// What repeated live runs showed, where known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct LiveRange {
    /// Fewest and most switches.
    pub switches: Option<(u64, u64)>,
}

impl Fidelity {
    /// Scores a replay's recording against the recording it came from.
    pub fn of(recorded: &Recording, simulated: &Recording, live: LiveRange) -> Fidelity {
        let (was, is) = (MetricsCollector::of_recording(recorded), MetricsCollector::of_recording(simulated));
        let mut rows = Vec::new();
        let mut compare = |metric, a: Option<f64>, b: Option<f64>, factor: Option<f64>, floor: f64| {
            if let (Some(recorded), Some(simulated)) = (a, b) {
                rows.push(row(metric, recorded, simulated, factor, floor));
            }
        };
        let delays = |metrics: &RunMetrics, metric| metrics.get(metric);
        let (mean, p99) = (Metric::RunDelayMean, Metric::RunDelayP99);
        let factor = Some(RUN_DELAY_MEAN_FACTOR_MAX);
        compare(
            FidelityMetric::RunDelayMean,
            delays(&was, mean),
            delays(&is, mean),
            factor,
            RUN_DELAY_FLOOR_NS,
        );
        let factor = Some(RUN_DELAY_P99_FACTOR_MAX);
        compare(FidelityMetric::RunDelayP99, delays(&was, p99), delays(&is, p99), factor, RUN_DELAY_FLOOR_NS);
        let span = |recording| Some(makespan(recording).0 as f64);
        let factor = Some(MAKESPAN_FACTOR_MAX);
        compare(FidelityMetric::Makespan, span(recorded), span(simulated), factor, RUN_DELAY_FLOOR_NS);
        let counts = |metrics, of| Some(switches(metrics) * of);
        let (a, b) = (counts(&was, 1.0), counts(&is, 1.0));
        compare(FidelityMetric::Switches, a, b, Some(SWITCHES_FACTOR_MAX), COUNT_FLOOR);
        let (a, b) = (Some(wakeups(recorded)), Some(wakeups(simulated)));
        compare(FidelityMetric::Wakeups, a, b, Some(WAKEUPS_FACTOR_MAX), COUNT_FLOOR);
        let (a, b) = (was.get(Metric::Migrations), is.get(Metric::Migrations));
        compare(FidelityMetric::Migrations, a, b, None, 0.0);
        let difference = share_difference(recorded, simulated);
        rows.push(FidelityRow {
            metric: FidelityMetric::ShareDifference,
            recorded: 0.0,
            simulated: difference,
            ratio: 1.0,
            within: Some(difference <= SHARE_POINTS_MAX),
        });
        if let Some((low, high)) = live.switches {
            for row in rows.iter_mut().filter(|row| row.metric == FidelityMetric::Switches) {
                row.within = Some((low as f64..=high as f64).contains(&row.simulated));
            }
        }
        Fidelity { rows }
    }

    /// One metric.
    pub fn get(&self, metric: FidelityMetric) -> Option<&FidelityRow> {
        self.rows.iter().find(|row| row.metric == metric)
    }

    /// Whether every judged metric is within its tolerance.
    pub fn is_within(&self) -> bool {
        self.rows.iter().all(|row| row.within != Some(false))
    }
}

fn row(
    metric: FidelityMetric,
    recorded: f64,
    simulated: f64,
    factor: Option<f64>,
    floor: f64,
) -> FidelityRow {
    let ratio = if recorded > 0.0 {
        simulated / recorded
    } else if simulated > 0.0 {
        f64::INFINITY
    } else {
        1.0
    };
    let near = (recorded - simulated).abs() <= floor;
    let within = factor.map(|factor| near || (ratio <= factor && ratio >= 1.0 / factor));
    FidelityRow { metric, recorded, simulated, ratio, within }
}

fn switches(metrics: &RunMetrics) -> f64 {
    let targets = metrics.tasks.iter().filter(|task| task.target);
    targets.map(|task| (task.voluntary_switches + task.involuntary_switches) as f64).sum()
}

fn wakeups(recording: &Recording) -> f64 {
    let woken = |kind: &EventKind| match kind {
        EventKind::Waking { wakee, .. } => recording.tasks.get(wakee.index()).is_some_and(|task| task.target),
        _ => false,
    };
    recording.events.iter().filter(|event| woken(&event.kind)).count() as f64
}

/// From the first moment a target task runs to the last.
fn makespan(recording: &Recording) -> Nanos {
    let (begin, end) = target_span(&Timelines::of(recording), recording);
    end.saturating_sub(begin)
}

fn target_span(timelines: &Timelines, recording: &Recording) -> (Nanos, Nanos) {
    let targets = recording.tasks.iter().zip(&timelines.tasks).filter(|(task, _)| task.target);
    let running = targets.flat_map(|(_, stretches)| stretches);
    let running = running.filter(|stretch| matches!(stretch.kind, StretchKind::Running { .. }));
    let span = running.fold(None, |span: Option<(Nanos, Nanos)>, stretch| {
        let (begin, end) = span.unwrap_or((stretch.start, stretch.end));
        Some((begin.min(stretch.start), end.max(stretch.end)))
    });
    span.unwrap_or_default()
}

/// Shares of the target's CPU time in the first half of the makespan, in percent, by kind of task. The whole makespan
/// would say nothing: a replay does all the work of its recording.
fn shares(recording: &Recording) -> BTreeMap<String, Vec<f64>> {
    let timelines = Timelines::of(recording);
    let (begin, end) = target_span(&timelines, recording);
    let half = begin + Nanos(end.saturating_sub(begin).0 / 2);
    let used = |task: TaskId| -> u64 {
        let running = timelines.tasks[task.index()].iter();
        let running = running.filter(|stretch| matches!(stretch.kind, StretchKind::Running { .. }));
        running.map(|stretch| stretch.end.min(half).saturating_sub(stretch.start).0).sum()
    };
    let targets = (1..recording.tasks.len() as u32).map(TaskId).filter(|task| recording.task(*task).target);
    let used: Vec<(TaskId, u64)> = targets.map(|task| (task, used(task))).collect();
    let total: u64 = used.iter().map(|(_, used)| used).sum::<u64>().max(1);
    let mut by_name: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for (task, used) in used.into_iter().filter(|(_, used)| *used > 0) {
        let share = 100.0 * used as f64 / total as f64;
        by_name.entry(recording.task(task).name.clone()).or_default().push(share);
    }
    by_kind(&by_name)
}

/// Shares by name without the number behind it, the largest first: `hog0` and `hog1` do the same, and which of them is
/// lucky is not the scheduler's doing.
fn by_kind(shares: &BTreeMap<String, Vec<f64>>) -> BTreeMap<String, Vec<f64>> {
    let mut kinds: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for (name, shares) in shares {
        let kind = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
        let kind = if kind.is_empty() { name } else { kind };
        kinds.entry(kind.to_owned()).or_default().extend(shares);
    }
    kinds.values_mut().for_each(|shares| shares.sort_by(|a, b| b.total_cmp(a)));
    kinds
}

/// Largest difference of shares, in points, in the first half of the makespan; tasks of one kind are compared in order
/// of their shares. Between two recordings of one load it is what chance does.
pub fn share_difference(recorded: &Recording, simulated: &Recording) -> f64 {
    let (was, is) = (shares(recorded), shares(simulated));
    let none = Vec::new();
    let mut largest: f64 = 0.0;
    for name in was.keys().chain(is.keys()) {
        let (a, b) = (was.get(name).unwrap_or(&none), is.get(name).unwrap_or(&none));
        for index in 0..a.len().max(b.len()) {
            let at = |shares: &[f64]| shares.get(index).copied().unwrap_or(0.0);
            largest = largest.max((at(a) - at(b)).abs());
        }
    }
    largest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_floor_forgives_small_times_and_the_factor_the_rest() {
        let judged = |recorded, simulated| {
            row(FidelityMetric::RunDelayMean, recorded, simulated, Some(1.25), RUN_DELAY_FLOOR_NS).within
        };
        assert_eq!(judged(3_000.0, 7_900.0), Some(true));
        assert_eq!(judged(1_000_000.0, 1_200_000.0), Some(true));
        assert_eq!(judged(1_000_000.0, 1_300_000.0), Some(false));
        assert_eq!(judged(1_000_000.0, 700_000.0), Some(false));
        assert_eq!(judged(0.0, 0.0), Some(true));
    }
}
