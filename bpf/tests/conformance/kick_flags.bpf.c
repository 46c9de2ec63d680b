// SPDX-License-Identifier: GPL-2.0-only
/* SCX_KICK_PREEMPT ends a slice from afar; SCX_KICK_IDLE leaves a busy CPU alone. */
#include "../../include/conformance.bpf.h"

static u64 kicked, ended_early;

void SCHED_OP(kick_flags_enqueue, struct task_struct *p, u64 enq_flags)
{
	s32 cpu = scx_bpf_task_cpu(p);

	if (is_task(p, 'u')) {
		dsq_insert(p, DSQ_LOCAL, SLICE, enq_flags);
		scx_bpf_kick_cpu(cpu, KICK(IDLE));
		scx_bpf_kick_cpu(cpu, KICK(PREEMPT));
		COUNT(kicked);
		return;
	}
	dsq_insert(p, DSQ_LOCAL, is_task(p, 'h') ? 1000000000 : SLICE, enq_flags);
}

void SCHED_OP(kick_flags_stopping, struct task_struct *p, bool runnable)
{
	if (is_task(p, 'h') && runnable && !p->scx.slice)
		COUNT(ended_early);
}

void SCHED_OP(kick_flags_exit, struct scx_exit_info *info)
{
	CHECK(kicked > 5);
	CHECK(ended_early > 5);
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(kick_flags_ops,
	  .enqueue = (void *)kick_flags_enqueue,
	  .stopping = (void *)kick_flags_stopping,
	  .exit = (void *)kick_flags_exit,
	  .name = "kick_flags");
