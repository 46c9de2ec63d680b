//! Waking tasks and starting new ones (`try_to_wake_up`, `wake_up_new_task`).

use super::{Core, flags};
use crate::kernel::{Class, Kernel, TaskState};
use schedlab_model::event::{Context, EventKind};
use schedlab_model::{CpuId, TaskId};

impl Core {
    /// Wakes a sleeping task from code on `this_cpu`. `false` if it does not sleep.
    #[inline(always)]
    pub(crate) fn try_to_wake_up(&mut self, task: TaskId, context: Context, wake_flags: u32) -> bool {
        let (now, here) = (self.k.now, self.k.this_cpu);
        let waker = self.k.cpu(here).curr;
        let state = self.k.task_mut(task);
        if state.state != TaskState::Sleeping {
            return false;
        }
        state.state = TaskState::Runnable;
        state.queued_since = Some(now);
        let (wakee_cpu, delayed, class, nr_allowed) = (state.cpu, state.on_rq, state.class, state.nr_allowed);
        self.k.trace.emit(now, here, EventKind::Waking { waker, context, wakee: task, wakee_cpu });
        if delayed {
            self.enqueue_task(wakee_cpu, task, flags::ENQUEUE_DELAYED);
            self.wakeup_preempt(wakee_cpu, task, wake_flags);
            return true;
        }
        if context == Context::Task {
            record_wakee(&mut self.k, waker, task);
        }
        if class == Class::Ext && nr_allowed > 1 && !self.k.ideal {
            self.wake_ext(task, wakee_cpu, wake_flags);
            return true;
        }
        let cpu = self.select_task_rq(task, wake_flags | flags::WF_TTWU);
        let migrated = if cpu == wakee_cpu { 0 } else { flags::ENQUEUE_MIGRATED };
        self.k.set_task_cpu(task, cpu);
        self.enqueue_task(cpu, task, flags::ENQUEUE_WAKEUP | migrated);
        self.wakeup_preempt(cpu, task, wake_flags | flags::WF_TTWU);
        update_avg_idle(&mut self.k, cpu);
        true
    }

    /// The rest for a task of the ext class that may run on several CPUs.
    #[inline(never)]
    fn wake_ext(&mut self, task: TaskId, from: CpuId, wake_flags: u32) {
        let mut cpu = self.ext.select_task_rq(&mut self.k, task, from, wake_flags | flags::WF_TTWU);
        if cpu.index() >= self.k.cpu_count() || !self.k.may_run_on(task, cpu) {
            cpu = self.nearest_allowed(task, from);
        }
        let mut flags = flags::ENQUEUE_WAKEUP;
        if cpu != from {
            flags |= flags::ENQUEUE_MIGRATED;
            self.k.set_task_cpu(task, cpu);
        }
        self.ext.enqueue_selected(&mut self.k, cpu, task, flags);
        self.k.task_mut(task).on_rq = true;
        // Stronger than nobody, and no function of its own: a running task need not be looked at.
        if self.k.cpu(cpu).curr.is_idle() {
            self.k.resched_curr(cpu);
        }
        update_avg_idle(&mut self.k, cpu);
    }

    /// A sleeper leaves its queue although it still owes time there: it may not wake on that CPU.
    pub(crate) fn end_delay(&mut self, task: TaskId) {
        if self.k.fair.entity(task).sched_delayed {
            let cpu = self.k.task(task).cpu;
            self.dequeue_task(cpu, task, flags::DEQUEUE_SLEEP | flags::DEQUEUE_DELAYED);
        }
    }

    /// `sched_fork`, `sched_cgroup_fork` and `sched_post_fork`: gives a new task its class and tells the scheduler. The
    /// error with which the fork fails if that refuses it.
    pub(crate) fn fork_task(&mut self, task: TaskId) -> Result<(), i32> {
        if self.ext.takes(self.k.task(task).policy) && self.k.task(task).class == Class::Fair {
            self.k.task_mut(task).class = Class::Ext;
        }
        self.ext.init_task(&mut self.k, task)
    }

    /// Starts a new task; `Task::cpu` is the CPU of its parent or the one asked for. `fixed` leaves it there.
    pub(crate) fn wake_up_new_task(&mut self, task: TaskId, fixed: bool) {
        if !(fixed && self.k.may_run_on(task, self.k.task(task).cpu)) {
            let cpu = self.select_task_rq(task, flags::WF_FORK);
            self.k.set_task_cpu(task, cpu);
        }
        let (now, here, cpu) = (self.k.now, self.k.this_cpu, self.k.task(task).cpu);
        let state = self.k.task_mut(task);
        state.state = TaskState::Runnable;
        state.queued_since = Some(now);
        state.recent_used_cpu = cpu;
        self.enqueue_task(cpu, task, flags::ENQUEUE_INITIAL);
        self.k.trace.emit(now, here, EventKind::WakeupNew { task, target_cpu: cpu });
        self.wakeup_preempt(cpu, task, flags::WF_FORK);
        update_avg_idle(&mut self.k, cpu);
    }
}

/// `record_wakee`: how often the waker changes whom it wakes, halved each second.
fn record_wakee(k: &mut Kernel, waker: TaskId, wakee: TaskId) {
    let now = k.now;
    let state = k.task_mut(waker);
    if now > state.wakee_flip_decay + 1_000_000_000 {
        state.wakee_flips >>= 1;
        state.wakee_flip_decay = now;
    }
    if state.last_wakee != wakee {
        state.last_wakee = wakee;
        state.wakee_flips += 1;
    }
}

/// `avg_idle` learns the idle period that this wake-up ends.
#[inline]
fn update_avg_idle(k: &mut Kernel, cpu: CpuId) {
    let now = k.now;
    let state = k.cpu_mut(cpu);
    if let Some(since) = state.idle_since {
        let period = now - since;
        // `update_avg`: an eighth of the difference.
        let change = (period as i64 - state.avg_idle as i64) / 8;
        state.avg_idle = state.avg_idle.saturating_add_signed(change).min(2 * state.max_idle_balance_cost);
    }
}
