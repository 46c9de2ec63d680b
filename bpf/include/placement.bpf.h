/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What schedulers share about CPUs: last-level caches, idle CPUs, heads of queues.
 *
 * The kernel does not tell programs which CPUs share a cache. Whoever loads the object fills `llc_of_cpu`
 * and `llc_count` before loading; left alone, all CPUs count as sharing one cache.
 */
#ifndef SCHEDLAB_PLACEMENT_BPF_H
#define SCHEDLAB_PLACEMENT_BPF_H

#define CPUS_MAX 1024
#define LLCS_MAX 64

/* Last-level cache of each CPU, numbered from 0. */
const volatile u8 llc_of_cpu[CPUS_MAX];
/* How many there are, 1 to LLCS_MAX. */
const volatile u32 llc_count = 1;

static __always_inline u32 llc_of(s32 cpu)
{
	u32 llc = llc_of_cpu[(u32)cpu % CPUS_MAX];

	return llc < LLCS_MAX ? llc : 0;
}

/*
 * Wakes an idle CPU that may run the task, so that no CPU idles while a task waits in a shared queue. To be
 * called from enqueue after the insertion; a wake-up that went through select_cpu has found none idle.
 */
static __always_inline void kick_idle_for(struct task_struct *p, u64 enq_flags)
{
	s32 cpu;

	if (bpf_core_enum_value_exists(enum scx_enq_flags, SCX_ENQ_CPU_SELECTED) &&
	    (enq_flags & KERNEL_CONST(scx_enq_flags, SCX_ENQ_CPU_SELECTED)))
		return;
	cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
	if (cpu >= 0)
		scx_bpf_kick_cpu(cpu, KERNEL_CONST(scx_kick_flags, SCX_KICK_IDLE));
}

enum scx_ent_flags {
	SCX_TASK_QUEUED = 1,
};

/*
 * Whether the task that ran until now, `prev` of dispatch, could go on. It is in no queue yet: a scheduler
 * that wants it to compete with the head of a queue has to compare the two itself.
 */
static __always_inline bool can_go_on(const struct task_struct *prev)
{
	return prev && (prev->scx.flags & KERNEL_CONST(scx_ent_flags, SCX_TASK_QUEUED));
}

/* dsq_vtime of the head of a queue, or `otherwise` if it is empty. */
static __always_inline u64 head_vtime(u64 dsq_id, u64 otherwise)
{
	struct task_struct *p;
	u64 vtime = otherwise;

	bpf_for_each(scx_dsq, p, dsq_id, 0) {
		vtime = p->scx.dsq_vtime;
		break;
	}
	return vtime;
}

/* From dispatch, where each CPU has a queue of its number: takes a task of any, for those of the busiest may be bound to it. */
static __always_inline bool pull_any(s32 own)
{
	u32 cpus = scx_bpf_nr_cpu_ids();
	u32 cpu;

	bpf_for(cpu, 0, CPUS_MAX) {
		if (cpu >= cpus)
			break;
		if ((s32)cpu != own && scx_bpf_dsq_nr_queued(cpu) > 0 && dsq_move_to_local(cpu))
			return true;
	}
	return false;
}

#endif
