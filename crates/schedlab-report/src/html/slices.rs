//! A scheduler's slices against the nice value, and what its callbacks cost.

use super::distributions::round_time;
use super::svg::{self, Scale};
use super::{Frame, escape, framed, table};
use serde::Serialize;
use std::fmt::Write;

const WIDTH: f64 = 1000.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = WIDTH - 12.0;
const HEIGHT: f64 = 360.0;
const BOTTOM: f64 = HEIGHT - 40.0;

/// One curve: what it is, and times in ns by nice value.
pub struct SliceCurve<'a> {
    /// Shown in the legend.
    pub label: &'a str,
    /// Nice value and time in ns, in ascending order of nice values.
    pub points: Vec<(i32, u64)>,
}

/// What a callback costs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CallbackCost {
    /// Its name.
    pub callback: String,
    /// How often it was called for each switch.
    pub calls_per_switch: f64,
    /// Instructions of a call on average.
    pub instructions_mean: f64,
    /// And at most.
    pub instructions_max: u64,
}

/// What a decision costs: eight pairs of tasks that wake each other.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DecisionCost {
    /// Instructions of scheduler code for each switch.
    pub instructions_per_switch: f64,
    /// Callbacks, the dearest first.
    pub callbacks: Vec<CallbackCost>,
}

/// A scheduler, as far as its page needs it.
pub struct SchedulerPage<'a> {
    /// Its name.
    pub title: &'a str,
    /// Facts, each with its name.
    pub facts: &'a [(&'a str, String)],
    /// What its author says of it, in plain text.
    pub essay: &'a str,
    /// Its slices.
    pub curves: &'a [SliceCurve<'a>],
    /// What its decisions cost on four CPUs, if it is an object.
    pub decision: Option<&'a DecisionCost>,
    /// The program's version.
    pub version: &'a str,
}

/// The page of a scheduler.
pub fn page(scheduler: &SchedulerPage<'_>) -> String {
    let essay: String = scheduler
        .essay
        .split("\n\n")
        .filter(|paragraph| !paragraph.trim().is_empty())
        .map(|paragraph| format!("<p>{}</p>", escape(&paragraph.replace('\n', " "))))
        .collect();
    let essay =
        if essay.is_empty() { essay } else { format!("<section><h2>What it does</h2>{essay}</section>") };
    let sections =
        [slices(scheduler.curves), scheduler.decision.map(costs).unwrap_or_default(), essay].concat();
    framed(&Frame {
        title: scheduler.title,
        obtained: "simulated",
        facts: scheduler.facts,
        sections,
        version: scheduler.version,
    })
}

fn slices(curves: &[SliceCurve<'_>]) -> String {
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let Some(least) = points().map(|(_, time)| (*time).max(1)).min() else {
        return "<section><h2>Slices by nice value</h2><p>Nobody's turn ended.</p></section>".to_owned();
    };
    let most = points().map(|(_, time)| *time).max().unwrap_or(least);
    let (best, worst) =
        points().fold((i32::MAX, i32::MIN), |(low, high), (nice, _)| (low.min(*nice), high.max(*nice)));
    // Some air at both ends, also where all slices are one.
    let y = Scale::logarithmic(least as f64 / 1.3, most as f64 * 1.3, BOTTOM, 8.0);
    let x = Scale::linear(f64::from(best), f64::from(worst), LEFT, RIGHT);
    let mut inner = String::new();
    for tick in y.ticks(8) {
        inner += &svg::grid_line(y.at(tick), (LEFT, RIGHT), 7.0, &round_time(tick));
    }
    let _ = write!(inner, "<path class=\"axis\" d=\"M{LEFT} {BOTTOM}H{RIGHT}\"/>");
    for tick in x.ticks(9) {
        let (at, below) = (x.at(tick), BOTTOM + 16.0);
        let _ = write!(inner, "<text class=\"mid\" x=\"{at:.1}\" y=\"{below:.1}\">{tick}</text>");
    }
    let (middle, below) = (f64::midpoint(LEFT, RIGHT), BOTTOM + 34.0);
    let _ = write!(inner, "<text class=\"mid\" x=\"{middle:.1}\" y=\"{below:.1}\">nice value</text>");
    let mut legend = String::new();
    for (index, curve) in curves.iter().enumerate() {
        inner += &drawn(curve, &svg::color(index), &x, &y);
        let (color, label) = (svg::color(index), escape(curve.label));
        let _ = write!(legend, "<li><span class=\"key\" style=\"background:{color}\"></span>{label}</li>");
    }
    format!(
        "<section><h2>Slices by nice value</h2><p class=\"note\">Of tasks that never sleep, read off runs without costs \
         (point at a mark). The axis of times is logarithmic.</p><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         aria-label=\"Slices by nice value\">{inner}</svg><ul class=\"legend\">{legend}</ul></section>"
    )
}

fn drawn(curve: &SliceCurve<'_>, color: &str, x: &Scale, y: &Scale) -> String {
    let at = |(nice, time): &(i32, u64)| (x.at(f64::from(*nice)), y.at((*time).max(1) as f64));
    let mut path = String::new();
    for (index, point) in curve.points.iter().enumerate() {
        let (x, y) = at(point);
        let _ = write!(path, "{}{x:.1} {y:.1}", if index == 0 { "M" } else { "L" });
    }
    let mut out = format!("<path class=\"curve\" stroke=\"{color}\" d=\"{path}\"/>");
    for point in &curve.points {
        let ((x, y), label) = (at(point), escape(curve.label));
        let _ = write!(
            out,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{color}\"><title>{label}, nice {}: {}</title></circle>",
            point.0,
            crate::units::time(point.1 as f64)
        );
    }
    out
}

fn costs(decision: &DecisionCost) -> String {
    let rows: Vec<Vec<(String, &str)>> = decision
        .callbacks
        .iter()
        .map(|cost| {
            let CallbackCost { callback, calls_per_switch, instructions_mean, instructions_max } = cost;
            let (calls, mean) = (format!("{calls_per_switch:.2}"), format!("{instructions_mean:.0}"));
            let cells = [escape(callback), calls, mean, instructions_max.to_string()];
            cells.into_iter().map(|cell| (cell, "")).collect()
        })
        .collect();
    let all = decision.instructions_per_switch;
    let titles = ["Callback", "calls for each switch", "instructions, mean", "at most"];
    format!(
        "<section><h2>What a decision costs</h2><p>{all:.0} instructions of scheduler code for each switch: eight pairs \
         of tasks that wake each other, on four CPUs.</p>{}</section>",
        table(&titles, &rows, 1)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_is_drawn_and_better_nice_values_are_left() {
        let curves = [
            SliceCurve {
                label: "turn of <equals>",
                points: (-20..=19).map(|nice| (nice, 5_000_000 * (20 - nice) as u64)).collect(),
            },
            SliceCurve { label: "behind", points: vec![(-20, 1_000_000)] },
        ];
        let enqueue = CallbackCost {
            callback: "enqueue".to_owned(),
            calls_per_switch: 1.0,
            instructions_mean: 60.0,
            instructions_max: 90,
        };
        let decision = DecisionCost { instructions_per_switch: 60.0, callbacks: vec![enqueue] };
        let page = page(&SchedulerPage {
            title: "o1",
            facts: &[("Kernel", "7.2".to_owned())],
            essay: "One.\n\nTwo\nlines.",
            curves: &curves,
            decision: Some(&decision),
            version: "1",
        });
        assert_eq!(page.matches("<circle").count(), 41);
        assert!(page.contains("nice 19: 5.00 ms") && page.contains("nice -20: 200 ms"), "{page}");
        assert!(
            page.contains("<p>Two lines.</p>")
                && page.contains("turn of &lt;equals&gt;")
                && !page.contains("{{")
        );
        assert!(page.contains("60 instructions of scheduler code for each switch"));
        let x = |nice: &str| {
            let circle = page
                .split("<circle cx=\"")
                .find(|part| part.contains(&format!("nice {nice}:")))
                .expect("a mark");
            circle.split('"').next().expect("x").parse::<f64>().expect("a number")
        };
        assert!(x("-20") < x("0") && x("0") < x("19"));
    }

    #[test]
    fn nothing_measured_is_said() {
        let page = page(&SchedulerPage {
            title: "none",
            facts: &[],
            essay: "",
            curves: &[],
            decision: None,
            version: "1",
        });
        assert!(page.contains("Nobody's turn ended") && !page.contains("What a decision costs"));
    }
}
