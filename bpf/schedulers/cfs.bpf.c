// SPDX-License-Identifier: GPL-2.0-only
/*
 * cfs: the completely fair scheduler of Linux 2.6.24 to 6.5, as far as sched_ext allows.
 *
 * Rule: of the tasks that wait on a CPU, the one with the least virtual runtime runs next. Virtual runtime advances
 * with the CPU time a task uses, times 1024, divided by the weight of its nice value. Within `latency_ns` each
 * task shall run once; when there are more than latency_ns / min_granularity_ns of them, the period grows so that each
 * gets a granularity. A task's slice is its share of the period by weight. It ends at the tick that finds the slice
 * used up, or the head of the queue a slice behind. A task that wakes is put at most half a latency before the
 * queue's time and preempts who runs if it is more than `wakeup_granularity_ns`, in its own virtual time, behind; a
 * new task starts a slice late.
 *
 * State kept: for each CPU a queue ordered by virtual runtime, the queue's own time, which never falls, how many tasks
 * it has and what they weigh; for each task on which CPU it counts. The virtual runtime lies in p->scx.dsq_vtime and
 * is the rank. It is kept against the time of the CPU the task was on last: who moves takes the distance along.
 *
 * Where it differs from the kernel's: no groups; no buddies (a task that wakes does not go before one that is further
 * behind, a yield gives way only to who is further behind); no PELT (CPUs are compared by the weight that is runnable
 * now); one balancing domain; the kernel's chance to wake a task beside its waker is taken by weight alone. A task
 * that becomes heavier takes its distance to the queue's time along in its new virtual time, as kernels do since 6.6:
 * before, who had run as SCHED_IDLE for a tick and was SCHED_NORMAL again waited for more than a second. One that
 * becomes lighter keeps it as it is, as kernels before did: in its new virtual time it would wait for as long. SCHED_IDLE
 * weighs 3 and is preempted by everybody else, SCHED_BATCH preempts nobody.
 *
 * Good at: CPU time in exact proportion to weights; comparing weight tables on a kernel without patching it.
 * Fails at: latency under many tasks, for the period grows with them; what groups of tasks get.
 *
 * Source: Linux 5.7 and 6.1, kernel/sched/fair.c: rules and constants are exact where not named above. Calibrated:
 * `balance_ms`, `imbalance_pct` stand for the kernel's domains.
 */
#include "../include/schedlab.bpf.h"
#include "../include/placement.bpf.h"
#include "../include/weights.bpf.h"

#define SCHED_BATCH 3
#define SCHED_IDLE 5
#define WEIGHT_IDLE 3
#define WEIGHT_NICE_0 1024
#define ENOMEM 12
/* The kernel's slices are longer than any of ours: what ends one is the tick. */
#define RUN_ON_NS (3600ULL * 1000000000ULL)
/* Nobody counts on no CPU. */
#define NOWHERE (-1)

KNOB(u64, latency_ns, 6000000, ns, 100000, 1000000000, "In which each task shall run once, on one CPU (sched_latency).");
KNOB(u64, min_granularity_ns, 750000, ns, 100000, 1000000000, "Shortest turn, on one CPU (sched_min_granularity).");
KNOB(u64, wakeup_granularity_ns, 1000000, ns, 0, 1000000000, "How far behind a task that wakes must be to preempt, on one CPU (sched_wakeup_granularity).");
KNOB(u32, tunable_scaling, 1, mode, 0, 2, "How the three grow with the CPUs (up to 8): 0 not, 1 by 1 + log2, 2 in proportion.");
KNOB(bool, gentle_fair_sleepers, 1, bool, 0, 1, "Sleepers get half a latency of credit, not a whole one (GENTLE_FAIR_SLEEPERS).");
KNOB(bool, start_debit, 1, bool, 0, 1, "New tasks start a slice late (START_DEBIT).");
KNOB(bool, wakeup_preemption, 1, bool, 0, 1, "Whether who wakes may preempt (WAKEUP_PREEMPTION).");
KNOB(bool, base_slice, 1, bool, 0, 1, "No slice is shorter than a granularity (BASE_SLICE, since 5.13).");
KNOB(u32, balance_ms, 16, ms, 0, 10000, "How often a busy CPU looks whether another has more to do; 0: only when it has nothing.");
KNOB(u32, imbalance_pct, 117, percent, 100, 1000, "How much more another CPU must have before a task is taken from it.");

/* A CPU's queue beside its dispatch queue, whose number is that of the CPU. */
struct cfs_rq {
	/* The queue's virtual time. */
	u64 min_vruntime;
	/* Tasks that count here, and their weights. */
	s64 nr;
	s64 load;
	/* Of the task that runs: virtual runtime up to `exec_start`, weight, CPU time since it was picked. 0: none. */
	u64 curr_vruntime;
	u64 exec_start;
	u64 ran;
	u32 curr_weight;
	u32 curr_idle;
	u64 balanced_at;
};

static struct cfs_rq queues[CPUS_MAX];

/* What is kept of a task. */
struct entity {
	/* On which CPU it counts, with what weight; and against whose time its virtual runtime is. */
	s32 counted;
	u32 weight;
	s32 home;
	u32 is_new;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct entity);
} entities SEC(".maps");

EXIT_RECORD(exit_record);

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

/* The queue's time follows the least virtual runtime on it, never back. */
static __always_inline void advance(struct cfs_rq *rq, s32 cpu)
{
	u64 least = head_vtime(cpu, rq->curr_weight ? rq->curr_vruntime : rq->min_vruntime);

	if (rq->curr_weight && before(rq->curr_vruntime, least))
		least = rq->curr_vruntime;
	if (before(rq->min_vruntime, least))
		rq->min_vruntime = least;
}

/* Charges the task that runs on this CPU, from a callback of that CPU. */
static __always_inline void charge_curr(struct task_struct *p, struct cfs_rq *rq)
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
}

static __always_inline void update_curr(struct task_struct *p, struct cfs_rq *rq, s32 cpu)
{
	charge_curr(p, rq);
	if (rq->curr_weight)
		advance(rq, cpu);
}

/* The task counts on this CPU from now on, or nowhere. */
static __always_inline void count_on(struct task_struct *p, struct entity *entity, s32 cpu)
{
	u32 weight = task_weight(p);

	if (entity->counted == cpu && (cpu == NOWHERE || entity->weight == weight))
		return;
	if (entity->counted != NOWHERE) {
		struct cfs_rq *rq = rq_of(entity->counted);

		__sync_fetch_and_add(&rq->nr, -1);
		__sync_fetch_and_add(&rq->load, -(s64)entity->weight);
	}
	entity->counted = cpu;
	entity->weight = weight;
	if (cpu != NOWHERE) {
		struct cfs_rq *rq = rq_of(cpu);

		__sync_fetch_and_add(&rq->nr, 1);
		__sync_fetch_and_add(&rq->load, (s64)weight);
	}
}

/* The task's virtual runtime against this CPU's time. */
static __always_inline u64 vruntime_on(const struct task_struct *p, struct entity *entity, s32 cpu)
{
	u64 vruntime = p->scx.dsq_vtime;

	if (entity->home != cpu) {
		u64 from = entity->home == NOWHERE ? 0 : rq_of(entity->home)->min_vruntime;

		vruntime += rq_of(cpu)->min_vruntime - from;
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
static __always_inline u64 place_new(struct cfs_rq *rq, u32 weight)
{
	u64 vruntime = rq->min_vruntime;

	if (start_debit)
		vruntime += virtual(slice_of(weight, rq->nr + 1, rq->load + weight), weight);
	if (rq->curr_weight && before(vruntime, rq->curr_vruntime))
		vruntime = rq->curr_vruntime;
	return vruntime;
}

/* Whether the weight of a CPU, with this task on it, is less than another's with it. */
static __always_inline bool lighter(s32 cpu, s32 than, u32 weight)
{
	return rq_of(cpu)->load + weight < rq_of(than)->load + weight;
}

/* The CPU with the least weight that a new task may run on. */
static __always_inline s32 lightest_cpu(struct task_struct *p, s32 otherwise)
{
	u32 cpus = scx_bpf_nr_cpu_ids();
	s32 lightest = otherwise;
	u32 cpu;

	bpf_for(cpu, 0, CPUS_MAX) {
		if (cpu >= cpus)
			break;
		if (bpf_cpumask_test_cpu(cpu, p->cpus_ptr) && lighter(cpu, lightest, 0))
			lightest = cpu;
	}
	return lightest;
}

s32 SCHED_OP(cfs_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	bool is_idle = false;
	s32 here = bpf_get_smp_processor_id();
	s32 cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &is_idle);

	if (is_idle) {
		/* Through the queue, so that its virtual runtime is that of the CPU; which is awake by then. */
		return cpu;
	}
	if (wake_flags & KERNEL_CONST(scx_wake_flags, SCX_WAKE_FORK))
		return lightest_cpu(p, cpu);
	/* wake_affine(): beside its waker, who is about to sleep or has less to do. */
	if (here != cpu && bpf_cpumask_test_cpu(here, p->cpus_ptr)) {
		s64 own = rq_of(here)->load;

		if ((wake_flags & KERNEL_CONST(scx_wake_flags, SCX_WAKE_SYNC)) && rq_of(here)->nr <= 1)
			return here;
		if (own + task_weight(p) < rq_of(cpu)->load)
			return here;
	}
	return cpu;
}

/* Ends the turn of who runs on the CPU if the task is far enough behind. */
static __always_inline void preempt_wakeup(const struct task_struct *p, u64 vruntime, u32 weight, s32 cpu)
{
	struct cfs_rq *rq = rq_of(cpu);
	u64 curr;

	if (!rq->curr_weight || !wakeup_preemption)
		return;
	if (rq->curr_idle && p->policy != SCHED_IDLE)
		goto preempt;
	if (p->policy == SCHED_BATCH || p->policy == SCHED_IDLE)
		return;
	curr = curr_vruntime(rq, now_ns());
	if ((s64)(curr - vruntime) <= (s64)virtual(scaled(wakeup_granularity_ns), weight))
		return;
preempt:
	scx_bpf_kick_cpu(cpu, KERNEL_CONST(scx_kick_flags, SCX_KICK_PREEMPT));
}

void SCHED_OP(cfs_enqueue, struct task_struct *p, u64 enq_flags)
{
	bool woken = enq_flags & KERNEL_CONST(scx_enq_flags, SCX_ENQ_WAKEUP);
	struct entity *entity = entity_of(p);
	s32 cpu = scx_bpf_task_cpu(p);
	struct cfs_rq *rq = rq_of(cpu);
	bool comes;
	u64 vruntime;

	if (!entity) {
		dsq_insert(p, KERNEL_CONST(scx_dsq_id_flags, SCX_DSQ_GLOBAL), RUN_ON_NS, enq_flags);
		return;
	}
	comes = woken || entity->is_new;
	vruntime = vruntime_on(p, entity, cpu);
	if (entity->is_new)
		vruntime = place_new(rq, task_weight(p));
	else if (woken)
		vruntime = place_sleeper(vruntime, rq);
	entity->is_new = 0;
	count_on(p, entity, cpu);
	dsq_insert_vtime(p, cpu, RUN_ON_NS, vruntime, enq_flags);
	kick_idle_for(p, enq_flags);
	if (comes)
		preempt_wakeup(p, vruntime, entity->weight, cpu);
}

void SCHED_OP(cfs_tick, struct task_struct *p)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct cfs_rq *rq = rq_of(cpu);
	u64 slice, first;

	update_curr(p, rq, cpu);
	if (scx_bpf_dsq_nr_queued(cpu) <= 0)
		return;
	slice = slice_of(rq->curr_weight, rq->nr, rq->load);
	if (rq->ran > slice) {
		set_slice(p, 0);
		return;
	}
	if (rq->ran < scaled(min_granularity_ns))
		return;
	first = head_vtime(cpu, rq->curr_vruntime);
	if ((s64)(rq->curr_vruntime - first) > (s64)slice)
		set_slice(p, 0);
}

/* The CPU with the most weight of those with a task that waits, if it has more than `least`; else -1. */
static __always_inline s32 heaviest_cpu(s32 own, s64 least)
{
	u32 cpus = scx_bpf_nr_cpu_ids();
	s32 heaviest = -1;
	u32 cpu;

	bpf_for(cpu, 0, CPUS_MAX) {
		s64 load;

		if (cpu >= cpus)
			break;
		load = rq_of(cpu)->load;
		if ((s32)cpu != own && load > least && scx_bpf_dsq_nr_queued(cpu) > 0) {
			heaviest = cpu;
			least = load;
		}
	}
	return heaviest;
}

/* A busy CPU takes a task from one that has more to do, if that makes the two more even. */
static __always_inline bool balance(struct cfs_rq *rq, s32 cpu)
{
	u64 now = now_ns();
	s32 heaviest;
	s64 more;

	if (!balance_ms || now - rq->balanced_at < balance_ms * 1000000ULL)
		return false;
	rq->balanced_at = now;
	heaviest = heaviest_cpu(cpu, (u64)rq->load * imbalance_pct / 100);
	if (heaviest < 0)
		return false;
	more = rq_of(heaviest)->load - rq->load;
	/* A task of the mean weight, moved, must not turn the difference round. */
	if (rq_of(heaviest)->load * 2 > more * rq_of(heaviest)->nr)
		return false;
	return dsq_move_to_local(heaviest);
}

void SCHED_OP(cfs_dispatch, s32 cpu, struct task_struct *prev)
{
	struct cfs_rq *rq = rq_of(cpu);
	s32 heaviest;

	if (can_go_on(prev) && rq->curr_weight) {
		u64 vruntime;

		update_curr(prev, rq, cpu);
		vruntime = rq->curr_vruntime;
		if (!before(head_vtime(cpu, vruntime), vruntime)) {
			rq->ran = 0;
			set_slice(prev, RUN_ON_NS);
			return;
		}
	}
	if (balance(rq, cpu) || dsq_move_to_local(cpu))
		return;
	heaviest = heaviest_cpu(cpu, 0);
	if (heaviest >= 0 && dsq_move_to_local(heaviest))
		return;
	pull_any(cpu);
}

void SCHED_OP(cfs_running, struct task_struct *p)
{
	struct entity *entity = entity_of(p);
	s32 cpu = scx_bpf_task_cpu(p);
	struct cfs_rq *rq = rq_of(cpu);

	if (!entity)
		return;
	set_dsq_vtime(p, vruntime_on(p, entity, cpu));
	count_on(p, entity, cpu);
	entity->is_new = 0;
	rq->curr_vruntime = p->scx.dsq_vtime;
	rq->curr_weight = entity->weight;
	rq->curr_idle = p->policy == SCHED_IDLE;
	rq->exec_start = now_ns();
	rq->ran = 0;
	advance(rq, cpu);
}

void SCHED_OP(cfs_stopping, struct task_struct *p, bool runnable)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct cfs_rq *rq = rq_of(cpu);

	charge_curr(p, rq);
	/* Who is to run instead has left the queue by now: what it holds says nothing about the least on this CPU. */
	if (!runnable)
		advance(rq, cpu);
	rq->curr_weight = 0;
}

void SCHED_OP(cfs_quiescent, struct task_struct *p, u64 deq_flags)
{
	struct entity *entity = entity_of(p);

	if (entity)
		count_on(p, entity, NOWHERE);
}

/*
 * A distance from a queue's time in virtual time of another weight, where that is less. From nice -20 to 19 it would
 * be 5917 times as much, and a few ms ahead a wait of many seconds.
 */
static __always_inline u64 shrunk(u64 distance, u32 old, u32 weight)
{
	return old < weight ? distance * old / weight : distance;
}

/* The task takes another weight and keeps its distance from its queue's time, as virtual time of the heavier one. */
static __always_inline void reweigh(struct task_struct *p, struct entity *entity, u32 old, u32 weight)
{
	u64 origin, vruntime;

	if (entity->home == NOWHERE || !old || !weight || old == weight)
		return;
	origin = rq_of(entity->home)->min_vruntime;
	vruntime = p->scx.dsq_vtime;
	if (before(vruntime, origin))
		vruntime = origin - shrunk(origin - vruntime, old, weight);
	else
		vruntime = origin + shrunk(vruntime - origin, old, weight);
	set_dsq_vtime(p, vruntime);
}

void SCHED_OP(cfs_set_weight, struct task_struct *p, u32 unused)
{
	struct entity *entity = entity_of(p);
	u32 weight = task_weight(p);

	if (!entity)
		return;
	reweigh(p, entity, entity->weight, weight);
	if (entity->counted != NOWHERE)
		count_on(p, entity, entity->counted);
	entity->weight = weight;
}

s32 SCHED_OP_SLEEPABLE(cfs_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	struct entity *entity = bpf_task_storage_get(&entities, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!entity)
		return -ENOMEM;
	entity->counted = NOWHERE;
	entity->home = NOWHERE;
	entity->is_new = args->fork;
	entity->weight = task_weight(p);
	return 0;
}

void SCHED_OP(cfs_enable, struct task_struct *p)
{
	struct entity *entity = entity_of(p);

	if (!entity)
		return;
	/* From another class: at the time of whatever queue it comes to. */
	entity->home = NOWHERE;
	set_dsq_vtime(p, 0);
}

void SCHED_OP(cfs_disable, struct task_struct *p)
{
	struct entity *entity = entity_of(p);

	if (entity)
		count_on(p, entity, NOWHERE);
}

s32 SCHED_OP_SLEEPABLE(cfs_init)
{
	u32 cpus = scx_bpf_nr_cpu_ids();
	u32 cpu;

	bpf_for(cpu, 0, CPUS_MAX) {
		s32 error;

		if (cpu >= cpus)
			break;
		error = scx_bpf_create_dsq(cpu, -1);
		if (error)
			return error;
	}
	return 0;
}

void SCHED_OP(cfs_exit, struct scx_exit_info *info)
{
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(cfs_ops,
	  .select_cpu = (void *)cfs_select_cpu,
	  .enqueue = (void *)cfs_enqueue,
	  .dispatch = (void *)cfs_dispatch,
	  .tick = (void *)cfs_tick,
	  .running = (void *)cfs_running,
	  .stopping = (void *)cfs_stopping,
	  .quiescent = (void *)cfs_quiescent,
	  .set_weight = (void *)cfs_set_weight,
	  .init_task = (void *)cfs_init_task,
	  .enable = (void *)cfs_enable,
	  .disable = (void *)cfs_disable,
	  .init = (void *)cfs_init,
	  .exit = (void *)cfs_exit,
	  .name = "cfs");
