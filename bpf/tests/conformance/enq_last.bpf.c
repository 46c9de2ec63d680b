// SPDX-License-Identifier: GPL-2.0-only
/* Under SCX_OPS_ENQ_LAST the last task of a CPU comes to enqueue with its flag, and goes on if put back. */
#include "../../include/conformance.bpf.h"

#define SHARED_DSQ 0

static u64 last;

void SCHED_OP(enq_last_enqueue, struct task_struct *p, u64 enq_flags)
{
	if (enq_flags & ENQ(LAST)) {
		if (under_test(p))
			COUNT(last);
		dsq_insert(p, DSQ_LOCAL, SLICE, enq_flags);
		return;
	}
	dsq_insert(p, SHARED_DSQ, SLICE, enq_flags);
	scx_bpf_kick_cpu(scx_bpf_task_cpu(p), KICK(IDLE));
}

void SCHED_OP(enq_last_dispatch, s32 cpu, struct task_struct *prev)
{
	dsq_move_to_local(SHARED_DSQ);
}

s32 SCHED_OP_SLEEPABLE(enq_last_init)
{
	return scx_bpf_create_dsq(SHARED_DSQ, -1);
}

void SCHED_OP(enq_last_exit, struct scx_exit_info *info)
{
	CHECK(last > 0);
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(enq_last_ops,
	  .enqueue = (void *)enq_last_enqueue,
	  .dispatch = (void *)enq_last_dispatch,
	  .init = (void *)enq_last_init,
	  .exit = (void *)enq_last_exit,
	  .flags = SCX_OPS_ENQ_LAST,
	  .timeout_ms = 1000,
	  .name = "enq_last");
