//! The real sysbench, told a number of events instead of a time, and what it says of them.

use super::Made;
use crate::args::program::Which;
use crate::commands::common::cannot_be_run;
use crate::failure::Failure;
use anyhow::anyhow;
use schedlab_programs::{ProgramError, THREADS_MAX, Work};
use std::process::Command;

/// What to do where it is not.
const INSTALL: &str = "install it (Debian: apt install sysbench),";

/// Why it cannot be run here.
pub fn why_not() -> String {
    match Command::new("sysbench").arg("--version").output() {
        Err(error) => cannot_be_run("sysbench", &error, INSTALL),
        Ok(output) => format!("sysbench --version failed ({}): {INSTALL}", output.status),
    }
}

/// Whether it can be run here.
pub fn is_installed() -> bool {
    Command::new("sysbench").arg("--version").output().is_ok_and(|output| output.status.success())
}

pub(super) fn run(which: Which, work: Work) -> Result<Made, Failure> {
    if !(1..=THREADS_MAX).contains(&work.threads) {
        return Err(Failure::input(ProgramError::Threads(work.threads)));
    }
    if work.size == 0 {
        return Err(Failure::BadInput(anyhow!("{}: --size 0 (events) must be at least 1", which.name())));
    }
    let test = if which == Which::SysbenchCpu { "cpu" } else { "threads" };
    let mut command = Command::new("sysbench");
    command.arg(test).arg(format!("--threads={}", work.threads)).arg(format!("--events={}", work.size));
    // Until the events are done, however long that takes.
    let output = command.args(["--time=0", "run"]).output().map_err(|error| {
        let instead = "or take primes, its cpu test in kind";
        Failure::Machine(anyhow!("{} {instead}", cannot_be_run("sysbench", &error, INSTALL)))
    })?;
    let text = String::from_utf8_lossy(&output.stdout);
    let (Some(seconds), Some(events)) = (seconds(&text), events(&text)) else {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Failure::Machine(anyhow!(
            "sysbench failed ({}): {} {}",
            output.status,
            text.trim(),
            said.trim()
        )));
    };
    Ok(Made {
        program: which.name().to_owned(),
        size: work.size,
        threads: work.threads,
        answer: format!("{events} events"),
        right: events == work.size,
        seconds,
        mflops: None,
    })
}

fn after<'a>(text: &'a str, label: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.trim().strip_prefix(label)).map(str::trim)
}

fn seconds(text: &str) -> Option<f64> {
    after(text, "total time:")?.strip_suffix('s')?.parse().ok()
}

fn events(text: &str) -> Option<u64> {
    after(text, "total number of events:")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_sysbench_says_is_read() {
        let said = "CPU speed:\n    events per second: 48763.79\n\nGeneral statistics:\n    total time:           \
                    0.0012s\n    total number of events:              100\n\nLatency (ms):\n";
        assert_eq!((seconds(said), events(said)), (Some(0.0012), Some(100)));
        assert_eq!((seconds("FATAL: no"), events("")), (None, None));
    }
}
