//! Reads what ELF relocations say about instructions: map, global variable, extern, subprogram.
//!
//! Not here: writing the answers into instructions (`link`), CO-RE (`core`).

use object::elf;

use super::elf::{Elf, Symbol};
use super::error::LoadError;
use super::externs::Extern;
use super::functions::{Functions, INSN_SIZE, Relo, Target};
use super::insn::PSEUDO_CALL;
use super::maps::{ARENA_SECTION, MAP_TYPE_ARENA, MapEntry, data_origin};
use crate::image::{Insn, MapOrigin};

/// Records the relocations of every function, ascending by instruction.
pub(super) fn collect(
    elf: &Elf<'_>,
    maps: &[MapEntry],
    externs: &[Extern],
    functions: &mut Functions,
) -> Result<(), LoadError> {
    for (section_index, section) in elf.sections.iter().enumerate() {
        if !section.executable {
            continue;
        }
        for relocation in &section.relocations {
            if relocation.offset % INSN_SIZE != 0 || relocation.offset >= section.size {
                return Err(LoadError::damaged("a relocation points between or past instructions"));
            }
            let insn = relocation.offset / INSN_SIZE;
            // No function there: a weak one that a linker replaced by another.
            let Some(index) = functions.at(section_index, insn) else { continue };
            let text = functions.text;
            let function = &mut functions.list[index];
            let at = (insn - u64::from(function.first)) as usize;
            let symbol = &elf.symbols[relocation.symbol];
            let finder = Finder { elf, maps, externs, text };
            let target = finder.target(&function.insns[at], relocation.symbol, symbol);
            let target = target.map_err(|problem| LoadError::Relocation {
                program: function.name.clone(),
                insn: at as u32,
                problem,
            })?;
            if function.insns[at].is_ld_imm64() && at + 1 >= function.insns.len() {
                return Err(LoadError::damaged(format!("`{}` ends in half a wide load", function.name)));
            }
            function.relocations.push(Relo { insn: at as u32, target });
        }
    }
    for function in &mut functions.list {
        function.relocations.sort_by_key(|r| r.insn);
    }
    Ok(())
}

struct Finder<'e> {
    elf: &'e Elf<'e>,
    maps: &'e [MapEntry],
    externs: &'e [Extern],
    text: Option<usize>,
}

impl Finder<'_> {
    fn target(&self, insn: &Insn, symbol_index: usize, symbol: &Symbol<'_>) -> Result<Target, String> {
        if !insn.is_call() && !insn.is_ld_imm64() {
            return Err(format!("`{}`: only calls and wide loads take a relocation", symbol.name));
        }
        if symbol.is_extern() {
            let found = self.externs.iter().position(|e| e.symbol == symbol_index);
            let index = found.ok_or_else(|| format!("`{}` is no known extern", symbol.name))?;
            return Ok(if insn.is_call() { Target::ExternCall(index) } else { Target::ExternLoad(index) });
        }
        let section = symbol.section_index();
        let in_text = section != 0 && Some(section) == self.text;
        if insn.is_call() {
            let valid = insn.src() == PSEUDO_CALL && in_text && symbol.value.is_multiple_of(INSN_SIZE);
            return match valid {
                true => Ok(Target::Call(symbol.value)),
                false => Err(format!("calls `{}`, which is no function of `.text`", symbol.name)),
            };
        }
        if in_text && is_function(symbol) {
            let aligned =
                symbol.value.is_multiple_of(INSN_SIZE) && (insn.imm as u64).is_multiple_of(INSN_SIZE);
            return match aligned {
                true => Ok(Target::Address(symbol.value)),
                false => Err(format!("`{}` does not start at an instruction", symbol.name)),
            };
        }
        self.data(section, symbol)
    }

    fn data(&self, section_index: usize, symbol: &Symbol<'_>) -> Result<Target, String> {
        let no_section = || {
            format!(
                "`{}` lies in no section; initialise the global variable or declare it extern",
                symbol.name
            )
        };
        if section_index == 0 || section_index >= usize::from(elf::SHN_LORESERVE) {
            return Err(no_section());
        }
        let section = self.elf.sections.get(section_index).ok_or_else(no_section)?;
        let mut entries = self.maps.iter();
        if data_origin(section).is_some() {
            let map = entries.position(|m| m.section == Some(section_index)).ok_or_else(no_section)?;
            return Ok(Target::Data { map, offset: symbol.value });
        }
        if section.name == ARENA_SECTION {
            let map = entries.position(|m| m.image.map_type == MAP_TYPE_ARENA);
            let map = map.ok_or("arena variables, but no arena map is defined")?;
            return Ok(Target::Data { map, offset: symbol.value });
        }
        if section.name == ".maps" {
            let found =
                entries.position(|m| m.image.origin == MapOrigin::Defined && m.offset == symbol.value);
            return found.map(Target::Map).ok_or_else(|| format!("`{}` is no map", symbol.name));
        }
        Err(format!("`{}` lies in section `{}`, which holds no data", symbol.name, section.name))
    }
}

/// A global function, or the section symbol that stands for static ones.
fn is_function(symbol: &Symbol<'_>) -> bool {
    match symbol.binding {
        elf::STB_LOCAL => symbol.kind == elf::STT_SECTION,
        _ => symbol.kind == elf::STT_FUNC,
    }
}
