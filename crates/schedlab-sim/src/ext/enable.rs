//! A scheduler comes: before the first task, or into a kernel that runs (`scx_root_enable_workfn`).
//!
//! The core walks the tasks that exist ([`crate::core::switching`]); here is what the class does of it. How a scheduler
//! leaves is in [`super::class`] and [`super::lifecycle`].

use super::cgroup;
use super::class::{Attached, Ext};
use super::host::CurrClass;
use super::lifecycle;
use super::lock::LockCosts;
use super::task::Life;
use crate::kernel::{Kernel, TaskState};
use schedlab_model::workload::Workload;
use schedlab_model::workload::change::{CgroupSpec, SchedulerEnd};
use schedlab_model::{CpuId, Policy, TaskId};

impl Ext {
    /// The run begins: `ops.init`, watchdog timer. Called once, before any task starts.
    pub(crate) fn start(&mut self, k: &mut Kernel, workload: &Workload) {
        self.hotplug_seq = workload.offline.len() as u64;
        let hotplug_seq = self.hotplug_seq;
        let Some(ext) = self.attached.as_deref_mut() else { return };
        ext.place(k, hotplug_seq, cgroup::specs(workload));
        ext.enter(k, |cx| lifecycle::start(cx, false));
        ext.go_on(k);
    }

    /// Another scheduler takes the place of the one there was, which has been disabled; the log of callbacks goes on.
    pub(crate) fn replace(&mut self, next: Ext) {
        let (executed_before, hotplug_seq, logging) =
            (self.bpf_instructions(), self.hotplug_seq, self.logging);
        let suspends = self.suspends;
        let log = self.attached.as_deref_mut().and_then(|before| before.host.trace.take());
        *self = Ext { executed_before, hotplug_seq, logging, suspends, ..next };
        if let Some(after) = self.attached.as_deref_mut().filter(|_| logging) {
            after.host.trace = Some(log.unwrap_or_default());
        }
    }

    /// Keeps a log of callbacks from now on.
    pub(crate) fn start_trace(&mut self) {
        self.logging = true;
        if let Some(ext) = self.attached.as_deref_mut() {
            ext.host.trace = Some(Box::default());
        }
    }

    /// `ops.init()`, bypass, cgroups, then `ops.init_task()` of every task that exists, in the order in which they
    /// were forked. `names` are names of tasks and their cgroups. The rest is the core's, then [`Ext::enabled`].
    pub(crate) fn enable(&mut self, k: &mut Kernel, names: Vec<(String, String)>) {
        let (hotplug_seq, (suspends, since)) = (self.hotplug_seq, self.suspends);
        let Some(ext) = self.attached.as_deref_mut() else { return };
        if !ext.host.at_least(7, 1) {
            // How deep the bypass is belongs to the class, not to a scheduler: a suspend goes on for the next one.
            (ext.host.bypass_depth, ext.host.bypass, ext.host.bypass_since) = (suspends, suspends > 0, since);
        }
        ext.names = names;
        let groups = k.fair.groups.list.iter().skip(1);
        let specs = groups.map(|group| CgroupSpec { path: group.path.clone(), settings: group.settings });
        let specs: Vec<CgroupSpec> = specs.collect();
        ext.place(k, hotplug_seq, specs);
        let tasks: Vec<TaskId> = existing(k).collect();
        for &task in &tasks {
            if !ext.create_task(k, task) {
                return;
            }
            ext.describe(k, task);
        }
        for cpu in (0..k.cpu_count() as u32).map(CpuId) {
            ext.describe_cpu(k, cpu);
        }
        ext.enter(k, |cx| lifecycle::start(cx, true));
        if ext.host.bypass {
            ext.arm_balancer(k);
        }
        for task in tasks {
            if ext.host.aborting() || ext.host.enabled == 0 {
                return;
            }
            let told = ext.enter(k, |cx| {
                let told = lifecycle::init_task(cx, task.0, false);
                if let Err(error) = told {
                    let (host, memory) = cx.parts();
                    let text = format!("ops.init_task() failed ({error}) for {}", host.label(memory, task.0));
                    super::exit::error(cx, text);
                }
                told
            });
            if told == Ok(true) && k.task(task).policy == Policy::Ext {
                k.task_mut(task).policy = Policy::Normal;
            }
        }
    }

    /// Whether the scheduler was told of the task and may be given it.
    pub(crate) fn is_ready(&mut self, task: TaskId) -> bool {
        self.of(task).is_some_and(|ext| ext.host.task(task.0).life == Life::Ready)
    }

    /// The task changes to the class, or stays in its own, while the scheduler comes: a fresh slice, that of bypass.
    pub(crate) fn refresh_slice(&mut self, task: TaskId) {
        if let Some(ext) = self.of(task) {
            let (host, memory) = (&ext.host, ext.instance.memory());
            host.set_slice(memory, task.0, host.default_slice());
        }
    }

    /// Every task was switched: bypass ends, every CPU looks for its next task, the user half goes on.
    pub(crate) fn enabled(&mut self, k: &mut Kernel) {
        self.bypass(k, false);
        if let Some(ext) = self.attached.as_deref_mut() {
            ext.go_on(k);
        }
    }

    /// `scx_check_setscheduler`: whether the task may not change to `SCHED_EXT`.
    pub(crate) fn disallows(&mut self, task: TaskId) -> bool {
        let Some(ext) = self.of(task) else { return false };
        let at = ext.host.task(task.0).address + ext.host.layout.task.disallow;
        ext.host.enabled != 0 && ext.instance.memory().read_u8(at) != 0
    }

    /// Something outside the scheduler ends it; its loader, if `by` is `None`.
    pub(crate) fn throw_out(&mut self, k: &Kernel, by: Option<SchedulerEnd>, cpu: CpuId) {
        let Some(ext) = self.attached.as_deref_mut().filter(|ext| ext.host.enabled != 0) else { return };
        if let Some((kind, cpu, text)) = super::exit::from_outside(by, &ext.host, cpu.0) {
            ext.host.now = k.now;
            ext.host.claim_exit(kind, 0, cpu, text);
        }
    }
}

/// Tasks that were forked and not ended.
pub(crate) fn existing(k: &Kernel) -> impl Iterator<Item = TaskId> + '_ {
    let tasks = (1..k.tasks.len() as u32).map(TaskId);
    tasks.filter(|task| !matches!(k.task(*task).state, TaskState::New | TaskState::Dead))
}

impl Attached {
    /// What the machine is like that the scheduler comes to.
    fn place(&mut self, k: &mut Kernel, hotplug_seq: u64, mut specs: Vec<CgroupSpec>) {
        assert_eq!(self.scheduler.cpu_count(), k.cpu_count(), "prepared for this machine");
        self.host.tick_ns = k.tick_ns;
        self.host.lock_costs = LockCosts::of(k);
        self.set_hz(1_000_000_000 / k.tick_ns.max(1));
        specs.retain(|spec| !cgroup::is_autogroup(spec));
        let offline: Vec<u32> = (0..k.cpu_count() as u32).filter(|cpu| !k.is_online(CpuId(*cpu))).collect();
        self.enter(k, |cx| {
            offline.iter().for_each(|cpu| lifecycle::set_online(cx, *cpu, false));
            cx.host().hotplug_seq = hotplug_seq;
            cgroup::build(cx, specs);
        });
    }

    /// After the scheduler was enabled: what the user half does then, and the watchdog.
    fn go_on(&mut self, k: &mut Kernel) {
        if let Some(actions) = self.scheduler.set_up()
            && self.host.exit.is_none()
            && let Err(problem) = self.set_up_attached(&*actions)
        {
            self.enter(k, |cx| super::exit::error(cx, format!("set-up: {problem}")));
        }
        // What it began, timers above all, begins now.
        self.enter(k, |_| {});
        self.arm_watchdog(k);
    }

    /// What programs read of a task that was there before the scheduler.
    fn describe(&mut self, k: &Kernel, task: TaskId) {
        let state = k.task(task);
        let (sum, switches, running) = (state.sum_exec, state.nvcsw, k.is_running(task));
        let (host, memory) = (&self.host, self.instance.memory());
        let (address, at) = (host.task(task.0).address, &host.layout.task);
        memory.write_u64(address + at.sum_exec_runtime, sum);
        memory.write_u64(address + at.nvcsw, switches);
        memory.write_u32(
            address + at.state,
            if state.state == TaskState::Sleeping { state.sleep_state() } else { 0 },
        );
        memory.write_u8(address + at.on_cpu, running.into());
    }

    /// What runs on a CPU when the scheduler comes.
    fn describe_cpu(&mut self, k: &Kernel, cpu: CpuId) {
        let curr = k.cpu(cpu).curr;
        let class = self.note_curr(k, cpu, curr);
        if class == CurrClass::Idle {
            return;
        }
        let (host, memory) = (&self.host, self.instance.memory());
        memory.write_u64(host.rq(cpu.0).address + host.layout.rq.curr, host.task(curr.0).address);
    }
}
