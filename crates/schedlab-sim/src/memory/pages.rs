//! Pages of processes: which are in memory, and in what order they are looked at to leave it.

use super::CLUSTER;
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
    /// On the inactive list and in no address space any more: it is free once it has been written and is looked at again.
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
    /// The disk is writing it: who looks passes it (`PG_writeback`).
    is_written: bool,
    /// The number of the look that last marked it as not used.
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

/// Entries of a list that may be stale, besides as many as are not.
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
    writes: VecDeque<(u64, Entry)>,
    nr_active: u64,
    /// With those that leave, as Linux counts them.
    nr_inactive: u64,
    nr_leaving: u64,
    /// Counts looks at whether a page was used: tells what came first of what happens at one time.
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

    pub(super) fn nr_inactive(&self) -> u64 {
        self.nr_inactive
    }

    /// Pages that are in an address space.
    pub(super) fn nr_mapped(&self) -> u64 {
        self.nr_active + self.nr_inactive - self.nr_leaving
    }

    /// A process begins and writes to all of its pages.
    pub(super) fn begin(&mut self, task: TaskId, (used, idle): (u32, u32)) {
        let count = used + idle;
        let first = self.spare.pop().unwrap_or_else(|| {
            let (is_idle, is_written) = (false, false);
            let none = Page { owner: task, is_idle, place: Place::Gone, moves: 0, is_written, cleared: 0 };
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

    /// The task uses its pages: the processor marks them (the accessed bit).
    pub(super) fn touch(&mut self, task: TaskId) {
        if let Some(owned) = self.tasks.get_mut(task.index()) {
            owned.ran = self.looks;
        }
    }

    /// Looks at pages whether they were used, so far.
    pub(super) fn looks(&self) -> u64 {
        self.looks
    }

    /// Whether some that it uses are not in its address space.
    pub(super) fn lacks(&self, task: TaskId) -> bool {
        self.tasks.get(task.index()).is_some_and(|owned| owned.away > 0)
    }

    /// Takes back those of its pages that are still leaving, which stay where they are in the inactive list
    /// (`lookup_swap_cache`); how many that it uses are on the disk alone.
    pub(super) fn take_back(&mut self, task: TaskId) -> u64 {
        let Some(owned) = self.tasks.get(task.index()).filter(|owned| owned.away > 0) else { return 0 };
        let mut missing = 0;
        for page in owned.pages() {
            match self.pages[page as usize] {
                Page { is_idle: false, place: Place::Leaving, .. } => {
                    self.pages[page as usize].place = Place::Inactive;
                    self.nr_leaving -= 1;
                    self.tasks[task.index()].away -= 1;
                }
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
                self.tasks[task.index()].away -= 1;
                self.activate(page);
            }
        }
    }

    /// Looks at the oldest `count` of the active list (`shrink_active_list`). Where mapped pages may go, those that were
    /// not used since the last look become inactive.
    pub(super) fn refill(&mut self, count: u64, may_take: bool) -> Looked {
        let mut looked = Looked::default();
        for _ in 0..count.min(self.nr_active) {
            let Some((page, moves)) = self.pop_active() else { break };
            if !may_take {
                looked.passed += 1;
                self.active.push_back((page, moves));
                continue;
            }
            looked.searches += 1;
            if self.was_used(page) {
                self.active.push_back((page, moves));
            } else {
                self.take_out(page, Place::Inactive);
                self.nr_inactive += 1;
                self.push_inactive(page);
            }
        }
        looked
    }

    /// Looks at the oldest of the inactive list, `count` and more, as they are taken by the cluster
    /// (`shrink_inactive_list`): what has been written is freed, what was used becomes active again, the rest is given to
    /// the disk and, like what is being written, goes to the list's young end.
    pub(super) fn shrink(&mut self, count: u64, disk: &mut Disk, now: u64) -> Looked {
        self.end_writes(now);
        let mut looked = Looked::default();
        let mut written: Vec<Entry> = Vec::new();
        let mut seen = 0;
        while seen < count {
            let batch: Vec<u32> = (0..CLUSTER).map_while(|_| self.pop_inactive()).collect();
            if batch.is_empty() {
                break;
            }
            seen += batch.len() as u64;
            for page in batch {
                if self.shrink_page(page, &mut looked) {
                    written.push((page, self.pages[page as usize].moves));
                }
            }
        }
        if !written.is_empty() {
            // They lie together: one request of the disk.
            let at = disk.write(now, written.len() as u64);
            self.writes.extend(written.into_iter().map(|page| (at, page)));
        }
        looked
    }

    /// One that was taken out of the inactive list (`shrink_page_list`); whether the disk is to write it.
    fn shrink_page(&mut self, page: u32, looked: &mut Looked) -> bool {
        let Page { owner, is_idle, place, is_written, .. } = self.pages[page as usize];
        if is_written {
            looked.passed += 1;
            self.push_inactive(page);
            return false;
        }
        if place == Place::Leaving {
            looked.passed += 1;
            looked.freed += 1;
            self.take_out(page, Place::Out);
            return false;
        }
        looked.searches += 1;
        if self.was_used(page) {
            self.activate(page);
            return false;
        }
        looked.searches += 1;
        looked.written += 1;
        let at = &mut self.pages[page as usize];
        (at.place, at.is_written) = (Place::Leaving, true);
        self.nr_leaving += 1;
        self.tasks[owner.index()].away += u32::from(!is_idle);
        self.push_inactive(page);
        true
    }

    /// When the next page that is being written is.
    pub(super) fn next_written(&self) -> Option<u64> {
        self.writes.front().map(|(at, _)| *at)
    }

    /// What the disk is done with goes to the list's old end (`rotate_reclaimable_page`), also if it was taken back.
    fn end_writes(&mut self, now: u64) {
        while let Some(&(_, (page, moves))) = self.writes.front().filter(|(at, _)| *at <= now) {
            self.writes.pop_front();
            let at = &mut self.pages[page as usize];
            if at.moves == moves {
                at.is_written = false;
                at.moves = moves.wrapping_add(1);
                self.inactive.push_front((page, at.moves));
            }
        }
    }

    fn pop_active(&mut self) -> Option<Entry> {
        let pages = &self.pages;
        std::iter::from_fn(|| self.active.pop_front())
            .find(|(page, moves)| pages[*page as usize].moves == *moves)
    }

    fn pop_inactive(&mut self) -> Option<u32> {
        let pages = &self.pages;
        let mut entries = std::iter::from_fn(|| self.inactive.pop_front());
        entries.find(|(page, moves)| pages[*page as usize].moves == *moves).map(|(page, _)| page)
    }

    fn push_inactive(&mut self, page: u32) {
        Pages::drop_stale(&mut self.inactive, &self.pages, self.nr_inactive);
        self.inactive.push_back((page, self.pages[page as usize].moves));
    }

    fn drop_stale(list: &mut VecDeque<Entry>, pages: &[Page], listed: u64) {
        if list.len() as u64 > 2 * listed + STALE_MAX {
            list.retain(|(page, moves)| pages[*page as usize].moves == *moves);
        }
    }

    /// Whether it was used since it was last asked (`page_referenced`).
    fn was_used(&mut self, page: u32) -> bool {
        self.looks += 1;
        let Page { owner, is_idle, cleared, .. } = self.pages[page as usize];
        let used = if is_idle { cleared == 0 } else { self.tasks[owner.index()].ran >= cleared };
        self.pages[page as usize].cleared = self.looks;
        used
    }

    fn activate(&mut self, page: u32) {
        Pages::drop_stale(&mut self.active, &self.pages, self.nr_active);
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
            Place::Leaving => {
                self.nr_inactive -= 1;
                self.nr_leaving -= 1;
            }
            Place::Out | Place::Gone => {}
        }
        at.moves = at.moves.wrapping_add(1);
        at.place = to;
        at.is_written = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::Nanos;
    use schedlab_model::memory::MachineMemory;

    /// One process of so many pages, all of them inactive and not used since.
    fn inactive(count: u32) -> (Pages, Disk) {
        let (find_page, disk_seek, disk_page) = (Nanos(0), Nanos(1_000), Nanos(10));
        let mut pages = Pages::default();
        pages.begin(TaskId(1), (count, 0));
        pages.refill(u64::from(count), true);
        pages.refill(u64::from(count), true);
        assert_eq!((pages.nr_active(), pages.nr_inactive()), (0, u64::from(count)));
        (pages, Disk::new(&MachineMemory { kib: 0, find_page, disk_seek, disk_page }))
    }

    /// Linux takes them out of the list by 32, however few are left to look at.
    #[test]
    fn inactive_pages_are_looked_at_by_the_cluster() {
        let (mut pages, mut disk) = inactive(40);
        assert_eq!(pages.shrink(5, &mut disk, 0).written, CLUSTER);
        assert_eq!(pages.shrink(5, &mut disk, 0), Looked { searches: 16, passed: 24, written: 8, freed: 0 });
        assert_eq!((pages.nr_inactive(), pages.nr_mapped()), (40, 0));
    }

    /// Who looks passes what is being written, also if its process has taken it back; then it is looked at first.
    #[test]
    fn a_page_that_is_taken_back_while_it_is_written_is_passed_until_it_is() {
        let (mut pages, mut disk) = inactive(4);
        assert_eq!(pages.shrink(4, &mut disk, 0).written, 4);
        assert_eq!((pages.take_back(TaskId(1)), pages.nr_mapped()), (0, 4));
        assert_eq!(pages.shrink(4, &mut disk, 1), Looked { searches: 0, passed: 4, written: 0, freed: 0 });
        pages.touch(TaskId(1));
        let at = pages.next_written().expect("the disk writes");
        assert_eq!(pages.shrink(4, &mut disk, at), Looked { searches: 4, passed: 0, written: 0, freed: 0 });
        assert_eq!((pages.nr_active(), pages.nr_inactive()), (4, 0), "it was used");
    }
}
