// SPDX-License-Identifier: GPL-2.0-only
/* Errs, and has little room for the debug dump. */
#include "../include/schedlab.bpf.h"

void SCHED_OP(dump_short_enqueue, struct task_struct *p, u64 enq_flags)
{
	SCHED_ERROR("no");
}

SCHED_OPS(dump_short_ops,
	  .enqueue = (void *)dump_short_enqueue,
	  .exit_dump_len = 200,
	  .name = "dump_short");
