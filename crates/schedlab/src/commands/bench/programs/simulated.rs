//! The models of the programs in the simulated kernel: all rounds are runs with seeds of their own, on worker threads.

use super::{Case, Plan, Row, Tell};
use crate::args::bench::BenchArgs;
use crate::args::program::Which;
use crate::commands::{Context, common};
use crate::failure::Failure;
use crate::progress;
use crate::simulator::{SimulatedMachine, explain};
use schedlab_model::metric::Metric;
use schedlab_model::outcome::{MachineError, Obtained, RunOutcome, RunRequest};
use schedlab_report::bench::Line;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

/// Rows of every scheduler.
pub(super) fn rows(
    args: &BenchArgs,
    plan: &Plan,
    context: Context,
    interrupted: &Arc<AtomicBool>,
    tell: Tell<'_>,
) -> Result<Vec<Row>, Failure> {
    let works: Vec<String> = plan.cases.iter().map(|case| work(plan, *case)).collect();
    let prepared = common::prepare(&works, &args.machine, false, 1)?;
    let candidates = common::candidates(&args.scheduler, &args.set, prepared.pieces[0].machine.kernel)?;
    let mut machine =
        SimulatedMachine::new(prepared.pieces, args.jobs, args.duration, Arc::clone(interrupted))
            .with_watchdog(!args.no_watchdog);
    machine.prepare_all(&candidates)?;
    let spinner = progress::spinner(context.quiet, "simulating programs".to_owned());
    let mut all = Vec::new();
    for candidate in &candidates {
        let request = |(work, round): (usize, u32)| RunRequest {
            candidate,
            work,
            seed: args.seed + u64::from(round),
            cost_seed: None,
        };
        let runs = (0..works.len()).flat_map(|work| (0..plan.rounds).map(move |round| (work, round)));
        let requests: Vec<RunRequest<'_>> = runs.map(request).collect();
        let mut rows = plan.rows(&candidate.name, Obtained::Predicted);
        let failure = Mutex::new(None);
        let over = |index: usize, outcome: &Result<RunOutcome, MachineError>| {
            let Some(seconds) = outcome.as_ref().ok().and_then(seconds) else { return };
            if let Err(problem) =
                tell(Line::Program(super::round(&rows[requests[index].work], seconds, None)))
            {
                failure.lock().expect("nobody panics while it stores").get_or_insert(problem);
            }
        };
        let outcomes = machine.run_each(&requests, &over);
        if let Some(failure) = failure.into_inner().expect("all workers are done") {
            return Err(failure);
        }
        for (request, outcome) in requests.iter().zip(outcomes) {
            let outcome = match outcome {
                Err(MachineError::Interrupted) => continue,
                outcome => outcome.map_err(explain)?,
            };
            let row = &mut rows[request.work];
            row.seconds.extend(seconds(&outcome));
            if let Some(exit) = outcome.scheduler_exit {
                row.ended = Some(format!("{}: {}", exit.reason, exit.message));
            }
        }
        all.extend(rows);
    }
    spinner.finish_and_clear();
    Ok(all)
}

/// How long a run took; one that was cut did not get to its end.
fn seconds(outcome: &RunOutcome) -> Option<f64> {
    outcome.metrics.get(Metric::Makespan).filter(|_| !outcome.cut).map(|ns| ns / 1e9)
}

/// The workload of a case.
fn work(plan: &Plan, case: Case) -> String {
    let model = |which: Which, more: String| {
        let size = match (which, plan.quick) {
            (Which::SysbenchThreads, true) => ",events=20",
            (Which::SysbenchThreads, false) => ",events=500",
            (_, true) => ",time=100ms",
            (_, false) => "",
        };
        format!("{}:{more}{size}", which.name())
    };
    let own = model(case.which, format!("nice={}", case.nice));
    let others = plan.others(case.which).filter(|_| case.together);
    others.fold(own, |text, other| text + "+" + &model(other, "again=1".to_owned()))
}
