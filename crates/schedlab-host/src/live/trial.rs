//! Is an object safe on this kernel: does it load, at what cost, does it survive a stress, does it go without a trace.
//!
//! Meant for a kernel that may be lost: a virtual machine's. What it finds is a [`Trial`], which goes to the host as JSON
//! and is put in words there.

use super::churn::{self, Kind};
use super::object::{self, Opened};
use super::standstill::Standstill;
use super::{Error, Exit, STATE, table};
use crate::capability::is_root;
use crate::verifier::{self, ProgramCost, Refusal};
use libbpf_rs::query::ProgInfoIter;
use libbpf_rs::{Object, PrintLevel};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// `BPF_LOG_STATS`: only what verifying cost.
const LOG_STATS: u32 = 4;
/// The kernel gives every task back within this, or something holds it.
const DETACH_MAX: Duration = Duration::from_secs(30);
/// A task that needs so long for one operation was forgotten, if under the kernel's own class none needed a quarter of it.
pub const PAUSE_MAX_MS: u64 = 5_000;
/// What the machine itself does to the same tasks is found out for so long.
const BASELINE: Duration = Duration::from_secs(3);

/// What was found out, as far as it came.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    /// `uname -r`.
    pub kernel: String,
    /// Name in the scheduler's table, once it was enabled.
    pub scheduler: String,
    /// Callbacks that it implements.
    pub callbacks: Vec<String>,
    /// What verifying cost, for each program.
    pub programs: Vec<ProgramCost>,
    /// How long loading took, ms.
    pub load_ms: u64,
    /// Why the kernel does not take the object.
    pub refused: Option<Refusal>,
    /// Why it does not enable the scheduler.
    pub not_enabled: Option<String>,
    /// How long enabling took, ms.
    pub enable_ms: u64,
    /// The same stress before, under the kernel's own class: what to expect of this machine.
    pub before: Vec<Kind>,
    /// What the stress did under it.
    pub stress: Vec<Kind>,
    /// Whether it was still enabled after the stress.
    pub survived: bool,
    /// Its exit record, if it keeps one.
    pub exit: Option<Exit>,
    /// Events that the kernel counted (`/sys/kernel/sched_ext/root/events`), those above 0.
    pub events: BTreeMap<String, u64>,
    /// How long the kernel took to take all tasks back, ms.
    pub disable_ms: u64,
    /// The state afterwards: `disabled`.
    pub state_after: String,
    /// BPF programs of the object that are still in the kernel afterwards.
    pub left_behind: Vec<String>,
    /// How tasks fared afterwards under the kernel's own scheduler.
    pub after: Vec<Kind>,
    /// How late a real-time task woke at worst meanwhile, ms: what the machine did and no scheduler of others.
    pub standstill_ms: u64,
}

impl Trial {
    /// What speaks against it, in words.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if let Some(refused) = &self.refused {
            faults.push(format!("the kernel refuses it: {}", refused.reason));
            return faults;
        }
        if let Some(reason) = &self.not_enabled {
            faults.push(format!("the kernel does not enable it: {reason}"));
            return faults;
        }
        if !self.survived {
            let why = self.exit.as_ref().map(|exit| format!(": {} {}", exit.reason, exit.message));
            faults.push(format!("the kernel ended it during the stress{}", why.unwrap_or_default()));
        }
        faults.extend(self.slow(&self.stress, "under it"));
        faults.extend(self.slow(&self.after, "after it was gone"));
        if self.state_after != "disabled" {
            faults.push(format!("it does not go: the state is '{}'", self.state_after));
        }
        if !self.left_behind.is_empty() {
            faults.push(format!("programs are left in the kernel: {}", self.left_behind.join(", ")));
        }
        faults
    }

    /// Whether the machine itself stood still for so long that pauses of tasks say little about the scheduler.
    pub fn is_disturbed(&self) -> bool {
        self.standstill_ms >= PAUSE_MAX_MS / 4
    }

    /// Kinds of tasks that did not get on, though they did before.
    fn slow(&self, kinds: &[Kind], when: &str) -> Vec<String> {
        let fault = |kind: &Kind| {
            let usual = self.before.iter().find(|usual| usual.name == kind.name);
            let pause = usual.map_or(0, |usual| usual.longest_pause_ms);
            if kind.threads > 0 && kind.operations == 0 {
                Some(format!("'{}' did nothing {when}", kind.name))
            } else if kind.longest_pause_ms > PAUSE_MAX_MS.max(4 * pause) {
                let seconds = |ms: u64| ms as f64 / 1_000.0;
                let (stood, usual) = (seconds(kind.longest_pause_ms), seconds(pause));
                Some(format!(
                    "a task of '{}' stood still for {stood:.1} s {when} ({usual:.1} s before)",
                    kind.name
                ))
            } else {
                None
            }
        };
        kinds.iter().filter_map(fault).collect()
    }
}

/// Tries `object` (an ELF BPF object) with these knobs set, under a stress of that length. `enabled` is called when the
/// scheduler runs: a machine that dies after that was killed by it.
pub fn run(
    object: &[u8],
    knobs: &[(&str, i64)],
    length: Duration,
    enabled: impl FnOnce(),
) -> Result<Trial, Error> {
    if !Path::new(STATE).exists() {
        return Err(Error::NoSchedExt);
    }
    let mut trial = Trial { kernel: crate::machine::kernel_release(), ..Trial::default() };
    let baseline = length.min(BASELINE);
    let programs_before = programs();
    let began = Instant::now();
    let loaded = load(object, knobs, &mut trial)?;
    trial.load_ms = millis(began);
    if let Some(loaded) = loaded {
        trial.before = churn::run(baseline, libc::SCHED_OTHER);
        let standstill = Standstill::watch();
        under_stress(loaded, length, &mut trial, enabled)?;
        trial.state_after = super::state();
        // Programs are freed after a grace period.
        let gone = Instant::now() + Duration::from_secs(3);
        loop {
            let new = programs().into_iter().filter(|(id, _)| !programs_before.contains_key(id));
            trial.left_behind = new.map(|(_, name)| name).collect();
            if trial.left_behind.is_empty() || Instant::now() >= gone {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        trial.after = churn::run(baseline, libc::SCHED_OTHER);
        trial.standstill_ms = u64::try_from(standstill.longest().as_millis()).unwrap_or(u64::MAX);
    }
    Ok(trial)
}

/// Loads with the verifier's figures; a refusal is found out with its full log.
fn load(bytes: &[u8], knobs: &[(&str, i64)], trial: &mut Trial) -> Result<Option<Object>, Error> {
    let mut opened = Opened::new(bytes)?;
    trial.callbacks = opened.callbacks()?.into_iter().map(|(callback, _)| callback).collect();
    opened.set_all(knobs)?;
    for mut program in opened.inner().progs_mut() {
        program.set_log_level(LOG_STATS);
    }
    let (loaded, messages) = opened.load_aloud(PrintLevel::Debug);
    match loaded {
        Ok(object) => {
            trial.programs = verifier::costs(&messages);
            for cost in &mut trial.programs {
                let program = object.progs().find(|program| object::name_of(program.name()) == cost.program);
                cost.instructions = program.map_or(0, |program| program.insn_cnt() as u64);
            }
            Ok(Some(object))
        }
        Err(_) => {
            let mut again = Opened::new(bytes)?;
            again.set_all(knobs)?;
            let (loaded, messages) = again.load_aloud(PrintLevel::Info);
            match loaded {
                Ok(object) => Ok(Some(object)),
                Err(error) if verifier::is_privilege(&error, &messages) && !is_root() => {
                    Err(Error::Privilege)
                }
                Err(_) => {
                    trial.refused = Some(verifier::refusal(&messages));
                    Ok(None)
                }
            }
        }
    }
}

fn under_stress(
    mut object: Object,
    length: Duration,
    trial: &mut Trial,
    enabled: impl FnOnce(),
) -> Result<(), Error> {
    verifier::listen(PrintLevel::Info);
    let began = Instant::now();
    let mut map = table(&mut object).ok_or(Error::NoScheduler)?;
    let link = match map.attach_struct_ops() {
        Ok(link) => link,
        Err(error) => {
            trial.not_enabled = Some(format!("{error}; {}", verifier::messages().trim()));
            return Ok(());
        }
    };
    trial.enable_ms = millis(began);
    trial.scheduler = read("/sys/kernel/sched_ext/root/ops");
    enabled();
    trial.stress = churn::run(length, churn::SCHED_EXT);
    trial.survived = super::state() == "enabled";
    trial.events = super::status::events(&read("/sys/kernel/sched_ext/root/events"));
    let began = Instant::now();
    drop(link);
    super::wait_for("disabled", DETACH_MAX);
    trial.disable_ms = millis(began);
    trial.exit = super::exit::of(&object);
    Ok(())
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// The struct_ops programs in the kernel, by their number.
fn programs() -> BTreeMap<u32, String> {
    let ours = |info: &libbpf_rs::query::ProgramInfo| info.ty == libbpf_rs::ProgramType::StructOps;
    ProgInfoIter::default()
        .filter(ours)
        .map(|info| (info.id, info.name.to_string_lossy().into_owned()))
        .collect()
}

fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_told_and_a_clean_trial_has_none() {
        let kind = |operations, longest_pause_ms| Kind {
            name: "forks".to_owned(),
            threads: 1,
            operations,
            longest_pause_ms,
        };
        let clean = Trial {
            survived: true,
            state_after: "disabled".to_owned(),
            stress: vec![kind(100, 40)],
            after: vec![kind(9, 1)],
            ..Trial::default()
        };
        assert_eq!(clean.faults(), Vec::<String>::new());
        let forgot = Trial { stress: vec![kind(100, 6_200)], ..clean.clone() };
        assert_eq!(forgot.faults(), ["a task of 'forks' stood still for 6.2 s under it (0.0 s before)"]);
        let slow_machine = Trial { before: vec![kind(9, 1_600)], ..forgot.clone() };
        assert_eq!(slow_machine.faults(), Vec::<String>::new(), "the machine itself lets tasks wait as long");
        let stuck = Trial { stress: vec![kind(0, 0)], state_after: "disabling".to_owned(), ..clean.clone() };
        assert_eq!(stuck.faults().len(), 2);
        let refused = Refusal { reason: "back-edge".to_owned(), ..Refusal::default() };
        let refused = Trial { refused: Some(refused), ..Trial::default() };
        assert_eq!(refused.faults(), ["the kernel refuses it: back-edge"]);
    }
}
