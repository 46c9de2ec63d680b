//! `schedlab bench`: the benchmarks of the slides of 2006, with the tables they print.
//!
//! [`programs`] is a benchmark of its own, after the paper of 2021. Of the others, [`plan`] says what is run, [`simulated`] and [`live`] run it
//! ([`loads`] beside the latter), [`samples`] and [`interbench`] take the samples from its
//! events, [`tables`] prints them. Not here: the workloads (schedlab-model's `benchmarks` and `interbench`), what a table says
//! of samples (schedlab-report's `samples`), the documents (its `bench`), how samples survive ([`crate::kept`]).

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
use crate::kept::Kept;
use crate::output::{print_text, write_file};
use anyhow::{Context as _, anyhow};
use schedlab_model::outcome::Obtained;
use schedlab_report::bench::{About, BENCH_SCHEMA_VERSION, BenchDocument, Line, Rows};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub use schedlab_report::bench::SampleRow as Row;

/// One without numbers.
fn row(scheduler: &str, part: &str, obtained: Obtained) -> Row {
    Row {
        scheduler: scheduler.to_owned(),
        part: part.to_owned(),
        obtained: obtained.into(),
        ..Row::default()
    }
}

/// Gets each row as soon as its run is over, and of some what is there while they run.
pub type Tell<'a> = &'a (dyn Fn(Line) -> Result<(), Failure> + Sync);

/// Every part under every scheduler, in order; those that were made before `interrupted` was raised.
pub fn rows(
    args: &BenchArgs,
    context: Context,
    interrupted: &Arc<AtomicBool>,
    tell: Tell<'_>,
) -> Result<Vec<Row>, Failure> {
    let rows = if args.live { live::rows } else { simulated::rows };
    rows(args, context, interrupted, tell)
}

/// Runs it, or shows what another run left.
pub fn run(args: &BenchArgs, context: Context) -> Result<(), Failure> {
    if let Some(file) = &args.from {
        return output(args, &kept_by_another(args, file)?);
    }
    let interrupted = common::interrupt_flag();
    let mut about = About {
        schema_version: BENCH_SCHEMA_VERSION,
        bench: args.bench.name().to_owned(),
        command: std::env::args().collect(),
        seed: args.seed,
        machine: crate::inputs::machines::resolve(&args.machine, None)?.name,
        rounds: None,
        quick: args.quick,
    };
    let plan = (args.bench == Bench::Programs).then(|| programs::Plan::new(args)).transpose()?;
    about.rounds = plan.as_ref().map(programs::Plan::rounds);
    let kept = keep(args, &about)?;
    let tell = |line: Line| match line {
        Line::Samples(_) => kept.add_part(&line),
        _ => kept.add(&line),
    };
    let rows = match &plan {
        Some(plan) => Rows::Programs(programs::rows(args, plan, context, &interrupted, &tell)?),
        None => Rows::Samples(rows(args, context, &interrupted, &tell)?),
    };
    let document = BenchDocument { about, rows };
    let shown = output(args, &document);
    let was_interrupted = interrupted.load(Ordering::Relaxed);
    if shown.is_ok() && (args.json.is_some() || !was_interrupted) {
        kept.done();
    }
    if was_interrupted {
        return Err(Failure::Interrupted);
    }
    shown?;
    ended_early(args.bench, &document.rows)
}

/// Where lines go while it runs: beside the document, or for runs that cannot be made again as they were into the current
/// directory. A simulated run is made anew by its command.
fn keep(args: &BenchArgs, about: &About) -> Result<Kept, Failure> {
    let kept = Kept::beside(args.json.as_deref(), about)?;
    if kept.is_somewhere() || !args.live {
        return Ok(kept);
    }
    let name = format!("schedlab-bench-{}-{}.part", args.bench.name(), std::process::id());
    Kept::at(name.into(), about).or_else(|failure| {
        let text =
            format!("schedlab: if this is killed nothing is kept ({failure}): --json FILE writes elsewhere");
        drop(writeln!(std::io::stderr(), "{text}"));
        Ok(Kept::nowhere())
    })
}

/// What is there of a run that was killed, or the document of one that was not.
fn kept_by_another(args: &BenchArgs, file: &Path) -> Result<BenchDocument, Failure> {
    let name = file.display();
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {name}"))?;
    let document = BenchDocument::read(&text).with_context(|| name.to_string())?;
    if document.rows.is_empty() {
        return Err(Failure::BadInput(anyhow!("{name} has no run: none was over when the benchmark ended")));
    }
    match document.about.bench.as_str() {
        bench if bench == args.bench.name() => Ok(document),
        other => Err(Failure::BadInput(anyhow!(
            "{name} is of another benchmark: `schedlab bench {other} --from {name}` shows it"
        ))),
    }
}

/// Writes the document where it is asked for, and prints tables unless that is standard output.
fn output(args: &BenchArgs, document: &BenchDocument) -> Result<(), Failure> {
    if let Some(path) = &args.json {
        let text = serde_json::to_string(document).map_err(Failure::input)?;
        write_file(path, (text + "\n").as_bytes())?;
    }
    if args.json.as_deref().is_some_and(|path| path.as_os_str() == "-") {
        return Ok(());
    }
    let about = &document.about;
    print_text(&match (&document.rows, args.bench) {
        (Rows::Programs(rows), _) => programs::tables(rows, about),
        (Rows::Samples(rows), Bench::Wakeup) => tables::wakeup(rows) + &tables::notes(rows),
        (Rows::Samples(rows), Bench::Interbench) => {
            tables::interbench(rows, is_real_time(&about.command)) + &tables::notes(rows)
        }
        (Rows::Samples(rows), _) => tables::hackbench(rows) + &tables::notes(rows),
    })
}

/// The answer if a scheduler did not last.
fn ended_early(bench: Bench, rows: &Rows) -> Result<(), Failure> {
    let of = |scheduler: &str, why: &Option<String>| {
        why.as_ref().map(|why| format!("{scheduler} ended early: {why}"))
    };
    let ended = match rows {
        Rows::Programs(rows) => rows.iter().find_map(|row| of(&row.scheduler, &row.ended)),
        Rows::Samples(rows) => rows.iter().find_map(|row| of(&row.scheduler, &row.ended)),
    };
    match ended {
        Some(text) if bench == Bench::Programs => Err(Failure::AnswerIsNo(text)),
        Some(text) => Err(Failure::AnswerIsNo(format!(
            "{text}; the fair class took over. --no-watchdog lets tasks wait for longer"
        ))),
        None => Ok(()),
    }
}

/// Whether the measured task of interbench is real-time, by the command that ran it: the last setting counts.
fn is_real_time(command: &[String]) -> bool {
    let sets = command.iter().map(|word| word.strip_prefix("--set=").unwrap_or(word));
    sets.rev().find_map(|set| set.strip_prefix("rt=")).is_some_and(|value| value == "1")
}
