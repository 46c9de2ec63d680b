//! Dynamic priority over time: a small chart for each task, a mark for each change by its cause. Up runs sooner.

use super::distributions::round_time;
use super::svg::{self, Scale};
use super::{Frame, Picture, escape, framed};
use crate::timeline::{PriorityStep, Timeline};
use crate::units;
use schedlab_model::event::PriorityCause;
use schedlab_model::ids::TaskId;
use schedlab_model::time::Nanos;
use std::collections::BTreeMap;
use std::fmt::Write;

const WIDTH: f64 = 1000.0;
const LEFT: f64 = 46.0;
const RIGHT: f64 = WIDTH - 12.0;
const HEIGHT: f64 = 118.0;
const BOTTOM: f64 = HEIGHT - 22.0;
/// Tasks that get a chart.
const TASKS_MAX: usize = 8;
/// Marks in a chart: more would cover each other.
const MARKS_MAX: usize = 250;

/// A live run, as far as its page needs it.
pub struct LivePriorities<'a> {
    /// What ran under what.
    pub title: &'a str,
    /// Facts, each with its name.
    pub facts: &'a [(&'a str, String)],
    /// What changed when.
    pub picture: &'a Picture,
    /// The program's version.
    pub version: &'a str,
}

/// The page of a live run's priorities.
pub fn page(live: &LivePriorities<'_>) -> String {
    let none = "<section><p>The scheduler logged no change of priority.</p></section>".to_owned();
    framed(&Frame {
        title: live.title,
        obtained: "measured here",
        facts: live.facts,
        sections: section(std::slice::from_ref(live.picture)).unwrap_or(none),
        version: live.version,
    })
}

/// The section; nothing if no scheduler logged its changes.
pub(super) fn section(pictures: &[Picture]) -> Option<String> {
    let panels: Vec<String> = pictures.iter().filter_map(panel).collect();
    (!panels.is_empty()).then(|| {
        format!(
            "<section><h2>Dynamic priority over time</h2><p class=\"note\">As the scheduler logged it, each change \
             with its cause (point at a mark). Up runs sooner; the axis has the scheduler's own numbers.</p>{}</section>",
            panels.concat()
        )
    })
}

/// How a cause is drawn: colour and path around the origin.
fn mark(cause: PriorityCause) -> (usize, &'static str) {
    match cause {
        PriorityCause::Enabled => (0, "M-3 -3H3V3H-3Z"),
        PriorityCause::Slept => (2, "M0 -4.5L4 3H-4Z"),
        PriorityCause::Waited => (8, "M0 -4L4 0L0 4L-4 0Z"),
        PriorityCause::Ran => (1, "M0 4.5L4 -3H-4Z"),
        PriorityCause::Forked => (4, "M-4 -4L4 4M-4 4L4 -4"),
        PriorityCause::Born => (3, "M-4 0H4M0 -4V4"),
        PriorityCause::Yielded => (7, "M-4 -2H4V2H-4Z"),
        PriorityCause::Nice => (6, "M-3.5 0A3.5 3.5 0 1 0 3.5 0A3.5 3.5 0 1 0 -3.5 0Z"),
    }
}

fn panel(picture: &Picture) -> Option<String> {
    let timeline = &picture.timeline;
    let tasks = chosen(picture);
    if tasks.is_empty() {
        return None;
    }
    let end = window_end(timeline, &tasks);
    let mut out = format!("<h3>{}</h3>", escape(&picture.candidate));
    if end < timeline.length {
        let (shown, all) = (units::time(end.0 as f64), units::time(timeline.length.0 as f64));
        let _ = write!(out, "<p class=\"note\">The first {shown} of {all}.</p>");
    }
    let levels = levels(&tasks, end);
    for (place, (task, steps)) in tasks.iter().enumerate() {
        let (name, color) = (escape(timeline.name(*task)), svg::color(place));
        let _ = write!(
            out,
            "<p class=\"soft\" style=\"margin:.6rem 0 0\"><span class=\"key\" style=\"background:{color}\"></span>\
             <strong>{name}</strong>: {} changes</p>{}",
            steps.len(),
            chart(&name, steps, end, levels, &color)
        );
    }
    Some(out + &legend(&tasks))
}

/// Tasks with a chart and their changes: those of the target first, then who changed most.
fn chosen(picture: &Picture) -> Vec<(TaskId, Vec<PriorityStep>)> {
    let mut steps: BTreeMap<TaskId, Vec<PriorityStep>> = BTreeMap::new();
    for step in &picture.timeline.priorities {
        steps.entry(step.task).or_default().push(*step);
    }
    let target = |task: TaskId| picture.target.get(task.index()).copied().unwrap_or(false);
    let mut tasks: Vec<(TaskId, Vec<PriorityStep>)> = steps.into_iter().collect();
    tasks.sort_by_key(|(task, steps)| (!target(*task), std::cmp::Reverse(steps.len()), *task));
    tasks.truncate(TASKS_MAX);
    tasks.sort_by_key(|(task, _)| *task);
    tasks
}

/// Up to when the charts go: the whole run, or until marks would cover each other.
fn window_end(timeline: &Timeline, tasks: &[(TaskId, Vec<PriorityStep>)]) -> Nanos {
    let crowded = tasks.iter().filter_map(|(_, steps)| steps.get(MARKS_MAX)).map(|step| step.time);
    crowded.min().unwrap_or(timeline.length).max(Nanos(1))
}

/// The best and the worst level of all charts, which share their axis: who is higher runs sooner.
fn levels(tasks: &[(TaskId, Vec<PriorityStep>)], end: Nanos) -> (f64, f64) {
    let inside = tasks.iter().flat_map(|(_, steps)| steps).filter(|step| step.time <= end);
    let levels = inside.flat_map(|step| [step.before, step.after]).map(f64::from);
    // A line at either end keeps a single level readable.
    levels.fold((f64::MAX, f64::MIN), |(best, worst), level| (best.min(level - 1.0), worst.max(level + 1.0)))
}

fn chart(name: &str, steps: &[PriorityStep], end: Nanos, levels: (f64, f64), color: &str) -> String {
    let inside = || steps.iter().filter(|step| step.time <= end);
    let y = Scale::linear(levels.0, levels.1, 8.0, BOTTOM);
    let x = Scale::linear(0.0, end.0 as f64, LEFT, RIGHT);
    let mut inner = String::new();
    for tick in y.ticks(4).into_iter().filter(|tick| tick.fract() == 0.0) {
        inner += &svg::grid_line(y.at(tick), (LEFT, RIGHT), 7.0, &tick.to_string());
    }
    let first = inside().next().map(|step| (LEFT, y.at(f64::from(step.before))));
    let points = inside().map(|step| (x.at(step.time.0 as f64), y.at(f64::from(step.after))));
    let points: Vec<(f64, f64)> = first.into_iter().chain(points).collect();
    let _ = write!(
        inner,
        "<path class=\"curve\" stroke=\"{color}\" stroke-opacity=\".55\" d=\"{}\"/>",
        svg::steps(&points, RIGHT)
    );
    for step in inside() {
        inner += &marked(step, &x, &y);
    }
    let _ = write!(inner, "<path class=\"axis\" d=\"M{LEFT} {BOTTOM}H{RIGHT}\"/>");
    for tick in x.ticks(9) {
        let (at, label) = (x.at(tick), if tick == 0.0 { "0".to_owned() } else { round_time(tick) });
        let _ = write!(inner, "<text class=\"mid\" x=\"{at:.1}\" y=\"{:.1}\">{label}</text>", BOTTOM + 16.0);
    }
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"Dynamic priority of {name} over time; up runs \
         sooner\">{inner}</svg>"
    )
}

fn marked(step: &PriorityStep, x: &Scale, y: &Scale) -> String {
    let (color, path) = mark(step.cause);
    let color = svg::color(color);
    format!(
        "<path transform=\"translate({:.1} {:.1})\" d=\"{path}\" fill=\"{color}\" stroke=\"{color}\" \
         stroke-width=\"1.4\"><title>{}: {} to {}, {}</title></path>",
        x.at(step.time.0 as f64),
        y.at(f64::from(step.after)),
        units::time(step.time.0 as f64),
        step.before,
        step.after,
        words(step.cause)
    )
}

/// A cause in words.
fn words(cause: PriorityCause) -> &'static str {
    match cause {
        PriorityCause::Enabled => "came under the scheduler",
        PriorityCause::Slept => "woke after sleep",
        PriorityCause::Waited => "ran first after a wait",
        PriorityCause::Ran => "ran: slice or interval over",
        PriorityCause::Forked => "forked",
        PriorityCause::Born => "was forked",
        PriorityCause::Yielded => "yielded",
        PriorityCause::Nice => "nice value changed",
    }
}

/// The causes that occur.
fn legend(tasks: &[(TaskId, Vec<PriorityStep>)]) -> String {
    let occurs =
        |cause: &PriorityCause| tasks.iter().any(|(_, steps)| steps.iter().any(|step| step.cause == *cause));
    let item = |cause: PriorityCause| {
        let (color, path) = mark(cause);
        let color = svg::color(color);
        format!(
            "<li><svg viewBox=\"-6 -6 12 12\" style=\"display:inline-block;width:1em;height:1em;vertical-align:-.1em;\
             margin-right:.4em\" aria-hidden=\"true\"><path d=\"{path}\" fill=\"{color}\" stroke=\"{color}\" \
             stroke-width=\"1.4\"/></svg>{}</li>",
            words(cause)
        )
    };
    let items: String = PriorityCause::ALL.into_iter().filter(occurs).map(item).collect();
    format!("<ul class=\"legend\">{items}</ul>")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(changes: u64) -> Picture {
        let step = |number: u64| PriorityStep {
            time: Nanos::from_millis(number * 10),
            task: TaskId(1 + number as u32 % 2),
            before: 120,
            after: if number.is_multiple_of(4) { 115 } else { 121 },
            cause: if number.is_multiple_of(4) { PriorityCause::Slept } else { PriorityCause::Ran },
        };
        let timeline = Timeline {
            names: vec!["idle".into(), "a<b".into(), "hog".into()],
            cpus: 1,
            length: Nanos::from_millis(changes * 10),
            priorities: (0..changes).map(step).collect(),
            ..Timeline::default()
        };
        Picture { candidate: "ingosched".into(), timeline, target: vec![false, true, true] }
    }

    #[test]
    fn each_change_has_a_mark_with_its_cause() {
        let text = section(&[picture(20)]).expect("changes");
        assert_eq!(text.matches("<title>").count(), 20);
        assert_eq!(text.matches("woke after sleep").count(), 5 + 1, "five marks and the legend");
        assert!(text.contains("a&lt;b") && !text.contains("a<b") && !text.contains("yielded"));
        assert!(!text.contains("The first"), "the whole run is drawn");
    }

    #[test]
    fn what_would_cover_itself_is_cut_and_said() {
        let text = section(&[picture(2_000)]).expect("changes");
        assert!(text.contains("The first 5.00 s of 20.0 s."), "{}", &text[..600]);
        assert!(text.matches("<title>").count() <= 2 * MARKS_MAX + 2);
        assert_eq!(section(&[picture(0)]), None);
    }

    #[test]
    fn better_levels_are_drawn_higher() {
        let picture = picture(5);
        let steps = &chosen(&picture)[0].1;
        let chart = chart("x", steps, Nanos::from_millis(50), (114.0, 122.0), "red");
        let at = |change: &str| {
            let mark = chart.split("<path transform").find(|part| part.contains(change)).expect("a mark");
            let place = mark.split([' ', ')']).nth(1).expect("y");
            place.parse::<f64>().expect("a number")
        };
        assert!(at("120 to 115") < at("120 to 121"), "{chart}");
    }

    #[test]
    fn a_live_page_stands_alone() {
        let (picture, facts) = (picture(4), [("Kernel", "7.2".to_owned())]);
        let live =
            LivePriorities { title: "hog under ingosched", facts: &facts, picture: &picture, version: "1" };
        let page = page(&live);
        assert!(
            page.contains("hog under ingosched") && page.contains("<dd>7.2</dd>") && !page.contains("{{")
        );
    }
}
