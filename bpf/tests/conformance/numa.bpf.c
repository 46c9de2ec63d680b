// SPDX-License-Identifier: GPL-2.0-only
/* Idle masks and idle selection by node stay in the node. */
#include "../../include/conformance.bpf.h"

extern u32 scx_bpf_nr_node_ids(void) __ksym;
extern s32 scx_bpf_cpu_node(s32 cpu) __ksym;
extern const struct cpumask *scx_bpf_get_idle_cpumask_node(s32 node) __ksym;
extern s32 scx_bpf_pick_idle_cpu_node(const struct cpumask *allowed, s32 node, u64 flags) __ksym;
extern s32 scx_bpf_pick_any_cpu_node(const struct cpumask *allowed, s32 node, u64 flags) __ksym;

#define IN_NODE 2

s32 SCHED_OP(numa_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	s32 task_cpu = scx_bpf_task_cpu(p), node = scx_bpf_cpu_node(task_cpu), cpu;
	const struct cpumask *idle;
	bool claimed;

	cpu = scx_bpf_pick_idle_cpu_node(p->cpus_ptr, node, IN_NODE);
	claimed = cpu >= 0;
	if (!claimed)
		cpu = scx_bpf_pick_any_cpu_node(p->cpus_ptr, node, IN_NODE);
	if (cpu < 0)
		return prev_cpu;
	CHECK(scx_bpf_cpu_node(cpu) == node);
	idle = scx_bpf_get_idle_cpumask_node(node);
	if (claimed && cpu != (s32)bpf_get_smp_processor_id())
		CHECK(!bpf_cpumask_test_cpu(cpu, idle));
	scx_bpf_put_idle_cpumask(idle);
	return cpu;
}

void SCHED_OP(numa_enqueue, struct task_struct *p, u64 enq_flags)
{
	dsq_insert(p, scx_bpf_cpu_node(scx_bpf_task_cpu(p)), SLICE, enq_flags);
}

void SCHED_OP(numa_dispatch, s32 cpu, struct task_struct *prev)
{
	dsq_move_to_local(scx_bpf_cpu_node(cpu));
}

s32 SCHED_OP_SLEEPABLE(numa_init)
{
	s32 node, error;

	bpf_for(node, 0, scx_bpf_nr_node_ids()) {
		error = scx_bpf_create_dsq(node, node);
		if (error)
			return error;
	}
	return 0;
}

void SCHED_OP(numa_exit, struct scx_exit_info *info)
{
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(numa_ops,
	  .select_cpu = (void *)numa_select_cpu,
	  .enqueue = (void *)numa_enqueue,
	  .dispatch = (void *)numa_dispatch,
	  .init = (void *)numa_init,
	  .exit = (void *)numa_exit,
	  .flags = SCX_OPS_BUILTIN_IDLE_PER_NODE,
	  .name = "numa");
