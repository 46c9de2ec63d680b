//! Writes the text, JSON and page of a made-up comparison, to be looked at:
//! `cargo run -p schedlab-report --example page -- DIRECTORY`.

#![allow(clippy::print_stdout, reason = "an example talks")]

#[path = "toy/compared.rs"]
mod compared;
#[path = "toy/mod.rs"]
mod toy;

use schedlab_report::html::{self, Picture};
use schedlab_report::timeline::Timeline;
use schedlab_report::{json, text};
use std::path::Path;

fn main() -> std::io::Result<()> {
    let directory = std::env::args().nth(1).unwrap_or_else(|| ".".to_owned());
    let directory = Path::new(&directory);
    let (result, made) = compared::result();
    let picture = |(candidate, made): (String, toy::Made)| {
        let cpus = made.topology.cpu_count();
        let timeline = Timeline::new(&made.events, &made.tasks, cpus, made.length);
        Picture { candidate, timeline, target: made.tasks.iter().map(|task| task.target).collect() }
    };
    let pictures: Vec<Picture> = made.into_iter().map(picture).collect();
    std::fs::write(directory.join("result.html"), html::page(&result, &pictures))?;
    print!("{}", text::render(&result, text::TextOptions { color: true }));
    std::fs::write(directory.join("result.json"), json::to_json(&result))
}
