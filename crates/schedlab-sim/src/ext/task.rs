//! A task as the ext class keeps it: what `struct sched_ext_entity` holds that programs do not read.
//!
//! Slice and virtual time live in the task's `struct task_struct` in the region, where programs read and
//! write them; [`super::objects`] reads them from there.

use super::consts::SCX_DSQ_INVALID;
use super::dsq::{DsqIndex, NIL};
use super::kernel::TaskOffsets;
use crate::ahead::Row;
use schedlab_bpf::memory::Memory;

/// Life of a task in the class (`enum scx_task_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Life {
    /// `ops.init_task()` was not called.
    None,
    /// Initialised, in another class.
    Ready,
    /// In this class.
    Enabled,
}

/// Who owns the task (`enum scx_ops_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpsState {
    /// The class.
    None,
    /// On its way to the scheduler: `ops.enqueue()` runs.
    Queueing,
    /// The scheduler.
    Queued,
}

/// One task, in whole cache lines.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Entity {
    /// Address of its `struct task_struct`; 0 before there is one.
    pub address: u64,
    /// `SCX_TASK_*`.
    pub flags: u32,
    /// Its CPU (`task_cpu()`).
    pub cpu: u32,
    pub ops_state: OpsState,
    pub life: Life,
    /// A CPU was chosen for the wake-up in progress.
    pub selected: bool,
    /// Waits on its CPU's list of direct dispatches to other CPUs' local queues.
    pub deferred: bool,
    /// On its CPU's list of runnable tasks that wait.
    pub runnable: bool,
    pub exiting: bool,
    pub linked: bool,
    pub on_priq: bool,
    /// Target of a move in progress, or -1.
    pub sticky_cpu: i32,
    /// Counts enqueues, so that a late dispatch is recognised.
    pub qseq: u64,
    /// Where a direct dispatch goes, or [`SCX_DSQ_INVALID`].
    pub ddsp_dsq_id: u64,
    pub ddsp_enq_flags: u64,
    /// The queue it is in.
    pub dsq: Option<DsqIndex>,
    pub nr_cpus_allowed: u32,
    pub selected_cpu: i32,
    /// Neighbours in the queue.
    pub prev: u32,
    pub next: u32,
    pub dsq_seq: u32,
    /// Virtual time at insertion.
    pub vtime_key: u64,
    /// Since when it is runnable without having run.
    pub runnable_at: u64,
    /// Its place in that list: lower is earlier.
    pub runnable_seq: u64,
    /// Its cgroup: an index of the scheduler's.
    pub cgroup: u32,
    /// Last key given to pictures.
    pub rank: u64,
}

impl Row for Entity {
    const HOT_BYTES: usize = size_of::<Entity>();
}

impl Entity {
    /// A task without anything (`init_scx_entity`).
    pub(crate) fn new(now: u64) -> Entity {
        Entity {
            address: 0,
            flags: 0,
            cpu: 0,
            life: Life::None,
            ops_state: OpsState::None,
            qseq: 0,
            ddsp_dsq_id: SCX_DSQ_INVALID,
            ddsp_enq_flags: 0,
            dsq: None,
            prev: NIL,
            next: NIL,
            linked: false,
            on_priq: false,
            dsq_seq: 0,
            vtime_key: 0,
            deferred: false,
            sticky_cpu: -1,
            selected_cpu: 0,
            selected: false,
            runnable_at: now,
            runnable: false,
            runnable_seq: 0,
            exiting: false,
            cgroup: 0,
            nr_cpus_allowed: 0,
            rank: 0,
        }
    }

    /// Sets `SCX_TASK_*` flags where the class and where programs see them.
    #[inline]
    pub(crate) fn set_flags(&mut self, memory: &mut Memory, at: &TaskOffsets, set: u32, clear: u32) {
        self.flags = self.flags & !clear | set;
        memory.write_u32(self.address + at.scx_flags, self.flags);
    }

    /// Forgets a direct dispatch.
    #[inline]
    pub(crate) fn clear_direct(&mut self) {
        (self.ddsp_dsq_id, self.ddsp_enq_flags) = (SCX_DSQ_INVALID, 0);
    }

    /// Whether every one of these flags is set.
    #[inline]
    pub(crate) fn has(&self, flags: u32) -> bool {
        self.flags & flags == flags
    }
}
