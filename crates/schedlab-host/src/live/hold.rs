//! Holding a scheduler on a machine that matters: one process, which has the lock, the journal and the link.
//!
//! The link is not pinned: whatever ends this process, also SIGKILL, the kernel takes all tasks back by itself. Between
//! the steps of its work the holder serves other commands ([`super::control`]) and looks whether the kernel has ended the
//! scheduler. What it runs besides (a command, rounds of a trial) is its caller's.

use super::canary::{self, Canary, Delays, Trip};
use super::control::{self, Answer, Held, Load, Probation, Probed, Request, Taken};
use super::dump::{self, DumpLog, Waiting};
use super::exit::{self, Exit, Frame, KernelLog, Lines};
use super::journal::{self, Journal, Owner, Repaired};
use super::status::{self, KernelStatus};
use super::{Attached, Error};
use crate::capability::is_root;
use crate::machine::now_unix_s;
use serde::{Deserialize, Serialize};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The kernel may still be taking tasks back from one that has just died.
const FREE_MAX: Duration = Duration::from_secs(5);
/// The kernel gives every task back within this, or something holds it.
const GONE_MAX: Duration = Duration::from_secs(30);
/// How often the kernel is looked at while nothing else happens.
const LOOK_EVERY_MS: i32 = 20;

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
}

impl End {
    /// In words: reason, message, and the program that made the mistake.
    pub fn words(&self) -> String {
        let why =
            self.exit.as_ref().map_or("the kernel ended it; why is not recorded".to_owned(), Exit::words);
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
    enable_seq: u64,
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
    listener: UnixListener,
    running: Option<Running>,
    /// What the kernel ended last.
    ended: Option<Load>,
    log: KernelLog,
    dump: Option<DumpLog>,
    interrupted: Arc<AtomicBool>,
    phase: String,
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
        let listener = match control::listen(directory) {
            Ok(listener) => listener,
            Err(error) => return refuse(journal, error),
        };
        let holder = Holder {
            directory: directory.to_owned(),
            journal: Some(journal),
            owner,
            listener,
            running: None,
            ended: None,
            log: KernelLog::listen(),
            dump: DumpLog::listen(),
            interrupted,
            phase: "starting".to_owned(),
        };
        Ok((holder, repaired))
    }

    /// The journal, for further changes.
    pub fn journal(&mut self) -> &mut Journal {
        self.journal.as_mut().expect("a holder has its journal until it ends")
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
        // What the kernel said about earlier ones is not about this.
        let _ = (self.log.take(), self.dump.as_ref().map(DumpLog::take));
        let began = Instant::now();
        let before = self.running.take().map(|mut before| {
            before.attached.unlink_at_once();
            before
        });
        wait_until_free();
        let attached = match loaded.attach() {
            Ok(attached) => attached,
            Err(error) => {
                if let Some(before) = before {
                    self.attach(before.load)?;
                }
                return Err(error);
            }
        };
        let taken = Taken { load_us, enable_us: micros(began) };
        let exit = before.and_then(|before| before.attached.exit());
        let enable_seq = KernelStatus::read()?.enable_seq;
        let since_unix_s = now_unix_s();
        self.running = Some(Running { load, attached, lines, since_unix_s, enable_seq, partial });
        let held = self.held().expect("it was just attached");
        Ok(Answer::Runs { held, taken, before: exit })
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
    /// to stop. `descriptor` is one that wakes it.
    pub fn serve<T>(&mut self, descriptor: Option<RawFd>, mut until: impl FnMut() -> Option<T>) -> Wake<T> {
        loop {
            if self.interrupted.load(Ordering::Relaxed) {
                return Wake::Interrupted;
            }
            if let Some(end) = self.ended() {
                return Wake::Ended(end);
            }
            if let Some(done) = until() {
                return Wake::Done(done);
            }
            wait(&[Some(self.listener.as_raw_fd()), descriptor]);
            if let Ok((stream, _)) = self.listener.accept()
                && let Some(stream) = self.answer(stream)
            {
                return Wake::Stop(stream);
            }
        }
    }

    /// How the scheduler ended, if the kernel has ended it.
    fn ended(&mut self) -> Option<End> {
        let running = self.running.as_ref()?;
        let kernel = KernelStatus::read().ok()?;
        if kernel.state == "enabled" && kernel.enable_seq == running.enable_seq {
            return None;
        }
        let running = self.running.take()?;
        super::wait_for("disabled", GONE_MAX);
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
        End { exit, backtrace, log, waiting: dump::waiting(&dump), dump }
    }

    /// Answers one command; gives the connection back if it asks to stop.
    fn answer(&mut self, mut stream: UnixStream) -> Option<UnixStream> {
        let Ok(request) = control::receive_request(&mut stream) else { return None };
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
            Request::Switch { load, probation } => return self.switch(load, probation, stream),
        };
        // Whoever asked may be gone.
        let _ = control::send(&mut stream, &answer, &[]);
        None
    }

    /// Switches, with a probation if one is asked for, and tells how it went.
    fn switch(
        &mut self,
        load: Load,
        probation: Option<Probation>,
        mut stream: UnixStream,
    ) -> Option<UnixStream> {
        let before = self.running.as_ref().map(|running| running.load.clone());
        let answer = self.attach(load).unwrap_or_else(|error| refusal(&error));
        let runs = matches!(answer, Answer::Runs { .. });
        // Whoever asked may be gone.
        let _ = control::send(&mut stream, &answer, &[]);
        let probation = probation.filter(|_| runs)?;
        let (probed, wake) = self.probe(&probation, before);
        let _ = control::send(&mut stream, &Answer::Probed(probed), &[]);
        match wake {
            Some(Wake::Stop(stream)) => Some(stream),
            _ => None,
        }
    }

    /// Watches the running scheduler for a time. If a guard trips, or the kernel ends it, `before` comes back, or the
    /// kernel's own. The second value is what cut it short, if not a guard.
    pub fn probe(&mut self, probation: &Probation, before: Option<Load>) -> (Probed, Option<Wake<()>>) {
        let partial = self.running.as_ref().is_some_and(|running| running.partial);
        let canary = Canary::start(canary::policy(partial));
        let began = Instant::now();
        self.phase(format!("canary time of {} s", probation.length.as_secs_f64()));
        let wake = self.serve(None, || {
            let over = began.elapsed() >= probation.length;
            match canary.check(&probation.guards, over) {
                Some(trip) => Some(Some(trip)),
                None => over.then_some(None),
            }
        });
        let delays: Delays = canary.delays();
        drop(canary);
        let (trip, cut): (Option<Trip>, Option<Wake<()>>) = match wake {
            Wake::Done(trip) => (trip, None),
            Wake::Ended(end) => (Some(Trip { guard: "kernel".to_owned(), measured: end.words() }), None),
            Wake::Stop(stream) => (None, Some(Wake::Stop(stream))),
            Wake::Interrupted => (None, Some(Wake::Interrupted)),
        };
        if trip.is_some() {
            self.detach();
            if let Some(before) = before {
                // If that fails too, the kernel's own scheduler runs, which is what is told.
                drop(self.attach(before));
            }
        }
        self.phase(HOLDING);
        let now = self.running.as_ref().map(|running| running.load.name.clone());
        (Probed { length_ms: micros(began) / 1_000, delays, trip, now }, cut)
    }

    /// Takes the scheduler out, undoes every other change and ends the journal.
    pub fn close(mut self) -> (Option<End>, Result<Vec<String>, journal::Error>) {
        self.finish()
    }

    fn finish(&mut self) -> (Option<End>, Result<Vec<String>, journal::Error>) {
        let end = self.detach();
        let undone = self.journal.take().map_or(Ok(Vec::new()), |journal| {
            control::close(&self.directory);
            journal.close()
        });
        (end, undone)
    }
}

impl Drop for Holder {
    /// What cannot be undone now stays in the journal for the next command.
    fn drop(&mut self) {
        let _ = self.finish();
    }
}

/// The phase in which other commands may change things.
pub const HOLDING: &str = "running";

/// Lets this thread run before every task that a scheduler has, so that one that starves them cannot starve the holder.
/// What it starts does not inherit that. Where it is refused, it stays as it was.
pub fn run_first() {
    let parameter = libc::sched_param { sched_priority: 1 };
    // SAFETY: the kernel reads one struct that lives through the call, and changes only this thread.
    unsafe {
        libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &raw const parameter);
    }
}

fn refusal(error: &Error) -> Answer {
    Answer::Refused { text: error.to_string(), code: error.code() }
}

/// Sleeps until one of the descriptors can be read, or it is time to look again.
fn wait(descriptors: &[Option<RawFd>]) {
    let wanted = |fd: &RawFd| libc::pollfd { fd: *fd, events: libc::POLLIN, revents: 0 };
    let mut polls: Vec<libc::pollfd> = descriptors.iter().flatten().map(wanted).collect();
    // SAFETY: the array is valid for its length; a signal only ends the sleep.
    unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, LOOK_EVERY_MS) };
}

/// Taking tasks back is done when the link is gone, as a rule; if not, no time is lost here.
fn wait_until_free() {
    let end = Instant::now() + GONE_MAX;
    while super::state() != "disabled" && Instant::now() < end {
        std::thread::sleep(Duration::from_micros(100));
    }
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
