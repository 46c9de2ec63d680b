//! perf.data: samples of tracepoints with their raw record, and the format files they are read by.
//!
//! The container (compression, pipes, rounds) is read by `linux-perf-data`. Other samples are passed over.

use crate::ImportError;
use crate::bytes::Bytes;
use crate::formats::Formats;
use crate::heard::{Flags, Heard, Named, Trace, What, decode};
use linux_perf_data::linux_perf_event_reader::{Endianness, EventRecord, SampleRecord};
use linux_perf_data::{Feature, PerfFileReader, PerfFileRecord};
use std::io::Cursor;

const FORMAT: &str = "perf.data";

/// In a header this long the file was written into a pipe.
const PIPE_HEADER: u64 = 16;

/// Reads a whole file.
pub(crate) fn read(bytes: &[u8]) -> Result<Trace, ImportError> {
    let big_endian = bytes.starts_with(b"2ELIFREP");
    let whole = Bytes { data: bytes, big_endian, format: FORMAT };
    check_sections(whole)?;
    let reader = PerfFileReader::parse_file(Cursor::new(bytes))?;
    let PerfFileReader { mut perf_file, mut record_iter } = reader;
    let big_endian = perf_file.endian() == Endianness::BigEndian;
    let Some(tracing) = perf_file.feature_section_data(Feature::TRACING_DATA) else {
        let events: Vec<&str> =
            perf_file.event_attributes().iter().filter_map(|event| event.name()).collect();
        let has = if events.is_empty() { String::new() } else { format!(", only {}", events.join(", ")) };
        return Err(crate::build::no_switches(crate::Format::Perf, has));
    };
    let formats = tracing_data(tracing)?;
    let text = |value: Option<&str>| value.unwrap_or_default().to_owned();
    let mut trace = Trace {
        release: text(perf_file.os_release()?),
        cpus: perf_file.nr_cpus()?.map(|count| count.nr_cpus_online),
        command: perf_file.cmdline()?.unwrap_or_default().into_iter().map(str::to_owned).collect(),
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
            Ok(EventRecord::Fork(fork)) => drop(trace.processes.insert(fork.tid, fork.pid)),
            Ok(EventRecord::Lost(lost)) => {
                let cpu = record.common_data().ok().and_then(|data| data.cpu).unwrap_or_default();
                *trace.lost.entry(cpu).or_default() += lost.count;
            }
            _ => {}
        }
    }
    Ok(trace)
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

/// Whether every section that the header names lies within the file: the reader would make room for it before it looks.
fn check_sections(whole: Bytes<'_>) -> Result<(), ImportError> {
    let mut header = whole;
    header.take(8, "the header")?;
    if header.number(8, "the header")? == PIPE_HEADER {
        return Err(ImportError::Unsupported(
            "the perf.data file was written into a pipe: make a file of it by perf inject -i FILE -o perf.data"
                .to_owned(),
        ));
    }
    header.take(8, "the header")?;
    let section = |input: &mut Bytes<'_>| {
        let (offset, size) = (input.number(8, "a section")?, input.number(8, "a section")?);
        whole.at(whole.data, offset, "a section")?.take(size, "a section")?;
        Ok::<u64, ImportError>(offset + size)
    };
    section(&mut header)?;
    let end = section(&mut header)?;
    section(&mut header)?;
    let features: u32 = header.take(32, "the header")?.iter().map(|bits| bits.count_ones()).sum();
    let mut table = whole.at(whole.data, end, "the table of features")?;
    (0..features).try_for_each(|_| section(&mut table).map(drop))
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
