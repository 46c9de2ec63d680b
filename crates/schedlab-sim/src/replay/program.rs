//! Last pass: programs, tasks, channels and devices of the replay.

use super::channels::Bytes;
use super::classify::{Handled, Handling};
use super::observe::{Observed, Step};
use super::{Replay, ReplayOptions, WaitKind};
use schedlab_model::recording::{Recording, TaskInfo};
use schedlab_model::workload::{
    Amount, Arrival, Device, Op, Past, Program, ProgramId, TaskSpec, TaskSpecId, Workload,
};
use schedlab_model::{ChannelId, CpuId, Nanos, TaskId};
use std::collections::BTreeMap;

/// A background task that wants its CPU to the end of the recording wants it for so many times as long.
const GOES_ON_TIMES: u64 = 100;

/// Puts everything together.
pub(super) fn build(
    recording: &Recording,
    options: &ReplayOptions,
    observed: &Observed,
    bytes: &Bytes,
    handled: &Handled,
    included: &[bool],
    sleep_cost: Nanos,
) -> Replay {
    let rows: Vec<TaskId> =
        (1..recording.tasks.len() as u32).map(TaskId).filter(|task| included[task.index()]).collect();
    let row_of: BTreeMap<TaskId, TaskSpecId> =
        rows.iter().enumerate().map(|(row, &task)| (task, TaskSpecId(row as u32))).collect();
    let goes_on = super::background::goes_on(recording);
    let emitter = Emitter { observed, bytes, handled, row_of: &row_of, goes_on: &goes_on, sleep_cost };
    let mut workload = Workload {
        name: options.name.clone().unwrap_or_else(|| name_of(recording)),
        description: format!("replay of a recording of {}", recording.duration),
        channels: bytes.channels.iter().chain(&handled.channels).cloned().collect(),
        devices: devices(bytes, handled),
        overflow_when_stalled: true,
        calls_in_runs: true,
        sleep_cost,
        tick_phase: super::calibrate::tick_phase(recording),
        newidle_ratio: super::newidle::ratio(recording),
        cgroups: recording.provenance.groups.clone().unwrap_or_default(),
        ..Workload::default()
    };
    for &task in &rows {
        let (start, program) = emitter.program(recording, task);
        workload.tasks.push(task_spec(recording.task(task), task, start, observed, &row_of));
        workload.programs.push(program);
    }
    let mut waits: BTreeMap<WaitKind, u64> = BTreeMap::new();
    for (wait, (kind, handling)) in observed.waits.iter().zip(&handled.waits) {
        if recording.task(wait.task).target && *handling != Handling::Never {
            *waits.entry(*kind).or_default() += 1;
        }
    }
    let all: u64 = waits.values().sum();
    let attributed: u64 = waits.iter().filter(|(kind, _)| kind.is_attributed()).map(|(_, count)| count).sum();
    workload.unattributed_waits = (all - attributed, all);
    let notes = notes(recording, bytes, handled, &waits);
    Replay { workload, task_of: rows, waits, notes }
}

fn name_of(recording: &Recording) -> String {
    let command = &recording.provenance.command;
    if command.is_empty() {
        let target = recording.tasks.iter().find(|task| task.target);
        return target.map_or_else(|| "recording".to_owned(), |task| task.name.clone());
    }
    command.join(" ")
}

fn task_spec(
    info: &TaskInfo,
    task: TaskId,
    (start, past): (Nanos, Past),
    observed: &Observed,
    row_of: &BTreeMap<TaskId, TaskSpecId>,
) -> TaskSpec {
    let parent_runs = observed.tasks[task.index()].forked.is_some_and(|parent| row_of.contains_key(&parent));
    TaskSpec {
        name: info.name.clone(),
        process: info.tgid.unsigned_abs(),
        attributes: observed.initial[task.index()].clone(),
        program: ProgramId(row_of[&task].0),
        start,
        start_cpu: info.existed.then_some(info.start_cpu),
        past,
        template: parent_runs,
        target: info.target,
        stream: u64::from(task.0),
    }
}

/// Who could run as the recording began is taken to have run for long, like the recorder itself.
fn past(info: &TaskInfo) -> Past {
    match (info.existed, info.start_runnable) {
        (false, _) => Past::New,
        (true, false) => Past::Slept,
        (true, true) => Past::Ran,
    }
}

/// One device for each CPU that took interrupts from outside.
fn devices(bytes: &Bytes, handled: &Handled) -> Vec<Device> {
    let mut by_cpu: BTreeMap<CpuId, Vec<Arrival>> = BTreeMap::new();
    for (cpu, arrival) in bytes.arrivals.iter().chain(&handled.arrivals) {
        by_cpu.entry(*cpu).or_default().push(*arrival);
    }
    let device = |(cpu, mut arrivals): (CpuId, Vec<Arrival>)| {
        arrivals.sort_by_key(|arrival| arrival.time);
        Device { name: format!("outside, cpu {cpu}"), cpu, arrivals }
    };
    by_cpu.into_iter().map(device).collect()
}

struct Emitter<'a> {
    observed: &'a Observed,
    bytes: &'a Bytes,
    handled: &'a Handled,
    row_of: &'a BTreeMap<TaskId, TaskSpecId>,
    goes_on: &'a [bool],
    sleep_cost: Nanos,
}

impl Emitter<'_> {
    /// When the task starts after what past, and what it does.
    fn program(&self, recording: &Recording, task: TaskId) -> ((Nanos, Past), Program) {
        let trace = &self.observed.tasks[task.index()];
        let info = recording.task(task);
        let mut start = (trace.first.unwrap_or(Nanos::ZERO), past(info));
        let mut steps = trace.steps.as_slice();
        if info.existed
            && let [Step::Wait(first), rest @ ..] = steps
            && let Some(time) = self.timed_start(*first)
        {
            (start, steps) = ((time, Past::Woken), rest);
        }
        let mut ops = Vec::new();
        for step in steps {
            if !self.step(&mut ops, step) {
                break;
            }
        }
        if let Some(&(channel, tokens)) = self.handled.ended.get(&task) {
            ops.push(Op::Post { channel, tokens });
        } else if self.goes_on[task.index()] {
            run(&mut ops, GOES_ON_TIMES * recording.duration.0);
        }
        ops.push(Op::Exit);
        (start, Program { ops })
    }

    /// A task that slept at the start until some time is just woken then.
    fn timed_start(&self, wait: u32) -> Option<Nanos> {
        match self.handled.waits[wait as usize].1 {
            Handling::Sleep(_) | Handling::Device(..) | Handling::Until(_) => {
                Some(self.observed.waits[wait as usize].end)
            }
            _ => None,
        }
    }

    /// Adds a step; false if the program ends here.
    fn step(&self, ops: &mut Vec<Op>, step: &Step) -> bool {
        match step {
            Step::Run(ns) => run(ops, *ns),
            Step::Transfer(id) => self.transfer(ops, *id),
            Step::Rest(id) => {
                if let Some((channel, bytes, message)) = self.messages(*id)
                    && self.observed.transfers[*id as usize].waited.is_some()
                {
                    receive_each(ops, channel, bytes - message, message);
                }
            }
            Step::Wait(wait) => match self.handled.waits[*wait as usize].1 {
                Handling::Absorbed => {}
                Handling::Sleep(time) => self.sleep(ops, Op::Sleep(Amount::Fixed(time))),
                Handling::Device(time, cpu) => self.sleep(ops, Op::WaitDevice { time, cpu }),
                Handling::Until(time) => self.sleep(ops, Op::SleepUntil(time)),
                Handling::Bytes(channel) => {
                    ops.push(Op::WaitAny { channels: Box::new([channel]), timeout: None })
                }
                Handling::Token(channel) | Handling::Arrival(channel) => {
                    ops.push(Op::Take { channel, timeout: None });
                }
                Handling::Never => return false,
            },
            Step::Wake(wait) => {
                if let Some(&(channel, bytes)) = self.bytes.given_at_wake.get(wait) {
                    ops.push(Op::Send { channel, bytes });
                }
                if let Handling::Token(channel) = self.handled.waits[*wait as usize].1
                    && !self.told_at_end(*wait, channel)
                {
                    ops.push(Op::Post { channel, tokens: 1 });
                }
            }
            Step::Until(time) => ops.push(Op::SleepUntil(*time)),
            Step::Child(child) => {
                if let Some(&(channel, _)) = self.handled.ended.get(child) {
                    ops.push(Op::Take { channel, timeout: None });
                }
            }
            Step::Fork(child) => {
                if let Some(&spec) = self.row_of.get(child) {
                    ops.push(Op::Fork { spec });
                }
            }
            Step::Yield => ops.push(Op::Yield),
            Step::Attributes(row) => {
                ops.push(Op::SetAttributes(Box::new(self.observed.attributes[*row as usize].clone())));
            }
        }
        true
    }

    /// Whoever sleeps for a time always does, and pays for it as part of its run.
    fn sleep(&self, ops: &mut Vec<Op>, sleep: Op) {
        run(ops, self.sleep_cost.0);
        ops.push(sleep);
    }

    /// Whether the wait is for the end of a child, which the child's last step tells.
    fn told_at_end(&self, wait: u32, channel: ChannelId) -> bool {
        let child = self.observed.waits[wait as usize].child;
        child.and_then(|child| self.handled.ended.get(&child)).is_some_and(|(end, _)| *end == channel)
    }

    /// A transfer that stands for several reads of the usual size: channel, bytes in all, bytes of each.
    fn messages(&self, id: u32) -> Option<(ChannelId, u32, u32)> {
        let transfer = &self.observed.transfers[id as usize];
        let [(channel, bytes)] = self.bytes.parts[id as usize][..] else { return None };
        let message = *self.bytes.message.get(&transfer.channel)?;
        (transfer.summed && bytes >= 2 * message).then_some((channel, bytes, message))
    }

    fn transfer(&self, ops: &mut Vec<Op>, id: u32) {
        let transfer = &self.observed.transfers[id as usize];
        let give = transfer.give;
        if let Some((channel, bytes, message)) = self.messages(id) {
            if transfer.waited.is_some() {
                return ops.push(Op::ReceiveAll { channel, bytes: message });
            }
            return receive_each(ops, channel, bytes, message);
        }
        for &(channel, bytes) in &self.bytes.parts[id as usize] {
            ops.push(if give { Op::Send { channel, bytes } } else { Op::ReceiveAll { channel, bytes } });
        }
    }
}

/// Several reads told as one: the burst before it is theirs, too, in equal parts.
fn receive_each(ops: &mut Vec<Op>, channel: ChannelId, bytes: u32, message: u32) {
    let count = bytes / message;
    let burst = match ops.pop() {
        Some(Op::Run(Amount::Fixed(burst))) => burst.0,
        other => {
            ops.extend(other);
            0
        }
    };
    let work = burst / u64::from(count);
    if burst > work * u64::from(count) {
        ops.push(Op::Run(Amount::Fixed(Nanos(burst - work * u64::from(count)))));
    }
    ops.push(Op::ReceiveEach { channel, message, count, work: Nanos(work) });
    if bytes > count * message {
        ops.push(Op::ReceiveAll { channel, bytes: bytes - count * message });
    }
}

/// Adds a burst, to the one before if there is nothing between them.
fn run(ops: &mut Vec<Op>, ns: u64) {
    if ns == 0 {
        return;
    }
    if let Some(Op::Run(Amount::Fixed(before))) = ops.last_mut() {
        *before += Nanos(ns);
    } else {
        ops.push(Op::Run(Amount::Fixed(Nanos(ns))));
    }
}

fn notes(
    recording: &Recording,
    bytes: &Bytes,
    handled: &Handled,
    waits: &BTreeMap<WaitKind, u64>,
) -> Vec<String> {
    let mut notes = Vec::new();
    let arrivals = bytes.arrivals.len() + handled.arrivals.len();
    if arrivals > 0 {
        notes.push(format!(
            "{arrivals} arrivals from outside the recording keep their recorded times: open-loop there, closed-loop between recorded tasks"
        ));
    }
    if bytes.split > 0 {
        notes.push(format!(
            "{} channels with several readers give each reader what it got in the recording",
            bytes.split
        ));
    }
    for (kind, count) in waits.iter().filter(|(kind, _)| !kind.is_attributed()) {
        notes.push(format!("{count} waits of the target without a known channel: {}", kind.name()));
    }
    if let Some((earlier, later)) = super::calibrate::drift(recording) {
        let us = |ns: u64| ns as f64 / 1_000.0;
        notes.push(format!(
            "the machine changed while it was recorded: waking an idle CPU took {:.1} µs in the first half of such wake-ups and {:.1} µs in the second; the replay draws from both throughout",
            us(earlier),
            us(later)
        ));
    }
    if recording.provenance.dropped > 0 {
        notes.push(format!("{} events were lost: waits may be missing", recording.provenance.dropped));
    }
    if recording.provenance.unseen_bytes > 0 {
        notes.push(format!(
            "{} bytes were received that no recorded send gave: who received them does not wait for them",
            recording.provenance.unseen_bytes
        ));
    }
    if recording.provenance.partial {
        notes.push("the recording ended early: what follows is not replayed".to_owned());
    }
    notes
}
