//! Calling the scheduler: which callback, with what rights, and what a fault in it means.

use super::consts::errno;
use super::host::{Cx, Host};
use schedlab_bpf::exec::{Fault, FaultKind};

macro_rules! ops {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// Callbacks of `struct sched_ext_ops`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub(crate) enum Op { $($(#[$doc])* $variant,)* }

        impl Op {
            /// All of them.
            pub(crate) const ALL: [Op; Op::COUNT] = [$(Op::$variant,)*];
            /// How many.
            pub(crate) const COUNT: usize = [$($name,)*].len();

            /// Member of `struct sched_ext_ops`.
            pub(crate) fn name(self) -> &'static str {
                match self { $(Op::$variant => $name,)* }
            }
        }
    };
}

ops! {
    SelectCpu = "select_cpu",
    Enqueue = "enqueue",
    Dequeue = "dequeue",
    Dispatch = "dispatch",
    Tick = "tick",
    Runnable = "runnable",
    Running = "running",
    Stopping = "stopping",
    Quiescent = "quiescent",
    Yield = "yield",
    CoreSchedBefore = "core_sched_before",
    SetWeight = "set_weight",
    SetCpumask = "set_cpumask",
    UpdateIdle = "update_idle",
    CpuAcquire = "cpu_acquire",
    CpuRelease = "cpu_release",
    InitTask = "init_task",
    ExitTask = "exit_task",
    Enable = "enable",
    Disable = "disable",
    Dump = "dump",
    DumpCpu = "dump_cpu",
    DumpTask = "dump_task",
    CgroupInit = "cgroup_init",
    CgroupExit = "cgroup_exit",
    CgroupPrepMove = "cgroup_prep_move",
    CgroupMove = "cgroup_move",
    CgroupCancelMove = "cgroup_cancel_move",
    CgroupSetWeight = "cgroup_set_weight",
    CgroupSetBandwidth = "cgroup_set_bandwidth",
    CgroupSetIdle = "cgroup_set_idle",
    CpuOnline = "cpu_online",
    CpuOffline = "cpu_offline",
    Init = "init",
    Exit = "exit",
}

/// Groups of kfuncs that only some callbacks may call (`enum scx_kf_allow_flags`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    Unlocked = 1,
    CpuRelease = 4,
    Dispatch = 8,
    Enqueue = 16,
    SelectCpu = 32,
}

impl Group {
    const ALL: [Group; 5] =
        [Group::Unlocked, Group::CpuRelease, Group::Dispatch, Group::Enqueue, Group::SelectCpu];

    /// Its bit in the `enum scx_kf_mask` of the kernels before the verifier checked; unlocked is no bit.
    fn mask_before_71(self) -> u32 {
        match self {
            Group::Unlocked => 0,
            Group::CpuRelease => 1,
            Group::Dispatch => 2,
            Group::Enqueue => 4,
            Group::SelectCpu => 8,
        }
    }
}

/// `SCX_KF_REST` of the kernels before 7.1: callbacks that may call nothing special.
const SCX_KF_REST: u32 = 16;

impl Op {
    /// Groups the callback may call, ORed.
    #[inline]
    pub(crate) fn allows(self, version: (u16, u16)) -> u32 {
        use Group::{CpuRelease, Dispatch, Enqueue, SelectCpu, Unlocked};
        match self {
            Op::Enqueue if version < (6, 16) => Enqueue as u32,
            Op::SelectCpu | Op::Enqueue => SelectCpu as u32 | Enqueue as u32,
            Op::Dispatch => Enqueue as u32 | Dispatch as u32,
            Op::CpuRelease => CpuRelease as u32,
            Op::InitTask | Op::CpuOnline | Op::CpuOffline | Op::Init | Op::Exit | Op::Dump => Unlocked as u32,
            Op::CgroupInit | Op::CgroupExit | Op::CgroupPrepMove | Op::CgroupCancelMove => Unlocked as u32,
            Op::CgroupSetWeight | Op::CgroupSetBandwidth | Op::CgroupSetIdle => Unlocked as u32,
            _ => 0,
        }
    }
}

/// What runs now; small, as it is put aside for every callback. It is written field by field: one that is put together
/// elsewhere and copied as a whole makes the processor wait until all parts have reached its cache.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(16))]
pub(crate) struct CallState {
    /// The tasks it is about (`kf_tasks`).
    pub subjects: [u32; 2],
    /// CPU whose run queue the callback is about, or [`NO_CPU`].
    held: u32,
    /// The innermost callback; none in a timer.
    pub op: Option<Op>,
}

const NO_CPU: u32 = u32::MAX;

impl CallState {
    pub(crate) const NONE: CallState = CallState { op: None, held: NO_CPU, subjects: [0, 0] };

    #[inline(always)]
    fn begin(&mut self, op: Op, locked: Option<u32>, subjects: [u32; 2]) {
        self.subjects[0] = subjects[0];
        self.subjects[1] = subjects[1];
        self.held = locked.unwrap_or(NO_CPU);
        self.op = Some(op);
    }

    /// CPU whose run queue the callback is about, if it holds one.
    #[inline]
    pub(crate) fn locked(&self) -> Option<u32> {
        (self.held != NO_CPU).then_some(self.held)
    }
}

/// Calls a callback that is switched on; its return value, 0 after a fault.
#[inline(always)]
pub(crate) fn call<const N: usize>(
    cx: &mut Cx<'_>,
    op: Op,
    locked: Option<u32>,
    subjects: [u32; 2],
    arguments: &[u64; N],
) -> u64 {
    if cx.host().programs[op as usize].is_none() {
        return 0;
    }
    call_known(cx, op, locked, subjects, arguments)
}

/// The same for a callback that is known to exist.
#[inline(always)]
pub(crate) fn call_known<const N: usize>(
    cx: &mut Cx<'_>,
    op: Op,
    locked: Option<u32>,
    subjects: [u32; 2],
    arguments: &[u64; N],
) -> u64 {
    const { assert!(N <= 3, "no callback has more arguments") };
    let mut words = [0; 3];
    // The length is known here: no call of memcpy for a word.
    words[..N].copy_from_slice(arguments);
    call_words(cx, op, locked, subjects, words)
}

/// The same for a callback with more arguments than three, which is rare.
#[cold]
pub(crate) fn call_long(cx: &mut Cx<'_>, op: Op, arguments: &[u64]) {
    let host = cx.host();
    let Some(program) = host.programs[op as usize] else { return };
    host.callbacks += 1;
    let outer = std::mem::replace(&mut host.call, CallState { op: Some(op), ..CallState::NONE });
    let at = host.trace.is_some().then(|| super::trace::record(cx, op, arguments));
    let result = cx.call(program as usize, arguments);
    cx.host().call = outer;
    if let Some(at) = at {
        super::trace::returned(cx, op, at, *result.as_ref().unwrap_or(&0));
    }
    if let Err(fault) = result {
        super::exit::program_fault(cx, &fault.to_string());
    }
}

#[inline(always)]
fn call_words(cx: &mut Cx<'_>, op: Op, locked: Option<u32>, subjects: [u32; 2], arguments: [u64; 3]) -> u64 {
    let host = cx.host();
    host.callbacks += 1;
    // Rare: the outermost callback has nothing to go back to.
    if host.call.op.is_some() || host.trace.is_some() {
        return call_rarely(cx, op, locked, subjects, arguments);
    }
    host.call.begin(op, locked, subjects);
    let value = cx.call_slot(op as usize, arguments, faulted);
    cx.host().call = CallState::NONE;
    value
}

/// The same within another callback, and with a line in the log if there is one.
#[cold]
fn call_rarely(cx: &mut Cx<'_>, op: Op, locked: Option<u32>, subjects: [u32; 2], arguments: [u64; 3]) -> u64 {
    let outer = cx.host().call;
    cx.host().call.begin(op, locked, subjects);
    let at = cx.host().trace.is_some().then(|| super::trace::record(cx, op, &arguments));
    let mut faulted = None;
    let value = cx.call_slot(op as usize, arguments, |_, fault| {
        faulted = Some(fault.to_string());
        0
    });
    cx.host().call = outer;
    if let Some(at) = at {
        super::trace::returned(cx, op, at, value);
    }
    if let Some(fault) = faulted {
        super::exit::program_fault(cx, &fault);
    }
    value
}

/// A fault of the outermost callback, which is over.
#[cold]
fn faulted(cx: &mut Cx<'_>, fault: &Fault) -> u64 {
    cx.host().call = CallState::NONE;
    super::exit::program_fault(cx, &fault.to_string());
    0
}

/// Calls a callback about one task on its CPU's run queue, if it is switched on.
#[inline(always)]
pub(crate) fn call_task<const N: usize>(cx: &mut Cx<'_>, op: Op, cpu: u32, task: u32, rest: &[u64; N]) {
    let host = cx.host();
    if !host.has_op(op) {
        return;
    }
    let mut words = [host.task(task).address, 0, 0];
    for (word, argument) in words[1..].iter_mut().zip(rest) {
        *word = *argument;
    }
    call_words(cx, op, Some(cpu), [task, 0], words);
}

/// The same for a callback that most schedulers do not have: its caller stays short.
#[inline(always)]
pub(crate) fn call_task_rare(cx: &mut Cx<'_>, op: Op, cpu: u32, task: u32, argument: u64) {
    if cx.host().has_op(op) {
        call_task_apart(cx, op, cpu, task, argument);
    }
}

#[inline(never)]
fn call_task_apart(cx: &mut Cx<'_>, op: Op, cpu: u32, task: u32, argument: u64) {
    call_task(cx, op, cpu, task, &[argument]);
}

/// Whether the running callback may call a kfunc of one of these groups; the kernel's error otherwise.
#[inline]
pub(crate) fn require(cx: &mut Cx<'_>, groups: u32, kfunc: &'static str) -> Result<bool, FaultKind> {
    let host = cx.host();
    // A timer callback holds no lock: what unlocked contexts may call, it may.
    let allowed = host.call.op.map_or(Group::Unlocked as u32, |op| host.allows[op as usize]);
    if allowed & groups != 0 { Ok(true) } else { refuse(host, kfunc, groups, allowed, cx_cpu(host)) }
}

fn cx_cpu(host: &Host) -> i32 {
    host.call.locked().map_or(0, |cpu| cpu as i32)
}

#[cold]
fn refuse(
    host: &mut Host,
    kfunc: &'static str,
    groups: u32,
    allowed: u32,
    cpu: i32,
) -> Result<bool, FaultKind> {
    let op = host.call.op.map_or("a timer", Op::name);
    if host.at_least(7, 1) {
        return Err(FaultKind::Host(format!(
            "calling kernel function {kfunc} is not allowed in {op}; the kernel's verifier refuses the program"
        )));
    }
    let mask = |groups: u32| {
        let named = Group::ALL.iter().filter(|group| groups & **group as u32 != 0);
        named.map(|group| group.mask_before_71()).fold(0, |all, bit| all | bit)
    };
    // `ops.dispatch()` allows what it says; inserting is open to both enqueue and dispatch.
    let allows = match host.call.op {
        Some(Op::Dispatch) => Group::Dispatch.mask_before_71(),
        _ if allowed == 0 => SCX_KF_REST,
        _ => mask(allowed),
    };
    let needs = mask(groups) | if groups == Group::Enqueue as u32 { mask(Group::Dispatch as u32) } else { 0 };
    let text = format!("kfunc with mask 0x{needs:x} called from an operation only allowing 0x{allows:x}");
    host.error(cpu, text);
    Ok(false)
}

/// `ops_sanitize_err`: an error code as the kernel reports it.
pub(crate) fn sanitize_error(host: &mut Host, op: Op, error: i32) -> i32 {
    if (-4095..0).contains(&error) {
        return error;
    }
    host.error(-1, format!("ops.{}() returned an invalid errno {error}", op.name()));
    -errno::EPROTO
}
