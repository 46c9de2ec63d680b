//! Comparisons whose truth is known: equal things with light and heavy tails, a real effect, guards.

use super::stats::Random;
use super::*;
use crate::fidelity::model_error::ModelError;
use schedlab_model::lever::SchedulerChoice;
use schedlab_model::metric::Metric;

/// How one run scatters around its truth.
#[derive(Clone, Copy, Debug)]
enum Noise {
    Normal(f64),
    /// Student's t with 2.2 degrees: a tail latency that now and then explodes.
    HeavyTail(f64),
    /// Most runs equal, some twice as large.
    Bimodal,
    None,
}

impl Noise {
    fn draw(self, random: &mut Random) -> f64 {
        let mut normal =
            || (-2.0 * random.unit().ln()).sqrt() * (std::f64::consts::TAU * random.unit()).cos();
        match self {
            Noise::None => 0.0,
            Noise::Normal(sd) => sd * normal(),
            Noise::HeavyTail(scale) => {
                let z = normal();
                scale * z / random.unit().powf(1.0 / 2.2)
            }
            Noise::Bimodal => f64::from(random.unit() < 0.3) * 2.0_f64.ln(),
        }
    }
}

fn candidate(name: &str) -> Candidate {
    Candidate {
        name: name.to_owned(),
        scheduler: SchedulerChoice::Object(name.to_owned()),
        ..Candidate::baseline()
    }
}

fn candidates(count: usize) -> Vec<Candidate> {
    let mut all = vec![Candidate::baseline()];
    all.extend((1..count).map(|index| candidate(&format!("c{index}"))));
    all
}

struct Trial {
    candidates: usize,
    works: usize,
    seeds: u64,
    noise: Noise,
    /// True ratio of candidate 1 to the baseline.
    ratio: f64,
}

impl Trial {
    fn runs(&self, seed: u64) -> Vec<Run> {
        let mut random = Random(seed);
        let mut runs = Vec::new();
        for candidate in 0..self.candidates {
            for work in 0..self.works {
                for seed in 0..self.seeds {
                    let truth = 1e6 * (1.0 + work as f64) * if candidate == 1 { self.ratio } else { 1.0 };
                    let value = truth * self.noise.draw(&mut random).exp();
                    runs.push(((candidate, work, seed), one_value(Metric::WakeupLatencyP99, value)));
                }
            }
        }
        runs
    }

    fn run(&self, seed: u64) -> Comparison {
        check(self.candidates, &self.runs(seed), &[], None).expect("comparable")
    }

    /// Share of 200 comparisons in which the verdict on any candidate is wanted.
    fn share(&self, wanted: fn(&Verdict) -> bool) -> f64 {
        let hit = |seed: &u64| self.run(*seed).rows.iter().any(|row| wanted(&row.verdict));
        (0..200_u64).filter(hit).count() as f64 / 200.0
    }
}

type Run = ((usize, usize, u64), RunMetrics);

fn one_value(metric: Metric, value: f64) -> RunMetrics {
    let mut run = RunMetrics::default();
    run.values.insert(metric, value);
    run
}

fn sample(((candidate, work, seed), metrics): &Run) -> Sample<'_> {
    Sample {
        candidate: *candidate,
        work: *work,
        seed: *seed,
        cost_seed: None,
        metrics,
        failure: None,
        cut: false,
    }
}

fn check(
    count: usize,
    runs: &[Run],
    guards: &[Guard],
    bound: Option<GainBound>,
) -> Result<Comparison, CompareError> {
    let samples: Vec<Sample<'_>> = runs.iter().map(sample).collect();
    compare_samples(count, &samples, guards, bound)
}

fn compare_samples(
    count: usize,
    samples: &[Sample<'_>],
    guards: &[Guard],
    bound: Option<GainBound>,
) -> Result<Comparison, CompareError> {
    compare_classed(count, samples, guards, bound, &BTreeMap::new())
}

fn compare_classed(
    count: usize,
    samples: &[Sample<'_>],
    guards: &[Guard],
    bound: Option<GainBound>,
    pair_classes: &BTreeMap<String, PairClass>,
) -> Result<Comparison, CompareError> {
    compare(&ComparisonInput {
        candidates: &candidates(count),
        baseline: 0,
        samples,
        objective: &Objective::default(),
        guards,
        settings: Settings::default(),
        bound,
        pair_classes,
        failures: &BTreeMap::new(),
        perturbed_machines: 0,
    })
}

fn is_alarm(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Better | Verdict::Worse)
}

#[test]
fn equal_things_are_told_apart_in_at_most_one_of_twenty_comparisons() {
    for noise in [Noise::Normal(0.01), Noise::Normal(0.3), Noise::HeavyTail(0.1), Noise::Bimodal] {
        for (candidates, works, seeds) in
            [(2, 1, 5), (8, 1, 5), (8, 1, 4), (8, 1, 3), (8, 3, 5), (2, 2, 2), (4, 8, 2), (8, 2, 10)]
        {
            let trial = Trial { candidates, works, seeds, noise, ratio: 1.0 };
            let alarms = trial.share(is_alarm);
            assert!(
                alarms <= 0.05,
                "{noise:?} {candidates} candidates, {works} works, {seeds} seeds: {alarms}"
            );
        }
    }
}

#[test]
fn a_real_difference_is_found() {
    let trial = |noise, seeds, ratio| Trial { candidates: 8, works: 1, seeds, noise, ratio };
    let better = |trial: Trial| trial.share(|verdict| *verdict == Verdict::Better);
    let worse = |trial: Trial| trial.share(|verdict| *verdict == Verdict::Worse);
    assert!(better(trial(Noise::Normal(0.05), 5, 0.7)) > 0.9);
    assert!(worse(trial(Noise::Normal(0.05), 5, 1.4)) > 0.9);
    assert!(better(trial(Noise::HeavyTail(0.05), 10, 0.5)) > 0.9);
}

#[test]
fn intervals_cover_the_truth() {
    let covered = (0..200_u64).filter(|seed| {
        let trial = Trial { candidates: 2, works: 3, seeds: 5, noise: Noise::Normal(0.1), ratio: 0.8 };
        let comparison = trial.run(*seed);
        let (low, high) = comparison.row("c1").and_then(|row| row.ratio?.interval).expect("an interval");
        low <= 0.8 && 0.8 <= high
    });
    assert!(covered.count() >= 190);
}

#[test]
fn what_is_equal_has_no_difference() {
    let equal = Trial { candidates: 3, works: 1, seeds: 5, noise: Noise::None, ratio: 1.0 }.run(1);
    assert_eq!(equal.overall, Overall::KeepDefault);
    let quiet = Trial { candidates: 3, works: 1, seeds: 5, noise: Noise::Normal(0.005), ratio: 1.0 };
    let quiet = quiet.run(1);
    let no_difference = |name| matches!(quiet.row(name).expect(name).verdict, Verdict::NoDifference { below } if below < 0.05);
    assert!(no_difference("c1") && no_difference("c2"), "{quiet:#?}");
}

#[test]
fn noise_needs_more_runs_and_the_estimate_of_how_many_holds() {
    let noisy = |seeds| Trial { candidates: 2, works: 1, seeds, noise: Noise::Normal(0.3), ratio: 0.8 };
    let asked_for = |seed| match noisy(5).run(seed).overall {
        Overall::CannotTell { more: Some(More::Runs(more)), .. } => f64::from(more),
        Overall::CannotTell { .. } => 1_000.0,
        _ => 0.0,
    };
    let asked: Vec<f64> = (0..50).map(asked_for).collect();
    let more = stats::median(&asked).expect("fifty") as u64;
    assert!((5..100).contains(&more), "{more}");
    assert!(noisy(5 + 2 * more).share(|verdict| *verdict == Verdict::Better) > 0.5);
    let once = Trial { candidates: 2, works: 1, seeds: 1, noise: Noise::None, ratio: 0.5 }.run(1);
    assert!(matches!(once.row("c1").expect("a row").verdict, Verdict::CannotTell { .. }));
    assert_eq!(once.noise_floor, None);
}

/// Candidate 1 halves latency, candidate 2 takes a tenth off; both pay with throughput.
fn runs_with_throughput() -> Vec<Run> {
    let mut random = Random(7);
    let mut runs = Vec::new();
    for (candidate, latency, throughput) in [(0, 1e6, 1e3), (1, 5e5, 9e2), (2, 9e5, 9.9e2)] {
        for seed in 0..5 {
            let mut run =
                one_value(Metric::WakeupLatencyP99, latency * Noise::Normal(0.005).draw(&mut random).exp());
            run.values.insert(Metric::Throughput, throughput * Noise::Normal(0.005).draw(&mut random).exp());
            runs.push(((candidate, 0, seed), run));
        }
    }
    runs
}

#[test]
fn a_guard_decides_who_may_win() {
    let runs = runs_with_throughput();
    let overall = |guards: &[Guard]| check(3, &runs, guards, None).expect("comparable").overall;
    let use_it = |name: &str| Overall::Use { candidate: name.to_owned(), usable_here: None };
    assert_eq!(overall(&[]), use_it("c1"));
    let guard: Guard = "throughput>=-3%".parse().expect("a guard");
    assert_eq!(overall(std::slice::from_ref(&guard)), use_it("c2"));
    let comparison = check(3, &runs, &[guard], None).expect("comparable");
    assert_eq!(comparison.row("c1").expect("a row").guards[0].status, GuardStatus::Broken);
    let absent: Guard = "deadlines_met>=-1%".parse().expect("a guard");
    assert_eq!(overall(&[absent]), use_it("c1"), "a guard on what the work does not have");
}

#[test]
fn a_small_bound_says_that_scheduling_is_not_the_problem() {
    let mut random = Random(5);
    let mut runs: Vec<Run> = Vec::new();
    for (candidate, seed) in (0..2).flat_map(|candidate| (0..8).map(move |seed| (candidate, seed))) {
        let latency = (1.0 - 0.03 * candidate as f64) * Noise::Normal(0.001).draw(&mut random).exp();
        runs.push(((candidate, 0, seed), one_value(Metric::WakeupLatencyP99, 1e6 * latency)));
    }
    let overall = |gain_max| check(2, &runs, &[], Some(GainBound { gain_max })).expect("comparable").overall;
    let not_scheduling = |candidate: Option<&str>| Overall::NotScheduling {
        gain_max: 0.04,
        candidate: candidate.map(str::to_owned),
    };
    let found = overall(0.04);
    assert!(found == not_scheduling(None) || found == not_scheduling(Some("c1")), "{found:?}");
    let runs = runs_with_throughput();
    let found = check(3, &runs, &[], Some(GainBound { gain_max: 0.4 })).expect("comparable").overall;
    assert!(matches!(found, Overall::Use { .. }), "{found:?}");
}

/// A gain that the estimate shows, if not for sure: the answer must not deny what its table says.
#[test]
fn a_bound_that_a_winner_passes_is_none() {
    let trial = Trial { candidates: 2, works: 1, seeds: 8, noise: Noise::Normal(0.02), ratio: 0.94 };
    let runs = trial.runs(5);
    let overall = |gain_max| check(2, &runs, &[], Some(GainBound { gain_max })).expect("comparable").overall;
    let comparison = check(2, &runs, &[], None).expect("comparable");
    let row = comparison.row("c1").expect("a row");
    let ratio = row.ratio.expect("a ratio");
    let (_, high) = ratio.interval.expect("an interval");
    assert!(row.is_winner() && high > 0.95, "{row:?}");
    assert!(matches!(overall(1.0 - f64::midpoint(high, 0.95)), Overall::Use { .. }), "{ratio:?}");
}

#[test]
fn a_scheduler_that_ends_early_cannot_win() {
    let runs = runs_with_throughput();
    let mut samples: Vec<Sample<'_>> = runs.iter().map(sample).collect();
    samples[7].failure = Some("runnable task stall");
    samples[12].cut = true;
    let comparison = compare_samples(3, &samples, &[], None).expect("comparable");
    let failed = |name| matches!(&comparison.row(name).expect(name).verdict, Verdict::Failed { .. });
    assert!(failed("c1") && failed("c2"));
    assert_eq!(comparison.overall, Overall::KeepDefault);
    assert_eq!(comparison.rows[0].candidate, "fair");
}

/// More runs of it would tell no more.
#[test]
fn a_scheduler_that_runs_nothing_has_failed() {
    let mut runs = runs_with_throughput();
    for ((candidate, ..), metrics) in &mut runs {
        metrics.values.insert(Metric::CpuTime, if *candidate == 1 { 0.0 } else { 1e9 });
    }
    let samples: Vec<Sample<'_>> = runs.iter().map(sample).collect();
    let comparison = compare_samples(3, &samples, &[], None).expect("comparable");
    let failed = Verdict::Failed { reason: "no task of the work ever ran".to_owned() };
    assert_eq!(comparison.row("c1").expect("a row").verdict, failed);
    assert_eq!(comparison.row("c2").expect("a row").verdict, Verdict::Better);
}

#[test]
fn a_verdict_that_hangs_on_assumed_costs_is_taken_back() {
    let runs = runs_with_throughput();
    let other_way: Vec<Run> =
        (0..2).map(|c| ((c, 0, 0), one_value(Metric::WakeupLatencyP99, 1e6 * (1.0 + c as f64)))).collect();
    let same_way: Vec<Run> =
        (0..2).map(|c| ((c, 0, 0), one_value(Metric::WakeupLatencyP99, 1e6 / (1.0 + c as f64)))).collect();
    let with_machines = |reversed: u64| {
        let mut samples: Vec<Sample<'_>> = runs.iter().map(sample).collect();
        for machine in 0..20 {
            let runs = if machine < reversed { &other_way } else { &same_way };
            samples.extend(runs.iter().map(|run| Sample { cost_seed: Some(machine), ..sample(run) }));
        }
        compare_samples(3, &samples, &[], None).expect("comparable").row("c1").expect("a row").clone()
    };
    assert_eq!(with_machines(3).robustness, Some(Robustness { holds: 17, of: 20, baseline_failed: 0 }));
    assert_eq!(with_machines(3).verdict, Verdict::Better);
    assert!(matches!(with_machines(9).verdict, Verdict::CannotTell { reason: Some(_), .. }));
}

/// A stall on one machine with other costs is a machine on which the verdict does not hold, not the end of it.
#[test]
fn a_failure_on_a_perturbed_machine_counts_against_the_verdict_only() {
    let runs = runs_with_throughput();
    let mut samples: Vec<Sample<'_>> = runs.iter().map(sample).collect();
    let plain = samples.clone();
    for machine in 0..20 {
        let of_machine = plain.iter().filter(|run| run.seed == 0);
        let stalls = |run: &Sample<'_>| (machine == 3 && run.candidate == 1).then_some("runnable task stall");
        // On another machine the run of the candidate gave nothing at all.
        let made = of_machine.filter(|run| !(machine == 4 && run.candidate == 1));
        samples.extend(made.map(|run| Sample { cost_seed: Some(machine), failure: stalls(run), ..*run }));
    }
    let comparison = compare_samples(3, &samples, &[], None).expect("comparable");
    let row = comparison.row("c1").expect("a row");
    assert_eq!(
        (&row.verdict, row.robustness),
        (&Verdict::Better, Some(Robustness { holds: 18, of: 20, baseline_failed: 0 }))
    );
}

/// c1 halves the latency, c2 leaves it as it is, and every run says so. The model's error of the class makes the size of the
/// half uncertain, by a fifth of its logarithm at nine of ten, and takes neither verdict back: 0.5^(1 ± 0.2 · 1.960/1.645).
#[test]
fn the_error_of_the_class_widens_the_effect_and_not_its_absence() {
    let of = |candidate: usize| if candidate == 1 { 5e5 } else { 1e6 };
    let runs: Vec<Run> = (0..3)
        .flat_map(|candidate| (0..8).map(move |seed| (candidate, seed)))
        .map(|(candidate, seed)| ((candidate, 0, seed), one_value(Metric::WakeupLatencyP99, of(candidate))))
        .collect();
    let samples: Vec<Sample<'_>> = runs.iter().map(sample).collect();
    let class =
        PairClass { class: "slice".to_owned(), checked: true, error: ModelError { least: 0.0, share: 0.2 } };
    let classes = BTreeMap::from(["c1", "c2"].map(|name| (name.to_owned(), class.clone())));
    let comparison = compare_classed(3, &samples, &[], None, &classes).expect("comparable");
    let [half, same] = ["c1", "c2"].map(|name| comparison.row(name).expect("a row"));
    let (low, high) = half.ratio.and_then(|ratio| ratio.interval).expect("an interval");
    assert!(
        (low - 0.5_f64.powf(1.238)).abs() < 0.002 && (high - 0.5_f64.powf(0.762)).abs() < 0.002,
        "{low} {high}"
    );
    assert_eq!(half.verdict, Verdict::Better);
    assert!(matches!(same.verdict, Verdict::NoDifference { .. }), "{:?}", same.verdict);
    assert_eq!(half.rests_on.as_ref(), Some(&class));
}

/// Where the model's error alone is more than what matters, no number of runs says "no difference": it is said, and none asked
/// for. Where it is less, runs are.
#[test]
fn no_runs_are_asked_for_that_the_model_would_make_useless() {
    let runs: Vec<Run> = (0..2)
        .flat_map(|candidate| (0..6_u64).map(move |seed| (candidate, seed)))
        .map(|(candidate, seed)| {
            let value = 1e6 * (1.0 + 0.05 * f64::from((seed * 7 + candidate as u64 * 3) as u32 % 5));
            ((candidate, 0, seed), one_value(Metric::WakeupLatencyP99, value))
        })
        .collect();
    let samples: Vec<Sample<'_>> = runs.iter().map(sample).collect();
    let verdict = |least: f64| {
        let error = ModelError { least, share: 0.0 };
        let class = PairClass { class: "knob".to_owned(), checked: true, error };
        let classes = BTreeMap::from([("c1".to_owned(), class)]);
        let comparison = compare_classed(2, &samples, &[], None, &classes).expect("comparable");
        comparison.row("c1").expect("a row").verdict.clone()
    };
    let Verdict::CannotTell { more: None, reason: Some(reason) } = verdict(0.5) else {
        panic!("{:?}", verdict(0.5))
    };
    assert!(reason.contains("more runs do not help"), "{reason}");
    let Verdict::CannotTell { more: Some(More::Runs(few)), reason: None } = verdict(0.0) else {
        panic!("{:?}", verdict(0.0))
    };
    let Verdict::CannotTell { more: Some(More::Runs(many)), .. } = verdict(0.02) else {
        panic!("{:?}", verdict(0.02))
    };
    assert!(few < many, "{few} {many}");
}

/// On three machines the baseline stalls and on one more it gives nothing at all: these are not counted, and it is said.
#[test]
fn machines_on_which_the_baseline_fails_are_told() {
    let runs = runs_with_throughput();
    let mut samples: Vec<Sample<'_>> = runs.iter().map(sample).collect();
    let plain = samples.clone();
    for machine in 0..20 {
        let of_machine = plain.iter().filter(|run| run.seed == 0);
        let stalls = |run: &Sample<'_>| (machine < 3 && run.candidate == 0).then_some("runnable task stall");
        let made = of_machine.filter(|run| !(machine == 4 && run.candidate == 0));
        samples.extend(made.map(|run| Sample { cost_seed: Some(machine), failure: stalls(run), ..*run }));
    }
    let comparison = compare_samples(3, &samples, &[], None).expect("comparable");
    let row = comparison.row("c1").expect("a row");
    assert_eq!(row.robustness, Some(Robustness { holds: 16, of: 16, baseline_failed: 4 }));
    let told = row.robustness.map(|robust| robust.to_string());
    assert_eq!(told.as_deref(), Some("on 16 of 16 machines, on 4 more the baseline failed"));
}

/// A candidate that surely gains more than the bound says refutes the bound.
#[test]
fn a_bound_that_runs_exceed_is_not_believed() {
    let runs = runs_with_throughput();
    let samples: Vec<Sample<'_>> = runs.iter().map(sample).collect();
    let comparison =
        compare_samples(3, &samples, &[], Some(GainBound { gain_max: 0.0 })).expect("comparable");
    assert!(matches!(comparison.overall, Overall::Use { .. }), "{:?}", comparison.overall);
}

#[test]
fn what_cannot_be_compared_is_refused_with_the_remedy() {
    let runs = [((0, 0, 0), one_value(Metric::Makespan, 1.0))];
    let error = check(1, &runs, &[], None).expect_err("no latency").to_string();
    assert!(error.contains("wakeup_latency_p99") && error.contains("choose one of: makespan"), "{error}");
    let error = check(2, &[], &[], None).expect_err("no runs").to_string();
    assert!(error.contains("'fair' has no run"), "{error}");
}
