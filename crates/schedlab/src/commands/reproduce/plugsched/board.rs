//! The slides' board, simulated.

use super::printed::PLUGSCHED;
use super::{Ours, Place, Run, Tell, code, of_reader, plain, quick};
use crate::args::MachineChoice;
use crate::args::bench::{Bench, BenchArgs};
use crate::args::program::ProgramsChoice;
use crate::args::reproduce::ReproduceArgs;
use crate::commands::Context;
use crate::commands::bench::{self, Row};
use crate::failure::Failure;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What is the program's own of a message; its calls, and forks, are costs of the board.
/// Sockets are those of 2.6.17 on 32 bits: a buffer of 110,592 bytes (`SK_WMEM_MAX`, 256 times `sizeof(struct sk_buff)` of 176
/// and 256) takes messages of 304 (128 and the sk_buff) until it is full, 364, and three quarters must be free before
/// senders go on. Of a byte (32 and the sk_buff) 532 fit.
const HACKBENCH: [&str; 7] =
    ["send=1us", "receive=1us", "fork=0ns", "start=200us", "buffer=36400", "resume=27400", "ready=532"];

/// The slides print the time between broadcasts only as an example, of 33 ms, and speak of no pause before the first: here
/// they begin with the load. What a thread needs more until it is back is fitted to the mean of the slides' four filtered
/// means of the real-time one, 128 us, of which the board's costs are 20, to be judged by the ordinary one.
const WAKEUP: [&str; 5] = ["run=50us", "period=33ms", "settle=0ms", "loops=100", "cold=108us"];

/// Blocks and turns take ten times what they take on a recent machine; memory and a disk of that time copy 100 and 20 MB in a
/// second. All assumed.
const INTERBENCH: [&str; 5] = ["copy=1ms", "turn=1ms", "mib=10ms", "swap=50ms", "length=30s"];

/// Runs of hackbench and of the wake-ups, each with the next seed. The tables have the first, as the slides have one; few
/// samples decide some of its numbers, so claims of ratios are judged by the middle of all.
const RUNS: u64 = 5;
const RUNS_QUICK: u64 = 1;

/// How the board's kernel measured time: its `sched_clock()` counted jiffies (arch/mips/kernel/time.c of 2.6.17). Tasks that
/// were there before have no bonus, as on Linux of that time from `init` on. The source of ingo_ll is lost. Here it is as it
/// was announced, with the limit of the patch before, and without two points that only that patch had: a reading, made with
/// what comes of it known.
const KNOBS: [&str; 2] = ["jiffy_clock=1", "initial_bonus=0"];
pub const KNOBS_INGO_LL: [&str; 2] = ["wake_point=0", "slice_point=0"];

/// Runs everything there.
pub fn simulate(
    args: &ReproduceArgs,
    context: Context,
    interrupted: &Arc<AtomicBool>,
    tell: Tell<'_>,
) -> Result<Ours, Failure> {
    let board = Board { args, context, interrupted, tell };
    let runs = if args.quick { RUNS_QUICK } else { RUNS };
    let interbench_rt = [&INTERBENCH[..], &["rt=1"]].concat();
    Ok(Ours {
        place: Place::Board,
        first: board.run(args.seed)?,
        interbench: board.all("interbench", Bench::Interbench, &INTERBENCH, args.seed)?,
        interbench_rt: board.all("interbench_rt", Bench::Interbench, &interbench_rt, args.seed)?,
        wakeup_unfitted: board.all("wakeup_unfitted", Bench::Wakeup, &wakeup(&["cold=0ms"]), args.seed)?,
        code: Some(code::measure()?),
        again: (1..runs)
            .take_while(|_| !interrupted.load(Ordering::Relaxed))
            .map(|more| board.run(args.seed.wrapping_add(more)))
            .collect::<Result<_, _>>()?,
    })
}

/// Settings of the wake-ups with some of their own.
fn wakeup(own: &[&'static str]) -> Vec<&'static str> {
    [&HACKBENCH[..], &WAKEUP, own].concat()
}

struct Board<'a> {
    args: &'a ReproduceArgs,
    context: Context,
    interrupted: &'a Arc<AtomicBool>,
    tell: Tell<'a>,
}

impl Board<'_> {
    /// What is run with each seed.
    fn run(&self, seed: u64) -> Result<Run, Failure> {
        let hackbench = [&HACKBENCH[..], &["groups=30"]].concat();
        let unrated = [&wakeup(&["child_penalty=0", "run_by_bonus=0"])[..], &KNOBS].concat();
        Ok(Run {
            seed,
            hackbench: self.all("hackbench", Bench::Hackbench, &hackbench, seed)?,
            wakeup_unrated: self.rows("wakeup_unrated", Bench::Wakeup, &["ingosched"], &unrated, seed)?,
            wakeup: self.all("wakeup", Bench::Wakeup, &wakeup(&[]), seed)?,
        })
    }

    /// Under all four.
    fn all(&self, of: &str, bench: Bench, sets: &[&str], seed: u64) -> Result<Vec<Row>, Failure> {
        let sets = [sets, &KNOBS, &KNOBS_INGO_LL].concat();
        self.rows(of, bench, &PLUGSCHED.map(|paper| paper.name), &sets, seed)
    }

    fn rows(
        &self,
        of: &str,
        bench: Bench,
        schedulers: &[&str],
        sets: &[&str],
        seed: u64,
    ) -> Result<Vec<Row>, Failure> {
        let of_reader = of_reader(self.args, bench);
        let sets = sets.iter().chain(quick(self.args, bench)).map(|set| (*set).to_owned());
        let args = BenchArgs {
            bench,
            scheduler: schedulers.iter().map(|name| (*name).to_owned()).collect(),
            set: sets.chain(of_reader).collect(),
            live: false,
            model: false,
            quick: false,
            // 2.6.17 had none, and two of the four let tasks wait for longer than it allows.
            no_watchdog: true,
            duration: None,
            seed,
            jobs: self.args.jobs,
            json: None,
            from: None,
            machine: MachineChoice { machine: Some("paper-plugsched".to_owned()), cpus: None, kernel: None },
            programs: ProgramsChoice::default(),
        };
        let tell = |line| (self.tell)(of, seed, line);
        Ok(plain(bench::rows(&args, self.context, self.interrupted, &tell)?))
    }
}
