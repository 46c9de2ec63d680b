//! What things cost on this run: the machine's costs, perturbed once if asked, scattered at each use.

use crate::rng::Rng;
use schedlab_model::machine::Costs;
use schedlab_model::topology::Distance;

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

/// Lowest value and width of the scatter, in ns.
#[derive(Clone, Copy, Default)]
struct Range {
    low: u64,
    width: u64,
}

/// Every cost, ready to draw.
pub(crate) struct CostTable([Range; KINDS]);

impl CostTable {
    /// From a machine's costs. With a `perturb` seed every cost is first scaled by 50 % to 150 %, each by its
    /// own factor.
    pub(crate) fn new(costs: &Costs, perturb: Option<u64>) -> CostTable {
        let mut rng = perturb.map(|seed| Rng::new(seed, 0xc057));
        CostTable(costs.all().map(|cost| {
            let percent = rng.as_mut().map_or(100, |rng| rng.between(50, 150));
            let value = cost.value.0 * percent / 100;
            let half = value * u64::from(cost.spread_percent.min(100)) / 100;
            Range { low: value - half, width: 2 * half }
        }))
    }

    /// Nothing costs anything.
    pub(crate) fn zero() -> CostTable {
        CostTable([Range::default(); KINDS])
    }

    /// One draw, in ns.
    #[inline]
    pub(crate) fn draw(&self, kind: CostKind, rng: &mut Rng) -> u64 {
        let Range { low, width } = self.0[kind as usize];
        if width == 0 { low } else { low + rng.below(width + 1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::machine::Cost;

    #[test]
    fn draws_stay_within_the_spread_and_perturbation_within_half() {
        let costs = Costs { context_switch: Cost::assumed(1_000, 20), ..Costs::default() };
        let (table, mut rng) = (CostTable::new(&costs, None), Rng::new(1, 0));
        let drawn: Vec<u64> = (0..10_000).map(|_| table.draw(CostKind::ContextSwitch, &mut rng)).collect();
        assert_eq!(drawn.iter().min(), Some(&800));
        assert_eq!(drawn.iter().max(), Some(&1_200));
        for seed in 0..100 {
            let range = CostTable::new(&costs, Some(seed)).0[CostKind::ContextSwitch as usize];
            let middle = range.low + range.width / 2;
            assert!((500..=1_500).contains(&middle), "{middle}");
        }
    }
}
