/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel types that the recorder touches beyond kernel.bpf.h, and how they differ between kernels and
 * architectures. Accessed through CO-RE: only names matter. Types that kernel.bpf.h declares for schedulers
 * appear here as flavours (`___trace`), with the members a recorder needs.
 */
#ifndef SCHEDLAB_TRACE_BPF_H
#define SCHEDLAB_TRACE_BPF_H

#include "kernel.bpf.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

enum {
	BPF_F_MMAPABLE = 1 << 10,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	unsigned long di, si, dx, r10, r8, ax, orig_ax;
};
#define REGS_NUMBER(regs) ((long)(regs)->orig_ax)
#define REGS_ARG0(regs) ((regs)->di)
#define REGS_ARG1(regs) ((regs)->si)
#define REGS_ARG2(regs) ((regs)->dx)
#define REGS_ARG3(regs) ((regs)->r10)
#define REGS_ARG4(regs) ((regs)->r8)
#elif defined(__TARGET_ARCH_arm64)
struct pt_regs {
	u64 regs[31];
	u64 orig_x0;
	s32 syscallno;
};
#define REGS_NUMBER(regs) ((long)(regs)->syscallno)
#define REGS_ARG0(regs) ((regs)->orig_x0)
#define REGS_ARG1(regs) ((regs)->regs[1])
#define REGS_ARG2(regs) ((regs)->regs[2])
#define REGS_ARG3(regs) ((regs)->regs[3])
#define REGS_ARG4(regs) ((regs)->regs[4])
#else
#error "the recorder knows the system call registers of x86-64 and arm64 only"
#endif

struct inode {
	unsigned short i_mode;
	unsigned long i_ino;
};

struct file_operations {
	void *write;
	void *write_iter;
};

struct file {
	struct inode *f_inode;
	void *private_data;
	const struct file_operations *f_op;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct sock_common {
	unsigned short skc_family;
	u32 skc_daddr;
	u32 skc_rcv_saddr;
	u16 skc_dport;
	u16 skc_num;
};

struct socket;

struct sock {
	struct sock_common __sk_common;
	struct socket *sk_socket;
	unsigned long sk_ino;
};

struct socket {
	struct file *file;
	struct sock *sk;
};

struct unix_sock {
	struct sock sk;
	struct sock *peer;
};

struct task_io_accounting {
	u64 rchar;
	u64 wchar;
	u64 syscr;
	u64 syscw;
};

struct thread_info___trace {
	u32 cpu;
};

struct sched_entity___trace {
	u64 slice;
	u64 vruntime;
	unsigned char custom_slice;
};

struct sched_ext_entity___trace {
	u64 dsq_vtime;
};

struct task_struct___trace {
	struct thread_info___trace thread_info;
	unsigned int cpu;
	struct files_struct *files;
	struct task_io_accounting ioac;
	struct sched_entity___trace se;
	struct sched_ext_entity___trace scx;
};

struct hrtimer;

struct hrtimer_clock_base {
	s64 offset;
};

struct timerqueue_node {
	s64 expires;
};

struct hrtimer {
	struct timerqueue_node node;
	void *function;
	struct hrtimer_clock_base *base;
};

struct hrtimer_sleeper {
	struct hrtimer timer;
	struct task_struct *task;
};

struct linux_binprm;
struct irqaction;

#pragma clang attribute pop

#define TRACED(task) ((struct task_struct___trace *)(task))

/* The CPU a task is or last was on. */
static __always_inline u32 task_cpu(struct task_struct *task)
{
	if (bpf_core_field_exists(TRACED(task)->thread_info.cpu))
		return TRACED(task)->thread_info.cpu;
	return TRACED(task)->cpu;
}

/* Any word of kernel memory, as the first member of a type that every kernel has. */
struct list_head___trace {
	void *next;
} __attribute__((preserve_access_index));

extern struct task_struct *bpf_task_from_pid(s32 pid) __ksym __weak;
extern void bpf_task_release(struct task_struct *p) __ksym __weak;
extern void *bpf_rdonly_cast(const void *object, u32 type) __ksym __weak;

/*
 * A member of an object in kernel memory, 0 where there is none. Since 6.2 it is a plain load that tolerates
 * faults; before, or under another name, a call for each pointer on the way.
 */
#define LOAD(type, pointer, member)                                                                \
	({                                                                                         \
		typeof(((type *)0)->member) loaded_;                                               \
                                                                                                   \
		if (bpf_ksym_exists(bpf_rdonly_cast))                                              \
			loaded_ = ((type *)bpf_rdonly_cast((const void *)(pointer),                \
							   bpf_core_type_id_kernel(type)))->member; \
		else                                                                               \
			loaded_ = BPF_CORE_READ((type *)(pointer), member);                        \
		loaded_;                                                                           \
	})

/* Sleeps in the kernel end in this function; a timer that calls it names its task. */
extern const void hrtimer_wakeup __ksym __weak;
/* What a socket's write is; tells it from other files. */
extern const void sock_write_iter __ksym __weak;
/* What an eventfd's write is; tells it from other anonymous inodes. */
extern const void eventfd_write __ksym __weak;

#endif
