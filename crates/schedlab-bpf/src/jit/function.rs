//! Translation of one function: blocks, control flow, memory accesses, instruction counting.
//!
//! Instructions are counted per straight run: the count is added to one value that lives in a machine
//! register and is written back around calls. Budget is checked where control goes backwards.

use std::collections::{BTreeMap, BTreeSet};

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{
    Block, Function as Ir, InstBuilder, MemFlagsData, Type, UserFuncName, Value, types,
};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext, Variable};
use cranelift_jit::JITModule;
use cranelift_module::Module;

use super::Unit;
use super::call::{FaultExit, fault_budget, fault_store};
use crate::exec::MAY_GOTO_MAX;
use crate::exec::context::RawContext;
use crate::exec::op::{AtomicOp, Cond, Op, Operand, Wide};
use crate::memory::ZERO_BYTES;

pub(super) struct Translator<'a, 'b> {
    pub unit: &'a Unit<'a>,
    pub module: &'a mut JITModule,
    pub b: FunctionBuilder<'b>,
    index: usize,
    blocks: BTreeMap<u32, Block>,
    /// r0 to r9.
    registers: [Variable; 10],
    pub fuel: Variable,
    may_goto: Variable,
    pub raw: Value,
    base: Value,
    /// r10.
    pub frame: Value,
    /// Machine address of r10.
    frame_pointer: Value,
    /// Instructions not yet taken from the fuel.
    pending: i64,
    /// The instruction being translated.
    pub insn: u32,
    /// Base values that were found fit for stores in this run of blocks.
    storable: BTreeSet<Value>,
    /// Values known to be constant.
    constants: BTreeMap<Value, u64>,
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
        let (fuel, may_goto) = (b.declare_var(types::I64), b.declare_var(types::I64));
        let entry = b.create_block();
        b.append_block_params_for_function_params(entry);
        b.switch_to_block(entry);
        let parameters = b.block_params(entry).to_vec();
        let (raw, frame) = (parameters[0], parameters[1]);
        let base = b.ins().load(types::I64, flags(), raw, std::mem::offset_of!(RawContext, base) as i32);
        let frame_pointer = b.ins().iadd(base, frame);
        let mut translator = Translator {
            unit,
            module,
            b,
            index,
            blocks: BTreeMap::new(),
            registers,
            fuel,
            may_goto,
            raw,
            base,
            frame,
            frame_pointer,
            pending: 0,
            insn: 0,
            storable: BTreeSet::new(),
            constants: BTreeMap::new(),
        };
        translator.prologue(&parameters[2..]);
        translator.body();
        translator.b.seal_all_blocks();
        let config = translator.module.target_config();
        translator.b.finalize(config);
    }

    fn prologue(&mut self, arguments: &[Value]) {
        let zero = self.b.ins().iconst(types::I64, 0);
        for register in 0..10 {
            let value = if register > 0 { arguments.get(register - 1) } else { None };
            self.b.def_var(self.registers[register], *value.unwrap_or(&zero));
        }
        self.reload_fuel();
        let loops = self.b.ins().iconst(types::I64, MAY_GOTO_MAX as i64);
        self.b.def_var(self.may_goto, loops);
    }

    fn body(&mut self) {
        let function = &self.unit.linked.functions[self.index];
        let program = &self.unit.linked.programs[function.program as usize];
        let mut leaders = BTreeSet::from([function.start]);
        for insn in function.start..function.end {
            let op = program.ops[insn as usize];
            if let Some(target) = op.target() {
                leaders.insert(target);
                if !op.ends_flow() {
                    leaders.insert(insn + 1);
                }
            }
        }
        for leader in &leaders {
            self.blocks.insert(*leader, self.b.create_block());
        }
        let first = self.blocks[&function.start];
        self.b.ins().jump(first, &[]);
        let mut open = false;
        for insn in function.start..function.end {
            if let Some(block) = self.blocks.get(&insn).copied() {
                if open {
                    self.flush();
                    self.b.ins().jump(block, &[]);
                }
                self.b.switch_to_block(block);
                self.storable.clear();
                self.constants.clear();
                open = true;
            }
            let op = program.ops[insn as usize];
            if !open || op == Op::Slot {
                continue;
            }
            self.insn = insn;
            self.pending += 1;
            self.op(op);
            open = !op.ends_flow() && op.target().is_none();
        }
    }

    fn op(&mut self, op: Op) {
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
            Op::Store { dst, src, off, bytes } => {
                self.check_store(dst);
                let (address, value) = (self.address(dst), self.operand(src));
                self.store(address, off, bytes, value);
            }
            Op::Atomic { .. } => self.atomic(op),
            Op::Jump { target } => self.jump(target),
            Op::Branch { cond, wide, dst, src, target } => self.branch(cond, wide, dst, src, target),
            Op::MayGoto { target } => self.maybe_goto(target),
            Op::Call { target } => self.call(target),
            Op::CallLocal { target } => self.call_local(target),
            Op::Exit => {
                self.flush();
                self.save_fuel();
                let value = self.get(0);
                self.b.ins().return_(&[value]);
            }
            Op::Slot | Op::LoadImm { .. } | Op::CallHelper { .. } | Op::CallKfunc { .. } => {
                unreachable!("linking leaves no such instruction")
            }
        }
    }

    pub(super) fn get(&mut self, register: u8) -> Value {
        if register == 10 { self.frame } else { self.b.use_var(self.registers[usize::from(register)]) }
    }

    pub(super) fn set(&mut self, register: u8, value: Value) {
        self.b.def_var(self.registers[usize::from(register)], value);
    }

    pub(super) fn constant(&mut self, value: u64) -> Value {
        self.b.ins().iconst(types::I64, value as i64)
    }

    pub(super) fn set_constant(&mut self, register: u8, value: u64) {
        let constant = self.constant(value);
        self.constants.insert(constant, value);
        self.set(register, constant);
    }

    /// The constant a register holds, if that is known.
    pub(super) fn known(&mut self, register: u8) -> Option<u64> {
        let value = self.get(register);
        self.constants.get(&value).copied()
    }

    pub(super) fn operand(&mut self, operand: Operand) -> Value {
        match operand {
            Operand::Reg(register) => self.get(register),
            Operand::Imm(value) => self.constant(value as u64),
        }
    }

    /// Takes the instructions of this run from the fuel.
    pub(super) fn flush(&mut self) {
        if self.pending != 0 {
            let fuel = self.fuel_now();
            self.b.def_var(self.fuel, fuel);
            self.pending = 0;
        }
    }

    fn fuel_now(&mut self) -> Value {
        let fuel = self.b.use_var(self.fuel);
        let pending = self.constant(self.pending as u64);
        self.b.ins().isub(fuel, pending)
    }

    pub(super) fn save_fuel(&mut self) {
        let fuel = self.b.use_var(self.fuel);
        self.b.ins().store(flags(), fuel, self.raw, std::mem::offset_of!(RawContext, fuel) as i32);
    }

    pub(super) fn reload_fuel(&mut self) {
        let at = std::mem::offset_of!(RawContext, fuel) as i32;
        let fuel = self.b.ins().load(types::I64, flags(), self.raw, at);
        self.b.def_var(self.fuel, fuel);
    }

    /// Continues in a fresh block if `good`; else leaves the function with a fault.
    pub(super) fn require(&mut self, good: Value, exit: FaultExit, detail: Option<Value>) {
        let next = self.b.create_block();
        self.require_then(good, next, exit, detail);
        self.b.seal_block(next);
        self.b.switch_to_block(next);
    }

    fn require_then(&mut self, good: Value, next: Block, exit: FaultExit, detail: Option<Value>) {
        let cold = self.b.create_block();
        self.b.set_cold_block(cold);
        self.b.ins().brif(good, next, &[], cold, &[]);
        self.b.seal_block(cold);
        self.b.switch_to_block(cold);
        let fuel = self.fuel_now();
        self.b.ins().store(flags(), fuel, self.raw, std::mem::offset_of!(RawContext, fuel) as i32);
        self.leave(exit, detail);
    }

    /// Reports a fault and returns.
    pub(super) fn leave(&mut self, exit: FaultExit, detail: Option<Value>) {
        let program = self.unit.linked.functions[self.index].program;
        let place = self.constant(u64::from(program) << 32 | u64::from(self.insn));
        let zero = self.constant(0);
        self.host_call(exit as *const u8, &[place, detail.unwrap_or(zero)]);
        let zero = self.constant(0);
        self.b.ins().return_(&[zero]);
    }

    fn masked(&mut self, register: u8) -> Value {
        let value = self.get(register);
        let mask = self.constant((1 << self.unit.layout.size_log2) - 1);
        self.b.ins().band(value, mask)
    }

    /// Machine address of a register's value, confined to the region; a 16-bit offset may be added.
    pub(super) fn address(&mut self, register: u8) -> Value {
        if register == 10 {
            return self.frame_pointer;
        }
        let inside = self.masked(register);
        self.b.ins().iadd(self.base, inside)
    }

    pub(super) fn load(&mut self, address: Value, off: i16, bytes: u8, signed: bool) -> Value {
        let off = i32::from(off);
        let raw = self.b.ins().load(int_type(bytes), flags(), address, off);
        match (bytes, signed) {
            (8, _) => raw,
            (_, true) => self.b.ins().sextend(types::I64, raw),
            (_, false) => self.b.ins().uextend(types::I64, raw),
        }
    }

    fn store(&mut self, address: Value, off: i16, bytes: u8, value: Value) {
        let narrow = if bytes == 8 { value } else { self.b.ins().ireduce(int_type(bytes), value) };
        self.b.ins().store(flags(), narrow, address, i32::from(off));
    }

    /// Makes sure the base register may be stored through: inside the region, not in its zero pages.
    fn check_store(&mut self, register: u8) {
        let value = self.get(register);
        let size = 1_u64 << self.unit.layout.size_log2;
        let fits = |base: u64| base.wrapping_sub(ZERO_BYTES) < size - 2 * ZERO_BYTES;
        let constant = self.constants.get(&value).copied();
        if register == 10 || constant.is_some_and(fits) || !self.storable.insert(value) {
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

    fn jump(&mut self, target: u32) {
        self.flush();
        self.jump_to(target);
    }

    /// Jumps, checking the budget if that is backwards. Nothing may be pending.
    fn jump_to(&mut self, target: u32) {
        let block = self.blocks[&target];
        if target > self.insn {
            self.b.ins().jump(block, &[]);
            return;
        }
        let (fuel, zero) = (self.b.use_var(self.fuel), self.constant(0));
        let good = self.b.ins().icmp(IntCC::SignedGreaterThan, fuel, zero);
        self.require_then(good, block, fault_budget, None);
    }

    /// The block a branch goes to: the target itself, or one that checks the budget first.
    fn edge(&mut self, target: u32) -> (Block, bool) {
        if target > self.insn { (self.blocks[&target], false) } else { (self.b.create_block(), true) }
    }

    fn branch(&mut self, cond: Cond, wide: bool, dst: u8, src: Operand, target: u32) {
        self.flush();
        let (mut a, mut b) = (self.get(dst), self.operand(src));
        if !wide {
            a = self.b.ins().ireduce(types::I32, a);
            b = self.b.ins().ireduce(types::I32, b);
        }
        let code = match cond {
            Cond::Eq => IntCC::Equal,
            Cond::Ne | Cond::Set => IntCC::NotEqual,
            Cond::Gt => IntCC::UnsignedGreaterThan,
            Cond::Ge => IntCC::UnsignedGreaterThanOrEqual,
            Cond::Lt => IntCC::UnsignedLessThan,
            Cond::Le => IntCC::UnsignedLessThanOrEqual,
            Cond::Sgt => IntCC::SignedGreaterThan,
            Cond::Sge => IntCC::SignedGreaterThanOrEqual,
            Cond::Slt => IntCC::SignedLessThan,
            Cond::Sle => IntCC::SignedLessThanOrEqual,
        };
        if cond == Cond::Set {
            a = self.b.ins().band(a, b);
            b = self.b.ins().iconst(if wide { types::I64 } else { types::I32 }, 0);
        }
        let taken = self.b.ins().icmp(code, a, b);
        self.fork(taken, target);
    }

    fn fork(&mut self, taken: Value, target: u32) {
        let next = self.blocks[&(self.insn + 1)];
        let (edge, backwards) = self.edge(target);
        self.b.ins().brif(taken, edge, &[], next, &[]);
        if backwards {
            self.b.seal_block(edge);
            self.b.switch_to_block(edge);
            self.jump_to(target);
        }
    }

    fn maybe_goto(&mut self, target: u32) {
        self.flush();
        let (left, zero, one) = (self.b.use_var(self.may_goto), self.constant(0), self.constant(1));
        let done = self.b.ins().icmp(IntCC::Equal, left, zero);
        // Not below zero where the loop is left: the counter stays for later loops of the function.
        let less = self.b.ins().isub(left, one);
        let less = self.b.ins().select(done, zero, less);
        self.b.def_var(self.may_goto, less);
        self.fork(done, target);
    }
}
