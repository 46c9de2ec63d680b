// SPDX-License-Identifier: GPL-2.0-only
/* scx_bpf_dsq_peek() shows the head of a user queue without taking it, and nothing when it is empty. */
#include "../../include/conformance.bpf.h"

#define TEST_DSQ 1234
#define SHARED_DSQ 1235

static u32 busy;
static s32 inside;
static u64 seen;

void SCHED_OP(peek_dsq_enqueue, struct task_struct *p, u64 enq_flags)
{
	if (under_test(p) && !__sync_val_compare_and_swap(&busy, 0, 1)) {
		CHECK(!dsq_peek(TEST_DSQ));
		inside = p->pid;
		dsq_insert(p, TEST_DSQ, SLICE, enq_flags);
	} else {
		dsq_insert(p, SHARED_DSQ, SLICE, enq_flags);
	}
	scx_bpf_kick_cpu(scx_bpf_task_cpu(p), KICK(IDLE));
}

void SCHED_OP(peek_dsq_dispatch, s32 cpu, struct task_struct *prev)
{
	struct task_struct *p = dsq_peek(TEST_DSQ);

	if (p) {
		CHECK(p->pid == inside);
		COUNT(seen);
		dsq_move_to_local(TEST_DSQ);
	} else {
		dsq_move_to_local(SHARED_DSQ);
	}
}

void SCHED_OP(peek_dsq_running, struct task_struct *p)
{
	if (busy && p->pid == inside) {
		inside = -1;
		busy = 0;
	}
}

s32 SCHED_OP_SLEEPABLE(peek_dsq_init)
{
	return scx_bpf_create_dsq(TEST_DSQ, -1) ?: scx_bpf_create_dsq(SHARED_DSQ, -1);
}

void SCHED_OP(peek_dsq_exit, struct scx_exit_info *info)
{
	CHECK(seen > 0);
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(peek_dsq_ops,
	  .enqueue = (void *)peek_dsq_enqueue,
	  .dispatch = (void *)peek_dsq_dispatch,
	  .running = (void *)peek_dsq_running,
	  .init = (void *)peek_dsq_init,
	  .exit = (void *)peek_dsq_exit,
	  .name = "peek_dsq");
