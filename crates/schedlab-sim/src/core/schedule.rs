//! `__schedule`: the current task leaves or stays, another comes; going idle and coming back.

use super::{Core, flags};
use crate::fair::params::Features;
use crate::kernel::{Class, CostKind, CpuEvent, Kernel, Resched, Slot, TaskState};
use schedlab_model::event::{EventKind, PrevState, VruntimeClock};
use schedlab_model::{CpuId, TaskId};

impl Core {
    /// Looks for the task to run next and switches to it. Afterwards the CPU is idle, or the caller arms the
    /// event at which its task will have gone on from where it left off.
    #[inline(always)]
    pub(crate) fn schedule(&mut self, cpu: CpuId) {
        let prev = self.k.cpu(cpu).curr;
        self.k.settle(cpu);
        let pushed = self.push_away(cpu, prev);
        let next = self.change_current(cpu, prev);
        let state = self.k.cpu_mut(cpu);
        state.looks_at_exit = false;
        if state.resched != Resched::None {
            state.resched = Resched::None;
            self.k.cancel(Slot::Cpu(cpu, CpuEvent::Resched));
        }
        debug_assert!(!self.k.is_armed(Slot::Cpu(cpu, CpuEvent::Resched)), "armed without a mark");
        if next != prev {
            self.switch(cpu, prev, next);
        }
        self.ext.end_switch(&mut self.k, cpu);
        let ext = self.k.task(next).class == Class::Ext;
        if !ext && next != prev && self.k.fair.params.has(Features::HRTICK) {
            crate::fair::class::start_hrtick(&mut self.k, cpu, next);
        }
        if let Some(to) = pushed {
            self.k.set_task_cpu(prev, to);
            self.enqueue_task(to, prev, flags::ENQUEUE_MIGRATED);
            self.wakeup_preempt(to, prev, 0);
        }
        if self.k.fair.has_throttle_work(next) && self.k.task(next).class == Class::Fair {
            // It gets as far as the way back to user space.
            self.k.resched_curr(cpu);
        }
        if next.is_idle() {
            self.k.cancel(Slot::Cpu(cpu, CpuEvent::Resume));
        }
    }

    /// `active_load_balance_cpu_stop`: the current task leaves for a CPU that suits it better; which one.
    #[inline(always)]
    fn push_away(&mut self, cpu: CpuId, curr: TaskId) -> Option<CpuId> {
        if !self.k.fair.has_pushed {
            return None;
        }
        let to = crate::fair::packing::take_push(&mut self.k, cpu, curr)?;
        self.dequeue_task(cpu, curr, flags::DEQUEUE_SAVE);
        Some(to)
    }

    /// Takes the current task off its queue if it no longer runs, and makes the next one current in its class.
    #[inline(always)]
    fn change_current(&mut self, cpu: CpuId, prev: TaskId) -> TaskId {
        let task = self.k.task_mut(prev);
        let (state, class, on_rq) = (task.state, task.class, task.on_rq);
        let plain = class == Class::Ext && state == TaskState::Sleeping && on_rq;
        if plain && self.k.rt.is_empty() && self.ext.has_switched_all() {
            self.k.task_mut(prev).on_rq = false;
            return self.ext.replace_sleeper(&mut self.k, cpu, prev).unwrap_or(TaskId::IDLE);
        }
        self.ext.begin_switch(cpu);
        if state != TaskState::Runnable && on_rq {
            let special = if state == TaskState::Dead { flags::DEQUEUE_SPECIAL } else { 0 };
            self.dequeue_task(cpu, prev, flags::DEQUEUE_SLEEP | special);
        }
        if self.k.fair.has_throttle_work(prev) && state == TaskState::Runnable && class == Class::Fair {
            crate::fair::bandwidth::throttle_work(&mut self.k, cpu, prev);
        }
        self.change_by_steps(cpu, prev)
    }

    /// `pick_next_task` and what follows from it.
    #[inline(never)]
    fn change_by_steps(&mut self, cpu: CpuId, prev: TaskId) -> TaskId {
        let next = self.pick_next_task(cpu, prev);
        if next != prev {
            if prev.is_idle() {
                self.ext.leave_idle(&mut self.k, cpu, next);
            }
            self.put_prev_set_next(cpu, prev, next);
        }
        next
    }

    #[inline(always)]
    fn switch(&mut self, cpu: CpuId, prev: TaskId, next: TaskId) {
        let k = &mut self.k;
        let now = k.now;
        let prev_state = leave(k, prev);
        k.cpu_mut(cpu).curr = next;
        k.trace.switch(now, cpu, prev, prev_state, next);
        if k.trace.detail {
            self.tell_vruntime(cpu, prev);
            self.tell_vruntime(cpu, next);
        }
        let k = &mut self.k;
        let cost = k.cost(CostKind::ContextSwitch);
        k.charge(cpu, cost);
        if !next.is_idle() {
            enter(k, cpu, next);
        }
        if prev.is_idle() {
            self.leave_idle(cpu);
        } else if next.is_idle() {
            self.enter_idle(cpu);
        }
        if prev_state == PrevState::Dead {
            crate::fair::class::task_dead(&mut self.k, prev);
            self.ext.exit_task(&mut self.k, prev);
        }
    }

    /// The virtual runtime of a task that comes or goes, as the live recorder reads it.
    #[cold]
    fn tell_vruntime(&mut self, cpu: CpuId, task: TaskId) {
        let (clock, vruntime) = match self.k.task(task).class {
            Class::Fair => (VruntimeClock::Fair, Some(self.k.fair.entity(task).vruntime)),
            Class::Ext => (VruntimeClock::Ext, self.ext.dsq_vtime(task)),
            Class::Rt | Class::Idle => return,
        };
        if let Some(vruntime) = vruntime {
            let now = self.k.now;
            self.k.trace.emit_detail(now, cpu, || EventKind::Vruntime { task, clock, vruntime });
        }
    }

    /// The CPU goes idle: idle masks. The pending tick finds it idle and stops (nohz), which costs nothing.
    #[inline(never)]
    fn enter_idle(&mut self, cpu: CpuId) {
        let now = self.k.now;
        self.k.cpu_mut(cpu).idle_since = Some(now);
        self.k.add_nr_running(cpu, 0);
        crate::fair::shared::update_idle_core(&mut self.k, cpu);
        self.ext.enter_idle(&mut self.k, cpu);
    }

    /// The CPU leaves idle: tick restarted at its next multiple.
    #[inline(never)]
    fn leave_idle(&mut self, cpu: CpuId) {
        let (now, tick) = (self.k.now, self.k.tick_ns);
        let state = self.k.cpu_mut(cpu);
        if let Some(since) = state.idle_since.take() {
            state.idle_time += now - since;
        }
        self.k.idle_mask.assign(cpu, false);
        if !self.k.ideal && !self.k.is_armed(Slot::Cpu(cpu, CpuEvent::Tick)) {
            let since = now + tick - self.k.tick_phase;
            self.k.arm(Slot::Cpu(cpu, CpuEvent::Tick), now + tick - since % tick);
        }
    }
}

/// Books the departure of a task; in what state it left.
fn leave(k: &mut Kernel, prev: TaskId) -> PrevState {
    if prev.is_idle() {
        return PrevState::Runnable;
    }
    let now = k.now;
    let task = k.task_mut(prev);
    match task.state {
        TaskState::Runnable => {
            task.nivcsw += 1;
            task.queued_since = Some(now);
            PrevState::Runnable
        }
        TaskState::Dead => PrevState::Dead,
        TaskState::Sleeping | TaskState::New => {
            task.nvcsw += 1;
            if task.is_uninterruptible { PrevState::Uninterruptible } else { PrevState::Interruptible }
        }
    }
}

/// Books the arrival of a task, and the warmth it lost if it comes from elsewhere.
#[inline(always)]
fn enter(k: &mut Kernel, cpu: CpuId, next: TaskId) {
    let now = k.now;
    let task = k.task_mut(next);
    if let Some(since) = task.queued_since.take() {
        task.run_delay += now - since;
        task.run_delay_max = task.run_delay_max.max(now - since);
    }
    task.exec_start = now;
    task.prev_sum_exec = task.sum_exec;
    let last = task.last_ran.replace(cpu);
    if let Some(last) = last.filter(|last| *last != cpu)
        && let Some(kind) = CostKind::of_migration(k.domains.distance(last, cpu))
    {
        let cost = k.cost(kind);
        k.cpu_mut(cpu).overhead += cost;
    }
}
