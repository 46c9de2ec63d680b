//! The log of callbacks: what the kernel calls in a scheduler, in order, with arguments, as JSON lines.
//!
//! bpf/callbacks.bpf.c is attached to the programs of a loaded scheduler; the scheduler's own bytes stay as they are.
//! The raw arguments are 64-bit words; here they get their meaning: tasks become pids, everything else a number.

use super::object::{self, Opened};
use super::{Error, Loaded};
use libbpf_rs::{Link, MapCore, MapFlags, Object, RingBufferBuilder};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::os::fd::{AsFd, AsRawFd};
use std::rc::Rc;
use std::time::Duration;

/// How an argument reads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Argument {
    /// A task; its pid is what the event carries.
    Task,
    /// A signed number, such as a CPU.
    Signed,
    /// Flags or a weight.
    Unsigned,
    /// A pointer that means nothing outside.
    Opaque,
}

use Argument::{Opaque, Signed, Task, Unsigned};

/// Callback, its arguments, and whether it returns a value. The index is the number in bpf/callbacks.bpf.c.
const CALLBACKS: &[(&str, &[Argument], bool)] = &[
    ("select_cpu", &[Task, Signed, Unsigned], true),
    ("enqueue", &[Task, Unsigned], false),
    ("dequeue", &[Task, Unsigned], false),
    ("dispatch", &[Signed, Task], false),
    ("tick", &[Task], false),
    ("runnable", &[Task, Unsigned], false),
    ("running", &[Task], false),
    ("stopping", &[Task, Unsigned], false),
    ("quiescent", &[Task, Unsigned], false),
    ("yield", &[Task, Opaque], true),
    ("core_sched_before", &[Task, Opaque], true),
    ("set_weight", &[Task, Unsigned], false),
    ("set_cpumask", &[Task, Opaque], false),
    ("update_idle", &[Signed, Unsigned], false),
    ("init_task", &[Task, Opaque], true),
    ("exit_task", &[Task, Opaque], false),
    ("enable", &[Task], false),
    ("disable", &[Task], false),
    ("cpu_online", &[Signed], false),
    ("cpu_offline", &[Signed], false),
    ("init", &[], true),
    ("exit", &[Opaque], false),
];

/// One call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Order over all CPUs.
    pub n: u64,
    /// `CLOCK_MONOTONIC` of the kernel in ns.
    pub time_ns: u64,
    /// The CPU it was called on.
    pub cpu: u32,
    /// The kernel's name of the callback.
    pub callback: String,
    /// The task it is about, if it has one; -1 for none.
    pub pid: i32,
    /// The task's process.
    pub tgid: i32,
    /// The task's name.
    pub comm: String,
    /// The arguments that are numbers, in order (the task left out).
    pub args: Vec<i64>,
    /// What it returned, if it returns something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ret: Option<i64>,
    /// The task's remaining slice in ns.
    pub slice_ns: u64,
    /// The task's virtual time.
    pub dsq_vtime: u64,
}

/// `struct callback_event` of bpf/callbacks.bpf.c.
#[repr(C)]
#[derive(Clone, Copy)]
struct RawEvent {
    number: u64,
    time_ns: u64,
    args: [u64; 3],
    returned: i64,
    slice_ns: u64,
    dsq_vtime: u64,
    callback: u32,
    cpu: u32,
    pid: i32,
    tgid: i32,
    comm: [u8; 16],
}

/// A log that is being written.
pub struct CallbackLog {
    object: Object,
    _links: Vec<Link>,
    calls: Rc<RefCell<Vec<Call>>>,
}

impl CallbackLog {
    /// Attaches to every callback that `scheduler` implements. Call before the scheduler is attached.
    pub fn start(scheduler: &Loaded) -> Result<Self, Error> {
        let mut opened = Opened::new(schedlab_objects::CALLBACKS)?;
        let targets: Vec<(String, i32, String)> = scheduler
            .callbacks
            .iter()
            .filter_map(|(callback, program)| {
                let target = scheduler.object.progs().find(|p| object::name_of(p.name()) == *program)?;
                Some((format!("on_{callback}"), target.as_fd().as_raw_fd(), program.clone()))
            })
            .collect();
        for mut program in opened.inner().progs_mut() {
            let name = object::name_of(program.name());
            match targets.iter().find(|(tracer, _, _)| *tracer == name) {
                Some((_, fd, target)) => program
                    .set_attach_target(*fd, Some(target.clone()))
                    .map_err(|source| Error::Libbpf { context: "aiming at a callback", source })?,
                None => program.set_autoload(false),
            }
        }
        let object = opened.load()?;
        let mut links = Vec::new();
        for program in object.progs_mut() {
            if targets.iter().any(|(tracer, _, _)| *tracer == object::name_of(program.name())) {
                let link = program.attach_trace();
                links.push(
                    link.map_err(|source| Error::Libbpf { context: "attaching to a callback", source })?,
                );
            }
        }
        Ok(Self { object, _links: links, calls: Rc::default() })
    }

    /// The calls since the last time, in order of their numbers.
    pub fn take(&self) -> Result<Vec<Call>, Error> {
        let failed = |source| Error::Libbpf { context: "reading the log of callbacks", source };
        let map = self.object.maps().find(|map| map.name() == "events").expect("our own object has that map");
        let calls = Rc::clone(&self.calls);
        let mut builder = RingBufferBuilder::new();
        let take = move |bytes: &[u8]| {
            calls.borrow_mut().extend(decode(bytes));
            0
        };
        builder.add(&map, take).map_err(failed)?;
        let ring = builder.build().map_err(failed)?;
        ring.poll(Duration::ZERO).map_err(failed)?;
        drop(ring);
        let mut calls = self.calls.take();
        calls.sort_by_key(|call| call.n);
        Ok(calls)
    }

    /// How many calls did not fit in the buffer so far.
    pub fn dropped(&self) -> u64 {
        let map = self.object.maps().find(|map| map.name() == ".data.order");
        let bytes = map.and_then(|map| map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).ok().flatten());
        let word = bytes.as_deref().and_then(|bytes| bytes.get(8..16)).and_then(|word| word.try_into().ok());
        word.map_or(0, u64::from_ne_bytes)
    }
}

fn decode(bytes: &[u8]) -> Option<Call> {
    if bytes.len() < size_of::<RawEvent>() {
        return None;
    }
    // SAFETY: the length was checked, every bit pattern is a RawEvent, and the read needs no alignment.
    let raw = unsafe { bytes.as_ptr().cast::<RawEvent>().read_unaligned() };
    let (callback, arguments, returns) = CALLBACKS.get(raw.callback as usize)?;
    let number = |(argument, word): (&Argument, &u64)| match argument {
        Task | Opaque => None,
        // The kernel passes 32-bit numbers in 64-bit words whose upper half is undefined.
        Signed => Some(i64::from(*word as u32 as i32)),
        Unsigned if *callback == "stopping" || *callback == "update_idle" => {
            Some(i64::from(*word as u8 != 0))
        }
        Unsigned => Some(*word as i64),
    };
    let end = raw.comm.iter().position(|byte| *byte == 0).unwrap_or(raw.comm.len());
    Some(Call {
        n: raw.number,
        time_ns: raw.time_ns,
        cpu: raw.cpu,
        callback: (*callback).to_string(),
        pid: raw.pid,
        tgid: raw.tgid,
        comm: String::from_utf8_lossy(&raw.comm[..end]).into_owned(),
        args: arguments.iter().zip(&raw.args).filter_map(number).collect(),
        ret: returns.then_some(raw.returned),
        slice_ns: raw.slice_ns,
        dsq_vtime: raw.dsq_vtime,
    })
}
