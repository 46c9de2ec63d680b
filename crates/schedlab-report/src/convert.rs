//! Triage and fidelity as the result file holds them.
//!
//! What they mean is in [`crate::triage`] and [`crate::fidelity`]; here only their shape changes.

use crate::compare::GainBound;
use crate::fidelity::{Fidelity, FidelityMetric};
use crate::result::{FidelityRecord, TimeKind, TimePart, TriageRecord};
use crate::triage::Triage;
use schedlab_model::time::Nanos;

impl From<&Triage> for TriageRecord {
    fn from(triage: &Triage) -> TriageRecord {
        let spent = &triage.target;
        let part = |name: &str, time: Nanos, kind| TimePart { name: name.to_owned(), ns: time.0, kind };
        let mut parts = vec![
            part("running", spent.running, TimeKind::Running),
            part("interrupted", spent.interrupted, TimeKind::Running),
            part("waiting after a wake-up", spent.run_delay_wakeup, TimeKind::Waiting),
            part("waiting after preemption", spent.run_delay_preempted, TimeKind::Waiting),
        ];
        let mut asleep: Vec<TimePart> = spent
            .asleep
            .iter()
            .map(|(cause, time)| part(&format!("asleep: {}", cause.name()), *time, TimeKind::Asleep))
            .collect();
        asleep.sort_by_key(|part| std::cmp::Reverse(part.ns));
        parts.extend(asleep);
        parts.retain(|part| part.ns > 0);
        TriageRecord {
            headline: triage.sentence(),
            parts,
            gain_max: Some(triage.bound.gain_percent_max() / 100.0),
        }
    }
}

impl From<&Triage> for GainBound {
    fn from(triage: &Triage) -> GainBound {
        GainBound { gain_max: triage.bound.gain_percent_max() / 100.0 }
    }
}

/// Metrics that fidelity does not judge are left out.
impl From<&Fidelity> for Vec<FidelityRecord> {
    fn from(fidelity: &Fidelity) -> Vec<FidelityRecord> {
        let record = |row: &crate::fidelity::FidelityRow| {
            Some(FidelityRecord {
                metric: row.metric.name().to_owned(),
                unit: unit_of(row.metric).to_owned(),
                recorded: row.recorded,
                replayed: row.simulated,
                within_tolerance: row.within?,
            })
        };
        fidelity.rows.iter().filter_map(record).collect()
    }
}

fn unit_of(metric: FidelityMetric) -> &'static str {
    match metric {
        FidelityMetric::RunDelayMean | FidelityMetric::RunDelayP99 | FidelityMetric::Makespan => "ns",
        FidelityMetric::ShareDifference => "points",
        FidelityMetric::Switches | FidelityMetric::Wakeups | FidelityMetric::Migrations => "1",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::triage::{Bound, Requests, SleepCause, TimeSpent};
    use std::collections::BTreeMap;

    #[test]
    fn triage_keeps_its_sentence_its_bound_and_all_of_the_time() {
        let target = TimeSpent {
            running: Nanos(60),
            run_delay_wakeup: Nanos(30),
            asleep: BTreeMap::from([(SleepCause::Timer, Nanos(5)), (SleepCause::Io, Nanos(7))]),
            ..TimeSpent::default()
        };
        let total = target.total();
        let bound = Bound { took: Nanos(80), run_delay: Nanos(3), least: Nanos(60), of_requests: false };
        let triage = Triage {
            target,
            tasks: Vec::new(),
            makespan: Nanos(80),
            ended: true,
            chain: TimeSpent::default(),
            requests: Requests::default(),
            cpus: 1,
            bound,
        };
        let record = TriageRecord::from(&triage);
        assert_eq!(record.headline, triage.sentence());
        assert_eq!(record.gain_max, Some(0.25));
        assert_eq!(record.parts.iter().map(|part| part.ns).sum::<u64>(), total.0);
        let kinds: Vec<(u64, TimeKind)> = record.parts.iter().map(|part| (part.ns, part.kind)).collect();
        let expected =
            [(60, TimeKind::Running), (30, TimeKind::Waiting), (7, TimeKind::Asleep), (5, TimeKind::Asleep)];
        assert_eq!(kinds, expected);
    }
}
