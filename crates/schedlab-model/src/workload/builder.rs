//! Puts a [`Workload`] together by name and checks it: what files, generators and imports share.

use super::{
    Amount, Arrival, ChannelSpec, ChannelType, Device, Op, Past, Program, ProgramId, TaskSpec, TaskSpecId,
    Workload,
};
use crate::ids::{ChannelId, CpuId};
use crate::memory::MemoryNeeds;
use crate::policy::TaskAttributes;
use crate::time::Nanos;
use std::collections::BTreeMap;

/// A workload that refers to what is not there, or cannot run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// No task would ever start.
    #[error("the workload has no task that starts: add a [[task]] that is not a template")]
    NoTasks,
    /// A step names a channel that is not declared.
    #[error("channel '{name}' is not declared; declared: {known}. Add [channels.{name}] with its type")]
    UnknownChannel {
        /// The name.
        name: String,
        /// Those there are.
        known: String,
    },
    /// A step names a channel of another type.
    #[error("task '{task}': {operation} needs a channel of type {needed}, '{channel}' is {found}")]
    ChannelType {
        /// Whose step.
        task: String,
        /// Which step.
        operation: &'static str,
        /// The channel.
        channel: String,
        /// What the step needs.
        needed: &'static str,
        /// What the channel is.
        found: &'static str,
    },
    /// A fork names what is no template.
    #[error("fork of '{name}': no [[task]] of that name with template = true; templates: {known}")]
    UnknownTemplate {
        /// The name.
        name: String,
        /// Those there are.
        known: String,
    },
    /// A task names a behaviour that is not there.
    #[error("task '{task}': behaviour '{behaviour}' is not there; known: {known}")]
    UnknownBehaviour {
        /// Whose.
        task: String,
        /// The name.
        behaviour: String,
        /// Those there are.
        known: String,
    },
    /// Both a named behaviour and steps of its own.
    #[error("task '{task}' has both a behaviour and steps: keep one")]
    BehaviourAndSteps {
        /// Whose.
        task: String,
    },
    /// Nothing to do.
    #[error("task '{task}' has no steps: give it at least one, e.g. {{ run = \"1ms\" }}")]
    NoSteps {
        /// Whose.
        task: String,
    },
    /// Two tasks of the same name.
    #[error("two tasks are called '{0}': rename one, or use count")]
    DuplicateTask(String),
    /// A loop that takes no time would never end.
    #[error("task '{task}': a loop for ever has no step that takes time or can wait; add e.g. a run")]
    EmptyLoop {
        /// Whose.
        task: String,
    },
    /// A cgroup that cannot be.
    #[error("cgroup '{path}': {what}")]
    Cgroup {
        /// Its path.
        path: String,
        /// What, with the bounds.
        what: String,
    },
    /// A device that cannot be.
    #[error("device '{device}': {what}")]
    Device {
        /// Its name.
        device: String,
        /// What, with the bounds.
        what: String,
    },
    /// A timer that would do two things when it is late.
    #[error("a timer has both resync and skip: keep one")]
    TimerBoth,
    /// An event that is none.
    #[error(
        "the event at {time} must be one of: cpu and online; suspend; cgroup with its path and settings; knob and value; \
         scheduler; end_scheduler"
    )]
    Event {
        /// Its time.
        time: Nanos,
    },
    /// Counts that ask for more than a workload may have.
    #[error("with '{name}' the workload has {found} {what}: at most {most}; lower a count")]
    TooMany {
        /// At which task, channel or device it is too many.
        name: String,
        /// Of what.
        what: &'static str,
        /// So many, up to there.
        found: u64,
        /// The bound.
        most: u32,
    },
    /// Something out of range.
    #[error("task '{task}': {what}")]
    Range {
        /// Whose.
        task: String,
        /// What, with the bounds.
        what: String,
    },
}

/// Puts a workload together.
#[derive(Debug, Default)]
pub struct Builder {
    workload: Workload,
    processes: Names,
    shared_timers: Names,
    own_timers: Names,
    channels: BTreeMap<String, ChannelId>,
    /// Rows by name, so far as they are templates.
    templates: BTreeMap<String, TaskSpecId>,
    declared: u32,
}

impl Builder {
    /// An empty workload.
    pub fn new(name: &str, description: &str) -> Builder {
        let workload =
            Workload { name: name.to_owned(), description: description.to_owned(), ..Workload::default() };
        Builder { workload, ..Builder::default() }
    }

    /// Adds a channel.
    pub fn channel(&mut self, name: &str, kind: ChannelType, capacity: u64, initial: u64) -> ChannelId {
        self.workload.channels.push(ChannelSpec {
            name: name.to_owned(),
            kind,
            capacity,
            initial,
            room_to_resume: 0,
            is_socket: false,
        });
        let id = ChannelId(self.workload.channels.len() as u32 - 1);
        self.channels.entry(name.to_owned()).or_insert(id);
        id
    }

    /// Adds one that goes through a Unix socket, which wakes who waits for room when three quarters of it are free
    /// (`unix_writable`), and a little more: what takes a quarter of it counts with an own byte of the socket.
    pub fn socket(&mut self, name: &str, capacity: u64, initial: u64) -> ChannelId {
        let channel = self.channel(name, ChannelType::Bytes, capacity, initial);
        let spec = self.channel_mut(channel);
        (spec.is_socket, spec.room_to_resume) = (true, capacity - capacity.saturating_sub(1) / 4);
        channel
    }

    /// What its processes and messages take of the machine's memory.
    pub fn memory(&mut self, needs: MemoryNeeds) {
        self.workload.memory = needs;
    }

    /// A channel that was added.
    pub fn channel_mut(&mut self, channel: ChannelId) -> &mut ChannelSpec {
        &mut self.workload.channels[channel.index()]
    }

    /// Announces a task so that forks can name it before it is added; tasks are added in the same order.
    pub fn declare(&mut self, name: &str, template: bool) -> TaskSpecId {
        let row = TaskSpecId(self.declared);
        self.declared += 1;
        if template {
            self.templates.entry(name.to_owned()).or_insert(row);
        }
        row
    }

    /// Adds a task with steps of its own; the row can be changed through the reference.
    pub fn task(
        &mut self,
        name: &str,
        process: &str,
        attributes: TaskAttributes,
        ops: Vec<Op>,
    ) -> &mut TaskSpec {
        self.workload.programs.push(Program { ops });
        let program = ProgramId(self.workload.programs.len() as u32 - 1);
        self.task_with(name, process, attributes, program)
    }

    /// Adds a program that several tasks share.
    pub fn program(&mut self, ops: Vec<Op>) -> ProgramId {
        self.workload.programs.push(Program { ops });
        ProgramId(self.workload.programs.len() as u32 - 1)
    }

    /// Adds a task that runs a shared program.
    pub fn task_with(
        &mut self,
        name: &str,
        process: &str,
        attributes: TaskAttributes,
        program: ProgramId,
    ) -> &mut TaskSpec {
        let process = self.processes.number(process);
        self.own_timers.0.clear();
        let stream = self.workload.tasks.len() as u64;
        self.workload.tasks.push(TaskSpec {
            name: name.to_owned(),
            process,
            attributes,
            program,
            start: Nanos::ZERO,
            start_cpu: None,
            past: Past::New,
            template: false,
            target: true,
            stream,
        });
        self.workload.tasks.last_mut().expect("a row was just pushed")
    }

    /// The number of a timer that tasks share, by its name.
    pub fn shared_timer(&mut self, name: &str) -> u32 {
        self.shared_timers.number(name)
    }

    /// The number of a timer of the task that is added next, by its name.
    pub fn own_timer(&mut self, name: &str) -> u32 {
        self.own_timers.number(name)
    }

    /// Adds an outside source.
    pub fn device(&mut self, name: &str, cpu: CpuId, arrivals: Vec<Arrival>) {
        self.workload.devices.push(Device { name: name.to_owned(), cpu, arrivals });
    }

    /// Finds a channel by name.
    pub fn find_channel(&self, name: &str) -> Result<ChannelId, BuildError> {
        let found = self.channels.get(name).copied();
        let known = || list(self.workload.channels.iter().map(|channel| channel.name.as_str()));
        found.ok_or_else(|| BuildError::UnknownChannel { name: name.to_owned(), known: known() })
    }

    /// Finds a declared template by name.
    pub fn find_template(&self, name: &str) -> Result<TaskSpecId, BuildError> {
        let found = self.templates.get(name).copied();
        let known = || list(self.templates.keys().map(String::as_str));
        found.ok_or_else(|| BuildError::UnknownTemplate { name: name.to_owned(), known: known() })
    }

    /// Checks and hands over.
    ///
    /// # Errors
    /// What [`check`] finds.
    pub fn finish(mut self, duration: Option<Nanos>) -> Result<Workload, BuildError> {
        self.workload.duration = duration;
        check(&self.workload)?;
        Ok(self.workload)
    }
}

/// Names numbered in the order in which they came.
#[derive(Debug, Default)]
struct Names(BTreeMap<String, u32>);

impl Names {
    /// The name's number, the next one if it is new.
    fn number(&mut self, name: &str) -> u32 {
        let next = self.0.len() as u32;
        *self.0.entry(name.to_owned()).or_insert(next)
    }
}

/// The first names of many: enough to see what was meant.
fn list<'a>(mut names: impl Iterator<Item = &'a str>) -> String {
    const SHOWN: usize = 20;
    let shown: Vec<&str> = names.by_ref().take(SHOWN).collect();
    match (shown.is_empty(), names.count()) {
        (true, _) => "none".to_owned(),
        (_, 0) => shown.join(", "),
        (_, more) => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Checks what must hold for a workload of any origin.
///
/// # Errors
/// The first thing that cannot run.
pub fn check(workload: &Workload) -> Result<(), BuildError> {
    if workload.tasks.iter().all(|task| task.template) {
        return Err(BuildError::NoTasks);
    }
    let mut names: Vec<&str> = workload.tasks.iter().map(|task| task.name.as_str()).collect();
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(BuildError::DuplicateTask(pair[0].to_owned()));
    }
    for task in &workload.tasks {
        check_attributes(&task.name, &task.attributes)?;
        let ops = &workload.programs[task.program.0 as usize].ops;
        if ops.is_empty() {
            return Err(BuildError::NoSteps { task: task.name.clone() });
        }
        for op in ops {
            check_op(workload, &task.name, op)?;
        }
        check_loops(&task.name, ops)?;
    }
    Ok(())
}

fn range(task: &str, what: impl Into<String>) -> BuildError {
    BuildError::Range { task: task.to_owned(), what: what.into() }
}

fn check_attributes(task: &str, attributes: &TaskAttributes) -> Result<(), BuildError> {
    let realtime = attributes.policy.is_realtime();
    if realtime != (1..=99).contains(&attributes.rt_priority) {
        let priority = attributes.rt_priority;
        return Err(range(
            task,
            format!("rt_priority {priority}: fifo and rr need 1 to 99, other policies none (0)"),
        ));
    }
    if attributes.affinity.is_empty() {
        return Err(range(task, "cpus is empty: name at least one CPU"));
    }
    let slices = Nanos::from_micros(100)..=Nanos::from_millis(100);
    match attributes.slice {
        Some(slice) if !slices.contains(&slice) => {
            Err(range(task, format!("slice {slice} is out of bounds: 0.1 ms to 100 ms")))
        }
        _ => Ok(()),
    }
}

const fn type_name(spec: &ChannelSpec) -> &'static str {
    match spec.kind {
        ChannelType::Bytes if spec.is_socket => "socket",
        ChannelType::Bytes => "bytes",
        ChannelType::Tokens => "tokens",
        ChannelType::Mutex => "mutex",
        ChannelType::Condition => "condition",
        ChannelType::Barrier => "barrier",
    }
}

fn check_op(workload: &Workload, task: &str, op: &Op) -> Result<(), BuildError> {
    let needs = |channel: ChannelId, operation: &'static str, kinds: &[ChannelType], needed: &'static str| {
        let spec = &workload.channels[channel.index()];
        if kinds.contains(&spec.kind) {
            return Ok(());
        }
        Err(BuildError::ChannelType {
            task: task.to_owned(),
            operation,
            channel: spec.name.clone(),
            needed,
            found: type_name(spec),
        })
    };
    use ChannelType::{Barrier, Bytes, Condition, Mutex, Tokens};
    match op {
        Op::Send { channel, bytes } => {
            needs(*channel, "send", &[Bytes], "bytes")?;
            let capacity = workload.channels[channel.index()].capacity;
            if *bytes == 0 || capacity == 0 {
                return Err(range(task, "send needs at least 1 byte and a channel with capacity"));
            }
            Ok(())
        }
        Op::Receive { channel, bytes } if *bytes > 0 => needs(*channel, "receive", &[Bytes], "bytes"),
        Op::Receive { .. } => Err(range(task, "receive needs at least 1 byte")),
        Op::Close { channel } => needs(*channel, "close", &[Bytes], "bytes"),
        Op::WaitAny { channels, .. } => channels
            .iter()
            .try_for_each(|channel| needs(*channel, "wait_any", &[Bytes, Tokens], "bytes or tokens")),
        Op::Post { channel, .. } => needs(*channel, "post", &[Tokens], "tokens"),
        Op::Take { channel, .. } => needs(*channel, "take", &[Tokens, Condition], "tokens or condition"),
        Op::WakeWaiters { channel, .. } => needs(*channel, "wake", &[Condition], "condition"),
        Op::Lock { channel } => needs(*channel, "lock", &[Mutex], "mutex"),
        Op::Unlock { channel } => needs(*channel, "unlock", &[Mutex], "mutex"),
        Op::Barrier { channel } => needs(*channel, "barrier", &[Barrier], "barrier"),
        Op::ConditionWait { condition, lock } => {
            needs(*condition, "condition_wait", &[Condition], "condition")?;
            needs(*lock, "condition_wait", &[Mutex], "mutex")
        }
        Op::Run(amount) | Op::Sleep(amount) => check_amount(task, amount),
        Op::Spin { piece, .. } if *piece == Nanos::ZERO => Err(range(task, "spin needs a piece above 0")),
        Op::Timer { period, .. } if *period == Nanos::ZERO => {
            Err(range(task, "timer period must be above 0"))
        }
        Op::SetAttributes(attributes) => check_attributes(task, attributes),
        _ => Ok(()),
    }
}

fn check_amount(task: &str, amount: &Amount) -> Result<(), BuildError> {
    match amount {
        Amount::Uniform(low, high) if low > high => {
            Err(range(task, format!("uniform from {low} to {high}: the first must be the smaller")))
        }
        Amount::Quantiles(values) if values.len() < 2 || !values.is_sorted() => {
            Err(range(task, "quantiles: at least two, in rising order"))
        }
        _ => Ok(()),
    }
}

/// Loops are balanced, and one for ever holds a step that takes time or can wait.
fn check_loops(task: &str, ops: &[Op]) -> Result<(), BuildError> {
    let mut open: Vec<(u32, bool)> = Vec::new();
    for op in ops {
        match op {
            Op::LoopStart { count } => open.push((*count, false)),
            Op::LoopEnd => {
                let (count, passes_time) =
                    open.pop().ok_or_else(|| range(task, "a loop ends that was not begun"))?;
                if count == 0 && !passes_time {
                    return Err(BuildError::EmptyLoop { task: task.to_owned() });
                }
                if let Some(outer) = open.last_mut() {
                    outer.1 |= passes_time;
                }
            }
            op => {
                if let Some(inner) = open.last_mut() {
                    inner.1 |= passes_time(op);
                }
            }
        }
    }
    if open.is_empty() { Ok(()) } else { Err(range(task, "a loop is not ended")) }
}

fn passes_time(op: &Op) -> bool {
    match op {
        Op::Run(amount) | Op::Sleep(amount) => *amount != Amount::Fixed(Nanos::ZERO),
        Op::WaitDevice { time, .. } => *time != Nanos::ZERO,
        Op::SleepUntil(_) | Op::Close { .. } | Op::SetAttributes(_) | Op::JobStart { .. } | Op::JobEnd => {
            false
        }
        Op::Touch { .. } | Op::Post { .. } | Op::WakeWaiters { .. } | Op::Unlock { .. } => false,
        _ => true,
    }
}
