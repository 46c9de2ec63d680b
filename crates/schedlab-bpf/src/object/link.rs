//! Makes each entry program whole: appends the subprograms it reaches in libbpf's order, adjusts calls, and
//! writes map, variable and kernel function references.

use super::error::LoadError;
use super::ext::BtfExt;
use super::externs::{Extern, What};
use super::functions::{Functions, INSN_SIZE, Relo, Target};
use super::insn::{PSEUDO_BTF_ID, PSEUDO_FUNC, PSEUDO_KFUNC_CALL, PSEUDO_MAP_FD, PSEUDO_MAP_VALUE};
use crate::btf::{Btf, Kind};
use crate::image::{Insn, MapOrigin, Poison, ProgramImage, SourceLine};

/// Longest chain of calls that is followed; the kernel's verifier allows 8 frames.
const CALL_DEPTH_MAX: u32 = 256;

/// What programs are made from.
pub(super) struct Linker<'o> {
    pub functions: &'o Functions,
    pub externs: &'o [Extern],
    pub map_origins: &'o [MapOrigin],
    pub ext: &'o BtfExt,
    pub btf: &'o Btf,
    /// Name of each ELF section.
    pub section_names: &'o [String],
}

/// One entry program in the making.
struct Program {
    insns: Vec<Insn>,
    relocations: Vec<Relo>,
    poisons: Vec<Poison>,
    /// Where each function of the object lies, if it has been appended.
    place: Vec<Option<u32>>,
    functions: Vec<(u32, usize)>,
}

impl Linker<'_> {
    /// Links the entry program with an index into the functions.
    pub(super) fn link(&self, main: usize) -> Result<ProgramImage, LoadError> {
        let mut program = Program {
            insns: Vec::new(),
            relocations: Vec::new(),
            poisons: Vec::new(),
            place: vec![None; self.functions.list.len()],
            functions: Vec::new(),
        };
        self.append(&mut program, main);
        self.calls(&mut program, main, 0)?;
        let exception = self.exception(main);
        if let Some(callback) = exception
            && program.place[callback].is_none()
        {
            self.append(&mut program, callback);
            self.calls(&mut program, callback, 1)?;
        }
        for relo in std::mem::take(&mut program.relocations) {
            self.reference(&mut program, relo);
        }
        program.poisons.sort_by_key(|p| p.insn);
        let function = &self.functions.list[main];
        Ok(ProgramImage {
            name: function.name.clone(),
            section: function.section_name.clone(),
            functions: program.functions.iter().map(|&(at, f)| (at, self.function_name(f))).collect(),
            lines: program.functions.iter().flat_map(|&(at, f)| self.lines(at, f)).collect(),
            insns: program.insns,
            poisons: program.poisons,
            exception: exception.and_then(|callback| program.place[callback]),
        })
    }

    /// The function that a program names by `__exception_cb()`.
    fn exception(&self, main: usize) -> Option<usize> {
        let function = self.btf.find_func(&self.functions.list[main].name)?;
        let callback = self.btf.types().find_map(|(id, found)| match found.kind {
            Kind::DeclTag { target, component: -1, .. } if target == function => {
                self.btf.name(id).strip_prefix("exception_callback:")
            }
            _ => None,
        })?;
        self.functions.list.iter().position(|f| self.functions.is_subprogram(f) && f.name == callback)
    }

    /// Appends the code of a function with its relocations.
    fn append(&self, program: &mut Program, index: usize) {
        let function = &self.functions.list[index];
        let at = program.insns.len() as u32;
        program.place[index] = Some(at);
        program.functions.push((at, index));
        program.insns.extend_from_slice(&function.insns);
        let moved = |r: &Relo| Relo { insn: r.insn + at, ..*r };
        program.relocations.extend(function.relocations.iter().map(moved));
        program
            .poisons
            .extend(function.poisons.iter().map(|p| Poison { insn: p.insn + at, reason: p.reason.clone() }));
    }

    /// Visits calls and function addresses of a function in order; each new subprogram is appended and
    /// visited before the next instruction, as libbpf does.
    fn calls(&self, program: &mut Program, index: usize, depth: u32) -> Result<(), LoadError> {
        let function = &self.functions.list[index];
        let fail = |insn: usize, problem: &str| LoadError::Relocation {
            program: function.name.clone(),
            insn: insn as u32,
            problem: problem.to_string(),
        };
        if depth > CALL_DEPTH_MAX {
            return Err(fail(0, "calls are nested too deeply"));
        }
        let start = program.place[index].unwrap_or(0);
        for (i, insn) in function.insns.iter().enumerate() {
            let found = function.relocations.binary_search_by_key(&(i as u32), |r| r.insn);
            let target = found.ok().map(|at| function.relocations[at].target);
            let is_address = matches!(target, Some(Target::Address(_)));
            if !insn.is_subprogram_call() && !is_address && !insn.is_function_address() {
                continue;
            }
            let callee_insn = match target {
                Some(Target::ExternCall(_)) => continue,
                Some(Target::Call(offset)) => {
                    (offset / INSN_SIZE).wrapping_add_signed(i64::from(insn.imm)).wrapping_add(1)
                }
                Some(Target::Address(offset)) => offset.wrapping_add_signed(i64::from(insn.imm)) / INSN_SIZE,
                None if insn.is_subprogram_call() => {
                    let here = u64::from(function.first) + i as u64;
                    here.wrapping_add_signed(i64::from(insn.imm)).wrapping_add(1)
                }
                _ => return Err(fail(i, "a function address without a relocation to one")),
            };
            let callee = self.functions.text.and_then(|text| self.functions.at(text, callee_insn));
            let callee = callee.ok_or_else(|| fail(i, "calls something that is no function of `.text`"))?;
            if program.place[callee].is_none() {
                self.append(program, callee);
                self.calls(program, callee, depth + 1)?;
            }
            let place = program.place[callee].unwrap_or(0);
            let here = start + i as u32;
            let linked = &mut program.insns[here as usize];
            if is_address {
                linked.set_src(PSEUDO_FUNC);
            }
            linked.imm = place.wrapping_sub(here).wrapping_sub(1) as i32;
        }
        Ok(())
    }

    /// Writes one reference to data or to the kernel.
    fn reference(&self, program: &mut Program, relo: Relo) {
        let at = relo.insn as usize;
        let insns = &mut program.insns[at..];
        match relo.target {
            Target::Map(map) => {
                insns[0].set_src(PSEUDO_MAP_FD);
                insns[0].imm = map as i32;
            }
            Target::Data { map, offset } => {
                insns[1].imm = insns[0].imm.wrapping_add(offset as i32);
                insns[0].set_src(PSEUDO_MAP_VALUE);
                insns[0].imm = map as i32;
            }
            Target::ExternLoad(index) => self.load_extern(insns, index),
            Target::ExternCall(index) => {
                let wanted = &self.externs[index];
                match wanted.what {
                    What::Func { kernel_id: Some(id), .. } => {
                        insns[0].set_src(PSEUDO_KFUNC_CALL);
                        insns[0].imm = id as i32;
                        insns[0].off = 0;
                    }
                    _ => {
                        insns[0] = Insn::poison_kfunc(index);
                        let reason = format!("calls kfunc {}, which this kernel lacks", wanted.name);
                        program.poisons.push(Poison { insn: relo.insn, reason });
                    }
                }
            }
            Target::Call(_) | Target::Address(_) => {}
        }
    }

    fn load_extern(&self, insns: &mut [Insn], index: usize) {
        match self.externs[index].what {
            What::Kconfig { offset, .. } => {
                let map = self.map_origins.iter().position(|o| *o == MapOrigin::Kconfig);
                insns[0].set_src(PSEUDO_MAP_VALUE);
                insns[0].imm = map.map_or(-1, |m| m as i32);
                insns[1].imm = offset as i32;
            }
            What::Func { kernel_id: Some(id), .. } | What::Var { kernel_id: Some(id), .. } => {
                insns[0].set_src(PSEUDO_BTF_ID);
                insns[0].imm = id as i32;
                insns[1].imm = 0;
            }
            What::Func { .. } | What::Var { .. } => {
                insns[0].imm = 0;
                insns[1].imm = 0;
            }
        }
    }

    /// Name by `.BTF.ext`, which knows static functions; the symbol's otherwise.
    fn function_name(&self, index: usize) -> String {
        let function = &self.functions.list[index];
        let section = &self.section_names[function.section];
        let offset = function.first * INSN_SIZE as u32;
        let mut infos = self.ext.funcs.iter().filter(|s| &s.section == section).flat_map(|s| &s.records);
        let known = infos.find(|f| f.insn_offset == offset).map(|f| self.btf.name(f.type_id));
        known.filter(|name| !name.is_empty()).unwrap_or(&function.name).to_string()
    }

    fn lines(&self, at: u32, index: usize) -> Vec<SourceLine> {
        let function = &self.functions.list[index];
        let section = &self.section_names[function.section];
        let first = function.first;
        let end = first + function.insns.len() as u32;
        let infos = self.ext.lines.iter().filter(|s| &s.section == section).flat_map(|s| &s.records);
        infos
            .map(|line| (line.insn_offset / INSN_SIZE as u32, line))
            .filter(|(insn, _)| (first..end).contains(insn))
            .map(|(insn, line)| SourceLine {
                insn: insn - first + at,
                file: self.btf.string(line.file_name).to_string(),
                text: self.btf.string(line.text).to_string(),
                line: line.line_column >> 10,
                column: line.line_column & 0x3ff,
            })
            .collect()
    }
}
