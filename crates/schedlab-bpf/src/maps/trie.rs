//! Longest-prefix-match tries (`BPF_MAP_TYPE_LPM_TRIE`): keys are a length in bits and that many bits of data.
//!
//! Kept as an ordered map over (length, data), which answers as kernel/bpf/lpm_trie.c does. Differs from Linux:
//! a value that is replaced keeps its address.

use super::{EEXIST, EINVAL, ENOENT, ENOMEM, EXIST, NOEXIST, UPDATE_FLAGS};
use crate::memory::Memory;
use std::collections::BTreeMap;

/// Bytes of the length in front of the data.
const LENGTH_BYTES: usize = 4;
const ENOSPC: i64 = 28;
/// Most bytes of data (`LPM_DATA_SIZE_MAX`).
pub(super) const DATA_BYTES_MAX: u32 = 256;

/// Index of a trie: prefixes to the addresses of their elements, key first and value behind it.
#[derive(Clone, Debug)]
pub(crate) struct Trie {
    key_size: u32,
    value_bytes: u64,
    entries_max: u32,
    elements: BTreeMap<(u32, Vec<u8>), u64>,
}

impl Trie {
    pub(crate) fn new(key_size: u32, value_bytes: u64, entries_max: u32) -> Trie {
        Trie { key_size, value_bytes, entries_max, elements: BTreeMap::new() }
    }

    /// Bytes from an element's key to its value.
    pub(crate) fn value_offset(&self) -> u64 {
        u64::from(self.key_size).next_multiple_of(8)
    }

    fn element_bytes(&self) -> u64 {
        self.value_offset() + self.value_bytes
    }

    /// Length and data of a key; `None` if it claims more bits than it has.
    fn prefix(&self, key: &[u8]) -> Option<(u32, Vec<u8>)> {
        let (length, data) = key.split_at_checked(LENGTH_BYTES)?;
        let length = u32::from_le_bytes(length.try_into().ok()?);
        (u64::from(length) <= 8 * data.len() as u64).then(|| (length, masked(data, length)))
    }

    /// The element with the longest prefix that the key begins with.
    pub(crate) fn find(&self, key: &[u8]) -> Option<u64> {
        let (length, data) = self.prefix(key)?;
        let lengths = self.elements.keys().rev().map(|(length, _)| *length);
        let mut tried = None;
        for shorter in lengths.filter(|known| *known <= length) {
            if tried.replace(shorter) != Some(shorter)
                && let Some(element) = self.elements.get(&(shorter, masked(&data, shorter)))
            {
                return Some(*element);
            }
        }
        None
    }

    /// The element of exactly this prefix.
    pub(crate) fn exact(&self, key: &[u8]) -> Option<u64> {
        self.elements.get(&self.prefix(key)?).copied()
    }

    /// Finds or makes the element of a key; the error is the kernel's number.
    pub(crate) fn insert(&mut self, memory: &mut Memory, key: &[u8], flags: u64) -> Result<u64, i64> {
        if flags > EXIST {
            return Err(-EINVAL);
        }
        let prefix = self.prefix(key).ok_or(-EINVAL)?;
        match (self.elements.get(&prefix), flags & UPDATE_FLAGS) {
            (Some(_), NOEXIST) => return Err(-EEXIST),
            (None, EXIST) => return Err(-ENOENT),
            (Some(element), _) => return Ok(*element),
            (None, _) => {}
        }
        if self.elements.len() == self.entries_max as usize {
            return Err(-ENOSPC);
        }
        let element = memory.alloc(self.element_bytes(), 8).ok_or(-ENOMEM)?;
        memory.bytes_mut(element, key.len() as u64).expect("allocated inside").copy_from_slice(key);
        self.elements.insert(prefix, element);
        Ok(element)
    }

    /// Removes exactly this prefix.
    pub(crate) fn remove(&mut self, memory: &mut Memory, key: &[u8]) -> i64 {
        let Some(prefix) = self.prefix(key) else { return -EINVAL };
        let Some(element) = self.elements.remove(&prefix) else { return -ENOENT };
        memory.free(element, self.element_bytes(), 8);
        0
    }

    /// All elements, shorter prefixes first.
    pub(crate) fn elements(&self) -> impl Iterator<Item = u64> {
        self.elements.values().copied()
    }
}

/// The first `length` bits of data; the rest is zero.
fn masked(data: &[u8], length: u32) -> Vec<u8> {
    let bits = |index: usize| (length as usize).saturating_sub(8 * index).min(8);
    let mask = |index: usize| !(0xff_u16 >> bits(index)) as u8;
    data.iter().enumerate().map(|(index, byte)| byte & mask(index)).collect()
}
