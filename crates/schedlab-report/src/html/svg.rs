//! Scales, ticks and colours that the pictures share.

use std::fmt::Write;

/// Number of colours in the style sheet (`--k0` to `--k9`).
const COLORS: usize = 10;

/// A colour for the thing of this number.
pub(super) fn color(index: usize) -> String {
    format!("var(--k{})", index % COLORS)
}

/// A linear or logarithmic scale from values to pixels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    logarithmic: bool,
}

impl Scale {
    /// Values from `low` to `high` onto pixels from `from` to `to`.
    pub fn linear(low: f64, high: f64, from: f64, to: f64) -> Scale {
        let high = if high > low { high } else { low + 1.0 };
        Scale { low, high, from, to, logarithmic: false }
    }

    /// The same on a logarithmic axis; `low` must be positive.
    pub fn logarithmic(low: f64, high: f64, from: f64, to: f64) -> Scale {
        let high = if high > low { high } else { low * 2.0 };
        Scale { low: low.ln(), high: high.ln(), from, to, logarithmic: true }
    }

    /// Pixel of a value, within the scale's ends.
    pub fn at(&self, value: f64) -> f64 {
        let value = if self.logarithmic { value.max(f64::MIN_POSITIVE).ln() } else { value };
        let share = ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        self.from + share * (self.to - self.from)
    }

    /// Whether a value lies on the scale.
    pub fn contains(&self, value: f64) -> bool {
        let value = if self.logarithmic { value.max(f64::MIN_POSITIVE).ln() } else { value };
        (self.low..=self.high).contains(&value)
    }

    /// About `wanted` round values.
    pub fn ticks(&self, wanted: usize) -> Vec<f64> {
        if !self.logarithmic {
            return linear_ticks(self.low, self.high, wanted);
        }
        let all = |steps: &[f64]| -> Vec<f64> {
            let decades = (self.low / std::f64::consts::LN_10).floor() as i32
                ..=(self.high / std::f64::consts::LN_10).ceil() as i32;
            let ticks = decades.flat_map(|decade| steps.iter().map(move |step| step * 10_f64.powi(decade)));
            ticks.filter(|tick| self.contains(*tick)).collect()
        };
        let choices = [
            all(&[1.0, 1.1, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]),
            all(&[1.0, 1.5, 2.0, 3.0, 5.0, 7.0]),
            all(&[1.0, 2.0, 5.0]),
            all(&[1.0]),
        ];
        let fits = choices.into_iter().find(|ticks| ticks.len() <= wanted);
        fits.unwrap_or_else(|| all(&[1.0]).into_iter().step_by(2).collect())
    }
}

fn linear_ticks(low: f64, high: f64, wanted: usize) -> Vec<f64> {
    let rough = (high - low) / wanted.max(1) as f64;
    let decade = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].iter().map(|step| step * decade).find(|step| *step >= rough);
    let step = step.unwrap_or(rough);
    let first = (low / step).ceil() as i64;
    let last = (high / step).floor() as i64;
    (first..=last).map(|index| index as f64 * step).collect()
}

/// A line across a chart from `left` to `right` at the height `at`, with its label `gap` pixels before it.
pub(super) fn grid_line(at: f64, (left, right): (f64, f64), gap: f64, label: &str) -> String {
    format!(
        "<line class=\"grid\" x1=\"{left}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
         <text class=\"end\" x=\"{:.1}\" y=\"{:.1}\">{label}</text>",
        left - gap,
        at + 4.0
    )
}

/// A path that keeps its value until the next point.
pub(super) fn steps(points: &[(f64, f64)], end_x: f64) -> String {
    let mut out = String::new();
    for (index, (x, y)) in points.iter().enumerate() {
        let _ = if index == 0 { write!(out, "M{x:.1} {y:.1}") } else { write!(out, "H{x:.1}V{y:.1}") };
    }
    if !points.is_empty() {
        let _ = write!(out, "H{end_x:.1}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(Scale::linear(0.0, 100.0, 0.0, 1.0).ticks(5), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(Scale::logarithmic(1e3, 1e6, 0.0, 1.0).ticks(6), [1e3, 1e4, 1e5, 1e6]);
        let close = Scale::logarithmic(0.8, 1.3, 0.0, 1.0).ticks(8);
        assert!(close.contains(&1.0) && close.len() >= 3, "{close:?}");
    }

    #[test]
    fn scales_keep_to_their_ends() {
        let scale = Scale::logarithmic(1.0, 100.0, 0.0, 200.0);
        assert_eq!([scale.at(0.0), scale.at(10.0), scale.at(1e9)], [0.0, 100.0, 200.0]);
        assert_eq!(steps(&[(0.0, 1.0), (5.0, 2.0)], 9.0), "M0.0 1.0H5.0V2.0H9.0");
    }
}
