//! What a comparison is after, and what it must not cost: `--objective` and `--guard`.
//!
//! Reads the text of both, and turns a metric's value into the quantity whose ratio is compared. The
//! statistics are in [`crate::compare`].

use crate::result::RunRecord;
use schedlab_model::metric::{Direction, Metric, RunMetrics};
use schedlab_model::time::Nanos;
use std::fmt;
use std::str::FromStr;

/// Names that stand for a metric.
const ALIASES: &[(&str, Metric)] = &[
    ("latency", Metric::WakeupLatencyP99),
    ("throughput", Metric::Throughput),
    ("deadlines", Metric::DeadlinesMet),
    ("fairness", Metric::Fairness),
];

/// Percentiles come from buckets at most this wide: closer values cannot be told apart.
const PERCENTILE_RESOLUTION: f64 = 1.0 / 32.0;

/// A number that runs are compared by.
#[derive(Clone, Debug, PartialEq)]
pub enum Objective {
    /// One of the metrics every run has.
    Metric(Metric),
    /// What the user's own metric command printed.
    Custom {
        /// Its name.
        name: String,
        /// Which way is better.
        direction: Direction,
        /// Differences below it do not matter; of 0 and more there would be no ratio without one.
        floor: f64,
    },
}

/// An objective or guard that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ObjectiveError {
    /// No such metric.
    #[error(
        "no metric is called '{given}'{}; choose latency, throughput, deadlines, fairness, or one of: {}",
        nearest(given),
        known()
    )]
    UnknownMetric {
        /// What was written.
        given: String,
    },
    /// No relation in a guard.
    #[error("guard '{0}' has no bound: write e.g. 'throughput>=-3%' or 'starvation_max<=100ms'")]
    NoRelation(String),
    /// The bound cannot be read.
    #[error(
        "guard '{guard}': '{bound}' is no bound: write a change against the baseline in percent (-3%, +10%), \
         or a value in {unit}"
    )]
    Bound {
        /// The whole guard.
        guard: String,
        /// The part behind the relation.
        bound: String,
        /// How a value of this metric is written.
        unit: &'static str,
    },
    /// The relation guards against getting better.
    #[error("guard '{guard}': {metric} gets better when it {better}, so guard it with '{wanted}'")]
    WrongWay {
        /// The whole guard.
        guard: String,
        /// The metric.
        metric: &'static str,
        /// "rises" or "falls".
        better: &'static str,
        /// The relation that makes sense.
        wanted: &'static str,
    },
}

fn known() -> String {
    Metric::ALL.iter().map(|metric| metric.key()).collect::<Vec<_>>().join(", ")
}

fn nearest(given: &str) -> String {
    let similar = Metric::ALL.iter().map(|metric| metric.key()).find(|key| {
        let given = given.trim().to_lowercase().replace('-', "_");
        given.len() >= 3 && (key.contains(&given) || given.contains(key))
    });
    similar.map(|key| format!(" (did you mean {key}?)")).unwrap_or_default()
}

fn metric_named(text: &str) -> Result<Metric, ObjectiveError> {
    let wanted = text.trim();
    let alias = ALIASES.iter().find(|(name, _)| *name == wanted).map(|(_, metric)| *metric);
    let exact = || Metric::ALL.iter().copied().find(|metric| metric.key() == wanted);
    alias.or_else(exact).ok_or_else(|| ObjectiveError::UnknownMetric { given: wanted.to_owned() })
}

impl Default for Objective {
    fn default() -> Objective {
        Objective::Metric(Metric::WakeupLatencyP99)
    }
}

impl FromStr for Objective {
    type Err = ObjectiveError;

    fn from_str(text: &str) -> Result<Objective, ObjectiveError> {
        metric_named(text).map(Objective::Metric)
    }
}

impl Objective {
    /// Name in JSON and tables.
    pub fn key(&self) -> &str {
        match self {
            Objective::Metric(metric) => metric.key(),
            Objective::Custom { name, .. } => name,
        }
    }

    /// Unit of the value.
    pub fn unit(&self) -> &'static str {
        match self {
            Objective::Metric(metric) => metric.unit(),
            Objective::Custom { .. } => "",
        }
    }

    /// The number of one run.
    pub fn value(&self, run: &RunMetrics) -> Option<f64> {
        match self {
            Objective::Metric(metric) => run.get(*metric),
            Objective::Custom { name, .. } => {
                run.custom.as_ref().filter(|(given, _)| given == name).map(|(_, value)| *value)
            }
        }
    }

    /// The number of one run of a result file.
    pub fn value_of_record(&self, run: &RunRecord) -> Option<f64> {
        run.values.get(self.key()).copied()
    }

    /// Whether the ratio is taken of what is missing to 1 instead of the value. 99.0 and 99.9 % of
    /// deadlines met are 1 % apart as they stand, but ten times as many are missed.
    pub fn compares_misses(&self) -> bool {
        matches!(self, Objective::Metric(Metric::DeadlinesMet | Metric::Fairness))
    }

    /// What the ratio is a ratio of, in words.
    pub fn quantity(&self) -> &str {
        match self {
            Objective::Metric(Metric::DeadlinesMet) => "deadlines missed",
            Objective::Metric(Metric::Fairness) => "unfairness (1 - index)",
            _ => self.key(),
        }
    }

    /// Which way the *compared quantity* is better.
    pub fn direction(&self) -> Direction {
        match self {
            _ if self.compares_misses() => Direction::Lower,
            Objective::Metric(metric) => metric.direction(),
            Objective::Custom { direction, .. } => *direction,
        }
    }

    /// The compared quantity on a logarithmic scale. Below a floor differences do not matter (1 µs, one
    /// event, one job in a thousand) and zero would have no ratio.
    pub fn log_quantity(&self, value: f64) -> f64 {
        let quantity = if self.compares_misses() { 1.0 - value } else { value };
        quantity.max(self.floor()).ln()
    }

    fn floor(&self) -> f64 {
        match self {
            Objective::Metric(Metric::QueueLengthMean) => 0.01,
            Objective::Metric(metric) if metric.unit() == "ns" => 1_000.0,
            Objective::Metric(metric) if metric.unit() == "1/s" => 1e-6,
            _ if self.compares_misses() => 0.001,
            Objective::Metric(_) => 1.0,
            Objective::Custom { floor, .. } => floor.max(f64::MIN_POSITIVE),
        }
    }

    /// Relative differences below this cannot be seen in the metric itself.
    pub fn resolution(&self) -> f64 {
        use Metric::{RequestP99, RunDelayP99, WakeupLatencyP50, WakeupLatencyP99, WakeupLatencyP999};
        match self {
            Objective::Metric(
                RequestP99 | RunDelayP99 | WakeupLatencyP50 | WakeupLatencyP99 | WakeupLatencyP999,
            ) => PERCENTILE_RESOLUTION,
            _ => 0.0,
        }
    }
}

/// The bound of a guard.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// Change against the baseline: -0.03 for `-3%`.
    Change(f64),
    /// A value in the metric's unit.
    Value(f64),
}

/// What the winner must not cost: `throughput>=-3%`.
#[derive(Clone, Debug, PartialEq)]
pub struct Guard {
    /// On what.
    pub metric: Metric,
    /// Whether the bound is a lower (`>=`) or an upper (`<=`) one.
    pub at_least: bool,
    /// The bound.
    pub bound: Bound,
    text: String,
}

impl Guard {
    /// Whether a change (and, for absolute bounds, a value) keeps the guard.
    pub fn holds(&self, change: f64, value: f64) -> bool {
        let (given, bound) = match self.bound {
            Bound::Change(bound) => (change, bound),
            Bound::Value(bound) => (value, bound),
        };
        if self.at_least { given >= bound } else { given <= bound }
    }
}

impl fmt::Display for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Guard {
    type Err = ObjectiveError;

    fn from_str(text: &str) -> Result<Guard, ObjectiveError> {
        let lower = text.split_once(">=").map(|(name, bound)| (name, bound, true));
        let parts = lower.or_else(|| text.split_once("<=").map(|(name, bound)| (name, bound, false)));
        let (name, bound_text, at_least) =
            parts.ok_or_else(|| ObjectiveError::NoRelation(text.to_owned()))?;
        let metric = metric_named(name)?;
        if at_least != (metric.direction() == Direction::Higher) {
            let (better, wanted) = if at_least { ("falls", "<=") } else { ("rises", ">=") };
            let guard = text.to_owned();
            return Err(ObjectiveError::WrongWay { guard, metric: metric.key(), better, wanted });
        }
        let bound = read_bound(metric, bound_text.trim()).ok_or_else(|| ObjectiveError::Bound {
            guard: text.to_owned(),
            bound: bound_text.trim().to_owned(),
            unit: if metric.unit() == "ns" { "time (100ms)" } else { "the metric's unit (0.99)" },
        })?;
        Ok(Guard { metric, at_least, bound, text: text.trim().to_owned() })
    }
}

fn read_bound(metric: Metric, text: &str) -> Option<Bound> {
    if let Some(percent) = text.strip_suffix('%') {
        let percent: f64 = percent.trim().parse().ok()?;
        return percent.is_finite().then_some(Bound::Change(percent / 100.0));
    }
    if metric.unit() == "ns" {
        return text.parse::<Nanos>().ok().map(|time| Bound::Value(time.0 as f64));
    }
    text.parse::<f64>().ok().filter(|value| value.is_finite()).map(Bound::Value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objectives_are_read_by_alias_and_key() {
        assert_eq!("latency".parse(), Ok(Objective::Metric(Metric::WakeupLatencyP99)));
        assert_eq!("run_delay_mean".parse(), Ok(Objective::Metric(Metric::RunDelayMean)));
        let error = "migrat".parse::<Objective>().expect_err("no such metric").to_string();
        assert!(error.contains("did you mean migrations?") && error.contains("makespan"), "{error}");
    }

    #[test]
    fn guards_are_read_and_kept() {
        let guard: Guard = "throughput>=-3%".parse().expect("a guard");
        assert!(guard.holds(-0.03, 0.0) && !guard.holds(-0.031, 0.0));
        let guard: Guard = "starvation_max <= 100ms".parse().expect("a guard");
        assert!(guard.holds(9.0, 1e8) && !guard.holds(0.0, 1.1e8));
        assert_eq!(guard.to_string(), "starvation_max <= 100ms");
    }

    #[test]
    fn guards_that_make_no_sense_are_refused_with_the_remedy() {
        let text = |guard: &str| guard.parse::<Guard>().expect_err(guard).to_string();
        assert!(text("throughput").contains("throughput>=-3%"));
        assert!(text("throughput>=three").contains("'three' is no bound"));
        assert!(text("throughput<=3%").contains("guard it with '>='"));
        assert!(text("latency<=5").contains("time (100ms)"));
        assert!(text("speed>=1%").contains("no metric is called 'speed'"));
    }

    #[test]
    fn deadlines_compare_by_what_is_missed() {
        let deadlines = Objective::Metric(Metric::DeadlinesMet);
        let ratio = deadlines.log_quantity(0.999) - deadlines.log_quantity(0.99);
        assert!((ratio.exp() - 0.1).abs() < 1e-9);
        assert_eq!(deadlines.direction(), Direction::Lower);
    }
}
