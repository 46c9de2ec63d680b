//! The program inside our virtual machines, and on the host the one that boots them.
//!
//! Only a door: everything is in the library's `guest` and `vm` modules.

use std::process::ExitCode;

fn main() -> ExitCode {
    schedlab_host::guest::main_if_init();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    schedlab_host::guest::run::main(&arguments)
}
