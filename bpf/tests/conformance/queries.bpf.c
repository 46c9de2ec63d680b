// SPDX-License-Identifier: GPL-2.0-only
/* What may be asked of the kernel: CPUs, masks, performance, events, clock, current tasks, the root cgroup. */
#include "../../include/conformance.bpf.h"

extern struct rq *scx_bpf_locked_rq(void) __ksym __weak;

static u64 asked, refills, still_another, ticks;

void SCHED_OP(queries_running, struct task_struct *p)
{
	struct scx_event_stats events = {};
	s32 cpu = scx_bpf_task_cpu(p);
	struct cgroup *cgroup;
	u64 now = now_ns();
	struct task_struct *curr;

	if (!under_test(p))
		return;
	COUNT(asked);
	CHECK(cpu == (s32)bpf_get_smp_processor_id());
	CHECK(now_ns() >= now);
	CHECK(scx_bpf_cpuperf_cap(cpu) <= 1024 && scx_bpf_cpuperf_cap(cpu) > 0);
	CHECK(scx_bpf_cpuperf_cur(cpu) <= 1024);
	scx_bpf_cpuperf_set(cpu, 1024);
	bpf_rcu_read_lock();
	curr = cpu_curr(cpu);
	/* The switch to the task is not made yet. */
	CHECK(curr && (curr->pid == p->pid) == scx_bpf_task_running(p));
	if (!scx_bpf_task_running(p))
		COUNT(still_another);
	bpf_rcu_read_unlock();
	if (bpf_ksym_exists(scx_bpf_events)) {
		scx_bpf_events(&events, sizeof(events));
		refills = events.SCX_EV_REFILL_SLICE_DFL;
	}
	cgroup = scx_bpf_task_cgroup(p);
	CHECK(cgroup);
	bpf_cgroup_release(cgroup);
}

void SCHED_OP(queries_tick, struct task_struct *p)
{
	struct task_struct *curr;
	struct rq *rq;

	if (!under_test(p))
		return;
	COUNT(ticks);
	CHECK(scx_bpf_task_running(p));
	bpf_rcu_read_lock();
	curr = cpu_curr(scx_bpf_task_cpu(p));
	CHECK(curr && curr->pid == p->pid);
	if (bpf_ksym_exists(scx_bpf_locked_rq)) {
		rq = scx_bpf_locked_rq();
		CHECK(rq && rq->cpu == scx_bpf_task_cpu(p));
	}
	bpf_rcu_read_unlock();
}

s32 SCHED_OP_SLEEPABLE(queries_init)
{
	const struct cpumask *possible = scx_bpf_get_possible_cpumask(), *online = scx_bpf_get_online_cpumask();
	u32 nr_cpus = scx_bpf_nr_cpu_ids();

	CHECK(bpf_cpumask_weight(possible) <= nr_cpus);
	CHECK(bpf_cpumask_weight(online) <= bpf_cpumask_weight(possible));
	CHECK(bpf_cpumask_test_cpu(0, online));
	scx_bpf_put_cpumask(possible);
	scx_bpf_put_cpumask(online);
	return 0;
}

void SCHED_OP(queries_exit, struct scx_exit_info *info)
{
	CHECK(asked > 0);
	CHECK(still_another > 0);
	CHECK(ticks > 0);
	CHECK(refills > 0);
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(queries_ops,
	  .running = (void *)queries_running,
	  .tick = (void *)queries_tick,
	  .init = (void *)queries_init,
	  .exit = (void *)queries_exit,
	  .name = "queries");
