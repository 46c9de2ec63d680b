//! Drawing amounts of time, in integers: the simulator and the live player draw the same from the same seed.

use super::Amount;
use crate::rng::Rng;
use crate::time::Nanos;

/// ln 2 in 32-bit fixed point.
const LN2_Q32: u64 = 2_977_044_472;
/// An exponential is cut at this many means.
const EXPONENTIAL_CUT: u64 = 20;

impl Amount {
    /// One draw. Takes a number from the stream only if the amount is random.
    pub fn draw(&self, rng: &mut Rng) -> Nanos {
        Nanos(match self {
            Amount::Fixed(time) => time.0,
            Amount::Uniform(low, high) => rng.between(low.0, high.0),
            Amount::Exponential(mean) => exponential(mean.0, rng.next_u64()),
            Amount::Quantiles(values) => quantile(values, rng.next_u64()),
        })
    }
}

/// The stream of a task: the workload's number for its row, and how many tasks there were before it.
pub fn task_stream(row: u64, number: u32) -> u64 {
    row.wrapping_mul(0x1_0000).wrapping_add(u64::from(number))
}

/// −mean · ln(u) with u = (bits + 1) / 2^64, cut at 20 means.
pub fn exponential(mean: u64, bits: u64) -> u64 {
    // −log2(u) in 32-bit fixed point: leading zeros, then one bit for each squaring of the rest.
    let zeros = u64::from(bits.leading_zeros().min(63));
    let mut x = (bits << zeros) | 1;
    let mut fraction = 0_u64;
    for _ in 0..20 {
        let square = u128::from(x) * u128::from(x);
        let carry = (square >> 127) as u64;
        fraction = (fraction << 1) | carry;
        x = if carry == 1 { (square >> 64) as u64 } else { (square >> 63) as u64 };
    }
    let log2_q32 = ((zeros + 1) << 32) - (fraction << 12);
    let ln_q32 = (u128::from(log2_q32) * u128::from(LN2_Q32)) >> 32;
    let drawn = ((ln_q32 * u128::from(mean)) >> 32) as u64;
    drawn.min(mean.saturating_mul(EXPONENTIAL_CUT))
}

/// Linear between equally spaced quantiles.
pub fn quantile(values: &[Nanos], bits: u64) -> u64 {
    let gaps = (values.len() - 1) as u64;
    let scaled = u128::from(bits) * u128::from(gaps);
    let (gap, rest) = ((scaled >> 64) as usize, scaled as u64);
    let (low, high) = (values[gap].0, values[gap + 1].0.max(values[gap].0));
    low + ((u128::from(high - low) * u128::from(rest)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponential_has_its_mean_and_quantiles() {
        let mut rng = Rng::new(11, 0);
        let drawn: Vec<u64> = (0..200_000).map(|_| exponential(1_000_000, rng.next_u64())).collect();
        let mean = drawn.iter().sum::<u64>() / drawn.len() as u64;
        assert!((990_000..1_010_000).contains(&mean), "{mean}");
        // P(X > 3 means) = e^-3 = 4.98 %.
        let tail = drawn.iter().filter(|&&x| x > 3_000_000).count();
        assert!((9_700..10_250).contains(&tail), "{tail}");
        assert!(drawn.iter().all(|&x| x <= 20_000_000));
        // u = 1/2: mean · ln 2 = 693147.
        assert!(exponential(1_000_000, 1 << 63).abs_diff(693_147) < 3);
    }

    #[test]
    fn quantiles_are_linear_between_their_points() {
        let values = [Nanos(0), Nanos(100), Nanos(1_000)];
        assert_eq!(quantile(&values, 0), 0);
        assert_eq!(quantile(&values, 1 << 62), 50);
        assert_eq!(quantile(&values, 3 << 62), 550);
        assert_eq!(quantile(&values, u64::MAX), 999);
    }
}
