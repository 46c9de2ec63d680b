//! Figure 3: fibo and sysbench on one CPU under every table, how their CPU times grow and what part of the CPU each gets.
//!
//! Both never sleep (sysbench's cpu test is primes), so fair means: the part that its weight is of both. The last pair has an interactive program instead, which wants 40 % of a CPU.

use super::lab::{Cpus, LINUX, Lab, Ran, TABLES, table};
use super::numbers::Interval;
use super::render_table;
use super::works::{self, ENDLESS};
use crate::failure::Failure;
use schedlab_model::workload::Workload;
use schedlab_model::{Nanos, Nice};
use serde::Serialize;
use std::sync::Arc;

/// Who shares the CPU with fibo.
struct Pair {
    title: &'static str,
    nice: [i64; 2],
    /// Whether the other is interactive instead of a program that never waits.
    interactive: bool,
}

const fn hogs(nice: [i64; 2]) -> Pair {
    Pair { title: "fibo, primes", nice, interactive: false }
}

const PAIRS: [Pair; 5] = [
    hogs([0, 0]),
    hogs([0, 1]),
    hogs([0, 5]),
    hogs([-5, 0]),
    Pair { title: "fibo, an interactive program", nice: [0, 0], interactive: true },
];

/// One pair under one table.
#[derive(Clone, Debug, Serialize)]
pub struct Share {
    /// Which programs.
    pub pair: &'static str,
    /// Their nice values.
    pub nice: [i64; 2],
    /// The table.
    pub table: &'static str,
    /// Part of both CPU times that fibo got.
    pub found: Interval,
    /// How much more that is than under Linux's table, seed by seed.
    pub more_than_linux: Interval,
    /// What it would be by the weights; `None` of one that sleeps.
    pub by_weights: Option<f64>,
    /// CPU time of both at the quarters of the run, s, means over seeds.
    pub quarters: Vec<[f64; 2]>,
}

/// The part of the first by the weights of a table.
fn by_weights(name: &str, nice: [i64; 2]) -> f64 {
    let table = table(name);
    let weight = |nice| f64::from(table.weight(Nice::widened(nice).expect("within Linux's range")));
    weight(nice[0]) / (weight(nice[0]) + weight(nice[1]))
}

/// Runs all pairs.
pub fn run(lab: &Lab<'_>) -> Result<Vec<Share>, Failure> {
    let seconds = if lab.quick { 10 } else { 60 };
    let jobs: Vec<_> =
        PAIRS.iter().flat_map(|pair| lab.every(&TABLES, Cpus::One, &workload(pair, seconds))).collect();
    let ran = lab.run(&jobs)?;
    let seeds = lab.seeds.len();
    let linux = TABLES.iter().position(|name| *name == LINUX).expect("it is one of them");
    let mut all = Vec::new();
    for (pair, runs) in PAIRS.iter().zip(ran.chunks(TABLES.len() * seeds)) {
        let of_table = |index: usize| &runs[index * seeds..(index + 1) * seeds];
        for (index, name) in TABLES.into_iter().enumerate() {
            all.push(share(pair, name, of_table(index), of_table(linux)));
        }
    }
    Ok(all)
}

fn share(pair: &Pair, name: &'static str, runs: &[Ran], linux: &[Ran]) -> Share {
    let part = |ran: &Ran| ran.tasks[0].cpu_s / (ran.tasks[0].cpu_s + ran.tasks[1].cpu_s);
    let parts: Vec<f64> = runs.iter().map(part).collect();
    let more: Vec<f64> = parts.iter().zip(linux).map(|(own, linux)| own - part(linux)).collect();
    let family = PAIRS.len() * TABLES.len();
    let quarter = |index: usize| {
        [0, 1].map(|task| runs.iter().map(|ran| ran.quarters[index][task]).sum::<f64>() / runs.len() as f64)
    };
    Share {
        pair: pair.title,
        nice: pair.nice,
        table: name,
        found: Interval::of_mean(&parts, family),
        more_than_linux: Interval::of_mean(&more, family),
        by_weights: (!pair.interactive).then(|| by_weights(name, pair.nice)),
        quarters: (0..4).map(quarter).collect(),
    }
}

fn workload(pair: &Pair, seconds: u64) -> Arc<Workload> {
    let [a, b] = pair.nice;
    let fibo = format!("fibo:{ENDLESS},nice={a}");
    let both = if pair.interactive {
        works::with_interactive(works::programs(&fibo), Nanos::from_millis(4))
    } else {
        works::programs(&format!("{fibo}+primes:{ENDLESS},nice={b}"))
    };
    works::cut(both, Nanos::from_secs(seconds))
}

/// As text.
pub fn render(all: &[Share]) -> String {
    let row = |share: &Share| {
        let quarters = |task: usize| {
            let all = share.quarters.iter().map(|both| format!("{:.1}", both[task]));
            all.collect::<Vec<_>>().join(" ")
        };
        let [a, b] = share.nice;
        vec![
            format!("{}, nice {a} and {b}", share.pair),
            share.table.to_owned(),
            quarters(0),
            quarters(1),
            format!("{:.2}", percent(share.found)),
            share.by_weights.map_or("-".to_owned(), |part| format!("{:.2}", part * 100.0)),
            format!("{:+.2}", percent(share.more_than_linux)),
        ]
    };
    let titles = [
        "Figure 3. on one CPU",
        "table",
        "CPU s of fibo",
        "of the other",
        "% of fibo",
        "by weights",
        "more than linux",
    ];
    render_table(&titles, 2, all.iter().map(row).collect())
}

/// An interval of parts, in per cent.
pub fn percent(of: Interval) -> Interval {
    Interval { estimate: of.estimate * 100.0, low: of.low * 100.0, high: of.high * 100.0 }
}
