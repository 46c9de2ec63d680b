//! What character the tasks of a recording have: batch, interactive, periodic, communicating; from measured bursts, sleep
//! and wake-ups.
//!
//! A task's bursts run from one sleep to the next, whatever preempted it in between. Tasks of one name (but for a number at
//! its end) are measured together. What the words mean and why the borders lie where they lie: docs/character.md. Not here:
//! what would serve such a task ([`crate::compare`] says that of runs, never of a character alone).

mod cache;
mod measure;
#[cfg(test)]
mod tests;

use crate::text::{Table, TextOptions};
use measure::Sums;
use schedlab_model::recording::{CacheCounting, Recording};
use schedlab_model::time::Nanos;
use schedlab_model::timeline::Timelines;
use serde::Serialize;
use std::collections::BTreeMap;

/// Half of a batch task's CPU time lies in bursts at least so long: CFS's latency on one CPU and two base slices of EEVDF.
/// No slice serves such a burst, so how long it takes depends on shares and not on how soon it starts.
pub const LONG_BURST: Nanos = Nanos::from_millis(6);
/// Who sleeps a larger part of the time in which it does not wait for a CPU is interactive, unless others or a timer drive
/// it: where FreeBSD's ULE draws the line (a score of 30 is 0.6 of running time to one of sleep).
pub const SLEEPS_MUCH: f64 = 0.625;
/// A periodic task is woken by timers so often.
pub const TIMED: f64 = 0.8;
/// The middle half of a periodic task's intervals lies within this part of their median.
pub const REGULAR: f64 = 0.1;
/// A communicating task is woken by other tasks so often.
pub const WOKEN_BY_TASKS: f64 = 0.5;
/// Fewer wake-ups tell nothing: of ten, a share of one half is known to within 0.3.
pub const WAKEUPS_MIN: u64 = 10;

/// In a word, what the tasks are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Woken by timers at regular times.
    Periodic,
    /// Runs for long at a stretch.
    Batch,
    /// Woken by other tasks.
    Communicating,
    /// Sleeps most of the time, and neither a regular timer nor mostly other tasks wake it.
    Interactive,
    /// None of these.
    Mixed,
    /// Too little was recorded.
    Unknown,
}

impl Kind {
    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Periodic => "periodic",
            Kind::Batch => "batch",
            Kind::Communicating => "communicating",
            Kind::Interactive => "interactive",
            Kind::Mixed => "mixed",
            Kind::Unknown => "cannot tell",
        }
    }
}

/// What was measured of tasks of one name. Times in ns, shares 0 to 1; `None` where there was nothing to measure.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Measures {
    /// CPU time without interrupts.
    pub cpu_ns: u64,
    /// Time asleep.
    pub sleep_ns: u64,
    /// Time waiting for a CPU.
    pub run_delay_ns: u64,
    /// Sleep as a part of sleep and CPU time: waiting is the scheduler's doing.
    pub sleep_ratio: Option<f64>,
    /// Bursts, those cut off by the ends of the recording too.
    pub bursts: u64,
    /// Median burst.
    pub burst_median_ns: Option<u64>,
    /// Half of the CPU time lies in bursts at least so long.
    pub burst_half_ns: Option<u64>,
    /// Longest burst.
    pub burst_max_ns: Option<u64>,
    /// Wake-ups whose cause is known.
    pub wakeups: u64,
    /// Share of them made by timers.
    pub by_timer: Option<f64>,
    /// By other tasks.
    pub by_tasks: Option<f64>,
    /// By devices and other interrupts.
    pub by_others: Option<f64>,
    /// The tasks that woke them most: name and share of all wake-ups.
    pub wakers: Vec<(String, f64)>,
    /// Median time between wake-ups by timers.
    pub period_ns: Option<u64>,
    /// Width of the middle half of these times, as a part of the median of each task.
    pub period_spread: Option<f64>,
    /// Accesses that reached the cache that was counted; `None` where no use of caches was.
    pub cache_references: Option<u64>,
    /// Of which found nothing there.
    pub cache_misses: Option<u64>,
    /// Bytes that a burst brought into the cache: the median.
    pub cache_footprint_bytes: Option<u64>,
}

/// Tasks of one name.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Character {
    /// The name; with `*` for the number at the end.
    pub name: String,
    /// How many.
    pub tasks: u32,
    /// Whether they belong to the target.
    pub target: bool,
    /// What they are like.
    pub kind: Kind,
    /// Why, or what it would take to tell.
    pub because: String,
    /// What was measured.
    pub measures: Measures,
}

/// Every group of tasks that did something: the target's first, then by CPU time.
pub fn of(recording: &Recording) -> Vec<Character> {
    let timelines = Timelines::of(recording);
    let uses = cache::uses(recording);
    let mut groups: BTreeMap<(bool, String), Sums> = BTreeMap::new();
    for ((task, stretches), uses) in recording.tasks.iter().zip(&timelines.tasks).zip(&uses).skip(1) {
        let sums = groups.entry((task.target, group_name(&task.name))).or_default();
        sums.add(stretches, |waker| group_name(&recording.task(waker).name));
        sums.caches.add(stretches, uses);
    }
    let mut all: Vec<Character> = groups
        .into_iter()
        .filter(|(_, sums)| sums.tasks > 0)
        .map(|((target, name), sums)| {
            let (tasks, measures) = (sums.tasks, sums.finish(cache::line_bytes(recording)));
            let (kind, because) = judge(&measures, recording.duration);
            Character { name, tasks, target, kind, because, measures }
        })
        .collect();
    all.sort_by_key(|group| (!group.target, std::cmp::Reverse(group.measures.cpu_ns)));
    all
}

/// A name without the number at its end.
fn group_name(name: &str) -> String {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    if stem.is_empty() || stem.len() == name.len() { name.to_owned() } else { format!("{stem}*") }
}

/// The first of the rules that holds, and in what numbers it does.
fn judge(measures: &Measures, duration: Nanos) -> (Kind, String) {
    let Measures { by_timer, by_tasks, wakeups, .. } = *measures;
    let (by_timer, by_tasks) = (by_timer.unwrap_or(0.0), by_tasks.unwrap_or(0.0));
    let half = measures.burst_half_ns.unwrap_or(0);
    let sleep = measures.sleep_ratio.unwrap_or(0.0);
    let long = half >= LONG_BURST.0 && sleep < SLEEPS_MUCH;
    let enough = wakeups >= WAKEUPS_MIN;
    if let Some((period, spread)) = measures.period_ns.zip(measures.period_spread)
        && enough
        && by_timer >= TIMED
        && spread <= REGULAR
    {
        let (share, period) = (percent(by_timer), Nanos(period));
        let spread = percent(spread);
        return (
            Kind::Periodic,
            format!("{share} of its wake-ups are by timers, {period} apart, within {spread}"),
        );
    }
    if long {
        return (Kind::Batch, format!("half of its CPU time lies in bursts of {} or more", Nanos(half)));
    }
    if !enough {
        return (Kind::Unknown, too_little(wakeups, duration));
    }
    if by_tasks >= WOKEN_BY_TASKS {
        let wakers: Vec<&str> = measures.wakers.iter().map(|(name, _)| name.as_str()).collect();
        let wakers = wakers.join(", ");
        return (
            Kind::Communicating,
            format!("{} of its wake-ups are by tasks: {wakers}", percent(by_tasks)),
        );
    }
    if sleep >= SLEEPS_MUCH {
        let by_others = percent(measures.by_others.unwrap_or(0.0));
        let woken =
            format!("{} by timers, {} by tasks, {by_others} by others", percent(by_timer), percent(by_tasks));
        return (Kind::Interactive, format!("it sleeps {} of the time, woken {woken}", percent(sleep)));
    }
    (Kind::Mixed, format!("it sleeps {} of the time, and no rule holds", percent(sleep)))
}

/// How long it would take to tell.
fn too_little(wakeups: u64, duration: Nanos) -> String {
    let needs = format!("{wakeups} of the {WAKEUPS_MIN} wake-ups that it takes were seen");
    match duration.0.checked_mul(WAKEUPS_MIN).and_then(|all| all.checked_div(wakeups)) {
        Some(ns) => {
            let seconds = (ns as f64 / 1e9).max(0.1);
            format!("{needs}: record for about {seconds:.1} s")
        }
        None => format!("{needs}, or {LONG_BURST} of CPU time at a stretch: record for longer"),
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Rows that are printed; the rest is counted.
const ROWS_MAX: usize = 40;

/// All groups as a table; `caches` is what the recording says of its counters.
pub fn render(all: &[Character], caches: Option<&CacheCounting>, options: TextOptions) -> String {
    let counted = matches!(caches, Some(CacheCounting::Counted { .. }));
    let titles = ["tasks", "", "is", "half of CPU in", "sleep", "by timer", "by tasks", "else"];
    let extra: &[&str] = if counted { &["brings in", "misses"] } else { &[] };
    let mut table = Table::new(&[&titles, extra, &["because"]].concat());
    table.right = [vec![1], (3..titles.len() + extra.len()).collect()].concat();
    let share = |share: Option<f64>| share.map_or("-".to_owned(), percent);
    for group in all.iter().take(ROWS_MAX) {
        let Measures { burst_half_ns, sleep_ratio, by_timer, by_tasks, by_others, .. } = group.measures;
        let name = if group.target { group.name.clone() } else { format!("({})", group.name) };
        let mut row = vec![
            name,
            group.tasks.to_string(),
            group.kind.name().to_owned(),
            burst_half_ns.map_or("-".to_owned(), |ns| Nanos(ns).to_string()),
            share(sleep_ratio),
            share(by_timer),
            share(by_tasks),
            share(by_others),
        ];
        if counted {
            row.extend(cache::cells(&group.measures));
        }
        row.push(group.because.clone());
        table.row(row);
    }
    let rest = all.len().saturating_sub(ROWS_MAX);
    let more = if rest > 0 { format!("  and {rest} more groups\n") } else { String::new() };
    let notes = format!(
        "Tasks of one name are one row; those in brackets are not of the target. Cache footprint: {}.\nWhat the words mean: \
         docs/character.md. A character recommends nothing: `schedlab compare` says whether a lever has an effect.\n",
        cache::note(caches)
    );
    table.render(options) + &more + &notes
}
