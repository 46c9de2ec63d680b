//! Loading and attaching the recorder's kernel half, and switching how much it tells.
//!
//! Only BTF tracepoints are used; those that this kernel lacks are left out, and the few without which a
//! recording means nothing are an error. Not here: reading the rings ([`super::raw`]).

use super::counters::CacheCounters;
use super::raw::{RECORD_BYTES, RING_BYTES, Rings};
use super::syscalls::{self, SYSCALLS_MAX};
use super::{Detail, RecordError};
use crate::verifier;
use libbpf_rs::btf::types::Typedef;
use libbpf_rs::{Btf, Iter, Link, MapCore, MapFlags, Object, ObjectBuilder, OpenObject, PrintLevel};
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Memory of all rings together, at most; and at most this part of the machine's.
const RINGS_BYTES_MAX: u64 = 256 << 20;
const MEMORY_SHARE: u64 = 32;
const RING_RECORDS_MIN: u64 = 1 << 12;
const RING_RECORDS_MAX: u64 = 1 << 24;

/// Switches a second that each CPU's ring is made for at least: the goal of 300,000, all on one CPU.
const SWITCHES_MIN: u64 = 300_000;
/// How much faster the target may be than what ran before it.
const FASTER: u64 = 4;
/// Records for each switch: it, the waking, the operation's entry and return.
const RECORDS_PER_SWITCH: u64 = 4;
/// How long the reader may be kept from reading.
const HELD_UP_MS: u64 = 200;

/// How large the rings are to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RingSize {
    pub(super) cpus: usize,
    /// Switches a second of the whole machine, measured before.
    pub(super) switches: u64,
    /// The machine's memory.
    pub(super) memory: u64,
    /// Bytes for each CPU, if they are given.
    pub(super) given: Option<u64>,
}

/// How many times more the rings hold than what comes while the reader is held up, so that it need not read at once.
const DEFERRED: u64 = 4;

impl RingSize {
    /// Records of each CPU's ring, a power of two, and how many of them may wait to be read: all but what comes while
    /// the reader is held up, as far as memory allows.
    fn records(self) -> (usize, usize) {
        let cpus = self.cpus.max(1) as u64;
        let bytes = u64::from(RECORD_BYTES);
        if let Some(given) = self.given {
            // All rings are one map, whose entries are numbered by 32 bits.
            let most = RING_RECORDS_MAX.min(1_u64 << ((1_u64 << 31) / cpus).ilog2());
            return ((given / bytes).clamp(RING_RECORDS_MIN, most).next_power_of_two() as usize, 0);
        }
        let switches = SWITCHES_MIN.max(FASTER * self.switches / cpus);
        let reserve = (switches * RECORDS_PER_SWITCH * HELD_UP_MS / 1_000).next_power_of_two();
        let allowed = RINGS_BYTES_MAX.min(self.memory / MEMORY_SHARE) / bytes / cpus;
        // The largest power of two that is allowed.
        let allowed = 1_u64 << allowed.max(1).ilog2();
        let records = (reserve * DEFERRED).min(allowed).clamp(RING_RECORDS_MIN, RING_RECORDS_MAX);
        (records as usize, records.saturating_sub(reserve) as usize)
    }
}

/// Without these a recording means nothing.
const REQUIRED: &[&str] = &["sched_switch", "sched_waking", "sched_wakeup_new", "sched_process_fork"];

/// Programs attached only in one of the two ways to tell operations.
const RETURNS: &str = "system_call_returns";
const SENDS: &str = "socket_sends";
const RECEIVES: &str = "socket_receives";
const MARK: &str = "mark_targets";

/// Maps of counters, one for each CPU.
const CACHE_REFERENCES: &str = "cache_references";
const CACHE_MISSES: &str = "cache_misses";

/// How operations are told that neither wait nor wake; numbers as `enum telling`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Telling {
    /// Each at its return.
    Returns,
    /// Sends by a hook; reads by another hook, or from I/O accounting.
    Sends {
        /// Reads by a hook.
        receives: bool,
    },
    /// Sends from I/O accounting and patterns, reads from accounting.
    Patterns,
}

/// The loaded recorder.
pub(super) struct Kernel {
    object: Object,
    links: Vec<Link>,
    returns: Option<Link>,
    sends: Vec<Link>,
    /// How often telling by patterns has begun.
    phase: u32,
    can_count: bool,
    pub(super) rings: Rings,
}

fn bpf_error(what: &'static str) -> impl FnOnce(libbpf_rs::Error) -> RecordError {
    move |error| match verifier::reason(&error) {
        None => RecordError::Privilege { what: what.to_owned() },
        Some(reason) => RecordError::Kernel { what, reason },
    }
}

impl Kernel {
    /// Loads the object with rings for each CPU; it tells virtual runtimes if asked to, and the use of caches if there
    /// are counters. Nothing is attached yet.
    pub(super) fn load(
        size: RingSize,
        vruntime: bool,
        counters: Option<&CacheCounters>,
    ) -> Result<Kernel, RecordError> {
        verifier::listen(PrintLevel::Warn);
        let points = tracepoints()?;
        let mut open = ObjectBuilder::default()
            .open_memory(schedlab_objects::RECORDER)
            .map_err(bpf_error("opening the recorder's object"))?;
        let (cpus, (ring_records, may_wait)) = (size.cpus, size.records());
        configure(&mut open, cpus, ring_records, [vruntime, counters.is_some()])?;
        for mut program in open.progs_mut() {
            let section = program.section().to_string_lossy().into_owned();
            if let Some(point) = section.strip_prefix("tp_btf/") {
                program.set_autoload(points(point));
            }
        }
        let object = open.load().map_err(bpf_error("loading the recorder"))?;
        let rings = map_rings(&object, cpus, ring_records)?.deferring(may_wait);
        let can_count = points("sock_send_length") && points("sock_recv_length");
        let kernel = Kernel {
            object,
            links: Vec::new(),
            returns: None,
            sends: Vec::new(),
            phase: 0,
            can_count,
            rings,
        };
        if let Some(counters) = counters {
            kernel.give(CACHE_REFERENCES, &counters.references)?;
            kernel.give(CACHE_MISSES, &counters.misses)?;
        }
        Ok(kernel)
    }

    /// Gives a map the counters of the CPUs, by number.
    fn give(&self, name: &str, counters: &[(u32, OwnedFd)]) -> Result<(), RecordError> {
        let map = self.map(name);
        for (cpu, counter) in counters {
            map.update(&cpu.to_ne_bytes(), &counter.as_raw_fd().to_ne_bytes(), MapFlags::ANY)
                .map_err(bpf_error("handing over the counters of caches"))?;
        }
        Ok(())
    }

    fn attach_program(&self, name: &str) -> Result<Option<Link>, RecordError> {
        let program = self.object.progs_mut().find(|program| program.name() == name && program.autoload());
        program.map(|program| program.attach().map_err(bpf_error("attaching to a tracepoint"))).transpose()
    }

    /// Marks the tasks of these processes as targets, then attaches everything.
    pub(super) fn attach(&mut self, processes: &[i32], detail: Detail) -> Result<(), RecordError> {
        self.add_targets(processes)?;
        let names: Vec<String> = self
            .object
            .progs_mut()
            .filter(|program| program.autoload())
            .map(|program| program.name().to_string_lossy().into_owned())
            .collect();
        for name in names.iter().filter(|name| ![RETURNS, SENDS, RECEIVES, MARK].contains(&name.as_str())) {
            let link = self.attach_program(name)?;
            self.links.extend(link);
        }
        match detail {
            Detail::Counted if self.can_count => self.tell(Telling::Sends { receives: false })?,
            Detail::Scheduling => {}
            _ => self.tell(Telling::Returns)?,
        }
        // Again, for tasks that appeared while nothing inherited yet.
        self.mark()
    }

    fn add_targets(&self, processes: &[i32]) -> Result<(), RecordError> {
        let map = self.map("target_processes");
        for process in processes {
            map.update(&process.to_ne_bytes(), &1_u32.to_ne_bytes(), MapFlags::ANY)
                .map_err(bpf_error("naming the target"))?;
        }
        self.mark()
    }

    /// Runs the iterator over all tasks that marks those of the target.
    fn mark(&self) -> Result<(), RecordError> {
        let Some(link) = self.attach_program(MARK)? else { return Ok(()) };
        let mut iterator = Iter::new(&link).map_err(bpf_error("walking the tasks"))?;
        let mut nothing = Vec::new();
        iterator
            .read_to_end(&mut nothing)
            .map_err(|source| RecordError::System { what: "walking the tasks", source })?;
        Ok(())
    }

    fn map(&self, name: &str) -> libbpf_rs::Map<'_> {
        self.object.maps().find(|map| map.name() == name).expect("our object has this map")
    }

    /// Whether operations can be counted instead of told one by one.
    pub(super) fn can_count(&self) -> bool {
        self.can_count
    }

    /// From now on tells in this way the operations that neither wait nor wake.
    pub(super) fn tell(&mut self, telling: Telling) -> Result<(), RecordError> {
        let (number, receives) = match telling {
            Telling::Returns => (0_u32, false),
            Telling::Sends { receives } => (1, receives),
            Telling::Patterns => (2, false),
        };
        let mut hooks = Vec::new();
        match telling {
            Telling::Returns => self.returns = self.attach_program(RETURNS)?,
            Telling::Sends { .. } => hooks.extend(self.attach_program(SENDS)?),
            Telling::Patterns => {}
        }
        if receives {
            hooks.extend(self.attach_program(RECEIVES)?);
        }
        self.phase += u32::from(telling == Telling::Patterns);
        let control: Vec<u8> =
            [number, u32::from(receives), self.phase].iter().flat_map(|part| part.to_ne_bytes()).collect();
        self.map(".bss.control")
            .update(&0_u32.to_ne_bytes(), &control, MapFlags::ANY)
            .map_err(bpf_error("changing how operations are told"))?;
        self.sends = hooks;
        if telling != Telling::Returns {
            self.returns = None;
        }
        Ok(())
    }

    /// Detaches everything; the rings stay readable.
    pub(super) fn detach(&mut self) {
        self.links.clear();
        self.returns = None;
        self.sends.clear();
    }
}

fn map_rings(object: &Object, cpus: usize, ring_records: usize) -> Result<Rings, RecordError> {
    let map = |name: &str| object.maps().find(|map| map.name() == name).expect("our object has this map");
    let (rings, records) = (map("rings"), map("records"));
    assert_eq!((rings.value_size(), records.value_size()), (RING_BYTES, RECORD_BYTES));
    Rings::new(rings.as_fd(), records.as_fd(), cpus, ring_records)
        .map_err(|source| RecordError::System { what: "mapping the recorder's rings", source })
}

/// Looks BTF tracepoints of the running kernel up.
fn tracepoints() -> Result<impl Fn(&str) -> bool, RecordError> {
    let btf = Btf::from_vmlinux().map_err(|_| RecordError::NoBtf)?;
    let has = move |point: &str| btf.type_by_name::<Typedef<'_>>(&format!("btf_trace_{point}")).is_some();
    match REQUIRED.iter().find(|point| !has(point)) {
        Some(point) => Err(RecordError::NoTracepoint { point }),
        None => Ok(has),
    }
}

/// Sizes the maps and fills `struct recorder_config`; `extras` are its last fields, what is told only if asked for.
fn configure(
    open: &mut OpenObject,
    cpus: usize,
    ring_records: usize,
    extras: [bool; 2],
) -> Result<(), RecordError> {
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        let entries = match name.as_str() {
            "rings" => cpus,
            "records" => cpus * ring_records,
            CACHE_REFERENCES | CACHE_MISSES => cpus,
            ".rodata.config" => {
                let value = map.initial_value_mut().expect("read-only data has a value");
                let (numbers, classes) = value.split_at_mut(8);
                numbers[..4].copy_from_slice(&(ring_records as u32).to_ne_bytes());
                numbers[4..].copy_from_slice(&ring_records.trailing_zeros().to_ne_bytes());
                classes[..SYSCALLS_MAX].copy_from_slice(&syscalls::classes());
                classes[SYSCALLS_MAX..][..extras.len()].copy_from_slice(&extras.map(u8::from));
                continue;
            }
            _ => continue,
        };
        map.set_max_entries(entries as u32).map_err(bpf_error("sizing the rings"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(cpus: usize, switches: u64, memory: u64, given: Option<u64>) -> u64 {
        RingSize { cpus, switches, memory, given }.records().0 as u64 * u64::from(RECORD_BYTES)
    }

    #[test]
    fn records_wait_in_what_is_not_needed_while_the_reader_is_held_up() {
        let records = |memory, given| RingSize { cpus: 2, switches: 0, memory, given }.records();
        assert_eq!(records(8 << 30, None), (1 << 20, 3 << 18));
        assert_eq!(records(1 << 30, None), (1 << 19, 1 << 18), "as far as memory allows");
        assert_eq!(records(1 << 29, None), (1 << 18, 0));
        assert_eq!(
            records(8 << 30, Some(8 << 20)),
            (1 << 18, 0),
            "a size that is given is for a reader held up"
        );
    }

    #[test]
    fn rings_hold_what_comes_while_the_reader_is_held_up() {
        const GIB: u64 = 1 << 30;
        assert_eq!(bytes(2, 0, 8 * GIB, None), 32 << 20, "240,000 records, rounded up, and four times that");
        assert_eq!(bytes(2, 600_000, 8 * GIB, None), 128 << 20, "1.2 million switches a second on each CPU");
        assert_eq!(bytes(64, 0, 64 * GIB, None), 4 << 20, "256 MiB in all");
        assert_eq!(bytes(2, 0, GIB / 2, None), 8 << 20, "1/32 of the memory");
        assert_eq!(bytes(16, 0, GIB, None), 2 << 20);
        assert_eq!(bytes(1_024, 0, GIB / 4, None), RING_RECORDS_MIN * 32, "never less");
        assert_eq!(bytes(2, 0, GIB, Some(20 << 20)), 32 << 20, "as much as is asked for");
    }
}
