//! `perf record -o -`: a perf.data stream, in which what a file has in sections comes as records. It is put in order here,
//! as the file that perf would have written.
//!
//! The library reads streams as well, but not those with tracepoints, whose formats lie between the records.

use crate::ImportError;
use crate::bytes::{Bytes, number};
use crate::perf_sections::{Record, is_length, kind, record};

/// A header this long is a stream's.
const STREAM_HEADER: u64 = 16;
/// And this long a file's.
const FILE_HEADER: u64 = 104;

/// Features that are carried over, besides those made here: kernel release, number of CPUs, command line.
const KEPT: [u64; 3] = [4, 7, 11];
const TRACING_DATA: u64 = 1;
const EVENT_DESC: u64 = 12;

/// Whether it is a stream.
pub(crate) fn is_stream(mut whole: Bytes<'_>) -> bool {
    whole.take(8, "the header").is_ok()
        && whole.number(8, "the header").is_ok_and(|size| size == STREAM_HEADER)
}

/// Makes a file of it.
pub(crate) fn file(whole: Bytes<'_>) -> Result<Vec<u8>, ImportError> {
    let mut input = whole;
    let magic = input.take(8, "the header")?;
    input.take(8, "the header")?;
    let mut out = Writer { bytes: magic.to_vec(), big_endian: whole.big_endian };
    out.bytes.resize(FILE_HEADER as usize, 0);
    let mut features: Vec<(u64, Vec<u8>)> = Vec::new();
    let mut events = Vec::new();
    while let Some(Record { kind, whole, body }) = record(&mut input)? {
        let mut inside = Bytes { data: body, ..input };
        match kind {
            kind::HEADER_ATTR => events.push(body),
            kind::HEADER_FEATURE => {
                let feature = inside.number(8, "a feature")?;
                if KEPT.contains(&feature) {
                    features.push((feature, inside.data.to_vec()));
                }
            }
            kind::TRACING_DATA => {
                let size = inside.number(4, "the size of the tracing data")?;
                features.push((TRACING_DATA, input.take(size, "the tracing data")?.to_vec()));
            }
            kind::AUXTRACE => {
                let size = inside.number(8, "the size of a hardware trace")?;
                input.take(size, "a hardware trace")?;
            }
            _ => out.bytes.extend(whole),
        }
    }
    if events.is_empty() {
        return Err(whole.broken("the stream describes no event"));
    }
    features.push((EVENT_DESC, descriptions(&events, input)?));
    features.sort();
    features.dedup_by_key(|(feature, _)| *feature);
    Ok(out.finish(&features))
}

/// The events with their identifiers, in one section.
fn descriptions(events: &[&[u8]], input: Bytes<'_>) -> Result<Vec<u8>, ImportError> {
    // Each says its own length; the identifiers follow.
    let parts: Vec<(&[u8], &[u8])> =
        events.iter().map(|event| parts(event, input)).collect::<Result<_, _>>()?;
    let longest = parts.iter().map(|(attribute, _)| attribute.len()).max().unwrap_or(0);
    let mut out = Writer { bytes: Vec::new(), big_endian: input.big_endian };
    out.number(4, events.len() as u64);
    out.number(4, longest as u64);
    for (attribute, identifiers) in parts {
        out.bytes.extend(attribute);
        out.bytes.resize(out.bytes.len() + longest - attribute.len(), 0);
        out.number(4, identifiers.len() as u64 / 8);
        out.number(4, 0);
        out.bytes.extend(&identifiers[..identifiers.len() / 8 * 8]);
    }
    Ok(out.bytes)
}

/// An event and its identifiers.
fn parts<'a>(event: &'a [u8], input: Bytes<'_>) -> Result<(&'a [u8], &'a [u8]), ImportError> {
    let size = event.get(4..8).map_or(0, |size| number(size, input.big_endian));
    let there = is_length(size).then(|| event.split_at_checked(size as usize)).flatten();
    there.ok_or_else(|| input.broken(format!("an event of {size} bytes")))
}

struct Writer {
    bytes: Vec<u8>,
    big_endian: bool,
}

impl Writer {
    fn number(&mut self, size: usize, value: u64) {
        match self.big_endian {
            true => self.bytes.extend(&value.to_be_bytes()[8 - size..]),
            false => self.bytes.extend(&value.to_le_bytes()[..size]),
        }
    }

    /// Puts the sections behind the records, and the header before them.
    fn finish(mut self, features: &[(u64, Vec<u8>)]) -> Vec<u8> {
        let data_size = self.bytes.len() as u64 - FILE_HEADER;
        let mut offset = self.bytes.len() as u64 + 16 * features.len() as u64;
        for (_, section) in features {
            self.number(8, offset);
            self.number(8, section.len() as u64);
            offset += section.len() as u64;
        }
        for (_, section) in features {
            self.bytes.extend(section);
        }
        let bits = features.iter().fold(0, |bits, (feature, _)| bits | 1 << feature);
        let mut header = Writer { bytes: self.bytes[..8].to_vec(), big_endian: self.big_endian };
        // Sizes of header and event, the sections of events, data and event types, and four words of features.
        for value in [FILE_HEADER, 0, 0, 0, FILE_HEADER, data_size, 0, 0, bits, 0, 0, 0] {
            header.number(8, value);
        }
        self.bytes[..FILE_HEADER as usize].copy_from_slice(&header.bytes);
        self.bytes
    }
}
