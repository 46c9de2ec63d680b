// SPDX-License-Identifier: GPL-2.0-only
/* Direct dispatch by virtual time to a local queue ends the scheduler: the kernel's own queues are FIFO. */
#include "../../include/conformance.bpf.h"

s32 SCHED_OP(ddsp_vtimelocal_fail_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	s32 cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);

	if (cpu < 0)
		return prev_cpu;
	COUNT(checks);
	dsq_insert_vtime(p, DSQ_LOCAL, SLICE, 0, 0);
	return cpu;
}

void SCHED_OP(ddsp_vtimelocal_fail_exit, struct scx_exit_info *info)
{
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(ddsp_vtimelocal_fail_ops,
	  .select_cpu = (void *)ddsp_vtimelocal_fail_select_cpu,
	  .exit = (void *)ddsp_vtimelocal_fail_exit,
	  .timeout_ms = 1000,
	  .name = "ddsp_vtimelocal_fail");
