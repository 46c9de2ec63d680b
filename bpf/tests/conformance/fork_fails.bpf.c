// SPDX-License-Identifier: GPL-2.0-only
/*
 * A task that init_task refuses on the fork path does not come into being: its fork fails, no other callback is told of
 * it, and the scheduler stays. Every second child of the task under test is refused.
 */
#include "../../include/conformance.bpf.h"

#define EAGAIN 11

struct task_context {
	u64 initialised;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task_context);
} contexts SEC(".maps");

static u64 asked, refused, taken, enabled, exited, cancelled;

/* Only children of the task under test are: everybody else's are initialised without a mark. */
static __always_inline bool is_marked(struct task_struct *p)
{
	struct task_context *context = bpf_task_storage_get(&contexts, p, 0, 0);

	return context && context->initialised;
}

s32 SCHED_OP_SLEEPABLE(fork_fails_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	struct task_context *context;

	if (!args->fork || !under_test(bpf_get_current_task_btf()))
		return 0;
	if (COUNT(asked) & 1) {
		COUNT(refused);
		return -EAGAIN;
	}
	context = bpf_task_storage_get(&contexts, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!context)
		return -12;
	context->initialised = 1;
	COUNT(taken);
	return 0;
}

void SCHED_OP(fork_fails_enable, struct task_struct *p)
{
	if (is_marked(p))
		COUNT(enabled);
}

void SCHED_OP(fork_fails_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	if (args->cancelled)
		COUNT(cancelled);
	if (is_marked(p))
		COUNT(exited);
}

void SCHED_OP(fork_fails_exit, struct scx_exit_info *info)
{
	CHECK(asked == 10);
	CHECK(refused == 5);
	CHECK(taken == 5 && enabled == 5);
	CHECK(exited == 5);
	CHECK(cancelled == 0);
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(fork_fails_ops,
	  .init_task = (void *)fork_fails_init_task,
	  .enable = (void *)fork_fails_enable,
	  .exit_task = (void *)fork_fails_exit_task,
	  .exit = (void *)fork_fails_exit,
	  .timeout_ms = 1000,
	  .name = "fork_fails");
