//! The result file: everything a comparison or a single run yields, simulated and live alike.
//!
//! These types *are* the versioned JSON schema (docs/schema/result.schema.json is generated from them);
//! text and page are rendered from them, so a saved result can be shown again. Events are not in here:
//! pictures come from [`crate::picture`], traces from [`crate::perfetto`].

use crate::compare::Comparison;
use schedlab_model::lever::{Candidate, SchedulerChoice, Setting, Usability};
use schedlab_model::machine::MachineDescription;
use schedlab_model::metric::{Histogram, RunMetrics};
use schedlab_model::outcome::{Obtained, RunOutcome, RunRequest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the schema. It rises when a field changes its meaning or goes; new fields do not raise it.
pub const SCHEMA_VERSION: u32 = 1;

/// A whole result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResultFile {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Version of the program that wrote it.
    pub program_version: String,
    /// The command line that made it.
    pub command: Vec<String>,
    /// When, in seconds since the epoch; 0 if unknown.
    pub created_unix_s: u64,
    /// How it was obtained.
    pub obtained: ObtainedRecord,
    /// On what machine.
    pub environment: Environment,
    /// The recordings, blocks or workloads.
    pub works: Vec<Work>,
    /// Whether scheduling can help at all.
    pub triage: Option<TriageRecord>,
    /// How well replay meets the recording.
    pub fidelity: Vec<FidelityRecord>,
    /// The candidates, with the distributions of all their runs together.
    pub candidates: Vec<CandidateRecord>,
    /// What the comparison says; `None` for a single run.
    pub comparison: Option<Comparison>,
    /// Every run.
    pub runs: Vec<RunRecord>,
    /// Of the simulator, over all runs, if it was used.
    pub simulator: Option<SimulatorRecord>,
    /// What the reader should know: drops, unattributed waits, schedulers that ended.
    pub notes: Vec<String>,
    /// What to type next.
    pub next_commands: Vec<String>,
}

/// How a result was obtained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ObtainedRecord {
    /// In the simulated kernel.
    #[default]
    Predicted,
    /// In a virtual machine with a real kernel.
    TriedInVm,
    /// On this machine.
    MeasuredHere,
}

impl ObtainedRecord {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            ObtainedRecord::Predicted => "predicted by the simulated kernel",
            ObtainedRecord::TriedInVm => "tried in a virtual machine with a real kernel",
            ObtainedRecord::MeasuredHere => "measured on this machine",
        }
    }
}

impl From<Obtained> for ObtainedRecord {
    fn from(obtained: Obtained) -> ObtainedRecord {
        match obtained {
            Obtained::Predicted => ObtainedRecord::Predicted,
            Obtained::TriedInVm => ObtainedRecord::TriedInVm,
            Obtained::MeasuredHere => ObtainedRecord::MeasuredHere,
        }
    }
}

/// The machine, real or described.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Environment {
    /// Its name.
    pub machine: String,
    /// What it is.
    pub description: String,
    /// Kernel whose scheduler ran or was modelled.
    pub kernel: String,
    /// Ticks a second.
    pub hz: u32,
    /// Preemption model.
    pub preemption: String,
    /// CPUs.
    pub cpus: u32,
    /// Physical cores.
    pub cores: u32,
    /// Last-level caches.
    pub caches: u32,
    /// NUMA nodes.
    pub nodes: u32,
    /// Modelled costs that were measured on the machine.
    pub costs_measured: u32,
    /// Modelled costs in all.
    pub costs: u32,
}

impl Environment {
    /// Of a described machine.
    pub fn of(machine: &MachineDescription) -> Environment {
        let used = |sets: &[schedlab_model::cpu_set::CpuSet]| {
            sets.iter().filter(|set| !set.is_empty()).count() as u32
        };
        let online = machine.topology.all();
        let mut cores: Vec<u32> = online.iter().map(|cpu| machine.topology.cpu(cpu).core).collect();
        cores.sort_unstable();
        cores.dedup();
        let measured = machine.costs.named().filter(|(_, cost)| cost.is_measured());
        Environment {
            machine: machine.name.clone(),
            description: machine.description.clone(),
            kernel: machine.kernel.to_string(),
            hz: machine.hz,
            preemption: format!("{:?}", machine.preemption).to_lowercase(),
            cpus: online.len() as u32,
            cores: cores.len() as u32,
            caches: used(machine.topology.llcs()),
            nodes: used(machine.topology.nodes()),
            costs_measured: measured.count() as u32,
            costs: machine.costs.named().count() as u32,
        }
    }
}

/// One recording, block or workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Work {
    /// File, command line or workload name.
    pub name: String,
    /// `recorded here`, `recording`, `workload`, `block 2 of 3`.
    pub origin: String,
    /// Length, ns; 0 if unknown.
    pub duration_ns: u64,
    /// Tasks of the target.
    pub target_tasks: u32,
    /// Events lost while recording.
    pub dropped_events: u64,
}

/// Where the target's time went and what any scheduler could gain.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TriageRecord {
    /// One sentence: "run delay is 3 of your 80 ms: at most 4 % to gain".
    pub headline: String,
    /// Where the time of all target tasks went, in order.
    pub parts: Vec<TimePart>,
    /// Share of the time of a request or of the makespan that an ideal scheduler would save.
    pub gain_max: Option<f64>,
}

/// A part of the target's time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TimePart {
    /// `running`, `waiting for a CPU`, `asleep: pipe`, ...
    pub name: String,
    /// How long, ns, summed over tasks.
    pub ns: u64,
    /// What kind of time.
    pub kind: TimeKind,
}

/// Kind of a part of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TimeKind {
    /// On a CPU.
    Running,
    /// Runnable, but waiting: what a scheduler can change.
    Waiting,
    /// Asleep.
    #[default]
    Asleep,
}

/// One metric of replay beside the recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FidelityRecord {
    /// Key of the metric.
    pub metric: String,
    /// Its unit.
    pub unit: String,
    /// As recorded.
    pub recorded: f64,
    /// As replayed under a model of the scheduler that was recorded.
    pub replayed: f64,
    /// Whether that is within the tolerance stated in docs/fidelity.md.
    pub within_tolerance: bool,
}

/// Whether a candidate can be applied on the machine at hand.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UsableHere {
    /// Yes.
    Yes,
    /// No: what is missing, with the remedy.
    Needs(String),
    /// Not looked at.
    #[default]
    Unknown,
}

impl From<&Usability> for UsableHere {
    fn from(usability: &Usability) -> UsableHere {
        match usability {
            Usability::UsableHere => UsableHere::Yes,
            Usability::Needs(what) => UsableHere::Needs(what.clone()),
            Usability::Unknown => UsableHere::Unknown,
        }
    }
}

/// A candidate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CandidateRecord {
    /// Short and unique.
    pub name: String,
    /// Who schedules: `kernel`, an object, `ideal`.
    pub scheduler: String,
    /// With what settings, as text.
    pub settings: Vec<String>,
    /// Whether it can be applied here now.
    pub usable_here: UsableHere,
    /// Distributions over all its runs: `wakeup_latency`, `run_delay`, `slice_length`, `request`.
    pub histograms: BTreeMap<String, HistogramRecord>,
}

impl CandidateRecord {
    /// Of a candidate and its runs (those with perturbed costs left out).
    pub fn of<'a>(candidate: &Candidate, runs: impl IntoIterator<Item = &'a RunMetrics>) -> CandidateRecord {
        let mut pooled: BTreeMap<&str, Histogram> = BTreeMap::new();
        for run in runs {
            for (name, histogram) in [
                ("wakeup_latency", &run.wakeup_latency),
                ("run_delay", &run.run_delay),
                ("slice_length", &run.slice_length),
                ("request", &run.request),
            ] {
                pooled.entry(name).or_default().merge(histogram);
            }
        }
        let full = pooled.into_iter().filter(|(_, histogram)| histogram.count() > 0);
        CandidateRecord {
            name: candidate.name.clone(),
            scheduler: match &candidate.scheduler {
                SchedulerChoice::Kernel => "kernel".to_owned(),
                SchedulerChoice::Object(name) => name.clone(),
                SchedulerChoice::Ideal => "ideal".to_owned(),
            },
            settings: candidate.settings.iter().map(setting_text).collect(),
            usable_here: UsableHere::from(&candidate.usability),
            histograms: full.map(|(name, histogram)| (name.to_owned(), (&histogram).into())).collect(),
        }
    }
}

fn setting_text(setting: &Setting) -> String {
    match setting {
        Setting::Knob { name, value } => format!("{name}={value}"),
        Setting::Policy(policy) => format!("policy={}", format!("{policy:?}").to_lowercase()),
        Setting::Nice(nice) => format!("nice={}", nice.get()),
        Setting::Slice(slice) => format!("slice={slice}"),
        Setting::RtPriority(priority) => format!("rt_priority={priority}"),
        Setting::Weights(table) => format!("weights={}", table.name()),
    }
}

/// A log-linear histogram of times, buckets at most 1/32 wide.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HistogramRecord {
    /// Number of values.
    pub count: u64,
    /// Mean, ns.
    pub mean_ns: u64,
    /// Smallest, ns.
    pub min_ns: u64,
    /// Largest, ns.
    pub max_ns: u64,
    /// `p50`, `p90`, `p99`, `p99.9`, ns.
    pub percentiles_ns: BTreeMap<String, u64>,
    /// Non-empty buckets: lowest value, first value above, count.
    pub buckets: Vec<(u64, u64, u64)>,
}

impl From<&Histogram> for HistogramRecord {
    fn from(histogram: &Histogram) -> HistogramRecord {
        let named = [("p50", 5_000), ("p90", 9_000), ("p99", 9_900), ("p99.9", 9_990)];
        let percentile = |(name, permyriad): (&str, u32)| {
            histogram.percentile(permyriad).map(|value| (name.to_owned(), value.0))
        };
        HistogramRecord {
            count: histogram.count(),
            mean_ns: histogram.mean().map_or(0, |mean| mean.0),
            min_ns: histogram.min().map_or(0, |min| min.0),
            max_ns: histogram.max().map_or(0, |max| max.0),
            percentiles_ns: named.into_iter().filter_map(percentile).collect(),
            buckets: histogram.buckets().map(|(low, high, count)| (low.0, high.0, count)).collect(),
        }
    }
}

/// One run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunRecord {
    /// Name of the candidate.
    pub candidate: String,
    /// Index into `works`.
    pub work: u32,
    /// Seed.
    pub seed: u64,
    /// Seed of perturbed costs, if they were.
    pub cost_seed: Option<u64>,
    /// Metrics by key, in their units (see `schedlab_model::metric`); absent where the work has none.
    pub values: BTreeMap<String, f64>,
    /// One row for each task; empty for runs with perturbed costs.
    pub tasks: Vec<TaskRecord>,
    /// Why the scheduler ended early, if it did.
    pub scheduler_exit: Option<ExitRecord>,
    /// Of the simulator, if it was one.
    pub simulator: Option<SimulatorRecord>,
    /// Whether it was cut before its work was done.
    pub cut: bool,
}

impl RunRecord {
    /// Of what was asked of a machine and what it answered.
    pub fn of(request: &RunRequest<'_>, outcome: &RunOutcome) -> RunRecord {
        let metrics = &outcome.metrics;
        let mut values: BTreeMap<String, f64> =
            metrics.values.iter().map(|(metric, value)| (metric.key().to_owned(), *value)).collect();
        values.extend(metrics.custom.clone());
        let with_tasks = request.cost_seed.is_none();
        RunRecord {
            candidate: request.candidate.name.clone(),
            work: request.work as u32,
            seed: request.seed,
            cost_seed: request.cost_seed,
            values,
            tasks: metrics.tasks.iter().filter(|_| with_tasks).map(TaskRecord::from).collect(),
            scheduler_exit: outcome.scheduler_exit.as_ref().map(|exit| ExitRecord {
                kind: exit.kind,
                reason: exit.reason.clone(),
                message: exit.message.clone(),
                time_ns: exit.time.0,
            }),
            simulator: outcome.simulator.as_ref().map(SimulatorRecord::from),
            cut: outcome.cut,
        }
    }
}

/// One task of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskRecord {
    /// Its number in the run.
    pub task: u32,
    /// Its name.
    pub name: String,
    /// Whether it belongs to the target.
    pub target: bool,
    /// Weight.
    pub weight: u32,
    /// CPU time.
    pub cpu_time_ns: u64,
    /// Runnable but waiting.
    pub run_delay_ns: u64,
    /// Asleep.
    pub sleep_ns: u64,
    /// Longest wait while runnable.
    pub wait_max_ns: u64,
    /// Switches away while still runnable.
    pub involuntary_switches: u64,
    /// Switches away to sleep.
    pub voluntary_switches: u64,
    /// Moves between CPUs.
    pub migrations: u64,
    /// 99th percentile of its wake-up latency.
    pub wakeup_latency_p99_ns: Option<u64>,
    /// Jobs done in time.
    pub deadlines_met: u64,
    /// Jobs done late.
    pub deadlines_missed: u64,
}

impl From<&schedlab_model::metric::TaskMetrics> for TaskRecord {
    fn from(task: &schedlab_model::metric::TaskMetrics) -> TaskRecord {
        TaskRecord {
            task: task.task.0,
            name: task.name.clone(),
            target: task.target,
            weight: task.weight,
            cpu_time_ns: task.cpu_time.0,
            run_delay_ns: task.run_delay.0,
            sleep_ns: task.sleep.0,
            wait_max_ns: task.wait_max.0,
            involuntary_switches: task.involuntary_switches,
            voluntary_switches: task.voluntary_switches,
            migrations: task.migrations,
            wakeup_latency_p99_ns: task.wakeup_latency.percentile(9_900).map(|value| value.0),
            deadlines_met: task.deadlines_met,
            deadlines_missed: task.deadlines_missed,
        }
    }
}

/// A scheduler that ended before its time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExitRecord {
    /// `enum scx_exit_kind`.
    pub kind: u32,
    /// In the kernel's words.
    pub reason: String,
    /// What happened.
    pub message: String,
    /// When, ns since the start of the run.
    pub time_ns: u64,
}

/// What a simulation says of itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SimulatorRecord {
    /// Switches, to and from idle included.
    pub context_switches: u64,
    /// Events handled.
    pub events: u64,
    /// Time of the event loop alone, s.
    pub wall_s: f64,
    /// Running hash over every event, hexadecimal; equal inputs and seed give equal hashes.
    pub event_hash: String,
    /// Largest memory of the process, if known.
    pub peak_memory_bytes: u64,
    /// Simulated time, ns.
    pub simulated_ns: u64,
    /// BPF instructions executed.
    pub bpf_instructions: u64,
}

impl From<&schedlab_model::outcome::SimulatorReport> for SimulatorRecord {
    fn from(report: &schedlab_model::outcome::SimulatorReport) -> SimulatorRecord {
        SimulatorRecord {
            context_switches: report.context_switches,
            events: report.events,
            wall_s: report.wall_s,
            event_hash: report.event_hash.clone(),
            peak_memory_bytes: report.peak_memory_bytes,
            simulated_ns: report.simulated.0,
            bpf_instructions: report.bpf_instructions,
        }
    }
}
