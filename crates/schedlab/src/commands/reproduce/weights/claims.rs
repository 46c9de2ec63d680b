//! What the paper says, and whether it comes out: each claim with the numbers it rests on and, where it does not, why.

use super::lab::{LINUX, table};
use super::picks::Compared;
use super::programs::{Beside, OfProgram, Programs};
use super::shares::{Share, percent};
use super::vruntimes::Pace;
use super::{derived, numbers::Interval};
use serde::Serialize;
use std::fmt::Write;

/// A difference of times below this is none.
const EFFECT_MIN: f64 = 0.01;
/// Shares may be off those of the weights by so much.
const SHARE_TOLERANCE: f64 = 0.01;
/// Slowdowns under two tables may differ by so much and still be the number's: a tick of each turn is lost to rounding.
const SLOWDOWN_TOLERANCE: f64 = 0.02;

/// One of them.
#[derive(Clone, Debug, Serialize)]
pub struct Claim {
    /// What the paper says.
    pub what: &'static str,
    /// Whether it comes out.
    pub reproduced: bool,
    /// Why not, or with what limit.
    pub because: Option<String>,
    /// What was found.
    pub found: String,
}

/// All of them.
pub fn all(vruntimes: &[Pace], picks: &[Compared], shares: &[Share], programs: &Programs) -> Vec<Claim> {
    vec![
        formula(),
        one_nice_step(shares),
        finer_shrinks(vruntimes),
        same_picks(picks),
        fair(shares),
        fair_to_both(shares),
        refined_changes_nothing(&programs.programs),
        batch_gains(&programs.programs),
        number_of_tasks(&programs.beside),
    ]
}

/// As text.
pub fn render(claims: &[Claim]) -> String {
    let holding = claims.iter().filter(|claim| claim.reproduced).count();
    let mut out = format!("What the paper says: {holding} of {} reproduced\n", claims.len());
    for Claim { what, reproduced, because, found } in claims {
        let verdict = if *reproduced { "reproduced" } else { "not reproduced" };
        let because = because.as_ref().map(|why| format!(", because {why}")).unwrap_or_default();
        writeln!(out, "  {what}\n    {verdict}{because}\n    found: {found}").expect("text grows");
    }
    out
}

/// A claim that holds, or the reason why not.
fn claim(what: &'static str, why_not: Option<String>, found: String) -> Claim {
    Claim { what, reproduced: why_not.is_none(), because: why_not, found }
}

fn formula() -> Claim {
    let off = derived::off_formula(&table(LINUX));
    claim(
        "weights are about 1024/1.25^nice (equation 2)",
        (off > 0.05).then(|| "the table is off it".to_owned()),
        format!("Linux's 40 are off it by {:.1} % at most, by rounding", off * 100.0),
    )
}

/// The text has the sign of the weight reversed: a lower nice value weighs a quarter more, not less.
fn one_nice_step(shares: &[Share]) -> Claim {
    let step = shares.iter().find(|share| share.table == LINUX && share.nice == [0, 1]);
    let found = step.map(|share| percent(share.found));
    let holds = found.is_some_and(|found| found.low >= 54.0 && found.high <= 57.0);
    claim(
        "one nice value less is about 10 % more CPU for one of two (its text says a quarter less weight: it is more)",
        (!holds).then(|| "the share is another".to_owned()),
        found.map_or("no run".to_owned(), |found| {
            format!("nice 0 beside nice 1 gets {found:.2} % of a CPU instead of 50")
        }),
    )
}

/// Whether vruntime falls, or stays, from table to table of rising fineness, and falls at all.
fn shrinks(of: &[&Pace]) -> bool {
    let falls = |pair: &[&Pace]| pair[1].found.low <= pair[0].found.high;
    let first_and_last = of.first().zip(of.last());
    of.windows(2).all(falls) && first_and_last.is_some_and(|(first, last)| last.found.high < first.found.low)
}

/// Which paces a case has.
type Chosen = fn(&&Pace) -> bool;

fn finer_shrinks(vruntimes: &[Pace]) -> Claim {
    let cases: [(&str, Chosen); 3] = [
        ("nice 0", |of| !of.strongest && of.nice == 0),
        ("nice 4", |of| !of.strongest && of.nice == 4),
        ("the strongest of each", |of| of.strongest),
    ];
    let (mut found, mut grows) = (Vec::new(), Vec::new());
    for (name, is_of) in cases {
        let of: Vec<&Pace> = vruntimes.iter().filter(is_of).collect();
        let paces = of.iter().map(|of| format!("{:.4}", of.found)).collect::<Vec<_>>().join(", ");
        found.push(format!("{name} {paces}"));
        if !shrinks(&of) {
            grows.push(name);
        }
    }
    claim(
        "finer weights shrink the vruntime of every task",
        (!grows.is_empty()).then(|| {
            format!(
                "it does not at {}: a mean gives the weaker half of a group more weight than Linux's table, so that \
                 finer groups speed its vruntime up",
                grows.join(" and ")
            )
        }),
        format!(
            "vruntime by CPU time under 8, 20, 40 and 60 weights: {} (40 and 60 are one table within -20 to 19)",
            found.join("; ")
        ),
    )
}

fn same_picks(picks: &[Compared]) -> Claim {
    let (alike, others): (Vec<&Compared>, Vec<&Compared>) = picks.iter().partition(|of| of.alike);
    let runs = |of: &[&Compared]| {
        let [equal, all] = of.iter().fold([0, 0], |[equal, all], of| [equal + of.equal, all + of.seeds]);
        format!("{equal} of {all} runs")
    };
    let mut why: Vec<&str> = Vec::new();
    if others.iter().any(|of| of.first.is_some()) {
        why.push("nice values that differ weigh otherwise to each other in groups, and the credit of a sleeper is a constant");
    }
    if alike.iter().any(|of| of.by_rounding > 0) {
        why.push("virtual times that are nearly equal are rounded otherwise");
    }
    if alike.iter().any(|of| of.by_turn > 0) {
        why.push("a tick within a slice compares virtual times with real time, which changes the order of turns once");
    }
    let [equal, all]: [usize; 2] =
        alike.iter().fold([0, 0], |[equal, all], of| [equal + of.picks_equal, all + of.picks]);
    claim(
        "the next pick does not depend on the table",
        (!why.is_empty()).then(|| why.join("; ")),
        format!(
            "every pick equal in {} of tasks of one nice value that do not sleep ({equal} of {all} picks before a \
             difference), in {} of others; each first difference is shown above",
            runs(&alike),
            runs(&others)
        ),
    )
}

fn fair(shares: &[Share]) -> Claim {
    let hogs: Vec<(&Share, f64)> =
        shares.iter().filter_map(|share| Some((share, share.by_weights?))).collect();
    let off =
        |(share, part): &(&Share, f64)| (share.found.low - part).abs().max((share.found.high - part).abs());
    let worst = hogs.iter().map(off).fold(0.0, f64::max);
    let holds = hogs.iter().all(|(share, part)| share.found.is_within(SHARE_TOLERANCE, *part));
    claim(
        "CPU time is shared fairly under every table",
        (!holds).then(|| "a share is off that of its weight".to_owned()),
        format!(
            "{} pairs of nice values and tables, every share within {:.3} points of its weight's (ends of intervals)",
            hogs.len(),
            worst * 100.0
        ),
    )
}

fn fair_to_both(shares: &[Share]) -> Claim {
    let of: Vec<&Share> = shares.iter().filter(|share| share.by_weights.is_none()).collect();
    let found = of.iter().map(|share| format!("{} {:+.2}", share.table, percent(share.more_than_linux)));
    let found = found.collect::<Vec<_>>().join(", ");
    let holds = of.iter().all(|share| share.more_than_linux.is_within(SHARE_TOLERANCE, 0.0));
    claim(
        "batch and interactive programs share alike under every table",
        (!holds).then(|| {
            "the part of the interactive one depends on the table: its credit is a constant".to_owned()
        }),
        format!("points that fibo gets more than under linux beside an interactive program: {found}"),
    )
}

/// Ratios of a table to Linux's, of programs together.
fn ratios<'a>(
    programs: &'a [OfProgram],
    table: &'a str,
) -> impl Iterator<Item = (&'static str, Interval)> + 'a {
    let of = programs.iter().filter(move |of| of.table == table);
    of.map(|of| (of.program, of.together_by_linux))
}

fn list(all: impl Iterator<Item = (&'static str, Interval)>) -> String {
    all.map(|(program, ratio)| format!("{program} {ratio}")).collect::<Vec<_>>().join(", ")
}

fn refined_changes_nothing(programs: &[OfProgram]) -> Claim {
    let holds = ratios(programs, "refine:60").all(|(_, ratio)| ratio.is_within(EFFECT_MIN, 1.0));
    claim(
        "added weights by the formula change no program's performance",
        (!holds).then(|| "a program's time changes".to_owned()),
        format!(
            "times under refine:60 by those under linux, together: {}",
            list(ratios(programs, "refine:60"))
        ),
    )
}

fn batch_gains(programs: &[OfProgram]) -> Claim {
    let tables = ["group:5", "group:2", "refine:60"];
    let of = |name: &str| -> Vec<Interval> {
        let all = tables.iter().flat_map(|table| ratios(programs, table));
        all.filter(|(program, _)| *program == name).map(|(_, ratio)| ratio).collect()
    };
    let least = |name: &str| of(name).iter().map(|ratio| ratio.low).fold(1.0, f64::min);
    let without: Vec<String> = ["fibo", "rays"]
        .into_iter()
        .filter(|name| of(name).iter().all(|ratio| ratio.high >= 1.0 - EFFECT_MIN))
        .map(|name| format!("{name} (a gain of up to {:.1} % is left open)", (1.0 - least(name)) * 100.0))
        .collect();
    let all = tables.map(|table| format!("{table}: {}", list(ratios(programs, table)))).join("; ");
    let slower = tables.iter().flat_map(|table| {
        let beyond = ratios(programs, table).filter(|(_, ratio)| ratio.low > 1.0 + EFFECT_MIN);
        beyond.map(move |(program, ratio)| format!("{program} takes {ratio} times as long under {table}"))
    });
    let slower: Vec<String> = slower.collect();
    let slower =
        if slower.is_empty() { "no program loses more than 1 %".to_owned() } else { slower.join(", ") };
    claim(
        "some batch programs (fibo, c-ray; here fibo, rays) gain when the range is narrowed or widened",
        (!without.is_empty()).then(|| {
            format!(
                "no gain beyond 1 % of {}: programs of one nice value have the same shares under every table",
                without.join(" and ")
            )
        }),
        format!("{slower}; times by those under linux, together: {all}"),
    )
}

/// The largest factor between slowdowns under two tables, of the same number of tasks.
fn spread(beside: &[Beside], nice: i32) -> f64 {
    let of = |runnable: u32| {
        let all = beside.iter().filter(move |of| of.nice == nice && of.runnable == runnable);
        let (low, high) = all.fold((f64::INFINITY, 0.0_f64), |(low, high), of| {
            (low.min(of.slowdown.low), high.max(of.slowdown.high))
        });
        high / low
    };
    beside.iter().map(|of| of.runnable).map(of).fold(1.0, f64::max)
}

fn number_of_tasks(beside: &[Beside]) -> Claim {
    let by_number = |of: &&Beside| {
        let number = f64::from(of.runnable);
        of.slowdown.is_within(SLOWDOWN_TOLERANCE * number, number)
    };
    let equal = beside.iter().filter(|of| of.nice == 0);
    let counted = equal.clone().all(|of| by_number(&of));
    let [same, other] = [spread(beside, 0), spread(beside, 5)];
    let holds = counted && same <= 1.0 + SLOWDOWN_TOLERANCE;
    let limit = format!(
        "; with others of nice 5 it does follow the weights: up to {other:.2} times between tables (ends of intervals)"
    );
    let ends = equal.filter(|of| of.table == LINUX).map(|of| format!("{} at {}", of.slowdown, of.runnable));
    claim(
        "slowdown when run together follows the number of runnable tasks, not the weights",
        (!holds).then(|| "it differs between tables, or from the number".to_owned()),
        format!(
            "all of nice 0: {} runnable; tables differ by a factor of {same:.3} at most{limit}",
            ends.collect::<Vec<_>>().join(", ")
        ),
    )
}
