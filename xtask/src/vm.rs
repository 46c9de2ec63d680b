//! `cargo xtask vm`: builds the guest program and lets it boot a kernel and run a command there.
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
    if !sys::cargo(&["build", "--quiet", "-p", "schedlab-host", "--bin", "schedlab-guest"])
        .status()?
        .success()
    {
        anyhow::bail!("schedlab-guest does not build; the compiler's message is above");
    }
    let binary = sys::target_dir()?.join("debug/schedlab-guest");
    let status = Command::new(binary).arg("vm").args(arguments).status()?;
    Ok(ExitCode::from(sys::exit_code(status)))
}
