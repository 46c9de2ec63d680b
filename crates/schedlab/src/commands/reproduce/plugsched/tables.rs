//! The paper's tables with our numbers beside them.

use super::code::Decision;
use super::printed::{PLUGSCHED, Spread};
use super::{Ours, common, hackbench_seconds};
use schedlab_report::samples::{interbench_deviation, summarise};
use schedlab_report::text::Table;

/// All of them.
pub fn all(ours: &Ours) -> String {
    let wakeups = [("rt", "real-time"), ("normal", "ordinary")];
    let wakeups = wakeups
        .iter()
        .flat_map(|(part, thread)| [false, true].map(|filtered| wakeup(ours, part, thread, filtered)));
    hackbench(ours) + &wakeups.collect::<String>() + &waker(ours) + &interbench(ours) + &decisions(ours)
}

fn table(titles: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new(titles);
    table.right = (1..titles.len()).collect();
    rows.into_iter().for_each(|row| table.row(row));
    table.render(common::text_options()) + "\n"
}

fn hackbench(ours: &Ours) -> String {
    let seconds = hackbench_seconds(&ours.first);
    let row = |index: usize| {
        let paper = &PLUGSCHED[index];
        let ratio = paper.hackbench_s / PLUGSCHED[0].hackbench_s;
        let numbers = [paper.hackbench_s, seconds[index], ratio, seconds[index] / seconds[0]];
        let cells = numbers.iter().enumerate().map(|(column, number)| match column {
            0 | 1 => format!("{number:.3}"),
            _ => format!("{number:.2}"),
        });
        std::iter::once(paper.name.to_owned()).chain(cells).collect()
    };
    let titles = ["hackbench 30, s", "slides", "ours", "slides, of ingosched's", "ours"];
    table(&titles, (0..PLUGSCHED.len()).map(row).collect())
}

fn wakeup(ours: &Ours, part: &str, thread: &str, filtered: bool) -> String {
    let row = |paper: &super::printed::OfPaper| {
        let printed = if part == "rt" { paper.rt } else { paper.normal }[usize::from(filtered)];
        let found = ours.first.wakeup.iter().find(|row| row.scheduler == paper.name && row.part == part);
        let summary = found.and_then(|row| row.summary(filtered));
        let ours: Spread = summary
            .map_or([f64::NAN; 4], |s| [s.mean, s.min as f64, s.max as f64, s.standard_deviation])
            .map(|ns| ns / 1e3);
        let cells = printed.iter().chain(&ours).map(|number| format!("{number:.2}"));
        std::iter::once(paper.name.to_owned()).chain(cells).collect()
    };
    let what = if filtered { "filtered" } else { "raw" };
    let title = format!("{thread} thread, us, {what}");
    let titles = [&title, "slides: mean", "min", "max", "deviation", "ours: mean", "min", "max", "deviation"];
    table(&titles, PLUGSCHED.iter().map(row).collect())
}

/// How late the waker itself ran: what a real-time thread waits for that a timer wakes in the middle of somebody's call.
fn waker(ours: &Ours) -> String {
    let rows = ours.first.wakeup.iter().filter(|row| row.part == "normal");
    let row = |row: &super::Row| {
        let summary = summarise(&row.waker_error_ns);
        let us =
            summary.map_or([f64::NAN; 4], |s| [s.mean, s.min as f64, s.max as f64, s.standard_deviation]);
        std::iter::once(row.scheduler.clone()).chain(us.map(|ns| format!("{:.2}", ns / 1e3))).collect()
    };
    let titles = ["the waker after its timer, us", "ours: mean", "min", "max", "deviation"];
    table(&titles, rows.map(row).collect())
}

/// The slides' pictures of interbench are lost, but for what they show an excerpt of: the video beside X.
fn interbench(ours: &Ours) -> String {
    let mut rows = Vec::new();
    for (class, of_class) in [("ordinary", &ours.interbench), ("real-time", &ours.interbench_rt)] {
        for row in of_class.iter().filter(|row| row.part == "video/x") {
            let Some((summary, frames)) = row.summary(false).zip(row.frames) else { continue };
            let ms = [
                summary.mean,
                interbench_deviation(&row.samples_ns),
                summary.standard_deviation,
                summary.max as f64,
            ];
            let percent = [frames.desired_cpu_percent(), frames.deadlines_met_percent()];
            let cells = ms.iter().map(|ns| format!("{:.3}", ns / 1e6));
            let cells = cells.chain(percent.map(|value| format!("{:.1}", value.unwrap_or(f64::NAN))));
            rows.push(std::iter::once(format!("{}, {class}", row.scheduler)).chain(cells).collect());
        }
    }
    let titles = [
        "interbench: video beside X, ms",
        "latency",
        "+/- SD",
        "true SD",
        "max",
        "% desired CPU",
        "% deadlines met",
    ];
    table(&titles, rows)
}

/// What the slides wished to measure: time in the scheduler's functions, here in instructions of its object.
fn decisions(ours: &Ours) -> String {
    let row = |decision: &Decision| {
        let of_cpus = [&decision.one_cpu, &decision.four_cpus].into_iter().flat_map(|cost| {
            let dearest = cost.callbacks.first().map_or("-", |callback| callback.callback.as_str());
            let longest = cost.callbacks.iter().map(|callback| callback.instructions_max).max().unwrap_or(0);
            [format!("{:.0}", cost.instructions_per_switch), dearest.to_owned(), longest.to_string()]
        });
        std::iter::once(decision.scheduler.to_owned()).chain(of_cpus).collect()
    };
    let titles = [
        "BPF instructions of a switch",
        "ours: 1 CPU",
        "dearest",
        "longest call",
        "ours: 4 CPUs",
        "dearest",
        "longest call",
    ];
    let decisions = ours.code.iter().flat_map(|code| &code.decisions);
    let rows: Vec<Vec<String>> = decisions.map(row).collect();
    if rows.is_empty() { String::new() } else { table(&titles, rows) }
}
