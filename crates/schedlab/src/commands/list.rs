//! `schedlab list`: what can be named on the command line.

use crate::args::{ListArgs, ListWhat};
use crate::failure::Failure;
use crate::inputs::{library, machines, schedulers};
use crate::output::{print_text, write_file};
use schedlab_model::metric::{Direction, Metric};
use schedlab_model::workload::{builtin, file};
use serde_json::{Value, json};
use std::fmt::Write;

/// One entry of a list.
struct Row {
    name: String,
    text: String,
    details: Vec<(String, String)>,
}

/// Lists what was asked for.
pub fn run(args: &ListArgs) -> Result<(), Failure> {
    let rows = match args.what {
        ListWhat::Schedulers => schedulers()?,
        ListWhat::Workloads => workloads()?,
        ListWhat::Machines => machines()?,
        ListWhat::Metrics => metrics(),
    };
    if let Some(path) = &args.json {
        let list: Vec<Value> = rows.iter().map(as_json).collect();
        let mut text = serde_json::to_string_pretty(&list).map_err(Failure::input)?;
        text.push('\n');
        return write_file(path, text.as_bytes());
    }
    let mut out = String::new();
    let width = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
    for row in &rows {
        writeln!(out, "{:width$}  {}", row.name, row.text).map_err(Failure::input)?;
        for (name, text) in &row.details {
            writeln!(out, "{:width$}    {name}  {text}", "").map_err(Failure::input)?;
        }
    }
    print_text(&out)
}

fn as_json(row: &Row) -> Value {
    let details: Vec<Value> =
        row.details.iter().map(|(name, text)| json!({"name": name, "text": text})).collect();
    json!({"name": row.name, "text": row.text, "details": details})
}

fn schedulers() -> Result<Vec<Row>, Failure> {
    let mut rows = vec![Row {
        name: "fair".to_owned(),
        text: "The kernel's own class (EEVDF)".to_owned(),
        details: Vec::new(),
    }];
    for name in schedulers::library() {
        let described = schedulers::describe(name)?;
        let knob = |knob: &schedlab_model::knob::Knob| {
            let live = if knob.live { ", live" } else { "" };
            let bounds = format!("{} to {} {}", knob.min, knob.max, knob.unit);
            (format!("{}={}", knob.name, knob.default), format!("{bounds}{live}: {}", knob.meaning))
        };
        let details = described.knobs.iter().map(knob).collect();
        rows.push(Row { name: name.to_owned(), text: described.summary, details });
    }
    Ok(rows)
}

fn workloads() -> Result<Vec<Row>, Failure> {
    let parameter =
        |(name, default, meaning): &(&str, &str, &str)| (format!("{name}={default}"), (*meaning).to_owned());
    let mut rows: Vec<Row> = builtin::BUILTINS
        .iter()
        .map(|builtin| Row {
            name: builtin.name.to_owned(),
            text: builtin.description.to_owned(),
            details: builtin.parameters.iter().map(parameter).collect(),
        })
        .collect();
    for (name, text) in library::WORKLOADS {
        let workload = file::parse(text).map_err(Failure::input)?;
        rows.push(Row { name: (*name).to_owned(), text: workload.description, details: Vec::new() });
    }
    Ok(rows)
}

fn machines() -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for (name, text) in library::MACHINES {
        let machine = machines::parse(text, name)?;
        let cpus = machine.topology.cpus_text();
        let text = format!("{cpus}, kernel {}: {}", machine.kernel, machine.description);
        rows.push(Row { name: (*name).to_owned(), text, details: Vec::new() });
    }
    rows.push(Row { name: "this".to_owned(), text: "The machine at hand".to_owned(), details: Vec::new() });
    Ok(rows)
}

fn metrics() -> Vec<Row> {
    let row = |metric: &Metric| {
        let better = match metric.direction() {
            Direction::Lower => "less is better",
            Direction::Higher => "more is better",
        };
        let unit = metric.unit();
        let text = format!("[{unit}, {better}] {}", metric.meaning().trim());
        Row { name: metric.key().to_owned(), text, details: Vec::new() }
    };
    Metric::ALL.iter().map(row).collect()
}
