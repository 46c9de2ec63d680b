// SPDX-License-Identifier: GPL-2.0-only
/* A task with a finite slice gets ticks, also after one with an infinite slice and after idleness. */
#include "../../include/conformance.bpf.h"

#define FINITE 1000000ULL
#define INFINITE (~0ULL)

static u64 infinite_runs, finite_runs, finite_ticks;

s32 SCHED_OP(nohz_tick_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	return prev_cpu;
}

void SCHED_OP(nohz_tick_enqueue, struct task_struct *p, u64 enq_flags)
{
	dsq_insert(p, DSQ_GLOBAL, is_task(p, 'i') ? INFINITE : FINITE, enq_flags);
}

void SCHED_OP(nohz_tick_running, struct task_struct *p)
{
	if (is_task(p, 'i'))
		COUNT(infinite_runs);
	if (is_task(p, 'f'))
		COUNT(finite_runs);
}

void SCHED_OP(nohz_tick_tick, struct task_struct *p)
{
	if (is_task(p, 'f'))
		COUNT(finite_ticks);
}

void SCHED_OP(nohz_tick_exit, struct scx_exit_info *info)
{
	CHECK(infinite_runs > 0);
	CHECK(finite_runs > 0);
	CHECK(finite_ticks >= 3);
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(nohz_tick_ops,
	  .select_cpu = (void *)nohz_tick_select_cpu,
	  .enqueue = (void *)nohz_tick_enqueue,
	  .running = (void *)nohz_tick_running,
	  .tick = (void *)nohz_tick_tick,
	  .exit = (void *)nohz_tick_exit,
	  .timeout_ms = 2000,
	  .name = "nohz_tick");
