//! `schedlab play`: a workload as real threads on this machine, measured like a simulated run.
//!
//! The player is schedlab-host's; the run is recorded by the same recorder as any command and its numbers are those of the
//! recording between the play's begin and its end. Not here: what a step means live ([`schedlab_host::player`]).

use super::{Context, common, pictures, record};
use crate::args::{OutputChoice, PlayArgs};
use crate::failure::Failure;
use crate::inputs::machines;
use crate::inputs::work::{self, Work};
use crate::output::{print_text, write_file};
use crate::progress;
use anyhow::anyhow;
use indicatif::ProgressBar;
use schedlab_control::candidates::parse_setting;
use schedlab_host::player::{Company, Ended, Error};
use schedlab_host::record::{Progress, RecordOptions, Status, Target, record_in_memory};
use schedlab_host::{guest, machine};
use schedlab_model::event::{Event, EventKind};
use schedlab_model::lever::{Candidate, Setting};
use schedlab_model::machine::MachineDescription;
use schedlab_model::metric::{Metric, RunMetrics, TaskMetrics};
use schedlab_model::outcome::{Obtained, RunOutcome, RunRequest};
use schedlab_model::recording::Recording;
use schedlab_model::workload::Workload;
use schedlab_model::{CpuId, Nanos, TaskId};
use schedlab_report::result::{self, CandidateRecord, RunRecord};
use schedlab_report::{MetricsCollector, text};
use schedlab_sim::replay;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Plays it as often as asked for.
pub fn run(args: &PlayArgs, context: Context) -> Result<(), Failure> {
    let Work::Workload(mut workload) = work::load(&args.work)? else {
        return Err(Failure::BadInput(anyhow!(
            "{} is a recording: its tasks are not programs that could run again. `schedlab simulate` replays it",
            args.work
        )));
    };
    let candidate = candidate(args, &mut workload)?;
    if args.dry_run {
        let (tasks, runs) = (workload.tasks.iter().filter(|task| !task.template).count(), args.runs);
        return print_text(&format!(
            "would play {}: {tasks} tasks as real threads on this machine, {runs} run(s)\n",
            args.work
        ));
    }
    let mut here = machines::this();
    if let Some(file) = &args.machine {
        here = machines::with_costs_of(here, file)?;
    }
    let interrupted = common::interrupt_flag();
    let (mut outcomes, mut notes) = (Vec::new(), Vec::new());
    for run in 0..args.runs {
        let player = Player { args, workload: &workload, here: &here, interrupted: &interrupted, context };
        let played = if args.bare { player.bare(run) } else { player.recorded(run) };
        let (outcome, said) = played?;
        outcomes.push(outcome);
        notes.extend(said);
        if interrupted.load(Ordering::Relaxed) {
            return Err(Failure::Interrupted);
        }
    }
    notes.dedup();
    let mut result = common::empty_result(&here);
    result.obtained = outcomes[0].obtained.into();
    result.works = vec![work_of(args, &workload, &outcomes)];
    result.notes = notes;
    result.candidates =
        vec![CandidateRecord::of(&candidate, outcomes.iter().map(|outcome| &outcome.metrics))];
    let request = |run: usize| RunRequest {
        candidate: &candidate,
        work: 0,
        seed: args.seed + run as u64,
        cost_seed: None,
    };
    let records = outcomes.iter().enumerate().map(|(run, outcome)| RunRecord::of(&request(run), outcome));
    result.runs = records.collect();
    result.next_commands = vec![match &args.record {
        Some(file) => format!("schedlab compare {}", file.display()),
        None => format!("schedlab simulate {} --machine this", args.work),
    }];
    let out =
        OutputChoice { json: args.json.clone(), parquet: args.parquet.clone(), ..OutputChoice::default() };
    common::write_tables(&result, &out)?;
    if args.json.as_deref().is_none_or(|path| path.as_os_str() != "-") {
        print_text(&text::render(&result, common::text_options()))?;
        if args.bare {
            print_text(&tasks_table(&outcomes[0].metrics))?;
        }
    }
    Ok(())
}

/// What tasks are told of themselves.
fn tasks_table(metrics: &RunMetrics) -> String {
    let mut table = text::Table::new(&["task", "cpu time", "voluntary switches", "involuntary"]);
    table.right = vec![1, 2, 3];
    for task in &metrics.tasks {
        let (name, cpu) = (task.name.clone(), task.cpu_time.to_string());
        let switches = [task.voluntary_switches, task.involuntary_switches].map(|count| count.to_string());
        table.row([vec![name, cpu], switches.to_vec()].concat());
    }
    table.render(common::text_options())
}

/// The kernel as it is, with the settings asked for, which the target's tasks get.
fn candidate(args: &PlayArgs, workload: &mut Workload) -> Result<Candidate, Failure> {
    let mut settings = Vec::new();
    for text in &args.set {
        let fail = |problem: String| Failure::BadInput(anyhow!("--set {text}: {problem}"));
        match parse_setting(text).map_err(fail)? {
            Setting::Knob { name, .. } => {
                return Err(fail(format!(
                    "play changes nothing of the machine, and {name} is no attribute of a task: policy, nice, slice or \
                     rt_priority"
                )));
            }
            Setting::Weights(_) => {
                return Err(fail(
                    "a kernel's weights cannot be changed; run cfs or vtime with --weights".to_owned(),
                ));
            }
            setting => settings.push(setting),
        }
    }
    schedlab_sim::apply_to_targets(workload, &settings).map_err(Failure::input)?;
    if let Some(nice) = workload.nice_values().find(|nice| !nice.is_of_kernels()) {
        let nice = nice.get();
        return Err(Failure::BadInput(anyhow!(
            "a task of nice {nice} cannot be played: kernels take -20 to 19; simulate it with --weights"
        )));
    }
    let scheduler = machine::running_scheduler();
    let sets: String = args.set.iter().map(|text| format!(":{text}")).collect();
    Ok(Candidate { name: format!("{scheduler}{sets}"), settings, ..Candidate::baseline() })
}

fn work_of(args: &PlayArgs, workload: &Workload, outcomes: &[RunOutcome]) -> result::Work {
    let makespan = outcomes[0].metrics.get(Metric::Makespan).unwrap_or_default();
    result::Work {
        name: args.work.clone(),
        origin: "workload".to_owned(),
        duration_ns: workload.duration.map_or(makespan as u64, |duration| duration.0),
        target_tasks: workload.tasks.iter().filter(|task| task.target).count() as u32,
        dropped_events: 0,
    }
}

/// An outcome with what a reader must know.
type Played = Result<(RunOutcome, Vec<String>), Failure>;

/// One piece of work, to be played.
struct Player<'a> {
    args: &'a PlayArgs,
    workload: &'a Workload,
    here: &'a MachineDescription,
    interrupted: &'a Arc<AtomicBool>,
    context: Context,
}

impl Player<'_> {
    fn play(&self, run: u32) -> Play<'_> {
        let (workload, here, interrupted) = (self.workload, self.here, self.interrupted);
        let (seed, duration) = (self.args.seed + u64::from(run), self.args.duration);
        Play {
            workload,
            seed,
            duration,
            vruntime: self.args.vruntime,
            here,
            interrupted,
            what: &self.args.work,
            context: self.context,
        }
    }

    fn outcome(&self, metrics: RunMetrics, cut: bool) -> RunOutcome {
        let obtained = if guest::is_inside() { Obtained::TriedInVm } else { Obtained::MeasuredHere };
        RunOutcome {
            obtained,
            metrics,
            scheduler_exit: None,
            failed_forks: None,
            simulator: None,
            // The workload's own duration is no cut.
            cut: cut && self.workload.duration.is_none(),
        }
    }

    /// Only what tasks are told of themselves.
    fn bare(&self, run: u32) -> Played {
        let ended = self.play(run).bare(&|_| {})?;
        let mut metrics = RunMetrics::default();
        if !ended.cut {
            metrics.values.insert(Metric::Makespan, ended.wall.0 as f64);
        }
        metrics.tasks = ended
            .tasks
            .iter()
            .enumerate()
            .map(|(index, task)| TaskMetrics {
                task: TaskId(index as u32 + 1),
                name: self.workload.tasks[task.row].name.clone(),
                target: self.workload.tasks[task.row].target,
                weight: self.workload.tasks[task.row].attributes.weight(),
                cpu_time: task.cpu,
                voluntary_switches: task.switches.0,
                involuntary_switches: task.switches.1,
                ..TaskMetrics::default()
            })
            .collect();
        Ok((self.outcome(metrics, ended.cut), ended.notes))
    }

    /// Beneath the recorder.
    fn recorded(&self, run: u32) -> Played {
        let Recorded { recording, cut, notes } = self.play(run).recorded()?;
        if run == 0 {
            self.keep(&recording)?;
        }
        Ok((self.outcome(MetricsCollector::of_recording(&recording), cut), notes))
    }

    fn keep(&self, recording: &Recording) -> Result<(), Failure> {
        if let Some(path) = &self.args.record {
            let bytes = schedlab_model::recording::codec::encode(recording).map_err(Failure::input)?;
            write_file(path, &bytes)?;
        }
        if let Some(path) = &self.args.perfetto {
            write_file(path, &pictures::trace_of(recording))?;
        }
        match &self.args.html {
            Some(path) => write_file(path, pictures::page_of(&self.args.work, recording).as_bytes()),
            None => Ok(()),
        }
    }
}

/// One play of a workload on this machine.
pub(super) struct Play<'a> {
    /// What is played.
    pub workload: &'a Workload,
    /// Seed of what is random in it.
    pub seed: u64,
    /// Where it is cut.
    pub duration: Option<Nanos>,
    /// Whether the virtual runtime of its tasks is recorded.
    pub vruntime: bool,
    /// This machine.
    pub here: &'a MachineDescription,
    /// Ends it.
    pub interrupted: &'a Arc<AtomicBool>,
    /// Its name, for progress.
    pub what: &'a str,
    /// Of the command.
    pub context: Context,
}

/// A play that was recorded.
pub(super) struct Recorded {
    /// From its begin to its end.
    pub recording: Recording,
    /// Whether it was ended before its tasks had.
    pub cut: bool,
    /// What a reader must know.
    pub notes: Vec<String>,
}

impl Play<'_> {
    fn gather(&self) -> Result<Company, Failure> {
        Company::gather(self.workload, self.seed, self.duration).map_err(failure)
    }

    /// Without the recorder. `look` may look at it again and again while it runs.
    pub fn bare(&self, look: &dyn Fn(&Company)) -> Result<Ended, Failure> {
        let company = self.gather()?;
        let bar = progress::spinner(self.context.quiet, format!("playing {}", self.what));
        company.begin();
        company.wait(&|| {
            look(&company);
            self.interrupted.load(Ordering::Relaxed)
        });
        bar.finish_and_clear();
        company.end().map_err(failure)
    }

    /// Beneath the recorder.
    pub fn recorded(&self) -> Result<Recorded, Failure> {
        let company = self.gather()?;
        let what = format!("the workload {}", self.workload.name);
        let options = RecordOptions {
            machine: Some(self.here.clone()),
            vruntime: self.vruntime,
            ..RecordOptions::new(Target::Processes(what, company.processes()))
        };
        let bar = progress::spinner(self.context.quiet, format!("playing {}", self.what));
        let mut watch = Watch { company, begun: false, bar, interrupted: self.interrupted };
        let recorded = record_in_memory(&options, &mut watch);
        watch.bar.finish_and_clear();
        let ended = watch.company.end();
        let (recording, summary) = recorded.map_err(record::failure)?;
        let ended = ended.map_err(failure)?;
        let mut notes = ended.notes.clone();
        let dropped: u64 = summary.dropped_per_cpu.iter().sum();
        if dropped > 0 {
            notes.push(format!("{dropped} events were lost: numbers are too low"));
        }
        let recording = self.trimmed(recording, summary.started_ns, &ended);
        Ok(Recorded { recording, cut: ended.cut, notes })
    }

    /// The recording from the play's begin to its end, with the workload's names, targets and jobs.
    fn trimmed(&self, mut recording: Recording, started_ns: u64, ended: &Ended) -> Recording {
        let rows: BTreeMap<i32, usize> = ended.tasks.iter().map(|task| (task.tid, task.row)).collect();
        for task in &mut recording.tasks {
            let spec = rows.get(&task.pid).map(|row| &self.workload.tasks[*row]);
            task.target = spec.is_some_and(|spec| spec.target);
            if let Some(spec) = spec {
                task.name.clone_from(&spec.name);
            }
        }
        let begin = Nanos(ended.origin_ns.saturating_sub(started_ns));
        let last_exit = recording.events.iter().rev().find_map(|event| match event.kind {
            EventKind::Exit { task } if recording.task(task).target => Some(event.time),
            _ => None,
        });
        let end = match last_exit.filter(|_| !ended.cut) {
            // The switch away from the last task belongs to it.
            Some(time) => time + Nanos::from_micros(100),
            None => begin + ended.wall,
        };
        let mut cut = replay::cut(&recording, begin, end);
        let ids: BTreeMap<i32, TaskId> =
            cut.tasks.iter().enumerate().map(|(id, task)| (task.pid, TaskId(id as u32))).collect();
        let cpus = cut.machine.topology.cpu_count() as u32;
        for job in ended.jobs.iter().filter(|job| job.time <= cut.duration) {
            let Some(&task) = ended.tasks.get(job.task).and_then(|task| ids.get(&task.tid)) else { continue };
            let kind = EventKind::Job { task, released: job.released, deadline: job.deadline };
            cut.events.push(Event { time: job.time, cpu: CpuId(job.cpu.min(cpus.saturating_sub(1))), kind });
        }
        cut.events.sort_by_key(|event| event.time);
        cut
    }
}

/// Lets the play begin when the recorder is attached, and the recording end with the play.
struct Watch<'a> {
    company: Company,
    begun: bool,
    bar: ProgressBar,
    interrupted: &'a AtomicBool,
}

impl Progress for Watch<'_> {
    fn update(&mut self, status: &Status) {
        if !std::mem::replace(&mut self.begun, true) {
            self.company.begin();
        }
        self.bar.set_message(format!("playing: {} events", status.events));
    }

    fn stop(&self) -> bool {
        self.company.is_over() || self.interrupted.load(Ordering::Relaxed)
    }
}

/// What the kernel refuses is told apart from what the workload asks for.
fn failure(error: Error) -> Failure {
    // Its text already holds the cause's.
    let text = anyhow!("{error}");
    match error {
        Error::System { .. } | Error::Task(_) => Failure::Machine(text),
        Error::Stalled(_) => Failure::AnswerIsNo(text.to_string()),
        Error::NotPlayable { .. } => Failure::BadInput(text),
    }
}
