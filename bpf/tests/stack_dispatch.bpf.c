// SPDX-License-Identifier: GPL-2.0-only
/*
 * A scheduler whose dispatch() uses more stack than there is for its functions together: kernels load it that give each
 * of them memory of its own, because sub-schedulers may enter it again.
 */
#include "../include/schedlab.bpf.h"
#include "../include/use_stack.bpf.h"

static __noinline int deep(void)
{
	USE_STACK(400);
	return 0;
}

void SCHED_OP(stack_dispatch_dispatch, s32 cpu, struct task_struct *prev)
{
	USE_STACK(400);
	deep();
}

SCHED_OPS(stack_dispatch_ops,
	  .dispatch = (void *)stack_dispatch_dispatch,
	  .name = "stack_dispatch");
