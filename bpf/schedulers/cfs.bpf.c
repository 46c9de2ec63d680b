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
 * it has and what they weigh, now and on average, and its buddies; for each task on which CPU it counts, its average
 * weight, when it ran last and how often it wakes another than before. The virtual runtime lies in p->scx.dsq_vtime and
 * is the rank. It is kept against the time of the CPU the task was on last: who moves takes the distance along.
 *
 * On a queue of so many tasks that the period grows, a task that was preempted goes on after whoever preempted it
 * (LAST_BUDDY), unless another is far behind. A task that wakes goes to an idle CPU of its cache, else stays where it
 * was, or goes to its waker's CPU if that has clearly less to do on average and the two do not have many partners
 * (wake_affine(), wake_wide()). A CPU with nothing to do takes half of what the busiest has more, but nobody who ran
 * within `migration_cost_ns`.
 *
 * Where it differs from the kernel's: no groups; a yield gives way only to who is further behind; averages are those of
 * PELT, drawn with straight lines between halvings, and only of the weight that is runnable; one balancing domain. A task
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
#define ENOMEM 12
#define NSEC_PER_SEC 1000000000ULL
/* The kernel's slices are longer than any of ours: what ends one is the tick. */
#define RUN_ON_NS (3600ULL * NSEC_PER_SEC)
/* However much they weigh. */
#define WEIGHT_ANY (1LL << 40)
/* As many as one CPU takes from another at once (sched_nr_migrate). */
#define MIGRATE_MAX 32

KNOB(u64, latency_ns, 6000000, ns, 100000, 1000000000, "In which each task shall run once, on one CPU (sched_latency).");
KNOB(u64, min_granularity_ns, 750000, ns, 100000, 1000000000, "Shortest turn, on one CPU (sched_min_granularity).");
KNOB(u64, wakeup_granularity_ns, 1000000, ns, 0, 1000000000, "How far behind a task that wakes must be to preempt, on one CPU (sched_wakeup_granularity).");
KNOB(u32, tunable_scaling, 1, mode, 0, 2, "How the three grow with the CPUs (up to 8): 0 not, 1 by 1 + log2, 2 in proportion.");
KNOB(bool, gentle_fair_sleepers, 1, bool, 0, 1, "Sleepers get half a latency of credit, not a whole one (GENTLE_FAIR_SLEEPERS).");
KNOB(bool, start_debit, 1, bool, 0, 1, "New tasks start a slice late (START_DEBIT).");
KNOB(bool, wakeup_preemption, 1, bool, 0, 1, "Whether who wakes may preempt (WAKEUP_PREEMPTION).");
KNOB(bool, last_buddy, 1, bool, 0, 1, "On a crowded queue a preempted task goes on after who preempted it (LAST_BUDDY).");
KNOB(bool, base_slice, 1, bool, 0, 1, "No slice is shorter than a granularity (BASE_SLICE, since 5.13).");
KNOB(u32, balance_ms, 16, ms, 0, 10000, "How often a busy CPU looks whether another has more to do, times the CPUs; 0: only when it has nothing.");
KNOB(u64, migration_cost_ns, 500000, ns, 0, 100000000, "Whoever ran so recently is not taken by another CPU (sched_migration_cost).");
KNOB(u32, imbalance_pct, 117, percent, 100, 1000, "How much more another CPU must have before a task is taken from it.");

#include "../include/cfs_rq.bpf.h"

EXIT_RECORD(exit_record);

/* The CPU that a new task may run on with the least weight on average. */
static __always_inline s32 lightest_cpu(const struct task_struct *p, s32 otherwise, u64 now)
{
	u32 cpus = scx_bpf_nr_cpu_ids();
	s32 lightest = otherwise;
	u64 least = load_of(otherwise, now);
	u32 cpu;

	bpf_for(cpu, 0, CPUS_MAX) {
		u64 load;

		if (cpu >= cpus)
			break;
		load = load_of(cpu, now);
		if (load < least && bpf_cpumask_test_cpu(cpu, p->cpus_ptr)) {
			lightest = cpu;
			least = load;
		}
	}
	return lightest;
}

/* find_idlest_group(): a child stays beside its parent unless another CPU has clearly less to do. */
static __always_inline s32 place_child(const struct task_struct *p, s32 here)
{
	u64 now = now_ns();
	s32 other = lightest_cpu(p, here, now);

	if (other == here || rq_of(here)->nr <= rq_of(other)->nr)
		return here;
	return load_of(here, now) * 100 > load_of(other, now) * imbalance_pct ? other : here;
}

/* record_wakee(): whether the task that wakes another woke the same the last time. */
static __always_inline void record_wakee(const struct task_struct *p)
{
	struct entity *waker = entity_of(bpf_get_current_task_btf());
	u64 now = now_ns();

	if (!waker)
		return;
	if (now - waker->flips_since > NSEC_PER_SEC) {
		waker->flips_since = now;
		waker->wakee_flips >>= 1;
	}
	if (waker->last_wakee != (u32)p->pid) {
		waker->last_wakee = p->pid;
		waker->wakee_flips++;
	}
}

/* wake_wide(): both have so many partners that a cache cannot hold them all. */
static __always_inline bool wake_wide(const struct entity *waker, const struct entity *wakee, s32 here)
{
	u32 factor = llc_sizes[llc_of(here)];
	u32 more = waker->wakee_flips, less = wakee->wakee_flips;

	if (more < less) {
		more = wakee->wakee_flips;
		less = waker->wakee_flips;
	}
	return less >= factor && more >= less * factor;
}

/* wake_affine(): beside its waker, who is about to sleep or has less to do. */
static __always_inline bool wake_affine(const struct entity *waker, const struct entity *wakee, s32 here, s32 prev, bool sync)
{
	u64 now = now_ns();
	u64 own = wakee->average.load;
	u64 load = load_of(here, now);
	u64 prev_load = load_of(prev, now);

	if (sync && rq_of(here)->nr <= 1)
		return true;
	if (sync) {
		if (waker->average.load > load)
			return true;
		load -= waker->average.load;
	}
	prev_load -= own < prev_load ? own : prev_load;
	return (load + own) * 100 < prev_load * (100 + (imbalance_pct - 100) / 2) + sync;
}

/* Whether a task that wakes and finds no CPU idle goes to its waker's. */
static __always_inline bool goes_to_waker(struct task_struct *p, s32 here, s32 prev, bool sync)
{
	/* Tasks of another class have no entity. */
	struct entity *waker = entity_of(bpf_get_current_task_btf());
	struct entity *wakee = entity_of(p);

	return here != prev && waker && wakee && bpf_cpumask_test_cpu(here, p->cpus_ptr) &&
	       !wake_wide(waker, wakee, here) && wake_affine(waker, wakee, here, prev, sync);
}

s32 SCHED_OP(cfs_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	bool is_idle = false;
	s32 here = bpf_get_smp_processor_id();
	bool sync = wake_flags & KERNEL_CONST(scx_wake_flags, SCX_WAKE_SYNC);
	/* The kernel function's own way with synchronous wake-ups is not that of CFS. */
	s32 cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags & ~KERNEL_CONST(scx_wake_flags, SCX_WAKE_SYNC), &is_idle);

	if (!(wake_flags & KERNEL_CONST(scx_wake_flags, SCX_WAKE_FORK)))
		record_wakee(p);
	if (is_idle) {
		/* Through the queue, so that its virtual runtime is that of the CPU; which is awake by then. */
		return cpu;
	}
	if (wake_flags & KERNEL_CONST(scx_wake_flags, SCX_WAKE_FORK))
		return place_child(p, cpu);
	return goes_to_waker(p, here, cpu, sync) ? here : cpu;
}

/* Whether there are so many tasks that the period grows (sched_nr_latency). */
static __always_inline bool is_crowded(const struct cfs_rq *rq)
{
	return (u64)rq->nr * min_granularity_ns >= latency_ns;
}

/* Ends the turn of who runs on the CPU if the task is far enough behind. */
static __always_inline void preempt_wakeup(const struct task_struct *p, u64 vruntime, u32 weight, s32 cpu, u64 curr)
{
	struct cfs_rq *rq = rq_of(cpu);

	if (!rq->curr_weight || rq->resched)
		return;
	if (rq->curr_idle && p->policy != SCHED_IDLE)
		goto preempt;
	if (!wakeup_preemption || p->policy == SCHED_BATCH || p->policy == SCHED_IDLE)
		return;
	if ((s64)(curr - vruntime) <= (s64)virtual(scaled(wakeup_granularity_ns), weight))
		return;
	rq->next = p->pid;
preempt:
	rq->resched = 1;
	if (last_buddy && is_crowded(rq))
		rq->last = rq->curr_pid;
	scx_bpf_kick_cpu(cpu, KERNEL_CONST(scx_kick_flags, SCX_KICK_PREEMPT));
}

void SCHED_OP(cfs_enqueue, struct task_struct *p, u64 enq_flags)
{
	bool woken = enq_flags & KERNEL_CONST(scx_enq_flags, SCX_ENQ_WAKEUP);
	struct entity *entity = entity_of(p);
	s32 cpu = scx_bpf_task_cpu(p);
	struct cfs_rq *rq = rq_of(cpu);
	bool comes;
	u64 curr, vruntime;

	if (!entity) {
		dsq_insert_vtime(p, cpu, RUN_ON_NS, rq->min_vruntime, enq_flags);
		return;
	}
	comes = woken || entity->is_new;
	/* Whoever enqueues holds the lock of this CPU's queue. */
	curr = curr_vruntime(rq, now_ns());
	advance(rq, cpu, curr);
	vruntime = vruntime_on(p, entity, cpu);
	if (entity->is_new)
		vruntime = place_new(rq, task_weight(p), curr);
	else if (woken)
		vruntime = place_sleeper(vruntime, rq);
	entity->is_new = 0;
	count_on(p, entity, cpu);
	dsq_insert_vtime(p, cpu, RUN_ON_NS, vruntime, enq_flags);
	kick_idle_for(p, enq_flags);
	if (comes)
		preempt_wakeup(p, vruntime, entity->weight, cpu, curr);
}

/* An idle CPU has no tick: who has tasks to spare wakes one that may take the first of them (nohz_balancer_kick()). */
static __always_inline void kick_idle_for_first(s32 cpu)
{
	struct task_struct *p;

	bpf_for_each(scx_dsq, p, cpu, 0) {
		s32 idle = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);

		if (idle >= 0)
			scx_bpf_kick_cpu(idle, KERNEL_CONST(scx_kick_flags, SCX_KICK_IDLE));
		break;
	}
}

static __always_inline void end_turn(struct task_struct *p, struct cfs_rq *rq)
{
	rq->resched = 1;
	set_slice(p, 0);
}

void SCHED_OP(cfs_tick, struct task_struct *p)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct cfs_rq *rq = rq_of(cpu);
	u64 slice, first;
	bool local;

	update_curr(p, rq, cpu);
	/* Tasks that exit or may not move: the kernel puts them there itself, and no slice of ours would ever end for them. */
	local = scx_bpf_dsq_nr_queued(KERNEL_CONST(scx_dsq_id_flags, SCX_DSQ_LOCAL)) > 0;
	if (!local && scx_bpf_dsq_nr_queued(cpu) <= 0)
		return;
	kick_idle_for_first(cpu);
	if (local && rq->ran >= scaled(min_granularity_ns)) {
		end_turn(p, rq);
		return;
	}
	slice = slice_of(rq->curr_weight, rq->nr, rq->load);
	if (rq->ran > slice) {
		/* A buddy must not have it again at once. */
		clear_buddies(rq, p);
		end_turn(p, rq);
		return;
	}
	if (rq->ran < scaled(min_granularity_ns))
		return;
	first = head_vtime(cpu, rq->curr_vruntime);
	if ((s64)(rq->curr_vruntime - first) > (s64)slice)
		end_turn(p, rq);
}

/*
 * Whether a CPU has a task to spare. One alone that waits is about to run there, as a rule; for longer only beside
 * tasks of another class.
 */
static __always_inline bool is_overloaded(s32 cpu, u64 now)
{
	const struct cfs_rq *rq = rq_of(cpu);

	if (scx_bpf_dsq_nr_queued(cpu) <= 0)
		return false;
	return rq->nr > 1 || now - rq->busy_since > migration_cost_ns;
}

/* The CPU with the most weight on average of those with a task to spare, if it has more than `least`; else -1. */
static __always_inline s32 heaviest_cpu(s32 own, u64 least, u64 now)
{
	u32 cpus = scx_bpf_nr_cpu_ids();
	s32 heaviest = -1;
	u32 cpu;

	bpf_for(cpu, 0, CPUS_MAX) {
		u64 load;

		if (cpu >= cpus)
			break;
		load = load_of(cpu, now);
		if ((s32)cpu != own && load > least && is_overloaded(cpu, now)) {
			heaviest = cpu;
			least = load;
		}
	}
	return heaviest;
}

/*
 * Takes up to so many tasks of another CPU's queue, of up to so much weight, that may run here and whose cache is not
 * warm there (detach_tasks()). Whether there was one.
 */
static __always_inline bool pull_from(s32 busiest, s32 own, u64 most, s64 weight, u64 now)
{
	s64 ahead = rq_of(own)->min_vruntime - rq_of(busiest)->min_vruntime;
	struct task_struct *p;
	bool pulled = false;

	bpf_for_each(scx_dsq, p, busiest, 0) {
		struct entity *entity = entity_of(p);

		if (!entity || entity->home != busiest || now - entity->ran_at < migration_cost_ns)
			continue;
		if ((s64)entity->weight > weight || p->migration_disabled || !bpf_cpumask_test_cpu(own, p->cpus_ptr))
			continue;
		if (!dsq_move_vtime(BPF_FOR_EACH_ITER, p, own, p->scx.dsq_vtime + ahead, 0))
			continue;
		move_average(entity, busiest, own);
		entity->home = own;
		count_on(p, entity, own);
		weight -= entity->weight;
		pulled = true;
		/* Counts down from what the verifier does not know: counted up from 0, every turn would be another case to it. */
		if (!--most)
			break;
	}
	return pulled && dsq_move_to_local(own);
}

/* How many tasks make two CPUs even, at least one. */
static __always_inline u64 half_of_difference(s32 busiest, s32 own)
{
	s64 more = rq_of(busiest)->nr - rq_of(own)->nr;

	return more >= 4 ? (more > 2 * MIGRATE_MAX ? MIGRATE_MAX : more / 2) : 1;
}

/* A CPU without anything to do takes tasks of the busiest, or else of any, for those of the busiest may be bound to it. */
static __always_inline bool newidle_balance(s32 own)
{
	u64 now = now_ns();
	s32 heaviest = heaviest_cpu(own, 0, now);
	u32 cpus = scx_bpf_nr_cpu_ids();
	u32 cpu;

	if (heaviest < 0)
		return false;
	if (pull_from(heaviest, own, half_of_difference(heaviest, own), WEIGHT_ANY, now))
		return true;
	bpf_for(cpu, 0, CPUS_MAX) {
		if (cpu >= cpus)
			break;
		if ((s32)cpu != own && (s32)cpu != heaviest && is_overloaded(cpu, now) && pull_from(cpu, own, 1, WEIGHT_ANY, now))
			return true;
	}
	return false;
}

/* A busy CPU takes a task from one that has more to do, if that makes the two more even. */
static __always_inline bool balance(struct cfs_rq *rq, s32 cpu)
{
	u64 now = now_ns();
	u64 load;
	s32 heaviest;

	if (!balance_ms || now - rq->balanced_at < (u64)balance_ms * 1000000 * scx_bpf_nr_cpu_ids())
		return false;
	rq->balanced_at = now;
	load = load_of(cpu, now);
	heaviest = heaviest_cpu(cpu, load * imbalance_pct / 100, now);
	if (heaviest < 0)
		return false;
	/* What is moved must not turn the difference round. */
	return pull_from(heaviest, cpu, MIGRATE_MAX, (load_of(heaviest, now) - load) / 2, now);
}

/* Virtual runtime of the head of the queue, and how far behind it a buddy may be that goes before; false if it is empty. */
static __always_inline bool first_of(s32 cpu, u64 *vruntime, u64 *granularity)
{
	struct task_struct *p;

	bpf_for_each(scx_dsq, p, cpu, 0) {
		*vruntime = p->scx.dsq_vtime;
		*granularity = virtual(scaled(wakeup_granularity_ns), task_weight(p));
		return true;
	}
	return false;
}

/* Moves a buddy from the queue to this CPU if it is not behind `latest`. */
static __always_inline bool take_buddy(s32 cpu, u32 pid, u64 latest)
{
	struct task_struct *p;

	if (!pid)
		return false;
	bpf_for_each(scx_dsq, p, cpu, 0) {
		if (before(latest, p->scx.dsq_vtime))
			break;
		if ((u32)p->pid == pid && scx_bpf_task_cpu(p) == cpu)
			return dsq_move(BPF_FOR_EACH_ITER, p, KERNEL_CONST(scx_dsq_id_flags, SCX_DSQ_LOCAL), 0);
	}
	return false;
}

/* Takes who runs next from this CPU's queue (pick_next_entity()). False: who ran goes on, or there is nobody. */
static __always_inline bool pick_next(struct cfs_rq *rq, s32 cpu, const struct task_struct *prev)
{
	bool goes_on = prev != NULL;
	u64 left = rq->curr_vruntime;
	u64 granularity = virtual(scaled(wakeup_granularity_ns), rq->curr_weight);
	u64 first, first_granularity;
	bool is_first = false;

	if (!first_of(cpu, &first, &first_granularity))
		return false;
	if (!goes_on || before(first, left)) {
		is_first = true;
		left = first;
		granularity = first_granularity;
	}
	if (take_buddy(cpu, rq->next, left + granularity))
		return true;
	if (goes_on && rq->last == (u32)prev->pid && !before(left + granularity, rq->curr_vruntime))
		return false;
	return take_buddy(cpu, rq->last, left + granularity) || (is_first && dsq_move_to_local(cpu));
}

void SCHED_OP(cfs_dispatch, s32 cpu, struct task_struct *prev)
{
	struct cfs_rq *rq = rq_of(cpu);
	bool goes_on = can_go_on(prev) && rq->curr_weight;

	if (goes_on)
		update_curr(prev, rq, cpu);
	if (balance(rq, cpu) || pick_next(rq, cpu, goes_on ? prev : NULL)) {
		rq->switching = 1;
		return;
	}
	if (goes_on) {
		rq->ran = 0;
		rq->resched = 0;
		clear_buddies(rq, prev);
		set_slice(prev, RUN_ON_NS);
		return;
	}
	if (newidle_balance(cpu))
		rq->switching = 1;
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
	rq->curr_pid = p->pid;
	rq->resched = 0;
	rq->switching = 0;
	clear_buddies(rq, p);
	rq->curr_idle = p->policy == SCHED_IDLE;
	rq->exec_start = now_ns();
	rq->ran = 0;
	advance(rq, cpu, rq->curr_vruntime);
}

void SCHED_OP(cfs_stopping, struct task_struct *p, bool runnable)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct cfs_rq *rq = rq_of(cpu);

	struct entity *entity = entity_of(p);

	if (entity)
		entity->ran_at = now_ns();
	update_curr(p, rq, cpu);
	rq->curr_weight = 0;
}

void SCHED_OP(cfs_quiescent, struct task_struct *p, u64 deq_flags)
{
	struct entity *entity = entity_of(p);

	if (!entity)
		return;
	if (entity->counted != NOWHERE)
		clear_buddies(rq_of(entity->counted), p);
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
	/* A new task is taken for one that wants all it gets. */
	entity->average.load = entity->weight;
	entity->average.at = now_ns();
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
		llc_sizes[llc_of(cpu)]++;
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
