// SPDX-License-Identifier: GPL-2.0-only
/* SCX_ENQ_HEAD puts a task in front of a FIFO queue. */
#include "../../include/conformance.bpf.h"

#define SHARED_DSQ 0

static u64 in_front;

void SCHED_OP(enq_head_enqueue, struct task_struct *p, u64 enq_flags)
{
	dsq_insert(p, SHARED_DSQ, SLICE, is_task(p, 'l') ? enq_flags : enq_flags | ENQ(HEAD));
	scx_bpf_kick_cpu(scx_bpf_task_cpu(p), KICK(IDLE));
}

void SCHED_OP(enq_head_dispatch, s32 cpu, struct task_struct *prev)
{
	bool long_seen = false, behind = false;
	struct task_struct *p;

	bpf_for_each(scx_dsq, p, SHARED_DSQ, 0) {
		if (is_task(p, 'l'))
			long_seen = true;
		else if (long_seen)
			behind = true;
		else
			COUNT(in_front);
	}
	CHECK(!behind);
	dsq_move_to_local(SHARED_DSQ);
}

s32 SCHED_OP_SLEEPABLE(enq_head_init)
{
	return scx_bpf_create_dsq(SHARED_DSQ, -1);
}

void SCHED_OP(enq_head_exit, struct scx_exit_info *info)
{
	CHECK(in_front > 0);
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(enq_head_ops,
	  .enqueue = (void *)enq_head_enqueue,
	  .dispatch = (void *)enq_head_dispatch,
	  .init = (void *)enq_head_init,
	  .exit = (void *)enq_head_exit,
	  .timeout_ms = 2000,
	  .name = "enq_head");
