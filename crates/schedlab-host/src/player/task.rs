//! One task of a played workload: its attributes and its steps.
//!
//! Steps map to the system call that a program would make: `run` burns CPU time, `sleep` is `clock_nanosleep`, pipes are
//! pipes. Buffers are made before the start, so that a step makes no other system call than its own.

use super::channel::{Channels, Ends, read_once, write_all};
use super::{Error, duration};
use schedlab_model::workload::{Amount, Op, TimerRef, Workload};
use schedlab_model::{ChannelId, CpuSet, Nanos, TaskAttributes};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Whether the player has a live form of this step.
pub fn can_play(op: &Op) -> bool {
    match op {
        Op::Run(amount) | Op::Sleep(amount) => matches!(amount, Amount::Fixed(_)),
        Op::Take { timeout, .. } => timeout.is_none(),
        Op::Timer { timer, .. } => *timer == TimerRef::Own(0),
        Op::SleepUntil(_)
        | Op::Spin { .. }
        | Op::Send { .. }
        | Op::Receive { .. }
        | Op::ReceiveAll { .. }
        | Op::Close { .. }
        | Op::Post { .. }
        | Op::Yield
        | Op::SetAttributes(_)
        | Op::JobStart { .. }
        | Op::JobEnd
        | Op::LoopStart { .. }
        | Op::LoopEnd
        | Op::Fork { .. }
        | Op::WaitChildren
        | Op::Exit => true,
        _ => false,
    }
}

/// Whether the player can do the step in a task that another forks: such a task has no ends of channels.
pub fn child_can_play(op: &Op) -> bool {
    let shares = matches!(
        op,
        Op::Send { .. }
            | Op::Receive { .. }
            | Op::ReceiveAll { .. }
            | Op::Close { .. }
            | Op::Post { .. }
            | Op::Take { .. }
    );
    can_play(op) && !shares
}

/// What tasks may fork: name, attributes and steps, by row of the workload.
pub type Templates = Arc<BTreeMap<u32, (String, TaskAttributes, Vec<Op>)>>;

/// The templates of a workload.
pub fn templates(workload: &Workload) -> Templates {
    let rows = workload.tasks.iter().enumerate().filter(|(_, spec)| spec.template);
    let read = |(row, spec): (usize, &schedlab_model::workload::TaskSpec)| {
        let ops = workload.programs[spec.program.0 as usize].ops.clone();
        (row as u32, (spec.name.clone(), spec.attributes.clone(), ops))
    };
    Arc::new(rows.map(read).collect())
}

/// A task with everything it needs to run.
pub struct Task {
    name: String,
    start: Nanos,
    attributes: TaskAttributes,
    ops: Vec<Op>,
    ends: BTreeMap<ChannelId, Ends>,
    buffer: Vec<u8>,
    templates: Templates,
    children: Vec<JoinHandle<()>>,
}

impl Task {
    /// Takes ends of the channels that the task's steps use.
    pub fn new(
        workload: &Workload,
        index: usize,
        channels: &Channels,
        templates: &Templates,
    ) -> Result<Self, Error> {
        let spec = &workload.tasks[index];
        let ops = workload.programs[spec.program.0 as usize].ops.clone();
        let mut uses: BTreeMap<ChannelId, (bool, bool)> = BTreeMap::new();
        let mut largest = 8;
        for op in &ops {
            match op {
                Op::Receive { channel, bytes } | Op::ReceiveAll { channel, bytes } => {
                    uses.entry(*channel).or_default().0 = true;
                    largest = largest.max(*bytes);
                }
                Op::Send { channel, bytes } => {
                    uses.entry(*channel).or_default().1 = true;
                    largest = largest.max(*bytes);
                }
                Op::Take { channel, .. } => uses.entry(*channel).or_default().0 = true,
                Op::Post { channel, .. } => uses.entry(*channel).or_default().1 = true,
                _ => {}
            }
        }
        let mut ends = BTreeMap::new();
        for (channel, (receives, sends)) in uses {
            let copy = channels.ends(channel, receives, sends);
            ends.insert(
                channel,
                copy.map_err(|source| Error::System { context: "opening channels", source })?,
            );
        }
        let (name, attributes) = (spec.name.clone(), spec.attributes.clone());
        let (start, buffer, templates) = (spec.start, vec![0; largest as usize], Arc::clone(templates));
        Ok(Self { name, start, attributes, ops, ends, buffer, templates, children: Vec::new() })
    }

    /// Forks a task of a template. A kernel that refuses leaves the parent without that child, as in the simulator.
    fn fork(&mut self, row: u32, origin: Instant) {
        let (name, attributes, ops) = self.templates[&row].clone();
        let child = Self {
            name: name.clone(),
            start: Nanos::ZERO,
            attributes,
            ops,
            ends: BTreeMap::new(),
            buffer: Vec::new(),
            templates: Arc::clone(&self.templates),
            children: Vec::new(),
        };
        let body = move || match child.set_attributes() {
            Ok(()) => child.run(origin),
            Err(error) => eprintln!("{error}"),
        };
        match std::thread::Builder::new().name(name).spawn(body) {
            Ok(thread) => self.children.push(thread),
            Err(error) => eprintln!("task {}: fork: {error}", self.name),
        }
    }

    /// Gives the calling thread the task's policy, nice value, slice and affinity.
    pub fn set_attributes(&self) -> Result<(), Error> {
        apply(&self.attributes).map_err(|source| Error::Attributes { task: self.name.clone(), source })
    }

    /// Plays the steps to the end; a step that the kernel refuses ends the task and is told on standard error.
    pub fn run(mut self, origin: Instant) {
        let ops = std::mem::take(&mut self.ops);
        let mut loops: Vec<(usize, u32)> = Vec::new();
        let mut timer: Option<Instant> = None;
        let mut at = 0;
        while let Some(op) = ops.get(at) {
            at += 1;
            match op {
                Op::Exit => break,
                Op::LoopStart { count } => loops.push((at, *count)),
                Op::LoopEnd => {
                    let (start, left) = loops.last_mut().expect("a validated program closes what it opened");
                    if *left == 1 {
                        loops.pop();
                    } else {
                        *left = left.saturating_sub(1);
                        at = *start;
                    }
                }
                Op::SleepUntil(time) => super::sleep_until(origin + duration(*time)),
                Op::Timer { from_start, period, resync, .. } => {
                    let start = timer.or(from_start.then(|| origin + duration(self.start)));
                    timer = Some(next_period(start, *period, *resync));
                }
                Op::Fork { spec } => self.fork(spec.0, origin),
                Op::WaitChildren => self.children.drain(..).for_each(|child| drop(child.join())),
                op => {
                    if let Err(error) = self.step(op) {
                        eprintln!("task {}: {op:?}: {error}", self.name);
                        break;
                    }
                }
            }
        }
    }

    fn step(&mut self, op: &Op) -> io::Result<()> {
        match op {
            Op::Run(Amount::Fixed(time)) => burn(*time),
            Op::Spin { time, piece } => {
                let end = Instant::now() + duration(*time);
                while Instant::now() < end {
                    burn(*piece);
                }
            }
            Op::Sleep(Amount::Fixed(time)) => std::thread::sleep(duration(*time)),
            Op::Send { channel, bytes } => {
                if let Some(end) = &self.ends[channel].send {
                    write_all(end, &self.buffer[..*bytes as usize])?;
                }
            }
            Op::Receive { channel, bytes } => {
                self.receive(*channel, *bytes)?;
            }
            Op::ReceiveAll { channel, bytes } => {
                let mut left = *bytes;
                while left > 0 {
                    let got = self.receive(*channel, left)?;
                    if got == 0 {
                        break;
                    }
                    left -= got;
                }
            }
            Op::Close { channel } => {
                if let Some(ends) = self.ends.get_mut(channel) {
                    ends.send = None;
                }
            }
            Op::Post { channel, tokens } => {
                if let Some(end) = &self.ends[channel].send {
                    write_all(end, &u64::from(*tokens).to_ne_bytes())?;
                }
            }
            Op::Take { channel, .. } => {
                self.receive(*channel, 8)?;
            }
            Op::Yield => std::thread::yield_now(),
            Op::SetAttributes(attributes) => apply(attributes)?,
            // Marks of jobs concern metrics, not the kernel.
            _ => {}
        }
        Ok(())
    }

    fn receive(&mut self, channel: ChannelId, bytes: u32) -> io::Result<u32> {
        let Some(end) = &self.ends[&channel].receive else { return Ok(0) };
        let got = read_once(end, &mut self.buffer[..bytes as usize])?;
        Ok(u32::try_from(got).expect("no more than was asked for"))
    }
}

/// Sleeps until the next multiple of `period` after the first call; late, it does not sleep.
fn next_period(last: Option<Instant>, period: Nanos, resync: bool) -> Instant {
    let now = Instant::now();
    let next = last.unwrap_or(now) + duration(period);
    if next <= now && resync {
        return now;
    }
    super::sleep_until(next);
    next
}

/// Uses the CPU until the thread's own CPU clock has advanced by `time`.
fn burn(time: Nanos) {
    let end = cpu_time() + duration(time);
    while cpu_time() < end {
        std::hint::spin_loop();
    }
}

fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec. The clock exists since 2.6, so the call cannot fail.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// `struct sched_attr` of include/uapi/linux/sched/types.h, first version.
#[repr(C)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Gives the calling thread these attributes; what is as the kernel has it anyway is not asked for.
fn apply(attributes: &TaskAttributes) -> io::Result<()> {
    if !attributes.affinity.is_empty() {
        set_affinity(&attributes.affinity)?;
    }
    let slice = attributes.slice.map_or(0, |slice| slice.0);
    let attr = SchedAttr {
        size: u32::try_from(size_of::<SchedAttr>()).expect("48 bytes"),
        policy: attributes.policy.number(),
        flags: 0,
        nice: attributes.nice.get(),
        priority: u32::from(attributes.rt_priority),
        runtime: slice,
        deadline: 0,
        period: 0,
    };
    // SAFETY: the kernel reads `size` bytes of a struct that lives through the call.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &attr, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn set_affinity(cpus: &CpuSet) -> io::Result<()> {
    let words = cpus.words();
    // SAFETY: the kernel reads that many bytes of the words.
    let result = unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, size_of_val(words), words.as_ptr()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
