//! Dispatch to the scheduling classes, by enum.

use super::{Core, flags};
use crate::kernel::{Class, Resched, Task};
use crate::{fair, rt};
use schedlab_model::{CpuId, Policy, TaskAttributes, TaskId};

impl Core {
    /// `enqueue_task`: the class queues the task; `Task::cpu` is `cpu` already.
    pub(crate) fn enqueue_task(&mut self, cpu: CpuId, task: TaskId, flags: u32) {
        debug_assert_eq!(self.k.task(task).cpu, cpu);
        match self.k.task(task).class {
            Class::Fair => fair::class::enqueue_task(&mut self.k, cpu, task, flags),
            Class::Rt => rt::enqueue_task(&mut self.k, cpu, task, flags),
            Class::Ext => self.ext.enqueue_again(&mut self.k, cpu, task, flags),
            Class::Idle => {}
        }
        self.k.task_mut(task).on_rq = true;
    }

    /// `dequeue_task`: off the queue. `false` if a fair sleeper stays delayed (`on_rq` stays set).
    pub(crate) fn dequeue_task(&mut self, cpu: CpuId, task: TaskId, flags: u32) -> bool {
        let gone = match self.k.task(task).class {
            Class::Fair => fair::class::dequeue_task(&mut self.k, cpu, task, flags),
            Class::Rt => {
                rt::dequeue_task(&mut self.k, cpu, task);
                true
            }
            Class::Ext => {
                self.ext.dequeue_task(&mut self.k, cpu, task, flags);
                true
            }
            Class::Idle => true,
        };
        if gone {
            self.k.task_mut(task).on_rq = false;
        }
        gone
    }

    /// `wakeup_preempt`: whether the task just queued should run instead of the current one.
    #[inline(always)]
    pub(crate) fn wakeup_preempt(&mut self, cpu: CpuId, task: TaskId, wake_flags: u32) {
        let (mine, running) = (self.k.task(task).class, self.k.cpu(cpu).curr);
        if mine == Class::Ext {
            // Stronger than nobody, and no function of its own: the running task need not be looked at.
            if running.is_idle() {
                self.k.resched_curr(cpu);
            }
            return;
        }
        let current = self.k.task(running).class;
        if mine == current {
            match mine {
                Class::Fair => fair::class::wakeup_preempt(&mut self.k, cpu, task, wake_flags),
                Class::Rt => rt::wakeup_preempt(&mut self.k, cpu, task),
                Class::Ext | Class::Idle => {}
            }
        } else if mine > current {
            self.k.resched_curr(cpu);
        }
    }

    /// `pick_next_task`: the strongest class that has one. `prev` is the current task. Like
    /// `next_active_class`, it passes over the fair class while every task of it is the ext class's.
    pub(crate) fn pick_next_task(&mut self, cpu: CpuId, prev: TaskId) -> TaskId {
        rt::pull(&mut self.k, cpu);
        if let Some(task) = rt::pick_task(&self.k, cpu, || self.ext.waits(cpu)) {
            return task;
        }
        if !self.ext.has_switched_all() {
            if let Some(task) = fair::class::pick_task(&mut self.k, cpu) {
                return task;
            }
            if fair::balance::newidle(&mut self.k, cpu)
                && let Some(task) = fair::class::pick_task(&mut self.k, cpu)
            {
                return task;
            }
        }
        let state = self.k.task(prev);
        let still = state.class == Class::Ext && state.on_rq;
        if let Some(task) = self.ext.pick_task(&mut self.k, cpu, still.then_some(prev)) {
            return task;
        }
        TaskId::IDLE
    }

    /// `put_prev_task` and `set_next_task`.
    pub(crate) fn put_prev_set_next(&mut self, cpu: CpuId, prev: TaskId, next: TaskId) {
        match self.k.task(prev).class {
            Class::Fair => fair::class::put_prev_task(&mut self.k, cpu, prev, next),
            Class::Rt => rt::put_prev_task(&mut self.k, cpu),
            Class::Ext => self.ext.put_prev_task(&mut self.k, cpu, prev, next),
            Class::Idle => {}
        }
        match self.k.task(next).class {
            Class::Fair => fair::class::set_next_task(&mut self.k, next),
            Class::Rt => rt::set_next_task(&mut self.k, cpu, next),
            Class::Ext => self.ext.set_next_task(&mut self.k, cpu, next),
            Class::Idle => {}
        }
    }

    /// `update_curr` of whatever class runs.
    pub(crate) fn update_curr(&mut self, cpu: CpuId) {
        match self.k.task(self.k.cpu(cpu).curr).class {
            Class::Fair => fair::class::update_curr(&mut self.k, cpu),
            Class::Rt => rt::update_curr(&mut self.k, cpu),
            Class::Ext => self.ext.update_curr(&mut self.k, cpu),
            Class::Idle => {}
        }
    }

    /// `task_tick`.
    pub(crate) fn task_tick(&mut self, cpu: CpuId) {
        let curr = self.k.cpu(cpu).curr;
        match self.k.task(curr).class {
            Class::Fair => fair::class::task_tick(&mut self.k, cpu, curr),
            Class::Rt => rt::task_tick(&mut self.k, cpu, curr),
            Class::Ext => self.ext.task_tick(&mut self.k, cpu, curr),
            Class::Idle => {}
        }
        if self.k.cpu(cpu).resched == Resched::Lazy {
            self.k.resched_curr(cpu);
        }
    }

    /// `yield_task`, then the core reschedules.
    pub(crate) fn yield_task(&mut self, cpu: CpuId) {
        match self.k.task(self.k.cpu(cpu).curr).class {
            Class::Fair => fair::class::yield_task(&mut self.k, cpu),
            Class::Rt => rt::yield_task(&mut self.k, cpu),
            Class::Ext => self.ext.yield_task(&mut self.k, cpu),
            Class::Idle => {}
        }
    }

    /// `select_task_rq`: where a task that wakes or is new shall run; always a CPU it may run on.
    #[inline(never)]
    pub(crate) fn select_task_rq(&mut self, task: TaskId, wake_flags: u32) -> CpuId {
        let prev = self.k.task(task).cpu;
        if self.k.ideal {
            return prev;
        }
        let chosen = if self.k.task(task).nr_allowed > 1 {
            match self.k.task(task).class {
                Class::Fair => fair::class::select_task_rq(&mut self.k, task, wake_flags),
                Class::Rt => rt::select_task_rq(&self.k, task),
                Class::Ext => self.ext.select_again(&mut self.k, task, prev, wake_flags),
                Class::Idle => prev,
            }
        } else {
            prev
        };
        if chosen.index() < self.k.cpu_count() && self.k.may_run_on(task, chosen) {
            return chosen;
        }
        self.nearest_allowed(task, prev)
    }

    /// `select_fallback_rq`: the allowed CPU nearest to `from`.
    pub(crate) fn nearest_allowed(&self, task: TaskId, from: CpuId) -> CpuId {
        let near = |cpu: &CpuId| (self.k.domains.distance(from, *cpu), *cpu);
        self.k.allowed[task.index()].iter().min_by_key(near).expect("a mask is never empty")
    }

    /// Applies changed attributes of a task around a dequeue and enqueue (`sched_change`). `change` alters
    /// policy, weight, slice or affinity; the class follows.
    ///
    /// `how` is what classes are told of the change: [`flags::MOVE`], [`flags::CLASS`], [`flags::ENQUEUE_HEAD`].
    pub(crate) fn change_task(&mut self, task: TaskId, how: u32, change: impl FnOnce(&mut Core)) {
        let (cpu, queued, running) =
            (self.k.task(task).cpu, self.k.task(task).on_rq, self.k.is_running(task));
        let delayed = self.k.fair.entity(task).sched_delayed;
        if delayed {
            self.dequeue_task(cpu, task, flags::DEQUEUE_SLEEP | flags::DEQUEUE_DELAYED);
        } else if queued {
            self.dequeue_task(cpu, task, flags::DEQUEUE_SAVE | how & !flags::ENQUEUE_HEAD);
        }
        if running {
            self.put_prev_set_next(cpu, task, TaskId::IDLE);
        }
        let before = self.k.task(task).class;
        change(self);
        let after = self.k.task(task).class;
        if before == Class::Ext && after != Class::Ext {
            self.ext.switched_from(&mut self.k, task);
        } else if before != Class::Ext && after == Class::Ext {
            self.ext.switched_to(&mut self.k, task);
        }
        fair::class::reweight(&mut self.k, task);
        if queued && !delayed {
            self.enqueue_task(cpu, task, flags::ENQUEUE_RESTORE | how);
        }
        if running {
            self.put_prev_set_next(cpu, TaskId::IDLE, task);
            self.ext.note_curr(&self.k, cpu);
        }
        if queued && !delayed {
            self.k.resched_curr(cpu);
        }
    }

    /// A task takes new attributes; a task no longer allowed on its CPU is moved by the caller. As the system calls
    /// do it: affinity, scheduling attributes and cgroup are a change each, and what stays as it is is none.
    pub(crate) fn set_attributes(&mut self, task: TaskId, attributes: &TaskAttributes) {
        if self.k.asked_affinity(task) != &attributes.affinity {
            self.change_task(task, 0, |core| {
                core.k.set_allowed(task, &attributes.affinity);
                core.ext.set_cpus_allowed(&mut core.k, task);
            });
        }
        self.set_scheduler(task, attributes);
        self.move_to_group(task, &attributes.cgroup);
    }

    /// `sched_move_task`; an empty path leaves the task where it is.
    fn move_to_group(&mut self, task: TaskId, path: &str) {
        let to_ext = self.ext.prepare_move(&mut self.k, task, path);
        let group = self.k.fair.groups.find(path);
        let id = self.k.fair.groups.layout.entity_of(task);
        let refused = to_ext.is_none() && self.ext.knows(task);
        let moves = !path.is_empty() && !refused && self.k.fair.entities[id.index()].group != group;
        if to_ext.is_none() && !moves {
            return;
        }
        self.change_task(task, flags::MOVE, |core| {
            if let Some(to) = to_ext {
                core.ext.move_task(&mut core.k, task, to);
            }
            core.k.fair.set_group(task, group);
        });
    }

    /// `__sched_setscheduler`: policy, nice, priority, slice. Refused with `-EACCES` where the scheduler said so
    /// (`scx.disallow`).
    fn set_scheduler(&mut self, task: TaskId, attributes: &TaskAttributes) {
        let state = self.k.task(task);
        if state.has_attributes(attributes) {
            return;
        }
        let asks = attributes.policy == Policy::Ext && state.policy != Policy::Ext;
        if asks && self.ext.disallows(task) {
            return;
        }
        let state = self.k.task(task);
        let (before, old_prio) = (state.class, state.prio());
        let weight = self.k.weight_of(attributes);
        let mut after = Task::new(attributes, weight, TaskId::IDLE, 0);
        if after.class == Class::Fair && self.ext.takes(after.policy) {
            after.class = Class::Ext;
        }
        let (class, new_prio) = (after.class, after.prio());
        let mut how = if old_prio != new_prio { flags::MOVE } else { 0 };
        if old_prio < new_prio {
            how |= flags::ENQUEUE_HEAD;
        }
        if before != class {
            how |= flags::CLASS;
        }
        self.change_task(task, how, |core| {
            core.k.task_mut(task).set_attributes(attributes, weight);
            core.k.task_mut(task).class = class;
            if before == Class::Ext && class == Class::Ext {
                core.ext.reweight_task(&mut core.k, task);
            }
        });
    }
}
