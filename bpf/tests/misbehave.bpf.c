// SPDX-License-Identifier: GPL-2.0-only
/* A scheduler that makes one mistake, chosen by `mistake`; for tests of the kernel's errors. */
#include "../include/schedlab.bpf.h"
#include "../include/placement.bpf.h"

#define SHARED_DSQ 0

enum mistake {
	NONE,
	LOSES_TASKS,
	NO_SUCH_QUEUE,
	INSERTS_TWICE,
	VTIME_IN_LOCAL,
	FORBIDDEN_CPU,
	BAD_CPU,
	OWN_ERROR,
	MIXES_ORDERS,
	ENDLESS,
	BAD_STORE,
	INIT_FAILS,
};

KNOB(u32, mistake, 0, number, 0, 20, "Which mistake to make; see enum mistake.");
KNOB(u64, after, 0, calls, 0, 1000000, "Enqueues before it is made.");

KNOB_FIXED(bool, unverified, 0, bool, 0, 1, "Keep mistakes that the verifier refuses; dead code otherwise.");

EXIT_RECORD(exit_record);

static u64 enqueued;
u64 *nowhere;

static bool due(void)
{
	return enqueued > after;
}

static volatile u32 counter;

s32 SCHED_OP(misbehave_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	if (mistake == BAD_CPU && due())
		return 100000;
	return prev_cpu;
}

void SCHED_OP(misbehave_enqueue, struct task_struct *p, u64 enq_flags)
{
	u64 local = KERNEL_CONST(scx_dsq_id_flags, SCX_DSQ_LOCAL);
	u64 dsq = SHARED_DSQ;
	u32 i;

	enqueued++;
	if (due()) {
		switch (mistake) {
		case LOSES_TASKS:
			return;
		case NO_SUCH_QUEUE:
			dsq = 77;
			break;
		case INSERTS_TWICE:
			dsq_insert(p, SHARED_DSQ, 1000000, enq_flags);
			break;
		case VTIME_IN_LOCAL:
			dsq_insert_vtime(p, local, 1000000, 5, enq_flags);
			return;
		case FORBIDDEN_CPU:
			dsq = KERNEL_CONST(scx_dsq_id_flags, SCX_DSQ_LOCAL_ON) | 1;
			break;
		case OWN_ERROR:
			SCHED_ERROR("task %d is not welcome", p->pid);
			break;
		case MIXES_ORDERS:
			dsq_insert_vtime(p, SHARED_DSQ, 1000000, 5, enq_flags);
			return;
		}
	}
	if (unverified && due() && mistake == ENDLESS)
		for (i = 0; i < 4000000000U; i++)
			counter++;
	if (unverified && due() && mistake == BAD_STORE)
		*(volatile u64 *)nowhere = 1;
	dsq_insert(p, dsq, 1000000, enq_flags);
	kick_idle_for(p, enq_flags);
}

void SCHED_OP(misbehave_dispatch, s32 cpu, struct task_struct *prev)
{
	dsq_move_to_local(SHARED_DSQ);
}

s32 SCHED_OP_SLEEPABLE(misbehave_init)
{
	if (mistake == INIT_FAILS)
		return -7;
	return scx_bpf_create_dsq(SHARED_DSQ, -1);
}

void SCHED_OP(misbehave_exit, struct scx_exit_info *info)
{
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(misbehave_ops,
	  .select_cpu = (void *)misbehave_select_cpu,
	  .enqueue = (void *)misbehave_enqueue,
	  .dispatch = (void *)misbehave_dispatch,
	  .init = (void *)misbehave_init,
	  .exit = (void *)misbehave_exit,
	  .timeout_ms = 1000,
	  .name = "misbehave");
