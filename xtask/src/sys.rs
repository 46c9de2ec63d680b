//! Running other programs: where the repository is, which commands exist, exit codes, output passed through.
//!
//! Knows nothing of what is run. Next: `suite`, which strings the steps together.

use anyhow::{Context, Result};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The repository's root, absolute.
pub fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().expect("xtask lies one level below the root").to_path_buf()
}

/// A cargo command at the repository's root, with the cargo that runs us.
pub fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).args(arguments);
    command
}

/// The crates that have products. With others, or without what tests need, cargo chooses other features for what they
/// use, and builds all of it anew.
pub const PRODUCTS: [&str; 3] = ["--workspace", "--exclude", "xtask"];

/// Builds programs and `examples/` for development as `cargo test` builds them; gives the directory where they are.
pub fn products() -> Result<PathBuf> {
    let status = cargo(&["test", "--quiet"]).args(PRODUCTS).arg("--no-run").stdout(Stdio::null()).status()?;
    anyhow::ensure!(status.success(), "the workspace does not build; the compiler's message is above");
    Ok(target_dir()?.join("debug"))
}

/// Where cargo puts its products.
pub fn target_dir() -> Result<PathBuf> {
    let metadata = metadata()?;
    let path = metadata["target_directory"].as_str().context("cargo metadata names no target directory")?;
    Ok(PathBuf::from(path))
}

/// `cargo metadata` of the workspace, without its dependencies' own.
pub fn metadata() -> Result<serde_json::Value> {
    let output = cargo(&["metadata", "--format-version", "1", "--no-deps"])
        .stderr(Stdio::inherit())
        .output()
        .context("cargo metadata")?;
    anyhow::ensure!(output.status.success(), "cargo metadata failed");
    serde_json::from_slice(&output.stdout).context("cargo metadata is not JSON")
}

/// Whether `name` is an executable on PATH, or in the directories that only root's PATH names.
pub fn has_command(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let extra = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(extra).any(|directory| directory.join(name).is_file())
}

/// The exit code as a shell would give it: 128 + signal for a killed child.
pub fn exit_code(status: std::process::ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}

/// Runs `command`, passes its standard output through line by line, and gives each line to `see`.
pub fn run_watching(command: &mut Command, mut see: impl FnMut(&str)) -> Result<bool> {
    let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| format!("{command:?}"))?;
    let output = child.stdout.take().expect("standard output was piped");
    let mut console = std::io::stdout();
    for line in BufReader::new(output).lines() {
        let line = line?;
        see(&line);
        writeln!(console, "{line}")?;
    }
    Ok(child.wait()?.success())
}
