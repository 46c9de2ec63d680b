//! The table that kernel developers read on their mailing list: values normalised to the baseline, with
//! improvement in percent and coefficient of variation, one row for each recording.
//!
//! The form is that of K Prateek Nayak's scheduler reports: `1.00 [  0.00]( 2.31)`.

use crate::compare::stats;
use crate::objective::Objective;
use crate::result::ResultFile;
use schedlab_model::metric::{Direction, Metric};

/// The table for these metrics; metrics that no run has are left out. Columns are candidates in the order
/// of the result, the baseline first.
pub fn kernel_table(result: &ResultFile, metrics: &[Metric]) -> String {
    metrics.iter().filter_map(|metric| section(result, *metric)).collect::<Vec<_>>().join("\n")
}

fn section(result: &ResultFile, metric: Metric) -> Option<String> {
    let baseline = result.comparison.as_ref().map(|comparison| comparison.baseline.as_str());
    let names = || result.candidates.iter().map(|candidate| candidate.name.as_str());
    let baseline = baseline.or_else(|| names().next())?;
    let mut columns = vec![baseline];
    columns.extend(names().filter(|name| *name != baseline));
    let rows: Vec<(String, Vec<String>)> = (0..result.works.len())
        .filter_map(|work| {
            let base = stats::median(&values(result, baseline, work, metric))?;
            let cells = columns.iter().map(|name| cell(&values(result, name, work, metric), base, metric));
            Some((result.works[work].name.clone(), cells.collect()))
        })
        .collect();
    if rows.is_empty() {
        return None;
    }
    let interpretation = if metric.direction() == Direction::Lower { "Lower" } else { "Higher" };
    let rule = "=".repeat(66);
    let mut out = format!(
        "{rule}\nTest          : {}\nUnits         : Normalized {}\nInterpretation: {interpretation} is better\n\
         Statistic     : Median\n{rule}\n",
        metric.key(),
        if metric.unit() == "ns" { "time" } else { "value" },
    );
    let title = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0).max(5);
    let width = columns.iter().map(|name| name.chars().count() + 14).max().unwrap_or(0).max(24);
    out += &format!("{:<title$}", "Case:");
    columns.iter().for_each(|name| out += &format!("  {:>width$}", format!("{name}[pct imp](CV)")));
    out.push('\n');
    for (name, cells) in rows {
        out += &format!("{name:<title$}");
        cells.iter().for_each(|cell| out += &format!("  {cell:>width$}"));
        out.push('\n');
    }
    Some(out)
}

fn values(result: &ResultFile, candidate: &str, work: usize, metric: Metric) -> Vec<f64> {
    let runs = result
        .runs
        .iter()
        .filter(|run| run.candidate == candidate && run.work as usize == work && run.cost_seed.is_none());
    runs.filter_map(|run| Objective::Metric(metric).value_of_record(run)).collect()
}

fn cell(values: &[f64], base: f64, metric: Metric) -> String {
    let Some(median) = stats::median(values).filter(|_| base != 0.0) else { return "-".to_owned() };
    let normalised = median / base;
    let improvement = match metric.direction() {
        Direction::Lower => 1.0 - normalised,
        Direction::Higher => normalised - 1.0,
    };
    let mean = stats::mean(values);
    let variation = if mean == 0.0 { 0.0 } else { stats::variance(values).sqrt() / mean.abs() };
    format!("{normalised:.2} [{:>7.2}]({:>5.2})", improvement * 100.0, variation * 100.0)
}
