//! sched_ext objects in the running kernel: load, set knobs, attach, watch, detach.
//!
//! The kernel's own loader does the work (libbpf); this adds knobs by name, the exit record and errors that name the
//! remedy. An attached scheduler is detached when dropped. [`callbacks`] logs what the kernel calls, [`sequence`] makes
//! that comparable; [`trial`] finds out whether an object is safe, with the stress of [`churn`] and what the [`verifier`]
//! says. Meant for virtual machines: nothing here keeps a journal of what it changed.

pub mod callbacks;
pub mod churn;
mod object;
pub mod sequence;
pub mod trial;
mod variables;
pub mod verifier;

use libbpf_rs::{Link, MapCore, MapFlags, MapMut, MapType, Object, ProgramInput};
use object::Opened;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

const STATE: &str = "/sys/kernel/sched_ext/state";

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
    #[error("the kernel refuses the object: {what}\n{log}")]
    Load {
        /// libbpf's error.
        what: String,
        /// The end of what libbpf and the verifier said.
        log: String,
    },
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
    /// libbpf failed at something else.
    #[error("{context}: {source}")]
    Libbpf {
        /// What was being done.
        context: &'static str,
        /// libbpf's error.
        source: libbpf_rs::Error,
    },
}

/// Why the kernel ended a scheduler.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Exit {
    /// The kernel's `scx_exit_kind`: 64 to 67 are orderly ends, 1024 and above are errors.
    pub kind: i32,
    /// The scheduler's own code.
    pub code: i64,
    /// The kernel's reason.
    pub reason: String,
    /// The kernel's message.
    pub message: String,
}

/// An object whose programs are in the kernel, not yet scheduling.
pub struct Loaded {
    object: Object,
    /// Callbacks that the scheduler implements: the member's name and the program's.
    callbacks: Vec<(String, String)>,
    variables: variables::Variables,
}

/// Loads `object` (an ELF BPF object) with these knobs set. Nothing is scheduled by it before [`Loaded::attach`].
pub fn load(object: &[u8], knobs: &[(&str, i64)]) -> Result<Loaded, Error> {
    if !Path::new(STATE).exists() {
        return Err(Error::NoSchedExt);
    }
    let mut opened = Opened::new(object)?;
    let callbacks = opened.callbacks()?;
    let variables = opened.variables();
    opened.set_all(knobs)?;
    Ok(Loaded { object: opened.load()?, callbacks, variables })
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

    /// Hands every task to the scheduler. The kernel runs it until the result is dropped or it fails.
    pub fn attach(mut self) -> Result<Attached, Error> {
        let mut map = table(&mut self.object).ok_or(Error::NoScheduler)?;
        let link = map.attach_struct_ops().map_err(|error| Error::Attach(format!("{error:?}")))?;
        Ok(Attached { link: Some(link), loaded: self })
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
}

impl Attached {
    /// The kernel's state: `enabled`, `disabling`, `disabled`, ...
    pub fn state(&self) -> String {
        state()
    }

    /// Why the kernel ended it, if it did and the object keeps an exit record (`.data.exit`).
    pub fn exit(&self) -> Option<Exit> {
        exit_of(&self.loaded.object)
    }

    /// Changes a knob of the running scheduler.
    pub fn set(&self, name: &str, value: i64) -> Result<(), Error> {
        let variable = self.loaded.variables.find(name)?;
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

    fn unlink(&mut self) {
        if self.link.take().is_some() {
            wait_for("disabled", Duration::from_secs(30));
        }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.unlink();
    }
}

/// The exit record that an object of ours keeps.
fn exit_of(object: &Object) -> Option<Exit> {
    let record = object.maps().find(|map| object::name_of(map.name()).ends_with(".data.exit"))?;
    let bytes = record.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).ok().flatten()?;
    decode_exit(&bytes)
}

/// The state of sched_ext in this kernel; empty if it has none.
pub fn state() -> String {
    fs::read_to_string(STATE).unwrap_or_default().trim().to_string()
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

/// Reads `struct exit_record` of bpf/include/schedlab.bpf.h; `None` while its kind is 0.
fn decode_exit(bytes: &[u8]) -> Option<Exit> {
    const REASON: usize = 16;
    const MESSAGE: usize = REASON + 128;
    let kind = i32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?);
    let code = i64::from_ne_bytes(bytes.get(8..16)?.try_into().ok()?);
    let text = |bytes: &[u8]| {
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    };
    let (reason, message) = (text(bytes.get(REASON..MESSAGE)?), text(bytes.get(MESSAGE..)?));
    (kind != 0).then_some(Exit { kind, code, reason, message })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_record_is_read() {
        let mut bytes = vec![0_u8; 16 + 128 + 1024];
        assert_eq!(decode_exit(&bytes), None);
        bytes[..4].copy_from_slice(&1026_i32.to_ne_bytes());
        bytes[8..16].copy_from_slice(&(-3_i64).to_ne_bytes());
        bytes[16..21].copy_from_slice(b"stall");
        bytes[144..149].copy_from_slice(b"watch");
        let exit = Exit { kind: 1026, code: -3, reason: "stall".into(), message: "watch".into() };
        assert_eq!(decode_exit(&bytes), Some(exit));
        assert_eq!(decode_exit(&bytes[..100]), None);
    }
}
