/*
 * The kernel functions that the callbacks of `vtime` call, doing as little as those of clang.rs, and the task
 * they are called for. Compiled apart from the scheduler: calls stay calls.
 */
#define LICENSE kernel_license
#include "../../../../bpf/include/schedlab.bpf.h"

u64 inserted;
static struct task_struct task = { .static_prio = 120 };
static struct cpumask cpus;

struct task_struct *the_task(void)
{
	task.cpus_ptr = &cpus;
	return &task;
}

u64 cpu_selected(void)
{
	return SCX_ENQ_CPU_SELECTED;
}

s32 scx_bpf_select_cpu_dfl(struct task_struct *p, s32 prev_cpu, u64 wake_flags, bool *is_idle)
{
	*is_idle = true;
	return prev_cpu;
}

bool scx_bpf_dsq_insert___v2___compat(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags)
{
	inserted += slice;
	return true;
}

bool __scx_bpf_dsq_insert_vtime(struct task_struct *p, struct scx_bpf_dsq_insert_vtime_args *args)
{
	inserted += args->slice;
	return true;
}

bool scx_bpf_dsq_move_to_local___v1(u64 dsq_id)
{
	return true;
}

bool scx_bpf_task_set_dsq_vtime(struct task_struct *p, u64 vtime)
{
	p->scx.dsq_vtime = vtime;
	return true;
}

bool scx_bpf_task_set_slice(struct task_struct *p, u64 slice)
{
	p->scx.slice = slice;
	return true;
}

s32 scx_bpf_task_cpu(const struct task_struct *p)
{
	return p->recent_used_cpu;
}

s32 scx_bpf_create_dsq(u64 dsq_id, s32 node)
{
	return 0;
}

s32 scx_bpf_pick_idle_cpu(const struct cpumask *cpus_allowed, u64 flags)
{
	return -16;
}

void scx_bpf_kick_cpu(s32 cpu, u64 flags)
{
}

int bpf_iter_scx_dsq_new(struct bpf_iter_scx_dsq *it, u64 dsq_id, u64 flags)
{
	return 0;
}

struct task_struct *bpf_iter_scx_dsq_next(struct bpf_iter_scx_dsq *it)
{
	return NULL;
}

void bpf_iter_scx_dsq_destroy(struct bpf_iter_scx_dsq *it)
{
}
