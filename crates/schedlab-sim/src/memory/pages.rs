//! Pages of processes: which are in memory, and in what order they are looked at to leave it.

use super::disk::Disk;
use schedlab_model::TaskId;
use std::collections::VecDeque;
use std::ops::Range;

/// Where a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// On the active list.
    Active,
    /// On the inactive list.
    Inactive,
    /// In no address space any more and on its way to the disk: on the inactive list still until it has been written and is
    /// looked at once more.
    Leaving,
    /// On the disk alone.
    Out,
    /// Its process has ended.
    Gone,
}

/// A page of a process.
#[derive(Clone, Copy, Debug)]
struct Page {
    owner: TaskId,
    /// Used only when the process begins.
    is_idle: bool,
    place: Place,
    /// Counts its moves: entries of lists with another number are stale.
    moves: u32,
    /// The look that marked it as not used; 0 before the first.
    cleared: u64,
}

/// The pages of one process.
#[derive(Clone, Copy, Debug, Default)]
struct Owned {
    first: u32,
    count: u32,
    is_alive: bool,
    /// Of these so many are leaving or out, without those that it does not use again.
    away: u32,
    /// How many looks there had been when it last used its pages.
    ran: u64,
}

impl Owned {
    fn pages(&self) -> Range<u32> {
        self.first..self.first + self.count
    }
}

/// Entries of the active list that may be stale, besides as many as are not.
const STALE_MAX: u64 = 1_024;

/// An entry of a list.
type Entry = (u32, u32);

/// All pages, and the two lists, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Pages {
    pages: Vec<Page>,
    tasks: Vec<Owned>,
    active: VecDeque<Entry>,
    inactive: VecDeque<Entry>,
    /// Being written, with the time when that is done.
    leaving: VecDeque<(u64, Entry)>,
    nr_active: u64,
    /// Without those that are leaving.
    nr_inactive: u64,
    nr_leaving: u64,
    /// Looks at pages whether they were used, so far: time would not tell who ran before and who after.
    looks: u64,
    /// First pages of processes that have ended; all have as many.
    spare: Vec<u32>,
}

/// What a look at pages came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Looked {
    /// Pages that were looked for in address spaces, once each time.
    pub(super) searches: u64,
    /// Pages that were passed.
    pub(super) passed: u64,
    /// Pages that were given to the disk.
    pub(super) written: u64,
    /// Pages that are free now.
    pub(super) freed: u64,
}

impl Pages {
    pub(super) fn nr_active(&self) -> u64 {
        self.nr_active
    }

    /// On the list: what is being written is until it is free.
    pub(super) fn nr_inactive(&self) -> u64 {
        self.nr_inactive + self.nr_leaving
    }

    /// In an address space.
    pub(super) fn nr_mapped(&self) -> u64 {
        self.nr_active + self.nr_inactive
    }

    /// A process begins and writes to all of its pages.
    pub(super) fn begin(&mut self, task: TaskId, (used, idle): (u32, u32)) {
        let count = used + idle;
        let first = self.spare.pop().unwrap_or_else(|| {
            let none = Page { owner: task, is_idle: false, place: Place::Gone, moves: 0, cleared: 0 };
            let first = self.pages.len() as u32;
            self.pages.extend(std::iter::repeat_n(none, count as usize));
            first
        });
        if self.tasks.len() <= task.index() {
            self.tasks.resize(task.index() + 1, Owned::default());
        }
        self.tasks[task.index()] = Owned { first, count, is_alive: true, away: 0, ran: self.looks };
        for i in 0..count {
            let page = &mut self.pages[(first + i) as usize];
            *page = Page { owner: task, is_idle: i >= used, cleared: 0, ..*page };
            self.activate(first + i);
        }
    }

    /// A task ends; how many of its pages were in memory, if it was a process that began here.
    pub(super) fn end(&mut self, task: TaskId) -> Option<u64> {
        let owned = self.tasks.get_mut(task.index()).map(std::mem::take).filter(|owned| owned.is_alive)?;
        let here = |page: &u32| self.pages[*page as usize].place != Place::Out;
        let freed = owned.pages().filter(here).count() as u64;
        owned.pages().for_each(|page| self.take_out(page, Place::Gone));
        self.spare.push(owned.first);
        Some(freed)
    }

    /// The task runs code of its own: it uses its pages (the processor sets the accessed bit of their entries).
    pub(super) fn touch(&mut self, task: TaskId) {
        if let Some(owned) = self.tasks.get_mut(task.index()) {
            owned.ran = self.looks;
        }
    }

    /// Whether pages that it uses are in no address space.
    pub(super) fn lacks(&self, task: TaskId) -> bool {
        self.tasks.get(task.index()).is_some_and(|owned| owned.away > 0)
    }

    /// Looks at pages whether they were used, so far.
    pub(super) fn looks(&self) -> u64 {
        self.looks
    }

    /// Maps those of its pages again that are still leaving (`do_swap_page` finds them in the swap cache, where they are on
    /// the inactive list until they are looked at); how many that it uses are on the disk alone.
    pub(super) fn take_back(&mut self, task: TaskId) -> u64 {
        let Some(owned) = self.tasks.get(task.index()).filter(|owned| owned.away > 0) else { return 0 };
        let mut missing = 0;
        for page in owned.pages() {
            match self.pages[page as usize] {
                Page { is_idle: false, place: Place::Leaving, .. } => self.come_back(page),
                Page { is_idle: false, place: Place::Out, .. } => missing += 1,
                _ => {}
            }
        }
        missing
    }

    /// They have been read.
    pub(super) fn bring_in(&mut self, task: TaskId) {
        let owned = self.tasks[task.index()];
        for page in owned.pages() {
            if matches!(self.pages[page as usize], Page { is_idle: false, place: Place::Out, .. }) {
                self.come_back(page);
            }
        }
    }

    /// Looks at the oldest `count` of the active list (`refill_inactive_zone`). Where mapped pages may go, those that were
    /// not used since the last look become inactive.
    pub(super) fn refill(&mut self, count: u64, may_take: bool) -> Looked {
        let mut looked = Looked::default();
        for _ in 0..count.min(self.nr_active) {
            let Some(page) = Pages::pop(&mut self.active, &self.pages, |place| place == Place::Active) else {
                break;
            };
            if !may_take {
                looked.passed += 1;
                self.active.push_back((page, self.pages[page as usize].moves));
                continue;
            }
            looked.searches += 1;
            if self.was_used(page) {
                self.active.push_back((page, self.pages[page as usize].moves));
            } else {
                self.take_out(page, Place::Inactive);
                self.nr_inactive += 1;
                self.inactive.push_back((page, self.pages[page as usize].moves));
            }
        }
        looked
    }

    /// Frees what has been written, and gives the oldest of the inactive list to the disk, `count` pages in all
    /// (`shrink_inactive_list`); those that were used become active again, and those that are being written are passed.
    pub(super) fn shrink(&mut self, count: u64, disk: &mut Disk, now: u64) -> Looked {
        let mut looked = Looked::default();
        let mut written: Vec<Entry> = Vec::new();
        let mut kept: Vec<Entry> = Vec::new();
        for _ in 0..count {
            if let Some(page) = self.pop_written(now) {
                looked.passed += 1;
                looked.freed += 1;
                self.take_out(page, Place::Out);
                continue;
            }
            let is_listed = |place| matches!(place, Place::Inactive | Place::Leaving);
            let Some(page) = Pages::pop(&mut self.inactive, &self.pages, is_listed) else { break };
            if self.pages[page as usize].place == Place::Leaving {
                looked.passed += 1;
                kept.push((page, self.pages[page as usize].moves));
                continue;
            }
            looked.searches += 1;
            if self.was_used(page) {
                self.activate(page);
                continue;
            }
            looked.searches += 1;
            looked.written += 1;
            self.take_out(page, Place::Leaving);
            self.nr_leaving += 1;
            let Page { owner, is_idle, moves, .. } = self.pages[page as usize];
            self.tasks[owner.index()].away += u32::from(!is_idle);
            written.push((page, moves));
            kept.push((page, moves));
        }
        // What was looked at is put back when all of it was.
        self.inactive.extend(kept);
        if !written.is_empty() {
            // They lie together: one request of the disk.
            let at = disk.write(now, written.len() as u64);
            self.leaving.extend(written.into_iter().map(|page| (at, page)));
        }
        looked
    }

    /// When the next page that is being written is.
    pub(super) fn next_written(&self) -> Option<u64> {
        self.leaving.front().map(|(at, _)| *at)
    }

    /// The oldest that the disk is done with.
    fn pop_written(&mut self, now: u64) -> Option<u32> {
        while let Some(&(at, (page, moves))) = self.leaving.front() {
            let is_stale = !matches!(self.pages[page as usize], Page { place: Place::Leaving, moves: now, .. } if now == moves);
            if !is_stale && at > now {
                return None;
            }
            self.leaving.pop_front();
            if !is_stale {
                return Some(page);
            }
        }
        None
    }

    fn pop(list: &mut VecDeque<Entry>, pages: &[Page], is_listed: impl Fn(Place) -> bool) -> Option<u32> {
        std::iter::from_fn(|| list.pop_front())
            .find(|(page, moves)| {
                let at = pages[*page as usize];
                at.moves == *moves && is_listed(at.place)
            })
            .map(|(page, _)| page)
    }

    /// Whether it was used since it was last asked (`page_referenced`).
    fn was_used(&mut self, page: u32) -> bool {
        let Page { owner, is_idle, cleared, .. } = self.pages[page as usize];
        let used = if is_idle { cleared == 0 } else { self.tasks[owner.index()].ran >= cleared };
        self.looks += 1;
        self.pages[page as usize].cleared = self.looks;
        used
    }

    /// Back into the address space of its process: from the disk as an active page (`read_swap_cache_async`), else where it
    /// is on the inactive list.
    fn come_back(&mut self, page: u32) {
        let at = &mut self.pages[page as usize];
        self.tasks[at.owner.index()].away -= 1;
        if at.place == Place::Leaving {
            at.place = Place::Inactive;
            self.nr_leaving -= 1;
            self.nr_inactive += 1;
        } else {
            self.activate(page);
        }
    }

    fn activate(&mut self, page: u32) {
        if self.active.len() as u64 > 2 * self.nr_active + STALE_MAX {
            let pages = &self.pages;
            self.active.retain(|(page, moves)| pages[*page as usize].moves == *moves);
        }
        self.take_out(page, Place::Active);
        self.nr_active += 1;
        self.active.push_back((page, self.pages[page as usize].moves));
    }

    /// Out of the list it is in; entries of lists are left to be found stale.
    fn take_out(&mut self, page: u32, to: Place) {
        let at = &mut self.pages[page as usize];
        match at.place {
            Place::Active => self.nr_active -= 1,
            Place::Inactive => self.nr_inactive -= 1,
            Place::Leaving => self.nr_leaving -= 1,
            Place::Out | Place::Gone => {}
        }
        at.moves = at.moves.wrapping_add(1);
        at.place = to;
    }
}
