// SPDX-License-Identifier: GPL-2.0-only
/*
 * A scheduler that mistreats memory, chosen by `mistreat`; no verifier would let it pass. What a kernel answers with
 * a number or a value is checked here, and a wrong answer is an error of its own.
 */
#include "../include/schedlab.bpf.h"

#define SHARED_DSQ 0
#define __arena __attribute__((address_space(1)))
#define CHECK(condition)                                                                                     \
	do {                                                                                                 \
		if (!(condition))                                                                            \
			SCHED_ERROR("wrong answer in line %d", __LINE__);                                     \
	} while (0)

enum mistreat {
	NOTHING,
	NULL_STORE,
	WILD_STORE,
	WILD_LOAD,
	PAST_VALUE,
	FREED_TASK,
	DOUBLE_DROP,
	FULL_MAPS,
	DIVISION,
	MISALIGNED,
	STORAGE_TWICE,
	ARENA_TWICE,
	NESTED_LOOPS,
	NO_FUNCTION,
	NO_MAP,
};

KNOB(u32, mistreat, 0, number, 0, 20, "What to do; see enum mistreat.");

extern void __arena *bpf_arena_alloc_pages(void *map, void __arena *addr, u32 pages, int node, u64 flags) __ksym;
extern void bpf_arena_free_pages(void *map, void __arena *ptr, u32 pages) __ksym;
extern void *bpf_obj_new_impl(u64 type_id, void *meta) __ksym;
extern void bpf_obj_drop_impl(void *object, void *meta) __ksym;

struct item {
	u64 number;
};

struct {
	__uint(type, 33);
	__uint(map_flags, 1 << 10);
	__uint(max_entries, 4);
	__ulong(map_extra, 1ULL << 44);
} arena SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, u32);
	__type(value, u64);
} numbers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 3);
	__type(key, u32);
	__type(value, u64);
} small SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 2);
	__type(value, u64);
} queue SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, u64);
} storage SEC(".maps");

/* Where the compiler cannot see what they are. */
u64 *volatile nowhere;
u64 *volatile wild = (u64 *)0xdeadbeef00001000ULL;
volatile u64 zero, minus_one = -1ULL;
struct task_struct *freed;
u64 sum;

static void full_maps(void)
{
	u64 value = 1;
	u32 key;

	for (key = 0; key < 3; key++) {
		CHECK(!bpf_map_update_elem(&small, &key, &value, BPF_ANY));
		CHECK(bpf_map_update_elem(&small, &key, &value, BPF_NOEXIST) == -17);
	}
	CHECK(bpf_map_update_elem(&small, &key, &value, BPF_ANY) == -7);
	CHECK(bpf_map_update_elem(&small, &key, &value, BPF_EXIST) == -2);
	CHECK(bpf_map_delete_elem(&small, &key) == -2);
	CHECK(!bpf_map_lookup_elem(&small, &key));
	CHECK(bpf_map_update_elem(&numbers, &key, &value, BPF_ANY) == -7);
	CHECK(!bpf_map_lookup_elem(&numbers, &key));
	CHECK(!bpf_map_push_elem(&queue, &value, BPF_ANY) && !bpf_map_push_elem(&queue, &value, BPF_ANY));
	CHECK(bpf_map_push_elem(&queue, &value, BPF_ANY) == -7);
}

/* As instructions: in C the compiler may take it that nobody divides by zero. */
#define OPERATE(operator, a, b)                                                                              \
	({                                                                                                   \
		typeof(a) ___a = (a);                                                                        \
		asm volatile("%0 " operator "= %1" : "+r"(___a) : "r"(b));                                   \
		___a;                                                                                        \
	})

static void division(void)
{
	u64 wide = 1000, least = 1ULL << 63, no = zero, all = minus_one;
	u32 narrow = 77, none = zero;

	CHECK(OPERATE("/", wide, no) == 0 && OPERATE("%%", wide, no) == 1000);
	CHECK(OPERATE("/", least, all) == 0 && OPERATE("%%", least, all) == least);
	asm volatile("%0 /= %1" : "+w"(narrow) : "w"(none));
	CHECK(narrow == 0);
	narrow = 77;
	asm volatile("%0 %%= %1" : "+w"(narrow) : "w"(none));
	CHECK(narrow == 77);
}

static void misaligned(void)
{
	u8 bytes[24] = {};
	u8 *volatile odd = bytes + 3;

	*(volatile u64 *)odd = 0x0102030405060708ULL;
	CHECK(bytes[3] == 8 && bytes[10] == 1 && *(volatile u32 *)(odd + 2) == 0x03040506);
}

static long add(u32 index, void *argument)
{
	sum += index;
	return 0;
}

static long outer(u32 index, void *argument)
{
	bpf_loop(1 << 23, add, NULL, 0);
	return 0;
}

static void past_value(void)
{
	u32 key = 1;
	u64 *value = bpf_map_lookup_elem(&numbers, &key);
	volatile u64 far = 1 << 20;

	if (value) {
		value[far] = 1;
		sum += value[far * 16];
	}
}

static void drop_twice(void)
{
	struct item *item = bpf_obj_new_impl(bpf_core_type_id_local(struct item), NULL);

	if (item) {
		bpf_obj_drop_impl(item, NULL);
		bpf_obj_drop_impl(item, NULL);
	}
}

static void arena_twice(void)
{
	void __arena *pages = bpf_arena_alloc_pages(&arena, NULL, 3, -1, 0);

	CHECK(pages);
	CHECK(!bpf_arena_alloc_pages(&arena, NULL, 2, -1, 0));
	bpf_arena_free_pages(&arena, pages, 3);
	bpf_arena_free_pages(&arena, pages, 3);
	CHECK(bpf_arena_alloc_pages(&arena, NULL, 4, -1, 0));
	CHECK(!bpf_arena_alloc_pages(&arena, NULL, 1, -1, 0));
}

void SCHED_OP(garbage_enqueue, struct task_struct *p, u64 enq_flags)
{
	u64 key = 0;

	switch (mistreat) {
	case NULL_STORE:
		*nowhere = 1;
		break;
	case WILD_STORE:
		*wild = 1;
		break;
	case WILD_LOAD:
		sum += *wild + *nowhere;
		break;
	case PAST_VALUE:
		past_value();
		break;
	case FREED_TASK:
		if (freed) {
			sum += freed->pid;
			scx_bpf_task_running(freed);
			dsq_insert(freed, SHARED_DSQ, 1000000, 0);
		}
		break;
	case DOUBLE_DROP:
		drop_twice();
		break;
	case FULL_MAPS:
		if (!sum++)
			full_maps();
		break;
	case DIVISION:
		division();
		break;
	case MISALIGNED:
		misaligned();
		break;
	case STORAGE_TWICE:
		CHECK(bpf_task_storage_get(&storage, p, NULL, 1));
		CHECK(!bpf_task_storage_delete(&storage, p));
		CHECK(bpf_task_storage_delete(&storage, p) == -2);
		break;
	case ARENA_TWICE:
		if (!sum++)
			arena_twice();
		break;
	case NESTED_LOOPS:
		bpf_loop(1 << 23, outer, NULL, 0);
		break;
	case NO_FUNCTION:
		bpf_loop(1, (void *)wild, NULL, 0);
		break;
	case NO_MAP:
		bpf_map_lookup_elem((void *)wild, &key);
		break;
	}
	dsq_insert(p, SHARED_DSQ, 1000000, enq_flags);
}

void SCHED_OP(garbage_dispatch, s32 cpu, struct task_struct *prev)
{
	dsq_move_to_local(SHARED_DSQ);
}

void SCHED_OP(garbage_exit_task, struct task_struct *p, void *args)
{
	freed = p;
}

s32 SCHED_OP_SLEEPABLE(garbage_init)
{
	return scx_bpf_create_dsq(SHARED_DSQ, -1);
}

SCHED_OPS(garbage_ops,
	  .enqueue = (void *)garbage_enqueue,
	  .dispatch = (void *)garbage_dispatch,
	  .exit_task = (void *)garbage_exit_task,
	  .init = (void *)garbage_init,
	  .name = "garbage");
