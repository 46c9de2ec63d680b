//! The programs of the scheduler that runs, as the kernel lists them: their maps, and what they cost.
//!
//! Works for schedulers of others, too: nothing of ours needs to hold them. The kernel counts runs and run time
//! only while somebody asks it to ([`Counting`]).

use super::Error;
use super::object::{Opened, name_of};
use super::variables::Variables;
use libbpf_rs::query::{ProgInfoIter, ProgInfoQueryOptions, ProgramInfo};
use libbpf_rs::{MapCore, MapFlags, MapHandle, ProgramType, libbpf_sys};
use schedlab_model::Nanos;
use serde::Serialize;
use std::os::fd::{FromRawFd, OwnedFd};

/// A program of the running scheduler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RunningProgram {
    /// Its name, cut to 15 bytes by the kernel.
    pub name: String,
    /// How often it ran while the kernel counted.
    pub runs: u64,
    /// For how long.
    pub run_time: Nanos,
}

/// The programs of the scheduler that the kernel runs, and their maps.
#[derive(Debug, Default)]
pub struct RunningPrograms {
    scheduler: String,
    programs: Vec<ProgramInfo>,
}

impl RunningPrograms {
    /// Finds those of the scheduler of this name (as in `/sys/kernel/sched_ext/root/ops`). Needs root.
    pub fn find(scheduler: &str) -> RunningPrograms {
        let options = ProgInfoQueryOptions::default().include_map_ids(true);
        let all = ProgInfoIter::with_query_opts(options);
        let mut programs: Vec<ProgramInfo> = all.filter(|info| info.ty == ProgramType::StructOps).collect();
        let named = |info: &ProgramInfo| {
            let name = name_of(&info.name);
            name.split('_').next().is_some_and(|first| !first.is_empty() && scheduler.starts_with(first))
        };
        if programs.iter().any(named) {
            programs.retain(named);
        }
        // An older one of the same name may be on its way out: the newest, and those that share its maps.
        let newest = programs.iter().max_by_key(|info| info.id).map(|info| info.map_ids.clone());
        let newest = newest.unwrap_or_default();
        if !newest.is_empty() {
            programs.retain(|info| info.map_ids.iter().any(|map| newest.contains(map)));
        }
        RunningPrograms { scheduler: scheduler.to_owned(), programs }
    }

    /// What they have cost so far, the dearest first.
    pub fn costs(&self) -> Vec<RunningProgram> {
        let cost = |info: &ProgramInfo| RunningProgram {
            name: name_of(&info.name),
            runs: info.run_cnt,
            run_time: Nanos(info.run_time_ns),
        };
        let mut costs: Vec<RunningProgram> = self.programs.iter().map(cost).collect();
        costs.sort_by_key(|cost| std::cmp::Reverse(cost.run_time));
        costs
    }

    /// One of their maps.
    pub fn map(&self, is_wanted: impl Fn(&str) -> bool) -> Option<MapHandle> {
        let mut numbers: Vec<u32> = self.programs.iter().flat_map(|info| info.map_ids.clone()).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let maps = numbers.into_iter().filter_map(|number| MapHandle::from_map_id(number).ok());
        maps.into_iter().find(|map| is_wanted(&name_of(map.name())))
    }

    /// Value of a variable, zero-extended, if the scheduler is one of ours.
    pub fn variable(&self, name: &str) -> Option<i64> {
        let object = schedlab_objects::scheduler(&self.scheduler)?;
        let variables: Variables = Opened::new(object).ok()?.variables();
        let variable = variables.find(name).ok()?;
        let map = self.map(|map| variable.is_in(map))?;
        let bytes = map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).ok().flatten()?;
        variable.read(&bytes)
    }
}

/// While it lives the kernel counts runs and run time of all BPF programs, which costs each run some 10 ns.
#[derive(Debug)]
#[must_use = "the kernel counts only while this is held"]
pub struct Counting(#[allow(dead_code, reason = "closing it ends the counting")] OwnedFd);

impl Counting {
    /// Begins to count.
    pub fn start() -> Result<Counting, Error> {
        // SAFETY: a plain system call; what it returns is a descriptor of ours, or an error below zero.
        let descriptor = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
        if descriptor < 0 {
            let source = std::io::Error::from_raw_os_error(-descriptor);
            return Err(Error::System {
                context: "counting the run time of BPF programs".to_owned(),
                source,
            });
        }
        // SAFETY: as above.
        Ok(Counting(unsafe { OwnedFd::from_raw_fd(descriptor) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_no_programs_of_a_scheduler_that_does_not_run() {
        let programs = RunningPrograms::find("no_such_scheduler");
        assert_eq!(programs.variable("hz"), None);
        assert!(programs.map(|map| map == "no such map").is_none());
    }
}
