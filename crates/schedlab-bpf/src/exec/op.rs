//! Instructions decoded once, for both engines.
//!
//! Decoding rejects what no kernel would load: unknown codes, registers above r10, writes to r10, jumps
//! into the middle of a wide instruction or out of the function. Not here: what operations mean (`interp`,
//! `jit`); which helpers exist (`helpers`).

use crate::image::Insn;

/// Second operand of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operand {
    /// Register r0 to r10.
    Reg(u8),
    /// Immediate, sign-extended to 64 bits.
    Imm(i64),
}

/// Binary arithmetic and logic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AluOp {
    Add,
    Sub,
    Mul,
    Div,
    Or,
    And,
    Lsh,
    Rsh,
    Mod,
    Xor,
    Mov,
    Arsh,
    Sdiv,
    Smod,
}

/// Condition of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cond {
    Eq,
    Gt,
    Ge,
    Set,
    Ne,
    Sgt,
    Sge,
    Lt,
    Le,
    Slt,
    Sle,
}

/// Read-modify-write operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtomicOp {
    Add,
    Or,
    And,
    Xor,
    Xchg,
    Cmpxchg,
}

/// Where a 64-bit immediate comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wide {
    /// The value itself.
    Value(u64),
    /// A map, by index into the image.
    Map(u32),
    /// Offset into the first value of a map.
    MapValue(u32, u32),
    /// A kernel variable, by BTF id.
    Symbol(u32),
    /// A function of this program, by instruction index.
    Function(u32),
}

/// One decoded instruction. Targets are instruction indices within the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// Second slot of a wide instruction: never executed.
    Slot,
    Alu {
        op: AluOp,
        wide: bool,
        dst: u8,
        src: Operand,
    },
    Neg {
        wide: bool,
        dst: u8,
    },
    /// Move with sign extension from `bits`.
    MovSx {
        wide: bool,
        dst: u8,
        src: u8,
        bits: u8,
    },
    /// Byte swap of the low `bits`; the rest becomes zero.
    Swap {
        dst: u8,
        bits: u8,
    },
    /// Conversion to little-endian, on this side a truncation to `bits`.
    Truncate {
        dst: u8,
        bits: u8,
    },
    LoadImm {
        dst: u8,
        value: Wide,
    },
    Load {
        dst: u8,
        src: u8,
        off: i16,
        bytes: u8,
        signed: bool,
    },
    /// The low bytes of an argument of the running `struct_ops` member: what linking makes of loads.
    Argument {
        dst: u8,
        word: u8,
        bytes: u8,
    },
    Store {
        dst: u8,
        src: Operand,
        off: i16,
        bytes: u8,
    },
    Atomic {
        op: AtomicOp,
        fetch: bool,
        dst: u8,
        src: u8,
        off: i16,
        bytes: u8,
    },
    Jump {
        target: u32,
    },
    Branch {
        cond: Cond,
        wide: bool,
        dst: u8,
        src: Operand,
        target: u32,
    },
    MayGoto {
        target: u32,
    },
    CallHelper {
        id: u32,
    },
    CallKfunc {
        id: u32,
    },
    /// A helper or kfunc after linking, by index into the call targets.
    Call {
        target: u32,
    },
    /// A function of this program: an instruction index as decoded, a function index after linking.
    CallLocal {
        target: u32,
    },
    Exit,
}

impl Op {
    /// Whether control never falls through to the next instruction.
    pub(crate) fn ends_flow(self) -> bool {
        matches!(self, Op::Jump { .. } | Op::Exit)
    }

    /// Target of a jump or branch.
    pub(crate) fn target(self) -> Option<u32> {
        match self {
            Op::Jump { target } | Op::Branch { target, .. } | Op::MayGoto { target } => Some(target),
            _ => None,
        }
    }
}

/// Decodes a program; the error is an instruction index and what is wrong with it.
pub(crate) fn decode(insns: &[Insn]) -> Result<Vec<Op>, (u32, String)> {
    let mut ops = Vec::with_capacity(insns.len());
    while ops.len() < insns.len() {
        let at = ops.len();
        let next = insns.get(at + 1);
        let op = decode_one(insns[at], next, at).map_err(|what| (at as u32, what))?;
        ops.push(op);
        if matches!(op, Op::LoadImm { .. }) {
            ops.push(Op::Slot);
        }
    }
    for (at, op) in ops.iter().enumerate() {
        if let Some(target) = op.target()
            && !ops.get(target as usize).is_some_and(|op| *op != Op::Slot)
        {
            return Err((at as u32, format!("jumps to {target}, which is no instruction")));
        }
    }
    Ok(ops)
}

fn decode_one(insn: Insn, next: Option<&Insn>, at: usize) -> Result<Op, String> {
    let (dst, src) = (insn.regs & 0xf, insn.regs >> 4);
    if dst > 10 {
        return Err(format!("uses register r{dst}; the last one is r10"));
    }
    let op = match insn.code & 7 {
        0 => load_imm64(insn, next, dst, src, at)?,
        1..=3 => memory(insn, dst, src)?,
        5 | 6 => jump(insn, dst, src, at)?,
        _ => alu(insn, dst, src)?,
    };
    if written(op) == Some(10) {
        return Err("writes r10, the read-only frame pointer".to_owned());
    }
    Ok(op)
}

/// The register an instruction writes, apart from what calls and comparing exchanges leave.
pub(crate) fn written(op: Op) -> Option<u8> {
    match op {
        Op::Alu { dst, .. }
        | Op::Neg { dst, .. }
        | Op::MovSx { dst, .. }
        | Op::Swap { dst, .. }
        | Op::Truncate { dst, .. }
        | Op::LoadImm { dst, .. }
        | Op::Load { dst, .. } => Some(dst),
        Op::Atomic { op, fetch: true, src, .. } if op != AtomicOp::Cmpxchg => Some(src),
        _ => None,
    }
}

fn unknown(insn: Insn) -> String {
    format!("has unknown code {:#04x} (registers {:#04x}, offset {})", insn.code, insn.regs, insn.off)
}

fn register(src: u8) -> Result<u8, String> {
    if src > 10 { Err(format!("uses register r{src}; the last one is r10")) } else { Ok(src) }
}

fn operand(insn: Insn, src: u8) -> Result<Operand, String> {
    if insn.code & 8 != 0 { Ok(Operand::Reg(register(src)?)) } else { Ok(Operand::Imm(insn.imm.into())) }
}

fn load_imm64(insn: Insn, next: Option<&Insn>, dst: u8, src: u8, at: usize) -> Result<Op, String> {
    if insn.code != 0x18 {
        return Err(unknown(insn));
    }
    let next = next.ok_or("is a wide instruction cut in two")?;
    if next.code != 0 || next.regs != 0 || next.off != 0 {
        return Err("is a wide instruction without its second half".to_owned());
    }
    let (low, high) = (insn.imm as u32, next.imm as u32);
    let value = match src {
        0 => Wide::Value(u64::from(low) | u64::from(high) << 32),
        1 => Wide::Map(low),
        2 => Wide::MapValue(low, high),
        3 => Wide::Symbol(low),
        4 => Wide::Function(target(at, insn.imm.into())?),
        _ => return Err(format!("loads an immediate of unknown kind {src}")),
    };
    Ok(Op::LoadImm { dst, value })
}

fn memory(insn: Insn, dst: u8, src: u8) -> Result<Op, String> {
    let bytes = [4, 2, 1, 8][usize::from(insn.code >> 3 & 3)];
    let (class, mode, off) = (insn.code & 7, insn.code & 0xe0, insn.off);
    match (class, mode) {
        (1, 0x60) => Ok(Op::Load { dst, src: register(src)?, off, bytes, signed: false }),
        (1, 0x80) if bytes < 8 => Ok(Op::Load { dst, src: register(src)?, off, bytes, signed: true }),
        (2, 0x60) => Ok(Op::Store { dst, src: Operand::Imm(insn.imm.into()), off, bytes }),
        (3, 0x60) => Ok(Op::Store { dst, src: Operand::Reg(register(src)?), off, bytes }),
        (3, 0xc0) => atomic(insn, dst, register(src)?, bytes),
        _ => Err(unknown(insn)),
    }
}

fn atomic(insn: Insn, dst: u8, src: u8, bytes: u8) -> Result<Op, String> {
    let off = insn.off;
    // One thread runs an instance, so acquire and release are plain accesses.
    match insn.imm {
        0x100 => return Ok(Op::Load { dst, src, off, bytes, signed: false }),
        0x110 => return Ok(Op::Store { dst, src: Operand::Reg(src), off, bytes }),
        _ if bytes < 4 => return Err(unknown(insn)),
        _ => {}
    }
    let (op, fetch) = match insn.imm {
        0x00 => (AtomicOp::Add, false),
        0x01 => (AtomicOp::Add, true),
        0x40 => (AtomicOp::Or, false),
        0x41 => (AtomicOp::Or, true),
        0x50 => (AtomicOp::And, false),
        0x51 => (AtomicOp::And, true),
        0xa0 => (AtomicOp::Xor, false),
        0xa1 => (AtomicOp::Xor, true),
        0xe1 => (AtomicOp::Xchg, true),
        0xf1 => (AtomicOp::Cmpxchg, true),
        other => return Err(format!("has unknown atomic operation {other:#x}")),
    };
    Ok(Op::Atomic { op, fetch, dst, src, off, bytes })
}

fn target(at: usize, offset: i64) -> Result<u32, String> {
    u32::try_from(at as i64 + 1 + offset).map_err(|_| format!("jumps by {offset}, before the program"))
}

fn jump(insn: Insn, dst: u8, src: u8, at: usize) -> Result<Op, String> {
    let wide = insn.code & 7 == 5;
    let by_offset = || target(at, insn.off.into());
    let by_immediate = || target(at, insn.imm.into());
    let cond = match (insn.code & 0xf0, wide) {
        (0x00, true) => return Ok(Op::Jump { target: by_offset()? }),
        (0x00, false) => return Ok(Op::Jump { target: by_immediate()? }),
        (0x80, true) if insn.code & 8 == 0 => return call(insn, src, by_immediate),
        (0x90, true) => return Ok(Op::Exit),
        (0xe0, true) if src == 0 => return Ok(Op::MayGoto { target: by_offset()? }),
        (0x10, _) => Cond::Eq,
        (0x20, _) => Cond::Gt,
        (0x30, _) => Cond::Ge,
        (0x40, _) => Cond::Set,
        (0x50, _) => Cond::Ne,
        (0x60, _) => Cond::Sgt,
        (0x70, _) => Cond::Sge,
        (0xa0, _) => Cond::Lt,
        (0xb0, _) => Cond::Le,
        (0xc0, _) => Cond::Slt,
        (0xd0, _) => Cond::Sle,
        _ => return Err(unknown(insn)),
    };
    Ok(Op::Branch { cond, wide, dst, src: operand(insn, src)?, target: by_offset()? })
}

fn call(insn: Insn, src: u8, target: impl Fn() -> Result<u32, String>) -> Result<Op, String> {
    match src {
        0 => Ok(Op::CallHelper { id: insn.imm as u32 }),
        1 => Ok(Op::CallLocal { target: target()? }),
        2 if insn.off == 0 => Ok(Op::CallKfunc { id: insn.imm as u32 }),
        2 => Err("calls a kfunc of a module; only the kernel's own exist here".to_owned()),
        _ => Err(format!("calls a function of unknown kind {src}")),
    }
}

fn alu(insn: Insn, dst: u8, src: u8) -> Result<Op, String> {
    let wide = insn.code & 7 == 7;
    let by_register = insn.code & 8 != 0;
    let op = match (insn.code & 0xf0, insn.off) {
        (0x00, 0) => AluOp::Add,
        (0x10, 0) => AluOp::Sub,
        (0x20, 0) => AluOp::Mul,
        (0x30, 0) => AluOp::Div,
        (0x30, 1) => AluOp::Sdiv,
        (0x40, 0) => AluOp::Or,
        (0x50, 0) => AluOp::And,
        (0x60, 0) => AluOp::Lsh,
        (0x70, 0) => AluOp::Rsh,
        (0x80, 0) => return Ok(Op::Neg { wide, dst }),
        (0x90, 0) => AluOp::Mod,
        (0x90, 1) => AluOp::Smod,
        (0xa0, 0) => AluOp::Xor,
        (0xb0, 0) => AluOp::Mov,
        (0xb0, 8 | 16 | 32) if by_register && (wide || insn.off < 32) => {
            return Ok(Op::MovSx { wide, dst, src: register(src)?, bits: insn.off as u8 });
        }
        // Between the address spaces of an arena: one and the same here, see `maps::arena`. Clang also casts
        // within one, where control never comes, or the verifier would refuse it.
        (0xb0, 1) if wide && by_register && matches!(insn.imm, 0 | 1 | 0x1_0000) => AluOp::Mov,
        (0xc0, 0) => AluOp::Arsh,
        (0xd0, 0) => return swap(insn, wide, dst, by_register),
        _ => return Err(unknown(insn)),
    };
    Ok(Op::Alu { op, wide, dst, src: operand(insn, src)? })
}

fn swap(insn: Insn, wide: bool, dst: u8, to_big: bool) -> Result<Op, String> {
    let bits = match insn.imm {
        16 => 16,
        32 => 32,
        64 => 64,
        other => return Err(format!("swaps {other} bits; it must be 16, 32 or 64")),
    };
    match (wide, to_big) {
        (false, false) => Ok(Op::Truncate { dst, bits }),
        (false, true) | (true, false) => Ok(Op::Swap { dst, bits }),
        (true, true) => Err(unknown(insn)),
    }
}
