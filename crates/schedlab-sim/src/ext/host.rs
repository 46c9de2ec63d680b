//! What kfuncs work on: the scheduler's queues, tasks, run queues and idle masks of one simulation.
//!
//! Programs run inside a [`Cx`], which lends this state and the region together. Nothing here reaches the
//! simulated kernel: what a callback asks of it is left in [`Host::effects`] and carried out by
//! [`super::class`] when the callback has returned, as the kernel itself defers kicks to an interrupt.

use super::call::{CallState, Group, Op};
use super::cgroup::Cgroup;
use super::consts::{SCX_DSQ_BYPASS, SCX_DSQ_GLOBAL, SCX_DSQ_LOCAL, SCX_ENQ_CPU_SELECTED, SCX_ENQ_HEAD};
use super::dsq::{DsqIndex, Dsqs};
use super::dump::Dump;
use super::exit::ExitInfo;
use super::idle::Idle;
use super::kernel::{Layout, TaskOffsets};
use super::lock::LockCosts;
use super::mask::Mask;
use super::task::Entity;
use super::trace::CallTrace;
use crate::ahead::Row;
use schedlab_bpf::exec::{CallContext, Host as BpfHost};
use schedlab_model::topology::Topology;
use std::sync::Arc;

/// What the clocks that programs read show when a simulation begins: they count since boot, and a program may
/// take a time near 0 for long ago.
pub(crate) const BOOT_NS: u64 = 1000 * 1_000_000_000;

/// The context callbacks and kfuncs run in.
pub(crate) type Cx<'a> = CallContext<'a, Host>;

/// What the CPU runs, as far as the class cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CurrClass {
    Idle,
    Ext,
    /// A stronger class; the number is `enum scx_cpu_preempt_reason`.
    Above(u32),
}

/// Rules that kernel versions differ in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// `ops.dequeue()` follows the custody rules of 7.1.
    pub custody: bool,
    /// Groups of callbacks that may choose a CPU by a kfunc.
    pub select_groups: u32,
    /// The value of `SCX_ENQ_HEAD`.
    pub head_flag: u64,
    /// The value of `SCX_ENQ_CPU_SELECTED`.
    pub cpu_selected_flag: u64,
}

impl Rules {
    pub(crate) fn of(version: (u16, u16)) -> Rules {
        let new = version >= (7, 0);
        Rules {
            custody: version >= (7, 1),
            select_groups: Group::SelectCpu as u32
                | if version >= (6, 16) { Group::Unlocked as u32 } else { 0 },
            head_flag: if new { SCX_ENQ_HEAD } else { 0x10 },
            cpu_selected_flag: if new { SCX_ENQ_CPU_SELECTED } else { 0x400 },
        }
    }
}

/// Whose insertion is awaited (`direct_dispatch_task`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direct {
    /// Nobody's: inserts go to the dispatch buffer.
    None,
    /// This task's, from `ops.select_cpu()` or `ops.enqueue()`.
    For(u32),
    /// It was made; the task it was for.
    Done,
}

/// An insertion made by `ops.dispatch()`, to be finished when it returns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Insert {
    pub task: u32,
    /// Count of enqueues the task must still have.
    pub qseq: u64,
    pub dsq_id: u64,
    pub enq_flags: u64,
}

/// One CPU's part (`struct scx_rq` and the per-CPU data of the scheduler); what every switch touches comes first.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Rq {
    /// Its `struct rq` in the region.
    pub address: u64,
    /// Task number of the current task.
    pub curr: u32,
    pub curr_class: CurrClass,
    /// Tasks of the class on this CPU, the current one included.
    pub nr_running: u32,
    /// Choosing the next task.
    pub in_balance: bool,
    /// A stronger class took the CPU and `ops.cpu_release()` was told.
    pub released: bool,
    pub online: bool,
    pub kick_sync_pending: bool,
    /// Tasks under `SCX_ENQ_IMMED` in the local queue.
    pub nr_immed: i32,
    /// The global queue of its node.
    pub global: DsqIndex,
    /// Insertions finished in this round of dispatching.
    pub nr_dispatched: u32,
    /// The current task's time is accounted up to here.
    pub exec_start: u64,
    /// Counts scheduling passes of the class (`kick_sync`).
    pub kick_sync: u64,
    pub batch: Vec<Insert>,
    /// Direct dispatches to other CPUs' local queues.
    pub deferred: Vec<u32>,
    /// A pending reenqueue of the local queue: flags.
    pub reenq_local: Option<u64>,
    /// Cycles of it in one pass.
    pub reenq_count: u32,
    /// Pending reenqueues of user queues.
    pub reenq_user: Vec<(DsqIndex, u64)>,
    /// Where the last distributed search of a mask ended.
    pub distribute: u32,
    pub cpuperf_target: u32,
    /// Kicked CPUs to wait for, with their counts at the kick.
    pub cpus_to_sync: Vec<(u32, u64)>,
    /// Kicks of this CPU by itself while it chose a task, ORed.
    pub kicked: Option<u64>,
}

impl Row for Rq {
    const HOT_BYTES: usize = std::mem::offset_of!(Rq, deferred);
}

/// Something the simulated kernel has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// `resched_curr(cpu)`.
    Resched(u32),
    /// The task moved between run queues: already done here.
    Migrated { task: u32, from: u32, to: u32 },
    /// `scx_bpf_kick_cpu(cpu, flags)`.
    Kick { cpu: u32, flags: u64 },
    /// A `bpf_timer` fires at a time, on the CPU that started it. Linux may move one that is not pinned to
    /// a busy CPU.
    TimerStart { timer: u64, at: u64, cpu: u32 },
    /// It does not.
    TimerCancel { timer: u64 },
}

/// What the object asks for in its `struct sched_ext_ops`.
#[derive(Clone, Debug, Default)]
pub(crate) struct OpsData {
    pub name: String,
    pub flags: u64,
    pub dispatch_max_batch: u32,
    pub timeout_ns: u64,
    /// Whether the watchdog looks at all.
    pub watchdog: bool,
    /// Bytes of the debug dump.
    pub exit_dump_len: u32,
    /// Hotplug events the loader had seen; 0 if it does not care.
    pub hotplug_seq: u64,
}

/// Counters of `struct scx_event_stats`, in its order.
#[derive(Clone, Copy, Debug)]
pub(crate) enum EventCount {
    SelectCpuFallback = 0,
    DispatchLocalDsqOffline = 1,
    DispatchKeepLast = 2,
    EnqSkipExiting = 3,
    ReenqImmed = 5,
    ReenqLocalRepeat = 6,
    RefillSliceDfl = 7,
    BypassDuration = 8,
    BypassDispatch = 9,
    BypassActivate = 10,
}

/// Number of counters in `struct scx_event_stats`.
pub(crate) const EVENT_COUNTS: usize = 13;

/// State of one attached scheduler.
pub(crate) struct Host {
    /// Simulated time of the entry in progress.
    pub now: u64,
    /// Length of a jiffy.
    pub tick_ns: u64,
    /// Begin of the jiffy that was asked for last.
    pub jiffy_begin: u64,
    pub version: (u16, u16),
    /// What the version decides and every wake-up or switch asks for.
    pub rules: Rules,
    pub layout: Arc<Layout>,
    /// The part of it that every wake-up and switch reads.
    pub at: TaskOffsets,
    pub topology: Arc<Topology>,
    pub nr_cpus: u32,
    /// Queues of the kernel's own.
    pub nr_builtin: u32,
    /// First task of the queue of which one was taken last; a hint only.
    pub head: u32,
    /// Whose insertion is awaited from the code that runs.
    pub direct: Direct,
    /// Program of each callback, or none; see [`Op`].
    pub programs: [Option<u32>; Op::COUNT],
    /// Groups of kfuncs that each callback may call: [`Op::allows`].
    pub allows: [u32; Op::COUNT],
    /// Callbacks that are switched on (`has_op`).
    pub enabled: u64,
    pub ops: OpsData,
    pub call: CallState,
    /// Row 0 is the idle task.
    pub tasks: Vec<Entity>,
    /// Their addresses once more: what is needed of many tasks whose rows are not.
    pub addresses: Vec<u64>,
    pub rqs: Vec<Rq>,
    pub dsqs: Dsqs,
    pub idle: Idle,
    /// Whether [`Host::bypass_depth`] is above 0.
    pub bypass: bool,
    /// How many want it bypassed.
    pub bypass_depth: i32,
    pub exit: Option<ExitInfo>,
    pub effects: Vec<Effect>,
    pub events: [i64; EVENT_COUNTS],
    /// Callbacks since the last charge.
    pub callbacks: u32,
    /// Time spent on locks of shared queues since then, in ns.
    pub lock_ns: u64,
    /// What they cost.
    pub lock_costs: LockCosts,
    pub runnable_seq: u64,
    pub iterators: u64,
    pub trace: Option<Box<CallTrace>>,
    /// The debug dump being written.
    pub dump: Option<Box<Dump>>,
    /// One of the dump callbacks runs: `scx_bpf_dump()` is open.
    pub dumping: bool,
    /// Something waits for [`super::class`] besides effects: reenqueues or deferred dispatches.
    pub deferred_work: bool,
    /// A CPU switches: such work is done after the switch.
    pub switching: bool,
    /// The cgroups, the root first.
    pub cgroups: Vec<Cgroup>,
    /// Since when it is bypassed.
    pub bypass_since: u64,
    pub possible_mask: u64,
    /// CPUs that are online, for `scx_bpf_get_online_cpumask()`.
    pub online_mask: Mask,
    /// CPUs went on or off this often (`scx_hotplug_seq`).
    pub hotplug_seq: u64,
}

impl BpfHost for Host {
    fn current_pid_tgid(cx: &mut Cx<'_>) -> u64 {
        let (current, layout) = (cx.current(), Arc::clone(&cx.host().layout));
        let memory = cx.memory();
        let half = |offset| u64::from(memory.read_u32(current + offset));
        half(layout.task.tgid) << 32 | half(layout.task.pid)
    }

    fn current_comm(cx: &mut Cx<'_>) -> [u8; 16] {
        let at = cx.current() + cx.host().layout.task.comm;
        let mut comm = [0; 16];
        if let Some(bytes) = cx.memory().bytes(at, 16) {
            comm.copy_from_slice(bytes);
        }
        comm
    }

    fn current_cgroup_id(cx: &mut Cx<'_>) -> u64 {
        let current = cx.current();
        let (host, memory) = cx.parts();
        let cgroup = host.task_at(memory, current).map_or(0, |task| host.task(task).cgroup);
        u64::from(cgroup) + 1
    }

    fn jiffy_ns(cx: &mut Cx<'_>) -> u64 {
        cx.host().tick_ns
    }

    fn numa_node(cx: &mut Cx<'_>) -> u32 {
        let cpu = cx.cpu();
        cx.host().node_of(cpu)
    }

    fn timer_start(cx: &mut Cx<'_>, timer: u64, at: u64, _pinned: bool) {
        let cpu = cx.cpu();
        let at = at.saturating_sub(BOOT_NS);
        cx.host().effects.push(Effect::TimerStart { timer, at, cpu });
    }

    fn timer_cancel(cx: &mut Cx<'_>, timer: u64) {
        cx.host().effects.push(Effect::TimerCancel { timer });
    }
}

/// Ids of the kernel's own queues in the order of their positions: local, bypass, global.
pub(crate) fn builtin_queues(nr_cpus: u32, nr_nodes: u32) -> impl Iterator<Item = u64> {
    let repeat = |id, count| std::iter::repeat_n(id, count as usize);
    repeat(SCX_DSQ_LOCAL, nr_cpus)
        .chain(repeat(SCX_DSQ_BYPASS, nr_cpus))
        .chain(repeat(SCX_DSQ_GLOBAL, nr_nodes))
}

impl Host {
    /// The CPU's local queue.
    #[inline]
    pub(crate) fn local_dsq(&self, cpu: u32) -> DsqIndex {
        DsqIndex(cpu)
    }

    /// The queue for a CPU's tasks while bypassing.
    pub(crate) fn bypass_dsq(&self, cpu: u32) -> DsqIndex {
        if self.bypasses_by_cpu() { DsqIndex(self.nr_cpus + cpu) } else { self.global_dsq(cpu) }
    }

    /// The global queue of the CPU's node.
    #[inline]
    pub(crate) fn global_dsq(&self, cpu: u32) -> DsqIndex {
        self.rq(cpu).global
    }

    /// Whose local queue this is.
    #[inline]
    pub(crate) fn cpu_of_local(&self, dsq: DsqIndex) -> Option<u32> {
        (dsq.0 < self.nr_cpus).then_some(dsq.0)
    }

    /// Whether the queue is the kernel's own.
    #[inline]
    pub(crate) fn is_builtin(&self, dsq: DsqIndex) -> bool {
        dsq.0 < self.nr_builtin
    }

    #[inline]
    pub(crate) fn node_of(&self, cpu: u32) -> u32 {
        self.topology.cpu(schedlab_model::CpuId(cpu)).node
    }

    #[inline]
    pub(crate) fn task(&self, task: u32) -> &Entity {
        &self.tasks[task as usize]
    }

    /// Address of a task, 0 for one that the class was not told of.
    #[inline]
    pub(crate) fn address_of(&self, task: u32) -> u64 {
        self.addresses.get(task as usize).copied().unwrap_or(0)
    }

    /// A task gets its `struct task_struct`, or loses it.
    pub(crate) fn set_address(&mut self, task: u32, address: u64) {
        self.tasks[task as usize].address = address;
        self.addresses.resize(self.tasks.len(), 0);
        self.addresses[task as usize] = address;
    }

    #[inline]
    pub(crate) fn task_mut(&mut self, task: u32) -> &mut Entity {
        &mut self.tasks[task as usize]
    }

    #[inline]
    pub(crate) fn rq(&self, cpu: u32) -> &Rq {
        &self.rqs[cpu as usize]
    }

    #[inline]
    pub(crate) fn rq_mut(&mut self, cpu: u32) -> &mut Rq {
        &mut self.rqs[cpu as usize]
    }

    /// Whether the callback exists and is switched on.
    #[inline]
    pub(crate) fn has_op(&self, op: Op) -> bool {
        self.enabled >> op as u32 & 1 != 0
    }

    #[inline]
    pub(crate) fn count(&mut self, event: EventCount) {
        self.events[event as usize] += 1;
    }

    /// When the current jiffy began; time does not run backwards, and most of the time it is still the last one.
    #[inline]
    pub(crate) fn tick_at(&mut self) -> u64 {
        if self.now - self.jiffy_begin >= self.tick_ns {
            self.jiffy_begin = self.now / self.tick_ns * self.tick_ns;
        }
        self.jiffy_begin
    }

    /// Whether the version has this semantics.
    #[inline]
    pub(crate) fn at_least(&self, major: u16, minor: u16) -> bool {
        self.version >= (major, minor)
    }

    /// Whether the CPU is online.
    #[inline]
    pub(crate) fn is_online(&self, cpu: u32) -> bool {
        self.rq(cpu).online
    }

    /// Asks for a reschedule.
    #[inline]
    pub(crate) fn resched(&mut self, cpu: u32) {
        self.effects.push(Effect::Resched(cpu));
    }
}
