//! Questions that relocation asks of an instruction, and the codes it writes.
//!
//! Source: include/uapi/linux/bpf.h of Linux. Not here: executing (`exec`).

use crate::image::Insn;

/// `src` of a call of a function in the same program.
pub(super) const PSEUDO_CALL: u8 = 1;
/// `src` of a call of a kernel function.
pub(super) const PSEUDO_KFUNC_CALL: u8 = 2;
/// `src` of a load of a map.
pub(super) const PSEUDO_MAP_FD: u8 = 1;
/// `src` of a load of an address inside a map's only value.
pub(super) const PSEUDO_MAP_VALUE: u8 = 2;
/// `src` of a load of a kernel symbol by BTF number.
pub(super) const PSEUDO_BTF_ID: u8 = 3;
/// `src` of a load of a function's address.
pub(super) const PSEUDO_FUNC: u8 = 4;

const CALL: u8 = 0x85;
const LD_IMM64: u8 = 0x18;
/// What libbpf leaves for a CO-RE relocation without an answer: "bad relo", read with imagination.
const POISON_CORE: i32 = 195_896_080;
/// What libbpf leaves for a call of a kernel function that does not exist, plus the extern's number.
const POISON_KFUNC: i32 = 2_002_000_000;

impl Insn {
    pub(super) fn from_bytes(b: &[u8; 8]) -> Insn {
        Insn {
            code: b[0],
            regs: b[1],
            off: i16::from_le_bytes([b[2], b[3]]),
            imm: i32::from_le_bytes([b[4], b[5], b[6], b[7]]),
        }
    }

    pub(super) fn src(&self) -> u8 {
        self.regs >> 4
    }

    pub(super) fn dst(&self) -> u8 {
        self.regs & 0x0f
    }

    pub(super) fn set_src(&mut self, src: u8) {
        self.regs = self.dst() | src << 4;
    }

    pub(super) fn is_call(&self) -> bool {
        self.code == CALL
    }

    pub(super) fn is_subprogram_call(&self) -> bool {
        self.is_call() && self.src() == PSEUDO_CALL && self.dst() == 0 && self.off == 0
    }

    pub(super) fn is_ld_imm64(&self) -> bool {
        self.code == LD_IMM64
    }

    pub(super) fn is_function_address(&self) -> bool {
        self.is_ld_imm64() && self.src() == PSEUDO_FUNC
    }

    pub(super) fn poison_core() -> Insn {
        Insn { code: CALL, regs: 0, off: 0, imm: POISON_CORE }
    }

    pub(super) fn poison_kfunc(extern_index: usize) -> Insn {
        Insn { code: CALL, regs: 0, off: 0, imm: POISON_KFUNC.wrapping_add(extern_index as i32) }
    }
}
