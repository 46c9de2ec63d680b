//! Helpers without state of their own: time, CPU, random numbers, memory reads, loops, locks, kptrs.

use super::{Action, Cx, Host, bad, call, errno};
use crate::exec::target::ContextField;
use crate::exec::{FaultKind, Faulted};
use crate::maps::{E2BIG, EFAULT, EINVAL, ENOENT};

/// Iterations `bpf_loop()` allows, as the kernel's `BPF_MAX_LOOPS`.
const LOOPS_MAX: u64 = 8 * 1024 * 1024;
/// Seconds after boot at which the low 32 bits of jiffies wrap (`INITIAL_JIFFIES`).
const JIFFIES_WRAP_S: u64 = 300;

pub(super) fn find<H: Host>(id: u32) -> Option<(&'static str, Action)> {
    Some(match id {
        4 => ("bpf_probe_read", call::<H, _>(probe_read::<H>)),
        5 => ("bpf_ktime_get_ns", Action::Context(ContextField::Now)),
        7 => ("bpf_get_prandom_u32", call::<H, _>(prandom::<H>)),
        8 => ("bpf_get_smp_processor_id", Action::Context(ContextField::Cpu)),
        12 => ("bpf_tail_call", Action::TailCall),
        14 => ("bpf_get_current_pid_tgid", call::<H, _>(|cx: &mut Cx<'_, H>| H::current_pid_tgid(cx))),
        15 => ("bpf_get_current_uid_gid", Action::Constant(0)),
        16 => ("bpf_get_current_comm", call::<H, _>(current_comm::<H>)),
        35 => ("bpf_get_current_task", Action::Context(ContextField::Current)),
        25 => ("bpf_perf_event_output", Action::Constant(errno(ENOENT))),
        27 => ("bpf_get_stackid", Action::Constant(errno(EFAULT))),
        42 => ("bpf_get_numa_node_id", call::<H, _>(|cx: &mut Cx<'_, H>| H::numa_node(cx))),
        45 => ("bpf_probe_read_str", call::<H, _>(probe_read_str::<H>)),
        55 => ("bpf_perf_event_read_value", call::<H, _>(perf_event_read_value::<H>)),
        67 => ("bpf_get_stack", Action::Constant(errno(EFAULT))),
        80 => ("bpf_get_current_cgroup_id", call::<H, _>(|cx: &mut Cx<'_, H>| H::current_cgroup_id(cx))),
        93 => ("bpf_spin_lock", call::<H, _>(nothing::<H>)),
        94 => ("bpf_spin_unlock", call::<H, _>(nothing::<H>)),
        112 => ("bpf_probe_read_user", call::<H, _>(probe_read::<H>)),
        113 => ("bpf_probe_read_kernel", call::<H, _>(probe_read::<H>)),
        114 => ("bpf_probe_read_user_str", call::<H, _>(probe_read_str::<H>)),
        115 => ("bpf_probe_read_kernel_str", call::<H, _>(probe_read_str::<H>)),
        120 => ("bpf_get_ns_current_pid_tgid", call::<H, _>(ns_current_pid_tgid::<H>)),
        118 => ("bpf_jiffies64", call::<H, _>(jiffies::<H>)),
        123 => ("bpf_get_current_ancestor_cgroup_id", call::<H, _>(ancestor_cgroup_id::<H>)),
        125 => ("bpf_ktime_get_boot_ns", Action::Context(ContextField::Now)),
        153 => ("bpf_per_cpu_ptr", call::<H, _>(per_cpu_ptr::<H>)),
        154 => ("bpf_this_cpu_ptr", call::<H, _>(this_cpu_ptr::<H>)),
        // A task has no frame of registers: what is read through it is zero.
        175 => ("bpf_task_pt_regs", Action::Constant(0)),
        158 => ("bpf_get_current_task_btf", Action::Context(ContextField::Current)),
        160 => ("bpf_ktime_get_coarse_ns", Action::Context(ContextField::Now)),
        181 => ("bpf_loop", call::<H, _>(bpf_loop::<H>)),
        194 => ("bpf_kptr_xchg", call::<H, _>(kptr_xchg::<H>)),
        208 => ("bpf_ktime_get_tai_ns", Action::Context(ContextField::Now)),
        _ => return None,
    })
}

/// Locks are free: one thread runs an instance, and a callback never waits for another.
fn nothing<H: Host>(_: &mut Cx<'_, H>, _lock: u64) {}

/// Fails with an error after zeroing what the answer would have been in, as the kernel does.
fn refuse_with_zeros<H: Host>(cx: &mut Cx<'_, H>, to: u64, bytes: u64, error: i64) -> Result<u64, FaultKind> {
    match cx.memory().bytes_mut(to, u64::from(bytes as u32)) {
        Some(place) => place.fill(0),
        None => return Err(FaultKind::Store { address: to }),
    }
    Ok(errno(error))
}

/// There are no performance counters: the answer of a map without an event, and nothing counted.
fn perf_event_read_value<H: Host>(
    cx: &mut Cx<'_, H>,
    _map: u64,
    _index: u64,
    to: u64,
    bytes: u64,
) -> Result<u64, FaultKind> {
    refuse_with_zeros(cx, to, bytes, ENOENT)
}

/// There are no pid namespaces: no device and inode name one.
fn ns_current_pid_tgid<H: Host>(
    cx: &mut Cx<'_, H>,
    _device: u64,
    _inode: u64,
    to: u64,
    bytes: u64,
) -> Result<u64, FaultKind> {
    refuse_with_zeros(cx, to, bytes, EINVAL)
}

/// The root's id at level 0, 0 below the current cgroup.
fn ancestor_cgroup_id<H: Host>(cx: &mut Cx<'_, H>, level: u64) -> u64 {
    if level as i32 == 0 { H::current_cgroup_id(cx) } else { 0 }
}

fn prandom<H: Host>(cx: &mut Cx<'_, H>) -> u32 {
    cx.state().random.next_u32()
}

fn jiffies<H: Host>(cx: &mut Cx<'_, H>) -> u64 {
    let jiffy_ns = H::jiffy_ns(cx).max(1);
    let hz = 1_000_000_000 / jiffy_ns;
    (1 << 32) - JIFFIES_WRAP_S * hz + cx.now() / jiffy_ns
}

/// Copies memory; what cannot be read is filled with zeros and reported, as in the kernel.
fn probe_read<H: Host>(cx: &mut Cx<'_, H>, to: u64, bytes: u64, from: u64) -> Result<u64, FaultKind> {
    let memory = cx.memory();
    let source = if memory.can_store(from) { memory.bytes(from, bytes).map(<[u8]>::to_vec) } else { None };
    let Some(place) = memory.bytes_mut(to, bytes) else {
        return Err(bad("bpf_probe_read_kernel", format!("cannot write {bytes} bytes to {to:#x}")));
    };
    match source {
        Some(source) => {
            place.copy_from_slice(&source);
            Ok(0)
        }
        None => {
            place.fill(0);
            Ok(errno(EFAULT))
        }
    }
}

fn probe_read_str<H: Host>(cx: &mut Cx<'_, H>, to: u64, bytes: u64, from: u64) -> Result<u64, FaultKind> {
    let memory = cx.memory();
    if bytes == 0 {
        return Ok(0);
    }
    let readable = memory.can_store(from) && from < memory.size();
    let longest = bytes.min(memory.size().saturating_sub(from));
    let source = if readable { memory.bytes(from, longest).map(<[u8]>::to_vec) } else { None };
    let Some(place) = memory.bytes_mut(to, bytes) else {
        return Err(bad("bpf_probe_read_kernel_str", format!("cannot write {bytes} bytes to {to:#x}")));
    };
    place.fill(0);
    let Some(source) = source else { return Ok(errno(EFAULT)) };
    let text = source.iter().position(|byte| *byte == 0).unwrap_or(source.len()).min(bytes as usize - 1);
    place[..text].copy_from_slice(&source[..text]);
    Ok(text as u64 + 1)
}

fn current_comm<H: Host>(cx: &mut Cx<'_, H>, to: u64, bytes: u64) -> Result<u64, FaultKind> {
    let comm = H::current_comm(cx);
    let Some(place) = cx.memory().bytes_mut(to, bytes) else {
        return Err(bad("bpf_get_current_comm", format!("cannot write {bytes} bytes to {to:#x}")));
    };
    place.fill(0);
    let length = place.len().saturating_sub(1).min(comm.len());
    place[..length].copy_from_slice(&comm[..length]);
    Ok(0)
}

/// Bytes from one CPU's copy to the next: of an object that was allocated, else of a kernel variable.
fn percpu_stride<H: Host>(cx: &mut Cx<'_, H>, variable: u64) -> u64 {
    let state = cx.state();
    match state.percpu.is_empty() {
        true => state.code.options.percpu_stride,
        false => state.percpu.get(&variable).copied().unwrap_or(state.code.options.percpu_stride),
    }
}

fn per_cpu_ptr<H: Host>(cx: &mut Cx<'_, H>, variable: u64, cpu: u64) -> u64 {
    if cpu as u32 >= cx.nr_cpus() {
        return 0;
    }
    variable.wrapping_add(u64::from(cpu as u32).wrapping_mul(percpu_stride(cx, variable)))
}

fn this_cpu_ptr<H: Host>(cx: &mut Cx<'_, H>, variable: u64) -> u64 {
    let cpu = cx.cpu();
    variable.wrapping_add(u64::from(cpu).wrapping_mul(percpu_stride(cx, variable)))
}

/// Calls a function with (index, argument) until it returns 1; gives the number of calls.
fn bpf_loop<H: Host>(
    cx: &mut Cx<'_, H>,
    times: u64,
    function: u64,
    argument: u64,
    flags: u64,
) -> Result<u64, Faulted> {
    let times = u64::from(times as u32);
    if flags != 0 {
        return Ok(errno(EINVAL));
    }
    if times > LOOPS_MAX {
        return Ok(errno(E2BIG));
    }
    for index in 0..times {
        if cx.callback(function, [index, argument, 0, 0, 0])? != 0 {
            return Ok(index + 1);
        }
    }
    Ok(times)
}

fn kptr_xchg<H: Host>(cx: &mut Cx<'_, H>, place: u64, new: u64) -> Result<u64, FaultKind> {
    let memory = cx.memory();
    let old = memory.read_u64(place);
    if memory.store(place, 0, 8, new) { Ok(old) } else { Err(FaultKind::Store { address: place }) }
}
