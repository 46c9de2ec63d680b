//! A small assembler: instructions as functions, and an [`ObjectImage`] built from them by hand.
//!
//! For tests, benchmarks and documentation; objects that matter come from clang and the loader.

use crate::image::{Insn, MapImage, ObjectImage, ProgramImage};

/// Operation bits of arithmetic codes.
#[expect(missing_docs, reason = "named as in the kernel, without BPF_")]
pub mod alu {
    pub const ADD: u8 = 0x00;
    pub const SUB: u8 = 0x10;
    pub const MUL: u8 = 0x20;
    pub const DIV: u8 = 0x30;
    pub const OR: u8 = 0x40;
    pub const AND: u8 = 0x50;
    pub const LSH: u8 = 0x60;
    pub const RSH: u8 = 0x70;
    pub const MOD: u8 = 0x90;
    pub const XOR: u8 = 0xa0;
    pub const MOV: u8 = 0xb0;
    pub const ARSH: u8 = 0xc0;
}

/// Condition bits of jump codes.
#[expect(missing_docs, reason = "named as in the kernel, without BPF_")]
pub mod jmp {
    pub const JEQ: u8 = 0x10;
    pub const JGT: u8 = 0x20;
    pub const JGE: u8 = 0x30;
    pub const JSET: u8 = 0x40;
    pub const JNE: u8 = 0x50;
    pub const JSGT: u8 = 0x60;
    pub const JSGE: u8 = 0x70;
    pub const JLT: u8 = 0xa0;
    pub const JLE: u8 = 0xb0;
    pub const JSLT: u8 = 0xc0;
    pub const JSLE: u8 = 0xd0;
}

/// Size bits of memory codes: 4, 2, 1 and 8 bytes.
#[expect(missing_docs, reason = "named as in the kernel, without BPF_")]
pub mod size {
    pub const W: u8 = 0x00;
    pub const H: u8 = 0x08;
    pub const B: u8 = 0x10;
    pub const DW: u8 = 0x18;
}

/// One instruction from its fields.
#[must_use]
pub fn insn(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> Insn {
    Insn { code, regs: src << 4 | dst, off, imm }
}

/// `dst op= imm` on 64 bits.
#[must_use]
pub fn alu64_imm(op: u8, dst: u8, imm: i32) -> Insn {
    insn(0x07 | op, dst, 0, 0, imm)
}

/// `dst op= src` on 64 bits.
#[must_use]
pub fn alu64_reg(op: u8, dst: u8, src: u8) -> Insn {
    insn(0x0f | op, dst, src, 0, 0)
}

/// `dst op= imm` on 32 bits.
#[must_use]
pub fn alu32_imm(op: u8, dst: u8, imm: i32) -> Insn {
    insn(0x04 | op, dst, 0, 0, imm)
}

/// `dst op= src` on 32 bits.
#[must_use]
pub fn alu32_reg(op: u8, dst: u8, src: u8) -> Insn {
    insn(0x0c | op, dst, src, 0, 0)
}

/// `dst = imm`, sign-extended.
#[must_use]
pub fn mov_imm(dst: u8, imm: i32) -> Insn {
    alu64_imm(alu::MOV, dst, imm)
}

/// `dst = src`.
#[must_use]
pub fn mov_reg(dst: u8, src: u8) -> Insn {
    alu64_reg(alu::MOV, dst, src)
}

/// `dst = *(size *)(src + off)`.
#[must_use]
pub fn load(size: u8, dst: u8, src: u8, off: i16) -> Insn {
    insn(0x61 | size, dst, src, off, 0)
}

/// `dst = *(signed size *)(src + off)`.
#[must_use]
pub fn load_signed(size: u8, dst: u8, src: u8, off: i16) -> Insn {
    insn(0x81 | size, dst, src, off, 0)
}

/// `*(size *)(dst + off) = src`.
#[must_use]
pub fn store(size: u8, dst: u8, src: u8, off: i16) -> Insn {
    insn(0x63 | size, dst, src, off, 0)
}

/// `*(size *)(dst + off) = imm`.
#[must_use]
pub fn store_imm(size: u8, dst: u8, off: i16, imm: i32) -> Insn {
    insn(0x62 | size, dst, 0, off, imm)
}

/// Atomic operation `op` (e.g. 0x01: add and fetch) on `*(size *)(dst + off)` with `src`.
#[must_use]
pub fn atomic(size: u8, op: i32, dst: u8, src: u8, off: i16) -> Insn {
    insn(0xc3 | size, dst, src, off, op)
}

/// `if dst cond imm goto off`.
#[must_use]
pub fn jump_imm(cond: u8, dst: u8, imm: i32, off: i16) -> Insn {
    insn(0x05 | cond, dst, 0, off, imm)
}

/// `if dst cond src goto off`.
#[must_use]
pub fn jump_reg(cond: u8, dst: u8, src: u8, off: i16) -> Insn {
    insn(0x0d | cond, dst, src, off, 0)
}

/// `if (u32)dst cond imm goto off`.
#[must_use]
pub fn jump32_imm(cond: u8, dst: u8, imm: i32, off: i16) -> Insn {
    insn(0x06 | cond, dst, 0, off, imm)
}

/// `if (u32)dst cond (u32)src goto off`.
#[must_use]
pub fn jump32_reg(cond: u8, dst: u8, src: u8, off: i16) -> Insn {
    insn(0x0e | cond, dst, src, off, 0)
}

/// `goto off`.
#[must_use]
pub fn goto(off: i16) -> Insn {
    insn(0x05, 0, 0, off, 0)
}

/// Calls a helper by number.
#[must_use]
pub fn call(helper: i32) -> Insn {
    insn(0x85, 0, 0, 0, helper)
}

/// Calls a kfunc by BTF id.
#[must_use]
pub fn call_kfunc(id: i32) -> Insn {
    insn(0x85, 0, 2, 0, id)
}

/// Calls a function of the program, `off` instructions after the next one.
#[must_use]
pub fn call_local(off: i32) -> Insn {
    insn(0x85, 0, 1, 0, off)
}

/// Returns r0.
#[must_use]
pub fn exit() -> Insn {
    insn(0x95, 0, 0, 0, 0)
}

/// A wide immediate with its pseudo source: 0 value, 1 map, 2 map value, 3 variable, 4 function.
#[must_use]
pub fn wide(dst: u8, pseudo: u8, low: u32, high: u32) -> [Insn; 2] {
    [insn(0x18, dst, pseudo, 0, low as i32), insn(0, 0, 0, 0, high as i32)]
}

/// `dst = value`.
#[must_use]
pub fn mov64(dst: u8, value: u64) -> [Insn; 2] {
    wide(dst, 0, value as u32, (value >> 32) as u32)
}

/// `dst = map`, by index.
#[must_use]
pub fn mov_map(dst: u8, map: u32) -> [Insn; 2] {
    wide(dst, 1, map, 0)
}

/// `dst = address of a function` that begins `off` instructions after this one's first half.
#[must_use]
pub fn mov_function(dst: u8, off: i32) -> [Insn; 2] {
    wide(dst, 4, off as u32, 0)
}

/// A program with functions at the given starts (besides the main one at 0).
#[must_use]
pub fn program(name: &str, insns: Vec<Insn>, functions: &[u32]) -> ProgramImage {
    let mut starts = vec![(0, name.to_owned())];
    starts.extend(functions.iter().map(|start| (*start, format!("{name}_{start}"))));
    ProgramImage {
        name: name.to_owned(),
        section: format!("struct_ops/{name}"),
        insns,
        functions: starts,
        ..ProgramImage::default()
    }
}

/// A map without flags, types or first content.
#[must_use]
pub fn map(name: &str, map_type: u32, key_size: u32, value_size: u32, max_entries: u32) -> MapImage {
    MapImage { name: name.to_owned(), map_type, key_size, value_size, max_entries, ..MapImage::default() }
}

/// An object of programs, maps and kfuncs.
#[must_use]
pub fn object(programs: Vec<ProgramImage>, maps: Vec<MapImage>, kfuncs: &[(u32, &str)]) -> ObjectImage {
    ObjectImage {
        name: "by hand".to_owned(),
        license: "GPL".to_owned(),
        programs,
        maps,
        kfuncs: kfuncs.iter().map(|(id, name)| (*id, (*name).to_owned())).collect(),
        ..ObjectImage::default()
    }
}
