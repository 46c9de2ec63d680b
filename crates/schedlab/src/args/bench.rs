//! Arguments of `bench`.

use crate::args::MachineChoice;
use crate::args::live::above_zero;
use crate::args::program::ProgramsChoice;
use clap::{Args, ValueEnum, ValueHint};
use schedlab_model::Nanos;
use std::path::PathBuf;

/// Which benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Bench {
    /// A real-time thread wakes a real-time and an ordinary thread by a condition's broadcast, beside hackbench 10
    Wakeup,
    /// Groups of senders and receivers: time until all is done
    Hackbench,
    /// Audio, video, X and a game beside loads: latency, deadlines met, share of the CPU that was wanted
    Interbench,
    /// Small real programs, each alone and beside all others, at several nice values: time, mflops, slowdown
    Programs,
}

impl Bench {
    /// The built-in workload of the same name.
    pub fn name(self) -> &'static str {
        match self {
            Bench::Wakeup => "wakeup",
            Bench::Hackbench => "hackbench",
            Bench::Interbench => "interbench",
            Bench::Programs => "programs",
        }
    }
}

/// Arguments of `load`.
#[derive(Clone, Debug, Args)]
pub struct LoadArgs {
    /// Which: write, read or memload
    pub name: String,
    /// Bytes it works on
    pub bytes: u64,
    /// Where its file is
    pub directory: PathBuf,
}

/// Arguments of `bench`.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = "EXAMPLES
  schedlab bench wakeup --quick
  schedlab bench wakeup --scheduler ingosched,ingo_ll,nicksched,staircase --no-watchdog \\
    --machine paper-plugsched --set period=33ms --set loops=100 \\
    --set initial_bonus=0 --set wake_point=0 --set slice_point=0
             an ordinary thread is back soonest under nicksched, then staircase, ingosched, ingo_ll,
             as in the slides; the last two depend on these settings (see reproduce plugsched-2006)
  schedlab bench interbench --scheduler fair,staircase --cpus 1 --set task=video --set load=x
  sudo schedlab bench wakeup --live --scheduler fair,staircase
  schedlab vm boot --kernel 7.2 -- schedlab bench wakeup --live --quick --scheduler fair,staircase
  schedlab bench hackbench --scheduler fair,staircase --cpus 4 --set groups=30 --json hackbench.json
  schedlab bench programs --live --nice 0,5,10
  schedlab bench programs --scheduler fair,cfs --program fibo,rays --cpus 2 --json programs.json
  schedlab bench hackbench --from hackbench.json.part   what a run that was killed had measured

`--set` takes parameters of the built-in workload of the same name (`schedlab list workloads`) and knobs of the
schedulers (hz=250). A latency of wakeup goes from before the broadcast until the
thread is back from its wait with the mutex; latencies are shown raw and without
those more than six standard deviations above the mean, in one pass, as in the slides of 2006. The waker's own error is
how late it ran itself after its timer. interbench runs every task beside every load unless task and load are set; with
rt=1, as with interbench -r, only audio and video, real-time, in us. Its SD is what interbench 0.31 prints, next to the
true one. programs runs each program alone and while all others are run again and again beside it.

Ctrl-C, SIGTERM and a terminal that goes away end the benchmark and keep the samples so far. If it
is killed they are in FILE.part, of live runs without --json FILE in schedlab-bench-NAME-PID.part in
the current directory (docs/benchmarks.md).")]
pub struct BenchArgs {
    /// Benchmark
    #[arg(value_enum)]
    pub bench: Bench,
    /// Schedulers, separated by commas: NAME[:KEY=VALUE]...
    #[arg(long, short, value_name = "LIST", value_delimiter = ',', default_value = "fair")]
    pub scheduler: Vec<String>,
    /// Set a parameter of the benchmark, or a knob of every scheduler that has it
    #[arg(long, value_name = "NAME=VALUE")]
    pub set: Vec<String>,
    /// Run it on this machine instead of the simulated one, as real threads, and hackbench as the program of that name
    #[arg(long, conflicts_with_all = ["machine", "cpus", "kernel", "no_watchdog", "jobs"])]
    pub live: bool,
    /// With --live: play the models of hackbench and of interbench's disk and memory loads instead of running them
    #[arg(long, requires = "live")]
    pub model: bool,
    /// A tenth of the samples and a fifth of the load, for a first look
    #[arg(long)]
    pub quick: bool,
    /// Let no watchdog end a scheduler under which a task waits for 30 s
    #[arg(long)]
    pub no_watchdog: bool,
    /// Cut each run after this time
    #[arg(long, value_name = "TIME", value_parser = above_zero)]
    pub duration: Option<Nanos>,
    /// Seed of everything random
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Worker threads; results do not depend on it [default: number of CPUs]
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub jobs: Option<u32>,
    /// Write every sample as JSON (docs/schema); while it runs, each run to FILE.part; `-` is standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
    /// Run nothing: show what a run that was killed left (its .part), or what another wrote by --json
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["scheduler", "set",
        "live", "model", "quick", "no_watchdog", "duration", "seed", "jobs", "machine", "cpus", "kernel", "program",
        "nice", "rounds"])]
    pub from: Option<PathBuf>,
    /// Machine
    #[command(flatten)]
    pub machine: MachineChoice,
    /// What programs runs
    #[command(flatten)]
    pub programs: ProgramsChoice,
}
