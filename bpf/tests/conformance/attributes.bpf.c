// SPDX-License-Identifier: GPL-2.0-only
/* Callbacks about attributes: weight, affinity, policy, yield, and the tick. */
#include "../../include/conformance.bpf.h"

static u64 weights, masks, yields, ticks, enables, disables;
static u32 weight_seen;

bool SCHED_OP(attributes_yield, struct task_struct *from, struct task_struct *to)
{
	if (under_test(from)) {
		COUNT(yields);
		CHECK(!to);
		set_slice(from, 0);
	}
	return false;
}

void SCHED_OP(attributes_tick, struct task_struct *p)
{
	if (under_test(p))
		COUNT(ticks);
}

void SCHED_OP(attributes_set_weight, struct task_struct *p, u32 weight)
{
	if (!is_task(p, 'n'))
		return;
	COUNT(weights);
	CHECK(weight == p->scx.weight);
	weight_seen = weight;
}

void SCHED_OP(attributes_set_cpumask, struct task_struct *p, const struct cpumask *mask)
{
	if (!is_task(p, 'a'))
		return;
	COUNT(masks);
	CHECK(bpf_cpumask_test_cpu(0, mask) == bpf_cpumask_test_cpu(0, p->cpus_ptr));
}

void SCHED_OP(attributes_enable, struct task_struct *p)
{
	if (is_task(p, 'p'))
		COUNT(enables);
}

void SCHED_OP(attributes_disable, struct task_struct *p)
{
	if (is_task(p, 'p'))
		COUNT(disables);
}

void SCHED_OP(attributes_exit, struct scx_exit_info *info)
{
	CHECK(weights > 0);
	/* nice 5 weighs 335 of 1024: 33 of 100. */
	CHECK(weight_seen == 33);
	CHECK(masks > 0);
	CHECK(yields > 0);
	CHECK(ticks > 0);
	CHECK(enables > 0 && disables > 0);
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(attributes_ops,
	  .yield = (void *)attributes_yield,
	  .tick = (void *)attributes_tick,
	  .set_weight = (void *)attributes_set_weight,
	  .set_cpumask = (void *)attributes_set_cpumask,
	  .enable = (void *)attributes_enable,
	  .disable = (void *)attributes_disable,
	  .exit = (void *)attributes_exit,
	  .name = "attributes");
