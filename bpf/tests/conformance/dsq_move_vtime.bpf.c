// SPDX-License-Identifier: GPL-2.0-only
/* Tasks move by virtual time while a queue is iterated backwards; the queue they come to is in order. */
#include "../../include/conformance.bpf.h"

#define FROM_DSQ 0
#define TO_DSQ 1

extern void scx_bpf_dsq_move_set_vtime(struct bpf_iter_scx_dsq *it, u64 vtime) __ksym;
extern bool scx_bpf_dsq_move_vtime(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq_id, u64 enq_flags) __ksym;

#define REVERSE (1ULL << 16)

static u64 moved, looked;

void SCHED_OP(dsq_move_vtime_enqueue, struct task_struct *p, u64 enq_flags)
{
	dsq_insert(p, FROM_DSQ, SLICE, enq_flags);
	scx_bpf_kick_cpu(scx_bpf_task_cpu(p), KICK(IDLE));
}

void SCHED_OP(dsq_move_vtime_dispatch, s32 cpu, struct task_struct *prev)
{
	struct task_struct *p;
	u64 before = 0;

	bpf_for_each(scx_dsq, p, FROM_DSQ, REVERSE) {
		/* Even pids first, then odd ones: whatever the order they come in. */
		scx_bpf_dsq_move_set_vtime(BPF_FOR_EACH_ITER, (p->pid & 1) * 1000 + 1);
		if (scx_bpf_dsq_move_vtime(BPF_FOR_EACH_ITER, p, TO_DSQ, 0))
			COUNT(moved);
	}
	bpf_for_each(scx_dsq, p, TO_DSQ, 0) {
		CHECK(p->scx.dsq_vtime >= before);
		before = p->scx.dsq_vtime;
		COUNT(looked);
	}
	dsq_move_to_local(TO_DSQ);
}

s32 SCHED_OP_SLEEPABLE(dsq_move_vtime_init)
{
	return scx_bpf_create_dsq(FROM_DSQ, -1) ?: scx_bpf_create_dsq(TO_DSQ, -1);
}

void SCHED_OP(dsq_move_vtime_exit, struct scx_exit_info *info)
{
	CHECK(moved > 0);
	CHECK(looked > 0);
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(dsq_move_vtime_ops,
	  .enqueue = (void *)dsq_move_vtime_enqueue,
	  .dispatch = (void *)dsq_move_vtime_dispatch,
	  .init = (void *)dsq_move_vtime_init,
	  .exit = (void *)dsq_move_vtime_exit,
	  .timeout_ms = 1000,
	  .name = "dsq_move_vtime");
