//! What is best read as a table or a list: tasks, fidelity, how it was obtained, what to type next.

use super::{capital, escape, table};
use crate::result::{ResultFile, TaskRecord};
use crate::units;
use schedlab_model::metric::Metric;

/// More tasks are summed into a last row.
const TASKS_MAX: usize = 24;

/// Tasks of a single run, or of the first run of the baseline.
pub(super) fn tasks(result: &ResultFile) -> Option<String> {
    let baseline = result.comparison.as_ref().map(|comparison| comparison.baseline.as_str());
    let run = result.runs.iter().find(|run| baseline.is_none_or(|name| run.candidate == name))?;
    let mut tasks: Vec<&TaskRecord> = run.tasks.iter().filter(|task| task.target).collect();
    if tasks.is_empty() {
        return None;
    }
    tasks.sort_by_key(|task| std::cmp::Reverse((task.run_delay_ns, task.cpu_time_ns)));
    let time = |ns: u64| (units::time(ns as f64), "");
    let count = |count: u64| (units::grouped(count as i64), "");
    let row = |task: &&TaskRecord| {
        let p99 = task.wakeup_latency_p99_ns.map_or("–".to_owned(), |ns| units::time(ns as f64));
        vec![
            (escape(&task.name), "name"),
            count(task.weight.into()),
            time(task.cpu_time_ns),
            time(task.run_delay_ns),
            time(task.sleep_ns),
            (p99, ""),
            time(task.wait_max_ns),
            count(task.involuntary_switches),
            count(task.voluntary_switches),
            count(task.migrations),
        ]
    };
    let rows: Vec<Vec<(String, &str)>> = tasks.iter().take(TASKS_MAX).map(row).collect();
    let rest = tasks.len().saturating_sub(TASKS_MAX);
    let rest =
        if rest > 0 { format!("<p class=\"note\">{rest} more are in the JSON.</p>") } else { String::new() };
    let header = [
        "task",
        "weight",
        "CPU time",
        "run delay",
        "asleep",
        "wake-up p99",
        "longest wait",
        "preempted",
        "blocked",
        "moves",
    ];
    Some(format!(
        "<section><h2>Tasks under {}</h2><p class=\"note\">One run, those that waited most first.</p>{}{rest}</section>",
        escape(&run.candidate),
        table(&header, &rows, 1)
    ))
}

/// Replay beside the recording.
pub(super) fn fidelity(result: &ResultFile) -> Option<String> {
    if result.fidelity.is_empty() {
        return None;
    }
    let row = |record: &crate::result::FidelityRecord| {
        let shown = |value| units::value(&record.metric, &record.unit, value);
        let ratio = if record.recorded == 0.0 { f64::NAN } else { record.replayed / record.recorded };
        let (word, class) =
            if record.within_tolerance { ("within tolerance", "good") } else { ("outside", "bad") };
        vec![
            (escape(&record.metric), "name"),
            (shown(record.recorded), ""),
            (shown(record.replayed), ""),
            (if ratio.is_nan() { "–".to_owned() } else { units::ratio(ratio) }, ""),
            (word.to_owned(), class),
        ]
    };
    let rows: Vec<Vec<(String, &str)>> = result.fidelity.iter().map(row).collect();
    Some(format!(
        "<section><h2>How well the simulator meets the recording</h2><p class=\"note\">The recording replayed \
         under a model of the scheduler that was recorded, on the recorded machine.</p>{}</section>",
        table(&["metric", "recorded", "replayed", "ratio", ""], &rows, 1)
    ))
}

/// Environment, notes, the machine's costs, what the simulator says of itself.
pub(super) fn how(result: &ResultFile) -> String {
    let environment = &result.environment;
    let mut facts = vec![
        ("obtained", result.obtained.words().to_owned()),
        ("command", result.command.join(" ")),
        (
            "machine",
            format!(
                "{}: {}, {}, {}, {}",
                environment.machine,
                plural(environment.cpus, "CPU"),
                plural(environment.cores, "core"),
                plural(environment.caches, "last-level cache"),
                plural(environment.nodes, "node"),
            ),
        ),
        (
            "kernel",
            format!("{}, HZ {}, preemption {}", environment.kernel, environment.hz, environment.preemption),
        ),
        (
            "costs",
            format!(
                "{} of {} modelled costs measured on the machine",
                environment.costs_measured, environment.costs
            ),
        ),
    ];
    for work in &result.works {
        let drops = if work.dropped_events > 0 {
            format!(", {} events lost", units::grouped(work.dropped_events as i64))
        } else {
            String::new()
        };
        let length =
            if work.duration_ns > 0 { units::time(work.duration_ns as f64) } else { "open end".into() };
        let tasks = work.target_tasks;
        let tasks = plural(tasks, "task");
        facts.push(("work", format!("{} ({}, {length}, {tasks}{drops})", work.name, work.origin)));
    }
    if let Some(simulator) = &result.simulator {
        let switches = units::grouped(simulator.context_switches as i64);
        facts.push(("simulator", format!("{switches} switches, event hash {}", simulator.event_hash)));
    }
    let rows: Vec<Vec<(String, &str)>> = facts
        .into_iter()
        .map(|(name, value)| vec![(name.to_owned(), "soft"), (escape(&value), "")])
        .collect();
    let notes: String =
        result.notes.iter().map(|note| format!("<li>{}</li>", escape(&capital(note)))).collect();
    let notes = if notes.is_empty() { notes } else { format!("<h3>To be known</h3><ul>{notes}</ul>") };
    let meanings: String = Metric::ALL
        .iter()
        .map(|metric| format!("<li><code>{}</code> {}</li>", metric.key(), escape(metric.meaning().trim())))
        .collect();
    format!(
        "<section><h2>How this was obtained</h2>{}{notes}<details><summary>What the metrics mean</summary>\
         <ul>{meanings}</ul></details></section>",
        table(&["", ""], &rows, 2)
    )
}

fn plural(count: u32, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}

/// What to type next.
pub(super) fn next(result: &ResultFile) -> Option<String> {
    let commands: Vec<String> = result.next_commands.iter().map(|command| escape(command)).collect();
    (!commands.is_empty())
        .then(|| format!("<section><h2>Next</h2><pre>{}</pre></section>", commands.join("\n")))
}
