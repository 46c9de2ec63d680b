/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Kernel functions with one prototype in every kernel from 6.12 to 7.2.
 *
 * Not here: those whose prototype or name changed; compat.bpf.h wraps them.
 */
#ifndef SCHEDLAB_KFUNCS_BPF_H
#define SCHEDLAB_KFUNCS_BPF_H

/* Idle CPUs. select_cpu_dfl says by *is_idle whether the CPU it returns was idle and is now claimed. */
extern s32 scx_bpf_select_cpu_dfl(struct task_struct *p, s32 prev_cpu, u64 wake_flags, bool *is_idle) __ksym;
extern bool scx_bpf_test_and_clear_cpu_idle(s32 cpu) __ksym;
extern s32 scx_bpf_pick_idle_cpu(const struct cpumask *cpus_allowed, u64 flags) __ksym;
extern s32 scx_bpf_pick_any_cpu(const struct cpumask *cpus_allowed, u64 flags) __ksym;
extern const struct cpumask *scx_bpf_get_idle_cpumask(void) __ksym;
extern const struct cpumask *scx_bpf_get_idle_smtmask(void) __ksym;
extern void scx_bpf_put_idle_cpumask(const struct cpumask *cpumask) __ksym;

/* Dispatch queues. */
extern s32 scx_bpf_create_dsq(u64 dsq_id, s32 node) __ksym;
extern void scx_bpf_destroy_dsq(u64 dsq_id) __ksym;
extern s32 scx_bpf_dsq_nr_queued(u64 dsq_id) __ksym;
extern u32 scx_bpf_dispatch_nr_slots(void) __ksym;
extern void scx_bpf_dispatch_cancel(void) __ksym;
extern int bpf_iter_scx_dsq_new(struct bpf_iter_scx_dsq *it, u64 dsq_id, u64 flags) __weak __ksym;
extern struct task_struct *bpf_iter_scx_dsq_next(struct bpf_iter_scx_dsq *it) __weak __ksym;
extern void bpf_iter_scx_dsq_destroy(struct bpf_iter_scx_dsq *it) __weak __ksym;

/* CPUs and tasks. */
extern void scx_bpf_kick_cpu(s32 cpu, u64 flags) __ksym;
extern bool scx_bpf_task_running(const struct task_struct *p) __ksym;
extern s32 scx_bpf_task_cpu(const struct task_struct *p) __ksym;
extern u32 scx_bpf_nr_cpu_ids(void) __ksym;
extern const struct cpumask *scx_bpf_get_possible_cpumask(void) __ksym;
extern const struct cpumask *scx_bpf_get_online_cpumask(void) __ksym;
extern void scx_bpf_put_cpumask(const struct cpumask *cpumask) __ksym;
extern struct cgroup *scx_bpf_task_cgroup(struct task_struct *p) __ksym __weak;
extern u32 scx_bpf_cpuperf_cap(s32 cpu) __ksym __weak;
extern u32 scx_bpf_cpuperf_cur(s32 cpu) __ksym __weak;
extern void scx_bpf_cpuperf_set(s32 cpu, u32 perf) __ksym __weak;

/* Ending and errors; SCHED_ERROR below is the usual form. */
extern void scx_bpf_exit_bstr(s64 exit_code, char *fmt, unsigned long long *data, u32 data__sz) __ksym __weak;
extern void scx_bpf_error_bstr(char *fmt, unsigned long long *data, u32 data__sz) __ksym;

/* CPU masks that a program owns. */
extern struct bpf_cpumask *bpf_cpumask_create(void) __ksym __weak;
extern void bpf_cpumask_release(struct bpf_cpumask *cpumask) __ksym __weak;
extern void bpf_cpumask_set_cpu(u32 cpu, struct bpf_cpumask *cpumask) __ksym __weak;
extern void bpf_cpumask_clear_cpu(u32 cpu, struct bpf_cpumask *cpumask) __ksym __weak;
extern bool bpf_cpumask_and(struct bpf_cpumask *dst, const struct cpumask *a, const struct cpumask *b) __ksym __weak;
extern void bpf_cpumask_copy(struct bpf_cpumask *dst, const struct cpumask *src) __ksym __weak;
extern bool bpf_cpumask_test_cpu(u32 cpu, const struct cpumask *cpumask) __ksym __weak;
extern u32 bpf_cpumask_first(const struct cpumask *cpumask) __ksym __weak;
extern u32 bpf_cpumask_weight(const struct cpumask *cpumask) __ksym __weak;
extern bool bpf_cpumask_empty(const struct cpumask *cpumask) __ksym __weak;

/* References. */
extern struct task_struct *bpf_task_from_pid(s32 pid) __ksym __weak;
extern void bpf_task_release(struct task_struct *p) __ksym __weak;
extern void bpf_cgroup_release(struct cgroup *cgrp) __ksym __weak;
extern void bpf_rcu_read_lock(void) __ksym __weak;
extern void bpf_rcu_read_unlock(void) __ksym __weak;

/* Ends the scheduler with SCX_EXIT_ERROR_BPF and a message; numbers only, as bpf_printk formats them. */
#define SCHED_ERROR(fmt, args...)                                                                  \
	({                                                                                         \
		static char ___fmt[] = fmt;                                                        \
		unsigned long long ___param[___bpf_narg(args) ?: 1] = {};                          \
		___bpf_fill(___param, args);                                                       \
		scx_bpf_error_bstr(___fmt, ___param, ___bpf_narg(args) * sizeof(___param[0]));     \
	})

#endif
