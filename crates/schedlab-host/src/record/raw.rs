//! The recorder's shared memory: one ring of 32-byte records for each CPU, read in the order of time.
//!
//! Layout and numbers repeat bpf/include/recorder.bpf.h; a test holds them together. Not here: what the
//! records mean ([`super::translate`]).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

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
    ring_records: usize,
    cursors: Vec<Cursor>,
    /// So many records of a CPU may wait; the rest of its ring is the reserve for a reader that is held up.
    may_wait: usize,
    /// What came between the last two looks, and what was in a reserve at most, in percent of the reserve.
    fill: u32,
    fill_max: u32,
}

/// How far one CPU's ring is read.
#[derive(Clone, Copy, Debug, Default)]
struct Cursor {
    /// Position of the next record.
    at: u64,
    /// Where those ended at the last look, and where those end that this reading takes.
    seen: u64,
    head: u64,
    /// Time of the latest record.
    latest: u64,
    /// The next one will never be whole.
    given_up: bool,
}

/// How far a reading came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reading {
    /// All records before this time have been told.
    pub until: u64,
    /// A record in the making stopped it.
    pub held_up: bool,
}

/// Room is given back to the kernel half after so many records of a CPU.
const GIVE_BACK: u64 = 1 << 10;
/// More records are not left to wait, of all CPUs: a reading of them takes as long as a CPU's reserve may need to fill.
const READ_MAX: u64 = 1 << 20;

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
    /// What came since an earlier count. Additions are plain: a count may step back.
    pub(super) fn since(self, earlier: Counters) -> Counters {
        Counters {
            operations: self.operations.saturating_sub(earlier.operations),
            sockets: self.sockets.saturating_sub(earlier.sockets),
            writes: self.writes.saturating_sub(earlier.writes),
            expected: self.expected.saturating_sub(earlier.expected),
            reads_unsure: self.reads_unsure.saturating_sub(earlier.reads_unsure),
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
        Ok(Rings {
            rings,
            records,
            ring_records,
            cursors: vec![Cursor::default(); cpus],
            may_wait: 0,
            fill: 0,
            fill_max: 0,
        })
    }

    /// Lets so many records of a CPU wait until they are read.
    pub(super) fn deferring(self, may_wait: usize) -> Rings {
        Rings { may_wait, ..self }
    }

    fn ring(&self, cpu: usize) -> &Ring {
        assert!(cpu < self.cursors.len(), "a ring for each CPU");
        // SAFETY: within the mapping, aligned as the map's values are; shared fields are atomics.
        unsafe { self.rings.start.cast::<Ring>().add(cpu).as_ref() }
    }

    fn all(&self) -> impl Iterator<Item = &Ring> {
        (0..self.cursors.len()).map(|cpu| self.ring(cpu))
    }

    /// Where a CPU's next record is, if it is whole.
    fn front(&self, cpu: usize) -> Option<NonNull<Record>> {
        let at = self.cursors[cpu].at;
        let lap = (at >> self.ring_records.trailing_zeros()).wrapping_add(1) as u8;
        let slot = cpu * self.ring_records + (at as usize & (self.ring_records - 1));
        // SAFETY: there is a ring for each cursor, and the position is masked: within the mapping.
        let record = unsafe { self.records.start.cast::<Record>().add(slot) };
        // SAFETY: the pointer is valid, and `lap` is an atomic.
        let whole = unsafe { (*record.as_ptr()).lap.load(Ordering::Acquire) } == lap;
        whole.then_some(record)
    }

    /// The time of a CPU's next record: the kernel's clock may step back by some ns, and the ring's order is the truth.
    fn time(&self, cpu: usize, record: NonNull<Record>) -> u64 {
        // SAFETY: a whole record does not change until the tail passes it.
        unsafe { (*record.as_ptr()).time }.max(self.cursors[cpu].latest)
    }

    /// Tells every whole record before a time, in the order of time, and frees its place. A record in the making ends
    /// it: those that came behind it follow with the next reading.
    pub(super) fn read(
        &mut self,
        until: u64,
        mut tell: impl FnMut(&RawRecord) -> io::Result<()>,
    ) -> io::Result<Reading> {
        let mut reading = Reading { until, held_up: false };
        let mut next = self.begin(&mut reading);
        while let Some(Reverse((time, cpu))) = next.pop().filter(|Reverse((time, _))| *time < reading.until) {
            // The CPU goes on until another comes first.
            let other = next.peek().map_or((u64::MAX, usize::MAX), |other| other.0);
            let mut now = Some((time, cpu)).zip(self.front(cpu));
            while let Some(((time, _), record)) = now
                && time < reading.until
                && (time, cpu) < other
            {
                self.take(cpu, time, record, &mut tell)?;
                now = self.next(cpu, &mut reading);
            }
            if let Some((first, _)) = now {
                next.push(Reverse(first));
            }
        }
        for (cpu, cursor) in self.cursors.iter().enumerate() {
            self.ring(cpu).tail.store(cursor.at, Ordering::Release);
        }
        Ok(reading)
    }

    /// The first record of each CPU, by time.
    fn begin(&mut self, reading: &mut Reading) -> BinaryHeap<Reverse<(u64, usize)>> {
        let mut first = BinaryHeap::with_capacity(self.cursors.len());
        for cpu in 0..self.cursors.len() {
            self.cursors[cpu].head = self.ring(cpu).head.load(Ordering::Acquire);
            first.extend(self.next(cpu, reading).map(|(first, _)| Reverse(first)));
        }
        first
    }

    /// A CPU's next record, if this reading takes it.
    fn next(&self, cpu: usize, reading: &mut Reading) -> Option<((u64, usize), NonNull<Record>)> {
        let cursor = &self.cursors[cpu];
        if cursor.at == cursor.head || cursor.given_up {
            return None;
        }
        let Some(record) = self.front(cpu) else {
            *reading = Reading { until: reading.until.min(cursor.latest), held_up: true };
            return None;
        };
        Some(((self.time(cpu, record), cpu), record))
    }

    fn take(
        &mut self,
        cpu: usize,
        time: u64,
        record: NonNull<Record>,
        tell: &mut impl FnMut(&RawRecord) -> io::Result<()>,
    ) -> io::Result<()> {
        // SAFETY: a whole record does not change until the tail passes it.
        let &Record { pid, kind, op, flags, a, b, .. } = unsafe { record.as_ref() };
        tell(&RawRecord { time, a, b, pid, cpu: cpu as u32, kind, op, flags })?;
        let cursor = &mut self.cursors[cpu];
        cursor.latest = time;
        cursor.at += 1;
        if cursor.at.is_multiple_of(GIVE_BACK) {
            let at = cursor.at;
            self.ring(cpu).tail.store(at, Ordering::Release);
        }
        Ok(())
    }

    /// Records that are not whole yet never will be: what is behind them is lost, so many for each CPU that was not given
    /// up before.
    pub(super) fn give_up(&mut self) -> Vec<u64> {
        let unread = |cpu: usize| {
            let head = self.ring(cpu).head.load(Ordering::Acquire);
            let cursor = &self.cursors[cpu];
            if cursor.given_up || self.front(cpu).is_some() { 0 } else { head - cursor.at }
        };
        let unread: Vec<u64> = (0..self.cursors.len()).map(unread).collect();
        for (cursor, unread) in self.cursors.iter_mut().zip(&unread) {
            cursor.given_up |= *unread > 0;
        }
        unread
    }

    /// Looks at how much there is to read: how many records, and whether those of a CPU should wait no longer.
    pub(super) fn look(&mut self) -> (u64, bool) {
        let reserve = (self.ring_records - self.may_wait) as u64;
        let (mut all, mut full) = (0, self.may_wait == 0);
        self.fill = 0;
        for cpu in 0..self.cursors.len() {
            let head = self.ring(cpu).head.load(Ordering::Relaxed);
            let cursor = &mut self.cursors[cpu];
            let (came, waiting) = (head - cursor.seen, head - cursor.at);
            cursor.seen = head;
            let beyond = waiting.saturating_sub(self.may_wait as u64);
            self.fill = self.fill.max((came * 100 / reserve) as u32);
            self.fill_max = self.fill_max.max((beyond * 100 / reserve) as u32);
            full |= beyond > 0;
            all += waiting;
        }
        (all, full || all > READ_MAX)
    }

    /// How much came between the last two looks, and how full a reserve was at most, in percent of the reserve.
    pub(super) fn fill(&self) -> (u32, u32) {
        (self.fill, self.fill_max)
    }

    /// Bytes of each CPU's ring.
    pub(super) fn ring_bytes(&self) -> u64 {
        self.ring_records as u64 * u64::from(RECORD_BYTES)
    }

    /// Records lost, for each CPU.
    pub(super) fn dropped(&self) -> Vec<u64> {
        self.all().map(|ring| ring.dropped.load(Ordering::Relaxed)).collect()
    }

    pub(super) fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        for ring in self.all() {
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
    use std::fs::File;
    use std::os::fd::{AsFd, FromRawFd};

    const RECORDS: usize = 8;

    /// What the kernel half would write to: rings and records of some CPUs.
    struct Memory {
        rings: Rings,
    }

    impl Memory {
        fn new(cpus: usize) -> Memory {
            let file = |bytes: usize| {
                // SAFETY: a fresh descriptor that nothing else owns.
                let file = unsafe { File::from_raw_fd(libc::memfd_create(c"rings".as_ptr(), 0)) };
                file.set_len(bytes as u64).expect("memory");
                file
            };
            let rings = file(cpus * RING_BYTES as usize);
            let records = file(cpus * RECORDS * RECORD_BYTES as usize);
            let rings = Rings::new(rings.as_fd(), records.as_fd(), cpus, RECORDS).expect("mapped");
            Memory { rings }
        }

        fn slot(&self, cpu: usize, at: u64) -> *mut Record {
            // SAFETY: within the mapping.
            unsafe {
                self.rings.records.start.cast::<Record>().as_ptr().add(cpu * RECORDS + at as usize % RECORDS)
            }
        }

        fn finish(&self, cpu: usize, at: u64) {
            let lap = (at / RECORDS as u64 + 1) as u8;
            // SAFETY: nothing reads while this writes.
            unsafe { (*self.slot(cpu, at)).lap.store(lap, Ordering::Release) };
        }

        fn reserve(&self, cpu: usize, time: u64) -> u64 {
            let at = self.rings.ring(cpu).head.fetch_add(1, Ordering::AcqRel);
            // SAFETY: as above.
            unsafe { (*self.slot(cpu, at)).time = time };
            at
        }

        fn write(&self, cpu: usize, times: &[u64]) {
            for &time in times {
                self.finish(cpu, self.reserve(cpu, time));
            }
        }

        /// Times and CPUs told, and how far that came.
        fn read(&mut self, until: u64) -> (Vec<(u64, u32)>, Reading) {
            let mut told = Vec::new();
            let reading = self.rings.read(until, |record| {
                told.push((record.time, record.cpu));
                Ok(())
            });
            (told, reading.expect("nothing fails"))
        }
    }

    #[test]
    fn records_wait_until_they_reach_the_reserve() {
        let mut memory = Memory::new(2);
        memory.rings = memory.rings.deferring(4);
        memory.write(0, &[1, 2, 3]);
        memory.write(1, &[1, 2, 3, 4]);
        assert_eq!((memory.rings.look(), memory.rings.fill()), ((7, false), (100, 0)));
        memory.write(1, &[5]);
        assert_eq!((memory.rings.look(), memory.rings.fill()), ((8, true), (25, 25)));
        memory.read(99);
        assert_eq!((memory.rings.look(), memory.rings.fill()), ((0, false), (0, 25)));
    }

    const fn whole(until: u64) -> Reading {
        Reading { until, held_up: false }
    }

    #[test]
    fn records_of_all_cpus_come_in_the_order_of_time() {
        let mut memory = Memory::new(3);
        memory.write(0, &[1, 2, 7, 9]);
        memory.write(1, &[2, 3, 8]);
        let told = vec![(1, 0), (2, 0), (2, 1), (3, 1), (7, 0)];
        assert_eq!(memory.read(8), (told, whole(8)), "what comes later may precede 8 elsewhere");
        memory.write(2, &[8, 10]);
        memory.write(0, &[9, 12, 13, 14, 15, 16]);
        let told = vec![(8, 1), (8, 2), (9, 0), (9, 0), (10, 2), (12, 0)];
        assert_eq!(memory.read(13), (told, whole(13)));
        assert_eq!(memory.read(99).0, [(13, 0), (14, 0), (15, 0), (16, 0)], "in the ring's second lap");
    }

    #[test]
    fn a_clock_that_steps_back_does_not_change_the_order() {
        let mut memory = Memory::new(2);
        memory.write(0, &[5, 4, 6]);
        memory.write(1, &[4]);
        assert_eq!(memory.read(99).0, [(4, 1), (5, 0), (5, 0), (6, 0)]);
    }

    #[test]
    fn a_record_in_the_making_holds_up_what_came_later() {
        let mut memory = Memory::new(2);
        memory.write(0, &[1, 4]);
        let making = memory.reserve(0, 5);
        memory.write(0, &[6]);
        memory.write(1, &[2, 3, 7]);
        let held_up = Reading { until: 4, held_up: true };
        assert_eq!(memory.read(99), (vec![(1, 0), (2, 1), (3, 1), (4, 0)], held_up));
        assert_eq!(memory.read(99), (vec![], held_up));
        memory.finish(0, making);
        assert_eq!(memory.read(99), (vec![(5, 0), (6, 0), (7, 1)], whole(99)));
    }

    #[test]
    fn what_is_behind_a_record_that_never_is_whole_is_lost() {
        let mut memory = Memory::new(2);
        memory.write(1, &[2]);
        memory.reserve(0, 1);
        memory.write(0, &[3, 4]);
        assert!(memory.read(99).1.held_up);
        assert_eq!(memory.rings.give_up(), [3, 0]);
        assert_eq!(memory.read(99), (vec![(2, 1)], whole(99)));
    }

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
