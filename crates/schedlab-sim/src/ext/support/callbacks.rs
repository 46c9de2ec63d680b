//! Callbacks of `struct sched_ext_ops`.

use super::{Item, no, partly, since, yes};

const SUB: &str = "sub-schedulers need the cid-form";

pub(super) const CALLBACKS: &[Item] = &[
    yes("select_cpu", "select_cpu_dispatch"),
    yes("enqueue", "enq_select_cpu"),
    yes("dequeue", "dequeue_enqueue_user"),
    yes("dispatch", "dsp_local_on"),
    yes("tick", "attributes"),
    yes("runnable", "ext_life::callbacks_keep_the_order_of_a_task_s_life"),
    yes("running", "ext_life::callbacks_keep_the_order_of_a_task_s_life"),
    yes("stopping", "ext_life::callbacks_keep_the_order_of_a_task_s_life"),
    yes("quiescent", "ext_life::callbacks_keep_the_order_of_a_task_s_life"),
    partly("yield", (6, 12), "`to` is always null: only hypervisors yield to a task", "attributes"),
    no(
        "core_sched_before",
        (6, 12),
        "asked by `scx_prio_less` alone, when core scheduling chooses for the threads of a core; no task has a cookie \
         here, so that it loads and is never called, as in a kernel without cookies",
    ),
    yes("set_weight", "attributes"),
    yes("set_cpumask", "attributes"),
    yes("update_idle", "idle_told"),
    yes("cpu_acquire", "cpu_preempt"),
    yes("cpu_release", "cpu_preempt"),
    yes("init_task", "fork_fails"),
    partly(
        "exit_task",
        (6, 12),
        "`cancelled` is never set: nothing refuses a fork after `init_task` has agreed",
        "init_enable_count",
    ),
    yes("enable", "init_enable_count"),
    yes("disable", "init_enable_count"),
    yes("dump", "dump"),
    yes("dump_cpu", "dump"),
    yes("dump_task", "dump"),
    yes("cgroup_init", "ext_machine::cgroups_are_told_and_tasks_move_between_them"),
    yes("cgroup_exit", "ext_machine::cgroups_are_told_and_tasks_move_between_them"),
    yes("cgroup_prep_move", "ext_machine::cgroups_are_told_and_tasks_move_between_them"),
    yes("cgroup_move", "ext_machine::cgroups_are_told_and_tasks_move_between_them"),
    no("cgroup_cancel_move", (6, 12), "a task moves alone: who was refused was not prepared"),
    yes("cgroup_set_weight", "ext_machine::cgroups_are_told_and_tasks_move_between_them"),
    since(6, 17, "cgroup_set_bandwidth", "ext_machine::cgroups_are_told_and_tasks_move_between_them"),
    since(6, 19, "cgroup_set_idle", "ext_machine::cgroups_are_told_and_tasks_move_between_them"),
    no("sub_attach", (7, 0), SUB),
    no("sub_detach", (7, 0), SUB),
    yes("cpu_online", "hotplug_online_cb"),
    yes("cpu_offline", "hotplug_offline_cb"),
    yes("init", "create_dsq"),
    yes("exit", "exit_init"),
];
