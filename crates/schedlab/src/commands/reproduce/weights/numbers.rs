//! Means and ratios over seeds with their intervals.

use schedlab_report::compare::stats::{mean, t_quantile, variance};
use serde::Serialize;
use std::fmt;

/// All intervals that one claim rests on miss together with this probability.
const ALPHA: f64 = 0.05;

/// An estimate and the interval in which the truth lies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// Best estimate.
    pub estimate: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// Of the mean of values, one a seed, by Student's t; `family` intervals hold together with 95 %.
    pub fn of_mean(values: &[f64], family: usize) -> Interval {
        let estimate = mean(values);
        let count = values.len() as f64;
        let tail = ALPHA / 2.0 / family.max(1) as f64;
        let half = match values.len() {
            0 | 1 => f64::INFINITY,
            _ => t_quantile(tail, count - 1.0) * (variance(values) / count).sqrt(),
        };
        Interval { estimate, low: estimate - half, high: estimate + half }
    }

    /// Of the ratio of two values of each seed: the geometric mean.
    pub fn of_ratio(pairs: impl Iterator<Item = (f64, f64)>, family: usize) -> Interval {
        let logs: Vec<f64> = pairs.map(|(value, base)| (value / base).ln()).collect();
        let Interval { estimate, low, high } = Interval::of_mean(&logs, family);
        Interval { estimate: estimate.exp(), low: low.exp(), high: high.exp() }
    }

    /// Whether the whole interval lies within `by` of `of`.
    pub fn is_within(&self, by: f64, of: f64) -> bool {
        self.low >= of - by && self.high <= of + by
    }
}

impl fmt::Display for Interval {
    /// `1.002 (0.998 to 1.006)`; without brackets if there is no spread. A precision counts.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(3);
        let Interval { estimate, low, high } = *self;
        let shown = |value: f64| match f.sign_plus() {
            true => format!("{value:+.digits$}"),
            false => format!("{value:.digits$}"),
        };
        if shown(low) == shown(high) {
            return f.write_str(&shown(estimate));
        }
        write!(f, "{} ({} to {})", shown(estimate), shown(low), shown(high))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 4.604 is t of four degrees of freedom at 0.5 %, for ten intervals; the deviation of 1 to 5 is the root of 2.5.
    #[test]
    fn intervals_are_students_and_hold_together() {
        let found = Interval::of_mean(&[1.0, 2.0, 3.0, 4.0, 5.0], 1);
        let half = 2.776_4 * (2.5_f64 / 5.0).sqrt();
        assert!((found.high - found.estimate - half).abs() < 1e-3, "{found:?}");
        let ten = Interval::of_mean(&[1.0, 2.0, 3.0, 4.0, 5.0], 5);
        assert!((ten.high - 3.0 - 4.604_1 * (2.5_f64 / 5.0).sqrt()).abs() < 1e-3, "{ten:?}");
        assert_eq!(Interval::of_mean(&[1.0], 1).high, f64::INFINITY);
    }

    #[test]
    fn ratios_are_geometric_and_what_has_no_spread_says_so() {
        let found = Interval::of_ratio([(2.0, 1.0), (8.0, 1.0)].into_iter(), 1);
        assert!((found.estimate - 4.0).abs() < 1e-12 && found.low < 1.0, "{found:?}");
        let same = Interval::of_ratio([(3.0, 3.0), (4.0, 4.0)].into_iter(), 1);
        assert_eq!(same.to_string(), "1.000");
        assert!(same.is_within(0.01, 1.0) && !found.is_within(1.0, 4.0));
        assert_eq!(format!("{:.1}", Interval { estimate: 1.0, low: 0.5, high: 1.5 }), "1.0 (0.5 to 1.5)");
    }
}
