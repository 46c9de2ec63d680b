//! From what a trace tells to a recording: tasks, their state when it began, events in time order, the target.
//!
//! A pid that is forked again is a new task. Of a task that existed the first event tells whether it ran, waited or
//! slept when the trace began. Priorities are those in force, so a priority lent by a waiter shows as a change; the first
//! one that is told of a task is the one it began with.

use crate::heard::{Flags, Heard, Named, Trace, What};
use crate::names::{KTHREADD, Recorders, is_kernel_thread, own_cpu};
use crate::{Format, ImportError, ImportOptions, gaps, target};
use schedlab_model::cpu_set::CPUS_MAX;
use schedlab_model::event::{Context, IrqSource, PrevState};
use schedlab_model::machine::MachineDescription;
use schedlab_model::recording::{ChannelInfo, ChannelKind, DURATION_MAX, Provenance, Recording, TaskInfo};
use schedlab_model::topology::Topology;
use schedlab_model::{CpuId, CpuSet, Event, EventKind, Nanos, Nice, Policy, TaskAttributes, TaskId};
use std::collections::{BTreeSet, HashMap};

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
    let duration = Nanos(end - start);
    if duration > DURATION_MAX {
        return Err(ImportError::Span { format: format.name(), days: duration.0 / 86_400_000_000_000 });
    }
    let recorders = Recorders::of(format);
    let mut builder = Builder::new(&trace, cpus, start, recorders);
    gaps::close(events).into_iter().for_each(|heard| builder.event(heard));
    builder.settle();
    let Builder { tasks, events, recorder_started, .. } = builder;
    let mut tasks = tasks;
    target::choose(&mut tasks, options.target.as_deref(), recorder_started, recorders)?;
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
            *of_cpu = lost.saturating_add(*of_cpu);
        }
    }
    let command =
        if trace.command.is_empty() { String::new() } else { format!(": {}", trace.command.join(" ")) };
    let provenance = Provenance {
        origin: format!("imported from {}", format.name()),
        target: format!("a {} trace{command}", format.name()),
        kernel_release: trace.release,
        scheduler: "fair".to_owned(),
        dropped: dropped_per_cpu.iter().fold(0, |sum, lost| lost.saturating_add(sum)),
        dropped_per_cpu,
        ..Provenance::default()
    };
    // Operations without a channel name the first row.
    let channels = vec![ChannelInfo { kind: ChannelKind::Other, identity: 0, peer: None, capacity: 0 }];
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

/// What is known of a task besides its row.
#[derive(Default)]
struct Known {
    /// Policy and priority as last told; the first ones are the row's.
    in_force: Option<TaskAttributes>,
    /// Its name was told by an event, not by a list of names that may be of another time.
    named: bool,
    /// It was forked and not heard of since.
    fresh: bool,
    /// It has begun to exit.
    exits: bool,
    /// It left its CPU for good: its pid may be another task's.
    gone: bool,
    /// It started a program, as no thread of the kernel does.
    program: bool,
}

struct Builder<'a> {
    trace: &'a Trace,
    cpus: u32,
    start: u64,
    tasks: Vec<TaskInfo>,
    known: Vec<Known>,
    by_pid: HashMap<i32, TaskId>,
    events: Vec<Event>,
    recorders: Recorders,
    /// Children of the program that recorded.
    recorder_started: BTreeSet<TaskId>,
}

impl Builder<'_> {
    fn new(trace: &Trace, cpus: u32, start: u64, recorders: Recorders) -> Builder<'_> {
        let idle = TaskInfo::idle();
        Builder {
            trace,
            cpus,
            start,
            tasks: vec![idle],
            known: vec![Known::default()],
            by_pid: HashMap::new(),
            events: Vec::new(),
            recorders,
            recorder_started: BTreeSet::new(),
        }
    }

    fn add(&mut self, named: &Named, first: First, existed: bool, parent: TaskId) -> TaskId {
        let told = self.trace.names.get(&named.pid);
        let name = if named.name.is_empty() { told.cloned().unwrap_or_default() } else { named.name.clone() };
        let (start_cpu, start_runnable) = match first {
            First::Runnable(cpu) => (cpu, existed),
            First::Asleep(cpu) => (cpu, false),
        };
        let in_force = named.prio.map(attributes);
        let inherited = || self.known[parent.index()].in_force.clone().unwrap_or_default();
        let attributes = in_force.clone().unwrap_or_else(inherited);
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
        self.known.push(Known { in_force, named: !named.name.is_empty(), ..Known::default() });
        self.by_pid.insert(named.pid, id);
        id
    }

    /// The task that has that pid now.
    fn known(&self, pid: i32) -> Option<TaskId> {
        self.by_pid.get(&pid).copied().filter(|id| !self.known[id.index()].gone)
    }

    /// The task of that pid; a new row if it is heard of for the first time, or after another task of that pid ended.
    fn task(&mut self, named: &Named, first: First, heard: &Heard) -> TaskId {
        if named.pid <= 0 {
            return TaskId::IDLE;
        }
        let Some(id) = self.known(named.pid) else {
            // Its fork was not told, so it counts as one that was there and slept.
            let first = match first {
                First::Runnable(cpu) if self.by_pid.contains_key(&named.pid) => First::Asleep(cpu),
                first => first,
            };
            return self.add(named, first, true, TaskId::IDLE);
        };
        self.known[id.index()].fresh = false;
        let row = &mut self.tasks[id.index()];
        if !named.name.is_empty() && row.name != named.name {
            // A child of the recorder bears its name until it has started its program, which is told after the name.
            if self.known[id.index()].named && self.recorders.has(&row.name) {
                self.recorder_started.insert(id);
            }
            row.name.clone_from(&named.name);
            self.known[id.index()].named = true;
        }
        if let Some(now) = named.prio.map(attributes) {
            let TaskAttributes { policy, nice, rt_priority, .. } = now;
            match self.known[id.index()].in_force.replace(now.clone()) {
                None => {
                    let row = &mut row.attributes;
                    (row.policy, row.nice, row.rt_priority) = (policy, nice, rt_priority);
                }
                Some(before) if before == now => {}
                Some(_) => {
                    self.push(heard, EventKind::AttributesChanged { task: id, policy, nice, rt_priority });
                }
            }
        }
        id
    }

    /// Decides by the last name of each task, which may be told late, whether it is a thread of the kernel.
    fn settle(&mut self) {
        for row in 1..self.tasks.len() {
            let of_kernel = !self.tasks[row].existed
                && self.tasks.get(self.tasks[row].parent.index()).is_some_and(|row| row.pid == KTHREADD);
            let task = &mut self.tasks[row];
            let is_one = of_kernel || is_kernel_thread(task.pid, &task.name);
            task.attributes.kernel_thread = is_one && !self.known[row].program;
            let bound = own_cpu(&task.name).filter(|&cpu| task.attributes.kernel_thread && cpu < self.cpus);
            task.attributes.affinity = match bound {
                Some(cpu) => CpuSet::from_iter([CpuId(cpu)]),
                None => CpuSet::first(self.cpus as usize),
            };
        }
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
                self.known[prev.index()].gone = *state == PrevState::Dead && !prev.is_idle();
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
                if let Some(known) = self.known(task.pid) {
                    // Who exits is not new: another task has its pid.
                    self.known[known.index()].gone = self.known[known.index()].exits;
                }
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
            What::Fork { parent, child, thread } => match self.fork(*parent, child, *thread, &heard) {
                Some(kind) => kind,
                None => return,
            },
            What::Exec { pid } => self.exec(*pid, &heard),
            What::Exit { pid } => {
                let named = Named { pid: *pid, ..Named::default() };
                let task = self.task(&named, First::Runnable(at), &heard);
                self.known[task.index()].exits = true;
                EventKind::Exit { task }
            }
            What::Rename { task } => {
                if self.known(task.pid).is_some() {
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

    /// A fork; `None` if it was told already: `task_newtask` and `sched_process_fork` both tell of one, before anything
    /// else is heard of the child.
    fn fork(&mut self, parent: i32, child: &Named, thread: bool, heard: &Heard) -> Option<EventKind> {
        let named = Named { pid: parent, ..Named::default() };
        let parent = self.task(&named, First::Runnable(heard.cpu), heard);
        if child.pid <= 0 {
            return None;
        }
        let twin = self
            .known(child.pid)
            .filter(|twin| self.known[twin.index()].fresh && self.tasks[twin.index()].parent == parent);
        let id = twin.unwrap_or_else(|| self.add(child, First::Asleep(heard.cpu), false, parent));
        self.known[id.index()].fresh = true;
        if thread {
            self.tasks[id.index()].tgid = self.tasks[parent.index()].tgid;
        }
        if self.records(parent) {
            self.recorder_started.insert(id);
        }
        twin.is_none().then_some(EventKind::Fork { parent, child: id })
    }

    fn exec(&mut self, pid: i32, heard: &Heard) -> EventKind {
        let named = Named { pid, ..Named::default() };
        // The child of trace-cmd itself switches tracing on, and then starts the command: nothing comes before that.
        let enabled = self.recorders.has("trace-cmd")
            && self.known(pid).is_none()
            && self.events.iter().all(|event| event.cpu.0 != heard.cpu);
        let task = self.task(&named, First::Runnable(heard.cpu), heard);
        // Else a recorder forks its command before it records and lets it start when all is set up: until then the
        // command bears the recorder's name, or is known as its child.
        let parent = self.trace.parents.get(&pid).and_then(|parent| self.by_pid.get(parent)).copied();
        if self.tasks[task.index()].existed
            && !std::mem::replace(&mut self.known[task.index()].program, true)
            && (enabled || self.records(task) || parent.is_some_and(|parent| self.records(parent)))
        {
            self.recorder_started.insert(task);
        }
        self.known[task.index()].program = true;
        EventKind::Exec { task }
    }

    /// Whether the task, or the process that it is a thread of, is a program that records.
    fn records(&self, task: TaskId) -> bool {
        let row = &self.tasks[task.index()];
        let leader = self.by_pid.get(&row.tgid).map(|leader| &self.tasks[leader.index()]);
        self.recorders.has(&row.name) || leader.is_some_and(|leader| self.recorders.has(&leader.name))
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
fn attributes(prio: i64) -> TaskAttributes {
    let mut attributes = TaskAttributes::default();
    match prio {
        ..0 => attributes.policy = Policy::Deadline,
        0..=98 => {
            attributes.policy = Policy::Fifo;
            attributes.rt_priority = (99 - prio) as u8;
        }
        _ => attributes.nice = Nice::new(prio - 120).unwrap_or_default(),
    }
    attributes
}

#[cfg(test)]
mod tests;
