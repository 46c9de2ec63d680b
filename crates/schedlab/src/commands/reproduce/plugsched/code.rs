//! What the schedulers' own code does in small simulations: what a decision costs, and nicksched's slices.

use super::printed::PLUGSCHED;
use crate::commands::curves;
use crate::failure::Failure;
use crate::inputs::schedulers;
use schedlab_model::machine::KernelVersion;
use schedlab_report::html::DecisionCost;
use serde::Serialize;

/// The slides wish for one of fixed priorities, light, for appliances with few CPUs.
const FIXED: &str = "fixed_priority";

/// Nice value of the task behind, and those of the best one: equal, then a level better each.
const BEHIND: i32 = -15;
const LEVELS: i32 = 5;

/// Counts of instructions are those of the objects on this kernel.
const KERNEL: KernelVersion = KernelVersion::V7_2;

/// What a decision of a scheduler costs.
#[derive(Debug, Serialize)]
pub struct Decision {
    pub scheduler: &'static str,
    pub one_cpu: DecisionCost,
    pub four_cpus: DecisionCost,
}

/// All of these.
#[derive(Debug, Serialize)]
pub struct Code {
    /// The four, then the one of fixed priorities.
    pub decisions: Vec<Decision>,
    /// Turns under nicksched of a task behind an equal one, then behind ones that are a level better each; in ns.
    pub turns_behind_ns: Vec<Option<u64>>,
}

/// Measures them.
pub fn measure() -> Result<Code, Failure> {
    let decisions = PLUGSCHED.iter().map(|paper| paper.name).chain([FIXED]).map(decision);
    let nicksched = schedulers::describe_for("nicksched", KERNEL)?;
    let turns = (0..=LEVELS).map(|level| curves::turn_behind(&nicksched, KERNEL, BEHIND, BEHIND - level));
    Ok(Code {
        decisions: decisions.collect::<Result<_, _>>()?,
        turns_behind_ns: turns.collect::<anyhow::Result<_>>().map_err(Failure::Machine)?,
    })
}

fn decision(scheduler: &'static str) -> Result<Decision, Failure> {
    let described = schedulers::describe_for(scheduler, KERNEL)?;
    let on = |cpus| curves::decision(&described, KERNEL, cpus).map_err(Failure::Machine);
    Ok(Decision { scheduler, one_cpu: on(1)?, four_cpus: on(4)? })
}

impl Code {
    /// Instructions for each switch on one and on four CPUs: of the cheapest of the four, and of the one of fixed priorities.
    pub fn cheapest_and_fixed(&self) -> [[f64; 2]; 2] {
        let per_switch = |decision: &Decision| {
            [&decision.one_cpu, &decision.four_cpus].map(|cost| cost.instructions_per_switch)
        };
        let (fixed, others): (Vec<_>, Vec<_>) =
            self.decisions.iter().partition(|decision| decision.scheduler == FIXED);
        let least = |one: [f64; 2], other: [f64; 2]| [one[0].min(other[0]), one[1].min(other[1])];
        [others, fixed].map(|of| of.into_iter().map(per_switch).reduce(least).unwrap_or([f64::NAN; 2]))
    }
}
