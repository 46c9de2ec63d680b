//! Iterators over numbers (`bpf_for()`, `bpf_repeat()`) and over the set bits of words
//! (`bpf_for_each(bits, ...)`).

use super::{Cx, Host};
use crate::exec::{FaultKind, KfuncTable};
use crate::maps::{E2BIG, EFAULT, EINVAL, ENOMEM};

/// Numbers one iterator may give, as the kernel's `BPF_MAX_LOOPS`.
const NUMBERS_MAX: i64 = 8 * 1024 * 1024;

pub(super) fn add<H: Host>(table: &mut KfuncTable<H>) {
    table.add("bpf_iter_num_new", new::<H>);
    table.add("bpf_iter_num_next", next::<H>);
    table.add("bpf_iter_num_destroy", destroy::<H>);
    bits_add(table);
}

fn put<H: Host>(cx: &mut Cx<'_, H>, iter: u64, current: i32, end: i32) -> Result<(), FaultKind> {
    let value = u64::from(current as u32) | u64::from(end as u32) << 32;
    if cx.memory().store(iter, 0, 8, value) { Ok(()) } else { Err(FaultKind::Store { address: iter }) }
}

/// The kernel keeps the number before the first in `cur`, and both zero when there is nothing to give.
fn new<H: Host>(cx: &mut Cx<'_, H>, iter: u64, start: u64, end: u64) -> Result<i64, FaultKind> {
    let (start, end) = (start as i32, end as i32);
    let error = match i64::from(end) - i64::from(start) {
        ..0 => EINVAL,
        0..=NUMBERS_MAX => 0,
        _ => E2BIG,
    };
    if error != 0 {
        put(cx, iter, 0, 0)?;
        return Ok(-error);
    }
    put(cx, iter, start.wrapping_sub(1), end)?;
    Ok(0)
}

fn next<H: Host>(cx: &mut Cx<'_, H>, iter: u64) -> Result<u64, FaultKind> {
    let current = cx.memory().load(iter, 0, 4) as i32;
    let end = cx.memory().load(iter, 4, 4) as i32;
    if i64::from(current) + 1 >= i64::from(end) {
        put(cx, iter, 0, 0)?;
        return Ok(0);
    }
    put(cx, iter, current + 1, end)?;
    Ok(iter)
}

fn destroy<H: Host>(cx: &mut Cx<'_, H>, iter: u64) -> Result<(), FaultKind> {
    put(cx, iter, 0, 0)
}

/// Words one `bpf_for_each(bits, ...)` may walk (`BITS_ITER_NR_WORDS_MAX`).
const BITS_WORDS_MAX: u64 = 511;
/// Bytes of the copy behind the iterator: position and number of bits, then the words.
const BITS_HEADER: u64 = 16;

fn bits_add<H: Host>(table: &mut KfuncTable<H>) {
    table.add("bpf_iter_bits_new", bits_new::<H>);
    table.add("bpf_iter_bits_next", bits_next::<H>);
    table.add("bpf_iter_bits_destroy", bits_destroy::<H>);
}

fn set_word<H: Host>(cx: &mut Cx<'_, H>, at: u64, value: u64) -> Result<(), FaultKind> {
    if cx.memory().store(at, 0, 8, value) { Ok(()) } else { Err(FaultKind::Store { address: at }) }
}

/// Copies the words: what the program changes meanwhile does not count, as in the kernel.
fn bits_new<H: Host>(cx: &mut Cx<'_, H>, iter: u64, from: u64, words: u64) -> Result<i64, FaultKind> {
    let words = u64::from(words as u32);
    set_word(cx, iter, 0)?;
    set_word(cx, iter.wrapping_add(8), 0)?;
    if from == 0 || words == 0 {
        return Ok(-EINVAL);
    }
    if words > BITS_WORDS_MAX {
        return Ok(-E2BIG);
    }
    let Some(content) = cx.memory().bytes(from, 8 * words).map(<[u8]>::to_vec) else { return Ok(-EFAULT) };
    let Some(block) = cx.memory().alloc(BITS_HEADER + 8 * words, 8) else { return Ok(-ENOMEM) };
    if let Some(place) = cx.memory().bytes_mut(block + BITS_HEADER, 8 * words) {
        place.copy_from_slice(&content);
    }
    set_word(cx, iter, block)?;
    set_word(cx, iter.wrapping_add(8), words)?;
    Ok(0)
}

/// Where the next set bit's number lies; 0 at the end.
fn bits_next<H: Host>(cx: &mut Cx<'_, H>, iter: u64) -> Result<u64, FaultKind> {
    let (block, words) = (cx.memory().read_u64(iter), cx.memory().read_u64(iter.wrapping_add(8)));
    if block == 0 || words > BITS_WORDS_MAX {
        return Ok(0);
    }
    let mut bit = cx.memory().read_u64(block + 8);
    while bit < 64 * words {
        let rest = cx.memory().read_u64(block + BITS_HEADER + bit / 64 * 8) >> (bit % 64);
        if rest != 0 {
            bit += u64::from(rest.trailing_zeros());
            set_word(cx, block, bit)?;
            set_word(cx, block + 8, bit + 1)?;
            return Ok(block);
        }
        bit = (bit / 64 + 1) * 64;
    }
    set_word(cx, block + 8, 64 * words)?;
    Ok(0)
}

fn bits_destroy<H: Host>(cx: &mut Cx<'_, H>, iter: u64) -> Result<(), FaultKind> {
    let (block, words) = (cx.memory().read_u64(iter), cx.memory().read_u64(iter.wrapping_add(8)));
    if block != 0 && words <= BITS_WORDS_MAX && cx.memory().can_store(block) {
        cx.memory().free(block, BITS_HEADER + 8 * words, 8);
    }
    set_word(cx, iter, 0)
}
