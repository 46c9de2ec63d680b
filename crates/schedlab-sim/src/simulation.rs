//! A simulation: set up, event loop, result.

use crate::behaviour::Work;
use crate::behaviour::channel::Channel;
use crate::behaviour::compile::Code;
use crate::behaviour::slack::SlackTimers;
use crate::config::{Bound, Scheduler, SimulationConfig, SimulationResult, TargetSettings, TaskAccount};
use crate::core::Core;
use crate::error::SimError;
use crate::ext::Ext;
use crate::fair::{Fair, FairParams};
use crate::kernel::{Class, CostKind, CostTable, CpuEvent, Domains, Kernel, KernelParts, Slot, TaskState};
use crate::memory::Memory;
use crate::rt::Rt;
use crate::schedulers::Schedulers;
use schedlab_model::event::{Context, EventSink, IrqSource};
use schedlab_model::machine::{KernelVersion, MachineDescription};
use schedlab_model::outcome::{FailedForks, SchedulerExit, SimulatorReport};
use schedlab_model::recording::{ChannelInfo, ChannelKind, TaskInfo};
use schedlab_model::rng::Rng;
use schedlab_model::topology::Topology;
use schedlab_model::weights::WeightTable;
use schedlab_model::workload::change::{CgroupSpec, Change, TimedChange};
use schedlab_model::workload::{ChannelSpec, ChannelType, Workload};
use schedlab_model::{CpuId, Nanos, TaskAttributes, TaskId};
use std::sync::Arc;

/// The random stream of the ticks' phase.
const TICK_STREAM: u64 = 0x71c4;
/// That of the CPUs on which tasks sleep before their start.
const SLEEPERS_STREAM: u64 = 0x51ee;

/// One run of a workload on a simulated machine.
pub struct Simulation {
    pub(crate) core: Core,
    pub(crate) work: Work,
    pub(crate) settings: TargetSettings,
    pub(crate) timer_slack: u64,
    pub(crate) makespan: u64,
    pub(crate) free_cpus: Vec<CpuId>,
    /// Changes of the machine made so far.
    changed: usize,
    /// When suspends end, sorted.
    resumes: Vec<u64>,
    pub(crate) table: Vec<TaskInfo>,
    /// Rows of the table that the sink has.
    told: usize,
    end: u64,
    /// The last instant at which a task went on, and how often.
    pub(crate) instant: (u64, u32),
    events: u64,
    pub(crate) scheduler_exit: Option<SchedulerExit>,
    pub(crate) failed_forks: Option<FailedForks>,
    /// Draws where tasks sleep before they start, if they do.
    pub(crate) sleeping_places: Option<Rng>,
    pub(crate) schedulers: Schedulers,
}

impl Simulation {
    /// Checks everything and sets the machine up; nothing has happened yet.
    pub fn new(mut config: SimulationConfig) -> Result<Simulation, SimError> {
        config.make_room()?;
        let SimulationConfig { machine, workload, scheduler, settings, seed, cost_seed, .. } = &config;
        let version = config.kernel.unwrap_or(machine.kernel);
        let (settings, knobs) = TargetSettings::split(settings)?;
        let code = Code::new(workload)?;
        check(workload, &code, machine, version, &config)?;
        let weights = settings.weights.clone().unwrap_or_default();
        check_nice(workload, &settings, &weights)?;
        let mut params = FairParams::new(version, machine.topology.online_count());
        params.vcpu_pack_percent = u64::from(machine.vcpu_pack_percent);
        let (mut ext, ext_knobs) = set_up(scheduler, knobs, settings.weights.as_ref(), &mut params)?;
        let schedulers = Schedulers::new(&config, &ext_knobs)?;
        schedulers.check_changes(workload, &params, &mut ext)?;
        let ideal = matches!(scheduler, Scheduler::Ideal);
        let autogroup = params.autogroup != 0;
        let fair = Fair::new(params, machine.topology.cpu_count(), &groups(workload, ideal, autogroup));
        let mut k = kernel(machine, fair, workload.devices.len(), *seed, *cost_seed);
        k.weights = weights;
        k.tick_phase = match workload.tick_phase {
            Some(phase) => phase.0 % k.tick_ns,
            None if config.begins_live => Rng::new(*seed, TICK_STREAM).below(k.tick_ns),
            None => 0,
        };
        if let Some(ratio) = workload.newidle_ratio {
            k.fair.balance.set_newidle_ratio(ratio.min(1_024));
        }
        if ideal {
            k.make_ideal();
        }
        let work = Work {
            channels: workload.channels.iter().map(Channel::new).collect(),
            actors: vec![idle_actor()],
            shared_timers: vec![None; code.shared_timers],
            arrivals: vec![0; workload.devices.len()],
            code: Arc::new(code),
            workload: Arc::clone(workload),
            targets_left: 0,
            timers_armed: 0,
            slack_timers: SlackTimers::new(k.cpu_count()),
            memory: if ideal { None } else { Memory::of(machine, workload) },
            seed: *seed,
        };
        let limits = [workload.duration, config.duration_limit];
        let end = limits.into_iter().flatten().min().map_or(u64::MAX, |limit| limit.0);
        let timer_slack = if ideal { 0 } else { machine.timer_slack.0 };
        let table = vec![idle_row()];
        let core = Core { k, ext };
        let (makespan, events, scheduler_exit) = (0, 0, None);
        let free_cpus = Vec::new();
        Ok(Simulation {
            core,
            work,
            settings,
            timer_slack,
            makespan,
            free_cpus,
            changed: 0,
            resumes: Vec::new(),
            table,
            told: 0,
            end,
            instant: (0, 0),
            events,
            scheduler_exit,
            failed_forks: None,
            sleeping_places: config.begins_live.then(|| Rng::new(config.seed, SLEEPERS_STREAM)),
            schedulers,
        })
    }

    /// Runs to the end. The sink gets every event in time order, some at a time.
    pub fn run<S: EventSink>(&mut self, sink: &mut S) -> Result<SimulationResult, SimError> {
        self.core.k.trace.keep = sink.wants_events();
        self.core.k.trace.detail = sink.wants_events() && sink.wants_detail();
        self.begin();
        let ended = loop {
            match self.event_loop().transpose() {
                None => {
                    self.hand_over(sink);
                    if sink.has_enough() {
                        break Ok(true);
                    }
                }
                Some(ended) => break ended,
            }
        };
        if ended.is_ok() {
            self.finish();
        }
        self.hand_over(sink);
        Ok(self.result(ended?))
    }

    /// Handles events until the work is done or the time is over: whether it was cut. Nothing if there are events to be
    /// handed over first. Not inlined, so that profilers find it by its name.
    #[inline(never)]
    fn event_loop(&mut self) -> Result<Option<bool>, SimError> {
        while !self.core.k.trace.is_full() {
            if self.work.workload.overflow_when_stalled && self.is_stalled() && self.overflow() {
                continue;
            }
            let Some((at, slot)) = self.core.k.next_event() else {
                return if self.work.targets_left > 0 { Err(self.deadlock()) } else { Ok(Some(false)) };
            };
            if at > self.end {
                self.core.k.now = self.end;
                return Ok(Some(self.work.targets_left > 0));
            }
            if self.core.k.looks_ahead() {
                self.fetch_ahead();
            }
            self.core.k.now = at;
            self.events += 1;
            self.handle(slot)?;
            if self.work.targets_left == 0 {
                return Ok(Some(false));
            }
        }
        Ok(None)
    }

    /// New rows of the task table, then what happened.
    #[inline(never)]
    fn hand_over<S: EventSink>(&mut self, sink: &mut S) {
        while self.told < self.table.len() {
            sink.task(TaskId(self.told as u32), &self.table[self.told]);
            self.told += 1;
        }
        self.take_priorities();
        self.core.k.trace.drain(|events| sink.events(events));
    }

    fn begin(&mut self) {
        let workload = Arc::clone(&self.work.workload);
        let offline = self.core.k.domains.offline().iter().chain(workload.offline.iter().copied());
        let offline: Vec<CpuId> = offline.collect();
        offline.into_iter().for_each(|cpu| drop(self.core.k.set_online(cpu, false)));
        self.core.ext.start(&mut self.core.k, &workload);
        for spec in &workload.cgroups {
            crate::fair::group::set(&mut self.core.k, spec);
        }
        self.arm_change();
        for (row, spec) in workload.tasks.iter().enumerate().filter(|(_, spec)| !spec.template) {
            let task = self.new_task(row as u32, TaskId::IDLE);
            self.work.timers_armed += 1;
            self.core.k.arm(Slot::Task(task), spec.start.0);
        }
        for (index, device) in workload.devices.iter().enumerate() {
            if let Some(first) = device.arrivals.first() {
                self.core.k.arm(Slot::Device(index), first.time.0);
            }
            for arrival in &device.arrivals {
                let channel = &mut self.work.channels[arrival.channel.index()];
                channel.senders += 1;
                channel.had_senders = true;
            }
        }
    }

    #[inline(always)]
    fn handle(&mut self, slot: Slot) -> Result<(), SimError> {
        match slot {
            Slot::Cpu(cpu, CpuEvent::Resume) => {
                self.core.k.finish_work(cpu);
                self.advance(cpu)?;
            }
            Slot::Cpu(cpu, CpuEvent::Resched) => {
                self.core.k.this_cpu = cpu;
                let until = self.core.k.cpu(cpu).kernel_until;
                if until > self.core.k.now {
                    self.core.k.arm(slot, until);
                } else {
                    self.schedule(cpu);
                }
            }
            Slot::Task(task) if self.core.k.task(task).state != TaskState::New => self.timer_event(task),
            other => self.handle_rarer(other)?,
        }
        if self.core.ext.has_exit() {
            self.end_scheduler();
        }
        Ok(())
    }

    /// Events that are few beside the others: apart, so that the code of those stays together.
    #[inline(never)]
    fn handle_rarer(&mut self, slot: Slot) -> Result<(), SimError> {
        match slot {
            Slot::Cpu(cpu, CpuEvent::Tick) => {
                self.core.k.this_cpu = cpu;
                let interrupts = !self.core.k.cpu(cpu).curr.is_idle();
                self.core.tick(cpu);
                if interrupts {
                    self.timers_expire_too(cpu);
                }
            }
            Slot::Cpu(cpu, _) => {
                self.core.k.this_cpu = cpu;
                crate::fair::balance::softirq(&mut self.core.k, cpu);
            }
            Slot::ExtTimer => self.ext_timer()?,
            Slot::Device(device) => self.arrive(device),
            Slot::Change => self.change_machine()?,
            Slot::FairTimer => self.quota_timer(),
            Slot::Hrtick(cpu) => {
                self.core.k.this_cpu = cpu;
                if self.core.hrtick(cpu) {
                    self.timers_expire_too(cpu);
                }
            }
            Slot::Standstill(cpu) => self.core.k.stand_still(cpu),
            Slot::Task(task) => {
                self.work.timers_armed -= 1;
                self.start_task(task);
            }
        }
        Ok(())
    }

    /// Makes the changes that are due.
    fn change_machine(&mut self) -> Result<(), SimError> {
        let workload = Arc::clone(&self.work.workload);
        let now = self.core.k.now;
        while self.resumes.first().is_some_and(|at| *at <= now) {
            self.resumes.remove(0);
            self.core.resume_machine();
        }
        while let Some(next) = workload.changes.get(self.changed).filter(|next| next.time.0 <= now) {
            self.changed += 1;
            self.resumes.extend(self.core.change_machine(&next.change));
            self.resumes.sort_unstable();
            if let Change::Scheduler(name) = &next.change {
                self.switch_scheduler(name.as_deref())?;
            }
        }
        self.arm_change();
        Ok(())
    }

    fn arm_change(&mut self) {
        let next = self.work.workload.changes.get(self.changed).map(|change| change.time.0);
        if let Some(at) = next.into_iter().chain(self.resumes.first().copied()).min() {
            self.core.k.arm(Slot::Change, at);
        }
    }

    /// A quota's timer interrupts the CPU that started it.
    fn quota_timer(&mut self) {
        let Some(cpu) = crate::fair::bandwidth::timer_cpu(&self.core.k) else { return };
        self.core.k.this_cpu = cpu;
        let cost = self.core.k.cost(CostKind::Interrupt);
        self.core.interrupt(cpu, IrqSource::Timer, cost);
        crate::fair::bandwidth::timer_expired(&mut self.core.k);
        self.core.k.leave_kernel(cpu);
    }

    fn ext_timer(&mut self) -> Result<(), SimError> {
        if self.nothing_can_happen() {
            return Err(self.deadlock());
        }
        while let Some(token) = self.core.k.due_ext_timer() {
            self.core.ext.timer_expired(&mut self.core.k, token);
        }
        Ok(())
    }

    /// Whether only the ext class's own timers are left: they alone do not let a task go on.
    fn nothing_can_happen(&self) -> bool {
        let devices = &self.work.workload.devices;
        let mut arrivals = self.work.arrivals.iter().zip(devices);
        self.work.timers_armed == 0
            && arrivals.all(|(next, device)| *next == device.arrivals.len())
            && self.core.k.tasks[1..]
                .iter()
                .all(|task| matches!(task.state, TaskState::Sleeping | TaskState::Dead))
    }

    /// Whether every task waits and the target will not go on by itself: somebody waits for room, and no task
    /// of the target for a time or for the next arrival from outside; others may have their timers. Or nothing at
    /// all will come, and somebody waits for what another should have sent.
    fn is_stalled(&self) -> bool {
        let k = &self.core.k;
        let idle = |cpu: u32| k.cpu(CpuId(cpu)).curr.is_idle() && k.cpu(CpuId(cpu)).nr_running == 0;
        if !(0..k.cpu_count() as u32).all(idle) {
            return false;
        }
        let arrivals = self.work.arrivals.iter().zip(&self.work.workload.devices);
        let mut next = arrivals.filter_map(|(next, device)| device.arrivals.get(*next));
        let waits_at = |channel: schedlab_model::ChannelId| {
            let channel = &self.work.channels[channel.index()];
            !channel.takers.is_empty() || !channel.pollers.is_empty()
        };
        let timed = |task: usize| self.table[task].target && k.is_armed(Slot::Task(TaskId(task as u32)));
        if self.work.timers_armed == 0 && next.clone().next().is_none() {
            return self.work.channels.iter().any(|channel| !channel.givers.is_empty() || channel.starves());
        }
        self.work.channels.iter().any(|channel| !channel.givers.is_empty())
            && !next.any(|arrival| waits_at(arrival.channel))
            && !(1..self.table.len()).any(timed)
    }

    /// A device hands something over: an interrupt on its CPU wakes who waits for it.
    fn arrive(&mut self, index: usize) {
        let workload = Arc::clone(&self.work.workload);
        let device = &workload.devices[index];
        let arrival = device.arrivals[self.work.arrivals[index]];
        self.work.arrivals[index] += 1;
        if let Some(next) = device.arrivals.get(self.work.arrivals[index]) {
            self.core.k.arm(Slot::Device(index), next.time.0.max(self.core.k.now));
        }
        let cpu = self.core.k.online_or_first(device.cpu);
        self.core.k.this_cpu = cpu;
        let cost = self.core.k.cost(CostKind::Interrupt);
        self.core.interrupt(cpu, IrqSource::Device(index as u32), cost);
        let channel = arrival.channel;
        let state = &mut self.work.channels[channel.index()];
        state.level += u64::from(arrival.amount);
        let takers = if state.kind == ChannelType::Tokens { arrival.amount } else { 1 };
        self.wake_takers(channel, takers, Context::HardIrq, false);
        self.drop_sender(channel, Context::HardIrq);
        self.core.k.leave_kernel(cpu);
    }

    /// Books what is still running or waiting at the end.
    fn finish(&mut self) {
        for cpu in (0..self.core.k.cpu_count()).map(|cpu| CpuId(cpu as u32)) {
            self.core.k.this_cpu = cpu;
            self.core.update_curr(cpu);
        }
        let now = self.core.k.now;
        for task in self.core.k.tasks.iter_mut().filter(|task| task.state == TaskState::Runnable) {
            if let Some(since) = task.queued_since {
                task.run_delay += now - since;
                task.run_delay_max = task.run_delay_max.max(now - since);
            }
        }
    }

    fn result(&mut self, cut: bool) -> SimulationResult {
        let k = &self.core.k;
        let account = |(index, task): (usize, &crate::kernel::Task)| TaskAccount {
            task: TaskId(index as u32),
            cpu_time: Nanos(task.sum_exec),
            run_delay: Nanos(task.run_delay),
            run_delay_max: Nanos(task.run_delay_max),
            voluntary_switches: task.nvcsw,
            involuntary_switches: task.nivcsw,
            migrations: task.migrations,
            vruntime: (index > 0 && task.class == Class::Fair)
                .then(|| k.fair.entity(TaskId(index as u32)).vruntime),
        };
        let report = SimulatorReport {
            context_switches: k.trace.switches,
            events: self.events,
            wall_s: 0.0,
            event_hash: k.trace.hash_text(),
            peak_memory_bytes: 0,
            simulated: Nanos(k.now),
            bpf_instructions: self.core.ext.bpf_instructions(),
        };
        let critical_path = if cut { k.now } else { self.makespan };
        let bound = k.ideal.then(|| self.bound(critical_path));
        SimulationResult {
            bound,
            report,
            scheduler_exit: self.scheduler_exit.clone(),
            detached: std::mem::take(&mut self.schedulers.detached),
            failed_forks: self.failed_forks.take(),
            makespan: match bound {
                Some(bound) if !cut => bound.critical_path.max(bound.work_per_cpu),
                _ => Nanos(critical_path),
            },
            cut,
            swapped: self.work.memory.as_ref().map(Memory::swapped),
            cgroups: crate::ext::cgroup::specs(&self.work.workload),
            accounts: k.tasks.iter().enumerate().map(account).collect(),
            tasks: self.table.clone(),
            channels: channel_table(&self.work.workload),
        }
    }

    /// What no scheduler can beat: the run with a CPU for each task, and the target's work spread over the
    /// machine's CPUs.
    fn bound(&self, critical_path: u64) -> Bound {
        let k = &self.core.k;
        let work = k.tasks.iter().filter(|task| task.target).map(|task| task.sum_exec).sum();
        let capacities = k.domains.capacities();
        let strongest = u64::from(capacities.iter().copied().max().unwrap_or(1_024));
        let all: u64 = capacities.iter().map(|&capacity| u64::from(capacity)).sum();
        let work_per_cpu = (u128::from(work) * u128::from(strongest) / u128::from(all)) as u64;
        let [critical_path, target_work, work_per_cpu] = [critical_path, work, work_per_cpu].map(Nanos);
        Bound { critical_path, target_work, work_per_cpu }
    }

    /// Names of all tasks, in their order.
    pub(crate) fn task_names(&self) -> Vec<&str> {
        self.table.iter().map(|row| row.name.as_str()).collect()
    }

    /// Name of a task, for messages.
    pub(crate) fn task_name(&self, task: TaskId) -> String {
        self.table.get(task.index()).map_or_else(|| "?".to_owned(), |row| row.name.clone())
    }

    /// Enters a task into the table of a recording.
    pub(crate) fn table_row(&mut self, task: TaskId, attributes: &TaskAttributes) {
        let group = self.core.k.fair.groups.find(&attributes.cgroup);
        self.core.k.fair.set_group(task, group);
        let state = self.core.k.task(task);
        let spec = &self.work.workload.tasks[state.spec as usize];
        self.core.ext.name_task(task, &spec.name, &attributes.cgroup);
        self.table.push(TaskInfo {
            pid: task.0 as i32,
            tgid: 100_000 + spec.process as i32,
            name: spec.name.clone(),
            parent: state.parent,
            attributes: attributes.clone(),
            target: state.target,
            existed: false,
            start_cpu: state.cpu,
            start_runnable: false,
        });
    }
}

fn check(
    workload: &Workload,
    code: &Code,
    machine: &MachineDescription,
    version: KernelVersion,
    config: &SimulationConfig,
) -> Result<(), SimError> {
    if version < KernelVersion::V5_7 || version > KernelVersion::V7_2 {
        return Err(SimError::Kernel(version.to_string()));
    }
    machine.check().map_err(|error| SimError::Machine { name: machine.name.clone(), error })?;
    let comes = |change: &TimedChange| matches!(change.change, Change::Scheduler(Some(_)));
    let ext = matches!(config.scheduler, Scheduler::Ext(_)) || workload.changes.iter().any(comes);
    if version < KernelVersion::V6_12 && ext {
        return Err(SimError::NoSchedExt(version.to_string()));
    }
    let started: Vec<_> = workload.tasks.iter().filter(|task| !task.template).collect();
    if started.is_empty() {
        return Err(SimError::NoTasks(workload.name.clone()));
    }
    if !workload.tasks.iter().any(|task| task.target) {
        return Err(SimError::NoTarget(workload.name.clone()));
    }
    let cpus = machine.topology.cpu_count();
    let devices = workload.devices.iter().map(|device| (&device.name, Some(device.cpu)));
    let tasks = workload.tasks.iter().map(|task| (&task.name, task.start_cpu));
    let changed = workload.changes.iter().filter_map(|change| match change.change {
        Change::Cpu { cpu, .. } | Change::EndScheduler { cpu, .. } => Some(cpu),
        _ => None,
    });
    if let Some(cpu) = workload.offline.iter().copied().chain(changed).find(|cpu| cpu.index() >= cpus) {
        return Err(SimError::NoCpu { cpu: cpu.0, cpus });
    }
    check_offline(workload, &machine.topology)?;
    for (name, cpu) in tasks.chain(devices) {
        if let Some(cpu) = cpu.filter(|cpu| cpu.index() >= cpus) {
            return Err(SimError::StartCpu { task: name.clone(), cpu: cpu.0, cpus });
        }
    }
    let unlimited = workload.duration.is_none() && config.duration_limit.is_none();
    let endless =
        |task: &&&schedlab_model::workload::TaskSpec| task.target && code.endless[task.program.0 as usize];
    if let Some(task) = started.iter().find(endless).filter(|_| unlimited) {
        let reason = "loops for ever and the run has no duration: give the workload a duration, or the run one with --duration".to_owned();
        return Err(SimError::Program { task: task.name.clone(), step: 0, reason });
    }
    Ok(())
}

/// A CPU is left, and none that the machine has offline is to come.
fn check_offline(workload: &Workload, topology: &Topology) -> Result<(), SimError> {
    let mut online = topology.all();
    workload.offline.iter().for_each(|cpu| online.remove(*cpu));
    if online.is_empty() {
        return Err(SimError::AllOffline { cpus: topology.cpu_count() });
    }
    let comes = workload.changes.iter().find_map(|change| match change.change {
        Change::Cpu { cpu, online: true } => Some(cpu).filter(|cpu| !topology.is_online(*cpu)),
        _ => None,
    });
    comes.map_or(Ok(()), |cpu| Err(SimError::StaysOffline { cpu: cpu.0 }))
}

/// Knobs go to the kernel and, if there is one, to the scheduler from BPF: which is made, with its own.
fn set_up(
    scheduler: &Scheduler,
    knobs: Vec<(String, i64)>,
    weights: Option<&WeightTable>,
    params: &mut FairParams,
) -> Result<(Ext, Vec<(String, i64)>), SimError> {
    let (fair_knobs, mut ext_knobs): (Vec<_>, Vec<_>) =
        knobs.into_iter().partition(|(name, _)| params.knows(name));
    if let (Scheduler::Ext(scheduler), Some(table)) = (scheduler, weights) {
        ext_knobs.extend(scheduler.weight_knobs(table)?);
    }
    fair_knobs.iter().try_for_each(|(name, value)| params.set(name, *value))?;
    let ext = match scheduler {
        Scheduler::Ext(scheduler) => Ext::new(scheduler, &ext_knobs)?,
        _ => {
            ext_knobs.iter().try_for_each(|(name, value)| params.set(name, *value))?;
            Ext::default()
        }
    };
    Ok((ext, ext_knobs))
}

/// Whether the table has a weight for every nice value that tasks have or take.
fn check_nice(workload: &Workload, settings: &TargetSettings, weights: &WeightTable) -> Result<(), SimError> {
    let Some(nice) = workload.nice_values().chain(settings.nice).find(|&nice| !weights.has(nice)) else {
        return Ok(());
    };
    let (strongest, weakest) = weights.range();
    Err(SimError::Setting {
        name: "nice".to_owned(),
        reason: format!(
            "{} is outside of {} to {}, the range of the weight table '{}': 'refine:COUNT' is wider, 'group:N' keeps -20 to 19",
            nice.get(),
            strongest.get(),
            weakest.get(),
            weights.name()
        ),
    })
}

fn kernel(
    machine: &MachineDescription,
    fair: Fair,
    device_count: usize,
    seed: u64,
    cost_seed: Option<u64>,
) -> Kernel {
    let cpus = machine.topology.cpu_count();
    let mut domains = Domains::new(&machine.topology);
    if fair.params.itmt == 1 {
        domains.use_priorities();
    }
    Kernel::new(KernelParts {
        preemption: machine.preemption,
        hz: machine.hz,
        costs: CostTable::new(machine, cost_seed),
        domains,
        fair,
        rt: Rt::new(cpus),
        device_count,
        rng: Rng::new(seed, 0xc05),
    })
}

/// The groups of the fair class. The ideal scheduler has none, nor do sessions without `sched_autogroup_enabled`.
fn groups(workload: &Workload, ideal: bool, autogroup: bool) -> Vec<CgroupSpec> {
    let mut specs = if ideal { Vec::new() } else { crate::ext::cgroup::specs(workload) };
    specs.retain(|spec| autogroup || !crate::ext::cgroup::is_autogroup(spec));
    specs
}

fn idle_actor() -> crate::behaviour::actor::Actor {
    crate::behaviour::actor::Actor::new(0, TaskId::IDLE, Vec::new(), Rng::new(0, 0), 0)
}

fn idle_row() -> TaskInfo {
    TaskInfo { attributes: TaskAttributes::default(), start_runnable: true, ..TaskInfo::idle() }
}

fn channel_table(workload: &Workload) -> Vec<ChannelInfo> {
    let kind = |spec: &ChannelSpec| match spec.kind {
        ChannelType::Bytes if spec.is_socket => ChannelKind::Socket,
        ChannelType::Bytes => ChannelKind::Pipe,
        _ => ChannelKind::Futex,
    };
    let row = |(index, spec): (usize, &ChannelSpec)| ChannelInfo {
        kind: kind(spec),
        identity: index as u64 + 1,
        peer: None,
        capacity: spec.capacity,
    };
    let mut rows: Vec<ChannelInfo> = workload.channels.iter().enumerate().map(row).collect();
    if rows.is_empty() {
        // Sleeps name the first row, so there is one.
        rows.push(ChannelInfo { kind: ChannelKind::Other, identity: 0, peer: None, capacity: 0 });
    }
    rows
}
