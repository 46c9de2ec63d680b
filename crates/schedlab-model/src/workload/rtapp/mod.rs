//! Reads rt-app's JSON task graphs (scheduler-tools/rt-app, `doc/tutorial.txt`) into a [`Workload`].
//!
//! What rt-app does is what its source does, version of May 2026. What has no counterpart here (memory and
//! device load, SCHED_DEADLINE, utilisation clamps, priority inheritance) is an error that names the line, never
//! dropped. Times are microseconds, as in rt-app. The parts: a place in the file (`json`), tasks and phases
//! (`task`), events (`event`).

mod event;
mod json;
mod task;
#[cfg(test)]
mod tests;

use super::Workload;
use super::builder::Builder;
use super::file::WorkloadError;
use super::limits::{self, Room};
use crate::policy::Policy;
use crate::time::Nanos;
use json::Place;

/// Settings of the `global` object that matter here.
struct Global {
    duration: Option<Nanos>,
    policy: Policy,
}

/// Keys of `global` that only steer rt-app's own calibration, measuring and writing of files.
const GLOBAL_IGNORED: &[&str] = &[
    "calibration",
    "cumulative_slack",
    "frag",
    "ftrace",
    "gnuplot",
    "io_device",
    "lock_pages",
    "log_basename",
    "log_size",
    "logdir",
    "mem_buffer_size",
];

/// Reads an rt-app file.
///
/// # Errors
/// [`WorkloadError::RtApp`] with the line of what cannot be read or is not supported.
pub fn parse(name: &str, text: &str) -> Result<Workload, WorkloadError> {
    let json = json::parse(text)?;
    let root = Place::root(text, &json);
    let mut global = Global { duration: None, policy: Policy::Normal };
    let mut tasks = Vec::new();
    for entry in root.entries()? {
        match entry.key() {
            "global" => global = read_global(&entry)?,
            "tasks" => tasks = entry.entries()?,
            "resources" => check_resources(&entry)?,
            _ => return Err(entry.error("unknown; rt-app files have tasks, resources and global")),
        }
    }
    let mut heads =
        tasks.iter().map(|place| task::Head::read(place, global.policy)).collect::<Result<Vec<_>, _>>()?;
    let builder = read_tasks(Builder::new(name, "imported from an rt-app file"), &mut heads)?;
    Ok(builder.finish(global.duration)?)
}

/// Two passes: what tasks know of each other (barriers, timers, forks) comes before what they do.
fn read_tasks(mut builder: Builder, heads: &mut [task::Head<'_>]) -> Result<Builder, WorkloadError> {
    let mut resources = event::Resources::default();
    let mut forks = Vec::new();
    let mut room = Room::new(limits::TASKS);
    for head in &*heads {
        room.take(head.name(), u64::from(head.instances)).map_err(|error| head.error(&error))?;
        for event in head.events() {
            resources.scan(head.name(), event, u64::from(head.instances))?;
            if event::kind(event.key()) == Some("fork") {
                forks.push(event.text()?);
            }
        }
    }
    for head in &mut *heads {
        head.forked = forks.contains(&head.name());
        for (name, template) in head.rows() {
            builder.declare(&name, template);
        }
    }
    for head in &*heads {
        head.add(&mut builder, &mut resources)?;
    }
    Ok(builder)
}

fn read_global(place: &Place<'_>) -> Result<Global, WorkloadError> {
    let mut global = Global { duration: None, policy: Policy::Normal };
    for entry in place.entries()? {
        match entry.key() {
            "duration" => {
                let seconds = entry.integer(-1, 1_000_000)?;
                global.duration = u64::try_from(seconds).ok().map(Nanos::from_secs);
            }
            "default_policy" => global.policy = task::policy(&entry)?,
            "pi_enabled" if entry.is_true() => {
                return Err(entry.error("priority inheritance is not modelled: set it to false"));
            }
            "pi_enabled" => {}
            key if GLOBAL_IGNORED.contains(&key) => {}
            _ => return Err(entry.error("is not supported")),
        }
    }
    Ok(global)
}

/// Resources are made where events name them; the list itself has no effect, as in rt-app.
fn check_resources(place: &Place<'_>) -> Result<(), WorkloadError> {
    if place.is_object() {
        return Ok(());
    }
    Err(place.error("a number of resources is the format of rt-app before 2014: name resources in events"))
}
