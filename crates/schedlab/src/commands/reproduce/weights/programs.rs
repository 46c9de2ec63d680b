//! Table 7 and figure 4: programs alone and together under every table; and how slow a program becomes beside others.
//!
//! fibo computes at a stretch, primes is sysbench's cpu test on four threads, sysbench-threads its threads test, whose four
//! take turns at locks, rays is c-ray with four that render blocks of rows, linpack and fft stand for the scientific
//! programs: one thread that works through memory. All have nice 0, as the paper does not tell another.
//! mflops are work by time: they fall as the time rises.

use super::lab::{Cpus, Job, LINUX, Lab, Ran, TABLES};
use super::numbers::Interval;
use super::render_table;
use super::works::{self, ENDLESS};
use crate::failure::Failure;
use schedlab_model::workload::Workload;
use serde::Serialize;
use std::sync::Arc;

/// Built-in programs with their parameters: two seconds of CPU time each, so that all six together keep four CPUs busy for
/// three.
const PROGRAMS: [(&str, &str); 6] = [
    ("fibo", "time=2s"),
    ("primes", "time=2s,threads=4"),
    ("sysbench-threads", "time=25us"),
    ("rays", "time=2s"),
    ("linpack", "time=2s"),
    ("fft", "time=2s"),
];

/// One program under one table.
#[derive(Clone, Debug, Serialize)]
pub struct OfProgram {
    /// The program.
    pub program: &'static str,
    /// The table.
    pub table: &'static str,
    /// Time until it is done, s: alone on the machine.
    pub alone_s: Interval,
    /// The same with all six at once.
    pub together_s: Interval,
    /// Its time alone by that under Linux's table, seed by seed.
    pub alone_by_linux: Interval,
    /// The same with all six at once.
    pub together_by_linux: Interval,
}

/// fibo beside so many others that never end, on one CPU.
#[derive(Clone, Debug, Serialize)]
pub struct Beside {
    /// How many run.
    pub runnable: u32,
    /// Nice value of the others.
    pub nice: i32,
    /// The table.
    pub table: &'static str,
    /// Its time by its time alone under the same table.
    pub slowdown: Interval,
}

/// All that was run.
#[derive(Clone, Debug, Serialize)]
pub struct Programs {
    /// Table 7.
    pub programs: Vec<OfProgram>,
    /// Slowdown by the number of runnable tasks.
    pub beside: Vec<Beside>,
}

/// Runs everything.
pub fn run(lab: &Lab<'_>) -> Result<Programs, Failure> {
    Ok(Programs { programs: table_7(lab)?, beside: beside(lab)? })
}

/// A workload of these programs.
fn workload(programs: &[(&str, &str)]) -> Arc<Workload> {
    let parts = programs.iter().map(|(name, parameters)| format!("{name}:{parameters}"));
    Arc::new(works::programs(&parts.collect::<Vec<_>>().join("+")))
}

fn table_7(lab: &Lab<'_>) -> Result<Vec<OfProgram>, Failure> {
    let alone = PROGRAMS.iter().map(|program| workload(std::slice::from_ref(program)));
    let works: Vec<Arc<Workload>> = alone.chain([workload(&PROGRAMS)]).collect();
    let jobs: Vec<Job> = works.iter().flat_map(|work| lab.every(&TABLES, Cpus::All, work)).collect();
    let ran = lab.run(&jobs)?;
    let seeds = lab.seeds.len();
    // Times of a program in the runs of a work under a table.
    let times = |work: usize, table: usize, program: &str| -> Vec<f64> {
        let first = (work * TABLES.len() + table) * seeds;
        let ends = ran[first..first + seeds].iter().map(|ran: &Ran| ran.end_of(program));
        ends.map(|end| end.expect("programs run to their end")).collect()
    };
    let linux = TABLES.iter().position(|name| *name == LINUX).expect("it is one of them");
    let family = PROGRAMS.len() * (TABLES.len() - 1);
    let mut all = Vec::new();
    for (index, (program, _)) in PROGRAMS.into_iter().enumerate() {
        for (number, table) in TABLES.into_iter().enumerate() {
            let [alone, together] = [index, PROGRAMS.len()].map(|work| times(work, number, program));
            let ratio = |work: usize, values: &[f64]| {
                let base = times(work, linux, program);
                Interval::of_ratio(values.iter().copied().zip(base), family)
            };
            all.push(OfProgram {
                program,
                table,
                alone_s: Interval::of_mean(&alone, family),
                together_s: Interval::of_mean(&together, family),
                alone_by_linux: ratio(index, &alone),
                together_by_linux: ratio(PROGRAMS.len(), &together),
            });
        }
    }
    Ok(all)
}

/// Numbers of runnable tasks, fibo among them.
const RUNNABLE: [u32; 4] = [1, 2, 4, 8];
/// Nice values of the others.
pub const NICE: [i32; 2] = [0, 5];

fn beside(lab: &Lab<'_>) -> Result<Vec<Beside>, Failure> {
    let work = if lab.quick { 1 } else { 5 };
    let mut jobs = Vec::new();
    for nice in NICE {
        for runnable in RUNNABLE {
            jobs.extend(lab.every(&TABLES, Cpus::One, &crowd(runnable, nice, work)));
        }
    }
    let ran = lab.run(&jobs)?;
    let mut groups = ran.chunks(lab.seeds.len());
    let family = NICE.len() * RUNNABLE.len() * TABLES.len();
    let mut all = Vec::new();
    for nice in NICE {
        let mut alone: Vec<Vec<f64>> = Vec::new();
        for runnable in RUNNABLE {
            for (index, table) in TABLES.into_iter().enumerate() {
                let runs = groups.next().expect("a run for every job");
                let times: Vec<f64> =
                    runs.iter().map(|ran| ran.end_of("fibo").expect("it runs to its end")).collect();
                if runnable == 1 {
                    alone.push(times.clone());
                }
                let slowdown = Interval::of_ratio(times.into_iter().zip(alone[index].clone()), family);
                all.push(Beside { runnable, nice, table, slowdown });
            }
        }
    }
    Ok(all)
}

/// fibo of so many seconds beside others that never end.
fn crowd(runnable: u32, nice: i32, seconds: u32) -> Arc<Workload> {
    let other = format!("+fibo:{ENDLESS},again=1,nice={nice}");
    Arc::new(works::programs(&(format!("fibo:time={seconds}s") + &other.repeat(runnable as usize - 1))))
}

/// As text.
pub fn render(all: &Programs) -> String {
    let row = |of: &OfProgram| {
        vec![
            of.program.to_owned(),
            of.table.to_owned(),
            format!("{:.3}", of.alone_s.estimate),
            format!("{}", of.alone_by_linux),
            format!("{:.3}", of.together_s.estimate),
            format!("{:.2}", of.together_s.estimate / of.alone_s.estimate),
            format!("{}", of.together_by_linux),
        ]
    };
    let titles = [
        "Table 7, figure 4. program",
        "table",
        "s alone",
        "of linux's",
        "s together",
        "of alone",
        "of linux's (below 1 is a gain)",
    ];
    let programs = render_table(&titles, 2, all.programs.iter().map(row).collect());
    let cell = |nice: i32, runnable: u32, table: &str| {
        let found = all
            .beside
            .iter()
            .find(|beside| (beside.nice, beside.runnable, beside.table) == (nice, runnable, table));
        found.map_or(String::new(), |beside| format!("{:.2}", beside.slowdown))
    };
    let mut rows = Vec::new();
    for nice in NICE {
        for runnable in RUNNABLE {
            let cells = TABLES.iter().map(|table| cell(nice, runnable, table));
            rows.push([vec![runnable.to_string(), nice.to_string()], cells.collect()].concat());
        }
    }
    let titles = [&["Slowdown of fibo (nice 0): runnable", "nice of the others"][..], &TABLES].concat();
    programs + "\n" + &render_table(&titles, 0, rows)
}
