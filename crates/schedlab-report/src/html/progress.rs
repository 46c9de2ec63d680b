//! What each task got over a whole run: CPU time, and virtual runtime where the run told it.
//!
//! Virtual runtime is drawn on the clock of its queue, from where the first task that is seen there stands; who comes
//! to another queue stands where that queue's clock puts it. Not here: whose turn it is (`timeline`).

use super::distributions::round_time;
use super::svg::{self, Scale};
use super::{Picture, escape};
use crate::timeline::{Queue, Timeline, VruntimePoint};
use crate::units;
use schedlab_model::ids::TaskId;
use std::collections::BTreeMap;
use std::fmt::Write;

const WIDTH: f64 = 1000.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = WIDTH - 28.0;
const HEIGHT: f64 = 230.0;
const BOTTOM: f64 = HEIGHT - 24.0;
/// Tasks that get a curve.
const TASKS_MAX: usize = 8;
/// Columns of pixels: of the points in one, the first and the last are drawn.
const COLUMNS: f64 = 700.0;
/// Keys that never differ by this much are levels, not time.
const TIME_MIN: i64 = 100_000;

/// Points of a task: time and value, in ns.
type Curve = Vec<(f64, f64)>;

pub(super) fn section(pictures: &[Picture]) -> Option<String> {
    let (panels, virtual_times): (Vec<String>, Vec<bool>) = pictures.iter().filter_map(panel).unzip();
    let what_it_is = match virtual_times.contains(&true) {
        true => {
            " Virtual runtime is CPU time divided by weight, as the queue counts it, from the least that is drawn; it rises \
             while a task runs and stays while it waits. Up runs sooner: that axis counts downwards."
        }
        false => "",
    };
    (!panels.is_empty()).then(|| {
        format!(
            "<section><h2>What each task got</h2><p class=\"note\">Over the whole run.{what_it_is}</p>{}</section>",
            panels.concat()
        )
    })
}

/// A candidate's charts, and whether virtual runtime is among them.
fn panel(picture: &Picture) -> Option<(String, bool)> {
    let timeline = &picture.timeline;
    let ran = cpu_times(timeline);
    let shown = chosen(picture, &ran);
    if shown.is_empty() {
        return None;
    }
    let own = |curves: &BTreeMap<TaskId, Curve>| -> Vec<Curve> {
        shown.iter().map(|task| curves.get(task).cloned().unwrap_or_default()).collect()
    };
    let (cpu, virtual_time) = (own(&ran), own(&virtual_times(&timeline.vruntimes)));
    let used = used(&timeline.vruntimes);
    let legend = shown.iter().enumerate().map(|(place, task)| {
        let on_cpu = cpu[place].last().map_or(0.0, |last| last.1);
        let mut text = format!("{}: {} on CPU", timeline.name(*task), units::time(on_cpu));
        if let Some(used) = used.get(task).filter(|_| !virtual_time[place].is_empty()) {
            text += &format!(", {} of virtual runtime", units::time(*used as f64));
        }
        format!(
            "<li><span class=\"key\" style=\"background:{}\"></span>{}</li>",
            svg::color(place),
            escape(&text)
        )
    });
    let legend: String = legend.collect();
    let mut out = format!(
        "<h3>{0}: CPU time of each task <span class=\"soft\">summed up: up has had more</span></h3>{1}",
        escape(&picture.candidate),
        chart(timeline, &shown, &cpu, false)
    );
    let has_virtual_time = virtual_time.iter().any(|curve| !curve.is_empty());
    if has_virtual_time {
        let _ = write!(
            out,
            "<h3>{}: virtual runtime of each task <span class=\"soft\">up runs sooner</span></h3>{}",
            escape(&picture.candidate),
            chart(timeline, &shown, &virtual_time, true)
        );
    }
    Some((out + &format!("<ul class=\"legend\">{legend}</ul>"), has_virtual_time))
}

/// CPU time of each task as a curve: it rises in each stay.
fn cpu_times(timeline: &Timeline) -> BTreeMap<TaskId, Curve> {
    let mut curves: BTreeMap<TaskId, Curve> = BTreeMap::new();
    for stay in &timeline.stays {
        let curve = curves.entry(stay.task).or_insert_with(|| vec![(0.0, 0.0)]);
        let before = curve.last().map_or(0.0, |last| last.1);
        let length = stay.end.saturating_sub(stay.start).0 as f64;
        curve.extend([(stay.start.0 as f64, before), (stay.end.0 as f64, before + length)]);
    }
    curves
}

/// The tasks with a curve: those of the target first, then who ran most.
fn chosen(picture: &Picture, ran: &BTreeMap<TaskId, Curve>) -> Vec<TaskId> {
    let target = |task: TaskId| picture.target.get(task.index()).copied().unwrap_or(false);
    let total = |curve: &Curve| curve.last().map_or(0.0, |last| last.1);
    let mut tasks: Vec<(TaskId, f64)> = ran.iter().map(|(task, curve)| (*task, total(curve))).collect();
    tasks.sort_by(|a, b| target(b.0).cmp(&target(a.0)).then(b.1.total_cmp(&a.1)).then(a.0.cmp(&b.0)));
    tasks.truncate(TASKS_MAX);
    let mut shown: Vec<TaskId> = tasks.into_iter().map(|(task, _)| task).collect();
    shown.sort_unstable();
    shown
}

/// Virtual runtimes on clocks that compare. Empty where keys are levels and not time.
fn virtual_times(points: &[VruntimePoint]) -> BTreeMap<TaskId, Curve> {
    let mut curves: BTreeMap<TaskId, Curve> = BTreeMap::new();
    // What a queue's clock shows where the picture has 0.
    let mut zeros: BTreeMap<Queue, i64> = BTreeMap::new();
    let mut span = (0_i64, 0_i64);
    for point in points {
        let stands = curves.get(&point.task).and_then(|curve| curve.last()).map_or(0.0, |last| last.1);
        let zero = *zeros.entry(point.queue).or_insert_with(|| point.value.wrapping_sub(stands as i64));
        // Clocks may wrap around: only differences have a meaning.
        let value = point.value.wrapping_sub(zero);
        span = (span.0.min(value), span.1.max(value));
        curves.entry(point.task).or_default().push((point.time.0 as f64, value as f64));
    }
    if span.1.saturating_sub(span.0) < TIME_MIN {
        return BTreeMap::new();
    }
    curves
}

/// How far each task's virtual runtime advanced while it ran. What it is moved by between two stays, to another queue's
/// clock or as a sleeper, is no use of a CPU.
fn used(points: &[VruntimePoint]) -> BTreeMap<TaskId, i64> {
    let mut running: BTreeMap<TaskId, &VruntimePoint> = BTreeMap::new();
    let mut all: BTreeMap<TaskId, i64> = BTreeMap::new();
    for point in points {
        let sum = all.entry(point.task).or_default();
        if let Some(since) = running.remove(&point.task).filter(|since| since.queue == point.queue) {
            *sum += point.value.wrapping_sub(since.value);
        }
        if point.runs {
            running.insert(point.task, point);
        }
    }
    all
}

/// One chart of all curves; turned if up is less.
fn chart(timeline: &Timeline, shown: &[TaskId], curves: &[Curve], turned: bool) -> String {
    let values = || curves.iter().flatten().map(|point| point.1);
    let (low, high) = (values().fold(f64::MAX, f64::min), values().fold(f64::MIN, f64::max));
    let x = Scale::linear(0.0, timeline.length.0.max(1) as f64, LEFT, RIGHT);
    let ends = if turned { (10.0, BOTTOM - 4.0) } else { (BOTTOM - 4.0, 10.0) };
    // From the least that is drawn: what the clock showed there says nothing.
    let y = Scale::linear(0.0, high - low, ends.0, ends.1);
    let label = |tick: f64| if tick == 0.0 { "0".to_owned() } else { round_time(tick) };
    let mut inner = String::new();
    for tick in y.ticks(5) {
        inner += &svg::grid_line(y.at(tick), (LEFT, RIGHT), 8.0, &label(tick));
    }
    for (place, (task, curve)) in shown.iter().zip(curves).enumerate() {
        let _ = write!(
            inner,
            "<path class=\"curve\" stroke=\"{}\" d=\"{}\"><title>{}</title></path>",
            svg::color(place),
            line(curve, low, &x, &y),
            escape(timeline.name(*task))
        );
    }
    let _ = write!(inner, "<path class=\"axis\" d=\"M{LEFT} {BOTTOM}H{RIGHT}\"/>");
    for tick in x.ticks(9) {
        let (at, label) = (x.at(tick), label(tick));
        let _ = write!(inner, "<text class=\"mid\" x=\"{at:.1}\" y=\"{:.1}\">{label}</text>", BOTTOM + 17.0);
    }
    let label = if turned {
        "Virtual runtime of each task over time; up runs sooner"
    } else {
        "CPU time of each task over time, summed up"
    };
    format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{label}\">{inner}</svg>")
}

/// A curve as a path, thinned to what pixels show.
fn line(curve: &Curve, low: f64, x: &Scale, y: &Scale) -> String {
    let column = |time: f64| ((x.at(time) - LEFT) / (RIGHT - LEFT) * COLUMNS) as u32;
    let mut out = String::new();
    for (index, (time, value)) in curve.iter().enumerate() {
        let same = |other: Option<&(f64, f64)>| other.is_some_and(|other| column(other.0) == column(*time));
        let inside = index > 0 && same(curve.get(index - 1)) && same(curve.get(index + 1));
        if !inside {
            let letter = if index == 0 { 'M' } else { 'L' };
            let _ = write!(out, "{letter}{:.1} {:.1}", x.at(*time), y.at(value - low));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::event::VruntimeClock;
    use schedlab_model::ids::CpuId;
    use schedlab_model::time::Nanos;

    const MS: i64 = 1_000_000;

    fn point(ms: u64, task: u32, cpu: u32, value: i64) -> VruntimePoint {
        let queue = Queue { cpu: CpuId(cpu), clock: VruntimeClock::Ext, group: TaskId(0) };
        VruntimePoint { time: Nanos::from_millis(ms), task: TaskId(task), queue, runs: false, value }
    }

    fn comes(point: VruntimePoint) -> VruntimePoint {
        VruntimePoint { runs: true, ..point }
    }

    /// The clock of the fair class on the same CPU.
    fn fair(point: VruntimePoint) -> VruntimePoint {
        VruntimePoint { queue: Queue { clock: VruntimeClock::Fair, ..point.queue }, ..point }
    }

    #[test]
    fn tasks_of_a_queue_share_its_clock_and_others_go_on_from_where_they_were() {
        let points = [
            point(0, 1, 0, 900 * MS),
            point(4, 1, 0, 904 * MS),
            point(4, 2, 0, 901 * MS),
            // Another queue, whose clock is far from this one.
            point(5, 1, 1, 5 * MS),
            point(9, 1, 1, 9 * MS),
            // The second task is put where that queue is.
            point(9, 2, 1, 8 * MS),
        ];
        let curves = virtual_times(&points);
        let values = |task: u32| -> Vec<i64> {
            curves[&TaskId(task)].iter().map(|point| point.1 as i64 / MS).collect()
        };
        assert_eq!(values(1), [0, 4, 4, 8]);
        assert_eq!(values(2), [1, 7]);
    }

    /// A command that is of the fair class beside hogs of a sched_ext scheduler: each class has its own clock.
    #[test]
    fn clocks_of_two_classes_on_one_cpu_are_two() {
        let points = [
            fair(point(0, 1, 0, 5_000 * MS)),
            fair(point(9, 1, 0, 5_009 * MS)),
            point(9, 2, 0, 20 * MS),
            point(13, 2, 0, 24 * MS),
            point(13, 3, 0, 21 * MS),
        ];
        let curves = virtual_times(&points);
        let values = |task: u32| -> Vec<i64> {
            curves[&TaskId(task)].iter().map(|point| point.1 as i64 / MS).collect()
        };
        assert_eq!((values(1), values(2), values(3)), (vec![0, 9], vec![0, 4], vec![1]));
    }

    #[test]
    fn what_a_task_used_is_what_it_advanced_by_while_it_ran() {
        let points = [
            comes(point(0, 1, 0, 100 * MS)),
            point(4, 1, 0, 104 * MS),
            // Put ahead as a sleeper, then on another queue, then by another class.
            comes(point(6, 1, 0, 110 * MS)),
            point(9, 1, 0, 113 * MS),
            comes(point(10, 1, 1, 7_000 * MS)),
            point(12, 1, 1, 7_002 * MS),
            comes(point(13, 1, 1, 7_002 * MS)),
            fair(point(15, 1, 1, 3 * MS)),
            point(15, 2, 1, 0),
        ];
        assert_eq!(used(&points), BTreeMap::from([(TaskId(1), 9 * MS), (TaskId(2), 0)]));
    }

    #[test]
    fn levels_of_priority_are_no_time() {
        assert!(virtual_times(&[point(0, 1, 0, 120), point(5, 1, 0, 115)]).is_empty());
        let wrapping = virtual_times(&[point(0, 1, 0, i64::MAX), point(5, 1, 0, i64::MIN + MS)]);
        assert_eq!(wrapping[&TaskId(1)].last().map(|last| last.1), Some((MS + 1) as f64));
    }

    #[test]
    fn less_virtual_runtime_is_drawn_higher_and_more_cpu_time_too() {
        let timeline =
            Timeline { names: vec!["idle".into(), "a<b".into()], length: Nanos(10), ..Timeline::default() };
        let curve = vec![(0.0, 0.0), (10.0, 50.0)];
        let ends = |turned: bool| -> (f64, f64) {
            let text = chart(&timeline, &[TaskId(1)], std::slice::from_ref(&curve), turned);
            let path = text.split(" d=\"M").nth(1).and_then(|rest| rest.split('"').next()).expect("a path");
            let heights: Vec<f64> =
                path.split('L').filter_map(|point| point.split(' ').nth(1)?.parse().ok()).collect();
            (heights[0], heights[1])
        };
        let (first, last) = ends(false);
        assert!(last < first, "more CPU time is up");
        let (first, last) = ends(true);
        assert!(last > first, "more virtual runtime is down: it runs later");
        assert!(chart(&timeline, &[TaskId(1)], &[curve], true).contains("a&lt;b"));
    }

    #[test]
    fn a_path_keeps_the_ends_of_what_a_pixel_hides() {
        let (x, y) = (Scale::linear(0.0, 1e6, LEFT, RIGHT), Scale::linear(0.0, 1e6, BOTTOM, 10.0));
        let curve: Curve =
            (0..100_000).map(|step| (f64::from(step) * 10.0, f64::from(step) * 10.0)).collect();
        let path = line(&curve, 0.0, &x, &y);
        assert!(path.matches('L').count() <= 2 * COLUMNS as usize + 2);
        assert!(path.starts_with('M') && path.matches('L').count() >= COLUMNS as usize);
    }
}
