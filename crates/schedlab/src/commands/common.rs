//! What several commands share: from names on the command line to pieces of work, candidates and an
//! empty result.

use crate::args::{MachineChoice, OutputChoice};
use crate::failure::Failure;
use crate::inputs::work::{self, Work};
use crate::inputs::{machines, schedulers};
use crate::output::write_file;
use crate::setup::{Scope, SetupFile, evaluate};
use crate::simulator::Piece;
use anyhow::{Context, anyhow, bail};
use schedlab_bpf::image::ObjectImage;
use schedlab_bpf::object::knobs::KnobError;
use schedlab_control::candidates::{check_nice, parse_setting, requirements};
use schedlab_control::{parse_candidate, standard_candidates};
use schedlab_host::capability;
use schedlab_host::ending_signals;
use schedlab_host::live::command::found_unexecutable;
use schedlab_host::machine::now_unix_s;
use schedlab_model::lever::{Candidate, SchedulerChoice, Setting};
use schedlab_model::machine::{KernelVersion, MachineDescription};
use schedlab_model::recording::Recording;
use schedlab_model::workload::Workload;
use schedlab_report::result::{self, Environment, ResultFile};
use schedlab_report::text::TextOptions;
use schedlab_report::{json, parquet};
use schedlab_sim::ext::kernel_btf;
use schedlab_sim::replay::{self, Replay, ReplayOptions};
use std::collections::BTreeMap;
use std::fmt;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

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
                let machine = machines::resolve(choice, None)?;
                check_cpus(&workload, &machine).with_context(|| name.clone())?;
                add_workload(&mut prepared, name, *workload, machine);
            }
            Work::Recording(recording) => {
                add_recording(&mut prepared, name, *recording, choice, allow_drops, blocks)?;
            }
        }
    }
    Ok(prepared)
}

/// Tasks pinned beside the machine are refused, as by Linux. Recordings are not asked: on a smaller machine than theirs
/// such tasks run anywhere.
fn check_cpus(workload: &Workload, machine: &MachineDescription) -> anyhow::Result<()> {
    let cpus = machine.topology.all();
    let Some(stray) = workload.misplaced(&cpus) else { return Ok(()) };
    let (has, affinity) = (machine.topology.cpus_text(), stray.affinity);
    bail!(
        "{stray}: none of the CPUs {affinity} is online on the machine, which has {has} (online: {cpus}): pin it to \
         others, or choose a machine that has them (--cpus, --machine)"
    )
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
    let named = choice.machine.is_some().then(|| machines::resolve(choice, None)).transpose()?;
    let calibrated = named.as_ref().is_some_and(|named| machines::is_same(named, &recording.machine));
    if let Some(named) = named.as_ref().filter(|_| calibrated) {
        // The recorded machine itself, measured before: what the file does not tell the recording may.
        recording.machine.costs = named.costs.clone();
    }
    recording.machine = replay::calibrated(&recording);
    let mut machine = match named {
        Some(named) => named,
        None => machines::resolve(choice, Some(&recording.machine))?,
    };
    if calibrated {
        machine.costs = recording.machine.costs.clone();
    }
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

/// Settings of the target's tasks and the weight table; every other key is a knob.
const TASK_KEYS: [&str; 5] = ["policy", "nice", "slice", "rt_priority", WEIGHTS];
/// The weight table, which is no knob either.
pub const WEIGHTS: &str = "weights";

/// `--set`, and `--weights` as one of them.
pub fn sets(set: &[String], weights: Option<&str>) -> Vec<String> {
    set.iter().cloned().chain(weights.map(|table| format!("{WEIGHTS}={table}"))).collect()
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
            "all" => standard_candidates(&schedulers::everyday(), kernel),
            text => {
                let mut candidate = parse_candidate(&numbered(text)?, &library).map_err(Failure::input)?;
                text.clone_into(&mut candidate.name);
                vec![candidate]
            }
        };
        for candidate in found {
            if all.iter().all(|known| known.name != candidate.name) {
                all.push(candidate);
            }
        }
    }
    for text in sets {
        apply(&mut all, text, kernel)?;
    }
    let here = capability::probe();
    for candidate in &mut all {
        candidate.requirements = requirements(&candidate.scheduler, &candidate.settings);
        candidate.usability = here.usability(&candidate.requirements);
        check_nice(candidate).map_err(Failure::input)?;
        check_knobs(candidate)?;
    }
    Ok(all)
}

/// A candidate's text with the values of its knobs as plain numbers.
fn numbered(text: &str) -> Result<String, Failure> {
    let mut parts = text.split(':');
    let name = parts.next().unwrap_or_default();
    let is_object = name.contains('/') || name.ends_with(".o") || schedulers::library().contains(&name);
    let mut result = name.to_owned();
    for part in parts {
        let knob = part.split_once('=').filter(|(key, _)| !TASK_KEYS.contains(key));
        let number = match knob {
            Some((key, value)) if is_object => {
                let image = schedulers::describe(name)?.image;
                image.locate(key).map_err(|error| anyhow!("'{part}' in candidate '{text}': {error}"))?;
                Some((key, knob_value(&image, key, value)))
            }
            Some((key, value)) => Some((key, kernel_value(key, value))),
            None => None,
        };
        result += &match number {
            Some((key, Ok(value))) => format!(":{key}={value}"),
            Some((_, Err(problem))) => {
                return Err(Failure::BadInput(anyhow!("'{part}' in candidate '{text}': {problem}")));
            }
            None => format!(":{part}"),
        };
    }
    Ok(result)
}

/// The number a text means for a variable of an object, within its type and bounds, as 64 bits.
pub fn knob_value(image: &ObjectImage, name: &str, text: &str) -> Result<i64, String> {
    let kernel = kernel_btf(KernelVersion::V7_2);
    let scope = Scope { variables: BTreeMap::new(), object: &image.btf, kernel: &kernel };
    let number = evaluate(text, &scope)?.in_unit(&image.unit_of(name))?;
    image.clone().set_global(name, number).map_err(|error| error.to_string())?;
    Ok(i64::try_from(number).unwrap_or(number as u64 as i64))
}

/// The same for a knob of the kernel, which has no types here.
fn kernel_value(name: &str, text: &str) -> Result<i64, String> {
    let types = schedlab_bpf::btf::BtfBuilder::new().finish();
    let scope = Scope { variables: BTreeMap::new(), object: &types, kernel: &types };
    let unit = if name.ends_with("_us") { "us" } else { "ns" };
    let number = evaluate(text, &scope)?.in_unit(unit)?;
    i64::try_from(number).map_err(|_| format!("{number} does not fit 64 bits"))
}

/// Adds a setting to every candidate that has it; it is an error if none has.
fn apply(all: &mut [Candidate], text: &str, kernel: KernelVersion) -> Result<(), Failure> {
    let fail = |problem: String| Failure::BadInput(anyhow!("--set {text}: {problem}"));
    let key = text.split_once('=').map_or(text, |(key, _)| key);
    let mut applied = false;
    let mut why = String::new();
    // Where the variable is there, only not what was asked of it.
    let mut in_vain = None;
    for candidate in all.iter_mut() {
        let setting = match (&candidate.scheduler, text.split_once('=')) {
            (SchedulerChoice::Ideal, _) => None,
            (_, None) => return Err(fail("write NAME=VALUE, e.g. slice_ns=5ms".to_owned())),
            (SchedulerChoice::Object(object), Some((WEIGHTS, _)))
                if schedulers::describe(object)?.image.locate("weight_of_prio").is_err() =>
            {
                why = format!("{object} takes no weight table");
                None
            }
            (_, Some((key, _))) if TASK_KEYS.contains(&key) => Some(parse_setting(text).map_err(fail)?),
            (SchedulerChoice::Object(object), Some((name, value))) => {
                let image = schedulers::describe(object)?.image;
                match image.locate(name) {
                    Ok(_) => {
                        let value = knob_value(&image, name, value).map_err(fail)?;
                        Some(Setting::Knob { name: name.to_owned(), value })
                    }
                    Err(error @ KnobError::Path { .. }) => {
                        in_vain.get_or_insert(error.to_string());
                        None
                    }
                    Err(error) => {
                        why = error.to_string();
                        None
                    }
                }
            }
            (SchedulerChoice::Kernel, Some((name, value))) => {
                if schedlab_sim::is_kernel_knob(kernel, name) {
                    let value = kernel_value(name, value).map_err(fail)?;
                    Some(Setting::Knob { name: name.to_owned(), value })
                } else {
                    None
                }
            }
        };
        if let Some(setting) = setting {
            candidate.settings.push(setting);
            candidate.name = format!("{}:{text}", candidate.name);
            applied = true;
        }
    }
    if applied {
        return Ok(());
    }
    if let Some(why) = in_vain {
        return Err(fail(why));
    }
    let lists = "`schedlab list schedulers` lists those of the library";
    why = if why.is_empty() { lists.to_owned() } else { format!("{why}; {lists}") };
    Err(Failure::input(NoKnob(format!("--set {text}: no candidate has a knob `{key}`: {why}"))))
}

/// Nobody has a knob of that name: who has settings of another kind may tell them.
#[derive(Debug)]
pub struct NoKnob(String);

impl fmt::Display for NoKnob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NoKnob {}

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

/// Reads set-up files.
pub fn setups(paths: &[PathBuf]) -> Result<Vec<SetupFile>, Failure> {
    let read = |path: &PathBuf| SetupFile::read(path).map_err(Failure::BadInput);
    paths.iter().map(read).collect()
}

/// Why a program that is looked for on PATH cannot be run, and what to do: `install` is for one that is not there. A file
/// that may not be executed is passed over where another one comes behind it, as by a shell.
pub fn cannot_be_run(program: &str, error: &std::io::Error, install: &str) -> String {
    match found_unexecutable(program) {
        Some(path) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            let path = path.display();
            format!(
                "{program} cannot be run: {path} is no file that may be executed, and PATH has no other: `chmod +x \
                 {path}` if it is the program, else put the directory of the right one into PATH,"
            )
        }
        _ if error.kind() == std::io::ErrorKind::NotFound => {
            format!("{program} cannot be run: no directory of PATH has it; {install}")
        }
        _ => format!("{program} cannot be run: {error}; {install}"),
    }
}

/// Set by Ctrl-C, SIGTERM, and a terminal that goes away; a second Ctrl-C or SIGTERM ends the program at once.
pub fn interrupt_flag() -> Arc<AtomicBool> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in ending_signals() {
        // A terminal that goes may say so twice, by the kernel and by its shell.
        let is_hangup = signal == signal_hook::consts::SIGHUP;
        let again = (!is_hangup)
            .then(|| signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&flag)));
        let first = signal_hook::flag::register(signal, Arc::clone(&flag));
        // Without a handler the signal ends the program, which loses nothing but the summary.
        drop((again, first));
    }
    flag
}

/// A flag that SIGUSR1 raises.
pub fn signal_flag() -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGUSR1, Arc::clone(&flag))
        .context("cannot wait for SIGUSR1")?;
    Ok(flag)
}

/// A result with what is known before any run.
pub fn empty_result(machine: &MachineDescription) -> ResultFile {
    ResultFile {
        schema_version: result::SCHEMA_VERSION,
        program_version: env!("CARGO_PKG_VERSION").to_owned(),
        command: std::env::args().collect(),
        created_unix_s: now_unix_s(),
        environment: Environment::of(machine),
        ..ResultFile::default()
    }
}

/// Colours only for a terminal that wants them (see no-color.org).
pub fn text_options() -> TextOptions {
    let color = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    TextOptions { color }
}

/// Writes JSON and Parquet where asked.
pub fn write_tables(result: &ResultFile, out: &OutputChoice) -> Result<(), Failure> {
    if let Some(path) = &out.json {
        write_file(path, json::to_json(result).as_bytes())?;
    }
    if let Some(path) = &out.parquet {
        write_file(path, &parquet::to_parquet(result).map_err(Failure::input)?)?;
    }
    Ok(())
}
