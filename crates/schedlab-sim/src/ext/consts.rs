//! Numbers of the kernel's sched_ext that the class itself decides by, spelled as the kernel spells them.
//!
//! The same numbers reach programs through the simulated kernel's BTF ([`super::kernel`]); a test keeps the
//! two equal. Source: include/linux/sched/ext.h, kernel/sched/ext/internal.h and kernel/sched/sched.h.

/// Slice given where the scheduler gave none.
pub const SCX_SLICE_DFL: u64 = 20_000_000;
/// Slice while the scheduler is bypassed.
pub const SCX_SLICE_BYPASS: u64 = 5_000_000;
/// Never expires.
pub const SCX_SLICE_INF: u64 = u64::MAX;
/// Inserts one `ops.dispatch()` may make, unless `dispatch_max_batch` says otherwise.
pub const SCX_DSP_DFL_MAX_BATCH: u32 = 32;
/// Calls of `ops.dispatch()` in one scheduling pass.
pub const SCX_DSP_MAX_LOOPS: u32 = 32;
/// Longest `timeout_ms`, and the one used when it is 0.
pub const SCX_WATCHDOG_MAX_TIMEOUT_MS: u32 = 30_000;
/// Reenqueue cycles of one local DSQ before the scheduler is ended.
pub const SCX_REENQ_LOCAL_MAX_REPEAT: u32 = 256;
/// Bytes of the debug dump unless `exit_dump_len` says otherwise.
pub const SCX_EXIT_DUMP_DFL_LEN: u32 = 32_768;
/// Exit code: a CPU came or went.
pub const SCX_ECODE_RSN_HOTPLUG: i64 = 1 << 32;
/// Exit code: loading the scheduler again is the remedy.
pub const SCX_ECODE_ACT_RESTART: i64 = 1 << 48;
/// Full performance of a CPU.
pub const SCX_CPUPERF_ONE: u64 = 1024;

/// Set in the ids of DSQs that the kernel owns.
pub const SCX_DSQ_FLAG_BUILTIN: u64 = 1 << 63;
/// No DSQ.
pub const SCX_DSQ_INVALID: u64 = SCX_DSQ_FLAG_BUILTIN;
/// The global DSQ (one a node).
pub const SCX_DSQ_GLOBAL: u64 = SCX_DSQ_FLAG_BUILTIN | 1;
/// The local DSQ of the CPU at hand.
pub const SCX_DSQ_LOCAL: u64 = SCX_DSQ_FLAG_BUILTIN | 2;
/// A CPU's DSQ while bypassing.
pub const SCX_DSQ_BYPASS: u64 = SCX_DSQ_FLAG_BUILTIN | 3;
/// The local DSQ of the CPU in the low half.
pub const SCX_DSQ_LOCAL_ON: u64 = SCX_DSQ_FLAG_BUILTIN | 1 << 62;
/// Where the CPU number of [`SCX_DSQ_LOCAL_ON`] lies.
pub const SCX_DSQ_LOCAL_CPU_MASK: u64 = 0xffff_ffff;

/// The task wakes up.
pub const SCX_ENQ_WAKEUP: u64 = 1;
/// Goes back after a change of attributes.
pub const ENQUEUE_RESTORE: u64 = 2;
/// Goes to the tail, not where it was.
pub const ENQUEUE_MOVE: u64 = 4;
/// The run queue's clock is fresh.
pub const ENQUEUE_NOCLOCK: u64 = 8;
/// A new task's first time.
pub const ENQUEUE_INITIAL: u64 = 0x0008_0000;
/// The class changes (since 7.0).
pub const ENQUEUE_CLASS: u64 = 0x40;
/// To the head of the queue.
pub const SCX_ENQ_HEAD: u64 = 0x0001_0000;
/// `ops.select_cpu()` was called.
pub const SCX_ENQ_CPU_SELECTED: u64 = 0x0010_0000;
/// Ends the slice of the CPU's current task.
pub const SCX_ENQ_PREEMPT: u64 = 1 << 32;
/// Runs at once or is reenqueued.
pub const SCX_ENQ_IMMED: u64 = 1 << 33;
/// Was in a DSQ and is enqueued again.
pub const SCX_ENQ_REENQ: u64 = 1 << 40;
/// The only task the CPU has.
pub const SCX_ENQ_LAST: u64 = 1 << 41;
/// Flags programs may not pass.
pub const SCX_ENQ_INTERNAL_MASK: u64 = 0xff << 56;
/// Ownership returns to the class with this insertion.
pub const SCX_ENQ_CLEAR_OPSS: u64 = 1 << 56;
/// Ordered by virtual time.
pub const SCX_ENQ_DSQ_PRIQ: u64 = 1 << 57;
/// Fell back to the global DSQ.
pub const SCX_ENQ_GDSQ_FALLBACK: u64 = 1 << 59;

/// The task goes to sleep.
pub const SCX_DEQ_SLEEP: u64 = 1;
/// Taken out for a change of attributes.
pub const DEQUEUE_SAVE: u64 = 2;
/// A change of attributes (7.1 and later).
pub const SCX_DEQ_SCHED_CHANGE: u64 = 1 << 33;

/// Woken by `fork`.
pub const SCX_WAKE_FORK: u64 = 4;
/// Woken by `try_to_wake_up`.
pub const SCX_WAKE_TTWU: u64 = 8;
/// The waker is about to sleep.
pub const SCX_WAKE_SYNC: u64 = 16;

/// Kick only if idle.
pub const SCX_KICK_IDLE: u64 = 1;
/// End the slice of the CPU's current task.
pub const SCX_KICK_PREEMPT: u64 = 2;
/// Wait until the kicked CPU has rescheduled.
pub const SCX_KICK_WAIT: u64 = 4;

/// Only CPUs whose whole core is idle.
pub const SCX_PICK_IDLE_CORE: u64 = 1;
/// Only CPUs of the given node.
pub const SCX_PICK_IDLE_IN_NODE: u64 = 2;

/// On the class's run queue.
pub const SCX_TASK_QUEUED: u32 = 1;
/// The scheduler owns it; `ops.dequeue()` is due when it leaves (7.1 and later).
pub const SCX_TASK_IN_CUSTODY: u32 = 2;
/// `runnable_at` is to be set at the next enqueue.
pub const SCX_TASK_RESET_RUNNABLE_AT: u32 = 4;
/// Last dequeued to sleep.
pub const SCX_TASK_DEQD_FOR_SLEEP: u32 = 8;
/// In a local DSQ under [`SCX_ENQ_IMMED`].
pub const SCX_TASK_IMMED: u32 = 32;
/// Where the reason of a reenqueue lies.
pub const SCX_TASK_REENQ_REASON_MASK: u32 = 3 << 12;
/// Reenqueued by a kfunc.
pub const SCX_TASK_REENQ_KFUNC: u32 = 1 << 12;
/// Reenqueued because it could not run at once.
pub const SCX_TASK_REENQ_IMMED: u32 = 2 << 12;
/// Reenqueued because it was preempted.
pub const SCX_TASK_REENQ_PREEMPTED: u32 = 3 << 12;

/// Reenqueue every task.
pub const SCX_REENQ_ANY: u64 = 1;
/// Flags of a reenqueue that programs may pass.
pub const SCX_REENQ_USER_MASK: u64 = SCX_REENQ_ANY;

/// Keep the built-in idle masks beside `ops.update_idle()`.
pub const SCX_OPS_KEEP_BUILTIN_IDLE: u64 = 1;
/// Pass the last task to `ops.enqueue()` too.
pub const SCX_OPS_ENQ_LAST: u64 = 2;
/// Pass exiting tasks too.
pub const SCX_OPS_ENQ_EXITING: u64 = 4;
/// Only tasks of policy SCHED_EXT.
pub const SCX_OPS_SWITCH_PARTIAL: u64 = 8;
/// Idle masks a node.
pub const SCX_OPS_BUILTIN_IDLE_PER_NODE: u64 = 1 << 6;
/// Every local insertion is [`SCX_ENQ_IMMED`].
pub const SCX_OPS_ALWAYS_ENQ_IMMED: u64 = 1 << 7;

/// `scx_bpf_tid_to_task()` may be called.
pub const SCX_OPS_TID_TO_TASK: u64 = 1 << 8;

/// Unregistered from user space.
pub const SCX_EXIT_UNREG: u32 = 64;
/// Unregistered by the program itself.
pub const SCX_EXIT_UNREG_BPF: u32 = 65;
/// Unregistered by the kernel.
pub const SCX_EXIT_UNREG_KERN: u32 = 66;
/// SysRq-S.
pub const SCX_EXIT_SYSRQ: u32 = 67;
/// A runtime error.
pub const SCX_EXIT_ERROR: u32 = 1024;
/// `scx_bpf_error()`.
pub const SCX_EXIT_ERROR_BPF: u32 = 1025;
/// A runnable task did not run.
pub const SCX_EXIT_ERROR_STALL: u32 = 1026;
/// `ops.init()` came through.
pub const SCX_EFLAG_INITIALIZED: u64 = 1;

/// Error numbers that kfuncs return, negated.
pub mod errno {
    /// No such DSQ.
    pub const ENOENT: i32 = 2;
    /// Exists already.
    pub const EEXIST: i32 = 17;
    /// Nothing idle.
    pub const EBUSY: i32 = 16;
    /// Bad argument.
    pub const EINVAL: i32 = 22;
    /// No memory.
    pub const ENOMEM: i32 = 12;
    /// A callback returned what is no error number.
    pub const EPROTO: i32 = 71;
    /// Not in this mode.
    pub const EOPNOTSUPP: i32 = 95;
}
