//! A [`Frame`] as lines of text: the words of each column, which the terminal uses too.

use super::{CpuRow, Filter, Frame, Sort, TaskRow};
use crate::text::{Table, TextOptions};
use crate::units;
use schedlab_model::Nanos;
use schedlab_model::tasks_now::Rank;

/// Titles of the columns of tasks.
pub const TASK_TITLES: [&str; 14] = [
    "pid",
    "task",
    "st",
    "cpu",
    "class",
    "policy",
    "nice",
    "static",
    "prio",
    "rank",
    "slice left",
    "CPU",
    "delay",
    "switches",
];
/// Those set flush right.
pub const TASK_RIGHT: [usize; 10] = [0, 3, 6, 7, 8, 9, 10, 11, 12, 13];
/// Titles of the columns of CPUs.
pub const CPU_TITLES: [&str; 7] = ["CPU", "busy", "queued", "by class", "runs", "class", "switches"];
/// Those set flush right.
pub const CPU_RIGHT: [usize; 4] = [0, 1, 2, 6];

/// The frame: a line about the machine, CPUs, then as many tasks as allowed.
pub fn render(frame: &Frame, sort: Sort, filter: &Filter, tasks_max: usize) -> String {
    let mut cpus = Table::new(&CPU_TITLES);
    cpus.right = CPU_RIGHT.to_vec();
    frame.cpus.iter().for_each(|row| cpus.row(cpu_cells(row).to_vec()));
    let rows = frame.sorted(sort, filter);
    let mut tasks = Table::new(&TASK_TITLES);
    tasks.right = TASK_RIGHT.to_vec();
    rows.iter().take(tasks_max).for_each(|row| tasks.row(task_cells(row).to_vec()));
    let mut text = format!("{}\n\n", headline(frame));
    text += &cpus.render(TextOptions::default());
    text.push('\n');
    text += &tasks.render(TextOptions::default());
    match rows.len().saturating_sub(tasks_max) {
        0 => text,
        rest => text + &format!("  and {rest} more\n"),
    }
}

/// Who schedules, over what time, and what its rank is.
pub fn headline(frame: &Frame) -> String {
    let waiting: u32 = frame.cpus.iter().map(|cpu| cpu.now.queued).sum();
    format!(
        "{} over {}: {} tasks, {waiting} runnable. Rank: {}",
        frame.scheduler.name,
        units::time(frame.interval.0 as f64),
        frame.tasks.len(),
        frame.scheduler.rank_words
    )
}

/// The cells of a CPU.
pub fn cpu_cells(row: &CpuRow) -> [String; 7] {
    let now = &row.now;
    let names = ["deadline", "rt", "fair", "ext"];
    let classes = names.iter().zip(now.by_class).filter(|(_, count)| *count > 0);
    let classes: Vec<String> = classes.map(|(name, count)| format!("{name} {count}")).collect();
    let runs = match now.current {
        0 => "-".to_owned(),
        pid => format!("{} ({pid})", clean(&now.current_name)),
    };
    [
        now.cpu.to_string(),
        row.busy_share.map_or("-".to_owned(), |share| units::percent(share, 0)),
        now.queued.to_string(),
        classes.join(", "),
        runs,
        now.class.name().to_owned(),
        units::grouped(row.switches as i64),
    ]
}

/// The cells of a task.
pub fn task_cells(row: &TaskRow) -> [String; 14] {
    let now = &row.now;
    let dash = || "-".to_owned();
    [
        now.pid.to_string(),
        clean(&now.name),
        now.activity.letter().to_string(),
        now.cpu.to_string(),
        now.class.name().to_owned(),
        policy_name(now.policy).to_owned(),
        now.nice.to_string(),
        now.prio_static.to_string(),
        dynamic(row).to_string(),
        now.rank.as_ref().map_or_else(dash, rank_words),
        now.slice_left.map_or_else(dash, short_time),
        units::percent(row.cpu_share, 1),
        row.delay.map_or_else(dash, short_time),
        units::grouped((row.switches[0] + row.switches[1]) as i64),
    ]
}

/// The scheduler's dynamic priority where it has one, else the kernel's.
pub fn dynamic(row: &TaskRow) -> i64 {
    match row.now.rank {
        Some(Rank::Level { level, .. }) => i64::from(level),
        _ => i64::from(row.now.prio),
    }
}

/// A rank, in its own unit.
pub fn rank_words(rank: &Rank) -> String {
    match *rank {
        Rank::Rt { priority } => format!("rt {priority}"),
        Rank::Deadline { deadline_ns } => short_time(Nanos(deadline_ns)),
        Rank::Eevdf { lag_ns, deadline_ns, .. } => {
            format!("{}{}", milliseconds(deadline_ns), if lag_ns >= 0 { "*" } else { " " })
        }
        Rank::Cfs { vruntime_ns } => milliseconds(vruntime_ns),
        Rank::Level { level, level_static } if level_static > 0 => {
            format!("{level} ({:+})", i64::from(level) - i64::from(level_static))
        }
        Rank::Level { level, .. } => level.to_string(),
        Rank::Vtime { key } => units::grouped(i64::try_from(key).unwrap_or(i64::MAX)),
    }
}

fn milliseconds(ns: i64) -> String {
    format!("{:+.2} ms", ns as f64 / 1e6)
}

fn short_time(time: Nanos) -> String {
    let ns = time.0 as f64;
    match time.0 {
        0 => "0".to_owned(),
        1..1_000_000 => format!("{:.0} us", ns / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns / 1e6),
        _ => format!("{:.2} s", ns / 1e9),
    }
}

/// By the kernel's numbers.
pub fn policy_name(policy: u32) -> &'static str {
    match policy {
        0 => "normal",
        1 => "fifo",
        2 => "rr",
        3 => "batch",
        5 => "idle",
        6 => "deadline",
        7 => "ext",
        _ => "?",
    }
}

/// A name that cannot move the cursor.
pub fn clean(name: &str) -> String {
    name.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{machine, task};
    use super::*;

    #[test]
    fn a_frame_reads_as_tables() {
        let before = machine(1_000, 500, vec![task(1, "hog", 100, 0)]);
        let evil = task(2, "a\x1b[2J", 0, 0);
        let now = machine(2_000, 750, vec![task(1, "hog", 850, 200), evil, task(3, "third", 0, 0)]);
        let frame = Frame::between(&before, &now);
        let text = render(&frame, Sort::Cpu, &Filter::default(), 2);
        let expected = "\
fair over 1.00 s: 3 tasks, 3 runnable. Rank: virtual deadline

  CPU  busy  queued  by class  runs     class  switches
    0  75 %       3  fair 3    hog (1)  fair      1,000

  pid  task   st  cpu  class  policy  nice  static  prio       rank  slice left     CPU     delay  switches
    1  hog    W     0  fair   normal     0     120   120  +0.00 ms*      700 us  75.0 %  200.0 ms       950
    2  a?[2J  W     0  fair   normal     0     120   120  +0.00 ms*      700 us   0.0 %         0         0
  and 1 more
";
        assert_eq!(text, expected);
    }

    #[test]
    fn ranks_are_in_their_own_units() {
        let words = [
            (Rank::Rt { priority: 50 }, "rt 50"),
            (Rank::Level { level: 115, level_static: 120 }, "115 (-5)"),
            (Rank::Eevdf { lag_ns: -5, deadline_ns: -1_500_000, vruntime_ns: 5 }, "-1.50 ms "),
            (Rank::Cfs { vruntime_ns: 3_000_000 }, "+3.00 ms"),
            (Rank::Vtime { key: 1_234_567 }, "1,234,567"),
        ];
        for (rank, expected) in words {
            assert_eq!(rank_words(&rank), expected);
        }
    }
}
