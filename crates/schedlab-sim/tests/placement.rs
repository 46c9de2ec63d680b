//! Where tasks run: after they changed their affinity, beside groups, and under `vcpu_pack_percent`.

use schedlab_model::event::{Event, EventKind, EventSink};
use schedlab_model::lever::Setting;
use schedlab_model::machine::MachineDescription;
use schedlab_model::topology::Topology;
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
    let machine = MachineDescription::generic("test", Topology::flat(2).expect("CPUs"));
    let name = "vcpu_pack_percent".to_owned();
    let config = SimulationConfig {
        kernel: Some("6.18".parse().expect("a version")),
        settings: vec![Setting::Knob { name, value: pack_percent }],
        ..SimulationConfig::new(machine, Arc::new(file::parse(text).expect("a workload")))
    };
    let mut runs = Runs(TaskId(task), Vec::new());
    Simulation::new(config).expect("valid").run(&mut runs).expect("runs");
    let Runs(_, runs) = runs;
    runs.into_iter().filter(|(time, _)| *time >= Nanos::from_millis(from_ms)).map(|(_, cpu)| cpu).collect()
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
