//! Arguments of `bench`.

use crate::args::MachineChoice;
use clap::{Args, ValueEnum, ValueHint};
use std::path::PathBuf;

/// Which benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Bench {
    /// A real-time thread wakes a real-time and an ordinary thread by a broadcast, beside hackbench 10
    Wakeup,
    /// Groups of senders and receivers: time until all is done
    Hackbench,
}

/// Arguments of `bench`.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = "EXAMPLES
  schedlab bench wakeup --scheduler ingosched,ingo_ll,nicksched,staircase --machine paper-plugsched
  schedlab bench hackbench --scheduler fair,staircase --cpus 4 --set groups=30

`--set` takes parameters of the workload of the same name (`schedlab list workloads`) and knobs of the scheduler
(hz=250). Latencies of wakeup go from the wake-up to the first run; they are shown raw and without those more than six
standard deviations above the mean, in one pass, as in the slides of 2006. The waker's own error is how late it was
itself after its timer.")]
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
    /// Seed of everything random
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Write tables and every sample as JSON; `-` is standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
    /// Machine
    #[command(flatten)]
    pub machine: MachineChoice,
}
