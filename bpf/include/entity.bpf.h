/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What others read of the priority schedulers of 2.6 while they run: a task's data and the log of changes.
 *
 * Read by schedlab's `top` (top.bpf.c), and byte for byte by the program: offsets are part of the border, and
 * the assertions say so. Not here: how any of it comes about (arrays.bpf.h).
 */
#ifndef SCHEDLAB_ENTITY_BPF_H
#define SCHEDLAB_ENTITY_BPF_H

#include "kernel.bpf.h"

/* Why a priority changed. */
enum cause {
	CAUSE_NONE,
	CAUSE_SLEPT,
	CAUSE_WAITED,
	CAUSE_RAN,
	CAUSE_FORKED,
	CAUSE_BORN,
	CAUSE_YIELDED,
	CAUSE_NICE,
};

/* What every scheduler of this family keeps of a task. */
struct entity {
	/* When it last woke, began or stopped running. */
	u64 since;
	/* Dynamic priority, and that of its nice value. */
	u32 prio;
	u32 static_prio;
	/* Jiffies left. */
	u32 slice;
	/* In the expired array, and where in its level. */
	u8 expired;
	u8 place;
	/* Who forked it, 0 if that was before our time, and when that task began: a number may be another's by now. */
	s32 parent_pid;
	u64 parent_start;
	/* Has never been queued. */
	u8 is_new;
	/* Its waker said that it is about to sleep. */
	u8 sync;
	/* It was woken while its waker's CPU idled: by a device or a timer. */
	u8 woken_by_interrupt;
	/* Runs in front of its parent, with the parent's priority. */
	u8 before_parent;
	u8 nice_changed;
};

/* One change of a dynamic priority. */
struct change {
	u64 time;
	s32 pid;
	u8 before;
	u8 after;
	/* enum cause. */
	u8 cause;
	u8 unused;
};

_Static_assert(sizeof(struct change) == 16, "the program reads changes of 16 bytes");

#endif
