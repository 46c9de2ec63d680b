//! Helpers on text: printing, formatting, comparing, parsing.

use super::{Action, Cx, Host, bad, call, errno};
use crate::exec::{FaultKind, KfuncTable};
use crate::maps::{E2BIG, EINVAL, ENOENT};
use crate::memory::Memory;

/// Longest text a program can print.
const TEXT_BYTES_MAX: u64 = 1024;
const ERANGE: i64 = 34;

pub(super) fn find<H: Host>(id: u32) -> Option<(&'static str, Action)> {
    Some(match id {
        6 => ("bpf_trace_printk", call::<H, _>(trace_printk::<H>)),
        105 => ("bpf_strtol", call::<H, _>(strtol::<H>)),
        106 => ("bpf_strtoul", call::<H, _>(strtoul::<H>)),
        165 => ("bpf_snprintf", call::<H, _>(snprintf::<H>)),
        177 => ("bpf_trace_vprintk", call::<H, _>(trace_vprintk::<H>)),
        182 => ("bpf_strncmp", call::<H, _>(strncmp::<H>)),
        _ => return None,
    })
}

/// Longest text of `bpf_str*()` (`XATTR_SIZE_MAX`).
const STRING_BYTES_MAX: u64 = 65536;

/// The kfuncs on text that Linux has since 6.17.
pub(super) fn add<H: Host>(table: &mut KfuncTable<H>) {
    table.add("bpf_strlen", |cx: &mut Cx<'_, H>, s: u64| string_length(cx, s, STRING_BYTES_MAX));
    table.add("bpf_strnlen", |cx: &mut Cx<'_, H>, s: u64, n: u64| {
        let length = text(cx.memory(), s, n.min(STRING_BYTES_MAX)).len() as i64;
        if s == 0 { -ERANGE } else { length }
    });
    table.add("bpf_strcmp", |cx: &mut Cx<'_, H>, a: u64, b: u64| compare(cx, a, b, false));
    table.add("bpf_strcasecmp", |cx: &mut Cx<'_, H>, a: u64, b: u64| compare(cx, a, b, true));
    table.add("bpf_strchr", |cx: &mut Cx<'_, H>, s: u64, byte: u64| {
        find_byte(cx, s, |text| text.iter().position(|found| *found == byte as u8))
    });
    table.add("bpf_strrchr", |cx: &mut Cx<'_, H>, s: u64, byte: u64| {
        find_byte(cx, s, |text| text.iter().rposition(|found| *found == byte as u8))
    });
    table.add("bpf_strchrnul", |cx: &mut Cx<'_, H>, s: u64, byte: u64| {
        find_byte(cx, s, |text| {
            Some(text.iter().position(|found| *found == byte as u8).unwrap_or(text.len()))
        })
    });
    table.add("bpf_strnchr", |cx: &mut Cx<'_, H>, s: u64, count: u64, byte: u64| {
        let first = |text: &[u8]| text.iter().position(|found| *found == byte as u8);
        find_byte(cx, s, |text| first(text).filter(|at| (*at as u64) < count))
    });
    table.add("bpf_strspn", |cx: &mut Cx<'_, H>, s: u64, set: u64| span(cx, s, set, true));
    table.add("bpf_strcspn", |cx: &mut Cx<'_, H>, s: u64, set: u64| span(cx, s, set, false));
    table.add("bpf_strstr", |cx: &mut Cx<'_, H>, s: u64, wanted: u64| find_text(cx, s, wanted, u64::MAX));
    table.add("bpf_strnstr", find_text::<H>);
    table.add("bpf_strncasecmp", |cx: &mut Cx<'_, H>, a: u64, b: u64, n: u64| {
        compare_first(cx, a, b, n.min(STRING_BYTES_MAX))
    });
    table.add("bpf_strcasestr", |cx: &mut Cx<'_, H>, s: u64, wanted: u64| {
        find_folded(cx, s, wanted, u64::MAX)
    });
    table.add("bpf_strncasestr", find_folded::<H>);
    // Programs have no frames to print.
    table.add_constant("bpf_stream_print_stack", 0);
    table.add(
        "bpf_stream_vprintk",
        |cx: &mut Cx<'_, H>, _stream: u64, format: u64, data: u64, bytes: u64| {
            let line = cx.format(format, data, u64::from(bytes as u32));
            cx.state().log.push(line.trim_end_matches('\n').to_owned());
            0_u64
        },
    );
}

/// Bytes of a text; `-E2BIG` if it does not end, `-ERANGE` for NULL.
fn string_length<H: Host>(cx: &mut Cx<'_, H>, s: u64, most: u64) -> i64 {
    if s == 0 {
        return -ERANGE;
    }
    let length = text(cx.memory(), s, most).len() as u64;
    if length == most { -E2BIG } else { length as i64 }
}

/// Negative, 0 or positive as for `strcmp`, but never more than one off.
fn compare<H: Host>(cx: &mut Cx<'_, H>, a: u64, b: u64, fold: bool) -> i64 {
    if a == 0 || b == 0 {
        return -ERANGE;
    }
    let mut read = |at| {
        let text = text(cx.memory(), at, STRING_BYTES_MAX);
        if fold { text.to_ascii_lowercase() } else { text }
    };
    match read(a).cmp(&read(b)) {
        std::cmp::Ordering::Less => -1,
        std::cmp::Ordering::Equal => 0,
        std::cmp::Ordering::Greater => 1,
    }
}

/// Bytes at the start of a text that are all in a set, or all not.
fn span<H: Host>(cx: &mut Cx<'_, H>, s: u64, set: u64, inside: bool) -> i64 {
    if s == 0 || set == 0 {
        return -ERANGE;
    }
    let set = text(cx.memory(), set, STRING_BYTES_MAX);
    let text = text(cx.memory(), s, STRING_BYTES_MAX);
    text.iter().take_while(|byte| set.contains(byte) == inside).count() as i64
}

/// Index of a byte in a text, its end included.
fn find_byte<H: Host>(cx: &mut Cx<'_, H>, s: u64, find: impl Fn(&[u8]) -> Option<usize>) -> i64 {
    if s == 0 {
        return -ERANGE;
    }
    let mut content = text(cx.memory(), s, STRING_BYTES_MAX);
    content.push(0);
    find(&content).map_or(-ENOENT, |at| at as i64)
}

/// As `strncasecmp`, never more than one off.
fn compare_first<H: Host>(cx: &mut Cx<'_, H>, a: u64, b: u64, bytes: u64) -> i64 {
    if a == 0 || b == 0 {
        return -ERANGE;
    }
    let mut read = |at| text(cx.memory(), at, bytes).to_ascii_lowercase();
    read(a).cmp(&read(b)) as i64
}

/// Index of a text in the first bytes of another, in upper or lower case.
fn find_folded<H: Host>(cx: &mut Cx<'_, H>, s: u64, wanted: u64, bytes: u64) -> i64 {
    if s == 0 || wanted == 0 {
        return -ERANGE;
    }
    let content = text(cx.memory(), s, bytes.min(STRING_BYTES_MAX)).to_ascii_lowercase();
    let wanted = text(cx.memory(), wanted, STRING_BYTES_MAX).to_ascii_lowercase();
    if wanted.is_empty() {
        return 0;
    }
    content.windows(wanted.len()).position(|part| part == wanted).map_or(-ENOENT, |at| at as i64)
}

/// Index of a text in the first bytes of another.
fn find_text<H: Host>(cx: &mut Cx<'_, H>, s: u64, wanted: u64, bytes: u64) -> i64 {
    if s == 0 || wanted == 0 {
        return -ERANGE;
    }
    let content = text(cx.memory(), s, bytes.min(STRING_BYTES_MAX));
    let wanted = text(cx.memory(), wanted, STRING_BYTES_MAX);
    if wanted.is_empty() {
        return 0;
    }
    content.windows(wanted.len()).position(|part| part == wanted).map_or(-ENOENT, |at| at as i64)
}

/// The text at an address: up to its zero byte or `bytes`.
fn text(memory: &Memory, address: u64, bytes: u64) -> Vec<u8> {
    let bytes = bytes.min(memory.size().saturating_sub(address));
    let found = memory.bytes(address, bytes).unwrap_or_default();
    found.split(|byte| *byte == 0).next().unwrap_or_default().to_vec()
}

/// `bpf_trace_printk()`: a format and up to three arguments in registers. The fifth register holds the
/// third argument.
fn trace_printk<H: Host>(cx: &mut Cx<'_, H>, format: u64, bytes: u64, a: u64, b: u64, c: u64) -> u64 {
    let line = {
        let memory = cx.memory();
        format_text(memory, &text(memory, format, bytes), &[a, b, c])
    };
    let length = line.len() as u64;
    cx.state().log.push(String::from_utf8_lossy(&line).trim_end_matches('\n').to_owned());
    length
}

fn arguments(memory: &Memory, data: u64, bytes: u64) -> Vec<u64> {
    (0..bytes.min(128) / 8).map(|index| memory.read_u64(data.wrapping_add(8 * index))).collect()
}

fn trace_vprintk<H: Host>(cx: &mut Cx<'_, H>, format: u64, bytes: u64, data: u64, data_bytes: u64) -> u64 {
    let line = {
        let memory = cx.memory();
        format_text(memory, &text(memory, format, bytes), &arguments(memory, data, data_bytes))
    };
    let length = line.len() as u64;
    cx.state().log.push(String::from_utf8_lossy(&line).trim_end_matches('\n').to_owned());
    length
}

/// Bytes of the whole text with its zero, even if it was cut.
fn snprintf<H: Host>(
    cx: &mut Cx<'_, H>,
    to: u64,
    bytes: u64,
    format: u64,
    data: u64,
    data_bytes: u64,
) -> Result<u64, FaultKind> {
    let memory = cx.memory();
    let line =
        format_text(memory, &text(memory, format, TEXT_BYTES_MAX), &arguments(memory, data, data_bytes));
    if bytes > 0 {
        let Some(place) = memory.bytes_mut(to, bytes) else {
            return Err(bad("bpf_snprintf", format!("cannot write {bytes} bytes to {to:#x}")));
        };
        let kept = line.len().min(bytes as usize - 1);
        place[..kept].copy_from_slice(&line[..kept]);
        place[kept] = 0;
    }
    Ok(line.len() as u64 + 1)
}

impl<H: Host> crate::exec::CallContext<'_, H> {
    /// Formats text as `bpf_snprintf()` does: a format in the region and its arguments as 64-bit words
    /// there. For kfuncs that print, such as `scx_bpf_error_bstr`.
    #[must_use]
    pub fn format(&mut self, format: u64, data: u64, data_bytes: u64) -> String {
        let memory = self.memory();
        let line =
            format_text(memory, &text(memory, format, TEXT_BYTES_MAX), &arguments(memory, data, data_bytes));
        String::from_utf8_lossy(&line).into_owned()
    }
}

/// One conversion of a format.
#[derive(Default)]
struct Conversion {
    left: bool,
    zero: bool,
    alternate: bool,
    width: usize,
    precision: Option<usize>,
    /// Bits of the argument.
    bits: u32,
}

/// The kernel's format language as far as programs may use it: d i u x X c s p with flags, width, l and ll.
fn format_text(memory: &Memory, format: &[u8], arguments: &[u64]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut arguments = arguments.iter().copied();
    let mut rest = format;
    while let Some((byte, tail)) = rest.split_first() {
        rest = tail;
        if *byte != b'%' {
            out.push(*byte);
            continue;
        }
        let (conversion, kind, tail) = parse_conversion(rest);
        rest = tail;
        match kind {
            Some(b'%') => out.push(b'%'),
            Some(kind) => {
                // A pointer may carry a suffix (%pK, %ps); it prints as a plain address here.
                if kind == b'p' && rest.first().is_some_and(|next| matches!(next, b'K' | b's' | b'S' | b'B'))
                {
                    rest = &rest[1..];
                }
                let argument = arguments.next().unwrap_or(0);
                out.extend(converted(memory, &conversion, kind, argument));
            }
            None => {}
        }
        if out.len() as u64 >= TEXT_BYTES_MAX {
            out.truncate(TEXT_BYTES_MAX as usize);
            break;
        }
    }
    out
}

fn parse_conversion(mut rest: &[u8]) -> (Conversion, Option<u8>, &[u8]) {
    let mut conversion = Conversion { bits: 32, ..Conversion::default() };
    let mut precision = false;
    while let Some((byte, tail)) = rest.split_first() {
        rest = tail;
        match byte {
            b'-' => conversion.left = true,
            b'#' => conversion.alternate = true,
            b'0' if conversion.width == 0 && !precision => conversion.zero = true,
            b'0'..=b'9' => {
                let digit = usize::from(byte - b'0');
                let number =
                    if precision { conversion.precision.get_or_insert(0) } else { &mut conversion.width };
                *number = (*number * 10 + digit).min(TEXT_BYTES_MAX as usize);
            }
            b'.' => {
                precision = true;
                conversion.precision = Some(0);
            }
            b'+' | b' ' => {}
            b'h' => conversion.bits = (conversion.bits / 2).max(8),
            b'l' | b'z' | b't' => conversion.bits = 64,
            kind => return (conversion, Some(*kind), rest),
        }
    }
    (conversion, None, rest)
}

fn converted(memory: &Memory, conversion: &Conversion, kind: u8, argument: u64) -> Vec<u8> {
    let unused = 64 - conversion.bits;
    let unsigned = argument << unused >> unused;
    let signed = (argument << unused) as i64 >> unused;
    let prefix = if conversion.alternate { "0x" } else { "" };
    let body = match kind {
        b'd' | b'i' => signed.to_string().into_bytes(),
        b'u' => unsigned.to_string().into_bytes(),
        b'x' => format!("{prefix}{unsigned:x}").into_bytes(),
        b'X' => format!("{prefix}{unsigned:X}").into_bytes(),
        b'p' => format!("{argument:016x}").into_bytes(),
        b'c' => vec![argument as u8],
        b's' => {
            let longest = conversion.precision.unwrap_or(TEXT_BYTES_MAX as usize);
            text(memory, argument, longest as u64)
        }
        other => vec![b'%', other],
    };
    let missing = conversion.width.saturating_sub(body.len());
    if conversion.left {
        [body, vec![b' '; missing]].concat()
    } else if conversion.zero && matches!(kind, b'd' | b'i') && signed < 0 {
        [vec![b'-'], vec![b'0'; missing], body[1..].to_vec()].concat()
    } else {
        let fill = if conversion.zero && kind != b's' { b'0' } else { b' ' };
        [vec![fill; missing], body].concat()
    }
}

/// Compares up to `bytes` bytes; the sign of the first difference.
fn strncmp<H: Host>(cx: &mut Cx<'_, H>, first: u64, bytes: u64, second: u64) -> i64 {
    let memory = cx.memory();
    for index in 0..u64::from(bytes as u32) {
        let a = memory.read_u8(first.wrapping_add(index));
        let b = memory.read_u8(second.wrapping_add(index));
        if a != b {
            return if a < b { -1 } else { 1 };
        }
        if a == 0 {
            break;
        }
    }
    0
}

fn strtol<H: Host>(cx: &mut Cx<'_, H>, from: u64, bytes: u64, flags: u64, to: u64) -> Result<u64, FaultKind> {
    parse(cx, from, bytes, flags, to, true)
}

fn strtoul<H: Host>(
    cx: &mut Cx<'_, H>,
    from: u64,
    bytes: u64,
    flags: u64,
    to: u64,
) -> Result<u64, FaultKind> {
    parse(cx, from, bytes, flags, to, false)
}

/// Parses a number in base 8, 10, 16, or by its prefix; gives the bytes used.
fn parse<H: Host>(
    cx: &mut Cx<'_, H>,
    from: u64,
    bytes: u64,
    flags: u64,
    to: u64,
    signed: bool,
) -> Result<u64, FaultKind> {
    let memory = cx.memory();
    let content = text(memory, from, bytes.min(TEXT_BYTES_MAX));
    let blanks = content.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
    let mut at = blanks;
    let negative = signed && content.get(at) == Some(&b'-');
    at += usize::from(negative);
    let tail = content[at..].to_ascii_lowercase();
    let base = match flags & 0x1f {
        0 if tail.starts_with(b"0x") => 16,
        0 if tail.starts_with(b"0") => 8,
        0 => 10,
        base @ (8 | 10 | 16) => base as u32,
        _ => return Ok(errno(EINVAL)),
    };
    at += if base == 16 && tail.starts_with(b"0x") { 2 } else { 0 };
    let digits = content[at..].iter().take_while(|byte| char::from(**byte).is_digit(base)).count();
    if digits == 0 {
        return Ok(errno(EINVAL));
    }
    let number = content[at..at + digits].iter().try_fold(0_i128, |value, byte| {
        let value = value * i128::from(base) + i128::from(char::from(*byte).to_digit(base).unwrap_or(0));
        (value <= i128::from(u64::MAX)).then_some(value)
    });
    let number = number.map(|value| if negative { -value } else { value });
    let fits =
        |value: &i128| if signed { i64::try_from(*value).is_ok() } else { u64::try_from(*value).is_ok() };
    let Some(number) = number.filter(fits) else { return Ok(errno(ERANGE)) };
    if !memory.store(to, 0, 8, number as u64) {
        return Err(FaultKind::Store { address: to });
    }
    Ok((at + digits) as u64)
}
