//! Translation of arithmetic. 32-bit operations compute on 32 bits and zero-extend.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Type, Value, types};

use super::function::{Translator, int_type};
use super::range::Range;
use crate::exec::op::{AluOp, Operand};

impl Translator<'_, '_> {
    pub(super) fn alu(&mut self, op: AluOp, wide: bool, dst: u8, src: Operand) {
        let ranges = (self.range(Operand::Reg(dst)), self.range(src));
        let range = Range::of(op, wide, ranges.0, ranges.1);
        if let Some(value) = range.known() {
            return self.set_constant(dst, value);
        }
        let (mut a, mut b) = (self.get(dst), self.operand(src));
        let ty = if wide { types::I64 } else { types::I32 };
        if !wide {
            a = self.b.ins().ireduce(types::I32, a);
            b = self.b.ins().ireduce(types::I32, b);
        }
        let value = match op {
            AluOp::Add => self.b.ins().iadd(a, b),
            AluOp::Sub => self.b.ins().isub(a, b),
            AluOp::Mul => self.b.ins().imul(a, b),
            AluOp::Or => self.b.ins().bor(a, b),
            AluOp::And => self.b.ins().band(a, b),
            AluOp::Xor => self.b.ins().bxor(a, b),
            AluOp::Mov => b,
            // Cranelift takes shift amounts modulo the width, as BPF does.
            AluOp::Lsh => self.b.ins().ishl(a, b),
            AluOp::Rsh => self.b.ins().ushr(a, b),
            AluOp::Arsh => self.b.ins().sshr(a, b),
            AluOp::Div | AluOp::Mod | AluOp::Sdiv | AluOp::Smod => match src {
                Operand::Imm(divisor) => self.divide_constant(op, ty, a, divisor),
                Operand::Reg(_) => self.divide(op, ty, a, b, if wide { ranges.1 } else { ranges.1.word() }),
            },
        };
        let value = self.set_extended(wide, dst, value);
        // What is known of an operand holds here only: a result that is one may not be given it.
        if value != a && value != b {
            self.know(value, range);
        }
        match (op, wide, ranges.1.known()) {
            (AluOp::Add, true, Some(more)) => self.know_sum(value, a, more as i64),
            (AluOp::Sub, true, Some(less)) => self.know_sum(value, a, (less as i64).wrapping_neg()),
            _ => {}
        }
    }

    fn set_extended(&mut self, wide: bool, dst: u8, value: Value) -> Value {
        let value = if wide { value } else { self.b.ins().uextend(types::I64, value) };
        self.set(dst, value);
        value
    }

    fn divide_constant(&mut self, op: AluOp, ty: Type, a: Value, divisor: i64) -> Value {
        let signed = matches!(op, AluOp::Sdiv | AluOp::Smod);
        let truncated = if ty == types::I32 { i64::from(divisor as u32) } else { divisor };
        let zero = self.b.ins().iconst(ty, 0);
        match (op, divisor) {
            (AluOp::Div | AluOp::Sdiv, 0) => return zero,
            (AluOp::Mod | AluOp::Smod, 0) => return a,
            (AluOp::Sdiv, -1) => return self.b.ins().ineg(a),
            (AluOp::Smod, -1) => return zero,
            _ => {}
        }
        let b = self.b.ins().iconst(ty, truncated);
        match (op, signed) {
            (AluOp::Div, _) => self.b.ins().udiv(a, b),
            (AluOp::Mod, _) => self.b.ins().urem(a, b),
            (AluOp::Sdiv, _) => self.b.ins().sdiv(a, b),
            _ => self.b.ins().srem(a, b),
        }
    }

    /// Division by a register: the machine's would trap on 0 and on the smallest number by -1.
    fn divide(&mut self, op: AluOp, ty: Type, a: Value, b: Value, divisor: Range) -> Value {
        if matches!(op, AluOp::Div | AluOp::Mod) {
            return self.divide_unsigned(op, ty, a, b, divisor);
        }
        let (zero, one) = (self.b.ins().iconst(ty, 0), self.b.ins().iconst(ty, 1));
        let by_zero = self.b.ins().icmp(IntCC::Equal, b, zero);
        let safe = self.b.ins().select(by_zero, one, b);
        let minus_one = self.b.ins().iconst(ty, if ty == types::I32 { 0xffff_ffff } else { -1 });
        let by_minus_one = self.b.ins().icmp(IntCC::Equal, b, minus_one);
        let safe = self.b.ins().select(by_minus_one, one, safe);
        let (value, by_zero_value, negated) = if op == AluOp::Sdiv {
            (self.b.ins().sdiv(a, safe), zero, self.b.ins().ineg(a))
        } else {
            (self.b.ins().srem(a, safe), a, zero)
        };
        let value = self.b.ins().select(by_minus_one, negated, value);
        self.b.ins().select(by_zero, by_zero_value, value)
    }

    fn divide_unsigned(&mut self, op: AluOp, ty: Type, a: Value, b: Value, divisor: Range) -> Value {
        let quotient = |this: &mut Self| match op {
            AluOp::Div => this.b.ins().udiv(a, b),
            _ => this.b.ins().urem(a, b),
        };
        if divisor.low > 0 {
            return quotient(self);
        }
        let [divides, by_zero, next] = [(); 3].map(|()| self.b.create_block());
        self.b.set_cold_block(by_zero);
        self.b.append_block_param(next, ty);
        self.b.ins().brif(b, divides, &[], by_zero, &[]);
        self.b.seal_block(divides);
        self.b.switch_to_block(divides);
        let value = quotient(self);
        self.b.ins().jump(next, &[value.into()]);
        self.b.seal_block(by_zero);
        self.b.switch_to_block(by_zero);
        let value = if op == AluOp::Div { self.b.ins().iconst(ty, 0) } else { a };
        self.b.ins().jump(next, &[value.into()]);
        self.b.seal_block(next);
        self.b.switch_to_block(next);
        self.b.block_params(next)[0]
    }

    pub(super) fn neg(&mut self, wide: bool, dst: u8) {
        let value = self.get(dst);
        let value = if wide { value } else { self.b.ins().ireduce(types::I32, value) };
        let value = self.b.ins().ineg(value);
        self.set_extended(wide, dst, value);
    }

    pub(super) fn mov_sx(&mut self, wide: bool, dst: u8, src: u8, bits: u8) {
        let value = self.get(src);
        let narrow = self.b.ins().ireduce(int_type(bits / 8), value);
        let value = self.b.ins().sextend(if wide { types::I64 } else { types::I32 }, narrow);
        self.set_extended(wide, dst, value);
    }

    pub(super) fn swap(&mut self, dst: u8, bits: u8) {
        let value = self.get(dst);
        if bits == 64 {
            let value = self.b.ins().bswap(value);
            return self.set(dst, value);
        }
        let narrow = self.b.ins().ireduce(int_type(bits / 8), value);
        let swapped = self.b.ins().bswap(narrow);
        self.set_extended(false, dst, swapped);
    }

    pub(super) fn truncate(&mut self, dst: u8, bits: u8) {
        if bits == 64 {
            return;
        }
        let value = self.get(dst);
        let narrow = self.b.ins().ireduce(int_type(bits / 8), value);
        let value = self.b.ins().uextend(types::I64, narrow);
        self.set(dst, value);
    }
}
