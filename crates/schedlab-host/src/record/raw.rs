//! The recorder's shared memory: one ring of 32-byte records for each CPU, read without copying twice.
//!
//! Layout and numbers repeat bpf/include/recorder.bpf.h; a test holds them together. Not here: what the
//! records mean ([`super::translate`]).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};

/// What a record says.
pub(super) mod kind {
    pub const SWITCH: u8 = 1;
    pub const WAKING: u8 = 2;
    pub const WAKEUP_NEW: u8 = 3;
    pub const MIGRATE: u8 = 4;
    pub const FORK: u8 = 5;
    pub const EXEC: u8 = 6;
    pub const RENAME: u8 = 7;
    pub const EXIT: u8 = 8;
    pub const ATTRIBUTES: u8 = 9;
    pub const AFFINITY: u8 = 10;
    pub const IRQ_ENTER: u8 = 11;
    pub const IRQ_EXIT: u8 = 12;
    pub const SOFTIRQ_ENTER: u8 = 13;
    pub const SOFTIRQ_EXIT: u8 = 14;
    pub const TIMER: u8 = 15;
    pub const OP_ENTER: u8 = 16;
    pub const OP_EXIT: u8 = 17;
    pub const SENDS: u8 = 18;
    pub const PATTERN: u8 = 19;
    pub const RUN: u8 = 20;
    pub const PRIORITY_LENT: u8 = 21;
    pub const PEERS: u8 = 22;
    pub const REST: u8 = 23;
    pub const VRUNTIME: u8 = 24;
    pub const CACHE_USE: u8 = 25;
}

/// What [`kind::VRUNTIME`] has as its `op` for a sched_ext scheduler's clock.
pub(super) const CLOCK_EXT: u8 = 2;
/// Flag of a run: each of its sends was seen to follow the pattern.
pub(super) const RUN_SEEN: u8 = 1;

/// `struct record`, with the CPU whose ring it came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RawRecord {
    pub time: u64,
    pub a: u64,
    pub b: u64,
    pub pid: u32,
    pub cpu: u32,
    pub kind: u8,
    pub op: u8,
    pub flags: u8,
}

impl RawRecord {
    /// The name that it tells.
    pub(super) fn text(&self) -> String {
        let mut text = [0; 16];
        text[..8].copy_from_slice(&self.a.to_ne_bytes());
        text[8..].copy_from_slice(&self.b.to_ne_bytes());
        let length = text.iter().position(|&byte| byte == 0).unwrap_or(16);
        String::from_utf8_lossy(&text[..length]).into_owned()
    }
}

#[repr(C)]
struct Record {
    time: u64,
    pid: u32,
    kind: u8,
    op: u8,
    flags: u8,
    lap: AtomicU8,
    a: u64,
    b: u64,
}

#[repr(C)]
struct Ring {
    head: AtomicU64,
    dropped: AtomicU64,
    returns: AtomicU64,
    sockets: AtomicU64,
    depths: u64,
    writes: AtomicU64,
    expected: AtomicU64,
    reads_unsure: AtomicU64,
    tail: AtomicU64,
    pad: [u64; 7],
    own: [u64; 16],
}

pub(super) const RING_BYTES: u32 = size_of::<Ring>() as u32;
pub(super) const RECORD_BYTES: u32 = size_of::<Record>() as u32;

/// Memory shared with a map, unmapped when dropped.
struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

impl Mapping {
    fn new(map: BorrowedFd<'_>, length: usize) -> io::Result<Mapping> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping at an address the kernel chooses; nothing else refers to it.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), length, access, libc::MAP_SHARED, map.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast::<u8>()).expect("the kernel maps nothing at zero");
        Ok(Mapping { start, length })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` with this length and is not used after the drop.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// Every CPU's ring.
pub(super) struct Rings {
    rings: Mapping,
    records: Mapping,
    cpus: usize,
    ring_records: usize,
    /// Time of the latest record read, for each CPU.
    latest: Vec<u64>,
    /// The share of a ring that was full when it was read, in percent: at the last reading, and ever.
    fill: u32,
    fill_max: u32,
}

/// Counters of all rings, summed: operations of the target.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    /// All that were told or found.
    pub operations: u64,
    /// Of which read from or wrote to sockets.
    pub sockets: u64,
    /// Of which sent or wrote.
    pub writes: u64,
    /// Of those, sends that followed a pattern.
    pub expected: u64,
    /// Reads that the kernel's accounting cannot tell, or not of which channel.
    pub reads_unsure: u64,
}

impl Counters {
    /// What came since an earlier count.
    pub(super) fn since(self, earlier: Counters) -> Counters {
        Counters {
            operations: self.operations - earlier.operations,
            sockets: self.sockets - earlier.sockets,
            writes: self.writes - earlier.writes,
            expected: self.expected - earlier.expected,
            reads_unsure: self.reads_unsure - earlier.reads_unsure,
        }
    }
}

impl Rings {
    pub(super) fn new(
        rings: BorrowedFd<'_>,
        records: BorrowedFd<'_>,
        cpus: usize,
        ring_records: usize,
    ) -> io::Result<Rings> {
        let rings = Mapping::new(rings, cpus * RING_BYTES as usize)?;
        let records = Mapping::new(records, cpus * ring_records * RECORD_BYTES as usize)?;
        Ok(Rings { rings, records, cpus, ring_records, latest: vec![0; cpus], fill: 0, fill_max: 0 })
    }

    fn ring(&self, cpu: usize) -> &Ring {
        assert!(cpu < self.cpus, "a ring for each CPU");
        // SAFETY: within the mapping, aligned as the map's values are; shared fields are atomics.
        unsafe { self.rings.start.cast::<Ring>().add(cpu).as_ref() }
    }

    fn record(&self, cpu: usize, at: u64) -> NonNull<Record> {
        let slot = cpu * self.ring_records + (at as usize & (self.ring_records - 1));
        // SAFETY: `cpu` was checked by `ring`, the position is masked: within the mapping.
        unsafe { self.records.start.cast::<Record>().add(slot) }
    }

    /// Appends every whole record to `out` and frees its place. Returns how far the stream is complete if a
    /// record in the making held it up: later records of that CPU come with the next call.
    pub(super) fn drain(&mut self, out: &mut Vec<RawRecord>) -> Option<u64> {
        let mut complete_until: Option<u64> = None;
        self.fill = 0;
        for cpu in 0..self.cpus {
            let ring = self.ring(cpu);
            let (head, mut at) = (ring.head.load(Ordering::Acquire), ring.tail.load(Ordering::Relaxed));
            let mut latest = self.latest[cpu];
            self.fill = self.fill.max(((head - at) * 100 / self.ring_records as u64) as u32);
            while at < head {
                match self.take(cpu, at) {
                    Some(mut record) => {
                        // The kernel's clock may step back by some ns; the ring's order is the truth.
                        latest = latest.max(record.time);
                        record.time = latest;
                        out.push(record);
                    }
                    None => break,
                }
                at += 1;
            }
            if at < head {
                complete_until = Some(complete_until.map_or(latest, |until: u64| until.min(latest)));
            }
            self.ring(cpu).tail.store(at, Ordering::Release);
            self.latest[cpu] = latest;
        }
        self.fill_max = self.fill_max.max(self.fill);
        complete_until
    }

    fn take(&self, cpu: usize, at: u64) -> Option<RawRecord> {
        let lap = (at >> self.ring_records.trailing_zeros()).wrapping_add(1) as u8;
        let record = self.record(cpu, at);
        // SAFETY: the pointer is valid; the other fields are stable once `lap` has its value, until the tail passes.
        unsafe {
            if (*record.as_ptr()).lap.load(Ordering::Acquire) != lap {
                return None;
            }
            fence(Ordering::Acquire);
            let Record { time, pid, kind, op, flags, a, b, .. } = *record.as_ptr();
            Some(RawRecord { time, a, b, pid, cpu: cpu as u32, kind, op, flags })
        }
    }

    /// How full the fullest ring was when it was read last, and ever, in percent.
    pub(super) fn fill(&self) -> (u32, u32) {
        (self.fill, self.fill_max)
    }

    /// Bytes of each CPU's ring.
    pub(super) fn ring_bytes(&self) -> u64 {
        self.ring_records as u64 * u64::from(RECORD_BYTES)
    }

    /// Records lost, for each CPU.
    pub(super) fn dropped(&self) -> Vec<u64> {
        (0..self.cpus).map(|cpu| self.ring(cpu).dropped.load(Ordering::Relaxed)).collect()
    }

    /// Records reserved and not read, for each CPU: none unless one never became whole.
    pub(super) fn unread(&self) -> Vec<u64> {
        (0..self.cpus)
            .map(|cpu| {
                let ring = self.ring(cpu);
                ring.head.load(Ordering::Acquire) - ring.tail.load(Ordering::Relaxed)
            })
            .collect()
    }

    pub(super) fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        for ring in (0..self.cpus).map(|cpu| self.ring(cpu)) {
            sum.operations += ring.returns.load(Ordering::Relaxed);
            sum.sockets += ring.sockets.load(Ordering::Relaxed);
            sum.writes += ring.writes.load(Ordering::Relaxed);
            sum.expected += ring.expected.load(Ordering::Relaxed);
            sum.reads_unsure += ring.reads_unsure.load(Ordering::Relaxed);
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_header() {
        assert_eq!((RECORD_BYTES, RING_BYTES), (32, 256));
        assert_eq!(std::mem::offset_of!(Ring, tail), 64);
        assert_eq!(std::mem::offset_of!(Record, lap), 15);
        let header = include_str!("../../../../bpf/include/recorder.bpf.h");
        let listed = header.split("enum record_kind {").nth(1).expect("the kinds");
        let names: Vec<&str> = listed
            .split('}')
            .next()
            .expect("their end")
            .lines()
            .filter_map(|line| line.trim().strip_prefix("RECORD_")?.split([',', ' ']).next())
            .collect();
        assert_eq!(names.len(), usize::from(kind::CACHE_USE));
        assert_eq!(names[usize::from(kind::AFFINITY) - 1], "AFFINITY");
        assert_eq!(names[usize::from(kind::OP_EXIT) - 1], "OP_EXIT");
    }
}
