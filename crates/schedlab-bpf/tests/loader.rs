//! Loads the objects of bpf/ against an invented kernel and checks what comes out, field by field.
//!
//! Not here: comparison with libbpf, instruction by instruction (crates/schedlab-objects/tests/libbpf.rs).

mod common;

use schedlab_bpf::image::{Insn, MapOrigin, ObjectImage, ProgramImage};
use schedlab_bpf::object::LoadError;

fn load(name: &str) -> ObjectImage {
    let bytes = schedlab_objects::test_object(name).expect("bpf/tests has it");
    ObjectImage::load(bytes, name, &common::kernel()).expect("it loads")
}

fn program<'i>(image: &'i ObjectImage, name: &str) -> &'i ProgramImage {
    image.programs.iter().find(|p| p.name == name).expect("the object has it")
}

/// Values stored into `out[INDEX]`: the last immediate that reached the stored register, if any did.
fn stored_constants(program: &ProgramImage) -> Vec<(i16, i64)> {
    let mut registers = [None; 16];
    let mut stored = Vec::new();
    for (i, insn) in program.insns.iter().enumerate() {
        let dst = usize::from(insn.regs & 15);
        match insn.code {
            0xb7 | 0xb4 => registers[dst] = Some(i64::from(insn.imm)),
            0x18 => {
                let high = program.insns[i + 1].imm;
                registers[dst] = Some(i64::from(high) << 32 | i64::from(insn.imm as u32));
            }
            0x7b => {
                if let Some(value) = registers[usize::from(insn.regs >> 4)] {
                    stored.push((insn.off / 8, value));
                }
            }
            0x61 | 0x69 | 0x71 | 0x79 => registers[dst] = None,
            _ => {}
        }
    }
    stored
}

#[test]
fn vtime_is_a_struct_ops_object_with_a_live_knob() {
    let bytes = schedlab_objects::scheduler("vtime").unwrap();
    let mut image = ObjectImage::load(bytes, "vtime", &common::kernel()).unwrap();
    assert_eq!(image.license, "GPL");
    let ops = &image.struct_ops[0];
    assert_eq!(ops.type_name, "sched_ext_ops");
    let names: Vec<&str> = ops.callbacks.iter().map(|(n, _)| n.as_str()).collect();
    assert!(["select_cpu", "enqueue", "dispatch", "init", "exit"].iter().all(|n| names.contains(n)));
    for (member, index) in &ops.callbacks {
        assert_eq!(image.programs[*index].name, format!("vtime_{member}"));
    }
    assert!(ops.scalars.iter().any(|(n, bytes)| n == "name" && bytes.starts_with(b"vtime\0")));
    assert!(image.kfuncs.iter().any(|(_, n)| n == "scx_bpf_dsq_insert___v2"));
    let knob = image.knobs().into_iter().find(|k| k.name == "slice_ns").unwrap();
    assert_eq!((knob.unit.as_str(), knob.value, knob.live), ("ns", 20_000_000, true));
    image.set_global("slice_ns", 5_000_000).unwrap();
    assert_eq!(image.global("slice_ns").unwrap(), 5_000_000);
    assert!(image.set_global("slice_ns", 1).unwrap_err().to_string().contains("100000 to"));
}

#[test]
fn maps_have_their_definitions_and_initial_bytes() {
    let image = load("maps");
    let map = |name: &str| image.maps.iter().find(|m| m.name == name).unwrap();
    let by_pair = map("by_pair");
    assert_eq!((by_pair.map_type, by_pair.key_size, by_pair.value_size), (1, 16, 8));
    assert_eq!((by_pair.max_entries, by_pair.map_flags), (100, 1));
    assert_eq!(image.btf.c_type(by_pair.key_type), "struct pair");
    assert_eq!(map("ring").max_entries, 8192);
    let outer = map("outer");
    let index = |name: &str| image.maps.iter().position(|m| m.name == name).unwrap() as u32;
    let mut inner = outer.inner.clone();
    inner.sort_unstable();
    assert_eq!(inner, [(1, index("inner_b")), (3, index("inner_a"))]);
    assert_eq!(outer.inner_definition.as_ref().unwrap().max_entries, 4);
    assert_eq!(map("of_task").map_type, 29);
    assert_eq!(map(".data.elsewhere").initial, 11u32.to_le_bytes());
    assert_eq!((map(".rodata").origin, map(".bss.grouped").origin), (MapOrigin::Rodata, MapOrigin::Bss));
}

#[test]
fn globals_are_read_and_written_by_path() {
    let mut image = load("maps");
    assert_eq!(image.global("settings[0].weight").unwrap(), 7);
    assert_eq!(image.global("settings[0].bias").unwrap(), -2);
    assert_eq!(image.global("settings[1].high").unwrap(), 19);
    assert_eq!(image.global("fixed").unwrap(), -5);
    assert_eq!(image.global("level").unwrap(), 1);
    image.set_global("settings[2].nested[1]", 1 << 40).unwrap();
    assert_eq!(image.global("settings[2].nested[1]").unwrap(), 1 << 40);
    image.set_global("settings[1].low", 5).unwrap();
    assert_eq!(
        (image.global("settings[1].low").unwrap(), image.global("settings[1].high").unwrap()),
        (5, 19)
    );
    image.set_global("settings[1].enabled", 1).unwrap();
    assert!(image.set_global("settings[1].enabled", 2).is_err());
    assert!(image.set_global("settings[1].low", 8).is_err());
    assert!(image.set_global("settings[3].low", 0).is_err());
    assert!(image.set_global("settings", 0).unwrap_err().to_string().contains("not a number"));
    assert!(image.set_global("counter_c", 0).unwrap_err().to_string().contains("counter_b"));
    let depth = image.knobs().into_iter().find(|k| k.name == "depth").unwrap();
    assert_eq!((depth.live, depth.max, depth.meaning.as_str()), (false, 8, "Levels that are searched."));
}

#[test]
fn subprograms_follow_their_first_caller() {
    let image = load("subprograms");
    let functions = |name: &str| -> Vec<String> {
        program(&image, name).functions.iter().map(|(_, n)| n.clone()).collect()
    };
    assert_eq!(functions("first"), ["first", "leaf", "middle", "global_leaf"]);
    assert_eq!(
        functions("second"),
        ["second", "each_static", "leaf", "each_global", "global_leaf", "middle"]
    );
    assert!(image.programs.iter().all(|p| p.name != "not_loaded"));
    for p in &image.programs {
        for (i, insn) in p.insns.iter().enumerate() {
            let is_call = insn.code == 0x85 && insn.regs >> 4 == 1;
            let is_address = insn.code == 0x18 && insn.regs >> 4 == 4;
            if is_call || is_address {
                let target = i as i64 + 1 + i64::from(insn.imm);
                assert!(p.functions.iter().any(|(start, _)| i64::from(*start) == target), "{} {i}", p.name);
            }
        }
    }
}

#[test]
fn fields_move_to_where_the_kernel_has_them() {
    let image = load("core_kinds");
    let fields = program(&image, "fields");
    let loads: Vec<(u8, i16)> =
        fields.insns.iter().filter(|i| i.code & 7 == 1).map(|i| (i.code, i.off)).collect();
    for (what, load) in [
        ("first, 4 bytes at 64", (0x61, 64)),
        ("narrow, now 8 bytes at 8", (0x79, 8)),
        ("inner.b at 704 + 32", (0x79, 736)),
        ("many[2].b at 128 + 2 * 64 + 32", (0x79, 288)),
        ("in_union through two anonymous members", (0x61, 800)),
        ("next", (0x79, 900)),
        ("many[1].text[3]", (0x71, 128 + 64 + 8 + 3)),
    ] {
        assert!(loads.contains(&load), "{what}: {loads:?}");
    }
    let constants = stored_constants(fields);
    for expected in [(6, 0), (7, 1), (8, 512), (9, 128), (13, 1), (14, 0)] {
        assert!(constants.contains(&expected), "{expected:?} in {constants:?}");
    }
}

#[test]
fn types_and_enumerators_answer_by_name() {
    let image = load("core_kinds");
    let constants = stored_constants(program(&image, "types"));
    let kernel = common::kernel();
    let local = i64::from(image.btf.find_struct("core_sample").unwrap());
    let target = i64::from(kernel.find_struct("core_sample").unwrap());
    for expected in [
        (20, 1),
        (21, 0),
        (22, 1024),
        (23, 0),
        (24, local),
        (25, target),
        (26, 0),
        (27, 1),
        (28, 0),
        (29, 1),
        (30, 0),
    ] {
        assert!(constants.contains(&expected), "{expected:?} in {constants:?}");
    }
    let constants = stored_constants(program(&image, "enumerators"));
    for expected in [(40, 1), (41, 0), (42, 77), (43, 0x2_0000_0002)] {
        assert!(constants.contains(&expected), "{expected:?} in {constants:?}");
    }
}

#[test]
fn an_unguarded_absent_field_is_poisoned_and_named() {
    let image = load("core_kinds");
    let unguarded = program(&image, "unguarded");
    let poison = &unguarded.poisons[0];
    assert_eq!(unguarded.insns[poison.insn as usize], Insn { code: 0x85, regs: 0, off: 0, imm: 195_896_080 });
    assert!(poison.reason.contains("struct core_sample.absent"), "{}", poison.reason);
}

#[test]
fn externs_resolve_by_name_without_suffix_and_by_prototype() {
    let mut image = load("externs");
    let names: Vec<&str> = image.kfuncs.iter().map(|(_, n)| n.as_str()).collect();
    assert_eq!(names, ["test_present", "test_versioned"]);
    assert_eq!(image.ksym_vars.len(), 1);
    let calls = program(&image, "calls");
    let missing: Vec<&str> = calls.poisons.iter().map(|p| p.reason.as_str()).collect();
    assert_eq!(missing.len(), 3, "{missing:?}");
    assert!(missing.iter().any(|r| r.contains("test_incompatible")));
    // Alignment falls, then size rises: the u64, the int, the u16, the bool before the text.
    let order: Vec<(&str, u32)> = image.kconfig.iter().map(|k| (k.name.as_str(), k.offset)).collect();
    assert_eq!(
        order,
        [
            ("CONFIG_TEST_WIDE", 0),
            ("LINUX_KERNEL_VERSION", 8),
            ("CONFIG_TEST_SHORT", 12),
            ("CONFIG_TEST_BOOL", 14),
            ("CONFIG_TEST_TEXT", 15),
        ]
    );
    assert!(image.set_kconfig("LINUX_KERNEL_VERSION", 0x70200));
    assert!(!image.set_kconfig("CONFIG_HZ", 1000));
    let kconfig = image.maps.iter().find(|m| m.origin == MapOrigin::Kconfig).unwrap();
    assert_eq!(kconfig.initial[8..12], 0x70200u32.to_le_bytes());
}

#[test]
fn what_the_kernel_lacks_is_named() {
    let vtime = schedlab_objects::scheduler("vtime").unwrap();
    let error =
        |words: &[&str]| ObjectImage::load(vtime, "vtime", &common::kernel_without(words)).unwrap_err();
    let missing = error(&["scx_bpf_create_dsq"]);
    assert!(matches!(missing, LoadError::Unresolved { .. }));
    assert!(missing.to_string().contains("`scx_bpf_create_dsq` is referenced but wasn't resolved"));
    let externs = schedlab_objects::test_object("externs").unwrap();
    let mut kernel = schedlab_bpf::btf::BtfBuilder::new();
    kernel
        .declare(
            "struct test_object { int x; }; extern struct test_object test_variable; u64 test_present(void);",
        )
        .unwrap();
    let error = ObjectImage::load(externs, "externs", &kernel.finish()).unwrap_err();
    assert!(error.to_string().contains("this kernel has `u64 test_present(void)`"), "{error}");
}

#[test]
fn a_set_member_that_the_kernel_lacks_is_an_error() {
    let vtime = schedlab_objects::scheduler("vtime").unwrap();
    let kernel = common::kernel_without(&["(*enable)(struct task_struct *)"]);
    let error = ObjectImage::load(vtime, "vtime", &kernel).unwrap_err();
    assert!(error.to_string().contains("no callback `enable`"), "{error}");
}

#[test]
fn an_object_that_misses_another_file_says_so() {
    let bytes = schedlab_objects::test_object("unlinked").unwrap();
    let error = ObjectImage::load(bytes, "unlinked", &common::kernel()).unwrap_err();
    assert_eq!(error, LoadError::NotLinked { name: "defined_elsewhere".to_string() });
}
