//! The statistics of paired log ratios: a hierarchical bootstrap interval that is honest for few runs.
//!
//! Five seeds are few. A plain percentile bootstrap of five differences cannot reach beyond the largest of
//! them, and is wrong in every 16th comparison of equal things even at its widest. So the bootstrap gives
//! the shape, and Student's t its width ("expanded" bootstrap, Hesterberg 2015, section 4.2). What the
//! numbers mean is decided in [`super`].

/// Bootstrap resamples: the 2.5 % points move by less than 3 % of the interval from seed to seed.
pub const RESAMPLES: usize = 2_000;
/// Half the probability outside the plain interval whose shape the bootstrap gives.
const SHAPE_TAIL: f64 = 0.025;
/// The normal quantile of that tail.
const SHAPE_Z: f64 = 1.959_963_985;

/// From this many works on, the interval speaks of works like these; below, of these works alone. Two or
/// three differing works say next to nothing of others, and would hide what is plain in each of them.
pub const WORKS_RANDOM_MIN: usize = 4;

/// A ratio's logarithm with an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogInterval {
    /// Best estimate: mean over works of the mean over pairs.
    pub estimate: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Share of the variance that comes from works differing, not from runs of one work.
    pub between_share: f64,
    /// Whether the mean of every work lies on the same side of equality.
    pub works_agree: bool,
}

impl LogInterval {
    /// Whether equality is outside.
    pub fn excludes_zero(&self) -> bool {
        self.low > 0.0 || self.high < 0.0
    }

    /// The end farther from equality.
    pub fn largest(&self) -> f64 {
        self.low.abs().max(self.high.abs())
    }

    /// Half its length.
    pub fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0
    }

    /// Wider by an independent error of half-width `error`.
    #[must_use]
    pub fn widened(&self, error: f64) -> LogInterval {
        let widen = |side: f64| (side * side + error * error).sqrt();
        LogInterval {
            low: self.estimate - widen(self.estimate - self.low),
            high: self.estimate + widen(self.high - self.estimate),
            ..*self
        }
    }
}

/// The interval of the mean of paired differences, `works[work][pair]`, at two-sided error `alpha`.
/// `None` if fewer than two pairs exist or no work has any: one difference has no spread.
pub fn interval(works: &[Vec<f64>], alpha: f64, seed: u64) -> Option<LogInterval> {
    let works: Vec<&[f64]> = works.iter().map(Vec::as_slice).filter(|pairs| !pairs.is_empty()).collect();
    if works.iter().map(|pairs| pairs.len()).sum::<usize>() < 2 {
        return None;
    }
    let means: Vec<f64> = works.iter().map(|pairs| mean(pairs)).collect();
    let estimate = mean(&means);
    let full = Spread::of(&works, &means);
    let random_works = works.len() >= WORKS_RANDOM_MIN;
    let spread = if random_works { full } else { Spread { between: 0.0, ..full } };
    let works_agree = means.iter().all(|mean| (*mean > 0.0) == (estimate > 0.0));
    let between_share = if full.total() > 0.0 { full.between / full.total() } else { 0.0 };
    if spread.total() <= 0.0 {
        return Some(LogInterval { estimate, low: estimate, high: estimate, between_share, works_agree });
    }
    let mut resampled = resample(&works, random_works, seed);
    resampled.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| resampled[((RESAMPLES - 1) as f64 * share).round() as usize];
    // The bootstrap's own variance is too small by (n-1)/n at the level it resamples.
    let pairs = works.iter().map(|pairs| pairs.len()).sum::<usize>() as f64 / works.len() as f64;
    let levels = if random_works { works.len() as f64 } else { pairs.max(1.5) };
    let expand = (levels / (levels - 1.0)).sqrt() * t_quantile(alpha / 2.0, spread.degrees()) / SHAPE_Z;
    Some(LogInterval {
        estimate,
        low: estimate - expand * (estimate - at(SHAPE_TAIL)).max(0.0),
        high: estimate + expand * (at(1.0 - SHAPE_TAIL) - estimate).max(0.0),
        between_share,
        works_agree,
    })
}

/// Variance of the estimate by level.
#[derive(Clone, Copy)]
struct Spread {
    between: f64,
    between_degrees: f64,
    within: f64,
    within_degrees: f64,
}

impl Spread {
    fn of(works: &[&[f64]], means: &[f64]) -> Spread {
        let count = works.len() as f64;
        let within: f64 = works.iter().map(|pairs| variance(pairs) / pairs.len() as f64).sum();
        Spread {
            between: variance(means) / count,
            between_degrees: count - 1.0,
            within: within / (count * count),
            within_degrees: works.iter().map(|pairs| pairs.len() as f64 - 1.0).sum(),
        }
    }

    fn total(&self) -> f64 {
        self.between + self.within
    }

    /// Satterthwaite's degrees of freedom of the sum.
    fn degrees(&self) -> f64 {
        let part = |variance: f64, degrees: f64| {
            if degrees > 0.0 { variance * variance / degrees } else { 0.0 }
        };
        let denominator = part(self.between, self.between_degrees) + part(self.within, self.within_degrees);
        (self.total() * self.total() / denominator).max(1.0)
    }
}

/// Works are drawn with replacement if they are `random`, then pairs within each.
fn resample(works: &[&[f64]], random_works: bool, seed: u64) -> Vec<f64> {
    let mut random = Random(seed);
    let mut draw = || {
        let mut sum = 0.0;
        for index in 0..works.len() {
            let work = works[if random_works { random.below(works.len()) } else { index }];
            let drawn: f64 = (0..work.len()).map(|_| work[random.below(work.len())]).sum();
            sum += drawn / work.len() as f64;
        }
        sum / works.len() as f64
    };
    (0..RESAMPLES).map(|_| draw()).collect()
}

/// Half-width of the band in which the baseline lies against itself: two sets of as many runs as
/// `works[work]` has values, at two-sided error `alpha`. `None` if no work has two values.
pub fn noise_band(works: &[Vec<f64>], alpha: f64) -> Option<f64> {
    let with_spread: Vec<&Vec<f64>> = works.iter().filter(|values| values.len() >= 2).collect();
    let count = with_spread.len() as f64;
    let degrees: f64 = with_spread.iter().map(|values| values.len() as f64 - 1.0).sum();
    let variance: f64 =
        with_spread.iter().map(|values| 2.0 * variance(values) / values.len() as f64).sum::<f64>();
    (count > 0.0).then(|| t_quantile(alpha / 2.0, degrees) * variance.sqrt() / count)
}

/// Arithmetic mean; 0 of nothing.
pub fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

/// Sample variance; 0 of fewer than two.
pub fn variance(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let mean = mean(values);
    values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>() / (values.len() - 1) as f64
}

/// Middle value; `None` of nothing.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let (last, middle) = (sorted.len().checked_sub(1)?, sorted.len() / 2);
    Some(if last % 2 == 0 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 })
}

/// The value that Student's t exceeds with probability `tail` (below one half).
pub fn t_quantile(tail: f64, degrees: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    while t_tail(high, degrees) > tail && high < 1e12 {
        high *= 2.0;
    }
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        if t_tail(middle, degrees) > tail { low = middle } else { high = middle }
    }
    (low + high) / 2.0
}

/// Probability that Student's t exceeds `t` (not negative).
fn t_tail(t: f64, degrees: f64) -> f64 {
    incomplete_beta(degrees / (degrees + t * t), degrees / 2.0, 0.5) / 2.0
}

/// Regularised incomplete beta function by its continued fraction (Lentz), Numerical Recipes 6.4.
fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(1.0 - x, b, a);
    }
    let front = (a * x.ln() + b * (1.0 - x).ln() + ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b)).exp() / a;
    let keep = |value: f64| if value.abs() < 1e-300 { 1e-300 } else { value };
    let mut c = 1.0;
    let mut d = 1.0 / keep(1.0 - (a + b) * x / (a + 1.0));
    let mut fraction = d;
    for step in 1..300 {
        let m = f64::from(step);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        d = 1.0 / keep(1.0 + even * d);
        c = keep(1.0 + even / c);
        fraction *= d * c;
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        d = 1.0 / keep(1.0 + odd * d);
        c = keep(1.0 + odd / c);
        fraction *= d * c;
        if (d * c - 1.0).abs() < 1e-14 {
            break;
        }
    }
    front * fraction
}

/// Logarithm of the gamma function by Lanczos' series (g = 5, six terms), for positive arguments.
fn ln_gamma(x: f64) -> f64 {
    const TERMS: [f64; 6] = [
        76.180_091_729_471_46,
        -86.505_320_329_416_77,
        24.014_098_240_830_91,
        -1.231_739_572_450_155,
        0.120_865_097_386_617_9e-2,
        -0.539_523_938_495_3e-5,
    ];
    let shifted = x + 5.5 - (x + 0.5) * (x + 5.5).ln();
    let series: f64 = TERMS.iter().enumerate().map(|(i, term)| term / (x + 1.0 + i as f64)).sum();
    -shifted + (2.506_628_274_631_000_5 * (1.000_000_000_190_015 + series) / x).ln()
}

/// SplitMix64: small, seeded, the same everywhere.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.bits()) * bound as u128) >> 64) as usize
    }

    /// A number in (0, 1).
    pub fn unit(&mut self) -> f64 {
        ((self.bits() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t_quantiles_are_the_tables() {
        for (tail, degrees, expected) in [
            (0.025, 1.0, 12.706_2),
            (0.025, 4.0, 2.776_4),
            (0.025, 30.0, 2.042_3),
            (0.005, 4.0, 4.604_1),
            (0.025, 1e6, 1.959_97),
        ] {
            let found = t_quantile(tail, degrees);
            assert!((found / expected - 1.0).abs() < 1e-4, "{tail} {degrees}: {found}");
        }
    }

    #[test]
    fn one_work_gives_about_the_t_interval() {
        let differences = vec![0.1, 0.2, 0.15, 0.05, 0.12];
        let found = interval(std::slice::from_ref(&differences), 0.05, 1).expect("five pairs");
        let half = 2.776_4 * (variance(&differences) / 5.0).sqrt();
        assert!((found.estimate - 0.124).abs() < 1e-12);
        assert!((found.half_width() / half - 1.0).abs() < 0.1, "{found:?} against {half}");
    }

    #[test]
    fn no_spread_and_no_pairs() {
        let exact = interval(&[vec![0.5, 0.5]], 0.05, 1).expect("two pairs");
        assert_eq!((exact.low, exact.high), (0.5, 0.5));
        assert_eq!(interval(&[vec![0.5], vec![]], 0.05, 1), None);
        assert_eq!(noise_band(&[vec![0.5]], 0.05), None);
    }

    #[test]
    fn works_that_differ_widen_the_interval() {
        let works = |starts: &[f64]| -> Vec<Vec<f64>> { starts.iter().map(|s| vec![*s, s + 0.01]).collect() };
        let of = |starts: &[f64]| interval(&works(starts), 0.05, 1).expect("pairs");
        let (narrow, wide) = (of(&[0.1, 0.1, 0.1, 0.1]), of(&[-0.05, 0.05, 0.15, 0.25]));
        assert!(wide.half_width() > 5.0 * narrow.half_width());
        assert!(wide.between_share > 0.9 && !wide.works_agree && narrow.works_agree);
        // Three speak of themselves only.
        assert!(of(&[0.1, 0.3, 0.5]).half_width() < 0.1);
    }

    #[test]
    fn medians() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }
}
