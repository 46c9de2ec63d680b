//! Targets for object files: `object` damages any part and loads, `scheduler` damages code and runs it.
//!
//! An input that begins as ELF does is taken as it stands. Any other names one of our objects, a kernel, and bytes of
//! it to change, which keeps inputs small.

use schedlab_bpf::btf::Btf;
use schedlab_bpf::image::ObjectImage;
use schedlab_model::machine::{KernelVersion, MachineDescription};
use schedlab_model::topology::Topology;
use schedlab_model::workload::builder::Builder;
use schedlab_model::workload::{Op, Workload};
use schedlab_model::{Nanos, TaskAttributes};
use schedlab_objects::{CONFORMANCE, SCHEDULERS, TESTS};
use schedlab_sim::ext::{ExtOptions, ExtScheduler, kernel_btf};
use schedlab_sim::{Scheduler, Simulation, SimulationConfig};
use std::sync::{Arc, OnceLock};

/// Objects to damage, by name, so that kept inputs go on to mean the same when others are added.
const BASES: &[&str] =
    &["fifo", "vtime", "fixed_priority", "features", "peek_dsq", "select_cpu_vtime", "numa", "dump"];
const KERNELS: &[&str] = &["7.2", "6.12", "6.18"];
/// Instructions of one callback: damaged loops must not cost seconds.
const INSTRUCTIONS_MAX: u64 = 20_000;

fn base(which: u8) -> &'static [u8] {
    let name = BASES[usize::from(which) % BASES.len()];
    let mut all = SCHEDULERS.iter().chain(TESTS).chain(CONFORMANCE);
    all.find(|object| object.name == name).unwrap_or(&SCHEDULERS[0]).bytes
}

fn kernel(which: u8) -> (KernelVersion, &'static Btf) {
    static TYPES: OnceLock<Vec<(KernelVersion, Btf)>> = OnceLock::new();
    let types = TYPES.get_or_init(|| {
        let versions = KERNELS.iter().map(|text| text.parse().expect("a version"));
        versions.map(|version| (version, kernel_btf(version))).collect()
    });
    let (version, types) = &types[usize::from(which) % types.len()];
    (*version, types)
}

fn number(bytes: &[u8], at: usize, length: usize) -> usize {
    bytes[at..at + length].iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte))
}

/// Where changes are worth it: headers and the sections that the loader reads, or only code.
fn places(bytes: &[u8], only_code: bool) -> Vec<usize> {
    let (table, count, names) = (number(bytes, 0x28, 8), number(bytes, 0x3c, 2), number(bytes, 0x3e, 2));
    let name_table = number(bytes, table + 64 * names + 0x18, 8);
    let mut at: Vec<usize> =
        if only_code { Vec::new() } else { (0..64).chain(table..table + 64 * count).collect() };
    for header in (0..count).map(|section| table + 64 * section) {
        let name = &bytes[name_table + number(bytes, header, 4)..];
        let debug = name.starts_with(b".debug") || name.starts_with(b".rel.debug");
        let (in_file, code) = (number(bytes, header + 4, 4) != 8, number(bytes, header + 8, 8) & 4 != 0);
        if in_file && !debug && (code || !only_code) {
            let offset = number(bytes, header + 0x18, 8);
            at.extend(offset..offset + number(bytes, header + 0x20, 8));
        }
    }
    at
}

/// The object that an input stands for.
fn damaged(input: &[u8], only_code: bool) -> Vec<u8> {
    if input.starts_with(b"\x7fELF") {
        return input.to_vec();
    }
    let which = input.first().copied().unwrap_or(0);
    let mut bytes = base(which).to_vec();
    static PLACES: OnceLock<Vec<[Vec<usize>; 2]>> = OnceLock::new();
    let known = PLACES.get_or_init(|| {
        (0..BASES.len() as u8).map(|which| [false, true].map(|code| places(base(which), code))).collect()
    });
    let places = &known[usize::from(which) % BASES.len()][usize::from(only_code)];
    for change in input.get(2..).unwrap_or_default().chunks_exact(4) {
        bytes[places[number(change, 0, 3) % places.len()]] = change[3];
    }
    bytes
}

/// Some inputs to begin with: each base as it is, and one changed byte.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let untouched = (0..BASES.len() as u8).map(|which| vec![which, which]);
    let changed = (0..BASES.len() as u8).map(|which| vec![which, 0, which * 7, which, 0, 0xff, 9, 9, 0, 1]);
    untouched.chain(changed).collect()
}

/// The fault planted for the canary: sections are read without a look at the file's length.
fn trusting_loader(bytes: &[u8]) -> usize {
    let (table, count) = (number(bytes, 0x28, 8), number(bytes, 0x3c, 2));
    let sections = (0..count).map(|section| table.wrapping_add(64 * section));
    let data = sections.map(|header| {
        let (offset, size) = (number(bytes, header + 0x18, 8), number(bytes, header + 0x20, 8));
        if number(bytes, header + 4, 4) == 8 { 0 } else { bytes[offset..offset + size].len() }
    });
    data.sum()
}

/// The target `object`.
///
/// # Panics
/// If loading does, or if what was loaded contradicts itself.
pub fn fuzz_object(input: &[u8], planted: bool) {
    let bytes = damaged(input, false);
    let (version, kernel) = kernel(input.get(1).copied().unwrap_or(0));
    if planted && bytes.len() >= 64 {
        trusting_loader(&bytes);
    }
    let Ok(image) = ObjectImage::load(&bytes, "damaged", kernel) else { return };
    for program in &image.programs {
        assert_eq!(program.reachable().len(), program.insns.len(), "an answer for each instruction");
    }
    drop(ExtScheduler::absent(&image, version));
    for knob in image.knobs() {
        assert_eq!(image.global(&knob.name), Ok(knob.value), "a knob reads as itself");
    }
    let written = image.btf.to_bytes();
    let again = Btf::parse(&written).expect("types that were parsed and written parse again");
    assert!(again.to_bytes() == written, "types that were parsed and written stay the same");
    let options = ExtOptions { interpreted: true, ..ExtOptions::default() };
    let topology = Topology::uniform(1, 1, 2, 1).expect("a topology");
    // What loads may still be refused; either is an answer.
    drop(ExtScheduler::new(image, version, &topology, options));
}

fn workload() -> Workload {
    let mut builder = Builder::new("three", "three tasks that run and sleep");
    for (name, run) in [("a", 300), ("b", 500), ("c", 900)] {
        let ops = vec![
            Op::LoopStart { count: 0 },
            Op::Run(Nanos::from_micros(run).into()),
            Op::Sleep(Nanos::from_micros(400).into()),
            Op::LoopEnd,
        ];
        builder.task(name, "p", TaskAttributes::default(), ops);
    }
    builder.finish(Some(Nanos::from_millis(20))).expect("valid")
}

/// What a run of the image in one engine shows to the outside.
fn run(image: ObjectImage, version: KernelVersion, interpreted: bool) -> String {
    let topology = Topology::uniform(1, 1, 2, 1).expect("a topology");
    let options = ExtOptions { interpreted, instructions_max: INSTRUCTIONS_MAX, ..ExtOptions::default() };
    let scheduler = match ExtScheduler::new(image, version, &topology, options) {
        Ok(scheduler) => scheduler,
        Err(error) => return error.to_string(),
    };
    let mut machine = MachineDescription::generic("two", topology);
    machine.kernel = version;
    let mut config = SimulationConfig::new(machine, Arc::new(workload()));
    config.scheduler = Scheduler::Ext(scheduler);
    let result = Simulation::new(config).and_then(|mut simulation| {
        let result = simulation.run(&mut schedlab_model::event::NullSink)?;
        Ok(format!("{} {:?}", result.report.event_hash, result.scheduler_exit))
    });
    result.unwrap_or_else(|error| error.to_string())
}

/// The target `scheduler`.
///
/// # Panics
/// If the run does, or if the engines differ. With `planted`, native code adds one more than it should.
pub fn fuzz_scheduler(input: &[u8], planted: bool) {
    let bytes = damaged(input, true);
    let (version, kernel) = kernel(input.get(1).copied().unwrap_or(0));
    let Ok(image) = ObjectImage::load(&bytes, "damaged", kernel) else { return };
    let interpreted = run(image.clone(), version, true);
    let mut native = image;
    if planted {
        let insns = native.programs.iter_mut().flat_map(|program| &mut program.insns);
        insns.filter(|insn| insn.code == 0x07).for_each(|insn| insn.imm = insn.imm.wrapping_add(1));
    }
    let native = run(native, version, false);
    assert_eq!(native, interpreted, "native code and interpreter differ");
}
