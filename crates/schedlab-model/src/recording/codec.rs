//! The recording file: magic, version, then blocks, each with its length and checksums.
//!
//! ```text
//! file   = magic(8) version(u32) block*
//! block  = kind(u8) length(u32) crc32c(payload)(u32) crc32c(kind, length, payload crc)(u32) payload
//! kinds  = 1 head (JSON: provenance, machine)   2 task rows      3 channel rows
//!          4 events: base time (u64), events    5 end (JSON: provenance, duration, totals)
//!          6 CPU set rows   7 runs: sends told together (since version 2)
//! events = since version 3 also the use of caches, and by which clock a virtual runtime counts
//! ```
//! All numbers are little-endian. A file is only ever appended to: what was flushed stays readable when
//! the recorder is killed. Bytes in and out; opening files is the caller's business.

use super::event_codec::EventCoder;
use super::runs::{PatternEntry, Run, RunCoder, RunReader};
use super::wire::Input;
use super::{ChannelInfo, Provenance, Recording, TaskInfo, tables};
use crate::cpu_set::CpuSet;
use crate::event::{Event, EventKind};
use crate::ids::{ChannelId, CpuId, TaskId};
use crate::machine::MachineDescription;
use crate::time::Nanos;
use serde::{Deserialize, Serialize};
use std::io::{self, Write};

/// The format written. Versions 1, which has no runs, 2, whose virtual runtimes
/// are all of one clock, and 3, whose runs end in order, are read as well.
pub const VERSION: u32 = 4;
const VERSION_MIN: u32 = 1;

/// What every recording begins with.
pub const MAGIC: [u8; 8] = *b"\x89SLREC\r\n";
const BLOCK_HEADER: usize = 13;
/// A block is closed when its payload reaches this size: small enough to lose little, large enough to cost little.
const BLOCK_BYTES: usize = 64 << 10;

const HEAD: u8 = 1;
const TASKS: u8 = 2;
const CHANNELS: u8 = 3;
const EVENTS: u8 = 4;
const END: u8 = 5;
const CPU_SETS: u8 = 6;
const RUNS: u8 = 7;

/// Why bytes are not a readable recording.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// Other bytes.
    #[error("this is not a schedlab recording: record one with 'schedlab record -o FILE -- COMMAND'")]
    NotARecording,
    /// Another version of the format.
    #[error(
        "the recording has format version {found}, this schedlab reads versions {VERSION_MIN} to {VERSION}: \
         record it again, or read it with the schedlab that wrote it"
    )]
    Version {
        /// The file's version.
        found: u32,
    },
    /// Ended before its first block was whole.
    #[error("the recording ends before its head was whole; nothing can be read from it: record it again")]
    Empty,
    /// Bytes changed.
    #[error(
        "the recording is damaged at byte {offset}: {what}; \
         copy it again from its source, or read what precedes the damage ({events_before} events)"
    )]
    Damaged {
        /// Where the damaged block begins.
        offset: usize,
        /// What is wrong.
        what: &'static str,
        /// Events before it.
        events_before: usize,
    },
}

#[derive(Serialize, Deserialize)]
struct Head {
    provenance: Provenance,
    machine: MachineDescription,
}

#[derive(Serialize, Deserialize)]
struct End {
    provenance: Provenance,
    duration: Nanos,
    tasks: u64,
    channels: u64,
    events: u64,
}

/// Writes a recording as it happens.
pub struct RecordingWriter<W: Write> {
    out: W,
    tasks: Vec<u8>,
    channels: Vec<u8>,
    cpu_sets: Vec<u8>,
    events: Vec<u8>,
    runs: Vec<u8>,
    coder: EventCoder,
    run_coder: RunCoder,
    last: Nanos,
    counts: [u64; 3],
    bytes: u64,
}

fn json_error(error: serde_json::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

impl<W: Write> RecordingWriter<W> {
    /// Writes magic, version and head.
    pub fn new(mut out: W, provenance: &Provenance, machine: &MachineDescription) -> io::Result<Self> {
        out.write_all(&MAGIC)?;
        out.write_all(&VERSION.to_le_bytes())?;
        let mut writer = RecordingWriter {
            out,
            tasks: Vec::new(),
            channels: Vec::new(),
            cpu_sets: Vec::new(),
            events: Vec::with_capacity(BLOCK_BYTES + 64),
            runs: Vec::new(),
            coder: EventCoder::default(),
            run_coder: RunCoder::default(),
            last: Nanos::ZERO,
            counts: [0; 3],
            bytes: (MAGIC.len() + 4) as u64,
        };
        let head = Head { provenance: provenance.clone(), machine: machine.clone() };
        writer.block(HEAD, &serde_json::to_vec(&head).map_err(json_error)?)?;
        Ok(writer)
    }

    /// Adds or replaces a task's row. New rows come in the order of their ids.
    pub fn task(&mut self, id: TaskId, task: &TaskInfo) {
        self.counts[0] = self.counts[0].max(u64::from(id.0) + 1);
        tables::put_task(&mut self.tasks, id, task);
    }

    /// Adds or replaces a channel's row. New rows come in the order of their ids.
    pub fn channel(&mut self, id: ChannelId, channel: &ChannelInfo) {
        self.counts[1] = self.counts[1].max(u64::from(id.0) + 1);
        tables::put_channel(&mut self.channels, id, channel);
    }

    /// Adds a set of CPUs. New rows come in the order of their indices.
    pub fn cpu_set(&mut self, index: u32, set: &CpuSet) {
        tables::put_cpu_set(&mut self.cpu_sets, index, set);
    }

    /// Adds an event; its time must not lie before the previous one's.
    #[inline]
    pub fn event(&mut self, event: &Event) -> io::Result<()> {
        self.event_of(event.time, event.cpu, &event.kind)
    }

    /// The same from its parts: to put an event together takes a recorder longer than to write it.
    #[inline]
    pub fn event_of(&mut self, time: Nanos, cpu: CpuId, kind: &EventKind) -> io::Result<()> {
        if time < self.last {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "events must rise in time"));
        }
        if self.events.is_empty() {
            self.coder = EventCoder::new(time);
            self.events.extend_from_slice(&time.0.to_le_bytes());
        }
        self.coder.put(&mut self.events, time, cpu, kind);
        self.last = time;
        self.counts[2] += 1;
        if self.events.len() >= BLOCK_BYTES { self.flush_blocks() } else { Ok(()) }
    }

    /// Adds or replaces a row of a task's pattern, before the runs that follow it.
    pub fn pattern(&mut self, task: TaskId, index: u8, entry: &PatternEntry) {
        self.run_coder.put_entry(&mut self.runs, task, index, entry);
    }

    /// Adds a run; readers get its sends one by one. Unlike an event it may begin before those told already.
    pub fn run(&mut self, run: &Run) -> io::Result<()> {
        self.run_coder.put_run(&mut self.runs, run);
        self.counts[2] += u64::from(run.count);
        if self.runs.len() >= BLOCK_BYTES { self.flush_blocks() } else { Ok(()) }
    }

    /// Writes everything so far as whole blocks and flushes the writer below.
    pub fn flush(&mut self) -> io::Result<()> {
        self.flush_blocks()?;
        self.out.flush()
    }

    /// Events so far.
    pub fn event_count(&self) -> u64 {
        self.counts[2]
    }

    /// Bytes handed to the writer below so far.
    pub fn byte_count(&self) -> u64 {
        self.bytes
    }

    /// Writes the end marker. Without it a reader takes the file for cut off.
    pub fn finish(mut self, provenance: &Provenance, duration: Nanos) -> io::Result<W> {
        self.flush_blocks()?;
        let [tasks, channels, events] = self.counts;
        let end = End { provenance: provenance.clone(), duration, tasks, channels, events };
        self.block(END, &serde_json::to_vec(&end).map_err(json_error)?)?;
        self.out.flush()?;
        Ok(self.out)
    }

    /// Rows precede the events that name them.
    fn flush_blocks(&mut self) -> io::Result<()> {
        for kind in [TASKS, CHANNELS, CPU_SETS, RUNS, EVENTS] {
            let mut payload = std::mem::take(self.buffer(kind));
            if !payload.is_empty() {
                self.block(kind, &payload)?;
            }
            payload.clear();
            *self.buffer(kind) = payload;
        }
        Ok(())
    }

    fn buffer(&mut self, kind: u8) -> &mut Vec<u8> {
        match kind {
            TASKS => &mut self.tasks,
            CHANNELS => &mut self.channels,
            CPU_SETS => &mut self.cpu_sets,
            RUNS => &mut self.runs,
            _ => &mut self.events,
        }
    }

    fn block(&mut self, kind: u8, payload: &[u8]) -> io::Result<()> {
        let length = u32::try_from(payload.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let mut header = [0_u8; BLOCK_HEADER];
        header[0] = kind;
        header[1..5].copy_from_slice(&length.to_le_bytes());
        header[5..9].copy_from_slice(&crc32c::crc32c(payload).to_le_bytes());
        let checksum = crc32c::crc32c(&header[..9]);
        header[9..13].copy_from_slice(&checksum.to_le_bytes());
        self.out.write_all(&header)?;
        self.out.write_all(payload)?;
        self.bytes += (BLOCK_HEADER + payload.len()) as u64;
        Ok(())
    }
}

/// A whole recording as bytes.
pub fn encode(recording: &Recording) -> io::Result<Vec<u8>> {
    let mut writer = RecordingWriter::new(Vec::new(), &recording.provenance, &recording.machine)?;
    for (index, task) in recording.tasks.iter().enumerate() {
        writer.task(TaskId(index as u32), task);
    }
    for (index, channel) in recording.channels.iter().enumerate() {
        writer.channel(ChannelId(index as u32), channel);
    }
    for (index, set) in recording.cpu_sets.iter().enumerate() {
        writer.cpu_set(index as u32, set);
    }
    for event in &recording.events {
        writer.event(event)?;
    }
    writer.finish(&recording.provenance, recording.duration)
}

/// Reads a recording. One that was cut off is read up to its last whole block and marked
/// [`Provenance::partial`]; one with changed bytes is refused.
pub fn decode(bytes: &[u8]) -> Result<Recording, CodecError> {
    let (recording, damage) = decode_prefix(bytes)?;
    damage.map_or(Ok(recording), Err)
}

/// Reads a recording up to the first damage, if any; it is then partial.
pub fn decode_prefix(bytes: &[u8]) -> Result<(Recording, Option<CodecError>), CodecError> {
    let mut reader = Reader::open(bytes)?;
    let damage = reader.blocks().err();
    match damage {
        Some(damage) if reader.recording.is_none() => Err(damage),
        damage => Ok((reader.close()?, damage)),
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    recording: Option<Recording>,
    runs: RunReader,
    ended: bool,
}

impl<'a> Reader<'a> {
    fn open(bytes: &'a [u8]) -> Result<Self, CodecError> {
        let rest = bytes.strip_prefix(&MAGIC).ok_or(CodecError::NotARecording)?;
        let version = rest.first_chunk::<4>().ok_or(CodecError::Empty)?;
        let found = u32::from_le_bytes(*version);
        if !(VERSION_MIN..=VERSION).contains(&found) {
            return Err(CodecError::Version { found });
        }
        Ok(Reader { bytes, at: MAGIC.len() + 4, recording: None, runs: RunReader::default(), ended: false })
    }

    fn damaged(&self, what: &'static str) -> CodecError {
        let events_before = self.recording.as_ref().map_or(0, |recording| recording.events.len());
        CodecError::Damaged { offset: self.at, what, events_before }
    }

    /// Reads blocks until the end marker or the last whole block.
    fn blocks(&mut self) -> Result<(), CodecError> {
        while let Some((kind, payload)) = self.next_block()? {
            if self.ended {
                return Err(self.damaged("something follows the end marker"));
            }
            self.content(kind, payload).map_err(|what| self.damaged(what))?;
            self.at += BLOCK_HEADER + payload.len();
        }
        Ok(())
    }

    fn next_block(&self) -> Result<Option<(u8, &'a [u8])>, CodecError> {
        let rest = &self.bytes[self.at..];
        let Some(header) = rest.first_chunk::<BLOCK_HEADER>() else {
            return Ok(None);
        };
        let number =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        if number(9) != crc32c::crc32c(&header[..9]) {
            return Err(self.damaged("a block's header does not match its checksum"));
        }
        let Some(payload) = rest[BLOCK_HEADER..].get(..number(1) as usize) else {
            return Ok(None);
        };
        if number(5) != crc32c::crc32c(payload) {
            return Err(self.damaged("a block's content does not match its checksum"));
        }
        Ok(Some((header[0], payload)))
    }

    fn content(&mut self, kind: u8, payload: &[u8]) -> Result<(), &'static str> {
        let Some(recording) = &mut self.recording else {
            if kind != HEAD {
                return Err("the first block is not the head");
            }
            let Head { provenance, machine } =
                serde_json::from_slice(payload).map_err(|_| "the head cannot be read")?;
            self.recording = Some(Recording {
                provenance,
                machine,
                tasks: Vec::new(),
                channels: Vec::new(),
                cpu_sets: Vec::new(),
                events: Vec::new(),
                duration: Nanos::ZERO,
            });
            return Ok(());
        };
        match kind {
            TASKS => read_rows(payload, &mut recording.tasks, |input| {
                tables::get_task(input).map(|(id, row)| (id.index(), row))
            }),
            CHANNELS => read_rows(payload, &mut recording.channels, |input| {
                tables::get_channel(input).map(|(id, row)| (id.index(), row))
            }),
            CPU_SETS => read_rows(payload, &mut recording.cpu_sets, |input| {
                tables::get_cpu_set(input).map(|(index, row)| (index as usize, row))
            }),
            EVENTS => read_events(payload, &mut recording.events),
            RUNS => self.runs.read(payload),
            END => {
                self.ended = true;
                read_end(payload, recording, self.runs.count())
            }
            _ => Err("a block of unknown kind"),
        }
    }

    fn close(self) -> Result<Recording, CodecError> {
        let ended = self.ended;
        let offset = self.at;
        let mut recording = self.recording.ok_or(CodecError::Empty)?;
        self.runs.join(&mut recording);
        if !ended {
            recording.provenance.partial = true;
            recording.duration = recording.events.last().map_or(Nanos::ZERO, |event| event.time);
        }
        let checked = recording.check_references().and_then(|()| recording.check_times());
        checked.map_err(|what| {
            let events_before = recording.events.len();
            CodecError::Damaged { offset, what, events_before }
        })?;
        Ok(recording)
    }
}

fn read_rows<T>(
    payload: &[u8],
    table: &mut Vec<T>,
    row: impl Fn(&mut Input<'_>) -> Result<(usize, T), &'static str>,
) -> Result<(), &'static str> {
    let mut input = Input::new(payload);
    while !input.is_empty() {
        let (index, row) = row(&mut input)?;
        tables::place(table, index, row)?;
    }
    Ok(())
}

fn read_events(payload: &[u8], events: &mut Vec<Event>) -> Result<(), &'static str> {
    let (base, rest) = payload.split_first_chunk::<8>().ok_or("an event block without its base time")?;
    let base = Nanos(u64::from_le_bytes(*base));
    if events.last().is_some_and(|last| last.time > base) {
        return Err("time runs backwards");
    }
    let mut coder = EventCoder::new(base);
    let mut input = Input::new(rest);
    while !input.is_empty() {
        events.push(coder.get(&mut input)?);
    }
    Ok(())
}

fn read_end(payload: &[u8], recording: &mut Recording, in_runs: u64) -> Result<(), &'static str> {
    let end: End = serde_json::from_slice(payload).map_err(|_| "the end marker cannot be read")?;
    let found = [recording.tasks.len(), recording.channels.len(), recording.events.len()];
    if [end.tasks, end.channels, end.events.saturating_sub(in_runs)] != found.map(|count| count as u64) {
        return Err("totals differ from what was read");
    }
    recording.provenance = end.provenance;
    recording.duration = end.duration;
    Ok(())
}
