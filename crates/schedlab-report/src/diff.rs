//! What changed between two recordings or results of the same work: metrics with intervals, and tasks by name.
//!
//! Sides are not paired. Values, change and interval are all of geometric means (Welch's interval, by the logarithms of
//! the values); a metric with a value of 0 has arithmetic means and no interval. An interval needs two runs on each side:
//! of one run nobody can tell what differs by chance, then the change is shown and no verdict. All intervals together hold
//! with 95 %, so among many metrics none is called changed too easily. Several works are compared one by one.

use crate::compare::stats::{mean, t_quantile, variance};
use crate::result::{ResultFile, RunRecord, TaskRecord};
use crate::text::{Table, TextOptions};
use crate::{MetricsCollector, units};
use schedlab_model::metric::{Direction, Metric};
use schedlab_model::recording::Recording;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// All intervals together miss with this probability.
const ALPHA: f64 = 0.05;

/// One run: values by metric key, tasks of the target by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SideRun {
    /// Name of the work; empty for a recording.
    pub work: String,
    /// In the metric's unit.
    pub values: BTreeMap<String, f64>,
    /// Sums over tasks of one name.
    pub tasks: BTreeMap<String, TaskSum>,
}

/// Tasks of one name together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TaskSum {
    /// How many.
    pub count: u64,
    /// CPU time, ns.
    pub cpu_time_ns: u64,
    /// Runnable but waiting, ns.
    pub run_delay_ns: u64,
    /// Switches away.
    pub switches: u64,
}

impl SideRun {
    /// Of a recording's target.
    pub fn of_recording(recording: &Recording) -> SideRun {
        let metrics = MetricsCollector::of_recording(recording);
        let values = metrics.values.iter().map(|(metric, value)| (metric.key().to_owned(), *value)).collect();
        let rows: Vec<TaskRecord> = metrics.tasks.iter().map(TaskRecord::from).collect();
        SideRun { work: String::new(), values, tasks: sums(&rows) }
    }

    /// Of a candidate's runs in a result those with perturbed costs left out.
    pub fn of_result(result: &ResultFile, candidate: &str) -> Vec<SideRun> {
        let plain = |run: &&RunRecord| run.candidate == candidate && run.cost_seed.is_none();
        let work = |run: &RunRecord| {
            result.works.get(run.work as usize).map(|work| work.name.clone()).unwrap_or_default()
        };
        let side = |run: &RunRecord| SideRun {
            work: work(run),
            values: run.values.clone(),
            tasks: sums(&run.tasks),
        };
        result.runs.iter().filter(plain).map(side).collect()
    }
}

fn sums(rows: &[TaskRecord]) -> BTreeMap<String, TaskSum> {
    let mut sums: BTreeMap<String, TaskSum> = BTreeMap::new();
    for task in rows.iter().filter(|task| task.target) {
        let sum = sums.entry(task.name.clone()).or_default();
        sum.count += 1;
        sum.cpu_time_ns += task.cpu_time_ns;
        sum.run_delay_ns += task.run_delay_ns;
        sum.switches += task.voluntary_switches + task.involuntary_switches;
    }
    sums
}

/// What a metric's change means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Changed for the better.
    Better,
    /// Changed for the worse.
    Worse,
    /// Changed; the metric is the user's own and has no direction.
    Different,
    /// The interval holds equality.
    NoDifference,
    /// Too few runs, or values without a ratio.
    CannotTell,
}

impl Change {
    const fn words(self) -> &'static str {
        match self {
            Change::Better => "better",
            Change::Worse => "worse",
            Change::Different => "different",
            Change::NoDifference => "no difference seen",
            Change::CannotTell => "cannot tell",
        }
    }
}

/// One metric.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MetricDiff {
    /// The work, if there are several; else empty.
    pub work: String,
    /// Its key.
    pub metric: String,
    /// Its unit.
    pub unit: String,
    /// Geometric mean over the runs of before; arithmetic if a value of either side is 0.
    pub before: f64,
    /// Of after.
    pub after: f64,
    /// After over before, less one; `None` if before is 0.
    pub change: Option<f64>,
    /// The change's interval.
    pub interval: Option<(f64, f64)>,
    /// What it means.
    pub verdict: Change,
}

/// Tasks of one name.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TaskDiff {
    /// The work, if there are several; else empty.
    pub work: String,
    /// Their name.
    pub name: String,
    /// Mean over the runs of before; zeros if there were none.
    pub before: TaskSum,
    /// Of after.
    pub after: TaskSum,
}

/// Two sides compared.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Diff {
    /// Runs of before.
    pub runs_before: usize,
    /// Runs of after.
    pub runs_after: usize,
    /// Metrics that both sides have.
    pub metrics: Vec<MetricDiff>,
    /// Tasks by the time that moved, most first.
    pub tasks: Vec<TaskDiff>,
    /// What else differs: kernel, machine, work, lost events.
    pub notes: Vec<String>,
}

impl Diff {
    /// Compares; `notes` are what the caller found to differ in how the sides were made. One work on each side is
    /// compared whatever its name, several by their names; a work that only one side has is told of.
    pub fn of(before: &[SideRun], after: &[SideRun], mut notes: Vec<String>) -> Diff {
        let names =
            |side: &[SideRun]| -> BTreeSet<String> { side.iter().map(|run| run.work.clone()).collect() };
        let (old, new) = (names(before), names(after));
        let pairs: Vec<(String, [Vec<&SideRun>; 2])> = if old.len() == 1 && new.len() == 1 {
            vec![(String::new(), [before.iter().collect(), after.iter().collect()])]
        } else {
            for (only, side, lacks) in [("before", &old, &new), ("after", &new, &old)] {
                let missing: Vec<&str> = side.difference(lacks).map(String::as_str).collect();
                if !missing.is_empty() {
                    notes
                        .push(format!("only {only} has the work {}: it is not compared", missing.join(", ")));
                }
            }
            let of = |side: &'_ [SideRun], name: &str| -> Vec<usize> {
                (0..side.len()).filter(|&run| side[run].work == name).collect()
            };
            let runs = |name: &String| {
                let before = of(before, name).into_iter().map(|run| &before[run]).collect();
                (name.clone(), [before, of(after, name).into_iter().map(|run| &after[run]).collect()])
            };
            old.intersection(&new).map(runs).collect()
        };
        let keys: Vec<(usize, String)> =
            pairs.iter().enumerate().flat_map(|(pair, (_, sides))| common(pair, sides)).collect();
        let tail = ALPHA / 2.0 / keys.len().max(1) as f64;
        let metrics = keys.iter().map(|(pair, key)| {
            let (work, sides) = &pairs[*pair];
            let values = |side: &[&SideRun]| -> Vec<f64> {
                side.iter().filter_map(|run| run.values.get(key).copied()).collect()
            };
            MetricDiff { work: work.clone(), ..metric(key, &values(&sides[0]), &values(&sides[1]), tail) }
        });
        Diff {
            runs_before: before.len(),
            runs_after: after.len(),
            metrics: metrics.collect(),
            tasks: pairs.iter().flat_map(|(work, [before, after])| tasks(work, before, after)).collect(),
            notes,
        }
    }

    /// The fewest runs that a side has of a work.
    fn runs_min(&self) -> usize {
        self.runs_before.min(self.runs_after)
    }
}

/// Metrics that every first run has, in the order of the table.
fn common(pair: usize, [before, after]: &[Vec<&SideRun>; 2]) -> Vec<(usize, String)> {
    let (Some(a), Some(b)) = (before.first(), after.first()) else { return Vec::new() };
    let order = |key: &str| Metric::ALL.iter().position(|metric| metric.key() == key).unwrap_or(usize::MAX);
    let mut keys: Vec<&String> = a.values.keys().filter(|key| b.values.contains_key(*key)).collect();
    keys.sort_by_key(|key| order(key));
    keys.into_iter().map(|key| (pair, key.clone())).collect()
}

fn metric(key: &str, before: &[f64], after: &[f64], tail: f64) -> MetricDiff {
    let known = Metric::ALL.iter().find(|metric| metric.key() == key);
    let positive = before.iter().chain(after).all(|value| *value > 0.0);
    let average = |values: &[f64]| if positive { geometric_mean(values) } else { mean(values) };
    let (from, to) = (average(before), average(after));
    let interval = log_interval(before, after, tail);
    let change = (from > 0.0).then(|| to / from - 1.0);
    let first = before.first().copied();
    let constant = before.iter().chain(after).all(|value| Some(*value) == first);
    let verdict = match interval {
        _ if constant && before.len() > 1 && after.len() > 1 => Change::NoDifference,
        None => Change::CannotTell,
        Some((low, high)) if low <= 0.0 && high >= 0.0 => Change::NoDifference,
        Some((low, _)) => match known.map(|metric| metric.direction()) {
            None => Change::Different,
            Some(Direction::Higher) if low > 0.0 => Change::Better,
            Some(Direction::Lower) if low <= 0.0 => Change::Better,
            Some(_) => Change::Worse,
        },
    };
    let unit = known.map_or("1", |metric| metric.unit()).to_owned();
    let (work, metric) = (String::new(), key.to_owned());
    MetricDiff { work, metric, unit, before: from, after: to, change, interval, verdict }
}

fn geometric_mean(values: &[f64]) -> f64 {
    // Equal values stay what they are to the last digit.
    match values {
        [first, rest @ ..] if rest.iter().all(|value| value == first) => *first,
        _ => mean(&values.iter().map(|value| value.ln()).collect::<Vec<f64>>()).exp(),
    }
}

/// Welch's interval of the ratio of geometric means, less one.
fn log_interval(before: &[f64], after: &[f64], tail: f64) -> Option<(f64, f64)> {
    let logs = |values: &[f64]| -> Option<Vec<f64>> {
        let positive = values.len() > 1 && values.iter().all(|value| *value > 0.0);
        positive.then(|| values.iter().map(|value| value.ln()).collect())
    };
    let (before, after) = (logs(before)?, logs(after)?);
    let share = |values: &[f64]| variance(values) / values.len() as f64;
    let (a, b) = (share(&before), share(&after));
    let difference = mean(&after) - mean(&before);
    let error = (a + b).sqrt();
    let freedom = |share: f64, values: &[f64]| share * share / (values.len() - 1) as f64;
    let degrees = (a + b).powi(2) / (freedom(a, &before) + freedom(b, &after));
    // Values without any spread are counts that do not depend on chance.
    let half = if error > 0.0 { t_quantile(tail, degrees) * error } else { 0.0 };
    Some(((difference - half).exp() - 1.0, (difference + half).exp() - 1.0))
}

fn tasks(work: &str, before: &[&SideRun], after: &[&SideRun]) -> Vec<TaskDiff> {
    let average = |side: &[&SideRun]| {
        let mut sums: BTreeMap<String, TaskSum> = BTreeMap::new();
        for (name, sum) in side.iter().flat_map(|run| &run.tasks) {
            let all = sums.entry(name.clone()).or_default();
            all.count += sum.count;
            all.cpu_time_ns += sum.cpu_time_ns;
            all.run_delay_ns += sum.run_delay_ns;
            all.switches += sum.switches;
        }
        let runs = side.len().max(1) as u64;
        for sum in sums.values_mut() {
            let TaskSum { count, cpu_time_ns, run_delay_ns, switches } = sum;
            for total in [count, cpu_time_ns, run_delay_ns, switches] {
                *total = (*total + runs / 2) / runs;
            }
        }
        sums
    };
    let (old, new) = (average(before), average(after));
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let side = |sums: &BTreeMap<String, TaskSum>, name: &str| sums.get(name).copied().unwrap_or_default();
    let mut rows: Vec<TaskDiff> = names
        .into_iter()
        .map(|name| TaskDiff {
            work: work.to_owned(),
            name: name.clone(),
            before: side(&old, name),
            after: side(&new, name),
        })
        .collect();
    rows.sort_by_key(|row| {
        let (a, b) = (row.before, row.after);
        let moved = a.cpu_time_ns.abs_diff(b.cpu_time_ns) + a.run_delay_ns.abs_diff(b.run_delay_ns);
        (std::cmp::Reverse(moved), row.name.clone())
    });
    rows
}

/// Tasks beyond these are counted only.
const TASKS_SHOWN: usize = 20;

/// As text for a terminal.
pub fn render(diff: &Diff, options: TextOptions) -> String {
    let mut text = String::new();
    for note in &diff.notes {
        text += &format!("Note       {note}\n");
    }
    let mut works: Vec<&str> = diff.metrics.iter().map(|row| row.work.as_str()).collect();
    works.dedup();
    for work in works {
        if !work.is_empty() {
            text += &format!("\n{work}\n");
        }
        text += &metrics_table(diff, work).render(options);
        let rows: Vec<&TaskDiff> = diff.tasks.iter().filter(|row| row.work == work).collect();
        text += "\n";
        text += &tasks_table(&rows).render(options);
        if rows.len() > TASKS_SHOWN {
            text += &format!("and {} more names\n", rows.len() - TASKS_SHOWN);
        }
    }
    if diff.runs_min() < 2 {
        text += "\nOne run on a side does not tell what differs by chance: give several of each, separated by commas.\n";
    }
    text
}

fn metrics_table(diff: &Diff, work: &str) -> Table {
    let mut table = Table::new(&["metric", "before", "after", "change", "95 % of all", "verdict"]);
    table.right = vec![1, 2, 3, 4];
    for row in diff.metrics.iter().filter(|row| row.work == work) {
        let value = |value| units::value(&row.metric, &row.unit, value);
        let interval = |(low, high)| format!("{} to {}", units::change(low), units::change(high));
        table.row(vec![
            row.metric.clone(),
            value(row.before),
            value(row.after),
            row.change.map_or("–".to_owned(), units::change),
            row.interval.map_or("–".to_owned(), interval),
            row.verdict.words().to_owned(),
        ]);
    }
    table
}

fn tasks_table(rows: &[&TaskDiff]) -> Table {
    let mut table = Table::new(&["task", "number", "on CPU", "", "waiting", "", "switches", ""]);
    table.right = (1..8).collect();
    for row in rows.iter().take(TASKS_SHOWN) {
        let (a, b) = (row.before, row.after);
        let count = |value: u64| units::short(value as f64);
        let number = if a.count == b.count {
            count(a.count)
        } else {
            format!("{} → {}", count(a.count), count(b.count))
        };
        let time = |ns: u64| units::time(ns as f64);
        table.row(vec![
            row.name.clone(),
            number,
            time(a.cpu_time_ns),
            format!("→ {}", time(b.cpu_time_ns)),
            time(a.run_delay_ns),
            format!("→ {}", time(b.run_delay_ns)),
            count(a.switches),
            format!("→ {}", count(b.switches)),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(key: &str, values: &[f64]) -> Vec<SideRun> {
        let run = |value: &f64| SideRun {
            values: BTreeMap::from([(key.to_owned(), *value)]),
            ..SideRun::default()
        };
        values.iter().map(run).collect()
    }

    fn verdict(key: &str, before: &[f64], after: &[f64]) -> Change {
        Diff::of(&runs(key, before), &runs(key, after), Vec::new()).metrics[0].verdict
    }

    #[test]
    fn a_change_beyond_the_spread_has_the_metrics_direction() {
        let (slow, fast) = ([100.0, 104.0, 98.0, 101.0], [50.0, 52.0, 49.0, 51.0]);
        assert_eq!(verdict("makespan", &slow, &fast), Change::Better);
        assert_eq!(verdict("makespan", &fast, &slow), Change::Worse);
        assert_eq!(verdict("throughput", &slow, &fast), Change::Worse);
        assert_eq!(verdict("own", &slow, &fast), Change::Different);
        assert_eq!(verdict("makespan", &slow, &[99.0, 103.0, 100.0, 102.0]), Change::NoDifference);
        assert_eq!(verdict("makespan", &[100.0], &[50.0]), Change::CannotTell, "one run each");
        assert_eq!(verdict("makespan", &[0.0, 1.0], &[2.0, 3.0]), Change::CannotTell, "no ratio to 0");
        assert_eq!(verdict("switches", &[7.0, 7.0], &[7.0, 7.0]), Change::NoDifference);
    }

    #[test]
    fn the_change_is_that_of_the_interval() {
        // One slow run moves the arithmetic mean to where the interval of the ratio is not.
        let (before, after) = ([10.0, 10.1, 9.9, 10.0, 80.0], [12.0, 12.1, 11.9, 12.0, 12.05]);
        let row = &Diff::of(&runs("makespan", &before), &runs("makespan", &after), Vec::new()).metrics[0];
        let (change, (low, high)) = (row.change.expect("positive"), row.interval.expect("five runs"));
        assert!((((1.0 + low) * (1.0 + high)).sqrt() - (1.0 + change)).abs() < 1e-9, "{change} {low} {high}");
        assert!((row.after / row.before - 1.0 - change).abs() < 1e-12, "and that of the means shown");
    }

    #[test]
    fn several_works_are_compared_one_by_one() {
        let side = |scale: f64, works: &[&str]| -> Vec<SideRun> {
            let of = |work: &&str| {
                let mut runs = runs("makespan", &[scale, scale * 1.01, scale * 0.99]);
                runs.iter_mut().for_each(|run| (*work).clone_into(&mut run.work));
                runs
            };
            works.iter().flat_map(of).collect()
        };
        let before = [side(10.0, &["short"]), side(1_000.0, &["long", "old"])].concat();
        let after = [side(20.0, &["short"]), side(500.0, &["long", "new"])].concat();
        let diff = Diff::of(&before, &after, Vec::new());
        let verdicts: Vec<(&str, Change)> =
            diff.metrics.iter().map(|row| (row.work.as_str(), row.verdict)).collect();
        assert_eq!(verdicts, [("long", Change::Better), ("short", Change::Worse)]);
        assert!(diff.notes[0].contains("only before has the work old"), "{:?}", diff.notes);
        assert!(diff.notes[1].contains("only after has the work new"), "{:?}", diff.notes);
        // One work on each side is compared whatever it is called.
        assert_eq!(Diff::of(&side(1.0, &["a"]), &side(2.0, &["b"]), Vec::new()).metrics.len(), 1);
    }

    #[test]
    fn welchs_interval_is_that_of_the_textbook() {
        // Logarithms 0, 1, 2 and 3, 5: means 1 and 4, variances 1 and 2, error² 1/3 + 1, degrees
        // (4/3)² / ((1/3)²/2 + 1²/1) = 1.684; with tail 0.25 the quantile of 1.684 degrees lies between those of 1 (1.0)
        // and 2 (0.8165).
        let e = |power: f64| power.exp();
        let (before, after) = ([e(0.0), e(1.0), e(2.0)], [e(3.0), e(5.0)]);
        let (low, high) = log_interval(&before, &after, 0.25).expect("two on each side");
        let half = ((high + 1.0).ln() - (low + 1.0).ln()) / 2.0;
        let error = (4.0_f64 / 3.0).sqrt();
        assert!((((high + 1.0).ln() + (low + 1.0).ln()) / 2.0 - 3.0).abs() < 1e-9);
        assert!(half > 0.8165 * error && half < error, "{half}");
    }

    #[test]
    fn equal_sides_are_rarely_called_different() {
        let mut random = crate::compare::stats::Random(7);
        let mut draw = || {
            let values: Vec<f64> = (0..5).map(|_| 100.0 * (1.0 + 0.2 * random.unit())).collect();
            values
        };
        let wrong =
            (0..2_000).filter(|_| verdict("makespan", &draw(), &draw()) != Change::NoDifference).count();
        assert!(wrong < 140, "{wrong} of 2,000 at 5 %");
    }
}
