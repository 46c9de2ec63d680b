// SPDX-License-Identifier: GPL-2.0-only
/* Every task waits in the local queue of the CPU on which it was: nobody moves while this schedules. */
#include "../include/schedlab.bpf.h"

s32 SCHED_OP(stays_put_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	return prev_cpu;
}

void SCHED_OP(stays_put_enqueue, struct task_struct *p, u64 enq_flags)
{
	dsq_insert(p, KERNEL_CONST(scx_dsq_id_flags, SCX_DSQ_LOCAL), 20000000, enq_flags);
}

SCHED_OPS(stays_put_ops,
	  .select_cpu = (void *)stays_put_select_cpu,
	  .enqueue = (void *)stays_put_enqueue,
	  .name = "stays_put");
