// SPDX-License-Identifier: GPL-2.0-only
/*
 * fixed_priority: strict order of nice values, no dynamic priority; what the slides of 2006 wished for.
 *
 * Rule: of all tasks that wait, one with the lowest nice value runs; among equals, first come, first served.
 * A task that wakes takes the CPU it ran on last from a weaker one at once. The stronger a task, the longer
 * its slice: in proportion to 20 - nice, so that nice 0 gets `slice_ns`; when it is over, equals take turns.
 * Neither sleeping nor using the CPU earns or costs anything. Two things may move a task, and both are asked for:
 *
 * - INTERACTIVE: a task marked so goes before all that are not, from when it wakes until it has used up a short
 *   slice or was preempted; then it is like others until it sleeps again, so that a mark gives latency, not time.
 *   The mark is the policy SCHED_EXT, or a nice value of at most `interactive_nice`.
 * - Fork control: each living child is a debt of its parent, and every child owes at any time what its parent owes
 *   and for its own children. A process that owes more than `fork_allowance` goes a level down for each further one,
 *   at most `fork_levels`, so that a fork bomb sinks the deeper the more there is of it, while a shell or a build
 *   pays nothing. Siblings sink alike, and nobody below its own children, which it may have to stop. A debt is kept
 *   at its most until the last child has ended: a place in a queue is not looked at again, so who rose with the end
 *   of one sibling would starve those that queued up before it. Threads are free and owe what their process does;
 *   whose parent is gone owes what the parent owed when last looked at.
 *
 * Few CPUs, up to `light_cpus`, share one queue: nothing to balance, no data of tasks unless a tree owes forks.
 * More CPUs have a queue for each last-level cache; precedence then holds within a cache, and a CPU whose cache has
 * nothing takes from the others.
 *
 * State kept: queues ordered by level, which is the rank of a task: static_prio and what it owes, 100 to 179, or
 * static_prio - 100 while marked. Of a process that forked or was forked, its debt.
 *
 * When a priority changes: with the nice value; when a marked task wakes (up) and is interrupted (down); with forks
 * in the family beyond the allowance (down) and the end of the last child (up). Yielding: to the tail of the level.
 *
 * Good at: predictable precedence; latency of the strongest tasks, whatever else runs; a cheap decision.
 * Fails at: everything weaker while something stronger is runnable: weak tasks starve, for ever if need be. So do
 * the kernel's own threads of nice 0 beside stronger tasks: `vm try` finds it unsafe under its stress.
 *
 * Source: the plans at the end of the slides of Nakajima 2006 (plugsched): fixed priorities, SCHED_INTERACTIVE,
 * control of fork(), a light scheduler that may give up scalability. Order and slices are those of the O(1) scheduler
 * without its bonus. All numbers of the two additions are calibrated: no source has any.
 */
#include "../include/schedlab.bpf.h"
#include "../include/placement.bpf.h"
#include "../include/changes.bpf.h"

/* static_prio runs from 100 (nice -20) to 139 (nice 19). */
#define PRIO_BEST 100
#define PRIO_END 140
#define PRIO_NICE_0 120
/* p->policy. */
#define SCHED_EXT 7
#define ENOMEM 12

KNOB(u64, slice_ns, 20000000, ns, 100000, 1000000000, "Slice of a task of nice 0; others in proportion to 20 - nice. Calibrated, a fifth of 2.6's.");
KNOB(u64, slice_min_ns, 1000000, ns, 100000, 100000000, "Shortest slice, whatever the nice value. Calibrated.");
KNOB(bool, wakeup_preemption, 1, bool, 0, 1, "Whether a task that wakes takes its CPU from a weaker one at once.");
KNOB(s32, interactive_nice, -21, nice, -21, 19, "Tasks of at most this nice value are INTERACTIVE, beside those of SCHED_EXT; -21: none.");
KNOB(u64, interactive_slice_ns, 4000000, ns, 100000, 1000000000, "How long an INTERACTIVE task that woke runs before it is like others. Calibrated.");
KNOB(bool, fork_control, 1, bool, 0, 1, "Whether forks beyond the allowance cost levels.");
KNOB(u32, fork_allowance, 8, forks, 0, 100000, "Living children, its own and those before it in the tree, that cost a process nothing. Calibrated.");
KNOB(u32, fork_levels, 40, levels, 0, 40, "Most levels that forks cost. Calibrated.");
KNOB_FIXED(u32, light_cpus, 8, CPUs, 0, 1024, "Up to so many CPUs share one queue. Calibrated.");

/* What a process owes for forks. */
struct forks {
	/* What its parent owed when that was last looked at. */
	u32 inherited;
	/* Its living children, and the most there were of them since there was none. */
	u32 children;
	u32 most;
	/* Who forked it, and when that one began: a number may be another's by now. */
	s32 parent_pid;
	u64 parent_start;
	/* It is counted in `debtors`. */
	u32 counted;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct forks);
} forkers SEC(".maps");

/* Processes that owe more than the allowance; while there are none, nobody's debt is looked at. */
static u64 debtors;

EXIT_RECORD(exit_record);

static __always_inline bool is_light(void)
{
	return scx_bpf_nr_cpu_ids() <= light_cpus;
}

static __always_inline u64 queue_of(s32 cpu)
{
	return is_light() ? 0 : llc_of(cpu);
}

static __always_inline u64 slice_of(const struct task_struct *p)
{
	u32 prio = p->static_prio;
	u64 slice;

	if (prio >= PRIO_END)
		prio = PRIO_END - 1;
	slice = slice_ns * (PRIO_END - prio) / (PRIO_END - PRIO_NICE_0);
	return slice > slice_min_ns ? slice : slice_min_ns;
}

static __always_inline bool is_interactive(const struct task_struct *p)
{
	return p->policy == SCHED_EXT || (s32)p->static_prio - PRIO_NICE_0 <= interactive_nice;
}

/* Keeps `debtors` right after a debt changed. */
static __always_inline void settle(struct forks *forks, u32 debt)
{
	bool owes = debt > fork_allowance;

	/* Its threads may come here on several CPUs: only who changes it counts. */
	if (owes == forks->counted || __sync_lock_test_and_set(&forks->counted, owes) == owes)
		return;
	__sync_fetch_and_add(&debtors, owes ? 1 : -1);
}

/* What a process owes with what it has inherited. */
static __always_inline u32 owed_by(const struct forks *forks)
{
	return forks->inherited + forks->most;
}

/* What the process of a task owes by now; inside an RCU section. */
static __always_inline u32 debt_of(struct task_struct *p)
{
	struct task_struct *leader = p->group_leader;
	struct task_struct *parent = leader->real_parent->group_leader;
	struct forks *forks, *above;

	forks = bpf_task_storage_get(&forkers, leader, NULL, 0);
	if (!forks)
		return 0;
	/* Otherwise somebody adopted it. */
	if (parent->pid == forks->parent_pid && parent->start_time == forks->parent_start) {
		above = bpf_task_storage_get(&forkers, parent, NULL, 0);
		if (above)
			forks->inherited = owed_by(above);
	}
	settle(forks, owed_by(forks));
	return owed_by(forks);
}

/* Levels that a task is down for the forks its process owes. */
static __always_inline u64 levels_owed(struct task_struct *p)
{
	u32 debt;

	bpf_rcu_read_lock();
	debt = debt_of(p);
	bpf_rcu_read_unlock();
	if (debt <= fork_allowance)
		return 0;
	debt -= fork_allowance;
	return debt < fork_levels ? debt : fork_levels;
}

/* Level of a task that is not marked, or whose mark is used up. */
static __always_inline u64 level_of(struct task_struct *p)
{
	u64 level = p->static_prio;

	return fork_control && debtors ? level + levels_owed(p) : level;
}

/* Writes down that a task comes to another level, if it does. */
static __always_inline void log_level(const struct task_struct *p, u64 level, enum cause cause)
{
	if (log_changes && p->scx.dsq_vtime != level)
		log_change(p->pid, p->scx.dsq_vtime, level, cause);
}

/* Moves a task that is in no queue to a level, for a cause. */
static __always_inline void set_level(struct task_struct *p, u64 level, enum cause cause)
{
	log_level(p, level, cause);
	set_dsq_vtime(p, level);
}

/* Why a task that goes on, or queues up again, has another level than it had. */
static __always_inline enum cause cause_of_move(const struct task_struct *p)
{
	return p->scx.dsq_vtime < PRIO_BEST ? CAUSE_RAN : CAUSE_FORKED;
}

s32 SCHED_OP(fixed_priority_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	bool is_idle = false;
	s32 cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &is_idle);

	if (is_idle) {
		set_level(p, level_of(p), cause_of_move(p));
		dsq_insert(p, KERNEL_CONST(scx_dsq_id_flags, SCX_DSQ_LOCAL), slice_of(p), 0);
	}
	return cpu;
}

/* Ends the slice of the task on `cpu` if it is weaker than `level`. */
static void preempt_weaker(u64 level, s32 cpu)
{
	struct task_struct *curr;
	bool weaker = false;

	bpf_rcu_read_lock();
	curr = cpu_curr(cpu);
	if (curr)
		weaker = curr->scx.dsq_vtime > level;
	bpf_rcu_read_unlock();
	if (weaker)
		scx_bpf_kick_cpu(cpu, KERNEL_CONST(scx_kick_flags, SCX_KICK_PREEMPT));
}

void SCHED_OP(fixed_priority_enqueue, struct task_struct *p, u64 enq_flags)
{
	bool woken = enq_flags & KERNEL_CONST(scx_enq_flags, SCX_ENQ_WAKEUP);
	bool marked = woken && is_interactive(p);
	u64 level = marked ? p->static_prio - PRIO_BEST : level_of(p);
	s32 cpu = scx_bpf_task_cpu(p);

	log_level(p, level, marked ? CAUSE_SLEPT : cause_of_move(p));
	dsq_insert_vtime(p, queue_of(cpu), marked ? interactive_slice_ns : slice_of(p), level, enq_flags);
	kick_idle_for(p, enq_flags);
	if (wakeup_preemption && woken)
		preempt_weaker(level, cpu);
}

void SCHED_OP(fixed_priority_dispatch, s32 cpu, struct task_struct *prev)
{
	u64 own = queue_of(cpu);
	u64 level;
	u32 llc;

	if (can_go_on(prev)) {
		level = level_of(prev);
		if (level < head_vtime(own, ~0ULL)) {
			set_level(prev, level, cause_of_move(prev));
			set_slice(prev, slice_of(prev));
			return;
		}
	}
	if (dsq_move_to_local(own) || is_light())
		return;
	for (llc = 0; llc < LLCS_MAX; llc++) {
		if (llc >= llc_count)
			break;
		if (llc != own && dsq_move_to_local(llc))
			break;
	}
}

void SCHED_OP(fixed_priority_set_weight, struct task_struct *p, u32 weight)
{
	set_level(p, level_of(p), CAUSE_NICE);
}

/* From here on its priority is a level. */
void SCHED_OP(fixed_priority_enable, struct task_struct *p)
{
	set_dsq_vtime(p, level_of(p));
}

/* A child is a debt of its parent. */
s32 SCHED_OP_SLEEPABLE(fixed_priority_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	struct task_struct *forker = bpf_get_current_task_btf();
	struct task_struct *parent;
	struct forks *forks, *child;
	s32 error = -ENOMEM;
	u32 children;

	if (!args->fork || !forker->pid || p->tgid == forker->tgid)
		return 0;
	child = bpf_task_storage_get(&forkers, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!child)
		return error;
	bpf_rcu_read_lock();
	parent = forker->group_leader;
	forks = bpf_task_storage_get(&forkers, parent, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (forks) {
		children = __sync_fetch_and_add(&forks->children, 1) + 1;
		/* Two threads that fork at once may leave it one short, until the next fork. */
		if (forks->most < children)
			forks->most = children;
		settle(forks, owed_by(forks));
		child->inherited = owed_by(forks);
		child->parent_pid = parent->pid;
		child->parent_start = parent->start_time;
		settle(child, child->inherited);
		error = 0;
	}
	bpf_rcu_read_unlock();
	return error;
}

void SCHED_OP(fixed_priority_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	struct forks *child = bpf_task_storage_get(&forkers, p, NULL, 0);
	struct task_struct *parent;
	struct forks *forks;

	if (!child)
		return;
	settle(child, 0);
	if (!child->parent_pid)
		return;
	parent = bpf_task_from_pid(child->parent_pid);
	if (!parent)
		return;
	forks = bpf_task_storage_get(&forkers, parent, NULL, 0);
	if (forks && forks->children && parent->start_time == child->parent_start) {
		if (__sync_fetch_and_add(&forks->children, -1) == 1)
			forks->most = 0;
		settle(forks, owed_by(forks));
	}
	bpf_task_release(parent);
}

s32 SCHED_OP_SLEEPABLE(fixed_priority_init)
{
	u32 llc;
	s32 error;

	for (llc = 0; llc < LLCS_MAX; llc++) {
		if (llc && (is_light() || llc >= llc_count))
			break;
		error = scx_bpf_create_dsq(llc, -1);
		if (error)
			return error;
	}
	return 0;
}

void SCHED_OP(fixed_priority_exit, struct scx_exit_info *info)
{
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(fixed_priority_ops,
	  .select_cpu = (void *)fixed_priority_select_cpu,
	  .enqueue = (void *)fixed_priority_enqueue,
	  .dispatch = (void *)fixed_priority_dispatch,
	  .set_weight = (void *)fixed_priority_set_weight,
	  .enable = (void *)fixed_priority_enable,
	  .init_task = (void *)fixed_priority_init_task,
	  .exit_task = (void *)fixed_priority_exit_task,
	  .init = (void *)fixed_priority_init,
	  .exit = (void *)fixed_priority_exit,
	  .name = "fixed_priority");
