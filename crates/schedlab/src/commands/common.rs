//! What several commands share: from names on the command line to pieces of work, candidates and an
//! empty result.

use crate::args::MachineChoice;
use crate::failure::Failure;
use crate::inputs::work::{self, Work};
use crate::inputs::{machines, schedulers};
use crate::simulator::Piece;
use anyhow::{Context, anyhow};
use schedlab_control::candidates::parse_setting;
use schedlab_control::{parse_candidate, standard_candidates};
use schedlab_host::capability;
use schedlab_model::lever::{Candidate, SchedulerChoice, Setting};
use schedlab_model::machine::{KernelVersion, MachineDescription};
use schedlab_model::recording::Recording;
use schedlab_model::workload::Workload;
use schedlab_report::result::{self, Environment, ResultFile};
use schedlab_report::text::TextOptions;
use schedlab_sim::replay::{self, Replay, ReplayOptions};
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{SystemTime, UNIX_EPOCH};

/// Work made ready to be simulated.
#[derive(Debug, Default)]
pub struct Prepared {
    /// Pieces, blocks of recordings one by one.
    pub pieces: Vec<Piece>,
    /// The recording behind each piece, if it is one.
    pub recordings: Vec<Option<Recording>>,
    /// The pieces as results name them.
    pub works: Vec<result::Work>,
    /// What a reader must know.
    pub notes: Vec<String>,
}

/// Reads works by name and makes pieces of them.
pub fn prepare(
    names: &[String],
    choice: &MachineChoice,
    allow_drops: bool,
    blocks: u32,
) -> Result<Prepared, Failure> {
    let mut prepared = Prepared::default();
    for name in names {
        match work::load(name)? {
            Work::Workload(workload) => {
                add_workload(&mut prepared, name, *workload, machines::resolve(choice, None)?);
            }
            Work::Recording(recording) => {
                add_recording(&mut prepared, name, *recording, choice, allow_drops, blocks)?;
            }
        }
    }
    Ok(prepared)
}

fn add_workload(prepared: &mut Prepared, name: &str, workload: Workload, machine: MachineDescription) {
    let target_tasks = workload.tasks.iter().filter(|task| task.target).count() as u32;
    prepared.works.push(result::Work {
        name: name.to_owned(),
        origin: "workload".to_owned(),
        duration_ns: workload.duration.map_or(0, |duration| duration.0),
        target_tasks,
        dropped_events: 0,
    });
    prepared.pieces.push(Piece { name: name.to_owned(), workload: Arc::new(workload), machine });
    prepared.recordings.push(None);
}

/// Makes pieces of a recording: itself, or so many blocks.
pub fn add_recording(
    prepared: &mut Prepared,
    name: &str,
    mut recording: Recording,
    choice: &MachineChoice,
    allow_drops: bool,
    blocks: u32,
) -> Result<(), Failure> {
    recording.machine = replay::calibrated(&recording);
    let machine = machines::resolve(choice, Some(&recording.machine))?;
    if recording.provenance.partial {
        prepared.notes.push(format!("{name} ended early; it is used up to its last whole block"));
    }
    let parts = if blocks > 1 { replay::blocks(&recording, blocks) } else { vec![recording] };
    let count = parts.len();
    for (index, part) in parts.into_iter().enumerate() {
        let options = ReplayOptions { allow_drops, ..ReplayOptions::default() };
        let Replay { workload, notes, .. } =
            replay::workload_from(&part, &options).with_context(|| name.to_owned())?;
        let origin =
            if count > 1 { format!("block {} of {count}", index + 1) } else { "recording".to_owned() };
        prepared.notes.extend(notes.into_iter().map(|note| format!("{name}: {note}")));
        prepared.works.push(result::Work {
            name: name.to_owned(),
            origin,
            duration_ns: part.duration.0,
            target_tasks: part.tasks.iter().filter(|task| task.target).count() as u32,
            dropped_events: part.provenance.dropped,
        });
        let machine = machine.clone();
        prepared.pieces.push(Piece { name: name.to_owned(), workload: Arc::new(workload), machine });
        prepared.recordings.push(Some(part));
    }
    prepared.notes.dedup();
    Ok(())
}

/// Reads candidates; `all` stands for the standard set of the kernel. Settings of `--set` are added where they apply.
pub fn candidates(
    list: &[String],
    sets: &[String],
    kernel: KernelVersion,
) -> Result<Vec<Candidate>, Failure> {
    let library = schedulers::library();
    let mut all: Vec<Candidate> = Vec::new();
    for text in list {
        let found = match text.as_str() {
            "all" => standard_candidates(&library, kernel),
            text => vec![parse_candidate(text, &library).map_err(Failure::input)?],
        };
        for candidate in found {
            if all.iter().all(|known| known.name != candidate.name) {
                all.push(candidate);
            }
        }
    }
    for text in sets {
        let setting = parse_setting(text).map_err(|problem| anyhow!("--set {text}: {problem}"))?;
        apply(&mut all, &setting, text, kernel)?;
    }
    let here = capability::probe();
    for candidate in &mut all {
        candidate.usability = here.usability(&candidate.requirements);
        check_knobs(candidate)?;
    }
    Ok(all)
}

/// Adds a setting to every candidate that has it; it is an error if none has.
fn apply(all: &mut [Candidate], setting: &Setting, text: &str, kernel: KernelVersion) -> Result<(), Failure> {
    let mut applied = false;
    for candidate in all.iter_mut() {
        let fits = match (setting, &candidate.scheduler) {
            (Setting::Knob { name, .. }, SchedulerChoice::Object(object)) => {
                schedulers::describe(object)?.image.locate(name).is_ok()
            }
            (Setting::Knob { name, .. }, SchedulerChoice::Kernel) => {
                schedlab_sim::is_kernel_knob(kernel, name)
            }
            (_, SchedulerChoice::Ideal) => false,
            _ => true,
        };
        if fits {
            candidate.settings.push(setting.clone());
            candidate.name = format!("{}:{text}", candidate.name);
            applied = true;
        }
    }
    if applied {
        return Ok(());
    }
    Err(Failure::BadInput(anyhow!(
        "--set {text}: no candidate has such a knob; `schedlab list schedulers` lists them"
    )))
}

/// Knobs of objects exist and are within their bounds.
fn check_knobs(candidate: &Candidate) -> Result<(), Failure> {
    let SchedulerChoice::Object(object) = &candidate.scheduler else { return Ok(()) };
    let described = schedulers::describe(object)?;
    for setting in &candidate.settings {
        let Setting::Knob { name, value } = setting else { continue };
        match described.knobs.iter().find(|knob| knob.name == *name) {
            Some(knob) => knob.check(*value).map_err(Failure::input)?,
            None => drop(described.image.locate(name).with_context(|| candidate.name.clone())?),
        }
    }
    Ok(())
}

/// Set by Ctrl-C; a second Ctrl-C ends the program at once.
pub fn interrupt_flag() -> Arc<AtomicBool> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        let again = signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&flag));
        let first = signal_hook::flag::register(signal, Arc::clone(&flag));
        // Without a handler the signal ends the program, which loses nothing but the summary.
        drop((again, first));
    }
    flag
}

/// A result with what is known before any run.
pub fn empty_result(machine: &MachineDescription) -> ResultFile {
    ResultFile {
        schema_version: result::SCHEMA_VERSION,
        program_version: env!("CARGO_PKG_VERSION").to_owned(),
        command: std::env::args().collect(),
        created_unix_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        environment: Environment::of(machine),
        ..ResultFile::default()
    }
}

/// Colours only for a terminal that wants them (see no-color.org).
pub fn text_options() -> TextOptions {
    let color = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    TextOptions { color }
}
