//! The interpreter: exact, simple, slow. It is the reference of the differential test and the engine for
//! stepping; the fast one is `jit`.
//!
//! Both engines agree on r0, memory, faults and the number of executed instructions. Registers a call
//! leaves undefined read 0, in both.

use super::WORDS;
use super::compiled::Code;
use super::context::{Ran, RawContext, raise};
use super::fault::FaultKind;
use super::layout::STACK_BYTES_FRAME;
use super::op::{AluOp, AtomicOp, Cond, Op, Operand, Wide};
use super::target::{Action, ContextField};
use crate::memory::Memory;
use std::sync::Arc;

/// Iterations `may_goto` allows to one function call, as the kernel's `BPF_MAX_LOOPS`.
pub(crate) const MAY_GOTO_MAX: u64 = 8 * 1024 * 1024;

/// Runs one function to its exit, after `count` instructions of its callers; `words` are the arguments of a
/// `struct_ops` member if it is a main function.
///
/// # Safety
/// `raw` must be the live context of an instance, and nobody may hold a reference into it or its host.
pub(crate) unsafe fn run(
    raw: *mut RawContext,
    function: u32,
    frame: u64,
    args: [u64; 5],
    words: [u64; WORDS],
    count: u64,
) -> Ran {
    // SAFETY: the pointer is live; cloning the handle keeps the code while programs run.
    let code = unsafe { Arc::clone(&(*raw).state.code) };
    let mut registers = [0; 11];
    registers[1..6].copy_from_slice(&args);
    registers[10] = frame;
    let mut machine = Machine { raw, code: &code, registers, may_goto: MAY_GOTO_MAX, words, count };
    // SAFETY: passed on to the caller.
    let value = unsafe { machine.run(function) };
    Ran { value, executed: machine.count }
}

struct Machine<'a> {
    raw: *mut RawContext,
    code: &'a Code,
    registers: [u64; 11],
    may_goto: u64,
    words: [u64; WORDS],
    /// Instructions executed.
    count: u64,
}

/// Where to go after an instruction.
enum Flow {
    Next,
    Jump(u32),
    Exit,
    Fault,
}

impl Machine<'_> {
    /// # Safety
    /// As for [`run`].
    unsafe fn run(&mut self, function: u32) -> u64 {
        let function = &self.code.linked.functions[function as usize];
        let ops = &self.code.linked.programs[function.program as usize].ops;
        let mut insn = function.start;
        loop {
            let op = ops[insn as usize];
            self.count += 1;
            // SAFETY: passed on to the caller.
            let flow = unsafe { self.step(op) };
            match flow {
                Flow::Next => insn += if matches!(op, Op::LoadImm { .. }) { 2 } else { 1 },
                Flow::Jump(target) => {
                    // SAFETY: as above.
                    if target <= insn && unsafe { self.out_of_fuel() } {
                        return self.place(function.program, insn);
                    }
                    insn = target;
                }
                Flow::Exit => return self.registers[0],
                Flow::Fault => return self.place(function.program, insn),
            }
        }
    }

    /// Notes where a fault happened, unless a function called from here did already.
    fn place(&mut self, program: u32, insn: u32) -> u64 {
        // SAFETY: the context is live and no program runs at this point.
        unsafe { (*self.raw).state.fault_place.get_or_insert((program, insn)) };
        0
    }

    /// Whether the budget is used up, which is a fault. Asked where control goes backwards and at calls of functions:
    /// between two such places a function executes each of its instructions at most once.
    ///
    /// # Safety
    /// As for [`run`].
    unsafe fn out_of_fuel(&mut self) -> bool {
        // SAFETY: the context is live and no program runs at this point.
        let raw = unsafe { &mut *self.raw };
        if (self.count as i64) < raw.left {
            return false;
        }
        let budget = raw.state.budget;
        raise(raw, FaultKind::Budget { budget });
        true
    }

    fn memory(&mut self) -> &mut Memory {
        // SAFETY: the context is live and no program runs while the borrow lasts.
        unsafe { &mut (*self.raw).state.memory }
    }

    fn value(&self, operand: Operand) -> u64 {
        match operand {
            Operand::Reg(register) => self.registers[usize::from(register)],
            Operand::Imm(value) => value as u64,
        }
    }

    /// # Safety
    /// As for [`run`].
    unsafe fn step(&mut self, op: Op) -> Flow {
        match op {
            Op::Alu { op, wide, dst, src } => {
                let (a, b) = (self.registers[usize::from(dst)], self.value(src));
                self.set(dst, if wide { alu64(op, a, b) } else { u64::from(alu32(op, a as u32, b as u32)) })
            }
            Op::Neg { wide, dst } => {
                let value = self.registers[usize::from(dst)].wrapping_neg();
                self.set(dst, if wide { value } else { u64::from(value as u32) })
            }
            Op::MovSx { wide, dst, src, bits } => {
                let value = sign_extend(self.registers[usize::from(src)], bits);
                self.set(dst, if wide { value } else { u64::from(value as u32) })
            }
            Op::Swap { dst, bits } => {
                let value = self.registers[usize::from(dst)].swap_bytes() >> (64 - bits);
                self.set(dst, value)
            }
            Op::Truncate { dst, bits } => {
                let value = self.registers[usize::from(dst)] & (u64::MAX >> (64 - bits));
                self.set(dst, value)
            }
            Op::LoadImm { dst, value: Wide::Value(value) } => self.set(dst, value),
            Op::Load { dst, src, off, bytes, signed } => {
                let base = self.registers[usize::from(src)];
                let value = self.memory().load(base, off, bytes);
                self.set(dst, if signed { sign_extend(value, bytes * 8) } else { value })
            }
            Op::Argument { dst, word, bytes } => {
                let value = self.words[usize::from(word)] & (u64::MAX >> (64 - 8 * bytes));
                self.set(dst, value)
            }
            Op::Store { dst, src, off, bytes } => {
                let (base, value) = (self.registers[usize::from(dst)], self.value(src));
                if self.memory().store(base, off, bytes, value) { Flow::Next } else { self.bad_store(base) }
            }
            Op::Atomic { .. } => self.atomic(op),
            Op::Jump { target } => Flow::Jump(target),
            Op::Branch { cond, wide, dst, src, target } => {
                let (a, b) = (self.registers[usize::from(dst)], self.value(src));
                if holds(cond, wide, a, b) { Flow::Jump(target) } else { Flow::Next }
            }
            Op::MayGoto { target } if self.may_goto == 0 => Flow::Jump(target),
            Op::MayGoto { .. } => {
                self.may_goto -= 1;
                Flow::Next
            }
            // SAFETY: passed on to the caller.
            Op::Call { target } => unsafe { self.call(target) },
            // SAFETY: passed on to the caller.
            Op::CallLocal { target } => unsafe { self.call_local(target) },
            Op::Exit => Flow::Exit,
            Op::Slot | Op::LoadImm { .. } | Op::CallHelper { .. } | Op::CallKfunc { .. } => {
                unreachable!("linking leaves no such instruction")
            }
        }
    }

    fn set(&mut self, register: u8, value: u64) -> Flow {
        self.registers[usize::from(register)] = value;
        Flow::Next
    }

    fn bad_store(&mut self, address: u64) -> Flow {
        // SAFETY: the context is live and no program runs at this point.
        raise(unsafe { &mut *self.raw }, FaultKind::Store { address });
        Flow::Fault
    }

    fn atomic(&mut self, op: Op) -> Flow {
        let Op::Atomic { op, fetch, dst, src, off, bytes } = op else {
            unreachable!("called for atomic operations only")
        };
        let (base, operand) = (self.registers[usize::from(dst)], self.registers[usize::from(src)]);
        let old = self.memory().load(base, off, bytes);
        let mask = u64::MAX >> (64 - 8 * u32::from(bytes));
        let new = match op {
            AtomicOp::Add => old.wrapping_add(operand),
            AtomicOp::Or => old | operand,
            AtomicOp::And => old & operand,
            AtomicOp::Xor => old ^ operand,
            AtomicOp::Xchg => operand,
            AtomicOp::Cmpxchg if old == self.registers[0] & mask => operand,
            AtomicOp::Cmpxchg => old,
        };
        if !self.memory().store(base, off, bytes, new) {
            return self.bad_store(base);
        }
        match op {
            AtomicOp::Cmpxchg => self.set(0, old),
            _ if fetch => self.set(src, old),
            _ => Flow::Next,
        }
    }

    /// Sets r0 and clears what a call leaves undefined.
    fn called(&mut self, value: u64) -> Flow {
        self.registers[..6].copy_from_slice(&[value, 0, 0, 0, 0, 0]);
        // SAFETY: the context is live and no program runs at this point.
        if unsafe { (*self.raw).faulted() } { Flow::Fault } else { Flow::Next }
    }

    /// # Safety
    /// As for [`run`].
    unsafe fn call(&mut self, target: u32) -> Flow {
        let target = &self.code.linked.targets[target as usize];
        let args: [u64; 5] = self.registers[1..6].try_into().expect("five registers");
        // SAFETY: the context is live and no program runs at this point.
        unsafe { (*self.raw).pending = self.count };
        let value = match target.action {
            // SAFETY: passed on to the caller; the entry was made for this instance's host type.
            Action::Function(entry) | Action::MapLookup(entry) => unsafe {
                let answer = entry.call(self.raw, &args);
                debug_assert_eq!(answer.is_end(), (*self.raw).faulted(), "{} forgot a fault", target.name);
                answer.value
            },
            // SAFETY: the context is live and no program runs at this point.
            Action::Context(field) => unsafe {
                match field {
                    ContextField::Now => (*self.raw).now,
                    ContextField::Cpu => (*self.raw).cpu,
                    ContextField::Current => (*self.raw).current,
                }
            },
            Action::Load { offset, bytes, signed } => {
                let value = self.memory().load(args[0], offset, bytes);
                if signed { sign_extend(value, bytes * 8) } else { value }
            }
            Action::Constant(value) => value,
            // SAFETY: passed on to the caller.
            Action::TailCall => return unsafe { self.tail_call(args) },
            Action::Absent => {
                // SAFETY: as above.
                raise(unsafe { &mut *self.raw }, FaultKind::Absent(target.name.clone()));
                0
            }
        };
        self.called(value)
    }

    /// # Safety
    /// As for [`run`].
    unsafe fn tail_call(&mut self, [argument, map, slot, ..]: [u64; 5]) -> Flow {
        // SAFETY: passed on to the caller; the access to the context ends with its statement.
        unsafe {
            let answer = super::run::tail_call(self.raw, self.registers[10], argument, map, slot);
            if !(*self.raw).faulted() && std::mem::take(&mut (*self.raw).tailed) != 0 {
                self.registers[0] = answer.value;
                return Flow::Exit;
            }
        }
        self.called(0)
    }

    /// # Safety
    /// As for [`run`].
    unsafe fn call_local(&mut self, target: u32) -> Flow {
        // SAFETY: passed on to the caller.
        if unsafe { self.out_of_fuel() } {
            return Flow::Fault;
        }
        let args: [u64; 5] = self.registers[1..6].try_into().expect("five registers");
        // SAFETY: passed on to the caller; linking bounds the depth to eight frames.
        let ran = unsafe {
            run(self.raw, target, self.registers[10] - STACK_BYTES_FRAME, args, [0; WORDS], self.count)
        };
        self.count = ran.executed;
        self.called(ran.value)
    }
}

pub(crate) fn sign_extend(value: u64, bits: u8) -> u64 {
    let unused = 64 - u32::from(bits);
    ((value << unused) as i64 >> unused) as u64
}

/// 64-bit arithmetic: division by zero gives 0, its remainder the dividend; shifts use the low 6 bits.
pub(crate) fn alu64(op: AluOp, a: u64, b: u64) -> u64 {
    match op {
        AluOp::Add => a.wrapping_add(b),
        AluOp::Sub => a.wrapping_sub(b),
        AluOp::Mul => a.wrapping_mul(b),
        AluOp::Div => a.checked_div(b).unwrap_or(0),
        AluOp::Mod => a.checked_rem(b).unwrap_or(a),
        AluOp::Sdiv if b == 0 => 0,
        AluOp::Sdiv => (a as i64).wrapping_div(b as i64) as u64,
        AluOp::Smod if b == 0 => a,
        AluOp::Smod => (a as i64).wrapping_rem(b as i64) as u64,
        AluOp::Or => a | b,
        AluOp::And => a & b,
        AluOp::Xor => a ^ b,
        AluOp::Mov => b,
        AluOp::Lsh => a << (b & 63),
        AluOp::Rsh => a >> (b & 63),
        AluOp::Arsh => ((a as i64) >> (b & 63)) as u64,
    }
}

/// 32-bit arithmetic; the caller zero-extends. Shifts use the low 5 bits.
pub(crate) fn alu32(op: AluOp, a: u32, b: u32) -> u32 {
    match op {
        AluOp::Add => a.wrapping_add(b),
        AluOp::Sub => a.wrapping_sub(b),
        AluOp::Mul => a.wrapping_mul(b),
        AluOp::Div => a.checked_div(b).unwrap_or(0),
        AluOp::Mod => a.checked_rem(b).unwrap_or(a),
        AluOp::Sdiv if b == 0 => 0,
        AluOp::Sdiv => (a as i32).wrapping_div(b as i32) as u32,
        AluOp::Smod if b == 0 => a,
        AluOp::Smod => (a as i32).wrapping_rem(b as i32) as u32,
        AluOp::Or => a | b,
        AluOp::And => a & b,
        AluOp::Xor => a ^ b,
        AluOp::Mov => b,
        AluOp::Lsh => a << (b & 31),
        AluOp::Rsh => a >> (b & 31),
        AluOp::Arsh => ((a as i32) >> (b & 31)) as u32,
    }
}

/// Whether a branch is taken.
pub(crate) fn holds(cond: Cond, wide: bool, a: u64, b: u64) -> bool {
    let (a, b, sa, sb) = if wide {
        (a, b, a as i64, b as i64)
    } else {
        (u64::from(a as u32), u64::from(b as u32), i64::from(a as i32), i64::from(b as i32))
    };
    match cond {
        Cond::Eq => a == b,
        Cond::Ne => a != b,
        Cond::Gt => a > b,
        Cond::Ge => a >= b,
        Cond::Lt => a < b,
        Cond::Le => a <= b,
        Cond::Set => a & b != 0,
        Cond::Sgt => sa > sb,
        Cond::Sge => sa >= sb,
        Cond::Slt => sa < sb,
        Cond::Sle => sa <= sb,
    }
}
