//! Cuts executable sections into functions, and finds the function that holds an instruction.
//!
//! A function in `.text` is a subprogram: it reaches the kernel only as a part of the entry programs that
//! call it (`link`). Every other function is an entry program.

use object::elf;

use super::elf::Elf;
use super::error::LoadError;
use crate::image::{Insn, Poison};

/// Bytes of one instruction slot.
pub(super) const INSN_SIZE: u64 = 8;

/// One function as the compiler left it, with what has been found out about its instructions.
#[derive(Clone, Debug)]
pub(super) struct Function {
    pub name: String,
    /// Index of the ELF section.
    pub section: usize,
    /// Name of the section without the `?` that means "do not load by default".
    pub section_name: String,
    /// First instruction, counted from the start of the section.
    pub first: u32,
    pub insns: Vec<Insn>,
    pub relocations: Vec<Relo>,
    pub poisons: Vec<Poison>,
    /// Is to be loaded.
    pub autoload: bool,
}

/// What an instruction refers to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Relo {
    /// Instruction inside the function.
    pub insn: u32,
    pub target: Target,
}

/// Targets of relocations; maps and externs by index, functions by byte offset in `.text`.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    Map(usize),
    Data { map: usize, offset: u64 },
    ExternLoad(usize),
    ExternCall(usize),
    Call(u64),
    Address(u64),
}

/// All functions of an object, ascending by section and place.
#[derive(Clone, Debug, Default)]
pub(super) struct Functions {
    pub list: Vec<Function>,
    /// Section of subprograms.
    pub text: Option<usize>,
}

impl Functions {
    pub(super) fn collect(elf: &Elf<'_>) -> Result<Functions, LoadError> {
        let mut functions = Functions::default();
        for (index, section) in elf.sections.iter().enumerate() {
            if section.kind != elf::SHT_PROGBITS || !section.executable || section.data.is_empty() {
                continue;
            }
            let is_text = section.name == ".text";
            if is_text {
                functions.text = Some(index);
            }
            for symbol in elf.symbols.iter() {
                if symbol.section_index() != index || symbol.kind != elf::STT_FUNC {
                    continue;
                }
                if !is_text && symbol.binding == elf::STB_LOCAL {
                    return Err(LoadError::Unsupported(format!("static entry program `{}`", symbol.name)));
                }
                functions.list.push(Function {
                    name: symbol.name.to_string(),
                    section: index,
                    section_name: section.name.trim_start_matches('?').to_string(),
                    first: (symbol.value / INSN_SIZE) as u32,
                    insns: instructions(section.data, symbol.value, symbol.size, symbol.name)?,
                    relocations: Vec::new(),
                    poisons: Vec::new(),
                    autoload: !section.name.starts_with('?'),
                });
            }
        }
        functions.list.sort_by_key(|f| (f.section, f.first));
        Ok(functions)
    }

    /// The function that holds an instruction of a section, by index.
    pub(super) fn at(&self, section: usize, insn: u64) -> Option<usize> {
        let after = self.list.partition_point(|f| (f.section, u64::from(f.first)) <= (section, insn));
        let index = after.checked_sub(1)?;
        let function = &self.list[index];
        let end = u64::from(function.first) + function.insns.len() as u64;
        (function.section == section && insn < end).then_some(index)
    }

    pub(super) fn is_subprogram(&self, function: &Function) -> bool {
        Some(function.section) == self.text
    }
}

fn instructions(data: &[u8], offset: u64, size: u64, name: &str) -> Result<Vec<Insn>, LoadError> {
    let damaged = || LoadError::damaged(format!("function `{name}` does not lie inside its section"));
    if size == 0 || !size.is_multiple_of(INSN_SIZE) || !offset.is_multiple_of(INSN_SIZE) {
        return Err(damaged());
    }
    let start = usize::try_from(offset).map_err(|_| damaged())?;
    let end = offset.checked_add(size).and_then(|e| usize::try_from(e).ok()).ok_or_else(damaged)?;
    let code = data.get(start..end).ok_or_else(damaged)?;
    let (slots, _) = code.as_chunks::<8>();
    Ok(slots.iter().map(Insn::from_bytes).collect())
}
