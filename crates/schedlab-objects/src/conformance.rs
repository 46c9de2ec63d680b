//! The conformance cases: which scheduler of bpf/tests/conformance, under which work, must end how.
//!
//! Plain data for the two arms that run them: the simulated kernel (schedlab-sim/tests/ext_selftests.rs) and a real
//! one in a virtual machine (schedlab-host/tests/vm.rs). A scheduler checks what it can see itself and counts in its
//! variables `checks`, `failures` and `first_failure`; a case passes if there were checks, no failure, and the
//! scheduler ended as said here. What Linux's tools/testing/selftests/sched_ext expects is expected here too; the
//! names are theirs where there is one.

/// `SCX_EXIT_UNREG`: the scheduler stayed until it was taken out.
pub const UNREG: i32 = 64;
/// `SCX_EXIT_UNREG_BPF`.
pub const UNREG_BPF: i32 = 65;
/// `SCX_EXIT_UNREG_KERN`.
pub const UNREG_KERN: i32 = 66;
/// `SCX_EXIT_ERROR`.
pub const ERROR: i32 = 1024;
/// `SCX_EXIT_ERROR_BPF`.
pub const ERROR_BPF: i32 = 1025;

/// `SCX_ECODE_ACT_RESTART | SCX_ECODE_RSN_HOTPLUG`.
const HOTPLUG_RESTART: i64 = 1 << 48 | 1 << 32;

/// One case.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Its name.
    pub name: &'static str,
    /// The object of bpf/tests/conformance.
    pub object: &'static str,
    /// The workload: tests/conformance/NAME.toml.
    pub scenario: &'static str,
    /// Settings of the object.
    pub knobs: &'static [(&'static str, i64)],
    /// `enum scx_exit_kind` it must end with.
    pub kind: i32,
    /// Exit code.
    pub code: i64,
    /// What the message must contain.
    pub message: &'static str,
    /// Whether the tasks of the workload are there, and run, before the scheduler comes.
    pub late: bool,
    /// A program that the user half runs once the scheduler is attached (`BPF_PROG_TEST_RUN`).
    pub runs: Option<&'static str>,
}

/// CPUs of every case.
pub const CPUS: u32 = 2;

const fn stays(name: &'static str, scenario: &'static str) -> Case {
    Case {
        name,
        object: name,
        scenario,
        knobs: &[],
        kind: UNREG,
        code: 0,
        message: "",
        late: false,
        runs: None,
    }
}

const fn ends(name: &'static str, kind: i32, message: &'static str) -> Case {
    Case { kind, message, ..stays(name, "crowd") }
}

const fn exits(name: &'static str, knobs: &'static [(&'static str, i64)]) -> Case {
    let code = knobs[0].1;
    Case { object: "exit", knobs, kind: UNREG_BPF, code, ..stays(name, "crowd") }
}

const fn dequeues(name: &'static str, knobs: &'static [(&'static str, i64)]) -> Case {
    Case { object: "dequeue", knobs, ..stays(name, "affinity") }
}

const fn hotplug(name: &'static str, object: &'static str, scenario: &'static str, code: i64) -> Case {
    let (kind, code) = if code == 0 { (UNREG_KERN, HOTPLUG_RESTART) } else { (UNREG_BPF, code) };
    Case { object, kind, code, message: "cpu 1 ", ..stays(name, scenario) }
}

/// All cases.
pub const CASES: &[Case] = &[
    stays("minimal", "crowd"),
    stays("create_dsq", "crowd"),
    ends("ddsp_bogus_dsq_fail", ERROR, "non-existent DSQ 0xcafef00d"),
    ends("ddsp_vtimelocal_fail", ERROR, "cannot use vtime ordering for built-in DSQs"),
    stays("dsp_local_on", "crowd"),
    ends("enq_last_no_enq_fails", ERROR, "SCX_OPS_ENQ_LAST requires ops.enqueue() to be implemented"),
    stays("enq_select_cpu", "crowd"),
    exits("exit_select_cpu", &[("exit_point", 0)]),
    exits("exit_enqueue", &[("exit_point", 1)]),
    exits("exit_dispatch", &[("exit_point", 2)]),
    exits("exit_enable", &[("exit_point", 3)]),
    exits("exit_init_task", &[("exit_point", 4)]),
    exits("exit_init", &[("exit_point", 5)]),
    hotplug("hotplug_offline_cb", "hotplug_cb", "cpu_leaves", 1 << 56 | 2),
    hotplug("hotplug_online_cb", "hotplug_cb", "cpu_comes", 1 << 56 | 1),
    hotplug("hotplug_offline_nocb", "hotplug_nocb", "cpu_leaves", 0),
    hotplug("hotplug_online_nocb", "hotplug_nocb", "cpu_comes", 0),
    stays("init_enable_count", "policies"),
    stays("init_enable_count_partial", "policies"),
    stays("numa", "crowd"),
    stays("allowed_cpus", "crowd"),
    stays("peek_dsq", "crowd"),
    stays("rt_stall", "rt_stall"),
    stays("select_cpu_dfl", "crowd"),
    stays("select_cpu_dfl_nodispatch", "crowd"),
    stays("select_cpu_dispatch", "crowd"),
    ends("select_cpu_dispatch_bad_dsq", ERROR, "non-existent DSQ 0xcafef00d"),
    ends("select_cpu_dispatch_dbl_dsp", ERROR, "already direct-dispatched"),
    stays("select_cpu_vtime", "crowd"),
    stays("cyclic_kick_wait", "crowd"),
    dequeues("dequeue_select_local", &[("scenario", 0)]),
    dequeues("dequeue_select_global", &[("scenario", 1)]),
    dequeues("dequeue_select_user", &[("scenario", 2)]),
    dequeues("dequeue_enqueue_local", &[("scenario", 3)]),
    dequeues("dequeue_enqueue_global", &[("scenario", 4)]),
    dequeues("dequeue_enqueue_user", &[("scenario", 5)]),
    dequeues("dequeue_own_queue", &[("scenario", 6)]),
    stays("enq_last", "urgent"),
    stays("attributes", "attributes"),
    stays("cpu_preempt", "rt_beside"),
    stays("dispatch_buffer", "crowd"),
    Case {
        knobs: &[("overflow", 1)],
        object: "dispatch_buffer",
        ..ends("dispatch_overflow", ERROR, "dispatch buffer overflow")
    },
    stays("dsq_move", "crowd"),
    ends("dump", ERROR_BPF, "enough of 20"),
    stays("dsq_move_vtime", "crowd"),
    stays("dsq_reverse", "crowd"),
    stays("enq_head", "crowd"),
    stays("dispatch_loops", "crowd"),
    ends("destroy_in_use", ERROR, "attempting to destroy in-use dsq"),
    stays("reenqueue", "crowd"),
    Case { knobs: &[("local", 1)], object: "reenqueue", ..stays("reenqueue_local", "crowd") },
    stays("tid_to_task", "crowd"),
    stays("idle_masks", "crowd"),
    stays("queries", "crowd"),
    stays("show_values", "crowd"),
    stays("immed", "crowd"),
    stays("always_immed", "crowd"),
    stays("kick_flags", "urgent"),
    stays("cgroups", "crowd"),
    stays("idle_told", "crowd"),
    stays("kick_preempt", "urgent"),
    stays("kick_running", "rt_beside"),
    stays("maybe_null", "attributes"),
    stays("nohz_tick", "slices"),
    Case { late: true, ..stays("comes_late", "runs_on") },
    Case {
        late: true,
        scenario: "runs_on",
        ..ends("init_task_fails", ERROR, "ops.init_task() failed (-22)")
    },
    stays("fork_fails", "forks"),
    stays("dequeue_iter", "crowd"),
    stays("consume_immed", "crowd"),
    Case {
        kind: UNREG_BPF,
        code: 0xdead_beef,
        message: "left by a program",
        runs: Some("prog_run_syscall"),
        ..stays("prog_run", "crowd")
    },
];

/// The case of that name.
pub fn case(name: &str) -> Option<&'static Case> {
    CASES.iter().find(|case| case.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_object_has_a_case_and_every_case_an_object() {
        for case in CASES {
            assert!(crate::test_object(case.object).is_some(), "{}", case.name);
            assert_eq!(CASES.iter().filter(|other| other.name == case.name).count(), 1, "{}", case.name);
        }
        for object in crate::CONFORMANCE {
            assert!(CASES.iter().any(|case| case.object == object.name), "{}", object.name);
        }
    }
}
