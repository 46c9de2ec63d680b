//! Translation of one function: registers, what is known of them, memory accesses.
//!
//! Instructions are counted, not tested one by one: where the count is known it is a constant, else it lives in a
//! machine register; it is told to whoever is called and returned at the end. Not here: control flow (`flow`),
//! arithmetic (`alu`), calls (`call`), bounds of values (`range`).

use std::collections::BTreeMap;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{
    Block, Function as Ir, InstBuilder, MemFlagsData, Type, UserFuncName, Value, types,
};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext, Variable};
use cranelift_jit::JITModule;
use cranelift_module::Module;

use super::Unit;
use super::call::{FaultExit, PENDING_OFFSET, fault_store};
use super::ending::lengths_vary;
use super::flow::{Facts, Leader, Test};
use super::range::Range;
use crate::exec::context::RawContext;
use crate::exec::layout::{HOST_AREA, STACK_BYTES_FRAME};
use crate::exec::op::{AtomicOp, Op, Operand, Wide};
use crate::exec::{MAY_GOTO_MAX, WORDS};
use crate::memory::ZERO_BYTES;

pub(super) struct Translator<'a, 'b> {
    pub unit: &'a Unit<'a>,
    pub module: &'a mut JITModule,
    pub b: FunctionBuilder<'b>,
    pub index: usize,
    pub leaders: BTreeMap<u32, Leader>,
    /// r0 to r9.
    registers: [Variable; 10],
    /// Instructions executed, without those pending.
    pub count: Variable,
    pub may_goto: Variable,
    /// Where the context lies: it comes back from each host function.
    pub raw: Variable,
    /// The first arguments of a `struct_ops` member, if this is a main function.
    words: Vec<Value>,
    /// r10 of a function that is no main one: theirs is in the context.
    frame: Option<Value>,
    /// Instructions not yet in the count.
    pub pending: i64,
    /// The instruction being translated.
    pub insn: u32,
    /// What holds here.
    pub facts: Facts,
    /// What holds wherever the value exists.
    ranges: BTreeMap<Value, Range>,
    /// Values that are another and a small constant.
    sums: BTreeMap<Value, (Value, i32)>,
    /// Where faults leave the function.
    pub bad: Option<Block>,
}

/// Bytes from the context to the region: it is where the context is, so one register leads to both.
const REGION_OFFSET: i32 = crate::exec::REGION_OFFSET as i32;

/// Stacks end below the host's area, and below every frame pointer there is a frame.
const FRAME_POINTERS: Range = Range { low: ZERO_BYTES + STACK_BYTES_FRAME, high: HOST_AREA };

/// A machine address: a value and an offset, which each access has room for.
#[derive(Clone, Copy)]
pub(super) struct Place {
    address: Value,
    offset: i32,
}

/// Flags of accesses to region and context: confined by construction, any alignment.
pub(super) fn flags() -> MemFlagsData {
    MemFlagsData::new().with_notrap()
}

pub(super) fn int_type(bytes: u8) -> Type {
    match bytes {
        1 => types::I8,
        2 => types::I16,
        4 => types::I32,
        _ => types::I64,
    }
}

impl<'a, 'b> Translator<'a, 'b> {
    pub(super) fn translate(
        unit: &'a Unit<'a>,
        module: &'a mut JITModule,
        ir: &'b mut Ir,
        scratch: &'b mut FunctionBuilderContext,
        index: usize,
    ) {
        ir.name = UserFuncName::user(0, index as u32);
        let mut b = FunctionBuilder::new(ir, scratch);
        let registers = std::array::from_fn(|_| b.declare_var(types::I64));
        let [count, may_goto, raw] = std::array::from_fn(|_| b.declare_var(types::I64));
        let entry = b.create_block();
        b.append_block_params_for_function_params(entry);
        b.switch_to_block(entry);
        b.seal_block(entry);
        let parameters = b.block_params(entry).to_vec();
        b.def_var(raw, parameters[0]);
        let mut translator = Translator {
            unit,
            module,
            b,
            index,
            leaders: BTreeMap::new(),
            registers,
            count,
            may_goto,
            raw,
            words: Vec::new(),
            frame: None,
            pending: 0,
            insn: 0,
            facts: Facts::default(),
            ranges: BTreeMap::new(),
            sums: BTreeMap::new(),
            bad: None,
        };
        translator.prologue(&parameters[1..]);
        translator.body();
        translator.bad_exit();
        translator.b.seal_all_blocks();
        let config = translator.module.target_config();
        translator.b.finalize(config);
    }

    /// Whether the number of the function's instructions depends on the way before its end.
    fn lengths_vary(&self) -> bool {
        let function = &self.unit.linked.functions[self.index];
        let program = &self.unit.linked.programs[function.program as usize];
        lengths_vary(&program.ops, function.start, function.end)
    }

    /// Where the context lies.
    pub(super) fn context(&mut self) -> Value {
        self.b.use_var(self.raw)
    }

    /// The word of the context at an offset.
    pub(super) fn field(&mut self, offset: usize) -> Value {
        let context = self.context();
        self.b.ins().load(types::I64, flags(), context, offset as i32)
    }

    /// Sets the word of the context at an offset.
    pub(super) fn set_field(&mut self, offset: usize, value: Value) {
        let context = self.context();
        self.b.ins().store(flags(), value, context, offset as i32);
    }

    /// Of a main function, nothing is pending, and r1 is an address in the region; others get their frame pointer and the
    /// instructions counted so far as well.
    fn prologue(&mut self, parameters: &[Value]) {
        let zero = self.constant(0);
        let (count, arguments) = if self.unit.linked.functions[self.index].main {
            let (words, arguments) = parameters.split_at(WORDS);
            self.words = words.to_vec();
            self.ranges.insert(arguments[0], Range::up_to(self.unit.layout.size() - 1));
            // Where ways of different lengths join, a register that is added to on some beats constants on all.
            let count = if self.lengths_vary() { self.field(PENDING_OFFSET) } else { zero };
            (count, arguments)
        } else {
            self.frame = Some(parameters[0]);
            self.ranges.insert(parameters[0], FRAME_POINTERS);
            (parameters[1], &parameters[2..])
        };
        for register in 0..10 {
            let value = if register > 0 { arguments.get(register - 1) } else { None };
            self.b.def_var(self.registers[register], *value.unwrap_or(&zero));
        }
        self.b.def_var(self.count, count);
        let loops = self.b.ins().iconst(types::I64, MAY_GOTO_MAX as i64);
        self.b.def_var(self.may_goto, loops);
        if self.unit.linked.functions[self.index].array {
            for (word, value) in self.words.clone().into_iter().enumerate() {
                let place = self.address(1);
                self.store(place, 8 * word as i16, 8, value);
            }
        }
    }

    pub(super) fn op(&mut self, op: Op) {
        match op {
            Op::Alu { op, wide, dst, src } => self.alu(op, wide, dst, src),
            Op::Neg { wide, dst } => self.neg(wide, dst),
            Op::MovSx { wide, dst, src, bits } => self.mov_sx(wide, dst, src, bits),
            Op::Swap { dst, bits } => self.swap(dst, bits),
            Op::Truncate { dst, bits } => self.truncate(dst, bits),
            Op::LoadImm { dst, value: Wide::Value(value) } => self.set_constant(dst, value),
            Op::Load { dst, src, off, bytes, signed } => {
                let address = self.address(src);
                let value = self.load(address, off, bytes, signed);
                self.set(dst, value);
            }
            Op::Argument { dst, word, bytes } => self.argument(dst, word, bytes),
            Op::Store { dst, src, off, bytes } => {
                self.check_store(dst);
                let (address, value) = (self.address(dst), self.operand(src));
                self.store(address, off, bytes, value);
            }
            Op::Atomic { .. } => self.atomic(op),
            Op::Jump { target } => self.go(target),
            Op::Branch { cond, wide, dst, src, target } => {
                self.branch(Test { cond, wide, dst, src }, target);
            }
            Op::MayGoto { target } => self.maybe_goto(target),
            Op::Call { target } => self.call(target),
            Op::CallLocal { target } => self.call_local(target),
            Op::Exit => {
                let (value, count) = (self.get(0), self.counted());
                self.leave(value, count);
            }
            Op::Slot | Op::LoadImm { .. } | Op::CallHelper { .. } | Op::CallKfunc { .. } => {
                unreachable!("linking leaves no such instruction")
            }
        }
    }

    pub(super) fn get(&mut self, register: u8) -> Value {
        if register == 10 { self.frame() } else { self.b.use_var(self.registers[usize::from(register)]) }
    }

    /// r10. Of a main function it is read again where it is needed, so that it need not outlive calls.
    pub(super) fn frame(&mut self) -> Value {
        if let Some(frame) = self.frame.or(self.facts.frame) {
            return frame;
        }
        let frame = self.field(std::mem::offset_of!(RawContext, frame));
        self.ranges.insert(frame, FRAME_POINTERS);
        self.facts.frame = Some(frame);
        frame
    }

    pub(super) fn set(&mut self, register: u8, value: Value) {
        self.b.def_var(self.registers[usize::from(register)], value);
    }

    pub(super) fn constant(&mut self, value: u64) -> Value {
        let constant = self.b.ins().iconst(types::I64, value as i64);
        self.ranges.insert(constant, Range::exactly(value));
        constant
    }

    pub(super) fn set_constant(&mut self, register: u8, value: u64) {
        let constant = self.constant(value);
        self.set(register, constant);
    }

    /// What is known of a value here.
    pub(super) fn range_of(&self, value: Value) -> Range {
        let here = self.facts.range(value);
        self.ranges.get(&value).copied().unwrap_or(Range::ALL).and(here)
    }

    /// Notes what is known of a value wherever it exists.
    pub(super) fn know(&mut self, value: Value, range: Range) {
        if range != Range::ALL {
            self.ranges.insert(value, range);
        }
    }

    /// What is known of an operand.
    pub(super) fn range(&mut self, operand: Operand) -> Range {
        match operand {
            Operand::Reg(register) => {
                let value = self.get(register);
                self.range_of(value)
            }
            Operand::Imm(value) => Range::exactly(value as u64),
        }
    }

    /// The constant a register holds, if that is known.
    pub(super) fn known(&mut self, register: u8) -> Option<u64> {
        self.range(Operand::Reg(register)).known()
    }

    pub(super) fn operand(&mut self, operand: Operand) -> Value {
        match operand {
            Operand::Reg(register) => self.get(register),
            Operand::Imm(value) => self.constant(value as u64),
        }
    }

    /// Continues in a fresh block if `good`; else leaves the function with a fault.
    pub(super) fn require(&mut self, good: Value, exit: FaultExit, detail: Option<Value>) {
        let (next, cold) = (self.b.create_block(), self.b.create_block());
        self.b.set_cold_block(cold);
        self.b.ins().brif(good, next, &[], cold, &[]);
        self.b.seal_block(cold);
        self.b.switch_to_block(cold);
        self.fail(exit, detail);
        self.b.seal_block(next);
        self.b.switch_to_block(next);
    }

    /// Place of what a register points to, confined to the region; a 16-bit offset may be added.
    pub(super) fn address(&mut self, register: u8) -> Place {
        let value = self.get(register);
        let size = self.unit.layout.size();
        let range = self.range_of(value);
        if let Some(known) = range.known().filter(|known| *known < size.min(1 << 30)) {
            return Place { address: self.context(), offset: REGION_OFFSET + known as i32 };
        }
        let (inside, offset) = match self.sums.get(&value) {
            _ if range.high >= size => {
                let mask = self.constant(size - 1);
                (self.b.ins().band(value, mask), 0)
            }
            // What is added counts for the machine's address as for the program's: both wrap.
            Some((part, more)) => (*part, *more),
            None => (value, 0),
        };
        let context = self.context();
        Place { address: self.b.ins().iadd(context, inside), offset: REGION_OFFSET + offset }
    }

    /// Notes that a value is another and a small constant.
    pub(super) fn know_sum(&mut self, value: Value, part: Value, more: i64) {
        let (part, before) = self.sums.get(&part).copied().unwrap_or((part, 0));
        if let Some(sum) = more.checked_add(before.into()).filter(|sum| sum.unsigned_abs() < 1 << 30) {
            self.sums.insert(value, (part, sum as i32));
        }
    }

    /// An argument of a `struct_ops` member.
    fn argument(&mut self, dst: u8, word: u8, bytes: u8) {
        let value = self.words[usize::from(word)];
        if bytes == 8 {
            return self.set(dst, value);
        }
        let narrow = self.b.ins().ireduce(int_type(bytes), value);
        let value = self.b.ins().uextend(types::I64, narrow);
        self.know(value, Range::up_to(u64::MAX >> (64 - 8 * u32::from(bytes))));
        self.set(dst, value);
    }

    pub(super) fn load(&mut self, place: Place, off: i16, bytes: u8, signed: bool) -> Value {
        let off = place.offset + i32::from(off);
        let raw = self.b.ins().load(int_type(bytes), flags(), place.address, off);
        match (bytes, signed) {
            (8, _) => raw,
            (_, true) => self.b.ins().sextend(types::I64, raw),
            (_, false) => {
                let value = self.b.ins().uextend(types::I64, raw);
                self.know(value, Range::up_to(u64::MAX >> (64 - 8 * u32::from(bytes))));
                value
            }
        }
    }

    fn store(&mut self, place: Place, off: i16, bytes: u8, value: Value) {
        let narrow = if bytes == 8 { value } else { self.b.ins().ireduce(int_type(bytes), value) };
        self.b.ins().store(flags(), narrow, place.address, place.offset + i32::from(off));
    }

    /// Makes sure the base register may be stored through: inside the region, not in its zero pages.
    fn check_store(&mut self, register: u8) {
        let value = self.get(register);
        let (size, range) = (self.unit.layout.size(), self.range_of(value));
        let fits = range.low >= ZERO_BYTES && range.high < size - ZERO_BYTES;
        if fits || !self.facts.learn_storable(value) {
            return;
        }
        let (low, span) = (self.constant(ZERO_BYTES), self.constant(size - 2 * ZERO_BYTES));
        let above = self.b.ins().isub(value, low);
        let good = self.b.ins().icmp(IntCC::UnsignedLessThan, above, span);
        self.require(good, fault_store, Some(value));
    }

    fn atomic(&mut self, op: Op) {
        let Op::Atomic { op, fetch, dst, src, off, bytes } = op else {
            unreachable!("called for atomic operations only")
        };
        self.check_store(dst);
        // One thread runs an instance: plain accesses are atomic enough.
        let address = self.address(dst);
        let (old, operand) = (self.load(address, off, bytes, false), self.get(src));
        let new = match op {
            AtomicOp::Add => self.b.ins().iadd(old, operand),
            AtomicOp::Or => self.b.ins().bor(old, operand),
            AtomicOp::And => self.b.ins().band(old, operand),
            AtomicOp::Xor => self.b.ins().bxor(old, operand),
            AtomicOp::Xchg => operand,
            AtomicOp::Cmpxchg => {
                let expected = self.get(0);
                let mask = self.constant(u64::MAX >> (64 - 8 * u32::from(bytes)));
                let expected = self.b.ins().band(expected, mask);
                let same = self.b.ins().icmp(IntCC::Equal, old, expected);
                self.b.ins().select(same, operand, old)
            }
        };
        self.store(address, off, bytes, new);
        if op == AtomicOp::Cmpxchg {
            self.set(0, old);
        } else if fetch {
            self.set(src, old);
        }
    }
}
