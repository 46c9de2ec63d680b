//! The page and its judgement, of measurements as they would lie in files.

use super::judge::{self, Differential, PairScore, SHARE};
use super::measured::{LoadRuns, Measured, Numbers, PairRuns, Prediction, Simulated, Source};
use super::model_error::ModelError;
use super::page::render;
use super::plan::{Kind, Load, Pair, Plan};

/// One run in the file's own form, so that a field that changes its name is noticed.
fn run(mean: f64, p99: f64, makespan: f64, share: f64) -> Numbers {
    let json = format!(
        r#"{{"values":{{"run_delay_mean":{mean},"run_delay_p99":{p99},"makespan":{makespan}}},
            "shares":{{"hog":[{share}],"other":[{}]}},"others_percent":0.1,"dropped":0}}"#,
        100.0 - share
    );
    serde_json::from_str(&json).expect("is one")
}

fn load(name: &str, kind: Kind, live: Vec<Numbers>, simulated: Vec<Numbers>) -> (Load, LoadRuns) {
    let load = Load { name: name.to_owned(), kind, known: "It is known.".to_owned(), ..Load::default() };
    let simulated = vec![Simulated { source: Source::File, runs: simulated }];
    (load, LoadRuns { name: name.to_owned(), live, simulated, machine: String::new(), problem: None })
}

fn pair(name: &str, live: &[(f64, f64)], predicted: &[(f64, f64)]) -> (Pair, PairRuns) {
    let metric = "run_delay_mean".to_owned();
    let pair = Pair { name: name.to_owned(), work: name.to_owned(), metric, ..Pair::default() };
    let sides = |runs: &[(f64, f64)]| -> (Vec<Numbers>, Vec<Numbers>) {
        runs.iter().map(|(a, b)| (run(*a, *a, 1e9, 50.0), run(*b, *b, 1e9, 50.0))).unzip()
    };
    let ((live_a, live_b), (a, b)) = (sides(live), sides(predicted));
    let predictions = vec![Prediction { source: Source::File, a, b }];
    (
        pair,
        PairRuns {
            name: name.to_owned(),
            live_a,
            live_b,
            predictions,
            machine: String::new(),
            problem: None,
        },
    )
}

fn measured(loads: Vec<(Load, LoadRuns)>, pairs: Vec<(Pair, PairRuns)>) -> (Plan, Measured) {
    let (loads, load_runs) = loads.into_iter().unzip();
    let (pairs, pair_runs) = pairs.into_iter().unzip();
    (Plan { loads, pairs }, Measured { loads: load_runs, pairs: pair_runs, ..Measured::default() })
}

#[test]
fn a_tolerance_is_the_larger_of_the_stated_and_what_live_runs_show() {
    let scored = |live: [f64; 2], simulated: f64| {
        let live = live.map(|mean| run(mean, 1e6, 1e9, 50.0)).to_vec();
        let (plan, measured) =
            measured(vec![load("x", Kind::Judged, live, vec![run(simulated, 1e6, 1e9, 50.0)])], vec![]);
        let mean = judge::loads(&plan, &measured)[0].scored[1].clone();
        assert_eq!(mean.metric, "run delay mean");
        mean.within
    };
    assert!(scored([100e3, 100e3], 124e3) && !scored([100e3, 100e3], 126e3));
    assert!(scored([100e3, 100e3], 81e3) && !scored([100e3, 100e3], 79e3));
    // Live runs are 1.5 times apart, so the mean of both may be missed by as much.
    assert!(scored([80e3, 120e3], 149e3) && !scored([80e3, 120e3], 151e3));
    // Below the floor differences are none.
    assert!(scored([2e3, 2e3], 6.9e3) && !scored([2e3, 2e3], 7.1e3));
}

#[test]
fn shares_and_makespans_have_their_own() {
    let live = vec![run(1e6, 1e6, 1e9, 60.0), run(1e6, 1e6, 1e9, 60.4)];
    let judged = |makespan: f64, share: f64| {
        let simulated = vec![run(1e6, 1e6, makespan, share)];
        let (plan, measured) = measured(vec![load("x", Kind::Judged, live.clone(), simulated)], vec![]);
        let score = judge::loads(&plan, &measured);
        score[0].scored.iter().filter(|scored| !scored.within).map(|scored| scored.metric).collect::<Vec<_>>()
    };
    assert!(judged(1.04e9, 61.0).is_empty());
    assert_eq!(judged(1.06e9, 61.0), ["makespan"]);
    assert_eq!(judged(1.0e9, 61.5), [SHARE]);
}

/// Live now one and now the other of two equal hogs gets more; simulated, too.
#[test]
fn which_of_equal_tasks_is_lucky_does_not_count() {
    let of = |first: f64| {
        let mut one = run(1e6, 1e6, 1e9, 50.0);
        one.shares = [("hog0".to_owned(), vec![first]), ("hog1".to_owned(), vec![100.0 - first])].into();
        one
    };
    let difference = |simulated: f64| {
        let (plan, measured) =
            measured(vec![load("x", Kind::Judged, vec![of(60.0), of(40.0)], vec![of(simulated)])], vec![]);
        let shares = judge::loads(&plan, &measured)[0].scored[0].clone();
        (shares.difference, shares.tolerance)
    };
    assert_eq!(difference(40.0), (0.0, 1.0));
    assert_eq!(difference(50.0), (10.0, 1.0));
}

#[test]
fn disturbed_runs_do_not_count() {
    let mut disturbed = run(900e3, 1e6, 1e9, 50.0);
    disturbed.others_percent = 5.0;
    let live = vec![run(100e3, 1e6, 1e9, 50.0), disturbed, run(100e3, 1e6, 1e9, 50.0)];
    let (plan, measured) =
        measured(vec![load("x", Kind::Judged, live, vec![run(100e3, 1e6, 1e9, 50.0)])], vec![]);
    let scores = judge::loads(&plan, &measured);
    assert!(scores[0].within() && scores[0].live_runs == 2);
}

#[test]
fn signs_errors_and_coverage_are_counted() {
    let doubled = [(100e3, 200e3), (101e3, 201e3), (99e3, 200e3), (100e3, 198e3)];
    let halved = doubled.map(|(a, b)| (b, a));
    let same = [(100e3, 101e3), (101e3, 99e3), (99e3, 100e3), (100e3, 100e3)];
    let pairs = vec![
        pair("right", &doubled, &doubled),
        pair("wrong", &doubled, &halved),
        pair("none", &same, &halved),
    ];
    let (plan, measured) = measured(vec![], pairs);
    let scores = judge::pairs(&plan, &measured);
    let of = Differential::of(&scores);
    assert_eq!((of.pairs, of.exceeding, of.signs_right, of.covered), (3, 2, 1, 1));
    assert!(scores[0].error() < 0.001 && (scores[1].error() - 3.0).abs() < 0.1);
    assert_eq!(of.reached(), [false, false, false]);
}

#[test]
fn what_chance_explains_is_no_error_of_the_model() {
    let steady = [(100e3, 200e3), (100e3, 200e3), (100e3, 200e3)];
    let loose = [(50e3, 100e3), (100e3, 200e3), (200e3, 400e3)];
    let tripled = [(100e3, 300e3), (100e3, 300e3), (100e3, 300e3)];
    let (plan, measured) =
        measured(vec![], vec![pair("steady", &steady, &tripled), pair("loose", &loose, &tripled)]);
    let scores = judge::pairs(&plan, &measured);
    let share = |of: &[&PairScore<'_>]| ModelError::found(of).share;
    // Twice live and three times simulated: off by ln 1.5 of ln 3.
    let off = 1.5_f64.ln() / 3.0_f64.ln();
    assert!((share(&[&scores[0]]) - off).abs() < 0.01, "{}", share(&[&scores[0]]));
    assert!(share(&[&scores[1]]) < 0.01 && scores[1].error_within() && !scores[1].is_steady());
    let both = share(&[&scores[0], &scores[1]]);
    assert!((both - 0.9 * off).abs() < 0.01, "{both}");
    assert_eq!(ModelError::found(&[]), ModelError::default());
}

#[test]
fn where_no_effect_is_predicted_the_error_is_of_the_ratio() {
    let live = [(100e3, 130e3), (100e3, 130e3), (100e3, 130e3)];
    let none = [(100e3, 100e3), (100e3, 100e3), (100e3, 100e3)];
    let large = [(100e3, 900e3), (100e3, 900e3), (100e3, 900e3)];
    let (plan, measured) = measured(vec![], vec![pair("none", &live, &none), pair("large", &large, &large)]);
    let scores = judge::pairs(&plan, &measured);
    let found = ModelError::found(&[&scores[0], &scores[1]]);
    assert!((found.least - 0.3).abs() < 0.01 && found.share < 0.01, "{found:?}");
    // The parts add as independent errors do.
    let error = ModelError { least: 0.1, share: 0.5 };
    assert!((error.half_width(0.0) - 1.1_f64.ln()).abs() < 1e-12);
    assert!((error.half_width(2.0) - 1.0_f64.hypot(1.1_f64.ln())).abs() < 1e-12);
    assert!((error.half_width_at(2.0, 0.05) / error.half_width(2.0) - 1.960 / 1.645).abs() < 1e-3);
}

#[test]
fn in_ratios_of_run_delay_nothing_is_below_the_floor() {
    let live = [(500e3, 3e3), (500e3, 3.1e3), (500e3, 2.9e3)];
    let simulated = [(500e3, 1e3), (500e3, 1.1e3), (500e3, 0.9e3)];
    let (plan, measured) = measured(vec![], vec![pair("fifo", &live, &simulated)]);
    assert!(judge::pairs(&plan, &measured)[0].error() < 0.001);
}

#[test]
fn the_page_names_goals_misses_and_what_is_known() {
    let good =
        |name| load(name, Kind::Judged, vec![run(1e6, 1e6, 1e9, 50.0); 2], vec![run(1e6, 1e6, 1e9, 50.0)]);
    let bad = load("bad", Kind::Judged, vec![run(1e6, 1e6, 1e9, 50.0); 2], vec![run(3e6, 1e6, 1e9, 50.0)]);
    let shown = load("shown", Kind::Shown, vec![run(1e6, 1e6, 1e9, 50.0); 2], vec![run(9e6, 1e6, 1e9, 50.0)]);
    let disturbed = load("disturbed", Kind::Judged, vec![], vec![run(1e6, 1e6, 1e9, 50.0)]);
    let (plan, mut measured) = measured(vec![good("good"), bad, shown, disturbed], vec![]);
    measured.session.environment.cpus = 2;
    measured.session.began_unix_s = 1_795_000_000;
    measured.loads.push(LoadRuns {
        name: "absent".into(),
        problem: Some("gone".into()),
        ..LoadRuns::default()
    });
    let page = render(&plan, &measured, "## Prose\n");
    for text in [
        "2026-11-18",
        "| absolute, from a file | at least 9 of 12 within | 1 of 2; worst: bad – **missed** |",
        "**1000.0 → 3.00**",
        "| *shown* | file |",
        "- **bad**, from a file: run delay mean 3.00 times. It is known.",
        "- **absent**: gone",
        "- **disturbed**: too few live runs",
        "## Prose",
    ] {
        assert!(page.contains(text), "{text:?} is not in:\n{page}");
    }
}

/// The file says twice as much, as was measured; the recording three times.
#[test]
fn pairs_in_machines_are_counted_by_what_they_are_predicted_from() {
    let (mut of, mut runs) = pair("x", &[(1e6, 2e6), (1e6, 2.1e6), (1e6, 1.9e6)], &[(1e6, 2e6), (1e6, 2e6)]);
    "7.2".clone_into(&mut of.kernel);
    let sides = [1e6, 3e6].map(|mean| vec![run(mean, mean, 1e9, 50.0); 2]);
    let [a, b] = sides;
    runs.predictions.push(Prediction { source: Source::Recording, a, b });
    let (plan, measured) = measured(vec![], vec![(of, runs)]);
    let page = render(&plan, &measured, "");
    for (source, inside) in [("file", 1), ("recording", 0)] {
        let row = format!(
            "| 1 pairs in virtual machines, from a {source}: predicted ratio | within the measured 90 % interval | {inside} of 1 |"
        );
        assert!(page.contains(&row), "{page}");
    }
}
