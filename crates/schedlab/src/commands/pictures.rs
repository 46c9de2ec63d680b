//! Runs a seed again with its events kept, for the pictures of the page and for traces.

use crate::failure::Failure;
use crate::simulator::{SimulatedMachine, explain};
use schedlab_model::lever::{Candidate, Setting};
use schedlab_model::outcome::RunRequest;
use schedlab_model::recording::Recording;
use schedlab_report::html::{self, Picture};
use schedlab_report::perfetto::{self, TraceInput};
use schedlab_report::result::ResultFile;
use schedlab_report::timeline::Timeline;

/// Candidates drawn besides the baseline: more make the page heavy and say little.
const PICTURES_MAX: usize = 3;

/// The page, with pictures of the baseline and the best candidates.
pub fn page(
    result: &ResultFile,
    machine: &SimulatedMachine,
    candidates: &[Candidate],
    seed: u64,
) -> Result<String, Failure> {
    let rows = result.comparison.iter().flat_map(|comparison| &comparison.rows);
    let ranked = rows.filter_map(|row| candidates.iter().find(|candidate| candidate.name == row.candidate));
    let best = ranked.filter(|candidate| candidate.name != candidates[0].name).take(PICTURES_MAX);
    let mut pictures = Vec::new();
    for candidate in std::iter::once(&candidates[0]).chain(best) {
        // A candidate that cannot run has a row that says why, and no picture.
        let Ok(recording) = rerun(machine, candidate, seed) else { continue };
        pictures.push(picture_of(&candidate.name, &recording));
    }
    Ok(html::page(result, &pictures))
}

/// The trace of the most interesting candidate: the best one, else the baseline.
pub fn trace(
    result: &ResultFile,
    machine: &SimulatedMachine,
    candidates: &[Candidate],
    seed: u64,
) -> Result<Vec<u8>, Failure> {
    let best = result.comparison.as_ref().and_then(|comparison| comparison.rows.first());
    let chosen = best.and_then(|row| candidates.iter().find(|candidate| candidate.name == row.candidate));
    let recording = rerun(machine, chosen.unwrap_or(&candidates[0]), seed)?;
    Ok(trace_of(&recording))
}

/// A recording as a trace.
pub fn trace_of(recording: &Recording) -> Vec<u8> {
    perfetto::trace(&TraceInput {
        events: &recording.events,
        tasks: &recording.tasks,
        cpus: recording.machine.topology.cpu_count(),
        length: recording.duration,
        kernel: recording.machine.kernel,
    })
}

/// A recording as a page.
pub fn page_of(name: &str, recording: &Recording) -> String {
    let provenance = &recording.provenance;
    let facts = [
        ("Recording", name.to_owned()),
        ("Machine", format!("{}, {}", recording.machine.name, recording.machine.topology.cpus_text())),
        ("Kernel", provenance.kernel_release.clone()),
        ("Scheduler", provenance.scheduler.clone()),
        ("Length", recording.duration.to_string()),
        ("Lost", format!("{} events", provenance.dropped)),
    ];
    let picture = picture_of(&provenance.scheduler, recording);
    html::recording_page(&provenance.what(), &facts, &picture, env!("CARGO_PKG_VERSION"))
}

fn picture_of(candidate: &str, recording: &Recording) -> Picture {
    let cpus = recording.machine.topology.cpu_count();
    Picture {
        candidate: candidate.to_owned(),
        timeline: Timeline::new(&recording.events, &recording.tasks, cpus, recording.duration),
        target: recording.tasks.iter().map(|task| task.target).collect(),
    }
}

/// Makes the run again with its events kept. A scheduler that can log its changes of priority does: what that costs it
/// is the only difference.
pub fn rerun(machine: &SimulatedMachine, candidate: &Candidate, seed: u64) -> Result<Recording, Failure> {
    let candidate = logging(machine, candidate);
    let request = RunRequest { candidate: &candidate, work: 0, seed, cost_seed: None };
    Ok(machine.record(&request).map_err(explain)?.1)
}

fn logging(machine: &SimulatedMachine, candidate: &Candidate) -> Candidate {
    let mut candidate = candidate.clone();
    let names = |setting: &Setting| matches!(setting, Setting::Knob { name, .. } if name == LOG);
    if machine.has_knob(&candidate.scheduler, LOG) && !candidate.settings.iter().any(names) {
        candidate.settings.push(Setting::Knob { name: LOG.to_owned(), value: 1 });
    }
    candidate
}

/// The knob of the schedulers of 2006 that makes them log.
pub const LOG: &str = "log_changes";
