// SPDX-License-Identifier: GPL-2.0-only
/* A scheduler that asks for what no simulated kernel has: `schedlab show` names all of it at once. */
#include "../include/schedlab.bpf.h"

#define bpf_of_number(number) ((long (*)(void *, u64))(number))

extern void scx_bpf_of_tomorrow(struct task_struct *p) __ksym __weak;
extern void scx_bpf_of_next_year(struct task_struct *p) __ksym __weak;

struct {
	__uint(type, 14); /* BPF_MAP_TYPE_DEVMAP */
	__uint(max_entries, 4);
	__uint(key_size, 4);
	__uint(value_size, 4);
} devices SEC(".maps");

struct {
	__uint(type, 16); /* BPF_MAP_TYPE_CPUMAP */
	__uint(max_entries, 4);
	__uint(key_size, 4);
	__uint(value_size, 4);
} processors SEC(".maps");

void SCHED_OP(lacking_enqueue, struct task_struct *p, u64 enq_flags)
{
	bpf_of_number(147)(&devices, 0); /* bpf_d_path */
	bpf_of_number(180)(&processors, 0); /* bpf_find_vma */
	scx_bpf_of_tomorrow(p);
	scx_bpf_of_next_year(p);
}

SCHED_OPS(lacking_ops,
	  .enqueue = (void *)lacking_enqueue,
	  .name = "lacking");
