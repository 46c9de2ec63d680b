//! From raw records to the model's events: time order, task and channel numbers, names that change.
//!
//! A pid that is forked again is a new task. Rows of tasks and channels go to the sink when they first
//! appear and again when more is known of them. Not here: where records come from ([`super::raw`]).

mod sums;
#[cfg(test)]
mod tests;

use super::raw::{CLOCK_EXT, RawRecord, kind};
use super::sends::{Sender, Table, Unseen};
use super::snapshot;
use schedlab_model::event::{Context, IrqSource, Operation, PrevState, RESULT_UNKNOWN, VruntimeClock};
use schedlab_model::recording::codec::RecordingWriter;
use schedlab_model::recording::{ChannelInfo, ChannelKind, TaskInfo};
use schedlab_model::{ChannelId, CpuId, CpuSet, EventKind, Nanos, Nice, Policy, TaskAttributes, TaskId};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::io::{self, Write};

const CHANNEL_KINDS: [ChannelKind; 5] =
    [ChannelKind::Pipe, ChannelKind::Socket, ChannelKind::Futex, ChannelKind::Epoll, ChannelKind::Other];

/// `CHANNEL_NONE` of the kernel half: the operation has no channel.
const NO_CHANNEL: u8 = 5;

/// One multiplication is enough for keys that are kernel numbers, and this runs for every operation.
#[derive(Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }

    fn write_u32(&mut self, key: u32) {
        self.write_u64(u64::from(key));
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = (self.0.rotate_left(5) ^ key).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 29;
    }
}

type KeyMap<K, V> = HashMap<K, V, BuildHasherDefault<KeyHasher>>;

/// What is in a channel, to learn how much fits.
#[derive(Clone, Copy, Debug, Default)]
struct Fill {
    in_flight: i64,
    /// Whether a sender was seen.
    given: bool,
    /// Read before it was told to be sent.
    owed: i64,
    /// Most that was in it when a sender had to wait.
    full: i64,
}

impl Fill {
    /// Bytes that were read beyond what is told to be sent.
    fn missing(&self) -> u64 {
        (self.owed - self.in_flight).max(0) as u64
    }
}

/// Turns records into events and writes them.
pub(super) struct Translator<W: Write> {
    writer: RecordingWriter<W>,
    start: u64,
    last: Nanos,
    tasks: Vec<TaskInfo>,
    /// Whether the start state was confirmed or corrected by an event.
    settled: Vec<bool>,
    by_pid: Vec<u32>,
    channels: Vec<ChannelInfo>,
    fills: Vec<Fill>,
    by_key: KeyMap<u64, u32>,
    cpu_sets: Vec<CpuSet>,
    /// The operation that waits or wakes now, for each CPU: entered by the previous record.
    entered: Vec<Option<(Operation, ChannelId)>>,
    /// Who runs on each CPU, as far as switches told.
    running: Vec<Option<TaskId>>,
    gaps: u64,
    /// Channels of the two directions of a connection.
    peers: Vec<(u64, u64)>,
    /// Attributes of tasks whose attributes have changed since their row was made.
    now: HashMap<TaskId, TaskAttributes>,
    patterns: KeyMap<TaskId, Table>,
    senders: Vec<Sender>,
    /// Sends in sum that no table explained when they were told.
    unseen: Vec<(TaskId, Unseen)>,
    /// Some were not told at once: what seems not to be given yet may have been.
    overdue: bool,
    /// Reads come as sums, told at the latest when their task is switched out; sends come at once.
    pub(super) counting: bool,
}

/// No task has this pid yet.
const UNKNOWN: u32 = u32::MAX;

impl<W: Write> Translator<W> {
    /// `existing` are the tasks at `start` (ns of the monotonic clock).
    pub(super) fn new(writer: RecordingWriter<W>, start: u64, existing: Vec<TaskInfo>) -> Self {
        let mut translator = Translator {
            writer,
            start,
            last: Nanos::ZERO,
            tasks: Vec::new(),
            settled: Vec::new(),
            by_pid: Vec::new(),
            channels: Vec::new(),
            fills: Vec::new(),
            by_key: KeyMap::default(),
            cpu_sets: Vec::new(),
            entered: Vec::new(),
            running: Vec::new(),
            gaps: 0,
            peers: Vec::new(),
            now: HashMap::new(),
            patterns: KeyMap::default(),
            senders: Vec::new(),
            unseen: Vec::new(),
            overdue: false,
            counting: false,
        };
        translator.add_task(TaskInfo::idle());
        existing.into_iter().for_each(|task| {
            translator.add_task(task);
        });
        // Operations without a channel name the first row.
        translator.add_channel(ChannelInfo {
            kind: ChannelKind::Other,
            identity: 0,
            peer: None,
            capacity: 0,
        });
        translator
    }

    pub(super) fn writer(&mut self) -> &mut RecordingWriter<W> {
        &mut self.writer
    }

    pub(super) fn last(&self) -> Nanos {
        self.last
    }

    /// Every task so far, by id.
    pub(super) fn rows(&self) -> &[TaskInfo] {
        &self.tasks
    }

    /// The task that has this pid now, if it was told of.
    pub(super) fn known(&self, pid: u32) -> Option<TaskId> {
        self.by_pid.get(pid as usize).copied().filter(|&id| id != UNKNOWN).map(TaskId)
    }

    /// A task's attributes after all changes so far; its row has the first ones.
    pub(super) fn attributes_now(&self, task: TaskId) -> TaskAttributes {
        self.now.get(&task).unwrap_or(&self.tasks[task.index()].attributes).clone()
    }

    /// How many connections are remembered, ended ones too.
    pub(super) fn peer_count(&self) -> usize {
        self.peers.len()
    }

    /// What is told once and counts from then on: the latest connections, and the patterns of tasks that live.
    pub(super) fn connections(&self, time: u64) -> Vec<RawRecord> {
        const PEERS_KEPT: usize = 1 << 16;
        let told = RawRecord { time, ..RawRecord::default() };
        let peers = &self.peers[self.peers.len().saturating_sub(PEERS_KEPT)..];
        let mut all: Vec<RawRecord> =
            peers.iter().map(|&(a, b)| RawRecord { kind: kind::PEERS, a, b, ..told }).collect();
        for (task, table) in &self.patterns {
            let pid = self.tasks[task.index()].pid as u32;
            if self.known(pid) != Some(*task) {
                continue;
            }
            let entries = table.iter().enumerate().filter_map(|(at, entry)| Some((at, (*entry)?)));
            all.extend(entries.map(|(at, entry)| RawRecord {
                kind: kind::PATTERN,
                pid,
                op: at as u8,
                flags: entry.next,
                a: self.channels[entry.channel.index()].identity,
                b: u64::from(entry.bytes),
                ..told
            }));
        }
        all
    }

    /// Writes what became known late and hands the writer back, with the bytes received that no
    /// send told gave.
    pub(super) fn into_writer(mut self) -> io::Result<(RecordingWriter<W>, u64)> {
        self.explain_all()?;
        let unseen_bytes = self.unseen_bytes();
        self.learn_capacities();
        self.join_peers();
        for (index, channel) in self.channels.iter().enumerate() {
            self.writer.channel(ChannelId(index as u32), channel);
        }
        for (index, task) in self.tasks.iter().enumerate() {
            self.writer.task(TaskId(index as u32), task);
        }
        Ok((self.writer, unseen_bytes))
    }

    fn add_task(&mut self, task: TaskInfo) -> TaskId {
        let id = TaskId(self.tasks.len() as u32);
        let pid = task.pid.max(0) as usize;
        if self.by_pid.len() <= pid {
            self.by_pid.resize(pid + 1, UNKNOWN);
        }
        self.by_pid[pid] = id.0;
        self.writer.task(id, &task);
        self.settled.push(!task.existed || id.is_idle());
        self.senders.push(Sender::default());
        self.tasks.push(task);
        id
    }

    fn add_channel(&mut self, channel: ChannelInfo) -> ChannelId {
        let id = ChannelId(self.channels.len() as u32);
        self.writer.channel(id, &channel);
        self.channels.push(channel);
        self.fills.push(Fill::default());
        id
    }

    /// The task with this pid now; one that was never announced is looked up or made up.
    #[inline]
    fn task(&mut self, pid: u32) -> TaskId {
        match self.by_pid.get(pid as usize) {
            Some(&id) if id != UNKNOWN => TaskId(id),
            _ => self.unknown_task(pid),
        }
    }

    #[cold]
    fn unknown_task(&mut self, pid: u32) -> TaskId {
        let pid = pid as i32;
        let found = snapshot::process_of(pid).and_then(|tgid| snapshot::task(tgid, pid));
        let task = found.unwrap_or_else(|| TaskInfo {
            pid,
            tgid: pid,
            name: format!("pid-{pid}"),
            ..TaskInfo::idle()
        });
        self.add_task(task)
    }

    #[inline]
    fn channel(&mut self, kind: u8, key: u64) -> ChannelId {
        if kind >= NO_CHANNEL {
            return ChannelId(0);
        }
        match self.by_key.get(&mixed_key(kind, key)) {
            Some(&id) => ChannelId(id),
            None => self.new_channel(mixed_key(kind, key), kind, key),
        }
    }

    #[cold]
    fn new_channel(&mut self, mixed: u64, kind: u8, identity: u64) -> ChannelId {
        let kind = CHANNEL_KINDS[usize::from(kind)];
        let id = self.add_channel(ChannelInfo { kind, identity, peer: None, capacity: 0 });
        self.by_key.insert(mixed, id.0);
        id
    }

    /// Translates one record; records come in time order.
    pub(super) fn record(&mut self, raw: &RawRecord) -> io::Result<()> {
        if raw.time < self.start {
            // From before the snapshot: only who exists matters.
            if raw.kind == kind::FORK
                && self.by_pid.get(raw.a as u32 as usize).is_none_or(|&id| id == UNKNOWN)
            {
                self.fork(raw);
            }
            return Ok(());
        }
        self.last = Nanos(raw.time - self.start).max(self.last);
        match raw.kind {
            kind::SENDS => return self.sends(raw),
            kind::PATTERN => {
                self.pattern(raw);
                return Ok(());
            }
            kind::RUN => return self.run(raw),
            kind::REST => return self.rest(raw),
            kind::PEERS => {
                self.peers.push((raw.a, raw.b));
                return Ok(());
            }
            _ => {}
        }
        // What is told in sum came before the next send that is told by itself.
        if matches!(raw.kind, kind::OP_ENTER | kind::OP_EXIT) && raw.op == Operation::SocketSend as u8 {
            let (task, channel) = (self.task(raw.pid), self.channel(raw.flags, raw.a));
            self.explain(task, Some(channel))?;
        }
        let entered = self.take_entered(raw);
        // An event is told where it is made: to hand it over first takes longer than to write it.
        match raw.kind {
            kind::OP_EXIT => {
                let event = self.operation_exit(raw);
                self.tell(raw, &event)
            }
            kind::OP_ENTER => {
                let event = self.operation_enter(raw);
                self.tell(raw, &event)
            }
            kind::SWITCH => {
                let event = self.switch(raw, entered);
                self.tell(raw, &event)
            }
            kind::WAKING => {
                let event = self.waking(raw);
                self.tell(raw, &event)
            }
            _ => match self.translate(raw) {
                Some(event) => self.tell(raw, &event),
                None => Ok(()),
            },
        }
    }

    fn tell(&mut self, raw: &RawRecord, event: &EventKind) -> io::Result<()> {
        self.writer.event_of(self.last, CpuId(raw.cpu), event)
    }

    /// The rarer ones.
    #[inline(never)]
    fn translate(&mut self, raw: &RawRecord) -> Option<EventKind> {
        Some(match raw.kind {
            kind::WAKEUP_NEW => {
                EventKind::WakeupNew { task: self.task(raw.a as u32), target_cpu: CpuId(raw.b as u32) }
            }
            kind::MIGRATE => EventKind::Migrate {
                task: self.task(raw.a as u32),
                from: CpuId(raw.b as u32),
                to: CpuId((raw.b >> 32) as u32),
            },
            kind::FORK => self.fork(raw),
            kind::EXEC => {
                let task = self.rename(raw);
                EventKind::Exec { task }
            }
            kind::RENAME => {
                self.rename(raw);
                return None;
            }
            kind::EXIT => EventKind::Exit { task: self.task(raw.pid) },
            kind::ATTRIBUTES => return self.attributes(raw),
            kind::AFFINITY => self.affinity(raw),
            kind::VRUNTIME => EventKind::Vruntime {
                task: self.task(raw.pid),
                clock: if raw.op == CLOCK_EXT { VruntimeClock::Ext } else { VruntimeClock::Fair },
                vruntime: raw.a as i64,
            },
            kind::CACHE_USE => {
                EventKind::CacheUse { task: self.task(raw.pid), references: raw.a, misses: raw.b }
            }
            kind::PRIORITY_LENT => EventKind::PriorityLent {
                task: self.task(raw.pid),
                lender: self.task(raw.a as u32),
                prio: (raw.b as i64).clamp(0, 255) as u8,
            },
            kind::IRQ_ENTER => EventKind::IrqEnter { source: irq_source(raw) },
            kind::IRQ_EXIT => EventKind::IrqExit { source: irq_source(raw) },
            kind::SOFTIRQ_ENTER => EventKind::SoftirqEnter { vector: raw.op },
            kind::SOFTIRQ_EXIT => EventKind::SoftirqExit { vector: raw.op },
            kind::TIMER => EventKind::TimerExpire {
                task: self.task(raw.a as u32),
                due: Nanos(raw.b.saturating_sub(self.start)),
            },
            _ => return None,
        })
    }

    /// The operation that the previous record of this CPU entered, if this record follows it directly.
    fn take_entered(&mut self, raw: &RawRecord) -> Option<(Operation, ChannelId)> {
        let cpu = raw.cpu as usize;
        if self.entered.len() <= cpu {
            self.entered.resize(cpu + 1, None);
            self.running.resize(cpu + 1, None);
        }
        self.entered[cpu].take()
    }

    fn operation_enter(&mut self, raw: &RawRecord) -> EventKind {
        let operation = Operation::ALL[usize::from(raw.op).min(12)];
        let (task, channel) = (self.task(raw.pid), self.channel(raw.flags, raw.a));
        self.entered[raw.cpu as usize] = Some((operation, channel));
        if matches!(operation, Operation::PipeWrite | Operation::SocketSend) {
            self.senders[task.index()].enter(channel, raw.b as i64);
        }
        let amount = match operation {
            Operation::SleepAbsolute => raw.b.saturating_sub(self.start),
            _ => raw.b,
        };
        EventKind::OperationEnter { task, operation, channel, amount }
    }

    fn operation_exit(&mut self, raw: &RawRecord) -> EventKind {
        let operation = Operation::ALL[usize::from(raw.op).min(12)];
        let (task, channel) = (self.task(raw.pid), self.channel(raw.flags, raw.a));
        let mut result = raw.b as i64;
        if matches!(operation, Operation::PipeWrite | Operation::SocketSend) {
            let sender = &mut self.senders[task.index()];
            let counted = sender.exit(channel);
            if operation == Operation::SocketSend {
                sender.last = Some(channel);
            }
            self.fills[channel.index()].in_flight -= counted;
        }
        if result > 0 && result != RESULT_UNKNOWN {
            let fill = &mut self.fills[channel.index()];
            // A sum of reads may be told before the sends it took from: nobody takes what was not given.
            if self.counting && operation == Operation::SocketReceive && fill.given {
                let asked = result + fill.owed;
                // Readers settle it, who know what was told late.
                result = if self.overdue { asked } else { asked.min(fill.in_flight.max(0)) };
                fill.owed = asked - result;
            }
            match operation {
                Operation::PipeWrite | Operation::SocketSend => {
                    fill.in_flight += result;
                    fill.given = true;
                }
                Operation::PipeRead | Operation::SocketReceive => fill.in_flight -= result,
                _ => {}
            }
        }
        EventKind::OperationExit { task, operation, channel, result }
    }

    fn switch(&mut self, raw: &RawRecord, entered: Option<(Operation, ChannelId)>) -> EventKind {
        let (prev, next) = (self.task(raw.pid), self.task(raw.a as u32));
        let prev_state = match raw.op {
            0 => PrevState::Runnable,
            1 => PrevState::Interruptible,
            2 => PrevState::Uninterruptible,
            3 => PrevState::Stopped,
            _ => PrevState::Dead,
        };
        if let (Some((Operation::PipeWrite | Operation::SocketSend, channel)), 1 | 2) = (entered, raw.op) {
            let fill = &mut self.fills[channel.index()];
            fill.full = fill.full.max(fill.in_flight);
        }
        self.settle(prev, true, raw.cpu);
        self.settle(next, true, raw.cpu);
        self.close_gap(prev, raw.cpu);
        self.running[raw.cpu as usize] = Some(next);
        EventKind::Switch { prev, prev_state, next }
    }

    /// Some kernels run no BPF program while a task of their own guards is current (the agent of a virtual
    /// machine, say), so that its switch away is not seen: it was switched to, and another leaves. The missing switch is put where it shows, so that readers find one task a CPU.
    fn close_gap(&mut self, prev: TaskId, cpu: u32) {
        let Some(running) = self.running[cpu as usize].filter(|&running| running != prev) else { return };
        self.gaps += 1;
        let prev_state = if running.is_idle() { PrevState::Runnable } else { PrevState::Interruptible };
        let kind = EventKind::Switch { prev: running, prev_state, next: prev };
        // A full disk shows at the next event, too.
        let _ = self.writer.event_of(self.last, CpuId(cpu), &kind);
    }

    /// Times a CPU's task had changed without a switch being told.
    pub(super) fn gaps(&self) -> u64 {
        self.gaps
    }

    fn waking(&mut self, raw: &RawRecord) -> EventKind {
        let (waker, wakee) = (self.task(raw.pid), self.task(raw.a as u32));
        let context = match raw.op {
            0 => Context::Task,
            1 => Context::HardIrq,
            _ => Context::SoftIrq,
        };
        if context == Context::Task
            && let Some((channel, bytes)) = self.senders[waker.index()].wakes()
        {
            // Who is woken may take them before the send is told to have returned.
            let fill = &mut self.fills[channel.index()];
            fill.in_flight += bytes;
            fill.given = true;
        }
        self.settle(waker, true, raw.cpu);
        self.settle(wakee, false, raw.b as u32);
        EventKind::Waking { waker, context, wakee, wakee_cpu: CpuId(raw.b as u32) }
    }

    /// A task's first event tells better than the snapshot whether it was runnable, and where.
    #[inline]
    fn settle(&mut self, task: TaskId, runnable: bool, cpu: u32) {
        if !self.settled[task.index()] {
            self.settled[task.index()] = true;
            let row = &mut self.tasks[task.index()];
            row.start_runnable = runnable;
            row.start_cpu = CpuId(cpu);
        }
    }

    fn fork(&mut self, raw: &RawRecord) -> EventKind {
        let parent = self.task(raw.pid);
        let row = &self.tasks[parent.index()];
        let child = TaskInfo {
            pid: raw.a as u32 as i32,
            tgid: (raw.a >> 32) as i32,
            name: row.name.clone(),
            parent,
            attributes: self.attributes_now(parent),
            target: raw.flags & 1 != 0,
            existed: false,
            start_cpu: CpuId(raw.cpu),
            start_runnable: false,
        };
        EventKind::Fork { parent, child: self.add_task(child) }
    }

    fn rename(&mut self, raw: &RawRecord) -> TaskId {
        let task = self.task(raw.pid);
        let name = raw.text();
        if self.tasks[task.index()].name != name {
            self.tasks[task.index()].name = name;
            self.writer.task(task, &self.tasks[task.index()]);
        }
        task
    }

    /// The row keeps the attributes of the start; a child inherits those of now.
    fn attributes(&mut self, raw: &RawRecord) -> Option<EventKind> {
        let task = self.task(raw.pid);
        let policy = Policy::from_number(u32::from(raw.op)).unwrap_or_default();
        let nice = Nice::new(raw.a as i64 - 120).unwrap_or_default();
        if raw.b > 0 {
            let slice = Nanos(raw.b);
            let changed = EventKind::SliceChanged { task, slice };
            // A full disk shows at the next event, too.
            let _ = self.tell(raw, &changed);
        }
        let mut now = self.attributes_now(task);
        (now.policy, now.nice, now.rt_priority) = (policy, nice, raw.flags);
        now.slice = (raw.b > 0).then_some(Nanos(raw.b));
        self.now.insert(task, now);
        Some(EventKind::AttributesChanged { task, policy, nice, rt_priority: raw.flags })
    }

    fn affinity(&mut self, raw: &RawRecord) -> EventKind {
        let task = self.task(raw.pid);
        let TaskInfo { pid, tgid, .. } = self.tasks[task.index()];
        let told: CpuSet = (0..64).filter(|cpu| raw.a >> cpu & 1 == 1).map(CpuId).collect();
        let set = match told.len() as u64 == raw.b {
            true => told,
            // More CPUs than a record holds: as procfs tells it now.
            false => snapshot::affinity(&format!("/proc/{tgid}/task/{pid}")).unwrap_or_default(),
        };
        let set = snapshot::unrestricted_or(set);
        let now = self.attributes_now(task);
        self.now.insert(task, TaskAttributes { affinity: set, ..now });
        let index = self.cpu_sets.iter().position(|known| *known == set).unwrap_or_else(|| {
            self.writer.cpu_set(self.cpu_sets.len() as u32, &set);
            self.cpu_sets.push(set);
            self.cpu_sets.len() - 1
        });
        EventKind::AffinityChanged { task, set: index as u32 }
    }

    /// Connections of which both directions were used.
    fn join_peers(&mut self) {
        let channel_of = |key: &u64| self.by_key.get(&mixed_key(ChannelKind::Socket as u8, *key)).copied();
        let pairs: Vec<_> =
            self.peers.iter().map(|(one, other)| (channel_of(one), channel_of(other))).collect();
        for pair in pairs {
            if let (Some(one), Some(other)) = pair {
                self.channels[one as usize].peer = Some(ChannelId(other));
                self.channels[other as usize].peer = Some(ChannelId(one));
            }
        }
    }

    /// How much fits into a channel is what was in it when a sender had to wait. Channels that never were full
    /// get the median of their kind, because buffers are counted in more than payload.
    fn learn_capacities(&mut self) {
        for kind in [ChannelKind::Pipe, ChannelKind::Socket] {
            let of_kind = |channel: &ChannelInfo| channel.kind == kind;
            let mut seen: Vec<i64> = self
                .channels
                .iter()
                .zip(&self.fills)
                .filter(|(channel, fill)| of_kind(channel) && fill.full > 0)
                .map(|(_, fill)| fill.full)
                .collect();
            seen.sort_unstable();
            let median = seen.get(seen.len() / 2).copied().unwrap_or(0);
            for (channel, fill) in self.channels.iter_mut().zip(&self.fills).filter(|(c, _)| of_kind(c)) {
                channel.capacity = if fill.full > 0 { fill.full } else { median } as u64;
            }
        }
    }
}

/// Kinds number their channels apart.
fn mixed_key(kind: u8, key: u64) -> u64 {
    key ^ u64::from(kind) << 56
}

fn irq_source(raw: &RawRecord) -> IrqSource {
    match raw.op {
        0 => IrqSource::Timer,
        1 => IrqSource::Ipi,
        _ => IrqSource::Device(raw.a as u32),
    }
}
