//! `schedlab run`: one command under a scheduler; this process holds it meanwhile.
//!
//! Whatever ends first decides: the command (then the scheduler is taken out), the scheduler (then the command goes on
//! under the kernel's own), a guard, or Ctrl-C.

use super::super::Context;
use super::super::common::interrupt_flag;
use super::{
    directory, failure, guards_of, is_partial, load_of, own_command, print_plan, priorities, stopped, trial,
    words,
};
use crate::args::live::RunArgs;
use crate::failure::Failure;
use crate::output::write_json;
use schedlab_host::live::Scope;
use schedlab_host::live::canary::{self, Canary, Trip};
use schedlab_host::live::command::{self, Work};
use schedlab_host::live::control::{Answer, Load, send};
use schedlab_host::live::hold::{End, HOLDING, Holder, LOOK_OFTEN, LOOK_RARELY, Wake};
use schedlab_host::live::journal::Owner;
use schedlab_host::live::priorities::PriorityLog;
use schedlab_host::live::programs::{Counting, RunningProgram, RunningPrograms};
use schedlab_host::live::status::KernelStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Runs the command.
pub fn run(args: &RunArgs, context: Context) -> Result<(), Failure> {
    let scope = if args.only_command { Scope::WhoAsks } else { Scope::AsDeclared };
    let mut load = load_of(&args.scheduler, scope)?;
    if priorities::are_drawn(args) {
        priorities::prepare(&mut load)?;
    }
    let partial = is_partial(&load)?;
    command::find(&args.command[0]).map_err(failure)?;
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
    if interrupted.load(Ordering::Relaxed) {
        return Err(Failure::Interrupted);
    }
    say(&words::runs(&held, &taken));
    let began = Instant::now();
    let mut looks = Looks::begin(args, &load)?;
    let Watched { code, end, early, trip, interrupted, undone } =
        watch(&mut holder, args, partial, &mut looks, &interrupted, &say)?;
    say(&looks.pictures(args, &load)?);
    say(&looks.cost_words(began.elapsed()));
    let not_undone = undone.as_ref().err().map(Failure::to_string);
    let undone_now = undone.as_deref().unwrap_or_default();
    say(&end.as_ref().map_or(String::new(), words::end));
    say(&words::undone(undone_now));
    let value = serde_json::json!({"scheduler": load.name, "knobs": held.knobs, "partial": partial,
        "taken": taken, "wall_s": began.elapsed().as_secs_f64(), "code": code, "trip": trip,
        "end": end, "undone": undone_now, "not_undone": not_undone, "costs": looks.costs,
        "priorities": looks.log.as_ref().map(priorities::json)});
    write_json(args.json.as_deref(), &value)?;
    undone?;
    if interrupted {
        return Err(Failure::Interrupted);
    }
    match (trip, end.filter(|_| early)) {
        (Some(trip), _) => Err(Failure::AnswerIsNo(format!("{} was taken out: {trip}", load.name))),
        (None, Some(end)) => Err(Failure::AnswerIsNo(format!("{} did not last: {}", load.name, end.words()))),
        (None, None) if code != 0 => Err(Failure::Command(code)),
        (None, None) => Ok(()),
    }
}

/// What is looked at besides while the scheduler runs.
struct Looks {
    log: Option<PriorityLog>,
    /// Whether the log is drawn: names of tasks that soon end matter.
    drawn: bool,
    /// The scheduler's name, while the kernel counts what its programs cost.
    counting: Option<(String, Counting)>,
    /// What they have cost, as last seen.
    costs: Vec<RunningProgram>,
    looked: Instant,
}

/// How often a log that is not drawn is read. Each look preempts the work, and tasks so preempted are charged for what they
/// ran sooner than they would be.
const LOG_EVERY: Duration = Duration::from_millis(500);
/// How often costs are read: the programs are gone as soon as the scheduler is.
const COSTS_EVERY: Duration = Duration::from_millis(200);

impl Looks {
    fn begin(args: &RunArgs, load: &Load) -> Result<Looks, Failure> {
        let name = KernelStatus::read().map_err(failure)?.scheduler;
        let log = priorities::are_logged(load).then(|| PriorityLog::of(&name, &load.object)).flatten();
        let counting = args.cost.then(Counting::start).transpose().map_err(failure)?;
        let counting = counting.map(|counting| (name, counting));
        let drawn = priorities::are_drawn(args);
        Ok(Looks { log, drawn, counting, costs: Vec::new(), looked: Instant::now() })
    }

    /// How often to look, if nothing else asks for more.
    fn every(&self) -> Duration {
        match &self.log {
            _ if self.drawn || self.counting.is_some() => LOOK_OFTEN,
            Some(_) => LOG_EVERY,
            None => LOOK_RARELY,
        }
    }

    fn look(&mut self, command: u32) {
        if let Some(log) = &mut self.log {
            log.poll(command);
        }
        if self.counting.is_some() && self.looked.elapsed() >= COSTS_EVERY {
            self.read_costs();
        }
    }

    fn read_costs(&mut self) {
        let Some((name, _)) = &self.counting else { return };
        let costs = RunningPrograms::find(name).costs();
        if !costs.is_empty() {
            self.costs = costs;
        }
        self.looked = Instant::now();
    }

    fn pictures(&self, args: &RunArgs, load: &Load) -> Result<String, Failure> {
        let log = self.log.as_ref().filter(|_| self.drawn);
        log.map_or(Ok(String::new()), |log| priorities::write(args, load, log))
    }

    fn cost_words(&self, wall: Duration) -> String {
        if self.counting.is_some() { words::costs(&self.costs, wall) } else { String::new() }
    }
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
    /// How the scheduler ended.
    end: Option<End>,
    /// Whether the kernel ended it before the command had ended.
    early: bool,
    trip: Option<Trip>,
    interrupted: bool,
    undone: Result<Vec<String>, Failure>,
}

/// What is seen between two looks.
enum Seen {
    Ended(i32),
    Tripped(Trip),
}

/// Runs the command under the scheduler that is attached, to its end. Scheduler, journal and lock are given up as soon as
/// one of the two has ended, however long the command goes on.
fn watch(
    holder: &mut Holder,
    args: &RunArgs,
    partial: bool,
    looks: &mut Looks,
    interrupted: &Arc<AtomicBool>,
    say: &dyn Fn(&str),
) -> Result<Watched, Failure> {
    let canary = is_guarded(args).then(|| Canary::start(canary::policy(partial)));
    let guards = guards_of(&args.guards);
    let length = args.guards.canary.map(|length| Duration::from_nanos(length.0));
    let mut work = holder.start(&args.command, partial).map_err(failure)?;
    holder.phase(HOLDING);
    let (began, command) = (Instant::now(), work.pid());
    // The end of the command wakes the holder, if it can be waited for.
    let rests = canary.is_none() && work.descriptor().is_some();
    let every = if rests { looks.every() } else { LOOK_OFTEN };
    let wake = holder.serve(work.descriptor(), every, || {
        looks.look(command);
        let is_on = length.is_none_or(|length| began.elapsed() < length);
        let trip = canary.as_ref().filter(|_| is_on).and_then(|canary| canary.check(&guards, false));
        trip.map(Seen::Tripped).or_else(|| work.ended().map(Seen::Ended))
    });
    drop(canary);
    // The last look: what the scheduler keeps goes with it.
    looks.look(command);
    looks.read_costs();
    let (end, undone) = holder.release();
    let undone = undone.map_err(|error| failure(error.into()));
    let mut watched = Watched { code: 0, end, early: false, trip: None, interrupted: false, undone };
    match wake {
        Wake::Done(Seen::Ended(code)) => {
            watched.code = code;
            watched.interrupted = interrupted.load(Ordering::Relaxed);
            return Ok(watched);
        }
        Wake::Done(Seen::Tripped(trip)) => {
            say(&format!("Guard      {} tripped: {}; the command goes on\n", trip.guard, trip.measured));
            watched.trip = Some(trip);
        }
        Wake::Ended(end) => {
            say(&format!("Ended      {}; the command goes on\n", end.words()));
            (watched.end, watched.early) = (Some(end), true);
        }
        Wake::Stop(mut stream) => {
            // Whoever asked may be gone.
            let _ = send(&mut stream, &stopped(watched.end.clone(), &watched.undone, true), &[]);
            say("Stopped    by `schedlab stop`; the command goes on under the kernel's own scheduler\n");
        }
        Wake::Interrupted => {}
    }
    if let Err(failure) = &watched.undone {
        // The command can go on for long, and whoever waits for it can mend this meanwhile.
        eprintln!("schedlab: {failure}");
    }
    (watched.code, watched.interrupted) = outlive(&mut work, interrupted, say);
    Ok(watched)
}

/// Guards are on if somebody asked for them.
fn is_guarded(args: &RunArgs) -> bool {
    args.guards.canary.is_some() || args.guards.p99.is_some() || args.guards.stall.is_some()
}

/// A command that Ctrl-C reached too may end in its own way; one that only we were told of is told after this long.
const GRACE: Duration = Duration::from_millis(500);
/// One that has not ended by then is spoken of. It is not killed: nothing of ours depends on it any more.
const SPEAK_AFTER: Duration = Duration::from_secs(5);

/// Waits for the command to end by itself or, once a signal has come, by that signal. Its exit code, and whether a signal
/// came.
fn outlive(work: &mut Work, interrupted: &Arc<AtomicBool>, say: &dyn Fn(&str)) -> (i32, bool) {
    let mut since: Option<Instant> = None;
    let (mut told, mut spoken) = (false, false);
    loop {
        if let Some(code) = work.ended() {
            return (code, interrupted.load(Ordering::Relaxed));
        }
        if interrupted.load(Ordering::Relaxed) {
            let waited = since.get_or_insert_with(Instant::now).elapsed();
            if !told && waited >= GRACE {
                told = true;
                work.terminate();
            }
            if !spoken && waited >= SPEAK_AFTER {
                spoken = true;
                let pid = work.pid();
                say(&format!(
                    "Waiting    for the command (process {pid}), which does not end when asked to; the scheduler is out, \
                     and Ctrl-C again leaves the command alone\n"
                ));
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
