//! Samples of one quantity as benchmarks print them: mean, least, most and standard deviation, raw and after the
//! six-sigma filter of the slides of 2006. Not here: where samples come from.

/// What a table says of samples, in their unit.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Summary {
    /// How many.
    pub count: u64,
    /// Mean.
    pub mean: f64,
    /// Least.
    pub min: u64,
    /// Most.
    pub max: u64,
    /// Standard deviation of a sample (n - 1).
    pub standard_deviation: f64,
}

/// Sums samples up; `None` if there are none.
pub fn summarise(samples: &[u64]) -> Option<Summary> {
    let (min, max) = (*samples.iter().min()?, *samples.iter().max()?);
    let count = samples.len() as f64;
    let mean = samples.iter().map(|value| *value as f64).sum::<f64>() / count;
    let squares: f64 = samples.iter().map(|value| (*value as f64 - mean).powi(2)).sum();
    let standard_deviation = if samples.len() > 1 { (squares / (count - 1.0)).sqrt() } else { 0.0 };
    Some(Summary { count: samples.len() as u64, mean, min, max, standard_deviation })
}

/// Samples of at most six standard deviations above the mean, in one pass: the slides' own tables keep values that a
/// second pass would remove.
pub fn six_sigma(samples: &[u64]) -> Vec<u64> {
    let Some(all) = summarise(samples) else { return Vec::new() };
    let limit = all.mean + 6.0 * all.standard_deviation;
    samples.iter().copied().filter(|value| *value as f64 <= limit).collect()
}

/// The column that interbench 0.31 calls SD: its formula subtracts mean² / n instead of n mean² from the sum of squares, so
/// that it is close to the root mean square.
pub fn interbench_deviation(samples: &[u64]) -> f64 {
    if samples.len() < 2 {
        return 0.0;
    }
    let count = samples.len() as f64;
    let mean = samples.iter().map(|value| *value as f64).sum::<f64>() / count;
    let squares: f64 = samples.iter().map(|value| (*value as f64).powi(2)).sum();
    ((squares - mean * mean / count) / (count - 1.0)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_that_of_the_textbook() {
        let summary = summarise(&[2, 4, 4, 4, 5, 5, 7, 9]).expect("samples");
        assert_eq!((summary.count, summary.mean, summary.min, summary.max), (8, 5.0, 2, 9));
        assert!((summary.standard_deviation - (32.0_f64 / 7.0).sqrt()).abs() < 1e-12);
        assert_eq!(summarise(&[]), None);
        assert_eq!(summarise(&[7]).map(|one| one.standard_deviation), Some(0.0));
    }

    /// One outlier of 448262 µs among 1000 is what the slides' raw deviation of ingosched says.
    #[test]
    fn the_filter_is_one_pass_as_in_the_slides() {
        let mut samples = vec![126; 999];
        samples.push(448_262);
        let raw = summarise(&samples).expect("samples");
        assert!((raw.standard_deviation - 14_171.0).abs() < 10.0, "{raw:?}");
        assert_eq!(six_sigma(&samples), vec![126; 999]);
        // A second pass would cut the 2000, which lie far above the rest once the outlier is gone.
        samples.extend([2_000; 3]);
        assert_eq!(six_sigma(&samples).len(), 1_002);
    }

    #[test]
    fn what_interbench_prints_is_close_to_the_root_mean_square() {
        let samples: Vec<u64> = (0..1000).map(|index| 995 + index % 11).collect();
        assert!((interbench_deviation(&samples) - 1_000.5).abs() < 1.0);
        assert!(summarise(&samples).expect("samples").standard_deviation < 5.0);
    }
}
