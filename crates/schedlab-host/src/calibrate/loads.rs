//! The loads of a calibration, on threads that are made for them and end with them.

use super::Timed;
use super::stall::Watched;
use crate::player::shared::SharedSlice;
use schedlab_model::{CpuId, Nanos};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How many there are.
pub(super) const COUNT: u64 = 7;
/// Bytes that a moved task finds cold: a first-level data cache.
const WARM_BYTES: usize = 32 << 10;
const LINE_BYTES: usize = 64;
/// One message of the load that reads several in a row.
const MESSAGE_BYTES: usize = 64;
/// Readings of the clock farther apart than this are noted; the loop between them takes some tens of ns.
const GAP_MIN: Nanos = Nanos(2_000);
/// More gaps are not noted: ticks and wake-ups make some thousands.
const GAPS_MAX: usize = 1 << 16;

/// What the loads themselves saw.
#[derive(Debug, Default)]
pub(super) struct Played {
    pub(super) timed: Timed,
    pub(super) watched: Option<Watched>,
}

/// All loads, one after the other, each for so long; `step` is told the number of each before.
pub(super) fn play(
    cpus: &[CpuId],
    phase: Duration,
    step: &impl Fn(u64),
    stop: &Arc<AtomicBool>,
) -> io::Result<Played> {
    let mut played = Played::default();
    let timed = &mut played.timed;
    let within = |part: Duration| Until { end: Instant::now() + part, stop: Arc::clone(stop) };
    let (first, second) = (cpus[0], cpus.get(1).copied());
    step(0);
    pin(first)?;
    let (reader, writer) = io::pipe()?;
    bytes_alone(reader, writer, &within(phase / 4), &mut timed.pipe)?;
    let (reader, writer) = UnixStream::pair()?;
    bytes_alone(reader, writer, &within(phase / 4), &mut timed.socket)?;
    futex_alone(&within(phase / 4), &mut timed.futex);
    yields_alone(&within(phase / 4), &mut timed.yields);
    step(1);
    timed.trips_and_waits = ping_pong(first, first, &within(phase / 3), &mut timed.pipe_trip_same)?;
    futex_hand_over(first, &within(phase / 3), &mut timed.futex_trip_same)?;
    yields_to_each_other(first, &within(phase / 3), timed)?;
    step(2);
    if let Some(second) = second {
        ping_pong(first, second, &within(phase), &mut timed.pipe_trip_other)?;
    }
    step(3);
    let overshoot = Arc::new(Mutex::new(Vec::new()));
    let sleepers = cpus.iter().map(|cpu| sleeper(*cpu, None, within(phase), Some(Arc::clone(&overshoot))));
    join(sleepers.collect())?;
    timed.overshoot = overshoot.lock().map(|samples| samples.clone()).unwrap_or_default();
    step(4);
    played.watched = beside_hogs(cpus, &|| within(phase))?;
    step(5);
    if let Some(second) = second {
        moves(first, second, &within(phase), &mut played.timed.migration)?;
    }
    step(6);
    messages(first, &within(phase))?;
    Ok(played)
}

/// When a load ends.
#[derive(Clone)]
struct Until {
    end: Instant,
    stop: Arc<AtomicBool>,
}

impl Until {
    fn is_over(&self) -> bool {
        Instant::now() >= self.end || self.stop.load(Ordering::Relaxed)
    }
}

/// Ties the calling thread to a CPU.
fn pin(cpu: CpuId) -> io::Result<()> {
    // SAFETY: a set of plain bits, changed by the macros of libc; the call reads it.
    let result = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu.index(), &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether this process may run there: the CPU is online and in its cpuset.
pub fn is_usable(cpu: CpuId) -> bool {
    // SAFETY: a set of plain bits is valid when all are zero, and the call fills no more than its size.
    let (set, answer) = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        let answer = libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set);
        (set, answer)
    };
    // SAFETY: the index is within the set.
    answer != 0 || (cpu.index() < libc::CPU_SETSIZE as usize && unsafe { libc::CPU_ISSET(cpu.index(), &set) })
}

fn elapsed(since: Instant) -> u64 {
    Nanos(since.elapsed().as_nanos() as u64).0
}

/// Threads of a load; the first error of any.
fn join(threads: Vec<io::Result<JoinHandle<io::Result<()>>>>) -> io::Result<()> {
    let mut outcome = Ok(());
    for thread in threads {
        let ended =
            thread.and_then(|thread| thread.join().unwrap_or_else(|_| Err(io::Error::other("a load died"))));
        outcome = outcome.and(ended);
    }
    outcome
}

fn spawn(
    name: &str,
    cpu: CpuId,
    body: impl FnOnce() -> io::Result<()> + Send + 'static,
) -> io::Result<JoinHandle<io::Result<()>>> {
    thread::Builder::new().name(name.to_owned()).spawn(move || {
        pin(cpu)?;
        body()
    })
}

/// Bytes that a task sends to itself.
fn bytes_alone(
    mut reader: impl Read,
    mut writer: impl Write,
    until: &Until,
    samples: &mut Vec<u64>,
) -> io::Result<()> {
    while !until.is_over() {
        let since = Instant::now();
        for _ in 0..100 {
            writer.write_all(&[1])?;
            reader.read_exact(&mut [0])?;
        }
        samples.push(elapsed(since) / 100);
    }
    Ok(())
}

fn futex(word: &AtomicU32, operation: i32, value: u32) {
    // SAFETY: the word lives as long as the call; without a timeout nothing else is read. Errors say that the word
    // has changed or a signal came, and the caller looks again.
    unsafe {
        let no_time = std::ptr::null::<libc::timespec>();
        libc::syscall(libc::SYS_futex, word.as_ptr(), operation | libc::FUTEX_PRIVATE_FLAG, value, no_time)
    };
}

fn futex_alone(until: &Until, samples: &mut Vec<u64>) {
    let word = AtomicU32::new(0);
    while !until.is_over() {
        let since = Instant::now();
        (0..100).for_each(|_| futex(&word, libc::FUTEX_WAKE, 1));
        samples.push(elapsed(since) / 100);
    }
}

fn yields_alone(until: &Until, samples: &mut Vec<u64>) {
    while !until.is_over() {
        let since = Instant::now();
        (0..100).for_each(|_| thread::yield_now());
        samples.push(elapsed(since) / 100);
    }
}

/// Switches of the calling thread so far.
fn own_switches() -> u64 {
    let (waited, preempted) = own_waits_and_preemptions();
    waited + preempted
}

/// How often the calling thread gave its CPU up and lost it so far.
fn own_waits_and_preemptions() -> (u64, u64) {
    // SAFETY: a struct of plain numbers, which the call fills.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage
    };
    (usage.ru_nvcsw as u64, usage.ru_nivcsw as u64)
}

/// Two tasks of one CPU that do nothing but yield. A yield need not switch, so switches are counted.
fn yields_to_each_other(cpu: CpuId, until: &Until, timed: &mut Timed) -> io::Result<()> {
    const YIELDS: u64 = 100;
    let alone = middle(&timed.yields);
    let other = until.clone();
    let partner = spawn("yields", cpu, move || {
        while !other.is_over() {
            (0..YIELDS).for_each(|_| thread::yield_now());
        }
        Ok(())
    });
    while !until.is_over() {
        let (since, before) = (Instant::now(), own_switches());
        (0..YIELDS).for_each(|_| thread::yield_now());
        let (time, switches) = (elapsed(since), own_switches() - before);
        // The partner did about the same in this time.
        if switches > YIELDS / 2 {
            timed.switch.push(switch_ns(time, YIELDS, switches, alone));
        }
    }
    join(vec![partner])
}

/// One switch, by the time in which each of two tasks yielded and was switched away from so many times.
fn switch_ns(time: u64, yields: u64, switches: u64, alone: u64) -> u64 {
    time.saturating_sub(2 * yields * alone) / (2 * switches)
}

fn middle(samples: &[u64]) -> u64 {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

/// Answers every byte until the other end is closed; adds how often it waited.
fn echo(mut from: PipeReader, mut to: PipeWriter, waits: &AtomicU64) -> io::Result<()> {
    let mut byte = [0];
    while from.read(&mut byte)? == 1 {
        if to.write_all(&byte).is_err() {
            break;
        }
    }
    waits.fetch_add(own_waits_and_preemptions().0, Ordering::Relaxed);
    Ok(())
}

/// Bytes there and back between two pinned tasks; how many, and how often a task waited.
fn ping_pong(here: CpuId, there: CpuId, until: &Until, samples: &mut Vec<u64>) -> io::Result<(u64, u64)> {
    let (reader, mut writer) = io::pipe()?;
    let (mut answers, answer) = io::pipe()?;
    let waits = Arc::new(AtomicU64::new(0));
    let of_pong = Arc::clone(&waits);
    let pong = spawn("pong", there, move || echo(reader, answer, &of_pong));
    pin(here)?;
    let (before, _) = own_waits_and_preemptions();
    let mut trips = 0;
    while !until.is_over() {
        let since = Instant::now();
        for _ in 0..10 {
            writer.write_all(&[1])?;
            answers.read_exact(&mut [0])?;
        }
        samples.push(elapsed(since) / 10);
        trips += 10;
    }
    let (after, _) = own_waits_and_preemptions();
    drop(writer);
    join(vec![pong])?;
    Ok((trips, waits.load(Ordering::Relaxed) + after - before))
}

/// What one task may pass when another has opened it; it closes behind it.
#[derive(Default)]
struct Gate(AtomicU32);

impl Gate {
    fn open(&self) {
        self.0.store(1, Ordering::Release);
        futex(&self.0, libc::FUTEX_WAKE, 1);
    }

    fn pass(&self) {
        while self.0.swap(0, Ordering::Acquire) == 0 {
            futex(&self.0, libc::FUTEX_WAIT, 0);
        }
    }
}

/// A futex there and back between two tasks of one CPU.
fn futex_hand_over(cpu: CpuId, until: &Until, samples: &mut Vec<u64>) -> io::Result<()> {
    let gates = Arc::new((Gate::default(), Gate::default(), AtomicBool::new(false)));
    let theirs = Arc::clone(&gates);
    let partner = spawn("hand", cpu, move || {
        while !theirs.2.load(Ordering::Acquire) {
            theirs.0.pass();
            theirs.1.open();
        }
        Ok(())
    });
    if partner.is_ok() {
        while !until.is_over() {
            let since = Instant::now();
            for _ in 0..10 {
                gates.0.open();
                gates.1.pass();
            }
            samples.push(elapsed(since) / 10);
        }
        gates.2.store(true, Ordering::Release);
        gates.0.open();
    }
    join(vec![partner])
}

/// Sleeps of 0.7 to 1.7 ms, so that they meet every phase of the tick; after each it may write to a pipe, or tell how
/// much longer it took.
fn sleeper(
    cpu: CpuId,
    mut to: Option<PipeWriter>,
    until: Until,
    overshoot: Option<Arc<Mutex<Vec<u64>>>>,
) -> io::Result<JoinHandle<io::Result<()>>> {
    spawn("sleeper", cpu, move || {
        let (mut round, mut samples) = (0, Vec::with_capacity(1_000));
        while !until.is_over() {
            round += 1;
            let (asked, since) = (Duration::from_micros(700 + round * 37 % 1_000), Instant::now());
            thread::sleep(asked);
            samples.push(elapsed(since).saturating_sub(asked.as_nanos() as u64));
            if let Some(to) = &mut to {
                to.write_all(&[1])?;
            }
        }
        if let Some(mut all) = overshoot.as_ref().and_then(|all| all.lock().ok()) {
            all.append(&mut samples);
        }
        Ok(())
    })
}

fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid, the clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Reads the clock until the end; when it did not for a while.
fn watch_clock(until: &Until) -> Vec<(u64, u64)> {
    let mut gaps = Vec::with_capacity(GAPS_MAX);
    let mut before = monotonic_ns();
    while !until.is_over() {
        for _ in 0..256 {
            let now = monotonic_ns();
            if now - before > GAP_MIN.0 && gaps.len() < GAPS_MAX {
                gaps.push((before, now));
            }
            before = now;
        }
        before = monotonic_ns();
    }
    gaps
}

/// A hog on the first two CPUs; beside the first a sleeper, who also wakes a reader beside the second. What the second
/// hog saw.
fn beside_hogs(cpus: &[CpuId], until: &impl Fn() -> Until) -> io::Result<Option<Watched>> {
    let mut threads = Vec::new();
    let mut to = None;
    let seen = Arc::new(Mutex::new(None));
    if let Some(&second) = cpus.get(1) {
        let (mut reader, writer) = io::pipe()?;
        to = Some(writer);
        threads.push(spawn("reader", second, move || {
            while reader.read(&mut [0])? == 1 {}
            Ok(())
        }));
    }
    for (index, &cpu) in cpus.iter().take(2).enumerate() {
        let (until, seen) = (until(), Arc::clone(&seen));
        threads.push(spawn("hog", cpu, move || {
            // SAFETY: no arguments; always succeeds.
            let pid = unsafe { libc::gettid() };
            let gaps = watch_clock(&until);
            if let (1, Ok(mut seen)) = (index, seen.lock()) {
                *seen = Some(Watched { pid, cpu, gaps });
            }
            Ok(())
        }));
    }
    threads.push(sleeper(cpus[0], to, until(), None));
    join(threads)?;
    Ok(seen.lock().ok().and_then(|mut seen| seen.take()))
}

/// Goes over its working set on one CPU and then on another, again and again.
fn moves(here: CpuId, there: CpuId, until: &Until, samples: &mut Vec<u64>) -> io::Result<()> {
    let mut memory = vec![0_u8; WARM_BYTES];
    let mut pass = || {
        let since = Instant::now();
        for line in memory.chunks_mut(LINE_BYTES) {
            line[0] = std::hint::black_box(line[0].wrapping_add(1));
        }
        elapsed(since)
    };
    let mut at = [here, there];
    while !until.is_over() {
        pin(at[0])?;
        at.swap(0, 1);
        let cold = pass();
        let warm = (0..4).map(|_| pass()).min().unwrap_or(cold);
        samples.push(cold.saturating_sub(warm));
    }
    Ok(())
}

/// Processes that tell when they have begun and end at once, made on that CPU. A parent that its child preempts in the
/// call sees a longer call; the middle ones count.
pub(super) fn forks(
    cpu: CpuId,
    phase: Duration,
    stop: &Arc<AtomicBool>,
    timed: &mut Timed,
) -> io::Result<()> {
    let until = Until { end: Instant::now() + phase, stop: Arc::clone(stop) };
    pin(cpu)?;
    let shared = SharedSlice::<AtomicU64>::new(1)?;
    let began = &shared[0];
    while !until.is_over() {
        let since = monotonic_ns();
        // SAFETY: the child reads the clock, writes to shared memory and ends; none of it takes a lock of this process.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            began.store(monotonic_ns(), Ordering::Relaxed);
            // SAFETY: ends the child alone.
            unsafe { libc::_exit(0) };
        }
        if pid < 0 {
            return Err(io::Error::last_os_error());
        }
        let made = monotonic_ns();
        timed.fork.push(made - since);
        // SAFETY: a child of ours that nobody else waits for; its status is not asked for.
        unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
        let ended = monotonic_ns();
        let began = began.load(Ordering::Relaxed);
        // Else the child preempted its parent in the call.
        if let Some(child) = began.checked_sub(made) {
            timed.child.push(child);
            timed.end.push(ended.saturating_sub(began));
        }
    }
    Ok(())
}

/// One or five messages at a time to a reader on the same CPU that does not preempt, so that it finds them in a row:
/// what a wait costs it does not grow with the messages.
fn messages(cpu: CpuId, until: &Until) -> io::Result<()> {
    let (mut reader, mut writer) = io::pipe()?;
    let taker = spawn("taker", cpu, move || {
        set_batch()?;
        let mut message = [0; MESSAGE_BYTES];
        while reader.read(&mut message)? == MESSAGE_BYTES {}
        Ok(())
    });
    pin(cpu)?;
    let mut count = 1;
    while !until.is_over() {
        for _ in 0..count {
            writer.write_all(&[1; MESSAGE_BYTES])?;
        }
        count = 6 - count;
        thread::sleep(Duration::from_micros(100));
    }
    drop(writer);
    join(vec![taker])
}

/// Makes the calling thread one that preempts nobody when it wakes.
fn set_batch() -> io::Result<()> {
    // SAFETY: a struct of plain numbers that the call reads.
    let result = unsafe {
        let mut parameters: libc::sched_param = std::mem::zeroed();
        parameters.sched_priority = 0;
        libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameters)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_is_what_two_yielding_tasks_take_beside_their_yields() {
        // Both yielded 100 times at 300 ns and were switched away from 80 times at 900 ns.
        assert_eq!(switch_ns(2 * 100 * 300 + 2 * 80 * 900, 100, 80, 300), 900);
        assert_eq!(switch_ns(100, 100, 80, 300), 0, "less than the yields: the clock says nothing");
    }

    #[test]
    fn a_gate_lets_pass_once_for_each_opening() {
        let gate = Gate::default();
        gate.open();
        gate.open();
        gate.pass();
        assert_eq!(gate.0.load(Ordering::Relaxed), 0, "two openings are one");
    }
}
