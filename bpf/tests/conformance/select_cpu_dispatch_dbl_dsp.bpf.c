// SPDX-License-Identifier: GPL-2.0-only
/* Two insertions of one task in select_cpu end the scheduler. */
#include "../../include/conformance.bpf.h"

s32 SCHED_OP(select_cpu_dispatch_dbl_dsp_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	COUNT(checks);
	dsq_insert(p, DSQ_GLOBAL, SLICE, 0);
	dsq_insert(p, DSQ_GLOBAL, SLICE, 0);
	return prev_cpu;
}

void SCHED_OP(select_cpu_dispatch_dbl_dsp_exit, struct scx_exit_info *info)
{
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(select_cpu_dispatch_dbl_dsp_ops,
	  .select_cpu = (void *)select_cpu_dispatch_dbl_dsp_select_cpu,
	  .exit = (void *)select_cpu_dispatch_dbl_dsp_exit,
	  .timeout_ms = 1000,
	  .name = "dbl_dsp");
