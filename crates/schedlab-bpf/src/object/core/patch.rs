//! Writes the answer of a CO-RE relocation into its instruction.

use super::Answer;
use crate::image::Insn;

type Problem = String;

const CLASS_MASK: u8 = 0x07;
const SIZE_MASK: u8 = 0x18;
const SOURCE_REGISTER: u8 = 0x08;

/// Patches the first instruction of `insns` (both slots of a wide load). `true`: it was poisoned.
pub(super) fn apply(insns: &mut [Insn], answer: &Answer) -> Result<bool, Problem> {
    let insn = *insns.first().ok_or("lies outside the program")?;
    if answer.poison {
        return poison(insns);
    }
    match insn.code & CLASS_MASK {
        0 => wide_load(insns, answer),
        1..=3 => memory(insns, answer),
        4 | 7 => arithmetic(&mut insns[0], answer),
        class => Err(format!("an instruction of class {class} takes no relocation")),
    }
}

fn poison(insns: &mut [Insn]) -> Result<bool, Problem> {
    if insns[0].is_ld_imm64() {
        *insns.get_mut(1).ok_or("half a wide load ends the program")? = Insn::poison_core();
    }
    insns[0] = Insn::poison_core();
    Ok(true)
}

fn arithmetic(insn: &mut Insn, answer: &Answer) -> Result<bool, Problem> {
    if insn.code & SOURCE_REGISTER != 0 {
        return Err("an operation on two registers takes no relocation".to_string());
    }
    // As in C, the 32-bit operand is sign-extended for the comparison.
    check(answer, i64::from(insn.imm) as u64)?;
    insn.imm = answer.value as i32;
    Ok(false)
}

fn memory(insns: &mut [Insn], answer: &Answer) -> Result<bool, Problem> {
    let insn = &mut insns[0];
    check(answer, i64::from(insn.off) as u64)?;
    let off = i16::try_from(answer.value).map_err(|_| format!("offset {} is too large", answer.value))?;
    if answer.width_conflict {
        return poison(insns);
    }
    insn.off = off;
    if answer.size != answer.original_size {
        let bytes = match insn.code & SIZE_MASK {
            0x00 => 4,
            0x08 => 2,
            0x10 => 1,
            _ => 8,
        };
        if bytes != answer.original_size {
            return Err(format!("a load of {bytes} bytes of a field of {} bytes", answer.original_size));
        }
        let size = match answer.size {
            8 => 0x18,
            4 => 0x00,
            2 => 0x08,
            1 => 0x10,
            size => return Err(format!("no load has {size} bytes")),
        };
        insn.code = insn.code & !SIZE_MASK | size;
    }
    Ok(false)
}

fn wide_load(insns: &mut [Insn], answer: &Answer) -> Result<bool, Problem> {
    let [first, second, ..] = insns else { return Err("half a wide load ends the program".to_string()) };
    let plain = first.is_ld_imm64() && first.src() == 0 && first.off == 0;
    if !plain || second.code != 0 || second.regs != 0 || second.off != 0 {
        return Err("a wide load of unexpected form".to_string());
    }
    check(answer, u64::from(first.imm as u32) | u64::from(second.imm as u32) << 32)?;
    first.imm = answer.value as i32;
    second.imm = (answer.value >> 32) as i32;
    Ok(false)
}

fn check(answer: &Answer, found: u64) -> Result<(), Problem> {
    match answer.validate && found != answer.original {
        true => Err(format!("the instruction has {found}, expected {}", answer.original)),
        false => Ok(()),
    }
}
