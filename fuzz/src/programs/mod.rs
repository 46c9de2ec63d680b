//! Random BPF programs for the differential test, and the check that both engines agree on them.
//!
//! Programs are valid (they decode and link) but wild: pointers are random, results of look-ups are used
//! without a test, loops may not end. What the verifier would reject must still behave the same in both
//! engines. Not a test itself: the target `program` and `tests/differential.rs` run it.

mod statements;

use schedlab_bpf::asm::*;
use schedlab_bpf::exec::{CallContext, Compiled, FaultKind, Host, KfuncTable, Options, PrivateStacks};
use schedlab_bpf::image::{Insn, MapImage, ObjectImage};
use schedlab_bpf::maps::kind;

use crate::source::Source;

/// A host that remembers what it was asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Witness {
    hash: u64,
    depth: u32,
}

impl Host for Witness {}

impl Witness {
    fn note(&mut self, values: &[u64]) -> u64 {
        for value in values {
            self.hash = (self.hash ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
        }
        self.hash
    }
}

pub(crate) const KFUNC_MIX: i32 = 1;
pub(crate) const KFUNC_REENTER: i32 = 2;
pub(crate) const KFUNC_FAULT: i32 = 3;
pub(crate) const KFUNC_NOW: i32 = 4;
pub(crate) const KFUNC_LOAD: i32 = 5;
/// Ids of the kfuncs that exist without the host.
pub const KFUNCS_GENERIC_FROM: i32 = 100;

/// Names of the kfuncs that exist without the host.
pub fn generic_names() -> &'static [String] {
    static NAMES: std::sync::OnceLock<Vec<String>> = std::sync::OnceLock::new();
    NAMES.get_or_init(|| KfuncTable::<Witness>::new().names().map(str::to_owned).collect())
}

/// The maps every program can use; the first two are arrays.
pub const MAPS: u32 = 10;
/// The array of programs among them; its slots hold programs 0 to 2.
pub(crate) const PROGRAMS: i32 = 9;

fn kfuncs() -> KfuncTable<Witness> {
    type Cx<'a> = CallContext<'a, Witness>;
    let mut table = KfuncTable::new();
    table.add("mix", |cx: &mut Cx<'_>, a: u64, b: u64, c: u64, d: u64, e: u64| {
        cx.host().note(&[a, b, c, d, e])
    });
    // Calls the object's first program while another one runs, three deep at most.
    table.add("reenter", |cx: &mut Cx<'_>, a: u64, b: u64| {
        if cx.host().depth == 3 {
            return 0;
        }
        cx.host().depth += 1;
        let before = cx.executed();
        let value = cx.call(0, &[a, b]).unwrap_or(77);
        let executed = cx.executed() - before;
        cx.host().note(&[value, executed]);
        cx.host().depth -= 1;
        value
    });
    table.add("fault", |cx: &mut Cx<'_>, a: u64| {
        cx.host().note(&[a]);
        if a & 7 == 0 { Err(FaultKind::Host("unlucky".to_owned())) } else { Ok(a) }
    });
    table.add_context("now", schedlab_bpf::exec::ContextField::Now);
    table.add_load("load", 16, 4, true);
    table
}

/// An object of `programs` random programs.
pub fn random_object(random: &mut Source, programs: usize) -> ObjectImage {
    let slots = (0..programs.min(3) as u32).map(|program| (2 * program, program));
    let made = (0..programs).map(|index| statements::program(random, &format!("p{index}")));
    let mut kfuncs = vec![(1, "mix"), (2, "reenter"), (3, "fault"), (4, "now"), (5, "load")];
    let generic = generic_names().iter().enumerate();
    kfuncs.extend(generic.map(|(index, name)| (index as u32 + KFUNCS_GENERIC_FROM as u32, name.as_str())));
    object(
        made.collect(),
        vec![
            map("array", kind::ARRAY, 4, 20, 6),
            map("percpu", kind::PERCPU_ARRAY, 4, 16, 3),
            map("hash", kind::HASH, 4, 24, 4),
            map("lru", kind::LRU_PERCPU_HASH, 4, 8, 2),
            map("queue", kind::QUEUE, 0, 12, 3),
            map("ring", kind::RINGBUF, 0, 0, 256),
            map("storage", kind::TASK_STORAGE, 4, 16, 0),
            MapImage { map_flags: 1, ..map("trie", kind::LPM_TRIE, 8, 16, 4) },
            map("bloom", kind::BLOOM_FILTER, 0, 8, 4),
            MapImage { inner: slots.collect(), ..map("programs", kind::PROG_ARRAY, 4, 4, 6) },
        ],
        &kfuncs,
    )
}

/// What one engine did with a program.
#[derive(PartialEq, Eq)]
struct Outcome {
    results: Vec<String>,
    executed: u64,
    witness: Witness,
    memory: Vec<u8>,
}

fn outcome(compiled: &Compiled<Witness>, program: usize, seed: u64, interpreted: bool) -> Outcome {
    let mut instance = compiled.instance(seed);
    instance.set_interpreted(interpreted);
    let mut random = Source::seeded(seed);
    let mut witness = Witness::default();
    let mut results = Vec::new();
    for round in 0..3_u64 {
        let mut context = instance.enter(&mut witness);
        context.set_now(1000 * round + 5);
        context.set_cpu(round as u32 % 2);
        let arguments = [random.number(), random.below(100), 0x40000 + random.below(4096)];
        results.push(match context.call(program, &arguments) {
            Ok(value) => format!("{value:#x}"),
            Err(fault) => fault.to_string(),
        });
    }
    let executed = instance.executed();
    let size = instance.memory().size();
    let memory = instance.memory().bytes(0, size).expect("the whole region").to_vec();
    Outcome { results, executed, witness, memory }
}

/// Instructions executed by one engine, or how the engines differ. `native` is what native code is made from.
fn compare(
    native: &Compiled<Witness>,
    compiled: &Compiled<Witness>,
    program: usize,
    seed: u64,
) -> Result<(u64, u64), String> {
    let native = outcome(native, program, seed, false);
    let interpreted = outcome(compiled, program, seed, true);
    if native == interpreted {
        let faults = native.results.iter().filter(|result| result.starts_with("program")).count();
        return Ok((native.executed, faults as u64));
    }
    let place = native.memory.iter().zip(&interpreted.memory).position(|(a, b)| a != b);
    Err(format!(
        "program {program}, seed {seed}: native {:?} after {}, interpreted {:?} after {}, first byte of memory that differs: {place:x?}\n{}",
        native.results,
        native.executed,
        interpreted.results,
        interpreted.executed,
        listing(&compiled.image().programs[program].insns),
    ))
}

fn listing(insns: &[Insn]) -> String {
    let line = |(at, insn): (usize, &Insn)| {
        format!(
            "{at:4}: {:#04x} dst r{} src r{} off {} imm {}\n",
            insn.code,
            insn.regs & 15,
            insn.regs >> 4,
            insn.off,
            insn.imm
        )
    };
    insns.iter().enumerate().map(line).collect()
}

fn options() -> Options {
    // Whatever happens to stacks, the engines must do the same.
    Options { memory_bytes_log2: 19, nr_cpus: 2, budget: 3000, private_stacks: None, ..Options::default() }
}

/// The target `program`: both engines on what the bytes make, which may be instructions as they stand.
///
/// # Panics
/// If the engines differ. With `planted`, native code shifts right without sign where it should with it.
pub fn fuzz(bytes: &[u8], planted: bool) {
    let Some((kind, rest)) = bytes.split_first() else { return };
    let mut image = random_object(&mut Source::of(rest), 1);
    if kind & 1 == 1 {
        image.programs[0] = schedlab_bpf::asm::program("raw", raw(rest), &[]);
    }
    let table = kfuncs();
    let checked = Options { private_stacks: Some(PrivateStacks::default()), ..options() };
    if kind & 2 == 2 && Compiled::new(image.clone(), &table, checked).is_err() {
        return;
    }
    // Raw instructions may be refused; they must not do harm.
    let Ok(compiled) = Compiled::new(image.clone(), &table, options()) else {
        assert!(kind & 1 == 1, "a generated program is refused");
        return;
    };
    let broken = planted.then(|| {
        miscompile(&mut image.programs[0].insns);
        Compiled::new(image, &table, options()).expect("another shift is as valid")
    });
    let native = broken.as_ref().unwrap_or(&compiled);
    if let Err(difference) = compare(native, &compiled, 0, rest.len() as u64) {
        panic!("the engines differ: {difference}");
    }
}

/// Instructions from bytes, ended so that control stays inside.
fn raw(bytes: &[u8]) -> Vec<Insn> {
    let insn = |chunk: &[u8]| Insn {
        code: chunk[0],
        regs: chunk[1],
        off: i16::from_le_bytes([chunk[2], chunk[3]]),
        imm: i32::from_le_bytes([chunk[4], chunk[5], chunk[6], chunk[7]]),
    };
    bytes.chunks_exact(8).take(256).map(insn).chain([exit()]).collect()
}

/// The fault planted for the canary: signed shifts become unsigned ones.
fn miscompile(insns: &mut [Insn]) {
    for insn in insns {
        let arithmetic = matches!(insn.code & 7, 4 | 7);
        if arithmetic && insn.code & 0xf0 == alu::ARSH {
            insn.code = insn.code & 0x0f | alu::RSH;
        }
    }
}

/// Totals of a run.
#[derive(Debug, Default)]
pub struct Totals {
    /// Programs.
    pub programs: u64,
    /// Instructions executed.
    pub instructions: u64,
    /// Calls that ended with a fault.
    pub faults: u64,
    /// Where the engines differed.
    pub differences: Vec<String>,
}

/// Runs `programs` random programs in both engines. The seed is the run.
pub fn run(programs: u64, seed: u64) -> Totals {
    const BATCH: u64 = 64;
    let mut totals = Totals::default();
    let table = kfuncs();
    let mut batch = 0;
    while totals.programs < programs {
        let batch_seed = seed.wrapping_mul(1_000_003).wrapping_add(batch);
        let count = BATCH.min(programs - totals.programs);
        let image = random_object(&mut Source::seeded(batch_seed), count as usize);
        let compiled = Compiled::new(image, &table, options()).expect("generated programs are valid");
        for program in 0..count {
            match compare(&compiled, &compiled, program as usize, batch_seed.wrapping_add(program)) {
                Ok((instructions, faults)) => {
                    totals.instructions += instructions;
                    totals.faults += faults;
                }
                Err(difference) => totals.differences.push(format!("batch {batch_seed}: {difference}")),
            }
            totals.programs += 1;
        }
        batch += 1;
    }
    totals
}
