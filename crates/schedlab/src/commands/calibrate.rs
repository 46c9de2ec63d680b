//! `schedlab machine --calibrate`: this machine with what things cost on it.
//!
//! The loads are schedlab-host's, what their recording shows is read by schedlab-sim's replay; here both are put
//! together, with what only the loads' own clock tells.

use super::{Context, common, record};
use crate::failure::Failure;
use crate::inputs::machines;
use crate::progress;
use schedlab_host::calibrate::{self, CalibrateError, Timed};
use schedlab_model::CpuId;
use schedlab_model::machine::{Cost, Costs, MachineDescription, Origin};
use schedlab_model::recording::Recording;
use schedlab_model::timeline::{StretchKind, Timelines};
use schedlab_model::topology::Distance;
use schedlab_sim::replay;
use std::fmt::Write as _;

/// More beside the loads than this is told.
const OTHERS_PERCENT_MAX: u64 = 2;
/// A sample of so many times the median was disturbed.
const DISTURBED_TIMES: u64 = 3;

/// Measures.
pub fn this(context: Context) -> Result<MachineDescription, Failure> {
    let mut machine = machines::this();
    let interrupted = common::interrupt_flag();
    let bar = progress::bar(context.quiet, calibrate::STEPS, "calibrating");
    let shown = bar.clone();
    let cpus: Vec<CpuId> = (0..machine.topology.cpu_count() as u32)
        .map(CpuId)
        .filter(|cpu| calibrate::is_usable(*cpu))
        .collect();
    let outcome = calibrate::calibrate(&cpus, move |step| shown.set_position(step), &interrupted);
    bar.finish_and_clear();
    let seen = outcome.map_err(|error| match error {
        CalibrateError::Interrupted => Failure::Interrupted,
        CalibrateError::Record(error) => record::failure(error),
        CalibrateError::Load(_) => Failure::Machine(anyhow::Error::new(error)),
    })?;
    replay::costs_shown([&seen.recording], &mut machine.costs);
    let moved = cpus.first().zip(cpus.get(1)).map(|(from, to)| machine.topology.distance(*from, *to));
    add_timed(&mut machine.costs, &seen.timed, moved.unwrap_or(Distance::Same));
    let others = others_percent(&seen.recording);
    machine.description = format!(
        "{}; costs measured by schedlab machine --calibrate beside {others} % of others",
        machine.description
    );
    if others > OTHERS_PERCENT_MAX {
        eprintln!(
            "schedlab: other tasks used {others} % of the machine: for costs to rely on measure again at rest"
        );
    }
    Ok(machine)
}

/// CPU time of tasks other than the loads and the recorder, in percent of the machine's.
fn others_percent(recording: &Recording) -> u64 {
    let timelines = Timelines::of(recording);
    let of_others = timelines.tasks.iter().zip(&recording.tasks).skip(1).filter(|(_, task)| !task.target);
    let running = of_others.flat_map(|(stretches, _)| stretches);
    let running = running.filter(|stretch| matches!(stretch.kind, StretchKind::Running { .. }));
    let used: u64 = running.map(|stretch| stretch.length().0).sum();
    100 * used / (recording.duration.0 * recording.machine.topology.cpu_count() as u64).max(1)
}

/// Samples that nothing came between: a load that lost its CPU timed more than what it did.
fn undisturbed(samples: &[u64]) -> &[u64] {
    let median = samples.get(samples.len() / 2).copied().unwrap_or_default();
    &samples[..samples.partition_point(|sample| *sample <= DISTURBED_TIMES * median)]
}

/// What the loads timed: a round trip between two tasks of one CPU is two writes and reads, two wake-ups and two
/// switches; the first pass over memory after a move is what lost warmth costs at that distance.
fn add_timed(costs: &mut Costs, timed: &Timed, moved: Distance) {
    let median = |samples: &[u64]| samples.get(samples.len() / 2).copied();
    if let (Some(pipe), true) = (median(&timed.pipe), timed.round_trip.len() > 100) {
        let of_others = 2 * pipe + 2 * costs.wakeup.value.0;
        let each: Vec<u64> = undisturbed(&timed.round_trip)
            .iter()
            .map(|trip| (trip.saturating_sub(of_others) / 2).max(100))
            .collect();
        costs.context_switch = replay::measured_cost(&each).unwrap_or(costs.context_switch);
    }
    let moved = match moved {
        Distance::Same => return,
        Distance::Smt => &mut costs.migration_smt,
        Distance::Cache => &mut costs.migration_cache,
        Distance::Node => &mut costs.migration_node,
        Distance::Remote => &mut costs.migration_remote,
    };
    *moved = replay::measured_cost(undisturbed(&timed.migration)).unwrap_or(*moved);
}

/// What was measured, as text.
pub fn table(costs: &Costs) -> String {
    let mut text = format!("{:18} {:>9} {:>9} {:>9} {:>9}\n", "cost in us", "typical", "5 %", "95 %", "99 %");
    for (name, cost) in Costs::NAMES.iter().zip(costs.all()) {
        let Cost { value, quantiles, origin, .. } = cost;
        if origin != Origin::Measured {
            continue;
        }
        let us = |ns: u64| format!("{:.2}", ns as f64 / 1_000.0);
        let all = quantiles.unwrap_or([value.0; 8]);
        let row = [value.0, all[1], all[5], all[6]].map(us);
        let [typical, low, high, tail] = &row;
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name:18} {typical:>9} {low:>9} {high:>9} {tail:>9}");
    }
    let names: Vec<&str> = Costs::NAMES
        .iter()
        .zip(costs.all())
        .filter(|(_, cost)| cost.origin != Origin::Measured)
        .map(|(name, _)| *name)
        .collect();
    if !names.is_empty() {
        let _ = writeln!(text, "not measured: {}", names.join(", "));
    }
    text
}
