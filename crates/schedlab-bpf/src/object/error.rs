//! What can be wrong with an object, or between an object and a kernel.

use thiserror::Error;

use crate::btf::BtfError;

/// An object that cannot be loaded. The text names the remedy where there is one.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LoadError {
    /// The bytes are no ELF file.
    #[error("not an ELF file: give a BPF object as `clang -target bpf -c` makes it")]
    NotElf,
    /// ELF, but not a 64-bit relocatable object for BPF.
    #[error("not a BPF object ({found}): compile it with `clang -target bpf`")]
    NotBpf {
        /// What it is instead.
        found: String,
    },
    /// A big-endian object.
    #[error("a big-endian BPF object: compile it with `-target bpfel`")]
    BigEndian,
    /// The file ends, or points, beyond its end.
    #[error("the object is truncated or damaged: {0}")]
    Damaged(String),
    /// No `.BTF` section.
    #[error("the object has no BTF: compile it with `-g` and do not strip `.BTF`")]
    NoBtf,
    /// `.BTF` cannot be read.
    #[error("type information of the object: {0}")]
    Btf(#[from] BtfError),
    /// A relocation that makes no sense.
    #[error("program `{program}`, instruction {insn}: {problem}")]
    Relocation {
        /// Function.
        program: String,
        /// Instruction inside the function.
        insn: u32,
        /// What is wrong.
        problem: String,
    },
    /// A CO-RE relocation that has no answer at all (not merely an absent field).
    #[error("program `{program}`, instruction {insn}: relocation of {access}: {problem}")]
    Core {
        /// Function.
        program: String,
        /// Instruction inside the function.
        insn: u32,
        /// What the source accesses, e.g. `task_struct.scx.slice`.
        access: String,
        /// What is wrong.
        problem: String,
    },
    /// A map definition that cannot be understood.
    #[error("map `{map}`: {problem}")]
    Map {
        /// Name of the map.
        map: String,
        /// What is wrong.
        problem: String,
    },
    /// A kernel function or variable that the object requires and the kernel lacks.
    #[error(
        "`{name}` is referenced but wasn't resolved: this kernel has no such {what}{since}; \
         use a newer kernel, or declare it __weak and test it with bpf_ksym_exists()"
    )]
    Unresolved {
        /// Name as the object has it.
        name: String,
        /// "function" or "variable".
        what: &'static str,
        /// " (Linux 6.19 and later have it)", or empty if not known.
        since: String,
    },
    /// A function of another file that was not linked in.
    #[error(
        "`{name}` is declared extern but is no kernel symbol (`__ksym`) and no `__kconfig` value: link the \
         object with the file that defines it (`bpftool gen object`)"
    )]
    NotLinked {
        /// Name of the symbol.
        name: String,
    },
    /// A kernel function or variable whose type in the kernel differs.
    #[error(
        "`{name}` is referenced but wasn't resolved: the object declares `{wanted}`, this kernel has `{found}`"
    )]
    Incompatible {
        /// Name as the object has it.
        name: String,
        /// Declaration in the object.
        wanted: String,
        /// Declaration in the kernel.
        found: String,
    },
    /// A `struct_ops` variable that does not fit the kernel's type.
    #[error("struct_ops `{variable}`: {problem}")]
    StructOps {
        /// Name of the variable.
        variable: String,
        /// What is wrong, with the member.
        problem: String,
    },
    /// Several of these at once.
    #[error("{}", list(.0))]
    Several(Vec<LoadError>),
    /// Something valid that this loader does not do.
    #[error("the object uses {0}, which schedlab does not support")]
    Unsupported(String),
}

/// Problems one after another, numbered.
fn list(problems: &[LoadError]) -> String {
    let line = |(index, problem): (usize, &LoadError)| format!("\n  {}. {problem}", index + 1);
    let lines: String = problems.iter().enumerate().map(line).collect();
    format!("{} problems:{lines}", problems.len())
}

impl LoadError {
    /// Fails if there are problems: with the one, or with all of them.
    pub(super) fn unless_none(mut problems: Vec<LoadError>) -> Result<(), LoadError> {
        match problems.len() {
            0 => Ok(()),
            1 => Err(problems.remove(0)),
            _ => Err(LoadError::Several(problems)),
        }
    }

    pub(super) fn damaged(what: impl Into<String>) -> LoadError {
        LoadError::Damaged(what.into())
    }
}
