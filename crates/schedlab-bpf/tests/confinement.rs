//! Programs with wild pointers stay inside their region, in both engines.

#[path = "common/random.rs"]
#[allow(dead_code)]
mod random;

use random::Random;
use schedlab_bpf::asm::*;
use schedlab_bpf::exec::{Compiled, FaultKind, Host, KfuncTable, Options};
use schedlab_bpf::memory::ZERO_BYTES;

struct Nobody;

impl Host for Nobody {}

/// A region filled with a pattern by the host; programs that store everywhere they can.
#[test]
fn wild_stores_reach_the_region_only_and_never_the_zero_pages() {
    let mut random = Random(3);
    let usable = (1 << 19) - 2 * ZERO_BYTES;
    // r1 = wild in every second program, somewhere usable in the others; *(u64 *)(r1 + off) = -1
    let programs: Vec<_> = (0..64)
        .map(|index| {
            let somewhere = ZERO_BYTES + random.next() % usable;
            let address = if index % 2 == 0 { random.next() } else { somewhere };
            let mut insns = mov64(1, address).to_vec();
            insns.extend([store_imm(size::DW, 1, random.next() as i16, -1), mov_imm(0, 0), exit()]);
            program(&format!("p{index}"), insns, &[])
        })
        .collect();
    let options = Options { memory_bytes_log2: 19, ..Options::default() };
    let compiled = Compiled::new(object(programs, vec![], &[]), &KfuncTable::new(), options).unwrap();
    let mut neighbours: Vec<_> = (0..3).map(|seed| compiled.instance(seed)).collect();
    let mut stored = 0;
    for interpreted in [false, true] {
        neighbours[1].set_interpreted(interpreted);
        for program in 0..64 {
            match neighbours[1].call(program, &[], &mut Nobody) {
                Ok(_) => stored += 1,
                Err(fault) => assert!(matches!(fault.kind, FaultKind::Store { .. })),
            }
        }
    }
    assert_eq!(stored, 64, "what lies outside is refused, in both engines");
    for (index, instance) in neighbours.iter_mut().enumerate() {
        let memory = instance.memory();
        let size = memory.size();
        let all = memory.bytes(0, size).expect("the whole region");
        let set = all.iter().filter(|byte| **byte == 0xff).count();
        assert_eq!(set > 0, index == 1, "only the instance that ran has changed");
        let half = (ZERO_BYTES / 2) as usize;
        assert!(all[..half].iter().chain(&all[all.len() - half..]).all(|byte| *byte == 0));
        // What a load through NULL can reach below the region is still zero.
        assert_eq!(memory.load(0, i16::MIN, 8), 0);
    }
}

/// Every load of every size at the extreme offsets works and gives zero where nothing was ever stored.
#[test]
fn wild_loads_are_defined_everywhere() {
    for address in [0, 1, u64::MAX, 1 << 19, (1 << 19) - 1, 0xffff_8880_0000_0000] {
        for offset in [i16::MIN, -1, 0, 1, i16::MAX] {
            let mut insns = mov64(1, address).to_vec();
            insns.extend([
                load(size::DW, 0, 1, offset),
                load(size::W, 2, 1, offset),
                alu64_reg(alu::OR, 0, 2),
                exit(),
            ]);
            let image = object(vec![program("main", insns, &[])], vec![], &[]);
            let options = Options { memory_bytes_log2: 19, ..Options::default() };
            let compiled = Compiled::new(image, &KfuncTable::new(), options).unwrap();
            for interpreted in [false, true] {
                let mut instance = compiled.instance(1);
                instance.set_interpreted(interpreted);
                assert_eq!(instance.call(0, &[], &mut Nobody).unwrap(), 0, "{address:#x} {offset}");
            }
        }
    }
}

#[test]
fn a_null_store_names_program_instruction_and_line() {
    let mut broken =
        program("enqueue", vec![mov_imm(1, 0), mov_imm(0, 0), store(size::DW, 1, 0, 24), exit()], &[]);
    broken.lines.push(schedlab_bpf::image::SourceLine {
        insn: 2,
        file: "vtime.bpf.c".to_owned(),
        text: "\ttctx->vtime = 0;".to_owned(),
        line: 41,
        column: 2,
    });
    let compiled = Compiled::new(object(vec![broken], vec![], &[]), &KfuncTable::new(), Options::default());
    let compiled = compiled.unwrap();
    for interpreted in [false, true] {
        let mut instance = compiled.instance(1);
        instance.set_interpreted(interpreted);
        let fault = instance.call(0, &[], &mut Nobody).unwrap_err();
        assert_eq!(
            fault.to_string(),
            "program enqueue, instruction 2 (vtime.bpf.c:41: tctx->vtime = 0;): \
             stores through the invalid address 0x0"
        );
        // The instance goes on.
        assert!(instance.call(0, &[], &mut Nobody).is_err());
    }
}
