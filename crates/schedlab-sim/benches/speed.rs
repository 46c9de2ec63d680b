//! Prints how many context switches the simulator makes in a second of wall time, each row beside what it is
//! to reach: `cargo bench -p schedlab-sim --bench speed`.
//!
//! With the name of a row it runs that one alone, with a number after it so many simulated seconds, as
//! profilers want it. Least wall time of some runs; nobody listens to events. Not a benchmark of schedulers.

#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a program around the simulator may read the clock, its arguments and files; the simulator may not"
)]

use schedlab_model::event::NullSink;
use schedlab_model::machine::{KernelVersion, MachineDescription};
use schedlab_model::topology::Topology;
use schedlab_model::workload::{Op, Past, Program, ProgramId, TaskSpec, Workload};
use schedlab_model::{Nanos, TaskAttributes};
use schedlab_sim::ext::{ExtOptions, ExtScheduler};
use schedlab_sim::{Scheduler, Simulation, SimulationConfig, SimulationResult};
use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// A load on a machine.
#[derive(Clone, Copy)]
struct Row {
    name: &'static str,
    /// Nodes, caches a node, cores a cache, threads a core.
    machine: [u32; 4],
    tasks: u32,
    /// µs of the first of seven lengths of runs, which are 10 µs apart.
    run: u64,
    /// µs of the first of five lengths of sleeps, which are 20 µs apart.
    sleep: u64,
    /// None for the fair class.
    scheduler: Option<&'static str>,
    milliseconds: u64,
    /// Million switches a second of wall time that are wanted.
    wanted: f64,
}

const FIRST: Row = Row {
    name: "vtime",
    machine: [1, 1, 8, 1],
    tasks: 32,
    run: 200,
    sleep: 300,
    scheduler: Some("vtime"),
    milliseconds: 2_000,
    wanted: 4.0,
};

const ROWS: [Row; 6] = [
    FIRST,
    Row { name: "half", tasks: 16, wanted: 3.0, ..FIRST },
    Row { name: "fair", scheduler: None, wanted: 3.0, ..FIRST },
    Row {
        name: "large",
        machine: [2, 12, 8, 2],
        tasks: 768,
        run: 300,
        sleep: 400,
        milliseconds: 1_000,
        wanted: 2.0,
        ..FIRST
    },
    // Long enough that what counts is not each task's first touch.
    Row {
        name: "cpus-1024",
        machine: [2, 16, 16, 2],
        tasks: 4_096,
        milliseconds: 1_000,
        wanted: 0.0,
        ..FIRST
    },
    Row {
        name: "fair-1024",
        machine: [2, 16, 16, 2],
        tasks: 4_096,
        milliseconds: 1_000,
        wanted: 0.0,
        scheduler: None,
        ..FIRST
    },
];

fn workload(row: Row) -> Workload {
    let program = |i: u64| Program {
        ops: vec![
            Op::LoopStart { count: 0 },
            Op::Run(Nanos::from_micros(row.run + 10 * (i % 7)).into()),
            Op::Sleep(Nanos::from_micros(row.sleep + 20 * (i % 5)).into()),
            Op::LoopEnd,
        ],
    };
    let task = |i: u32| TaskSpec {
        name: format!("task{i}"),
        process: i,
        program: ProgramId(i),
        stream: u64::from(i),
        ..one_task()
    };
    Workload {
        name: "run-sleep".to_owned(),
        tasks: (0..row.tasks).map(task).collect(),
        programs: (0..u64::from(row.tasks)).map(program).collect(),
        duration: Some(Nanos(row.milliseconds * 1_000_000)),
        ..Workload::default()
    }
}

/// A task that starts at once and belongs to what is measured.
fn one_task() -> TaskSpec {
    TaskSpec {
        name: String::new(),
        process: 0,
        attributes: TaskAttributes::default(),
        program: ProgramId(0),
        start: Nanos::ZERO,
        start_cpu: None,
        past: Past::New,
        template: false,
        target: true,
        stream: 0,
    }
}

fn config(row: Row) -> Outcome<SimulationConfig> {
    let kernel: KernelVersion = "7.2".parse()?;
    let [nodes, caches, cores, threads] = row.machine;
    let topology = Topology::uniform(nodes, caches, cores, threads)?;
    let scheduler = match row.scheduler {
        None => Scheduler::Kernel,
        Some(name) => {
            let bytes = schedlab_objects::scheduler(name).ok_or("no scheduler of that name")?;
            Scheduler::Ext(ExtScheduler::load(name, bytes, kernel, &topology, ExtOptions::default())?)
        }
    };
    let machine = MachineDescription { kernel, ..MachineDescription::generic(row.name, topology) };
    let mut config = SimulationConfig::new(machine, Arc::new(workload(row)));
    config.scheduler = scheduler;
    Ok(config)
}

/// One run, and the seconds of its event loop.
fn run(config: &SimulationConfig) -> Outcome<(SimulationResult, f64)> {
    let mut simulation = Simulation::new(config.clone())?;
    let start = Instant::now();
    let result = simulation.run(&mut NullSink)?;
    Ok((result, start.elapsed().as_secs_f64()))
}

/// Runs a row some times; ns a switch at best.
fn measure(row: Row, runs: u32) -> Outcome<f64> {
    let config = config(row)?;
    let (mut best, mut report) = (f64::MAX, None);
    for _ in 0..runs {
        let (result, wall) = run(&config)?;
        if let Some(exit) = result.scheduler_exit {
            return Err(format!("{}: the scheduler ended: {}", row.name, exit.message).into());
        }
        best = best.min(wall);
        report = Some(result.report);
    }
    let report = report.ok_or("no run")?;
    let switches = report.context_switches as f64;
    let ns = best * 1e9 / switches;
    println!(
        "{:10} {:7.2} million switches a second (wanted {}), {ns:6.1} ns and {:.2} events a switch; hash {}",
        row.name,
        1e3 / ns,
        row.wanted,
        report.events as f64 / switches,
        report.event_hash,
    );
    Ok(ns)
}

/// Independent runs of the first load on one thread and on two: how many times as much two get done.
fn threads() -> Outcome<f64> {
    let config = config(FIRST)?;
    let work = |count: u32| -> Outcome<f64> {
        let start = Instant::now();
        std::thread::scope(|scope| {
            let workers: Vec<_> =
                (0..count).map(|_| scope.spawn(|| run(&config).map_err(|e| e.to_string()))).collect();
            workers.into_iter().try_for_each(|worker| match worker.join() {
                Ok(done) => done.map(drop),
                Err(_) => Err("a worker panicked".to_owned()),
            })
        })?;
        Ok(start.elapsed().as_secs_f64())
    };
    let least =
        |count: u32| -> Outcome<f64> { (0..10).try_fold(f64::MAX, |best, _| Ok(best.min(work(count)?))) };
    Ok(2.0 * least(1)? / least(2)?)
}

/// Peak resident memory of this process so far, in MiB, where the system tells it.
fn peak_mib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? >> 10)
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|text| !text.starts_with("--")).collect();
    if let [name, rest @ ..] = arguments.as_slice() {
        let row = ROWS.into_iter().find(|row| row.name == name).ok_or("no row of that name")?;
        let milliseconds =
            rest.first().map_or(Ok(row.milliseconds), |text| text.parse().map(|s: u64| 1_000 * s))?;
        measure(Row { milliseconds, ..row }, if rest.is_empty() { 10 } else { 1 })?;
        println!("peak memory {} MiB", peak_mib().unwrap_or(0));
        return Ok(());
    }
    let mut ns = Vec::new();
    for row in ROWS {
        ns.push(measure(row, 10)?);
        if row.name == "large" {
            println!("           peak memory {} MiB (wanted at most 200)", peak_mib().unwrap_or(0));
        }
    }
    println!(
        "1,024 CPUs against 8, vtime: {:.2} times the cost of a switch (wanted at most 2)",
        ns[4] / ns[0]
    );
    println!(
        "1,024 CPUs against 8, fair:  {:.2} times the cost of a switch (wanted at most 2)",
        ns[5] / ns[2]
    );
    println!("two threads against one: {:.2} times as much (wanted 1.9)", threads()?);
    Ok(())
}
