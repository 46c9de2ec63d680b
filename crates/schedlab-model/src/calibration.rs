//! What `schedlab machine --calibrate` saw besides the costs of [`crate::machine::Costs`]: whole latencies as a program
//! meets them, how undisturbed the measuring was, and what could not be measured, with the reason.
//!
//! Nothing here decides anything in a simulation; it tells how far a machine file is to be trusted.

use crate::machine::QUANTILES_PERMILLE;
use crate::time::Nanos;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One quantity, by its samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measurement {
    /// The middle one.
    pub median: Nanos,
    /// At [`QUANTILES_PERMILLE`], in ns.
    pub quantiles: [u64; 8],
    /// How many.
    pub samples: u64,
}

impl Measurement {
    /// Of at least one sample, in ns, in any order.
    pub fn of(samples: &[u64]) -> Option<Measurement> {
        let mut sorted = samples.to_vec();
        sorted.sort_unstable();
        let last = sorted.len().checked_sub(1)?;
        let quantiles = QUANTILES_PERMILLE.map(|permille| sorted[last * permille as usize / 1_000]);
        Some(Measurement { median: Nanos(quantiles[3]), quantiles, samples: sorted.len() as u64 })
    }
}

/// How the costs of a machine file were measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Calibration {
    /// Times that all loads were played.
    pub rounds: u32,
    /// Of them undisturbed enough to count.
    pub rounds_used: u32,
    /// CPU time of others in those that count, in thousandths of the machine's.
    pub others_permille: u32,
    /// Whole latencies, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub seen: BTreeMap<String, Measurement>,
    /// Why a cost of the file was not measured, by its name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub not_measured: BTreeMap<String, String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_samples_and_in_order() {
        let samples: Vec<u64> = (1..=1_001).rev().collect();
        let seen = Measurement::of(&samples).expect("samples");
        assert_eq!(seen.quantiles, [11, 51, 251, 501, 751, 951, 991, 1_000]);
        assert_eq!((seen.median, seen.samples), (Nanos(501), 1_001));
        assert_eq!(Measurement::of(&[]), None);
        assert_eq!(Measurement::of(&[7]).map(|seen| seen.quantiles), Some([7; 8]));
    }
}
