//! Schedulers that make mistakes: the kernel's exit kind and words, and the fair class takes over.

mod ext_runs;

use ext_runs::{Run, cpu_times};
use schedlab_model::event::NullSink;
use schedlab_model::outcome::SchedulerExit;

/// Mistakes of bpf/tests/misbehave.bpf.c, in its order.
#[derive(Clone, Copy)]
enum Mistake {
    LosesTasks = 1,
    NoSuchQueue,
    InsertsTwice,
    VtimeInLocal,
    ForbiddenCpu,
    BadCpu,
    OwnError,
    MixesOrders,
    Endless,
    BadStore,
    InitFails,
}

const WORKLOAD: &str = r#"
name = "workers"
duration = "3s"
[[task]]
name = "worker"
count = 6
cpus = "0"
steps = [{ loop = { count = 0, steps = [{ run = "3ms" }, { sleep = "1ms" }] } }]
[[task]]
name = "free"
count = 2
steps = [{ loop = { count = 0, steps = [{ run = "3ms" }, { sleep = "1ms" }] } }]
"#;

fn exit(mistake: Mistake, after: i64) -> SchedulerExit {
    let unverified = matches!(mistake, Mistake::Endless | Mistake::BadStore);
    let knobs = [("mistake", mistake as i64), ("after", after), ("unverified", unverified.into())];
    let result = Run { knobs: &knobs, ..Run::new("misbehave", WORKLOAD, 2) }.run(&mut NullSink);
    let busy: u64 = cpu_times(&result).iter().sum();
    assert!(busy > 3_000_000_000, "fair runs the tasks afterwards: {busy} ns in all");
    result.scheduler_exit.expect("the mistake is noticed")
}

fn check(mistake: Mistake, after: i64, kind: u32, reason: &str, message: &str) {
    let exit = exit(mistake, after);
    assert_eq!((exit.kind, exit.reason.as_str()), (kind, reason), "{}", exit.message);
    assert!(exit.message.contains(message), "{}", exit.message);
}

#[test]
fn a_scheduler_without_mistakes_stays() {
    let result = Run::new("misbehave", WORKLOAD, 2).run(&mut NullSink);
    assert_eq!(result.scheduler_exit, None);
}

#[test]
fn a_lost_task_is_a_stall_after_the_timeout() {
    let exit = exit(Mistake::LosesTasks, 100);
    assert_eq!((exit.kind, exit.reason.as_str()), (1026, "runnable task stall"));
    let words = ["worker", "[", "] failed to run for 1.", "s"];
    assert!(words.iter().all(|word| exit.message.contains(word)), "{}", exit.message);
    assert!(exit.time.0 < 2_000_000_000, "noticed within one and a half timeouts: {}", exit.time);
}

#[test]
fn a_queue_that_does_not_exist_ends_the_scheduler() {
    check(Mistake::NoSuchQueue, 10, 1024, "runtime error", "non-existent DSQ 0x4d");
}

#[test]
fn a_second_insert_ends_the_scheduler() {
    check(Mistake::InsertsTwice, 10, 1024, "runtime error", "] already direct-dispatched");
}

#[test]
fn virtual_time_in_a_local_queue_ends_the_scheduler() {
    check(Mistake::VtimeInLocal, 10, 1024, "runtime error", "cannot use vtime ordering for built-in DSQs");
}

#[test]
fn a_forbidden_cpu_ends_the_scheduler() {
    check(
        Mistake::ForbiddenCpu,
        10,
        1024,
        "runtime error",
        "SCX_DSQ_LOCAL[_ON] target CPU 1 not allowed for worker",
    );
}

#[test]
fn a_cpu_that_does_not_exist_ends_the_scheduler() {
    check(Mistake::BadCpu, 10, 1024, "runtime error", "invalid CPU 100000 from ops.select_cpu()");
}

#[test]
fn the_scheduler_s_own_error_is_formatted() {
    check(Mistake::OwnError, 10, 1025, "scx_bpf_error", " is not welcome");
}

#[test]
fn both_orders_in_one_queue_end_the_scheduler() {
    check(
        Mistake::MixesOrders,
        10,
        1024,
        "runtime error",
        "DSQ ID 0x0000000000000000 already had FIFO-enqueued tasks",
    );
}

#[test]
fn an_endless_loop_and_a_bad_store_name_program_and_line() {
    check(Mistake::Endless, 10, 1024, "runtime error", "program misbehave_enqueue, instruction");
    check(Mistake::BadStore, 10, 1024, "runtime error", "bpf/tests/misbehave.bpf.c:");
    check(Mistake::BadStore, 10, 1024, "runtime error", "stores through the invalid address 0x0");
}

#[test]
fn a_failing_init_leaves_the_tasks_to_fair() {
    check(Mistake::InitFails, 0, 1024, "runtime error", "ops.init() failed (-7)");
}
