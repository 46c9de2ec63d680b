//! Packs files into an initramfs: a cpio archive in the `newc` form, as the kernel unpacks it.
//!
//! Programs come with the shared libraries they need, at the paths where the loader looks for them. The archive is
//! not compressed: unpacking costs an emulated CPU more than reading does. Format: the kernel's
//! Documentation/driver-api/early-userspace/buffer-format.rst.

use super::Error;
use crate::live::command;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What lies at one path of the archive.
enum Entry {
    Directory,
    /// Contents and permission bits.
    File(Vec<u8>, u32),
    /// Where it points.
    Link(String),
}

/// An archive under construction. Paths have no leading slash; parents come by themselves.
#[derive(Default)]
pub struct Initramfs {
    entries: BTreeMap<String, Entry>,
}

impl Initramfs {
    /// An empty archive.
    pub fn new() -> Self {
        Self::default()
    }

    /// A file with these contents.
    pub fn add_bytes(&mut self, path: &str, contents: Vec<u8>, mode: u32) {
        self.add(path, Entry::File(contents, mode & 0o7777));
    }

    /// A symbolic link.
    pub fn add_link(&mut self, path: &str, target: &str) {
        self.add(path, Entry::Link(target.to_string()));
    }

    /// An empty directory.
    pub fn add_directory(&mut self, path: &str) {
        self.add(path, Entry::Directory);
    }

    /// A file of the host, or all files below a directory, at `path`.
    pub fn add_path(&mut self, host: &Path, path: &str) -> Result<(), Error> {
        let pack = |source| Error::Pack { path: host.to_path_buf(), source };
        let metadata = std::fs::metadata(host).map_err(pack)?;
        let too_large = metadata.len() > u64::from(u32::MAX);
        if !(metadata.is_dir() || metadata.is_file()) || too_large {
            let why =
                if too_large { "it is larger than 4 GiB" } else { "it is neither a file nor a directory" };
            return Err(pack(io::Error::new(io::ErrorKind::InvalidInput, why)));
        }
        if !metadata.is_dir() {
            self.add_bytes(path, std::fs::read(host).map_err(pack)?, metadata.permissions().mode());
            return Ok(());
        }
        self.add_directory(path);
        for entry in std::fs::read_dir(host).map_err(pack)? {
            let entry = entry.map_err(pack)?;
            let below = format!("{path}/{}", entry.file_name().to_string_lossy());
            // A link stays one: it may be broken, or lead back.
            if entry.file_type().map_err(pack)?.is_symlink() {
                let target = std::fs::read_link(entry.path()).map_err(pack)?;
                self.add_link(&below, &target.to_string_lossy());
                continue;
            }
            self.add_path(&entry.path(), &below)?;
        }
        Ok(())
    }

    /// A program of the host at `path`, with the shared libraries it needs at their own paths.
    pub fn add_program(&mut self, host: &Path, path: &str) -> Result<(), Error> {
        self.add_path(host, path)?;
        for library in libraries(host)? {
            self.add_path(&library, &library.to_string_lossy())?;
        }
        Ok(())
    }

    /// The same without what the loader does not map: symbols and line tables are most of a program of ours.
    pub fn add_bare_program(&mut self, host: &Path, path: &str) -> Result<(), Error> {
        self.add_program(host, path)?;
        if let Some(Entry::File(bytes, _)) = self.entries.get_mut(path) {
            keep_mapped(bytes);
        }
        Ok(())
    }

    /// The archive's bytes.
    pub fn build(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (number, (path, entry)) in self.entries.iter().enumerate() {
            let (mode, contents) = match entry {
                Entry::Directory => (0o040_755, &[][..]),
                Entry::File(contents, mode) => (0o100_000 | mode, contents.as_slice()),
                Entry::Link(target) => (0o120_777, target.as_bytes()),
            };
            member(&mut out, number + 1, path, mode, contents);
        }
        member(&mut out, 0, "TRAILER!!!", 0, &[]);
        out
    }

    fn add(&mut self, path: &str, entry: Entry) {
        let path = path.trim_matches('/');
        let parents =
            Path::new(path).ancestors().skip(1).filter_map(Path::to_str).filter(|parent| !parent.is_empty());
        for parent in parents {
            self.entries.entry(parent.to_string()).or_insert(Entry::Directory);
        }
        self.entries.insert(path.to_string(), entry);
    }
}

/// Cuts a 64-bit little-endian ELF program behind its last segment, and forgets its sections; anything else stays as it is.
fn keep_mapped(bytes: &mut Vec<u8>) {
    const HEADER: usize = 64;
    const SEGMENT: usize = 56;
    let word = |bytes: &[u8], at: usize| {
        bytes.get(at..at + 8).map_or(0, |word| u64::from_le_bytes(word.try_into().expect("eight bytes")))
            as usize
    };
    let half = |bytes: &[u8], at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]) as usize;
    if bytes.len() < HEADER || !bytes.starts_with(b"\x7fELF\x02\x01") || half(bytes, 54) != SEGMENT {
        return;
    }
    let (table, count) = (word(bytes, 32), half(bytes, 56));
    let ends = (0..count).map(|index| {
        let segment = table + index * SEGMENT;
        word(bytes, segment + 8).saturating_add(word(bytes, segment + 32))
    });
    let end = ends.max().unwrap_or(0).max(table + count * SEGMENT);
    if end < bytes.len() && end > HEADER {
        bytes.truncate(end);
        // e_shoff, then e_shnum and e_shstrndx.
        bytes[40..48].fill(0);
        bytes[60..64].fill(0);
    }
}

/// One member: 110 bytes of header in hexadecimal text, the name, the contents, both padded to four bytes.
fn member(out: &mut Vec<u8>, inode: usize, path: &str, mode: u32, contents: &[u8]) {
    let links = if mode & 0o040_000 != 0 { 2 } else { 1 };
    let header = format!(
        "070701{inode:08X}{mode:08X}{owner:08X}{owner:08X}{links:08X}{time:08X}{size:08X}\
         {device:08X}{device:08X}{device:08X}{device:08X}{name:08X}{check:08X}",
        owner = 0,
        time = 0,
        size = contents.len(),
        device = 0,
        name = path.len() + 1,
        check = 0
    );
    out.write_all(header.as_bytes()).expect("writing to memory");
    out.write_all(path.as_bytes()).expect("writing to memory");
    out.push(0);
    out.resize(out.len().next_multiple_of(4), 0);
    out.write_all(contents).expect("writing to memory");
    out.resize(out.len().next_multiple_of(4), 0);
}

/// The shared libraries of a program, its loader included, as `ldd` finds them; none for a static one.
fn libraries(program: &Path) -> Result<Vec<PathBuf>, Error> {
    let output = Command::new("ldd").arg(program).env("LC_ALL", "C").output();
    let output = output.map_err(|source| Error::Pack { path: program.to_path_buf(), source })?;
    let text = String::from_utf8_lossy(&output.stdout);
    if let Some(line) = text.lines().find(|line| line.contains("=> not found")) {
        let source =
            io::Error::new(io::ErrorKind::NotFound, format!("shared library missing: {}", line.trim()));
        return Err(Error::Pack { path: program.to_path_buf(), source });
    }
    Ok(text.lines().filter_map(library_of).collect())
}

/// The path in one line of `ldd`: `libc.so.6 => /lib/libc.so.6 (0x...)` or `/lib64/ld-linux.so.2 (0x...)`.
fn library_of(line: &str) -> Option<PathBuf> {
    let path = line.split("=>").last()?.split_whitespace().next()?;
    path.starts_with('/').then(|| PathBuf::from(path))
}

/// The full path of `name` on PATH or where root's programs are; a name with a slash is taken as it is.
pub fn find_program(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return std::fs::canonicalize(name).ok();
    }
    let of_root = ["/usr/sbin", "/sbin"].map(|directory| Path::new(directory).join(name));
    command::places(name).into_iter().chain(of_root).find(|path| command::is_program(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_archive_is_what_cpio_reads() {
        let mut archive = Initramfs::new();
        archive.add_bytes("a/b/file", b"contents".to_vec(), 0o644);
        archive.add_link("a/link", "b/file");
        let bytes = archive.build();
        assert_eq!(bytes.len() % 4, 0);
        let text = String::from_utf8_lossy(&bytes);
        let names: Vec<&str> = ["a\0", "a/b\0", "a/b/file\0", "a/link\0", "TRAILER!!!\0"].to_vec();
        let mut at = 0;
        for name in names {
            at += text[at..].find(name).unwrap_or_else(|| panic!("{name:?} must follow in order"));
        }
        assert_eq!(&bytes[..6], b"070701");
        assert_eq!(text.matches("070701").count(), 5);
    }

    #[test]
    fn a_program_without_its_sections_still_runs() {
        let own = std::env::current_exe().expect("a test is a program");
        let mut archive = Initramfs::new();
        archive.add_bare_program(&own, "bin/own").expect("packs");
        let Some(Entry::File(bytes, _)) = archive.entries.get("bin/own") else { panic!("it is a file") };
        let whole = std::fs::metadata(&own).expect("is there").len();
        assert!((bytes.len() as u64) < whole * 3 / 4, "{} of {whole}", bytes.len());
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("own");
        std::fs::write(&path, bytes).expect("writes");
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .expect("is ours");
        let output = Command::new(&path).args(["--list"]).output().expect("runs");
        assert!(String::from_utf8_lossy(&output.stdout).contains("still_runs: test"));
        let mut other = b"no program".to_vec();
        keep_mapped(&mut other);
        assert_eq!(other, b"no program");
    }

    #[test]
    fn libraries_are_found_in_both_forms_of_line() {
        let found = |line| library_of(line).map(|path| path.to_string_lossy().into_owned());
        assert_eq!(found("\tlibc.so.6 => /lib/libc.so.6 (0x1)").as_deref(), Some("/lib/libc.so.6"));
        assert_eq!(
            found("\t/lib64/ld-linux-x86-64.so.2 (0x1)").as_deref(),
            Some("/lib64/ld-linux-x86-64.so.2")
        );
        assert_eq!(found("\tlinux-vdso.so.1 (0x1)"), None);
        assert_eq!(found("\tstatically linked"), None);
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = Initramfs::new().add_path(Path::new("/no/such/file"), "x").unwrap_err();
        assert!(error.to_string().contains("/no/such/file"), "{error}");
    }
}
