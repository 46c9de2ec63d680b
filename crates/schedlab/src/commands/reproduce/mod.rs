//! `schedlab reproduce`: the tables of a paper, its numbers as printed beside ours, and what it says, claim by claim.
//!
//! One module a paper. Not here: schedulers, machines and weight tables, which are the product's own.

mod plugsched;
mod weights;

use super::Context;
use crate::args::reproduce::{Paper, ReproduceArgs};
use crate::failure::Failure;
use anyhow::anyhow;
use clap::ValueEnum;
use serde::Serialize;

/// What is run: the first line of what is there of it so far.
#[derive(Serialize)]
struct About {
    paper: String,
    command: Vec<String>,
    seed: u64,
    quick: bool,
}

impl About {
    fn of(args: &ReproduceArgs) -> About {
        let paper = args.paper.to_possible_value().expect("none is hidden").get_name().to_owned();
        About { paper, command: std::env::args().collect(), seed: args.seed, quick: args.quick }
    }
}

/// Runs the paper's experiments.
pub fn run(args: &ReproduceArgs, context: Context) -> Result<(), Failure> {
    if args.vm && args.paper != Paper::Plugsched2006 {
        let remedy =
            "--vm is for plugsched-2006; of the others only the simulated machine is here: leave it out";
        return Err(Failure::BadInput(anyhow!(remedy)));
    }
    match args.paper {
        Paper::Plugsched2006 => plugsched::run(args, context),
        Paper::CfsWeights2021 => weights::run(args, context),
    }
}
