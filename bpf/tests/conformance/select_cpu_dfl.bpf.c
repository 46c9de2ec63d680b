// SPDX-License-Identifier: GPL-2.0-only
/* Without a select_cpu callback, a task that found an idle CPU goes there and past enqueue. */
#include "../../include/conformance.bpf.h"

static u64 enqueued;

void SCHED_OP(select_cpu_dfl_enqueue, struct task_struct *p, u64 enq_flags)
{
	const struct cpumask *idle = scx_bpf_get_idle_cpumask();

	if (under_test(p)) {
		COUNT(enqueued);
		CHECK(!bpf_cpumask_test_cpu(scx_bpf_task_cpu(p), idle));
	}
	scx_bpf_put_idle_cpumask(idle);
	dsq_insert(p, DSQ_GLOBAL, SLICE, enq_flags);
}

void SCHED_OP(select_cpu_dfl_exit, struct scx_exit_info *info)
{
	CHECK(enqueued > 0);
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(select_cpu_dfl_ops,
	  .enqueue = (void *)select_cpu_dfl_enqueue,
	  .exit = (void *)select_cpu_dfl_exit,
	  .name = "select_cpu_dfl");
