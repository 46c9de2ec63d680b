//! What a recorder that is told sends late or in sum must know of their tasks: which send is under way, where the last
//! one went, and which sends of a pattern a sum can stand for.
//!
//! Pure. Not here: how sends are told ([`super::translate`]).

use schedlab_model::ChannelId;
use schedlab_model::recording::PatternEntry;
use std::collections::BTreeMap;

/// A task that sends.
#[derive(Clone, Debug, Default)]
pub(super) struct Sender {
    /// The send that waits or wakes now: its channel, the bytes asked for, and whether they count as given.
    open: Option<(ChannelId, i64, bool)>,
    /// Where it sent last, to a socket.
    pub(super) last: Option<ChannelId>,
    /// Sends in sum whose channels are not known yet.
    pub(super) unseen: Unseen,
}

/// Sends told in sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) cpu: u32,
    /// When the first may have been, and the last, on the kernel's clock.
    pub(super) since: u64,
    pub(super) until: u64,
    pub(super) sends: u32,
    pub(super) bytes: u64,
}

/// Sums of one task, as they were told, between two of its sends whose channels were seen, if they were.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Unseen {
    pub(super) sums: Vec<Sum>,
    pub(super) before: Option<ChannelId>,
    pub(super) after: Option<ChannelId>,
}

/// A task's sends, each with the one that came next; some may not be known.
pub(super) type Table = Vec<Option<PatternEntry>>;

impl Sender {
    /// It entered a send that waits or wakes.
    pub(super) fn enter(&mut self, channel: ChannelId, amount: i64) {
        self.open = Some((channel, amount, false));
    }

    /// Its send has woken somebody, so its bytes are there: channel and bytes that count as given from now on.
    pub(super) fn wakes(&mut self) -> Option<(ChannelId, i64)> {
        let (channel, amount, counted) = self.open.as_mut()?;
        if std::mem::replace(counted, true) { None } else { Some((*channel, *amount)) }
    }

    /// A send is told: the bytes that were counted as given before.
    pub(super) fn exit(&mut self, channel: ChannelId) -> i64 {
        match self.open.take() {
            Some((open, amount, true)) if open == channel => amount,
            _ => 0,
        }
    }

    /// More sends in sum. Of very many the times blur.
    pub(super) fn add(&mut self, sum: Sum) {
        const SUMS_MAX: usize = 256;
        let sums = &mut self.unseen.sums;
        let many = sums.len() == SUMS_MAX;
        if sums.is_empty() {
            self.unseen.before = self.last;
        }
        match sums.last_mut() {
            Some(last) if many => {
                (last.until, last.sends, last.bytes) =
                    (sum.until, last.sends.saturating_add(sum.sends), last.bytes + sum.bytes);
            }
            _ => sums.push(sum),
        }
    }
}

impl Unseen {
    /// How many sends.
    pub(super) fn sends(&self) -> u64 {
        self.sums.iter().map(|sum| u64::from(sum.sends)).sum()
    }

    /// With which entry of the table the sends began, if they can have followed it: after one to `before` and before
    /// one to `after`, where those are known. If they fit only one of the two, as that has it: one send that nobody saw
    /// would else cost all of them.
    pub(super) fn first_in(&self, table: &Table) -> Option<u8> {
        let first = |before, after| self.between(table, before, after);
        let one_end = || first(self.before, None).or_else(|| first(None, self.after));
        first(self.before, self.after).or_else(one_end)
    }

    /// The same for a task that was seen at no entry of the table before: it began where the table begins.
    pub(super) fn begun_as(&self, table: &Table) -> Option<u8> {
        let seen = |entry: &PatternEntry| self.before == Some(entry.channel);
        (!table.iter().flatten().any(seen) && self.walk(table, 0).is_some()).then_some(0)
    }

    /// Bytes for each channel if they are sent from that entry on.
    pub(super) fn by_channel(&self, table: &Table, first: u8) -> BTreeMap<ChannelId, u64> {
        let mut given = BTreeMap::new();
        self.follow(table, first, |entry, times| {
            *given.entry(entry.channel).or_default() += u64::from(entry.bytes) * times;
        });
        given
    }

    fn between(&self, table: &Table, before: Option<ChannelId>, after: Option<ChannelId>) -> Option<u8> {
        if before.is_none() && after.is_none() {
            return None;
        }
        let goes_to = |at: u8, channel| entry(table, at).is_some_and(|entry| entry.channel == channel);
        let follows = |at: u8, before: ChannelId| {
            table.iter().flatten().any(|entry| entry.channel == before && entry.next == at)
        };
        let fits = |&at: &u8| {
            before.is_none_or(|before| follows(at, before))
                && self.walk(table, at).is_some_and(|end| after.is_none_or(|to| goes_to(end, to)))
        };
        positions(table).find(fits)
    }

    /// Which entry would be next after all of them from there on, if their bytes are right. In all, because the kernel may
    /// be looked at when it has counted a send's bytes and not yet the send.
    fn walk(&self, table: &Table, first: u8) -> Option<u8> {
        let mut bytes = 0;
        let end = self.follow(table, first, |entry, times| bytes += u64::from(entry.bytes) * times)?;
        (bytes == self.bytes()).then_some(end)
    }

    /// Goes through the table from an entry on, as often as there are sends, and tells each entry and how often; which
    /// would be next. Whole rounds are told at once.
    fn follow(&self, table: &Table, first: u8, mut tell: impl FnMut(&PatternEntry, u64)) -> Option<u8> {
        let (mut at, mut left) = (first, self.sends());
        let mut path: Vec<u8> = Vec::new();
        while left > 0 {
            if let Some(begin) = path.iter().position(|&known| known == at) {
                let rounds = left / (path.len() - begin) as u64;
                for &known in &path[begin..] {
                    tell(&entry(table, known)?, rounds);
                }
                left -= rounds * (path.len() - begin) as u64;
                path.clear();
                continue;
            }
            let entry = entry(table, at)?;
            tell(&entry, 1);
            path.push(at);
            at = entry.next;
            left -= 1;
        }
        Some(at)
    }

    fn bytes(&self) -> u64 {
        self.sums.iter().map(|sum| sum.bytes).sum()
    }
}

pub(super) fn entry(table: &Table, at: u8) -> Option<PatternEntry> {
    table.get(usize::from(at)).copied().flatten()
}

fn positions(table: &Table) -> impl Iterator<Item = u8> {
    0..table.len().min(usize::from(u8::MAX)) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A round of four channels, 100 bytes to each but 60 to the last.
    fn table() -> Table {
        let entry = |at: u8| PatternEntry {
            channel: ChannelId(10 + u32::from(at)),
            bytes: if at == 3 { 60 } else { 100 },
            next: (at + 1) % 4,
        };
        (0..4).map(|at| Some(entry(at))).collect()
    }

    /// Six sends of 560 or other bytes, told in two parts.
    fn six(bytes: u64, before: Option<u32>, after: Option<u32>) -> Unseen {
        let [before, after] = [before, after].map(|at| at.map(|at| ChannelId(10 + at)));
        let sum = |sends, bytes| Sum { sends, bytes, ..Sum::default() };
        Unseen { sums: vec![sum(2, 190), sum(4, bytes - 190)], before, after }
    }

    #[test]
    fn sums_begin_after_the_last_send_and_end_before_the_next() {
        let first = |bytes, before, after| six(bytes, before, after).first_in(&table());
        assert_eq!(first(560, Some(1), None), None, "2, 3, 0, 1, 2, 3 are 520 bytes");
        assert_eq!(first(520, Some(1), None), Some(2));
        assert_eq!(first(560, Some(3), None), Some(0), "0, 1, 2, 3, 0, 1");
        assert_eq!(first(560, None, Some(2)), Some(0));
        assert_eq!(first(560, Some(3), Some(2)), Some(0));
        assert_eq!(first(560, Some(3), Some(1)), Some(0), "after 3, as that was seen");
        assert_eq!(first(560, Some(9), Some(2)), Some(0), "before 2");
        assert_eq!(first(560, Some(9), Some(8)), None, "another's pattern");
        assert_eq!(first(560, None, None), None, "nothing tells where they began");
    }

    #[test]
    fn whole_rounds_are_told_at_once() {
        let sum = Sum { sends: 4_000_002, bytes: 360_000_200, ..Sum::default() };
        let many = Unseen { sums: vec![sum], before: None, after: None };
        assert_eq!(many.begun_as(&table()), Some(0), "a million rounds of 360 bytes, and two of 100");
        let given: Vec<u64> = many.by_channel(&table(), 0).into_values().collect();
        assert_eq!(given, [100_000_100, 100_000_100, 100_000_000, 60_000_000]);
    }

    #[test]
    fn who_was_at_no_entry_begins_at_the_first() {
        assert_eq!(six(560, None, None).begun_as(&table()), Some(0));
        assert_eq!(six(560, Some(9), None).begun_as(&table()), Some(0));
        assert_eq!(six(520, None, None).begun_as(&table()), None, "those of 2, 3, 0, 1, 2, 3");
        assert_eq!(six(560, Some(0), None).begun_as(&table()), None, "it was there, and it does not fit");
    }

    #[test]
    fn bytes_of_a_send_count_once_though_it_wakes_before_it_is_told() {
        let mut sender = Sender::default();
        sender.enter(ChannelId(1), 100);
        assert_eq!(sender.wakes(), Some((ChannelId(1), 100)));
        assert_eq!(sender.wakes(), None, "counted already");
        assert_eq!(sender.exit(ChannelId(1)), 100);
        assert_eq!(sender.exit(ChannelId(1)), 0);
        sender.enter(ChannelId(1), 100);
        assert_eq!(sender.exit(ChannelId(1)), 0, "it woke nobody");
    }
}
