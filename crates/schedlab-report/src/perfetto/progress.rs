//! What each task got, in a trace: a counter of its CPU time and, where the run told it, one of its virtual runtime.
//!
//! Virtual runtime is written as the kernel or the scheduler holds it, in ns; a page draws it on clocks that compare.

use super::{COUNTER, Track, Writer, field};
use crate::timeline::Timeline;
use schedlab_model::Nanos;
use schedlab_model::ids::TaskId;
use std::collections::{BTreeMap, BTreeSet};

impl Writer<'_> {
    /// Tracks below each task's own, then every value.
    pub(super) fn progress(&mut self, timeline: &Timeline) {
        let ran: BTreeSet<TaskId> = timeline.stays.iter().map(|stay| stay.task).collect();
        for task in ran {
            let name = format!("CPU time of {}", timeline.name(task));
            self.counter_track(Track::CpuTime(task), task, &name);
            self.count(Nanos::ZERO, Track::CpuTime(task), 0);
        }
        let mut sums: BTreeMap<TaskId, u64> = BTreeMap::new();
        for stay in &timeline.stays {
            let sum = sums.entry(stay.task).or_default();
            *sum += stay.end.saturating_sub(stay.start).0;
            let sum = *sum as i64;
            self.count(stay.end, Track::CpuTime(stay.task), sum);
        }
        let told: BTreeSet<TaskId> = timeline.vruntimes.iter().map(|point| point.task).collect();
        for task in told {
            let name = format!("virtual runtime of {}", timeline.name(task));
            self.counter_track(Track::Vruntime(task), task, &name);
        }
        for point in &timeline.vruntimes {
            self.count(point.time, Track::Vruntime(point.task), point.value);
        }
    }

    fn counter_track(&mut self, track: Track, task: TaskId, name: &str) {
        use field::descriptor::{COUNTER, NAME, PARENT_UUID};
        let parent = Track::Thread(task).uuid();
        self.descriptor(track, |descriptor| {
            descriptor.number(PARENT_UUID, parent).text(NAME, name).message(COUNTER, |counter| {
                counter.text(6, "ns");
            });
        });
    }

    fn count(&mut self, time: Nanos, track: Track, value: i64) {
        self.track_event(time, COUNTER, track, |event| {
            event.signed(field::event::COUNTER_VALUE, value);
        });
    }
}
