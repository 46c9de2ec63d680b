//! What recording costs: interleaved pairs of `hackbench -g 4 -l 2000` with and without the recorder.
//!
//! `record_overhead [PAIRS [COMMAND...]]` prints the ratio of wall times with a bootstrap interval, events,
//! bytes an event, drops and the recorder's own CPU time. The ratio of the command's CPU times, the recorder's
//! own added to it, says the same where other work on the machine blurs wall times.
//!
//! Both runs are timed by the same parent process from before the command is started until it has ended, which
//! is part of the target in the recorded one: what the recorder does before it lets its target start slows
//! nothing down.
#![allow(clippy::print_stdout)]

use schedlab_host::record::{Detail, RecordOptions, RecordSummary, Target, record};
use std::fs::Permissions;
use std::io::BufWriter;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::Instant;
use tempfile::NamedTempFile;

type Failure = Box<dyn std::error::Error>;

/// CPU time of the children that have ended.
fn children_cpu() -> f64 {
    // SAFETY: the struct is plain numbers, and the call fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// Makes this program the parent that runs a command and leaves its wall time in a file.
const TIMED: &str = "--timed";

fn timed(times: &str, command: &[String]) -> Result<(), Failure> {
    let start = Instant::now();
    let status = Command::new(&command[0]).args(&command[1..]).stdout(Stdio::null()).status()?;
    let seconds = start.elapsed().as_secs_f64();
    if !status.success() {
        return Err(format!("{} failed: {status}", command[0]).into());
    }
    Ok(std::fs::write(times, seconds.to_string())?)
}

/// The words that run the command under the timing parent, and where that leaves the time.
fn under_parent(command: &[String]) -> Result<(Vec<String>, NamedTempFile), Failure> {
    let times = NamedTempFile::new()?;
    // The recorder runs the command as who called sudo.
    std::fs::set_permissions(times.path(), Permissions::from_mode(0o666))?;
    let own = std::env::current_exe()?.to_string_lossy().into_owned();
    let first = [own, TIMED.to_owned(), times.path().to_string_lossy().into_owned()];
    Ok((first.into_iter().chain(command.iter().cloned()).collect(), times))
}

fn seconds(times: &NamedTempFile) -> Result<f64, Failure> {
    let text = std::fs::read_to_string(times.path())?;
    text.parse().map_err(|_| "the command did not run to its end".into())
}

fn plain(command: &[String]) -> Result<f64, Failure> {
    let (words, times) = under_parent(command)?;
    Command::new(&words[0]).args(&words[1..]).status()?;
    seconds(&times)
}

fn recorded(command: &[String]) -> Result<(f64, RecordSummary), Failure> {
    let (words, times) = under_parent(command)?;
    let file = tempfile::tempfile()?;
    let mut options = RecordOptions::new(Target::Command(words));
    options.detail = match std::env::var("DETAIL").as_deref() {
        Ok("full") => Detail::Full,
        Ok("counted") => Detail::Counted,
        Ok("scheduling") => Detail::Scheduling,
        _ => Detail::Adaptive,
    };
    let summary = record(&options, BufWriter::with_capacity(1 << 20, file), &mut ())?;
    Ok((seconds(&times)?, summary))
}

/// A small generator is enough to resample pairs.
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0
}

/// Median of the pairs' ratios with its 95 % bootstrap interval.
fn interval(ratios: &[f64]) -> (f64, f64, f64) {
    let mut state = 0x5eed_u64;
    let mut medians: Vec<f64> = (0..10_000)
        .map(|_| {
            let mut sample: Vec<f64> =
                ratios.iter().map(|_| ratios[next(&mut state) as usize % ratios.len()]).collect();
            median(&mut sample)
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    (median(&mut ratios.to_vec()), medians[250], medians[9_750])
}

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1).peekable();
    if arguments.next_if(|first| first == TIMED).is_some() {
        let times = arguments.next().ok_or("a file for the time")?;
        return timed(&times, &arguments.collect::<Vec<_>>());
    }
    let pairs: usize = arguments.next().map_or(Ok(8), |text| text.parse())?;
    let mut command: Vec<String> = arguments.collect();
    if command.is_empty() {
        command = ["hackbench", "-g", "4", "-l", "2000"].map(str::to_owned).to_vec();
    }
    let (mut ratios, mut cpu_ratios) = (Vec::new(), Vec::new());
    for pair in 0..pairs {
        // The order alternates, so that a drift of the machine favours neither.
        let first = children_cpu();
        let before = if pair % 2 == 0 { Some(plain(&command)?) } else { None };
        let second = children_cpu();
        let (with, summary) = recorded(&command)?;
        let third = children_cpu();
        let without = before.map_or_else(|| plain(&command), Ok)?;
        let plain_cpu = second - first + children_cpu() - third;
        let cpu_ratio = (third - second + summary.recorder_cpu.as_secs_f64()) / plain_cpu;
        ratios.push(with / without);
        cpu_ratios.push(cpu_ratio);
        println!(
            "pair {pair}: {without:.3} s plain, {with:.3} s recorded, ratio {:.3}, of CPU {cpu_ratio:.3}; {} events, {:.2} bytes each, \
             {} dropped, recorder CPU {:.3} s, counted from {:?}, {} gaps",
            with / without,
            summary.events,
            summary.bytes as f64 / summary.events as f64,
            summary.dropped_per_cpu.iter().sum::<u64>(),
            summary.recorder_cpu.as_secs_f64(),
            summary.counted_from,
            summary.gaps,
        );
    }
    for (what, ratios) in [("slowdown", &ratios), ("more CPU", &cpu_ratios)] {
        let (ratio, low, high) = interval(ratios);
        let percent = |ratio: f64| (ratio - 1.0) * 100.0;
        let (ratio, low, high) = (percent(ratio), percent(low), percent(high));
        println!("{what} {ratio:.1} % (95 % interval {low:.1} to {high:.1} %)");
    }
    Ok(())
}
