// SPDX-License-Identifier: GPL-2.0-only
/*
 * Every kind of CO-RE relocation, over types that tests declare with other layouts; absent fields behind
 * a test and not behind one.
 */
#include "../include/schedlab.bpf.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct core_inner {
	int a;
	u64 b;
	char text[8];
};

struct core_sample {
	int first;
	u32 narrow;
	unsigned int flag_low : 3;
	int flag_signed : 5;
	struct core_inner inner;
	struct core_inner many[4];
	union {
		u32 in_union;
		u64 in_union_wide;
	};
	struct core_sample *next;
	int absent;
};

/* The same type as another kernel version had it. */
struct core_sample___old {
	int renamed;
	int first;
};

struct core_absent {
	int x;
};

struct core_exact {
	u32 x;
	struct core_inner *inner;
};

struct core_inexact {
	u32 x;
	u64 missing_there;
};

#pragma clang attribute pop

enum core_enum { CORE_A = 1, CORE_B = 2, CORE_GONE = 3 };
enum core_wide { CORE_WIDE = 0x100000001ULL };
enum core_absent_enum { CORE_ABSENT_VALUE = 1 };

u64 out[64];
struct core_sample *sample;

SEC("syscall")
int fields(void *ctx)
{
	struct core_sample *s = sample;

	out[0] = s->first;
	out[1] = s->narrow;
	out[2] = s->inner.b;
	out[3] = s->many[2].b;
	out[4] = s->in_union;
	out[5] = s->next->many[1].text[3];
	out[6] = bpf_core_field_exists(s->absent);
	out[7] = bpf_core_field_exists(s->inner.b);
	out[8] = bpf_core_field_size(s->many);
	out[9] = bpf_core_field_offset(struct core_sample, many);
	out[10] = BPF_CORE_READ_BITFIELD(s, flag_low);
	out[11] = BPF_CORE_READ_BITFIELD(s, flag_signed);
	out[12] = BPF_CORE_READ_BITFIELD_PROBED(s, flag_signed);
	out[13] = __builtin_preserve_field_info(s->flag_signed, BPF_FIELD_SIGNED);
	out[14] = __builtin_preserve_field_info(s->narrow, BPF_FIELD_SIGNED);
	if (bpf_core_field_exists(s->absent))
		out[15] = s->absent;
	if (bpf_core_field_exists(((struct core_sample___old *)s)->renamed))
		out[16] = ((struct core_sample___old *)s)->renamed;
	out[17] = ((struct core_sample___old *)s)->first;
	s->narrow = 5;
	s->next = s;
	return 0;
}

SEC("syscall")
int types(void *ctx)
{
	out[20] = bpf_core_type_exists(struct core_sample);
	out[21] = bpf_core_type_exists(struct core_absent);
	out[22] = bpf_core_type_size(struct core_sample);
	out[23] = bpf_core_type_size(struct core_absent);
	out[24] = bpf_core_type_id_local(struct core_sample);
	out[25] = bpf_core_type_id_kernel(struct core_sample);
	out[26] = bpf_core_type_id_kernel(struct core_absent);
	out[27] = bpf_core_type_matches(struct core_exact);
	out[28] = bpf_core_type_matches(struct core_inexact);
	out[29] = bpf_core_type_exists(enum core_enum);
	out[30] = bpf_core_type_matches(enum core_enum);
	return 0;
}

SEC("syscall")
int enumerators(void *ctx)
{
	out[40] = bpf_core_enum_value_exists(enum core_enum, CORE_B);
	out[41] = bpf_core_enum_value_exists(enum core_enum, CORE_GONE);
	out[42] = bpf_core_enum_value(enum core_enum, CORE_B);
	out[43] = bpf_core_enum_value(enum core_wide, CORE_WIDE);
	if (bpf_core_enum_value_exists(enum core_absent_enum, CORE_ABSENT_VALUE))
		out[44] = bpf_core_enum_value(enum core_absent_enum, CORE_ABSENT_VALUE);
	return 0;
}

/* Reaches an absent field without a test: loads, but must not run. */
SEC("syscall")
int unguarded(void *ctx)
{
	out[50] = sample->absent;
	return 0;
}
