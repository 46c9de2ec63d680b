//! Arena: pages that programs allocate and share by plain pointers.
//!
//! Linux gives an arena a window of 4 GiB that user space and programs see at different addresses, and casts
//! between the two. Here both are one address inside the region, so a cast changes nothing. Differs from Linux
//! further: a page that is not allocated reads as it was left instead of as zero; at most [`PAGES_MAX`] pages
//! exist, whatever the map asks for; the lowest free pages are taken first.

use std::collections::BTreeMap;

use super::{EBUSY, EINVAL};
use crate::image::MapImage;
use crate::memory::Memory;

/// Bytes of a page.
pub(crate) const PAGE_BYTES: u64 = 4096;
/// Pages of an arena: 256 MiB of address space, touched lazily.
const PAGES_MAX: u64 = 1 << 16;

/// Bytes of the region an arena occupies.
pub(crate) fn bytes(map: &MapImage) -> u64 {
    u64::from(map.max_entries).min(PAGES_MAX) * PAGE_BYTES
}

/// Which pages of an arena are free.
#[derive(Clone, Debug)]
pub(crate) struct Arena {
    base: u64,
    pages: u64,
    /// First page of each free range, and its length.
    free: BTreeMap<u64, u64>,
    /// Pages below it have been used and must be cleared before they are again.
    used: u64,
}

impl Arena {
    /// An arena at `base` whose first pages hold the variables of the object.
    pub(crate) fn new(base: u64, map: &MapImage) -> Arena {
        let pages = bytes(map) / PAGE_BYTES;
        let taken = (map.initial.len() as u64).div_ceil(PAGE_BYTES).min(pages);
        let free = if taken < pages { BTreeMap::from([(taken, pages - taken)]) } else { BTreeMap::new() };
        Arena { base, pages, free, used: taken }
    }

    /// `bpf_arena_alloc_pages()`: address of zeroed pages, 0 if there are none; `at` asks for an address.
    pub(crate) fn alloc(&mut self, memory: &mut Memory, at: u64, count: u64) -> u64 {
        if count == 0 || count > self.pages {
            return 0;
        }
        let first = if at == 0 {
            self.free.iter().find(|(_, len)| **len >= count).map(|(first, _)| *first)
        } else {
            self.page(at).filter(|page| self.is_free(*page, count))
        };
        let Some(first) = first else { return 0 };
        self.take(first, count);
        let address = self.base + first * PAGE_BYTES;
        let dirty = self.used.min(first + count).saturating_sub(first) * PAGE_BYTES;
        if let Some(bytes) = memory.bytes_mut(address, dirty) {
            bytes.fill(0);
        }
        self.used = self.used.max(first + count);
        address
    }

    /// `bpf_arena_free_pages()`: pages that are free already stay so.
    pub(crate) fn release(&mut self, address: u64, count: u64) {
        let Some(first) = self.page(address) else { return };
        for page in first..first.saturating_add(count).min(self.pages) {
            if !self.is_free(page, 1) {
                self.put(page);
            }
        }
    }

    /// `bpf_arena_reserve_pages()`: 0, or the kernel's error number.
    pub(crate) fn reserve(&mut self, address: u64, count: u64) -> i64 {
        let Some(first) = self.page(address).filter(|first| first.saturating_add(count) <= self.pages) else {
            return -EINVAL;
        };
        if count > 0 && !self.is_free(first, count) {
            return -EBUSY;
        }
        if count > 0 {
            self.take(first, count);
        }
        0
    }

    /// Pages handed out, the object's variables included.
    #[cfg(test)]
    pub(crate) fn in_use(&self) -> u64 {
        self.pages - self.free.values().sum::<u64>()
    }

    /// The page that begins at an address.
    fn page(&self, address: u64) -> Option<u64> {
        let offset = address.checked_sub(self.base)?;
        (offset % PAGE_BYTES == 0 && offset / PAGE_BYTES < self.pages).then_some(offset / PAGE_BYTES)
    }

    fn is_free(&self, first: u64, count: u64) -> bool {
        let range = self.free.range(..=first).next_back();
        range.is_some_and(|(start, len)| first + count <= start + len)
    }

    /// Takes pages out of the free range that holds them.
    fn take(&mut self, first: u64, count: u64) {
        let Some((start, len)) = self.free.range(..=first).next_back().map(|(s, l)| (*s, *l)) else { return };
        self.free.remove(&start);
        if start < first {
            self.free.insert(start, first - start);
        }
        let (end, taken) = (start + len, first + count);
        if taken < end {
            self.free.insert(taken, end - taken);
        }
    }

    /// Makes one page free and joins it with its neighbours.
    fn put(&mut self, page: u64) {
        let mut len = 1;
        if let Some(after) = self.free.remove(&(page + 1)) {
            len += after;
        }
        match self.free.range_mut(..page).next_back() {
            Some((start, before)) if *start + *before == page => *before += len,
            _ => drop(self.free.insert(page, len)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::ZERO_BYTES;

    fn arena(pages: u32, initial: usize) -> (Arena, Memory) {
        let map = MapImage { max_entries: pages, initial: vec![1; initial], ..MapImage::default() };
        (Arena::new(ZERO_BYTES, &map), Memory::new(19, 1 << 18))
    }

    #[test]
    fn pages_are_taken_from_the_lowest_free_on_and_come_back_zeroed() {
        let (mut arena, mut memory) = arena(8, 5);
        let first = arena.alloc(&mut memory, 0, 2);
        assert_eq!(first, ZERO_BYTES + PAGE_BYTES, "the first page holds variables");
        memory.write_u64(first, 7);
        let second = arena.alloc(&mut memory, 0, 5);
        assert_eq!(second, first + 2 * PAGE_BYTES);
        assert_eq!(arena.alloc(&mut memory, 0, 1), 0, "none is left");
        arena.release(first, 2);
        assert_eq!(arena.in_use(), 6);
        assert_eq!(arena.alloc(&mut memory, 0, 3), 0, "no three in a row");
        assert_eq!(arena.alloc(&mut memory, 0, 2), first);
        assert_eq!(memory.read_u64(first), 0);
    }

    #[test]
    fn an_address_can_be_asked_for_and_reserved() {
        let (mut arena, mut memory) = arena(8, 0);
        let third = ZERO_BYTES + 2 * PAGE_BYTES;
        assert_eq!(arena.reserve(third, 2), 0);
        assert_eq!(arena.reserve(third, 1), -EBUSY);
        assert_eq!(arena.reserve(third + 1, 1), -EINVAL);
        assert_eq!(arena.alloc(&mut memory, third, 1), 0, "reserved");
        assert_eq!(arena.alloc(&mut memory, third + 2 * PAGE_BYTES, 1), third + 2 * PAGE_BYTES);
        arena.release(third, 2);
        arena.release(third, 2);
        assert_eq!(arena.in_use(), 1);
        assert_eq!(arena.alloc(&mut memory, 0, 4), ZERO_BYTES);
    }
}
