//! The `format` files of tracefs: where each field of a tracepoint's record lies, on the kernel that recorded.
//!
//! Both perf.data and trace.dat carry them along. Kernels move fields, widen them and number their events as they
//! like, so nothing is assumed that these files say.

use crate::ImportError;
use crate::bytes::{Bytes, number, padded_text};
use std::collections::HashMap;

/// How a field's bytes are to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// They lie there.
    Here,
    /// Offset in the record and length of a text, 16 bits each.
    Elsewhere,
    /// The same, the offset counted from the end of the field.
    After,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Field {
    name: String,
    offset: usize,
    size: usize,
    signed: bool,
    place: Place,
}

/// One tracepoint's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EventFormat {
    /// `common_type` of its records.
    pub id: u16,
    /// `sched_switch`.
    pub name: String,
    fields: Vec<Field>,
    /// Bits of `prev_state` and the letters they are printed as.
    pub states: Vec<(u64, u8)>,
    big_endian: bool,
}

impl EventFormat {
    /// Reads a format file; `None` if it is none.
    fn parse(text: &str, big_endian: bool) -> Option<EventFormat> {
        let line = |start: &str| text.lines().find_map(|line| line.trim().strip_prefix(start)).map(str::trim);
        Some(EventFormat {
            id: line("ID:")?.parse().ok()?,
            name: line("name:")?.to_owned(),
            fields: text.lines().filter_map(|line| field(line.trim().strip_prefix("field:")?)).collect(),
            states: line("print fmt:").map(states).unwrap_or_default(),
            big_endian,
        })
    }

    fn bytes<'a>(&self, record: &'a [u8], name: &str) -> Option<(&'a [u8], &Field)> {
        let field = self.fields.iter().find(|field| field.name == name)?;
        Some((record.get(field.offset..field.offset + field.size)?, field))
    }

    /// A field that is a number; `None` if the kernel has no such field or the record is too short.
    pub fn number(&self, record: &[u8], name: &str) -> Option<i64> {
        let (bytes, field) = self.bytes(record, name)?;
        let value = number(bytes, self.big_endian);
        let unused = 64 - 8 * u32::try_from(bytes.len().clamp(1, 8)).ok()?;
        Some(if field.signed { (value << unused) as i64 >> unused } else { value as i64 })
    }

    /// A field that is a text, stored in place or behind the record.
    pub fn text(&self, record: &[u8], name: &str) -> Option<String> {
        let (bytes, field) = self.bytes(record, name)?;
        if field.place == Place::Here {
            return Some(padded_text(bytes));
        }
        let place = number(bytes, self.big_endian);
        let base = if field.place == Place::After { field.offset + field.size } else { 0 };
        let start = base + (place & 0xffff) as usize;
        record.get(start..start + (place >> 16) as usize).map(padded_text)
    }
}

/// `char prev_comm[16]; offset:8; size:16; signed:0;`
fn field(text: &str) -> Option<Field> {
    let mut parts = text.split(';').map(str::trim);
    let declaration = parts.next()?;
    let place = match declaration.split_whitespace().next()? {
        "__data_loc" => Place::Elsewhere,
        "__rel_loc" => Place::After,
        _ => Place::Here,
    };
    let name = declaration.split('[').next()?;
    // The brackets of `__data_loc char[] comm` stand before the name.
    let name = if place == Place::Here { name } else { declaration };
    let name = name.split_whitespace().last()?.trim_start_matches('*').to_owned();
    let mut value = |key: &str| parts.next()?.strip_prefix(key)?.strip_prefix(':')?.parse::<usize>().ok();
    let (offset, size) = (value("offset")?, value("size")?);
    let signed = value("signed").unwrap_or(0) != 0;
    (offset < 1 << 16 && size < 1 << 16).then_some(Field { name, offset, size, signed, place })
}

/// The pairs `{ 0x0001, "S" }` that a switch's state is printed by.
fn states(text: &str) -> Vec<(u64, u8)> {
    let pair = |part: &str| {
        let (number, rest) = part.trim_start().split_once(',')?;
        let number = number.trim();
        let bits = match number.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok()?,
            None => number.parse().ok()?,
        };
        Some((bits, *rest.trim_start().strip_prefix('"')?.as_bytes().first()?))
    };
    text.split('{').skip(1).filter_map(pair).collect()
}

/// What stands before the events in trace.dat version 6 and in perf's tracing data.
#[derive(Clone, Debug, Default)]
pub(crate) struct Formats {
    /// By `common_type`.
    pub events: HashMap<u16, EventFormat>,
    /// The layout of a page of the kernel's ring buffer.
    pub page: Page,
}

/// `events/header_page` of tracefs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    /// Bytes of `commit`: those of a `long` of the kernel.
    pub commit_size: u64,
    /// Where records begin.
    pub data_offset: u64,
}

impl Default for Page {
    fn default() -> Page {
        Page { commit_size: 8, data_offset: 16 }
    }
}

impl Formats {
    /// `header_page` and `header_event`.
    pub fn read_header(&mut self, input: &mut Bytes<'_>) -> Result<(), ImportError> {
        for name in ["header_page", "header_event"] {
            if input.text(name)? != name {
                return Err(input.broken(format!("'{name}' is missing where it belongs")));
            }
            let text = String::from_utf8_lossy(input.sized(name)?).into_owned();
            if name == "header_page" {
                let fields: Vec<Field> =
                    text.lines().filter_map(|line| field(line.trim().strip_prefix("field:")?)).collect();
                let find = |name: &str| fields.iter().find(|field| field.name == name);
                if let (Some(commit), Some(data)) = (find("commit"), find("data")) {
                    self.page = Page { commit_size: commit.size as u64, data_offset: data.offset as u64 };
                }
            }
        }
        Ok(())
    }

    /// The formats of ftrace's own events: not used here.
    pub fn skip_ftrace(&self, input: &mut Bytes<'_>) -> Result<(), ImportError> {
        for _ in 0..input.number(4, "the number of ftrace formats")? {
            input.sized("an ftrace format")?;
        }
        Ok(())
    }

    /// The formats of tracepoints, system by system.
    pub fn read_events(&mut self, input: &mut Bytes<'_>) -> Result<(), ImportError> {
        for _ in 0..input.number(4, "the number of event systems")? {
            input.text("the name of an event system")?;
            for _ in 0..input.number(4, "the number of event formats")? {
                let text = String::from_utf8_lossy(input.sized("an event format")?).into_owned();
                if let Some(format) = EventFormat::parse(&text, input.big_endian) {
                    self.events.insert(format.id, format);
                }
            }
        }
        Ok(())
    }

    /// The format of a record, by its first field.
    pub fn of(&self, record: &[u8], big_endian: bool) -> Option<&EventFormat> {
        let id = number(record.get(..2)?, big_endian);
        self.events.get(&u16::try_from(id).ok()?)
    }

    /// What the file can tell of, for messages.
    pub fn names(&self) -> String {
        let mut names: Vec<&str> = self.events.values().map(|format| format.name.as_str()).collect();
        names.sort_unstable();
        let shown: Vec<&str> = names.iter().take(8).copied().collect();
        match names.len() {
            0 => String::new(),
            count if count > shown.len() => {
                format!(", only {} and {} more", shown.join(", "), count - shown.len())
            }
            _ => format!(", only {}", shown.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SWITCH: &str = "name: sched_switch\nID: 372\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
        \tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
        \tfield:int prev_prio;\toffset:28;\tsize:4;\tsigned:1;\n\
        \tfield:__data_loc char[] child_comm;\toffset:32;\tsize:4;\tsigned:0;\n\n\
        print fmt: \"prev_comm=%s\", (REC->prev_state & 3) ? __print_flags(REC->prev_state, \"|\", { 0x00000001, \"S\" }, { 2, \"D\" }) : \"R\"\n";

    #[test]
    fn fields_lie_where_the_format_says_in_both_byte_orders() {
        for big_endian in [false, true] {
            let format = EventFormat::parse(SWITCH, big_endian).expect("a format");
            assert_eq!((format.id, format.name.as_str()), (372, "sched_switch"));
            assert_eq!(format.states, [(1, b'S'), (2, b'D')]);
            let mut record = vec![0; 36];
            record[8..13].copy_from_slice(b"bash\0");
            let prio = -1_i32;
            let place = (4_u32 << 16) | 36;
            let (prio, place) = if big_endian {
                (prio.to_be_bytes(), place.to_be_bytes())
            } else {
                (prio.to_le_bytes(), place.to_le_bytes())
            };
            record[28..32].copy_from_slice(&prio);
            record[32..36].copy_from_slice(&place);
            record.extend(b"cat\0");
            assert_eq!(format.text(&record, "prev_comm").as_deref(), Some("bash"));
            assert_eq!(format.number(&record, "prev_prio"), Some(-1));
            assert_eq!(format.text(&record, "child_comm").as_deref(), Some("cat"));
            assert_eq!(format.number(&record, "next_prio"), None);
            assert_eq!(format.number(&record[..20], "prev_prio"), None, "a short record");
        }
    }
}
