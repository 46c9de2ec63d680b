// SPDX-License-Identifier: GPL-2.0-only
/*
 * dispatch is called again while it inserts tasks that cannot be used, but only so often in one pass: insertions of a
 * task that sleeps are dropped, and the CPU must come out of it.
 */
#include "../../include/conformance.bpf.h"

#define WAITING_DSQ 0
#define WASTED_MAX 100

static s32 sleeper;
static u64 calls, wasted;

void SCHED_OP(dispatch_loops_enqueue, struct task_struct *p, u64 enq_flags)
{
	dsq_insert(p, WAITING_DSQ, SLICE, enq_flags);
	scx_bpf_kick_cpu(scx_bpf_task_cpu(p), KICK(IDLE));
}

void SCHED_OP(dispatch_loops_dispatch, s32 cpu, struct task_struct *prev)
{
	struct task_struct *p;

	COUNT(calls);
	if (dsq_move_to_local(WAITING_DSQ) || !sleeper || wasted >= WASTED_MAX)
		return;
	p = bpf_task_from_pid(sleeper);
	if (!p)
		return;
	COUNT(wasted);
	dsq_insert(p, DSQ_GLOBAL, SLICE, 0);
	bpf_task_release(p);
}

void SCHED_OP(dispatch_loops_quiescent, struct task_struct *p, u64 deq_flags)
{
	if (is_task(p, 's') && (deq_flags & KERNEL_CONST(scx_deq_flags, SCX_DEQ_SLEEP)))
		sleeper = p->pid;
}

void SCHED_OP(dispatch_loops_runnable, struct task_struct *p, u64 enq_flags)
{
	if (p->pid == sleeper)
		sleeper = 0;
}

s32 SCHED_OP_SLEEPABLE(dispatch_loops_init)
{
	return scx_bpf_create_dsq(WAITING_DSQ, -1);
}

void SCHED_OP(dispatch_loops_exit, struct scx_exit_info *info)
{
	CHECK(wasted >= WASTED_MAX);
	CHECK(calls > wasted);
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(dispatch_loops_ops,
	  .enqueue = (void *)dispatch_loops_enqueue,
	  .dispatch = (void *)dispatch_loops_dispatch,
	  .quiescent = (void *)dispatch_loops_quiescent,
	  .runnable = (void *)dispatch_loops_runnable,
	  .init = (void *)dispatch_loops_init,
	  .exit = (void *)dispatch_loops_exit,
	  .timeout_ms = 1000,
	  .name = "dispatch_loops");
