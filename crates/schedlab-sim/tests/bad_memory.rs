//! Schedulers that mistreat memory (bpf/tests/garbage.bpf.c), in native code and interpreted: an error with
//! program, instruction and source line, or the kernel's own answer, and never harm to the simulator.

mod ext_runs;

use ext_runs::Run;
use schedlab_model::event::NullSink;
use schedlab_model::outcome::SchedulerExit;

/// What bpf/tests/garbage.bpf.c does, in its order.
#[derive(Clone, Copy, Debug)]
enum Mistreat {
    NullStore = 1,
    WildStore,
    WildLoad,
    PastValue,
    FreedTask,
    DoubleDrop,
    FullMaps,
    Division,
    Misaligned,
    StorageTwice,
    ArenaTwice,
    NestedLoops,
    NoFunction,
    NoMap,
}

const WORKLOAD: &str = r#"
name = "workers"
duration = "40ms"
[[task]]
name = "short"
steps = [{ run = "2ms" }]
[[task]]
name = "worker"
count = 3
steps = [{ loop = { count = 0, steps = [{ run = "500us" }, { sleep = "300us" }] } }]
"#;

/// How both engines end it; they must agree, to the event.
fn exit(mistreat: Mistreat) -> Option<SchedulerExit> {
    let knobs = [("mistreat", mistreat as i64)];
    let run = |interpreted| {
        let run = Run { knobs: &knobs, interpreted, ..Run::new("garbage", WORKLOAD, 2) };
        let result = run.run(&mut NullSink);
        let busy: u64 = ext_runs::cpu_times(&result).iter().sum();
        assert!(busy > 30_000_000, "{mistreat:?}: tasks run on, {busy} ns in all");
        (result.scheduler_exit, result.report.event_hash)
    };
    let (native, interpreted) = (run(false), run(true));
    assert_eq!(native, interpreted, "{mistreat:?}: native code and interpreter differ");
    native.0
}

/// The scheduler ends with a runtime error that names the place.
fn ends(mistreat: Mistreat, message: &str) {
    let exit = exit(mistreat).unwrap_or_else(|| panic!("{mistreat:?} is noticed"));
    assert_eq!((exit.kind, exit.reason.as_str()), (1024, "runtime error"), "{}", exit.message);
    for words in ["program garbage_enqueue", ", instruction ", "bpf/tests/garbage.bpf.c:", message] {
        assert!(exit.message.contains(words), "{mistreat:?}: `{words}` is missing in: {}", exit.message);
    }
}

#[test]
fn stores_to_nowhere_name_their_line() {
    ends(Mistreat::NullStore, "stores through the invalid address 0x0");
    ends(Mistreat::WildStore, "stores through the invalid address 0xdeadbeef00001000");
}

#[test]
fn what_no_page_fault_would_catch_stays_inside_the_region() {
    assert_eq!(exit(Mistreat::WildLoad), None);
    assert_eq!(exit(Mistreat::PastValue), None);
}

#[test]
fn a_task_that_is_gone_is_no_task() {
    ends(Mistreat::FreedTask, "is no task");
}

#[test]
fn an_object_dropped_twice_is_noticed() {
    ends(Mistreat::DoubleDrop, "is no live object: dropped twice?");
}

#[test]
fn full_maps_answer_with_the_kernel_s_numbers() {
    assert_eq!(exit(Mistreat::FullMaps), None);
}

#[test]
fn division_by_zero_gives_zero_and_leaves_the_dividend() {
    assert_eq!(exit(Mistreat::Division), None);
}

#[test]
fn misaligned_accesses_work() {
    assert_eq!(exit(Mistreat::Misaligned), None);
}

#[test]
fn freeing_twice_is_answered_where_linux_answers() {
    assert_eq!(exit(Mistreat::StorageTwice), None);
    assert_eq!(exit(Mistreat::ArenaTwice), None);
}

#[test]
fn endless_loops_end_with_their_budget() {
    ends(Mistreat::NestedLoops, "instructions without ending");
}

#[test]
fn callbacks_and_maps_that_are_none_are_noticed() {
    ends(Mistreat::NoFunction, "is no function of this object");
    ends(Mistreat::NoMap, "is no map");
}
