//! sched_ext objects in the running kernel: load, set knobs, attach, watch, detach.
//!
//! The kernel's own loader does the work (libbpf); this adds knobs by name, the exit record and errors that name the
//! remedy. An attached scheduler is detached when dropped. For a machine that matters, [`hold`] holds one with a
//! [`journal`] of all else that is changed and a [`canary`], and answers other commands ([`control`]); [`status`] says who
//! runs what. For virtual machines, [`callbacks`] logs what the kernel calls, [`sequence`] makes that comparable, and
//! [`trial`] finds out whether an object is safe, with the stress of [`churn`] and what the [`verifier`] says.

pub mod callbacks;
pub mod canary;
pub mod churn;
pub mod command;
pub mod control;
pub mod dump;
pub mod exit;
pub mod hold;
pub mod journal;
mod object;
pub mod priorities;
pub mod programs;
pub mod sequence;
mod signals;
mod standstill;
pub mod status;
pub mod tasks;
pub mod trial;
mod variables;

use crate::verifier::{self, Refusal};
use libbpf_rs::{Link, MapCore, MapFlags, MapMut, MapType, Object, PrintLevel, ProgramInput};
use object::Opened;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

const STATE: &str = "/sys/kernel/sched_ext/state";
/// The kernel gives every task back within this, or something holds it.
const GONE_MAX: Duration = Duration::from_secs(30);

/// What can go wrong with an object in the kernel; each text names the remedy.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel cannot run schedulers from BPF.
    #[error(
        "this kernel has no sched_ext: it needs 6.12 or newer with CONFIG_SCHED_CLASS_EXT (try a virtual machine)"
    )]
    NoSchedExt,
    /// Not enough rights.
    #[error("loading a scheduler needs root (CAP_SYS_ADMIN and CAP_BPF)")]
    Privilege,
    /// The object is not what libbpf reads.
    #[error("this is no BPF object that libbpf can open: {0}")]
    Open(String),
    /// The object holds no scheduler.
    #[error("the object declares no sched_ext_ops table (a .struct_ops or .struct_ops.link section)")]
    NoScheduler,
    /// No program of that name.
    #[error("the object has no program {0:?}: name a function with SEC(\"syscall\")")]
    NoProgram(String),
    /// The kernel refused the programs.
    #[error("the kernel refuses the object: {} (`schedlab vm try` shows the steps before it)", .0.words())]
    Load(Box<Refusal>),
    /// The kernel refused to switch to the scheduler.
    #[error("the kernel does not enable the scheduler: {0}")]
    Attach(String),
    /// A knob that the object does not have.
    #[error("the object has no knob {name:?}; it has: {known}")]
    NoKnob {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// A value that does not fit.
    #[error("knob {name} has {bytes} bytes; {value} does not fit")]
    KnobSize {
        /// The knob.
        name: String,
        /// Its size.
        bytes: usize,
        /// The value.
        value: i64,
    },
    /// A knob that is part of the code once it is loaded.
    #[error("knob {0} is fixed once the scheduler runs: `schedlab switch` loads it anew with --set")]
    FixedKnob(String),
    /// A signal came before anything was changed.
    #[error("interrupted")]
    Interrupted,
    /// The command to run is not there.
    #[error("'{0}' is no program that can be run: name one on PATH, or its file")]
    NoCommand(String),
    /// The command to run is there, and nobody may execute it.
    #[error("{0} is no file that may be executed: `chmod +x {0}` if it is a program, or name another")]
    NoProgramFile(String),
    /// Somebody else's scheduler runs.
    #[error("{who}: end that first; schedlab takes no scheduler away from others")]
    Foreign {
        /// Who runs what.
        who: String,
    },
    /// The journal.
    #[error(transparent)]
    Journal(#[from] journal::Error),
    /// The system refused something.
    #[error("{context}: {source}")]
    System {
        /// What was being done.
        context: String,
        /// The system's answer.
        source: std::io::Error,
    },
    /// libbpf failed at something else.
    #[error("{context}: {source}")]
    Libbpf {
        /// What was being done.
        context: &'static str,
        /// libbpf's error.
        source: libbpf_rs::Error,
    },
}

impl Error {
    /// The program's exit code for it: 3 for what the machine cannot do now, 2 for bad input, 1 for a scheduler that
    /// the kernel does not take, 130 for a signal.
    pub fn code(&self) -> u8 {
        match self {
            Error::Open(_)
            | Error::NoScheduler
            | Error::NoProgram(_)
            | Error::NoCommand(_)
            | Error::NoProgramFile(_)
            | Error::NoKnob { .. }
            | Error::FixedKnob(_)
            | Error::KnobSize { .. } => 2,
            Error::Load(_) => 1,
            Error::Interrupted => 130,
            _ => 3,
        }
    }
}

pub use exit::Exit;

/// Whom a scheduler is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Whom the object says.
    #[default]
    AsDeclared,
    /// Only tasks that ask for `SCHED_EXT` (`SCX_OPS_SWITCH_PARTIAL`), whatever the object says.
    WhoAsks,
}

/// An object whose programs are in the kernel, not yet scheduling.
pub struct Loaded {
    object: Object,
    /// Callbacks that the scheduler implements: the member's name and the program's.
    callbacks: Vec<(String, String)>,
    variables: variables::Variables,
    partial: bool,
}

/// Loads `object` (an ELF BPF object) with these knobs set. Nothing is scheduled by it before [`Loaded::attach`].
pub fn load(object: &[u8], knobs: &[(&str, i64)]) -> Result<Loaded, Error> {
    load_for(object, knobs, Scope::AsDeclared)
}

/// The same, for these tasks.
pub fn load_for(object: &[u8], knobs: &[(&str, i64)], scope: Scope) -> Result<Loaded, Error> {
    if !Path::new(STATE).exists() {
        return Err(Error::NoSchedExt);
    }
    let mut opened = Opened::new(object)?;
    let callbacks = opened.callbacks()?;
    let variables = opened.variables();
    opened.set_all(knobs)?;
    if scope == Scope::WhoAsks {
        opened.ask_first()?;
    }
    let partial = opened.flags() & object::SWITCH_PARTIAL != 0;
    Ok(Loaded { object: opened.load()?, callbacks, variables, partial })
}

/// Whether the object takes only tasks that ask for `SCHED_EXT`. Needs no kernel with sched_ext.
pub fn takes_who_asks(object: &[u8]) -> Result<bool, Error> {
    Ok(Opened::new(object)?.flags() & object::SWITCH_PARTIAL != 0)
}

impl Loaded {
    /// The programs' instructions as libbpf relocated them: program name and instructions, 8 bytes each.
    pub fn instructions(&self) -> Vec<(String, Vec<[u8; 8]>)> {
        self.object
            .progs()
            .map(|program| (object::name_of(program.name()), object::instructions(&program)))
            .collect()
    }

    /// The callbacks that the scheduler implements, by the kernel's names.
    pub fn callbacks(&self) -> impl Iterator<Item = &str> {
        self.callbacks.iter().map(|(callback, _)| callback.as_str())
    }

    /// Whether only tasks that ask for `SCHED_EXT` will be its own.
    pub fn is_partial(&self) -> bool {
        self.partial
    }

    /// Where the programs' machine code came from, to read a backtrace by.
    pub fn lines(&self) -> exit::Lines {
        exit::Lines::of(&self.object)
    }

    /// Hands the tasks to the scheduler. The kernel runs it until the result is dropped or it fails.
    pub fn attach(mut self) -> Result<Attached, Error> {
        let mut map = table(&mut self.object).ok_or(Error::NoScheduler)?;
        verifier::listen(PrintLevel::Info);
        let refused = |error| Error::Attach(format!("{error:?}; {}", verifier::messages().trim()));
        let link = map.attach_struct_ops().map_err(refused)?;
        Ok(Attached { link: Some(link), loaded: self, enable_seq: status::enable_seq() })
    }
}

/// The scheduler's table of callbacks.
fn table(object: &mut Object) -> Option<MapMut<'_>> {
    object.maps_mut().find(|map| map.map_type() == MapType::StructOps)
}

/// A scheduler that the kernel runs. Dropping it gives all tasks back to the kernel's own class.
#[must_use = "dropping it detaches the scheduler"]
pub struct Attached {
    link: Option<Link>,
    loaded: Loaded,
    enable_seq: u64,
}

impl Attached {
    /// The kernel's state: `enabled`, `disabling`, `disabled`, ...
    pub fn state(&self) -> String {
        state()
    }

    /// How many schedulers this kernel had had since it booted when this one was enabled: tells it from later ones.
    pub fn enable_seq(&self) -> u64 {
        self.enable_seq
    }

    /// Why the kernel ended it, if it did and the object keeps an exit record (`.data.exit`).
    pub fn exit(&self) -> Option<Exit> {
        exit::of(&self.loaded.object)
    }

    /// Changes a knob of the running scheduler.
    pub fn set(&self, name: &str, value: i64) -> Result<(), Error> {
        let variable = self.loaded.variables.find(name)?;
        if variable.is_fixed() {
            return Err(Error::FixedKnob(name.to_owned()));
        }
        let map = self.loaded.object.maps().find(|map| variable.is_in(&object::name_of(map.name())));
        let map = map.ok_or_else(|| self.loaded.variables.unknown(name))?;
        let failed = |source| Error::Libbpf { context: "changing a knob", source };
        let key = 0_u32.to_ne_bytes();
        let mut bytes = map.lookup(&key, MapFlags::ANY).map_err(failed)?.unwrap_or_default();
        variable.write(&mut bytes, value)?;
        map.update(&key, &bytes, MapFlags::ANY).map_err(failed)
    }

    /// Value of a variable that the scheduler keeps, zero-extended; `None` if it has none of that name.
    pub fn get(&self, name: &str) -> Option<i64> {
        let variable = self.loaded.variables.find(name).ok()?;
        let map = self.loaded.object.maps().find(|map| variable.is_in(&object::name_of(map.name())))?;
        let bytes = map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).ok().flatten()?;
        variable.read(&bytes)
    }

    /// Runs a program of the object in the kernel, as the user half of a scheduler does (`BPF_PROG_TEST_RUN`).
    pub fn run(&mut self, program: &str) -> Result<(), Error> {
        let mut programs = self.loaded.object.progs_mut();
        let found = programs.find(|found| object::name_of(found.name()) == program);
        let found = found.ok_or_else(|| Error::NoProgram(program.to_owned()))?;
        let failed = |source| Error::Libbpf { context: "running a program", source };
        found.test_run(ProgramInput::default()).map(drop).map_err(failed)
    }

    /// Gives all tasks back to the kernel's own class and waits for it; the variables can still be read.
    pub fn unregister(&mut self) {
        self.unlink();
    }

    /// Detaches and waits until the kernel has taken all tasks back; returns why the kernel says it ended.
    pub fn detach(mut self) -> Option<Exit> {
        self.unlink();
        self.exit()
    }

    /// Gives all tasks back without waiting for it.
    pub fn unlink_at_once(&mut self) {
        drop(self.link.take());
    }

    fn unlink(&mut self) {
        if self.link.take().is_some() {
            wait_until_gone(self.enable_seq, GONE_MAX);
        }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.unlink();
    }
}

/// The state of sched_ext in this kernel; empty if it has none.
pub fn state() -> String {
    fs::read_to_string(STATE).unwrap_or_default().trim().to_string()
}

/// Waits until the kernel has all tasks back from the scheduler that was enabled as that number, whoever's comes after
/// it; false if it has not by then.
fn wait_until_gone(enable_seq: u64, limit: Duration) -> bool {
    let end = Instant::now() + limit;
    while !is_gone(&state(), status::enable_seq(), enable_seq) {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    true
}

/// Another one can only begin to be enabled when the one before is out.
fn is_gone(state: &str, enable_seq: u64, own: u64) -> bool {
    state != "disabling" && (state != "enabled" || enable_seq != own)
}

/// Waits until the state is `wanted`; false if it is not by then.
pub fn wait_for(wanted: &str, limit: Duration) -> bool {
    let end = Instant::now() + limit;
    while state() != wanted {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheduler_is_gone_when_another_runs() {
        assert!(!is_gone("enabled", 3, 3) && !is_gone("disabling", 3, 3));
        assert!(is_gone("disabled", 3, 3) && is_gone("enabling", 3, 3) && is_gone("enabled", 4, 3));
    }
}
