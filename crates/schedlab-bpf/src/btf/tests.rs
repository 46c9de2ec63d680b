//! Tests of reading, writing, looking up and declaring types.

use super::*;

fn sample() -> Btf {
    let mut b = BtfBuilder::new();
    b.declare(
        "typedef int pid_t;
         enum kind { A, B = 5, C, D = B | 8, NEG = -3 };
         enum flags { F_LOW = 1, F_HIGH = 1LLU << 60, F_TOP = 0x8000000000000001LLU };
         struct list_head { struct list_head *next; struct list_head *prev; };
         struct task_struct @ 4096 {
             pid_t pid @ 1256;
             unsigned int x : 3 @ 1260;
             unsigned int y : 5 @ 1260;
             union { int in_union; struct { u8 deep; u64 deeper; }; } @ 1264;
             const struct cpumask *cpus_ptr @ 1300;
             char comm[16] @ 1400;
         };
         struct ops { s32 (*select_cpu)(struct task_struct *p, s32 prev_cpu, u64 wake_flags); void (*exit)(void); char name[128]; };
         bool scx_bpf_dsq_insert(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags);
         extern struct list_head init_list;",
    )
    .expect("well formed");
    b.finish()
}

#[test]
fn declared_types_have_the_stated_and_the_natural_layout() {
    let btf = sample();
    let task = btf.find_struct("task_struct").unwrap();
    assert_eq!(btf.size_of(task), Some(4096));
    assert_eq!(btf.member(task, "pid").unwrap().byte_offset(), 1256);
    let y = btf.member(task, "y").unwrap();
    assert_eq!((y.bit_offset, y.bit_size), (1260 * 8 + 3, 5));
    assert_eq!(btf.member(task, "deeper").unwrap().byte_offset(), 1264 + 8);
    assert_eq!(btf.member(task, "absent"), None);
    let ops = btf.find_struct("ops").unwrap();
    assert_eq!(btf.size_of(ops), Some(144));
    let select = btf.member(ops, "select_cpu").unwrap();
    assert_eq!(
        btf.c_declaration(select.type_id, "select_cpu"),
        "s32 (*select_cpu)(struct task_struct *p, s32 prev_cpu, u64 wake_flags)"
    );
    let comm = btf.member(task, "comm").unwrap();
    assert_eq!(btf.c_declaration(comm.type_id, "comm"), "char comm[16]");
    assert_eq!(btf.c_type(btf.member(task, "cpus_ptr").unwrap().type_id), "const struct cpumask *");
    let exit = btf.member(ops, "exit").unwrap();
    assert_eq!(btf.c_type(exit.type_id), "void (*)(void)");
}

#[test]
fn enumerators_keep_width_and_sign() {
    let btf = sample();
    assert_eq!(btf.enumerator_value("D"), Some(13));
    assert_eq!(btf.enumerator_value("NEG"), Some(-3));
    assert_eq!(btf.enumerator_value("F_TOP"), Some(0x8000_0000_0000_0001u64 as i64));
    assert_eq!(btf.size_of(btf.find_enum("kind").unwrap()), Some(4));
    let flags = btf.find_enum("flags").unwrap();
    assert!(matches!(btf.kind(flags), Kind::Enum { size: 8, wide: true, signed: false, .. }));
}

#[test]
fn functions_and_variables_are_found_by_name() {
    let btf = sample();
    let insert = btf.find_func("scx_bpf_dsq_insert").unwrap();
    assert_eq!(btf.params(insert).len(), 4);
    assert!(btf.params(btf.find_var("init_list").unwrap()).is_empty());
    assert!(matches!(btf.kind(btf.find_var("init_list").unwrap()), Kind::Var { linkage: 1, .. }));
}

#[test]
fn what_is_written_reads_back_the_same() {
    let btf = sample();
    assert_eq!(Btf::parse(&btf.to_bytes()).unwrap(), btf);
}

#[test]
fn a_cut_or_flipped_section_is_an_error_and_no_panic() {
    let bytes = sample().to_bytes();
    for len in 0..bytes.len() {
        assert!(Btf::parse(&bytes[..len]).is_err(), "cut at {len}");
    }
    for at in 0..bytes.len() {
        for bit in [0x01, 0x80] {
            let mut flipped = bytes.clone();
            flipped[at] ^= bit;
            if let Ok(btf) = Btf::parse(&flipped) {
                for (id, _) in btf.types() {
                    let _ = (btf.c_type(id), btf.size_of(id), btf.align_of(id), btf.member(id, "pid"));
                }
            }
        }
    }
}

#[test]
fn essential_names_end_before_the_last_flavor() {
    assert_eq!(essential_name("task_struct"), "task_struct");
    assert_eq!(essential_name("task_struct___old"), "task_struct");
    assert_eq!(essential_name("scx_bpf_dsq_insert___v2___compat"), "scx_bpf_dsq_insert___v2");
    assert_eq!(essential_name("a____b"), "a____b");
    assert_eq!(essential_name("___x"), "___x");
}

#[test]
fn a_malformed_declaration_names_the_place() {
    let err = BtfBuilder::new().declare("struct a { int x, ; };").unwrap_err();
    assert!(err.to_string().contains("near") && err.problem.contains("`;`"), "{err}");
    assert!(BtfBuilder::new().declare("unknown_t f(void);").is_err());
}

#[test]
fn a_typedef_declared_again_is_one_type() {
    let mut b = BtfBuilder::new();
    b.declare("typedef unsigned long long __u64; typedef __u64 u64; typedef unsigned long word_t; typedef word_t size_t;")
        .expect("well formed");
    let btf = b.finish();
    for name in ["u64", "__u64", "size_t", "word_t"] {
        assert_eq!(btf.named(name).count(), 1, "{name}");
    }
    assert_eq!(
        btf.kind(btf.find_typedef("size_t").unwrap()),
        &Kind::Typedef(btf.find_typedef("word_t").unwrap())
    );
}
