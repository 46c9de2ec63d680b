//! docs/fidelity.md from what was measured: what it comes to, the tables, the misses with what is known of them.
//!
//! The prose about how it is measured and what decides is a file of its own (tests/fidelity/causes.md) and follows
//! the tables. Judging is [`super::judge`]'s.

use super::judge::{self, Differential, LoadScore, PairScore, SHARE, Scored};
use super::measured::{Measured, Source};
use super::model_error::{self, ModelError, NO_EFFECT_MAX};
use super::plan::Plan;
use schedlab_model::topology::cpus_text;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// The whole page; `prose` follows what is made.
pub fn render(plan: &Plan, measured: &Measured, prose: &str) -> String {
    let loads = judge::loads(plan, measured);
    let pairs = judge::pairs(plan, measured);
    let mut page = head(measured);
    page += &summary(&loads, &pairs);
    page += &absolute(&loads);
    page += &differential(&pairs);
    page += &in_machines(&pairs);
    page += &classes(&pairs);
    page += &misses(&loads, &pairs);
    page += &not_whole(measured, &loads, &pairs);
    page + "\n" + prose.trim() + "\n"
}

fn head(measured: &Measured) -> String {
    let session = &measured.session;
    let of = &session.environment;
    let mut text = format!(
        "<!-- Made by `cargo xtask fidelity`; the prose is tests/fidelity/causes.md. -->\n\
         # Fidelity: how well the simulated kernel predicts the real one\n\n\
         Every load below ran on a live kernel and in the simulated one. Absolute numbers first; then ratios, on which\n\
         verdicts rest. `cargo xtask fidelity` measures all of it again and makes this page.\n\n\
         Machine: {}, {}; Linux {}, HZ {}, preemption {}; {}.\n",
        cpus_text(of.cpus as usize),
        described(&of.description),
        session.release,
        of.hz,
        of.preemption,
        date(session.began_unix_s),
    );
    if !session.costs_ns.is_empty() {
        let cost = |(name, ns): (&String, &f64)| format!("{} {:.1}", name.replace('_', " "), ns / 1_000.0);
        let costs: Vec<String> = session.costs_ns.iter().map(cost).collect();
        let _ = writeln!(
            text,
            "Costs were measured right before by `schedlab machine --calibrate`, µs: {}.",
            costs.join(", ")
        );
    }
    if session.quick {
        text += "\n**Measured with `--quick`: too few runs to judge by.**\n";
    }
    text + "\n"
}

/// A machine's description without what the page says itself.
fn described(text: &str) -> &str {
    text.split(';').next().unwrap_or(text).trim()
}

/// Seconds since the epoch as a date (Howard Hinnant's civil_from_days).
fn date(unix_s: u64) -> String {
    let days = unix_s / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let (day, month) = (of_year - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    format!("{:04}-{month:02}-{day:02}", year + era * 400 + u64::from(month <= 2))
}

fn summary(loads: &[LoadScore<'_>], pairs: &[PairScore<'_>]) -> String {
    let mut text = "| What | Goal | Reached |\n|---|---|---|\n".to_owned();
    for source in [Source::File, Source::Recording] {
        let judged: Vec<_> = loads.iter().filter(|load| load.source == source && load.counts()).collect();
        if judged.is_empty() {
            continue;
        }
        let within = judged.iter().filter(|load| load.within()).count();
        let enough = within * 12 >= judged.len() * judge::LOADS_WITHIN_OF_12;
        let worst = judged.iter().max_by(|a, b| a.excess().total_cmp(&b.excess()));
        let worst = worst.filter(|load| !load.within()).map(|load| format!("; worst: {}", load.load.name));
        let _ = writeln!(
            text,
            "| absolute, from a {} | at least {} of 12 within | {within} of {}{}{} |",
            source.words(),
            judge::LOADS_WITHIN_OF_12,
            judged.len(),
            worst.unwrap_or_default(),
            mark(enough)
        );
    }
    for source in [Source::File, Source::Recording] {
        text += &goals_of_pairs(pairs, source);
    }
    for source in [Source::File, Source::Recording] {
        let guests = || pairs.iter().filter(|pair| pair.source == source && !pair.pair.kernel.is_empty());
        let (all, inside) = (guests().count(), guests().filter(|pair| pair.within_measured()).count());
        if all > 0 {
            let _ = writeln!(
                text,
                "| {all} pairs in virtual machines, from a {}: predicted ratio | within the measured 90 % interval | {inside} of {all} |",
                source.words(),
            );
        }
    }
    text + "\n"
}

fn goals_of_pairs(pairs: &[PairScore<'_>], source: Source) -> String {
    let here: Vec<&PairScore<'_>> =
        pairs.iter().filter(|pair| pair.source == source && pair.pair.kernel.is_empty()).collect();
    let of = Differential::of(here.iter().copied());
    if of.pairs == 0 {
        return String::new();
    }
    let [signs, error, covered] = of.reached();
    let steady = Differential::of(here.iter().filter(|pair| pair.is_steady()).copied());
    let name = format!("{} pairs, from a {}", of.pairs, source.words());
    let mut text = format!(
        "| {name}: sign, where the effect exceeds A/A | at least {} of 20 | {} of {}{} |\n\
         | {name}: error of the ratio in the median at most {:.0} %, or A/A if that is more | at least {} within | {} of {}{} |\n\
         | {name}: stated 90 % intervals cover | at least {:.0} % | {} of {}{} |\n",
        judge::SIGNS_RIGHT_OF_20,
        of.signs_right,
        of.exceeding,
        mark(signs),
        100.0 * judge::RATIO_ERROR_MEDIAN_MAX,
        of.pairs.div_ceil(2),
        of.errors_within,
        of.pairs,
        mark(error),
        100.0 * judge::COVERED_MIN,
        of.covered,
        of.pairs,
        mark(covered),
    );
    let _ = writeln!(
        text,
        "| {name}: median error whatever A/A is | – | {:.1} %; of the {} with A/A of at most {:.0} %: {:.1} %, {} within, {} \
         covered |",
        100.0 * of.error_median,
        steady.pairs,
        100.0 * judge::STEADY_MAX,
        100.0 * steady.error_median,
        steady.errors_within,
        steady.covered,
    );
    text
}

fn mark(reached: bool) -> &'static str {
    if reached { "" } else { " – **missed**" }
}

fn absolute(loads: &[LoadScore<'_>]) -> String {
    if loads.is_empty() {
        return String::new();
    }
    let mut text = "## Absolute: live and simulated numbers of one load\n\n\
        Each cell: live range → simulated mean over live mean; bold where it is beyond its tolerance. Tolerances: shares\n"
        .to_owned();
    let _ = writeln!(
        text,
        "{} point, mean run delay {} times, 99th percentile {} times, both with a floor of {:.0} µs, makespan {} times; each is\n\
         the larger of this and what the live runs of the load show against each other. *From*: simulated from the workload\n\
         file that was played, or from recordings of the live runs. Loads in italics are shown and not judged: their\n\
         tasks neither contend nor wait for timers nor are pinned.\n",
        judge::SHARE_POINTS,
        judge::MEAN_FACTOR,
        judge::P99_FACTOR,
        judge::DELAY_FLOOR_NS / 1_000.0,
        judge::MAKESPAN_FACTOR
    );
    text += "| Load | From | Live runs | Shares, points | Run delay mean, µs | Run delay p99, µs | Makespan, ms | Within |\n\
             |---|---|---|---|---|---|---|---|\n";
    for load in loads {
        let cells: Vec<String> = ["", "run delay mean", "run delay p99", "makespan"]
            .iter()
            .map(|metric| {
                load.scored
                    .iter()
                    .find(|scored| scored.metric == *metric || (metric.is_empty() && scored.metric == SHARE))
            })
            .map(|scored| scored.map_or("–".to_owned(), cell))
            .collect();
        let name = &load.load.name;
        let name = if load.counts() { name.clone() } else { format!("*{name}*") };
        let within = if load.within() { "yes" } else { "**no**" };
        let _ = writeln!(
            text,
            "| {name} | {} | {} | {} | {within} |",
            load.source.words(),
            load.live_runs,
            cells.join(" | ")
        );
    }
    text + "\n"
}

fn cell(scored: &Scored) -> String {
    let (scale, digits) = match scored.metric {
        SHARE => (1.0, 1),
        "makespan" => (1e6, 0),
        _ => (1e3, 1),
    };
    let span = |(low, high): (f64, f64)| {
        let text = |value: f64| format!("{:.*}", digits, value / scale);
        if text(low) == text(high) { text(low) } else { format!("{} to {}", text(low), text(high)) }
    };
    let difference = match scored.metric {
        SHARE => format!("{:.1} (live {:.1})", scored.difference, scored.live.1),
        _ => format!("{} → {:.2}", span(scored.live), scored.difference),
    };
    if scored.within { difference } else { format!("**{difference}**") }
}

fn differential(pairs: &[PairScore<'_>]) -> String {
    let here: Vec<_> = pairs.iter().filter(|pair| pair.pair.kernel.is_empty()).collect();
    if here.is_empty() {
        return String::new();
    }
    "## Differential: the ratio of a change, on this machine\n\n\
     Live A and live B are interleaved (ABBA); the measured ratio B/A of the metric has its 90 % interval. Predicted: the\n\
     same from the file, or from recordings of A replayed as A and as B, with the interval stated for such a measurement.\n\
     *A/A* is how far apart as many runs of A are from each other; an effect below it has no sign to be right about, an\n\
     error below it is within its tolerance, and a stated interval is at least as wide. Pairs with a wide A/A range therefore\n\
     say little, and the others are counted by themselves above.\n\n"
        .to_owned()
        + &pair_table(&here)
}

fn in_machines(pairs: &[PairScore<'_>]) -> String {
    let guests: Vec<_> = pairs.iter().filter(|pair| !pair.pair.kernel.is_empty()).collect();
    if guests.is_empty() {
        return String::new();
    }
    "## Differential: knobs and schedulers, in virtual machines\n\n\
     The same on kernels of their own in QEMU without hardware virtualisation, with one CPU and a clock of 1 ns an\n\
     instruction, calibrated inside; each live pair in a boot of its own. Emulated times are not those of a real machine; only\n\
     ratios are compared. Recordings of A have what else runs in the guest.\n\n"
        .to_owned()
        + &pair_table(&guests)
}

fn classes(pairs: &[PairScore<'_>]) -> String {
    let mut text = format!(
        "## Errors by class of change\n\n\
         Nine of ten pairs are off by no more than this, A/A and scatter apart. Where next to no effect is predicted (at most\n\
         {NO_EFFECT_MAX} times), it is an error of the ratio; of other pairs a part of the effect's logarithm (of 4.0 with\n\
         20 % the ends are 3.0 and 5.3), once the first is taken off. *Stated* is what the intervals above have, from an earlier\n\
         measurement, and what `compare` widens its intervals by; *found* is what this measurement says.\n\n\
         | Class | From | Pairs | Error, median | Stated | Found |\n|---|---|---|---|---|---|\n"
    );
    for source in [Source::File, Source::Recording] {
        let of_source: Vec<_> = pairs.iter().filter(|score| score.source == source).collect();
        let (none, some): (Vec<_>, Vec<_>) =
            of_source.iter().partition(|pair| model_error::has_no_effect(pair));
        let found = ModelError::found(&of_source);
        let mut line = |class: &str, of: &[&PairScore<'_>], stated: f64, found: f64| {
            let errors: Vec<f64> = of.iter().map(|score| score.error()).collect();
            let median = crate::compare::stats::median(&errors).unwrap_or(0.0);
            let percents = [median, stated, found].map(|part| format!("{:.0} %", 100.0 * part)).join(" | ");
            let _ = writeln!(text, "| {class} | {} | {} | {percents} |", source.words(), of.len());
        };
        if !of_source.is_empty() {
            line("*no effect*", &none, model_error::of_all(source).least, found.least);
            line("*any effect*", &some, model_error::of_all(source).share, found.share);
        }
        let classes: BTreeSet<&str> = some.iter().map(|score| score.pair.class.as_str()).collect();
        for class in classes {
            let of: Vec<_> = some.iter().copied().filter(|score| score.pair.class == class).collect();
            let stated = model_error::of_class(class, source).0.share;
            line(class, &of, stated, model_error::share_of(&of, found.least.ln_1p()));
        }
    }
    if pairs.is_empty() { String::new() } else { text + "\n" }
}

fn pair_table(pairs: &[&PairScore<'_>]) -> String {
    let mut text = "| Work | Change | Metric | Live A → B | Measured B/A | A/A | From | Predicted B/A | Error | Sign | Covered |\n\
                    |---|---|---|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    for score in pairs {
        let pair = score.pair;
        let kernel = if pair.kernel.is_empty() { String::new() } else { format!(" on {}", pair.kernel) };
        let sign = match (score.exceeds_noise(), score.sign_right()) {
            (false, _) => "–",
            (true, true) => "right",
            (true, false) => "**wrong**",
        };
        let interval = |of: &crate::compare::stats::LogInterval| {
            format!("{} ({} to {})", ratio(of.estimate), ratio(of.low), ratio(of.high))
        };
        let covered = if score.covered() { "yes" } else { "**no**" };
        let _ = writeln!(
            text,
            "| {}{kernel} | {} | {} | {} → {} | {} | ±{:.0} % | {} | {} | {:.0} % | {sign} | {covered} |",
            pair.of(),
            pair.change(),
            pair.metric.replace('_', " "),
            value(score.live.0),
            value(score.live.1),
            interval(&score.measured),
            100.0 * score.noise.exp_m1(),
            score.source.words(),
            interval(&score.predicted),
            100.0 * score.error(),
        );
    }
    text + "\n"
}

fn ratio(log: f64) -> String {
    let ratio = log.exp();
    let digits = if ratio >= 10.0 {
        1
    } else if ratio >= 0.1 {
        2
    } else {
        3
    };
    format!("{ratio:.digits$}")
}

fn value(ns: f64) -> String {
    crate::units::time(ns)
}

fn misses(loads: &[LoadScore<'_>], pairs: &[PairScore<'_>]) -> String {
    let mut text = String::new();
    for load in loads.iter().filter(|load| !load.within()) {
        let outside = load.scored.iter().filter(|scored| !scored.within).map(|scored| match scored.metric {
            SHARE => format!("shares by {:.1} points", scored.difference),
            metric => format!("{metric} {:.2} times", scored.difference),
        });
        let outside: Vec<String> = outside.collect();
        let _ = writeln!(
            text,
            "- **{}**, from a {}: {}. {}",
            load.load.name,
            load.source.words(),
            outside.join(", "),
            known(&load.load.known)
        );
    }
    let missed = |pair: &&PairScore<'_>| !pair.covered() || (pair.exceeds_noise() && !pair.sign_right());
    for score in pairs.iter().filter(missed) {
        let _ = writeln!(
            text,
            "- **{}, {}**, from a {}: measured {}, predicted {}. {}",
            score.pair.of(),
            score.pair.change(),
            score.source.words(),
            ratio(score.measured.estimate),
            ratio(score.predicted.estimate),
            known(&score.pair.known)
        );
    }
    if text.is_empty() { text } else { format!("## Misses\n\n{text}") }
}

fn known(text: &str) -> &str {
    if text.is_empty() { "The cause is not known." } else { text }
}

fn not_whole(measured: &Measured, loads: &[LoadScore<'_>], pairs: &[PairScore<'_>]) -> String {
    let scored: BTreeSet<&str> = (loads.iter().map(|score| score.load.name.as_str()))
        .chain(pairs.iter().map(|score| score.pair.name.as_str()))
        .collect();
    let all = measured.loads.iter().map(|runs| (&runs.name, &runs.problem));
    let all = all.chain(measured.pairs.iter().map(|runs| (&runs.name, &runs.problem)));
    let mut text = String::new();
    for (name, problem) in all {
        let why = match problem {
            Some(problem) => problem.as_str(),
            None if scored.contains(name.as_str()) => continue,
            None => "too few live runs that others did not disturb",
        };
        let _ = writeln!(text, "- **{name}**: {why}");
    }
    if text.is_empty() { text } else { format!("\n## Not measured\n\n{text}") }
}
