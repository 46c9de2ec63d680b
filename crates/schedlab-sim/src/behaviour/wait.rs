//! Blocking and waking: the only places where a behaviour changes a task's state.

use super::actor::Wait;
use super::compile::FOREVER;
use super::interpret::Outcome;
use crate::core::flags;
use crate::kernel::{Class, CostKind, Slot, TaskState};
use crate::simulation::Simulation;
use schedlab_model::event::{Context, EventKind, IrqSource};
use schedlab_model::{ChannelId, CpuId, Nanos, Policy, TaskId};

impl Simulation {
    /// The task waits from now on; the core takes it off its CPU when the interpreter returns. With a
    /// `timeout` (ns from now) it waits at most so long.
    pub(crate) fn block(&mut self, task: TaskId, wait: Wait, timeout: u64) {
        debug_assert!(!self.makes_room(task), "{task:?} waits for others with memory asked for");
        let actor = &mut self.work.actors[task.index()];
        actor.wait = wait;
        match wait {
            Wait::Take(channel) | Wait::Lock(channel) | Wait::Condition(channel) | Wait::Barrier(channel) => {
                self.work.channels[channel.index()].takers.push_back(task);
            }
            Wait::Room(channel) => self.work.channels[channel.index()].givers.push_back(task),
            Wait::Any(list) => {
                for channel in &self.work.code.lists[list as usize] {
                    self.work.channels[channel.index()].pollers.push(task);
                }
            }
            Wait::None | Wait::Timer | Wait::Device(_) | Wait::Children => {}
        }
        self.core.k.task_mut(task).state = TaskState::Sleeping;
        if timeout != FOREVER {
            self.arm_timer(task, self.core.k.now.saturating_add(timeout));
        }
    }

    /// The task waits in a call that takes so much by itself first; meanwhile what it waits for may come.
    pub(crate) fn wait_for(&mut self, task: TaskId, wait: Wait, timeout: u64, call: &[CostKind]) -> Outcome {
        if self.pays(task, call) || self.pays_for_sleep(task) {
            return Outcome::Busy;
        }
        self.block(task, wait, timeout);
        Outcome::Off
    }

    /// Charges what a step's call takes before it does anything, once; whether that takes time now.
    pub(crate) fn pays(&mut self, task: TaskId, call: &[CostKind]) -> bool {
        let cost = |sim: &mut Simulation| call.iter().map(|kind| sim.core.k.cost(*kind)).sum();
        !self.work.workload.calls_in_runs && self.pays_once(task, cost)
    }

    /// The same for what going to sleep takes where calls are in the runs. Nothing under the ideal scheduler, where tasks
    /// sleep more often than under any other: who waits is the scheduler's doing, and the bound must not pay for it.
    fn pays_for_sleep(&mut self, task: TaskId) -> bool {
        let free = self.core.k.ideal || !self.work.workload.calls_in_runs;
        !free && self.pays_once(task, |sim| sim.work.workload.sleep_cost.0)
    }

    /// A cost is drawn only by who has not paid.
    fn pays_once(&mut self, task: TaskId, cost: impl FnOnce(&mut Simulation) -> u64) -> bool {
        if std::mem::take(&mut self.work.actors[task.index()].paid) {
            return false;
        }
        let cost = cost(self);
        if cost == 0 {
            return false;
        }
        self.work.actors[task.index()].paid = true;
        self.core.k.charge(self.core.k.this_cpu, cost);
        true
    }

    /// Charges what a call takes after it did what others see.
    pub(crate) fn pays_behind(&mut self, call: CostKind) {
        if !self.work.workload.calls_in_runs {
            let cost = self.core.k.cost(call);
            self.core.k.charge(self.core.k.this_cpu, cost);
        }
    }

    /// Wakes up to `count` who wait there by a call that is not made if nobody does.
    pub(crate) fn wake_by_futex(&mut self, channel: ChannelId, count: u32) {
        let state = &self.work.channels[channel.index()];
        if !(state.takers.is_empty() && state.pollers.is_empty()) {
            self.pays_behind(CostKind::FutexCall);
        }
        self.wake_takers(channel, count, Context::Task, false);
    }

    /// The task waits for its timer alone, so long from now.
    #[inline]
    pub(crate) fn sleep(&mut self, task: TaskId, time: u64) {
        if time == FOREVER {
            return self.block(task, Wait::Timer, time);
        }
        self.work.actors[task.index()].wait = Wait::Timer;
        self.core.k.task_mut(task).state = TaskState::Sleeping;
        self.arm_timer_inline(task, self.core.k.now.saturating_add(time));
    }

    /// The task waits for an interrupt of a device, which comes so long from now on that CPU.
    pub(crate) fn wait_for_device(&mut self, task: TaskId, time: u64, cpu: CpuId) {
        self.work.actors[task.index()].wait = Wait::Device(cpu);
        self.core.k.task_mut(task).state = TaskState::Sleeping;
        self.work.timers_armed += 1;
        self.core.k.arm_task(task, self.core.k.now.saturating_add(time));
    }

    /// That interrupt: it wakes the task.
    #[inline(never)]
    fn device_event(&mut self, task: TaskId, cpu: CpuId) {
        let cpu = self.core.k.online_or_first(cpu);
        self.work.actors[task.index()].wait = Wait::None;
        self.work.timers_armed -= 1;
        self.core.k.task_mut(task).is_uninterruptible = false;
        self.core.k.this_cpu = cpu;
        let cost = self.core.k.cost(CostKind::Interrupt);
        self.core.interrupt(cpu, IrqSource::Device(0), cost);
        self.wake_now(task, Context::HardIrq, 0, 0);
        self.core.k.leave_kernel(cpu);
    }

    /// Arms the task's timer. Normal tasks' timers have slack: when they are due they wait for the interrupt of another
    /// timer of their CPU, and expire alone at its end (`hrtimer_start_range_ns`).
    #[inline(always)]
    fn arm_timer_inline(&mut self, task: TaskId, due: u64) {
        let state = self.core.k.task(task);
        let realtime = matches!(state.policy, Policy::Fifo | Policy::Rr | Policy::Deadline);
        let slack = if realtime { 0 } else { self.timer_slack };
        if slack > 0 {
            self.work.slack_timers.arm(state.cpu, task, due);
        }
        let latency = self.core.k.cost(CostKind::TimerLatency);
        self.work.actors[task.index()].timer_due = due;
        self.work.timers_armed += 1;
        self.core.k.arm_task(task, due.saturating_add(slack).saturating_add(latency));
    }

    /// The same where it is rarer.
    #[inline(never)]
    pub(crate) fn arm_timer(&mut self, task: TaskId, due: u64) {
        self.arm_timer_inline(task, due);
    }

    /// A task's timer expires alone: on the CPU where it was armed an interrupt wakes the task.
    #[inline(always)]
    pub(crate) fn timer_event(&mut self, task: TaskId) {
        if let Wait::Device(cpu) = self.work.actors[task.index()].wait {
            return self.device_event(task, cpu);
        }
        let cpu = self.core.k.task(task).cpu;
        self.work.slack_timers.forget(cpu, task, self.work.actors[task.index()].timer_due);
        self.core.k.this_cpu = cpu;
        let cost = self.core.k.cost(CostKind::Interrupt);
        self.core.note_interrupt(cpu, IrqSource::Timer, cost);
        self.timer_expired(task, cpu, cost);
        self.timers_expire_too(cpu);
        self.core.k.leave_kernel(cpu);
    }

    /// Within an interrupt of a timer of this CPU: those in their slack expire with it.
    #[inline(always)]
    pub(crate) fn timers_expire_too(&mut self, cpu: CpuId) {
        while let Some((task, due)) = self.work.slack_timers.take_due(cpu, self.core.k.now) {
            self.expires_early(task, due, cpu);
        }
    }

    #[inline(never)]
    fn expires_early(&mut self, task: TaskId, due: u64, cpu: CpuId) {
        let armed = self.core.k.is_armed(Slot::Task(task)) && self.work.actors[task.index()].timer_due == due;
        debug_assert!(armed && self.core.k.task(task).cpu == cpu, "{task:?} has no timer here");
        self.core.k.cancel(Slot::Task(task));
        self.timer_expired(task, cpu, 0);
    }

    /// What a timer does in the interrupt, which costs so much besides.
    #[inline(always)]
    fn timer_expired(&mut self, task: TaskId, cpu: CpuId, cost: u64) {
        self.work.timers_armed -= 1;
        let actor = &mut self.work.actors[task.index()];
        let due = Nanos(actor.timer_due);
        let wait = std::mem::replace(&mut actor.wait, Wait::None);
        let now = self.core.k.now;
        self.core.k.trace.emit(now, cpu, EventKind::TimerExpire { task, due });
        if wait != Wait::Timer {
            self.time_out(task, wait);
        }
        self.wake_now(task, Context::HardIrq, 0, cost);
    }

    /// The task waited for something else, which did not come in time.
    #[inline(never)]
    fn time_out(&mut self, task: TaskId, wait: Wait) {
        self.work.actors[task.index()].timed_out = true;
        self.forget(task, wait);
    }

    /// Takes a task out of the queues it waits in.
    fn forget(&mut self, task: TaskId, wait: Wait) {
        match wait {
            Wait::Any(list) => {
                for channel in &self.work.code.lists[list as usize] {
                    self.work.channels[channel.index()].forget(task);
                }
            }
            Wait::Take(channel)
            | Wait::Room(channel)
            | Wait::Lock(channel)
            | Wait::Condition(channel)
            | Wait::Barrier(channel) => self.work.channels[channel.index()].forget(task),
            Wait::None | Wait::Timer | Wait::Device(_) | Wait::Children => {}
        }
    }

    /// Wakes a task that waits, whatever for; it looks again at what it waited for when it runs.
    pub(crate) fn wake(&mut self, task: TaskId, context: Context, wake_flags: u32) {
        let wait = std::mem::replace(&mut self.work.actors[task.index()].wait, Wait::None);
        if let Wait::Any(_) = wait {
            self.forget(task, wait);
        }
        if self.core.k.is_armed(Slot::Task(task)) {
            self.core.k.cancel(Slot::Task(task));
            let cpu = self.core.k.task(task).cpu;
            self.work.slack_timers.forget(cpu, task, self.work.actors[task.index()].timer_due);
            self.work.timers_armed -= 1;
        }
        self.wake_now(task, context, wake_flags, 0);
    }

    /// The same for a task that has been taken out of where it waited; so much is to be charged already.
    #[inline(always)]
    fn wake_now(&mut self, task: TaskId, context: Context, wake_flags: u32, charged: u64) {
        let here = self.core.k.this_cpu;
        let cost = charged + self.core.k.cost(CostKind::Wakeup);
        if self.core.k.task(task).class == Class::Ext {
            // The scheduler's callbacks follow.
            self.core.k.charge_first(here, cost);
        } else {
            self.core.k.charge(here, cost);
        }
        self.core.try_to_wake_up(task, context, wake_flags);
    }

    /// Wakes up to `count` tasks that wait to take from a channel, and everybody who polls it.
    pub(crate) fn wake_takers(
        &mut self,
        channel: ChannelId,
        count: u32,
        context: Context,
        sync: bool,
    ) -> u32 {
        let wake_flags = if sync { flags::WF_SYNC } else { 0 };
        let mut woken = 0;
        while woken < count {
            let Some(task) = self.work.channels[channel.index()].takers.pop_front() else { break };
            self.wake(task, context, wake_flags);
            woken += 1;
        }
        while let Some(task) = self.work.channels[channel.index()].pollers.pop() {
            self.wake(task, context, wake_flags);
        }
        woken
    }
}
