// SPDX-License-Identifier: GPL-2.0-only
/*
 * ingosched: the O(1) scheduler of Linux 2.6.
 *
 * Rule: each CPU has a run queue of two arrays, active and expired. Of the active array the task of the best
 * dynamic priority runs, among equals in turn. A task whose slice is over gets a new one and goes to the
 * expired array; when the active array is empty, the two change places. Dynamic priority is the nice value's
 * (100 to 139, lower is better) moved by -5 to +5 with the task's sleep average: sleeping raises the average,
 * up to 1 s, running lowers it, the more slowly the more there is. A task much better than its nice value
 * counts as interactive: when its slice is over it returns to the active array, unless the expired tasks
 * have waited for a second for each task that runs, or one of them has a better nice value. A task that wakes
 * takes the CPU from one of worse priority; one of SCHED_BATCH wakes in the expired array and never earns a
 * bonus. Slices depend on the nice value alone: 800 ms at -20, 420 at -1,
 * 100 at 0, 5 at 19.
 *
 * When a priority changes: when the task wakes (sleep average up, so better or the same; after long sleeps
 * up to a ceiling only), when it first runs after waking (the wait counts as sleep: all of it if a device
 * woke the task, 30 % otherwise), when its slice is over (what it ran has lowered the average), with its nice
 * value. A fork halves the parent's slice between the two and gives the child one bonus point less; the
 * parent's average is rounded down to a whole point. A child of another process runs first, with its parent's
 * priority. A child that ends in its first slice returns the rest, and one that slept less than its parent
 * pulls the parent's average a quarter of the way to its own. Yielding changes no priority: the task goes to
 * the expired array.
 *
 * State kept: of each task sleep average, slice left, dynamic priority and place; of each CPU the number of
 * its active array, when the first task expired and the best nice value that did. A task's rank is its place:
 * bits 1 to 8 are the dynamic priority.
 *
 * Good at: interactive tasks beside hogs; bounded waits for everybody else; a cheap decision.
 * Fails at: load that sleeps much and runs much, which it takes for interactive; children of such load, which
 * inherit the rating; tasks that wait at pipes and sockets as a way to be rated up.
 *
 * Source: kernel/sched.c of Linux 2.6.17, whose constants are the defaults here and exact but for those called
 * calibrated; the slices are also those of the slides of Nakajima 2006 (plugsched) where 1000 is a multiple of hz.
 *
 * Not carried over to sched_ext: (1) Whether a wake-up comes from an interrupt can be told only when it
 * interrupts an idle CPU; others count as wake-ups by tasks. (2) Sleeps marked TASK_NONINTERACTIVE (pipes)
 * no longer exist in the kernel and count as any other. (3) 2.6 pulls several tasks at once, the expired ones
 * first, by load averages over sched domains; here a CPU without work takes the best task of the longest
 * queue, and a busy one does so every `balance_ms` if that queue has two more; the one pulled runs at once.
 * (4) A fork with one jiffy left ends the parent's slice at the next tick, not at once. (5) The rest of a
 * child's slice returns when the kernel frees the child, and to the parent that forked it, if it is alive.
 * Real-time tasks are above, in the kernel's own class. SCHED_IDLE, newer than 2.6.17, is treated as SCHED_BATCH.
 */
#include "../include/schedlab.bpf.h"
#include "../include/arrays.bpf.h"

KNOB(u32, max_sleep_ms, 1000, ms, 10, 100000, "Highest sleep average: exact, 1 s.");
KNOB(u32, on_runqueue_weight, 30, percent, 0, 100, "How much of the wait after a wake-up by a task counts as sleep: exact, 30 % (38 / 128).");
KNOB(u32, child_penalty, 95, percent, 0, 100, "Of the parent's bonus that a child begins with, rounded down: exact, 95 %.");
KNOB(u32, parent_penalty, 100, percent, 0, 100, "Of its bonus that a parent keeps at a fork, rounded down: exact, 100 %.");
KNOB(bool, run_by_bonus, 1, bool, 0, 1, "Whether what a task ran lowers its average by that divided by its bonus points: exact, yes.");
KNOB(u32, exit_weight, 3, times, 0, 100, "How many times the parent's sleep average outweighs that of a child that ends: exact, 3.");

/* What the last sleep was, until the task has run after it. */
enum sleep_type {
	SLEEP_NORMAL,
	SLEEP_NONINTERACTIVE,
	SLEEP_INTERACTIVE,
	SLEEP_INTERRUPTED,
};

struct task {
	struct entity entity;
	/* ns, 0 to max_sleep_ms. */
	u64 sleep_avg;
	/* It is in its first slice, half of its parent's. */
	u8 first_slice;
	u8 sleep_type;
};

#include "../include/tasks.bpf.h"
#include "../include/o1.bpf.h"

static __always_inline u64 max_sleep_jiffies(void)
{
	return at_least(jiffies_of_ms(max_sleep_ms), 1);
}

static __always_inline u64 max_sleep_ns(void)
{
	return max_sleep_jiffies() * jiffy_ns();
}

/* 0 to MAX_BONUS. */
static __always_inline u32 current_bonus(const struct task *task)
{
	return at_most(task->sleep_avg / jiffy_ns() * MAX_BONUS / max_sleep_jiffies(), MAX_BONUS);
}

/* Sleep average of so many bonus points. */
static __always_inline u64 sleep_of_bonus(u32 bonus)
{
	return bonus * max_sleep_jiffies() / MAX_BONUS * jiffy_ns();
}

/* The sleep average at which a task is interactive for sure: longer sleeps are taken for idling. */
static __always_inline u64 interactive_sleep(const struct entity *entity)
{
	u64 points = MAX_BONUS / 2 + delta_plus_3(entity) - (5 - INTERACTIVE_DELTA) + 1;

	return (max_sleep_jiffies() * points / MAX_BONUS - 1) * jiffy_ns();
}

static __always_inline u32 effective_prio(const struct task *task)
{
	return prio_with_bonus(&task->entity, current_bonus(task));
}

/* So long a sleep, or wait after one, goes into the average. */
static __always_inline void credit_sleep(const struct task_struct *p, struct task *task, u64 slept)
{
	u64 most = max_sleep_ns();
	u64 idle_from = interactive_sleep(&task->entity);
	u64 ceiling = most - at_most(jiffies_of_ms(slice_default_ms) * jiffy_ns(), most);

	slept = is_batch(p) ? 0 : at_most(slept, most);
	if (!slept)
		return;
	if (p->mm && slept > idle_from) {
		task->sleep_avg = at_least(task->sleep_avg, ceiling);
		return;
	}
	if (p->mm && task->sleep_type == SLEEP_NONINTERACTIVE) {
		if (task->sleep_avg >= idle_from)
			return;
		if (task->sleep_avg + slept >= idle_from) {
			task->sleep_avg = idle_from;
			return;
		}
	}
	task->sleep_avg = at_most(task->sleep_avg + slept, most);
}

/* What it ran since it was last asked is taken off the average. */
static __always_inline void charge_run(struct task *task, u64 now)
{
	u64 ran = at_most(now - task->entity.since, max_sleep_ns());

	if (run_by_bonus)
		ran /= at_least(current_bonus(task), 1);
	task->sleep_avg -= at_most(ran, task->sleep_avg);
	task->entity.since = now;
}

s32 SCHED_OP(ingosched_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	struct task *task = task_of(p);

	if (task)
		note_waker(task, wake_flags);
	return select_idle(p, prev_cpu, wake_flags);
}

void SCHED_OP(ingosched_runnable, struct task_struct *p, u64 enq_flags)
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
	credit_sleep(p, task, now - task->entity.since);
	set_prio(p, &task->entity, effective_prio(task), CAUSE_SLEPT);
	if (task->sleep_type == SLEEP_NORMAL)
		task->sleep_type = task->entity.woken_by_interrupt ? SLEEP_INTERRUPTED : SLEEP_INTERACTIVE;
	task->entity.expired = is_batch(p);
	task->entity.place = PLACE_TAIL;
	task->entity.since = now;
}

void SCHED_OP(ingosched_enqueue, struct task_struct *p, u64 enq_flags)
{
	enqueue_task(p, enq_flags);
}

void SCHED_OP(ingosched_dispatch, s32 cpu, struct task_struct *prev)
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

/* The first run after a wake-up: the wait counts as sleep too, whole if a device woke the task. */
static __always_inline void credit_wait(struct task_struct *p, struct task *task, u64 now)
{
	u64 waited = now - task->entity.since;

	if (task->sleep_type == SLEEP_INTERACTIVE || task->sleep_type == SLEEP_INTERRUPTED) {
		if (task->sleep_type == SLEEP_INTERACTIVE)
			waited = waited * (on_runqueue_weight * 128 / 100) / 128;
		credit_sleep(p, task, waited);
		set_prio(p, &task->entity, effective_prio(task), CAUSE_WAITED);
	}
	task->sleep_type = SLEEP_NORMAL;
}

void SCHED_OP(ingosched_running, struct task_struct *p)
{
	struct task *task = task_of(p);
	u64 now = clock_ns();

	if (!task)
		return;
	credit_wait(p, task, now);
	begin_running(p, &task->entity, now);
}

void SCHED_OP(ingosched_stopping, struct task_struct *p, bool runnable)
{
	struct task *task = task_of(p);
	u64 now = clock_ns();

	if (task)
		charge_run(task, now);
	end_running(p, now);
}

void SCHED_OP(ingosched_quiescent, struct task_struct *p, u64 deq_flags)
{
	struct task *task = task_of(p);

	if (!task || !(deq_flags & KERNEL_CONST(scx_deq_flags, SCX_DEQ_SLEEP)))
		return;
	task->entity.since = clock_ns();
	task->sleep_type = p->__state & UNINTERRUPTIBLE ? SLEEP_NONINTERACTIVE : SLEEP_NORMAL;
}

void SCHED_OP(ingosched_tick, struct task_struct *p)
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
	set_prio(p, &task->entity, effective_prio(task), CAUSE_RAN);
	end_slice(p, &task->entity, cpu, rq->ticked);
}

bool SCHED_OP(ingosched_yield, struct task_struct *from, struct task_struct *to)
{
	yield_task(from);
	return false;
}

void SCHED_OP(ingosched_set_weight, struct task_struct *p, u32 weight)
{
	struct task *task = task_of(p);

	if (!task)
		return;
	if (is_batch(p))
		task->sleep_avg = 0;
	change_nice(p, &task->entity);
}

s32 SCHED_OP_SLEEPABLE(ingosched_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	struct task *forker;
	struct task *task = make_task(p, args->fork, &forker);
	u32 bonus;

	if (!task)
		return -ENOMEM;
	if (!forker) {
		/* Of a task that was there before, nothing is known. */
		task->entity.slice = slice_of(p->static_prio);
		task->sleep_avg = sleep_of_bonus(initial_bonus);
		return 0;
	}
	share_slice(forker, task);
	bonus = current_bonus(forker);
	task->sleep_avg = sleep_of_bonus(bonus * child_penalty / 100);
	forker->sleep_avg = sleep_of_bonus(bonus * parent_penalty / 100);
	set_prio(p, &task->entity, effective_prio(task), CAUSE_BORN);
	return 0;
}

void SCHED_OP(ingosched_enable, struct task_struct *p)
{
	enable_task(p);
}

void SCHED_OP(ingosched_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	u64 parts = exit_weight + 1;
	struct task *task = task_of(p);
	struct task_struct *parent;
	struct task *forker;

	if (!task || args->cancelled)
		return;
	parent = parent_of(task);
	if (!parent)
		return;
	forker = task_of(parent);
	if (forker) {
		return_slice(task, forker, scx_bpf_task_cpu(p) == scx_bpf_task_cpu(parent));
		/* A child that slept less than its parent pulls the parent's average down. */
		if (task->sleep_avg < forker->sleep_avg)
			forker->sleep_avg = forker->sleep_avg / parts * exit_weight + task->sleep_avg / parts;
	}
	bpf_task_release(parent);
}

s32 SCHED_OP_SLEEPABLE(ingosched_init)
{
	return create_queues();
}

void SCHED_OP(ingosched_exit, struct scx_exit_info *info)
{
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(ingosched_ops,
	  .select_cpu = (void *)ingosched_select_cpu,
	  .enqueue = (void *)ingosched_enqueue,
	  .dispatch = (void *)ingosched_dispatch,
	  .tick = (void *)ingosched_tick,
	  .runnable = (void *)ingosched_runnable,
	  .running = (void *)ingosched_running,
	  .stopping = (void *)ingosched_stopping,
	  .quiescent = (void *)ingosched_quiescent,
	  .yield = (void *)ingosched_yield,
	  .set_weight = (void *)ingosched_set_weight,
	  .init_task = (void *)ingosched_init_task,
	  .exit_task = (void *)ingosched_exit_task,
	  .enable = (void *)ingosched_enable,
	  .init = (void *)ingosched_init,
	  .exit = (void *)ingosched_exit,
	  .name = "ingosched");
