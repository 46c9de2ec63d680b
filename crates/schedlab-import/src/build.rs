//! From what a trace tells to a recording: tasks, their state when it began, events in time order, the target.
//!
//! A pid that is forked again is a new task. Of a task that existed the first event tells whether it ran, waited or
//! slept when the trace began. Priorities are those in force, so a priority lent by a waiter shows as a change.

use crate::heard::{Flags, Heard, Named, Trace, What};
use crate::{Format, ImportError, ImportOptions};
use schedlab_model::cpu_set::CPUS_MAX;
use schedlab_model::event::{Context, IrqSource};
use schedlab_model::machine::MachineDescription;
use schedlab_model::recording::{ChannelInfo, ChannelKind, Provenance, Recording, TaskInfo};
use schedlab_model::topology::Topology;
use schedlab_model::{CpuId, CpuSet, Event, EventKind, Nanos, Nice, Policy, TaskAttributes, TaskId};
use std::collections::{BTreeSet, HashMap};

/// `kthreadd`: parent of all kernel threads.
const KTHREADD: i32 = 2;

/// Programs that record; what they start is the target.
const RECORDERS: [&str; 5] = ["perf", "trace-cmd", "perfetto", "tracebox", "strace"];

/// A file without what a recording needs at least.
pub(crate) fn no_switches(format: Format, has: String) -> ImportError {
    let remedy = match format {
        Format::Perf => "perf sched record -- COMMAND",
        Format::TraceCmd => "trace-cmd record -e sched -- COMMAND",
        Format::Perfetto => "perfetto -o FILE -t 10s sched",
    };
    ImportError::NoEvents { format: format.name(), event: "sched_switch", has, remedy }
}

/// Makes the recording.
pub(crate) fn recording(
    mut trace: Trace,
    format: Format,
    options: &ImportOptions,
) -> Result<Recording, ImportError> {
    if !trace.events.iter().any(|heard| matches!(heard.what, What::Switch { .. })) {
        return Err(no_switches(format, std::mem::take(&mut trace.has)));
    }
    let cpus = cpu_count(&trace)?;
    let mut events = std::mem::take(&mut trace.events);
    events.sort_by_key(|heard| heard.time);
    // Both tell of one wake-up; the earlier one is on the waker's CPU.
    if events.iter().any(|heard| matches!(heard.what, What::Waking { .. })) {
        events.retain(|heard| !matches!(heard.what, What::Wakeup { .. }));
    }
    let (start, end) = (events[0].time, events[events.len() - 1].time);
    let mut builder = Builder::new(&trace, cpus, start);
    events.into_iter().for_each(|heard| builder.event(heard));
    let Builder { tasks, events, recorder_started, .. } = builder;
    let mut tasks = tasks;
    choose_target(&mut tasks, options.target.as_deref(), recorder_started)?;
    let topology = Topology::flat(cpus)
        .map_err(|error| ImportError::Broken { format: format.name(), what: error.to_string() })?;
    let mut machine = MachineDescription::generic("imported", topology);
    machine.description =
        "Number of CPUs and kernel as the trace tells them; topology and costs are defaults".to_owned();
    if let Some(kernel) = trace.kernel() {
        machine.kernel = kernel;
    }
    let mut dropped_per_cpu = vec![0; cpus as usize];
    for (cpu, lost) in &trace.lost {
        if let Some(of_cpu) = dropped_per_cpu.get_mut(*cpu as usize) {
            *of_cpu += lost;
        }
    }
    let command =
        if trace.command.is_empty() { String::new() } else { format!(": {}", trace.command.join(" ")) };
    let provenance = Provenance {
        origin: format!("imported from {}", format.name()),
        target: format!("a {} trace{command}", format.name()),
        kernel_release: trace.release,
        scheduler: "fair".to_owned(),
        dropped: dropped_per_cpu.iter().sum(),
        dropped_per_cpu,
        ..Provenance::default()
    };
    // Operations without a channel name the first row.
    let channels = vec![ChannelInfo { kind: ChannelKind::Other, identity: 0, peer: None, capacity: 0 }];
    let duration = Nanos(end - start);
    Ok(Recording { provenance, machine, tasks, channels, cpu_sets: Vec::new(), events, duration })
}

fn cpu_count(trace: &Trace) -> Result<u32, ImportError> {
    let named = trace.events.iter().map(|heard| {
        let other = match &heard.what {
            What::Migrate { from, to, .. } => *from.max(to),
            What::Waking { cpu, .. } | What::Wakeup { cpu, .. } | What::WakeupNew { cpu, .. } => {
                cpu.unwrap_or(0)
            }
            _ => 0,
        };
        heard.cpu.max(other)
    });
    let highest = named.max().unwrap_or(0);
    if highest as usize >= CPUS_MAX {
        return Err(ImportError::Cpu(highest.into()));
    }
    Ok((highest + 1).max(trace.cpus.unwrap_or(0).min(CPUS_MAX as u32)))
}

/// What a task did when the trace began, by its first event.
#[derive(Clone, Copy)]
enum First {
    Runnable(u32),
    Asleep(u32),
}

struct Builder<'a> {
    trace: &'a Trace,
    cpus: u32,
    start: u64,
    tasks: Vec<TaskInfo>,
    /// Policy and priority as last heard, of each task.
    in_force: Vec<TaskAttributes>,
    by_pid: HashMap<i32, TaskId>,
    /// Who runs on each CPU, as far as switches told.
    running: Vec<Option<TaskId>>,
    events: Vec<Event>,
    /// Children of a program that records.
    recorder_started: BTreeSet<TaskId>,
    /// Whether an exec was seen.
    program_started: bool,
}

impl Builder<'_> {
    fn new(trace: &Trace, cpus: u32, start: u64) -> Builder<'_> {
        let idle = TaskInfo {
            pid: 0,
            tgid: 0,
            name: "swapper".to_owned(),
            parent: TaskId::IDLE,
            attributes: TaskAttributes { kernel_thread: true, ..TaskAttributes::default() },
            target: false,
            existed: true,
            start_cpu: CpuId(0),
            start_runnable: false,
        };
        Builder {
            trace,
            cpus,
            start,
            tasks: vec![idle],
            in_force: vec![TaskAttributes::default()],
            by_pid: HashMap::new(),
            running: vec![None; cpus as usize],
            events: Vec::new(),
            recorder_started: BTreeSet::new(),
            program_started: false,
        }
    }

    fn add(&mut self, named: &Named, first: First, existed: bool, parent: TaskId) -> TaskId {
        let known = self.trace.names.get(&named.pid);
        let name =
            if named.name.is_empty() { known.cloned().unwrap_or_default() } else { named.name.clone() };
        let (start_cpu, start_runnable) = match first {
            First::Runnable(cpu) => (cpu, existed),
            First::Asleep(cpu) => (cpu, false),
        };
        let mut attributes = attributes(named.prio);
        self.in_force.push(attributes.clone());
        attributes.kernel_thread =
            is_kernel_thread(named.pid, &name) || (!existed && self.tasks[parent.index()].pid == KTHREADD);
        attributes.affinity = match own_cpu(&name).filter(|&cpu| attributes.kernel_thread && cpu < self.cpus)
        {
            Some(cpu) => CpuSet::from_iter([CpuId(cpu)]),
            None => CpuSet::first(self.cpus as usize),
        };
        let id = TaskId(self.tasks.len() as u32);
        self.tasks.push(TaskInfo {
            pid: named.pid,
            tgid: self.trace.processes.get(&named.pid).copied().unwrap_or(named.pid),
            name,
            parent,
            attributes,
            target: false,
            existed,
            start_cpu: CpuId(start_cpu),
            start_runnable,
        });
        self.by_pid.insert(named.pid, id);
        id
    }

    /// The task of that pid; a new row if it is heard of for the first time.
    fn task(&mut self, named: &Named, first: First, heard: &Heard) -> TaskId {
        if named.pid <= 0 {
            return TaskId::IDLE;
        }
        let Some(&id) = self.by_pid.get(&named.pid) else {
            return self.add(named, first, true, TaskId::IDLE);
        };
        let row = &mut self.tasks[id.index()];
        if !named.name.is_empty() && row.name != named.name {
            row.name.clone_from(&named.name);
        }
        if named.prio.is_some() {
            let now = attributes(named.prio);
            if now != std::mem::replace(&mut self.in_force[id.index()], now.clone()) {
                let TaskAttributes { policy, nice, rt_priority, .. } = now;
                self.push(heard, EventKind::AttributesChanged { task: id, policy, nice, rt_priority });
            }
        }
        id
    }

    fn push(&mut self, heard: &Heard, kind: EventKind) {
        let time = Nanos(heard.time - self.start);
        self.events.push(Event { time, cpu: CpuId(heard.cpu), kind });
    }

    /// Who makes the event: the task that the CPU runs.
    fn current(&mut self, heard: &Heard) -> TaskId {
        let named = Named { pid: heard.current, ..Named::default() };
        self.task(&named, First::Runnable(heard.cpu), heard)
    }

    fn event(&mut self, heard: Heard) {
        let at = heard.cpu;
        let cpu = |cpu: Option<u32>| cpu.filter(|cpu| (*cpu as usize) < CPUS_MAX).unwrap_or(at);
        let kind = match &heard.what {
            What::Switch { prev, state, next } => {
                let prev = self.task(prev, First::Runnable(at), &heard);
                let next = self.task(next, First::Runnable(at), &heard);
                self.running[at as usize] = Some(next);
                EventKind::Switch { prev, prev_state: *state, next }
            }
            What::Waking { wakee, cpu: on } | What::Wakeup { wakee, cpu: on } => {
                let waker = self.current(&heard);
                let wakee_cpu = cpu(*on);
                let wakee = self.task(wakee, First::Asleep(wakee_cpu), &heard);
                let context = context(heard.flags);
                EventKind::Waking { waker, context, wakee, wakee_cpu: CpuId(wakee_cpu) }
            }
            What::WakeupNew { task, cpu: on } => {
                let target_cpu = CpuId(cpu(*on));
                EventKind::WakeupNew {
                    task: self.task(task, First::Asleep(target_cpu.0), &heard),
                    target_cpu,
                }
            }
            What::Migrate { task, from, to } => {
                // It is told of sleepers too, when they are woken elsewhere: then the waking came before.
                let task = self.task(task, First::Runnable(*from), &heard);
                EventKind::Migrate { task, from: CpuId(*from), to: CpuId(*to) }
            }
            What::Fork { parent, child } => {
                let parent = Named { pid: *parent, ..Named::default() };
                let parent = self.task(&parent, First::Runnable(at), &heard);
                if self.by_pid.get(&child.pid).is_some_and(|child| self.is_new_child(*child, parent)) {
                    return;
                }
                let child = self.add(child, First::Asleep(at), false, parent);
                if RECORDERS.contains(&self.tasks[parent.index()].name.as_str()) {
                    self.recorder_started.insert(child);
                }
                EventKind::Fork { parent, child }
            }
            What::Exec { pid } => {
                let named = Named { pid: *pid, ..Named::default() };
                let task = self.task(&named, First::Runnable(at), &heard);
                // A recorder starts its command when all is set up: the first program that is started.
                if !std::mem::replace(&mut self.program_started, true) && self.tasks[task.index()].existed {
                    self.recorder_started.insert(task);
                }
                EventKind::Exec { task }
            }
            What::Exit { pid } => {
                let named = Named { pid: *pid, ..Named::default() };
                EventKind::Exit { task: self.task(&named, First::Runnable(at), &heard) }
            }
            What::Rename { task } => {
                if self.by_pid.contains_key(&task.pid) {
                    self.task(task, First::Runnable(at), &heard);
                }
                return;
            }
            What::Irq { number, enters: true } => EventKind::IrqEnter { source: IrqSource::Device(*number) },
            What::Irq { number, .. } => EventKind::IrqExit { source: IrqSource::Device(*number) },
            What::Softirq { vector, enters: true } => EventKind::SoftirqEnter { vector: *vector },
            What::Softirq { vector, .. } => EventKind::SoftirqExit { vector: *vector },
        };
        self.push(&heard, kind);
    }

    /// `task_newtask` and `sched_process_fork` both tell of one fork.
    fn is_new_child(&self, child: TaskId, parent: TaskId) -> bool {
        let row = &self.tasks[child.index()];
        let told = self.events.iter().rev().take(8);
        !row.existed
            && row.parent == parent
            && told
                .into_iter()
                .any(|event| matches!(event.kind, EventKind::Fork { child: told, .. } if told == child))
    }
}

fn context(flags: Flags) -> Context {
    match flags {
        Flags { hardirq: true, .. } => Context::HardIrq,
        Flags { softirq: true, .. } => Context::SoftIrq,
        _ => Context::Task,
    }
}

/// What the kernel's `prio` says: -1 deadline, 0 to 98 real-time (99 less the priority), 100 to 139 nice. Round robin
/// and FIFO, NORMAL, BATCH and IDLE look alike.
fn attributes(prio: Option<i64>) -> TaskAttributes {
    let mut attributes = TaskAttributes::default();
    match prio {
        Some(prio @ 0..=98) => {
            attributes.policy = Policy::Fifo;
            attributes.rt_priority = (99 - prio) as u8;
        }
        Some(prio) if prio < 0 => attributes.policy = Policy::Deadline,
        Some(prio) => attributes.nice = Nice::new(prio - 120).unwrap_or_default(),
        None => {}
    }
    attributes
}

/// Threads of the kernel by the names it gives them: traces do not tell who has no memory of his own.
fn is_kernel_thread(pid: i32, name: &str) -> bool {
    const STARTS: [&str; 13] = [
        "kworker/",
        "ksoftirqd/",
        "migration/",
        "cpuhp/",
        "rcu_",
        "rcuc/",
        "rcuop/",
        "rcuos/",
        "rcuog/",
        "idle_inject/",
        "irq/",
        "jbd2/",
        "watchdog/",
    ];
    const NAMES: [&str; 11] = [
        "kthreadd",
        "kswapd0",
        "kcompactd0",
        "khugepaged",
        "ksmd",
        "kauditd",
        "oom_reaper",
        "kdevtmpfs",
        "khungtaskd",
        "pool_workqueue_",
        "rcub/0",
    ];
    pid == KTHREADD || STARTS.iter().any(|start| name.starts_with(start)) || NAMES.contains(&name)
}

/// The CPU that a kernel thread's name binds it to: `ksoftirqd/3`, `kworker/3:1H`.
fn own_cpu(name: &str) -> Option<u32> {
    let (kind, rest) = name.split_once('/')?;
    let rest = match kind {
        "ksoftirqd" | "migration" | "cpuhp" | "rcuc" | "idle_inject" | "watchdog" => rest,
        "kworker" => rest.split_once(':')?.0,
        _ => return None,
    };
    rest.parse().ok()
}

/// Marks the target: who is asked for, else what the recorder started, else every task of user space. Children follow.
fn choose_target(
    tasks: &mut [TaskInfo],
    asked: Option<&str>,
    recorder_started: BTreeSet<TaskId>,
) -> Result<(), ImportError> {
    let is_recorder = |task: &TaskInfo| RECORDERS.contains(&task.name.as_str());
    // A child bears its parent's name until it starts a program; helpers of the recorder keep it.
    // Recording `sleep` is how one records the whole machine for a time.
    let is_work = |task: &TaskId| {
        let task = &tasks[task.index()];
        !is_recorder(task) && task.name != "sleep"
    };
    let recorders = tasks.iter().any(is_recorder);
    let started: Vec<TaskId> =
        recorder_started.into_iter().filter(|task| recorders && is_work(task)).collect();
    if let Some(asked) = asked {
        let pid: Option<i32> = asked.parse().ok();
        for task in tasks.iter_mut().skip(1) {
            task.target = pid.map_or(task.name == asked, |pid| task.pid == pid || task.tgid == pid);
        }
        if !tasks.iter().any(|task| task.target) {
            let names: BTreeSet<&str> = tasks.iter().skip(1).map(|task| task.name.as_str()).collect();
            let names: Vec<&str> = names.into_iter().take(12).collect();
            return Err(ImportError::NoTarget(asked.to_owned(), names.join(", ")));
        }
    } else if started.is_empty() {
        for task in tasks.iter_mut().skip(1) {
            task.target = !task.attributes.kernel_thread && !is_recorder(task);
        }
    } else {
        for task in started {
            tasks[task.index()].target = true;
        }
    }
    for row in 1..tasks.len() {
        let parent = tasks[row].parent;
        tasks[row].target |= parent != TaskId::IDLE && parent.index() < row && tasks[parent.index()].target;
    }
    Ok(())
}
