//! Hand-assembled programs whose stacks overflow, or just do not.

use super::PrivateStacks;
use crate::asm::*;
use crate::exec::{Compiled, Host, KfuncTable, Options};
use crate::image::{Insn, MapOrigin, ObjectImage, ProgramImage, SourceLine};
use crate::maps::kind;

struct Nobody;

impl Host for Nobody {}

const MAP_LOOKUP: i32 = 1;
const MAP_UPDATE: i32 = 2;
const TAIL_CALL: i32 = 12;
const GET_COMM: i32 = 16;
const TIMER_SET_CALLBACK: i32 = 170;
const LOOP: i32 = 181;

fn check_with(image: ObjectImage, private_stacks: PrivateStacks) -> Result<(), String> {
    let options = Options {
        memory_bytes_log2: 20,
        refuse_absent: false,
        private_stacks: Some(private_stacks),
        ..Options::default()
    };
    let compiled = Compiled::new(image, &KfuncTable::<Nobody>::new(), options);
    compiled.map(|_| ()).map_err(|error| error.to_string())
}

fn check(image: ObjectImage) -> Result<(), String> {
    check_with(image, PrivateStacks::default())
}

fn one(program: ProgramImage) -> ObjectImage {
    let maps = vec![
        map("keys", kind::HASH, 16, 8, 4),
        map("values", kind::HASH, 4, 32, 4),
        map("programs", kind::PROG_ARRAY, 4, 4, 1),
    ];
    object(vec![program], maps, &[])
}

fn main_only(insns: Vec<Insn>) -> Result<(), String> {
    check(one(program("main", insns, &[])))
}

/// The object is refused, and the text says all of this.
fn refused(result: Result<(), String>, says: &[&str]) {
    let error = result.expect_err("the stack overflows");
    for words in says {
        assert!(error.contains(words), "'{words}' is not in: {error}");
    }
}

/// `to = r10 + bytes`.
fn frame(to: u8, bytes: i32) -> [Insn; 2] {
    [mov_reg(to, 10), alu64_imm(alu::ADD, to, bytes)]
}

fn ends() -> [Insn; 2] {
    [mov_imm(0, 0), exit()]
}

fn insns(parts: &[&[Insn]]) -> Vec<Insn> {
    parts.concat()
}

#[test]
fn pointers_made_of_the_frame_pointer_stay_below_it() {
    let access =
        |bytes, off| main_only(insns(&[&frame(1, bytes), &[store_imm(size::DW, 1, off, 0)], &ends()]));
    assert_eq!(access(-16, 8), Ok(()));
    refused(access(-8, 8), &["program main, instruction 2 accesses 8 bytes at r10+0 in r1", "in a map"]);
    refused(access(-4, 0), &["at r10-4"]);
    let loaded = insns(&[&frame(1, -8), &[load(size::W, 2, 1, 6)], &ends()]);
    refused(main_only(loaded), &["instruction 2 accesses 4 bytes at r10-2 in r1"]);
    let added = insns(&[&frame(1, -8), &[atomic(size::DW, 0, 1, 2, 8)], &ends()]);
    refused(main_only(added), &["instruction 2 accesses 8 bytes at r10+0"]);
}

#[test]
fn pointers_made_of_the_frame_pointer_stay_within_512_bytes() {
    let access =
        |bytes, off| main_only(insns(&[&frame(1, bytes), &[store_imm(size::B, 1, off, 0)], &ends()]));
    assert_eq!(access(-500, -12), Ok(()));
    refused(access(-500, -13), &["at r10-513"]);
    refused(main_only(insns(&[&[store_imm(size::DW, 10, -520, 0)], &ends()])), &["at r10-520 in r10"]);
}

#[test]
fn pointers_are_followed_through_registers_and_spills() {
    let by_register = insns(&[
        &[mov_imm(2, 24), mov_reg(1, 10), alu64_imm(alu::SUB, 1, 32), alu64_reg(alu::ADD, 1, 2)],
        &[alu64_reg(alu::ADD, 2, 1), alu64_imm(alu::SUB, 2, 16), store_imm(size::DW, 2, -8, 0)],
        &[store_imm(size::DW, 1, 8, 0)],
        &ends(),
    ]);
    refused(main_only(by_register), &["instruction 7 accesses 8 bytes at r10+0 in r1"]);
    let spilled = |off| {
        main_only(insns(&[
            &frame(1, -8),
            &[store(size::DW, 10, 1, -64), call(5), load(size::DW, 2, 10, -64)],
            &[store_imm(size::DW, 2, off, 0)],
            &ends(),
        ]))
    };
    assert_eq!(spilled(0), Ok(()));
    refused(spilled(8), &["instruction 5 accesses 8 bytes at r10+0 in r2"]);
    let overwritten = insns(&[
        &frame(1, -8),
        &[store(size::DW, 10, 1, -64), store(size::W, 10, 0, -60), load(size::DW, 2, 10, -64)],
        &[store_imm(size::DW, 2, 8, 0)],
        &ends(),
    ]);
    assert_eq!(main_only(overwritten), Ok(()), "half of it is another");
}

/// A callee that is given memory below a spilled pointer need not have touched it, and whoever loads the pointer then
/// stores where it points.
#[test]
fn what_a_pointer_that_was_lost_points_at_is_not_known() {
    let reload = |lose: &[Insn], bytes| {
        insns(&[
            &frame(1, -16),
            &[store(size::DW, 10, 1, -8)],
            lose,
            &[store_imm(size::DW, 10, -16, 64), load(size::DW, 1, 10, -8), store_imm(size::DW, 1, 0, bytes)],
            &[load(size::DW, 2, 10, -16)],
            &frame(1, -40),
            &[call(GET_COMM)],
            &ends(),
        ])
    };
    let given = insns(&[&frame(1, -40), &[mov_imm(2, 16), call(GET_COMM)]]);
    assert_eq!(main_only(reload(&given, 8)), Ok(()), "8 bytes are given");
    assert_eq!(main_only(reload(&[], 8)), Ok(()));
    refused(main_only(reload(&[], 48)), &["48 bytes at r10-40"]);
}

#[test]
fn what_is_not_certain_is_accepted() {
    // if r0 goto +2; r1 = r10 - 8; else r1 = r10 - 16
    let joined = insns(&[
        &[call(7), jump_imm(jmp::JNE, 0, 0, 3)],
        &frame(1, -8),
        &[goto(2)],
        &frame(1, -16),
        &[store_imm(size::DW, 1, 8, 0)],
        &ends(),
    ]);
    assert_eq!(main_only(joined), Ok(()), "two distances met");
    let unknown = insns(&[
        &[call(7), mov_reg(1, 10), alu64_reg(alu::ADD, 1, 0), store_imm(size::DW, 1, 0, 0)],
        &ends(),
    ]);
    assert_eq!(main_only(unknown), Ok(()), "a distance that nobody knows");
    let never =
        insns(&[&[mov_imm(2, 1), jump_imm(jmp::JEQ, 2, 1, 1), store_imm(size::DW, 10, -8, 0)], &ends()]);
    assert_eq!(main_only(never), Ok(()));
    let behind = insns(&[
        &frame(1, 0),
        &[mov_imm(2, 1), jump_imm(jmp::JEQ, 2, 1, 1), store_imm(size::DW, 1, 0, 0)],
        &ends(),
    ]);
    assert_eq!(main_only(behind), Ok(()), "control never comes there");
}

#[test]
fn a_branch_on_a_constant_of_the_object_goes_one_way() {
    let with = |value: u8| {
        let insns = insns(&[
            &wide(1, 2, 0, 0),
            &[load(size::B, 1, 1, 0), jump_imm(jmp::JEQ, 1, 0, 3)],
            &frame(1, 0),
            &[store_imm(size::DW, 1, 0, 0)],
            &ends(),
        ]);
        let mut rodata = map(".rodata", kind::ARRAY, 4, 8, 1);
        (rodata.origin, rodata.initial) = (MapOrigin::Rodata, vec![value; 8]);
        check(object(vec![program("main", insns, &[])], vec![rodata], &[]))
    };
    assert_eq!(with(0), Ok(()));
    refused(with(1), &["instruction 6"]);
}

#[test]
fn arrays_have_an_element_at_a_constant_index() {
    let with = |index: i32| {
        let (array, key) = (map("array", kind::PERCPU_ARRAY, 4, 8, 3), frame(2, -4));
        let insns = insns(&[
            &[store_imm(size::W, 10, -4, index)],
            &key,
            &mov_map(1, 0),
            &[call(MAP_LOOKUP), jump_imm(jmp::JNE, 0, 0, 3)],
            &frame(1, 0),
            &[store_imm(size::DW, 1, 0, 0)],
            &ends(),
        ]);
        check(object(vec![program("main", insns, &[])], vec![array], &[]))
    };
    assert_eq!(with(2), Ok(()), "the overflow is where no element was found");
    refused(with(3), &["instruction 9"]);
}

#[test]
fn callees_are_given_what_lies_in_the_frame() {
    let comm = |at, bytes| main_only(insns(&[&frame(1, at), &[mov_imm(2, bytes), call(GET_COMM)], &ends()]));
    assert_eq!(comm(-16, 16), Ok(()));
    refused(comm(-16, 17), &["instruction 3 gives helper bpf_get_current_comm 17 bytes at r10-16 in r1"]);
    let lookup = |at| main_only(insns(&[&frame(2, at), &mov_map(1, 0), &[call(MAP_LOOKUP)], &ends()]));
    assert_eq!(lookup(-16), Ok(()));
    refused(lookup(-8), &["instruction 4 gives helper bpf_map_lookup_elem 16 bytes at r10-8 in r2"]);
    let update = |at| {
        let (key, value) = (frame(2, -4), frame(3, at));
        main_only(insns(&[&key, &value, &mov_map(1, 1), &[mov_imm(4, 0), call(MAP_UPDATE)], &ends()]))
    };
    assert_eq!(update(-32), Ok(()));
    refused(update(-24), &["bpf_map_update_elem 32 bytes at r10-24 in r3"]);
    let iter = insns(&[&frame(1, -8), &[mov_imm(2, 0), mov_imm(3, 9), call_kfunc(77)], &ends()]);
    let iter = |name: &str| object(vec![program("main", iter.clone(), &[])], vec![], &[(77, name)]);
    assert_eq!(check(iter("bpf_iter_num_new")), Ok(()));
    refused(check(iter("bpf_iter_scx_dsq_new")), &["kfunc bpf_iter_scx_dsq_new 48 bytes at r10-8"]);
}

#[test]
fn callees_may_write_above_what_they_are_given() {
    // A pointer spilled at r10-8 may be overwritten by who gets r10-16, not by who gets r10-8 + 8.
    let kept = |given| {
        main_only(insns(&[
            &frame(1, -24),
            &[store(size::DW, 10, 1, -24)],
            &frame(1, given),
            &[mov_imm(2, 8), call(GET_COMM), load(size::DW, 1, 10, -24), store_imm(size::DW, 1, 24, 0)],
            &ends(),
        ]))
    };
    assert_eq!(kept(-32), Ok(()));
    refused(kept(-16), &["at r10+0"]);
}

#[test]
fn functions_are_given_pointers_to_frames_of_callers() {
    let callee = |off| {
        let main = insns(&[&frame(1, -16), &[call_local(2)], &ends()]);
        check(one(program("main", insns(&[&main, &[store_imm(size::DW, 1, off, 0)], &ends()]), &[5])))
    };
    assert_eq!(callee(8), Ok(()));
    refused(callee(16), &["instruction 5 accesses 8 bytes at r10+0 of main() in r1"]);
    let called_back = |off| {
        let main = insns(&[
            &[mov_imm(1, 4)],
            &mov_function(2, 7),
            &frame(3, -8),
            &[mov_imm(4, 0), call(LOOP)],
            &ends(),
        ]);
        check(one(program("main", insns(&[&main, &[store_imm(size::DW, 2, off, 0)], &ends()]), &[9])))
    };
    assert_eq!(called_back(0), Ok(()));
    refused(called_back(8), &["instruction 9 accesses 8 bytes at r10+0 of main() in r2"]);
}

/// A chain of functions, each using so many bytes of its frame and calling the next.
fn chain(bytes: &[i16]) -> ProgramImage {
    let (mut all, mut starts) = (Vec::new(), Vec::new());
    for (index, deepest) in bytes.iter().enumerate() {
        starts.push(all.len() as u32);
        if *deepest > 0 {
            all.push(store_imm(size::B, 10, -deepest, 0));
        }
        if index + 1 < bytes.len() {
            all.push(call_local(2));
        }
        all.extend(ends());
    }
    program("main", all, &starts[1..])
}

#[test]
fn a_chain_of_frames_has_512_bytes() {
    let sum = |bytes: &[i16]| check(one(chain(bytes)));
    assert_eq!(sum(&[512]), Ok(()));
    assert_eq!(sum(&[240, 128, 144]), Ok(()), "exactly 512");
    assert_eq!(sum(&[512, 0]), Ok(()), "a function without a frame");
    refused(
        sum(&[240, 128, 145]),
        &[
            "program main, instruction 5 makes",
            "528 bytes",
            "main() 240, main_4() 128, main_8() 160",
            "in a map",
        ],
    );
    refused(sum(&[496, 1, 8]), &["528 bytes", "main() 496, main_4() 16, main_8() 16"]);
}

#[test]
fn the_source_line_is_named() {
    let mut image = one(chain(&[400, 200]));
    let text = "  deeper();".to_owned();
    image.programs[0].lines = vec![SourceLine { insn: 1, file: "a.bpf.c".into(), text, line: 7, column: 1 }];
    refused(check(image), &["program main, instruction 1 (a.bpf.c:7: deeper();) makes"]);
}

#[test]
fn a_chain_has_eight_functions() {
    assert_eq!(check(one(chain(&[64; 8]))), Ok(()));
    refused(check(one(chain(&[0; 9]))), &["recursively or more than 8 deep"]);
    let mut recursive = chain(&[0, 0]);
    recursive.insns[3] = call_local(-1);
    refused(check(one(recursive)), &["recursively"]);
}

/// main: gives its second function to a helper, both with a frame of so many bytes; `argument` is r1.
fn gives(helper: i32, main: i16, function: i16) -> ProgramImage {
    let body = insns(&[
        &[store_imm(size::B, 10, -main, 0), mov_imm(1, 0)],
        &mov_function(2, 6),
        &[mov_imm(3, 0), mov_imm(4, 0), call(helper)],
        &ends(),
        &[store_imm(size::B, 10, -function, 0)],
        &ends(),
    ]);
    program("main", body, &[9])
}

#[test]
fn functions_called_within_a_call_count_and_those_called_later_do_not() {
    assert_eq!(check(one(gives(LOOP, 256, 256))), Ok(()));
    refused(
        check(one(gives(LOOP, 256, 257))),
        &["instruction 2 makes", "528 bytes", "main() 256, main_9() 272"],
    );
    assert_eq!(check(one(gives(TIMER_SET_CALLBACK, 256, 512))), Ok(()));
    // What is called later may call others.
    let mut later = gives(TIMER_SET_CALLBACK, 16, 500);
    later.insns.truncate(10);
    later.insns.extend([call_local(2), mov_imm(0, 0), exit(), store_imm(size::B, 10, -16, 0)]);
    later.insns.extend(ends());
    later.functions.push((13, "last".to_owned()));
    refused(check(one(later)), &["instruction 10 makes", "528 bytes", "main_9() 512, last() 16"]);
}

#[test]
fn nine_functions_active_in_a_callback_are_too_many() {
    let deep = |functions: usize| {
        let mut program = gives(LOOP, 8, 8);
        for next in 0..functions {
            program.insns.truncate(program.insns.len() - 2);
            program.insns.push(call_local(2));
            program.insns.extend(ends());
            program.functions.push((program.insns.len() as u32, format!("deep_{next}")));
            program.insns.extend(ends());
        }
        check(one(program))
    };
    assert_eq!(deep(6), Ok(()), "eight");
    refused(deep(7), &["calls deep_6() at the end of more than 8 active functions"]);
    // The function gives itself.
    let mut circle = gives(LOOP, 8, 8);
    circle.insns.truncate(10);
    circle.insns.extend(mov_function(2, -2));
    circle.insns.extend([mov_imm(1, 0), mov_imm(3, 0), mov_imm(4, 0), call(LOOP)]);
    circle.insns.extend(ends());
    refused(check(one(circle)), &["more than 8 active functions"]);
}

#[test]
fn registers_saved_around_a_call_do_not_count() {
    let saved = |distance| {
        let body = [store(size::DW, 10, 1, -512), call(8), load(size::DW, 1, 10, distance)];
        let mut program = chain(&[8, 8]);
        let tail = program.insns.split_off(1);
        program.insns.extend(body);
        program.insns.extend(tail);
        program.functions[1].0 += 3;
        check(one(program))
    };
    assert_eq!(saved(-512), Ok(()));
    refused(saved(-504), &["528 bytes"]);
}

#[test]
fn callers_of_tail_calls_have_256_bytes() {
    let tail = |bytes| {
        let mut program = chain(&[bytes, 8]);
        let mut body = mov_map(2, 2).to_vec();
        body.extend([mov_imm(3, 0), call(TAIL_CALL)]);
        let at = program.insns.len() - 2;
        program.insns.splice(at..at, body);
        check(one(program))
    };
    assert_eq!(tail(240), Ok(()));
    refused(tail(256), &["makes a tail call while callers use 256 bytes"]);
}

#[test]
fn frames_of_some_programs_are_their_own() {
    let traces = |section: &str, bytes: &[i16], private| {
        let mut program = chain(bytes);
        program.section = section.to_owned();
        check_with(one(program), private)
    };
    assert_eq!(traces("fentry/schedule", &[400, 400, 16], PrivateStacks::Tracing), Ok(()));
    assert_eq!(traces("?tp_btf/sched_switch", &[400, 400], PrivateStacks::Dispatch), Ok(()));
    refused(traces("fentry/schedule", &[400, 400], PrivateStacks::Nobody), &["800 bytes"]);
    refused(traces("syscall", &[400, 400], PrivateStacks::Dispatch), &["800 bytes"]);
    let dispatches = |member: &str, private| {
        let mut image = one(chain(&[400, 400]));
        let callbacks = vec![(member.to_owned(), 0)];
        image.struct_ops.push(crate::image::StructOpsImage { callbacks, ..Default::default() });
        check_with(image, private)
    };
    assert_eq!(dispatches("dispatch", PrivateStacks::Dispatch), Ok(()));
    refused(dispatches("dispatch", PrivateStacks::Tracing), &["800 bytes"]);
    refused(dispatches("enqueue", PrivateStacks::Dispatch), &["800 bytes"]);
}
