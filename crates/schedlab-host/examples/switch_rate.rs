//! Whether the recorder keeps up: as many switches as this machine makes, recorded, and what was lost.
//!
//! `switch_rate [SECONDS [PAIRS]]`: on each CPU so many pairs of threads hand a byte to and fro through pipes, each hand-over a
//! wake-up and a switch. Prints switches a second, all events, bytes an event, what was lost, how full the buffers were, and
//! the recorder's share of a CPU.
#![allow(clippy::print_stdout)]

use schedlab_host::machine;
use schedlab_host::record::{RecordOptions, Target, record};
use schedlab_model::event::EventKind;
use schedlab_model::recording::codec;
use std::io::{Read, Write, pipe};
use std::time::Duration;

type Failure = Box<dyn std::error::Error>;

/// Binds the calling thread to a CPU.
fn bind(cpu: usize) {
    // SAFETY: the set is plain bits on the stack; the call concerns this thread only.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}

/// Two threads on one CPU; they end with the process.
fn ping_pong(cpu: usize) -> Result<(), Failure> {
    let ((mut take_one, mut give_one), (mut take_other, mut give_other)) = (pipe()?, pipe()?);
    std::thread::spawn(move || {
        bind(cpu);
        let mut byte = [0];
        while take_one.read_exact(&mut byte).is_ok() && give_other.write_all(&byte).is_ok() {}
    });
    std::thread::spawn(move || {
        bind(cpu);
        let mut byte = [0];
        while give_one.write_all(&byte).is_ok() && take_other.read_exact(&mut byte).is_ok() {}
    });
    Ok(())
}

/// This program again, as the target: runs until it is killed.
fn load(pairs: usize) -> Result<(), Failure> {
    for cpu in 0..machine::possible_cpus() {
        for _ in 0..pairs {
            ping_pong(cpu)?;
        }
    }
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [word, pairs] = &words[..]
        && word == "load"
    {
        return load(pairs.parse()?);
    }
    let seconds: f64 = words.first().map_or(Ok(5.0), |text| text.parse())?;
    let pairs = words.get(1).cloned().unwrap_or_else(|| "2".to_owned());
    let own = std::env::current_exe()?.display().to_string();
    let mut options = RecordOptions::new(Target::Command(vec![own, "load".to_owned(), pairs]));
    options.duration = Some(Duration::from_secs_f64(seconds));
    let mut bytes = Vec::new();
    let summary = record(&options, &mut bytes, &mut ())?;
    let recording = codec::decode(&bytes)?;
    let switches = recording.events.iter().filter(|event| matches!(event.kind, EventKind::Switch { .. }));
    let length = summary.duration.as_secs_f64();
    println!(
        "{:.0} switches a second, {:.0} events a second, {:.2} bytes each, {} lost, buffers of {} MiB {} % full, recorder {:.1} % of a CPU",
        switches.count() as f64 / length,
        summary.events as f64 / length,
        summary.bytes as f64 / summary.events.max(1) as f64,
        summary.dropped_per_cpu.iter().sum::<u64>(),
        summary.buffer_bytes >> 20,
        summary.buffer_fill_max,
        summary.recorder_cpu.as_secs_f64() / length * 100.0,
    );
    Ok(())
}
