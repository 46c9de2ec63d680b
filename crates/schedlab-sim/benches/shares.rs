//! CPU shares of two hogs at every pair of nice values against the share of their weights.
//!
//! `cargo bench -p schedlab-sim --bench shares [TABLE]` prints, for the fair class of three kernels and for each
//! scheduler that takes a weight table, the pair that is furthest off, in percentage points. Each run lasts at least
//! 100 slices of the lighter task.
#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "a program around the simulator")]

use schedlab_model::event::NullSink;
use schedlab_model::lever::Setting;
use schedlab_model::machine::{KernelVersion, MachineDescription};
use schedlab_model::topology::Topology;
use schedlab_model::weights::WeightTable;
use schedlab_model::workload::file;
use schedlab_model::{Nanos, Nice};
use schedlab_sim::ext::{ExtOptions, ExtScheduler};
use schedlab_sim::{Scheduler, Simulation, SimulationConfig};
use std::sync::Arc;

/// Two hogs of these nice values for so many ms.
fn hogs(nice: [i32; 2], ms: u64) -> String {
    let task = |name: &str, nice: i32| {
        format!("[[task]]\nname = \"{name}\"\nnice = {nice}\nsteps = [{{ run = \"1000000s\" }}]\n")
    };
    format!("name = \"two\"\nduration = \"{ms}ms\"\n{}{}", task("a", nice[0]), task("b", nice[1]))
}

/// Share of the first, and how many slices the lighter one had at least.
fn share(
    scheduler: &Scheduler,
    kernel: KernelVersion,
    nice: [i32; 2],
    ms: u64,
    table: &WeightTable,
) -> (f64, u64) {
    let workload = file::parse(&hogs(nice, ms)).expect("well-formed");
    let machine = MachineDescription::generic("one", Topology::flat(1).expect("a CPU"));
    let mut config = SimulationConfig::new(machine, Arc::new(workload));
    config.kernel = Some(kernel);
    config.scheduler = scheduler.clone();
    config.settings.push(Setting::Weights(table.clone()));
    config.duration_limit = Some(Nanos::from_millis(ms));
    let result = Simulation::new(config).expect("valid").run(&mut NullSink).expect("runs");
    let [a, b] = [1, 2].map(|task| result.accounts[task].cpu_time.0 as f64);
    (a / (a + b), result.report.context_switches / 2)
}

fn main() {
    let argument = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let table = WeightTable::parse(argument.as_deref().unwrap_or("linux")).expect("a weight table");
    let topology = Topology::flat(1).expect("a CPU");
    let object = |name: &str| {
        let bytes = schedlab_objects::scheduler(name).expect("in the library");
        let options = ExtOptions::default();
        let loaded = ExtScheduler::load(name, bytes, KernelVersion::V7_2, &topology, options);
        Scheduler::Ext(loaded.expect("one of ours"))
    };
    let kinds = [
        ("CFS 5.7", Scheduler::Kernel, KernelVersion::V5_7),
        ("CFS 6.1", Scheduler::Kernel, KernelVersion::V6_1),
        ("EEVDF 7.2", Scheduler::Kernel, KernelVersion::V7_2),
        ("vtime", object("vtime"), KernelVersion::V7_2),
        ("cfs", object("cfs"), KernelVersion::V7_2),
    ];
    let (strongest, weakest) = table.range();
    for (name, scheduler, kernel) in kinds {
        let (mut worst, mut at, mut fewest, mut pairs) = (0.0_f64, [0, 0], u64::MAX, 0);
        for a in strongest.get()..=weakest.get() {
            for b in a..=weakest.get() {
                let [first, second] = [a, b]
                    .map(|nice| f64::from(table.weight(Nice::widened(nice.into()).expect("in the table"))));
                let wanted = first / (first + second);
                let ms = (100.0 * 25.0 / wanted.min(1.0 - wanted)) as u64 + 500;
                let (found, slices) = share(&scheduler, kernel, [a, b], ms, &table);
                pairs += 1;
                fewest = fewest.min(slices);
                if (found - wanted).abs() > worst {
                    (worst, at) = ((found - wanted).abs(), [a, b]);
                }
            }
        }
        println!(
            "{name}: {pairs} pairs of nice values, worst {:.3} points (nice {} and {}), at least {fewest} slices",
            worst * 100.0,
            at[0],
            at[1]
        );
    }
}
