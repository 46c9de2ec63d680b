// SPDX-License-Identifier: GPL-2.0-only
/* A scheduler with every callback about tasks and CPUs, each as small as can be; for tests of their order. */
#include "../include/schedlab.bpf.h"
#include "../include/placement.bpf.h"

#define SHARED_DSQ 0

s32 SCHED_OP(maximal_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	return prev_cpu;
}

void SCHED_OP(maximal_enqueue, struct task_struct *p, u64 enq_flags)
{
	dsq_insert(p, SHARED_DSQ, 5000000, enq_flags);
	kick_idle_for(p, 0);
}

void SCHED_OP(maximal_dequeue, struct task_struct *p, u64 deq_flags)
{
}

void SCHED_OP(maximal_dispatch, s32 cpu, struct task_struct *prev)
{
	dsq_move_to_local(SHARED_DSQ);
}

void SCHED_OP(maximal_tick, struct task_struct *p)
{
}

void SCHED_OP(maximal_runnable, struct task_struct *p, u64 enq_flags)
{
}

void SCHED_OP(maximal_running, struct task_struct *p)
{
}

void SCHED_OP(maximal_stopping, struct task_struct *p, bool runnable)
{
}

void SCHED_OP(maximal_quiescent, struct task_struct *p, u64 deq_flags)
{
}

bool SCHED_OP(maximal_yield, struct task_struct *from, struct task_struct *to)
{
	return false;
}

void SCHED_OP(maximal_set_cpumask, struct task_struct *p, const struct cpumask *mask)
{
}

void SCHED_OP(maximal_set_weight, struct task_struct *p, u32 weight)
{
}

void SCHED_OP(maximal_update_idle, s32 cpu, bool idle)
{
}

s32 SCHED_OP_SLEEPABLE(maximal_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	return 0;
}

void SCHED_OP(maximal_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
}

void SCHED_OP(maximal_enable, struct task_struct *p)
{
}

void SCHED_OP(maximal_disable, struct task_struct *p)
{
}

s32 SCHED_OP_SLEEPABLE(maximal_init)
{
	return scx_bpf_create_dsq(SHARED_DSQ, -1);
}

SCHED_OPS(maximal_ops,
	  .select_cpu = (void *)maximal_select_cpu,
	  .enqueue = (void *)maximal_enqueue,
	  .dequeue = (void *)maximal_dequeue,
	  .dispatch = (void *)maximal_dispatch,
	  .tick = (void *)maximal_tick,
	  .runnable = (void *)maximal_runnable,
	  .running = (void *)maximal_running,
	  .stopping = (void *)maximal_stopping,
	  .quiescent = (void *)maximal_quiescent,
	  .yield = (void *)maximal_yield,
	  .set_cpumask = (void *)maximal_set_cpumask,
	  .set_weight = (void *)maximal_set_weight,
	  .update_idle = (void *)maximal_update_idle,
	  .init_task = (void *)maximal_init_task,
	  .exit_task = (void *)maximal_exit_task,
	  .enable = (void *)maximal_enable,
	  .disable = (void *)maximal_disable,
	  .init = (void *)maximal_init,
	  .flags = SCX_OPS_KEEP_BUILTIN_IDLE,
	  .name = "maximal");
