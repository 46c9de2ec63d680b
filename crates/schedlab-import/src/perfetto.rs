//! Perfetto traces: the ftrace events of a protobuf trace, compact scheduling included, and its process tree.
//!
//! Only what is used is declared ([`crate::perfetto_messages`]); everything else in a trace is passed over.

use crate::ImportError;
use crate::budget::Budget;
use crate::heard::{CLONE_THREAD, Flags, Heard, Named, Trace, What};
use crate::perfetto_messages::{
    Bundle, Compact, CpuStats, END_OF_TRACE, Ftrace, Number, Packet, Packets, START_OF_TRACE, Wakeup,
};
use prost::Message;
use schedlab_model::event::PrevState;
use std::collections::BTreeMap;

const FORMAT: &str = "Perfetto";

/// A trace is packets one after the other: field 1, of a length that leads to the next one or to the end.
pub(crate) fn looks_like(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    for _ in 0..3 {
        let Some((&tag, inside)) = rest.split_first() else { break };
        let mut inside = inside;
        let Ok(length) = prost::encoding::decode_varint(&mut inside) else { return false };
        match usize::try_from(length).ok().and_then(|length| inside.get(length..)) {
            Some(next) if tag == 0x0a && length > 0 => rest = next,
            _ => return false,
        }
    }
    !bytes.is_empty()
}

/// Reads a whole file.
pub(crate) fn read(bytes: &[u8], budget: Budget) -> Result<Trace, ImportError> {
    let mut trace = Trace::default();
    let mut reader =
        Reader { trace: &mut trace, running: BTreeMap::new(), lost_before: BTreeMap::new(), budget };
    reader.packets(bytes)?;
    trace.has = if trace.names.is_empty() { String::new() } else { ", only processes".to_owned() };
    Ok(trace)
}

struct Reader<'a> {
    trace: &'a mut Trace,
    /// Who runs on each CPU, as far as compact switches told: they leave out who was before.
    running: BTreeMap<u32, Named>,
    /// What the kernel's buffers had lost when the trace began: they count since they were made.
    lost_before: BTreeMap<u32, u64>,
    budget: Budget,
}

/// Any bytes as a text.
fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Events that a buffer of the kernel lost since it was made.
fn lost(cpu: &CpuStats) -> u64 {
    cpu.overrun.saturating_add(cpu.commit_overrun).saturating_add(cpu.dropped)
}

impl Reader<'_> {
    fn packets(&mut self, bytes: &[u8]) -> Result<(), ImportError> {
        let broken = |what: String| ImportError::Broken { format: FORMAT, what };
        let all = Packets::decode(bytes).map_err(|error| broken(error.to_string()))?;
        for packet in all.packets {
            if let Some(packed) = packet.packed {
                let out = self
                    .budget
                    .read(flate2::read::ZlibDecoder::new(&packed[..]))?
                    .map_err(|error| broken(format!("packed packets do not unpack: {error}")))?;
                let inner = Packets::decode(&out[..]).map_err(|error| broken(error.to_string()))?;
                inner.packets.into_iter().for_each(|packet| self.packet(packet));
            } else {
                self.packet(packet);
            }
        }
        Ok(())
    }

    fn packet(&mut self, packet: Packet) {
        if let Some(bundle) = packet.ftrace {
            self.bundle(bundle);
        }
        for process in packet.tree.iter().flat_map(|tree| &tree.processes) {
            self.trace.processes.insert(process.pid, process.pid);
            let name = process.command.first().map(|name| lossy(name)).unwrap_or_default();
            let name = name.rsplit('/').next().unwrap_or_default().chars().take(15).collect();
            self.trace.names.entry(process.pid).or_insert(name);
        }
        for thread in packet.tree.into_iter().flat_map(|tree| tree.threads) {
            self.trace.processes.insert(thread.tid, thread.tgid);
            self.trace.names.insert(thread.tid, lossy(&thread.name));
        }
        if let Some(system) = packet.system {
            self.trace.release = system.utsname.map(|name| lossy(&name.release)).unwrap_or_default();
            self.trace.cpus = Some(system.cpus).filter(|&cpus| cpus > 0);
        }
        if let Some(stats) = packet.stats {
            for cpu in &stats.cpus {
                let Ok(number) = u32::try_from(cpu.cpu) else { continue };
                match stats.phase {
                    START_OF_TRACE => drop(self.lost_before.insert(number, lost(cpu))),
                    END_OF_TRACE => {
                        let before = self.lost_before.get(&number).copied().unwrap_or(0);
                        let meanwhile = lost(cpu).saturating_sub(before);
                        if meanwhile > 0 {
                            self.trace.lost.insert(number, meanwhile);
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    fn bundle(&mut self, bundle: Bundle) {
        let cpu = bundle.cpu;
        if bundle.lost_events {
            self.running.remove(&cpu);
            self.trace.lost.entry(cpu).or_insert(1);
        }
        for event in bundle.events {
            let (time, current, flags) = (event.time, event.pid as i32, Flags::of(i64::from(event.flags)));
            if let Some(what) = what(event) {
                if let What::Switch { next, .. } = &what {
                    self.running.insert(cpu, next.clone());
                }
                self.trace.events.push(Heard { time, cpu, current, flags, what });
            }
        }
        if let Some(compact) = bundle.compact {
            self.compact(cpu, &compact);
        }
    }

    /// Switches and wake-ups as columns, times as differences.
    fn compact(&mut self, cpu: u32, columns: &Compact) {
        let name = |index: Option<&u32>| {
            index
                .and_then(|&index| columns.names.get(index as usize))
                .map(|name| lossy(name))
                .unwrap_or_default()
        };
        let before_all = self.running.get(&cpu).map_or(0, |task| task.pid);
        let mut switches = Vec::new();
        let mut time = 0_u64;
        for (row, delta) in columns.switch_time.iter().enumerate() {
            time = time.wrapping_add(*delta);
            let Some(&pid) = columns.switch_next_pid.get(row) else { break };
            let prio = columns.switch_next_prio.get(row).map(|&prio| i64::from(prio));
            let next = Named { pid, name: name(columns.switch_next_name.get(row)), prio };
            let prev = self.running.insert(cpu, next.clone());
            let bits = columns.switch_prev_state.get(row).copied().unwrap_or(0);
            switches.push((time, pid));
            // Of the first one on a CPU it is not told who was before: idle is taken for it.
            let prev = prev.unwrap_or_default();
            let what = What::Switch { state: state(bits), next, prev: prev.clone() };
            self.trace.events.push(Heard { time, cpu, current: prev.pid, flags: Flags::default(), what });
        }
        let mut time = 0_u64;
        for (row, delta) in columns.waking_time.iter().enumerate() {
            time = time.wrapping_add(*delta);
            let Some(&pid) = columns.waking_pid.get(row) else { break };
            let prio = columns.waking_prio.get(row).map(|&prio| i64::from(prio));
            let wakee = Named { pid, name: name(columns.waking_name.get(row)), prio };
            let to = columns.waking_cpu.get(row).and_then(|&cpu| u32::try_from(cpu).ok());
            let flags = Flags::of(columns.waking_flags.get(row).copied().unwrap_or(0).into());
            // Who ran there when it was made: the last switch before it.
            let before = switches.partition_point(|(at, _)| *at <= time);
            let current = before.checked_sub(1).map_or(before_all, |at| switches[at].1);
            let what = What::Waking { wakee, cpu: to };
            self.trace.events.push(Heard { time, cpu, current, flags, what });
        }
    }
}

/// `prev_state` as kernels since 4.14 number it.
fn state(bits: i64) -> PrevState {
    crate::heard::state(bits as u64, &[])
}

fn what(event: Ftrace) -> Option<What> {
    let waking = |wake: Wakeup| {
        let task = Named { pid: wake.pid, name: lossy(&wake.name), prio: Some(wake.prio.into()) };
        (task, u32::try_from(wake.cpu).ok())
    };
    if let Some(switch) = event.switch {
        let task = |pid, name, prio: i32| Named { pid, name, prio: Some(prio.into()) };
        let prev = task(switch.prev_pid, lossy(&switch.prev_name), switch.prev_prio);
        let next = task(switch.next_pid, lossy(&switch.next_name), switch.next_prio);
        return Some(What::Switch { prev, state: state(switch.prev_state), next });
    }
    if let Some((wakee, cpu)) = event.waking.map(waking) {
        return Some(What::Waking { wakee, cpu });
    }
    if let Some((wakee, cpu)) = event.wakeup.map(waking) {
        return Some(What::Wakeup { wakee, cpu });
    }
    if let Some((task, cpu)) = event.wakeup_new.map(waking) {
        return Some(What::WakeupNew { task, cpu });
    }
    if let Some(migrate) = event.migrate {
        let task = Named { pid: migrate.pid, name: lossy(&migrate.name), prio: Some(migrate.prio.into()) };
        return Some(What::Migrate {
            task,
            from: migrate.from.try_into().ok()?,
            to: migrate.to.try_into().ok()?,
        });
    }
    if let Some(fork) = event.fork {
        let child = Named { pid: fork.child, name: lossy(&fork.name), prio: None };
        return Some(What::Fork { parent: fork.parent, child, thread: false });
    }
    if let Some(task) = event.new_task {
        let child = Named { pid: task.pid, name: lossy(&task.name), prio: None };
        let thread = task.clone_flags & CLONE_THREAD != 0;
        return Some(What::Fork { parent: event.pid as i32, child, thread });
    }
    if let Some(rename) = event.rename {
        return Some(What::Rename { task: Named { pid: rename.pid, name: lossy(&rename.name), prio: None } });
    }
    if let Some(process) = event.exec {
        return Some(What::Exec { pid: process.pid });
    }
    if let Some(process) = event.exit {
        return Some(What::Exit { pid: process.pid });
    }
    let irq = |number: Number, enters| What::Irq { number: number.number, enters };
    let softirq =
        |number: Number, enters| Some(What::Softirq { vector: u8::try_from(number.number).ok()?, enters });
    let irqs = event.irq_entry.map(|entry| irq(entry, true)).or(event.irq_exit.map(|exit| irq(exit, false)));
    irqs.or_else(|| event.softirq_entry.and_then(|entry| softirq(entry, true)))
        .or_else(|| event.softirq_exit.and_then(|exit| softirq(exit, false)))
}

#[cfg(test)]
mod tests;
