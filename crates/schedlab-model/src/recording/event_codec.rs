//! Events as bytes: one tag, the time since the previous event, then only what cannot be inferred.
//!
//! State is kept within a block and starts anew with the next, so each block can be read alone. What the
//! coder infers: the CPU of the previous event, and the task that runs on a CPU since its last switch.

use super::wire::{Input, WireError, put_signed, put_varint};
use crate::cpu_set::CPUS_MAX;
use crate::event::{
    Context, Event, EventKind, IrqSource, Operation, PrevState, PriorityCause, VruntimeClock,
};
use crate::ids::{ChannelId, CpuId, TaskId};
use crate::policy::{Nice, Policy};
use crate::time::Nanos;

const KIND_MASK: u8 = 0x1f;
const SAME_CPU: u8 = 0x20;
const CURRENT_TASK: u8 = 0x40;

const PREV_STATES: [PrevState; 5] = [
    PrevState::Runnable,
    PrevState::Interruptible,
    PrevState::Uninterruptible,
    PrevState::Stopped,
    PrevState::Dead,
];
const CONTEXTS: [Context; 3] = [Context::Task, Context::HardIrq, Context::SoftIrq];

/// State shared by both directions, for one block.
#[derive(Default)]
pub(super) struct EventCoder {
    time: Nanos,
    cpu: CpuId,
    current: Vec<Option<TaskId>>,
}

/// The kind's number on disk and the task whose identity may be inferred.
fn tag_and_task(kind: &EventKind) -> (u8, Option<TaskId>) {
    match *kind {
        EventKind::Switch { prev, .. } => (0, Some(prev)),
        EventKind::Waking { waker, .. } => (1, Some(waker)),
        EventKind::WakeupNew { task, .. } => (2, Some(task)),
        EventKind::Migrate { task, .. } => (3, Some(task)),
        EventKind::Fork { parent, .. } => (4, Some(parent)),
        EventKind::Exec { task } => (5, Some(task)),
        EventKind::Exit { task } => (6, Some(task)),
        EventKind::AttributesChanged { task, .. } => (7, Some(task)),
        EventKind::IrqEnter { .. } => (8, None),
        EventKind::IrqExit { .. } => (9, None),
        EventKind::SoftirqEnter { .. } => (10, None),
        EventKind::SoftirqExit { .. } => (11, None),
        EventKind::TimerExpire { task, .. } => (12, Some(task)),
        EventKind::OperationEnter { task, .. } => (13, Some(task)),
        EventKind::OperationExit { task, .. } => (14, Some(task)),
        EventKind::Job { task, .. } => (15, Some(task)),
        EventKind::Rank { task, .. } => (16, Some(task)),
        EventKind::AffinityChanged { task, .. } => (17, Some(task)),
        EventKind::SliceChanged { task, .. } => (18, Some(task)),
        EventKind::PriorityLent { task, .. } => (19, Some(task)),
        EventKind::Priority { task, .. } => (20, Some(task)),
        EventKind::Vruntime { task, clock: VruntimeClock::Fair, .. } => (21, Some(task)),
        EventKind::Vruntime { task, clock: VruntimeClock::Ext, .. } => (22, Some(task)),
        EventKind::CacheUse { task, .. } => (23, Some(task)),
    }
}

impl EventCoder {
    /// A coder for a block whose times count from `base`.
    pub(super) fn new(base: Nanos) -> Self {
        EventCoder { time: base, ..EventCoder::default() }
    }

    fn current(&mut self, cpu: CpuId) -> &mut Option<TaskId> {
        if self.current.len() <= cpu.index() {
            self.current.resize(cpu.index() + 1, None);
        }
        &mut self.current[cpu.index()]
    }

    /// Appends an event. Its time must not lie before the previous one's.
    pub(super) fn put(&mut self, out: &mut Vec<u8>, time: Nanos, cpu: CpuId, kind: &EventKind) {
        let (tag, task) = tag_and_task(kind);
        let inferred = task.is_some() && *self.current(cpu) == task;
        let same_cpu = cpu == self.cpu;
        let flags = if same_cpu { SAME_CPU } else { 0 } | if inferred { CURRENT_TASK } else { 0 };
        out.push(tag | flags);
        put_varint(out, time.0 - self.time.0);
        if !same_cpu {
            put_varint(out, u64::from(cpu.0));
        }
        if let (Some(task), false) = (task, inferred) {
            put_varint(out, u64::from(task.0));
        }
        put_rest(out, kind, time);
        self.advance(time, cpu, kind);
    }

    /// Reads one event.
    pub(super) fn get(&mut self, input: &mut Input<'_>) -> Result<Event, WireError> {
        let tag = input.byte()?;
        let time = self.time.0.checked_add(input.varint()?).ok_or("time overflows")?;
        let cpu = if tag & SAME_CPU != 0 { self.cpu } else { CpuId(input.varint_u32()?) };
        if cpu.index() >= CPUS_MAX {
            return Err("a CPU number exceeds 1023");
        }
        let has_task = !matches!(tag & KIND_MASK, 8..=11);
        let task = match (has_task, tag & CURRENT_TASK != 0) {
            (true, true) => self.current(cpu).ok_or("a task is inferred before any switch")?,
            (true, false) => TaskId(input.varint_u32()?),
            (false, _) => TaskId::IDLE,
        };
        let kind = get_rest(input, tag & KIND_MASK, task, Nanos(time))?;
        let event = Event { time: Nanos(time), cpu, kind };
        self.advance(event.time, event.cpu, &event.kind);
        Ok(event)
    }

    fn advance(&mut self, time: Nanos, cpu: CpuId, kind: &EventKind) {
        self.time = time;
        self.cpu = cpu;
        if let EventKind::Switch { next, .. } = *kind {
            *self.current(cpu) = Some(next);
        }
    }
}

fn put_id(out: &mut Vec<u8>, number: u32) {
    put_varint(out, u64::from(number));
}

fn put_operation(out: &mut Vec<u8>, operation: Operation, channel: ChannelId) {
    out.push(operation as u8);
    put_id(out, channel.0);
}

/// A time near `now`, as the signed difference; [`Nanos::MAX`] and the like stay exact by wrapping.
fn put_time(out: &mut Vec<u8>, time: Nanos, now: Nanos) {
    put_signed(out, time.0.wrapping_sub(now.0) as i64);
}

fn put_source(out: &mut Vec<u8>, source: IrqSource) {
    let number = match source {
        IrqSource::Timer => 0,
        IrqSource::Ipi => 1,
        IrqSource::Device(irq) => u64::from(irq) + 2,
    };
    put_varint(out, number);
}

fn put_rest(out: &mut Vec<u8>, kind: &EventKind, now: Nanos) {
    match *kind {
        EventKind::Switch { prev_state, next, .. } => {
            out.push(prev_state as u8);
            put_id(out, next.0);
        }
        EventKind::Waking { context, wakee, wakee_cpu, .. } => {
            out.push(context as u8);
            put_id(out, wakee.0);
            put_id(out, wakee_cpu.0);
        }
        EventKind::WakeupNew { target_cpu, .. } => put_id(out, target_cpu.0),
        EventKind::Migrate { from, to, .. } => {
            put_id(out, from.0);
            put_id(out, to.0);
        }
        EventKind::Fork { child, .. } => put_id(out, child.0),
        EventKind::Exec { .. } | EventKind::Exit { .. } => {}
        EventKind::AttributesChanged { policy, nice, rt_priority, .. } => {
            out.push(policy.number() as u8);
            out.push(i8::from(nice) as u8);
            out.push(rt_priority);
        }
        EventKind::IrqEnter { source } | EventKind::IrqExit { source } => put_source(out, source),
        EventKind::SoftirqEnter { vector } | EventKind::SoftirqExit { vector } => out.push(vector),
        EventKind::TimerExpire { due, .. } => put_time(out, due, now),
        EventKind::OperationEnter { operation, channel, amount, .. } => {
            put_operation(out, operation, channel);
            put_amount(out, operation, amount, now);
        }
        EventKind::OperationExit { operation, channel, result, .. } => {
            put_operation(out, operation, channel);
            put_signed(out, result);
        }
        EventKind::AffinityChanged { set, .. } => put_id(out, set),
        EventKind::SliceChanged { slice, .. } => put_varint(out, slice.0),
        EventKind::PriorityLent { lender, prio, .. } => {
            put_id(out, lender.0);
            out.push(prio);
        }
        EventKind::Job { released, deadline, .. } => {
            put_time(out, released, now);
            put_time(out, deadline, now);
        }
        EventKind::Rank { key, .. } => put_signed(out, key),
        EventKind::Vruntime { vruntime, .. } => put_signed(out, vruntime),
        EventKind::CacheUse { references, misses, .. } => {
            put_varint(out, references);
            put_varint(out, misses);
        }
        EventKind::Priority { before, after, cause, .. } => out.extend([before, after, cause as u8]),
    }
}

/// An absolute sleep's end lies near now; a missing timeout is `u64::MAX`; both are short as differences.
fn put_amount(out: &mut Vec<u8>, operation: Operation, amount: u64, now: Nanos) {
    match operation {
        Operation::SleepAbsolute => put_time(out, Nanos(amount), now),
        _ => put_varint(out, amount.wrapping_add(1)),
    }
}

fn get_time(input: &mut Input<'_>, now: Nanos) -> Result<Nanos, WireError> {
    Ok(Nanos(now.0.wrapping_add(input.signed()? as u64)))
}

fn get_amount(input: &mut Input<'_>, operation: Operation, now: Nanos) -> Result<u64, WireError> {
    match operation {
        Operation::SleepAbsolute => get_time(input, now).map(Nanos::as_nanos),
        _ => Ok(input.varint()?.wrapping_sub(1)),
    }
}

fn get_listed<T: Copy>(input: &mut Input<'_>, list: &[T]) -> Result<T, WireError> {
    list.get(usize::from(input.byte()?)).copied().ok_or("an unknown enumerator")
}

fn get_source(input: &mut Input<'_>) -> Result<IrqSource, WireError> {
    Ok(match input.varint()? {
        0 => IrqSource::Timer,
        1 => IrqSource::Ipi,
        irq => IrqSource::Device(u32::try_from(irq - 2).map_err(|_| "an interrupt number is too large")?),
    })
}

fn get_cpu(input: &mut Input<'_>) -> Result<CpuId, WireError> {
    let cpu = CpuId(input.varint_u32()?);
    if cpu.index() < CPUS_MAX { Ok(cpu) } else { Err("a CPU number exceeds 1023") }
}

fn get_task(input: &mut Input<'_>) -> Result<TaskId, WireError> {
    input.varint_u32().map(TaskId)
}

fn get_channel(input: &mut Input<'_>) -> Result<ChannelId, WireError> {
    input.varint_u32().map(ChannelId)
}

fn get_attributes(input: &mut Input<'_>, task: TaskId) -> Result<EventKind, WireError> {
    let policy = Policy::from_number(u32::from(input.byte()?)).ok_or("an unknown policy")?;
    let nice = Nice::try_from(input.byte()? as i8).map_err(|_| "a nice value out of range")?;
    Ok(EventKind::AttributesChanged { task, policy, nice, rt_priority: input.byte()? })
}

fn get_rest(input: &mut Input<'_>, tag: u8, task: TaskId, now: Nanos) -> Result<EventKind, WireError> {
    Ok(match tag {
        0 => EventKind::Switch {
            prev: task,
            prev_state: get_listed(input, &PREV_STATES)?,
            next: get_task(input)?,
        },
        1 => EventKind::Waking {
            waker: task,
            context: get_listed(input, &CONTEXTS)?,
            wakee: get_task(input)?,
            wakee_cpu: get_cpu(input)?,
        },
        2 => EventKind::WakeupNew { task, target_cpu: get_cpu(input)? },
        3 => EventKind::Migrate { task, from: get_cpu(input)?, to: get_cpu(input)? },
        4 => EventKind::Fork { parent: task, child: get_task(input)? },
        5 => EventKind::Exec { task },
        6 => EventKind::Exit { task },
        7 => get_attributes(input, task)?,
        8 => EventKind::IrqEnter { source: get_source(input)? },
        9 => EventKind::IrqExit { source: get_source(input)? },
        10 => EventKind::SoftirqEnter { vector: input.byte()? },
        11 => EventKind::SoftirqExit { vector: input.byte()? },
        12 => EventKind::TimerExpire { task, due: get_time(input, now)? },
        13..=14 => get_operation(input, tag, task, now)?,
        15 => EventKind::Job { task, released: get_time(input, now)?, deadline: get_time(input, now)? },
        16 => EventKind::Rank { task, key: input.signed()? },
        17 => EventKind::AffinityChanged { task, set: input.varint_u32()? },
        18 => EventKind::SliceChanged { task, slice: Nanos(input.varint()?) },
        19 => EventKind::PriorityLent { task, lender: get_task(input)?, prio: input.byte()? },
        20 => EventKind::Priority {
            task,
            before: input.byte()?,
            after: input.byte()?,
            cause: get_listed(input, &PriorityCause::ALL)?,
        },
        21 => EventKind::Vruntime { task, clock: VruntimeClock::Fair, vruntime: input.signed()? },
        22 => EventKind::Vruntime { task, clock: VruntimeClock::Ext, vruntime: input.signed()? },
        23 => EventKind::CacheUse { task, references: input.varint()?, misses: input.varint()? },
        _ => return Err("an unknown kind of event"),
    })
}

fn get_operation(input: &mut Input<'_>, tag: u8, task: TaskId, now: Nanos) -> Result<EventKind, WireError> {
    let operation = get_listed(input, &Operation::ALL)?;
    let channel = get_channel(input)?;
    if tag == 14 {
        return Ok(EventKind::OperationExit { task, operation, channel, result: input.signed()? });
    }
    let amount = get_amount(input, operation, now)?;
    Ok(EventKind::OperationEnter { task, operation, channel, amount })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_follow_the_enumerators() {
        Operation::ALL
            .iter()
            .enumerate()
            .for_each(|(index, &operation)| assert_eq!(operation as usize, index));
        PREV_STATES.iter().enumerate().for_each(|(index, &state)| assert_eq!(state as usize, index));
        PriorityCause::ALL.iter().enumerate().for_each(|(index, &cause)| assert_eq!(cause as usize, index));
        CONTEXTS.iter().enumerate().for_each(|(index, &context)| assert_eq!(context as usize, index));
    }

    #[test]
    fn a_quiet_operation_takes_few_bytes() {
        let mut coder = EventCoder::new(Nanos(0));
        let mut out = Vec::new();
        let cpu = CpuId(1);
        let next = TaskId(300);
        let kind = EventKind::Switch { prev: TaskId(0), prev_state: PrevState::Runnable, next };
        coder.put(&mut out, Nanos(10), cpu, &kind);
        let before = out.len();
        let (operation, channel) = (Operation::SocketSend, ChannelId(90));
        let kind = EventKind::OperationExit { task: next, operation, channel, result: 100 };
        coder.put(&mut out, Nanos(1_200), cpu, &kind);
        assert_eq!(out.len() - before, 7);
    }
}
