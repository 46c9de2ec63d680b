// SPDX-License-Identifier: GPL-2.0-only
/*
 * vtime: weighted virtual time.
 *
 * Rule: of all tasks that wait, the one with the least virtual time runs next. A task's virtual time
 * advances with the CPU time it uses, divided by its weight, so that CPU time is shared in proportion to
 * weight. A task that slept resumes at most one slice behind the others: sleeping saves up no more credit.
 *
 * State kept: one global virtual time (that of the last task that started), one queue for all CPUs, and
 * the virtual time of each task, which the kernel stores in the task.
 *
 * Good at: fair shares between tasks that always want to run; short waits for tasks that run briefly.
 * Fails at: many CPUs (all contend for one queue) and cache locality (tasks wander).
 *
 * Source: the idea of virtual time is that of weighted fair queueing (Demers, Keshav, Shenker 1989).
 */
#include "../include/schedlab.bpf.h"

/* Any number that is not a CPU's local queue. */
#define SHARED_DSQ 0

KNOB(u64, slice_ns, 20000000, ns, 100000, 1000000000, "Longest time a task runs before another may.");

/* Virtual time of the task that started last, in ns of a task of weight 1024. */
static u64 vtime_now;

EXIT_RECORD(exit_record);

/*
 * Weight of each nice value from -20 to 19: exact, as Linux has them. p->scx.weight is rounded to a scale
 * of 1 to 10000 (nice 19 is a third off), so the weight comes from static_prio.
 */
static const u32 weight_of_nice[40] = {
	88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916,
	9548,  7620,  6100,  4904,  3906,  3121,  2501,  1991,  1586,  1277,
	1024,  820,   655,   526,   423,   335,   272,   215,   172,   137,
	110,   87,    70,    56,    45,    36,    29,    23,    18,    15,
};

static u32 weight_of(const struct task_struct *p)
{
	u32 index = p->static_prio - 100;

	return index < 40 ? weight_of_nice[index] : 1024;
}

static bool vtime_before(u64 a, u64 b)
{
	return (s64)(a - b) < 0;
}

s32 SCHED_OP(vtime_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	bool is_idle = false;
	s32 cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &is_idle);

	if (is_idle)
		dsq_insert(p, KERNEL_CONST(scx_dsq_id_flags, SCX_DSQ_LOCAL), slice_ns, 0);
	return cpu;
}

void SCHED_OP(vtime_enqueue, struct task_struct *p, u64 enq_flags)
{
	u64 vtime = p->scx.dsq_vtime;

	if (vtime_before(vtime, vtime_now - slice_ns))
		vtime = vtime_now - slice_ns;
	dsq_insert_vtime(p, SHARED_DSQ, slice_ns, vtime, enq_flags);
}

void SCHED_OP(vtime_dispatch, s32 cpu, struct task_struct *prev)
{
	dsq_move_to_local(SHARED_DSQ);
}

void SCHED_OP(vtime_running, struct task_struct *p)
{
	if (vtime_before(vtime_now, p->scx.dsq_vtime))
		vtime_now = p->scx.dsq_vtime;
}

void SCHED_OP(vtime_stopping, struct task_struct *p, bool runnable)
{
	u64 slice = slice_ns;
	u64 left = p->scx.slice;
	u64 used = left < slice ? slice - left : 0;

	set_dsq_vtime(p, p->scx.dsq_vtime + used * 1024 / weight_of(p));
}

void SCHED_OP(vtime_enable, struct task_struct *p)
{
	set_dsq_vtime(p, vtime_now);
}

s32 SCHED_OP_SLEEPABLE(vtime_init)
{
	return scx_bpf_create_dsq(SHARED_DSQ, -1);
}

void SCHED_OP(vtime_exit, struct scx_exit_info *info)
{
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(vtime_ops,
	  .select_cpu = (void *)vtime_select_cpu,
	  .enqueue = (void *)vtime_enqueue,
	  .dispatch = (void *)vtime_dispatch,
	  .running = (void *)vtime_running,
	  .stopping = (void *)vtime_stopping,
	  .enable = (void *)vtime_enable,
	  .init = (void *)vtime_init,
	  .exit = (void *)vtime_exit,
	  .name = "vtime");
