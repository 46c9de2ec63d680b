//! Knobs that change during a run: the schedule follows from that time on, and what cannot change is refused.

mod ext_runs;

use schedlab_model::event::{Event, EventKind, EventSink, PrevState};
use schedlab_model::machine::MachineDescription;
use schedlab_model::topology::Topology;
use schedlab_model::workload::change::{Change, TimedChange};
use schedlab_model::workload::file::parse;
use schedlab_model::{Nanos, machine::KernelVersion};
use schedlab_sim::ext::{ExtOptions, ExtScheduler};
use schedlab_sim::{Scheduler, SimError, Simulation, SimulationConfig};
use std::sync::Arc;

const HOGS: &str = r#"
name = "hogs"
duration = "400ms"
[[task]]
name = "hog"
count = 2
steps = [{ loop = { steps = [{ run = "900ms" }] } }]
"#;

/// Preemptions before and after the middle of the run.
#[derive(Default)]
struct Halves([u32; 2]);

impl EventSink for Halves {
    fn event(&mut self, event: &Event) {
        if let EventKind::Switch { prev_state: PrevState::Runnable, prev, .. } = event.kind
            && !prev.is_idle()
        {
            self.0[usize::from(event.time >= Nanos::from_millis(200))] += 1;
        }
    }
}

fn simulation(object: Option<&str>, text: &str, knob: Option<(&str, i64)>) -> Result<Simulation, SimError> {
    let topology = Topology::flat(1).expect("a CPU");
    let mut machine = MachineDescription::generic("one", topology.clone());
    machine.kernel = KernelVersion::V7_2;
    machine.hz = 1000;
    let mut workload = parse(text).expect("a workload");
    workload.changes.extend(knob.map(|(name, value)| TimedChange {
        time: Nanos::from_millis(200),
        change: Change::Knob { name: name.to_owned(), value },
    }));
    let mut config = SimulationConfig::new(machine, Arc::new(workload));
    if let Some(name) = object {
        let bytes = ext_runs::object(name);
        let loaded = ExtScheduler::load(name, bytes, KernelVersion::V7_2, &topology, ExtOptions::default());
        config.scheduler = Scheduler::Ext(loaded.expect("the object loads"));
    }
    Simulation::new(config)
}

fn halves(object: Option<&str>, text: &str, knob: Option<(&str, i64)>) -> [u32; 2] {
    let mut halves = Halves::default();
    simulation(object, text, knob).expect("valid").run(&mut halves).expect("runs");
    halves.0
}

#[test]
fn a_shorter_slice_from_the_middle_on_preempts_more_often_from_there_on() {
    for (object, knob, value) in [(Some("fifo"), "slice_ns", 2_000_000), (None, "base_slice_ns", 10_000_000)]
    {
        let (before, after) = (halves(object, HOGS, None), halves(object, HOGS, Some((knob, value))));
        assert_eq!(before[0], after[0], "{object:?}: nothing differs before the change");
        let (more, less) = if object.is_some() { (after[1], before[1]) } else { (before[1], after[1]) };
        assert!(more > 2 * less && less > 0, "{object:?}: {before:?} unchanged, {after:?} changed");
    }
}

#[test]
fn a_workload_file_says_it_too() {
    let event = "[[event]]\ntime = \"200ms\"\nknob = \"slice_ns\"\nvalue = 2000000\n";
    let written = halves(Some("fifo"), &format!("{HOGS}{event}"), None);
    assert_eq!(written, halves(Some("fifo"), HOGS, Some(("slice_ns", 2_000_000))));
    assert!(parse(&format!("{HOGS}[[event]]\ntime = \"2ms\"\nknob = \"slice_ns\"\n")).is_err());
}

/// A knob belongs to the scheduler that is there when it changes.
#[test]
fn a_knob_of_a_scheduler_that_comes_later_can_change_only_then() {
    let accepted = |comes_ms: u64, first: Option<&str>, second: Option<&str>| {
        let mut run = ext_runs::Run::new("fifo", HOGS, 1).config();
        let Scheduler::Ext(fifo) = &run.scheduler else { unreachable!("it runs under an object") };
        run.attachable.push(schedlab_sim::Attachable {
            name: "fifo".to_owned(),
            scheduler: fifo.clone(),
            knobs: Vec::new(),
        });
        if first.is_none() {
            run.scheduler = Scheduler::Kernel;
        }
        let mut workload = (*run.workload).clone();
        let knob = Change::Knob { name: "slice_ns".to_owned(), value: 2_000_000 };
        let mut changes = vec![
            TimedChange { time: Nanos::from_millis(200), change: knob },
            TimedChange {
                time: Nanos::from_millis(comes_ms),
                change: Change::Scheduler(second.map(str::to_owned)),
            },
        ];
        changes.sort_by_key(|change| change.time);
        workload.changes = changes;
        run.workload = Arc::new(workload);
        Simulation::new(run).is_ok()
    };
    assert!(accepted(100, None, Some("fifo")));
    assert!(!accepted(300, None, Some("fifo")), "it is not there yet");
    assert!(!accepted(100, Some("fifo"), None), "it is gone");
    assert!(accepted(300, Some("fifo"), None));
}

#[test]
fn what_cannot_change_is_refused_before_the_run() {
    let refused = |object, knob, value| {
        let refused = simulation(object, HOGS, Some((knob, value)));
        refused.err().unwrap_or_else(|| panic!("{knob} = {value} is accepted")).to_string()
    };
    assert!(refused(Some("fifo"), "absent", 1).contains("absent"));
    assert!(refused(Some("fifo"), "slice_ns", -1).contains("slice_ns"));
    assert!(refused(None, "base_slice_ns", 0).contains("base_slice_ns"));
    assert!(refused(None, "slice_ns", 5_000_000).contains("no such knob"));
    assert!(refused(None, "sched_autogroup_enabled", 0).contains("--set"));
}
