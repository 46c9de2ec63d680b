// SPDX-License-Identifier: GPL-2.0-only
/*
 * fifo: one queue for the whole machine, first come, first served.
 *
 * Rule: a task that becomes runnable joins the tail of one queue; a CPU without work takes the head. A task
 * whose slice is over joins the tail again. A task that wakes while a CPU idles runs there at once. Nice
 * values, sleeping and caches count for nothing.
 *
 * State kept: the queue. Tasks are ranked by the order in which they joined it.
 *
 * Good at: throughput of equal tasks; being understood; a baseline that every other rule must beat.
 * Fails at: latency beside tasks that use whole slices (a task that wakes waits for everybody before it),
 * weights, cache locality, and machines where one queue is contended.
 *
 * Source: the rule of SCHED_FIFO and of every first batch system; time slices as in CTSS (Corbato 1962).
 */
#include "../include/schedlab.bpf.h"
#include "../include/placement.bpf.h"

/* Any number that is not a CPU's local queue. */
#define SHARED_DSQ 0

KNOB(u64, slice_ns, 20000000, ns, 100000, 1000000000, "Longest time a task runs before another may.");

EXIT_RECORD(exit_record);

s32 SCHED_OP(fifo_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	bool is_idle = false;
	s32 cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &is_idle);

	if (is_idle)
		dsq_insert(p, KERNEL_CONST(scx_dsq_id_flags, SCX_DSQ_LOCAL), slice_ns, 0);
	return cpu;
}

void SCHED_OP(fifo_enqueue, struct task_struct *p, u64 enq_flags)
{
	dsq_insert(p, SHARED_DSQ, slice_ns, enq_flags);
	kick_idle_for(p, enq_flags);
}

void SCHED_OP(fifo_dispatch, s32 cpu, struct task_struct *prev)
{
	dsq_move_to_local(SHARED_DSQ);
}

s32 SCHED_OP_SLEEPABLE(fifo_init)
{
	return scx_bpf_create_dsq(SHARED_DSQ, -1);
}

void SCHED_OP(fifo_exit, struct scx_exit_info *info)
{
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(fifo_ops,
	  .select_cpu = (void *)fifo_select_cpu,
	  .enqueue = (void *)fifo_enqueue,
	  .dispatch = (void *)fifo_dispatch,
	  .init = (void *)fifo_init,
	  .exit = (void *)fifo_exit,
	  .name = "fifo");
