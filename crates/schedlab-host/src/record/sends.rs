//! What a recorder that is told sends late or in sum must know of their tasks: which send is under way, where the last
//! one went, and which sends of a pattern a sum can stand for.
//!
//! Pure. Not here: how sends are told ([`super::translate`]).

use super::raw::RawRecord;
use schedlab_model::ChannelId;
use schedlab_model::recording::PatternEntry;

/// A task that sends.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sender {
    /// The send that waits or wakes now: its channel, the bytes asked for, and whether they count as given.
    open: Option<(ChannelId, i64, bool)>,
    /// Where it sent last.
    pub(super) last: Option<ChannelId>,
    /// Sends in sum whose channels are not known yet.
    pub(super) rest: Option<Rest>,
}

/// Sends told in sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Rest {
    /// When the first may have been, on the kernel's clock.
    pub(super) since: u64,
    pub(super) sends: u32,
    pub(super) bytes: u64,
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
        self.last = Some(channel);
        match self.open.take() {
            Some((open, amount, true)) if open == channel => amount,
            _ => 0,
        }
    }

    /// More sends in sum.
    pub(super) fn add(&mut self, rest: Rest) {
        let all = self.rest.get_or_insert(Rest { since: rest.since, ..Rest::default() });
        all.sends += rest.sends;
        all.bytes += rest.bytes;
    }
}

impl Rest {
    /// With which entry of the table the sends began, if they can have followed it: after one to `before`, before one
    /// to `after`, where those are known.
    pub(super) fn first_in(
        &self,
        table: &Table,
        before: Option<ChannelId>,
        after: Option<ChannelId>,
    ) -> Option<u8> {
        if before.is_none() && after.is_none() {
            return None;
        }
        let entry = |at: u8| table.get(usize::from(at)).copied().flatten();
        let goes_to = |at: u8, channel: ChannelId| entry(at).is_some_and(|entry| entry.channel == channel);
        let follows = |at: u8, before: ChannelId| {
            table.iter().flatten().any(|entry| entry.channel == before && entry.next == at)
        };
        let fits = |&at: &u8| {
            before.is_none_or(|before| follows(at, before))
                && self.walk(table, at).is_some_and(|(bytes, end)| {
                    bytes == self.bytes && after.is_none_or(|to| goes_to(end, to))
                })
        };
        (0..table.len().min(usize::from(u8::MAX)) as u8).find(fits)
    }

    /// The same, and if they fit only one of the two, as that has it: one send that nobody saw would else cost all of them.
    pub(super) fn about_first_in(
        &self,
        table: &Table,
        before: Option<ChannelId>,
        after: Option<ChannelId>,
    ) -> Option<u8> {
        let first = |before, after| self.first_in(table, before, after);
        first(before, after).or_else(|| first(before, None)).or_else(|| first(None, after))
    }

    /// As a run of its task's table from that entry on.
    pub(super) fn as_run(&self, raw: &RawRecord, first: u8) -> RawRecord {
        RawRecord { op: first, flags: 0, a: u64::from(self.sends), b: self.since, ..*raw }
    }

    /// Bytes of as many sends from there on, and which would be next.
    fn walk(&self, table: &Table, first: u8) -> Option<(u64, u8)> {
        let (mut at, mut bytes) = (first, 0);
        for _ in 0..self.sends {
            let entry = table.get(usize::from(at)).copied().flatten()?;
            bytes += u64::from(entry.bytes);
            at = entry.next;
        }
        Some((bytes, at))
    }
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

    #[test]
    fn a_sum_begins_after_the_last_send_and_ends_before_the_next() {
        let channel = |at: u32| Some(ChannelId(10 + at));
        let six = Rest { since: 0, sends: 6, bytes: 560 };
        assert_eq!(six.first_in(&table(), channel(1), None), None, "2, 3, 0, 1, 2, 3 are 520 bytes");
        assert_eq!(Rest { bytes: 520, ..six }.first_in(&table(), channel(1), None), Some(2));
        assert_eq!(six.first_in(&table(), channel(3), None), Some(0), "0, 1, 2, 3, 0, 1");
        assert_eq!(six.first_in(&table(), None, channel(2)), Some(0));
        assert_eq!(six.first_in(&table(), channel(3), channel(2)), Some(0));
        assert_eq!(six.first_in(&table(), channel(3), channel(1)), None);
        assert_eq!(
            six.about_first_in(&table(), channel(3), channel(1)),
            Some(0),
            "after 3, as that was seen"
        );
        assert_eq!(six.about_first_in(&table(), channel(9), channel(2)), Some(0), "before 2");
        assert_eq!(six.about_first_in(&table(), channel(9), channel(8)), None);
        assert_eq!(six.first_in(&table(), None, None), None, "nothing tells where it began");
        assert_eq!(six.first_in(&table(), channel(9), None), None, "another's pattern");
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
