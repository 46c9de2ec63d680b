//! ingosched, ingo_ll, nicksched and staircase where their sources or the slides of 2006 say what must come out:
//! slices at every nice value, what changes a priority, arrays, and how long anybody waits.
//!
//! `UPDATE_GOLDEN=1` writes the step-by-step records in tests/golden/priorities and the page made of them.

// A test may read files; the simulator may not.
#![allow(clippy::disallowed_methods)]

mod ext_runs;
mod priority_runs;

use priority_runs::{CAUSES, Change, Ran, run};
use schedlab_model::event::{Event, EventKind};
use std::fmt::Write;
use std::path::PathBuf;

const MS: u64 = 1_000_000;
/// The four of the slides, and the one that they wish for.
const SCHEDULERS: [&str; 5] = ["ingosched", "ingo_ll", "nicksched", "staircase", "fixed_priority"];

fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn scenario(name: &str) -> String {
    std::fs::read_to_string(root().join(format!("tests/priorities/{name}.toml"))).expect("the scenario")
}

/// Tasks that never sleep, one for each nice value.
fn hogs(nices: &[i32], duration: &str) -> String {
    let mut text = format!("name = \"hogs\"\nduration = \"{duration}\"\n");
    for (index, nice) in nices.iter().enumerate() {
        let task =
            format!("[[task]]\nname = \"hog{index}\"\nnice = {nice}\nsteps = [{{ run = \"600s\" }}]\n");
        text += &task;
    }
    text
}

#[test]
fn o1_slices_are_those_of_the_slides_at_every_nice_value() {
    let slide_ms = |nice: i32| {
        let rest = (140 - (120 + nice)) as u64;
        if nice < 0 { 20 * rest } else { 5 * rest }
    };
    assert_eq!([-20, -10, -1, 0, 10, 19].map(slide_ms), [800, 600, 420, 100, 50, 5]);
    for scheduler in ["ingosched", "ingo_ll"] {
        for nice in -20..=19 {
            let ran = run(scheduler, &hogs(&[nice, nice], "20s"), 1, &[]);
            // By then they have no bonus left that would make them take turns within a slice.
            let stays = ran.stays(1, 10_000 * MS);
            assert!(stays.len() >= 4, "{scheduler}, nice {nice}");
            let wanted = slide_ms(nice) * MS;
            assert!(stays.iter().all(|stay| *stay == wanted), "{scheduler}, nice {nice}: {stays:?}");
        }
    }
}

#[test]
fn nicksched_slices_are_those_of_the_slides() {
    let slide_ms = |distance: u64, best: u64| {
        let (near, far) = ((distance + 2) as f64, (170 - best) as f64);
        ((60.0 / near).powi(2) * (40.0 / far).powi(2) / 4.0).round().max(1.0) as u64
    };
    assert_eq!([0, 1, 2, 5].map(|distance| slide_ms(distance, 120)), [144, 64, 36, 12]);
    // Who never sleeps is ten levels worse than its nice value: nice -20 is 120.
    for nice in -20..=19 {
        let best = (140 + nice).min(159) as u64;
        // One long stay counts as a quarter of a second of history at most.
        let ran = run("nicksched", &hogs(&[nice, nice], "130s"), 1, &[]);
        let stays = ran.stays(1, 100_000 * MS);
        assert!(stays.len() >= 3, "nice {nice}");
        assert!(stays.iter().all(|stay| *stay == slide_ms(0, best) * MS), "nice {nice}: {stays:?}");
    }
    for distance in 1..=30 {
        // The other comes first, as it would hardly run, and so keep its history, beside the best.
        let text = hogs(&[-20, distance - 20], "50s").replace("\"hog0\"", "\"hog0\"\nstart = \"40s\"");
        let ran = run("nicksched", &text, 1, &[]);
        let (best, other) = (ran.stays(1, 46_000 * MS), ran.stays(2, 46_000 * MS));
        assert!(best.iter().all(|stay| *stay == 144 * MS), "{best:?}");
        let wanted = slide_ms(distance as u64, 120) * MS;
        assert!(!other.is_empty() && other.iter().all(|stay| *stay == wanted), "{distance}: {other:?}");
    }
}

#[test]
fn staircase_intervals_and_stairs_are_those_of_its_sources() {
    let interval_ms = |variant: i64, nice: i32| {
        let below = (-nice).max(0) as u64;
        match variant {
            0 => 6 + below,
            1 => 6 * (1 + below),
            _ => 6 * (20 + below) / 20,
        }
    };
    let slice_ms = |nice: i32| interval_ms(2, nice) * (20 - nice) as u64;
    assert_eq!([-20, -10, 0, 10, 19].map(slice_ms), [480, 270, 120, 60, 6]);
    for variant in 0..=2 {
        // At nice 19 there is one stair.
        for nice in -20..=18 {
            let knobs = [("variant", variant), ("log_changes", 1)];
            let changes = run("staircase", &hogs(&[nice], "13s"), 1, &knobs).changes();
            let wanted = interval_ms(variant, nice) * MS;
            let top = (120 + nice) as u8;
            assert!(changes.len() > 20, "variant {variant}, nice {nice}: {} changes", changes.len());
            // Down to the last stair, then back to the top.
            for pair in changes.windows(2) {
                let next = if pair[0].after == 139 { top } else { pair[0].after + 1 };
                let passed = pair[1].time_ns - pair[0].time_ns;
                assert_eq!((pair[1].after, passed), (next, wanted), "variant {variant}, nice {nice}");
            }
        }
    }
}

#[test]
fn hz_rounds_slices_as_it_did_in_2_6() {
    for hz in [100, 250] {
        let stays = run("ingosched", &hogs(&[0, 0], "8s"), 1, &[("hz", hz)]).stays(1, 4_000 * MS);
        assert!(stays.iter().all(|stay| *stay == 100 * MS), "{hz} Hz: {stays:?}");
    }
    // 6 ms are rounded up to a jiffy of 10 ms, and to two of 4 ms.
    for (hz, wanted) in [(100, 10), (250, 8)] {
        let changes = run("staircase", &hogs(&[0], "3s"), 1, &[("hz", hz), ("log_changes", 1)]).changes();
        let passed: Vec<u64> = changes.windows(2).map(|pair| pair[1].time_ns - pair[0].time_ns).collect();
        assert!(passed.len() > 100 && passed.iter().all(|time| *time == wanted * MS), "{hz} Hz: {passed:?}");
    }
}

fn steps(scheduler: &str) -> Vec<Change> {
    run(scheduler, &scenario("steps"), 1, &[("log_changes", 1)]).changes()
}

#[test]
fn changes_are_events_at_their_time_if_they_are_logged() {
    let told = |ran: &Ran| -> Vec<Change> {
        let told = |event: &Event| match event.kind {
            EventKind::Priority { task, before, after, cause } => {
                Some(Change { time_ns: event.time.0, task: task.0, before, after, cause: cause as u8 })
            }
            _ => None,
        };
        ran.events.iter().filter_map(told).collect()
    };
    for scheduler in ["ingosched", "staircase"] {
        let mut ran = run(scheduler, &scenario("steps"), 1, &[("log_changes", 1)]);
        assert!(ran.events.is_sorted_by_key(|event| event.time), "{scheduler}");
        let told_now = told(&ran);
        assert!(told_now.len() > 10, "{scheduler}: {}", told_now.len());
        assert_eq!(told_now, ran.changes(), "{scheduler}");
        assert_eq!(told(&run(scheduler, &scenario("steps"), 1, &[])), [], "{scheduler}");
    }
}

fn check_golden(path: PathBuf, text: &str) {
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, text).expect("the golden file");
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, golden, "{}: UPDATE_GOLDEN=1 writes what happens", path.display());
}

#[test]
fn priorities_change_step_by_step_as_recorded() {
    for scheduler in SCHEDULERS {
        let mut text = String::new();
        // The hog only runs, and that often.
        for change in steps(scheduler).into_iter().filter(|change| change.task != 1) {
            let task = ["", "hog", "A", "above", "child"][change.task as usize];
            let (ms, cause) = (change.time_ns as f64 / 1e6, CAUSES[change.cause as usize]);
            writeln!(text, "{ms:.3} ms {task} {} -> {} {cause}", change.before, change.after).expect("text");
        }
        check_golden(root().join(format!("tests/golden/priorities/steps-{scheduler}.txt")), &text);
    }
}

/// The last table of the slides, from what the schedulers do.
#[test]
fn the_page_says_when_priorities_change() {
    let mut page = "# When priorities change\n\n<!-- Made by crates/schedlab-sim/tests/priorities.rs with \
        UPDATE_GOLDEN=1: edit it there. -->\n\nThe last table of the slides of 2006 lists for each scheduler when it \
        changes a task's priority. This one is made from what the\nschedulers did in [steps.toml](../tests/priorities/steps.toml), \
        where a task sleeps, runs, forks, yields, changes its nice\nvalue and \
        waits for the CPU, beside a hog: `+` became better, `-` became worse, with the largest step in levels. Each change is \
        in\n[tests/golden/priorities](../tests/golden/priorities); \
        `log_changes=1` logs them in any run, simulated or live.\n\n| |".to_owned();
    let columns = [
        (1, "woke after sleep"),
        (2, "ran first after waking"),
        (3, "ran, slice or interval over"),
        (5, "was forked"),
        (6, "yielded"),
        (7, "nice value changed"),
    ];
    columns.iter().for_each(|(_, title)| write!(page, " {title} |").expect("text"));
    page += "\n|---|---|---|---|---|---|---|\n";
    for scheduler in SCHEDULERS {
        let changes = steps(scheduler);
        write!(page, "| [{scheduler}](schedulers/{scheduler}.md) |").expect("text");
        for (cause, _) in columns {
            let of_cause = || changes.iter().filter(|change| change.cause == cause);
            let better = of_cause().map(|c| c.before.saturating_sub(c.after)).max().unwrap_or(0);
            let worse = of_cause().map(|c| c.after.saturating_sub(c.before)).max().unwrap_or(0);
            let mut cell = Vec::new();
            if better > 0 {
                cell.push(format!("+{better}"));
            }
            if worse > 0 {
                cell.push(format!("-{worse}"));
            }
            write!(page, " {} |", cell.join(" ")).expect("text");
        }
        page += "\n";
    }
    page += "\nWhat a fork does to the parent (its history, its slice, its next gain) shows only when its priority is \
        next computed;\nthe essays say what it is. Under fixed_priority waking counts for tasks that are marked INTERACTIVE, and \
        forks beyond the allowance\ncost levels: nobody here does either.\n";
    check_golden(root().join("docs/when-priorities-change.md"), &page);
}

#[test]
fn arrays_let_everybody_run_once_before_anybody_runs_twice() {
    for (scheduler, nices, from_s) in [
        ("ingosched", &[-5, 0, 0, 5][..], 20),
        ("ingo_ll", &[-5, 0, 0, 5], 20),
        ("nicksched", &[0, 0, 0], 60),
    ] {
        let ran = run(scheduler, &hogs(nices, "80s"), 1, &[]);
        let order: Vec<u32> = ran.order(from_s * 1_000 * MS);
        let round: Vec<u32> = (1..=nices.len() as u32).collect();
        let start = order.iter().position(|task| *task == 1).expect("it runs");
        assert!(order.len() > 4 * round.len(), "{scheduler}: {order:?}");
        for found in order[start..].chunks_exact(round.len()) {
            assert_eq!(found, round, "{scheduler}: {order:?}");
        }
    }
}
