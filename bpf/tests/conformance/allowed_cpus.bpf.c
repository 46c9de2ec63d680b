// SPDX-License-Identifier: GPL-2.0-only
/* scx_bpf_select_cpu_and() chooses idle CPUs inside a mask, claimed, and nothing outside. */
#include "../../include/conformance.bpf.h"

static u64 chosen;

static __always_inline void judge(s32 cpu)
{
	const struct cpumask *idle = scx_bpf_get_idle_cpumask();

	CHECK(cpu == 0);
	CHECK(!bpf_cpumask_test_cpu(cpu, idle));
	scx_bpf_put_idle_cpumask(idle);
}

static __always_inline s32 select_first(struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	struct bpf_cpumask *mask = bpf_cpumask_create();
	s32 cpu;

	if (!mask)
		return -1;
	bpf_cpumask_set_cpu(0, mask);
	cpu = select_cpu_and(p, prev_cpu, wake_flags, (const struct cpumask *)mask, 0);
	bpf_cpumask_release(mask);
	return cpu;
}

s32 SCHED_OP(allowed_cpus_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	s32 cpu = select_first(p, prev_cpu, wake_flags);

	if (cpu < 0)
		return prev_cpu;
	judge(cpu);
	COUNT(chosen);
	dsq_insert(p, DSQ_LOCAL, SLICE, 0);
	return cpu;
}

void SCHED_OP(allowed_cpus_enqueue, struct task_struct *p, u64 enq_flags)
{
	s32 cpu;

	dsq_insert(p, DSQ_GLOBAL, SLICE, 0);
	cpu = select_first(p, scx_bpf_task_cpu(p), 0);
	if (cpu < 0)
		return;
	judge(cpu);
	scx_bpf_kick_cpu(cpu, KICK(IDLE));
}

void SCHED_OP(allowed_cpus_exit, struct scx_exit_info *info)
{
	CHECK(chosen > 0);
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(allowed_cpus_ops,
	  .select_cpu = (void *)allowed_cpus_select_cpu,
	  .enqueue = (void *)allowed_cpus_enqueue,
	  .exit = (void *)allowed_cpus_exit,
	  .name = "allowed_cpus");
