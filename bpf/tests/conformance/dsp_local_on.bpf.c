// SPDX-License-Identifier: GPL-2.0-only
/* Tasks kept by pid go from dispatch to any CPU's local queue they may run on. */
#include "../../include/conformance.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 8192);
	__type(value, s32);
} queue SEC(".maps");

static u64 elsewhere;

s32 SCHED_OP(dsp_local_on_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	return prev_cpu;
}

void SCHED_OP(dsp_local_on_enqueue, struct task_struct *p, u64 enq_flags)
{
	s32 pid = p->pid;

	if (bpf_map_push_elem(&queue, &pid, 0))
		SCHED_ERROR("no room for %d", pid);
}

void SCHED_OP(dsp_local_on_dispatch, s32 cpu, struct task_struct *prev)
{
	s32 pid, target, nr_cpus = scx_bpf_nr_cpu_ids();
	struct task_struct *p;

	if (bpf_map_pop_elem(&queue, &pid))
		return;
	p = bpf_task_from_pid(pid);
	if (!p)
		return;
	target = scx_bpf_task_cpu(p);
	if (p->nr_cpus_allowed == nr_cpus && !p->migration_disabled)
		target = bpf_get_prandom_u32() % nr_cpus;
	if (target != cpu)
		COUNT(elsewhere);
	dsq_insert(p, DSQ_LOCAL_ON | target, SLICE, 0);
	bpf_task_release(p);
}

void SCHED_OP(dsp_local_on_exit, struct scx_exit_info *info)
{
	CHECK(elsewhere > 0);
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(dsp_local_on_ops,
	  .select_cpu = (void *)dsp_local_on_select_cpu,
	  .enqueue = (void *)dsp_local_on_enqueue,
	  .dispatch = (void *)dsp_local_on_dispatch,
	  .exit = (void *)dsp_local_on_exit,
	  .timeout_ms = 1000,
	  .name = "dsp_local_on");
