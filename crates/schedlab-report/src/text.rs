//! Results for terminals: triage first, then the ranking with winners and losers, then the next command.
//!
//! Width is that of terminal cells, not bytes. Colour only if the caller says that a terminal reads it.

use crate::compare::{Comparison, GuardStatus, More, Overall, Row, Verdict};
use crate::result::{ResultFile, RunRecord, TriageRecord, UsableHere};
use crate::units;
use schedlab_model::metric::Metric;
use schedlab_model::topology::cpus_text;
use unicode_width::UnicodeWidthStr;

/// How to write.
#[derive(Clone, Copy, Debug, Default)]
pub struct TextOptions {
    /// Colour by ANSI escapes.
    pub color: bool,
}

/// A whole result as text, ending in a newline.
pub fn render(result: &ResultFile, options: TextOptions) -> String {
    let mut out = String::new();
    if let Some(triage) = &result.triage {
        out += &triage_lines(triage);
    }
    out += &head(result);
    match &result.comparison {
        Some(comparison) => out += &comparison_text(result, comparison, options),
        None => result.runs.iter().for_each(|run| out += &run_text(run)),
    }
    for note in &result.notes {
        out += &format!("Note       {note}\n");
    }
    for (index, command) in result.next_commands.iter().enumerate() {
        out += &format!("{}{command}\n", if index == 0 { "Next       " } else { "           " });
    }
    out
}

/// Where the time went and what could be gained, before anything is compared.
pub fn triage_lines(triage: &TriageRecord) -> String {
    let total: u64 = triage.parts.iter().map(|part| part.ns).sum();
    let share = |ns: u64| units::percent(ns as f64 / total.max(1) as f64, 0);
    let parts: Vec<String> =
        triage.parts.iter().map(|part| format!("{} {}", part.name, share(part.ns))).collect();
    let mut out = format!("Triage     {}\n", triage.headline);
    if !parts.is_empty() {
        out += &format!("           of the tasks' time: {}\n", parts.join(", "));
    }
    out
}

fn head(result: &ResultFile) -> String {
    let mut out = String::new();
    let names: Vec<&str> = result.works.iter().map(|work| work.name.as_str()).collect();
    if !names.is_empty() {
        out += &format!("Work       {}\n", names.join(", "));
    }
    let environment = &result.environment;
    let machine = if environment.machine.is_empty() {
        String::new()
    } else {
        let cpus = cpus_text(environment.cpus as usize);
        format!(": {}, {cpus}, kernel {}", environment.machine, environment.kernel)
    };
    out + &format!("Obtained   {}{machine}\n", result.obtained.words())
}

fn comparison_text(result: &ResultFile, comparison: &Comparison, options: TextOptions) -> String {
    let better = if comparison.lower_is_better { "less is better" } else { "more is better" };
    let noise = comparison.noise_floor.map_or("unknown: the baseline ran once".to_owned(), |floor| {
        format!("±{}", units::percent(floor - 1.0, 1))
    });
    let mut out = format!(
        "Objective  {} ({better}), {} % intervals for all rows together, noise floor {noise}\n\n",
        comparison.quantity,
        (comparison.confidence * 100.0).round(),
    );
    out += &ranking(result, comparison, options);
    out += &format!("\nVerdict    {}\n", overall_sentence(comparison));
    for line in [rests_on(comparison), remedy(result, comparison)].into_iter().flatten() {
        out += &format!("           {line}\n");
    }
    out
}

fn ranking(result: &ResultFile, comparison: &Comparison, options: TextOptions) -> String {
    let guarded = comparison.rows.iter().any(|row| !row.guards.is_empty());
    let ratio_title = format!("ratio to {}", comparison.baseline);
    let mut titles = vec!["candidate", comparison.objective.as_str(), &ratio_title, "interval"];
    if guarded {
        titles.push("guards");
    }
    titles.extend(["verdict", "usable here now"]);
    let mut table = Table::new(&titles);
    for row in &comparison.rows {
        let (ratio, interval) = ratio_text(row);
        let value = row
            .value
            .map_or("-".into(), |value| units::value(&comparison.objective, &comparison.unit, value));
        let mut cells = vec![row.candidate.clone(), value, ratio, interval];
        if guarded {
            cells.push(guards_text(row));
        }
        cells.push(verdict_text(row));
        cells.push(usable_text(result, &row.candidate));
        table.rows.push((cells, color_of(row)));
    }
    table.right = vec![1, 2];
    table.render(options)
}

/// Ratio and interval of a row.
pub(crate) fn ratio_text(row: &Row) -> (String, String) {
    let Some(ratio) = row.ratio else { return ("-".into(), String::new()) };
    let interval = ratio.interval.map(|(low, high)| format!("{}–{}", units::ratio(low), units::ratio(high)));
    (units::ratio(ratio.estimate), interval.unwrap_or_default())
}

fn color_of(row: &Row) -> Option<&'static str> {
    match row.verdict {
        Verdict::Better if row.guards_kept() => Some("32"),
        Verdict::Worse | Verdict::Failed { .. } => Some("31"),
        Verdict::Better | Verdict::CannotTell { .. } => Some("33"),
        _ => None,
    }
}

/// Guards of a row, kept and broken.
pub(crate) fn guards_text(row: &Row) -> String {
    let one = |guard: &crate::compare::GuardResult| {
        let name = guard.guard.split(['>', '<']).next().unwrap_or_default().trim();
        let change = guard.change.map(units::change).unwrap_or_default();
        match guard.status {
            GuardStatus::Kept => format!("{name} {change} ok"),
            GuardStatus::Unclear => format!("{name} {change} doubtful"),
            GuardStatus::Broken => format!("{name} {change} BROKEN"),
            GuardStatus::NoData => format!("{name} no data"),
        }
    };
    row.guards.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// How far a ratio is from 1: in percent, or as a factor where percent would say "99 %".
fn size(ratio: f64) -> String {
    let factor = ratio.max(1.0 / ratio);
    if factor > 3.0 {
        format!("{} times", units::ratio(factor))
    } else {
        units::percent((ratio - 1.0).abs(), 0)
    }
}

/// The verdict on a row in a few words.
pub(crate) fn verdict_text(row: &Row) -> String {
    let by = row.ratio.map(|ratio| size(ratio.estimate)).unwrap_or_default();
    let words = match &row.verdict {
        Verdict::Baseline => "baseline".to_owned(),
        Verdict::Better if row.guards_kept() => format!("better ({by})"),
        Verdict::Better => format!("better ({by}), guard broken"),
        Verdict::Worse => format!("worse ({by})"),
        Verdict::NoDifference { below } => format!("no difference (< {})", units::percent(*below, 1)),
        Verdict::CannotTell { more, reason } => {
            format!("cannot tell: {}", how_to_tell(*more, reason.as_deref()))
        }
        Verdict::Failed { reason } => format!("failed: {reason}"),
    };
    match row.robustness {
        Some(robust) if robust.holds < robust.of || robust.baseline_failed > 0 => {
            format!("{words}, {robust}")
        }
        _ => words,
    }
}

/// What would decide, or why nothing does.
fn how_to_tell(more: Option<More>, reason: Option<&str>) -> String {
    match more {
        Some(More::Recordings(count)) => format!("record {count} more"),
        Some(More::Runs(count)) => format!("about {count} more runs"),
        None => reason.unwrap_or("the runs scatter too much").to_owned(),
    }
}

pub(crate) fn usable_text(result: &ResultFile, candidate: &str) -> String {
    let record = result.candidates.iter().find(|record| record.name == candidate);
    match record.map(|record| &record.usable_here) {
        Some(UsableHere::Yes) => "yes".to_owned(),
        Some(UsableHere::Needs(what)) => {
            format!("needs {}", what.split_once(':').map_or(what.as_str(), |(need, _remedy)| need))
        }
        Some(UsableHere::Unknown) | None => "not looked at".to_owned(),
    }
}

/// What the whole comparison says, in one sentence or two.
pub fn overall_sentence(comparison: &Comparison) -> String {
    let by = |name: &str| {
        let ratio = comparison.row(name).and_then(|row| row.ratio).map(|ratio| ratio.estimate);
        let better = if comparison.lower_is_better { "less" } else { "more" };
        let by = |ratio: f64| format!("{} {better} {}", size(ratio), comparison.quantity);
        ratio.map(by).unwrap_or_default()
    };
    match &comparison.overall {
        Overall::Use { candidate, usable_here: None } => {
            format!("{candidate} serves this work best: {} than {}.", by(candidate), comparison.baseline)
        }
        Overall::Use { candidate, usable_here: Some(here) } => format!(
            "{candidate} serves this work best: {} than {}. Of what this machine can apply now: {here}, {}.",
            by(candidate),
            comparison.baseline,
            by(here)
        ),
        Overall::KeepDefault => keep_default(comparison),
        Overall::NotScheduling { gain_max, candidate } => {
            let best = candidate.as_ref().map(|name| format!(" The best of them would be {name}."));
            format!(
                "Scheduling is not your problem: even an ideal scheduler would gain at most {}.{}",
                units::percent(*gain_max, 1),
                best.unwrap_or_default()
            )
        }
        Overall::CannotTell { more, candidate } => {
            let most = candidate.as_ref().map(|name| format!(" {name} looks most promising."));
            let row = candidate.as_ref().and_then(|name| comparison.row(name));
            let reason = row.and_then(|row| match &row.verdict {
                Verdict::CannotTell { reason, .. } => reason.as_deref(),
                _ => None,
            });
            format!("Cannot tell: {}.{}", how_to_tell(*more, reason), most.unwrap_or_default())
        }
    }
}

/// What is undecided looks no better, but is not known to be no better.
fn keep_default(comparison: &Comparison) -> String {
    let undecided = |row: &&Row| matches!(row.verdict, Verdict::CannotTell { .. });
    let (baseline, all) = (&comparison.baseline, comparison.rows.len().saturating_sub(1));
    match comparison.rows.iter().filter(undecided).count() {
        0 => format!("Keep the default: nothing is better than {baseline} for this work."),
        count => format!(
            "Keep the default: nothing looks better than {baseline} for this work; {count} of {all} candidates are undecided."
        ),
    }
}

/// What the winner needs, with the remedy.
pub(crate) fn remedy(result: &ResultFile, comparison: &Comparison) -> Option<String> {
    let Overall::Use { candidate, .. } = &comparison.overall else { return None };
    let record = result.candidates.iter().find(|record| record.name == *candidate)?;
    match &record.usable_here {
        UsableHere::Needs(what) => Some(format!("{candidate} needs {what}")),
        UsableHere::Yes | UsableHere::Unknown => None,
    }
}

/// What the winner's verdict rests on.
pub(crate) fn rests_on(comparison: &Comparison) -> Option<String> {
    let name = match &comparison.overall {
        Overall::Use { candidate, .. } => Some(candidate),
        Overall::NotScheduling { candidate, .. } | Overall::CannotTell { candidate, .. } => {
            candidate.as_ref()
        }
        Overall::KeepDefault => None,
    };
    let row = comparison.row(name?)?;
    let class = row.rests_on.as_ref().map(|class| {
        let effect = units::percent(class.error.share, 0);
        if class.checked {
            format!("rests on pairs of class '{}', whose effects are predicted within {effect}", class.class)
        } else {
            format!(
                "rests on pairs of class '{}', too few of which were checked against live kernels; effects of all \
                 classes together are predicted within {effect}",
                class.class
            )
        }
    });
    let robust = row.robustness.map(|robust| format!("holds {robust}"));
    let parts: Vec<String> = [class, robust].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

fn run_text(run: &RunRecord) -> String {
    let mut out = format!("Run        {}, seed {}\n", run.candidate, run.seed);
    if let Some(exit) = &run.scheduler_exit {
        out += &format!("Ended      {} ({}): {}\n", exit.reason, exit.kind, exit.message);
    }
    out.push('\n');
    let mut table = Table::new(&["metric", "value", "meaning"]);
    for metric in Metric::ALL {
        if let Some(value) = run.values.get(metric.key()) {
            let value = units::value(metric.key(), metric.unit(), *value);
            table.rows.push((vec![metric.key().into(), value, metric.meaning().trim().into()], None));
        }
    }
    table.right = vec![1];
    out + &table.render(TextOptions::default()) + "\n"
}

/// A table whose columns are as wide as their widest cell.
pub struct Table {
    titles: Vec<String>,
    rows: Vec<(Vec<String>, Option<&'static str>)>,
    /// Columns set flush right.
    pub right: Vec<usize>,
}

impl Table {
    /// A table without rows.
    pub fn new(titles: &[&str]) -> Table {
        let titles = titles.iter().map(|title| (*title).to_owned()).collect();
        Table { titles, rows: Vec::new(), right: Vec::new() }
    }

    /// Adds a row: as many cells as there are titles.
    pub fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.titles.len(), "a cell for each title");
        self.rows.push((cells, None));
    }

    /// The lines, titles first.
    pub fn render(&self, options: TextOptions) -> String {
        let lines = || std::iter::once(&self.titles).chain(self.rows.iter().map(|(cells, _)| cells));
        let width = |column: usize| lines().map(|cells| cells[column].width()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.titles.len()).map(width).collect();
        let line = |cells: &[String]| {
            let mut out = String::from(" ");
            for (column, cell) in cells.iter().enumerate() {
                let padding = " ".repeat(widths[column] - cell.width());
                let right = self.right.contains(&column);
                let text = if right { format!("{padding}{cell}") } else { format!("{cell}{padding}") };
                out += &format!(" {text} ");
            }
            out.trim_end().to_owned()
        };
        let mut out = line(&self.titles) + "\n";
        for (cells, color) in &self.rows {
            match color.filter(|_| options.color) {
                Some(color) => out += &format!("\x1b[{color}m{}\x1b[0m\n", line(cells)),
                None => out += &format!("{}\n", line(cells)),
            }
        }
        out
    }
}
