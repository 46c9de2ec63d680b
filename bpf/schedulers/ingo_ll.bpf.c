// SPDX-License-Identifier: GPL-2.0-only
/*
 * ingo_ll: the O(1) scheduler with bonuses by measured latency.
 *
 * Rule: arrays, slices, interactive tasks and preemption are those of ingosched, but a task's bonus does not come
 * from how long it slept. Each time a task first runs after it woke, the time it waited is compared with a limit:
 * longer, and its bonus grows by a point; shorter than a 256th of the limit, and it shrinks by one. A task has a
 * bonus only if it needs one to be served in time. After interruptible sleeps the limit is fixed; after others it
 * grows with the number of tasks that run and with the time the task usually runs. One further point is for
 * every task that has woken from an interruptible sleep, until it has run.
 *
 * When a priority changes: when the task wakes (the point for waking, and what the last wait earned), when its
 * slice is over (a point less), with its nice value. Sleeping as such changes nothing, running only through
 * slices. A fork halves the parent's slice between the two; the child inherits the bonus and the parent loses
 * nothing; a child of another process runs first, with its parent's priority. A child that ends in its first
 * slice returns the rest. Yielding changes no priority: the task goes to the expired array.
 *
 * State kept: that of ingosched with, instead of the sleep average, bonus points, average latency and the
 * average time of a run. A task's rank is its place: bits 1 to 8 are the dynamic priority.
 *
 * Good at: a few tasks that wait too long: they get just the bonus they need.
 * Fails at: heavy load, where everybody waits longer than the limit and so has the highest bonus: all are
 * interactive, return to the active array, and the expired ones wait for the starvation limit.
 *
 * Source: P. Williams' patch to 2.6.15-rc7 of 2005-12-31 (linux-kernel), which became ingo_ll in PlugSched 6.3 of
 * 2006-02-10; that announcement compares an average instead of the last wait. The source of 6.3 is lost: the
 * constants are those of the patch, `by_average` chooses, and the limit was a parameter there too. That the average
 * begins with none, so that a first wait counts as a sixteenth of itself, is assumed. The announcement mentions neither
 * the point for having woken (`wake_point`) nor the one that the end of a slice costs (`slice_point`); by default
 * both are there, as in the patch.
 *
 * Not carried over to sched_ext: what ingosched says; whether a wake-up is an interrupt's does not matter here.
 */
#include "../include/schedlab.bpf.h"
#include "../include/arrays.bpf.h"

KNOB(u64, unacceptable_ia_latency_ns, 150000, ns, 0, 1000000000, "Wait after an interruptible sleep that earns a bonus point: from the patch, 150 us; 800 us in the one before it.");
KNOB(u32, acceptability_factor, 8, bits, 0, 63, "The limit divided by 2 to this power is the wait that costs a bonus point: exact, 8.");
KNOB(bool, by_average, 1, bool, 0, 1, "Whether the average of the waits is compared (PlugSched 6.3) or the last wait (the patch).");
KNOB(bool, wake_point, 1, bool, 0, 1, "Whether a task that has woken from an interruptible sleep has one further point until it has run, which waits cannot earn (the patch).");
KNOB(bool, slice_point, 1, bool, 0, 1, "Whether the end of a slice costs a bonus point (the patch).");

/* Exact. Averages are sums in which each older value counts 15 / 16 of the next. */
#define AVERAGE_BITS 4

struct task {
	struct entity entity;
	/* Decaying sums of waits and of runs, in ns. */
	u64 latency_sum;
	u64 run_sum;
	u32 latency_bonus;
	/* It is in its first slice, half of its parent's. */
	u8 first_slice;
	u8 just_woken;
	/* From an interruptible sleep. */
	u8 interactive_wake;
};

#include "../include/tasks.bpf.h"
#include "../include/o1.bpf.h"

/* 0 to MAX_BONUS: one point is kept for those that have just woken, if they get one. */
static __always_inline u32 current_bonus(const struct task *task)
{
	return at_most(task->latency_bonus + (wake_point && task->interactive_wake), MAX_BONUS);
}

static __always_inline u32 effective_prio(const struct task *task)
{
	return prio_with_bonus(&task->entity, current_bonus(task));
}

static __always_inline u64 decayed(u64 sum)
{
	return sum * ((1 << AVERAGE_BITS) - 1) >> AVERAGE_BITS;
}

static __always_inline u64 average_of(u64 sum)
{
	return (sum + (1 << (AVERAGE_BITS - 1))) >> AVERAGE_BITS;
}

/* The first run after a wake-up: a long wait earns a point, a very short one costs one. */
static __always_inline void judge_wait(const struct task_struct *p, struct task *task, s32 cpu, u64 now)
{
	u64 waited = now - task->entity.since;
	u64 limit = unacceptable_ia_latency_ns;

	task->latency_sum = decayed(task->latency_sum) + waited;
	if (by_average)
		waited = average_of(task->latency_sum);
	if (!task->interactive_wake)
		limit += average_of(task->run_sum) * (nr_running(cpu) - 1);
	task->just_woken = 0;
	task->interactive_wake = 0;
	if (is_batch(p))
		return;
	if (waited > limit)
		task->latency_bonus = at_most(task->latency_bonus + 1, MAX_BONUS - wake_point);
	else if (waited < limit >> (acceptability_factor & 63) && task->latency_bonus)
		task->latency_bonus -= 1;
}

static __always_inline void charge_run(struct task *task, u64 now)
{
	task->run_sum += now - task->entity.since;
	task->entity.since = now;
}

s32 SCHED_OP(ingo_ll_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	struct task *task = task_of(p);

	if (task)
		note_waker(task, wake_flags);
	return select_idle(p, prev_cpu, wake_flags);
}

void SCHED_OP(ingo_ll_runnable, struct task_struct *p, u64 enq_flags)
{
	struct task *task = task_of(p);
	u64 now = clock_ns();

	if (!task)
		return;
	if (task->entity.is_new) {
		task->entity.since = now;
		begin_life(p, task);
		return;
	}
	if (!(enq_flags & KERNEL_CONST(scx_enq_flags, SCX_ENQ_WAKEUP)))
		return;
	task->just_woken = 1;
	set_prio(p, &task->entity, effective_prio(task), CAUSE_SLEPT);
	task->entity.expired = is_batch(p);
	task->entity.place = PLACE_TAIL;
	task->entity.since = now;
}

void SCHED_OP(ingo_ll_enqueue, struct task_struct *p, u64 enq_flags)
{
	enqueue_task(p, enq_flags);
}

void SCHED_OP(ingo_ll_dispatch, s32 cpu, struct task_struct *prev)
{
	struct runqueue *rq = runqueue_of(cpu);
	u64 now = clock_ns();
	struct task *task = NULL;
	u64 head;

	if (balance(rq, cpu, now))
		return;
	head = head_vtime(cpu, ~0ULL);
	if (can_go_on(prev)) {
		task = task_of(prev);
		if (task && comes_first(&task->entity, cpu, head)) {
			charge_run(task, now);
			go_on(prev, &task->entity, rq);
			return;
		}
	}
	take_next(rq, cpu, head, task ? &task->entity : NULL);
}

void SCHED_OP(ingo_ll_running, struct task_struct *p)
{
	struct task *task = task_of(p);
	u64 now = clock_ns();

	if (!task)
		return;
	if (task->just_woken)
		judge_wait(p, task, scx_bpf_task_cpu(p), now);
	begin_running(p, &task->entity, now);
}

void SCHED_OP(ingo_ll_stopping, struct task_struct *p, bool runnable)
{
	struct task *task = task_of(p);
	u64 now = clock_ns();

	if (task) {
		charge_run(task, now);
		task->run_sum = decayed(task->run_sum);
	}
	end_running(p, now);
}

void SCHED_OP(ingo_ll_quiescent, struct task_struct *p, u64 deq_flags)
{
	struct task *task = task_of(p);

	if (task && deq_flags & KERNEL_CONST(scx_deq_flags, SCX_DEQ_SLEEP))
		task->interactive_wake = !(p->__state & UNINTERRUPTIBLE) && !is_batch(p);
}

void SCHED_OP(ingo_ll_tick, struct task_struct *p)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct runqueue *rq = runqueue_of(cpu);
	struct task *task = task_of(p);
	u32 ran = jiffies_ran(rq, clock_ns());

	if (!task || !ran)
		return;
	if (task->entity.slice > ran) {
		task->entity.slice -= ran;
		end_turn(p, &task->entity, ran, current_bonus(task));
		return;
	}
	task->first_slice = 0;
	if (slice_point && task->latency_bonus)
		task->latency_bonus -= 1;
	set_prio(p, &task->entity, effective_prio(task), CAUSE_RAN);
	end_slice(p, &task->entity, cpu, rq->ticked);
}

bool SCHED_OP(ingo_ll_yield, struct task_struct *from, struct task_struct *to)
{
	yield_task(from);
	return false;
}

void SCHED_OP(ingo_ll_set_weight, struct task_struct *p, u32 weight)
{
	struct task *task = task_of(p);

	if (!task)
		return;
	if (is_batch(p))
		task->latency_bonus = 0;
	change_nice(p, &task->entity);
}

s32 SCHED_OP_SLEEPABLE(ingo_ll_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	struct task *forker;
	struct task *task = make_task(p, args->fork, &forker);

	if (!task)
		return -ENOMEM;
	if (!forker) {
		/* Of a task that was there before, nothing is known. */
		task->entity.slice = slice_of(p->static_prio);
		task->latency_bonus = initial_bonus;
		return 0;
	}
	share_slice(forker, task);
	task->latency_bonus = forker->latency_bonus;
	set_prio(p, &task->entity, effective_prio(task), CAUSE_BORN);
	return 0;
}

void SCHED_OP(ingo_ll_enable, struct task_struct *p)
{
	enable_task(p);
}

void SCHED_OP(ingo_ll_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	struct task *task = task_of(p);
	struct task_struct *parent;
	struct task *forker;

	if (!task || args->cancelled)
		return;
	parent = parent_of(task);
	if (!parent)
		return;
	forker = task_of(parent);
	if (forker)
		return_slice(task, forker, scx_bpf_task_cpu(p) == scx_bpf_task_cpu(parent));
	bpf_task_release(parent);
}

s32 SCHED_OP_SLEEPABLE(ingo_ll_init)
{
	return create_queues();
}

void SCHED_OP(ingo_ll_exit, struct scx_exit_info *info)
{
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(ingo_ll_ops,
	  .select_cpu = (void *)ingo_ll_select_cpu,
	  .enqueue = (void *)ingo_ll_enqueue,
	  .dispatch = (void *)ingo_ll_dispatch,
	  .tick = (void *)ingo_ll_tick,
	  .runnable = (void *)ingo_ll_runnable,
	  .running = (void *)ingo_ll_running,
	  .stopping = (void *)ingo_ll_stopping,
	  .quiescent = (void *)ingo_ll_quiescent,
	  .yield = (void *)ingo_ll_yield,
	  .set_weight = (void *)ingo_ll_set_weight,
	  .init_task = (void *)ingo_ll_init_task,
	  .exit_task = (void *)ingo_ll_exit_task,
	  .enable = (void *)ingo_ll_enable,
	  .init = (void *)ingo_ll_init,
	  .exit = (void *)ingo_ll_exit,
	  .name = "ingo_ll");
