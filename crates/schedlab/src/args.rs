//! The command line as data: help, man page and completions are made from these types.
//!
//! Not here: what commands do ([`crate::commands`]).

pub mod bench;
pub mod live;
pub mod program;
pub mod recordings;
pub mod reproduce;
pub mod vm;

use clap::{Args, Parser, Subcommand, ValueHint};
use clap_complete::Shell;
use schedlab_host::record::Trigger;
use schedlab_model::machine::KernelVersion;
use schedlab_model::time::Nanos;
use schedlab_model::workload::change::{Change, TimedChange};
use std::path::PathBuf;

/// Which scheduler, policy and settings serve this work best: shown, tried safely, undone.
#[derive(Debug, Parser)]
#[command(
    name = "schedlab",
    version,
    max_term_width = 100,
    after_help = "Exit codes: 0 done; 1 the answer is no (a stall, a failed guard); 2 usage or bad input; \
                  3 the machine cannot do it, with the remedy.",
    after_long_help = "EXAMPLES
  schedlab demo                                  a first look: no root, no network, ten seconds
  sudo schedlab compare -- hackbench -g 4 -l 500 which scheduler serves this command best
  schedlab compare recording.slrec               the same for a recording made earlier
  schedlab simulate periodic --scheduler vtime   one simulated run, with everything about it
  sudo schedlab record -o web.slrec --pid 4711 --duration 10s

EXIT CODES
  0    done
  1    the answer is no: a stall, a failed guard
  2    usage or bad input
  3    the machine cannot do it (missing privilege, kernel feature); the message names the remedy
  130  ended by Ctrl-C, SIGTERM, or a terminal that went away (SIGHUP); `top` without
       --iterations, which has no other end, exits with 0
A recorded command that fails passes its own exit code on; its recording is kept."
)]
pub struct Cli {
    /// Only results and errors, no progress
    #[arg(long, short, global = true)]
    pub quiet: bool,
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// The main job: which scheduler, policy or setting serves this work best
    Compare(CompareArgs),
    /// Run a workload or recording once under one scheduler, with everything about it
    Simulate(SimulateArgs),
    /// Run a workload as real threads on this machine, recorded and measured like a simulated run
    Play(PlayArgs),
    /// Run a benchmark under schedulers, with the tables it prints
    Bench(bench::BenchArgs),
    /// Run a small real program with a known answer, to try schedulers on
    Program(program::ProgramArgs),
    /// Make the tables of a paper anew: its numbers beside ours
    Reproduce(reproduce::ReproduceArgs),
    /// Record a command, a process, a unit or a control group on the live kernel
    Record(RecordArgs),
    /// Make a recording of a trace by perf, trace-cmd or Perfetto, or an anonymous one of a recording
    Import(recordings::ImportArgs),
    /// Show what is in a recording, a workload, an object file or a scheduler
    Show(ShowArgs),
    /// What changed between two recordings or results of the same work
    Diff(recordings::DiffArgs),
    /// Run a command on the live kernel under a scheduler, then take it out
    Run(live::RunArgs),
    /// Start a scheduler on the live kernel and let it run
    Start(live::StartArgs),
    /// Replace the scheduler that runs by another
    Switch(live::SwitchArgs),
    /// Set knobs of the scheduler that runs
    Set(live::SetArgs),
    /// Take the scheduler out that schedlab started
    Stop(live::UndoArgs),
    /// Who runs which scheduler on this machine, since when, with which knobs
    Status(live::StatusArgs),
    /// Watch tasks by rank, priority, slice and run delay, and the run queues of CPUs, on any scheduler
    Top(live::TopArgs),
    /// Undo whatever a command that was killed has left changed
    Restore(live::UndoArgs),
    /// Hold a scheduler: what `start` runs in the background
    #[command(hide = true)]
    Hold(live::HoldArgs),
    /// Be a load of interbench: what `bench interbench --live` runs beside its tasks
    #[command(hide = true)]
    Load(bench::LoadArgs),
    /// Describe this machine as a machine file
    Machine(MachineArgs),
    /// What this machine permits, what is missing and how to get it, who else tunes it
    Doctor(DoctorArgs),
    /// List schedulers, workloads, machines or metrics
    List(ListArgs),
    /// Compare on a recording that comes with schedlab: no root, no network, ten seconds
    Demo(DemoArgs),
    /// Real kernels in virtual machines: run a command there, or find out whether a scheduler is safe
    Vm(vm::VmArgs),
    /// Print a completion script for a shell
    Completions {
        /// Which shell
        shell: Shell,
    },
    /// Print the manual page, or write one for each command into a directory
    Man {
        /// Directory to write schedlab.1, schedlab-compare.1, ... into
        #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
        out: Option<PathBuf>,
    },
}

/// On what machine and kernel a simulation runs.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Simulated machine")]
pub struct MachineChoice {
    /// Machine file, name (see `schedlab list machines`), or `this`; recordings bring their own
    #[arg(long, value_name = "FILE|NAME")]
    pub machine: Option<String>,
    /// Number of CPUs of a flat machine, instead of --machine
    #[arg(long, value_name = "N", conflicts_with = "machine", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub cpus: Option<u32>,
    /// Kernel whose scheduler is simulated, e.g. 6.18 or 7.2
    #[arg(long, value_name = "VERSION")]
    pub kernel: Option<KernelVersion>,
}

/// Randomness and repetition.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Runs")]
pub struct RunChoice {
    /// First seed of everything random
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Seeds for each candidate
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,
    /// Worker threads; results do not depend on it [default: number of CPUs]
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub jobs: Option<u32>,
    /// Cut each run after this much simulated time
    #[arg(long, value_name = "TIME")]
    pub duration: Option<Nanos>,
}

/// Where results go besides standard output.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Output")]
pub struct OutputChoice {
    /// Write the result as JSON; `-` is standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
    /// Write one self-contained HTML page
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,
    /// Write a Perfetto trace (open it at ui.perfetto.dev)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub perfetto: Option<PathBuf>,
    /// Write every number of every run and task as a Parquet table
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, value_parser = parse_table_file)]
    pub parquet: Option<PathBuf>,
}

/// Arguments of `compare`.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = "EXAMPLES
  sudo schedlab compare -- hackbench -g 4 -l 500
  schedlab compare web.slrec --objective request_p99 --guard 'throughput>=-3%'
  schedlab compare periodic:hogs=8 --scheduler fair,vtime,fifo:slice_ns=1000000 --cpus 4
  schedlab compare service.toml --html report.html --json - --runs 10

Candidates are NAME[:KEY=VALUE]...: fair, fair:policy=batch, fair:slice=100us, vtime, ./my.bpf.o.
The first is the baseline all others are compared with; fair is put in front if it is missing.")]
pub struct CompareArgs {
    /// Workload file (.toml, rt-app .json), built-in workload, or recordings (.slrec)
    #[arg(value_name = "WORKLOAD|RECORDING", value_hint = ValueHint::FilePath, required_unless_present = "command")]
    pub work: Vec<String>,
    /// Command to record on the live kernel and compare for
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "work")]
    pub command: Vec<String>,
    /// Candidates, separated by commas; `all` is the default set
    #[arg(long, short, value_name = "LIST", value_delimiter = ',', default_value = "all")]
    pub scheduler: Vec<String>,
    /// What counts: latency, throughput, deadlines, fairness, or any metric
    #[arg(long, value_name = "METRIC")]
    pub objective: Option<String>,
    /// A number of your own for each run: COMMAND reads the run as JSON (an element of `runs` in the result
    /// file) and prints it; it is the objective unless --objective says otherwise
    #[arg(long, value_name = "NAME=COMMAND")]
    pub metric_command: Option<String>,
    /// More of that number is better
    #[arg(long, requires = "metric_command")]
    pub metric_higher: bool,
    /// What must not get worse, e.g. 'throughput>=-3%'; can be given several times
    #[arg(long, value_name = "GUARD")]
    pub guard: Vec<String>,
    /// Set a knob, or any variable, of every candidate that has it: slice_ns=5ms, weights[3]=200
    #[arg(long, value_name = "NAME=VALUE")]
    pub set: Vec<String>,
    /// Weights of nice values, for every candidate that shares by them: linux, group:N (neighbours weigh their mean),
    /// group:N:shrink (one nice value a group), refine:COUNT (a wider range), or a file
    #[arg(long, value_name = "TABLE")]
    pub weights: Option<String>,
    /// What the user half of an object would do before it attaches; NAME.setup.toml beside it is found
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub setup: Vec<PathBuf>,
    /// Cut a long recording into this many blocks, each a piece of work of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub blocks: u32,
    /// Repeat the ranking on this many machines with every modelled cost changed by up to ±50 %; 0 leaves it out
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub perturbed: u32,
    /// Directory for recording, page, JSON and trace of a recorded command
    #[arg(long, short, value_name = "DIR", default_value = "schedlab-results", value_hint = ValueHint::DirPath)]
    pub output: PathBuf,
    /// Use a recording although events were dropped
    #[arg(long)]
    pub allow_drops: bool,
    /// Say what would be done and stop
    #[arg(long)]
    pub dry_run: bool,
    /// Machine
    #[command(flatten)]
    pub machine: MachineChoice,
    /// Runs
    #[command(flatten)]
    pub run: RunChoice,
    /// Output
    #[command(flatten)]
    pub out: OutputChoice,
}

/// Arguments of `simulate`.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = "EXAMPLES
  schedlab simulate periodic --scheduler vtime --cpus 2
  schedlab simulate graph.json --scheduler vtime --cpus 8 --duration 50s --json -
  schedlab simulate web.slrec --scheduler fair --perfetto web.pftrace
  schedlab simulate hogs:nice=5 --kernel 5.7 --weights group:5
  schedlab simulate hogs --scheduler vtime --set-at 200ms:slice_ns=1000000
  schedlab simulate hogs --switch-at 200ms:vtime --switch-at 400ms:none")]
pub struct SimulateArgs {
    /// Workload file (.toml, rt-app .json), built-in workload, or recording (.slrec)
    #[arg(value_name = "WORKLOAD|RECORDING", value_hint = ValueHint::FilePath)]
    pub work: String,
    /// Scheduler: NAME[:KEY=VALUE]..., e.g. fair, vtime:slice_ns=5000000, ./my.bpf.o
    #[arg(long, short, value_name = "NAME", default_value = "fair")]
    pub scheduler: String,
    /// Set a knob, or any variable of an object: slice_ns=5ms, cfg.mode=MODE_FAST, weights[3]=200
    #[arg(long, value_name = "NAME=VALUE")]
    pub set: Vec<String>,
    /// Weights of nice values, for every candidate that shares by them: linux, group:N (neighbours weigh their mean),
    /// group:N:shrink (one nice value a group), refine:COUNT (a wider range), or a file
    #[arg(long, value_name = "TABLE")]
    pub weights: Option<String>,
    /// Change a knob while it runs, in its own unit: 200ms:slice_ns=2000000
    #[arg(long, value_name = "TIME:NAME=VALUE", value_parser = parse_knob_change)]
    pub set_at: Vec<TimedChange>,
    /// Attach another scheduler from BPF while it runs, or take it out: 2s:vtime, 2s:vtime:slice_ns=5000000, 4s:none
    #[arg(long, value_name = "TIME:NAME|none", value_parser = parse_switch)]
    pub switch_at: Vec<TimedChange>,
    /// Attach a scheduler anew that ends and asks for it (SCX_ECODE_ACT_RESTART), as its user half would
    #[arg(long)]
    pub restart: bool,
    /// What the user half of the object would do before it attaches; NAME.setup.toml beside it is found
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub setup: Vec<PathBuf>,
    /// Write the simulated run as a recording
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub record: Option<PathBuf>,
    /// Use a recording although events were dropped
    #[arg(long)]
    pub allow_drops: bool,
    /// Say what would be done and stop
    #[arg(long)]
    pub dry_run: bool,
    /// Machine
    #[command(flatten)]
    pub machine: MachineChoice,
    /// Runs
    #[command(flatten)]
    pub run: SingleRunChoice,
    /// Output
    #[command(flatten)]
    pub out: OutputChoice,
}

/// Anything but standard output, which has the text.
fn parse_table_file(text: &str) -> Result<PathBuf, String> {
    if text == "-" { Err("give the table a file of its own".to_owned()) } else { Ok(PathBuf::from(text)) }
}

/// `TIME:NAME=VALUE`.
fn parse_knob_change(text: &str) -> Result<TimedChange, String> {
    const USAGE: &str = "write TIME:NAME=VALUE, e.g. 200ms:slice_ns=2000000";
    let (time, knob) = text.split_once(':').ok_or(USAGE)?;
    let time = time.parse::<Nanos>().map_err(|error| error.to_string())?;
    let (name, value) = parse_knob(knob, USAGE)?;
    Ok(TimedChange { time, change: Change::Knob { name, value } })
}

/// `NAME=VALUE`; without '=' the error is how to write it.
fn parse_knob(text: &str, usage: &str) -> Result<(String, i64), String> {
    let (name, value) = text.split_once('=').ok_or(usage)?;
    let value = value.parse().map_err(|_| format!("knob {name} takes a whole number in its own unit"))?;
    Ok((name.to_owned(), value))
}

/// `TIME:SCHEDULER` or `TIME:none`.
fn parse_switch(text: &str) -> Result<TimedChange, String> {
    let (time, name) = text.split_once(':').ok_or("write TIME:SCHEDULER or TIME:none, e.g. 2s:vtime")?;
    let time = time.parse::<Nanos>().map_err(|error| error.to_string())?;
    Ok(TimedChange { time, change: Change::Scheduler((name != "none").then(|| name.to_owned())) })
}

/// Randomness of one run, or of several for its spread.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Runs")]
pub struct SingleRunChoice {
    /// Seed of everything random
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Repeat with this many seeds and print the spread
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,
    /// Worker threads; results do not depend on it [default: number of CPUs]
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub jobs: Option<u32>,
    /// Cut the run after this much simulated time
    #[arg(long, value_name = "TIME")]
    pub duration: Option<Nanos>,
}

/// Arguments of `record`.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = "EXAMPLES
  sudo schedlab record -o build.slrec -- make -j4
  sudo schedlab record -o web.slrec --pid 4711 --duration 10s
  sudo schedlab record -o web.slrec --unit nginx.service --duration 30s
  sudo schedlab record --ring 10s --trigger 'run-delay>20ms' -o late.slrec --pid 4711
  sudo schedlab record --ring 5s --trigger signal -o now.slrec    (then: kill -USR1 of its pid)
  sudo schedlab record --vruntime -o v.slrec -- make && schedlab show v.slrec --html v.html

The command runs as the invoking user; only the recorder keeps privileges. Ctrl-C ends the recording
and keeps it.")]
pub struct RecordArgs {
    /// File to write
    #[arg(long, short, value_name = "FILE", default_value = "recording.slrec", value_hint = ValueHint::FilePath)]
    pub output: PathBuf,
    /// Command to run and record
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = ["pid", "unit", "cgroup"])]
    pub command: Vec<String>,
    /// Record a running process with its threads and children
    #[arg(long, value_name = "PID", conflicts_with_all = ["unit", "cgroup"])]
    pub pid: Option<i32>,
    /// Record a systemd unit
    #[arg(long, value_name = "UNIT", conflicts_with = "cgroup")]
    pub unit: Option<String>,
    /// Record a control group
    #[arg(long, value_name = "PATH", value_hint = ValueHint::DirPath)]
    pub cgroup: Option<PathBuf>,
    /// End after this time; required for a process, unit or control group unless --ring is given
    #[arg(long, value_name = "TIME")]
    pub duration: Option<Nanos>,
    /// Keep only the last seconds in memory and write them when a trigger fires; without a target of all of user space
    #[arg(long, value_name = "TIME")]
    pub ring: Option<Nanos>,
    /// What to write a ring for: run-delay>TIME, run-delay>TIME:NAME, signal (SIGUSR1), exit-nonzero, end; may be given
    /// several times [default: signal and end]
    #[arg(long, value_name = "TRIGGER", requires = "ring")]
    pub trigger: Vec<Trigger>,
    /// Go on for this time after a trigger
    #[arg(long, value_name = "TIME", requires = "ring", default_value = "1s")]
    pub after: Nanos,
    /// Buffer of each CPU in MiB [default: by the rate of switches before the start]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=512))]
    pub buffer_mib: Option<u64>,
    /// Record the virtual runtime of the target's tasks at each switch: se.vruntime under the kernel's own class,
    /// scx.dsq_vtime under a sched_ext scheduler
    #[arg(long)]
    pub vruntime: bool,
    /// Count what the target's tasks find and miss in the cache, by the processor's counters; where it shows none, the
    /// recording says so
    #[arg(long)]
    pub caches: bool,
    /// Keep the costs of this machine file in the recording (see `schedlab machine --calibrate`)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub machine: Option<String>,
    /// Write facts about the recording as JSON; `-` is standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
    /// Say what would be done and stop
    #[arg(long)]
    pub dry_run: bool,
}

/// Arguments of `play`.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = "EXAMPLES
  sudo schedlab play streaming.toml
  sudo schedlab play periodic:hogs=8 --duration 2s --runs 5 --json live.json
  sudo schedlab play periodic --set policy=batch --record periodic.slrec
  sudo schedlab play hogs:count=2,nice=5 --duration 2s --vruntime --html v.html
  schedlab play locks.toml --bare          without the recorder: needs no root, tells less
  schedlab vm boot --kernel 6.12 --file locks.toml -- schedlab play locks.toml

The workload's tasks are threads and processes of its own, with its policies; all of them end with the
play, also at Ctrl-C. What a live kernel cannot play is refused by name before anything starts.")]
#[command(group = clap::ArgGroup::new("kept").args(["record", "perfetto", "html"]).multiple(true))]
pub struct PlayArgs {
    /// Workload file (.toml, rt-app .json) or built-in workload
    #[arg(value_name = "WORKLOAD", value_hint = ValueHint::FilePath)]
    pub work: String,
    /// Attribute of every target task: policy=batch, nice=5, slice=10ms, rt_priority=10
    #[arg(long, value_name = "NAME=VALUE")]
    pub set: Vec<String>,
    /// Cut each run after this time
    #[arg(long, value_name = "TIME")]
    pub duration: Option<Nanos>,
    /// Play it so often
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,
    /// Seed of what is random in the workload; each further run takes the next
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Without the recorder: only times and switches that the tasks themselves are told
    #[arg(long, conflicts_with_all = ["record", "perfetto", "html"])]
    pub bare: bool,
    /// Keep the recording of the first run
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub record: Option<PathBuf>,
    /// Record the virtual runtime of the workload's tasks at each switch, as `record --vruntime` does, for a recording,
    /// a trace or a page
    #[arg(long, requires = "kept")]
    pub vruntime: bool,
    /// Keep the costs of this machine file in the recording (see `schedlab machine --calibrate`)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub machine: Option<String>,
    /// Write the result as JSON, of the same schema as a simulated run's; `-` is standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
    /// Write a Perfetto trace of the first run (open it at ui.perfetto.dev)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub perfetto: Option<PathBuf>,
    /// Write the first run as a page with its pictures: who ran when, CPU time and virtual runtime of each task
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,
    /// Write every number of every run and task as a Parquet table
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, value_parser = parse_table_file)]
    pub parquet: Option<PathBuf>,
    /// Say what would be done and stop
    #[arg(long)]
    pub dry_run: bool,
}

/// Arguments of `doctor`.
#[derive(Clone, Debug, Args)]
pub struct DoctorArgs {
    /// Write it as JSON; `-` is standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
}

/// Arguments of `show`.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = "EXAMPLES
  schedlab show recording.slrec
  schedlab show recording.slrec --character
  schedlab show recording.slrec --html recording.html
  schedlab show vtime
  schedlab show fair --kernel 6.1             slices under CFS, and those of equation 3
  schedlab show ./my.bpf.o --json -")]
pub struct ShowArgs {
    /// Recording, workload, object file or scheduler
    #[arg(value_name = "FILE|OBJECT|SCHEDULER", value_hint = ValueHint::FilePath)]
    pub what: String,
    /// What character the tasks of a recording have: batch, interactive, periodic or communicating, and by what numbers
    #[arg(long)]
    pub character: bool,
    /// Kernel an object is checked against
    #[arg(long, value_name = "VERSION")]
    pub kernel: Option<KernelVersion>,
    /// Write as JSON; `-` is standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
    /// Write a recording as a Perfetto trace
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub perfetto: Option<PathBuf>,
    /// Write a page with pictures: of a recording who ran when, CPU time and virtual runtime of each task; of a scheduler of
    /// the library its slices by nice value and what a decision costs
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,
}

/// Arguments of `machine`.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = "EXAMPLES
  schedlab machine                    describe this machine on standard output
  schedlab machine -o mine.toml       and keep it for --machine mine.toml
  sudo schedlab machine --calibrate -o mine.toml
                                      with what things cost on it, measured in about 12 s
  schedlab machine two-socket         print a machine of the library
  schedlab machine build.slrec        the machine of a recording, with the costs that it shows")]
pub struct MachineArgs {
    /// A machine of the library, or a recording's, instead of this one
    #[arg(value_name = "NAME|RECORDING")]
    pub name: Option<String>,
    /// Measure what switches, wake-ups, interrupts, timers and moves cost here; needs root. Rounds beside others at work do
    /// not count
    #[arg(long, conflicts_with_all = ["name", "root"])]
    pub calibrate: bool,
    /// Undisturbed rounds that are enough; at most twice as many are played
    #[arg(long, value_name = "N", default_value_t = 3, requires = "calibrate", value_parser = clap::value_parser!(u8).range(1..=50))]
    pub rounds: u8,
    /// File to write; `-` is standard output
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    /// Read sysfs and procfs below this directory (a copy from another machine)
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub root: Option<PathBuf>,
    /// Write as JSON; `-` is standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
}

/// What can be listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ListWhat {
    /// Schedulers with their knobs
    Schedulers,
    /// Built-in workloads with their parameters, and workload files
    Workloads,
    /// Machines
    Machines,
    /// Metrics with units and meanings
    Metrics,
}

/// Arguments of `list`.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = "EXAMPLES
  schedlab list schedulers            names for --scheduler, with their knobs, units and bounds
  schedlab list workloads             built-in workloads and their parameters
  schedlab list machines              names for --machine
  schedlab list metrics --json -      names for --objective and --guard, as JSON")]
pub struct ListArgs {
    /// What to list
    pub what: ListWhat,
    /// Write as JSON; `-` is standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
}

/// Arguments of `demo`.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = "EXAMPLES
  schedlab demo                       compare schedulers on a recording that comes along; needs no privileges
  schedlab demo -o /tmp/first         page, JSON and trace go there; open /tmp/first/report.html")]
pub struct DemoArgs {
    /// Directory for page, JSON and trace
    #[arg(long, short, value_name = "DIR", default_value = "schedlab-demo", value_hint = ValueHint::DirPath)]
    pub output: PathBuf,
    /// Worker threads [default: number of CPUs]
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub jobs: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_command_follows_two_dashes() {
        let cli = Cli::parse_from(["schedlab", "compare", "--runs", "3", "--", "hackbench", "-g", "4"]);
        let Command::Compare(args) = cli.command else { panic!("compare: {cli:?}") };
        assert_eq!(args.command, ["hackbench", "-g", "4"]);
        assert!(args.work.is_empty());
    }
}
