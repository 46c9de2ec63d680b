// SPDX-License-Identifier: GPL-2.0-only
/* Calls a function of another file; must fail to load until it is linked with it. */
#include "../include/schedlab.bpf.h"

extern u64 defined_elsewhere(u64 x);

SEC("syscall")
int calls_elsewhere(void *ctx)
{
	return defined_elsewhere(1);
}
