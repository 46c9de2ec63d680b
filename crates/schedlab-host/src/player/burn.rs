//! CPU time, used up: a loop whose speed was measured on each CPU, checked by the wall clock.
//!
//! A step of 1 ms takes 1 ms of the task's CPU time, whoever had the CPU meanwhile and however fast it is; on a CPU of
//! less capacity (big.LITTLE) it takes as much longer as in the simulator.
//!
//! The thread's own CPU clock is not asked: to answer, the kernel brings the account of the running task up to date, sees
//! that its slice is over and lets others run, where real work goes on until the tick. Time that others had shows as a
//! stride that took too long while the count of the thread's context switches moved.

use super::clock;
use super::shared::SharedSlice;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

/// How long the loop is timed on each CPU.
const TRIAL_NS: u64 = 1_000_000;
/// So much is looped between two looks at the clock. What is shorter is looped without one.
const STRIDE_NS: u64 = 5_000;
/// A stride that took so much longer than its loop was interrupted, or another task ran.
const GAP_NS: u64 = 1_500;
/// A look at the number of switches takes no longer, even in emulation; if it seems to, others ran.
const LOOK_NS_MAX: u64 = 10_000;
/// Capacity of the fastest CPU (`SCHED_CAPACITY_SCALE`).
const FULL: u64 = 1_024;

/// What is known of each CPU.
#[derive(Debug, Default)]
pub struct Speed {
    /// Rounds of the loop in a ms; 0 if it was not tried.
    rounds: AtomicU64,
    /// Capacity, 1024 for the fastest; 0 if unknown.
    capacity: AtomicU64,
}

/// Rounds of dependent arithmetic: no memory, no pause that a hypervisor could trap.
fn spin(rounds: u64) {
    let mut value = 1_u64;
    for _ in 0..rounds {
        value = black_box(value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
    black_box(value);
}

/// Times the loop on every CPU that the calling thread may use, one after the other; it may use the same ones afterwards.
pub fn measure(speeds: &SharedSlice<Speed>) {
    let before = super::attributes::affinity();
    for (cpu, speed) in speeds.iter().enumerate() {
        let capacity = std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu{cpu}/cpu_capacity"));
        let capacity = capacity.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(FULL);
        speed.capacity.store(capacity, Ordering::Relaxed);
        if before.contains(schedlab_model::CpuId(cpu as u32)) && super::attributes::pin(cpu).is_ok() {
            speed.rounds.store(time_loop(), Ordering::Relaxed);
        }
    }
    // The same set as before: the kernel took it then.
    drop(super::attributes::set_affinity(&before));
}

/// Rounds in a ms of CPU time, the fastest of three tries: what disturbs makes it slower.
fn time_loop() -> u64 {
    let trial = |_| {
        let (start, mut rounds) = (clock::cpu_time(), 0);
        loop {
            spin(10_000);
            rounds += 10_000;
            let used = clock::cpu_time() - start;
            if used >= TRIAL_NS / 3 {
                return rounds * 1_000_000 / used.max(1);
            }
        }
    };
    (0..3).map(trial).max().unwrap_or(1)
}

/// Uses `time` ns of CPU time.
pub fn burn(time: u64, speeds: &SharedSlice<Speed>) {
    // SAFETY: a plain call; errors are negative and name no CPU.
    let cpu = || usize::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0);
    let known = |cpu: usize| {
        let speed = speeds.get(cpu).unwrap_or(&speeds[0]);
        let rounds = speed.rounds.load(Ordering::Relaxed).max(1_000);
        (rounds, speed.capacity.load(Ordering::Relaxed).clamp(1, FULL))
    };
    if time < STRIDE_NS {
        let (rounds, capacity) = known(cpu());
        return spin(time * rounds * FULL / capacity / 1_000_000);
    }
    let (mut last, mut left, mut seen) = (clock::now(), time, switches());
    loop {
        let (rounds, capacity) = known(cpu());
        let stride = (left * FULL / capacity).min(STRIDE_NS);
        spin(stride * rounds / 1_000_000);
        let now = clock::now();
        let mut own = now - last;
        last = now;
        if own > stride + GAP_NS {
            let count = switches();
            last = clock::now();
            // The look is work of this task, too; left in the next stride, a dear one would make that seem interrupted.
            own = if count == seen { own } else { stride } + (last - now).min(LOOK_NS_MAX);
            seen = count;
        }
        let done = own * capacity / FULL;
        if done >= left {
            return;
        }
        left -= done;
    }
}

/// How often the calling thread left its CPU until now.
fn switches() -> i64 {
    // SAFETY: filled by the kernel.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage
    };
    usage.ru_nvcsw + usage.ru_nivcsw
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burn_takes_its_cpu_time() {
        let speeds = SharedSlice::<Speed>::new(1_024).expect("memory");
        measure(&speeds);
        for time in [50_000, 500_000, 5_000_000] {
            let mut used: Vec<u64> = (0..9)
                .map(|_| {
                    let start = clock::cpu_time();
                    burn(time, &speeds);
                    clock::cpu_time() - start
                })
                .collect();
            used.sort_unstable();
            // Interrupts are counted as the task's time, so above only what no disturbance explains is wrong: a factor of
            // two in all of nine. What a host takes away passes on the wall clock and may not be the task's time, a little of
            // most burns where it does so all the time: below it is wrong if most are by a fiftieth.
            let (least, median) = (used[0], used[4]);
            assert!(median + time / 50 + 1_000 >= time && least <= 2 * time + 5_000, "{time}: {used:?}");
        }
    }

    /// Two burns on one CPU: each takes its own CPU time, though both are on it half of the time only.
    #[test]
    fn time_of_others_does_not_count() {
        let speeds = SharedSlice::<Speed>::new(1_024).expect("memory");
        measure(&speeds);
        let cpu = super::super::attributes::affinity().iter().next().expect("a CPU");
        let attempt = || -> Vec<u64> {
            std::thread::scope(|scope| {
                let one = || {
                    super::super::attributes::pin(cpu.0 as usize).expect("a CPU of ours");
                    let start = clock::cpu_time();
                    burn(60_000_000, &speeds);
                    clock::cpu_time() - start
                };
                let both = [scope.spawn(one), scope.spawn(one)];
                both.into_iter().map(|thread| thread.join().expect("burns")).collect()
            })
        };
        // A host that takes the CPU away lets the wall clock go on but not the task's: not each time, as counting the
        // other's time would (30 ms used instead of 60).
        let attempts: Vec<Vec<u64>> = (0..5).map(|_| attempt()).collect();
        let right = |used: &Vec<u64>| used.iter().all(|used| (58_000_000..=75_000_000).contains(used));
        assert!(attempts.iter().any(right), "{attempts:?}");
    }
}
