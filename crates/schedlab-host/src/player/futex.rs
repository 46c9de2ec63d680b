//! Tokens, mutexes, conditions and barriers in words of shared memory, waited for by the futex call.
//!
//! What a program's C library does for threads, here for tasks of any process of a play, and with the exact meaning that
//! workloads give to these channels: a wake-up of a condition lets as many go on as it says, never more.

use super::clock;
use std::sync::atomic::{AtomicU32, Ordering};

/// One waiter of a condition, or one generation of a barrier, in its word's upper half.
const UPPER: u32 = 1 << 16;
const LOWER_MASK: u32 = UPPER - 1;

/// Two words of shared memory; what they mean depends on the channel's type.
#[derive(Debug, Default)]
pub struct Word {
    value: AtomicU32,
    waiters: AtomicU32,
}

/// Sleeps while `word` is `expected`, until it is woken or this instant (`CLOCK_MONOTONIC`, ns); `false` is too late.
pub fn wait(word: &AtomicU32, expected: u32, until: Option<u64>) -> bool {
    let time = until.map(clock::timespec);
    let at = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: word and time live through the call, which reads them.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT_BITSET,
            expected,
            at,
            std::ptr::null::<u32>(),
            libc::FUTEX_BITSET_MATCH_ANY,
        )
    };
    answer == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::ETIMEDOUT)
}

/// Wakes at most so many who sleep at `word`.
pub fn wake(word: &AtomicU32, count: u32) {
    let count = count.min(i32::MAX as u32);
    // SAFETY: the kernel only looks for waiters of the address.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, count) };
}

/// As a semaphore.
impl Word {
    /// Puts tokens in and wakes as many takers.
    pub fn post(&self, tokens: u32) {
        self.value.fetch_add(tokens, Ordering::SeqCst);
        if self.waiters.load(Ordering::SeqCst) > 0 {
            wake(&self.value, tokens);
        }
    }

    /// Takes a token, or waits for one until then; `false` if it got none.
    pub fn take(&self, until: Option<u64>) -> bool {
        loop {
            let value = self.value.load(Ordering::SeqCst);
            if value > 0 {
                if self.exchange(value, value - 1) {
                    return true;
                }
                continue;
            }
            self.waiters.fetch_add(1, Ordering::SeqCst);
            let in_time = wait(&self.value, value, until);
            self.waiters.fetch_sub(1, Ordering::SeqCst);
            if !in_time {
                return false;
            }
        }
    }

    fn exchange(&self, from: u32, to: u32) -> bool {
        self.value.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
}

/// As a mutex: 0 free, 1 held, 2 held and waited for.
impl Word {
    /// Locks; waits while another holds it.
    pub fn lock(&self) {
        if self.exchange(0, 1) {
            return;
        }
        while self.value.swap(2, Ordering::SeqCst) != 0 {
            wait(&self.value, 2, None);
        }
    }

    /// Unlocks and wakes one who waits.
    pub fn unlock(&self) {
        if self.value.swap(0, Ordering::SeqCst) == 2 {
            wake(&self.value, 1);
        }
    }
}

/// As a condition: who waits in the upper half, how many of them may go on in the lower.
impl Word {
    /// The caller waits from now on; it calls [`Word::await_wake`] next.
    pub fn enlist(&self) {
        self.value.fetch_add(UPPER, Ordering::SeqCst);
    }

    /// Waits to be woken, until then at most.
    pub fn await_wake(&self, until: Option<u64>) -> bool {
        let mut in_time = true;
        loop {
            let value = self.value.load(Ordering::SeqCst);
            if value & LOWER_MASK > 0 {
                if self.exchange(value, value - UPPER - 1) {
                    return true;
                }
            } else if !in_time {
                if self.exchange(value, value - UPPER) {
                    return false;
                }
            } else {
                in_time = wait(&self.value, value, until);
            }
        }
    }

    /// Lets at most so many of those who wait go on.
    pub fn wake_waiters(&self, count: u32) {
        loop {
            let value = self.value.load(Ordering::SeqCst);
            let asleep = (value / UPPER).saturating_sub(value & LOWER_MASK);
            let woken = count.min(asleep);
            if woken == 0 {
                return;
            }
            if self.exchange(value, value + woken) {
                return wake(&self.value, woken);
            }
        }
    }
}

/// As a barrier: its generation in the upper half, who is there in the lower.
impl Word {
    /// Waits until so many are here.
    pub fn arrive(&self, parties: u32) {
        let value = loop {
            let value = self.value.load(Ordering::SeqCst);
            if (value & LOWER_MASK) + 1 >= parties {
                if self.exchange(value, (value & !LOWER_MASK).wrapping_add(UPPER)) {
                    return wake(&self.value, u32::MAX);
                }
            } else if self.exchange(value, value + 1) {
                break value + 1;
            }
        };
        loop {
            let now = self.value.load(Ordering::SeqCst);
            if now & !LOWER_MASK != value & !LOWER_MASK {
                return;
            }
            wait(&self.value, now, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::thread;

    #[test]
    fn a_wake_of_two_lets_two_of_three_go_on() {
        let word = Arc::new(Word::default());
        let wait = |word: Arc<Word>| thread::spawn(move || word.await_wake(Some(clock::now() + 200_000_000)));
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                word.enlist();
                wait(Arc::clone(&word))
            })
            .collect();
        word.wake_waiters(2);
        let woken = waiting.into_iter().map(|thread| u32::from(thread.join().unwrap())).sum::<u32>();
        assert_eq!(woken, 2);
        word.wake_waiters(5);
        word.enlist();
        assert!(!word.await_wake(Some(clock::now())), "a wake-up without a waiter is lost");
    }

    #[test]
    fn tokens_are_taken_once() {
        let word = Word::default();
        word.post(2);
        let now = Some(clock::now());
        assert_eq!([word.take(now), word.take(now), word.take(now)], [true, true, false]);
    }

    #[test]
    fn a_barrier_holds_all_but_the_last_and_can_be_used_again() {
        let word = Arc::new(Word::default());
        let counted = Arc::new(AtomicU32::new(0));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (word, counted) = (Arc::clone(&word), Arc::clone(&counted));
                thread::spawn(move || {
                    (1..=50).all(|round| {
                        counted.fetch_add(1, Ordering::SeqCst);
                        word.arrive(4);
                        counted.load(Ordering::SeqCst) >= 4 * round
                    })
                })
            })
            .collect();
        assert!(threads.into_iter().all(|thread| thread.join().unwrap()));
    }

    #[test]
    fn a_mutex_excludes() {
        let (word, shared) = (Arc::new(Word::default()), Arc::new(AtomicU32::new(0)));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (word, shared) = (Arc::clone(&word), Arc::clone(&shared));
                thread::spawn(move || {
                    for _ in 0..5_000 {
                        word.lock();
                        let seen = shared.load(Ordering::Relaxed);
                        shared.store(seen + 1, Ordering::Relaxed);
                        word.unlock();
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(shared.load(Ordering::Relaxed), 20_000);
    }
}
