//! Where random cases draw their numbers: first from given bytes, so that a fuzzer can steer them, then from a seed.

/// Bytes, then SplitMix64 (Steele, Lea, Flood 2014): the same input makes the same case on every machine.
#[derive(Clone, Debug)]
pub struct Source {
    bytes: Vec<u8>,
    at: usize,
    state: u64,
}

impl Source {
    /// Only the numbers of a seed.
    #[must_use]
    pub fn seeded(seed: u64) -> Source {
        Source { bytes: Vec::new(), at: 0, state: seed }
    }

    /// The bytes, then numbers that depend on all of them.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Source {
        let mix = |state: u64, byte: &u8| (state ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        Source { bytes: bytes.to_vec(), at: 0, state: bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix) }
    }

    /// Up to `count` bytes, fewer at the end of the input.
    fn take(&mut self, count: usize) -> Option<u64> {
        let left = &self.bytes[self.at..];
        let taken = &left[..count.min(left.len())];
        self.at += taken.len();
        (!taken.is_empty()).then(|| taken.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.take(8).unwrap_or_else(|| self.mixed())
    }

    fn mixed(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number below `end`; costs one byte of input where that is enough.
    pub fn below(&mut self, end: u64) -> u64 {
        let bytes = match end {
            0..=0x100 => 1,
            0x101..=0x1_0000 => 2,
            _ => 8,
        };
        self.take(bytes).unwrap_or_else(|| self.mixed()) % end
    }

    /// From `low` to `high`, both included.
    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True once in so many times.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// In so many of a hundred.
    pub fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    /// One of them.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}
