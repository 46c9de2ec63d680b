//! What BPF itself offers, tried by the init of schedulers (features.bpf.c, control.bpf.c of bpf/tests) and by
//! timers.

mod ext_runs;

use ext_runs::Run;
use schedlab_model::event::NullSink;
use schedlab_model::machine::KernelVersion;

const WORKLOAD: &str = r#"
name = "workers"
duration = "50ms"
[[task]]
name = "worker"
count = 3
steps = [{ loop = { count = 0, steps = [{ run = "300us" }, { sleep = "200us" }] } }]
"#;

#[test]
fn tail_calls_exceptions_tries_filters_and_percpu_objects_work_in_both_engines_and_every_kernel() {
    for kernel in [KernelVersion::V6_12, KernelVersion::V6_18, KernelVersion::V7_2] {
        for interpreted in [false, true] {
            let run = Run { kernel, interpreted, ..Run::new("control", WORKLOAD, 2) };
            let result = run.run(&mut NullSink);
            assert_eq!(result.scheduler_exit, None, "kernel {kernel}, interpreted {interpreted}");
        }
    }
}

#[test]
fn arenas_dynptrs_iterators_and_owned_fields_work_in_both_engines_and_every_kernel() {
    for kernel in [KernelVersion::V6_12, KernelVersion::V6_18, KernelVersion::V7_2] {
        for interpreted in [false, true] {
            let run = Run { kernel, interpreted, ..Run::new("features", WORKLOAD, 2) };
            let result = run.run(&mut NullSink);
            assert_eq!(result.scheduler_exit, None, "kernel {kernel}, interpreted {interpreted}");
        }
    }
}
