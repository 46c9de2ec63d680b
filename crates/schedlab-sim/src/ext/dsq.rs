//! Dispatch queues: FIFO or ordered by virtual time, with iterators that survive removals.
//!
//! A queue is a list threaded through [`Entity`]: the order of the list is the dispatch order, for both kinds,
//! as in the kernel. Which keeps a tree beside it to find the place of an insertion; here the place is searched from the
//! tail, where virtual times that grow with time belong, and in a long queue in its [`Order`]. Not here: who may insert
//! what ([`super::enqueue`]).

use super::consts::{SCX_DSQ_FLAG_BUILTIN, SCX_DSQ_INVALID};
use super::order::{Order, Place};
use super::task::Entity;
use crate::ahead::{Row, fetch_row};
use std::collections::BTreeMap;
use std::hint::cold_path;

/// Position of a queue in [`Dsqs`]; the first ones are the CPUs' local queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DsqIndex(pub u32);

/// End of a list; also "in no list".
pub(crate) const NIL: u32 = u32::MAX;

/// User queues with ids below this are found without a search.
const DIRECT_IDS: u64 = 2048;

/// From so many tasks on a queue by virtual time keeps its order beside the list, and with so few it stops.
const LONG: u32 = 32;
const SHORT: u32 = 12;

/// One queue, in one cache line.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(crate) struct Dsq {
    /// Its id; [`SCX_DSQ_INVALID`] once destroyed.
    pub id: u64,
    pub first: u32,
    pub last: u32,
    /// Tasks queued.
    pub nr: u32,
    /// Tasks of them ordered by virtual time.
    pub nr_priq: u32,
    /// Counts insertions; an iterator skips what came after it.
    pub seq: u32,
    /// The CPU that had its lock last; see [`super::lock`].
    pub locked_by: u32,
    /// Until when it has it.
    pub locked_until: u64,
    /// Whether there is something in [`Side`] to keep up to date.
    attended: bool,
    side: Option<Box<Side>>,
}

/// What few queues have.
#[derive(Clone, Debug, Default)]
struct Side {
    /// Iterators in progress: (iterator's number, next task to look at).
    cursors: Vec<(u64, u32)>,
    /// Of a long queue whose tasks are all ordered by virtual time.
    order: Option<Order>,
}

impl Row for Dsq {
    const HOT_BYTES: usize = size_of::<Dsq>();
}

const _: () = assert!(size_of::<Dsq>() == 64, "one cache line");

impl Dsq {
    fn new(id: u64) -> Dsq {
        Dsq {
            id,
            first: NIL,
            last: NIL,
            nr: 0,
            nr_priq: 0,
            seq: 0,
            locked_by: NIL,
            locked_until: 0,
            attended: false,
            side: None,
        }
    }

    /// Puts a task at the head or the tail.
    #[inline(always)]
    pub(crate) fn push(&mut self, tasks: &mut [Entity], task: u32, head: bool) {
        if self.attended {
            cold_path();
            self.side().order = None;
        }
        if head { self.link(tasks, task, NIL) } else { self.link(tasks, task, self.last) }
    }

    /// Puts a task behind all that are due earlier or equally early by virtual time, wrap-safe.
    #[inline(always)]
    pub(crate) fn push_vtime(&mut self, tasks: &mut [Entity], task: u32, vtime: u64) {
        let after = if self.nr < LONG && !self.attended {
            self.place_from_tail(tasks, vtime)
        } else {
            self.place_in_order(tasks, task, vtime)
        };
        tasks[task as usize].vtime_key = vtime;
        tasks[task as usize].on_priq = true;
        self.nr_priq += 1;
        self.link(tasks, task, after);
    }

    /// The task to come before one of this virtual time.
    #[inline(always)]
    fn place_from_tail(&self, tasks: &[Entity], vtime: u64) -> u32 {
        let mut after = self.last;
        while after != NIL && (vtime.wrapping_sub(tasks[after as usize].vtime_key) as i64) < 0 {
            after = tasks[after as usize].prev;
        }
        after
    }

    /// The same in a long queue, or one that is iterated; the task's place is noted.
    #[inline(never)]
    fn place_in_order(&mut self, tasks: &[Entity], task: u32, vtime: u64) -> u32 {
        if self.side().order.is_none() {
            if self.nr < LONG || self.nr_priq != self.nr {
                return self.place_from_tail(tasks, vtime);
            }
            let next = |at: &u32| Some(tasks[*at as usize].next).filter(|next| *next != NIL);
            let list = std::iter::successors(Some(self.first), next);
            let places = list.map(|task| Place { vtime: tasks[task as usize].vtime_key, task });
            self.side().order = Some(Order::new(places));
            self.attended = true;
        }
        let order = self.side().order.as_mut().expect("just made");
        order.insert(Place { vtime, task }).unwrap_or(NIL)
    }

    fn side(&mut self) -> &mut Side {
        self.side.get_or_insert_default()
    }

    #[inline(always)]
    fn link(&mut self, tasks: &mut [Entity], task: u32, after: u32) {
        let next = match after {
            NIL => std::mem::replace(&mut self.first, task),
            after => std::mem::replace(&mut tasks[after as usize].next, task),
        };
        let entity = &mut tasks[task as usize];
        debug_assert!(!entity.linked, "a task is in one queue at most");
        (entity.prev, entity.next, entity.linked) = (after, next, true);
        self.seq = self.seq.wrapping_add(1);
        entity.dsq_seq = self.seq;
        match next {
            NIL => self.last = task,
            next => tasks[next as usize].prev = task,
        }
        self.nr += 1;
    }

    /// Takes a task out; its flags.
    #[inline(always)]
    pub(crate) fn unlink(&mut self, tasks: &mut [Entity], task: u32) -> u32 {
        let entity = &mut tasks[task as usize];
        debug_assert!(entity.linked, "the task is in this queue");
        let (prev, next, flags) = (entity.prev, entity.next, entity.flags);
        (entity.linked, entity.dsq) = (false, None);
        if std::mem::take(&mut entity.on_priq) {
            self.nr_priq -= 1;
        }
        match prev {
            NIL => self.first = next,
            prev => tasks[prev as usize].next = next,
        }
        match next {
            NIL => self.last = prev,
            next => tasks[next as usize].prev = prev,
        }
        self.nr -= 1;
        if self.attended {
            self.left(task, next);
        }
        flags
    }

    /// A task, before `next`, was taken out.
    #[inline(never)]
    fn left(&mut self, task: u32, next: u32) {
        let short = self.nr <= SHORT;
        let side = self.side();
        if short {
            side.order = None;
        } else if let Some(order) = &mut side.order {
            order.remove(task);
        }
        for (_, at) in side.cursors.iter_mut().filter(|(_, at)| *at == task) {
            *at = next;
        }
        self.attend();
    }

    /// Finds whether there is anything left to keep up to date.
    fn attend(&mut self) {
        let side = self.side();
        self.attended = side.order.is_some() || !side.cursors.is_empty();
    }

    /// Starts an iterator of the caller's number at one end.
    pub(crate) fn iterate(&mut self, cursor: u64, reverse: bool) {
        let start = if reverse { self.last } else { self.first };
        self.side().cursors.push((cursor, start));
        self.attended = true;
    }

    /// The next task of an iterator among those inserted up to `until`.
    pub(crate) fn advance(
        &mut self,
        tasks: &[Entity],
        cursor: u64,
        until: u32,
        reverse: bool,
    ) -> Option<u32> {
        let (_, at) = self.side().cursors.iter_mut().find(|(number, _)| *number == cursor)?;
        while *at != NIL {
            let found = *at;
            let entity = &tasks[found as usize];
            *at = if reverse { entity.prev } else { entity.next };
            if (until.wrapping_sub(entity.dsq_seq) as i32) >= 0 {
                return Some(found);
            }
        }
        None
    }

    /// Ends an iterator.
    pub(crate) fn finish(&mut self, cursor: u64) {
        self.side().cursors.retain(|(number, _)| *number != cursor);
        self.attend();
    }
}

/// All queues of a scheduler.
#[derive(Debug)]
pub(crate) struct Dsqs {
    queues: Vec<Dsq>,
    direct: Vec<u32>,
    others: BTreeMap<u64, u32>,
}

impl Dsqs {
    /// The kernel's queues; user queues come later.
    pub(crate) fn new(builtin: impl Iterator<Item = u64>) -> Dsqs {
        Dsqs { queues: builtin.map(Dsq::new).collect(), direct: Vec::new(), others: BTreeMap::new() }
    }

    #[inline]
    pub(crate) fn get(&self, index: DsqIndex) -> &Dsq {
        &self.queues[index.0 as usize]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: DsqIndex) -> &mut Dsq {
        &mut self.queues[index.0 as usize]
    }

    /// Brings a queue near.
    pub(crate) fn fetch(&self, index: DsqIndex) {
        fetch_row(&self.queues, index.0 as usize);
    }

    /// A user queue by its id.
    #[inline]
    pub(crate) fn find_user(&self, id: u64) -> Option<DsqIndex> {
        if id < DIRECT_IDS {
            return self.direct.get(id as usize).filter(|at| **at != NIL).map(|at| DsqIndex(*at));
        }
        self.others.get(&id).map(|at| DsqIndex(*at))
    }

    /// Creates a user queue; `None` if the id is taken.
    pub(crate) fn create(&mut self, id: u64) -> Option<DsqIndex> {
        debug_assert!(id & SCX_DSQ_FLAG_BUILTIN == 0, "the caller checked the id");
        if self.find_user(id).is_some() {
            return None;
        }
        let at = self.queues.len() as u32;
        self.queues.push(Dsq::new(id));
        if id < DIRECT_IDS {
            if self.direct.len() <= id as usize {
                self.direct.resize(id as usize + 1, NIL);
            }
            self.direct[id as usize] = at;
        } else {
            self.others.insert(id, at);
        }
        Some(DsqIndex(at))
    }

    /// Forgets an empty user queue.
    pub(crate) fn destroy(&mut self, index: DsqIndex) {
        let id = std::mem::replace(&mut self.get_mut(index).id, SCX_DSQ_INVALID);
        if id < DIRECT_IDS {
            self.direct[id as usize] = NIL;
        } else {
            self.others.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tasks() -> Vec<Entity> {
        (0..8).map(|_| Entity::new(0)).collect()
    }

    fn order(dsq: &mut Dsq, tasks: &[Entity]) -> Vec<u32> {
        let until = dsq.seq;
        dsq.iterate(99, false);
        let order = std::iter::from_fn(|| dsq.advance(tasks, 99, until, false)).collect();
        dsq.finish(99);
        order
    }

    #[test]
    fn fifo_keeps_arrival_and_head_goes_first() {
        let (mut dsq, mut tasks) = (Dsq::new(1), tasks());
        for (task, head) in [(1, false), (2, false), (3, true)] {
            dsq.push(&mut tasks, task, head);
        }
        assert_eq!(order(&mut dsq, &tasks), [3, 1, 2]);
        dsq.unlink(&mut tasks, 1);
        assert_eq!((order(&mut dsq, &tasks), dsq.nr), (vec![3, 2], 2));
    }

    #[test]
    fn virtual_time_orders_across_the_wrap_and_equals_keep_arrival() {
        let (mut dsq, mut tasks) = (Dsq::new(1), tasks());
        for (task, vtime) in [(1, 5), (2, u64::MAX - 1), (3, 5), (4, 2)] {
            dsq.push_vtime(&mut tasks, task, vtime);
        }
        assert_eq!(order(&mut dsq, &tasks), [2, 4, 1, 3]);
        assert_eq!(dsq.nr_priq, 4);
    }

    #[test]
    fn an_iterator_skips_later_arrivals_and_survives_removal() {
        let (mut dsq, mut tasks) = (Dsq::new(1), tasks());
        (1..=3).for_each(|task| dsq.push(&mut tasks, task, false));
        let until = dsq.seq;
        dsq.iterate(7, false);
        assert_eq!(dsq.advance(&tasks, 7, until, false), Some(1));
        dsq.unlink(&mut tasks, 2);
        dsq.push(&mut tasks, 4, false);
        assert_eq!(dsq.advance(&tasks, 7, until, false), Some(3));
        assert_eq!(dsq.advance(&tasks, 7, until, false), None);
    }

    #[test]
    fn user_queues_are_found_by_small_and_large_ids() {
        let mut dsqs = Dsqs::new([SCX_DSQ_FLAG_BUILTIN | 2].into_iter());
        let (small, large) = (dsqs.create(0).unwrap(), dsqs.create(1 << 40).unwrap());
        assert_eq!((dsqs.find_user(0), dsqs.find_user(1 << 40)), (Some(small), Some(large)));
        assert_eq!(dsqs.create(0), None);
        dsqs.destroy(large);
        assert_eq!(dsqs.find_user(1 << 40), None);
    }
}
