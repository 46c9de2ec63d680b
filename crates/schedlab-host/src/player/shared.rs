//! Memory that all processes of a play share: who they are, how far they are, what they say.
//!
//! It is mapped before the first fork, so it has the same address in all of them, and it is made of atomics only, so
//! that each may read and write any of it at any time.

use super::burn::Speed;
use super::futex::{self, Word};
use std::io;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Types made of atomics (and arrays of them) that are valid when all their bytes are zero.
///
/// # Safety
/// The implementer promises both.
pub unsafe trait AllAtomic: Sync {}

// SAFETY: all of these are made of atomics of integers.
unsafe impl AllAtomic for Word {}
unsafe impl AllAtomic for Speed {}
unsafe impl AllAtomic for Head {}
unsafe impl AllAtomic for Slot {}
unsafe impl AllAtomic for Mark {}
unsafe impl AllAtomic for AtomicU32 {}
unsafe impl AllAtomic for AtomicU64 {}

/// A slice in memory that is shared over forks. Pages that are never touched cost nothing.
#[derive(Debug)]
pub struct SharedSlice<T: AllAtomic> {
    at: NonNull<T>,
    count: usize,
}

// SAFETY: its elements are atomics.
unsafe impl<T: AllAtomic> Send for SharedSlice<T> {}
unsafe impl<T: AllAtomic> Sync for SharedSlice<T> {}

impl<T: AllAtomic> SharedSlice<T> {
    /// So many elements, all zero.
    pub fn new(count: usize) -> io::Result<SharedSlice<T>> {
        let count = count.max(1);
        // SAFETY: new anonymous memory, aligned to pages and filled with zeros.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                count * size_of::<T>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(SharedSlice { at: NonNull::new(at.cast()).expect("a mapping is not at 0"), count })
    }

    /// Lets this process use the first so many without a fault at the first use of each page. A kernel that cannot (before
    /// 5.14) leaves it at the faults.
    pub fn prefault(&self, count: usize) {
        let bytes = count.min(self.count) * size_of::<T>();
        // SAFETY: within the mapping, whose content stays as it is.
        unsafe { libc::madvise(self.at.as_ptr().cast(), bytes, libc::MADV_POPULATE_WRITE) };
    }
}

impl<T: AllAtomic> Deref for SharedSlice<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the mapping holds `count` valid elements and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.count) }
    }
}

impl<T: AllAtomic> Drop for SharedSlice<T> {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length; nobody else unmaps it in this process.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.count * size_of::<T>()) };
    }
}

/// Longest text of an error.
const ERROR_BYTES_MAX: usize = 480;

/// How the play as a whole stands.
#[derive(Debug)]
pub struct Head {
    /// Tasks that wait for the start.
    pub ready: AtomicU32,
    /// 1 from the start on.
    pub gate: AtomicU32,
    /// When the run begins (`CLOCK_MONOTONIC`).
    pub origin_ns: AtomicU64,
    /// Target tasks that are made and not ended.
    pub targets_left: AtomicU32,
    /// 1 when it is over, 2 if it was cut.
    pub over: AtomicU32,
    /// Goes on by one whenever the leader has to look.
    pub news: AtomicU32,
    /// When it was over.
    pub end_ns: AtomicU64,
    /// Slots given out.
    pub slots: AtomicU32,
    /// Marks made.
    pub marks: AtomicU32,
    /// Devices that will still hand something over.
    pub devices_left: AtomicU32,
    /// Forks that the kernel refused.
    pub forks_failed: AtomicU32,
    /// Process group of all tasks, once there is one.
    pub group: AtomicI32,
    error_bytes: AtomicU32,
    error: [AtomicU8; ERROR_BYTES_MAX],
}

impl Head {
    /// Says why the play cannot go on; the first who says it is heard.
    pub fn fail(&self, text: &str) {
        let bytes = &text.as_bytes()[..text.len().min(ERROR_BYTES_MAX)];
        let writing = u32::MAX;
        if self.error_bytes.compare_exchange(0, writing, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            self.error.iter().zip(bytes).for_each(|(to, from)| to.store(*from, Ordering::Relaxed));
            self.error_bytes.store(bytes.len() as u32, Ordering::SeqCst);
            self.wake_leader();
        }
    }

    /// What was said.
    pub fn error(&self) -> Option<String> {
        let count = self.error_bytes.load(Ordering::SeqCst) as usize;
        let whole = (1..=ERROR_BYTES_MAX).contains(&count);
        let bytes =
            || self.error[..count].iter().map(|byte| byte.load(Ordering::Relaxed)).collect::<Vec<u8>>();
        whole.then(|| String::from_utf8_lossy(&bytes()).into_owned())
    }

    /// The leader looks whether it is over.
    pub fn wake_leader(&self) {
        self.news.fetch_add(1, Ordering::SeqCst);
        futex::wake(&self.news, u32::MAX);
        futex::wake(&self.ready, u32::MAX);
    }
}

/// What a task does, as others see it.
pub mod state {
    /// It runs, or could.
    pub const RUNS: u32 = 0;
    /// It waits for another task.
    pub const WAITS: u32 = 1;
    /// It sleeps, or waits with a timeout.
    pub const SLEEPS: u32 = 2;
    /// It has ended.
    pub const ENDED: u32 = 3;
}

/// One task of the play.
#[derive(Debug, Default)]
pub struct Slot {
    /// Its row in the workload, and 1: 0 is no task.
    pub row: AtomicU32,
    /// Its thread id.
    pub tid: AtomicI32,
    /// One of [`state`].
    pub state: AtomicU32,
    /// The step it is at.
    pub step: AtomicU32,
    /// Steps that could wait, so far.
    pub waits: AtomicU64,
    /// Its CPU time, when it ended or was cut.
    pub cpu_ns: AtomicU64,
    /// Switches that it wanted, by then.
    pub voluntary: AtomicU64,
    /// Switches that it did not want.
    pub involuntary: AtomicU64,
}

/// The end of a job. Times are of [`super::clock::now`].
#[derive(Debug, Default)]
pub struct Mark {
    /// Whose: its slot.
    pub slot: AtomicU32,
    /// Where.
    pub cpu: AtomicU32,
    /// When it ended; 0 until the mark is whole.
    pub time: AtomicU64,
    /// When it was released.
    pub released: AtomicU64,
    /// When it had to be done; `u64::MAX` if it has no deadline.
    pub deadline: AtomicU64,
}
