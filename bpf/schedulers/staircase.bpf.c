// SPDX-License-Identifier: GPL-2.0-only
/*
 * staircase: Con Kolivas' scheduler of 2006, priorities that go down a stair with each interval run.
 *
 * Rule: each CPU has one array and no expired one; the task of the best dynamic priority runs, among equals in
 * turn. A task begins on the stair of its nice value (100 to 139, lower is better), raised by its bonus. After
 * each interval of 6 ms that it has run (longer below nice 0) it is one stair lower; when it has run its whole
 * slice, as many intervals as there are stairs from its nice value down, it loses a point of bonus and begins
 * again on top. A task that slept longer than it ran gains a point, at most as many as it has stairs above it;
 * one that slept less goes on where it was. A task that wakes takes the CPU from one of worse priority.
 *
 * When a priority changes: when the task wakes (better after long sleeps, else as much worse as it ran), while
 * it runs (a stair down with each interval, back to the top after the slice), when it yields (to 139, the worst,
 * with a whole new slice), with its nice value. A child has no bonus and never inherits one; a parent that forks
 * gains nothing at its next wake-up. Nobody is charged for an exit. After uninterruptible sleep nothing is gained.
 *
 * State kept: of each task bonus, what is left of slice and interval, time run since the last sleep that was long
 * enough. A task's rank is its place: bits 1 to 8 are the dynamic priority.
 *
 * Good at: latency of tasks that sleep, without a guess at who is interactive; no long waits for anybody.
 * Fails at: throughput of many tasks, for the intervals are short; tasks at a low nice value, which go through
 * all stairs on every turn.
 *
 * Source: staircase v15 (linux-kernel, 2006-04-02), which is in PlugSched 6.3.2, and v16 (2006-06-18). `variant`
 * chooses where they and the slides of Nakajima 2006 differ: the interval below nice 0, and how a wake-up that
 * slept less than it ran goes on. Intervals and slices at nice 0 and above are the same in all three, and exact.
 *
 * Time in the kernel, which v15 counts as run twice over, is p->stime, as there by whole ticks.
 *
 * Not carried over to sched_ext: in v15 a child's times are copies of its parent's,
 * which can earn it a point at birth; compute mode (`sched_compute`) is left out; balancing is ingosched's here.
 * Real-time tasks are above, in the kernel's own class.
 */
#include "../include/schedlab.bpf.h"
#include "../include/arrays.bpf.h"

/* Whose rules. The slides' sign before the nice value may have been a minus or a product. */
enum variant {
	VARIANT_SLIDES,
	VARIANT_PRODUCT,
	VARIANT_V16,
};

KNOB(u32, variant, 0, choice, 0, 2, "Interval below nice 0, of R = 6 hz / 1001 + 1 jiffies: 0 is R - nice as the slides print it, 1 is R (1 - nice), both with v15's wake-ups; 2 is v16: R (20 - nice) / 20.");
KNOB(u32, interval_ms, 6, ms, 1, 1000, "Time on a stair: exact, 6 ms, rounded up to a jiffy.");
KNOB(bool, interactive, 1, bool, 0, 1, "Whether a bonus raises the first stair: exact, yes (sched_interactive).");

struct task {
	struct entity entity;
	/* ns run since it slept longer than that, and in its last stay on a CPU. */
	u64 total_run;
	u64 last_run;
	/* ns run that is not yet a jiffy. */
	u64 debit;
	/* p->stime when it last woke. */
	u64 stime;
	u32 bonus;
	/* Jiffies left of the interval; the entity's slice is that of all stairs. */
	u32 interval;
	/* Sleep in the kernel, or a fork: no gain at the next wake-up. */
	u8 no_gain;
	u8 forked;
};

#include "../include/tasks.bpf.h"

/* Stairs above the one of the nice value: also the highest bonus. */
static __always_inline u32 bonus_max(const struct task *task)
{
	return task->entity.static_prio - PRIO_BEST;
}

/* Jiffies on a stair. */
static __always_inline u32 interval_of(const struct task *task)
{
	u32 base = (u64)interval_ms * hz / 1001 + 1;
	u32 below;

	if (task->entity.static_prio >= PRIO_NICE_0)
		return base;
	below = PRIO_NICE_0 - task->entity.static_prio;
	if (variant == VARIANT_SLIDES)
		return base + below;
	if (variant == VARIANT_PRODUCT)
		return base * (1 + below);
	return base * (20 + below) / 20;
}

/* Jiffies of all stairs. */
static __always_inline u32 slice_of(const struct task *task)
{
	return interval_of(task) * (PRIO_WORST + 1 - task->entity.static_prio);
}

static __always_inline u32 effective_prio(const struct task *task, bool batch)
{
	u32 prio = task->entity.static_prio;
	u32 whole = slice_of(task);

	if (interactive && !batch)
		prio -= at_most(task->bonus, bonus_max(task));
	if (whole > task->entity.slice)
		prio += (whole - task->entity.slice) / at_least(interval_of(task), 1);
	return at_most(prio, PRIO_WORST);
}

static __always_inline void lose_bonus(struct task *task)
{
	if (task->bonus)
		task->bonus -= 1;
}

/* A gain for a sleep longer than the run, if the ratio of the two says that the task may have more. */
static __always_inline void gain_bonus(struct task *task, u64 slept)
{
	if (task->bonus < slept / (task->total_run + 1) && task->bonus < bonus_max(task))
		task->bonus += 1;
}

/* What it ran since its last long sleep is taken off the new slice: it goes on where it was. */
static __always_inline void go_on_down(struct task *task)
{
	u32 ran = task->total_run / jiffy_ns();
	u32 rest;

	task->entity.slice -= ran;
	if (variant != VARIANT_V16 && task->entity.slice <= task->interval) {
		task->total_run = 0;
		lose_bonus(task);
	}
	rest = task->entity.slice % at_least(interval_of(task), 1);
	if (rest)
		task->interval = rest;
}

/* v15: a wake-up after so long a sleep. Less sleep than run is taken off the run, as unsigned numbers. */
static __always_inline void wake_v15(struct task *task, u64 slept, u64 system)
{
	bool overrun;

	task->total_run += task->last_run + 2 * system;
	slept -= at_most(2 * system, slept);
	if (slept >= task->total_run && !task->no_gain && !task->forked) {
		gain_bonus(task, slept);
		task->total_run = 0;
		return;
	}
	overrun = slept > task->total_run;
	task->total_run -= slept;
	if (overrun || task->total_run / jiffy_ns() >= task->entity.slice || task->entity.prio == PRIO_WORST) {
		task->total_run = 0;
		lose_bonus(task);
	} else {
		go_on_down(task);
	}
}

/* v16: the same; who reached the last stair begins anew, and a fork counts the sleep as none. */
static __always_inline void wake_v16(struct task *task, u64 slept, u64 system)
{
	u64 before = task->total_run / jiffy_ns();
	u64 slice = at_least(task->entity.slice, 1) * jiffy_ns();

	if (task->entity.slice > task->interval && task->entity.slice < before + task->interval) {
		task->total_run = 0;
		lose_bonus(task);
		return;
	}
	task->total_run += task->last_run + system;
	slept = task->forked ? 0 : slept - at_most(system, slept);
	if (slept >= task->total_run && !task->forked) {
		if (!task->no_gain)
			gain_bonus(task, slept);
		task->total_run = 0;
		return;
	}
	task->total_run -= slept;
	if (task->total_run / jiffy_ns() < task->entity.slice) {
		go_on_down(task);
		return;
	}
	task->bonus -= at_most(at_least((task->total_run - 1) / slice, 1), task->bonus);
	task->total_run %= slice;
}

/* A whole slice, of which what was run without enough sleep is taken off. */
static __always_inline void activate(struct task_struct *p, struct task *task, u64 now)
{
	u64 system = p->stime - task->stime;
	u32 interval = at_least(interval_of(task), 1);

	task->entity.slice = slice_of(task);
	task->interval = interval;
	if (variant == VARIANT_V16)
		wake_v16(task, now - task->entity.since, system);
	else
		wake_v15(task, now - task->entity.since, system);
	task->stime = p->stime;
	task->no_gain = 0;
	task->forked = 0;
}

static __always_inline void charge_run(struct task *task, u64 now)
{
	task->last_run = now - task->entity.since;
	task->entity.since = now;
}

s32 SCHED_OP(staircase_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	struct task *task = task_of(p);

	if (task)
		note_waker(task, wake_flags);
	return select_idle(p, prev_cpu, wake_flags);
}

void SCHED_OP(staircase_runnable, struct task_struct *p, u64 enq_flags)
{
	struct task *task = task_of(p);
	u64 now = clock_ns();

	if (!task)
		return;
	if (task->entity.is_new) {
		task->entity.since = now;
		return;
	}
	if (!(enq_flags & KERNEL_CONST(scx_enq_flags, SCX_ENQ_WAKEUP)))
		return;
	activate(p, task, now);
	set_prio(p, &task->entity, effective_prio(task, is_batch(p)), CAUSE_SLEPT);
	task->entity.place = PLACE_TAIL;
	task->entity.since = now;
}

void SCHED_OP(staircase_enqueue, struct task_struct *p, u64 enq_flags)
{
	enqueue_task(p, enq_flags);
}

void SCHED_OP(staircase_dispatch, s32 cpu, struct task_struct *prev)
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

void SCHED_OP(staircase_running, struct task_struct *p)
{
	struct task *task = task_of(p);

	if (task)
		begin_running(p, &task->entity, clock_ns());
}

void SCHED_OP(staircase_stopping, struct task_struct *p, bool runnable)
{
	struct runqueue *rq = runqueue_of(scx_bpf_task_cpu(p));
	struct task *task = task_of(p);
	u64 now = clock_ns();

	if (task) {
		task->debit += (now - rq->tick_at) % jiffy_ns();
		charge_run(task, now);
	}
	end_running(p, now);
}

void SCHED_OP(staircase_quiescent, struct task_struct *p, u64 deq_flags)
{
	struct task *task = task_of(p);

	if (!task || !(deq_flags & KERNEL_CONST(scx_deq_flags, SCX_DEQ_SLEEP)))
		return;
	task->debit = 0;
	if (p->__state & UNINTERRUPTIBLE)
		task->no_gain = 1;
}

/* The interval is over: to the tail of the stair where the task is now. */
static __always_inline void next_stair(struct task_struct *p, struct task *task)
{
	task->interval = interval_of(task);
	task->debit = 0;
	set_prio(p, &task->entity, effective_prio(task, is_batch(p)), CAUSE_RAN);
	requeue(p, &task->entity, false);
}

void SCHED_OP(staircase_tick, struct task_struct *p)
{
	struct task *task = task_of(p);
	u64 now = clock_ns();
	u32 ran = jiffies_ran(runqueue_of(scx_bpf_task_cpu(p)), now);

	if (!task || !ran)
		return;
	task->debit += now - task->entity.since;
	if (task->debit < jiffy_ns())
		return;
	task->debit %= jiffy_ns();
	if (task->entity.slice <= ran) {
		lose_bonus(task);
		task->total_run = 0;
		task->entity.slice = slice_of(task);
		next_stair(p, task);
		return;
	}
	task->entity.slice -= ran;
	if (task->interval <= ran)
		next_stair(p, task);
	else
		task->interval -= ran;
}

/* A whole new slice, but from the lowest stair. */
bool SCHED_OP(staircase_yield, struct task_struct *from, struct task_struct *to)
{
	struct task *task = task_of(from);

	if (!task)
		return false;
	task->entity.slice = slice_of(task);
	task->interval = interval_of(task);
	task->debit = 0;
	set_prio(from, &task->entity, PRIO_WORST, CAUSE_YIELDED);
	requeue(from, &task->entity, false);
	return false;
}

void SCHED_OP(staircase_set_weight, struct task_struct *p, u32 weight)
{
	struct task *task = task_of(p);

	if (!task)
		return;
	change_nice(p, &task->entity);
	task->bonus = at_most(task->bonus, bonus_max(task));
}

s32 SCHED_OP_SLEEPABLE(staircase_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	struct task *forker;
	struct task *task = make_task(p, args->fork, &forker);

	if (!task)
		return -ENOMEM;
	task->entity.slice = slice_of(task);
	task->interval = interval_of(task);
	task->stime = p->stime;
	if (forker)
		forker->forked = 1;
	return 0;
}

void SCHED_OP(staircase_enable, struct task_struct *p)
{
	enable_task(p);
}

s32 SCHED_OP_SLEEPABLE(staircase_init)
{
	return create_queues();
}

void SCHED_OP(staircase_exit, struct scx_exit_info *info)
{
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(staircase_ops,
	  .select_cpu = (void *)staircase_select_cpu,
	  .enqueue = (void *)staircase_enqueue,
	  .dispatch = (void *)staircase_dispatch,
	  .tick = (void *)staircase_tick,
	  .runnable = (void *)staircase_runnable,
	  .running = (void *)staircase_running,
	  .stopping = (void *)staircase_stopping,
	  .quiescent = (void *)staircase_quiescent,
	  .yield = (void *)staircase_yield,
	  .set_weight = (void *)staircase_set_weight,
	  .init_task = (void *)staircase_init_task,
	  .enable = (void *)staircase_enable,
	  .init = (void *)staircase_init,
	  .exit = (void *)staircase_exit,
	  .name = "staircase");
