// SPDX-License-Identifier: GPL-2.0-only
/* The default idle selection may be asked from enqueue (since 6.16). */
#include "../../include/conformance.bpf.h"

static u64 found_idle, forks;

s32 SCHED_OP(enq_select_cpu_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	u64 fork = KERNEL_CONST(scx_wake_flags, SCX_WAKE_FORK), wake = KERNEL_CONST(scx_wake_flags, SCX_WAKE_TTWU);

	CHECK(!(wake_flags & fork) != !(wake_flags & wake));
	if (wake_flags & fork)
		COUNT(forks);
	return prev_cpu;
}

void SCHED_OP(enq_select_cpu_enqueue, struct task_struct *p, u64 enq_flags)
{
	bool found = false;
	s32 cpu = scx_bpf_select_cpu_dfl(p, scx_bpf_task_cpu(p), 0, &found);

	if (!found) {
		dsq_insert(p, DSQ_GLOBAL, SLICE, enq_flags);
		return;
	}
	COUNT(found_idle);
	dsq_insert(p, DSQ_LOCAL_ON | cpu, SLICE, enq_flags);
}

void SCHED_OP(enq_select_cpu_exit, struct scx_exit_info *info)
{
	CHECK(info->kind != SCX_EXIT_UNREG || found_idle > 0);
	CHECK(forks > 0);
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(enq_select_cpu_ops,
	  .select_cpu = (void *)enq_select_cpu_select_cpu,
	  .enqueue = (void *)enq_select_cpu_enqueue,
	  .exit = (void *)enq_select_cpu_exit,
	  .timeout_ms = 1000,
	  .name = "enq_select_cpu");
