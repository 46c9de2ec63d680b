// SPDX-License-Identifier: GPL-2.0-only
/*
 * A scheduler that refuses to begin until somebody has done what a user half would: resized an array, filled
 * in variables and a map, and run a program on every CPU. user_half.setup.toml beside it does.
 */
#include "../include/schedlab.bpf.h"

#define SHARED_DSQ 0

enum mode {
	MODE_NONE,
	MODE_PAIRED = 7,
};

struct config {
	u64 slice_ns;
	u32 weights[4];
	enum mode mode;
	bool strict;
	char label[16];
};

const volatile struct config config;
const volatile u32 nr_cpu_ids;
const volatile s32 pair_of[1] SEC(".rodata.pair_of");
u64 budget_us = 100;

struct cpu_arg {
	s32 cpu;
	u32 node;
	u64 answer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, u32);
	__type(value, u64);
} per_pair SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8);
	__type(key, u64);
	__type(value, struct config);
} known SEC(".maps");

u64 cpus_seen;
u64 answers;

SEC("syscall")
int set_up_cpu(struct cpu_arg *arg)
{
	if (arg->cpu < 0)
		return -22;
	cpus_seen |= 1ULL << (arg->cpu & 63);
	arg->answer = 100 + arg->cpu;
	return 0;
}

SEC("syscall")
int sum_up(struct cpu_arg *arg)
{
	answers += arg->answer;
	return 3;
}

void SCHED_OP(user_half_enqueue, struct task_struct *p, u64 enq_flags)
{
	dsq_insert(p, SHARED_DSQ, config.slice_ns, enq_flags);
}

void SCHED_OP(user_half_dispatch, s32 cpu, struct task_struct *prev)
{
	dsq_move_to_local(SHARED_DSQ);
}

s32 SCHED_OP_SLEEPABLE(user_half_init)
{
	u64 key = 5;
	struct config *found = bpf_map_lookup_elem(&known, &key);
	volatile const s32 *pairs = pair_of;

	if (nr_cpu_ids != 4 || config.slice_ns != 3000000 || config.mode != MODE_PAIRED || !config.strict)
		return -101;
	if (config.weights[0] != 5 || config.weights[3] != 5 || config.label[0] != 'o' || config.label[2])
		return -102;
	if (pairs[0] != 2 || pairs[3] != 1)
		return -103;
	if (cpus_seen != 0xf || answers != 100 + 101 + 102 + 103 + 7)
		return -104;
	if (!found || found->slice_ns != 9 || found->weights[1] != 22 || budget_us != 2000)
		return -105;
	return scx_bpf_create_dsq(SHARED_DSQ, -1);
}

EXIT_RECORD(exit_record);

void SCHED_OP(user_half_exit, struct scx_exit_info *info)
{
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(user_half_ops,
	  .enqueue = (void *)user_half_enqueue,
	  .dispatch = (void *)user_half_dispatch,
	  .init = (void *)user_half_init,
	  .exit = (void *)user_half_exit,
	  .name = "user_half");
