//! Running tasks that are pushed to another CPU: off a core whose threads are all busy, and to preferred CPUs.

use schedlab_model::event::{Event, EventKind};
use schedlab_model::lever::Setting;
use schedlab_model::machine::MachineDescription;
use schedlab_model::topology::{CpuInfo, Topology};
use schedlab_model::workload::file;
use schedlab_model::{CpuId, Nanos, TaskId};
use schedlab_sim::{Simulation, SimulationConfig};
use std::sync::Arc;

/// Every migration: when, who, where to. A tick is 4 ms.
fn migrations(cpus: &[(u32, u32)], kernel: &str, itmt: i64, tasks: &str) -> Vec<(Nanos, TaskId, CpuId)> {
    let row = |&(core, capacity): &(u32, u32)| CpuInfo { core, llc: 0, node: 0, capacity };
    let topology = Topology::from_cpus(cpus.iter().map(row).collect()).expect("CPUs");
    let workload =
        file::parse(&format!("name = \"push\"\nduration = \"500ms\"\n{tasks}")).expect("a workload");
    let config = SimulationConfig {
        kernel: Some(kernel.parse().expect("a version")),
        settings: vec![Setting::Knob { name: "sched_itmt_enabled".to_owned(), value: itmt }],
        ..SimulationConfig::new(MachineDescription::generic("push", topology), Arc::new(workload))
    };
    let mut events: Vec<Event> = Vec::new();
    Simulation::new(config).expect("valid").run(&mut events).expect("runs");
    let migration = |event: &Event| match event.kind {
        EventKind::Migrate { task, to, .. } => Some((event.time, task, to)),
        _ => None,
    };
    events.iter().filter_map(migration).collect()
}

fn hog(name: &str, cpu: u32) -> String {
    format!("[[task]]\nname = \"{name}\"\nstart_cpu = {cpu}\nsteps = [{{ run = \"1s\" }}]\n")
}

/// Two hogs on the two threads of a core, the other core idles. Its CPU balances with every tick, and finds nothing that
/// waits: with the fourth failure (`nr_balance_failed` over `cache_nice_tries` + 2 = 3) one of the hogs is pushed over,
/// within some ticks of 16 ms. Then there is one on each core, and nothing moves any more.
#[test]
fn threads_of_a_busy_core_are_relieved() {
    let cpus = [(0, 1_024), (0, 1_024), (1, 1_024), (1, 1_024)];
    for kernel in ["6.12", "7.2"] {
        let moved = migrations(&cpus, kernel, 1, &(hog("a", 0) + &hog("b", 1)));
        let [(time, _, to)] = moved[..] else { panic!("{kernel}: {moved:?}") };
        assert!((16..=32).contains(&(time.0 / 1_000_000)), "{kernel}: {time}");
        assert!([CpuId(2), CpuId(3)].contains(&to), "{kernel}: {to}");
    }
}

/// One hog on each core: a running task is not moved for nothing.
#[test]
fn lone_tasks_on_equal_cores_stay() {
    let cpus = [(0, 1_024), (0, 1_024), (1, 1_024), (1, 1_024)];
    assert_eq!(migrations(&cpus, "7.2", 1, &(hog("a", 0) + &hog("b", 2))), []);
}

/// A strong core with threads and a weak one without, as x86 prefers them (`SD_ASYM_PACKING`): what runs on the weak one at
/// a tick goes to the strong one at once, however small it is. Where capacities count instead, it fits and stays: it uses
/// a quarter of the weak CPU.
#[test]
fn work_is_packed_on_preferred_cores() {
    let cpus = [(0, 1_024), (0, 1_024), (1, 512)];
    let small = "[[task]]\nname = \"small\"\nstart_cpu = 2\n\
                 steps = [{ loop = { count = 0, steps = [{ run = \"2500us\" }, { sleep = \"15ms\" }] } }]\n";
    let packed = migrations(&cpus, "6.18", 1, small);
    let [(time, _, to)] = packed[..] else { panic!("{packed:?}") };
    assert!(time.0 < 60_000_000 && to != CpuId(2), "{time}: {to}");
    assert_eq!(migrations(&cpus, "6.18", 0, small), []);
}

/// Two caches of four CPUs, eight hogs; three CPUs of the second cache go offline. Their hogs end up on CPU 4 (four there,
/// one on each other CPU): the second cache has one CPU with four tasks and not three idle ones, so the first one pulls.
#[test]
fn offline_cpus_are_no_room_in_a_group() {
    let row = |cpu: u32| CpuInfo { core: cpu, llc: cpu / 4, node: 0, capacity: 1_024 };
    let topology = Topology::from_cpus((0..8).map(row).collect()).expect("CPUs");
    let offline: String =
        (5..8).map(|cpu| format!("[[event]]\ntime = \"100ms\"\ncpu = {cpu}\nonline = false\n")).collect();
    let hogs: String = (0..8).map(|cpu| hog(&format!("hog{cpu}"), cpu)).collect();
    let text = format!("name = \"offline\"\nduration = \"3s\"\n{hogs}{offline}").replace("1s", "10s");
    let workload = file::parse(&text).expect("a workload");
    let config =
        SimulationConfig::new(MachineDescription::generic("two caches", topology), Arc::new(workload));
    let result =
        Simulation::new(config).expect("valid").run(&mut schedlab_model::event::NullSink).expect("runs");
    let times: Vec<u64> = result.accounts[1..].iter().map(|account| account.cpu_time.0 / 1_000_000).collect();
    // Five CPUs for eight hogs, 2.9 s: with four on one CPU for ever these would have 0.8 s each.
    let least = times.iter().min().expect("eight");
    assert!(*least > 1_000, "{times:?}");
}
