//! `schedlab bench`: the benchmarks of the slides of 2006, with the tables they print.
//!
//! [`programs`] is a benchmark of its own, after the paper of 2021. Of the others, [`plan`] says what is run, [`simulated`] and [`live`] run it
//! ([`loads`] beside the latter), [`samples`] and [`interbench`] take the samples from its
//! events, [`tables`] prints them. Not here: the workloads (schedlab-model's `benchmarks` and `interbench`), what a table says
//! of samples (schedlab-report's `samples`).

mod interbench;
mod live;
mod loads;
mod plan;
mod programs;
mod samples;
mod simulated;
mod tables;

pub use loads::run as load;
pub use plan::is_parameter;

use super::{Context, common};
use crate::args::bench::{Bench, BenchArgs};
use crate::failure::Failure;
use crate::output::{print_text, write_file};
use schedlab_model::memory::Swapped;
use schedlab_model::outcome::Obtained;
use schedlab_report::samples::{Summary, six_sigma, summarise};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What one scheduler did in one part of a benchmark.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The scheduler.
    pub scheduler: String,
    /// Which part: `rt`, `normal`, `TASK/LOAD` of interbench, or the benchmark's name.
    pub part: String,
    /// How it was obtained.
    pub obtained: Obtained,
    /// Time of the whole, in ns.
    pub duration_ns: u64,
    /// Whether it was ended before all was done.
    pub cut: bool,
    /// Why the scheduler ended, if it did not last: the fair class took over then.
    pub ended: Option<String>,
    /// From wake-up to run, in ns; of interbench the latencies of frames.
    pub samples_ns: Vec<u64>,
    /// How late the waker was back from its timer, in ns.
    pub waker_error_ns: Vec<u64>,
    /// How much of all CPU time the load had, in per cent, where its tasks were seen: simulated or recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_cpu_percent: Option<f64>,
    /// How long a task of the load waited for a CPU at most, in ns; simulated only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_wait_max_ns: Option<u64>,
    /// Switches of tasks, to and from idle too; simulated only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_switches: Option<u64>,
    /// What went to the disk for lack of memory; simulated only, on machines whose memory can run short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swapped: Option<Swapped>,
    /// Whether it was not run, for want of room; a note says which.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub left_out: bool,
    /// What a reader must know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// What interbench counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frames: Option<interbench::Counts>,
}

impl Row {
    /// One without numbers.
    fn of(part: &str, obtained: Obtained) -> Row {
        Row {
            scheduler: String::new(),
            part: part.to_owned(),
            obtained,
            duration_ns: 0,
            cut: false,
            ended: None,
            samples_ns: Vec::new(),
            waker_error_ns: Vec::new(),
            load_cpu_percent: None,
            load_wait_max_ns: None,
            context_switches: None,
            swapped: None,
            left_out: false,
            notes: Vec::new(),
            frames: None,
        }
    }

    /// What a table says of the samples, raw or without those above six deviations.
    pub fn summary(&self, filtered: bool) -> Option<Summary> {
        if filtered { summarise(&six_sigma(&self.samples_ns)) } else { summarise(&self.samples_ns) }
    }
}

/// All rows as they are written.
#[derive(Serialize)]
struct File<'a> {
    bench: &'a str,
    command: Vec<String>,
    seed: u64,
    machine: &'a str,
    rows: &'a [Row],
}

/// Every part under every scheduler, in order; those that were made before `interrupted` was raised. `after_each` gets all
/// that there are so far.
pub fn rows(
    args: &BenchArgs,
    context: Context,
    interrupted: &Arc<AtomicBool>,
    after_each: &(dyn Fn(&[Row]) -> Result<(), Failure> + Sync),
) -> Result<Vec<Row>, Failure> {
    let rows = if args.live { live::rows } else { simulated::rows };
    rows(args, context, interrupted, after_each)
}

/// Runs it.
pub fn run(args: &BenchArgs, context: Context) -> Result<(), Failure> {
    if args.bench == Bench::Programs {
        return programs::run(args, context);
    }
    let interrupted = common::interrupt_flag();
    let machine = crate::inputs::machines::resolve(&args.machine, None)?.name;
    let write = |path: &Path, rows: &[Row]| {
        let (bench, command) = (args.bench.name(), std::env::args().collect());
        let file = File { bench, command, seed: args.seed, machine: &machine, rows };
        let text = serde_json::to_string(&file).map_err(Failure::input)?;
        write_file(path, (text + "\n").as_bytes())
    };
    let to_standard_output = args.json.as_deref().is_some_and(|path| path.as_os_str() == "-");
    let after_each = |rows: &[Row]| match args.json.as_deref().filter(|_| !to_standard_output) {
        Some(path) => write(path, rows),
        None => Ok(()),
    };
    let rows = rows(args, context, &interrupted, &after_each)?;
    if to_standard_output {
        write(Path::new("-"), &rows)?;
    } else {
        print_text(&match args.bench {
            Bench::Wakeup => tables::wakeup(&rows),
            Bench::Hackbench => tables::hackbench(&rows),
            Bench::Interbench => tables::interbench(&rows, is_real_time(&args.set)),
            Bench::Programs => unreachable!("it has tables of its own"),
        })?;
        print_text(&tables::notes(&rows))?;
    }
    if interrupted.load(Ordering::Relaxed) {
        return Err(Failure::Interrupted);
    }
    match rows.iter().find_map(|row| row.ended.as_ref().map(|why| (&row.scheduler, why))) {
        Some((scheduler, why)) => Err(Failure::AnswerIsNo(format!(
            "{scheduler} ended early: {why}; the fair class took over. --no-watchdog lets tasks wait for longer"
        ))),
        None => Ok(()),
    }
}

/// Whether the measured task of interbench is real-time: the last setting counts.
fn is_real_time(set: &[String]) -> bool {
    set.iter().rev().find_map(|set| set.strip_prefix("rt=")).is_some_and(|value| value == "1")
}
