//! What things cost on this machine: small loads with known parts, played beneath the recorder.
//!
//! Each load makes one kind of event often: switches on one CPU, wake-ups across CPUs, timers on idle CPUs and beside
//! hogs, moves between CPUs. What the recording of them shows is read elsewhere (schedlab-sim's replay); here are the
//! loads, and what only the clock of a load can tell ([`Timed`]).

use crate::record::{Detail, Progress, RecordError, RecordOptions, Status, Target, record_in_memory};
use schedlab_model::recording::Recording;
use schedlab_model::{CpuId, Nanos};
use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long one load runs.
const PHASE: Duration = Duration::from_millis(1_600);
/// Bytes that a moved task finds cold: a first-level data cache.
const WARM_BYTES: usize = 32 << 10;
const LINE_BYTES: usize = 64;
/// Timers and wake-ups are tried on at most so many CPUs.
const CPUS_MAX: usize = 4;
/// Loads, for the progress shown.
pub const STEPS: u64 = 6;

/// Why this machine cannot be calibrated.
#[derive(Debug, thiserror::Error)]
pub enum CalibrateError {
    /// Nothing can be seen.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A load cannot run.
    #[error("cannot play a load: {0}. It needs two pipes and a thread for each CPU")]
    Load(#[from] io::Error),
    /// It was ended before its time.
    #[error("ended before all was measured; nothing is written")]
    Interrupted,
}

/// What loads timed themselves, in ns and sorted.
#[derive(Clone, Debug, Default)]
pub struct Timed {
    /// A byte written to a pipe and read back by the same task.
    pub pipe: Vec<u64>,
    /// The same through another task on the same CPU, there and back.
    pub round_trip: Vec<u64>,
    /// What the first pass over a warm working set costs more after a move to another CPU.
    pub migration: Vec<u64>,
    /// A futex woken without waiters.
    pub futex: Vec<u64>,
}

/// What was seen.
#[derive(Debug)]
pub struct Calibration {
    /// Of all loads.
    pub recording: Recording,
    /// By the loads.
    pub timed: Timed,
}

/// Plays the loads on these CPUs beneath the recorder; `step` is told before each, `stop` ends early.
pub fn calibrate(
    cpus: &[CpuId],
    step: impl Fn(u64) + Send + 'static,
    stop: &Arc<AtomicBool>,
) -> Result<Calibration, CalibrateError> {
    let ended = Arc::new(AtomicBool::new(false));
    let cpus: Vec<CpuId> = cpus.iter().copied().take(CPUS_MAX).collect();
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    let options = RecordOptions {
        duration: Some(PHASE * 2 * STEPS as u32),
        detail: Detail::Full,
        ..RecordOptions::new(Target::Pid(own))
    };
    // Before the recorder raises its thread's priority, which a thread made later would inherit.
    let (begin, begins) = mpsc::channel();
    let (ends, stops) = (Arc::clone(&ended), Arc::clone(stop));
    let loads = thread::Builder::new().name("calibrate".to_owned()).spawn(move || {
        let timed = match begins.recv() {
            Ok(()) => play(&cpus, &step, &stops),
            Err(_) => Ok(Timed::default()),
        };
        ends.store(true, Ordering::Release);
        timed
    })?;
    let recorded = record_in_memory(&options, &mut Watch { begin: Some(begin), ended: &ended, stop });
    let timed = loads.join().unwrap_or_else(|_| Err(io::Error::other("a load died")));
    let ((recording, _), timed) = (recorded?, timed?);
    if stop.load(Ordering::Relaxed) {
        return Err(CalibrateError::Interrupted);
    }
    Ok(Calibration { recording, timed })
}

/// Starts the loads when the recorder is attached, ends it with them.
struct Watch<'a> {
    begin: Option<mpsc::Sender<()>>,
    ended: &'a AtomicBool,
    stop: &'a AtomicBool,
}

impl Progress for Watch<'_> {
    fn update(&mut self, _: &Status) {
        if let Some(begin) = self.begin.take() {
            // The loads wait for it; had they died, their error tells why.
            let _ = begin.send(());
        }
    }

    fn stop(&self) -> bool {
        self.ended.load(Ordering::Acquire) || self.stop.load(Ordering::Relaxed)
    }
}

/// All loads, one after the other.
fn play(cpus: &[CpuId], step: &impl Fn(u64), stop: &Arc<AtomicBool>) -> io::Result<Timed> {
    let mut timed = Timed::default();
    let until = || Until { end: Instant::now() + PHASE, stop: Arc::clone(stop) };
    let (first, second) = (cpus[0], cpus.get(1).copied());
    step(0);
    pin(first)?;
    pipe_alone(&until(), &mut timed.pipe)?;
    futex_alone(&until(), &mut timed.futex);
    step(1);
    ping_pong(first, first, &until(), &mut timed.round_trip)?;
    step(2);
    if let Some(second) = second {
        ping_pong(first, second, &until(), &mut Vec::new())?;
    }
    step(3);
    join(cpus.iter().map(|cpu| sleeper(*cpu, None, until())).collect())?;
    step(4);
    beside_hogs(cpus, &until)?;
    step(5);
    if let Some(second) = second {
        moves(first, second, &until(), &mut timed.migration)?;
    }
    for samples in [&mut timed.pipe, &mut timed.round_trip, &mut timed.migration, &mut timed.futex] {
        samples.sort_unstable();
    }
    Ok(timed)
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

fn pipe_alone(until: &Until, samples: &mut Vec<u64>) -> io::Result<()> {
    let (mut reader, mut writer) = io::pipe()?;
    let half = Until { end: until.end - PHASE * 3 / 4, ..until.clone() };
    while !half.is_over() {
        let since = Instant::now();
        for _ in 0..100 {
            writer.write_all(&[1])?;
            reader.read_exact(&mut [0])?;
        }
        samples.push(elapsed(since) / 100);
    }
    Ok(())
}

fn futex_alone(until: &Until, samples: &mut Vec<u64>) {
    let word = std::sync::atomic::AtomicU32::new(0);
    let half = Until { end: until.end - PHASE / 2, ..until.clone() };
    while !half.is_over() {
        let since = Instant::now();
        for _ in 0..100 {
            // SAFETY: wakes waiters on a word of ours that lives; there are none.
            unsafe {
                libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1)
            };
        }
        samples.push(elapsed(since) / 100);
    }
}

/// Answers every byte until the other end is closed.
fn echo(mut from: PipeReader, mut to: PipeWriter) -> io::Result<()> {
    let mut byte = [0];
    while from.read(&mut byte)? == 1 {
        if to.write_all(&byte).is_err() {
            break;
        }
    }
    Ok(())
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

/// Bytes there and back between two pinned tasks.
fn ping_pong(here: CpuId, there: CpuId, until: &Until, samples: &mut Vec<u64>) -> io::Result<()> {
    let (reader, mut writer) = io::pipe()?;
    let (mut answers, answer) = io::pipe()?;
    let pong = spawn("pong", there, move || echo(reader, answer));
    pin(here)?;
    while !until.is_over() {
        let since = Instant::now();
        for _ in 0..10 {
            writer.write_all(&[1])?;
            answers.read_exact(&mut [0])?;
        }
        samples.push(elapsed(since) / 10);
    }
    drop(writer);
    join(vec![pong])
}

/// Sleeps of 0.7 to 1.7 ms, so that they meet every phase of the tick; after each it may write to a pipe.
fn sleeper(cpu: CpuId, mut to: Option<PipeWriter>, until: Until) -> io::Result<JoinHandle<io::Result<()>>> {
    spawn("sleeper", cpu, move || {
        let mut round = 0;
        while !until.is_over() {
            round += 1;
            thread::sleep(Duration::from_micros(700 + round * 37 % 1_000));
            if let Some(to) = &mut to {
                to.write_all(&[1])?;
            }
        }
        Ok(())
    })
}

/// A hog on every CPU; beside the first a sleeper, who also wakes a reader beside the second.
fn beside_hogs(cpus: &[CpuId], until: &impl Fn() -> Until) -> io::Result<()> {
    let mut threads = Vec::new();
    let mut to = None;
    if let Some(&second) = cpus.get(1) {
        let (mut reader, writer) = io::pipe()?;
        to = Some(writer);
        threads.push(spawn("reader", second, move || {
            while reader.read(&mut [0])? == 1 {}
            Ok(())
        }));
    }
    for &cpu in cpus.iter().take(2) {
        let until = until();
        threads.push(spawn("hog", cpu, move || {
            while !until.is_over() {
                std::hint::spin_loop();
            }
            Ok(())
        }));
    }
    threads.push(sleeper(cpus[0], to, until()));
    join(threads)
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
