//! The recorder as a task: it is at work beside every live run, so it is beside the simulated ones, too.
//!
//! It looks at its buffers often and reads them rarely, as long as there is little to read. A recording has it; this is
//! for workload files.

use crate::measure::read_recording;
use anyhow::Result;
use schedlab_model::Nanos;
use schedlab_model::recording::{Recording, TaskInfo};
use schedlab_model::timeline::{StretchKind, Timelines};
use std::cmp::Reverse;
use std::path::PathBuf;

/// It sleeps so long between looks (schedlab-host, `RecordOptions::poll`), and reads so often (`FLUSH_EVERY`). Where it waits
/// for the CPU there are fewer looks between two readings.
const LOOKS_EVERY: Nanos = Nanos::from_millis(20);
const READS_EVERY: Nanos = Nanos::from_millis(500);

/// How long looks and readings took, how many there were, and in what time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecorderAtWork {
    looks: (Nanos, u64),
    readings: (Nanos, u64),
    duration: Nanos,
}

impl RecorderAtWork {
    /// What recordings of equal runs have together. It depends on the machine and on the events that were told, not on what
    /// is judged.
    pub fn beside(recordings: &[PathBuf]) -> Result<RecorderAtWork> {
        let mut all = RecorderAtWork::default();
        for file in recordings {
            all = all.and(RecorderAtWork::in_recording(&read_recording(file)?));
        }
        Ok(all)
    }

    /// What a recording has of its recorder: its longest runs are readings.
    fn in_recording(recording: &Recording) -> RecorderAtWork {
        let timelines = Timelines::of(recording);
        let of_recorder = recording.tasks.iter().zip(&timelines.tasks).filter(|(task, _)| is_recorder(task));
        let runs = of_recorder.flat_map(|(_, stretches)| stretches);
        let runs = runs.filter(|stretch| matches!(stretch.kind, StretchKind::Running { .. }));
        RecorderAtWork::of(runs.map(|stretch| stretch.length()).collect(), recording.duration)
    }

    fn of(mut runs: Vec<Nanos>, duration: Nanos) -> RecorderAtWork {
        let readings = (duration.0 / READS_EVERY.0).min(runs.len() as u64);
        runs.sort_unstable_by_key(|run| Reverse(*run));
        let (long, short) = runs.split_at(readings as usize);
        let sum = |runs: &[Nanos]| (Nanos(runs.iter().map(|run| run.0).sum()), runs.len() as u64);
        RecorderAtWork { looks: sum(short), readings: sum(long), duration }
    }

    /// Both together.
    fn and(self, other: RecorderAtWork) -> RecorderAtWork {
        let sum = |one: (Nanos, u64), two: (Nanos, u64)| (one.0 + two.0, one.1 + two.1);
        RecorderAtWork {
            looks: sum(self.looks, other.looks),
            readings: sum(self.readings, other.readings),
            duration: self.duration + other.duration,
        }
    }

    /// What it does, as steps of a workload file: so many looks, then one that reads.
    pub fn steps(&self) -> String {
        let runs = (self.looks.1 + self.readings.1) * READS_EVERY.0 / self.duration.0.max(1);
        // A loop of none would never end.
        let looks = runs.saturating_sub(1).max(1);
        let step = |(time, count): (Nanos, u64)| {
            let (every, mean) = (LOOKS_EVERY.0, (time.0 / count.max(1)).max(1));
            format!("{{ sleep = \"{every}ns\" }}, {{ run = \"{mean}ns\" }}")
        };
        let (look, reading) = (step(self.looks), step(self.readings));
        format!(
            "[{{ loop = {{ steps = [{{ loop = {{ count = {looks}, steps = [{look}] }} }}, {reading}] }} }}]"
        )
    }
}

/// The recorder is the only thread of the program that is so urgent.
fn is_recorder(task: &TaskInfo) -> bool {
    !task.target && task.name == "schedlab" && task.attributes.nice.get() == -20
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::workload::file;

    #[test]
    fn its_longest_runs_are_readings() {
        let us = Nanos::from_micros;
        let runs: Vec<Nanos> = (0..50).map(|at| us(if at % 25 == 7 { 900 } else { 10 })).collect();
        let one = RecorderAtWork::of(runs, Nanos::from_secs(1));
        let duration = Nanos::from_secs(1);
        assert_eq!(one, RecorderAtWork { looks: (us(480), 48), readings: (us(1_800), 2), duration });
        let both = one.and(RecorderAtWork::of(vec![us(10); 20], Nanos::from_millis(480)));
        let duration = Nanos::from_millis(1_480);
        assert_eq!(both, RecorderAtWork { looks: (us(680), 68), readings: (us(1_800), 2), duration });
        // 70 runs in 1.48 s are 23.6 in half a second, of which the last reads.
        assert!(both.steps().contains("count = 22"), "{}", both.steps());
        let text = format!("name = \"w\"\n[[task]]\nname = \"recorder\"\nsteps = {}\n", both.steps());
        assert!(text.contains("\"10000ns\"") && text.contains("\"900000ns\""), "{text}");
        file::parse(&text).expect("a workload's steps");
    }
}
