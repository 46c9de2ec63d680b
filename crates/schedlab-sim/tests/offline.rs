//! Machines with CPUs that are offline from the start: they do no work, and for the rest it is as if they were not there.
//! CPUs that go on and offline during a run are in `ext_machine.rs` and `active_balance.rs`.

mod ext_runs;

use ext_runs::object;
use schedlab_model::event::{Event, EventKind};
use schedlab_model::machine::{KernelVersion, MachineDescription};
use schedlab_model::topology::Topology;
use schedlab_model::workload::file;
use schedlab_model::{CpuId, CpuSet};
use schedlab_sim::ext::{ExtOptions, ExtScheduler};
use schedlab_sim::{Scheduler, SimError, Simulation, SimulationConfig};
use std::sync::Arc;

/// Hogs, sleepers and whom a device on CPU 0 wakes, more of them than CPUs.
const WORK: &str = r#"
name = "work"
duration = "200ms"
[[task]]
name = "hog"
count = 3
steps = [{ loop = { count = 0, steps = [{ run = "2ms" }] } }]
[[task]]
name = "sleeper"
count = 6
steps = [{ loop = { count = 0, steps = [{ run = "300us" }, { sleep = "700us" }] } }]
[channels]
requests = { type = "tokens" }
[[device]]
name = "network"
channel = "requests"
period = "1ms"
count = 100
[[task]]
name = "server"
steps = [{ loop = { count = 0, steps = [{ take = { channel = "requests" } }, { run = "100us" }] } }]
"#;

fn simulation(
    topology: &Topology,
    kernel: &str,
    scheduler: &str,
    work: &str,
) -> Result<Simulation, SimError> {
    let kernel: KernelVersion = kernel.parse().expect("a version");
    let machine = MachineDescription { kernel, ..MachineDescription::generic("offline", topology.clone()) };
    let workload = Arc::new(file::parse(work).expect("a workload"));
    let scheduler = match scheduler {
        "fair" => Scheduler::Kernel,
        "ideal" => Scheduler::Ideal,
        name => {
            let options = ExtOptions::default();
            let loaded = ExtScheduler::load(name, object(name), kernel, topology, options);
            Scheduler::Ext(loaded.expect("loads"))
        }
    };
    Simulation::new(SimulationConfig { scheduler, ..SimulationConfig::new(machine, workload) })
}

fn events(topology: &Topology, kernel: &str, scheduler: &str) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    simulation(topology, kernel, scheduler, WORK).expect("valid").run(&mut events).expect("runs");
    events
}

fn with_offline(topology: Result<Topology, schedlab_model::topology::TopologyError>, cpus: &str) -> Topology {
    topology.expect("CPUs").with_offline(cpus.parse().expect("a list")).expect("some are left")
}

/// Four cores whose second threads are offline do what four cores do that have none.
#[test]
fn offline_threads_are_as_none() {
    let halved = with_offline(Topology::uniform(1, 1, 4, 2), "4-7");
    let whole = Topology::flat(4).expect("4 CPUs");
    for kernel in ["5.7", "6.1", "6.12", "7.2"] {
        assert_eq!(events(&halved, kernel, "fair"), events(&whole, kernel, "fair"), "{kernel}");
    }
}

/// The first CPU, one in the middle and a whole cache are offline: work is done on all others, and on none of them.
#[test]
fn only_online_cpus_work() {
    for (topology, offline, online) in [
        (Topology::flat(4), "1", "0,2-3"),
        (Topology::flat(4), "0", "1-3"),
        (Topology::uniform(1, 2, 2, 2), "0,2,4,6", "1,3,5,7"),
        (Topology::uniform(2, 1, 2, 1), "0-1", "2-3"),
    ] {
        let topology = with_offline(topology, offline);
        for scheduler in ["fair", "fifo", "vtime"] {
            let events = events(&topology, "7.2", scheduler);
            let ran = events.iter().filter_map(|event| match event.kind {
                EventKind::Switch { next, .. } if !next.is_idle() => Some(event.cpu),
                _ => None,
            });
            let ran: CpuSet = ran.collect();
            assert_eq!(ran.to_string(), online, "{scheduler}");
            assert!(events.iter().all(|event| topology.is_online(event.cpu)), "{scheduler}: {offline}");
        }
        assert!(!events(&topology, "7.2", "ideal").is_empty());
    }
}

#[test]
fn an_offline_cpu_of_the_machine_cannot_come() {
    let topology = with_offline(Topology::flat(2), "1");
    let refused = |more: &str| {
        let work = WORK.replace("duration =", &format!("{more}\nduration ="));
        simulation(&topology, "7.2", "fair", &work).map(|_| ()).expect_err("refused").to_string()
    };
    assert!(refused("offline = \"0\"").contains("of the machine's 2 CPUs none is online"));
    let event = "[[event]]\ntime = \"1ms\"\ncpu = 1\nonline = true\n";
    let comes = simulation(&topology, "7.2", "fair", &format!("{WORK}{event}")).map(|_| ());
    assert_eq!(comes, Err(SimError::StaysOffline { cpu: CpuId(1).0 }));
}
