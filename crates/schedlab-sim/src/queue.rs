//! The event queue: what happens next, in time order.
//!
//! An indexed 4-ary heap. Every source of events (a CPU's tick, a task's timer) owns one slot and has at
//! most one event pending, so arming again moves it and cancelling is cheap. Equal times keep the order
//! in which they were armed.

/// Where a slot is not in the heap.
const ABSENT: u32 = u32::MAX;
/// Bits of an entry's order word that hold the slot.
const SLOT_BITS: u32 = 24;

/// A pending event as one number: its time in the high 64 bits, then its arming number, which breaks ties
/// first come, first served, then its slot.
type Entry = u128;

#[inline]
fn entry(time: u64, armed: u64, slot: usize) -> Entry {
    (u128::from(time) << 64) | u128::from((armed << SLOT_BITS) | slot as u64)
}

#[inline]
fn time_of(entry: Entry) -> u64 {
    (entry >> 64) as u64
}

#[inline]
fn slot_of(entry: Entry) -> usize {
    (entry as u64 & ((1 << SLOT_BITS) - 1)) as usize
}

/// Pending events by slot.
#[derive(Default)]
pub(crate) struct EventQueue {
    /// Ordered by a lower bound of each entry: an event that was put off keeps its place until it comes first.
    heap: Vec<Entry>,
    /// What is true of a slot that is in the heap.
    due: Vec<Entry>,
    position: Vec<u32>,
    armed: u64,
    /// The first entry has been taken and waits to be replaced: what is armed next usually takes its place,
    /// which costs one descent instead of two. Until then its key, the least, keeps the heap in order.
    hole: bool,
}

impl EventQueue {
    /// Makes room for slots below `count`.
    pub(crate) fn reserve_slots(&mut self, count: usize) {
        assert!(count < 1 << SLOT_BITS, "more event sources than the queue can name");
        if self.position.len() < count {
            self.position.resize(count, ABSENT);
            self.due.resize(count, 0);
        }
    }

    /// Sets the slot's event to `time`, whether or not one was pending.
    pub(crate) fn arm(&mut self, slot: usize, time: u64) {
        self.armed += 1;
        let entry = entry(time, self.armed, slot);
        let at = self.position[slot];
        self.due[slot] = entry;
        if self.hole {
            if at == ABSENT {
                self.hole = false;
                return self.sift_down(0, entry);
            }
            if entry < self.heap[0] {
                self.close_hole();
                return self.move_to(self.position[slot], entry);
            }
        }
        self.move_to(at, entry);
    }

    #[inline]
    fn move_to(&mut self, at: u32, entry: Entry) {
        if at == ABSENT {
            self.heap.push(entry);
            self.sift_up(self.heap.len() - 1, entry);
        } else if entry < self.heap[at as usize] {
            self.sift_up(at as usize, entry);
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
        (at != ABSENT).then(|| time_of(self.due[slot]))
    }

    /// When the next event is due.
    #[inline]
    pub(crate) fn next_time(&mut self) -> Option<u64> {
        self.settle();
        self.heap.first().map(|first| time_of(*first))
    }

    /// Takes the next event: its time and slot.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(u64, usize)> {
        self.settle();
        let first = *self.heap.first()?;
        self.position[slot_of(first)] = ABSENT;
        self.hole = true;
        Some((time_of(first), slot_of(first)))
    }

    /// Takes the first entry out for good if it is gone already.
    #[inline]
    fn close_hole(&mut self) {
        if std::mem::take(&mut self.hole) {
            self.remove_at(0);
        }
    }

    /// Makes the first entry the one that is due first.
    #[inline]
    fn settle(&mut self) {
        self.close_hole();
        while let Some(first) = self.heap.first() {
            let due = self.due[slot_of(*first)];
            if due == *first {
                break;
            }
            self.sift_down(0, due);
        }
    }

    fn remove_at(&mut self, at: usize) {
        let last = self.heap.pop().expect("a pending event is in the heap");
        if at == self.heap.len() {
            return;
        }
        if at > 0 && last < self.heap[(at - 1) / 4] {
            self.sift_up(at, last);
        } else {
            self.sift_down(at, last);
        }
    }

    #[inline]
    fn put(&mut self, at: usize, entry: Entry) {
        self.position[slot_of(entry)] = at as u32;
        self.heap[at] = entry;
    }

    fn sift_up(&mut self, mut at: usize, entry: Entry) {
        while at > 0 {
            let parent = (at - 1) / 4;
            let above = self.heap[parent];
            if entry >= above {
                break;
            }
            self.put(at, above);
            at = parent;
        }
        self.put(at, entry);
    }

    fn sift_down(&mut self, mut at: usize, entry: Entry) {
        loop {
            let first = at * 4 + 1;
            let Some(children) = self.heap.get(first..) else { break };
            let (least, below) = match children {
                [a, b, c, d, ..] => {
                    // Two pairs, then the better ones: no branch depends on the order.
                    let left = if b < a { (first + 1, *b) } else { (first, *a) };
                    let right = if d < c { (first + 3, *d) } else { (first + 2, *c) };
                    if right.1 < left.1 { right } else { left }
                }
                few => {
                    let children = (first..).zip(few.iter().copied());
                    let Some(least) = children.min_by_key(|child| child.1) else { break };
                    least
                }
            };
            if entry <= below {
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
