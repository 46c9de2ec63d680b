//! Prototypes of the kfuncs, and the versions that have them.
//!
//! A program's declaration must match the prototype or it stays unresolved, as with libbpf. Hidden arguments
//! (`const struct bpf_prog_aux *aux`) are not part of it. Source: vmlinux BTF of 7.2.13; kernel/sched/ext.c of
//! 6.12 and the version comments of sched-ext/scx `compat.bpf.h` for the others.

use super::{Versioned, always, before, between, since};

/// Declared after the types.
pub(super) const PROTOTYPES: &[Versioned] = &[
    always(ALWAYS),
    before(6, 18, DISPATCH_612),
    since(6, 13, DSQ_613),
    between((6, 13), (6, 19), "u32 scx_bpf_reenqueue_local(void);"),
    before(6, 13, "u32 scx_bpf_reenqueue_local(void);"),
    since(6, 14, "u64 scx_bpf_now(void);"),
    since(6, 15, NODES_615),
    since(
        6,
        16,
        "s32 scx_bpf_select_cpu_and(struct task_struct *p, s32 prev_cpu, u64 wake_flags, const struct cpumask *cpus_allowed, u64 flags);",
    ),
    since(6, 18, "struct task_struct *scx_bpf_cpu_curr(s32 cpu); struct rq *scx_bpf_locked_rq(void);"),
    since(6, 19, ARGS_619),
    since(7, 0, "void scx_bpf_dsq_reenq(u64 dsq_id, u64 reenq_flags);"),
    since(7, 1, "bool scx_bpf_dsq_move_to_local___v2(u64 dsq_id, u64 enq_flags);"),
    since(7, 2, "struct task_struct *scx_bpf_tid_to_task(u64 tid);"),
    always(CPUMASK),
    since(
        6,
        17,
        "int bpf_cpumask_populate(struct bpf_cpumask *cpumask, void *src, size_t src__sz); u32 bpf_cpumask_first_zero(const struct cpumask *cpumask);",
    ),
    before(6, 17, "u32 bpf_cpumask_first_zero(const struct cpumask *cpumask);"),
    always(COMMON),
];

const ALWAYS: &str = "
s32 scx_bpf_select_cpu_dfl(struct task_struct *p, s32 prev_cpu, u64 wake_flags, bool *is_idle);
u32 scx_bpf_dispatch_nr_slots(void);
void scx_bpf_dispatch_cancel(void);
s32 scx_bpf_create_dsq(u64 dsq_id, s32 node);
void scx_bpf_destroy_dsq(u64 dsq_id);
void scx_bpf_kick_cpu(s32 cpu, u64 flags);
s32 scx_bpf_dsq_nr_queued(u64 dsq_id);
int bpf_iter_scx_dsq_new(struct bpf_iter_scx_dsq *it, u64 dsq_id, u64 flags);
struct task_struct *bpf_iter_scx_dsq_next(struct bpf_iter_scx_dsq *it);
void bpf_iter_scx_dsq_destroy(struct bpf_iter_scx_dsq *it);
void scx_bpf_exit_bstr(s64 exit_code, char *fmt, unsigned long long *data, u32 data__sz);
void scx_bpf_error_bstr(char *fmt, unsigned long long *data, u32 data__sz);
void scx_bpf_dump_bstr(char *fmt, unsigned long long *data, u32 data__sz);
u32 scx_bpf_cpuperf_cap(s32 cpu);
u32 scx_bpf_cpuperf_cur(s32 cpu);
void scx_bpf_cpuperf_set(s32 cpu, u32 perf);
u32 scx_bpf_nr_cpu_ids(void);
const struct cpumask *scx_bpf_get_possible_cpumask(void);
const struct cpumask *scx_bpf_get_online_cpumask(void);
void scx_bpf_put_cpumask(const struct cpumask *cpumask);
const struct cpumask *scx_bpf_get_idle_cpumask(void);
const struct cpumask *scx_bpf_get_idle_smtmask(void);
void scx_bpf_put_idle_cpumask(const struct cpumask *idle_mask);
bool scx_bpf_test_and_clear_cpu_idle(s32 cpu);
s32 scx_bpf_pick_idle_cpu(const struct cpumask *cpus_allowed, u64 flags);
s32 scx_bpf_pick_any_cpu(const struct cpumask *cpus_allowed, u64 flags);
bool scx_bpf_task_running(const struct task_struct *p);
s32 scx_bpf_task_cpu(const struct task_struct *p);
struct rq *scx_bpf_cpu_rq(s32 cpu);
struct cgroup *scx_bpf_task_cgroup(struct task_struct *p);
";

const DISPATCH_612: &str = "
void scx_bpf_dispatch(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags);
void scx_bpf_dispatch_vtime(struct task_struct *p, u64 dsq_id, u64 slice, u64 vtime, u64 enq_flags);
bool scx_bpf_consume(u64 dsq_id);
void scx_bpf_dispatch_from_dsq_set_slice(struct bpf_iter_scx_dsq *it__iter, u64 slice);
void scx_bpf_dispatch_from_dsq_set_vtime(struct bpf_iter_scx_dsq *it__iter, u64 vtime);
bool scx_bpf_dispatch_from_dsq(struct bpf_iter_scx_dsq *it__iter, struct task_struct *p, u64 dsq_id, u64 enq_flags);
bool scx_bpf_dispatch_vtime_from_dsq(struct bpf_iter_scx_dsq *it__iter, struct task_struct *p, u64 dsq_id, u64 enq_flags);
";

const DSQ_613: &str = "
void scx_bpf_dsq_insert(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags);
void scx_bpf_dsq_insert_vtime(struct task_struct *p, u64 dsq_id, u64 slice, u64 vtime, u64 enq_flags);
bool scx_bpf_dsq_move_to_local(u64 dsq_id);
void scx_bpf_dsq_move_set_slice(struct bpf_iter_scx_dsq *it__iter, u64 slice);
void scx_bpf_dsq_move_set_vtime(struct bpf_iter_scx_dsq *it__iter, u64 vtime);
bool scx_bpf_dsq_move(struct bpf_iter_scx_dsq *it__iter, struct task_struct *p, u64 dsq_id, u64 enq_flags);
bool scx_bpf_dsq_move_vtime(struct bpf_iter_scx_dsq *it__iter, struct task_struct *p, u64 dsq_id, u64 enq_flags);
";

const NODES_615: &str = "
u32 scx_bpf_nr_node_ids(void);
s32 scx_bpf_cpu_node(s32 cpu);
const struct cpumask *scx_bpf_get_idle_cpumask_node(s32 node);
const struct cpumask *scx_bpf_get_idle_smtmask_node(s32 node);
s32 scx_bpf_pick_idle_cpu_node(const struct cpumask *cpus_allowed, s32 node, u64 flags);
s32 scx_bpf_pick_any_cpu_node(const struct cpumask *cpus_allowed, s32 node, u64 flags);
void scx_bpf_events(struct scx_event_stats *events, size_t events__sz);
";

const ARGS_619: &str = "
bool scx_bpf_dsq_insert___v2(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags);
bool __scx_bpf_dsq_insert_vtime(struct task_struct *p, struct scx_bpf_dsq_insert_vtime_args *args);
s32 __scx_bpf_select_cpu_and(struct task_struct *p, const struct cpumask *cpus_allowed, struct scx_bpf_select_cpu_and_args *args);
bool scx_bpf_task_set_slice(struct task_struct *p, u64 slice);
bool scx_bpf_task_set_dsq_vtime(struct task_struct *p, u64 vtime);
struct task_struct *scx_bpf_dsq_peek(u64 dsq_id);
u32 scx_bpf_reenqueue_local(void);
void scx_bpf_reenqueue_local___v2(void);
";

const CPUMASK: &str = "
struct bpf_cpumask *bpf_cpumask_create(void);
struct bpf_cpumask *bpf_cpumask_acquire(struct bpf_cpumask *cpumask);
void bpf_cpumask_release(struct bpf_cpumask *cpumask);
u32 bpf_cpumask_first(const struct cpumask *cpumask);
u32 bpf_cpumask_first_and(const struct cpumask *src1, const struct cpumask *src2);
void bpf_cpumask_set_cpu(u32 cpu, struct bpf_cpumask *cpumask);
void bpf_cpumask_clear_cpu(u32 cpu, struct bpf_cpumask *cpumask);
bool bpf_cpumask_test_cpu(u32 cpu, const struct cpumask *cpumask);
bool bpf_cpumask_test_and_set_cpu(u32 cpu, struct bpf_cpumask *cpumask);
bool bpf_cpumask_test_and_clear_cpu(u32 cpu, struct bpf_cpumask *cpumask);
void bpf_cpumask_setall(struct bpf_cpumask *cpumask);
void bpf_cpumask_clear(struct bpf_cpumask *cpumask);
bool bpf_cpumask_and(struct bpf_cpumask *dst, const struct cpumask *src1, const struct cpumask *src2);
void bpf_cpumask_or(struct bpf_cpumask *dst, const struct cpumask *src1, const struct cpumask *src2);
void bpf_cpumask_xor(struct bpf_cpumask *dst, const struct cpumask *src1, const struct cpumask *src2);
bool bpf_cpumask_equal(const struct cpumask *src1, const struct cpumask *src2);
bool bpf_cpumask_intersects(const struct cpumask *src1, const struct cpumask *src2);
bool bpf_cpumask_subset(const struct cpumask *src1, const struct cpumask *src2);
bool bpf_cpumask_empty(const struct cpumask *cpumask);
bool bpf_cpumask_full(const struct cpumask *cpumask);
void bpf_cpumask_copy(struct bpf_cpumask *dst, const struct cpumask *src);
u32 bpf_cpumask_any_distribute(const struct cpumask *cpumask);
u32 bpf_cpumask_any_and_distribute(const struct cpumask *src1, const struct cpumask *src2);
u32 bpf_cpumask_weight(const struct cpumask *cpumask);
";

/// What is no part of sched_ext.
const COMMON: &str = "
void bpf_rcu_read_lock(void);
void bpf_rcu_read_unlock(void);
struct task_struct *bpf_task_acquire(struct task_struct *p);
void bpf_task_release(struct task_struct *p);
struct task_struct *bpf_task_from_pid(s32 pid);
struct cgroup *bpf_cgroup_acquire(struct cgroup *cgrp);
void bpf_cgroup_release(struct cgroup *cgrp);
struct cgroup *bpf_cgroup_ancestor(struct cgroup *cgrp, int level);
struct cgroup *bpf_cgroup_from_id(u64 cgid);
int bpf_iter_num_new(struct bpf_iter_num *it, int start, int end);
int *bpf_iter_num_next(struct bpf_iter_num *it);
void bpf_iter_num_destroy(struct bpf_iter_num *it);
int bpf_iter_bits_new(struct bpf_iter_bits *it, const u64 *unsafe_ptr__ign, u32 nr_words);
int *bpf_iter_bits_next(struct bpf_iter_bits *it);
void bpf_iter_bits_destroy(struct bpf_iter_bits *it);
void bpf_preempt_disable(void);
void bpf_preempt_enable(void);
";
