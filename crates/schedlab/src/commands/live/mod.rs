//! A scheduler on the running kernel: `run`, `start`, `switch`, `set`, `stop`, `status`, `restore`.
//!
//! Here is what they share: from names to what is loaded, plans, errors, and the repair that goes before every command.
//! [`run()`] holds a scheduler itself while a command runs; [`start()`] has a process that outlives it do so, whom the
//! others ask ([`asks`]). What holds, journals and guards is [`schedlab_host::live`].

mod asks;
mod priorities;
mod run;
mod start;
mod trial;
mod words;

pub use asks::{restore, set, status, stop, switch};
pub use run::run;
pub use start::{hold, start};

use super::common::{WEIGHTS, knob_value, sets};
use crate::args::Command;
use crate::args::live::{GuardChoice, SchedulerChoice};
use crate::failure::Failure;
use crate::inputs::schedulers::{self, Described};
use crate::output::print_text;
use anyhow::{Context as _, anyhow};
use schedlab_host::live::canary::Guards;
use schedlab_host::live::control::{Answer, Load, Probation, Probed};
use schedlab_host::live::hold::{End, Holder};
use schedlab_host::live::journal::{self, DIRECTORY, Owner};
use schedlab_host::live::status::KernelStatus;
use schedlab_host::live::{self, Error, Scope};
use schedlab_model::time::Nanos;
use schedlab_model::weights::WeightTable;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Where lock, journal and socket are.
pub(super) fn directory() -> &'static Path {
    Path::new(DIRECTORY)
}

/// Does something with the machine under a scheduler, then takes it out. Also why the scheduler ended, if it did so before.
pub fn under<T>(
    scheduler: &str,
    sets: &[String],
    interrupted: &Arc<AtomicBool>,
    work: impl FnOnce() -> Result<T, Failure>,
) -> Result<(T, Option<String>), Failure> {
    let choice = SchedulerChoice { scheduler: scheduler.to_owned(), set: sets.to_vec(), weights: None };
    let load = load_of(&choice, Scope::AsDeclared)?;
    let owner = Owner::this(own_command());
    let (mut holder, _) = Holder::take(directory(), owner, Arc::clone(interrupted)).map_err(failure)?;
    holder.attach(load).map_err(failure)?;
    let done = work();
    let runs = KernelStatus::read().is_ok_and(|kernel| kernel.is_taken());
    let (end, undone) = holder.close();
    undone.map_err(|error| failure(error.into()))?;
    Ok((done?, end.filter(|_| !runs).map(|end| end.words())))
}

/// Before any command: undoes what one that was killed has left, and says so.
pub fn repair_first(command: &Command) {
    let own = matches!(
        command,
        Command::Restore(_)
            | Command::Hold(_)
            | Command::Load(_)
            | Command::Completions { .. }
            | Command::Man { .. }
    );
    if own || !directory().exists() {
        return;
    }
    match journal::repair(directory()) {
        Ok(Some(repaired)) if !repaired.undone.is_empty() => {
            eprintln!("schedlab: {}", words::repaired(&repaired));
        }
        Ok(_) => {}
        Err(journal::Error::System { .. }) => {
            // Without rights nothing can be undone, only told.
            if let Some(owner) = journal::owner(directory()).filter(|owner| !owner.is_alive()) {
                eprintln!("schedlab: {owner} ended without undoing its changes: run `sudo schedlab restore`");
            }
        }
        Err(error) => eprintln!("schedlab: {error}"),
    }
}

/// The object, its knobs as numbers, and whom it is given.
fn load_of(choice: &SchedulerChoice, scope: Scope) -> Result<Load, Failure> {
    if !Path::new(&choice.scheduler).exists() {
        check_name(&choice.scheduler)?;
    }
    let object = schedulers::bytes(&choice.scheduler)?.into_owned();
    let library = schedulers::library().contains(&choice.scheduler.as_str());
    let name = if library {
        choice.scheduler.clone()
    } else {
        let path = PathBuf::from(&choice.scheduler);
        path.canonicalize().unwrap_or(path).display().to_string()
    };
    let knobs = knobs_of(&name, &sets(&choice.set, choice.weights.as_deref()))?;
    Ok(Load { name, knobs, scope, object })
}

/// Knobs behind the name are what candidates of `compare` and `bench` have.
fn check_name(text: &str) -> Result<(), Failure> {
    let Some((name, knobs)) = text.split_once(':') else { return Ok(()) };
    let sets: Vec<String> = knobs.split(':').map(|knob| format!("--set {knob}")).collect();
    Err(Failure::BadInput(anyhow!(
        "'{text}': one scheduler is named here, and its knobs by --set: {name} {}",
        sets.join(" ")
    )))
}

/// Knobs with their values in the unit of the object, within their bounds.
fn knobs_of(scheduler: &str, sets: &[String]) -> Result<Vec<(String, i64)>, Failure> {
    if sets.is_empty() {
        return Ok(Vec::new());
    }
    let described = schedulers::describe(scheduler)?;
    let one = |text: &String| {
        let (name, value) = text
            .split_once('=')
            .ok_or_else(|| Failure::BadInput(anyhow!("{text}: write NAME=VALUE, e.g. slice_ns=5ms")))?;
        if name == WEIGHTS {
            return weight_knobs(&described, scheduler, value);
        }
        described.image.locate(name).map_err(|error| Failure::BadInput(anyhow!("{text}: {error}")))?;
        let value = knob_value(&described.image, name, value)
            .map_err(|error| Failure::BadInput(anyhow!("{text}: {error}")))?;
        if let Some(knob) = described.knobs.iter().find(|knob| knob.name == name) {
            knob.check(value).map_err(Failure::input)?;
        }
        Ok(vec![(name.to_owned(), value)])
    };
    Ok(sets.iter().map(one).collect::<Result<Vec<_>, Failure>>()?.concat())
}

/// A table of weights as elements of the object's array.
fn weight_knobs(described: &Described, scheduler: &str, table: &str) -> Result<Vec<(String, i64)>, Failure> {
    if described.image.locate("weight_of_prio").is_err() {
        let text = format!("--weights {table}: '{scheduler}' takes no weight table: vtime and cfs do");
        return Err(Failure::BadInput(anyhow!(text)));
    }
    let table =
        WeightTable::parse(table).map_err(|error| Failure::BadInput(anyhow!("--weights: {error}")))?;
    Ok(table.elements())
}

/// Why a scheduler did not stand its canary time, if it did not.
fn not_stood(name: &str, probed: &Probed) -> Option<Failure> {
    let text = match (&probed.trip, &probed.cut) {
        (Some(trip), _) => format!("{name} was taken out: {trip}"),
        (None, Some(cut)) => format!("the canary time of {name} was cut short: {cut}"),
        (None, None) => return None,
    };
    Some(Failure::AnswerIsNo(text))
}

/// What whoever asked to stop is answered after the release.
fn stopped(end: Option<End>, undone: &Result<Vec<String>, Failure>, stays: bool) -> Answer {
    match undone {
        Ok(undone) => Answer::Stopped { end, undone: undone.clone(), stays },
        Err(failure) => Answer::Refused { text: failure.to_string(), code: failure.code() },
    }
}

/// Whether only tasks that ask for `SCHED_EXT` will be the scheduler's.
fn is_partial(load: &Load) -> Result<bool, Failure> {
    Ok(load.scope == Scope::WhoAsks || live::takes_who_asks(&load.object).map_err(failure)?)
}

/// Bound of a stall if none is given: ten times what a busy machine's own scheduler lets tasks wait.
const STALL: Duration = Duration::from_secs(2);

fn guards_of(choice: &GuardChoice) -> Guards {
    Guards { stall: choice.stall.map_or(STALL, duration), p99: choice.p99.map(duration) }
}

/// The probation that was asked for.
fn probation_of(choice: &GuardChoice) -> Result<Option<Probation>, Failure> {
    let Some(length) = choice.canary else {
        let guard = choice.p99.map(|_| "--p99").or(choice.stall.map(|_| "--stall"));
        return match guard {
            Some(guard) => {
                Err(Failure::BadInput(anyhow!("{guard} guards a time: say which with --canary SECONDS")))
            }
            None => Ok(None),
        };
    };
    Ok(Some(Probation { length: duration(length), guards: guards_of(choice) }))
}

fn duration(time: Nanos) -> Duration {
    Duration::from_nanos(time.0)
}

/// What the machine cannot do is told apart from bad input, and from a scheduler that it does not take.
fn failure(error: Error) -> Failure {
    refused(error.to_string(), error.code())
}

fn refused(text: String, code: u8) -> Failure {
    match code {
        1 => Failure::AnswerIsNo(text),
        2 => Failure::BadInput(anyhow!("{text}")),
        130 => Failure::Interrupted,
        _ => Failure::Machine(anyhow!("{text}")),
    }
}

/// What stands in the way of changing the scheduler here and now, without changing anything.
fn obstacle() -> Option<String> {
    match KernelStatus::read() {
        Err(error) => Some(error.to_string()),
        Ok(kernel) => match journal::owner(directory()).filter(journal::Owner::is_alive) {
            Some(owner) => Some(format!("{owner} has it")),
            None if kernel.is_taken() => Some(live::status::foreign_words(&kernel)),
            None if !schedlab_host::capability::probe().root => Some(Error::Privilege.to_string()),
            None => None,
        },
    }
}

/// Prints what would be done, and what stands in the way.
fn print_plan(steps: &[String]) -> Result<(), Failure> {
    let mut text = String::from("Nothing was changed. This would be done:\n");
    for (index, step) in steps.iter().enumerate() {
        text += &format!("  {}. {step}\n", index + 1);
    }
    if let Some(obstacle) = obstacle() {
        text += &format!("In the way now: {obstacle}\n");
    }
    print_text(&text)
}

/// The command line as typed, for whoever asks who is at work.
fn own_command() -> String {
    let words: Vec<String> = std::env::args().skip(1).collect();
    format!("schedlab {}", words.join(" "))
}

/// Our own program, under its own name.
fn own_program() -> Result<PathBuf, Failure> {
    let path = std::env::current_exe().context("the program does not find itself");
    path.map_err(Failure::Machine)
}
