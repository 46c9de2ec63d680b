// SPDX-License-Identifier: GPL-2.0-only
/* SCX_KICK_PREEMPT and SCX_ENQ_PREEMPT end the slice of the task that runs. */
#include "../../include/conformance.bpf.h"

static u64 preempted, urgent_ran;

void SCHED_OP(kick_preempt_enqueue, struct task_struct *p, u64 enq_flags)
{
	if (is_task(p, 'u')) {
		dsq_insert(p, DSQ_LOCAL, SLICE, enq_flags | ENQ(PREEMPT));
		return;
	}
	dsq_insert(p, DSQ_LOCAL, is_task(p, 'h') ? 1000000000 : SLICE, enq_flags);
}

void SCHED_OP(kick_preempt_stopping, struct task_struct *p, bool runnable)
{
	/* Put before its second is over: somebody ended its slice. */
	if (is_task(p, 'h') && runnable && !p->scx.slice)
		COUNT(preempted);
}

void SCHED_OP(kick_preempt_running, struct task_struct *p)
{
	if (is_task(p, 'u'))
		COUNT(urgent_ran);
}

void SCHED_OP(kick_preempt_exit, struct scx_exit_info *info)
{
	CHECK(urgent_ran > 5);
	CHECK(preempted > 5);
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(kick_preempt_ops,
	  .enqueue = (void *)kick_preempt_enqueue,
	  .stopping = (void *)kick_preempt_stopping,
	  .running = (void *)kick_preempt_running,
	  .exit = (void *)kick_preempt_exit,
	  .name = "kick_preempt");
