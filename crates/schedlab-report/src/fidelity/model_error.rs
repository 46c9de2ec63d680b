//! The model's error of predicted ratios, by class of change: its form, what an earlier measurement found, and how the next
//! one would find it.
//!
//! Pairs of which next to no effect is predicted are as good as never wrong by much; of large effects the size is uncertain
//! and hardly ever the sign. So an error has two parts: one that any ratio has, and one that is a part of the effect's
//! logarithm. Widening an interval by it makes the size of an effect less certain and leaves a small effect small.

use super::judge::PairScore;
use super::measured::Source;
use crate::compare::stats;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The two-sided error at which a [`ModelError`] is stated: nine of ten pairs were within.
pub const ALPHA: f64 = 0.10;
/// A predicted ratio up to this, or its inverse, is next to no effect.
pub const NO_EFFECT_MAX: f64 = 1.25;

/// Error of any ratio, from a file and from a recording: what the recordings of 23 November 2026 say (36 and 34 pairs).
const LEAST: (f64, f64) = (0.01, 0.01);
/// Share of an effect by class, from a file and from a recording, of classes with five pairs and more that have one.
const SHARES: &[(&str, (f64, f64))] =
    &[("nice", (0.68, 0.03)), ("policy", (0.09, 0.02)), ("slice", (0.09, 0.05))];
/// Of all classes together. From recordings it was 0.07 at first; two later measurements found 0.17 and 0.22.
const SHARE_OF_ALL: (f64, f64) = (0.20, 0.20);

/// How far off predicted ratios are, chance apart; nine of ten are within.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelError {
    /// Relative error of any ratio, also where no effect is predicted.
    pub least: f64,
    /// Error of the effect's logarithm, as a part of it: with 0.2 a predicted 2.0 may be 1.74 or 2.30.
    pub share: f64,
}

impl ModelError {
    /// Half-width at [`ALPHA`] around an effect, both logarithmic.
    pub fn half_width(&self, effect: f64) -> f64 {
        self.least.ln_1p().hypot(self.share * effect)
    }

    /// The same at another two-sided error, as if errors were normal.
    pub fn half_width_at(&self, effect: f64, alpha: f64) -> f64 {
        self.half_width(effect) * normal_quantile(alpha / 2.0) / normal_quantile(ALPHA / 2.0)
    }

    /// The larger of both, part by part: for work of which one piece is a file and another a recording.
    #[must_use]
    pub fn or_worse(self, other: ModelError) -> ModelError {
        ModelError { least: self.least.max(other.least), share: self.share.max(other.share) }
    }

    /// What pairs of one source say: `least` of those with next to no effect, `share` of the others.
    pub fn found(pairs: &[&PairScore<'_>]) -> ModelError {
        let (none, some): (Vec<&PairScore<'_>>, Vec<_>) = pairs.iter().partition(|pair| has_no_effect(pair));
        let least = nine_in_ten(none.iter().map(|pair| pair.error_beyond_chance()).collect());
        ModelError { least: least.exp_m1(), share: share_of(&some, least) }
    }
}

/// Whether next to no effect is predicted.
pub fn has_no_effect(pair: &PairScore<'_>) -> bool {
    pair.predicted.estimate.abs() <= NO_EFFECT_MAX.ln()
}

/// The part of the effect's logarithm that nine of ten of these pairs are off by, once `least` (logarithmic) is taken off.
pub fn share_of(pairs: &[&PairScore<'_>], least: f64) -> f64 {
    let share = |pair: &&PairScore<'_>| {
        let beyond = pair.error_beyond_chance();
        (beyond * beyond - least * least).max(0.0).sqrt() / pair.predicted.estimate.abs()
    };
    nine_in_ten(pairs.iter().map(share).collect())
}

/// Nine of ten are at most this; in between two of them, so that the worst of a few does not speak for all.
fn nine_in_ten(mut errors: Vec<f64>) -> f64 {
    errors.sort_unstable_by(f64::total_cmp);
    let Some(last) = errors.len().checked_sub(1) else { return 0.0 };
    let place = (1.0 - ALPHA) * last as f64;
    let (below, above) = (errors[place.floor() as usize], errors[place.ceil() as usize]);
    below + (above - below) * place.fract()
}

fn normal_quantile(tail: f64) -> f64 {
    stats::t_quantile(tail, 1e6)
}

/// What all classes together had before.
pub fn of_all(source: Source) -> ModelError {
    ModelError { least: of_source(LEAST, source), share: of_source(SHARE_OF_ALL, source) }
}

/// What was found for a class before, and whether enough pairs of it were measured. A class of few pairs that happen to be good
/// is not taken for better than all classes together.
pub fn of_class(class: &str, source: Source) -> (ModelError, bool) {
    let all = of_all(source);
    match SHARES.iter().find(|(name, _)| *name == class) {
        Some((_, share)) => (ModelError { share: of_source(*share, source).max(all.share), ..all }, true),
        None => (all, false),
    }
}

fn of_source((file, recording): (f64, f64), source: Source) -> f64 {
    match source {
        Source::File => file,
        Source::Recording => recording,
    }
}
