//! The clocks that a play reads and sleeps by, in ns.

use std::mem::MaybeUninit;

fn read(clock: libc::clockid_t) -> u64 {
    let mut time = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: the kernel fills the time; the clocks asked for here always exist.
    let time = unsafe {
        libc::clock_gettime(clock, time.as_mut_ptr());
        time.assume_init()
    };
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).unwrap_or(0)
}

/// `CLOCK_MONOTONIC`.
pub fn now() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// CPU time of the calling thread.
pub fn cpu_time() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// For the kernel.
pub fn timespec(time: u64) -> libc::timespec {
    let seconds = libc::time_t::try_from(time / 1_000_000_000).unwrap_or(libc::time_t::MAX);
    libc::timespec { tv_sec: seconds, tv_nsec: (time % 1_000_000_000) as libc::c_long }
}

/// Sleeps until an instant of [`now`]'s clock.
pub fn sleep_until(instant: u64) {
    nanosleep(libc::TIMER_ABSTIME, instant);
}

/// Sleeps for a time from now.
pub fn sleep(time: u64) {
    nanosleep(0, time);
}

fn nanosleep(flags: libc::c_int, time: u64) {
    let time = timespec(time);
    // SAFETY: the kernel reads the time. A signal may cut a sleep short only where one is handled, and tasks handle none.
    unsafe { libc::clock_nanosleep(libc::CLOCK_MONOTONIC, flags, &raw const time, std::ptr::null_mut()) };
}
