/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the priority schedulers of 2.6 share: jiffies, a run queue for each CPU with an active and an expired
 * array, preemption by priority, and balancing.
 *
 * A run queue is a dispatch queue ordered by virtual time, and a task's virtual time is its place in the
 * arrays: epoch of the array, then priority, then head or tail of its level; equals keep the order in which
 * they came. The active array is that of the run queue's epoch, the expired one has the next, so that
 * switching arrays is counting the epoch up. The place lies in p->scx.dsq_vtime and is a task's rank, also
 * while it runs: bits 1 to 8 are its dynamic priority.
 *
 * A scheduler's data of a task begins with `struct entity`. How priorities and slices come about is the
 * scheduler's; time is counted as 2.6 did, a whole jiffy charged to whoever runs when the tick comes.
 */
#ifndef SCHEDLAB_ARRAYS_BPF_H
#define SCHEDLAB_ARRAYS_BPF_H

#include "placement.bpf.h"
#include "changes.bpf.h"
#include "entity.bpf.h"

#define NS_PER_S 1000000000ULL

/* Priorities: lower is better. 0 to 99 are the real-time class's, nice -20 to 19 are 100 to 139. */
#define PRIO_BEST 100
#define PRIO_NICE_0 120
#define PRIO_WORST 139
/* Where nice 0 lies, against the kernel's 120: a scheduler with more levels defines another. */
#ifndef PRIO_OFFSET
#define PRIO_OFFSET 0
#endif
/* Nothing of ours runs on the CPU: nothing to preempt. */
#define PRIO_NONE 0
/* Worse than every priority. */
#define PRIO_END 255

/* p->policy. */
#define SCHED_BATCH 3
#define SCHED_IDLE 5

/* The kernel's slices are longer than any of ours: what ends one is the scheduler's own tick. */
#define RUN_ON_NS (3600 * NS_PER_S)

KNOB(u32, hz, 1000, Hz, 24, 10000, "Ticks in a second by which slices are counted: a jiffy is 1/hz s.");
KNOB(bool, wakeup_preemption, 1, bool, 0, 1, "Whether a task that wakes takes its CPU from one of worse priority.");
KNOB(u32, balance_ms, 64, ms, 0, 10000, "How often a busy CPU looks whether another has at least two tasks more; 0: only when it has none. Calibrated, 64 ms.");
KNOB(bool, jiffy_clock, 0, bool, 0, 1, "Whether sleeps, waits and runs are measured in whole jiffies, as on boards whose sched_clock() counts them: MIPS of 2.6.17.");

/* Where a task stands in its level. */
enum place {
	PLACE_HEAD = 0,
	PLACE_TAIL = 1,
};

/* A CPU's run queue beside its dispatch queue, whose number is that of the CPU. */
struct runqueue {
	/* Number of the active array. */
	u64 epoch;
	/* Jiffy at which the first task expired since the arrays were switched, 0 if none has. */
	u64 expired_since;
	/* Up to which jiffy ticks are charged. */
	u64 ticked;
	/* When a tick last came to a task of ours, and when one last stopped. */
	u64 tick_at;
	u64 stopped_at;
	u64 balanced_at;
	/* Priority of the task that runs, PRIO_NONE if none of ours does. */
	u32 curr_prio;
	/* Best static priority in the expired array. */
	u32 best_expired;
	/* A task woke while none of ours ran. */
	u32 look;
};

static struct runqueue runqueues[CPUS_MAX];

static __always_inline struct runqueue *runqueue_of(s32 cpu)
{
	return &runqueues[(u32)cpu % CPUS_MAX];
}

/* ns in a jiffy. */
static __always_inline u64 jiffy_ns(void)
{
	u32 ticks = hz;

	return ticks ? NS_PER_S / ticks : NS_PER_S;
}

/* The clock by which sleeps, waits and runs are measured. */
static __always_inline u64 clock_ns(void)
{
	u64 now = now_ns();

	return jiffy_clock ? now - now % jiffy_ns() : now;
}

/* Jiffies in so many ms, rounded down. */
static __always_inline u32 jiffies_of_ms(u32 ms)
{
	return (u64)ms * hz / 1000;
}

static __always_inline u64 at_least(u64 value, u64 least)
{
	return value > least ? value : least;
}

static __always_inline u64 at_most(u64 value, u64 most)
{
	return value < most ? value : most;
}

/* Tasks of ours on the CPU, the one that runs too. */
static __always_inline u32 nr_running(s32 cpu)
{
	s32 queued = scx_bpf_dsq_nr_queued(cpu);

	return (queued > 0 ? queued : 0) + 1;
}

/* Priority of a task's nice value. */
static __always_inline u32 static_prio_of(const struct task_struct *p)
{
	return p->static_prio + PRIO_OFFSET;
}

/* A task's place in the arrays of a CPU. */
static __always_inline u64 place_of(const struct entity *entity, s32 cpu)
{
	return (runqueue_of(cpu)->epoch + entity->expired) << 16 | entity->prio << 1 | entity->place;
}

static __always_inline u64 epoch_of(u64 place)
{
	return place >> 16;
}

/* Gives a task that is in no queue another priority, for a cause. */
static __always_inline void set_prio(struct task_struct *p, struct entity *entity, u32 prio, enum cause cause)
{
	u32 before = entity->prio;

	if (prio == before)
		return;
	entity->prio = prio;
	if (log_changes)
		log_change(p->pid, before, prio, cause);
	set_dsq_vtime(p, place_of(entity, scx_bpf_task_cpu(p)));
}

/* The expired array becomes the active one. */
static __always_inline void switch_arrays(struct runqueue *rq)
{
	rq->epoch += 1;
	rq->expired_since = 0;
	rq->best_expired = PRIO_END;
}

/* ---- Ticks ---- */

/* Jiffies to charge to the task that runs on the CPU; from tick only. */
static __always_inline u32 jiffies_ran(struct runqueue *rq, u64 now)
{
	u64 jiffies = now / jiffy_ns();
	u64 ran = jiffies - rq->ticked;

	rq->ticked = jiffies;
	rq->tick_at = now;
	/* The first tick of all has none before it. Calibrated: no CPU goes without ticks for longer. */
	return at_most(ran, 1000);
}

/* A task of ours runs: ticks while none did are nobody's. */
static __always_inline void begin_running(struct task_struct *p, struct entity *entity, u64 now)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct runqueue *rq = runqueue_of(cpu);

	/* Whoever is measured in jiffies stops in the middle of one all the same. */
	if ((jiffy_clock ? now_ns() : now) - rq->stopped_at >= jiffy_ns())
		rq->ticked = now / jiffy_ns();
	entity->since = now;
	entity->place = PLACE_HEAD;
	entity->expired = 0;
	entity->is_new = 0;
	entity->nice_changed = 0;
	rq->curr_prio = entity->prio;
	if (!rq->look)
		return;
	/* It was first in the kernel's queue, behind a task of another class: somebody better may have come. */
	rq->look = 0;
	if (head_vtime(cpu, ~0ULL) < place_of(entity, cpu))
		scx_bpf_kick_cpu(cpu, KERNEL_CONST(scx_kick_flags, SCX_KICK_PREEMPT));
}

static __always_inline void end_running(struct task_struct *p, u64 now)
{
	struct runqueue *rq = runqueue_of(scx_bpf_task_cpu(p));

	rq->stopped_at = jiffy_clock ? now_ns() : now;
	rq->curr_prio = PRIO_NONE;
}

/* The task that runs goes to the tail of its level, in the active or the expired array. */
static __always_inline void requeue(struct task_struct *p, struct entity *entity, bool expired)
{
	entity->place = PLACE_TAIL;
	entity->expired = expired;
	set_slice(p, 0);
}

/* ---- Queues ---- */

/* Finds an idle CPU; a task that gets one runs there at once. */
static __always_inline s32 select_idle(struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	bool is_idle = false;
	s32 cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &is_idle);

	if (is_idle)
		dsq_insert(p, KERNEL_CONST(scx_dsq_id_flags, SCX_DSQ_LOCAL), RUN_ON_NS, 0);
	return cpu;
}

/* Ends what runs on the CPU if it is of worse priority. */
static __always_inline void preempt_worse(const struct entity *entity, s32 cpu)
{
	struct runqueue *rq = runqueue_of(cpu);

	if (rq->curr_prio == PRIO_NONE)
		rq->look = 1;
	else if (entity->prio < rq->curr_prio || entity->before_parent)
		scx_bpf_kick_cpu(cpu, KERNEL_CONST(scx_kick_flags, SCX_KICK_PREEMPT));
}

/* Queues a task at its place, and lets it preempt if it has just come. */
static __always_inline void queue_task(struct task_struct *p, struct entity *entity, u64 enq_flags)
{
	s32 cpu = scx_bpf_task_cpu(p);
	bool woken = enq_flags & KERNEL_CONST(scx_enq_flags, SCX_ENQ_WAKEUP);
	bool comes = woken || entity->is_new || entity->nice_changed;

	dsq_insert_vtime(p, cpu, RUN_ON_NS, place_of(entity, cpu), enq_flags);
	kick_idle_for(p, enq_flags);
	if (comes && wakeup_preemption && !(entity->sync && cpu == (s32)bpf_get_smp_processor_id()))
		preempt_worse(entity, cpu);
	entity->is_new = 0;
	entity->nice_changed = 0;
	entity->before_parent = 0;
}

/* The CPU with the most tasks that wait, if it has at least `least`; else -1. */
static __always_inline s32 busiest_cpu(s32 own, u32 least)
{
	u32 cpus = scx_bpf_nr_cpu_ids();
	s32 busiest = -1;
	u32 most = least ? least - 1 : 0;
	u32 cpu;

	bpf_for(cpu, 0, CPUS_MAX) {
		s32 queued;

		if (cpu >= cpus)
			break;
		queued = (s32)cpu == own ? 0 : scx_bpf_dsq_nr_queued(cpu);
		if (queued > (s32)most) {
			most = queued;
			busiest = cpu;
		}
	}
	return busiest;
}

/* Takes a task from the CPU where most wait, if so many do. */
static __always_inline bool pull_task(s32 cpu, u32 least)
{
	s32 busiest = busiest_cpu(cpu, least);

	return busiest >= 0 && dsq_move_to_local(busiest);
}

/* A busy CPU looks from time to time whether another has more to do. */
static __always_inline bool balance(struct runqueue *rq, s32 cpu, u64 now)
{
	u32 interval = balance_ms;

	if (!interval || now - rq->balanced_at < interval * 1000000ULL)
		return false;
	rq->balanced_at = now;
	return pull_task(cpu, nr_running(cpu) + 1);
}

/* Whether the task that ran until now comes before the head of the queue: at the tail of a level, not before equals. */
static __always_inline bool comes_first(const struct entity *entity, s32 cpu, u64 head)
{
	return place_of(entity, cpu) + entity->place <= head;
}

/* The task that ran until now goes on, in the array where it is. */
static __always_inline void go_on(struct task_struct *prev, struct entity *entity, struct runqueue *rq)
{
	if (entity->expired)
		switch_arrays(rq);
	entity->expired = 0;
	entity->place = PLACE_HEAD;
	rq->curr_prio = entity->prio;
	set_slice(prev, RUN_ON_NS);
}

/*
 * The head of the CPU's queue is next, or another CPU's. False: there is none. `prev` ran until now and will be
 * queued after this: what has expired for it is the active array once the arrays are switched.
 */
static __always_inline bool take_next(struct runqueue *rq, s32 cpu, u64 head, struct entity *prev)
{
	if (head != ~0ULL) {
		if (epoch_of(head) > rq->epoch) {
			switch_arrays(rq);
			if (prev)
				prev->expired = 0;
		}
		if (dsq_move_to_local(cpu))
			return true;
	}
	if (pull_task(cpu, 1) || pull_any(cpu))
		return true;
	rq->expired_since = 0;
	return false;
}

/* A dispatch queue for each CPU. */
static __always_inline s32 create_queues(void)
{
	u32 cpus = scx_bpf_nr_cpu_ids();
	u32 cpu;

	bpf_for(cpu, 0, CPUS_MAX) {
		s32 error;

		if (cpu >= cpus)
			break;
		runqueues[cpu % CPUS_MAX].epoch = 1;
		runqueues[cpu % CPUS_MAX].best_expired = PRIO_END;
		error = scx_bpf_create_dsq(cpu, -1);
		if (error)
			return error;
	}
	return 0;
}

/* ---- Tasks ---- */

/* A task of another nice value than it had: its priority becomes that of its nice value, as set_user_nice() has it. */
static __always_inline void change_nice(struct task_struct *p, struct entity *entity)
{
	u32 static_prio = static_prio_of(p);
	s32 cpu = scx_bpf_task_cpu(p);
	bool worse;

	if (static_prio == entity->static_prio)
		return;
	worse = static_prio > entity->static_prio;
	entity->static_prio = static_prio;
	entity->nice_changed = 1;
	set_prio(p, entity, static_prio, CAUSE_NICE);
	if (worse && scx_bpf_task_running(p))
		scx_bpf_kick_cpu(cpu, KERNEL_CONST(scx_kick_flags, SCX_KICK_PREEMPT));
}

#endif
