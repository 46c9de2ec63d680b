/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Every difference between kernel versions, 6.12 to 7.2, and nothing else.
 *
 * A loader looks a kernel function up by its name without the last ___suffix, then compares prototypes;
 * one that is absent or differs leaves a weak declaration at zero, and the branch that calls it is dead.
 * So `f___v2___compat` is the kernel's `f___v2`, and `f___v1` is the kernel's `f`. The newest form is
 * tried first. Schedulers call the short names at the end of each block.
 */
#ifndef SCHEDLAB_COMPAT_BPF_H
#define SCHEDLAB_COMPAT_BPF_H

/* Insertion into a FIFO: bool since 6.19, void since 6.13, scx_bpf_dispatch in 6.12. */
extern bool scx_bpf_dsq_insert___v2___compat(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags) __ksym __weak;
extern void scx_bpf_dsq_insert___v1(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags) __ksym __weak;
extern void scx_bpf_dispatch___compat(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags) __ksym __weak;

/* Queues a task in a dispatch queue, in order of arrival. False: the insertion was refused. */
static __always_inline bool dsq_insert(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags)
{
	if (bpf_ksym_exists(scx_bpf_dsq_insert___v2___compat))
		return scx_bpf_dsq_insert___v2___compat(p, dsq_id, slice, enq_flags);
	if (bpf_ksym_exists(scx_bpf_dsq_insert___v1))
		scx_bpf_dsq_insert___v1(p, dsq_id, slice, enq_flags);
	else
		scx_bpf_dispatch___compat(p, dsq_id, slice, enq_flags);
	return true;
}

/* Insertion by virtual time: arguments in a struct since 6.19, five registers since 6.13. */
extern bool __scx_bpf_dsq_insert_vtime(struct task_struct *p, struct scx_bpf_dsq_insert_vtime_args *args) __ksym __weak;
extern void scx_bpf_dsq_insert_vtime___compat(struct task_struct *p, u64 dsq_id, u64 slice, u64 vtime, u64 enq_flags) __ksym __weak;
extern void scx_bpf_dispatch_vtime___compat(struct task_struct *p, u64 dsq_id, u64 slice, u64 vtime, u64 enq_flags) __ksym __weak;

/* Queues a task in a dispatch queue, least virtual time first. False: the insertion was refused. */
static __always_inline bool dsq_insert_vtime(struct task_struct *p, u64 dsq_id, u64 slice, u64 vtime, u64 enq_flags)
{
	if (bpf_core_type_exists(struct scx_bpf_dsq_insert_vtime_args)) {
		struct scx_bpf_dsq_insert_vtime_args args = {
			.dsq_id = dsq_id,
			.slice = slice,
			.vtime = vtime,
			.enq_flags = enq_flags,
		};

		return __scx_bpf_dsq_insert_vtime(p, &args);
	}
	if (bpf_ksym_exists(scx_bpf_dsq_insert_vtime___compat))
		scx_bpf_dsq_insert_vtime___compat(p, dsq_id, slice, vtime, enq_flags);
	else
		scx_bpf_dispatch_vtime___compat(p, dsq_id, slice, vtime, enq_flags);
	return true;
}

/* Moving the head of a queue to this CPU: with flags since 7.1, renamed in 6.13. */
extern bool scx_bpf_dsq_move_to_local___v2___compat(u64 dsq_id, u64 enq_flags) __ksym __weak;
extern bool scx_bpf_dsq_move_to_local___v1(u64 dsq_id) __ksym __weak;
extern bool scx_bpf_consume___compat(u64 dsq_id) __ksym __weak;

/* From dispatch: moves the first task that may run here to the local queue. False: there is none. */
static __always_inline bool dsq_move_to_local(u64 dsq_id)
{
	if (bpf_ksym_exists(scx_bpf_dsq_move_to_local___v2___compat))
		return scx_bpf_dsq_move_to_local___v2___compat(dsq_id, 0);
	if (bpf_ksym_exists(scx_bpf_dsq_move_to_local___v1))
		return scx_bpf_dsq_move_to_local___v1(dsq_id);
	return scx_bpf_consume___compat(dsq_id);
}

/* Moving a task that an iterator stands on: renamed in 6.13. */
extern bool scx_bpf_dsq_move___v1(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq_id, u64 enq_flags) __ksym __weak;
extern bool scx_bpf_dispatch_from_dsq___compat(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq_id, u64 enq_flags) __ksym __weak;

/* Moves a task that the iterator gave to another queue. False: somebody else has taken it. */
static __always_inline bool dsq_move(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq_id, u64 enq_flags)
{
	if (bpf_ksym_exists(scx_bpf_dsq_move___v1))
		return scx_bpf_dsq_move___v1(it, p, dsq_id, enq_flags);
	return scx_bpf_dispatch_from_dsq___compat(it, p, dsq_id, enq_flags);
}

/* The same into a queue by virtual time, which is told to the iterator first: also renamed in 6.13. */
extern void scx_bpf_dsq_move_set_vtime___v1(struct bpf_iter_scx_dsq *it, u64 vtime) __ksym __weak;
extern bool scx_bpf_dsq_move_vtime___v1(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq_id, u64 enq_flags) __ksym __weak;
extern void scx_bpf_dispatch_from_dsq_set_vtime___compat(struct bpf_iter_scx_dsq *it, u64 vtime) __ksym __weak;
extern bool scx_bpf_dispatch_vtime_from_dsq___compat(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq_id, u64 enq_flags) __ksym __weak;

/* Moves a task that the iterator gave to another queue, by virtual time. False: somebody else has taken it. */
static __always_inline bool dsq_move_vtime(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq_id, u64 vtime, u64 enq_flags)
{
	if (bpf_ksym_exists(scx_bpf_dsq_move_vtime___v1)) {
		scx_bpf_dsq_move_set_vtime___v1(it, vtime);
		return scx_bpf_dsq_move_vtime___v1(it, p, dsq_id, enq_flags);
	}
	scx_bpf_dispatch_from_dsq_set_vtime___compat(it, vtime);
	return scx_bpf_dispatch_vtime_from_dsq___compat(it, p, dsq_id, enq_flags);
}

/* Idle selection inside a mask: arguments in a struct since 6.19, five registers since 6.16. */
extern s32 __scx_bpf_select_cpu_and(struct task_struct *p, const struct cpumask *allowed, struct scx_bpf_select_cpu_and_args *args) __ksym __weak;
extern s32 scx_bpf_select_cpu_and___compat(struct task_struct *p, s32 prev_cpu, u64 wake_flags, const struct cpumask *allowed, u64 flags) __ksym __weak;

/* An idle CPU of the mask, claimed, or a negative error; -ENOSYS (-38) before 6.16. */
static __always_inline s32 select_cpu_and(struct task_struct *p, s32 prev_cpu, u64 wake_flags, const struct cpumask *allowed, u64 flags)
{
	if (bpf_core_type_exists(struct scx_bpf_select_cpu_and_args)) {
		struct scx_bpf_select_cpu_and_args args = {
			.prev_cpu = prev_cpu,
			.wake_flags = wake_flags,
			.flags = flags,
		};

		return __scx_bpf_select_cpu_and(p, allowed, &args);
	}
	if (bpf_ksym_exists(scx_bpf_select_cpu_and___compat))
		return scx_bpf_select_cpu_and___compat(p, prev_cpu, wake_flags, allowed, flags);
	return -38;
}

/* Slice and virtual time: kfuncs since 6.19, plain stores before. */
extern bool scx_bpf_task_set_slice(struct task_struct *p, u64 slice) __ksym __weak;
extern bool scx_bpf_task_set_dsq_vtime(struct task_struct *p, u64 vtime) __ksym __weak;

/* Remaining slice of a task, in ns. */
static __always_inline void set_slice(struct task_struct *p, u64 slice)
{
	if (bpf_ksym_exists(scx_bpf_task_set_slice))
		scx_bpf_task_set_slice(p, slice);
	else
		p->scx.slice = slice;
}

/* Virtual time of a task that is in no queue ordered by it. */
static __always_inline void set_dsq_vtime(struct task_struct *p, u64 vtime)
{
	if (bpf_ksym_exists(scx_bpf_task_set_dsq_vtime))
		scx_bpf_task_set_dsq_vtime(p, vtime);
	else
		p->scx.dsq_vtime = vtime;
}

/* The run queue's clock since 6.14, in ns. */
extern u64 scx_bpf_now(void) __ksym __weak;

static __always_inline u64 now_ns(void)
{
	return bpf_ksym_exists(scx_bpf_now) ? scx_bpf_now() : bpf_ktime_get_ns();
}

/* The task that runs on a CPU: its own kfunc since 6.18. Call inside bpf_rcu_read_lock(). */
extern struct task_struct *scx_bpf_cpu_curr(s32 cpu) __ksym __weak;
extern struct rq *scx_bpf_cpu_rq(s32 cpu) __ksym __weak;

static __always_inline struct task_struct *cpu_curr(s32 cpu)
{
	struct rq *rq;

	if (bpf_ksym_exists(scx_bpf_cpu_curr))
		return scx_bpf_cpu_curr(cpu);
	rq = scx_bpf_cpu_rq(cpu);
	return rq ? rq->curr : NULL;
}

/* Head of a queue without a lock, since 6.19; NULL before. */
extern struct task_struct *scx_bpf_dsq_peek(u64 dsq_id) __ksym __weak;

static __always_inline struct task_struct *dsq_peek(u64 dsq_id)
{
	return bpf_ksym_exists(scx_bpf_dsq_peek) ? scx_bpf_dsq_peek(dsq_id) : NULL;
}

#endif
