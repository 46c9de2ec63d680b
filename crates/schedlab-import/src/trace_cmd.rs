//! trace.dat, versions 6 and 7, as trace-cmd's manual pages `trace-cmd.dat.v6(5)` and `trace-cmd.dat.v7(5)` describe it.
//!
//! Version 6 has its parts in a fixed order; version 7 has sections, which options name, and may compress them. Only the
//! top instance is read. Records themselves: [`crate::ring_buffer`].

use crate::ImportError;
use crate::budget::Budget;
use crate::bytes::Bytes;
use crate::formats::Formats;
use crate::heard::{Flags, Heard, Trace, decode};
use crate::ring_buffer;
use std::borrow::Cow;
use std::io::Read as _;

const FORMAT: &str = "trace-cmd";

/// Identifiers of options that version 7 stores.
mod option {
    pub const DONE: u64 = 0;
    pub const BUFFER: u64 = 3;
    pub const TRACE_CLOCK: u64 = 4;
    pub const UNAME: u64 = 5;
    pub const CPU_COUNT: u64 = 8;
    pub const TSC_TO_NS: u64 = 14;
    pub const HEADER_INFO: u64 = 16;
    pub const EVENT_FORMATS: u64 = 18;
    pub const COMMAND_LINES: u64 = 21;
}

/// Clocks that do not count nanoseconds.
const OTHER_CLOCKS: [&str; 4] = ["counter", "uptime", "x86-tsc", "ppc-tb"];

/// Trace data of one CPU.
struct CpuData {
    cpu: u32,
    offset: u64,
    size: u64,
}

/// What is gathered before the events can be read.
struct Parts {
    formats: Formats,
    trace: Trace,
    clock: String,
    /// Multiplier, shift and offset that make ns of a time stamp counter.
    tsc: Option<(u64, u64, u64)>,
    page_size: u64,
    cpus: Vec<CpuData>,
    /// Whether the data of CPUs is packed in chunks.
    packed: bool,
    budget: Budget,
}

/// Reads a whole file.
pub(crate) fn read(bytes: &[u8], budget: Budget) -> Result<Trace, ImportError> {
    let mut input = Bytes { data: bytes, big_endian: false, format: FORMAT };
    input.take(10, "the header")?;
    let version = input.text("the version")?;
    input.big_endian = input.number(1, "the byte order")? != 0;
    input.take(1, "the size of long")?;
    let mut parts = Parts {
        formats: Formats::default(),
        trace: Trace::default(),
        clock: String::new(),
        tsc: None,
        page_size: input.number(4, "the page size")?,
        cpus: Vec::new(),
        packed: false,
        budget,
    };
    if parts.page_size < 64 || parts.page_size > 1 << 24 {
        return Err(input.broken(format!("pages of {} bytes", parts.page_size)));
    }
    let compression = match version.as_str() {
        "6" => {
            version_6(&mut input, bytes, &mut parts)?;
            String::new()
        }
        "7" => version_7(&mut input, bytes, &mut parts)?,
        other => {
            return Err(ImportError::Unsupported(format!(
                "trace.dat of version {other}: 6 and 7 are read; trace-cmd convert --file-version 7 makes one"
            )));
        }
    };
    parts.trace.has = parts.formats.names();
    parts.events(&input, bytes, &compression)
}

impl Parts {
    fn events(mut self, input: &Bytes<'_>, whole: &[u8], compression: &str) -> Result<Trace, ImportError> {
        let tsc = self.tsc;
        if OTHER_CLOCKS.contains(&self.clock.as_str()) && tsc.is_none() {
            return Err(ImportError::Unsupported(format!(
                "the trace's clock '{}' does not count nanoseconds; record with: trace-cmd record -C mono",
                self.clock
            )));
        }
        let time = |time: u64| match tsc {
            Some((multiplier, shift, offset)) => {
                ((u128::from(time.wrapping_sub(offset)) * u128::from(multiplier)) >> shift.min(127)) as u64
            }
            None => time,
        };
        for data in std::mem::take(&mut self.cpus) {
            let mut there = input.at(whole, data.offset, "the data of a CPU")?;
            let unpacked;
            if data.size == 0 {
                continue;
            } else if self.packed {
                // The size leaves out the number of chunks that stands before them.
                unpacked = chunks(there, compression, &mut self.budget)?;
                there.data = &unpacked;
            } else {
                there.data = there.take(data.size, "the data of a CPU")?;
            }
            let (formats, events) = (&self.formats, &mut self.trace.events);
            let mut take = |at: u64, record: &[u8]| {
                let Some(format) = formats.of(record, there.big_endian) else { return };
                let number = |name: &str| format.number(record, name).unwrap_or(0);
                if let Some(what) = decode(format, record) {
                    let current = number("common_pid") as i32;
                    let flags = Flags::of(number("common_flags"));
                    events.push(Heard { time: time(at), cpu: data.cpu, current, flags, what });
                }
            };
            let lost = ring_buffer::records(&there, self.page_size, formats.page, &mut take)?;
            if lost > 0 {
                self.trace.lost.insert(data.cpu, lost);
            }
        }
        Ok(self.trace)
    }

    /// Lines of `PID NAME`, as in `saved_cmdlines`.
    fn command_lines(&mut self, text: &[u8]) {
        for line in String::from_utf8_lossy(text).lines() {
            if let Some((pid, name)) = line.trim_start().split_once(' ')
                && let Ok(pid) = pid.parse()
            {
                self.trace.names.insert(pid, name.to_owned());
            }
        }
    }

    fn option(&mut self, id: u64, data: Bytes<'_>) -> Result<(), ImportError> {
        let mut data = data;
        match id {
            option::UNAME => self.trace.release = release(&String::from_utf8_lossy(data.data)),
            option::CPU_COUNT => self.trace.cpus = u32::try_from(data.number(4, "the number of CPUs")?).ok(),
            option::TRACE_CLOCK => {
                // All clocks, the one in use in brackets.
                let text = String::from_utf8_lossy(data.data).into_owned();
                let used = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
                if let Some((clock, _)) = used {
                    self.clock = clock.to_owned();
                }
            }
            option::TSC_TO_NS => {
                let mut number = |size| data.number(size, "the time stamp counter's rate");
                self.tsc = Some((number(4)?, number(4)?, number(8)?));
            }
            _ => {}
        }
        Ok(())
    }
}

/// The third word of what `uname` says.
fn release(text: &str) -> String {
    let words: Vec<&str> = text.trim_end_matches('\0').split_whitespace().collect();
    let at = if words.first() == Some(&"Linux") { 2 } else { 1 };
    words.get(at).copied().unwrap_or_default().to_owned()
}

fn version_6(input: &mut Bytes<'_>, whole: &[u8], parts: &mut Parts) -> Result<(), ImportError> {
    parts.formats.read_header(input)?;
    parts.formats.skip_ftrace(input)?;
    parts.formats.read_events(input)?;
    for what in ["the kernel's symbols", "the formats of trace_printk"] {
        let size = input.number(4, what)?;
        input.take(size, what)?;
    }
    let names = input.sized("the names of tasks")?;
    parts.command_lines(names);
    let cpus = input.number(4, "the number of CPUs")?;
    parts.trace.cpus = u32::try_from(cpus).ok();
    loop {
        match input.take(10, "the kind of trace data")? {
            b"options  \0" => loop {
                let id = input.number(2, "an option")?;
                if id == option::DONE {
                    break;
                }
                let size = input.number(4, "an option")?;
                let data = input.take(size, "an option")?;
                // The time stamp counter's option has another number here, and a buffer is another instance's.
                parts.option(id, Bytes { data, ..*input })?;
            },
            b"flyrecord\0" => break,
            _ => {
                return Err(ImportError::Unsupported(
                    "the trace.dat holds text of a latency tracer, no events; record with: trace-cmd record -e sched"
                        .to_owned(),
                ));
            }
        }
    }
    // The clock in use may be told behind the offsets; they come first.
    for cpu in 0..cpus {
        let (offset, size) = (input.number(8, "a CPU's data")?, input.number(8, "a CPU's data")?);
        input.at(whole, offset, "the data of a CPU")?;
        parts.cpus.push(CpuData { cpu: cpu as u32, offset, size });
    }
    Ok(())
}

/// Gives the name of the compression.
fn version_7(input: &mut Bytes<'_>, whole: &[u8], parts: &mut Parts) -> Result<String, ImportError> {
    let compression = input.text("the compression")?;
    input.text("the compression's version")?;
    let mut next = input.number(8, "the options")?;
    let mut seen = 0;
    while next != 0 {
        seen += 1;
        if seen > 1_000 {
            return Err(input.broken("its options never end"));
        }
        let data = section(input, whole, next, &compression, &mut parts.budget)?;
        next = options(Bytes { data: &data, ..*input }, *input, whole, &compression, parts)?;
    }
    Ok(compression)
}

/// Reads one section of options; gives where the next is, 0 if there is none.
fn options(
    mut data: Bytes<'_>,
    input: Bytes<'_>,
    whole: &[u8],
    compression: &str,
    parts: &mut Parts,
) -> Result<u64, ImportError> {
    loop {
        let (id, size) = (data.number(2, "an option")?, data.number(4, "an option")?);
        let mut value = Bytes { data: data.take(size, "an option")?, ..data };
        match id {
            option::DONE => return value.number(8, "the next options"),
            option::HEADER_INFO | option::EVENT_FORMATS | option::COMMAND_LINES => {
                let place = value.number(8, "a section's place")?;
                let text = section(&input, whole, place, compression, &mut parts.budget)?;
                let mut text = Bytes { data: &text, ..input };
                match id {
                    option::HEADER_INFO => parts.formats.read_header(&mut text)?,
                    option::EVENT_FORMATS => parts.formats.read_events(&mut text)?,
                    _ => {
                        let names = text.sized("the names of tasks")?;
                        parts.command_lines(names);
                    }
                }
            }
            option::BUFFER => buffer(&mut value, &input, whole, parts)?,
            _ => parts.option(id, value)?,
        }
    }
}

/// Where the events of an instance are.
fn buffer(
    value: &mut Bytes<'_>,
    input: &Bytes<'_>,
    whole: &[u8],
    parts: &mut Parts,
) -> Result<(), ImportError> {
    let at = value.number(8, "a buffer's place")?;
    let (name, clock) = (value.text("a buffer's name")?, value.text("a buffer's clock")?);
    if !name.is_empty() {
        return Ok(());
    }
    parts.clock = clock;
    parts.page_size = value.number(4, "a buffer's page size")?;
    if parts.page_size < 64 {
        return Err(input.broken(format!("pages of {} bytes", parts.page_size)));
    }
    let mut header = input.at(whole, at, "a buffer")?;
    header.take(2, "a buffer's header")?;
    parts.packed = header.number(2, "a buffer's header")? & 1 != 0;
    for _ in 0..value.number(4, "a buffer's CPUs")? {
        let mut number = |size| value.number(size, "a CPU's data");
        let (cpu, offset, size) = (number(4)?, number(8)?, number(8)?);
        parts.cpus.push(CpuData {
            cpu: u32::try_from(cpu).map_err(|_| ImportError::Cpu(cpu))?,
            offset,
            size,
        });
    }
    Ok(())
}

/// The contents of a section, unpacked if need be.
fn section<'a>(
    input: &Bytes<'a>,
    whole: &'a [u8],
    offset: u64,
    compression: &str,
    budget: &mut Budget,
) -> Result<Cow<'a, [u8]>, ImportError> {
    let mut there = input.at(whole, offset, "a section")?;
    let (_id, flags) = (there.number(2, "a section")?, there.number(2, "a section")?);
    there.take(4, "a section")?;
    let size = there.number(8, "a section")?;
    let mut inside = Bytes { data: there.take(size, "a section")?, ..there };
    if flags & 1 == 0 {
        return Ok(Cow::Borrowed(inside.data));
    }
    Ok(Cow::Owned(unpack(&mut inside, compression, budget)?))
}

/// Chunk after chunk of a CPU's data.
fn chunks(mut input: Bytes<'_>, compression: &str, budget: &mut Budget) -> Result<Vec<u8>, ImportError> {
    let mut all = Vec::new();
    for _ in 0..input.number(4, "the number of chunks")? {
        all.extend(unpack(&mut input, compression, budget)?);
    }
    Ok(all)
}

/// Both sizes, and the packed bytes.
fn unpack(input: &mut Bytes<'_>, compression: &str, budget: &mut Budget) -> Result<Vec<u8>, ImportError> {
    let (packed, unpacked) = (input.number(4, "a chunk")?, input.number(4, "a chunk")?);
    let data = input.take(packed, "a chunk")?;
    let result = match compression {
        "zstd" => match zstd::Decoder::new(data) {
            Ok(decoder) => budget.read(decoder.take(unpacked + 1))?,
            Err(error) => Err(error),
        },
        "zlib" => budget.read(flate2::read::ZlibDecoder::new(data).take(unpacked + 1))?,
        other => {
            return Err(ImportError::Unsupported(format!(
                "the trace.dat is packed by '{other}': trace-cmd convert --compression zstd packs it anew"
            )));
        }
    };
    let out = result.map_err(|error| input.broken(format!("a chunk does not unpack: {error}")))?;
    if out.len() as u64 != unpacked {
        return Err(input.broken("a chunk is not as long as it says"));
    }
    Ok(out)
}
