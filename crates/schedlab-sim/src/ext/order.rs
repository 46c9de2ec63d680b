//! The order of a long queue beside its list: virtual times side by side, so that a place among hundreds is found
//! without going from task to task.
//!
//! It holds what a [`Dsq`](super::dsq::Dsq) holds, in the same order, and answers what a walk of its list from the tail
//! would. Not here: the list itself, which stays what every reader goes by.

/// A task and its virtual time at insertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub vtime: u64,
    pub task: u32,
}

/// Virtual times this far apart compare wrap-safely in whatever order three of them are taken.
const SPAN_MAX: u64 = 1 << 62;
/// So many places at the front may be of tasks that left.
const GONE_MAX: usize = 64;

/// The tasks of a queue in its order.
#[derive(Clone, Debug)]
pub(super) struct Order {
    places: Vec<Place>,
    /// Places before are of tasks that left.
    begin: usize,
    /// Virtual times do not fall from one place to the next, and all lie within [`SPAN_MAX`].
    rising: bool,
}

impl Order {
    /// Of a queue with these tasks.
    pub(super) fn new(tasks: impl Iterator<Item = Place>) -> Order {
        let places: Vec<Place> = tasks.collect();
        let first = places.first().map_or(0, |place| place.vtime);
        let from_first = |place: &Place| place.vtime.wrapping_sub(first);
        let rising = places.is_sorted_by_key(from_first)
            && places.last().is_none_or(|place| from_first(place) < SPAN_MAX);
        Order { places, begin: 0, rising }
    }

    /// Puts a task behind all that are due earlier or equally early, wrap-safe, looked at from the last one on; the task
    /// before it, if there is one.
    pub(super) fn insert(&mut self, new: Place) -> Option<u32> {
        let places = &self.places[self.begin..];
        let later = |place: &Place| (new.vtime.wrapping_sub(place.vtime) as i64) < 0;
        if let (Some(first), Some(last)) = (places.first(), places.last()) {
            let low = if later(first) { new.vtime } else { first.vtime };
            let high = if later(last) { last.vtime } else { new.vtime };
            self.rising &= high.wrapping_sub(low) < SPAN_MAX;
        }
        let before = if self.rising {
            places.partition_point(|place| !later(place))
        } else {
            places.iter().rposition(|place| !later(place)).map_or(0, |at| at + 1)
        };
        let after = before.checked_sub(1).map(|at| places[at].task);
        self.places.insert(self.begin + before, new);
        after
    }

    /// Takes a task out.
    pub(super) fn remove(&mut self, task: u32) {
        let places = &self.places[self.begin..];
        let at = places.iter().position(|place| place.task == task).expect("what the queue holds");
        if at > 0 {
            self.places.remove(self.begin + at);
            return;
        }
        self.begin += 1;
        if self.begin == GONE_MAX {
            self.places.drain(..GONE_MAX);
            self.begin = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::rng::Rng;

    /// What walking a list from its tail finds.
    fn walk(list: &[Place], vtime: u64) -> usize {
        let mut at = list.len();
        while at > 0 && (vtime.wrapping_sub(list[at - 1].vtime) as i64) < 0 {
            at -= 1;
        }
        at
    }

    /// Random use, with virtual times spread over `span`: around the wrap, and where comparisons contradict each other.
    fn compare_with_a_walk(span: u64) {
        let (mut rng, mut list, mut order) = (Rng::new(5, span), Vec::new(), Order::new(std::iter::empty()));
        for task in 0..20_000 {
            if rng.below(100) < 52 - list.len() as u64 / 20 {
                let place = Place { vtime: (u64::MAX - span / 2).wrapping_add(rng.below(span)), task };
                let at = walk(&list, place.vtime);
                assert_eq!(order.insert(place), at.checked_sub(1).map(|at| list[at].task));
                list.insert(at, place);
            } else if !list.is_empty() {
                let at = if rng.below(3) > 0 { 0 } else { rng.below(list.len() as u64) as usize };
                order.remove(list.remove(at).task);
            }
            if rng.below(1_000) == 0 {
                order = Order::new(list.iter().copied());
            }
            assert_eq!(order.places[order.begin..], list);
        }
    }

    #[test]
    fn places_are_those_a_walk_from_the_tail_finds() {
        for span in [1, 7, 1_000, 1 << 40, 1 << 61, 1 << 63, u64::MAX] {
            compare_with_a_walk(span);
        }
    }
}
