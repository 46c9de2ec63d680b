//! What tasks do where memory is short: they make room, and wait for their own pages.

use super::interpret::Outcome;
use crate::error::SimError;
use crate::memory::{Grant, Memory};
use crate::simulation::Simulation;
use schedlab_model::{ChannelId, CpuId, TaskId};

impl Simulation {
    /// A task asks for memory: nothing if it has it, else what it does before it asks again.
    fn needs_memory(&mut self, task: TaskId, ask: impl FnOnce(&mut Memory, u64) -> Grant) -> Option<Outcome> {
        let now = self.core.k.now;
        let memory = self.work.memory.as_mut()?;
        let looks = memory.looks();
        let grant = ask(memory, now);
        if memory.looks() != looks {
            self.others_run_on(task);
        }
        match grant {
            Grant::Given => None,
            Grant::Work(time) => {
                // Anywhere, even without kernel preemption: the kernel asks at each page whether to go on.
                self.core.k.task_mut(task).work_left = time;
                Some(Outcome::Busy)
            }
            Grant::Wait(until) => {
                self.wait_for_disk(task, until);
                Some(Outcome::Off)
            }
            Grant::Never => Some(Outcome::Starved),
        }
    }

    /// Pages were looked at and marked as not used: tasks that run meanwhile use theirs again.
    fn others_run_on(&mut self, asking: TaskId) {
        let Some(memory) = &mut self.work.memory else { return };
        for cpu in (0..self.core.k.cpu_count()).map(|cpu| CpuId(cpu as u32)) {
            let task = self.core.k.cpu(cpu).curr;
            if !task.is_idle() && task != asking {
                memory.touch(task);
            }
        }
    }

    /// The task waits, uninterruptibly, for an interrupt of the disk at that time.
    fn wait_for_disk(&mut self, task: TaskId, until: u64) {
        let (cpu, now) = (self.core.k.this_cpu, self.core.k.now);
        self.wait_for_device(task, until.saturating_sub(now).max(1), cpu);
        self.core.k.task_mut(task).is_uninterruptible = true;
    }

    /// Whether the task makes room for something.
    pub(crate) fn makes_room(&self, task: TaskId) -> bool {
        self.work.memory.as_ref().is_some_and(|memory| memory.makes_room(task))
    }

    /// The bytes of the message that the task makes room for.
    pub(crate) fn message_to_come(&self, task: TaskId) -> Option<u64> {
        self.work.memory.as_ref()?.message_to_come(task)
    }

    /// Before a message goes into a socket.
    pub(crate) fn makes_room_for_message(
        &mut self,
        task: TaskId,
        channel: ChannelId,
        bytes: u64,
    ) -> Option<Outcome> {
        if bytes == 0 || !self.work.channels[channel.index()].is_socket {
            return None;
        }
        self.needs_memory(task, |memory, now| memory.send(task, channel, bytes, now))
    }

    /// A message was read.
    pub(crate) fn freed_message(&mut self, channel: ChannelId, bytes: u64) {
        if let Some(memory) = &mut self.work.memory
            && self.work.channels[channel.index()].is_socket
        {
            memory.receive(channel, bytes);
        }
    }

    /// The memory where a task of this row would be another process than its parent.
    pub(crate) fn memory_of_process(&mut self, parent: TaskId, spec: u32) -> Option<&mut Memory> {
        if self.work.memory.is_some() && self.is_process(parent, spec) {
            self.work.memory.as_mut()
        } else {
            None
        }
    }

    /// The time and the memory that another process takes before there is one: what is to be done first.
    pub(crate) fn prepares_process(&mut self, parent: TaskId, spec: u32) -> Option<Outcome> {
        if self.memory_of_process(parent, spec).is_none() {
            return self.pays_for_process(parent, spec).then_some(Outcome::Busy);
        }
        if !self.work.actors[parent.index()].halfway {
            if self.pays_for_process(parent, spec) {
                return Some(Outcome::Busy);
            }
            self.work.actors[parent.index()].halfway = true;
        }
        let outcome = self.needs_memory(parent, |memory, now| memory.fork(parent, now));
        self.work.actors[parent.index()].halfway = outcome.is_some();
        outcome
    }

    /// The CPU's task goes on: whether it waits for pages of its own, or makes room for them, or goes on with work that it had
    /// begun before.
    pub(crate) fn waits_for_pages(&mut self, cpu: CpuId, task: TaskId) -> Result<bool, SimError> {
        match self.needs_memory(task, |memory, now| memory.fault(task, now)) {
            None => {
                let begun = self.work.memory.as_mut().map_or(0, |memory| memory.take_begun(task));
                if begun == 0 {
                    return Ok(false);
                }
                self.core.k.task_mut(task).work_left = begun;
                self.core.k.arm_resume(cpu);
            }
            Some(Outcome::Starved) => return Err(self.out_of_memory(task)),
            Some(Outcome::Busy) => self.core.k.arm_resume(cpu),
            Some(_) => self.schedule(cpu),
        }
        Ok(true)
    }

    /// A task is given a CPU: whether it goes on with its program, or has to look for its pages first.
    pub(crate) fn has_its_pages(&mut self, task: TaskId) -> bool {
        let Some(memory) = &mut self.work.memory else { return true };
        let state = self.core.k.task_mut(task);
        let work = memory.resume(task, state.work_left);
        state.work_left = work.unwrap_or(0);
        work.is_some()
    }

    #[cold]
    pub(crate) fn out_of_memory(&self, task: TaskId) -> SimError {
        SimError::OutOfMemory { task: self.task_name(task), time: self.core.k.now_nanos() }
    }
}
