//! A result as one self-contained page: no network, no script, light and dark, readable aloud.
//!
//! Text comes from [`crate::text`] where it says the same thing; each picture has its own file here. In
//! every picture of time "up" means "runs sooner", and raw units are on the axis. The frame and the style
//! are templates/page.html and templates/page.css.

mod distributions;
mod priorities;
mod progress;
mod ranking;
mod slices;
mod svg;
mod tables;
mod timeline;

pub use priorities::{LivePriorities, page as live_priorities};
pub use slices::{CallbackCost, DecisionCost, SchedulerPage, SliceCurve, page as scheduler_page};

use crate::result::{ResultFile, TimeKind, TriageRecord};
use crate::text;
use crate::timeline::Timeline;
use crate::units;
use schedlab_model::topology::cpus_text;

const PAGE: &str = include_str!("../../templates/page.html");
const STYLE: &str = include_str!("../../templates/page.css");

/// One run of a candidate, to be shown over time.
#[derive(Clone, Debug)]
pub struct Picture {
    /// Name of the candidate.
    pub candidate: String,
    /// What happened when.
    pub timeline: Timeline,
    /// Whether a task belongs to the target, by task.
    pub target: Vec<bool>,
}

/// The page of a recording: its facts, each with its name, and its pictures.
pub fn recording_page(title: &str, facts: &[(&str, String)], picture: &Picture, version: &str) -> String {
    let pictures = std::slice::from_ref(picture);
    let sections =
        [timeline::section(None, pictures), progress::section(pictures), priorities::section(pictures)];
    let sections: Vec<String> = sections.into_iter().flatten().collect();
    let none = "<section><p>Nothing ran in it.</p></section>".to_owned();
    framed(&Frame {
        title,
        obtained: "a recording",
        facts,
        sections: if sections.is_empty() { none } else { sections.join("\n") },
        version,
    })
}

/// What a page without a verdict has in the common frame.
struct Frame<'a> {
    title: &'a str,
    obtained: &'a str,
    facts: &'a [(&'a str, String)],
    sections: String,
    version: &'a str,
}

fn framed(frame: &Frame<'_>) -> String {
    let values = [
        ("title", escape(frame.title)),
        ("css", STYLE.to_owned()),
        ("obtained", escape(frame.obtained)),
        ("verdict", escape(frame.title)),
        ("basis", String::new()),
        ("facts", frame.facts.iter().map(|(name, value)| fact(name, value)).collect()),
        ("sections", frame.sections.clone()),
        ("version", escape(frame.version)),
    ];
    fill(PAGE, &values)
}

/// The page.
pub fn page(result: &ResultFile, pictures: &[Picture]) -> String {
    let sections = [
        result.triage.as_ref().map(triage),
        result.comparison.as_ref().map(|comparison| ranking::section(result, comparison)),
        distributions::section(result),
        timeline::section(result.comparison.as_ref(), pictures),
        progress::section(pictures),
        priorities::section(pictures),
        tables::tasks(result),
        tables::fidelity(result),
        Some(tables::how(result)),
        tables::next(result),
    ];
    let sections: Vec<String> = sections.into_iter().flatten().collect();
    let names: Vec<&str> = result.works.iter().map(|work| work.name.as_str()).collect();
    let verdict = match (&result.comparison, result.runs.first()) {
        (Some(comparison), _) => text::overall_sentence(comparison),
        (None, Some(run)) => format!("{} under {}", names.join(", "), run.candidate),
        (None, None) => names.join(", "),
    };
    let basis: String = result
        .comparison
        .iter()
        .flat_map(|comparison| [text::rests_on(comparison), text::remedy(result, comparison)])
        .flatten()
        .map(|line| format!("<p class=\"basis\">{}.</p>", escape(&line)))
        .collect();
    let values = [
        ("title", escape(&format!("schedlab: {}", names.join(", ")))),
        ("css", STYLE.to_owned()),
        ("obtained", escape(result.obtained.words())),
        ("verdict", escape(&verdict)),
        ("basis", basis),
        ("facts", facts(result, &names)),
        ("sections", sections.join("\n")),
        ("version", escape(&result.program_version)),
    ];
    fill(PAGE, &values)
}

fn facts(result: &ResultFile, names: &[&str]) -> String {
    let runs = result.runs.iter().filter(|run| run.cost_seed.is_none()).count();
    let mut facts = vec![("Work", names.join(", "))];
    if let Some(comparison) = &result.comparison {
        facts.push(("Objective", comparison.quantity.clone()));
    }
    let cpus = cpus_text(result.environment.cpus as usize);
    facts.push(("Machine", format!("{}, {cpus}", result.environment.machine)));
    facts.push(("Kernel", result.environment.kernel.clone()));
    facts.push(("Runs", units::grouped(runs as i64)));
    facts.iter().map(|(name, value)| fact(name, value)).collect()
}

fn fact(name: &str, value: &str) -> String {
    format!("<div><dt>{}</dt><dd>{}</dd></div>", escape(name), escape(value))
}

fn triage(triage: &TriageRecord) -> String {
    let total = triage.parts.iter().map(|part| part.ns).sum::<u64>().max(1) as f64;
    let mut asleep = 0;
    let (mut bar, mut legend) = (String::new(), String::new());
    for part in &triage.parts {
        let class = match part.kind {
            TimeKind::Running => "run".to_owned(),
            TimeKind::Waiting => "wait".to_owned(),
            TimeKind::Asleep => {
                asleep += 1;
                format!("sleep{}", (asleep - 1).min(3))
            }
        };
        let share = part.ns as f64 / total;
        let label = format!("{} {} ({})", part.name, units::percent(share, 1), units::time(part.ns as f64));
        let label = escape(&label);
        bar += &format!("<span class=\"{class}\" style=\"flex:{share:.5}\" title=\"{label}\"></span>");
        legend += &format!("<li><span class=\"key {class}\"></span>{label}</li>");
    }
    format!(
        "<section><h2>Can scheduling help at all?</h2><p>{}.</p>\
         <div class=\"bar\" role=\"img\" aria-label=\"Where the tasks' time went\">{bar}</div>\
         <ul class=\"legend\">{legend}</ul></section>",
        escape(&capital(triage.headline.trim_end_matches('.')))
    )
}

/// Replaces `{{name}}` once each; values are not looked into again.
fn fill(template: &str, values: &[(&str, String)]) -> String {
    let mut out = String::with_capacity(template.len());
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, tail) = after.split_once("}}").expect("templates close what they open");
        let value = values.iter().find(|(known, _)| *known == name).expect("every placeholder has a value");
        out.push_str(before);
        out.push_str(&value.1);
        rest = tail;
    }
    out.push_str(rest);
    out
}

/// Text made safe for elements and quoted attributes.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Control characters have no meaning in a page; task names may hold any byte.
            other if other.is_control() => out.push('\u{fffd}'),
            other => out.push(other),
        }
    }
    out
}

fn capital(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map(|first| first.to_uppercase().chain(characters).collect()).unwrap_or_default()
}

/// A table from header cells and rows of cells that are HTML already. Columns after `left` are numbers.
fn table(header: &[&str], rows: &[Vec<(String, &str)>], left: usize) -> String {
    let class = |column: usize| if column < left { "" } else { " class=\"n\"" };
    let mut out = String::from("<div class=\"scroll\"><table><thead><tr>");
    for (column, title) in header.iter().enumerate() {
        out += &format!("<th scope=\"col\"{}>{}</th>", class(column), escape(title));
    }
    out += "</tr></thead><tbody>";
    for row in rows {
        out += "<tr>";
        for (column, (cell, extra)) in row.iter().enumerate() {
            let number = if column < left { "" } else { "n " };
            out += &format!("<td class=\"{number}{extra}\">{cell}</td>");
        }
        out += "</tr>";
    }
    out + "</tbody></table></div>"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tasks_are_called_cannot_break_the_page() {
        assert_eq!(escape("a<b>&\"c'\u{1}"), "a&lt;b&gt;&amp;&quot;c&#39;\u{fffd}");
        let filled = fill("x{{one}}y{{two}}", &[("one", "{{two}}".into()), ("two", "2".into())]);
        assert_eq!(filled, "x{{two}}y2");
    }
}
