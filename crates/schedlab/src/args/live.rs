//! A scheduler on the running kernel: arguments of `run`, `start`, `switch`, `set`, `stop`, `status` and `restore`.

use clap::{Args, ValueHint};
use schedlab_model::time::Nanos;
use std::path::PathBuf;

/// Which scheduler, and whom it is given.
#[derive(Clone, Debug, Args)]
pub struct SchedulerChoice {
    /// A scheduler of `schedlab list schedulers`, or an object file
    #[arg(value_name = "SCHEDULER", value_hint = ValueHint::FilePath)]
    pub scheduler: String,
    /// Set a knob before loading, e.g. slice_ns=5ms; can be given several times
    #[arg(long, value_name = "NAME=VALUE")]
    pub set: Vec<String>,
    /// Weights of nice values, for a scheduler that shares by them (cfs, vtime): linux, group:N, group:N:shrink,
    /// refine:COUNT, or a file
    #[arg(long, value_name = "TABLE")]
    pub weights: Option<String>,
}

/// A time on probation, and what ends it.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Guards")]
pub struct GuardChoice {
    /// Watch it for so long (seconds, or a time such as 500ms); if a guard trips, what ran before comes back
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub canary: Option<Nanos>,
    /// Guard: 99 % of wake-ups of canary tasks are delayed by no more than this, e.g. 5ms
    #[arg(long, value_name = "BOUND", value_parser = above_zero)]
    pub p99: Option<Nanos>,
    /// Guard: no canary task is runnable for longer without running (2s if nothing is said)
    #[arg(long, value_name = "BOUND", value_parser = above_zero)]
    pub stall: Option<Nanos>,
}

/// Arguments of `run`.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = "EXAMPLES
  sudo schedlab run vtime -- make -j8                 the machine under vtime while make runs
  sudo schedlab run vtime --only-command -- ./server  only the command's tasks; the others stay where they are
  sudo schedlab run fifo --set slice_ns=2ms --p99 20ms -- ./bench
  sudo schedlab run staircase --html priorities.html -- ./bench
                                                      each change of a dynamic priority, with its cause
  sudo schedlab run cfs --weights group:5 -- ./bench
                                                      nice values in eight weights, on a kernel as it is
  sudo schedlab run ./my.bpf.o --trial --rounds 6 -- ./bench
                                                      is the command faster than under the kernel's own?

The command runs as the invoking user. When it ends, at Ctrl-C, and if schedlab is killed, the kernel's own
scheduler has all tasks back. The exit code is the command's, or 1 if the kernel or a guard ended the scheduler.")]
pub struct RunArgs {
    /// Scheduler
    #[command(flatten)]
    pub scheduler: SchedulerChoice,
    /// Give it only the command's tasks (SCX_OPS_SWITCH_PARTIAL), whatever the object says
    #[arg(long)]
    pub only_command: bool,
    /// Run the command in turns under the kernel's own scheduler and under this one, and compare
    #[arg(long, conflicts_with = "canary")]
    pub trial: bool,
    /// Rounds of the trial under each
    #[arg(long, value_name = "N", default_value_t = 5, requires = "trial", value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub rounds: u32,
    /// Guards
    #[command(flatten)]
    pub guards: GuardChoice,
    /// Say what the scheduler's own code costs: runs of each callback, and their time (BPF statistics)
    #[arg(long, conflicts_with = "trial")]
    pub cost: bool,
    /// Write what happened as JSON; `-` is standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
    /// Write a page with the dynamic priority of each task over time (schedulers that log it)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "trial")]
    pub html: Option<PathBuf>,
    /// Write the same as a Perfetto trace
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "trial")]
    pub perfetto: Option<PathBuf>,
    /// Say what would be changed and stop
    #[arg(long)]
    pub dry_run: bool,
    /// Command to run
    #[arg(last = true, value_name = "COMMAND", required = true)]
    pub command: Vec<String>,
}

/// Arguments of `start`.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = "EXAMPLES
  sudo schedlab start vtime
  sudo schedlab start vtime --canary 30 --p99 10ms     rolled back within 30 s if it lets tasks wait
  sudo schedlab start ./my.bpf.o --trial --round 10s   in turns with the kernel's own; then rolled back
  sudo schedlab start ./my.bpf.o --trial --keep        and kept if it is better

A process of schedlab holds the scheduler: a transient systemd unit (schedlab-scheduler.service) where there is
systemd. If it is killed, the kernel's own scheduler has all tasks back at once. Nothing comes back after a boot.")]
pub struct StartArgs {
    /// Scheduler
    #[command(flatten)]
    pub scheduler: SchedulerChoice,
    /// Run it in turns with the kernel's own scheduler, measure both by canary tasks, and compare; then it is taken out
    #[arg(long, conflicts_with = "canary")]
    pub trial: bool,
    /// Rounds of the trial under each
    #[arg(long, value_name = "N", default_value_t = 5, requires = "trial", value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub rounds: u32,
    /// Length of a round
    #[arg(long, value_name = "TIME", default_value = "5s", requires = "trial", value_parser = above_zero)]
    pub round: Nanos,
    /// Let it run on after the trial if that found it better
    #[arg(long, requires = "trial")]
    pub keep: bool,
    /// Guards
    #[command(flatten)]
    pub guards: GuardChoice,
    /// Write what happened as JSON; `-` is standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
    /// Say what would be changed and stop
    #[arg(long)]
    pub dry_run: bool,
}

/// Arguments of `switch`.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = "EXAMPLES
  sudo schedlab switch fifo
  sudo schedlab switch vtime --set slice_ns=5ms --canary 30 --p99 10ms

The new scheduler is loaded and verified while the old one runs; only enabling it takes place without either.
If it cannot be enabled, or a guard trips, the old one comes back.")]
pub struct SwitchArgs {
    /// Scheduler
    #[command(flatten)]
    pub scheduler: SchedulerChoice,
    /// Guards
    #[command(flatten)]
    pub guards: GuardChoice,
    /// Write what happened as JSON; `-` is standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
    /// Say what would be changed and stop
    #[arg(long)]
    pub dry_run: bool,
}

/// Arguments of `set`.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = "EXAMPLES
  sudo schedlab set slice_ns=2ms
  sudo schedlab set slice_ns=2ms lag_limit_ns=10ms     both or none

`schedlab list schedulers` lists knobs with their bounds; those marked live can change while it runs.")]
pub struct SetArgs {
    /// Knobs of the scheduler that schedlab holds
    #[arg(value_name = "NAME=VALUE", required = true)]
    pub knobs: Vec<String>,
    /// Say what would be changed and stop
    #[arg(long)]
    pub dry_run: bool,
}

/// Arguments of `stop` and `restore`.
#[derive(Clone, Debug, Args)]
pub struct UndoArgs {
    /// Write what happened as JSON; `-` is standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
    /// Say what would be changed and stop
    #[arg(long)]
    pub dry_run: bool,
}

/// Arguments of `status`.
#[derive(Clone, Debug, Args)]
pub struct StatusArgs {
    /// Write it as JSON; `-` is standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
}

/// By what `top` sorts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum TopSort {
    /// Who runs sooner first
    Rank,
    /// The longest run delay first
    Delay,
    /// The largest share of a CPU first
    Cpu,
    /// By number
    Pid,
}

/// Arguments of `top`.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = "EXAMPLES
  sudo schedlab top                                   q ends it, ? shows the keys
  sudo schedlab top --sort delay --filter nginx       who of nginx waits longest for a CPU
  sudo schedlab top --plain --iterations 1 --sort rank
  sudo schedlab top --json - --interval 100ms --iterations 50 > frames.jsonl

The rank is what the scheduler that runs orders tasks by: the virtual deadline under EEVDF, the virtual time under
CFS, the priority of real-time tasks, and what a sched_ext scheduler publishes. docs/top.md explains each column.
Ended by q or Ctrl-C it exits with 0, or with 130 if --iterations were not over.")]
pub struct TopArgs {
    /// Time between two looks
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = seconds)]
    pub interval: Nanos,
    /// Sort by this
    #[arg(long, value_enum, default_value_t = TopSort::Cpu)]
    pub sort: TopSort,
    /// Only tasks whose name contains this, or of this number or process
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub filter: String,
    /// Only tasks of control groups whose path below /sys/fs/cgroup contains this
    #[arg(long, value_name = "PATH")]
    pub cgroup: Option<String>,
    /// Only tasks that ran or waited in the interval
    #[arg(long)]
    pub active: bool,
    /// Tables of text instead of a screen; so it is where standard output is no terminal
    #[arg(long)]
    pub plain: bool,
    /// End after so many intervals
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub iterations: Option<u64>,
    /// Show at most so many tasks [default: 40 as text, all as JSON and on a screen]
    #[arg(long, value_name = "N")]
    pub tasks: Option<usize>,
    /// Write a JSON document a line for each interval instead of text; `-` is standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
}

/// Arguments of the process that holds a scheduler.
#[derive(Clone, Debug, Args)]
pub struct HoldArgs {
    /// Directory with what to do and the socket for answers
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}

/// A time, or a bare number of seconds.
fn seconds(text: &str) -> Result<Nanos, String> {
    let bare = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let text = if bare { format!("{text}s") } else { text.to_owned() };
    above_zero(&text)
}

/// A time that is one.
pub fn above_zero(text: &str) -> Result<Nanos, String> {
    match text.parse::<Nanos>() {
        Ok(Nanos(0)) => Err("it must be more than 0".to_owned()),
        Ok(time) => Ok(time),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_number_is_seconds() {
        assert_eq!(seconds("30"), Ok(Nanos(30_000_000_000)));
        assert_eq!(seconds("1.5"), Ok(Nanos(1_500_000_000)));
        assert_eq!(seconds("500ms"), Ok(Nanos(500_000_000)));
        assert!(seconds("soon").is_err() && seconds("").is_err());
        for nothing in ["0", "0.0", "0ms"] {
            assert!(seconds(nothing).is_err(), "{nothing} is no time to watch");
        }
    }
}
