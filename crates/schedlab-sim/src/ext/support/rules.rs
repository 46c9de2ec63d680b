//! Flags, queues, exit kinds, counters and rules.

use super::{Item, no, partly, since, yes};

const LIFE: &str = "ext_life::callbacks_keep_the_order_of_a_task_s_life";
const MISBEHAVE_TWICE: &str = "ext_errors::a_second_insert_ends_the_scheduler";

pub(super) const OPS_FLAGS: &[Item] = &[
    yes("SCX_OPS_KEEP_BUILTIN_IDLE", "idle_told"),
    yes("SCX_OPS_ENQ_LAST", "enq_last"),
    no(
        "SCX_OPS_ENQ_EXITING",
        (6, 12),
        "an exiting task does not wait for a CPU again: taken, without effect",
    ),
    yes("SCX_OPS_SWITCH_PARTIAL", "init_enable_count_partial"),
    no("SCX_OPS_ENQ_MIGRATION_DISABLED", (6, 14), "no task disables migration: taken, without effect"),
    no(
        "SCX_OPS_ALLOW_QUEUED_WAKEUP",
        (6, 14),
        "the waker does remote wake-ups itself: taken, without effect",
    ),
    since(6, 15, "SCX_OPS_BUILTIN_IDLE_PER_NODE", "numa"),
    since(7, 1, "SCX_OPS_ALWAYS_ENQ_IMMED", "always_immed"),
    since(7, 2, "SCX_OPS_TID_TO_TASK", "tid_to_task"),
    partly("SCX_OPS_HAS_CGROUP_WEIGHT", (6, 12), "as in Linux: taken, without effect", "").before((7, 0)),
];

pub(super) const FLAGS: &[Item] = &[
    yes("SCX_ENQ_WAKEUP", "ext_conformance::our_schedulers_are_called_as_on_linux"),
    yes("SCX_ENQ_HEAD", "enq_head"),
    yes("SCX_ENQ_CPU_SELECTED", "ext_conformance::our_schedulers_are_called_as_on_linux"),
    yes("SCX_ENQ_PREEMPT", "kick_preempt"),
    since(7, 1, "SCX_ENQ_IMMED", "immed"),
    yes("SCX_ENQ_REENQ", "cpu_preempt"),
    yes("SCX_ENQ_LAST", "enq_last"),
    yes("SCX_DEQ_SLEEP", LIFE),
    no("SCX_DEQ_CORE_SCHED_EXEC", (6, 12), "no core scheduling"),
    since(7, 1, "SCX_DEQ_SCHED_CHANGE", "dequeue_enqueue_user"),
    yes("SCX_WAKE_FORK", "enq_select_cpu"),
    yes("SCX_WAKE_TTWU", "ext_conformance::our_schedulers_are_called_as_on_linux"),
    yes("SCX_WAKE_SYNC", "ext_conformance::our_schedulers_are_called_as_on_linux"),
    yes("SCX_KICK_IDLE", "peek_dsq"),
    yes("SCX_KICK_PREEMPT", "kick_flags"),
    partly(
        "SCX_KICK_WAIT",
        (6, 12),
        "a cost: the kicking CPU pays the time until the kicked ones reschedule, in its next pass",
        "cyclic_kick_wait",
    ),
    yes("SCX_PICK_IDLE_CORE", "idle_masks"),
    since(6, 15, "SCX_PICK_IDLE_IN_NODE", "numa"),
    since(7, 0, "SCX_REENQ_ANY", "reenqueue"),
    yes("SCX_DSQ_ITER_REV", "dsq_reverse"),
];

pub(super) const QUEUES: &[Item] = &[
    yes("SCX_DSQ_LOCAL", "select_cpu_dispatch"),
    yes("SCX_DSQ_LOCAL_ON", "dsp_local_on"),
    yes("SCX_DSQ_GLOBAL", "dequeue_enqueue_global"),
    since(6, 19, "SCX_DSQ_BYPASS", "ext_machine::a_suspended_machine_bypasses_the_scheduler"),
    yes("user queues, FIFO", "peek_dsq"),
    yes("user queues, by virtual time", "select_cpu_vtime"),
    yes("both orders in one queue are an error", "ext_errors::both_orders_in_one_queue_end_the_scheduler"),
    yes("virtual time in a built-in queue is an error", "ddsp_vtimelocal_fail"),
    yes("a queue that does not exist is an error", "ddsp_bogus_dsq_fail"),
    yes("a CPU outside the task's mask is an error", "ext_errors::a_forbidden_cpu_ends_the_scheduler"),
    yes(
        "an offline CPU's local queue falls back to the global one",
        "ext_machine::a_local_queue_of_an_offline_cpu",
    ),
    yes("a second direct insertion is an error", MISBEHAVE_TWICE),
    yes("destroying a queue in use is an error", "destroy_in_use"),
];

/// What ends a scheduler without its doing, asked for by the workload's events.
const OUTSIDE: &str = "ext_switching::something_outside_ends_the_scheduler";

pub(super) const EXITS: &[Item] = &[
    yes("SCX_EXIT_UNREG", "minimal"),
    yes("SCX_EXIT_UNREG_BPF", "exit_dispatch"),
    yes("SCX_EXIT_UNREG_KERN", "hotplug_offline_nocb"),
    yes("SCX_EXIT_SYSRQ", OUTSIDE),
    no("SCX_EXIT_PARENT", (7, 0), "sub-schedulers need the cid-form"),
    yes("SCX_EXIT_ERROR", "ddsp_bogus_dsq_fail"),
    yes("SCX_EXIT_ERROR_BPF", "dump"),
    yes("SCX_EXIT_ERROR_STALL", "ext_errors::a_lost_task_is_a_stall_after_the_timeout"),
    yes("SCX_ECODE_RSN_HOTPLUG", "hotplug_offline_nocb"),
    yes("SCX_ECODE_ACT_RESTART", "hotplug_online_nocb"),
    yes("SCX_EFLAG_INITIALIZED", "exit_enqueue"),
];

const DUMPED: &str = "ext_machine::event_counters_are_in_the_dump";

pub(super) const EVENTS: &[Item] = &[
    since(6, 15, "SCX_EV_SELECT_CPU_FALLBACK", DUMPED),
    since(6, 15, "SCX_EV_DISPATCH_LOCAL_DSQ_OFFLINE", "ext_machine::a_local_queue_of_an_offline_cpu"),
    since(6, 15, "SCX_EV_DISPATCH_KEEP_LAST", DUMPED),
    no("SCX_EV_ENQ_SKIP_EXITING", (6, 15), "an exiting task does not wait for a CPU again"),
    no("SCX_EV_ENQ_SKIP_MIGRATION_DISABLED", (6, 15), "no task disables migration"),
    since(6, 15, "SCX_EV_REENQ_IMMED", "immed"),
    since(6, 15, "SCX_EV_REENQ_LOCAL_REPEAT", DUMPED),
    since(6, 15, "SCX_EV_REFILL_SLICE_DFL", "queries"),
    since(6, 15, "SCX_EV_BYPASS_DURATION", "ext_machine::a_suspended_machine_bypasses_the_scheduler"),
    since(6, 15, "SCX_EV_BYPASS_DISPATCH", "ext_machine::a_suspended_machine_bypasses_the_scheduler"),
    since(6, 15, "SCX_EV_BYPASS_ACTIVATE", "ext_machine::a_suspended_machine_bypasses_the_scheduler"),
    no("SCX_EV_INSERT_NOT_OWNED", (6, 15), "a task has one scheduler"),
    no("SCX_EV_SUB_BYPASS_DISPATCH", (6, 15), "sub-schedulers need the cid-form"),
];

pub(super) const RULES: &[Item] = &[
    yes("order of a task's life", LIFE),
    yes("one dequeue for each stay in custody (7.1)", "dequeue_own_queue"),
    yes(
        "dequeue only of tasks the scheduler holds (before 7.1)",
        "ext_versions::dequeue_is_called_before_7_1",
    ),
    yes(
        "a task preempted by a stronger class goes first when the CPU is back",
        "ext_known_answers::real_time_preempts_and_the_preempted_task_goes_on_first",
    ),
    yes("dispatch_max_batch", "dispatch_overflow"),
    yes("SCX_DSP_MAX_LOOPS", "ext_machine::dispatch_is_called_32_times_at_most_in_one_pass"),
    yes("timeout_ms, the watchdog", "ext_errors::a_lost_task_is_a_stall_after_the_timeout"),
    yes("exit_dump_len", "ext_machine::a_dump_is_cut_to_its_length"),
    yes("hotplug_seq", "ext_machine::a_stale_hotplug_seq_ends_the_scheduler"),
    yes("bypass while the machine is suspended", "ext_machine::a_suspended_machine_bypasses_the_scheduler"),
    since(7, 0, "ext_server: a share beside real-time tasks", "rt_stall"),
    yes("a kfunc out of place is an error", "ext_versions::kfuncs_out_of_place_are_refused"),
    partly(
        "soft lockups end the scheduler",
        (6, 13),
        "asked for by an event: callbacks run one at a time and are cut after 50 million instructions",
        OUTSIDE,
    ),
    partly("RCU stalls end the scheduler", (6, 18), "asked for by an event", OUTSIDE),
    partly(
        "the watchdog's own check-in, at every tick",
        (6, 12),
        "asked for by an event: its work is the simulated kernel's own, no thread that a scheduler could starve",
        OUTSIDE,
    ),
    partly("hard lockups end the scheduler", (6, 19), "asked for by an event", OUTSIDE),
    yes("a fork that `init_task` refuses fails", "fork_fails"),
    yes(
        "schedulers come and go while tasks run",
        "ext_switching::switching_often_loses_nobody_in_any_version",
    ),
    yes("tasks that exist are initialised, then enabled, in bypass", "comes_late"),
    yes("task->disallow", "ext_switching::a_scheduler_may_refuse_tasks_that_were_there_before_it"),
    yes(
        "a loader attaches a scheduler anew that asks for it",
        "ext_switching::a_scheduler_that_asks_for_it_is_attached_anew",
    ),
    since(6, 19, "bypass load balancer", "ext_machine::bypass_is_balanced_since_6_19"),
    yes("a finite slice brings back the tick", "nohz_tick"),
    no("ops.priv, struct_ops association", (7, 1), "sub-schedulers need the cid-form"),
];
