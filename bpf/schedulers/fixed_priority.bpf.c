// SPDX-License-Identifier: GPL-2.0-only
/*
 * fixed_priority: strict order of nice values, no dynamic priority.
 *
 * Rule: of all tasks that wait, one with the lowest nice value runs; among equals, first come, first served.
 * A task that wakes takes the CPU it ran on last from a weaker one at once. The stronger a task, the longer
 * its slice: in proportion to 20 - nice, so that nice 0 gets `slice_ns`; when it is over, equals take turns.
 * Nothing a task does changes its place: neither sleeping nor using the CPU earns or costs anything.
 *
 * State kept: one queue, ordered by static_prio; that number is the rank of a task.
 *
 * Good at: predictable precedence; latency of the strongest tasks, whatever else runs.
 * Fails at: everything weaker while something stronger is runnable: weak tasks starve, for ever if need be.
 *
 * Source: the O(1) scheduler of Linux 2.6 without its interactivity bonus: priority order, round robin in a
 * level, slices longer for stronger tasks.
 */
#include "../include/schedlab.bpf.h"
#include "../include/placement.bpf.h"

/* Any number that is not a CPU's local queue. */
#define SHARED_DSQ 0
/* static_prio runs from 100 (nice -20) to 139 (nice 19). */
#define PRIO_END 140
#define PRIO_NICE_0 120

KNOB(u64, slice_ns, 20000000, ns, 100000, 1000000000, "Slice of a task of nice 0; others in proportion to 20 - nice.");
KNOB(u64, slice_min_ns, 1000000, ns, 100000, 100000000, "Shortest slice, whatever the nice value.");
KNOB(bool, wakeup_preemption, 1, bool, 0, 1, "Whether a task that wakes takes its CPU from a weaker one at once.");

EXIT_RECORD(exit_record);

static u64 slice_of(const struct task_struct *p)
{
	u32 prio = p->static_prio;
	u64 slice;

	if (prio >= PRIO_END)
		prio = PRIO_END - 1;
	slice = slice_ns * (PRIO_END - prio) / (PRIO_END - PRIO_NICE_0);
	return slice > slice_min_ns ? slice : slice_min_ns;
}

s32 SCHED_OP(fixed_priority_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	bool is_idle = false;
	s32 cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &is_idle);

	if (is_idle)
		dsq_insert(p, KERNEL_CONST(scx_dsq_id_flags, SCX_DSQ_LOCAL), slice_of(p), 0);
	return cpu;
}

/* Ends the slice of the task on `cpu` if it is weaker than `p`. */
static void preempt_weaker(const struct task_struct *p, s32 cpu)
{
	struct task_struct *curr;
	bool weaker = false;

	bpf_rcu_read_lock();
	curr = cpu_curr(cpu);
	if (curr)
		weaker = curr->static_prio > p->static_prio;
	bpf_rcu_read_unlock();
	if (weaker)
		scx_bpf_kick_cpu(cpu, KERNEL_CONST(scx_kick_flags, SCX_KICK_PREEMPT));
}

void SCHED_OP(fixed_priority_enqueue, struct task_struct *p, u64 enq_flags)
{
	dsq_insert_vtime(p, SHARED_DSQ, slice_of(p), p->static_prio, enq_flags);
	kick_idle_for(p, enq_flags);
	if (wakeup_preemption && (enq_flags & KERNEL_CONST(scx_enq_flags, SCX_ENQ_WAKEUP)))
		preempt_weaker(p, scx_bpf_task_cpu(p));
}

void SCHED_OP(fixed_priority_dispatch, s32 cpu, struct task_struct *prev)
{
	if (can_go_on(prev) && prev->static_prio < head_vtime(SHARED_DSQ, 0)) {
		set_slice(prev, slice_of(prev));
		return;
	}
	dsq_move_to_local(SHARED_DSQ);
}

s32 SCHED_OP_SLEEPABLE(fixed_priority_init)
{
	return scx_bpf_create_dsq(SHARED_DSQ, -1);
}

void SCHED_OP(fixed_priority_exit, struct scx_exit_info *info)
{
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(fixed_priority_ops,
	  .select_cpu = (void *)fixed_priority_select_cpu,
	  .enqueue = (void *)fixed_priority_enqueue,
	  .dispatch = (void *)fixed_priority_dispatch,
	  .init = (void *)fixed_priority_init,
	  .exit = (void *)fixed_priority_exit,
	  .name = "fixed_priority");
