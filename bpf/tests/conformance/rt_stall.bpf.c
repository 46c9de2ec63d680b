// SPDX-License-Identifier: GPL-2.0-only
/* Beside a real-time task that never stops, a task of the class gets the share of its server (since 7.0). */
#include "../../include/conformance.bpf.h"

static u64 since, ran_ns;

void SCHED_OP(rt_stall_running, struct task_struct *p)
{
	if (is_task(p, 'e'))
		since = bpf_ktime_get_ns();
}

void SCHED_OP(rt_stall_stopping, struct task_struct *p, bool runnable)
{
	if (is_task(p, 'e') && since)
		ran_ns += bpf_ktime_get_ns() - since;
}

void SCHED_OP(rt_stall_exit, struct scx_exit_info *info)
{
	/* 50 ms of each of three seconds; the first second counts from where it began to starve. */
	CHECK(ran_ns >= 80000000);
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(rt_stall_ops,
	  .running = (void *)rt_stall_running,
	  .stopping = (void *)rt_stall_stopping,
	  .exit = (void *)rt_stall_exit,
	  .name = "rt_stall");
