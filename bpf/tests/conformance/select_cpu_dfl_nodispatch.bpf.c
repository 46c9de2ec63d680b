// SPDX-License-Identifier: GPL-2.0-only
/* A select_cpu callback that inserts nothing: every task comes to enqueue. */
#include "../../include/conformance.bpf.h"

struct task_context {
	bool idle_found;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task_context);
} contexts SEC(".maps");

static u64 local;

s32 SCHED_OP(select_cpu_dfl_nodispatch_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	struct task_context *context = bpf_task_storage_get(&contexts, p, 0, 0);

	if (!context) {
		SCHED_ERROR("no context of %d", p->pid);
		return -3;
	}
	return scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &context->idle_found);
}

void SCHED_OP(select_cpu_dfl_nodispatch_enqueue, struct task_struct *p, u64 enq_flags)
{
	struct task_context *context = bpf_task_storage_get(&contexts, p, 0, 0);
	u64 dsq = DSQ_GLOBAL;

	if (!context) {
		SCHED_ERROR("no context of %d", p->pid);
		return;
	}
	if (context->idle_found) {
		dsq = DSQ_LOCAL;
		context->idle_found = false;
		if (under_test(p))
			COUNT(local);
	}
	dsq_insert(p, dsq, SLICE, enq_flags);
}

s32 SCHED_OP_SLEEPABLE(select_cpu_dfl_nodispatch_init_task, struct task_struct *p,
		       struct scx_init_task_args *args)
{
	return bpf_task_storage_get(&contexts, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE) ? 0 : -12;
}

void SCHED_OP(select_cpu_dfl_nodispatch_exit, struct scx_exit_info *info)
{
	CHECK(local > 0);
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(select_cpu_dfl_nodispatch_ops,
	  .select_cpu = (void *)select_cpu_dfl_nodispatch_select_cpu,
	  .enqueue = (void *)select_cpu_dfl_nodispatch_enqueue,
	  .init_task = (void *)select_cpu_dfl_nodispatch_init_task,
	  .exit = (void *)select_cpu_dfl_nodispatch_exit,
	  .name = "select_cpu_dfl_nodispatch");
