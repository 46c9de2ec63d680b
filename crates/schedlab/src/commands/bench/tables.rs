//! The tables that the benchmarks print.

use super::{Row, common};
use schedlab_report::samples::{Summary, interbench_deviation, summarise};
use schedlab_report::text::Table;

/// The columns that say how samples are spread.
const SPREAD: [&str; 5] = ["n", "mean", "min", "max", "deviation"];

fn spread(summary: Option<Summary>) -> Vec<String> {
    let us = |ns: f64| format!("{:.2}", ns / 1000.0);
    match summary {
        Some(s) => {
            let all = [s.mean, s.min as f64, s.max as f64, s.standard_deviation];
            std::iter::once(s.count.to_string()).chain(all.map(us)).collect()
        }
        None => std::iter::once("0".to_owned()).chain(std::iter::repeat_n("-".to_owned(), 4)).collect(),
    }
}

/// What a reader must know of a row.
fn marks(row: &Row) -> String {
    match (&row.ended, row.cut) {
        _ if row.left_out => "left out",
        (Some(_), _) => "ended early",
        (None, true) => "cut",
        (None, false) => "",
    }
    .to_owned()
}

fn table_of<'a>(
    title: &str,
    rows: impl Iterator<Item = &'a Row>,
    summary: impl Fn(&Row) -> Option<Summary>,
) -> String {
    let mut table = Table::new(&[&["scheduler"][..], &SPREAD, &[""]].concat());
    table.right = (1..=SPREAD.len()).collect();
    for row in rows {
        table.row([vec![row.scheduler.clone()], spread(summary(row)), vec![marks(row)]].concat());
    }
    format!("{title}\n{}\n", table.render(common::text_options()))
}

/// Raw and filtered latencies, and how exact the waker was.
pub fn wakeup(rows: &[Row]) -> String {
    let mut out = String::new();
    for (part, thread) in [("rt", "a real-time thread"), ("normal", "an ordinary thread")] {
        let of_part = || rows.iter().filter(|row| row.part == part);
        if of_part().next().is_none() {
            continue;
        }
        let raw = format!("Wake-up latency of {thread}, us, all samples");
        let kept = format!("Wake-up latency of {thread}, us, without those above mean + 6 deviations");
        let waker = format!("How late the waker was itself, us, beside {thread}");
        out += &table_of(&raw, of_part(), |row| row.summary(false));
        out += &table_of(&kept, of_part(), |row| row.summary(true));
        out += &table_of(&waker, of_part(), |row| summarise(&row.waker_error_ns));
    }
    out
}

/// Seconds until all is done.
pub fn hackbench(rows: &[Row]) -> String {
    let mut table = Table::new(&["scheduler", "s", ""]);
    table.right = vec![1];
    for row in rows {
        let seconds = format!("{:.3}", row.duration_ns as f64 / 1e9);
        table.row(vec![row.scheduler.clone(), seconds, marks(row)]);
    }
    format!("hackbench: time until all is done\n{}", table.render(common::text_options()))
}

/// What a reader must know of the rows, each once.
pub fn notes(rows: &[Row]) -> String {
    let mut all: Vec<&String> = rows.iter().flat_map(|row| &row.notes).collect();
    all.sort();
    all.dedup();
    all.into_iter().map(|note| format!("Note: {note}\n")).collect()
}

/// What a reader of interbench's own tables would miss.
const LEFT_OUT: &str = "Hack is left out, as in 0.31.\n";

/// A table for each task and scheduler, a line for each load. Latencies in ms, of a real-time task in us.
pub fn interbench(rows: &[Row], real_time: bool) -> String {
    let (unit, ns) = if real_time { ("us", 1e3) } else { ("ms", 1e6) };
    let mut heads: Vec<(&str, &str)> = Vec::new();
    for row in rows {
        let task = row.part.split('/').next().unwrap_or_default();
        if !heads.contains(&(row.scheduler.as_str(), task)) {
            heads.push((&row.scheduler, task));
        }
    }
    let mut out = String::new();
    for (scheduler, task) in heads {
        let titles =
            ["load", "n", "latency", "+/- SD", "true SD", "max", "% desired CPU", "% deadlines met", ""];
        let mut table = Table::new(&titles);
        table.right = (1..titles.len() - 1).collect();
        for row in rows.iter().filter(|row| row.scheduler == scheduler) {
            if let Some((_, load)) = row.part.split_once('/').filter(|(name, _)| *name == task) {
                table.row(frames_line(load, row, ns));
            }
        }
        let class = if real_time { "a real-time task" } else { "an ordinary task" };
        out += &format!("interbench: {task}, {class}, under {scheduler}; {unit}\n");
        out += &(table.render(common::text_options()) + "\n");
    }
    out + LEFT_OUT
}

fn frames_line(load: &str, row: &Row, ns: f64) -> Vec<String> {
    let one = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.1}"));
    let summary = summarise(&row.samples_ns);
    let spread = [
        summary.map(|s| s.mean / ns),
        summary.map(|_| interbench_deviation(&row.samples_ns) / ns),
        summary.map(|s| s.standard_deviation / ns),
        summary.map(|s| s.max as f64 / ns),
        row.frames.and_then(|frames| frames.desired_cpu_percent()),
        row.frames.and_then(|frames| frames.deadlines_met_percent()),
    ];
    let head = [load.to_owned(), row.samples_ns.len().to_string()];
    head.into_iter().chain(spread.map(one)).chain([marks(row)]).collect()
}
