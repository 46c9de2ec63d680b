//! `cargo xtask vm`: builds the guest program and lets it boot a kernel and run a command there; `cargo xtask switches`:
//! one test of a virtual machine in full length.
//!
//! The harness is schedlab-host's `vm` module; it is started as a program rather than linked, because it needs
//! libbpf and xtask must build where libbpf's headers are still missing.

use crate::setup::{self, Level};
use crate::sys;
use anyhow::Result;
use std::process::{Command, ExitCode};

/// Arguments are those of `schedlab-guest vm`.
pub fn run(arguments: &[String]) -> Result<ExitCode> {
    if let Err(code) = setup::ensure(Level::Test) {
        return Ok(code);
    }
    let binary = sys::products()?.join("schedlab-guest");
    let status = Command::new(binary).arg("vm").args(arguments).status()?;
    Ok(ExitCode::from(sys::exit_code(status)))
}

/// The test of schedlab's tests/live.rs that has our schedulers replace each other, with this number of switches.
pub fn switches(arguments: &[String]) -> Result<ExitCode> {
    let count = match arguments {
        [] => 100,
        [count] if count.parse().is_ok_and(|count: u32| count > 0) => count.parse()?,
        _ => {
            eprintln!("usage: cargo xtask switches [N]");
            return Ok(ExitCode::from(2));
        }
    };
    if let Err(code) = setup::ensure(Level::Test) {
        return Ok(code);
    }
    let mut command = sys::cargo(&["test"]);
    command.args(sys::PRODUCTS).args(["--test", "live", "--", "--ignored", "--nocapture"]);
    let status = command.arg("our_schedulers").env("SCHEDLAB_SWITCHES", count.to_string()).status()?;
    Ok(ExitCode::from(sys::exit_code(status)))
}
