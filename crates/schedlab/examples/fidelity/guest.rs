//! Pairs in virtual machines: a boot for each run of A and of B, in which a script plays both; the first also calibrates.
//!
//! Each guest has one CPU and a clock of 1 ns an instruction: two emulated CPUs would take turns, and the time in which one
//! stands still would look like run delay. Times in it do not depend on the host, which need not be at rest. Within one
//! boot runs are next to equal, so that an interval of them would say how well emulation repeats itself and nothing of
//! kernels: what differs between machines is drawn anew by each boot.
//! What a knob is, or which scheduler, comes from the plan; the recordings come out, are judged like any other, and those
//! of A replay as A and as B with what else runs in the guest.

use crate::measure::{Runner, names, read_recording, words};
use anyhow::{Context, Result};
use schedlab_report::fidelity::measured::{Numbers, PairRuns, Prediction, Source};
use schedlab_report::fidelity::plan::Pair;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Boots, each with one live pair.
const RUNS: u64 = 5;
/// Seeds of a simulated workload file, and of a replayed recording.
const SEEDS: u64 = 8;
const REPLAY_SEEDS: u64 = 3;
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
        for run in 1..=runner.count(RUNS) {
            live_pair(runner, pair, &machine, run, runs)?;
        }
    }
    if runner.options.live_only {
        return Ok(());
    }
    let beside = runner.recorders(pair, runner.count(RUNS))?;
    let recorders = beside.each_ref().map(String::as_str);
    let mut of_file = Prediction { source: Source::File, ..Prediction::default() };
    let works = [runner.work(&pair.work), runner.changed_work(pair)];
    simulate(runner, pair, works, SEEDS, (&machine, recorders), &mut of_file)?;
    runs.predictions.push(of_file);
    if pair.other.is_empty() {
        let mut of_recordings = Prediction { source: Source::Recording, ..Prediction::default() };
        let whole = (1..).zip(&runs.live_a).filter(|(_, numbers)| numbers.dropped == 0);
        for (run, _) in whole {
            let [a, _] = runner.recordings(pair, run);
            simulate(runner, pair, [a.clone(), a], REPLAY_SEEDS, (&machine, recorders), &mut of_recordings)?;
        }
        runs.predictions.push(of_recordings);
    }
    Ok(())
}

/// Simulates A and B with so many seeds: under the kernel's own scheduler, and with what the pair changes.
fn simulate(
    runner: &Runner,
    pair: &Pair,
    [a, b]: [PathBuf; 2],
    seeds: u64,
    (machine, recorders): (&Path, [&str; 2]),
    of: &mut Prediction,
) -> Result<()> {
    let scheduler = if pair.scheduler.is_empty() { "fair" } else { &pair.scheduler };
    for seed in 1..=runner.count(seeds) {
        let (a, b) = (a.display().to_string(), b.display().to_string());
        of.a.push(runner.simulated(&a, "fair", &[], seed, machine, recorders[0])?);
        of.b.push(runner.simulated(&b, scheduler, &pair.set, seed, machine, recorders[1])?);
    }
    Ok(())
}

/// Boots a machine for one run of A and one of B.
fn live_pair(runner: &Runner, pair: &Pair, machine: &Path, run: u64, runs: &mut PairRuns) -> Result<()> {
    let script = runner.path("guest.sh");
    let calibrate = !machine.exists();
    std::fs::write(&script, text(pair, run, calibrate)).with_context(|| script.display().to_string())?;
    let (a, b) = (runner.work(&pair.work), runner.changed_work(pair));
    let [recorded_a, recorded_b] = runner.recordings(pair, run);
    let mut arguments = words(&["vm", "boot", "--icount", "--cpus", "1", "--kernel", &pair.kernel]);
    arguments.extend(words(&["--time-limit", TIME_LIMIT]));
    for (host, guest) in [(&script, "/pair.sh"), (&a, "/a.toml"), (&b, "/b.toml")] {
        arguments.extend(words(&["--file", &format!("{}={guest}", host.display())]));
    }
    let mut out = vec![("/a.slrec", recorded_a.as_path()), ("/b.slrec", &recorded_b)];
    if calibrate {
        out.push(("/machine.toml", machine));
    }
    for (guest, host) in out {
        arguments.extend(words(&["--collect", &format!("{guest}={}", host.display())]));
    }
    arguments.extend(words(&["--", "sh", "/pair.sh"]));
    runner.schedlab(&arguments)?;
    let own = names(&a)?;
    runs.live_a.push(Numbers::of(&read_recording(&recorded_a)?, &own));
    runs.live_b.push(Numbers::of(&read_recording(&recorded_b)?, &own));
    Ok(())
}

/// What the guest runs: A and B, in every other run B and A. A knob is put back after B.
fn text(pair: &Pair, run: u64, calibrate: bool) -> String {
    let mut text = "set -e\nmount -t debugfs none /sys/kernel/debug || true\n".to_owned();
    if calibrate {
        text += "schedlab --quiet machine --calibrate --output /machine.toml >/dev/null\n";
    }
    let play = |side: &str| {
        format!("schedlab --quiet play /{side}.toml --seed {run} --record /{side}.slrec >/dev/null")
    };
    text += &format!("a() {{ {}; }}\n", play("a"));
    let (mut before, mut after) = (String::new(), String::new());
    for (name, value) in pair.set.iter().filter_map(|setting| setting.split_once('=')) {
        let file = format!("/sys/kernel/debug/sched/{name}");
        text += &format!("old_{name}=$(cat {file})\n");
        before += &format!("echo {value} >{file}; ");
        after += &format!("echo $old_{name} >{file}; ");
    }
    let under = match pair.scheduler.as_str() {
        "" => String::new(),
        scheduler => format!("schedlab --quiet run {scheduler} -- "),
    };
    text += &format!("b() {{ {before}{under}{}; {after}}}\n", play("b"));
    text += if run % 2 == 1 { "a\nb\n" } else { "b\na\n" };
    text
}
