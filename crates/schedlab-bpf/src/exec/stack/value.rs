//! What is known of registers and stack slots before an instruction, and how instructions change it.
//!
//! Numbers, addresses of maps and functions, and pointers at a constant distance from a frame pointer are followed
//! through moves, arithmetic and spills. Two paths that know different things know nothing together. Not here: control
//! flow and calls (`walk`).

use std::collections::BTreeMap;

use super::super::interp::{alu32, alu64, holds, sign_extend};
use super::super::layout::STACK_BYTES_FRAME;
use super::super::op::{AluOp, Cond, Operand};

/// What is known of one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Number(u64),
    /// Bytes above the frame pointer of a function, by its index in the program.
    Frame(u32, i64),
    /// A map, by index.
    Map(u32),
    /// Bytes from the first value of a map.
    Element(u32, i64),
    /// A function of the program, by its index.
    Function(u32),
    /// The address of something else that exists.
    Address,
    Unknown,
}

impl Value {
    fn is_frame(self) -> bool {
        matches!(self, Value::Frame(..))
    }
}

/// Registers and stack slots of the function that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub registers: [Value; 11],
    /// Offset from the frame pointer to (bytes, content).
    slots: BTreeMap<i64, (u8, Value)>,
    /// A pointer to the frame may be where it is not followed.
    lost: bool,
}

impl State {
    /// At the start of a function, with nothing known of its arguments.
    pub(super) fn entry(function: u32) -> State {
        let mut registers = [Value::Unknown; 11];
        registers[10] = Value::Frame(function, 0);
        State { registers, slots: BTreeMap::new(), lost: false }
    }

    pub(super) fn get(&self, register: u8) -> Value {
        self.registers[usize::from(register)]
    }

    pub(super) fn operand(&self, operand: Operand) -> Value {
        match operand {
            Operand::Reg(register) => self.get(register),
            Operand::Imm(value) => Value::Number(value as u64),
        }
    }

    pub(super) fn set(&mut self, register: u8, value: Value) {
        self.registers[usize::from(register)] = value;
    }

    /// Keeps what both know; whether that is less than `self` knew.
    pub(super) fn meet(&mut self, other: &State) -> bool {
        let before = self.clone();
        for (mine, theirs) in self.registers.iter_mut().zip(other.registers) {
            if *mine != theirs {
                self.lost |= mine.is_frame() || theirs.is_frame();
                *mine = Value::Unknown;
            }
        }
        let gone = |slots: &BTreeMap<i64, (u8, Value)>, others: &BTreeMap<i64, (u8, Value)>| {
            slots.iter().any(|(at, slot)| slot.1.is_frame() && others.get(at) != Some(slot))
        };
        self.lost |= other.lost || gone(&self.slots, &other.slots) || gone(&other.slots, &self.slots);
        self.slots.retain(|at, slot| other.slots.get(at) == Some(slot));
        *self != before
    }

    /// `dst = dst op src`.
    pub(super) fn compute(&mut self, op: AluOp, wide: bool, dst: u8, src: Operand) {
        let (left, right) = (self.get(dst), self.operand(src));
        let value = match (op, left, right) {
            (AluOp::Mov, _, right) if wide => right,
            (AluOp::Mov, _, Value::Number(b)) => Value::Number(u64::from(b as u32)),
            (_, Value::Number(a), Value::Number(b)) if wide => Value::Number(alu64(op, a, b)),
            (_, Value::Number(a), Value::Number(b)) => {
                Value::Number(u64::from(alu32(op, a as u32, b as u32)))
            }
            (AluOp::Add, pointer, Value::Number(by)) | (AluOp::Add, Value::Number(by), pointer) if wide => {
                moved(pointer, by as i64)
            }
            (AluOp::Sub, pointer, Value::Number(by)) if wide => moved(pointer, (by as i64).wrapping_neg()),
            _ => Value::Unknown,
        };
        let kept = op == AluOp::Mov && !right.is_frame();
        self.lost |= value == Value::Unknown && !kept && (left.is_frame() || right.is_frame());
        self.set(dst, value);
    }

    /// A register becomes what `number` makes of the number in another, if there is one.
    pub(super) fn convert(&mut self, dst: u8, src: u8, number: impl Fn(u64) -> u64) {
        let value = match self.get(src) {
            Value::Number(value) => Value::Number(number(value)),
            other => {
                self.lost |= other.is_frame();
                Value::Unknown
            }
        };
        self.set(dst, value);
    }

    /// What lies in the own frame at an offset.
    pub(super) fn load(&self, at: i64, bytes: u8, signed: bool) -> Value {
        match self.slots.get(&at) {
            Some((stored, value)) if *stored == bytes && !signed => *value,
            Some((stored, Value::Number(value))) if *stored >= bytes => {
                Value::Number(extended(*value, bytes, signed))
            }
            _ => Value::Unknown,
        }
    }

    /// The own frame holds `value` at an offset.
    pub(super) fn store(&mut self, at: i64, bytes: u8, value: Value) {
        self.forget(at, at.saturating_add(bytes.into()));
        // Such a store is an error of its own.
        if !(-(STACK_BYTES_FRAME as i64)..0).contains(&at) {
            return;
        }
        match value {
            Value::Number(value) => {
                self.slots.insert(at, (bytes, Value::Number(extended(value, bytes, false))));
            }
            Value::Unknown => {}
            value if bytes == 8 => {
                self.slots.insert(at, (bytes, value));
            }
            value => self.lost |= value.is_frame(),
        }
    }

    /// A value is stored where it is not followed; that may be the own frame.
    pub(super) fn store_elsewhere(&mut self, value: Value) {
        if self.lost {
            self.slots.clear();
        }
        self.lost |= value.is_frame();
    }

    /// Something is stored in the own frame at `from..to`.
    fn forget(&mut self, from: i64, to: i64) {
        for at in self.overlapping(from, to) {
            self.slots.remove(&at);
        }
    }

    /// What lies in the own frame at `from..to` is not known any more: it may be what it was.
    pub(super) fn lose(&mut self, from: i64, to: i64) {
        for at in self.overlapping(from, to) {
            let slot = self.slots.remove(&at);
            self.lost |= slot.is_some_and(|(_, value)| value.is_frame());
        }
    }

    fn overlapping(&self, from: i64, to: i64) -> Vec<i64> {
        let near = self.slots.range(from.saturating_sub(7)..to);
        let over = |(at, (bytes, _)): &(&i64, &(u8, Value))| at.saturating_add(i64::from(*bytes)) > from;
        near.filter(over).map(|(at, _)| *at).collect()
    }

    /// A call ends: it may have written through what it was given, and `anywhere` if it runs code of the program.
    pub(super) fn called(&mut self, function: u32, anywhere: bool) {
        let given: Vec<i64> = self.registers[1..6]
            .iter()
            .filter_map(|value| if let Value::Frame(owner, at) = value { Some((*owner, *at)) } else { None })
            .filter_map(|(owner, at)| (owner == function).then_some(at))
            .collect();
        if self.lost || anywhere && !given.is_empty() {
            self.lose(i64::MIN, i64::MAX);
        }
        // What a pointer is handed out for lies above it, though perhaps not all that does.
        given.into_iter().for_each(|at| self.lose(at, i64::MAX));
        self.registers[..6].fill(Value::Unknown);
    }

    /// Whether a branch is taken, if that is known.
    pub(super) fn decided(&self, cond: Cond, wide: bool, dst: u8, src: Operand) -> Option<bool> {
        match (self.get(dst), self.operand(src)) {
            (Value::Number(a), Value::Number(b)) => Some(holds(cond, wide, a, b)),
            (Value::Unknown | Value::Number(_), _) => None,
            (_, Value::Number(0)) if wide => match cond {
                Cond::Eq => Some(false),
                Cond::Ne => Some(true),
                _ => None,
            },
            _ => None,
        }
    }
}

/// A pointer some bytes further on.
fn moved(pointer: Value, bytes: i64) -> Value {
    match pointer {
        Value::Frame(function, at) => at.checked_add(bytes).map(|at| Value::Frame(function, at)),
        Value::Element(map, at) => at.checked_add(bytes).map(|at| Value::Element(map, at)),
        _ => None,
    }
    .unwrap_or(Value::Unknown)
}

/// The low bytes of a word, with zeros or its sign above.
pub(super) fn extended(value: u64, bytes: u8, signed: bool) -> u64 {
    if signed { sign_extend(value, bytes * 8) } else { value & (u64::MAX >> (64 - 8 * u32::from(bytes))) }
}
