//! Figure 2: how fast a task's vruntime grows under every table.
//!
//! fibo beside another fibo of its nice value on one CPU. The paper does not tell nice values: nice 0 is what every program has
//! that nobody changes, nice 4 the weakest of its group of five, and the strongest of each table is where the range of
//! weights is widest.

use super::lab::{Cpus, LINUX, Lab, Ran, TABLES, table};
use super::numbers::Interval;
use super::render_table;
use super::works::{self, ENDLESS};
use crate::failure::Failure;
use schedlab_model::workload::Workload;
use schedlab_model::{Nanos, Nice};
use serde::Serialize;
use std::sync::Arc;

/// How often vruntime is looked at.
const QUARTERS: u64 = 4;

/// The tables as the paper has them, with one nice value for each weight.
const SHRUNK: [&str; 4] = ["group:5:shrink", "group:2:shrink", LINUX, "refine:60"];

/// Of fibo at one nice value under one table.
#[derive(Clone, Debug, Serialize)]
pub struct Pace {
    /// Which nice value.
    pub nice: i32,
    /// Whether it is the strongest of the table.
    pub strongest: bool,
    /// The table.
    pub table: &'static str,
    /// Growth of vruntime by CPU time.
    pub found: Interval,
    /// 1024 / weight.
    pub by_weight: f64,
    /// vruntime since the start at the quarters of the run, s, means over seeds.
    pub quarters: Vec<f64>,
}

/// Runs all cases, to each quarter of their length.
pub fn run(lab: &Lab<'_>) -> Result<Vec<Pace>, Failure> {
    let strongest = |name| (table(name).range().0.get(), true, name);
    let at = |nice| TABLES.map(|name| (nice, false, name));
    let cases: Vec<(i32, bool, &'static str)> =
        at(0).into_iter().chain(at(4)).chain(SHRUNK.map(strongest)).collect();
    let quarter_ms = if lab.quick { 250 } else { 2_500 };
    let mut jobs = Vec::new();
    for (nice, _, name) in &cases {
        for quarter in 1..=QUARTERS {
            jobs.extend(lab.every(&[*name], Cpus::One, &workload(*nice, quarter * quarter_ms)));
        }
    }
    let ran = lab.run(&jobs)?;
    let of_cases = ran.chunks(QUARTERS as usize * lab.seeds.len());
    let of = |(&(nice, strongest, name), runs): (&(i32, bool, &'static str), &[Ran])| {
        let quarters: Vec<&[Ran]> = runs.chunks(lab.seeds.len()).collect();
        let mean =
            |runs: &&[Ran]| runs.iter().map(|ran| ran.tasks[0].vruntime_s).sum::<f64>() / runs.len() as f64;
        let whole = quarters[quarters.len() - 1].iter();
        let paces: Vec<f64> = whole.map(|ran| ran.tasks[0].vruntime_s / ran.tasks[0].cpu_s).collect();
        let weight = table(name).weight(Nice::widened(nice.into()).expect("within the table"));
        Pace {
            nice,
            strongest,
            table: name,
            found: Interval::of_mean(&paces, cases.len()),
            by_weight: 1024.0 / f64::from(weight),
            quarters: quarters.iter().map(mean).collect(),
        }
    };
    Ok(cases.iter().zip(of_cases).map(of).collect())
}

fn workload(nice: i32, ms: u64) -> Arc<Workload> {
    let fibo = format!("fibo:{ENDLESS},nice={nice}");
    works::cut(works::programs(&format!("{fibo}+{fibo}")), Nanos::from_millis(ms))
}

/// As text.
pub fn render(all: &[Pace]) -> String {
    let row = |of: &Pace| {
        let strongest = if of.strongest { " (its strongest)" } else { "" };
        let quarters: Vec<String> = of.quarters.iter().map(|seconds| format!("{seconds:.4}")).collect();
        vec![
            format!("{}{strongest}", of.nice),
            of.table.to_owned(),
            quarters.join(" "),
            format!("{:.5}", of.found),
            format!("{:.5}", of.by_weight),
        ]
    };
    let titles =
        ["Figure 2. nice", "table", "vruntime at quarters, s", "vruntime by CPU time", "1024 / weight"];
    render_table(&titles, 2, all.iter().map(row).collect())
}
