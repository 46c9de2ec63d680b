// SPDX-License-Identifier: GPL-2.0-only
/* update_idle tells every change of a CPU between idle and busy, once each. */
#include "../../include/conformance.bpf.h"

static u32 idle_now[64], known[64];
static u64 changes;

void SCHED_OP(idle_told_update_idle, s32 cpu, bool idle)
{
	u32 at = cpu;

	if (at >= 64)
		return;
	CHECK(at == bpf_get_smp_processor_id());
	if (known[at])
		CHECK(idle_now[at] != idle);
	idle_now[at] = idle;
	known[at] = 1;
	COUNT(changes);
}

void SCHED_OP(idle_told_exit, struct scx_exit_info *info)
{
	CHECK(changes > 10);
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(idle_told_ops,
	  .update_idle = (void *)idle_told_update_idle,
	  .exit = (void *)idle_told_exit,
	  .flags = SCX_OPS_KEEP_BUILTIN_IDLE,
	  .name = "idle_told");
