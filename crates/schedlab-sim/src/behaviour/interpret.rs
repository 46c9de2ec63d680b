//! Runs the steps of the task that is on a CPU, until one takes time or waits.

use super::Work;
use super::actor::Wait;
use super::amount::Draw;
use super::channel::Channel;
use super::compile::{FOREVER, Step};
use crate::core::flags;
use crate::error::SimError;
use crate::kernel::{CostKind, CpuEvent, Resched, Slot, TaskState};
use crate::simulation::Simulation;
use schedlab_model::event::{Context, EventKind};
use schedlab_model::machine::Preemption;
use schedlab_model::workload::{ChannelType, Late, TimerRef};
use schedlab_model::{ChannelId, CpuId, Nanos, TaskId};

/// How often tasks go on at one instant before the run is taken to stand still; far more than a machine has tasks.
const ADVANCES_WITHOUT_TIME_MAX: u32 = 1_000_000;
/// Steps without time after which a task is told to be stuck.
const STEPS_WITHOUT_TIME_MAX: u32 = 1_000_000;

/// What calls take that wait.
const PLAIN_WAIT: &[CostKind] = &[CostKind::WaitCall];
const FUTEX_WAIT: &[CostKind] = &[CostKind::FutexCall, CostKind::WaitCall];

/// Steps without effect on others that a task passes when it comes back, at most.
const STEPS_BEFORE_WORK_MAX: u32 = 4;

/// What a step did.
pub(crate) enum Outcome {
    /// Nothing that takes time: on to the next.
    Next,
    /// Work was set: the CPU is busy with it.
    Busy,
    /// The task waits or ended.
    Off,
    /// The task stays runnable but others come first.
    Yield,
    /// The task may no longer run on this CPU.
    Move,
    /// The same step once more.
    Again,
    /// It needs memory that nobody can make.
    Starved,
}

impl Simulation {
    /// The CPU's current task has done what it did: on with its program.
    pub(crate) fn advance(&mut self, cpu: CpuId) -> Result<(), SimError> {
        self.core.k.this_cpu = cpu;
        let task = self.core.k.cpu(cpu).curr;
        if self.stands_still() {
            return Err(self.no_progress(task, ADVANCES_WITHOUT_TIME_MAX));
        }
        if self.core.k.resched_is_due(cpu) {
            self.schedule(cpu);
            return Ok(());
        }
        if self.work.memory.is_some() && self.waits_for_pages(cpu, task)? {
            return Ok(());
        }
        for _ in 0..STEPS_WITHOUT_TIME_MAX {
            match self.traced_step(cpu, task) {
                Outcome::Next => {
                    if self.leave_kernel(cpu)
                        || (self.work.memory.is_some() && self.waits_for_pages(cpu, task)?)
                    {
                        return Ok(());
                    }
                    continue;
                }
                Outcome::Busy => self.arm_resume(cpu),
                Outcome::Off => self.schedule(cpu),
                Outcome::Again => continue,
                Outcome::Starved => return Err(self.out_of_memory(task)),
                Outcome::Yield => {
                    self.core.yield_task(cpu);
                    self.schedule(cpu);
                }
                Outcome::Move => {
                    self.core.k.task_mut(task).state = TaskState::Sleeping;
                    self.schedule(cpu);
                    self.core.end_delay(task);
                    self.core.try_to_wake_up(task, Context::Task, 0);
                }
            }
            return Ok(());
        }
        Err(self.no_progress(task, STEPS_WITHOUT_TIME_MAX))
    }

    /// Whether tasks were given a CPU too often at one instant: yields to nobody, or waits without costs, that lead
    /// from one to the next for ever.
    #[inline]
    fn stands_still(&mut self) -> bool {
        let now = self.core.k.now;
        if self.instant.0 != now {
            self.instant = (now, 0);
        }
        self.instant.1 += 1;
        self.instant.1 > ADVANCES_WITHOUT_TIME_MAX
    }

    #[cold]
    fn no_progress(&self, task: TaskId, steps: u32) -> SimError {
        SimError::NoProgress { task: self.task_name(task), steps, time: self.core.k.now_nanos() }
    }

    /// Switches to the task to run next, if there is one, and lets it go on.
    pub(crate) fn schedule(&mut self, cpu: CpuId) {
        self.core.schedule(cpu);
        if self.core.k.is_large() {
            self.fetch_head();
        }
        let task = self.core.k.cpu(cpu).curr;
        if task.is_idle() {
            return;
        }
        let has_pages = self.work.memory.is_none() || self.has_its_pages(task);
        if has_pages && self.core.k.task(task).work_left == 0 {
            self.begin_work(cpu, task);
        }
        self.core.k.arm_resume(cpu);
    }

    /// A task that comes back and goes on with work of its own begins it here: nothing can happen between the
    /// end of the switch and the first step that others see, so the end of the switch needs no event.
    fn begin_work(&mut self, cpu: CpuId, task: TaskId) {
        if self.core.k.trace.detail {
            self.end_call(task);
        }
        let Work { code, actors, .. } = &mut self.work;
        let actor = &mut actors[task.index()];
        for _ in 0..STEPS_BEFORE_WORK_MAX {
            match code.steps[actor.pc as usize] {
                Step::Run(draw) => {
                    actor.pc += 1;
                    self.core.k.task_mut(task).work_left = draw.draw(&mut actor.rng, &code.quantiles);
                    return;
                }
                Step::LoopEnd { body } => actor.end_loop(body),
                Step::LoopStart { count } => actor.start_loop(count),
                _ => return,
            }
            self.core.k.cpu_mut(cpu).looks_at_exit = true;
        }
    }

    /// The rarer cases of it: the end of a switch has its own copy.
    #[inline(never)]
    fn arm_resume(&mut self, cpu: CpuId) {
        self.core.k.arm_resume(cpu);
    }

    /// A step is done and the task returns to its own code: first a pending reschedule, then what the step
    /// cost. `true` if the task does not go on at once.
    fn leave_kernel(&mut self, cpu: CpuId) -> bool {
        let k = &mut self.core.k;
        let busy = k.cpu(cpu).overhead > 0;
        if k.cpu(cpu).resched == Resched::None {
            if busy {
                self.arm_resume(cpu);
            }
            return busy;
        }
        let dies = k.preemption != Preemption::Full && {
            let actor = &self.work.actors[k.cpu(cpu).curr.index()];
            matches!(self.work.code.steps[actor.pc as usize], Step::Exit)
        };
        if dies {
            // `do_exit` tells others and does not return: only a preemptible kernel leaves the task in between.
            return false;
        }
        if busy {
            let at = k.cpu(cpu).kernel_until.max(k.now);
            k.arm(Slot::Cpu(cpu, CpuEvent::Resched), at);
            self.arm_resume(cpu);
        } else {
            self.schedule(cpu);
        }
        true
    }

    pub(crate) fn step(&mut self, cpu: CpuId, task: TaskId) -> Outcome {
        let index = task.index();
        let step = self.work.code.steps[self.work.actors[index].pc as usize];
        match step {
            Step::Run(draw) => {
                self.draw_work(task, draw);
                if self.core.k.task(task).work_left == 0 { Outcome::Next } else { Outcome::Busy }
            }
            Step::Sleep(draw) => {
                let actor = &mut self.work.actors[index];
                actor.pc += 1;
                let time = draw.draw(&mut actor.rng, &self.work.code.quantiles);
                self.sleep(task, time);
                Outcome::Off
            }
            Step::SleepUntil(due) => {
                self.work.actors[index].pc += 1;
                self.sleep_until(task, due)
            }
            Step::WaitDevice { time, cpu } => {
                self.work.actors[index].pc += 1;
                self.wait_for_device(task, time, cpu);
                Outcome::Off
            }
            Step::Timer { .. } => self.timer_step(task, step),
            Step::Send { channel, bytes } => self.send(task, channel, bytes),
            Step::Receive { channel, bytes } => self.receive(task, channel, bytes),
            Step::ReceiveAll { channel, bytes } => self.receive_all(task, channel, bytes),
            Step::ReceiveEach { channel, message, count, work } => {
                self.receive_each(task, channel, u64::from(message), u64::from(count), work)
            }
            Step::WaitAny { list, timeout } => self.wait_any(task, list, timeout),
            Step::Post { channel, tokens } => {
                self.work.channels[channel.index()].level += u64::from(tokens);
                self.wake_by_futex(channel, tokens);
                self.next(task)
            }
            Step::Take { channel, timeout } => self.take(task, channel, timeout),
            Step::WakeWaiters { channel, count } => {
                self.wake_by_futex(channel, count);
                self.next(task)
            }
            Step::Lock { channel } => self.lock(task, channel),
            Step::Unlock { channel } => {
                self.unlock(task, channel);
                self.next(task)
            }
            Step::ConditionWait { condition, lock } => self.condition_wait(task, condition, lock),
            Step::Barrier { channel } => self.barrier(task, channel),
            Step::LoopStart { count } => {
                self.work.actors[index].start_loop(count);
                Outcome::Next
            }
            Step::LoopEnd { body } => {
                self.work.actors[index].end_loop(body);
                Outcome::Next
            }
            other => self.rare_step(cpu, task, other),
        }
    }

    /// Draws the work of a run.
    #[inline]
    fn draw_work(&mut self, task: TaskId, draw: Draw) {
        let actor = &mut self.work.actors[task.index()];
        actor.pc += 1;
        self.core.k.task_mut(task).work_left = draw.draw(&mut actor.rng, &self.work.code.quantiles);
    }

    fn rare_step(&mut self, cpu: CpuId, task: TaskId, step: Step) -> Outcome {
        match step {
            Step::Spin { time, piece } => self.spin(task, time, piece),
            Step::Close { channel } => {
                self.close(task, channel);
                self.next(task)
            }
            Step::Fork { spec } => {
                if let Some(outcome) = self.prepares_process(task, spec) {
                    return outcome;
                }
                let outcome = self.next(task);
                self.fork(cpu, task, spec);
                outcome
            }
            Step::WaitChildren if self.work.actors[task.index()].children > 0 => {
                self.wait_for(task, Wait::Children, FOREVER, PLAIN_WAIT)
            }
            Step::Yield => {
                self.work.actors[task.index()].pc += 1;
                Outcome::Yield
            }
            Step::SetAttributes(index) => {
                self.work.actors[task.index()].pc += 1;
                if self.set_attributes(task, index) { Outcome::Next } else { Outcome::Move }
            }
            Step::Touch { bytes } => {
                self.touch(cpu, task, bytes);
                self.next(task)
            }
            Step::JobStart { deadline } => {
                let now = self.core.k.now;
                self.work.actors[task.index()].job = Some((now, now.saturating_add(deadline)));
                self.next(task)
            }
            Step::JobEnd => {
                self.end_job(task);
                self.next(task)
            }
            Step::Exit => {
                if self.pays_for_exit(task) {
                    return Outcome::Busy;
                }
                self.exit(task);
                Outcome::Off
            }
            _ => self.next(task),
        }
    }

    fn next(&mut self, task: TaskId) -> Outcome {
        let actor = &mut self.work.actors[task.index()];
        actor.pc += 1;
        actor.paid = false;
        Outcome::Next
    }

    fn sleep_until(&mut self, task: TaskId, due: u64) -> Outcome {
        let now = self.core.k.now;
        if due <= now {
            return Outcome::Next;
        }
        self.block(task, Wait::Timer, due - now);
        Outcome::Off
    }

    /// Waits for a timer: ends a job and releases the next.
    fn timer_step(&mut self, task: TaskId, step: Step) -> Outcome {
        let Step::Timer { timer, from_start, period, deadline, late } = step else { return self.next(task) };
        let (index, now) = (task.index(), self.core.k.now);
        if std::mem::take(&mut self.work.actors[index].halfway) {
            let release = self.work.actors[index].job.map_or(u64::MAX, |(release, _)| release);
            if !late.is_over(release, now, period) {
                return self.next(task);
            }
        } else {
            self.end_job(task);
        }
        let due = self.timer_due(task, timer, from_start, period);
        let release = self.next_release(task, timer, late.release(due, now, period));
        let actor = &mut self.work.actors[index];
        actor.job = Some((release, release.saturating_add(deadline)));
        // Who skips periods looks at the clock once more when it runs.
        actor.halfway = late == Late::Skip && release > now;
        actor.pc += u32::from(!actor.halfway);
        self.sleep_until(task, release)
    }

    /// When a call of a timer will let the task go on: a period after its last expiry; late, at once.
    pub(crate) fn timer_due(&self, task: TaskId, timer: TimerRef, from_start: bool, period: u64) -> u64 {
        let expired = match timer {
            TimerRef::Shared(number) => self.work.shared_timers[number as usize],
            TimerRef::Own(number) => self.work.actors[task.index()].own_timers[number as usize],
        };
        let spec = self.core.k.task(task).spec as usize;
        let origin = || if from_start { self.work.workload.tasks[spec].start.0 } else { self.core.k.now };
        expired.unwrap_or_else(origin) + period
    }

    /// Moves a timer on to its next expiry.
    fn next_release(&mut self, task: TaskId, timer: TimerRef, release: u64) -> u64 {
        let expired = match timer {
            TimerRef::Shared(number) => &mut self.work.shared_timers[number as usize],
            TimerRef::Own(number) => &mut self.work.actors[task.index()].own_timers[number as usize],
        };
        *expired = Some(release);
        release
    }

    /// Another piece of work while the time of the spin has not passed.
    fn spin(&mut self, task: TaskId, time: u64, piece: u64) -> Outcome {
        let now = self.core.k.now;
        let actor = &mut self.work.actors[task.index()];
        let until = *actor.spin_until.get_or_insert(now.saturating_add(time));
        if now >= until {
            actor.spin_until = None;
            return self.next(task);
        }
        self.core.k.task_mut(task).work_left = piece;
        Outcome::Busy
    }

    fn end_job(&mut self, task: TaskId) {
        if let Some((released, deadline)) = self.work.actors[task.index()].job.take() {
            let (now, cpu) = (self.core.k.now, self.core.k.this_cpu);
            let (released, deadline) = (Nanos(released), Nanos(deadline));
            self.core.k.trace.emit(now, cpu, EventKind::Job { task, released, deadline });
        }
    }

    fn send(&mut self, task: TaskId, channel: ChannelId, bytes: u32) -> Outcome {
        if !self.work.actors[task.index()].halfway {
            if self.pays(task, &[self.work.channels[channel.index()].call()]) {
                return Outcome::Busy;
            }
            let actor = &mut self.work.actors[task.index()];
            actor.halfway = true;
            actor.pending = u64::from(bytes);
        }
        let pending = self.work.actors[task.index()].pending;
        let room = || self.work.channels[channel.index()].room_for(pending);
        let part = self.message_to_come(task).unwrap_or_else(room);
        if let Some(outcome) = self.makes_room_for_message(task, channel, part) {
            return outcome;
        }
        let actor = &mut self.work.actors[task.index()];
        let state = &mut self.work.channels[channel.index()];
        actor.pending -= part;
        let left = actor.pending;
        state.level += part;
        if part > 0 {
            self.wake_takers(channel, 1, Context::Task, true);
        }
        if left > 0 {
            return self.wait_for(task, Wait::Room(channel), FOREVER, PLAIN_WAIT);
        }
        self.work.actors[task.index()].halfway = false;
        self.next(task)
    }

    fn receive(&mut self, task: TaskId, channel: ChannelId, bytes: u32) -> Outcome {
        let state = &mut self.work.channels[channel.index()];
        if state.level == 0 {
            if state.is_closed() {
                return self.next(task);
            }
            return self.wait_for(task, Wait::Take(channel), FOREVER, PLAIN_WAIT);
        }
        let part = state.level.min(u64::from(bytes));
        state.level -= part;
        self.freed_message(channel, part);
        self.made_room(channel);
        self.pays_behind(self.work.channels[channel.index()].call());
        self.next(task)
    }

    /// Takes what is there until it has everything; the end of a closed channel is enough.
    fn receive_all(&mut self, task: TaskId, channel: ChannelId, bytes: u32) -> Outcome {
        let actor = &mut self.work.actors[task.index()];
        if !std::mem::replace(&mut actor.halfway, true) {
            actor.pending = u64::from(bytes);
        }
        let state = &mut self.work.channels[channel.index()];
        let part = state.level.min(actor.pending);
        state.level -= part;
        actor.pending -= part;
        let done = actor.pending == 0 || (state.level == 0 && state.is_closed());
        if part > 0 {
            self.freed_message(channel, part);
            self.made_room(channel);
            self.pays_behind(self.work.channels[channel.index()].call());
        }
        if done {
            self.work.actors[task.index()].halfway = false;
            return self.next(task);
        }
        self.wait_for(task, Wait::Take(channel), FOREVER, PLAIN_WAIT)
    }

    /// Works for a message and takes it, one by one, until it has had all.
    fn receive_each(
        &mut self,
        task: TaskId,
        channel: ChannelId,
        message: u64,
        count: u64,
        work: u64,
    ) -> Outcome {
        let actor = &mut self.work.actors[task.index()];
        if !std::mem::replace(&mut actor.halfway, true) {
            actor.pending = count;
            if work > 0 {
                self.core.k.task_mut(task).work_left = work;
                return Outcome::Busy;
            }
        }
        let state = &mut self.work.channels[channel.index()];
        let taken = state.level >= message;
        if !taken && !state.is_closed() {
            return self.wait_for(task, Wait::Take(channel), FOREVER, PLAIN_WAIT);
        }
        if taken {
            state.level -= message;
            self.freed_message(channel, message);
            self.made_room(channel);
        }
        let actor = &mut self.work.actors[task.index()];
        actor.pending -= 1;
        if actor.pending == 0 || !taken {
            actor.halfway = false;
            return self.next(task);
        }
        self.core.k.task_mut(task).work_left = work;
        if work > 0 { Outcome::Busy } else { Outcome::Again }
    }

    /// Something was taken: wakes senders if there is room enough, and who else waits for what is left.
    fn made_room(&mut self, channel: ChannelId) {
        let more = self.work.channels[channel.index()].level > 0;
        while let Some(giver) = self.work.channels[channel.index()].next_giver() {
            let state = &mut self.work.channels[channel.index()];
            if !state.resumes(self.work.actors[giver.index()].pending) {
                break;
            }
            let others = state.remove_giver();
            self.wake(giver, Context::Task, flags::WF_SYNC);
            if !others {
                break;
            }
        }
        if more && !self.work.channels[channel.index()].takers.is_empty() {
            self.wake_takers(channel, 1, Context::Task, true);
        }
    }

    /// Nothing else can happen: lets one sender go over the capacity of its channel, if the workload allows it.
    pub(crate) fn overflow(&mut self) -> bool {
        if !self.work.workload.overflow_when_stalled {
            return false;
        }
        let Some(full) = self.work.channels.iter().position(|channel| !channel.givers.is_empty()) else {
            return self.give_what_is_missing();
        };
        let state = &mut self.work.channels[full];
        let giver = state.givers.pop_front().expect("the channel has a sender that waits");
        state.level += std::mem::take(&mut self.work.actors[giver.index()].pending);
        self.core.k.this_cpu = self.core.k.task(giver).cpu;
        self.wake_takers(ChannelId(full as u32), 1, Context::Task, false);
        self.wake(giver, Context::Task, 0);
        self.core.k.leave_kernel(self.core.k.this_cpu);
        true
    }

    /// Nobody waits for room either: who came first to an empty channel gets what it waits for. Where several read one
    /// channel, another order can leave one of them without what it read when it was recorded.
    fn give_what_is_missing(&mut self) -> bool {
        let Some(empty) = self.work.channels.iter().position(Channel::starves) else { return false };
        let state = &mut self.work.channels[empty];
        let taker = state.takers[0];
        state.level += self.work.actors[taker.index()].pending.max(1);
        self.core.k.this_cpu = self.core.k.task(taker).cpu;
        self.wake_takers(ChannelId(empty as u32), 1, Context::Task, false);
        self.core.k.leave_kernel(self.core.k.this_cpu);
        true
    }

    fn wait_any(&mut self, task: TaskId, list: u32, timeout: u64) -> Outcome {
        let timed_out = std::mem::take(&mut self.work.actors[task.index()].timed_out);
        let channels = &self.work.code.lists[list as usize];
        let ready = channels.iter().any(|channel| self.work.channels[channel.index()].is_ready());
        if ready || timed_out || timeout == 0 {
            return self.next(task);
        }
        self.wait_for(task, Wait::Any(list), timeout, PLAIN_WAIT)
    }

    fn take(&mut self, task: TaskId, channel: ChannelId, timeout: u64) -> Outcome {
        let actor = &mut self.work.actors[task.index()];
        let timed_out = std::mem::take(&mut actor.timed_out);
        let woken = std::mem::take(&mut actor.halfway);
        let state = &mut self.work.channels[channel.index()];
        if state.kind == ChannelType::Condition {
            if woken || timed_out || timeout == 0 {
                return self.next(task);
            }
            if self.pays(task, FUTEX_WAIT) {
                return Outcome::Busy;
            }
            self.work.actors[task.index()].halfway = true;
            self.block(task, Wait::Take(channel), timeout);
            return Outcome::Off;
        }
        if state.level > 0 {
            state.level -= 1;
            return self.next(task);
        }
        if timed_out || timeout == 0 {
            return self.next(task);
        }
        self.wait_for(task, Wait::Take(channel), timeout, FUTEX_WAIT)
    }

    fn lock(&mut self, task: TaskId, channel: ChannelId) -> Outcome {
        let state = &mut self.work.channels[channel.index()];
        let met_holder = &mut self.work.actors[task.index()].met_holder;
        if state.holder.is_none() {
            state.holder = Some(task);
            state.contended = std::mem::take(met_holder);
            return self.next(task);
        }
        state.contended = true;
        *met_holder = true;
        self.wait_for(task, Wait::Lock(channel), FOREVER, FUTEX_WAIT)
    }

    /// Frees a mutex and wakes the first who waits, if it says that somebody does; whoever runs first takes it, as futexes
    /// do.
    fn unlock(&mut self, task: TaskId, channel: ChannelId) {
        let state = &mut self.work.channels[channel.index()];
        if state.holder == Some(task) {
            state.holder = None;
            if std::mem::take(&mut state.contended) {
                self.pays_behind(CostKind::FutexCall);
                self.wake_takers(channel, 1, Context::Task, false);
            } else {
                self.wake_takers(channel, 0, Context::Task, false);
            }
        }
    }

    fn condition_wait(&mut self, task: TaskId, condition: ChannelId, lock: ChannelId) -> Outcome {
        if !self.work.actors[task.index()].halfway {
            if self.pays(task, FUTEX_WAIT) {
                return Outcome::Busy;
            }
            self.work.actors[task.index()].halfway = true;
            self.unlock(task, lock);
            self.block(task, Wait::Condition(condition), FOREVER);
            return Outcome::Off;
        }
        match self.lock(task, lock) {
            Outcome::Next => {
                self.work.actors[task.index()].halfway = false;
                Outcome::Next
            }
            other => other,
        }
    }

    fn barrier(&mut self, task: TaskId, channel: ChannelId) -> Outcome {
        let state = &self.work.channels[channel.index()];
        let last = state.level + 1 >= state.capacity;
        if !last && self.pays(task, FUTEX_WAIT) {
            return Outcome::Busy;
        }
        let outcome = self.next(task);
        let state = &mut self.work.channels[channel.index()];
        if !last {
            state.level += 1;
            self.block(task, Wait::Barrier(channel), FOREVER);
            return Outcome::Off;
        }
        state.level = 0;
        self.wake_by_futex(channel, u32::MAX);
        outcome
    }

    /// Touches shared memory: on another CPU than last time the lines come over again, in proportion to
    /// 256 KiB for the whole cost of the move.
    fn touch(&mut self, cpu: CpuId, task: TaskId, bytes: u32) {
        let last = self.work.actors[task.index()].touched_on.replace(cpu);
        let Some(last) = last.filter(|last| *last != cpu) else { return };
        if let Some(kind) = CostKind::of_migration(self.core.k.domains.distance(last, cpu)) {
            let whole = self.core.k.cost(kind);
            self.core.k.charge(cpu, (whole * u64::from(bytes)) >> 18);
        }
    }

    /// Whether the task still has steps to do.
    pub(crate) fn is_alive(&self, task: TaskId) -> bool {
        self.core.k.task(task).state != TaskState::Dead
    }
}
