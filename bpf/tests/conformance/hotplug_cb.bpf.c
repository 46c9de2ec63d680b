// SPDX-License-Identifier: GPL-2.0-only
/* A scheduler with hotplug callbacks is told of CPUs that come and go, and decides itself. */
#include "../../include/conformance.bpf.h"

#define OWN_CODE (1LL << 56)

void SCHED_OP_SLEEPABLE(hotplug_cb_cpu_online, s32 cpu)
{
	scx_bpf_create_dsq(0, -1);
	SCHED_EXIT(OWN_CODE | 1, "cpu %d online", cpu);
}

void SCHED_OP_SLEEPABLE(hotplug_cb_cpu_offline, s32 cpu)
{
	scx_bpf_create_dsq(0, -1);
	SCHED_EXIT(OWN_CODE | 2, "cpu %d offline", cpu);
}

void SCHED_OP(hotplug_cb_exit, struct scx_exit_info *info)
{
	CHECK(info->kind == SCX_EXIT_UNREG_BPF);
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(hotplug_cb_ops,
	  .cpu_online = (void *)hotplug_cb_cpu_online,
	  .cpu_offline = (void *)hotplug_cb_cpu_offline,
	  .exit = (void *)hotplug_cb_exit,
	  .timeout_ms = 1000,
	  .name = "hotplug_cb");
