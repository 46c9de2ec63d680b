/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A log that says when and why priorities changed, for schedulers whose tasks have a priority below 256.
 *
 * Read by the program while it fills: `changes`, `changes_count` and the knob `log_changes` are how it knows that there
 * is one. Not here: when a priority changes, which is the scheduler's.
 */
#ifndef SCHEDLAB_CHANGES_BPF_H
#define SCHEDLAB_CHANGES_BPF_H

#include "entity.bpf.h"

KNOB(bool, log_changes, 0, bool, 0, 1, "Whether changes of priority are written to `changes`, with their causes.");

#define CHANGES_MAX 8192
/* The last changes while log_changes is set, in turn, and how many there were in all. */
struct change changes[CHANGES_MAX];
u64 changes_count;

static __noinline void log_change(s32 pid, u32 before, u32 after, u32 cause)
{
	struct change *change = &changes[__sync_fetch_and_add(&changes_count, 1) % CHANGES_MAX];

	change->time = now_ns();
	change->pid = pid;
	change->before = before;
	change->after = after;
	change->cause = cause;
}

#endif
