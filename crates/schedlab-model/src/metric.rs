//! Metrics: their names, units and directions, histograms, and what one run yields.
//!
//! Definitions follow research on kernel tools: wake-up latency is `sched_waking` to running; preempt
//! wait is runnable to running after an involuntary switch; run delay is both. Percentiles come from
//! histograms and are never averaged; histograms merge.

use crate::ids::TaskId;
use crate::time::Nanos;
use serde::{Deserialize, Serialize};

/// Whether more is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Less is better.
    Lower,
    /// More is better.
    Higher,
}

macro_rules! metrics {
    ($($(#[doc = $doc:literal])* $name:ident = $key:literal, $unit:literal, $direction:ident;)*) => {
        /// One number of a run.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Metric { $($(#[doc = $doc])* $name,)* }

        impl Metric {
            /// Every metric.
            pub const ALL: &'static [Metric] = &[$(Metric::$name),*];

            /// Name in JSON and on the command line.
            pub const fn key(self) -> &'static str {
                match self { $(Metric::$name => $key,)* }
            }

            /// Unit of the value: `ns`, `1/s`, `1` (a ratio or count).
            pub const fn unit(self) -> &'static str {
                match self { $(Metric::$name => $unit,)* }
            }

            /// Whether more is better.
            pub const fn direction(self) -> Direction {
                match self { $(Metric::$name => Direction::$direction,)* }
            }

            /// What it means, one sentence.
            pub const fn meaning(self) -> &'static str {
                match self { $(Metric::$name => concat!($($doc),*),)* }
            }
        }
    };
}

metrics! {
    /// Time from the start to the end of the last target task.
    Makespan = "makespan", "ns", Lower;
    /// Jobs finished by target tasks a second; bursts if the workload has no jobs.
    Throughput = "throughput", "1/s", Higher;
    /// Mean wake-up latency of target tasks.
    WakeupLatencyMean = "wakeup_latency_mean", "ns", Lower;
    /// Median wake-up latency.
    WakeupLatencyP50 = "wakeup_latency_p50", "ns", Lower;
    /// 99th percentile of wake-up latency.
    WakeupLatencyP99 = "wakeup_latency_p99", "ns", Lower;
    /// 99.9th percentile of wake-up latency.
    WakeupLatencyP999 = "wakeup_latency_p999", "ns", Lower;
    /// Largest wake-up latency.
    WakeupLatencyMax = "wakeup_latency_max", "ns", Lower;
    /// Mean time from runnable to running, wake-ups and preemptions.
    RunDelayMean = "run_delay_mean", "ns", Lower;
    /// 99th percentile of run delay.
    RunDelayP99 = "run_delay_p99", "ns", Lower;
    /// Run delay of all target tasks, summed.
    RunDelayTotal = "run_delay_total", "ns", Lower;
    /// Mean time from an outside wake-up to the next block: a proxy for a request.
    RequestMean = "request_mean", "ns", Lower;
    /// 99th percentile of the request proxy.
    RequestP99 = "request_p99", "ns", Lower;
    /// Share of jobs done by their deadline.
    DeadlinesMet = "deadlines_met", "1", Higher;
    /// Jain's index over service by weight of tasks that always want to run.
    Fairness = "fairness", "1", Higher;
    /// CPU time of target tasks.
    CpuTime = "cpu_time", "ns", Lower;
    /// Context switches on all CPUs, to and from idle included.
    Switches = "switches", "1", Lower;
    /// Switches in which the target task stayed runnable.
    InvoluntarySwitches = "involuntary_switches", "1", Lower;
    /// Moves of target tasks between CPUs.
    Migrations = "migrations", "1", Lower;
    /// Moves to another last-level cache.
    MigrationsCrossCache = "migrations_cross_cache", "1", Lower;
    /// Time in which one CPU was idle while another had a task waiting that was allowed there.
    IdleWhileQueued = "idle_while_queued", "ns", Lower;
    /// Mean number of tasks waiting for a CPU.
    QueueLengthMean = "queue_length_mean", "1", Lower;
    /// Longest time a target task was runnable without running.
    StarvationMax = "starvation_max", "ns", Lower;
}

/// Sub-buckets of a power of two: 32, so a bucket is at most 3.2 % wide.
const SUB_BITS: u32 = 5;
const SUB: u64 = 1 << SUB_BITS;
const BUCKETS: usize = ((64 - SUB_BITS as usize) + 1) * SUB as usize;

/// A log-linear histogram of times, relative bucket width at most 1/32, exact below 64 ns.
///
/// Histograms merge by adding; count, sum and extremes are exact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histogram {
    counts: Vec<u64>,
    count: u64,
    sum: u128,
    min: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: Vec::new(), count: 0, sum: 0, min: u64::MAX, max: 0 }
    }
}

impl Histogram {
    fn bucket(value: u64) -> usize {
        if value < SUB {
            return value as usize;
        }
        let shift = 63 - value.leading_zeros() - SUB_BITS;
        ((u64::from(shift) + 1) * SUB + ((value >> shift) - SUB)) as usize
    }

    /// Lowest value of a bucket.
    fn bucket_low(index: usize) -> u64 {
        let index = index as u64;
        if index < SUB {
            return index;
        }
        (SUB + index % SUB) << (index / SUB - 1)
    }

    /// Counts one value.
    pub fn record(&mut self, value: Nanos) {
        let bucket = Self::bucket(value.0);
        debug_assert!(bucket < BUCKETS);
        if self.counts.len() <= bucket {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += 1;
        self.count += 1;
        self.sum += u128::from(value.0);
        self.min = self.min.min(value.0);
        self.max = self.max.max(value.0);
    }

    /// Adds another histogram.
    pub fn merge(&mut self, other: &Histogram) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        self.counts.iter_mut().zip(&other.counts).for_each(|(a, b)| *a += b);
        self.count += other.count;
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Sum of the values.
    pub fn total(&self) -> Nanos {
        Nanos(u64::try_from(self.sum).unwrap_or(u64::MAX))
    }

    /// Mean, `None` if empty.
    pub fn mean(&self) -> Option<Nanos> {
        (self.count > 0).then(|| Nanos((self.sum / u128::from(self.count)) as u64))
    }

    /// Largest value, `None` if empty.
    pub fn max(&self) -> Option<Nanos> {
        (self.count > 0).then_some(Nanos(self.max))
    }

    /// Smallest value, `None` if empty.
    pub fn min(&self) -> Option<Nanos> {
        (self.count > 0).then_some(Nanos(self.min))
    }

    /// The value at or below which `permyriad`/10000 of the values lie (5000 is the median, 9900 the 99th
    /// percentile): the middle of its bucket, within the extremes. `None` if empty.
    pub fn percentile(&self, permyriad: u32) -> Option<Nanos> {
        if self.count == 0 {
            return None;
        }
        let rank = (u128::from(self.count) * u128::from(permyriad)).div_ceil(10_000).max(1) as u64;
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                let (low, high) = (Self::bucket_low(index), Self::bucket_low(index + 1));
                return Some(Nanos((low + (high - low) / 2).clamp(self.min, self.max)));
            }
        }
        Some(Nanos(self.max))
    }

    /// Non-empty buckets: (lowest value, first value above, count).
    pub fn buckets(&self) -> impl Iterator<Item = (Nanos, Nanos, u64)> + '_ {
        let full = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        full.map(|(index, &count)| {
            (Nanos(Self::bucket_low(index)), Nanos(Self::bucket_low(index + 1)), count)
        })
    }
}

/// One task's part of a run.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct TaskMetrics {
    /// The task.
    pub task: TaskId,
    /// Its name.
    pub name: String,
    /// Whether it belongs to the target.
    pub target: bool,
    /// Weight it ran with.
    pub weight: u32,
    /// CPU time.
    pub cpu_time: Nanos,
    /// Runnable but waiting.
    pub run_delay: Nanos,
    /// Asleep.
    pub sleep: Nanos,
    /// Switches away while still runnable.
    pub involuntary_switches: u64,
    /// Switches away to sleep.
    pub voluntary_switches: u64,
    /// Moves between CPUs.
    pub migrations: u64,
    /// Longest wait while runnable.
    pub wait_max: Nanos,
    /// Jobs done in time.
    pub deadlines_met: u64,
    /// Jobs done late or not at all.
    pub deadlines_missed: u64,
    /// Wake-up latencies.
    pub wakeup_latency: Histogram,
}

/// What one run yields.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct RunMetrics {
    /// Scalars; a metric the workload cannot have is absent.
    pub values: std::collections::BTreeMap<Metric, f64>,
    /// The user's own metric, if any: name and value.
    pub custom: Option<(String, f64)>,
    /// Wake-up latencies of target tasks.
    pub wakeup_latency: Histogram,
    /// Run delays of target tasks.
    pub run_delay: Histogram,
    /// Lengths of stays on a CPU of target tasks.
    pub slice_length: Histogram,
    /// Request proxy of target tasks.
    pub request: Histogram,
    /// One row a task.
    pub tasks: Vec<TaskMetrics>,
}

impl RunMetrics {
    /// One scalar.
    pub fn get(&self, metric: Metric) -> Option<f64> {
        self.values.get(&metric).copied()
    }

    /// Whether no target task ever had a CPU.
    pub fn never_ran(&self) -> bool {
        self.get(Metric::CpuTime) == Some(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_contiguous_and_narrow() {
        let mut last = 0;
        for value in (0..100_000_u64).chain([1 << 40, (1 << 40) + 1, u64::MAX / 2, u64::MAX]) {
            let bucket = Histogram::bucket(value);
            assert!(bucket >= last, "buckets fall at {value}");
            assert!(Histogram::bucket_low(bucket) <= value);
            last = bucket;
        }
        assert!(last < BUCKETS);
    }

    #[test]
    fn percentiles_are_within_a_bucket_of_the_truth() {
        let mut histogram = Histogram::default();
        (1..=10_000).for_each(|us| histogram.record(Nanos::from_micros(us)));
        for (permyriad, truth_us) in [(5_000, 5_000.0), (9_900, 9_900.0), (9_990, 9_990.0)] {
            let found = histogram.percentile(permyriad).expect("not empty").as_micros_f64();
            assert!((found / truth_us - 1.0).abs() < 0.032, "{permyriad}: {found}");
        }
        assert_eq!(histogram.max(), Some(Nanos::from_millis(10)));
        assert_eq!(histogram.mean(), Some(Nanos(5_000_500)));
    }
}
