//! Writing results: standard output, files that are never half written, and their owner under sudo.

use crate::failure::Failure;
use anyhow::Context;
use std::io::{ErrorKind, Write};
use std::path::Path;

/// Prints text as the result of a command. A reader that went away (`| head`) is no error.
pub fn print_text(text: &str) -> Result<(), Failure> {
    print_bytes(text.as_bytes())
}

/// Prints bytes as the result of a command.
pub fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::BadInput(anyhow::Error::new(error).context("cannot write to standard output")))
        }
        _ => Ok(()),
    }
}

/// Writes a file whole or not at all; `-` is standard output. Under sudo the file belongs to the user who
/// called.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    if path.as_os_str() == "-" {
        return print_bytes(bytes);
    }
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Some(directory) = directory {
        make_directory(directory)?;
    }
    let partial = path.with_added_extension("part");
    let written = std::fs::write(&partial, bytes).and_then(|()| {
        give_to_caller(&partial);
        std::fs::rename(&partial, path)
    });
    written.with_context(|| format!("cannot write {}", path.display())).map_err(Failure::BadInput)
}

/// Writes JSON where asked; true if that was standard output, which then has no text.
pub fn write_json(path: Option<&Path>, value: &serde_json::Value) -> Result<bool, Failure> {
    let Some(path) = path else { return Ok(false) };
    write_file(path, format!("{value:#}\n").as_bytes())?;
    Ok(path.as_os_str() == "-")
}

/// Makes a directory; under sudo it belongs to the user who called.
pub fn make_directory(path: &Path) -> Result<(), Failure> {
    if path.is_dir() {
        return Ok(());
    }
    std::fs::create_dir_all(path)
        .with_context(|| format!("cannot make the directory {}", path.display()))
        .map_err(Failure::BadInput)?;
    give_to_caller(path);
    Ok(())
}

/// Best effort: a file that stays root's is still a whole result.
pub fn give_to_caller(path: &Path) {
    let id = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    if let (Some(uid), Some(gid)) = (id("SUDO_UID"), id("SUDO_GID")) {
        drop(std::os::unix::fs::chown(path, Some(uid), Some(gid)));
    }
}
