//! One run of each candidate over time: who is on which CPU, how long the queues are, how the scheduler
//! ranks the tasks. Only a window is drawn, the one around the longest wait of the target.

use super::distributions::round_time;
use super::svg::{self, Scale};
use super::{Picture, escape};
use crate::compare::Comparison;
use crate::timeline::{Point, Timeline, Wake};
use crate::units;
use schedlab_model::ids::{CpuId, TaskId};
use schedlab_model::time::Nanos;
use std::collections::BTreeMap;
use std::fmt::Write;

const WIDTH: f64 = 1000.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = WIDTH - 28.0;
/// Stays in a window: more cannot be told apart, and every one costs bytes.
const STAYS_MAX: usize = 700;
/// Longest window.
const WINDOW_MAX: Nanos = Nanos::from_millis(100);
/// Lanes drawn; machines with more CPUs show those that the target uses most.
const LANES_MAX: usize = 16;
/// Tasks named in a legend and drawn with a rank curve.
const TASKS_MAX: usize = 10;

/// Part of a run that is drawn.
#[derive(Clone, Copy)]
struct Window {
    from: Nanos,
    to: Nanos,
    /// The wait that it was chosen for.
    longest: Option<Wake>,
}

pub(super) fn section(comparison: Option<&Comparison>, pictures: &[Picture]) -> Option<String> {
    if pictures.iter().all(|picture| picture.timeline.stays.is_empty()) {
        return None;
    }
    let best = comparison.and_then(|comparison| {
        let name = &comparison.rows.first()?.candidate;
        pictures.iter().position(|picture| picture.candidate == *name)
    });
    let (mut tabs, mut style) = (String::new(), String::new());
    let mut panels = String::new();
    for (index, picture) in pictures.iter().enumerate() {
        let checked = if index == best.unwrap_or(0) { " checked" } else { "" };
        let name = escape(&picture.candidate);
        let _ = write!(
            tabs,
            "<input type=\"radio\" name=\"picture\" id=\"p{index}\"{checked}><label for=\"p{index}\">{name}</label>"
        );
        let _ = write!(style, "#p{index}:checked~#q{index}{{display:block!important}}");
        let _ = write!(panels, "<div class=\"panel\" id=\"q{index}\">{}</div>", panel(picture));
    }
    Some(format!(
        "<section><h2>Over time</h2><p class=\"note\">{} around the longest wait of a target task after a \
         wake-up.</p><style>{style}</style>\
         <div class=\"tabs\">{tabs}{panels}</div></section>",
        if pictures.len() > 1 { "One run of each candidate, the first seed," } else { "The run" }
    ))
}

fn panel(picture: &Picture) -> String {
    let timeline = &picture.timeline;
    let window = window(picture);
    let shown = busiest_tasks(picture, window);
    let legend: String = shown
        .iter()
        .map(|(task, place)| {
            let color = svg::color(*place);
            let name = escape(timeline.name(*task));
            format!("<li><span class=\"key\" style=\"background:{color}\"></span>{name}</li>")
        })
        .collect();
    let legend = legend + "<li><span class=\"key\" style=\"background:var(--line)\"></span>others</li>";
    let longest = window.longest.map_or(String::new(), |wake| {
        let waited = wake.ran.unwrap_or(timeline.length).saturating_sub(wake.time);
        format!(
            "<p>Longest wait after a wake-up: <strong>{}</strong> by {}, from {} on (framed in red).</p>",
            units::time(waited.0 as f64),
            escape(timeline.name(wake.wakee)),
            units::time(wake.time.0 as f64)
        )
    });
    format!(
        "{longest}<h3>Who runs where</h3>{}<ul class=\"legend\">{legend}</ul>\
         <h3>Tasks waiting for a CPU</h3>{}{}",
        lanes(picture, window, &shown),
        queue(timeline, window),
        ranks(timeline, window, &shown)
    )
}

/// The window around the target's longest wait after a wake-up, small enough to be drawn.
fn window(picture: &Picture) -> Window {
    let timeline = &picture.timeline;
    let of_target = |wake: &&Wake| picture.target.get(wake.wakee.index()).copied().unwrap_or(false);
    let waited = |wake: &&Wake| wake.ran.unwrap_or(timeline.length).saturating_sub(wake.time);
    let longest = timeline.wakes.iter().filter(of_target).max_by_key(waited).copied();
    let length = timeline.length.max(Nanos(1));
    let middle = longest.map_or(length.0 / 2, |wake| wake.time.0 / 2 + wake.ran.unwrap_or(length).0 / 2);
    let wait = longest.as_ref().map_or(0, |wake| waited(&wake).0);
    let mut span = length.0.min(WINDOW_MAX.0.max(wait * 3 / 2));
    loop {
        let from = middle.saturating_sub(span / 2).min(length.0 - span.min(length.0));
        let window = Window { from: Nanos(from), to: Nanos(from + span), longest };
        let inside = timeline.stays.iter().filter(|stay| stay.end > window.from && stay.start < window.to);
        if inside.count() <= STAYS_MAX || span < 200_000 || span / 2 < wait * 5 / 4 {
            return window;
        }
        span /= 2;
    }
}

/// Tasks that ran longest in the window and the colour each has: whoever waited longest first, then target
/// tasks.
fn busiest_tasks(picture: &Picture, window: Window) -> BTreeMap<TaskId, usize> {
    let mut time: BTreeMap<TaskId, u64> = BTreeMap::new();
    for stay in &picture.timeline.stays {
        let ran = stay.end.min(window.to).saturating_sub(stay.start.max(window.from));
        if ran > Nanos::ZERO {
            *time.entry(stay.task).or_default() += ran.0;
        }
    }
    let mut tasks: Vec<(TaskId, u64)> = time.into_iter().collect();
    let target = |task: TaskId| picture.target.get(task.index()).copied().unwrap_or(false);
    let waited = window.longest.map(|wake| wake.wakee);
    tasks.sort_by_key(|(task, ran)| (waited != Some(*task), !target(*task), std::cmp::Reverse(*ran)));
    tasks.truncate(TASKS_MAX);
    let mut shown: Vec<TaskId> = tasks.into_iter().map(|(task, _)| task).collect();
    shown.sort_unstable();
    shown.into_iter().enumerate().map(|(place, task)| (task, place)).collect()
}

fn time_axis(x: &Scale, from: Nanos, bottom: f64) -> String {
    let mut out = format!("<path class=\"axis\" d=\"M{LEFT} {bottom}H{RIGHT}\"/>");
    for tick in x.ticks(9) {
        let at = x.at(tick);
        let _ = write!(
            out,
            "<line class=\"axis\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{bottom}\" y2=\"{:.1}\"/>\
             <text class=\"mid\" x=\"{at:.1}\" y=\"{:.1}\">{}</text>",
            bottom + 4.0,
            bottom + 17.0,
            if tick > 0.0 || from == Nanos::ZERO { round_time(tick) } else { String::new() }
        );
    }
    out
}

fn x_scale(window: Window) -> Scale {
    Scale::linear(window.from.0 as f64, window.to.0 as f64, LEFT, RIGHT)
}

fn svg_of(height: f64, label: &str, inner: &str) -> String {
    format!("<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{label}\">{inner}</svg>")
}

fn lanes(picture: &Picture, window: Window, shown: &BTreeMap<TaskId, usize>) -> String {
    let timeline = &picture.timeline;
    let cpus = lane_cpus(timeline, window);
    let lane = if cpus.len() > 6 { 20.0 } else { 30.0 };
    let bottom = cpus.len() as f64 * (lane + 5.0);
    let x = x_scale(window);
    let mut inner = String::new();
    for (row, cpu) in cpus.iter().enumerate() {
        let y = row as f64 * (lane + 5.0);
        let _ = write!(
            inner,
            "<text class=\"end strong\" x=\"{:.1}\" y=\"{:.1}\">CPU {cpu}</text>\
             <rect class=\"lane\" x=\"{LEFT}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{lane}\"/>",
            LEFT - 8.0,
            y + lane / 2.0 + 4.0,
            RIGHT - LEFT
        );
        for stay in timeline.stays.iter().filter(|stay| stay.cpu == *cpu) {
            if stay.end <= window.from || stay.start >= window.to {
                continue;
            }
            let (from, to) = (x.at(stay.start.0 as f64), x.at(stay.end.0 as f64));
            let color = shown.get(&stay.task).map_or("var(--line)".to_owned(), |place| svg::color(*place));
            let _ = write!(
                inner,
                "<rect fill=\"{color}\" x=\"{from:.2}\" y=\"{y:.1}\" width=\"{:.2}\" height=\"{lane}\">\
                 <title>{} on CPU {cpu}, {} from {}</title></rect>",
                (to - from).max(0.35),
                escape(timeline.name(stay.task)),
                units::time(stay.end.saturating_sub(stay.start).0 as f64),
                units::time(stay.start.0 as f64)
            );
        }
    }
    if let Some(wake) = window.longest {
        let (from, to) = (x.at(wake.time.0 as f64), x.at(wake.ran.unwrap_or(window.to).0 as f64));
        let _ = write!(
            inner,
            "<rect class=\"late\" x=\"{from:.1}\" y=\"0.8\" width=\"{:.1}\" height=\"{:.1}\"/>",
            (to - from).max(1.5),
            bottom - 6.0
        );
    }
    inner += &time_axis(&x, window.from, bottom);
    svg_of(bottom + 24.0, "Which task is on which CPU over time", &inner)
}

/// CPUs to draw: all, or on large machines those with the most stays in the window.
fn lane_cpus(timeline: &Timeline, window: Window) -> Vec<CpuId> {
    let mut count = vec![0_usize; timeline.cpus];
    let inside = timeline.stays.iter().filter(|stay| stay.end > window.from && stay.start < window.to);
    inside.for_each(|stay| count[stay.cpu.index()] += 1);
    let mut cpus: Vec<CpuId> = (0..timeline.cpus as u32).map(CpuId).collect();
    cpus.sort_by_key(|cpu| std::cmp::Reverse(count[cpu.index()]));
    cpus.truncate(LANES_MAX);
    cpus.sort_unstable();
    cpus
}

/// Points of one thing within the window, the one that holds at its start first.
fn points_of<Id: Copy + PartialEq>(points: &[Point<Id>], of: Id, window: Window) -> Vec<(Nanos, i64)> {
    let own = || points.iter().filter(|point| point.of == of);
    let before = own().take_while(|point| point.time <= window.from).last();
    let inside = own().filter(|point| point.time > window.from && point.time < window.to);
    let start = before.map(|point| (window.from, point.value));
    start.into_iter().chain(inside.map(|point| (point.time, point.value))).collect()
}

fn queue(timeline: &Timeline, window: Window) -> String {
    const HEIGHT: f64 = 120.0;
    let bottom = HEIGHT - 24.0;
    // Changes of all CPUs, summed.
    let mut each = vec![0_i64; timeline.cpus];
    let mut total: Vec<(Nanos, i64)> = vec![(window.from, 0)];
    for point in timeline.queues.iter().take_while(|point| point.time < window.to) {
        each[point.of.index()] = point.value;
        let sum = each.iter().sum();
        if point.time <= window.from {
            total[0].1 = sum;
        } else {
            total.push((point.time, sum));
        }
    }
    let most = total.iter().map(|(_, value)| *value).max().unwrap_or(0).max(1);
    let (x, y) = (x_scale(window), Scale::linear(0.0, most as f64, bottom, 8.0));
    let points: Vec<(f64, f64)> =
        total.iter().map(|(time, value)| (x.at(time.0 as f64), y.at(*value as f64))).collect();
    let line = svg::steps(&points, RIGHT);
    let mut inner = String::new();
    for tick in y.ticks(4).into_iter().filter(|tick| tick.fract() == 0.0) {
        inner += &svg::grid_line(y.at(tick), (LEFT, RIGHT), 8.0, &tick.to_string());
    }
    let _ = write!(
        inner,
        "<path fill=\"var(--k1)\" fill-opacity=\".25\" stroke=\"none\" d=\"{line}V{bottom}H{LEFT}Z\"/>\
         <path class=\"curve\" stroke=\"var(--k1)\" d=\"{line}\"/>"
    );
    inner += &time_axis(&x, window.from, bottom);
    svg_of(HEIGHT, "Number of tasks waiting for a CPU over time", &inner)
}

/// A task, the place of its colour, and its keys.
type RankCurve = (TaskId, usize, Vec<(Nanos, i64)>);

/// Columns at which rank keys are sampled.
const RANK_COLUMNS: u64 = 700;

/// Rank keys, turned so that up runs sooner; the axis shows the scheduler's own numbers. Keys that only
/// grow (virtual time) are shown as the lead over the task that comes last: their common growth says
/// nothing, and hides what differs.
fn ranks(timeline: &Timeline, window: Window, shown: &BTreeMap<TaskId, usize>) -> String {
    let curves: Vec<RankCurve> = shown
        .iter()
        .map(|(task, place)| (*task, *place, points_of(&timeline.ranks, *task, window)))
        .filter(|(.., points)| !points.is_empty())
        .collect();
    if curves.is_empty() {
        return String::new();
    }
    let samples: Vec<Vec<Option<i64>>> = curves.iter().map(|(.., points)| sampled(points, window)).collect();
    let growing = grows(&samples);
    let drawn: Vec<Vec<Option<f64>>> = samples
        .iter()
        .map(|own| {
            let value = |(column, key): (usize, &Option<i64>)| {
                let last = samples.iter().filter_map(|other| other[column]).max()?;
                key.map(|key| if growing { (last - key) as f64 } else { -key as f64 })
            };
            own.iter().enumerate().map(value).collect()
        })
        .collect();
    let (word, label) = if growing {
        (
            "lead of its key over the task that comes last",
            "Lead of each task in the scheduler's ranking over time; up runs sooner",
        )
    } else {
        ("its own key, lower numbers are up", "Rank key of each task over time; up runs sooner")
    };
    let inner = rank_curves(timeline, window, &curves, &drawn, growing);
    format!(
        "<h3>How the scheduler ranks them <span class=\"soft\">{word}: up runs sooner</span></h3>{}",
        svg_of(RANK_HEIGHT, label, &inner)
    )
}

const RANK_HEIGHT: f64 = 260.0;

fn rank_curves(
    timeline: &Timeline,
    window: Window,
    curves: &[RankCurve],
    drawn: &[Vec<Option<f64>>],
    growing: bool,
) -> String {
    let bottom = RANK_HEIGHT - 24.0;
    let values = || drawn.iter().flatten().flatten().copied();
    let (low, high) = (values().fold(f64::MAX, f64::min), values().fold(f64::MIN, f64::max));
    let (x, y) = (x_scale(window), Scale::linear(low, high, bottom - 6.0, 10.0));
    let mut inner = String::new();
    for tick in y.ticks(6) {
        inner += &svg::grid_line(
            y.at(tick),
            (LEFT, RIGHT),
            8.0,
            &units::short(if growing { tick } else { -tick }),
        );
    }
    for ((task, place, _), values) in curves.iter().zip(drawn) {
        let mut points: Vec<(f64, f64)> = Vec::new();
        for (column, value) in values.iter().enumerate() {
            let Some(value) = value else { continue };
            let at = y.at(*value);
            if points.last().is_none_or(|last| (last.1 - at).abs() > 0.05) {
                points.push((x.at(column_time(column as u64, window).0 as f64), at));
            }
        }
        let _ = write!(
            inner,
            "<path class=\"curve\" stroke=\"{}\" d=\"{}\"><title>{}</title></path>",
            svg::color(*place),
            svg::steps(&points, RIGHT),
            escape(timeline.name(*task))
        );
    }
    inner + &time_axis(&x, window.from, bottom)
}

fn column_time(column: u64, window: Window) -> Nanos {
    let span = u128::from(window.to.saturating_sub(window.from).0);
    Nanos(window.from.0 + (span * u128::from(column) / u128::from(RANK_COLUMNS)) as u64)
}

/// The value that holds at each column; `None` before the first.
fn sampled(points: &[(Nanos, i64)], window: Window) -> Vec<Option<i64>> {
    let mut next = 0;
    let mut key = None;
    let value = |column| {
        while next < points.len() && points[next].0 <= column_time(column, window) {
            key = Some(points[next].1);
            next += 1;
        }
        key
    };
    (0..=RANK_COLUMNS).map(value).collect()
}

/// Whether the keys share a growth that is larger than they differ at any instant on average.
fn grows(samples: &[Vec<Option<i64>>]) -> bool {
    let columns = 0..samples.first().map_or(0, Vec::len);
    let ends: Vec<(i64, i64)> = columns
        .filter_map(|column| {
            let keys = || samples.iter().filter_map(|own| own[column]);
            Some((keys().min()?, keys().max()?))
        })
        .collect();
    let (Some(first), Some(last)) = (ends.first(), ends.last()) else { return false };
    let spread = ends.iter().map(|(low, high)| (high - low) as f64).sum::<f64>() / ends.len() as f64;
    (last.1 - first.1) as f64 > spread
}
