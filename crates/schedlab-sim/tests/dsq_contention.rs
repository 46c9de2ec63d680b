//! CPUs that take turns at one dispatch queue pay for it: the more of them and the farther apart, the more.

mod ext_runs;

use ext_runs::Run;
use schedlab_model::event::NullSink;
use schedlab_model::machine::{Cost, Costs};
use schedlab_model::topology::Topology;

/// More tasks than CPUs, each with little to do at a time: queues are used all the time.
const SHORT_RUNS: &str = r#"
name = "short runs"
duration = "30ms"
[[task]]
name = "short"
count = 400
steps = [{ loop = { count = 0, steps = [{ run = "3us" }, { sleep = "5us" }] } }]
"#;

const FREE: Cost = Cost::assumed(0, 0);

/// Lost warmth would hide what locks cost.
fn costs() -> Costs {
    Costs { migration_cache: FREE, migration_node: FREE, migration_remote: FREE, ..Costs::default() }
}

fn free_locks() -> Costs {
    Costs { dsq_lock_cache: FREE, dsq_lock_node: FREE, dsq_lock_remote: FREE, ..costs() }
}

/// How often tasks got their work done, with locks that cost something as a share of the same with locks that do not.
fn kept(scheduler: &str, topology: &Topology) -> f64 {
    let run = |costs| {
        let run = Run { costs, topology: topology.clone(), ..Run::new(scheduler, SHORT_RUNS, 1) };
        let result = run.run(&mut NullSink);
        assert_eq!(result.scheduler_exit, None);
        result.accounts.iter().map(|account| account.voluntary_switches).sum::<u64>() as f64
    };
    run(costs()) / run(free_locks())
}

#[test]
fn one_queue_of_two_nodes_costs_more_than_a_queue_for_each_cache() {
    let topology = Topology::uniform(2, 1, 16, 1).expect("32 CPUs");
    let (fifo, vtime) = (kept("fifo", &topology), kept("vtime", &topology));
    assert!(fifo < 0.75, "every turn at the queue comes from the other node half the time: {fifo}");
    assert!(vtime > fifo + 0.1, "a queue for each cache: {vtime}, one for all: {fifo}");
}

#[test]
fn two_cpus_of_one_cache_hardly_notice() {
    let topology = Topology::flat(2).expect("2 CPUs");
    let kept = kept("fifo", &topology);
    assert!((kept - 1.0).abs() < 0.05, "{kept}");
}

#[test]
fn one_cpu_has_nobody_to_wait_for() {
    let topology = Topology::flat(1).expect("1 CPU");
    assert!((kept("fifo", &topology) - 1.0).abs() < f64::EPSILON);
}
