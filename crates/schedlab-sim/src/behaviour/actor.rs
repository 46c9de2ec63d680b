//! State of one task's program.

use crate::ahead::Row;
use schedlab_model::rng::Rng;
use schedlab_model::{ChannelId, CpuId, TaskId};

/// What a task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Nothing.
    None,
    /// A timer.
    Timer,
    /// An interrupt of a device on that CPU.
    Device(CpuId),
    /// Something to take out of a channel.
    Take(ChannelId),
    /// Room in a channel.
    Room(ChannelId),
    /// Any of the channels of a list.
    Any(u32),
    /// A mutex.
    Lock(ChannelId),
    /// A condition.
    Condition(ChannelId),
    /// The others at a barrier.
    Barrier(ChannelId),
    /// Its children.
    Children,
}

/// Loops that are kept beside the task itself.
const LOOPS_NEAR: usize = 4;

/// Rounds left of the open loops; the outer ones, which nearly all programs only have, need no allocation.
#[derive(Clone, Debug, Default)]
#[repr(C)]
pub(crate) struct Loops {
    depth: u32,
    near: [u32; LOOPS_NEAR],
    far: Vec<u32>,
}

impl Loops {
    /// Opens a loop.
    #[inline]
    pub(crate) fn push(&mut self, rounds: u32) {
        match self.near.get_mut(self.depth as usize) {
            Some(near) => *near = rounds,
            None => self.far.push(rounds),
        }
        self.depth += 1;
    }

    /// The innermost loop.
    #[inline]
    pub(crate) fn last_mut(&mut self) -> Option<&mut u32> {
        let last = (self.depth as usize).checked_sub(1)?;
        if last < LOOPS_NEAR { self.near.get_mut(last) } else { self.far.last_mut() }
    }

    /// Closes the innermost loop.
    #[inline]
    pub(crate) fn pop(&mut self) {
        if self.depth as usize > LOOPS_NEAR {
            self.far.pop();
        }
        self.depth = self.depth.saturating_sub(1);
    }
}

/// A task's program while it runs; what most steps touch lies in the first cache line.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Actor {
    /// Next step.
    pub(crate) pc: u32,
    /// Its timeout came before what it waited for.
    pub(crate) timed_out: bool,
    /// The current step has done its first half (condition wait: woken, needs the lock).
    pub(crate) halfway: bool,
    /// What the current step's call takes by itself was charged.
    pub(crate) paid: bool,
    /// The lock it wants was held when it came.
    pub(crate) met_holder: bool,
    /// What it waits for.
    pub(crate) wait: Wait,
    /// When the pending timer is due, without slack.
    pub(crate) timer_due: u64,
    /// Its draws.
    pub(crate) rng: Rng,
    /// Rounds left of the open loops, innermost last; 0 is for ever.
    pub(crate) loops: Loops,
    /// Bytes of the current send still to be written.
    pub(crate) pending: u64,
    /// Last expiry of each of its own periodic timers, by number; `None` before the first call.
    pub(crate) own_timers: Vec<Option<u64>>,
    /// When the current spin ends.
    pub(crate) spin_until: Option<u64>,
    /// Open job: release and deadline.
    pub(crate) job: Option<(u64, u64)>,
    /// Children alive.
    pub(crate) children: u32,
    /// Who forked it.
    pub(crate) parent: TaskId,
    /// Where it touched shared memory last.
    pub(crate) touched_on: Option<CpuId>,
    /// The operation told to the sink and not yet ended, and its step.
    pub(crate) open: Option<(u32, super::operation::Call)>,
    /// Sending ends it has open.
    pub(crate) sends_to: Vec<ChannelId>,
}

impl Row for Actor {
    const HOT_BYTES: usize = std::mem::offset_of!(Actor, loops) + std::mem::offset_of!(Loops, far);
}

impl Actor {
    /// Opens a loop, 0 rounds for ever, and goes to its body.
    #[inline]
    pub(crate) fn start_loop(&mut self, rounds: u32) {
        self.loops.push(rounds);
        self.pc += 1;
    }

    /// Ends a round: back to the body, or past the loop.
    #[inline]
    pub(crate) fn end_loop(&mut self, body: u32) {
        let rounds = self.loops.last_mut().expect("a loop end has its start");
        if *rounds == 1 {
            self.loops.pop();
            self.pc += 1;
        } else {
            *rounds = rounds.saturating_sub(1);
            self.pc = body;
        }
    }

    /// Before the first step.
    pub(crate) fn new(
        pc: u32,
        parent: TaskId,
        sends_to: Vec<ChannelId>,
        rng: Rng,
        own_timers: usize,
    ) -> Actor {
        Actor {
            pc,
            loops: Loops::default(),
            wait: Wait::None,
            timed_out: false,
            halfway: false,
            paid: false,
            met_holder: false,
            pending: 0,
            timer_due: 0,
            own_timers: vec![None; own_timers],
            spin_until: None,
            job: None,
            children: 0,
            parent,
            touched_on: None,
            open: None,
            sends_to,
            rng,
        }
    }
}
