//! Runs: many sends told as one, because each followed its task's pattern.
//!
//! A pattern is a table of sends (channel, bytes), each with the one that came next last time. A run names
//! where in the pattern it begins and how many sends followed it, between two moments at which the recorder
//! looked. A reader gets them as plain exits, spread evenly over that time: nobody above this module sees runs.
//!
//! Sums of reads are told when their task is next looked at, which may be before the sends they took from. So
//! they are settled here too, when every send has its place: nobody takes what was not given yet; what is left
//! over moves to the task's next read of that channel.

use super::wire::{Input, WireError, put_signed, put_varint};
use super::{ChannelKind, Recording};
use crate::cpu_set::CPUS_MAX;
use crate::event::{Event, EventKind, Operation, RESULT_UNKNOWN};
use crate::ids::{ChannelId, CpuId, TaskId};
use crate::time::Nanos;
use std::collections::BTreeMap;

const ENTRY: u8 = 0;
const RUN: u8 = 1;
/// The most sends of one run: stops damaged bytes from asking for the whole memory.
pub const RUN_MAX: u64 = 1 << 20;

/// One send of a task's pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PatternEntry {
    /// To where.
    pub channel: ChannelId,
    /// How much.
    pub bytes: u32,
    /// Position in the pattern of the send that follows; 255 if none is known.
    pub next: u8,
}

/// Sends of one task that followed its pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Who sent.
    pub task: TaskId,
    /// On which CPU.
    pub cpu: CpuId,
    /// After this moment.
    pub since: Nanos,
    /// Up to this one.
    pub until: Nanos,
    /// Position in the pattern of the first.
    pub first: u8,
    /// How many, at most [`RUN_MAX`].
    pub count: u32,
}

/// Patterns and runs as bytes, and the time that the next run counts from.
#[derive(Default)]
pub(super) struct RunCoder {
    last: u64,
}

impl RunCoder {
    pub(super) fn put_entry(&mut self, out: &mut Vec<u8>, task: TaskId, index: u8, entry: &PatternEntry) {
        out.push(ENTRY);
        put_varint(out, u64::from(task.0));
        out.push(index);
        put_varint(out, u64::from(entry.channel.0));
        put_varint(out, u64::from(entry.bytes));
        out.push(entry.next);
    }

    /// Mostly in the order in which they end; those that were understood late come later.
    pub(super) fn put_run(&mut self, out: &mut Vec<u8>, run: &Run) {
        out.push(RUN);
        put_varint(out, u64::from(run.task.0));
        put_varint(out, u64::from(run.cpu.0));
        put_signed(out, run.until.0.wrapping_sub(self.last) as i64);
        put_varint(out, run.until.0.saturating_sub(run.since.0));
        out.push(run.first);
        put_varint(out, u64::from(run.count));
        self.last = run.until.0;
    }
}

/// What was read of patterns and runs: their sends as exits, for each CPU in time order.
#[derive(Default)]
pub(super) struct RunReader {
    last: u64,
    patterns: BTreeMap<TaskId, Vec<Option<PatternEntry>>>,
    streams: BTreeMap<CpuId, Vec<Event>>,
    count: u64,
}

impl RunReader {
    /// Sends so far.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Reads one block.
    pub(super) fn read(&mut self, payload: &[u8]) -> Result<(), WireError> {
        let mut input = Input::new(payload);
        while !input.is_empty() {
            match input.byte()? {
                ENTRY => self.read_entry(&mut input)?,
                RUN => self.read_run(&mut input)?,
                _ => return Err("an unknown kind of run"),
            }
        }
        Ok(())
    }

    fn read_entry(&mut self, input: &mut Input<'_>) -> Result<(), WireError> {
        let (task, index) = (TaskId(input.varint_u32()?), usize::from(input.byte()?));
        let entry = PatternEntry {
            channel: ChannelId(input.varint_u32()?),
            bytes: input.varint_u32()?,
            next: input.byte()?,
        };
        let pattern = self.patterns.entry(task).or_default();
        if pattern.len() <= index {
            pattern.resize(index + 1, None);
        }
        pattern[index] = Some(entry);
        Ok(())
    }

    fn read_run(&mut self, input: &mut Input<'_>) -> Result<(), WireError> {
        let (task, cpu) = (TaskId(input.varint_u32()?), CpuId(input.varint_u32()?));
        if cpu.index() >= CPUS_MAX {
            return Err("a CPU number exceeds 1023");
        }
        let until = self.last.wrapping_add(input.signed()? as u64);
        let since = until.checked_sub(input.varint()?).ok_or("a run begins before the recording")?;
        let (first, count) = (input.byte()?, input.varint()?);
        if count > RUN_MAX {
            return Err("a run is too long");
        }
        self.last = until;
        let pattern = self.patterns.get(&task).ok_or("a run without a pattern")?;
        let stream = self.streams.entry(cpu).or_default();
        let since = match stream.last() {
            Some(last) if last.time.0 <= until => since.max(last.time.0),
            _ => since,
        };
        let span = u128::from(until.saturating_sub(since));
        let mut at = usize::from(first);
        for position in 1..=count {
            let entry = pattern.get(at).copied().flatten().ok_or("a run leaves its pattern")?;
            let time = Nanos(since + (span * u128::from(position) / u128::from(count)) as u64);
            let (operation, channel, result) = (Operation::SocketSend, entry.channel, i64::from(entry.bytes));
            let kind = EventKind::OperationExit { task, operation, channel, result };
            stream.push(Event { time, cpu, kind });
            at = usize::from(entry.next);
        }
        self.count += count;
        Ok(())
    }

    /// Puts the sends among the other events and settles the sums of reads.
    pub(super) fn join(self, recording: &mut Recording) {
        if self.streams.is_empty() && recording.provenance.unseen_bytes == 0 {
            return;
        }
        let in_order = |mut stream: Vec<Event>| {
            stream.sort_by_key(|event| event.time);
            stream
        };
        let runs = self.streams.into_values().map(in_order).reduce(merge).unwrap_or_default();
        // A file that was cut off does not tell from when on reads are sums.
        let from = recording.provenance.counted_from.or(runs.first().map(|event| event.time));
        recording.events = merge(runs, std::mem::take(&mut recording.events));
        settle_reads(recording, from.unwrap_or_default());
    }
}

/// Two streams in time order as one; at equal times the first stream's events go first.
fn merge(first: Vec<Event>, second: Vec<Event>) -> Vec<Event> {
    let mut merged = Vec::with_capacity(first.len() + second.len());
    let mut first = first.into_iter().peekable();
    for event in second {
        while let Some(earlier) = first.next_if(|candidate| candidate.time <= event.time) {
            merged.push(earlier);
        }
        merged.push(event);
    }
    merged.extend(first);
    merged
}

/// What is in a channel, and what was taken from it before it was told to be given.
#[derive(Clone, Copy, Default)]
struct Level {
    given: bool,
    bytes: i64,
    owed: i64,
}

fn settle_reads(recording: &mut Recording, counted_from: Nanos) {
    let mut levels = vec![Level::default(); recording.channels.len()];
    for event in &mut recording.events {
        let EventKind::OperationExit { operation, channel, result, .. } = &mut event.kind else { continue };
        let level = match recording.channels.get(channel.index()) {
            Some(row) if row.kind == ChannelKind::Socket => &mut levels[channel.index()],
            _ => continue,
        };
        if *result <= 0 || *result == RESULT_UNKNOWN {
            continue;
        }
        match operation {
            Operation::SocketSend => {
                level.given = true;
                level.bytes += *result;
            }
            Operation::SocketReceive => {
                if event.time >= counted_from && level.given {
                    let asked = *result + level.owed;
                    *result = asked.min(level.bytes.max(0));
                    level.owed = asked - *result;
                }
                level.bytes -= *result;
            }
            _ => {}
        }
    }
}
