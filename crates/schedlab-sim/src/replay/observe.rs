//! First pass: each task's steps in its own order, with the CPU time between them.
//!
//! A step lies where it had its effect in the task's progress: a write where it woke somebody, a read where
//! it began to wait. What the steps mean for the replay is decided later ([`super::classify`]).

use super::ReplayOptions;
use schedlab_model::event::{Context, Event, EventKind, Operation, PrevState, RESULT_UNKNOWN};
use schedlab_model::recording::Recording;
use schedlab_model::timeline::{OpenOperation, StretchKind, Timelines, Wake};
use schedlab_model::{ChannelId, CpuId, Nanos, TaskAttributes, TaskId};
use std::collections::BTreeMap;

/// One step of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// CPU time in ns, interrupts and modelled costs taken out.
    Run(u64),
    /// Bytes move: position in [`Observed::transfers`].
    Transfer(u32),
    /// What else a transfer that waited stands for has been taken: the reads after the one that waited, told with it.
    Rest(u32),
    /// The task slept: position in [`Observed::waits`].
    Wait(u32),
    /// The task ended another's wait.
    Wake(u32),
    /// A timer that was already due.
    Until(Nanos),
    /// It took a dead child without waiting.
    Child(TaskId),
    /// It made a task.
    Fork(TaskId),
    /// It yielded.
    Yield,
    /// Its attributes became these: position in [`Observed::attributes`].
    Attributes(u32),
}

/// Bytes given to or taken from a channel by one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Transfer {
    pub(super) task: TaskId,
    pub(super) give: bool,
    pub(super) channel: ChannelId,
    pub(super) bytes: u64,
    /// It had its effect after this: when the task's last operation or sleep ended.
    pub(super) earliest: Nanos,
    pub(super) entered: Nanos,
    pub(super) exited: Nanos,
    /// May stand for several that were told as one.
    pub(super) summed: bool,
    /// The last wake-up inside the operation, if it waited.
    pub(super) wake: Option<Wake>,
    /// The wait that it ended.
    pub(super) waited: Option<u32>,
}

/// One sleep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wait {
    pub(super) task: TaskId,
    pub(super) start: Nanos,
    pub(super) end: Nanos,
    pub(super) state: PrevState,
    pub(super) operation: Option<OpenOperation>,
    /// What the operation returned.
    pub(super) result: Option<i64>,
    pub(super) wake: Option<Wake>,
    /// The transfer it was for.
    pub(super) transfer: Option<u32>,
    /// Whether a later sleep in the same operation took its place.
    pub(super) superseded: bool,
    /// The child it waited for.
    pub(super) child: Option<TaskId>,
}

impl Wait {
    /// The channel whose writer ended a poll, if what the waker was in tells it.
    pub(super) fn polled(&self) -> Option<ChannelId> {
        let polls = matches!(self.operation?.operation, Operation::Poll | Operation::EpollWait);
        let wake = self.wake?;
        let (by, channel) = wake.operation?;
        // Only simulated tasks post to what others poll.
        let gives = is_give(by) || by == Operation::FutexWake;
        let caused = wake.context == Context::Task || is_by_send(wake.context, by);
        (polls && gives && caused).then_some(channel)
    }
}

/// Sends over a network of one machine wake in the interrupt that they raise themselves.
pub(super) fn is_by_send(context: Context, operation: Operation) -> bool {
    context == Context::SoftIrq && operation == Operation::SocketSend
}

/// What one task did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TaskTrace {
    pub(super) steps: Vec<Step>,
    /// Who made it, if that was seen.
    pub(super) forked: Option<TaskId>,
    /// First moment it is known to be there.
    pub(super) first: Option<Nanos>,
    /// Recorded CPU time, interrupts taken out.
    pub(super) cpu_time: u64,
}

/// The whole first pass.
#[derive(Clone, Debug, Default)]
pub(super) struct Observed {
    pub(super) tasks: Vec<TaskTrace>,
    pub(super) transfers: Vec<Transfer>,
    pub(super) waits: Vec<Wait>,
    /// Attributes of each task at its beginning: those of its parent at that moment, if it was forked.
    pub(super) initial: Vec<TaskAttributes>,
    pub(super) attributes: Vec<TaskAttributes>,
}

/// Whether the event's channel field means something.
pub(super) fn has_channel(kind: &EventKind) -> bool {
    let operation = match kind {
        EventKind::OperationEnter { operation, .. } | EventKind::OperationExit { operation, .. } => operation,
        _ => return false,
    };
    is_transfer(*operation) || matches!(operation, Operation::FutexWait | Operation::FutexWake)
}

fn is_transfer(operation: Operation) -> bool {
    matches!(
        operation,
        Operation::PipeRead | Operation::PipeWrite | Operation::SocketReceive | Operation::SocketSend
    )
}

fn is_give(operation: Operation) -> bool {
    matches!(operation, Operation::PipeWrite | Operation::SocketSend)
}

#[derive(Clone, Debug)]
struct Open {
    operation: Operation,
    channel: ChannelId,
    amount: u64,
    earliest: Nanos,
    entered: Nanos,
    /// Where in the steps it was entered.
    at: usize,
    transfer: Option<u32>,
    /// Its sleeps: positions in the waits.
    waits: Vec<u32>,
}

#[derive(Clone, Debug, Default)]
struct Progress {
    open: Option<Open>,
    run: u64,
    /// Modelled costs still to be taken out of its bursts.
    debt: u64,
    /// Next of its waits to begin, and to be ended.
    next_wait: usize,
    next_woken: usize,
    waits: Vec<u32>,
    attributes: TaskAttributes,
    on: Option<CpuId>,
    /// When its last operation or sleep ended.
    since: Nanos,
}

#[derive(Clone, Copy, Debug, Default)]
struct CpuState {
    current: Option<TaskId>,
    marked: Nanos,
    depth: u32,
    interrupt_since: Nanos,
    /// Interrupt time since the mark.
    interrupt: u64,
}

struct Observer<'a> {
    recording: &'a Recording,
    out: Observed,
    progress: Vec<Progress>,
    cpus: Vec<CpuState>,
    context_switch: u64,
    wakeup: u64,
    ipi_send: u64,
    /// What going to sleep takes.
    sleep: u64,
    /// Ticks' share of CPU time in parts per million, where the recording has no interrupts to take out.
    tick_ppm: u64,
    by_pid: BTreeMap<i32, TaskId>,
}

/// Reads the whole recording; `sleep` ns before each sleep are no work of the task.
pub(super) fn observe(recording: &Recording, options: &ReplayOptions, sleep: Nanos) -> Observed {
    let mut observer = Observer { sleep: sleep.0, ..Observer::new(recording, options) };
    recording.events.iter().for_each(|event| observer.event(event));
    observer.finish()
}

impl<'a> Observer<'a> {
    fn new(recording: &'a Recording, options: &ReplayOptions) -> Observer<'a> {
        let machine = &recording.machine;
        let cost =
            |cost: schedlab_model::machine::Cost| if options.subtract_costs { cost.value.0 } else { 0 };
        let has_interrupts = recording
            .events
            .iter()
            .any(|event| matches!(event.kind, EventKind::IrqEnter { .. } | EventKind::SoftirqEnter { .. }));
        let tick_ppm =
            if has_interrupts { 0 } else { cost(machine.costs.tick) * u64::from(machine.hz) / 1_000 };
        let count = recording.tasks.len();
        let mut observer = Observer {
            recording,
            out: Observed { tasks: vec![TaskTrace::default(); count], ..Observed::default() },
            progress: vec![Progress::default(); count],
            cpus: Vec::new(),
            context_switch: cost(machine.costs.context_switch),
            wakeup: cost(machine.costs.wakeup),
            ipi_send: cost(machine.costs.ipi_send),
            sleep: 0,
            tick_ppm: tick_ppm.min(500_000),
            by_pid: BTreeMap::new(),
        };
        observer.collect_waits();
        for (task, info) in recording.tasks.iter().enumerate() {
            let mut attributes = info.attributes.clone();
            if recording.provenance.groups.is_none() {
                // Only a name: where the cpu controller was on is not known.
                attributes.cgroup.clear();
            }
            observer.progress[task].attributes = attributes.clone();
            observer.out.initial.push(attributes);
            if info.existed {
                observer.out.tasks[task].first = Some(Nanos::ZERO);
                observer.by_pid.insert(info.pid, TaskId(task as u32));
            }
        }
        observer
    }

    fn collect_waits(&mut self) {
        let timelines = Timelines::of(self.recording);
        for (task, stretches) in timelines.tasks.iter().enumerate() {
            for (position, stretch) in stretches.iter().enumerate() {
                let StretchKind::Asleep { state, operation, wake } = stretch.kind else { continue };
                let id = self.out.waits.len() as u32;
                self.out.waits.push(Wait {
                    task: TaskId(task as u32),
                    start: stretch.start,
                    end: stretch.end,
                    state,
                    operation,
                    result: None,
                    wake,
                    transfer: None,
                    superseded: false,
                    child: None,
                });
                self.progress[task].waits.push(id);
                if position == 0 {
                    self.begin_asleep(task, id);
                }
            }
        }
    }

    /// The task was asleep when the recording began.
    fn begin_asleep(&mut self, task: usize, wait: u32) {
        self.out.tasks[task].steps.push(Step::Wait(wait));
        self.progress[task].next_wait = 1;
        let operation = self.out.waits[wait as usize].operation;
        if let Some(OpenOperation { operation, channel, amount, .. }) = operation {
            let open = Open {
                operation,
                channel,
                amount,
                earliest: Nanos::ZERO,
                entered: Nanos::ZERO,
                at: 0,
                transfer: None,
                waits: vec![wait],
            };
            self.progress[task].open = Some(open);
            if is_transfer(operation) {
                self.out.tasks[task].steps.clear();
                self.place_transfer(TaskId(task as u32));
                self.out.waits[wait as usize].transfer =
                    self.progress[task].open.as_ref().and_then(|open| open.transfer);
                self.out.tasks[task].steps.push(Step::Wait(wait));
            }
        }
    }

    fn event(&mut self, event: &Event) {
        let Event { time, cpu, kind } = *event;
        match kind {
            EventKind::Switch { prev, prev_state, next } => self.switch(time, cpu, prev, prev_state, next),
            EventKind::Waking { waker, context, wakee, wakee_cpu } => {
                let idle = self.cpu(wakee_cpu).current.is_some_and(|current| current.is_idle());
                let sent = if idle && wakee_cpu != cpu { self.ipi_send } else { 0 };
                self.waking(time, cpu, waker, context, wakee, self.wakeup + sent);
            }
            EventKind::WakeupNew { task, .. } => {
                self.out.tasks[task.index()].first.get_or_insert(time);
            }
            EventKind::Fork { parent, child } => {
                self.by_pid.insert(self.recording.task(child).pid, child);
                self.progress[child.index()].since = time;
                if !parent.is_idle() {
                    let inherited = self.progress[parent.index()].attributes.clone();
                    self.out.initial[child.index()] = inherited.clone();
                    self.progress[child.index()].attributes = inherited;
                }
                let first = &mut self.out.tasks[child.index()];
                first.first.get_or_insert(time);
                if !parent.is_idle() {
                    first.forked = Some(parent);
                    self.push(time, cpu, parent, Step::Fork(child));
                }
            }
            EventKind::OperationEnter { task, operation, channel, amount } => {
                self.operation_enter(time, cpu, task, operation, channel, amount);
            }
            EventKind::OperationExit { task, operation, channel, result } => {
                self.operation_exit(time, cpu, task, operation, channel, result);
            }
            EventKind::AttributesChanged { task, policy, nice, rt_priority } => {
                let old = &self.progress[task.index()].attributes;
                self.attributes(time, task, TaskAttributes { policy, nice, rt_priority, ..old.clone() });
            }
            EventKind::AffinityChanged { task, set } => {
                let affinity = self.recording.cpu_sets[set as usize];
                let old = &self.progress[task.index()].attributes;
                self.attributes(time, task, TaskAttributes { affinity, ..old.clone() });
            }
            EventKind::SliceChanged { task, slice } => {
                let slice = (slice > Nanos::ZERO).then_some(slice);
                let old = &self.progress[task.index()].attributes;
                self.attributes(time, task, TaskAttributes { slice, ..old.clone() });
            }
            EventKind::IrqEnter { .. } | EventKind::SoftirqEnter { .. } => self.interrupt_enter(time, cpu),
            EventKind::IrqExit { .. } | EventKind::SoftirqExit { .. } => self.interrupt_exit(time, cpu),
            _ => {}
        }
    }

    fn cpu(&mut self, cpu: CpuId) -> &mut CpuState {
        if self.cpus.len() <= cpu.index() {
            self.cpus.resize(cpu.index() + 1, CpuState::default());
        }
        &mut self.cpus[cpu.index()]
    }

    fn interrupt_enter(&mut self, time: Nanos, cpu: CpuId) {
        let state = self.cpu(cpu);
        if state.depth == 0 {
            state.interrupt_since = time;
        }
        state.depth += 1;
    }

    fn interrupt_exit(&mut self, time: Nanos, cpu: CpuId) {
        let state = self.cpu(cpu);
        if state.depth == 1 {
            state.interrupt += time.saturating_sub(state.interrupt_since).0;
        }
        state.depth = state.depth.saturating_sub(1);
    }

    /// Books the CPU time since the last mark on the task that runs here.
    fn mark(&mut self, time: Nanos, cpu: CpuId, task: TaskId) {
        let state = self.cpu(cpu);
        state.current.get_or_insert(task);
        if state.depth > 0 {
            state.interrupt += time.saturating_sub(state.interrupt_since).0;
            state.interrupt_since = time;
        }
        let spent = time.saturating_sub(state.marked).0.saturating_sub(state.interrupt);
        state.marked = time;
        state.interrupt = 0;
        let current = state.current;
        if task.is_idle() || current != Some(task) {
            return;
        }
        self.out.tasks[task.index()].cpu_time += spent;
        let progress = &mut self.progress[task.index()];
        progress.on = Some(cpu);
        let net = spent - (u128::from(spent) * u128::from(self.tick_ppm) / 1_000_000) as u64;
        let paid = net.min(progress.debt);
        progress.debt -= paid;
        progress.run += net - paid;
    }

    /// Ends the burst in progress.
    fn flush(&mut self, task: TaskId) {
        let run = std::mem::take(&mut self.progress[task.index()].run);
        if run > 0 {
            self.out.tasks[task.index()].steps.push(Step::Run(run));
        }
    }

    fn push(&mut self, time: Nanos, cpu: CpuId, task: TaskId, step: Step) {
        self.mark(time, cpu, task);
        self.flush(task);
        self.out.tasks[task.index()].steps.push(step);
    }

    fn switch(&mut self, time: Nanos, cpu: CpuId, prev: TaskId, prev_state: PrevState, next: TaskId) {
        self.mark(time, cpu, prev);
        if !prev.is_idle() {
            self.progress[prev.index()].on = None;
            if !matches!(prev_state, PrevState::Runnable | PrevState::Dead) {
                self.sleep(prev);
            }
        }
        self.cpu(cpu).current = Some(next);
        if !next.is_idle() {
            let progress = &mut self.progress[next.index()];
            progress.on = Some(cpu);
            progress.debt += self.context_switch;
        }
    }

    fn sleep(&mut self, task: TaskId) {
        let progress = &mut self.progress[task.index()];
        let Some(&wait) = progress.waits.get(progress.next_wait) else { return };
        progress.next_wait += 1;
        let paid = self.sleep.min(progress.run);
        progress.run -= paid;
        progress.debt += self.sleep - paid;
        self.flush(task);
        self.place_transfer(task);
        if let Some(open) = &mut self.progress[task.index()].open {
            open.waits.push(wait);
            self.out.waits[wait as usize].transfer = open.transfer;
        }
        self.out.tasks[task.index()].steps.push(Step::Wait(wait));
        self.progress[task.index()].since = self.out.waits[wait as usize].end;
    }

    /// Puts the open transfer here, if one is open that has no place yet.
    fn place_transfer(&mut self, task: TaskId) {
        let Some(open) = &mut self.progress[task.index()].open else { return };
        if open.transfer.is_some() || !is_transfer(open.operation) {
            return;
        }
        let id = self.out.transfers.len() as u32;
        open.transfer = Some(id);
        self.out.transfers.push(Transfer {
            task,
            give: is_give(open.operation),
            channel: open.channel,
            bytes: 0,
            earliest: open.earliest,
            entered: open.entered,
            exited: open.entered,
            summed: false,
            wake: None,
            waited: None,
        });
        self.out.tasks[task.index()].steps.push(Step::Transfer(id));
    }

    fn waking(&mut self, time: Nanos, cpu: CpuId, waker: TaskId, context: Context, wakee: TaskId, cost: u64) {
        let Some(wait) = self.ended_wait(time, wakee) else { return };
        let open = self.progress[waker.index()].open.as_ref();
        let by_send = open.is_some_and(|open| is_by_send(context, open.operation));
        let caused = context == Context::Task || by_send;
        if waker.is_idle() || !caused {
            return;
        }
        self.mark(time, cpu, waker);
        self.flush(waker);
        if self.progress[waker.index()].open.as_ref().is_some_and(|open| is_give(open.operation)) {
            self.place_transfer(waker);
        }
        self.out.tasks[waker.index()].steps.push(Step::Wake(wait));
        self.progress[waker.index()].debt += cost;
    }

    /// The wait that this wake-up ended.
    fn ended_wait(&mut self, time: Nanos, wakee: TaskId) -> Option<u32> {
        let progress = &mut self.progress[wakee.index()];
        while let Some(&wait) = progress.waits.get(progress.next_woken) {
            match self.out.waits[wait as usize].wake {
                Some(wake) if wake.time > time => return None,
                Some(wake) if wake.time == time => {
                    progress.next_woken += 1;
                    return Some(wait);
                }
                _ => progress.next_woken += 1,
            }
        }
        None
    }

    fn operation_enter(
        &mut self,
        time: Nanos,
        cpu: CpuId,
        task: TaskId,
        operation: Operation,
        channel: ChannelId,
        amount: u64,
    ) {
        self.mark(time, cpu, task);
        self.flush(task);
        let at = self.out.tasks[task.index()].steps.len();
        let earliest = self.progress[task.index()].since;
        self.progress[task.index()].open = Some(Open {
            operation,
            channel,
            amount,
            earliest,
            entered: time,
            at,
            transfer: None,
            waits: Vec::new(),
        });
        if operation == Operation::Yield {
            self.out.tasks[task.index()].steps.push(Step::Yield);
        }
    }

    fn operation_exit(
        &mut self,
        time: Nanos,
        cpu: CpuId,
        task: TaskId,
        operation: Operation,
        channel: ChannelId,
        result: i64,
    ) {
        let before = std::mem::replace(&mut self.progress[task.index()].since, time);
        self.mark(time, cpu, task);
        let entered = self.progress[task.index()].open.take().filter(|open| open.operation == operation);
        let open = match entered {
            Some(open) => open,
            None => {
                self.flush(task);
                let at = self.out.tasks[task.index()].steps.len();
                if operation == Operation::Yield {
                    self.out.tasks[task.index()].steps.push(Step::Yield);
                }
                let (earliest, waits) = (before, Vec::new());
                Open { operation, channel, amount: 0, earliest, entered: time, at, transfer: None, waits }
            }
        };
        for &wait in &open.waits {
            self.out.waits[wait as usize].result = Some(result);
        }
        match operation {
            _ if is_transfer(operation) => self.end_transfer(time, task, open, result),
            Operation::SleepAbsolute if open.waits.is_empty() && result == 0 => {
                self.flush(task);
                self.out.tasks[task.index()].steps.push(Step::Until(Nanos(open.amount)));
            }
            Operation::WaitChild if result == RESULT_UNKNOWN => self.end_some_child_wait(task, &open),
            Operation::WaitChild if result > 0 => self.end_child_wait(task, &open, result),
            _ => {}
        }
    }

    fn end_transfer(&mut self, time: Nanos, task: TaskId, open: Open, result: i64) {
        if result <= 0 || result == RESULT_UNKNOWN {
            for &wait in &open.waits {
                self.out.waits[wait as usize].transfer = None;
            }
            return;
        }
        let give = is_give(open.operation);
        let id = open.transfer.unwrap_or(self.out.transfers.len() as u32);
        let woken = |wait: &&u32| self.out.waits[**wait as usize].wake.is_some();
        let waited = open.waits.iter().rev().find(woken).copied();
        let wake = waited.and_then(|wait| self.out.waits[wait as usize].wake);
        let summed = !give && self.recording.provenance.counted_from.is_some_and(|from| time >= from);
        let transfer = Transfer {
            task,
            give,
            channel: open.channel,
            bytes: result as u64,
            earliest: open.earliest,
            entered: open.entered,
            exited: time,
            summed,
            wake,
            waited,
        };
        if open.transfer.is_some() {
            self.out.transfers[id as usize] = transfer;
            if summed {
                self.flush(task);
                self.out.tasks[task.index()].steps.push(Step::Rest(id));
            }
            return;
        }
        self.out.transfers.push(transfer);
        self.flush(task);
        let steps = &mut self.out.tasks[task.index()].steps;
        let at = if give { steps.len() } else { open.at.min(steps.len()) };
        steps.insert(at, Step::Transfer(id));
    }

    fn end_child_wait(&mut self, task: TaskId, open: &Open, result: i64) {
        let Some(&child) = i32::try_from(result).ok().and_then(|pid| self.by_pid.get(&pid)) else { return };
        match open.waits.split_last() {
            Some((&last, before)) => {
                self.out.waits[last as usize].child = Some(child);
                before.iter().for_each(|&wait| self.out.waits[wait as usize].superseded = true);
            }
            None => {
                self.flush(task);
                let steps = &mut self.out.tasks[task.index()].steps;
                steps.insert(open.at.min(steps.len()), Step::Child(child));
            }
        }
    }

    /// Whose end it was is not told: the child's that made the wake-up.
    fn end_some_child_wait(&mut self, task: TaskId, open: &Open) {
        let Some((&last, before)) = open.waits.split_last() else { return };
        let waker = self.out.waits[last as usize].wake.map(|wake| wake.waker);
        let child = waker.filter(|waker| self.out.tasks[waker.index()].forked == Some(task));
        if child.is_some() {
            self.out.waits[last as usize].child = child;
            before.iter().for_each(|&wait| self.out.waits[wait as usize].superseded = true);
        }
    }

    fn attributes(&mut self, time: Nanos, task: TaskId, new: TaskAttributes) {
        if self.progress[task.index()].attributes == new {
            return;
        }
        if let Some(cpu) = self.progress[task.index()].on {
            self.mark(time, cpu, task);
        }
        self.flush(task);
        self.out.tasks[task.index()].steps.push(Step::Attributes(self.out.attributes.len() as u32));
        self.out.attributes.push(new.clone());
        self.progress[task.index()].attributes = new;
    }

    fn finish(mut self) -> Observed {
        let end = self.recording.duration;
        for cpu in 0..self.cpus.len() {
            if let Some(current) = self.cpus[cpu].current {
                self.mark(end, CpuId(cpu as u32), current);
            }
        }
        (1..self.progress.len()).for_each(|task| self.flush(TaskId(task as u32)));
        self.out
    }
}
