//! What a command's run under a scheduler looked like: its dynamic priorities over time, as a trace, as a page and in the JSON.

use crate::args::live::RunArgs;
use crate::failure::Failure;
use crate::output::write_file;
use anyhow::anyhow;
use schedlab_host::live::control::Load;
use schedlab_host::live::priorities::{KNOB, PriorityLog, can_log};
use schedlab_host::machine;
use schedlab_model::event::{Event, EventKind, PriorityChange};
use schedlab_model::ids::{CpuId, TaskId};
use schedlab_model::machine::KernelVersion;
use schedlab_model::policy::TaskAttributes;
use schedlab_model::recording::TaskInfo;
use schedlab_model::time::Nanos;
use schedlab_report::html::{self, LivePriorities, Picture};
use schedlab_report::perfetto::{self, TraceInput};
use schedlab_report::timeline::Timeline;
use serde_json::{Value, json};

/// Whether pictures were asked for.
pub fn are_drawn(args: &RunArgs) -> bool {
    args.perfetto.is_some() || args.html.is_some()
}

/// Whether the scheduler logs its changes: for pictures, or since its knob says so.
pub fn are_logged(load: &Load) -> bool {
    load.knobs.iter().any(|(name, value)| name == KNOB && *value != 0)
}

/// The log for the JSON, oldest first: times count from the first change.
pub fn json(log: &PriorityLog) -> Value {
    let first = log.entries.iter().map(|entry| entry.time_ns).min().unwrap_or(0);
    let change = |entry: &PriorityChange| {
        let person = &log.people[&entry.pid];
        json!({"time_ns": entry.time_ns - first, "pid": entry.pid, "name": person.name, "target": person.target,
            "before": entry.before, "after": entry.after, "cause": entry.cause.name()})
    };
    let mut entries: Vec<&PriorityChange> = log.entries.iter().collect();
    entries.sort_by_key(|entry| entry.time_ns);
    json!({"changes": entries.into_iter().map(change).collect::<Vec<Value>>(), "lost": log.lost})
}

/// Makes a scheduler log its changes of priority; an error if it cannot.
pub fn prepare(load: &mut Load) -> Result<(), Failure> {
    if !can_log(&load.object) {
        return Err(Failure::BadInput(anyhow!(
            "{} logs no changes of priority, so there is nothing to draw: ingosched, ingo_ll, nicksched, staircase and fixed_priority do",
            load.name
        )));
    }
    if !load.knobs.iter().any(|(name, _)| name == KNOB) {
        load.knobs.push((KNOB.to_owned(), 1));
    }
    Ok(())
}

/// Writes the pictures, and says in a line what they have.
pub fn write(args: &RunArgs, load: &Load, log: &PriorityLog) -> Result<String, Failure> {
    let drawn = Drawn::of(log);
    let timeline = Timeline::new(&drawn.events, &drawn.tasks, 1, drawn.length);
    if let Some(path) = &args.perfetto {
        let input = TraceInput {
            events: &drawn.events,
            tasks: &drawn.tasks,
            cpus: 1,
            length: drawn.length,
            kernel: machine::kernel_release().parse().unwrap_or(KernelVersion::V7_2),
        };
        write_file(path, &perfetto::trace(&input))?;
    }
    let (changes, lost) = (log.entries.len(), log.lost);
    if let Some(path) = &args.html {
        let command = args.command.join(" ");
        let target = drawn.tasks.iter().map(|task| task.target).collect();
        let facts = [
            ("Kernel", machine::kernel_release()),
            ("Changes", format!("{changes}, {lost} lost")),
            (
                "Knobs",
                load.knobs
                    .iter()
                    .map(|(name, value)| format!("{name}={value}"))
                    .collect::<Vec<_>>()
                    .join(" "),
            ),
        ];
        let page = html::live_priorities(&LivePriorities {
            title: &format!("{command} under {}", load.name),
            facts: &facts,
            picture: &Picture { candidate: load.name.clone(), timeline, target },
            version: env!("CARGO_PKG_VERSION"),
        });
        write_file(path, page.as_bytes())?;
    }
    Ok(format!("Priorities {changes} changes of {} tasks, {lost} lost\n", log.people.len()))
}

/// A log as events and a table of tasks. Time counts from the first change.
struct Drawn {
    events: Vec<Event>,
    tasks: Vec<TaskInfo>,
    length: Nanos,
}

impl Drawn {
    fn of(log: &PriorityLog) -> Drawn {
        let numbers: Vec<i32> = log.people.keys().copied().collect();
        let mut tasks = vec![task_row(0, "swapper", false)];
        tasks.extend(log.people.iter().map(|(pid, person)| {
            let name = if person.name.is_empty() { format!("task {pid}") } else { person.name.clone() };
            task_row(*pid, &name, person.target)
        }));
        let mut entries: Vec<&PriorityChange> = log.entries.iter().collect();
        // CPUs log at once: neighbours can be out of order.
        entries.sort_by_key(|entry| entry.time_ns);
        let first = entries.first().map_or(0, |entry| entry.time_ns);
        let event = |entry: &&PriorityChange| {
            let row = numbers.binary_search(&entry.pid).expect("everyone was seen");
            let PriorityChange { before, after, cause, .. } = **entry;
            let task = TaskId(row as u32 + 1);
            let time = Nanos(entry.time_ns - first);
            Event { time, cpu: CpuId(0), kind: EventKind::Priority { task, before, after, cause } }
        };
        let events: Vec<Event> = entries.iter().map(event).collect();
        let length = events.last().map_or(Nanos::ZERO, |event| event.time);
        Drawn { events, tasks, length }
    }
}

fn task_row(pid: i32, name: &str, target: bool) -> TaskInfo {
    TaskInfo {
        pid,
        tgid: pid,
        name: name.to_owned(),
        parent: TaskId::IDLE,
        attributes: TaskAttributes::default(),
        target,
        existed: true,
        start_cpu: CpuId(0),
        start_runnable: false,
    }
}
