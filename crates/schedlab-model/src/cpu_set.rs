//! A set of CPUs, as a task's affinity mask.
//!
//! Fixed size (1024 CPUs) so that it copies and compares without allocation.

use crate::ids::CpuId;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::str::FromStr;

/// Most CPUs a machine may have.
pub const CPUS_MAX: usize = 1024;
const WORDS: usize = CPUS_MAX / 64;

/// A set of CPUs. In text a list as the kernel prints it: `0-3,8`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CpuSet([u64; WORDS]);

/// A CPU list that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a CPU list: write e.g. 0-3,8 with CPUs below 1024")]
pub struct ParseCpuSetError(String);

impl CpuSet {
    /// No CPU.
    pub const EMPTY: CpuSet = CpuSet([0; WORDS]);
    /// Every CPU there can be: no restriction.
    pub const ALL: CpuSet = CpuSet([u64::MAX; WORDS]);

    /// CPUs 0 to `count` - 1.
    pub fn first(count: usize) -> Self {
        (0..count).map(|cpu| CpuId(cpu as u32)).collect()
    }

    /// Just one CPU.
    pub fn single(cpu: CpuId) -> Self {
        std::iter::once(cpu).collect()
    }

    /// Adds a CPU. Panics beyond [`CPUS_MAX`]: readers of files check first.
    #[inline]
    pub fn insert(&mut self, cpu: CpuId) {
        self.0[cpu.index() / 64] |= 1 << (cpu.0 % 64);
    }

    /// Takes a CPU out.
    #[inline]
    pub fn remove(&mut self, cpu: CpuId) {
        self.0[cpu.index() / 64] &= !(1 << (cpu.0 % 64));
    }

    /// Whether the CPU is in the set.
    #[inline]
    pub fn contains(&self, cpu: CpuId) -> bool {
        self.0[cpu.index() / 64] >> (cpu.0 % 64) & 1 == 1
    }

    /// Number of CPUs.
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether no CPU is in the set.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }

    /// CPUs in both.
    #[must_use]
    pub fn and(&self, other: &CpuSet) -> CpuSet {
        let mut out = *self;
        out.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a &= b);
        out
    }

    /// The lowest CPU.
    pub fn first_cpu(&self) -> Option<CpuId> {
        self.iter().next()
    }

    /// CPUs in rising order.
    pub fn iter(&self) -> impl Iterator<Item = CpuId> + '_ {
        self.0.iter().enumerate().flat_map(|(index, &word)| {
            let mut rest = word;
            std::iter::from_fn(move || {
                let bit = (rest != 0).then(|| rest.trailing_zeros())?;
                rest &= rest - 1;
                Some(CpuId(index as u32 * 64 + bit))
            })
        })
    }

    /// The raw words, lowest CPUs first.
    pub fn words(&self) -> &[u64] {
        &self.0
    }
}

impl Default for CpuSet {
    fn default() -> Self {
        CpuSet::ALL
    }
}

impl FromIterator<CpuId> for CpuSet {
    fn from_iter<I: IntoIterator<Item = CpuId>>(cpus: I) -> Self {
        let mut set = CpuSet::EMPTY;
        cpus.into_iter().for_each(|cpu| set.insert(cpu));
        set
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cpus: Vec<u32> = self.iter().map(|cpu| cpu.0).collect();
        let mut at = 0;
        while at < cpus.len() {
            let start = at;
            while at + 1 < cpus.len() && cpus[at + 1] == cpus[at] + 1 {
                at += 1;
            }
            let comma = if start > 0 { "," } else { "" };
            if at == start {
                write!(f, "{comma}{}", cpus[start])?;
            } else {
                write!(f, "{comma}{}-{}", cpus[start], cpus[at])?;
            }
            at += 1;
        }
        Ok(())
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuSet({self})")
    }
}

impl FromStr for CpuSet {
    type Err = ParseCpuSetError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fail = || ParseCpuSetError(text.to_owned());
        let mut set = CpuSet::EMPTY;
        for part in text.trim().split(',').filter(|part| !part.is_empty()) {
            let (low, high) = part.split_once('-').unwrap_or((part, part));
            let low: u32 = low.trim().parse().map_err(|_| fail())?;
            let high: u32 = high.trim().parse().map_err(|_| fail())?;
            if low > high || high as usize >= CPUS_MAX {
                return Err(fail());
            }
            (low..=high).for_each(|cpu| set.insert(CpuId(cpu)));
        }
        Ok(set)
    }
}

impl Serialize for CpuSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CpuSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_survive_a_round_trip() {
        for text in ["0-3,8", "5", "0,2,4-6,1023", ""] {
            assert_eq!(text.parse::<CpuSet>().expect(text).to_string(), text);
        }
        for text in ["a", "3-1", "1024", "0-9999"] {
            assert!(text.parse::<CpuSet>().is_err(), "{text} must be refused");
        }
    }
}
