//! Maps and helpers: each case is a small program run by native code and by interpreter.

use schedlab_bpf::asm::*;
use schedlab_bpf::exec::{CallContext, Compiled, Host, Instance, KfuncTable, Options};
use schedlab_bpf::image::{Insn, MapImage};
use schedlab_bpf::maps::kind;

/// A host with a task and a timer queue of one.
#[derive(Default)]
struct Kernel {
    timer: Option<(u64, u64, bool)>,
}

impl Host for Kernel {
    fn current_pid_tgid(_: &mut CallContext<'_, Self>) -> u64 {
        7 << 32 | 8
    }

    fn timer_start(cx: &mut CallContext<'_, Self>, timer: u64, expires_ns: u64, pinned: bool) {
        cx.host().timer = Some((timer, expires_ns, pinned));
    }

    fn timer_cancel(cx: &mut CallContext<'_, Self>, _timer: u64) {
        cx.host().timer = None;
    }
}

/// Compiles programs (name, instructions, function starts) and runs `check` with both engines.
fn both(
    programs: &[(&str, Vec<Insn>, &[u32])],
    maps: Vec<MapImage>,
    kfuncs: &[(u32, &str)],
    check: impl Fn(&mut Instance<Kernel>, &mut Kernel),
) {
    let programs = programs.iter().map(|(name, insns, starts)| program(name, insns.clone(), starts));
    let options = Options { memory_bytes_log2: 20, nr_cpus: 4, ..Options::default() };
    let image = object(programs.collect(), maps, kfuncs);
    let compiled = Compiled::new(image, &KfuncTable::new(), options).expect("a valid object");
    for interpreted in [false, true] {
        let mut instance = compiled.instance(1);
        instance.set_interpreted(interpreted);
        check(&mut instance, &mut Kernel::default());
    }
}

/// `r2 = &stack[-off]` holding the first argument, 64 bits.
fn argument_to_stack(register: u8, index: i16, off: i16) -> Vec<Insn> {
    vec![
        load(size::DW, 0, 1, 8 * index),
        store(size::DW, 10, 0, off),
        mov_reg(register, 10),
        alu64_imm(alu::ADD, register, off.into()),
    ]
}

/// update(map, argument 0, argument 1, flags), returning its result.
fn update(map: u32, flags: i32) -> Vec<Insn> {
    let mut insns = argument_to_stack(2, 0, -8);
    insns.extend(argument_to_stack(3, 1, -16));
    insns.extend(mov_map(1, map));
    insns.extend([mov_imm(4, flags), call(2), exit()]);
    insns
}

/// delete(map, argument 0), returning its result.
fn delete(map: u32) -> Vec<Insn> {
    let mut insns = argument_to_stack(2, 0, -8);
    insns.extend(mov_map(1, map));
    insns.extend([call(3), exit()]);
    insns
}

/// *lookup(map, argument 0), or 1234 if there is none.
fn lookup(map: u32) -> Vec<Insn> {
    let mut insns = argument_to_stack(2, 0, -8);
    insns.extend(mov_map(1, map));
    insns.extend([
        call(1),
        jump_imm(jmp::JNE, 0, 0, 2),
        mov_imm(0, 1234),
        exit(),
        load(size::DW, 0, 0, 0),
        exit(),
    ]);
    insns
}

const ABSENT: u64 = 1234;
const ENOENT: u64 = -2_i64 as u64;
const E2BIG: u64 = -7_i64 as u64;
const EEXIST: u64 = -17_i64 as u64;

fn hash_programs() -> [(&'static str, Vec<Insn>, &'static [u32]); 5] {
    [
        ("any", update(0, 0), &[]),
        ("noexist", update(0, 1), &[]),
        ("exist", update(0, 2), &[]),
        ("delete", delete(0), &[]),
        ("lookup", lookup(0), &[]),
    ]
}

#[test]
fn a_hash_updates_finds_deletes_and_fills_up() {
    both(&hash_programs(), vec![map("h", kind::HASH, 8, 8, 2)], &[], |instance, host| {
        let mut call = |program, arguments: &[u64]| instance.call(program, arguments, host).unwrap();
        assert_eq!(call(2, &[5, 50]), ENOENT);
        assert_eq!(call(0, &[5, 50]), 0);
        assert_eq!(call(1, &[5, 51]), EEXIST);
        assert_eq!(call(4, &[5]), 50);
        assert_eq!(call(0, &[6, 60]), 0);
        assert_eq!(call(0, &[7, 70]), E2BIG);
        assert_eq!(call(3, &[5]), 0);
        assert_eq!(call(3, &[5]), ENOENT);
        assert_eq!(call(4, &[5]), ABSENT);
        assert_eq!(call(0, &[7, 70]), 0);
        // The freed slot is the first visited again.
        let keys: Vec<u8> = instance.map_keys(0).iter().map(|key| key[0]).collect();
        assert_eq!(keys, [7, 6]);
    });
}

#[test]
fn a_hash_of_many_keys_keeps_them_apart() {
    both(&hash_programs(), vec![map("h", kind::HASH, 8, 8, 1000)], &[], |instance, host| {
        for key in 0..1000 {
            assert_eq!(instance.call(0, &[key * 64, key], host).unwrap(), 0);
        }
        for key in (0..1000).step_by(2) {
            assert_eq!(instance.call(3, &[key * 64], host).unwrap(), 0);
        }
        for key in 0..1000 {
            let expected = if key % 2 == 0 { ABSENT } else { key };
            assert_eq!(instance.call(4, &[key * 64], host).unwrap(), expected);
        }
    });
}

#[test]
fn an_lru_hash_makes_room_by_dropping_the_least_recently_used() {
    both(&hash_programs(), vec![map("h", kind::LRU_HASH, 8, 8, 2)], &[], |instance, host| {
        let mut call = |program, arguments: &[u64]| instance.call(program, arguments, host).unwrap();
        assert_eq!((call(0, &[1, 10]), call(0, &[2, 20])), (0, 0));
        assert_eq!(call(4, &[1]), 10);
        assert_eq!(call(0, &[3, 30]), 0);
        assert_eq!((call(4, &[1]), call(4, &[2]), call(4, &[3])), (10, ABSENT, 30));
    });
}

#[test]
fn per_cpu_maps_show_each_cpu_its_own_copy() {
    for map_type in [kind::PERCPU_ARRAY, kind::PERCPU_HASH, kind::LRU_PERCPU_HASH] {
        // Keys of four bytes: the low half of the argument.
        let programs: [(_, _, &[u32]); 2] = [("update", update(0, 0), &[]), ("lookup", lookup(0), &[])];
        both(&programs, vec![map("m", map_type, 4, 8, 4)], &[], |instance, host| {
            for cpu in 0..3 {
                let mut cx = instance.enter(host);
                cx.set_cpu(cpu);
                assert_eq!(cx.call(0, &[2, 100 + u64::from(cpu)]).unwrap(), 0);
            }
            for cpu in 0..4 {
                let mut cx = instance.enter(host);
                cx.set_cpu(cpu);
                let expected = if cpu < 3 { 100 + u64::from(cpu) } else { 0 };
                assert_eq!(cx.call(1, &[2]).unwrap(), expected, "type {map_type}, CPU {cpu}");
            }
            let all = instance.map_lookup(0, &2_u32.to_le_bytes()).unwrap().unwrap();
            assert_eq!((all.len(), all[0], all[8], all[16], all[24]), (32, 100, 101, 102, 0));
        });
    }
}

#[test]
fn queues_and_stacks_differ_in_who_comes_first() {
    for (map_type, expected) in [(kind::QUEUE, [1, 2]), (kind::STACK, [2, 1])] {
        let mut push = argument_to_stack(2, 0, -8);
        push.extend(mov_map(1, 0));
        push.extend([mov_imm(3, 0), call(87), exit()]);
        let mut pop = vec![mov_reg(2, 10), alu64_imm(alu::ADD, 2, -8)];
        pop.extend(mov_map(1, 0));
        pop.extend([call(88), jump_imm(jmp::JNE, 0, 0, 1), load(size::DW, 0, 10, -8), exit()]);
        let programs: [(_, _, &[u32]); 2] = [("push", push, &[]), ("pop", pop, &[])];
        both(&programs, vec![map("q", map_type, 0, 8, 2)], &[], |instance, host| {
            let mut call = |program, arguments: &[u64]| instance.call(program, arguments, host).unwrap();
            assert_eq!((call(0, &[1]), call(0, &[2]), call(0, &[3])), (0, 0, E2BIG));
            assert_eq!([call(1, &[]), call(1, &[])], expected);
            assert_eq!(call(1, &[]), ENOENT);
        });
    }
}

#[test]
fn a_ring_buffer_gives_records_in_order_and_skips_discarded_ones() {
    // reserve 8 bytes, store the argument, submit if it is even, else discard; 99 if there was no room.
    let mut insns = vec![load(size::DW, 6, 1, 0)];
    insns.extend(mov_map(1, 0));
    insns.extend([
        mov_imm(2, 8),
        mov_imm(3, 0),
        call(131),
        jump_imm(jmp::JNE, 0, 0, 2),
        mov_imm(0, 99),
        exit(),
        store(size::DW, 0, 6, 0),
        mov_reg(1, 0),
        mov_imm(2, 0),
        jump_imm(jmp::JSET, 6, 1, 3),
        call(132),
        mov_imm(0, 0),
        exit(),
        call(133),
        mov_imm(0, 0),
        exit(),
    ]);
    both(&[("produce", insns, &[])], vec![map("r", kind::RINGBUF, 0, 0, 64)], &[], |instance, host| {
        let results: Vec<u64> = (0..5).map(|value| instance.call(0, &[value], host).unwrap()).collect();
        // 64 bytes hold four records of 8 with their headers.
        assert_eq!(results, [0, 0, 0, 0, 99]);
        let first = instance.ring_consume(0).map(|record| record[0]);
        let second = instance.ring_consume(0).map(|record| record[0]);
        assert_eq!((first, second, instance.ring_consume(0)), (Some(0), Some(2), None));
        assert_eq!(instance.call(0, &[6], host).unwrap(), 0);
    });
}

#[test]
fn task_storage_lives_as_long_as_its_task() {
    // ++*storage(argument 0, create)
    let mut insns = vec![load(size::DW, 2, 1, 0)];
    insns.extend(mov_map(1, 0));
    insns.extend([
        mov_imm(3, 0),
        mov_imm(4, 1),
        call(156),
        jump_imm(jmp::JNE, 0, 0, 2),
        mov_imm(0, 1234),
        exit(),
        mov_imm(1, 1),
        atomic(size::DW, 0x01, 0, 1, 0),
        mov_reg(0, 1),
        exit(),
    ]);
    both(&[("count", insns, &[])], vec![map("s", kind::TASK_STORAGE, 4, 8, 0)], &[], |instance, host| {
        let tasks = [0; 2].map(|_| instance.memory().alloc(64, 64).unwrap());
        let mut call = |task| instance.call(0, &[task], host).unwrap();
        assert_eq!((call(tasks[0]), call(tasks[0]), call(tasks[1])), (0, 1, 0));
        assert_eq!(call(0), ABSENT);
        let of_second = instance.map_lookup(0, &tasks[1].to_le_bytes()).unwrap().unwrap();
        assert_eq!(of_second[0], 1);
        instance.owner_died(tasks[0]);
        assert_eq!(instance.call(0, &[tasks[0]], host).unwrap(), 0);
        assert_eq!(instance.call(0, &[tasks[1]], host).unwrap(), 1);
    });
}

#[test]
fn for_each_visits_every_element_with_key_and_value() {
    // sum += key * value, in a stack slot passed as argument
    let mut insns = vec![store_imm(size::DW, 10, -8, 0)];
    insns.extend(mov_map(1, 0));
    insns.extend(mov_function(2, 6 + 2 - 1));
    insns.extend([
        mov_reg(3, 10),
        alu64_imm(alu::ADD, 3, -8),
        mov_imm(4, 0),
        call(164),
        load(size::DW, 0, 10, -8),
        exit(),
    ]);
    let start = insns.len() as u32;
    insns[3].imm = start as i32 - 4;
    insns.extend([
        load(size::W, 5, 2, 0),
        load(size::DW, 0, 3, 0),
        alu64_reg(alu::MUL, 0, 5),
        load(size::DW, 1, 4, 0),
        alu64_reg(alu::ADD, 0, 1),
        store(size::DW, 4, 0, 0),
        mov_imm(0, 0),
        exit(),
    ]);
    for map_type in [kind::ARRAY, kind::HASH] {
        let maps = vec![map("m", map_type, 4, 8, 4)];
        both(&[("sum", insns.clone(), &[start])], maps, &[], |instance, host| {
            for (key, value) in [(1_u32, 10_u64), (2, 100), (3, 1000)] {
                instance.map_update(0, &key.to_le_bytes(), &value.to_le_bytes()).unwrap();
            }
            assert_eq!(instance.call(0, &[], host).unwrap(), 3210);
        });
    }
}

#[test]
fn a_timer_is_armed_at_the_host_and_fires_once() {
    // value 1 of the array holds the timer at offset 8; the callback adds key + 1 to the value's first word.
    let mut insns = Vec::new();
    insns.extend(wide(6, 2, 0, 16 + 8));
    insns.extend([mov_reg(1, 6)]);
    insns.extend(mov_map(2, 0));
    insns.extend([mov_imm(3, 0), call(169), mov_reg(1, 6)]);
    let at = insns.len();
    insns.extend(mov_function(2, 0));
    insns.extend([call(170), mov_reg(1, 6), mov_imm(2, 500), mov_imm(3, 0), call(171), exit()]);
    let start = insns.len() as u32;
    insns[at].imm = start as i32 - at as i32 - 1;
    insns.extend([
        load(size::W, 2, 2, 0),
        load(size::DW, 0, 3, 0),
        alu64_reg(alu::ADD, 0, 2),
        alu64_imm(alu::ADD, 0, 1),
        store(size::DW, 3, 0, 0),
        mov_imm(0, 0),
        exit(),
    ]);
    both(&[("arm", insns, &[start])], vec![map("m", kind::ARRAY, 4, 24, 2)], &[], |instance, host| {
        // Values of 24 bytes: the second begins at 24, its timer at 32; the program's first one is at 24.
        let mut cx = instance.enter(host);
        cx.set_now(1000);
        assert_eq!(cx.call(0, &[]).unwrap(), 0);
        let (timer, expires, pinned) = cx.host().timer.expect("the host has it armed");
        assert_eq!((expires, pinned), (1500, false));
        cx.fire_timer(timer).unwrap();
        cx.fire_timer(timer).unwrap();
        let value = instance.map_lookup(0, &1_u32.to_le_bytes()).unwrap().unwrap();
        assert_eq!(value[0], 2, "fired once, for key 1");
    });
}

#[test]
fn cpumasks_are_sets_of_the_possible_cpus() {
    // a = {1, 3}; r0 = weight(a) * 100 + first(a) * 10 + test(a, 3); releases it.
    let insns = vec![
        call_kfunc(1),
        mov_reg(6, 0),
        mov_imm(1, 1),
        mov_reg(2, 6),
        call_kfunc(2),
        mov_imm(1, 3),
        mov_reg(2, 6),
        call_kfunc(2),
        mov_imm(1, 9),
        mov_reg(2, 6),
        call_kfunc(2),
        mov_reg(1, 6),
        call_kfunc(3),
        mov_reg(7, 0),
        alu64_imm(alu::MUL, 7, 100),
        mov_reg(1, 6),
        call_kfunc(4),
        alu64_imm(alu::MUL, 0, 10),
        alu64_reg(alu::ADD, 7, 0),
        mov_imm(1, 3),
        mov_reg(2, 6),
        call_kfunc(5),
        alu64_reg(alu::ADD, 7, 0),
        mov_reg(1, 6),
        call_kfunc(6),
        mov_reg(0, 7),
        exit(),
    ];
    let kfuncs = [
        (1, "bpf_cpumask_create"),
        (2, "bpf_cpumask_set_cpu"),
        (3, "bpf_cpumask_weight"),
        (4, "bpf_cpumask_first"),
        (5, "bpf_cpumask_test_cpu"),
        (6, "bpf_cpumask_release"),
    ];
    both(&[("masks", insns, &[])], vec![], &kfuncs, |instance, host| {
        assert_eq!(instance.call(0, &[], host).unwrap(), 211);
        // Freed and allocated again: the same answer, and a second release would be a fault.
        assert_eq!(instance.call(0, &[], host).unwrap(), 211);
    });
}

#[test]
fn the_number_iterator_gives_each_number_once() {
    // for (i = 3; i < 7; i++) sum += i
    let insns = vec![
        mov_reg(1, 10),
        alu64_imm(alu::ADD, 1, -8),
        mov_imm(2, 3),
        mov_imm(3, 7),
        call_kfunc(1),
        mov_imm(6, 0),
        mov_reg(1, 10),
        alu64_imm(alu::ADD, 1, -8),
        call_kfunc(2),
        jump_imm(jmp::JEQ, 0, 0, 3),
        load_signed(size::W, 1, 0, 0),
        alu64_reg(alu::ADD, 6, 1),
        goto(-7),
        mov_reg(0, 6),
        exit(),
    ];
    let kfuncs = [(1, "bpf_iter_num_new"), (2, "bpf_iter_num_next")];
    both(&[("sum", insns, &[])], vec![], &kfuncs, |instance, host| {
        assert_eq!(instance.call(0, &[], host).unwrap(), 3 + 4 + 5 + 6);
    });
}

#[test]
fn printing_formats_as_the_kernel_does_and_is_kept() {
    let mut data = map(".rodata", kind::ARRAY, 4, 64, 1);
    data.initial = b"%d|%5u|%-4d|%04x|%s\n\0".to_vec();
    data.initial.resize(32, 0);
    data.initial.extend(b"vtime\0");
    data.initial.resize(64, 0);
    let mut insns = vec![
        store_imm(size::DW, 10, -40, -3),
        store_imm(size::DW, 10, -32, 42),
        store_imm(size::DW, 10, -24, 7),
        store_imm(size::DW, 10, -16, 255),
    ];
    insns.extend(wide(1, 2, 0, 32));
    insns.extend([store(size::DW, 10, 1, -8)]);
    insns.extend(wide(1, 2, 0, 0));
    insns.extend([
        mov_imm(2, 21),
        mov_reg(3, 10),
        alu64_imm(alu::ADD, 3, -40),
        mov_imm(4, 40),
        call(177),
        exit(),
    ]);
    both(&[("print", insns, &[])], vec![data], &[], |instance, host| {
        instance.call(0, &[], host).unwrap();
        let lines: Vec<&str> = instance.log().lines().collect();
        assert_eq!(lines, ["-3|   42|7   |00ff|vtime"]);
    });
}

#[test]
fn a_syscall_program_reads_and_writes_its_bytes() {
    let insns = vec![
        load(size::W, 0, 1, 0),
        alu64_imm(alu::ADD, 0, 1),
        store(size::W, 1, 0, 4),
        mov_imm(0, 0),
        exit(),
    ];
    both(&[("setup", insns, &[])], vec![], &[], |instance, host| {
        let mut bytes = [9, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(instance.call_with_bytes(0, &mut bytes, host).unwrap(), 0);
        assert_eq!(bytes, [9, 0, 0, 0, 10, 0, 0, 0]);
    });
}
