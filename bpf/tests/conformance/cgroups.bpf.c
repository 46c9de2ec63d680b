// SPDX-License-Identifier: GPL-2.0-only
/* Cgroups: the root is always there, weights are told, tasks move only where they were prepared to. */
#include "../../include/conformance.bpf.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct scx_cgroup_init_args {
	u32 weight;
};
struct kernfs_node {
	u64 id;
};
struct cgroup___tree {
	int level;
	struct kernfs_node *kn;
};
#pragma clang attribute pop

extern struct cgroup *bpf_cgroup_ancestor(struct cgroup *cgrp, int level) __ksym __weak;
extern struct cgroup *bpf_cgroup_from_id(u64 cgid) __ksym __weak;
extern struct cgroup *bpf_cgroup_acquire(struct cgroup *cgrp) __ksym __weak;

KNOB_FIXED(bool, refuse, 0, bool, 0, 1, "Refuse every move.");

u64 groups, left, prepared, moved, weights, idles, bandwidths, weight_sum;

static __always_inline s32 level_of(struct cgroup *cgrp)
{
	return ((struct cgroup___tree *)cgrp)->level;
}

s32 SCHED_OP_SLEEPABLE(cgroups_cgroup_init, struct cgroup *cgrp, struct scx_cgroup_init_args *args)
{
	if (!groups)
		CHECK(level_of(cgrp) == 0);
	CHECK(args->weight >= 1 && args->weight <= 10000);
	COUNT(groups);
	weight_sum += args->weight;
	return 0;
}

void SCHED_OP_SLEEPABLE(cgroups_cgroup_exit, struct cgroup *cgrp)
{
	COUNT(left);
	if (left == groups)
		CHECK(level_of(cgrp) == 0);
}

s32 SCHED_OP_SLEEPABLE(cgroups_cgroup_prep_move, struct task_struct *p, struct cgroup *from, struct cgroup *to)
{
	CHECK(from != to);
	if (refuse)
		return -EINVAL;
	COUNT(prepared);
	return 0;
}

void SCHED_OP(cgroups_cgroup_move, struct task_struct *p, struct cgroup *from, struct cgroup *to)
{
	struct cgroup *now = scx_bpf_task_cgroup(p);

	CHECK(now == to);
	COUNT(moved);
	bpf_cgroup_release(now);
}

void SCHED_OP(cgroups_cgroup_set_weight, struct cgroup *cgrp, u32 weight)
{
	COUNT(weights);
	weight_sum += weight;
}

void SCHED_OP(cgroups_cgroup_set_bandwidth, struct cgroup *cgrp, u64 period_us, u64 quota_us, u64 burst_us)
{
	COUNT(bandwidths);
	CHECK(period_us >= 1000 && quota_us > 0);
}

void SCHED_OP(cgroups_cgroup_set_idle, struct cgroup *cgrp, bool idle)
{
	COUNT(idles);
}

s32 SCHED_OP_SLEEPABLE(cgroups_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	CHECK(args->cgroup);
	return 0;
}

void SCHED_OP(cgroups_running, struct task_struct *p)
{
	struct cgroup *cgrp, *root, *same;

	if (!under_test(p))
		return;
	cgrp = scx_bpf_task_cgroup(p);
	root = bpf_cgroup_ancestor(cgrp, 0);
	if (root) {
		CHECK(level_of(root) == 0);
		bpf_cgroup_release(root);
	}
	same = bpf_cgroup_from_id(((struct cgroup___tree *)cgrp)->kn->id);
	if (same) {
		CHECK(same == cgrp);
		bpf_cgroup_release(same);
	}
	same = bpf_cgroup_acquire(cgrp);
	if (same)
		bpf_cgroup_release(same);
	bpf_cgroup_release(cgrp);
}

void SCHED_OP(cgroups_exit, struct scx_exit_info *info)
{
	CHECK(groups >= 1 && groups == left);
	CHECK(prepared == moved);
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(cgroups_ops,
	  .cgroup_init = (void *)cgroups_cgroup_init,
	  .cgroup_exit = (void *)cgroups_cgroup_exit,
	  .cgroup_prep_move = (void *)cgroups_cgroup_prep_move,
	  .cgroup_move = (void *)cgroups_cgroup_move,
	  .cgroup_set_weight = (void *)cgroups_cgroup_set_weight,
	  .cgroup_set_bandwidth = (void *)cgroups_cgroup_set_bandwidth,
	  .cgroup_set_idle = (void *)cgroups_cgroup_set_idle,
	  .init_task = (void *)cgroups_init_task,
	  .running = (void *)cgroups_running,
	  .exit = (void *)cgroups_exit,
	  .name = "cgroups");
