//! The state all scheduling classes share: clock, CPUs, tasks, pending events, idle CPUs, costs.
//!
//! # The seam
//! [`Kernel`] is what `struct rq`, `struct task_struct` and the timer code are in Linux, without policy.
//! Classes are functions over `&mut Kernel`, named as in `struct sched_class`: [`crate::fair`] and
//! [`crate::rt`] keep their run queues inside the kernel; [`crate::ext`] owns its state and gets the kernel
//! lent for each call. [`crate::core`] decides when which class function is called and is the only one that
//! switches tasks. A class changes who runs by its queues and by [`Kernel::resched_curr`]; it moves a queued
//! task by dequeue, [`Kernel::set_task_cpu`], enqueue; it makes CPUs pay by [`Kernel::charge`].
//! Nothing here knows a policy; what tasks do is in [`crate::behaviour`].

mod costs;
mod cpu;
mod domains;
mod task;

pub(crate) use costs::{CostKind, CostTable};
pub(crate) use cpu::{Cpu, Resched};
pub(crate) use domains::{CpuMask, Domain, Domains};
pub(crate) use task::{Class, Task, TaskState};

use crate::fair::Fair;
use crate::fair::shared::Shared;
use crate::queue::EventQueue;
use crate::rt::Rt;
use crate::trace::Trace;
use schedlab_model::event::EventKind;
use schedlab_model::machine::Preemption;
use schedlab_model::policy::WEIGHT_IDLE;
use schedlab_model::rng::Rng;
use schedlab_model::weights::WeightTable;
use schedlab_model::{CpuId, CpuSet, Nanos, Policy, TaskAttributes, TaskId};
use std::collections::BTreeSet;

/// Events a CPU owns, as offsets of its slots in the event queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CpuEvent {
    /// The current task has done what it was doing.
    Resume = 0,
    /// The periodic tick.
    Tick = 1,
    /// `need_resched` is acted upon: the reschedule interrupt arrived, or the kernel is left.
    Resched = 2,
    /// A periodic load balance is due on an idle CPU (nohz), or another deferred pass.
    Balance = 3,
}

/// Slots are numbered in rows of eight: four events of one CPU, the ext class's timer, one device, two tasks.
const ROW_BITS: u32 = 3;
/// First of a row's two tasks.
const TASK_KIND: usize = 6;

/// What an event-queue slot stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    /// A CPU's own event.
    Cpu(CpuId, CpuEvent),
    /// The earliest of the ext class's timers.
    ExtTimer,
    /// A device's next arrival.
    Device(usize),
    /// A task's timer: sleep, timeout or start.
    Task(TaskId),
    /// The next change of the machine.
    Change,
    /// The earliest timer of the fair class's quotas.
    FairTimer,
    /// The end of the current fair task's slice (`hrtick_timer`).
    Hrtick(CpuId),
    /// The CPU stands still until an interrupt on its way arrives.
    Standstill(CpuId),
}

impl Slot {
    #[inline]
    fn number(self) -> usize {
        let (row, kind) = match self {
            Slot::Cpu(cpu, event) => (cpu.index(), event as usize),
            Slot::ExtTimer => (0, 4),
            Slot::Device(device) => (device, 5),
            Slot::Task(task) => (task.index() / 2, TASK_KIND + task.index() % 2),
            Slot::Change => (1, 4),
            Slot::FairTimer => (2, 4),
            Slot::Hrtick(cpu) => (2 * cpu.index() + 3, 4),
            Slot::Standstill(cpu) => (2 * cpu.index() + 4, 4),
        };
        (row << ROW_BITS) | kind
    }

    #[inline]
    fn of(number: usize) -> Slot {
        let row = number >> ROW_BITS;
        let cpu = |event| Slot::Cpu(CpuId(row as u32), event);
        if number & TASK_KIND == TASK_KIND {
            return Slot::Task(TaskId((2 * row + number % 2) as u32));
        }
        match number & ((1 << ROW_BITS) - 1) {
            0 => cpu(CpuEvent::Resume),
            1 => cpu(CpuEvent::Tick),
            2 => cpu(CpuEvent::Resched),
            3 => cpu(CpuEvent::Balance),
            4 if row == 0 => Slot::ExtTimer,
            4 if row == 1 => Slot::Change,
            4 if row == 2 => Slot::FairTimer,
            4 if row % 2 == 1 => Slot::Hrtick(CpuId((row as u32 - 3) / 2)),
            4 => Slot::Standstill(CpuId((row as u32 - 4) / 2)),
            _ => Slot::Device(row),
        }
    }
}

/// The simulated kernel without its policies. See the module's text for the rules.
pub(crate) struct Kernel {
    /// Simulated time in ns since the start.
    pub(crate) now: u64,
    /// The CPU whose code runs now; wake-ups and reschedules from here to others cost an interrupt.
    pub(crate) this_cpu: CpuId,
    /// Its preemption model.
    pub(crate) preemption: Preemption,
    /// Length of a tick in ns.
    pub(crate) tick_ns: u64,
    /// When the first tick would be: ticks of all CPUs are at its multiples from there.
    pub(crate) tick_phase: u64,
    /// All CPUs.
    pub(crate) cpus: Vec<Cpu>,
    /// All tasks ever made; row 0 is idle.
    pub(crate) tasks: Vec<Task>,
    /// Affinity masks by task, cut to the machine's CPUs.
    pub(crate) allowed: Vec<CpuMask>,
    /// Affinity as it was asked for, by task.
    affinity: Vec<CpuSet>,
    /// CPUs that are online.
    online: CpuMask,
    /// CPUs whose current task is idle and that have no task queued.
    pub(crate) idle_mask: CpuMask,
    /// CPUs with two tasks or more: without any, newidle balancing has nothing to find (`rd->overloaded`).
    pub(crate) overloaded: u32,
    /// Who shares what.
    pub(crate) domains: Domains,
    /// The fair class's run queues and knobs.
    pub(crate) fair: Fair,
    /// What nice values weigh.
    pub(crate) weights: WeightTable,
    /// The real-time class's run queues.
    pub(crate) rt: Rt,
    /// Every task has a CPU of its own: the ideal scheduler.
    pub(crate) ideal: bool,
    /// What goes out.
    pub(crate) trace: Trace,
    /// Randomness of costs.
    pub(crate) rng: Rng,
    costs: CostTable,
    queue: EventQueue,
    ext_timers: BTreeSet<(u64, u32)>,
}

/// What a kernel is made from.
pub(crate) struct KernelParts {
    pub(crate) preemption: Preemption,
    pub(crate) hz: u32,
    pub(crate) costs: CostTable,
    pub(crate) domains: Domains,
    pub(crate) fair: Fair,
    pub(crate) rt: Rt,
    pub(crate) device_count: usize,
    pub(crate) rng: Rng,
}

impl Kernel {
    /// A kernel at time 0 with every CPU idle and only the idle task.
    pub(crate) fn new(parts: KernelParts) -> Kernel {
        let KernelParts { preemption, hz, costs, domains, mut fair, rt, device_count, rng } = parts;
        fair.shared = Shared::all(&domains);
        let cpus: Vec<Cpu> = domains
            .capacities()
            .iter()
            .map(|&capacity| Cpu::new(capacity, domains.scale(capacity)))
            .collect();
        let mut idle_mask = CpuMask::new(cpus.len());
        (0..cpus.len()).for_each(|cpu| idle_mask.set(CpuId(cpu as u32)));
        let mut kernel = Kernel {
            now: 0,
            this_cpu: CpuId(0),
            preemption,
            tick_ns: 1_000_000_000 / u64::from(hz),
            tick_phase: 0,
            allowed: vec![idle_mask.clone()],
            affinity: vec![CpuSet::ALL],
            online: idle_mask.clone(),
            tasks: vec![Task::idle()],
            cpus,
            idle_mask,
            overloaded: 0,
            domains,
            fair,
            weights: WeightTable::linux(),
            rt,
            trace: Trace::default(),
            rng,
            costs,
            queue: EventQueue::default(),
            ideal: false,
            ext_timers: BTreeSet::new(),
        };
        kernel.reserve((2 * kernel.cpus.len() + 3).max(device_count));
        kernel
    }

    /// Number of CPUs.
    #[inline]
    pub(crate) fn cpu_count(&self) -> usize {
        self.cpus.len()
    }

    /// One CPU.
    #[inline]
    pub(crate) fn cpu(&self, cpu: CpuId) -> &Cpu {
        &self.cpus[cpu.index()]
    }

    /// One CPU, to change.
    #[inline]
    pub(crate) fn cpu_mut(&mut self, cpu: CpuId) -> &mut Cpu {
        &mut self.cpus[cpu.index()]
    }

    /// The weight of a task with these attributes.
    pub(crate) fn weight_of(&self, attributes: &TaskAttributes) -> u32 {
        match attributes.policy {
            Policy::Idle => WEIGHT_IDLE,
            _ => self.weights.weight(attributes.nice),
        }
    }

    /// One task.
    #[inline]
    pub(crate) fn task(&self, task: TaskId) -> &Task {
        &self.tasks[task.index()]
    }

    /// One task, to change.
    #[inline]
    pub(crate) fn task_mut(&mut self, task: TaskId) -> &mut Task {
        &mut self.tasks[task.index()]
    }

    /// Whether the task may run on the CPU.
    #[inline]
    pub(crate) fn may_run_on(&self, task: TaskId, cpu: CpuId) -> bool {
        let anywhere = self.task(task).nr_allowed as usize == self.cpus.len();
        anywhere || self.ideal || self.allowed[task.index()].contains(cpu)
    }

    /// Whether the task is on its CPU now.
    #[inline]
    pub(crate) fn is_running(&self, task: TaskId) -> bool {
        self.cpu(self.task(task).cpu).curr == task
    }

    /// `available_idle_cpu`: nothing runs or waits there.
    #[inline]
    pub(crate) fn is_idle_cpu(&self, cpu: CpuId) -> bool {
        let state = self.cpu(cpu);
        state.curr.is_idle() && state.nr_running == 0
    }

    /// Adds a task in state New; its id is the next free one.
    pub(crate) fn add_task(&mut self, task: Task, affinity: &CpuSet) -> TaskId {
        let id = TaskId(self.tasks.len() as u32);
        self.fair.add_entity(&task);
        self.tasks.push(task);
        self.allowed.push(CpuMask::new(0));
        self.affinity.push(*affinity);
        self.set_allowed(id, affinity);
        self.reserve(id.index() / 2 + 1);
        id
    }

    /// Sets the affinity mask; a mask without any CPU that is online allows all that are, as cpusets fall back.
    pub(crate) fn set_allowed(&mut self, task: TaskId, affinity: &CpuSet) {
        self.affinity[task.index()] = *affinity;
        let mut mask = CpuMask::cut(affinity, self.domains.capacities().len());
        mask.intersect(&self.online);
        if mask.is_empty() {
            mask = self.online.clone();
        }
        self.tasks[task.index()].nr_allowed = mask.len() as u32;
        self.allowed[task.index()] = mask;
    }

    /// The affinity that was asked for.
    pub(crate) fn asked_affinity(&self, task: TaskId) -> &CpuSet {
        &self.affinity[task.index()]
    }

    /// `cpu_online`.
    #[inline]
    pub(crate) fn is_online(&self, cpu: CpuId) -> bool {
        self.online.contains(cpu)
    }

    /// Number of CPUs that are online.
    pub(crate) fn online_count(&self) -> usize {
        self.online.len()
    }

    /// The first CPU that is online.
    pub(crate) fn first_online(&self) -> CpuId {
        self.online.iter().next().expect("the last online CPU stays so")
    }

    /// Where an interrupt for this CPU arrives (`irq_migrate_all_off_this_cpu`).
    pub(crate) fn online_or_first(&self, cpu: CpuId) -> CpuId {
        if self.is_online(cpu) { cpu } else { self.first_online() }
    }

    /// A CPU goes on or offline: masks follow. Tasks that now run, or ran until now, where they did not ask to.
    pub(crate) fn set_online(&mut self, cpu: CpuId, online: bool) -> Vec<TaskId> {
        self.online.assign(cpu, online);
        let mut forced = Vec::new();
        for task in (1..self.tasks.len() as u32).map(TaskId) {
            let affinity = self.affinity[task.index()];
            let outside = |k: &Kernel| k.allowed[task.index()].iter().any(|cpu| !affinity.contains(cpu));
            let before = outside(self);
            self.set_allowed(task, &affinity);
            if before != outside(self) {
                forced.push(task);
            }
        }
        forced
    }

    /// Moves a task that is on no queue to another CPU and says so.
    #[inline]
    pub(crate) fn set_task_cpu(&mut self, task: TaskId, to: CpuId) {
        let state = self.task_mut(task);
        let from = std::mem::replace(&mut state.cpu, to);
        if from == to {
            return;
        }
        if state.state != TaskState::New {
            state.migrations += 1;
            self.trace.emit(self.now, self.this_cpu, EventKind::Migrate { task, from, to });
        }
    }

    /// `add_nr_running`/`sub_nr_running`, and whether the CPU counts as idle.
    #[inline]
    pub(crate) fn add_nr_running(&mut self, cpu: CpuId, change: i32) {
        let state = &mut self.cpus[cpu.index()];
        let before = state.nr_running;
        state.nr_running = before.wrapping_add_signed(change);
        self.overloaded += u32::from(state.nr_running >= 2);
        self.overloaded -= u32::from(before >= 2);
        if state.curr.is_idle() {
            let idle = state.nr_running == 0;
            self.idle_mask.assign(cpu, idle);
        }
    }

    /// Draws a cost.
    #[inline]
    pub(crate) fn cost(&mut self, kind: CostKind) -> u64 {
        self.costs.draw(kind, &mut self.rng)
    }

    /// The same without scatter.
    pub(crate) fn typical_cost(&self, kind: CostKind) -> u64 {
        self.costs.typical(kind)
    }

    /// The CPU spends `ns` in the kernel from now on (or after what it already has to do there): the current
    /// task's own work waits, and nothing preempts before.
    #[inline]
    pub(crate) fn charge(&mut self, cpu: CpuId, ns: u64) {
        self.spend(cpu, ns);
        self.queue.put_off(Slot::Cpu(cpu, CpuEvent::Resume).number(), ns);
    }

    /// The same where it is known that more will be charged before the next event.
    #[inline]
    pub(crate) fn charge_first(&mut self, cpu: CpuId, ns: u64) {
        self.spend(cpu, ns);
        self.queue.put_off_for_now(Slot::Cpu(cpu, CpuEvent::Resume).number(), ns);
    }

    #[inline(always)]
    fn spend(&mut self, cpu: CpuId, ns: u64) {
        let state = &mut self.cpus[cpu.index()];
        state.kernel_until = state.kernel_until.max(self.now) + ns;
        state.overhead += ns;
    }

    /// Brings the current task's progress up to now.
    #[inline]
    pub(crate) fn settle(&mut self, cpu: CpuId) {
        let state = &mut self.cpus[cpu.index()];
        let elapsed = self.now - state.settled_at;
        if elapsed == 0 {
            return;
        }
        state.settled_at = self.now;
        let burnt = elapsed.min(state.overhead);
        state.overhead -= burnt;
        let task = &mut self.tasks[state.curr.index()];
        let done = ((elapsed - burnt) * u64::from(state.capacity)) >> 10;
        task.work_left = task.work_left.saturating_sub(done);
    }

    /// The current task's work and the overhead before it are done.
    #[inline]
    pub(crate) fn finish_work(&mut self, cpu: CpuId) {
        let state = &mut self.cpus[cpu.index()];
        state.settled_at = self.now;
        state.overhead = 0;
        self.tasks[state.curr.index()].work_left = 0;
    }

    /// Arms the event at which the current task will have done its overhead and its work.
    #[inline(always)]
    pub(crate) fn arm_resume(&mut self, cpu: CpuId) {
        let state = &mut self.cpus[cpu.index()];
        state.settled_at = self.now;
        let work = self.tasks[state.curr.index()].work_left;
        let wall =
            if state.capacity == 1024 { work } else { (work << 10).div_ceil(u64::from(state.capacity)) };
        let due = self.now + state.overhead + wall;
        self.queue.arm(Slot::Cpu(cpu, CpuEvent::Resume).number(), due);
    }

    /// `resched_curr`: the CPU will look for another task as soon as it can.
    pub(crate) fn resched_curr(&mut self, cpu: CpuId) {
        let state = self.cpu_mut(cpu);
        if state.resched == Resched::Now {
            return;
        }
        state.resched = Resched::Now;
        let (idle, kernel_until) = (state.curr.is_idle(), state.kernel_until);
        let mut at = self.now;
        if cpu != self.this_cpu {
            let latency = self.cost(if idle { CostKind::IpiIdle } else { CostKind::Ipi });
            at += latency;
            if !idle && self.costs.typical(CostKind::IpiStall) > 0 {
                let stall = self.cost(CostKind::IpiStall).min(latency);
                self.arm(Slot::Standstill(cpu), at - stall);
            }
            let sending = self.cost(CostKind::IpiSend);
            self.charge(self.this_cpu, sending);
        }
        if idle {
            let idled = at - self.cpu(cpu).idle_since.unwrap_or(at);
            let exit = self.costs.idle_exit(cpu != self.this_cpu, &mut self.rng);
            let exit = exit + self.costs.idle_latency(idled);
            at = at.max(kernel_until) + exit;
        }
        let at = at.max(kernel_until);
        self.arm(Slot::Cpu(cpu, CpuEvent::Resched), at);
    }

    /// An interrupt by another CPU is on its way, and whoever runs here now does nothing until it arrives. It arrives
    /// also when the CPU has switched in the meantime.
    pub(crate) fn stand_still(&mut self, cpu: CpuId) {
        if self.cpu(cpu).curr.is_idle() {
            return;
        }
        let arrival = self.queue.time_of(Slot::Cpu(cpu, CpuEvent::Resched).number());
        let stall = match arrival {
            Some(arrival) => arrival - self.now,
            None => self.cost(CostKind::IpiStall),
        };
        self.charge(cpu, stall);
    }

    /// `resched_curr_lazy`: under lazy preemption a running task goes on until it leaves the kernel anyway
    /// (its own call, an interrupt) or the tick finds the mark.
    pub(crate) fn resched_curr_lazy(&mut self, cpu: CpuId) {
        if self.preemption != Preemption::Lazy || self.cpu(cpu).curr.is_idle() {
            return self.resched_curr(cpu);
        }
        if self.cpu(cpu).resched == Resched::None {
            self.cpu_mut(cpu).resched = Resched::Lazy;
            let state = self.cpu(cpu);
            let exit = state.settled_at + state.overhead;
            if cpu == self.this_cpu {
                self.leave_kernel(cpu);
            } else if state.looks_at_exit && exit > self.now {
                self.arm(Slot::Cpu(cpu, CpuEvent::Resched), exit);
            }
        }
    }

    /// The CPU is about to return from the kernel: acts on a pending reschedule mark.
    pub(crate) fn leave_kernel(&mut self, cpu: CpuId) {
        if self.cpu(cpu).resched == Resched::Lazy {
            let at = self.now.max(self.cpu(cpu).kernel_until);
            self.arm(Slot::Cpu(cpu, CpuEvent::Resched), at);
        }
    }

    /// Whether the CPU is to reschedule by now.
    #[inline]
    pub(crate) fn resched_is_due(&self, cpu: CpuId) -> bool {
        let slot = Slot::Cpu(cpu, CpuEvent::Resched).number();
        self.cpu(cpu).resched != Resched::None && self.queue.time_of(slot).is_some_and(|at| at <= self.now)
    }

    /// Arms an event.
    #[inline(never)]
    pub(crate) fn arm(&mut self, slot: Slot, at: u64) {
        self.queue.arm(slot.number(), at);
    }

    /// The same, for the task's timer of every sleep.
    #[inline(always)]
    pub(crate) fn arm_task(&mut self, task: TaskId, at: u64) {
        self.queue.arm(Slot::Task(task).number(), at);
    }

    /// Drops an event.
    #[inline]
    pub(crate) fn cancel(&mut self, slot: Slot) {
        self.queue.cancel(slot.number());
    }

    /// Whether an event is pending.
    #[inline]
    pub(crate) fn is_armed(&self, slot: Slot) -> bool {
        self.time_of(slot).is_some()
    }

    /// When an event is due; `None` if it is not pending.
    #[inline]
    pub(crate) fn time_of(&self, slot: Slot) -> Option<u64> {
        self.queue.time_of(slot.number())
    }

    /// Takes the next event: when it is due, and what it is. The caller sets the clock.
    /// When the CPU acts upon its reschedule mark; `None` if it has none.
    pub(crate) fn resched_time(&self, cpu: CpuId) -> Option<u64> {
        let due = self.queue.time_of(Slot::Cpu(cpu, CpuEvent::Resched).number())?;
        Some(due.max(self.cpu(cpu).kernel_until))
    }

    /// Time of the next event.
    #[inline]
    pub(crate) fn next_event(&mut self) -> Option<(u64, Slot)> {
        let (time, slot) = self.queue.pop()?;
        debug_assert!(time >= self.now, "time runs backwards");
        Some((time, Slot::of(slot)))
    }

    /// Whether what the next events touch should be [fetched](crate::ahead) now.
    #[inline]
    pub(crate) fn looks_ahead(&self) -> bool {
        self.queue.knows_next() && self.is_large()
    }

    /// Whether there are more tasks than near caches hold.
    #[inline]
    pub(crate) fn is_large(&self) -> bool {
        self.tasks.len() >= crate::ahead::TASKS_MIN
    }

    /// Brings near the event at which a CPU's task goes on.
    pub(crate) fn fetch_resume(&self, cpu: CpuId) {
        self.queue.fetch(Slot::Cpu(cpu, CpuEvent::Resume).number());
    }

    /// Brings near the event at which a task's sleep ends.
    pub(crate) fn fetch_timer(&self, task: TaskId) {
        self.queue.fetch(Slot::Task(task).number());
    }

    /// Another of the events that come after those that are known in order; brings its entry near.
    pub(crate) fn fetch_next(&mut self) -> Option<Slot> {
        self.queue.fetch_next().map(Slot::of)
    }

    /// The event after `others` more, if it is known.
    pub(crate) fn soon(&self, others: usize) -> Option<Slot> {
        self.queue.soon(others).map(Slot::of)
    }

    /// Starts (or moves) one of the ext class's timers; `token` is the class's own number for it. At `at`
    /// the core calls `Ext::timer_expired(kernel, token)`.
    pub(crate) fn arm_ext_timer(&mut self, token: u32, at: u64) {
        self.ext_timers.retain(|(_, other)| *other != token);
        self.ext_timers.insert((at, token));
        self.arm_first_ext_timer();
    }

    /// Whether one of the ext class's timers is pending.
    pub(crate) fn has_ext_timer(&self, token: u32) -> bool {
        self.ext_timers.iter().any(|(_, other)| *other == token)
    }

    /// Drops one of the ext class's timers.
    pub(crate) fn cancel_ext_timer(&mut self, token: u32) {
        self.ext_timers.retain(|(_, other)| *other != token);
        self.arm_first_ext_timer();
    }

    /// Takes an ext timer that is due.
    pub(crate) fn due_ext_timer(&mut self) -> Option<u32> {
        let (at, token) = *self.ext_timers.first()?;
        let due = at <= self.now;
        if due {
            self.ext_timers.pop_first();
        }
        self.arm_first_ext_timer();
        due.then_some(token)
    }

    fn arm_first_ext_timer(&mut self) {
        match self.ext_timers.first() {
            Some(&(at, _)) => self.arm(Slot::ExtTimer, at.max(self.now)),
            None => self.cancel(Slot::ExtTimer),
        }
    }

    /// Turns into the machine of the ideal scheduler: no costs, a CPU for each task.
    pub(crate) fn make_ideal(&mut self) {
        self.ideal = true;
        self.costs = CostTable::zero();
    }

    /// One more CPU without place in the topology, for the ideal scheduler.
    pub(crate) fn add_virtual_cpu(&mut self) -> CpuId {
        let cpu = CpuId(self.cpus.len() as u32);
        let capacity = self.domains.capacities().iter().copied().max().unwrap_or(1_024);
        self.cpus.push(Cpu::new(capacity, self.domains.scale(capacity)));
        let generation = self.fair.params.generation;
        self.fair.rqs.push(crate::fair::queue::CfsRq::new(generation));
        self.rt.rqs.push(Default::default());
        self.idle_mask.grow(self.cpus.len());
        self.idle_mask.set(cpu);
        self.reserve(2 * cpu.index() + 5);
        cpu
    }

    /// Makes room for this many rows of slots.
    fn reserve(&mut self, rows: usize) {
        self.queue.reserve_slots(rows << ROW_BITS);
    }

    /// Publishes the key a class ranks a task by, for pictures.
    #[inline]
    pub(crate) fn publish_rank(&mut self, cpu: CpuId, task: TaskId, key: i64) {
        self.trace.emit_detail(self.now, cpu, || EventKind::Rank { task, key });
    }

    /// Now, as the model's type.
    pub(crate) fn now_nanos(&self) -> Nanos {
        Nanos(self.now)
    }
}
