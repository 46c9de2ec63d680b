// SPDX-License-Identifier: GPL-2.0-only
/* Queues are created and destroyed from init and init_task; ids are the scheduler's, each once. */
#include "../../include/conformance.bpf.h"

#define OF_TASK (1ULL << 32)

s32 SCHED_OP_SLEEPABLE(create_dsq_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	CHECK(!scx_bpf_create_dsq(OF_TASK | p->pid, -1));
	return 0;
}

void SCHED_OP(create_dsq_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	scx_bpf_destroy_dsq(OF_TASK | p->pid);
}

s32 SCHED_OP_SLEEPABLE(create_dsq_init)
{
	u32 i;

	bpf_for(i, 0, 1024)
		CHECK(!scx_bpf_create_dsq(i, -1));
	CHECK(scx_bpf_create_dsq(5, -1) == -EEXIST);
	CHECK(scx_bpf_create_dsq(DSQ_GLOBAL, -1) == -EINVAL);
	CHECK(scx_bpf_create_dsq(2000, 1000000) == -EINVAL);
	CHECK(scx_bpf_dsq_nr_queued(5) == 0);
	bpf_for(i, 0, 1024)
		scx_bpf_destroy_dsq(i);
	CHECK(scx_bpf_dsq_nr_queued(5) == -2);
	return 0;
}

void SCHED_OP(create_dsq_exit, struct scx_exit_info *info)
{
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(create_dsq_ops,
	  .init_task = (void *)create_dsq_init_task,
	  .exit_task = (void *)create_dsq_exit_task,
	  .init = (void *)create_dsq_init,
	  .exit = (void *)create_dsq_exit,
	  .name = "create_dsq");
