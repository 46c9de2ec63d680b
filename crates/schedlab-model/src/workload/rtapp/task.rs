//! rt-app's tasks and phases as task rows: attributes, loops, instances, forks.
//!
//! Policy, priority and task group that a phase sets stay in force in the phases after it, also when the task
//! begins anew; CPUs do not: a phase without `cpus` has those of the task.

use super::event::{Events, Resources, kind, kinds};
use super::json::Place;
use crate::cpu_set::{CPUS_MAX, CpuSet};
use crate::ids::CpuId;
use crate::policy::{Nice, Policy, TaskAttributes};
use crate::time::Nanos;
use crate::workload::builder::Builder;
use crate::workload::file::WorkloadError;
use crate::workload::limits;
use crate::workload::{Op, ProgramId};
use std::fmt;

/// rt-app's default priority for FIFO and RR.
const PRIORITY: u8 = 10;

/// Name of the row that forks of a task are made from; the name itself belongs to the instances that start.
pub(super) fn template_name(task: &str) -> String {
    format!("{task}-fork")
}

/// A task of the file, read up to its events.
pub(super) struct Head<'a> {
    place: Place<'a>,
    phases: Vec<Phase<'a>>,
    /// Threads that start with the run.
    pub(super) instances: u32,
    /// Some event forks it.
    pub(super) forked: bool,
    loops: i64,
    delay: Nanos,
    attributes: TaskAttributes,
}

/// Events that repeat together.
struct Phase<'a> {
    place: Place<'a>,
    loops: i64,
    events: Vec<Place<'a>>,
    change: Change<'a>,
}

/// What a task or phase says about its scheduling; `None` leaves it as it is.
#[derive(Default)]
struct Change<'a> {
    policy: Option<Policy>,
    priority: Option<(i64, Place<'a>)>,
    cpus: Option<CpuSet>,
    slice: Option<Nanos>,
    taskgroup: Option<&'a str>,
}

impl<'a> Head<'a> {
    /// Reads everything but the meaning of the events.
    pub(super) fn read(place: &Place<'a>, default_policy: Policy) -> Result<Head<'a>, WorkloadError> {
        let (mut change, mut phases) = (Change::default(), None);
        let (mut instances, mut loops, mut delay) = (1, None, Nanos::ZERO);
        let mut events = Vec::new();
        for entry in place.entries()? {
            match entry.key() {
                "instance" => instances = entry.integer(0, limits::TASKS.most.into())? as u32,
                "delay" => delay = entry.micros()?,
                "loop" => loops = Some(read_loop(&entry)?),
                "phases" => phases = Some(entry.entries()?),
                _ if change.read(&entry)? => {}
                key if kind(key).is_some() => events.push(entry),
                _ => return Err(unknown(&entry, "instance, delay, loop, phases")),
            }
        }
        let phases = match phases {
            Some(_) if !events.is_empty() => {
                return Err(events[0].error("stands beside phases: put it into one of them"));
            }
            Some(phases) => phases.iter().map(Phase::read).collect::<Result<_, _>>()?,
            None => vec![Phase { place: place.clone(), loops: 1, events, change: Change::default() }],
        };
        let mut attributes = TaskAttributes { policy: default_policy, ..TaskAttributes::default() };
        if default_policy.is_realtime() {
            attributes.rt_priority = PRIORITY;
        }
        change.apply(&mut attributes)?;
        let loops = loops.unwrap_or(-1);
        let head = Head { place: place.clone(), phases, instances, forked: false, loops, delay, attributes };
        match head.phases.iter().find(|phase| phase.events.is_empty()) {
            Some(phase) => Err(phase.place.error(format!("has no event; there are {}", kinds()))),
            None => Ok(head),
        }
    }

    /// The task's name.
    pub(super) fn name(&self) -> &'a str {
        self.place.key()
    }

    /// An error at the line where the task begins.
    pub(super) fn error(&self, what: impl fmt::Display) -> WorkloadError {
        self.place.error(what)
    }

    /// All events of all phases.
    pub(super) fn events(&self) -> impl Iterator<Item = &Place<'a>> {
        self.phases.iter().flat_map(|phase| &phase.events)
    }

    /// The names of its rows in their order, and whether they are templates.
    pub(super) fn rows(&self) -> Vec<(String, bool)> {
        let name = |instance: u32| match self.instances {
            1 => self.name().to_owned(),
            _ => format!("{}-{instance}", self.name()),
        };
        let mut rows: Vec<_> = (0..self.instances).map(|instance| (name(instance), false)).collect();
        if self.forked {
            rows.push((template_name(self.name()), true));
        }
        rows
    }

    /// Adds the task's rows.
    pub(super) fn add(&self, builder: &mut Builder, resources: &mut Resources) -> Result<(), WorkloadError> {
        let mut events = Events { builder, resources, task: self.name() };
        let ops = self.ops(&mut events)?;
        let program = builder.program(ops.clone());
        for (name, template) in self.rows() {
            let program = if template { self.delayed(builder, &ops) } else { program };
            let row = builder.task_with(&name, "rt-app", self.attributes.clone(), program);
            row.start = self.delay;
            row.template = template;
        }
        Ok(())
    }

    /// A forked task, too, waits until its delay after the start of the run is over.
    fn delayed(&self, builder: &mut Builder, ops: &[Op]) -> ProgramId {
        let wait = (self.delay > Nanos::ZERO).then_some(Op::SleepUntil(self.delay));
        builder.program(wait.into_iter().chain(ops.iter().cloned()).collect())
    }

    fn ops(&self, events: &mut Events<'_>) -> Result<Vec<Op>, WorkloadError> {
        let mut now = self.attributes.clone();
        let first = self.round(events, &mut now)?;
        if self.loops == 1 {
            return Ok(first);
        }
        // The second and every later round begin with what the round before left in force.
        let again = self.round(events, &mut now)?;
        if again == first {
            return Ok(repeat(self.loops, first));
        }
        let later = if self.loops < 0 { self.loops } else { self.loops - 1 };
        Ok(first.into_iter().chain(repeat(later, again)).collect())
    }

    /// All phases once.
    fn round(&self, events: &mut Events<'_>, now: &mut TaskAttributes) -> Result<Vec<Op>, WorkloadError> {
        let mut ops = Vec::new();
        for phase in &self.phases {
            let mut wanted = now.clone();
            phase.change.apply(&mut wanted)?;
            wanted.affinity = phase.change.cpus.unwrap_or(self.attributes.affinity);
            if wanted != *now {
                ops.push(Op::SetAttributes(Box::new(wanted.clone())));
                *now = wanted;
            }
            let mut body = Vec::new();
            for event in &phase.events {
                events.read(event, &mut body)?;
            }
            ops.extend(if phase.loops == 1 { body } else { repeat(phase.loops, body) });
        }
        Ok(ops)
    }
}

fn repeat(loops: i64, body: Vec<Op>) -> Vec<Op> {
    let mut ops = vec![Op::LoopStart { count: u32::try_from(loops).unwrap_or(0) }];
    ops.extend(body);
    ops.push(Op::LoopEnd);
    ops
}

fn unknown(entry: &Place<'_>, others: &str) -> WorkloadError {
    let settings = "policy, priority, cpus, dl-runtime, taskgroup";
    entry.error(format!("is not supported; supported: {others}, {settings}, and the events {}", kinds()))
}

fn read_loop(entry: &Place<'_>) -> Result<i64, WorkloadError> {
    match entry.integer(-1, i64::from(u32::MAX))? {
        0 => Err(entry.error("loop 0 never runs: write -1 for ever, or the number of rounds")),
        loops => Ok(loops),
    }
}

impl<'a> Phase<'a> {
    fn read(place: &Place<'a>) -> Result<Phase<'a>, WorkloadError> {
        let mut phase =
            Phase { place: place.clone(), loops: 1, events: Vec::new(), change: Change::default() };
        for entry in place.entries()? {
            match entry.key() {
                "loop" => phase.loops = read_loop(&entry)?,
                _ if phase.change.read(&entry)? => {}
                key if kind(key).is_some() => phase.events.push(entry),
                _ => return Err(unknown(&entry, "loop")),
            }
        }
        Ok(phase)
    }
}

impl<'a> Change<'a> {
    /// Takes an entry if it is about scheduling.
    fn read(&mut self, entry: &Place<'a>) -> Result<bool, WorkloadError> {
        match entry.key() {
            "policy" => self.policy = Some(policy(entry)?),
            "priority" => self.priority = Some((entry.integer(-20, 99)?, entry.clone())),
            "cpus" => {
                let cpus = entry.integers(0, CPUS_MAX as i64 - 1)?;
                self.cpus = Some(cpus.into_iter().map(|cpu| CpuId(cpu as u32)).collect());
            }
            // Of the deadline class it would be the budget; of the fair class it is the custom slice.
            "dl-runtime" => self.slice = Some(entry.micros()?),
            "taskgroup" => {
                let group = entry.text()?;
                if !group.is_empty() && !group.starts_with('/') {
                    return Err(entry.error("must begin with /"));
                }
                self.taskgroup = Some(group).filter(|group| !group.is_empty());
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Puts the changes into force.
    fn apply(&self, attributes: &mut TaskAttributes) -> Result<(), WorkloadError> {
        if let Some(policy) = self.policy.filter(|policy| *policy != attributes.policy) {
            attributes.policy = policy;
            attributes.rt_priority = if policy.is_realtime() { PRIORITY } else { 0 };
            attributes.nice = Nice::default();
        }
        if let Some((priority, place)) = &self.priority {
            if attributes.policy.is_realtime() {
                let allowed = u8::try_from(*priority).ok().filter(|priority| *priority > 0);
                attributes.rt_priority =
                    allowed.ok_or_else(|| place.error("must be 1 to 99 for SCHED_FIFO and SCHED_RR"))?;
            } else {
                attributes.nice = Nice::new(*priority).map_err(|error| place.error(error))?;
            }
        }
        if let Some(cpus) = self.cpus {
            attributes.affinity = cpus;
        }
        attributes.slice = self.slice.or(attributes.slice);
        if let Some(group) = self.taskgroup {
            attributes.cgroup = group.trim_start_matches('/').to_owned();
        }
        Ok(())
    }
}

/// Reads a policy by rt-app's name.
pub(super) fn policy(place: &Place<'_>) -> Result<Policy, WorkloadError> {
    Ok(match place.text()? {
        "SCHED_OTHER" => Policy::Normal,
        "SCHED_BATCH" => Policy::Batch,
        "SCHED_IDLE" => Policy::Idle,
        "SCHED_FIFO" => Policy::Fifo,
        "SCHED_RR" => Policy::Rr,
        other => {
            let known = "SCHED_OTHER, SCHED_BATCH, SCHED_IDLE, SCHED_FIFO, SCHED_RR";
            return Err(place.error(format!("policy {other} is not supported; supported: {known}")));
        }
    })
}
