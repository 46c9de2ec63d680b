//! Seeded random numbers: SplitMix64, one word of state.
//!
//! Used where hardware is random (cost scatter) and where a workload draws amounts. Integer arithmetic
//! only, so every machine draws the same numbers.

/// A stream of random numbers.
#[derive(Clone, Copy, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A stream from a seed and the number of the stream; different streams do not overlap in practice.
    pub fn new(seed: u64, stream: u64) -> Rng {
        let mut rng = Rng(seed ^ stream.wrapping_mul(0xd6e8_feb8_6659_fd93).rotate_left(17));
        rng.next_u64();
        rng
    }

    /// 64 random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform below `bound`, by multiplication; `bound` 0 gives 0.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Uniform in `low..=high`.
    #[inline]
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        if high <= low { low } else { low + self.below((high - low).saturating_add(1)) }
    }
}

#[cfg(test)]
mod tests {
    use super::Rng;

    #[test]
    fn streams_differ_and_repeat() {
        let draw = |seed, stream| Rng::new(seed, stream).next_u64();
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(1, 3));
        assert_ne!(draw(1, 2), draw(2, 2));
    }

    #[test]
    fn ranges_are_kept_and_filled() {
        let mut rng = Rng::new(7, 0);
        let drawn: Vec<u64> = (0..1_000).map(|_| rng.between(10, 13)).collect();
        assert!((10..=13).all(|value| drawn.contains(&value)));
        assert!(drawn.iter().all(|value| (10..=13).contains(value)));
    }
}
