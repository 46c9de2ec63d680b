//! State of one channel and who waits at it. Waking is the caller's: methods say whom.

use crate::kernel::CostKind;
use schedlab_model::TaskId;
use schedlab_model::workload::{ChannelSpec, ChannelType};
use std::collections::VecDeque;

/// Writes up to this size go in whole or not at all (`PIPE_BUF`).
const ATOMIC_WRITE_BYTES: u64 = 4_096;

/// A channel.
#[derive(Debug)]
pub(crate) struct Channel {
    /// What it is.
    pub(crate) kind: ChannelType,
    /// Bytes that fit in (`u64::MAX` if unlimited) or parties of a barrier.
    pub(crate) capacity: u64,
    /// Bytes of room at which a waiting sender is woken.
    room_to_resume: u64,
    /// Room wakes all senders at a socket, not only the first.
    pub(crate) is_socket: bool,
    /// Bytes or tokens in it, or parties at the barrier.
    pub(crate) level: u64,
    /// Who waits to take something out, first come first.
    pub(crate) takers: VecDeque<TaskId>,
    /// Who waits for room.
    pub(crate) givers: VecDeque<TaskId>,
    /// Who waits for this or another channel.
    pub(crate) pollers: Vec<TaskId>,
    /// Who holds the mutex.
    pub(crate) holder: Option<TaskId>,
    /// The mutex says that others may wait (the word's value 2): its unlock wakes one of them. Who takes it without having
    /// waited does not see those who do, as with the locks of C libraries.
    pub(crate) contended: bool,
    /// Sending ends that are open.
    pub(crate) senders: u32,
    /// Whether it ever had one; without, an empty channel is waited at for ever.
    pub(crate) had_senders: bool,
}

impl Channel {
    /// At the start of the run.
    pub(crate) fn new(spec: &ChannelSpec) -> Channel {
        let unlimited = spec.kind == ChannelType::Bytes && spec.capacity == 0;
        Channel {
            kind: spec.kind,
            capacity: if unlimited { u64::MAX } else { spec.capacity },
            room_to_resume: spec.room_to_resume.min(spec.capacity),
            is_socket: spec.is_socket,
            level: spec.initial,
            takers: VecDeque::new(),
            givers: VecDeque::new(),
            pollers: Vec::new(),
            holder: None,
            contended: false,
            senders: 0,
            had_senders: false,
        }
    }

    /// What a call that sends or receives takes.
    pub(crate) fn call(&self) -> CostKind {
        if self.is_socket { CostKind::SocketCall } else { CostKind::PipeCall }
    }

    /// Whether all sending ends are closed: an empty channel is at its end.
    pub(crate) fn is_closed(&self) -> bool {
        self.had_senders && self.senders == 0
    }

    /// Whether a taker would not wait.
    pub(crate) fn is_ready(&self) -> bool {
        match self.kind {
            ChannelType::Mutex => self.holder.is_none(),
            _ => self.level > 0 || self.is_closed(),
        }
    }

    /// Whether somebody waits to take bytes or tokens out.
    pub(crate) fn starves(&self) -> bool {
        matches!(self.kind, ChannelType::Bytes | ChannelType::Tokens) && !self.takers.is_empty()
    }

    /// How many of `bytes` fit in now: all of a small write or nothing, as much as there is room of a large one. A message
    /// goes into a socket as long as its buffer is not full, and may reach beyond its end (`sock_alloc_send_pskb`).
    pub(crate) fn room_for(&self, bytes: u64) -> u64 {
        let room = self.room();
        if bytes <= room || (self.is_socket && room > 0 && bytes <= self.capacity) {
            bytes
        } else if bytes <= ATOMIC_WRITE_BYTES && bytes <= self.capacity {
            0
        } else {
            room
        }
    }

    fn room(&self) -> u64 {
        self.capacity.saturating_sub(self.level)
    }

    /// Whether a sender that waits with this much left to send is to be woken. At a socket it is not asked how much.
    pub(crate) fn resumes(&self, pending: u64) -> bool {
        self.room() >= self.room_to_resume && self.room_for(if self.is_socket { 1 } else { pending }) > 0
    }

    /// The sender to wake next, if there is room for it. A queue of exclusive waiters is served from its head, and
    /// others, who queue at the head, from the latest.
    pub(crate) fn next_giver(&self) -> Option<TaskId> {
        if self.is_socket { self.givers.back().copied() } else { self.givers.front().copied() }
    }

    /// Takes out who was told by `next_giver`, and says whether others are to be woken, too.
    pub(crate) fn remove_giver(&mut self) -> bool {
        if self.is_socket {
            self.givers.pop_back()
        } else {
            self.givers.pop_front()
        };
        self.is_socket
    }

    /// Removes a task that no longer waits (timed out).
    pub(crate) fn forget(&mut self, task: TaskId) {
        self.takers.retain(|other| *other != task);
        self.givers.retain(|other| *other != task);
        self.pollers.retain(|other| *other != task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_writes_are_whole_large_ones_are_not() {
        let spec = ChannelSpec {
            name: "p".into(),
            kind: ChannelType::Bytes,
            capacity: 65_536,
            initial: 65_000,
            room_to_resume: 0,
            is_socket: false,
        };
        let channel = Channel::new(&spec);
        assert_eq!(channel.room_for(500), 500);
        assert_eq!(channel.room_for(600), 0);
        assert_eq!(channel.room_for(10_000), 536);
        let tiny = Channel::new(&ChannelSpec { capacity: 100, initial: 0, ..spec });
        assert_eq!(tiny.room_for(300), 100, "a write that never fits goes in by parts");
    }

    #[test]
    fn a_message_may_reach_beyond_a_socket_s_end() {
        let mut spec = ChannelSpec {
            name: "s".into(),
            kind: ChannelType::Bytes,
            capacity: 1_000,
            initial: 950,
            room_to_resume: 750,
            is_socket: true,
        };
        assert_eq!(Channel::new(&spec).room_for(100), 100);
        assert!(!Channel::new(&spec).resumes(100));
        spec.initial = 250;
        assert!(Channel::new(&spec).resumes(1_000), "whoever waits looks for itself");
        spec.initial = 1_000;
        assert_eq!(Channel::new(&spec).room_for(1), 0, "it is full");
    }
}
