// SPDX-License-Identifier: GPL-2.0-only
/* Static and global subprograms that call each other, and callbacks; for tests of the linker. */
#include "../include/schedlab.bpf.h"

u64 total;

static __noinline u64 leaf(u64 x)
{
	total += x;
	return x * 3 + total;
}

__noinline u64 global_leaf(u64 x)
{
	return x + 17 + leaf(x);
}

static __noinline u64 middle(u64 x)
{
	return global_leaf(x) ^ leaf(x + 1);
}

__noinline u64 unused_but_kept(u64 x)
{
	return middle(x) + 1;
}

static int each_static(u32 index, void *ctx)
{
	total += leaf(index);
	return index > 5;
}

int each_global(u32 index, void *ctx)
{
	total ^= index;
	return 0;
}

SEC("syscall")
int first(void *ctx)
{
	return leaf(1) + middle(2);
}

SEC("syscall")
int second(void *ctx)
{
	bpf_loop(10, each_static, NULL, 0);
	bpf_loop(3, each_global, NULL, 0);
	return global_leaf(3) + middle(4);
}

SEC("?syscall")
int not_loaded(void *ctx)
{
	return leaf(9);
}
