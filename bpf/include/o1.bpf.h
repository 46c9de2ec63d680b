/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What ingosched and ingo_ll share of the O(1) scheduler of Linux 2.6: slices by nice value, interactive tasks
 * that return to the active array, the starvation limit, turns of interactive tasks.
 *
 * Where a task's bonus comes from is the scheduler's. Constants are exact (2.6.17) unless their line says otherwise.
 * To be included after tasks.bpf.h; `struct task` has a member `first_slice`.
 */
#ifndef SCHEDLAB_O1_BPF_H
#define SCHEDLAB_O1_BPF_H

/* Exact. The range of bonuses is a quarter of the 40 nice values; the middle one is none. */
#define MAX_BONUS 10
/* Exact. */
#define INTERACTIVE_DELTA 2

KNOB(u32, slice_min_ms, 5, ms, 1, 1000, "Shortest slice, whatever the nice value: exact, 5 ms.");
KNOB(u32, slice_default_ms, 100, ms, 1, 10000, "Slice of nice 0; in proportion to 20 - nice, four times that below 0: exact, 100 ms.");
KNOB(u32, granularity_ms, 10, ms, 1, 1000, "Turn of the most interactive task; doubles with each bonus point less: exact, 10 ms.");
KNOB(u32, initial_bonus, 5, points, 0, 10, "Bonus points of tasks that were there before the scheduler: calibrated, 5, neither bonus nor penalty. Linux of that time began with 0.");
KNOB(u32, starvation_limit_ms, 1000, ms, 0, 100000, "Times the tasks that run: how long the first expired task waits before interactive ones expire too; 0: for ever. Exact, 1 s.");

/* Jiffies of a slice at a nice value (static priority). */
static __always_inline u32 slice_of(u32 static_prio)
{
	u32 least = at_least(jiffies_of_ms(slice_min_ms), 1);
	u32 base = jiffies_of_ms(slice_default_ms);

	if (static_prio < PRIO_NICE_0)
		base *= 4;
	if (static_prio > PRIO_WORST)
		static_prio = PRIO_WORST;
	return at_least((u64)base * (PRIO_WORST + 1 - static_prio) / 20, least);
}

/* How much better than its static priority a task must be to count as interactive, plus 3: 0 to 9. */
static __always_inline u32 delta_plus_3(const struct entity *entity)
{
	return (entity->static_prio - PRIO_BEST) * MAX_BONUS / 40;
}

static __always_inline bool is_interactive(const struct entity *entity)
{
	return entity->prio + delta_plus_3(entity) <= entity->static_prio + (5 - INTERACTIVE_DELTA);
}

/* Static priority moved by the bonus, which is none in the middle of its range. */
static __always_inline u32 prio_with_bonus(const struct entity *entity, u32 bonus)
{
	u32 prio = entity->static_prio + MAX_BONUS / 2 - bonus;

	return at_most(at_least(prio, PRIO_BEST), PRIO_WORST);
}

/* Whether tasks of the expired array have waited so long, or are so much better, that nobody may return to the active one. */
static __always_inline bool is_starving(const struct runqueue *rq, const struct entity *curr, s32 cpu, u64 jiffies)
{
	u64 limit = jiffies_of_ms(starvation_limit_ms);

	if (limit && rq->expired_since && jiffies - rq->expired_since >= limit * nr_running(cpu) + 1)
		return true;
	return curr->static_prio > rq->best_expired;
}

/* Jiffies after which an interactive task lets others of its level run. */
static __always_inline u32 granularity_of(u32 bonus)
{
	u32 turn = at_least(jiffies_of_ms(granularity_ms), 1);
	u32 points = bonus < MAX_BONUS ? MAX_BONUS - bonus : 1;

	return (turn << (points - 1)) * scx_bpf_nr_cpu_ids();
}

/* The slice is over: a new one, in the expired array unless the task is interactive and nobody starves. */
static __always_inline void end_slice(struct task_struct *p, struct entity *entity, s32 cpu, u64 jiffies)
{
	struct runqueue *rq = runqueue_of(cpu);
	bool expires;

	entity->slice = slice_of(entity->static_prio);
	if (!rq->expired_since)
		rq->expired_since = jiffies;
	expires = !is_interactive(entity) || is_starving(rq, entity, cpu, jiffies);
	if (expires && entity->static_prio < rq->best_expired)
		rq->best_expired = entity->static_prio;
	requeue(p, entity, expires);
}

/* Lets others of its level run when an interactive task has had its turn. */
static __always_inline void end_turn(struct task_struct *p, struct entity *entity, u32 ran, u32 bonus)
{
	u32 turn = granularity_of(bonus);
	u32 used = slice_of(entity->static_prio) - entity->slice;

	/* The first test is for a slice that grew, by a child's rest or a knob. */
	if (!turn || used < ran || entity->slice < turn || !is_interactive(entity))
		return;
	if (used / turn != (used - ran) / turn)
		requeue(p, entity, false);
}

/* A fork shares what is left of the parent's slice out between the two. */
static __always_inline void share_slice(struct task *forker, struct task *child)
{
	child->first_slice = 1;
	child->entity.slice = (forker->entity.slice + 1) / 2;
	forker->entity.slice = at_least(forker->entity.slice / 2, 1);
	child->entity.prio = forker->entity.prio;
}

/* A child that ends in its first slice gives the rest back. */
static __always_inline void return_slice(struct task *child, struct task *forker, bool same_cpu)
{
	u32 whole = slice_of(child->entity.static_prio);

	if (child->first_slice && same_cpu)
		forker->entity.slice = at_most(forker->entity.slice + child->entity.slice, whole);
}

/* A child of another process goes in front of its parent, with the parent's priority. */
static __always_inline void begin_life(struct task_struct *p, struct task *task)
{
	struct task *forker = runs_before(p, task);

	if (!forker)
		return;
	set_prio(p, &task->entity, forker->entity.prio, CAUSE_BORN);
	task->entity.place = PLACE_HEAD;
	task->entity.before_parent = 1;
}

/* To the expired array, with priority and slice as they are. */
static __always_inline void yield_task(struct task_struct *from)
{
	struct task *task = task_of(from);

	if (task)
		requeue(from, &task->entity, true);
}

#endif
