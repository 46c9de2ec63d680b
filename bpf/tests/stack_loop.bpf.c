// SPDX-License-Identifier: GPL-2.0-only
/* A scheduler whose callback has no room beside the function that makes the loop: no kernel loads it. */
#include "../include/schedlab.bpf.h"
#include "../include/use_stack.bpf.h"

static int each(u32 index, void *context)
{
	USE_STACK(264);
	return 0;
}

void SCHED_OP(stack_loop_enqueue, struct task_struct *p, u64 enq_flags)
{
	USE_STACK(256);
	bpf_loop(1, each, NULL, 0);
	dsq_insert(p, KERNEL_CONST(scx_dsq_id_flags, SCX_DSQ_GLOBAL), 20000000, enq_flags);
}

SCHED_OPS(stack_loop_ops,
	  .enqueue = (void *)stack_loop_enqueue,
	  .name = "stack_loop");
