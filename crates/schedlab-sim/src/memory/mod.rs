//! Memory that runs short: what processes and messages in sockets take, and the pages of processes that go to the disk to
//! make room.
//!
//! Whoever needs memory that is not there makes room itself, as in Linux 2.6.17 (direct reclaim, mm/vmscan.c and
//! mm/page_alloc.c): it looks at more and more of the pages of all processes, from a 4096th to all, until it has freed 32.
//! Pages that programs have mapped may go only when that is pressing, and each is looked for in all address spaces of its
//! family, which is what takes the time. [`pages`] are the lists, [`disk`] is where pages go.
//!
//! Not modelled: kswapd, which does a thirtieth of it where it competes with a thousand tasks; the page cache; several zones;
//! bytes that are in a socket without having been sent; that the kernel frees what nobody will read. A task that is woken
//! within a call and waits on at once is taken to need its pages all the same. Nobody is killed: where Linux would kill, the
//! task tries again after a nap, and if that comes to nothing a hundred times in a row, the run ends with an error.

mod disk;
mod pages;
mod slab;

use disk::Disk;
use pages::{Looked, Pages};
use schedlab_model::machine::MachineDescription;
use schedlab_model::memory::{MachineMemory, MemoryNeeds, PAGE_BYTES, Swapped};
use schedlab_model::workload::Workload;
use schedlab_model::{ChannelId, TaskId};
use slab::Cache;
use std::collections::{BTreeMap, VecDeque};

/// Pages that are looked at together, and that must be free before who made room goes on (`SWAP_CLUSTER_MAX`).
const CLUSTER: u64 = 32;
/// Where a look at the pages begins: at a 4096th of each list (`DEF_PRIORITY`).
const PRIORITY: u32 = 12;
/// How much mapped pages are to be spared; at 100 they are taken (`vm_swappiness`).
const SWAPPINESS: u64 = 60;
/// How long who found too little waits for the disk at most, and who found enough for others (`blk_congestion_wait`).
const NAP: u64 = 100_000_000;
const SHORT_NAP: u64 = 20_000_000;
/// How often in a row a task may look at all pages in vain.
const FAILURES_MAX: u32 = 100;
/// How often one request may find that others took what it freed.
const ROUNDS_MAX: u32 = 10_000;

/// What comes of asking for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grant {
    /// It is there.
    Given,
    /// The task has to work so long (ns) and then to ask again.
    Work(u64),
    /// It has to wait until then and to ask again.
    Wait(u64),
    /// There is none, and none to be made: the kernel would kill somebody.
    Never,
}

/// What a task makes room for. It is in the kernel until it has it and uses no page of its own before; so it never makes room
/// for two things at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    /// A message of so many bytes.
    Message(u64),
    /// A process.
    Process,
    /// Pages of its own that are on the disk.
    Pages,
}

/// How far a task is that makes room.
#[derive(Clone, Copy, Debug)]
struct Reclaim {
    need: Need,
    priority: u32,
    freed: u64,
    /// Pages left to look at, of each list; `None` before a priority has begun.
    left: Option<(u64, u64)>,
    /// Whether inactive pages were looked at at this priority.
    scanned: bool,
    /// It was over and not enough: the task looks for free memory before it begins anew.
    asks_again: bool,
    /// How often in a row it came to nothing.
    failures: u32,
    /// How often it was over and not enough.
    rounds: u32,
}

impl Reclaim {
    fn new(need: Need, failures: u32, rounds: u32) -> Reclaim {
        Reclaim {
            need,
            priority: PRIORITY,
            freed: 0,
            left: None,
            scanned: false,
            asks_again: false,
            failures,
            rounds,
        }
    }
}

/// A message in a socket.
#[derive(Debug)]
struct Message {
    /// Not yet read.
    bytes: u64,
    /// The pages that hold it, by cache.
    pieces: Box<[u32]>,
}

/// Memory of the machine in a run.
#[derive(Debug)]
pub(crate) struct Memory {
    needs: MemoryNeeds,
    find_page: u64,
    total_pages: u64,
    /// Bytes that nobody has.
    free: i64,
    /// Of which so many are kept for the kernel itself, and so many make it at ease (`pages_min`, `pages_high`).
    min: i64,
    high: i64,
    pages: Pages,
    disk: Disk,
    caches: Vec<Cache>,
    /// What is in each channel, the oldest first.
    messages: Vec<VecDeque<Message>>,
    /// Processes that share their pages' family.
    processes: u64,
    /// How pressing it was to make room last time (`prev_priority`).
    pressing: u32,
    /// Looks that are owed to each list.
    owed: (u64, u64),
    reclaims: BTreeMap<TaskId, Reclaim>,
    /// Messages whose senders wait for the pages to copy them from.
    copying: BTreeMap<TaskId, Message>,
    /// Work (ns) that tasks had begun when they had to look for their pages first.
    begun: BTreeMap<TaskId, u64>,
    swapped: Swapped,
}

impl Memory {
    /// Where it can run short and the workload says what it takes.
    pub(crate) fn of(machine: &MachineDescription, workload: &Workload) -> Option<Memory> {
        let memory = machine.memory.as_ref().filter(|_| workload.memory != MemoryNeeds::default())?;
        Some(Memory::new(memory, &workload.memory))
    }

    /// Of the machine, for such needs.
    fn new(machine: &MachineMemory, needs: &MemoryNeeds) -> Memory {
        let bytes = i64::try_from(machine.kib.saturating_mul(1_024)).unwrap_or(i64::MAX);
        // `min_free_kbytes`: four times the root of the KiB.
        let min = ((machine.kib * 16).isqrt() * 1_024) as i64;
        Memory {
            needs: *needs,
            find_page: machine.find_page.0,
            total_pages: (machine.kib * 1_024 / PAGE_BYTES).max(1),
            free: bytes,
            min,
            high: min + min / 2,
            pages: Pages::default(),
            disk: Disk::new(machine),
            caches: needs.message.into_iter().filter(|bytes| *bytes > 0).map(Cache::new).collect(),
            messages: Vec::new(),
            processes: 0,
            pressing: PRIORITY,
            owed: (0, 0),
            reclaims: BTreeMap::new(),
            copying: BTreeMap::new(),
            begun: BTreeMap::new(),
            swapped: Swapped::default(),
        }
    }

    /// What came and went.
    pub(crate) fn swapped(&self) -> Swapped {
        self.swapped
    }

    /// A task asks for the memory of a message of so many bytes, and then copies it, for which it needs its own pages; others see
    /// the message after that (`unix_stream_sendmsg`).
    pub(crate) fn send(&mut self, task: TaskId, channel: ChannelId, bytes: u64, now: u64) -> Grant {
        if self.caches.is_empty() {
            return Grant::Given;
        }
        let message = match self.copying.remove(&task) {
            Some(message) => message,
            None => {
                let pages = self.caches.iter_mut().map(|cache| u64::from(cache.needs_page())).sum::<u64>();
                let grant = self.allocate(task, Need::Message(bytes), pages * PAGE_BYTES, now);
                if grant != Grant::Given {
                    return grant;
                }
                Message { bytes, pieces: self.caches.iter_mut().map(Cache::take).collect() }
            }
        };
        let grant = self.fault(task, now);
        if grant != Grant::Given {
            self.copying.insert(task, message);
            return grant;
        }
        if self.messages.len() <= channel.index() {
            self.messages.resize_with(channel.index() + 1, VecDeque::new);
        }
        self.messages[channel.index()].push_back(message);
        Grant::Given
    }

    /// Whether the task makes room for something.
    pub(crate) fn makes_room(&self, task: TaskId) -> bool {
        self.reclaims.contains_key(&task)
    }

    /// The bytes of the message that the task makes room for or copies. There was room for it in its socket, which nobody looks at again
    /// (`sock_alloc_send_pskb` does before it asks for memory).
    pub(crate) fn message_to_come(&self, task: TaskId) -> Option<u64> {
        if let Some(message) = self.copying.get(&task) {
            return Some(message.bytes);
        }
        match self.reclaims.get(&task)?.need {
            Need::Message(bytes) => Some(bytes),
            Need::Process | Need::Pages => None,
        }
    }

    /// So many bytes were read, of the oldest messages first; the memory of a message is free when all of it was.
    pub(crate) fn receive(&mut self, channel: ChannelId, bytes: u64) {
        let mut left = bytes;
        let Some(messages) = self.messages.get_mut(channel.index()) else { return };
        while let Some(message) = messages.front_mut() {
            if message.bytes > left {
                message.bytes -= left;
                break;
            }
            left -= message.bytes;
            for (cache, page) in self.caches.iter_mut().zip(&message.pieces) {
                if cache.free(*page) {
                    self.free += PAGE_BYTES as i64;
                }
            }
            messages.pop_front();
        }
    }

    /// What a process takes when it begins.
    fn of_process(&self) -> u64 {
        let pages = u64::from(self.needs.pages) + u64::from(self.needs.idle_pages);
        u64::from(self.needs.kept_kib) * 1_024 + pages * PAGE_BYTES
    }

    /// A task asks for the memory of a process.
    pub(crate) fn fork(&mut self, task: TaskId, now: u64) -> Grant {
        self.allocate(task, Need::Process, self.of_process(), now)
    }

    /// The process was refused after all.
    pub(crate) fn unfork(&mut self) {
        self.free += self.of_process() as i64;
    }

    /// It made the process.
    pub(crate) fn begin(&mut self, child: TaskId) {
        self.processes += 1;
        self.pages.begin(child, (self.needs.pages, self.needs.idle_pages));
    }

    /// A process ends.
    pub(crate) fn end(&mut self, task: TaskId) {
        self.reclaims.remove(&task);
        self.begun.remove(&task);
        let Some(pages) = self.pages.end(task) else { return };
        self.processes -= 1;
        self.free += (u64::from(self.needs.kept_kib) * 1_024 + pages * PAGE_BYTES) as i64;
    }

    /// A task runs code of its own, unless it makes room, in the kernel.
    pub(crate) fn touch(&mut self, task: TaskId) {
        if !self.makes_room(task) {
            self.pages.touch(task);
        }
    }

    /// How often a page was looked at whether it was used.
    pub(crate) fn looks(&self) -> u64 {
        self.pages.looks()
    }

    /// A task that is in its program goes on: what it needs of its pages is read first. Who makes room for something else is in
    /// the kernel, and needs none before it has that.
    pub(crate) fn fault(&mut self, task: TaskId, now: u64) -> Grant {
        if self.reclaims.get(&task).is_some_and(|at| at.need != Need::Pages) {
            return Grant::Given;
        }
        let missing = self.pages.take_back(task);
        if missing == 0 {
            self.pages.touch(task);
            return Grant::Given;
        }
        match self.allocate(task, Need::Pages, missing * PAGE_BYTES, now) {
            Grant::Given => {
                self.pages.bring_in(task);
                self.swapped.pages_in += missing;
                Grant::Wait(self.disk.read(now, missing))
            }
            other => other,
        }
    }

    /// A task that has so much work left (ns) is given a CPU: what of it it goes on with at once; nothing where it is in the
    /// kernel to make room, or has to look for its pages first.
    pub(crate) fn resume(&mut self, task: TaskId, work: u64) -> Option<u64> {
        if self.makes_room(task) {
            return (work > 0).then_some(work);
        }
        if self.pages.lacks(task) {
            if work > 0 {
                *self.begun.entry(task).or_default() += work;
            }
            return None;
        }
        self.pages.touch(task);
        Some(work + self.take_begun(task))
    }

    /// The work that a task had begun before it had to look for its pages, which are there now.
    pub(crate) fn take_begun(&mut self, task: TaskId) -> u64 {
        self.begun.remove(&task).unwrap_or(0)
    }

    fn allocate(&mut self, task: TaskId, need: Need, bytes: u64, now: u64) -> Grant {
        let after = self.free - bytes as i64;
        let mut at = match self.reclaims.get(&task) {
            Some(at) if !at.asks_again => *at,
            _ if after >= self.min => return self.give(task, after),
            Some(at) => Reclaim { asks_again: false, ..*at },
            None => {
                self.swapped.stalls += 1;
                Reclaim::new(need, 0, 0)
            }
        };
        if let Some(grant) = self.reclaim(&mut at, now) {
            self.reclaims.insert(task, at);
            return grant;
        }
        self.pressing = at.priority;
        let has_freed = at.freed >= CLUSTER;
        let after = self.free - bytes as i64;
        if after >= if has_freed { self.min } else { self.high } {
            return self.give(task, after);
        }
        let failures = if has_freed { 0 } else { at.failures + 1 };
        self.reclaims
            .insert(task, Reclaim { asks_again: true, ..Reclaim::new(need, failures, at.rounds + 1) });
        if failures == FAILURES_MAX || at.rounds == ROUNDS_MAX {
            return Grant::Never;
        }
        Grant::Wait(self.nap(now, if has_freed { SHORT_NAP } else { NAP }))
    }

    fn give(&mut self, task: TaskId, left: i64) -> Grant {
        self.free = left;
        self.reclaims.remove(&task);
        Grant::Given
    }

    /// Goes on with making room; nothing once it is over.
    fn reclaim(&mut self, at: &mut Reclaim, now: u64) -> Option<Grant> {
        loop {
            let (active, inactive) = *at.left.get_or_insert_with(|| self.begin_priority(at.priority));
            if active + inactive > 0 {
                let (of_active, of_inactive) = (active.min(CLUSTER), inactive.min(CLUSTER));
                at.left = Some((active - of_active, inactive - of_inactive));
                let [refilled, shrunk] = self.look(of_active, of_inactive, now);
                at.scanned |= shrunk.passed + shrunk.searches > 0;
                at.freed += shrunk.freed;
                match self.cost(&[refilled, shrunk]) {
                    0 => continue,
                    cost => return Some(Grant::Work(cost)),
                }
            }
            if at.freed >= CLUSTER || at.priority == 0 {
                return None;
            }
            let naps = at.scanned && at.priority < PRIORITY - 2;
            *at = Reclaim { priority: at.priority - 1, left: None, scanned: false, ..*at };
            if naps {
                return Some(Grant::Wait(self.nap(now, NAP)));
            }
        }
    }

    /// How much of each list is to be looked at: what is owed, once it is a cluster.
    fn begin_priority(&mut self, priority: u32) -> (u64, u64) {
        self.pressing = self.pressing.min(priority);
        let take = |owed: &mut u64, listed: u64| {
            *owed += (listed >> priority) + 1;
            if *owed >= CLUSTER { std::mem::take(owed) } else { 0 }
        };
        let active = take(&mut self.owed.0, self.pages.nr_active());
        (active, take(&mut self.owed.1, self.pages.nr_inactive()))
    }

    /// Looks at so many of each list; what came of each.
    fn look(&mut self, active: u64, inactive: u64, now: u64) -> [Looked; 2] {
        let mapped = self.pages.nr_mapped() * 100 / self.total_pages;
        let may_take = mapped / 2 + (100 >> self.pressing) + SWAPPINESS >= 100;
        let refilled = self.pages.refill(active, may_take);
        let shrunk = self.pages.shrink(inactive, &mut self.disk, now);
        self.free += (shrunk.freed * PAGE_BYTES) as i64;
        self.swapped.pages_out += shrunk.written;
        self.swapped.searches += refilled.searches + shrunk.searches;
        [refilled, shrunk]
    }

    /// A page is found in half of the address spaces in the mean; to pass one is taken to be as dear as to look into one.
    fn cost(&self, looked: &[Looked]) -> u64 {
        let spaces = (self.processes / 2).max(1);
        looked.iter().map(|looked| (looked.searches * spaces + looked.passed) * self.find_page).sum()
    }

    /// Until the disk has written something, or so long.
    fn nap(&self, now: u64, time: u64) -> u64 {
        let written = self.pages.next_written().filter(|at| *at > now);
        written.unwrap_or(u64::MAX).min(now + time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::Nanos;

    const MS: u64 = 1_000_000;

    /// 16 MiB, of which 512 KiB are kept, and so many processes of ten pages, of which four are used all the time.
    fn memory(processes: u32) -> Memory {
        let machine = MachineMemory {
            kib: 16_384,
            find_page: Nanos(1_000),
            disk_seek: Nanos(8 * MS),
            disk_page: Nanos(MS / 8),
        };
        let needs = MemoryNeeds { kept_kib: 8, pages: 4, idle_pages: 6, message: [512, 192] };
        let mut memory = Memory::new(&machine, &needs);
        for task in 1..=processes {
            assert_eq!(memory.fork(TaskId(0), 0), Grant::Given);
            memory.begin(TaskId(task));
        }
        memory
    }

    /// Asks until it is given; the time that was worked, and when it was.
    fn get(memory: &mut Memory, mut ask: impl FnMut(&mut Memory, u64) -> Grant, mut now: u64) -> (u64, u64) {
        let mut worked = 0;
        loop {
            match ask(memory, now) {
                Grant::Given => return (worked, now),
                Grant::Work(time) => {
                    worked += time;
                    now += time;
                }
                Grant::Wait(until) => {
                    assert!(until > now, "a wait ends later");
                    now = until;
                }
                Grant::Never => panic!("there is memory to be had"),
            }
        }
    }

    #[test]
    fn what_is_taken_comes_back() {
        let mut memory = memory(0);
        let all = memory.free;
        assert_eq!(all, 16 << 20);
        assert_eq!(memory.fork(TaskId(0), 0), Grant::Given);
        memory.begin(TaskId(1));
        assert_eq!(memory.send(TaskId(1), ChannelId(3), 100, 0), Grant::Given);
        assert_eq!(all - memory.free, 8 * 1_024 + 10 * 4_096 + 2 * 4_096);
        memory.receive(ChannelId(3), 60);
        assert!(memory.free < all - 8 * 1_024 - 10 * 4_096, "a part of it is not yet read");
        memory.receive(ChannelId(3), 40);
        memory.end(TaskId(1));
        memory.end(TaskId(2));
        assert_eq!((memory.free, memory.swapped()), (all, Swapped::default()), "task 2 was no process");
    }

    /// Nobody has used a page since: those that are never used again go first, and come from who ran longest ago.
    #[test]
    fn room_is_made_by_looking_for_pages_of_all_processes() {
        let mut memory = memory(320);
        let (before, now) = (memory.free, 1_000 * MS);
        assert!(before < memory.min + 700_000, "{before}");
        let worked =
            (0..1_000).map(|_| get(&mut memory, |m, now| m.send(TaskId(1), ChannelId(0), 100, now), now).0);
        let worked: u64 = worked.sum();
        let swapped = memory.swapped();
        assert!(swapped.stalls > 0 && swapped.pages_out >= CLUSTER, "{swapped:?}");
        // Each search takes half of the 320 address spaces.
        assert!(worked >= swapped.searches * 160 * 1_000, "{worked} {swapped:?}");
        assert!(
            swapped.searches >= 3 * swapped.pages_out,
            "seen used, seen unused, looked for to unmap: {swapped:?}"
        );
        assert!(memory.free >= memory.min);
    }

    #[test]
    fn a_process_waits_for_the_pages_that_it_uses() {
        let mut memory = memory(320);
        let now = 1_000 * MS;
        // Everybody but the first goes on using its pages, of which most come to be on the disk.
        for round in 0..2_000 {
            get(&mut memory, |m, now| m.send(TaskId(1), ChannelId(0), 100, now), now + round * 10 * MS);
        }
        let later = now + 100_000 * MS;
        let missing: Vec<u64> = (1..=320).map(|task| memory.pages.take_back(TaskId(task))).collect();
        let (task, pages) = missing.iter().enumerate().max_by_key(|(_, pages)| **pages).expect("some");
        assert!(*pages > 0, "{:?}", memory.swapped());
        let task = TaskId(task as u32 + 1);
        let in_before = memory.swapped().pages_in;
        let (_, back) = get(&mut memory, |m, now| m.fault(task, now), later);
        assert!(back >= later + 8 * MS, "a seek");
        assert_eq!(memory.swapped().pages_in - in_before, *pages);
        assert_eq!(memory.pages.take_back(task), 0);
    }

    /// `shrink_page_list` keeps a page under writeback on the inactive list, whose length says how much of it is looked at.
    #[test]
    fn pages_that_are_being_written_are_on_the_inactive_list() {
        let mut memory = memory(20);
        let pages = &mut memory.pages;
        assert_eq!((pages.nr_active(), pages.nr_mapped()), (200, 200));
        for _ in 0..2 {
            // Seen used at first, then not.
            pages.refill(200, true);
        }
        assert_eq!((pages.nr_active(), pages.nr_inactive()), (0, 200));
        assert_eq!(pages.shrink(32, &mut memory.disk, 3).written, 32);
        assert_eq!((pages.nr_inactive(), pages.nr_mapped()), (200, 168));
        memory.owed = (0, 0);
        assert_eq!(memory.begin_priority(0).1, 201);
        let pages = &mut memory.pages;
        let rest = pages.shrink(200, &mut memory.disk, 3);
        assert_eq!((rest.written, rest.passed, rest.freed), (168, 56, 0), "not yet written: passed");
        let later = 1_000 * MS;
        let last = pages.shrink(96, &mut memory.disk, later);
        assert_eq!((last.freed, last.passed, last.searches, pages.nr_inactive()), (96, 96, 0, 104));
        // Who needs them has them back at once, inactive until they are looked at.
        assert_eq!(
            (1..=20).map(|task| pages.take_back(TaskId(task))).filter(|missing| *missing > 0).count(),
            9
        );
        assert_eq!((pages.nr_active(), pages.nr_inactive(), pages.nr_mapped()), (0, 104, 44));
    }

    /// Takes all pages of processes that are not used while it does.
    fn swap_out(memory: &mut Memory) {
        for _ in 0..3 {
            memory.pages.refill(1_000_000, true);
        }
        memory.pages.shrink(1_000_000, &mut memory.disk, 0);
        let freed = memory.pages.shrink(1_000_000, &mut memory.disk, u64::MAX).freed;
        memory.free += (freed * PAGE_BYTES) as i64;
    }

    /// The kernel has the memory of a message before it copies what the program wrote (`unix_stream_sendmsg`).
    #[test]
    fn who_makes_room_for_a_message_needs_no_page_of_its_own_before() {
        let mut memory = memory(320);
        let all = memory.free;
        memory.free = memory.min;
        let (task, socket) = (TaskId(7), ChannelId(0));
        assert!(matches!(memory.send(task, socket, 100, 0), Grant::Work(_)));
        memory.free = all;
        swap_out(&mut memory);
        let stalls = memory.swapped().stalls;
        assert_eq!(memory.resume(task, 0), None, "it is in the kernel");
        assert_eq!(memory.fault(task, 0), Grant::Given);
        assert_eq!((memory.message_to_come(task), memory.swapped().pages_in), (Some(100), 0));
        let mut now = 0;
        while let Grant::Work(time) = memory.send(task, socket, 100, now) {
            now += time;
        }
        assert_eq!(memory.swapped().stalls, stalls, "the same request");
        assert!(!memory.makes_room(task) && memory.swapped().pages_in > 0, "now it needs them");
        assert!(memory.messages.is_empty(), "nobody sees it before it is copied");
        assert_eq!(memory.message_to_come(task), Some(100));
        assert_eq!(memory.send(task, socket, 100, now), Grant::Given);
        assert_eq!((memory.messages[0].len(), memory.message_to_come(task)), (1, None));
    }

    #[test]
    fn who_was_preempted_goes_on_when_its_pages_are_there() {
        let mut memory = memory(20);
        let task = TaskId(7);
        assert_eq!(memory.resume(task, 5), Some(5));
        swap_out(&mut memory);
        assert_eq!(memory.resume(task, 5), None);
        let (_, back) = get(&mut memory, |m, now| m.fault(task, now), 0);
        assert!(back >= 8 * MS);
        assert_eq!((memory.resume(task, 0), memory.resume(task, 0)), (Some(5), Some(0)));
    }

    /// Looks between its uses do not take pages, whatever the time.
    #[test]
    fn a_page_that_is_used_between_two_looks_stays() {
        let mut memory = memory(20);
        for _ in 0..5 {
            memory.touch(TaskId(7));
            memory.pages.refill(200, true);
        }
        memory.pages.shrink(200, &mut memory.disk, 0);
        let here = |task| !memory.pages.lacks(TaskId(task));
        assert_eq!((1..=20).filter(|task| here(*task)).collect::<Vec<_>>(), [7]);
    }

    #[test]
    fn where_nothing_is_to_be_had_the_run_ends() {
        let mut memory = memory(0);
        let mut now = 0;
        let mut waits = 0;
        while let Grant::Given | Grant::Work(_) | Grant::Wait(_) = {
            let grant = memory.send(TaskId(1), ChannelId(0), 100, now);
            if let Grant::Wait(until) = grant {
                (now, waits) = (until, waits + 1);
            }
            grant
        } {}
        assert_eq!(waits, FAILURES_MAX - 1);
    }
}
