//! The ideal scheduler bounds all others: nothing waits under it, and no run of the same work is shorter.

mod ext_runs;

use schedlab_bpf::image::ObjectImage;
use schedlab_model::event::NullSink;
use schedlab_model::machine::{KernelVersion, MachineDescription};
use schedlab_model::recording::codec;
use schedlab_model::topology::Topology;
use schedlab_model::workload::builder::Builder;
use schedlab_model::workload::{Amount, ChannelType, Op, Workload, builtin};
use schedlab_model::{Nanos, TaskAttributes};
use schedlab_sim::ext::{ExtOptions, ExtScheduler, kernel_btf};
use schedlab_sim::replay::{ReplayOptions, calibrated, workload_from};
use schedlab_sim::{Scheduler, Simulation, SimulationConfig, SimulationResult};
use std::sync::Arc;

/// Work and the machine it runs on.
struct Work {
    name: &'static str,
    workload: Arc<Workload>,
    machine: MachineDescription,
}

fn flat(name: &'static str, workload: Workload, cpus: u32) -> Work {
    let machine = MachineDescription::generic("test", Topology::flat(cpus).expect("CPUs"));
    Work { name, workload: Arc::new(workload), machine }
}

fn replay(name: &'static str, bytes: &[u8]) -> Work {
    let mut recording = codec::decode(bytes).expect("a recording");
    recording.machine = calibrated(&recording);
    let workload = workload_from(&recording, &ReplayOptions::default()).expect("replays").workload;
    Work { name, workload: Arc::new(workload), machine: recording.machine }
}

/// A writer and a reader of a thousand messages. Whether the reader ever waits, and pays for it, is the scheduler's doing:
/// where both share a CPU it may find all messages there.
fn reader_that_pays_for_waits() -> Workload {
    let mut b = Builder::new("a reader that pays for waits", "");
    let channel = b.channel("pipe", ChannelType::Bytes, 1_000_000, 0);
    let run = |us| Op::Run(Amount::Fixed(Nanos::from_micros(us)));
    let writes = (0..1_000).flat_map(|_| [run(3), Op::Send { channel, bytes: 100 }]);
    b.task("writer", "writer", TaskAttributes::default(), writes.collect());
    let reads = (0..1_000).flat_map(|_| [Op::ReceiveAll { channel, bytes: 100 }, run(1)]);
    b.task("reader", "reader", TaskAttributes::default(), reads.collect());
    let mut workload = b.finish(None).expect("a workload");
    (workload.calls_in_runs, workload.sleep_cost) = (true, Nanos(1_500));
    workload
}

fn works() -> Vec<Work> {
    let built_in = |name: &'static str| builtin::make(name).expect("known").expect("can be made");
    let files = [
        "hackbench:groups=1,loops=5",
        "ping-pong:rounds=500",
        "periodic:duration=500ms",
        "hogs:duration=500ms",
        "mix:duration=500ms",
    ];
    let mut works: Vec<Work> = files.into_iter().map(|name| flat(name, built_in(name), 2)).collect();
    works.push(flat("a reader that pays for waits", reader_that_pays_for_waits(), 1));
    works.push(replay("hackbench", include_bytes!("../../../recordings/hackbench-g1-l50.slrec")));
    works.push(replay("mixed", include_bytes!("../../../recordings/mixed.slrec")));
    works
}

fn run(work: &Work, kernel: KernelVersion, scheduler: Scheduler, seed: u64) -> SimulationResult {
    let config = SimulationConfig::new(work.machine.clone(), Arc::clone(&work.workload));
    let config = SimulationConfig { kernel: Some(kernel), scheduler, seed, ..config };
    Simulation::new(config).expect("valid").run(&mut NullSink).expect("runs")
}

fn object(name: &str, kernel: KernelVersion, topology: &Topology) -> Scheduler {
    let image = ObjectImage::load(ext_runs::object(name), name, &kernel_btf(kernel)).expect("an object");
    Scheduler::Ext(
        ExtScheduler::new(image, kernel, topology, ExtOptions::default()).expect("the object loads"),
    )
}

#[test]
fn no_scheduler_is_faster_than_the_ideal() {
    let latest = KernelVersion::V7_2;
    for work in &works() {
        let bound = run(work, latest, Scheduler::Ideal, 1);
        assert!(bound.accounts.iter().all(|account| account.run_delay == Nanos::ZERO), "{}", work.name);
        let real = |who: &str, result: &SimulationResult| {
            let (least, took) = (bound.makespan, result.makespan);
            assert!(least <= took, "{} under {who}: {took}, the bound is {least}", work.name);
        };
        for seed in [1, 2] {
            for kernel in ["6.1", "6.18", "7.2"] {
                real(kernel, &run(work, kernel.parse().expect("a version"), Scheduler::Kernel, seed));
            }
            for name in ["fifo", "vtime", "fixed_priority"] {
                real(name, &run(work, latest, object(name, latest, &work.machine.topology), seed));
            }
        }
    }
}
