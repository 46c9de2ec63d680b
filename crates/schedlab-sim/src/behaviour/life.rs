//! Birth, change and death of tasks: start, fork, attributes, close, exit.

use super::actor::{Actor, Wait};
use crate::kernel::{Class, CostKind, Task, TaskState};
use crate::simulation::Simulation;
use schedlab_model::event::{Context, EventKind};
use schedlab_model::outcome::FailedForks;
use schedlab_model::rng::Rng;
use schedlab_model::workload::Past;
use schedlab_model::workload::draw::task_stream;
use schedlab_model::{ChannelId, CpuId, TaskAttributes, TaskId};

impl Simulation {
    /// Makes a task from a row of the workload; it does not run yet.
    pub(crate) fn new_task(&mut self, spec: u32, parent: TaskId) -> TaskId {
        let row = self.work.workload.tasks[spec as usize].clone();
        let attributes = self.target_attributes(&row.attributes, row.target);
        let weight = self.core.k.weight_of(&attributes);
        let mut task = Task::new(&attributes, weight, parent, spec);
        task.target = row.target;
        task.process = row.process;
        let id = self.core.k.add_task(task, &attributes.affinity);
        self.core.k.fair.set_past(id, row.past);
        let sends_to = self.work.code.sends[spec as usize].clone();
        for channel in &sends_to {
            let state = &mut self.work.channels[channel.index()];
            state.senders += 1;
            state.had_senders = true;
        }
        let stream = task_stream(row.stream, id.0);
        let start = self.work.code.starts[row.program.0 as usize];
        let (rng, timers) = (Rng::new(self.work.seed, stream), self.work.code.own_timers);
        self.work.actors.push(Actor::new(start, parent, sends_to, rng, timers));
        self.work.targets_left += u32::from(row.target);
        self.table_row(id, &attributes);
        id
    }

    /// Attributes with the run's settings for target tasks applied.
    fn target_attributes(&self, attributes: &TaskAttributes, target: bool) -> TaskAttributes {
        if target { self.settings.applied(attributes) } else { attributes.clone() }
    }

    /// A task of the workload starts at its time.
    pub(crate) fn start_task(&mut self, task: TaskId) {
        let spec = self.core.k.task(task).spec as usize;
        let asked = self.work.workload.tasks[spec].start_cpu.filter(|cpu| self.core.k.is_online(*cpu));
        let asked = self.ideal_cpu().or(asked);
        let sleeps = if asked.is_none() { self.sleeping_place(task) } else { None };
        let cpu = asked.or(sleeps).or_else(|| self.first_cpu(task)).unwrap_or(CpuId(0));
        self.core.k.task_mut(task).cpu = cpu;
        self.core.k.this_cpu = cpu;
        let woken = self.work.workload.tasks[spec].past == Past::Woken && !self.core.k.ideal;
        match self.core.fork_task(task) {
            Ok(()) if woken || sleeps.is_some() && self.core.k.task(task).class != Class::Ext => {
                self.wake_to_start(task);
            }
            Ok(()) => self.core.wake_up_new_task(task, asked.is_some()),
            // Whoever the CPU's current task is, it has nothing to do with this.
            Err(error) => self.fork_failed(task, error, Context::HardIrq),
        }
        self.core.k.leave_kernel(cpu);
    }

    /// The CPU on which a task sleeps until its start, if it does.
    fn sleeping_place(&mut self, task: TaskId) -> Option<CpuId> {
        let places = &self.core.k.allowed[task.index()];
        let drawn = self.sleeping_places.as_mut()?.below(places.len() as u64);
        places.iter().nth(drawn as usize)
    }

    /// A task that slept long enough to have no use left is woken by its own timer.
    fn wake_to_start(&mut self, task: TaskId) {
        let state = self.core.k.task_mut(task);
        state.state = TaskState::Sleeping;
        state.recent_used_cpu = state.cpu;
        self.core.k.fair.set_past(task, Past::Woken);
        self.core.try_to_wake_up(task, Context::HardIrq, 0);
    }

    /// The scheduler refused a task (`ops.init_task`), so `fork()` returned an error: there is no child. It never runs,
    /// holds no channel, and nobody waits for its end. In `context` others learn of it.
    #[cold]
    fn fork_failed(&mut self, task: TaskId, error: i32, context: Context) {
        for channel in std::mem::take(&mut self.work.actors[task.index()].sends_to) {
            self.drop_sender(channel, context);
        }
        let state = self.core.k.task_mut(task);
        state.state = TaskState::Dead;
        self.work.targets_left -= u32::from(state.target);
        let first = || format!("'{}' ({error})", self.table[task.index()].name);
        match &mut self.failed_forks {
            Some(failed) => failed.count += 1,
            none => *none = Some(FailedForks { count: 1, first: first() }),
        }
    }

    /// A CPU for a task alone, under the ideal scheduler.
    fn ideal_cpu(&mut self) -> Option<CpuId> {
        let k = &mut self.core.k;
        if !k.ideal {
            return None;
        }
        let freed = self.free_cpus.iter().position(|cpu| k.is_idle_cpu(*cpu));
        Some(freed.map_or_else(|| k.add_virtual_cpu(), |index| self.free_cpus.swap_remove(index)))
    }

    /// Where a task without a wish is forked from: the first CPU it may use.
    fn first_cpu(&self, task: TaskId) -> Option<CpuId> {
        self.core.k.allowed[task.index()].iter().next()
    }

    /// Whether a task of this row is another process than the one that forks it, not a thread.
    pub(crate) fn is_process(&self, parent: TaskId, spec: u32) -> bool {
        self.work.workload.tasks[spec as usize].process != self.core.k.task(parent).process
    }

    /// Whether a fork makes another process, and its time is no part of the runs.
    fn makes_process(&self, parent: TaskId, spec: u32) -> bool {
        self.is_process(parent, spec) && !self.work.workload.calls_in_runs
    }

    /// Gives the parent of a process to be made the time that takes. Whether it takes time now.
    pub(crate) fn pays_for_process(&mut self, parent: TaskId, spec: u32) -> bool {
        self.makes_process(parent, spec) && self.works_once(parent, CostKind::ForkCall)
    }

    /// Gives a process that was made in this run the time that its end takes. Whether it takes time now.
    pub(crate) fn pays_for_exit(&mut self, task: TaskId) -> bool {
        let parent = self.work.actors[task.index()].parent;
        let is_made = parent != TaskId::IDLE && self.makes_process(parent, self.core.k.task(task).spec);
        is_made && self.works_once(task, CostKind::ExitCall)
    }

    /// Gives the task the time of a call once, as work of its own: such a call is long enough to be preempted.
    fn works_once(&mut self, task: TaskId, call: CostKind) -> bool {
        if std::mem::take(&mut self.work.actors[task.index()].paid) {
            return false;
        }
        let cost = self.core.k.cost(call);
        self.work.actors[task.index()].paid = cost > 0;
        self.core.k.task_mut(task).work_left = cost;
        cost > 0
    }

    /// The current task forks.
    pub(crate) fn fork(&mut self, cpu: CpuId, parent: TaskId, spec: u32) {
        let child = self.new_task(spec, parent);
        let now = self.core.k.now;
        self.core.k.task_mut(child).cpu = self.ideal_cpu().unwrap_or(cpu);
        let cost = self.core.k.cost(CostKind::Wakeup);
        self.core.k.charge(cpu, cost);
        if self.makes_process(parent, spec) {
            let own = self.core.k.cost(CostKind::ForkChild);
            self.core.k.task_mut(child).work_left = own;
        }
        if let Err(error) = self.core.fork_task(child) {
            self.fork_failed(child, error, Context::Task);
            if let Some(memory) = self.memory_of_process(parent, spec) {
                memory.unfork();
            }
            return;
        }
        if let Some(memory) = self.memory_of_process(parent, spec) {
            memory.begin(child);
        }
        self.work.actors[parent.index()].children += 1;
        self.core.k.trace.emit(now, cpu, EventKind::Fork { parent, child });
        self.core.wake_up_new_task(child, false);
    }

    /// The task changes its own attributes; settings of the run for target tasks stay in force. Whether it
    /// may stay on its CPU.
    pub(crate) fn set_attributes(&mut self, task: TaskId, index: u32) -> bool {
        let given = self.work.code.attributes[index as usize].clone();
        let attributes = self.target_attributes(&given, self.core.k.task(task).target);
        let (now, cpu) = (self.core.k.now, self.core.k.this_cpu);
        self.core.set_attributes(task, &attributes);
        // What it is now: the change may have been refused.
        let state = self.core.k.task(task);
        let (policy, nice, rt_priority) = (state.policy, state.nice, state.rt_priority);
        let kind = EventKind::AttributesChanged { task, policy, nice, rt_priority };
        self.core.k.trace.emit(now, cpu, kind);
        self.core.k.may_run_on(task, cpu)
    }

    /// Closes the task's sending end of a channel.
    pub(crate) fn close(&mut self, task: TaskId, channel: ChannelId) {
        let open = &mut self.work.actors[task.index()].sends_to;
        let before = open.len();
        open.retain(|other| *other != channel);
        if open.len() < before {
            self.drop_sender(channel, Context::Task);
        }
    }

    /// One sending end less; at the last one everybody who waits learns that nothing will come.
    pub(crate) fn drop_sender(&mut self, channel: ChannelId, context: Context) {
        let state = &mut self.work.channels[channel.index()];
        state.senders -= 1;
        if state.senders == 0 {
            self.wake_takers(channel, u32::MAX, context, false);
        }
    }

    /// The current task ends.
    pub(crate) fn exit(&mut self, task: TaskId) {
        let (now, cpu) = (self.core.k.now, self.core.k.this_cpu);
        self.core.k.trace.emit(now, cpu, EventKind::Exit { task });
        for channel in std::mem::take(&mut self.work.actors[task.index()].sends_to) {
            self.drop_sender(channel, Context::Task);
        }
        if let Some(memory) = &mut self.work.memory {
            memory.end(task);
        }
        let parent = self.work.actors[task.index()].parent;
        if !parent.is_idle() {
            // `wait()` returns for each process that ends; threads are joined one after the other.
            let returns = self.is_process(parent, self.core.k.task(task).spec);
            let actor = &mut self.work.actors[parent.index()];
            actor.children -= 1;
            if actor.wait == Wait::Children && (returns || actor.children == 0) {
                self.wake(parent, Context::Task, 0);
            }
        }
        self.core.k.task_mut(task).state = TaskState::Dead;
        self.free_cpus.push(cpu);
        if self.core.k.task(task).target {
            self.work.targets_left -= 1;
            self.makespan = now;
        }
    }
}
