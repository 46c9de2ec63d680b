//! Perfetto traces: the ftrace events of a protobuf trace, compact scheduling included, and its process tree.
//!
//! Only the messages and fields that are used are declared, with the numbers of perfetto's `protos/perfetto/trace`;
//! everything else in a trace is passed over.

use crate::ImportError;
use crate::heard::{Flags, Heard, Named, Trace, What};
use prost::Message;
use prost::bytes::Bytes as Blob;
use schedlab_model::event::PrevState;
use std::io::Read;

const FORMAT: &str = "Perfetto";

/// The most that packed packets may unpack to.
const UNPACKED_MAX: u64 = 1 << 30;

#[derive(Clone, PartialEq, Message)]
struct Packets {
    #[prost(message, repeated, tag = "1")]
    packets: Vec<Packet>,
}

#[derive(Clone, PartialEq, Message)]
struct Packet {
    #[prost(message, optional, tag = "1")]
    ftrace: Option<Bundle>,
    #[prost(message, optional, tag = "2")]
    tree: Option<Tree>,
    #[prost(message, optional, tag = "34")]
    stats: Option<Stats>,
    #[prost(message, optional, tag = "45")]
    system: Option<System>,
    #[prost(bytes = "bytes", optional, tag = "50")]
    packed: Option<Blob>,
}

#[derive(Clone, PartialEq, Message)]
struct Bundle {
    #[prost(uint32, tag = "1")]
    cpu: u32,
    #[prost(message, repeated, tag = "2")]
    events: Vec<Ftrace>,
    #[prost(bool, tag = "3")]
    lost_events: bool,
    #[prost(message, optional, tag = "4")]
    compact: Option<Compact>,
}

#[derive(Clone, PartialEq, Message)]
struct Compact {
    #[prost(string, repeated, tag = "5")]
    names: Vec<String>,
    #[prost(uint64, repeated, tag = "1")]
    switch_time: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    switch_prev_state: Vec<i64>,
    #[prost(int32, repeated, tag = "3")]
    switch_next_pid: Vec<i32>,
    #[prost(int32, repeated, tag = "4")]
    switch_next_prio: Vec<i32>,
    #[prost(uint32, repeated, tag = "6")]
    switch_next_name: Vec<u32>,
    #[prost(uint64, repeated, tag = "7")]
    waking_time: Vec<u64>,
    #[prost(int32, repeated, tag = "8")]
    waking_pid: Vec<i32>,
    #[prost(int32, repeated, tag = "9")]
    waking_cpu: Vec<i32>,
    #[prost(int32, repeated, tag = "10")]
    waking_prio: Vec<i32>,
    #[prost(uint32, repeated, tag = "11")]
    waking_name: Vec<u32>,
    #[prost(uint32, repeated, tag = "12")]
    waking_flags: Vec<u32>,
}

#[derive(Clone, PartialEq, Message)]
struct Ftrace {
    #[prost(uint64, tag = "1")]
    time: u64,
    #[prost(uint32, tag = "2")]
    pid: u32,
    #[prost(uint32, tag = "5")]
    flags: u32,
    #[prost(message, optional, tag = "4")]
    switch: Option<Switch>,
    #[prost(message, optional, tag = "17")]
    wakeup: Option<Wakeup>,
    #[prost(message, optional, tag = "20")]
    waking: Option<Wakeup>,
    #[prost(message, optional, tag = "114")]
    wakeup_new: Option<Wakeup>,
    #[prost(message, optional, tag = "24")]
    softirq_entry: Option<Number>,
    #[prost(message, optional, tag = "25")]
    softirq_exit: Option<Number>,
    #[prost(message, optional, tag = "36")]
    irq_entry: Option<Number>,
    #[prost(message, optional, tag = "37")]
    irq_exit: Option<Number>,
    #[prost(message, optional, tag = "235")]
    new_task: Option<NewTask>,
    #[prost(message, optional, tag = "236")]
    rename: Option<Rename>,
    #[prost(message, optional, tag = "237")]
    exec: Option<Process>,
    #[prost(message, optional, tag = "238")]
    exit: Option<Process>,
    #[prost(message, optional, tag = "239")]
    fork: Option<Fork>,
    #[prost(message, optional, tag = "491")]
    migrate: Option<Migrate>,
}

#[derive(Clone, PartialEq, Message)]
struct Switch {
    #[prost(string, tag = "1")]
    prev_name: String,
    #[prost(int32, tag = "2")]
    prev_pid: i32,
    #[prost(int32, tag = "3")]
    prev_prio: i32,
    #[prost(int64, tag = "4")]
    prev_state: i64,
    #[prost(string, tag = "5")]
    next_name: String,
    #[prost(int32, tag = "6")]
    next_pid: i32,
    #[prost(int32, tag = "7")]
    next_prio: i32,
}

#[derive(Clone, PartialEq, Message)]
struct Wakeup {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(int32, tag = "2")]
    pid: i32,
    #[prost(int32, tag = "3")]
    prio: i32,
    #[prost(int32, tag = "5")]
    cpu: i32,
}

#[derive(Clone, PartialEq, Message)]
struct Migrate {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(int32, tag = "2")]
    pid: i32,
    #[prost(int32, tag = "3")]
    prio: i32,
    #[prost(int32, tag = "4")]
    from: i32,
    #[prost(int32, tag = "5")]
    to: i32,
}

#[derive(Clone, PartialEq, Message)]
struct Fork {
    #[prost(int32, tag = "2")]
    parent: i32,
    #[prost(string, tag = "3")]
    name: String,
    #[prost(int32, tag = "4")]
    child: i32,
}

#[derive(Clone, PartialEq, Message)]
struct NewTask {
    #[prost(int32, tag = "1")]
    pid: i32,
    #[prost(string, tag = "2")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct Rename {
    #[prost(int32, tag = "1")]
    pid: i32,
    #[prost(string, tag = "3")]
    name: String,
}

/// `sched_process_exec` and `sched_process_exit`: the pid has the same number.
#[derive(Clone, PartialEq, Message)]
struct Process {
    #[prost(int32, tag = "2")]
    pid: i32,
}

#[derive(Clone, PartialEq, Message)]
struct Number {
    #[prost(uint32, tag = "1")]
    number: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Tree {
    #[prost(message, repeated, tag = "1")]
    processes: Vec<TreeProcess>,
    #[prost(message, repeated, tag = "2")]
    threads: Vec<TreeThread>,
}

#[derive(Clone, PartialEq, Message)]
struct TreeProcess {
    #[prost(int32, tag = "1")]
    pid: i32,
    #[prost(string, repeated, tag = "3")]
    command: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct TreeThread {
    #[prost(int32, tag = "1")]
    tid: i32,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(int32, tag = "3")]
    tgid: i32,
}

#[derive(Clone, PartialEq, Message)]
struct System {
    #[prost(message, optional, tag = "1")]
    utsname: Option<Utsname>,
    #[prost(uint32, tag = "8")]
    cpus: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Utsname {
    #[prost(string, tag = "3")]
    release: String,
}

#[derive(Clone, PartialEq, Message)]
struct Stats {
    #[prost(int32, tag = "1")]
    phase: i32,
    #[prost(message, repeated, tag = "2")]
    cpus: Vec<CpuStats>,
}

/// `FtraceStats.Phase.END_OF_TRACE`.
const END_OF_TRACE: i32 = 2;

#[derive(Clone, PartialEq, Message)]
struct CpuStats {
    #[prost(uint64, tag = "1")]
    cpu: u64,
    #[prost(uint64, tag = "3")]
    overrun: u64,
    #[prost(uint64, tag = "8")]
    dropped: u64,
}

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
pub(crate) fn read(bytes: &[u8]) -> Result<Trace, ImportError> {
    let mut trace = Trace::default();
    let mut reader = Reader { trace: &mut trace, running: Default::default() };
    reader.packets(bytes)?;
    trace.has = if trace.names.is_empty() { String::new() } else { ", only processes".to_owned() };
    Ok(trace)
}

struct Reader<'a> {
    trace: &'a mut Trace,
    /// Who runs on each CPU, as far as compact switches told: they leave out who was before.
    running: std::collections::BTreeMap<u32, Named>,
}

impl Reader<'_> {
    fn packets(&mut self, bytes: &[u8]) -> Result<(), ImportError> {
        let broken = |what: String| ImportError::Broken { format: FORMAT, what };
        let all = Packets::decode(bytes).map_err(|error| broken(error.to_string()))?;
        for packet in all.packets {
            if let Some(packed) = packet.packed {
                let mut out = Vec::new();
                flate2::read::ZlibDecoder::new(&packed[..])
                    .take(UNPACKED_MAX)
                    .read_to_end(&mut out)
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
            let name = process.command.first().map(String::as_str).unwrap_or_default();
            let name = name.rsplit('/').next().unwrap_or_default().chars().take(15).collect();
            self.trace.names.entry(process.pid).or_insert(name);
        }
        for thread in packet.tree.into_iter().flat_map(|tree| tree.threads) {
            self.trace.processes.insert(thread.tid, thread.tgid);
            self.trace.names.insert(thread.tid, thread.name);
        }
        if let Some(system) = packet.system {
            self.trace.release = system.utsname.map(|name| name.release).unwrap_or_default();
            self.trace.cpus = Some(system.cpus).filter(|&cpus| cpus > 0);
        }
        for cpu in
            packet.stats.iter().filter(|stats| stats.phase == END_OF_TRACE).flat_map(|stats| &stats.cpus)
        {
            let lost = cpu.overrun + cpu.dropped;
            if let (Ok(number), true) = (u32::try_from(cpu.cpu), lost > 0) {
                self.trace.lost.insert(number, lost);
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
            index.and_then(|&index| columns.names.get(index as usize)).cloned().unwrap_or_default()
        };
        let mut switches = Vec::new();
        let mut time = 0_u64;
        for (row, delta) in columns.switch_time.iter().enumerate() {
            time = time.wrapping_add(*delta);
            let Some(&pid) = columns.switch_next_pid.get(row) else { break };
            let prio = columns.switch_next_prio.get(row).map(|&prio| i64::from(prio));
            let next = Named { pid, name: name(columns.switch_next_name.get(row)), prio };
            let prev = self.running.insert(cpu, next.clone());
            let bits = columns.switch_prev_state.get(row).copied().unwrap_or(0);
            switches.push((time, next.clone()));
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
            let current = before.checked_sub(1).map(|at| switches[at].1.pid);
            let current = current.or_else(|| self.running.get(&cpu).map(|task| task.pid)).unwrap_or(0);
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
        let task = Named { pid: wake.pid, name: wake.name, prio: Some(wake.prio.into()) };
        (task, u32::try_from(wake.cpu).ok())
    };
    if let Some(switch) = event.switch {
        let task = |pid, name, prio: i32| Named { pid, name, prio: Some(prio.into()) };
        let prev = task(switch.prev_pid, switch.prev_name, switch.prev_prio);
        let next = task(switch.next_pid, switch.next_name, switch.next_prio);
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
        let task = Named { pid: migrate.pid, name: migrate.name, prio: Some(migrate.prio.into()) };
        return Some(What::Migrate {
            task,
            from: migrate.from.try_into().ok()?,
            to: migrate.to.try_into().ok()?,
        });
    }
    if let Some(fork) = event.fork {
        let child = Named { pid: fork.child, name: fork.name, prio: None };
        return Some(What::Fork { parent: fork.parent, child });
    }
    if let Some(task) = event.new_task {
        let child = Named { pid: task.pid, name: task.name, prio: None };
        return Some(What::Fork { parent: event.pid as i32, child });
    }
    if let Some(rename) = event.rename {
        return Some(What::Rename { task: Named { pid: rename.pid, name: rename.name, prio: None } });
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
