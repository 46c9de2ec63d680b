// SPDX-License-Identifier: GPL-2.0-only
/*
 * A scheduler whose init tries what BPF itself offers: arena, dynptrs, iterators, owned pointers and timers in
 * map values, lists and trees, locks, text, work queues. It fails with the number of the first wrong answer.
 */
#include "../include/schedlab.bpf.h"

#define SHARED_DSQ 0
#define __arena __attribute__((address_space(1)))
#define __kptr __attribute__((btf_type_tag("kptr")))
#define __contains(name, node) __attribute__((btf_decl_tag("contains:" #name ":" #node)))
#define private(name) SEC(".bss." #name) __attribute__((aligned(8)))
#ifndef container_of
#define container_of(ptr, type, member) ((type *)((void *)(ptr) - offsetof(type, member)))
#endif
#ifndef offsetof
#define offsetof(type, member) __builtin_offsetof(type, member)
#endif
#define EXPECT(number, condition)                                                                            \
	do {                                                                                                 \
		if (!(condition))                                                                            \
			return -(number);                                                                    \
	} while (0)

struct bpf_wq {
	__u64 opaque[2];
};
struct bpf_dynptr {
	__u64 opaque[2];
};
struct bpf_iter_bits {
	__u64 opaque[2];
};
struct bpf_list_head {
	__u64 opaque[2];
};
struct bpf_list_node {
	__u64 opaque[3];
};
struct bpf_rb_root {
	__u64 opaque[2];
};
struct bpf_rb_node {
	__u64 opaque[4];
};
struct item {
	u64 number;
	struct bpf_list_node list;
	struct bpf_rb_node tree;
};

extern void __arena *bpf_arena_alloc_pages(void *map, void __arena *addr, u32 pages, int node, u64 flags) __ksym;
extern void bpf_arena_free_pages(void *map, void __arena *ptr, u32 pages) __ksym;
extern int bpf_iter_bits_new(struct bpf_iter_bits *it, const u64 *words, u32 nr_words) __ksym;
extern int *bpf_iter_bits_next(struct bpf_iter_bits *it) __ksym;
extern void bpf_iter_bits_destroy(struct bpf_iter_bits *it) __ksym;
extern void *bpf_obj_new_impl(u64 type_id, void *meta) __ksym;
extern void bpf_obj_drop_impl(void *object, void *meta) __ksym;
extern int bpf_list_push_back_impl(struct bpf_list_head *head, struct bpf_list_node *node, void *meta, u64 off) __ksym;
extern struct bpf_list_node *bpf_list_pop_front(struct bpf_list_head *head) __ksym;
extern int bpf_rbtree_add_impl(struct bpf_rb_root *root, struct bpf_rb_node *node,
			       bool (*less)(struct bpf_rb_node *a, const struct bpf_rb_node *b), void *meta,
			       u64 off) __ksym;
extern struct bpf_rb_node *bpf_rbtree_first(struct bpf_rb_root *root) __ksym;
extern struct bpf_rb_node *bpf_rbtree_remove(struct bpf_rb_root *root, struct bpf_rb_node *node) __ksym;
extern int bpf_strlen(const char *s) __ksym __weak;
extern int bpf_strstr(const char *s, const char *wanted) __ksym __weak;
extern int bpf_wq_init(struct bpf_wq *wq, void *map, unsigned int flags) __ksym;
extern int bpf_wq_start(struct bpf_wq *wq, unsigned int flags) __ksym;
extern int bpf_wq_set_callback(struct bpf_wq *wq, int (*call)(void *map, int *key, void *value),
			       unsigned int flags) __ksym __weak;
extern u64 bpf_dynptr_size(const struct bpf_dynptr *p) __ksym;
extern int bpf_dynptr_adjust(const struct bpf_dynptr *p, u32 start, u32 end) __ksym;
extern int bpf_dynptr_copy(const struct bpf_dynptr *dst_ptr, u64 dst_off,
			   const struct bpf_dynptr *src_ptr, u64 src_off, u64 size) __ksym __weak;
extern int bpf_dynptr_memset(const struct bpf_dynptr *p, u64 offset, u64 size, u8 val) __ksym __weak;
extern int bpf_strncasecmp(const char *s1__ign, const char *s2__ign, size_t len) __ksym __weak;
extern int bpf_strcasestr(const char *s1__ign, const char *s2__ign) __ksym __weak;

struct {
	__uint(type, 33);
	__uint(map_flags, 1 << 10);
	__uint(max_entries, 16);
	__ulong(map_extra, 1ULL << 44);
} arena SEC(".maps");

struct timed {
	struct bpf_timer timer;
	struct bpf_wq work;
	struct bpf_cpumask __kptr *mask;
	u64 number;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, u32);
	__type(value, struct timed);
} timers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4);
	__type(key, u32);
	__type(value, struct timed);
} removed SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} ring SEC(".maps");

struct {
	__uint(type, 31);
	__uint(max_entries, 4096);
} messages SEC(".maps");

struct {
	__uint(type, 4);
	__uint(key_size, 4);
	__uint(value_size, 4);
} counters SEC(".maps");

/* Filled in from the kernel's types, as the user half of objects of sched-ext/scx does. */
const volatile u64 __SCX_DSQ_LOCAL __attribute__((weak));
const volatile u64 __SCX_NO_SUCH_NUMBER __attribute__((weak));

u64 timer_fired;
u64 removed_fired;
u64 work_done;
u64 message_sum;
u32 timer_cpu = ~0U;

struct node {
	u64 number;
	struct node __arena *next;
};

struct node __arena *arena_list;
u64 __arena arena_global = 11;

static int try_arena(void)
{
	struct node __arena *page, *node, *last = NULL;
	u64 sum = 0;
	u32 i;

	EXPECT(101, arena_global == 11);
	page = bpf_arena_alloc_pages(&arena, NULL, 2, -1, 0);
	EXPECT(102, page != NULL);
	for (i = 0; i < 10; i++) {
		node = &page[i];
		node->number = i;
		node->next = last;
		last = node;
	}
	arena_list = last;
	for (node = arena_list; node; node = node->next)
		sum += node->number;
	EXPECT(103, sum == 45);
	EXPECT(104, !bpf_arena_alloc_pages(&arena, NULL, 14, -1, 0));
	bpf_arena_free_pages(&arena, page, 2);
	page = bpf_arena_alloc_pages(&arena, NULL, 2, -1, 0);
	EXPECT(105, page && page[3].number == 0);
	return 0;
}

static int try_dynptrs(void)
{
	char text[16] = "dynamic pointer";
	char part[8] = {};
	struct bpf_dynptr pointer, record;
	u64 *data;

	EXPECT(111, !bpf_dynptr_from_mem(text, sizeof(text), 0, (void *)&pointer));
	EXPECT(112, bpf_dynptr_size(&pointer) == 16);
	EXPECT(113, !bpf_dynptr_read(part, 7, (void *)&pointer, 8, 0) && part[0] == 'p' && part[6] == 'r');
	EXPECT(114, bpf_dynptr_read(part, 8, (void *)&pointer, 9, 0) == -7);
	EXPECT(115, !bpf_dynptr_adjust(&pointer, 4, 12) && bpf_dynptr_size(&pointer) == 8);
	EXPECT(116, !bpf_dynptr_write((void *)&pointer, 0, "MIC", 3, 0) && text[4] == 'M');
	EXPECT(117, bpf_dynptr_adjust(&pointer, 4, 12) == -34);
	EXPECT(118, !bpf_ringbuf_reserve_dynptr(&ring, 8, 0, (void *)&record));
	data = bpf_dynptr_data((void *)&record, 0, 8);
	EXPECT(119, data);
	*data = 77;
	bpf_ringbuf_submit_dynptr((void *)&record, 0);
	if (bpf_ksym_exists(bpf_dynptr_copy)) {
		EXPECT(201, !bpf_dynptr_copy(&pointer, 0, &pointer, 4, 4) && text[4] == text[8]);
		EXPECT(202, bpf_dynptr_copy(&pointer, 5, &pointer, 0, 4) == -7);
		EXPECT(203, bpf_dynptr_copy(&pointer, 0, &record, 0, 4) == -22);
	}
	if (bpf_ksym_exists(bpf_dynptr_memset)) {
		EXPECT(204, !bpf_dynptr_memset(&pointer, 1, 2, 'x') && text[5] == 'x' && text[6] == 'x');
		EXPECT(205, bpf_dynptr_memset(&pointer, 7, 2, 'x') == -7 && text[11] != 'x');
	}
	return 0;
}

static int try_folded_text(void)
{
	if (!bpf_ksym_exists(bpf_strncasecmp))
		return 0;
	EXPECT(211, !bpf_strncasecmp("Fair share", "fAIR SCHED", 6));
	EXPECT(212, bpf_strncasecmp("fair share", "FAIR SCHED", 8) > 0);
	EXPECT(213, bpf_strcasestr("the Fair class", "fair") == 4);
	EXPECT(214, bpf_strcasestr("the fair class", "idle") == -2);
	return 0;
}

static int try_bits(void)
{
	u64 words[2] = { 0x8000000000000005ULL, 2 };
	struct bpf_iter_bits it;
	u32 sum = 0, count = 0;
	int *bit;

	EXPECT(121, !bpf_iter_bits_new(&it, words, 2));
	while ((bit = bpf_iter_bits_next(&it))) {
		sum += *bit;
		count++;
	}
	bpf_iter_bits_destroy(&it);
	EXPECT(122, count == 4 && sum == 0 + 2 + 63 + 65);
	EXPECT(123, bpf_iter_bits_new(&it, words, 512) == -7);
	bpf_iter_bits_destroy(&it);
	return 0;
}

private(OBJECTS) struct bpf_spin_lock lock;
private(OBJECTS) struct bpf_list_head list __contains(item, list);
private(OBJECTS) struct bpf_rb_root tree __contains(item, tree);

static bool less(struct bpf_rb_node *a, const struct bpf_rb_node *b)
{
	return container_of(a, struct item, tree)->number < container_of(b, struct item, tree)->number;
}

static int try_objects(void)
{
	struct item *item;
	struct bpf_rb_node *first;
	struct bpf_list_node *node;
	u32 i;

	for (i = 0; i < 3; i++) {
		item = bpf_obj_new_impl(bpf_core_type_id_local(struct item), NULL);
		EXPECT(131, item);
		item->number = 10 - i;
		bpf_spin_lock(&lock);
		bpf_rbtree_add_impl(&tree, &item->tree, less, NULL, 0);
		bpf_spin_unlock(&lock);
	}
	for (i = 0; i < 3; i++) {
		bpf_spin_lock(&lock);
		first = bpf_rbtree_first(&tree);
		first = first ? bpf_rbtree_remove(&tree, first) : NULL;
		bpf_spin_unlock(&lock);
		EXPECT(132, first && container_of(first, struct item, tree)->number == 8 + i);
		item = container_of(first, struct item, tree);
		bpf_spin_lock(&lock);
		bpf_list_push_back_impl(&list, &item->list, NULL, 0);
		bpf_spin_unlock(&lock);
	}
	for (i = 0; i < 3; i++) {
		bpf_spin_lock(&lock);
		node = bpf_list_pop_front(&list);
		bpf_spin_unlock(&lock);
		EXPECT(133, node && container_of(node, struct item, list)->number == 8 + i);
		bpf_obj_drop_impl(container_of(node, struct item, list), NULL);
	}
	return 0;
}

static int on_timer(void *map, u32 *key, struct timed *value)
{
	timer_fired++;
	timer_cpu = bpf_get_smp_processor_id();
	return 0;
}

static int on_removed(void *map, u32 *key, struct timed *value)
{
	removed_fired++;
	return 0;
}

static int on_work(void *map, int *key, void *value)
{
	work_done++;
	return 0;
}

static int start(struct timed *value, void *map, void *call)
{
	EXPECT(141, !bpf_timer_init(&value->timer, map, 1));
	EXPECT(142, !bpf_timer_set_callback(&value->timer, call));
	EXPECT(143, !bpf_timer_start(&value->timer, 1000000, 0));
	return 0;
}

static int try_values(void)
{
	struct timed fresh = { .number = 5 };
	struct bpf_cpumask *mask;
	struct timed *value;
	u32 key = 0;
	int error;

	value = bpf_map_lookup_elem(&timers, &key);
	EXPECT(144, value);
	error = start(value, &timers, on_timer);
	if (error)
		return error;
	EXPECT(145, !bpf_wq_init(&value->work, &timers, 0));
	if (bpf_ksym_exists(bpf_wq_set_callback)) {
		EXPECT(146, !bpf_wq_set_callback(&value->work, on_work, 0));
		EXPECT(147, !bpf_wq_start(&value->work, 0));
	} else {
		work_done = 1;
	}

	/* A deleted element does not fire; its mask is given back. */
	EXPECT(148, !bpf_map_update_elem(&removed, &key, &fresh, 0));
	value = bpf_map_lookup_elem(&removed, &key);
	EXPECT(149, value && value->number == 5);
	error = start(value, &removed, on_removed);
	if (error)
		return error;
	mask = bpf_cpumask_create();
	EXPECT(150, mask);
	mask = bpf_kptr_xchg(&value->mask, mask);
	EXPECT(151, !mask);
	EXPECT(152, !bpf_map_delete_elem(&removed, &key));

	/* An update copies everything but the timer, which it cancels, and frees the mask. */
	key = 1;
	value = bpf_map_lookup_elem(&timers, &key);
	EXPECT(153, value);
	error = start(value, &timers, on_removed);
	if (error)
		return error;
	EXPECT(154, !bpf_map_update_elem(&timers, &key, &fresh, 0));
	EXPECT(155, value->number == 5);
	EXPECT(156, !bpf_timer_init(&value->timer, &timers, 1));
	return 0;
}

static long on_message(struct bpf_dynptr *pointer, void *context)
{
	u64 *message = bpf_dynptr_data((void *)pointer, 0, 8);
	u64 number = 0;

	if (message)
		return 1;
	if (!bpf_dynptr_read(&number, 8, (void *)pointer, 0, 0))
		message_sum += number;
	return 0;
}

static int try_rest(void)
{
	char text[] = "needle in a haystack";

	EXPECT(161, __SCX_DSQ_LOCAL == 0x8000000000000002ULL && !__SCX_NO_SUCH_NUMBER);
	if (bpf_ksym_exists(bpf_strlen)) {
		EXPECT(162, bpf_strlen(text) == 20);
		EXPECT(163, bpf_strstr(text, "hay") == 12 && bpf_strstr(text, "straw") == -2);
	}
	EXPECT(164, bpf_user_ringbuf_drain(&messages, on_message, NULL, 0) == 0);
	return 0;
}

void SCHED_OP(features_enqueue, struct task_struct *p, u64 enq_flags)
{
	dsq_insert(p, SHARED_DSQ, 1000000, enq_flags);
}

void SCHED_OP(features_dispatch, s32 cpu, struct task_struct *prev)
{
	if (timer_fired && (removed_fired || !work_done || timer_cpu != 0))
		SCHED_ERROR("timers: %llu removed, %llu of work, CPU %d", removed_fired, work_done, timer_cpu);
	dsq_move_to_local(SHARED_DSQ);
}

s32 SCHED_OP_SLEEPABLE(features_init)
{
	int error;

	if ((error = try_arena()) || (error = try_dynptrs()) || (error = try_folded_text()) || (error = try_bits()) ||
	    (error = try_objects()) || (error = try_values()) || (error = try_rest()))
		return error;
	return scx_bpf_create_dsq(SHARED_DSQ, -1);
}

EXIT_RECORD(exit_record);

void SCHED_OP(features_exit, struct scx_exit_info *info)
{
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(features_ops,
	  .enqueue = (void *)features_enqueue,
	  .dispatch = (void *)features_dispatch,
	  .init = (void *)features_init,
	  .exit = (void *)features_exit,
	  .name = "features");
