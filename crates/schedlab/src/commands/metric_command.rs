//! `--metric-command`: a number of the user's own, from what each run yielded.
//!
//! The command reads the run as JSON (an element of `runs` in the result file, with its tasks) and prints one number of
//! 0 or more. It runs in a shell, as the user who called, once for each run, one after the other.

use crate::failure::Failure;
use crate::progress;
use anyhow::{Context as _, anyhow};
use schedlab_control::CompareRuns;
use schedlab_host::guarded::Guard;
use schedlab_host::record::kill_group;
use schedlab_model::lever::Candidate;
use schedlab_model::metric::{Direction, Metric};
use schedlab_model::outcome::RunRequest;
use schedlab_report::Objective;
use schedlab_report::result::RunRecord;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// A command that takes longer for one run does not come back.
const LONGEST: Duration = Duration::from_secs(60);
/// A number is shorter than this.
const OUTPUT_MAX: u64 = 4096;

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
        Objective::Custom { name: self.name.clone(), direction: self.direction, floor: 0.0 }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Gives every run its number. Interrupted, it leaves out the runs that have none yet.
    pub fn apply(
        &self,
        candidates: &[Candidate],
        runs: &mut CompareRuns,
        interrupted: &AtomicBool,
        quiet: bool,
    ) -> Result<(), Failure> {
        let bar = progress::bar(quiet, runs.cells.len() as u64, "measuring");
        for index in 0..runs.cells.len() {
            let cell = &mut runs.cells[index];
            let Ok(outcome) = &mut cell.outcome else { continue };
            let candidate = &candidates[cell.candidate];
            // A record of perturbed costs would leave the tasks out.
            let request = RunRequest { candidate, work: cell.work, seed: cell.seed, cost_seed: None };
            let record = RunRecord { cost_seed: cell.cost_seed, ..RunRecord::of(&request, outcome) };
            let Some(value) = self.measure(&record, interrupted)? else {
                runs.cells.truncate(index);
                runs.interrupted = true;
                break;
            };
            outcome.metrics.custom = Some((self.name.clone(), value));
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(())
    }

    /// The same objective, with a floor of a thousandth of what is usual: a run of 0 is that much better, not endlessly.
    pub fn with_floor(&self, runs: &CompareRuns) -> Objective {
        let outcomes = runs.cells.iter().filter_map(|cell| cell.outcome.as_ref().ok());
        let mut values: Vec<f64> =
            outcomes.filter_map(|outcome| outcome.metrics.custom.as_ref()).map(|(_, value)| *value).collect();
        values.retain(|value| *value > 0.0);
        values.sort_by(f64::total_cmp);
        let floor = values.get(values.len() / 2).map_or(0.0, |median| median / 1000.0);
        Objective::Custom { name: self.name.clone(), direction: self.direction, floor }
    }

    /// The command's number for one run; `None` if interrupted.
    fn measure(&self, run: &RunRecord, interrupted: &AtomicBool) -> Result<Option<f64>, Failure> {
        let what = format!("metric command '{}'", self.command);
        let json = serde_json::to_vec(run).expect("a record is plain data");
        let mut shell = Command::new("sh");
        shell.args(["-c", &self.command]);
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Ctrl-C is for us: what is measured is kept.
        shell.process_group(0);
        schedlab_host::record::run_as_invoking_user(&mut shell);
        let mut child = shell.spawn().with_context(|| format!("{what} could not be started"))?;
        let _guard = Guard::of(child.id());
        let mut stdin = child.stdin.take().expect("it is piped");
        // It need not read what it does not care for.
        std::thread::spawn(move || stdin.write_all(&json));
        let output = beginning_of(child.stdout.take().expect("it is piped"));
        let error = beginning_of(child.stderr.take().expect("it is piped"));
        let status = match wait(&mut child, interrupted) {
            Ended::By(status) => status,
            Ended::Interrupted => return Ok(None),
            Ended::Late => return Err(anyhow!("{what} took more than {} s", LONGEST.as_secs()).into()),
        };
        // Whoever it left behind would hold its output open.
        kill_group(child.id());
        let text =
            |from: &mpsc::Receiver<String>| from.recv_timeout(Duration::from_secs(1)).unwrap_or_default();
        let (output, error) = (text(&output), text(&error));
        if !status.success() {
            return Err(anyhow!("{what} failed ({status}): {}", error.trim()).into());
        }
        let value = output.trim().parse::<f64>().ok().filter(|value| value.is_finite() && *value >= 0.0);
        let printed = output.trim().chars().take(100).collect::<String>();
        let no_number =
            || anyhow!("{what} printed '{printed}' for {}, not one number of 0 or more", run.candidate);
        Ok(Some(value.ok_or_else(no_number)?))
    }
}

/// How a command ended.
enum Ended {
    By(std::process::ExitStatus),
    Interrupted,
    Late,
}

fn wait(child: &mut Child, interrupted: &AtomicBool) -> Ended {
    let begin = Instant::now();
    let ended = loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ended::By(status),
            _ if interrupted.load(Ordering::Relaxed) => break Ended::Interrupted,
            Err(_) => break Ended::Late,
            Ok(None) if begin.elapsed() > LONGEST => break Ended::Late,
            Ok(None) => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    // The group is the child's own: whatever the shell started goes with it.
    kill_group(child.id());
    drop(child.wait());
    ended
}

/// The first bytes of a pipe, once it ends. The rest is read and forgotten: a closed pipe would end the command.
fn beginning_of(mut pipe: impl Read + Send + 'static) -> mpsc::Receiver<String> {
    let (told, heard) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = pipe.by_ref().take(OUTPUT_MAX).read_to_end(&mut bytes);
        let rest = std::io::copy(&mut pipe, &mut std::io::sink());
        drop((read, rest, told.send(String::from_utf8_lossy(&bytes).into_owned())));
    });
    heard
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

    /// A hanging command ends with Ctrl-C, and with it what the shell had started.
    #[test]
    fn an_interrupt_ends_a_command() {
        let mut child =
            Command::new("sh").args(["-c", "sleep 1000; true"]).process_group(0).spawn().expect("a shell");
        let begin = Instant::now();
        assert!(matches!(wait(&mut child, &AtomicBool::new(true)), Ended::Interrupted));
        assert!(begin.elapsed() < Duration::from_secs(30));
    }
}
