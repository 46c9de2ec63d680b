// SPDX-License-Identifier: GPL-2.0-only
/* CPUs that kick each other in a ring and wait for it do not block each other. */
#include "../../include/conformance.bpf.h"

static u64 waited;

void SCHED_OP(cyclic_kick_wait_enqueue, struct task_struct *p, u64 enq_flags)
{
	u32 here = bpf_get_smp_processor_id();
	u32 next = (here + 1) % scx_bpf_nr_cpu_ids();

	dsq_insert(p, DSQ_GLOBAL, SLICE, enq_flags);
	if (!under_test(p) || next == here)
		return;
	COUNT(waited);
	scx_bpf_kick_cpu(next, KICK(WAIT));
}

void SCHED_OP(cyclic_kick_wait_exit, struct scx_exit_info *info)
{
	CHECK(waited > 10);
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(cyclic_kick_wait_ops,
	  .enqueue = (void *)cyclic_kick_wait_enqueue,
	  .exit = (void *)cyclic_kick_wait_exit,
	  .timeout_ms = 1000,
	  .name = "cyclic_kick_wait");
