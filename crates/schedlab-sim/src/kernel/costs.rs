//! What things cost on this run: the machine's costs, perturbed once if asked, scattered at each use.

use schedlab_model::machine::{Cost, Costs, MachineDescription, QUANTILES_PERMILLE};
use schedlab_model::rng::Rng;
use schedlab_model::topology::Distance;
use std::hint::cold_path;

/// Something that costs time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CostKind {
    ContextSwitch,
    Wakeup,
    Ipi,
    IpiIdle,
    IpiSend,
    IdleExit,
    Tick,
    Interrupt,
    TimerLatency,
    MigrationSmt,
    MigrationCache,
    MigrationNode,
    MigrationRemote,
    BalancePerCpu,
    BpfKiloInstructions,
    ExtCallback,
    DsqLockCache,
    DsqLockNode,
    DsqLockRemote,
    PipeCall,
    FutexCall,
    WaitCall,
    ForkCall,
    ForkChild,
    ExitCall,
    IpiStall,
    SocketCall,
}

const KINDS: usize = Costs::COUNT;

impl CostKind {
    /// The lost warmth of a move over this distance; `None` for no move.
    pub(crate) fn of_migration(distance: Distance) -> Option<CostKind> {
        match distance {
            Distance::Same => None,
            Distance::Smt => Some(CostKind::MigrationSmt),
            Distance::Cache => Some(CostKind::MigrationCache),
            Distance::Node => Some(CostKind::MigrationNode),
            Distance::Remote => Some(CostKind::MigrationRemote),
        }
    }
}

/// A CPU that has idled `residency` ns takes `latency` ns longer to leave idle.
#[derive(Clone, Copy)]
struct IdleDepth {
    residency: u64,
    latency: u64,
}

/// Lowest value and number of values of the scatter, in ns, 0 if there is none; or [`MEASURED`] and the row of measured
/// quantiles.
#[derive(Clone, Copy, Default)]
struct Range {
    low: u64,
    values: u64,
}

/// More values than any scatter has.
const MEASURED: u64 = u64::MAX;

/// [`QUANTILES_PERMILLE`] in units of 1/2^20.
const BOUNDS: [u64; 8] = {
    let mut bounds = [0; 8];
    let mut index = 0;
    while index < bounds.len() {
        bounds[index] = ((QUANTILES_PERMILLE[index] as u64) << 20) / 1_000;
        index += 1;
    }
    bounds
};

/// Every cost, ready to draw.
pub(crate) struct CostTable {
    ranges: [Range; KINDS],
    quantiles: Vec<[u64; 8]>,
    /// The shallowest first.
    idle: Vec<IdleDepth>,
}

impl CostTable {
    /// From a machine's costs. With a `perturb` seed every cost is first scaled by 50 % to 150 %, each by its
    /// own factor; the latencies of idle states share one.
    pub(crate) fn new(machine: &MachineDescription, perturb: Option<u64>) -> CostTable {
        let mut rng = perturb.map(|seed| Rng::new(seed, 0xc057));
        let mut percent = || rng.as_mut().map_or(100, |rng| rng.between(50, 150));
        let mut quantiles = Vec::new();
        let mut range_of = |cost: Cost, percent: u64| {
            let value = cost.value.0 * percent / 100;
            let half = value * u64::from(cost.spread_percent.min(100)) / 100;
            if let Some(measured) = cost.quantiles {
                quantiles.push(measured.map(|value| value * percent / 100));
                return Range { low: quantiles.len() as u64 - 1, values: MEASURED };
            }
            Range { low: value - half, values: if half == 0 { 0 } else { 2 * half + 1 } }
        };
        let mut ranges = [Range::default(); KINDS];
        let costs = machine.costs.all();
        for (range, cost) in ranges.iter_mut().zip(&costs[..CostKind::SocketCall as usize]) {
            *range = range_of(*cost, percent());
        }
        let idle_percent = percent();
        // Last, so that a file that tells it has the other factors of one that does not.
        ranges[CostKind::SocketCall as usize] = match machine.costs.socket_call {
            Some(cost) => range_of(cost, percent()),
            None => ranges[CostKind::PipeCall as usize],
        };
        let states = machine.idle_states.iter().map(|state| IdleDepth {
            residency: state.target_residency.0,
            latency: state.exit_latency.0 * idle_percent / 100,
        });
        let measured = [machine.costs.idle_exit, machine.costs.ipi_idle].iter().any(Cost::is_measured);
        let mut idle: Vec<IdleDepth> = if measured { Vec::new() } else { states.collect() };
        idle.sort_by_key(|state| state.residency);
        CostTable { ranges, quantiles, idle }
    }

    /// Nothing costs anything.
    pub(crate) fn zero() -> CostTable {
        CostTable { ranges: [Range::default(); KINDS], quantiles: Vec::new(), idle: Vec::new() }
    }

    /// What leaving idle costs more for the idle state that a CPU is in after so many ns of idling: the deepest
    /// whose residency they reach, as a governor chooses that always guesses right.
    #[inline]
    pub(crate) fn idle_latency(&self, idled: u64) -> u64 {
        let reached = self.idle.iter().rev().find(|state| state.residency <= idled);
        reached.map_or(0, |state| state.latency)
    }

    /// The typical cost, without scatter.
    pub(crate) fn typical(&self, kind: CostKind) -> u64 {
        match self.ranges[kind as usize] {
            Range { low: row, values: MEASURED } => self.quantiles[row as usize][3],
            Range { low, values } => low + values / 2,
        }
    }

    /// Leaving idle, in ns. Woken by another CPU it is just typical where that was measured: the scatter of both is seen
    /// together and is in [`CostKind::IpiIdle`].
    pub(crate) fn idle_exit(&self, from_other: bool, rng: &mut Rng) -> u64 {
        let together = from_other && self.ranges[CostKind::IpiIdle as usize].values == MEASURED;
        if together { self.typical(CostKind::IdleExit) } else { self.draw(CostKind::IdleExit, rng) }
    }

    /// One draw, in ns.
    #[inline(always)]
    pub(crate) fn draw(&self, kind: CostKind, rng: &mut Rng) -> u64 {
        let Range { low, values } = self.ranges[kind as usize];
        // 0 and `MEASURED` with one comparison.
        if values.wrapping_sub(1) < MEASURED - 1 {
            low + rng.below(values)
        } else {
            cold_path();
            self.draw_other(kind, rng)
        }
    }

    #[inline(never)]
    fn draw_other(&self, kind: CostKind, rng: &mut Rng) -> u64 {
        match self.ranges[kind as usize] {
            Range { low: row, values: MEASURED } => {
                between_quantiles(&self.quantiles[row as usize], rng.below(1 << 20))
            }
            Range { low, .. } => low,
        }
    }
}

/// The value that so many of 2^20 samples do not exceed: evenly between two quantiles, never below the first or above the
/// last. Between the last two, a tail that may span a decade, most are near the lower one.
fn between_quantiles(quantiles: &[u64; 8], position: u64) -> u64 {
    let above = BOUNDS.partition_point(|bound| *bound <= position);
    let Some(&end) = BOUNDS.get(above) else { return quantiles[7] };
    if above == 0 {
        return quantiles[0];
    }
    let (start, low) = (BOUNDS[above - 1], quantiles[above - 1]);
    let rise = quantiles[above].saturating_sub(low);
    let mut part = ((position - start) << 20) / (end - start);
    if above == BOUNDS.len() - 1 {
        part = (part * part) >> 20;
    }
    low + ((u128::from(rise) * u128::from(part)) >> 20) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::machine::{IdleState, Origin};
    use schedlab_model::{Nanos, topology::Topology};

    fn with(costs: Costs) -> MachineDescription {
        let topology = Topology::flat(2).expect("two CPUs");
        MachineDescription { costs, ..MachineDescription::generic("test", topology) }
    }

    /// Half a residency is not enough, twice is; measured exits hold the states' latencies already.
    #[test]
    fn deeper_idle_states_take_longer_to_leave() {
        let state = |name: &str, latency, residency| IdleState {
            name: name.to_owned(),
            exit_latency: Nanos(latency),
            target_residency: Nanos(residency),
            origin: Origin::Published,
        };
        let states = vec![state("C1", 1_000, 1_000), state("C6", 170_000, 600_000)];
        let mut machine = MachineDescription { idle_states: states, ..with(Costs::default()) };
        let table = CostTable::new(&machine, None);
        let latencies = [0, 999, 1_000, 300_000, 600_000, 1_200_000].map(|idled| table.idle_latency(idled));
        assert_eq!(latencies, [0, 0, 1_000, 1_000, 170_000, 170_000]);
        let perturbed: Vec<u64> =
            (0..50).map(|seed| CostTable::new(&machine, Some(seed)).idle_latency(u64::MAX)).collect();
        assert!(perturbed.iter().all(|latency| (85_000..=255_000).contains(latency)));
        assert!(perturbed.iter().min() < Some(&100_000) && perturbed.iter().max() > Some(&240_000));
        for wakes_itself in [true, false] {
            machine.costs = Costs::default();
            let costs = &mut machine.costs;
            let measured = if wakes_itself { &mut costs.idle_exit } else { &mut costs.ipi_idle };
            measured.origin = Origin::Measured;
            assert_eq!(CostTable::new(&machine, None).idle_latency(u64::MAX), 0);
        }
    }

    #[test]
    fn draws_stay_within_the_spread_and_perturbation_within_half() {
        let machine = with(Costs { context_switch: Cost::assumed(1_000, 20), ..Costs::default() });
        let (table, mut rng) = (CostTable::new(&machine, None), Rng::new(1, 0));
        let drawn: Vec<u64> = (0..10_000).map(|_| table.draw(CostKind::ContextSwitch, &mut rng)).collect();
        assert_eq!(drawn.iter().min(), Some(&800));
        assert_eq!(drawn.iter().max(), Some(&1_200));
        for seed in 0..100 {
            let range = CostTable::new(&machine, Some(seed)).ranges[CostKind::ContextSwitch as usize];
            let middle = range.low + range.values / 2;
            assert!((500..=1_500).contains(&middle), "{middle}");
        }
    }

    /// A file that tells what calls at sockets take has the same other factors.
    #[test]
    fn sockets_without_a_cost_of_their_own_are_as_pipes_when_perturbed_too() {
        let without = with(Costs::default());
        let told = with(Costs { socket_call: Some(Cost::assumed(900, 20)), ..Costs::default() });
        let mut differ = 0;
        for seed in 0..20 {
            let (one, other) = (CostTable::new(&without, Some(seed)), CostTable::new(&told, Some(seed)));
            for kind in [CostKind::PipeCall, CostKind::IpiStall, CostKind::ContextSwitch] {
                assert_eq!(one.typical(kind), other.typical(kind));
            }
            assert_eq!(one.typical(CostKind::SocketCall), one.typical(CostKind::PipeCall));
            differ +=
                u32::from(other.typical(CostKind::SocketCall) * 4 != other.typical(CostKind::PipeCall) * 9);
        }
        assert!(differ > 15, "a factor of its own: {differ} of 20");
    }

    /// A tail of 1 % between 5 and 50 us stays one, half of the draws are below the median.
    #[test]
    fn draws_follow_measured_quantiles() {
        let quantiles = Some([1_000, 1_100, 1_500, 2_000, 2_500, 4_000, 5_000, 50_000]);
        let machine =
            with(Costs { wakeup: Cost { quantiles, ..Cost::assumed(2_000, 0) }, ..Costs::default() });
        let (table, mut rng) = (CostTable::new(&machine, None), Rng::new(3, 0));
        let drawn: Vec<u64> = (0..100_000).map(|_| table.draw(CostKind::Wakeup, &mut rng)).collect();
        let above = |limit| drawn.iter().filter(|value| **value > limit).count();
        assert!(above(2_000).abs_diff(50_000) < 1_000 && above(5_000).abs_diff(1_000) < 150);
        assert!(drawn.iter().all(|value| (1_000..=50_000).contains(value)));
        assert!(above(49_999) > 20, "one in a thousand is as long as the longest seen");
        let at_the_first = 100_000 - above(1_000);
        assert!(
            at_the_first.abs_diff(1_000) < 150,
            "{at_the_first}: one in a hundred is as short as the first"
        );
    }

    #[test]
    fn what_was_seen_together_scatters_once() {
        let scattered =
            |typical| Cost { quantiles: Some([1, 2, 3, 40, 50, 60, 70, 80]), ..Cost::assumed(typical, 0) };
        let exits = |costs| {
            let (table, mut rng) = (CostTable::new(&with(costs), None), Rng::new(1, 0));
            [true, false].map(|from_other| {
                let drawn: std::collections::BTreeSet<u64> =
                    (0..1_000).map(|_| table.idle_exit(from_other, &mut rng)).collect();
                (drawn.len(), drawn.contains(&40))
            })
        };
        let [from_other, alone] =
            exits(Costs { idle_exit: scattered(39), ipi_idle: scattered(41), ..Costs::default() });
        assert!(from_other == (1, true) && alone.0 > 40, "{from_other:?} {alone:?}");
        let [from_other, _] = exits(Costs { idle_exit: scattered(39), ..Costs::default() });
        assert!(from_other.0 > 40, "an assumed way there has no scatter of both: {from_other:?}");
    }
}
