//! Arguments of `reproduce`.

use clap::{Args, ValueEnum, ValueHint};
use std::path::PathBuf;

/// Papers whose tables can be made anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Paper {
    /// Nakajima 2006: ingosched, ingo_ll, nicksched and staircase in hackbench and wake-ups, on a MIPS board
    #[value(name = "plugsched-2006")]
    Plugsched2006,
}

/// Arguments of `reproduce`.
#[derive(Clone, Debug, Args)]
#[command(
    after_long_help = "The paper's machine and schedulers are simulated; its numbers are printed as it prints them, ours \
beside them, then for each claim whether it comes out."
)]
pub struct ReproduceArgs {
    /// Paper
    #[arg(value_enum)]
    pub paper: Paper,
    /// Seed of everything random
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Samples of each wake-up table
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
    pub samples: u32,
    /// Write every sample as JSON; `-` is standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
}
