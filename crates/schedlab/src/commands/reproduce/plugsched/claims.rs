//! What the slides say, and whether it comes out.

use super::printed::{PLUGSCHED, order};
use super::{Ours, Place, Row, Run, hackbench_seconds, of_each, wakeup_means};
use schedlab_report::compare::stats::median;
use std::fmt::{self, Display, Formatter, Write};

/// Ratios between schedulers may be so far from the slides'.
const RATIO_TOLERANCE: f64 = 1.5;

/// The slides' own spread of filtered means of the real-time thread is 1.7.
const HARDLY_DIFFERS: f64 = 1.7;

/// So many times later the thread is woken under ingosched, at least; 6.7 and 5 times on the slides.
const SEVERAL_TIMES: f64 = 3.0;

/// How much later than the best ingo_ll wakes the ordinary thread, at least; 1830 times on the slides.
const INGO_LL_AT_LEAST: f64 = 50.0;

/// One of them.
#[derive(Clone)]
struct Claim {
    what: &'static str,
    holds: bool,
    found: String,
}

/// All of them, as lines.
pub fn all(ours: &Ours) -> String {
    let claims = [hackbench, wakeups, children, real_time, outliers, load, slices, desktop, plan]
        .map(|claims| claims(ours));
    let claims = claims.concat();
    let holding = claims.iter().filter(|claim| claim.holds).count();
    let mut out = format!("What the slides say: {holding} of {} come out\n", claims.len());
    for Claim { what, holds, found } in claims {
        writeln!(out, "  {} {what}: {found}", if holds { "yes" } else { "NO " }).expect("text grows");
    }
    out
}

fn claim(what: &'static str, holds: bool, found: String) -> Claim {
    Claim { what, holds, found }
}

/// The largest factor by which a ratio between any two of ours is off the slides'; not a number where a value is missing.
fn worst_ratio(printed: &[f64], ours: &[f64]) -> f64 {
    let quotients: Vec<f64> = printed.iter().zip(ours).map(|(paper, our)| our / paper).collect();
    spread(&quotients)
}

/// The larger one; not a number if one is none, so that a missing value is no claim that holds.
fn larger(one: f64, other: f64) -> f64 {
    if one.is_nan() || one > other { one } else { other }
}

/// The smaller one, likewise.
fn smaller(one: f64, other: f64) -> f64 {
    if one.is_nan() || one < other { one } else { other }
}

/// Whether all are numbers and in the slides' order.
fn same_order(printed: &[f64; 4], ours: &[f64; 4]) -> bool {
    known(ours) && order(printed) == order(ours)
}

fn known(values: &[f64; 4]) -> bool {
    values.iter().all(|value| value.is_finite())
}

fn but_ingo_ll(all: &[f64; 4]) -> [f64; 3] {
    [all[0], all[2], all[3]]
}

fn spread(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, larger) / values.iter().copied().fold(f64::INFINITY, smaller)
}

/// One number of each run, by which a claim is judged: the middle one, beside the ends.
struct OfRuns {
    least: f64,
    middle: f64,
    most: f64,
}

impl OfRuns {
    fn new(ours: &Ours, of_run: impl Fn(&Run) -> f64) -> OfRuns {
        OfRuns::of(&ours.runs().map(of_run).collect::<Vec<f64>>())
    }

    /// None is a number if one of them is none.
    fn of(all: &[f64]) -> OfRuns {
        let least = all.iter().copied().fold(f64::INFINITY, smaller);
        let most = all.iter().copied().fold(f64::NEG_INFINITY, larger);
        let middle = median(all).filter(|_| !least.is_nan()).unwrap_or(f64::NAN);
        OfRuns { least, middle, most }
    }
}

impl Display for OfRuns {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        // Two digits behind the point of small numbers, none of large ones.
        let digits = if self.most < 100.0 { 2 } else { 0 };
        let OfRuns { least, middle, most } = self;
        write!(f, "{middle:.digits$}")?;
        // One run has no ends.
        if least < most { write!(f, " ({least:.digits$} to {most:.digits$})") } else { Ok(()) }
    }
}

/// Holds if most runs have the slides' order; the first run's is printed.
fn order_of(what: &'static str, ours: &Ours, printed: &[f64; 4], of_run: impl Fn(&Run) -> [f64; 4]) -> Claim {
    let runs: Vec<[f64; 4]> = ours.runs().map(of_run).collect();
    let same = runs.iter().filter(|values| same_order(printed, values)).count();
    let found = format!("{}; the slides' in {same} of {} runs", order(&runs[0]).join(" < "), runs.len());
    claim(what, 2 * same > runs.len(), found)
}

fn hackbench(ours: &Ours) -> Vec<Claim> {
    let printed = PLUGSCHED.each_ref().map(|paper| paper.hackbench_s);
    let off = OfRuns::new(ours, |run| worst_ratio(&printed, &hackbench_seconds(run)));
    let without =
        OfRuns::new(ours, |run| worst_ratio(&but_ingo_ll(&printed), &but_ingo_ll(&hackbench_seconds(run))));
    vec![
        order_of("order in hackbench, fastest first", ours, &printed, hackbench_seconds),
        claim(
            "ratios between any two in hackbench within 1.5",
            off.middle <= RATIO_TOLERANCE,
            format!("off by {off}, without ingo_ll by {without}"),
        ),
    ]
}

fn wakeups(ours: &Ours) -> Vec<Claim> {
    let printed = PLUGSCHED.each_ref().map(|paper| paper.normal[1][0]);
    let means = |run: &Run| wakeup_means(&run.wakeup, "normal");
    // ingo_ll has a goal of its own.
    let off = OfRuns::new(ours, |run| worst_ratio(&but_ingo_ll(&printed), &but_ingo_ll(&means(run))));
    let ingo_ll = OfRuns::new(ours, |run| {
        let means = means(run);
        means[1] / means.iter().copied().fold(f64::INFINITY, smaller)
    });
    let times = [2, 3].map(|other| OfRuns::new(ours, |run| means(run)[0] / means(run)[other]));
    vec![
        order_of("order of wake-ups of the ordinary thread (filtered means)", ours, &printed, means),
        claim(
            match ours.place {
                Place::Board => {
                    "ratios between any two of these within 1.5, but ingo_ll's (a part of each is fitted to the real-time table)"
                }
                Place::VirtualMachine => "ratios between any two of these within 1.5, but ingo_ll's",
            },
            off.middle <= RATIO_TOLERANCE,
            format!("off by {off}"),
        ),
        claim(
            "ingo_ll (by a reading of its announcement that was made knowing this) wakes the ordinary thread at least 50 times later than the best",
            ingo_ll.middle >= INGO_LL_AT_LEAST,
            format!("{ingo_ll} times"),
        ),
        claim(
            "ingosched wakes the ordinary thread several times later than nicksched and staircase",
            times.iter().all(|times| times.middle >= SEVERAL_TIMES),
            format!("{} and {} times", times[0], times[1]),
        ),
    ]
}

/// The slides suspect that the load's children are rated too well for too long.
fn children(ours: &Ours) -> Vec<Claim> {
    let [as_it_is, unrated] = [
        OfRuns::new(ours, |run| wakeup_means(&run.wakeup, "normal")[0]),
        OfRuns::new(ours, |run| wakeup_means(&run.wakeup_unrated, "normal")[0]),
    ];
    vec![claim(
        "ingosched is slow there as forked children of the load keep their rating",
        unrated.middle <= as_it_is.middle / 2.0,
        format!("{as_it_is} us; {unrated} if they begin with none and lose it by all that they run"),
    )]
}

fn real_time(ours: &Ours) -> Vec<Claim> {
    let means = wakeup_means(&ours.wakeup_unfitted, "rt");
    let longest = of_each(&ours.wakeup_unfitted, "rt", |row| row.summary(true).map(|s| s.max as f64 / 1e3));
    let longest = longest.iter().copied().fold(0.0, larger);
    let nicksched = means[2] / wakeup_means(&ours.wakeup_unfitted, "normal")[2];
    vec![
        claim(
            match ours.place {
                Place::Board => {
                    "real-time wake-ups hardly differ (a factor of 1.7 on the slides), without what is fitted to them"
                }
                Place::VirtualMachine => "real-time wake-ups hardly differ (a factor of 1.7 on the slides)",
            },
            spread(&means) <= HARDLY_DIFFERS,
            format!("a factor of {:.2}", spread(&means)),
        ),
        claim(
            match ours.place {
                Place::Board => {
                    "a real-time thread answers within 1 ms (filtered; 1092 us on the slides themselves), likewise"
                }
                Place::VirtualMachine => {
                    "a real-time thread answers within 1 ms (filtered; 1092 us on the slides themselves)"
                }
            },
            longest <= 1_000.0,
            format!("{longest:.0} us at most"),
        ),
        claim(
            "nicksched: real-time is worse than ordinary (the slides compare raw with filtered; like for like it is not)",
            nicksched > 1.05,
            format!("{nicksched:.2} times, filtered both"),
        ),
    ]
}

fn outliers(ours: &Ours) -> Vec<Claim> {
    let cut = |row: &Row| Some(row.summary(false)?.count as f64 - row.summary(true)?.count as f64);
    let all = [of_each(&ours.first.wakeup, "rt", cut), of_each(&ours.first.wakeup, "normal", cut)].concat();
    let list = all.iter().map(|count| format!("{count:.0}")).collect::<Vec<_>>().join(", ");
    let some = all.iter().all(|count| (1.0..=4.0).contains(count));
    vec![claim("one to four of 1000 samples are far off, under each", some, format!("filtered: {list}"))]
}

/// How the load fares beside the benchmark: its part of the CPU, and the longest wait of one of its tasks.
fn load(ours: &Ours) -> Vec<Claim> {
    let share = of_each(&ours.first.wakeup, "normal", |row| row.load_cpu_percent);
    let wait = of_each(&ours.first.wakeup, "normal", |row| Some(row.load_wait_max_ns? as f64 / 1e9));
    // Nobody looked: the threads of a machine tell their own times only.
    if share.iter().all(|percent| percent.is_nan()) {
        return Vec::new();
    }
    let shares = share.map(|percent| format!("{percent:.0} %")).join(", ");
    let waits = wait.map(|seconds| format!("{seconds:.1} s")).join(", ");
    vec![claim(
        "nicksched leaves the load hardly any CPU",
        share[2] < share[0] / 2.0,
        format!(
            "load's part {shares}; longest wait of one of its tasks {waits} (ingosched, ingo_ll, nicksched, staircase)"
        ),
    )]
}

/// Under nicksched, by how far ahead the best task is.
fn slices(ours: &Ours) -> Vec<Claim> {
    let Some(code) = &ours.code else { return Vec::new() };
    let ms: Vec<f64> =
        code.turns_behind_ns.iter().map(|turn| turn.map_or(f64::NAN, |ns| ns as f64 / 1e6)).collect();
    let steps: Vec<f64> = ms.windows(2).map(|pair| pair[1] / pair[0]).collect();
    let each = steps.iter().product::<f64>().powf(1.0 / steps.len() as f64);
    let [list, steps] = [(&ms, 0), (&steps, 2)]
        .map(|(all, digits)| all.iter().map(|one| format!("{one:.digits$}")).collect::<Vec<_>>().join(", "));
    vec![claim(
        "nicksched: with each level that the best task is better, slices of others are about half",
        (0.4..=0.6).contains(&each),
        format!("{list} ms, so {steps} times"),
    )]
}

/// What a decision costs if priorities are fixed, as the slides' plans have it.
fn plan(ours: &Ours) -> Vec<Claim> {
    let Some(code) = &ours.code else { return Vec::new() };
    let [cheapest, fixed] = code.cheapest_and_fixed();
    vec![claim(
        "plan: fixed priorities make a light scheduler",
        fixed[0] <= cheapest[0] / 2.0 && fixed[1] <= cheapest[1] / 2.0,
        format!(
            "{:.0} instructions of a switch on one CPU, {:.0} on four; the cheapest of the four {:.0} and {:.0}",
            fixed[0], fixed[1], cheapest[0], cheapest[1]
        ),
    )]
}

fn desktop(ours: &Ours) -> Vec<Claim> {
    let mean = |row: &Row| row.summary(false).map(|summary| summary.mean / 1e6);
    let beside_x = of_each(&ours.interbench, "video/x", mean);
    let real_time = of_each(&ours.interbench_rt, "video/x", mean);
    let met = |load: &str| {
        of_each(&ours.interbench, load, |row| row.frames.and_then(|frames| frames.deadlines_met_percent()))
    };
    let [write, read, burn] = ["video/write", "video/read", "video/burn"].map(met);
    let least = write.iter().chain(&read).copied().fold(f64::INFINITY, smaller);
    let ms = |values: [f64; 4]| values.map(|value| format!("{value:.3}")).join(", ");
    let mut claims = vec![
        claim(
            "interbench: staircase has the least latency of the video beside X",
            known(&beside_x) && order(&beside_x)[0] == "staircase",
            format!("{} ms", ms(beside_x)),
        ),
        claim(
            "interbench: real-time latencies of the video beside X hardly differ",
            spread(&real_time) <= HARDLY_DIFFERS,
            format!("{} ms", ms(real_time)),
        ),
    ];
    // In a virtual machine there is no disk.
    if ours.place == Place::Board {
        claims.push(claim(
            "interbench: deadlines of the video are met beside disk loads, too",
            least >= 95.0,
            format!(
                "at least {least:.1} %; beside burn {} %",
                burn.map(|value| format!("{value:.0}")).join(", ")
            ),
        ));
    }
    claims
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_judged_by_the_middle() {
        let of_runs = OfRuns::of(&[3.0, 1.0, 20.0, 2.0, 4.0]);
        assert_eq!((of_runs.least, of_runs.middle, of_runs.most), (1.0, 3.0, 20.0));
        assert_eq!(of_runs.to_string(), "3.00 (1.00 to 20.00)");
        assert_eq!(OfRuns::of(&[566.4, 601.0, 589.2]).to_string(), "589 (566 to 601)");
        let missing = OfRuns::of(&[1.0, f64::NAN, 2.0]);
        assert!(missing.least.is_nan() && missing.middle.is_nan() && missing.most.is_nan());
    }

    #[test]
    fn a_missing_value_makes_no_claim_hold() {
        let [printed, ours] = [[1.0, 2.0, 4.0], [1.0, 3.0, 4.0]];
        assert_eq!(worst_ratio(&printed, &ours), 1.5);
        assert_eq!(worst_ratio(&printed, &[1.5, 2.0, 4.0]), 1.5);
        assert_eq!(
            worst_ratio(&printed, &[1.0, 3.0, 3.0]),
            2.0,
            "the second is 1.5, the third three quarters of theirs"
        );
        for missing in 0..3 {
            let mut ours = ours;
            ours[missing] = f64::NAN;
            assert!(worst_ratio(&printed, &ours).is_nan(), "value {missing}");
        }
        assert_eq!(spread(&[2.0, 1.0, 3.0, 2.0]), 3.0);
        assert!(spread(&[2.0, f64::NAN, 3.0, 2.0]).is_nan());
        assert!(known(&[2.0, 1.0, 3.0, 2.0]) && !known(&[2.0, f64::NAN, 3.0, 2.0]));
    }
}
