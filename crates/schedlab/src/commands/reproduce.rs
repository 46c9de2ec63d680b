//! `schedlab reproduce`: the tables of a paper, its numbers as printed beside ours.
//!
//! Not here: the runs ([`super::bench`]), the schedulers (bpf/schedulers), the machine (machines/).

use super::Context;
use super::bench::{self, BenchRow};
use crate::args::MachineChoice;
use crate::args::bench::{Bench, BenchArgs};
use crate::args::reproduce::{Paper, ReproduceArgs};
use crate::failure::Failure;
use crate::output::{print_text, write_file};
use schedlab_report::samples::{Summary, six_sigma, summarise};
use std::fmt::Write;

/// A row of the slides' wake-up tables, µs: mean, min, max, deviation.
type Printed = [f64; 4];

/// One scheduler as the slides print it.
struct OfPaper {
    name: &'static str,
    hackbench_s: f64,
    rt: Printed,
    rt_filtered: Printed,
    normal: Printed,
    normal_filtered: Printed,
}

const PLUGSCHED: [OfPaper; 4] = [
    OfPaper {
        name: "ingosched",
        hackbench_s: 38.620,
        rt: [575.03, 37.0, 448_262.0, 14_171.0],
        rt_filtered: [126.38, 37.0, 410.0, 125.0],
        normal: [1_840.22, 38.0, 129_328.0, 11_304.0],
        normal_filtered: [776.66, 38.0, 45_828.0, 3_742.0],
    },
    OfPaper {
        name: "ingo_ll",
        hackbench_s: 78.689,
        rt: [386.66, 33.0, 82_750.0, 4_000.0],
        rt_filtered: [169.79, 33.0, 468.0, 142.0],
        normal: [214_211.99, 152.0, 1_554_755.0, 192_334.0],
        normal_filtered: [212_868.76, 152.0, 968_781.0, 187_688.0],
    },
    OfPaper {
        name: "nicksched",
        hackbench_s: 45.717,
        rt: [119.31, 34.0, 1_013.0, 120.0],
        rt_filtered: [116.09, 34.0, 473.0, 110.0],
        normal: [117.19, 34.0, 1_183.0, 115.0],
        normal_filtered: [116.12, 34.0, 406.0, 110.0],
    },
    OfPaper {
        name: "staircase",
        hackbench_s: 43.845,
        rt: [167.15, 36.0, 66_277.0, 2_095.0],
        rt_filtered: [101.03, 36.0, 1_092.0, 117.0],
        normal: [162.75, 38.0, 1_849.0, 177.0],
        normal_filtered: [155.49, 38.0, 1_221.0, 145.0],
    },
];

/// CPU time of a message at 300 MHz: calibrated so that ingosched takes in hackbench what the slides print; the other
/// schedulers, and the wake-up tables, are what is judged.
const MESSAGE: [&str; 2] = ["send=9us", "receive=8us"];

/// Runs it.
pub fn run(args: &ReproduceArgs, context: Context) -> Result<(), Failure> {
    let Paper::Plugsched2006 = args.paper;
    let hackbench = rows(args, Bench::Hackbench, &["groups=30".to_owned()], context)?;
    let wakeup = rows(args, Bench::Wakeup, &[format!("samples={}", args.samples)], context)?;
    if let Some(path) = &args.json {
        let all: Vec<&BenchRow> = hackbench.iter().chain(&wakeup).collect();
        let text = serde_json::to_string_pretty(&all).map_err(Failure::input)?;
        write_file(path, text.as_bytes())?;
    }
    if args.json.as_deref().is_none_or(|path| path.as_os_str() != "-") {
        print_text(&(hackbench_table(&hackbench) + &wakeup_tables(&wakeup) + &claims(&hackbench, &wakeup)))?;
    }
    Ok(())
}

fn rows(
    args: &ReproduceArgs,
    bench: Bench,
    sets: &[String],
    context: Context,
) -> Result<Vec<BenchRow>, Failure> {
    let set = sets.iter().cloned().chain(MESSAGE.map(str::to_owned)).collect();
    let machine = MachineChoice { machine: Some("paper-plugsched".to_owned()), cpus: None, kernel: None };
    let scheduler = PLUGSCHED.iter().map(|row| row.name.to_owned()).collect();
    bench::rows(&BenchArgs { bench, scheduler, set, seed: args.seed, json: None, machine }, context)
}

fn hackbench_table(rows: &[BenchRow]) -> String {
    let mut out = "hackbench 30, s until all is done\n".to_owned();
    writeln!(out, "  {:<12} {:>10} {:>10} {:>16} {:>10}", "", "slides", "ours", "slides' ratio", "ours")
        .expect("text");
    let (first, ours_first) = (PLUGSCHED[0].hackbench_s, rows[0].duration_ns as f64 / 1e9);
    for (paper, row) in PLUGSCHED.iter().zip(rows) {
        let ours = row.duration_ns as f64 / 1e9;
        let (ratio, ours_ratio) = (paper.hackbench_s / first, ours / ours_first);
        let name = paper.name;
        writeln!(
            out,
            "  {name:<12} {:>10.3} {ours:>10.3} {ratio:>16.2} {ours_ratio:>10.2}",
            paper.hackbench_s
        )
        .expect("text");
    }
    out
}

fn summary_of(rows: &[BenchRow], part: &str, name: &str, filtered: bool) -> Option<Summary> {
    let row = rows.iter().find(|row| row.part == part && row.scheduler == name)?;
    if filtered { summarise(&six_sigma(&row.samples_ns)) } else { summarise(&row.samples_ns) }
}

fn wakeup_tables(rows: &[BenchRow]) -> String {
    let mut out = String::new();
    for (part, thread) in [("rt", "real-time"), ("normal", "ordinary")] {
        for filtered in [false, true] {
            let what = if filtered { "filtered at 6 deviations" } else { "raw" };
            let columns = "mean        min        max  deviation";
            writeln!(out, "\nWake-up of a {thread} thread beside hackbench 10, us, {what}").expect("text");
            writeln!(
                out,
                "  {:<12} {:>44}   | {:>44}",
                "",
                format!("slides: {columns}"),
                format!("ours: {columns}")
            )
            .expect("text");
            for paper in &PLUGSCHED {
                let printed = match (part, filtered) {
                    ("rt", false) => paper.rt,
                    ("rt", true) => paper.rt_filtered,
                    (_, false) => paper.normal,
                    (_, true) => paper.normal_filtered,
                };
                let ours = summary_of(rows, part, paper.name, filtered)
                    .map_or([0.0; 4], |s| [s.mean, s.min as f64, s.max as f64, s.standard_deviation])
                    .map(|ns| ns / 1000.0);
                let cells = |row: Printed| row.map(|value| format!("{value:>10.2}")).join(" ");
                writeln!(out, "  {:<12} {:>44}   | {:>44}", paper.name, cells(printed), cells(ours))
                    .expect("text");
            }
        }
    }
    out
}

/// Names from the least to the most of what is given in the order of [`PLUGSCHED`].
fn order(values: &[f64]) -> Vec<&'static str> {
    let mut indexes: Vec<usize> = (0..values.len()).collect();
    indexes.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    indexes.iter().map(|index| PLUGSCHED[*index].name).collect()
}

/// What the slides say, and whether it comes out.
fn claims(hackbench: &[BenchRow], wakeup: &[BenchRow]) -> String {
    let mean = |part: &str, name: &str| summary_of(wakeup, part, name, true).map_or(f64::NAN, |s| s.mean);
    let means = |part: &str| PLUGSCHED.iter().map(|row| mean(part, row.name)).collect::<Vec<f64>>();
    let seconds: Vec<f64> = hackbench.iter().map(|row| row.duration_ns as f64).collect();
    let (rt, normal) = (means("rt"), means("normal"));
    let best = normal.iter().copied().fold(f64::INFINITY, f64::min);
    let spread = |values: &[f64]| {
        values.iter().copied().fold(0.0, f64::max) / values.iter().copied().fold(f64::INFINITY, f64::min)
    };
    let printed = |value: fn(&OfPaper) -> f64| order(&PLUGSCHED.iter().map(value).collect::<Vec<f64>>());
    let longest = summary_of(wakeup, "rt", "ingosched", true).map_or(f64::NAN, |s| s.max as f64);
    let list = [
        (
            "order in hackbench, fastest first",
            order(&seconds) == printed(|row| row.hackbench_s),
            order(&seconds).join(" < "),
        ),
        (
            "order of filtered mean wake-ups of the ordinary thread",
            order(&normal) == printed(|row| row.normal_filtered[0]),
            order(&normal).join(" < "),
        ),
        (
            "wake-ups of the real-time thread hardly differ (slides: a factor of 1.7)",
            spread(&rt) <= 1.7,
            format!("a factor of {:.2}", spread(&rt)),
        ),
        (
            "ingo_ll wakes the ordinary thread at least 50 times later than the best does",
            mean("normal", "ingo_ll") >= 50.0 * best,
            format!("{:.0} times", mean("normal", "ingo_ll") / best),
        ),
        (
            "ingosched wakes the ordinary thread several times later than nicksched and staircase",
            mean("normal", "ingosched") >= 3.0 * mean("normal", "staircase"),
            format!("{:.1} times staircase", mean("normal", "ingosched") / mean("normal", "staircase")),
        ),
        (
            "nicksched: real-time and ordinary are the same, like for like",
            (mean("rt", "nicksched") / mean("normal", "nicksched") - 1.0).abs() < 0.1,
            format!("{:.2}", mean("rt", "nicksched") / mean("normal", "nicksched")),
        ),
        (
            "a real-time thread answers within 1 ms (filtered)",
            longest <= 1e6,
            format!("{:.0} us at most under ingosched", longest / 1000.0),
        ),
    ];
    let mut out = "\nWhat the slides say\n".to_owned();
    for (claim, holds, found) in list {
        writeln!(out, "  {} {claim}: {found}", if holds { "yes" } else { "NO " }).expect("text");
    }
    out
}
