//! `schedlab bench programs`: small programs, each alone and while all others are run again and again beside it.
//!
//! [`live`] runs the real ones, [`simulated`] their models. The one that is measured has each of the nice values, the
//! others have 0. Not here: the programs (schedlab-programs), their models (schedlab-model's `workload/programs.rs`).

mod live;
mod simulated;

use super::super::Context;
use super::super::common;
use super::Tell;
use crate::args::bench::BenchArgs;
use crate::args::program::Which;
use crate::commands::program::{has_sysbench, why_no_sysbench};
use crate::failure::Failure;
use anyhow::anyhow;
use schedlab_model::outcome::Obtained;
use schedlab_report::bench::About;
use schedlab_report::compare::stats;
use schedlab_report::text::Table;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub(super) use schedlab_report::bench::ProgramRow as Row;

/// One program at one nice value, alone or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Case {
    which: Which,
    nice: i8,
    together: bool,
}

/// What is run, in which order and how often.
pub(super) struct Plan {
    programs: Vec<Which>,
    cases: Vec<Case>,
    rounds: u32,
    quick: bool,
}

impl Plan {
    /// Of the command line.
    pub(super) fn new(args: &BenchArgs) -> Result<Plan, Failure> {
        let choice = &args.programs;
        let there = |which: &Which| match which {
            Which::SysbenchCpu | Which::SysbenchThreads if args.live => has_sysbench(),
            // Its model is that of primes.
            Which::SysbenchCpu => false,
            _ => true,
        };
        let wanted = |which: &Which| match choice.program.is_empty() {
            true => there(which),
            false => choice.program.contains(which),
        };
        let programs: Vec<Which> = Which::ALL.into_iter().filter(wanted).collect();
        if programs.len() < 2 {
            return Err(Failure::BadInput(anyhow!(
                "one program has nothing to run beside: give two or more, e.g. --program fibo,rays"
            )));
        }
        if let Some(missing) = programs.iter().find(|which| !there(which)) {
            return Err(match args.live {
                true => {
                    Failure::Machine(anyhow!("{}: {} or leave it out", missing.name(), why_no_sysbench()))
                }
                false => Failure::BadInput(anyhow!(
                    "{} has no model of its own: take primes, or run it with --live",
                    missing.name()
                )),
            });
        }
        let nices = if choice.nice.is_empty() { vec![0, 5, 10] } else { choice.nice.clone() };
        let case = |which: Which| {
            nices
                .iter()
                .flat_map(move |nice| [false, true].map(|together| Case { which, nice: *nice, together }))
        };
        let cases = programs.iter().copied().flat_map(case).collect();
        let rounds = choice.rounds.unwrap_or(if args.quick { 3 } else { 5 });
        Ok(Plan { cases, rounds, quick: args.quick, programs })
    }

    /// How often each case is run.
    pub(super) fn rounds(&self) -> u32 {
        self.rounds
    }

    /// The programs beside one.
    fn others(&self, which: Which) -> impl Iterator<Item = Which> {
        self.programs.iter().copied().filter(move |other| *other != which)
    }

    /// A row for each case, still without numbers.
    fn rows(&self, scheduler: &str, obtained: Obtained) -> Vec<Row> {
        let row = |case: &Case| Row {
            scheduler: scheduler.to_owned(),
            program: case.which.name().to_owned(),
            threads: threads(case.which),
            nice: case.nice,
            together: case.together,
            obtained: obtained.into(),
            ..Row::default()
        };
        self.cases.iter().map(row).collect()
    }
}

/// Threads of a program in the benchmark.
fn threads(which: Which) -> u32 {
    match which {
        Which::Rays | Which::SysbenchThreads => 4,
        _ => 1,
    }
}

/// Rows of every scheduler; those numbers that were made before `interrupted` was raised.
pub(super) fn rows(
    args: &BenchArgs,
    plan: &Plan,
    context: Context,
    interrupted: &Arc<AtomicBool>,
    tell: Tell<'_>,
) -> Result<Vec<Row>, Failure> {
    let rows = if args.live { live::rows } else { simulated::rows };
    rows(args, plan, context, interrupted, tell)
}

/// The row of a case with the one round that is over.
fn round(row: &Row, seconds: f64, mflops: Option<f64>) -> Row {
    Row { seconds: vec![seconds], mflops: mflops.into_iter().collect(), ended: None, ..row.clone() }
}

/// All that is printed.
pub(super) fn tables(rows: &[Row], about: &About) -> String {
    let rounds = about.rounds.unwrap_or_default();
    table(rows, rounds) + &too_little(rows, rounds, about.quick)
}

/// Each row of a program alone with that of the same beside others.
fn pairs(rows: &[Row]) -> impl Iterator<Item = (&Row, Option<&Row>)> {
    rows.iter().filter(|row| !row.together).map(|alone| {
        let same = |row: &&Row| {
            row.together
                && (&row.scheduler, &row.program, row.nice) == (&alone.scheduler, &alone.program, alone.nice)
        };
        (alone, rows.iter().find(same))
    })
}

/// A line for each program, nice value and scheduler: alone, beside the others, and how much longer that takes.
fn table(rows: &[Row], rounds: u32) -> String {
    let header = [
        "scheduler",
        "program",
        "nice",
        "alone, s",
        "beside others, s",
        "times as long",
        "mflops alone",
        "beside",
    ];
    let mut table = Table::new(&header);
    table.right = (2..header.len()).collect();
    for (alone, beside) in pairs(rows) {
        let of = |row: Option<&Row>, values: fn(&Row) -> &[f64]| {
            row.map_or("-".to_owned(), |row| mean_with_interval(values(row)))
        };
        table.row(vec![
            alone.scheduler.clone(),
            alone.program.clone(),
            alone.nice.to_string(),
            of(Some(alone), |row| &row.seconds),
            of(beside, |row| &row.seconds),
            beside.and_then(|beside| slowdown(alone, beside)).map_or("-".to_owned(), |found| {
                format!("{:.2} ({:.2} to {:.2})", found.estimate, found.low, found.high)
            }),
            of(Some(alone), |row| &row.mflops),
            of(beside, |row| &row.mflops),
        ]);
    }
    format!(
        "Programs, means of {rounds} rounds with 95 % intervals; the others have nice 0\n{}",
        table.render(common::text_options())
    )
}

/// Mean and 95 % interval by Student's t, with as many digits as it takes.
fn mean_with_interval(values: &[f64]) -> String {
    if values.is_empty() {
        return "-".to_owned();
    }
    let mean = stats::mean(values);
    let digits = match mean {
        _ if mean >= 100.0 => 0,
        _ if mean >= 1.0 => 2,
        _ => 4,
    };
    if values.len() < 2 {
        return format!("{mean:.digits$}");
    }
    let count = values.len() as f64;
    let half = stats::t_quantile(0.025, count - 1.0) * (stats::variance(values) / count).sqrt();
    format!("{mean:.digits$} ({:.digits$} to {:.digits$})", (mean - half).max(0.0), mean + half)
}

/// How many times as long it took beside others, from rounds in pairs; the ends are those of a 95 % interval.
struct Slowdown {
    estimate: f64,
    low: f64,
    high: f64,
}

fn slowdown(alone: &Row, beside: &Row) -> Option<Slowdown> {
    let rounds = alone.seconds.iter().zip(&beside.seconds);
    let found = stats::interval(&[rounds.map(|(alone, beside)| (beside / alone).ln()).collect()], 0.05, 1)?;
    Some(Slowdown { estimate: found.estimate.exp(), low: found.low.exp(), high: found.high.exp() })
}

/// An interval that is wider says little of how much longer a program took.
const FACTOR_MAX: f64 = 2.0;

/// What it would take to know slowdowns that are hardly known: intervals narrow with the square root of rounds.
fn too_little(rows: &[Row], rounds: u32, quick: bool) -> String {
    let found: Vec<Slowdown> = pairs(rows).filter_map(|(alone, beside)| slowdown(alone, beside?)).collect();
    let wide: Vec<f64> =
        found.iter().map(|of| of.high / of.low).filter(|factor| *factor > FACTOR_MAX).collect();
    let Some(widest) = wide.iter().copied().reduce(f64::max) else { return String::new() };
    let rounds = f64::from(rounds) * (widest.ln() / FACTOR_MAX.ln()).powi(2);
    let or = if quick { "; without --quick, programs run for ten times as long and fewer do" } else { "" };
    format!(
        "{} of {} slowdowns are known only to within a factor of more than {FACTOR_MAX}: the widest takes about --rounds \
         {:.0}{or}\n",
        wide.len(),
        found.len(),
        rounds.ceil()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(together: bool, seconds: &[f64], mflops: &[f64]) -> Row {
        Row {
            scheduler: "fair".into(),
            program: "fft".into(),
            threads: 1,
            nice: 5,
            together,
            seconds: seconds.to_vec(),
            mflops: mflops.to_vec(),
            ..Row::default()
        }
    }

    #[test]
    fn a_table_has_means_intervals_and_slowdowns() {
        let rows = [row(false, &[1.0, 1.0, 1.0], &[300.0]), row(true, &[2.0, 4.0, 8.0], &[])];
        let text = table(&rows, 3);
        assert!(text.contains("1.00 (1.00 to 1.00)") && text.contains("300"), "{text}");
        // The geometric mean of 2, 4 and 8.
        assert!(text.contains("4.00 ("), "{text}");
        // 4.67 with a deviation of 3.06: 4.303 * 3.06 / sqrt(3) to either side, and no time is below 0.
        assert!(text.contains("4.67 (0.00 to 12.26)"), "{text}");
        assert_eq!(mean_with_interval(&[]), "-");
        assert!(slowdown(&row(false, &[1.0], &[]), &row(true, &[2.0], &[])).is_none());
    }

    /// ln 2, 2 ln 2, 3 ln 2 in three rounds: by Student's t 4.303 ln 2 / sqrt(3) to either side, a factor of 2^4.97, whose
    /// logarithm is 4.97 times that of 2: 74 rounds. The bootstrap's shape makes it some others.
    #[test]
    fn what_is_hardly_known_says_how_many_rounds_it_takes() {
        let [alone, wide, narrow] =
            [[1.0; 3], [2.0, 4.0, 8.0], [2.0, 2.1, 2.2]].map(|seconds| seconds.to_vec());
        let row = |together, seconds: &[f64]| row(together, seconds, &[]);
        let text = too_little(&[row(false, &alone), row(true, &wide)], 3, false);
        let rounds = text.trim_end().rsplit(' ').next().and_then(|rounds| rounds.parse::<f64>().ok());
        assert!(rounds.is_some_and(|rounds| (50.0..110.0).contains(&rounds)), "{text}");
        assert!(text.starts_with("1 of 1 slowdowns"), "{text}");
        assert!(too_little(&[row(false, &alone), row(true, &wide)], 3, true).contains("without --quick"));
        assert_eq!(too_little(&[row(false, &alone), row(true, &narrow)], 3, true), "");
    }
}
