//! `cargo xtask fuzz`: libFuzzer over the targets of `fuzz/`, guided by coverage, on the stable compiler.
//!
//! cargo hands every rustc call for a crate of this workspace to this program (`RUSTC_WORKSPACE_WRAPPER`), which adds
//! LLVM's coverage counters and debug assertions; other people's crates are built as for a release. That needs no
//! nightly flags. There are no sanitisers: what `unsafe` code does wrong shows only as a crash.

use crate::setup::{self, Level};
use crate::sys;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

const USAGE: &str = "\
usage: cargo xtask fuzz [TARGET] [--seconds N] [--canary] [--keep]

Runs a target, or each in turn, for N seconds (60). What fails is saved in TARGET_DIR/fuzz/TARGET/ and belongs, once
mended, into fuzz/corpus/TARGET/, which every test run goes through.

  --seconds N   how long each target runs
  --canary      plant the target's fault: it must be found
  --keep        put the smallest inputs that reach all that was reached into fuzz/corpus/TARGET
";

/// Set for the compiler calls that come back to this program.
const WRAPPER: &str = "SCHEDLAB_FUZZ_RUSTC";

/// What makes LLVM count which edges were taken and show comparisons to the fuzzer; stable flags of rustc.
const COVERAGE: &[&str] = &[
    "--cfg=fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Cdebug-assertions=on",
    "-Coverflow-checks=on",
];

/// Larger inputs find nothing that smaller ones do not.
const INPUT_BYTES_MAX: u32 = 4096;

/// If cargo called this program as a compiler: calls rustc with the coverage flags.
pub fn as_compiler() -> Option<ExitCode> {
    std::env::var_os(WRAPPER)?;
    let mut arguments = std::env::args_os().skip(1);
    let mut rustc = Command::new(arguments.next()?);
    let rest: Vec<_> = arguments.collect();
    // Build scripts run now and are no part of the program; questions about the compiler name no crate.
    let crate_name = rest.iter().position(|word| word == "--crate-name").and_then(|at| rest.get(at + 1));
    rustc.args(&rest);
    if crate_name.is_some_and(|name| name != "build_script_build" && name != "___") {
        rustc.args(COVERAGE);
    }
    let status = rustc.status().ok()?;
    Some(ExitCode::from(sys::exit_code(status)))
}

struct Wish {
    target: Option<String>,
    seconds: u64,
    canary: bool,
    keep: bool,
}

fn parse(arguments: &[String]) -> Option<Wish> {
    let mut wish = Wish { target: None, seconds: 60, canary: false, keep: false };
    let mut left = arguments.iter();
    while let Some(argument) = left.next() {
        match argument.as_str() {
            "--seconds" => wish.seconds = left.next()?.parse().ok()?,
            "--canary" => wish.canary = true,
            "--keep" => wish.keep = true,
            name if !name.starts_with('-') && wish.target.is_none() => wish.target = Some(name.to_owned()),
            _ => return None,
        }
    }
    Some(wish)
}

/// Runs the command.
pub fn run(arguments: &[String]) -> Result<ExitCode> {
    let Some(wish) = parse(arguments) else {
        eprint!("{USAGE}");
        return Ok(ExitCode::from(2));
    };
    if let Err(code) = setup::ensure(Level::Fuzz) {
        return Ok(code);
    }
    let corpus = sys::root().join("fuzz/corpus");
    let names = targets(&corpus)?;
    let chosen: Vec<&String> =
        names.iter().filter(|name| wish.target.as_ref().is_none_or(|wanted| wanted == *name)).collect();
    if chosen.is_empty() {
        eprintln!("xtask fuzz: no such target; there are: {}", names.join(" "));
        return Ok(ExitCode::from(2));
    }
    let binary = build()?;
    let mut failed = Vec::new();
    for name in chosen {
        println!("==== {name}");
        if one(&binary, name, &corpus, &wish)? == wish.canary {
            failed.push(name.as_str());
        }
    }
    if failed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let what = if wish.canary { "did not find their planted fault" } else { "failed" };
    eprintln!("xtask fuzz: {what}: {}", failed.join(" "));
    Ok(ExitCode::from(1))
}

/// Each target has a directory with its kept inputs.
fn targets(corpus: &Path) -> Result<Vec<String>> {
    let entries = std::fs::read_dir(corpus).with_context(|| format!("{}", corpus.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

fn build() -> Result<PathBuf> {
    let mut build = sys::cargo(&["build", "--release", "-p", "schedlab-fuzz", "--features", "libfuzzer"]);
    build.env(WRAPPER, "1").env("RUSTC_WORKSPACE_WRAPPER", std::env::current_exe()?);
    if !build.status()?.success() {
        bail!("the fuzz targets do not build");
    }
    Ok(sys::target_dir()?.join("release/schedlab-fuzz"))
}

/// Runs one target; whether it ended without a failure.
fn one(binary: &Path, name: &str, corpus: &Path, wish: &Wish) -> Result<bool> {
    let place = sys::target_dir()?.join("fuzz").join(name);
    let found = place.join(if wish.canary { "canary" } else { "corpus" });
    std::fs::create_dir_all(&found)?;
    let seeded = Command::new(binary)
        .env("SCHEDLAB_FUZZ_TARGET", name)
        .env("SCHEDLAB_FUZZ_SEEDS", &place)
        .stderr(Stdio::null())
        .status()?;
    anyhow::ensure!(seeded.success(), "the seeds of {name} cannot be written to {}", place.display());
    let (seeds, words) = (place.join("seeds"), place.join("words"));
    let kept = corpus.join(name);
    let mut fuzzer = fuzzer(binary, name, wish);
    if std::fs::metadata(&words)?.len() > 0 {
        fuzzer.arg(format!("-dict={}", words.display()));
    }
    fuzzer.arg(format!("-max_total_time={}", wish.seconds));
    fuzzer.arg(format!("-artifact_prefix={}/", place.display()));
    let clean = fuzzer.arg(&found).arg(&kept).arg(&seeds).status()?.success();
    if wish.keep && clean {
        // The smallest set: kept inputs first, so that they stay.
        let mut merge = self::fuzzer(binary, name, wish);
        merge.arg("-merge=1").arg(&kept).arg(&found).arg(&seeds);
        anyhow::ensure!(merge.status()?.success(), "the corpus of {name} could not be merged");
    }
    Ok(clean)
}

fn fuzzer(binary: &Path, name: &str, wish: &Wish) -> Command {
    let mut fuzzer = Command::new(binary);
    fuzzer.env("SCHEDLAB_FUZZ_TARGET", name);
    if wish.canary {
        fuzzer.env("SCHEDLAB_FUZZ_PLANTED", "1");
    }
    fuzzer.args(["-timeout=20", "-rss_limit_mb=2048", "-print_final_stats=1", "-len_control=10"]);
    fuzzer.arg(format!("-max_len={INPUT_BYTES_MAX}"));
    fuzzer
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn arguments_are_read_in_any_order() {
        let words: Vec<String> = ["--seconds", "600", "object", "--canary"].map(str::to_owned).into();
        let wish = parse(&words).expect("they are right");
        assert_eq!((wish.target.as_deref(), wish.seconds, wish.canary), (Some("object"), 600, true));
        assert!(parse(&["--seconds".to_owned()]).is_none());
        assert!(parse(&["--wrong".to_owned()]).is_none());
    }
}
