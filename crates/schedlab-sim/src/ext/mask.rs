//! CPU masks in the region: plain words, CPU 0 the lowest bit, readable by programs as `struct cpumask`.
//!
//! Bits beyond the last CPU are never set by the class.

use schedlab_bpf::memory::Memory;

/// Bytes of a `struct cpumask` as the kernel's BTF states it.
pub(crate) const CPUMASK_BYTES: u64 = 1024;

/// A mask by its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mask(pub u64);

impl Mask {
    /// One word.
    #[inline]
    pub(crate) fn word(self, memory: &Memory, index: u32) -> u64 {
        memory.read_u64(self.0.wrapping_add(u64::from(index) * 8))
    }

    /// Sets one word of a mask that the class allocated.
    #[inline]
    pub(crate) fn set_word(self, memory: &mut Memory, index: u32, word: u64) {
        memory.write_u64(self.0 + u64::from(index) * 8, word);
    }

    #[inline]
    pub(crate) fn contains(self, memory: &Memory, cpu: u32) -> bool {
        self.word(memory, cpu / 64) >> (cpu % 64) & 1 != 0
    }

    #[inline]
    pub(crate) fn assign(self, memory: &mut Memory, cpu: u32, value: bool) {
        let (word, bit) = (self.word(memory, cpu / 64), 1_u64 << (cpu % 64));
        self.set_word(memory, cpu / 64, if value { word | bit } else { word & !bit });
    }

    /// Clears a bit and tells whether it was set.
    #[inline]
    pub(crate) fn take(self, memory: &mut Memory, cpu: u32) -> bool {
        let was = self.contains(memory, cpu);
        if was {
            self.assign(memory, cpu, false);
        }
        was
    }

    /// Whether no CPU below `nr_cpus` is in a mask that the class allocated.
    #[inline]
    pub(crate) fn is_empty(self, memory: &Memory, nr_cpus: u32) -> bool {
        if nr_cpus <= 64 {
            return self.word(memory, 0) == 0;
        }
        // All words at once: where it matters how long this takes, no CPU idles and all have to be looked at.
        let bytes = memory.bytes(self.0, u64::from(nr_cpus.div_ceil(64)) * 8).expect("it lies inside");
        let (words, _) = bytes.as_chunks::<8>();
        words.iter().fold(0, |all, word| all | u64::from_le_bytes(*word)) == 0
    }

    /// The first CPU.
    pub(crate) fn first(self, memory: &Memory, nr_cpus: u32) -> Option<u32> {
        (0..nr_cpus.div_ceil(64)).find_map(|index| first_bit(index, self.word(memory, index), nr_cpus))
    }
}

#[inline]
fn first_bit(index: u32, word: u64, nr_cpus: u32) -> Option<u32> {
    let cpu = index * 64 + word.trailing_zeros();
    (word != 0 && cpu < nr_cpus).then_some(cpu)
}

/// `cpumask_any_and_distribute`: the first CPU after `previous`, around the end, for which every word the
/// closure gives has its bit.
#[inline]
pub(crate) fn next_wrapping(nr_cpus: u32, previous: u32, mut word: impl FnMut(u32) -> u64) -> Option<u32> {
    let words = nr_cpus.div_ceil(64);
    if words == 1 {
        let word = word(0);
        let above = if previous < 63 { word & (u64::MAX << (previous + 1)) } else { 0 };
        return first_bit(0, above, nr_cpus).or_else(|| first_bit(0, word, nr_cpus));
    }
    let start = if previous + 1 < nr_cpus { previous + 1 } else { 0 };
    let first = start / 64;
    let above = word(first) & (u64::MAX << (start % 64));
    if let Some(cpu) = first_bit(first, above, nr_cpus) {
        return Some(cpu);
    }
    (1..=words).find_map(|step| {
        let index = if first + step < words { first + step } else { first + step - words };
        first_bit(index, word(index), nr_cpus)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_is_empty_until_any_word_has_a_bit() {
        let mut memory = Memory::new(18, 1 << 17);
        for (nr_cpus, cpu) in [(8, 7), (64, 0), (65, 64), (1_024, 511), (1_000, 999)] {
            let mask = Mask(memory.alloc(CPUMASK_BYTES, 8).expect("there is room"));
            assert!(mask.is_empty(&memory, nr_cpus));
            mask.assign(&mut memory, cpu, true);
            assert!(!mask.is_empty(&memory, nr_cpus), "CPU {cpu} of {nr_cpus}");
        }
    }

    #[test]
    fn the_search_starts_after_the_last_answer_and_wraps() {
        let words = [0b1010_u64, 0b1];
        let next = |previous| next_wrapping(65, previous, |index| words[index as usize]);
        assert_eq!([next(0), next(1), next(3), next(64)], [Some(1), Some(3), Some(64), Some(1)]);
        assert_eq!(next_wrapping(4, 0, |_| 0), None);
    }
}
