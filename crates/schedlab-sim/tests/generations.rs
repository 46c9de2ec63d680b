//! Whole runs under the fair class of old kernels: CFS of 5.7 and 6.1, EEVDF of 6.6.

use schedlab_model::event::NullSink;
use schedlab_model::lever::Setting;
use schedlab_model::machine::{KernelVersion, MachineDescription};
use schedlab_model::topology::Topology;
use schedlab_model::workload::builtin;
use schedlab_sim::{SimError, Simulation, SimulationConfig, SimulationResult};
use std::sync::Arc;

fn run(kernel: &str, workload: &str, cpus: u32, knobs: &[(&str, i64)]) -> Result<SimulationResult, SimError> {
    let machine = MachineDescription::generic("test", Topology::flat(cpus).expect("CPUs"));
    let workload = builtin::make(workload).expect("known").expect("can be made");
    let settings =
        knobs.iter().map(|&(name, value)| Setting::Knob { name: name.to_owned(), value }).collect();
    let config = SimulationConfig {
        kernel: Some(kernel.parse::<KernelVersion>().expect("a version")),
        settings,
        ..SimulationConfig::new(machine, Arc::new(workload))
    };
    Simulation::new(config)?.run(&mut NullSink)
}

fn shares(result: &SimulationResult) -> Vec<u64> {
    let all: u64 = result.accounts.iter().map(|account| account.cpu_time.0).sum();
    result.accounts[1..].iter().map(|account| account.cpu_time.0 * 1_000 / all).collect()
}

/// 1024 : 1024 : 335 of 2383 is 43.0, 43.0 and 14.1 %, in every generation.
#[test]
fn weights_are_shares_in_every_kernel() {
    for kernel in ["5.7", "6.1", "6.6", "6.12", "6.18", "7.2"] {
        let result = run(kernel, "hogs:count=3,nice=5,pinned=1,duration=5s", 2, &[]).expect(kernel);
        let shares = shares(&result);
        let near = |share: u64, exact: u64| share.abs_diff(exact) <= 5;
        assert!(near(shares[0], 430) && near(shares[1], 430) && near(shares[2], 141), "{kernel}: {shares:?}");
    }
}

/// Two equal hogs on one CPU, HZ 250: the tick ends a slice of 3 ms at 4 ms, 250 switches a second; with a latency of
/// 20 ms slices of 10 ms end at 12 ms, 83 a second.
#[test]
fn slices_of_cfs_end_at_ticks() {
    let switches = |knobs: &[(&str, i64)]| {
        let result = run("6.1", "hogs:count=2,nice=0,pinned=1,duration=4s", 1, knobs).expect("runs");
        result.report.context_switches / 4
    };
    let (short, long) = (switches(&[]), switches(&[("latency_ns", 20_000_000)]));
    assert!((235..=255).contains(&short), "{short}");
    assert!((78..=90).contains(&long), "{long}");
}

/// Names of knobs are the kernel's of that time, and the oldest kernel is named when an older one is asked for.
#[test]
fn old_knobs_belong_to_old_kernels() {
    let work = "hogs:count=2,duration=10ms";
    run("5.7", work, 1, &[("sched_latency_ns", 20_000_000)]).expect("a sysctl of 5.7");
    let error = run("6.18", work, 1, &[("latency_ns", 20_000_000)]).expect_err("no such knob").to_string();
    assert!(error.contains("base_slice_ns"), "{error}");
    let error = run("4.19", work, 1, &[]).expect_err("too old").to_string();
    assert!(error.contains("5.7"), "{error}");
}
