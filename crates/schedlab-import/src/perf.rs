//! perf.data: samples of tracepoints with their raw record, and the format files they are read by.
//!
//! The container (compression, rounds) is read by `linux-perf-data`, after a look at its sizes and counts
//! ([`crate::perf_sections`]); a stream is made a file first ([`crate::perf_pipe`]). Other samples are passed over.

use crate::ImportError;
use crate::budget::Budget;
use crate::bytes::{Bytes, padded_text};
use crate::formats::Formats;
use crate::heard::{Flags, Heard, Named, Trace, What, decode};
use crate::{perf_pipe, perf_sections};
use linux_perf_data::linux_perf_event_reader::{Endianness, EventRecord, SampleRecord};
use linux_perf_data::{Feature, PerfFile, PerfFileReader, PerfFileRecord};
use std::io::Cursor;

const FORMAT: &str = "perf.data";

/// Reads a whole file.
pub(crate) fn read(bytes: &[u8], budget: Budget) -> Result<Trace, ImportError> {
    let big_endian = bytes.starts_with(b"2ELIFREP");
    let input = Bytes { data: bytes, big_endian, format: FORMAT };
    let made;
    let mut whole = input;
    if perf_pipe::is_stream(input) {
        made = perf_pipe::file(input)?;
        whole.data = &made;
    }
    perf_sections::check(whole, budget)?;
    let reader = PerfFileReader::parse_file(Cursor::new(whole.data))?;
    let PerfFileReader { mut perf_file, mut record_iter } = reader;
    let big_endian = perf_file.endian() == Endianness::BigEndian;
    let Some(tracing) = perf_file.feature_section_data(Feature::TRACING_DATA) else {
        let events: Vec<&str> =
            perf_file.event_attributes().iter().filter_map(|event| event.name()).collect();
        let has = if events.is_empty() { String::new() } else { format!(", only {}", events.join(", ")) };
        return Err(crate::build::no_switches(crate::Format::Perf, has));
    };
    let formats = tracing_data(tracing)?;
    let mut trace = Trace {
        release: section(&perf_file, Feature::OSRELEASE, big_endian, text).unwrap_or_default(),
        cpus: perf_file.nr_cpus()?.map(|count| count.nr_cpus_online),
        command: section(&perf_file, Feature::CMDLINE, big_endian, texts).unwrap_or_default(),
        has: formats.names(),
        ..Trace::default()
    };
    while let Some(record) = record_iter.next_record(&mut perf_file)? {
        let PerfFileRecord::EventRecord { record, .. } = record else { continue };
        match record.parse() {
            Ok(EventRecord::Sample(sample)) => {
                if let Some(pid) = sample.pid
                    && let Some(tid) = sample.tid
                {
                    trace.processes.insert(tid, pid);
                }
                trace.events.extend(heard(&sample, &formats, big_endian));
            }
            Ok(EventRecord::Comm(comm)) => {
                trace.processes.insert(comm.tid, comm.pid);
                let name = String::from_utf8_lossy(&comm.name.as_slice()).into_owned();
                match record.common_data() {
                    Ok(data) if data.timestamp.is_some_and(|time| time > 0) => trace.events.push(Heard {
                        time: data.timestamp.unwrap_or_default(),
                        cpu: data.cpu.unwrap_or_default(),
                        current: comm.tid,
                        flags: Flags::default(),
                        what: What::Rename { task: Named { pid: comm.tid, name, prio: None } },
                    }),
                    // Told at the start, of what existed.
                    _ => drop(trace.names.insert(comm.tid, name)),
                }
            }
            Ok(EventRecord::Fork(fork)) => {
                trace.processes.insert(fork.tid, fork.pid);
                if fork.tid == fork.pid {
                    trace.parents.insert(fork.pid, fork.ppid);
                }
            }
            Ok(EventRecord::Lost(lost)) => {
                let cpu = record.common_data().ok().and_then(|data| data.cpu).unwrap_or_default();
                let sum = trace.lost.entry(cpu).or_default();
                *sum = sum.saturating_add(lost.count);
            }
            _ => {}
        }
    }
    Ok(trace)
}

/// What a section of the header says; nothing if there is none, or it is cut short.
fn section<T>(
    file: &PerfFile,
    feature: Feature,
    big_endian: bool,
    read: fn(&mut Bytes<'_>) -> Result<T, ImportError>,
) -> Option<T> {
    read(&mut Bytes { data: file.feature_section_data(feature)?, big_endian, format: FORMAT }).ok()
}

/// A text of any bytes, padded with zeros to the length before it.
fn text(input: &mut Bytes<'_>) -> Result<String, ImportError> {
    let length = input.number(4, "a text's length")?;
    Ok(padded_text(input.take(length, "a text")?))
}

/// Their number, and texts.
fn texts(input: &mut Bytes<'_>) -> Result<Vec<String>, ImportError> {
    (0..input.number(4, "the number of texts")?).map(|_| text(input)).collect()
}

fn heard(sample: &SampleRecord<'_>, formats: &Formats, big_endian: bool) -> Option<Heard> {
    let raw = sample.raw?;
    let record = raw.as_slice();
    let format = formats.of(&record, big_endian)?;
    let current = format.number(&record, "common_pid").and_then(|pid| i32::try_from(pid).ok());
    Some(Heard {
        time: sample.timestamp?,
        cpu: sample.cpu?,
        current: current.or(sample.tid)?,
        flags: Flags::of(format.number(&record, "common_flags").unwrap_or(0)),
        what: decode(format, &record)?,
    })
}

/// The section that perf writes the format files into; its first part is that of a trace.dat.
fn tracing_data(data: &[u8]) -> Result<Formats, ImportError> {
    let mut input = Bytes { data, big_endian: false, format: FORMAT };
    if input.take(10, "the tracing data")? != b"\x17\x08\x44tracing" {
        return Err(input.broken("its tracing data does not begin as such data does"));
    }
    input.text("the version of the tracing data")?;
    input.big_endian = input.number(1, "the byte order")? != 0;
    input.take(1 + 4, "sizes of long and page")?;
    let mut formats = Formats::default();
    formats.read_header(&mut input)?;
    formats.skip_ftrace(&mut input)?;
    formats.read_events(&mut input)?;
    Ok(formats)
}
