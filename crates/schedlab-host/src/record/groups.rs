//! In which group the fair class schedules a task, and the settings of those groups.
//!
//! With a cpu controller, of either version, that is a task's cgroup as far as the controller goes down; in the
//! controller's root it is the session's autogroup, if the kernel makes them. Settings are read once, at the start.

use schedlab_model::recording::TaskInfo;
use schedlab_model::workload::change::{CgroupSettings, CgroupSpec, CpuMax};
use schedlab_model::{Nanos, Nice};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Where a cpu controller of version 1 is mounted.
const CONTROLLER: [&str; 2] = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"];
/// Where the unified hierarchy is.
const UNIFIED: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

/// The path of a task's group; empty is the root.
pub(super) fn of_task(tgid: i32, directory: &str) -> String {
    let text = fs::read_to_string(format!("{directory}/cgroup")).unwrap_or_default();
    let path = controlled(&text, |path| directory_of(path).is_some());
    if path.is_empty() { autogroup(tgid).map(|(path, _)| path).unwrap_or_default() } else { path }
}

/// The path from `/proc/PID/cgroup` as far as groups have settings of the cpu controller.
fn controlled(text: &str, has_settings: impl Fn(&str) -> bool) -> String {
    let lines = text.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        Some((parts.next()?, parts.next()?.trim_end_matches('/')))
    });
    let (own, unified): (Vec<_>, Vec<_>) = lines.partition(|(controllers, _)| !controllers.is_empty());
    let own = own.into_iter().find(|(controllers, _)| controllers.split(',').any(|name| name == "cpu"));
    let mut path = own.or(unified.first().copied()).map_or("", |(_, path)| path);
    while !path.is_empty() && !has_settings(path) {
        path = path.rsplit_once('/').map_or("", |(above, _)| above);
    }
    path.to_owned()
}

/// The directory of a group below the root that has settings of the cpu controller.
fn directory_of(path: &str) -> Option<PathBuf> {
    let inside = |root: &str| Path::new(root).join(path.trim_start_matches('/'));
    let first = CONTROLLER.iter().map(|root| inside(root)).find(|at| at.join("cpu.shares").exists());
    first.or_else(|| UNIFIED.iter().map(|root| inside(root)).find(|at| at.join("cpu.weight").exists()))
}

/// The session's group and its nice value, where the kernel makes such groups.
fn autogroup(tgid: i32) -> Option<(String, Nice)> {
    let enabled = fs::read_to_string("/proc/sys/kernel/sched_autogroup_enabled").ok()?;
    if enabled.trim() != "1" {
        return None;
    }
    parse_autogroup(&fs::read_to_string(format!("/proc/{tgid}/autogroup")).ok()?)
}

/// `/autogroup-51 nice 0`.
fn parse_autogroup(text: &str) -> Option<(String, Nice)> {
    let (path, nice) = text.trim().split_once(" nice ")?;
    Some((path.to_owned(), Nice::new(nice.parse().ok()?).ok()?))
}

/// Settings of all groups that tasks are in, and of the groups above them.
pub(super) fn settings(tasks: &[TaskInfo]) -> Vec<CgroupSpec> {
    let mut groups = BTreeMap::new();
    for task in tasks {
        let path = task.attributes.cgroup.as_str();
        if path.starts_with("/autogroup-") {
            let nice = || autogroup(task.tgid).map_or(Nice::ZERO, |(_, nice)| nice);
            groups.entry(path.to_owned()).or_insert_with(|| CgroupSettings::of_nice(nice()));
            continue;
        }
        let above = path.match_indices('/').skip(1).map(|(at, _)| &path[..at]);
        for path in above.chain([path]).filter(|path| !path.is_empty()) {
            if !groups.contains_key(path) {
                groups.insert(path.to_owned(), read(path));
            }
        }
    }
    groups.into_iter().map(|(path, settings)| CgroupSpec { path, settings }).collect()
}

fn read(path: &str) -> CgroupSettings {
    directory_of(path).map_or_else(CgroupSettings::default, |directory| {
        parse(|name| fs::read_to_string(directory.join(name)).ok().map(|text| text.trim().to_owned()))
    })
}

/// Settings from the controller's files of either version.
fn parse(file: impl Fn(&str) -> Option<String>) -> CgroupSettings {
    let number = |name: &str| file(name).and_then(|text| text.parse::<u64>().ok());
    let us = |text: &str| text.parse::<u64>().ok().map(Nanos::from_micros);
    let standard = CpuMax::default();
    let shares = number("cpu.shares").map(|shares| (shares * 100 + 512) / 1_024);
    let weight = number("cpu.weight").or(shares).unwrap_or(100).clamp(1, 10_000) as u32;
    let (quota, period) = match file("cpu.max") {
        Some(text) => {
            let (quota, period) = text.split_once(' ').unwrap_or((text.as_str(), ""));
            (us(quota), us(period))
        }
        None => (
            file("cpu.cfs_quota_us").as_deref().and_then(us),
            file("cpu.cfs_period_us").as_deref().and_then(us),
        ),
    };
    let burst = number("cpu.max.burst").or_else(|| number("cpu.cfs_burst_us")).unwrap_or(0);
    CgroupSettings {
        weight,
        nice: None,
        idle: number("cpu.idle") == Some(1),
        max: CpuMax { quota, period: period.unwrap_or(standard.period), burst: Nanos::from_micros(burst) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_s_group_is_as_deep_as_the_controller() {
        let first = "9:name=systemd:/\n4:cpu,cpuacct:/web/x\n0::/\n";
        assert_eq!(controlled(first, |_| true), "/web/x");
        let unified = "0::/user.slice/user-0.slice/session-3.scope\n";
        assert_eq!(controlled(unified, |path| path == "/user.slice"), "/user.slice");
        assert_eq!(controlled(unified, |_| false), "");
        assert_eq!(controlled("1:cpu:/\n0::/\n", |_| true), "");
    }

    #[test]
    fn sessions_have_a_group_and_a_nice_value() {
        let nice = Nice::new(-5).expect("in range");
        assert_eq!(parse_autogroup("/autogroup-51 nice -5\n"), Some(("/autogroup-51".to_owned(), nice)));
        assert_eq!(parse_autogroup(""), None);
    }

    #[test]
    fn settings_of_both_versions_are_read() {
        let files = |list: &'static [(&str, &str)]| {
            move |name: &str| list.iter().find(|(file, _)| *file == name).map(|(_, text)| (*text).to_owned())
        };
        let second = parse(files(&[("cpu.weight", "200"), ("cpu.max", "20000 50000"), ("cpu.idle", "1")]));
        assert_eq!((second.weight, second.idle), (200, true));
        assert_eq!(
            (second.max.quota, second.max.period),
            (Some(Nanos::from_millis(20)), Nanos::from_millis(50))
        );
        let unlimited = parse(files(&[("cpu.weight", "100"), ("cpu.max", "max 100000")]));
        assert_eq!(unlimited, CgroupSettings::default());
        let first = parse(files(&[
            ("cpu.shares", "2048"),
            ("cpu.cfs_quota_us", "-1"),
            ("cpu.cfs_period_us", "100000"),
        ]));
        assert_eq!((first.weight, first.max.quota), (200, None));
    }
}
