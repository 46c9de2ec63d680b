//! Tokens, mutexes, conditions and barriers in words of shared memory, waited for by the futex call.
//!
//! What a program's C library does for threads, here for tasks of any process of a play, and with the exact meaning that
//! workloads give to these channels: a wake-up of a condition lets as many go on as it says, never more.

use super::clock;
use std::sync::atomic::{AtomicU32, Ordering};

/// One generation of a barrier, in its word's upper half.
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

/// Waits of one condition that may be under way at once.
pub const TICKETS: usize = 1 << 16;
const WOKEN: u32 = 1;
const GONE: u32 = 2;

/// A condition: who waits draws a ticket, and wake-ups go to tickets in their order. Each waits at a cell of its own, so
/// that a wake-up is for who waited when it came, and for nobody who comes later.
#[derive(Clone, Copy)]
pub struct Condition<'a> {
    /// The first ticket that is not served yet, and how many were drawn.
    word: &'a Word,
    /// 0 for who waits, else [`WOKEN`] or [`GONE`].
    cells: &'a [AtomicU32],
}

impl<'a> Condition<'a> {
    /// Of this word and [`TICKETS`] cells that nobody else uses.
    pub fn new(word: &'a Word, cells: &'a [AtomicU32]) -> Condition<'a> {
        Condition { word, cells }
    }

    fn cell(&self, ticket: u32) -> &'a AtomicU32 {
        &self.cells[ticket as usize % self.cells.len()]
    }

    /// The caller waits from now on; it calls [`Condition::await_wake`] next, with this ticket.
    pub fn enlist(&self) -> std::io::Result<u32> {
        let ticket = self.word.waiters.fetch_add(1, Ordering::SeqCst);
        let ahead = ticket.wrapping_sub(self.word.value.load(Ordering::SeqCst)) as usize;
        if ahead >= self.cells.len() || self.cell(ticket).load(Ordering::SeqCst) != 0 {
            return Err(std::io::Error::other("more than 65536 waits came after one that is not over"));
        }
        Ok(ticket)
    }

    /// Waits to be woken, until then at most.
    pub fn await_wake(&self, ticket: u32, until: Option<u64>) -> bool {
        let cell = self.cell(ticket);
        let mut in_time = true;
        loop {
            if cell.load(Ordering::SeqCst) == WOKEN {
                cell.store(0, Ordering::SeqCst);
                return true;
            }
            if in_time {
                in_time = wait(cell, 0, until);
            } else if cell.compare_exchange(0, GONE, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
                self.pass_those_gone();
                return false;
            }
        }
    }

    /// Tickets at the front whose holders went are no one's turn.
    fn pass_those_gone(&self) {
        loop {
            let next = self.word.value.load(Ordering::SeqCst);
            if self.cell(next).load(Ordering::SeqCst) != GONE {
                return;
            }
            if self.word.exchange(next, next.wrapping_add(1)) {
                self.cell(next).store(0, Ordering::SeqCst);
            }
        }
    }

    /// Lets at most so many of those who wait go on, the first first.
    pub fn wake(&self, count: u32) {
        let end = self.word.waiters.load(Ordering::SeqCst);
        let mut left = count;
        while left > 0 {
            let next = self.word.value.load(Ordering::SeqCst);
            if end.wrapping_sub(next).cast_signed() <= 0 {
                return;
            }
            if !self.word.exchange(next, next.wrapping_add(1)) {
                continue;
            }
            let cell = self.cell(next);
            if cell.compare_exchange(0, WOKEN, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
                wake(cell, 1);
                left -= 1;
            } else {
                cell.store(0, Ordering::SeqCst);
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

    fn cells(count: usize) -> Vec<AtomicU32> {
        (0..count).map(|_| AtomicU32::new(0)).collect()
    }

    #[test]
    fn a_wake_of_two_lets_two_of_three_go_on() {
        let (word, cells) = (Word::default(), cells(8));
        let condition = Condition::new(&word, &cells);
        let until = Some(clock::now() + 200_000_000);
        let tickets: Vec<u32> = (0..3).map(|_| condition.enlist().unwrap()).collect();
        let woken: Vec<bool> = thread::scope(|scope| {
            let wait = |ticket: u32| scope.spawn(move || condition.await_wake(ticket, until));
            let waiting: Vec<_> = tickets.iter().map(|ticket| wait(*ticket)).collect();
            condition.wake(2);
            waiting.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(woken, [true, true, false]);
        condition.wake(5);
        let ticket = condition.enlist().unwrap();
        assert!(!condition.await_wake(ticket, Some(clock::now())), "a wake-up without a waiter is lost");
    }

    #[test]
    fn who_comes_after_a_wake_up_cannot_take_it() {
        let (word, cells) = (Word::default(), cells(8));
        let condition = Condition::new(&word, &cells);
        let first = condition.enlist().unwrap();
        condition.wake(1);
        let second = condition.enlist().unwrap();
        assert!(!condition.await_wake(second, Some(clock::now())));
        assert!(condition.await_wake(first, Some(clock::now())));
    }

    #[test]
    fn those_who_went_take_no_wake_up_and_no_room() {
        let (word, cells) = (Word::default(), cells(4));
        let condition = Condition::new(&word, &cells);
        for _ in 0..20 {
            let ticket = condition.enlist().unwrap();
            assert!(!condition.await_wake(ticket, Some(clock::now())));
        }
        let [stays, goes, next] = [(); 3].map(|()| condition.enlist().unwrap());
        assert!(!condition.await_wake(goes, Some(clock::now())));
        condition.wake(2);
        assert!(condition.await_wake(next, None) && condition.await_wake(stays, None));
        assert!((0..4).all(|_| condition.enlist().is_ok()));
        assert!(condition.enlist().is_err(), "only so many at once");
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
