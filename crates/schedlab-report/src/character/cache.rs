//! What tasks of one name did to the cache, from the counters of the processor: summed for each burst.
//!
//! A miss brings one line in, so what a burst misses is what it needs that was not there: its footprint, as far as others
//! or itself had pushed it out. Where no counter was read nothing stands in for them.

use super::Measures;
use schedlab_model::event::EventKind;
use schedlab_model::recording::{CacheCounting, Recording};
use schedlab_model::time::Nanos;
use schedlab_model::timeline::{Stretch, StretchKind};

/// What a task did to the cache in one stay on a CPU, told as it left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Use {
    time: Nanos,
    references: u64,
    misses: u64,
}

/// The uses of each task, in time order.
pub(super) fn uses(recording: &Recording) -> Vec<Vec<Use>> {
    let mut all = vec![Vec::new(); recording.tasks.len()];
    for event in &recording.events {
        if let EventKind::CacheUse { task, references, misses } = event.kind {
            all[task.index()].push(Use { time: event.time, references, misses });
        }
    }
    all
}

/// Bytes that a miss brings in; 0 where none was counted.
pub(super) fn line_bytes(recording: &Recording) -> u32 {
    match recording.provenance.caches {
        Some(CacheCounting::Counted { line_bytes }) => line_bytes,
        _ => 0,
    }
}

/// Sums over tasks.
#[derive(Debug, Default)]
pub(super) struct CacheSums {
    references: u64,
    /// Of each burst.
    misses: Vec<u64>,
}

/// What they come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CacheNumbers {
    pub(super) references: u64,
    pub(super) misses: u64,
    /// Bytes that the median burst brought in.
    pub(super) footprint_bytes: u64,
}

impl CacheSums {
    /// Adds a task: its uses are of the burst at whose end, or before whose end, they were told.
    pub(super) fn add(&mut self, stretches: &[Stretch], uses: &[Use]) {
        let sleeps = stretches.iter().filter(|stretch| matches!(stretch.kind, StretchKind::Asleep { .. }));
        let ends = sleeps.map(|stretch| stretch.start).chain([Nanos::MAX]);
        let mut rest = uses;
        for end in ends {
            let (burst, later) = rest.split_at(rest.partition_point(|one| one.time <= end));
            if !burst.is_empty() {
                self.misses.push(burst.iter().fold(0, |sum, one| one.misses.saturating_add(sum)));
                self.references =
                    burst.iter().fold(self.references, |sum, one| one.references.saturating_add(sum));
            }
            rest = later;
        }
    }

    /// As numbers; `None` if nothing was counted.
    pub(super) fn finish(mut self, line_bytes: u32) -> Option<CacheNumbers> {
        self.misses.sort_unstable();
        let median = *self.misses.get(self.misses.len() / 2)?;
        Some(CacheNumbers {
            references: self.references,
            misses: self.misses.iter().fold(0, |sum, misses| misses.saturating_add(sum)),
            footprint_bytes: median.saturating_mul(u64::from(line_bytes)),
        })
    }
}

/// What a burst brings in, and the share of accesses that miss.
pub(super) fn cells(measures: &Measures) -> [String; 2] {
    let absent = || "-".to_owned();
    let share =
        measures.cache_misses.zip(measures.cache_references).filter(|(_, references)| *references > 0);
    [
        measures
            .cache_footprint_bytes
            .map_or_else(absent, |bytes| format!("{:.1} KiB", bytes as f64 / 1024.0)),
        share.map_or_else(absent, |(misses, of)| format!("{:.0} %", misses as f64 / of as f64 * 100.0)),
    ]
}

/// What a reader must know of them.
pub(super) fn note(caches: Option<&CacheCounting>) -> String {
    match caches {
        None => "not recorded (`schedlab record --caches` counts it where the processor can)".to_owned(),
        Some(CacheCounting::Impossible { reason }) => format!("unknown: {reason}"),
        Some(CacheCounting::Counted { line_bytes }) => format!(
            "what the median burst brings into the cache, {line_bytes} bytes a miss, and the share of accesses that miss"
        ),
    }
}
