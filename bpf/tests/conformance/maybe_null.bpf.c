// SPDX-License-Identifier: GPL-2.0-only
/*
 * The task before that dispatch is told of may be null (after idleness), as is whom a task yields to: the verifier wants
 * both to be asked for. Tasks go to the global queue, as there is no enqueue.
 */
#include "../../include/conformance.bpf.h"

static u64 with_task, yields;

void SCHED_OP(maybe_null_dispatch, s32 cpu, struct task_struct *prev)
{
	if (prev) {
		CHECK(prev->pid > 0);
		COUNT(with_task);
	}
}

bool SCHED_OP(maybe_null_yield, struct task_struct *from, struct task_struct *to)
{
	CHECK(!to);
	if (under_test(from))
		COUNT(yields);
	return false;
}

void SCHED_OP(maybe_null_exit, struct scx_exit_info *info)
{
	CHECK(with_task > 0);
	CHECK(yields > 0);
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(maybe_null_ops,
	  .dispatch = (void *)maybe_null_dispatch,
	  .yield = (void *)maybe_null_yield,
	  .exit = (void *)maybe_null_exit,
	  .timeout_ms = 1000,
	  .name = "maybe_null");
