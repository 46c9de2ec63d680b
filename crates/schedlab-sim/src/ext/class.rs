//! The class as the core sees it: each function of `struct sched_class` enters the scheduler's context, and
//! what the scheduler asked of the kernel is carried out when it returns.
//!
//! Costs: entering a callback and its instructions are charged to the CPU whose code runs. Within one switch or
//! wake-up they are summed up, drawn once and charged at its end.

use super::call::Op;
use super::consts::*;
use super::dispatch::{self, Next};
use super::flags::dequeue_flags;
use super::host::{BOOT_NS, CurrClass, Cx, Effect, Host};
use super::lifecycle::{self, TaskFacts};
use super::scheduler::ExtScheduler;
use super::task::Life;
use super::trace::CallTrace;
use super::{bypass, cgroup, enqueue, idle, reenq};
use crate::core::flags;
use crate::error::SimError;
use crate::kernel::{Class, CostKind, Kernel};
use schedlab_bpf::exec::Instance;
use schedlab_bpf::image::MapOrigin;
use schedlab_model::outcome::SchedulerExit;
use schedlab_model::{CpuId, Policy, TaskId};
use std::collections::BTreeMap;

/// Timer tokens: the watchdog, kicks of CPUs by themselves, the balancer of bypass, then timers of programs.
const TOKEN_WATCHDOG: u32 = 0;
pub(super) const TOKEN_KICK: u32 = 1;
pub(super) const TOKEN_BYPASS: u32 = 2047;
const TOKEN_TIMERS: u32 = 2048;

/// A scheduler attached to one simulation.
pub(crate) struct Attached {
    pub(crate) scheduler: ExtScheduler,
    pub(crate) instance: Instance<Host>,
    pub(crate) host: Host,
    /// Executed instructions that have been charged.
    charged: u64,
    /// Addresses of the programs' timers and where they fire, by token.
    timers: Vec<(u64, CpuId)>,
    /// First task of each process.
    leaders: BTreeMap<u32, u32>,
    /// The CPU that is choosing its next task and switches to it.
    pub(super) choosing: Option<CpuId>,
    /// Names of tasks (`comm`) and their cgroups.
    pub(super) names: Vec<(String, String)>,
    /// Entries of the log of priorities that were told.
    pub(super) priorities_told: u64,
}

impl Attached {
    pub(crate) fn new(scheduler: ExtScheduler, instance: Instance<Host>, host: Host) -> Attached {
        Attached {
            scheduler,
            instance,
            host,
            charged: 0,
            timers: Vec::new(),
            leaders: BTreeMap::new(),
            choosing: None,
            names: Vec::new(),
            priorities_told: 0,
        }
    }

    /// Sets a global variable of the object within its declared bounds; `.rodata` only before the run.
    pub(crate) fn set_global(&mut self, name: &str, value: i64) -> Result<(), SimError> {
        let fail = |reason: String| SimError::Setting { name: name.to_owned(), reason };
        let image = self.scheduler.image();
        let place = image.locate(name).map_err(|error| fail(error.to_string()))?;
        let knob = self.scheduler.knobs().into_iter().find(|knob| knob.name == name);
        if let Some(knob) = knob {
            knob.check(value).map_err(|error| fail(error.to_string()))?;
        }
        let size = u64::from(image.maps[place.map].value_size);
        let values = self.instance.map_values(place.map);
        let bytes = self.instance.memory().bytes_mut(values, size);
        if bytes.is_some_and(|bytes| place.write(bytes, value.into())) {
            return Ok(());
        }
        Err(fail(format!("{value} does not fit the variable's type")))
    }

    /// What programs executed so far is not charged to anybody.
    pub(crate) fn forget_executed(&mut self) {
        self.charged = self.instance.executed();
    }

    /// Gives objects that read `CONFIG_HZ` the machine's.
    pub(super) fn set_hz(&mut self, hz: u64) {
        let image = self.scheduler.image();
        let wanted = image.kconfig.iter().find(|wanted| wanted.name == "CONFIG_HZ");
        let map = image.maps.iter().position(|map| map.origin == MapOrigin::Kconfig);
        if let (Some(wanted), Some(map)) = (wanted, map) {
            let (offset, size) = (u64::from(wanted.offset), (wanted.size as usize).min(8));
            let place = self.instance.map_values(map) + offset;
            if let Some(bytes) = self.instance.memory().bytes_mut(place, size as u64) {
                bytes.copy_from_slice(&hz.to_le_bytes()[..size]);
            }
        }
    }

    /// The log so far.
    pub(crate) fn take_trace(&mut self) -> CallTrace {
        self.host.trace.take().map_or_else(CallTrace::default, |trace| *trace)
    }

    /// Runs code of the kernel on `this_cpu` in the scheduler's context and carries out what it asked for.
    #[inline(always)]
    pub(super) fn enter<R>(&mut self, k: &mut Kernel, f: impl FnOnce(&mut Cx<'_>) -> R) -> R {
        let mut cx = self.begin(k);
        let result = f(&mut cx);
        reenq::finish(&mut cx);
        self.apply_any(k);
        result
    }

    /// The scheduler's context on `this_cpu`; what code in it leaves to be done is the caller's to do.
    #[inline(always)]
    pub(super) fn begin(&mut self, k: &Kernel) -> Cx<'_> {
        let here = k.this_cpu;
        self.host.now = k.now;
        let current = self.host.address_of(k.cpu(here).curr.0);
        let mut cx = self.instance.enter(&mut self.host);
        cx.set_now(k.now + BOOT_NS);
        cx.set_cpu(here.0);
        cx.set_current(current);
        cx
    }

    /// Carries out what was asked for, if anything was.
    #[inline(always)]
    pub(super) fn apply_any(&mut self, k: &mut Kernel) {
        if !self.host.effects.is_empty() {
            self.apply(k);
        }
    }

    /// Carries out what choosing a task asked for: mostly that the task moves.
    #[inline(always)]
    pub(super) fn apply_move(&mut self, k: &mut Kernel) {
        if let [Effect::Migrated { task, from, to }] = *self.host.effects.as_slice() {
            self.host.effects.clear();
            migrate(k, TaskId(task), CpuId(from), CpuId(to));
        } else if !self.host.effects.is_empty() {
            self.apply(k);
        }
    }

    /// Charges the callbacks since the last charge, the instructions they executed and the locks they took.
    #[inline]
    pub(super) fn charge(&mut self, k: &mut Kernel, cpu: CpuId) {
        if self.host.callbacks != 0 || self.host.lock_ns != 0 {
            self.charge_callbacks(k, cpu);
        }
    }

    /// The same where a rare entry ends: the CPU whose code ran pays, not whoever enters next.
    pub(super) fn charge_here(&mut self, k: &mut Kernel) {
        // What disabling costs is discarded as a whole.
        if self.host.exit.is_none() {
            let here = k.this_cpu;
            self.charge(k, here);
        }
    }

    /// What was executed so far, and the locks it took, cost no simulated time.
    pub(super) fn discard_costs(&mut self) {
        (self.host.callbacks, self.host.lock_ns) = (0, 0);
        self.forget_executed();
    }

    #[inline(never)]
    fn charge_callbacks(&mut self, k: &mut Kernel, cpu: CpuId) {
        self.charge_hot(k, cpu);
    }

    /// The same where callbacks were made in any case: after a wake-up and a switch.
    #[inline(always)]
    pub(super) fn charge_hot(&mut self, k: &mut Kernel, cpu: CpuId) {
        let callbacks = std::mem::take(&mut self.host.callbacks);
        let executed = self.instance.executed();
        let instructions = executed - std::mem::replace(&mut self.charged, executed);
        let entering = u64::from(callbacks) * k.cost(CostKind::ExtCallback);
        let executing = instructions * k.cost(CostKind::BpfKiloInstructions) / 1000;
        k.charge(cpu, entering + executing + std::mem::take(&mut self.host.lock_ns));
    }

    #[inline(never)]
    fn apply(&mut self, k: &mut Kernel) {
        let mut next = 0;
        while let Some(effect) = self.host.effects.get(next).copied() {
            next += 1;
            match effect {
                Effect::Resched(cpu) => k.resched_curr(CpuId(cpu)),
                Effect::Migrated { task, from, to } => migrate(k, TaskId(task), CpuId(from), CpuId(to)),
                Effect::Kick { cpu, flags } => self.kick(k, CpuId(cpu), flags),
                Effect::TimerStart { timer, at, cpu } => {
                    let token = self.timer_token(timer);
                    self.timers[(token - TOKEN_TIMERS) as usize].1 = CpuId(cpu);
                    k.arm_ext_timer(token, at.max(k.now));
                }
                Effect::TimerCancel { timer } => {
                    let token = self.timer_token(timer);
                    k.cancel_ext_timer(token);
                }
            }
        }
        self.host.effects.clear();
    }

    fn timer_token(&mut self, timer: u64) -> u32 {
        let known = self.timers.iter().position(|(known, _)| *known == timer);
        let index = known.unwrap_or_else(|| {
            self.timers.push((timer, CpuId(0)));
            self.timers.len() - 1
        });
        TOKEN_TIMERS + index as u32
    }
}

/// The class's state in one simulation; empty without a scheduler.
#[derive(Default)]
pub(crate) struct Ext {
    pub(super) attached: Option<Box<Attached>>,
    /// Instructions that schedulers before this one executed.
    pub(super) executed_before: u64,
    /// CPUs went on or off this often (`scx_hotplug_seq`).
    pub(super) hotplug_seq: u64,
    /// Suspends that have not ended, and when the first of them began.
    pub(super) suspends: (i32, u64),
    /// Callbacks are logged, of schedulers that come later too.
    pub(super) logging: bool,
}

impl Ext {
    /// Attaches a scheduler with these knobs set (those the fair class does not know); no task exists yet.
    /// `ops.init` runs in [`Ext::start`].
    pub(crate) fn new(scheduler: &ExtScheduler, knobs: &[(String, i64)]) -> Result<Ext, SimError> {
        let mut attached = Box::new(scheduler.attach(0));
        knobs.iter().try_for_each(|(name, value)| attached.set_global(name, *value))?;
        if let Some(actions) = scheduler.set_up() {
            let name = scheduler.name().to_owned();
            attached.set_up(&*actions).map_err(|reason| SimError::Scheduler { name, reason })?;
        }
        Ok(Ext { attached: Some(attached), ..Ext::default() })
    }

    /// The attached scheduler.
    pub(crate) fn attached(&mut self) -> Option<&mut Attached> {
        self.attached.as_deref_mut()
    }

    /// A task has this name and cgroup; before [`Ext::init_task`].
    pub(crate) fn name_task(&mut self, task: TaskId, name: &str, cgroup: &str) {
        if let Some(ext) = self.attached.as_deref_mut() {
            ext.names.resize(ext.names.len().max(task.index() + 1), (String::new(), String::new()));
            ext.names[task.index()] = (name.to_owned(), cgroup.to_owned());
        }
    }

    /// Whether tasks of this policy belong to the class (all of NORMAL, BATCH, IDLE, EXT while a scheduler is
    /// enabled; only EXT under `SCX_OPS_SWITCH_PARTIAL`; none if disabled). Asked at fork and attribute change.
    #[inline]
    pub(crate) fn takes(&self, policy: Policy) -> bool {
        let Some(ext) = &self.attached else { return false };
        let partial = ext.host.ops.flags & SCX_OPS_SWITCH_PARTIAL != 0;
        let mine = match policy {
            Policy::Ext => true,
            Policy::Normal | Policy::Batch | Policy::Idle => !partial,
            _ => false,
        };
        mine && ext.host.enabled != 0 && ext.host.exit.is_none()
    }

    /// Whether no task can be in the fair class (`scx_switched_all`).
    #[inline]
    pub(crate) fn has_switched_all(&self) -> bool {
        self.takes(Policy::Normal)
    }

    /// A new task exists (`ops.init_task`, then `ops.enable` if it [is taken](Ext::takes)); before its first
    /// placement. Called for every task of any class, as `scx_fork` does. A task for which the region has no room ends
    /// the scheduler and is of the fair class. The error with which the fork fails if the scheduler refuses the task:
    /// then there is nothing left of it, and no other callback was told (`scx_cancel_fork`).
    pub(crate) fn init_task(&mut self, k: &mut Kernel, task: TaskId) -> Result<(), i32> {
        let Some(ext) = self.attached.as_deref_mut().filter(|ext| ext.host.enabled != 0) else {
            return Ok(());
        };
        let in_class = k.task(task).class == Class::Ext;
        let mut told = Ok(());
        if ext.create_task(k, task) {
            told = ext.enter(k, |cx| {
                lifecycle::init_task(cx, task.0, true)?;
                if in_class {
                    lifecycle::enable_task(cx, task.0);
                }
                Ok(())
            });
        } else if in_class {
            k.task_mut(task).class = Class::Fair;
        }
        if told.is_err() {
            // A process that never was has no first task.
            ext.leaders.retain(|_, leader| *leader != task.0);
            self.exit_task(k, task);
        } else if !in_class {
            // No enqueue of the class follows, which would charge it.
            ext.charge_here(k);
        }
        told
    }

    /// Whether tasks of the class are on the CPU's run queue and a deadline server sees to them (since 7.0).
    pub(crate) fn waits(&self, cpu: CpuId) -> bool {
        self.attached
            .as_deref()
            .is_some_and(|ext| ext.host.at_least(7, 0) && ext.host.rq(cpu.0).nr_running > 0)
    }

    /// The task is gone (`ops.disable`, `ops.exit_task`), after its last dequeue and switch.
    pub(crate) fn exit_task(&mut self, k: &mut Kernel, task: TaskId) {
        let Some(ext) = self.of(task) else { return };
        ext.enter(k, |cx| lifecycle::exit_task(cx, task.0));
        ext.charge_here(k);
        let size = ext.host.layout.task_size + super::objects::TASK_NUMBER_BYTES;
        let address = ext.host.address_of(task.0);
        ext.host.set_address(task.0, 0);
        ext.instance.owner_died(address);
        ext.instance.memory().free(address, size, 64);
    }

    /// The task joins the class (`ops.enable`), off its queue.
    pub(crate) fn switched_to(&mut self, k: &mut Kernel, task: TaskId) {
        self.changed(k, task, |cx| {
            lifecycle::enable_task(cx, task.0);
            lifecycle::set_cpumask(cx, task.0);
        });
    }

    /// The task leaves the class for another (`ops.disable`), off its queue.
    pub(crate) fn switched_from(&mut self, k: &mut Kernel, task: TaskId) {
        self.changed(k, task, |cx| lifecycle::disable_task(cx, task.0));
    }

    /// Weight (nice) of an ext task changed (`ops.set_weight`).
    pub(crate) fn reweight_task(&mut self, k: &mut Kernel, task: TaskId) {
        self.changed(k, task, |cx| {
            if cx.host().task(task.0).life == Life::Enabled {
                lifecycle::set_weight(cx, task.0);
            }
        });
    }

    /// Affinity of any task changed (`ops.set_cpumask`).
    pub(crate) fn set_cpus_allowed(&mut self, k: &mut Kernel, task: TaskId) {
        self.changed(k, task, |cx| {
            if cx.host().task(task.0).life == Life::Enabled {
                lifecycle::set_cpumask(cx, task.0);
            }
        });
    }

    /// Brings the task's attributes up to date and calls `then`.
    pub(super) fn changed(&mut self, k: &mut Kernel, task: TaskId, then: impl FnOnce(&mut Cx<'_>)) {
        let Some(ext) = self.of(task) else { return };
        let allowed = words(k, task);
        let facts = facts(k, task, 0, "", &allowed);
        ext.enter(k, |cx| {
            lifecycle::write_attributes(cx, task.0, &facts);
            lifecycle::write_affinity(cx, task.0, &facts);
            then(cx);
        });
        ext.charge_here(k);
    }

    /// The attached scheduler if it knows the task.
    #[inline]
    pub(super) fn of(&mut self, task: TaskId) -> Option<&mut Attached> {
        self.attached
            .as_deref_mut()
            .filter(|ext| ext.host.tasks.get(task.index()).is_some_and(|entity| entity.address != 0))
    }

    /// The task leaves the queue: sleeps, ends, changes, moves. It may be the CPU's current task.
    pub(crate) fn dequeue_task(&mut self, k: &mut Kernel, cpu: CpuId, task: TaskId, flags: u32) {
        let Some(ext) = self.attached.as_deref_mut() else { return };
        ext.update_curr(k, cpu);
        k.add_nr_running(cpu, -1);
        let sleeps = flags & flags::DEQUEUE_SLEEP != 0;
        let voluntary = k.task(task).nvcsw + u64::from(sleeps);
        let state = if sleeps { k.task(task).sleep_state() } else { 0 };
        ext.enter(k, |cx| {
            let (host, memory) = cx.parts();
            let (address, at) = (host.task(task.0).address, &host.layout.task);
            memory.write_u32(address + at.state, state);
            memory.write_u64(address + at.nvcsw, voluntary);
            let kernel_flags = dequeue_flags(cx.host(), flags);
            enqueue::dequeue_again(cx, cpu.0, task.0, kernel_flags);
        });
    }

    /// The current task yields.
    pub(crate) fn yield_task(&mut self, k: &mut Kernel, cpu: CpuId) {
        let Some(ext) = self.attached.as_deref_mut() else { return };
        ext.update_curr(k, cpu);
        ext.enter(k, |cx| {
            let task = cx.host().rq(cpu.0).curr;
            if cx.host().has_op(Op::Yield) {
                let address = cx.host().task(task).address;
                super::call::call(cx, Op::Yield, Some(cpu.0), [task, 0], &[address, 0]);
            } else {
                let (host, memory) = cx.parts();
                host.set_slice(memory, task, 0);
            }
        });
    }

    /// Chooses the next task, running the whole dispatch cycle if needed; `prev` is the current task if it is
    /// of this class and still runnable (still queued, as in Linux). `None` if the class has nothing for the
    /// CPU. Called when rt and fair have nothing.
    pub(crate) fn pick_task(&mut self, k: &mut Kernel, cpu: CpuId, prev: Option<TaskId>) -> Option<TaskId> {
        let ext = self.attached.as_deref_mut()?;
        ext.update_curr(k, cpu);
        let next = ext.enter(k, |cx| dispatch::pick_task(cx, cpu.0, prev.map(|prev| prev.0))).map(TaskId);
        if ext.host.rq(cpu.0).kick_sync_pending {
            ext.wait_for_kicked(k, cpu);
        }
        if next.is_some() && next == prev {
            ext.charge(k, cpu);
        }
        if next.is_none() && k.cpu(cpu).curr.is_idle() {
            // Idle to idle: a CPU claimed and kicked for nothing counts as idle again.
            if ext.host.idle.enabled {
                idle::update(&ext.host, ext.instance.memory(), cpu.0, true);
            }
            ext.charge(k, cpu);
        }
        next
    }

    /// A switch begins that is made in several steps; [`Ext::end_switch`] follows.
    pub(crate) fn begin_switch(&mut self, cpu: CpuId) {
        if let Some(ext) = self.attached.as_deref_mut() {
            ext.choosing = Some(cpu);
            ext.host.switching = true;
        }
    }

    /// The switch is made: what could not be done before is done (`__balance_callbacks`).
    #[inline(always)]
    pub(crate) fn end_switch(&mut self, k: &mut Kernel, cpu: CpuId) {
        if let Some(ext) = self.attached.as_deref_mut() {
            ext.choosing = None;
            ext.host.switching = false;
            if ext.host.deferred_work {
                ext.finish_switch(k, cpu);
            }
        }
    }

    /// [`dequeue_task`](Ext::dequeue_task) of the current task, which sleeps, [`pick_task`](Ext::pick_task) and
    /// the switch to what it returns, in one.
    #[inline(always)]
    pub(crate) fn replace_sleeper(&mut self, k: &mut Kernel, cpu: CpuId, prev: TaskId) -> Option<TaskId> {
        self.attached.as_deref_mut()?.replace_sleeper(k, cpu, prev)
    }

    /// The task stops being current (`ops.stopping`; back on a queue if still `on_rq`). `next` is who comes.
    pub(crate) fn put_prev_task(&mut self, k: &mut Kernel, cpu: CpuId, task: TaskId, next: TaskId) {
        let Some(ext) = self.attached.as_deref_mut() else { return };
        ext.update_curr(k, cpu);
        let class = ext.note_curr(k, cpu, next);
        ext.enter(k, |cx| dispatch::put_prev_task(cx, cpu.0, task.0, Next { task: next.0, class }));
        ext.publish(k, cpu, task);
        if let CurrClass::Above(_) = class {
            // Who comes is not the class's, so nothing of the class follows.
            ext.charge(k, cpu);
        }
    }

    /// The task becomes current (`ops.running`).
    pub(crate) fn set_next_task(&mut self, k: &mut Kernel, cpu: CpuId, task: TaskId) {
        let Some(ext) = self.attached.as_deref_mut() else { return };
        ext.enter(k, |cx| dispatch::set_next_task(cx, cpu.0, task.0));
        ext.charge(k, cpu);
    }

    /// Brings the current task's slice and sums up to now.
    pub(crate) fn update_curr(&mut self, k: &mut Kernel, cpu: CpuId) {
        if let Some(ext) = self.attached.as_deref_mut() {
            ext.update_curr(k, cpu);
        }
    }

    /// The tick found an ext task running.
    pub(crate) fn task_tick(&mut self, k: &mut Kernel, cpu: CpuId, task: TaskId) {
        let Some(ext) = self.attached.as_deref_mut() else { return };
        ext.update_curr(k, cpu);
        let slice = ext.enter(k, |cx| {
            if cx.host().bypass {
                let (host, memory) = cx.parts();
                host.set_slice(memory, task.0, 0);
            } else {
                super::call::call_task(cx, Op::Tick, cpu.0, task.0, &[]);
            }
            super::objects::slice(cx, task.0)
        });
        ext.charge(k, cpu);
        if slice == 0 {
            k.resched_curr(cpu);
        }
    }

    /// The CPU enters idle, after the task before was put (`ops.update_idle`, built-in idle masks).
    pub(crate) fn enter_idle(&mut self, k: &mut Kernel, cpu: CpuId) {
        let Some(ext) = self.attached.as_deref_mut().filter(|ext| ext.host.enabled != 0) else { return };
        ext.enter(k, |cx| idle::transition(cx, cpu.0, true));
        ext.charge(k, cpu);
    }

    /// The CPU leaves idle, before `next` becomes current.
    pub(crate) fn leave_idle(&mut self, k: &mut Kernel, cpu: CpuId, next: TaskId) {
        let Some(ext) = self.attached.as_deref_mut().filter(|ext| ext.host.enabled != 0) else { return };
        ext.enter(k, |cx| idle::transition(cx, cpu.0, false));
        ext.charge(k, cpu);
        ext.note_curr(k, cpu, next);
    }

    /// A timer armed with [`Kernel::arm_ext_timer`] is due.
    pub(crate) fn timer_expired(&mut self, k: &mut Kernel, token: u32) {
        let Some(ext) = self.attached.as_deref_mut().filter(|ext| ext.host.exit.is_none()) else { return };
        match token {
            TOKEN_WATCHDOG => {
                ext.enter(k, lifecycle::watchdog);
                ext.arm_watchdog(k);
            }
            TOKEN_BYPASS if ext.host.bypass => {
                ext.enter(k, bypass::balance);
                // The timer interrupts a CPU of which nothing is known: nobody pays.
                ext.discard_costs();
                k.arm_ext_timer(TOKEN_BYPASS, k.now + bypass::BALANCE_NS);
            }
            TOKEN_BYPASS => {}
            TOKEN_KICK..TOKEN_BYPASS => {
                let cpu = token - TOKEN_KICK;
                if let Some(flags) = ext.host.rq_mut(cpu).kicked.take() {
                    // By itself.
                    k.this_cpu = CpuId(cpu);
                    ext.kick(k, CpuId(cpu), flags);
                }
            }
            token => {
                let (timer, cpu) = ext.timers[(token - TOKEN_TIMERS) as usize];
                k.this_cpu = cpu;
                ext.enter(k, |cx| {
                    cx.host().callbacks += 1;
                    if let Err(fault) = cx.fire_timer(timer) {
                        super::exit::program_fault(cx, &fault.to_string());
                    }
                });
                ext.charge(k, cpu);
            }
        }
    }

    /// Whether the scheduler has claimed its exit.
    #[inline]
    pub(crate) fn has_exit(&self) -> bool {
        self.attached.as_ref().is_some_and(|ext| ext.host.exit.is_some())
    }

    /// An error or exit since the last question; the core then disables the class.
    #[cold]
    pub(crate) fn take_exit(&mut self) -> Option<SchedulerExit> {
        let ext = self.attached.as_deref_mut()?;
        let info = ext.host.exit.as_mut().filter(|info| !info.taken)?;
        info.taken = true;
        let mut info = info.clone();
        let mut cx = ext.instance.enter(&mut ext.host);
        if info.kind >= SCX_EXIT_ERROR {
            info.dump = super::dump::state(&mut cx, &info);
            cx.host().exit = Some(info.clone());
        }
        bypass::begin(&mut cx);
        cgroup::exit_all(&mut cx);
        ext.host.effects.clear();
        Some(info.outcome())
    }

    /// The scheduler ends: the task, in the fair class by now, is no longer its business (`ops.exit_task`).
    pub(crate) fn give_up(&mut self, k: &mut Kernel, task: TaskId) {
        if let Some(ext) = self.of(task) {
            ext.enter(k, |cx| lifecycle::exit_task(cx, task.0));
        }
    }

    /// All tasks have been moved to the fair class: `ops.exit`, timers dropped.
    pub(crate) fn disabled(&mut self, k: &mut Kernel) {
        if let Some(ext) = self.attached.as_deref_mut() {
            ext.enter(k, lifecycle::finish);
            for timer in 0..ext.timers.len() {
                k.cancel_ext_timer(TOKEN_TIMERS + timer as u32);
            }
            k.cancel_ext_timer(TOKEN_WATCHDOG);
            k.cancel_ext_timer(TOKEN_BYPASS);
            ext.discard_costs();
        }
    }

    /// The current task of a CPU has changed its class.
    pub(crate) fn note_curr(&mut self, k: &Kernel, cpu: CpuId) {
        if let Some(ext) = self.attached.as_deref_mut() {
            ext.note_curr(k, cpu, k.cpu(cpu).curr);
        }
    }

    /// BPF instructions executed so far.
    pub(crate) fn bpf_instructions(&self) -> u64 {
        self.executed_before + self.attached.as_ref().map_or(0, |ext| ext.instance.executed())
    }
}

impl Attached {
    /// The class of the task that becomes current. One of a stronger class is remembered here, as the class's own
    /// functions do not see it come.
    pub(super) fn note_curr(&mut self, k: &Kernel, cpu: CpuId, curr: TaskId) -> CurrClass {
        let class = match k.task(curr).class {
            Class::Idle => CurrClass::Idle,
            Class::Ext => CurrClass::Ext,
            Class::Rt => CurrClass::Above(0),
            Class::Fair => CurrClass::Above(3),
        };
        if let CurrClass::Above(_) = class {
            // One for which there was no room is nobody to programs.
            let known = if self.host.address_of(curr.0) == 0 { 0 } else { curr.0 };
            let rq = self.host.rq_mut(cpu.0);
            (rq.curr, rq.curr_class) = (known, class);
        }
        class
    }

    /// Gives a task its kernel object. `false` if the region is full.
    pub(super) fn create_task(&mut self, k: &mut Kernel, task: TaskId) -> bool {
        let leader = *self.leaders.entry(k.task(task).process).or_insert(task.0);
        let (name, cgroup) = self.names.get(task.index()).cloned().unwrap_or_default();
        let allowed = words(k, task);
        let mut facts = facts(k, task, leader, &name, &allowed);
        facts.cgroup = self.host.find_cgroup(&cgroup);
        self.enter(k, |cx| lifecycle::create(cx, task.0, &facts))
    }

    #[inline(never)]
    fn finish_switch(&mut self, k: &mut Kernel, cpu: CpuId) {
        self.enter(k, |_| ());
        self.charge(k, cpu);
    }

    pub(super) fn arm_watchdog(&mut self, k: &mut Kernel) {
        let interval = self.host.ops.timeout_ns / 2;
        k.arm_ext_timer(TOKEN_WATCHDOG, k.now + interval.max(k.tick_ns));
    }

    /// `update_curr_scx`.
    #[inline(always)]
    pub(super) fn update_curr(&mut self, k: &mut Kernel, cpu: CpuId) {
        let rq = self.host.rq_mut(cpu.0);
        if rq.curr_class != CurrClass::Ext {
            return;
        }
        let task = rq.curr;
        let ran = k.now - std::mem::replace(&mut rq.exec_start, k.now);
        if ran == 0 {
            return;
        }
        let state = k.task_mut(TaskId(task));
        state.sum_exec += ran;
        let sum = state.sum_exec;
        let (host, memory) = (&self.host, self.instance.memory());
        let (address, at) = (host.task(task).address, &host.at);
        memory.write_u64(address + at.sum_exec_runtime, sum);
        let slice = memory.read_u64(address + at.slice);
        if slice != SCX_SLICE_INF {
            memory.write_u64(address + at.slice, slice.saturating_sub(ran));
        }
    }

    /// Tells pictures the task's key: its virtual time if it has one, else its place in the order of enqueues.
    #[inline]
    pub(super) fn publish(&mut self, k: &mut Kernel, cpu: CpuId, task: TaskId) {
        if !k.trace.detail {
            return;
        }
        let vtime = self.host.dsq_vtime(self.instance.memory(), task.0);
        let key = if vtime != 0 { vtime } else { self.host.task(task.0).runnable_seq };
        let entity = self.host.task_mut(task.0);
        if std::mem::replace(&mut entity.rank, key) != key {
            k.publish_rank(cpu, task, key as i64);
        }
    }
}

/// The core's part of a move between run queues.
#[inline]
fn migrate(k: &mut Kernel, task: TaskId, from: CpuId, to: CpuId) {
    k.add_nr_running(from, -1);
    k.set_task_cpu(task, to);
    k.add_nr_running(to, 1);
}

fn words(k: &Kernel, task: TaskId) -> Vec<u64> {
    let mut words = vec![0; k.cpu_count().div_ceil(64)];
    for cpu in k.allowed[task.index()].iter() {
        words[cpu.index() / 64] |= 1 << (cpu.index() % 64);
    }
    words
}

/// Number of the first task's pid, after those of the kernel.
pub(super) const PID_FIRST: u32 = 1000;

fn facts<'a>(k: &Kernel, task: TaskId, leader: u32, comm: &'a str, allowed: &'a [u64]) -> TaskFacts<'a> {
    let state = k.task(task);
    TaskFacts {
        comm,
        pid: PID_FIRST + task.0,
        tgid: PID_FIRST + leader,
        leader,
        parent: state.parent.0,
        cpu: state.cpu.0,
        policy: state.policy.number(),
        nice: state.nice.get(),
        rt_priority: state.rt_priority.into(),
        weight: state.weight,
        kernel_thread: state.kernel_thread,
        cgroup: 0,
        allowed,
        nr_cpus_allowed: state.nr_allowed,
    }
}
