//! Which loads of a main function read the arguments of a `struct_ops` member, and need no memory for it.
//!
//! A member gets the address of an array of its arguments. Nearly all programs only load words of it: those loads
//! become [`Op::Argument`], and if nothing else is done with the address, the array is not even written. Both
//! engines follow what is found here.

use super::op::{AluOp, Op, Operand};

/// Arguments that are passed by value as well.
pub(crate) const WORDS: usize = 3;

/// What is known before an instruction.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Known {
    /// Registers that may hold something made of the address.
    may: u16,
    /// Registers that hold the address.
    must: u16,
    /// Nothing that could have changed memory was executed.
    pristine: bool,
}

/// Replaces the loads of arguments in a main function, instructions `start..end`; whether it needs the array.
/// `taken` gives the argument registers that a call target reads.
pub(crate) fn replace(ops: &mut [Op], start: u32, end: u32, taken: impl Fn(u32) -> u8) -> bool {
    let known = flow(ops, start, end);
    let mut needed = false;
    for (op, known) in ops[start as usize..end as usize].iter_mut().zip(known) {
        let Some(known) = known else { continue };
        let exact = |register: u8| known.must & 1 << register != 0;
        match *op {
            Op::Load { dst, src, off: off @ (0 | 8 | 16), bytes: bytes @ (4 | 8), signed: false }
                if known.pristine && exact(src) =>
            {
                *op = Op::Argument { dst, word: off as u8 / 8, bytes };
            }
            Op::Call { target } => needed |= known.may & ((1 << (taken(target) + 1)) - 2) != 0,
            op => needed |= known.may & uses(op) != 0,
        }
    }
    needed
}

/// Registers whose value an operation looks at, hands on or keeps, moves between registers apart.
fn uses(op: Op) -> u16 {
    let source = |operand| if let Operand::Reg(register) = operand { 1 << register } else { 0_u16 };
    match op {
        Op::Slot | Op::LoadImm { .. } | Op::Jump { .. } | Op::MayGoto { .. } | Op::Argument { .. } => 0,
        Op::Alu { op: AluOp::Mov, wide: true, .. } => 0,
        Op::Alu { op: AluOp::Mov, src, .. } => source(src),
        Op::Alu { dst, src, .. } | Op::Branch { dst, src, .. } | Op::Store { dst, src, .. } => {
            1 << dst | source(src)
        }
        Op::Neg { dst, .. } | Op::Swap { dst, .. } | Op::Truncate { dst, .. } => 1 << dst,
        Op::MovSx { src, .. } | Op::Load { src, .. } => 1 << src,
        Op::Atomic { dst, src, .. } => 1 << dst | 1 << src | 1,
        Op::CallHelper { .. } | Op::CallKfunc { .. } | Op::Call { .. } | Op::CallLocal { .. } => 0b11_1110,
        Op::Exit => 1,
    }
}

/// What is known before each instruction that control can reach.
fn flow(ops: &[Op], start: u32, end: u32) -> Vec<Option<Known>> {
    let mut known: Vec<Option<Known>> = vec![None; (end - start) as usize];
    known[0] = Some(Known { may: 1 << 1, must: 1 << 1, pristine: true });
    let mut open = vec![start];
    while let Some(insn) = open.pop() {
        let op = ops[insn as usize];
        let Some(before) = known[(insn - start) as usize] else { continue };
        let after = before.after(op);
        let next = insn + if matches!(op, Op::LoadImm { .. }) { 2 } else { 1 };
        for to in op.target().into_iter().chain((!op.ends_flow()).then_some(next)) {
            let there = &mut known[(to - start) as usize];
            let met = there.map_or(after, |there| there.meet(after));
            if *there != Some(met) {
                *there = Some(met);
                open.push(to);
            }
        }
    }
    known
}

impl Known {
    fn meet(self, other: Known) -> Known {
        Known {
            may: self.may | other.may,
            must: self.must & other.must,
            pristine: self.pristine && other.pristine,
        }
    }

    fn after(mut self, op: Op) -> Known {
        match op {
            Op::Alu { op: AluOp::Mov, wide: true, dst, src: Operand::Reg(src) } => {
                let moved = |set: u16| set & !(1 << dst) | (set >> src & 1) << dst;
                (self.may, self.must) = (moved(self.may), moved(self.must));
            }
            Op::Alu { op: AluOp::Mov, dst, src: Operand::Imm(_), .. } => self.clear(1 << dst),
            // What is computed from the address counts as it: that keeps the array.
            Op::Alu { dst, src, .. } => {
                let mixed = match src {
                    Operand::Reg(src) if self.may & 1 << src != 0 => 1 << dst,
                    _ => 0,
                };
                (self.may, self.must) = (self.may | mixed, self.must & !(1 << dst));
            }
            Op::Neg { dst, .. } | Op::Swap { dst, .. } | Op::Truncate { dst, .. } | Op::MovSx { dst, .. } => {
                self.must &= !(1 << dst);
            }
            Op::LoadImm { dst, .. } | Op::Load { dst, .. } | Op::Argument { dst, .. } => self.clear(1 << dst),
            Op::Atomic { src, .. } => {
                self.clear(1 << src | 1);
                self.pristine = false;
            }
            // Direct stores to the frame stay in it.
            Op::Store { dst, .. } => self.pristine &= dst == 10,
            Op::CallHelper { .. } | Op::CallKfunc { .. } | Op::Call { .. } | Op::CallLocal { .. } => {
                self.clear(0b11_1111);
                self.pristine = false;
            }
            Op::Slot | Op::Jump { .. } | Op::Branch { .. } | Op::MayGoto { .. } | Op::Exit => {}
        }
        self
    }

    fn clear(&mut self, registers: u16) {
        self.may &= !registers;
        self.must &= !registers;
    }
}
