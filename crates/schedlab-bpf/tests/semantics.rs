//! Instruction semantics, values worked by hand: every case runs by native code and by interpreter.

use schedlab_bpf::asm::*;
use schedlab_bpf::exec::{Compiled, FaultKind, Host, KfuncTable, Options};
use schedlab_bpf::image::Insn;
use schedlab_bpf::maps::kind;

struct Nobody;

impl Host for Nobody {}

fn options() -> Options {
    Options { memory_bytes_log2: 20, budget: 100_000, ..Options::default() }
}

/// Runs a program in both engines and gives the one answer.
fn run(insns: Vec<Insn>, arguments: &[u64]) -> Result<u64, FaultKind> {
    run_object(object(vec![program("main", insns, &[])], vec![], &[]), arguments)
}

fn run_object(image: schedlab_bpf::image::ObjectImage, arguments: &[u64]) -> Result<u64, FaultKind> {
    let compiled = Compiled::new(image, &KfuncTable::<Nobody>::new(), options()).expect("a valid object");
    let answer = |interpreted| {
        let mut instance = compiled.instance(1);
        instance.set_interpreted(interpreted);
        let value = instance.call(0, arguments, &mut Nobody).map_err(|fault| fault.kind);
        (value, instance.executed())
    };
    let (native, interpreted) = (answer(false), answer(true));
    assert_eq!(native, interpreted, "native code and interpreter differ");
    native.0
}

/// `a op b` with b in a register, then with the result returned.
fn binary(code: u8, off: i16, a: u64, b: u64) -> u64 {
    let mut insns = mov64(0, a).to_vec();
    insns.extend(mov64(1, b));
    insns.extend([insn(code, 0, 1, off, 0), exit()]);
    run(insns, &[]).expect("arithmetic never faults")
}

/// `a op imm`.
fn immediate(code: u8, off: i16, a: u64, imm: i32) -> u64 {
    let mut insns = mov64(0, a).to_vec();
    insns.extend([insn(code, 0, 0, off, imm), exit()]);
    run(insns, &[]).expect("arithmetic never faults")
}

const ALU64: u8 = 0x0f;
const ALU32: u8 = 0x0c;
const MIN64: u64 = 1 << 63;
const MIN32: u64 = 1 << 31;

#[test]
fn addition_wraps_and_32_bits_zero_extend() {
    assert_eq!(binary(ALU64 | alu::ADD, 0, u64::MAX, 2), 1);
    assert_eq!(binary(ALU32 | alu::ADD, 0, 0xffff_ffff_ffff_ffff, 2), 1);
    assert_eq!(binary(ALU32 | alu::SUB, 0, 0, 1), 0xffff_ffff);
    assert_eq!(binary(ALU64 | alu::MUL, 0, 1 << 40, 1 << 30), 0);
    assert_eq!(binary(ALU32 | alu::MUL, 0, 0x1_0000_0003, 5), 15);
}

#[test]
fn division_by_zero_gives_zero_and_its_remainder_the_dividend() {
    assert_eq!(binary(ALU64 | alu::DIV, 0, 7, 0), 0);
    assert_eq!(binary(ALU64 | alu::MOD, 0, 7, 0), 7);
    assert_eq!(binary(ALU64 | alu::DIV, 1, 7, 0), 0);
    assert_eq!(binary(ALU64 | alu::MOD, 1, MIN64, 0), MIN64);
    // Only the low half of the divisor counts on 32 bits, and the high half of the dividend goes.
    assert_eq!(binary(ALU32 | alu::DIV, 0, 7, 1 << 32), 0);
    assert_eq!(binary(ALU32 | alu::MOD, 0, 0x5_0000_0007, 1 << 32), 7);
    assert_eq!(immediate(0x37, 0, 7, 0), 0);
    assert_eq!(immediate(0x94, 0, 0x5_0000_0007, 0), 7);
}

#[test]
fn unsigned_division_takes_immediates_sign_extended() {
    assert_eq!(immediate(0x37, 0, u64::MAX, -1), 1);
    assert_eq!(immediate(0x37, 0, u64::MAX - 1, -1), 0);
    assert_eq!(immediate(0x34, 0, 0xffff_fffe, -1), 0);
    assert_eq!(immediate(0x97, 0, 100, 7), 2);
}

#[test]
fn signed_division_truncates_towards_zero_and_never_traps() {
    let minus = |value: i64| value as u64;
    assert_eq!(binary(ALU64 | alu::DIV, 1, minus(-7), 2), minus(-3));
    assert_eq!(binary(ALU64 | alu::MOD, 1, minus(-7), 2), minus(-1));
    assert_eq!(binary(ALU64 | alu::MOD, 1, 7, minus(-2)), 1);
    assert_eq!(binary(ALU64 | alu::DIV, 1, MIN64, minus(-1)), MIN64);
    assert_eq!(binary(ALU64 | alu::MOD, 1, MIN64, minus(-1)), 0);
    assert_eq!(binary(ALU32 | alu::DIV, 1, MIN32, 0xffff_ffff), MIN32);
    assert_eq!(binary(ALU32 | alu::MOD, 1, MIN32, 0xffff_ffff), 0);
    assert_eq!(binary(ALU32 | alu::DIV, 1, 0xffff_fff9, 2), 0xffff_fffd);
    assert_eq!(immediate(0x37, 1, MIN64, -1), MIN64);
    assert_eq!(immediate(0x94, 1, MIN32, -1), 0);
    assert_eq!(immediate(0x34, 1, 0xffff_fff9, 2), 0xffff_fffd);
}

#[test]
fn shift_amounts_are_masked() {
    assert_eq!(binary(ALU64 | alu::LSH, 0, 1, 65), 2);
    assert_eq!(binary(ALU32 | alu::LSH, 0, 1, 33), 2);
    assert_eq!(binary(ALU64 | alu::RSH, 0, MIN64, 63), 1);
    assert_eq!(binary(ALU64 | alu::ARSH, 0, MIN64, 63), u64::MAX);
    assert_eq!(binary(ALU32 | alu::ARSH, 0, MIN32, 31), 0xffff_ffff);
    assert_eq!(binary(ALU32 | alu::RSH, 0, 0xf_8000_0000, 31), 1);
}

#[test]
fn sign_extending_moves() {
    assert_eq!(binary(ALU64 | alu::MOV, 8, 0, 0x80), 0xffff_ffff_ffff_ff80);
    assert_eq!(binary(ALU64 | alu::MOV, 16, 0, 0x1_7fff), 0x7fff);
    assert_eq!(binary(ALU64 | alu::MOV, 32, 0, 0x8000_0000), 0xffff_ffff_8000_0000);
    assert_eq!(binary(ALU32 | alu::MOV, 8, 0, 0x80), 0xffff_ff80);
    assert_eq!(binary(ALU32 | alu::MOV, 16, 0, 0x8000), 0xffff_8000);
    assert_eq!(binary(ALU32 | alu::MOV, 0, 7, 0x5_0000_0001), 1);
    assert_eq!(immediate(0xb4, 0, 0, -1), 0xffff_ffff);
    assert_eq!(immediate(0xb7, 0, 0, -1), u64::MAX);
}

#[test]
fn negation_and_byte_order() {
    assert_eq!(immediate(0x87, 0, 1, 0), u64::MAX);
    assert_eq!(immediate(0x84, 0, 1, 0), 0xffff_ffff);
    let value = 0x0102_0304_0506_0708;
    // Little-endian conversion truncates, the other two swap.
    assert_eq!(immediate(0xd4, 0, value, 16), 0x0708);
    assert_eq!(immediate(0xd4, 0, value, 32), 0x0506_0708);
    assert_eq!(immediate(0xd4, 0, value, 64), value);
    assert_eq!(immediate(0xdc, 0, value, 16), 0x0807);
    assert_eq!(immediate(0xdc, 0, value, 32), 0x0807_0605);
    assert_eq!(immediate(0xd7, 0, value, 64), 0x0807_0605_0403_0201);
    assert_eq!(immediate(0xd7, 0, value, 16), 0x0807);
}

#[test]
fn conditions_compare_signed_unsigned_and_by_half() {
    let taken = |code: u8, a: u64, b: u64| {
        let mut insns = mov64(1, a).to_vec();
        insns.extend(mov64(2, b));
        insns.extend([mov_imm(0, 1), insn(code, 1, 2, 1, 0), mov_imm(0, 0), exit()]);
        run(insns, &[]).unwrap() == 1
    };
    let minus = u64::MAX;
    for (cond, a, b, wide, narrow) in [
        (jmp::JGT, minus, 1, true, true),
        (jmp::JSGT, minus, 1, false, false),
        (jmp::JSLT, minus, 1, true, true),
        (jmp::JLT, 1 << 32, 1, false, true),
        (jmp::JEQ, 1 << 32, 0, false, true),
        (jmp::JNE, 1 << 32, 0, true, false),
        (jmp::JSET, 1 << 32, 1 << 32, true, false),
        (jmp::JGE, 5, 5, true, true),
        (jmp::JLE, 5, 5, true, true),
        (jmp::JSGE, 0x8000_0000, 0, true, false),
        (jmp::JSLE, 0x8000_0000, 0, false, true),
    ] {
        assert_eq!(taken(0x0d | cond, a, b), wide, "64 bits, {cond:#x} {a:#x} {b:#x}");
        assert_eq!(taken(0x0e | cond, a, b), narrow, "32 bits, {cond:#x} {a:#x} {b:#x}");
    }
}

#[test]
fn long_jump_takes_its_offset_from_the_immediate() {
    let insns = vec![mov_imm(0, 1), insn(0x06, 0, 0, 0, 1), mov_imm(0, 2), exit()];
    assert_eq!(run(insns, &[]), Ok(1));
}

#[test]
fn memory_of_every_size_with_and_without_sign() {
    let mut insns = mov64(1, 0x8899_aabb_ccdd_eeff).to_vec();
    insns.extend([
        store(size::DW, 10, 1, -8),
        load(size::B, 0, 10, -8),
        load(size::H, 2, 10, -8),
        alu64_reg(alu::ADD, 0, 2),
        load(size::W, 2, 10, -8),
        alu64_reg(alu::ADD, 0, 2),
        exit(),
    ]);
    assert_eq!(run(insns, &[]), Ok(0xff + 0xeeff + 0xccdd_eeff));
    for (bits, expected) in [(size::B, -1_i64), (size::H, -0x1101), (size::W, -0x3322_1101)] {
        let mut insns = mov64(1, 0x8899_aabb_ccdd_eeff).to_vec();
        insns.extend([store(size::DW, 10, 1, -8), load_signed(bits, 0, 10, -8), exit()]);
        assert_eq!(run(insns, &[]), Ok(expected as u64));
    }
    let insns = vec![
        store_imm(size::DW, 10, -8, -1),
        store_imm(size::H, 10, -8, 0x1234),
        load(size::DW, 0, 10, -8),
        exit(),
    ];
    assert_eq!(run(insns, &[]), Ok(0xffff_ffff_ffff_1234));
}

#[test]
fn atomics_update_memory_and_fetch() {
    // (operation, memory after, register after), starting from memory 12 and register 10.
    for (op, memory, register) in
        [(0x00, 22, 10), (0x01, 22, 12), (0x40, 14, 10), (0x51, 8, 12), (0xa0, 6, 10), (0xe1, 10, 12)]
    {
        for bits in [size::W, size::DW] {
            let insns = vec![
                store_imm(size::DW, 10, -8, 12),
                mov_imm(1, 10),
                atomic(bits, op, 10, 1, -8),
                load(size::DW, 0, 10, -8),
                alu64_imm(alu::LSH, 0, 32),
                alu64_reg(alu::OR, 0, 1),
                exit(),
            ];
            assert_eq!(run(insns, &[]), Ok(memory << 32 | register), "operation {op:#x}");
        }
    }
}

#[test]
fn compare_and_exchange_returns_the_old_value_in_r0() {
    for (expected, memory_after) in [(12, 10), (13, 12)] {
        let insns = vec![
            store_imm(size::DW, 10, -8, 12),
            mov_imm(0, expected),
            mov_imm(1, 10),
            atomic(size::DW, 0xf1, 10, 1, -8),
            load(size::DW, 2, 10, -8),
            alu64_imm(alu::LSH, 0, 32),
            alu64_reg(alu::OR, 0, 2),
            exit(),
        ];
        assert_eq!(run(insns, &[]), Ok(12 << 32 | memory_after));
    }
}

#[test]
fn acquire_and_release_are_loads_and_stores() {
    let insns = vec![
        mov_imm(1, 77),
        atomic(size::H, 0x110, 10, 1, -8),
        insn(0xc3 | size::H, 0, 10, -8, 0x100),
        exit(),
    ];
    assert_eq!(run(insns, &[]), Ok(77));
}

#[test]
fn a_callback_reads_its_arguments_through_r1() {
    let insns = vec![load(size::DW, 0, 1, 0), load(size::DW, 2, 1, 8), alu64_reg(alu::SUB, 0, 2), exit()];
    assert_eq!(run(insns, &[50, 8]), Ok(42));
}

#[test]
fn functions_have_frames_of_their_own_and_keep_r6_to_r9() {
    // main: r6 = 5, [r10-8] = 7, r0 = f(3) + r6 + [r10-8]; f(a) { [r10-8] = 1; r6 = 9; return a * 2 }
    let insns = vec![
        mov_imm(6, 5),
        store_imm(size::DW, 10, -8, 7),
        mov_imm(1, 3),
        call_local(4),
        alu64_reg(alu::ADD, 0, 6),
        load(size::DW, 1, 10, -8),
        alu64_reg(alu::ADD, 0, 1),
        exit(),
        store_imm(size::DW, 10, -8, 1),
        mov_imm(6, 9),
        mov_reg(0, 1),
        alu64_imm(alu::MUL, 0, 2),
        exit(),
    ];
    let image = object(vec![program("main", insns, &[8])], vec![], &[]);
    assert_eq!(run_object(image, &[]), Ok(18));
}

#[test]
fn loads_through_null_read_zero_and_stores_fault() {
    let insns = vec![mov_imm(1, 0), load(size::DW, 0, 1, 1000), exit()];
    assert_eq!(run(insns, &[]), Ok(0));
    let insns = vec![mov_imm(1, 0), load(size::DW, 0, 1, -8), exit()];
    assert_eq!(run(insns, &[]), Ok(0));
    let insns = vec![mov_imm(0, 0), load(size::DW, 1, 1, 0), store_imm(size::W, 1, 8, 1), exit()];
    assert_eq!(run(insns, &[0]), Err(FaultKind::Store { address: 0 }));
}

#[test]
fn an_endless_loop_ends_with_the_budget() {
    let insns = vec![mov_imm(0, 0), alu64_imm(alu::ADD, 0, 1), goto(-2), exit()];
    assert_eq!(run(insns, &[]), Err(FaultKind::Budget { budget: 100_000 }));
}

/// A chain of `depth` functions, each with 64 calls of the next and no jump.
fn straight_calls(depth: u32) -> schedlab_bpf::image::ObjectImage {
    const CALLS: i32 = 64;
    let function = |level| {
        let calls = if level + 1 == depth { 0 } else { CALLS };
        (0..calls).map(|at| call_local(CALLS - at)).chain([exit()])
    };
    let insns = (0..depth).flat_map(function).collect();
    let starts: Vec<u32> = (1..depth).map(|level| 65 * level).collect();
    object(vec![program("main", insns, &starts)], vec![], &[])
}

#[test]
fn calls_without_loops_end_with_the_budget() {
    assert_eq!(run_object(straight_calls(3), &[]), Ok(0), "64 * 65 calls are within the budget");
    assert_eq!(run_object(straight_calls(8), &[]), Err(FaultKind::Budget { budget: 100_000 }));
}

#[test]
fn a_jump_back_to_the_end_is_a_jump_back() {
    const JUMP32: u8 = 0x06;
    const IF_NOT_ZERO: u8 = 0x55;
    for (more, fits) in [(99_997, true), (99_998, false)] {
        // Two instructions and `more`: the last jumps back to the end, always or on a condition.
        for conditional in [false, true] {
            let mut insns = vec![goto(2), mov_imm(0, 1), exit()];
            insns.extend(vec![mov_imm(2, 0); if conditional { more + 2 } else { more }]);
            if conditional {
                // A branch does not reach that far: it jumps to another end, which is jumped over before.
                let near = insns.len() - 100;
                insns[near..near + 3].copy_from_slice(&[goto(2), mov_imm(0, 1), exit()]);
                insns.extend([insn(IF_NOT_ZERO, 1, 0, -100, 0), mov_imm(0, 2), exit()]);
            } else {
                insns.push(insn(JUMP32, 0, 0, 0, -(more as i32) - 3));
            }
            let wanted = if fits { Ok(1) } else { Err(FaultKind::Budget { budget: 100_000 }) };
            assert_eq!(run(insns, &[]), wanted, "{more} instructions, conditional: {conditional}");
        }
    }
}

/// `branches` of them in each of two parts, each on a value of its own and to a place of its own.
fn many_branches(branches: usize) -> Vec<Insn> {
    const IF_ABOVE: u8 = 0x25;
    let mut insns = vec![store_imm(size::DW, 10, -8, 7), mov_imm(0, 0)];
    for _ in 0..2 {
        for at in 0..branches {
            let target = (2 * branches + at) as i16 - (2 * at + 2) as i16;
            insns.extend([load(size::DW, 1, 10, -8), insn(IF_ABOVE, 1, 0, target, at as i32 + 7)]);
        }
        insns.extend(vec![alu64_imm(alu::ADD, 0, 1); branches]);
    }
    insns.push(exit());
    insns
}

#[test]
fn many_branches_are_translated_without_all_that_is_known_on_each() {
    // Gigabytes, were all that is learnt kept on every way.
    assert_eq!(run(many_branches(10_000), &[]), Ok(20_000));
}

#[test]
fn bpf_loop_calls_back_with_index_and_argument() {
    // Sums the indices below 10 into a stack slot passed as the argument.
    let mut insns = vec![store_imm(size::DW, 10, -8, 0), mov_imm(1, 10)];
    insns.extend(mov_function(2, 7));
    insns.extend([
        mov_reg(3, 10),
        alu64_imm(alu::ADD, 3, -8),
        mov_imm(4, 0),
        call(181),
        load(size::DW, 0, 10, -8),
        exit(),
    ]);
    assert_eq!(insns.len(), 10);
    insns.extend([
        load(size::DW, 0, 2, 0),
        alu64_reg(alu::ADD, 0, 1),
        store(size::DW, 2, 0, 0),
        mov_imm(0, 0),
        exit(),
    ]);
    let image = object(vec![program("main", insns, &[10])], vec![], &[]);
    assert_eq!(run_object(image, &[]), Ok(45));
}

/// `map[5]` looked up, r0 = value or -1.
fn lookup_five(map: u32) -> Vec<Insn> {
    let mut insns = vec![store_imm(size::W, 10, -4, 5), mov_reg(2, 10), alu64_imm(alu::ADD, 2, -4)];
    insns.extend(mov_map(1, map));
    insns.extend([
        call(1),
        jump_imm(jmp::JEQ, 0, 0, 2),
        load(size::DW, 0, 0, 0),
        exit(),
        mov_imm(0, -1),
        exit(),
    ]);
    insns
}

#[test]
fn look_ups_in_arrays_and_hashes_find_what_the_host_put_there() {
    for (map_type, entries, absent) in [
        (kind::ARRAY, 8, 0),
        (kind::ARRAY, 5, u64::MAX),
        (kind::HASH, 8, u64::MAX),
        (kind::LRU_HASH, 8, u64::MAX),
    ] {
        let image =
            object(vec![program("main", lookup_five(0), &[])], vec![map("m", map_type, 4, 8, entries)], &[]);
        let compiled = Compiled::new(image, &KfuncTable::<Nobody>::new(), options()).unwrap();
        for interpreted in [false, true] {
            let mut instance = compiled.instance(1);
            instance.set_interpreted(interpreted);
            assert_eq!(instance.call(0, &[], &mut Nobody).unwrap(), absent);
            if entries > 5 {
                instance.map_update(0, &5_u32.to_le_bytes(), &99_u64.to_le_bytes()).unwrap();
                assert_eq!(instance.call(0, &[], &mut Nobody).unwrap(), 99);
            }
        }
    }
}
