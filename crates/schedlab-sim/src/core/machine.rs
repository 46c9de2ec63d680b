//! Changes of the machine during a run: CPUs go on and offline, the machine is suspended, cgroups and knobs change.
//!
//! An offline CPU runs nothing: what was on it goes elsewhere at once, and no mask of a task that the classes
//! look at holds it. Differs from Linux: the CPU's running task is taken off without a stop task in between.

use super::{Core, flags};
use crate::kernel::{CpuEvent, Resched, Slot, TaskState};
use schedlab_model::workload::change::Change;
use schedlab_model::{CpuId, TaskId};

impl Core {
    /// Carries out a change. What has to be undone later, and when, is the result.
    pub(crate) fn change_machine(&mut self, change: &Change) -> Option<u64> {
        self.k.this_cpu = self.k.first_online();
        match change {
            Change::Cpu { cpu, online } => self.set_online(*cpu, *online),
            // Names and values were checked before the run; the scheduler may have ended since.
            Change::Knob { name, value } if self.k.fair.params.knows(name) => {
                drop(self.k.fair.params.set(name, *value));
            }
            Change::Knob { name, value } => {
                drop(self.ext.attached().map(|ext| ext.set_live(name, *value)));
            }
            Change::Suspend(time) => {
                self.ext.suspend(&mut self.k, true);
                return Some(self.k.now + time.0);
            }
            Change::Cgroup(cgroup) => {
                self.ext.change_cgroup(&mut self.k, cgroup);
                crate::fair::group::set(&mut self.k, cgroup);
            }
            Change::EndScheduler { by, cpu } => self.ext.throw_out(&self.k, Some(*by), *cpu),
            // The simulation's: it has the schedulers.
            Change::Scheduler(_) => {}
        }
        None
    }

    /// The machine is back: the ext scheduler schedules again.
    pub(crate) fn resume_machine(&mut self) {
        self.k.this_cpu = self.k.first_online();
        self.ext.suspend(&mut self.k, false);
    }

    /// `sched_cpu_activate`, `sched_cpu_deactivate`. The last online CPU stays.
    fn set_online(&mut self, cpu: CpuId, online: bool) {
        let now = self.k.is_online(cpu);
        if now == online || (!online && self.k.online_count() == 1) {
            return;
        }
        self.ext.hotplug(&mut self.k, cpu, online);
        let changed = self.k.set_online(cpu, online);
        for task in changed {
            // None of its CPUs is left, or they are back: it may run elsewhere, or no longer.
            self.ext.set_cpus_allowed(&mut self.k, task);
        }
        if !online {
            self.evacuate(cpu);
        }
    }

    /// Moves every task off a CPU.
    fn evacuate(&mut self, cpu: CpuId) {
        let curr = self.k.cpu(cpu).curr;
        // Whoever was to be pushed to a stronger CPU leaves anyway.
        self.k.fair.pushes[cpu.index()] = None;
        let here: Vec<TaskId> = (1..self.k.tasks.len() as u32)
            .map(TaskId)
            .filter(|task| self.k.task(*task).cpu == cpu && self.k.task(*task).on_rq && *task != curr)
            .collect();
        here.into_iter().for_each(|task| self.move_away(cpu, task));
        if curr.is_idle() {
            return;
        }
        self.k.this_cpu = cpu;
        let runnable = self.k.task(curr).state == TaskState::Runnable;
        if runnable {
            self.dequeue_task(cpu, curr, 0);
        }
        self.schedule(cpu);
        // A scheduler may have kicked the CPU as it went idle: it is not there any more.
        self.k.cpu_mut(cpu).resched = Resched::None;
        self.k.cancel(Slot::Cpu(cpu, CpuEvent::Resched));
        self.k.this_cpu = self.k.first_online();
        if runnable {
            self.arrive_from(cpu, curr);
        }
    }

    fn move_away(&mut self, cpu: CpuId, task: TaskId) {
        if self.k.fair.entity(task).sched_delayed {
            self.dequeue_task(cpu, task, flags::DEQUEUE_SLEEP | flags::DEQUEUE_DELAYED);
            return;
        }
        self.dequeue_task(cpu, task, 0);
        self.arrive_from(cpu, task);
    }

    fn arrive_from(&mut self, cpu: CpuId, task: TaskId) {
        let target = self.nearest_allowed(task, cpu);
        self.k.set_task_cpu(task, target);
        self.enqueue_task(target, task, 0);
        self.wakeup_preempt(target, task, 0);
    }
}
