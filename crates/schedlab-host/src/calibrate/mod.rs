//! What things cost on this machine: small loads with known parts, played beneath the recorder.
//!
//! Each load makes one kind of event often: switches on one CPU, wake-ups across CPUs, timers on idle CPUs and beside
//! hogs, moves between CPUs. They are played in rounds, and rounds in which others were at work do not count as long as
//! there are better ones. What the recordings show is read elsewhere (schedlab-sim's replay); what only the clock of a
//! load can tell is [`Timed`]. The loads are in [`mod@loads`].

mod loads;
mod stall;

use crate::record::{Detail, Progress, RecordError, RecordOptions, Status, Target, record_in_memory};
use schedlab_model::recording::Recording;
use schedlab_model::timeline::{StretchKind, Timelines};
use schedlab_model::{CpuId, Nanos};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

pub use loads::is_usable;

/// How long one load runs.
const PHASE: Duration = Duration::from_millis(450);
/// Timers and wake-ups are tried on at most so many CPUs.
const CPUS_MAX: usize = 4;
/// So many times the rounds that are enough are not played, however disturbed they were.
const ROUNDS_TIMES: usize = 2;
/// Others that disturb every round, the worst less than so many times as much as the best, do not go away by waiting: a
/// busy machine, or the housekeeping of an emulated one.
const STEADY_TIMES: u64 = 2;
/// CPU time of others in an undisturbed round, in thousandths of the machine's.
pub const OTHERS_PERMILLE_MAX: u64 = 20;

/// Why this machine cannot be calibrated.
#[derive(Debug, thiserror::Error)]
pub enum CalibrateError {
    /// Nothing can be seen.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A load cannot run.
    #[error("cannot play a load: {0}. It needs pipes, a pair of sockets and a thread for each CPU")]
    Load(#[from] io::Error),
    /// It was ended before its time.
    #[error("ended before all was measured; nothing is written")]
    Interrupted,
}

/// What loads timed themselves, in ns.
#[derive(Clone, Debug, Default)]
pub struct Timed {
    /// A byte written to a pipe and read back by the same task.
    pub pipe: Vec<u64>,
    /// The same through a pair of Unix sockets.
    pub socket: Vec<u64>,
    /// A futex woken without waiters.
    pub futex: Vec<u64>,
    /// `sched_yield` of a task that is alone on its CPU.
    pub yields: Vec<u64>,
    /// A switch between two tasks of one CPU that yield to each other, without the yield itself.
    pub switch: Vec<u64>,
    /// A byte through another task on the same CPU and back.
    pub pipe_trip_same: Vec<u64>,
    /// How many such trips there were, and how often one of the two tasks waited in them: who is preempted by its
    /// partner finds the answer there.
    pub trips_and_waits: (u64, u64),
    /// The same through a task on another CPU.
    pub pipe_trip_other: Vec<u64>,
    /// A futex handed to another task on the same CPU and back.
    pub futex_trip_same: Vec<u64>,
    /// Another process made, as its parent sees the call.
    pub fork: Vec<u64>,
    /// From there until the child, for which the parent waits, has begun.
    pub child: Vec<u64>,
    /// From there until the parent knows that it has ended.
    pub end: Vec<u64>,
    /// How much longer than asked for a sleep on an idle CPU took, timer slack included.
    pub overshoot: Vec<u64>,
    /// What the first pass over a warm working set costs more after a move to another CPU.
    pub migration: Vec<u64>,
    /// How long a busy CPU had done nothing when another CPU's interrupt began there.
    pub stall: Vec<u64>,
}

impl Timed {
    fn append(&mut self, mut other: Timed) {
        let pairs = [
            (&mut self.pipe, &mut other.pipe),
            (&mut self.socket, &mut other.socket),
            (&mut self.futex, &mut other.futex),
            (&mut self.yields, &mut other.yields),
            (&mut self.switch, &mut other.switch),
            (&mut self.pipe_trip_same, &mut other.pipe_trip_same),
            (&mut self.pipe_trip_other, &mut other.pipe_trip_other),
            (&mut self.futex_trip_same, &mut other.futex_trip_same),
            (&mut self.fork, &mut other.fork),
            (&mut self.child, &mut other.child),
            (&mut self.end, &mut other.end),
            (&mut self.overshoot, &mut other.overshoot),
            (&mut self.migration, &mut other.migration),
            (&mut self.stall, &mut other.stall),
        ];
        for (all, more) in pairs {
            all.append(more);
        }
        self.trips_and_waits.0 += other.trips_and_waits.0;
        self.trips_and_waits.1 += other.trips_and_waits.1;
    }
}

/// What was seen.
#[derive(Debug)]
pub struct Measured {
    /// Of the rounds that count.
    pub recordings: Vec<Recording>,
    /// By their loads.
    pub timed: Timed,
    /// Rounds played, those that do not count included.
    pub rounds: u32,
    /// CPU time of tasks other than the loads and the recorder in the rounds that count, in thousandths of the machine's.
    pub others_permille: u64,
}

/// Plays the loads on these CPUs beneath the recorder, until `enough` rounds were undisturbed; `step` is told loads done and to be done, `stop`
/// ends early. All that is changed are attributes of threads made for this, which end with it.
pub fn calibrate(
    cpus: &[CpuId],
    enough: usize,
    step: impl Fn(u64, u64) + Clone + Send + 'static,
    stop: &Arc<AtomicBool>,
) -> Result<Measured, CalibrateError> {
    let cpus: Vec<CpuId> = cpus.iter().copied().take(CPUS_MAX).collect();
    let timed = forks_of_small(&cpus, stop)?;
    let mut rounds: Vec<Round> = Vec::new();
    loop {
        let others: Vec<u64> = rounds.iter().map(|round| round.others_permille).collect();
        let Some(more) = rounds_to_play(&others, enough) else { break };
        let done = rounds.len() as u64 * loads::COUNT;
        let total = done + more as u64 * loads::COUNT;
        let step = step.clone();
        rounds.push(round(&cpus, move |load| step(done + load, total), stop)?);
    }
    let others: Vec<u64> = rounds.iter().map(|round| round.others_permille).collect();
    let counting = counting(&others);
    let mut measured =
        Measured { recordings: Vec::new(), timed, rounds: others.len() as u32, others_permille: 0 };
    for (index, round) in rounds.into_iter().enumerate().filter(|(index, _)| counting.contains(index)) {
        measured.others_permille = measured.others_permille.max(others[index]);
        measured.recordings.push(round.recording);
        measured.timed.append(round.timed);
    }
    Ok(measured)
}

/// Forks, as long as this process is small: what one takes grows with the memory that is copied, of which recordings have
/// much.
fn forks_of_small(cpus: &[CpuId], stop: &Arc<AtomicBool>) -> Result<Timed, CalibrateError> {
    let (first, stop) = (cpus[0], Arc::clone(stop));
    let player = thread::Builder::new().name("forks".to_owned()).spawn(move || {
        let mut timed = Timed::default();
        loads::forks(first, PHASE, &stop, &mut timed).map(|()| timed)
    })?;
    let timed = player.join().unwrap_or_else(|_| Err(io::Error::other("a load died")))?;
    Ok(timed)
}

/// How many rounds are to be played at least after those with so much work of others; `None` if there are enough, or if the
/// others are there all the time.
fn rounds_to_play(others: &[u64], enough: usize) -> Option<usize> {
    let undisturbed = others.iter().filter(|permille| **permille <= OTHERS_PERMILLE_MAX).count();
    let (least, most) = (others.iter().min(), others.iter().max());
    let steady =
        undisturbed == 0 && least.zip(most).is_some_and(|(least, most)| *most < STEADY_TIMES * least);
    if steady && others.len() >= enough {
        return None;
    }
    let most = (ROUNDS_TIMES * enough).saturating_sub(others.len());
    let more = enough.saturating_sub(undisturbed).min(most);
    (more > 0).then_some(more)
}

/// Which rounds count: the undisturbed ones, or the least disturbed one if there are none.
fn counting(others: &[u64]) -> Vec<usize> {
    let is_quiet = |index: &usize| others[*index] <= OTHERS_PERMILLE_MAX;
    let quiet: Vec<usize> = (0..others.len()).filter(is_quiet).collect();
    if quiet.is_empty() {
        return (0..others.len()).min_by_key(|index| others[*index]).into_iter().collect();
    }
    quiet
}

/// All loads, once.
struct Round {
    recording: Recording,
    timed: Timed,
    others_permille: u64,
}

fn round(
    cpus: &[CpuId],
    step: impl Fn(u64) + Send + 'static,
    stop: &Arc<AtomicBool>,
) -> Result<Round, CalibrateError> {
    let ended = Arc::new(AtomicBool::new(false));
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    let options = RecordOptions {
        duration: Some(PHASE * 3 * loads::COUNT as u32),
        detail: Detail::Full,
        ..RecordOptions::new(Target::Pid(own))
    };
    // Before the recorder raises its thread's priority, which a thread made later would inherit.
    let (begin, begins) = mpsc::channel();
    let (ends, stops, cpus) = (Arc::clone(&ended), Arc::clone(stop), cpus.to_vec());
    let player = thread::Builder::new().name("calibrate".to_owned()).spawn(move || {
        let played = match begins.recv() {
            Ok(()) => loads::play(&cpus, PHASE, &step, &stops),
            Err(_) => Ok(loads::Played::default()),
        };
        ends.store(true, Ordering::Release);
        played
    })?;
    let recorded = record_in_memory(&options, &mut Watch { begin: Some(begin), ended: &ended, stop });
    let played = player.join().unwrap_or_else(|_| Err(io::Error::other("a load died")));
    let ((recording, summary), played) = (recorded?, played?);
    if stop.load(Ordering::Relaxed) {
        return Err(CalibrateError::Interrupted);
    }
    let mut timed = played.timed;
    if let Some(watched) = &played.watched {
        timed.stall = stall::before_interrupts(&recording, Nanos(summary.started_ns), watched);
    }
    let others_permille = others_permille(&recording);
    Ok(Round { recording, timed, others_permille })
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

/// CPU time of tasks other than the loads and the recorder, in thousandths of the machine's.
fn others_permille(recording: &Recording) -> u64 {
    let timelines = Timelines::of(recording);
    let of_others = timelines.tasks.iter().zip(&recording.tasks).skip(1).filter(|(_, task)| !task.target);
    let running = of_others.flat_map(|(stretches, _)| stretches);
    let running = running.filter(|stretch| matches!(stretch.kind, StretchKind::Running { .. }));
    let used: u64 = running.map(|stretch| stretch.length().0).sum();
    1_000 * used / (recording.duration.0 * recording.machine.topology.online_count() as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_played_until_enough_were_undisturbed_or_it_is_no_use() {
        let three = |others: &[u64]| rounds_to_play(others, 3);
        assert_eq!(three(&[]), Some(3));
        assert_eq!(three(&[0, 20]), Some(1));
        assert_eq!(three(&[0, 300, 20]), Some(1));
        assert_eq!(three(&[0, 300, 20, 5]), None);
        assert_eq!(three(&[300, 300, 30, 300, 300]), Some(1));
        assert_eq!(three(&[300, 0, 300, 300, 300, 300]), None);
        assert_eq!(three(&[300, 300]), Some(3));
        assert_eq!(three(&[300, 300, 290]), None, "it is always so busy");
        assert_eq!(three(&[300, 300, 140]), Some(3), "it may become quiet");
        assert_eq!(
            (rounds_to_play(&[], 1), rounds_to_play(&[20], 1), rounds_to_play(&[21], 1)),
            (Some(1), None, None)
        );
    }

    #[test]
    fn disturbed_rounds_count_only_if_there_are_no_others_and_then_the_best() {
        assert_eq!(counting(&[0, 300, 20]), [0, 2]);
        assert_eq!(counting(&[400, 300, 500]), [1]);
        assert_eq!(counting(&[]), [0; 0]);
    }
}
