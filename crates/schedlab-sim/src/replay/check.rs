//! Executes a replay without time, in any order: does it end, and what does it do?
//!
//! Any order of steps that a work-conserving scheduler could cause is an order here, and many more. Timers
//! are always due, devices deliver whenever chosen. Only the operations that replays use are known.

use schedlab_model::workload::{Amount, Op, Workload};
use schedlab_model::{ChannelId, Nanos};
use std::fmt;

/// Chooses who goes on.
pub trait Order {
    /// A number below `ready`, the number of tasks that can go on.
    fn choose(&mut self, ready: usize) -> usize;

    /// Whether the chosen task keeps going until it waits, instead of one operation.
    fn keeps_going(&self) -> bool {
        false
    }
}

/// Always the first, until it waits: the fastest check.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lowest;

impl Order for Lowest {
    fn choose(&mut self, _ready: usize) -> usize {
        0
    }

    fn keeps_going(&self) -> bool {
        true
    }
}

/// Orders drawn from a seed.
#[derive(Clone, Copy, Debug)]
pub struct Shuffled(pub u64);

impl Order for Shuffled {
    fn choose(&mut self, ready: usize) -> usize {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % ready as u64) as usize
    }
}

/// What an execution did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Executed {
    /// CPU time of each task row.
    pub cpu_time: Vec<Nanos>,
    /// Bytes and tokens taken from each channel.
    pub taken: Vec<u64>,
    /// How often room in a full channel had to be lifted.
    pub overflows: u64,
}

/// An execution that cannot end: who waits for what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck(pub Vec<(String, String)>);

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (task, what)) in self.0.iter().take(5).enumerate() {
            write!(f, "{}{task} waits for {what}", if index > 0 { "; " } else { "" })?;
        }
        if self.0.len() > 5 {
            write!(f, "; and {} more", self.0.len() - 5)?;
        }
        Ok(())
    }
}

#[derive(Clone, Debug, Default)]
struct Channel {
    level: u64,
    takers: Vec<usize>,
    givers: Vec<usize>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Task {
    started: bool,
    at: usize,
    /// Bytes of the current operation already taken.
    received: u32,
    /// The current operation's CPU time is counted.
    worked: bool,
    done: bool,
}

enum Outcome {
    Next,
    Waits,
    Ends,
}

struct Execution<'a> {
    workload: &'a Workload,
    tasks: Vec<Task>,
    channels: Vec<Channel>,
    ready: Vec<usize>,
    /// Arrivals still to come: device and position.
    arrivals: Vec<(usize, usize)>,
    out: Executed,
}

/// Executes a workload.
///
/// # Errors
/// If tasks wait for what nobody will give.
pub fn execute(workload: &Workload, order: &mut dyn Order) -> Result<Executed, Stuck> {
    let tasks = workload.tasks.iter().map(|task| Task { started: !task.template, ..Task::default() });
    let tasks: Vec<Task> = tasks.collect();
    let channel =
        |spec: &schedlab_model::workload::ChannelSpec| Channel { level: spec.initial, ..Channel::default() };
    let execution = Execution {
        workload,
        ready: (0..tasks.len()).filter(|&task| tasks[task].started).collect(),
        channels: workload.channels.iter().map(channel).collect(),
        arrivals: (0..workload.devices.len()).map(|device| (device, 0)).collect(),
        out: Executed {
            cpu_time: vec![Nanos::ZERO; tasks.len()],
            taken: vec![0; workload.channels.len()],
            overflows: 0,
        },
        tasks,
    };
    execution.run(order)
}

impl Execution<'_> {
    fn run(mut self, order: &mut dyn Order) -> Result<Executed, Stuck> {
        loop {
            self.arrivals.retain(|&(device, at)| at < self.workload.devices[device].arrivals.len());
            let choices = self.ready.len() + self.arrivals.len();
            if choices == 0 {
                if self.tasks.iter().all(|task| task.done || !task.started) {
                    return Ok(self.out);
                }
                self.overflow()?;
                continue;
            }
            let chosen = order.choose(choices);
            let Some(&task) = self.ready.get(chosen) else {
                self.arrive(chosen - self.ready.len());
                continue;
            };
            loop {
                match self.step(task) {
                    Outcome::Next if order.keeps_going() => {}
                    Outcome::Next => break,
                    Outcome::Waits | Outcome::Ends => {
                        let position = self.ready.iter().position(|&ready| ready == task);
                        self.ready.swap_remove(position.expect("the chosen task is ready"));
                        break;
                    }
                }
            }
        }
    }

    /// Nobody can go on: lets one writer go over the capacity of its channel.
    fn overflow(&mut self) -> Result<(), Stuck> {
        let full = self.channels.iter_mut().find_map(|channel| channel.givers.pop());
        let Some(writer) = full else { return Err(self.stuck()) };
        self.out.overflows += 1;
        if let Some(Op::Send { channel, bytes }) = self.op(writer) {
            let (channel, bytes) = (*channel, u64::from(*bytes));
            self.tasks[writer].at += 1;
            self.give(channel, bytes);
        }
        self.ready.push(writer);
        Ok(())
    }

    fn op(&self, task: usize) -> Option<&Op> {
        let program = self.workload.tasks[task].program;
        self.workload.programs[program.0 as usize].ops.get(self.tasks[task].at)
    }

    fn arrive(&mut self, index: usize) {
        let (device, at) = &mut self.arrivals[index];
        let arrival = self.workload.devices[*device].arrivals[*at];
        *at += 1;
        self.give(arrival.channel, u64::from(arrival.amount));
    }

    fn give(&mut self, channel: ChannelId, amount: u64) {
        let channel = &mut self.channels[channel.index()];
        channel.level += amount;
        self.ready.append(&mut channel.takers);
    }

    fn took(&mut self, channel: ChannelId, amount: u64) {
        self.out.taken[channel.index()] += amount;
        let channel = &mut self.channels[channel.index()];
        channel.level -= amount;
        self.ready.append(&mut channel.givers);
    }

    fn step(&mut self, task: usize) -> Outcome {
        let Some(op) = self.op(task).cloned() else {
            self.tasks[task].done = true;
            return Outcome::Ends;
        };
        match op {
            Op::Run(Amount::Fixed(time)) => self.out.cpu_time[task] += time,
            Op::Send { channel, bytes } => {
                let level = self.channels[channel.index()].level;
                if level > 0 && level + u64::from(bytes) > self.workload.channels[channel.index()].capacity {
                    self.channels[channel.index()].givers.push(task);
                    return Outcome::Waits;
                }
                self.give(channel, u64::from(bytes));
            }
            Op::ReceiveEach { channel, message, count, work } => {
                if !std::mem::replace(&mut self.tasks[task].worked, true) {
                    self.out.cpu_time[task] += Nanos(work.0 * u64::from(count));
                }
                return self.receive_all(task, channel, message * count);
            }
            Op::ReceiveAll { channel, bytes } => return self.receive_all(task, channel, bytes),
            Op::WaitAny { channels, .. }
                if channels.iter().all(|channel| self.channels[channel.index()].level == 0) =>
            {
                self.channels[channels[0].index()].takers.push(task);
                return Outcome::Waits;
            }
            Op::Post { channel, tokens } => self.give(channel, u64::from(tokens)),
            Op::Take { channel, .. } => {
                if self.channels[channel.index()].level == 0 {
                    self.channels[channel.index()].takers.push(task);
                    return Outcome::Waits;
                }
                self.took(channel, 1);
            }
            Op::Fork { spec } => {
                self.tasks[spec.0 as usize].started = true;
                self.ready.push(spec.0 as usize);
            }
            Op::Exit => {
                self.tasks[task].done = true;
                return Outcome::Ends;
            }
            _ => {}
        }
        self.tasks[task].at += 1;
        Outcome::Next
    }

    /// Takes what is there, whole or in part.
    fn receive_all(&mut self, task: usize, channel: ChannelId, bytes: u32) -> Outcome {
        let wanted = bytes - self.tasks[task].received;
        let part = self.channels[channel.index()].level.min(u64::from(wanted));
        if part > 0 {
            self.took(channel, part);
        }
        if part < u64::from(wanted) {
            self.tasks[task].received += part as u32;
            self.channels[channel.index()].takers.push(task);
            return Outcome::Waits;
        }
        (self.tasks[task].received, self.tasks[task].worked) = (0, false);
        self.tasks[task].at += 1;
        Outcome::Next
    }

    fn stuck(&self) -> Stuck {
        let waiting =
            (0..self.tasks.len()).filter(|&task| self.tasks[task].started && !self.tasks[task].done);
        let what = |task: usize| {
            let channel = match self.op(task) {
                Some(
                    Op::ReceiveAll { channel, .. }
                    | Op::ReceiveEach { channel, .. }
                    | Op::Take { channel, .. }
                    | Op::Send { channel, .. },
                ) => Some(*channel),
                Some(Op::WaitAny { channels, .. }) => channels.first().copied(),
                _ => None,
            };
            channel.map_or_else(
                || "nothing".to_owned(),
                |channel| self.workload.channels[channel.index()].name.clone(),
            )
        };
        Stuck(waiting.map(|task| (self.workload.tasks[task].name.clone(), what(task))).collect())
    }
}
