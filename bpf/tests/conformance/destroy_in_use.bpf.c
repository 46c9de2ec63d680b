// SPDX-License-Identifier: GPL-2.0-only
/* A queue that holds tasks cannot be destroyed. */
#include "../../include/conformance.bpf.h"

#define SHARED_DSQ 0

void SCHED_OP(destroy_in_use_enqueue, struct task_struct *p, u64 enq_flags)
{
	dsq_insert(p, SHARED_DSQ, SLICE, enq_flags);
	scx_bpf_kick_cpu(scx_bpf_task_cpu(p), KICK(IDLE));
}

void SCHED_OP(destroy_in_use_dispatch, s32 cpu, struct task_struct *prev)
{
	if (scx_bpf_dsq_nr_queued(SHARED_DSQ) > 1) {
		COUNT(checks);
		scx_bpf_destroy_dsq(SHARED_DSQ);
	}
	dsq_move_to_local(SHARED_DSQ);
}

s32 SCHED_OP_SLEEPABLE(destroy_in_use_init)
{
	return scx_bpf_create_dsq(SHARED_DSQ, -1);
}

void SCHED_OP(destroy_in_use_exit, struct scx_exit_info *info)
{
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(destroy_in_use_ops,
	  .enqueue = (void *)destroy_in_use_enqueue,
	  .dispatch = (void *)destroy_in_use_dispatch,
	  .init = (void *)destroy_in_use_init,
	  .exit = (void *)destroy_in_use_exit,
	  .timeout_ms = 1000,
	  .name = "destroy_in_use");
