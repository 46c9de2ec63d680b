//! `cargo xtask demo`: builds the release binary and runs `schedlab demo`.
//!
//! The demonstration itself is a command of the product; this only makes sure that it can be built.

use crate::setup::{self, Level};
use crate::sys;
use anyhow::Result;
use std::process::{Command, ExitCode};

/// Arguments are handed to `schedlab demo`.
pub fn run(arguments: &[String]) -> Result<ExitCode> {
    if let Err(code) = setup::ensure(Level::Build) {
        return Ok(code);
    }
    if !sys::cargo(&["build", "--release", "-p", "schedlab"]).status()?.success() {
        anyhow::bail!("schedlab does not build; the compiler's message is above");
    }
    let binary = sys::target_dir()?.join("release/schedlab");
    let status = Command::new(binary).arg("demo").args(arguments).status()?;
    Ok(ExitCode::from(sys::exit_code(status)))
}
