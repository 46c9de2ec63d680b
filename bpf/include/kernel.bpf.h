/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel types that our objects touch, and no others.
 *
 * Every struct is accessed through CO-RE: the order, the offsets and the completeness of members here
 * mean nothing, only names and kinds do. Enumerators are looked up in the running kernel too
 * (KERNEL_CONST); the values here are those of Linux 6.12 to 7.2 and serve the compiler alone.
 * Not here: kfuncs (kfuncs.bpf.h), what differs between kernel versions (compat.bpf.h).
 */
#ifndef SCHEDLAB_KERNEL_BPF_H
#define SCHEDLAB_KERNEL_BPF_H

typedef signed char __s8;
typedef unsigned char __u8;
typedef short __s16;
typedef unsigned short __u16;
typedef int __s32;
typedef unsigned int __u32;
typedef long long __s64;
typedef unsigned long long __u64;
typedef __s8 s8;
typedef __u8 u8;
typedef __s16 s16;
typedef __u16 u16;
typedef __s32 s32;
typedef __u32 u32;
typedef __s64 s64;
typedef __u64 u64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u64 __be64;
typedef __u32 __wsum;
typedef __u16 __sum16;
typedef _Bool bool;
typedef unsigned long size_t;
typedef int pid_t;

#define true 1
#define false 0
#define NULL ((void *)0)

/* From the BPF system call; these are stable. */
enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERF_EVENT_ARRAY = 4,
	BPF_MAP_TYPE_PERCPU_HASH = 5,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_HASH_OF_MAPS = 13,
	BPF_MAP_TYPE_QUEUE = 22,
	BPF_MAP_TYPE_STACK = 23,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
	BPF_MAP_TYPE_CGRP_STORAGE = 32,
};

enum {
	BPF_F_NO_PREALLOC = 1,
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
	BPF_EXIST = 2,
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1,
};

#define BPF_F_CURRENT_CPU 0xffffffffULL

struct bpf_perf_event_value {
	u64 counter;
	u64 enabled;
	u64 running;
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct list_head {
	struct list_head *next, *prev;
};

struct cgroup {
	u64 dom_cgrp;
};

struct cpumask {
	unsigned long bits[1];
};

typedef struct cpumask cpumask_t;

struct bpf_cpumask {
	cpumask_t cpumask;
};

struct bpf_timer {
	__u64 __opaque[2];
} __attribute__((aligned(8)));

struct bpf_spin_lock {
	__u32 val;
};

struct bpf_iter_num {
	__u64 __opaque[1];
} __attribute__((aligned(8)));

struct sched_ext_entity {
	u32 flags;
	u32 weight;
	s32 selected_cpu;
	u64 slice;
	u64 dsq_vtime;
	bool disallow;
};

struct mm_struct;

/* Of a task's flags. */
#define PF_KTHREAD 0x00200000

struct task_struct {
	unsigned int __state;
	unsigned int flags;
	int on_cpu;
	int recent_used_cpu;
	int wake_cpu;
	int prio;
	int static_prio;
	int normal_prio;
	unsigned int rt_priority;
	unsigned int policy;
	int nr_cpus_allowed;
	const cpumask_t *cpus_ptr;
	cpumask_t cpus_mask;
	unsigned short migration_disabled;
	struct mm_struct *mm;
	pid_t pid;
	pid_t tgid;
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	u64 utime;
	u64 stime;
	u64 nvcsw;
	u64 nivcsw;
	u64 start_time;
	char comm[16];
	struct sched_ext_entity scx;
};

struct rq {
	unsigned int nr_running;
	u64 clock;
	struct task_struct *curr;
	int cpu;
};

enum scx_exit_kind {
	SCX_EXIT_NONE = 0,
	SCX_EXIT_DONE = 1,
	SCX_EXIT_UNREG = 64,
	SCX_EXIT_UNREG_BPF = 65,
	SCX_EXIT_UNREG_KERN = 66,
	SCX_EXIT_SYSRQ = 67,
	SCX_EXIT_ERROR = 1024,
	SCX_EXIT_ERROR_BPF = 1025,
	SCX_EXIT_ERROR_STALL = 1026,
};

struct scx_exit_info {
	enum scx_exit_kind kind;
	s64 exit_code;
	const char *reason;
	char *msg;
	char *dump;
};

struct scx_init_task_args {
	bool fork;
	struct cgroup *cgroup;
};

struct scx_exit_task_args {
	bool cancelled;
};

struct scx_cpu_acquire_args;
struct scx_cpu_release_args;
struct scx_dump_ctx;
struct scx_cgroup_init_args;

/* Callbacks of cpu-form schedulers, 6.12 to 7.2. A member that a kernel lacks must stay zero. */
struct sched_ext_ops {
	s32 (*select_cpu)(struct task_struct *p, s32 prev_cpu, u64 wake_flags);
	void (*enqueue)(struct task_struct *p, u64 enq_flags);
	void (*dequeue)(struct task_struct *p, u64 deq_flags);
	void (*dispatch)(s32 cpu, struct task_struct *prev);
	void (*tick)(struct task_struct *p);
	void (*runnable)(struct task_struct *p, u64 enq_flags);
	void (*running)(struct task_struct *p);
	void (*stopping)(struct task_struct *p, bool runnable);
	void (*quiescent)(struct task_struct *p, u64 deq_flags);
	bool (*yield)(struct task_struct *from, struct task_struct *to);
	bool (*core_sched_before)(struct task_struct *a, struct task_struct *b);
	void (*set_weight)(struct task_struct *p, u32 weight);
	void (*set_cpumask)(struct task_struct *p, const struct cpumask *cpumask);
	void (*update_idle)(s32 cpu, bool idle);
	void (*cpu_acquire)(s32 cpu, struct scx_cpu_acquire_args *args);
	void (*cpu_release)(s32 cpu, struct scx_cpu_release_args *args);
	s32 (*init_task)(struct task_struct *p, struct scx_init_task_args *args);
	void (*exit_task)(struct task_struct *p, struct scx_exit_task_args *args);
	void (*enable)(struct task_struct *p);
	void (*disable)(struct task_struct *p);
	void (*dump)(struct scx_dump_ctx *ctx);
	void (*dump_cpu)(struct scx_dump_ctx *ctx, s32 cpu, bool idle);
	void (*dump_task)(struct scx_dump_ctx *ctx, struct task_struct *p);
	s32 (*cgroup_init)(struct cgroup *cgrp, struct scx_cgroup_init_args *args);
	void (*cgroup_exit)(struct cgroup *cgrp);
	s32 (*cgroup_prep_move)(struct task_struct *p, struct cgroup *from, struct cgroup *to);
	void (*cgroup_move)(struct task_struct *p, struct cgroup *from, struct cgroup *to);
	void (*cgroup_cancel_move)(struct task_struct *p, struct cgroup *from, struct cgroup *to);
	void (*cgroup_set_weight)(struct cgroup *cgrp, u32 weight);
	void (*cgroup_set_bandwidth)(struct cgroup *cgrp, u64 period_us, u64 quota_us, u64 burst_us);
	void (*cgroup_set_idle)(struct cgroup *cgrp, bool idle);
	void (*cpu_online)(s32 cpu);
	void (*cpu_offline)(s32 cpu);
	s32 (*init)(void);
	void (*exit)(struct scx_exit_info *info);
	u32 dispatch_max_batch;
	u64 flags;
	u32 timeout_ms;
	u32 exit_dump_len;
	u64 hotplug_seq;
	char name[128];
};

/* Argument structs of kfuncs that outgrew five registers (6.19). Their layout is the kernel's. */
struct scx_bpf_dsq_insert_vtime_args {
	u64 dsq_id;
	u64 slice;
	u64 vtime;
	u64 enq_flags;
};

struct scx_bpf_select_cpu_and_args {
	s32 prev_cpu;
	u64 wake_flags;
	u64 flags;
};

/* Lives on the program's stack: the kernel's size is what counts, and it has not changed. */
struct bpf_iter_scx_dsq {
	u64 __opaque[6];
} __attribute__((aligned(8)));

#pragma clang attribute pop

enum scx_public_consts {
	SCX_SLICE_DFL = 20000000ULL,
	SCX_SLICE_INF = 0xffffffffffffffffULL,
};

enum scx_dsq_id_flags {
	SCX_DSQ_GLOBAL = 0x8000000000000001ULL,
	SCX_DSQ_LOCAL = 0x8000000000000002ULL,
	SCX_DSQ_LOCAL_ON = 0xc000000000000000ULL,
	SCX_DSQ_LOCAL_CPU_MASK = 0xffffffffULL,
};

enum scx_enq_flags {
	SCX_ENQ_WAKEUP = 0x1ULL,
	SCX_ENQ_HEAD = 0x10000ULL,
	SCX_ENQ_CPU_SELECTED = 0x100000ULL,
	SCX_ENQ_PREEMPT = 0x100000000ULL,
	SCX_ENQ_REENQ = 0x10000000000ULL,
	SCX_ENQ_LAST = 0x20000000000ULL,
};

enum scx_deq_flags {
	SCX_DEQ_SLEEP = 0x1ULL,
	SCX_DEQ_CORE_SCHED_EXEC = 0x100000000ULL,
};

enum scx_ops_flags {
	SCX_OPS_KEEP_BUILTIN_IDLE = 1ULL,
	SCX_OPS_ENQ_LAST = 2ULL,
	SCX_OPS_ENQ_EXITING = 4ULL,
	SCX_OPS_SWITCH_PARTIAL = 8ULL,
};

enum scx_kick_flags {
	SCX_KICK_IDLE = 1,
	SCX_KICK_PREEMPT = 2,
	SCX_KICK_WAIT = 4,
};

enum scx_wake_flags {
	SCX_WAKE_FORK = 4,
	SCX_WAKE_TTWU = 8,
	SCX_WAKE_SYNC = 16,
};

enum scx_pick_idle_cpu_flags {
	SCX_PICK_IDLE_CORE = 1,
};

/* The value of an enumerator in the running kernel, e.g. KERNEL_CONST(scx_dsq_id_flags, SCX_DSQ_LOCAL). */
#define KERNEL_CONST(type, name) bpf_core_enum_value(enum type, name)

#endif
