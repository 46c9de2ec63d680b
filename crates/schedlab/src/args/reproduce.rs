//! Arguments of `reproduce`.

use clap::{Args, ValueEnum, ValueHint};
use std::path::PathBuf;

/// Papers whose tables can be made anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Paper {
    /// Nakajima 2006: ingosched, ingo_ll, nicksched and staircase in hackbench, wake-ups and interbench, on a MIPS board
    #[value(name = "plugsched-2006")]
    Plugsched2006,
    /// Journal of the Korea Contents Association 21(6), 2021: granularity of weights in CFS of Linux 5.7, with batch,
    /// threaded and scientific programs alone and together
    #[value(name = "cfs-weights-2021")]
    CfsWeights2021,
}

/// Arguments of `reproduce`.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = "EXAMPLES
  schedlab reproduce plugsched-2006
  schedlab reproduce plugsched-2006 --quick --json samples.json
  schedlab reproduce plugsched-2006 --vm             on Linux 7.2, in virtual machines
  schedlab reproduce cfs-weights-2021

The paper's machine and schedulers are simulated. Its numbers are printed as it prints them, ours beside them, then for
each claim whether it comes out, and why where it does not. docs/reproduce has a run of each of the newer ones.")]
pub struct ReproduceArgs {
    /// Paper
    #[arg(value_enum)]
    pub paper: Paper,
    /// A tenth of the samples and of the load (of cfs-weights-2021 fewer seeds and shorter runs), for a first look: no
    /// number is the paper's then
    #[arg(long)]
    pub quick: bool,
    /// Of plugsched-2006: measure on Linux 7.2 instead, in virtual machines whose clock counts instructions; takes QEMU, hackbench
    /// (rt-tests) and some ten minutes
    #[arg(long)]
    pub vm: bool,
    /// Of plugsched-2006: another value of a knob that the paper does not tell, e.g. hz=250
    #[arg(long, value_name = "NAME=VALUE")]
    pub set: Vec<String>,
    /// Seed of everything random; where several seeds are run, the first
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Worker threads; results do not depend on it [default: number of CPUs]
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub jobs: Option<u32>,
    /// Write every sample or run as JSON; while it runs, each run to FILE.part; `-` is standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
}
