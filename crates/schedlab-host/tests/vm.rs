//! Tests that need a kernel of their own: they boot Linux 7.2 in QEMU. Behind the feature `vm-tests`.
//!
//! What they load is in tests/vm/ at the repository's root.

use schedlab_host::vm::{Kernel, KernelName, Machine};
use std::path::Path;

fn machine() -> Machine {
    let kernel = Kernel::get(KernelName::V7_2).expect("a kernel with sched_ext");
    Machine::new(kernel, Path::new(env!("CARGO_BIN_EXE_schedlab-guest")))
}

#[test]
fn output_and_exit_code_come_out() {
    let run = machine().run(&["sh", "-c", "echo out; echo err >&2; exit 7"]).expect("it boots");
    assert_eq!((run.code, run.text().as_str()), (7, "out\n"), "{}", String::from_utf8_lossy(&run.stderr));
    assert_eq!(run.stderr, b"err\n");
    assert!(run.kernel_log.contains("Linux version"), "the kernel's log comes out");
}
