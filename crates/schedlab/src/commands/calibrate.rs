//! `schedlab machine --calibrate`: this machine with what things cost on it.
//!
//! The loads are schedlab-host's, what their recordings show is read by schedlab-sim's replay; here both are put
//! together, with what only the loads' own clock tells, and with the reason for each cost that was not measured.

use super::{Context, common, record};
use crate::failure::Failure;
use crate::inputs::machines;
use crate::progress;
use schedlab_host::calibrate::{self, CalibrateError, Measured, Timed};
use schedlab_model::calibration::{Calibration, Measurement};
use schedlab_model::machine::{Cost, Costs, MachineDescription, Origin};
use schedlab_model::topology::{Distance, Topology};
use schedlab_model::{CpuId, Nanos};
use schedlab_sim::replay;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// A sample of so many times the median was disturbed.
const DISTURBED_TIMES: u64 = 3;
/// Fewer switches between tasks that yield say nothing.
const SWITCHES_MIN: usize = 20;

/// Measures.
pub fn this(rounds: usize, context: Context) -> Result<MachineDescription, Failure> {
    let mut machine = machines::this();
    let interrupted = common::interrupt_flag();
    let bar = progress::bar(context.quiet, 0, "calibrating");
    let shown = bar.clone();
    let cpus: Vec<CpuId> = (0..machine.topology.cpu_count() as u32)
        .map(CpuId)
        .filter(|cpu| calibrate::is_usable(*cpu))
        .collect();
    let step = move |done, total| {
        shown.set_length(total);
        shown.set_position(done);
    };
    let outcome = calibrate::calibrate(&cpus, rounds, step, &interrupted);
    bar.finish_and_clear();
    let seen = outcome.map_err(|error| match error {
        CalibrateError::Interrupted => Failure::Interrupted,
        CalibrateError::Record(error) => record::failure(error),
        CalibrateError::Load(_) => Failure::Machine(anyhow::Error::new(error)),
    })?;
    let moved = cpus.first().zip(cpus.get(1)).map(|(from, to)| machine.topology.distance(*from, *to));
    fill(&mut machine.costs, &seen, moved.unwrap_or(Distance::Same));
    let calibration = Calibration {
        rounds: seen.rounds,
        rounds_used: seen.recordings.len() as u32,
        others_permille: seen.others_permille as u32,
        seen: latencies(&seen),
        not_measured: not_measured(&machine.costs, &machine.topology, cpus.len()),
    };
    let others = format!("{}.{}", seen.others_permille / 10, seen.others_permille % 10);
    machine.description = format!(
        "{}; costs measured by schedlab machine --calibrate beside {others} % of others",
        machine.description
    );
    if seen.others_permille > calibrate::OTHERS_PERMILLE_MAX {
        eprintln!(
            "schedlab: other tasks used {others} % of the machine in the best of {} rounds: for costs to rely on \
             measure again at rest",
            seen.rounds
        );
    }
    machine.calibration = Some(calibration);
    Ok(machine)
}

/// Samples that nothing came between: a load that lost its CPU timed more than what it did.
fn undisturbed(samples: &[u64]) -> Vec<u64> {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    let median = sorted.get(sorted.len() / 2).copied().unwrap_or_default();
    sorted.truncate(sorted.partition_point(|sample| *sample <= DISTURBED_TIMES * median));
    sorted
}

/// The same less what is known already.
fn beyond(samples: &[u64], known: u64) -> Vec<u64> {
    undisturbed(samples).iter().map(|sample| sample.saturating_sub(known)).collect()
}

/// Every cost that was seen or timed.
fn fill(costs: &mut Costs, seen: &Measured, moved: Distance) {
    let Measured { recordings, timed, .. } = seen;
    replay::costs_shown(recordings, costs);
    let set = |cost: &mut Cost, found: Option<Cost>| *cost = found.unwrap_or(*cost);
    let switches = switches(timed, costs.wakeup.value);
    set(&mut costs.context_switch, replay::measured_cost(&switches));
    set(&mut costs.pipe_call, replay::measured_cost(&halves(&timed.pipe)));
    costs.socket_call = replay::measured_cost(&halves(&timed.socket)).or(costs.socket_call);
    set(&mut costs.futex_call, replay::measured_cost(&undisturbed(&timed.futex)));
    set(&mut costs.ipi_stall, replay::measured_cost(&undisturbed(&timed.stall)));
    set(&mut costs.fork_call, replay::measured_cost(&undisturbed(&timed.fork)));
    let waits = waits(timed, costs);
    set(&mut costs.wait_call, replay::measured_cost(&waits));
    // The parent waits and switches to its child, which wakes it and switches back.
    let switch = costs.context_switch.value.0;
    let begun = beyond(&timed.child, switch + costs.wait_call.value.0);
    set(&mut costs.fork_child, replay::measured_cost(&begun));
    let ended = beyond(&timed.end, switch + costs.wakeup.value.0);
    set(&mut costs.exit_call, replay::measured_cost(&ended));
    let migration = match moved {
        Distance::Same => return,
        Distance::Smt => &mut costs.migration_smt,
        Distance::Cache => &mut costs.migration_cache,
        Distance::Node => &mut costs.migration_node,
        Distance::Remote => &mut costs.migration_remote,
    };
    set(migration, replay::measured_cost(&undisturbed(&timed.migration)));
}

/// One of two calls that were timed together.
fn halves(both: &[u64]) -> Vec<u64> {
    undisturbed(both).iter().map(|both| both / 2).collect()
}

/// Switches, by tasks that yield to each other. Beside others these seldom switch to each other: then by bytes to a task of the
/// same CPU and back, each trip at most two writes and reads, two wake-ups and two switches.
fn switches(timed: &Timed, wakeup: Nanos) -> Vec<u64> {
    let yields = undisturbed(&timed.switch);
    let Some(pipe) = Measurement::of(&timed.pipe).filter(|_| yields.len() < SWITCHES_MIN) else {
        return yields;
    };
    let of_others = 2 * pipe.median.0 + 2 * wakeup.0;
    let each = |trip: &u64| (trip.saturating_sub(of_others) / 2).max(100);
    undisturbed(&timed.pipe_trip_same).iter().map(each).collect()
}

/// What a wait takes by itself: the rest of a trip of a byte to a task of the same CPU and back, in which are two writes,
/// two reads, two switches, and for each wait a wake-up.
fn waits(timed: &Timed, costs: &Costs) -> Vec<u64> {
    let (trips, waited) = timed.trips_and_waits;
    if waited < SWITCHES_MIN as u64 {
        return Vec::new();
    }
    let known = 4 * costs.pipe_call.value.0 + 2 * costs.context_switch.value.0;
    // In thousandths of a wait, as most trips have one.
    let each = (1_000 * waited / trips.max(1)).max(1);
    let rest = |trip: &u64| 1_000 * trip.saturating_sub(known) / each;
    let rest = undisturbed(&timed.pipe_trip_same).iter().map(rest).collect::<Vec<_>>();
    rest.iter().map(|rest| rest.saturating_sub(costs.wakeup.value.0)).collect()
}

/// Whole latencies, as a program meets them.
fn latencies(seen: &Measured) -> BTreeMap<String, Measurement> {
    let Timed {
        pipe,
        socket,
        futex,
        yields,
        pipe_trip_same,
        pipe_trip_other,
        futex_trip_same,
        child,
        end,
        overshoot,
        stall,
        ..
    } = seen.timed.clone();
    let timed = [
        ("pipe_write_and_read", pipe),
        ("socket_write_and_read", socket),
        ("pipe_trip_same_cpu", pipe_trip_same),
        ("pipe_trip_other_cpu", pipe_trip_other),
        ("futex_wake_of_nobody", futex),
        ("futex_trip_same_cpu", futex_trip_same),
        ("yield_alone", yields),
        ("forked_to_begun", child),
        ("begun_to_ended", end),
        ("sleep_overshoot", overshoot),
        ("standstill_before_ipi", stall),
        ("wait_beside_message", replay::waits_shown(&seen.recordings).unwrap_or_default()),
    ];
    let shown = replay::latencies_shown(&seen.recordings).into_iter().chain(timed);
    shown.filter_map(|(name, samples)| Some((name.to_owned(), Measurement::of(&samples)?))).collect()
}

/// Why costs were not measured, by name.
fn not_measured(costs: &Costs, topology: &Topology, usable: usize) -> BTreeMap<String, String> {
    let measured = |name: &str| costs.named().any(|(other, cost)| other == name && cost.is_measured());
    let missing = Costs::NAMES.into_iter().filter(|name| !measured(name));
    let reason = |name: &str| match name {
        "balance_per_cpu" => "no event of the kernel shows it".to_owned(),
        "bpf_kilo_instructions" | "ext_callback" | "dsq_lock_cache" | "dsq_lock_node" | "dsq_lock_remote" => {
            "only a sched_ext scheduler at work would show it".to_owned()
        }
        "ipi" | "ipi_idle" | "ipi_send" | "ipi_stall" if usable < 2 => "needs two usable CPUs".to_owned(),
        name if name.starts_with("migration") => {
            format!("the first two usable of {} are not that far apart", topology.cpus_text())
        }
        _ => "too few events showed it; measure again at rest".to_owned(),
    };
    missing.map(|name| (name.to_owned(), reason(name))).collect()
}

/// What was measured, as text.
pub fn table(machine: &MachineDescription) -> String {
    let mut text = format!(
        "{:22} {:>9} {:>9} {:>9} {:>9} {:>9}\n",
        "cost in us", "typical", "median", "5 %", "95 %", "99 %"
    );
    for (name, cost) in machine.costs.named() {
        let Cost { value, quantiles, origin, .. } = cost;
        if origin == Origin::Measured {
            row(&mut text, name, Some(value), &quantiles.unwrap_or([value.0; 8]));
        }
    }
    let Some(calibration) = &machine.calibration else { return text };
    text.push_str("whole latencies in us\n");
    for (name, seen) in &calibration.seen {
        row(&mut text, name, None, &seen.quantiles);
    }
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "{} of {} rounds count, beside at most {}.{} % of others",
        calibration.rounds_used,
        calibration.rounds,
        calibration.others_permille / 10,
        calibration.others_permille % 10
    );
    let mut by_reason: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, reason) in &calibration.not_measured {
        by_reason.entry(reason).or_default().push(name);
    }
    for (reason, names) in by_reason {
        let _ = writeln!(text, "not measured: {} ({reason})", names.join(", "));
    }
    text
}

fn row(text: &mut String, name: &str, typical: Option<Nanos>, quantiles: &[u64; 8]) {
    let us = |ns: u64| format!("{:.2}", ns as f64 / 1_000.0);
    let typical = typical.map_or_else(String::new, |value| us(value.0));
    let [_, low, _, median, _, high, tail, _] = quantiles.map(us);
    let _ = writeln!(text, "{name:22} {typical:>9} {median:>9} {low:>9} {high:>9} {tail:>9}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_in_which_the_load_lost_its_cpu_do_not_count() {
        assert_eq!(undisturbed(&[900, 10, 30, 11, 12]), [10, 11, 12, 30]);
        assert_eq!(undisturbed(&[]), [0; 0]);
    }

    #[test]
    fn a_cost_is_measured_or_there_is_a_reason() {
        let topology = Topology::flat(1).expect("one CPU");
        let mut costs = Costs::default();
        let all = not_measured(&costs, &topology, 1);
        assert_eq!(all.len(), Costs::COUNT);
        assert_eq!(all["ipi_send"], "needs two usable CPUs");
        costs.wakeup.origin = Origin::Measured;
        let rest = not_measured(&costs, &topology, 2);
        assert!(!rest.contains_key("wakeup") && rest["ipi_send"].contains("too few"), "{rest:?}");
    }

    /// A cost without samples stays as it was.
    #[test]
    fn what_was_timed_becomes_costs() {
        let mut costs = Costs::default();
        let timed = Timed { switch: vec![1_000; 50], socket: vec![900; 50], ..Timed::default() };
        let seen = Measured { recordings: Vec::new(), timed, rounds: 1, others_permille: 0 };
        fill(&mut costs, &seen, Distance::Cache);
        assert_eq!(costs.context_switch.value, Nanos(1_000));
        assert_eq!(costs.socket_call.map(|cost| cost.value), Some(Nanos(450)));
        assert_eq!(
            (costs.pipe_call, costs.migration_cache),
            (Costs::default().pipe_call, Costs::default().migration_cache)
        );
    }

    /// 10 us there and back with one wait, in which are four calls of 0.5 us, two switches of 1 us and a wake-up of 2 us; with two
    /// waits in each, two of both.
    #[test]
    fn a_wait_takes_what_is_left_of_a_trip() {
        let mut costs = Costs::default();
        let value = |ns| Cost { value: Nanos(ns), ..Cost::assumed(0, 0) };
        (costs.pipe_call, costs.context_switch, costs.wakeup) = (value(500), value(1_000), value(2_000));
        let timed = |waits| Timed {
            pipe_trip_same: vec![10_000; 50],
            trips_and_waits: (500, waits),
            ..Timed::default()
        };
        assert_eq!(waits(&timed(500), &costs), [4_000; 50]);
        assert_eq!(waits(&timed(1_000), &costs), [1_000; 50]);
        assert_eq!(waits(&timed(0), &costs), [0; 0], "nobody waited");
    }

    /// 10 us there and back, of which two writes and reads are 3 us and two wake-ups 4 us.
    #[test]
    fn a_switch_is_told_by_round_trips_where_yields_do_not() {
        let trips = Timed { pipe: vec![1_500; 50], pipe_trip_same: vec![10_000; 50], ..Timed::default() };
        assert_eq!(switches(&trips, Nanos(2_000)), [1_500; 50]);
        let both = Timed { switch: vec![900; 20], ..trips };
        assert_eq!(switches(&both, Nanos(2_000)), [900; 20]);
    }
}
