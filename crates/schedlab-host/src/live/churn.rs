//! A stress for schedulers: everything that tasks do to them, all at once, for some seconds.
//!
//! Hogs, short sleepers, pairs over sockets, herds woken together, forks, yields, and a hand that changes nice values,
//! policies and CPUs of the others all the time. Each kind counts what it did and its longest pause, so that a scheduler
//! that forgets somebody shows. Not a benchmark: nothing is compared.

use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// How one kind of task fared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kind {
    /// What they do.
    pub name: String,
    /// How many threads of it there were, helpers not counted.
    pub threads: u32,
    /// What they did in all.
    pub operations: u64,
    /// The longest time that one of them needed for one operation (some switches, or a helper's whole life), ms.
    pub longest_pause_ms: u64,
}

/// Counts of one kind, shared by its threads.
#[derive(Default)]
struct Count {
    operations: AtomicU64,
    longest_us: AtomicU64,
    /// When each thread's operation began, µs since the start, plus one; 0 between operations.
    began_us: Mutex<Vec<u64>>,
}

struct Stress {
    /// Workers that wait for the word, and the word.
    ready: AtomicU32,
    go: AtomicBool,
    stop: AtomicBool,
    origin: Instant,
    /// The policy that tasks have and come back to.
    policy: libc::c_int,
    /// Threads whose attributes are changed, and whether they may be real-time.
    tids: Mutex<Vec<(libc::pid_t, bool)>>,
    /// What herds wait for, and how often it rang.
    bell: Condvar,
    rung: Mutex<u64>,
}

impl Stress {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

/// Enough for the little they do.
const STACK_BYTES: usize = 64 * 1024;

/// One operation; the number differs from one to the next.
type Body = fn(&Stress, u64);

/// What is changed of a kind's tasks meanwhile.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Changes {
    Nothing,
    Most,
    /// A real-time task that always runs would starve those under test by right; these sleep.
    AlsoRealTime,
}

/// Name, body, what is changed, threads for each CPU and in all.
const KINDS: &[(&str, Body, Changes, u32, u32)] = &[
    ("burn", burn, Changes::Most, 1, 0),
    ("short sleeps", nap, Changes::AlsoRealTime, 2, 2),
    ("socket round trips", round_trip, Changes::Most, 1, 1),
    ("woken together", listen, Changes::AlsoRealTime, 2, 2),
    ("yields", give_way, Changes::Most, 0, 2),
    ("forks", fork, Changes::Nothing, 0, 1),
    ("bells", ring, Changes::Nothing, 0, 1),
];

/// `SCHED_EXT` of include/uapi/linux/sched.h.
pub const SCHED_EXT: libc::c_int = 7;

/// Runs the stress for `length` on all CPUs, with tasks of that policy (`SCHED_OTHER`, or [`SCHED_EXT`] so that schedulers
/// that take only who asks for it have them too); the attributes of most tasks change all the time.
pub fn run(length: Duration, policy: libc::c_int) -> Vec<Kind> {
    let cpus =
        std::thread::available_parallelism().map_or(1, |count| u32::try_from(count.get()).unwrap_or(1));
    let (ready, go, stop) = (AtomicU32::new(0), AtomicBool::new(false), AtomicBool::new(false));
    let (tids, bell, rung) = (Mutex::default(), Condvar::new(), Mutex::default());
    let stress = Arc::new(Stress { ready, go, stop, origin: Instant::now(), policy, tids, bell, rung });
    let mut threads = Vec::new();
    let mut counts = Vec::new();
    for (name, body, changes, each_cpu, more) in KINDS {
        let number = each_cpu * cpus + more;
        let count = Arc::new(Count { began_us: Mutex::new(vec![0; number as usize]), ..Count::default() });
        let before = threads.len();
        for index in 0..number as usize {
            let (stress, count) = (stress.clone(), count.clone());
            let thread = std::thread::Builder::new().name((*name).to_owned()).stack_size(STACK_BYTES);
            let thread = thread.spawn(move || worker(&stress, &count, index, *body, *changes));
            // A guest without room for one more thread is stressed by those that there are.
            threads.extend(thread);
        }
        counts.push((*name, u32::try_from(threads.len() - before).expect("some hundred"), count));
    }
    // Making threads takes long where CPUs are emulated, and is not what is judged.
    let patience = Instant::now() + Duration::from_secs(20);
    while (stress.ready.load(Ordering::Relaxed) as usize) < threads.len() && Instant::now() < patience {
        std::thread::sleep(Duration::from_millis(1));
    }
    stress.go.store(true, Ordering::Relaxed);
    change_until(&stress, Instant::now() + length, cpus);
    stress.stop.store(true, Ordering::Relaxed);
    // Whoever is never run again cannot be joined: it is told by its pause.
    let patience = Instant::now() + length.max(Duration::from_secs(10));
    while threads.iter().any(|thread| !thread.is_finished()) && Instant::now() < patience {
        stress.bell.notify_all();
        std::thread::sleep(Duration::from_millis(2));
    }
    counts.into_iter().map(|(name, threads, count)| kind(&stress, name, threads, &count)).collect()
}

fn kind(stress: &Stress, name: &str, threads: u32, count: &Count) -> Kind {
    let now = stress.now_us();
    let began = count.began_us.lock().expect("no thread panics while it holds the times");
    let waiting = began.iter().filter(|at| **at > 0).map(|at| now.saturating_sub(at - 1)).max().unwrap_or(0);
    let longest = count.longest_us.load(Ordering::Relaxed).max(waiting);
    Kind {
        name: name.to_owned(),
        threads,
        operations: count.operations.load(Ordering::Relaxed),
        longest_pause_ms: longest / 1_000,
    }
}

fn worker(stress: &Stress, count: &Count, index: usize, body: Body, changes: Changes) {
    if changes != Changes::Nothing {
        // SAFETY: only reads the thread's own number.
        let tid = unsafe { libc::gettid() };
        stress
            .tids
            .lock()
            .expect("no thread panics while it holds the list")
            .push((tid, changes == Changes::AlsoRealTime));
    }
    set_policy(stress.policy);
    stress.ready.fetch_add(1, Ordering::Relaxed);
    while !stress.go.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let set = |at: u64| count.began_us.lock().expect("no thread panics while it holds the times")[index] = at;
    let mut round = index as u64;
    loop {
        let began = stress.now_us();
        set(began + 1);
        body(stress, round);
        count.longest_us.fetch_max(stress.now_us() - began, Ordering::Relaxed);
        count.operations.fetch_add(1, Ordering::Relaxed);
        round += 1;
        if !stress.goes_on() {
            break;
        }
    }
    set(0);
}

/// Of the calling thread; a kernel without that class leaves it as it is.
fn set_policy(policy: libc::c_int) {
    // SAFETY: the kernel reads one struct that lives through the call.
    unsafe { libc::sched_setscheduler(0, policy, &libc::sched_param { sched_priority: 0 }) };
}

fn burn(_: &Stress, round: u64) {
    let mut value = round;
    for _ in 0..20_000 {
        value = std::hint::black_box(value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
}

fn nap(_: &Stress, round: u64) {
    std::thread::sleep(Duration::from_micros(50 + round * 37 % 1_500));
}

/// A child thread answers; both ends are made anew each time, as short-lived helpers do.
fn round_trip(_: &Stress, _: u64) {
    let Ok((mut ask, mut answer)) = std::os::unix::net::UnixStream::pair() else { return };
    let helper = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || {
        let mut byte = [0];
        while answer.read(&mut byte).is_ok_and(|count| count == 1) && answer.write_all(&byte).is_ok() {}
    });
    let Ok(helper) = helper else { return };
    let mut byte = [1];
    for _ in 0..20 {
        if ask.write_all(&byte).is_err() || ask.read_exact(&mut byte).is_err() {
            break;
        }
    }
    drop(ask);
    // A helper that panicked has said so.
    let _ = helper.join();
}

fn listen(stress: &Stress, _: u64) {
    let rung = stress.rung.lock().expect("no thread panics while it holds the bell");
    let before = *rung;
    let wait = |now: &mut u64| *now == before && stress.goes_on();
    drop(stress.bell.wait_while(rung, wait).expect("no thread panics while it holds the bell"));
}

fn ring(stress: &Stress, round: u64) {
    *stress.rung.lock().expect("no thread panics while it holds the bell") += 1;
    stress.bell.notify_all();
    std::thread::sleep(Duration::from_micros(300 + round * 101 % 2_000));
}

fn give_way(_: &Stress, _: u64) {
    (0..50).for_each(|_| std::thread::yield_now());
}

/// A child that burns a little and ends.
fn fork(_: &Stress, round: u64) {
    // SAFETY: the child calls only what is async-signal-safe.
    unsafe {
        match libc::fork() {
            0 => {
                let mut value = round;
                for _ in 0..2_000 {
                    value = std::hint::black_box(value.wrapping_mul(31));
                }
                libc::_exit(0)
            }
            child if child > 0 => {
                libc::waitpid(child, std::ptr::null_mut(), 0);
            }
            _ => {}
        }
    }
    std::thread::sleep(Duration::from_micros(200));
}

/// Changes somebody's nice value, policy or CPUs, until `end`.
fn change_until(stress: &Stress, end: Instant, cpus: u32) {
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    while Instant::now() < end {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let tid = {
            let tids = stress.tids.lock().expect("no thread panics while it holds the list");
            tids.get(random as usize % tids.len().max(1)).copied()
        };
        if let Some((tid, real_time)) = tid {
            change(tid, real_time, random >> 16, cpus, stress.policy);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// What the kernel refuses (real-time without rights) stays as it was.
fn change(tid: libc::pid_t, real_time: bool, random: u64, cpus: u32, policy: libc::c_int) {
    let parameter = |priority| libc::sched_param { sched_priority: priority };
    // SAFETY: the kernel reads structs that live through each call and changes only the scheduling of that thread.
    unsafe {
        match random % 8 {
            0..3 => {
                let nice = i32::try_from(random >> 8 & 31).expect("five bits") - 12;
                libc::setpriority(libc::PRIO_PROCESS, tid.unsigned_abs(), nice);
            }
            3 => drop(libc::sched_setscheduler(tid, libc::SCHED_BATCH, &parameter(0))),
            4 => drop(libc::sched_setscheduler(tid, libc::SCHED_IDLE, &parameter(0))),
            5 if real_time => {
                libc::sched_setscheduler(tid, libc::SCHED_RR, &parameter(1));
                std::thread::sleep(Duration::from_millis(1));
                libc::sched_setscheduler(tid, policy, &parameter(0));
            }
            5 | 6 => drop(libc::sched_setscheduler(tid, policy, &parameter(0))),
            _ => {
                let mut set: libc::cpu_set_t = std::mem::zeroed();
                let only = (random >> 8) as u32 % (cpus + 1);
                (0..cpus)
                    .filter(|cpu| only == cpus || *cpu == only)
                    .for_each(|cpu| libc::CPU_SET(cpu as usize, &mut set));
                libc::sched_setaffinity(tid, size_of::<libc::cpu_set_t>(), &set);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_gets_on_under_the_kernel_s_own_scheduler() {
        let kinds = run(Duration::from_millis(300), libc::SCHED_OTHER);
        assert_eq!(kinds.len(), KINDS.len());
        for kind in kinds {
            assert!(kind.operations > 0 && kind.longest_pause_ms < 5_000, "{kind:?}");
        }
    }
}
