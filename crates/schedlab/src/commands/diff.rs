//! `schedlab diff`: what changed between two sides, each of recordings or results of the same work.

use crate::args::recordings::DiffArgs;
use crate::failure::Failure;
use crate::inputs::work;
use crate::output::{print_text, write_json};
use anyhow::{Context as _, anyhow};
use schedlab_import::ImportOptions;
use schedlab_report::ResultFile;
use schedlab_report::diff::{Diff, SideRun, render};
use schedlab_report::result::SCHEMA_VERSION;
use schedlab_report::text::TextOptions;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

/// What a side was made of, for the notes.
#[derive(Default)]
struct Side {
    runs: Vec<SideRun>,
    /// What is told when it differs: label and value.
    facts: Vec<(&'static str, String)>,
    dropped: u64,
}

/// Compares and says it.
pub fn run(args: &DiffArgs) -> Result<(), Failure> {
    let (before, after) = (side(&args.before, args)?, side(&args.after, args)?);
    let mut notes = Vec::new();
    for (old, new) in before.facts.iter().zip(&after.facts) {
        if old != new {
            notes.push(format!("{} differs: {} before, {} after", old.0, old.1, new.1));
        }
    }
    for (name, side) in [("before", &before), ("after", &after)] {
        if side.dropped > 0 {
            notes.push(format!("{} events were lost {name}: counts are too low there", side.dropped));
        }
    }
    let diff = Diff::of(&before.runs, &after.runs, notes);
    if diff.metrics.is_empty() {
        return Err(Failure::BadInput(anyhow!("the two sides have no metric in common")));
    }
    let value = serde_json::to_value(&diff).context("cannot encode the difference")?;
    if !write_json(args.json.as_deref(), &value)? {
        let color = std::io::stdout().is_terminal();
        print_text(&render(&diff, TextOptions { color }))?;
    }
    Ok(())
}

fn side(files: &[PathBuf], args: &DiffArgs) -> Result<Side, Failure> {
    let mut side = Side::default();
    for file in files {
        if file.extension().is_some_and(|ending| ending == "json") {
            result(file, args, &mut side)?;
        } else {
            let recording = work::load_trace(file, &ImportOptions::default())?;
            side.dropped += recording.provenance.dropped;
            let machine = &recording.machine;
            side.facts = vec![
                ("the work", recording.provenance.what()),
                ("the kernel", recording.provenance.kernel_release.clone()),
                ("the scheduler", recording.provenance.scheduler.clone()),
                ("the number of CPUs", machine.topology.cpu_count().to_string()),
            ];
            side.runs.push(SideRun::of_recording(&recording));
        }
    }
    Ok(side)
}

fn result(file: &Path, args: &DiffArgs, side: &mut Side) -> Result<(), Failure> {
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
    let names: Vec<&str> = result.candidates.iter().map(|candidate| candidate.name.as_str()).collect();
    let candidate = match &args.candidate {
        Some(name) if names.contains(&name.as_str()) => name.clone(),
        Some(name) => {
            return Err(Failure::BadInput(anyhow!(
                "{} has no candidate '{name}'; it has: {}",
                file.display(),
                names.join(", ")
            )));
        }
        None => names.first().map(|name| (*name).to_owned()).unwrap_or_default(),
    };
    let runs = SideRun::of_result(&result, &candidate);
    if runs.is_empty() {
        return Err(Failure::BadInput(anyhow!("{} holds no run of '{candidate}'", file.display())));
    }
    let works: Vec<&str> = result.works.iter().map(|work| work.name.as_str()).collect();
    side.facts = vec![("the work", works.join(", ")), ("the candidate", candidate)];
    side.runs.extend(runs);
    Ok(())
}
