//! The simulated kernel of today has everything that bpf/include declares: every function with its
//! prototype, every enumerator, every field. The real 7.2 is held against the same object
//! (crates/schedlab-objects/tests/libbpf.rs).

use schedlab_bpf::image::ObjectImage;
use schedlab_model::machine::KernelVersion;
use schedlab_sim::ext::kernel_btf;

#[test]
fn the_simulated_7_2_has_all_that_our_headers_declare() {
    let bytes = schedlab_objects::test_object("headers").unwrap();
    let image = ObjectImage::load(bytes, "headers", &kernel_btf(KernelVersion::V7_2)).unwrap();
    let mut missing = Vec::new();
    let mut checked = 0;
    for program in &image.programs {
        for (i, insn) in program.insns.iter().enumerate() {
            // An unresolved function is a plain load of 0; an existence test is a move of 0 or 1.
            let is_function = insn.code == 0x18 && insn.regs >> 4 != 2;
            let is_existence = matches!(insn.code, 0xb7 | 0xb4) && insn.regs & 15 != 0;
            checked += usize::from(is_function || is_existence);
            if (is_function || is_existence) && insn.imm == 0 {
                let line = program.lines.iter().rev().find(|l| l.insn as usize <= i);
                missing.push(line.map_or("", |l| l.text.trim()));
            }
        }
    }
    assert!(missing.is_empty(), "absent from the simulated kernel: {missing:#?}");
    assert!(checked > 120, "only {checked} declarations were checked");
}
