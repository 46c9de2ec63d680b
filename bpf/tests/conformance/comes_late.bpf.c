// SPDX-License-Identifier: GPL-2.0-only
/*
 * Comes while the tasks under test run: each is initialised, not as a fork, then enabled, in bypass, and only then
 * enqueued. The three of them exist until the scheduler goes, so that each is disabled and exited once.
 */
#include "../../include/conformance.bpf.h"

#define SHARED_DSQ 0
#define TASKS 3

static u64 initialised, enabled, weights, masks, enqueued, ran, disabled, exited;

s32 SCHED_OP_SLEEPABLE(comes_late_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	if (under_test(p)) {
		CHECK(!args->fork);
		CHECK(!enabled);
		COUNT(initialised);
	}
	return 0;
}

void SCHED_OP(comes_late_enable, struct task_struct *p)
{
	if (under_test(p)) {
		CHECK(initialised == TASKS);
		CHECK(!enqueued);
		COUNT(enabled);
	}
}

void SCHED_OP(comes_late_set_weight, struct task_struct *p, u32 weight)
{
	if (under_test(p)) {
		CHECK(enabled > 0);
		CHECK(weight == 100);
		COUNT(weights);
	}
}

void SCHED_OP(comes_late_set_cpumask, struct task_struct *p, const struct cpumask *mask)
{
	if (under_test(p)) {
		CHECK(enabled > 0);
		COUNT(masks);
	}
}

void SCHED_OP(comes_late_enqueue, struct task_struct *p, u64 enq_flags)
{
	if (under_test(p)) {
		CHECK(enabled == TASKS);
		COUNT(enqueued);
	}
	dsq_insert(p, SHARED_DSQ, SLICE, enq_flags);
}

void SCHED_OP(comes_late_dispatch, s32 cpu, struct task_struct *prev)
{
	dsq_move_to_local(SHARED_DSQ);
}

void SCHED_OP(comes_late_running, struct task_struct *p)
{
	if (under_test(p))
		COUNT(ran);
}

void SCHED_OP(comes_late_disable, struct task_struct *p)
{
	if (under_test(p)) {
		CHECK(!exited || disabled > exited - 1);
		COUNT(disabled);
	}
}

void SCHED_OP(comes_late_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	if (under_test(p)) {
		CHECK(!args->cancelled);
		COUNT(exited);
	}
}

s32 SCHED_OP_SLEEPABLE(comes_late_init)
{
	CHECK(!initialised);
	return scx_bpf_create_dsq(SHARED_DSQ, -1);
}

void SCHED_OP(comes_late_exit, struct scx_exit_info *info)
{
	CHECK(initialised == TASKS);
	CHECK(enabled == TASKS);
	CHECK(weights == TASKS);
	CHECK(masks == TASKS);
	CHECK(enqueued > 0);
	CHECK(ran > 0);
	CHECK(disabled == TASKS);
	CHECK(exited == TASKS);
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(comes_late_ops,
	  .init_task = (void *)comes_late_init_task,
	  .enable = (void *)comes_late_enable,
	  .set_weight = (void *)comes_late_set_weight,
	  .set_cpumask = (void *)comes_late_set_cpumask,
	  .enqueue = (void *)comes_late_enqueue,
	  .dispatch = (void *)comes_late_dispatch,
	  .running = (void *)comes_late_running,
	  .disable = (void *)comes_late_disable,
	  .exit_task = (void *)comes_late_exit_task,
	  .init = (void *)comes_late_init,
	  .exit = (void *)comes_late_exit,
	  .timeout_ms = 5000,
	  .name = "comes_late");
