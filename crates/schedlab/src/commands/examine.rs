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
use schedlab_report::fidelity::measured::Source;
use schedlab_report::fidelity::{Fidelity, LiveRange, model_error};
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

/// What class of pair a candidate forms with the baseline, and how far off such predictions are from these sources; `None`
/// for a bound, which is no prediction. Of several settings the class with the largest error speaks for all.
pub fn pair_class(candidate: &Candidate, sources: &[Source]) -> Option<PairClass> {
    let classes: Vec<&str> = match candidate.scheduler {
        SchedulerChoice::Ideal => return None,
        SchedulerChoice::Object(_) => vec!["scheduler"],
        SchedulerChoice::Kernel => candidate.settings.iter().map(class_of).collect(),
    };
    let error_of = |class: &str| {
        let errors = sources.iter().map(|source| model_error::of_class(class, *source));
        errors.reduce(|(a, known), (b, too)| (a.or_worse(b), known && too))
    };
    let of = |class: &str| {
        let (error, checked) = error_of(class)?;
        Some(PairClass { class: class.to_owned(), checked, error })
    };
    classes.into_iter().filter_map(of).max_by(|a, b| a.error.share.total_cmp(&b.error.share))
}

/// The class of one setting, by the names of docs/fidelity.md.
fn class_of(setting: &Setting) -> &'static str {
    match setting {
        Setting::Policy(_) | Setting::RtPriority(_) => "policy",
        Setting::Slice(_) => "slice",
        Setting::Nice(_) => "nice",
        Setting::Weights(_) => "weights",
        Setting::Knob { .. } => "knob",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::Nanos;
    use schedlab_model::Policy;

    fn candidate(scheduler: SchedulerChoice, settings: Vec<Setting>) -> Candidate {
        Candidate { scheduler, settings, ..Candidate::baseline() }
    }

    #[test]
    fn a_pair_is_of_the_class_that_is_known_worst() {
        let slice = Setting::Slice(Nanos::from_millis(1));
        let nice = Setting::Nice(schedlab_model::Nice::new(5).expect("a nice value"));
        let of = |settings: Vec<Setting>, sources: &[Source]| {
            pair_class(&candidate(SchedulerChoice::Kernel, settings), sources)
        };
        let class = of(vec![slice.clone(), nice.clone()], &[Source::File]).expect("a class");
        assert_eq!((class.class.as_str(), class.checked), ("nice", true));
        let alone = of(vec![slice], &[Source::File]).expect("a class");
        assert!(alone.error.share < class.error.share);
        // Of a file and a recording the worse of both counts.
        let both = of(vec![nice], &[Source::Recording, Source::File]).expect("a class");
        assert_eq!(both.error, class.error);
        assert_eq!(of(Vec::new(), &[Source::File]), None);
    }

    #[test]
    fn schedulers_are_not_checked_yet_and_bounds_predict_nothing() {
        let object =
            candidate(SchedulerChoice::Object("vtime".to_owned()), vec![Setting::Policy(Policy::Batch)]);
        let class = pair_class(&object, &[Source::Recording]).expect("a class");
        assert!(class.class == "scheduler" && !class.checked && class.error.share > 0.0, "{class:?}");
        assert_eq!(pair_class(&candidate(SchedulerChoice::Ideal, Vec::new()), &[Source::File]), None);
    }
}
