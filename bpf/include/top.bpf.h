/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What `schedlab top` is told of a task and of a CPU. Shared with schedlab-host, top/raw.rs, which reads these
 * rows byte for byte.
 */
#ifndef SCHEDLAB_TOP_BPF_H
#define SCHEDLAB_TOP_BPF_H

/* What of a task_row is known. */
enum top_known {
	TOP_ELIGIBLE = 1 << 0,	/* lag and deadline: the kernel schedules by EEVDF */
	TOP_VRUNTIME = 1 << 1,	/* vruntime is relative to its queue's average (EEVDF) or minimum (CFS) */
	TOP_DELAYED = 1 << 2,	/* it sleeps, and is still queued until its lag has decayed */
	TOP_ENTITY = 1 << 3,	/* level and level_slice: one of the schedulers of 2006 keeps them */
	TOP_KERNEL = 1 << 4,	/* a kernel thread */
	TOP_DELAY = 1 << 5,	/* delay: the kernel counts it */
};

struct task_row {
	/* With the pid, who it is. */
	u64 start_time;
	u64 cgroup;
	/* ns since it began. */
	u64 ran;
	/* ns that it was runnable without running, the wait that goes on too. */
	u64 delay;
	u64 voluntary;
	u64 involuntary;
	/* Fair: virtual ns before (above 0) or behind the average. */
	s64 lag;
	/* Fair: virtual ns from the queue's average or minimum. */
	s64 vruntime;
	/* Fair, EEVDF: virtual ns from the queue's average. */
	s64 deadline;
	/* Fair, EEVDF: the length of its requests. */
	u64 slice;
	/* sched_ext. */
	u64 ext_vtime;
	u64 ext_slice;
	u64 ext_queue;
	/* Deadline class: ns of runtime left, and when. */
	s64 dl_runtime;
	u64 dl_deadline;
	s32 pid;
	s32 tgid;
	s32 prio;
	s32 static_prio;
	u32 rt_priority;
	u32 policy;
	/* Round robin: ticks left. */
	u32 rr_ticks;
	u32 weight;
	u32 cpu;
	u32 ext_weight;
	u32 state;
	/* Schedulers of 2006: dynamic and static priority, jiffies left. */
	u32 level;
	u32 level_static;
	u32 level_slice;
	u8 on_rq;
	u8 on_cpu;
	/* enum top_known. */
	u8 known;
	u8 unused[5];
	char comm[16];
};

struct cpu_row {
	u64 clock;
	u64 switches;
	/* Tasks queued by class, the current one too. */
	u32 running;
	u32 fair;
	u32 rt;
	u32 deadline;
	u32 ext;
	/* Current task; 0 is idle. */
	s32 current;
	s32 prio;
	u32 policy;
	u32 online;
	/* In which walk it was filled. */
	u32 walk;
	char comm[16];
};

_Static_assert(sizeof(struct task_row) == 200 && sizeof(struct cpu_row) == 72, "the program reads these sizes");

#endif
