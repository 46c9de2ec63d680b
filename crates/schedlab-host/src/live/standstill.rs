//! Whether the machine itself stood still: a real-time thread that sleeps and looks how late it wakes.
//!
//! Real-time tasks run before those of every scheduler under test, so one that wakes seconds late tells of the machine:
//! an emulator whose timers do not fire for a while (tasks that compute go on meanwhile, those that wait for a wake-up
//! or for the end of a turn do not), or a host that does not run it.

use crate::capability::become_real_time;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const SLEEP: Duration = Duration::from_millis(10);
/// Nobody else is likely to have it.
const PRIORITY: libc::c_int = 98;

/// Looks until it is asked.
pub struct Standstill {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Duration>>,
}

impl Standstill {
    /// Begins to look; without the right to real-time priority, or without room for a thread, it will have seen nothing.
    pub fn watch() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let asked = stop.clone();
        let thread = std::thread::Builder::new().name("standstill".to_owned()).spawn(move || look(&asked));
        Self { stop, thread: thread.ok() }
    }

    /// How much later than it should the thread woke at worst.
    pub fn longest(self) -> Duration {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

fn look(stop: &AtomicBool) -> Duration {
    let is_real_time = become_real_time(libc::SCHED_FIFO, PRIORITY).is_ok();
    let mut longest = Duration::ZERO;
    while is_real_time && !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        std::thread::sleep(SLEEP);
        longest = longest.max(began.elapsed().saturating_sub(SLEEP));
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_be_real_time_has_looked_and_who_may_not_has_seen_nothing() {
        let standstill = Standstill::watch();
        std::thread::sleep(5 * SLEEP);
        let longest = standstill.longest();
        assert_eq!(
            longest > Duration::ZERO,
            crate::capability::is_root(),
            "no thread wakes in no time: {longest:?}"
        );
    }
}
