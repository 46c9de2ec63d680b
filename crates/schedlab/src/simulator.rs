//! The simulated kernel as a [`Machine`]: runs requests on worker threads; results do not depend on how
//! many there are.
//!
//! Holds the clock that the simulator must not have (`wall_s`).

use crate::inputs::schedulers;
use crate::setup::{Facts, SetupFile};
use anyhow::{Result, anyhow};
use schedlab_bpf::image::ObjectImage;
use schedlab_model::event::{Event, EventSink};
use schedlab_model::lever::{Candidate, SchedulerChoice, Setting};
use schedlab_model::machine::{KernelVersion, MachineDescription};
use schedlab_model::outcome::{Machine, MachineError, Obtained, RunOutcome, RunRequest};
use schedlab_model::recording::Recording;
use schedlab_model::time::Nanos;
use schedlab_model::workload::Workload;
use schedlab_model::workload::change::{Change, TimedChange};
use schedlab_report::MetricsCollector;
use schedlab_sim::ext::{ExtOptions, ExtScheduler, SetUp, kernel_btf};
use schedlab_sim::{Attachable, Scheduler, Simulation, SimulationConfig, SimulationResult};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// One piece of work on its machine.
#[derive(Clone, Debug)]
pub struct Piece {
    /// Name, for tables.
    pub name: String,
    /// What runs.
    pub workload: Arc<Workload>,
    /// On what.
    pub machine: MachineDescription,
}

/// Simulated machines for pieces of work.
pub struct SimulatedMachine {
    pieces: Vec<Piece>,
    schedulers: BTreeMap<(String, usize), ExtScheduler>,
    /// What the changes of each piece of work attach, once it was looked up.
    attachable: Option<Vec<Vec<Attachable>>>,
    restart: bool,
    watchdog: bool,
    jobs: usize,
    duration_limit: Option<Nanos>,
    interrupted: Arc<AtomicBool>,
    setups: Vec<SetupFile>,
    /// Set-up files that an object took, by path.
    taken: BTreeSet<PathBuf>,
    notes: Vec<String>,
}

impl SimulatedMachine {
    /// For these pieces of work.
    pub fn new(
        pieces: Vec<Piece>,
        jobs: Option<u32>,
        duration_limit: Option<Nanos>,
        interrupted: Arc<AtomicBool>,
    ) -> SimulatedMachine {
        let available = || std::thread::available_parallelism().map_or(1, usize::from);
        let jobs = jobs.map_or_else(available, |jobs| jobs as usize);
        SimulatedMachine {
            pieces,
            schedulers: BTreeMap::new(),
            attachable: None,
            restart: false,
            watchdog: true,
            jobs,
            duration_limit,
            interrupted,
            setups: Vec::new(),
            taken: BTreeSet::new(),
            notes: Vec::new(),
        }
    }

    /// Prepares objects as these set-up files say; others as the file beside them says, if there is one.
    pub fn with_setups(mut self, setups: Vec<SetupFile>) -> SimulatedMachine {
        self.setups = setups;
        self
    }

    /// Attaches schedulers anew that end and ask for it.
    pub fn with_restart(mut self, restart: bool) -> SimulatedMachine {
        self.restart = restart;
        self
    }

    /// Without, a task may wait for as long as it takes under a scheduler of sched_ext.
    pub fn with_watchdog(mut self, watchdog: bool) -> SimulatedMachine {
        self.watchdog = watchdog;
        self
    }

    /// Worker threads.
    pub fn jobs(&self) -> usize {
        self.jobs
    }

    /// What a reader must know of the objects that were prepared.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// How the schedulers change during a piece of work, if they do.
    pub fn switches(&self, work: usize) -> Option<String> {
        let switch = |change: &TimedChange| match &change.change {
            Change::Scheduler(Some(name)) => Some(format!("{name} at {}", change.time)),
            Change::Scheduler(None) => Some(format!("none at {}", change.time)),
            _ => None,
        };
        let all: Vec<String> = self.pieces[work].workload.changes.iter().filter_map(switch).collect();
        (!all.is_empty()).then(|| format!("schedulers change during the run: {}", all.join(", ")))
    }

    /// Whether a prepared object has a knob of this name.
    pub fn has_knob(&self, choice: &SchedulerChoice, name: &str) -> bool {
        let SchedulerChoice::Object(object) = choice else { return false };
        let prepared = self.schedulers.get(&(object.clone(), 0));
        prepared.is_some_and(|scheduler| scheduler.knobs().iter().any(|knob| knob.name == name))
    }

    /// The pieces of work.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Prepares every candidate.
    ///
    /// # Errors
    /// What cannot be loaded, or a set-up file that was given and that no object takes.
    pub fn prepare_all(&mut self, candidates: &[Candidate]) -> Result<()> {
        candidates.iter().try_for_each(|candidate| self.prepare(candidate))?;
        let unused = self.setups.iter().find(|setup| !self.taken.contains(setup.path()));
        unused.map_or(Ok(()), |setup| Err(anyhow!(setup.why_unused())))
    }

    /// Loads and compiles what a candidate needs, for every piece of work, and what the work's own changes attach.
    fn prepare(&mut self, candidate: &Candidate) -> Result<()> {
        if self.attachable.is_none() {
            let all: Result<_> = (0..self.pieces.len()).map(|index| self.load_attachable(index)).collect();
            self.attachable = Some(all?);
        }
        if let SchedulerChoice::Object(name) = &candidate.scheduler {
            for index in 0..self.pieces.len() {
                self.load(name, index)?;
            }
        }
        self.notes.dedup();
        Ok(())
    }

    /// The schedulers that the changes of a piece of work attach, each as `NAME[:KNOB=VALUE]...`.
    fn load_attachable(&mut self, index: usize) -> Result<Vec<Attachable>> {
        let piece = self.pieces[index].clone();
        let mut all: Vec<Attachable> = Vec::new();
        for change in &piece.workload.changes {
            let Change::Scheduler(Some(text)) = &change.change else { continue };
            if all.iter().any(|known| known.name == *text) {
                continue;
            }
            let list = std::slice::from_ref(text);
            let found = crate::commands::common::candidates(list, &[], piece.machine.kernel);
            let candidate = found.map_err(|failure| anyhow!("{failure}"))?.swap_remove(0);
            let SchedulerChoice::Object(object) = &candidate.scheduler else {
                return Err(anyhow!("'{text}' cannot be attached: give a scheduler from BPF, or none"));
            };
            let knob = |setting: &Setting| match setting {
                Setting::Knob { name, value } => Ok((name.clone(), *value)),
                _ => Err(anyhow!(
                    "'{text}': only variables of the scheduler can be set, not attributes of tasks"
                )),
            };
            let knobs = candidate.settings.iter().map(knob).collect::<Result<_>>()?;
            all.push(Attachable { name: text.clone(), scheduler: self.load(object, index)?, knobs });
        }
        Ok(all)
    }

    /// An object for a piece of work.
    fn load(&mut self, name: &str, index: usize) -> Result<ExtScheduler> {
        let key = (name.to_owned(), index);
        if let Some(known) = self.schedulers.get(&key) {
            return Ok(known.clone());
        }
        let setup = self.setup_for(name)?;
        self.taken.extend(setup.iter().map(|setup| setup.path().to_owned()));
        let piece = &self.pieces[index];
        let kernel = piece.machine.kernel;
        let mut image = schedulers::load(name, kernel)?;
        let topology = &piece.machine.topology;
        let facts = Facts::new(topology);
        let (steps, note) = match &setup {
            Some(setup) => {
                let applied = setup.apply(&mut image, &facts, &kernel_btf(kernel))?;
                let without = without(&applied.left_out, kernel);
                (applied.steps, Some(format!("{name} is set up by {}{without}", setup.path().display())))
            }
            None if schedulers::library().contains(&name) => (None, None),
            None => from_library(&mut image, &facts, kernel),
        };
        let signs = crate::inputs::objects::user_half(&image);
        let note = match note {
            Some(note) => Some(note),
            None if !signs.is_empty() => Some(format!(
                "{name} runs as a bare object although it looks like having a user half ({}): write a set-up \
                 file (docs/set-up-files.md)",
                signs.join("; ")
            )),
            None => None,
        };
        let options = ExtOptions { no_watchdog: !self.watchdog, ..ExtOptions::default() };
        let scheduler = ExtScheduler::with_set_up(image, kernel, topology, options, steps)?;
        self.schedulers.insert(key, scheduler.clone());
        self.notes.extend(note);
        Ok(scheduler)
    }

    /// The set-up file for an object: one that was given and is for it, or the one beside it.
    fn setup_for(&self, name: &str) -> Result<Option<SetupFile>> {
        if schedulers::library().contains(&name) {
            return Ok(None);
        }
        if let Some(given) = self.setups.iter().find(|setup| setup.is_for(name)) {
            return Ok(Some(given.clone()));
        }
        SetupFile::beside(name).map(|path| SetupFile::read(&path)).transpose()
    }

    fn configuration(&self, request: &RunRequest<'_>) -> Result<SimulationConfig, MachineError> {
        let piece = &self.pieces[request.work];
        let scheduler = match &request.candidate.scheduler {
            SchedulerChoice::Kernel => Scheduler::Kernel,
            SchedulerChoice::Ideal => Scheduler::Ideal,
            SchedulerChoice::Object(name) => {
                let prepared = self.schedulers.get(&(name.clone(), request.work));
                Scheduler::Ext(prepared.cloned().ok_or_else(|| MachineError::Unusable {
                    candidate: request.candidate.name.clone(),
                    reason: "its object was not loaded".to_owned(),
                })?)
            }
        };
        Ok(SimulationConfig {
            scheduler,
            settings: request.candidate.settings.clone(),
            seed: request.seed,
            cost_seed: request.cost_seed,
            duration_limit: self.duration_limit,
            attachable: self.attachable.as_ref().map_or_else(Vec::new, |all| all[request.work].clone()),
            restart: self.restart,
            begins_live: true,
            ..SimulationConfig::new(piece.machine.clone(), Arc::clone(&piece.workload))
        })
    }

    /// Makes one run and gives its events to `sink` too.
    pub fn run_with<S: EventSink>(
        &self,
        request: &RunRequest<'_>,
        sink: &mut S,
    ) -> Result<(RunOutcome, SimulationResult), MachineError> {
        let piece = &self.pieces[request.work];
        let fail = |error: schedlab_sim::SimError| match error {
            error @ (schedlab_sim::SimError::Setting { .. } | schedlab_sim::SimError::Scheduler { .. }) => {
                MachineError::Unusable {
                    candidate: request.candidate.name.clone(),
                    reason: error.to_string(),
                }
            }
            error => MachineError::Work(error.to_string()),
        };
        let mut simulation = Simulation::new(self.configuration(request)?).map_err(fail)?;
        let mut metrics = MetricsCollector::new(&[], &piece.machine.topology);
        let start = Instant::now();
        let mut result = simulation.run(&mut (&mut metrics, sink)).map_err(fail)?;
        result.report.wall_s = start.elapsed().as_secs_f64();
        result.report.peak_memory_bytes = peak_memory_bytes();
        let outcome = RunOutcome {
            obtained: Obtained::Predicted,
            metrics: metrics.finish(result.report.simulated),
            scheduler_exit: result.scheduler_exit.clone(),
            failed_forks: result.failed_forks.clone(),
            simulator: Some(result.report.clone()),
            cut: result.cut,
        };
        Ok((outcome, result))
    }

    /// Makes one run without looking at its events: nothing but the simulator is timed.
    pub fn run_bare(&self, request: &RunRequest<'_>) -> Result<SimulationResult, MachineError> {
        let failed = |error: schedlab_sim::SimError| MachineError::Work(error.to_string());
        let mut simulation = Simulation::new(self.configuration(request)?).map_err(failed)?;
        let start = Instant::now();
        let mut result = simulation.run(&mut schedlab_model::event::NullSink).map_err(failed)?;
        result.report.wall_s = start.elapsed().as_secs_f64();
        result.report.peak_memory_bytes = peak_memory_bytes();
        Ok(result)
    }

    /// Makes one run and keeps it as a recording, the same type a live recorder makes.
    pub fn record(&self, request: &RunRequest<'_>) -> Result<(SimulationResult, Recording), MachineError> {
        let mut events: Vec<Event> = Vec::new();
        let (_, result) = self.run_with(request, &mut events)?;
        let machine = &self.pieces[request.work].machine;
        let recording = schedlab_sim::record::recording(&result, events, machine, &request.candidate.name);
        Ok((result, recording))
    }
}

impl Machine for SimulatedMachine {
    fn obtained(&self) -> Obtained {
        Obtained::Predicted
    }

    fn work_count(&self) -> usize {
        self.pieces.len()
    }

    fn run_all(&mut self, requests: &[RunRequest<'_>]) -> Vec<Result<RunOutcome, MachineError>> {
        self.run_each(requests, &|_, _| {})
    }
}

impl SimulatedMachine {
    /// As [`Machine::run_all`], and tells of each run as soon as it is over: its request's number, and what came of it.
    pub fn run_each(
        &self,
        requests: &[RunRequest<'_>],
        over: &(dyn Fn(usize, &Result<RunOutcome, MachineError>) + Sync),
    ) -> Vec<Result<RunOutcome, MachineError>> {
        let next = AtomicUsize::new(0);
        let outcomes: Vec<Mutex<Option<Result<RunOutcome, MachineError>>>> =
            requests.iter().map(|_| Mutex::new(None)).collect();
        let work = || {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(request) = requests.get(index) else { break };
                let outcome = if self.interrupted.load(Ordering::Relaxed) {
                    Err(MachineError::Interrupted)
                } else {
                    self.run_with(request, &mut NoSink).map(|(outcome, _)| outcome)
                };
                over(index, &outcome);
                *outcomes[index].lock().expect("no worker panics while it stores") = Some(outcome);
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..self.jobs.min(requests.len()) {
                scope.spawn(work);
            }
            work();
        });
        let taken = |slot: Mutex<Option<_>>| slot.into_inner().expect("all workers are done");
        outcomes.into_iter().map(|slot| taken(slot).expect("every request was taken")).collect()
    }
}

/// What the library's set-up for an object makes of it, and what a reader must know of that. It is taken only if
/// all of it fits: versions of a scheduler differ.
fn from_library(
    image: &mut ObjectImage,
    facts: &Facts,
    kernel: KernelVersion,
) -> (Option<Arc<dyn SetUp>>, Option<String>) {
    let object = image.name.clone();
    let mut misfit = None;
    for setup in SetupFile::all_of_library(&ops_name(image).unwrap_or_default()) {
        let mut prepared = image.clone();
        match setup.apply(&mut prepared, facts, &kernel_btf(kernel)) {
            Ok(applied) => {
                *image = prepared;
                let (path, without) = (setup.path().display(), without(&applied.left_out, kernel));
                let own = format!("{object} is set up by the library's own {path}{without}");
                return (applied.steps, Some(own));
            }
            // That of the newest version is told.
            Err(error) => misfit = misfit.or(Some(error)),
        }
    }
    let note = misfit.map(|error| {
        format!("{object} runs as a bare object: the library's set-up does not fit it: {error}")
    });
    (None, note)
}

/// The end of a note for flags that the kernel lacks.
fn without(left_out: &[String], kernel: KernelVersion) -> String {
    match left_out {
        [] => String::new(),
        flags => format!(", without what Linux {kernel} does not have: {}", flags.join(", ")),
    }
}

/// The name in an object's `struct sched_ext_ops`, without the version that some append: `lavd_1.0.17` is `lavd`.
fn ops_name(image: &ObjectImage) -> Option<String> {
    let ops = image.struct_ops.iter().find(|ops| ops.type_name == "sched_ext_ops")?;
    let (_, bytes) = ops.scalars.iter().find(|(name, _)| name == "name")?;
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let name = String::from_utf8_lossy(&bytes[..end]).into_owned();
    Some(name.split(['_', '-']).next().unwrap_or_default().to_owned())
}

/// Wants nothing, not even detail.
struct NoSink;

impl EventSink for NoSink {
    fn wants_events(&self) -> bool {
        false
    }

    fn wants_detail(&self) -> bool {
        false
    }

    fn event(&mut self, _event: &Event) {}
}

/// Largest memory of this process so far (`VmHWM`), 0 if unknown.
fn peak_memory_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// The error of a machine as an error of the command.
pub fn explain(error: MachineError) -> anyhow::Error {
    anyhow!("{error}")
}
