//! Pairs in virtual machines: one boot a pair, in which a script plays A and B in turn and calibrates before.
//!
//! Each guest has one CPU and a clock of 1 ns an instruction: two emulated CPUs would take turns, and the time in which one
//! stands still would look like run delay. Times in it do not depend on the host, which need not be at rest.
//! What a knob is, or which scheduler, comes from the plan; the recordings come out and are judged like any other.

use crate::measure::{Runner, names, read_recording, words};
use anyhow::{Context, Result};
use schedlab_report::fidelity::measured::{Numbers, PairRuns, Prediction, Source};
use schedlab_report::fidelity::plan::Pair;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Live pairs in one boot, and seeds of a simulated run.
const RUNS: u64 = 5;
const SEEDS: u64 = 8;
/// A boot with its runs takes no longer.
const TIME_LIMIT: &str = "900s";

/// Measures one pair and keeps it.
pub fn pair(runner: &Runner, pair: &Pair) -> Result<()> {
    let began = Instant::now();
    let mut runs = PairRuns { name: pair.name.clone(), ..PairRuns::default() };
    runs.problem = measure(runner, pair, &mut runs).err().map(|error| format!("{error:#}"));
    runner.told(&pair.name, began, runs.problem.as_deref());
    runner.keep(&format!("pair-{}", pair.name), &runs)
}

fn measure(runner: &Runner, pair: &Pair, runs: &mut PairRuns) -> Result<()> {
    let machine = runner.path(&format!("machine-{}.toml", pair.kernel));
    if let Some(before) = runner.before::<PairRuns>("pair", &pair.name)? {
        (runs.live_a, runs.live_b) = (before.live_a, before.live_b);
    } else {
        live_pairs(runner, pair, &machine, runs)?;
    }
    if runner.options.live_only {
        return Ok(());
    }
    let (a, b) = (runner.work(&pair.work), runner.changed_work(pair));
    let scheduler = if pair.scheduler.is_empty() { "fair" } else { &pair.scheduler };
    let mut of = Prediction { source: Source::File, ..Prediction::default() };
    for seed in 1..=runner.count(SEEDS) {
        of.a.push(runner.simulated(&a.display().to_string(), "fair", &[], seed, &machine)?);
        of.b.push(runner.simulated(&b.display().to_string(), scheduler, &pair.set, seed, &machine)?);
    }
    runs.predictions.push(of);
    Ok(())
}

fn live_pairs(runner: &Runner, pair: &Pair, machine: &Path, runs: &mut PairRuns) -> Result<()> {
    let count = runner.count(RUNS);
    let script = runner.path("guest.sh");
    let calibrate = !machine.exists();
    std::fs::write(&script, text(pair, count, calibrate)).with_context(|| script.display().to_string())?;
    let (a, b) = (runner.work(&pair.work), runner.changed_work(pair));
    let mut arguments = words(&["vm", "boot", "--icount", "--cpus", "1", "--kernel", &pair.kernel]);
    arguments.extend(words(&["--time-limit", TIME_LIMIT]));
    for (host, guest) in [(&script, "/pair.sh"), (&a, "/a.toml"), (&b, "/b.toml")] {
        arguments.extend(words(&["--file", &format!("{}={guest}", host.display())]));
    }
    let live = |side: &str, run: u64| runner.path(&format!("guest-{side}{run}.slrec"));
    let mut out: Vec<(String, PathBuf)> = Vec::new();
    for run in 1..=count {
        out.extend(["a", "b"].map(|side| (format!("/{side}{run}.slrec"), live(side, run))));
    }
    if calibrate {
        arguments.extend(words(&["--collect", &format!("/machine.toml={}", machine.display())]));
    }
    for (guest, host) in &out {
        arguments.extend(words(&["--collect", &format!("{guest}={}", host.display())]));
    }
    arguments.extend(words(&["--", "sh", "/pair.sh"]));
    runner.schedlab(&arguments)?;
    let own = names(&a)?;
    for run in 1..=count {
        runs.live_a.push(Numbers::of(&read_recording(&live("a", run))?, &own));
        runs.live_b.push(Numbers::of(&read_recording(&live("b", run))?, &own));
    }
    out.iter().for_each(|(_, file)| drop(std::fs::remove_file(file)));
    Ok(())
}

/// What the guest runs: A and B, B and A, and so on. A knob is put back after each B.
fn text(pair: &Pair, count: u64, calibrate: bool) -> String {
    let measure = if calibrate {
        "schedlab --quiet machine --calibrate --output /machine.toml >/dev/null\n"
    } else {
        ""
    };
    let mut text = "set -e\nmount -t debugfs none /sys/kernel/debug || true\n".to_owned();
    text += measure;
    text += "a() { schedlab --quiet play /a.toml --seed $1 --record /a$1.slrec >/dev/null; }\n";
    let (mut before, mut after) = (String::new(), String::new());
    for (name, value) in pair.set.iter().filter_map(|setting| setting.split_once('=')) {
        let file = format!("/sys/kernel/debug/sched/{name}");
        text += &format!("old_{name}=$(cat {file})\n");
        before += &format!("echo {value} >{file}; ");
        after += &format!("echo $old_{name} >{file}; ");
    }
    let run = if pair.scheduler.is_empty() {
        String::new()
    } else {
        format!("schedlab --quiet run {} -- ", pair.scheduler)
    };
    text += &format!(
        "b() {{ {before}{run}schedlab --quiet play /b.toml --seed $1 --record /b$1.slrec >/dev/null; {after}}}\n"
    );
    for run in 1..=count {
        let order = if run % 2 == 1 { ["a", "b"] } else { ["b", "a"] };
        text += &format!("{} {run}\n{} {run}\n", order[0], order[1]);
    }
    text
}
