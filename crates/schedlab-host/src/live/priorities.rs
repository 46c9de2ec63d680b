//! The log of a running scheduler's changes of dynamic priority, read as it fills.
//!
//! A scheduler has such a log if its object has `changes`, `changes_count` and the knob `log_changes`
//! (bpf/include/arrays.bpf.h). The log keeps the last changes in turn: what is not read in time is counted as lost.

use super::object::Opened;
use super::programs::RunningPrograms;
use super::variables::Variable;
use crate::process::Stat;
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use schedlab_model::event::{PriorityChange, priority_changes};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

/// The knob that makes a scheduler log.
pub const KNOB: &str = "log_changes";
/// Ancestors looked at to find out whose a task is.
const DEPTH_MAX: usize = 64;

/// Who a task was when a change of it was last read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Person {
    /// Its name; empty if it had ended before it was ever looked at.
    pub name: String,
    /// Whether it is of the command.
    pub target: bool,
}

/// What was logged so far.
pub struct PriorityLog {
    map: MapHandle,
    changes: Variable,
    count: Variable,
    read: u64,
    /// Changes in the order of their log.
    pub entries: Vec<PriorityChange>,
    /// Changes that were overwritten before they were read.
    pub lost: u64,
    /// The tasks that changed.
    pub people: BTreeMap<i32, Person>,
}

/// Whether an object can log its changes of priority.
pub fn can_log(object: &[u8]) -> bool {
    Opened::new(object).is_ok_and(|opened| {
        let variables = opened.variables();
        ["changes", "changes_count", KNOB].iter().all(|name| variables.find(name).is_ok())
    })
}

impl PriorityLog {
    /// Of the scheduler that runs under this name with this object.
    pub fn of(scheduler: &str, object: &[u8]) -> Option<PriorityLog> {
        let variables = Opened::new(object).ok()?.variables();
        let (changes, count) = (variables.find("changes").ok()?, variables.find("changes_count").ok()?);
        let map = RunningPrograms::find(scheduler).map(|map| changes.is_in(map))?;
        Some(PriorityLog {
            map,
            changes,
            count,
            read: 0,
            entries: Vec::new(),
            lost: 0,
            people: BTreeMap::new(),
        })
    }

    /// Reads what was logged since the last time; the tasks of `command` and its descendants are the target.
    pub fn poll(&mut self, command: u32) {
        let Ok(Some(section)) = self.map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY) else { return };
        let (Some(count), Some(log)) = (self.count.read(&section), self.changes.bytes(&section)) else {
            return;
        };
        let (entries, lost) = priority_changes(log, self.read, count as u64);
        self.read = count as u64;
        self.lost += lost;
        let changed: BTreeSet<i32> = entries.iter().map(|entry| entry.pid).collect();
        for pid in changed {
            match self.people.entry(pid) {
                Entry::Vacant(place) => {
                    place.insert(person(pid, command as i32));
                }
                // A task that has just been forked has its parent's name until it takes its own. Whose it is stays, also
                // when its parent has ended.
                Entry::Occupied(mut known) => {
                    if let Some(stat) = Stat::of(pid) {
                        known.get_mut().name = stat.name;
                    }
                }
            }
        }
        self.entries.extend(entries);
    }
}

fn person(pid: i32, command: i32) -> Person {
    let Some(stat) = Stat::of(pid) else { return Person::default() };
    Person { target: descends(pid, command), name: stat.name }
}

/// Whether a task's process is this one, or one of its descendants.
fn descends(pid: i32, ancestor: i32) -> bool {
    /// Parent's process in `/proc/PID/stat`.
    const PARENT: usize = 4;
    let mut process = process_of(pid).unwrap_or(pid);
    for _ in 0..DEPTH_MAX {
        if process == ancestor {
            return true;
        }
        let parent = Stat::of(process).and_then(|stat| stat.number(PARENT)).unwrap_or(0);
        if parent <= 1 {
            return false;
        }
        process = parent as i32;
    }
    false
}

/// The process of a thread.
fn process_of(pid: i32) -> Option<i32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schedulers_of_2006_can_log() {
        for name in ["ingosched", "ingo_ll", "nicksched", "staircase", "fixed_priority"] {
            assert!(can_log(schedlab_objects::scheduler(name).expect("ours")), "{name}");
        }
        assert!(!can_log(schedlab_objects::scheduler("vtime").expect("ours")));
    }

    #[test]
    fn a_command_is_its_own_and_its_descendants() {
        let own = std::process::id() as i32;
        assert!(descends(own, own));
        assert!(!descends(1, own));
        let name = person(own, own);
        assert!(name.target && !name.name.is_empty());
        assert_eq!(person(i32::MAX, own), Person::default());
    }
}
