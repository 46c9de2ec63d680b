//! Sends that are told late, several at once, or in sum: by their task's pattern, a sibling's, or what is known at the end.
//!
//! Not here: which sends of a pattern a sum can stand for ([`super::super::sends`]).

use super::super::raw::{RUN_SEEN, RawRecord, kind};
use super::super::sends::{Sum, Table, Unseen, entry};
use super::Translator;
use schedlab_model::event::Operation;
use schedlab_model::recording::{ChannelKind, PatternEntry, RUN_MAX, Run, TaskInfo};
use schedlab_model::{ChannelId, CpuId, Nanos, TaskId};
use std::io::{self, Write};

impl<W: Write> Translator<W> {
    /// Two sends in one record: channel and bytes in 32 bits each.
    pub(super) fn sends(&mut self, raw: &RawRecord) -> io::Result<()> {
        const SOCKET_SEND: u8 = Operation::SocketSend as u8;
        const SOCKET: u8 = ChannelKind::Socket as u8;
        self.take_entered(raw);
        let (task, next) = (self.task(raw.pid), self.channel(SOCKET, raw.a >> 32));
        self.explain(task, Some(next))?;
        for send in [raw.a, raw.b].into_iter().filter(|&send| send > 0) {
            let (a, b) = (send >> 32, send & 0xffff_ffff);
            let one = RawRecord { a, b, kind: kind::OP_EXIT, op: SOCKET_SEND, flags: SOCKET, ..*raw };
            let kind = self.operation_exit(&one);
            self.tell(raw, &kind)?;
        }
        Ok(())
    }

    pub(super) fn pattern(&mut self, raw: &RawRecord) {
        let (task, index) = (self.task(raw.pid), usize::from(raw.op));
        let channel = self.channel(ChannelKind::Socket as u8, raw.a);
        let entry = PatternEntry { channel, bytes: raw.b as u32, next: raw.flags };
        let pattern = self.patterns.entry(task).or_default();
        if pattern.len() <= index {
            pattern.resize(index + 1, None);
        }
        pattern[index] = Some(entry);
        self.writer.pattern(task, raw.op, &entry);
    }

    /// Sends that followed their task's pattern: told as one, unless the pattern was lost with dropped records.
    pub(super) fn run(&mut self, raw: &RawRecord) -> io::Result<()> {
        self.take_entered(raw);
        let task = self.task(raw.pid);
        let first = self.patterns.get(&task).and_then(|own| entry(own, raw.op));
        match first {
            Some(first) if raw.flags == RUN_SEEN => self.explain(task, Some(first.channel))?,
            // Where it begins is where the kernel believes the task to be: that explains nothing.
            _ => self.put_off(task, None),
        }
        if let Some(first) = first {
            // It may have waited or woken somebody.
            let counted = self.senders[task.index()].exit(first.channel);
            self.fills[first.channel.index()].in_flight -= counted;
        }
        let sends = u32::try_from(raw.a).unwrap_or(u32::MAX);
        let sum = Sum { cpu: raw.cpu, since: raw.b, until: raw.time, sends, bytes: 0 };
        self.tell_run(task, &sum, raw.op).map(drop)
    }

    /// Tells sends from an entry of the task's table on; which entry is next.
    fn tell_run(&mut self, task: TaskId, sum: &Sum, first: u8) -> io::Result<u8> {
        let table = self.patterns.get(&task).map_or(&[][..], Vec::as_slice);
        let (mut at, mut count, mut last) = (first, 0, None);
        // Most entries are followed by their neighbour, and a millisecond may hold thousands: along the slice a step
        // need not wait for the one before.
        while count < sum.sends {
            let (before, left) = (count, (sum.sends - count) as usize);
            for (place, entry) in table.iter().enumerate().skip(at.into()).take(left) {
                let Some(entry) = entry else { break };
                let fill = &mut self.fills[entry.channel.index()];
                fill.in_flight += i64::from(entry.bytes);
                fill.given = true;
                last = Some(entry.channel);
                count += 1;
                at = entry.next;
                if usize::from(at) != place + 1 {
                    break;
                }
            }
            if count == before {
                break;
            }
        }
        let sender = &mut self.senders[task.index()];
        sender.last = last.or(sender.last);
        let [since, until] = [sum.since, sum.until].map(|time| Nanos(time.saturating_sub(self.start)));
        let until = until.min(self.last);
        let run = Run { task, cpu: CpuId(sum.cpu), since: since.min(until), until, first, count };
        if count > 0 {
            self.writer.run(&run)?;
        }
        Ok(at)
    }

    /// The same for any number of sends.
    fn tell_sum(&mut self, task: TaskId, sum: &Sum, mut first: u8) -> io::Result<u8> {
        let mut left = sum.sends;
        while left > 0 {
            let sends = left.min(RUN_MAX as u32);
            first = self.tell_run(task, &Sum { sends, ..*sum }, first)?;
            left -= sends;
        }
        Ok(first)
    }

    /// Sends that the task's pattern does not explain: told as runs of its own table or of a sibling's, as soon as it is
    /// known where they began or ended.
    pub(super) fn rest(&mut self, raw: &RawRecord) -> io::Result<()> {
        self.take_entered(raw);
        let (sends, bytes) = ((raw.b >> 40) as u32, raw.b & 0xff_ffff_ffff);
        let task = self.task(raw.pid);
        let sender = &mut self.senders[task.index()];
        sender.add(Sum { cpu: raw.cpu, since: raw.a, until: raw.time, sends, bytes });
        if sender.last.is_some() && sender.unseen.sums.len() == 1 { self.explain(task, None) } else { Ok(()) }
    }

    /// Tells the task's sends in sum, if any; its next send goes to `after`. Those that no table fits wait for a send
    /// whose channel is seen, and then for what is known at the end.
    pub(super) fn explain(&mut self, task: TaskId, after: Option<ChannelId>) -> io::Result<()> {
        if self.senders[task.index()].unseen.sums.is_empty() {
            return Ok(());
        }
        let unseen = Unseen { after, ..std::mem::take(&mut self.senders[task.index()].unseen) };
        if let Some((first, table)) = self.table_for(task, |table| unseen.first_in(table)) {
            return self.tell_as(task, &unseen, first, table);
        }
        self.overdue = true;
        self.senders[task.index()].unseen = unseen;
        if after.is_some() {
            self.put_off(task, after);
        }
        Ok(())
    }

    /// The task's sends in sum wait for the end of the recording. Of more than a reader could make sense of, some are
    /// left out; they are missed where they were received.
    fn put_off(&mut self, task: TaskId, after: Option<ChannelId>) {
        const UNSEEN_MAX: usize = 1 << 16;
        let unseen = std::mem::take(&mut self.senders[task.index()].unseen);
        if !unseen.sums.is_empty() && self.unseen.len() < UNSEEN_MAX {
            self.unseen.push((task, Unseen { after, ..unseen }));
        }
    }

    /// Tells what no table explained so far, by the tables of the end. What no table explains then is missed where it was
    /// received, or was written to a file, which the kernel counts with sends.
    pub(super) fn explain_all(&mut self) -> io::Result<()> {
        for task in 0..self.tasks.len() as u32 {
            self.put_off(TaskId(task), None);
        }
        for (task, unseen) in std::mem::take(&mut self.unseen) {
            let found = self.table_for(task, |table| unseen.first_in(table)).or_else(|| {
                let own = self.patterns.get(&task).into_iter().flatten().flatten();
                if own.map(|entry| Some(entry.channel)).any(|channel| channel == unseen.before) {
                    return None;
                }
                self.table_for(task, |table| {
                    unseen.begun_as(table).filter(|&first| self.is_missing(&unseen, table, first))
                })
            });
            if let Some((first, table)) = found {
                self.tell_as(task, &unseen, first, table)?;
            }
        }
        Ok(())
    }

    /// Whether so much was received of each channel, beyond what is told to be sent, as these sends would give it.
    fn is_missing(&self, unseen: &Unseen, table: &Table, first: u8) -> bool {
        let given = unseen.by_channel(table, first);
        given.iter().all(|(channel, bytes)| self.fills[channel.index()].missing() >= *bytes)
    }

    /// Bytes that were taken from sockets beyond what is told to be given to them.
    pub(super) fn unseen_bytes(&self) -> u64 {
        let sockets =
            self.channels.iter().zip(&self.fills).filter(|(row, _)| row.kind == ChannelKind::Socket);
        sockets.filter(|(_, fill)| fill.given).map(|(_, fill)| fill.missing()).sum()
    }

    /// Where the task's sends begin in its own table or, with that table, in the one of its nearest sibling that fits.
    fn table_for(&self, task: TaskId, fit: impl Fn(&Table) -> Option<u8>) -> Option<(u8, Option<Table>)> {
        const SIBLINGS_MAX: usize = 16;
        if let Some(first) = self.patterns.get(&task).and_then(&fit) {
            return Some((first, None));
        }
        let tables =
            self.siblings(task).into_iter().take(SIBLINGS_MAX).map(|sibling| &self.patterns[&sibling]);
        tables.into_iter().find_map(|table| Some((fit(table)?, Some(table.clone()))))
    }

    /// Tells sends from an entry on of the task's own table, or of another's.
    fn tell_as(&mut self, task: TaskId, unseen: &Unseen, first: u8, table: Option<Table>) -> io::Result<()> {
        let tell = |this: &mut Self| {
            unseen.sums.iter().try_fold(first, |at, sum| this.tell_sum(task, sum, at)).map(drop)
        };
        let Some(table) = table else { return tell(self) };
        self.tell_table(task, &table);
        let own = self.patterns.insert(task, table);
        tell(self)?;
        // Its own, known in part only, is what the kernel's later records are about.
        match own {
            Some(own) => {
                self.tell_table(task, &own);
                self.patterns.insert(task, own);
            }
            None => drop(self.patterns.remove(&task)),
        }
        Ok(())
    }

    /// Tasks that have a table and the same parent or, if that is not known, are of the same process: the nearest in order
    /// of their start first.
    fn siblings(&self, task: TaskId) -> Vec<TaskId> {
        let family = |task: TaskId| {
            let TaskInfo { parent, tgid, .. } = self.tasks[task.index()];
            (parent, if parent.is_idle() { tgid } else { 0 })
        };
        let is_sibling = |other: &TaskId| *other != task && family(*other) == family(task);
        let mut siblings: Vec<TaskId> = self.patterns.keys().copied().filter(is_sibling).collect();
        siblings.sort_by_key(|other| (other.0.abs_diff(task.0), other.0));
        siblings
    }

    fn tell_table(&mut self, task: TaskId, table: &Table) {
        for (at, entry) in table.iter().enumerate() {
            if let Some(entry) = entry {
                self.writer.pattern(task, at as u8, entry);
            }
        }
    }
}
