//! The models of the programs in the simulated kernel: all rounds are runs with seeds of their own, on worker threads.

use super::{Case, Plan, Row};
use crate::args::bench::BenchArgs;
use crate::args::program::Which;
use crate::commands::{Context, common};
use crate::failure::Failure;
use crate::progress;
use crate::simulator::{SimulatedMachine, explain};
use schedlab_model::metric::Metric;
use schedlab_model::outcome::{Machine, Obtained, RunRequest};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Rows of every scheduler.
pub(super) fn rows(
    args: &BenchArgs,
    plan: &Plan,
    context: Context,
    interrupted: &Arc<AtomicBool>,
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
        for (request, outcome) in requests.iter().zip(machine.run_all(&requests)) {
            let outcome = outcome.map_err(explain)?;
            let row = &mut rows[request.work];
            if let Some(exit) = outcome.scheduler_exit {
                row.ended = Some(format!("{}: {}", exit.reason, exit.message));
            }
            // A run that was cut did not get to its end.
            row.seconds
                .extend(outcome.metrics.get(Metric::Makespan).filter(|_| !outcome.cut).map(|ns| ns / 1e9));
        }
        all.extend(rows);
    }
    spinner.finish_and_clear();
    Ok(all)
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
