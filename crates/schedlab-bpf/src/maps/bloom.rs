//! Bloom filters (`BPF_MAP_TYPE_BLOOM_FILTER`): values that were pushed are always found, others rarely.
//!
//! Size and number of hashes are those of kernel/bpf/bloom_filter.c. Differs from Linux: the hash, so which
//! values are found by mistake; in Linux that changes with each map too, unless it has `BPF_F_ZERO_SEED`.

use crate::image::MapImage;

/// Hashes of a filter that does not say how many.
const HASHES_DEFAULT: u64 = 5;
/// Largest filter: bits in 512 MiB.
const BITS_MAX: u64 = 1 << 32;

/// The bits of a filter.
#[derive(Clone, Debug)]
pub(crate) struct Bloom {
    hashes: u64,
    mask: u64,
    words: Vec<u64>,
}

/// Hashes and bits of a map.
fn shape(map: &MapImage) -> (u64, u64) {
    let hashes = match map.map_extra & 0xf {
        0 => HASHES_DEFAULT,
        hashes => hashes,
    };
    // Bits for the fewest mistakes: entries times hashes by ln 2, taken as 7/5.
    let bits = (u64::from(map.max_entries) * hashes / 5 * 7).min(BITS_MAX);
    (hashes, bits.next_power_of_two().max(64))
}

impl Bloom {
    pub(crate) fn new(map: &MapImage) -> Bloom {
        let (hashes, bits) = shape(map);
        Bloom { hashes, mask: bits - 1, words: vec![0; (bits / 64) as usize] }
    }

    fn bits<'a>(&'a self, value: &'a [u8]) -> impl Iterator<Item = (usize, u64)> + 'a {
        (0..self.hashes).map(move |seed| {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ value.len() as u64;
            for byte in value {
                state = (state ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
                state ^= state >> 29;
            }
            state = (state ^ state >> 31).wrapping_mul(0x94d0_49bb_1331_11eb);
            let bit = (state ^ state >> 32) & self.mask;
            ((bit / 64) as usize, 1 << (bit % 64))
        })
    }

    pub(crate) fn push(&mut self, value: &[u8]) {
        let bits: Vec<_> = self.bits(value).collect();
        for (word, bit) in bits {
            self.words[word] |= bit;
        }
    }

    /// Whether the value may have been pushed.
    pub(crate) fn holds(&self, value: &[u8]) -> bool {
        self.bits(value).all(|(word, bit)| self.words[word] & bit != 0)
    }
}
