//! Bytes: which channel of the replay each recorded transfer uses, and what came from outside.
//!
//! Bytes are conserved for each channel: readers take exactly what they took in the recording. What they took
//! but nobody recorded gave comes from whoever woke the reader, at that point of its progress or, from an
//! interrupt, at that time; it is left out if the reader did not wait. What was given but never read in the
//! recording is left out, too, unless somebody polled for it.

use super::observe::{Observed, Transfer, Wait};
use super::room::{Levels, Room};
use schedlab_model::event::Context;
use schedlab_model::recording::{ChannelInfo, ChannelKind, Recording};
use schedlab_model::workload::{Arrival, ChannelSpec, ChannelType};
use schedlab_model::{ChannelId, CpuId, Nanos, TaskId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Where the bytes of one transfer go or come from.
pub(super) type Parts = Vec<(ChannelId, u32)>;

/// The byte channels of the replay.
#[derive(Clone, Debug, Default)]
pub(super) struct Bytes {
    /// Channels of the replay.
    pub(super) channels: Vec<ChannelSpec>,
    /// By transfer: empty for transfers that are left out.
    pub(super) parts: Vec<Parts>,
    /// What came from outside, with the CPU that took the interrupt.
    pub(super) arrivals: Vec<(CpuId, Arrival)>,
    /// By wait: bytes of unknown origin that the reader was woken for. Whoever woke it gives them there.
    pub(super) given_at_wake: BTreeMap<u32, (ChannelId, u32)>,
    /// By channel of the recording: its only reader and the channel of the replay.
    pub(super) sole_reader: BTreeMap<ChannelId, (TaskId, ChannelId)>,
    /// By channel of the recording: when the last read of bytes from it ended.
    pub(super) read_until: BTreeMap<ChannelId, Nanos>,
    /// By channel of the recording: who gave to it.
    pub(super) givers: BTreeMap<ChannelId, BTreeSet<TaskId>>,
    /// By channel of the recording that is polled and never read: the channel of the replay, where all that is given stays.
    pub(super) unread: BTreeMap<ChannelId, ChannelId>,
    /// By channel of the recording: the usual size of what is given at once.
    pub(super) message: BTreeMap<ChannelId, u32>,
    /// Channels that had several readers and were split.
    pub(super) split: usize,
}

/// What one recorded channel carried.
#[derive(Default)]
struct Traffic {
    gives: Vec<u32>,
    takes: Vec<u32>,
}

/// One match: these bytes of a give went to that take.
struct Matched {
    give: u32,
    take: u32,
    bytes: u64,
}

/// A channel's traffic followed in recorded order.
#[derive(Default)]
struct Followed {
    matched: Vec<Matched>,
    outside: Vec<(u32, u64)>,
    levels: Levels,
}

/// Assigns every transfer to channels of the replay.
pub(super) fn connect(recording: &Recording, observed: &Observed, included: &[bool], strict: bool) -> Bytes {
    let mut traffic: BTreeMap<ChannelId, Traffic> = BTreeMap::new();
    for (id, transfer) in observed.transfers.iter().enumerate() {
        if transfer.bytes > 0 && included[transfer.task.index()] {
            let entry = traffic.entry(transfer.channel).or_default();
            if transfer.give { entry.gives.push(id as u32) } else { entry.takes.push(id as u32) }
        }
    }
    let mut out = Bytes { parts: vec![Parts::new(); observed.transfers.len()], ..Bytes::default() };
    let connector = Connector { observed, groups: dependency_groups(observed, &traffic), included, strict };
    for (channel, entry) in &traffic {
        let info = &recording.channels[channel.index()];
        connector.connect_one(&mut out, *channel, info, entry);
        let ends = entry.takes.iter().map(|take| observed.transfers[*take as usize].exited);
        out.read_until.extend(ends.max().map(|last| (*channel, last)));
        let mut sizes: Vec<u64> =
            entry.gives.iter().map(|id| observed.transfers[*id as usize].bytes).collect();
        sizes.sort_unstable();
        if let Some(size) = sizes.get(sizes.len() / 2).and_then(|size| u32::try_from(*size).ok()) {
            out.message.insert(*channel, size);
        }
    }
    if !strict {
        for (channel, gives) in polled_and_unread(observed, included, &traffic) {
            keep_unread(&mut out, observed, channel, &recording.channels[channel.index()], gives);
        }
    }
    out
}

/// Channels that nobody reads though what was given to them ended polls, with their gives.
///
/// Nobody takes out what is given, so the first give ends every poll there and no later one waits. A poll that did wait
/// later was told of each give by itself (`EPOLLET`), and one that ended before has a give that was told too late: such
/// channels are not among these.
fn polled_and_unread<'a>(
    observed: &Observed,
    included: &[bool],
    traffic: &'a BTreeMap<ChannelId, Traffic>,
) -> BTreeMap<ChannelId, &'a [u32]> {
    let mut polls: BTreeMap<ChannelId, Vec<&Wait>> = BTreeMap::new();
    for wait in observed.waits.iter().filter(|wait| included[wait.task.index()]) {
        if let Some(channel) = wait.polled() {
            polls.entry(channel).or_default().push(wait);
        }
    }
    let unread = polls.into_iter().filter_map(|(channel, polls)| {
        let Traffic { gives, takes } = traffic.get(&channel)?;
        let given = || gives.iter().map(|&give| &observed.transfers[give as usize]);
        let (earliest, latest) =
            (given().map(|give| give.earliest).min()?, given().map(|give| give.exited).min()?);
        let by_first_give = |wait: &&Wait| wait.start <= latest && wait.end >= earliest;
        (takes.is_empty() && polls.iter().all(by_first_give)).then_some((channel, gives.as_slice()))
    });
    unread.collect()
}

/// A channel of the replay for one that is polled and never read. All that was given had room.
fn keep_unread(out: &mut Bytes, observed: &Observed, channel: ChannelId, info: &ChannelInfo, gives: &[u32]) {
    let to = ChannelId(out.channels.len() as u32);
    let sizes: Vec<u64> = gives.iter().map(|&give| observed.transfers[give as usize].bytes).collect();
    let usual = Room::of(info, &Levels::default(), &sizes);
    let all = sizes.iter().fold(0, |sum: u64, size| sum.saturating_add(*size));
    out.channels.push(spec_of(info, Room { capacity: usual.capacity.max(all), ..usual }));
    out.unread.insert(channel, to);
    for (&give, bytes) in gives.iter().zip(sizes) {
        add_part(&mut out.parts[give as usize], to, bytes);
    }
}

/// What stands for a channel of the recording.
fn spec_of(info: &ChannelInfo, room: Room) -> ChannelSpec {
    let kind = if info.kind == ChannelKind::Pipe { "pipe" } else { "socket" };
    ChannelSpec {
        name: format!("{kind} {}", info.identity),
        kind: ChannelType::Bytes,
        capacity: room.capacity,
        initial: 0,
        room_to_resume: room.to_resume,
        is_socket: info.kind == ChannelKind::Socket,
    }
}

struct Connector<'a> {
    observed: &'a Observed,
    /// Which group of tasks that wait for each other a task is in.
    groups: Vec<u32>,
    included: &'a [bool],
    strict: bool,
}

/// The replay's channels for one channel of the recording: one, or one for each reader.
struct Made<'a> {
    out: &'a mut Bytes,
    split: bool,
    by_reader: BTreeMap<Option<TaskId>, ChannelId>,
    spec: ChannelSpec,
}

impl Made<'_> {
    fn of(&mut self, reader: TaskId) -> ChannelId {
        let next = ChannelId(self.out.channels.len() as u32);
        let id = *self.by_reader.entry(self.split.then_some(reader)).or_insert(next);
        if id == next {
            self.out.channels.push(self.spec.clone());
        }
        id
    }
}

impl Connector<'_> {
    fn connect_one(&self, out: &mut Bytes, channel: ChannelId, info: &ChannelInfo, traffic: &Traffic) {
        let transfers = &self.observed.transfers;
        let task_of = |id: &u32| transfers[*id as usize].task;
        let readers: BTreeSet<TaskId> = traffic.takes.iter().map(task_of).collect();
        let writers: BTreeSet<TaskId> = traffic.gives.iter().map(task_of).collect();
        let Some(&reader) = readers.first() else { return };
        let group = |task: &TaskId| self.groups[task.index()];
        let entangled = readers.iter().any(|reader| writers.iter().any(|w| group(reader) == group(w)));
        let split = readers.len() > 1 && entangled;
        out.split += usize::from(split);
        let followed = follow(transfers, traffic, self.strict);
        let sizes: Vec<u64> = traffic.gives.iter().map(|&id| transfers[id as usize].bytes).collect();
        let room = Room::of(info, &followed.levels, &sizes);
        let mut made = Made { out, split, by_reader: BTreeMap::new(), spec: spec_of(info, room) };
        self.assign(&mut made, &followed);
        if readers.len() == 1 {
            let to = made.of(reader);
            out.sole_reader.insert(channel, (reader, to));
        }
        out.givers.insert(channel, writers);
    }

    fn assign(&self, made: &mut Made<'_>, followed: &Followed) {
        let transfers = &self.observed.transfers;
        for &Matched { give, take, bytes } in &followed.matched {
            let to = made.of(transfers[take as usize].task);
            add_part(&mut made.out.parts[give as usize], to, bytes);
            add_part(&mut made.out.parts[take as usize], to, bytes);
        }
        for &(take, bytes) in &followed.outside {
            let Transfer { task, wake, waited, .. } = transfers[take as usize];
            let to = made.of(task);
            add_part(&mut made.out.parts[take as usize], to, bytes);
            let (Some(wake), Some(waited)) = (wake, waited) else { continue };
            let (time, cpu, amount) = (wake.time, wake.cpu, u32::try_from(bytes).unwrap_or(u32::MAX));
            let caused = wake.context == Context::Task && !wake.waker.is_idle();
            if caused && self.included[wake.waker.index()] {
                made.out.given_at_wake.insert(waited, (to, amount));
                continue;
            }
            made.out.arrivals.push((cpu, Arrival { time, channel: to, amount }));
        }
    }
}

/// More than a task moves in one call or in the calls that one sum stands for: what a damaged recording says beyond it
/// is left out, so that it does not become millions of parts.
const BYTES_MAX: u64 = 1 << 40;

fn add_part(parts: &mut Parts, channel: ChannelId, bytes: u64) {
    let mut rest = bytes.min(BYTES_MAX);
    if let Some((last, amount)) = parts.last_mut()
        && *last == channel
    {
        let more = rest.min(u64::from(u32::MAX - *amount));
        *amount += more as u32;
        rest -= more;
    }
    while rest > 0 {
        let part = rest.min(u64::from(u32::MAX));
        parts.push((channel, part as u32));
        rest -= part;
    }
}

/// Follows a channel through the recording.
///
/// A write has its effect somewhere between its beginning and its end, a read by its end. So a read takes
/// first from writes that have ended, in their order, and only then from writes under way (if `strict`, only from that of
/// the task that woke it): what it cannot have had is never assigned to it while there is another choice.
fn follow(transfers: &[Transfer], traffic: &Traffic, strict: bool) -> Followed {
    #[derive(PartialEq, Eq, PartialOrd, Ord)]
    enum Moment {
        Resume,
        Earliest,
        Begin,
        Given,
        Take,
    }
    let mut moments: Vec<(Nanos, Moment, u32)> = Vec::new();
    for &give in &traffic.gives {
        let transfer = &transfers[give as usize];
        moments.push((transfer.earliest, Moment::Earliest, give));
        moments.push((transfer.entered, Moment::Begin, give));
        moments.push((transfer.exited, Moment::Given, give));
        moments.extend(transfer.wake.map(|wake| (wake.time, Moment::Resume, give)));
    }
    moments.extend(traffic.takes.iter().map(|&take| (transfers[take as usize].exited, Moment::Take, take)));
    moments.sort();
    let mut followed = Followed::default();
    let mut given: VecDeque<(u32, u64)> = VecDeque::new();
    let mut under_way: VecDeque<(u32, u64)> = VecDeque::new();
    let mut level = 0;
    for (_, moment, id) in moments {
        let transfer = &transfers[id as usize];
        match moment {
            Moment::Resume => followed.levels.resumed.push(level),
            Moment::Earliest => under_way.push_back((id, transfer.bytes)),
            Moment::Begin => {
                if transfer.wake.is_some() {
                    followed.levels.full.push(level);
                }
                level += transfer.bytes;
                followed.levels.max = followed.levels.max.max(level);
            }
            Moment::Given => {
                if let Some(at) = under_way.iter().position(|(give, _)| *give == id) {
                    given.extend(under_way.remove(at));
                }
            }
            Moment::Take => {
                let waker = transfer.wake.map(|wake| wake.waker);
                let may = |give: u32| !strict || Some(transfers[give as usize].task) == waker;
                let missing = take(&mut given, &mut followed.matched, id, transfer.bytes, |_| true);
                let missing = take(&mut under_way, &mut followed.matched, id, missing, may);
                level = level.saturating_sub(transfer.bytes - missing);
                if missing > 0 && transfer.wake.is_some() {
                    followed.outside.push((id, missing));
                }
            }
        }
    }
    followed
}

/// Takes bytes from gives of which `may` is true; returns what is missing.
fn take(
    queue: &mut VecDeque<(u32, u64)>,
    matched: &mut Vec<Matched>,
    take: u32,
    bytes: u64,
    may: impl Fn(u32) -> bool,
) -> u64 {
    let (mut rest, mut at) = (bytes, 0);
    while rest > 0 {
        let Some((give, left)) = queue.get_mut(at) else { break };
        if !may(*give) {
            at += 1;
            continue;
        }
        let part = rest.min(*left);
        matched.push(Matched { give: *give, take, bytes: part });
        *left -= part;
        rest -= part;
        if *left == 0 {
            queue.remove(at);
        }
    }
    rest
}

/// Groups of tasks that wait, directly or not, for each other: equal numbers are one group.
fn dependency_groups(observed: &Observed, traffic: &BTreeMap<ChannelId, Traffic>) -> Vec<u32> {
    let count = observed.tasks.len();
    let mut needs: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); count];
    for entry in traffic.values() {
        let task_of = |id: &u32| observed.transfers[*id as usize].task.index();
        let writers: BTreeSet<usize> = entry.gives.iter().map(task_of).collect();
        for reader in entry.takes.iter().map(task_of).collect::<BTreeSet<usize>>() {
            needs[reader].extend(&writers);
        }
    }
    for wait in &observed.waits {
        if wait.transfer.is_none() {
            needs[wait.task.index()].extend(wait.wake.map(|wake| wake.waker.index()));
            needs[wait.task.index()].extend(wait.child.map(TaskId::index));
        }
    }
    for (task, trace) in observed.tasks.iter().enumerate() {
        for step in &trace.steps {
            match step {
                super::observe::Step::Fork(child) => _ = needs[child.index()].insert(task),
                super::observe::Step::Child(child) => _ = needs[task].insert(child.index()),
                _ => {}
            }
        }
    }
    strongly_connected(&needs)
}

/// Tarjan's algorithm without recursion.
fn strongly_connected(edges: &[BTreeSet<usize>]) -> Vec<u32> {
    const NONE: u32 = u32::MAX;
    let count = edges.len();
    let (mut index, mut low, mut group) = (vec![NONE; count], vec![0; count], vec![NONE; count]);
    let (mut stack, mut next, mut groups) = (Vec::new(), 0, 0);
    for root in 0..count {
        if index[root] != NONE {
            continue;
        }
        let mut calls = vec![(root, edges[root].iter())];
        (index[root], low[root]) = (next, next);
        next += 1;
        stack.push(root);
        while let Some((node, successors)) = calls.last_mut() {
            let node = *node;
            if let Some(&to) = successors.next() {
                if index[to] == NONE {
                    (index[to], low[to]) = (next, next);
                    next += 1;
                    stack.push(to);
                    calls.push((to, edges[to].iter()));
                } else if group[to] == NONE {
                    low[node] = low[node].min(index[to]);
                }
                continue;
            }
            calls.pop();
            if let Some((parent, _)) = calls.last() {
                low[*parent] = low[*parent].min(low[node]);
            }
            if low[node] == index[node] {
                while let Some(member) = stack.pop() {
                    group[member] = groups;
                    if member == node {
                        break;
                    }
                }
                groups += 1;
            }
        }
    }
    group
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_are_one_group() {
        let edges = [vec![1], vec![2], vec![0, 3], vec![4], vec![], vec![4]];
        let edges: Vec<BTreeSet<usize>> = edges.into_iter().map(|e| e.into_iter().collect()).collect();
        let group = strongly_connected(&edges);
        assert!(group[0] == group[1] && group[1] == group[2]);
        let distinct: BTreeSet<u32> = group.iter().copied().collect();
        assert_eq!(distinct.len(), 4);
    }
}
