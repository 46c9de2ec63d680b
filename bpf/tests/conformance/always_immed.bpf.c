// SPDX-License-Identifier: GPL-2.0-only
/* The same under SCX_OPS_ALWAYS_ENQ_IMMED: insertions into a local queue need not ask for it. */
#define ALWAYS_IMMED
#include "immed.bpf.c"
