//! Whether the next pick depends on the table: the sequences of picks on one CPU, pick by pick, against those under Linux's.
//!
//! Where they differ, the first difference is shown and the reason is worked out: which of the rules that compare virtual
//! times does not scale with them.

use super::lab::{Cpus, Job, LINUX, Lab, Ran, TABLES, seconds, table};
use super::render_table;
use super::works::{self, ENDLESS};
use crate::failure::Failure;
use schedlab_model::workload::Workload;
use schedlab_model::{Nanos, Nice};
use serde::Serialize;
use std::sync::Arc;

/// Three tasks on one CPU: two that never sleep take turns under any table.
struct Scene {
    title: &'static str,
    /// Nice values of fibo, primes, rays.
    nice: [i64; 3],
    /// Whether an interactive task takes the place of primes: the last, of nice 0.
    sleeps: bool,
}

const fn hogs(title: &'static str, nice: [i64; 3]) -> Scene {
    Scene { title, nice, sleeps: false }
}

const SCENES: [Scene; 5] = [
    hogs("none sleeps, all nice 0", [0, 0, 0]),
    hogs("none sleeps, all nice 4", [4, 4, 4]),
    hogs("none sleeps, nice 0, 1, 0", [0, 1, 0]),
    hogs("none sleeps, nice 0, 5, 0", [0, 5, 0]),
    Scene { title: "one sleeps, all nice 0", nice: [0, 0, 0], sleeps: true },
];

/// A scene under a table against the same under Linux's.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    /// The scene.
    pub scene: &'static str,
    /// Whether all its tasks have one nice value and none sleeps.
    pub alike: bool,
    /// The table.
    pub table: &'static str,
    /// Seeds of which every pick is equal.
    pub equal: usize,
    /// Of so many.
    pub seeds: usize,
    /// Picks that are equal from the start on, over all seeds.
    pub picks_equal: usize,
    /// Picks under Linux's table, over all seeds.
    pub picks: usize,
    /// The first difference of the first seed that has one.
    pub first: Option<Difference>,
    /// Runs whose turns differed in length before their picks did.
    pub by_turn: usize,
    /// Runs whose turns did not, and in which the two tasks had had CPU times within [`NEARLY_EQUAL_US`].
    pub by_rounding: usize,
    /// Why picks differ, if they do.
    pub because: Option<String>,
}

/// Where two sequences differ first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// Which pick, from 1 on.
    pub pick: usize,
    /// When, under Linux's table, s.
    pub at_s: f64,
    /// Who is picked under Linux's table.
    pub linux: String,
    /// Who is picked here.
    pub here: String,
    /// The first turn before that whose length differs.
    pub turn: Option<Turn>,
    /// How far apart the CPU times of the two were then, under Linux's table.
    pub apart_us: f64,
}

/// A turn of two lengths.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Turn {
    /// Which, from 1 on.
    pub pick: usize,
    /// How long it is under Linux's table, ms.
    pub linux_ms: f64,
    /// How long it is here.
    pub here_ms: f64,
}

/// Turns that differ by less are as long: interrupts take some microseconds.
const TURN_DIFFERS_MS: f64 = 0.1;

/// CPU times so near are equal but for rounding: each charge of vruntime loses up to a nanosecond.
const NEARLY_EQUAL_US: f64 = 0.1;

/// Runs all scenes.
pub fn run(lab: &Lab<'_>) -> Result<Vec<Compared>, Failure> {
    let length = if lab.quick { 2 } else { 20 };
    let job = |job: Job| Job { picks: true, ..job };
    let jobs = SCENES.iter().flat_map(|scene| lab.every(&TABLES, Cpus::One, &workload(scene, length)));
    let ran = lab.run(&jobs.map(job).collect::<Vec<_>>())?;
    let seeds = lab.seeds.len();
    let linux = TABLES.iter().position(|name| *name == LINUX).expect("it is one of them");
    let mut all = Vec::new();
    for (scene, runs) in SCENES.iter().zip(ran.chunks(TABLES.len() * seeds)) {
        let of_table = |index: usize| &runs[index * seeds..(index + 1) * seeds];
        for (index, name) in TABLES.into_iter().enumerate().filter(|(index, _)| *index != linux) {
            all.push(compare(scene, name, of_table(index), of_table(linux)));
        }
    }
    Ok(all)
}

fn compare(scene: &Scene, name: &'static str, here: &[Ran], linux: &[Ran]) -> Compared {
    let firsts: Vec<Option<Difference>> =
        here.iter().zip(linux).map(|(a, b)| first_difference(a, b)).collect();
    let equal = firsts.iter().filter(|first| first.is_none()).count();
    let picks_of = |(first, ran): (&Option<Difference>, &Ran)| match first {
        Some(first) => first.pick - 1,
        None => ran.picks.len(),
    };
    let found = || firsts.iter().flatten();
    let by_turn = found().filter(|first| first.turn.is_some()).count();
    let near = |first: &&Difference| first.turn.is_none() && first.apart_us <= NEARLY_EQUAL_US;
    let by_rounding = found().filter(near).count();
    Compared {
        scene: scene.title,
        alike: !scene.sleeps && scene.nice.iter().all(|nice| *nice == scene.nice[0]),
        table: name,
        equal,
        seeds: here.len(),
        picks_equal: firsts.iter().zip(linux).map(picks_of).sum(),
        picks: linux.iter().map(|ran| ran.picks.len()).sum(),
        because: firsts.iter().any(Option::is_some).then(|| because(scene, name, by_turn, by_rounding)),
        by_turn,
        by_rounding,
        first: firsts.into_iter().flatten().next(),
    }
}

/// Where the picks of a run differ from those under Linux's table, in order; when they were made does not count, nor that
/// one run has some more before it is cut.
fn first_difference(here: &Ran, linux: &Ran) -> Option<Difference> {
    let differs = |(a, b): (&(_, u32), &(_, u32))| a.1 != b.1;
    let index = here.picks.iter().zip(&linux.picks).position(differs)?;
    let name = |ran: &Ran| match ran.picks[index].1 {
        0 => "none".to_owned(),
        task => ran.tasks[task as usize - 1].name.clone(),
    };
    let at_s = seconds(linux.picks[index].0);
    let length = |ran: &Ran, turn: usize| (seconds(ran.picks[turn + 1].0) - seconds(ran.picks[turn].0)) * 1e3;
    let turn = (0..index)
        .map(|turn| Turn { pick: turn + 1, linux_ms: length(linux, turn), here_ms: length(here, turn) })
        .find(|turn| (turn.linux_ms - turn.here_ms).abs() > TURN_DIFFERS_MS);
    let cpu_ms = |task: u32| -> f64 {
        (0..index).filter(|turn| linux.picks[*turn].1 == task).map(|turn| length(linux, turn)).sum()
    };
    let apart_us = (cpu_ms(linux.picks[index].1) - cpu_ms(here.picks[index].1)).abs() * 1e3;
    Some(Difference { pick: index + 1, at_s, linux: name(linux), here: name(here), turn, apart_us })
}

/// What makes picks of a scene depend on the table.
fn because(scene: &Scene, name: &str, by_turn: usize, by_rounding: usize) -> String {
    let [linux, here] = [table(LINUX), table(name)].map(|table| {
        let weight = |nice| table.weight(Nice::widened(nice).expect("within Linux's range"));
        (weight(scene.nice[0]), weight(scene.nice[1]))
    });
    if linux.0 * here.1 != linux.1 * here.0 {
        let ((a, b), (c, d)) = (linux, here);
        return format!(
            "the first two weigh {c} to {d}, under Linux's table {a} to {b}: other shares are other picks"
        );
    }
    let pace = f64::from(linux.0) / f64::from(here.0);
    let credit =
        "a sleeper is put at most half a latency before the others in virtual time, whatever the weights are";
    if scene.sleeps {
        return format!("virtual time runs {pace:.2} times as fast, and {credit}");
    }
    format!(
        "virtual time runs {pace:.2} times as fast. In {by_turn} runs a tick within a slice compares a difference of it \
         with the slice in real time: an early turn has another length, and the order of turns stays another. In \
         {by_rounding} two that have had the same CPU time to within {NEARLY_EQUAL_US} us are rounded otherwise"
    )
}

fn workload(scene: &Scene, seconds: u64) -> Arc<Workload> {
    let [fibo, primes, rays] = scene.nice.map(|nice| format!("{ENDLESS},nice={nice}"));
    let (fibo, rays) = (format!("fibo:{fibo}"), format!("rays:{rays},threads=1"));
    let all = if scene.sleeps {
        works::with_interactive(works::programs(&format!("{fibo}+{rays}")), Nanos::from_millis(9))
    } else {
        works::programs(&format!("{fibo}+primes:{primes}+{rays}"))
    };
    works::cut(all, Nanos::from_secs(seconds))
}

/// As text.
pub fn render(all: &[Compared]) -> String {
    let row = |of: &Compared| {
        let first = of.first.as_ref().map(|first| {
            let Difference { pick, at_s, linux, here, turn, apart_us } = first;
            let cause = match turn {
                Some(Turn { pick, linux_ms, here_ms }) => {
                    format!("; turn {pick} is {here_ms:.2} ms long, not {linux_ms:.2} ms")
                }
                None if *apart_us <= NEARLY_EQUAL_US => {
                    format!("; their CPU times are {:.0} ns apart", apart_us * 1e3)
                }
                None => String::new(),
            };
            format!("pick {pick} at {at_s:.3} s: {here}, not {linux}{cause}")
        });
        vec![
            of.scene.to_owned(),
            of.table.to_owned(),
            format!("{} of {}", of.equal, of.seeds),
            format!("{} of {}", of.picks_equal, of.picks),
            first.unwrap_or_default(),
        ]
    };
    let titles = [
        "Picks among fibo, primes, rays on one CPU against those under linux",
        "table",
        "runs equal",
        "picks before they differ",
        "the first difference",
    ];
    let mut out = render_table(&titles, 2, all.iter().map(row).collect());
    for of in all {
        if let Some(because) = &of.because {
            out += &format!("  {} under {}: {because}\n", of.scene, of.table);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::reproduce::weights::lab::OfTask;

    fn ran(picks: &[u32]) -> Ran {
        let task = |name: &str| OfTask { name: name.to_owned(), cpu_s: 0.0, vruntime_s: 0.0, end_s: None };
        let picks = picks.iter().enumerate().map(|(at, task)| (Nanos::from_millis(at as u64), *task));
        Ran { tasks: vec![task("a"), task("b")], picks: picks.collect(), ..Ran::default() }
    }

    #[test]
    fn the_first_difference_is_of_who_and_not_of_when() {
        assert_eq!(first_difference(&ran(&[1, 2, 1]), &ran(&[1, 2, 1, 2])), None);
        let found = first_difference(&ran(&[1, 2, 2]), &ran(&[1, 2, 0])).expect("the third differs");
        assert_eq!(
            (found.pick, found.at_s, found.linux.as_str(), found.here.as_str()),
            (3, 0.002, "none", "b")
        );
    }

    /// 922 to 922 instead of 1024 to 820; of one nice value only the pace differs: 1024 / 690 = 1.48.
    #[test]
    fn the_reason_is_of_shares_or_of_what_does_not_scale() {
        assert!(
            because(&SCENES[2], "group:2", 0, 0)
                .contains("first two weigh 922 to 922, under Linux's table 1024 to 820")
        );
        assert!(because(&SCENES[4], "group:5", 0, 0).contains("1.48 times as fast, and a sleeper"));
        assert!(because(&SCENES[0], "group:5", 3, 1).contains("1.48 times as fast. In 3 runs a tick"));
    }
}
