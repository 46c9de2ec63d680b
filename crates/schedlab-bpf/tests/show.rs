//! Values as text by their types: what Linux's tools/testing/selftests/bpf/progs/netif_receive_skb.c expects of
//! `bpf_snprintf_btf()`, and what follows from kernel/bpf/btf.c where it says nothing.

use schedlab_bpf::btf::show::{BTF_F_COMPACT, BTF_F_NONAME, BTF_F_ZERO, show};
use schedlab_bpf::btf::{Btf, BtfBuilder};

/// Where the values lie.
const AT: u64 = 1 << 20;

fn types() -> Btf {
    let mut builder = BtfBuilder::new();
    builder
        .declare(
            "typedef struct { int counter; } atomic_t;
             enum bpf_cmd { BPF_MAP_CREATE, BPF_MAP_LOOKUP_ELEM };
             enum wide { WIDE = 0x100000000ULL };
             struct btf_enum { __u32 name_off; __s32 val; };
             struct list_head { struct list_head *next; struct list_head *prev; };
             struct bpf_prog_info { __u32 type; char name[16]; };
             struct __sk_buff { __u32 len; __u32 cb[5]; };
             struct bpf_insn { __u8 code; __u8 dst_reg : 4 @ 1; __u8 src_reg : 4 @ 1; __s16 off; __s32 imm; };
             struct nested { struct btf_enum inner; union { u32 low; u64 whole; }; };
             struct many { struct btf_enum list[2]; u32 square[2][2]; struct list_head *heads[2]; };
             struct opaque;
             typedef void (*function_t)(int);
             struct odd { function_t call; bool yes; u64 low : 40 @ 16; u64 high : 24 @ 16; };",
        )
        .expect("well formed");
    builder.finish()
}

fn text(btf: &Btf, id: u32, flags: u64, value: &[u8]) -> String {
    let mut memory = value.to_vec();
    memory.resize(value.len() + 16, 0);
    let read = |at: u64, bytes: u64| memory.get((at - AT) as usize..(at - AT + bytes) as usize);
    let (text, error) = show(btf, id, AT, flags, &read);
    assert_eq!(error, None);
    String::from_utf8(text).expect("text")
}

/// One line of a value that consists of 32-bit words.
fn line(name: &str, flags: u64, words: &[u32]) -> String {
    let btf = types();
    let id = btf.named(name).next().unwrap_or_else(|| panic!("{name} is declared"));
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    text(&btf, id, flags | BTF_F_COMPACT, &bytes)
}

#[test]
fn single_values_show_even_if_zero() {
    assert_eq!(line("int", 0, &[1234]), "(int)1234");
    assert_eq!(line("int", BTF_F_NONAME, &[-4567_i32 as u32]), "-4567");
    assert_eq!(line("int", 0, &[0]), "(int)0");
    assert_eq!(line("char", 0, &[100]), "(char)100");
    assert_eq!(line("u64", 0, &[0, 1]), "(u64)4294967296");
    assert_eq!(line("u64", BTF_F_NONAME | BTF_F_ZERO, &[0, 0]), "0");
    assert_eq!(line("bpf_cmd", 0, &[0]), "(enum bpf_cmd)BPF_MAP_CREATE");
    assert_eq!(line("bpf_cmd", BTF_F_NONAME, &[2000]), "2000");
    assert_eq!(line("wide", 0, &[0, 1]), "(enum wide)WIDE");
    assert_eq!(line("__int128 unsigned", 0, &[5, 0, 1, 0]), "(__int128 unsigned)0x10000000000000005");
}

#[test]
fn structs_show_what_is_not_zero() {
    assert_eq!(line("atomic_t", 0, &[1]), "(atomic_t){.counter = (int)1,}");
    assert_eq!(line("atomic_t", 0, &[0]), "(atomic_t){}");
    assert_eq!(line("atomic_t", BTF_F_ZERO, &[0]), "(atomic_t){.counter = (int)0,}");
    let minus = -1_i32 as u32;
    assert_eq!(line("btf_enum", 0, &[3, minus]), "(struct btf_enum){.name_off = (__u32)3,.val = (__s32)-1,}");
    assert_eq!(line("btf_enum", BTF_F_NONAME, &[0, minus]), "{-1,}");
    assert_eq!(line("btf_enum", BTF_F_NONAME | BTF_F_ZERO, &[0, minus]), "{0,-1,}");
    assert_eq!(line("nested", 0, &[0, 0, 0, 0]), "(struct nested){}");
    assert_eq!(
        line("nested", 0, &[0, 7, 2, 0]),
        "(struct nested){.inner = (struct btf_enum){.val = (__s32)7,},(union){.low = (u32)2,.whole = (u64)2,},}"
    );
}

#[test]
fn pointers_bitfields_and_booleans() {
    let head = "(struct list_head){.next = (struct list_head *)0x0000000000000001,}";
    assert_eq!(line("list_head", 0, &[1, 0, 0, 0]), head);
    assert_eq!(line("list_head", 0, &[0, 0, 0, 0]), "(struct list_head){}");
    assert_eq!(
        line("bpf_insn", 0, &[0x0004_3201, 5]),
        "(struct bpf_insn){.code = (__u8)1,.dst_reg = (__u8)0x2,.src_reg = (__u8)0x3,.off = (__s16)4,.imm = (__s32)5,}"
    );
    assert_eq!(line("bpf_insn", BTF_F_NONAME, &[0x0004_3201, 5]), "{1,0x2,0x3,4,5,}");
    assert_eq!(line("odd", BTF_F_NONAME, &[9, 0, 1, 0, 6, 0x500]), "{0x0000000000000009,1,0x6,0x5,}");
}

#[test]
fn characters_show_as_text_up_to_the_first_zero() {
    let name = |text: &[u8; 4]| line("bpf_prog_info", 0, &[0, u32::from_le_bytes(*text), 0, 0, 0]);
    assert_eq!(name(b"foo\0"), "(struct bpf_prog_info){.name = (char[])['f','o','o',],}");
    assert_eq!(name(b"\0foo"), "(struct bpf_prog_info){}");
    assert_eq!(name(b"\x01\x02\x03\0"), "(struct bpf_prog_info){.name = (char[])[1,2,3,],}");
}

#[test]
fn elements_of_arrays_have_no_names() {
    let sk = "(struct __sk_buff){.cb = (__u32[])[1,2,3,4,5,],}";
    assert_eq!(line("__sk_buff", 0, &[0, 1, 2, 3, 4, 5]), sk);
    assert_eq!(line("__sk_buff", 0, &[0, 0, 0, 1, 0, 0]), "(struct __sk_buff){.cb = (__u32[])[1,],}");
    // A struct in an array has no brace to open it, an array of pointers no bracket; an array in an array shows its
    // first row for each row.
    assert_eq!(
        line("many", BTF_F_NONAME, &[1, 2, 0, 0, 3, 4, 5, 6, 7, 0, 8, 0]),
        "{[1,2,},],[[3,4,],[3,4,],],0x0000000000000007,0x0000000000000007,],}"
    );
}

#[test]
fn lines_are_indented_by_depth() {
    let btf = types();
    let id = btf.find_struct("nested").expect("declared");
    let value = [0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(
        text(&btf, id, 0, &value),
        "(struct nested){\n .inner = (struct btf_enum){\n  .val = (__s32)7,\n },\n}\n"
    );
}

#[test]
fn what_cannot_be_read_is_an_error() {
    let btf = types();
    let id = btf.find_struct("list_head").expect("declared");
    assert_eq!(show(&btf, id, 0, 0, &|_, _| None).1, Some(34));
    assert_eq!(show(&btf, id, AT, 0, &|_, _| None).1, Some(14));
}
