// SPDX-License-Identifier: GPL-2.0-only
/*
 * A scheduler that forgets: what is enqueued is put nowhere, so that nothing ever runs again. The kernel's watchdog
 * must end it with SCX_EXIT_ERROR_STALL and give all tasks back to its own class.
 */
#include "../include/schedlab.bpf.h"

EXIT_RECORD(exit_record);

void SCHED_OP(stall_enqueue, struct task_struct *p, u64 enq_flags)
{
}

void SCHED_OP(stall_exit, struct scx_exit_info *info)
{
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(stall_ops,
	  .enqueue = (void *)stall_enqueue,
	  .exit = (void *)stall_exit,
	  .timeout_ms = 1000,
	  .name = "stall");
