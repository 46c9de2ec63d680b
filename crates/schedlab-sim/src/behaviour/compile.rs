//! From a workload to code: programs checked and flattened, loops resolved.

use super::amount::Draw;
use crate::ahead::Row;
use crate::error::SimError;
use schedlab_model::workload::{ChannelType, Late, Op, TaskSpec, TimerRef, Workload};
use schedlab_model::{ChannelId, CpuId, Nanos, TaskAttributes};
use std::collections::BTreeMap;

/// Programs of at most so many steps are looked for among those before; longer ones are hardly ever the same.
const SHARED_OPS_MAX: usize = 64;

/// No timeout.
pub(crate) const FOREVER: u64 = u64::MAX;

impl Row for Step {
    const HOT_BYTES: usize = size_of::<Step>();
}

/// One step, ready to run. The meaning is that of the [`Op`] of the same name. None lies in two cache lines.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub(crate) enum Step {
    Run(Draw),
    Sleep(Draw),
    Spin {
        time: u64,
        piece: u64,
    },
    SleepUntil(u64),
    WaitDevice {
        time: u64,
        cpu: CpuId,
    },
    Timer {
        timer: TimerRef,
        from_start: bool,
        period: u64,
        deadline: u64,
        late: Late,
    },
    Send {
        channel: ChannelId,
        bytes: u32,
    },
    Receive {
        channel: ChannelId,
        bytes: u32,
    },
    ReceiveAll {
        channel: ChannelId,
        bytes: u32,
    },
    ReceiveEach {
        channel: ChannelId,
        message: u32,
        count: u32,
        work: u64,
    },
    WaitAny {
        list: u32,
        timeout: u64,
    },
    Close {
        channel: ChannelId,
    },
    Post {
        channel: ChannelId,
        tokens: u32,
    },
    Take {
        channel: ChannelId,
        timeout: u64,
    },
    WakeWaiters {
        channel: ChannelId,
        count: u32,
    },
    Lock {
        channel: ChannelId,
    },
    Unlock {
        channel: ChannelId,
    },
    ConditionWait {
        condition: ChannelId,
        lock: ChannelId,
    },
    Barrier {
        channel: ChannelId,
    },
    Fork {
        spec: u32,
    },
    WaitChildren,
    Yield,
    SetAttributes(u32),
    Touch {
        bytes: u32,
    },
    JobStart {
        deadline: u64,
    },
    JobEnd,
    /// Opens a loop; a loop without rounds left would go to `end`.
    LoopStart {
        count: u32,
    },
    /// Back to the step after the loop's start while rounds are left.
    LoopEnd {
        body: u32,
    },
    Exit,
}

/// All programs of a workload.
#[derive(Debug, Default)]
pub(crate) struct Code {
    /// Steps of all programs, one after the other.
    pub(crate) steps: Vec<Step>,
    /// First step of each program; programs that are the same share their steps.
    pub(crate) starts: Vec<u32>,
    /// Channel lists of the waits for any.
    pub(crate) lists: Vec<Box<[ChannelId]>>,
    /// Quantile tables of draws.
    pub(crate) quantiles: Vec<Box<[Nanos]>>,
    /// Attributes that tasks set.
    pub(crate) attributes: Vec<TaskAttributes>,
    /// For each task row the channels whose sending end it holds, by itself or for children it forks.
    pub(crate) sends: Vec<Vec<ChannelId>>,
    /// How many timers tasks share.
    pub(crate) shared_timers: usize,
    /// How many timers of its own a task can have at most.
    pub(crate) own_timers: usize,
    /// Whether a program can run for ever.
    pub(crate) endless: Vec<bool>,
}

impl Code {
    /// Checks and compiles.
    pub(crate) fn new(workload: &Workload) -> Result<Code, SimError> {
        let mut code = Code::default();
        let mut known = BTreeMap::new();
        for (index, program) in workload.programs.iter().enumerate() {
            // Many tasks that do the same read the same steps: these stay in near caches.
            let text = (program.ops.len() <= SHARED_OPS_MAX).then(|| format!("{:?}", program.ops));
            if let Some(same) = text.as_ref().and_then(|text| known.get(text)) {
                let same: usize = *same;
                code.starts.push(code.starts[same]);
                code.endless.push(code.endless[same]);
                continue;
            }
            code.starts.push(code.steps.len() as u32);
            let endless = code.program(workload, &program.ops).map_err(|(step, reason)| {
                let user = workload.tasks.iter().find(|task| task.program.0 as usize == index);
                let task = user.map_or_else(|| format!("(program {index})"), |task| task.name.clone());
                SimError::Program { task, step, reason }
            })?;
            code.endless.push(endless);
            if let Some(text) = text {
                known.insert(text, index);
            }
        }
        let missing = |task: &&TaskSpec| task.program.0 as usize >= workload.programs.len();
        if let Some(task) = workload.tasks.iter().find(missing) {
            let reason = format!("program {} does not exist", task.program.0);
            return Err(SimError::Program { task: task.name.clone(), step: 0, reason });
        }
        // By row: for which row it was looked at last.
        let mut seen = vec![usize::MAX; workload.tasks.len()];
        for row in 0..workload.tasks.len() {
            let mut sends = Vec::new();
            collect_sends(workload, (row, row), &mut seen, &mut sends);
            code.sends.push(sends);
        }
        Ok(code)
    }

    fn program(&mut self, workload: &Workload, ops: &[Op]) -> Result<bool, (usize, String)> {
        let mut open: Vec<u32> = Vec::new();
        let mut endless = false;
        for (index, op) in ops.iter().enumerate() {
            let step = match op {
                Op::LoopStart { count } => {
                    endless |= *count == 0;
                    open.push(self.steps.len() as u32 + 1);
                    Step::LoopStart { count: *count }
                }
                Op::LoopEnd => {
                    let body = open.pop().ok_or((index, "loop end without a loop start".to_owned()))?;
                    Step::LoopEnd { body }
                }
                op => self.step(workload, op).map_err(|reason| (index, reason))?,
            };
            self.steps.push(step);
        }
        if !open.is_empty() {
            return Err((ops.len(), "a loop is not ended: add a loop end".to_owned()));
        }
        self.steps.push(Step::Exit);
        Ok(endless)
    }

    fn step(&mut self, workload: &Workload, op: &Op) -> Result<Step, String> {
        use ChannelType::{Barrier, Bytes, Condition, Mutex, Tokens};
        let check = |channel: ChannelId, kinds: &[ChannelType]| match workload.channels.get(channel.index()) {
            None => Err(format!("channel {channel} does not exist")),
            Some(spec) if !kinds.contains(&spec.kind) => {
                Err(format!("channel '{}' is of kind {:?}, this step needs {kinds:?}", spec.name, spec.kind))
            }
            Some(_) => Ok(channel),
        };
        let timeout = |timeout: &Option<Nanos>| timeout.map_or(FOREVER, |time| time.0);
        Ok(match op {
            Op::Run(amount) => Step::Run(Draw::new(amount, &mut self.quantiles)?),
            Op::Sleep(amount) => Step::Sleep(Draw::new(amount, &mut self.quantiles)?),
            Op::SleepUntil(time) => Step::SleepUntil(time.0),
            Op::WaitDevice { time, cpu } => Step::WaitDevice { time: time.0, cpu: *cpu },
            Op::Timer { period, .. } if period.0 == 0 => return Err("a timer needs a period above 0".into()),
            Op::Timer { timer, from_start, period, deadline, late } => {
                let (timers, number) = match timer {
                    TimerRef::Own(number) => (&mut self.own_timers, number),
                    TimerRef::Shared(number) => (&mut self.shared_timers, number),
                };
                *timers = (*timers).max(*number as usize + 1);
                let (timer, from_start, late) = (*timer, *from_start, *late);
                Step::Timer { timer, from_start, period: period.0, deadline: deadline.0, late }
            }
            Op::Spin { piece, .. } if piece.0 == 0 => return Err("a spin needs a piece above 0".into()),
            Op::Spin { time, piece } => Step::Spin { time: time.0, piece: piece.0 },
            Op::Send { channel, bytes } => Step::Send { channel: check(*channel, &[Bytes])?, bytes: *bytes },
            Op::Receive { channel, bytes } => {
                Step::Receive { channel: check(*channel, &[Bytes])?, bytes: *bytes }
            }
            Op::ReceiveAll { channel, bytes } => {
                Step::ReceiveAll { channel: check(*channel, &[Bytes])?, bytes: *bytes }
            }
            Op::ReceiveEach { message: 0, .. } => return Err("a message needs a byte at least".into()),
            Op::ReceiveEach { channel, message, count, work } => {
                let (message, count, work) = (*message, *count, work.0);
                Step::ReceiveEach { channel: check(*channel, &[Bytes])?, message, count, work }
            }
            Op::WaitAny { channels, timeout: limit } => {
                channels.iter().try_for_each(|channel| check(*channel, &[Bytes, Tokens, Mutex]).map(drop))?;
                if channels.is_empty() && limit.is_none() {
                    return Err("waits for none of no channels for ever: give a timeout".to_owned());
                }
                self.lists.push(channels.clone());
                Step::WaitAny { list: self.lists.len() as u32 - 1, timeout: timeout(limit) }
            }
            Op::Close { channel } => Step::Close { channel: check(*channel, &[Bytes])? },
            Op::Post { channel, tokens } => {
                Step::Post { channel: check(*channel, &[Tokens])?, tokens: *tokens }
            }
            Op::Take { channel, timeout: limit } => {
                Step::Take { channel: check(*channel, &[Tokens, Condition])?, timeout: timeout(limit) }
            }
            Op::WakeWaiters { channel, count } => {
                Step::WakeWaiters { channel: check(*channel, &[Condition, Tokens])?, count: *count }
            }
            Op::Lock { channel } => Step::Lock { channel: check(*channel, &[Mutex])? },
            Op::Unlock { channel } => Step::Unlock { channel: check(*channel, &[Mutex])? },
            Op::ConditionWait { condition, lock } => Step::ConditionWait {
                condition: check(*condition, &[Condition])?,
                lock: check(*lock, &[Mutex])?,
            },
            Op::Barrier { channel } => Step::Barrier { channel: check(*channel, &[Barrier])? },
            op => self.plain_step(workload, op)?,
        })
    }

    fn plain_step(&mut self, workload: &Workload, op: &Op) -> Result<Step, String> {
        Ok(match op {
            Op::Fork { spec } => match workload.tasks.get(spec.0 as usize) {
                Some(TaskSpec { template: true, .. }) => Step::Fork { spec: spec.0 },
                Some(row) => return Err(format!("forks '{}', which is not a template", row.name)),
                None => return Err(format!("forks task row {}, which does not exist", spec.0)),
            },
            Op::WaitChildren => Step::WaitChildren,
            Op::Yield => Step::Yield,
            Op::SetAttributes(attributes) => {
                self.attributes.push((**attributes).clone());
                Step::SetAttributes(self.attributes.len() as u32 - 1)
            }
            Op::Touch { bytes } => Step::Touch { bytes: *bytes },
            Op::JobStart { deadline } => Step::JobStart { deadline: deadline.map_or(FOREVER, |time| time.0) },
            Op::JobEnd => Step::JobEnd,
            Op::Exit => Step::Exit,
            other => return Err(format!("{other:?} is not simulated")),
        })
    }
}

/// Channels that a task row sends to, or that templates it forks send to, for the first row of all.
fn collect_sends(
    workload: &Workload,
    (row, of): (usize, usize),
    seen: &mut [usize],
    sends: &mut Vec<ChannelId>,
) {
    if std::mem::replace(&mut seen[row], of) == of {
        return;
    }
    for op in &workload.programs[workload.tasks[row].program.0 as usize].ops {
        match op {
            Op::Send { channel, .. } if !sends.contains(channel) => sends.push(*channel),
            Op::Fork { spec } => collect_sends(workload, (spec.0 as usize, of), seen, sends),
            _ => {}
        }
    }
}
