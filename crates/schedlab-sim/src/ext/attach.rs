//! A loaded object becomes a scheduler of one simulation: kernel objects in the region, queues, programs.

use super::call::{CallState, Op};
use super::cgroup;
use super::consts::{
    SCX_DSP_DFL_MAX_BATCH, SCX_EXIT_DUMP_DFL_LEN, SCX_OPS_BUILTIN_IDLE_PER_NODE, SCX_OPS_KEEP_BUILTIN_IDLE,
    SCX_WATCHDOG_MAX_TIMEOUT_MS,
};
use super::dsq::{DsqIndex, Dsqs, NIL};
use super::host::{CurrClass, Direct, EVENT_COUNTS, Host, OpsData, Rq, Rules, builtin_queues};
use super::idle::{Idle, IdleMasks};
use super::kernel::Layout;
use super::lock::LockCosts;
use super::mask::{CPUMASK_BYTES, Mask};
use super::objects::TASK_NUMBER_BYTES;
use super::task::Entity;
use schedlab_bpf::exec::HOST_AREA;
use schedlab_bpf::image::{ObjectImage, StructOpsImage};
use schedlab_bpf::memory::Memory;
use schedlab_model::topology::Topology;
use schedlab_model::workload::change::{CgroupSettings, CgroupSpec};
use schedlab_model::{CpuId, CpuSet};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Program of each callback of a `struct sched_ext_ops`.
pub(crate) fn programs(ops: &StructOpsImage) -> [Option<u32>; Op::COUNT] {
    let of =
        |op: Op| ops.callbacks.iter().find(|(name, _)| name == op.name()).map(|(_, program)| *program as u32);
    Op::ALL.map(of)
}

/// Callbacks that may sleep (`bpf_scx_check_member` of kernel/sched/ext.c); `cgroup_set_bandwidth` not in every
/// version.
const SLEEPABLE: &[&str] = &[
    "init_task",
    "cgroup_init",
    "cgroup_exit",
    "cgroup_prep_move",
    "cgroup_set_bandwidth",
    "cpu_online",
    "cpu_offline",
    "init",
    "exit",
    "sub_attach",
    "sub_detach",
];

/// What is wrong with a callback that may sleep where Linux refuses it, if one does.
pub(crate) fn sleeps_where_it_must_not(image: &ObjectImage, ops: &StructOpsImage) -> Option<String> {
    let callbacks = ops.callbacks.iter().map(|(member, program)| (member, &image.programs[*program]));
    let mut sleepy = callbacks.filter(|(_, program)| program.section.starts_with("struct_ops.s"));
    let (member, program) = sleepy.find(|(member, _)| !SLEEPABLE.contains(&member.as_str()))?;
    let (name, allowed) = (&program.name, SLEEPABLE.join(", "));
    Some(format!(
        "program {name} may sleep ({}), and Linux refuses it as ops.{member}(): only {allowed} may; use \
         SEC(\"struct_ops/{name}\")",
        program.section
    ))
}

/// Its data members, defaults filled in.
pub(crate) fn ops_data(ops: &StructOpsImage) -> OpsData {
    let bytes =
        |name: &str| ops.scalars.iter().find(|(member, _)| member == name).map(|(_, bytes)| &bytes[..]);
    let number = |name: &str| {
        let mut word = [0; 8];
        let found = bytes(name).unwrap_or(&[]);
        let len = found.len().min(8);
        word[..len].copy_from_slice(&found[..len]);
        u64::from_le_bytes(word)
    };
    let name = bytes("name").unwrap_or(&[]);
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    let or = |value: u64, default: u32| if value == 0 { default } else { value as u32 };
    let timeout_ms = or(number("timeout_ms"), SCX_WATCHDOG_MAX_TIMEOUT_MS);
    OpsData {
        name: String::from_utf8_lossy(&name[..end]).into_owned(),
        flags: number("flags"),
        dispatch_max_batch: or(number("dispatch_max_batch"), SCX_DSP_DFL_MAX_BATCH),
        timeout_ns: u64::from(timeout_ms) * 1_000_000,
        watchdog: true,
        exit_dump_len: or(number("exit_dump_len"), SCX_EXIT_DUMP_DFL_LEN),
        hotplug_seq: number("hotplug_seq"),
    }
}

/// Reserves an object in the region; the region is made large enough for the machine.
pub(crate) fn reserve(memory: &mut Memory, bytes: u64) -> u64 {
    memory.alloc(bytes, 64).expect("the region has room for the kernel's objects")
}

/// A task's `struct task_struct` with its number behind it; `None` if the region is full.
pub(crate) fn new_task(memory: &mut Memory, layout: &Layout, task: u32) -> Option<u64> {
    let at = memory.alloc(layout.task_size + TASK_NUMBER_BYTES, 64)?;
    memory.write_u32(at + layout.task_size, task);
    memory.write_u64(at + layout.task.cpus_ptr, at + layout.task.cpus_mask);
    Some(at)
}

/// Bytes of region a task needs, with some for what the scheduler keeps of it.
pub(crate) fn task_bytes(layout: &Layout) -> u64 {
    (layout.task_size + TASK_NUMBER_BYTES).next_power_of_two() + 512
}

/// The task that stands for nothing to run.
fn idle_task(memory: &mut Memory, layout: &Layout) -> Entity {
    let address = new_task(memory, layout, 0).expect("an empty region has room");
    let comm = memory.bytes_mut(address + layout.task.comm, 9).expect("allocated above");
    comm.copy_from_slice(b"swapper/0");
    Entity { address, ..Entity::new(0) }
}

fn root_cgroup(memory: &mut Memory, layout: &Layout) -> cgroup::Cgroup {
    let root = CgroupSpec { path: "/".to_owned(), settings: CgroupSettings::default() };
    cgroup::create(memory, layout, root, 1, &[]).expect("an empty region has room")
}

fn new_idle(
    masks: Vec<IdleMasks>,
    none: Mask,
    programs: &[Option<u32>; Op::COUNT],
    ops: &OpsData,
    topology: &Topology,
) -> Idle {
    let mut idle = Idle {
        enabled: programs[Op::UpdateIdle as usize].is_none() || ops.flags & SCX_OPS_KEEP_BUILTIN_IDLE != 0,
        per_node: ops.flags & SCX_OPS_BUILTIN_IDLE_PER_NODE != 0,
        masks,
        smt_active: false,
        topo_llc: false,
        topo_numa: false,
        none,
        siblings: Vec::new(),
    };
    idle.set_topology(topology);
    idle
}

/// State of an attached scheduler before `ops.init()`.
pub(crate) fn host(
    memory: &mut Memory,
    version: (u16, u16),
    layout: Arc<Layout>,
    topology: Arc<Topology>,
    programs: [Option<u32>; Op::COUNT],
    ops: OpsData,
) -> Host {
    let nr_cpus = topology.cpu_count() as u32;
    let nr_nodes = topology.nodes().len() as u32;
    let idle_task = idle_task(memory, &layout);
    let rqs = (0..nr_cpus).map(|cpu| new_rq(memory, &layout, &topology, cpu, idle_task.address)).collect();
    let mut mask = || Mask(reserve(memory, CPUMASK_BYTES));
    let masks = (0..=nr_nodes).map(|_| IdleMasks { cpu: mask(), smt: mask() }).collect();
    let (none, possible, online_mask) = (mask(), mask(), mask());
    let idle = new_idle(masks, none, &programs, &ops, &topology);
    for cpu in 0..nr_cpus {
        possible.assign(memory, cpu, true);
        online_mask.assign(memory, cpu, true);
    }
    let root = root_cgroup(memory, &layout);
    Host {
        now: 0,
        tick_ns: 1,
        jiffy_begin: 0,
        version,
        rules: Rules::of(version),
        at: layout.task.clone(),
        layout,
        nr_cpus,
        nr_builtin: 2 * nr_cpus + nr_nodes,
        head: NIL,
        direct: Direct::None,
        programs,
        allows: Op::ALL.map(|op| op.allows(version)),
        enabled: 0,
        ops,
        call: CallState::NONE,
        addresses: vec![idle_task.address],
        tasks: vec![idle_task],
        rqs,
        dsqs: Dsqs::new(builtin_queues(nr_cpus, nr_nodes)),
        idle,
        bypass: false,
        bypass_depth: 0,
        exit: None,
        effects: Vec::new(),
        events: [0; EVENT_COUNTS],
        callbacks: 0,
        lock_ns: 0,
        lock_costs: LockCosts::default(),
        runnable_seq: 0,
        iterators: 0,
        trace: None,
        dump: None,
        dumping: false,
        deferred_work: false,
        switching: false,
        cgroups: vec![root],
        bypass_since: 0,
        possible_mask: possible.0,
        online_mask,
        hotplug_seq: 0,
        topology,
    }
}

/// Per-CPU variables of the kernel: their names and where they lie in a CPU's copy. `cpufreq_cpu_data` stays
/// NULL, as on a machine without frequency scaling.
fn percpu_variables(layout: &Layout) -> [(&'static str, u64); 4] {
    let end = layout.rq_size.next_multiple_of(8);
    [("runqueues", 0), ("cpufreq_cpu_data", end), ("sd_llc_id", end + 8), ("sd_llc_size", end + 12)]
}

/// Bytes from one CPU's copy of the kernel's per-CPU variables to the next.
pub(crate) fn percpu_stride(layout: &Layout) -> u64 {
    (layout.rq_size.next_multiple_of(8) + 16).next_multiple_of(64)
}

/// Addresses of the kernel's variables that programs may name.
pub(crate) fn symbols(layout: &Layout) -> BTreeMap<String, u64> {
    let place = |(name, offset): (&str, u64)| (name.to_owned(), HOST_AREA + offset);
    percpu_variables(layout).into_iter().map(place).collect()
}

fn new_rq(memory: &mut Memory, layout: &Layout, topology: &Topology, cpu: u32, idle_task: u64) -> Rq {
    let address = HOST_AREA + u64::from(cpu) * percpu_stride(layout);
    let llc = topology.llcs()[topology.cpu(CpuId(cpu)).llc as usize];
    // `update_top_cache_domain` leaves a CPU without domains alone with itself.
    let sharing = if topology.is_online(CpuId(cpu)) { llc } else { CpuSet::single(CpuId(cpu)) };
    let first = sharing.first_cpu().map_or(cpu, |first| first.0);
    let [_, _, (_, id), (_, size)] = percpu_variables(layout);
    memory.write_u32(address + id, first);
    memory.write_u32(address + size, sharing.len() as u32);
    memory.write_u32(address + layout.rq.cpu, cpu);
    memory.write_u32(address + layout.rq.online, 1);
    memory.write_u64(address + layout.rq.curr, idle_task);
    memory.write_u64(address + layout.rq.idle, idle_task);
    Rq {
        address,
        curr: 0,
        curr_class: CurrClass::Idle,
        nr_running: 0,
        in_balance: false,
        released: false,
        online: true,
        nr_immed: 0,
        global: DsqIndex(2 * topology.cpu_count() as u32 + topology.cpu(CpuId(cpu)).node),
        batch: Vec::new(),
        nr_dispatched: 0,
        deferred: Vec::new(),
        reenq_local: None,
        reenq_count: 0,
        reenq_user: Vec::new(),
        distribute: 0,
        cpuperf_target: 0,
        exec_start: 0,
        kick_sync: 0,
        cpus_to_sync: Vec::new(),
        kick_sync_pending: false,
        kicked: None,
    }
}
