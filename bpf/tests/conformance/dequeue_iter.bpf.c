// SPDX-License-Identifier: GPL-2.0-only
/* dequeue may walk the very queue that its task comes from: the queue's lock is not held. */
#include "../../include/conformance.bpf.h"

#define SHARED_DSQ 1000
#define DEQUEUES_MIN 10

static u64 dequeues, seen;

s32 SCHED_OP(dequeue_iter_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	return prev_cpu;
}

void SCHED_OP(dequeue_iter_enqueue, struct task_struct *p, u64 enq_flags)
{
	dsq_insert(p, SHARED_DSQ, SLICE, enq_flags);
	scx_bpf_kick_cpu(scx_bpf_task_cpu(p), KICK(IDLE));
}

void SCHED_OP(dequeue_iter_dispatch, s32 cpu, struct task_struct *prev)
{
	dsq_move_to_local(SHARED_DSQ);
}

void SCHED_OP(dequeue_iter_dequeue, struct task_struct *p, u64 deq_flags)
{
	struct task_struct *other;

	bpf_for_each(scx_dsq, other, SHARED_DSQ, 0) {
		/* A task that is dispatched has left; one that is taken back leaves afterwards. */
		CHECK(deq_flags || other->pid != p->pid);
		COUNT(seen);
	}
	COUNT(dequeues);
}

s32 SCHED_OP_SLEEPABLE(dequeue_iter_init)
{
	return scx_bpf_create_dsq(SHARED_DSQ, -1);
}

void SCHED_OP(dequeue_iter_exit, struct scx_exit_info *info)
{
	CHECK(dequeues >= DEQUEUES_MIN);
	CHECK(seen > 0);
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(dequeue_iter_ops,
	  .select_cpu = (void *)dequeue_iter_select_cpu,
	  .enqueue = (void *)dequeue_iter_enqueue,
	  .dispatch = (void *)dequeue_iter_dispatch,
	  .dequeue = (void *)dequeue_iter_dequeue,
	  .init = (void *)dequeue_iter_init,
	  .exit = (void *)dequeue_iter_exit,
	  .timeout_ms = 1000,
	  .name = "dequeue_iter");
