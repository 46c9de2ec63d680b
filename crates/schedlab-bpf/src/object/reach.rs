//! Which instructions of a program can be reached, once relocation has answered what exists: the branches behind
//! existence tests that fail cannot, as in the kernel, whose verifier removes them.
//!
//! Registers that hold numbers known from the program alone are followed through moves, arithmetic and branches; memory
//! is not. What may be reached counts as reached, also behind an instruction that asks for what does not exist. Not here:
//! whether a program is safe.

use super::insn::{PSEUDO_CALL, PSEUDO_FUNC};
use crate::image::{Insn, ProgramImage};

/// What is known of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    /// This number.
    Number(u64),
    /// The address of something that exists.
    NotZero,
    Unknown,
}

/// Registers 0 to 10, and those that instructions can name and no machine has: they are unknown at first, like others.
type Registers = [Value; 16];

const UNKNOWN: Registers = [Value::Unknown; 16];
const EXIT: u8 = 0x95;
const LD_IMM64: u8 = 0x18;

impl ProgramImage {
    /// For each instruction whether it can be reached.
    #[must_use]
    pub fn reachable(&self) -> Vec<bool> {
        let mut walk = Walk { insns: &self.insns, known: vec![None; self.insns.len()], open: Vec::new() };
        walk.visit(0, UNKNOWN);
        if let Some(handler) = self.exception {
            walk.visit(handler as usize, UNKNOWN);
        }
        while let Some(at) = walk.open.pop() {
            walk.step(at);
        }
        walk.known.iter().map(Option::is_some).collect()
    }
}

struct Walk<'a> {
    insns: &'a [Insn],
    /// What is known before each instruction that was reached.
    known: Vec<Option<Registers>>,
    open: Vec<usize>,
}

impl Walk<'_> {
    /// The instruction is reached with these registers.
    fn visit(&mut self, at: usize, registers: Registers) {
        let Some(known) = self.known.get_mut(at) else { return };
        let merged = match known {
            None => registers,
            Some(before) => {
                let same = |register: usize| {
                    if before[register] == registers[register] { before[register] } else { Value::Unknown }
                };
                std::array::from_fn(same)
            }
        };
        if *known != Some(merged) {
            *known = Some(merged);
            self.open.push(at);
        }
    }

    fn step(&mut self, at: usize) {
        let insn = self.insns[at];
        let Some(mut registers) = self.known[at] else { return };
        match insn.code & 7 {
            _ if insn.code == LD_IMM64 => {
                registers[usize::from(insn.dst())] = self.load(at);
                self.visit(at + 2, registers);
            }
            5 | 6 => self.branch(at, insn, registers),
            4 | 7 => {
                registers[usize::from(insn.dst())] = computed(insn, &registers);
                self.visit(at + 1, registers);
            }
            1 => {
                registers[usize::from(insn.dst())] = Value::Unknown;
                self.visit(at + 1, registers);
            }
            // Stores; atomics may fetch into their source or into r0.
            _ => {
                registers[usize::from(insn.src())] = Value::Unknown;
                registers[0] = Value::Unknown;
                self.visit(at + 1, registers);
            }
        }
    }

    /// What a load of 64 bits yields; the function whose address it is may be called.
    fn load(&mut self, at: usize) -> Value {
        let insn = self.insns[at];
        if insn.src() == PSEUDO_FUNC {
            self.visit(target(at, i64::from(insn.imm)), UNKNOWN);
        }
        if insn.src() != 0 {
            return Value::NotZero;
        }
        let high = self.insns.get(at + 1).map_or(0, |second| second.imm);
        Value::Number(u64::from(insn.imm as u32) | u64::from(high as u32) << 32)
    }

    fn branch(&mut self, at: usize, insn: Insn, mut registers: Registers) {
        let short = insn.code & 7 == 6;
        match insn.code & 0xf0 {
            _ if insn.code == EXIT => {}
            0x80 => {
                if insn.src() == PSEUDO_CALL {
                    self.visit(target(at, i64::from(insn.imm)), UNKNOWN);
                }
                registers[..6].fill(Value::Unknown);
                self.visit(at + 1, registers);
            }
            0x00 => {
                let offset = if short { i64::from(insn.imm) } else { i64::from(insn.off) };
                self.visit(target(at, offset), registers);
            }
            // may_goto: either way.
            0xe0 => {
                self.visit(at + 1, registers);
                self.visit(target(at, i64::from(insn.off)), registers);
            }
            _ => {
                let taken = decided(insn, &registers);
                if taken != Some(true) {
                    self.visit(at + 1, registers);
                }
                if taken != Some(false) {
                    self.visit(target(at, i64::from(insn.off)), registers);
                }
            }
        }
    }
}

fn target(at: usize, offset: i64) -> usize {
    usize::try_from(at as i64 + 1 + offset).unwrap_or(usize::MAX)
}

/// The second operand: a register, or the number in the instruction.
fn operand(insn: Insn, registers: &Registers) -> Value {
    if insn.code & 8 != 0 {
        registers[usize::from(insn.src())]
    } else {
        Value::Number(insn.imm as i64 as u64)
    }
}

/// Whether a conditional branch is taken, if that is known.
fn decided(insn: Insn, registers: &Registers) -> Option<bool> {
    let (left, right) = (registers[usize::from(insn.dst())], operand(insn, registers));
    let condition = insn.code & 0xf0;
    let (a, b) = match (left, right) {
        (Value::Number(a), Value::Number(b)) => (a, b),
        // The address of something that exists, compared with zero in full width.
        (Value::NotZero, Value::Number(0)) if insn.code & 7 == 5 => (1, 0),
        _ => return None,
    };
    if left == Value::NotZero && !matches!(condition, 0x10 | 0x50) {
        return None;
    }
    let short = insn.code & 7 == 6;
    let (a, b) = if short { (u64::from(a as u32), u64::from(b as u32)) } else { (a, b) };
    let sign = |word: u64| if short { i64::from(word as u32 as i32) } else { word as i64 };
    Some(match condition {
        0x10 => a == b,
        0x20 => a > b,
        0x30 => a >= b,
        0x40 => a & b != 0,
        0x50 => a != b,
        0x60 => sign(a) > sign(b),
        0x70 => sign(a) >= sign(b),
        0xa0 => a < b,
        0xb0 => a <= b,
        0xc0 => sign(a) < sign(b),
        0xd0 => sign(a) <= sign(b),
        _ => return None,
    })
}

/// What an arithmetic instruction leaves in its register.
fn computed(insn: Insn, registers: &Registers) -> Value {
    let short = insn.code & 7 == 4;
    let (left, right) = (registers[usize::from(insn.dst())], operand(insn, registers));
    let operation = insn.code & 0xf0;
    if operation == 0xb0 && insn.off == 0 && !short {
        return right;
    }
    let (Value::Number(a), Value::Number(b)) = (left, right) else {
        return match right {
            Value::Number(b) if operation == 0xb0 && insn.off == 0 => Value::Number(u64::from(b as u32)),
            _ => Value::Unknown,
        };
    };
    let mask = if short { 31 } else { 63 };
    let a = if short { u64::from(a as u32) } else { a };
    let result = match operation {
        0x00 => a.wrapping_add(b),
        0x10 => a.wrapping_sub(b),
        0x40 => a | b,
        0x50 => a & b,
        0x60 => a << (b & mask),
        0x70 => a >> (b & mask),
        0xa0 => a ^ b,
        0xb0 if insn.off == 0 => b,
        _ => return Value::Unknown,
    };
    Value::Number(if short { u64::from(result as u32) } else { result })
}

#[cfg(test)]
mod tests {
    use super::*;
    fn insn(code: u8, regs: u8, off: i16, imm: i32) -> Insn {
        Insn { code, regs, off, imm }
    }

    fn reached(insns: &[Insn]) -> String {
        let program = ProgramImage {
            name: String::new(),
            section: String::new(),
            insns: insns.to_vec(),
            functions: Vec::new(),
            lines: Vec::new(),
            exception: None,
            poisons: Vec::new(),
        };
        program.reachable().iter().map(|found| if *found { 'x' } else { '.' }).collect()
    }

    #[test]
    fn what_lies_behind_a_test_that_fails_is_not_reached() {
        let exit = insn(EXIT, 0, 0, 0);
        let test = |kind: u8, value: i32| {
            let load = [insn(LD_IMM64, kind << 4 | 1, 0, value), insn(0, 0, 0, 0)];
            [load[0], load[1], insn(0x15, 1, 1, 0), insn(0x85, 0x20, 0, 7), exit]
        };
        assert_eq!(reached(&test(0, 0)), "x.x.x", "no such symbol: the branch skips the call");
        assert_eq!(reached(&test(3, 9)), "x.xxx", "the symbol exists");
    }

    #[test]
    fn registers_that_do_not_exist_are_unknown() {
        let exit = insn(EXIT, 0, 0, 0);
        for code in 0..=u8::MAX {
            for regs in [0x0b, 0xb0, 0xff] {
                assert!(
                    reached(&[insn(code, regs, 0, 0), exit, exit]).starts_with('x'),
                    "{code:#x} {regs:#x}"
                );
            }
        }
        assert_eq!(reached(&[insn(0xbf, 0xf2, 0, 0), insn(0x15, 2, 1, 0), exit, exit]), "xxxx", "r2 = r15");
    }

    #[test]
    fn numbers_are_followed_and_meet() {
        let exit = insn(EXIT, 0, 0, 0);
        let shifted = [insn(0xb7, 2, 0, 1), insn(0x67, 2, 0, 56), insn(0x55, 2, 1, 0), exit, exit];
        assert_eq!(reached(&shifted), "xxx.x", "1 << 56 is not 0");
        let meets =
            [insn(0xb7, 2, 0, 0), insn(0x15, 1, 1, 0), insn(0xb7, 2, 0, 1), insn(0x55, 2, 1, 0), exit, exit];
        assert_eq!(reached(&meets), "xxxxxx", "both numbers arrive");
        let called = [insn(0x85, 0x10, 0, 1), exit, insn(0x26, 1, 1, 5), exit, exit];
        assert_eq!(reached(&called), "xxxxx", "a function of the program");
    }
}
