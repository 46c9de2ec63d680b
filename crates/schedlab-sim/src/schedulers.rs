//! The schedulers from BPF that a simulation may attach, and coming and going while it runs: what loaders do from
//! user space. What the kernel does then is in [`crate::core::switching`].

use crate::config::{Attachable, Scheduler, SimulationConfig};
use crate::error::SimError;
use crate::ext::Ext;
use crate::fair::FairParams;
use crate::simulation::Simulation;
use schedlab_model::CpuId;
use schedlab_model::outcome::SchedulerExit;
use schedlab_model::workload::Workload;
use schedlab_model::workload::change::Change;

/// `SCX_ECODE_ACT_RESTART`: the loader is asked to load the scheduler anew.
const SCX_ECODE_ACT_RESTART: i64 = 1 << 48;
/// `SCX_EXIT_UNREG_BPF` and `SCX_EXIT_UNREG_KERN`: the exits with codes.
const EXITS_WITH_CODES: std::ops::RangeInclusive<u32> = 65..=66;

/// `SCX_EXIT_ERROR`: the first of the exits that are errors.
const SCX_EXIT_ERROR: u32 = 1024;

/// What can be attached, and what was.
pub(crate) struct Schedulers {
    attachable: Vec<Attachable>,
    /// The one that is attached or was last.
    last: Option<Attachable>,
    restart: bool,
    /// Ends that were asked for, and others that are not the run's.
    pub(crate) detached: Vec<SchedulerExit>,
}

impl Schedulers {
    /// Of a run; every scheduler that its changes ask for is there and takes its knobs.
    pub(crate) fn new(config: &SimulationConfig, knobs: &[(String, i64)]) -> Result<Schedulers, SimError> {
        let last = match &config.scheduler {
            Scheduler::Ext(scheduler) => {
                Some(Attachable { name: String::new(), scheduler: scheduler.clone(), knobs: knobs.to_vec() })
            }
            _ => None,
        };
        let attachable = config.attachable.clone();
        for change in &config.workload.changes {
            if let Change::Scheduler(Some(name)) = &change.change
                && !attachable.iter().any(|other| other.name == *name)
            {
                let reason = "the workload attaches it, but the run was given no such scheduler".to_owned();
                return Err(SimError::Scheduler { name: name.clone(), reason });
            }
        }
        Ok(Schedulers { attachable, last, restart: config.restart, detached: Vec::new() })
    }

    /// Follows the changes in their order: schedulers that come can, and knobs that change exist at that time, may
    /// change then, and stay within their bounds. `ext` is the scheduler of the beginning.
    pub(crate) fn check_changes(
        &self,
        workload: &Workload,
        params: &FairParams,
        ext: &mut Ext,
    ) -> Result<(), SimError> {
        let mut later = None;
        let mut there = ext;
        for change in &workload.changes {
            match &change.change {
                Change::Scheduler(name) => {
                    let named = |other: &&Attachable| Some(&other.name) == name.as_ref();
                    let next = self.attachable.iter().find(named);
                    let next = next.map(|next| Ext::new(&next.scheduler, &next.knobs)).transpose()?;
                    there = later.insert(next.unwrap_or_default());
                }
                Change::Knob { name, value } => match there.attached() {
                    Some(ext) if !params.knows(name) => ext.check_live(name, *value)?,
                    _ => params.check_live(name, *value)?,
                },
                _ => {}
            }
        }
        Ok(())
    }
}

impl Simulation {
    /// The scheduler that is attached goes, another comes if one is named. The ideal scheduler stays what it is.
    pub(crate) fn switch_scheduler(&mut self, name: Option<&str>) -> Result<(), SimError> {
        if self.core.k.ideal {
            return Ok(());
        }
        if self.core.ext.has_exit() {
            // It ended by itself at this very instant.
            self.end_scheduler();
        }
        self.core.k.this_cpu = self.core.k.first_online();
        self.core.ext.throw_out(&self.core.k, None, CpuId(0));
        if let Some(exit) = self.core.ext.take_exit() {
            self.core.disable_ext();
            self.schedulers.detached.push(exit);
        }
        let Some(name) = name else { return Ok(()) };
        let found = self.schedulers.attachable.iter().find(|other| other.name == name).cloned();
        self.attach(found.expect("every name was looked up before the run"))
    }

    fn attach(&mut self, next: Attachable) -> Result<(), SimError> {
        let ext = Ext::new(&next.scheduler, &next.knobs)?;
        self.schedulers.last = Some(next);
        let names: Vec<String> = self.task_names().into_iter().map(str::to_owned).collect();
        self.core.attach(ext, names);
        Ok(())
    }

    /// If the scheduler has claimed its exit, takes it out; attaches it anew if it asks for that.
    #[cold]
    pub(crate) fn end_scheduler(&mut self) {
        self.take_priorities();
        let Some(exit) = self.core.ext.take_exit() else { return };
        self.core.disable_ext();
        let wants = exit.code & SCX_ECODE_ACT_RESTART != 0 && EXITS_WITH_CODES.contains(&exit.kind);
        let again = self.schedulers.last.clone().filter(|_| self.schedulers.restart && wants);
        // One that asks again before any time has passed would ask for ever.
        let at_once = self.schedulers.detached.last().is_some_and(|before| before.time == exit.time);
        match again.filter(|_| !at_once) {
            Some(again) => {
                self.schedulers.detached.push(exit);
                self.attach(again).expect("it was attached before");
                self.end_scheduler();
            }
            None => self.keep_exit(exit),
        }
    }

    /// The first end is the run's, but an error is never lost behind an end without: that one joins the other ends.
    fn keep_exit(&mut self, exit: SchedulerExit) {
        let fails = |exit: &SchedulerExit| exit.kind >= SCX_EXIT_ERROR;
        match &mut self.scheduler_exit {
            Some(before) if fails(before) || !fails(&exit) => self.schedulers.detached.push(exit),
            Some(before) => self.schedulers.detached.push(std::mem::replace(before, exit)),
            none => *none = Some(exit),
        }
    }
}
