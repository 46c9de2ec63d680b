// SPDX-License-Identifier: GPL-2.0-only
/* Tasks are found by their number under SCX_OPS_TID_TO_TASK (since 7.2). */
#include "../../include/conformance.bpf.h"

#define OPS_TID_TO_TASK (1ULL << 8)

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct sched_ext_entity___tid {
	u64 tid;
};
#pragma clang attribute pop

extern struct task_struct *scx_bpf_tid_to_task(u64 tid) __ksym __weak;

static u64 found;

void SCHED_OP(tid_to_task_running, struct task_struct *p)
{
	struct sched_ext_entity___tid *scx = (void *)&p->scx;
	struct task_struct *same;

	if (!under_test(p))
		return;
	bpf_rcu_read_lock();
	same = scx_bpf_tid_to_task(scx->tid);
	CHECK(same && same->pid == p->pid);
	CHECK(!scx_bpf_tid_to_task(0));
	bpf_rcu_read_unlock();
	COUNT(found);
}

void SCHED_OP(tid_to_task_exit, struct scx_exit_info *info)
{
	CHECK(found > 0);
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(tid_to_task_ops,
	  .running = (void *)tid_to_task_running,
	  .exit = (void *)tid_to_task_exit,
	  .flags = OPS_TID_TO_TASK,
	  .name = "tid_to_task");
