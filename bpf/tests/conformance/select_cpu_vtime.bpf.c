// SPDX-License-Identifier: GPL-2.0-only
/* Tasks inserted in select_cpu by virtual time are dispatched in its order, least first. */
#include "../../include/conformance.bpf.h"

#define VTIME_DSQ 0

static u64 vtime_now, moved;

s32 SCHED_OP(select_cpu_vtime_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	s32 cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);

	if (cpu >= 0)
		scx_bpf_kick_cpu(cpu, 0);
	dsq_insert_vtime(p, VTIME_DSQ, SLICE, p->scx.dsq_vtime, 0);
	return cpu >= 0 ? cpu : prev_cpu;
}

void SCHED_OP(select_cpu_vtime_enqueue, struct task_struct *p, u64 enq_flags)
{
	dsq_insert_vtime(p, VTIME_DSQ, SLICE, p->scx.dsq_vtime, enq_flags);
}

void SCHED_OP(select_cpu_vtime_dispatch, s32 cpu, struct task_struct *prev)
{
	struct task_struct *p;
	u64 before = 0;
	u32 place = 0;

	bpf_for_each(scx_dsq, p, VTIME_DSQ, 0) {
		if (place++)
			CHECK((s64)(p->scx.dsq_vtime - before) >= 0);
		before = p->scx.dsq_vtime;
		if (place == 8)
			break;
	}
	if (dsq_move_to_local(VTIME_DSQ))
		COUNT(moved);
}

void SCHED_OP(select_cpu_vtime_running, struct task_struct *p)
{
	if ((s64)(vtime_now - p->scx.dsq_vtime) < 0)
		vtime_now = p->scx.dsq_vtime;
}

void SCHED_OP(select_cpu_vtime_stopping, struct task_struct *p, bool runnable)
{
	set_dsq_vtime(p, p->scx.dsq_vtime + (SLICE - p->scx.slice) * 100 / (p->scx.weight ?: 100));
}

void SCHED_OP(select_cpu_vtime_enable, struct task_struct *p)
{
	set_dsq_vtime(p, vtime_now);
}

s32 SCHED_OP_SLEEPABLE(select_cpu_vtime_init)
{
	return scx_bpf_create_dsq(VTIME_DSQ, -1);
}

void SCHED_OP(select_cpu_vtime_exit, struct scx_exit_info *info)
{
	CHECK(moved > 0);
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(select_cpu_vtime_ops,
	  .select_cpu = (void *)select_cpu_vtime_select_cpu,
	  .enqueue = (void *)select_cpu_vtime_enqueue,
	  .dispatch = (void *)select_cpu_vtime_dispatch,
	  .running = (void *)select_cpu_vtime_running,
	  .stopping = (void *)select_cpu_vtime_stopping,
	  .enable = (void *)select_cpu_vtime_enable,
	  .init = (void *)select_cpu_vtime_init,
	  .exit = (void *)select_cpu_vtime_exit,
	  .name = "select_cpu_vtime");
