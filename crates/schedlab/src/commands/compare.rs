//! `schedlab compare`: record if need be, triage, fidelity, then which lever serves the work best.

use super::common::{self, Prepared};
use super::examine::{examine, pair_class};
use super::metric_command::MetricCommand;
use super::{Context, pictures, record};
use crate::args::{CompareArgs, OutputChoice};
use crate::failure::Failure;
use crate::inputs::machines;
use crate::output::{print_text, write_file};
use crate::progress;
use crate::simulator::SimulatedMachine;
use schedlab_control::{CompareOptions, CompareRuns, compare};
use schedlab_host::record::{RecordOptions, Target};
use schedlab_model::Nanos;
use schedlab_model::lever::{Candidate, Setting};
use schedlab_model::metric::{Metric, RunMetrics};
use schedlab_model::outcome::RunRequest;
use schedlab_report::compare::{ComparisonInput, GainBound, Overall, PairClass, Sample, Settings};
use schedlab_report::fidelity::measured::Source;
use schedlab_report::result::{CandidateRecord, ResultFile, RunRecord, SimulatorRecord};
use schedlab_report::{Comparison, Guard, Objective, text};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What is compared by which standard.
struct Standard {
    objective: Objective,
    guards: Vec<Guard>,
    /// A metric of the user's own.
    own: Option<MetricCommand>,
    /// Why this objective, if nobody asked for it.
    note: Option<String>,
}

/// Compares and writes what was asked for.
pub fn run(args: &CompareArgs, context: Context) -> Result<(), Failure> {
    let asked = standard(args)?;
    let works = if args.command.is_empty() {
        Some(common::prepare(&args.work, &args.machine, args.allow_drops, args.blocks)?)
    } else {
        None
    };
    let piece = works.as_ref().and_then(|works| works.pieces.first());
    let kernel = piece.map_or_else(|| machines::this().kernel, |piece| piece.machine.kernel);
    let kernel = args.machine.kernel.unwrap_or(kernel);
    let candidates = with_baseline(common::candidates(
        &args.scheduler,
        &common::sets(&args.set, args.weights.as_deref()),
        kernel,
    )?);
    if args.dry_run {
        return print_text(&plan(args, &candidates));
    }
    let interrupted = common::interrupt_flag();
    let (prepared, name) = match works {
        Some(works) => (works, args.work.join(" ")),
        None => {
            let path = args.output.join("recording.slrec");
            (record_command(args, &path, &interrupted, context)?, path.display().to_string())
        }
    };
    let outcome = compare_prepared(args, prepared, candidates, asked, &interrupted, context)?;
    finish(args, outcome, &name)
}

/// The same for work that is at hand.
pub fn run_prepared(
    args: &CompareArgs,
    prepared: Prepared,
    name: &str,
    context: Context,
) -> Result<(), Failure> {
    let kernel = prepared.pieces[0].machine.kernel;
    let candidates = with_baseline(common::candidates(
        &args.scheduler,
        &common::sets(&args.set, args.weights.as_deref()),
        kernel,
    )?);
    let interrupted = common::interrupt_flag();
    let outcome = compare_prepared(args, prepared, candidates, standard(args)?, &interrupted, context)?;
    finish(args, outcome, name)
}

/// Records the command, then makes it a piece of work like any other recording.
fn record_command(
    args: &CompareArgs,
    path: &Path,
    interrupted: &Arc<AtomicBool>,
    context: Context,
) -> Result<Prepared, Failure> {
    let target = Target::Command(args.command.clone());
    let summary = record::record_to(path, RecordOptions::new(target), Arc::clone(interrupted), context)?;
    if let Some(code) = summary.exit_code.filter(|code| *code != 0) {
        eprintln!("schedlab: the command failed; its recording is kept in {}", path.display());
        return Err(Failure::Command(code));
    }
    // Ctrl-C ended the recording, not the comparison.
    interrupted.store(false, Ordering::Relaxed);
    let mut prepared = Prepared::default();
    let recording = record::read_back(path)?;
    let name = args.command.join(" ");
    common::add_recording(&mut prepared, &name, recording, &args.machine, args.allow_drops, args.blocks)?;
    Ok(prepared)
}

/// The kernel's own class is what every other is compared with.
fn with_baseline(mut candidates: Vec<Candidate>) -> Vec<Candidate> {
    match candidates.iter().position(|candidate| candidate.name == "fair") {
        Some(index) => candidates[..=index].rotate_right(1),
        None => candidates.insert(0, Candidate::baseline()),
    }
    candidates
}

fn standard(args: &CompareArgs) -> Result<Standard, Failure> {
    let guards = args.guard.iter().map(|guard| guard.parse::<Guard>().map_err(Failure::input));
    let guards = guards.collect::<Result<Vec<_>, _>>()?;
    let command = args.metric_command.as_deref();
    let own = command.map(|text| MetricCommand::new(text, args.metric_higher)).transpose()?;
    let is_own = |text: &str| own.as_ref().filter(|own| own.name() == text);
    let (objective, note) = match (args.objective.as_deref(), &own) {
        (Some(text), _) => match is_own(text) {
            Some(own) => (own.objective(), None),
            None => (text.parse::<Objective>().map_err(Failure::input)?, None),
        },
        (None, Some(own)) => (own.objective(), None),
        (None, None) => (Objective::default(), Some(String::new())),
    };
    Ok(Standard { objective, guards, own, note })
}

fn plan(args: &CompareArgs, candidates: &[Candidate]) -> String {
    let mut text = String::new();
    if args.command.is_empty() {
        text += &format!("would compare for {}\n", args.work.join(", "));
    } else {
        let file = args.output.join("recording.slrec");
        text += &format!("would record '{}' into {}\n", args.command.join(" "), file.display());
    }
    text += &format!(
        "with {} seed(s) each, and on {} machine(s) with other costs, under\n",
        args.run.runs, args.perturbed
    );
    candidates.iter().for_each(|candidate| text += &format!("  {}\n", candidate.name));
    text
}

/// A finished comparison and what pictures need.
pub struct Outcome {
    /// What goes into every output.
    pub result: ResultFile,
    /// The machine that ran it, to run a seed again for pictures.
    pub machine: SimulatedMachine,
    /// The candidates.
    pub candidates: Vec<Candidate>,
    /// First seed.
    pub seed: u64,
}

/// Triage, fidelity, runs, verdict.
fn compare_prepared(
    args: &CompareArgs,
    prepared: Prepared,
    candidates: Vec<Candidate>,
    mut asked: Standard,
    interrupted: &Arc<AtomicBool>,
    context: Context,
) -> Result<Outcome, Failure> {
    let mut result = common::empty_result(&prepared.pieces[0].machine);
    let Prepared { pieces, recordings, works, notes } = prepared;
    let mut machine =
        SimulatedMachine::new(pieces, args.run.jobs, args.run.duration, Arc::clone(interrupted))
            .with_setups(common::setups(&args.setup)?);
    machine.prepare_all(&candidates)?;
    choose_objective(&mut asked, &recordings);
    let mut gain_max = None;
    let first = recordings.iter().position(Option::is_some);
    if let Some((index, recording)) = first.and_then(|index| Some((index, recordings[index].as_ref()?))) {
        let mut examined = examine(&machine, index, recording, args.run.seed)?;
        gain_max = examined.gain_max_of(&asked.objective);
        if gain_max.is_none() {
            let of = if examined.bounds_requests { "requests" } else { "the makespan" };
            let what = asked.objective.key();
            examined.triage.headline += &format!(" That bound is of {of}; {what} is compared below.");
        }
        if args.out.json.as_deref().is_none_or(|path| path.as_os_str() != "-") {
            print_text(&text::triage_lines(&examined.triage))?;
        }
        (result.triage, result.fidelity) = (Some(examined.triage), examined.fidelity);
    }
    let options = CompareOptions {
        seeds: args.run.runs,
        seed_first: args.run.seed,
        control: true,
        perturbed_rounds: args.perturbed,
    };
    let mut runs = run_all(&mut machine, &candidates, &options, context);
    if runs.cells.is_empty() {
        return Err(Failure::Interrupted);
    }
    if let Some(own) = &asked.own {
        own.apply(&candidates, &mut runs, interrupted, context.quiet)?;
        if asked.objective == own.objective() {
            asked.objective = own.with_floor(&runs);
        }
    }
    settle_objective(&mut asked, &runs);
    result.works = works;
    result.notes = notes;
    result.notes.extend(machine.notes().iter().cloned());
    result.notes.extend(asked.note.clone());
    result.notes.extend(too_short(&candidates, &runs));
    if runs.interrupted {
        result.notes.push("interrupted: the verdict rests on the rounds that were finished".to_owned());
    }
    let bound = gain_max.map(|gain_max| GainBound { gain_max });
    let sources = sources(&recordings);
    let class = |candidate: &Candidate| Some((candidate.name.clone(), pair_class(candidate, &sources)?));
    let classes = candidates.iter().skip(1).filter_map(class).collect();
    result.comparison = Some(judge(&candidates, &runs, &asked, bound, &classes)?);
    fill_runs(&mut result, &candidates, &runs);
    Ok(Outcome { result, machine, candidates, seed: args.run.seed })
}

/// What the pieces of work were made from.
fn sources(recordings: &[Option<schedlab_model::recording::Recording>]) -> Vec<Source> {
    let of = |recording: &Option<_>| if recording.is_some() { Source::Recording } else { Source::File };
    recordings.iter().map(of).collect()
}

/// A command is over when it is over: unless asked otherwise, its makespan counts. What never ends by itself
/// is judged by latency.
fn choose_objective(asked: &mut Standard, recordings: &[Option<schedlab_model::recording::Recording>]) {
    if asked.note.is_none() {
        return;
    }
    let is_command =
        |recording: &schedlab_model::recording::Recording| !recording.provenance.command.is_empty();
    let (metric, why) = if recordings.iter().flatten().any(is_command) {
        (Metric::Makespan, "a command ends")
    } else {
        (Metric::WakeupLatencyP99, "nothing else was asked for")
    };
    asked.objective = Objective::Metric(metric);
    asked.note = Some(format!("objective {} ({why}); choose with --objective", metric.key()));
}

/// Work of which no task is ever woken has no latency: it is judged by how long its tasks wait to run.
fn settle_objective(asked: &mut Standard, runs: &CompareRuns) {
    let Objective::Metric(metric) = asked.objective else { return };
    let mut outcomes = runs.cells.iter().filter_map(|cell| cell.outcome.as_ref().ok());
    if asked.note.is_none() || outcomes.any(|outcome| outcome.metrics.get(metric).is_some()) {
        return;
    }
    asked.objective = Objective::Metric(Metric::RunDelayMean);
    let key = Metric::RunDelayMean.key();
    asked.note = Some(format!("objective {key} (no task of it is ever woken); choose with --objective"));
}

/// Shares of CPU time show over so many turns: the share of the lightest task is then known to about a point.
const TURNS: f64 = 100.0;
/// A turn lasts at most a slice of 20 ms and a tick.
const TURN_MAX: Nanos = Nanos::from_millis(25);

/// What a reader must know of runs in which levers of shares had no time to act, and how long they would need.
fn too_short(candidates: &[Candidate], runs: &CompareRuns) -> Option<String> {
    let is_share = |setting: &Setting| matches!(setting, Setting::Weights(_) | Setting::Nice(_));
    if !candidates.iter().any(|candidate| candidate.settings.iter().any(is_share)) {
        return None;
    }
    let baseline = runs.cells.iter().find(|cell| cell.candidate == 0 && cell.cost_seed.is_none())?;
    let outcome = baseline.outcome.as_ref().ok()?;
    let (length, turns) =
        (outcome.simulator.as_ref()?.simulated, outcome.metrics.get(Metric::InvoluntarySwitches)?);
    if turns >= TURNS {
        return None;
    }
    let needs = if turns > 0.0 { length.0 as f64 * TURNS / turns } else { TURN_MAX.0 as f64 * TURNS };
    Some(format!(
        "in {length} tasks were preempted {turns:.0} times: shares, and so weights and nice values, show over about \
         {TURNS:.0}; work that competes for CPUs would have to run for about {}",
        Nanos(needs as u64)
    ))
}

fn run_all(
    machine: &mut SimulatedMachine,
    candidates: &[Candidate],
    options: &CompareOptions,
    context: Context,
) -> CompareRuns {
    let bar = progress::bar(context.quiet, 0, "simulating");
    let runs = compare(machine, candidates, options, |done, total| {
        bar.set_length(total as u64);
        bar.set_position(done as u64);
        ControlFlow::Continue(())
    });
    bar.finish_and_clear();
    runs
}

fn judge(
    candidates: &[Candidate],
    runs: &CompareRuns,
    asked: &Standard,
    bound: Option<GainBound>,
    pair_classes: &BTreeMap<String, PairClass>,
) -> Result<Comparison, Failure> {
    let mut failures = BTreeMap::new();
    let mut samples = Vec::new();
    for cell in &runs.cells {
        let candidate = &candidates[cell.candidate];
        match &cell.outcome {
            Ok(outcome) => {
                let request =
                    RunRequest { candidate, work: cell.work, seed: cell.seed, cost_seed: cell.cost_seed };
                samples.push(Sample::of(cell.candidate, &request, outcome));
            }
            // Counted where robustness is: there is no sample of that machine.
            Err(_) if cell.cost_seed.is_some() => {}
            Err(error) => {
                failures.entry(candidate.name.clone()).or_insert_with(|| error.to_string());
            }
        }
    }
    let perturbed: BTreeSet<u64> = runs.cells.iter().filter_map(|cell| cell.cost_seed).collect();
    schedlab_report::compare(&ComparisonInput {
        candidates,
        baseline: 0,
        samples: &samples,
        objective: &asked.objective,
        guards: &asked.guards,
        settings: Settings::default(),
        bound,
        pair_classes,
        failures: &failures,
        perturbed_machines: perturbed.len() as u32,
    })
    .map_err(Failure::input)
}

fn fill_runs(result: &mut ResultFile, candidates: &[Candidate], runs: &CompareRuns) {
    let metrics_of = |index: usize| {
        let of = runs.cells.iter().filter(move |cell| cell.candidate == index && cell.cost_seed.is_none());
        of.filter_map(|cell| cell.outcome.as_ref().ok().map(|outcome| &outcome.metrics))
    };
    result.candidates = candidates
        .iter()
        .enumerate()
        .map(|(index, candidate)| {
            CandidateRecord::of(candidate, metrics_of(index).collect::<Vec<&RunMetrics>>())
        })
        .collect();
    let mut total = SimulatorRecord::default();
    for cell in &runs.cells {
        let Ok(outcome) = &cell.outcome else { continue };
        let candidate = &candidates[cell.candidate];
        let request = RunRequest { candidate, work: cell.work, seed: cell.seed, cost_seed: cell.cost_seed };
        result.runs.push(RunRecord::of(&request, outcome));
        if let Some(report) = &outcome.simulator {
            total.context_switches += report.context_switches;
            total.events += report.events;
            total.wall_s += report.wall_s;
            total.simulated_ns += report.simulated.0;
            total.bpf_instructions += report.bpf_instructions;
            total.peak_memory_bytes = total.peak_memory_bytes.max(report.peak_memory_bytes);
            total.event_hash = chain_hash(&total.event_hash, &report.event_hash);
        }
    }
    result.simulator = Some(total);
}

/// One hash over the hashes of runs in their order (FNV-1a), hexadecimal.
fn chain_hash(before: &str, next: &str) -> String {
    let start = u64::from_str_radix(before, 16).unwrap_or(0xcbf2_9ce4_8422_2325);
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    format!("{:016x}", next.bytes().fold(start, step))
}

/// Writes every output and prints the verdict.
fn finish(args: &CompareArgs, mut outcome: Outcome, name: &str) -> Result<(), Failure> {
    let recorded = !args.command.is_empty();
    let path = |given: &Option<PathBuf>, file: &str| {
        given.clone().or_else(|| recorded.then(|| args.output.join(file)))
    };
    let out = OutputChoice {
        html: path(&args.out.html, "report.html"),
        perfetto: path(&args.out.perfetto, "trace.pftrace"),
        json: path(&args.out.json, "result.json"),
        parquet: args.out.parquet.clone(),
    };
    outcome.result.next_commands = next_commands(&outcome.result, name, out.html.as_deref());
    let to_stdout = out.json.as_deref().is_some_and(|path| path.as_os_str() == "-");
    write_outputs(&outcome, &out)?;
    if !to_stdout {
        // Triage was printed before the runs; it is not repeated.
        let shown = ResultFile { triage: None, ..outcome.result.clone() };
        let shown = if outcome.result.triage.is_some() { &shown } else { &outcome.result };
        print_text(&text::render(shown, common::text_options()))?;
        let written =
            [("Page", &out.html), ("JSON", &out.json), ("Trace", &out.perfetto), ("Parquet", &out.parquet)];
        for (what, path) in written {
            if let Some(path) = path {
                print_text(&format!("{what:<10} {}\n", path.display()))?;
            }
        }
    }
    broken_guard(&outcome.result)
}

/// Writes page, trace, JSON and table where asked.
fn write_outputs(outcome: &Outcome, out: &OutputChoice) -> Result<(), Failure> {
    let Outcome { result, machine, candidates, seed } = outcome;
    if let Some(path) = &out.html {
        write_file(path, pictures::page(result, machine, candidates, *seed)?.as_bytes())?;
    }
    if let Some(path) = &out.perfetto {
        write_file(path, &pictures::trace(result, machine, candidates, *seed)?)?;
    }
    common::write_tables(result, out)
}

fn next_commands(result: &ResultFile, name: &str, html: Option<&Path>) -> Vec<String> {
    let mut commands = Vec::new();
    let best = match result.comparison.as_ref().map(|comparison| &comparison.overall) {
        Some(Overall::Use { candidate, .. }) => Some(candidate.as_str()),
        Some(Overall::CannotTell { candidate, .. }) => {
            commands.push(format!("schedlab compare {name} --runs 20"));
            candidate.as_deref()
        }
        _ => None,
    };
    if let Some(best) = best {
        commands
            .push(format!("schedlab simulate {name} --scheduler {best} --perfetto {}.pftrace", short(best)));
    }
    if let Some(html) = html {
        commands.push(format!("xdg-open {}", html.display()));
    } else {
        commands.push(format!("schedlab compare {name} --html report.html"));
    }
    commands
}

fn short(candidate: &str) -> String {
    candidate.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
}

/// A guard that the recommended candidate breaks makes the answer no.
fn broken_guard(result: &ResultFile) -> Result<(), Failure> {
    let Some(comparison) = &result.comparison else { return Ok(()) };
    let broken = comparison.rows.iter().filter(|row| !row.guards.is_empty() && !row.guards_kept()).count();
    let all = comparison.rows.iter().filter(|row| row.candidate != comparison.baseline).count();
    if all > 0 && broken == all {
        return Err(Failure::AnswerIsNo("every candidate breaks a guard".to_owned()));
    }
    Ok(())
}
