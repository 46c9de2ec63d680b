//! Workload files: TOML that people write, read into a [`Workload`].
//!
//! Not here: rt-app files ([`super::rtapp`]), generators ([`super::builtin`]), checks that hold for every
//! origin ([`super::builder::check`]), how much a file may ask for ([`super::limits`]). docs/workloads.md describes
//! the format with examples.

use super::builder::{BuildError, Builder};
use super::change::{CgroupSettings, CgroupSpec, Change, CpuMax, SchedulerEnd, TimedChange};
use super::limits::{self, Room};
use super::{Amount, Arrival, ChannelType, Late, Op, TimerRef, Workload};
use crate::cpu_set::CpuSet;
use crate::ids::{ChannelId, CpuId};
use crate::memory::MemoryNeeds;
use crate::policy::{Nice, Policy, TaskAttributes};
use crate::time::Nanos;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;

/// A workload file that cannot be used.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum WorkloadError {
    /// Not TOML or not of the format; the text has line and column.
    #[error("{0}")]
    Syntax(String),
    /// Refers to what is not there, or cannot run.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// Not JSON or not of rt-app's format.
    #[error("{0}")]
    RtApp(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileText {
    name: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    duration: Option<Nanos>,
    #[serde(default)]
    channels: BTreeMap<String, ChannelText>,
    #[serde(default)]
    behaviours: BTreeMap<String, Vec<StepText>>,
    #[serde(default)]
    task: Vec<TaskText>,
    #[serde(default)]
    device: Vec<DeviceText>,
    #[serde(default)]
    cgroup: Vec<CgroupText>,
    #[serde(default)]
    offline: Option<CpuSet>,
    #[serde(default)]
    memory: MemoryNeeds,
    #[serde(default)]
    event: Vec<EventText>,
}

/// A cgroup and what is set of it.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct CgroupText {
    path: String,
    #[serde(default)]
    weight: Option<u32>,
    #[serde(default)]
    nice: Option<i64>,
    #[serde(default)]
    idle: bool,
    #[serde(default)]
    quota: Option<Nanos>,
    #[serde(default)]
    period: Option<Nanos>,
    #[serde(default)]
    burst: Option<Nanos>,
}

/// Something that happens to the machine: one of a CPU, a suspend, a cgroup, a knob, a scheduler.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct EventText {
    time: Nanos,
    #[serde(default)]
    cpu: Option<u32>,
    #[serde(default)]
    online: Option<bool>,
    #[serde(default)]
    suspend: Option<Nanos>,
    #[serde(default)]
    cgroup: Option<CgroupText>,
    #[serde(default)]
    knob: Option<String>,
    #[serde(default)]
    value: Option<i64>,
    #[serde(default)]
    scheduler: Option<String>,
    #[serde(default)]
    end_scheduler: Option<SchedulerEnd>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChannelText {
    #[serde(rename = "type")]
    kind: ChannelTypeText,
    #[serde(default)]
    capacity: Option<u64>,
    #[serde(default)]
    initial: u64,
    #[serde(default, deserialize_with = "channels")]
    count: Option<u32>,
}

/// What a file calls the types of channels: bytes go through a pipe or a socket.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ChannelTypeText {
    Bytes,
    Socket,
    Tokens,
    Mutex,
    Condition,
    Barrier,
}

impl ChannelTypeText {
    fn kind(self) -> ChannelType {
        match self {
            ChannelTypeText::Bytes | ChannelTypeText::Socket => ChannelType::Bytes,
            ChannelTypeText::Tokens => ChannelType::Tokens,
            ChannelTypeText::Mutex => ChannelType::Mutex,
            ChannelTypeText::Condition => ChannelType::Condition,
            ChannelTypeText::Barrier => ChannelType::Barrier,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskText {
    name: String,
    #[serde(default = "one", deserialize_with = "tasks")]
    count: u32,
    #[serde(default)]
    process: Option<String>,
    #[serde(default)]
    policy: Policy,
    #[serde(default)]
    nice: Nice,
    #[serde(default)]
    rt_priority: u8,
    #[serde(default)]
    slice: Option<Nanos>,
    #[serde(default)]
    cpus: Option<CpuSet>,
    #[serde(default)]
    cgroup: String,
    #[serde(default)]
    start: Nanos,
    #[serde(default)]
    start_cpu: Option<u32>,
    #[serde(default)]
    template: bool,
    #[serde(default = "yes")]
    target: bool,
    #[serde(default)]
    behaviour: Option<String>,
    #[serde(default)]
    steps: Vec<StepText>,
}

fn one() -> u32 {
    1
}

fn yes() -> bool {
    true
}

/// Refused where it stands, so that the message has line and column.
fn tasks<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    limits::count(deserializer, limits::TASKS)
}

fn channels<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    limits::count(deserializer, limits::CHANNELS).map(Some)
}

fn arrivals<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    limits::count(deserializer, limits::ARRIVALS)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeviceText {
    name: String,
    #[serde(default)]
    cpu: u32,
    channel: String,
    period: Nanos,
    #[serde(default)]
    start: Nanos,
    #[serde(default = "one")]
    amount: u32,
    #[serde(deserialize_with = "arrivals")]
    count: u32,
}

#[derive(Clone, Deserialize)]
#[serde(untagged)]
enum AmountText {
    Fixed(Nanos),
    Drawn(DrawnText),
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum DrawnText {
    Uniform([Nanos; 2]),
    Exponential(Nanos),
    Quantiles(Vec<Nanos>),
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct BytesText {
    channel: String,
    bytes: u32,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct TokensText {
    channel: String,
    #[serde(default = "one")]
    tokens: u32,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct TakeText {
    channel: String,
    #[serde(default)]
    timeout: Option<Nanos>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct WaitAnyText {
    channels: Vec<String>,
    #[serde(default)]
    timeout: Option<Nanos>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct TimerText {
    period: Nanos,
    #[serde(default)]
    deadline: Option<Nanos>,
    #[serde(default)]
    resync: bool,
    #[serde(default)]
    skip: bool,
    #[serde(default)]
    from_start: bool,
    /// Tells several timers of a task apart.
    #[serde(default)]
    name: String,
    /// One timer for all tasks that name it.
    #[serde(default)]
    shared: bool,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct SpinText {
    time: Nanos,
    #[serde(default = "spin_piece")]
    piece: Nanos,
}

fn spin_piece() -> Nanos {
    Nanos::from_micros(32)
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConditionText {
    condition: String,
    lock: String,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct WakeText {
    channel: String,
    #[serde(default = "one")]
    count: u32,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct SetText {
    #[serde(default)]
    cgroup: String,
    #[serde(default)]
    policy: Policy,
    #[serde(default)]
    nice: Nice,
    #[serde(default)]
    rt_priority: u8,
    #[serde(default)]
    slice: Option<Nanos>,
    #[serde(default)]
    cpus: Option<CpuSet>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct JobText {
    #[serde(default)]
    deadline: Option<Nanos>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct LoopText {
    #[serde(default)]
    count: u32,
    steps: Vec<StepText>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct WaitDeviceText {
    time: Nanos,
    cpu: u32,
}

/// One step: a table with one key.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum StepText {
    Run(AmountText),
    Spin(SpinText),
    Sleep(AmountText),
    SleepUntil(Nanos),
    WaitDevice(WaitDeviceText),
    Timer(TimerText),
    Send(BytesText),
    Receive(BytesText),
    WaitAny(WaitAnyText),
    Close(String),
    Post(TokensText),
    Take(TakeText),
    Wake(WakeText),
    Lock(String),
    Unlock(String),
    ConditionWait(ConditionText),
    Barrier(String),
    Fork(String),
    WaitChildren(bool),
    Yield(bool),
    Set(SetText),
    Touch(u32),
    JobStart(JobText),
    JobEnd(bool),
    Loop(LoopText),
    Exit(bool),
}

/// Reads a workload file.
///
/// # Errors
/// [`WorkloadError`] with line and column for syntax and unknown fields, and by name for what is missing.
pub fn parse(text: &str) -> Result<Workload, WorkloadError> {
    let file: FileText = toml::from_str(text).map_err(|error| WorkloadError::Syntax(error.to_string()))?;
    check_room(&file)?;
    let mut builder = Builder::new(&file.name, &file.description);
    for (name, channel) in &file.channels {
        match channel.count {
            None => add_channel(&mut builder, name, channel),
            Some(count) => {
                (0..count).for_each(|i| add_channel(&mut builder, &format!("{name}{i}"), channel));
            }
        }
    }
    // Templates first: steps refer to them by name, whatever the order in the file.
    for task in &file.task {
        for instance in 0..task.count {
            builder.declare(&instance_name(task, instance), task.template);
        }
    }
    for task in &file.task {
        add_task(&mut builder, &file, task)?;
    }
    for device in &file.device {
        let channel = builder.find_channel(&device.channel)?;
        builder.device(&device.name, CpuId(device.cpu), arrivals_of(device, channel)?);
    }
    let mut workload = builder.finish(file.duration)?;
    file.memory.check().map_err(|problem| WorkloadError::Syntax(problem.to_owned()))?;
    workload.memory = file.memory;
    workload.offline = file.offline.iter().flat_map(CpuSet::iter).take_while(|cpu| cpu.0 < 1024).collect();
    workload.cgroups = file.cgroup.iter().map(cgroup).collect::<Result<_, _>>()?;
    workload.changes = file.event.iter().map(change).collect::<Result<_, _>>()?;
    workload.changes.sort_by_key(|change| change.time);
    Ok(workload)
}

fn add_channel(builder: &mut Builder, name: &str, text: &ChannelText) {
    let kind = text.kind.kind();
    let capacity = text.capacity.unwrap_or(if kind == ChannelType::Bytes { 65_536 } else { 0 });
    if text.kind == ChannelTypeText::Socket {
        builder.socket(name, capacity, text.initial);
    } else {
        builder.channel(name, kind, capacity, text.initial);
    }
}

/// Nothing is made before it is known how much of it: counts multiply.
fn check_room(file: &FileText) -> Result<(), BuildError> {
    let mut room = Room::new(limits::CHANNELS);
    for (name, channel) in &file.channels {
        room.take(name, u64::from(channel.count.unwrap_or(1)))?;
    }
    let mut room = Room::new(limits::ARRIVALS);
    for device in &file.device {
        room.take(&device.name, u64::from(device.count))?;
    }
    let (mut tasks, mut steps) = (Room::new(limits::TASKS), Room::new(limits::STEPS));
    for task in &file.task {
        tasks.take(&task.name, u64::from(task.count))?;
        let behaviour = task.behaviour.as_ref().and_then(|name| file.behaviours.get(name));
        steps.take(&task.name, u64::from(task.count) * size(behaviour.unwrap_or(&task.steps)))?;
    }
    Ok(())
}

/// Steps, and what they list, as one task keeps them.
fn size(steps: &[StepText]) -> u64 {
    let of = |step: &StepText| match step {
        StepText::Loop(body) => 2 + size(&body.steps),
        StepText::WaitAny(wait) => 1 + wait.channels.len() as u64,
        StepText::Run(AmountText::Drawn(DrawnText::Quantiles(values)))
        | StepText::Sleep(AmountText::Drawn(DrawnText::Quantiles(values))) => 1 + values.len() as u64,
        _ => 1,
    };
    steps.iter().map(of).sum()
}

fn arrivals_of(device: &DeviceText, channel: ChannelId) -> Result<Vec<Arrival>, BuildError> {
    let last = device.period.0.checked_mul(u64::from(device.count.saturating_sub(1)));
    if last.and_then(|last| last.checked_add(device.start.0)).is_none() {
        let what = "its last arrival is later than 584 years: lower count or period".to_owned();
        return Err(BuildError::Device { device: device.name.clone(), what });
    }
    let arrival = |n: u32| Arrival {
        time: device.start + device.period * u64::from(n),
        channel,
        amount: device.amount,
    };
    Ok((0..device.count).map(arrival).collect())
}

fn cgroup(text: &CgroupText) -> Result<CgroupSpec, BuildError> {
    let refuse = |what: &str| Err(BuildError::Cgroup { path: text.path.clone(), what: what.to_owned() });
    if !text.path.starts_with('/') || text.path.len() < 2 || text.path.ends_with('/') {
        return refuse("a path begins with / and names a group below the root, e.g. \"/web\"");
    }
    let standard = CpuMax::default();
    let max = CpuMax {
        quota: text.quota,
        period: text.period.unwrap_or(standard.period),
        burst: text.burst.unwrap_or(standard.burst),
    };
    let standard = CgroupSettings::default();
    let settings = match text.nice.map(Nice::new) {
        None => CgroupSettings { weight: text.weight.unwrap_or(standard.weight), ..standard },
        Some(_) if text.weight.is_some() => return refuse("give it a weight or a nice value, not both"),
        Some(Ok(nice)) => CgroupSettings::of_nice(nice),
        Some(Err(error)) => return refuse(&error.to_string()),
    };
    let settings = CgroupSettings { idle: text.idle, max, ..settings };
    if let Err(what) = settings.check() {
        return refuse(what);
    }
    Ok(CgroupSpec { path: text.path.clone(), settings })
}

fn change(text: &EventText) -> Result<TimedChange, BuildError> {
    let given = [
        text.online.is_some(),
        text.suspend.is_some(),
        text.cgroup.is_some(),
        text.knob.is_some(),
        text.scheduler.is_some(),
        text.end_scheduler.is_some(),
    ];
    let refused = BuildError::Event { time: text.time };
    let stray_cpu = text.cpu.is_some() && text.online.is_none() && text.end_scheduler.is_none();
    if given.iter().filter(|given| **given).count() != 1
        || stray_cpu
        || text.value.is_some() != text.knob.is_some()
    {
        return Err(refused);
    }
    let change = if let (Some(cpu), Some(online)) = (text.cpu, text.online) {
        Change::Cpu { cpu: CpuId(cpu), online }
    } else if let Some(time) = text.suspend {
        Change::Suspend(time)
    } else if let Some(text) = &text.cgroup {
        Change::Cgroup(cgroup(text)?)
    } else if let (Some(name), Some(value)) = (&text.knob, text.value) {
        Change::Knob { name: name.clone(), value }
    } else if let Some(name) = &text.scheduler {
        Change::Scheduler((name != "none").then(|| name.clone()))
    } else if let Some(by) = text.end_scheduler {
        Change::EndScheduler { by, cpu: CpuId(text.cpu.unwrap_or(0)) }
    } else {
        return Err(refused);
    };
    Ok(TimedChange { time: text.time, change })
}

fn instance_name(task: &TaskText, instance: u32) -> String {
    if task.count == 1 { task.name.clone() } else { format!("{}{instance}", task.name) }
}

fn add_task(builder: &mut Builder, file: &FileText, task: &TaskText) -> Result<(), WorkloadError> {
    let steps = match &task.behaviour {
        None => &task.steps,
        Some(_) if !task.steps.is_empty() => {
            return Err(BuildError::BehaviourAndSteps { task: task.name.clone() }.into());
        }
        Some(name) => file.behaviours.get(name).ok_or_else(|| BuildError::UnknownBehaviour {
            task: task.name.clone(),
            behaviour: name.clone(),
            known: file.behaviours.keys().cloned().collect::<Vec<_>>().join(", "),
        })?,
    };
    let attributes = TaskAttributes {
        policy: task.policy,
        nice: task.nice,
        rt_priority: task.rt_priority,
        slice: task.slice,
        affinity: task.cpus.unwrap_or_default(),
        cgroup: task.cgroup.clone(),
        kernel_thread: false,
    };
    for instance in 0..task.count {
        let mut ops = Vec::new();
        let scope = Instance { index: instance, count: task.count };
        lower(builder, scope, steps, &mut ops)?;
        let process = task.process.clone().unwrap_or_else(|| instance_name(task, instance));
        let row = builder.task(&instance_name(task, instance), &process, attributes.clone(), ops);
        row.start = task.start;
        row.start_cpu = task.start_cpu.map(CpuId);
        row.template = task.template;
        row.target = task.target;
    }
    Ok(())
}

/// Which of a task's instances a step is read for: `{i}` is its index, `{next}` the following one's, round.
#[derive(Clone, Copy)]
struct Instance {
    index: u32,
    count: u32,
}

impl Instance {
    fn name(self, text: &str) -> String {
        let next = (self.index + 1) % self.count;
        text.replace("{i}", &self.index.to_string()).replace("{next}", &next.to_string())
    }
}

fn amount(text: &AmountText) -> Amount {
    match text {
        AmountText::Fixed(time) => Amount::Fixed(*time),
        AmountText::Drawn(DrawnText::Uniform([low, high])) => Amount::Uniform(*low, *high),
        AmountText::Drawn(DrawnText::Exponential(mean)) => Amount::Exponential(*mean),
        AmountText::Drawn(DrawnText::Quantiles(values)) => Amount::Quantiles(values.clone().into()),
    }
}

fn lower(
    builder: &mut Builder,
    scope: Instance,
    steps: &[StepText],
    ops: &mut Vec<Op>,
) -> Result<(), BuildError> {
    for step in steps {
        if let StepText::Loop(body) = step {
            ops.push(Op::LoopStart { count: body.count });
            lower(builder, scope, &body.steps, ops)?;
            ops.push(Op::LoopEnd);
        } else if let Some(op) = lower_step(builder, scope, step)? {
            ops.push(op);
        }
    }
    Ok(())
}

fn late(timer: &TimerText) -> Result<Late, BuildError> {
    match (timer.resync, timer.skip) {
        (true, true) => Err(BuildError::TimerBoth),
        (true, false) => Ok(Late::Resync),
        (false, true) => Ok(Late::Skip),
        (false, false) => Ok(Late::CatchUp),
    }
}

/// One step that is no loop; `x = false` steps are left out.
fn lower_step(builder: &mut Builder, scope: Instance, step: &StepText) -> Result<Option<Op>, BuildError> {
    let channel = |name: &str| builder.find_channel(&scope.name(name));
    Ok(Some(match step {
        StepText::Run(time) => Op::Run(amount(time)),
        StepText::Sleep(time) => Op::Sleep(amount(time)),
        StepText::SleepUntil(time) => Op::SleepUntil(*time),
        StepText::WaitDevice(device) => Op::WaitDevice { time: device.time, cpu: CpuId(device.cpu) },
        StepText::Spin(spin) => Op::Spin { time: spin.time, piece: spin.piece },
        StepText::Timer(timer) => Op::Timer {
            timer: if timer.shared {
                TimerRef::Shared(builder.shared_timer(&scope.name(&timer.name)))
            } else {
                TimerRef::Own(builder.own_timer(&scope.name(&timer.name)))
            },
            from_start: timer.from_start,
            period: timer.period,
            deadline: timer.deadline.unwrap_or(timer.period),
            late: late(timer)?,
        },
        StepText::Send(send) => Op::Send { channel: channel(&send.channel)?, bytes: send.bytes },
        StepText::Receive(receive) => {
            Op::Receive { channel: channel(&receive.channel)?, bytes: receive.bytes }
        }
        StepText::WaitAny(wait) => Op::WaitAny {
            channels: wait.channels.iter().map(|name| channel(name)).collect::<Result<_, _>>()?,
            timeout: wait.timeout,
        },
        StepText::Close(name) => Op::Close { channel: channel(name)? },
        StepText::Post(post) => Op::Post { channel: channel(&post.channel)?, tokens: post.tokens },
        StepText::Take(take) => Op::Take { channel: channel(&take.channel)?, timeout: take.timeout },
        StepText::Wake(wake) => Op::WakeWaiters { channel: channel(&wake.channel)?, count: wake.count },
        StepText::Lock(name) => Op::Lock { channel: channel(name)? },
        StepText::Unlock(name) => Op::Unlock { channel: channel(name)? },
        StepText::ConditionWait(wait) => {
            Op::ConditionWait { condition: channel(&wait.condition)?, lock: channel(&wait.lock)? }
        }
        StepText::Barrier(name) => Op::Barrier { channel: channel(name)? },
        StepText::Fork(name) => Op::Fork { spec: builder.find_template(&scope.name(name))? },
        StepText::Touch(bytes) => Op::Touch { bytes: *bytes },
        StepText::JobStart(job) => Op::JobStart { deadline: job.deadline },
        StepText::Set(set) => Op::SetAttributes(Box::new(TaskAttributes {
            policy: set.policy,
            nice: set.nice,
            rt_priority: set.rt_priority,
            slice: set.slice,
            affinity: set.cpus.unwrap_or_default(),
            cgroup: set.cgroup.clone(),
            ..TaskAttributes::default()
        })),
        StepText::WaitChildren(true) => Op::WaitChildren,
        StepText::Yield(true) => Op::Yield,
        StepText::JobEnd(true) => Op::JobEnd,
        StepText::Exit(true) => Op::Exit,
        StepText::WaitChildren(false)
        | StepText::Yield(false)
        | StepText::JobEnd(false)
        | StepText::Exit(false) => return Ok(None),
        StepText::Loop(_) => return Ok(None),
    }))
}
