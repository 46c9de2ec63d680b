//! `schedlab diff`: what changed between two sides, each of recordings or results of the same work.

use crate::args::recordings::DiffArgs;
use crate::failure::Failure;
use crate::inputs::work;
use crate::output::{print_text, write_json};
use anyhow::{Context as _, anyhow};
use schedlab_import::ImportOptions;
use schedlab_model::recording::Recording;
use schedlab_report::ResultFile;
use schedlab_report::diff::{Diff, SideRun, render};
use schedlab_report::result::SCHEMA_VERSION;
use schedlab_report::text::TextOptions;
use std::collections::{BTreeMap, BTreeSet};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

/// What a side was made of, for the notes.
#[derive(Default)]
struct Side {
    runs: Vec<SideRun>,
    /// What is told when it differs: each value of each label.
    facts: BTreeMap<&'static str, BTreeSet<String>>,
    dropped: u64,
}

/// A file of a side.
enum Input {
    Recording(Box<Recording>),
    Result(PathBuf, Box<ResultFile>),
}

/// Compares and says it.
pub fn run(args: &DiffArgs) -> Result<(), Failure> {
    let (before, after) = (inputs(&args.before)?, inputs(&args.after)?);
    let same = args.before == args.after;
    let (candidates, chosen) = candidates([&before, &after], same, &args.candidate)?;
    let [before, after] = [side(before, candidates[0].as_deref())?, side(after, candidates[1].as_deref())?];
    let mut notes: Vec<String> = chosen.into_iter().collect();
    notes.extend(differences(&before, &after));
    for (name, side) in [("before", &before), ("after", &after)] {
        if side.dropped > 0 {
            notes.push(format!("{} events were lost {name}: counts are too low there", side.dropped));
        }
    }
    let diff = Diff::of(&before.runs, &after.runs, notes);
    if diff.metrics.is_empty() {
        let notes = diff.notes.join("; ");
        return Err(Failure::BadInput(anyhow!(
            "the two sides have no work with a metric in common: {notes}"
        )));
    }
    let value = serde_json::to_value(&diff).context("cannot encode the difference")?;
    if !write_json(args.json.as_deref(), &value)? {
        let color = std::io::stdout().is_terminal();
        print_text(&render(&diff, TextOptions { color }))?;
    }
    Ok(())
}

/// What is not the same on both sides, label by label.
fn differences(before: &Side, after: &Side) -> Vec<String> {
    let labels: BTreeSet<&str> = before.facts.keys().chain(after.facts.keys()).copied().collect();
    let words = |side: &Side, label: &str| match side.facts.get(label) {
        Some(values) => values.iter().map(String::as_str).collect::<Vec<_>>().join(", "),
        None => "unknown".to_owned(),
    };
    let told = |label: &str| (words(before, label), words(after, label));
    let differs = labels.into_iter().map(|label| (label, told(label))).filter(|(_, (old, new))| old != new);
    differs.map(|(label, (old, new))| format!("{label} differs: {old} before, {new} after")).collect()
}

fn inputs(files: &[PathBuf]) -> Result<Vec<Input>, Failure> {
    let read = |file: &PathBuf| {
        if file.extension().is_some_and(|ending| ending == "json") {
            return Ok(Input::Result(file.clone(), Box::new(result(file)?)));
        }
        Ok(Input::Recording(Box::new(work::load_trace(file, &ImportOptions::default())?)))
    };
    files.iter().map(read).collect()
}

fn result(file: &Path) -> Result<ResultFile, Failure> {
    let text = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let result: ResultFile = serde_json::from_slice(&text)
        .with_context(|| format!("{} is no result of compare or simulate", file.display()))?;
    if result.schema_version > SCHEMA_VERSION {
        return Err(Failure::BadInput(anyhow!(
            "{} has schema version {}, this program knows {SCHEMA_VERSION}: use the newer program",
            file.display(),
            result.schema_version
        )));
    }
    Ok(result)
}

/// The candidates that all results of a side have, in the order of the first; `None` if it is made of recordings only.
fn offered(side: &[Input]) -> Option<Vec<String>> {
    let names = side.iter().filter_map(|input| match input {
        Input::Result(_, result) => Some(result.candidates.iter().map(|candidate| candidate.name.clone())),
        Input::Recording(_) => None,
    });
    names.map(Iterator::collect::<Vec<String>>).reduce(|mut all, other| {
        all.retain(|name| other.contains(name));
        all
    })
}

/// Whose runs are compared, and a note if that was a choice.
fn candidates(
    sides: [&[Input]; 2],
    same: bool,
    asked: &[String],
) -> Result<([Option<String>; 2], Option<String>), Failure> {
    match asked {
        [] => {}
        [one] => return Ok(([Some(one.clone()), Some(one.clone())], None)),
        [old, new] => return Ok(([Some(old.clone()), Some(new.clone())], None)),
        more => {
            return Err(Failure::BadInput(anyhow!(
                "--candidate takes one name, or one for each side; it was given {}",
                more.len()
            )));
        }
    }
    let names = sides.map(offered);
    let first = |side: usize| names[side].as_ref().and_then(|names| names.first().cloned());
    let pair = match &names {
        [Some(old), Some(_)] if same && old.len() > 1 => [Some(old[0].clone()), Some(old[1].clone())],
        [Some(old), Some(new)] => match old.iter().find(|name| new.contains(name)) {
            Some(both) if old.len() > 1 || new.len() > 1 => [Some(both.clone()), Some(both.clone())],
            _ => [first(0), first(1)],
        },
        _ => [first(0), first(1)],
    };
    let several = names.iter().flatten().any(|names| names.len() > 1);
    let words = |side: usize| {
        let others = names[side].as_ref().map(|names| names.join(", ")).unwrap_or_default();
        format!("{} of {others}", pair[side].as_deref().unwrap_or("a recording"))
    };
    let note = several.then(|| {
        format!("compared are {} before and {} after; --candidate names others", words(0), words(1))
    });
    Ok((pair, note))
}

fn side(inputs: Vec<Input>, candidate: Option<&str>) -> Result<Side, Failure> {
    let mut side = Side::default();
    for input in inputs {
        match input {
            Input::Recording(recording) => {
                side.dropped += recording.provenance.dropped;
                let facts = [
                    ("the work", recording.provenance.what()),
                    ("the kernel", recording.provenance.kernel_release.clone()),
                    ("the scheduler", recording.provenance.scheduler.clone()),
                    ("the number of CPUs", recording.machine.topology.cpu_count().to_string()),
                ];
                side.know(facts);
                side.runs.push(SideRun::of_recording(&recording));
            }
            Input::Result(file, result) => side.result(&file, &result, candidate)?,
        }
    }
    Ok(side)
}

impl Side {
    fn know<const N: usize>(&mut self, facts: [(&'static str, String); N]) {
        for (label, value) in facts {
            self.facts.entry(label).or_default().insert(value);
        }
    }

    fn result(&mut self, file: &Path, result: &ResultFile, candidate: Option<&str>) -> Result<(), Failure> {
        let names: Vec<&str> = result.candidates.iter().map(|candidate| candidate.name.as_str()).collect();
        let candidate = candidate.or(names.first().copied()).unwrap_or_default();
        if !names.contains(&candidate) {
            return Err(Failure::BadInput(anyhow!(
                "{} has no candidate '{candidate}'; it has: {}",
                file.display(),
                names.join(", ")
            )));
        }
        let runs = SideRun::of_result(result, candidate);
        if runs.is_empty() {
            return Err(Failure::BadInput(anyhow!("{} holds no run of '{candidate}'", file.display())));
        }
        for work in &result.works {
            self.know([("the work", work.name.clone())]);
        }
        self.know([
            ("the candidate", candidate.to_owned()),
            ("the number of CPUs", result.environment.cpus.to_string()),
        ]);
        self.runs.extend(runs);
        Ok(())
    }
}
