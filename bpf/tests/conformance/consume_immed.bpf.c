// SPDX-License-Identifier: GPL-2.0-only
/*
 * SCX_ENQ_IMMED by scx_bpf_dsq_move_to_local() (since 7.1): a second task that a CPU takes from a shared queue cannot
 * run at once and comes back to enqueue, the first does not: the queue is looked through after the switch to it.
 */
#include "../../include/conformance.bpf.h"

#define SHARED_DSQ 0
#define ENQ_IMMED (1ULL << 33)

#define CPUS_MAX 64

static u64 came_back;
/* By CPU: a dispatch took a task that does not run yet, and the first that came back since. */
static struct {
	bool taken;
	pid_t back;
} cpus[CPUS_MAX];

static __always_inline bool take(void)
{
	if (!bpf_ksym_exists(scx_bpf_dsq_move_to_local___v2___compat))
		return false;
	return scx_bpf_dsq_move_to_local___v2___compat(SHARED_DSQ, ENQ_IMMED);
}

s32 SCHED_OP(consume_immed_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	return prev_cpu;
}

void SCHED_OP(consume_immed_enqueue, struct task_struct *p, u64 enq_flags)
{
	u32 cpu = bpf_get_smp_processor_id() % CPUS_MAX;

	if (enq_flags & ENQ(REENQ)) {
		COUNT(came_back);
		if (cpus[cpu].taken && !cpus[cpu].back)
			cpus[cpu].back = p->pid;
	}
	dsq_insert(p, SHARED_DSQ, SLICE, enq_flags);
	scx_bpf_kick_cpu(scx_bpf_task_cpu(p), KICK(IDLE));
}

void SCHED_OP(consume_immed_dispatch, s32 cpu, struct task_struct *prev)
{
	u32 at = (u32)cpu % CPUS_MAX;

	cpus[at].back = 0;
	cpus[at].taken = take();
	if (cpus[at].taken)
		take();
}

void SCHED_OP(consume_immed_running, struct task_struct *p)
{
	u32 cpu = bpf_get_smp_processor_id() % CPUS_MAX;

	CHECK(cpus[cpu].back != p->pid);
	cpus[cpu].taken = false;
	cpus[cpu].back = 0;
}

s32 SCHED_OP_SLEEPABLE(consume_immed_init)
{
	return scx_bpf_create_dsq(SHARED_DSQ, -1);
}

void SCHED_OP(consume_immed_exit, struct scx_exit_info *info)
{
	struct scx_event_stats events = {};

	CHECK(came_back > 0);
	scx_bpf_events(&events, sizeof(events));
	CHECK(events.SCX_EV_REENQ_IMMED > 0);
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(consume_immed_ops,
	  .select_cpu = (void *)consume_immed_select_cpu,
	  .enqueue = (void *)consume_immed_enqueue,
	  .dispatch = (void *)consume_immed_dispatch,
	  .running = (void *)consume_immed_running,
	  .init = (void *)consume_immed_init,
	  .exit = (void *)consume_immed_exit,
	  .timeout_ms = 1000,
	  .name = "consume_immed");
