//! How well the simulated kernel predicts the real one. `fidelity measure` and `fidelity page` measure and make
//! docs/fidelity.md; `cargo xtask fidelity` calls them.
//!
//! How like their recordings replays are, as a table: `fidelity FILE...` for recordings that exist.
//!
//! With `--table` it is the table of docs/fidelity.md; with SCHEDLAB_DETAIL set each wake-up's causes are shown.
//! With SCHEDLAB_EVENTS=STEM the events of the recording and of the first replay go to STEM-live.txt and STEM-1.txt.
//! `--costs=FILE`, a machine file or a recording made before, tells what things cost independently of the recordings
//! judged; given several times, the samples of all such recordings count together.
//! Each file is replayed on its own machine's description under the scheduler that was recorded: the recorded kernel's
//! model, or the object of the library. With several seeds; rows show the recording, the mean over the seeds, and how many seeds are within the tolerance.
#![allow(clippy::print_stdout)]

mod causes;
mod guest;
mod measure;
mod publish;
mod recorder;
mod table;

use anyhow::{Context, Result};
use causes::Causes;
use schedlab_bpf::image::ObjectImage;
use schedlab_model::Event;
use schedlab_model::machine::{Costs, MachineDescription};
use schedlab_model::recording::{Provenance, Recording, codec};
use schedlab_model::workload::Workload;
use schedlab_report::fidelity::{Fidelity, LiveRange};
use schedlab_report::triage::Triage;
use schedlab_sim::ext::{ExtOptions, ExtScheduler, kernel_btf};
use schedlab_sim::replay::{ReplayOptions, calibrated, costs_shown, workload_from};
use schedlab_sim::{Scheduler, Simulation, SimulationConfig};
use std::process::ExitCode;
use std::sync::Arc;
use table::Table;

const SEEDS: u64 = 5;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let ended = match arguments.first().map(String::as_str) {
        Some("measure") => publish::measure(&arguments[1..]),
        Some("page") => publish::page(&arguments[1..]),
        _ => compare_recordings(arguments).map(|()| ExitCode::SUCCESS),
    };
    ended.unwrap_or_else(|error| {
        eprintln!("fidelity: {error:#}");
        ExitCode::from(1)
    })
}

fn compare_recordings(arguments: Vec<String>) -> Result<()> {
    let (flags, files): (Vec<String>, Vec<String>) =
        arguments.into_iter().partition(|argument| argument.starts_with("--"));
    let mut table = flags.iter().any(|flag| flag == "--table").then(Table::default);
    let measured = independent_costs(&flags)?;
    for file in files {
        let bytes = std::fs::read(&file).with_context(|| file.clone())?;
        let mut recording = codec::decode(&bytes).with_context(|| file.clone())?;
        if let Some(costs) = &measured {
            recording.machine.costs = costs.clone();
        }
        recording.machine = calibrated(&recording);
        if let Some(table) = &mut table {
            if table.takes(&recording) {
                let replay = workload_from(&recording, &ReplayOptions::default())?;
                table.add(&recording, &scores(&recording, &Arc::new(replay.workload))?);
            }
            continue;
        }
        if std::env::var_os("SCHEDLAB_DETAIL").is_some() {
            println!("{:#?}", recording.machine.costs);
        }
        println!("\n{file}: {}", recording.provenance.command.join(" "));
        show(&recording)?;
    }
    table.iter().for_each(Table::print);
    Ok(())
}

/// Costs of machine files and of recordings made for them.
fn independent_costs(flags: &[String]) -> Result<Option<Costs>> {
    let (mut costs, mut recordings) = (None, Vec::new());
    for file in flags.iter().filter_map(|flag| flag.strip_prefix("--costs=")) {
        let bytes = std::fs::read(file).with_context(|| file.to_owned())?;
        if file.ends_with(".slrec") {
            recordings.push(codec::decode(&bytes).with_context(|| file.to_owned())?);
        } else {
            let machine: MachineDescription = toml::from_str(&String::from_utf8(bytes)?)?;
            costs = Some(machine.costs);
        }
    }
    if !recordings.is_empty() {
        costs_shown(&recordings, costs.get_or_insert_default());
    }
    Ok(costs)
}

fn show(recording: &Recording) -> Result<()> {
    let triage = Triage::of(recording);
    println!("{}", triage.sentence());
    let replay = workload_from(recording, &ReplayOptions::default())?;
    println!("waits {:?}", replay.waits);
    replay.notes.iter().for_each(|note| println!("note: {note}"));
    if let Some(ops) = std::env::var("SCHEDLAB_DUMP").ok().and_then(|ops| ops.parse().ok()) {
        dump(&replay.workload, ops);
    }
    let workload = Arc::new(replay.workload);
    let scores = scores(recording, &workload)?;
    println!("{:22} {:>14} {:>14} {:>7} {:>7}", "metric", "recorded", "simulated", "ratio", "within");
    for row in &scores[0].rows {
        let of = |score: &Fidelity| score.get(row.metric).copied();
        let rows: Vec<_> = scores.iter().filter_map(of).collect();
        let mean = rows.iter().map(|row| row.simulated).sum::<f64>() / rows.len() as f64;
        let within = rows.iter().filter(|row| row.within != Some(false)).count();
        let ratio = if row.recorded > 0.0 { mean / row.recorded } else { 1.0 };
        println!(
            "{:22} {:14.2} {:14.2} {:7.3} {:>5}/{}",
            row.metric.name(),
            row.recorded,
            mean,
            ratio,
            within,
            rows.len()
        );
    }
    Ok(())
}

/// Replays with every seed and scores each.
fn scores(recording: &Recording, workload: &Arc<Workload>) -> Result<Vec<Fidelity>> {
    let mut scores = Vec::new();
    let scheduler = recorded_scheduler(recording)?;
    for seed in 1..=SEEDS {
        let config = SimulationConfig {
            seed,
            scheduler: scheduler.clone(),
            ..SimulationConfig::new(recording.machine.clone(), Arc::clone(workload))
        };
        let mut events: Vec<Event> = Vec::new();
        let result = Simulation::new(config)?.run(&mut events)?;
        let simulated = Recording {
            provenance: Provenance { origin: "simulated".to_owned(), ..Provenance::default() },
            machine: recording.machine.clone(),
            tasks: result.tasks,
            channels: result.channels,
            cpu_sets: Vec::new(),
            events,
            duration: result.report.simulated,
        };
        scores.push(Fidelity::of(recording, &simulated, LiveRange::default()));
        if let Some(stem) = std::env::var_os("SCHEDLAB_EVENTS").filter(|_| seed == 1) {
            let stem = stem.to_string_lossy().into_owned();
            write_events(&format!("{stem}-live.txt"), recording)?;
            write_events(&format!("{stem}-{seed}.txt"), &simulated)?;
        }
        if seed == 1 && std::env::var_os("SCHEDLAB_DETAIL").is_some() {
            detail(recording, &simulated);
            Causes::print(&Causes::of(recording), &Causes::of(&simulated));
        }
    }
    Ok(scores)
}

/// What ran when it was recorded, with its knobs as they begin.
fn recorded_scheduler(recording: &Recording) -> Result<Scheduler> {
    let (name, machine) = (recording.provenance.scheduler.as_str(), &recording.machine);
    if matches!(name, "" | "fair") {
        return Ok(Scheduler::Kernel);
    }
    let bytes = schedlab_objects::scheduler(name)
        .with_context(|| format!("recorded under {name}, which is no scheduler of the library"))?;
    let image = ObjectImage::load(bytes, name, &kernel_btf(machine.kernel)).context(name.to_owned())?;
    let scheduler = ExtScheduler::new(image, machine.kernel, &machine.topology, ExtOptions::default())?;
    Ok(Scheduler::Ext(scheduler))
}

/// Events one a line, for eyes.
fn write_events(file: &str, recording: &Recording) -> Result<()> {
    use schedlab_model::event::EventKind as K;
    let name = |task: schedlab_model::TaskId| recording.task(task).name.clone();
    let mut lines = String::new();
    for (id, task) in recording.tasks.iter().enumerate() {
        lines += &format!("task{id} {} target {}\n", task.name, task.target);
    }
    for event in &recording.events {
        let time = event.time.0 as f64 / 1_000.0;
        let cpu = event.cpu;
        let what = match event.kind {
            K::Switch { prev, prev_state, next } => {
                format!("switch {prev}:{} {prev_state:?} -> {next}:{}", name(prev), name(next))
            }
            K::Waking { waker, context, wakee, wakee_cpu } => {
                format!(
                    "waking {waker}:{} {context:?} wakes {wakee}:{} on {wakee_cpu}",
                    name(waker),
                    name(wakee)
                )
            }
            other => format!("{other:?}"),
        };
        lines += &format!("{time:12.3} [{cpu}] {what}\n");
    }
    std::fs::write(file, lines).with_context(|| file.to_owned())
}

fn detail(recording: &Recording, simulated: &Recording) {
    for (name, of) in [("recorded", recording), ("simulated", simulated)] {
        println!("--- {name} {}", of.duration);
        let triage = Triage::of(of);
        for task in triage.tasks.iter().take(12) {
            println!(
                "{:16} life {:>9} run {:>9} irq {:>9} wake delay {:>9} preempt delay {:>9} asleep {:?}",
                task.name,
                task.lifetime,
                task.spent.running,
                task.spent.interrupted,
                task.spent.run_delay_wakeup,
                task.spent.run_delay_preempted,
                task.spent.asleep
            );
        }
    }
}

fn dump(workload: &Workload, shown: usize) {
    for task in workload.tasks.iter().filter(|task| task.target) {
        let ops = &workload.programs[task.program.0 as usize].ops;
        println!("{} start {} template {} ops {}", task.name, task.start, task.template, ops.len());
        ops.iter().take(shown).for_each(|op| println!("    {op:?}"));
    }
    for (id, channel) in workload.channels.iter().enumerate() {
        println!("channel {id} {channel:?}");
    }
}
