// SPDX-License-Identifier: GPL-2.0-only
/* Tasks move from the middle of a queue to another one while it is iterated, with a new slice. */
#include "../../include/conformance.bpf.h"

#define FROM_DSQ 0
#define TO_DSQ 1
#define OWN_SLICE 3000000ULL

extern void scx_bpf_dsq_move_set_slice(struct bpf_iter_scx_dsq *it, u64 slice) __ksym;
extern bool scx_bpf_dsq_move(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq_id, u64 enq_flags) __ksym;

static u64 moved, taken, shortened;

void SCHED_OP(dsq_move_enqueue, struct task_struct *p, u64 enq_flags)
{
	dsq_insert(p, FROM_DSQ, SLICE, enq_flags);
	scx_bpf_kick_cpu(scx_bpf_task_cpu(p), KICK(IDLE));
}

void SCHED_OP(dsq_move_dispatch, s32 cpu, struct task_struct *prev)
{
	struct task_struct *p;

	bpf_for_each(scx_dsq, p, FROM_DSQ, 0) {
		if (!under_test(p))
			continue;
		scx_bpf_dsq_move_set_slice(BPF_FOR_EACH_ITER, OWN_SLICE);
		if (scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, TO_DSQ, 0))
			COUNT(moved);
	}
	if (dsq_move_to_local(TO_DSQ))
		COUNT(taken);
	else
		dsq_move_to_local(FROM_DSQ);
}

void SCHED_OP(dsq_move_running, struct task_struct *p)
{
	if (under_test(p))
		CHECK(p->scx.slice <= SLICE);
	if (under_test(p) && p->scx.slice <= OWN_SLICE)
		COUNT(shortened);
}

s32 SCHED_OP_SLEEPABLE(dsq_move_init)
{
	return scx_bpf_create_dsq(FROM_DSQ, -1) ?: scx_bpf_create_dsq(TO_DSQ, -1);
}

void SCHED_OP(dsq_move_exit, struct scx_exit_info *info)
{
	CHECK(moved > 0);
	CHECK(taken > 0);
	CHECK(shortened > 0);
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(dsq_move_ops,
	  .enqueue = (void *)dsq_move_enqueue,
	  .dispatch = (void *)dsq_move_dispatch,
	  .running = (void *)dsq_move_running,
	  .init = (void *)dsq_move_init,
	  .exit = (void *)dsq_move_exit,
	  .timeout_ms = 1000,
	  .name = "dsq_move");
