//! `schedlab show`: what is in a recording, a workload, an object file or a scheduler.

use super::curves::{self, Curves};
use super::{common, pictures};
use crate::args::ShowArgs;
use crate::failure::Failure;
use crate::inputs::objects;
use crate::inputs::schedulers::{self, Described};
use crate::inputs::work::{self, Work};
use crate::output::{print_text, write_file};
use anyhow::anyhow;
use schedlab_model::machine::KernelVersion;
use schedlab_model::metric::Metric;
use schedlab_model::recording::Recording;
use schedlab_model::workload::Workload;
use schedlab_report::html::{self, SchedulerPage};
use schedlab_report::{MetricsCollector, character, triage::Triage, units};
use serde_json::{Value, json};

/// Shows it as text or JSON.
pub fn run(args: &ShowArgs) -> Result<(), Failure> {
    let (is_fair, is_ours) = (args.what == FAIR, schedulers::library().contains(&args.what.as_str()));
    let is_object = is_ours || args.what.ends_with(".o");
    let of_recordings = of_recordings(args);
    let has_page = |flag: &&str| *flag == HTML && (is_fair || is_ours);
    if let Some(flag) = of_recordings.filter(|flag| (is_fair || is_object) && !has_page(flag)) {
        return Err(no_recording(&args.what, flag));
    }
    if is_fair {
        let kernel = args.kernel.unwrap_or(KernelVersion::V7_2);
        let curves = curves::measure_fair(kernel)?;
        write_page(args, "", kernel, &curves)?;
        let text = format!("Scheduler  fair: the kernel's own class as simulated, of kernel {kernel}\n");
        let value = json!({"scheduler": FAIR, "kernel": kernel, "curves": curves});
        return give(args, &(text + &curves::render(&curves)), &value);
    }
    let (text, value) = if is_object {
        let kernel = args.kernel.unwrap_or(KernelVersion::V7_2);
        object(args, &schedulers::describe_for(&args.what, kernel)?, kernel)?
    } else {
        match work::load(&args.what)? {
            Work::Workload(workload) => match of_recordings {
                Some(flag) => return Err(no_recording(&args.what, flag)),
                None => (workload_text(&workload), json!(*workload)),
            },
            Work::Recording(recording) => {
                if let Some(path) = &args.perfetto {
                    write_file(path, &pictures::trace_of(&recording))?;
                }
                if let Some(path) = &args.html {
                    write_file(path, pictures::page_of(&args.what, &recording).as_bytes())?;
                }
                if args.character {
                    character_text(&args.what, &recording)
                } else {
                    recording_text(&args.what, &recording)
                }
            }
        }
    };
    give(args, &text, &value)
}

/// The flag that schedulers have, too.
const HTML: &str = "--html";

/// The kernel's own class, as candidates name it.
const FAIR: &str = "fair";

fn give(args: &ShowArgs, text: &str, value: &Value) -> Result<(), Failure> {
    match &args.json {
        Some(path) => write_file(path, format!("{value:#}\n").as_bytes()),
        None => print_text(text),
    }
}

fn object(args: &ShowArgs, described: &Described, kernel: KernelVersion) -> Result<(String, Value), Failure> {
    let name = &args.what;
    let image = &described.image;
    let mut text = String::new();
    if !described.essay.is_empty() {
        text += &format!("{}\n\n", described.essay);
    }
    text += &format!("Object     {name}, license {}, loads for kernel {kernel}\n", image.license);
    let mut callbacks = Vec::new();
    for ops in &image.struct_ops {
        text += &format!("Ops        {} ({})\n", ops.name, ops.type_name);
        for (member, program) in &ops.callbacks {
            let program = &image.programs[*program];
            text += &format!("           {member}: {}, {} instructions\n", program.name, program.insns.len());
            callbacks.push(json!({"callback": member, "program": program.name,
                "instructions": program.insns.len()}));
        }
    }
    let mut maps = Vec::new();
    for map in &image.maps {
        let (kind, exists) = schedlab_bpf::maps::kind::describe(map.map_type);
        let (entries, bytes) = (map.max_entries, map.value_size);
        text += &format!("Map        {}: {kind}, {entries} x {bytes} bytes\n", map.name);
        maps.push(json!({"name": map.name, "type": map.map_type, "kind": kind, "exists": exists,
            "entries": map.max_entries, "key_size": map.key_size, "value_size": map.value_size}));
    }
    let kfuncs: Vec<&str> = image.kfuncs.iter().map(|(_, name)| name.as_str()).collect();
    text += &format!("Kfuncs     {}\n", kfuncs.join(", "));
    for knob in &described.knobs {
        let live = if knob.live { "live" } else { "at load" };
        let bounds = format!("{} to {} {}", knob.min, knob.max, knob.unit);
        text +=
            &format!("Knob       {} = {} ({bounds}, {live}): {}\n", knob.name, knob.default, knob.meaning);
    }
    let (more, details) = objects::details(image, kernel);
    let (measured, curves) = measured(args, described, kernel)?;
    let value = json!({"object": name, "license": image.license, "kernel": kernel, "callbacks": callbacks,
        "maps": maps, "kfuncs": kfuncs, "knobs": described.knobs, "essay": described.essay, "details": details,
        "curves": curves});
    Ok((text + &more + &measured, value))
}

/// What runs of a scheduler of the library show. Objects of others may need a user half to run at all.
fn measured(
    args: &ShowArgs,
    described: &Described,
    kernel: KernelVersion,
) -> Result<(String, Value), Failure> {
    if !schedulers::library().contains(&args.what.as_str()) {
        return Ok((String::new(), Value::Null));
    }
    match curves::measure(described, kernel) {
        Ok(curves) => {
            write_page(args, &described.essay, kernel, &curves)?;
            Ok((curves::render(&curves), json!(curves)))
        }
        Err(error) if args.html.is_some() => {
            Err(Failure::Machine(error.context("slices cannot be measured")))
        }
        Err(error) => Ok((format!("Slices     cannot be measured: {error:#}\n"), Value::Null)),
    }
}

/// The page of a scheduler, if it is wanted.
fn write_page(args: &ShowArgs, essay: &str, kernel: KernelVersion, curves: &Curves) -> Result<(), Failure> {
    let Some(path) = &args.html else { return Ok(()) };
    let facts = [("Scheduler", args.what.clone()), ("Kernel", kernel.to_string())];
    let page = html::scheduler_page(&SchedulerPage {
        title: &format!("{}: slices and decisions", args.what),
        facts: &facts,
        essay,
        curves: &curves.drawn(),
        decision: curves.decision.as_ref(),
        version: env!("CARGO_PKG_VERSION"),
    });
    write_file(path, page.as_bytes())
}

fn workload_text(workload: &Workload) -> String {
    let mut text = format!("Workload   {}: {}\n", workload.name, workload.description);
    let length = workload.duration.map_or("until its tasks end".to_owned(), |duration| duration.to_string());
    let (tasks, channels) = (workload.tasks.len(), workload.channels.len());
    text += &format!("Length     {length}; {tasks} tasks and templates, {channels} channels\n");
    for task in workload.tasks.iter().take(TASKS_SHOWN) {
        let steps = workload.programs[task.program.0 as usize].ops.len();
        let role = match (task.template, task.target) {
            (true, _) => "template",
            (_, true) => "target",
            _ => "background",
        };
        let attributes = &task.attributes;
        let (policy, nice) = (format!("{:?}", attributes.policy).to_lowercase(), attributes.nice.get());
        text += &format!("Task       {}: {role}, {policy}, nice {nice}, {steps} steps\n", task.name);
    }
    text + &more(workload.tasks.len())
}

/// Tasks beyond these are counted only.
const TASKS_SHOWN: usize = 40;

fn more(tasks: usize) -> String {
    match tasks.saturating_sub(TASKS_SHOWN) {
        0 => String::new(),
        rest => format!("           and {rest} more\n"),
    }
}

/// What was asked for that only a recording has.
fn of_recordings(args: &ShowArgs) -> Option<&'static str> {
    let asked = [
        ("--character", args.character),
        ("--perfetto", args.perfetto.is_some()),
        (HTML, args.html.is_some()),
    ];
    asked.into_iter().find_map(|(flag, is_asked)| is_asked.then_some(flag))
}

fn no_recording(what: &str, flag: &str) -> Failure {
    let others = if flag == HTML { " and schedulers of the library" } else { "" };
    Failure::BadInput(anyhow!(
        "{what} is no recording, and {flag} is for recordings{others} only: record a command with `schedlab record`, or \
         simulate work into one with `schedlab simulate ... --record FILE`"
    ))
}

/// What character its tasks have.
fn character_text(name: &str, recording: &Recording) -> (String, Value) {
    let all = character::of(recording);
    let value = json!({"recording": name, "duration_ns": recording.duration.0,
        "caches": recording.provenance.caches, "characters": all});
    let head = format!("Recording  {name}: {}; {}\n", recording.provenance.what(), recording.duration);
    let next = format!("Next       schedlab compare {name} -s {}\n", levers(recording.machine.kernel));
    let caches = recording.provenance.caches.as_ref();
    (head + &character::render(&all, caches, common::text_options()) + &next, value)
}

/// Candidates that pull each lever of the fair class once.
fn levers(kernel: KernelVersion) -> &'static str {
    match kernel >= KernelVersion::V6_12 {
        true => "fair,fair:policy=batch,fair:nice=5,fair:slice=20ms,fair:weights=group:5",
        false => "fair,fair:policy=batch,fair:nice=5,fair:weights=group:5",
    }
}

fn recording_text(name: &str, recording: &Recording) -> (String, Value) {
    let provenance = &recording.provenance;
    let metrics = MetricsCollector::of_recording(recording);
    let triage = Triage::of(recording);
    let target = recording.tasks.iter().filter(|task| task.target).count();
    let machine = &recording.machine;
    let mut text = format!("Recording  {name}: {}\n", provenance.what());
    let events = recording.events.len();
    let mut line = |label: &str, value: String| text += &format!("{label:<10} {value}\n");
    line(
        "Origin",
        format!(
            "{}, kernel {}, scheduler {}",
            provenance.origin, provenance.kernel_release, provenance.scheduler
        ),
    );
    line("Machine", format!("{}, {}, HZ {}", machine.name, machine.topology.cpus_text(), machine.hz));
    line("Length", format!("{}; {events} events, {} lost", recording.duration, provenance.dropped));
    if provenance.partial {
        line("Note", "the recording ended early; this is what is whole of it".to_owned());
    }
    if let Some(trigger) = &provenance.trigger {
        let task = trigger.task.and_then(|task| recording.tasks.get(task.index())).map(|task| &task.name);
        let late =
            task.zip(trigger.delay).map(|(name, delay)| format!(": '{name}' had waited {delay} for a CPU"));
        line("Trigger", format!("{} at {}{}", trigger.what, trigger.at, late.unwrap_or_default()));
    }
    line("Tasks", format!("{target} of the target, {} in all", recording.tasks.len() - 1));
    line("Triage", triage.sentence());
    for metric in Metric::ALL {
        if let Some(value) = metrics.get(*metric) {
            line("Metric", format!("{} {}", metric.key(), units::value(metric.key(), metric.unit(), value)));
        }
    }
    let mut rows: Vec<_> = metrics.tasks.iter().filter(|task| task.target).collect();
    rows.sort_by_key(|task| std::cmp::Reverse(task.cpu_time));
    for task in rows.iter().take(TASKS_SHOWN) {
        let switches = task.voluntary_switches + task.involuntary_switches;
        let (cpu, delay) = (task.cpu_time, task.run_delay);
        text += &format!("Task       {}: {cpu} on CPU, {delay} waiting, {switches} switches\n", task.name);
    }
    text += &more(rows.len());
    let value = json!({"recording": name, "provenance": provenance, "machine": machine,
        "duration_ns": recording.duration.0, "events": events, "tasks": recording.tasks,
        "triage": triage.sentence(), "metrics": metrics});
    (text, value)
}
