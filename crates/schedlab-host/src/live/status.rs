//! Who runs which scheduler: what the kernel says, whose process holds it, and who else may load one.
//!
//! Only looks. What of it is ours is told by the journal's owner and by its control socket ([`super::control`]).

use super::{Error, STATE};
use crate::doctor::{Tuner, tuners};
use crate::process::numbers;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Where the kernel tells about schedulers.
const DIRECTORY: &str = "/sys/kernel/sched_ext";

/// What the kernel says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelStatus {
    /// `enabled`, `disabled`, or on the way.
    pub state: String,
    /// Name of the scheduler; empty if there is none.
    pub scheduler: String,
    /// How many schedulers this kernel has had since it booted.
    pub enable_seq: u64,
    /// Whether every task of the fair class is the scheduler's, and not only those that ask for `SCHED_EXT`.
    pub switch_all: bool,
    /// Tasks that schedulers refused.
    pub nr_rejected: u64,
    /// Events that the kernel counted for the scheduler, those above 0.
    pub events: BTreeMap<String, u64>,
}

/// A process that holds the scheduler's link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The process.
    pub pid: i32,
    /// Its name.
    pub name: String,
}

impl KernelStatus {
    /// Reads it; an error if the kernel has no sched_ext.
    pub fn read() -> Result<KernelStatus, Error> {
        if !Path::new(STATE).exists() {
            return Err(Error::NoSchedExt);
        }
        let text = |name: &str| read(&format!("{DIRECTORY}/{name}"));
        let number = |name: &str| text(name).parse().unwrap_or(0);
        Ok(KernelStatus {
            state: text("state"),
            scheduler: text("root/ops"),
            enable_seq: number("enable_seq"),
            switch_all: number("switch_all") != 0,
            nr_rejected: number("nr_rejected"),
            events: events(&text("root/events")),
        })
    }

    /// Whether there is a scheduler, or one comes or goes.
    pub fn is_taken(&self) -> bool {
        self.state != "disabled"
    }
}

/// How many schedulers this kernel has had since it booted.
pub(super) fn enable_seq() -> u64 {
    read(&format!("{DIRECTORY}/enable_seq")).parse().unwrap_or(0)
}

/// The processes that hold a link of a scheduler, ours included; those of others are seen only by root.
pub fn holders() -> Vec<Holder> {
    let holds = |pid: &i32| {
        let links = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        let links = links.filter(|entry| {
            fs::read_link(entry.path()).is_ok_and(|target| target.as_os_str() == "anon_inode:bpf_link")
        });
        links.into_iter().any(|entry| {
            let number = entry.file_name();
            let info = read(&format!("/proc/{pid}/fdinfo/{}", number.to_string_lossy()));
            info.lines().any(|line| line.starts_with("link_type:") && line.contains("struct_ops"))
        })
    };
    let holding = numbers(Path::new("/proc")).into_iter().filter(holds);
    holding.map(|pid| Holder { pid, name: read(&format!("/proc/{pid}/comm")) }).collect()
}

/// Programs that load schedulers by themselves, such as scx_loader.
pub fn loaders() -> Vec<Tuner> {
    let mut found = tuners(Path::new("/proc"));
    found.retain(|tuner| tuner.program.starts_with("scx_"));
    found
}

/// Who runs the scheduler that is not ours, in words.
pub fn foreign_words(kernel: &KernelStatus) -> String {
    let name = if kernel.scheduler.is_empty() { "a scheduler" } else { &kernel.scheduler };
    let mut who: Vec<String> =
        holders().iter().map(|holder| format!("{} (process {})", holder.name, holder.pid)).collect();
    if who.is_empty() {
        who.push("somebody whose process cannot be seen (a pinned link?)".to_owned());
    }
    for loader in loaders().iter().filter(|loader| loader.program == "scx_loader") {
        let end = "`systemctl stop scx_loader` ends both";
        who.push(format!("started by scx_loader (process {}; {end})", loader.pid));
    }
    format!("'{name}' is {} by {}", kernel.state, who.join(", "))
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// `SCX_EV_NAME 12`, a line each; those above 0.
pub(super) fn events(text: &str) -> BTreeMap<String, u64> {
    let pair = |line: &str| {
        let (name, count) = line.split_once(' ')?;
        Some((name.to_owned(), count.trim().parse().ok().filter(|count| *count > 0)?))
    };
    text.lines().filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_above_zero_are_kept() {
        let text = "SCX_EV_SELECT_CPU_FALLBACK 0\nSCX_EV_DISPATCH_KEEP_LAST 12\n\n";
        assert_eq!(events(text), [("SCX_EV_DISPATCH_KEEP_LAST".to_owned(), 12)].into());
    }

    #[test]
    fn others_are_told_in_words() {
        let kernel = KernelStatus {
            state: "enabled".to_owned(),
            scheduler: "lavd".to_owned(),
            ..KernelStatus::default()
        };
        assert!(kernel.is_taken() && foreign_words(&kernel).starts_with("'lavd' is enabled by "));
    }
}
