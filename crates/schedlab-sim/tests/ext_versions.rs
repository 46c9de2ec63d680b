//! What differs between kernel versions from 6.12 to 7.2, as one object sees it.

mod ext_runs;

use ext_runs::Run;
use schedlab_model::event::NullSink;
use schedlab_model::machine::KernelVersion;
use schedlab_model::outcome::SchedulerExit;

const WORKLOAD: &str = r#"
name = "crowd"
duration = "300ms"
[[task]]
name = "t_worker"
count = 6
steps = [{ loop = { count = 0, steps = [
    { run = "3ms" }, { sleep = "2ms" }, { set = { cpus = "0" } }, { run = "1ms" }, { set = { cpus = "0-1" } },
] } }]
"#;

fn version(text: &str) -> KernelVersion {
    text.parse().expect("a version")
}

/// Values of these variables after a run on that kernel.
fn values<const N: usize>(kernel: &str, names: [&str; N]) -> [i64; N] {
    let run = Run { kernel: version(kernel), ..Run::new("versions", WORKLOAD, 2) };
    let mut simulation = run.simulation();
    let result = simulation.run(&mut NullSink).expect("runs");
    assert_eq!(result.scheduler_exit, None, "{kernel}");
    names.map(|name| simulation.global(name).expect("a variable"))
}

#[test]
fn names_of_6_12_move_tasks() {
    for (kernel, old) in [("6.12", true), ("6.13", false), ("6.18", false), ("7.2", false)] {
        let [by_old, by_new] = values(kernel, ["old_moves", "new_moves"]);
        assert_eq!((by_old > 50, by_new > 50), (old, !old), "{kernel}: {by_old} and {by_new}");
    }
}

#[test]
fn select_cpu_and_comes_with_6_16() {
    for (kernel, there) in [("6.12", false), ("6.15", false), ("6.16", true), ("6.19", true), ("7.2", true)] {
        let [absent, answered] = values(kernel, ["select_and_absent", "select_and_answered"]);
        assert_eq!((absent > 0, answered > 0), (!there, there), "{kernel}");
    }
}

#[test]
fn cpu_curr_is_found_through_the_run_queue_before_6_18() {
    for kernel in ["6.12", "6.17", "6.18", "7.2"] {
        let [ticks, found] = values(kernel, ["ticks", "curr_found"]);
        assert!(ticks > 20 && ticks == found, "{kernel}: {found} of {ticks}");
    }
}

#[test]
fn dequeue_is_called_before_7_1() {
    // Before custody, dequeue tells of tasks that leave while the scheduler holds them outside of any queue:
    // never with user queues alone. Since 7.1 a user queue is custody.
    let [before] = values("7.0", ["dequeued"]);
    let [after] = values("7.1", ["dequeued"]);
    assert!(before == 0 && after > 50, "{before} and {after}");
}

fn out_of_place(kernel: &str, place: i64) -> Option<SchedulerExit> {
    let knobs = [("place", place)];
    let run = Run { kernel: version(kernel), knobs: &knobs, ..Run::new("out_of_place", WORKLOAD, 2) };
    run.run(&mut NullSink).scheduler_exit
}

#[test]
fn kfuncs_out_of_place_are_refused() {
    assert_eq!(out_of_place("6.12", 0), None);
    // What is needed and what is allowed, as `enum scx_kf_mask` of those kernels numbers them.
    for (place, needs, allows) in [(1, 0, 4), (2, 2, 4), (3, 8, 4), (4, 6, 16), (5, 0, 2)] {
        let exit = out_of_place("6.12", place).expect("an error");
        let said = format!("kfunc with mask 0x{needs:x} called from an operation only allowing 0x{allows:x}");
        assert_eq!((exit.kind, exit.message.as_str()), (1024, said.as_str()), "place {place}");
    }
    for place in [1, 2, 4, 5] {
        let exit = out_of_place("7.2", place).expect("an error");
        assert!(exit.message.contains("the kernel's verifier refuses the program"), "{}", exit.message);
    }
    assert_eq!(out_of_place("6.16", 3), None, "enqueue may ask for idle CPUs since 6.16");
}
