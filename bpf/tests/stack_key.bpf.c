// SPDX-License-Identifier: GPL-2.0-only
/* A scheduler that looks a key up of which the end would lie past the top of its frame: no kernel loads it. */
#include "../include/schedlab.bpf.h"

struct wide_key {
	char bytes[64];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct wide_key);
	__type(value, u32);
} wide_keys SEC(".maps");

static __noinline int half_a_key(void)
{
	u64 short_key[4] = {};

	return !bpf_map_lookup_elem(&wide_keys, short_key);
}

void SCHED_OP(stack_key_enqueue, struct task_struct *p, u64 enq_flags)
{
	half_a_key();
	dsq_insert(p, KERNEL_CONST(scx_dsq_id_flags, SCX_DSQ_GLOBAL), 20000000, enq_flags);
}

SCHED_OPS(stack_key_ops,
	  .enqueue = (void *)stack_key_enqueue,
	  .name = "stack_key");
