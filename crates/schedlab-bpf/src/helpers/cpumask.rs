//! `bpf_cpumask_*`: sets of CPUs. A mask is an array of 64-bit words in the region, CPU 0 the lowest bit.
//!
//! A `struct bpf_cpumask` is a `struct cpumask` with a reference count behind it; both begin with the bits.
//! The host's masks (`p->cpus_ptr`) are plain words it allocates itself.

use super::{Cx, Host};
use crate::exec::{CallContext, FaultKind, KfuncTable};
use crate::memory::Memory;

/// Bytes a mask's bits occupy.
fn mask_bytes(nr_cpus: u32) -> u64 {
    u64::from(nr_cpus.div_ceil(64)) * 8
}

impl<H: Host> CallContext<'_, H> {
    /// Bytes of a cpumask: whole 64-bit words for all possible CPUs.
    #[must_use]
    pub fn cpumask_bytes(&mut self) -> u64 {
        mask_bytes(self.nr_cpus())
    }
}

pub(super) fn add<H: Host>(table: &mut KfuncTable<H>) {
    table.add("bpf_cpumask_create", create::<H>);
    table.add("bpf_cpumask_acquire", acquire::<H>);
    table.add("bpf_cpumask_release", release::<H>);
    table.add("bpf_cpumask_release_dtor", release::<H>);
    table.add("bpf_cpumask_first", |cx: &mut Cx<'_, H>, a: u64| first(cx, a, 0, |a, _| a));
    table.add("bpf_cpumask_first_zero", |cx: &mut Cx<'_, H>, a: u64| first(cx, a, 0, |a, _| !a));
    table.add("bpf_cpumask_first_and", |cx: &mut Cx<'_, H>, a: u64, b: u64| first(cx, a, b, |a, b| a & b));
    table.add("bpf_cpumask_any_distribute", |cx: &mut Cx<'_, H>, a: u64| any(cx, a, a));
    table.add("bpf_cpumask_any_and_distribute", any::<H>);
    table.add("bpf_cpumask_set_cpu", |cx: &mut Cx<'_, H>, cpu: u64, a: u64| {
        change(cx, cpu, a, true).map(drop)
    });
    table.add("bpf_cpumask_clear_cpu", |cx: &mut Cx<'_, H>, cpu: u64, a: u64| {
        change(cx, cpu, a, false).map(drop)
    });
    table
        .add("bpf_cpumask_test_and_set_cpu", |cx: &mut Cx<'_, H>, cpu: u64, a: u64| change(cx, cpu, a, true));
    table.add("bpf_cpumask_test_and_clear_cpu", |cx: &mut Cx<'_, H>, cpu: u64, a: u64| {
        change(cx, cpu, a, false)
    });
    table.add("bpf_cpumask_test_cpu", test::<H>);
    table.add("bpf_cpumask_setall", |cx: &mut Cx<'_, H>, a: u64| {
        write(cx, a, a, a, |_, _| u64::MAX).map(drop)
    });
    table.add("bpf_cpumask_clear", |cx: &mut Cx<'_, H>, a: u64| write(cx, a, a, a, |_, _| 0).map(drop));
    table.add("bpf_cpumask_and", |cx: &mut Cx<'_, H>, d: u64, a: u64, b: u64| {
        write(cx, d, a, b, |a, b| a & b)
    });
    table.add("bpf_cpumask_or", |cx: &mut Cx<'_, H>, d: u64, a: u64, b: u64| {
        write(cx, d, a, b, |a, b| a | b).map(drop)
    });
    table.add("bpf_cpumask_xor", |cx: &mut Cx<'_, H>, d: u64, a: u64, b: u64| {
        write(cx, d, a, b, |a, b| a ^ b).map(drop)
    });
    table
        .add("bpf_cpumask_copy", |cx: &mut Cx<'_, H>, d: u64, a: u64| write(cx, d, a, a, |a, _| a).map(drop));
    table.add("bpf_cpumask_equal", |cx: &mut Cx<'_, H>, a: u64, b: u64| all(cx, a, b, |a, b| a == b));
    table.add("bpf_cpumask_intersects", |cx: &mut Cx<'_, H>, a: u64, b: u64| {
        !all(cx, a, b, |a, b| a & b == 0)
    });
    table.add("bpf_cpumask_subset", |cx: &mut Cx<'_, H>, a: u64, b: u64| all(cx, a, b, |a, b| a & !b == 0));
    table.add("bpf_cpumask_empty", |cx: &mut Cx<'_, H>, a: u64| all(cx, a, a, |a, _| a == 0));
    table.add("bpf_cpumask_full", |cx: &mut Cx<'_, H>, a: u64| !any_bit(cx, a, |a| !a));
    table.add("bpf_cpumask_weight", weight::<H>);
    table.add("bpf_cpumask_populate", populate::<H>);
}

/// Words of both masks, bits beyond the last CPU cleared by the caller's rule.
fn words<H: Host>(cx: &mut Cx<'_, H>, a: u64, b: u64, of: fn(u64, u64) -> u64) -> impl Iterator<Item = u64> {
    let nr_cpus = cx.nr_cpus();
    let memory: &Memory = cx.memory();
    (0..nr_cpus.div_ceil(64)).map(move |index| {
        let at = u64::from(index) * 8;
        let word = of(memory.read_u64(a.wrapping_add(at)), memory.read_u64(b.wrapping_add(at)));
        let left = nr_cpus - index * 64;
        if left < 64 { word & ((1 << left) - 1) } else { word }
    })
}

/// The first CPU, or `nr_cpus` if there is none.
fn first<H: Host>(cx: &mut Cx<'_, H>, a: u64, b: u64, of: fn(u64, u64) -> u64) -> u32 {
    let nr_cpus = cx.nr_cpus();
    let found = words(cx, a, b, of).enumerate().find(|(_, word)| *word != 0);
    found.map_or(nr_cpus, |(index, word)| index as u32 * 64 + word.trailing_zeros())
}

/// A CPU of both masks, the next one after the last answer: the kernel's `distribute` without its per-CPU
/// memory.
fn any<H: Host>(cx: &mut Cx<'_, H>, a: u64, b: u64) -> u32 {
    let nr_cpus = cx.nr_cpus();
    let previous = cx.state().cpumask_previous;
    let bits: Vec<u64> = words(cx, a, b, |a, b| a & b).collect();
    let set = |cpu: &u32| bits[(cpu / 64) as usize] >> (cpu % 64) & 1 != 0;
    let found = (previous + 1..nr_cpus).chain(0..=previous.min(nr_cpus - 1)).find(set);
    if let Some(cpu) = found {
        cx.state().cpumask_previous = cpu;
    }
    found.unwrap_or(nr_cpus)
}

fn all<H: Host>(cx: &mut Cx<'_, H>, a: u64, b: u64, holds: fn(u64, u64) -> bool) -> bool {
    let pairs: Vec<u64> = words(cx, a, b, |a, _| a).collect();
    let other: Vec<u64> = words(cx, a, b, |_, b| b).collect();
    pairs.iter().zip(&other).all(|(a, b)| holds(*a, *b))
}

fn any_bit<H: Host>(cx: &mut Cx<'_, H>, a: u64, of: fn(u64) -> u64) -> bool {
    let nr_cpus = cx.nr_cpus();
    words(cx, a, a, |a, _| a).enumerate().any(|(index, word)| {
        let left = nr_cpus - index as u32 * 64;
        let inside = if left < 64 { (1 << left) - 1 } else { u64::MAX };
        of(word) & inside != 0
    })
}

fn weight<H: Host>(cx: &mut Cx<'_, H>, a: u64) -> u32 {
    words(cx, a, a, |a, _| a).map(u64::count_ones).sum()
}

fn test<H: Host>(cx: &mut Cx<'_, H>, cpu: u64, mask: u64) -> bool {
    let cpu = cpu as u32;
    if cpu >= cx.nr_cpus() {
        return false;
    }
    cx.memory().read_u64(mask.wrapping_add(u64::from(cpu / 64) * 8)) >> (cpu % 64) & 1 != 0
}

/// Sets or clears a CPU and tells whether it was set.
fn change<H: Host>(cx: &mut Cx<'_, H>, cpu: u64, mask: u64, set: bool) -> Result<bool, FaultKind> {
    let cpu = cpu as u32;
    if cpu >= cx.nr_cpus() {
        return Ok(false);
    }
    let at = mask.wrapping_add(u64::from(cpu / 64) * 8);
    let (memory, bit) = (cx.memory(), 1_u64 << (cpu % 64));
    let old = memory.read_u64(at);
    let new = if set { old | bit } else { old & !bit };
    if memory.store(at, 0, 8, new) { Ok(old & bit != 0) } else { Err(FaultKind::Store { address: mask }) }
}

/// Writes a combination of two masks; `true` if any CPU is in it.
fn write<H: Host>(
    cx: &mut Cx<'_, H>,
    to: u64,
    a: u64,
    b: u64,
    of: fn(u64, u64) -> u64,
) -> Result<bool, FaultKind> {
    let result: Vec<u64> = words(cx, a, b, of).collect();
    let memory = cx.memory();
    for (index, word) in result.iter().enumerate() {
        if !memory.store(to.wrapping_add(8 * index as u64), 0, 8, *word) {
            return Err(FaultKind::Store { address: to });
        }
    }
    Ok(result.iter().any(|word| *word != 0))
}

/// Copies bytes the program has into a mask.
fn populate<H: Host>(cx: &mut Cx<'_, H>, mask: u64, from: u64, bytes: u64) -> Result<i64, FaultKind> {
    let size = cx.cpumask_bytes();
    if bytes < size {
        return Ok(-13);
    }
    write(cx, mask, from, from, |a, _| a)?;
    Ok(0)
}

/// Bytes of a `bpf_cpumask`: the bits and a reference count.
fn object_bytes(nr_cpus: u32) -> u64 {
    mask_bytes(nr_cpus) + 8
}

fn create<H: Host>(cx: &mut Cx<'_, H>) -> u64 {
    let nr_cpus = cx.nr_cpus();
    let Some(mask) = cx.memory().alloc(object_bytes(nr_cpus), 8) else { return 0 };
    cx.memory().write_u64(mask + mask_bytes(nr_cpus), 1);
    cx.state().cpumasks.insert(mask);
    mask
}

fn acquire<H: Host>(cx: &mut Cx<'_, H>, mask: u64) -> Result<u64, FaultKind> {
    if !cx.state().cpumasks.contains(&mask) {
        return Err(super::bad("bpf_cpumask_acquire", format!("{mask:#x} is no live mask")));
    }
    let count = mask + cx.cpumask_bytes();
    let references = cx.memory().read_u64(count);
    cx.memory().write_u64(count, references + 1);
    Ok(mask)
}

fn release<H: Host>(cx: &mut Cx<'_, H>, mask: u64) -> Result<(), FaultKind> {
    if cx.state().drop_cpumask(mask) {
        return Ok(());
    }
    Err(super::bad("bpf_cpumask_release", format!("{mask:#x} is no live mask: released twice?")))
}
