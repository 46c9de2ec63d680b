//! How long a busy CPU stands still before another CPU's interrupt begins there.
//!
//! A task that reads the clock again and again knows when it did nothing; the recording knows when interrupts began.
//! On hardware the two are some tens of ns apart; a virtual CPU may be stopped by its host to be handed an interrupt.

use schedlab_model::event::{EventKind, IrqSource};
use schedlab_model::recording::Recording;
use schedlab_model::{CpuId, Nanos};

/// A longer standstill is something else's: a host that ran somebody else.
const STALL_MAX: Nanos = Nanos::from_micros(500);

/// What a task that reads the clock in a loop saw.
#[derive(Clone, Debug)]
pub(super) struct Watched {
    /// The task's number in the kernel.
    pub(super) pid: i32,
    /// Its CPU.
    pub(super) cpu: CpuId,
    /// Readings with more time between them than the loop takes: the one before and the one after, `CLOCK_MONOTONIC`.
    pub(super) gaps: Vec<(u64, u64)>,
}

/// ns from the last sign of life to the interrupt, for each interrupt by another CPU that hit the task.
pub(super) fn before_interrupts(recording: &Recording, started: Nanos, watched: &Watched) -> Vec<u64> {
    let mut samples = Vec::new();
    let (mut current, mut before) = (None, Nanos::ZERO);
    for event in recording.events.iter().filter(|event| event.cpu == watched.cpu) {
        let time = event.time + started;
        match event.kind {
            EventKind::Switch { next, .. } => current = Some(recording.task(next).pid),
            EventKind::IrqEnter { source: IrqSource::Ipi } if current == Some(watched.pid) => {
                let after = watched.gaps.partition_point(|(from, _)| *from <= time.0);
                let gap = after.checked_sub(1).map(|index| watched.gaps[index]);
                // Whatever else happened on the CPU since the reading would count as standstill too.
                let alone = |(from, to): &(u64, u64)| *to >= time.0 && *from > before.0;
                let stalled = gap.filter(alone).map(|(from, _)| time.0 - from);
                samples.extend(stalled.filter(|stalled| *stalled <= STALL_MAX.0));
            }
            _ => {}
        }
        before = time;
    }
    samples
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::TaskId;
    use schedlab_model::event::{Event, PrevState};
    use schedlab_model::machine::MachineDescription;
    use schedlab_model::recording::TaskInfo;
    use schedlab_model::topology::Topology;

    fn task(pid: i32) -> TaskInfo {
        TaskInfo {
            pid,
            tgid: pid,
            name: String::new(),
            parent: TaskId::IDLE,
            attributes: Default::default(),
            target: true,
            existed: true,
            start_cpu: CpuId(0),
            start_runnable: false,
        }
    }

    /// The task is on its CPU from 1,000 on; interrupts of CPUs and timers at these times.
    fn samples(interrupts: &[(u64, IrqSource)], gaps: &[(u64, u64)]) -> Vec<u64> {
        let cpu = CpuId(1);
        let (prev, prev_state, next) = (TaskId::IDLE, PrevState::Runnable, TaskId(1));
        let mut events =
            vec![Event { time: Nanos(1_000), cpu, kind: EventKind::Switch { prev, prev_state, next } }];
        for &(at, source) in interrupts {
            events.push(Event { time: Nanos(at), cpu, kind: EventKind::IrqEnter { source } });
            events.push(Event { time: Nanos(at + 300), cpu, kind: EventKind::IrqExit { source } });
        }
        let recording = Recording {
            provenance: Default::default(),
            machine: MachineDescription::generic("two", Topology::flat(2).expect("two CPUs")),
            tasks: vec![task(0), task(77)],
            channels: Vec::new(),
            cpu_sets: Vec::new(),
            events,
            duration: Nanos(1_000_000),
        };
        let gaps = gaps.iter().map(|(from, to)| (from + 5_000, to + 5_000)).collect();
        before_interrupts(&recording, Nanos(5_000), &Watched { pid: 77, cpu, gaps })
    }

    #[test]
    fn the_standstill_ends_where_the_interrupt_begins() {
        let (ipi, timer) = (IrqSource::Ipi, IrqSource::Timer);
        assert_eq!(samples(&[(50_000, ipi)], &[(29_000, 52_000)]), [21_000]);
        assert_eq!(samples(&[(50_000, timer)], &[(29_000, 52_000)]), [0; 0], "no other CPU's");
        assert_eq!(samples(&[(50_000, ipi)], &[(29_000, 40_000)]), [0; 0], "the task went on before");
        assert_eq!(samples(&[(30_000, timer), (50_000, ipi)], &[(29_000, 52_000)]), [0; 0], "a tick between");
        assert_eq!(samples(&[(900_000, ipi)], &[(29_000, 902_000)]), [0; 0], "too long");
        assert_eq!(samples(&[(500, ipi)], &[(400, 900)]), [0; 0], "somebody else ran");
    }
}
