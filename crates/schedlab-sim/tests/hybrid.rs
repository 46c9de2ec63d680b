//! Strong and weak CPUs: big tasks go to strong ones, also while they run; small ones stay where they fit.

use schedlab_model::event::NullSink;
use schedlab_model::machine::MachineDescription;
use schedlab_model::topology::{CpuInfo, Topology};
use schedlab_model::workload::file;
use schedlab_sim::{Scheduler, Simulation, SimulationConfig, SimulationResult};
use std::sync::Arc;

/// CPUs of these capacities that share a cache.
fn run(capacities: &[u32], tasks: &str) -> SimulationResult {
    let row = |(core, &capacity): (usize, &u32)| CpuInfo { core: core as u32, llc: 0, node: 0, capacity };
    let topology = Topology::from_cpus(capacities.iter().enumerate().map(row).collect()).expect("CPUs");
    let machine = MachineDescription::generic("hybrid", topology);
    let workload = file::parse(&format!("name = \"hybrid\"\n{tasks}")).expect("a workload");
    let config = SimulationConfig::new(machine, Arc::new(workload));
    Simulation::new(config).expect("valid").run(&mut NullSink).expect("runs")
}

fn hog(name: &str, start_cpu: u32, more: &str) -> String {
    format!("[[task]]\nname = \"{name}\"\nstart_cpu = {start_cpu}\n{more}steps = [{{ run = \"1s\" }}]\n")
}

/// 1 s of work that starts on a CPU of half the capacity. Beyond 80 % of 512 it does not fit: use is 256 at first (half
/// of what the CPU has to spare) and passes 409 after 32 · log2((1024 − 256) / (1024 − 409)) = 10 ms; the next ticks
/// wake the strong CPU. Pinned it takes 2 s.
#[test]
fn a_big_task_is_moved_to_the_strong_cpu_while_it_runs() {
    let moved = run(&[1_024, 512], &hog("a", 1, ""));
    assert!((1_005..=1_030).contains(&(moved.makespan.0 / 1_000_000)), "{}", moved.makespan);
    assert_eq!(moved.accounts[1].migrations, 1);
    let pinned = run(&[1_024, 512], &hog("a", 1, "cpus = \"1\"\n"));
    assert!((2_000..=2_010).contains(&(pinned.makespan.0 / 1_000_000)), "{}", pinned.makespan);
}

/// Two big tasks, one strong CPU: one has it, and when that is done after 1 s, the other follows with half its work left.
#[test]
fn the_strong_cpu_takes_the_next_when_it_is_free() {
    let both = run(&[1_024, 512], &(hog("a", 0, "") + &hog("b", 1, "")));
    assert!((1_495..=1_520).contains(&(both.makespan.0 / 1_000_000)), "{}", both.makespan);
    assert!(both.accounts[1].migrations + both.accounts[2].migrations <= 2);
}

/// A task that uses a tenth of a weak CPU fits there and stays; one that uses nearly all of it in turns is woken on the
/// strong one before long.
#[test]
fn a_small_task_stays_where_it_fits() {
    let periodic = |run: &str, sleep: &str| {
        format!(
            "[[task]]\nname = \"p\"\nstart_cpu = 1\nsteps = [{{ loop = {{ count = 100, \
             steps = [{{ run = \"{run}\" }}, {{ sleep = \"{sleep}\" }}] }} }}]\n"
        )
    };
    let small = run(&[1_024, 512], &periodic("500us", "9ms"));
    assert_eq!(small.accounts[1].migrations, 0);
    let big = run(&[1_024, 512], &periodic("8ms", "1ms"));
    assert_eq!(big.accounts[1].migrations, 1);
    // 100 rounds of 9 ms on the strong CPU; the weak one takes 17 ms for one.
    assert!(big.makespan.0 < 960_000_000, "{}", big.makespan);
}

/// The ideal scheduler gives each task a CPU of its own, also where there are no two alike.
#[test]
fn the_ideal_run_has_as_many_strong_cpus_as_tasks() {
    for kernel in ["6.18", "7.2"] {
        let row = |core: u32| CpuInfo { core, llc: 0, node: 0, capacity: 1_024 >> core };
        let topology = Topology::from_cpus((0..2).map(row).collect()).expect("CPUs");
        let tasks: String = (0..5).map(|task| hog(&format!("t{task}"), 0, "")).collect();
        let workload = file::parse(&format!("name = \"ideal\"\n{tasks}")).expect("a workload");
        let config = SimulationConfig {
            kernel: Some(kernel.parse().expect("a version")),
            scheduler: Scheduler::Ideal,
            ..SimulationConfig::new(MachineDescription::generic("hybrid", topology), Arc::new(workload))
        };
        let result = Simulation::new(config).expect("valid").run(&mut NullSink).expect("runs");
        assert_eq!(result.bound.expect("ideal").critical_path.0, 1_000_000_000, "{kernel}");
    }
}
