//! The random programs themselves: structured statements, so that they decode, with wild operands.

use super::{KFUNC_FAULT, KFUNC_LOAD, KFUNC_MIX, KFUNC_NOW, KFUNC_REENTER, MAPS, PROGRAMS, Source};
use schedlab_bpf::asm::*;
use schedlab_bpf::image::{Insn, ProgramImage};

const SIZES: [u8; 4] = [size::B, size::H, size::W, size::DW];
const CONDITIONS: [u8; 11] = [
    jmp::JEQ,
    jmp::JGT,
    jmp::JGE,
    jmp::JSET,
    jmp::JNE,
    jmp::JSGT,
    jmp::JSGE,
    jmp::JLT,
    jmp::JLE,
    jmp::JSLT,
    jmp::JSLE,
];
const ATOMICS: [i32; 12] = [0x00, 0x01, 0x40, 0x41, 0x50, 0x51, 0xa0, 0xa1, 0xe1, 0xf1, 0x100, 0x110];

/// A program: main, up to three functions that later ones cannot call (so there is no recursion), each of
/// them also used as a callback.
pub fn program(random: &mut Source, name: &str) -> ProgramImage {
    let functions = 1 + random.below(4) as usize;
    let mut writer = Writer {
        random: &mut *random,
        insns: Vec::new(),
        calls: Vec::new(),
        function: 0,
        functions,
        depth: 0,
    };
    let mut starts = Vec::new();
    for function in 0..functions {
        writer.function = function;
        starts.push(writer.insns.len() as u32);
        writer.body();
    }
    let (mut insns, calls) = (writer.insns, writer.calls);
    for (at, function) in calls {
        insns[at].imm = starts[function] as i32 - at as i32 - 1;
    }
    let exception = random.one_in(4).then(|| starts[functions - 1]);
    ProgramImage { exception, ..schedlab_bpf::asm::program(name, insns, &starts[1..]) }
}

struct Writer<'a> {
    random: &'a mut Source,
    insns: Vec<Insn>,
    /// Instructions whose immediate becomes the start of a function.
    calls: Vec<(usize, usize)>,
    function: usize,
    functions: usize,
    depth: u32,
}

impl Writer<'_> {
    fn body(&mut self) {
        // Something in every register, so that statements have values to work on.
        for register in 0..10 {
            if register != 1 && self.random.one_in(2) {
                self.value_into(register);
            }
        }
        for _ in 0..3 + self.random.below(10) {
            self.statement();
        }
        // The result depends on every register, so that a wrong one shows.
        for register in 1..10 {
            self.push(alu64_imm(alu::MUL, 0, 31));
            self.push(alu64_reg(alu::XOR, 0, register));
        }
        self.insns.push(exit());
    }

    fn push(&mut self, insn: Insn) {
        self.insns.push(insn);
    }

    fn register(&mut self) -> u8 {
        self.random.below(10) as u8
    }

    /// A register that may be the frame pointer.
    fn any_register(&mut self) -> u8 {
        self.random.below(11) as u8
    }

    fn immediate(&mut self) -> i32 {
        match self.random.below(4) {
            0 => self.random.pick(&[0, 1, -1, 2, 7, 31, 32, 63, 64, i32::MIN, i32::MAX]),
            1 => self.random.below(64) as i32,
            _ => self.random.number() as i32,
        }
    }

    /// A constant, a pointer into a map or into the stack.
    fn value_into(&mut self, register: u8) {
        match self.random.below(6) {
            0 => {
                let immediate = self.immediate();
                self.push(mov_imm(register, immediate));
            }
            1 => {
                let value = self.random.pick(&[1 << 63, u64::MAX, 1 << 31, 1 << 32, 0xffff_ffff]);
                self.insns.extend(mov64(register, value));
            }
            2 => {
                let value = self.random.number();
                self.insns.extend(mov64(register, value));
            }
            3 | 4 => {
                let (map, offset) = (self.random.below(2) as u32, self.random.below(64) as u32);
                self.insns.extend(wide(register, 2, map, offset));
            }
            _ => {
                let offset = -(self.random.below(512) as i32);
                self.push(mov_reg(register, 10));
                self.push(alu64_imm(alu::ADD, register, offset));
            }
        }
    }

    fn statement(&mut self) {
        match self.random.below(24) {
            0..=6 => self.arithmetic(),
            7 => {
                let register = self.register();
                self.value_into(register);
            }
            8..=10 => self.stack_access(),
            11..=12 => self.pointer_access(),
            13 => self.atomic(),
            14..=16 => self.branch(),
            17 => self.counted_loop(),
            18 => self.may_goto_loop(),
            19..=20 => self.helper(),
            21 => self.kfunc(),
            22 if self.random.one_in(3) => self.wild_call(),
            22 => self.call_function(),
            _ => self.look_up(),
        }
    }

    fn arithmetic(&mut self) {
        const OPS: [u8; 12] = [
            alu::ADD,
            alu::SUB,
            alu::MUL,
            alu::DIV,
            alu::OR,
            alu::AND,
            alu::LSH,
            alu::RSH,
            alu::MOD,
            alu::XOR,
            alu::MOV,
            alu::ARSH,
        ];
        let (op, dst, src) = (self.random.pick(&OPS), self.register(), self.any_register());
        let class = self.random.pick(&[0x04, 0x07]);
        let signed = i16::from(matches!(op, alu::DIV | alu::MOD) && self.random.one_in(2));
        let immediate = self.immediate();
        let insn = match self.random.below(10) {
            0 => insn(class | 0x80, dst, 0, 0, 0),
            1 => {
                let code = self.random.pick(&[0xd4, 0xdc, 0xd7]);
                insn(code, dst, 0, 0, self.random.pick(&[16, 32, 64]))
            }
            2 => {
                let bits =
                    if class == 7 { self.random.pick(&[8, 16, 32]) } else { self.random.pick(&[8, 16]) };
                insn(class | 0xb8, dst, src, bits, 0)
            }
            3..=5 => insn(class | op, dst, 0, signed, immediate),
            _ => insn(class | op | 8, dst, src, signed, 0),
        };
        self.push(insn);
        // Many programs fault later: what was computed is left in memory, which is compared.
        if self.random.one_in(2) {
            let slot = -8 * (1 + self.random.below(63) as i16);
            self.push(store(size::DW, 10, dst, slot));
        }
    }

    fn stack_access(&mut self) {
        let (bits, register) = (self.random.pick(&SIZES), self.register());
        let offset = -(8 + self.random.below(505) as i16);
        let immediate = self.immediate();
        let insn = match self.random.below(5) {
            0 => load(bits, register, 10, offset),
            1 if bits != size::DW => load_signed(bits, register, 10, offset),
            2 => store_imm(bits, 10, offset, immediate),
            3 => store(bits, 10, 10, offset),
            _ => store(bits, 10, register, offset),
        };
        self.push(insn);
    }

    /// A load or store through whatever a register holds, often a good pointer.
    fn pointer_access(&mut self) {
        let (bits, base, register) = (self.random.pick(&SIZES), self.register(), self.register());
        if self.random.below(3) > 0 {
            self.value_into(base);
        }
        let wild = self.random.number() as i16;
        let offset = if self.random.one_in(4) { wild } else { wild & 31 };
        let insn = match self.random.below(5) {
            0 | 1 => load(bits, register, base, offset),
            2 if bits != size::DW => load_signed(bits, register, base, offset),
            3 => store_imm(bits, base, offset, 0x5a5a),
            _ => store(bits, base, register, offset),
        };
        self.push(insn);
    }

    fn atomic(&mut self) {
        let (op, src) = (self.random.pick(&ATOMICS), self.register());
        let bits =
            if op >= 0x100 { self.random.pick(&SIZES) } else { self.random.pick(&[size::W, size::DW]) };
        let (base, offset) = if self.random.one_in(2) {
            (10, -(8 * (1 + self.random.below(63) as i16)))
        } else {
            let base = self.register();
            self.value_into(base);
            (base, (self.random.number() & 15) as i16)
        };
        // A load-acquire has its base in the source register.
        let insn = if op == 0x100 {
            atomic(bits, op, src, base, offset)
        } else {
            atomic(bits, op, base, src, offset)
        };
        self.push(insn);
    }

    /// A condition with its offset still 0.
    fn condition(&mut self) -> Insn {
        let (cond, dst, src) = (self.random.pick(&CONDITIONS), self.register(), self.any_register());
        let immediate = self.immediate();
        match self.random.below(4) {
            0 => jump_imm(cond, dst, immediate, 0),
            1 => jump32_imm(cond, dst, immediate, 0),
            2 => jump_reg(cond, dst, src, 0),
            _ => jump32_reg(cond, dst, src, 0),
        }
    }

    fn block(&mut self, statements: u64) {
        self.depth += 1;
        for _ in 0..1 + self.random.below(statements) {
            if self.depth < 4 { self.statement() } else { self.arithmetic() }
        }
        if self.random.one_in(16) {
            self.push(exit());
        }
        self.depth -= 1;
    }

    fn patch(&mut self, at: usize) {
        self.insns[at].off = (self.insns.len() - at - 1) as i16;
    }

    fn branch(&mut self) {
        let at = self.insns.len();
        let condition = self.condition();
        self.push(condition);
        self.block(4);
        if self.random.one_in(2) {
            let over = self.insns.len();
            self.push(goto(0));
            self.patch(at);
            self.block(4);
            self.patch(over);
        } else {
            self.patch(at);
        }
    }

    /// A loop whose counter lies on the stack, where wild stores may reach it.
    fn counted_loop(&mut self) {
        let slot = -8 - 8 * self.depth as i16;
        let times = self.random.below(20) as i32;
        self.push(store_imm(size::DW, 10, slot, times));
        let top = self.insns.len();
        self.block(4);
        let counter = self.register();
        self.push(load(size::DW, counter, 10, slot));
        self.push(alu64_imm(alu::SUB, counter, 1));
        self.push(store(size::DW, 10, counter, slot));
        let back = top as i64 - self.insns.len() as i64 - 1;
        self.push(jump_imm(jmp::JSGT, counter, 0, back as i16));
    }

    fn may_goto_loop(&mut self) {
        let top = self.insns.len();
        self.push(insn(0xe5, 0, 0, 0, 0));
        self.block(3);
        let leave = self.insns.len();
        let condition = self.condition();
        self.push(condition);
        let back = top as i64 - self.insns.len() as i64 - 1;
        self.push(goto(back as i16));
        self.patch(top);
        self.patch(leave);
    }

    /// Puts a small key on the stack and its address into `register`.
    fn key_into(&mut self, register: u8) {
        let key = self.random.below(8) as i32;
        self.push(store_imm(size::W, 10, -512, key));
        self.push(mov_reg(register, 10));
        self.push(alu64_imm(alu::ADD, register, -512));
    }

    fn helper(&mut self) {
        match self.random.below(8) {
            0 => {
                let helper = self.random.pick(&[5, 7, 8, 35]);
                self.push(call(helper));
            }
            1 => {
                self.key_into(2);
                self.value_into(3);
                let map = self.random.below(u64::from(MAPS)) as u32;
                self.insns.extend(mov_map(1, map));
                let flags = self.random.below(3) as i32;
                self.push(mov_imm(4, flags));
                self.push(call(2));
            }
            2 => {
                self.key_into(2);
                self.insns.extend(mov_map(1, 2));
                self.push(call(3));
            }
            3 => {
                self.value_into(3);
                self.push(mov_reg(1, 10));
                self.push(alu64_imm(alu::ADD, 1, -64));
                self.push(mov_imm(2, 16));
                self.push(call(113));
            }
            4 => self.leave(),
            5 => self.trie_or_filter(),
            _ => self.callback(),
        }
    }

    /// A tail call, sometimes to a slot that is empty or absent, or an exception.
    fn leave(&mut self) {
        if self.random.one_in(4) {
            let throw = super::generic_names().iter().position(|name| name == "bpf_throw");
            let throw = throw.expect("the engine has exceptions") as i32;
            self.value_into(1);
            self.push(call_kfunc(super::KFUNCS_GENERIC_FROM + throw));
            return;
        }
        let slot = self.random.below(8) as i32;
        self.value_into(1);
        self.insns.extend(mov_map(2, PROGRAMS as u32));
        self.push(mov_imm(3, slot));
        self.push(call(12));
    }

    /// Inserts into the trie or looks it up, or pushes to the Bloom filter or asks it.
    fn trie_or_filter(&mut self) {
        let (bits, data) = (self.random.below(35) as i32, self.immediate());
        self.push(store_imm(size::W, 10, -512, bits));
        self.push(store_imm(size::W, 10, -508, data));
        self.push(mov_reg(2, 10));
        self.push(alu64_imm(alu::ADD, 2, -512));
        let (map, helper) = self.random.pick(&[(7, 1), (7, 2), (7, 2), (7, 3), (8, 87), (8, 89)]);
        self.insns.extend(mov_map(1, map));
        self.value_into(3);
        let flags = if helper == 2 { self.random.below(4) as i32 } else { 0 };
        self.push(mov_imm(if helper == 87 { 3 } else { 4 }, flags));
        self.push(call(helper));
    }

    /// `bpf_loop()` or `bpf_for_each_map_elem()` with a later function.
    fn callback(&mut self) {
        if self.function + 1 >= self.functions {
            return;
        }
        let function =
            self.function + 1 + self.random.below((self.functions - self.function - 1) as u64) as usize;
        let each = self.random.one_in(2);
        self.calls.push((self.insns.len(), function));
        self.insns.extend(mov_function(2, 0));
        self.value_into(3);
        if each {
            let map = self.random.below(u64::from(MAPS)) as u32;
            self.insns.extend(mov_map(1, map));
        } else {
            let times = self.random.below(6) as i32;
            self.push(mov_imm(1, times));
        }
        self.push(mov_imm(4, 0));
        self.push(call(if each { 164 } else { 181 }));
    }

    fn kfunc(&mut self) {
        let id = self.random.pick(&[KFUNC_MIX, KFUNC_MIX, KFUNC_REENTER, KFUNC_FAULT, KFUNC_NOW, KFUNC_LOAD]);
        for register in 1..=2 {
            if self.random.one_in(2) {
                self.value_into(register);
            }
        }
        self.push(call_kfunc(id));
    }

    /// Any helper or generic kfunc with whatever the registers hold.
    fn wild_call(&mut self) {
        const HELPERS: [i32; 31] = [
            1, 2, 3, 4, 6, 14, 16, 87, 88, 89, 105, 106, 112, 115, 118, 130, 131, 132, 133, 134, 153, 154,
            156, 157, 164, 165, 169, 170, 171, 177, 194,
        ];
        for register in 1..=5 {
            match self.random.below(4) {
                0 => self.value_into(register),
                1 => {
                    let map = self.random.below(u64::from(MAPS)) as u32;
                    self.insns.extend(mov_map(register, map));
                }
                2 => {
                    let small = self.random.below(100) as i32;
                    self.push(mov_imm(register, small));
                }
                _ => {}
            }
        }
        if self.random.one_in(3) {
            let id =
                super::KFUNCS_GENERIC_FROM + self.random.below(super::generic_names().len() as u64) as i32;
            self.push(call_kfunc(id));
        } else {
            let helper = self.random.pick(&HELPERS);
            self.push(call(helper));
        }
    }

    fn call_function(&mut self) {
        if self.function + 1 >= self.functions {
            return;
        }
        let function =
            self.function + 1 + self.random.below((self.functions - self.function - 1) as u64) as usize;
        for register in 1..=5 {
            if self.random.one_in(2) {
                self.value_into(register);
            }
        }
        self.calls.push((self.insns.len(), function));
        self.push(call_local(0));
    }

    /// A look-up whose result is used, usually without a test for NULL.
    fn look_up(&mut self) {
        self.key_into(2);
        let map = self.random.below(u64::from(MAPS)) as u32;
        self.insns.extend(mov_map(1, map));
        self.push(call(1));
        let at = self.insns.len();
        let tested = !self.random.one_in(4);
        if tested {
            self.push(jump_imm(jmp::JEQ, 0, 0, 0));
        }
        let (bits, register) = (self.random.pick(&SIZES), self.register());
        let insn =
            if self.random.one_in(2) { load(bits, register, 0, 4) } else { store(bits, 0, register, 4) };
        self.push(insn);
        if tested {
            self.patch(at);
        }
    }
}
