//! What can go wrong: before a program runs ([`BpfError`]) and while it runs ([`Fault`]).

use crate::image::SourceLine;

/// Why an object cannot be made ready to run.
#[derive(Debug, thiserror::Error)]
pub enum BpfError {
    /// An instruction no kernel would accept.
    #[error(
        "program {program}, instruction {insn} {what}; rebuild the object with clang -target bpf -mcpu=v3 or v4"
    )]
    Instruction {
        /// Name of the program.
        program: String,
        /// Instruction index within the program.
        insn: u32,
        /// What is wrong with it.
        what: String,
    },
    /// A stack that overflows.
    #[error("program {program}, instruction {insn}{place} {what}")]
    Stack {
        /// Name of the program.
        program: String,
        /// Instruction index within the program.
        insn: u32,
        /// The source line in brackets, if the object has line information.
        place: String,
        /// What is wrong there, with the remedy.
        what: String,
    },
    /// A program whose functions do not fit together.
    #[error("program {program}: {what}")]
    Program {
        /// Name of the program.
        program: String,
        /// What is wrong with it.
        what: String,
    },
    /// A helper or kfunc that does not exist here.
    #[error(
        "program {program}, instruction {insn} calls {callee}, which is not provided here; \
         guard the call with bpf_ksym_exists() or allow it to fail when called"
    )]
    AbsentCallee {
        /// Name of the program.
        program: String,
        /// Instruction index within the program.
        insn: u32,
        /// The helper or kfunc.
        callee: String,
    },
    /// A kernel variable the host gave no address for.
    #[error(
        "program {program}, instruction {insn} refers to kernel variable {name}, which is not provided here; \
         give its address in `Options::symbols`"
    )]
    AbsentSymbol {
        /// Name of the program.
        program: String,
        /// Instruction index within the program.
        insn: u32,
        /// Name of the variable.
        name: String,
    },
    /// A map that cannot be created.
    #[error("map {map}: {what}")]
    Map {
        /// Name of the map.
        map: String,
        /// What is wrong with it, with the remedy.
        what: String,
    },
    /// The region is too small.
    #[error("maps and host objects need {needed} bytes, the region has {size}; raise `memory_bytes_log2`")]
    Region {
        /// Bytes needed.
        needed: u64,
        /// Bytes of the region.
        size: u64,
    },
    /// The code generator failed: our own bug or an unsupported processor.
    #[error("native code for {function}: {what}; the interpreter still works")]
    Native {
        /// The function that could not be compiled.
        function: String,
        /// The generator's own words.
        what: String,
    },
}

/// The source line of an instruction, for messages: ` (file:line: text)`; nothing if it is not known.
pub(crate) fn located(lines: &[SourceLine], insn: u32) -> String {
    lines.iter().rev().find(|line| line.insn <= insn).map_or_else(String::new, in_parentheses)
}

fn in_parentheses(line: &SourceLine) -> String {
    match line.text.trim() {
        "" => format!(" ({}:{})", line.file, line.line),
        text => format!(" ({}:{}: {text})", line.file, line.line),
    }
}

/// Why a program ended before its `exit`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultKind {
    /// A store through NULL or to where nothing is.
    #[error("stores through the invalid address {address:#x}")]
    Store {
        /// The address as the program had it, without the instruction's offset.
        address: u64,
    },
    /// The instruction budget is used up.
    #[error("ran {budget} instructions without ending; an endless loop, or a budget set too low")]
    Budget {
        /// Instructions allowed to one call.
        budget: u64,
    },
    /// A helper or kfunc that is not provided here.
    #[error("needs what is not provided here: {0}")]
    Absent(String),
    /// A helper found its arguments impossible.
    #[error("{callee}: {what}")]
    Call {
        /// The helper or kfunc.
        callee: &'static str,
        /// What was wrong.
        what: String,
    },
    /// Callbacks of callbacks, too deep.
    #[error("calls are nested more than {0} deep")]
    Nested(u32),
    /// The region is full.
    #[error("the region has no room for {0} more bytes; raise `memory_bytes_log2`")]
    OutOfMemory(u64),
    /// The host ended the program.
    #[error("{0}")]
    Host(String),
    /// `bpf_throw()` with its cookie: ends a program as if it had returned it, and is seen only where no
    /// program was running.
    #[error("throws {0:#x}")]
    Thrown(u64),
    /// A callback address that is no function.
    #[error("calls {0:#x}, which is no function of this object")]
    NoFunction(u64),
}

/// A program that ended before its `exit`, and where.
#[derive(Clone, Debug)]
pub struct Fault {
    /// What happened.
    pub kind: FaultKind,
    /// Name of the program, empty if none had begun.
    pub program: String,
    /// Name of the function in it.
    pub function: String,
    /// Instruction index within the program.
    pub insn: u32,
    /// Source line, if the object has line information.
    pub line: Option<Box<SourceLine>>,
}

impl std::error::Error for Fault {}

impl std::fmt::Display for Fault {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.program.is_empty() {
            return write!(out, "{}", self.kind);
        }
        write!(out, "program {}", self.program)?;
        if self.function != self.program {
            write!(out, " in {}", self.function)?;
        }
        write!(out, ", instruction {}", self.insn)?;
        if let Some(line) = &self.line {
            write!(out, "{}", in_parentheses(line))?;
        }
        write!(out, ": {}", self.kind)
    }
}
