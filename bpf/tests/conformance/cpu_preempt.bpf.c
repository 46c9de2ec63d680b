// SPDX-License-Identifier: GPL-2.0-only
/* A real-time task takes a CPU: cpu_release, reenqueue of its local queue, and cpu_acquire when it is back. */
#include "../../include/conformance.bpf.h"

extern u32 scx_bpf_reenqueue_local___v1(void) __ksym __weak;

static u64 released, acquired, reenqueued;
static u32 gone[64];

void SCHED_OP(cpu_preempt_enqueue, struct task_struct *p, u64 enq_flags)
{
	if (enq_flags & ENQ(REENQ)) {
		COUNT(reenqueued);
		dsq_insert(p, DSQ_GLOBAL, SLICE, enq_flags);
		return;
	}
	dsq_insert(p, DSQ_LOCAL, SLICE, enq_flags);
}

void SCHED_OP(cpu_preempt_cpu_release, s32 cpu, struct scx_cpu_release_args *args)
{
	u32 at = cpu;

	COUNT(released);
	if (at < 64) {
		CHECK(!gone[at]);
		gone[at] = 1;
	}
	if (bpf_ksym_exists(scx_bpf_reenqueue_local___v1))
		scx_bpf_reenqueue_local___v1();
}

void SCHED_OP(cpu_preempt_cpu_acquire, s32 cpu, struct scx_cpu_acquire_args *args)
{
	u32 at = cpu;

	COUNT(acquired);
	if (at < 64) {
		CHECK(gone[at]);
		gone[at] = 0;
	}
}

void SCHED_OP(cpu_preempt_exit, struct scx_exit_info *info)
{
	CHECK(released > 0);
	CHECK(acquired > 0);
	CHECK(released >= acquired);
	CHECK(reenqueued > 0);
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(cpu_preempt_ops,
	  .enqueue = (void *)cpu_preempt_enqueue,
	  .cpu_release = (void *)cpu_preempt_cpu_release,
	  .cpu_acquire = (void *)cpu_preempt_cpu_acquire,
	  .exit = (void *)cpu_preempt_exit,
	  .name = "cpu_preempt");
