//! `schedlab simulate`: one run, or one with several seeds, with everything about it.

use super::common::{self, Prepared};
use super::{Context, pictures};
use crate::args::SimulateArgs;
use crate::failure::Failure;
use crate::output::{print_text, write_file};
use crate::simulator::{SimulatedMachine, explain};
use schedlab_model::outcome::{Machine, RunOutcome, RunRequest};
use schedlab_report::result::{CandidateRecord, RunRecord, SimulatorRecord};
use schedlab_report::text;
use std::io::Write;
use std::sync::Arc;

/// Runs it.
pub fn run(args: &SimulateArgs, context: Context) -> Result<(), Failure> {
    let works = std::slice::from_ref(&args.work);
    let Prepared { mut pieces, notes, works, .. } =
        common::prepare(works, &args.machine, args.allow_drops, 1)?;
    if !(args.set_at.is_empty() && args.switch_at.is_empty()) {
        let changes = &mut Arc::make_mut(&mut pieces[0].workload).changes;
        changes.extend(args.set_at.iter().chain(&args.switch_at).cloned());
        changes.sort_by_key(|change| change.time);
    }
    let kernel = pieces[0].machine.kernel;
    let sets = common::sets(&args.set, args.weights.as_deref());
    let candidate = common::candidates(std::slice::from_ref(&args.scheduler), &sets, kernel)?.remove(0);
    let run = &args.run;
    let interrupted = common::interrupt_flag();
    let mut machine = SimulatedMachine::new(pieces, run.jobs, run.duration, interrupted)
        .with_setups(common::setups(&args.setup)?)
        .with_restart(args.restart);
    machine.prepare_all(std::slice::from_ref(&candidate))?;
    let request =
        |seed: u64| RunRequest { candidate: &candidate, work: 0, seed: run.seed + seed, cost_seed: None };
    if args.dry_run {
        let piece = &machine.pieces()[0];
        let (name, cpus) = (&piece.machine.name, piece.machine.topology.cpus_text());
        let (kernel, runs) = (piece.machine.kernel, run.runs);
        return print_text(&format!(
            "would simulate {} under {} on {name} ({cpus}, kernel {kernel}), {runs} run(s) from seed {}\n",
            piece.name, candidate.name, run.seed
        ));
    }
    let requests: Vec<RunRequest<'_>> = (0..u64::from(run.runs)).map(request).collect();
    let outcomes = simulate_all(&mut machine, args, &requests, context)?;

    let mut result = common::empty_result(&machine.pieces()[0].machine);
    result.works = works;
    result.notes = notes;
    result.notes.extend(machine.notes().iter().cloned());
    result.notes.extend(machine.switches(0));
    if outcomes.iter().all(|outcome| outcome.metrics.never_ran()) {
        result.notes.push(
            "no task of the work ever ran, and the run was over before a watchdog ended that".to_owned(),
        );
    }
    result.candidates =
        vec![CandidateRecord::of(&candidate, outcomes.iter().map(|outcome| &outcome.metrics))];
    result.runs =
        requests.iter().zip(&outcomes).map(|(request, outcome)| RunRecord::of(request, outcome)).collect();
    result.simulator = outcomes[0].simulator.as_ref().map(SimulatorRecord::from);
    result.next_commands = vec![format!("schedlab compare {} --scheduler {},all", args.work, candidate.name)];
    common::write_tables(&result, &args.out)?;
    if let Some(path) = &args.out.html {
        let page = pictures::page(&result, &machine, std::slice::from_ref(&candidate), run.seed)?;
        write_file(path, page.as_bytes())?;
    }
    if args.out.json.as_deref().is_none_or(|path| path.as_os_str() != "-") {
        print_text(&text::render(&result, common::text_options()))?;
    }
    if let Some(exit) = outcomes.iter().find_map(|outcome| outcome.scheduler_exit.as_ref()) {
        print_dump(&exit.dump);
        return Err(Failure::AnswerIsNo(format!(
            "{} ended early ({}): {}; the fair class took over",
            candidate.name, exit.reason, exit.message
        )));
    }
    match outcomes.iter().find_map(|outcome| outcome.failed_forks.as_ref()) {
        Some(forks) => Err(Failure::AnswerIsNo(format!("{}: {forks}", candidate.name))),
        None => Ok(()),
    }
}

/// The debug dump as the kernel would log it, where errors go. A standard error that went away is no reason to fail.
fn print_dump(dump: &str) {
    let mut lines = String::new();
    for line in dump.lines() {
        lines.push_str(&format!("DUMP: {line}\n"));
    }
    drop(std::io::stderr().lock().write_all(lines.as_bytes()));
}

/// Makes the runs. The first is timed bare, so that `wall_s` is the simulator's event loop and nothing else.
fn simulate_all(
    machine: &mut SimulatedMachine,
    args: &SimulateArgs,
    requests: &[RunRequest<'_>],
    context: Context,
) -> Result<Vec<RunOutcome>, Failure> {
    let spinner = crate::progress::spinner(context.quiet, format!("simulating {}", args.work));
    let bare = machine.run_bare(&requests[0]).map_err(explain)?;
    if let Some(path) = &args.record {
        let (_, recording) = machine.record(&requests[0]).map_err(explain)?;
        let bytes = schedlab_model::recording::codec::encode(&recording).map_err(Failure::input)?;
        write_file(path, &bytes)?;
    }
    if let Some(path) = &args.out.perfetto {
        let recording = pictures::rerun(machine, requests[0].candidate, requests[0].seed)?;
        write_file(path, &pictures::trace_of(&recording))?;
    }
    let outcomes = machine.run_all(requests).into_iter().collect::<Result<Vec<_>, _>>();
    spinner.finish_and_clear();
    let mut outcomes = outcomes.map_err(explain)?;
    outcomes[0].simulator = Some(bare.report);
    Ok(outcomes)
}
