//! The simulated runs of cfs-weights-2021: a workload under a weight table with a seed, and what is kept of it.
//!
//! All of them on the paper's machine, or on one CPU of it. What is run and what it says: the other files here.

use crate::args::MachineChoice;
use crate::args::reproduce::ReproduceArgs;
use crate::failure::Failure;
use crate::inputs::machines;
use crate::kept::Kept;
use crate::progress;
use anyhow::anyhow;
use indicatif::ProgressBar;
use schedlab_model::event::{Event, EventKind, EventSink};
use schedlab_model::lever::Setting;
use schedlab_model::machine::MachineDescription;
use schedlab_model::topology::Topology;
use schedlab_model::weights::WeightTable;
use schedlab_model::workload::Workload;
use schedlab_model::{Nanos, TaskId};
use schedlab_sim::{Simulation, SimulationConfig};
use serde::Serialize;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// The tables of the paper, by how many weights they have: 8, 20, Linux's 40, 60.
pub const TABLES: [&str; 4] = ["group:5", "group:2", LINUX, "refine:60"];
/// What the others are compared with.
pub const LINUX: &str = "linux";

/// A table by name, one of ours.
pub fn table(name: &str) -> WeightTable {
    WeightTable::parse(name).expect("the names of tables in this file are well-formed")
}

/// Where runs are made.
pub struct Lab<'a> {
    four: MachineDescription,
    one: MachineDescription,
    /// The seeds of every run.
    pub seeds: Vec<u64>,
    /// A first look: shorter runs.
    pub quick: bool,
    jobs: usize,
    interrupted: &'a AtomicBool,
    kept: &'a Kept,
    bar: ProgressBar,
}

/// How many CPUs of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cpus {
    /// One, so that there is one sequence of picks.
    One,
    /// All four.
    All,
}

/// One run to be made.
#[derive(Clone, Debug)]
pub struct Job {
    /// What runs.
    pub workload: Arc<Workload>,
    /// Where.
    pub cpus: Cpus,
    /// Name of the table.
    pub table: &'static str,
    /// Seed.
    pub seed: u64,
    /// Keep the sequence of picks.
    pub picks: bool,
}

/// What is kept of a task.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OfTask {
    /// Name.
    pub name: String,
    /// CPU time.
    pub cpu_s: f64,
    /// Its vruntime at the end.
    pub vruntime_s: f64,
    /// When it ended, if it did.
    pub end_s: Option<f64>,
}

/// What is kept of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Ran {
    /// Its tasks, in the order of the file.
    pub tasks: Vec<OfTask>,
    /// Which task was picked when, in order: 0 is idle.
    #[serde(skip)]
    pub picks: Vec<(Nanos, u32)>,
    /// CPU time of each task at the quarters of the run, in s.
    pub quarters: Vec<Vec<f64>>,
    /// Hash over every event.
    pub hash: String,
}

impl Ran {
    /// When the last task of a program ended: that of its name, or its threads, `NAME.0` and on.
    pub fn end_of(&self, program: &str) -> Option<f64> {
        let of_program = |task: &&OfTask| task.name.split('.').next() == Some(program);
        let ends = self.tasks.iter().filter(of_program).map(|task| task.end_s);
        ends.collect::<Option<Vec<f64>>>()?.into_iter().reduce(f64::max)
    }
}

impl<'a> Lab<'a> {
    /// On the paper's machine.
    pub fn new(
        args: &ReproduceArgs,
        interrupted: &'a AtomicBool,
        kept: &'a Kept,
        quiet: bool,
    ) -> Result<Lab<'a>, Failure> {
        let choice = MachineChoice { machine: Some("paper-weights".to_owned()), cpus: None, kernel: None };
        let four = machines::resolve(&choice, None)?;
        let one = MachineDescription { topology: Topology::flat(1).map_err(Failure::input)?, ..four.clone() };
        let available = || std::thread::available_parallelism().map_or(1, usize::from);
        let (seed, quick) = (args.seed, args.quick);
        let jobs = args.jobs.map_or_else(available, |jobs| jobs as usize);
        let count = if quick { 4 } else { 20 };
        let seeds = (0..count).map(|index| seed.wrapping_add(index)).collect();
        Ok(Lab {
            four,
            one,
            seeds,
            quick,
            jobs,
            interrupted,
            kept,
            bar: progress::bar(quiet, 0, "simulating"),
        })
    }

    /// What a reader must know of the machine.
    pub fn describe(&self) -> String {
        let MachineDescription { name, kernel, hz, topology, .. } = &self.four;
        let (cpus, seeds) = (topology.cpu_count(), self.seeds.len());
        format!(
            "CFS of Linux {kernel}, simulated; machine {name} ({cpus} CPUs, or one of them), HZ {hz}; {seeds} seeds"
        )
    }

    /// A job for every table and every seed: `[table][seed]`.
    pub fn every(&self, tables: &[&'static str], cpus: Cpus, workload: &Arc<Workload>) -> Vec<Job> {
        let job = |table, seed| Job { workload: Arc::clone(workload), cpus, table, seed, picks: false };
        let of_table = |&table: &&'static str| self.seeds.iter().map(move |&seed| job(table, seed));
        tables.iter().flat_map(of_table).collect()
    }

    /// Makes all runs on worker threads; results do not depend on how many there are.
    pub fn run(&self, jobs: &[Job]) -> Result<Vec<Ran>, Failure> {
        self.bar.inc_length(jobs.len() as u64);
        let next = AtomicUsize::new(0);
        let slots: Vec<Mutex<Option<Result<Ran, Failure>>>> = jobs.iter().map(|_| Mutex::new(None)).collect();
        let work = || {
            while !self.interrupted.load(Ordering::Relaxed) {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(job) = jobs.get(index) else { break };
                let ran = self.run_one(job).and_then(|ran| self.keep(job, ran));
                *slots[index].lock().expect("no worker panics while it stores") = Some(ran);
                self.bar.inc(1);
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..self.jobs.min(jobs.len()) {
                scope.spawn(work);
            }
            work();
        });
        if self.interrupted.load(Ordering::Relaxed) {
            self.bar.finish_and_clear();
            return Err(Failure::Interrupted);
        }
        let taken = |slot: Mutex<Option<_>>| slot.into_inner().expect("all workers are done");
        slots.into_iter().map(|slot| taken(slot).expect("every job was taken")).collect()
    }

    /// Writes what came of a run as a line; without its picks, of which there are many.
    fn keep(&self, job: &Job, ran: Ran) -> Result<Ran, Failure> {
        // One that was interrupted is not over.
        if !self.interrupted.load(Ordering::Relaxed) {
            let (table, seed, cpus) = (job.table, job.seed, job.cpus);
            let work = &job.workload.name;
            self.kept.add(
                &serde_json::json!({"work": work, "cpus": cpus, "table": table, "seed": seed, "run": ran}),
            )?;
        }
        Ok(ran)
    }

    fn run_one(&self, job: &Job) -> Result<Ran, Failure> {
        let machine = if job.cpus == Cpus::One { &self.one } else { &self.four };
        let length = job.workload.duration;
        let config = SimulationConfig {
            settings: vec![Setting::Weights(table(job.table))],
            seed: job.seed,
            begins_live: true,
            ..SimulationConfig::new(machine.clone(), Arc::clone(&job.workload))
        };
        let mut watch = Watch::new(self.interrupted, job.picks, length, machine.topology.cpu_count());
        let failed = |error| Failure::BadInput(anyhow!("{}: {error}", job.table));
        let result = Simulation::new(config).and_then(|mut run| run.run(&mut watch)).map_err(failed)?;
        watch.pass_quarters(result.report.simulated);
        let cpu = |index: usize| result.accounts.get(index).map_or(0.0, |row| seconds(row.cpu_time));
        let vruntime = |index: usize| {
            let found = result.accounts.get(index).and_then(|row| row.vruntime);
            found.map_or(f64::NAN, |ns| ns as f64 / 1e9)
        };
        let row = |(index, info): (usize, &schedlab_model::recording::TaskInfo)| OfTask {
            name: info.name.clone(),
            cpu_s: cpu(index),
            vruntime_s: vruntime(index),
            end_s: watch.ends.get(index).copied().flatten().map(seconds),
        };
        let tasks = result.tasks.iter().enumerate().skip(1).map(row).collect();
        Ok(Ran { tasks, picks: watch.picks, quarters: watch.quarters, hash: result.report.event_hash })
    }

    /// Takes the bar away.
    pub fn done(&self) {
        self.bar.finish_and_clear();
    }
}

/// Nanoseconds as seconds.
pub fn seconds(time: Nanos) -> f64 {
    time.0 as f64 / 1e9
}

/// Keeps what is wanted of a run's events; ends it when `interrupted` is raised.
struct Watch<'a> {
    interrupted: &'a AtomicBool,
    keep_picks: bool,
    picks: Vec<(Nanos, u32)>,
    ends: Vec<Option<Nanos>>,
    /// CPU time of each task so far, and since when each CPU has its task.
    cpu: Vec<Nanos>,
    running: Vec<(TaskId, Nanos)>,
    quarter: Option<Nanos>,
    quarters: Vec<Vec<f64>>,
}

impl<'a> Watch<'a> {
    fn new(interrupted: &'a AtomicBool, keep_picks: bool, length: Option<Nanos>, cpus: usize) -> Watch<'a> {
        Watch {
            interrupted,
            keep_picks,
            picks: Vec::new(),
            ends: Vec::new(),
            cpu: Vec::new(),
            running: vec![(TaskId::IDLE, Nanos::ZERO); cpus],
            quarter: length.map(|length| Nanos(length.0 / 4)),
            quarters: Vec::new(),
        }
    }

    /// Takes the CPU times of the quarters that are over at `now`.
    fn pass_quarters(&mut self, now: Nanos) {
        while let Some(quarter) = self.quarter {
            let at = Nanos(quarter.0 * (self.quarters.len() as u64 + 1));
            if self.quarters.len() == 4 || now < at {
                break;
            }
            let mut cpu = self.cpu.clone();
            for (task, since) in self.running.iter().filter(|(task, _)| !task.is_idle()) {
                *row(&mut cpu, *task) += at.saturating_sub(*since);
            }
            self.quarters.push(cpu.into_iter().skip(1).map(seconds).collect());
        }
    }
}

/// A task's row of a table that grows.
fn row<T: Clone + Default>(table: &mut Vec<T>, task: TaskId) -> &mut T {
    if table.len() <= task.index() {
        table.resize(task.index() + 1, T::default());
    }
    &mut table[task.index()]
}

impl EventSink for Watch<'_> {
    fn wants_detail(&self) -> bool {
        false
    }

    fn has_enough(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    fn event(&mut self, event: &Event) {
        self.pass_quarters(event.time);
        match event.kind {
            EventKind::Switch { next, .. } => {
                let (task, since) =
                    std::mem::replace(&mut self.running[event.cpu.index()], (next, event.time));
                if !task.is_idle() {
                    *row(&mut self.cpu, task) += event.time.saturating_sub(since);
                }
                if self.keep_picks {
                    self.picks.push((event.time, next.0));
                }
            }
            EventKind::Exit { task } => *row(&mut self.ends, task) = Some(event.time),
            _ => {}
        }
    }
}
