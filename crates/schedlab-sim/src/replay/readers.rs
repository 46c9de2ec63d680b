//! What a wait costs under the recorded load, by its readers: a burst in which one message is read costs a wait and
//! a message, one in which several are read costs a wait and several messages.
//!
//! A machine's calibration has a warm writer and reader. Tasks of forty processes are colder. The difference
//! matters where a replay's readers wait for single messages that the recorded ones found in a row.
//! Not here: costs that single events show ([`super::calibrate`]).

use super::calibrate::SAMPLES_MIN;
use schedlab_model::event::{EventKind, Operation, PrevState};
use schedlab_model::recording::Recording;
use schedlab_model::{ChannelId, CpuId, Nanos, TaskId};
use std::collections::BTreeMap;

/// More than this at each wait is work that the readers do once for all that they find, not the wait.
const WAIT_MAX: Nanos = Nanos::from_micros(10);

/// The burst of the task on a CPU.
#[derive(Clone, Copy, Debug, Default)]
struct Burst {
    task: TaskId,
    since: Nanos,
    /// It began after a sleep, and nothing but reads happened in it.
    plain: bool,
    channel: Option<ChannelId>,
    bytes: u64,
}

#[derive(Default)]
struct Reader {
    bursts: Vec<Burst>,
    /// How tasks left their CPU.
    slept: BTreeMap<TaskId, bool>,
    /// Channel, bytes and ns of bursts in which something was read.
    read: Vec<(ChannelId, u64, u64)>,
    /// Sizes of what was written, by channel.
    sizes: BTreeMap<ChannelId, Vec<u64>>,
}

/// Bursts in which messages of one size were read.
#[derive(Default)]
struct Bursts {
    /// ns of those with one message.
    single: Vec<u64>,
    /// Messages and ns of the others.
    several: Vec<(u64, u64)>,
}

/// What a reader's waits cost, in ns, one sample for each in which a single message was read; `None` if the recordings do
/// not show it.
pub fn waits_shown<'a>(recordings: impl IntoIterator<Item = &'a Recording>) -> Option<Vec<u64>> {
    let mut reader = Reader::default();
    for recording in recordings {
        (reader.bursts, reader.slept) = Default::default();
        for event in &recording.events {
            reader.event(event.time, event.cpu, &event.kind);
        }
    }
    let usual = |(channel, mut sizes): (ChannelId, Vec<u64>)| (channel, median(&mut sizes));
    let usual: BTreeMap<ChannelId, u64> = reader.sizes.into_iter().map(usual).collect();
    let mut by_size: BTreeMap<u64, Bursts> = BTreeMap::new();
    for (channel, bytes, ns) in reader.read {
        let Some(&size) = usual.get(&channel).filter(|size| bytes % **size == 0) else { continue };
        let bursts = by_size.entry(size).or_default();
        match bytes / size {
            1 => bursts.single.push(ns),
            count => bursts.several.push((count, ns)),
        }
    }
    let (_, waits) = by_size.into_values().filter_map(waits).max_by_key(|(samples, _)| *samples)?;
    (waits[waits.len() / 2] <= WAIT_MAX.0).then_some(waits)
}

/// Bursts of one message less what another message costs, by those of several, sorted; after the number of samples.
fn waits(mut bursts: Bursts) -> Option<(usize, Vec<u64>)> {
    let (singles, several) = (bursts.single.len(), bursts.several.len());
    if singles < SAMPLES_MIN || several < SAMPLES_MIN {
        return None;
    }
    let single = median(&mut bursts.single);
    let further = |(count, ns): &(u64, u64)| ns.saturating_sub(single) / (count - 1);
    let mut each: Vec<u64> = bursts.several.iter().map(further).collect();
    let each = median(&mut each);
    Some((singles + several, bursts.single.iter().map(|burst| burst.saturating_sub(each)).collect()))
}

/// The middle one of at least one.
pub(super) fn median(samples: &mut [u64]) -> u64 {
    samples.sort_unstable();
    samples[samples.len() / 2]
}

impl Reader {
    fn burst(&mut self, cpu: CpuId) -> &mut Burst {
        if self.bursts.len() <= cpu.index() {
            self.bursts.resize(cpu.index() + 1, Burst::default());
        }
        &mut self.bursts[cpu.index()]
    }

    fn event(&mut self, time: Nanos, cpu: CpuId, kind: &EventKind) {
        match *kind {
            EventKind::Switch { prev, prev_state, next } => self.switch(time, cpu, prev, prev_state, next),
            EventKind::IrqEnter { .. } | EventKind::SoftirqEnter { .. } | EventKind::Waking { .. } => {
                self.burst(cpu).plain = false;
            }
            EventKind::OperationExit { task, operation, channel, result } if result > 0 => {
                let burst = self.burst(cpu);
                match operation {
                    Operation::PipeRead | Operation::SocketReceive
                        if burst.task == task && burst.channel.is_none_or(|before| before == channel) =>
                    {
                        burst.channel = Some(channel);
                        burst.bytes = burst.bytes.saturating_add(result as u64);
                    }
                    Operation::PipeWrite | Operation::SocketSend => {
                        burst.plain = false;
                        self.sizes.entry(channel).or_default().push(result as u64);
                    }
                    _ => burst.plain = false,
                }
            }
            _ => {}
        }
    }

    fn switch(&mut self, time: Nanos, cpu: CpuId, prev: TaskId, state: PrevState, next: TaskId) {
        let sleeps = !matches!(state, PrevState::Runnable | PrevState::Dead);
        let slept = self.slept.get(&next).copied().unwrap_or(false);
        let begun = Burst { task: next, since: time, plain: slept, channel: None, bytes: 0 };
        let burst = std::mem::replace(self.burst(cpu), begun);
        self.slept.insert(prev, sleeps);
        if let Some(channel) = burst.channel
            && burst.plain
            && burst.task == prev
            && sleeps
        {
            self.read.push((channel, burst.bytes, (time - burst.since).0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::event::Event;
    use schedlab_model::machine::MachineDescription;
    use schedlab_model::topology::Topology;

    /// Bursts of a reader that pays `wait` at each wait and 2 us for each message of 100 bytes: once 1, once 5.
    fn recording(wait: u64, rounds: u64) -> Recording {
        let (writer, reader, channel) = (TaskId(1), TaskId(2), ChannelId(0));
        let mut events = Vec::new();
        let mut push = |at, kind| events.push(Event { time: Nanos(at), cpu: CpuId(0), kind });
        for round in 1..=rounds {
            let (at, count) = (round * 1_000_000, if round % 2 == 0 { 5 } else { 1 });
            for send in 0..count {
                let operation = Operation::SocketSend;
                push(at + send, EventKind::OperationExit { task: writer, operation, channel, result: 100 });
            }
            let (runnable, asleep) = (PrevState::Runnable, PrevState::Interruptible);
            push(at + 100, EventKind::Switch { prev: writer, prev_state: runnable, next: reader });
            let end = at + 100 + wait + count * 2_000;
            let (operation, result) = (Operation::SocketReceive, count as i64 * 100);
            push(end, EventKind::OperationExit { task: reader, operation, channel, result });
            push(end, EventKind::Switch { prev: reader, prev_state: asleep, next: writer });
        }
        Recording {
            provenance: Default::default(),
            machine: MachineDescription::generic("one", Topology::flat(1).expect("one CPU")),
            tasks: Vec::new(),
            channels: Vec::new(),
            cpu_sets: Vec::new(),
            events,
            duration: Nanos((rounds + 1) * 1_000_000),
        }
    }

    #[test]
    fn what_a_wait_costs_is_what_does_not_grow_with_the_messages() {
        let shown = |wait, rounds| waits_shown([&recording(wait, rounds)]);
        // Of the first nobody knows whether it slept before.
        assert_eq!(shown(3_000, 100), Some(vec![3_000; 49]));
        assert_eq!(shown(3_000, 20), None, "too few");
        assert_eq!(shown(300_000, 100), None, "that is work");
    }

    #[test]
    fn it_counts_if_it_is_more_than_was_measured() {
        let mut shown = recording(3_000, 100);
        let value = |recording: &Recording| super::super::calibrated(recording).costs.context_switch.value;
        assert_eq!(value(&shown), Nanos(3_000));
        shown.machine.costs.context_switch.value = Nanos(4_000);
        assert_eq!(value(&shown), Nanos(4_000));
    }
}
