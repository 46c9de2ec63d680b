//! What leaves the simulation: events, their running hash, counts.
//!
//! Classes and core emit into a small buffer that the event loop hands to the sink when it is full; so nothing
//! below the loop is generic over the sink, and the sink's code and data do not push the simulator's out of the
//! nearest cache at every event. The hash covers every event a sink without detail sees, so it does not
//! depend on who listens.

use schedlab_model::event::{Event, EventKind, PrevState};
use schedlab_model::{CpuId, Nanos, TaskId};
use std::hint::cold_path;

/// Events that are handed over at once: some 100 switches, and few enough for the nearest cache.
const BUFFERED: usize = 256;

/// Events on their way out.
#[derive(Default)]
pub(crate) struct Trace {
    buffer: Vec<Event>,
    /// Whether anybody takes events.
    pub(crate) keep: bool,
    /// Whether the sink wants rank, interrupt and operation events.
    pub(crate) detail: bool,
    hash: [u64; 2],
    /// Switches so far, to and from idle included.
    pub(crate) switches: u64,
}

impl Trace {
    /// Emits an event that every sink sees. Always inlined: each caller's kind is known there.
    #[inline(always)]
    pub(crate) fn emit(&mut self, now: u64, cpu: CpuId, kind: EventKind) {
        let (tag, a, b) = digest(&kind);
        self.mix(now, (u64::from(cpu.0) << 8) | tag, a, b);
        if self.keep {
            // Where nobody listens, the code of those who do shall not lie in between.
            cold_path();
            self.push(Event { time: Nanos(now), cpu, kind });
        }
    }

    #[inline(never)]
    fn push(&mut self, event: Event) {
        self.buffer.push(event);
    }

    /// Emits an event that only detailed sinks see; not part of the hash. `make` runs only if wanted.
    #[inline]
    pub(crate) fn emit_detail(&mut self, now: u64, cpu: CpuId, make: impl FnOnce() -> EventKind) {
        if self.detail {
            self.push_detail(now, cpu, make);
        }
    }

    #[cold]
    #[inline(never)]
    fn push_detail(&mut self, now: u64, cpu: CpuId, make: impl FnOnce() -> EventKind) {
        self.buffer.push(Event { time: Nanos(now), cpu, kind: make() });
    }

    /// Puts events that only detailed sinks see among those not handed over yet, each after what happened by then.
    pub(crate) fn insert_detail(&mut self, events: impl Iterator<Item = Event>) {
        for event in events {
            let at = self.buffer.partition_point(|known| known.time <= event.time);
            self.buffer.insert(at, event);
        }
    }

    /// Emits a switch.
    #[inline]
    pub(crate) fn switch(&mut self, now: u64, cpu: CpuId, prev: TaskId, prev_state: PrevState, next: TaskId) {
        self.switches += 1;
        self.emit(now, cpu, EventKind::Switch { prev, prev_state, next });
    }

    /// Whether it is time to hand over what is buffered.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.buffer.len() >= BUFFERED
    }

    /// Hands what is buffered to `take`, in order.
    pub(crate) fn drain(&mut self, take: impl FnOnce(&[Event])) {
        if !self.buffer.is_empty() {
            take(&self.buffer);
            self.buffer.clear();
        }
    }

    #[inline]
    fn mix(&mut self, time: u64, place: u64, a: u64, b: u64) {
        let first = fold(self.hash[0] ^ time, place ^ 0x9e37_79b9_7f4a_7c15);
        let second = fold(self.hash[1] ^ a ^ 0xa076_1d64_78bd_642f, b ^ 0xe703_7ed1_a0b4_28db);
        self.hash = [first.wrapping_add(self.hash[1].rotate_left(23)), second.wrapping_add(first)];
    }

    /// The hash over everything emitted so far, in hexadecimal.
    pub(crate) fn hash_text(&self) -> String {
        format!("{:016x}{:016x}", self.hash[0], self.hash[1])
    }
}

/// 64×64-bit product folded to 64 bits.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// An event's kind as three numbers that tell it from every other.
#[inline(always)]
fn digest(kind: &EventKind) -> (u64, u64, u64) {
    let pair = |a: TaskId, b: TaskId| (u64::from(a.0) << 32) | u64::from(b.0);
    match *kind {
        EventKind::Switch { prev, prev_state, next } => (1, pair(prev, next), prev_state as u64),
        EventKind::Waking { waker, context, wakee, wakee_cpu } => {
            (2, pair(waker, wakee), (u64::from(wakee_cpu.0) << 8) | context as u64)
        }
        EventKind::WakeupNew { task, target_cpu } => (3, u64::from(task.0), u64::from(target_cpu.0)),
        EventKind::Migrate { task, from, to } => {
            (4, u64::from(task.0), (u64::from(from.0) << 32) | u64::from(to.0))
        }
        EventKind::Fork { parent, child } => (5, pair(parent, child), 0),
        EventKind::Exec { task } => (6, u64::from(task.0), 0),
        EventKind::Exit { task } => (7, u64::from(task.0), 0),
        EventKind::AttributesChanged { task, policy, nice, rt_priority } => (
            8,
            u64::from(task.0),
            ((nice.get() as u64) << 16) | u64::from(policy.number() << 8) | u64::from(rt_priority),
        ),
        EventKind::TimerExpire { task, due } => (9, u64::from(task.0), due.0),
        EventKind::Job { task, released, deadline } => {
            (10, u64::from(task.0) ^ released.0.rotate_left(32), deadline.0)
        }
        _ => (11, 0, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_sees_order_and_content() {
        let hash = |events: &[(u64, u32)]| {
            let mut trace = Trace::default();
            for (time, task) in events {
                trace.emit(*time, CpuId(0), EventKind::Exit { task: TaskId(*task) });
            }
            trace.hash_text()
        };
        assert_eq!(hash(&[(1, 1), (2, 2)]), hash(&[(1, 1), (2, 2)]));
        assert_ne!(hash(&[(1, 1), (2, 2)]), hash(&[(1, 2), (2, 1)]));
        assert_ne!(hash(&[(1, 1)]), hash(&[(1, 1), (1, 1)]));
    }
}
