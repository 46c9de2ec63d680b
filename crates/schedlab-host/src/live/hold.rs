//! Holding a scheduler on a machine that matters: one process, which has the lock, the journal and the link.
//!
//! The link is not pinned: whatever ends this process, also SIGKILL, the kernel takes all tasks back by itself. Between
//! the steps of its work the holder serves other commands ([`super::control`]) and looks whether the kernel has ended the
//! scheduler. What it runs besides (a command, rounds of a trial) is its caller's.

use super::canary::{self, Canary, Delays, Trip};
use super::command::{Usual, Work};
use super::control::{self, Answer, Door, Held, Load, Probation, Probed, Request, Taken};
use super::dump::{self, DumpLog, Waiting};
use super::exit::{self, Exit, Frame, KernelLog, Lines};
use super::journal::{self, Journal, Owner, Repaired};
use super::signals::SignalBell;
use super::status::{self, KernelStatus};
use super::{Attached, Error, Scope};
use crate::capability::{become_real_time, is_root};
use crate::machine::now_unix_s;
use serde::{Deserialize, Serialize};
use std::os::fd::RawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The kernel may still be taking tasks back from one that has just died.
const FREE_MAX: Duration = Duration::from_secs(5);
/// How often [`Holder::serve`] looks where something matters that wakes nobody: canaries that are late, a log that fills.
pub const LOOK_OFTEN: Duration = Duration::from_millis(20);
/// How often where all that matters wakes the holder, the kernel's log included. Each look is a real-time task beside the
/// work, which preempts it.
pub const LOOK_RARELY: Duration = Duration::from_secs(5);

/// How a scheduler ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Its record, or what the kernel's log says.
    pub exit: Option<Exit>,
    /// The way to a mistake, the innermost step first.
    pub backtrace: Vec<Frame>,
    /// What the kernel's log says.
    pub log: Vec<String>,
    /// Who could run then, from the kernel's dump, those that waited longest first.
    pub waiting: Vec<Waiting>,
    /// The kernel's dump, line by line.
    pub dump: Vec<String>,
    /// What we add to the kernel's reason, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl End {
    /// In words: reason, message, and the program that made the mistake.
    pub fn words(&self) -> String {
        let why = match (self.exit.as_ref().map(Exit::words), &self.note) {
            (Some(why), Some(note)) => format!("{why}; {note}"),
            (Some(why), None) => why,
            (None, Some(note)) => note.clone(),
            (None, None) => "the kernel ended it; why is not recorded".to_owned(),
        };
        let mut programs = self.backtrace.iter().filter(|frame| frame.program);
        match programs.next() {
            Some(Frame { function, line: Some(line), .. }) => format!("{why}; in its {function}, {line}"),
            Some(Frame { function, .. }) => format!("{why}; in its {function}"),
            None => why,
        }
    }
}

struct Running {
    load: Load,
    attached: Attached,
    lines: Lines,
    since_unix_s: u64,
    partial: bool,
}

/// What ended a time of serving.
pub enum Wake<T> {
    /// What was waited for.
    Done(T),
    /// Somebody asks to stop; the connection wants an [`Answer::Stopped`].
    Stop(UnixStream),
    /// The kernel ended the scheduler.
    Ended(End),
    /// A signal.
    Interrupted,
}

/// This process, as the one that changes the machine's scheduler.
pub struct Holder {
    directory: PathBuf,
    journal: Option<Journal>,
    owner: Owner,
    door: Door,
    running: Option<Running>,
    /// One that should have come back and could not, and why.
    lost: Option<(Load, End)>,
    /// What the kernel ended last.
    ended: Option<Load>,
    log: KernelLog,
    dump: Option<DumpLog>,
    interrupted: Arc<AtomicBool>,
    phase: String,
    /// The attributes of whoever started this thread; a command begins with them.
    usual: Option<Usual>,
    runs_first: bool,
}

/// A holder, and what it undid first of one that was killed.
pub type Took = (Holder, Option<Repaired>);

impl Holder {
    /// Takes lock and journal in `directory`; refuses where a scheduler runs already. `interrupted` ends waiting.
    pub fn take(directory: &Path, owner: Owner, interrupted: Arc<AtomicBool>) -> Result<Took, Error> {
        KernelStatus::read()?;
        if !is_root() {
            return Err(Error::Privilege);
        }
        let (journal, repaired) = Journal::take(directory, &owner)?;
        let refuse = |journal: Journal, error: Error| {
            drop(journal.close());
            Err(error)
        };
        if !is_free() {
            let who = status::foreign_words(&KernelStatus::read()?);
            return refuse(journal, Error::Foreign { who });
        }
        let door = match Door::open(directory) {
            Ok(door) => door,
            Err(error) => return refuse(journal, error),
        };
        let holder = Holder {
            directory: directory.to_owned(),
            journal: Some(journal),
            owner,
            door,
            running: None,
            lost: None,
            ended: None,
            log: KernelLog::listen(),
            dump: DumpLog::listen(),
            interrupted,
            phase: "starting".to_owned(),
            usual: Usual::of_caller(),
            runs_first: false,
        };
        Ok((holder, repaired))
    }

    /// Starts a command, with the attributes that it would have without us; with `policy_ext` as tasks of `SCHED_EXT`.
    pub fn start(&mut self, argv: &[String], policy_ext: bool) -> Result<Work, Error> {
        let journal = self.journal.as_mut().expect("nothing is started after the release");
        Work::start(argv, policy_ext, self.usual, journal)
    }

    /// Lets this thread run before every task that a scheduler has, so that one that starves them cannot starve the
    /// holder; until the release. Threads that it starts are ordinary ones. Where it is refused, it stays as it was.
    pub fn run_first(&mut self) {
        if !self.runs_first {
            let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
            self.runs_first = become_real_time(policy, 1).is_ok();
        }
    }

    /// What it says it is at, when asked.
    pub fn phase(&mut self, phase: impl Into<String>) {
        self.phase = phase.into();
    }

    /// What runs; `None` for the kernel's own scheduler.
    pub fn held(&self) -> Option<Held> {
        let running = self.running.as_ref()?;
        let now =
            |(name, value): &(String, i64)| (name.clone(), running.attached.get(name).unwrap_or(*value));
        Some(Held {
            name: running.load.name.clone(),
            knobs: running.load.knobs.iter().map(now).collect(),
            since_unix_s: running.since_unix_s,
            partial: running.partial,
        })
    }

    /// Loads a scheduler and lets it run in place of the one before, if there is one: that runs until the new one is in
    /// the kernel. If the new one cannot be enabled, the one before is loaded again.
    pub fn attach(&mut self, load: Load) -> Result<Answer, Error> {
        let began = Instant::now();
        let knobs: Vec<(&str, i64)> =
            load.knobs.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        let loaded = super::load_for(&load.object, &knobs, load.scope)?;
        let (lines, partial) = (loaded.lines(), loaded.is_partial());
        let load_us = micros(began);
        if self.interrupted.load(Ordering::Relaxed) {
            // Nothing has been changed yet.
            return Err(Error::Interrupted);
        }
        // What the kernel said about earlier ones is not about this.
        let _ = (self.log.take(), self.dump.as_ref().map(DumpLog::take));
        self.run_first();
        let began = Instant::now();
        let before = self.running.take().map(|mut before| {
            before.attached.unlink_at_once();
            super::wait_until_gone(before.attached.enable_seq(), super::GONE_MAX);
            before
        });
        let attached = match loaded.attach() {
            Ok(attached) => attached,
            Err(error) => {
                if let Some(before) = before {
                    self.bring_back(before.load, &format!("{} was not enabled ({error})", load.name));
                }
                return Err(error);
            }
        };
        let taken = Taken { load_us, enable_us: micros(began) };
        let exit = before.and_then(|before| before.attached.exit());
        let since_unix_s = now_unix_s();
        self.running = Some(Running { load, attached, lines, since_unix_s, partial });
        let held = self.held().expect("it was just attached");
        Ok(Answer::Runs { held, taken, before: exit })
    }

    /// Lets one run again that ran before; if that fails, the next look finds it ended.
    fn bring_back(&mut self, load: Load, why: &str) {
        if let Err(error) = self.attach(load.clone()) {
            let note = format!("{why}, and {} could not be loaded again ({error})", load.name);
            self.lost = Some((load, End { note: Some(note), ..End::default() }));
        }
    }

    /// Gives all tasks back to the kernel's own scheduler and waits for it.
    pub fn detach(&mut self) -> Option<End> {
        let mut running = self.running.take()?;
        running.attached.unregister();
        Some(self.end_of(&running))
    }

    /// Changes knobs of the running scheduler; all of them or none.
    pub fn set(&mut self, knobs: &[(String, i64)]) -> Result<(), Error> {
        let Some(running) = &mut self.running else { return Err(Error::NoScheduler) };
        let mut changed: Vec<(&str, i64)> = Vec::new();
        for (name, value) in knobs {
            let before = running.attached.get(name);
            if let Err(error) = running.attached.set(name, *value) {
                for (name, before) in changed.iter().rev() {
                    running.attached.set(name, *before)?;
                }
                return Err(error);
            }
            changed.extend(before.map(|before| (name.as_str(), before)));
        }
        for (name, value) in knobs {
            running.load.knobs.retain(|(known, _)| known != name);
            running.load.knobs.push((name.clone(), *value));
        }
        Ok(())
    }

    /// Serves other commands until `until` gives something, the kernel ends the scheduler, a signal comes, or somebody asks
    /// to stop. `descriptor` is one that wakes it; besides it looks `every` so often.
    pub fn serve<T>(
        &mut self,
        descriptor: Option<RawFd>,
        every: Duration,
        mut until: impl FnMut() -> Option<T>,
    ) -> Wake<T> {
        let mut done = None;
        // Another reader than the one that keeps what was said: this one only hears that something is.
        let mut bell = KernelLog::listen();
        // A signal that comes just before the sleep would not end it.
        let signals = SignalBell::hang();
        let all_ring = bell.descriptor().is_some() && signals.is_ok();
        let every = if all_ring { every } else { every.min(LOOK_OFTEN) };
        let bells = bell.descriptor().into_iter().chain(signals.as_ref().ok().map(SignalBell::descriptor));
        loop {
            if self.interrupted.load(Ordering::Relaxed) {
                return Wake::Interrupted;
            }
            if let Some(end) = self.ended() {
                return Wake::Ended(end);
            }
            if let Some(done) = done.take().or_else(&mut until) {
                return Wake::Done(done);
            }
            wait(self.door.descriptors().chain(descriptor).chain(bells.clone()), every);
            bell.take();
            if let Some((stream, request)) = self.door.request() {
                // An answer can take its time, as a probation does; it is cut short by what is waited for here.
                let mut over = || {
                    done = done.take().or_else(&mut until);
                    done.is_some()
                };
                if let Some(stream) = self.answer(stream, request, descriptor, &mut over) {
                    return Wake::Stop(stream);
                }
            }
        }
    }

    /// How the scheduler ended, if the kernel has ended it.
    fn ended(&mut self) -> Option<End> {
        if let Some((load, end)) = self.lost.take() {
            self.ended = Some(load);
            return Some(end);
        }
        let enable_seq = self.running.as_ref()?.attached.enable_seq();
        let state = super::state();
        // A kernel that could not be asked, as without a free descriptor, has ended nothing.
        if state.is_empty() || (state == "enabled" && status::enable_seq() == enable_seq) {
            return None;
        }
        let running = self.running.take()?;
        super::wait_until_gone(enable_seq, super::GONE_MAX);
        let end = self.end_of(&running);
        self.ended = Some(running.load);
        Some(end)
    }

    /// The scheduler that the kernel ended last, to be named or loaded again.
    pub fn ended_last(&mut self) -> Option<Load> {
        self.ended.take()
    }

    fn end_of(&mut self, running: &Running) -> End {
        let log = self.log.take();
        let exit = running.attached.exit().or_else(|| exit::from_log(&log));
        let dump = self.dump.as_ref().map_or(Vec::new(), DumpLog::take);
        let backtrace = exit::backtrace(&log, &running.lines);
        End { exit, backtrace, log, waiting: dump::waiting(&dump), dump, note: None }
    }

    /// Answers one command; gives the connection back if it asks to stop.
    fn answer(
        &mut self,
        mut stream: UnixStream,
        request: Request,
        descriptor: Option<RawFd>,
        over: &mut dyn FnMut() -> bool,
    ) -> Option<UnixStream> {
        let answer = match request {
            Request::Stop => return Some(stream),
            Request::Status => {
                Answer::Status { owner: self.owner.clone(), held: self.held(), phase: self.phase.clone() }
            }
            Request::Set { .. } | Request::Switch { .. } if self.phase != HOLDING => {
                let text = format!("not now: `{}` is at its {}", self.owner.command, self.phase);
                Answer::Refused { text, code: 3 }
            }
            Request::Set { knobs } => match self.set(&knobs) {
                Ok(()) => Answer::Set,
                Err(error) => refusal(&error),
            },
            Request::Switch { load, probation } => {
                return self.switch(load, probation, stream, descriptor, over);
            }
        };
        // Whoever asked may be gone.
        let _ = control::send(&mut stream, &answer, &[]);
        None
    }

    /// Switches, with a probation if one is asked for, and tells how it went.
    fn switch(
        &mut self,
        mut load: Load,
        probation: Option<Probation>,
        mut stream: UnixStream,
        descriptor: Option<RawFd>,
        over: &mut dyn FnMut() -> bool,
    ) -> Option<UnixStream> {
        let before = self.running.as_ref().map(|running| running.load.clone());
        if before.as_ref().is_some_and(|before| before.scope == Scope::WhoAsks) {
            // The others' tasks were not to be touched, and still are not.
            load.scope = Scope::WhoAsks;
        }
        let answer = self.attach(load).unwrap_or_else(|error| match &self.lost {
            Some((_, end)) => Answer::Refused { text: end.words(), code: error.code() },
            None => refusal(&error),
        });
        let runs = matches!(answer, Answer::Runs { .. });
        // Whoever asked may be gone.
        let _ = control::send(&mut stream, &answer, &[]);
        let probation = probation.filter(|_| runs)?;
        let (probed, wake) = self.probe_until(&probation, before, descriptor, over);
        let _ = control::send(&mut stream, &Answer::Probed(probed), &[]);
        match wake {
            Some(Wake::Stop(stream)) => Some(stream),
            _ => None,
        }
    }

    /// Watches the running scheduler for a time. If a guard trips, or the kernel ends it, `before` comes back, or the
    /// kernel's own. The second value is what cut it short, if not a guard.
    pub fn probe(&mut self, probation: &Probation, before: Option<Load>) -> (Probed, Option<Wake<()>>) {
        self.probe_until(probation, before, None, &mut || false)
    }

    /// The same, cut short when `over` says so.
    fn probe_until(
        &mut self,
        probation: &Probation,
        before: Option<Load>,
        descriptor: Option<RawFd>,
        over: &mut dyn FnMut() -> bool,
    ) -> (Probed, Option<Wake<()>>) {
        let partial = self.running.as_ref().is_some_and(|running| running.partial);
        let canary = Canary::start(canary::policy(partial));
        let began = Instant::now();
        self.phase(format!("canary time of {} s", probation.length.as_secs_f64()));
        let wake = self.serve(descriptor, LOOK_OFTEN, || {
            let stood = began.elapsed() >= probation.length;
            match canary.check(&probation.guards, stood) {
                Some(trip) => Some(Seen::Tripped(trip)),
                None if stood => Some(Seen::Stood),
                None => over().then_some(Seen::Over),
            }
        });
        let delays: Delays = canary.delays();
        drop(canary);
        let mut cut = None;
        let (trip, wake): (Option<Trip>, Option<Wake<()>>) = match wake {
            Wake::Done(Seen::Tripped(trip)) => (Some(trip), None),
            Wake::Done(Seen::Stood) => (None, None),
            Wake::Done(Seen::Over) => {
                cut = Some("the command that it ran for ended");
                (None, None)
            }
            Wake::Ended(end) => (Some(Trip { guard: "kernel".to_owned(), measured: end.words() }), None),
            Wake::Stop(stream) => {
                cut = Some("`schedlab stop` ended it");
                (None, Some(Wake::Stop(stream)))
            }
            Wake::Interrupted => {
                cut = Some("a signal ended its holder");
                (None, Some(Wake::Interrupted))
            }
        };
        if let Some(trip) = &trip {
            self.detach();
            if let Some(before) = before {
                self.bring_back(before, &format!("a guard tripped ({})", trip.guard));
            }
        }
        self.phase(HOLDING);
        let now = self.running.as_ref().map(|running| running.load.name.clone());
        let cut = cut.map(str::to_owned);
        let lost = self.lost.as_ref().map(|(_, end)| end.words());
        (Probed { length_ms: micros(began) / 1_000, delays, trip, cut, now, lost }, wake)
    }

    /// Takes the scheduler out, undoes every other change and ends the journal.
    pub fn close(mut self) -> (Option<End>, Result<Vec<String>, journal::Error>) {
        self.release()
    }

    /// The same, for one that lives on, as until its command ends: from now on others may change the machine. Nothing is left
    /// to be done or served after it.
    pub fn release(&mut self) -> (Option<End>, Result<Vec<String>, journal::Error>) {
        let end = self.detach();
        let undone = self.journal.take().map_or(Ok(Vec::new()), |journal| {
            control::close(&self.directory);
            journal.close()
        });
        if self.runs_first {
            // Real-time for nothing is not worth an error.
            drop(self.usual.map(|usual| usual.give()));
            self.runs_first = false;
        }
        (end, undone)
    }
}

impl Drop for Holder {
    /// What cannot be undone now stays in the journal for the next command.
    fn drop(&mut self) {
        let _ = self.release();
    }
}

/// What is seen on probation.
enum Seen {
    Tripped(Trip),
    Stood,
    /// What it was for is over.
    Over,
}

/// The phase in which other commands may change things.
pub const HOLDING: &str = "running";

fn refusal(error: &Error) -> Answer {
    Answer::Refused { text: error.to_string(), code: error.code() }
}

/// Sleeps until one of the descriptors can be read, or it is time to look again.
fn wait(descriptors: impl Iterator<Item = RawFd>, every: Duration) {
    let wanted = |fd: RawFd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut polls: Vec<libc::pollfd> = descriptors.map(wanted).collect();
    let every = i32::try_from(every.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: the array is valid for its length; a signal only ends the sleep.
    unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, every) };
}

/// Whether the kernel's own scheduler has all tasks, or will as soon as one whose process has just died is out.
fn is_free() -> bool {
    let end = Instant::now() + FREE_MAX;
    while super::state() != "disabled" {
        if Instant::now() > end || (super::state() == "enabled" && !status::holders().is_empty()) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}

fn micros(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX)
}
