//! A look at a perf.data file before the library reads it: it makes room for what sizes and counts announce, and ends the
//! program if there is not as much memory.
//!
//! Every section must lie within the file, every count must be of things that fit into their section, and packed records
//! must unpack to what the budget allows. What the sections say is not read here.

use crate::ImportError;
use crate::budget::Budget;
use crate::bytes::Bytes;
use zstd::stream::raw::{Decoder, InBuffer, Operation as _, OutBuffer};

/// Bits of features in the header.
const EVENT_DESC: u32 = 12;
const SIMPLEPERF_META_INFO: u32 = 129;

/// The shortest `perf_event_attr`.
const ATTR_SIZE_MIN: u64 = 64;
/// What perf's versions had. Of a length in between the library reads less than it says, and what follows from the wrong
/// place; of what is longer than these it skips the rest.
const ATTR_SIZES: [u64; 8] = [ATTR_SIZE_MIN, 72, 80, 96, 104, 112, 120, 128];

/// Where a section is.
#[derive(Clone, Copy)]
struct Section {
    offset: u64,
    size: u64,
}

/// Bytes of a section's place and size.
const SECTION_SIZE: u64 = 16;

/// Refuses what the library would fail at.
pub(crate) fn check(whole: Bytes<'_>, budget: Budget) -> Result<(), ImportError> {
    let mut header = whole;
    header.take(16, "the header")?;
    let attr_size = header.number(8, "the header")?;
    let attributes = section(whole, &mut header)?;
    let data = section(whole, &mut header)?;
    let event_types = section(whole, &mut header)?;
    let mut features = Vec::new();
    for word in 0..4 {
        let bits = header.number(8, "the header")?;
        features.extend((0..64).filter(|bit| bits >> bit & 1 == 1).map(|bit| word * 64 + bit));
    }
    let mut table = whole.at(whole.data, data.offset + data.size, "the table of features")?;
    let mut described = false;
    let mut simpleperf = false;
    for feature in features {
        let place = section(whole, &mut table)?;
        if feature == EVENT_DESC {
            event_descriptions(inside(whole, place)?)?;
            described = true;
        }
        simpleperf |= feature == SIMPLEPERF_META_INFO;
    }
    if !described {
        if attr_size < ATTR_SIZE_MIN || attr_size > whole.data.len() as u64 {
            return Err(whole.broken(format!("events of {attr_size} bytes")));
        }
        if event_types.size != 0 {
            identifiers(whole, event_types, attr_size)?;
        } else if simpleperf {
            // Its place and size of identifiers count as the event's.
            identifiers(whole, attributes, attr_size - SECTION_SIZE)?;
        }
    }
    records(inside(whole, data)?, budget)
}

/// Reads where a section is; it must be in the file.
fn section(whole: Bytes<'_>, input: &mut Bytes<'_>) -> Result<Section, ImportError> {
    let place = Section { offset: input.number(8, "a section")?, size: input.number(8, "a section")? };
    inside(whole, place)?;
    Ok(place)
}

fn inside<'a>(whole: Bytes<'a>, place: Section) -> Result<Bytes<'a>, ImportError> {
    let mut there = whole.at(whole.data, place.offset, "a section")?;
    Ok(Bytes { data: there.take(place.size, "a section")?, ..whole })
}

/// Number of events and their size, then for each the event, how many identifiers, its name, the identifiers.
fn event_descriptions(mut input: Bytes<'_>) -> Result<(), ImportError> {
    const WHAT: &str = "a described event";
    let (events, size) = (input.number(4, WHAT)?, input.number(4, WHAT)?);
    if size < ATTR_SIZE_MIN {
        return Err(input.broken(format!("events of {size} bytes")));
    }
    for _ in 0..events {
        event(&mut input, size)?;
        let (identifiers, name) = (input.number(4, WHAT)?, input.number(4, WHAT)?);
        input.take(name, WHAT)?;
        input.take(identifiers * 8, WHAT)?;
    }
    Ok(())
}

/// Events that are each followed by the place of their identifiers.
fn identifiers(whole: Bytes<'_>, events: Section, attr_size: u64) -> Result<(), ImportError> {
    let mut input = inside(whole, events)?;
    while input.data.len() as u64 >= attr_size + SECTION_SIZE {
        event(&mut input, attr_size)?;
        section(whole, &mut input)?;
    }
    Ok(())
}

/// An event that takes so many bytes here, and says itself how long it is.
fn event(input: &mut Bytes<'_>, size: u64) -> Result<(), ImportError> {
    let mut event = Bytes { data: input.take(size, "an event")?, ..*input };
    event.take(4, "an event")?;
    let own = event.number(4, "an event")?;
    if is_length(own) { Ok(()) } else { Err(input.broken(format!("an event of {own} bytes"))) }
}

/// Whether an event can be this long; the kernel takes none above a page.
pub(crate) fn is_length(size: u64) -> bool {
    ATTR_SIZES.contains(&size) || (ATTR_SIZES[ATTR_SIZES.len() - 1]..=4_096).contains(&size)
}

/// Kinds of records of perf itself.
pub(crate) mod kind {
    pub const HEADER_ATTR: u64 = 64;
    pub const TRACING_DATA: u64 = 66;
    pub const AUXTRACE: u64 = 71;
    pub const HEADER_FEATURE: u64 = 80;
    pub const COMPRESSED: u64 = 81;
    pub const COMPRESSED2: u64 = 83;
}

/// A record's kind, its head with all that belongs to it, and its contents.
pub(crate) struct Record<'a> {
    pub kind: u64,
    pub whole: &'a [u8],
    pub body: &'a [u8],
}

/// The next record; `None` at the end, or where the last one is cut short.
pub(crate) fn record<'a>(input: &mut Bytes<'a>) -> Result<Option<Record<'a>>, ImportError> {
    let rest = *input;
    if rest.data.len() < 8 {
        return Ok(None);
    }
    let kind = input.number(4, "a record")?;
    input.take(2, "a record")?;
    let size = input.number(2, "a record")?;
    let Some(body_size) = size.checked_sub(8) else {
        return Err(input.broken(format!("a record of {size} bytes")));
    };
    if input.data.len() < body_size as usize {
        return Ok(None);
    }
    let body = input.take(body_size, "a record")?;
    Ok(Some(Record { kind, whole: &rest.data[..size as usize], body }))
}

/// Data behind a record must be there, packed data must unpack to what is allowed.
fn records(mut input: Bytes<'_>, mut budget: Budget) -> Result<(), ImportError> {
    let mut unpacked = Unpacked { decoder: None, room: Vec::new() };
    while let Some(Record { kind, body, .. }) = record(&mut input)? {
        let mut body = Bytes { data: body, ..input };
        match kind {
            kind::AUXTRACE => {
                let size = body.number(8, "the size of a hardware trace")?;
                input.take(size, "a hardware trace")?;
            }
            kind::COMPRESSED => unpacked.book(body, &mut budget)?,
            kind::COMPRESSED2 => {
                let size = body.number(8, "the size of packed records")?;
                body.data = body.take(size, "packed records")?;
                unpacked.book(body, &mut budget)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// One stream of packed records.
struct Unpacked {
    decoder: Option<Decoder<'static>>,
    room: Vec<u8>,
}

impl Unpacked {
    /// Unpacks and forgets, only to know how much it is: that costs little beside reading the records.
    fn book(&mut self, packed: Bytes<'_>, budget: &mut Budget) -> Result<(), ImportError> {
        let broken = |error: std::io::Error| packed.broken(format!("packed records do not unpack: {error}"));
        if self.decoder.is_none() {
            self.decoder = Some(Decoder::new().map_err(broken)?);
            self.room = vec![0; 1 << 20];
        }
        let Some(decoder) = &mut self.decoder else { return Ok(()) };
        let mut from = InBuffer::around(packed.data);
        loop {
            let mut to = OutBuffer::around(&mut self.room[..]);
            decoder.run(&mut from, &mut to).map_err(broken)?;
            let count = to.pos();
            budget.spend(count as u64)?;
            if count < self.room.len() && from.pos == packed.data.len() {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One event of this length, as it says itself, in a place of 136 bytes; no identifiers, no name.
    fn described(own: u32) -> Result<(), ImportError> {
        let mut bytes = [1_u32, 136, 0, own].map(u32::to_le_bytes).concat();
        bytes.resize(8 + 136 + 8, 0);
        event_descriptions(Bytes { data: &bytes, big_endian: false, format: "perf.data" })
    }

    #[test]
    fn events_of_lengths_that_no_perf_had_are_refused() {
        for own in [64, 72, 80, 96, 104, 112, 120, 128, 129, 136, 4_096] {
            assert!(described(own).is_ok(), "{own}");
        }
        for own in [0, 63, 65, 88, 127, 4_097] {
            let error = described(own).expect_err("the library would go on at the wrong place").to_string();
            assert!(error.contains(&format!("an event of {own} bytes")), "{error}");
        }
    }
}
