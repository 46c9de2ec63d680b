//! Canaries: tasks that sleep and measure how late they run, and the guards that judge a scheduler by them.
//!
//! A canary waits for a moment on the clock. From then on it is runnable, so how late it runs is its wake-up delay, and
//! if it does not run at all, the time since then is a stall. It measures the running system from within, without any
//! tracing; what it cannot see is the delay of tasks of other weights or pinned elsewhere.

use schedlab_model::Nanos;
use schedlab_model::metric::Histogram;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Between two wake-ups of a canary: 500 measurements a second and CPU for some µs each.
const PERIOD_NS: u64 = 2_000_000;
/// More canaries than this measure nothing new.
const CANARIES_MAX: u32 = 8;
/// A p99 of fewer measurements hangs on one or two of them.
const COUNT_MIN: u64 = 200;
const STACK_BYTES: usize = 64 * 1024;

/// What a scheduler must keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guards {
    /// No canary is runnable for longer without running.
    pub stall: Duration,
    /// The 99th percentile of wake-up delays stays below.
    pub p99: Option<Duration>,
}

/// A guard that tripped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trip {
    /// `stall`, `p99` or `kernel`.
    pub guard: String,
    /// What was measured, in words, with the bound.
    pub measured: String,
}

impl fmt::Display for Trip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "guard {} tripped: {}", self.guard, self.measured)
    }
}

/// Wake-up delays of a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delays {
    /// How many.
    pub count: u64,
    /// Mean, ns.
    pub mean_ns: u64,
    /// 99th percentile, ns.
    pub p99_ns: u64,
    /// Largest, ns.
    pub max_ns: u64,
}

/// Canaries at work; they end when dropped.
pub struct Canary {
    shared: Arc<Shared>,
    threads: u32,
}

struct Shared {
    origin: Instant,
    stop: AtomicBool,
    /// For each canary when it becomes runnable, or did and has not run since, ns since the origin. One that does not come
    /// to run at all is late from its first moment on.
    due_ns: Vec<AtomicU64>,
    delays: Mutex<Histogram>,
}

impl Shared {
    fn now_ns(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

impl Canary {
    /// Starts one for each CPU, with tasks of that policy.
    pub fn start(policy: libc::c_int) -> Canary {
        let cpus = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
        let threads = cpus.clamp(1, CANARIES_MAX);
        let canary = Canary::silent(threads);
        for index in 0..threads as usize {
            let shared = Arc::clone(&canary.shared);
            let thread = std::thread::Builder::new().name("schedlab-canary".to_owned());
            if thread.stack_size(STACK_BYTES).spawn(move || sing(&shared, index, policy)).is_err() {
                // On a machine without room for one more thread the others measure.
                canary.shared.due_ns[index].store(u64::MAX, Ordering::Relaxed);
            }
        }
        canary
    }

    /// Canaries that are due from now on and have not run yet.
    fn silent(threads: u32) -> Canary {
        // Not all at once.
        let first = |index: u32| PERIOD_NS + PERIOD_NS * u64::from(index) / u64::from(threads);
        let shared = Arc::new(Shared {
            origin: Instant::now(),
            stop: AtomicBool::new(false),
            due_ns: (0..threads).map(|index| AtomicU64::new(first(index))).collect(),
            delays: Mutex::default(),
        });
        Canary { shared, threads }
    }

    /// The delays since the last time.
    pub fn take(&self) -> Delays {
        let mut delays = self.shared.delays.lock().expect("no thread panics while it holds the delays");
        summary(&std::mem::take(&mut *delays))
    }

    /// The delays so far.
    pub fn delays(&self) -> Delays {
        summary(&self.shared.delays.lock().expect("no thread panics while it holds the delays"))
    }

    /// Whether a guard trips. Early on, a p99 is not judged yet unless this is the `last` look.
    pub fn check(&self, guards: &Guards, last: bool) -> Option<Trip> {
        let now = self.shared.now_ns();
        let late = |due: &AtomicU64| now.saturating_sub(due.load(Ordering::Relaxed));
        let waits = self.shared.due_ns.iter().map(late).max().unwrap_or(0);
        judge(guards, waits, &self.delays(), last, self.threads)
    }
}

fn judge(guards: &Guards, waits_ns: u64, delays: &Delays, last: bool, threads: u32) -> Option<Trip> {
    let (waits, longest) = (Duration::from_nanos(waits_ns), Duration::from_nanos(delays.max_ns));
    if waits.max(longest) > guards.stall {
        let seconds = waits.max(longest).as_secs_f64();
        let bound = guards.stall.as_secs_f64();
        let measured =
            format!("a canary was runnable for {seconds:.2} s without running (bound {bound:.2} s)");
        return Some(Trip { guard: "stall".to_owned(), measured });
    }
    let bound = guards.p99?;
    let enough = delays.count >= COUNT_MIN * u64::from(threads) || (last && delays.count > 0);
    if !enough || Duration::from_nanos(delays.p99_ns) <= bound {
        return None;
    }
    let (p99, bound) = (Nanos(delays.p99_ns), Nanos(u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX)));
    let count = delays.count;
    let measured = format!("99 % of {count} wake-ups were delayed by up to {p99} (bound {bound})");
    Some(Trip { guard: "p99".to_owned(), measured })
}

impl Drop for Canary {
    /// One that is never run again cannot be waited for.
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }
}

fn summary(delays: &Histogram) -> Delays {
    let ns = |value: Option<Nanos>| value.map_or(0, |value| value.0);
    Delays {
        count: delays.count(),
        mean_ns: ns(delays.mean()),
        p99_ns: ns(delays.percentile(9_900)),
        max_ns: ns(delays.max()),
    }
}

fn sing(shared: &Shared, index: usize, policy: libc::c_int) {
    // SAFETY: changes only this thread; what the kernel refuses leaves it as it was.
    unsafe {
        let parameter = libc::sched_param { sched_priority: 0 };
        libc::sched_setscheduler(0, policy, &raw const parameter);
        libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64);
    }
    let mut due = shared.due_ns[index].load(Ordering::Relaxed);
    while !shared.stop.load(Ordering::Relaxed) {
        sleep_until(shared.origin + Duration::from_nanos(due));
        let now = shared.now_ns();
        let delay = Nanos(now.saturating_sub(due));
        shared.delays.lock().expect("no thread panics while it holds the delays").record(delay);
        // What was missed is missed: one late wake-up is one measurement.
        due = now.max(due) + PERIOD_NS;
        shared.due_ns[index].store(due, Ordering::Relaxed);
    }
    shared.due_ns[index].store(u64::MAX, Ordering::Relaxed);
}

fn sleep_until(moment: Instant) {
    while let Some(left) = moment.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        std::thread::sleep(left);
    }
}

/// The policy of canaries for a scheduler that takes all tasks, or only those that ask.
pub fn policy(partial: bool) -> libc::c_int {
    if partial { super::churn::SCHED_EXT } else { libc::SCHED_OTHER }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUARDS: Guards = Guards { stall: Duration::from_secs(1), p99: Some(Duration::from_millis(5)) };

    #[test]
    fn guards_trip_with_what_was_measured() {
        let delays = Delays { count: 500, mean_ns: 60_000, p99_ns: 4_000_000, max_ns: 6_000_000 };
        assert_eq!(judge(&GUARDS, 1_000, &delays, true, 2), None);
        let slow = Delays { p99_ns: 7_000_000, ..delays };
        let trip = judge(&GUARDS, 0, &slow, false, 2).expect("it is slow");
        assert!(
            trip.guard == "p99" && trip.measured.contains("7.00 ms") && trip.measured.contains("5.00 ms"),
            "{trip}"
        );
        let few = Delays { count: 20, ..slow };
        assert_eq!(judge(&GUARDS, 0, &few, false, 2), None, "too early to tell");
        assert!(judge(&GUARDS, 0, &few, true, 2).is_some());
        let trip = judge(&GUARDS, 2_500_000_000, &delays, false, 2).expect("it stands still");
        assert_eq!(
            trip.to_string(),
            "guard stall tripped: a canary was runnable for 2.50 s without running (bound 1.00 s)"
        );
        let late = Delays { max_ns: 1_500_000_000, ..delays };
        assert!(judge(&GUARDS, 0, &late, false, 2).is_some_and(|trip| trip.guard == "stall"));
    }

    #[test]
    fn a_canary_that_never_runs_is_late_from_its_start() {
        let guards = Guards { stall: Duration::from_millis(20), p99: None };
        let canary = Canary::silent(2);
        std::thread::sleep(Duration::from_millis(50));
        let trip = canary.check(&guards, false).expect("neither has run");
        assert_eq!(trip.guard, "stall");
        let patient = Guards { stall: Duration::from_secs(3_600), p99: None };
        assert_eq!(canary.check(&patient, true), None, "no canary at all is no guard of its own");
    }

    #[test]
    fn canaries_measure_the_running_system() {
        let canary = Canary::start(libc::SCHED_OTHER);
        std::thread::sleep(Duration::from_millis(300));
        let delays = canary.take();
        assert!(delays.count > 20 && delays.max_ns >= delays.p99_ns && delays.p99_ns > 0, "{delays:?}");
        assert_eq!(canary.check(&Guards { stall: Duration::from_secs(20), p99: None }, true), None);
    }
}
