// SPDX-License-Identifier: GPL-2.0-only
/* Each init_task has its exit_task and each enable its disable, whatever a task's policy. */
#include "../../include/conformance.bpf.h"

#ifndef COUNT_FLAGS
#define COUNT_FLAGS 0
#endif

static u64 initialised, exited, enabled, disabled;

s32 SCHED_OP_SLEEPABLE(init_enable_count_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	COUNT(initialised);
	return 0;
}

void SCHED_OP(init_enable_count_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	COUNT(exited);
}

void SCHED_OP(init_enable_count_enable, struct task_struct *p)
{
	COUNT(enabled);
}

void SCHED_OP(init_enable_count_disable, struct task_struct *p)
{
	COUNT(disabled);
}

void SCHED_OP(init_enable_count_exit, struct scx_exit_info *info)
{
	CHECK(initialised >= 4 && initialised == exited);
	CHECK(enabled == disabled);
	/* Under SWITCH_PARTIAL two of the tasks are of SCHED_EXT; one of them leaves and comes back. */
	CHECK(COUNT_FLAGS ? enabled == 3 : enabled >= 4);
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(init_enable_count_ops,
	  .init_task = (void *)init_enable_count_init_task,
	  .exit_task = (void *)init_enable_count_exit_task,
	  .enable = (void *)init_enable_count_enable,
	  .disable = (void *)init_enable_count_disable,
	  .exit = (void *)init_enable_count_exit,
	  .flags = COUNT_FLAGS,
	  .name = "init_enable_count");
