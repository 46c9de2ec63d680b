//! Equal settings are no difference: the whole way from simulated runs to the verdict, 200 times.
//!
//! Both candidates are the kernel as it is; only their random numbers differ. A verdict of better or worse
//! is a false alarm, and at most one comparison in twenty may give one. The statistics alone, on numbers
//! from known distributions, are tested in `schedlab-report`.

use schedlab_control::{CompareOptions, compare};
use schedlab_model::lever::{Candidate, Setting};
use schedlab_model::machine::MachineDescription;
use schedlab_model::outcome::{Machine, MachineError, Obtained, RunOutcome, RunRequest};
use schedlab_model::topology::Topology;
use schedlab_model::workload::builder::Builder;
use schedlab_model::workload::{Amount, Op, Workload};
use schedlab_model::{Nanos, Nice, TaskAttributes};
use schedlab_report::compare::{ComparisonInput, Sample, Settings, Verdict};
use schedlab_report::{MetricsCollector, Objective};
use schedlab_sim::{Simulation, SimulationConfig};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

const TRIALS: u64 = 200;
/// One in twenty.
const FALSE_ALARMS_MAX: usize = 10;
/// Keeps the random numbers of the second candidate apart from all of the first.
const SEED_OFFSET: u64 = 1 << 40;

/// Requests, background work and a hog on two CPUs, nothing of it regular.
fn noisy() -> Workload {
    let mut builder = Builder::new("noisy", "");
    let exponential = |us: u64| Amount::Exponential(Nanos::from_micros(us));
    for name in ["request 1", "request 2", "request 3"] {
        let deadline = Nanos::from_millis(2);
        let ops = vec![
            Op::LoopStart { count: 0 },
            Op::Sleep(exponential(1_500)),
            Op::JobStart { deadline: Some(deadline) },
            Op::Run(exponential(300)),
            Op::JobEnd,
            Op::LoopEnd,
        ];
        builder.task(name, "service", TaskAttributes::default(), ops);
    }
    let nice = TaskAttributes { nice: Nice::new(5).expect("in range"), ..TaskAttributes::default() };
    for name in ["batch 1", "batch 2"] {
        let ops = vec![Op::LoopStart { count: 0 }, Op::Run(exponential(4_000)), Op::Sleep(exponential(500))];
        builder.task(name, "batch", nice.clone(), [ops, vec![Op::LoopEnd]].concat()).target = false;
    }
    builder.finish(Some(Nanos::from_millis(150))).expect("valid")
}

/// The simulated kernel; a candidate with settings draws other random numbers.
struct Simulated {
    machine: MachineDescription,
    workload: Arc<Workload>,
}

impl Simulated {
    fn run(&self, request: &RunRequest<'_>) -> RunOutcome {
        let offset = if request.candidate.settings.is_empty() { 0 } else { SEED_OFFSET };
        let config = SimulationConfig {
            settings: request.candidate.settings.clone(),
            seed: request.seed + offset,
            ..SimulationConfig::new(self.machine.clone(), Arc::clone(&self.workload))
        };
        let mut metrics = MetricsCollector::new(&[], &self.machine.topology);
        let result = Simulation::new(config).expect("valid").run(&mut metrics).expect("runs");
        RunOutcome {
            obtained: Obtained::Predicted,
            metrics: metrics.finish(result.report.simulated),
            scheduler_exit: result.scheduler_exit,
            failed_forks: result.failed_forks,
            simulator: Some(result.report),
            cut: result.cut,
        }
    }
}

impl Machine for Simulated {
    fn obtained(&self) -> Obtained {
        Obtained::Predicted
    }

    fn work_count(&self) -> usize {
        1
    }

    fn run_all(&mut self, requests: &[RunRequest<'_>]) -> Vec<Result<RunOutcome, MachineError>> {
        requests.iter().map(|request| Ok(self.run(request))).collect()
    }
}

/// The verdicts by objective of one comparison of the kernel with itself.
fn verdicts(machine: &mut Simulated, trial: u64, objectives: &[Objective]) -> Vec<Verdict> {
    let mut same = Candidate::baseline();
    same.name = "the same".to_owned();
    // The default of this machine's kernel, said aloud.
    same.settings = vec![Setting::Knob { name: "nr_migrate".to_owned(), value: 32 }];
    let candidates = [Candidate::baseline(), same];
    let options = CompareOptions { seed_first: trial * 1_000, control: false, ..CompareOptions::default() };
    let runs = compare(machine, &candidates, &options, |_, _| ControlFlow::Continue(()));
    let samples: Vec<Sample<'_>> = runs
        .cells
        .iter()
        .map(|cell| {
            let candidate = &candidates[cell.candidate];
            let request = RunRequest { candidate, work: cell.work, seed: cell.seed, cost_seed: None };
            Sample::of(cell.candidate, &request, cell.outcome.as_ref().expect("ran"))
        })
        .collect();
    let verdict = |objective: &Objective| {
        let comparison = schedlab_report::compare(&ComparisonInput {
            perturbed_machines: 0,
            candidates: &candidates,
            baseline: 0,
            samples: &samples,
            objective,
            guards: &[],
            settings: Settings::default(),
            bound: None,
            pair_classes: &BTreeMap::new(),
            failures: &BTreeMap::new(),
        })
        .expect("both ran");
        comparison.row("the same").expect("compared").verdict.clone()
    };
    objectives.iter().map(verdict).collect()
}

#[test]
fn equal_settings_are_told_apart_in_at_most_one_of_twenty_comparisons() {
    let topology = Topology::flat(2).expect("CPUs");
    let mut machine =
        Simulated { machine: MachineDescription::generic("two CPUs", topology), workload: Arc::new(noisy()) };
    let names = ["latency", "throughput"];
    let objectives = names.map(|name| name.parse::<Objective>().expect("known"));
    let mut alarms = [0; 2];
    let mut runs_differ = false;
    for trial in 0..TRIALS {
        for (count, verdict) in alarms.iter_mut().zip(verdicts(&mut machine, trial, &objectives)) {
            *count += usize::from(matches!(verdict, Verdict::Better | Verdict::Worse));
            runs_differ |= !matches!(verdict, Verdict::NoDifference { .. });
        }
    }
    assert!(runs_differ, "runs that are all equal test nothing");
    for (name, alarms) in names.iter().zip(alarms) {
        assert!(alarms <= FALSE_ALARMS_MAX, "{name}: {alarms} false alarms in {TRIALS} comparisons");
    }
}
