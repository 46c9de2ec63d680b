// SPDX-License-Identifier: GPL-2.0-only
/* Direct dispatch to a queue that does not exist ends the scheduler. */
#include "../../include/conformance.bpf.h"

s32 SCHED_OP(ddsp_bogus_dsq_fail_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	s32 cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);

	if (cpu < 0)
		return prev_cpu;
	COUNT(checks);
	dsq_insert(p, 0xcafef00d, SLICE, 0);
	return cpu;
}

void SCHED_OP(ddsp_bogus_dsq_fail_exit, struct scx_exit_info *info)
{
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(ddsp_bogus_dsq_fail_ops,
	  .select_cpu = (void *)ddsp_bogus_dsq_fail_select_cpu,
	  .exit = (void *)ddsp_bogus_dsq_fail_exit,
	  .timeout_ms = 1000,
	  .name = "ddsp_bogus_dsq_fail");
