// SPDX-License-Identifier: GPL-2.0-only
/*
 * SCX_ENQ_IMMED (since 7.1): a task that cannot run at once on its CPU comes back to enqueue. Under
 * SCX_OPS_ALWAYS_ENQ_IMMED every local insertion is immediate (ALWAYS_IMMED, see always_immed.bpf.c).
 */
#include "../../include/conformance.bpf.h"

#define SHARED_DSQ 0

#ifdef ALWAYS_IMMED
#define ENQ_IMMED 0
#define IMMED_FLAGS (1ULL << 7)
#else
#define ENQ_IMMED (1ULL << 33)
#define IMMED_FLAGS 0
#endif

static u64 immediate, came_back;

s32 SCHED_OP(immed_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	return prev_cpu;
}

void SCHED_OP(immed_enqueue, struct task_struct *p, u64 enq_flags)
{
	if (enq_flags & ENQ(REENQ)) {
		COUNT(came_back);
		dsq_insert(p, SHARED_DSQ, SLICE, enq_flags);
		scx_bpf_kick_cpu(scx_bpf_task_cpu(p), KICK(IDLE));
		return;
	}
	COUNT(immediate);
	dsq_insert(p, DSQ_LOCAL, SLICE, enq_flags | ENQ_IMMED);
}

void SCHED_OP(immed_dispatch, s32 cpu, struct task_struct *prev)
{
	dsq_move_to_local(SHARED_DSQ);
}

s32 SCHED_OP_SLEEPABLE(immed_init)
{
	return scx_bpf_create_dsq(SHARED_DSQ, -1);
}

void SCHED_OP(immed_exit, struct scx_exit_info *info)
{
	struct scx_event_stats events = {};

	CHECK(immediate > 0);
	CHECK(came_back > 0);
	scx_bpf_events(&events, sizeof(events));
	CHECK(events.SCX_EV_REENQ_IMMED > 0);
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(immed_ops,
	  .select_cpu = (void *)immed_select_cpu,
	  .enqueue = (void *)immed_enqueue,
	  .dispatch = (void *)immed_dispatch,
	  .init = (void *)immed_init,
	  .exit = (void *)immed_exit,
	  .timeout_ms = 1000,
	  .flags = IMMED_FLAGS,
	  .name = "immed");
