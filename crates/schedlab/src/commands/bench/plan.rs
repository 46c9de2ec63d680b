//! What a benchmark runs: its parts as workloads, and the knobs of schedulers.

use super::interbench;
use crate::args::bench::{Bench, BenchArgs};
use crate::commands::common::{self, NoKnob};
use crate::failure::Failure;
use anyhow::anyhow;
use schedlab_model::lever::Candidate;
use schedlab_model::machine::KernelVersion;
use schedlab_model::workload::builtin::{BUILTINS, Builtin};

/// The parts with their workloads, and settings that are none of theirs.
pub struct Plan {
    /// Name of each part and the workload it is.
    pub parts: Vec<(String, String)>,
    /// `NAME=VALUE` of schedulers.
    pub knobs: Vec<String>,
    parameters: Vec<String>,
    builtin: &'static Builtin,
}

/// Settings of `--quick`: a tenth of the samples, a fifth of the load.
fn quick(bench: Bench) -> &'static [&'static str] {
    match bench {
        Bench::Wakeup => &["samples=100", "groups=2"],
        Bench::Hackbench => &["groups=2", "loops=20"],
        Bench::Interbench => &["length=3s"],
        // These have a plan of their own.
        Bench::Programs => &[],
    }
}

/// What the benchmark itself asks for where the workload's default is another.
fn usual(bench: Bench) -> &'static [&'static str] {
    match bench {
        Bench::Hackbench => &["groups=10"],
        Bench::Wakeup | Bench::Interbench | Bench::Programs => &[],
    }
}

impl Plan {
    /// Of the command line.
    ///
    /// # Errors
    /// A parameter that means nothing to what is run.
    pub fn new(args: &BenchArgs) -> Result<Plan, Failure> {
        let builtin = workload(args.bench);
        let (given, knobs): (Vec<String>, Vec<String>) =
            args.set.iter().cloned().partition(|set| is_parameter(args.bench, set));
        if is_program(args) {
            check_flags(&given)?;
        }
        let own = if args.quick { quick(args.bench) } else { usual(args.bench) };
        let parameters: Vec<String> = own.iter().map(|set| (*set).to_owned()).chain(given).collect();
        let parts = parts(args.bench, &parameters);
        Ok(Plan { parts, knobs, parameters, builtin })
    }

    /// Value of a parameter.
    pub fn value(&self, name: &str) -> String {
        let of = |set: &str| Some(set.strip_prefix(name)?.strip_prefix('=')?.to_owned());
        let default = self.builtin.parameters.iter().find(|(known, ..)| *known == name);
        let given = self.parameters.iter().rev().find_map(|set| of(set));
        given.unwrap_or_else(|| default.map_or("", |(_, value, _)| value).to_owned())
    }

    /// The schedulers with the settings that are none of the benchmark's.
    ///
    /// # Errors
    /// As of [`common::candidates`]; what nobody has may have been meant for the benchmark.
    pub fn candidates(&self, list: &[String], kernel: KernelVersion) -> Result<Vec<Candidate>, Failure> {
        let made = common::candidates(list, &self.knobs, kernel);
        made.map_err(|failure| match failure {
            Failure::BadInput(error) if error.is::<NoKnob>() => {
                let own: Vec<&str> = self.builtin.parameters.iter().map(|(name, ..)| *name).collect();
                let (bench, own) = (self.builtin.name, own.join(", "));
                Failure::BadInput(anyhow!("{error}; {bench} itself has {own}"))
            }
            other => other,
        })
    }
}

/// Whether the program of the benchmark's name is run, not a model.
pub fn is_program(args: &BenchArgs) -> bool {
    args.bench == Bench::Hackbench && args.live && !args.model
}

/// Parameters of hackbench that the program has, too, with its flags.
pub const FLAGS: [(&str, &str); 4] = [("groups", "-g"), ("loops", "-l"), ("fds", "-f"), ("bytes", "-s")];

/// The program cannot be told what only its model has.
fn check_flags(given: &[String]) -> Result<(), Failure> {
    let is_flag = |set: &&String| FLAGS.iter().any(|(name, _)| set.split('=').next() == Some(name));
    let Some(set) = given.iter().find(|set| !is_flag(set)) else { return Ok(()) };
    let known = FLAGS.map(|(name, _)| name).join(", ");
    Err(Failure::BadInput(anyhow!(
        "--set {set}: the program hackbench takes {known}; --model plays its model, which has all parameters"
    )))
}

fn workload(bench: Bench) -> &'static Builtin {
    let named = BUILTINS.iter().find(|builtin| builtin.name == bench.name());
    named.expect("every benchmark is a built-in workload")
}

/// Whether a `NAME=VALUE` is the benchmark's own and not one of schedulers.
pub fn is_parameter(bench: Bench, set: &str) -> bool {
    let key = set.split('=').next().unwrap_or_default();
    workload(bench).parameters.iter().any(|(name, ..)| *name == key)
}

/// The parts of a benchmark, as names and workloads. Of a parameter that is given twice the last counts.
fn parts(bench: Bench, parameters: &[String]) -> Vec<(String, String)> {
    let name = bench.name();
    let work = |own: &[&str]| {
        let all = parameters.iter().map(String::as_str).chain(own.iter().copied());
        format!("{name}:{}", all.collect::<Vec<_>>().join(","))
    };
    match bench {
        Bench::Wakeup => match parameters.iter().rev().find(|set| set.starts_with("rt=")) {
            Some(set) => vec![(if set == "rt=0" { "normal" } else { "rt" }.to_owned(), work(&[]))],
            None => vec![("rt".to_owned(), work(&["rt=1"])), ("normal".to_owned(), work(&["rt=0"]))],
        },
        Bench::Hackbench | Bench::Programs => vec![(name.to_owned(), work(&[]))],
        Bench::Interbench => {
            let part = |(task, load): (&str, &str)| {
                (format!("{task}/{load}"), work(&[&format!("task={task}"), &format!("load={load}")]))
            };
            interbench::pairs(parameters).into_iter().map(part).collect()
        }
    }
}
