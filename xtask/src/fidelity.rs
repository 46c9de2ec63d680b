//! `cargo xtask fidelity`: measures how well the simulated kernel predicts this one, and makes docs/fidelity.md of it.
//!
//! The example `fidelity` of schedlab measures, judges and writes; here it is built, called, and the page put in its
//! place. A measurement of a part of the plan makes no page: it is shown instead.

use crate::setup::{self, Level};
use crate::sys;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

const USAGE: &str = "\
usage: cargo xtask fidelity [OPTIONS]

Measures the plan of tests/fidelity/plan.toml on this machine (as root, at rest; about an hour, half of it in virtual
machines) and makes docs/fidelity.md. Each load and pair is a file of JSON and its recordings in target/fidelity.

  --from DIR      make the page of what was measured in DIR before, and measure nothing
  --dir DIR       measure into DIR instead of target/fidelity
  --continue      leave out what is measured already
  --again         run nothing live: simulate the recordings of DIR anew, after a change of the model
  --live-only     run live and simulate nothing: --again does that, and needs no machine at rest
  --minutes N     stop after so long, to be continued
  --only NAME     only loads and pairs whose names contain NAME; can be given several times
  --host-only     no virtual machines
  --vm-only       only virtual machines; with these three, earlier results of the rest stay
  --quick         fewest repetitions, to see whether it works; the page goes to standard output
";

/// Words that the example takes as they are, and whether a value follows.
const PASSED: &[(&str, bool)] = &[
    ("--continue", false),
    ("--again", false),
    ("--live-only", false),
    ("--minutes", true),
    ("--only", true),
    ("--host-only", false),
    ("--vm-only", false),
    ("--quick", false),
];

/// What is wanted.
#[derive(Debug, Default, PartialEq)]
struct Wanted {
    from: Option<PathBuf>,
    dir: Option<PathBuf>,
    passed: Vec<String>,
}

/// Measures and makes the page.
pub fn run(arguments: &[String]) -> Result<ExitCode> {
    let Some(wanted) = read(arguments) else {
        eprint!("{USAGE}");
        return Ok(ExitCode::from(2));
    };
    if let Err(code) = setup::ensure(Level::Fidelity) {
        return Ok(code);
    }
    let built = build(wanted.passed.iter().any(|word| word == "--quick"))?;
    let example = built.join("examples/fidelity");
    let plan = sys::root().join("tests/fidelity/plan.toml");
    let dir = match wanted.from.as_ref().or(wanted.dir.as_ref()) {
        Some(dir) => std::path::absolute(dir)?,
        None => sys::target_dir()?.join("fidelity"),
    };
    let mut whole = true;
    if wanted.from.is_none() {
        let mut command = Command::new(&example);
        command.arg("measure").arg("--dir").arg(&dir).arg("--plan").arg(&plan);
        command.arg("--program").arg(built.join("schedlab")).args(&wanted.passed);
        let status = command.status()?;
        whole = status.success();
        // With 1 something could not be measured, and the page says what.
        if !whole && status.code() != Some(1) {
            return Ok(ExitCode::from(sys::exit_code(status)));
        }
    }
    let page = page(&example, &dir, &plan)?;
    if wanted
        .passed
        .iter()
        .any(|word| ["--quick", "--only", "--minutes", "--live-only"].contains(&word.as_str()))
    {
        println!("{page}");
        return Ok(code(whole));
    }
    let path = sys::root().join("docs/fidelity.md");
    std::fs::write(&path, page).with_context(|| path.display().to_string())?;
    println!("{}", path.display());
    Ok(code(whole))
}

fn code(whole: bool) -> ExitCode {
    ExitCode::from(u8::from(!whole))
}

/// Builds the program and the example; where they are. A quick measurement is about whether it works, so it takes what
/// tests have built.
fn build(quick: bool) -> Result<PathBuf> {
    let mut build =
        sys::cargo(&["build", "--quiet", "-p", "schedlab", "--bin", "schedlab", "--example", "fidelity"]);
    if !quick {
        build.arg("--release");
    }
    anyhow::ensure!(build.status()?.success(), "schedlab does not build; the message is above");
    Ok(sys::target_dir()?.join(if quick { "debug" } else { "release" }))
}

fn page(example: &Path, dir: &Path, plan: &Path) -> Result<String> {
    let mut command = Command::new(example);
    command.arg("page").arg("--dir").arg(dir).arg("--plan").arg(plan);
    command.arg("--prose").arg(plan.with_file_name("causes.md"));
    let output = command.stderr(Stdio::inherit()).output()?;
    anyhow::ensure!(output.status.success(), "no page was made");
    Ok(String::from_utf8(output.stdout)?)
}

/// The command line; `None` if it is wrong.
fn read(arguments: &[String]) -> Option<Wanted> {
    let mut wanted = Wanted::default();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--from" => wanted.from = Some(words.next()?.into()),
            "--dir" => wanted.dir = Some(words.next()?.into()),
            word => {
                let (_, takes) = PASSED.iter().find(|(name, _)| *name == word)?;
                wanted.passed.push(word.to_owned());
                if *takes {
                    wanted.passed.push(words.next()?.clone());
                }
            }
        }
    }
    Some(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_known_is_passed_on() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<String>>();
        let wanted = read(&words("--from a --only x --quick")).expect("is right");
        assert_eq!((wanted.from, wanted.passed), (Some("a".into()), words("--only x --quick")));
        assert_eq!(read(&words("--minutes")), None);
        assert_eq!(read(&words("--fast")), None);
    }
}
