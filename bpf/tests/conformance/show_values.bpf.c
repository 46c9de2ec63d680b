// SPDX-License-Identifier: GPL-2.0-only
/*
 * How the kernel prints values by their BTF types (bpf_snprintf_btf), asked of types that are the same in every kernel.
 * After what Linux's tools/testing/selftests/bpf/progs/netif_receive_skb.c expects.
 */
#include "../../include/conformance.bpf.h"

#define ENOENT 2
#define ERANGE 34
#define TEXT_BYTES 512

struct btf_ptr {
	void *ptr;
	u32 type_id;
	u32 flags;
};

typedef struct {
	int counter;
} atomic_t;

struct refcount_struct {
	atomic_t refs;
};

struct rb_node {
	unsigned long __rb_parent_color;
	struct rb_node *rb_right;
	struct rb_node *rb_left;
};

enum { COMPACT = 1, NONAME = 2, PTR_RAW = 4, ZERO = 8 };

static char text[TEXT_BYTES];

static __always_inline bool same(const char *expected, u32 bytes)
{
	for (u32 i = 0; i < bytes && i < TEXT_BYTES; i++)
		if (text[i] != expected[i])
			return false;
	return true;
}

static __always_inline long shown(void *value, u32 type, u32 bytes, u64 flags)
{
	struct btf_ptr ptr = { .ptr = value, .type_id = type };

	return bpf_snprintf_btf(text, bytes, &ptr, sizeof(ptr), flags);
}

/* What stands in `expected` is the whole text of a value of a type under some flags. */
#define SHOWS(type, flags, expected, ...)                                                          \
	({                                                                                         \
		static type ___value = __VA_ARGS__;                                                \
		static const char ___expected[] = expected;                                        \
		long ___bytes = shown(&___value, bpf_core_type_id_kernel(type), TEXT_BYTES, flags); \
		CHECK(___bytes == sizeof(___expected) - 1);                                        \
		CHECK(same(___expected, sizeof(___expected)));                                     \
	})

static void single_values(void)
{
	SHOWS(int, COMPACT, "(int)-4567", -4567);
	SHOWS(int, COMPACT | NONAME, "0", 0);
	SHOWS(u64, COMPACT, "(u64)100", 100);
	SHOWS(enum scx_exit_kind, COMPACT, "(enum scx_exit_kind)SCX_EXIT_NONE", 0);
	SHOWS(enum scx_exit_kind, COMPACT | NONAME, "SCX_EXIT_ERROR", 1024);
	SHOWS(enum scx_exit_kind, COMPACT, "(enum scx_exit_kind)2000", 2000);
}

static void structs(void)
{
	SHOWS(atomic_t, COMPACT, "(atomic_t){.counter = (int)1,}", { 1 });
	SHOWS(atomic_t, COMPACT, "(atomic_t){}", { 0 });
	SHOWS(atomic_t, COMPACT | ZERO | NONAME, "{0,}", { 0 });
	SHOWS(struct refcount_struct, COMPACT,
	      "(struct refcount_struct){.refs = (atomic_t){.counter = (int)5,},}", { { 5 } });
	SHOWS(struct refcount_struct, COMPACT, "(struct refcount_struct){}", { { 0 } });
	SHOWS(struct refcount_struct, 0,
	      "(struct refcount_struct){\n .refs = (atomic_t){\n  .counter = (int)5,\n },\n}\n", { { 5 } });
	SHOWS(struct rb_node, COMPACT | PTR_RAW,
	      "(struct rb_node){.__rb_parent_color = (long unsigned int)7,"
	      ".rb_left = (struct rb_node *)0x0000000000000001,}",
	      { 7, 0, (void *)1 });
	SHOWS(struct rb_node, COMPACT | ZERO,
	      "(struct rb_node){.__rb_parent_color = (long unsigned int)0,"
	      ".rb_right = (struct rb_node *)0x0000000000000000,.rb_left = (struct rb_node *)0x0000000000000000,}",
	      { 0 });
}

/* Errors, and a text that does not fit: cut, its whole length told. */
static void edges(void)
{
	static struct refcount_struct value = { { 5 } };
	static const char cut[] = "(struct re";
	u32 type = bpf_core_type_id_kernel(struct refcount_struct);

	CHECK(shown(&value, type, sizeof(cut), COMPACT) == 65);
	CHECK(same(cut, sizeof(cut)));
	CHECK(shown(&value, 0, TEXT_BYTES, COMPACT) == -EINVAL);
	CHECK(shown(&value, 0x7fffffff, TEXT_BYTES, COMPACT) == -ENOENT);
	CHECK(shown(&value, type, TEXT_BYTES, 16) == -EINVAL);
	CHECK(shown(NULL, type, TEXT_BYTES, COMPACT) == -ERANGE);
}

s32 SCHED_OP_SLEEPABLE(show_values_init)
{
	single_values();
	structs();
	edges();
	return 0;
}

void SCHED_OP(show_values_exit, struct scx_exit_info *info)
{
	RECORD_EXIT(exit_record, info);
}

SCHED_OPS(show_values_ops,
	  .init = (void *)show_values_init,
	  .exit = (void *)show_values_exit,
	  .name = "show_values");
