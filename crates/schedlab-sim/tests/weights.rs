//! Weight tables: shares follow them, under the fair class of both generations and under `vtime`.

// A test may read files; the simulator may not.
#![allow(clippy::disallowed_methods)]

mod ext_runs;

use ext_runs::Run;
use schedlab_model::event::NullSink;
use schedlab_model::lever::Setting;
use schedlab_model::machine::KernelVersion;
use schedlab_model::weights::WeightTable;
use schedlab_sim::{Scheduler, Simulation, SimulationResult};

/// Two hogs of these nice values on one CPU for so many ms.
fn hogs(nice: [i32; 2], ms: u64) -> String {
    let task = |name: &str, nice: i32| {
        format!("[[task]]\nname = \"{name}\"\nnice = {nice}\nsteps = [{{ run = \"1000000s\" }}]\n")
    };
    format!("name = \"two\"\nduration = \"{ms}ms\"\n{}{}", task("a", nice[0]), task("b", nice[1]))
}

/// `fair` of a kernel, or a sched_ext scheduler.
fn run(scheduler: &str, kernel: KernelVersion, workload: &str, table: &WeightTable) -> SimulationResult {
    let object = if scheduler == "fair" { "vtime" } else { scheduler };
    let mut config = Run::new(object, workload, 1).config();
    if scheduler == "fair" {
        config.scheduler = Scheduler::Kernel;
    }
    config.kernel = Some(kernel);
    config.settings.push(Setting::Weights(table.clone()));
    Simulation::new(config).expect("valid").run(&mut NullSink).expect("runs")
}

/// Share of the first of two hogs, and the switches there were.
fn share(scheduler: &str, kernel: KernelVersion, nice: [i32; 2], ms: u64, table: &WeightTable) -> (f64, u64) {
    let result = run(scheduler, kernel, &hogs(nice, ms), table);
    let [a, b] = [1, 2].map(|task| result.accounts[task].cpu_time.0 as f64);
    (a / (a + b), result.report.context_switches)
}

const KINDS: [(&str, KernelVersion); 5] = [
    ("fair", KernelVersion::V5_7),
    ("fair", KernelVersion::V6_1),
    ("fair", KernelVersion::V7_2),
    ("vtime", KernelVersion::V7_2),
    ("cfs", KernelVersion::V7_2),
];

fn expected(table: &WeightTable, nice: [i32; 2]) -> f64 {
    let [a, b] =
        nice.map(|n| f64::from(table.weight(schedlab_model::Nice::widened(n.into()).expect("in range"))));
    a / (a + b)
}

/// How long two such hogs must run for a hundred slices of the lighter one: a slice ends at the tick after 20 ms at most, and the
/// lighter one gets its share of the time.
fn long_enough(share: f64) -> u64 {
    (100.0 * 25.0 / share.min(1.0 - share)) as u64 + 500
}

#[test]
fn shares_follow_every_table() {
    let tables = ["linux", "group:2", "group:5", "group:5:shrink", "refine:60"];
    for table in tables.map(|name| WeightTable::parse(name).expect("known")) {
        for (scheduler, kernel) in KINDS {
            for nice in [[0, 0], [0, 1], [0, 3], [-4, 3], [-3, 2]] {
                let wanted = expected(&table, nice);
                let (found, _) = share(scheduler, kernel, nice, long_enough(wanted), &table);
                assert!(
                    (found - wanted).abs() < 0.01,
                    "{scheduler} {kernel} {} {nice:?}: {found:.4}, {wanted:.4}",
                    table.name()
                );
            }
        }
    }
    let sixty = WeightTable::refined(60).expect("in range");
    for (scheduler, kernel) in KINDS {
        let wanted = expected(&sixty, [-30, -27]);
        let (found, _) = share(scheduler, kernel, [-30, -27], long_enough(wanted), &sixty);
        assert!((found - wanted).abs() < 0.01, "{scheduler} {kernel}: {found:.4}, {wanted:.4}");
    }
}

/// A pair of every third distance; `cargo bench -p schedlab-sim --bench shares` has all pairs.
#[test]
fn shares_of_pairs_of_every_distance() {
    let linux = WeightTable::linux();
    for (scheduler, kernel) in KINDS {
        for distance in (0..40).step_by(3) {
            let nice = [-20 + (distance * 7) % (40 - distance), 0];
            let nice = [nice[0], nice[0] + distance];
            let wanted = expected(&linux, nice);
            let (found, switches) = share(scheduler, kernel, nice, long_enough(wanted), &linux);
            assert!((found - wanted).abs() < 0.01, "{scheduler} {kernel} {nice:?}: {found:.4}, {wanted:.4}");
            assert!(switches >= 199, "a hundred slices of the lighter task: {switches} switches");
        }
    }
}

#[test]
fn nice_values_beyond_the_table_are_refused() {
    let refused = |nice, table: &str| {
        let mut config = Run::new("vtime", &hogs(nice, 10), 1).config();
        config.settings.push(Setting::Weights(WeightTable::parse(table).expect("known")));
        Simulation::new(config).map(drop).expect_err("out of range").to_string()
    };
    for (nice, table) in [([0, 25], "linux"), ([0, 15], "group:2:shrink"), ([-31, 0], "refine:60")] {
        let message = refused(nice, table);
        assert!(message.contains("weight table") && message.contains(table), "{message}");
    }
}
