//! What asks or ends the process that holds a scheduler: `status`, `switch`, `set`, `stop`, `restore`.

use super::super::Context;
use super::start::last;
use super::{
    directory, failure, is_partial, knobs_of, load_of, not_stood, print_plan, probation_of, refused, words,
};
use crate::args::live::{SetArgs, StatusArgs, SwitchArgs, UndoArgs};
use crate::failure::Failure;
use crate::output::{print_text, write_json};
use anyhow::anyhow;
use schedlab_host::live::control::{Answer, Connection, Held, Request};
use schedlab_host::live::journal::{self, Left, Owner, Watched};
use schedlab_host::live::status::{self as kernel, KernelStatus};
use schedlab_host::live::{Error, Scope, wait_for};
use schedlab_host::machine::now_unix_s;
use schedlab_report::units;
use serde_json::{Value, json};
use std::time::Duration;

/// Loading and verifying on a slow machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// A holder that does not answer by then is ended.
const STOP_MAX: Duration = Duration::from_secs(40);
/// One that was killed is dead by then, and its scheduler gone, or the kernel holds it.
const KILLED_MAX: Duration = Duration::from_secs(10);
/// After its answer a holder has only to end.
const GONE_MAX: Duration = Duration::from_secs(2);

/// The holder, or that there is none.
fn holder() -> Result<Connection, Failure> {
    KernelStatus::read().map_err(failure)?;
    let connection = Connection::open(directory()).map_err(failure)?;
    connection.ok_or_else(|| {
        let text = match KernelStatus::read() {
            Ok(kernel) if kernel.is_taken() => kernel::foreign_words(&kernel) + ", not by schedlab",
            _ => "schedlab holds no scheduler: `schedlab start SCHEDULER` does".to_owned(),
        };
        Failure::Machine(anyhow!(text))
    })
}

/// Replaces the scheduler that runs.
pub fn switch(args: &SwitchArgs, context: Context) -> Result<(), Failure> {
    let load = load_of(&args.scheduler, Scope::AsDeclared)?;
    let probation = probation_of(&args.guards)?;
    if args.dry_run {
        let scope = words::scope(is_partial(&load)?);
        let mut steps = vec![
            format!("load {} while the present scheduler runs", words::name(&load)),
            format!(
                "take that out and give the new one {scope}; if it is not enabled, load the old one again"
            ),
        ];
        if let Some(probation) = &probation {
            let seconds = probation.length.as_secs_f64();
            steps.push(format!(
                "watch canary tasks for {seconds} s; if a guard trips, load the old one again"
            ));
        }
        return print_plan(&steps);
    }
    let mut holder = holder()?;
    let name = load.name.clone();
    let length = probation.as_ref().map(|probation| probation.length);
    let answer = holder.ask(&Request::Switch { load, probation }, PATIENCE).map_err(failure)?;
    let Answer::Runs { held, taken, before } = answer else { return Err(unexpected(answer)) };
    let mut text = words::runs(&held, &taken);
    if let Some(before) = before.as_ref().filter(|before| before.is_error()) {
        text += &format!("Before     {}\n", before.words());
    }
    let mut value = json!({"runs": held, "taken": taken, "before": before});
    let mut failed = None;
    if let Some(length) = length {
        if !context.quiet {
            eprint!("{text}");
            text.clear();
        }
        let answer = holder.answer(length + PATIENCE).map_err(failure)?;
        let Answer::Probed(probed) = answer else { return Err(unexpected(answer)) };
        text += &words::probed(&probed);
        value["probation"] = json!(probed);
        failed = not_stood(&name, &probed);
    }
    if !write_json(args.json.as_deref(), &value)? {
        print_text(&text)?;
    }
    failed.map_or(Ok(()), Err)
}

/// Sets knobs of the scheduler that runs.
pub fn set(args: &SetArgs, _context: Context) -> Result<(), Failure> {
    let mut holder = holder()?;
    let answer = holder.ask(&Request::Status, PATIENCE).map_err(failure)?;
    let Answer::Status { held: Some(held), .. } = answer else { return Err(unexpected(answer)) };
    let knobs = knobs_of(&held.name, &args.knobs)?;
    if args.dry_run {
        let steps = knobs.iter().map(|(name, value)| format!("set {name} of {} to {value}", held.name));
        return print_plan(&steps.collect::<Vec<_>>());
    }
    let mut holder = self::holder()?;
    let answer = holder.ask(&Request::Set { knobs: knobs.clone() }, PATIENCE).map_err(failure)?;
    if answer != Answer::Set {
        return Err(unexpected(answer));
    }
    let lines = knobs.iter().map(|(name, value)| format!("Knob       {name} = {value}\n"));
    print_text(&lines.collect::<String>())
}

/// Takes the scheduler out that schedlab holds.
pub fn stop(args: &UndoArgs, context: Context) -> Result<(), Failure> {
    let owner = journal::owner(directory()).and_then(Watched::new);
    if args.dry_run {
        let step = match owner.as_ref().map(Watched::owner) {
            Some(owner) => format!("ask {owner} to take its scheduler out and undo its changes"),
            None => "nothing: schedlab holds no scheduler".to_owned(),
        };
        return print_plan(&[step]);
    }
    let mut holder = holder()?;
    let asked = holder.ask(&Request::Stop, STOP_MAX);
    let (end, undone, stays) = match asked {
        Ok(Answer::Stopped { end, undone, stays }) => (end, undone, stays),
        Ok(answer) => return Err(unexpected(answer)),
        Err(error) => {
            let owner = owner.as_ref().ok_or_else(|| failure(error))?;
            if !context.quiet {
                eprintln!("schedlab: {} does not answer: it is killed", owner.owner());
            }
            kill(owner)?;
            (None, repair()?, false)
        }
    };
    // The holder ends its journal before it answers; its process is gone a moment later, unless its command goes on.
    let _ = stays || owner.is_none_or(|owner| owner.wait_end(GONE_MAX));
    let mut text = end.as_ref().map_or(String::new(), words::end) + &words::undone(&undone);
    text += "The kernel's own scheduler has all tasks.\n";
    if !write_json(args.json.as_deref(), &json!({"end": end, "undone": undone}))? {
        print_text(&text)?;
    }
    Ok(())
}

/// The kernel takes its scheduler out with it.
fn kill(owner: &Watched) -> Result<(), Failure> {
    if !owner.kill(KILLED_MAX).map_err(|error| failure(error.into()))? {
        let (owner, seconds) = (owner.owner(), KILLED_MAX.as_secs());
        return Err(Failure::Machine(anyhow!(
            "{owner} is not dead {seconds} s after SIGKILL: the kernel holds it, see its log (dmesg)"
        )));
    }
    wait_for("disabled", KILLED_MAX);
    Ok(())
}

fn repair() -> Result<Vec<String>, Failure> {
    let repaired = journal::repair(directory()).map_err(|error| failure(error.into()))?;
    Ok(repaired.map_or(Vec::new(), |repaired| repaired.undone))
}

/// Undoes what a command that was killed has left.
pub fn restore(args: &UndoArgs) -> Result<(), Failure> {
    let left = journal::look(directory()).map_err(|error| failure(error.into()))?;
    let (is_left, owner) = match left {
        Left::AtWork(owner) => {
            let owner = owner.map_or("another schedlab".to_owned(), |owner| owner.to_string());
            let text = format!("nothing to restore: {owner} is at work and undoes its changes itself");
            return print_text(&format!("{text} (`schedlab stop` ends it)\n"));
        }
        Left::Abandoned(owner) => (true, owner),
        Left::Nothing => (false, None),
    };
    if args.dry_run {
        let who = owner.as_ref().map_or("a command".to_owned(), Owner::to_string);
        let step = match is_left {
            true => {
                format!("undo what {who} left changed, as {} says", directory().join("journal").display())
            }
            false => "nothing: no journal is left".to_owned(),
        };
        return print_plan(&[step]);
    }
    if is_left && !schedlab_host::capability::probe().root {
        return Err(failure(Error::Privilege));
    }
    let undone = repair()?;
    let text =
        if undone.is_empty() { "Nothing was left changed.\n".to_owned() } else { words::undone(&undone) };
    if !write_json(args.json.as_deref(), &json!({"owner": owner, "undone": undone}))? {
        print_text(&text)?;
    }
    Ok(())
}

/// Who runs what.
pub fn status(args: &StatusArgs) -> Result<(), Failure> {
    let kernel = KernelStatus::read().map_err(failure)?;
    let ours = ours();
    let others: Vec<kernel::Holder> = match &ours {
        Some((owner, ..)) => kernel::holders().into_iter().filter(|holder| holder.pid != owner.pid).collect(),
        None => kernel::holders(),
    };
    let loaders = kernel::loaders();
    let last = last().filter(|_| ours.is_none());
    let value = json!({"kernel": kernel, "others": others, "loaders": loaders, "last": last,
        "schedlab": ours.as_ref().map(|(owner, held, phase)| json!({"owner": owner, "held": held, "phase": phase}))});
    if write_json(args.json.as_deref(), &value)? {
        return Ok(());
    }
    let mut text = match kernel.scheduler.as_str() {
        "" => format!("Scheduler  the kernel's own (sched_ext is {})\n", kernel.state),
        name => format!("Scheduler  '{name}', {} for {}\n", kernel.state, words::scope(!kernel.switch_all)),
    };
    match &ours {
        Some((owner, held, phase)) => text += &described(owner, held.as_ref(), phase),
        None if kernel.is_taken() => text += &format!("Held by    {}\n", kernel::foreign_words(&kernel)),
        None => {}
    }
    for loader in &loaders {
        let (program, pid, changes) = (&loader.program, loader.pid, loader.changes);
        text += &format!("Also here  {program} (process {pid}): {changes}\n");
    }
    let rejected = kernel.nr_rejected;
    text += &format!("Kernel     {} schedulers since boot, {rejected} tasks rejected\n", kernel.enable_seq);
    for (event, count) in &kernel.events {
        text +=
            &format!("Event      {event} {}\n", units::grouped(i64::try_from(*count).unwrap_or(i64::MAX)));
    }
    if let Some(last) = &last {
        text += &format!("Last       {}\n{}", last.scheduler, words::end(&last.end));
    }
    print_text(&text)
}

/// Our holder, what it holds, and what it is at; without rights only who it is.
fn ours() -> Option<(Owner, Option<Held>, String)> {
    let owner = journal::owner(directory()).filter(Owner::is_alive)?;
    let answer =
        Connection::open(directory()).ok().flatten().map(|mut holder| holder.ask(&Request::Status, PATIENCE));
    match answer {
        Some(Ok(Answer::Status { owner, held, phase })) => Some((owner, held, phase)),
        _ => Some((owner, None, "at work; `sudo` shows at what".to_owned())),
    }
}

fn described(owner: &Owner, held: Option<&Held>, phase: &str) -> String {
    let mut text = format!("Held by    schedlab: {owner}\nPhase      {phase}\n");
    let Some(held) = held else { return text };
    let now = now_unix_s();
    text += &format!("Runs       {} for {} s\n", held.name, now.saturating_sub(held.since_unix_s));
    for (name, value) in words::knobs(held.knobs.iter()) {
        text += &format!("Knob       {name} = {value}\n");
    }
    text
}

/// A refusal is told as such; anything else is our own mistake, told as well as can be.
fn unexpected(answer: Answer) -> Failure {
    match answer {
        Answer::Refused { text, code } => refused(text, code),
        Answer::Status { owner, held: None, phase } => {
            Failure::Machine(anyhow!("not now: {owner} is at its {phase}"))
        }
        other => {
            let other: Value = json!(other);
            Failure::Machine(anyhow!(
                "the holder answers something else: {other}; end it with `schedlab stop`"
            ))
        }
    }
}
