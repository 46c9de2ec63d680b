//! A CPU that stands still before another CPU's interrupt begins there (`ipi_stall`): who pays for it, and who does not.

use schedlab_model::event::{Event, EventKind};
use schedlab_model::machine::{Cost, Costs, MachineDescription};
use schedlab_model::topology::Topology;
use schedlab_model::workload::file;
use schedlab_model::{Nanos, TaskId};
use schedlab_sim::{Simulation, SimulationConfig};
use std::sync::Arc;

/// After 100 us on CPU 0 somebody wakes a real-time task of CPU 1, where tasks of `burst` us run one after the other. When
/// the real-time task first ran after it was woken, and when the others ended.
fn run(bystanders: u32, burst: u64, stall: u64) -> (Nanos, Vec<Nanos>) {
    let text = format!(
        r#"
name = "standstill"
[channels]
c = {{ type = "tokens" }}
[[task]]
name = "woken"
cpus = "1"
policy = "fifo"
rt_priority = 10
steps = [{{ take = {{ channel = "c" }} }}]
[[task]]
name = "waker"
cpus = "0"
steps = [{{ run = "100us" }}, {{ post = {{ channel = "c" }} }}]
[[task]]
name = "bystander"
cpus = "1"
count = {bystanders}
steps = [{{ run = "{burst}us" }}]
"#
    );
    let mut machine = MachineDescription::generic("two", Topology::flat(2).expect("CPUs"));
    let exactly = |us: u64| Cost::assumed(1_000 * us, 0);
    machine.costs = Costs { ipi: exactly(20), ipi_stall: exactly(stall), ..Costs::none() };
    let workload = Arc::new(file::parse(&text).expect("a workload"));
    let mut events: Vec<Event> = Vec::new();
    Simulation::new(SimulationConfig::new(machine, workload)).expect("valid").run(&mut events).expect("runs");
    let mut ran = events.iter().filter_map(|event| match event.kind {
        EventKind::Switch { next: TaskId(1), .. } => Some(event.time),
        _ => None,
    });
    let ended = events.iter().filter_map(|event| match event.kind {
        EventKind::Exit { task } if task.0 > 2 => Some(event.time),
        _ => None,
    });
    (ran.next_back().expect("the woken task runs"), ended.collect())
}

const fn us(count: u64) -> Nanos {
    Nanos::from_micros(count)
}

#[test]
fn whoever_runs_loses_the_time_and_the_interrupt_comes_no_later() {
    let (ran, ended) = run(1, 500, 0);
    assert_eq!((ran, &ended[..]), (us(120), &[us(500)][..]));
    let (ran, ended) = run(1, 500, 15);
    assert_eq!((ran, &ended[..]), (us(120), &[us(515)][..]));
}

/// The bystander would be done 110 us after the start, before the interrupt; its CPU stops at 105 us.
#[test]
fn a_burst_that_would_have_ended_meanwhile_ends_after_the_interrupt() {
    let (ran, ended) = run(1, 110, 0);
    assert_eq!((ran, ended[0]), (us(110), us(110)), "what ends by itself lets the woken task run at once");
    let (ran, ended) = run(1, 110, 15);
    assert_eq!((ran, ended[0]), (us(120), us(125)), "the burst stood still from 105 to 120 us");
}

/// The first bystander ends on its own while the interrupt is still far: the woken task runs then, and stands still.
#[test]
fn an_interrupt_that_comes_too_late_stops_whoever_runs_by_then() {
    let (ran, ended) = run(3, 102, 15);
    assert_eq!((ran, ended[0], ended[1]), (us(102), us(102), us(219)), "from 105 to 120 us nobody worked");
}
