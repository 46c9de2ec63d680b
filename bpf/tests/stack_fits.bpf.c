// SPDX-License-Identifier: GPL-2.0-only
/*
 * A scheduler whose functions use all of the stack that there is, and no more: a chain of 512 bytes, a callback within
 * a loop, a callback of a timer with a stack of its own, and pointers to the first and last bytes of a frame.
 */
#include "../include/schedlab.bpf.h"
#include "../include/use_stack.bpf.h"

struct element {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct element);
} timers SEC(".maps");

struct wide_key {
	char bytes[64];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct wide_key);
	__type(value, u32);
} wide_keys SEC(".maps");

static __noinline int deepest(void)
{
	USE_STACK(16);
	return 0;
}

static __noinline int deep(void)
{
	USE_STACK(240);
	return deepest();
}

static int each(u32 index, void *context)
{
	USE_STACK(256);
	return 0;
}

static int later(void *map, int *key, struct element *element)
{
	USE_STACK(512);
	return 0;
}

static __noinline int first_and_last(void)
{
	asm volatile("r1 = r10\n"
		     "r1 += -256\n"
		     "*(u64 *)(r1 + 248) = 0\n"
		     "*(u64 *)(r1 + 0) = 0\n" ::
			     : "r1", "memory");
	return 0;
}

static __noinline int key_of_64_bytes(void)
{
	struct wide_key key = {};

	return !bpf_map_lookup_elem(&wide_keys, &key);
}

void SCHED_OP(stack_fits_enqueue, struct task_struct *p, u64 enq_flags)
{
	USE_STACK(256);
	deep();
	first_and_last();
	key_of_64_bytes();
	bpf_loop(1, each, NULL, 0);
	dsq_insert(p, KERNEL_CONST(scx_dsq_id_flags, SCX_DSQ_GLOBAL), 20000000, enq_flags);
}

s32 SCHED_OP_SLEEPABLE(stack_fits_init)
{
	u32 key = 0;
	struct element *element = bpf_map_lookup_elem(&timers, &key);

	USE_STACK(512);
	if (element) {
		bpf_timer_init(&element->timer, &timers, 1);
		bpf_timer_set_callback(&element->timer, later);
	}
	return 0;
}

SCHED_OPS(stack_fits_ops,
	  .enqueue = (void *)stack_fits_enqueue,
	  .init = (void *)stack_fits_init,
	  .name = "stack_fits");
