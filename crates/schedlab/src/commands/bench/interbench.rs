//! What interbench counts of a task, from the events of its run: how late each frame began, which deadlines were met,
//! which frames were left out. As in interbench 0.31, whose words these are.
//!
//! A frame that ends late, or whose turn comes when it should be over, costs the intervals until the next one to come;
//! they are added to the latency of the frame, as there.

use schedlab_model::event::{Event, EventKind, EventSink, PrevState};
use schedlab_model::recording::TaskInfo;
use schedlab_model::workload::interbench::{
    GAMING_BURN, LOADS, TASKS, TASKS_RT, X_BURSTS, period, x_distance,
};
use schedlab_model::{Nanos, TaskId};
use schedlab_report::bench::FrameCounts;
use std::sync::atomic::{AtomicBool, Ordering};

/// Every task beside every load but itself, in real time those that interbench measures so, unless parameters choose: the last setting of each counts.
pub fn pairs(parameters: &[String]) -> Vec<(&str, &str)> {
    let chosen = |key: &str| parameters.iter().rev().find_map(|set| set.strip_prefix(key));
    let all = if chosen("rt=") == Some("1") { TASKS_RT.to_vec() } else { TASKS.to_vec() };
    let tasks = chosen("task=").map_or(all, |task| vec![task]);
    let loads = chosen("load=").map_or(LOADS.to_vec(), |load| vec![load]);
    let pairs = tasks.iter().flat_map(|task| loads.iter().map(move |load| (*task, *load)));
    // A task beside itself is left out, unless it was asked for.
    pairs.filter(|(task, load)| task != load || (tasks.len(), loads.len()) == (1, 1)).collect()
}

/// Intervals from a deadline that was not met to the next one to come.
fn miss(counts: &mut FrameCounts, late_by: Nanos, interval: Nanos) -> u64 {
    let intervals = late_by.0 / interval.0 + 1;
    counts.deadlines_missed += intervals;
    intervals
}

/// A task of interbench, as its events come.
pub struct Frames<'a> {
    task: &'a str,
    id: Option<TaskId>,
    asleep: bool,
    /// When the frame that is next is due; none before the first.
    due: Option<Nanos>,
    /// When the task ran for it.
    started: Option<Nanos>,
    frames: u64,
    interrupted: &'a AtomicBool,
    /// The counters.
    pub counts: FrameCounts,
    /// Latency of each frame, in ns; intervals that it cost included.
    pub latencies_ns: Vec<u64>,
}

impl<'a> Frames<'a> {
    /// Of `audio`, `video`, `x` or `gaming`.
    pub fn of(task: &'a str, interrupted: &'a AtomicBool) -> Frames<'a> {
        let counts = FrameCounts { has_deadlines: task != "gaming", ..FrameCounts::default() };
        let (id, due, started) = (None, None, None);
        Frames {
            task,
            id,
            asleep: false,
            due,
            started,
            frames: 0,
            interrupted,
            counts,
            latencies_ns: Vec::new(),
        }
    }

    fn interval(&self, frame: u64) -> Nanos {
        period(self.task).unwrap_or_else(|| x_distance(frame % X_BURSTS))
    }

    /// X counts a frame's deadline from the end of the burst before, so that it may be late by as much.
    fn allowance(&self, frame: u64) -> Nanos {
        let index = frame % X_BURSTS;
        let before = if index == 0 { X_BURSTS - 1 } else { index - 1 };
        if self.task == "x" { Nanos::from_millis(before) } else { Nanos::ZERO }
    }

    /// The task runs after a sleep: for a frame, or too late for it.
    fn woke(&mut self, now: Nanos) {
        self.started = Some(now);
        let Some(due) = self.due.filter(|_| self.task != "gaming") else { return };
        let interval = self.interval(self.frames.saturating_sub(1));
        if now <= due + interval {
            return;
        }
        let intervals = miss(&mut self.counts, now - (due + interval), interval);
        self.counts.burns_missed += intervals;
        let late = (now - due).saturating_sub(self.allowance(self.frames));
        self.latencies_ns.push((late + Nanos(intervals * interval.0)).0);
        self.due = Some(due + Nanos((intervals + 1) * interval.0));
        self.started = None;
    }

    /// A frame that was released then is done.
    fn ended(&mut self, now: Nanos, released: Nanos) {
        if self.task == "gaming" {
            return self.game(now, released);
        }
        let interval = self.interval(self.frames);
        let began = self.started.take().unwrap_or(released);
        let mut latency = began.saturating_sub(released + self.allowance(self.frames)).0;
        self.counts.burns_achieved += 1;
        let deadline = released + interval;
        let mut next = deadline;
        if now <= deadline {
            self.counts.deadlines_met += 1;
        } else {
            let intervals = miss(&mut self.counts, now - deadline, interval);
            // Only if more than one is lost: 0.31 counts all of them then.
            self.counts.burns_missed += if intervals > 1 { intervals } else { 0 };
            latency += intervals * interval.0;
            next = deadline + Nanos(intervals * interval.0);
        }
        self.latencies_ns.push(latency);
        self.frames += 1;
        self.due = Some(next);
    }

    fn game(&mut self, now: Nanos, released: Nanos) {
        let late = (now - released).saturating_sub(GAMING_BURN);
        self.counts.burns_achieved += GAMING_BURN.0;
        self.counts.burns_missed += late.0;
        self.latencies_ns.push(late.0);
    }
}

impl EventSink for Frames<'_> {
    fn wants_detail(&self) -> bool {
        false
    }

    fn has_enough(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    fn task(&mut self, id: TaskId, info: &TaskInfo) {
        if info.name == "bench" {
            self.id = Some(id);
        }
    }

    fn event(&mut self, event: &Event) {
        match event.kind {
            EventKind::Switch { prev, prev_state, .. } if Some(prev) == self.id => {
                self.asleep = prev_state != PrevState::Runnable;
            }
            EventKind::Switch { next, .. } if Some(next) == self.id && self.asleep => {
                self.asleep = false;
                self.woke(event.time);
            }
            EventKind::Job { task, released, .. } if Some(task) == self.id => {
                self.ended(event.time, released);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::CpuId;

    const MS: u64 = 1_000_000;

    /// Switch in after a sleep, the end of a frame released then, switch out to sleep; in us.
    fn play(frames: &mut Frames<'_>, steps: &[(&str, u64, u64)]) {
        let (task, idle) = (TaskId(1), TaskId::IDLE);
        frames.id = Some(task);
        for (what, at, released) in steps {
            let kind = match *what {
                "in" => EventKind::Switch { prev: idle, prev_state: PrevState::Runnable, next: task },
                "out" => EventKind::Switch { prev: task, prev_state: PrevState::Interruptible, next: idle },
                _ => EventKind::Job {
                    task,
                    released: Nanos::from_micros(*released),
                    deadline: Nanos::from_micros(*released + 50_000),
                },
            };
            frames.event(&Event { time: Nanos::from_micros(*at), cpu: CpuId(0), kind });
        }
    }

    #[test]
    fn frames_in_time_are_late_by_what_they_waited() {
        let never = AtomicBool::new(false);
        let mut frames = Frames::of("audio", &never);
        let steps = [
            ("out", 0, 0),
            ("in", 50_010, 0),
            ("job", 52_600, 50_000),
            ("out", 52_600, 0),
            ("in", 100_030, 0),
            ("job", 103_000, 100_000),
        ];
        play(&mut frames, &steps);
        let tally = &frames.counts;
        assert_eq!(frames.latencies_ns, [10_000, 30_000]);
        assert_eq!((tally.deadlines_met, tally.deadlines_missed, tally.burns_achieved), (2, 0, 2));
        assert_eq!((tally.desired_cpu_percent(), tally.deadlines_met_percent()), (Some(100.0), Some(100.0)));
    }

    #[test]
    fn a_frame_that_ends_late_costs_the_intervals_until_the_next() {
        let never = AtomicBool::new(false);
        let mut frames = Frames::of("audio", &never);
        // Begins 40 ms late, ends 20 ms after its deadline: one interval, no burn is lost.
        play(&mut frames, &[("out", 0, 0), ("in", 90_000, 0), ("job", 120_000, 50_000)]);
        assert_eq!(frames.latencies_ns, [40 * MS + 50 * MS]);
        assert_eq!((frames.counts.deadlines_missed, frames.counts.burns_missed), (1, 0));
        assert_eq!(frames.due, Some(Nanos::from_millis(150)));
        // 60 ms more: two intervals, and 0.31 counts both as burns that were lost.
        let mut frames = Frames::of("audio", &never);
        play(&mut frames, &[("out", 0, 0), ("in", 90_000, 0), ("job", 160_000, 50_000)]);
        assert_eq!((frames.counts.deadlines_missed, frames.counts.burns_missed), (2, 2));
        assert_eq!(frames.due, Some(Nanos::from_millis(200)));
    }

    /// Due at 100 ms, runs at 270 ms: 120 ms after the frame was over, so three intervals are lost, the next is at 300 ms.
    #[test]
    fn a_frame_that_is_over_before_it_begins_is_left_out() {
        let never = AtomicBool::new(false);
        let mut frames = Frames::of("audio", &never);
        let first = [("out", 0, 0), ("in", 50_000, 0), ("job", 52_500, 50_000), ("out", 52_500, 0)];
        play(&mut frames, &first);
        play(&mut frames, &[("in", 270_000, 0), ("out", 270_000, 0), ("in", 300_000, 0)]);
        play(&mut frames, &[("job", 302_500, 300_000)]);
        assert_eq!(frames.latencies_ns, [0, 170 * MS + 150 * MS, 0]);
        assert_eq!((frames.counts.deadlines_met, frames.counts.deadlines_missed), (2, 3));
        assert_eq!((frames.counts.burns_achieved, frames.counts.burns_missed), (2, 3));
        assert_eq!(frames.counts.desired_cpu_percent(), Some(40.0));
    }

    #[test]
    fn gaming_has_no_deadlines_and_counts_time() {
        let never = AtomicBool::new(false);
        let mut frames = Frames::of("gaming", &never);
        play(&mut frames, &[("job", 100_000, 0), ("job", 300_000, 100_000)]);
        assert_eq!(frames.latencies_ns, [0, 100 * MS]);
        let percent = frames.counts.desired_cpu_percent().expect("it ran");
        assert!((percent - 200.0 / 3.0).abs() < 1e-9, "{percent}");
        assert_eq!(frames.counts.deadlines_met_percent(), None);
    }
}
