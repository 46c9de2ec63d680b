//! Balancing where affinity is in the way: the next busiest CPU, another CPU of the group, and groups that could not reach
//! balance by themselves.

use schedlab_model::event::{Event, EventKind};
use schedlab_model::machine::MachineDescription;
use schedlab_model::topology::{CpuInfo, Topology};
use schedlab_model::workload::file;
use schedlab_model::{CpuId, Nanos, TaskId};
use schedlab_sim::{Simulation, SimulationConfig};
use std::sync::Arc;

const KERNELS: [&str; 3] = ["6.1", "6.12", "7.2"];

/// Every migration within two seconds on a machine of caches of so many CPUs: when, who, where to.
fn migrations(cpus: u32, cache: u32, kernel: &str, tasks: &str) -> Vec<(Nanos, TaskId, CpuId)> {
    let row = |cpu: u32| CpuInfo { core: cpu, llc: cpu / cache, node: 0, capacity: 1_024 };
    let topology = Topology::from_cpus((0..cpus).map(row).collect()).expect("CPUs");
    let text = format!("name = \"pinned\"\nduration = \"2s\"\n{tasks}");
    let config = SimulationConfig {
        kernel: Some(kernel.parse().expect("a version")),
        ..SimulationConfig::new(
            MachineDescription::generic("pinned", topology),
            Arc::new(file::parse(&text).expect("a workload")),
        )
    };
    let mut events: Vec<Event> = Vec::new();
    Simulation::new(config).expect("valid").run(&mut events).expect("runs");
    let migration = |event: &Event| match event.kind {
        EventKind::Migrate { task, to, .. } => Some((event.time, task, to)),
        _ => None,
    };
    events.iter().filter_map(migration).collect()
}

/// A task that always runs, on a CPU at first, and where it may run.
fn hog(name: &str, cpu: u32, allowed: &str) -> String {
    format!(
        "[[task]]\nname = \"{name}\"\nstart_cpu = {cpu}\ncpus = \"{allowed}\"\nsteps = [{{ run = \"9s\" }}]\n"
    )
}

/// CPU 1 is busiest, with four hogs that may run nowhere else; CPU 2 has two that may. CPU 0 idles: it finds CPU 1 all
/// pinned (`LBF_ALL_PINNED`), looks again without it, and takes one from CPU 2.
#[test]
fn a_busiest_cpu_of_pinned_tasks_is_passed_over() {
    let pinned: String = (0..4).map(|at| hog(&format!("pinned{at}"), 1, "1")).collect();
    let tasks = pinned + &hog("a", 2, "0,2") + &hog("b", 2, "0,2") + &hog("c", 3, "3");
    for kernel in KERNELS {
        let moved = migrations(4, 4, kernel, &tasks);
        let &[(time, task, to)] = &moved[..] else { panic!("{kernel}: {moved:?}") };
        assert!([TaskId(5), TaskId(6)].contains(&task) && to == CpuId(0), "{kernel}: {task:?} to {to}");
        assert!(time < Nanos::from_millis(200), "{kernel}: {time}");
    }
}

/// Two caches. The first one idles, and CPU 0 balances for it; the hogs of the second may run on CPU 1, not on CPU 0
/// (`LBF_DST_PINNED`, `new_dst_cpu`).
#[test]
fn a_task_that_may_not_come_here_goes_to_another_cpu_of_the_group() {
    let tasks: String = (0..4).map(|at| hog(&format!("hog{at}"), 2 + at / 2, "1-3")).collect();
    for kernel in KERNELS {
        let moved = migrations(4, 2, kernel, &tasks);
        let came = moved.iter().find(|(.., to)| *to == CpuId(1));
        assert!(came.is_some_and(|(time, ..)| *time < Nanos::from_millis(200)), "{kernel}: {moved:?}");
        assert!(moved.iter().all(|(.., to)| *to != CpuId(0)), "{kernel}: {moved:?}");
    }
}

/// Two caches with two running tasks each, but in the first both are on CPU 3 and may not go to its neighbours. By their
/// sums the caches are even; the first one says that its own balancing failed (`group_imbalanced`), and one goes over.
#[test]
fn a_group_that_cannot_even_out_gives_to_others() {
    let tasks = hog("a", 3, "3-4") + &hog("b", 3, "3-4") + &hog("c", 5, "5") + &hog("d", 6, "6");
    for kernel in KERNELS {
        let moved = migrations(8, 4, kernel, &tasks);
        let came = moved.iter().find(|(.., to)| *to == CpuId(4));
        assert!(came.is_some_and(|(time, ..)| *time < Nanos::from_millis(500)), "{kernel}: {moved:?}");
    }
}
