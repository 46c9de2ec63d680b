// SPDX-License-Identifier: GPL-2.0-only
/* A scheduler that stores past the top of its frame through a pointer into it: no kernel loads it. */
#include "../include/schedlab.bpf.h"

static __noinline int past(void)
{
	asm volatile("r1 = r10\n"
		     "r1 += -16\n"
		     "*(u64 *)(r1 + 16) = 0\n" ::
			     : "r1", "memory");
	return 0;
}

void SCHED_OP(stack_pointer_enqueue, struct task_struct *p, u64 enq_flags)
{
	past();
	dsq_insert(p, KERNEL_CONST(scx_dsq_id_flags, SCX_DSQ_GLOBAL), 20000000, enq_flags);
}

SCHED_OPS(stack_pointer_ops,
	  .enqueue = (void *)stack_pointer_enqueue,
	  .name = "stack_pointer");
