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
use schedlab_report::fidelity::{Fidelity, LiveRange};
use schedlab_report::result::{FidelityRecord, TriageRecord};
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
    let baseline = Candidate::baseline();
    let request = RunRequest { candidate: &baseline, ..request };
    let (replayed, recorded) = machine.record(&request).map_err(explain)?;
    let triage = Triage::of(recording);
    // Of a replay that was cut nobody knows how long it would take.
    let whole = !bound.cut && !replayed.cut;
    let triage = if whole { triage.with_ideal(bound.makespan, replayed.makespan) } else { triage };
    let fidelity = if machine.pieces()[index].machine.topology == recording.machine.topology {
        Vec::from(&Fidelity::of(recording, &recorded, LiveRange::default()))
    } else {
        Vec::new()
    };
    Ok(Examined { bounds_requests: triage.bound.of_requests, triage: TriageRecord::from(&triage), fidelity })
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
        (_, Some(Setting::Weights(_))) => "weights",
        _ => "kernel knob",
    };
    PairClass { class: class.to_owned(), ratio_error: None }
}
