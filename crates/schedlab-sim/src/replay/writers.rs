//! What a switch back to a preempted task costs under the recorded load, by its writers: one that its wakee preempted
//! finishes that write when it is back, and begins the next; what this takes longer than a write that woke nobody is
//! the switch.
//!
//! What readers show ([`super::readers`]) has the way into a sleep in it, too. A preempted writer does not go that way.

use super::calibrate::SAMPLES_MIN;
use super::readers::median;
use schedlab_model::event::{EventKind, Operation, PrevState};
use schedlab_model::recording::Recording;
use schedlab_model::{CpuId, Nanos, TaskId};
use std::collections::BTreeMap;

/// The task of a CPU, while nothing else happened there.
#[derive(Clone, Copy, Debug, Default)]
struct Undisturbed {
    task: TaskId,
    /// It is back since then, after its wakee preempted it in a write.
    back: Option<Nanos>,
    /// Its last write ended then.
    wrote: Option<Nanos>,
    /// It is in a write.
    writes: bool,
}

/// What one task showed, in ns.
#[derive(Default)]
struct Shown {
    /// From one write's end to the next's.
    writes: Vec<u64>,
    /// From the switch back to the next wake-up.
    backs: Vec<u64>,
}

/// What switching back to a preempted task costs, in ns, the median; `None` if the recording does not show it.
pub(super) fn switch_back(recording: &Recording) -> Option<Nanos> {
    let mut cpus: BTreeMap<CpuId, Undisturbed> = BTreeMap::new();
    // Who woke another in a write that has not ended, and whether it was preempted then.
    let mut in_write: BTreeMap<TaskId, bool> = BTreeMap::new();
    let mut tasks: BTreeMap<TaskId, Shown> = BTreeMap::new();
    for event in &recording.events {
        let (time, cpu) = (event.time, cpus.entry(event.cpu).or_default());
        match event.kind {
            EventKind::Switch { prev, prev_state, next } => {
                if let Some(preempted) = in_write.get_mut(&prev) {
                    *preempted = prev_state == PrevState::Runnable;
                }
                let back = in_write.remove(&next).is_some_and(|preempted| preempted);
                *cpu = Undisturbed { task: next, back: back.then_some(time), ..Undisturbed::default() };
            }
            EventKind::Waking { waker, .. } if waker == cpu.task && cpu.writes => {
                if let Some(back) = cpu.back.take() {
                    tasks.entry(waker).or_default().backs.push((time - back).0);
                }
                in_write.insert(waker, false);
                cpu.wrote = None;
            }
            EventKind::OperationExit { task, operation, .. } if task == cpu.task && gives(operation) => {
                in_write.remove(&task);
                cpu.writes = false;
                if let Some(before) = cpu.wrote.replace(time) {
                    cpu.back = None;
                    tasks.entry(task).or_default().writes.push((time - before).0);
                }
            }
            // Told at a wake-up, which follows.
            EventKind::OperationEnter { operation, .. } if gives(operation) => cpu.writes = true,
            _ => (cpu.back, cpu.wrote) = (None, None),
        }
    }
    let mut samples = Vec::new();
    for Shown { mut writes, backs } in tasks.into_values() {
        if writes.len() >= SAMPLES_MIN && backs.len() >= SAMPLES_MIN {
            let write = median(&mut writes);
            samples.extend(backs.iter().map(|back| back.saturating_sub(write)));
        }
    }
    (!samples.is_empty()).then(|| Nanos(median(&mut samples)))
}

fn gives(operation: Operation) -> bool {
    matches!(operation, Operation::PipeWrite | Operation::SocketSend)
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::ChannelId;
    use schedlab_model::event::{Context, Event};
    use schedlab_model::machine::MachineDescription;
    use schedlab_model::topology::Topology;

    /// A writer that writes every 3 us: five times without waking anybody, then once its reader, which preempts it at
    /// once; `back` ns are lost when it is back.
    fn recording(back: u64, rounds: u64) -> Recording {
        let (writer, reader, channel, operation) = (TaskId(1), TaskId(2), ChannelId(0), Operation::PipeWrite);
        let (mut events, mut at) = (Vec::new(), 0);
        let mut push = |at, kind| events.push(Event { time: Nanos(at), cpu: CpuId(0), kind });
        for _ in 0..rounds {
            for write in 0..6 {
                at += 3_000;
                let woken = write == 5;
                if woken {
                    let (context, wakee_cpu) = (Context::Task, CpuId(0));
                    push(
                        at - 1_000,
                        EventKind::OperationEnter { task: writer, operation, channel, amount: 1 },
                    );
                    push(at - 1_000, EventKind::Waking { waker: writer, context, wakee: reader, wakee_cpu });
                    let (prev_state, asleep) = (PrevState::Runnable, PrevState::Interruptible);
                    push(at + 4_000, EventKind::Switch { prev: writer, prev_state, next: reader });
                    push(at + 9_000, EventKind::Switch { prev: reader, prev_state: asleep, next: writer });
                    at += 9_000 + back + 1_000;
                }
                // The first write after it was preempted wakes, too.
                push(at, EventKind::OperationExit { task: writer, operation, channel, result: 1 });
                if woken {
                    let (context, wakee_cpu) = (Context::Task, CpuId(0));
                    push(
                        at + 2_000,
                        EventKind::OperationEnter { task: writer, operation, channel, amount: 1 },
                    );
                    push(at + 2_000, EventKind::Waking { waker: writer, context, wakee: reader, wakee_cpu });
                    at += 3_000;
                    push(at, EventKind::OperationExit { task: writer, operation, channel, result: 1 });
                }
            }
        }
        Recording {
            provenance: Default::default(),
            machine: MachineDescription::generic("one", Topology::flat(1).expect("one CPU")),
            tasks: Vec::new(),
            channels: Vec::new(),
            cpu_sets: Vec::new(),
            events,
            duration: Nanos(at),
        }
    }

    #[test]
    fn a_preempted_writer_shows_what_the_switch_back_costs() {
        assert_eq!(switch_back(&recording(1_700, 40)), Some(Nanos(1_700)));
        assert_eq!(switch_back(&recording(1_700, 10)), None, "too few");
    }
}
