//! Sums over the stretches of tasks of one name, and what they say as numbers. Which word the numbers earn is decided in
//! [`super`].

use super::Measures;
use super::cache::CacheSums;
use schedlab_model::TaskId;
use schedlab_model::event::{Context, Operation};
use schedlab_model::time::Nanos;
use schedlab_model::timeline::{OpenOperation, Stretch, StretchKind, Wake};
use std::collections::BTreeMap;

/// Wakers that are named.
const WAKERS_SHOWN: usize = 3;

/// What is known of tasks of one name.
#[derive(Debug, Default)]
pub(super) struct Sums {
    /// How many tasks.
    pub(super) tasks: u32,
    cpu: u64,
    sleep: u64,
    run_delay: u64,
    bursts: Vec<u64>,
    by_timer: u64,
    by_others: u64,
    wakers: BTreeMap<String, u64>,
    /// Times between wake-ups by timers, and those of each task as parts of their median.
    intervals: Vec<f64>,
    relative: Vec<f64>,
    /// What they did to the cache, if it was counted.
    pub(super) caches: CacheSums,
}

impl Sums {
    /// Adds a task, unless it slept all the time; `name_of` names the group of a waker.
    pub(super) fn add(&mut self, stretches: &[Stretch], name_of: impl Fn(TaskId) -> String) {
        if stretches.iter().all(|stretch| matches!(stretch.kind, StretchKind::Asleep { .. })) {
            return;
        }
        self.tasks += 1;
        let (mut burst, mut timers) = (0, Vec::new());
        for stretch in stretches {
            let length = stretch.length().0;
            match stretch.kind {
                StretchKind::Running { interrupt, .. } => {
                    let own = length.saturating_sub(interrupt.0);
                    self.cpu += own;
                    burst += own;
                }
                StretchKind::Waiting { .. } => self.run_delay += length,
                StretchKind::Asleep { operation, wake, .. } => {
                    self.sleep += length;
                    self.end_burst(&mut burst);
                    let Some(wake) = wake else { continue };
                    match cause(operation, &wake) {
                        Cause::Timer(time) => {
                            self.by_timer += 1;
                            timers.push(time);
                        }
                        Cause::Task(waker) => *self.wakers.entry(name_of(waker)).or_default() += 1,
                        Cause::Other => self.by_others += 1,
                    }
                }
            }
        }
        self.end_burst(&mut burst);
        self.add_intervals(&timers);
    }

    fn end_burst(&mut self, burst: &mut u64) {
        if *burst > 0 {
            self.bursts.push(std::mem::take(burst));
        }
    }

    fn add_intervals(&mut self, timers: &[Nanos]) {
        let mut own: Vec<f64> =
            timers.windows(2).map(|pair| pair[1].saturating_sub(pair[0]).0 as f64).collect();
        own.sort_unstable_by(f64::total_cmp);
        let Some(median) = at(&own, 0.5).filter(|median| *median > 0.0) else { return };
        self.relative.extend(own.iter().map(|interval| interval / median));
        self.intervals.append(&mut own);
    }

    /// As numbers; `line_bytes` is of the cache that was counted.
    pub(super) fn finish(mut self, line_bytes: u32) -> Measures {
        let caches = self.caches.finish(line_bytes);
        let by_tasks: u64 = self.wakers.values().sum();
        let wakeups = self.by_timer + self.by_others + by_tasks;
        let share = |count: u64| (wakeups > 0).then(|| count as f64 / wakeups as f64);
        let mut wakers: Vec<(String, u64)> = self.wakers.into_iter().collect();
        wakers.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let wakers = wakers.into_iter().take(WAKERS_SHOWN);
        self.bursts.sort_unstable();
        self.intervals.sort_unstable_by(f64::total_cmp);
        self.relative.sort_unstable_by(f64::total_cmp);
        let spread = at(&self.relative, 0.75).zip(at(&self.relative, 0.25));
        let active = self.cpu + self.sleep;
        Measures {
            cpu_ns: self.cpu,
            sleep_ns: self.sleep,
            run_delay_ns: self.run_delay,
            sleep_ratio: (active > 0).then(|| self.sleep as f64 / active as f64),
            bursts: self.bursts.len() as u64,
            burst_median_ns: self.bursts.get(self.bursts.len() / 2).copied(),
            burst_half_ns: half_of_time(&self.bursts),
            burst_max_ns: self.bursts.last().copied(),
            wakeups,
            by_timer: share(self.by_timer),
            by_tasks: share(by_tasks),
            by_others: share(self.by_others),
            wakers: wakers.map(|(name, count)| (name, count as f64 / wakeups as f64)).collect(),
            period_ns: at(&self.intervals, 0.5).map(|ns| ns as u64),
            period_spread: spread.map(|(high, low)| high - low),
            cache_references: caches.map(|caches| caches.references),
            cache_misses: caches.map(|caches| caches.misses),
            cache_footprint_bytes: caches.map(|caches| caches.footprint_bytes),
        }
    }
}

/// Who ended a sleep.
enum Cause {
    /// A timer, that was due or expired then.
    Timer(Nanos),
    Task(TaskId),
    Other,
}

fn cause(operation: Option<OpenOperation>, wake: &Wake) -> Cause {
    let slept = operation
        .is_some_and(|open| matches!(open.operation, Operation::SleepRelative | Operation::SleepAbsolute));
    match wake.timer_due {
        Some(due) => Cause::Timer(due),
        None if wake.context == Context::Task && !wake.waker.is_idle() => Cause::Task(wake.waker),
        None if slept => Cause::Timer(wake.time),
        None => Cause::Other,
    }
}

/// The value below which this share of sorted values lies.
fn at(sorted: &[f64], share: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    sorted.get((last as f64 * share).round() as usize).copied()
}

/// The length of which it holds that half of the sum of sorted lengths lies in such as are at least so long.
fn half_of_time(sorted: &[u64]) -> Option<u64> {
    let all: u64 = sorted.iter().sum();
    let mut above = 0;
    sorted.iter().rev().copied().find(|length| {
        above += length;
        above * 2 >= all
    })
}
