// SPDX-License-Identifier: GPL-2.0-only
/* The same under SCX_OPS_SWITCH_PARTIAL: every task is initialised, those of SCHED_EXT alone are enabled. */
#define COUNT_FLAGS SCX_OPS_SWITCH_PARTIAL
#include "init_enable_count.bpf.c"
