// SPDX-License-Identifier: GPL-2.0-only
/*
 * Comes while tasks exist and lets none of them have SCHED_EXT: init_task() of a task that was there sets
 * scx.disallow. Counts who was initialised how, and who was enabled all the same.
 */
#include "../include/schedlab.bpf.h"

u64 initialised;
u64 forked;
u64 enabled;
u64 exited;

s32 SCHED_OP_SLEEPABLE(disallow_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	if (args->fork) {
		forked++;
	} else {
		initialised++;
		p->scx.disallow = true;
	}
	return 0;
}

void SCHED_OP(disallow_enable, struct task_struct *p)
{
	enabled++;
}

void SCHED_OP(disallow_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	exited++;
}

SCHED_OPS(disallow_ops,
	  .init_task = (void *)disallow_init_task,
	  .enable = (void *)disallow_enable,
	  .exit_task = (void *)disallow_exit_task,
	  .flags = SCX_OPS_SWITCH_PARTIAL,
	  .name = "disallow");
