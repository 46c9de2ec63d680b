//! Times the metrics collector on a made-up run: `cargo run --release -p schedlab-report --example speed`.

#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "an example talks and reads the clock")]

#[path = "toy/mod.rs"]
mod toy;

use schedlab_model::event::EventSink;
use schedlab_model::time::Nanos;
use schedlab_report::MetricsCollector;
use std::time::Instant;

fn main() {
    let length = Nanos::from_secs(40);
    let (slice, order) = (Nanos::from_micros(200), toy::Order::Vtime);
    let made = toy::Toy { cpus: 8, periodic: 12, hogs: 20, length, slice, order, seed: 1 }.make();
    let start = Instant::now();
    let mut collector = MetricsCollector::new(&made.tasks, &made.topology);
    made.events.iter().for_each(|event| collector.event(event));
    let run = collector.finish(made.length);
    let ns = start.elapsed().as_nanos() as f64 / made.events.len() as f64;
    println!("{} events, {ns:.0} ns an event, {} tasks", made.events.len(), run.tasks.len());
}
