//! Memory of messages: pieces of pages, which are free only when all of their pieces are.

use schedlab_model::memory::PAGE_BYTES;
use std::collections::VecDeque;

/// Pages that are cut into pieces of one size, as by the kernel's slab allocator (mm/slab.c). A piece is taken of the page that
/// has been in use in part for the longest time since something of it was freed; so pages empty late, and memory that many
/// messages have taken does not come back as they are read.
#[derive(Debug)]
pub(super) struct Cache {
    /// Pieces of a page.
    pieces: u32,
    /// Pieces in use of each page that there has been.
    used: Vec<u32>,
    /// Counts how often a page was put into `partial`: entries with another number are stale.
    turns: Vec<u32>,
    partial: VecDeque<(u32, u32)>,
    /// Numbers of pages that are given back.
    unused: Vec<u32>,
}

impl Cache {
    /// Of pieces of so many bytes, a page at most.
    pub(super) fn new(bytes: u32) -> Cache {
        let pieces = (PAGE_BYTES / u64::from(bytes.max(1))).clamp(1, PAGE_BYTES) as u32;
        let (used, turns, partial, unused) = (Vec::new(), Vec::new(), VecDeque::new(), Vec::new());
        Cache { pieces, used, turns, partial, unused }
    }

    /// Whether the next piece needs another page.
    pub(super) fn needs_page(&mut self) -> bool {
        while let Some(&(page, turn)) = self.partial.front() {
            if self.turns[page as usize] == turn {
                return false;
            }
            self.partial.pop_front();
        }
        true
    }

    /// Takes a piece; the number of its page.
    pub(super) fn take(&mut self) -> u32 {
        if self.needs_page() {
            let page = self.unused.pop().unwrap_or_else(|| {
                self.used.push(0);
                self.turns.push(0);
                self.used.len() as u32 - 1
            });
            self.partial.push_front((page, self.turns[page as usize]));
        }
        let (page, _) = self.partial[0];
        self.used[page as usize] += 1;
        if self.used[page as usize] == self.pieces {
            self.leaves_partial(page);
            self.partial.pop_front();
        }
        page
    }

    /// Frees one; whether its page is free now.
    pub(super) fn free(&mut self, page: u32) -> bool {
        self.leaves_partial(page);
        self.used[page as usize] -= 1;
        if self.used[page as usize] == 0 {
            self.unused.push(page);
            return true;
        }
        self.partial.push_back((page, self.turns[page as usize]));
        false
    }

    fn leaves_partial(&mut self, page: u32) {
        let turn = &mut self.turns[page as usize];
        *turn = turn.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_free_when_all_of_its_pieces_are() {
        let mut cache = Cache::new(1_024);
        assert!(cache.needs_page());
        let pages: Vec<u32> = (0..8).map(|_| cache.take()).collect();
        assert_eq!(pages, [0, 0, 0, 0, 1, 1, 1, 1]);
        assert!(cache.needs_page());
        // Every other one: both pages are in use in part.
        assert!(![0, 1, 0, 1, 0, 1].into_iter().any(|page| cache.free(page)));
        assert!(!cache.needs_page());
        assert_eq!(cache.take(), 0, "whose last free is older");
        assert!(cache.free(1));
        assert!(!cache.free(0) && cache.free(0));
        assert!(cache.needs_page());
    }
}
