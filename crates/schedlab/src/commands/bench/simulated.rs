//! The simulated arm: every part under every scheduler, on worker threads; results do not depend on how many.

use super::interbench::Frames;
use super::plan::Plan;
use super::samples::{Start, Wakes};
use super::{Context, Row, Tell, common};
use crate::args::bench::{Bench, BenchArgs};
use crate::failure::Failure;
use crate::progress;
use crate::simulator::{SimulatedMachine, explain};
use schedlab_model::lever::Candidate;
use schedlab_model::outcome::RunRequest;
use schedlab_report::bench::Line;
use schedlab_sim::{SimulationResult, TaskAccount};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Every part under every scheduler, in order; those that were made before `interrupted` was raised.
pub fn rows(
    args: &BenchArgs,
    context: Context,
    interrupted: &Arc<AtomicBool>,
    tell: Tell<'_>,
) -> Result<Vec<Row>, Failure> {
    let plan = Plan::new(args)?;
    let parts = &plan.parts;
    let works: Vec<String> = parts.iter().map(|(_, work)| work.clone()).collect();
    let prepared = common::prepare(&works, &args.machine, false, 1)?;
    let candidates = plan.candidates(&args.scheduler, prepared.pieces[0].machine.kernel)?;
    let mut machine =
        SimulatedMachine::new(prepared.pieces, args.jobs, args.duration, Arc::clone(interrupted))
            .with_watchdog(!args.no_watchdog);
    machine.prepare_all(&candidates)?;
    let runs: Vec<(usize, &Candidate)> =
        (0..parts.len()).flat_map(|part| candidates.iter().map(move |candidate| (part, candidate))).collect();
    let bar = progress::bar(context.quiet, runs.len() as u64, args.bench.name());
    let work =
        Work { machine: &machine, parts, runs: &runs, bench: args.bench, seed: args.seed, interrupted, tell };
    let made = work.all(machine.jobs(), || bar.inc(1));
    bar.finish_and_clear();
    made
}

struct Work<'a> {
    machine: &'a SimulatedMachine,
    parts: &'a [(String, String)],
    runs: &'a [(usize, &'a Candidate)],
    bench: Bench,
    seed: u64,
    interrupted: &'a AtomicBool,
    tell: Tell<'a>,
}

/// Rows by the number of their run, and the first failure.
#[derive(Default)]
struct Made {
    rows: Vec<(usize, Row)>,
    failure: Option<Failure>,
}

impl Made {
    fn in_order(&mut self) -> Vec<Row> {
        self.rows.sort_by_key(|(run, _)| *run);
        std::mem::take(&mut self.rows).into_iter().map(|(_, row)| row).collect()
    }
}

impl Work<'_> {
    fn all(&self, jobs: usize, done: impl Fn() + Sync) -> Result<Vec<Row>, Failure> {
        let (next, made) = (AtomicUsize::new(0), Mutex::new(Made::default()));
        let work = || {
            while !self.interrupted.load(Ordering::Relaxed) {
                let run = next.fetch_add(1, Ordering::Relaxed);
                let Some((part, candidate)) = self.runs.get(run) else { break };
                let row = self.row(*part, candidate);
                let mut made = made.lock().expect("no worker panics while it stores");
                let kept = row.and_then(|row| {
                    (self.tell)(Line::Run(row.clone()))?;
                    made.rows.push((run, row));
                    Ok(())
                });
                if let Err(failure) = kept {
                    made.failure.get_or_insert(failure);
                    break;
                }
                done();
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..jobs.min(self.runs.len()) {
                scope.spawn(work);
            }
            work();
        });
        let mut made = made.into_inner().expect("all workers are done");
        let rows = made.in_order();
        made.failure.map_or(Ok(rows), Err)
    }

    fn row(&self, part: usize, candidate: &Candidate) -> Result<Row, Failure> {
        let request = RunRequest { candidate, work: part, seed: self.seed, cost_seed: None };
        let part = &self.parts[part].0;
        let (mut wakes, mut start) = (Wakes::new(self.interrupted), Start::new(self.interrupted));
        let mut frames = part.split_once('/').map(|(task, _)| Frames::of(task, self.interrupted));
        let made = match &mut frames {
            Some(frames) => self.machine.run_with(&request, frames),
            None if self.bench == Bench::Hackbench => self.machine.run_with(&request, &mut start),
            None => self.machine.run_with(&request, &mut wakes),
        };
        let (outcome, result) = made.map_err(explain)?;
        let load = load(&result);
        let mut row = super::row(&candidate.name, part, outcome.obtained);
        row.duration_ns = start.time_since(result.report.simulated.0);
        // interbench lasts as long as it is told to, which is no cut.
        row.cut = outcome.cut && (frames.is_none() || self.interrupted.load(Ordering::Relaxed));
        row.ended = outcome.scheduler_exit.map(|exit| format!("{}: {}", exit.reason, exit.message));
        (row.load_cpu_percent, row.load_wait_max_ns) = (Some(load.0), Some(load.1));
        row.context_switches = Some(result.report.context_switches);
        row.swapped = result.swapped.map(Into::into);
        row.frames = frames.as_ref().map(|frames| frames.counts);
        row.samples_ns = frames.map_or(wakes.latencies_ns, |frames| frames.latencies_ns);
        row.waker_error_ns = wakes.waker_error_ns;
        Ok(row)
    }
}

/// What the background had of all CPUs, in per cent, and the longest wait of one of its tasks, in ns.
fn load(result: &SimulationResult) -> (f64, u64) {
    let is_load = |account: &&TaskAccount| {
        let row = result.tasks.get(account.task.0 as usize);
        !account.task.is_idle() && row.is_some_and(|row| !row.target && row.name != "woken")
    };
    let all: u64 = result.accounts.iter().map(|account| account.cpu_time.0).sum();
    let cpu: u64 = result.accounts.iter().filter(is_load).map(|account| account.cpu_time.0).sum();
    let wait = result.accounts.iter().filter(is_load).map(|account| account.run_delay_max.0).max();
    (if all > 0 { 100.0 * cpu as f64 / all as f64 } else { 0.0 }, wait.unwrap_or_default())
}
