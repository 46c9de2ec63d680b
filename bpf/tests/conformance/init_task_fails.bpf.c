// SPDX-License-Identifier: GPL-2.0-only
/* A scheduler that refuses a task that exists is not enabled; a fork that it refuses fails. */
#include "../../include/conformance.bpf.h"

s32 SCHED_OP_SLEEPABLE(init_task_fails_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	COUNT(checks);
	return -EINVAL;
}

void SCHED_OP(init_task_fails_exit, struct scx_exit_info *info)
{
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(init_task_fails_ops,
	  .init_task = (void *)init_task_fails_init_task,
	  .exit = (void *)init_task_fails_exit,
	  .name = "init_task_fails");
