//! Writes the text, JSON and page of a made-up comparison, to be looked at:
//! `cargo run -p schedlab-report --example page -- DIRECTORY`.

#![allow(clippy::print_stdout, reason = "an example talks")]

#[path = "toy/compared.rs"]
mod compared;
#[path = "toy/mod.rs"]
mod toy;

use schedlab_report::{json, text};
use std::path::Path;

fn main() -> std::io::Result<()> {
    let directory = std::env::args().nth(1).unwrap_or_else(|| ".".to_owned());
    let directory = Path::new(&directory);
    let (result, _pictures) = compared::result();
    print!("{}", text::render(&result, text::TextOptions { color: true }));
    std::fs::write(directory.join("result.json"), json::to_json(&result))
}
