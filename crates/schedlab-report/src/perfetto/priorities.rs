//! Dynamic priorities in a trace: a counter for each task, and beside it an instant for each change with its cause.

use super::proto::Message;
use super::{COUNTER, INSTANT, Track, Writer, field};
use crate::timeline::Timeline;
use schedlab_model::Nanos;
use schedlab_model::ids::TaskId;
use std::collections::BTreeSet;

impl Writer<'_> {
    /// Tracks below each task's own, then every change.
    pub(super) fn priorities(&mut self, timeline: &Timeline) {
        let tasks: BTreeSet<TaskId> = timeline.priorities.iter().map(|step| step.task).collect();
        for task in tasks {
            self.priority_tracks(task, timeline.name(task));
            // What held before the first change.
            if let Some(first) = timeline.priorities.iter().find(|step| step.task == task) {
                let before = first.before;
                self.track_event(Nanos::ZERO, COUNTER, Track::Priority(task), |event| {
                    event.signed(field::event::COUNTER_VALUE, -i64::from(before));
                });
            }
        }
        for step in &timeline.priorities {
            self.track_event(step.time, COUNTER, Track::Priority(step.task), |event| {
                event.signed(field::event::COUNTER_VALUE, -i64::from(step.after));
            });
            let cause = step.cause.name();
            let name = format!("{cause}: {} to {}", step.before, step.after);
            self.track_event(step.time, INSTANT, Track::Causes(step.task), |event| {
                event.text(field::event::NAME, &name);
                annotation(event, "cause", |value| {
                    value.text(field::annotation::STRING_VALUE, cause);
                });
                for (key, priority) in [("before", step.before), ("after", step.after)] {
                    annotation(event, key, |value| {
                        value.number(field::annotation::UINT_VALUE, u64::from(priority));
                    });
                }
            });
        }
    }

    fn priority_tracks(&mut self, task: TaskId, name: &str) {
        use field::descriptor::{COUNTER, NAME, PARENT_UUID};
        let parent = Track::Thread(task).uuid();
        self.descriptor(Track::Priority(task), |track| {
            track
                .number(PARENT_UUID, parent)
                .text(NAME, &format!("priority of {name} (up runs sooner)"))
                .message(COUNTER, |counter| {
                    counter.text(6, "negated priority");
                });
        });
        self.descriptor(Track::Causes(task), |track| {
            track.number(PARENT_UUID, parent).text(NAME, &format!("why the priority of {name} changed"));
        });
    }
}

fn annotation(event: &mut Message, key: &str, fill: impl FnOnce(&mut Message)) {
    event.message(field::event::DEBUG_ANNOTATIONS, |annotation| {
        annotation.text(field::annotation::NAME, key);
        fill(annotation);
    });
}
