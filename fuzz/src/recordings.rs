//! The target `recording`: damaged files, with the damage hidden from the checksums so that it reaches the decoder.

use crate::source::Source;
use crate::work::simulate;
use schedlab_model::event::{Context, EventKind, Operation, PrevState};
use schedlab_model::machine::MachineDescription;
use schedlab_model::recording::codec::{decode, decode_prefix, encode};
use schedlab_model::recording::{ChannelInfo, ChannelKind, Provenance, Recording, TaskInfo};
use schedlab_model::topology::Topology;
use schedlab_model::{ChannelId, CpuId, Event, Nanos, TaskAttributes, TaskId};
use schedlab_report::triage::Triage;
use schedlab_sim::replay::{ReplayOptions, workload_from};

/// Magic and version.
const PREFIX: usize = 12;
const BLOCK_HEADER: usize = 13;
/// Larger recordings are read, but not replayed: a round should have many.
pub(crate) const REPLAYED_MAX: usize = 20_000;

/// Makes the checksums of whole blocks right.
fn repair(bytes: &mut [u8]) {
    let mut at = PREFIX;
    while at + BLOCK_HEADER <= bytes.len() {
        let length = u32::from_le_bytes([bytes[at + 1], bytes[at + 2], bytes[at + 3], bytes[at + 4]]);
        let begin = at + BLOCK_HEADER;
        let end = begin.saturating_add(length as usize).min(bytes.len());
        let payload = crc32c::crc32c(&bytes[begin..end]);
        bytes[at + 5..at + 9].copy_from_slice(&payload.to_le_bytes());
        let header = crc32c::crc32c(&bytes[at..at + 9]);
        bytes[at + 9..at + 13].copy_from_slice(&header.to_le_bytes());
        at = end;
    }
}

/// A made recording whose tables and events are changed at the places that the input names: `which place place value`.
fn edited(input: &[u8]) -> Vec<u8> {
    let which = input.first().copied().unwrap_or(0);
    let mut bytes = encode(&made(u64::from(which % 8))).expect("a made recording can be written");
    let mut places = Vec::new();
    let mut at = PREFIX;
    while at + BLOCK_HEADER <= bytes.len() {
        let length = u32::from_le_bytes([bytes[at + 1], bytes[at + 2], bytes[at + 3], bytes[at + 4]]);
        let end = at + BLOCK_HEADER + length as usize;
        // Head and end are JSON, which has its own parser.
        if !matches!(bytes[at], 1 | 5) {
            places.extend(at + BLOCK_HEADER..end);
        }
        at = end;
    }
    for change in input.get(1..).unwrap_or_default().chunks_exact(3) {
        let place = usize::from(change[0]) << 8 | usize::from(change[1]);
        bytes[places[place % places.len()]] = change[2];
    }
    bytes
}

/// The target. The first byte says what the rest is: 0 a file whose checksums are made right, 1 a file as it stands,
/// 2 changes to a made recording.
///
/// # Panics
/// If something is read that is not written again to the same, or anything panics. With `planted`, writing cuts
/// amounts to a hundred bytes.
pub fn fuzz(input: &[u8], planted: bool) {
    let Some((kind, rest)) = input.split_first() else { return };
    let mut bytes = if kind % 3 == 2 { edited(rest) } else { rest.to_vec() };
    if kind % 3 != 1 {
        repair(&mut bytes);
    }
    let Ok((recording, damage)) = decode_prefix(&bytes) else { return };
    let mut written = recording.clone();
    if planted {
        for event in &mut written.events {
            if let EventKind::OperationEnter { amount, .. } = &mut event.kind {
                *amount = (*amount).min(100);
            }
        }
    }
    let again = encode(&written).expect("what was read can be written");
    let again = decode(&again).expect("what was written can be read");
    if damage.is_none() {
        // A cut recording's own mark may be written twice over; the rest is compared.
        assert!(again.events == recording.events, "events differ after writing and reading");
        assert!(again.tasks == recording.tasks, "tasks differ after writing and reading");
        assert!(again.channels == recording.channels, "channels differ after writing and reading");
    }
    if recording.events.len() <= REPLAYED_MAX && recording.tasks.len() <= 200 {
        replay(&recording);
    }
}

/// Triage and replay of whatever the recording says.
pub(crate) fn replay(recording: &Recording) {
    let triage = Triage::of(recording);
    assert!(!triage.sentence().is_empty(), "there is always something to say");
    let options = ReplayOptions { allow_drops: true, ..ReplayOptions::default() };
    if let Ok(replay) = workload_from(recording, &options) {
        simulate(replay.workload, &recording.machine);
    }
}

/// Small recordings: of simulated runs' shape, with every kind of event.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let bytes = (0..6).map(|seed| encode(&made(seed)).expect("a made recording can be written"));
    let files = bytes.map(|bytes| [vec![0], bytes].concat());
    let edits = (0..6).map(|which| vec![2, which, 0, which * 40, 3, 1, which * 30, 200]);
    files.chain(edits).collect()
}

/// Two tasks on two CPUs that talk through a pipe.
fn made(seed: u64) -> Recording {
    let mut source = Source::seeded(seed);
    let task = |pid: i32, name: &str| TaskInfo {
        pid,
        tgid: pid,
        name: name.to_owned(),
        parent: TaskId::IDLE,
        attributes: TaskAttributes::default(),
        target: pid > 0,
        existed: true,
        start_cpu: CpuId(0),
        start_runnable: false,
    };
    let channel = ChannelInfo { kind: ChannelKind::Pipe, identity: 7, peer: None, capacity: 65_536 };
    let mut recording = Recording {
        provenance: Provenance::default(),
        machine: MachineDescription::generic("two", Topology::uniform(1, 1, 2, 1).expect("a topology")),
        tasks: vec![task(0, "idle"), task(10, "writer"), task(11, "reader")],
        channels: vec![channel],
        cpu_sets: Vec::new(),
        events: Vec::new(),
        duration: Nanos::from_millis(50),
    };
    let mut now = Nanos::ZERO;
    for _ in 0..8 {
        let mut event = |cpu: u32, kind: EventKind| {
            now += Nanos::from_micros(source.range(1, 300));
            recording.events.push(Event { time: now, cpu: CpuId(cpu), kind });
        };
        let (writer, reader, idle, channel) = (TaskId(1), TaskId(2), TaskId::IDLE, ChannelId(0));
        let (sleeps, operation) = (PrevState::Interruptible, Operation::PipeRead);
        event(0, EventKind::Switch { prev: idle, prev_state: PrevState::Runnable, next: writer });
        event(1, EventKind::Switch { prev: idle, prev_state: PrevState::Runnable, next: reader });
        event(1, EventKind::OperationEnter { task: reader, operation, channel, amount: 100 });
        event(1, EventKind::Switch { prev: reader, prev_state: sleeps, next: idle });
        let operation = Operation::PipeWrite;
        event(0, EventKind::OperationEnter { task: writer, operation, channel, amount: 100 });
        let context = Context::Task;
        event(0, EventKind::Waking { waker: writer, context, wakee: reader, wakee_cpu: CpuId(1) });
        event(0, EventKind::OperationExit { task: writer, operation, channel, result: 100 });
        event(1, EventKind::Switch { prev: idle, prev_state: PrevState::Runnable, next: reader });
        let operation = Operation::PipeRead;
        event(1, EventKind::OperationExit { task: reader, operation, channel, result: 100 });
        event(1, EventKind::Switch { prev: reader, prev_state: sleeps, next: idle });
        event(0, EventKind::Switch { prev: writer, prev_state: sleeps, next: idle });
        event(
            0,
            EventKind::Waking { waker: idle, context: Context::HardIrq, wakee: writer, wakee_cpu: CpuId(0) },
        );
        event(0, EventKind::TimerExpire { task: writer, due: Nanos(5) });
        event(
            1,
            EventKind::Waking { waker: idle, context: Context::HardIrq, wakee: reader, wakee_cpu: CpuId(1) },
        );
    }
    recording
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_seed_is_read_whole() {
        for (index, seed) in seeds().iter().enumerate() {
            let bytes = if seed[0] == 2 { edited(&[seed[1]]) } else { seed[1..].to_vec() };
            assert_eq!(decode(&bytes).err(), None, "seed {index}");
        }
    }
}
