// SPDX-License-Identifier: GPL-2.0-only
/* A scheduler that says it may sleep in a callback where nobody may; every kernel refuses it. */
#include "../include/schedlab.bpf.h"

void SCHED_OP_SLEEPABLE(sleeps_enqueue, struct task_struct *p, u64 enq_flags)
{
	dsq_insert(p, KERNEL_CONST(scx_dsq_id_flags, SCX_DSQ_GLOBAL), 1000000, enq_flags);
}

SCHED_OPS(sleeps_ops,
	  .enqueue = (void *)sleeps_enqueue,
	  .name = "sleeps");
