//! The ranking: a row for each candidate with its ratio as dot and whisker on one logarithmic axis, the
//! noise floor as a band around equality.

use super::svg::Scale;
use super::{escape, fill};
use crate::compare::{Comparison, Row, Verdict};
use crate::result::{ResultFile, UsableHere};
use crate::{text, units};

const WIDTH: f64 = 400.0;
const HEIGHT: f64 = 34.0;
/// Ratios beyond are drawn at the edge with an arrow: one absurd loser must not flatten all others.
const RATIO_MAX: f64 = 32.0;

pub(super) fn section(result: &ResultFile, comparison: &Comparison) -> String {
    let scale = scale(comparison);
    let guarded = comparison.rows.iter().any(|row| !row.guards.is_empty());
    let rows: String =
        comparison.rows.iter().map(|row| line(result, comparison, row, &scale, guarded)).collect();
    let better = if comparison.lower_is_better { "left of 1 is better" } else { "right of 1 is better" };
    let noise = comparison.noise_floor.map_or(String::new(), |floor| {
        format!(
            " The grey band is the noise floor: the baseline lies within ±{} of itself.",
            units::percent(floor - 1.0, 1)
        )
    });
    let template = "<section><h2>Ranking by {{quantity}}</h2>\
        <p class=\"note\">Ratio to {{baseline}} on a logarithmic axis, {{better}}. Whiskers are {{confidence}} % \
        intervals that hold for all rows together.{{noise}}</p>\
        <div class=\"scroll\"><table><thead><tr><th scope=\"col\">candidate</th>\
        <th scope=\"col\" class=\"n\">{{objective}}</th><th scope=\"col\" class=\"n\">ratio</th>\
        <th scope=\"col\" class=\"plot\">{{axis}}</th><th scope=\"col\">verdict</th>{{guards}}\
        <th scope=\"col\">usable here now</th></tr></thead><tbody>{{rows}}</tbody></table></div></section>";
    fill(
        template,
        &[
            ("quantity", escape(&comparison.quantity)),
            ("baseline", escape(&comparison.baseline)),
            ("better", better.to_owned()),
            ("confidence", format!("{:.0}", comparison.confidence * 100.0)),
            ("noise", noise),
            ("objective", escape(&comparison.objective)),
            ("axis", axis(&scale)),
            ("guards", if guarded { "<th scope=\"col\">guards</th>".to_owned() } else { String::new() }),
            ("rows", rows),
        ],
    )
}

fn scale(comparison: &Comparison) -> Scale {
    let ratios = comparison.rows.iter().filter_map(|row| row.ratio);
    let ends = ratios.flat_map(|ratio| {
        let (low, high) = ratio.interval.unwrap_or((ratio.estimate, ratio.estimate));
        [low, high, ratio.estimate]
    });
    let floor = comparison.noise_floor.unwrap_or(1.0).min(RATIO_MAX);
    let far = ends.chain([floor, 1.0 / floor, 0.9, 1.1]).map(|end| end.clamp(1.0 / RATIO_MAX, RATIO_MAX));
    let (low, high) = far.fold((1.0_f64, 1.0_f64), |(low, high), end| (low.min(end), high.max(end)));
    Scale::logarithmic(low * 0.93, high * 1.07, 14.0, WIDTH - 14.0)
}

fn svg(height: f64, label: &str, inner: &str) -> String {
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" preserveAspectRatio=\"xMidYMid meet\" role=\"img\" \
         aria-label=\"{}\">{inner}</svg>",
        escape(label)
    )
}

fn axis(scale: &Scale) -> String {
    let ticks: String = scale
        .ticks(9)
        .into_iter()
        .map(|tick| {
            let x = scale.at(tick);
            let class = if tick == 1.0 { "mid strong" } else { "mid" };
            let shown = units::ratio(tick);
            let shown =
                if shown.contains('.') { shown.trim_end_matches('0').trim_end_matches('.') } else { &shown };
            format!(
                "<text class=\"{class}\" x=\"{x:.1}\" y=\"18\">{shown}</text>\
                 <line class=\"axis\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"24\" y2=\"30\"/>"
            )
        })
        .collect();
    svg(30.0, "axis of ratios", &ticks)
}

fn class_of(row: &Row) -> &'static str {
    match row.verdict {
        Verdict::Better if row.guards_kept() => "good",
        Verdict::Worse | Verdict::Failed { .. } => "bad",
        Verdict::Better | Verdict::CannotTell { .. } => "unsure",
        Verdict::Baseline | Verdict::NoDifference { .. } => "soft",
    }
}

fn line(result: &ResultFile, comparison: &Comparison, row: &Row, scale: &Scale, guarded: bool) -> String {
    let value = row
        .value
        .map_or("–".to_owned(), |value| units::value(&comparison.objective, &comparison.unit, value));
    let (ratio, interval) = text::ratio_text(row);
    let interval =
        if interval.is_empty() { String::new() } else { format!(" <span class=\"soft\">{interval}</span>") };
    let guards =
        if guarded { format!("<td>{}</td>", escape(&text::guards_text(row))) } else { String::new() };
    let record = result.candidates.iter().find(|record| record.name == row.candidate);
    let title = match record.map(|record| &record.usable_here) {
        Some(UsableHere::Needs(what)) => what.as_str(),
        _ => "",
    };
    format!(
        "<tr><td class=\"name\">{}</td><td class=\"n\">{value}</td><td class=\"n\">{ratio}{interval}</td>\
         <td class=\"plot\">{}</td><td class=\"verdict {}\">{}</td>{guards}<td class=\"usable\" title=\"{}\">{}</td></tr>",
        escape(&row.candidate),
        whisker(comparison, row, scale, &format!("ratio {ratio}")),
        class_of(row),
        escape(&text::verdict_text(row)),
        escape(title),
        escape(&text::usable_text(result, &row.candidate)),
    )
}

fn whisker(comparison: &Comparison, row: &Row, scale: &Scale, label: &str) -> String {
    let middle = HEIGHT / 2.0;
    let mut inner = String::new();
    if let Some(floor) = comparison.noise_floor {
        let (from, to) = (scale.at(1.0 / floor), scale.at(floor));
        inner += &format!(
            "<rect class=\"band\" x=\"{from:.1}\" y=\"0\" width=\"{:.1}\" height=\"{HEIGHT}\"/>",
            (to - from).max(0.5)
        );
    }
    let one = scale.at(1.0);
    inner += &format!("<line class=\"one\" x1=\"{one:.1}\" x2=\"{one:.1}\" y1=\"0\" y2=\"{HEIGHT}\"/>");
    let Some(ratio) = row.ratio else { return svg(HEIGHT, label, &inner) };
    let color = match class_of(row) {
        "soft" => "var(--soft)".to_owned(),
        class => format!("var(--{class})"),
    };
    if let Some((low, high)) = ratio.interval {
        let (from, to) = (scale.at(low), scale.at(high));
        inner += &format!(
            "<line class=\"whisker\" stroke=\"{color}\" x1=\"{from:.1}\" x2=\"{to:.1}\" y1=\"{middle}\" y2=\"{middle}\"/>"
        );
    }
    let x = scale.at(ratio.estimate);
    inner += &if scale.contains(ratio.estimate) {
        format!("<circle fill=\"{color}\" cx=\"{x:.1}\" cy=\"{middle}\" r=\"5\"/>")
    } else {
        let tip = if ratio.estimate > 1.0 { 9.0 } else { -9.0 };
        format!(
            "<path fill=\"{color}\" d=\"M{x:.1} {:.1}L{:.1} {middle}L{x:.1} {:.1}Z\"/>",
            middle - 6.0,
            x + tip,
            middle + 6.0
        )
    };
    svg(HEIGHT, label, &inner)
}
