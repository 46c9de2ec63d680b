//! Changes inputs at random for the short rounds of the tests: they know no coverage, but start from a corpus that does.

use crate::source::Source;

/// Numbers at which code likes to break.
const EDGES: [u64; 10] = [0, 1, 0x7f, 0xff, 0x7fff, 0xffff, 0x7fff_ffff, 0xffff_ffff, 1 << 63, u64::MAX];

/// A few changes to an input; `other` lends pieces.
pub fn mutate(input: &[u8], other: &[u8], words: &[&str], source: &mut Source) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..1 + source.below(6) {
        let at = source.below(bytes.len() as u64 + 1) as usize;
        match source.below(9) {
            0 | 1 if at < bytes.len() => bytes[at] = source.below(256) as u8,
            2 if at < bytes.len() => bytes[at] ^= 1 << source.below(8),
            3 => {
                let (edge, size) = (source.pick(&EDGES).to_le_bytes(), source.pick(&[1, 2, 4, 8]));
                for (place, byte) in bytes[at..].iter_mut().zip(&edge[..size]) {
                    *place = *byte;
                }
            }
            4 => {
                let end = (at + 1 + source.below(16) as usize).min(bytes.len());
                drop(bytes.drain(at..end));
            }
            5 => {
                let from = source.below(other.len() as u64 + 1) as usize;
                let end = (from + 1 + source.below(64) as usize).min(other.len());
                drop(bytes.splice(at..at, other[from..end].iter().copied()));
            }
            6 if !words.is_empty() => {
                drop(bytes.splice(at..at, source.pick(words).bytes()));
            }
            7 if bytes[at..].iter().any(u8::is_ascii_digit) => {
                // Numbers written as text become longer.
                let digit = at + bytes[at..].iter().position(u8::is_ascii_digit).unwrap_or(0);
                let digits = source.number().to_string();
                drop(bytes.splice(digit..digit, digits.bytes().take(1 + source.below(6) as usize)));
            }
            _ => {
                let made = source.number().to_le_bytes();
                drop(bytes.splice(at..at, made[..1 + source.below(4) as usize].iter().copied()));
            }
        }
    }
    bytes
}
