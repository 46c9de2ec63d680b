//! `schedlab reproduce`: the tables of a paper, its numbers as printed beside ours, and what it says, claim by claim.
//!
//! One module a paper. Not here: schedulers, machines and weight tables, which are the product's own.

mod plugsched;
mod weights;

use super::Context;
use crate::args::reproduce::{Paper, ReproduceArgs};
use crate::failure::Failure;
use anyhow::anyhow;

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
