//! Since which Linux a scheduler's kernel function exists, for messages only.
//!
//! Source: the vmlinux.h files of successive scx releases and the BTF of Debian's 7.2.

const SINCE: [(&str, &[&str]); 8] = [
    (
        "6.13",
        &[
            "scx_bpf_dsq_insert",
            "scx_bpf_dsq_insert_vtime",
            "scx_bpf_dsq_move",
            "scx_bpf_dsq_move_set_slice",
            "scx_bpf_dsq_move_set_vtime",
            "scx_bpf_dsq_move_to_local",
            "scx_bpf_dsq_move_vtime",
        ],
    ),
    ("6.14", &["scx_bpf_now"]),
    (
        "6.15",
        &[
            "scx_bpf_cpu_node",
            "scx_bpf_events",
            "scx_bpf_get_idle_cpumask_node",
            "scx_bpf_get_idle_smtmask_node",
            "scx_bpf_nr_node_ids",
            "scx_bpf_pick_any_cpu_node",
            "scx_bpf_pick_idle_cpu_node",
        ],
    ),
    ("6.16", &["scx_bpf_select_cpu_and"]),
    ("6.18", &["scx_bpf_cpu_curr", "scx_bpf_locked_rq"]),
    (
        "6.19",
        &[
            "__scx_bpf_dsq_insert_vtime",
            "__scx_bpf_select_cpu_and",
            "scx_bpf_dsq_insert___v2",
            "scx_bpf_dsq_peek",
            "scx_bpf_task_set_dsq_vtime",
            "scx_bpf_task_set_slice",
        ],
    ),
    ("7.0", &["scx_bpf_dsq_reenq"]),
    ("7.1", &["scx_bpf_dsq_move_to_local___v2", "scx_bpf_sub_dispatch"]),
];

/// First version with a kernel function, if the table knows it.
pub(super) fn kfunc(name: &str) -> Option<&'static str> {
    SINCE.iter().find(|(_, names)| names.contains(&name)).map(|(version, _)| *version)
}
