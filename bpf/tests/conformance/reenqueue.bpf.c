// SPDX-License-Identifier: GPL-2.0-only
/* Reenqueueing (since 7.0): tasks of a user queue or a local one come back to enqueue, marked. */
#include "../../include/conformance.bpf.h"

#define SHARED_DSQ 0

extern void scx_bpf_dsq_reenq(u64 dsq_id, u64 reenq_flags) __ksym __weak;
extern void scx_bpf_reenqueue_local___v2___compat(void) __ksym __weak;

KNOB_FIXED(bool, local, 0, bool, 0, 1, "Reenqueue the local queue instead of the shared one.");

static u64 asked, came_back;

s32 SCHED_OP(reenqueue_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	return prev_cpu;
}

void SCHED_OP(reenqueue_enqueue, struct task_struct *p, u64 enq_flags)
{
	if (enq_flags & ENQ(REENQ))
		COUNT(came_back);
	if (local && !(enq_flags & ENQ(REENQ))) {
		dsq_insert(p, DSQ_LOCAL, SLICE, enq_flags);
		return;
	}
	dsq_insert(p, SHARED_DSQ, SLICE, enq_flags);
	scx_bpf_kick_cpu(scx_bpf_task_cpu(p), KICK(IDLE));
}

void SCHED_OP(reenqueue_tick, struct task_struct *p)
{
	if (!under_test(p))
		return;
	COUNT(asked);
	if (local)
		scx_bpf_reenqueue_local___v2___compat();
	else
		scx_bpf_dsq_reenq(SHARED_DSQ, 0);
}

void SCHED_OP(reenqueue_dispatch, s32 cpu, struct task_struct *prev)
{
	dsq_move_to_local(SHARED_DSQ);
}

s32 SCHED_OP_SLEEPABLE(reenqueue_init)
{
	return scx_bpf_create_dsq(SHARED_DSQ, -1);
}

void SCHED_OP(reenqueue_exit, struct scx_exit_info *info)
{
	CHECK(asked > 0);
	CHECK(came_back > 0);
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(reenqueue_ops,
	  .select_cpu = (void *)reenqueue_select_cpu,
	  .enqueue = (void *)reenqueue_enqueue,
	  .tick = (void *)reenqueue_tick,
	  .dispatch = (void *)reenqueue_dispatch,
	  .init = (void *)reenqueue_init,
	  .exit = (void *)reenqueue_exit,
	  .timeout_ms = 1000,
	  .name = "reenqueue");
