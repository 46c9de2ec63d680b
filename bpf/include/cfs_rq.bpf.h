/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The run queues of `cfs`: what is kept of each CPU and task, virtual runtimes, slices, averages of weights.
 *
 * To be included after the knobs. Nothing here decides who runs or where: callbacks do.
 */
#ifndef SCHEDLAB_CFS_RQ_BPF_H
#define SCHEDLAB_CFS_RQ_BPF_H

#define SCHED_IDLE 5
#define WEIGHT_IDLE 3
#define WEIGHT_NICE_0 1024
/* Of PELT's averages. */
#define HALF_LIFE_NS 32000000ULL
/* Nobody counts on no CPU. */
#define NOWHERE (-1)

/* A weight as it was on average, what is long ago halved every HALF_LIFE_NS; and when this was brought up to date. */
struct average {
	u64 load;
	u64 at;
};

/* A CPU's queue beside its dispatch queue, whose number is that of the CPU. */
struct cfs_rq {
	/* The queue's virtual time. */
	u64 min_vruntime;
	/* Tasks that count here, and their weights: now and on average. */
	s64 nr;
	s64 load;
	struct average average;
	/* Of the task that runs: virtual runtime up to `exec_start`, weight, CPU time since it was picked. 0: none. */
	u64 curr_vruntime;
	u64 exec_start;
	u64 ran;
	u32 curr_weight;
	u32 curr_idle;
	u32 curr_pid;
	/* Whether its turn has been ended; and whether who is to run instead has left the queue and does not run yet. */
	u32 resched;
	u32 switching;
	/* Buddies, by pid: who preempted and who was preempted last. 0: none. */
	u32 next;
	u32 last;
	u64 balanced_at;
	/* Since when it has not been without tasks. */
	u64 busy_since;
};

static struct cfs_rq queues[CPUS_MAX];
/* CPUs of each last-level cache. */
static u32 llc_sizes[LLCS_MAX];

/* What is kept of a task. */
struct entity {
	/* On which CPU it counts, with what weight; and against whose time its virtual runtime is. */
	s32 counted;
	u32 weight;
	s32 home;
	u32 is_new;
	/* What it wanted of a CPU, by weight. */
	struct average average;
	/* When it ran last. */
	u64 ran_at;
	/* Whom it woke last, how often that was somebody else than before, and since when this has not been halved. */
	u64 flips_since;
	u32 last_wakee;
	u32 wakee_flips;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct entity);
} entities SEC(".maps");

static __always_inline struct cfs_rq *rq_of(s32 cpu)
{
	return &queues[(u32)cpu % CPUS_MAX];
}

static __always_inline struct entity *entity_of(struct task_struct *p)
{
	return bpf_task_storage_get(&entities, p, NULL, 0);
}

static __always_inline bool before(u64 a, u64 b)
{
	return (s64)(a - b) < 0;
}

static __always_inline u32 task_weight(const struct task_struct *p)
{
	return p->policy == SCHED_IDLE ? WEIGHT_IDLE : weight_of(p);
}

/* CPU time as virtual time of a weight. */
static __always_inline u64 virtual(u64 delta, u32 weight)
{
	return weight == WEIGHT_NICE_0 || !weight ? delta : delta * WEIGHT_NICE_0 / weight;
}

/* A granularity on as many CPUs as there are. */
static __always_inline u64 scaled(u64 ns)
{
	u32 cpus = scx_bpf_nr_cpu_ids();
	u32 factor = 1;

	if (cpus > 8)
		cpus = 8;
	if (tunable_scaling == 2)
		factor = cpus;
	else if (tunable_scaling == 1)
		factor = cpus >= 8 ? 4 : cpus >= 4 ? 3 : cpus >= 2 ? 2 : 1;
	return ns * factor;
}

/* The slice of a task of this weight on a queue of so many tasks and so much weight. */
static __always_inline u64 slice_of(u32 weight, u64 nr, u64 load)
{
	u64 granularity = scaled(min_granularity_ns);
	u64 period = scaled(latency_ns);
	u64 slice;

	if (granularity && nr > period / granularity)
		period = nr * granularity;
	slice = load ? period * weight / load : period;
	return base_slice && slice < granularity ? granularity : slice;
}

/* Virtual runtime of the task that runs on a CPU, up to now. */
static __always_inline u64 curr_vruntime(const struct cfs_rq *rq, u64 now)
{
	u64 since = rq->exec_start;

	return rq->curr_vruntime + virtual(now > since ? now - since : 0, rq->curr_weight);
}

/*
 * The queue's time follows the least virtual runtime on it, never back; `curr` is that of who runs. During a switch the
 * least is with a task that is nowhere: a heavy one's, it may be seconds before those that the queue holds.
 */
static __always_inline void advance(struct cfs_rq *rq, s32 cpu, u64 curr)
{
	u64 least;

	if (rq->switching)
		return;
	least = head_vtime(cpu, rq->curr_weight ? curr : rq->min_vruntime);

	if (rq->curr_weight && before(curr, least))
		least = curr;
	if (before(rq->min_vruntime, least))
		rq->min_vruntime = least;
}

/* Charges the task that runs on this CPU, from a callback of that CPU. */
static __always_inline void update_curr(struct task_struct *p, struct cfs_rq *rq, s32 cpu)
{
	u64 now = now_ns();
	u64 vruntime;

	if (!rq->curr_weight)
		return;
	vruntime = curr_vruntime(rq, now);
	if (now > rq->exec_start)
		rq->ran += now - rq->exec_start;
	rq->exec_start = now;
	rq->curr_vruntime = vruntime;
	set_dsq_vtime(p, vruntime);
	advance(rq, cpu, vruntime);
}

/* What is left after a time of a value that halves every HALF_LIFE_NS; in between along straight lines. */
static __always_inline u64 decayed(u64 value, u64 ns)
{
	u64 halvings = ns / HALF_LIFE_NS;

	if (halvings > 40)
		return 0;
	value >>= halvings;
	return value - value * (ns % HALF_LIFE_NS) / (2 * HALF_LIFE_NS);
}

/* The average by now, where the weight has been `load` since the last time. */
static __always_inline u64 average_by(const struct average *average, u64 load, u64 now)
{
	u64 ns = now > average->at ? now - average->at : 0;

	return decayed(average->load, ns) + load * (1024 - decayed(1024, ns)) / 1024;
}

static __always_inline void update_average(struct average *average, u64 load, u64 now)
{
	average->load = average_by(average, load, now);
	average->at = now;
}

static __always_inline u64 load_of(s32 cpu, u64 now)
{
	const struct cfs_rq *rq = rq_of(cpu);

	return average_by(&rq->average, rq->load, now);
}

/* Who has been picked, or sleeps, is nobody's buddy any more. */
static __always_inline void clear_buddies(struct cfs_rq *rq, const struct task_struct *p)
{
	if (rq->next == (u32)p->pid)
		rq->next = 0;
	if (rq->last == (u32)p->pid)
		rq->last = 0;
}

/* The task counts on this CPU from now on, or nowhere. */
static __always_inline void count_on(struct task_struct *p, struct entity *entity, s32 cpu)
{
	u32 weight = task_weight(p);
	u64 now;

	if (entity->counted == cpu && (cpu == NOWHERE || entity->weight == weight))
		return;
	now = now_ns();
	update_average(&entity->average, entity->counted == NOWHERE ? 0 : entity->weight, now);
	if (entity->counted != NOWHERE) {
		struct cfs_rq *rq = rq_of(entity->counted);

		update_average(&rq->average, rq->load, now);
		__sync_fetch_and_add(&rq->nr, -1);
		__sync_fetch_and_add(&rq->load, -(s64)entity->weight);
	}
	entity->counted = cpu;
	entity->weight = weight;
	if (cpu != NOWHERE) {
		struct cfs_rq *rq = rq_of(cpu);

		update_average(&rq->average, rq->load, now);
		if (!__sync_fetch_and_add(&rq->nr, 1))
			rq->busy_since = now;
		__sync_fetch_and_add(&rq->load, (s64)weight);
	}
}

/* A task's average goes with it to another CPU. */
static __always_inline void move_average(const struct entity *entity, s32 from, s32 to)
{
	u64 load = entity->average.load;

	rq_of(to)->average.load += load;
	if (from != NOWHERE) {
		struct average *average = &rq_of(from)->average;

		average->load -= load < average->load ? load : average->load;
	}
}

/* The task's virtual runtime against this CPU's time. */
static __always_inline u64 vruntime_on(const struct task_struct *p, struct entity *entity, s32 cpu)
{
	u64 vruntime = p->scx.dsq_vtime;

	if (entity->home != cpu) {
		u64 from = entity->home == NOWHERE ? 0 : rq_of(entity->home)->min_vruntime;

		vruntime += rq_of(cpu)->min_vruntime - from;
		move_average(entity, entity->home, cpu);
		entity->home = cpu;
	}
	return vruntime;
}

/* Where a task that wakes is put: with a credit for its sleep. */
static __always_inline u64 place_sleeper(u64 vruntime, const struct cfs_rq *rq)
{
	u64 credit = scaled(latency_ns) >> (gentle_fair_sleepers ? 1 : 0);
	u64 earliest = rq->min_vruntime - credit;

	return before(vruntime, earliest) ? earliest : vruntime;
}

/* Where a new task is put: not before the task that runs there, and a slice late. */
static __always_inline u64 place_new(const struct cfs_rq *rq, u32 weight, u64 curr)
{
	u64 vruntime = rq->min_vruntime;

	if (start_debit)
		vruntime += virtual(slice_of(weight, rq->nr + 1, rq->load + weight), weight);
	if (rq->curr_weight && before(vruntime, curr))
		vruntime = curr;
	return vruntime;
}

#endif
