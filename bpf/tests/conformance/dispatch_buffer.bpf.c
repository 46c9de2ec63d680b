// SPDX-License-Identifier: GPL-2.0-only
/* The buffer of dispatch: its slots, taking the last insertion back, and what happens when it overflows. */
#include "../../include/conformance.bpf.h"

#define BATCH 4

KNOB_FIXED(bool, overflow, 0, bool, 0, 1, "Insert more than the buffer holds.");

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 8192);
	__type(value, s32);
} queue SEC(".maps");

static u64 cancelled, dispatched;

s32 SCHED_OP(dispatch_buffer_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	return prev_cpu;
}

void SCHED_OP(dispatch_buffer_enqueue, struct task_struct *p, u64 enq_flags)
{
	s32 pid = p->pid;

	if (bpf_map_push_elem(&queue, &pid, 0))
		SCHED_ERROR("no room for %d", pid);
	scx_bpf_kick_cpu(scx_bpf_task_cpu(p), KICK(IDLE));
}

void SCHED_OP(dispatch_buffer_dispatch, s32 cpu, struct task_struct *prev)
{
	struct task_struct *p;
	u32 slots = scx_bpf_dispatch_nr_slots(), i;
	s32 pid;

	CHECK(slots == BATCH);
	if (bpf_map_pop_elem(&queue, &pid))
		return;
	p = bpf_task_from_pid(pid);
	if (!p)
		return;
	dsq_insert(p, DSQ_GLOBAL, SLICE, 0);
	CHECK(scx_bpf_dispatch_nr_slots() == BATCH - 1);
	scx_bpf_dispatch_cancel();
	CHECK(scx_bpf_dispatch_nr_slots() == BATCH);
	COUNT(cancelled);
	dsq_insert(p, DSQ_GLOBAL, SLICE, 0);
	COUNT(dispatched);
	if (overflow && under_test(p))
		bpf_for(i, 0, BATCH)
			dsq_insert(p, DSQ_GLOBAL, SLICE, 0);
	bpf_task_release(p);
}

void SCHED_OP(dispatch_buffer_exit, struct scx_exit_info *info)
{
	CHECK(cancelled > 0);
	CHECK(dispatched > 0);
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(dispatch_buffer_ops,
	  .select_cpu = (void *)dispatch_buffer_select_cpu,
	  .enqueue = (void *)dispatch_buffer_enqueue,
	  .dispatch = (void *)dispatch_buffer_dispatch,
	  .exit = (void *)dispatch_buffer_exit,
	  .dispatch_max_batch = BATCH,
	  .timeout_ms = 1000,
	  .name = "dispatch_buffer");
