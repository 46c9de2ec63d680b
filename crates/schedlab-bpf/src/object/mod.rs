//! Loads a BPF object: from ELF bytes and a kernel's types to the instructions that libbpf would leave.
//!
//! Order of work, as in libbpf: `elf` sections and symbols; `functions`; `externs`; `maps`; `struct_ops`;
//! `relocate` reads relocations; externs are resolved and struct_ops checked against the kernel; `core`
//! patches field accesses; `link` joins subprograms and writes references. [`knobs`] reads and writes the
//! global variables of the result.
//!
//! Differences from libbpf: names of data maps are those of their sections; addresses of untyped kernel
//! symbols are unknown (weak ones read 0, strong ones are an error); kernel modules have no types here;
//! `__SCX_*` variables are set from the kernel's enumerators, as their user halves do (`enumerators`);
//! a struct_ops type needs no `bpf_struct_ops_` wrapper; arena variables lie at the arena's start, as
//! libbpf places them on kernels up to 6.19.

mod core;
mod elf;
mod enumerators;
mod error;
mod ext;
mod externs;
mod functions;
mod insn;
pub mod knobs;
mod link;
mod maps;
mod reach;
mod relocate;
mod since;
mod struct_ops;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::btf::Btf;
use crate::image::{Insn, MapOrigin, ObjectImage, ProgramImage, StructOpsImage};
use elf::Elf;
pub use error::LoadError;
use ext::BtfExt;
use externs::{Extern, What};
use functions::Functions;
use maps::MapEntry;
use struct_ops::StructOps;

/// Code of a call, and the helper whose calls need the kernel's types.
const HELPER_CALL: u8 = 0x85;
const SNPRINTF_BTF: u32 = 149;

impl ObjectImage {
    /// Loads an object for a kernel.
    ///
    /// `bytes` is the file, `name` appears in messages, `kernel` gives the types that accesses and kernel
    /// functions are resolved against (`/sys/kernel/btf/vmlinux`, or those of a simulated kernel).
    pub fn load(bytes: &[u8], name: &str, kernel: &Btf) -> Result<ObjectImage, LoadError> {
        let elf = Elf::parse(bytes)?;
        let btf = Btf::parse(elf.section(".BTF").ok_or(LoadError::NoBtf)?.data)?;
        let ext = match elf.section(".BTF.ext") {
            Some(section) => BtfExt::parse(section.data, &btf)?,
            None => BtfExt::default(),
        };
        let mut functions = Functions::collect(&elf)?;
        let mut externs = externs::collect(&elf, &btf)?;
        let maps = maps::collect(&elf, &btf, &externs)?;
        let struct_ops = struct_ops::collect(&elf, &btf, &functions)?;
        relocate::collect(&elf, &maps, &externs, &mut functions)?;

        let mut problems = externs::resolve(&mut externs, &btf, kernel);
        for ops in struct_ops.iter().filter(|ops| ops.autocreate) {
            problems.extend(struct_ops::check(ops, &btf, kernel));
        }
        LoadError::unless_none(problems)?;
        struct_ops::adjust_autoload(&struct_ops, &mut functions);
        let mut sections: BTreeMap<String, usize> = BTreeMap::new();
        for (index, section) in elf.sections.iter().enumerate() {
            sections.entry(section.name.to_string()).or_insert(index);
        }
        core::relocate(&mut functions, &ext, &sections, &btf, kernel)?;

        let (programs, program_of) = link_all(&elf, &btf, &ext, &functions, &externs, &maps)?;
        let mut maps = maps;
        maps::fill_programs(&elf, &btf, &functions, &program_of, &mut maps)?;
        let mut image = ObjectImage {
            name: name.to_string(),
            license: license(&elf),
            programs,
            globals: maps::globals(&elf, &btf, &maps),
            maps: maps.into_iter().map(|m| m.image).collect(),
            struct_ops: struct_ops_images(&struct_ops, &program_of),
            kfuncs: resolved(&externs, |what| matches!(what, What::Func { .. }), kernel),
            ksym_vars: resolved(&externs, |what| matches!(what, What::Var { .. }), kernel),
            kconfig: externs::kconfig_list(&externs),
            btf,
            kernel: None,
        };
        enumerators::import(&mut image, kernel);
        if calls_helper(&image.programs, SNPRINTF_BTF) {
            image.kernel = Some(Arc::new(kernel.clone()));
        }
        Ok(image)
    }
}

/// Whether any program calls a helper.
fn calls_helper(programs: &[ProgramImage], id: u32) -> bool {
    let call = |insn: &Insn| insn.code == HELPER_CALL && insn.regs >> 4 == 0 && insn.imm == id as i32;
    programs.iter().any(|program| program.insns.iter().any(call))
}

/// Text up to the first zero.
fn license(elf: &Elf<'_>) -> String {
    let data = elf.section("license").map_or(&[][..], |s| s.data);
    let end = data.iter().position(|&b| b == 0).unwrap_or(data.len());
    String::from_utf8_lossy(&data[..end]).into_owned()
}

/// Links every entry program that is to be loaded; also tells which program each function became.
fn link_all(
    elf: &Elf<'_>,
    btf: &Btf,
    ext: &BtfExt,
    functions: &Functions,
    externs: &[Extern],
    maps: &[MapEntry],
) -> Result<(Vec<ProgramImage>, BTreeMap<usize, usize>), LoadError> {
    let section_names: Vec<String> = elf.sections.iter().map(|s| s.name.to_string()).collect();
    let map_origins: Vec<MapOrigin> = maps.iter().map(|m| m.image.origin).collect();
    let linker = link::Linker {
        functions,
        externs,
        map_origins: &map_origins,
        ext,
        btf,
        section_names: &section_names,
    };
    let mut programs = Vec::new();
    let mut program_of = BTreeMap::new();
    for (index, function) in functions.list.iter().enumerate() {
        if functions.is_subprogram(function) || !function.autoload {
            continue;
        }
        program_of.insert(index, programs.len());
        programs.push(linker.link(index)?);
    }
    Ok((programs, program_of))
}

fn struct_ops_images(list: &[StructOps], program_of: &BTreeMap<usize, usize>) -> Vec<StructOpsImage> {
    let registered = list.iter().filter(|ops| ops.autocreate);
    registered
        .map(|ops| StructOpsImage {
            name: ops.name.clone(),
            type_name: ops.type_name.clone(),
            callbacks: ops
                .callbacks
                .iter()
                .filter_map(|(member, f)| Some((member.clone(), *program_of.get(f)?)))
                .collect(),
            scalars: ops.scalars.clone(),
        })
        .collect()
}

/// Kernel numbers and names of the externs that were found, each once, ascending.
fn resolved(externs: &[Extern], wanted: impl Fn(&What) -> bool, kernel: &Btf) -> Vec<(u32, String)> {
    let ids: BTreeMap<u32, String> = externs
        .iter()
        .filter(|e| wanted(&e.what))
        .filter_map(|e| match e.what {
            What::Func { kernel_id, .. } | What::Var { kernel_id, .. } => kernel_id,
            What::Kconfig { .. } => None,
        })
        .map(|id| (id, kernel.name(id).to_string()))
        .collect();
    ids.into_iter().collect()
}
