//! A whole result made from toy runs: what the commands will assemble from real ones.

use super::toy::{Made, Order, Toy};
use schedlab_model::event::EventSink;
use schedlab_model::lever::{Candidate, Requirement, SchedulerChoice, Setting, Usability};
use schedlab_model::machine::MachineDescription;
use schedlab_model::outcome::{Obtained, RunOutcome, RunRequest, SimulatorReport};
use schedlab_model::time::Nanos;
use schedlab_report::compare::{ComparisonInput, GainBound, PairClass, Sample, Settings, compare};
use schedlab_report::fidelity::measured::Source;
use schedlab_report::fidelity::model_error;
use schedlab_report::result::{
    CandidateRecord, Environment, FidelityRecord, ResultFile, RunRecord, SCHEMA_VERSION, SimulatorRecord,
    TimeKind, TimePart, TriageRecord, Work,
};
use schedlab_report::{Guard, MetricsCollector, Objective};
use std::collections::BTreeMap;

const SEEDS: u64 = 5;
const WORKS: usize = 2;

/// The toys behind the candidates.
fn toys() -> Vec<(Candidate, Toy)> {
    let needs = "a kernel with sched_ext: boot 6.12 or newer with CONFIG_SCHED_CLASS_EXT".to_owned();
    let object = |name: &str| Candidate {
        name: name.to_owned(),
        scheduler: SchedulerChoice::Object(name.to_owned()),
        requirements: vec![Requirement::SchedExt],
        usability: Usability::Needs(needs.clone()),
        ..Candidate::baseline()
    };
    let slice = |name: &str, slice: Nanos| Candidate {
        name: name.to_owned(),
        settings: vec![Setting::Slice(slice)],
        ..Candidate::baseline()
    };
    let fair = Toy { order: Order::Fifo, slice: Nanos::from_millis(3), ..Toy::default() };
    let tiny = Nanos::from_micros(100);
    vec![
        (Candidate::baseline(), fair),
        (slice("fair:slice=0.1ms", tiny), Toy { slice: tiny, ..fair }),
        (slice("fair:slice=3ms", Nanos::from_millis(3)), fair),
        (object("vtime"), Toy { order: Order::Vtime, slice: Nanos::from_millis(1), ..fair }),
        (object("fifo"), Toy { slice: Nanos::from_millis(20), ..fair }),
        (object("fifo:slice=1ms"), Toy { slice: Nanos::from_millis(1), ..fair }),
    ]
}

fn outcome(made: &Made) -> RunOutcome {
    let mut collector = MetricsCollector::new(&made.tasks, &made.topology);
    made.events.iter().for_each(|event| collector.event(event));
    RunOutcome {
        obtained: Obtained::Predicted,
        metrics: collector.finish(made.length),
        scheduler_exit: None,
        failed_forks: None,
        simulator: Some(SimulatorReport {
            context_switches: 1_000,
            events: made.events.len() as u64,
            event_hash: "00c0ffee".to_owned(),
            simulated: made.length,
            ..SimulatorReport::default()
        }),
        cut: false,
    }
}

/// The result, and one run of each candidate for pictures.
pub fn result() -> (ResultFile, Vec<(String, Made)>) {
    let toys = toys();
    let candidates: Vec<Candidate> = toys.iter().map(|(candidate, _)| candidate.clone()).collect();
    let mut runs = Vec::new();
    let mut pictures = Vec::new();
    for (index, (candidate, toy)) in toys.iter().enumerate() {
        for work in 0..WORKS {
            for seed in 0..SEEDS {
                let own = seed + 100 * index as u64;
                let made = Toy { seed: 1 + own, periodic: 3 + work as u32, ..*toy }.make();
                let request = RunRequest { candidate, work, seed, cost_seed: None };
                runs.push((index, request, outcome(&made)));
                if work == 0 && seed == 0 {
                    pictures.push((candidate.name.clone(), made));
                }
            }
        }
    }
    let guards: Vec<Guard> = vec!["throughput>=-3%".parse().expect("a guard")];
    let samples: Vec<Sample<'_>> =
        runs.iter().map(|(index, request, outcome)| Sample::of(*index, request, outcome)).collect();
    let (error, checked) = model_error::of_class("scheduler", Source::File);
    let class = PairClass { class: "scheduler".to_owned(), checked, error };
    let comparison = compare(&ComparisonInput {
        perturbed_machines: 0,
        candidates: &candidates,
        baseline: 0,
        samples: &samples,
        objective: &Objective::default(),
        guards: &guards,
        settings: Settings::default(),
        bound: Some(GainBound { gain_max: 0.31 }),
        pair_classes: &BTreeMap::from([("vtime".to_owned(), class)]),
        failures: &BTreeMap::new(),
    })
    .expect("runs to compare");
    let of_candidate = |index: usize| {
        let own = runs.iter().filter(move |run| run.0 == index);
        own.map(|run| &run.2.metrics)
    };
    let topology = pictures[0].1.topology.clone();
    let result = ResultFile {
        schema_version: SCHEMA_VERSION,
        program_version: "0.1.0".to_owned(),
        command: ["schedlab", "compare", "mix <1> & \"2\""].map(str::to_owned).to_vec(),
        created_unix_s: 1_795_000_000,
        environment: Environment::of(&MachineDescription::generic("laptop", topology)),
        works: (0..WORKS).map(work).collect(),
        triage: Some(triage()),
        fidelity: fidelity(),
        candidates: candidates
            .iter()
            .enumerate()
            .map(|(index, candidate)| CandidateRecord::of(candidate, of_candidate(index)))
            .collect(),
        comparison: Some(comparison),
        runs: runs.iter().map(|(_, request, outcome)| RunRecord::of(request, outcome)).collect(),
        simulator: runs[0].2.simulator.as_ref().map(SimulatorRecord::from),
        notes: vec!["12 of 4,210 wake-ups could not be attributed to a channel".to_owned()],
        next_commands: vec!["schedlab vm try vtime -- mix".to_owned()],
        ..ResultFile::default()
    };
    (result, pictures)
}

fn work(index: usize) -> Work {
    Work {
        name: format!("mix.rec, block {}", index + 1),
        origin: "recorded here".to_owned(),
        duration_ns: 400_000_000,
        target_tasks: 9,
        dropped_events: 0,
    }
}

fn triage() -> TriageRecord {
    let part = |name: &str, ns, kind| TimePart { name: name.to_owned(), ns, kind };
    TriageRecord {
        headline: "run delay is 1.2 of the 3.9 ms of a request: at most 31 % to gain".to_owned(),
        parts: vec![
            part("running", 790_000_000, TimeKind::Running),
            part("waiting for a CPU", 410_000_000, TimeKind::Waiting),
            part("asleep: timer", 1_900_000_000, TimeKind::Asleep),
            part("asleep: pipe", 380_000_000, TimeKind::Asleep),
            part("asleep: unknown <cause>", 60_000_000, TimeKind::Asleep),
        ],
        gain_max: Some(0.31),
    }
}

fn fidelity() -> Vec<FidelityRecord> {
    let row = |metric: &str, unit: &str, recorded, replayed, within_tolerance: bool| FidelityRecord {
        metric: metric.to_owned(),
        unit: unit.to_owned(),
        recorded,
        replayed,
        within_tolerance,
    };
    vec![
        row("run_delay_mean", "ns", 412_000.0, 430_500.0, true),
        row("run_delay_p99", "ns", 1_900_000.0, 2_100_000.0, true),
        row("makespan", "ns", 4.0e8, 4.02e8, true),
        row("switches", "1", 1_822.0, 2_911.0, false),
    ]
}
