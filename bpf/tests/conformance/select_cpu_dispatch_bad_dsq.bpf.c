// SPDX-License-Identifier: GPL-2.0-only
/* An insertion in select_cpu into a queue that does not exist ends the scheduler. */
#include "../../include/conformance.bpf.h"

s32 SCHED_OP(select_cpu_dispatch_bad_dsq_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	COUNT(checks);
	dsq_insert(p, 0xcafef00d, SLICE, 0);
	return prev_cpu;
}

void SCHED_OP(select_cpu_dispatch_bad_dsq_exit, struct scx_exit_info *info)
{
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(select_cpu_dispatch_bad_dsq_ops,
	  .select_cpu = (void *)select_cpu_dispatch_bad_dsq_select_cpu,
	  .exit = (void *)select_cpu_dispatch_bad_dsq_exit,
	  .timeout_ms = 1000,
	  .name = "bad_dsq");
