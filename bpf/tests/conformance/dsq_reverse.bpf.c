// SPDX-License-Identifier: GPL-2.0-only
/* A queue iterated backwards shows the same tasks in the opposite order. */
#include "../../include/conformance.bpf.h"

#define SHARED_DSQ 0
#define REVERSE (1ULL << 16)

static u64 compared, differed;

void SCHED_OP(dsq_reverse_enqueue, struct task_struct *p, u64 enq_flags)
{
	dsq_insert(p, SHARED_DSQ, SLICE, enq_flags);
	scx_bpf_kick_cpu(scx_bpf_task_cpu(p), KICK(IDLE));
}

void SCHED_OP(dsq_reverse_dispatch, s32 cpu, struct task_struct *prev)
{
	s32 last = -1, from_behind = -1, queued = scx_bpf_dsq_nr_queued(SHARED_DSQ);
	struct task_struct *p;

	bpf_for_each(scx_dsq, p, SHARED_DSQ, 0)
		last = p->pid;
	bpf_for_each(scx_dsq, p, SHARED_DSQ, REVERSE) {
		from_behind = p->pid;
		break;
	}
	/* Other CPUs insert meanwhile: only a queue that kept its length can be compared, and even that may differ. */
	if (queued > 1 && queued == scx_bpf_dsq_nr_queued(SHARED_DSQ)) {
		COUNT(compared);
		if (from_behind != last)
			COUNT(differed);
	}
	dsq_move_to_local(SHARED_DSQ);
}

s32 SCHED_OP_SLEEPABLE(dsq_reverse_init)
{
	return scx_bpf_create_dsq(SHARED_DSQ, -1);
}

void SCHED_OP(dsq_reverse_exit, struct scx_exit_info *info)
{
	CHECK(compared > 0);
	CHECK(differed * 10 <= compared);
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(dsq_reverse_ops,
	  .enqueue = (void *)dsq_reverse_enqueue,
	  .dispatch = (void *)dsq_reverse_dispatch,
	  .init = (void *)dsq_reverse_init,
	  .exit = (void *)dsq_reverse_exit,
	  .timeout_ms = 1000,
	  .name = "dsq_reverse");
