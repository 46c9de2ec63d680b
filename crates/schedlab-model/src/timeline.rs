//! A recording seen task by task: when each ran, waited for a CPU or slept, on what, and who ended the sleep.
//!
//! The stretches of a task follow each other without gap or overlap from its first moment to its last, so
//! their lengths add up to its lifetime. Triage counts them, replay reads the causes. No judgement here.

use crate::event::{Context, Event, EventKind, Operation, PrevState};
use crate::ids::{ChannelId, CpuId, TaskId};
use crate::recording::Recording;
use crate::time::Nanos;

/// An operation that was open when a task went to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenOperation {
    /// Which.
    pub operation: Operation,
    /// On what.
    pub channel: ChannelId,
    /// How much; see [`Operation`].
    pub amount: u64,
    /// When it was entered.
    pub since: Nanos,
}

/// What ended a sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wake {
    /// When.
    pub time: Nanos,
    /// On which CPU the waker was.
    pub cpu: CpuId,
    /// The current task there; the cause only in [`Context::Task`].
    pub waker: TaskId,
    /// In what context.
    pub context: Context,
    /// The operation the waker was in.
    pub operation: Option<(Operation, ChannelId)>,
    /// If a timer of the task expired: when it was due.
    pub timer_due: Option<Nanos>,
}

/// Why a task waits for a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitCause {
    /// It is new, or the recording began so.
    New,
    /// It was woken.
    Wakeup,
    /// It was taken off a CPU while it could still run, or yielded.
    Preempted,
}

/// What a task does in a stretch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StretchKind {
    /// Runs.
    Running {
        /// Where.
        cpu: CpuId,
        /// How much of the stretch belongs to interrupts and softirqs that came on top of it.
        interrupt: Nanos,
    },
    /// Could run but has no CPU.
    Waiting {
        /// Why.
        cause: WaitCause,
    },
    /// Sleeps.
    Asleep {
        /// How deep.
        state: PrevState,
        /// In which operation, if one was open.
        operation: Option<OpenOperation>,
        /// What ended it; `None` if the recording ended first or the wake-up was not seen.
        wake: Option<Wake>,
    },
}

/// A piece of a task's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// From here.
    pub start: Nanos,
    /// To there.
    pub end: Nanos,
    /// Doing what.
    pub kind: StretchKind,
}

impl Stretch {
    /// How long.
    pub fn length(&self) -> Nanos {
        self.end.saturating_sub(self.start)
    }
}

/// Every task's stretches, by task id; empty for idle and for tasks that were never seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timelines {
    /// Stretches of each task in time order.
    pub tasks: Vec<Vec<Stretch>>,
}

impl Timelines {
    /// Reads a recording.
    pub fn of(recording: &Recording) -> Timelines {
        let mut builder = Builder::new(recording);
        recording.events.iter().for_each(|event| builder.event(event));
        builder.finish(recording.duration)
    }
}

/// Where a task is in its life while events are read.
#[derive(Clone, Copy, Debug)]
enum Phase {
    Absent,
    Running { cpu: CpuId, since: Nanos, interrupt: Nanos },
    Waiting { since: Nanos, cause: WaitCause },
    Asleep { since: Nanos, state: PrevState, operation: Option<OpenOperation> },
    Gone,
}

#[derive(Clone, Debug)]
struct TaskState {
    phase: Phase,
    open: Option<OpenOperation>,
    /// A wake-up that came while the task was still on its way to sleep.
    early: Option<Wake>,
    /// Whether the operation of its first sleep was looked for, once: what comes later cannot change it.
    first_sleep_settled: bool,
    stretches: Vec<Stretch>,
}

impl TaskState {
    fn close(&mut self, end: Nanos, wake: Option<Wake>) {
        let (start, kind) = match self.phase {
            Phase::Absent | Phase::Gone => return,
            Phase::Running { cpu, since, interrupt } => (since, StretchKind::Running { cpu, interrupt }),
            Phase::Waiting { since, cause } => (since, StretchKind::Waiting { cause }),
            Phase::Asleep { since, state, operation } => {
                (since, StretchKind::Asleep { state, operation, wake })
            }
        };
        self.stretches.push(Stretch { start, end, kind });
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct CpuState {
    current: Option<TaskId>,
    depth: u32,
    interrupt_since: Nanos,
    /// Time in interrupts before the first task of the CPU is known.
    interrupt_unknown: Nanos,
    expired: Option<(TaskId, Nanos)>,
}

struct Builder {
    tasks: Vec<TaskState>,
    cpus: Vec<CpuState>,
}

impl Builder {
    fn new(recording: &Recording) -> Builder {
        let state = |phase| TaskState {
            phase,
            open: None,
            early: None,
            first_sleep_settled: false,
            stretches: Vec::new(),
        };
        let tasks = recording.tasks.iter().map(|task| match (task.existed, task.start_runnable) {
            (true, true) => state(Phase::Waiting { since: Nanos::ZERO, cause: WaitCause::New }),
            (true, false) => {
                state(Phase::Asleep { since: Nanos::ZERO, state: PrevState::Interruptible, operation: None })
            }
            (false, _) => state(Phase::Absent),
        });
        let mut tasks: Vec<TaskState> = tasks.collect();
        if let Some(idle) = tasks.first_mut() {
            idle.phase = Phase::Gone;
        }
        Builder { tasks, cpus: Vec::new() }
    }

    fn cpu(&mut self, cpu: CpuId) -> &mut CpuState {
        if self.cpus.len() <= cpu.index() {
            self.cpus.resize(cpu.index() + 1, CpuState::default());
        }
        &mut self.cpus[cpu.index()]
    }

    fn event(&mut self, event: &Event) {
        let Event { time, cpu, kind } = *event;
        match kind {
            EventKind::Switch { prev, prev_state, next } => self.switch(time, cpu, prev, prev_state, next),
            EventKind::Waking { waker, context, wakee, .. } => self.waking(time, cpu, waker, context, wakee),
            EventKind::WakeupNew { task, .. } => {
                let task = &mut self.tasks[task.index()];
                if matches!(task.phase, Phase::Absent) {
                    task.phase = Phase::Waiting { since: time, cause: WaitCause::New };
                }
            }
            EventKind::TimerExpire { task, due } => self.cpu(cpu).expired = Some((task, due)),
            EventKind::IrqEnter { .. } | EventKind::SoftirqEnter { .. } => self.interrupt_enter(time, cpu),
            EventKind::IrqExit { .. } | EventKind::SoftirqExit { .. } => self.interrupt_exit(time, cpu),
            EventKind::OperationEnter { task, operation, channel, amount } => {
                self.tasks[task.index()].open =
                    Some(OpenOperation { operation, channel, amount, since: time });
            }
            EventKind::OperationExit { task, operation, channel, .. } => {
                self.operation_exit(task, operation, channel);
            }
            _ => {}
        }
    }

    fn switch(&mut self, time: Nanos, cpu: CpuId, prev: TaskId, prev_state: PrevState, next: TaskId) {
        self.charge_interrupt(time, cpu);
        if !prev.is_idle() {
            self.leave(time, cpu, prev, prev_state);
        }
        if !next.is_idle() {
            self.enter(time, cpu, next);
        }
        self.cpu(cpu).current = Some(next);
    }

    fn leave(&mut self, time: Nanos, cpu: CpuId, prev: TaskId, prev_state: PrevState) {
        let known = self.cpu(cpu).current.is_some();
        let unknown = std::mem::take(&mut self.cpu(cpu).interrupt_unknown);
        let task = &mut self.tasks[prev.index()];
        if !known && task.stretches.is_empty() && !matches!(task.phase, Phase::Running { .. }) {
            // The recording began while it ran here.
            task.phase = Phase::Running { cpu, since: Nanos::ZERO, interrupt: unknown };
        }
        task.close(time, None);
        task.phase = match prev_state {
            PrevState::Runnable => Phase::Waiting { since: time, cause: WaitCause::Preempted },
            PrevState::Dead => Phase::Gone,
            state => Phase::Asleep { since: time, state, operation: task.open },
        };
        if prev_state == PrevState::Runnable {
            task.early = None;
        }
    }

    fn enter(&mut self, time: Nanos, cpu: CpuId, next: TaskId) {
        let task = &mut self.tasks[next.index()];
        let early = task.early.take();
        match (task.phase, early) {
            (Phase::Asleep { since, .. }, Some(wake)) => {
                task.close(since, Some(wake));
                task.phase = Phase::Waiting { since, cause: WaitCause::Wakeup };
                task.close(time, None);
            }
            _ => task.close(time, None),
        }
        task.phase = Phase::Running { cpu, since: time, interrupt: Nanos::ZERO };
    }

    fn waking(&mut self, time: Nanos, cpu: CpuId, waker: TaskId, context: Context, wakee: TaskId) {
        let expired = self.cpu(cpu).expired.take();
        let timer_due = match (context, expired) {
            (Context::Task, _) | (_, None) => None,
            (_, Some((task, due))) => (task == wakee || task.is_idle()).then_some(due),
        };
        let open = self.tasks[waker.index()].open;
        let operation = open.map(|open| (open.operation, open.channel));
        let wake = Wake { time, cpu, waker, context, operation, timer_due };
        let task = &mut self.tasks[wakee.index()];
        match task.phase {
            Phase::Asleep { .. } => {
                task.close(time, Some(wake));
                task.phase = Phase::Waiting { since: time, cause: WaitCause::Wakeup };
                task.early = None;
            }
            Phase::Running { .. } => task.early = Some(wake),
            _ => {}
        }
    }

    fn operation_exit(&mut self, task: TaskId, operation: Operation, channel: ChannelId) {
        let task = &mut self.tasks[task.index()];
        if task.open.take().is_some() {
            return;
        }
        // Entered before the recording began: the first sleep was in it, unless another came between.
        if std::mem::replace(&mut task.first_sleep_settled, true) {
            return;
        }
        if let Some(Stretch { kind: StretchKind::Asleep { operation: first, .. }, start, .. }) =
            task.stretches.first_mut()
            && *start == Nanos::ZERO
            && first.is_none()
            && task.stretches.iter().filter(|s| matches!(s.kind, StretchKind::Asleep { .. })).count() == 1
        {
            let open = OpenOperation { operation, channel, amount: 0, since: Nanos::ZERO };
            if let Some(Stretch { kind: StretchKind::Asleep { operation: first, .. }, .. }) =
                task.stretches.first_mut()
            {
                *first = Some(open);
            }
        }
    }

    fn interrupt_enter(&mut self, time: Nanos, cpu: CpuId) {
        let cpu = self.cpu(cpu);
        if cpu.depth == 0 {
            cpu.interrupt_since = time;
        }
        cpu.depth += 1;
    }

    fn interrupt_exit(&mut self, time: Nanos, cpu: CpuId) {
        if self.cpu(cpu).depth == 1 {
            self.charge_interrupt(time, cpu);
        }
        let cpu = self.cpu(cpu);
        cpu.depth = cpu.depth.saturating_sub(1);
        if cpu.depth == 0 {
            cpu.expired = None;
        }
    }

    /// Books interrupt time up to now on whoever is current.
    fn charge_interrupt(&mut self, time: Nanos, cpu: CpuId) {
        let state = self.cpu(cpu);
        if state.depth == 0 {
            return;
        }
        let spent = time.saturating_sub(state.interrupt_since);
        state.interrupt_since = time;
        match state.current {
            None => state.interrupt_unknown += spent,
            Some(current) => {
                if let Phase::Running { interrupt, .. } = &mut self.tasks[current.index()].phase {
                    *interrupt += spent;
                }
            }
        }
    }

    fn finish(mut self, duration: Nanos) -> Timelines {
        self.tasks.iter_mut().for_each(|task| task.close(duration, None));
        Timelines { tasks: self.tasks.into_iter().map(|task| task.stretches).collect() }
    }
}

#[cfg(test)]
mod tests;
