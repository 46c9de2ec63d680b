// SPDX-License-Identifier: GPL-2.0-only
/* A scheduler whose functions have 512 bytes of stack, and 528 as their frames are rounded up: no kernel loads it. */
#include "../include/schedlab.bpf.h"
#include "../include/use_stack.bpf.h"

static __noinline int deepest(void)
{
	USE_STACK(8);
	return 0;
}

static __noinline int deep(void)
{
	USE_STACK(248);
	return deepest();
}

void SCHED_OP(stack_chain_enqueue, struct task_struct *p, u64 enq_flags)
{
	USE_STACK(256);
	deep();
	dsq_insert(p, KERNEL_CONST(scx_dsq_id_flags, SCX_DSQ_GLOBAL), 20000000, enq_flags);
}

SCHED_OPS(stack_chain_ops,
	  .enqueue = (void *)stack_chain_enqueue,
	  .name = "stack_chain");
