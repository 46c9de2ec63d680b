//! Where tasks run: after they changed their affinity, beside groups, under `vcpu_pack_percent`, and how far wake-ups look
//! for an idle CPU.

use schedlab_model::event::{Event, EventKind, EventSink};
use schedlab_model::lever::Setting;
use schedlab_model::machine::MachineDescription;
use schedlab_model::topology::{CpuInfo, Topology};
use schedlab_model::workload::file;
use schedlab_model::{CpuId, Nanos, TaskId};
use schedlab_sim::{Simulation, SimulationConfig};
use std::sync::Arc;

/// When the task got a CPU, and which.
struct Runs(TaskId, Vec<(Nanos, CpuId)>);

impl EventSink for Runs {
    fn event(&mut self, event: &Event) {
        if let EventKind::Switch { next, .. } = event.kind
            && next == self.0
        {
            self.1.push((event.time, event.cpu));
        }
    }
}

/// On which CPUs the numbered task of the workload got on from `from_ms` on, on two CPUs of 6.18.
fn cpus_of(text: &str, task: u32, from_ms: u64, pack_percent: i64) -> Vec<CpuId> {
    let topology = Topology::flat(2).expect("CPUs");
    let mut runs = Runs(TaskId(task), Vec::new());
    simulation(topology, "6.18", ("vcpu_pack_percent", pack_percent), text).run(&mut runs).expect("runs");
    let Runs(_, runs) = runs;
    runs.into_iter().filter(|(time, _)| *time >= Nanos::from_millis(from_ms)).map(|(_, cpu)| cpu).collect()
}

/// Where the numbered task's wake-up went, on any machine, kernel and setting: the first from `from_ms` on.
fn woken_on(
    topology: &Topology,
    kernel: &str,
    setting: (&str, i64),
    text: &str,
    task: u32,
    from_ms: u64,
) -> CpuId {
    let mut events: Vec<Event> = Vec::new();
    simulation(topology.clone(), kernel, setting, text).run(&mut events).expect("runs");
    let woken = events.iter().find_map(|event| match event.kind {
        EventKind::Waking { wakee, wakee_cpu, .. } if wakee == TaskId(task) => {
            (event.time >= Nanos::from_millis(from_ms)).then_some((event.time, wakee_cpu))
        }
        _ => None,
    });
    let (time, before) = woken.expect("it wakes");
    let moved = events.iter().filter(|event| event.time == time).find_map(|event| match event.kind {
        EventKind::Migrate { task: moved, to, .. } if moved == TaskId(task) => Some(to),
        _ => None,
    });
    moved.unwrap_or(before)
}

fn simulation(topology: Topology, kernel: &str, (name, value): (&str, i64), text: &str) -> Simulation {
    let machine = MachineDescription::generic("test", topology);
    let config = SimulationConfig {
        kernel: Some(kernel.parse().expect("a version")),
        settings: vec![Setting::Knob { name: name.to_owned(), value }],
        ..SimulationConfig::new(machine, Arc::new(file::parse(text).expect("a workload")))
    };
    Simulation::new(config).expect("valid")
}

/// It ran ahead of the hog beside it, so that a sleep would leave it on the queue of the CPU that it may not use.
#[test]
fn a_task_that_may_not_stay_leaves_even_in_debt() {
    let text = "name = \"pin\"\n\
        [[task]]\nname = \"pinned\"\nstart_cpu = 1\n\
        steps = [{ run = \"600us\" }, { set = { cpus = \"0\" } }, { run = \"30ms\" }]\n\
        [[task]]\nname = \"beside\"\ncpus = \"1\"\nsteps = [{ run = \"60ms\" }]\n\
        [[task]]\nname = \"there\"\ncpus = \"0\"\nsteps = [{ run = \"60ms\" }]\n";
    let cpus = cpus_of(text, 1, 5, 0);
    assert!(!cpus.is_empty() && cpus.iter().all(|cpu| *cpu == CpuId(0)), "{cpus:?}");
}

/// A CPU that a group's task uses for nine tenths, with short sleeps, has no room.
#[test]
fn what_a_group_uses_counts_as_use_of_its_cpu() {
    let text = "name = \"use\"\nduration = \"400ms\"\n\
        [[task]]\nname = \"busy\"\ncgroup = \"/g\"\ncpus = \"0\"\n\
        steps = [{ loop = { steps = [{ run = \"900us\" }, { sleep = \"20us\" }] } }]\n\
        [[task]]\nname = \"free\"\nstart_cpu = 0\n\
        steps = [{ loop = { steps = [{ run = \"50us\" }, { sleep = \"2ms\" }] } }]\n";
    let cpus = cpus_of(text, 2, 200, 68);
    let away = cpus.iter().filter(|cpu| **cpu == CpuId(1)).count();
    assert!(away * 10 > cpus.len() * 9, "{away} of {} on the idle CPU", cpus.len());
}

/// Two that wake each other and use little come together on one CPU where CPUs are packed, and stay apart elsewhere.
#[test]
fn a_wakee_joins_its_waker_where_cpus_are_packed() {
    let side = |name: &str, cpu: u32, takes: &str, posts: &str, rest: &str| {
        format!(
            "[[task]]\nname = \"{name}\"\nstart_cpu = {cpu}\nsteps = [{{ loop = {{ steps = \
             [{{ receive = {{ channel = \"{takes}\", bytes = 1 }} }}, {{ run = \"20us\" }}, \
             {{ send = {{ channel = \"{posts}\", bytes = 1 }} }}{rest}] }} }}]\n"
        )
    };
    let text = format!(
        "name = \"pair\"\nduration = \"400ms\"\n[channels]\na = {{ type = \"bytes\", initial = 1 }}\n\
         b = {{ type = \"bytes\" }}\n{}{}",
        side("one", 0, "a", "b", ""),
        side("two", 1, "b", "a", ", { sleep = \"400us\" }"),
    );
    let together = |percent: i64| {
        let (one, two) = (cpus_of(&text, 1, 350, percent), cpus_of(&text, 2, 350, percent));
        let first = one[0];
        one.iter().chain(&two).all(|cpu| *cpu == first)
    };
    assert!(!together(0), "a wakee left its idle CPU");
    assert!(together(68), "a wakee did not join its waker");
}

/// A task of the workload that is on CPU `first` until it wakes at `at_ms`, and may be anywhere of `cpus` then.
fn wakes_from(name: &str, first: u32, cpus: &str, at_ms: u64) -> String {
    format!(
        "[[task]]\nname = \"{name}\"\ncpus = \"{first}\"\nsteps = [{{ run = \"10us\" }}, \
         {{ set = {{ cpus = \"{cpus}\" }} }}, {{ sleep = \"{at_ms}ms\" }}, {{ run = \"50us\" }}]\n"
    )
}

/// From 1 ms on, when the wakees sleep.
fn hog(cpu: u32) -> String {
    format!(
        "[[task]]\nname = \"hog{cpu}\"\nstart = \"1ms\"\ncpus = \"{cpu}\"\nsteps = [{{ run = \"800ms\" }}]\n"
    )
}

/// Three hogs, and a task that leaves its CPU idle a tenth of the time: 1024 + 1024 + 1024 + 920 of 4096 are used, more
/// than 875 a CPU. Nobody looks at the CPU that idles, unless `SIS_UTIL` is off or not there yet (5.18).
#[test]
fn a_cache_in_full_use_is_not_searched() {
    let text = format!(
        "name = \"sis\"\nduration = \"700ms\"\n{}{}{}{}[[task]]\nname = \"nearly\"\ncpus = \"3\"\n\
         steps = [{{ loop = {{ count = 0, steps = [{{ run = \"900us\" }}, {{ sleep = \"100us\" }}] }} }}]\n",
        wakes_from("wakee", 0, "0-3", 600),
        hog(0),
        hog(1),
        hog(2)
    );
    // Half a millisecond of phases, so that some wake-ups meet an idle CPU 3.
    let elsewhere = |kernel: &str, setting: (&str, i64)| {
        let phases = (0..20).map(|phase| text.replace("600ms", &format!("{}us", 600_000 + 50 * phase)));
        let placed = phases.map(|text| {
            let topology = Topology::flat(4).expect("CPUs");
            woken_on(&topology, kernel, setting, &text, 1, 500)
        });
        placed.filter(|cpu| *cpu == CpuId(3)).count()
    };
    assert_eq!(elsewhere("6.12", ("SIS_UTIL", 1)), 0);
    assert!(elsewhere("6.12", ("SIS_UTIL", 0)) > 0);
    assert!(elsewhere("5.18", ("nr_migrate", 32)) > 0);
}

/// Cores of the threads 0 and 3, 1 and 4, 2 and 5; a hog on each core. The first wakee from CPU 1 still believes in an idle
/// core (`has_idle_cores`), finds none from CPU 2 on, and takes the first idle thread, 3. The second knows better and takes
/// the other thread of its own core, 4.
#[test]
fn a_search_without_success_forgets_the_idle_core() {
    let row = |cpu: u32| CpuInfo { core: cpu % 3, llc: 0, node: 0, capacity: 1_024 };
    let topology = Topology::from_cpus((0..6).map(row).collect()).expect("CPUs");
    let text = format!(
        "name = \"cores\"\nduration = \"60ms\"\n{}{}{}{}{}",
        wakes_from("first", 1, "0-5", 20),
        wakes_from("second", 1, "0-5", 30),
        hog(0),
        hog(1),
        hog(2)
    );
    let woken = |task: u32| woken_on(&topology, "6.12", ("SIS_UTIL", 1), &text, task, 15);
    assert_eq!([woken(1), woken(2)], [CpuId(3), CpuId(4)]);
}

/// Always one task of ten works on CPU 1, 1 ms each: busy, and used by nobody for long. CPU 0 has a hog; who wakes there goes
/// to CPU 1 where CPUs are packed, and waits for the hog elsewhere.
#[test]
fn a_busy_cpu_with_room_takes_a_wakee_where_cpus_are_packed() {
    let mut text = "name = \"room\"\nduration = \"300ms\"\n\
        [[task]]\nname = \"sleeper\"\ncpus = \"0\"\n\
        steps = [{ loop = { count = 20, steps = [{ sleep = \"5ms\" }, { run = \"10us\" }] } }, \
        { set = { cpus = \"0-1\" } }, { sleep = \"20ms\" }, { run = \"10us\" }]\n\
        [[task]]\nname = \"hog\"\ncpus = \"0\"\nsteps = [{ run = \"1s\" }]\n"
        .to_owned();
    for start in 0..300 {
        text += &format!(
            "[[task]]\nname = \"short{start}\"\ncpus = \"1\"\nstart = \"{start}ms\"\nsteps = [{{ run = \"990us\" }}]\n"
        );
    }
    let last = |percent| cpus_of(&text, 1, 50, percent).last().copied();
    assert_eq!((last(68), last(0)), (Some(CpuId(1)), Some(CpuId(0))));
}

/// A device's interrupt on the other, idle CPU wakes a task there where CPUs are packed, and where it slept elsewhere.
/// A CPU that is not online has its interrupts on the first.
#[test]
fn a_device_draws_its_wakee_where_cpus_are_packed() {
    let text = |device: u32| {
        format!(
            "name = \"device\"\nduration = \"100ms\"\n[[task]]\nname = \"reader\"\nstart_cpu = 0\n\
             steps = [{{ run = \"100us\" }}, {{ wait_device = {{ time = \"1ms\", cpu = {device} }} }}, \
             {{ run = \"50us\" }}]\n"
        )
    };
    let last = |device, percent| cpus_of(&text(device), 1, 1, percent).last().copied();
    assert_eq!((last(1, 68), last(1, 0)), (Some(CpuId(1)), Some(CpuId(0))));
    assert_eq!((last(0, 68), last(7, 68)), (Some(CpuId(0)), Some(CpuId(0))));
}
