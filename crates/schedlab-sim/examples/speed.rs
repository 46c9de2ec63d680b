//! Prints how many context switches the simulator does in a second of wall time.
//!
//! The load: 8 CPUs, 32 tasks, task i runs 200 + 10·(i mod 7) µs and sleeps 300 + 20·(i mod 5) µs, under the
//! fair class, nobody listening to events. Arguments: simulated seconds (default 50), kernel (default 7.2).
//! Not a benchmark of schedulers.

// A program around the simulator may read the clock; the simulator may not.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use schedlab_model::event::NullSink;
use schedlab_model::machine::MachineDescription;
use schedlab_model::topology::Topology;
use schedlab_model::workload::{Op, Program, ProgramId, TaskSpec, Workload};
use schedlab_model::{Nanos, TaskAttributes};
use schedlab_sim::{Simulation, SimulationConfig};
use std::sync::Arc;

fn workload(seconds: u64) -> Workload {
    let program = |i: u64| Program {
        ops: vec![
            Op::LoopStart { count: 0 },
            Op::Run(Nanos::from_micros(200 + 10 * (i % 7)).into()),
            Op::Sleep(Nanos::from_micros(300 + 20 * (i % 5)).into()),
            Op::LoopEnd,
        ],
    };
    let task = |i: u32| TaskSpec {
        name: format!("task{i}"),
        process: i,
        attributes: TaskAttributes::default(),
        program: ProgramId(i),
        start: Nanos::ZERO,
        start_cpu: None,
        template: false,
        target: true,
        stream: u64::from(i),
    };
    Workload {
        name: "run-sleep".to_owned(),
        tasks: (0..32).map(task).collect(),
        programs: (0..32).map(program).collect(),
        duration: Some(Nanos::from_secs(seconds)),
        ..Workload::default()
    }
}

#[allow(clippy::print_stdout)]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let seconds = arguments.next().map_or(Ok(50), |text| text.parse())?;
    let kernel = arguments.next().map_or(Ok("7.2".parse()?), |text| text.parse())?;
    let machine = MachineDescription { kernel, ..MachineDescription::generic("8 CPUs", Topology::flat(8)?) };
    let mut simulation = Simulation::new(SimulationConfig::new(machine, Arc::new(workload(seconds))))?;
    let start = std::time::Instant::now();
    let result = simulation.run(&mut NullSink)?;
    let wall = start.elapsed().as_secs_f64();
    let report = result.report;
    println!(
        "{} switches, {} events in {:.3} s: {:.2} million switches a second, {:.1} ns a switch; hash {}",
        report.context_switches,
        report.events,
        wall,
        report.context_switches as f64 / wall / 1e6,
        wall * 1e9 / report.context_switches as f64,
        report.event_hash,
    );
    Ok(())
}
