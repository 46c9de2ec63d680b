//! What is known of a recording before anything is compared: where its time went, what an ideal scheduler
//! could gain, and how well the simulator repeats it.

use crate::failure::Failure;
use crate::simulator::{SimulatedMachine, explain};
use schedlab_model::lever::{Candidate, SchedulerChoice, Setting};
use schedlab_model::metric::Metric;
use schedlab_model::outcome::RunRequest;
use schedlab_model::recording::Recording;
use schedlab_report::Objective;
use schedlab_report::compare::PairClass;
use schedlab_report::fidelity::{Fidelity, FidelityMetric, LiveRange};
use schedlab_report::result::{FidelityRecord, TimeKind, TimePart, TriageRecord};
use schedlab_report::triage::Triage;

/// What is known of a recording before anything is compared.
pub struct Examined {
    /// Where its time went and what could be gained.
    pub triage: TriageRecord,
    /// Whether the gain is of requests; else of the makespan.
    pub bounds_requests: bool,
    /// How well a replay repeats it; empty on another machine than the recorded one.
    pub fidelity: Vec<FidelityRecord>,
}

impl Examined {
    /// The most that can be gained of an objective; `None` if the bound is about something else.
    pub fn gain_max_of(&self, objective: &Objective) -> Option<f64> {
        let fits = match objective {
            Objective::Metric(Metric::Makespan) => !self.bounds_requests,
            Objective::Metric(Metric::RequestMean) => self.bounds_requests,
            _ => false,
        };
        self.triage.gain_max.filter(|_| fits)
    }
}

/// Triage with its bound, and fidelity if the replay runs on the machine that was recorded.
pub fn examine(
    machine: &SimulatedMachine,
    index: usize,
    recording: &Recording,
    seed: u64,
) -> Result<Examined, Failure> {
    let ideal =
        Candidate { name: "ideal".to_owned(), scheduler: SchedulerChoice::Ideal, ..Candidate::baseline() };
    let request = RunRequest { candidate: &ideal, work: index, seed, cost_seed: None };
    let bound = machine.run_bare(&request).map_err(explain)?;
    let triage = Triage::of(recording).with_ideal(bound.makespan);
    let piece = &machine.pieces()[index];
    let fidelity = if piece.machine.topology == recording.machine.topology {
        let baseline = Candidate::baseline();
        let request = RunRequest { candidate: &baseline, ..request };
        let (_, replayed) = machine.record(&request).map_err(explain)?;
        fidelity_records(&Fidelity::of(recording, &replayed, LiveRange::default()))
    } else {
        Vec::new()
    };
    Ok(Examined { bounds_requests: triage.bound.of_requests, triage: triage_record(&triage), fidelity })
}

fn triage_record(triage: &Triage) -> TriageRecord {
    let spent = &triage.target;
    let part = |name: String, time: schedlab_model::Nanos, kind| TimePart { name, ns: time.0, kind };
    let mut parts = vec![
        part("running".to_owned(), spent.running, TimeKind::Running),
        part("interrupted".to_owned(), spent.interrupted, TimeKind::Running),
        part("waiting for a CPU".to_owned(), spent.run_delay(), TimeKind::Waiting),
    ];
    let asleep = |(cause, time): (&schedlab_report::triage::SleepCause, &schedlab_model::Nanos)| {
        part(format!("asleep: {}", cause.name()), *time, TimeKind::Asleep)
    };
    parts.extend(spent.asleep.iter().map(asleep));
    parts.retain(|part| part.ns > 0);
    let gain_max = Some(triage.bound.gain_percent_max() / 100.0);
    TriageRecord { headline: triage.sentence(), parts, gain_max }
}

fn fidelity_records(fidelity: &Fidelity) -> Vec<FidelityRecord> {
    let judged = fidelity.rows.iter().filter_map(|row| Some((row, row.within?)));
    judged
        .map(|(row, within_tolerance)| FidelityRecord {
            metric: row.metric.name().to_owned(),
            unit: unit_of(row.metric).to_owned(),
            recorded: row.recorded,
            replayed: row.simulated,
            within_tolerance,
        })
        .collect()
}

fn unit_of(metric: FidelityMetric) -> &'static str {
    match metric {
        FidelityMetric::RunDelayMean | FidelityMetric::RunDelayP99 | FidelityMetric::Makespan => "ns",
        FidelityMetric::ShareDifference => "points",
        FidelityMetric::Switches | FidelityMetric::Wakeups | FidelityMetric::Migrations => "1",
    }
}

/// What class of pair a candidate forms with the baseline. No error of ratios has been measured yet for any
/// class, and the result says so by leaving it out.
pub fn pair_class(candidate: &Candidate) -> PairClass {
    let class = match (&candidate.scheduler, candidate.settings.first()) {
        (SchedulerChoice::Object(_), _) => "sched_ext object",
        (SchedulerChoice::Ideal, _) => "bound",
        (_, Some(Setting::Policy(_) | Setting::RtPriority(_))) => "policy",
        (_, Some(Setting::Slice(_))) => "slice",
        (_, Some(Setting::Nice(_))) => "nice",
        _ => "kernel knob",
    };
    PairClass { class: class.to_owned(), ratio_error: None }
}
