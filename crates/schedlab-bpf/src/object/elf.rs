//! The ELF file as sections, symbols and relocations, with every offset checked.
//!
//! Not here: what the sections mean (`sections`), anything of BTF.

use object::LittleEndian as Le;
use object::elf;
use object::read::elf::{FileHeader, Rel, SectionHeader, Sym};

use super::error::LoadError;

/// One section.
#[derive(Clone, Debug)]
pub(super) struct Section<'a> {
    pub name: &'a str,
    /// `SHT_*`.
    pub kind: elf::SectionType,
    pub executable: bool,
    /// Content; empty for `SHT_NOBITS`.
    pub data: &'a [u8],
    /// Bytes it takes in memory.
    pub size: u64,
    pub relocations: Vec<Relocation>,
}

/// One symbol.
#[derive(Clone, Debug)]
pub(super) struct Symbol<'a> {
    pub name: &'a str,
    pub value: u64,
    pub size: u64,
    /// Section index as the file has it, `SHN_*` for special ones.
    pub section: elf::SymbolSection,
    /// `STB_*`.
    pub binding: elf::SymbolBind,
    /// `STT_*`.
    pub kind: elf::SymbolType,
    /// Invisible to other files: libbpf treats such a variable as static.
    pub hidden: bool,
}

/// One relocation of a section.
#[derive(Clone, Copy, Debug)]
pub(super) struct Relocation {
    /// Byte offset in the section.
    pub offset: u64,
    /// Index of the symbol.
    pub symbol: usize,
}

/// A parsed object file; section and symbol indices are those of the file.
#[derive(Clone, Debug)]
pub(super) struct Elf<'a> {
    pub sections: Vec<Section<'a>>,
    pub symbols: Vec<Symbol<'a>>,
}

impl Symbol<'_> {
    /// An undefined global or weak symbol without a type: a kernel function, variable or option.
    pub(super) fn is_extern(&self) -> bool {
        self.section == elf::SHN_UNDEF
            && matches!(self.binding, elf::STB_GLOBAL | elf::STB_WEAK)
            && self.kind == elf::STT_NOTYPE
    }

    pub(super) fn section_index(&self) -> usize {
        usize::from(self.section.0)
    }

    pub(super) fn is_weak(&self) -> bool {
        self.binding == elf::STB_WEAK
    }
}

impl<'a> Elf<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Elf<'a>, LoadError> {
        check_identity(bytes)?;
        let damaged = |e: object::read::Error| LoadError::damaged(e.to_string());
        let header = elf::FileHeader64::<Le>::parse(bytes).map_err(damaged)?;
        let machine = header.e_machine(Le);
        if machine != elf::EM_BPF || header.e_type(Le) != elf::ET_REL {
            return Err(LoadError::NotBpf { found: format!("ELF machine {machine}") });
        }
        let table = header.sections(Le, bytes).map_err(damaged)?;
        let mut sections = Vec::with_capacity(table.len());
        for section in table.iter() {
            let name = table.section_name(Le, section).map_err(damaged)?;
            sections.push(Section {
                name: std::str::from_utf8(name).map_err(|_| LoadError::damaged("a section name"))?,
                kind: section.sh_type(Le),
                executable: section.sh_flags(Le).0 & elf::SHF_EXECINSTR.0 != 0,
                data: section.data(Le, bytes).map_err(damaged)?,
                size: section.sh_size(Le),
                relocations: Vec::new(),
            });
        }
        let symbols = table.symbols(Le, bytes, elf::SHT_SYMTAB).map_err(damaged)?;
        let mut read_symbols = Vec::with_capacity(symbols.len());
        for symbol in symbols.iter() {
            let name = symbol.name(Le, symbols.strings()).map_err(damaged)?;
            read_symbols.push(Symbol {
                name: std::str::from_utf8(name).map_err(|_| LoadError::damaged("a symbol name"))?,
                value: symbol.st_value(Le),
                size: symbol.st_size(Le),
                section: symbol.st_shndx(Le),
                binding: symbol.st_bind(),
                kind: symbol.st_type(),
                hidden: matches!(symbol.st_visibility(), elf::STV_HIDDEN | elf::STV_INTERNAL),
            });
        }
        if read_symbols.is_empty() {
            return Err(LoadError::damaged("there is no symbol table; do not strip the object"));
        }
        for section in table.iter() {
            if let Some((relocations, _)) = section.rel(Le, bytes).map_err(damaged)? {
                let target = section.sh_info(Le) as usize;
                let target = sections
                    .get_mut(target)
                    .ok_or_else(|| LoadError::damaged("relocations of a section that does not exist"))?;
                for relocation in relocations {
                    let symbol = relocation.r_sym(Le) as usize;
                    if symbol >= read_symbols.len() {
                        return Err(LoadError::damaged("a relocation names a symbol that does not exist"));
                    }
                    target.relocations.push(Relocation { offset: relocation.r_offset(Le), symbol });
                }
            }
        }
        Ok(Elf { sections, symbols: read_symbols })
    }

    /// Index of the first section with a name.
    pub(super) fn section_index(&self, name: &str) -> Option<usize> {
        self.sections.iter().position(|s| s.name == name)
    }

    /// The section with a name.
    pub(super) fn section(&self, name: &str) -> Option<&Section<'a>> {
        self.sections.iter().find(|s| s.name == name)
    }

    /// The symbol of a global variable.
    pub(super) fn variable(&self, name: &str) -> Option<&Symbol<'a>> {
        self.symbols.iter().find(|s| {
            s.kind == elf::STT_OBJECT
                && matches!(s.binding, elf::STB_GLOBAL | elf::STB_WEAK)
                && s.name == name
        })
    }
}

/// Bytes 4 and 5 of an ELF file: class and byte order.
fn check_identity(bytes: &[u8]) -> Result<(), LoadError> {
    if !bytes.starts_with(&elf::ELFMAG) {
        return Err(LoadError::NotElf);
    }
    let (Some(&class), Some(&encoding)) = (bytes.get(4), bytes.get(5)) else {
        return Err(LoadError::damaged("the ELF header is incomplete"));
    };
    match (elf::FileClass(class), elf::DataEncoding(encoding)) {
        (elf::ELFCLASS64, elf::ELFDATA2LSB) => Ok(()),
        (elf::ELFCLASS64, elf::ELFDATA2MSB) => Err(LoadError::BigEndian),
        (elf::ELFCLASS32, _) => Err(LoadError::NotBpf { found: "32-bit ELF".to_string() }),
        _ => Err(LoadError::damaged("the ELF header is invalid")),
    }
}
