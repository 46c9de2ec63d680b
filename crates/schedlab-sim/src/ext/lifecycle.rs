//! Tasks enter and leave the scheduler's care, and the scheduler itself begins and ends.

use super::attach::new_task;
use super::call::{Op, call, call_task, sanitize_error};
use super::consts::*;
use super::host::{BOOT_NS, Cx};
use super::task::{Entity, Life};
use super::{bypass, cgroup, exit, idle};
use std::sync::Arc;

/// What the kernel knows of a task that programs may read.
#[derive(Clone, Debug)]
pub(crate) struct TaskFacts<'a> {
    pub comm: &'a str,
    pub pid: u32,
    pub tgid: u32,
    pub leader: u32,
    pub parent: u32,
    pub cpu: u32,
    pub policy: u32,
    pub nice: i32,
    pub rt_priority: u32,
    pub weight: u32,
    pub kernel_thread: bool,
    /// Index of its cgroup.
    pub cgroup: usize,
    pub allowed: &'a [u64],
    pub nr_cpus_allowed: u32,
}

/// `PF_KTHREAD`.
const PF_KTHREAD: u32 = 0x0020_0000;

/// The enable path up to the tasks: `ops.init()`, then every callback is switched on and told of the cgroups, in
/// bypass if there are tasks already.
pub(crate) fn start(cx: &mut Cx<'_>, bypass: bool) {
    idle::reset(cx);
    let value = call(cx, Op::Init, None, [0, 0], &[]) as i32;
    if value != 0 {
        let error = sanitize_error(cx.host(), Op::Init, value);
        exit::error(cx, format!("ops.init() failed ({error})"));
        return;
    }
    if !hotplug_seq_matches(cx) {
        return;
    }
    let host = cx.host();
    if host.ops.flags & SCX_OPS_ENQ_LAST != 0 && host.programs[Op::Enqueue as usize].is_none() {
        exit::error(cx, "SCX_OPS_ENQ_LAST requires ops.enqueue() to be implemented".to_owned());
        return;
    }
    if host.idle.per_node && !host.idle.enabled {
        exit::error(cx, "SCX_OPS_BUILTIN_IDLE_PER_NODE requires CPU idle selection enabled".to_owned());
        return;
    }
    let present = host.programs.iter().enumerate().filter(|(_, program)| program.is_some());
    host.enabled = present.fold(0, |mask, (op, _)| mask | 1 << op);
    if bypass {
        bypass::begin(cx);
    }
    cgroup::init_all(cx);
}

/// `check_hotplug_seq`: whether the loader has seen every hotplug event.
fn hotplug_seq_matches(cx: &mut Cx<'_>) -> bool {
    let host = cx.host();
    let (expected, actual) = (host.ops.hotplug_seq, host.hotplug_seq);
    if expected == 0 || expected == actual {
        return true;
    }
    let text = format!("expected hotplug seq {expected} did not match actual {actual}");
    host.claim_exit(SCX_EXIT_UNREG_KERN, SCX_ECODE_ACT_RESTART | SCX_ECODE_RSN_HOTPLUG, -1, text);
    false
}

/// `handle_hotplug`: the scheduler is told, or ends to be loaded anew.
pub(crate) fn hotplug(cx: &mut Cx<'_>, cpu: u32, online: bool) {
    let host = cx.host();
    host.hotplug_seq += 1;
    let op = if online { Op::CpuOnline } else { Op::CpuOffline };
    if host.has_op(op) {
        call(cx, op, None, [0, 0], &[cpu.into()]);
        return;
    }
    let way = if online { "online" } else { "offline" };
    let text = format!("cpu {cpu} going {way}, exiting scheduler");
    let here = cx.cpu() as i32;
    cx.host().claim_exit(SCX_EXIT_UNREG_KERN, SCX_ECODE_ACT_RESTART | SCX_ECODE_RSN_HOTPLUG, here, text);
}

/// A CPU is online or not, where programs see it.
pub(crate) fn set_online(cx: &mut Cx<'_>, cpu: u32, online: bool) {
    let (host, memory) = cx.parts();
    host.rq_mut(cpu).online = online;
    host.online_mask.assign(memory, cpu, online);
    memory.write_u32(host.rq(cpu).address + host.layout.rq.online, online.into());
}

#[cold]
fn no_memory(cx: &mut Cx<'_>, comm: &str) {
    let alive = cx.host().tasks.iter().skip(1).filter(|task| task.address != 0).count();
    let mebibytes = cx.memory().size() >> 20;
    let text = format!(
        "no memory for task {comm}: {alive} tasks and the object's maps fill the {mebibytes} MiB that there are; \
         let fewer tasks be alive at once"
    );
    exit::error(cx, text);
}

/// Gives a new task its kernel object. `false` if the region is full.
pub(crate) fn create(cx: &mut Cx<'_>, task: u32, facts: &TaskFacts<'_>) -> bool {
    let layout = Arc::clone(&cx.host().layout);
    let Some(address) = new_task(cx.memory(), &layout, task) else {
        no_memory(cx, facts.comm);
        return false;
    };
    let (host, memory) = cx.parts();
    let now = host.now;
    if host.tasks.len() <= task as usize {
        host.tasks.resize_with(task as usize + 1, || Entity::new(now));
    }
    host.tasks[task as usize] = Entity { flags: SCX_TASK_RESET_RUNNABLE_AT, ..Entity::new(now) };
    host.set_address(task, address);
    let at = &layout.task;
    let comm = facts.comm.as_bytes();
    let len = comm.len().min(15);
    if let Some(place) = memory.bytes_mut(address + at.comm, len as u64) {
        place.copy_from_slice(&comm[..len]);
    }
    let pointer =
        |host: &super::host::Host, task: u32| host.tasks.get(task as usize).map_or(0, |t| t.address);
    let (leader, parent) = (pointer(host, facts.leader), pointer(host, facts.parent));
    memory.write_u64(address + at.group_leader, leader);
    memory.write_u64(address + at.real_parent, parent);
    memory.write_u64(address + at.parent, parent);
    memory.write_u32(address + at.pid, facts.pid);
    memory.write_u32(address + at.tgid, facts.tgid);
    memory.write_u32(address + at.flags, if facts.kernel_thread { PF_KTHREAD } else { 0 });
    // Only whether there is an address space can be told, not what is in it.
    memory.write_u64(address + at.mm, if facts.kernel_thread { 0 } else { host.cgroups[0].address });
    memory.write_u64(address + at.start_time, now + BOOT_NS);
    memory.write_u64(address + at.start_boottime, now + BOOT_NS);
    if let Some(tid) = layout.task_tid {
        memory.write_u64(address + tid, task.into());
    }
    memory.write_u64(address + at.slice, SCX_SLICE_DFL);
    memory.write_u32(address + at.sticky_cpu, u32::MAX);
    memory.write_u32(address + at.holding_cpu, u32::MAX);
    memory.write_u32(address + at.recent_used_cpu, facts.cpu);
    host.set_cpu(memory, task, facts.cpu);
    write_attributes(cx, task, facts);
    write_affinity(cx, task, facts);
    cgroup::place(cx, task, facts.cgroup);
    true
}

/// Policy, priorities and weights.
pub(crate) fn write_attributes(cx: &mut Cx<'_>, task: u32, facts: &TaskFacts<'_>) {
    let (host, memory) = cx.parts();
    let (address, at) = (host.task(task).address, &host.layout.task);
    let static_prio = (120 + facts.nice) as u32;
    let prio = if facts.rt_priority > 0 { 99 - facts.rt_priority } else { static_prio };
    memory.write_u32(address + at.static_prio, static_prio);
    memory.write_u32(address + at.prio, prio);
    memory.write_u32(address + at.normal_prio, prio);
    memory.write_u32(address + at.rt_priority, facts.rt_priority);
    memory.write_u32(address + at.policy, facts.policy);
    memory.write_u64(address + at.load_weight, u64::from(facts.weight) << 10);
    memory.write_u32(address + at.weight, cgroup_weight(facts.weight));
}

/// `sched_weight_to_cgroup`: on a scale where nice 0 is 100.
pub(crate) fn cgroup_weight(weight: u32) -> u32 {
    ((u64::from(weight) * 100 + 512) / 1024).clamp(1, 10_000) as u32
}

/// The affinity mask.
pub(crate) fn write_affinity(cx: &mut Cx<'_>, task: u32, facts: &TaskFacts<'_>) {
    let (host, memory) = cx.parts();
    host.task_mut(task).nr_cpus_allowed = facts.nr_cpus_allowed;
    let mask = host.own_mask(task);
    for (index, word) in facts.allowed.iter().enumerate() {
        mask.set_word(memory, index as u32, *word);
    }
    let at = host.task(task).address + host.layout.task.nr_cpus_allowed;
    memory.write_u32(at, facts.nr_cpus_allowed);
}

/// `__scx_init_task`, when the task is forked or because it is there when the scheduler comes. Whether the task,
/// there already, shall not be taken by `SCHED_EXT` (`scx.disallow`). The error of a callback that fails is the fork's
/// or the enable path's to act upon.
pub(crate) fn init_task(cx: &mut Cx<'_>, task: u32, fork: bool) -> Result<bool, i32> {
    let mut disallowed = false;
    if cx.host().has_op(Op::InitTask) {
        let layout = Arc::clone(&cx.host().layout);
        let host = cx.host();
        let entity = host.task(task);
        let (address, cgroup) = (entity.address, host.cgroups[entity.cgroup as usize].address);
        let memory = cx.memory();
        let Some(args) = memory.alloc(64, 8) else { return Ok(false) };
        memory.write_u8(args, fork.into());
        memory.write_u64(args + layout.init_task_cgroup, cgroup);
        let value = call(cx, Op::InitTask, None, [0, 0], &[address, args]) as i32;
        cx.memory().free(args, 64, 8);
        if value != 0 {
            return Err(sanitize_error(cx.host(), Op::InitTask, value));
        }
        let (host, memory) = cx.parts();
        disallowed = memory.read_u8(address + layout.task.disallow) != 0;
        if disallowed && fork {
            let text = format!(
                "ops.init_task() set task->scx.disallow for {} during fork",
                host.label(memory, task)
            );
            exit::error(cx, text);
        }
    }
    cx.host().task_mut(task).life = Life::Ready;
    Ok(disallowed)
}

/// `scx_enable_task`: the task is in the class from now on.
pub(crate) fn enable_task(cx: &mut Cx<'_>, task: u32) {
    let cpu = cx.host().task(task).cpu;
    cx.host().task_mut(task).life = Life::Enabled;
    call_task(cx, Op::Enable, cpu, task, &[]);
    set_weight(cx, task);
}

/// `ops.set_weight()` with the task's weight.
pub(crate) fn set_weight(cx: &mut Cx<'_>, task: u32) {
    let (host, memory) = cx.parts();
    let cpu = host.task(task).cpu;
    let weight = memory.read_u32(host.task(task).address + host.layout.task.weight);
    call_task(cx, Op::SetWeight, cpu, task, &[weight.into()]);
}

/// `ops.set_cpumask()` with the task's mask.
pub(crate) fn set_cpumask(cx: &mut Cx<'_>, task: u32) {
    let host = cx.host();
    let (cpu, mask) = (host.task(task).cpu, host.own_mask(task).0);
    call_task(cx, Op::SetCpumask, cpu, task, &[mask]);
}

/// `scx_disable_task`: the task leaves the class.
pub(crate) fn disable_task(cx: &mut Cx<'_>, task: u32) {
    if cx.host().task(task).life != Life::Enabled {
        return;
    }
    let cpu = cx.host().task(task).cpu;
    cx.host().task_mut(task).ddsp_dsq_id = SCX_DSQ_INVALID;
    call_task(cx, Op::Disable, cpu, task, &[]);
    let (host, memory) = cx.parts();
    host.task_mut(task).life = Life::Ready;
    host.set_dsq_vtime(memory, task, 0);
    host.set_slice(memory, task, 0);
}

/// `scx_disable_and_exit_task`.
pub(crate) fn exit_task(cx: &mut Cx<'_>, task: u32) {
    if cx.host().tasks.get(task as usize).is_none_or(|entity| entity.life == Life::None) {
        return;
    }
    disable_task(cx, task);
    if cx.host().has_op(Op::ExitTask) {
        let cpu = cx.host().task(task).cpu;
        if let Some(args) = cx.memory().alloc(8, 8) {
            call_task(cx, Op::ExitTask, cpu, task, &[args]);
            cx.memory().free(args, 8, 8);
        }
    }
    cx.host().task_mut(task).life = Life::None;
}

/// `check_rq_for_timeouts` for every CPU.
pub(crate) fn watchdog(cx: &mut Cx<'_>) {
    let host = cx.host();
    if !host.ops.watchdog {
        return;
    }
    let (now, limit) = (host.now / host.tick_ns * host.tick_ns, host.ops.timeout_ns);
    let stalled = host
        .tasks
        .iter()
        .enumerate()
        .filter(|(_, task)| task.runnable && now > task.runnable_at + limit)
        .min_by_key(|(_, task)| (task.cpu, task.runnable_seq));
    let Some((task, entity)) = stalled else { return };
    let (cpu, waited_ms) = (entity.cpu, (now - entity.runnable_at) / 1_000_000);
    let (host, memory) = cx.parts();
    let label = host.label(memory, task as u32);
    let text = format!("{label} failed to run for {}.{:03}s", waited_ms / 1000, waited_ms % 1000);
    host.claim_exit(SCX_EXIT_ERROR_STALL, 0, cpu as i32, text);
}

/// The end: `ops.exit()` with the reasons, then nothing is called any more.
pub(crate) fn finish(cx: &mut Cx<'_>) {
    let initialized = cx.host().enabled != 0;
    cx.host().enabled = 0;
    let info = exit::build_info(cx, initialized);
    if info != 0 {
        call(cx, Op::Exit, None, [0, 0], &[info]);
    }
}
