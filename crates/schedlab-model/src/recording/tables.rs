//! Rows of the task, channel and CPU set tables as bytes.
//!
//! A row carries its index; a later row of the same index replaces the earlier one (a task renamed itself).

use super::wire::{Input, WireError, put_signed, put_text, put_varint};
use super::{ChannelInfo, ChannelKind, TaskInfo};
use crate::cpu_set::{CPUS_MAX, CpuSet};
use crate::ids::{ChannelId, CpuId, TaskId};
use crate::policy::{Nice, Policy, TaskAttributes};
use crate::time::Nanos;

/// More rows than any recording has: stops a damaged index from asking for the whole memory.
const ROWS_MAX: usize = 1 << 26;

const TARGET: u8 = 1;
const EXISTED: u8 = 2;
const START_RUNNABLE: u8 = 4;
const KERNEL_THREAD: u8 = 8;
const ANY_CPU: u8 = 16;

const CHANNEL_KINDS: [ChannelKind; 5] =
    [ChannelKind::Pipe, ChannelKind::Socket, ChannelKind::Futex, ChannelKind::Epoll, ChannelKind::Other];

pub(super) fn put_task(out: &mut Vec<u8>, id: TaskId, task: &TaskInfo) {
    let attributes = &task.attributes;
    let flag = |set: bool, bit: u8| if set { bit } else { 0 };
    put_varint(out, u64::from(id.0));
    out.push(
        flag(task.target, TARGET)
            | flag(task.existed, EXISTED)
            | flag(task.start_runnable, START_RUNNABLE)
            | flag(attributes.kernel_thread, KERNEL_THREAD)
            | flag(attributes.affinity == CpuSet::ALL, ANY_CPU),
    );
    put_signed(out, i64::from(task.pid));
    put_signed(out, i64::from(task.tgid));
    put_text(out, &task.name);
    put_varint(out, u64::from(task.parent.0));
    put_varint(out, u64::from(task.start_cpu.0));
    out.push(attributes.policy.number() as u8);
    out.push(i8::from(attributes.nice) as u8);
    out.push(attributes.rt_priority);
    put_varint(out, attributes.slice.map_or(0, |slice| slice.0));
    if attributes.affinity != CpuSet::ALL {
        put_text(out, &attributes.affinity.to_string());
    }
    put_text(out, &attributes.cgroup);
}

pub(super) fn get_task(input: &mut Input<'_>) -> Result<(TaskId, TaskInfo), WireError> {
    let id = TaskId(input.varint_u32()?);
    let flags = input.byte()?;
    let pid = get_i32(input)?;
    let tgid = get_i32(input)?;
    let name = input.text()?;
    let parent = TaskId(input.varint_u32()?);
    let start_cpu = CpuId(input.varint_u32()?);
    if start_cpu.index() >= CPUS_MAX {
        return Err("a CPU number exceeds 1023");
    }
    let policy = Policy::from_number(u32::from(input.byte()?)).ok_or("an unknown policy")?;
    let nice = Nice::try_from(input.byte()? as i8).map_err(|_| "a nice value out of range")?;
    let rt_priority = input.byte()?;
    let slice = Some(input.varint()?).filter(|&slice| slice > 0).map(Nanos);
    let affinity = match flags & ANY_CPU {
        0 => input.text()?.parse().map_err(|_| "a CPU list that cannot be read")?,
        _ => CpuSet::ALL,
    };
    let cgroup = input.text()?;
    let kernel_thread = flags & KERNEL_THREAD != 0;
    let attributes = TaskAttributes { policy, nice, rt_priority, slice, affinity, cgroup, kernel_thread };
    let task = TaskInfo {
        pid,
        tgid,
        name,
        parent,
        attributes,
        target: flags & TARGET != 0,
        existed: flags & EXISTED != 0,
        start_cpu,
        start_runnable: flags & START_RUNNABLE != 0,
    };
    Ok((id, task))
}

fn get_i32(input: &mut Input<'_>) -> Result<i32, WireError> {
    i32::try_from(input.signed()?).map_err(|_| "a number exceeds 32 bits")
}

pub(super) fn put_channel(out: &mut Vec<u8>, id: ChannelId, channel: &ChannelInfo) {
    put_varint(out, u64::from(id.0));
    out.push(channel.kind as u8);
    put_varint(out, channel.identity);
    put_varint(out, channel.peer.map_or(0, |peer| u64::from(peer.0) + 1));
    put_varint(out, channel.capacity);
}

pub(super) fn get_channel(input: &mut Input<'_>) -> Result<(ChannelId, ChannelInfo), WireError> {
    let id = ChannelId(input.varint_u32()?);
    let kind = CHANNEL_KINDS.get(usize::from(input.byte()?)).copied().ok_or("an unknown kind of channel")?;
    let identity = input.varint()?;
    let peer = match input.varint()? {
        0 => None,
        peer => Some(ChannelId(u32::try_from(peer - 1).map_err(|_| "a channel number is too large")?)),
    };
    let capacity = input.varint()?;
    Ok((id, ChannelInfo { kind, identity, peer, capacity }))
}

pub(super) fn put_cpu_set(out: &mut Vec<u8>, index: u32, set: &CpuSet) {
    put_varint(out, u64::from(index));
    put_text(out, &set.to_string());
}

pub(super) fn get_cpu_set(input: &mut Input<'_>) -> Result<(u32, CpuSet), WireError> {
    let index = input.varint_u32()?;
    Ok((index, input.text()?.parse().map_err(|_| "a CPU list that cannot be read")?))
}

/// Puts a row where it belongs: new rows follow each other, known ones are replaced.
pub(super) fn place<T>(table: &mut Vec<T>, index: usize, row: T) -> Result<(), WireError> {
    if index < table.len() {
        table[index] = row;
    } else if index == table.len() && index < ROWS_MAX {
        table.push(row);
    } else {
        return Err("a table row is missing");
    }
    Ok(())
}
