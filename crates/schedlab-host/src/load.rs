//! The loads of interbench that a disk and the memory make: one writes a file again and again, one reads a file, one
//! copies more memory than there is.
//!
//! What each does for ever, and whether this machine has room for it, as interbench 0.31 has them. Who starts and ends
//! them is `schedlab bench`; burning, waking and frames are the player's.

use std::convert::Infallible;
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const MIB: u64 = 1 << 20;

/// What is left free beside a load.
const RESERVE: u64 = 64 * MIB;

/// Files are of the memory's size, but no larger.
const FILE_MAX: u64 = 1024 * MIB;

/// Memory that is copied, at most: what fits into 32 bits.
const MEMORY_MAX: u64 = 2930 * MIB;

/// The shortest block of a file, in bytes.
const BLOCK_MIN: u64 = 1024;

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Writes a file, from its beginning again and again.
    Write,
    /// Reads a file of the disk.
    Read,
    /// Allocates, touches, copies and frees 110 % of the memory.
    Memory,
}

/// Why a load cannot be made here.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Memory would run out.
    #[error("there is no swap, and it needs 110 % of the memory. Add swap, or leave it out with load=")]
    NoSwap,
    /// Others use too much.
    #[error(
        "it needs {needs_mib} MiB of memory and swap, and {has_mib} MiB are free. Free some, or add swap"
    )]
    LittleMemory {
        /// What it needs with the reserve, in MiB.
        needs_mib: u64,
        /// What there is, in MiB.
        has_mib: u64,
    },
    /// The file does not fit.
    #[error("it needs {needs_mib} MiB in {}, and {has_mib} MiB are free there. Run it where there is room", directory.display())]
    LittleSpace {
        /// What it needs with the reserve, in MiB.
        needs_mib: u64,
        /// What there is, in MiB.
        has_mib: u64,
        /// Where.
        directory: PathBuf,
    },
    /// What is written there goes to no disk.
    #[error("{} lies in memory. Run it in a directory of a disk", .0.display())]
    NoDisk(PathBuf),
    /// What the kernel says of memory or disk cannot be read.
    #[error("{what}: {error}")]
    Unknown {
        /// What was asked.
        what: String,
        /// Why it failed.
        error: io::Error,
    },
}

impl Load {
    /// All of them.
    pub const ALL: [Load; 3] = [Load::Write, Load::Read, Load::Memory];

    /// What interbench calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Load::Write => "write",
            Load::Read => "read",
            Load::Memory => "memload",
        }
    }

    /// How many bytes it works on, with its file in `directory`.
    ///
    /// # Errors
    /// Where there is no room for it.
    pub fn size(self, directory: &Path) -> Result<u64, Error> {
        let memory = Memory::of_machine()?;
        match self {
            Load::Memory => memory.to_copy(),
            Load::Write | Load::Read => {
                let size = memory.total.min(FILE_MAX);
                room_for_file(directory, size)?;
                Ok(size)
            }
        }
    }

    /// Does it for ever, once `ready` was called.
    ///
    /// # Errors
    /// Of the file.
    pub fn run(self, directory: &Path, size: u64, ready: impl FnOnce()) -> io::Result<Infallible> {
        match self {
            Load::Write => write(directory, size, ready),
            Load::Read => read(directory, size, ready),
            Load::Memory => copy(size, ready),
        }
    }
}

/// Has the calling process killed when the one that started it ends.
pub fn end_with_parent() {
    // SAFETY: a plain system call that takes numbers.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
    }
}

/// What /proc/meminfo says, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Memory {
    total: u64,
    available: u64,
    swap_total: u64,
    swap_free: u64,
}

impl Memory {
    fn of_machine() -> Result<Memory, Error> {
        let path = "/proc/meminfo";
        let unknown = |error| Error::Unknown { what: path.to_owned(), error };
        let text = std::fs::read_to_string(path).map_err(unknown)?;
        Memory::parse(&text).ok_or_else(|| unknown(io::Error::other("no sizes in it")))
    }

    fn parse(text: &str) -> Option<Memory> {
        let of = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
        };
        Some(Memory {
            total: of("MemTotal")?,
            available: of("MemAvailable")?,
            swap_total: of("SwapTotal")?,
            swap_free: of("SwapFree")?,
        })
    }

    /// How much to copy: 110 % of the memory, and less where memory and swap are not more.
    fn to_copy(self) -> Result<u64, Error> {
        if self.swap_total == 0 {
            return Err(Error::NoSwap);
        }
        let most = (self.total + self.swap_total).saturating_sub(RESERVE);
        let size = (self.total / 10 * 11).min(most).min(MEMORY_MAX);
        let (needs, has) = (size + RESERVE, self.available + self.swap_free);
        if has < needs {
            return Err(Error::LittleMemory { needs_mib: needs / MIB, has_mib: has / MIB });
        }
        Ok(size)
    }
}

/// `statfs` of tmpfs and ramfs (include/uapi/linux/magic.h).
const IN_MEMORY: [libc::__fsword_t; 2] = [0x0102_1994, 0x8584_58f6];

fn room_for_file(directory: &Path, size: u64) -> Result<(), Error> {
    let unknown = |error| Error::Unknown { what: directory.display().to_string(), error };
    let path = CString::new(directory.as_os_str().as_bytes()).map_err(|error| unknown(error.into()))?;
    // SAFETY: all zeros are a valid value of this struct of numbers.
    let mut facts: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: a path that ends in 0, and a struct for the answer.
    if unsafe { libc::statfs(path.as_ptr(), &raw mut facts) } != 0 {
        return Err(unknown(io::Error::last_os_error()));
    }
    if IN_MEMORY.contains(&facts.f_type) {
        return Err(Error::NoDisk(directory.to_owned()));
    }
    let (needs, has) = (size + RESERVE, facts.f_bavail.saturating_mul(facts.f_bsize.unsigned_abs()));
    if has < needs {
        let directory = directory.to_owned();
        return Err(Error::LittleSpace { needs_mib: needs / MIB, has_mib: has / MIB, directory });
    }
    Ok(())
}

/// A file without a name, which is gone with the process however that ends, and its block.
fn nameless(directory: &Path) -> io::Result<(File, Vec<u8>)> {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).custom_flags(libc::O_TMPFILE).open(directory)?;
    let block = file.metadata()?.blksize().max(BLOCK_MIN);
    Ok((file, vec![0; block as usize]))
}

fn write_once(file: &mut File, block: &[u8], size: u64) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    (0..size / block.len() as u64).try_for_each(|_| file.write_all(block))
}

fn write(directory: &Path, size: u64, ready: impl FnOnce()) -> io::Result<Infallible> {
    let (mut file, block) = nameless(directory)?;
    ready();
    loop {
        write_once(&mut file, &block, size)?;
    }
}

/// The file is as large as the memory so that it does not stay in it; where it is smaller it is thrown out.
fn read(directory: &Path, size: u64, ready: impl FnOnce()) -> io::Result<Infallible> {
    let (mut file, mut block) = nameless(directory)?;
    write_once(&mut file, &block, size)?;
    file.sync_all()?;
    ready();
    loop {
        // SAFETY: a plain system call on a descriptor that is open.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        file.rewind()?;
        while file.read(&mut block)? > 0 {}
    }
}

fn copy(size: u64, ready: impl FnOnce()) -> io::Result<Infallible> {
    let count = (size / MIB).max(2) as usize;
    ready();
    loop {
        let mut blocks: Vec<Vec<u8>> = (0..count).map(|_| vec![1; MIB as usize]).collect();
        for to in 0..count {
            let from = (to + count / 2) % count;
            if let Ok([to, from]) = blocks.get_disjoint_mut([to, from]) {
                to.copy_from_slice(from);
            }
        }
        std::hint::black_box(&blocks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Memory =
        Memory { total: 128 * MIB, available: 100 * MIB, swap_total: 256 * MIB, swap_free: 256 * MIB };

    #[test]
    fn more_memory_is_copied_than_there_is_if_swap_permits() {
        assert_eq!(SMALL.to_copy().expect("it fits") / MIB, 140);
        let huge = Memory { total: 24_000 * MIB, available: 20_000 * MIB, ..SMALL };
        assert_eq!(huge.to_copy().expect("it fits"), MEMORY_MAX);
        let none = Memory { swap_total: 0, swap_free: 0, ..SMALL };
        assert!(none.to_copy().expect_err("no swap").to_string().contains("no swap"));
        let full = Memory { available: 20 * MIB, swap_free: 100 * MIB, ..SMALL };
        let said = full.to_copy().expect_err("too little is free").to_string();
        assert!(said.contains("204 MiB") && said.contains("120 MiB"), "{said}");
    }

    #[test]
    fn meminfo_is_read_in_bytes() {
        let text =
            "MemTotal:  131072 kB\nMemAvailable: 102400 kB\nSwapTotal: 262144 kB\nSwapFree: 262144 kB\n";
        assert_eq!(Memory::parse(text), Some(SMALL));
        assert_eq!(Memory::parse("MemTotal: 1 kB\n"), None);
    }

    #[test]
    fn a_file_in_memory_is_no_disk() {
        let directory = Path::new("/dev/shm");
        if directory.is_dir() {
            assert!(matches!(Load::Write.size(directory), Err(Error::NoDisk(_))));
        }
        assert!(matches!(Load::Read.size(Path::new("/no/such")), Err(Error::Unknown { .. })));
    }
}
