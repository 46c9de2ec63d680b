//! The event queue: what happens next, in time order.
//!
//! An indexed 4-ary heap. Every source of events (a CPU's tick, a task's timer) owns one slot and has at
//! most one event pending, so arming again moves it and cancelling is cheap. Equal times keep the order
//! in which they were armed.

/// Where a slot is not in the heap.
const ABSENT: u32 = u32::MAX;
/// Bits of an entry's order word that hold the slot.
const SLOT_BITS: u32 = 24;

/// A pending event.
#[derive(Clone, Copy)]
struct Entry {
    time: u64,
    /// Arming number in the high bits, slot in the low ones: breaks ties first come, first served.
    order: u64,
}

impl Entry {
    #[inline]
    fn before(&self, other: &Entry) -> bool {
        (self.time, self.order) < (other.time, other.order)
    }

    #[inline]
    fn slot(&self) -> usize {
        (self.order & ((1 << SLOT_BITS) - 1)) as usize
    }
}

/// Pending events by slot.
#[derive(Default)]
pub(crate) struct EventQueue {
    heap: Vec<Entry>,
    position: Vec<u32>,
    armed: u64,
}

impl EventQueue {
    /// Makes room for slots below `count`.
    pub(crate) fn reserve_slots(&mut self, count: usize) {
        assert!(count < 1 << SLOT_BITS, "more event sources than the queue can name");
        if self.position.len() < count {
            self.position.resize(count, ABSENT);
        }
    }

    /// Sets the slot's event to `time`, whether or not one was pending.
    pub(crate) fn arm(&mut self, slot: usize, time: u64) {
        self.armed += 1;
        let entry = Entry { time, order: (self.armed << SLOT_BITS) | slot as u64 };
        let at = self.position[slot];
        if at == ABSENT {
            self.heap.push(entry);
            self.sift_up(self.heap.len() - 1, entry);
        } else {
            let old = self.heap[at as usize];
            if entry.before(&old) {
                self.sift_up(at as usize, entry);
            } else {
                self.sift_down(at as usize, entry);
            }
        }
    }

    /// Drops the slot's event, if one is pending.
    pub(crate) fn cancel(&mut self, slot: usize) {
        let at = self.position[slot];
        if at != ABSENT {
            self.position[slot] = ABSENT;
            self.remove_at(at as usize);
        }
    }

    /// When the slot's event is due.
    pub(crate) fn time_of(&self, slot: usize) -> Option<u64> {
        let at = self.position[slot];
        (at != ABSENT).then(|| self.heap[at as usize].time)
    }

    /// When the next event is due.
    #[inline]
    pub(crate) fn next_time(&self) -> Option<u64> {
        self.heap.first().map(|entry| entry.time)
    }

    /// Takes the next event: its time and slot.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(u64, usize)> {
        let first = *self.heap.first()?;
        self.position[first.slot()] = ABSENT;
        self.remove_at(0);
        Some((first.time, first.slot()))
    }

    fn remove_at(&mut self, at: usize) {
        let last = self.heap.pop().expect("a pending event is in the heap");
        if at == self.heap.len() {
            return;
        }
        if at > 0 && last.before(&self.heap[(at - 1) / 4]) {
            self.sift_up(at, last);
        } else {
            self.sift_down(at, last);
        }
    }

    fn put(&mut self, at: usize, entry: Entry) {
        self.position[entry.slot()] = at as u32;
        self.heap[at] = entry;
    }

    fn sift_up(&mut self, mut at: usize, entry: Entry) {
        while at > 0 {
            let parent = (at - 1) / 4;
            let above = self.heap[parent];
            if !entry.before(&above) {
                break;
            }
            self.put(at, above);
            at = parent;
        }
        self.put(at, entry);
    }

    fn sift_down(&mut self, mut at: usize, entry: Entry) {
        let len = self.heap.len();
        loop {
            let first = at * 4 + 1;
            if first >= len {
                break;
            }
            let mut least = first;
            for child in first + 1..(first + 4).min(len) {
                if self.heap[child].before(&self.heap[least]) {
                    least = child;
                }
            }
            let below = self.heap[least];
            if !below.before(&entry) {
                break;
            }
            self.put(at, below);
            at = least;
        }
        self.put(at, entry);
    }
}

#[cfg(test)]
mod tests {
    use super::EventQueue;
    use crate::rng::Rng;
    use std::collections::BTreeMap;

    #[test]
    fn equal_times_keep_their_order() {
        let mut queue = EventQueue::default();
        queue.reserve_slots(4);
        for slot in [2, 0, 3, 1] {
            queue.arm(slot, 5);
        }
        queue.arm(2, 5);
        let order: Vec<usize> = std::iter::from_fn(|| queue.pop().map(|(_, slot)| slot)).collect();
        assert_eq!(order, [0, 3, 1, 2]);
    }

    #[test]
    fn agrees_with_a_sorted_map_under_random_use() {
        let (mut queue, mut rng) = (EventQueue::default(), Rng::new(3, 0));
        queue.reserve_slots(100);
        let mut model: BTreeMap<usize, (u64, u64)> = BTreeMap::new();
        for step in 0..20_000_u64 {
            let slot = rng.below(100) as usize;
            match rng.below(4) {
                0 => {
                    queue.cancel(slot);
                    model.remove(&slot);
                }
                1 => {
                    let expected =
                        model.iter().min_by_key(|(_, key)| **key).map(|(slot, key)| (key.0, *slot));
                    assert_eq!(queue.next_time(), expected.map(|(time, _)| time));
                    assert_eq!(queue.pop(), expected);
                    expected.map(|(_, slot)| model.remove(&slot));
                }
                _ => {
                    let time = rng.below(1_000);
                    queue.arm(slot, time);
                    model.insert(slot, (time, step));
                    assert_eq!(queue.time_of(slot), Some(time));
                }
            }
        }
    }
}
