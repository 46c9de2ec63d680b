//! plugsched-2006: hackbench, wake-ups and interbench under the four schedulers of the slides.
//!
//! [`printed`] is what the slides print, [`tables`] and [`claims`] set ours beside it, [`board`] simulates the slides' board, [`guest`]
//! measures on a real kernel in virtual machines, [`code`] is what the schedulers' own code does. Not here: the runs
//! ([`bench`]), the schedulers (bpf/schedulers), the machine (machines/).

mod board;
mod claims;
mod code;
mod guest;
mod printed;
mod tables;

use crate::args::bench::Bench;
use crate::args::reproduce::ReproduceArgs;
use crate::commands::bench::{self, Row};
use crate::commands::reproduce::About;
use crate::commands::{Context, common};
use crate::failure::Failure;
use crate::kept::Kept;
use crate::output::{print_text, write_file};
use printed::PLUGSCHED;
use schedlab_report::bench::Line;
use serde::Serialize;
use std::sync::atomic::Ordering;

/// The slides' three.
const BENCHES: [Bench; 3] = [Bench::Hackbench, Bench::Wakeup, Bench::Interbench];

/// Settings of its quick run, after all others: of a parameter that is given twice the last counts.
fn quick(args: &ReproduceArgs, bench: Bench) -> &'static [&'static str] {
    match bench {
        _ if !args.quick => &[],
        Bench::Hackbench => &["groups=3"],
        Bench::Wakeup => &["groups=1", "samples=100"],
        Bench::Interbench => &["length=3s"],
        Bench::Programs => unreachable!("the slides have no programs"),
    }
}

/// What to know of its quick run.
const QUICK: &str = "quick: hackbench 3 instead of 30, 100 broadcasts beside hackbench 1, 3 s of interbench, one seed: a look at the\n\
    page, whose numbers and verdicts say nothing of the slides\n\n";

/// What to know of numbers of virtual machines.
const IN_VM: &str = "measured on Linux 7.2, in virtual machines of one CPU whose clock counts instructions, 1 ns each: other costs than the\n\
    board's, so ratios can be compared with the slides', times cannot\n\n";

/// Where it was run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Place {
    /// On the slides' board, simulated.
    Board,
    /// On a real kernel in virtual machines, whose costs are others.
    VirtualMachine,
}

/// Everything that was run.
#[derive(Debug, Serialize)]
struct Ours {
    place: Place,
    #[serde(flatten)]
    first: Run,
    interbench: Vec<Row>,
    interbench_rt: Vec<Row>,
    /// Wake-ups without what is fitted to those of the real-time thread, by which that one is judged.
    wakeup_unfitted: Vec<Row>,
    /// Simulated only: the objects are the same.
    code: Option<code::Code>,
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

/// Gets each run as soon as it is over: which list of [`Ours`] it will be in, its seed, and itself.
type Tell<'a> = &'a (dyn Fn(&str, u64, Line) -> Result<(), Failure> + Sync);

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
    let tell = |of: &str, seed, line| kept.add(&OfPaper { of, seed, line });
    let obtain = if args.vm { guest::measure } else { board::simulate };
    let ours = obtain(args, context, &interrupted, &tell)?;
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
        let place = if ours.place == Place::VirtualMachine { IN_VM } else { "" };
        print_text(&([quick, place].concat() + &tables::all(&ours) + &claims::all(&ours)))?;
    }
    Ok(())
}

/// What the reader sets of a benchmark: a parameter of another is none of this one's, nor a knob.
fn of_reader(args: &ReproduceArgs, bench: Bench) -> Vec<String> {
    let is_of_any = |set: &str| BENCHES.iter().any(|&bench| bench::is_parameter(bench, set));
    let is_mine = |set: &&String| bench::is_parameter(bench, set) || !is_of_any(set);
    args.set.iter().filter(is_mine).cloned().collect()
}

/// The rows by the plain names of their schedulers, whose knobs are all the same.
fn plain(mut rows: Vec<Row>) -> Vec<Row> {
    for row in &mut rows {
        row.scheduler.truncate(row.scheduler.find(':').unwrap_or(row.scheduler.len()));
    }
    rows
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
