//! Tells detailed sinks which operations tasks enter and leave, as a live recorder would see them.
//!
//! An uncontended lock makes no system call, so it is not told; the same holds for unlocking without waiters.

use super::compile::{FOREVER, Step};
use super::interpret::Outcome;
use crate::simulation::Simulation;
use schedlab_model::event::{EventKind, Operation, RESULT_UNKNOWN};
use schedlab_model::{ChannelId, CpuId, TaskId};

/// An operation on a channel, with its amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    operation: Operation,
    channel: ChannelId,
    amount: u64,
}

impl Simulation {
    /// Does a step and tells about it if the sink wants to know.
    #[inline]
    pub(crate) fn traced_step(&mut self, cpu: CpuId, task: TaskId) -> Outcome {
        if self.core.k.trace.detail { self.told_step(cpu, task) } else { self.step(cpu, task) }
    }

    #[cold]
    #[inline(never)]
    fn told_step(&mut self, cpu: CpuId, task: TaskId) -> Outcome {
        self.end_call(task);
        self.end_wait_for_child(task);
        let pc = self.work.actors[task.index()].pc;
        if self.work.actors[task.index()].open.is_none()
            && let Some(call) = self.call(task, pc)
        {
            self.work.actors[task.index()].open = Some((pc, call));
            let Call { operation, channel, amount } = call;
            let (now, here) = (self.core.k.now, self.core.k.this_cpu);
            let kind = || EventKind::OperationEnter { task, operation, channel, amount };
            self.core.k.trace.emit_detail(now, here, kind);
        }
        let outcome = self.step(cpu, task);
        if matches!(outcome, Outcome::Next) {
            self.end_call(task);
        }
        outcome
    }

    /// Ends the open operation if the task has gone past its step.
    pub(crate) fn end_call(&mut self, task: TaskId) {
        let actor = &mut self.work.actors[task.index()];
        if actor.open.is_some_and(|(pc, _)| pc != actor.pc) {
            self.tell_end(task);
        }
    }

    /// `wait()` returns for each child that ends: who has been woken in its step is in the next call from now on.
    fn end_wait_for_child(&mut self, task: TaskId) {
        let actor = &self.work.actors[task.index()];
        let is_wait = actor.open.is_some_and(|(_, call)| call.operation == Operation::WaitChild);
        // Who has just paid for the call has not waited.
        if is_wait && !actor.paid {
            self.tell_end(task);
        }
    }

    fn tell_end(&mut self, task: TaskId) {
        let Some((_, call)) = self.work.actors[task.index()].open.take() else { return };
        let Call { operation, channel, amount } = call;
        let result = match operation {
            Operation::PipeRead | Operation::PipeWrite | Operation::FutexWake => amount as i64,
            Operation::WaitChild => RESULT_UNKNOWN,
            _ => 0,
        };
        let (now, here) = (self.core.k.now, self.core.k.this_cpu);
        let kind = || EventKind::OperationExit { task, operation, channel, result };
        self.core.k.trace.emit_detail(now, here, kind);
    }

    /// The system call that a step makes, if any.
    fn call(&self, task: TaskId, pc: u32) -> Option<Call> {
        let channel = |id: ChannelId| &self.work.channels[id.index()];
        let none = ChannelId(0);
        let (operation, channel, amount) = match self.work.code.steps[pc as usize] {
            Step::Sleep(draw) => (Operation::SleepRelative, none, draw.mean(&self.work.code.quantiles)),
            Step::SleepUntil(due) => (Operation::SleepAbsolute, none, due),
            Step::Timer { timer, from_start, period, .. } => {
                (Operation::SleepAbsolute, none, self.timer_due(task, timer, from_start, period))
            }
            Step::Send { channel, bytes } => (Operation::PipeWrite, channel, u64::from(bytes)),
            Step::Receive { channel, bytes } | Step::ReceiveAll { channel, bytes } => {
                (Operation::PipeRead, channel, u64::from(bytes))
            }
            Step::ReceiveEach { channel, message, count, .. } => {
                (Operation::PipeRead, channel, u64::from(message) * u64::from(count))
            }
            Step::WaitAny { list, timeout } => {
                let first = self.work.code.lists[list as usize].first().copied().unwrap_or(none);
                (Operation::Poll, first, timeout)
            }
            Step::Post { channel, tokens } => (Operation::FutexWake, channel, u64::from(tokens)),
            Step::WakeWaiters { channel, count } => (Operation::FutexWake, channel, u64::from(count)),
            Step::Take { channel, .. } => (Operation::FutexWait, channel, 0),
            Step::Lock { channel: id } if channel(id).holder.is_some() => (Operation::FutexWait, id, 0),
            Step::Unlock { channel: id } if channel(id).contended => (Operation::FutexWake, id, 1),
            Step::ConditionWait { condition, .. } => (Operation::FutexWait, condition, 0),
            Step::Barrier { channel } => (Operation::FutexWait, channel, 0),
            Step::WaitChildren => (Operation::WaitChild, none, FOREVER),
            Step::Yield => (Operation::Yield, none, 0),
            _ => return None,
        };
        Some(Call { operation, channel, amount })
    }
}
