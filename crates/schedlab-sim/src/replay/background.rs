//! Background tasks that the end of the recording cut off: hogs beside the target.
//!
//! What such a task did after the recording is not known, but that it wanted the CPU is. A replay in which the target takes
//! longer than recorded would otherwise have the machine for itself as soon as the recorded bursts are used up.

use schedlab_model::recording::Recording;
use schedlab_model::timeline::{Stretch, StretchKind, Timelines};
use schedlab_model::{Nanos, TaskId};

/// Background tasks that could run to the end of the target's work and had not slept in the second half of the
/// recording, by task id.
pub(super) fn goes_on(recording: &Recording) -> Vec<bool> {
    let timelines = Timelines::of(recording);
    let runs = |stretch: &&Stretch| matches!(stretch.kind, StretchKind::Running { .. });
    let of_targets = timelines.tasks.iter().zip(&recording.tasks).filter(|(_, task)| task.target);
    let last_runs = of_targets.filter_map(|(stretches, _)| stretches.iter().rev().find(runs));
    let end = last_runs.map(|stretch| stretch.end).max().unwrap_or(recording.duration);
    let tasks = timelines.tasks.iter().zip(&recording.tasks).enumerate();
    let wants = |(id, (stretches, task)): (usize, (&Vec<Stretch>, &_))| {
        let task: &schedlab_model::recording::TaskInfo = task;
        TaskId(id as u32) != TaskId::IDLE && !task.target && wants_cpu(stretches, end)
    };
    tasks.map(wants).collect()
}

/// Whether a task could run until then and had for as long as all before.
fn wants_cpu(stretches: &[Stretch], end: Nanos) -> bool {
    let asleep = |stretch: &&Stretch| matches!(stretch.kind, StretchKind::Asleep { .. });
    let Some(last) = stretches.last() else { return false };
    let awake_since = stretches.iter().rev().find(asleep).map_or(Nanos::ZERO, |stretch| stretch.end);
    let ran = stretches.iter().any(|stretch| matches!(stretch.kind, StretchKind::Running { .. }));
    ran && last.end >= end && awake_since.0 <= end.0 / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::CpuId;
    use schedlab_model::event::PrevState;

    fn stretches(parts: &[(bool, u64)]) -> Vec<Stretch> {
        let mut start = Nanos::ZERO;
        let mut all = Vec::new();
        for (runs, end) in parts {
            let kind = if *runs {
                StretchKind::Running { cpu: CpuId(0), interrupt: Nanos::ZERO }
            } else {
                StretchKind::Asleep { state: PrevState::Interruptible, operation: None, wake: None }
            };
            all.push(Stretch { start, end: Nanos(*end), kind });
            start = Nanos(*end);
        }
        all
    }

    #[test]
    fn who_slept_or_ended_before_does_not_go_on() {
        let wants = |parts: &[(bool, u64)]| wants_cpu(&stretches(parts), Nanos(1_000));
        assert!(wants(&[(false, 100), (true, 1_020)]), "ended with the recording");
        assert!(wants(&[(false, 500), (true, 1_000)]));
        assert!(!wants(&[(true, 500), (false, 501), (true, 1_000)]), "sleeps now and then");
        assert!(!wants(&[(true, 900)]), "ended before the target");
        assert!(!wants(&[(true, 300), (false, 1_000)]) && !wants(&[]));
    }
}
