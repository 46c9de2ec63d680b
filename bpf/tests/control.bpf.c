// SPDX-License-Identifier: GPL-2.0-only
/*
 * A scheduler whose init tries ways to leave a program and maps that few schedulers have: tail calls, exceptions,
 * longest-prefix tries, Bloom filters, objects with a copy for each CPU. The main functions hand over to each
 * other; what is wrong ends in a negative number.
 */
#include "../include/schedlab.bpf.h"

#define __kptr __attribute__((btf_type_tag("kptr")))
#define __percpu_kptr __attribute__((btf_type_tag("percpu_kptr")))
#define __exception_cb(name) __attribute__((btf_decl_tag("exception_callback:" #name)))
#define EXPECT(number, condition)                                                                            \
	do {                                                                                                 \
		if (!(condition))                                                                            \
			return -(number);                                                                    \
	} while (0)

extern void bpf_throw(u64 cookie) __ksym;
extern void *bpf_percpu_obj_new_impl(u64 type_id, void *meta) __ksym;
extern void bpf_percpu_obj_drop_impl(void *object, void *meta) __ksym;

enum { SLOT_EMPTY, SLOT_THROWS, SLOT_LOOPS, SLOTS = 4 };

s32 control_throws(u64 *arguments);
s32 control_loops(u64 *arguments);

struct {
	__uint(type, 3); /* BPF_MAP_TYPE_PROG_ARRAY */
	__uint(max_entries, SLOTS);
	__uint(key_size, sizeof(u32));
	__array(values, s32(u64 *));
} programs SEC(".maps") = {
	.values = { [SLOT_THROWS] = (void *)&control_throws, [SLOT_LOOPS] = (void *)&control_loops },
};

struct prefix {
	u32 bits;
	u8 data[4];
};

struct {
	__uint(type, 11); /* BPF_MAP_TYPE_LPM_TRIE */
	__uint(map_flags, 1); /* BPF_F_NO_PREALLOC */
	__uint(max_entries, 3);
	__type(key, struct prefix);
	__type(value, u64);
} trie SEC(".maps");

struct {
	__uint(type, 30); /* BPF_MAP_TYPE_BLOOM_FILTER */
	__uint(max_entries, 64);
	__type(value, u64);
} filter SEC(".maps");

struct counter {
	u64 number;
};

struct holder {
	struct counter __percpu_kptr *counters;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct holder);
} holders SEC(".maps");

/* How often control_loops ran, and how often control_init went on after a tail call that was not taken. */
u64 loops, went_on;
u32 nr_cpus = 2;

static int try_trie(void)
{
	struct prefix key = { 16, { 10, 1, 99, 99 } };
	u64 value = 16, *found;

	EXPECT(1, !bpf_map_update_elem(&trie, &key, &value, BPF_ANY));
	key.bits = 8;
	value = 8;
	EXPECT(2, !bpf_map_update_elem(&trie, &key, &value, BPF_ANY));
	key.bits = 32;
	found = bpf_map_lookup_elem(&trie, &key);
	EXPECT(3, found && *found == 16);
	key.data[1] = 2;
	found = bpf_map_lookup_elem(&trie, &key);
	EXPECT(4, found && *found == 8);
	key.data[0] = 11;
	EXPECT(5, !bpf_map_lookup_elem(&trie, &key));
	EXPECT(6, !bpf_map_update_elem(&trie, &key, &value, BPF_ANY));
	key.bits = 31;
	EXPECT(7, bpf_map_update_elem(&trie, &key, &value, BPF_ANY) == -28);
	EXPECT(8, bpf_map_delete_elem(&trie, &key) == -2);
	key.bits = 33;
	EXPECT(9, bpf_map_update_elem(&trie, &key, &value, BPF_ANY) == -22);
	return 0;
}

static int try_filter(void)
{
	u64 value = 12345;

	EXPECT(11, bpf_map_peek_elem(&filter, &value) == -2);
	EXPECT(12, !bpf_map_push_elem(&filter, &value, 0));
	EXPECT(13, !bpf_map_peek_elem(&filter, &value));
	EXPECT(14, bpf_map_push_elem(&filter, &value, BPF_EXIST) == -22);
	return 0;
}

static int try_percpu(void)
{
	struct counter *counters, *mine, *old;
	struct holder *holder;
	u32 key = 0, cpu;
	u64 sum = 0;

	counters = bpf_percpu_obj_new_impl(bpf_core_type_id_local(struct counter), NULL);
	EXPECT(21, counters);
	bpf_for(cpu, 0, nr_cpus) {
		mine = bpf_per_cpu_ptr(counters, cpu);
		EXPECT(22, mine && !mine->number);
		mine->number = cpu + 1;
	}
	EXPECT(23, !bpf_per_cpu_ptr(counters, nr_cpus));
	mine = bpf_this_cpu_ptr(counters);
	EXPECT(24, mine->number == bpf_get_smp_processor_id() + 1);
	holder = bpf_map_lookup_elem(&holders, &key);
	EXPECT(25, holder);
	EXPECT(26, !bpf_kptr_xchg(&holder->counters, counters));
	old = bpf_kptr_xchg(&holder->counters, NULL);
	EXPECT(27, old == counters);
	bpf_for(cpu, 0, nr_cpus) {
		mine = bpf_per_cpu_ptr(old, cpu);
		sum += mine->number;
	}
	EXPECT(28, sum == (u64)nr_cpus * (nr_cpus + 1) / 2);
	bpf_percpu_obj_drop_impl(old, NULL);
	return 0;
}

static int throwing(u32 index, void *argument)
{
	if (index == 2)
		bpf_throw(40);
	return 0;
}

/* The value of a program that throws. */
__attribute__((noinline)) u64 control_caught(u64 cookie)
{
	return loops == 33 && went_on == 1 && cookie == 40 ? 0 : -cookie;
}

/* In the place of control_init, out of a callback: 0 if all went as it should. */
SEC("struct_ops.s/control_throws")
__exception_cb(control_caught) s32 control_throws(u64 *arguments)
{
	bpf_loop(5, throwing, NULL, 0);
	return -41;
}

/* Calls itself until Linux's limit, then goes on. */
SEC("struct_ops.s/control_loops")
s32 control_loops(u64 *arguments)
{
	loops++;
	bpf_tail_call(arguments, &programs, SLOT_LOOPS);
	return loops == 33 ? 33 : -43;
}

static __attribute__((noinline)) int in_a_function(u64 *arguments)
{
	int result = -44;

	bpf_tail_call(arguments, &programs, SLOT_LOOPS);
	/* Or the compiler takes the only value it sees for what the caller gets. */
	asm volatile("" : "+r"(result));
	return result;
}

SEC("struct_ops.s/control_init")
s32 control_init(u64 *arguments)
{
	int error;

	if ((error = try_trie()) || (error = try_filter()) || (error = try_percpu()))
		return error;
	bpf_tail_call(arguments, &programs, SLOT_EMPTY);
	bpf_tail_call(arguments, &programs, SLOTS);
	went_on++;
	/* A function that is left by a tail call returns what the last program returns. */
	EXPECT(45, in_a_function(arguments) == 33);
	bpf_tail_call(arguments, &programs, SLOT_THROWS);
	return -46;
}

void SCHED_OP(control_enqueue, struct task_struct *p, u64 enq_flags)
{
	dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
}

SCHED_OPS(control_ops,
	  .enqueue = (void *)control_enqueue,
	  .init = (void *)control_init,
	  .name = "control");
