//! Records a command into a file and prints what the recorder measured: `record FILE COMMAND...`.
#![allow(clippy::print_stdout)]

use schedlab_host::record::{RecordOptions, Target, record};
use schedlab_model::recording::codec::decode;
use std::fs;
use std::io::BufWriter;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().ok_or("usage: record FILE COMMAND...")?;
    let options = RecordOptions::new(Target::Command(arguments.collect()));
    let out = BufWriter::new(fs::File::create(&file)?);
    let summary = record(&options, out, &mut ())?;
    let recording = decode(&fs::read(&file)?)?;
    println!("{summary:#?}");
    println!("{:.2} bytes an event", summary.bytes as f64 / summary.events as f64);
    println!(
        "read back: {} tasks ({} of the target), {} channels, {} events over {}",
        recording.tasks.len(),
        recording.tasks.iter().filter(|task| task.target).count(),
        recording.channels.len(),
        recording.events.len(),
        recording.duration
    );
    Ok(())
}
