//! One CPU: who runs, what it still has to do, whether it must look for another task.

use crate::ahead::Row;
use schedlab_model::TaskId;

/// `TIF_NEED_RESCHED` and `TIF_NEED_RESCHED_LAZY`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resched {
    /// Neither.
    None,
    /// When the kernel is left anyway, at the latest at the tick.
    Lazy,
    /// As soon as possible.
    Now,
}

/// State of a CPU that does not belong to a class; what busy CPUs have no use for comes last.
#[repr(C, align(64))]
pub(crate) struct Cpu {
    /// Who runs; [`TaskId::IDLE`] if nobody.
    pub(crate) curr: TaskId,
    /// The reschedule mark.
    pub(crate) resched: Resched,
    /// The current task passed steps of its program on its way out of the kernel: at the end of the overhead it
    /// acts on a lazy mark.
    pub(crate) looks_at_exit: bool,
    /// Tasks of all classes, the current one included, delayed fair ones not.
    pub(crate) nr_running: u32,
    /// Computing capacity, 1 to 1024.
    pub(crate) capacity: u32,
    /// ns of kernel time to spend before the current task's work goes on.
    pub(crate) overhead: u64,
    /// Until when progress is accounted.
    pub(crate) settled_at: u64,
    /// Not preemptible before.
    pub(crate) kernel_until: u64,
    /// Total time switching and in interrupts.
    pub(crate) overhead_time: u64,
    /// When it went idle last; `None` while it runs.
    pub(crate) idle_since: Option<u64>,
    /// What the fair class takes its capacity to be (`arch_scale_cpu_capacity`): equal where it goes by priorities instead.
    pub(crate) scale: u32,
    /// `avg_idle`: moving average of idle periods, which newidle balancing compares with its cost.
    pub(crate) avg_idle: u64,
    /// `max_idle_balance_cost`: twice this caps `avg_idle`.
    pub(crate) max_idle_balance_cost: u64,
    /// Total time idle.
    pub(crate) idle_time: u64,
}

impl Row for Cpu {
    const HOT_BYTES: usize = std::mem::offset_of!(Cpu, scale);
}

impl Cpu {
    /// An idle CPU at time 0.
    pub(crate) fn new(capacity: u32, scale: u32) -> Cpu {
        Cpu {
            curr: TaskId::IDLE,
            resched: Resched::None,
            nr_running: 0,
            capacity,
            scale,
            overhead: 0,
            looks_at_exit: false,
            settled_at: 0,
            kernel_until: 0,
            idle_since: Some(0),
            avg_idle: 1_000_000,
            max_idle_balance_cost: 500_000,
            idle_time: 0,
            overhead_time: 0,
        }
    }
}
