// SPDX-License-Identifier: GPL-2.0-only
/* Tasks inserted in select_cpu go to the local queue of the CPU it returns, or to the global queue. */
#include "../../include/conformance.bpf.h"

static u64 local, wrong;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, s32);
	__type(value, s32);
} promised SEC(".maps");

s32 SCHED_OP(select_cpu_dispatch_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	s32 cpu = prev_cpu, pid = p->pid;

	if (!scx_bpf_test_and_clear_cpu_idle(cpu))
		cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
	if (cpu < 0) {
		dsq_insert(p, DSQ_GLOBAL, SLICE, 0);
		return prev_cpu;
	}
	if (under_test(p))
		bpf_map_update_elem(&promised, &pid, &cpu, BPF_ANY);
	dsq_insert(p, DSQ_LOCAL, SLICE, 0);
	return cpu;
}

void SCHED_OP(select_cpu_dispatch_running, struct task_struct *p)
{
	s32 pid = p->pid;
	s32 *cpu = bpf_map_lookup_elem(&promised, &pid);

	if (!cpu)
		return;
	COUNT(local);
	if (*cpu != scx_bpf_task_cpu(p))
		COUNT(wrong);
	bpf_map_delete_elem(&promised, &pid);
}

void SCHED_OP(select_cpu_dispatch_exit, struct scx_exit_info *info)
{
	CHECK(local > 0 && wrong == 0);
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(select_cpu_dispatch_ops,
	  .select_cpu = (void *)select_cpu_dispatch_select_cpu,
	  .running = (void *)select_cpu_dispatch_running,
	  .exit = (void *)select_cpu_dispatch_exit,
	  .timeout_ms = 1000,
	  .name = "select_cpu_dispatch");
