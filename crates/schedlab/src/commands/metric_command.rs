//! `--metric-command`: a number of the user's own, from what each run yielded.
//!
//! The command reads the run as JSON (an element of `runs` in the result file) and prints one number. It runs in a
//! shell, as the user who called, once for each run.

use crate::failure::Failure;
use anyhow::{Context as _, anyhow};
use schedlab_control::CompareRuns;
use schedlab_model::lever::Candidate;
use schedlab_model::metric::{Direction, Metric};
use schedlab_model::outcome::RunRequest;
use schedlab_report::Objective;
use schedlab_report::result::RunRecord;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// A metric that a command computes.
pub struct MetricCommand {
    name: String,
    command: String,
    direction: Direction,
}

impl MetricCommand {
    /// From `NAME=COMMAND`.
    pub fn new(text: &str, higher_is_better: bool) -> Result<MetricCommand, Failure> {
        let bad = |reason: &str| {
            let example = "--metric-command 'slowest=jq .values.wait_max'";
            Failure::BadInput(anyhow!("metric command '{text}': {reason}; write e.g. {example}"))
        };
        let (name, command) = text.split_once('=').ok_or_else(|| bad("no '=' between name and command"))?;
        let (name, command) = (name.trim(), command.trim());
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty() || !name.chars().all(is_word) {
            return Err(bad("a name is made of letters, digits and '_'"));
        }
        if Metric::ALL.iter().any(|metric| metric.key() == name) {
            return Err(bad("this metric is there already, choose another name"));
        }
        if command.is_empty() {
            return Err(bad("no command"));
        }
        let direction = if higher_is_better { Direction::Higher } else { Direction::Lower };
        Ok(MetricCommand { name: name.to_owned(), command: command.to_owned(), direction })
    }

    /// To compare by it.
    pub fn objective(&self) -> Objective {
        Objective::Custom { name: self.name.clone(), direction: self.direction }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Gives every run its number.
    pub fn apply(&self, candidates: &[Candidate], runs: &mut CompareRuns) -> Result<(), Failure> {
        for cell in &mut runs.cells {
            let Ok(outcome) = &mut cell.outcome else { continue };
            let candidate = &candidates[cell.candidate];
            let request =
                RunRequest { candidate, work: cell.work, seed: cell.seed, cost_seed: cell.cost_seed };
            let value = self.measure(&RunRecord::of(&request, outcome))?;
            outcome.metrics.custom = Some((self.name.clone(), value));
        }
        Ok(())
    }

    fn measure(&self, run: &RunRecord) -> Result<f64, Failure> {
        let what = format!("metric command '{}'", self.command);
        let json = serde_json::to_vec(run).expect("a record is plain data");
        let mut shell = Command::new("sh");
        shell.args(["-c", &self.command]);
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some((uid, gid)) = schedlab_host::record::invoking_ids() {
            shell.uid(uid).gid(gid);
        }
        let mut child = shell.spawn().with_context(|| format!("{what} could not be started"))?;
        let mut stdin = child.stdin.take().expect("it is piped");
        // A command need not read what it does not care for.
        let written = std::thread::spawn(move || stdin.write_all(&json));
        let output = child.wait_with_output().with_context(|| format!("{what} was lost"))?;
        drop(written.join());
        let error = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            return Err(anyhow!("{what} failed ({}): {}", output.status, error.trim()).into());
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let value = text.trim().parse::<f64>().ok().filter(|value| value.is_finite());
        value.ok_or_else(|| {
            anyhow!("{what} printed '{}' for {}, not one number", text.trim(), run.candidate).into()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_commands_are_read() {
        let metric = MetricCommand::new("slowest = jq '.values[\"a=b\"]'", true).expect("is one");
        assert_eq!((metric.name(), metric.command.as_str()), ("slowest", "jq '.values[\"a=b\"]'"));
        assert_eq!(metric.objective().direction(), Direction::Higher);
        for bad in ["jq .", "=jq .", "a b=jq .", "makespan=jq .", "x="] {
            let Err(error) = MetricCommand::new(bad, false) else { panic!("'{bad}' is none") };
            assert_eq!(error.code(), 2);
        }
    }
}
