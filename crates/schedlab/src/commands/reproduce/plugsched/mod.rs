//! plugsched-2006: hackbench, wake-ups and interbench under the four schedulers of the slides.
//!
//! [`printed`] is what the slides print, [`tables`] and [`claims`] set ours beside it, [`code`] is what the schedulers' own code
//! does. Not here: the runs
//! ([`bench`]), the schedulers (bpf/schedulers), the machine (machines/).

mod claims;
mod code;
mod printed;
mod tables;

use crate::args::MachineChoice;
use crate::args::bench::{Bench, BenchArgs};
use crate::args::program::ProgramsChoice;
use crate::args::reproduce::ReproduceArgs;
use crate::commands::bench::{self, Row, Tell};
use crate::commands::reproduce::About;
use crate::commands::{Context, common};
use crate::failure::Failure;
use crate::kept::Kept;
use crate::output::{print_text, write_file};
use printed::PLUGSCHED;
use schedlab_report::bench::Line;
use serde::Serialize;
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
const INTERBENCH: [&str; 4] = ["copy=1ms", "turn=1ms", "mib=10ms", "swap=50ms"];

/// The slides' three.
const BENCHES: [Bench; 3] = [Bench::Hackbench, Bench::Wakeup, Bench::Interbench];

/// Runs of hackbench and of the wake-ups, each with the next seed. The tables have the first, as the slides have one; few
/// samples decide some of its numbers, so claims of ratios are judged by the middle of all.
const RUNS: u64 = 5;
const RUNS_QUICK: u64 = 1;

/// What to know of its quick run.
const QUICK: &str = "quick: hackbench 3 instead of 30, 100 broadcasts beside hackbench 1, 3 s of interbench, one seed: a look at the\n\
    page, whose numbers and verdicts say nothing of the slides\n\n";

/// Everything that was run.
#[derive(Debug, Serialize)]
struct Ours {
    #[serde(flatten)]
    first: Run,
    interbench: Vec<Row>,
    interbench_rt: Vec<Row>,
    /// Wake-ups without what is fitted to those of the real-time thread, by which that one is judged.
    wakeup_unfitted: Vec<Row>,
    code: code::Code,
    again: Vec<Run>,
}

/// What is run with several seeds.
#[derive(Debug, Serialize)]
struct Run {
    seed: u64,
    hackbench: Vec<Row>,
    wakeup: Vec<Row>,
    /// Wake-ups under ingosched if children of the load begin without a rating, and all that a task runs lowers its.
    wakeup_unrated: Vec<Row>,
}

/// A run that is over, as a line: which list of [`Ours`] it will be in.
#[derive(Serialize)]
struct OfPaper<'a> {
    of: &'a str,
    seed: u64,
    #[serde(flatten)]
    line: Line,
}

impl Ours {
    fn runs(&self) -> impl Iterator<Item = &Run> {
        std::iter::once(&self.first).chain(&self.again)
    }
}

/// Runs it.
pub fn run(args: &ReproduceArgs, context: Context) -> Result<(), Failure> {
    let interrupted = common::interrupt_flag();
    let kept = Kept::beside(args.json.as_deref(), &About::of(args))?;
    let rows = |of, bench, schedulers: &[&str], sets: &[&str], seed| {
        rows(
            args,
            bench,
            (schedulers, sets),
            seed,
            context,
            (&interrupted, &|line| kept.add(&OfPaper { of, seed, line })),
        )
    };
    let of_all = [&KNOBS[..], &KNOBS_INGO_LL].concat();
    let all = |of, bench, sets: &[&str], seed| {
        rows(of, bench, &PLUGSCHED.map(|paper| paper.name), &[sets, &of_all].concat(), seed)
    };
    let [load, of_wakeup]: [&[&str]; 2] =
        if args.quick { [&["groups=3"], &["groups=1", "samples=100"]] } else { [&["groups=30"], &[]] };
    let length: &[&str] = if args.quick { &["length=3s"] } else { &["length=30s"] };
    let interbench = [&INTERBENCH[..], length].concat();
    let wakeup = |of, own: &[&str], seed| {
        all(of, Bench::Wakeup, &[&HACKBENCH[..], &WAKEUP, of_wakeup, own].concat(), seed)
    };
    let unrated =
        [&HACKBENCH[..], &WAKEUP, of_wakeup, &KNOBS, &["child_penalty=0", "run_by_bonus=0"]].concat();
    let run = |seed| -> Result<Run, Failure> {
        let hackbench = all("hackbench", Bench::Hackbench, &[&HACKBENCH[..], load].concat(), seed)?;
        let wakeup_unrated = rows("wakeup_unrated", Bench::Wakeup, &["ingosched"], &unrated, seed)?;
        Ok(Run { seed, hackbench, wakeup: wakeup("wakeup", &[], seed)?, wakeup_unrated })
    };
    let runs = if args.quick { RUNS_QUICK } else { RUNS };
    let ours = Ours {
        first: run(args.seed)?,
        interbench: all("interbench", Bench::Interbench, &interbench, args.seed)?,
        interbench_rt: all(
            "interbench_rt",
            Bench::Interbench,
            &[&interbench[..], &["rt=1"]].concat(),
            args.seed,
        )?,
        wakeup_unfitted: wakeup("wakeup_unfitted", &["cold=0ms"], args.seed)?,
        code: code::measure()?,
        again: (1..runs)
            .take_while(|_| !interrupted.load(Ordering::Relaxed))
            .map(|more| run(args.seed.wrapping_add(more)))
            .collect::<Result<_, _>>()?,
    };
    if let Some(path) = &args.json {
        let text = serde_json::to_string(&ours).map_err(Failure::input)?;
        write_file(path, (text + "\n").as_bytes())?;
        kept.done();
    }
    if interrupted.load(Ordering::Relaxed) {
        return Err(Failure::Interrupted);
    }
    if args.json.as_deref().is_none_or(|path| path.as_os_str() != "-") {
        let quick = if args.quick { QUICK } else { "" };
        print_text(&(quick.to_owned() + &tables::all(&ours) + &claims::all(&ours)))?;
    }
    Ok(())
}

/// How the board's kernel measured time: its `sched_clock()` counted jiffies (arch/mips/kernel/time.c of 2.6.17). Tasks that
/// were there before have no bonus, as on Linux of that time from `init` on. The source of ingo_ll is lost. Here it is as it
/// was announced, with the limit of the patch before, and without two points that only that patch had: a reading, made with
/// what comes of it known.
const KNOBS: [&str; 2] = ["jiffy_clock=1", "initial_bonus=0"];
const KNOBS_INGO_LL: [&str; 2] = ["wake_point=0", "slice_point=0"];

fn rows(
    args: &ReproduceArgs,
    bench: Bench,
    (schedulers, sets): (&[&str], &[&str]),
    seed: u64,
    context: Context,
    (interrupted, tell): (&Arc<AtomicBool>, Tell<'_>),
) -> Result<Vec<Row>, Failure> {
    // A parameter of another load is none of this one's, nor a knob.
    let is_of_any = |set: &str| BENCHES.iter().any(|&bench| bench::is_parameter(bench, set));
    let is_mine = |set: &&String| bench::is_parameter(bench, set) || !is_of_any(set);
    let of_reader = args.set.iter().filter(is_mine).cloned();
    let machine = MachineChoice { machine: Some("paper-plugsched".to_owned()), cpus: None, kernel: None };
    let args = BenchArgs {
        bench,
        scheduler: schedulers.iter().map(|name| (*name).to_owned()).collect(),
        set: sets.iter().map(|set| (*set).to_owned()).chain(of_reader).collect(),
        live: false,
        model: false,
        quick: false,
        // 2.6.17 had none, and two of the four let tasks wait for longer than it allows.
        no_watchdog: true,
        duration: None,
        seed,
        jobs: args.jobs,
        json: None,
        from: None,
        machine,
        programs: ProgramsChoice::default(),
    };
    let mut rows = bench::rows(&args, context, interrupted, tell)?;
    for row in &mut rows {
        // Without its knobs, which are all the same.
        row.scheduler.truncate(row.scheduler.find(':').unwrap_or(row.scheduler.len()));
    }
    Ok(rows)
}

/// One value for each scheduler, in the order of [`PLUGSCHED`]; not a number where there is none.
fn of_each(rows: &[Row], part: &str, value: impl Fn(&Row) -> Option<f64>) -> [f64; 4] {
    PLUGSCHED.each_ref().map(|paper| {
        let row = rows.iter().find(|row| row.scheduler == paper.name && row.part == part);
        row.and_then(&value).unwrap_or(f64::NAN)
    })
}

/// Filtered mean of wake-up latencies in us.
fn wakeup_means(wakeup: &[Row], part: &str) -> [f64; 4] {
    of_each(wakeup, part, |row| row.summary(true).map(|summary| summary.mean / 1e3))
}

fn hackbench_seconds(run: &Run) -> [f64; 4] {
    of_each(&run.hackbench, "hackbench", |row| Some(row.duration_ns as f64 / 1e9))
}
