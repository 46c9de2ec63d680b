// SPDX-License-Identifier: GPL-2.0-only
/*
 * vtime: weighted virtual time.
 *
 * Rule: of all tasks that wait under a last-level cache, the one with the least virtual time runs next. A
 * task's virtual time advances with the CPU time it uses, divided by its weight, so that CPU time is shared
 * in proportion to weight. A task that slept resumes at most one slice behind the others: sleeping saves up
 * no more credit. A task whose slice is over goes on with another if it is still due first. A CPU whose cache has
 * nothing to run takes from the other caches, so that none idles while a task waits that may run there.
 *
 * State kept: one global virtual time (that of the furthest task that started), a queue for each last-level
 * cache, the virtual time of each task, which the kernel stores in the task and which is its rank, and for each
 * CPU how much of its task's slice is charged.
 *
 * Good at: fair shares between tasks that always want to run; short waits for tasks that run briefly.
 * Fails at: fairness between caches (a cache with fewer tasks serves them faster as long as it has any), and
 * fine interleaving: nobody is preempted before its slice is over.
 *
 * Source: virtual time is that of weighted fair queueing (Demers, Keshav, Shenker 1989).
 */
#include "../include/schedlab.bpf.h"
#include "../include/placement.bpf.h"
#include "../include/weights.bpf.h"

KNOB(u64, slice_ns, 20000000, ns, 100000, 1000000000, "Longest time a task runs before another may.");
KNOB(u64, credit_ns, 20000000, ns, 0, 1000000000, "Virtual time a task that slept may be behind the others.");

/* Virtual time of the furthest task that started, in ns of a task of weight 1024. */
static u64 vtime_now;

/* For each CPU, what was left of its task's slice when that was last charged. */
static u64 slice_charged[CPUS_MAX];

EXIT_RECORD(exit_record);

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

	if (vtime_before(vtime, vtime_now - credit_ns))
		vtime = vtime_now - credit_ns;
	dsq_insert_vtime(p, llc_of(scx_bpf_task_cpu(p)), slice_ns, vtime, enq_flags);
	kick_idle_for(p, enq_flags);
}

static u64 *slice_charged_of(const struct task_struct *p)
{
	return &slice_charged[(u32)scx_bpf_task_cpu(p) % CPUS_MAX];
}

/*
 * Advances the virtual time of the task of a CPU by what it has used since it came or was last charged. It may stop
 * and run again within a slice: when a higher class comes between, or its attributes change.
 */
static void charge(struct task_struct *p)
{
	u64 *charged = slice_charged_of(p);
	u64 left = p->scx.slice;

	if (left < *charged)
		set_dsq_vtime(p, p->scx.dsq_vtime + (*charged - left) * 1024 / weight_of(p));
	*charged = left;
}

/* A task starts a slice, or goes on with one. */
static void start(struct task_struct *p, u64 slice)
{
	if (vtime_before(vtime_now, p->scx.dsq_vtime))
		vtime_now = p->scx.dsq_vtime;
	*slice_charged_of(p) = slice;
}

static void renew_slice(struct task_struct *p)
{
	set_slice(p, slice_ns);
	start(p, slice_ns);
}

void SCHED_OP(vtime_dispatch, s32 cpu, struct task_struct *prev)
{
	bool runnable = can_go_on(prev);
	u32 own = llc_of(cpu);
	u32 llc;

	if (runnable) {
		charge(prev);
		if (vtime_before(prev->scx.dsq_vtime, head_vtime(own, prev->scx.dsq_vtime))) {
			renew_slice(prev);
			return;
		}
	}
	if (dsq_move_to_local(own))
		return;
	for (llc = 0; llc < LLCS_MAX; llc++) {
		if (llc >= llc_count)
			break;
		if (llc != own && dsq_move_to_local(llc))
			return;
	}
	/* Nobody else is there. Left alone, the kernel would renew the slice to a length of its own. */
	if (runnable)
		renew_slice(prev);
}

void SCHED_OP(vtime_running, struct task_struct *p)
{
	start(p, p->scx.slice);
}

void SCHED_OP(vtime_stopping, struct task_struct *p, bool runnable)
{
	charge(p);
}

void SCHED_OP(vtime_enable, struct task_struct *p)
{
	set_dsq_vtime(p, vtime_now);
}

s32 SCHED_OP_SLEEPABLE(vtime_init)
{
	u32 llc;
	s32 error;

	for (llc = 0; llc < LLCS_MAX; llc++) {
		if (llc >= llc_count)
			break;
		error = scx_bpf_create_dsq(llc, -1);
		if (error)
			return error;
	}
	return 0;
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
