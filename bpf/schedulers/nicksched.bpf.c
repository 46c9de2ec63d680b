// SPDX-License-Identifier: GPL-2.0-only
/*
 * nicksched: Nick Piggin's scheduler of 2003, priority from the share of time slept.
 *
 * Rule: each CPU has an active and an expired array as in ingosched, but whose slice is over always goes to the
 * expired one: nobody returns to the active array. Of the last second, older time counting ever less, a task's
 * sleep average is the part it slept of the time it slept or ran; it moves the priority from 10 levels worse
 * (never sleeps) to 10 better (never runs) than that of the nice value. There are 60 levels, 100 to 159, nice 0
 * at 130. A slice depends on how far a task is from the best one that runs or has expired: the best has much,
 * the next about half, those far off a jiffy. A task that wakes takes the CPU from one of worse priority.
 *
 * When a priority changes: when the task wakes (a sleep counts up to 250 ms), when its slice is over (so does
 * what it ran; waiting only makes the past count less), with its nice value. A fork takes a quarter of the
 * parent's sleep off, shares what is left of the slice out between the two, and gives the child a quarter of the
 * parent's history with the same average; the child is queued like any other and preempts nobody. A child that
 * ends in its first slice returns the rest; one that slept less than its parent charges the parent for half the
 * difference. Yielding changes no priority: the task goes to the expired array. Slices are never stored: what a
 * task has used of one is compared with what it would get now, and forgotten if it sleeps while the arrays are
 * switched.
 *
 * State kept: of each task sleep and total time, and how much of the slice is used; of each CPU the number of the
 * active array and the best priority in the expired one. A task's rank is its place: bits 1 to 8 are the priority.
 *
 * Good at: keeping the best task fast, whatever load there is.
 * Fails at: everybody else, who get slices of a jiffy or two, so that load hardly runs.
 *
 * Source: N. Piggin, "Nick's scheduler policy v13" (linux-kernel, 2003-09-08): history, priorities, fork and exit
 * are exact from there. `formula` chooses the slice: that of the slides of Nakajima 2006, which is PlugSched 6.3.2's
 * (whose source is lost), or that of v13.
 *
 * Not carried over to sched_ext: balancing is that of ingosched here; a fork with one jiffy left ends the parent's
 * slice at the next tick, not at once; the rest of a child's slice returns when the kernel frees the child.
 * Real-time tasks are above, in the kernel's own class, with the kernel's slices.
 */
#include "../include/schedlab.bpf.h"

/* Exact. Nice 0 is 130, the worst priority 159. */
#define PRIO_OFFSET 10
#define LEVEL_WORST 159
#define LEVELS 60

#include "../include/arrays.bpf.h"

/* Which formula slices follow. */
enum formula {
	FORMULA_SLIDES,
	FORMULA_V13,
};

KNOB(u32, formula, 0, choice, 0, 1, "Slice of a task D levels from the best, which is at M: 0 is (60 / (D + 2))^2 (40 / (170 - M))^2 / slice_divisor ms as on the slides, 1 is that of v13.");
KNOB(u32, slice_divisor, 4, times, 1, 1000, "Divides slices by the slides' formula: 4 as they print it, if the sign lost before it was a division; calibrated.");
KNOB(u32, history_ms, 1000, ms, 16, 100000, "How far back the history reaches: exact, 1 s. What one sleep or run can change is a quarter, the least history half of it.");

/* Exact. Scale of times and averages. */
#define SCALE 1024

enum activity {
	ACTIVITY_SLEEP,
	ACTIVITY_RUN,
	ACTIVITY_WAIT,
};

struct task {
	struct entity entity;
	/* Jiffies times SCALE: slept, and slept or run. */
	u64 sleep_time;
	u64 total_time;
	/* 0 to SCALE. */
	u64 sleep_avg;
	/* The active array when it went to sleep. */
	u64 epoch;
	/* It is in its first slice, half of its parent's. */
	u8 first_slice;
};

#include "../include/tasks.bpf.h"

static __always_inline u64 history(void)
{
	return at_least(jiffies_of_ms(history_ms), 16);
}

/* No history is shorter, so that one sleep does not decide everything. */
static __always_inline void keep_least(struct task *task)
{
	u64 least = SCALE * (history() / 2);

	if (task->total_time >= least)
		return;
	task->total_time = least;
	task->sleep_time = least * task->sleep_avg / SCALE;
}

/* So many jiffies of an activity go into the history, and what was before fades. */
static __always_inline void add_time(struct task *task, u64 jiffies, enum activity activity)
{
	u64 all = history();
	u64 most = activity == ACTIVITY_WAIT ? all / 16 : all / 4;

	if (!jiffies)
		return;
	jiffies = at_most(jiffies, most);
	task->total_time = ((all - jiffies) * task->total_time + all / 2) / all;
	task->sleep_time = ((all - jiffies) * task->sleep_time + all / 2) / all;
	if (activity != ACTIVITY_WAIT) {
		task->total_time += SCALE * jiffies;
		if (activity == ACTIVITY_SLEEP)
			task->sleep_time += SCALE * jiffies;
		task->sleep_avg = SCALE * task->sleep_time / task->total_time;
	}
	keep_least(task);
}

/* Jiffies since the task's last stamp, which is set to now. */
static __always_inline u64 take_jiffies(struct task *task, u64 now)
{
	u64 passed = now / jiffy_ns() - task->entity.since / jiffy_ns();

	task->entity.since = now;
	return passed;
}

/* Ten levels worse than the nice value without sleep, ten better with nothing else. */
static __always_inline u32 prio_of(const struct task *task)
{
	u32 bonus = (LEVELS / 3 * task->sleep_avg + SCALE / 2) / SCALE;

	return at_most(at_least(task->entity.static_prio + 10 - bonus, PRIO_BEST), LEVEL_WORST);
}

/* Jiffies of a slice for a task this far from the best. */
static __always_inline u32 slice_at(u32 distance, u32 best)
{
	u64 near = distance + 2;
	u64 far = 170 - at_most(best, LEVEL_WORST);
	u64 divisor = near * near * far * far * 1000 * slice_divisor;
	u64 slice;

	if (formula == FORMULA_V13)
		slice = at_least(hz / 1000, 1) * (LEVELS + 1) / near * (best - PRIO_BEST + 8) / 24;
	else
		slice = (60ULL * 60 * 40 * 40 * hz + divisor / 2) / divisor;
	return at_least(slice, 1);
}

/* Jiffies of a task's slice as things are now. */
static __always_inline u32 slice_of(const struct task *task, s32 cpu)
{
	u64 best = at_most(task->entity.prio, runqueue_of(cpu)->best_expired);
	u64 head;

	if (formula == FORMULA_V13) {
		/* init_task asks too, which may sleep. */
		bpf_rcu_read_lock();
		head = head_vtime(cpu, ~0ULL);
		bpf_rcu_read_unlock();
		best = at_most(best, head >> 1 & 0xff);
	}
	return slice_at(task->entity.prio - best, best);
}

static __always_inline void charge_run(struct task *task, u64 now)
{
	add_time(task, take_jiffies(task, now), ACTIVITY_RUN);
}

s32 SCHED_OP(nicksched_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	struct task *task = task_of(p);

	if (task)
		note_waker(task, wake_flags);
	return select_idle(p, prev_cpu, wake_flags);
}

void SCHED_OP(nicksched_runnable, struct task_struct *p, u64 enq_flags)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct task *task = task_of(p);
	u64 now = clock_ns();

	if (!task)
		return;
	if (task->entity.is_new) {
		task->entity.since = now;
		task->entity.is_new = 0;
		return;
	}
	if (!(enq_flags & KERNEL_CONST(scx_enq_flags, SCX_ENQ_WAKEUP)))
		return;
	add_time(task, take_jiffies(task, now), ACTIVITY_SLEEP);
	set_prio(p, &task->entity, prio_of(task), CAUSE_SLEPT);
	if (task->epoch != runqueue_of(cpu)->epoch)
		task->entity.slice = 0;
	task->entity.expired = 0;
	task->entity.place = PLACE_TAIL;
}

void SCHED_OP(nicksched_enqueue, struct task_struct *p, u64 enq_flags)
{
	enqueue_task(p, enq_flags);
}

void SCHED_OP(nicksched_dispatch, s32 cpu, struct task_struct *prev)
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

void SCHED_OP(nicksched_running, struct task_struct *p)
{
	struct task *task = task_of(p);
	u64 now = clock_ns();

	if (!task)
		return;
	add_time(task, take_jiffies(task, now), ACTIVITY_WAIT);
	begin_running(p, &task->entity, now);
}

void SCHED_OP(nicksched_stopping, struct task_struct *p, bool runnable)
{
	struct task *task = task_of(p);
	u64 now = clock_ns();

	if (task)
		charge_run(task, now);
	end_running(p, now);
}

void SCHED_OP(nicksched_quiescent, struct task_struct *p, u64 deq_flags)
{
	struct task *task = task_of(p);

	if (task && deq_flags & KERNEL_CONST(scx_deq_flags, SCX_DEQ_SLEEP))
		task->epoch = runqueue_of(scx_bpf_task_cpu(p))->epoch;
}

/* The entity's slice is what is used of it here. */
void SCHED_OP(nicksched_tick, struct task_struct *p)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct runqueue *rq = runqueue_of(cpu);
	struct task *task = task_of(p);

	if (!task)
		return;
	task->entity.slice += jiffies_ran(rq, clock_ns());
	if (task->entity.slice < slice_of(task, cpu))
		return;
	set_prio(p, &task->entity, prio_of(task), CAUSE_RAN);
	task->entity.slice = 0;
	task->first_slice = 0;
	rq->best_expired = at_most(rq->best_expired, task->entity.prio);
	requeue(p, &task->entity, true);
}

bool SCHED_OP(nicksched_yield, struct task_struct *from, struct task_struct *to)
{
	struct runqueue *rq = runqueue_of(scx_bpf_task_cpu(from));
	struct task *task = task_of(from);

	if (task) {
		rq->best_expired = at_most(rq->best_expired, task->entity.prio);
		requeue(from, &task->entity, true);
	}
	return false;
}

void SCHED_OP(nicksched_set_weight, struct task_struct *p, u32 weight)
{
	struct task *task = task_of(p);

	if (task)
		change_nice(p, &task->entity);
}

/* The slice is shared out, the child has a quarter of the history, the parent loses a quarter of its sleep. */
static __always_inline void fork_from(struct task *forker, struct task *child, s32 cpu)
{
	u32 whole = slice_of(forker, cpu);
	u32 used = at_most(forker->entity.slice, whole);

	child->first_slice = 1;
	child->entity.slice = used + (whole - used) / 2;
	forker->entity.slice = at_most(used + (whole - used + 1) / 2, whole - 1);
	child->total_time = forker->total_time / 4;
	child->sleep_time = forker->sleep_time / 4;
	child->sleep_avg = forker->sleep_avg;
	keep_least(child);
	forker->sleep_time = 3 * forker->sleep_time / 4;
	if (forker->total_time)
		forker->sleep_avg = SCALE * forker->sleep_time / forker->total_time;
	child->entity.prio = forker->entity.prio;
}

s32 SCHED_OP_SLEEPABLE(nicksched_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	struct task *forker;
	struct task *task = make_task(p, args->fork, &forker);

	if (!task)
		return -ENOMEM;
	if (!forker) {
		/* Calibrated: of a task that was there before, nothing is known, so neither bonus nor penalty. */
		task->sleep_avg = SCALE / 2;
		keep_least(task);
		return 0;
	}
	fork_from(forker, task, bpf_get_smp_processor_id());
	set_prio(p, &task->entity, prio_of(task), CAUSE_BORN);
	return 0;
}

void SCHED_OP(nicksched_enable, struct task_struct *p)
{
	enable_task(p);
}

/* The rest of the first slice returns, and a child that slept less charges its parent for it. */
static __always_inline void end_life(struct task *child, struct task *forker, s32 cpu)
{
	u32 whole = slice_of(child, cpu);

	if (child->first_slice && child->entity.slice < whole)
		forker->entity.slice -= at_most(whole - child->entity.slice, forker->entity.slice);
	if (child->sleep_avg < forker->sleep_avg)
		add_time(forker, history() * (forker->sleep_avg - child->sleep_avg) / SCALE / 2, ACTIVITY_RUN);
}

void SCHED_OP(nicksched_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
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
		end_life(task, forker, scx_bpf_task_cpu(p));
	bpf_task_release(parent);
}

s32 SCHED_OP_SLEEPABLE(nicksched_init)
{
	return create_queues();
}

void SCHED_OP(nicksched_exit, struct scx_exit_info *info)
{
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(nicksched_ops,
	  .select_cpu = (void *)nicksched_select_cpu,
	  .enqueue = (void *)nicksched_enqueue,
	  .dispatch = (void *)nicksched_dispatch,
	  .tick = (void *)nicksched_tick,
	  .runnable = (void *)nicksched_runnable,
	  .running = (void *)nicksched_running,
	  .stopping = (void *)nicksched_stopping,
	  .quiescent = (void *)nicksched_quiescent,
	  .yield = (void *)nicksched_yield,
	  .set_weight = (void *)nicksched_set_weight,
	  .init_task = (void *)nicksched_init_task,
	  .exit_task = (void *)nicksched_exit_task,
	  .enable = (void *)nicksched_enable,
	  .init = (void *)nicksched_init,
	  .exit = (void *)nicksched_exit,
	  .name = "nicksched");
