// SPDX-License-Identifier: GPL-2.0-only
/* An error writes a debug dump: the scheduler adds to it, and exit gets it. */
#include "../../include/conformance.bpf.h"

extern void scx_bpf_dump_bstr(char *fmt, unsigned long long *data, u32 data__sz) __ksym __weak;

static u64 enqueued, dumps, cpu_dumps, task_dumps;
static char found[64];

#define DUMP(fmt, args...)                                                                         \
	({                                                                                         \
		static char ___fmt[] = fmt;                                                        \
		unsigned long long ___param[___bpf_narg(args) ?: 1] = {};                          \
		___bpf_fill(___param, args);                                                       \
		scx_bpf_dump_bstr(___fmt, ___param, ___bpf_narg(args) * sizeof(___param[0]));      \
	})

void SCHED_OP(dump_enqueue, struct task_struct *p, u64 enq_flags)
{
	if (under_test(p) && __sync_fetch_and_add(&enqueued, 1) == 20)
		SCHED_ERROR("enough of %d", 20);
	dsq_insert(p, DSQ_GLOBAL, SLICE, enq_flags);
}

void SCHED_OP(dump_dump, struct scx_dump_ctx *at)
{
	COUNT(dumps);
	DUMP("enqueued %llu\n", enqueued);
}

void SCHED_OP(dump_dump_cpu, struct scx_dump_ctx *at, s32 cpu, bool idle)
{
	COUNT(cpu_dumps);
	DUMP("cpu %d\n", cpu);
}

void SCHED_OP(dump_dump_task, struct scx_dump_ctx *at, struct task_struct *p)
{
	COUNT(task_dumps);
	DUMP("task %d\n", p->pid);
}

void SCHED_OP(dump_exit, struct scx_exit_info *info)
{
	CHECK(dumps == 1);
	CHECK(cpu_dumps == scx_bpf_nr_cpu_ids());
	CHECK(task_dumps > 0);
	bpf_probe_read_kernel_str(found, sizeof(found), info->dump);
	CHECK(found[0] == 'd' && found[1] == 'u' && found[2] == 'm' && found[3] == 'p' && found[4] == ':');
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(dump_ops,
	  .enqueue = (void *)dump_enqueue,
	  .dump = (void *)dump_dump,
	  .dump_cpu = (void *)dump_dump_cpu,
	  .dump_task = (void *)dump_dump_task,
	  .exit = (void *)dump_exit,
	  .timeout_ms = 1000,
	  .name = "dump");
