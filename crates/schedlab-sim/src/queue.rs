//! The event queue: what happens next, in time order.
//!
//! A timing wheel. Every source of events (a CPU's tick, a task's timer) owns one slot and has at most one event
//! pending, so arming again moves it. Pending events lie in buckets: level 0 has one for each of the next 64 ns,
//! each level above covers 64 times as much with 64 buckets 64 times as wide, all counted from the wheel's
//! origin. Only the first bucket that is not empty is ever looked into: a few events are compared, many are
//! spread over the levels below. So arming and taking cost the same however much is pending. An event that is
//! put off or dropped stays in its bucket until that one comes first. Equal times keep the order in which they
//! were armed.

/// No slot, no bucket.
const NONE: u32 = u32::MAX;
/// The time of a slot that has no event.
const NEVER: u64 = u64::MAX;
/// Buckets of a level, as bits of time.
const LEVEL_BITS: u32 = 6;
/// Levels that 64 bits of time need, and some more, so that no index needs a check.
const LEVELS: usize = 16;
const BUCKETS: usize = LEVELS << LEVEL_BITS;
/// Events of a bucket that are compared each time rather than spread.
const COMPARED_MAX: u32 = 6;

/// A slot's event and its place in the wheel.
#[derive(Clone, Copy)]
struct Node {
    /// When it is due, [`NEVER`] if none is pending.
    time: u64,
    /// Arming number: breaks ties, first come, first served.
    armed: u64,
    /// Neighbours in the bucket.
    next: u32,
    prev: u32,
    /// The bucket it lies in: its own or an earlier one.
    bucket: u32,
}

const IDLE: Node = Node { time: NEVER, armed: 0, next: NONE, prev: NONE, bucket: NONE };

/// Pending events by slot.
pub(crate) struct EventQueue {
    nodes: Vec<Node>,
    /// First slot of each bucket. Earlier buckets have lower numbers.
    heads: [u32; BUCKETS],
    /// Buckets of each level that are not empty.
    filled: [u64; LEVELS],
    /// Levels that are not empty.
    levels: u32,
    /// Nothing is due before. Each event lies on the level of the highest digit, of 6 bits, in which its time
    /// differs from the origin.
    origin: u64,
    armed: u64,
}

impl Default for EventQueue {
    fn default() -> EventQueue {
        EventQueue {
            nodes: Vec::new(),
            heads: [NONE; BUCKETS],
            filled: [0; LEVELS],
            levels: 0,
            origin: 0,
            armed: 0,
        }
    }
}

impl EventQueue {
    /// Makes room for slots below `count`.
    pub(crate) fn reserve_slots(&mut self, count: usize) {
        assert!(count < NONE as usize, "more event sources than the queue can name");
        if self.nodes.len() < count {
            self.nodes.resize(count, IDLE);
        }
    }

    /// Sets the slot's event to `time`, whether or not one was pending. Not before what was taken last.
    #[inline]
    pub(crate) fn arm(&mut self, slot: usize, time: u64) {
        let time = time.min(NEVER - 1);
        self.armed += 1;
        let bucket = self.bucket_of(time);
        let node = &mut self.nodes[slot];
        (node.time, node.armed) = (time, self.armed);
        let lies_in = node.bucket;
        if bucket < lies_in {
            if lies_in != NONE {
                self.unlink(slot as u32);
            }
            self.link(slot as u32, bucket);
        }
    }

    /// Moves the slot's event, if one is pending, to a later time.
    #[inline]
    pub(crate) fn put_off(&mut self, slot: usize, ns: u64) {
        let node = &mut self.nodes[slot];
        if node.time != NEVER {
            self.armed += 1;
            (node.time, node.armed) = (node.time.saturating_add(ns).min(NEVER - 1), self.armed);
        }
    }

    /// Drops the slot's event, if one is pending.
    #[inline]
    pub(crate) fn cancel(&mut self, slot: usize) {
        self.nodes[slot].time = NEVER;
    }

    /// When the slot's event is due.
    #[inline]
    pub(crate) fn time_of(&self, slot: usize) -> Option<u64> {
        let time = self.nodes[slot].time;
        (time != NEVER).then_some(time)
    }

    /// Takes the next event: its time and slot.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(u64, usize)> {
        while self.levels != 0 {
            let level = self.levels.trailing_zeros();
            let digit = self.filled[level as usize % LEVELS].trailing_zeros();
            if let Some(first) = self.first_of(level, digit) {
                self.unlink(first);
                let time = std::mem::replace(&mut self.nodes[first as usize].time, NEVER);
                return Some((time, first as usize));
            }
        }
        None
    }

    /// The bucket that a time belongs to.
    #[inline]
    fn bucket_of(&self, time: u64) -> u32 {
        let time = time.max(self.origin);
        let differs = 63 - ((time ^ self.origin) | 1).leading_zeros();
        // A sixth, exact up to 63.
        let level = (differs * 43) >> 8;
        let digit = (time >> (level * LEVEL_BITS)) as u32 & ((1 << LEVEL_BITS) - 1);
        (level << LEVEL_BITS) | digit
    }

    /// The first event of the first bucket; none if it was empty or too full and the search begins anew.
    /// Whatever does not belong there any more goes to its place.
    #[inline]
    fn first_of(&mut self, level: u32, digit: u32) -> Option<u32> {
        let bucket = (level << LEVEL_BITS) | digit;
        let shift = level * LEVEL_BITS;
        let above = shift + LEVEL_BITS;
        let begin = if above < 64 { self.origin >> above << above } else { 0 } | (u64::from(digit) << shift);
        let last = (begin + ((1 << shift) - 1)).min(NEVER - 1);
        let mut at = self.heads[bucket as usize % BUCKETS];
        let node = &self.nodes[at as usize];
        if node.next == NONE && node.time <= last {
            return Some(at);
        }
        let (mut first, mut best, mut count) = (NONE, (NEVER, NEVER), 0);
        while at != NONE {
            let Node { time, armed, next, .. } = self.nodes[at as usize];
            if time > last {
                self.move_on(at);
            } else {
                count += 1;
                if (time, armed) < best {
                    (first, best) = (at, (time, armed));
                }
            }
            at = next;
        }
        if count > COMPARED_MAX && level > 0 {
            self.origin = begin;
            self.spread(bucket);
            return None;
        }
        (first != NONE).then_some(first)
    }

    /// Moves an event that was put off to its bucket, or takes one that was dropped out of the wheel.
    fn move_on(&mut self, slot: u32) {
        self.unlink(slot);
        let time = self.nodes[slot as usize].time;
        if time != NEVER {
            self.link(slot, self.bucket_of(time));
        }
    }

    /// Moves the events of a bucket, in which the origin now lies, to the levels below.
    fn spread(&mut self, bucket: u32) {
        let mut at = self.heads[bucket as usize % BUCKETS];
        while at != NONE {
            let next = self.nodes[at as usize].next;
            self.move_on(at);
            at = next;
        }
    }

    #[inline]
    fn link(&mut self, slot: u32, bucket: u32) {
        let head = std::mem::replace(&mut self.heads[bucket as usize % BUCKETS], slot);
        if head != NONE {
            self.nodes[head as usize].prev = slot;
        }
        let node = &mut self.nodes[slot as usize];
        (node.next, node.prev, node.bucket) = (head, NONE, bucket);
        let level = bucket >> LEVEL_BITS;
        self.filled[level as usize % LEVELS] |= 1 << (bucket & 63);
        self.levels |= 1 << level;
    }

    #[inline]
    fn unlink(&mut self, slot: u32) {
        let node = &mut self.nodes[slot as usize];
        let Node { next, prev, bucket, .. } = *node;
        node.bucket = NONE;
        if next != NONE {
            self.nodes[next as usize].prev = prev;
        }
        if prev != NONE {
            self.nodes[prev as usize].next = next;
            return;
        }
        self.heads[bucket as usize % BUCKETS] = next;
        if next == NONE {
            let level = (bucket >> LEVEL_BITS) as usize;
            self.filled[level % LEVELS] &= !(1 << (bucket & 63));
            self.levels &= !(u32::from(self.filled[level % LEVELS] == 0) << level);
        }
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

    /// Random use, times up to `span` ahead of the clock.
    fn compare_with_a_sorted_map(slots: u64, span: u64) {
        let (mut queue, mut rng, mut now) = (EventQueue::default(), Rng::new(3, span), 0);
        queue.reserve_slots(slots as usize);
        let mut model: BTreeMap<usize, (u64, u64)> = BTreeMap::new();
        for step in 0..50_000_u64 {
            let slot = rng.below(slots) as usize;
            match rng.below(8) {
                0 => {
                    queue.cancel(slot);
                    model.remove(&slot);
                }
                4 => {
                    let ns = rng.below(span);
                    queue.put_off(slot, ns);
                    model.entry(slot).and_modify(|(time, armed)| (*time, *armed) = (*time + ns, step));
                }
                1..4 => {
                    let expected =
                        model.iter().min_by_key(|(_, key)| **key).map(|(slot, key)| (key.0, *slot));
                    assert_eq!(queue.pop(), expected);
                    if let Some((time, slot)) = expected {
                        model.remove(&slot);
                        now = time;
                    }
                }
                _ => {
                    let time = now + (rng.below(span) >> rng.below(40));
                    queue.arm(slot, time);
                    model.insert(slot, (time, step));
                    assert_eq!(queue.time_of(slot), Some(time));
                }
            }
        }
    }

    #[test]
    fn agrees_with_a_sorted_map_under_random_use() {
        for slots in [3, 100, 2_000] {
            for span in [1, 100, 1_000_000, 1 << 40, 1 << 47] {
                compare_with_a_sorted_map(slots, span);
            }
        }
    }

    #[test]
    fn far_times_are_events_too() {
        let mut queue = EventQueue::default();
        queue.reserve_slots(2);
        queue.arm(0, u64::MAX - 1);
        queue.arm(1, 1 << 63);
        assert_eq!(queue.pop(), Some((1 << 63, 1)));
        assert_eq!(queue.pop(), Some((u64::MAX - 1, 0)));
        assert_eq!(queue.pop(), None);
    }
}
