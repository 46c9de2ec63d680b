//! `schedlab start`, and the process it leaves behind: `schedlab hold`.
//!
//! The starter puts what to do into a directory, starts the holder (a transient unit where there is systemd, else a process
//! of its own session) and passes on what that says until it runs or has failed. The holder alone has the lock.

use super::super::Context;
use super::super::common::interrupt_flag;
use super::trial::{self, Plan, Tried};
use super::{
    directory, failure, guards_of, is_partial, load_of, not_stood, own_command, own_program, print_plan,
    probation_of, refused, stopped, words,
};
use crate::args::live::{HoldArgs, StartArgs};
use crate::failure::Failure;
use crate::output::{print_text, write_json};
use anyhow::{Context as _, anyhow};
use schedlab_host::live::canary::Guards;
use schedlab_host::live::control::{self, Answer, Connection, Load, Probation};
use schedlab_host::live::hold::{End, HOLDING, Holder, LOOK_RARELY, Wake};
use schedlab_host::live::journal::Owner;
use schedlab_host::live::tasks::started;
use schedlab_host::live::{Error, Scope};
use schedlab_host::vm::initramfs::find_program;
use serde::{Deserialize, Serialize};
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The transient unit.
const UNIT: &str = "schedlab-scheduler";
/// A holder that has not said a word by then is not there.
const FIRST_WORD_MAX: Duration = Duration::from_secs(60);
/// A scheduler that asks to be loaded again is, so often within that time: more is no accident of a CPU that comes or goes.
const RESTARTS_MAX: usize = 5;
const RESTARTS_WITHIN: Duration = Duration::from_secs(60);
/// A holder that is asked to end takes its scheduler out first.
const END_MAX: Duration = Duration::from_secs(40);
/// An answer that has begun to come is there soon.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// How the last scheduler ended, for whoever asks later.
const LAST: &str = "last";

/// What the holder is to do.
#[derive(Debug, Serialize, Deserialize)]
struct Job {
    owner_command: String,
    user: String,
    load: Load,
    probation: Option<Probation>,
    trial: Option<TrialJob>,
}

#[derive(Debug, Serialize, Deserialize)]
struct TrialJob {
    rounds: u32,
    round: Duration,
    guards: Guards,
    keep: bool,
}

/// How a scheduler ended while nobody was there to be told.
#[derive(Debug, Serialize, Deserialize)]
pub struct Last {
    /// The scheduler.
    pub scheduler: String,
    /// How it ended.
    pub end: End,
}

/// Starts it.
pub fn start(args: &StartArgs, context: Context) -> Result<(), Failure> {
    let load = load_of(&args.scheduler, Scope::AsDeclared)?;
    // A trial has guards of its own, for its rounds.
    let probation = if args.trial { None } else { probation_of(&args.guards)? };
    let partial = is_partial(&load)?;
    if args.dry_run {
        return print_plan(&plan(args, &load, partial, probation.as_ref()));
    }
    schedlab_host::live::status::KernelStatus::read().map_err(failure)?;
    if !schedlab_host::capability::probe().root {
        return Err(failure(Error::Privilege));
    }
    let trial = args.trial.then(|| TrialJob {
        rounds: args.rounds,
        round: Duration::from_nanos(args.round.0),
        guards: guards_of(&args.guards),
        keep: args.keep,
    });
    let user = Owner::this("").user;
    let job = Job { owner_command: own_command(), user, load: load.clone(), probation, trial };
    let interrupted = interrupt_flag();
    let place = Place::make(&job)?;
    let mut launched = place.launch(&interrupted, context)?;
    if partial && !context.quiet {
        eprintln!(
            "schedlab: {} takes only tasks that ask for SCHED_EXT; nobody does by itself: `schedlab run` has a command do so",
            load.name
        );
    }
    follow(&mut launched, args, &load, &interrupted, context)
}

fn plan(args: &StartArgs, load: &Load, partial: bool, probation: Option<&Probation>) -> Vec<String> {
    let how = if has_systemd() {
        format!("start the transient unit {UNIT}.service (ExecStopPost=schedlab restore), which holds it")
    } else {
        "start a process in a session of its own, which holds it".to_owned()
    };
    let mut steps = vec![
        how,
        format!("take {}/lock and begin a journal", directory().display()),
        format!("load {} and give it {}", words::name(load), words::scope(partial)),
    ];
    if let Some(probation) = probation {
        let seconds = probation.length.as_secs_f64();
        steps.push(format!("watch canary tasks for {seconds} s; if a guard trips, take it out"));
    }
    if args.trial {
        let end = if args.keep { "let it run on if it is better, else take it out" } else { "take it out" };
        let rounds = args.rounds;
        steps.push(format!(
            "{rounds} rounds of {} each with it and without, in turns; then {end}",
            args.round
        ));
    }
    steps
}

/// Passes on what the holder says, until it runs for good or has ended.
fn follow(
    launched: &mut Launched,
    args: &StartArgs,
    load: &Load,
    interrupted: &AtomicBool,
    context: Context,
) -> Result<(), Failure> {
    let mut told = serde_json::Map::new();
    let mut text = String::new();
    let mut answer = None;
    loop {
        if interrupted.load(Ordering::Relaxed) {
            launched.holder.end();
            return Err(Failure::Interrupted);
        }
        if !launched.connection.is_ready(Duration::from_millis(100)) {
            continue;
        }
        match launched.connection.answer(ANSWER_MAX).map_err(failure)? {
            Answer::Runs { held, taken, .. } => {
                text += &words::runs(&held, &taken);
                told.insert("runs".to_owned(), serde_json::json!({"held": held, "taken": taken}));
                if args.guards.canary.is_none() {
                    break;
                }
            }
            Answer::Probed(probed) => {
                text += &words::probed(&probed);
                told.insert("probation".to_owned(), serde_json::json!(probed));
                answer = not_stood(&load.name, &probed);
                break;
            }
            Answer::Round(round) if !context.quiet => eprint!("{}", trial::line(&round)),
            Answer::Tried { rounds, trip, kept } => {
                let concluded = trial::conclude(&Tried { rounds, trip }, load, args.json.as_deref());
                let word = if kept { "runs on" } else { "is out again" };
                if !context.quiet {
                    eprintln!("schedlab: {} {word}", load.name);
                }
                return concluded;
            }
            Answer::Refused { text, code } => return Err(refused(text, code)),
            _ => {}
        }
    }
    if answer.is_none() {
        text += "Next       schedlab status, schedlab set NAME=VALUE, schedlab switch OTHER, schedlab stop\n";
    }
    if !write_json(args.json.as_deref(), &told.into())? {
        print_text(&text)?;
    }
    answer.map_or(Ok(()), Err)
}

/// A directory for one start; gone when dropped.
struct Place {
    path: PathBuf,
    listener: UnixListener,
}

impl Place {
    fn make(job: &Job) -> Result<Place, Failure> {
        let path = directory().join(format!("start-{}", std::process::id()));
        let made = || -> std::io::Result<UnixListener> {
            fs::create_dir_all(directory())?;
            remove_stale();
            fs::DirBuilder::new().mode(0o700).create(&path)?;
            fs::write(path.join("job"), serde_json::to_vec(job).map_err(std::io::Error::other)?)?;
            fs::write(path.join("object"), &job.load.object)?;
            let listener = UnixListener::bind(path.join("answers"))?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        let listener = made().with_context(|| format!("cannot write {}", path.display()));
        Ok(Place { listener: listener.map_err(Failure::Machine)?, path })
    }

    /// Starts the holder and waits for its first word.
    fn launch(&self, interrupted: &AtomicBool, context: Context) -> Result<Launched, Failure> {
        let own = own_program()?;
        let by_unit = has_systemd() && {
            let output = Command::new("systemd-run").args(unit_arguments(&own, &self.path)).output();
            match output {
                Ok(output) if output.status.success() => true,
                Ok(output) => {
                    let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                    if !context.quiet {
                        eprintln!(
                            "schedlab: systemd-run refuses ({why}): a process of its own holds it instead"
                        );
                    }
                    false
                }
                Err(_) => false,
            }
        };
        let mut holder = Process(match by_unit {
            true => None,
            false => Some(detached(&own, &self.path)?),
        });
        let end = Instant::now() + FIRST_WORD_MAX;
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false).context("the holder's socket").map_err(Failure::Machine)?;
                    return Ok(Launched { connection: Connection::from(stream), holder });
                }
                Err(_) if interrupted.load(Ordering::Relaxed) => {
                    holder.end();
                    return Err(Failure::Interrupted);
                }
                Err(_) if Instant::now() < end => std::thread::sleep(Duration::from_millis(5)),
                Err(_) => break,
            }
            if let Some(Ok(Some(status))) = holder.0.as_mut().map(Child::try_wait) {
                return Err(Failure::Machine(anyhow!("the holder ended before it said a word ({status})")));
            }
        }
        let seconds = FIRST_WORD_MAX.as_secs();
        Err(Failure::Machine(anyhow!(
            "the holder said nothing within {seconds} s: see `systemctl status {UNIT}`"
        )))
    }
}

/// A holder that was started, and what it says.
struct Launched {
    connection: Connection,
    holder: Process,
}

/// A holder's process; `None` if it is the transient unit's.
struct Process(Option<Child>);

impl Process {
    /// Has it end, with its scheduler out and all undone.
    fn end(&mut self) {
        match &mut self.0 {
            None => drop(Command::new("systemctl").args(["stop", UNIT]).status()),
            Some(child) => {
                // One that does not end when asked is killed; the next command undoes what it left.
                schedlab_host::live::command::end(child, END_MAX);
            }
        }
    }
}

/// Removes the directories of starters that were killed, and one of this process's number.
fn remove_stale() {
    for entry in fs::read_dir(directory()).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix("start-")?.parse::<u32>().ok());
        let is_stale = |pid: u32| pid == std::process::id() || started(pid as i32).is_none();
        if pid.is_some_and(is_stale) {
            drop(fs::remove_dir_all(entry.path()));
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.path));
    }
}

fn has_systemd() -> bool {
    Path::new("/run/systemd/system").exists() && find_program("systemd-run").is_some()
}

/// Of `systemd-run`: a unit that undoes what is left when its process is gone, however it went.
fn unit_arguments(own: &Path, place: &Path) -> Vec<String> {
    let own = own.display().to_string();
    vec![
        format!("--unit={UNIT}"),
        "--collect".to_owned(),
        "--quiet".to_owned(),
        "--description=A sched_ext scheduler held by schedlab".to_owned(),
        format!("--property=ExecStopPost=@{} schedlab restore", escaped(&own)),
        "--".to_owned(),
        own,
        "hold".to_owned(),
        place.display().to_string(),
    ]
}

/// A path as one word of a command line of systemd's: whatever could mean something there by its number. The path before
/// the name (`@`) has no variables put in.
fn escaped(path: &str) -> String {
    let one = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'_' | b'-' | b'+' => {
            char::from(byte).to_string()
        }
        byte => format!("\\x{byte:02x}"),
    };
    path.bytes().map(one).collect()
}

/// A process in a session of its own, which no terminal's end reaches.
fn detached(own: &Path, place: &Path) -> Result<Child, Failure> {
    let mut command = Command::new(own);
    command.arg0("schedlab").arg("hold").arg(place).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    schedlab_host::live::command::in_session_of_its_own(&mut command);
    command.spawn().context("cannot start the holder").map_err(Failure::Machine)
}

/// The process that holds a scheduler.
pub fn hold(args: &HoldArgs) -> Result<(), Failure> {
    let bad = |error| Failure::BadInput(error);
    let read = |name: &str| {
        let path = args.directory.join(name);
        fs::read(&path).with_context(|| format!("cannot read {}: `schedlab start` writes it", path.display()))
    };
    let mut job: Job = serde_json::from_slice(&read("job").map_err(bad)?).map_err(Failure::input)?;
    job.load.object = read("object").map_err(bad)?;
    let mut teller = UnixStream::connect(args.directory.join("answers")).map_err(Failure::input)?;
    // The starter may go when it has heard what it wanted.
    let mut tell = |answer: &Answer| drop(control::send(&mut teller, answer, &[]));
    let refuse = |failure: Failure, tell: &mut dyn FnMut(&Answer)| {
        tell(&Answer::Refused { text: failure.to_string(), code: failure.code() });
        failure
    };
    let interrupted = interrupt_flag();
    let mut owner = Owner::this(job.owner_command.clone());
    owner.user.clone_from(&job.user);
    let (mut holder, _) =
        Holder::take(directory(), owner, interrupted).map_err(|error| refuse(failure(error), &mut tell))?;
    drop(fs::remove_file(directory().join(LAST)));
    let before = begin(&mut holder, &job, &mut tell);
    match before {
        Ok(true) => {}
        Ok(false) => return finish(holder, None, None),
        Err(failure) => {
            drop(holder);
            return Err(refuse(failure, &mut tell));
        }
    }
    holder.phase(HOLDING);
    let mut restarts = Restarts::default();
    loop {
        match holder.serve::<()>(None, LOOK_RARELY, || None) {
            Wake::Done(()) => unreachable!("nothing is waited for"),
            Wake::Interrupted => return finish(holder, None, None),
            Wake::Stop(stream) => return finish(holder, Some(stream), None),
            Wake::Ended(mut end) => {
                let load = holder.ended_last().unwrap_or_default();
                let name = load.name.clone();
                let again = end.exit.as_ref().is_some_and(schedlab_host::live::Exit::asks_for_restart);
                if !again {
                    return finish(holder, None, Some((name, end)));
                }
                if !restarts.one_more(Instant::now()) {
                    let seconds = RESTARTS_WITHIN.as_secs();
                    end.note = Some(format!(
                        "it was loaded again {RESTARTS_MAX} times within {seconds} s, and not once more"
                    ));
                    return finish(holder, None, Some((name, end)));
                }
                if let Err(error) = holder.attach(load) {
                    end.note = Some(format!("it could not be loaded again: {error}"));
                    return finish(holder, None, Some((name, end)));
                }
            }
        }
    }
}

/// When a scheduler was loaded again because it asked.
#[derive(Default)]
struct Restarts(Vec<Instant>);

impl Restarts {
    /// Whether it may be once more.
    fn one_more(&mut self, now: Instant) -> bool {
        self.0.retain(|before| now.duration_since(*before) < RESTARTS_WITHIN);
        let allowed = self.0.len() < RESTARTS_MAX;
        if allowed {
            self.0.push(now);
        }
        allowed
    }
}

/// Trial or probation, then the scheduler for good; false if it is not to run on.
fn begin(holder: &mut Holder, job: &Job, tell: &mut dyn FnMut(&Answer)) -> Result<bool, Failure> {
    if let Some(trial) = &job.trial {
        let partial = is_partial(&job.load)?;
        let plan = Plan::of_system(trial.rounds, trial.round, partial, trial.guards);
        let tried = trial::run(holder, &job.load, &plan, |round| tell(&Answer::Round(round)))?;
        let kept = trial.keep && tried.trip.is_none() && trial::is_better(&tried.rounds);
        if kept {
            holder.attach(job.load.clone()).map_err(failure)?;
        }
        tell(&Answer::Tried { rounds: tried.rounds, trip: tried.trip, kept });
        return Ok(kept);
    }
    tell(&holder.attach(job.load.clone()).map_err(failure)?);
    let Some(probation) = &job.probation else { return Ok(true) };
    let (probed, cut) = holder.probe(probation, None);
    let runs = probed.trip.is_none() && cut.is_none();
    tell(&Answer::Probed(probed));
    if let Some(Wake::Stop(mut stream)) = cut {
        let (end, undone) = holder.release();
        let undone = undone.map_err(|error| failure(error.into()));
        drop(control::send(&mut stream, &stopped(end, &undone, false), &[]));
        undone?;
    }
    Ok(runs)
}

/// Takes it out, undoes the rest, tells whoever asked, and leaves a word for whoever asks later.
fn finish(holder: Holder, asked: Option<UnixStream>, ended: Option<(String, End)>) -> Result<(), Failure> {
    let (end, undone) = holder.close();
    let undone = undone.map_err(|error| failure(error.into()));
    if let Some(mut stream) = asked {
        drop(control::send(&mut stream, &stopped(end, &undone, false), &[]));
    }
    undone?;
    let Some((scheduler, end)) = ended else { return Ok(()) };
    let text = format!("{scheduler} did not last: {}", end.words());
    let last = serde_json::to_vec(&Last { scheduler, end }).expect("an end is plain data");
    // Without it, `status` only cannot tell why.
    drop(fs::write(directory().join(LAST), last));
    Err(Failure::AnswerIsNo(text))
}

/// How the last scheduler ended, if nobody was told.
pub fn last() -> Option<Last> {
    serde_json::from_slice(&fs::read(directory().join(LAST)).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_restores_whatever_ends_it() {
        let words = unit_arguments(Path::new("/usr/bin/schedlab"), Path::new("/run/schedlab/start-7"));
        assert!(words.contains(&"--property=ExecStopPost=@/usr/bin/schedlab schedlab restore".to_owned()));
        let command = words.iter().skip_while(|word| *word != "--").skip(1);
        assert_eq!(command.collect::<Vec<_>>(), ["/usr/bin/schedlab", "hold", "/run/schedlab/start-7"]);
        // Spaces divide words, `%` and `$` have something put in, quotes and backslashes vanish.
        let words = unit_arguments(Path::new("/opt/50 % $x\"'\\/schedlab"), Path::new("/run"));
        let escaped =
            r"--property=ExecStopPost=@/opt/50\x20\x25\x20\x24x\x22\x27\x5c/schedlab schedlab restore";
        assert!(words.iter().any(|word| word == escaped), "{words:?}");
    }

    /// systemd's own reader finds the program at an odd place, and finds none where there is none.
    #[test]
    fn systemd_reads_the_unit_as_it_is_meant() {
        use std::os::unix::fs::PermissionsExt;
        if find_program("systemd-analyze").is_none() {
            eprintln!("not here: systemd-analyze, which would read the unit");
            return;
        }
        let directory = std::env::temp_dir().join(format!("schedlab-unit-{} 50 % $x", std::process::id()));
        fs::create_dir_all(&directory).expect("scratch");
        let own = directory.join("schedlab");
        fs::write(&own, "#!/bin/sh\n").expect("scratch");
        fs::set_permissions(&own, fs::Permissions::from_mode(0o755)).expect("own file");
        let words = unit_arguments(&own, &directory);
        let post = words.iter().find_map(|word| word.strip_prefix("--property=")).expect("ExecStopPost");
        let unit = directory.join(format!("{UNIT}.service"));
        let verify = |post: &str| {
            fs::write(&unit, format!("[Service]\nExecStart=/bin/sh -c :\n{post}\n")).expect("scratch");
            let output = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&unit).output();
            output.expect("it starts")
        };
        let (right, wrong) = (verify(post), verify(&post.replace("schedlab schedlab", "no schedlab")));
        drop(fs::remove_dir_all(&directory));
        assert!(right.status.success(), "{}", String::from_utf8_lossy(&right.stderr));
        assert!(!wrong.status.success(), "a program that is not there is told");
    }

    #[test]
    fn a_scheduler_that_asks_for_ever_is_not_loaded_for_ever() {
        let mut restarts = Restarts::default();
        let now = Instant::now();
        assert!((0..RESTARTS_MAX).all(|_| restarts.one_more(now)));
        assert!(!restarts.one_more(now + RESTARTS_WITHIN / 2));
        assert!(restarts.one_more(now + RESTARTS_WITHIN), "the old ones are forgotten");
    }
}
