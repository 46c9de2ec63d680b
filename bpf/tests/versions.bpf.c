// SPDX-License-Identifier: GPL-2.0-only
/* Takes whatever form of a function the kernel has, from 6.12 on, and counts which it was and what it did. */
#include "../include/schedlab.bpf.h"

#define FROM_DSQ 0
#define TO_DSQ 1
#define PRIQ_DSQ 2
#define IT (&___it)

extern void scx_bpf_dsq_move_set_slice(struct bpf_iter_scx_dsq *it, u64 slice) __ksym __weak;
extern void scx_bpf_dsq_move_set_vtime(struct bpf_iter_scx_dsq *it, u64 vtime) __ksym __weak;
extern bool scx_bpf_dsq_move(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq, u64 flags) __ksym __weak;
extern bool scx_bpf_dsq_move_vtime(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq, u64 flags) __ksym __weak;
extern void scx_bpf_dispatch_from_dsq_set_slice(struct bpf_iter_scx_dsq *it, u64 slice) __ksym __weak;
extern void scx_bpf_dispatch_from_dsq_set_vtime(struct bpf_iter_scx_dsq *it, u64 vtime) __ksym __weak;
extern bool scx_bpf_dispatch_from_dsq(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq, u64 flags) __ksym __weak;
extern bool scx_bpf_dispatch_vtime_from_dsq(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq, u64 flags) __ksym __weak;

u64 old_moves, new_moves, ticks, curr_found, dequeued, select_and_absent, select_and_answered;

void SCHED_OP(versions_enqueue, struct task_struct *p, u64 enq_flags)
{
	dsq_insert(p, FROM_DSQ, 5000000, enq_flags);
	scx_bpf_kick_cpu(scx_bpf_task_cpu(p), KERNEL_CONST(scx_kick_flags, SCX_KICK_IDLE));
}

s32 SCHED_OP(versions_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	if (select_cpu_and(p, prev_cpu, wake_flags, p->cpus_ptr, 0) == -38)
		__sync_fetch_and_add(&select_and_absent, 1);
	else
		__sync_fetch_and_add(&select_and_answered, 1);
	return prev_cpu;
}

void SCHED_OP(versions_dequeue, struct task_struct *p, u64 deq_flags)
{
	__sync_fetch_and_add(&dequeued, 1);
}

void SCHED_OP(versions_dispatch, s32 cpu, struct task_struct *prev)
{
	struct task_struct *p;

	bpf_for_each(scx_dsq, p, FROM_DSQ, 0) {
		if (bpf_ksym_exists(scx_bpf_dsq_move)) {
			scx_bpf_dsq_move_set_slice(IT, 4000000);
			scx_bpf_dsq_move_set_vtime(IT, 7);
			if (p->pid & 1 ? scx_bpf_dsq_move(IT, p, TO_DSQ, 0) : scx_bpf_dsq_move_vtime(IT, p, PRIQ_DSQ, 0))
				__sync_fetch_and_add(&new_moves, 1);
		} else {
			scx_bpf_dispatch_from_dsq_set_slice(IT, 4000000);
			scx_bpf_dispatch_from_dsq_set_vtime(IT, 7);
			if (p->pid & 1 ? scx_bpf_dispatch_from_dsq(IT, p, TO_DSQ, 0)
				       : scx_bpf_dispatch_vtime_from_dsq(IT, p, PRIQ_DSQ, 0))
				__sync_fetch_and_add(&old_moves, 1);
		}
	}
	if (!dsq_move_to_local(TO_DSQ))
		dsq_move_to_local(PRIQ_DSQ);
}

void SCHED_OP(versions_tick, struct task_struct *p)
{
	struct task_struct *curr;

	__sync_fetch_and_add(&ticks, 1);
	bpf_rcu_read_lock();
	curr = cpu_curr(scx_bpf_task_cpu(p));
	if (curr && curr->pid == p->pid)
		__sync_fetch_and_add(&curr_found, 1);
	bpf_rcu_read_unlock();
}

s32 SCHED_OP_SLEEPABLE(versions_init)
{
	return scx_bpf_create_dsq(FROM_DSQ, -1) ?: scx_bpf_create_dsq(TO_DSQ, -1) ?: scx_bpf_create_dsq(PRIQ_DSQ, -1);
}

SCHED_OPS(versions_ops,
	  .select_cpu = (void *)versions_select_cpu,
	  .enqueue = (void *)versions_enqueue,
	  .dequeue = (void *)versions_dequeue,
	  .dispatch = (void *)versions_dispatch,
	  .tick = (void *)versions_tick,
	  .init = (void *)versions_init,
	  .name = "versions");
