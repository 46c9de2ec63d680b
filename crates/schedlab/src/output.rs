//! Writing results: standard output, files that are never half written, and their owner under sudo.

use crate::failure::Failure;
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
            Err(unwritten(error, "cannot write to standard output"))
        }
        _ => Ok(()),
    }
}

/// Writes a file whole or not at all; `-` is standard output. Under sudo the file belongs to the user who
/// called. Devices and pipes are written to, and links followed: a file in the place of `/dev/null` would break the machine.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    if path.as_os_str() == "-" {
        return print_bytes(bytes);
    }
    let failed = |error| unwritten(error, &format!("cannot write {}", path.display()));
    if is_special(path) {
        return std::fs::OpenOptions::new()
            .write(true)
            .open(path)
            .and_then(|mut file| file.write_all(bytes))
            .map_err(failed);
    }
    let followed = std::fs::canonicalize(path);
    let path = followed.as_deref().unwrap_or(path);
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Some(directory) = directory {
        make_directory(directory)?;
    }
    // Not `.part`: that is what commands write while they measure, and what is kept if this fails.
    let partial = path.with_added_extension("new");
    let written = std::fs::write(&partial, bytes).and_then(|()| {
        give_to_caller(&partial);
        std::fs::rename(&partial, path)
    });
    written.map_err(|error| {
        // What is there of it is of no use, and takes space where there is none.
        drop(std::fs::remove_file(&partial));
        failed(error)
    })
}

/// Whether it is there and neither a file nor a directory, links followed.
pub fn is_special(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|there| !there.is_file() && !there.is_dir())
}

/// A full disk is no mistake of the command line.
pub fn unwritten(error: std::io::Error, what: &str) -> Failure {
    match is_full(&error) {
        true => {
            Failure::Machine(anyhow::anyhow!("{what}: {error}; free some space there, or write elsewhere"))
        }
        false => Failure::BadInput(anyhow::Error::new(error).context(what.to_owned())),
    }
}

/// Whether there is no more space where it was to be written.
pub fn is_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
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
        .map_err(|error| unwritten(error, &format!("cannot make the directory {}", path.display())))?;
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
