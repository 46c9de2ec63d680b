//! The ext class: runs a sched_ext scheduler from its BPF object file. Placeholder for the seam: no object
//! can be loaded yet, so the class never has a task.
//!
//! # How it plugs in
//! [`crate::core::Core`] owns one [`Ext`] beside the [`Kernel`] and lends the kernel for each call. The
//! methods below are the whole seam; each says when the core calls it. What the class may do inside:
//! * [`Kernel::resched_curr`] (kick with an interrupt: `SCX_KICK_PREEMPT`, or any kick of an idle CPU),
//! * [`Kernel::charge`] (executed BPF instructions and callback entry cost the CPU time),
//! * [`Kernel::set_task_cpu`] for a task that is on no run queue but its own DSQ (the move from a shared DSQ
//!   to another CPU's local DSQ), [`Kernel::add_nr_running`] on both CPUs around it,
//! * [`Kernel::arm_ext_timer`] / [`Kernel::cancel_ext_timer`] (`bpf_timer`, watchdog): due ones come back
//!   through [`Ext::timer_expired`],
//! * [`Kernel::publish_rank`] after a task's key changed.
//!
//! `nr_running` is counted by the class, as Linux does: +1 in `enqueue_task`, -1 in `dequeue_task`. A task
//! that was enqueued and not yet dispatched counts on the CPU it is queued on.
//!
//! An error is remembered by the class; the core asks [`Ext::take_exit`] after every event and, if there is
//! one, moves every ext task to the fair class (dequeue, change class, enqueue) and calls
//! [`Ext::disabled`]. From then on [`Ext::takes`] answers no.

use crate::error::SimError;
use crate::kernel::{Kernel, Slot};
use schedlab_model::outcome::SchedulerExit;
use schedlab_model::{CpuId, Policy, TaskId};

/// A loaded scheduler object, ready to be attached to any number of simulations.
#[derive(Clone, Debug)]
pub struct ExtScheduler {
    name: String,
}

impl ExtScheduler {
    /// Name of the scheduler (`sched_ext_ops::name`).
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// The class's state in one simulation.
#[derive(Default)]
pub(crate) struct Ext {}

impl Ext {
    /// Attaches a scheduler with these knobs set (those the fair class does not know); no task exists yet.
    /// `ops.init` runs in [`Ext::start`].
    pub(crate) fn new(scheduler: &ExtScheduler, _knobs: &[(String, i64)]) -> Result<Ext, SimError> {
        Err(SimError::Scheduler {
            name: scheduler.name.clone(),
            reason: "sched_ext objects are not simulated by this build".to_owned(),
        })
    }

    /// The run begins: `ops.init`, watchdog timer. Called once, before any task starts.
    pub(crate) fn start(&mut self, _k: &mut Kernel) {}

    /// Whether tasks of this policy belong to the class (all of NORMAL, BATCH, IDLE, EXT while a scheduler is
    /// enabled; only EXT under `SCX_OPS_SWITCH_PARTIAL`; none if disabled). Asked at fork and attribute change.
    pub(crate) fn takes(&self, _policy: Policy) -> bool {
        false
    }

    /// A new task exists (`ops.init_task`, then `ops.enable` if it [is taken](Ext::takes)); before its first
    /// placement. Called for every task of any class, as `scx_fork` does.
    pub(crate) fn init_task(&mut self, _k: &mut Kernel, _task: TaskId) {}

    /// The task is gone (`ops.disable`, `ops.exit_task`), after its last dequeue and switch.
    pub(crate) fn exit_task(&mut self, _k: &mut Kernel, _task: TaskId) {}

    /// The task joins the class (`ops.enable`), off its queue.
    pub(crate) fn switched_to(&mut self, _k: &mut Kernel, _task: TaskId) {}

    /// The task leaves the class for another (`ops.disable`), off its queue.
    pub(crate) fn switched_from(&mut self, _k: &mut Kernel, _task: TaskId) {}

    /// Weight (nice) of an ext task changed (`ops.set_weight`).
    pub(crate) fn reweight_task(&mut self, _k: &mut Kernel, _task: TaskId) {}

    /// Affinity of any task changed (`ops.set_cpumask`).
    pub(crate) fn set_cpus_allowed(&mut self, _k: &mut Kernel, _task: TaskId) {}

    /// `select_task_rq`: a wake-up or fork chooses a CPU; called only for tasks with more than one allowed
    /// CPU. The core checks the answer against the affinity mask and falls back to an allowed CPU.
    pub(crate) fn select_task_rq(
        &mut self,
        _k: &mut Kernel,
        _task: TaskId,
        prev_cpu: CpuId,
        _flags: u32,
    ) -> CpuId {
        prev_cpu
    }

    /// The task becomes runnable on `cpu` (`Task::cpu` is set), or returns to the queue after a change. Counts
    /// `nr_running`.
    pub(crate) fn enqueue_task(&mut self, _k: &mut Kernel, _cpu: CpuId, _task: TaskId, _flags: u32) {}

    /// The task leaves the queue: sleeps, ends, changes, moves. It may be the CPU's current task.
    pub(crate) fn dequeue_task(&mut self, _k: &mut Kernel, _cpu: CpuId, _task: TaskId, _flags: u32) {}

    /// The current task yields.
    pub(crate) fn yield_task(&mut self, _k: &mut Kernel, _cpu: CpuId) {}

    /// A task was queued on `cpu` whose current task is of this class too. Linux does nothing here.
    pub(crate) fn wakeup_preempt(&mut self, _k: &mut Kernel, _cpu: CpuId, _task: TaskId) {}

    /// Chooses the next task, running the whole dispatch cycle if needed; `prev` is the current task if it is
    /// of this class and still runnable (still queued, as in Linux). `None` if the class has nothing for the
    /// CPU. Called when rt and fair have nothing.
    pub(crate) fn pick_task(
        &mut self,
        _k: &mut Kernel,
        _cpu: CpuId,
        _prev: Option<TaskId>,
    ) -> Option<TaskId> {
        None
    }

    /// The task stops being current (`ops.stopping`; back on a queue if still `on_rq`). `next` is who comes.
    pub(crate) fn put_prev_task(&mut self, _k: &mut Kernel, _cpu: CpuId, _task: TaskId, _next: TaskId) {}

    /// The task becomes current (`ops.running`).
    pub(crate) fn set_next_task(&mut self, _k: &mut Kernel, _cpu: CpuId, _task: TaskId) {}

    /// Brings the current task's slice and sums up to now.
    pub(crate) fn update_curr(&mut self, _k: &mut Kernel, _cpu: CpuId) {}

    /// The tick found an ext task running.
    pub(crate) fn task_tick(&mut self, _k: &mut Kernel, _cpu: CpuId, _task: TaskId) {}

    /// The CPU enters (`true`) or leaves (`false`) idle (`ops.update_idle`, built-in idle masks).
    pub(crate) fn update_idle(&mut self, _k: &mut Kernel, _cpu: CpuId, _idle: bool) {}

    /// A timer armed with [`Kernel::arm_ext_timer`] is due.
    pub(crate) fn timer_expired(&mut self, _k: &mut Kernel, _token: u32) {}

    /// An error or exit since the last question; the core then disables the class.
    pub(crate) fn take_exit(&mut self) -> Option<SchedulerExit> {
        None
    }

    /// All tasks have been moved to the fair class: `ops.exit`, timers dropped.
    pub(crate) fn disabled(&mut self, k: &mut Kernel) {
        k.cancel(Slot::ExtTimer);
    }

    /// BPF instructions executed so far.
    pub(crate) fn bpf_instructions(&self) -> u64 {
        0
    }
}
