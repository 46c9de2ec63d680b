//! The event queue: what happens next, in time order.
//!
//! Every source of events (a CPU's tick, a task's timer) owns one slot and has at most one event pending, so arming
//! again moves it. Pending events lie in buckets. A ring of 1,024 buckets of 1,024 ns each covers the millisecond from
//! now on, in which nearly all events of a busy machine fall: they are put into their bucket once and taken out of it
//! once. What is due later lies in a wheel, whose levels have 64 buckets, each level's 64 times as wide as those of the
//! level below, and gets into the ring when its time comes near. Only the first bucket that is not empty is ever looked
//! into: one event is taken at once; several are taken out together and sorted. So arming and taking cost the same
//! however much is pending. An event that is put off or dropped stays in its bucket until that one comes first. Equal
//! times keep the order in which they were armed.

use crate::ahead::{Row, fetch_row};

/// No slot, no bucket.
const NONE: u32 = u32::MAX;
/// The bucket of an event that is among those sorted.
const SORTED: u32 = NONE - 1;
/// The time of a slot that has no event.
const NEVER: u64 = u64::MAX;
/// No event is later: the end of the last bucket but one.
const LAST: u64 = NEVER - (1 << NEAR_SHIFT);
/// ns of a bucket of the ring, as bits.
const NEAR_SHIFT: u32 = 10;
/// Buckets of the ring.
const NEAR: usize = 1 << 10;
/// Words of the ring's bitmap.
const NEAR_WORDS: usize = NEAR / 64;
/// ns of a bucket of the wheel's lowest level, as bits: as much as the whole ring.
const FAR_SHIFT: u32 = 20;
/// Buckets of a level of the wheel, as bits of time.
const LEVEL_BITS: u32 = 6;
/// Levels that 64 bits of time need.
const LEVELS: usize = 8;
/// How many buckets after the open one events are brought near.
const AHEAD_BUCKETS: u64 = 3;
const BUCKETS: usize = NEAR + (LEVELS << LEVEL_BITS);

/// A slot's event and its place. None lies in two cache lines.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
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

impl Row for Node {
    const HOT_BYTES: usize = size_of::<Node>();
}

const IDLE: Node = Node { time: NEVER, armed: 0, next: NONE, prev: NONE, bucket: NONE };

/// A sorted event. It counts only while its slot still has this arming number.
#[derive(Clone, Copy, Debug)]
struct Sorted {
    /// ns since the begin of its bucket, then the arming number: one number to compare.
    key: u64,
    slot: u32,
}

/// Bits of arming numbers: at 10^9 a second they last for half a year.
const ARMED_BITS: u32 = 64 - NEAR_SHIFT;

impl Sorted {
    #[inline(always)]
    fn new(time: u64, armed: u64, slot: u32) -> Sorted {
        Sorted { key: time << ARMED_BITS | armed, slot }
    }

    #[inline(always)]
    fn armed(self) -> u64 {
        self.key & ((1 << ARMED_BITS) - 1)
    }

    #[inline(always)]
    fn time(self, bucket: u64) -> u64 {
        bucket << NEAR_SHIFT | self.key >> ARMED_BITS
    }
}

/// Pending events by slot.
pub(crate) struct EventQueue {
    nodes: Vec<Node>,
    /// First slot of each bucket: those of the ring, then those of the wheel, level by level.
    heads: Box<[u32; BUCKETS]>,
    /// Buckets of the ring that are not empty.
    near: [u64; NEAR_WORDS],
    /// Levels of the wheel that are not empty.
    levels: u32,
    /// Buckets of each level that are not empty.
    far: [u64; LEVELS],
    /// Begin of the wheel's first bucket that is not empty.
    far_begin: u64,
    /// Nothing is due before. The ring goes from its bucket once around; in the wheel each event lies on the level of
    /// the highest digit, of 6 bits, in which its time differs from it.
    origin: u64,
    armed: u64,
    /// Events of the first bucket, the earliest last, and that bucket's number since time 0; [`NEVER`] if none is open.
    sorted: Vec<Sorted>,
    open: u64,
    /// The event that was brought near last, of a bucket after it, and that bucket's number.
    ahead: u32,
    ahead_in: u64,
}

impl Default for EventQueue {
    fn default() -> EventQueue {
        EventQueue {
            nodes: Vec::new(),
            heads: Box::new([NONE; BUCKETS]),
            near: [0; NEAR_WORDS],
            levels: 0,
            far: [0; LEVELS],
            far_begin: NEVER,
            origin: 0,
            armed: 0,
            sorted: Vec::new(),
            open: NEVER,
            ahead: NONE,
            ahead_in: 0,
        }
    }
}

impl EventQueue {
    /// Makes room for slots below `count`.
    pub(crate) fn reserve_slots(&mut self, count: usize) {
        assert!(count < SORTED as usize, "more event sources than the queue can name");
        if self.nodes.len() < count {
            self.nodes.resize(count, IDLE);
        }
    }

    /// Sets the slot's event to `time`, whether or not one was pending. Not before what was taken last.
    #[inline(always)]
    pub(crate) fn arm(&mut self, slot: usize, time: u64) {
        let time = time.max(self.origin).min(LAST);
        self.armed += 1;
        let node = &mut self.nodes[slot];
        (node.time, node.armed) = (time, self.armed);
        let lies_in = node.bucket;
        let number = time >> NEAR_SHIFT;
        if number == self.open || number - (self.origin >> NEAR_SHIFT) >= NEAR as u64 {
            return self.arm_elsewhere(slot as u32);
        }
        let bucket = number as u32 % NEAR as u32;
        if bucket != lies_in {
            if lies_in < SORTED {
                self.unlink(slot as u32);
            }
            self.link_near(slot as u32, bucket);
        }
    }

    /// The rest of arming for an event among those that are sorted, or far away.
    #[inline(never)]
    fn arm_elsewhere(&mut self, slot: u32) {
        let Node { time, armed, bucket, .. } = self.nodes[slot as usize];
        if time >> NEAR_SHIFT != self.open {
            let to = self.far_bucket_of(time);
            if to != bucket {
                if bucket < SORTED {
                    self.unlink(slot);
                }
                self.link_far(slot, to);
            }
            return;
        }
        if bucket < SORTED {
            self.unlink(slot);
        }
        self.nodes[slot as usize].bucket = SORTED;
        let entry = Sorted::new(time, armed, slot);
        let at = self.sorted.partition_point(|other| other.key > entry.key);
        self.sorted.insert(at, entry);
    }

    /// Moves the slot's event, if one is pending, to a later time.
    #[inline(always)]
    pub(crate) fn put_off(&mut self, slot: usize, ns: u64) {
        if self.nodes[slot].time != NEVER {
            self.put_off_pending(slot, ns);
        }
    }

    /// The same for an event that is most likely to be put off again before the next one is taken: until then it may lie
    /// where it lies.
    #[inline(always)]
    pub(crate) fn put_off_for_now(&mut self, slot: usize, ns: u64) {
        let node = &mut self.nodes[slot];
        if node.time == NEVER || node.bucket == SORTED {
            return self.put_off(slot, ns);
        }
        self.armed += 1;
        (node.time, node.armed) = (node.time.saturating_add(ns).min(LAST), self.armed);
    }

    #[inline(never)]
    fn put_off_pending(&mut self, slot: usize, ns: u64) {
        let node = &mut self.nodes[slot];
        let time = node.time.saturating_add(ns).min(LAST);
        if node.bucket == SORTED {
            return self.arm_again(slot, time);
        }
        self.armed += 1;
        (node.time, node.armed) = (time, self.armed);
        // Alone in its bucket it is moved at once, so that what comes first is mostly due.
        let alone = node.next == NONE && node.prev == NONE;
        let (from, number) = (node.bucket as usize, time >> NEAR_SHIFT);
        if alone && from < NEAR && number != self.open && number - (self.origin >> NEAR_SHIFT) < NEAR as u64 {
            self.empty_near(from);
            self.link_near(slot as u32, number as u32 % NEAR as u32);
        }
    }

    #[cold]
    fn arm_again(&mut self, slot: usize, time: u64) {
        self.arm(slot, time);
    }

    /// Drops the slot's event, if one is pending.
    #[inline]
    pub(crate) fn cancel(&mut self, slot: usize) {
        let node = &mut self.nodes[slot];
        (node.time, node.armed) = (NEVER, 0);
    }

    /// When the slot's event is due.
    #[inline]
    pub(crate) fn time_of(&self, slot: usize) -> Option<u64> {
        let time = self.nodes[slot].time;
        (time != NEVER).then_some(time)
    }

    /// The slot of the event that is taken after `others` more, if that is known already.
    #[inline]
    pub(crate) fn soon(&self, others: usize) -> Option<usize> {
        let at = self.sorted.len().checked_sub(others + 1)?;
        Some(self.sorted[at].slot as usize)
    }

    /// Brings a slot's event near.
    pub(crate) fn fetch(&self, slot: usize) {
        fetch_row(&self.nodes, slot);
    }

    /// Brings another event of the buckets after the open one near: the slot of the one before it. Events of a bucket are
    /// found through each other, so that only one can be asked for at a time.
    #[inline]
    pub(crate) fn fetch_next(&mut self) -> Option<usize> {
        let slot = self.ahead as usize;
        match self.nodes.get(slot) {
            Some(node) => self.ahead = node.next,
            None if self.ahead_in - self.open < AHEAD_BUCKETS => {
                let number = self.first_from(self.ahead_in + 1)?;
                (self.ahead_in, self.ahead) = (number, self.heads[number as usize % NEAR]);
            }
            None => return None,
        }
        fetch_row(&self.nodes, self.ahead as usize);
        (slot != NONE as usize).then_some(slot)
    }

    /// Whether [`EventQueue::soon`] knows any.
    #[inline]
    pub(crate) fn knows_next(&self) -> bool {
        self.open != NEVER
    }

    /// Takes the next event: its time and slot.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(u64, usize)> {
        loop {
            if self.open != NEVER {
                match self.pop_sorted() {
                    None => continue,
                    found => return found,
                }
            }
            let Some(number) = self.first_near() else {
                if self.levels == 0 {
                    // Dropped events may have taken it beyond the time of what was taken last.
                    self.origin = 0;
                    return None;
                }
                self.pull_far();
                continue;
            };
            if number << NEAR_SHIFT >= self.far_begin {
                self.pull_far();
                continue;
            }
            let bucket = number as usize % NEAR;
            let slot = self.heads[bucket];
            let node = &mut self.nodes[slot as usize];
            let time = node.time;
            if node.next != NONE {
                self.open(number);
                continue;
            }
            node.bucket = NONE;
            if time >> NEAR_SHIFT == number {
                node.time = NEVER;
                self.empty_near(bucket);
                self.origin = time;
                return Some((time, slot as usize));
            }
            self.empty_near(bucket);
            self.place(slot);
        }
    }

    /// The earliest of the sorted events; none if it does not count any more.
    #[inline(never)]
    fn pop_sorted(&mut self) -> Option<(u64, usize)> {
        let last = self.sorted.pop().expect("an open bucket has events");
        let time = last.time(self.open);
        if self.sorted.is_empty() {
            self.open = NEVER;
        }
        let node = &mut self.nodes[last.slot as usize];
        if node.armed != last.armed() {
            return None;
        }
        (node.time, node.bucket) = (NEVER, NONE);
        self.origin = time;
        Some((time, last.slot as usize))
    }

    /// The ring's first bucket that is not empty, numbered since time 0.
    #[inline]
    fn first_near(&self) -> Option<u64> {
        self.first_from(self.origin >> NEAR_SHIFT)
    }

    /// The same from a bucket on.
    #[inline(always)]
    fn first_from(&self, first: u64) -> Option<u64> {
        let (word, bit) = (first as usize / 64 % NEAR_WORDS, first % 64);
        // The next 64 buckets, wherever words end: whether there is an event among them can be predicted.
        let next = self.near[(word + 1) % NEAR_WORDS];
        let here = self.near[word] >> bit | next << 1 << (63 - bit);
        if here != 0 {
            return Some(first + u64::from(here.trailing_zeros()));
        }
        self.first_farther(first)
    }

    /// The same if the next 64 buckets are empty.
    #[inline(never)]
    fn first_farther(&self, first: u64) -> Option<u64> {
        let word = first as usize / 64 % NEAR_WORDS;
        // The words after the first one, around the end, then that one's lower bits.
        (1..=NEAR_WORDS).find_map(|step| {
            let bits = self.near[(word + step) % NEAR_WORDS];
            let begin = (first & !63) + step as u64 * 64;
            (bits != 0).then(|| begin + u64::from(bits.trailing_zeros()))
        })
    }

    /// Sorts the events of the ring's first bucket. Whatever does not belong there any more goes to its place.
    #[inline(never)]
    fn open(&mut self, number: u64) {
        let bucket = number as usize % NEAR;
        let mut at = self.heads[bucket];
        self.empty_near(bucket);
        while at != NONE {
            let slot = at;
            let node = &mut self.nodes[at as usize];
            at = node.next;
            let Node { time, armed, .. } = *node;
            if time >> NEAR_SHIFT == number {
                node.bucket = SORTED;
                self.sorted.push(Sorted::new(time, armed, slot));
            } else {
                node.bucket = NONE;
                self.place_apart(slot);
            }
        }
        match self.sorted.as_mut_slice() {
            [] => return,
            [_] => {}
            [a, b] => {
                if a.key < b.key {
                    std::mem::swap(a, b);
                }
            }
            more => more.sort_unstable_by_key(|event| std::cmp::Reverse(event.key)),
        }
        self.open = number;
        if self.ahead_in <= number {
            (self.ahead_in, self.ahead) = (number, NONE);
            self.fetch_next();
        }
    }

    /// Moves the events of the wheel's first bucket to the ring or to the levels below.
    #[inline(never)]
    fn pull_far(&mut self) {
        let level = self.levels.trailing_zeros();
        let digit = self.far[level as usize % LEVELS].trailing_zeros();
        let bucket = NEAR + ((level << LEVEL_BITS) | digit) as usize;
        // Nothing is pending before it.
        self.origin = self.origin.max(self.begin_of(level, digit));
        let mut at = self.heads[bucket];
        while at != NONE {
            let next = self.nodes[at as usize].next;
            self.unlink(at);
            self.place_apart(at);
            at = next;
        }
    }

    /// Puts an event that lies nowhere to its place, unless it was dropped.
    #[inline(always)]
    fn place(&mut self, slot: u32) {
        let time = self.nodes[slot as usize].time;
        if time == NEVER {
            return;
        }
        let number = time >> NEAR_SHIFT;
        if number - (self.origin >> NEAR_SHIFT) < NEAR as u64 {
            self.link_near(slot, number as u32 % NEAR as u32);
        } else {
            self.link_far(slot, self.far_bucket_of(time));
        }
    }

    #[inline(never)]
    fn place_apart(&mut self, slot: u32) {
        self.place(slot);
    }

    /// The wheel's bucket of a time beyond the ring.
    fn far_bucket_of(&self, time: u64) -> u32 {
        let differs = 63 - (time ^ self.origin).leading_zeros();
        let level = (differs - FAR_SHIFT) / LEVEL_BITS;
        let digit = (time >> (FAR_SHIFT + level * LEVEL_BITS)) as u32 & ((1 << LEVEL_BITS) - 1);
        NEAR as u32 + ((level << LEVEL_BITS) | digit)
    }

    /// When a bucket of the wheel begins.
    fn begin_of(&self, level: u32, digit: u32) -> u64 {
        let shift = FAR_SHIFT + level * LEVEL_BITS;
        let above = shift + LEVEL_BITS;
        let high = if above < 64 { self.origin >> above << above } else { 0 };
        high | (u64::from(digit) << shift)
    }

    /// Finds when the wheel's first bucket begins.
    fn find_far(&mut self) {
        self.far_begin = match self.levels {
            0 => NEVER,
            levels => {
                let level = levels.trailing_zeros();
                self.begin_of(level, self.far[level as usize % LEVELS].trailing_zeros())
            }
        };
    }

    #[inline]
    fn link_near(&mut self, slot: u32, bucket: u32) {
        self.link(slot, bucket);
        let word = bucket as usize / 64 % NEAR_WORDS;
        self.near[word] |= 1 << (bucket % 64);
    }

    fn link_far(&mut self, slot: u32, bucket: u32) {
        self.link(slot, bucket);
        let (level, digit) = ((bucket - NEAR as u32) >> LEVEL_BITS, bucket % 64);
        self.far[level as usize % LEVELS] |= 1 << digit;
        self.levels |= 1 << level;
        self.far_begin = self.far_begin.min(self.begin_of(level, digit));
    }

    #[inline]
    fn link(&mut self, slot: u32, bucket: u32) {
        let head = std::mem::replace(&mut self.heads[bucket as usize], slot);
        if head != NONE {
            self.nodes[head as usize].prev = slot;
        }
        let node = &mut self.nodes[slot as usize];
        (node.next, node.prev, node.bucket) = (head, NONE, bucket);
    }

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
        let bucket = bucket as usize;
        self.heads[bucket] = next;
        if next != NONE {
            return;
        }
        if bucket < NEAR {
            return self.empty_near(bucket);
        }
        let level = (bucket - NEAR) >> LEVEL_BITS;
        self.far[level % LEVELS] &= !(1 << (bucket % 64));
        self.levels &= !(u32::from(self.far[level % LEVELS] == 0) << level);
        self.find_far();
    }

    /// A bucket of the ring is empty from now on.
    #[inline]
    fn empty_near(&mut self, bucket: usize) {
        self.heads[bucket] = NONE;
        let word = bucket / 64 % NEAR_WORDS;
        self.near[word] &= !(1 << (bucket % 64));
    }
}

#[cfg(test)]
mod tests {
    use super::EventQueue;
    use schedlab_model::rng::Rng;
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
                    if ns % 2 == 0 {
                        queue.put_off(slot, ns)
                    } else {
                        queue.put_off_for_now(slot, ns)
                    }
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
        queue.arm(0, u64::MAX);
        queue.arm(1, 1 << 63);
        assert_eq!(queue.pop(), Some((1 << 63, 1)));
        assert_eq!(queue.pop(), Some((super::LAST, 0)));
        assert_eq!(queue.pop(), None);
    }
}
