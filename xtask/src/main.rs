//! The one door to all automation: `cargo xtask demo|test|ci|docs|fidelity|fuzz|switches|vm`.
//!
//! What a step does lives in its own file: `setup` (system packages), `suite` (what `test` and `ci` run),
//! `docs` (pages made from sources), `fidelity` (the measured page), `fuzz` (the fuzz
//! targets), `vm` (a command inside a real kernel), `tidy` and `deps` (rules about the
//! sources, which are also tests of this crate). No product code lives here, and nothing here links to a system
//! library, because this is the program that installs them.

// Talking to the person at the terminal is this program's work.
#![allow(clippy::print_stdout)]

mod demo;
#[cfg(test)]
mod deps;
mod docs;
mod fidelity;
mod fuzz;
mod setup;
mod suite;
mod sys;
#[cfg(test)]
mod tidy;
mod vm;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  demo                 build the release binary and run the demonstration
  test                 everything CI checks: format, lints, rules, tests, virtual machine, documentation
  ci                   the same, and nothing may be skipped
  docs [--check]       make the pages that come from sources; with --check only say which are stale
  fidelity [OPTIONS]   measure how well the simulated kernel predicts this one, make docs/fidelity.md (--help)
  fuzz [TARGET]        run fuzz targets, guided by coverage (--help lists the options)
  switches [N]         our schedulers replace each other N times (100) under load in a virtual machine
  vm [OPTIONS] -- CMD  run CMD in a virtual machine with a sched_ext kernel (--help lists the options)

exit codes: 0 done; 1 a check failed; 2 usage; 3 this machine cannot do it, the remedy is printed
";

fn main() -> ExitCode {
    if let Some(code) = fuzz::as_compiler() {
        return code;
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let rest = arguments.get(1..).unwrap_or_default();
    let result = match arguments.first().map(String::as_str) {
        Some("demo") => demo::run(rest),
        Some("test") => suite::run(rest, suite::Strictness::from_environment()),
        Some("ci") => suite::run(rest, suite::Strictness::NothingSkipped),
        Some("docs") => docs::run(rest),
        Some("fidelity") => fidelity::run(rest),
        Some("fuzz") => fuzz::run(rest),
        Some("switches") => vm::switches(rest),
        Some("vm") => vm::run(rest),
        Some("help" | "--help" | "-h") => {
            eprint!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    result.unwrap_or_else(|error| {
        eprintln!("xtask: {error:#}");
        ExitCode::from(1)
    })
}
