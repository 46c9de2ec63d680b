//! `schedlab run`: one command under a scheduler; this process holds it meanwhile.
//!
//! Whatever ends first decides: the command (then the scheduler is taken out), the scheduler (then the command goes on
//! under the kernel's own), a guard, or Ctrl-C.

use super::super::Context;
use super::super::common::interrupt_flag;
use super::{directory, failure, guards_of, is_partial, load_of, own_command, print_plan, trial, words};
use crate::args::live::RunArgs;
use crate::failure::Failure;
use crate::output::write_json;
use schedlab_host::live::Scope;
use schedlab_host::live::canary::{self, Canary, Guards, Trip};
use schedlab_host::live::command::Work;
use schedlab_host::live::control::{Answer, Load, send};
use schedlab_host::live::hold::{End, HOLDING, Holder, Wake, run_first};
use schedlab_host::live::journal::Owner;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Runs the command.
pub fn run(args: &RunArgs, context: Context) -> Result<(), Failure> {
    let scope = if args.only_command { Scope::WhoAsks } else { Scope::AsDeclared };
    let load = load_of(&args.scheduler, scope)?;
    let partial = is_partial(&load)?;
    if args.dry_run {
        return print_plan(&plan(args, &load, partial));
    }
    let interrupted = interrupt_flag();
    let (mut holder, repaired) =
        Holder::take(directory(), Owner::this(own_command()), interrupted.clone()).map_err(failure)?;
    let say = |text: &str| {
        if !context.quiet {
            eprint!("{text}");
        }
    };
    if let Some(repaired) = repaired.filter(|repaired| !repaired.undone.is_empty()) {
        say(&format!("schedlab: {}\n", words::repaired(&repaired)));
    }
    if args.trial {
        let plan = trial::Plan::of_command(args, partial);
        let tried = trial::run(&mut holder, &load, &plan, |round| say(&trial::line(&round)));
        let (_, undone) = holder.close();
        let tried = tried?;
        undone.map_err(|error| failure(error.into()))?;
        return trial::conclude(&tried, &load, args.json.as_deref());
    }
    let Answer::Runs { held, taken, .. } = holder.attach(load.clone()).map_err(failure)? else {
        unreachable!("attaching answers what runs")
    };
    run_first();
    say(&words::runs(&held, &taken));
    let began = Instant::now();
    let watched = watch(&mut holder, args, partial, &interrupted, &say);
    let (end, undone) = holder.close();
    let watched = watched?;
    let undone = undone.map_err(|error| failure(error.into()))?;
    let end = watched.end.clone().or(end);
    say(&end.as_ref().map_or(String::new(), words::end));
    say(&words::undone(&undone));
    let value = serde_json::json!({"scheduler": load.name, "knobs": held.knobs, "partial": partial,
        "taken": taken, "wall_s": began.elapsed().as_secs_f64(), "code": watched.code, "trip": watched.trip,
        "end": end, "undone": undone});
    write_json(args.json.as_deref(), &value)?;
    verdict(&watched, &load, interrupted.load(Ordering::Relaxed))
}

fn plan(args: &RunArgs, load: &Load, partial: bool) -> Vec<String> {
    let command = args.command.join(" ");
    let policy = if partial { ", as tasks of SCHED_EXT (journal: back to SCHED_NORMAL)" } else { "" };
    let mut steps = vec![
        format!("take {}/lock and begin a journal", directory().display()),
        format!("load {} and give it {}", words::name(load), words::scope(partial)),
        format!("run '{command}' as the invoking user{policy}"),
        "take the scheduler out, undo what the journal says".to_owned(),
    ];
    if args.trial {
        steps[1] = format!(
            "{} times load {} and take it out, in turns with the kernel's own",
            args.rounds, load.name
        );
        steps[2] = format!("run '{command}' {} times under each{policy}", args.rounds);
    }
    steps
}

/// How a command fared.
struct Watched {
    code: i32,
    /// The scheduler's end, if it ended before the command.
    end: Option<End>,
    trip: Option<Trip>,
    interrupted: bool,
    stopped: bool,
}

/// What is seen between two looks.
enum Seen {
    Ended(i32),
    Tripped(Trip),
}

/// Runs the command under the scheduler that is attached, to its end.
fn watch(
    holder: &mut Holder,
    args: &RunArgs,
    partial: bool,
    interrupted: &Arc<AtomicBool>,
    say: &dyn Fn(&str),
) -> Result<Watched, Failure> {
    let canary = is_guarded(args).then(|| Canary::start(canary::policy(partial)));
    let guards = guards_of(&args.guards);
    let length = args.guards.canary.map(|length| Duration::from_nanos(length.0));
    let mut work = Work::start(&args.command, partial, holder.journal()).map_err(failure)?;
    let mut watched = Watched { code: 0, end: None, trip: None, interrupted: false, stopped: false };
    holder.phase(HOLDING);
    let began = Instant::now();
    let wake = holder.serve(work.descriptor(), || {
        let is_on = length.is_none_or(|length| began.elapsed() < length);
        let trip = canary.as_ref().filter(|_| is_on).and_then(|canary| guard(canary, &guards));
        trip.map(Seen::Tripped).or_else(|| work.ended().map(Seen::Ended))
    });
    match wake {
        Wake::Done(Seen::Ended(code)) => watched.code = code,
        Wake::Done(Seen::Tripped(trip)) => {
            say(&format!("Guard      {} tripped: {}; the command goes on\n", trip.guard, trip.measured));
            watched.trip = Some(trip);
            holder.detach();
            watched.code = outlive(&mut work, interrupted, &mut watched.interrupted);
        }
        Wake::Ended(end) => {
            say(&format!("Ended      {}; the command goes on\n", end.words()));
            watched.end = Some(end);
            watched.code = outlive(&mut work, interrupted, &mut watched.interrupted);
        }
        Wake::Stop(mut stream) => {
            let end = holder.detach();
            let undone = holder.journal().undo().map_err(|error| failure(error.into()))?;
            // Whoever asked may be gone.
            let _ = send(&mut stream, &Answer::Stopped { end: end.clone(), undone }, &[]);
            say("Stopped    by `schedlab stop`; the command goes on under the kernel's own scheduler\n");
            (watched.stopped, watched.end) = (true, end);
            watched.code = outlive(&mut work, interrupted, &mut watched.interrupted);
        }
        Wake::Interrupted => watched.code = outlive(&mut work, interrupted, &mut watched.interrupted),
    }
    Ok(watched)
}

/// Guards are on if somebody asked for them.
fn is_guarded(args: &RunArgs) -> bool {
    args.guards.canary.is_some() || args.guards.p99.is_some()
}

fn guard(canary: &Canary, guards: &Guards) -> Option<Trip> {
    canary.check(guards, false)
}

/// A command that Ctrl-C reached too may end in its own way; one that only we were told of is told after this long.
const GRACE: Duration = Duration::from_millis(500);

/// Waits for the command to end by itself or, once a signal has come, by that signal.
fn outlive(work: &mut Work, interrupted: &Arc<AtomicBool>, was_interrupted: &mut bool) -> i32 {
    let mut since: Option<Instant> = None;
    let mut told = false;
    loop {
        if let Some(code) = work.ended() {
            return code;
        }
        if interrupted.load(Ordering::Relaxed) {
            *was_interrupted = true;
            if !told && since.get_or_insert_with(Instant::now).elapsed() >= GRACE {
                told = true;
                work.terminate();
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn verdict(watched: &Watched, load: &Load, interrupted: bool) -> Result<(), Failure> {
    if watched.interrupted || interrupted {
        return Err(Failure::Interrupted);
    }
    if let Some(trip) = &watched.trip {
        return Err(Failure::AnswerIsNo(format!("{} was taken out: {trip}", load.name)));
    }
    match &watched.end {
        Some(end) if !watched.stopped => {
            Err(Failure::AnswerIsNo(format!("{} did not last: {}", load.name, end.words())))
        }
        _ if watched.code != 0 => Err(Failure::Command(watched.code)),
        _ => Ok(()),
    }
}
