//! `schedlab bench`: the benchmarks of the slides of 2006 on the simulated kernel, with the tables they print.
//!
//! Not here: the workloads (schedlab-model's `builtin`), what tables say of samples (schedlab-report's `samples`).

use super::{Context, common};
use crate::args::bench::{Bench, BenchArgs};
use crate::failure::Failure;
use crate::output::{print_text, write_file};
use crate::simulator::{SimulatedMachine, explain};
use schedlab_model::event::{Event, EventKind, EventSink};
use schedlab_model::lever::Candidate;
use schedlab_model::outcome::RunRequest;
use schedlab_model::recording::TaskInfo;
use schedlab_model::{Nanos, TaskId};
use schedlab_report::samples::{Summary, six_sigma, summarise};
use serde::Serialize;
use std::fmt::Write;

/// What one scheduler did in one benchmark.
#[derive(Clone, Debug, Serialize)]
pub struct BenchRow {
    /// Its name.
    pub scheduler: String,
    /// Which part: `rt`, `normal`, or the benchmark's name.
    pub part: String,
    /// Simulated time of the whole, in ns.
    pub duration_ns: u64,
    /// From wake-up to first run, in ns.
    pub samples_ns: Vec<u64>,
    /// How late the waker was itself, in ns.
    pub waker_error_ns: Vec<u64>,
    /// Why the scheduler ended, if it did not last.
    pub ended: Option<String>,
}

/// Runs it.
pub fn run(args: &BenchArgs, context: Context) -> Result<(), Failure> {
    let rows = rows(args, context)?;
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&rows).map_err(Failure::input)?;
        write_file(path, text.as_bytes())?;
    }
    if args.json.as_deref().is_none_or(|path| path.as_os_str() != "-") {
        print_text(&match args.bench {
            Bench::Wakeup => wakeup_tables(&rows),
            Bench::Hackbench => hackbench_table(&rows),
        })?;
    }
    match rows.iter().find_map(|row| row.ended.as_ref().map(|why| (&row.scheduler, why))) {
        Some((scheduler, why)) => {
            Err(Failure::AnswerIsNo(format!("{scheduler} ended early: {why}; the fair class took over")))
        }
        None => Ok(()),
    }
}

/// The parts of a benchmark, as names and workloads.
fn parts(args: &BenchArgs, parameters: &[String]) -> Vec<(String, String)> {
    let work = |name: &str, more: &[&str]| {
        let all: Vec<&str> = more.iter().copied().chain(parameters.iter().map(String::as_str)).collect();
        if all.is_empty() { name.to_owned() } else { format!("{name}:{}", all.join(",")) }
    };
    match args.bench {
        Bench::Wakeup => vec![
            ("rt".to_owned(), work("wakeup", &["rt=1"])),
            ("normal".to_owned(), work("wakeup", &["rt=0"])),
        ],
        Bench::Hackbench => vec![("hackbench".to_owned(), work("hackbench", &[]))],
    }
}

/// Every part under every scheduler, in order.
pub fn rows(args: &BenchArgs, context: Context) -> Result<Vec<BenchRow>, Failure> {
    let name = if args.bench == Bench::Wakeup { "wakeup" } else { "hackbench" };
    let builtin = schedlab_model::workload::builtin::BUILTINS.iter().find(|builtin| builtin.name == name);
    let known = |set: &String| {
        let key = set.split('=').next().unwrap_or_default();
        builtin.is_some_and(|builtin| builtin.parameters.iter().any(|(parameter, ..)| *parameter == key))
    };
    let (parameters, knobs): (Vec<String>, Vec<String>) = args.set.iter().cloned().partition(known);
    let mut rows = Vec::new();
    for (part, work) in parts(args, &parameters) {
        let prepared = common::prepare(std::slice::from_ref(&work), &args.machine, false, 1)?;
        let kernel = prepared.pieces[0].machine.kernel;
        let candidates = common::candidates(&args.scheduler, &knobs, kernel)?;
        let mut machine = SimulatedMachine::new(prepared.pieces, Some(1), None, common::interrupt_flag());
        for candidate in &candidates {
            let spinner = crate::progress::spinner(context.quiet, format!("{work} under {}", candidate.name));
            machine.prepare(candidate)?;
            rows.push(row(&machine, candidate, &part, args.seed)?);
            spinner.finish_and_clear();
        }
    }
    Ok(rows)
}

fn row(
    machine: &SimulatedMachine,
    candidate: &Candidate,
    part: &str,
    seed: u64,
) -> Result<BenchRow, Failure> {
    let request = RunRequest { candidate, work: 0, seed, cost_seed: None };
    let mut wakes = Wakes::default();
    let (outcome, result) = machine.run_with(&request, &mut wakes).map_err(explain)?;
    Ok(BenchRow {
        scheduler: candidate.name.clone(),
        part: part.to_owned(),
        duration_ns: result.report.simulated.0,
        samples_ns: wakes.woken.samples,
        waker_error_ns: wakes.waker.samples,
        ended: outcome.scheduler_exit.map(|exit| format!("{}: {}", exit.reason, exit.message)),
    })
}

/// Wake-ups of one task until it runs.
#[derive(Default)]
struct Waits {
    task: Option<TaskId>,
    since: Option<Nanos>,
    samples: Vec<u64>,
}

impl Waits {
    fn event(&mut self, event: &Event) {
        match event.kind {
            EventKind::Waking { wakee, .. } if Some(wakee) == self.task => {
                self.since.get_or_insert(event.time);
            }
            EventKind::TimerExpire { task, due } if Some(task) == self.task => self.since = Some(due),
            EventKind::Switch { next, .. } if Some(next) == self.task => {
                if let Some(since) = self.since.take() {
                    self.samples.push(event.time.0 - since.0);
                }
            }
            _ => {}
        }
    }
}

/// The samples of `wakeup`, read off the events as they come.
#[derive(Default)]
struct Wakes {
    waker: Waits,
    woken: Waits,
}

impl EventSink for Wakes {
    fn task(&mut self, id: TaskId, info: &TaskInfo) {
        match info.name.as_str() {
            "waker" => self.waker.task = Some(id),
            "woken" => self.woken.task = Some(id),
            _ => {}
        }
    }

    fn event(&mut self, event: &Event) {
        self.waker.event(event);
        self.woken.event(event);
    }
}

fn line(out: &mut String, name: &str, summary: Option<Summary>) {
    let us = |ns: f64| format!("{:.2}", ns / 1000.0);
    match summary {
        Some(s) => {
            let (min, max) = (us(s.min as f64), us(s.max as f64));
            let (mean, deviation) = (us(s.mean), us(s.standard_deviation));
            writeln!(out, "  {name:<24} {:>6} {mean:>12} {min:>10} {max:>12} {deviation:>12}", s.count)
        }
        None => writeln!(out, "  {name:<24} {:>6}", 0),
    }
    .expect("text grows");
}

/// Raw and filtered latencies, and how exact the waker was.
pub fn wakeup_tables(rows: &[BenchRow]) -> String {
    let mut out = String::new();
    let head =
        format!("  {:<24} {:>6} {:>12} {:>10} {:>12} {:>12}\n", "", "n", "mean", "min", "max", "deviation");
    for (part, title) in [("rt", "real-time thread"), ("normal", "ordinary thread")] {
        let of_part = || rows.iter().filter(|row| row.part == part);
        for (filtered, what) in [(false, "all samples"), (true, "without those above mean + 6 deviations")] {
            write!(out, "Wake-up latency of a {title}, us, {what}\n{head}").expect("text grows");
            for row in of_part() {
                let kept = if filtered { six_sigma(&row.samples_ns) } else { row.samples_ns.clone() };
                line(&mut out, &row.scheduler, summarise(&kept));
            }
            out.push('\n');
        }
        write!(out, "How late the waker was itself, us, beside a {title}\n{head}").expect("text grows");
        of_part().for_each(|row| line(&mut out, &row.scheduler, summarise(&row.waker_error_ns)));
        out.push('\n');
    }
    out
}

/// Seconds until all is done.
pub fn hackbench_table(rows: &[BenchRow]) -> String {
    let mut out = "hackbench, s until all is done\n".to_owned();
    for row in rows {
        writeln!(out, "  {:<24} {:>10.3}", row.scheduler, row.duration_ns as f64 / 1e9).expect("text grows");
    }
    out
}
