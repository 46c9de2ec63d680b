//! Linux's own tests, tools/testing/selftests/sched_ext: which of them are run here too, with the same expectation.
//!
//! Their `since` is that of what they test, not of the file.

use super::{Item, no, since, yes};

const VERIFIER: &str =
    "a program that the verifier must refuse: only stacks are verified here, objects run until they do harm";
const CID: &str = "cid-form only";

pub(super) const SELFTESTS: &[Item] = &[
    since(6, 19, "allowed_cpus.c", "allowed_cpus"),
    since(7, 1, "consume_immed.c", "consume_immed"),
    yes("create_dsq.c", "create_dsq"),
    yes("cyclic_kick_wait.c", "cyclic_kick_wait"),
    yes("ddsp_bogus_dsq_fail.c", "ddsp_bogus_dsq_fail"),
    yes("ddsp_vtimelocal_fail.c", "ddsp_vtimelocal_fail"),
    since(7, 1, "dequeue.c", "dequeue_own_queue"),
    since(7, 1, "dequeue_iter.c", "dequeue_iter"),
    yes("dsp_local_on.c", "dsp_local_on"),
    since(7, 0, "dsq_reenq.c", "reenqueue"),
    no("enable_cmask.c", (7, 2), CID),
    since(7, 1, "enq_immed.c", "always_immed"),
    yes("enq_last_no_enq_fails.c", "enq_last_no_enq_fails"),
    yes("enq_select_cpu.c", "enq_select_cpu"),
    yes("exit.c", "exit_enqueue"),
    yes("hotplug.c", "hotplug_offline_cb"),
    yes("init_enable_count.c", "init_enable_count"),
    yes("maximal.c", "ext_conformance::our_schedulers_are_called_as_on_linux"),
    yes("maybe_null.c", "maybe_null"),
    no("maybe_null_fail_dsp.bpf.c, maybe_null_fail_yld.bpf.c", (6, 12), VERIFIER),
    yes("minimal.c", "minimal"),
    yes("nohz_tick.c", "nohz_tick"),
    no(
        "non_scx_kfunc_deny.c",
        (7, 2),
        "another kind of `struct_ops` (TCP's) that the verifier must refuse: only `sched_ext_ops` is called here",
    ),
    since(6, 15, "numa.c", "numa"),
    since(6, 19, "peek_dsq.c", "peek_dsq"),
    yes("prog_run.c", "prog_run"),
    yes("reload_loop.c", "ext_switching::switching_often_loses_nobody_in_any_version"),
    since(7, 0, "rt_stall.c", "rt_stall"),
    yes("select_cpu_dfl.c", "select_cpu_dfl"),
    yes("select_cpu_dfl_nodispatch.c", "select_cpu_dfl_nodispatch"),
    yes("select_cpu_dispatch.c", "select_cpu_dispatch"),
    yes("select_cpu_dispatch_bad_dsq.c", "select_cpu_dispatch_bad_dsq"),
    yes("select_cpu_dispatch_dbl_dsp.c", "select_cpu_dispatch_dbl_dsp"),
    yes("select_cpu_vtime.c", "select_cpu_vtime"),
    no(
        "total_bw.c",
        (7, 0),
        "sums of `SCHED_DEADLINE` bandwidth in debugfs: the servers' admission is not modelled, only their share",
    ),
];
