//! The live arm: every part under every scheduler on this machine, one after the other, with undo.
//!
//! interbench is played beneath the recorder and its samples taken from the recording as from a simulated run; of wakeup
//! the threads tell themselves, as no scheduler knows that a recorder is there to measure; hackbench is the program of that
//! name, and what loads a disk or the memory are processes ([`loads`]). A scheduler is held as by `schedlab run`: the
//! kernel's own is back when the part is over, at Ctrl-C, and if this process is killed.

use super::interbench::Frames;
use super::loads::{self, Loads};
use super::plan::{FLAGS, Plan, is_program};
use super::samples::{Start, Wakes};
use super::{Context, Row, Tell};
use crate::args::bench::{Bench, BenchArgs};
use crate::commands::common::cannot_be_run;
use crate::commands::live::under;
use crate::commands::play::{Play, Recorded};
use crate::failure::Failure;
use crate::inputs::machines;
use crate::inputs::work::{self, Work};
use anyhow::anyhow;
use schedlab_host::player::Company;
use schedlab_host::{guarded, guest};
use schedlab_model::event::EventSink;
use schedlab_model::machine::MachineDescription;
use schedlab_model::outcome::Obtained;
use schedlab_model::workload::Workload;
use schedlab_model::{Nanos, TaskId};
use schedlab_report::MetricsCollector;
use schedlab_report::bench::Line;
use std::cell::RefCell;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Every part under every scheduler, in order; those that were made before `interrupted` was raised.
pub fn rows(
    args: &BenchArgs,
    context: Context,
    interrupted: &Arc<AtomicBool>,
    tell: Tell<'_>,
) -> Result<Vec<Row>, Failure> {
    let plan = Plan::new(args)?;
    let here = machines::this();
    // What is not known is said before anything runs.
    plan.candidates(&args.scheduler, here.kernel)?;
    plan.parts.iter().try_for_each(|(_, work)| work::load(work).map(drop))?;
    let mut rows = Vec::new();
    for (part, work) in &plan.parts {
        for scheduler in &args.scheduler {
            if interrupted.load(Ordering::Relaxed) {
                return Ok(rows);
            }
            let live = Live { args, plan: &plan, scheduler, context, here: &here, interrupted, tell };
            let row = live.row(part, work)?;
            tell(Line::Run(row.clone()))?;
            rows.push(row);
        }
    }
    Ok(rows)
}

struct Live<'a> {
    args: &'a BenchArgs,
    plan: &'a Plan,
    scheduler: &'a str,
    context: Context,
    here: &'a MachineDescription,
    interrupted: &'a Arc<AtomicBool>,
    tell: Tell<'a>,
}

impl Live<'_> {
    fn row(&self, part: &str, work: &str) -> Result<Row, Failure> {
        let run = || match self.args.bench {
            _ if is_program(self.args) => self.program(part),
            _ => self.part(part, work),
        };
        let (mut row, ended) = match self.scheduler {
            "fair" => (run()?, None),
            other => under(other, &self.plan.knobs, self.interrupted, run)?,
        };
        row.ended = ended;
        Ok(row)
    }

    /// One without numbers.
    fn empty(&self, part: &str) -> Row {
        super::row(self.scheduler, part, self.obtained())
    }

    fn obtained(&self) -> Obtained {
        if guest::is_inside() { Obtained::TriedInVm } else { Obtained::MeasuredHere }
    }

    /// The workload, with the real loads of a disk or memory beside it.
    fn part(&self, part: &str, work: &str) -> Result<Row, Failure> {
        let (real, beside) = loads::of_part(part);
        let Some(beside) = beside.filter(|_| !self.args.model) else { return self.play(part, work) };
        let mut loads = match Loads::start(real)? {
            Ok(loads) => loads,
            Err(why) => {
                return Ok(Row { left_out: true, notes: vec![why], ..self.empty(part) });
            }
        };
        // Of a parameter that is given twice the last counts.
        let mut row = self.play(part, &format!("{work},load={beside}"))?;
        loads.check(&mut row);
        Ok(row)
    }

    /// The workload as real threads.
    fn play(&self, part: &str, work: &str) -> Result<Row, Failure> {
        let Work::Workload(workload) = work::load(work)? else {
            unreachable!("the benchmarks are workloads");
        };
        let play = Play {
            workload: &workload,
            seed: self.args.seed,
            duration: self.args.duration,
            vruntime: false,
            here: self.here,
            interrupted: self.interrupted,
            what: work,
            context: self.context,
        };
        if self.args.bench == Bench::Wakeup {
            return self.wakes(part, &play);
        }
        let Recorded { recording, cut, notes } = play.recorded()?;
        let mut row = self.empty(part);
        row.duration_ns = recording.duration.0;
        row.cut = self.is_cut(cut, &workload);
        row.notes = notes;
        let never = AtomicBool::new(false);
        let feed = |sink: &mut dyn EventSink| {
            for (id, info) in recording.tasks.iter().enumerate() {
                sink.task(TaskId(id as u32), info);
            }
            recording.events.iter().for_each(|event| sink.event(event));
        };
        if let Some((task, _)) = part.split_once('/') {
            let mut frames = Frames::of(task, &never);
            feed(&mut frames);
            (row.frames, row.samples_ns) = (Some(frames.counts), frames.latencies_ns);
        } else if self.args.bench == Bench::Hackbench {
            let mut start = Start::new(&never);
            feed(&mut start);
            row.duration_ns = start.time_since(row.duration_ns);
        }
        let tasks = MetricsCollector::of_recording(&recording).tasks;
        let load = tasks.iter().filter(|task| !task.target);
        let all: u64 = tasks.iter().map(|task| task.cpu_time.0).sum();
        let load: u64 = load.map(|task| task.cpu_time.0).sum();
        row.load_cpu_percent = Some(100.0 * load as f64 / all.max(1) as f64);
        Ok(row)
    }

    /// What lasts as long as it is told to is no cut, unless somebody ended it before.
    fn is_cut(&self, ended: bool, workload: &Workload) -> bool {
        ended && (workload.duration.is_none() || self.interrupted.load(Ordering::Relaxed))
    }

    /// The wake-up benchmark by its own threads' clocks. What they have told is passed on while it runs.
    fn wakes(&self, part: &str, play: &Play<'_>) -> Result<Row, Failure> {
        let never = AtomicBool::new(false);
        let so_far =
            RefCell::new(SoFar { wakes: named(play.workload, &never), known: 0, told_at: Instant::now() });
        let mut ended = play.bare(&|company| {
            if let Some(more) = so_far.borrow_mut().more(company, self.empty(part)) {
                // What cannot be written is said when the run is over.
                drop((self.tell)(Line::Samples(more)));
            }
        })?;
        let mut row = self.empty(part);
        (row.duration_ns, row.notes) = (ended.wall.0, ended.notes);
        row.cut = self.is_cut(ended.cut, play.workload);
        let mut wakes = Wakes::new(&never);
        for (id, task) in ended.tasks.iter().enumerate() {
            wakes.name(TaskId(id as u32), &play.workload.tasks[task.row].name);
        }
        ended.jobs.sort_by_key(|job| job.time);
        for job in &ended.jobs {
            wakes.job(TaskId(job.task as u32), job.time, job.released, job.deadline);
        }
        (row.samples_ns, row.waker_error_ns) = (wakes.latencies_ns, wakes.waker_error_ns);
        Ok(row)
    }

    /// The program hackbench, by its own words.
    fn program(&self, part: &str) -> Result<Row, Failure> {
        let mut command = Command::new("hackbench");
        for (name, flag) in FLAGS {
            command.arg(flag).arg(self.plan.value(name));
        }
        let began = Instant::now();
        let output = guarded::output(&mut command, self.interrupted).map_err(|error| {
            let instead = "or play its model with --model";
            Failure::Machine(anyhow!(
                "{} {instead}",
                cannot_be_run("hackbench", &error, "install it (Debian: apt install rt-tests),")
            ))
        })?;
        let wall = Nanos(began.elapsed().as_nanos() as u64);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let said = text.lines().find_map(|line| line.strip_prefix("Time: ")?.trim().parse::<f64>().ok());
        let mut row = self.empty(part);
        match said {
            Some(seconds) => row.duration_ns = (seconds * 1e9) as u64,
            None if self.interrupted.load(Ordering::Relaxed) => (row.duration_ns, row.cut) = (wall.0, true),
            None => {
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                let said = said.trim();
                return Err(Failure::Machine(anyhow!("hackbench failed ({}): {said}", output.status)));
            }
        }
        Ok(row)
    }
}

/// How often samples of a run that is under way are passed on.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// Samples of a run that is under way.
struct SoFar<'a> {
    wakes: Wakes<'a>,
    /// Jobs whose ends are known.
    known: usize,
    told_at: Instant,
}

/// Tasks by their rows in the workload.
fn named<'a>(workload: &Workload, never: &'a AtomicBool) -> Wakes<'a> {
    let mut wakes = Wakes::new(never);
    for (row, task) in workload.tasks.iter().enumerate() {
        wakes.name(TaskId(row as u32), &task.name);
    }
    wakes
}

impl SoFar<'_> {
    /// A row with the samples that came since it was last asked for, if it is time for one.
    fn more(&mut self, company: &Company, mut row: Row) -> Option<Row> {
        if self.told_at.elapsed() < TELL_EVERY {
            return None;
        }
        self.told_at = Instant::now();
        let (jobs, known) = company.jobs_since(self.known);
        self.known = known;
        let tasks = company.tasks();
        for job in &jobs {
            // Each task tells its own in order, and no broadcast comes before the answer to the one before.
            if let Some(task) = tasks.get(job.task) {
                self.wakes.job(TaskId(task.row as u32), job.time, job.released, job.deadline);
            }
            row.duration_ns = row.duration_ns.max(job.time.0);
        }
        row.samples_ns = std::mem::take(&mut self.wakes.latencies_ns);
        row.waker_error_ns = std::mem::take(&mut self.wakes.waker_error_ns);
        (!row.samples_ns.is_empty()).then_some(row)
    }
}
