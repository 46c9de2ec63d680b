//! Pages of the kernel's ring buffer: a time, then records with the time that passed since the one before.
//!
//! The layout is that of `include/linux/ring_buffer.h`; `events/header_event` of tracefs describes it in words.

use crate::ImportError;
use crate::bytes::{Bytes, number};
use crate::formats::Page;

/// `enum ring_buffer_type`: what a record's type and length field says besides lengths.
const PADDING: u64 = 29;
const TIME_EXTEND: u64 = 30;
const TIME_STAMP: u64 = 31;

/// Bits of `commit` besides the number of bytes: records are missing before this page, their number is stored behind it.
const MISSED_EVENTS: u64 = 1 << 31;
const MISSED_STORED: u64 = 1 << 30;
const COMMIT_MASK: u64 = (1 << 30) - 1;

/// Of a full time stamp the ring buffer keeps so many bits; the rest is the page's.
const STAMP_BITS: u32 = 59;

/// Hands over every record of a CPU's pages with its time in ns; gives the number of lost ones (at least one for each gap).
pub(crate) fn records<'a>(
    pages: &Bytes<'a>,
    page_size: u64,
    layout: Page,
    take: &mut dyn FnMut(u64, &'a [u8]),
) -> Result<u64, ImportError> {
    let mut rest = *pages;
    let mut lost = 0;
    while !rest.data.is_empty() {
        let size = page_size.min(rest.data.len() as u64);
        let data = rest.take(size, "a page of trace data")?;
        lost = page(&Bytes { data, ..rest }, layout, take)?.saturating_add(lost);
    }
    Ok(lost)
}

fn page<'a>(page: &Bytes<'a>, layout: Page, take: &mut dyn FnMut(u64, &'a [u8])) -> Result<u64, ImportError> {
    let mut input = *page;
    let mut time = input.number(8, "a page's time")?;
    let commit = input.number(layout.commit_size, "a page's length")?;
    let used = commit & COMMIT_MASK;
    let mut input = page.at(page.data, layout.data_offset, "a page's records")?;
    input.data = input.take(used.min(input.data.len() as u64), "a page's records")?;
    while input.data.len() >= 4 {
        let head = input.number(4, "a record's head")?;
        let (kind, delta) =
            if page.big_endian { (head >> 27, head & 0x07ff_ffff) } else { (head & 0x1f, head >> 5) };
        match kind {
            PADDING if delta == 0 => break,
            PADDING => {
                // A record that was taken back: its length is what follows.
                let length = input.number(4, "a discarded record")?;
                time = time.wrapping_add(delta);
                input.take(length.saturating_sub(4).min(input.data.len() as u64), "a discarded record")?;
            }
            TIME_EXTEND => {
                let extension = (input.number(4, "a time extension")? << 27) + delta;
                time = time.wrapping_add(extension);
            }
            TIME_STAMP => {
                let stamp = (input.number(4, "a time stamp")? << 27) + delta;
                time = time >> STAMP_BITS << STAMP_BITS | stamp;
            }
            _ => {
                time = time.wrapping_add(delta);
                let length = if kind == 0 {
                    let length = input.number(4, "a record's length")?;
                    length.checked_sub(4).ok_or_else(|| page.broken("a record of less than no bytes"))?
                } else {
                    kind * 4
                };
                // A record is aligned to four bytes.
                take(time, input.take(length.next_multiple_of(4), "a record")?);
            }
        }
    }
    Ok(missed(page, layout, commit))
}

fn missed(page: &Bytes<'_>, layout: Page, commit: u64) -> u64 {
    if commit & MISSED_EVENTS == 0 {
        return 0;
    }
    let behind = (layout.data_offset + (commit & COMMIT_MASK)) as usize;
    let stored = page.data.get(behind..behind + layout.commit_size as usize);
    match stored.filter(|_| commit & MISSED_STORED != 0) {
        Some(count) => number(count, page.big_endian).max(1),
        None => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page_of(commit: u64, records: &[u8]) -> Vec<u8> {
        let mut page = 1_000_u64.to_le_bytes().to_vec();
        page.extend(commit.to_le_bytes());
        page.extend(records);
        page.resize(64, 0);
        page
    }

    fn read(page: &[u8]) -> (Vec<(u64, Vec<u8>)>, u64) {
        let pages = Bytes { data: page, big_endian: false, format: "trace-cmd" };
        let mut found = Vec::new();
        let lost =
            records(&pages, 64, Page::default(), &mut |time, record| found.push((time, record.to_vec())));
        (found, lost.expect("whole pages"))
    }

    #[test]
    fn times_add_up_over_records_extensions_stamps_and_padding() {
        let head = |kind: u32, delta: u32| (delta << 5 | kind).to_le_bytes();
        let mut bytes = Vec::new();
        bytes.extend(head(1, 5));
        bytes.extend(*b"abcd");
        bytes.extend(head(30, 3));
        bytes.extend(1_u32.to_le_bytes());
        bytes.extend(head(0, 2));
        bytes.extend(12_u32.to_le_bytes());
        bytes.extend(*b"efghijkl");
        bytes.extend(head(31, 7));
        bytes.extend(2_u32.to_le_bytes());
        bytes.extend(head(1, 1));
        bytes.extend(*b"mnop");
        let (found, lost) = read(&page_of(bytes.len() as u64, &bytes));
        let extended = 1_005 + (1 << 27) + 3 + 2;
        let expected: [(u64, &[u8]); 3] =
            [(1_005, b"abcd"), (extended, b"efghijkl"), ((2 << 27) + 7 + 1, b"mnop")];
        assert_eq!(found, expected.map(|(time, text)| (time, text.to_vec())));
        assert_eq!(lost, 0);
    }

    #[test]
    fn records_that_the_kernel_lost_are_counted() {
        let mut page = page_of(MISSED_EVENTS | MISSED_STORED, &[]);
        page[16] = 42;
        assert_eq!(read(&page).1, 42);
        assert_eq!(read(&page_of(MISSED_EVENTS, &[])).1, 1, "at least one");
        assert_eq!(read(&page_of(0, &[])).1, 0);
    }
}
