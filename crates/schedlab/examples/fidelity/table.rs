//! The table of docs/fidelity.md: recordings of one load together, their range beside the replays'.
//!
//! A recording is left out by a rule stated before: other tasks than the target and the recorder used more than 2 %
//! of the machine. A replay is within if it is within the tolerance of its own recording or within what the
//! recordings of the same load range over. Shares may differ by a point, or by as much as those of two recordings of
//! the load do.

use schedlab_model::recording::Recording;
use schedlab_model::timeline::{StretchKind, Timelines};
use schedlab_report::fidelity::{Fidelity, FidelityMetric, SHARE_POINTS_MAX, share_difference};
use std::collections::BTreeMap;

/// Most that others may use of the machine, in percent.
const OTHERS_PERCENT_MAX: f64 = 2.0;

/// One recording with the scores of its replays.
pub struct Scored {
    recorded: BTreeMap<FidelityMetric, f64>,
    simulated: BTreeMap<FidelityMetric, f64>,
    within: BTreeMap<FidelityMetric, Option<bool>>,
}

/// Scored recordings by load.
#[derive(Default)]
pub struct Table {
    loads: BTreeMap<String, Vec<Scored>>,
    /// The recordings themselves, to be compared with each other.
    recordings: BTreeMap<String, Vec<Recording>>,
    left_out: Vec<(String, f64)>,
}

impl Table {
    /// Whether the recording counts; if not it is noted.
    pub fn takes(&mut self, recording: &Recording) -> bool {
        let others = others_percent(recording);
        if others > OTHERS_PERCENT_MAX {
            self.left_out.push((load_of(recording), others));
        }
        others <= OTHERS_PERCENT_MAX
    }

    /// Adds a recording's scores, one a seed.
    pub fn add(&mut self, recording: &Recording, scores: &[Fidelity]) {
        let mut scored =
            Scored { recorded: BTreeMap::new(), simulated: BTreeMap::new(), within: BTreeMap::new() };
        for row in &scores[0].rows {
            let rows: Vec<_> = scores.iter().filter_map(|score| score.get(row.metric)).collect();
            let mean = rows.iter().map(|row| row.simulated).sum::<f64>() / rows.len() as f64;
            let good = rows.iter().filter(|row| row.within == Some(true)).count();
            scored.recorded.insert(row.metric, row.recorded);
            scored.simulated.insert(row.metric, mean);
            scored.within.insert(row.metric, row.within.map(|_| 2 * good > rows.len()));
        }
        self.loads.entry(load_of(recording)).or_default().push(scored);
        self.recordings.entry(load_of(recording)).or_default().push(recording.clone());
    }

    /// As Markdown.
    pub fn print(&self) {
        println!("| Load | Recordings | Metric | Recorded | Replayed | Ratio | Within |");
        println!("|---|---|---|---|---|---|---|");
        for (load, all) in &self.loads {
            let mut name = format!("`{load}` | {}", all.len());
            let live = live_shares(&self.recordings[load]);
            for metric in all[0].recorded.keys() {
                println!("| {name} | {}", row(*metric, all, &live));
                " | ".clone_into(&mut name);
            }
        }
        for (load, percent) in &self.left_out {
            println!("\nLeft out: `{load}`, beside others that used {percent:.1} % of the machine.");
        }
    }
}

/// How far the shares of any two recordings of a load are apart, in points.
fn live_shares(recordings: &[Recording]) -> Vec<f64> {
    let pairs =
        recordings.iter().enumerate().flat_map(|(at, a)| recordings[at + 1..].iter().map(move |b| (a, b)));
    pairs.map(|(a, b)| share_difference(a, b)).collect()
}

fn row(metric: FidelityMetric, all: &[Scored], live: &[f64]) -> String {
    let of = |values: fn(&Scored) -> &BTreeMap<FidelityMetric, f64>| -> Vec<f64> {
        all.iter().filter_map(|scored| values(scored).get(&metric).copied()).collect()
    };
    let (recorded, simulated) = (of(|scored| &scored.recorded), of(|scored| &scored.simulated));
    let (low, high) = range(&recorded);
    let share = metric == FidelityMetric::ShareDifference;
    let chance = live.iter().copied().fold(SHARE_POINTS_MAX, f64::max);
    let near = |value: f64| {
        if share { value <= chance } else { all.len() > 1 && (low..=high).contains(&value) }
    };
    let judged: Vec<bool> = all
        .iter()
        .filter_map(|scored| {
            let value = *scored.simulated.get(&metric)?;
            scored.within.get(&metric).copied().flatten().map(|within| within || near(value))
        })
        .collect();
    let ratios: Vec<f64> = recorded.iter().zip(&simulated).map(|(a, b)| b / a).collect();
    let has_ratio = !share && ratios.iter().all(|ratio| ratio.is_finite());
    let ratio = if has_ratio { span(&ratios, 2) } else { "–".to_owned() };
    let within = match judged.len() {
        0 => "shown only".to_owned(),
        count => format!("{} of {count}", judged.iter().filter(|within| **within).count()),
    };
    let (unit, scale, digits) = match metric {
        FidelityMetric::RunDelayMean | FidelityMetric::RunDelayP99 => (" µs", 1_000.0, 1),
        FidelityMetric::Makespan => (" ms", 1_000_000.0, 0),
        FidelityMetric::ShareDifference => (" points", 1.0, 1),
        _ => ("", 1.0, 0),
    };
    let scaled = |values: &[f64]| values.iter().map(|value| value / scale).collect::<Vec<f64>>();
    let was = match (share, live.is_empty()) {
        (true, true) => "–".to_owned(),
        (true, false) => format!("{} (two recordings)", span(live, digits)),
        _ => span(&scaled(&recorded), digits),
    };
    format!("{}{unit} | {was} | {} | {ratio} | {within} |", metric.name(), span(&scaled(&simulated), digits))
}

fn range(values: &[f64]) -> (f64, f64) {
    values.iter().fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(*value), high.max(*value)))
}

fn span(values: &[f64], digits: usize) -> String {
    let (low, high) = range(values);
    if values.len() == 1 { format!("{low:.digits$}") } else { format!("{low:.digits$} to {high:.digits$}") }
}

fn load_of(recording: &Recording) -> String {
    let command = recording.provenance.command.join(" ");
    command.rsplit('/').next().unwrap_or(&command).to_owned()
}

/// CPU time of tasks that are neither the target nor the recorder, in percent of the machine's.
fn others_percent(recording: &Recording) -> f64 {
    let timelines = Timelines::of(recording);
    let mut used = 0;
    for (task, stretches) in timelines.tasks.iter().enumerate().skip(1) {
        if recording.tasks[task].target {
            continue;
        }
        let running = stretches.iter().filter(|stretch| matches!(stretch.kind, StretchKind::Running { .. }));
        used += running.map(|stretch| stretch.length().0).sum::<u64>();
    }
    let used = u64::saturating_sub(used, recording.provenance.recorder_cpu.0);
    let machine = recording.duration.0 * recording.machine.topology.online_count() as u64;
    100.0 * used as f64 / machine.max(1) as f64
}
