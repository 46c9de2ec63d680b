// SPDX-License-Identifier: GPL-2.0-only
/* A kick of a scheduler's own CPU from running() comes after the switch, whoever ran before: it ends the slice of who comes. */
#include "../../include/conformance.bpf.h"

#define CPUS 64
#define MS 1000000ULL

static u64 kicks, ended, lost;
/* When each CPU last kicked itself, and whether who runs there is to be put off. */
static u64 kicked_at[CPUS];
static u32 kicked[CPUS];

void SCHED_OP(kick_running_enqueue, struct task_struct *p, u64 enq_flags)
{
	dsq_insert(p, DSQ_GLOBAL, is_task(p, 'h') ? 1000 * MS : SLICE, enq_flags);
}

void SCHED_OP(kick_running_running, struct task_struct *p)
{
	u32 cpu = scx_bpf_task_cpu(p);
	u64 now = now_ns();

	/* Once a millisecond, so that there is time for work. */
	if (cpu >= CPUS || !is_task(p, 'h') || now - kicked_at[cpu] < MS)
		return;
	kicked_at[cpu] = now;
	kicked[cpu] = 1;
	COUNT(kicks);
	scx_bpf_kick_cpu(cpu, KICK(PREEMPT));
}

void SCHED_OP(kick_running_stopping, struct task_struct *p, bool runnable)
{
	u32 cpu = scx_bpf_task_cpu(p);

	if (cpu >= CPUS || !kicked[cpu])
		return;
	kicked[cpu] = 0;
	/* A class above may come before the interrupt that carries the kick out. */
	if (p->scx.slice)
		COUNT(lost);
	COUNT(ended);
}

void SCHED_OP(kick_running_exit, struct scx_exit_info *info)
{
	/* The real-time task came and went some sixty times, each time before a hog. */
	CHECK(kicks > 20);
	CHECK(ended + CPUS >= kicks);
	CHECK(4 * lost < ended);
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(kick_running_ops,
	  .enqueue = (void *)kick_running_enqueue,
	  .running = (void *)kick_running_running,
	  .stopping = (void *)kick_running_stopping,
	  .exit = (void *)kick_running_exit,
	  .name = "kick_running");
