//! The last intervals of each task and CPU, for sparklines.
//!
//! Bounded: so many values of each, and nothing of tasks that have gone.

use schedlab_report::top::{Frame, Sort, TaskRow};
use std::collections::{HashMap, VecDeque};

/// Intervals that are kept.
pub const LENGTH: usize = 16;
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// One number for each interval; NaN where there was none.
type Values = VecDeque<f64>;

#[derive(Default)]
struct Task {
    cpu: Values,
    delay: Values,
    /// Higher runs sooner.
    rank: Values,
    /// In which interval it was last there.
    seen: u64,
}

/// What is kept.
#[derive(Default)]
pub struct History {
    tasks: HashMap<(i32, u64), Task>,
    /// Queue length of each CPU by number.
    cpus: HashMap<u32, Values>,
    intervals: u64,
}

impl History {
    /// Takes an interval in.
    pub fn add(&mut self, frame: &Frame) {
        self.intervals += 1;
        let interval = (frame.interval.0 as f64).max(1.0);
        for row in &frame.tasks {
            let task = self.tasks.entry((row.now.pid, row.now.start_ns)).or_default();
            task.seen = self.intervals;
            push(&mut task.cpu, row.cpu_share);
            push(&mut task.delay, row.delay.map_or(f64::NAN, |delay| delay.0 as f64 / interval));
            let sooner = row.now.rank.map(|rank| -(rank.order().1 as f64));
            push(&mut task.rank, sooner.unwrap_or(f64::NAN));
        }
        for row in &frame.cpus {
            push(self.cpus.entry(row.now.cpu.0).or_default(), f64::from(row.now.queued));
        }
        let intervals = self.intervals;
        self.tasks.retain(|_, task| task.seen == intervals);
    }

    /// A task's line of what tasks are sorted by: shares from none to the whole, ranks between their least and greatest.
    pub fn of_task(&self, row: &TaskRow, sort: Sort) -> String {
        let Some(task) = self.tasks.get(&(row.now.pid, row.now.start_ns)) else { return String::new() };
        match sort {
            Sort::Cpu | Sort::Pid => line(&task.cpu, 0.0, 1.0),
            Sort::Delay => line(&task.delay, 0.0, 1.0),
            Sort::Rank => {
                let known = || task.rank.iter().copied().filter(|value| !value.is_nan());
                let (least, most) = (known().fold(f64::MAX, f64::min), known().fold(f64::MIN, f64::max));
                line(&task.rank, least, most)
            }
        }
    }

    /// A CPU's line of its queue length, from 0 to the longest that any CPU had.
    pub fn of_cpu(&self, cpu: u32) -> String {
        let longest = self.cpus.values().flatten().copied().fold(1.0, f64::max);
        self.cpus.get(&cpu).map_or(String::new(), |values| line(values, 0.0, longest))
    }
}

fn push(values: &mut Values, value: f64) {
    if values.len() == LENGTH {
        values.pop_front();
    }
    values.push_back(value);
}

fn line(values: &Values, least: f64, most: f64) -> String {
    let span = (most - least).max(f64::MIN_POSITIVE);
    let bar = |value: &f64| {
        if value.is_nan() {
            return ' ';
        }
        let step = ((value - least) / span * 7.0).round().clamp(0.0, 7.0);
        BARS[step as usize]
    };
    values.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_bounded_and_scaled() {
        let mut values = Values::new();
        (0..40).for_each(|value| push(&mut values, f64::from(value)));
        assert_eq!((values.len(), values[0]), (LENGTH, 24.0));
        let few: Values = [0.0, 0.5, 1.0, f64::NAN, 7.0].into();
        assert_eq!(line(&few, 0.0, 1.0), "▁▅█ █");
        assert_eq!(line(&[3.0, 3.0].into(), 3.0, 3.0), "▁▁", "nothing changed");
    }
}
