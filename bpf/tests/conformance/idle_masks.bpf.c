// SPDX-License-Identifier: GPL-2.0-only
/* Idle CPUs and whole idle cores: masks, and what is picked from them is claimed. */
#include "../../include/conformance.bpf.h"

static u64 picked;

s32 SCHED_OP(idle_masks_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	const struct cpumask *idle, *cores;
	s32 cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, KERNEL_CONST(scx_pick_idle_cpu_flags, SCX_PICK_IDLE_CORE));

	if (cpu < 0)
		return scx_bpf_pick_any_cpu(p->cpus_ptr, 0);
	idle = scx_bpf_get_idle_cpumask();
	cores = scx_bpf_get_idle_smtmask();
	CHECK(!bpf_cpumask_test_cpu(cpu, idle));
	CHECK(!bpf_cpumask_test_cpu(cpu, cores));
	scx_bpf_put_idle_cpumask(cores);
	scx_bpf_put_idle_cpumask(idle);
	COUNT(picked);
	dsq_insert(p, DSQ_LOCAL, SLICE, 0);
	return cpu;
}

void SCHED_OP(idle_masks_exit, struct scx_exit_info *info)
{
	CHECK(picked > 0);
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(idle_masks_ops,
	  .select_cpu = (void *)idle_masks_select_cpu,
	  .exit = (void *)idle_masks_exit,
	  .timeout_ms = 1000,
	  .name = "idle_masks");
