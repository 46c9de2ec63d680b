// SPDX-License-Identifier: GPL-2.0-only
/* Custody of tasks (since 7.1): one dequeue for each stay with the scheduler, none for terminal queues. */
#include "../../include/conformance.bpf.h"

#define SHARED_DSQ 0
#define DEQ_SCHED_CHANGE (1ULL << 33)

enum scenario { SELECT_LOCAL, SELECT_GLOBAL, SELECT_USER, ENQUEUE_LOCAL, ENQUEUE_GLOBAL, ENQUEUE_USER, OWN_QUEUE };

KNOB_FIXED(u32, scenario, 0, number, 0, 6, "Where tasks are put; see enum scenario.");

enum place { NOWHERE, IN_CUSTODY, DISPATCHED };

struct task_context {
	u32 place;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task_context);
} contexts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 8192);
	__type(value, s32);
} queue SEC(".maps");

static u64 taken, given_back;

static __always_inline struct task_context *context_of(struct task_struct *p)
{
	return bpf_task_storage_get(&contexts, p, 0, 0);
}

/* The task enters custody: it must not be in it. */
static __always_inline void take(struct task_context *context)
{
	CHECK(context->place != IN_CUSTODY);
	context->place = IN_CUSTODY;
	COUNT(taken);
}

s32 SCHED_OP(dequeue_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	struct task_context *context = context_of(p);

	if (!context)
		return prev_cpu;
	if (scenario == SELECT_LOCAL || scenario == SELECT_GLOBAL) {
		dsq_insert(p, scenario == SELECT_LOCAL ? DSQ_LOCAL : DSQ_GLOBAL, SLICE, 0);
		context->place = DISPATCHED;
	} else if (scenario == SELECT_USER) {
		take(context);
		dsq_insert(p, SHARED_DSQ, SLICE, 0);
	}
	return prev_cpu;
}

void SCHED_OP(dequeue_enqueue, struct task_struct *p, u64 enq_flags)
{
	struct task_context *context = context_of(p);
	s32 pid = p->pid;

	if (!context)
		return;
	if (scenario == ENQUEUE_USER) {
		take(context);
		dsq_insert(p, SHARED_DSQ, SLICE, enq_flags);
	} else if (scenario == OWN_QUEUE && !bpf_map_push_elem(&queue, &pid, 0)) {
		take(context);
	} else {
		dsq_insert(p, scenario == ENQUEUE_LOCAL ? DSQ_LOCAL : DSQ_GLOBAL, SLICE, enq_flags);
		context->place = DISPATCHED;
	}
	scx_bpf_kick_cpu(scx_bpf_task_cpu(p), KICK(IDLE));
}

void SCHED_OP(dequeue_dequeue, struct task_struct *p, u64 deq_flags)
{
	struct task_context *context = context_of(p);

	COUNT(given_back);
	CHECK(scenario == SELECT_USER || scenario == ENQUEUE_USER || scenario == OWN_QUEUE);
	if (!context)
		return;
	CHECK(context->place == IN_CUSTODY || context->place == NOWHERE);
	if (deq_flags & DEQ_SCHED_CHANGE)
		context->place = NOWHERE;
	else if (context->place == IN_CUSTODY)
		context->place = DISPATCHED;
}

void SCHED_OP(dequeue_dispatch, s32 cpu, struct task_struct *prev)
{
	struct task_context *context;
	struct task_struct *p;
	s32 pid;

	if (scenario != OWN_QUEUE) {
		dsq_move_to_local(SHARED_DSQ);
		return;
	}
	if (bpf_map_pop_elem(&queue, &pid))
		return;
	p = bpf_task_from_pid(pid);
	if (!p)
		return;
	context = context_of(p);
	/* A change of attributes took the task back meanwhile. */
	if (context && context->place == IN_CUSTODY)
		dsq_insert(p, bpf_cpumask_test_cpu(cpu, p->cpus_ptr) ? DSQ_LOCAL_ON | cpu : DSQ_GLOBAL, SLICE, 0);
	bpf_task_release(p);
}

s32 SCHED_OP_SLEEPABLE(dequeue_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	return bpf_task_storage_get(&contexts, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE) ? 0 : -12;
}

s32 SCHED_OP_SLEEPABLE(dequeue_init)
{
	return scx_bpf_create_dsq(SHARED_DSQ, -1);
}

void SCHED_OP(dequeue_exit, struct scx_exit_info *info)
{
	if (scenario == SELECT_USER || scenario == ENQUEUE_USER || scenario == OWN_QUEUE) {
		CHECK(taken > 0);
		CHECK(taken == given_back);
	} else {
		CHECK(taken == 0 && given_back == 0);
	}
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(dequeue_ops,
	  .select_cpu = (void *)dequeue_select_cpu,
	  .enqueue = (void *)dequeue_enqueue,
	  .dequeue = (void *)dequeue_dequeue,
	  .dispatch = (void *)dequeue_dispatch,
	  .init_task = (void *)dequeue_init_task,
	  .init = (void *)dequeue_init,
	  .exit = (void *)dequeue_exit,
	  .flags = SCX_OPS_ENQ_LAST,
	  .name = "dequeue_test");
