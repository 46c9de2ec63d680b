//! The processor's counters of its caches, one pair for each CPU, opened for the recorder's kernel half to read at switches.
//!
//! Not every machine has them: virtual machines mostly have none. Then a recording is made without, and says why. What the
//! numbers mean: docs/character.md.

use schedlab_model::recording::CacheCounting;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// Where the numbers come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheSource {
    /// The processor: accesses to the cache that it counts, usually the last level, and those that found nothing.
    Processor,
    /// Page faults in their place, all and those without input or output, as the kernel counts them everywhere. For tests
    /// of what becomes of the numbers.
    PageFaults,
}

/// What `PERF_TYPE_` and `PERF_COUNT_` constants of linux/perf_event.h name.
#[derive(Clone, Copy, Debug)]
struct Counter {
    kind: u32,
    config: u64,
}

impl CacheSource {
    /// References and misses.
    fn counters(self) -> [Counter; 2] {
        const HARDWARE: u32 = 0;
        const SOFTWARE: u32 = 1;
        match self {
            CacheSource::Processor => [2, 3].map(|config| Counter { kind: HARDWARE, config }),
            CacheSource::PageFaults => [2, 5].map(|config| Counter { kind: SOFTWARE, config }),
        }
    }
}

/// Counters of every CPU that is online, by its number. They count until they are dropped.
pub(super) struct CacheCounters {
    pub(super) references: Vec<(u32, OwnedFd)>,
    pub(super) misses: Vec<(u32, OwnedFd)>,
}

impl CacheCounters {
    /// Opens them.
    pub(super) fn open(source: CacheSource) -> io::Result<CacheCounters> {
        let [references, misses] = source.counters().map(on_every_cpu);
        Ok(CacheCounters { references: references?, misses: misses? })
    }
}

/// What a recording says of them, or of the attempt.
pub(super) fn cache_counting(opened: &io::Result<CacheCounters>) -> CacheCounting {
    match opened {
        Ok(_) => CacheCounting::Counted { line_bytes: line_bytes() },
        Err(error) => CacheCounting::Impossible { reason: reason(error) },
    }
}

fn reason(error: &io::Error) -> String {
    let why = match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP) => {
            "the processor, or the virtual machine, shows no counters of caches"
        }
        Some(libc::EACCES | libc::EPERM) => "the kernel gives counters only to root or with CAP_PERFMON",
        Some(libc::EBUSY) => "all counters of the processor are in use",
        _ => "the counters cannot be opened",
    };
    format!("{why} (perf_event_open: {error})")
}

fn on_every_cpu(counter: Counter) -> io::Result<Vec<(u32, OwnedFd)>> {
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online")?;
    let online = online.trim().parse::<schedlab_model::CpuSet>();
    let online = online.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
    online.iter().map(|cpu| Ok((cpu.0, open(counter, cpu.0)?))).collect()
}

/// The head of `struct perf_event_attr` as of its first version, which every kernel knows; pinned counters never take turns.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    breakpoint_address: u64,
}

/// The bit of `flags` that keeps a counter on its CPU.
const PINNED: u64 = 1 << 2;

fn open(counter: Counter, cpu: u32) -> io::Result<OwnedFd> {
    const EVERY_TASK: libc::pid_t = -1;
    const NO_GROUP: libc::c_int = -1;
    /// `PERF_FLAG_FD_CLOEXEC`.
    const CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;
    let Counter { kind, config } = counter;
    let size = size_of::<Attributes>() as u32;
    let attributes = Attributes { kind, size, config, flags: PINNED, ..Attributes::default() };
    // SAFETY: the kernel reads `size` bytes of `attributes`, which lives until it has returned.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            EVERY_TASK,
            cpu as libc::c_int,
            NO_GROUP,
            CLOSE_ON_EXEC,
        )
    };
    match i32::try_from(fd) {
        // SAFETY: a new file descriptor, which nobody else has.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Bytes of a line, as the kernel shows them; where it shows none, what x86 and nearly every arm64 have.
fn line_bytes() -> u32 {
    let path = "/sys/devices/system/cpu/cpu0/cache/index0/coherency_line_size";
    std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_have_the_size_of_their_first_version() {
        assert_eq!(size_of::<Attributes>(), 64);
    }

    #[test]
    fn why_there_are_no_counters_is_said() {
        for (code, says) in [
            (libc::ENOENT, "shows no counters of caches"),
            (libc::EACCES, "root or with CAP_PERFMON"),
            (libc::EBUSY, "are in use"),
            (libc::EMFILE, "cannot be opened"),
        ] {
            let error = io::Error::from_raw_os_error(code);
            let CacheCounting::Impossible { reason } = cache_counting(&Err(error)) else { panic!("{code}") };
            assert!(reason.contains(says) && reason.contains("perf_event_open"), "{reason}");
        }
    }
}
