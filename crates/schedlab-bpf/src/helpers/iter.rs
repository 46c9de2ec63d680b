//! The number iterator behind `bpf_for()` and `bpf_repeat()`: `bpf_iter_num_new/next/destroy`.

use super::{Cx, Host};
use crate::exec::{FaultKind, KfuncTable};
use crate::maps::{E2BIG, EINVAL};

/// Numbers one iterator may give, as the kernel's `BPF_MAX_LOOPS`.
const NUMBERS_MAX: i64 = 8 * 1024 * 1024;

pub(super) fn add<H: Host>(table: &mut KfuncTable<H>) {
    table.add("bpf_iter_num_new", new::<H>);
    table.add("bpf_iter_num_next", next::<H>);
    table.add("bpf_iter_num_destroy", destroy::<H>);
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
