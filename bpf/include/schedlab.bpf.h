/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What every scheduler includes: kernel types, libbpf's helpers, kernel functions, knobs, and the way a
 * scheduler declares its callbacks.
 */
#ifndef SCHEDLAB_BPF_H
#define SCHEDLAB_BPF_H

#include "kernel.bpf.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "kfuncs.bpf.h"
#include "compat.bpf.h"
#include "knob.bpf.h"

/* The iterator of the bpf_for_each() at hand. */
#define BPF_FOR_EACH_ITER (&___it)

/* A callback: void SCHED_OP(NAME_enqueue, struct task_struct *p, u64 enq_flags) { ... } */
#define SCHED_OP(name, args...) SEC("struct_ops/" #name) BPF_PROG(name, ##args)

/* A callback that may sleep: init, init_task, exit, cpu_online, cpu_offline, cgroup_init and the like. */
#define SCHED_OP_SLEEPABLE(name, args...) SEC("struct_ops.s/" #name) BPF_PROG(name, ##args)

/* The table of callbacks. Use once, last in the file. */
#define SCHED_OPS(name, members...)                                                                \
	SEC(".struct_ops.link")                                                                    \
	struct sched_ext_ops name = { members }

/* Why the kernel ended the scheduler, for whoever loaded it to read. */
struct exit_record {
	s32 kind;
	s64 exit_code;
	char reason[128];
	char message[1024];
};

/* Declares the record; RECORD_EXIT fills it from the exit callback. */
#define EXIT_RECORD(name) struct exit_record name SEC(".data.exit")

#define RECORD_EXIT(name, info)                                                                    \
	({                                                                                         \
		bpf_probe_read_kernel_str(name.reason, sizeof(name.reason), info->reason);         \
		bpf_probe_read_kernel_str(name.message, sizeof(name.message), info->msg);          \
		name.exit_code = info->exit_code;                                                  \
		name.kind = info->kind;                                                            \
	})

char LICENSE[] SEC("license") = "GPL";

#endif
