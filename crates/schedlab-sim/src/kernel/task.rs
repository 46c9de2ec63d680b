//! One task: what `struct task_struct` keeps for scheduling, with each class's own part embedded.

use crate::ahead::Row;
use crate::rt::RtEntity;
use schedlab_model::{CpuId, Nice, Policy, TaskAttributes, TaskId};

/// Scheduling classes in the order of Linux's linker script, weakest first: ext is below fair, which
/// matters only under `SCX_OPS_SWITCH_PARTIAL`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    /// Nothing to run.
    Idle,
    /// A BPF object decides.
    Ext,
    /// EEVDF.
    Fair,
    /// FIFO and RR.
    Rt,
}

/// Life of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskState {
    /// Not yet started.
    New,
    /// Running or waiting for a CPU.
    Runnable,
    /// Waiting for something.
    Sleeping,
    /// Ended.
    Dead,
}

/// A task. Whole cache lines, what every switch and wake-up touches in the first two: a large machine's tasks are
/// far more than the nearest cache holds.
#[repr(C, align(64))]
pub(crate) struct Task {
    /// Its state; a sleeping fair task may still be on its queue (`sched_delayed`).
    pub(crate) state: TaskState,
    /// Its class.
    pub(crate) class: Class,
    /// On a run queue (running included), as `p->on_rq`.
    pub(crate) on_rq: bool,
    /// Policy.
    pub(crate) policy: Policy,
    /// Its CPU, or the last one.
    pub(crate) cpu: CpuId,
    /// Where it ran last, for cache warmth; `None` before its first run.
    pub(crate) last_ran: Option<CpuId>,
    /// Size of the affinity mask.
    pub(crate) nr_allowed: u32,
    /// Weight in the fair class, unscaled.
    pub(crate) weight: u32,
    /// ns of work at capacity 1024 left of what it does now.
    pub(crate) work_left: u64,
    /// When it became runnable without running; `None` otherwise.
    pub(crate) queued_since: Option<u64>,
    /// Runnable but waiting, in all.
    pub(crate) run_delay: u64,
    /// Longest such wait.
    pub(crate) run_delay_max: u64,
    /// When it was put on its CPU last, for `task_hot` and sums.
    pub(crate) exec_start: u64,
    /// CPU time, kernel overhead on its account included.
    pub(crate) sum_exec: u64,
    /// `sum_exec` when it was put on its CPU last.
    pub(crate) prev_sum_exec: u64,
    /// Switches away while asleep.
    pub(crate) nvcsw: u64,
    /// Switches away while runnable.
    pub(crate) nivcsw: u64,
    /// Moves between CPUs.
    pub(crate) migrations: u64,
    /// `p->recent_used_cpu`.
    pub(crate) recent_used_cpu: CpuId,
    /// Partner statistics of `wake_wide`: how often it woke another than last time.
    pub(crate) wakee_flips: u32,
    /// Nice value.
    pub(crate) nice: Nice,
    /// 1 to 99, 0 outside the real-time class.
    pub(crate) rt_priority: u8,
    /// Custom slice in ns, 0 for none.
    pub(crate) custom_slice: u64,
    /// Belongs to what is measured.
    pub(crate) target: bool,
    /// It waits for a disk: no signal would wake it.
    pub(crate) is_uninterruptible: bool,
    /// Kernel thread.
    pub(crate) kernel_thread: bool,
    /// Tasks of one process share this number.
    pub(crate) process: u32,
    /// Who forked it, idle for the workload's own tasks.
    pub(crate) parent: TaskId,
    /// Row of the workload it is made from.
    pub(crate) spec: u32,
    /// Whom it woke last, and when `wakee_flips` decayed.
    pub(crate) last_wakee: TaskId,
    pub(crate) wakee_flip_decay: u64,
    /// The real-time class's part.
    pub(crate) rt: RtEntity,
}

impl Row for Task {
    const HOT_BYTES: usize = std::mem::offset_of!(Task, custom_slice);
}

impl Task {
    /// The idle task.
    pub(crate) fn idle() -> Task {
        let mut task = Task::new(&TaskAttributes::default(), 1024, TaskId::IDLE, 0);
        task.class = Class::Idle;
        task.state = TaskState::Runnable;
        task
    }

    /// A new task with these attributes, and the weight that they have in the run's table.
    pub(crate) fn new(attributes: &TaskAttributes, weight: u32, parent: TaskId, spec: u32) -> Task {
        let mut task = Task {
            state: TaskState::New,
            class: Class::Fair,
            on_rq: false,
            cpu: CpuId(0),
            last_ran: None,
            policy: Policy::Normal,
            nice: Nice::ZERO,
            rt_priority: 0,
            weight: 1024,
            nr_allowed: 0,
            work_left: 0,
            custom_slice: 0,
            target: false,
            is_uninterruptible: false,
            kernel_thread: attributes.kernel_thread,
            process: 0,
            parent,
            spec,
            exec_start: 0,
            sum_exec: 0,
            prev_sum_exec: 0,
            queued_since: None,
            run_delay: 0,
            run_delay_max: 0,
            nvcsw: 0,
            nivcsw: 0,
            migrations: 0,
            last_wakee: TaskId::IDLE,
            wakee_flips: 0,
            wakee_flip_decay: 0,
            recent_used_cpu: CpuId(0),
            rt: RtEntity::default(),
        };
        task.set_attributes(attributes, weight);
        task
    }

    /// Takes policy, nice, priority and slice; the class follows from the policy (ext is the core's choice).
    pub(crate) fn set_attributes(&mut self, attributes: &TaskAttributes, weight: u32) {
        self.policy = attributes.policy;
        self.nice = attributes.nice;
        self.rt_priority = attributes.rt_priority;
        self.custom_slice = attributes.slice.map_or(0, |slice| slice.0);
        self.weight = weight;
        self.class = match self.policy {
            Policy::Fifo | Policy::Rr | Policy::Deadline => Class::Rt,
            _ => Class::Fair,
        };
    }

    /// Whether these scheduling attributes are the task's already.
    pub(crate) fn has_attributes(&self, attributes: &TaskAttributes) -> bool {
        let slice = attributes.slice.map_or(0, |slice| slice.0);
        (self.policy, self.nice, self.rt_priority, self.custom_slice)
            == (attributes.policy, attributes.nice, attributes.rt_priority, slice)
    }

    /// `p->__state` while it sleeps: `TASK_INTERRUPTIBLE` or `TASK_UNINTERRUPTIBLE`.
    pub(crate) fn sleep_state(&self) -> u32 {
        1 << u32::from(self.is_uninterruptible)
    }

    /// `p->prio`: lower is stronger.
    pub(crate) fn prio(&self) -> i32 {
        match self.class {
            Class::Rt => 99 - i32::from(self.rt_priority),
            _ => 120 + self.nice.get(),
        }
    }

    /// `task_has_idle_policy`.
    #[inline]
    pub(crate) fn has_idle_policy(&self) -> bool {
        self.policy == Policy::Idle
    }
}
