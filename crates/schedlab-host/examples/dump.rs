//! Prints a recording as text: `dump FILE`.
#![allow(clippy::print_stdout)]

use schedlab_model::recording::codec::decode_prefix;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::args().nth(1).ok_or("usage: dump FILE")?;
    let (recording, damage) = decode_prefix(&std::fs::read(file)?)?;
    println!("{:?}\n{:?}\n{damage:?}", recording.provenance, recording.machine);
    for (index, task) in recording.tasks.iter().enumerate() {
        println!("task{index} {task:?}");
    }
    for (index, channel) in recording.channels.iter().enumerate() {
        println!("channel{index} {channel:?}");
    }
    for event in &recording.events {
        println!("{} {:?} {:?}", event.time.0, event.cpu, event.kind);
    }
    Ok(())
}
