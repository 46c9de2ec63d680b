//! Latency distributions: for each time the share of waits that were longer, both axes logarithmic, so that
//! the tail is seen; and the percentiles with their counts.

use super::svg::{self, Scale};
use super::{escape, table};
use crate::result::{CandidateRecord, HistogramRecord, ResultFile};
use crate::units;

const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 330.0;
/// Below this count a 99.9th percentile is one of the ten largest values: shown, but greyed.
const P999_COUNT_MIN: u64 = 10_000;

pub(super) fn section(result: &ResultFile) -> Option<String> {
    let shown = [
        ("wakeup_latency", "Wake-up latency", "from waking to running"),
        ("run_delay", "Run delay", "from runnable to running, preemptions included"),
        ("request", "Request", "from an outside wake-up to the next block"),
    ];
    let parts: Vec<String> =
        shown.iter().filter_map(|(key, title, meaning)| part(result, key, title, meaning)).collect();
    (!parts.is_empty()).then(|| {
        format!(
            "<section><h2>Distributions</h2><p class=\"note\">Share of waits longer than the time on the axis, \
             all runs of a candidate together. A curve farther left is better; the dashed one is the \
             baseline.</p>{}</section>",
            parts.concat()
        )
    })
}

fn part(result: &ResultFile, key: &str, title: &str, meaning: &str) -> Option<String> {
    let full: Vec<(usize, &CandidateRecord, &HistogramRecord)> = result
        .candidates
        .iter()
        .enumerate()
        .filter_map(|(index, candidate)| Some((index, candidate, candidate.histograms.get(key)?)))
        .filter(|(_, _, histogram)| histogram.count > 0)
        .collect();
    if full.is_empty() {
        return None;
    }
    let open = if key == "wakeup_latency" { " open" } else { "" };
    Some(format!(
        "<details{open}><summary><h3 style=\"display:inline\">{title}</h3> <span class=\"soft\">{meaning}</span>\
         </summary>{}{}</details>",
        curves(result, title, &full),
        percentiles(&full)
    ))
}

fn curves(result: &ResultFile, title: &str, full: &[(usize, &CandidateRecord, &HistogramRecord)]) -> String {
    let low = full.iter().map(|(.., histogram)| histogram.min_ns).min().unwrap_or(1).max(500) as f64;
    let high = full.iter().map(|(.., histogram)| histogram.max_ns).max().unwrap_or(1).max(1_000) as f64;
    let most = full.iter().map(|(.., histogram)| histogram.count).max().unwrap_or(1) as f64;
    let x = Scale::logarithmic(low, high * 1.05, 62.0, WIDTH - 12.0);
    let y = Scale::logarithmic(1.0 / most, 1.0, HEIGHT - 42.0, 12.0);
    let mut inner = grid(&x, &y);
    let baseline = result.comparison.as_ref().map(|comparison| comparison.baseline.as_str());
    for (index, candidate, histogram) in full {
        let mut longer = histogram.count as f64;
        let mut points = vec![(x.at(low), y.at(1.0))];
        for (_, above, count) in &histogram.buckets {
            longer -= *count as f64;
            let share = (longer / histogram.count as f64).max(0.5 / most);
            points.push((x.at((*above).min(histogram.max_ns) as f64), y.at(share)));
        }
        let base = if baseline == Some(candidate.name.as_str()) { " base" } else { "" };
        inner += &format!(
            "<path class=\"curve{base}\" stroke=\"{}\" d=\"{}\"><title>{}</title></path>",
            svg::color(*index),
            svg::steps(&points, points.last().map_or(0.0, |last| last.0)),
            escape(&candidate.name)
        );
    }
    let legend: String = full
        .iter()
        .map(|(index, candidate, _)| {
            let color = svg::color(*index);
            format!(
                "<li><span class=\"key\" style=\"background:{color}\"></span>{}</li>",
                escape(&candidate.name)
            )
        })
        .collect();
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}: share of waits longer than a \
         time, by candidate\">{inner}</svg><ul class=\"legend\">{legend}</ul>"
    )
}

fn grid(x: &Scale, y: &Scale) -> String {
    let (left, right, top, bottom) = (62.0, WIDTH - 12.0, 12.0, HEIGHT - 42.0);
    let mut out = String::new();
    for tick in x.ticks(12) {
        let at = x.at(tick);
        out += &format!(
            "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{top}\" y2=\"{bottom}\"/>\
             <text class=\"mid\" x=\"{at:.1}\" y=\"{:.1}\">{}</text>",
            bottom + 17.0,
            round_time(tick)
        );
    }
    for tick in y.ticks(6) {
        let at = y.at(tick);
        out += &format!(
            "<line class=\"grid\" x1=\"{left}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
             <text class=\"end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            left - 8.0,
            at + 4.0,
            share_text(tick)
        );
    }
    out += &format!("<path class=\"axis\" d=\"M{left} {top}V{bottom}H{right}\"/>");
    out + &format!("<text class=\"end\" x=\"{right}\" y=\"{:.1}\">time waited</text>", HEIGHT - 6.0)
}

/// A tick's time without needless digits: `20 µs`.
pub(super) fn round_time(ns: f64) -> String {
    let (scale, unit) = match ns {
        _ if ns < 1e3 => (1.0, "ns"),
        _ if ns < 1e6 => (1e3, "µs"),
        _ if ns < 1e9 => (1e6, "ms"),
        _ => (1e9, "s"),
    };
    let text = format!("{:.2}", ns / scale);
    format!("{} {unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

fn share_text(share: f64) -> String {
    if share >= 0.01 { format!("{:.0} %", share * 100.0) } else { format!("{} %", share * 100.0) }
}

fn percentiles(full: &[(usize, &CandidateRecord, &HistogramRecord)]) -> String {
    let header = ["candidate", "mean", "p50", "p90", "p99", "p99.9", "max", "count"];
    let rows: Vec<Vec<(String, &str)>> = full
        .iter()
        .map(|(_, candidate, histogram)| {
            let at = |name: &str| {
                histogram.percentiles_ns.get(name).map_or("–".to_owned(), |ns| units::time(*ns as f64))
            };
            let few = if histogram.count < P999_COUNT_MIN { "grey" } else { "" };
            vec![
                (escape(&candidate.name), "name"),
                (units::time(histogram.mean_ns as f64), ""),
                (at("p50"), ""),
                (at("p90"), ""),
                (at("p99"), ""),
                (at("p99.9"), few),
                (units::time(histogram.max_ns as f64), ""),
                (units::grouped(histogram.count as i64), ""),
            ]
        })
        .collect();
    table(&header, &rows, 1)
}
