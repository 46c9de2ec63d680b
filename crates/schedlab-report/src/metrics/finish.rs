//! Sums to numbers: what the collector knows at the end becomes [`RunMetrics`].
//!
//! Which run has which metric: one that the work cannot have is absent, never zero.

use super::MetricsCollector;
use super::task::Task;
use schedlab_model::ids::TaskId;
use schedlab_model::metric::{Histogram, Metric, RunMetrics, TaskMetrics};
use schedlab_model::time::Nanos;
use std::collections::BTreeMap;

/// A task that slept at most this share of its life "always wants to run".
const ALWAYS_RUNNABLE_SLEEP_SHARE_MAX: f64 = 0.01;
/// A task that lived less than this share of the run says nothing of fairness.
const FAIRNESS_LIFE_SHARE_MIN: f64 = 0.1;

pub(super) fn run_metrics(collector: &MetricsCollector, end: Nanos) -> RunMetrics {
    let targets = || collector.tasks.iter().skip(1).filter(|task| task.target);
    let mut wakeup_latency = Histogram::default();
    targets().for_each(|task| wakeup_latency.merge(&task.wakeup_latency));
    let mut run = RunMetrics {
        values: BTreeMap::new(),
        custom: None,
        wakeup_latency,
        run_delay: collector.run_delay.clone(),
        slice_length: collector.slice_length.clone(),
        request: collector.request.clone(),
        tasks: task_rows(collector),
    };
    distributions(&mut run);
    let mut set = |metric, value| {
        run.values.insert(metric, value);
    };
    let sum = |part: fn(&Task) -> u64| targets().map(part).sum::<u64>() as f64;
    set(Metric::RunDelayTotal, sum(|task| task.run_delay.0));
    set(Metric::CpuTime, sum(|task| task.cpu_time.0));
    set(Metric::Switches, collector.switches as f64);
    set(Metric::InvoluntarySwitches, sum(|task| task.involuntary_switches));
    set(Metric::Migrations, sum(|task| task.migrations));
    set(Metric::MigrationsCrossCache, sum(|task| task.migrations_cross_cache));
    set(Metric::IdleWhileQueued, collector.cpus.idle_while_queued().0 as f64);
    set(Metric::QueueLengthMean, collector.cpus.queue_length_mean(end));
    if let Some(wait) = targets().map(|task| task.wait_max).max() {
        set(Metric::StarvationMax, wait.0 as f64);
    }
    let span = makespan(collector);
    if let Some(span) = span {
        set(Metric::Makespan, span.0 as f64);
    }
    let span_s = span.unwrap_or(end).as_secs_f64();
    let jobs = sum(|task| task.jobs);
    let done = if jobs > 0.0 { jobs } else { sum(|task| task.voluntary_switches) };
    if done > 0.0 && span_s > 0.0 {
        set(Metric::Throughput, done / span_s);
    }
    let (met, missed) = (sum(|task| task.deadlines_met), sum(|task| task.deadlines_missed));
    if met + missed > 0.0 {
        set(Metric::DeadlinesMet, met / (met + missed));
    }
    if let Some(index) = fairness(collector, end) {
        set(Metric::Fairness, index);
    }
    run
}

fn distributions(run: &mut RunMetrics) {
    let wanted = [
        (Metric::WakeupLatencyMean, run.wakeup_latency.mean()),
        (Metric::WakeupLatencyP50, run.wakeup_latency.percentile(5_000)),
        (Metric::WakeupLatencyP99, run.wakeup_latency.percentile(9_900)),
        (Metric::WakeupLatencyP999, run.wakeup_latency.percentile(9_990)),
        (Metric::WakeupLatencyMax, run.wakeup_latency.max()),
        (Metric::RunDelayMean, run.run_delay.mean()),
        (Metric::RunDelayP99, run.run_delay.percentile(9_900)),
        (Metric::RequestMean, run.request.mean()),
        (Metric::RequestP99, run.request.percentile(9_900)),
    ];
    for (metric, value) in wanted {
        if let Some(value) = value {
            run.values.insert(metric, value.0 as f64);
        }
    }
}

/// From the first sign of a target task to the end of the last one; `None` if one did not end.
fn makespan(collector: &MetricsCollector) -> Option<Nanos> {
    let lived = || collector.tasks.iter().skip(1).filter(|task| task.target && task.began.is_some());
    let start = lived().filter_map(|task| task.began).min()?;
    let ends: Option<Vec<Nanos>> = lived().map(|task| task.ended).collect();
    Some(ends?.into_iter().max()?.saturating_sub(start))
}

/// Jain's index of service by weight over target tasks that always wanted to run; `None` below two such
/// tasks. Service is a rate over the task's own life, so that tasks of different ends compare.
fn fairness(collector: &MetricsCollector, end: Nanos) -> Option<f64> {
    let rate = |task: &Task| {
        let life = task.ended.unwrap_or(end).saturating_sub(task.began?).0 as f64;
        let always = task.sleep.0 as f64 <= life * ALWAYS_RUNNABLE_SLEEP_SHARE_MAX;
        let counts = always && life >= end.0 as f64 * FAIRNESS_LIFE_SHARE_MIN && life > 0.0;
        (counts && !task.realtime).then(|| task.cpu_time.0 as f64 / life / f64::from(task.weight))
    };
    let rates: Vec<f64> =
        collector.tasks.iter().skip(1).filter(|task| task.target).filter_map(rate).collect();
    (rates.len() >= 2).then(|| jain(&rates)).flatten()
}

/// Jain's index: 1 if all are equal, 1/n if one has everything. `None` if all are zero.
fn jain(values: &[f64]) -> Option<f64> {
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|value| value * value).sum();
    (squares > 0.0).then(|| sum * sum / (values.len() as f64 * squares))
}

fn task_rows(collector: &MetricsCollector) -> Vec<TaskMetrics> {
    let active = collector.tasks.iter().enumerate().skip(1);
    let active = active.filter(|(_, task)| task.was_active() || (task.target && task.began.is_some()));
    let row = |(index, task): (usize, &Task)| TaskMetrics {
        task: TaskId(index as u32),
        name: task.name.clone(),
        target: task.target,
        weight: task.weight,
        cpu_time: task.cpu_time,
        run_delay: task.run_delay,
        sleep: task.sleep,
        involuntary_switches: task.involuntary_switches,
        voluntary_switches: task.voluntary_switches,
        migrations: task.migrations,
        wait_max: task.wait_max,
        deadlines_met: task.deadlines_met,
        deadlines_missed: task.deadlines_missed,
        wakeup_latency: task.wakeup_latency.clone(),
    };
    active.map(row).collect()
}
