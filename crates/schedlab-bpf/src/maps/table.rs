//! Hash table over elements that live in the region: key first, value behind it.
//!
//! The index is here, keys and values are where programs can point at them. Hashing and iteration order
//! depend on the sequence of operations alone. With `lru` the least recently used element makes room.

use crate::memory::Memory;

const NONE: u32 = u32::MAX;

/// Index of a hash map.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    key_size: u32,
    /// Bytes of one element: padded key and values.
    element_bytes: u64,
    entries_max: u32,
    lru: bool,
    buckets: Vec<u32>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    used: u32,
    /// Ends of the recency list, least recent first; kept for `lru` only.
    oldest: u32,
    newest: u32,
}

#[derive(Clone, Debug)]
struct Slot {
    /// Element in the region, 0 when the slot is free.
    address: u64,
    hash: u32,
    chain: u32,
    older: u32,
    newer: u32,
}

impl Table {
    pub(crate) fn new(key_size: u32, value_bytes: u64, entries_max: u32, lru: bool) -> Table {
        let element_bytes = u64::from(key_size).next_multiple_of(8) + value_bytes;
        Table {
            key_size,
            element_bytes,
            entries_max,
            lru,
            buckets: vec![NONE; 16],
            slots: Vec::new(),
            free: Vec::new(),
            used: 0,
            oldest: NONE,
            newest: NONE,
        }
    }

    /// Bytes from an element's key to its value.
    pub(crate) fn value_offset(&self) -> u64 {
        u64::from(self.key_size).next_multiple_of(8)
    }

    /// Address of the element with this key.
    pub(crate) fn find(&mut self, memory: &Memory, key: &[u8]) -> Option<u64> {
        let slot = self.slot(memory, key)?;
        if self.lru {
            self.unlink(slot);
            self.link(slot);
        }
        Some(self.slots[slot as usize].address)
    }

    fn slot(&self, memory: &Memory, key: &[u8]) -> Option<u32> {
        let hash = hash(key);
        let mut at = self.buckets[hash as usize & (self.buckets.len() - 1)];
        while at != NONE {
            let slot = &self.slots[at as usize];
            if slot.hash == hash && memory.bytes(slot.address, u64::from(self.key_size)) == Some(key) {
                return Some(at);
            }
            at = slot.chain;
        }
        None
    }

    /// The element that the next new one would push out.
    pub(crate) fn victim(&self) -> Option<u64> {
        let full = self.lru && self.used == self.entries_max && self.oldest != NONE;
        full.then(|| self.slots[self.oldest as usize].address)
    }

    /// Makes a zeroed element for a key that is absent and returns its address; the caller copies the key
    /// there. `Err` is the kernel's error number.
    pub(crate) fn insert(&mut self, memory: &mut Memory, key: &[u8]) -> Result<u64, i64> {
        if self.used == self.entries_max {
            if !self.lru || self.oldest == NONE {
                return Err(-super::E2BIG);
            }
            let oldest = self.oldest;
            self.remove_slot(memory, oldest);
        }
        let address = memory.alloc(self.element_bytes, 8).ok_or(-super::ENOMEM)?;
        let hash = hash(key);
        if self.slots.len() - self.free.len() >= self.buckets.len() {
            self.grow();
        }
        let slot = Slot { address, hash, chain: NONE, older: NONE, newer: NONE };
        let index = if let Some(index) = self.free.pop() {
            self.slots[index as usize] = slot;
            index
        } else {
            self.slots.push(slot);
            self.slots.len() as u32 - 1
        };
        self.used += 1;
        self.enchain(index);
        if self.lru {
            self.link(index);
        }
        Ok(address)
    }

    /// Removes an element; `false` if there is none with this key.
    pub(crate) fn remove(&mut self, memory: &mut Memory, key: &[u8]) -> bool {
        let slot = self.slot(memory, key);
        if let Some(slot) = slot {
            self.remove_slot(memory, slot);
        }
        slot.is_some()
    }

    /// Addresses of all elements, in slot order.
    pub(crate) fn elements(&self) -> impl Iterator<Item = u64> {
        self.slots.iter().map(|slot| slot.address).filter(|address| *address != 0)
    }

    /// The element that follows the one with this key, or the first.
    pub(crate) fn next(&self, memory: &Memory, key: Option<&[u8]>) -> Option<u64> {
        let from = key.and_then(|key| self.slot(memory, key)).map_or(0, |slot| slot as usize + 1);
        self.slots[from..].iter().map(|slot| slot.address).find(|address| *address != 0)
    }

    fn remove_slot(&mut self, memory: &mut Memory, index: u32) {
        let bucket = self.slots[index as usize].hash as usize & (self.buckets.len() - 1);
        let next = self.slots[index as usize].chain;
        if self.buckets[bucket] == index {
            self.buckets[bucket] = next;
        } else {
            let mut at = self.buckets[bucket];
            while self.slots[at as usize].chain != index {
                at = self.slots[at as usize].chain;
            }
            self.slots[at as usize].chain = next;
        }
        if self.lru {
            self.unlink(index);
        }
        let slot = &mut self.slots[index as usize];
        memory.free(slot.address, self.element_bytes, 8);
        slot.address = 0;
        self.free.push(index);
        self.used -= 1;
    }

    fn enchain(&mut self, index: u32) {
        let bucket = self.slots[index as usize].hash as usize & (self.buckets.len() - 1);
        self.slots[index as usize].chain = self.buckets[bucket];
        self.buckets[bucket] = index;
    }

    fn grow(&mut self) {
        self.buckets = vec![NONE; self.buckets.len() * 2];
        for index in 0..self.slots.len() as u32 {
            if self.slots[index as usize].address != 0 {
                self.enchain(index);
            }
        }
    }

    fn link(&mut self, index: u32) {
        let newest = self.newest;
        self.slots[index as usize].older = newest;
        self.slots[index as usize].newer = NONE;
        if newest == NONE {
            self.oldest = index;
        } else {
            self.slots[newest as usize].newer = index;
        }
        self.newest = index;
    }

    fn unlink(&mut self, index: u32) {
        let (older, newer) = (self.slots[index as usize].older, self.slots[index as usize].newer);
        match older {
            NONE => self.oldest = newer,
            older => self.slots[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.slots[newer as usize].older = older,
        }
    }
}

/// A fixed hash: order and speed never depend on the process.
fn hash(key: &[u8]) -> u32 {
    let mut state = 0x51_7c_c1_b7_27_22_0a_95_u64;
    let mut chunks = key.chunks_exact(8);
    let mut mix = |word: u64| state = (state ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    for chunk in &mut chunks {
        mix(u64::from_le_bytes(chunk.try_into().expect("eight bytes")));
    }
    let mut last = [0; 8];
    last[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
    mix(u64::from_le_bytes(last));
    (state ^ state >> 32) as u32
}
