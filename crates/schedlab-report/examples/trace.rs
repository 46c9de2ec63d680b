//! Writes a Perfetto trace of a made-up run, to be checked by tests/perfetto/check_trace.py:
//! `cargo run -p schedlab-report --example trace -- out.pftrace`. Prints the counts to check for.

#![allow(clippy::print_stdout, reason = "an example talks")]

#[path = "toy/mod.rs"]
mod toy;

use schedlab_model::event::EventKind;
use schedlab_model::ids::TaskId;
use schedlab_model::machine::KernelVersion;
use schedlab_report::perfetto::{TraceInput, trace};
use schedlab_report::timeline::Timeline;
use std::collections::BTreeSet;

fn main() -> std::io::Result<()> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "out.pftrace".to_owned());
    let made = toy::Toy { order: toy::Order::Vtime, ..toy::Toy::default() }.make();
    let cpus = made.topology.cpu_count();
    let input = TraceInput {
        events: &made.events,
        tasks: &made.tasks,
        cpus,
        length: made.length,
        kernel: KernelVersion::V6_18,
    };
    std::fs::write(&path, trace(&input))?;
    let timeline = Timeline::new(&made.events, &made.tasks, cpus, made.length);
    let switches = made.events.iter().filter(|event| matches!(event.kind, EventKind::Switch { .. })).count();
    let flows = timeline.wakes.iter().filter(|wake| wake.ran.is_some()).count();
    // CPU time is counted from 0 on, once for each task that runs, and at the end of each stay.
    let ran: BTreeSet<TaskId> = timeline.stays.iter().map(|stay| stay.task).collect();
    let progress = ran.len() + timeline.stays.len() + timeline.vruntimes.len();
    let counters = cpus + timeline.queues.len() + timeline.ranks.len() + progress;
    println!("{path} --switches {switches} --flows {flows} --counters {counters}");
    Ok(())
}
