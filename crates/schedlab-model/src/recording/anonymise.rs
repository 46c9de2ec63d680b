//! A recording without what tells of people and places: names, ids, commands, paths and times of day are replaced,
//! what scheduling is made of stays as it was.
//!
//! Equal names stay equal and different ones different, so that tasks can still be told apart. Names of kernel threads
//! stay: they name functions and CPUs of the kernel, not work.

use super::{Provenance, Recording};
use std::collections::HashMap;

impl Recording {
    /// Replaces task names by `program-1`, `program-2`, ..., pids by small numbers, control groups by `/group-1`, ...,
    /// inode numbers and addresses of channels by their row; forgets commands, targets, the kernel's build and the
    /// time of day.
    pub fn anonymise(&mut self) {
        let mut names = Renamed::new("program-");
        let mut groups = Renamed::new("/group-");
        let mut pids: HashMap<i32, i32> = HashMap::from([(0, 0)]);
        let mut pid = |old: i32| {
            let next = pids.len() as i32;
            *pids.entry(old).or_insert(next)
        };
        for task in self.tasks.iter_mut().skip(1) {
            task.pid = pid(task.pid);
            task.tgid = pid(task.tgid);
            if !task.attributes.kernel_thread {
                task.name = names.of(&task.name);
            }
            task.attributes.cgroup = groups.of(&task.attributes.cgroup);
        }
        for (row, channel) in self.channels.iter_mut().enumerate() {
            channel.identity = row as u64;
        }
        for group in self.provenance.groups.iter_mut().flatten() {
            group.path = groups.of(&group.path);
        }
        let version = self.machine.kernel;
        let old = std::mem::take(&mut self.provenance);
        self.provenance = Provenance {
            command: Vec::new(),
            target: "anonymised".to_owned(),
            kernel_release: version.to_string(),
            started_unix_s: 0,
            ..old
        };
        self.machine.name = "anonymised".to_owned();
        self.machine.description.clear();
    }
}

/// New names in the order in which old ones appear.
struct Renamed {
    prefix: &'static str,
    known: HashMap<String, String>,
}

impl Renamed {
    fn new(prefix: &'static str) -> Renamed {
        Renamed { prefix, known: HashMap::new() }
    }

    /// Nothing stays nothing. Of a path each part is renamed by itself, so that groups stay within their parents.
    fn of(&mut self, old: &str) -> String {
        if old.is_empty() || old == "/" {
            return old.to_owned();
        }
        let Some((parent, _)) = old.rsplit_once('/').filter(|_| self.prefix.starts_with('/')) else {
            return self.number(old);
        };
        let parent = self.of(parent);
        let own = self.number(old);
        if parent == "/" { own } else { parent + &own }
    }

    fn number(&mut self, old: &str) -> String {
        let next = self.known.len() + 1;
        self.known.entry(old.to_owned()).or_insert_with(|| format!("{}{next}", self.prefix)).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_stay_within_their_parents() {
        let mut groups = Renamed::new("/group-");
        assert_eq!(groups.of(""), "");
        assert_eq!(groups.of("/"), "/");
        let web = groups.of("/system.slice/web.service");
        let parent = groups.of("/system.slice");
        assert_eq!(web, format!("{parent}/group-2"));
        assert_eq!(groups.of("/system.slice/web.service"), web, "the same name for the same group");
        let mut names = Renamed::new("program-");
        assert_eq!(names.of("kworker/0"), "program-1", "a slash in a task's name makes no path");
    }
}
