// SPDX-License-Identifier: GPL-2.0-only
/* Maps of several kinds, inner maps, and every sort of data section; for tests of the loader. */
#include "../include/schedlab.bpf.h"

struct pair {
	u32 key;
	u64 value;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 100);
	__type(key, struct pair);
	__type(value, u64);
	__uint(map_flags, BPF_F_NO_PREALLOC);
} by_pair SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 3);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(struct pair));
} per_cpu SEC(".maps");

/* Not a power of two of pages: the loader rounds it up. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 5000);
} ring SEC(".maps");

struct inner {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4);
	__type(key, u32);
	__type(value, u64);
} inner_a SEC(".maps"), inner_b SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 5);
	__type(key, u32);
	__array(values, struct inner);
} outer SEC(".maps") = {
	.values = { [1] = (void *)&inner_b, [3] = (void *)&inner_a },
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct pair);
} of_task SEC(".maps");

struct setting {
	u32 weight;
	s16 bias;
	bool enabled;
	u8 low : 3;
	u8 high : 5;
	struct {
		u64 nested[2];
	};
};

KNOB(u64, interval_ns, 5000, ns, 1000, 1000000, "Time between two looks.");
KNOB_FIXED(u32, depth, 4, levels, 1, 8, "Levels that are searched.");

struct setting settings[3] = { { .weight = 7, .bias = -2 }, { .weight = 8, .high = 19 }, {} };
u32 elsewhere SEC(".data.elsewhere") = 11;
/* Hidden from other files, as a lock private to this one would be. */
u32 concealed __hidden SEC(".data.concealed") = 3;
const volatile s32 fixed = -5;
u64 counter;
u64 counter_b;
static u64 hidden;
u16 grouped SEC(".bss.grouped");
enum level { LEVEL_LOW = -1, LEVEL_HIGH = 1 } level = LEVEL_HIGH;

SEC("syscall")
int use_maps(void *ctx)
{
	struct pair key = { .key = depth, .value = interval_ns };
	u32 slot = 1;
	u64 *found = bpf_map_lookup_elem(&by_pair, &key);
	void *inner = bpf_map_lookup_elem(&outer, &slot);
	struct pair *mine = bpf_map_lookup_elem(&per_cpu, &slot);

	if (inner) {
		found = bpf_map_lookup_elem(inner, &slot);
		if (found)
			*found += 1;
	}
	if (mine)
		mine->value += elsewhere + fixed;
	counter += settings[depth & 1].weight;
	counter_b++;
	hidden += level;
	grouped = hidden + concealed;
	bpf_printk("counter %d", counter);
	bpf_ringbuf_output(&ring, &key, sizeof(key), 0);
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(use_storage, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	struct pair *pair = bpf_task_storage_get(&of_task, next, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (pair)
		pair->key++;
	return 0;
}
