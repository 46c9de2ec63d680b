//! From an [`ObjectImage`] to linked code: functions found, references resolved, calls checked.
//!
//! Not here: decoding (`op`), addresses of maps (`layout`), running.

use std::collections::{BTreeMap, BTreeSet};

use super::arguments;
use super::compiled::Options;
use super::fault::{BpfError, Fault, FaultKind};
use super::layout::{Layout, STACK_BYTES_FRAME};
use super::op::{self, Cond, Op, Operand, Wide};
use super::stack;
use super::target::{CallTarget, TargetTable};
use crate::image::{ObjectImage, ProgramImage, SourceLine};

/// Frames of one call chain, as the kernel's `MAX_CALL_FRAMES`.
pub(crate) const CALL_FRAMES_MAX: usize = 8;
/// Addresses of functions as programs see them: `FUNCTION_TAG + 16 * index`.
const FUNCTION_TAG: u64 = 0x0b9f_0000_0000;
/// What programs see when they ask whether a kfunc exists.
const KFUNC_ADDRESS: u64 = 0x0b9e_0000_0000;

/// A function: instructions `start..end` of its program.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    pub program: u32,
    pub name: String,
    pub start: u32,
    pub end: u32,
    /// Argument registers it reads before writing them: r1 to r`args`.
    pub args: u8,
    /// Whether it is the first of its program, which gets a context and nothing else.
    pub main: bool,
    /// Whether it needs the arguments of a `struct_ops` member in memory.
    pub array: bool,
}

/// A linked program. Its first function is the entry.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub name: String,
    pub ops: Vec<Op>,
    pub lines: Vec<SourceLine>,
    pub entry: u32,
    /// What `bpf_throw()` calls before the program ends.
    pub exception: Option<u32>,
}

/// All code of an object, linked.
#[derive(Debug)]
pub(crate) struct Linked {
    pub programs: Vec<Program>,
    pub functions: Vec<Function>,
    pub targets: Vec<CallTarget>,
}

/// The address a program sees for a function.
pub(crate) fn function_address(index: u32) -> u64 {
    FUNCTION_TAG + 16 * u64::from(index)
}

impl Linked {
    /// The function at an address a program passed as a callback.
    pub(crate) fn function_at(&self, address: u64) -> Option<u32> {
        let offset = address.checked_sub(FUNCTION_TAG)?;
        let index = u32::try_from(offset / 16).ok()?;
        (offset % 16 == 0 && (index as usize) < self.functions.len()).then_some(index)
    }

    /// Names the place of a fault.
    pub(crate) fn fault(&self, kind: FaultKind, place: Option<(u32, u32)>) -> Fault {
        let Some((program_index, insn)) = place else {
            return Fault { kind, program: String::new(), function: String::new(), insn: 0, line: None };
        };
        let program = &self.programs[program_index as usize];
        let function = self
            .functions
            .iter()
            .find(|function| {
                function.program == program_index && (function.start..function.end).contains(&insn)
            })
            .map_or_else(String::new, |function| function.name.clone());
        let line = program.lines.iter().rev().find(|line| line.insn <= insn).cloned().map(Box::new);
        Fault { kind, program: program.name.clone(), function, insn, line }
    }
}

/// Links every program of the image.
pub(crate) fn link(
    image: &ObjectImage,
    layout: &Layout,
    table: &TargetTable<'_>,
    options: &Options,
) -> Result<Linked, BpfError> {
    let mut linked = Linked { programs: Vec::new(), functions: Vec::new(), targets: Vec::new() };
    let mut known = BTreeMap::new();
    for program in &image.programs {
        let mut linker = Linker {
            image,
            program,
            layout,
            table,
            options,
            known: &mut known,
            linked: &mut linked,
            first: 0,
        };
        linker.program()?;
    }
    Ok(linked)
}

/// A helper number or a kfunc id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Callee {
    Helper(u32),
    Kfunc(u32),
}

struct Linker<'a> {
    image: &'a ObjectImage,
    program: &'a ProgramImage,
    layout: &'a Layout,
    table: &'a TargetTable<'a>,
    options: &'a Options,
    known: &'a mut BTreeMap<Callee, u32>,
    linked: &'a mut Linked,
    /// Index of this program's first function.
    first: u32,
}

impl Linker<'_> {
    fn program(&mut self) -> Result<(), BpfError> {
        let mut ops = op::decode(&self.program.insns).map_err(|(insn, what)| self.bad(insn, what))?;
        self.first = self.linked.functions.len() as u32;
        self.split(&ops)?;
        let (decoded, reachable) = (ops.clone(), self.reachable(&ops));
        for (insn, op) in ops.iter_mut().enumerate() {
            *op = self.resolve(*op, insn as u32, reachable[insn])?;
        }
        self.depth(&ops)?;
        let functions = &self.linked.functions[self.first as usize..];
        if let Some(private) = self.options.private_stacks {
            stack::check(self.image, self.program, &decoded, functions, private)?;
        }
        let (targets, main) = (&self.linked.targets, &self.linked.functions[self.first as usize]);
        let array =
            arguments::replace(&mut ops, main.start, main.end, |target| targets[target as usize].arguments());
        self.linked.functions[self.first as usize].array = array;
        for index in self.first..self.linked.functions.len() as u32 {
            let function = &self.linked.functions[index as usize];
            // A program's main function has its context and nothing else, whatever it seems to read.
            let args = if function.main { 1 } else { arguments(&ops, function.start, function.end) };
            self.linked.functions[index as usize].args = args;
        }
        let exception =
            match self.program.exception {
                None => None,
                Some(start) => Some(self.function(start).ok_or_else(|| {
                    self.bad(start, "is to be an exception callback and begins no function")
                })?),
            };
        self.linked.programs.push(Program {
            exception,
            name: self.program.name.clone(),
            ops,
            lines: self.program.lines.clone(),
            entry: self.first,
        });
        Ok(())
    }

    fn bad(&self, insn: u32, what: impl Into<String>) -> BpfError {
        BpfError::Instruction { program: self.program.name.clone(), insn, what: what.into() }
    }

    /// Finds the functions and checks that control stays in each.
    fn split(&mut self, ops: &[Op]) -> Result<(), BpfError> {
        let starts: Vec<u32> = match self.program.functions.as_slice() {
            [] => vec![0],
            functions => functions.iter().map(|(start, _)| *start).collect(),
        };
        if starts[0] != 0 || ops.is_empty() {
            return Err(self.bad(0, "is missing: a program begins with its main function"));
        }
        for (index, start) in starts.iter().enumerate() {
            let end = starts.get(index + 1).copied().unwrap_or(ops.len() as u32);
            if end <= *start || end as usize > ops.len() || ops[*start as usize] == Op::Slot {
                return Err(self.bad(*start, "begins a function out of order"));
            }
            for insn in *start..end {
                if ops[insn as usize].target().is_some_and(|target| !(*start..end).contains(&target)) {
                    return Err(self.bad(insn, "jumps out of its function"));
                }
            }
            if !ops[end as usize - 1].ends_flow() {
                return Err(self.bad(end - 1, "is the last of a function and neither exit nor jump"));
            }
            let name = self.program.functions.get(index).map_or(&self.program.name, |(_, name)| name);
            let program = self.linked.programs.len() as u32;
            let (name, main) = (name.clone(), index == 0);
            self.linked.functions.push(Function {
                program,
                name,
                start: *start,
                end,
                args: 0,
                main,
                array: false,
            });
        }
        Ok(())
    }

    /// Whether a branch is always or never taken, because it tests an address loaded just before: how
    /// `bpf_ksym_exists()` looks after relocation.
    fn decided(&self, ops: &[Op], targets: &BTreeSet<u32>, insn: u32) -> Option<bool> {
        let Op::Branch { cond, dst, src: Operand::Imm(0), .. } = ops[insn as usize] else { return None };
        let mut at = insn;
        while at > 0 && !targets.contains(&at) && !self.first_of_function(at) {
            at -= 1;
            let op = ops[at as usize];
            if let Op::LoadImm { dst: loaded, value } = op
                && loaded == dst
            {
                let zero = matches!(value, Wide::Value(0));
                return match cond {
                    Cond::Eq => Some(zero),
                    Cond::Ne => Some(!zero),
                    _ => None,
                };
            }
            if writes(op) & 1 << dst != 0 || op.ends_flow() {
                break;
            }
        }
        None
    }

    fn first_of_function(&self, insn: u32) -> bool {
        self.linked.functions[self.first as usize..].iter().any(|function| function.start == insn)
    }

    /// Instructions that control can reach from some function's start.
    fn reachable(&self, ops: &[Op]) -> Vec<bool> {
        let targets: BTreeSet<u32> = ops.iter().filter_map(|op| op.target()).collect();
        let mut seen = vec![false; ops.len()];
        let mut open: Vec<u32> =
            self.linked.functions[self.first as usize..].iter().map(|function| function.start).collect();
        while let Some(insn) = open.pop() {
            if std::mem::replace(&mut seen[insn as usize], true) {
                continue;
            }
            let op = ops[insn as usize];
            let decided = self.decided(ops, &targets, insn);
            if decided != Some(false) {
                open.extend(op.target());
            }
            if !op.ends_flow() && decided != Some(true) {
                open.push(insn + if matches!(op, Op::LoadImm { .. }) { 2 } else { 1 });
            }
        }
        seen
    }

    fn function(&self, insn: u32) -> Option<u32> {
        (self.first..self.linked.functions.len() as u32)
            .find(|index| self.linked.functions[*index as usize].start == insn)
    }

    fn resolve(&mut self, op: Op, insn: u32, reachable: bool) -> Result<Op, BpfError> {
        match op {
            Op::LoadImm { dst, value } => {
                let value = self.immediate(value, insn, reachable)?;
                Ok(Op::LoadImm { dst, value: Wide::Value(value) })
            }
            Op::CallLocal { target: 0 } => Err(self.bad(insn, "calls the program's main function")),
            Op::CallLocal { target } => match self.function(target) {
                Some(target) => Ok(Op::CallLocal { target }),
                None => Err(self.bad(insn, format!("calls instruction {target}, which begins no function"))),
            },
            Op::CallHelper { id } => {
                Ok(Op::Call { target: self.callee(Callee::Helper(id), insn, reachable)? })
            }
            Op::CallKfunc { id } => Ok(Op::Call { target: self.callee(Callee::Kfunc(id), insn, reachable)? }),
            Op::Load { src: 10, off, bytes, .. } => self.frame(op, insn, off, bytes),
            Op::Store { dst: 10, off, bytes, .. } | Op::Atomic { dst: 10, off, bytes, .. } => {
                self.frame(op, insn, off, bytes)
            }
            other => Ok(other),
        }
    }

    /// Direct accesses to the stack stay in the frame: the engines rely on it.
    fn frame(&self, op: Op, insn: u32, off: i16, bytes: u8) -> Result<Op, BpfError> {
        let low = -(STACK_BYTES_FRAME as i64);
        if i64::from(off) < low || i64::from(off) + i64::from(bytes) > 0 {
            let what = stack::beyond(off.into(), bytes.into(), 10, None, None);
            return Err(stack::overflow(self.program, insn, what));
        }
        Ok(op)
    }

    fn immediate(&self, value: Wide, insn: u32, reachable: bool) -> Result<u64, BpfError> {
        let map = |index: u32| {
            let missing = || self.bad(insn, format!("refers to map {index}, which the object does not have"));
            self.layout.maps.get(index as usize).ok_or_else(missing)
        };
        match value {
            Wide::Value(value) => Ok(value),
            Wide::Map(index) => Ok(map(index)?.object),
            Wide::MapValue(index, offset) => Ok(map(index)?.values + u64::from(offset)),
            Wide::Symbol(id) => self.symbol(id, insn, reachable),
            Wide::Function(start) => match self.function(start) {
                Some(index) => Ok(function_address(index)),
                None => {
                    Err(self.bad(insn, format!("takes the address of {start}, which begins no function")))
                }
            },
        }
    }

    fn symbol(&self, id: u32, insn: u32, reachable: bool) -> Result<u64, BpfError> {
        let named = |names: &[(u32, String)]| names.iter().find(|(known, _)| *known == id).cloned();
        if let Some((_, name)) = named(&self.image.ksym_vars) {
            return match self.options.symbols.get(&name) {
                Some(address) => Ok(*address),
                None if !reachable => Ok(0),
                None => Err(BpfError::AbsentSymbol { program: self.program.name.clone(), insn, name }),
            };
        }
        match named(&self.image.kfuncs) {
            // An existence test: any address but 0 says yes.
            Some(_) => Ok(KFUNC_ADDRESS),
            None => Err(self.bad(insn, format!("refers to BTF id {id}, which is no known kernel variable"))),
        }
    }

    fn callee(&mut self, callee: Callee, insn: u32, reachable: bool) -> Result<u32, BpfError> {
        if let Some(poison) = self.program.poisons.iter().find(|poison| poison.insn == insn) {
            self.linked.targets.push(CallTarget::absent(poison.reason.clone()));
            return Ok(self.linked.targets.len() as u32 - 1);
        }
        if let Some(target) = self.known.get(&callee) {
            return Ok(*target);
        }
        let target = match callee {
            Callee::Helper(id) => self.table.helper(id),
            Callee::Kfunc(id) => match self.image.kfuncs.iter().find(|(known, _)| *known == id) {
                Some((_, name)) => self.table.kfunc(name),
                None => CallTarget::absent(format!("the kfunc with BTF id {id}")),
            },
        };
        if target.is_absent() && reachable && self.table.refuse_absent {
            let program = self.program.name.clone();
            return Err(BpfError::AbsentCallee { program, insn, callee: target.name });
        }
        let index = self.linked.targets.len() as u32;
        self.linked.targets.push(target);
        self.known.insert(callee, index);
        Ok(index)
    }

    /// Rejects recursion and chains of more than eight frames, as the verifier does.
    fn depth(&self, ops: &[Op]) -> Result<(), BpfError> {
        let functions = &self.linked.functions[self.first as usize..];
        let callees = |index: u32| {
            let function = &functions[(index - self.first) as usize];
            ops[function.start as usize..function.end as usize].iter().filter_map(|op| match op {
                Op::CallLocal { target } => Some(*target),
                _ => None,
            })
        };
        // A chain longer than the number of functions would be recursion; both are cut by the limit.
        let mut level: Vec<u32> = (self.first..self.first + functions.len() as u32).collect();
        for _ in 0..CALL_FRAMES_MAX {
            let mut next: Vec<u32> = level.iter().flat_map(|index| callees(*index)).collect();
            next.sort_unstable();
            next.dedup();
            level = next;
        }
        if level.is_empty() {
            return Ok(());
        }
        let what = format!("calls its functions recursively or more than {CALL_FRAMES_MAX} deep");
        Err(BpfError::Program { program: self.program.name.clone(), what })
    }
}

/// Highest of r1 to r5 that a function may read before it writes it.
fn arguments(ops: &[Op], start: u32, end: u32) -> u8 {
    // Registers read before written, for every instruction, to a fixed point backwards.
    let mut live = vec![0_u16; (end - start) as usize + 1];
    let at = |insn: u32| (insn - start) as usize;
    loop {
        let mut changed = false;
        for insn in (start..end).rev() {
            let op = ops[insn as usize];
            let mut after = op.target().map_or(0, |target| live[at(target)]);
            if !op.ends_flow() {
                after |= live[at(insn + 1)];
            }
            let before = reads(op) | after & !writes(op);
            changed |= std::mem::replace(&mut live[at(insn)], before) != before;
        }
        if !changed {
            break;
        }
    }
    (1..=5).rev().find(|register| live[0] & 1 << register != 0).unwrap_or(0)
}

fn bit(operand: Operand) -> u16 {
    match operand {
        Operand::Reg(register) => 1 << register,
        Operand::Imm(_) => 0,
    }
}

/// Registers an operation reads. Calls count as reading all arguments: some callees do.
fn reads(op: Op) -> u16 {
    use super::op::{AluOp, AtomicOp};
    match op {
        Op::Slot | Op::LoadImm { .. } | Op::Jump { .. } | Op::MayGoto { .. } | Op::Argument { .. } => 0,
        Op::Alu { op: AluOp::Mov, src, .. } => bit(src),
        Op::Alu { dst, src, .. } | Op::Branch { dst, src, .. } | Op::Store { dst, src, .. } => {
            1 << dst | bit(src)
        }
        Op::Neg { dst, .. } | Op::Swap { dst, .. } | Op::Truncate { dst, .. } => 1 << dst,
        Op::MovSx { src, .. } | Op::Load { src, .. } => 1 << src,
        Op::Atomic { op, dst, src, .. } => 1 << dst | 1 << src | u16::from(op == AtomicOp::Cmpxchg),
        Op::CallHelper { .. } | Op::CallKfunc { .. } | Op::Call { .. } | Op::CallLocal { .. } => 0b11_1110,
        Op::Exit => 1,
    }
}

/// Registers an operation sets.
fn writes(op: Op) -> u16 {
    use super::op::AtomicOp;
    match op {
        Op::Alu { dst, .. }
        | Op::Neg { dst, .. }
        | Op::Swap { dst, .. }
        | Op::Truncate { dst, .. }
        | Op::MovSx { dst, .. }
        | Op::LoadImm { dst, .. }
        | Op::Argument { dst, .. }
        | Op::Load { dst, .. } => 1 << dst,
        Op::Atomic { op: AtomicOp::Cmpxchg, .. } => 1,
        Op::Atomic { fetch: true, src, .. } => 1 << src,
        Op::CallHelper { .. } | Op::CallKfunc { .. } | Op::Call { .. } | Op::CallLocal { .. } => 0b11_1111,
        _ => 0,
    }
}
