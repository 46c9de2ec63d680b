// SPDX-License-Identifier: GPL-2.0-only
/* scx_bpf_exit() from each of its callbacks ends the scheduler with its own code. */
#include "../../include/conformance.bpf.h"

#define SHARED_DSQ 0

enum point { IN_SELECT_CPU, IN_ENQUEUE, IN_DISPATCH, IN_ENABLE, IN_INIT_TASK, IN_INIT };

KNOB_FIXED(u32, exit_point, 0, number, 0, 5, "Where to exit; see enum point.");

#define LEAVE_AT(point)                                                                            \
	({                                                                                         \
		if (exit_point == (point))                                                         \
			SCHED_EXIT(exit_point, "%d", exit_point);                                  \
	})

s32 SCHED_OP(exit_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	bool found;

	LEAVE_AT(IN_SELECT_CPU);
	return scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &found);
}

void SCHED_OP(exit_enqueue, struct task_struct *p, u64 enq_flags)
{
	LEAVE_AT(IN_ENQUEUE);
	dsq_insert(p, SHARED_DSQ, SLICE, enq_flags);
}

void SCHED_OP(exit_dispatch, s32 cpu, struct task_struct *prev)
{
	LEAVE_AT(IN_DISPATCH);
	dsq_move_to_local(SHARED_DSQ);
}

void SCHED_OP(exit_enable, struct task_struct *p)
{
	LEAVE_AT(IN_ENABLE);
}

s32 SCHED_OP_SLEEPABLE(exit_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	LEAVE_AT(IN_INIT_TASK);
	return 0;
}

s32 SCHED_OP_SLEEPABLE(exit_init)
{
	LEAVE_AT(IN_INIT);
	return scx_bpf_create_dsq(SHARED_DSQ, -1);
}

void SCHED_OP(exit_exit, struct scx_exit_info *info)
{
	CHECK(info->exit_code == exit_point);
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(exit_ops,
	  .select_cpu = (void *)exit_select_cpu,
	  .enqueue = (void *)exit_enqueue,
	  .dispatch = (void *)exit_dispatch,
	  .enable = (void *)exit_enable,
	  .init_task = (void *)exit_init_task,
	  .init = (void *)exit_init,
	  .exit = (void *)exit_exit,
	  .timeout_ms = 1000,
	  .name = "exit");
